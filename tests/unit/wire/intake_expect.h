/* Expectations on bodies: each is sent whole, byte by byte and in random pieces, and must come out
 * the same. Include cmocka.h before. */
#ifndef BLASD_TESTS_INTAKE_EXPECT_H
#define BLASD_TESTS_INTAKE_EXPECT_H

#include "tests/unit/wire/intake_support.h"

static struct blasd_limits limits_now;
static struct outcome last; /* of the body that was sent last */

static int setup(void **state) {
    (void)state;
    blasd_limits_init(&limits_now);
    return 0;
}

static int teardown(void **state) {
    (void)state;
    outcome_release(&last);
    return 0;
}

static inline void send_options(struct blasd_intake_options options, const void *body, size_t len) {
    options.limits = &limits_now;
    outcome_release(&last);
    send_body(&options, body, len, WHOLE, &last);
    for (uint64_t split = BYTE_BY_BYTE; split < 6; split++) {
        struct outcome other;
        send_body(&options, body, len, split, &other);
        assert_true(same_outcome(&last, &other));
        outcome_release(&other);
    }
}

static inline void send_json(const char *body) {
    send_options((struct blasd_intake_options){.content_type = "application/json"}, body,
                 strlen(body));
}

static void expect_failed(enum blasd_code code, const char *field, const char *detail) {
    if (last.rc != -(int)code || strcmp(last.err.field, field) != 0 ||
        strstr(last.err.detail, detail) == NULL)
        print_error("got %d %s field '%s' detail '%s', wanted %s field '%s' detail '%s'\n", last.rc,
                    blasd_err_info(last.err.code)->name, last.err.field, last.err.detail,
                    blasd_err_info(code)->name, field, detail);
    assert_int_equal(last.rc, -(int)code);
    assert_string_equal(last.err.field, field);
    assert_non_null(strstr(last.err.detail, detail));
}

static void expect_good(void) {
    if (last.rc != 0)
        print_error("failed with %s field '%s' detail '%s'\n", blasd_err_info(last.err.code)->name,
                    last.err.field, last.err.detail);
    assert_int_equal(last.rc, 0);
}

/* Checks input number `i` of the last job and returns its bytes; `shape` ends with -1. */
static inline const void *expect_input(int i, enum blasd_dtype dtype, const int64_t *shape) {
    const struct blasd_input *input = &last.job.inputs[i];
    int rank = 0;
    expect_good();
    assert_int_equal(input->source.kind, BLASD_SOURCE_PAYLOAD);
    assert_int_equal(input->source.offset % 64, 0);
    assert_int_equal(input->tensor.dtype, dtype);
    while (shape[rank] >= 0) rank++;
    assert_int_equal(input->tensor.rank, rank);
    for (int d = 0; d < rank; d++) assert_int_equal(input->tensor.shape[d], shape[d]);
    assert_int_equal(input->source.bytes, blasd_tensor_bytes(&input->tensor));
    assert_true(input->source.offset + input->source.bytes <= last.memory.len);
    return last.memory.bytes + input->source.offset;
}

#define SHAPE(...) ((const int64_t[]){__VA_ARGS__, -1})
#define SCALAR ((const int64_t[]){-1})

static inline void expect_bytes(const void *got, const void *wanted, size_t len) {
    assert_memory_equal(got, wanted, len);
}

#endif
