/* What a job that runs is said to have left: never nonsense, whatever is known of it. */
#include "worker/remaining.h"

#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static const double times[] = {0, 1e-6, 0.2, 1, 60, 3600, 1e7};
#define assert_near(a, b, by) assert_true(fabs((a) - (b)) <= (by))
#define COUNT(list) (sizeof(list) / sizeof *(list))

static void test_before_there_is_progress_the_estimate_tells(void **state) {
    (void)state;
    assert_near(blasd_remaining_s(60, 0, 0), 60, 0);
    assert_near(blasd_remaining_s(60, 20, 0), 40, 0);
    assert_near(blasd_remaining_s(60, 200, 0), 140, 0); /* nothing but: it takes longer */
    assert_true(blasd_remaining_s(60, 60, 0) >= 6);     /* it has not ended, though */
}

static void test_an_even_pace_tells_the_end(void **state) {
    (void)state;
    for (size_t i = 0; i < COUNT(times); i++)
        for (double done = 0.1; done < 1; done += 0.07)
            assert_near(blasd_remaining_s(times[i], 100 * done, done), 100 * (1 - done), 1e-9);
    assert_near(blasd_remaining_s(60, 30, 1), 0, 0);
}

/* The whole way of a job whose pace is even, but was estimated `wrong` times too long: what is told
 * is never beyond what either says by more than the time so far, and leaps nowhere. */
static void test_no_leaps(void **state) {
    static const double wrongs[] = {0.001, 0.1, 1, 10, 1000};
    const double all_s = 100, step = 1e-5;
    (void)state;
    for (size_t i = 0; i < COUNT(wrongs); i++) {
        double estimate_s = wrongs[i] * all_s, last = blasd_remaining_s(estimate_s, 0, 0);
        for (double done = step; done <= 1; done += step) {
            double left = blasd_remaining_s(estimate_s, all_s * done, done);
            assert_true(left >= 0 && left <= fmax(estimate_s, all_s));
            assert_true(fabs(left - last) <= 1e-3 * fmax(estimate_s, all_s));
            last = left;
        }
        assert_true(last <= 2 * step * all_s);
    }
}

/* A first piece that takes long beside what it is of the whole. */
static void test_a_slow_start_is_not_taken_for_the_pace(void **state) {
    (void)state;
    for (double done = 1e-9; done < 0.1; done *= 3) {
        double left = blasd_remaining_s(10, 5, done);
        assert_true(left >= 4.5 && left <= 10 + 9 * 5);
    }
    assert_true(blasd_remaining_s(10, 5, 0.001) < 6); /* at that pace it were 83 minutes */
}

static void test_of_anything_a_finite_time(void **state) {
    static const double odd[] = {0,       -0.0,    -1,  1,        1e-300,    0.5,      1e300,
                                 DBL_MIN, DBL_MAX, NAN, INFINITY, -INFINITY, 1 + 1e-9, 1e-9};
    (void)state;
    for (size_t i = 0; i < COUNT(odd); i++)
        for (size_t j = 0; j < COUNT(odd); j++)
            for (size_t k = 0; k < COUNT(odd); k++) {
                double left = blasd_remaining_s(odd[i], odd[j], odd[k]);
                assert_true(isfinite(left) && left >= 0 && left * 1e6 < 0x1p62);
            }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_before_there_is_progress_the_estimate_tells),
        cmocka_unit_test(test_an_even_pace_tells_the_end),
        cmocka_unit_test(test_no_leaps),
        cmocka_unit_test(test_a_slow_start_is_not_taken_for_the_pace),
        cmocka_unit_test(test_of_anything_a_finite_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
