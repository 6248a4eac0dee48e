/* regression: coefficients of every method against references and optimality conditions, shapes of
 * all kinds, batches, rank, errors. Certified sets and statistics have files of their own. */
#include "tests/unit/kernels/kernel_support.h"

#include "base/err.h"
#include "kernels/regression/ref_regression.h"
#include "kernels/regression/regression.h"

static double value(const struct trial *t, const char *output, int64_t i) {
    return trial_value(trial_output(t, output), i);
}

/* A random problem with its design matrix. */
struct problem {
    struct trial *t;
    int64_t n, p, q;
    double *x, *y, *w, *a; /* a: owned, [1 X] or X */
};

static struct problem problem_new(int64_t n, int64_t p, bool intercept, bool weighted,
                                  double offset) {
    struct problem pr = {.t = trial_new("regression"), .n = n, .p = p, .q = p + intercept};
    pr.x = trial_input(pr.t, "x", BLASD_float64, BLASD_ROW_MAJOR, 2, (int64_t[]){n, p});
    pr.y = trial_input(pr.t, "y", BLASD_float64, BLASD_ROW_MAJOR, 1, &n);
    if (weighted) pr.w = trial_input(pr.t, "sample_weight", BLASD_float64, BLASD_ROW_MAJOR, 1, &n);
    pr.a = calloc((size_t)(n * pr.q) + 1, sizeof *pr.a);
    assert_non_null(pr.a);
    for (int64_t i = 0; i < n; i++) {
        pr.y[i] = trial_normal();
        for (int64_t j = 0; j < p; j++) {
            pr.x[i * p + j] = trial_normal() + offset;
            pr.y[i] += (double)(j % 4) * pr.x[i * p + j];
            pr.a[i * pr.q + j + intercept] = pr.x[i * p + j];
        }
        if (intercept) pr.a[i * pr.q] = 1;
        if (weighted) pr.w[i] = 0.5 + (double)(trial_random() % 5);
    }
    trial_set_bool(pr.t, "fit_intercept", intercept);
    return pr;
}

static void problem_free(struct problem *pr) {
    free(pr->a);
    trial_free(pr->t);
}

static double coefficient(const struct problem *pr, int64_t j) {
    int64_t first = pr->q - pr->p;
    return j < first ? value(pr->t, "intercept", 0) : value(pr->t, "coef", j - first);
}

static const int64_t shapes[][2] = {{2, 1}, {5, 3},  {40, 1},    {31, 12},  {200, 8},
                                    {1, 0}, {70, 0}, {2500, 21}, {501, 45}, {40000, 4}};

static void least_squares_match_reference(void **state) {
    (void)state;
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
        for (int c = 0; c < 8; c++) {
            bool intercept = c & 1 || shapes[s][1] == 0, ridge = (c & 4) != 0;
            struct problem pr =
                problem_new(shapes[s][0], shapes[s][1], intercept, (c & 2) != 0, c == 3 ? 1e4 : 1);
            struct blasd_ref_problem ref = {.n = pr.n, .q = pr.q, .a = pr.a, .y = pr.y, .w = pr.w};
            long double *b = calloc((size_t)pr.q + 1, sizeof *b);
            assert_non_null(b);
            if (ridge) {
                trial_set_choice(pr.t, "method", "ridge");
                trial_set_float(pr.t, "alpha", 3.5);
                ref.penalty = 3.5;
                ref.penalised = intercept;
            }
            assert_int_equal(trial_run(pr.t), 0);
            blasd_ref_least_squares(&ref, b, NULL);
            for (int64_t j = 0; j < pr.q; j++) {
                double size = 1 + fabs((double)b[j]);
                if (j == 0 && c == 3)
                    size += 1e4 * (double)pr.p; /* the intercept carries the offsets */
                if (!(fabs(coefficient(&pr, j) - (double)b[j]) <= (ridge ? 1e-11 : 4e-14) * size))
                    fail_msg("(%ld, %ld) case %d, coefficient %ld: %.17g, expected %.17Lg",
                             (long)pr.n, (long)pr.p, c, (long)j, coefficient(&pr, j), b[j]);
            }
            free(b);
            problem_free(&pr);
        }
    }
}

/* Wide and deficient designs: the residual is orthogonal to every feature (with the ridge's
 * pull), the coefficients lie in the span of the (centred) rows, which makes their norm least. */
