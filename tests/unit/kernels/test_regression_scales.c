/* Regression far from 1: the same data times powers of two must give the same answer times powers
 * of two, to the last bit, as long as that is a number; what has no unit must not change at all. */
#include "tests/unit/kernels/kernel_support.h"

#include "base/err.h"

#ifndef SCALES_EVERY
#define SCALES_EVERY 1 /* all combinations; a slow device may take one in so many */
#endif

enum { TARGETS = 2 };

struct kind {
    int64_t n, p;
    bool duplicate; /* the last feature is the first again */
};

static const struct kind kinds[] = {
    {40, 3, false}, {3000, 21, false}, {8, 15, false}, {30, 4, true}, {5, 2, false}};

/* What a job's numbers are multiplied by: 2^exponent. */
struct scales {
    int y[TARGETS], x[2], w; /* x: of even and odd features */
};

static const struct scales scales[] = {
    {{530, -530}, {0, 0}, 0},  {{1010, -1010}, {0, 0}, 0},     {{0, 700}, {0, 0}, 0},
    {{0, 0}, {0, 0}, 400},     {{0, 0}, {0, 0}, -900},         {{-560, 3}, {0, 0}, 600},
    {{2, -1}, {600, -600}, 0}, {{0, 0}, {-900, -700}, 0},      {{800, -10}, {700, 650}, 0},
    {{0, 0}, {0, 0}, 0},       {{-700, 600}, {-650, 0}, -602}, {{199, -199}, {0, 0}, 198},
};

struct options {
    const char *method, *cov;
    bool intercept, weighted;
};

static struct trial *run(const struct kind *kind, const struct options *options,
                         const struct scales *by, uint64_t seed) {
    struct trial *t = trial_new("regression");
    int64_t n = kind->n, p = kind->p;
    double *x = trial_input(t, "x", BLASD_float64, BLASD_ROW_MAJOR, 2, (int64_t[]){n, p}),
           *w = NULL;
    double *y = trial_input(t, "y", BLASD_float64, BLASD_ROW_MAJOR, 2, (int64_t[]){n, TARGETS});
    trial_seed = seed;
    if (options->weighted)
        w = trial_input(t, "sample_weight", BLASD_float64, BLASD_ROW_MAJOR, 1, &n);
    for (int64_t i = 0; i < n; i++) {
        double sum = 3;
        for (int64_t j = 0; j < p; j++) {
            double value =
                kind->duplicate && j == p - 1 ? ldexp(x[i * p], -by->x[0]) : trial_normal() + 0.5;
            sum += (double)(j % 3) * value;
            x[i * p + j] = ldexp(value, by->x[j % 2]);
            if (kind->duplicate && j == p - 1) x[i * p + j] = x[i * p];
        }
        for (int l = 0; l < TARGETS; l++)
            y[i * TARGETS + l] = ldexp(sum * (1 + l) + trial_normal(), by->y[l]);
        if (w != NULL) w[i] = ldexp((double)trial_between(i == 0 ? 1 : 0, 8) / 4, by->w);
    }
    trial_set_choice(t, "method", options->method);
    trial_set_bool(t, "fit_intercept", options->intercept);
    trial_set_bool(t, "residuals", true);
    if (strcmp(options->method, "gd") == 0) trial_set_int(t, "iterations", 25);
    if (options->cov != NULL) {
        trial_set_choice(t, "cov_type", options->cov);
        trial_set_bool(t, "cov_params", true);
    }
    assert_int_equal(trial_run(t), BLASD_OK);
    assert_int_equal(t->task.err.code, BLASD_OK);
    return t;
}

