/* Tensors in a job in JSON: lifted from the text as lists, objects, base64 or references;
 * everything that is none is told where it stands. Read next: test_intake_json.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "tests/unit/wire/intake_expect.h"

/* A body whose only input is `a`. */
static void send_a(const char *tensor) {
    size_t room = strlen(tensor) + 64;
    char *body = malloc(room);
    snprintf(body, room, "{\"op\":\"mix\",\"inputs\":{\"a\":%s}}", tensor);
    send_json(body);
    free(body);
}

static void expect_doubles(const char *tensor, const int64_t *shape, const double *wanted,
                           size_t n) {
    send_a(tensor);
    expect_bytes(expect_input(0, BLASD_float64, shape), wanted, n * sizeof *wanted);
}

#define DOUBLES(...)                                                                               \
    (const double[]){__VA_ARGS__}, sizeof((const double[]){__VA_ARGS__}) / sizeof(double)

static void test_plain_lists(void **state) {
    (void)state;
    expect_doubles("[1,2.5,-3e2]", SHAPE(3), DOUBLES(1, 2.5, -300));
    expect_doubles("[[1,2],[3,4],[5,6]]", SHAPE(3, 2), DOUBLES(1, 2, 3, 4, 5, 6));
    expect_doubles(" [ [ 1 ,\n2 ]\t,\r[ 3 , 4 ] ] ", SHAPE(2, 2), DOUBLES(1, 2, 3, 4));
    expect_doubles("[[[[[[[[7]]]]]]]]", SHAPE(1, 1, 1, 1, 1, 1, 1, 1), DOUBLES(7));
    expect_doubles("42", SCALAR, DOUBLES(42));
    expect_doubles("true", SCALAR, DOUBLES(1));
    expect_doubles("[true,false,2]", SHAPE(3), DOUBLES(1, 0, 2));
    expect_doubles("[-0.0,0,1e-400]", SHAPE(3), DOUBLES(-0.0, 0, 0));
    assert_int_equal(last.job.inputs[0].first_nonfinite, -1);
    expect_doubles("[]", SHAPE(0), (const double[]){0}, 0);
    expect_doubles("[[],[]]", SHAPE(2, 0), (const double[]){0}, 0);
    expect_doubles("[[ ] , [\n]]", SHAPE(2, 0), (const double[]){0}, 0);
}

#define TENSOR "t692fa1b00123456789abcdef0123456789abcdef"
#define JOB "s692fa1b00123456789abcdef0123456789abcdef"

static const struct blasd_reference *expect_reference(const char *tensor,
                                                      enum blasd_source_kind kind) {
    send_a(tensor);
    expect_good();
    assert_int_equal(last.job.inputs[0].source.kind, kind);
    assert_string_equal(last.job.inputs[0].reference->id,
                        kind == BLASD_SOURCE_TENSOR ? TENSOR : JOB);
    return last.job.inputs[0].reference;
}

static void test_references(void **state) {
    const struct blasd_reference *got;
    (void)state;
    got = expect_reference("{\"tensor\":\"" TENSOR "\"}", BLASD_SOURCE_TENSOR);
    assert_int_equal(got->sliced, 0);
    got = expect_reference(" { \"output\" : \"c\" ,\n\"job\" : \"" JOB "\" } ", BLASD_SOURCE_JOB);
    assert_string_equal(got->output, "c");
    got = expect_reference("{\"slice\":[[0,1000],[null,null],[3,null]],\"tensor\":\"" TENSOR "\"}",
                           BLASD_SOURCE_TENSOR);
    assert_int_equal(got->sliced, 3);
    assert_true(got->from[0] == 0 && got->to[0] == 1000 && got->from[2] == 3);
    assert_true(got->from[1] == BLASD_SLICE_OPEN && got->to[2] == BLASD_SLICE_OPEN);
    got = expect_reference("{\"dtype\":\"int32\",\"tensor\":\"" TENSOR "\",\"slice\":[]}",
                           BLASD_SOURCE_TENSOR);
    assert_true(got->typed && got->sliced == 0);
    assert_int_equal(last.job.inputs[0].tensor.dtype, BLASD_int32);
}

