/* How a path and a method find their row. */
#include "http/jobs.h"
#include "http/routes.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static char captures[HTTP_CAPTURES][64];
static unsigned allow;

static const struct http_route *find(const char *path, enum http_method method) {
    memset(captures, 0, sizeof captures);
    return http_route_find(path, method, captures, &allow);
}

static void test_found(void **state) {
    (void)state;
    assert_ptr_equal(find("/jobs", HTTP_POST)->run, http_jobs_post_run);
    assert_ptr_equal(find("/jobs", HTTP_GET)->run, http_jobs_list);
    assert_ptr_equal(find("/jobs", HTTP_HEAD)->run, http_jobs_list);
    assert_ptr_equal(find("/health/ready", HTTP_GET)->run, http_health_ready);
    assert_ptr_equal(find("/jobs/abc", HTTP_DELETE)->run, http_jobs_delete);
    assert_string_equal(captures[0], "abc");
    assert_ptr_equal(find("/jobs/abc/outputs/c", HTTP_GET)->run, http_jobs_output);
    assert_string_equal(captures[0], "abc");
    assert_string_equal(captures[1], "c");
    assert_ptr_equal(find("/ops/matmul", HTTP_GET)->run, http_ops_one);
    assert_string_equal(captures[0], "matmul");
}

static void test_not_found(void **state) {
    static const char *const paths[] = {"",
                                        "/",
                                        "/job",
                                        "/jobs/",
                                        "/jobs//",
                                        "/jobs/a/",
                                        "/jobs/a/b",
                                        "/jobs/a/outputs",
                                        "/jobs/a/outputs/",
                                        "/jobs/a/outputs/b/c",
                                        "//jobs",
                                        "/JOBS",
                                        "*",
                                        "/health",
                                        "/ops/a/b"};
    (void)state;
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        assert_null(find(paths[i], HTTP_GET));
        assert_int_equal(allow, 0);
    }
}

static void test_methods(void **state) {
    (void)state;
    assert_null(find("/jobs", HTTP_DELETE));
    assert_int_equal(allow, HTTP_GET | HTTP_HEAD | HTTP_POST);
    assert_null(find("/jobs/x", HTTP_POST));
    assert_int_equal(allow, HTTP_GET | HTTP_HEAD | HTTP_DELETE);
    assert_null(find("/metrics", HTTP_OTHER));
    assert_int_equal(allow, HTTP_GET | HTTP_HEAD);
}

static void test_long_segment(void **state) {
    char path[4096] = "/jobs/";
    (void)state;
    memset(path + 6, 'a', sizeof path - 7);
    path[sizeof path - 1] = '\0';
    assert_ptr_equal(find(path, HTTP_GET)->run, http_jobs_get);
    assert_string_equal(captures[0], ""); /* which is no id */
    memset(path + 6, 'a', 63);
    path[6 + 63] = '\0';
    assert_non_null(find(path, HTTP_GET));
    assert_int_equal(strlen(captures[0]), 63);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_found),
        cmocka_unit_test(test_not_found),
        cmocka_unit_test(test_methods),
        cmocka_unit_test(test_long_segment),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
