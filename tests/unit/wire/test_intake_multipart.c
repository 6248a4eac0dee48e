/* Jobs in multipart/form-data with .npy parts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "tests/unit/wire/intake_expect.h"

static char body[1 << 16];
static size_t body_len;

static void begin(void) {
    body_len = 0;
}

static void add(const void *bytes, size_t len) {
    assert_true(len <= sizeof body - body_len);
    memcpy(body + body_len, bytes, len);
    body_len += len;
}

static void add_string(const char *text) {
    add(text, strlen(text));
}

/* A part as curl writes it; `file` NULL: a plain field. */
static void add_part(const char *name, const char *file, const void *content, size_t len) {
    char headers[256];
    if (file == NULL)
        snprintf(headers, sizeof headers,
                 "--XX\r\nContent-Disposition: form-data; name=\"%s\"\r\n\r\n", name);
    else
        snprintf(headers, sizeof headers,
                 "--XX\r\nContent-Disposition: form-data; name=\"%s\"; filename=\"%s\"\r\n"
                 "Content-Type: application/octet-stream\r\n\r\n",
                 name, file);
    add_string(headers);
    add(content, len);
    add_string("\r\n");
}

static void add_text(const char *name, const char *text) {
    add_part(name, NULL, text, strlen(text));
}

static char npy[8192];

/* Builds a .npy file; returns its length. */
static size_t make_npy(int version, const char *header, const void *data, size_t len) {
    size_t header_len = strlen(header), front = version == 1 ? 10 : 12;
    memcpy(npy, "\x93NUMPY", 6);
    npy[6] = (char)version;
    npy[7] = 0;
    npy[8] = (char)(header_len & 255);
    npy[9] = (char)(header_len >> 8);
    npy[10] = npy[11] = 0;
    memcpy(npy + front, header, header_len);
    if (len > 0) memcpy(npy + front + header_len, data, len);
    return front + header_len + len;
}

static void add_npy(const char *name, const char *header, const void *data, size_t len) {
    size_t n = make_npy(1, header, data, len);
    add_part(name, "x.npy", npy, n);
}

static void send_parts(void) {
    send_options((struct blasd_intake_options){.content_type = "multipart/form-data; boundary=XX"},
                 body, body_len);
}

static void send_end(void) {
    add_string("--XX--\r\n");
    send_parts();
}

/* Sends `header` and `data` as the only input `a`. */
static void send_a(const char *header, const void *data, size_t len) {
    begin();
    add_text("op", "mix");
    add_npy("a", header, data, len);
    send_end();
}

/* As numpy.save writes it. */
#define HEADER(descr, order, shape)                                                                \
    "{'descr': '" descr "', 'fortran_order': " order ", 'shape': " shape ", }          \n"

static void test_plain(void **state) {
    static const double a[] = {1, 2, 3, 4, 5, 6};
    static const float b[] = {7, 8};
    (void)state;
    begin();
    add_npy("a", HEADER("<f8", "False", "(2, 3)"), a, sizeof a);
    add_text("op", "mix");
    add_npy("b", HEADER("<f4", "False", "(2,)"), b, sizeof b);
    add_text("params", "{\"k\":4}");
    add_text("params.alpha", "2");
    add_text("params.mode", "tf32");
    add_text("params.transpose_a", "true");
    add_text("params.p", "Infinity");
    add_text("priority", "high");
    add_text("deadline_ms", "900");
    add_text("device", "cpu");
    send_end();
    expect_bytes(expect_input(0, BLASD_float64, SHAPE(2, 3)), a, sizeof a);
    expect_bytes(expect_input(1, BLASD_float32, SHAPE(2)), b, sizeof b);
    assert_int_equal(last.job.inputs[0].tensor.order, BLASD_ROW_MAJOR);
    assert_int_equal(last.job.params[P_K].i, 4);
    assert_true(last.job.params[P_ALPHA].f == 2);
    assert_int_equal(last.job.params[P_MODE].choice, 1);
    assert_true(last.job.params[P_TRANSPOSE_A].b);
    assert_true(last.job.params[P_P].f == (double)INFINITY);
    assert_int_equal(last.job.priority, BLASD_PRIORITY_HIGH);
    assert_int_equal(last.job.deadline_ms, 900);
    assert_int_equal(last.job.device, BLASD_DEVICE_CPU);
}

