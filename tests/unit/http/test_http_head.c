/* Heads as libmicrohttpd 0.9 leaves them in its memory: what was folded, or ended by a bare LF. */
#include "http/head.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static char memory[512], elsewhere[64];

/* A head of one header, cut into texts as the library does it: `|` stands for a zero byte. */
static enum blasd_code look(const char *text, const char *name, const char *value, int behind) {
    struct http_head head = {.bare_lines = true};
    struct blasd_err err = {0};
    const char *at_name, *at_value;
    size_t len = strlen(text);
    memset(memory, 'M', sizeof memory);
    memcpy(memory, text, len);
    for (size_t i = 0; i < len; i++)
        if (memory[i] == '|') memory[i] = '\0';
    at_name = memmem(memory, len, name, strlen(name));
    at_value = memmem(memory, len, value, strlen(value) + 1);
    if (at_name == NULL) { /* it was moved, to be made longer */
        memcpy(elsewhere, name, strlen(name) + 1);
        at_name = elsewhere;
    }
    if (http_head_start(&head, memory, &err) == 0 &&
        http_head_header(&head, at_name, strlen(name), at_value, strlen(value), &err) == 0)
        http_head_finish(&head, behind < 0 ? NULL : memory + len + behind, &err);
    return err.code;
}

static void test_lines(void **state) {
    (void)state;
    assert_int_equal(look("HTTP/1.1||Host|value||||", "Host", "value", 0), BLASD_OK);
    assert_int_equal(look("HTTP/1.1||Host| \t value||||", "Host", "value", 0), BLASD_OK);
    assert_int_equal(look("HTTP/1.1||Host|value||||", "Host", "value", -1), BLASD_OK);
    assert_int_equal(look("HTTP/1.1|Host|value||||", "Host", "value", 0), BLASD_E_malformed_query);
    assert_int_equal(look("HTTP/1.1||Host|value|N", "Host", "value", 3), BLASD_E_malformed_query);
    assert_int_equal(look("HTTP/1.1||Host|value|||", "Host", "value", 0), BLASD_E_malformed_query);
}

/* As it lies before the headers are looked at; a zero byte within the target is one as well. */
static bool is_whole(const char *text) {
    const struct http_head head = {.bare_lines = true};
    memset(memory, 'M', sizeof memory);
    for (size_t i = 0; i <= strlen(text); i++) memory[i] = text[i] == '|' ? '\0' : text[i];
    return http_head_target(&head, memory);
}

static void test_target(void **state) {
    const struct http_head looked_at = {.bare_lines = false};
    (void)state;
    assert_true(is_whole("/jobs?wait=1|HTTP/1.1||Host: x"));
    assert_true(is_whole("/jobs |HTTP/1.1||Host: x"));
    assert_true(is_whole("/jobs|HTTP/1.1||"));
    assert_false(is_whole("/jobs|x|HTTP/1.1||Host: x"));
    assert_false(is_whole("/jobs|?wait=1|HTTP/1.1||Host: x"));
    assert_false(is_whole("/jobs|HTTP/1.1|HTTP/1.1||Host: x"));
    assert_false(is_whole("/jobs||HTTP/1.1||Host: x"));
    assert_false(is_whole("/jobs||Host: x"));
    assert_true(http_head_target(&looked_at, "/jobs\0x"));
}

static void test_folded(void **state) {
    (void)state;
    /* ` .evil` behind `Host: value`, and the same where the new name happens to lie before it */
    assert_int_equal(look("HTTP/1.1||Host|value|| .evil||||", "Host.evil", "value", 0),
                     BLASD_E_malformed_query);
    assert_int_equal(look("HTTP/1.1||Host.evil|xHost|value||||", "Host.evil", "value", 0),
                     BLASD_E_malformed_query);
}

static enum blasd_code header(const char *name, const char *value) {
    struct http_head head = {0};
    struct blasd_err err = {0};
    http_head_header(&head, name, strlen(name), value, value == NULL ? 0 : strlen(value), &err);
    return err.code;
}

static void test_names_and_values(void **state) {
    static const char *const bad_names[] = {"", " X", "X ", "X\t", "X y", "X(a)", "X\xe9", "X\x01"};
    static const char *const bad_values[] = {"a\rb", "a\x01", "a\x7f", NULL};
    (void)state;
    assert_int_equal(header("!#$%&'*+-.^_`|~09azAZ", "a\tb \xc3\xa9"), BLASD_OK);
    assert_int_equal(header("X", ""), BLASD_OK);
    for (size_t i = 0; i < sizeof bad_names / sizeof *bad_names; i++)
        assert_int_equal(header(bad_names[i], "x"), BLASD_E_malformed_query);
    for (size_t i = 0; i < sizeof bad_values / sizeof *bad_values; i++)
        assert_int_equal(header("X", bad_values[i]), BLASD_E_malformed_query);
}

/* What ends in a zero byte before its end is not what the client sent. */
static void test_zero_in_a_value(void **state) {
    struct http_head head = {0};
    (void)state;
    assert_int_equal(http_head_header(&head, "X", 1, "a\0b", 3, NULL), -BLASD_E_malformed_query);
}

static void path_is(const char *target, const char *path, const char *authority) {
    const char *found;
    assert_string_equal(http_head_path(target, &found), path);
    if (authority == NULL)
        assert_null(found);
    else
        assert_true(http_head_is_host(found, authority));
}

static void test_whole_urls(void **state) {
    (void)state;
    path_is("/jobs", "/jobs", NULL);
    path_is("*", "*", NULL);
    path_is("/http://a/jobs", "/http://a/jobs", NULL);
    path_is("http:/a/jobs", "http:/a/jobs", NULL);
    path_is("http://a:80/jobs/1", "/jobs/1", "a:80");
    path_is("hTTps://A", "/", "a");
    path_is("http:///x", "/x", "");
    assert_false(http_head_is_host("a:80/jobs", "a"));
    assert_false(http_head_is_host("a/jobs", "a:80"));
    assert_false(http_head_is_host("a/jobs", "a/jobs"));
    assert_false(http_head_is_host("b/jobs", "a"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lines),           cmocka_unit_test(test_folded),
        cmocka_unit_test(test_target),          cmocka_unit_test(test_names_and_values),
        cmocka_unit_test(test_zero_in_a_value), cmocka_unit_test(test_whole_urls),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
