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
                                        "/console",
                                        "/console/",
                                        "/console/app.js",
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

static void test_dialects(void **state) {
    static const char *const theirs[] = {"/v2", "/v2/", "/v2/models/matmul/infer", "/v2/nothing"};
    static const char *const ours[] = {"/", "/v", "/v2x", "/v22/models", "/jobs", "", "/jobs/v2"};
    (void)state;
    for (size_t i = 0; i < sizeof theirs / sizeof *theirs; i++)
        assert_non_null(http_dialect_find(theirs[i]));
    for (size_t i = 0; i < sizeof ours / sizeof *ours; i++) assert_null(http_dialect_find(ours[i]));
    /* one model's routes lie beside one of all of them */
    assert_string_equal(find("/v2/models/stats", HTTP_GET)->path, "/v2/models/stats");
    assert_string_equal(find("/v2/models/m/stats", HTTP_GET)->path, "/v2/models/{name}/stats");
    assert_string_equal(captures[0], "m");
}

static void test_methods(void **state) {
    (void)state;
    assert_null(find("/jobs", HTTP_PATCH));
    assert_int_equal(allow, HTTP_GET | HTTP_HEAD | HTTP_POST | HTTP_DELETE);
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

#define MODEL(path)                                                                                \
    {path, HTTP_GET, M | R | U}, {path "/ready", HTTP_GET, M | R | U},                             \
        {path "/config", HTTP_GET, M | R | U}, {path "/stats", HTTP_GET, M}, {                     \
        path "/infer", HTTP_POST, U                                                                \
    }

/* Who may call what: a new route has to be told of here. */
static void test_roles(void **state) {
    enum { M = HTTP_ROLE(BLASD_ROLE_METRICS), R = HTTP_ROLE(BLASD_ROLE_READ) };
    enum { U = HTTP_ROLE(BLASD_ROLE_USER) };
    static const struct {
        const char *path;
        unsigned method, roles;
    } may[] = {
        {"/jobs", HTTP_POST, U},
        {"/jobs", HTTP_GET, R | U},
        {"/jobs", HTTP_DELETE, U},
        {"/jobs/{id}", HTTP_GET, R | U},
        {"/jobs/{id}", HTTP_DELETE, U},
        {"/jobs/{id}/result", HTTP_GET, R | U},
        {"/jobs/{id}/outputs/{name}", HTTP_GET, R | U},
        {"/tensors", HTTP_POST, U},
        {"/tensors", HTTP_GET, R | U},
        {"/tensors/{id}", HTTP_GET, R | U},
        {"/tensors/{id}", HTTP_PATCH, U},
        {"/tensors/{id}", HTTP_DELETE, U},
        {"/graphs", HTTP_POST, U},
        {"/graphs", HTTP_GET, R | U},
        {"/graphs/{id}", HTTP_GET, R | U},
        {"/graphs/{id}", HTTP_DELETE, U},
        {"/ops", HTTP_GET, M | R | U},
        {"/ops/{name}", HTTP_GET, M | R | U},
        {"/devices", HTTP_GET, M | R | U},
        {"/share", HTTP_GET, U},
        {"/metrics", HTTP_GET, M},
        {"/load", HTTP_GET, M},
        {"/events", HTTP_GET, R | U},
        {"/", HTTP_GET, M | R | U | HTTP_SIGN_IN},
        {"/health/live", HTTP_GET, HTTP_OPEN},
        {"/health/ready", HTTP_GET, HTTP_OPEN},
        {"/openapi.json", HTTP_GET, HTTP_OPEN},
        {"/version", HTTP_GET, HTTP_OPEN},
        {"/docs", HTTP_GET, HTTP_OPEN},
        {"/docs/style.css", HTTP_GET, HTTP_OPEN},
        {"/errors/{code}", HTTP_GET, HTTP_OPEN},
        {"/v2", HTTP_GET, M | R | U},
        {"/v2/health/live", HTTP_GET, M | R | U},
        {"/v2/health/ready", HTTP_GET, M | R | U},
        {"/v2/repository/index", HTTP_POST, M | R | U},
        {"/v2/models/stats", HTTP_GET, M},
        MODEL("/v2/models/{name}"),
        MODEL("/v2/models/{name}/versions/{version}"),
    };
    const size_t count = sizeof may / sizeof *may;
    (void)state;
    for (const struct http_route *route = http_routes; route->path != NULL; route++)
        for (unsigned method = HTTP_GET; method <= HTTP_PATCH; method <<= 1) {
            unsigned alike = method == HTTP_HEAD ? HTTP_GET : method;
            size_t i = 0;
            if ((route->methods & method) == 0) continue;
            while (i < count && (strcmp(may[i].path, route->path) != 0 || may[i].method != alike))
                i++;
            if (i == count) fail_msg("say here who may call %s", route->path);
            assert_int_equal(route->roles, may[i].roles);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_found),   cmocka_unit_test(test_not_found),
        cmocka_unit_test(test_methods), cmocka_unit_test(test_long_segment),
        cmocka_unit_test(test_roles),   cmocka_unit_test(test_dialects),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
