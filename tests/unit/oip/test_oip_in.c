/* Inference requests become jobs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "tests/unit/oip/oip_support.h"
#include "tests/unit/wire/intake_expect.h"

static struct blasd_oip asked; /* of the body that was sent last */

/* Sends JSON and what follows it, whole and in pieces; the outcome is in `last` and `asked`. */
static void infer(const char *json, const void *tail, size_t tail_len) {
    size_t json_len = strlen(json);
    int64_t header = tail == NULL ? -1 : (int64_t)json_len;
    char *body = malloc(json_len + tail_len + 1);
    assert_non_null(body);
    memcpy(body, json, json_len);
    if (tail_len > 0) memcpy(body + json_len, tail, tail_len);
    blasd_oip_release(&asked);
    outcome_release(&last);
    send_inference(&limits_now, body, json_len + tail_len, header, WHOLE, &asked, &last);
    for (uint64_t split = BYTE_BY_BYTE; split < 5; split++) {
        struct blasd_oip oip;
        struct outcome other;
        send_inference(&limits_now, body, json_len + tail_len, header, split, &oip, &other);
        assert_true(same_outcome(&last, &other));
        blasd_oip_release(&oip);
        outcome_release(&other);
    }
    free(body);
}

static void expect_doubles(int input, const int64_t *shape, const double *wanted, size_t count) {
    expect_bytes(expect_input(input, BLASD_float64, shape), wanted, count * sizeof *wanted);
}

#define A_2X2 "{\"name\":\"a\",\"shape\":[2,2],\"datatype\":\"FP64\",\"data\":[1,2,3,4]}"

static void test_json(void **state) {
    (void)state;
    infer("{\"id\":\"x\\u00e9\",\"inputs\":[" A_2X2
          ",{\"data\":[[1],[2]],\"datatype\":\"FP64\",\"shape\":[2,1],\"name\":\"b\"}]}",
          NULL, 0);
    expect_doubles(I_A, SHAPE(2, 2), (const double[]){1, 2, 3, 4}, 4);
    expect_doubles(I_B, SHAPE(2, 1), (const double[]){1, 2}, 2);
    assert_ptr_equal(last.job.op, &mix_op);
    assert_string_equal(asked.id, "x\xc3\xa9");
    assert_int_equal(last.job.deadline_ms, OIP_WAIT_MS);
    assert_int_equal(asked.output_count, 0);
    assert_false(asked.binary_outputs);
}

/* KServe's client says the model in the body, too. */
static void test_the_model_is_named_again(void **state) {
    (void)state;
    infer("{\"id\":\"7\",\"model_name\":\"mix\",\"inputs\":[" A_2X2 "]}", NULL, 0);
    expect_good();
    assert_ptr_equal(last.job.op, &mix_op);
}

/* A number that no int64 holds, anywhere in the request, changes none of the others. */
static void test_beyond_int64(void **state) {
    static const char *const beyond[] = {"18446744073709551616", "99999999999999999999999",
                                         "1e300"};
    (void)state;
    for (size_t i = 0; i < sizeof beyond / sizeof *beyond; i++) {
        char json[512];
        snprintf(json, sizeof json, "{\"parameters\":{\"timeout\":%s},\"inputs\":[" A_2X2 "]}",
                 beyond[i]);
        infer(json, NULL, 0);
        expect_failed(BLASD_E_invalid_field, "parameters.timeout", "whole number");
        snprintf(json, sizeof json,
                 "{\"parameters\":{\"free\":%s},\"inputs\":[" A_2X2
                 ",{\"name\":\"b\",\"shape\":[2],\"datatype\":\"FP64\",\"data\":[7,8]},"
                 "{\"name\":\"V\",\"shape\":[],\"datatype\":\"FP64\",\"data\":[9]}]}",
                 beyond[i]);
        infer(json, NULL, 0);
        expect_doubles(I_A, SHAPE(2, 2), (const double[]){1, 2, 3, 4}, 4);
        expect_doubles(I_B, SHAPE(2), (const double[]){7, 8}, 2);
        expect_doubles(I_V, SCALAR, (const double[]){9}, 1);
    }
}

