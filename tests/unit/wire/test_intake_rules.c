/* Inputs that rules make, as JSON says them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "tests/unit/wire/intake_expect.h"

static void send_named(const char *name, const char *tensor) {
    char body[1024];
    int len = snprintf(body, sizeof body, "{\"op\":\"mix\",\"inputs\":{\"%s\":%s}}", name, tensor);
    send_options((struct blasd_intake_options){.content_type = "application/json"}, body,
                 (size_t)len);
}

/* Sends it as input `a` and makes it; `shape` ends with -1. */
static void expect_made(const char *tensor, enum blasd_dtype dtype, const int64_t *shape,
                        const void *want) {
    _Alignas(64) unsigned char made[256];
    const struct blasd_input *input = &last.job.inputs[0];
    struct blasd_tensor to;
    int rank = 0;
    send_named("a", tensor);
    expect_good();
    assert_int_equal(input->source.kind, BLASD_SOURCE_RULE);
    assert_int_equal(last.memory.len, 0); /* nothing travels */
    assert_int_equal(input->tensor.dtype, dtype);
    while (shape[rank] >= 0) rank++;
    assert_int_equal(input->tensor.rank, rank);
    for (int d = 0; d < rank; d++) assert_int_equal(input->tensor.shape[d], shape[d]);
    to = input->tensor;
    to.data = made;
    assert_true(blasd_tensor_bytes(&to) <= sizeof made);
    blasd_rule_fill(&input->source.rule, &to);
    assert_memory_equal(made, want, blasd_tensor_bytes(&to));
}

static void test_eye_and_full(void **state) {
    (void)state;
    expect_made("{\"eye\":2}", BLASD_float64, SHAPE(2, 2), (double[]){1, 0, 0, 1});
    expect_made("{\"dtype\":\"int8\",\"eye\":2}", BLASD_int8, SHAPE(2, 2), "\1\0\0\1");
    expect_made(" { \"eye\" : 0 } ", BLASD_float64, SHAPE(0, 0), "");
    expect_made("{\"full\":[2,1],\"value\":1.5}", BLASD_float64, SHAPE(2, 1), (double[]){1.5, 1.5});
    expect_made("{\"value\":true,\"full\":[]}", BLASD_float64, SCALAR, (double[]){1});
    expect_made("{\"value\":9007199254740993,\"full\":[1],\"dtype\":\"int64\"}", BLASD_int64,
                SHAPE(1), (int64_t[]){9007199254740993});
    expect_made("{\"value\":[1,-2],\"full\":[2],\"dtype\":\"complex64\"}", BLASD_complex64,
                SHAPE(2), (float[]){1, -2, 1, -2});
    expect_made("{\"value\":\"Infinity\",\"full\":[1]}", BLASD_float64, SHAPE(1),
                (double[]){INFINITY});
    assert_int_equal(last.job.inputs[0].first_nonfinite, 0);
    expect_made("{\"value\":\"NaN\",\"full\":[0]}", BLASD_float64, SHAPE(0), "");
    assert_int_equal(last.job.inputs[0].first_nonfinite, -1);
}

static void test_lines(void **state) {
    (void)state;
    expect_made("{\"arange\":[1,2.5,0.5]}", BLASD_float64, SHAPE(3), (double[]){1, 1.5, 2});
    expect_made("{\"arange\": [ 3 , 0 , -1 ] , \"dtype\":\"int16\"}", BLASD_int16, SHAPE(3),
                (int16_t[]){3, 2, 1});
    expect_made("{\"linspace\":[0,1,3]}", BLASD_float64, SHAPE(3), (double[]){0, 0.5, 1});
    expect_made("{\"dtype\":\"float32\",\"linspace\":[1,0,2]}", BLASD_float32, SHAPE(2),
                (float[]){1, 0});
}

static void test_random(void **state) {
    (void)state;
    expect_made("{\"random\":\"uniform\",\"seed\":7,\"shape\":[1,2]}", BLASD_float64, SHAPE(1, 2),
                (double[]){0x1.8013f3b9e8c0fp-1, 0x1.5edac821d3ab8p-4});
    expect_made("{\"shape\":[2],\"dtype\":\"float32\",\"seed\":7,\"random\":\"normal\"}",
                BLASD_float32, SHAPE(2), (float[]){0x1.31bb08p-12f, -0x1.3829cep-2f});
    send_named("a", "{\"random\":\"normal\",\"seed\":18446744073709551615,\"shape\":[]}");
    expect_good();
    assert_true(last.job.inputs[0].source.rule.seed == UINT64_MAX);
}

