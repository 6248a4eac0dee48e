/* Frames that were cut, damaged or lie: refused, and no harm done. Read next: test_frame.c. */
#include "tests/unit/wire/frame_support.h"

/* Decodes from memory of exactly `len` bytes, so that a sanitizer sees a step outside. */
static int decode_exact(bool job, const char *bytes, size_t len) {
    static struct blasd_job into;
    static struct blasd_record record;
    char *copy = malloc(len == 0 ? 1 : len);
    struct blasd_err err = {.code = BLASD_OK};
    size_t payload_at = 0;
    int code;
    assert_non_null(copy);
    memcpy(copy, bytes, len);
    code = job ? blasd_job_decode(copy, len, &into, &payload_at, &err)
               : blasd_record_decode(copy, len, &record, &payload_at, &err);
    if (code == 0) {
        uint64_t bytes_inline = job ? into.payload_bytes : record.payload_bytes;
        assert_true(payload_at <= len);
        if (!(job ? into.payload_in_blob || blasd_slice_given(&into.slice)
                  : record.payload_in_blob || blasd_slice_given(&record.slice)))
            assert_true(bytes_inline <= len - payload_at);
        if (job) blasd_job_release(&into);
    } else {
        assert_true(code < 0 && err.code == (enum blasd_code) - code && err.detail[0] != '\0');
    }
    free(copy);
    return code;
}

static void cut_frames_are_refused(void **state) {
    (void)state;
    for (int round = 0; round < 40; round++) {
        struct blasd_job job;
        struct blasd_record record;
        struct blasd_err err;
        struct blasd_buf buf;
        any_job(&job);
        job.payload_in_blob = false;
        job.slice.segment[0] = '\0';
        blasd_buf_init(&buf, 1 << 20);
        assert_int_equal(blasd_job_encode(&job, &buf, &err), 0);
        add_payload(&buf, job.payload_bytes);
        for (size_t len = 0; len < buf.len; len++)
            assert_int_not_equal(decode_exact(true, buf.data, len), 0);
        assert_int_equal(decode_exact(true, buf.data, buf.len), 0);
        blasd_buf_reset(&buf);
        any_record(&record);
        record.payload_in_blob = false;
        record.slice.segment[0] = '\0';
        assert_int_equal(blasd_record_encode(&record, &buf, &err), 0);
        add_payload(&buf, record.payload_bytes);
        for (size_t len = 0; len < buf.len; len++)
            assert_int_not_equal(decode_exact(false, buf.data, len), 0);
        assert_int_equal(decode_exact(false, buf.data, buf.len), 0);
        blasd_buf_release(&buf);
        blasd_job_release(&job);
    }
}

static void damaged_frames_do_no_harm(void **state) {
    int refused = 0;
    (void)state;
    for (int round = 0; round < 20000; round++) {
        struct blasd_job job;
        struct blasd_record record;
        struct blasd_err err;
        struct blasd_buf buf;
        bool is_job = below(2) == 0;
        blasd_buf_init(&buf, 1 << 20);
        any_job(&job);
        any_record(&record);
        assert_int_equal(is_job ? blasd_job_encode(&job, &buf, &err)
                                : blasd_record_encode(&record, &buf, &err),
                         0);
        for (uint64_t n = 1 + below(3); n > 0; n--)
            buf.data[below(buf.len)] = (char)(unsigned char)next_random();
        refused += decode_exact(is_job, buf.data, buf.len) != 0;
        blasd_buf_release(&buf);
        blasd_job_release(&job);
    }
    assert_true(refused > 1000);
}

/* Writes `value` over the one place where `old` stands in the frame, and expects a refusal. */
static void expect_refused(const struct blasd_job *job, const void *old, const void *value,
                           size_t size, int code) {
    struct blasd_err err;
    struct blasd_buf buf;
    char *at;
    blasd_buf_init(&buf, 1 << 20);
    assert_int_equal(blasd_job_encode(job, &buf, &err), 0);
    at = memmem(buf.data, buf.len, old, size);
    assert_non_null(at);
    memcpy(at, value, size);
    add_payload(&buf, 4096);
    assert_int_equal(decode_exact(true, buf.data, buf.len), code);
    blasd_buf_release(&buf);
}

#define CHOICE_MARK 0x3ff1234567890123 /* bits of the parameter before the choice */

static void sample_job(struct blasd_job *job) {
    int64_t shape[] = {0x1122334455, 0};
    blasd_job_init(job, &sample_op);
    memcpy(job->id, ID, sizeof ID);
    job->inputs[0].tensor = blasd_tensor_make(BLASD_float32, 2, shape);
    job->inputs[0].source = (struct blasd_source){.kind = BLASD_SOURCE_PAYLOAD, .offset = 0};
    shape[0] = 16;
    job->inputs[1].tensor = blasd_tensor_make(BLASD_float64, 1, shape);
    job->inputs[1].source =
        (struct blasd_source){.kind = BLASD_SOURCE_PAYLOAD, .offset = 1984, .bytes = 128};
    job->payload_bytes = 2112;
    memcpy(&job->params[2].f, &(int64_t){CHOICE_MARK}, sizeof job->params[2].f);
    job->params[3].given = true;
    job->params[3].choice = 2;
}

