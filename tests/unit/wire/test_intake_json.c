/* Jobs in JSON: the text around the tensors, which inputs there are, how much may come. Read next:
 * test_intake_json_tensors.c, test_intake_fields.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "tests/unit/wire/intake_expect.h"

static void test_malformed(void **state) {
    static const struct {
        const char *body, *detail;
    } cases[] = {
        {"", "the body is empty"},
        {"  \n ", "the body is empty"},
        {"[]", "a job is a JSON object"},
        {"{", "expected a string"},
        {"{\"op\"", "expected ':'"},
        {"{\"op\":", "expected a value"},
        {"{\"op\":\"mix\"", "expected ',' or '}'"},
        {"{\"op\":\"mix}", "no closing quote"},
        {"{\"op\":\"mix\",}", "expected a name behind ','"},
        {"{\"op\":\"mix\"}x", "something follows"},
        {"{\"op\":\"mix\"} {}", "something follows"},
        {"{\"op\":\"mix\" \"inputs\":{}}", "expected ','"},
        {"{\"op\":mix}", "line 1, column"},
        {"{\"op\":\"mix\",\"params\":{\"k\":1,}}", "line 1, column"},
        {"{\"op\":\"mix\",\"params\":{\"k\":[1}}", "line 1, column"},
        {"{\"op\":\"mix\",\n\n  \"params\":{\"k\":nul}}", "line 3, column"},
        {"{\"op\":\"mix\",\"op\":\"mix\"}", "duplicate"},
        {"{\"op\":\"mix\",\"inputs\":{},\"inputs\":{}}", "twice"},
        {"{\"op\":\"mix\",\"inputs\":{},\"\\u0069nputs\":{}}", "twice"},
        {"{\"op\":\"mix\",\"inputs\":{\"a\":[1,2}}", "expected ',' or ']'"},
        {"{\"op\":\"mix\",\"inputs\":{\"a\":[1,]}}", "expected a number"},
        {"{\"op\":\"mix\",\"inputs\":{\"a\":[[1],]}}", "expected a number"},
        {"{\"op\":\"mix\",\"inputs\":{\"a\":[,1]}}", "expected a number"},
        {"{\"op\":\"mix\",\"inputs\":{\"a\":[1 2]}}", "expected ',' or ']'"},
        {"{\"op\":\"mix\",\"inputs\":{\"a\":[1.]}}", "not a JSON number"},
        {"{\"op\":\"mix\",\"inputs\":{\"a\":[+1]}}", "expected a number"},
        {"{\"op\":\"mix\",\"inputs\":{\"a\":[0x10]}}", "expected ',' or ']'"},
        {"{\"op\":\"mix\",\"inputs\":{\"a\":[tru]}}", "expected a number"},
        {"{\"op\":\"mix\",\"inputs\":{\"a\":}}", "expected a number"},
        {"{\"op\":\"mix\",\"inputs\":{\"a\":[1", "expected ',' or ']'"},
        {"{\"op\":\"mix\",\"inputs\":{\"a\":[", "ends inside a tensor"},
        {"{\"op\":\"mix\",\"inputs\":{\"a\":[1]", "expected ',' or '}'"},
        {"{\"op\":\"mix\",\"inputs\":{\"a\":[1],}}", "a name behind ','"},
        {"{\"op\":\"mix\",\"inputs\":{\"a\" [1]}}", "expected ':'"},
        {"{\"op\":\"mix\",\"inputs\":{a:[1]}}", "expected a string"},
        {"{\"op\":\"mix\",\"inputs\":{\"a\":[\"NaN]}}", "no closing quote"},
        {"{\"op\":\"mix\",\"inputs\":{\"a\":{\"data\":[1,{}", "ends inside a value"},
        {"{/* no comments */\"op\":\"mix\"}", "expected a string"},
        {"{\"op\":\"m\xff\"}", "line 1"},
        {"{\"\xff\":1}", "line 1"},
        {"\xef\xbb\xbf{\"op\":\"mix\"}", "expected '{'"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        send_json(cases[i].body);
        if (last.rc != -(int)BLASD_E_malformed_json) print_error("body %s\n", cases[i].body);
        expect_failed(BLASD_E_malformed_json, "", cases[i].detail);
    }
    send_json("{\"op\":\"mix\",\n\"inputs\":{\"a\":[[1,\n 2x]]}}");
    expect_failed(BLASD_E_malformed_json, "", "line 3, column 3 (byte 35)");
    send_json("{\"op\":\"mix\",\"inputs\":{\"a\":[[1,\n 2]]},\n \"k\":x}");
    expect_failed(BLASD_E_malformed_json, "", "line 3, column ");
    send_options((struct blasd_intake_options){.content_type = "application/json"},
                 "{\"op\":\"mix\0\"}", 13);
    expect_failed(BLASD_E_malformed_json, "", "line 1");
    send_options((struct blasd_intake_options){.content_type = "application/json"},
                 "{\"op\":\"mix\"}\0", 13);
    expect_failed(BLASD_E_malformed_json, "", "something follows");
}

