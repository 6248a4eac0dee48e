/* What regression and lstsq say of data that do not tell all that is asked: features that depend on
 * each other but for the rounding of the dtype they were sent in, observations that decide a
 * coefficient alone, targets that are met or do not vary. Each is right or warned of with its code,
 * and data that are neither are not warned of. */
#include "tests/unit/kernels/kernel_support.h"

static struct trial *fit_of(int64_t n, int64_t p, enum blasd_dtype dtype, const double *x,
                            const double *y) {
    struct trial *t = trial_new("regression");
    void *to = trial_input(t, "x", dtype, BLASD_ROW_MAJOR, 2, (int64_t[]){n, p});
    for (int64_t i = 0; i < n * p; i++) trial_put(to, dtype, i, x[i]);
    to = trial_input(t, "y", dtype, BLASD_ROW_MAJOR, 1, &n);
    for (int64_t i = 0; i < n; i++) trial_put(to, dtype, i, y[i]);
    return t;
}

static double value(const struct trial *t, const char *output, int64_t i) {
    return trial_value(trial_output(t, output), i);
}

static bool coded(const struct trial *t, enum blasd_warning_code code) {
    for (int i = 0; i < t->task.warning_count; i++)
        if (t->task.warnings[i].code == code) return true;
    return false;
}

/* ---- features ---- */

enum { ROWS = 60, MOST = 4 };

static double single(double x) {
    return (double)(float)x;
}

/* Each fills a row of features, and returns how many there are. */
static int shares(double *x) {
    double sum = 0;
    for (int j = 0; j < 3; j++) sum += x[j] = 50 + 49 * trial_uniform();
    for (int j = 0; j < 3; j++) x[j] /= sum;
    return 3;
}
static int percentages(double *x) {
    int p = shares(x);
    for (int j = 0; j < p; j++) x[j] *= 100;
    return p;
}
static int temperatures(double *x) {
    x[0] = 10 + 20 * trial_uniform();
    x[1] = x[0] * 1.8 + 32;
    return 2;
}
static int kelvin(double *x) {
    x[0] = 293 + 2 * trial_normal();
    x[1] = x[0] * 1.8 - 459.67;
    return 2;
}
static int net_and_gross(double *x) {
    x[0] = exp(5 + trial_normal());
    x[1] = x[0] / 1.19;
    return 2;
}
static int metres_and_feet(double *x) {
    x[0] = 5000 + trial_uniform();
    x[1] = x[0] / 0.3048;
    return 2;
}
static int parts_and_sum(double *x) {
    x[0] = single(500 + 500 * trial_uniform());
    x[1] = single(500 + 500 * trial_uniform());
    x[2] = x[0] + x[1];
    x[3] = x[0] - x[1] + 0.1;
    return 4;
}
static int logarithms(double *x) {
    double a = exp(trial_normal()), b = exp(trial_normal());
    x[0] = log(a);
    x[1] = log(b);
    x[2] = log(a * b);
    return 3;
}
static int dollars_and_share(double *x) {
    x[0] = exp(11 + trial_normal());
    x[1] = (1 + trial_uniform()) / 2;
    return 2;
}
static int years(double *x) {
    x[0] = (double)trial_between(1950, 2020);
    x[1] = x[0] * x[0];
    x[2] = x[1] * x[0];
    return 3;
}
static int two_powers_of_years(double *x) {
    (void)years(x);
    return 2;
}
static int milliseconds(double *x) {
    x[0] = 1.7e12 + (double)trial_between(0, 100000);
    x[1] = trial_uniform();
    return 2;
}
static int dummies(double *x) {
    int64_t at = trial_between(0, 3);
    for (int j = 0; j < 3; j++) x[j] = at == j;
    return 3;
}
static int identifiers(double *x) {
    x[0] = 1000000 + (double)trial_between(0, 99);
    x[1] = trial_normal();
    return 2;
}

