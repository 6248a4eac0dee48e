/* Jobs in safetensors: the header checked against the bytes behind it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "tests/unit/wire/intake_expect.h"

static unsigned char body[1 << 16];
static size_t body_len;

static void build(const char *header, const void *data, size_t len) {
    uint64_t header_len = strlen(header);
    memcpy(body, &header_len, 8);
    memcpy(body + 8, header, header_len);
    if (len > 0) memcpy(body + 8 + header_len, data, len);
    body_len = 8 + header_len + len;
}

static void send_built(void) {
    send_options((struct blasd_intake_options){.content_type = "application/x-safetensors"}, body,
                 body_len);
}

/* Sends the header as it is, and with an escape in it: both mean the same, so far as it is not
 * about the JSON text itself. */
static void send_st(const char *header, const void *data, size_t len) {
    const char *dtype = strstr(header, "dtype\"");
    char odd[4096];
    if (dtype != NULL) {
        struct outcome other;
        snprintf(odd, sizeof odd, "%.*s\\u0064%s", (int)(dtype - header), header, dtype + 1);
        build(odd, data, len);
        send_built();
        other = last;
        last = (struct outcome){0};
        build(header, data, len);
        send_built();
        assert_true(same_outcome(&last, &other) || strstr(last.err.detail, "valid JSON") != NULL);
        outcome_release(&other);
        return;
    }
    build(header, data, len);
    send_built();
}

#define META "\"__metadata__\":{\"op\":\"mix\"}"

static void test_plain(void **state) {
    static const double data[] = {1, 2, 3, 4, 5, 6};
    (void)state;
    send_st("{" META ",\"a\":{\"dtype\":\"F64\",\"shape\":[2,3],\"data_offsets\":[0,48]}}   ", data,
            48);
    expect_bytes(expect_input(0, BLASD_float64, SHAPE(2, 3)), data, 48);
    assert_int_equal(last.job.inputs[0].first_nonfinite, -1);
    assert_int_equal(last.memory.written, 48);
    send_options((struct blasd_intake_options){.content_type = "application/octet-stream",
                                               .content_length = body_len},
                 body, body_len);
    expect_bytes(expect_input(0, BLASD_float64, SHAPE(2, 3)), data, 48);
}

/* Every dtype, tensors listed out of order, lengths that leave the next one unaligned. */
static void test_dtypes(void **state) {
    static const struct {
        const char *name;
        enum blasd_dtype dtype;
        size_t size;
    } rows[] = {
        {"F64", BLASD_float64, 8},   {"F32", BLASD_float32, 4},   {"F16", BLASD_float16, 2},
        {"BF16", BLASD_bfloat16, 2}, {"I64", BLASD_int64, 8},     {"I32", BLASD_int32, 4},
        {"I16", BLASD_int16, 2},     {"I8", BLASD_int8, 1},       {"U64", BLASD_uint64, 8},
        {"U32", BLASD_uint32, 4},    {"U16", BLASD_uint16, 2},    {"U8", BLASD_uint8, 1},
        {"BOOL", BLASD_bool, 1},     {"C64", BLASD_complex64, 8}, {"C128", BLASD_complex128, 16},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        unsigned char data[64];
        char header[512];
        size_t n = 3 * rows[i].size;
        for (size_t k = 0; k < sizeof data; k++) data[k] = k % 3 == 0;
        snprintf(header, sizeof header,
                 "{\"b\":{\"dtype\":\"%s\",\"shape\":[3],\"data_offsets\":[7,%zu]}," META
                 ",\"V\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[%zu,%zu]}"
                 ",\"a\":{\"data_offsets\":[0,7],\"shape\":[7,1],\"dtype\":\"BOOL\"}}",
                 rows[i].name, 7 + n, 7 + n, 8 + n);
        send_st(header, data, 8 + n);
        expect_bytes(expect_input(0, BLASD_bool, SHAPE(7, 1)), data, 7);
        expect_bytes(expect_input(1, rows[i].dtype, SHAPE(3)), data + 7, n);
        expect_bytes(expect_input(2, BLASD_uint8, SCALAR), data + 7 + n, 1);
        assert_int_equal(last.memory.reserves, 3);
    }
}

