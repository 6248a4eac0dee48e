/* What workers say of themselves, of which some is no JSON. */
#include "wire/stats_load.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

/* What Redis takes for an object, and is none. */
static const char *const broken[] = {
    "{\"a\":NaN}",          "{\"a\":-Infinity}",
    "{\"a\":inf}",          "{\"a\":0x10}",
    "{\"a\":1e999}",        "{\"a\":01}",
    "{\"a\":\"\xff\"}",     "{\"a\":\"\\ud800\"}",
    "{\"a\":\"x\\u0000\"}", "{\"a\":[1,[nan,\"]\"]]}",
    "{\"a\":\"\n\"}",       "{\"a\":99999999999999999999}",
};

static void check(const char *text, const char *wanted) {
    json_t *is = blasd_stats_load(text, strlen(text));
    json_t *should = wanted == NULL ? NULL : json_loads(wanted, 0, NULL);
    if (wanted == NULL ? is != NULL : !json_equal(is, should))
        fail_msg("%s is read as %s", text, is == NULL ? "nothing" : json_dumps(is, 0));
    json_decref(is);
    json_decref(should);
}

static void test_one_that_is_broken_is_left_out(void **state) {
    char text[512];
    (void)state;
    for (size_t i = 0; i < sizeof broken / sizeof *broken; i++) {
        snprintf(text, sizeof text,
                 "{\"totals\":{\"x\":1},\"workers\":{\"a\":{\"pid\":[1,{\"b\":\"}\"}]},\"b\":%s,"
                 "\"c\":{}},\"figures\":{\"a\":{},\"b\":%s},\"queue\":{\"jobs\":2}}",
                 broken[i], broken[i]);
        check(text, "{\"totals\":{\"x\":1},\"workers\":{\"a\":{\"pid\":[1,{\"b\":\"}\"}]},"
                    "\"c\":{}},\"figures\":{\"a\":{}},\"queue\":{\"jobs\":2}}");
        snprintf(text, sizeof text, "{\"workers\":{\"b\":%s}}", broken[i]);
        check(text, "{\"workers\":{}}");
    }
}

/* Of what is no worker's nothing may be missing. */
static void test_what_is_no_text_of_ours(void **state) {
    static const char *const texts[] = {
        "",
        "nothing",
        "{",
        "{\"workers\":{\"a\":{\"b\":NaN}",
        "{\"workers\":{\"a\":NaN}}x{",
        "{\"queue\":{\"jobs\":NaN}}",
        "{\"workers\":{\"a\":NaN},\"queue\":{\"jobs\":NaN}}",
    };
    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) check(texts[i], NULL);
    check("{\"workers\":{},\"rows\":[]}", "{\"workers\":{},\"rows\":[]}");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_that_is_broken_is_left_out),
        cmocka_unit_test(test_what_is_no_text_of_ours),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
