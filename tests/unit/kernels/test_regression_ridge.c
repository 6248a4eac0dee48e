/* ridge whose penalty is large against the features, where QR over the penalty's rows would lose
 * digits; and penalties without absolute values, which are ridge by another name. */
#include "tests/unit/kernels/kernel_support.h"

#include "base/err.h"

/* (X'X + alpha)^-1 X'y for alpha far above X'X: the series of powers of X'X / alpha. */
static void series(const double *x, const double *y, int64_t n, int64_t p, long double alpha,
                   long double *b) {
    long double *term = calloc((size_t)p, sizeof *term), *left = calloc((size_t)n, sizeof *left);
    assert_true(term != NULL && left != NULL);
    for (int64_t i = 0; i < n; i++) left[i] = (long double)y[i];
    for (int64_t j = 0; j < p; j++) b[j] = 0;
    for (int power = 0; power < 40; power++) {
        for (int64_t j = 0; j < p; j++) {
            term[j] = 0;
            for (int64_t i = 0; i < n; i++) term[j] += (long double)x[i * p + j] * left[i];
            term[j] /= alpha;
            b[j] += term[j];
        }
        for (int64_t i = 0; i < n; i++) {
            left[i] = 0;
            for (int64_t j = 0; j < p; j++) left[i] -= (long double)x[i * p + j] * term[j];
        }
    }
    free(term);
    free(left);
}

static void large_penalties(void **state) {
    static const int64_t shapes[][2] = {{30, 4}, {5, 12}, {3000, 20}, {8, 150}};
    static const double scales[] = {1, 1e-2, 1e-5, 1e-9, 1e-14, 1e-100, 1e-200, 1e40};
    (void)state;
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (size_t k = 0; k < sizeof scales / sizeof *scales; k++)
            for (int times = 0; times < 2; times++) {
                int64_t n = shapes[s][0], p = shapes[s][1];
                double alpha = (times == 0 ? 100 : 1e9) * (double)(n * p) * fmax(scales[k], 1e-40) *
                               fmax(scales[k], 1e-40);
                struct trial *t = trial_new("regression");
                long double *b = calloc((size_t)p, sizeof *b);
                double *x = trial_input(t, "x", BLASD_float64, BLASD_ROW_MAJOR, 2, shapes[s]);
                double *y = trial_input(t, "y", BLASD_float64, BLASD_ROW_MAJOR, 1, &n);
                assert_non_null(b);
                for (int64_t i = 0; i < n; i++) {
                    y[i] = trial_normal() + 1;
                    for (int64_t j = 0; j < p; j++) x[i * p + j] = scales[k] * trial_normal();
                }
                trial_set_choice(t, "method", "ridge");
                trial_set_bool(t, "fit_intercept", false);
                trial_set_float(t, "alpha", alpha);
                assert_int_equal(trial_run(t), BLASD_OK);
                series(x, y, n, p, (long double)alpha, b);
                for (int64_t j = 0; j < p; j++) {
                    double got = trial_value(trial_output(t, "coef"), j), size = 0;
                    for (int64_t i = 0; i < n; i++) size += fabs(x[i * p + j] * y[i]) / alpha;
                    if (!(fabs(got - (double)b[j]) <= 1e-14 * size))
                        fail_msg("(%ld, %ld) times %g, alpha %g: coef[%ld] is %.17g, not %.17Lg",
                                 (long)n, (long)p, scales[k], alpha, (long)j, got, b[j]);
                }
                free(b);
                trial_free(t);
            }
}

/* elastic_net with l1_ratio 0 is ridge with n times the penalty; without a penalty everything is
 * ols. */
