/* Strings: what is read here beside what jansson makes of the same text. */
#include "wire/json_text.h"

#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* Reads the JSON string that `string` begins with, up to the end of the text. */
static int read_inside(const char *string, struct blasd_buf *inside, struct blasd_err *err) {
    char room[64] = "";
    size_t len = strlen(string);
    struct blasd_json_text text = {.start = room, .depth_max = 8};
    const char *next = NULL;
    int rc;
    memcpy(room, string, len);
    text.end = room + len;
    rc = blasd_json_inside(&text, room, inside, &next, err);
    if (rc == 0) assert_int_equal(next[-1], '"');
    return rc;
}

static void expect_inside(const char *string, const char *expected, size_t len) {
    struct blasd_buf inside;
    struct blasd_err err;
    assert_int_equal(read_inside(string, &inside, &err), 0);
    assert_int_equal(inside.len, len);
    assert_memory_equal(inside.data, expected, len);
    blasd_buf_release(&inside);
}

static void test_what_a_string_says(void **state) {
    (void)state;
    expect_inside("\"\"", "", 0);
    expect_inside("\"a b~\"", "a b~", 4);
    expect_inside("\"{\\\"a\\\":[1]}\"", "{\"a\":[1]}", 9);
    expect_inside("\"\\\\\\/\\b\\f\\n\\r\\t\"", "\\/\b\f\n\r\t", 7);
    expect_inside("\"\\\\\"", "\\", 1);
    expect_inside("\"\\u0041\\u00e9\"", "A\xc3\xa9", 3); /* jansson's */
    expect_inside("\"\xc3\xa9\\n\"", "\xc3\xa9\n", 3);
}

static void expect_refused(const char *string) {
    struct blasd_buf inside;
    struct blasd_err err;
    assert_int_equal(read_inside(string, &inside, &err), -(int)BLASD_E_malformed_json);
    blasd_buf_release(&inside);
}

static void test_what_is_no_string(void **state) {
    (void)state;
    expect_refused("\"abc");
    expect_refused("\"abc\\\"");
    expect_refused("\"\\x\"");
    expect_refused("\"\\u00\"");
    expect_refused("\"a\nb\"");
    expect_refused("\"\xff\"");
}

/* Reads the string as jansson does. */
static void compare_string(const char *string) {
    json_t *theirs =
        json_loadb(string, strlen(string), JSON_DECODE_ANY | JSON_DISABLE_EOF_CHECK, NULL);
    struct blasd_buf ours;
    struct blasd_err err;
    int rc = read_inside(string, &ours, &err);
    assert_int_equal(rc == 0, theirs != NULL);
    if (theirs != NULL) {
        assert_int_equal(ours.len, json_string_length(theirs));
        assert_memory_equal(ours.data, json_string_value(theirs), ours.len);
    }
    blasd_buf_release(&ours);
    json_decref(theirs);
}

/* Every text of three bytes of those that matter. */
static void test_as_jansson(void **state) {
    static const char bytes[] = "\"\\/bfnrtux0 ~\x7f\x1f\n\xc3\xa9";
    const size_t count = sizeof bytes - 1;
    (void)state;
    for (size_t n = 0; n < count * count * count; n++) {
        const char string[] = {
            '"', bytes[n % count], bytes[n / count % count], bytes[n / count / count], '"', '\0'};
        compare_string(string);
    }
}

/* Every byte as one of the digits of an escape. */
static void test_digits_as_jansson(void **state) {
    (void)state;
    for (int byte = 1; byte < 256; byte++)
        for (int at = 0; at < 4; at++) {
            char string[] = "\"\\u00e9\"";
            string[3 + at] = (char)byte;
            compare_string(string);
        }
}

/* Escapes of characters, alone and in pairs. */
static void test_characters_as_jansson(void **state) {
    static const char *const parts[] = {
        "\\u0000", "\\u0041", "\\u00e9",          "\\u07ff",      "\\uD7ff", "\\ud800",
        "\\uDBFF", "\\udc00", "\\uDfff",          "\\uffff",      "\\u12g4", "\\u123",
        "a",       "\\n",     "\xf0\x9f\x98\x80", "\xed\xa0\x80", "\xc0\x80"};
    const size_t count = sizeof parts / sizeof *parts;
    (void)state;
    for (size_t n = 0; n < count * count; n++) {
        char string[32];
        snprintf(string, sizeof string, "\"%s%s\"", parts[n % count], parts[n / count]);
        compare_string(string);
    }
}

/* Every text of five bytes of those that values are made of, taken as a whole. */
static void test_values_as_jansson(void **state) {
    static const char bytes[] = "[]{}:,\"10-.e+ ";
    const size_t count = sizeof bytes - 1;
    (void)state;
    for (size_t n = 0; n < count * count * count * count * count; n++) {
        char room[5 + BLASD_JSON_SLACK] = "";
        struct blasd_json_text text = {room, room + 5, 8};
        const char *next;
        struct blasd_err err;
        json_t *theirs;
        size_t left = n;
        bool good;
        for (int i = 0; i < 5; i++, left /= count) room[i] = bytes[left % count];
        theirs = json_loadb(room, 5, JSON_DECODE_ANY, NULL);
        good = blasd_json_check(&text, blasd_json_space(room), 0, &next, &err) == 0 &&
               blasd_json_end(&text, next, "it", &err) == 0;
        if (good != (theirs != NULL)) print_error("text %s\n", room);
        assert_int_equal(good, theirs != NULL);
        json_decref(theirs);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_a_string_says), cmocka_unit_test(test_what_is_no_string),
        cmocka_unit_test(test_as_jansson),         cmocka_unit_test(test_characters_as_jansson),
        cmocka_unit_test(test_digits_as_jansson),  cmocka_unit_test(test_values_as_jansson),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