static void test_orders(void **state) {
    static const double a[] = {1, 4, 2, 5, 3, 6};
    static const unsigned char big8[] = {0x3f, 0xf0, 0, 0, 0, 0, 0, 0, 0xc0, 0, 0, 0, 0, 0, 0, 0};
    static const unsigned char big4[] = {0x3f, 0x80, 0, 0, 0x7f, 0x80, 0, 0};
    static const unsigned char big2[] = {1, 2, 0xff, 0xfe};
    (void)state;
    send_a(HEADER("<f8", "True", "(2, 3)"), a, sizeof a);
    expect_bytes(expect_input(0, BLASD_float64, SHAPE(2, 3)), a, sizeof a);
    assert_int_equal(last.job.inputs[0].tensor.order, BLASD_COLUMN_MAJOR);
    send_a(HEADER("<f8", "True", "(6,)"), a, sizeof a);
    expect_input(0, BLASD_float64, SHAPE(6));
    assert_int_equal(last.job.inputs[0].tensor.order, BLASD_ROW_MAJOR);
    send_a(HEADER(">f8", "False", "(2,)"), big8, sizeof big8);
    expect_bytes(expect_input(0, BLASD_float64, SHAPE(2)), (double[]){1, -2}, 16);
    assert_int_equal(last.job.inputs[0].first_nonfinite, -1);
    send_a(HEADER(">f4", "False", "(2,)"), big4, sizeof big4);
    expect_bytes(expect_input(0, BLASD_float32, SHAPE(2)), (float[]){1, INFINITY}, 8);
    assert_int_equal(last.job.inputs[0].first_nonfinite, 1);
    send_a(HEADER(">i2", "False", "(2,)"), big2, sizeof big2);
    expect_bytes(expect_input(0, BLASD_int16, SHAPE(2)), (int16_t[]){258, -2}, 4);
    send_a(HEADER(">i1", "False", "(2,)"), big2, 2);
    expect_bytes(expect_input(0, BLASD_int8, SHAPE(2)), (int8_t[]){1, 2}, 2);
    send_a(HEADER("=f8", "False", "(6,)"), a, sizeof a);
    expect_bytes(expect_input(0, BLASD_float64, SHAPE(6)), a, sizeof a);
}

/* Signs and zeros, big-endian too, where the sign is in the first byte. */
static void test_values(void **state) {
    static const unsigned char big8[] = {
        0x80, 0, 0, 0,    0,    0,    0, 0, 0, 0, 0, 0,
        0,    0, 0, 0x80, 0xbf, 0xf0, 0, 0, 0, 0, 0, 0};              /* -0, tiny, -1 */
    static const unsigned char big2[] = {0, 0x80, 0, 0, 0x80, 0};     /* 128, 0, -32768 */
    static const unsigned char big16[] = {0x80, 0, 0, 0x80, 0xbc, 0}; /* -0, tiny, -1 */
    static const int8_t small[] = {0, 5, -1};
    static const struct {
        const char *header;
        const void *data;
        size_t len;
        int64_t negative, not_positive;
    } rows[] = {
        {HEADER(">f8", "False", "(3,)"), big8, sizeof big8, 2, 0},
        {HEADER(">i2", "False", "(3,)"), big2, sizeof big2, 2, 1},
        {HEADER(">u2", "False", "(3,)"), big2, sizeof big2, -1, 1},
        {HEADER(">f2", "False", "(3,)"), big16, sizeof big16, 2, 0},
        {HEADER("|i1", "True", "(3,)"), small, sizeof small, 2, 0},
        {HEADER("|u1", "True", "(3,)"), small, sizeof small, -1, 0},
        {HEADER("|b1", "False", "(2,)"), "\1\0", 2, -1, 1},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        begin();
        add_text("op", "mix");
        add_npy("w", rows[i].header, rows[i].data, rows[i].len);
        add_npy("s", rows[i].header, rows[i].data, rows[i].len);
        add_npy("a", rows[i].header, rows[i].data, rows[i].len);
        send_end();
        expect_good();
        assert_int_equal(last.job.inputs[I_WEIGHT].first_negative, rows[i].negative);
        assert_int_equal(last.job.inputs[I_WEIGHT].first_not_positive, -1);
        assert_false(last.job.inputs[I_WEIGHT].all_zero);
        assert_int_equal(last.job.inputs[I_SCALE].first_negative, rows[i].negative);
        assert_int_equal(last.job.inputs[I_SCALE].first_not_positive, rows[i].not_positive);
        assert_int_equal(last.job.inputs[I_A].first_negative, -1);
    }
    begin();
    add_text("op", "mix");
    add_npy("w", HEADER(">f8", "False", "(1,)"), big8, 8);
    send_end();
    expect_good();
    assert_true(last.job.inputs[I_WEIGHT].all_zero);
}