static void penalties_without_absolute_values(void **state) {
    static const struct {
        const char *method;
        double alpha, ratio;
    } cases[] = {{"elastic_net", 0.25, 0}, {"elastic_net", 0, 0.5}, {"lasso", 0, 1}};
    /* of each way; without a penalty wide ones have a warning */
    static const int64_t sizes[][2] = {{40, 5}, {22000, 5}, {20, 40}};
    (void)state;
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++)
        for (int kind = 0; kind < (cases[c].alpha > 0 ? 6 : 4); kind++) {
            const int64_t n = sizes[kind / 2][0], p = sizes[kind / 2][1];
            const bool weighted = kind % 2 == 1;
            struct trial *t[2];
            for (int k = 0; k < 2; k++) {
                double *x, *y, total = 0;
                t[k] = trial_new("regression");
                trial_seed = 77 + c;
                x = trial_input(t[k], "x", BLASD_float64, BLASD_ROW_MAJOR, 2, (int64_t[]){n, p});
                y = trial_input(t[k], "y", BLASD_float64, BLASD_ROW_MAJOR, 2, (int64_t[]){n, 2});
                for (int i = 0; i < n * p; i++) x[i] = trial_normal() + 1;
                for (int i = 0; i < n * 2; i++) y[i] = trial_normal();
                if (weighted) {
                    double *w =
                        trial_input(t[k], "sample_weight", BLASD_float64, BLASD_ROW_MAJOR, 1, &n);
                    for (int i = 0; i < n; i++) total += w[i] = (double)(i % 3);
                } else {
                    total = (double)n;
                }
                trial_set_choice(t[k], "method", k == 0 ? cases[c].method : "ridge");
                trial_set_float(t[k], "alpha", k == 0 ? cases[c].alpha : cases[c].alpha * total);
                if (k == 0 && strcmp(cases[c].method, "lasso") != 0)
                    trial_set_float(t[k], "l1_ratio", cases[c].ratio);
                assert_int_equal(trial_run(t[k]), BLASD_OK);
                assert_int_equal(t[k]->task.err.code, BLASD_OK);
                assert_int_equal(t[k]->task.warning_count, 0);
            }
            for (int l = 0; l < 2; l++) {
                for (int64_t j = 0; j < p; j++)
                    assert_true(trial_value(trial_output(t[0], "coef"), l * p + j) ==
                                trial_value(trial_output(t[1], "coef"), l * p + j));
                assert_true(trial_value(trial_output(t[0], "intercept"), l) ==
                            trial_value(trial_output(t[1], "intercept"), l));
                assert_true(trial_value(trial_output(t[0], "n_iter"), l) == 0);
                assert_true(trial_value(trial_output(t[0], "dual_gap"), l) == 0);
            }
            trial_free(t[0]);
            trial_free(t[1]);
        }
}

/* Features of very different sizes beside one penalty: each has rows of its own, so that its
 * coefficient is known. */
static void features_of_all_sizes(void **state) {
    static const double alphas[] = {1, 1e-12, 1e12};
    (void)state;
    for (size_t k = 0; k < 3; k++)
        for (int wide = 0; wide < 2; wide++) {
            const int64_t p = 12, n = wide ? 8 : 24, each = wide ? 1 : 2;
            struct trial *t = trial_new("regression");
            double *x = trial_input(t, "x", BLASD_float64, BLASD_ROW_MAJOR, 2, (int64_t[]){n, p});
            double *y = trial_input(t, "y", BLASD_float64, BLASD_ROW_MAJOR, 1, &n);
            for (int64_t i = 0; i < n * p; i++) x[i] = 0;
            for (int64_t i = 0; i < n; i++) {
                x[i * p + i / each] =
                    (1 + trial_uniform() / 2) * pow(10, (double)(i / each * 7 % 12) * 2 - 11);
                y[i] = 1 + trial_uniform() / 2;
            }
            trial_set_choice(t, "method", "ridge");
            trial_set_bool(t, "fit_intercept", false);
            trial_set_float(t, "alpha", alphas[k]);
            assert_int_equal(trial_run(t), BLASD_OK);
            for (int64_t j = 0; j < p; j++) {
                long double along = 0, square = (long double)alphas[k], wish;
                for (int64_t i = 0; i < n; i++) {
                    along += (long double)x[i * p + j] * (long double)y[i];
                    square += (long double)x[i * p + j] * (long double)x[i * p + j];
                }
                wish = along / square;
                ASSERT_CLOSE(trial_value(trial_output(t, "coef"), j), wish, 1e-14L * fabsl(wish));
            }
            trial_free(t);
        }
}

/* An observation of p features of sizes 10^decades to 1, but for the last, which is the first. */
static void draw_twice(double *x, int64_t p, int decades) {
    for (int64_t j = 0; j < p; j++)
        x[j] = trial_normal() * pow(10, decades - (double)(decades * j / (p - 1)));
    x[p - 1] = x[0];
}

/* The same feature twice, beside others of sizes up to 1e2 and 1e15: both have half of what one
 * would have, whatever rounding makes of the difference between them, or it is said. */