static void test_first_nonfinite(void **state) {
    static const struct {
        const char *name;
        size_t size;
        uint64_t odd, most, least; /* not finite; the largest and smallest finite patterns */
    } rows[] = {
        {"F64", 8, UINT64_C(0xfff0000000000000), UINT64_C(0x7fefffffffffffff), 1},
        {"F64", 8, UINT64_C(0x7ff0000000000001), UINT64_C(0xffefffffffffffff), UINT64_C(1) << 63},
        {"F32", 4, 0x7f800000, 0xff7fffff, 0x80000001},
        {"F32", 4, 0xffc00000, 0x7f7fffff, 0x007fffff},
        {"F16", 2, 0xfc00, 0x7bff, 0x83ff},
        {"F16", 2, 0x7fff, 0xfbff, 0x0001},
        {"BF16", 2, 0x7f80, 0xff7f, 0x807f},
        {"BF16", 2, 0xffff, 0x7f7f, 0x0001},
    };
    enum { N = 777 }; /* bytes for several large blocks of the search, small ones and a rest */
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        for (int at = -1; at < N; at += at < 40 ? 1 : 37) {
            unsigned char data[N * 8];
            char header[256];
            size_t size = rows[i].size;
            for (int k = 0; k < N; k++)
                memcpy(data + (size_t)k * size, k % 2 ? &rows[i].most : &rows[i].least, size);
            if (at >= 0) memcpy(data + (size_t)at * size, &rows[i].odd, size);
            /* a second one later is not the first */
            if (at >= 0 && at < N - 10) memcpy(data + (N - 1) * size, &rows[i].odd, size);
            snprintf(header, sizeof header,
                     "{" META ",\"a\":{\"dtype\":\"%s\",\"shape\":[%d],\"data_offsets\":[0,%zu]}}",
                     rows[i].name, N, N * size);
            build(header, data, N * size);
            if (at % 10 == 0)
                send_built();
            else {
                struct blasd_intake_options options = {.content_type = "application/octet-stream",
                                                       .limits = &limits_now};
                outcome_release(&last);
                send_body(&options, body, body_len, WHOLE, &last);
            }
            expect_good();
            assert_int_equal(last.job.inputs[0].first_nonfinite, at);
        }
    }
}

/* Signs and zeros are looked for in inputs whose range is stated, and in no other. */
static void test_values(void **state) {
    static const double data[] = {0.0, -0.0, 2.0, 0.0, -1.0, -2.0};
    static const uint16_t halves[] = {0x8000, 0x0001, 0x8001, 0};
    (void)state;
    send_st("{" META ",\"w\":{\"dtype\":\"F64\",\"shape\":[6],\"data_offsets\":[0,48]}}", data, 48);
    expect_input(I_WEIGHT, BLASD_float64, SHAPE(6));
    assert_int_equal(last.job.inputs[I_WEIGHT].first_negative, 4);
    assert_int_equal(last.job.inputs[I_WEIGHT].first_not_positive, -1);
    assert_false(last.job.inputs[I_WEIGHT].all_zero);
    send_st("{" META ",\"s\":{\"dtype\":\"F64\",\"shape\":[4],\"data_offsets\":[0,32]}}", data + 2,
            32);
    assert_int_equal(last.job.inputs[I_SCALE].first_negative, 2);
    assert_int_equal(last.job.inputs[I_SCALE].first_not_positive, 1);
    assert_false(last.job.inputs[I_SCALE].all_zero);
    send_st("{" META ",\"a\":{\"dtype\":\"F64\",\"shape\":[6],\"data_offsets\":[0,48]}}", data, 48);
    assert_int_equal(last.job.inputs[I_A].first_negative, -1);
    assert_int_equal(last.job.inputs[I_A].first_not_positive, -1);
    assert_false(last.job.inputs[I_A].all_zero);
    send_st("{" META ",\"w\":{\"dtype\":\"F64\",\"shape\":[2],\"data_offsets\":[0,16]}}", data, 16);
    assert_int_equal(last.job.inputs[I_WEIGHT].first_negative, -1);
    assert_true(last.job.inputs[I_WEIGHT].all_zero);
    send_st("{" META ",\"w\":{\"dtype\":\"F64\",\"shape\":[0],\"data_offsets\":[0,0]}}", NULL, 0);
    assert_false(last.job.inputs[I_WEIGHT].all_zero);
    for (int dtype = 0; dtype < 2; dtype++) {
        char header[128];
        snprintf(header, sizeof header,
                 "{" META ",\"w\":{\"dtype\":\"%s\",\"shape\":[4],\"data_offsets\":[0,8]}}",
                 dtype == 0 ? "F16" : "BF16");
        send_st(header, halves, 8);
        assert_int_equal(last.job.inputs[I_WEIGHT].first_negative, 2);
        assert_false(last.job.inputs[I_WEIGHT].all_zero);
    }
}

