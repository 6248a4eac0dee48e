/* ols with `certify`: bounds are bounds, and near to what rounding leaves. Rows come in pairs whose
 * targets lie as far above as below the line, so that the exact coefficients are known whatever the
 * noise is. Read next: test_regression_edges.c. */
#include "kernel_support.h"

#include <float.h>

struct problem {
    int64_t pairs, p, t;
    bool intercept, weighted, single;
    double near;   /* the last feature is the first and this times other values; 0: its own */
    double offset; /* of all features */
    double noise;
    int unit_x, unit_y, unit_w; /* exponents */
};

/* Small whole numbers, in 1/16. */
static double number(void) {
    return (double)trial_between(-255, 255) / 16;
}

static struct trial *make(const struct problem *s, double *b) {
    int64_t n = 2 * s->pairs, p = s->p, t = s->t;
    enum blasd_dtype dtype = s->single ? BLASD_float32 : BLASD_float64;
    struct trial *trial = trial_new("regression");
    void *x = trial_input(trial, "x", dtype, BLASD_ROW_MAJOR, 2, (int64_t[]){n, p});
    void *y = trial_input(trial, "y", dtype, BLASD_ROW_MAJOR, 2, (int64_t[]){n, t}), *w = NULL;
    if (s->weighted)
        w = trial_input(trial, "sample_weight", dtype, BLASD_ROW_MAJOR, 1, (int64_t[]){n});
    for (int64_t i = 0; i < p * t; i++) b[i] = number();
    for (int64_t i = 0; i < n; i += 2) {
        double row[16];
        for (int64_t j = 0; j < p; j++) row[j] = number();
        if (p > 1 && s->near != 0) row[p - 1] = row[0] + s->near * number();
        for (int64_t half = 0; half < 2; half++)
            for (int64_t j = 0; j < p; j++)
                trial_put(x, dtype, (i + half) * p + j, ldexp(row[j] + s->offset, s->unit_x));
        for (int64_t l = 0; l < t; l++) {
            double sum = s->intercept ? 5 : 0, off = s->noise * number();
            for (int64_t j = 0; j < p; j++)
                sum += (row[j] + (s->intercept ? 0 : s->offset)) * b[l * p + j];
            trial_put(y, dtype, i * t + l, ldexp(sum + off, s->unit_y));
            trial_put(y, dtype, (i + 1) * t + l, ldexp(sum - off, s->unit_y));
        }
        for (int half = 0; half < 2 && w != NULL; half++)
            trial_put(w, dtype, i + half, ldexp((double)(1 + i % 7), s->unit_w));
    }
    for (int64_t i = 0; i < p * t; i++) b[i] = ldexp(b[i], s->unit_y - s->unit_x);
    trial_set_bool(trial, "fit_intercept", s->intercept);
    trial_set_bool(trial, "certify", true);
    return trial;
}

static bool warned(const struct trial *t, const char *text) {
    for (int i = 0; i < t->task.warning_count; i++)
        if (strstr(t->task.warnings[i].text, text) != NULL) return true;
    return false;
}

/* Holds the bounds to the truth; adds up how many there are, and how many are tight. */
static void judge(const struct problem *s, int64_t *tight, int64_t *count) {
    double b[64], unit = s->single ? 0x1p-24 : 0x1p-53;
    struct trial *t = make(s, b);
    const struct blasd_tensor *bound, *coef;
    assert_int_equal(trial_run(t), BLASD_OK);
    bound = trial_output(t, "error_bound");
    coef = trial_output(t, "coef");
    assert_int_equal(bound->dtype, BLASD_float64);
    assert_int_equal(blasd_tensor_elements(bound), blasd_tensor_elements(coef));
    for (int64_t i = 0; i < s->p * s->t; i++) {
        double off = fabs(trial_value(coef, i) - b[i]), most = trial_value(bound, i);
        if (!(off <= most))
            fail_msg("n %lld p %lld near %g offset %g noise %g: %g is not within %g of %g",
                     (long long)(2 * s->pairs), (long long)s->p, s->near, s->offset, s->noise,
                     trial_value(coef, i), most, b[i]);
        if (!(most <= ldexp(0x1p-20, s->unit_y - s->unit_x)))
            fail_msg("near %g offset %g noise %g: the bound of %g is %g", s->near, s->offset,
                     s->noise, b[i], most);
        if (s->near != 0 && s->near < 0x1p-16) continue; /* what double-double leaves is more */
        *tight += most <= 8 * unit * fabs(b[i]) || b[i] == 0;
        ++*count;
    }
    assert_false(warned(t, "not_certifiable"));
    trial_free(t);
}