/* Checks output `name`: number i of `one` times 2^(unit of i) is number i of `far`. */
static void same(const struct trial *one, const struct trial *far, const char *name,
                 int (*unit)(int64_t i, const struct kind *kind, bool intercept,
                             const struct scales *by),
                 const struct kind *kind, bool intercept, const struct scales *by) {
    const struct blasd_tensor *a, *b;
    if (!trial_has_output(one, name)) return;
    a = trial_output(one, name);
    b = trial_output(far, name);
    for (int64_t i = 0; i < blasd_tensor_elements(a); i++) {
        double from = trial_value(a, i), to = trial_value(b, i);
        double expected = ldexp(from, unit(i, kind, intercept, by));
        if (expected == to || (isnan(expected) && isnan(to))) continue;
        fail_msg("%s[%ld] of (%ld, %ld), intercept %d: %.17g, expected %.17g", name, (long)i,
                 (long)kind->n, (long)kind->p, intercept, to, expected);
    }
}

#define UNIT(name, value)                                                                          \
    static int name(int64_t i, const struct kind *kind, bool intercept, const struct scales *by) { \
        int64_t p = kind->p, first = intercept ? 1 : 0, q = p + first;                             \
        (void)i, (void)by, (void)p, (void)first, (void)q;                                          \
        return value;                                                                              \
    }
static int of_column(int64_t j, int64_t first, const struct scales *by) {
    return j < first ? 0 : by->x[(j - first) % 2];
}
UNIT(unit_none, 0)
UNIT(unit_coef, by->y[i / p] - by->x[i % p % 2])
UNIT(unit_target, by->y[i])
UNIT(unit_each, by->y[i / q] - of_column(i % q, first, by))
UNIT(unit_pair, by->y[i / 2 / q] - of_column(i / 2 % q, first, by))
UNIT(unit_squares, 2 * by->y[i] + by->w)
UNIT(unit_rows, by->y[i % TARGETS])
UNIT(unit_cov,
     2 * by->y[i / (q * q)] - of_column(i / q % q, first, by) - of_column(i % q, first, by))

static void same_likelihood(const struct trial *one, const struct trial *far, const char *name,
                            double factor, int64_t n, const struct scales *by) {
    if (!trial_has_output(one, name)) return;
    for (int l = 0; l < TARGETS; l++) {
        double shift = factor * (double)n * by->y[l] * log(2);
        double parts = fabs(shift) + (double)n * fabs(by->w * log(2)); /* which cancel */
        double from = trial_value(trial_output(one, name), l);
        double to = trial_value(trial_output(far, name), l), expected = from + shift;
        if (expected == to) continue; /* infinite: a weight is 0 */
        if (!(fabs(to - expected) <= 1e-14 * (fabs(from) + parts)))
            fail_msg("%s[%d]: %.17g, expected %.17g", name, l, to, expected);
    }
}

static void compare(const struct kind *kind, const struct options *options, const struct scales *by,
                    const struct trial *one, const struct trial *far) {
    static const char *const plain[] = {"tvalues",  "pvalues",  "r2",       "r2_adj", "fvalue",
                                        "f_pvalue", "df_model", "df_resid", "rank"};
    bool first = options->intercept;
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++)
        same(one, far, plain[i], unit_none, kind, first, by);
    same(one, far, "coef", unit_coef, kind, first, by);
    same(one, far, "intercept", unit_target, kind, first, by);
    same(one, far, "stderr", unit_each, kind, first, by);
    same(one, far, "conf_int", unit_pair, kind, first, by);
    same(one, far, "ssr", unit_squares, kind, first, by);
    same(one, far, "tss", unit_squares, kind, first, by);
    same(one, far, "scale", unit_squares, kind, first, by);
    same(one, far, "residuals", unit_rows, kind, first, by);
    same(one, far, "fitted", unit_rows, kind, first, by);
    same(one, far, "cov_params", unit_cov, kind, first, by);
    same_likelihood(one, far, "loglik", -1, kind->n, by);
    same_likelihood(one, far, "aic", 2, kind->n, by);
    same_likelihood(one, far, "bic", 2, kind->n, by);
}

