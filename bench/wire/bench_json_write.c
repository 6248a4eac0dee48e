/* How fast tensors become JSON: our generator against jansson's json_dumpb on the same numbers, in
 * one run; and what storing and showing a small job costs.
 *
 *     bench_json_write [side of the square matrix, 1024 by default]
 */
#include "base/clock.h"
#include "wire/answer.h"
#include "wire/frame.h"

#include "tests/unit/wire/sample_ops.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROUNDS 5
#define SMALL_ROUNDS 200000

static double best_of(double *seconds) {
    double best = seconds[0];
    for (int i = 1; i < ROUNDS; i++)
        if (seconds[i] < best) best = seconds[i];
    return best;
}

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
    for (int i = 0; i < BLASD_MAX_OUTPUTS; i++) record->outputs[i].tensor.rank = -1;
    record->outputs[0].tensor = blasd_tensor_make(dtype, 2, shape);
    record->outputs[0].bytes = blasd_tensor_bytes(&record->outputs[0].tensor);
    record->payload_bytes = record->outputs[0].bytes;
}

static void ours(const struct blasd_record *record, const void *data, const char *name) {
    static char room[65536];
    double seconds[ROUNDS];
    size_t bytes = 0;
    for (int round = 0; round < ROUNDS; round++) {
        int64_t start = blasd_clock_ns();
        struct blasd_answer *answer = blasd_answer_new(record, data, 0, BLASD_FORMAT_JSON);
        size_t n;
        if (answer == NULL) abort();
        for (bytes = 0; (n = blasd_answer_read(answer, room, sizeof room)) > 0;) bytes += n;
        blasd_answer_free(answer);
        seconds[round] = since(start);
    }
    printf("blasd %-8s %8.1f MB  %7.1f MB/s  %5.1f ns a number\n", name, (double)bytes / 1e6,
           (double)bytes / 1e6 / best_of(seconds),
           best_of(seconds) * 1e9 / (double)blasd_tensor_elements(&record->outputs[0].tensor));
}

/* Only json_dumpb is timed, not the making of the tree. */
static void jansson(const double *data, size_t side) {
    json_t *root = json_array();
    double seconds[ROUNDS];
    size_t bytes = json_dumpb(root, NULL, 0, 0);
    char *room = malloc(side * side * 32 + 1024);
    if (room == NULL) abort();
    for (size_t i = 0; i < side; i++) {
        json_t *row = json_array();
        for (size_t j = 0; j < side; j++) json_array_append_new(row, json_real(data[i * side + j]));
        json_array_append_new(root, row);
    }
    for (int round = 0; round < ROUNDS; round++) {
        int64_t start = blasd_clock_ns();
        bytes = json_dumpb(root, room, side * side * 32 + 1024, JSON_COMPACT);
        seconds[round] = since(start);
    }
    printf("jansson        %8.1f MB  %7.1f MB/s  %5.1f ns a number\n", (double)bytes / 1e6,
           (double)bytes / 1e6 / best_of(seconds), best_of(seconds) * 1e9 / (double)(side * side));
    json_decref(root);
    free(room);
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
         (buf.len = 0, blasd_job_document(&record, data, 4096, &buf)));
    blasd_buf_release(&buf);
}

int main(int argc, char **argv) {
    static struct blasd_record record;
    size_t side = argc > 1 ? (size_t)strtoul(argv[1], NULL, 10) : 1024;
    uint64_t seed = 88172645463325252u;
    double *data;
    float *floats;
    if (side < 1 || side > 8192) return 2;
    data = malloc(side * side * sizeof *data);
    floats = malloc(side * side * sizeof *floats);
    if (data == NULL || floats == NULL) return 1;
    for (size_t i = 0; i < side * side; i++) {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        data[i] = (double)(int64_t)seed * 0x1p-62;
        floats[i] = (float)data[i];
    }
    jansson(data, side);
    make_record(&record, BLASD_float64, (int64_t)side);
    ours(&record, data, "float64");
    make_record(&record, BLASD_float32, (int64_t)side);
    ours(&record, floats, "float32");
    small_jobs();
    free(data);
    free(floats);
    return 0;
}