static void deficient_and_wide_designs_have_least_norm(void **state) {
    (void)state;
    for (int64_t n = 1; n <= 13; n++) {
        for (int64_t p = 2; p <= 9; p++) {
            bool intercept = (n + p) % 2 == 0;
            struct problem pr = problem_new(n, p, intercept, n % 3 == 0, 0);
            double left, right;
            for (int64_t i = 0; i < n; i++) /* so (2, -1, 0, ...) is a null vector */
                pr.x[i * p + 1] = 2 * pr.x[i * p];
            assert_int_equal(trial_run(pr.t), 0);
            assert_int_equal(pr.t->task.warning_count, 1);
            assert_true(value(pr.t, "rank", 0) < (double)pr.q);
            left = value(pr.t, "coef", 0);
            right = value(pr.t, "coef", 1);
            ASSERT_CLOSE(2 * left, right, 1e-12 * (1 + fabs(right)));
            if (n <= p - 1 + intercept) /* goes through every point */
                ASSERT_CLOSE(value(pr.t, "ssr", 0), 0, 1e-20);
            problem_free(&pr);
        }
    }
}

/* Wide enough for the way without a triangle: b = A'(AA')^-1 y, checked through A b = y and b's
 * being a combination of rows, by comparing its norm with that of the ridge's limit. */
static void large_wide_problems_interpolate(void **state) {
    (void)state;
    for (int c = 0; c < 2; c++) {
        struct problem pr = problem_new(30, 400, c == 1, false, 1);
        double norm = 0, other = 0;
        assert_int_equal(trial_run(pr.t), 0);
        assert_int_equal(value(pr.t, "rank", 0), 30);
        for (int64_t i = 0; i < 30; i++) {
            double fitted = c == 1 ? value(pr.t, "intercept", 0) : 0;
            for (int64_t j = 0; j < 400; j++) fitted += pr.x[i * 400 + j] * value(pr.t, "coef", j);
            ASSERT_CLOSE(fitted, pr.y[i], 1e-10);
        }
        for (int64_t j = 0; j < 400; j++) norm += pow(value(pr.t, "coef", j), 2);
        trial_set_choice(pr.t, "method", "ridge");
        trial_set_float(pr.t, "alpha", 1e-7);
        assert_int_equal(trial_run(pr.t), 0);
        for (int64_t j = 0; j < 400; j++) other += pow(value(pr.t, "coef", j), 2);
        ASSERT_CLOSE(norm / other, 1, 1e-6);
        problem_free(&pr);
    }
}

/* What makes coefficients the minimum: for each, the gradient of the squares equals the penalty's
 * pull, or is within it where the coefficient is 0. */
static void penalised_fits_are_optimal(void **state) {
    static const int64_t sizes[][2] = {{30, 4}, {200, 30}, {3000, 25}, {15, 40}, {40, 600}};
    (void)state;
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        for (int c = 0; c < 8; c++) {
            bool lasso = c & 4, intercept = c & 1, weighted = c & 2;
            int64_t n = sizes[s][0], p = sizes[s][1];
            struct problem pr = problem_new(n, p, intercept, weighted, 0.5);
            double total = 0, alpha = 0.4, ratio = lasso ? 1 : 0.6, size = 0;
            double *left = calloc((size_t)n, sizeof *left);
            assert_non_null(left);
            trial_set_choice(pr.t, "method", lasso ? "lasso" : "elastic_net");
            trial_set_float(pr.t, "alpha", alpha);
            if (!lasso) trial_set_float(pr.t, "l1_ratio", ratio);
            assert_int_equal(trial_run(pr.t), 0);
            assert_int_equal(pr.t->task.warning_count, 0);
            assert_true(value(pr.t, "n_iter", 0) >= 1);
            for (int64_t i = 0; i < n; i++) {
                double w = weighted ? pr.w[i] : 1;
                total += w;
                left[i] = pr.y[i];
                for (int64_t j = 0; j < pr.q; j++)
                    left[i] -= pr.a[i * pr.q + j] * coefficient(&pr, j);
                left[i] *= w;
                size += fabs(w * pr.y[i]);
            }
            for (int64_t j = 0; j < pr.q; j++) {
                double b = coefficient(&pr, j), pull = 0, slope = 0;
                for (int64_t i = 0; i < n; i++) slope += pr.a[i * pr.q + j] * left[i];
                if (j >= intercept) pull = alpha * ratio * total;
                slope -= j >= intercept ? alpha * (1 - ratio) * total * b : 0;
                if (b != 0 || j < intercept)
                    ASSERT_CLOSE(slope, b > 0 ? pull : -pull, 1e-8 * size);
                else
                    assert_true(fabs(slope) <= pull * (1 + 1e-8));
            }
            free(left);
            problem_free(&pr);
        }
    }
}