static void least_squares(void **state) {
    static const char *const covs[] = {NULL, "nonrobust", "HC0", "HC1", "HC2", "HC3"};
    (void)state;
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
        for (size_t s = 0; s < sizeof scales / sizeof *scales; s++)
            for (int c = 0; c < 24; c++) {
                struct options options = {"ols", covs[c / 4], (c & 1) != 0, (c & 2) != 0};
                struct scales by = scales[s], unit = {{0, 0}, {0, 0}, 0};
                struct trial *one, *far;
                /* the least norm is one of coefficients in one unit */
                bool unique = kinds[k].n > kinds[k].p + 1 && !kinds[k].duplicate;
                if (kinds[k].n > 1000 && (c + (int)s) % 6 != 0) continue;
                if ((c + (int)(s + k)) % SCALES_EVERY != 0) continue;
                if (!options.weighted) by.w = 0;
                if (!unique) by.x[1] = by.x[0];
                one = run(&kinds[k], &options, &unit, 5 + k);
                far = run(&kinds[k], &options, &by, 5 + k);
                compare(&kinds[k], &options, &by, one, far);
                trial_free(one);
                trial_free(far);
            }
}

static void other_methods(void **state) {
    (void)state;
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
        for (size_t s = 0; s < sizeof scales / sizeof *scales; s++)
            for (int c = 0; c < 8; c++) {
                struct options options = {c < 4 ? "ridge" : "gd", NULL, (c & 1) != 0, (c & 2) != 0};
                struct scales by = scales[s], unit = {{0, 0}, {0, 0}, 0};
                struct trial *one, *far;
                if ((c + (int)(s + k)) % SCALES_EVERY != 0) continue;
                by.w = by.x[0] = by.x[1] = 0; /* the penalty and the steps have units of them */
                one = run(&kinds[k], &options, &unit, 5 + k);
                far = run(&kinds[k], &options, &by, 5 + k);
                compare(&kinds[k], &options, &by, one, far);
                trial_free(one);
                trial_free(far);
            }
}

/* A descent whose coefficients stay in range until they are taken back to the user's unit. */
static void descent_that_leaves_the_range(void **state) {
    const int64_t n = 4, p = 1;
    struct trial *t = trial_new("regression");
    double *x = trial_input(t, "x", BLASD_float64, BLASD_ROW_MAJOR, 2, (int64_t[]){n, p});
    double *y = trial_input(t, "y", BLASD_float64, BLASD_ROW_MAJOR, 1, &n);
    (void)state;
    for (int i = 0; i < n; i++) {
        x[i] = i + 1;
        y[i] = 1e300 * (i % 2 == 0 ? 1 : -1);
    }
    trial_set_choice(t, "method", "gd");
    trial_set_float(t, "learning_rate", 10);
    trial_set_int(t, "iterations", 20);
    assert_int_equal(trial_run(t), BLASD_OK);
    assert_true(isinf(trial_value(trial_output(t, "coef"), 0)));
    assert_true(t->task.warning_count == 1);
    trial_free(t);
}

/* lasso, whose penalty is tied to the units of both: y by 2^y, x by 2^x, alpha by 2^(x + y); of
 * elastic_net x and y alike. */
static void penalties_of_absolute_values(void **state) {
    static const struct {
        int y, x;
        const char *method;
    } cases[] = {{0, 0, "lasso"},           {530, 0, "lasso"},
                 {-530, 0, "lasso"},        {0, 900, "lasso"},
                 {0, -900, "lasso"},        {600, -300, "lasso"},
                 {-700, -200, "lasso"},     {0, 0, "elastic_net"},
                 {400, 400, "elastic_net"}, {-480, -480, "elastic_net"},
                 {201, 201, "elastic_net"}};
    struct trial *plain = NULL;
    (void)state;
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        const int64_t n = 30, p = 4;
        struct trial *t = trial_new("regression");
        double *x = trial_input(t, "x", BLASD_float64, BLASD_ROW_MAJOR, 2, (int64_t[]){n, p});
        double *y = trial_input(t, "y", BLASD_float64, BLASD_ROW_MAJOR, 1, &n);
        trial_seed = 7;
        for (int64_t i = 0; i < n; i++) {
            double sum = 3 + 0.1 * trial_normal();
            for (int64_t j = 0; j < p; j++) {
                double value = trial_normal();
                sum += (double)(j - 1) * value;
                x[i * p + j] = ldexp(value, cases[k].x);
            }
            y[i] = ldexp(sum, cases[k].y);
        }
        trial_set_choice(t, "method", cases[k].method);
        trial_set_float(t, "alpha", ldexp(0.125, cases[k].x + cases[k].y));
        assert_int_equal(trial_run(t), BLASD_OK);
        assert_int_equal(t->task.warning_count, 0);
        if (cases[k].y == 0 && cases[k].x == 0) {
            trial_free(plain);
            plain = t;
            continue;
        }
        for (int64_t j = 0; j < p; j++)
            assert_true(
                trial_value(trial_output(t, "coef"), j) ==
                ldexp(trial_value(trial_output(plain, "coef"), j), cases[k].y - cases[k].x));
        assert_true(trial_value(trial_output(t, "r2"), 0) ==
                    trial_value(trial_output(plain, "r2"), 0));
        assert_true(trial_value(trial_output(t, "n_iter"), 0) ==
                    trial_value(trial_output(plain, "n_iter"), 0));
        trial_free(t);
    }
    trial_free(plain);
}

