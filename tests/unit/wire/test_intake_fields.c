/* What a request says beside its tensors: operation, parameters, priority, deadline, device. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "tests/unit/wire/intake_expect.h"

static void send_params(const char *params) {
    char body[512];
    snprintf(body, sizeof body, "{\"op\":\"mix\",\"params\":{%s}}", params);
    send_json(body);
}

static void test_defaults(void **state) {
    (void)state;
    send_json("{\"op\":\"mix\"}");
    expect_good();
    assert_ptr_equal(last.job.op, &mix_op);
    assert_int_equal(last.job.priority, BLASD_PRIORITY_NORMAL);
    assert_int_equal(last.job.device, BLASD_DEVICE_ANY);
    assert_int_equal(last.job.deadline_ms, 0);
    assert_false(last.job.params[P_K].given);
    assert_int_equal(last.job.params[P_K].i, 5);
    assert_true(last.job.params[P_ALPHA].f == 0.25);
}

static void test_members(void **state) {
    (void)state;
    send_json("{\"device\":\"cuda\",\"priority\":\"high\",\"deadline_ms\":1500,\"op\":\"plain\"}");
    expect_good();
    assert_ptr_equal(last.job.op, &plain_op);
    assert_int_equal(last.job.priority, BLASD_PRIORITY_HIGH);
    assert_int_equal(last.job.device, BLASD_DEVICE_CUDA);
    assert_int_equal(last.job.deadline_ms, 1500);
    send_json("{\"device\":\"auto\",\"priority\":\"low\",\"deadline_ms\":2e3,\"op\":\"plain\"}");
    expect_good();
    assert_int_equal(last.job.priority, BLASD_PRIORITY_LOW);
    assert_int_equal(last.job.device, BLASD_DEVICE_ANY);
    assert_int_equal(last.job.deadline_ms, 2000);
}

static void test_labels(void **state) {
    (void)state;
    send_json("{\"op\":\"plain\"}");
    expect_good();
    assert_string_equal(blasd_job_labels(&last.job), "");
    send_json("{\"op\":\"plain\",\"labels\":{\"run\":\"7\",\"project\":\"thesis\"}}");
    expect_good();
    assert_string_equal(blasd_job_labels(&last.job), "project=thesis,run=7");
    send_options((struct blasd_intake_options){.content_type = "application/json",
                                               .labels = "run=7,project=thesis"},
                 "{\"op\":\"plain\"}", 14);
    expect_good();
    assert_string_equal(blasd_job_labels(&last.job), "project=thesis,run=7");
    send_json("{\"op\":\"plain\",\"labels\":{}}");
    expect_good();
    send_json("{\"op\":\"plain\",\"labels\":[\"run=7\"]}");
    expect_failed(BLASD_E_invalid_field, "labels", "an object of strings");
    send_json("{\"op\":\"plain\",\"labels\":\"run=7\"}");
    expect_failed(BLASD_E_invalid_field, "labels", "an object of strings");
    send_json("{\"op\":\"plain\",\"labels\":{\"run\":7}}");
    expect_failed(BLASD_E_invalid_field, "labels", "must be a string");
    send_json("{\"op\":\"plain\",\"labels\":{\"run\":\"a,b\"}}");
    expect_failed(BLASD_E_invalid_field, "labels", "'run'");
    send_json("{\"op\":\"plain\",\"labels\":{\"run\":\"a\\u0000\"}}");
    expect_failed(BLASD_E_malformed_json, "", "");
    send_json("{\"op\":\"plain\",\"labels\":{},\"labels\":{}}");
    expect_failed(BLASD_E_malformed_json, "", "duplicate");
}

/* The operation alone is read in another way than beside other members. */
static void test_op_alone(void **state) {
    static const char *const bodies[] = {
        "{\"op\":\"plain\"}",
        " { \"op\" : \"plain\" } ",
        "{\"op\":\"pl\\u0061in\"}",
        "{\"\\u006fp\":\"plain\"}",
        "{\"inputs\":{},\"op\":\"plain\"}",
        "{\"op\":\"plain\",\"inputs\":{}}",
        "{\"op\":\"plain\",\"params\":{}}",
        "{\"params\":{},\"inputs\":{},\"op\":\"plain\"}",
    };
    (void)state;
    for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++) {
        send_json(bodies[i]);
        expect_good();
        assert_ptr_equal(last.job.op, &plain_op);
    }
    send_json("{\"op\":\"plain\\\"\"}");
    expect_failed(BLASD_E_unknown_operation, "op", "is not among mix, plain");
    send_json("{\"op\":\"\"}");
    expect_failed(BLASD_E_unknown_operation, "op", "'' is not among mix, plain");
    send_json("{\"op\":\"plain\",\"\":1}");
    expect_failed(BLASD_E_unknown_field, "", "a job has no member ''");
    send_json("{\"op\":\"plain\",\"\\u006fp\":\"plain\"}");
    expect_failed(BLASD_E_malformed_json, "", "duplicate");
}