static void sweeps_that_do_not_suffice_are_told(void **state) {
    struct problem pr = problem_new(60, 20, true, false, 5);
    (void)state;
    trial_set_choice(pr.t, "method", "lasso");
    trial_set_float(pr.t, "alpha", 1e-4);
    trial_set_int(pr.t, "max_iter", 1);
    assert_int_equal(trial_run(pr.t), 0);
    assert_int_equal(pr.t->task.warning_count, 1);
    assert_true(value(pr.t, "dual_gap", 0) > 0);
    problem_free(&pr);
}

static void descent_has_the_iterates_of_the_plain_way(void **state) {
    static const int64_t sizes[][2] = {{1, 1}, {50, 3}, {400, 11}, {5, 30}};
    (void)state;
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        for (int64_t steps = 0; steps <= 700; steps = steps * 9 + 1) {
            bool intercept = steps != 1, weighted = s % 2 == 1;
            struct problem pr = problem_new(sizes[s][0], sizes[s][1], intercept, weighted, 0.5);
            struct blasd_ref_problem ref = {.n = pr.n, .q = pr.q, .a = pr.a, .y = pr.y, .w = pr.w};
            long double b[40] = {0};
            double rate = 0.02 / (double)(pr.q < 10 ? 1 : pr.q / 10);
            trial_set_choice(pr.t, "method", "gd");
            trial_set_float(pr.t, "learning_rate", rate);
            trial_set_int(pr.t, "iterations", steps);
            assert_int_equal(trial_run(pr.t), 0);
            blasd_ref_descent(&ref, rate, steps, b);
            for (int64_t j = 0; j < pr.q; j++)
                ASSERT_CLOSE(coefficient(&pr, j), b[j], 1e-12 * (1 + fabsl(b[j])));
            problem_free(&pr);
        }
    }
}

static void descent_that_diverges_is_told(void **state) {
    struct problem pr = problem_new(20, 2, true, false, 100);
    (void)state;
    trial_set_choice(pr.t, "method", "gd");
    trial_set_float(pr.t, "learning_rate", 1);
    trial_set_int(pr.t, "iterations", 1000);
    assert_int_equal(trial_run(pr.t), 0);
    assert_int_equal(pr.t->task.warning_count, 1);
    problem_free(&pr);
}

/* Integer coefficients and features: the answer is known whatever the shape or the batch. */
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
        assert_int_equal(trial_output(list[c], "coef")->dtype, BLASD_float32);
        assert_int_equal(list[c]->task.err.code, BLASD_OK);
        for (int64_t at = 0; at < 10; at++) {
            int64_t target = at % 2;
            ASSERT_CLOSE(value(list[c], "intercept", at), 7 - target, 1e-25);
            for (int64_t j = 0; j < p; j++)
                ASSERT_CLOSE(value(list[c], "coef", at * p + j), j - 2 * target + 1, 1e-25);
        }
        trial_free(list[c]);
    }
}

/* The same problem alone, in a batch, with x broadcast, in column-major order: the same bits. */
static void results_do_not_depend_on_the_batch(void **state) {
    const int64_t n = 37, p = 3, count = 700;
    struct trial *all = trial_new("regression");
    double *x = trial_input(all, "x", BLASD_float64, BLASD_ROW_MAJOR, 2, (int64_t[]){n, p});
    double *y = trial_input(all, "y", BLASD_float64, BLASD_ROW_MAJOR, 2, (int64_t[]){n, count});
    struct trial *dealt = trial_new("regression");
    double *xs = trial_input(dealt, "x", BLASD_float64, BLASD_ROW_MAJOR, 3, (int64_t[]){1, n, p});
    double *ys = trial_input(dealt, "y", BLASD_float64, BLASD_ROW_MAJOR, 2, (int64_t[]){count, n});
    (void)state;
    for (int64_t i = 0; i < n * p; i++) x[i] = xs[i] = trial_normal();
    for (int64_t i = 0; i < n; i++)
        for (int64_t b = 0; b < count; b++) y[i * count + b] = ys[b * n + i] = trial_normal();
    assert_int_equal(trial_run(all), 0);
    assert_int_equal(trial_run(dealt), 0);
    for (int64_t b = 0; b < count; b += 97) {
        struct trial *one = trial_new("regression");
        double *x1 = trial_input(one, "x", BLASD_float64, BLASD_COLUMN_MAJOR, 2, (int64_t[]){n, p});
        double *y1 = trial_input(one, "y", BLASD_float64, BLASD_ROW_MAJOR, 1, &n);
        for (int64_t i = 0; i < n; i++)
            for (int64_t j = 0; j < p; j++) x1[j * n + i] = x[i * p + j];
        memcpy(y1, ys + b * n, (size_t)n * sizeof *y1);
        assert_int_equal(trial_run(one), 0);
        for (int64_t j = 0; j < p; j++) {
            double got = value(one, "coef", j);
            assert_true(got == value(dealt, "coef", b * p + j));
            assert_true(got == value(all, "coef", b * p + j));
        }
        assert_true(value(one, "ssr", 0) == value(dealt, "ssr", b));
        trial_free(one);
    }
    trial_free(all);
    trial_free(dealt);
}