static void bounds_hold_and_are_tight(void **state) {
    static const double nears[] = {0, 1, 1.0 / 1024, 0x1p-20, 0x1p-26};
    int64_t tight = 0, count = 0;
    (void)state;
    for (int round = 0; round < 300; round++) {
        struct problem s = {.p = 1 + round % 6, .t = 1 + round % 2, .noise = round % 3};
        s.pairs = s.p + 2 + trial_between(0, 30);
        s.intercept = round % 2 == 0;
        s.weighted = round % 5 == 0;
        s.single = round % 7 == 6;
        s.near = s.single ? round % 2 : nears[round % 5];
        if (round % 4 == 1 && !s.single && (s.intercept || s.near == 0 || s.near > 0x1p-12))
            s.offset = 0x1p20; /* else targets would be rounded */
        if (s.near >= 1 && !s.single && s.intercept) s.offset = 0x1p40;
        judge(&s, &tight, &count);
    }
    assert_true(tight >= count * 9 / 10);
}

static void bounds_hold_for_many_rows(void **state) {
    int64_t tight = 0, count = 0;
    (void)state;
    for (int round = 0; round < 6; round++) {
        struct problem s = {.pairs = 9000, .p = 6 + 3 * (round % 2), .t = 1, .noise = round % 3};
        s.intercept = round % 2 == 0;
        s.near = round < 3 ? 1.0 / 64 : 0x1p-16;
        s.weighted = round == 5;
        judge(&s, &tight, &count);
    }
    assert_true(tight >= count * 9 / 10);
}

static void bounds_hold_in_all_units(void **state) {
    static const int units[][3] = {{300, -300, 0},  {-300, 300, 0},  {-500, -500, 0},
                                   {480, 480, 0},   {0, 0, 900},     {0, 0, -900},
                                   {900, -60, 300}, {-900, 60, -300}};
    int64_t tight = 0, count = 0;
    (void)state;
    for (int round = 0; round < 32; round++) {
        const int *unit = units[round % 8];
        struct problem s = {.pairs = 12, .p = 3, .t = 1, .noise = 1, .intercept = round % 2 == 0};
        s.weighted = true;
        s.unit_x = unit[0];
        s.unit_y = unit[1];
        s.unit_w = unit[2];
        s.near = round < 16 ? 0 : 1.0 / 4096;
        judge(&s, &tight, &count);
    }
    assert_true(tight >= count * 9 / 10);
}

/* What has no solution of its own has no bounds, and says so. */
static void what_cannot_be_proven_is_said(void **state) {
    static const struct problem cases[] = {
        {.pairs = 10, .p = 3, .t = 2, .intercept = true},  /* its last feature is its first */
        {.pairs = 10, .p = 2, .t = 1, .intercept = false}, /* likewise */
        {.pairs = 2, .p = 9, .t = 1, .intercept = true},   /* more features than rows */
    };
    (void)state;
    for (int i = 0; i < 3; i++) {
        const struct problem *s = &cases[i];
        double b[64];
        struct trial *t = make(s, b);
        double *x = t->given[0];
        for (int64_t row = 0; row < 2 * s->pairs && i < 2; row++)
            x[row * s->p + s->p - 1] = x[row * s->p];
        assert_int_equal(trial_run(t), BLASD_OK);
        for (int64_t j = 0; j < s->p * s->t; j++)
            assert_true(isinf(trial_value(trial_output(t, "error_bound"), j)));
        assert_true(warned(t, "not_certifiable"));
        trial_free(t);
    }
}

/* In a stack each design has its own. */
static void stacks(void **state) {
    struct trial *t = trial_new("regression");
    double *x = trial_input(t, "x", BLASD_float64, BLASD_ROW_MAJOR, 3, (int64_t[]){2, 4, 1});
    double *y = trial_input(t, "y", BLASD_float64, BLASD_ROW_MAJOR, 2, (int64_t[]){1, 4});
    (void)state;
    for (int i = 0; i < 4; i++) {
        x[i] = i;
        x[4 + i] = 7; /* a constant beside the intercept */
        y[i] = 3 * i + (i % 3 == 0 ? 1 : -1);
    }
    trial_set_bool(t, "certify", true);
    assert_int_equal(trial_run(t), BLASD_OK);
    assert_true(trial_value(trial_output(t, "error_bound"), 0) < 1e-14);
    assert_true(isinf(trial_value(trial_output(t, "error_bound"), 1)));
    assert_true(warned(t, "not_certifiable: 1 of 2"));
    trial_free(t);
}

static void other_methods_have_none(void **state) {
    struct problem s = {.pairs = 5, .p = 2, .t = 1, .intercept = true};
    double b[64];
    struct trial *t = make(&s, b);
    (void)state;
    trial_set_choice(t, "method", "ridge");
    assert_int_equal(trial_plan(t), BLASD_E_invalid_parameter);
    trial_free(t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bounds_hold_and_are_tight),
        cmocka_unit_test(bounds_hold_for_many_rows),
        cmocka_unit_test(bounds_hold_in_all_units),
        cmocka_unit_test(what_cannot_be_proven_is_said),
        cmocka_unit_test(stacks),
        cmocka_unit_test(other_methods_have_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