static void the_same_feature_twice(void **state) {
    static const int64_t shapes[][2] = {{24, 3},  {30, 6},    {4, 7},   {7, 20},
                                        {60, 40}, {3000, 20}, {20, 200}};
    static const double alphas[] = {1e-4, 1, 1e5};
    (void)state;
    TRIAL_FULL_ON_DEVICE();
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (int k = 0; k < 12; k++) {
            int64_t n = shapes[s][0], p = shapes[s][1];
            int decades = k < 6 ? 15 : 2;
            struct trial *t = trial_new("regression");
            double *x = trial_input(t, "x", BLASD_float64, BLASD_ROW_MAJOR, 2, shapes[s]);
            double *y = trial_input(t, "y", BLASD_float64, BLASD_ROW_MAJOR, 1, &n);
            for (int64_t i = 0; i < n; i++) {
                y[i] = trial_normal();
                draw_twice(x + i * p, p, decades);
            }
            trial_set_choice(t, "method", "ridge");
            trial_set_bool(t, "fit_intercept", k % 2 == 1);
            trial_set_float(t, "alpha", alphas[k % 6 / 2]);
            assert_int_equal(trial_run(t), BLASD_OK);
            if (t->task.warning_count == 0) {
                double one = trial_value(trial_output(t, "coef"), 0);
                ASSERT_CLOSE(trial_value(trial_output(t, "coef"), p - 1), (long double)one,
                             (decades == 15 ? 1e-15L : 1e-12L) * fabsl((long double)one));
            } else {
                if (decades != 15)
                    fail_msg("n %d p %d k %d: %s", (int)n, (int)p, k, t->task.warnings[0].text);
                assert_non_null(strstr(t->task.warnings[0].text, "condition"));
            }
            trial_free(t);
        }
}

/* The same of elastic_net, whose objective hardly knows them apart. */
static void the_same_feature_twice_beside_absolute_values(void **state) {
    static const int64_t shapes[][2] = {{24, 3}, {18, 4}, {30, 6}, {7, 20}};
    (void)state;
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (int k = 0; k < 16; k++) {
            int64_t n = shapes[s][0], p = shapes[s][1];
            int decades = k < 8 ? 9 : 3;
            struct trial *t = trial_new("regression");
            double *x = trial_input(t, "x", BLASD_float64, BLASD_ROW_MAJOR, 2, shapes[s]);
            double *y = trial_input(t, "y", BLASD_float64, BLASD_ROW_MAJOR, 1, &n), one;
            for (int64_t i = 0; i < n; i++) {
                draw_twice(x + i * p, p, decades);
                y[i] = trial_normal() + x[i * p] * pow(10, -decades);
            }
            trial_set_choice(t, "method", "elastic_net");
            trial_set_bool(t, "fit_intercept", k % 2 == 1);
            trial_set_float(t, "alpha", pow(10, -(k % 8) / 2));
            trial_set_float(t, "l1_ratio", k % 2 == 0 ? 0.9 : 1e-3);
            assert_int_equal(trial_run(t), BLASD_OK);
            one = trial_value(trial_output(t, "coef"), 0);
            assert_true(one != 0 || decades == 3);
            if (t->task.warning_count == 0)
                ASSERT_CLOSE(trial_value(trial_output(t, "coef"), p - 1), (long double)one,
                             1e-15L * fabsl((long double)one));
            else if (decades != 9)
                fail_msg("n %d p %d k %d: %s", (int)n, (int)p, k, t->task.warnings[0].text);
            trial_free(t);
        }
}

/* Too large for more digits than a double has: then it is said. */
static void what_is_too_large_is_said(void **state) {
    const int64_t n = 500, p = 460;
    (void)state;
    for (int twice = 0; twice < 2; twice++) {
        struct trial *t = trial_new("regression");
        double *x = trial_input(t, "x", BLASD_float64, BLASD_ROW_MAJOR, 2, (int64_t[]){n, p});
        double *y = trial_input(t, "y", BLASD_float64, BLASD_ROW_MAJOR, 1, &n);
        for (int64_t i = 0; i < n; i++) {
            y[i] = trial_normal();
            for (int64_t j = 0; j < p; j++) x[i * p + j] = trial_normal() * (j % 2 == 0 ? 1e15 : 1);
            if (twice) x[i * p + 2] = x[i * p];
        }
        trial_set_choice(t, "method", "ridge");
        assert_int_equal(trial_run(t), BLASD_OK);
        assert_int_equal(t->task.warning_count, twice);
        if (twice) assert_non_null(strstr(t->task.warnings[0].text, "condition"));
        trial_free(t);
    }
}