static void test_metadata(void **state) {
    (void)state;
    send_st("{\"__metadata__\":{\"format\":\"pt\",\"op\":\"mix\",\"params\":\"{\\\"k\\\":3}\","
            "\"priority\":\"high\",\"deadline_ms\":\"77\",\"device\":\"cpu\",\"params.alpha\":"
            "\"0.5\"}}",
            NULL, 0);
    expect_good();
    assert_int_equal(last.job.params[P_K].i, 3);
    assert_true(last.job.params[P_ALPHA].f == 0.5);
    assert_int_equal(last.job.priority, BLASD_PRIORITY_HIGH);
    assert_int_equal(last.job.deadline_ms, 77);
    assert_int_equal(last.job.device, BLASD_DEVICE_CPU);
    send_st("{\"__metadata__\":{\"op\":\"mix\",\"params\":\"{\"}}", NULL, 0);
    expect_failed(BLASD_E_invalid_field, "params", "not valid JSON");
    send_st("{\"__metadata__\":{\"op\":\"mix\",\"params\":{\"k\":3}}}", NULL, 0);
    expect_failed(BLASD_E_malformed_safetensors, "__metadata__", "JSON text in a string");
    send_st("{\"__metadata__\":[]}", NULL, 0);
    expect_failed(BLASD_E_malformed_safetensors, "__metadata__", "object of strings");
    send_options(
        (struct blasd_intake_options){.content_type = "application/octet-stream", .op = "plain"},
        "\2\0\0\0\0\0\0\0{}", 10);
    expect_good();
    assert_ptr_equal(last.job.op, &plain_op);
}

static void expect_bad(const char *header, size_t data_len, enum blasd_code code, const char *field,
                       const char *detail) {
    static const unsigned char zeros[4096];
    send_st(header, zeros, data_len);
    expect_failed(code, field, detail);
}