/* What the operation asks of elements is known of those that a rule will make. */
static void test_values(void **state) {
    (void)state;
    send_named("w", "{\"linspace\":[1,-1,5]}");
    expect_good();
    assert_int_equal(last.job.inputs[I_WEIGHT].first_negative, 3);
    send_named("w", "{\"full\":[3],\"value\":0}");
    expect_good();
    assert_true(last.job.inputs[I_WEIGHT].all_zero);
    send_named("s", "{\"eye\":2}");
    expect_good();
    assert_int_equal(last.job.inputs[I_SCALE].first_not_positive, 1);
    send_named("s", "{\"random\":\"uniform\",\"seed\":1,\"shape\":[1048577]}");
    expect_failed(BLASD_E_out_of_range, "inputs.s", "1048576 random ones");
}

static void refused(const char *tensor, const char *detail) {
    send_named("a", tensor);
    expect_failed(BLASD_E_invalid_tensor, "inputs.a", detail);
}

static void test_refused(void **state) {
    (void)state;
    refused("{\"eye\":-1}", "eye");
    refused("{\"eye\":1.5}", "eye");
    refused("{\"eye\":[2]}", "eye");
    refused("{\"eye\":2 3}", "eye");
    refused("{\"eye\":2x,\"dtype\":\"int8\"}", "eye");
    refused("{\"random\":\"uniform\",\"seed\":7 8,\"shape\":[2]}", "seed");
    send_named("a", "{\"full\":[2],\"value\":1 2}");
    expect_failed(BLASD_E_malformed_json, "", "expected ',' or '}'");
    refused("{\"eye\":9223372036854775807}", "");
    refused("{\"eye\":2,\"eye\":3}", "eye twice");
    refused("{\"eye\":2,\"arange\":[0,1,1]}", "both eye and arange");
    refused("{\"eye\":2,\"data\":[1]}", "both data and a rule");
    refused("{\"base64\":\"\",\"eye\":2}", "both data and a rule");
    refused("{\"eye\":2,\"seed\":1}", "a seed, which only random has");
    refused("{\"eye\":2,\"shape\":[2,2]}", "a shape and eye");
    refused("{\"eye\":2,\"value\":2}", "a value, which only full has");
    refused("{\"full\":[2]}", "needs value");
    refused("{\"value\":2}", "a value, which only full has");
    refused("{\"full\":2,\"value\":2}", "list of integers");
    refused("{\"full\":[-2],\"value\":2}", "list of integers");
    refused("{\"full\":[2],\"value\":[2]}", "one number");
    refused("{\"full\":[2],\"value\":[1,2]}", "one number");
    refused("{\"full\":[4294967296,4294967296],\"value\":1}", "");
    refused("{\"arange\":[1,2]}", "three numbers");
    refused("{\"arange\":[1,2,3,4]}", "three numbers");
    refused("{\"arange\":5}", "three numbers");
    refused("{\"arange\":[0,1e999,1]}", "three numbers");
    refused("{\"arange\":[0,\"NaN\",1]}", "three numbers");
    refused("{\"arange\":[0,1,0]}", "the step of arange is 0");
    refused("{\"linspace\":[0,1,2.5]}", "number of elements");
    refused("{\"linspace\":[0,1,-2]}", "number of elements");
    refused("{\"random\":\"poisson\",\"seed\":1,\"shape\":[1]}", "not \"poisson\"");
    refused("{\"random\":1,\"seed\":1,\"shape\":[1]}", "\"uniform\" or \"normal\"");
    refused("{\"random\":\"normal\",\"shape\":[1]}", "a seed");
    refused("{\"random\":\"normal\",\"seed\":-1,\"shape\":[1]}", "a seed");
    refused("{\"random\":\"normal\",\"seed\":18446744073709551616,\"shape\":[1]}", "a seed");
    refused("{\"random\":\"normal\",\"seed\":1}", "a shape");
    send_named("a", "{\"random\":\"normal\",\"seed\":1,\"shape\":[1],\"dtype\":\"int8\"}");
    expect_failed(BLASD_E_unsupported_dtype, "inputs.a", "not int8");
    send_named("a", "{\"full\":[1],\"value\":300,\"dtype\":\"int8\"}");
    expect_failed(BLASD_E_invalid_tensor, "inputs.a", "");
    send_named("a", "{\"ones\":[1]}");
    expect_failed(BLASD_E_unknown_field, "inputs.a.ones", "arange or linspace");
    send_named("a", "{\"eye\":}");
    expect_failed(BLASD_E_malformed_json, "", "");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_eye_and_full), cmocka_unit_test(test_lines),
        cmocka_unit_test(test_random),       cmocka_unit_test(test_values),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
