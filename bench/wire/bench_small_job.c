/* What storing and showing a small job costs: its text in Redis both ways, and its document. */
#include "base/clock.h"
#include "wire/answer.h"
#include "wire/frame.h"

#include "tests/unit/wire/sample_ops.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SMALL_ROUNDS 200000

static double since(int64_t start) {
    return (double)(blasd_clock_ns() - start) / 1e9;
}

static void make_record(struct blasd_record *record, enum blasd_dtype dtype, int64_t side) {
    const int64_t shape[] = {side, side};
    memset(record, 0, sizeof *record);
    memcpy(record->id, "s692fa1b00123456789abcdef0123456789abcdef", BLASD_ID_LEN + 1);
    snprintf(record->op, sizeof record->op, "sample");
    snprintf(record->execution.device, sizeof record->execution.device, "cpu:0");
    snprintf(record->execution.method, sizeof record->execution.method, "dgemm");
    record->state = BLASD_SUCCEEDED;
    record->created_us = record->started_us = record->finished_us = 1700000000123456;
    record->progress = 1;
    record->output_count = 1;
    record->outputs[0].tensor = blasd_tensor_make(dtype, 2, shape);
    record->outputs[0].bytes = blasd_tensor_bytes(&record->outputs[0].tensor);
    record->payload_bytes = record->outputs[0].bytes;
}

static void small_jobs(void) {
    static struct blasd_record record, record_back;
    static struct blasd_job job, job_back;
    static double data[16];
    const int64_t shape[] = {4, 4};
    struct blasd_buf buf;
    struct blasd_err err;
    size_t payload_at;
    int64_t start;
    make_record(&record, BLASD_float64, 4);
    blasd_job_init(&job, &sample_op);
    memcpy(job.id, record.id, sizeof job.id);
    for (int i = 0; i < 2; i++) {
        job.inputs[i].tensor = blasd_tensor_make(BLASD_float64, 2, shape);
        job.inputs[i].source = (struct blasd_source){
            .kind = BLASD_SOURCE_PAYLOAD, .offset = (uint64_t)i * 128, .bytes = 128};
    }
    job.payload_bytes = 256;
    for (int i = 0; i < 16; i++) data[i] = sqrt(i);
    blasd_buf_init(&buf, 1 << 20);
#define TIME(what, statement)                                                                      \
    do {                                                                                           \
        start = blasd_clock_ns();                                                                  \
        for (int round = 0; round < SMALL_ROUNDS; round++) {                                       \
            if (statement) abort();                                                                \
        }                                                                                          \
        printf("%-34s %7.1f ns\n", what, since(start) * 1e9 / SMALL_ROUNDS);                       \
    } while (0)
    TIME("4x4 job: encode", (buf.len = 0, blasd_job_encode(&job, &buf, &err)));
    if (blasd_buf_reserve(&buf, 512) != 0) abort();
    memset(buf.data + buf.len, 0, 512);
    TIME("4x4 job: decode",
         blasd_job_decode(buf.data, buf.len + 512, &job_back, &payload_at, &err));
    TIME("4x4 record: encode", (buf.len = 0, blasd_record_encode(&record, &buf, &err)));
    if (blasd_buf_reserve(&buf, 512) != 0) abort();
    memset(buf.data + buf.len, 0, 512);
    TIME("4x4 record: decode",
         blasd_record_decode(buf.data, buf.len + 512, &record_back, &payload_at, &err));
    TIME("4x4 job document with data",
         (buf.len = 0, blasd_job_document(&record, data, 4096, false, &buf)));
    blasd_buf_release(&buf);
}

int main(void) {
    small_jobs();
    return 0;
}