static void test_datatypes(void **state) {
    static const struct {
        const char *name;
        enum blasd_dtype dtype;
        const char *data;
    } rows[] = {{"FP64", BLASD_float64, "[1]"},  {"FP32", BLASD_float32, "[1]"},
                {"FP16", BLASD_float16, "[1]"},  {"BF16", BLASD_bfloat16, "[1]"},
                {"INT64", BLASD_int64, "[-1]"},  {"INT32", BLASD_int32, "[-1]"},
                {"INT16", BLASD_int16, "[-1]"},  {"INT8", BLASD_int8, "[-1]"},
                {"UINT64", BLASD_uint64, "[1]"}, {"UINT32", BLASD_uint32, "[1]"},
                {"UINT16", BLASD_uint16, "[1]"}, {"UINT8", BLASD_uint8, "[255]"},
                {"BOOL", BLASD_bool, "[true]"}};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char json[256];
        snprintf(json, sizeof json,
                 "{\"inputs\":[{\"name\":\"a\",\"shape\":[1],\"datatype\":\"%s\",\"data\":%s}]}",
                 rows[i].name, rows[i].data);
        infer(json, NULL, 0);
        expect_input(I_A, rows[i].dtype, SHAPE(1));
    }
}

static void test_binary(void **state) {
    static const double tail[] = {5, 6, 7};
    static const char json[] =
        "{\"inputs\":[{\"name\":\"b\",\"shape\":[1],\"datatype\":\"FP64\","
        "\"parameters\":{\"binary_data_size\":8}}," A_2X2
        ",{\"name\":\"V\",\"shape\":[2],\"datatype\":\"FP64\","
        "\"parameters\":{\"binary_data_size\":16}},{\"name\":\"w\",\"shape\":[0,3],"
        "\"datatype\":\"FP32\",\"parameters\":{\"binary_data_size\":0}}]}";
    (void)state;
    infer(json, tail, sizeof tail);
    expect_doubles(I_B, SHAPE(1), tail, 1);
    expect_doubles(I_V, SHAPE(2), tail + 1, 2);
    expect_doubles(I_A, SHAPE(2, 2), (const double[]){1, 2, 3, 4}, 4);
    expect_input(I_WEIGHT, BLASD_float32, SHAPE(0, 3));
    /* KServe's client has no bytes to send of an empty tensor, and sends null */
    infer("{\"inputs\":[{\"name\":\"w\",\"shape\":[0,3],\"datatype\":\"FP32\",\"data\":null,"
          "\"parameters\":{\"binary_data_size\":0}}," A_2X2 "]}",
          NULL, 0);
    expect_input(I_WEIGHT, BLASD_float32, SHAPE(0, 3));
    expect_doubles(I_A, SHAPE(2, 2), (const double[]){1, 2, 3, 4}, 4);
}

static void test_parameters(void **state) {
    (void)state;
    infer("{\"parameters\":{\"k\":7,\"transpose_a\":true,\"mode\":\"tf32\",\"priority\":1,"
          "\"timeout\":1500,\"device\":\"cpu\",\"binary_data_output\":true},\"inputs\":[" A_2X2 "],"
          "\"outputs\":[{\"name\":\"w\"},{\"name\":\"s\",\"parameters\":{\"binary_data\":false}}]}",
          NULL, 0);
    /* the outputs of `mix` have no name to ask for */
    expect_failed(BLASD_E_invalid_field, "outputs.w", "has no output");
    infer("{\"parameters\":{\"k\":7,\"transpose_a\":true,\"mode\":\"tf32\",\"priority\":1,"
          "\"timeout\":1500,\"device\":\"cpu\",\"binary_data_output\":true},\"inputs\":[" A_2X2
          "]}",
          NULL, 0);
    expect_good();
    assert_int_equal(last.job.params[P_K].i, 7);
    assert_true(last.job.params[P_TRANSPOSE_A].b);
    assert_int_equal(last.job.params[P_MODE].choice, 1);
    assert_int_equal(last.job.priority, BLASD_PRIORITY_HIGH);
    assert_int_equal(last.job.device, BLASD_DEVICE_CPU);
    assert_int_equal(last.job.deadline_ms, 2);
    assert_true(asked.binary_outputs);
}

static void test_priorities(void **state) {
    static const struct {
        const char *text;
        enum blasd_priority priority;
    } rows[] = {{"0", BLASD_PRIORITY_NORMAL},       {"1", BLASD_PRIORITY_HIGH},
                {"2", BLASD_PRIORITY_NORMAL},       {"3", BLASD_PRIORITY_LOW},
                {"4294967296", BLASD_PRIORITY_LOW}, {"\"low\"", BLASD_PRIORITY_LOW}};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char json[256];
        snprintf(json, sizeof json, "{\"parameters\":{\"priority\":%s},\"inputs\":[" A_2X2 "]}",
                 rows[i].text);
        infer(json, NULL, 0);
        expect_good();
        assert_int_equal(last.job.priority, rows[i].priority);
    }
}