/* More big-endian elements than the buffer they are turned round in. */
static void test_big_endian_large(void **state) {
    unsigned char data[4099 * 2];
    const uint16_t *got;
    (void)state;
    for (int i = 0; i < 4099; i++) {
        data[2 * i] = (unsigned char)(i >> 8);
        data[2 * i + 1] = (unsigned char)i;
    }
    begin();
    add_text("op", "mix");
    add_string("--XX\r\nContent-Disposition: form-data; name=a\r\n\r\n");
    add(npy, make_npy(1, HEADER(">u2", "False", "(4099,)"), NULL, 0));
    add(data, sizeof data);
    add_string("\r\n");
    send_end();
    got = expect_input(0, BLASD_uint16, SHAPE(4099));
    for (int i = 0; i < 4099; i++) assert_int_equal(got[i], i);
}

static void test_dtypes(void **state) {
    static const struct {
        const char *descr;
        enum blasd_dtype dtype;
        size_t size;
    } rows[] = {
        {"<f8", BLASD_float64, 8},      {"<f4", BLASD_float32, 4},  {"<f2", BLASD_float16, 2},
        {"<i8", BLASD_int64, 8},        {"<i4", BLASD_int32, 4},    {"<i2", BLASD_int16, 2},
        {"|i1", BLASD_int8, 1},         {"<u8", BLASD_uint64, 8},   {"<u4", BLASD_uint32, 4},
        {"<u2", BLASD_uint16, 2},       {"|u1", BLASD_uint8, 1},    {"|b1", BLASD_bool, 1},
        {"<c16", BLASD_complex128, 16}, {"<c8", BLASD_complex64, 8}};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char header[128];
        unsigned char data[48];
        for (size_t k = 0; k < sizeof data; k++) data[k] = k % 3 == 0;
        snprintf(header, sizeof header, HEADER("%s", "False", "(3,)"), rows[i].descr);
        send_a(header, data, 3 * rows[i].size);
        expect_bytes(expect_input(0, rows[i].dtype, SHAPE(3)), data, 3 * rows[i].size);
    }
}

static void test_versions(void **state) {
    static const double a[] = {1, 2};
    (void)state;
    for (int version = 1; version <= 4; version++) {
        size_t n = make_npy(version, HEADER("<f8", "False", "(2,)"), a, sizeof a);
        begin();
        add_text("op", "mix");
        add_part("a", "a.npy", npy, n);
        send_end();
        if (version < 4)
            expect_bytes(expect_input(0, BLASD_float64, SHAPE(2)), a, sizeof a);
        else
            expect_failed(BLASD_E_malformed_npy, "inputs.a", "version 4.0");
    }
}

static void test_shapes(void **state) {
    static const double a[] = {1, 2};
    (void)state;
    send_a(HEADER("<f8", "False", "()"), a, 8);
    expect_bytes(expect_input(0, BLASD_float64, SCALAR), a, 8);
    send_a(HEADER("<f8", "False", "(0,)"), a, 0);
    expect_input(0, BLASD_float64, SHAPE(0));
    send_a(HEADER("<f8", "False", "(0, 5)"), a, 0);
    expect_input(0, BLASD_float64, SHAPE(0, 5));
    send_a("{'shape':(2L,1L),\"fortran_order\":False,'descr':\"<f8\"}", a, 16);
    expect_input(0, BLASD_float64, SHAPE(2, 1));
}

static void expect_bad_npy(const char *header, enum blasd_code code, const char *detail) {
    static const double zeros[32];
    send_a(header, zeros, 16);
    expect_failed(code, "inputs.a", detail);
}