static void features_are_judged_by_what_was_sent(void **state) {
    static const struct {
        const char *name;
        int (*fill)(double *x);
        bool depend; /* but for rounding; else they are right in float64, and if `singly` float32 */
        bool singly;
    } cases[] = {{"shares", shares, true, true},
                 {"percentages", percentages, true, true},
                 {"temperatures", temperatures, true, true},
                 {"kelvin", kelvin, true, true},
                 {"net and gross", net_and_gross, true, true},
                 {"metres and feet", metres_and_feet, true, true},
                 {"parts and sum", parts_and_sum, true, true},
                 {"logarithms", logarithms, true, true},
                 {"dollars and share", dollars_and_share, false, true},
                 {"years", years, false, false},
                 {"two powers of years", two_powers_of_years, false, true},
                 {"milliseconds", milliseconds, false, false},
                 {"dummies", dummies, false, true},
                 {"identifiers", identifiers, false, true}};
    (void)state;
    for (int c = 0; c < 2 * (int)(sizeof cases / sizeof *cases); c++) {
        enum blasd_dtype dtype = c % 2 == 0 ? BLASD_float64 : BLASD_float32;
        for (int draw = 0; draw < 4; draw++) {
            double x[ROWS * MOST], y[ROWS], row[MOST];
            struct trial *t;
            int p = 0;
            for (int i = 0; i < ROWS; i++) {
                p = cases[c / 2].fill(row);
                memcpy(x + (int64_t)i * p, row, (size_t)p * sizeof *row);
                y[i] = trial_normal();
            }
            t = fit_of(ROWS, p, dtype, x, y);
            assert_int_equal(trial_run(t), BLASD_OK);
            if (cases[c / 2].depend || (dtype == BLASD_float32 && !cases[c / 2].singly)) {
                if (!coded(t, BLASD_W_rank_deficient) && !coded(t, BLASD_W_ill_conditioned))
                    fail_msg("%s %d: no warning", cases[c / 2].name, c % 2);
                assert_true(value(t, "info", 0) == (double)t->task.warnings[0].code);
            } else {
                if (t->task.warning_count > 0)
                    fail_msg("%s %d: %s", cases[c / 2].name, c % 2, t->task.warnings[0].text);
                assert_true(value(t, "rank", 0) == p + 1 && value(t, "info", 0) == 0);
            }
            trial_free(t);
        }
    }
}

/* ---- robust errors ---- */

/* Observation 0 alone has feature 0; or three have it and targets that are met. Feature 1 has
 * residuals. */
static void coefficients_without_residuals(void **state) {
    static const char *const covs[] = {"HC0", "HC1", "HC2", "HC3"};
    (void)state;
    for (int c = 0; c < 8; c++) {
        double x[20 * 2] = {0}, y[20];
        bool divides = c % 4 >= 2, met = c >= 4;
        struct trial *t;
        for (int i = 0; i < 20; i++) {
            x[i * 2] = i < (met ? 3 : 1) ? 2 : 0;
            x[i * 2 + 1] = i < (met ? 3 : 1) ? 0 : trial_normal();
            y[i] = met && i < 3 ? 0.5 : trial_normal();
        }
        t = fit_of(20, 2, BLASD_float64, x, y);
        trial_set_bool(t, "fit_intercept", false);
        trial_set_choice(t, "cov_type", covs[c % 4]);
        trial_set_bool(t, "cov_params", true);
        assert_int_equal(trial_run(t), BLASD_OK);
        assert_true(coded(t, BLASD_W_leverage_one));
        assert_int_equal(value(t, "info", 0), BLASD_W_leverage_one);
        assert_true(divides && !met ? isnan(value(t, "stderr", 0)) : value(t, "stderr", 0) == 0);
        assert_true(isnan(value(t, "tvalues", 0)) && isnan(value(t, "pvalues", 0)));
        assert_true(isnan(value(t, "conf_int", 0)) && isnan(value(t, "conf_int", 1)));
        assert_true(isnan(value(t, "fvalue", 0)) && isnan(value(t, "f_pvalue", 0)));
        if (!divides || met) {
            assert_true(value(t, "stderr", 1) > 0.01 && value(t, "pvalues", 1) <= 1);
            assert_true(value(t, "cov_params", 0) == 0 && value(t, "cov_params", 1) == 0);
        }
        trial_free(t);
    }
}

/* ---- targets ---- */

static void targets_without_errors(void **state) {
    static const struct {
        const char *method;
        double slope, noise, constant;
        enum blasd_dtype dtype;
        int code; /* of warnings; 0: none */
    } cases[] = {{"ols", 0, 0, 0.1, BLASD_float64, BLASD_W_constant_target},
                 {"ols", 0, 0, 1e9 + 0.1, BLASD_float32, BLASD_W_constant_target},
                 {"ridge", 0, 0, 0.1, BLASD_float64, BLASD_W_constant_target},
                 {"gd", 0, 0, 0.1, BLASD_float64, BLASD_W_constant_target},
                 {"ols", 2, 0, 1, BLASD_float64, BLASD_W_exact_fit},
                 {"ols", 1.0 / 3, 0, 0.1, BLASD_float64, BLASD_W_exact_fit},
                 {"ols", 1.0 / 3, 0, 0.1, BLASD_float32, BLASD_W_exact_fit},
                 {"ols", 1.0 / 3, 0, 1e3, BLASD_float64, BLASD_W_exact_fit},
                 {"ols", 2, 1e-9, 1, BLASD_float64, 0},
                 {"ols", 2, 1e-3, 1, BLASD_float32, 0},
                 {"ols", 0, 1e-6, 1, BLASD_float64, 0}};
    (void)state;
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        double x[30], y[30];
        struct trial *t;
        for (int i = 0; i < 30; i++) {
            x[i] = (double)trial_between(-50, 50);
            y[i] = cases[c].constant + cases[c].slope * x[i] + cases[c].noise * trial_normal();
        }
        t = fit_of(30, 1, cases[c].dtype, x, y);
        trial_set_choice(t, "method", cases[c].method);
        if (strcmp(cases[c].method, "gd") == 0) trial_set_float(t, "learning_rate", 1e-4);
        assert_int_equal(trial_run(t), BLASD_OK);
        assert_int_equal(value(t, "info", 0), cases[c].code);
        assert_int_equal(t->task.warning_count, cases[c].code != 0);
        if (cases[c].code == BLASD_W_constant_target)
            assert_true(!isfinite(value(t, "r2", 0)) && value(t, "tss", 0) == 0);
        if (cases[c].code == BLASD_W_exact_fit) assert_true(value(t, "r2", 0) > 1 - 1e-12);
        trial_free(t);
    }
}

