/* Reading headers and query parameters: what is taken, what is refused, and with which words. */
#include "http/request.h"

#include "core/record.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static struct blasd_limits limits;

static enum blasd_code header(struct http_request *request, const char *name, const char *value) {
    struct blasd_err err = {0};
    int rc = http_request_header(request, name, value, strlen(value), &err);
    assert_true((rc == 0) == (err.code == BLASD_OK));
    return err.code;
}

static enum blasd_code param(struct http_request *request, unsigned allowed, const char *name,
                             const char *value) {
    struct blasd_err err = {0};
    int rc = http_request_param(request, allowed, &limits, name, value,
                                value == NULL ? 0 : strlen(value), &err);
    assert_true((rc == 0) == (err.code == BLASD_OK));
    return err.code;
}

static void test_methods(void **state) {
    (void)state;
    assert_int_equal(http_method_find("GET"), HTTP_GET);
    assert_int_equal(http_method_find("HEAD"), HTTP_HEAD);
    assert_int_equal(http_method_find("POST"), HTTP_POST);
    assert_int_equal(http_method_find("DELETE"), HTTP_DELETE);
    assert_int_equal(http_method_find("OPTIONS"), HTTP_OPTIONS);
    assert_int_equal(http_method_find("get"), HTTP_OTHER);
    assert_int_equal(http_method_find("BREW"), HTTP_OTHER);
}

static void test_headers(void **state) {
    struct http_request request = {0};
    enum blasd_format format;
    (void)state;
    assert_int_equal(header(&request, "hOsT", "localhost"), BLASD_OK);
    assert_string_equal(request.host, "localhost");
    assert_int_equal(header(&request, "Host", "other"), BLASD_E_malformed_query);
    assert_int_equal(header(&request, "Content-Length", "12"), BLASD_OK);
    assert_int_equal(request.framing.content_length, 12);
    assert_int_equal(header(&request, "Accept", "text/html"), BLASD_OK);
    assert_int_equal(header(&request, "Accept", "*/*"), BLASD_OK);
    assert_string_equal(request.accept, "text/html");
    assert_true(blasd_accept_choose(&request.accepts, true, &format));
    assert_int_equal(header(&request, "Expect", "100-Continue"), BLASD_OK);
    assert_true(request.framing.expects_continue);
    request = (struct http_request){0};
    assert_int_equal(header(&request, "Transfer-Encoding", "chunked"), BLASD_OK);
    assert_true(request.framing.chunked);
    assert_int_equal(header(&request, "X-Anything-At-All", "\x01"), BLASD_OK);
    assert_int_not_equal(http_request_header(&request, "X-Zero", "a\0b", 3, NULL), 0);
}

/* Where two headers disagree about the end of the body, nobody may guess. */
static void test_ambiguous_lengths(void **state) {
    static const char *const pairs[][4] = {
        {"Content-Length", "4", "Content-Length", "4"},
        {"Content-Length", "4", "Transfer-Encoding", "chunked"},
        {"Transfer-Encoding", "chunked", "Content-Length", "4"},
        {"Transfer-Encoding", "chunked", "Transfer-Encoding", "chunked"},
    };
    static const char *const alone[][2] = {
        {"Content-Length", ""},
        {"Content-Length", "+4"},
        {"Content-Length", "-1"},
        {"Content-Length", "1e3"},
        {"Content-Length", "99999999999999999999"},
        {"Content-Length", "4, 4"},
        {"Transfer-Encoding", "gzip"},
        {"Transfer-Encoding", ""},
    };
    (void)state;
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        struct http_request request = {0};
        assert_int_equal(header(&request, pairs[i][0], pairs[i][1]), BLASD_OK);
        assert_false(request.framing.ambiguous);
        assert_int_equal(header(&request, pairs[i][2], pairs[i][3]), BLASD_E_malformed_query);
        assert_true(request.framing.ambiguous);
    }
    for (size_t i = 0; i < sizeof alone / sizeof *alone; i++) {
        struct http_request request = {0};
        assert_int_equal(header(&request, alone[i][0], alone[i][1]), BLASD_E_malformed_query);
        assert_true(request.framing.ambiguous);
    }
}

static void test_content_encoding(void **state) {
    static const struct {
        const char *value;
        enum blasd_code code;
        enum http_coding coding;
    } rows[] = {{"identity", BLASD_OK, HTTP_CODING_NONE},
                {"gzip", BLASD_OK, HTTP_CODING_GZIP},
                {"Deflate", BLASD_OK, HTTP_CODING_DEFLATE},
                {"br", BLASD_E_unsupported_media_type, HTTP_CODING_NONE},
                {"gzip, gzip", BLASD_E_unsupported_media_type, HTTP_CODING_NONE}};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct http_request request = {0};
        assert_int_equal(header(&request, "content-encoding", rows[i].value), rows[i].code);
        assert_int_equal(request.coding, rows[i].coding);
        /* in two headers it is several, whichever the last one is */
        if (rows[i].code == BLASD_OK)
            assert_int_equal(header(&request, "Content-Encoding", "identity"),
                             BLASD_E_malformed_query);
    }
}