static void test_bad_headers(void **state) {
    const enum blasd_code bad = BLASD_E_malformed_safetensors;
    (void)state;
    expect_bad("{" META ",\"a\":{\"dtype\":\"F64\",\"shape\":[2],\"data_offsets\":[0,8]}}", 8, bad,
               "inputs.a", "make 16 bytes, its data_offsets 8");
    expect_bad("{" META ",\"a\":{\"dtype\":\"F64\",\"shape\":[1],\"data_offsets\":[8,16]}}", 16,
               bad, "inputs.a", "begin at byte 8");
    expect_bad("{" META ",\"a\":{\"dtype\":\"F64\",\"shape\":[1],\"data_offsets\":[0,8]},"
               "\"b\":{\"dtype\":\"F64\",\"shape\":[1],\"data_offsets\":[4,12]}}",
               12, bad, "inputs.b", "neither overlap nor leave gaps");
    expect_bad("{" META ",\"a\":{\"dtype\":\"F64\",\"shape\":[1],\"data_offsets\":[0,8]},"
               "\"b\":{\"dtype\":\"F64\",\"shape\":[1],\"data_offsets\":[16,24]}}",
               24, bad, "inputs.b", "neither overlap nor leave gaps");
    expect_bad("{" META ",\"a\":{\"dtype\":\"F64\",\"shape\":[1],\"data_offsets\":[0,8]},"
               "\"b\":{\"dtype\":\"F64\",\"shape\":[1],\"data_offsets\":[0,8]}}",
               16, bad, "inputs.b", "neither overlap nor leave gaps");
    expect_bad("{" META ",\"a\":{\"dtype\":\"F64\",\"shape\":[1],\"data_offsets\":[8,0]}}", 8, bad,
               "inputs.a", "two whole numbers in order");
    expect_bad("{" META ",\"a\":{\"dtype\":\"F64\",\"shape\":[1],\"data_offsets\":[-8,0]}}", 8, bad,
               "inputs.a", "data_offsets is not a list of integers >= 0");
    expect_bad("{" META ",\"a\":{\"dtype\":\"F64\",\"shape\":[1],\"data_offsets\":[0]}}", 8, bad,
               "inputs.a", "two whole numbers in order");
    expect_bad("{" META ",\"a\":{\"dtype\":\"F64\",\"shape\":1,\"data_offsets\":[0,8]}}", 8, bad,
               "inputs.a", "shape is not a list");
    expect_bad("{" META ",\"a\":{\"dtype\":\"F64\",\"shape\":[-1],\"data_offsets\":[0,8]}}", 8, bad,
               "inputs.a", "shape is not a list");
    expect_bad("{" META ",\"a\":{\"dtype\":\"F64\",\"shape\":[1.5],\"data_offsets\":[0,8]}}", 8,
               bad, "inputs.a", "shape is not a list");
    expect_bad("{" META ",\"a\":{\"dtype\":8,\"shape\":[1],\"data_offsets\":[0,8]}}", 8, bad,
               "inputs.a", "dtype");
    expect_bad("{" META ",\"a\":{\"dtype\":\"F64\",\"shape\":[1]}}", 8, bad, "inputs.a",
               "dtype, shape and data_offsets");
    expect_bad("{" META ",\"a\":{\"dtype\":\"F64\",\"shape\":[1],\"data_offsets\":[0,8],\"x\":1}}",
               8, bad, "inputs.a", "dtype, shape and data_offsets");
    expect_bad("{" META ",\"a\":7}", 8, bad, "inputs.a", "object");
    expect_bad("[1]", 0, bad, "", "not a JSON object");
    expect_bad("{\"a\":", 0, bad, "", "not valid JSON");
    expect_bad("{\"a\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]},\"a\":{}}", 0, bad,
               "", "duplicate");
    expect_bad("[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[", 0, bad, "", "json_depth");
    expect_bad("{" META ",\"a\":{\"dtype\":\"F8_E4M3\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1,
               BLASD_E_unsupported_dtype, "inputs.a", "'F8_E4M3' is not taken");
    expect_bad("{" META ",\"a\":{\"dtype\":\"U8\",\"shape\":[1,1,1,1,1,1,1,1,1],\"data_offsets\":"
               "[0,1]}}",
               1, BLASD_E_invalid_tensor, "inputs.a", "more than 8 lengths");
    expect_bad("{" META ",\"a\":{\"dtype\":\"F64\",\"shape\":[4294967296,4294967296,4294967296],"
               "\"data_offsets\":[0,8]}}",
               8, BLASD_E_invalid_tensor, "inputs.a", "more elements");
    expect_bad("{" META ",\"a\":{\"dtype\":\"U8\",\"shape\":[1099511627776],\"data_offsets\":[0,"
               "1099511627776]}}",
               8, BLASD_E_body_too_large, "", "body_bytes");
    expect_bad("{" META ",\"a\":{\"dtype\":\"BOOL\",\"shape\":[0,5],\"data_offsets\":[0,0]},\"x\":"
               "{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}}",
               0, BLASD_E_unknown_input, "inputs.x", "mix has no input 'x'");
}