static void test_bad_npy(void **state) {
    const enum blasd_code bad = BLASD_E_malformed_npy, dtype = BLASD_E_unsupported_dtype;
    (void)state;
    expect_bad_npy(HEADER("|O", "False", "(2,)"), dtype, "object arrays are refused");
    expect_bad_npy(HEADER("<U5", "False", "(2,)"), dtype, "strings");
    expect_bad_npy(HEADER("|S5", "False", "(2,)"), dtype, "strings");
    expect_bad_npy(HEADER("<c32", "False", "(2,)"), dtype, "complex128");
    expect_bad_npy(HEADER("<c1", "False", "(2,)"), dtype, "'<c1'");
    expect_bad_npy(HEADER("<f16", "False", "(2,)"), dtype, "'<f16'");
    expect_bad_npy(HEADER("<V2", "False", "(2,)"), dtype, "bfloat16 as safetensors");
    expect_bad_npy(HEADER("<M8[ns]", "False", "(2,)"), dtype, "dates");
    expect_bad_npy(HEADER("", "False", "(2,)"), dtype, "''");
    expect_bad_npy("{'descr': [('x', '<f8')], 'fortran_order': False, 'shape': (2,), }\n", dtype,
                   "structured");
    expect_bad_npy("{'descr': 8, 'fortran_order': False, 'shape': (2,), }\n", bad, "'descr'");
    expect_bad_npy(HEADER("<f8", "0", "(2,)"), bad, "fortran_order");
    expect_bad_npy(HEADER("<f8", "False", "(2)"), bad, "tuple");
    expect_bad_npy(HEADER("<f8", "False", "[2]"), bad, "tuple");
    expect_bad_npy(HEADER("<f8", "False", "(2 3)"), bad, "tuple");
    expect_bad_npy(HEADER("<f8", "False", "(-2,)"), bad, "tuple");
    expect_bad_npy(HEADER("<f8", "False", "(,)"), bad, "tuple");
    expect_bad_npy(HEADER("<f8", "False", "(2,,)"), bad, "tuple");
    expect_bad_npy(HEADER("<f8", "False", "(99999999999999999999,)"), bad, "tuple");
    expect_bad_npy(HEADER("<f8", "False", "(1,1,1,1,1,1,1,1,1)"), BLASD_E_invalid_tensor,
                   "more than 8");
    expect_bad_npy(HEADER("<f8", "False", "(4294967296,4294967296,4294967296)"),
                   BLASD_E_invalid_tensor, "more elements");
    expect_bad_npy(HEADER("<f8", "False", "(1099511627776,)"), BLASD_E_body_too_large,
                   "body_bytes");
    expect_bad_npy("", bad, "dict");
    expect_bad_npy("{", bad, "dict");
    expect_bad_npy("{}", bad, "lacks");
    expect_bad_npy("{'descr': '<f8'}", bad, "lacks");
    expect_bad_npy("{'descr': '<f8', 'descr': '<f8'}", bad, "twice");
    expect_bad_npy("{'descr': '<f8' 'fortran_order': False}", bad, "lacks ','");
    expect_bad_npy("{'descr' '<f8'}", bad, "lacks ':'");
    expect_bad_npy("{'other': 1}", bad, "other than");
    expect_bad_npy(HEADER("<f8", "False", "(2,)") "x", bad, "goes on");
    expect_bad_npy("{'descr': __import__('os'), 'fortran_order': False, 'shape': (2,)}", bad,
                   "'descr'");
    expect_bad_npy(HEADER("<f8", "False", "(1,)"), bad, "more bytes than");
    expect_bad_npy(HEADER("<f8", "False", "(3,)"), bad, "truncated: it ends 8 bytes early");
}

static void test_bad_parts(void **state) {
    static const double a[] = {1, 2};
    size_t n;
    (void)state;
    begin();
    add_text("op", "mix");
    n = make_npy(1, HEADER("<f8", "False", "(2,)"), a, 16);
    add_part("a", "a.npy", npy, 20);
    send_end();
    expect_failed(BLASD_E_malformed_npy, "inputs.a", "ends inside its header");
    begin();
    add_part("a", "a.npy", npy, 3);
    send_end();
    expect_failed(BLASD_E_malformed_npy, "inputs.a", "does not begin as .npy files do");
    begin();
    add_part("a", "a.csv", "1,2,3,4,5", 9);
    send_end();
    expect_failed(BLASD_E_malformed_npy, "inputs.a", "does not begin as .npy files do");
    begin();
    add_part("a", "a.npy", "", 0);
    send_end();
    expect_failed(BLASD_E_malformed_npy, "inputs.a", "does not begin");
    begin();
    add_text("prioritiy", "high");
    send_end();
    expect_failed(BLASD_E_unknown_field, "prioritiy", "neither a .npy file nor op");
    begin();
    add_text("op", "mix");
    add_text("params.zeta", "1");
    send_end();
    expect_failed(BLASD_E_unknown_parameter, "params.zeta", "no parameter 'zeta'");
    begin();
    add_text("op", "mix");
    add_text("params.k", "1.5");
    send_end();
    expect_failed(BLASD_E_invalid_parameter, "params.k", "not '1.5'");
    begin();
    add_text("op", "mix");
    add_text("params.alpha", "1e999");
    send_end();
    expect_failed(BLASD_E_invalid_parameter, "params.alpha", "not '1e999'");
    begin();
    add_text("op", "mix");
    add_text("params.k", "2");
    add_text("params.k", "2");
    send_end();
    expect_failed(BLASD_E_invalid_field, "params.k", "twice");
    begin();
    add_text("op", "mix");
    add_text("params.k", "2");
    add_text("params", "{\"k\":2}");
    send_end();
    expect_failed(BLASD_E_invalid_field, "params.k", "twice");
    begin();
    add_text("op", "mix");
    add_text("op", "mix");
    send_end();
    expect_failed(BLASD_E_invalid_field, "op", "op is given twice");
    begin();
    add_part("op", NULL, "mix\0", 4);
    send_end();
    expect_failed(BLASD_E_unknown_operation, "op", "'mix?'");
    begin();
    add_text("op", "mix");
    add_part("params.mode", NULL, "\xff", 1);
    send_end();
    expect_failed(BLASD_E_invalid_parameter, "params.mode", "UTF-8");
    begin();
    add_text("op", "mix");
    n = make_npy(1, HEADER("<f8", "False", "(2,)"), a, 16);
    add_part("a", "a.npy", npy, n);
    add_part("a", "a.npy", npy, n);
    send_end();
    expect_failed(BLASD_E_invalid_field, "inputs.a", "twice");
}