/* What is said of a member of a stack is what is said of it alone. */
static void members_of_stacks(void **state) {
    double x[4 * 12] = {0}, y[4 * 12];
    struct trial *t = trial_new("regression");
    int64_t shape[3] = {4, 12, 1};
    double *to;
    (void)state;
    for (int i = 0; i < 48; i++) {
        x[i] = i / 12 == 1 ? 0.3 : trial_normal(); /* 1: deficient */
        y[i] = i / 12 == 2 ? 7 : i / 12 == 3 ? 2 * x[i] : trial_normal();
    }
    to = trial_input(t, "x", BLASD_float64, BLASD_ROW_MAJOR, 3, shape);
    memcpy(to, x, sizeof x);
    to = trial_input(t, "y", BLASD_float64, BLASD_ROW_MAJOR, 2, shape);
    memcpy(to, y, sizeof y);
    assert_int_equal(trial_run(t), BLASD_OK);
    assert_int_equal(t->task.warning_count, 3);
    for (int64_t i = 0; i < 4; i++) {
        static const int codes[] = {0, BLASD_W_rank_deficient, BLASD_W_constant_target,
                                    BLASD_W_exact_fit};
        assert_int_equal(value(t, "info", i), codes[i]);
    }
    trial_free(t);
}

/* ---- lstsq ---- */

/* Two columns equal to `digits`, and a residual of 1: the error of singular values grows with the
 * square of their condition. The exact x: columns u and u + h v, for which u'v, u'b and v'b are
 * known. */
static void residuals_beside_columns_that_nearly_agree(void **state) {
    (void)state;
    for (int digits = 4; digits <= 12; digits++) {
        double h = ldexp(1, -3 * digits), a[16 * 2], b[16];
        struct trial *t = trial_new("lstsq");
        void *to;
        for (int i = 0; i < 16; i++) { /* u, v, and what is left are orthogonal */
            double u = i & 1 ? 1 : -1, v = i & 2 ? 1 : -1, left = i & 4 ? 3 : -3;
            a[i * 2] = u;
            a[i * 2 + 1] = u + h * v;
            b[i] = 2 * u + 5 * v + left;
        }
        to = trial_input(t, "a", BLASD_float64, BLASD_ROW_MAJOR, 2, (int64_t[]){16, 2});
        memcpy(to, a, sizeof a);
        to = trial_input(t, "b", BLASD_float64, BLASD_ROW_MAJOR, 1, (int64_t[]){16});
        memcpy(to, b, sizeof b);
        assert_int_equal(trial_run(t), BLASD_OK);
        assert_int_equal(t->task.warning_count, 0);
        assert_true(value(t, "x", 1) == 5 / h && value(t, "x", 0) == 2 - 5 / h);
        assert_true(value(t, "residuals", 0) == 16 * 9 && value(t, "info", 0) == 0);
        trial_free(t);
    }
}

/* Rows that nearly agree: the shortest x has no more digits than their condition leaves. */
static void lost_digits_are_told(void **state) {
    (void)state;
    for (int c = 0; c < 2; c++) {
        double h = c == 0 ? 0x1p-10 : 0x1p-40, a[2 * 8], b[2] = {1, 2};
        struct trial *t = trial_new("lstsq");
        void *to = trial_input(t, "a", BLASD_float64, BLASD_ROW_MAJOR, 2, (int64_t[]){2, 8});
        for (int i = 0; i < 8; i++) {
            a[i] = 1 + i;
            a[8 + i] = 1 + i + (i & 1 ? h : -h);
        }
        memcpy(to, a, sizeof a);
        to = trial_input(t, "b", BLASD_float64, BLASD_ROW_MAJOR, 1, (int64_t[]){2});
        memcpy(to, b, sizeof b);
        assert_int_equal(trial_run(t), BLASD_OK);
        assert_int_equal(value(t, "info", 0), c == 0 ? 0 : BLASD_W_precision_loss);
        assert_int_equal(coded(t, BLASD_W_precision_loss), c);
        trial_free(t);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(features_are_judged_by_what_was_sent),
        cmocka_unit_test(coefficients_without_residuals),
        cmocka_unit_test(targets_without_errors),
        cmocka_unit_test(members_of_stacks),
        cmocka_unit_test(residuals_beside_columns_that_nearly_agree),
        cmocka_unit_test(lost_digits_are_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