/* One header, written in many ways, and what is no JSON or no header. */
static void test_spellings(void **state) {
#define MEMBERS "\"dtype\":\"F64\",\"shape\":[2,3],\"data_offsets\":[0,48]"
    static const struct {
        const char *header;
        enum blasd_code code;
    } cases[] = {
        {"{" META ",\"a\":{" MEMBERS "}}", BLASD_OK},
        {"{\"a\":{" MEMBERS "}," META "}", BLASD_OK},
        {"{" META ",\"\\u0061\":{" MEMBERS "}}", BLASD_OK},
        {" {\t" META ",\"a\" :\n{ \"shape\" : [ 2 , 3 ] , \"data_offsets\":[0, 48 ],\"dtype\": "
         "\"F64\" } }\r ",
         BLASD_OK},
        {"{\"__metadata__\":{\"op\":\"mix\",\"note\":\" it's, {plain} [too]: \"},\"a\":{" MEMBERS
         "}}",
         BLASD_OK},
        {"{\"__metadata__\":{\"op\":\"mix\",\"op\":\"mix\"},\"a\":{" MEMBERS "}}",
         BLASD_E_invalid_field},
        {"{\"__metadata__\":{\"op\":1},\"a\":{" MEMBERS "}}", BLASD_E_malformed_safetensors},
        {"{" META ",\"a\":{" MEMBERS "}", BLASD_E_malformed_safetensors},
        {"{" META ",\"a\":{" MEMBERS "}}}", BLASD_E_malformed_safetensors},
        {"{" META ",\"a\":{" MEMBERS "},}", BLASD_E_malformed_safetensors},
        {"{" META ",\"a\":{" MEMBERS ",}}", BLASD_E_malformed_safetensors},
        {"{" META " \"a\":{" MEMBERS "}}", BLASD_E_malformed_safetensors},
        {"{" META ",\"a\":{" MEMBERS ",\"dtype\":\"F64\"}}", BLASD_E_malformed_safetensors},
        {"{" META ",\"a\":{" MEMBERS "},\"a\":{" MEMBERS "}}", BLASD_E_malformed_safetensors},
        {"{" META ",\"a\n\":{" MEMBERS "}}", BLASD_E_malformed_safetensors},
        {"{" META ",\"a\x7f\":{" MEMBERS "}}", BLASD_E_unknown_input},
        {"{" META ",\"\xc3\xa4\":{" MEMBERS "}}", BLASD_E_unknown_input},
        {"{" META ",\"a\":{\"dtype\":\"F64\",\"shape\":[02,3],\"data_offsets\":[0,48]}}",
         BLASD_E_malformed_safetensors},
        {"{" META ",\"a\":{\"dtype\":\"F64\",\"shape\":[2e0,3],\"data_offsets\":[0,48]}}",
         BLASD_E_malformed_safetensors},
        {"{" META ",\"a\":{\"dtype\":\"F64\",\"shape\":[2,3,],\"data_offsets\":[0,48]}}",
         BLASD_E_malformed_safetensors},
        {"{" META ",\"a\":{\"dtype\":\"F64\",\"shape\":[2,3],\"data_offsets\":[0,48,0]}}",
         BLASD_E_malformed_safetensors},
    };
    static const double data[6];
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        build(cases[i].header, data, sizeof data);
        send_built();
        if (last.rc != -(int)cases[i].code) fail_msg("%s: %d", cases[i].header, last.rc);
    }
}

static void test_truncated(void **state) {
    static const double data[] = {1, 2};
    const char *header = "{" META ",\"a\":{\"dtype\":\"F64\",\"shape\":[1],\"data_offsets\":[0,8]},"
                         "\"b\":{\"dtype\":\"F64\",\"shape\":[1],\"data_offsets\":[8,16]}}";
    size_t whole;
    (void)state;
    build(header, data, 16);
    whole = body_len;
    for (body_len = 0; body_len < whole; body_len++) {
        send_built();
        assert_int_equal(last.rc, -(int)BLASD_E_malformed_safetensors);
    }
    body_len = whole - 3;
    send_built();
    expect_failed(BLASD_E_malformed_safetensors, "inputs.b", "ends 3 bytes before the end");
    body_len = 5;
    send_built();
    expect_failed(BLASD_E_malformed_safetensors, "", "inside the header: 5 of 8");
    body_len = whole + 1;
    send_built();
    expect_failed(BLASD_E_malformed_safetensors, "", "bytes follow the last tensor");
    body_len = whole;
    send_options((struct blasd_intake_options){.content_type = "application/octet-stream",
                                               .content_length = whole - 8},
                 body, whole);
    expect_failed(BLASD_E_malformed_safetensors, "", "the body has");
    memset(body, 0xff, 8);
    send_built();
    expect_failed(BLASD_E_malformed_safetensors, "", "limit envelope_bytes");
    memset(body, 0, 8);
    send_built();
    expect_failed(BLASD_E_malformed_safetensors, "", "too short");
}