static void expect_malformed(const char *text, const char *detail) {
    begin();
    add_string(text);
    send_parts();
    expect_failed(BLASD_E_malformed_multipart, "", detail);
}

static void test_framing(void **state) {
    static const double a[] = {1, 2};
    size_t n;
    (void)state;
    expect_malformed("", "nowhere in the body");
    expect_malformed("hello", "nowhere in the body");
    expect_malformed("--XY\r\n", "nowhere in the body");
    expect_malformed("--XX", "without its final boundary");
    expect_malformed("--XX\r\n", "without its final boundary");
    expect_malformed("--XXY\r\n", "followed by neither");
    expect_malformed("--XX\n", "without its final");
    expect_malformed("--XX\r\nContent-Disposition: form-data; name=op\r\n\r\nmix",
                     "without its final boundary");
    expect_malformed("--XX\r\n\r\nmix\r\n--XX--", "no Content-Disposition");
    expect_malformed("--XX\r\nX-Y: 1\r\n\r\nmix\r\n--XX--", "no Content-Disposition");
    expect_malformed("--XX\r\nContent-Disposition: form-data\r\n\r\nmix\r\n--XX--", "no name");
    expect_malformed("--XX\r\nContent-Disposition: form-data; name=\"op\r\n\r\nmix\r\n--XX--",
                     "no name");
    expect_malformed("--XX\r\nContent-Disposition: file; name=op\r\n\r\nmix\r\n--XX--",
                     "not form-data");
    expect_malformed("--XX\r\nContent-Disposition: form-data; name=op\r\n"
                     "Content-Transfer-Encoding: base64\r\n\r\nbWl4\r\n--XX--",
                     "'base64' is not taken");
    begin();
    add_string("--XX\r\nX-Long: ");
    for (int i = 0; i < 9000; i++) add("x", 1);
    send_parts();
    expect_failed(BLASD_E_malformed_multipart, "", "larger than 8192 bytes");

    /* preamble, padding behind boundaries, epilogue, other headers, odd cases and quotes */
    begin();
    add_string("preamble\r\n--X\r\n--XX \t\r\nX-A: b\r\ncontent-disposition:  Form-Data ;"
               " NAME = \"o\\p\" ; x=\"a;name=z\"\r\n\r\nmix\r\n--XX--\r\nepilogue --XX\r\n");
    send_parts();
    expect_good();
    assert_ptr_equal(last.job.op, &mix_op);

    begin();
    add_text("op", "mix");
    n = make_npy(1, HEADER("<f8", "False", "(2,)"), a, 16);
    add_string("--XX\r\nContent-Disposition: form-data; name=a\r\n\r\n");
    add(npy, n - 1);
    send_parts();
    expect_failed(BLASD_E_malformed_multipart, "inputs.a", "inside the file of inputs.a");

    limits_now.multipart_parts = 2;
    begin();
    add_text("op", "mix");
    add_text("params.k", "2");
    send_end();
    expect_good();
    begin();
    add_text("op", "mix");
    add_text("params.k", "2");
    add_text("params.alpha", "2");
    send_end();
    expect_failed(BLASD_E_malformed_multipart, "", "limit multipart_parts");
    setup(NULL);
    limits_now.envelope_bytes = 1024;
    begin();
    add_text("op", "mix");
    for (int i = 0; i < 900; i++) body[body_len++] = ' ';
    body_len -= 900;
    add_string("--XX\r\nContent-Disposition: form-data; name=params\r\n\r\n{");
    for (int i = 0; i < 1100; i++) add(" ", 1);
    add_string("}\r\n");
    send_end();
    expect_failed(BLASD_E_body_too_large, "", "envelope_bytes");
    setup(NULL);
}