static void test_bad_references(void **state) {
    static const struct {
        const char *tensor;
        enum blasd_code code;
        const char *detail;
    } bad[] = {
        {"{\"tensor\":\"x\"}", BLASD_E_reference_not_found, "no tensor has the id"},
        {"{\"tensor\":\"" JOB "\"}", BLASD_E_reference_not_found, "no tensor has the id"},
        {"{\"job\":\"" TENSOR "\",\"output\":\"c\"}", BLASD_E_reference_not_found, "no job"},
        {"{\"tensor\":1}", BLASD_E_invalid_reference, "no string"},
        {"{\"job\":\"" JOB "\"}", BLASD_E_invalid_reference, "which of its outputs"},
        {"{\"output\":\"c\"}", BLASD_E_invalid_reference, "must name a tensor"},
        {"{\"tensor\":\"" TENSOR "\",\"output\":\"c\"}", BLASD_E_invalid_reference, "no job"},
        {"{\"tensor\":\"" TENSOR "\",\"tensor\":\"" TENSOR "\"}", BLASD_E_invalid_reference,
         "twice"},
        {"{\"tensor\":\"" TENSOR "\",\"data\":[1]}", BLASD_E_invalid_reference, "no member 'data'"},
        {"{\"tensor\":\"" TENSOR "\",\"slice\":[[1,2,3]]}", BLASD_E_invalid_reference, "slice"},
        {"{\"tensor\":\"" TENSOR "\",\"slice\":[[1.5,2]]}", BLASD_E_invalid_reference, "slice"},
        {"{\"tensor\":\"" TENSOR "\",\"slice\":[[-1,2]]}", BLASD_E_invalid_reference, "slice"},
        {"{\"tensor\":\"" TENSOR "\",\"slice\":{}}", BLASD_E_invalid_reference, "slice"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        send_a(bad[i].tensor);
        expect_failed(bad[i].code, "inputs.a", bad[i].detail);
    }
    send_a("{\"data\":[1],\"tensor\":\"" TENSOR "\"}");
    expect_failed(BLASD_E_unknown_field, "inputs.a.tensor", "no member");
}

static void send_named(const char *name, const char *tensor) {
    static char text[200000];
    snprintf(text, sizeof text, "{\"op\":\"mix\",\"inputs\":{\"%s\":%s}}", name, tensor);
    send_options((struct blasd_intake_options){.content_type = "application/json"}, text,
                 strlen(text));
    expect_good();
}

/* Signs and zeros, in each way that JSON has to write a tensor. */
static void test_values(void **state) {
    static char many[100000];
    const struct blasd_input *w = &last.job.inputs[I_WEIGHT], *s = &last.job.inputs[I_SCALE];
    size_t len = 1;
    (void)state;
    send_named("w", "[[1,-0.0],[0,-1e-300],[-2,3]]");
    assert_int_equal(w->first_negative, 3);
    assert_false(w->all_zero);
    send_named("w", "[-0.0,0,0.0]");
    assert_int_equal(w->first_negative, -1);
    assert_true(w->all_zero);
    send_named("w", "[]");
    assert_false(w->all_zero);
    send_named("w", "{\"data\":[0,0,-1],\"dtype\":\"int8\"}");
    assert_int_equal(w->first_negative, 2);
    send_named("w", "{\"dtype\":\"uint64\",\"data\":[18446744073709551615]}");
    assert_int_equal(w->first_negative, -1);
    assert_false(w->all_zero);
    send_named("w", "{\"dtype\":\"float16\",\"data\":[1,-1e-9,-1e-7]}"); /* -1e-9 rounds to -0 */
    assert_int_equal(w->first_negative, 2);
    send_named("w",
               "{\"dtype\":\"float32\",\"shape\":[2],\"base64\":\"AAAAgAAAgL8=\"}"); /* -0, -1 */
    assert_int_equal(w->first_negative, 1);
    assert_false(w->all_zero);
    send_named("s", "[3,0.0,-1]");
    assert_int_equal(s->first_not_positive, 1);
    assert_int_equal(s->first_negative, 2);
    send_named("s", "{\"dtype\":\"bool\",\"data\":[true,false]}");
    assert_int_equal(s->first_not_positive, 1);
    assert_int_equal(s->first_negative, -1);
    send_named("a", "[0,-1]");
    assert_int_equal(last.job.inputs[I_A].first_negative, -1);
    assert_false(last.job.inputs[I_A].all_zero);
    /* more than is gathered at a time */
    many[0] = '[';
    for (int i = 0; i < 9000; i++, len += 2) memcpy(many + len, i == 8190 ? "0," : "1,", 2);
    memcpy(many + len, "-1]", 4);
    send_named("s", many);
    assert_int_equal(s->first_not_positive, 8190);
    assert_int_equal(s->first_negative, 9000);
}

/* Each element is a pair of numbers, in lists of any shape. */
static void test_complex(void **state) {
    static const double four[] = {1, 2, 3, -4, 0, 0.5, -1, 1e300};
    static char many[120000];
    size_t len = 0;
    (void)state;
    send_a("{\"dtype\":\"complex128\",\"shape\":[2,2],\"data\":[[[1,2],[3,-4]],[[0,0.5],[-1,1e300]]"
           "]}");
    expect_bytes(expect_input(0, BLASD_complex128, SHAPE(2, 2)), four, 64);
    assert_int_equal(last.job.inputs[0].first_nonfinite, -1);
    send_a("{\"data\":[[1,2],[3,-4],[0,0.5],[-1,1e300]],\"dtype\":\"complex128\",\"shape\":[4,1]}");
    expect_bytes(expect_input(0, BLASD_complex128, SHAPE(4, 1)), four, 64);
    send_a("{\"dtype\":\"complex64\",\"shape\":[],\"data\":[1,2]}");
    expect_bytes(expect_input(0, BLASD_complex64, SCALAR), (float[]){1, 2}, 8);
    send_a("{\"dtype\":\"complex64\",\"shape\":[2,0],\"data\":[[],[]]}");
    expect_input(0, BLASD_complex64, SHAPE(2, 0));
    send_a("{\"dtype\":\"complex64\",\"data\":[[[[[[[[[1,2]]]]]]]]]}");
    expect_input(0, BLASD_complex64, SHAPE(1, 1, 1, 1, 1, 1, 1, 1));
    send_a("{\"dtype\":\"complex64\",\"data\":[[[[[[[[[[1,2]]]]]]]]]]}");
    expect_failed(BLASD_E_invalid_tensor, "inputs.a", "more than 8 dimensions");
    send_a("{\"dtype\":\"complex64\",\"data\":[[1,2],[3,\"NaN\"]]}");
    expect_input(0, BLASD_complex64, SHAPE(2));
    assert_int_equal(last.job.inputs[0].first_nonfinite, 1);
    send_a("{\"dtype\":\"complex64\",\"data\":[1,2,3]}");
    expect_failed(BLASD_E_invalid_tensor, "inputs.a", "imaginary");
    send_a("{\"dtype\":\"complex64\",\"shape\":[],\"data\":3}");
    expect_failed(BLASD_E_invalid_tensor, "inputs.a", "imaginary");
    send_a("{\"dtype\":\"complex64\",\"data\":[[1,2],3]}");
    expect_failed(BLASD_E_invalid_tensor, "inputs.a[1]", "lists");
    send_a("{\"dtype\":\"complex64\",\"data\":[[1,1e39]]}");
    expect_failed(BLASD_E_invalid_tensor, "inputs.a[0][1]", "beyond the range");
    send_a("{\"dtype\":\"complex128\",\"shape\":[2],\"data\":[[1,2]]}");
    expect_failed(BLASD_E_invalid_tensor, "inputs.a", "shape (2,) has 2 elements, data has 1");
    send_a("{\"dtype\":\"complex64\",\"shape\":[1],\"base64\":\"AACAPwAAAEA=\"}");
    expect_bytes(expect_input(0, BLASD_complex64, SHAPE(1)), (float[]){1, 2}, 8);
    /* more than is gathered at a time */
    len = (size_t)sprintf(many, "{\"dtype\":\"complex64\",\"data\":[");
    for (int i = 0; i < 9000; i++)
        len += (size_t)sprintf(many + len, "[%d,%d]%s", i, -i, i < 8999 ? "," : "]}");
    send_a(many);
    assert_true(((const float *)expect_input(0, BLASD_complex64, SHAPE(9000)))[17999] == -8999);
}

static void test_nonfinite(void **state) {
    const double *got;
    (void)state;
    send_a("[1,\"Infinity\",\"-Infinity\",\"NaN\"]");
    got = expect_input(0, BLASD_float64, SHAPE(4));
    assert_true(got[0] == 1 && got[1] == (double)INFINITY && got[2] == -(double)INFINITY);
    assert_true(isnan(got[3]));
    assert_int_equal(last.job.inputs[0].first_nonfinite, 1);
    send_a("{\"dtype\":\"float16\",\"data\":[1,2,\"-Infinity\"]}");
    expect_bytes(expect_input(0, BLASD_float16, SHAPE(3)), (uint16_t[]){0x3c00, 0x4000, 0xfc00}, 6);
    assert_int_equal(last.job.inputs[0].first_nonfinite, 2);
    send_a("\"NaN\"");
    expect_input(0, BLASD_float64, SCALAR);
    assert_int_equal(last.job.inputs[0].first_nonfinite, 0);
    send_a("[1,\"nan\"]");
    expect_failed(BLASD_E_invalid_tensor, "inputs.a[1]", "\"NaN\"");
    send_a("{\"dtype\":\"int8\",\"data\":[\"NaN\"]}");
    expect_failed(BLASD_E_invalid_tensor, "inputs.a[0]", "floating");
    send_a("[NaN]");
    expect_failed(BLASD_E_malformed_json, "", "\"NaN\"");
    send_a("[1, -Infinity]");
    expect_failed(BLASD_E_malformed_json, "", "\"-Infinity\"");
    send_a("[1e309]");
    expect_failed(BLASD_E_invalid_tensor, "inputs.a[0]", "1e309: beyond the range");
    send_a("{\"dtype\":\"float32\",\"data\":[[1],[3.5e38]]}");
    expect_failed(BLASD_E_invalid_tensor, "inputs.a[1][0]", "3.5e38: beyond the range");
    send_a("{\"dtype\":\"float16\",\"data\":[65520]}");
    expect_failed(BLASD_E_invalid_tensor, "inputs.a[0]", "beyond the range");
}

static void test_ragged(void **state) {
    (void)state;
    send_a("[[1,2],[3]]");
    expect_failed(BLASD_E_invalid_tensor, "inputs.a[1]",
                  "inputs.a[1] has 1 elements where the list before it has 2");
    send_a("[[1,2],[3,4,5]]");
    expect_failed(BLASD_E_invalid_tensor, "inputs.a[1]", "has 3 elements");
    send_a("[[[1],[2]],[[3]]]");
    expect_failed(BLASD_E_invalid_tensor, "inputs.a[1]", "has 1 elements");
    send_a("[[[1],[2]],[[3],[4,5]]]");
    expect_failed(BLASD_E_invalid_tensor, "inputs.a[1][1]", "has 2 elements");
    send_a("[[1],2]");
    expect_failed(BLASD_E_invalid_tensor, "inputs.a[1]", "is a number");
    send_a("[1,[2]]");
    expect_failed(BLASD_E_invalid_tensor, "inputs.a[1]", "is a list");
    send_a("[[],[1]]");
    expect_failed(BLASD_E_invalid_tensor, "inputs.a[1]", "has 1 elements");
    send_a("[[1],[]]");
    expect_failed(BLASD_E_invalid_tensor, "inputs.a[1]", "has 0 elements");
    send_a("[[],[[]]]");
    expect_failed(BLASD_E_invalid_tensor, "inputs.a[1][0]", "is a list");
    send_a("[[[1]],[]]");
    expect_failed(BLASD_E_invalid_tensor, "inputs.a[1]", "has 0 elements");
    send_a("[[[[[[[[[1]]]]]]]]]");
    expect_failed(BLASD_E_invalid_tensor, "inputs.a", "more than 8 dimensions");
    send_a("[1,null]");
    expect_failed(BLASD_E_invalid_tensor, "inputs.a[1]", "null");
    send_a("[1,{}]");
    expect_failed(BLASD_E_invalid_tensor, "inputs.a[1]", "an object");
    send_a("null");
    expect_failed(BLASD_E_invalid_tensor, "inputs.a", "null");
}

static void test_objects(void **state) {
    (void)state;
    send_a("{\"dtype\":\"float32\",\"shape\":[2,2],\"data\":[1,2,3,0.1]}");
    expect_bytes(expect_input(0, BLASD_float32, SHAPE(2, 2)), (float[]){1, 2, 3, 0.1f}, 16);
    send_a("{\"data\":[1,2,3,0.1],\"shape\":[2,2],\"dtype\":\"float32\"}");
    expect_bytes(expect_input(0, BLASD_float32, SHAPE(2, 2)), (float[]){1, 2, 3, 0.1f}, 16);
    send_a(" { \"shape\" : [ 2 , 2 ] ,\n\"data\" : [ [ 1 , 2 ] , [ 3 , 4 ] ] } ");
    expect_bytes(expect_input(0, BLASD_float64, SHAPE(2, 2)), (double[]){1, 2, 3, 4}, 32);
    send_a("{\"data\":[[true,false]]}");
    expect_bytes(expect_input(0, BLASD_float64, SHAPE(1, 2)), (double[]){1, 0}, 16);
    send_a("{\"dtype\":\"float64\",\"shape\":[],\"data\":7}");
    expect_bytes(expect_input(0, BLASD_float64, SCALAR), (double[]){7}, 8);
    send_a("{\"dtype\":\"float64\",\"shape\":[0,3],\"data\":[]}");
    expect_input(0, BLASD_float64, SHAPE(0, 3));
    send_a("{\"\\u0064type\":\"b\\u006fol\",\"data\":[true,0,1]}");
    expect_bytes(expect_input(0, BLASD_bool, SHAPE(3)), "\1\0\1", 3);
}

static void test_bad_objects(void **state) {
    (void)state;
    send_a("{\"shape\":[2,2],\"data\":[1,2,3]}");
    expect_failed(BLASD_E_invalid_tensor, "inputs.a", "(2, 2) has 4 elements, data has 3");
    send_a("{\"shape\":[4],\"data\":[[1,2],[3,4]]}");
    expect_failed(BLASD_E_invalid_tensor, "inputs.a", "(4,), but the lists of data make (2, 2)");
    send_a("{\"shape\":[2,-2],\"data\":[]}");
    expect_failed(BLASD_E_invalid_tensor, "inputs.a", "shape");
    send_a("{\"shape\":[2.5],\"data\":[]}");
    expect_failed(BLASD_E_invalid_tensor, "inputs.a", "shape");
    send_a("{\"shape\":3,\"data\":[]}");
    expect_failed(BLASD_E_invalid_tensor, "inputs.a", "shape");
    send_a("{\"shape\":[1,1,1,1,1,1,1,1,1],\"data\":[1]}");
    expect_failed(BLASD_E_invalid_tensor, "inputs.a", "more than 8");
    send_a("{\"shape\":[4294967296,4294967296,4294967296],\"data\":[1]}");
    expect_failed(BLASD_E_invalid_tensor, "inputs.a", "more elements than");
    send_a("{\"shape\":[99999999999999999999],\"data\":[1]}");
    expect_failed(BLASD_E_invalid_tensor, "inputs.a", "shape");
    send_a("{\"dtype\":\"float128\",\"data\":[1]}");
    expect_failed(BLASD_E_unsupported_dtype, "inputs.a", "'float128'");
    send_a("{\"dtype\":7,\"data\":[1]}");
    expect_failed(BLASD_E_invalid_tensor, "inputs.a", "no string");
    send_a("{\"dtype\":\"int8\",\"dtype\":\"int8\",\"data\":[1]}");
    expect_failed(BLASD_E_invalid_tensor, "inputs.a", "dtype twice");
    send_a("{\"data\":[1],\"data\":[1]}");
    expect_failed(BLASD_E_invalid_tensor, "inputs.a", "twice");
    send_a("{\"data\":[1],\"base64\":\"\"}");
    expect_failed(BLASD_E_invalid_tensor, "inputs.a", "twice");
    send_a("{\"dtype\":\"int8\"}");
    expect_failed(BLASD_E_invalid_tensor, "inputs.a", "neither data nor base64");
    send_a("{}");
    expect_failed(BLASD_E_invalid_tensor, "inputs.a", "empty");
    send_a("{\"strides\":[1],\"data\":[1]}");
    expect_failed(BLASD_E_unknown_field, "inputs.a.strides", "'strides'");
    send_a("{\"data\":[1],}");
    expect_failed(BLASD_E_malformed_json, "", "a name behind ','");
    send_a("{\"data\" [1]}");
    expect_failed(BLASD_E_malformed_json, "", "expected ':'");
    send_a("{\"data\":1 2,\"dtype\":\"float64\"}");
    expect_failed(BLASD_E_malformed_json, "", "column 37 (byte 37): expected ',' or '}'");
    send_a("{\"data\":1x}");
    expect_failed(BLASD_E_malformed_json, "", "expected ',' or '}'");
    send_a("{\"dtype\":\"float64\",\"data\":[true]}");
    expect_failed(BLASD_E_invalid_tensor, "inputs.a[0]", "only dtype bool");
}

static void test_integers(void **state) {
    (void)state;
    send_a(
        "{\"dtype\":\"int64\",\"data\":[9223372036854775807,-9223372036854775808,0,-0,2.0,1e3]}");
    expect_bytes(expect_input(0, BLASD_int64, SHAPE(6)),
                 (int64_t[]){INT64_MAX, INT64_MIN, 0, 0, 2, 1000}, 48);
    send_a("{\"dtype\":\"uint64\",\"data\":[18446744073709551615,9007199254740993]}");
    expect_bytes(expect_input(0, BLASD_uint64, SHAPE(2)),
                 (uint64_t[]){UINT64_MAX, UINT64_C(9007199254740993)}, 16);
    send_a("{\"dtype\":\"int8\",\"data\":[-128,127,-1]}");
    expect_bytes(expect_input(0, BLASD_int8, SHAPE(3)), (int8_t[]){-128, 127, -1}, 3);
    send_a("{\"dtype\":\"uint16\",\"data\":[65535,0]}");
    expect_bytes(expect_input(0, BLASD_uint16, SHAPE(2)), (uint16_t[]){65535, 0}, 4);
    send_a("{\"dtype\":\"int32\",\"data\":[-2147483648,2147483647]}");
    expect_bytes(expect_input(0, BLASD_int32, SHAPE(2)), (int32_t[]){INT32_MIN, INT32_MAX}, 8);
    send_a("{\"dtype\":\"int64\",\"data\":[9223372036854775808]}");
    expect_failed(BLASD_E_invalid_tensor, "inputs.a[0]", "beyond the range");
    send_a("{\"dtype\":\"int64\",\"data\":[-9223372036854775809]}");
    expect_failed(BLASD_E_invalid_tensor, "inputs.a[0]", "beyond the range");
    send_a("{\"dtype\":\"uint64\",\"data\":[18446744073709551616]}");
    expect_failed(BLASD_E_invalid_tensor, "inputs.a[0]", "beyond the range");
    send_a("{\"dtype\":\"uint8\",\"data\":[1,-1]}");
    expect_failed(BLASD_E_invalid_tensor, "inputs.a[1]", "-1: beyond the range");
    send_a("{\"dtype\":\"int8\",\"data\":[128]}");
    expect_failed(BLASD_E_invalid_tensor, "inputs.a[0]", "128: beyond the range");
    send_a("{\"dtype\":\"int8\",\"data\":[1.5]}");
    expect_failed(BLASD_E_invalid_tensor, "inputs.a[0]", "not a whole number");
    send_a("{\"dtype\":\"int64\",\"data\":[1e300]}");
    expect_failed(BLASD_E_invalid_tensor, "inputs.a[0]", "without a point or exponent");
    /* whose double is another whole number */
    send_a("{\"dtype\":\"int64\",\"data\":[9007199254740993.0]}");
    expect_failed(BLASD_E_invalid_tensor, "inputs.a[0]", "without a point or exponent");
    send_a("{\"dtype\":\"int64\",\"data\":[9007199254740991.0]}");
    expect_bytes(expect_input(0, BLASD_int64, SHAPE(1)), (int64_t[]){9007199254740991}, 8);
    send_a("{\"dtype\":\"bool\",\"data\":[2]}");
    expect_failed(BLASD_E_invalid_tensor, "inputs.a[0]", "beyond the range");
    send_a("{\"dtype\":\"int8\",\"data\":[true]}");
    expect_failed(BLASD_E_invalid_tensor, "inputs.a[0]", "only dtype bool");
    send_a("{\"dtype\":\"int8\",\"data\":[01]}");
    expect_failed(BLASD_E_malformed_json, "", "not a JSON number");
}

static void test_halves(void **state) {
    (void)state;
    /* ties to even, and doubles just beside a tie that a float in between would lose */
    send_a("{\"dtype\":\"float16\",\"data\":[1.00048828125,1.00146484375,1.0004882812500002,"
           "6.1e-5,5.96e-8,2.98e-8,2.9802322387695316e-8,65504,-2]}");
    expect_bytes(
        expect_input(0, BLASD_float16, SHAPE(9)),
        (uint16_t[]){0x3c00, 0x3c02, 0x3c01, 0x03ff, 0x0001, 0x0000, 0x0001, 0x7bff, 0xc000}, 18);
    send_a("{\"dtype\":\"bfloat16\",\"data\":[1,1.00390625,1.01171875,1.0039062500000002,3e38]}");
    expect_bytes(expect_input(0, BLASD_bfloat16, SHAPE(5)),
                 (uint16_t[]){0x3f80, 0x3f80, 0x3f82, 0x3f81, 0x7f62}, 10);
}

static void test_base64(void **state) {
    (void)state;
    send_a("{\"dtype\":\"float64\",\"shape\":[1],\"base64\":\"AAAAAAAA8D8=\"}");
    expect_bytes(expect_input(0, BLASD_float64, SHAPE(1)), (double[]){1}, 8);
    send_a("{\"base64\":\"AAAAAAAA8D8=\",\"shape\":[1],\"dtype\":\"float64\"}");
    expect_bytes(expect_input(0, BLASD_float64, SHAPE(1)), (double[]){1}, 8);
    send_a("{\"dtype\":\"uint8\",\"shape\":[3],\"base64\":\"+\\/8\\/\"}");
    expect_bytes(expect_input(0, BLASD_uint8, SHAPE(3)), (uint8_t[]){0xfb, 0xff, 0x3f}, 3);
    send_a("{\"dtype\":\"uint8\",\"shape\":[4],\"base64\":\"AQIDBA==\"}");
    expect_bytes(expect_input(0, BLASD_uint8, SHAPE(4)), (uint8_t[]){1, 2, 3, 4}, 4);
    send_a("{\"dtype\":\"uint8\",\"shape\":[0],\"base64\":\"\"}");
    expect_input(0, BLASD_uint8, SHAPE(0));
    send_a("{\"dtype\":\"float32\",\"shape\":[3],\"base64\":\"AACAPwAAgD8AAIB/\"}");
    expect_bytes(expect_input(0, BLASD_float32, SHAPE(3)), (float[]){1, 1, INFINITY}, 12);
    assert_int_equal(last.job.inputs[0].first_nonfinite, 2);
    send_a("{\"dtype\":\"uint8\",\"shape\":[4],\"base64\":\"AQIDBB==\"}");
    expect_failed(BLASD_E_invalid_tensor, "inputs.a", "ends wrongly");
    send_a("{\"dtype\":\"uint8\",\"shape\":[5],\"base64\":\"AQIDBA==\"}");
    expect_failed(BLASD_E_invalid_tensor, "inputs.a", "ends wrongly");
    send_a("{\"dtype\":\"uint8\",\"shape\":[7],\"base64\":\"AQIDBA==\"}");
    expect_failed(BLASD_E_invalid_tensor, "inputs.a", "12 letters");
    send_a("{\"dtype\":\"uint8\",\"shape\":[6],\"base64\":\"AQ==AQID\"}");
    expect_failed(BLASD_E_invalid_tensor, "inputs.a", "not of base64");
    send_a("{\"dtype\":\"uint8\",\"shape\":[6],\"base64\":\"A_IDAQID\"}");
    expect_failed(BLASD_E_invalid_tensor, "inputs.a", "not of base64");
    send_a("{\"dtype\":\"uint8\",\"shape\":[6],\"base64\":\"AQID\\u0041QID\"}");
    expect_failed(BLASD_E_invalid_tensor, "inputs.a", "");
    send_a("{\"dtype\":\"bool\",\"shape\":[3],\"base64\":\"AQIA\"}");
    expect_failed(BLASD_E_invalid_tensor, "inputs.a", "element 1 is the byte 2");
    send_a("{\"dtype\":\"uint8\",\"base64\":\"AQID\"}");
    expect_failed(BLASD_E_invalid_tensor, "inputs.a", "needs dtype and shape");
    send_a("{\"dtype\":\"uint8\",\"shape\":[1],\"base64\":7}");
    expect_failed(BLASD_E_invalid_tensor, "inputs.a", "no string");
    send_a("{\"dtype\":\"float64\",\"shape\":[1152921504606846975],\"base64\":\"AQID\"}");
    expect_failed(BLASD_E_invalid_tensor, "inputs.a", "");
}

/* Tensors larger than the buffer between text and sink, in base64 and as lists. */
static void test_large(void **state) {
    static const char letters[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const int rows = 97, columns = 211;
    char *text = malloc((size_t)rows * (size_t)columns * 32 + 64), *at = text;
    const double *got;
    const unsigned char *bytes;
    (void)state;
    *at++ = '[';
    for (int i = 0; i < rows; i++) {
        at += sprintf(at, "%s[", i == 0 ? "" : ",");
        for (int j = 0; j < columns; j++)
            at += sprintf(at, "%s%.17g",
                          j == 0       ? ""
                          : i % 2 == 0 ? ","
                                       : ", ",
                          (i * columns + j) / 7.0);
        *at++ = ']';
    }
    strcpy(at, "]");
    send_a(text);
    got = expect_input(0, BLASD_float64, SHAPE(rows, columns));
    assert_int_equal(last.memory.reserves, 1);
    for (int i = 0; i < rows * columns; i++) assert_true(got[i] == i / 7.0);
    at[-1] = ' '; /* the last row is not closed */
    send_a(text);
    expect_failed(BLASD_E_malformed_json, "", "");

    at = text + sprintf(text, "{\"dtype\":\"uint8\",\"shape\":[30000],\"base64\":\"");
    for (int i = 0; i < 40000; i++) *at++ = letters[i * 7 % 64];
    strcpy(at, "\"}");
    send_a(text);
    bytes = expect_input(0, BLASD_uint8, SHAPE(30000));
    for (int i = 0; i < 10000; i++) {
        unsigned v = 0;
        for (int k = 0; k < 4; k++) v = v << 6 | (unsigned)((i * 4 + k) * 7 % 64);
        assert_int_equal(bytes[3 * i], v >> 16);
        assert_int_equal(bytes[3 * i + 1], v >> 8 & 255);
        assert_int_equal(bytes[3 * i + 2], v & 255);
    }
    free(text);
}

static void test_many_empty_lists(void **state) {
    char *text = malloc(200000), *at = text;
    (void)state;
    *at++ = '[';
    for (int i = 0; i < 20000; i++) at += sprintf(at, "%s[]", i == 0 ? "" : ",");
    strcpy(at, "]");
    send_a(text);
    expect_input(0, BLASD_float64, SHAPE(20000, 0));
    /* more values than fit the buffer, then what cannot be */
    at = text;
    *at++ = '[';
    for (int i = 0; i < 5000; i++) at += sprintf(at, "1,");
    strcpy(at, "[],[] [] \"");
    send_a(text);
    expect_failed(BLASD_E_invalid_tensor, "inputs.a[5000]", "is a list");
    strcpy(at, "2 [] [] [] []]");
    send_a(text);
    expect_failed(BLASD_E_malformed_json, "", "expected ','");
    free(text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plain_lists),    cmocka_unit_test(test_references),
        cmocka_unit_test(test_bad_references), cmocka_unit_test(test_nonfinite),
        cmocka_unit_test(test_complex),        cmocka_unit_test(test_values),
        cmocka_unit_test(test_ragged),         cmocka_unit_test(test_objects),
        cmocka_unit_test(test_bad_objects),    cmocka_unit_test(test_integers),
        cmocka_unit_test(test_halves),         cmocka_unit_test(test_base64),
        cmocka_unit_test(test_large),          cmocka_unit_test(test_many_empty_lists),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