static void test_bad_members(void **state) {
    (void)state;
    send_json("{}");
    expect_failed(BLASD_E_missing_field, "op",
                  "op is missing: say which operation to run, one of "
                  "mix, plain");
    send_json("{\"op\":\"mux\"}");
    expect_failed(BLASD_E_unknown_operation, "op", "'mux' is not among mix, plain");
    send_json("{\"op\":\"mix\\u0001\"}");
    expect_failed(BLASD_E_unknown_operation, "op", "'mix?'");
    send_json("{\"op\":7}");
    expect_failed(BLASD_E_invalid_field, "op", "op must be a string");
    send_json("{\"op\":\"mix\",\"priority\":\"urgent\"}");
    expect_failed(BLASD_E_invalid_field, "priority",
                  "\"high\", \"normal\" or \"low\", not "
                  "\"urgent\"");
    send_json("{\"op\":\"mix\",\"priority\":1}");
    expect_failed(BLASD_E_invalid_field, "priority", "string");
    send_json("{\"op\":\"mix\",\"device\":\"any\"}");
    expect_failed(BLASD_E_invalid_field, "device", "\"auto\", \"cpu\" or \"cuda\"");
    send_json("{\"op\":\"mix\",\"deadline_ms\":0}");
    expect_failed(BLASD_E_invalid_field, "deadline_ms", "from 1 to 86400000");
    send_json("{\"op\":\"mix\",\"deadline_ms\":-5}");
    expect_failed(BLASD_E_invalid_field, "deadline_ms", "from 1 to");
    send_json("{\"op\":\"mix\",\"deadline_ms\":86400001}");
    expect_failed(BLASD_E_invalid_field, "deadline_ms", "limit deadline_ms");
    send_json("{\"op\":\"mix\",\"deadline_ms\":1.5}");
    expect_failed(BLASD_E_invalid_field, "deadline_ms", "whole number");
    send_json("{\"op\":\"mix\",\"deadline_ms\":\"15\"}");
    expect_failed(BLASD_E_invalid_field, "deadline_ms", "whole number");
    send_json("{\"op\":\"mix\",\"deadline_ms\":null}");
    expect_failed(BLASD_E_invalid_field, "deadline_ms", "whole number");
    send_json("{\"op\":\"mix\",\"params\":[1]}");
    expect_failed(BLASD_E_invalid_field, "params", "object");
    send_json("{\"op\":\"plain\",\"put\":{\"c\":\"http://a/\"}}");
    expect_failed(BLASD_E_feature_removed, "put", "GET /jobs/ID/outputs/NAME");
    send_json("{\"op\":\"plain\",\"put\":3}");
    expect_failed(BLASD_E_feature_removed, "put", "webhook");
    send_json("{\"op\":\"mix\",\"prams\":{}}");
    expect_failed(BLASD_E_unknown_field, "prams", "did you mean 'params'?");
    send_json("{\"op\":\"mix\",\"input\":{}}");
    expect_failed(BLASD_E_unknown_field, "input", "did you mean 'inputs'?");
    send_json("{\"op\":\"mix\",\"webhook\":\"http://x\"}");
    expect_failed(BLASD_E_unknown_field, "webhook", "it has op, inputs, params");
    send_json("{\"op\":\"mix\",\"params.k\":1}");
    expect_failed(BLASD_E_unknown_field, "params.k", "");
    send_json("{\"op\":\"mix\",\"\":1}");
    expect_failed(BLASD_E_unknown_field, "", "");
}