/* Contents that look almost like the delimiter. */
static void test_near_delimiters(void **state) {
    static const char *const contents[] = {
        "\r\n--X",  "\r\n--XY", "\r\n-",     "\r",       "\r\n",           "\r\r\n--X", "--XX",
        "\n--XX--", "\r\n--x",  "\r\n\r\n-", "\r\n--\r", "\r\r\r\n\r\n--", "\r\n- -XX",
    };
    (void)state;
    for (size_t i = 0; i < sizeof contents / sizeof *contents; i++) {
        char header[128];
        size_t n = strlen(contents[i]);
        snprintf(header, sizeof header, HEADER("|i1", "False", "(%d,)"), (int)n);
        send_a(header, contents[i], n);
        expect_bytes(expect_input(0, BLASD_int8, SHAPE((int64_t)n)), contents[i], n);
    }
}

static void test_boundaries(void **state) {
    static const struct {
        const char *type, *boundary;
    } cases[] = {
        {"multipart/form-data; boundary=------------------------d74496d66958873e",
         "------------------------d74496d66958873e"},
        {"Multipart/Form-Data;charset=utf-8 ; BOUNDARY=\"a b'()+_,-./:=?\"", "a b'()+_,-./:=?"},
        {"multipart/form-data; boundary=abc=/+:", "abc=/+:"},
        {"multipart/form-data; boundary=0123456789012345678901234567890123456789012345678901234567"
         "890123456789",
         "0123456789012345678901234567890123456789012345678901234567890123456789"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        begin();
        body_len = (size_t)snprintf(body, sizeof body,
                                    "--%s\r\nContent-Disposition: form-data; name=\"op\"\r\n\r\nmix"
                                    "\r\n--%s--\r\n",
                                    cases[i].boundary, cases[i].boundary);
        send_options((struct blasd_intake_options){.content_type = cases[i].type}, body, body_len);
        expect_good();
    }
    send_options(
        (struct blasd_intake_options){.content_type = "multipart/form-data; boundary=\"\""}, body,
        body_len);
    expect_failed(BLASD_E_malformed_multipart, "Content-Type", "0 characters");
    send_options((struct blasd_intake_options){.content_type = "multipart/form-data; boundary=\"a"},
                 body, body_len);
    expect_failed(BLASD_E_malformed_multipart, "Content-Type", "no boundary");
    send_options(
        (struct blasd_intake_options){
            .content_type = "multipart/form-data; boundary=012345678901234567890123456789012345678"
                            "90123456789012345678901234567890"},
        body, body_len);
    expect_failed(BLASD_E_malformed_multipart, "Content-Type", "71 characters");
    send_options(
        (struct blasd_intake_options){.content_type = "multipart/form-data; boundary=a\rb"}, body,
        body_len);
    expect_failed(BLASD_E_malformed_multipart, "Content-Type", "not printable");
}

static void test_content_length(void **state) {
    static const double a[] = {1, 2};
    (void)state;
    begin();
    add_text("op", "mix");
    add_npy("a", HEADER("<f8", "False", "(100000,)"), a, 16);
    add_string("--XX--\r\n");
    send_options((struct blasd_intake_options){.content_type = "multipart/form-data; boundary=XX",
                                               .content_length = body_len},
                 body, body_len);
    expect_failed(BLASD_E_malformed_npy, "inputs.a", "describes 800000 bytes");
    assert_int_equal(last.memory.reserves, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plain),           cmocka_unit_test(test_orders),
        cmocka_unit_test(test_values),          cmocka_unit_test(test_big_endian_large),
        cmocka_unit_test(test_dtypes),          cmocka_unit_test(test_versions),
        cmocka_unit_test(test_shapes),          cmocka_unit_test(test_bad_npy),
        cmocka_unit_test(test_bad_parts),       cmocka_unit_test(test_framing),
        cmocka_unit_test(test_near_delimiters), cmocka_unit_test(test_boundaries),
        cmocka_unit_test(test_content_length),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