static void lies_are_refused(void **state) {
    struct blasd_job job;
    int64_t old = 0x1122334455, negative = -5, huge = INT64_MAX;
    int64_t none = -1, zero = 0, below_none = -2;
    uint64_t offset = 1984, odd = 1921, outside = 2048, wrap = UINT64_MAX - 63;
    uint32_t form = blasd_op_form(&sample_op), other = form + 1;
    const char row[] = {1, BLASD_float64, 0, 1, 1}; /* of the second input: b */
    const int64_t choice[] = {CHOICE_MARK, 2}, no_choice[] = {CHOICE_MARK, 3};
    (void)state;
    sample_job(&job);
    expect_refused(&job, &old, &old, sizeof old, 0); /* as it is, it is right */
    expect_refused(&job, &old, &negative, sizeof old, -BLASD_E_internal_error);
    expect_refused(&job, &old, &huge, sizeof old, -BLASD_E_internal_error);
    expect_refused(&job, &offset, &odd, sizeof odd, -BLASD_E_internal_error);
    expect_refused(&job, &offset, &outside, sizeof odd, -BLASD_E_internal_error);
    expect_refused(&job, &offset, &wrap, sizeof odd, -BLASD_E_internal_error);
    /* the first input has no elements, so none of them can be the first that is not finite */
    expect_refused(&job, &none, &zero, sizeof none, -BLASD_E_internal_error);
    expect_refused(&job, &none, &below_none, sizeof none, -BLASD_E_internal_error);
    expect_refused(&job, "sample", "simple", 6, -BLASD_E_unknown_operation);
    /* of another descriptor: what stands at which position is not known */
    expect_refused(&job, &form, &other, sizeof form, -BLASD_E_unknown_operation);
    expect_refused(&job, row, ((char[]){1, BLASD_DTYPE_COUNT, 0, 1, 1}), 5,
                   -BLASD_E_internal_error);
    expect_refused(&job, row, ((char[]){3, BLASD_float64, 0, 1, 1}), 5, -BLASD_E_internal_error);
    expect_refused(&job, row, ((char[]){0, BLASD_float64, 0, 1, 1}), 5, /* twice */
                   -BLASD_E_internal_error);
    expect_refused(&job, row, ((char[]){1, BLASD_float64, 2, 1, 1}), 5, -BLASD_E_internal_error);
    expect_refused(&job, row, ((char[]){1, BLASD_float64, 0, 9, 1}), 5, -BLASD_E_internal_error);
    expect_refused(&job, row, ((char[]){1, BLASD_float64, 0, 1, BLASD_SOURCE_STEP}), 5,
                   -BLASD_E_internal_error);
    expect_refused(&job, row, ((char[]){1, BLASD_float64, 0, 1, BLASD_SOURCE_JOB}), 5,
                   -BLASD_E_internal_error); /* without a reference */
    expect_refused(&job, "s692f", "../..", 5, -BLASD_E_internal_error);
    expect_refused(&job, &choice, &no_choice, sizeof choice, -BLASD_E_internal_error);
    expect_refused(&job, "BLJF", "BLRF", 4, -BLASD_E_internal_error);
    expect_refused(&job, "BLJF\2", "BLJF\1", 5, -BLASD_E_internal_error);
    expect_refused(&job, "BLJF\2", "BLJF\3", 5, -BLASD_E_internal_error);
}

/* Every number of a record's head stands at its place, and what it cannot be is refused there. */
static void records_that_lie_are_refused(void **state) {
    static const struct {
        size_t at, n;
        char bytes[33];
        int code;
    } lies[] = {
        {12, 0, "", 0}, /* as it is, it is right */
        {4, 1, "\1", -BLASD_E_internal_error},
        {6, 1, "\1", -BLASD_E_internal_error},
        {8, 1, "\0", -BLASD_E_internal_error},
        {12, 1, "\7", -BLASD_E_internal_error},
        {13, 1, "\3", -BLASD_E_internal_error},
        {14, 1, "\3", -BLASD_E_internal_error},
        {15, 1, "\3", -BLASD_E_internal_error},
        {15, 1, "\2", -BLASD_E_internal_error}, /* in a segment without a name */
        {40, 8, "\0\0\0\0\0\0\xf8\x7f", -BLASD_E_internal_error},
        {40, 8, "\0\0\0\0\0\0\xf0\xbf", -BLASD_E_internal_error},
        {40, 8, "\0\0\0\0\0\0\0\x40", -BLASD_E_internal_error},
        {128, 8, "\0\0\0\0\0\0\xf0\xbf", -BLASD_E_internal_error},
        {128, 8, "\0\0\0\0\0\0\xf0\x7f", -BLASD_E_internal_error},
        {136, 1, "\x7f", -BLASD_E_internal_error}, /* a payload that is not there */
        {156, 1, "\5", -BLASD_E_internal_error},
        {157, 1, "\1", -BLASD_E_internal_error},
        {158, 1, "\1", -BLASD_E_internal_error},
        {176, 1, "/", -BLASD_E_internal_error},
        {224, 32, "an operation that is longer than", -BLASD_E_internal_error},
        {256, 1, "\x7f", -BLASD_E_internal_error},
    };
    struct blasd_record record = {.op = "sample", .progress = 1};
    (void)state;
    memcpy(record.id, ID, sizeof ID);
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        struct blasd_err err;
        struct blasd_buf buf;
        blasd_buf_init(&buf, 1 << 20);
        assert_int_equal(blasd_record_encode(&record, &buf, &err), 0);
        memcpy(buf.data + lies[i].at, lies[i].bytes, lies[i].n);
        if (decode_exact(false, buf.data, buf.len) != lies[i].code) fail_msg("lie %zu", i);
        blasd_buf_release(&buf);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cut_frames_are_refused),
        cmocka_unit_test(damaged_frames_do_no_harm),
        cmocka_unit_test(lies_are_refused),
        cmocka_unit_test(records_that_lie_are_refused),
    };
    return cmocka_run_group_tests_name("frame_damage", tests, NULL, NULL);
}
