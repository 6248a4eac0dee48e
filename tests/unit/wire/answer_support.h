/* What the tests of the way out share: a record with outputs, and reading answers and JSON. */
#ifndef BLASD_TESTS_ANSWER_SUPPORT_H
#define BLASD_TESTS_ANSWER_SUPPORT_H

#include "tests/unit/wire/sample_ops.h"
#include "wire/answer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#define ID "s692fa1b00123456789abcdef0123456789abcdef"

/* A succeeded record of the operation `sample` without outputs. */
static inline void make_record(struct blasd_record *record) {
    memset(record, 0, sizeof *record);
    memcpy(record->id, ID, sizeof ID);
    snprintf(record->op, sizeof record->op, "sample");
    record->state = BLASD_SUCCEEDED;
    record->priority = BLASD_PRIORITY_NORMAL;
    record->created_us = 1700000000123456;
    record->started_us = 1700000000200000;
    record->finished_us = 1700000001000000;
    record->progress = 1;
    record->timing = (struct blasd_timing){.receive_us = 1, .queue_us = 1500, .total_us = 2000000};
    snprintf(record->execution.device, sizeof record->execution.device, "cpu:0");
    snprintf(record->execution.method, sizeof record->execution.method, "dgemm");
    record->execution.batch_size = 3;
    record->execution.flops = 2e9;
    record->execution.bytes = 96;
    record->output_count = blasd_op_output_count(blasd_op_find(record->op));
    for (int i = 0; i < record->output_count; i++) record->outputs[i].tensor.rank = -1;
}

/* Gives the record output number `i` at the next multiple of 64 of its payload. */
static inline void add_output(struct blasd_record *record, int i, enum blasd_dtype dtype, int rank,
                              const int64_t *shape) {
    struct blasd_output *output = &record->outputs[i];
    output->tensor = blasd_tensor_make(dtype, rank, shape);
    output->offset = (record->payload_bytes + 63) / 64 * 64;
    output->bytes = blasd_tensor_bytes(&output->tensor);
    record->payload_bytes = output->offset + output->bytes;
}

/* Reads a whole answer in pieces of `piece` bytes, into memory of exactly that size. */
static inline void read_answer(const struct blasd_record *record, const void *payload, int output,
                               enum blasd_format format, size_t piece, struct blasd_buf *text) {
    struct blasd_answer *answer = blasd_answer_new(record, payload, output, format);
    char *room = malloc(piece);
    int64_t size;
    size_t n;
    assert_non_null(answer);
    assert_non_null(room);
    size = blasd_answer_size(answer);
    blasd_buf_init(text, (size_t)1 << 30);
    while ((n = blasd_answer_read(answer, room, piece)) > 0) {
        assert_true(n <= piece);
        assert_int_equal(blasd_buf_add(text, room, n), 0);
        if (n < piece) break;
    }
    assert_int_equal(blasd_answer_read(answer, room, piece), 0); /* the end stays the end */
    if (format == BLASD_FORMAT_JSON)
        assert_true(size == -1);
    else
        assert_true(size == (int64_t)text->len);
    free(room);
    blasd_answer_free(answer);
}

/* Reads the answer once, and again in other pieces, which must give the same bytes. */
static inline void read_answer_all_ways(const struct blasd_record *record, const void *payload,
                                        int output, enum blasd_format format,
                                        struct blasd_buf *text) {
    static const size_t pieces[] = {1, 7, 64, 4096};
    read_answer(record, payload, output, format, 65536, text);
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) {
        struct blasd_buf again;
        read_answer(record, payload, output, format, pieces[i], &again);
        assert_true(again.len == text->len);
        assert_memory_equal(again.data, text->data, text->len);
        blasd_buf_release(&again);
    }
}

static inline json_t *parse(const struct blasd_buf *text) {
    json_error_t error;
    json_t *root =
        json_loadb(text->data, text->len, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &error);
    if (root == NULL) fail_msg("not JSON: %s at %d", error.text, error.position);
    return root;
}

static inline void assert_member(const json_t *object, const char *name, const char *value) {
    const char *text = json_string_value(json_object_get(object, name));
    assert_non_null(text);
    assert_string_equal(text, value);
}

/* Checks that `text` is exactly `expected`. */
static inline void assert_text(const struct blasd_buf *text, const char *expected) {
    if (text->len != strlen(expected) || memcmp(text->data, expected, text->len) != 0)
        fail_msg("got %.*s, not %s", (int)text->len, text->data, expected);
}

#endif
