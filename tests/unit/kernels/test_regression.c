/* regression: certified and hard problems, shapes of all kinds, errors. */
#include "tests/unit/kernels/kernel_support.h"

#include "base/err.h"
#include "kernels/regression/regression.h"

/* Longley's data (1967), as certified by NIST: 16 years, 6 features, cond 5e9. */
static const double longley[16][7] = {{60323, 83.0, 234289, 2356, 1590, 107608, 1947},
                                      {61122, 88.5, 259426, 2325, 1456, 108632, 1948},
                                      {60171, 88.2, 258054, 3682, 1616, 109773, 1949},
                                      {61187, 89.5, 284599, 3351, 1650, 110929, 1950},
                                      {63221, 96.2, 328975, 2099, 3099, 112075, 1951},
                                      {63639, 98.1, 346999, 1932, 3594, 113270, 1952},
                                      {64989, 99.0, 365385, 1870, 3547, 115094, 1953},
                                      {63761, 100.0, 363112, 3578, 3350, 116219, 1954},
                                      {66019, 101.2, 397469, 2904, 3048, 117388, 1955},
                                      {67857, 104.6, 419180, 2822, 2857, 118734, 1956},
                                      {68169, 108.4, 442769, 2936, 2798, 120445, 1957},
                                      {66513, 110.8, 444546, 4681, 2637, 121950, 1958},
                                      {68655, 112.6, 482704, 3813, 2552, 123366, 1959},
                                      {69564, 114.2, 502601, 3931, 2514, 125368, 1960},
                                      {69331, 115.7, 518173, 4806, 2572, 127852, 1961},
                                      {70551, 116.9, 554894, 4007, 2827, 130081, 1962}};
static const double longley_coef[7] = {-3482258.63459582, 15.0618722713733,  -0.358191792925910E-01,
                                       -2.02022980381683, -1.03322686717359, -0.511041056535807E-01,
                                       1829.15146461355};

static double digits(double got, double expected) {
    if (got == expected) return 16;
    return -log10(fabs(got - expected) / (expected == 0 ? 1 : fabs(expected)));
}

static void longley_has_its_digits(void **state) {
    struct trial *t = trial_new("regression");
    double *x = trial_input(t, "x", BLASD_float64, BLASD_ROW_MAJOR, 2, (int64_t[]){16, 6});
    double *y = trial_input(t, "y", BLASD_float64, BLASD_ROW_MAJOR, 1, (int64_t[]){16});
    (void)state;
    for (int i = 0; i < 16; i++) {
        y[i] = longley[i][0];
        memcpy(x + 6 * i, longley[i] + 1, 6 * sizeof *x);
    }
    assert_int_equal(trial_run(t), 0);
    assert_true(digits(trial_value(trial_output(t, "intercept"), 0), longley_coef[0]) >= 12);
    for (int j = 0; j < 6; j++)
        assert_true(digits(trial_value(trial_output(t, "coef"), j), longley_coef[1 + j]) >= 12);
    assert_true(digits(trial_value(trial_output(t, "r2"), 0), 0.995479004577296) >= 13);
    assert_true(digits(trial_value(trial_output(t, "ssr"), 0), 836424.055505915) >= 13);
    assert_int_equal(((int64_t *)trial_output(t, "rank")->data)[0], 7);
    assert_int_equal(((int64_t *)trial_output(t, "df_resid")->data)[0], 9);
    trial_free(t);
}

/* Wampler 1 to 5 are polynomials of degree 5 on x = 0 .. 20; 3 to 5 have residuals added. */
static void wampler_has_its_digits(void **state) {
    static const double delta[21] = {759,   -2048, 2048,  -2048, 2523,  -2048, 2048,
                                     -2048, 1838,  -2048, 2048,  -2048, 1838,  -2048,
                                     2048,  -2048, 2523,  -2048, 2048,  -2048, 759};
    (void)state;
    for (int set = 1; set <= 5; set++) {
        struct trial *t = trial_new("regression");
        double *x = trial_input(t, "x", BLASD_float64, BLASD_ROW_MAJOR, 2, (int64_t[]){21, 5});
        double *y = trial_input(t, "y", BLASD_float64, BLASD_ROW_MAJOR, 1, (int64_t[]){21});
        double size = set == 4 ? 100 : set == 5 ? 10000 : set == 3 ? 1 : 0;
        for (int i = 0; i < 21; i++) {
            long double sum = 0, power = 1;
            for (int j = 0; j <= 5; j++, power *= i) {
                if (j > 0) x[i * 5 + j - 1] = (double)power;
                sum += set == 2 ? power / powl(10, j) : power;
            }
            y[i] = (double)sum + size * delta[i];
        }
        assert_int_equal(trial_run(t), 0);
        for (int j = 0; j <= 5; j++) {
            double got = j == 0 ? trial_value(trial_output(t, "intercept"), 0)
                                : trial_value(trial_output(t, "coef"), j - 1);
            double expected = set == 2 ? pow(10, -j) : 1;
            if (!(digits(got, expected) >= 9))
                fail_msg("Wampler %d, coefficient %d is %.17g", set, j, got);
        }
        trial_free(t);
    }
}