/* y = small + large, exactly: what the small one says of y is below the rounding of the large. */
static void small_beside_large(void **state) {
    static const int64_t rows[] = {9, 400000};
    (void)state;
    for (size_t k = 0; k < 2; k++) {
        const int64_t n = rows[k], p = 2;
        struct trial *t = trial_new("regression");
        double *x = trial_input(t, "x", BLASD_float64, BLASD_ROW_MAJOR, 2, (int64_t[]){n, p});
        double *y = trial_input(t, "y", BLASD_float64, BLASD_ROW_MAJOR, 1, &n);
        for (int64_t i = 0; i < n; i++) {
            x[2 * i] = (double)(i * 7 % 11 - 5);
            x[2 * i + 1] = (double)(i * 5 % 13 - 6) * 0x1p49;
            y[i] = x[2 * i] + x[2 * i + 1];
        }
        trial_set_choice(t, "method", "ridge");
        trial_set_bool(t, "fit_intercept", false);
        trial_set_float(t, "alpha", 0x1p-50);
        assert_int_equal(trial_run(t), BLASD_OK);
        assert_int_equal(t->task.warning_count, 0);
        for (int64_t j = 0; j < p; j++)
            ASSERT_CLOSE(trial_value(trial_output(t, "coef"), j), 1, 4e-16L);
        trial_free(t);
    }
}

/* Observations that are the same but for their targets are told apart by the penalty alone: the
 * coefficients are those of one observation twice as heavy, of the targets' mean. */
static void the_same_observation_twice(void **state) {
    static const int64_t features[] = {20, 40, 300, 500};
    (void)state;
    TRIAL_FULL_ON_DEVICE();
    for (int round = 0; round < 24; round++) {
        int64_t n = 12, p = features[round % 4];
        double alpha = pow(10, -2 - round);
        struct trial *t[2] = {trial_new("regression"), trial_new("regression")};
        double *x[2], *y[2], *w, size = 0;
        int doubts;
        for (int k = 0; k < 2; k++) {
            int64_t rows = n - k;
            x[k] = trial_input(t[k], "x", BLASD_float64, BLASD_ROW_MAJOR, 2, (int64_t[]){rows, p});
            y[k] = trial_input(t[k], "y", BLASD_float64, BLASD_ROW_MAJOR, 1, &rows);
            trial_set_choice(t[k], "method", "ridge");
            trial_set_bool(t[k], "fit_intercept", round % 3 > 0);
            trial_set_float(t[k], "alpha", alpha);
        }
        w = trial_input(t[1], "sample_weight", BLASD_float64, BLASD_ROW_MAJOR, 1,
                        (int64_t[]){n - 1});
        for (int64_t i = 0; i < n - 1; i++) {
            w[i] = i == 0 ? 2 : 1;
            y[0][i] = y[1][i] = (double)trial_between(-8, 8);
            for (int64_t j = 0; j < p; j++) x[0][i * p + j] = x[1][i * p + j] = trial_normal();
        }
        y[0][n - 1] = y[0][0] + 6;
        y[1][0] += 3;
        memcpy(x[0] + (n - 1) * p, x[0], (size_t)p * sizeof **x);
        for (int k = 0; k < 2; k++) assert_int_equal(trial_run(t[k]), BLASD_OK);
        for (int64_t j = 0; j < p; j++)
            size = fmax(size, fabs(trial_value(trial_output(t[1], "coef"), j)));
        doubts = t[0]->task.warning_count + t[1]->task.warning_count;
        for (int64_t j = 0; doubts == 0 && j < p; j++)
            ASSERT_CLOSE(trial_value(trial_output(t[0], "coef"), j),
                         trial_value(trial_output(t[1], "coef"), j), 1e-6 * size);
        assert_true(doubts == 0 || alpha < 1e-6);
        for (int k = 0; k < 2; k++) trial_free(t[k]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(features_of_all_sizes),
        cmocka_unit_test(large_penalties),
        cmocka_unit_test(penalties_without_absolute_values),
        cmocka_unit_test(small_beside_large),
        cmocka_unit_test(the_same_feature_twice),
        cmocka_unit_test(the_same_observation_twice),
        cmocka_unit_test(the_same_feature_twice_beside_absolute_values),
        cmocka_unit_test(what_is_too_large_is_said),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