/* Units of measurement, offsets and extreme scales change nothing but the units of the answer. */
static void scales_do_not_matter(void **state) {
    static const double scales[] = {1e-200, 1e-100, 1e-9, 1e9, 1e100, 1e150};
    (void)state;
    for (size_t s = 0; s < sizeof scales / sizeof *scales; s++) {
        for (int big = 0; big < 2; big++) {
            struct problem pr = problem_new(big ? 4000 : 30, big ? 20 : 3, true, false, 2);
            double before[20];
            assert_int_equal(trial_run(pr.t), 0);
            for (int64_t j = 0; j < pr.p; j++) before[j] = value(pr.t, "coef", j);
            for (int64_t i = 0; i < pr.n; i++) pr.x[i * pr.p] *= scales[s];
            assert_int_equal(trial_run(pr.t), 0);
            assert_int_equal(value(pr.t, "rank", 0), (int)pr.q);
            for (int64_t j = 0; j < pr.p; j++)
                ASSERT_CLOSE(value(pr.t, "coef", j) * (j == 0 ? scales[s] : 1), before[j],
                             1e-12 * (1 + fabs(before[j])));
            problem_free(&pr);
        }
    }
}

static void bad_jobs_are_refused(void **state) {
    static const struct {
        int64_t n, p, y, w;
        enum blasd_code code;
    } cases[] = {{4, 2, 5, 0, BLASD_E_shape_mismatch},
                 {0, 2, 0, 0, BLASD_E_invalid_shape},
                 {4, 2, 4, 3, BLASD_E_shape_mismatch}};
    struct problem pr;
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
    pr = problem_new(5, 2, true, true, 0);
    pr.x[3] = NAN;
    assert_int_equal(trial_plan(pr.t), BLASD_E_not_finite);
    pr.x[3] = 0;
    trial_set_float(pr.t, "alpha", 1); /* ols has none */
    assert_int_equal(trial_plan(pr.t), BLASD_E_invalid_parameter);
    assert_string_equal(pr.t->err.field, "params.alpha");
    problem_free(&pr);
    pr = problem_new(5, 2, true, true, 0);
    pr.w[2] = -1;
    assert_int_equal(trial_run(pr.t), BLASD_E_out_of_range);
    for (int i = 0; i < 5; i++) pr.w[i] = 0;
    assert_int_equal(trial_run(pr.t), BLASD_E_out_of_range);
    problem_free(&pr);
}

static void a_bad_member_fails_alone(void **state) {
    struct problem list[3];
    struct trial *trials[3];
    (void)state;
    for (int c = 0; c < 3; c++) {
        list[c] = problem_new(9, 2, true, true, 0);
        trials[c] = list[c].t;
    }
    list[1].w[4] = -2;
    assert_int_equal(trial_run_batch(trials, 3), 0);
    assert_int_equal(trials[0]->task.err.code, BLASD_OK);
    assert_int_equal(trials[1]->task.err.code, BLASD_E_out_of_range);
    assert_int_equal(trials[2]->task.err.code, BLASD_OK);
    assert_true(isfinite(value(trials[2], "coef", 1)));
    for (int c = 0; c < 3; c++) problem_free(&list[c]);
}

static void long_work_can_be_stopped(void **state) {
    struct problem pr = problem_new(150000, 20, true, false, 0);
    (void)state;
    assert_int_equal(trial_run(pr.t), 0);
    assert_true(trial_watch.calls >= 2);
    trial_watch.stop_after = 2;
    assert_int_equal(trial_run(pr.t), BLASD_E_cancelled);
    trial_watch.stop_after = 0;
    problem_free(&pr);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(least_squares_match_reference),
        cmocka_unit_test(deficient_and_wide_designs_have_least_norm),
        cmocka_unit_test(large_wide_problems_interpolate),
        cmocka_unit_test(penalised_fits_are_optimal),
        cmocka_unit_test(sweeps_that_do_not_suffice_are_told),
        cmocka_unit_test(descent_has_the_iterates_of_the_plain_way),
        cmocka_unit_test(descent_that_diverges_is_told),
        cmocka_unit_test(exact_problems_in_batches),
        cmocka_unit_test(results_do_not_depend_on_the_batch),
        cmocka_unit_test(scales_do_not_matter),
        cmocka_unit_test(bad_jobs_are_refused),
        cmocka_unit_test(a_bad_member_fails_alone),
        cmocka_unit_test(long_work_can_be_stopped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