/* A body that is used where it lies: tensors may leave gaps that align them, and keep their places.
 */
static int place(struct blasd_sink *sink, uint64_t bytes, uint64_t *offset, struct blasd_err *err) {
    (void)bytes, (void)err;
    *offset = sink->body_at;
    return 0;
}

static int pass_over(struct blasd_sink *sink, uint64_t offset, const void *bytes, size_t len,
                     struct blasd_err *err) {
    (void)sink, (void)offset, (void)bytes, (void)len, (void)err;
    return 0;
}

static int send_in_place(const char *header, const void *data, size_t data_len, uint64_t split,
                         struct blasd_job *job, struct blasd_err *err) {
    struct blasd_sink sink = {.in_place = true, .reserve = place, .write = pass_over};
    struct blasd_intake_options options = {.content_type = "application/x-safetensors",
                                           .limits = &limits_now};
    struct blasd_intake *intake;
    int rc;
    build(header, data, data_len);
    options.content_length = body_len;
    rc = blasd_intake_new(&options, &sink, &intake, err);
    if (rc != 0) return rc;
    rc = feed_pieces(intake, body, body_len, split, err);
    if (rc == 0) rc = blasd_intake_finish(intake, job, err);
    blasd_intake_free(intake);
    return rc;
}

static void test_in_place(void **state) {
    static const char gaps[] =
        "{" META ",\"a\":{\"dtype\":\"F64\",\"shape\":[3],\"data_offsets\":[0,24]},"
        "\"b\":{\"dtype\":\"F64\",\"shape\":[2],\"data_offsets\":[64,80]},"
        "\"V\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[128,128]}}";
    double data[16] = {0};
    struct blasd_job job;
    struct blasd_err err;
    uint64_t begin = 8 + sizeof gaps - 1;
    (void)state;
    for (int i = 3; i < 8; i++) data[i] = NAN; /* in a gap: nobody looks */
    for (uint64_t split = 0; split < 40; split++) {
        data[9] = split % 2 == 0 ? 1 : NAN;
        assert_int_equal(send_in_place(gaps, data, 128, split, &job, &err), 0);
        assert_int_equal(job.inputs[0].source.offset, begin);
        assert_int_equal(job.inputs[1].source.offset, begin + 64);
        assert_int_equal(job.inputs[2].source.offset, begin + 128);
        assert_int_equal(job.inputs[0].first_nonfinite, -1);
        assert_int_equal(job.inputs[1].first_nonfinite, split % 2 == 0 ? -1 : 1);
    }
    /* a gap that aligns nothing, and what lies behind the last tensor */
    assert_int_equal(
        send_in_place("{" META ",\"a\":{\"dtype\":\"F64\",\"shape\":[3],\"data_offsets\":[0,24]},"
                      "\"b\":{\"dtype\":\"F64\",\"shape\":[1],\"data_offsets\":[128,136]}}",
                      data, 136 - 8, WHOLE, &job, &err),
        -(int)BLASD_E_malformed_safetensors);
    assert_int_equal(send_in_place(gaps, data, 120, WHOLE, &job, &err),
                     -(int)BLASD_E_malformed_safetensors);
    /* elsewhere there are no gaps */
    send_st(gaps, data, 128);
    expect_failed(BLASD_E_malformed_safetensors, "inputs.b", "neither overlap nor leave gaps");
}

static void test_bad_bool(void **state) {
    (void)state;
    send_st("{" META ",\"a\":{\"dtype\":\"BOOL\",\"shape\":[3],\"data_offsets\":[0,3]}}", "\0\1\2",
            3);
    expect_failed(BLASD_E_invalid_tensor, "inputs.a", "element 2 is the byte 2");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_spellings),   cmocka_unit_test(test_plain),
        cmocka_unit_test(test_dtypes),      cmocka_unit_test(test_first_nonfinite),
        cmocka_unit_test(test_values),      cmocka_unit_test(test_metadata),
        cmocka_unit_test(test_bad_headers), cmocka_unit_test(test_truncated),
        cmocka_unit_test(test_bad_bool),    cmocka_unit_test(test_in_place),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
