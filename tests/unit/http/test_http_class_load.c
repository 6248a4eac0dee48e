/* How much waits for each class, and how many workers would clear it. */
#include "http/class_load.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* What is said of a class; -1 where it does not say. */
static double of(const char *stats, double target_s, const char *class, const char *what) {
    json_t *load = http_load_document(stats, strlen(stats), target_s);
    const json_t *value =
        json_object_get(json_object_get(json_object_get(load, "classes"), class), what);
    double number = json_is_number(value) ? json_number_value(value) : -1;
    json_decref(load);
    return number;
}

#define WORKERS "\"workers\":{\"a\":{\"class\":\"cpu\"},\"b\":{\"class\":\"cpu\"}}"
#define ROW(queued, claimed, us)                                                                   \
    "{\"queued\":" #queued ",\"claimed\":" #claimed ",\"work_us\":" #us "}"

static void each_class_by_itself(void **state) {
    static const char stats[] = "{" WORKERS ",\"queue\":{\"any\":{},\"cpu\":{\"high\":" ROW(
        7, 1, 50e6) ",\"low\":" ROW(2, 0, 10e6) "},\"cuda\":{\"normal\":" ROW(4, 0, 2e6) "}}}";
    (void)state;
    assert_true(of(stats, 30, "cpu", "waiting_s") == 60);
    assert_int_equal(of(stats, 30, "cpu", "workers"), 2);
    assert_int_equal(of(stats, 30, "cpu", "wanted"), 2);
    assert_int_equal(of(stats, 29, "cpu", "wanted"), 3);
    assert_int_equal(of(stats, 0.001, "cpu", "wanted"), 10); /* more would have nothing to do */
    assert_true(of(stats, 30, "cuda", "waiting_s") == 2);
    assert_int_equal(of(stats, 30, "cuda", "workers"), 0);
    assert_int_equal(of(stats, 30, "cuda", "wanted"), 1);
}

static void jobs_for_any_class(void **state) {
    static const char nobody[] =
        "{\"workers\":{},\"queue\":{\"any\":{\"normal\":" ROW(3, 0, 3000) "}}}";
    static const char card[] =
        "{\"workers\":{\"c\":{\"class\":\"cuda\"}},\"queue\":{\"any\":{\"normal\":" ROW(3, 0,
                                                                                        3000) "}}}";
    (void)state;
    assert_int_equal(of(nobody, 30, "cpu", "wanted"), 1);
    assert_int_equal(of(nobody, 30, "cuda", "wanted"), 0);
    assert_int_equal(of(card, 30, "cpu", "wanted"), 0);
    assert_int_equal(of(card, 30, "cuda", "wanted"), 1);
}

static void what_runs_keeps_its_worker(void **state) {
    static const char runs[] = "{" WORKERS ",\"queue\":{\"cpu\":{\"normal\":" ROW(0, 1, 900) "}}}";
    static const char idle[] = "{" WORKERS ",\"queue\":{\"cpu\":{\"normal\":" ROW(0, 0, 0) "}}}";
    (void)state;
    assert_int_equal(of(runs, 1e9, "cpu", "wanted"), 1);
    assert_int_equal(of(idle, 0.001, "cpu", "wanted"), 0);
    assert_true(of(idle, 0.001, "cpu", "waiting_s") == 0);
}

static void what_is_no_document(void **state) {
    (void)state;
    assert_null(http_load_document("{", 1, 30));
    assert_int_equal(of("{}", 30, "cpu", "wanted"), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_class_by_itself),
        cmocka_unit_test(jobs_for_any_class),
        cmocka_unit_test(what_runs_keeps_its_worker),
        cmocka_unit_test(what_is_no_document),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