/* Weights times 2^w, with the penalty of ridge; the others' belongs to each unit of weight. */
static void weights_beside_penalties(void **state) {
    static const char *const methods[] = {"ridge", "lasso", "elastic_net", "gd", "elastic_net"};
    static const int exponents[] = {0, 198, 400, -400, 900, -900, -1010};
    (void)state;
    for (size_t m = 0; m < sizeof methods / sizeof *methods; m++)
        for (int first = 0; first < 2; first++) {
            struct trial *plain = NULL;
            for (size_t k = 0; k < sizeof exponents / sizeof *exponents; k++) {
                const int64_t n = 30, p = 4;
                struct trial *t = trial_new("regression");
                double *x =
                    trial_input(t, "x", BLASD_float64, BLASD_ROW_MAJOR, 2, (int64_t[]){n, p});
                double *y = trial_input(t, "y", BLASD_float64, BLASD_ROW_MAJOR, 1, &n);
                double *w = trial_input(t, "sample_weight", BLASD_float64, BLASD_ROW_MAJOR, 1, &n);
                trial_seed = 9;
                for (int64_t i = 0; i < n; i++) {
                    y[i] = 3 + 0.1 * trial_normal();
                    for (int64_t j = 0; j < p; j++) {
                        x[i * p + j] = trial_normal() + 0.5;
                        y[i] += (double)(j - 1) * x[i * p + j];
                    }
                    w[i] = ldexp(trial_uniform() + 1.5, exponents[k]);
                }
                trial_set_choice(t, "method", methods[m]);
                trial_set_bool(t, "fit_intercept", first != 0);
                trial_set_bool(t, "residuals", true);
                if (m != 3) trial_set_float(t, "alpha", ldexp(0.125, m == 0 ? exponents[k] : 0));
                if (m == 4) trial_set_float(t, "l1_ratio", 0);
                assert_int_equal(trial_run(t), BLASD_OK);
                assert_int_equal(t->task.warning_count, 0);
                if (plain == NULL) {
                    plain = t;
                    continue;
                }
                for (int64_t j = 0; j < p; j++)
                    assert_true(trial_value(trial_output(t, "coef"), j) ==
                                trial_value(trial_output(plain, "coef"), j));
                for (int64_t i = 0; i < n; i++)
                    assert_true(trial_value(trial_output(t, "residuals"), i) ==
                                trial_value(trial_output(plain, "residuals"), i));
                assert_true(trial_value(trial_output(t, "r2"), 0) ==
                            trial_value(trial_output(plain, "r2"), 0));
                assert_true(trial_value(trial_output(t, "tss"), 0) ==
                            ldexp(trial_value(trial_output(plain, "tss"), 0), exponents[k]));
                trial_free(t);
            }
            trial_free(plain);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(least_squares),
        cmocka_unit_test(other_methods),
        cmocka_unit_test(descent_that_leaves_the_range),
        cmocka_unit_test(penalties_of_absolute_values),
        cmocka_unit_test(weights_beside_penalties),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