/* One input with members of its own. */
static void infer_a(const char *members) {
    char json[512];
    snprintf(json, sizeof json, "{\"inputs\":[{\"name\":\"a\",%s}]}", members);
    infer(json, NULL, 0);
}

static void test_bad_tensors(void **state) {
    (void)state;
    infer_a("\"shape\":[2],\"datatype\":\"FP64\",\"data\":[1,2,3]");
    expect_failed(BLASD_E_invalid_tensor, "inputs.a", "shape (2,) has 2 elements, data has 3");
    infer_a("\"shape\":[2,1],\"datatype\":\"FP64\",\"data\":[[1,2]]");
    expect_failed(BLASD_E_invalid_tensor, "inputs.a", "the lists of data make (1, 2)");
    infer_a("\"shape\":[1],\"datatype\":\"BYTES\",\"data\":[\"x\"]");
    expect_failed(BLASD_E_unsupported_dtype, "inputs.a", "'BYTES' is not taken");
    infer_a("\"shape\":[1],\"datatype\":7,\"data\":[1]");
    expect_failed(BLASD_E_invalid_tensor, "inputs.a", "no datatype");
    infer_a("\"shape\":[1.5],\"datatype\":\"FP64\",\"data\":[1]");
    expect_failed(BLASD_E_invalid_tensor, "inputs.a", "a shape that is not a list of integers");
    infer_a("\"shape\":[4611686018427387904,4],\"datatype\":\"FP64\",\"data\":[1]");
    expect_failed(BLASD_E_invalid_tensor, "inputs.a", "more elements than can be addressed");
    infer_a("\"shape\":[1],\"datatype\":\"FP64\"");
    expect_failed(BLASD_E_invalid_tensor, "inputs.a", "no data");
    infer("{\"inputs\":[{\"name\":\"a\",\"shape\":[0],\"datatype\":\"FP64\",\"data\":null}]}", NULL,
          0);
    expect_failed(BLASD_E_invalid_tensor, "inputs.a", "no data");
    infer_a("\"shape\":[0],\"datatype\":\"FP64\",\"data\":nullx,"
            "\"parameters\":{\"binary_data_size\":0}");
    expect_failed(BLASD_E_malformed_json, "", "expected ',' or '}'");
    infer_a("\"shape\":[1],\"datatype\":\"FP64\",\"data\":[1],"
            "\"parameters\":{\"binary_data_size\":8}");
    expect_failed(BLASD_E_invalid_tensor, "inputs.a", "its data twice");
    infer_a("\"shape\":[1],\"datatype\":\"FP64\",\"parameters\":{\"binary_data_size\":8}");
    expect_failed(BLASD_E_invalid_tensor, "inputs.a", "no header");
    infer_a("\"shape\":[1],\"datatype\":\"FP64\",\"data\":[1],\"dtype\":\"x\"");
    expect_failed(BLASD_E_unknown_field, "inputs.a.dtype", "has no member 'dtype'");
    infer_a("\"shape\":[1],\"datatype\":\"FP64\",\"parameters\":{\"shared_memory_region\":\"r\","
            "\"shared_memory_byte_size\":9}");
    expect_failed(BLASD_E_invalid_field, "inputs.a", "regions of shared memory are not taken");
    infer_a("\"shape\":[2],\"datatype\":\"FP64\",\"data\":[1,2] 3");
    expect_failed(BLASD_E_malformed_json, "", "expected ',' or '}'");
    infer("{\"inputs\":[" A_2X2 "," A_2X2 "]}", NULL, 0);
    expect_failed(BLASD_E_invalid_field, "inputs.a", "given twice");
    infer("{\"inputs\":[{\"name\":\"q\",\"shape\":[1],\"datatype\":\"FP64\",\"data\":[1]}]}", NULL,
          0);
    expect_failed(BLASD_E_unknown_input, "inputs.q", "has no input 'q'");
}