static void test_params(void **state) {
    (void)state;
    send_params("\"k\":7,\"alpha\":2,\"transpose_a\":true,\"mode\":\"bf16\",\"p\":\"Infinity\"");
    expect_good();
    assert_true(last.job.params[P_K].given);
    assert_int_equal(last.job.params[P_K].i, 7);
    assert_true(last.job.params[P_ALPHA].f == 2.0);
    assert_true(last.job.params[P_TRANSPOSE_A].b);
    assert_int_equal(last.job.params[P_MODE].choice, 2);
    assert_true(last.job.params[P_P].f == (double)INFINITY);
    assert_false(last.job.params[P_FREE].given);
    send_params("\"k\":1000.0,\"alpha\":1e-3,\"transpose_a\":false,\"free\":\"NaN\"");
    expect_good();
    assert_int_equal(last.job.params[P_K].i, 1000);
    assert_true(last.job.params[P_ALPHA].f == 1e-3);
    assert_true(isnan(last.job.params[P_FREE].f));
    send_params("\"free\":-18446744073709551616,\"k\":7");
    expect_good();
    assert_true(last.job.params[P_FREE].f == -0x1p64);
    assert_int_equal(last.job.params[P_K].i, 7);
}

static void expect_bad_param(const char *params, const char *field, const char *detail) {
    send_params(params);
    expect_failed(BLASD_E_invalid_parameter, field, detail);
}

static void test_bad_params(void **state) {
    (void)state;
    expect_bad_param("\"k\":0", "params.k",
                     "k must be a whole number of at least 1 and at most 1000, not 0");
    expect_bad_param("\"k\":1001", "params.k", "not 1001");
    expect_bad_param("\"k\":1.5", "params.k", "not 1.5");
    expect_bad_param("\"k\":1e300", "params.k", "not 1e300");
    expect_bad_param("\"k\":18446744073709551616", "params.k", "not 18446744073709551616");
    expect_bad_param("\"k\":-9223372036854775809", "params.k", "not -9223372036854775809");
    expect_bad_param("\"transpose_a\":9223372036854775808", "params.transpose_a", "true or false");
    expect_bad_param("\"k\":\"7\"", "params.k", "not \"7\"");
    expect_bad_param("\"k\":true", "params.k", "not true");
    expect_bad_param("\"k\":null", "params.k", "null (leave it out");
    expect_bad_param("\"alpha\":0", "params.alpha",
                     "a number greater than 0 and at most 10, not 0");
    expect_bad_param("\"alpha\":10.5", "params.alpha", "not 10.5");
    expect_bad_param("\"alpha\":\"NaN\"", "params.alpha", "not \"NaN\"");
    expect_bad_param("\"alpha\":\"Infinity\"", "params.alpha", "not \"Infinity\"");
    expect_bad_param("\"alpha\":[1]", "params.alpha", "not a list");
    expect_bad_param("\"alpha\":{}", "params.alpha", "not an object");
    expect_bad_param("\"p\":0.5", "params.p", "a number of at least 1, not 0.5");
    expect_bad_param("\"p\":\"-Infinity\"", "params.p", "at least 1");
    expect_bad_param("\"p\":\"NaN\"", "params.p", "at least 1");
    expect_bad_param("\"free\":\"one\"", "params.free", "must be a number, not \"one\"");
    expect_bad_param("\"transpose_a\":2", "params.transpose_a", "true or false, not 2");
    expect_bad_param("\"mode\":\"tf\"", "params.mode",
                     "\"native\", \"tf32\" or \"bf16\", not \"tf\"");
    expect_bad_param("\"mode\":0", "params.mode", "not 0");
    send_params("\"aplha\":1");
    expect_failed(BLASD_E_unknown_parameter, "params.aplha", "did you mean 'alpha'?");
    send_params("\"transposea\":1");
    expect_failed(BLASD_E_unknown_parameter, "params.transposea", "did you mean 'transpose_a'?");
    send_params("\"zebra\":1");
    expect_failed(BLASD_E_unknown_parameter, "params.zebra",
                  "it has transpose_a, k, alpha, p, free, mode");
    send_params("\"k\":1,\"k\":2");
    expect_failed(BLASD_E_malformed_json, "", "duplicate");
}