static void test_inputs(void **state) {
    (void)state;
    send_json("{\"inputs\":{\"b\":[1,2],\"a\":3,\"V\":[[4]]},\"op\":\"mix\"}");
    expect_bytes(expect_input(0, BLASD_float64, SCALAR), (double[]){3}, 8);
    expect_bytes(expect_input(1, BLASD_float64, SHAPE(2)), (double[]){1, 2}, 16);
    expect_bytes(expect_input(2, BLASD_float64, SHAPE(1, 1)), (double[]){4}, 8);
    send_json("{\"op\":\"mix\",\"inputs\":{\"\\u0061\":[1]}}");
    expect_input(0, BLASD_float64, SHAPE(1));
    send_json("{\"op\":\"mix\",\"inputs\":{}}");
    expect_good();
    assert_int_equal(last.job.inputs[0].source.kind, BLASD_SOURCE_NONE);
    assert_int_equal(last.job.inputs[0].first_nonfinite, -1);
    send_json("{\"op\":\"mix\"}");
    expect_good();
    send_json("{\"op\":\"mix\",\"inputs\":{\"a\":1,\"a\":2}}");
    expect_failed(BLASD_E_invalid_field, "inputs.a", "twice");
    send_json("{\"op\":\"mix\",\"inputs\":{\"a\":1,\"\\u0061\":2}}");
    expect_failed(BLASD_E_invalid_field, "inputs.a", "twice");
    send_json("{\"op\":\"mix\",\"inputs\":{\"c\":1}}");
    expect_failed(BLASD_E_unknown_input, "inputs.c", "mix has no input 'c'; it has a, b, V");
    send_json("{\"op\":\"mix\",\"inputs\":{\"\":1}}");
    expect_failed(BLASD_E_unknown_input, "inputs.", "");
    send_json("{\"op\":\"mix\",\"inputs\":{\"a b\":1}}");
    expect_failed(BLASD_E_unknown_input, "inputs.a b", "");
    send_json("{\"op\":\"mix\",\"inputs\":{\"\xc3\xa9\":1}}");
    expect_failed(BLASD_E_unknown_input, "inputs.??", "");
    send_json(
        "{\"op\":\"mix\",\"inputs\":{\"a0123456789012345678901234567890123456789012345678901234"
        "56789\":1}}");
    expect_failed(BLASD_E_unknown_input, "inputs.a012345678901234567890123456789012345678...", "");
    send_json("{\"op\":\"mix\",\"inputs\":[1]}");
    expect_failed(BLASD_E_invalid_field, "inputs", "object of tensors");
    send_json("{\"op\":\"mix\",\"\\u0069nputs\":{\"a\":1}}");
    expect_input(0, BLASD_float64, SCALAR);
    send_json(
        "{\"op\":\"mix\",\"inputs\":{\"c1\":1,\"c2\":1,\"c3\":1,\"c4\":1,\"c5\":1,\"c6\":1,\"c7\""
        ":1,\"c8\":1,\"c9\":1,\"c10\":1,\"c11\":1,\"c12\":1,\"c13\":1,\"c14\":1,\"c15\":1,"
        "\"c16\":1,\"c17\":1}}");
    expect_failed(BLASD_E_unknown_input, "inputs.c17", "no operation takes more than 8");
}

static void test_limits(void **state) {
    char body[4096];
    (void)state;
    limits_now.json_depth = 8;
    send_json("{\"op\":\"mix\",\"params\":[[[[[[[1]]]]]]]}");
    expect_failed(BLASD_E_invalid_field, "params", "");
    send_json("{\"op\":\"mix\",\"params\":[[[[[[[[1]]]]]]]]}");
    expect_failed(BLASD_E_malformed_json, "",
                  "line 1, column 29 (byte 29): nested deeper than 8 levels, the limit json_depth");
    send_json("{\"op\":\"mix\",\"inputs\":{\"a\":{\"data\":[[[[[[[[[[1]]]]]]]]]]}}}");
    expect_failed(BLASD_E_malformed_json, "", "limit json_depth");
    memset(body, '[', sizeof body);
    memcpy(body, "{\"op\":", 6);
    body[sizeof body - 1] = '\0';
    send_json(body);
    expect_failed(BLASD_E_malformed_json, "", "limit json_depth");

    limits_now.envelope_bytes = 1024;
    memset(body, ' ', sizeof body);
    memcpy(body, "{\"op\":\"mix\",\"inputs\":{\"a\":[", 27);
    memcpy(body + 2000, "1]}}", 5);
    send_json(body);
    expect_good();
    memcpy(body, "{\"op\":\"mix\",\"inputs\":{\"a\":[1]}    ", 33);
    memcpy(body + 2000, "}", 2);
    send_json(body);
    expect_failed(BLASD_E_body_too_large, "", "envelope_bytes");
    limits_now.json_bytes = 1024;
    send_json(body);
    expect_failed(BLASD_E_body_too_large, "", "json_bytes");
    limits_now.json_bytes = 2001;
    limits_now.envelope_bytes = 4096;
    send_json(body);
    expect_good();
    limits_now.body_bytes = 2000;
    send_json(body);
    expect_failed(BLASD_E_body_too_large, "", "body_bytes");
    setup(NULL);
}

static void test_sink_full(void **state) {
    static const char body[] = "{\"op\":\"mix\",\"inputs\":{\"a\":[1,2,3]}}";
    struct blasd_intake_options options = {.content_type = "application/json",
                                           .limits = &limits_now};
    struct memory memory = {.sink = {.reserve = memory_reserve, .write = memory_write}, .most = 16};
    struct blasd_intake *intake;
    struct blasd_err err;
    struct blasd_job job;
    (void)state;
    assert_int_equal(blasd_intake_new(&options, &memory.sink, &intake, &err), 0);
    assert_int_equal(blasd_intake_feed(intake, body, strlen(body), &err), 0);
    assert_int_equal(blasd_intake_finish(intake, &job, &err), -(int)BLASD_E_no_space);
    /* after an error it only takes free */
    assert_int_equal(blasd_intake_feed(intake, body, 1, &err), -(int)BLASD_E_internal_error);
    assert_int_equal(blasd_intake_finish(intake, &job, &err), -(int)BLASD_E_internal_error);
    blasd_intake_free(intake);
    free(memory.bytes);
    blasd_intake_free(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_malformed),
        cmocka_unit_test(test_inputs),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_sink_full),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