static void test_bad_requests(void **state) {
    (void)state;
    infer("", NULL, 0);
    expect_failed(BLASD_E_malformed_json, "", "empty");
    infer("[]", NULL, 0);
    expect_failed(BLASD_E_malformed_json, "", "expected '{'");
    infer("{\"inputs\":[" A_2X2 "]} x", NULL, 0);
    expect_failed(BLASD_E_malformed_json, "", "something follows");
    infer("{\"inputs\":[" A_2X2 "],\"inputs\":[]}", NULL, 0);
    expect_failed(BLASD_E_malformed_json, "", "duplicate");
    infer("{\"inputs\":{}}", NULL, 0);
    expect_failed(BLASD_E_invalid_field, "inputs", "must be a list");
    infer("{}", NULL, 0);
    expect_failed(BLASD_E_invalid_field, "inputs", "must be a list");
    infer("{\"inputs\":[7]}", NULL, 0);
    expect_failed(BLASD_E_malformed_json, "", "an input is an object");
    infer("{\"inputs\":[" A_2X2 "],\"extra\":1}", NULL, 0);
    expect_failed(BLASD_E_unknown_field, "extra", "no member 'extra'");
    infer("{\"id\":7,\"inputs\":[" A_2X2 "]}", NULL, 0);
    expect_failed(BLASD_E_invalid_field, "id", "a string");
    infer("{\"model_name\":\"other\",\"inputs\":[" A_2X2 "]}", NULL, 0);
    expect_failed(BLASD_E_invalid_field, "model_name", "the path names the model mix");
    infer("{\"model_name\":null,\"inputs\":[" A_2X2 "]}", NULL, 0);
    expect_failed(BLASD_E_invalid_field, "model_name", "the path names the model mix");
    infer("{\"parameters\":{\"K\":7},\"inputs\":[" A_2X2 "]}", NULL, 0);
    expect_failed(BLASD_E_unknown_parameter, "params.K", "did you mean 'k'");
    infer("{\"parameters\":{\"k\":0},\"inputs\":[" A_2X2 "]}", NULL, 0);
    expect_failed(BLASD_E_invalid_parameter, "params.k", "at least 1");
    infer("{\"parameters\":{\"sequence_id\":3},\"inputs\":[" A_2X2 "]}", NULL, 0);
    expect_failed(BLASD_E_invalid_field, "parameters", "sequence_id");
    infer("{\"parameters\":{\"timeout\":-1},\"inputs\":[" A_2X2 "]}", NULL, 0);
    expect_failed(BLASD_E_invalid_field, "parameters.timeout", "microseconds");
    infer("{\"inputs\":[" A_2X2 "],\"outputs\":[{\"name\":\"c\",\"parameters\":3}]}", NULL, 0);
    expect_failed(BLASD_E_invalid_field, "outputs.c", "has no output");
}

static void test_bad_tails(void **state) {
    static const char one[] = "{\"inputs\":[{\"name\":\"a\",\"shape\":[1],\"datatype\":\"FP64\","
                              "\"parameters\":{\"binary_data_size\":8}}]}";
    static const double tail[] = {1, 2};
    (void)state;
    infer(one, tail, 16);
    expect_failed(BLASD_E_invalid_tensor, "inputs", "the body has");
    infer(one, tail, 7);
    expect_failed(BLASD_E_invalid_tensor, "inputs", "the body has");
    infer("{\"inputs\":[{\"name\":\"a\",\"shape\":[1],\"datatype\":\"FP64\","
          "\"parameters\":{\"binary_data_size\":4}}]}",
          tail, 4);
    expect_failed(BLASD_E_invalid_tensor, "inputs.a", "its binary_data_size 4");
}

static void test_limits(void **state) {
    char json[6000] = "{\"inputs\":[" A_2X2 "],\"id\":\"";
    size_t len = strlen(json);
    (void)state;
    memset(json + len, 'x', 5000);
    strcpy(json + len + 5000, "\"}");
    limits_now.envelope_bytes = 4096;
    infer(json, NULL, 0);
    expect_failed(BLASD_E_body_too_large, "", "limit envelope_bytes");
    assert_null(asked.id); /* which was never copied */
    limits_now.envelope_bytes = 262144;
    limits_now.json_bytes = 4000;
    infer(json, NULL, 0);
    expect_failed(BLASD_E_body_too_large, "", "limit json_bytes");
}

static int end(void **state) {
    blasd_oip_release(&asked);
    return teardown(state);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_json, setup, end),
        cmocka_unit_test_setup_teardown(test_the_model_is_named_again, setup, end),
        cmocka_unit_test_setup_teardown(test_beyond_int64, setup, end),
        cmocka_unit_test_setup_teardown(test_datatypes, setup, end),
        cmocka_unit_test_setup_teardown(test_binary, setup, end),
        cmocka_unit_test_setup_teardown(test_parameters, setup, end),
        cmocka_unit_test_setup_teardown(test_priorities, setup, end),
        cmocka_unit_test_setup_teardown(test_bad_tensors, setup, end),
        cmocka_unit_test_setup_teardown(test_bad_requests, setup, end),
        cmocka_unit_test_setup_teardown(test_bad_tails, setup, end),
        cmocka_unit_test_setup_teardown(test_limits, setup, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
