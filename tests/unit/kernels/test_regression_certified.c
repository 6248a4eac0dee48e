/* regression against NIST's certified sets: at least 9 digits, 7 on Filip (whose powers of x are
 * not representable to more). */
#include "tests/unit/kernels/kernel_support.h"
#include "tests/unit/kernels/nist_data.h"

#include "base/err.h"

static double digits(double got, double expected) {
    double off = fabs(got - expected) / (expected == 0 ? 1 : fabs(expected));
    return off == 0 ? 16 : -log10(off);
}

#define ASSERT_DIGITS(name, what, got, expected, least)                                            \
    do {                                                                                           \
        double got_ = (got), expected_ = (expected);                                               \
        if (!(digits(got_, expected_) >= (least)))                                                 \
            fail_msg("%s, %s: %.17g has %.1f digits of %.17g", name, what, got_,                   \
                     digits(got_, expected_), expected_);                                          \
    } while (0)

static double value(const struct trial *t, const char *output, int64_t i) {
    return trial_value(trial_output(t, output), i);
}

/* A polynomial's powers by repeated multiplication, as a user would make them; `copies` of the data
 * one below the other, which changes no coefficient and makes the problem tall. */
static struct trial *make(const struct nist_set *set, int64_t copies) {
    struct trial *t = trial_new("regression");
    int64_t n = set->n * copies;
    double *x = trial_input(t, "x", BLASD_float64, BLASD_ROW_MAJOR, 2, (int64_t[]){n, set->degree});
    double *y = trial_input(t, "y", BLASD_float64, BLASD_ROW_MAJOR, 1, &n);
    for (int64_t i = 0; i < n; i++) {
        double power = 1, base = set->data[i % set->n][1];
        y[i] = set->data[i % set->n][0];
        for (int j = 0; j < set->degree; j++) x[i * set->degree + j] = power *= base;
    }
    trial_set_bool(t, "fit_intercept", set->intercept != 0);
    return t;
}

/* Two sets have no residual. */
static void only_exact_fits_are_warned_of(const struct trial *t, const struct nist_set *set) {
    assert_int_equal(t->task.warning_count, set->residual_sd == 0);
    if (set->residual_sd == 0) assert_int_equal(t->task.warnings[0].code, BLASD_W_exact_fit);
    assert_int_equal(value(t, "info", 0), set->residual_sd == 0 ? BLASD_W_exact_fit : 0);
}

static void certified_sets_have_their_digits(void **state) {
    (void)state;
    for (size_t s = 0; s < sizeof nist_sets / sizeof *nist_sets; s++) {
        const struct nist_set *set = &nist_sets[s];
        struct trial *t = make(set, 1);
        double least = strcmp(set->name, "Filip") == 0 ? 7 : 11;
        assert_int_equal(trial_run(t), 0);
        only_exact_fits_are_warned_of(t, set);
        for (int j = 0; j < set->degree + set->intercept; j++) {
            double got = j < set->intercept ? value(t, "intercept", 0)
                                            : value(t, "coef", j - set->intercept);
            ASSERT_DIGITS(set->name, "coefficient", got, set->coef[j], least);
            if (set->residual_sd > 0)
                ASSERT_DIGITS(set->name, "standard error", value(t, "stderr", j), set->error[j],
                              least);
            else /* an exact fit: the errors are 0 but for the rounding of y */
                ASSERT_CLOSE(value(t, "stderr", j), 0, 1e-8);
        }
        if (set->residual_sd > 0)
            ASSERT_DIGITS(set->name, "residual sd", sqrt(value(t, "scale", 0)), set->residual_sd,
                          least);
        ASSERT_DIGITS(set->name, "r2", value(t, "r2", 0), set->r2, least < 9 ? 9 : 13);
        trial_free(t);
    }
}

/* Tall enough for the way through chunks: coefficients stay, errors shrink as the degrees of
 * freedom and the copies say. */
static void copies_change_no_digit(void **state) {
    (void)state;
    for (size_t s = 0; s < sizeof nist_sets / sizeof *nist_sets; s++) {
        const struct nist_set *set = &nist_sets[s];
        int64_t q = set->degree + set->intercept, copies = 1500000 / (set->n * q * (q + 1)) + 1;
        struct trial *t = make(set, copies);
        double least = strcmp(set->name, "Filip") == 0 ? 7 : 10, shrink;
        assert_int_equal(trial_run(t), 0);
        only_exact_fits_are_warned_of(t, set);
        shrink = sqrt((double)(set->n - q) / (double)(set->n * copies - q));
        for (int j = 0; j < q; j++) {
            double got = j < set->intercept ? value(t, "intercept", 0)
                                            : value(t, "coef", j - set->intercept);
            ASSERT_DIGITS(set->name, "coefficient of copies", got, set->coef[j], least);
            if (set->residual_sd > 0)
                ASSERT_DIGITS(set->name, "standard error of copies", value(t, "stderr", j),
                              set->error[j] * shrink, least < 9 ? least : 9);
        }
        trial_free(t);
    }
}

/* Longley's data (1967): 16 years, 6 features, cond 5e9. */
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
static const double longley_error[7] = {890420.383607373,  84.9149257747669,  0.334910077722432E-01,
                                        0.488399681651699, 0.214274163161675, 0.226073200069370,
                                        455.478499142212};

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
    for (int j = 0; j < 7; j++) {
        double got = j == 0 ? value(t, "intercept", 0) : value(t, "coef", j - 1);
        ASSERT_DIGITS("Longley", "coefficient", got, longley_coef[j], 13);
        ASSERT_DIGITS("Longley", "standard error", value(t, "stderr", j), longley_error[j], 13);
    }
    ASSERT_DIGITS("Longley", "r2", value(t, "r2", 0), 0.995479004577296, 14);
    ASSERT_DIGITS("Longley", "scale", sqrt(value(t, "scale", 0)), 304.854073561965, 13);
    ASSERT_DIGITS("Longley", "F", value(t, "fvalue", 0), 330.285339234588, 13);
    assert_int_equal(value(t, "rank", 0), 7);
    assert_int_equal(value(t, "df_model", 0), 6);
    assert_int_equal(value(t, "df_resid", 0), 9);
    trial_free(t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(certified_sets_have_their_digits),
        cmocka_unit_test(copies_change_no_digit),
        cmocka_unit_test(longley_has_its_digits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