/* Against exact small solutions: y is made from integer coefficients and integer features, so that
 * the answer is known whatever the shape, the order or the batch. */
static void exact_problems_in_batches(void **state) {
    struct trial *list[4];
    const int64_t n = 23, p = 4;
    (void)state;
    for (int c = 0; c < 4; c++) {
        float *x, *y;
        list[c] = trial_new("regression");
        x = trial_input(list[c], "x", BLASD_float32, BLASD_ROW_MAJOR, 3, (int64_t[]){5, n, p});
        y = trial_input(list[c], "y", BLASD_float32, BLASD_ROW_MAJOR, 3, (int64_t[]){5, n, 2});
        for (int64_t i = 0; i < 5 * n * p; i++) x[i] = (float)trial_between(-50, 50);
        for (int64_t i = 0; i < 5 * n; i++) {
            for (int target = 0; target < 2; target++) {
                y[i * 2 + target] = (float)(7 - target);
                for (int64_t j = 0; j < p; j++)
                    y[i * 2 + target] += x[i * p + j] * (float)(j - 2 * target + 1);
            }
        }
    }
    assert_int_equal(trial_run_batch(list, 4), 0);
    for (int c = 0; c < 4; c++) {
        for (int64_t at = 0; at < 10; at++) {
            int64_t target = at % 2;
            ASSERT_CLOSE(trial_value(trial_output(list[c], "intercept"), at), 7 - target, 1e-25);
            for (int64_t j = 0; j < p; j++)
                ASSERT_CLOSE(trial_value(trial_output(list[c], "coef"), at * p + j),
                             j - 2 * target + 1, 1e-25);
        }
        trial_free(list[c]);
    }
}

/* The solution of least norm is orthogonal to every null vector, and fits as well as any. */
static void deficient_and_wide_designs_have_least_norm(void **state) {
    (void)state;
    for (int64_t n = 1; n <= 12; n++) {
        for (int64_t p = 2; p <= 9; p++) {
            struct trial *t = trial_new("regression");
            double *x = trial_input(t, "x", BLASD_float64, BLASD_ROW_MAJOR, 2, (int64_t[]){n, p});
            double *y = trial_input(t, "y", BLASD_float64, BLASD_ROW_MAJOR, 1, (int64_t[]){n});
            bool intercept = (n + p) % 2 == 0;
            double left, right;
            for (int64_t i = 0; i < n; i++) {
                for (int64_t j = 0; j < p; j++) x[i * p + j] = trial_normal();
                x[i * p + 1] = 2 * x[i * p]; /* so (2, -1, 0, ...) is a null vector */
                y[i] = trial_normal();
            }
            trial_set_bool(t, "fit_intercept", intercept);
            assert_int_equal(trial_run(t), 0);
            assert_int_equal(t->task.warning_count, 1);
            left = trial_value(trial_output(t, "coef"), 0);
            right = trial_value(trial_output(t, "coef"), 1);
            ASSERT_CLOSE(2 * left, right, 1e-12 * (1 + fabs(right)));
            if (n <= p - 1 + intercept) /* wide: goes through every point */
                ASSERT_CLOSE(trial_value(trial_output(t, "ssr"), 0), 0, 1e-20);
            trial_free(t);
        }
    }
}

static void bad_shapes_are_refused(void **state) {
    static const struct {
        int64_t n, p, y, w;
        enum blasd_code code;
    } cases[] = {{4, 2, 5, 0, BLASD_E_shape_mismatch},
                 {0, 2, 0, 0, BLASD_E_invalid_shape},
                 {4, 2, 4, 3, BLASD_E_shape_mismatch}};
    (void)state;
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        struct trial *t = trial_new("regression");
        trial_input(t, "x", BLASD_float64, BLASD_ROW_MAJOR, 2, (int64_t[]){cases[c].n, cases[c].p});
        trial_input(t, "y", BLASD_float64, BLASD_ROW_MAJOR, 1, &cases[c].y);
        if (cases[c].w > 0)
            trial_input(t, "sample_weight", BLASD_float64, BLASD_ROW_MAJOR, 1, &cases[c].w);
        assert_int_equal(trial_plan(t), cases[c].code);
        trial_free(t);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(longley_has_its_digits),
        cmocka_unit_test(wampler_has_its_digits),
        cmocka_unit_test(exact_problems_in_batches),
        cmocka_unit_test(deficient_and_wide_designs_have_least_norm),
        cmocka_unit_test(bad_shapes_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
