/* Stored jobs and records from hostile bytes: reading them is safe, what was accepted writes and
 * reads back the same, and what can be read can be shown. */
#include "wire/answer.h"
#include "wire/frame.h"

#include "tests/unit/wire/sample_ops.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

#define TEXT_MOST ((size_t)1 << 20)

static void require(bool holds) {
    if (!holds) abort();
}

static void try_job(const uint8_t *bytes, size_t len) {
    static struct blasd_job job, again;
    struct blasd_buf first, second;
    struct blasd_err err;
    size_t payload_at, second_at;
    if (blasd_job_decode(bytes, len, &job, &payload_at, &err) != 0) return;
    require(payload_at <= len);
    for (int i = 0; job.op->inputs[i].name != NULL; i++) {
        const struct blasd_source *source = &job.inputs[i].source;
        if (job.payload_in_blob || blasd_slice_given(&job.slice) ||
            source->kind != BLASD_SOURCE_PAYLOAD || source->bytes == 0)
            continue;
        require(source->offset + source->bytes <= len - payload_at);
    }
    blasd_buf_init(&first, TEXT_MOST);
    blasd_buf_init(&second, TEXT_MOST);
    require(blasd_job_encode(&job, &first, &err) == 0);
    if (!job.payload_in_blob && !blasd_slice_given(&job.slice) && job.payload_bytes > 0)
        require(blasd_buf_add(&first, bytes + payload_at, job.payload_bytes) == 0);
    require(blasd_job_decode(first.data, first.len, &again, &second_at, &err) == 0);
    require(blasd_job_encode(&again, &second, &err) == 0);
    require(second.len <= first.len && memcmp(first.data, second.data, second.len) == 0);
    blasd_buf_release(&first);
    blasd_buf_release(&second);
    blasd_job_release(&job);
    blasd_job_release(&again);
}

/* Reads an answer to its end, or as much of it as a fuzzer has time for. */
static void drain(const struct blasd_record *record, const void *payload, int output,
                  enum blasd_format format) {
    struct blasd_answer *answer = blasd_answer_new(record, payload, output, format);
    int64_t size, done = 0;
    char room[97];
    size_t n;
    if (answer == NULL) return;
    size = blasd_answer_size(answer);
    while ((n = blasd_answer_read(answer, room, sizeof room)) > 0 && done < 1 << 20)
        done += (int64_t)n;
    if (n == 0 && size >= 0) require(done == size);
    blasd_answer_free(answer);
}

static void show(const struct blasd_record *record, const void *payload) {
    struct blasd_buf text;
    blasd_buf_init(&text, TEXT_MOST);
    require(blasd_job_document(record, payload, 256, true, &text) == 0);
    if (record->error.code != BLASD_OK) require(blasd_problem_document(&record->error, &text) == 0);
    blasd_buf_release(&text);
    for (int output = -1; output < 3; output++)
        for (int format = 0; format < 3; format++)
            drain(record, payload, output, (enum blasd_format)format);
}

static void try_record(const uint8_t *bytes, size_t len) {
    static struct blasd_record record, again;
    struct blasd_buf first, second;
    struct blasd_err err;
    size_t payload_at, second_at;
    if (blasd_record_decode(bytes, len, &record, &payload_at, &err) != 0) return;
    require(payload_at <= len);
    /* outputs in a blob are not here: then only the rest can be shown */
    show(&record,
         record.payload_in_blob || blasd_slice_given(&record.slice) ? NULL : bytes + payload_at);
    blasd_buf_init(&first, TEXT_MOST);
    blasd_buf_init(&second, TEXT_MOST);
    require(blasd_record_encode(&record, &first, &err) == 0);
    if (!record.payload_in_blob && !blasd_slice_given(&record.slice) && record.payload_bytes > 0)
        require(blasd_buf_add(&first, bytes + payload_at, record.payload_bytes) == 0);
    require(blasd_record_decode(first.data, first.len, &again, &second_at, &err) == 0);
    require(blasd_record_encode(&again, &second, &err) == 0);
    require(second.len <= first.len && memcmp(first.data, second.data, second.len) == 0);
    blasd_buf_release(&first);
    blasd_buf_release(&second);
}

/* Headers as users send them. */
static void try_accept(const uint8_t *bytes, size_t len) {
    struct blasd_accept accept = {0};
    enum blasd_format format;
    char *text = malloc(len + 1);
    if (text == NULL) return;
    if (len > 0) memcpy(text, bytes, len);
    text[len] = '\0';
    blasd_accept_add(&accept, text);
    blasd_accept_choose(&accept, true, &format);
    blasd_accept_choose(&accept, false, &format);
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len) {
    if (len > TEXT_MOST / 4) return 0;
    try_job(bytes, len);
    try_record(bytes, len);
    try_accept(bytes, len);
    return 0;
}
