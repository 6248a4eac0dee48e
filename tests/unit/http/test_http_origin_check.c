/* Who may call: hosts and origins, and pages that pretend. */
#include "http/origin_check.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static const char *const hosts[] = {"blasd.example", NULL};
static const char *const origins[] = {"https://app.example", NULL};

static enum blasd_code check(const char *host, const char *origin, bool *foreign) {
    const struct http_request request = {.method = HTTP_GET, .host = host, .origin = origin};
    struct http_origins allowed;
    struct blasd_err err = {0};
    http_origins_init(&allowed, hosts, origins);
    memcpy(allowed.own_name, "mybox", sizeof "mybox");
    http_origin_check(&allowed, &request, foreign, &err);
    return err.code;
}

static void test_hosts(void **state) {
    static const char *const good[] = {
        "127.0.0.1",      "127.0.0.1:8080", "localhost",         "LOCALHOST:1", "localhost.",
        "a.localhost:80", "[::1]",          "[::1]:8080",        "10.2.3.4:80", "mybox:8080",
        "MyBox",          "blasd.example",  "Blasd.Example.:443"};
    static const char *const bad[] = {"evil.example",
                                      "127.0.0.1.evil.example",
                                      "notlocalhost",
                                      "localhost.evil",
                                      "",
                                      ":8080",
                                      "[::1",
                                      "[evil.example]:80",
                                      "::1:80",
                                      "a b",
                                      "localhost:80x",
                                      "blasd.example@evil",
                                      "1.2.3"};
    bool foreign;
    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        assert_int_equal(check(good[i], NULL, &foreign), BLASD_OK);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(check(bad[i], NULL, &foreign), BLASD_E_forbidden_host);
    assert_int_equal(check(NULL, NULL, &foreign), BLASD_OK); /* HTTP/1.0 has none */
}

static void test_long_host(void **state) {
    char host[1024];
    bool foreign;
    (void)state;
    memset(host, 'h', sizeof host - 1);
    host[sizeof host - 1] = '\0';
    assert_int_equal(check(host, NULL, &foreign), BLASD_E_forbidden_host);
}

static void test_origins(void **state) {
    bool foreign;
    (void)state;
    assert_int_equal(check("127.0.0.1:8080", "http://127.0.0.1:8080", &foreign), BLASD_OK);
    assert_false(foreign);
    assert_int_equal(check("127.0.0.1:8080", "http://127.0.0.1:9090", &foreign),
                     BLASD_E_forbidden_origin);
    assert_int_equal(check("127.0.0.1:8080", "http://evil.example", &foreign),
                     BLASD_E_forbidden_origin);
    assert_int_equal(check("127.0.0.1:8080", "null", &foreign), BLASD_E_forbidden_origin);
    assert_int_equal(check("127.0.0.1:8080", "", &foreign), BLASD_E_forbidden_origin);
    assert_int_equal(check("127.0.0.1:8080", "https://app.example", &foreign), BLASD_OK);
    assert_true(foreign);
    /* a name that points here makes the origin the same, so the host has to say no */
    assert_int_equal(check("evil.example:8080", "http://evil.example:8080", &foreign),
                     BLASD_E_forbidden_host);
    assert_int_equal(check(NULL, "http://127.0.0.1", &foreign), BLASD_E_forbidden_origin);
}

static void test_all_allowed(void **state) {
    static const char *const all[] = {"*", NULL};
    struct http_request request = {.host = "any.example", .origin = "http://other.example"};
    struct http_origins allowed;
    bool foreign;
    (void)state;
    http_origins_init(&allowed, all, all);
    assert_int_equal(http_origin_check(&allowed, &request, &foreign, NULL), 0);
    assert_true(foreign);
    request.origin = NULL;
    request.fetch.site = "cross-site";
    assert_int_equal(http_origin_check(&allowed, &request, &foreign, NULL), 0);
    http_origins_init(&allowed, NULL, NULL);
    request.fetch.site = NULL;
    assert_int_not_equal(http_origin_check(&allowed, &request, &foreign, NULL), 0);
}

/* What a page elsewhere has the browser fetch for it, and what its reader goes to himself. */
static void test_sites(void **state) {
    static const struct {
        enum http_method method;
        const char *site, *mode, *dest, *origin;
        bool good;
    } cases[] = {
        {HTTP_GET, NULL, NULL, NULL, NULL, true},
        {HTTP_GET, "none", "navigate", "document", NULL, true},
        {HTTP_GET, "same-origin", "cors", "empty", NULL, true},
        {HTTP_GET, "same-origin", "no-cors", "image", NULL, true},
        {HTTP_GET, "cross-site", "no-cors", "image", NULL, false},
        {HTTP_GET, "same-site", "no-cors", "script", NULL, false},
        {HTTP_GET, "cross-site", "navigate", "iframe", NULL, false},
        {HTTP_GET, "cross-site", NULL, NULL, NULL, false},
        {HTTP_GET, "cross-site", "navigate", "document", NULL, true},
        {HTTP_HEAD, "same-site", "navigate", "document", NULL, true},
        {HTTP_POST, "cross-site", "navigate", "document", NULL, false},
        {HTTP_DELETE, "same-site", "navigate", "document", NULL, false},
        {HTTP_POST, "cross-site", "cors", "empty", "https://app.example", true},
        {HTTP_GET, "cross-site", "cors", "empty", "https://app.example", true},
        {HTTP_GET, "cross-site", "cors", "empty", "https://evil.example", false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct http_request request = {.method = cases[i].method,
                                             .host = "localhost",
                                             .origin = cases[i].origin,
                                             .fetch.site = cases[i].site,
                                             .fetch.mode = cases[i].mode,
                                             .fetch.dest = cases[i].dest};
        struct http_origins allowed;
        struct blasd_err err = {0};
        bool foreign;
        http_origins_init(&allowed, hosts, origins);
        http_origin_check(&allowed, &request, &foreign, &err);
        if ((err.code == BLASD_OK) != cases[i].good) fail_msg("case %zu", i);
        assert_true(cases[i].good || err.code == BLASD_E_forbidden_origin);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hosts),   cmocka_unit_test(test_long_host),
        cmocka_unit_test(test_origins), cmocka_unit_test(test_all_allowed),
        cmocka_unit_test(test_sites),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