static void test_range(void **state) {
    static const struct {
        const char *value;
        struct http_range range;
    } rows[] = {{"bytes=0-9", {true, false, 0, 9, true}},
                {"Bytes=7-", {true, false, 7, UINT64_MAX, true}},
                {"bytes=-5", {true, true, 5, UINT64_MAX, true}},
                {"bytes=18446744073709551615-", {true, false, UINT64_MAX, UINT64_MAX, true}}};
    static const char *const none[] = {
        "bytes=5-4",     "bytes=-",     "bytes=",
        "bytes=0-1,3-4", "bytes=0--1",  "items=0-1",
        "bytes=+1-2",    "bytes=1.5-2", "bytes=0-99999999999999999999",
        "bytes=0-1 "};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct http_request request = {0};
        assert_int_equal(header(&request, "Range", rows[i].value), BLASD_OK);
        assert_true(request.range.given);
        assert_int_equal(request.range.from_end, rows[i].range.from_end);
        assert_int_equal(request.range.first, rows[i].range.first);
        assert_int_equal(request.range.last, rows[i].range.last);
        assert_int_equal(header(&request, "Range", rows[0].value), BLASD_OK); /* a second one */
        assert_false(request.range.given);
        assert_int_equal(header(&request, "Range", rows[0].value), BLASD_OK);
        assert_false(request.range.given);
    }
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
        struct http_request request = {0};
        assert_int_equal(header(&request, "Range", none[i]), BLASD_OK);
        assert_false(request.range.given);
    }
}

static void test_idempotency_key(void **state) {
    char key[HTTP_IDEMPOTENCY_KEY_MAX + 2];
    struct http_request request = {0};
    (void)state;
    memset(key, 'k', sizeof key);
    key[HTTP_IDEMPOTENCY_KEY_MAX + 1] = '\0';
    assert_int_equal(header(&request, "Idempotency-Key", key), BLASD_E_malformed_query);
    key[HTTP_IDEMPOTENCY_KEY_MAX] = '\0';
    request = (struct http_request){0};
    assert_int_equal(header(&request, "Idempotency-Key", key), BLASD_OK);
    request = (struct http_request){0};
    assert_int_equal(header(&request, "Idempotency-Key", ""), BLASD_E_malformed_query);
    request = (struct http_request){0};
    assert_int_equal(header(&request, "Idempotency-Key", "a\tb"), BLASD_E_malformed_query);
    request = (struct http_request){0};
    assert_int_equal(header(&request, "Idempotency-Key", "caf\xc3\xa9"), BLASD_E_malformed_query);
}

static void test_idempotency_key_in_quotes(void **state) {
    static const char *const same[][2] = {
        {"\"k\"", "k"}, {"k", "k"}, {"\"a \\\"b\\\" \\\\\"", "a \"b\" \\"}, {"k\"", "k\""}};
    static const char *const bad[] = {"\"", "\"\"", "\"k", "\"k\"l", "\"k\\\"", "\"k\";a=1"};
    (void)state;
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        struct http_request request = {0};
        assert_int_equal(header(&request, "Idempotency-Key", same[i][0]), BLASD_OK);
        assert_string_equal(request.idempotency_key, same[i][1]);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct http_request request = {0};
        assert_int_equal(header(&request, "Idempotency-Key", bad[i]), BLASD_E_malformed_query);
    }
}

static void test_times(void **state) {
    static const struct {
        const char *text;
        int64_t us;
    } good[] = {{"2026-01-31T12:00:00Z", INT64_C(1769860800000000)},
                {"2026-01-31T12:00:00.25Z", INT64_C(1769860800250000)},
                {"2028-02-29T00:00:00Z", INT64_C(1835395200000000)},
                {"1769860800.000001", INT64_C(1769860800000001)},
                {"2026-01-31", INT64_C(1769817600000000)},
                {"2026-01-31t12:00:00z", INT64_C(1769860800000000)},
                {"2026-01-31T12:00:00+05:30", INT64_C(1769841000000000)},
                {"2026-01-31T12:00:00 05:30", INT64_C(1769841000000000)},
                {"2026-01-31T12:00:00.25-08:00", INT64_C(1769889600250000)},
                {"0", 0}};
    static const char *const bad[] = {"",
                                      "today",
                                      "2026-01-31T12:00",
                                      "2026-01-31T12:00:00+5:30",
                                      "2026-01-31T12:00:00+24:00",
                                      "2026-02-30",
                                      "2026-01-31T12:00:00",
                                      "-1",
                                      "1e99",
                                      "nan",
                                      "2026-13-01T00:00:00Z",
                                      "2026-02-29T00:00:00Z",
                                      "2026-04-31T12:00:00Z",
                                      "9999999999999",
                                      "2026-01-31T12:00:00.Z",
                                      "2026-01-31T12:00:00Zx"};
    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        struct http_request request = {0};
        assert_int_equal(param(&request, ~0u, "since", good[i].text), BLASD_OK);
        assert_true(request.query.since_us == good[i].us);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct http_request request = {0};
        assert_int_equal(param(&request, ~0u, "before", bad[i]), BLASD_E_malformed_query);
    }
}