static void test_query(void **state) {
    struct blasd_intake_options options = {.content_type = "application/json; charset=utf-8",
                                           .op = "mix",
                                           .params = "{\"k\":9}",
                                           .priority = "low",
                                           .deadline_ms = "250",
                                           .device = "cpu"};
    (void)state;
    send_options(options, "{}", 2);
    expect_good();
    assert_ptr_equal(last.job.op, &mix_op);
    assert_int_equal(last.job.params[P_K].i, 9);
    assert_int_equal(last.job.priority, BLASD_PRIORITY_LOW);
    assert_int_equal(last.job.device, BLASD_DEVICE_CPU);
    assert_int_equal(last.job.deadline_ms, 250);
    send_options(options, "{\"op\":\"mix\"}", 12);
    expect_failed(BLASD_E_invalid_field, "op",
                  "op is given twice, in the URL's query and in the "
                  "body");
    send_options(options, "{\"params\":{}}", 13);
    expect_failed(BLASD_E_invalid_field, "params", "given twice");
    send_options(options, "{\"deadline_ms\":1}", 17);
    expect_failed(BLASD_E_invalid_field, "deadline_ms", "given twice");
    options.params = "{";
    send_options(options, "{}", 2);
    expect_failed(BLASD_E_malformed_query, "params", "not valid JSON");
    options.params = "[]";
    send_options(options, "{}", 2);
    expect_failed(BLASD_E_invalid_field, "params", "object");
    options.params = NULL;
    options.deadline_ms = "soon";
    send_options(options, "{}", 2);
    expect_failed(BLASD_E_invalid_field, "deadline_ms", "whole number");
    options.deadline_ms = NULL;
    options.results = "w,\xff"; /* no name is left out in silence */
    send_options(options, "{}", 2);
    expect_failed(BLASD_E_invalid_field, "results", "names of outputs");
    options.results = NULL;
    options.deadline_ms = "99999999999999999999";
    send_options(options, "{}", 2);
    expect_failed(BLASD_E_invalid_field, "deadline_ms", "whole number");
}

static void test_media_types(void **state) {
    static const char body[] = " {\"op\":\"mix\"}";
    size_t len = strlen(body);
    (void)state;
    send_options((struct blasd_intake_options){.content_type = "Application/JSON"}, body, len);
    expect_good();
    send_options((struct blasd_intake_options){.content_type = NULL}, body, len);
    expect_good();
    send_options((struct blasd_intake_options){.content_type = NULL}, "\x10", 1);
    expect_failed(BLASD_E_unsupported_media_type, "Content-Type", "must be a JSON object");
    send_options((struct blasd_intake_options){.content_type = NULL}, "", 0);
    expect_failed(BLASD_E_malformed_json, "", "the body is empty");
    send_options((struct blasd_intake_options){.content_type = "text/csv; charset=x"}, body, len);
    expect_failed(BLASD_E_unsupported_media_type, "Content-Type", "'text/csv' is not");
    send_options((struct blasd_intake_options){.content_type = ""}, body, len);
    expect_failed(BLASD_E_unsupported_media_type, "Content-Type", "''");
    send_options((struct blasd_intake_options){.content_type = "application/jsonx"}, body, len);
    expect_failed(BLASD_E_unsupported_media_type, "Content-Type", "");
    send_options((struct blasd_intake_options){.content_type = "multipart/form-data"}, body, len);
    expect_failed(BLASD_E_malformed_multipart, "Content-Type", "no boundary");
    limits_now.body_bytes = 20;
    send_options((struct blasd_intake_options){.content_type = NULL, .content_length = 21}, body,
                 len);
    expect_failed(BLASD_E_body_too_large, "", "body_bytes");
    setup(NULL);
    limits_now.json_bytes = 1024;
    send_options((struct blasd_intake_options){.content_type = NULL, .content_length = 1025}, body,
                 len);
    expect_failed(BLASD_E_body_too_large, "", "json_bytes");
    setup(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults),    cmocka_unit_test(test_members),
        cmocka_unit_test(test_labels),      cmocka_unit_test(test_op_alone),
        cmocka_unit_test(test_bad_members), cmocka_unit_test(test_params),
        cmocka_unit_test(test_bad_params),  cmocka_unit_test(test_query),
        cmocka_unit_test(test_media_types),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