static void test_files_and_sharing(void **state) {
    struct http_request request = {0};
    (void)state;
    assert_true(http_request_is_json(&request));
    assert_int_equal(header(&request, "body-file", "00ff"), BLASD_OK);
    assert_string_equal(request.body_file, "00ff");
    assert_false(http_request_is_json(&request)); /* whatever it claims */
    assert_int_equal(header(&request, "Body-File", "00ff"), BLASD_E_malformed_query);
    assert_int_equal(header(&request, "Prefer", "shared, sharex; a=b, wait=1"), BLASD_OK);
    assert_false(request.prefer.share);
    assert_int_equal(header(&request, "Prefer", "wait=1, Share;x=y , respond-async"), BLASD_OK);
    assert_true(request.prefer.share && request.prefer.async);
}

static double wait_of(const char *prefer, const char *wait, bool *preferred) {
    struct http_request request = {0};
    if (prefer != NULL) assert_int_equal(header(&request, "Prefer", prefer), BLASD_OK);
    if (wait != NULL) assert_int_equal(param(&request, HTTP_PARAM_WAIT, "wait", wait), BLASD_OK);
    return http_request_wait(&request, &limits, preferred);
}

static void test_wait(void **state) {
    bool preferred;
    (void)state;
    assert_true(wait_of(NULL, NULL, &preferred) == 0);
    assert_true(wait_of(NULL, "2.5", &preferred) == 2.5);
    assert_true(wait_of(NULL, "1e1", &preferred) == 10);
    assert_true(wait_of(NULL, "2.5E+1", &preferred) == 25);
    assert_true(wait_of(NULL, "5e-324", &preferred) == 5e-324);
    assert_true(wait_of(NULL, "0.1000000000000000055511151231257827021181583404541015625",
                        &preferred) == 0.1);
    assert_false(preferred);
    assert_true(wait_of("wait=10", NULL, &preferred) == 10);
    assert_true(preferred);
    assert_true(wait_of("wait=10", "3", &preferred) == 3); /* the query is the plainer word */
    assert_false(preferred);
    assert_true(wait_of("respond-async, wait = \"0.5\" ; x=y", NULL, &preferred) == 0.5);
    assert_true(wait_of("handling=lenient;wait=4,WAIT=7", NULL, &preferred) == 7);
    assert_true(wait_of("wait=1000000", NULL, &preferred) == (double)limits.wait_s);
    /* preferences that make no sense are passed over, as RFC 7240 wants */
    assert_true(wait_of("wait=-1", NULL, &preferred) == 0);
    assert_true(wait_of("wait=nan", NULL, &preferred) == 0);
    assert_true(wait_of("wait=", NULL, &preferred) == 0);
    assert_true(wait_of("wait", NULL, &preferred) == 0);
    assert_true(wait_of(",,;=,", NULL, &preferred) == 0);
    assert_true(wait_of("waiting=3", NULL, &preferred) == 0);
}

static void test_respond_async(void **state) {
    struct http_request request = {0};
    (void)state;
    assert_int_equal(header(&request, "Prefer", "foo"), BLASD_OK);
    assert_false(request.prefer.async);
    assert_int_equal(header(&request, "Prefer", "Respond-Async"), BLASD_OK);
    assert_true(request.prefer.async);
}

static void test_bad_waits(void **state) {
    static const char *const bad[] = {"",
                                      "-1",
                                      "+1",
                                      "1e3",
                                      "nan",
                                      "inf",
                                      "0x1",
                                      ".",
                                      "1e",
                                      "e1",
                                      "1e+",
                                      ".e1",
                                      "1s",
                                      "1..2",
                                      " 1",
                                      "1e1.5",
                                      "1111111111111111111111111",
                                      "1e400"};
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct http_request request = {0};
        assert_int_equal(param(&request, HTTP_PARAM_WAIT, "wait", bad[i]), BLASD_E_malformed_query);
    }
    struct http_request request = {0};
    assert_int_equal(param(&request, HTTP_PARAM_WAIT, "wait", NULL), BLASD_E_malformed_query);
    assert_int_equal(param(&request, HTTP_PARAM_WAIT, "wait", "301"), BLASD_E_malformed_query);
    request = (struct http_request){0};
    assert_int_equal(param(&request, HTTP_PARAM_WAIT, "wait", "300"), BLASD_OK);
    assert_int_equal(param(&request, HTTP_PARAM_WAIT, "wait", "1"), BLASD_E_malformed_query);
}

static void test_params(void **state) {
    struct http_request request = {0};
    (void)state;
    /* what another route takes is unknown here */
    assert_int_equal(param(&request, HTTP_PARAM_WAIT, "limit", "1"), BLASD_E_malformed_query);
    assert_int_equal(param(&request, ~0u, "nonsense", "1"), BLASD_E_malformed_query);
    assert_int_equal(param(&request, ~0u, "limit", "0"), BLASD_E_malformed_query);
    assert_int_equal(param(&request, ~0u, "limit", "99999999999999999999999"),
                     BLASD_E_malformed_query);
    assert_int_equal(param(&request, ~0u, "limit", "10"), BLASD_E_malformed_query); /* twice */
    request = (struct http_request){0};
    assert_int_equal(param(&request, ~0u, "limit", "1001"), BLASD_OK); /* as many as may be */
    assert_int_equal(request.query.limit, 100);
    request = (struct http_request){0};
    assert_int_equal(param(&request, ~0u, "limit", "100"), BLASD_OK);
    assert_int_equal(request.query.limit, 100);
    assert_int_equal(param(&request, ~0u, "state", "running"), BLASD_OK);
    assert_int_equal(request.query.state, BLASD_RUNNING);
    assert_int_equal(param(&request, ~0u, "dry_run", "0"), BLASD_OK);
    assert_false(request.query.dry_run);
    request = (struct http_request){0};
    assert_int_equal(param(&request, ~0u, "dry_run", "1"), BLASD_OK);
    assert_true(request.query.dry_run);
    request = (struct http_request){0};
    assert_int_equal(param(&request, ~0u, "dry_run", "true"), BLASD_OK);
    assert_true(request.query.dry_run);
    request = (struct http_request){0};
    assert_int_equal(param(&request, ~0u, "dry_run", "yes"), BLASD_E_malformed_query);
    request = (struct http_request){0};
    for (int i = 0; i < HTTP_LABELS_WANTED; i++)
        assert_int_equal(param(&request, ~0u, "label", "a=b"), BLASD_OK);
    assert_int_equal(param(&request, ~0u, "label", "a=b"), BLASD_E_malformed_query);
    request = (struct http_request){0};
    assert_int_equal(param(&request, ~0u, "op", "matmull"), BLASD_E_malformed_query);
    request = (struct http_request){0}; /* of a job it is the body's reader that says so */
    assert_int_equal(param(&request, HTTP_PARAM_OP, "op", "matmull"), BLASD_OK);
    request = (struct http_request){0};
    request = (struct http_request){0};
    assert_int_equal(param(&request, ~0u, "state", "asleep"), BLASD_E_malformed_query);
    assert_int_equal(param(&request, ~0u, "op", "matmul"), BLASD_OK);
    assert_string_equal(request.query.op, "matmul");
    assert_int_equal(http_request_param(&request, ~0u, &limits, "params", "{}\0{}", 5, NULL) == 0,
                     0);
}

static void test_json(void **state) {
    struct http_request request = {0};
    (void)state;
    assert_true(http_request_is_json(&request));
    request.content_type = "application/json";
    assert_true(http_request_is_json(&request));
    request.content_type = "Application/JSON; charset=utf-8";
    assert_true(http_request_is_json(&request));
    request.content_type = "application/x-www-form-urlencoded"; /* curl -d */
    assert_true(http_request_is_json(&request));
    request.content_type = "application/json-patch+json";
    assert_false(http_request_is_json(&request));
    request.content_type = "multipart/form-data; boundary=application/json";
    assert_false(http_request_is_json(&request));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_methods),
        cmocka_unit_test(test_headers),
        cmocka_unit_test(test_wait),
        cmocka_unit_test(test_idempotency_key),
        cmocka_unit_test(test_idempotency_key_in_quotes),
        cmocka_unit_test(test_times),
        cmocka_unit_test(test_files_and_sharing),
        cmocka_unit_test(test_respond_async),
        cmocka_unit_test(test_bad_waits),
        cmocka_unit_test(test_params),
        cmocka_unit_test(test_json),
        cmocka_unit_test(test_ambiguous_lengths),
        cmocka_unit_test(test_content_encoding),
        cmocka_unit_test(test_range),
    };
    blasd_limits_init(&limits);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
