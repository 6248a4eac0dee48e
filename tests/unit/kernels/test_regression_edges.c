/* Regression at the edges: features that do not vary, means far above the spread, designs that
 * double precision can hardly tell from deficient ones, descents that diverge, fits that leave no
 * residual. Each must be right, or say what is wrong with it. */
#include "tests/unit/kernels/kernel_support.h"

#include "base/err.h"

#ifndef EDGES_ROWS
#define EDGES_ROWS 200000 /* a slow device takes fewer */
#endif
#ifndef EDGES_EVERY
#define EDGES_EVERY 1 /* offset */
#endif

struct data {
    struct trial *t;
    int64_t n, p;
    double *x, *y, *w;
};

static struct data data_new(int64_t n, int64_t p, bool weighted) {
    struct data d = {.t = trial_new("regression"), .n = n, .p = p};
    d.x = trial_input(d.t, "x", BLASD_float64, BLASD_ROW_MAJOR, 2, (int64_t[]){n, p});
    d.y = trial_input(d.t, "y", BLASD_float64, BLASD_ROW_MAJOR, 1, &n);
    if (weighted) d.w = trial_input(d.t, "sample_weight", BLASD_float64, BLASD_ROW_MAJOR, 1, &n);
    for (int64_t i = 0; weighted && i < n; i++) d.w[i] = (double)trial_between(i == 0, 4) / 2;
    return d;
}

static double value(const struct data *d, const char *output, int64_t i) {
    return trial_value(trial_output(d->t, output), i);
}

static void run(struct data *d) {
    assert_int_equal(trial_run(d->t), BLASD_OK);
    assert_int_equal(d->t->task.err.code, BLASD_OK);
}

static bool warned(const struct data *d, const char *words) {
    for (int i = 0; i < d->t->task.warning_count; i++)
        if (strstr(d->t->task.warnings[i].text, words) != NULL) return true;
    return false;
}

/* A feature that does not vary is the intercept again: it gets 0, and a warning. */
static void constant_features_are_found(void **state) {
    static const struct {
        int64_t n, p;
        double constant;
    } cases[] = {{EDGES_ROWS * 45 / 100, 2, 1},
                 {EDGES_ROWS, 2, 1},
                 {EDGES_ROWS / 20, 10, 0.1},
                 {EDGES_ROWS / 20, 10, 1e-200},
                 {EDGES_ROWS / 40, 15, -1234567.891},
                 {EDGES_ROWS / 40, 15, 1e250},
                 {EDGES_ROWS, 3, 0x1p52 + 1},
                 {300, 4, 3.3},
                 {30, 60, 7.7},
                 {EDGES_ROWS / 2, 5, 1.0 / 3}};
    (void)state;
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        for (int kind = 0; kind < 3; kind++) {
            struct data d = data_new(cases[c].n, cases[c].p, kind == 1 && cases[c].n > cases[c].p);
            int64_t at = (int64_t)c % d.p, rank = d.p < d.n ? d.p : d.n;
            double noise = kind == 2 ? 0 : 1e-3;
            for (int64_t i = 0; i < d.n; i++) {
                d.y[i] = 1 + noise * trial_normal();
                for (int64_t j = 0; j < d.p; j++) {
                    d.x[i * d.p + j] =
                        j == at ? cases[c].constant : (double)(trial_random() % 1000) / 8;
                    if (j != at) d.y[i] += 2 * d.x[i * d.p + j];
                }
            }
            if (kind == 2) {
                trial_set_choice(d.t, "method", "ridge");
                trial_set_float(d.t, "alpha", 0);
            }
            run(&d);
            if (kind != 2) assert_int_equal(value(&d, "rank", 0), rank);
            assert_true(warned(&d, "least norm"));
            assert_true(fabs(value(&d, "coef", at)) <= 1e-12);
            for (int64_t j = 0; d.n > d.p && j < d.p; j++)
                if (j != at && !(fabs(value(&d, "coef", j) - 2) <= (noise > 0 ? 1e-3 : 1e-12)))
                    fail_msg("case %d, kind %d: coef[%ld] is %.17g", (int)c, kind, (long)j,
                             value(&d, "coef", j));
            trial_free(d.t);
        }
    }
}

/* The same data with and without offsets; the numbers are such that no sum rounds. */
static void offset_pair(struct data *near, struct data *far, double offset, double y_offset) {
    for (int64_t i = 0; i < near->n; i++) {
        double sum = 0;
        for (int64_t j = 0; j < near->p; j++) {
            double x = (double)trial_between(0, 1000);
            near->x[i * near->p + j] = x;
            far->x[i * far->p + j] = x + offset * (double)(j + 1);
            sum += (double)(3 - j % 5) * x;
        }
        near->y[i] = sum + (double)trial_between(-50, 50);
        far->y[i] = near->y[i] + y_offset;
        if (near->w != NULL) far->w[i] = near->w[i];
    }
}

static void same_slopes(const struct data *near, const struct data *far, double tolerance,
                        const char *what) {
    double size = 0;
    for (int64_t j = 0; j < near->p; j++) size = fmax(size, fabs(value(near, "coef", j)));
    for (int64_t j = 0; j < near->p; j++)
        if (!(fabs(value(far, "coef", j) - value(near, "coef", j)) <= tolerance * size))
            fail_msg("%s: coef[%ld] is %.17g, not %.17g", what, (long)j, value(far, "coef", j),
                     value(near, "coef", j));
    assert_true(fabs(value(far, "r2", 0) - value(near, "r2", 0)) <= 1e-9);
    assert_true(fabs(value(far, "ssr", 0) - value(near, "ssr", 0)) <=
                1e-7 * value(near, "ssr", 0) + 1e-12 * value(near, "tss", 0));
}

static void offsets_change_nothing(void **state) {
    static const char *const methods[] = {"ols", "ridge", "lasso", "elastic_net"};
    static const double offsets[] = {1e3, 0x1p30, 0x1p44, 0x1p48, 0x1p50};
    static const int64_t shapes[][2] = {
        {EDGES_ROWS, 1}, {EDGES_ROWS, 2}, {EDGES_ROWS * 3 / 100, 21}, {60, 3}};
    (void)state;
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (size_t m = 0; m < 4; m++)
            for (size_t o = m % EDGES_EVERY; o < sizeof offsets / sizeof *offsets;
                 o += EDGES_EVERY) {
                bool weighted = (s + m + o) % 3 == 0;
                /* so many multiples of the offset are numbers beside 1000 */
                double offset = offsets[o] * (double)shapes[s][1] > 0x1p51 ? 0x1p44 : offsets[o];
                struct data near = data_new(shapes[s][0], shapes[s][1], weighted);
                struct data far = data_new(shapes[s][0], shapes[s][1], weighted);
                char what[64];
                snprintf(what, sizeof what, "%s, (%ld, %ld), offset %g", methods[m], (long)near.n,
                         (long)near.p, offset);
                offset_pair(&near, &far, offset, o % 2 == 0 ? offset : 0);
                for (int k = 0; k < 2; k++) {
                    struct trial *t = k == 0 ? near.t : far.t;
                    trial_set_choice(t, "method", methods[m]);
                    if (m > 0) trial_set_float(t, "alpha", m == 1 ? 1e5 : 10);
                    if (m == 0) trial_set_choice(t, "cov_type", o % 2 == 0 ? "nonrobust" : "HC3");
                    trial_set_bool(t, "residuals", true);
                }
                run(&near);
                run(&far);
                same_slopes(&near, &far, m < 2 ? 1e-13 : 1e-8, what);
                for (int64_t j = 1; m == 0 && j <= near.p; j++)
                    ASSERT_CLOSE(value(&far, "stderr", j), value(&near, "stderr", j),
                                 1e-9 * value(&near, "stderr", j));
                for (int64_t i = 0; i < near.n; i += 97)
                    ASSERT_CLOSE(value(&far, "residuals", i), value(&near, "residuals", i), 1e-5);
                trial_free(near.t);
                trial_free(far.t);
            }
}

/* Weights whose sum is no double: means far from 0 are as right as elsewhere. */
static void weights_whose_sum_rounds(void **state) {
    static const char *const methods[] = {"ols", "ridge", "lasso", "gd"};
    (void)state;
    for (int round = 0; round < 24; round++) {
        struct data near = data_new(round % 2 ? 1500 : 30, 2, true);
        struct data far = data_new(near.n, near.p, true);
        bool descends = round % 4 == 3;
        offset_pair(&near, &far, descends ? 0 : 0x1p30, descends ? 0 : ldexp(1, 32 + round % 19));
        for (int64_t i = 0; i < near.n; i++)
            far.w[i] = near.w[i] = exp(trial_normal() * (round < 12 ? 1 : 12));
        for (int k = 0; k < 2; k++) {
            struct trial *t = k == 0 ? near.t : far.t;
            trial_set_choice(t, "method", methods[round % 4]);
            if (round % 4 == 1) trial_set_float(t, "alpha", 1e5);
            if (descends) trial_set_float(t, "learning_rate", 1e-7);
            run(k == 0 ? &near : &far);
        }
        same_slopes(&near, &far, 1e-8, methods[round % 4]);
        ASSERT_CLOSE(value(&far, "tss", 0), value(&near, "tss", 0), 1e-12 * value(&near, "tss", 0));
        trial_free(near.t);
        trial_free(far.t);
    }
}

/* In which order observations come says nothing, least of all which of them is the first. */
static void weights_far_apart_in_any_order(void **state) {
    (void)state;
    for (int round = 0; round < 30; round++) {
        struct data a = data_new(12, 3, true), b = data_new(12, 3, true);
        for (int64_t i = 0; i < a.n; i++) {
            int64_t back = a.n - 1 - i;
            a.w[i] = b.w[back] = pow(10, (double)trial_between(-12, 12));
            a.y[i] = b.y[back] = trial_normal() / sqrt(a.w[i]);
            for (int64_t j = 0; j < a.p; j++)
                a.x[i * a.p + j] = b.x[back * b.p + j] = trial_normal();
        }
        for (int k = 0; k < 2; k++) {
            struct data *d = k == 0 ? &a : &b;
            trial_set_choice(d->t, "method", round % 2 ? "ridge" : "ols");
            if (round % 2) trial_set_float(d->t, "alpha", 1e6);
            trial_set_bool(d->t, "residuals", true);
            run(d);
        }
        ASSERT_CLOSE(value(&a, "ssr", 0), value(&b, "ssr", 0), 1e-12 * value(&b, "ssr", 0));
        ASSERT_CLOSE(value(&a, "tss", 0), value(&b, "tss", 0), 1e-12 * value(&b, "tss", 0));
        for (int64_t i = 0; i < a.n; i++)
            ASSERT_CLOSE(value(&a, "residuals", i), value(&b, "residuals", a.n - 1 - i),
                         1e-12 / sqrt(a.w[i]));
        trial_free(a.t);
        trial_free(b.t);
    }
}

/* More features than observations: the rank is at most n, and the coefficients are of least norm
 * whatever the means are. */
static void wide_problems_with_means(void **state) {
    static const int64_t shapes[][2] = {{50, 400}, {12, 15}, {30, 60}, {3, 900},
                                        {40, 41},  {1, 5},   {1, 40},  {2, 100}};
    static const double offsets[] = {0, 1e3, 1e4, 1e8, 0x1p40};
    (void)state;
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (size_t o = 0; o < sizeof offsets / sizeof *offsets; o++) {
            struct data near = data_new(shapes[s][0], shapes[s][1], o == 2);
            struct data far = data_new(shapes[s][0], shapes[s][1], o == 2);
            double size = 0;
            int64_t n = 0; /* that have a weight */
            offset_pair(&near, &far, offsets[o], 0);
            for (int64_t i = 0; i < near.n; i++) n += near.w == NULL || near.w[i] > 0;
            run(&near);
            run(&far);
            assert_int_equal(value(&far, "rank", 0), n);
            assert_int_equal(value(&far, "df_resid", 0), near.n - n);
            for (int64_t j = 0; j < near.p; j++) size = fmax(size, fabs(value(&near, "coef", j)));
            for (int64_t j = 0; j < near.p; j++)
                ASSERT_CLOSE(value(&far, "coef", j), value(&near, "coef", j), 1e-11 * size);
            trial_free(near.t);
            trial_free(far.t);
        }
}

/* The slope of y along the first feature alone. */
static double slope_of(const struct data *d) {
    long double x = 0, y = 0, xx = 0, xy = 0;
    for (int64_t i = 0; i < d->n; i++) {
        x += (long double)d->x[i * d->p] / (long double)d->n;
        y += (long double)d->y[i] / (long double)d->n;
    }
    for (int64_t i = 0; i < d->n; i++) {
        long double from = (long double)d->x[i * d->p] - x;
        xx += from * from;
        xy += from * ((long double)d->y[i] - y);
    }
    return (double)(xy / xx);
}

/* One temperature in two units: independent in the last digits of doubles only, if at all. */
static void nearly_deficient_designs(void **state) {
    static const double spreads[] = {1, 2, 100, 400};
    (void)state;
    for (int c = 0; c < 32; c++) {
        int64_t n = c % 8 < 4 ? 6 : EDGES_ROWS / 50;
        struct data d = data_new(n, 2, false);
        bool truncates = c % 2 == 1;
        trial_seed = (uint64_t)c + 1;
        for (int64_t i = 0; i < n; i++) {
            double celsius = 1000 + spreads[c % 8 / 2] * trial_uniform();
            d.x[i * 2] = celsius;
            d.x[i * 2 + 1] = celsius * 1.8 + 32;
            d.y[i] = 4 * celsius + 0.01 * trial_normal();
        }
        if (truncates) trial_set_float(d.t, "rcond", 1e-9);
        run(&d);
        if (truncates || value(&d, "rank", 0) < 3) {
            double slope = value(&d, "coef", 0) + 1.8 * value(&d, "coef", 1);
            assert_int_equal(value(&d, "rank", 0), 2);
            assert_true(warned(&d, "rcond") || warned(&d, "least norm"));
            ASSERT_CLOSE(slope, slope_of(&d), 1e-9);
            ASSERT_CLOSE(value(&d, "coef", 1), 1.8 * value(&d, "coef", 0), 1e-9);
        } else {
            assert_true(value(&d, "cond", 0) > 1e16);
            assert_true(warned(&d, "condition number"));
        }
        trial_free(d.t);
    }
}

/* rcond against the singular values of a design that is known: two orthogonal features and one
 * that is 1e-3 of them. */
static void small_singular_values_are_left_out(void **state) {
    static const double rconds[] = {1e-5, 1e-2, 1};
    static const double coefs[][3] = {{1, 2, 3000}, {1, 2, 0}, {0, 0, 0}};
    (void)state;
    for (int c = 0; c < 6; c++) {
        int64_t n = c < 3 ? 8 : EDGES_ROWS / 25; /* and above what double-double is for */
        struct data d = data_new(n, 3, false);
        for (int64_t i = 0; i < n; i++) {
            d.x[i * 3] = i & 1 ? 1001 : 999;
            d.x[i * 3 + 1] = i & 2 ? 1 : -1;
            d.x[i * 3 + 2] = i & 4 ? 1e-3 : -1e-3;
            d.y[i] = d.x[i * 3] + 2 * d.x[i * 3 + 1] + 3000 * d.x[i * 3 + 2];
        }
        trial_set_float(d.t, "rcond", rconds[c % 3]);
        run(&d);
        assert_int_equal(value(&d, "rank", 0), c % 3 == 0 ? 4 : c % 3 == 1 ? 3 : 1);
        assert_int_equal(warned(&d, "rcond"), c % 3 != 0);
        for (int j = 0; j < 3; j++)
            ASSERT_CLOSE(value(&d, "coef", j), coefs[c % 3][j], 1e-9 * (coefs[0][j] + 1));
        trial_free(d.t);
    }
}

static void descents_say_how_they_went(void **state) {
    (void)state;
    for (int many = 0; many < 2; many++) { /* kept in registers, or a launch a step */
        for (int k = 0; k < 3; k++) {
            static const double rates[2][3] = {{0.5, 1e-3, 0.1}, {2, 1e-3, 0.3}};
            int64_t n = many == 0 ? 3 : 600, p = many == 0 ? 1 : 140;
            struct data d = data_new(n, p, false);
            for (int64_t i = 0; i < n; i++) {
                d.y[i] = (double)(i + 1);
                for (int64_t j = 0; j < p; j++)
                    d.x[i * p + j] = many == 0 ? (double)(i + 1) : trial_normal();
            }
            trial_set_choice(d.t, "method", "gd");
            trial_set_float(d.t, "learning_rate", rates[many][k]);
            trial_set_int(d.t, "iterations", k == 0 ? 50 : k == 1 ? 5 : many == 0 ? 5000 : 300);
            run(&d);
            assert_int_equal(warned(&d, "diverged"), k == 0);
            assert_int_equal(value(&d, "converged", 0), k == 2);
            if (k == 0) assert_true(value(&d, "gradient_norm", 0) > 1e3);
            if (k == 2) assert_true(value(&d, "gradient_norm", 0) < 1e-6);
            if (k == 1 && many == 0) { /* 2/n X'(Xb - y) at the coefficients */
                double b0 = value(&d, "intercept", 0), b1 = value(&d, "coef", 0), g0 = 0, g1 = 0;
                for (int i = 1; i <= 3; i++) {
                    g0 += 2.0 / 3 * (b0 + b1 * i - i);
                    g1 += 2.0 / 3 * i * (b0 + b1 * i - i);
                }
                ASSERT_CLOSE(value(&d, "gradient_norm", 0), hypot(g0, g1), 1e-12);
            }
            trial_free(d.t);
        }
    }
}

static void fits_that_say_nothing(void **state) {
    struct data d = data_new(4, 3, false); /* as many coefficients as observations */
    (void)state;
    for (int i = 0; i < 4; i++) d.y[i] = trial_normal();
    for (int i = 0; i < 12; i++) d.x[i] = trial_normal();
    run(&d);
    assert_int_equal(value(&d, "df_resid", 0), 0);
    assert_true(warned(&d, "degrees of freedom"));
    trial_free(d.t);
    for (int heavy = 4; heavy <= 5; heavy++) { /* as many of a weight above 0, and one more */
        d = data_new(20, 3, true);
        for (int i = 0; i < 20; i++) d.y[i] = trial_normal();
        for (int i = 0; i < 60; i++) d.x[i] = trial_normal();
        for (int i = 0; i < 20; i++) d.w[i] = i < heavy ? 0.75 : 0;
        run(&d);
        assert_int_equal(value(&d, "df_resid", 0), 16); /* as statsmodels counts them */
        assert_true(warned(&d, "weight above 0") == (heavy == 4));
        trial_free(d.t);
    }
    d = data_new(3, 1, false); /* a descent that went past the mean */
    for (int i = 0; i < 3; i++) d.x[i] = d.y[i] = i + 1;
    trial_set_choice(d.t, "method", "gd");
    trial_set_float(d.t, "learning_rate", 1e-3);
    trial_set_int(d.t, "iterations", 2);
    run(&d);
    assert_true(value(&d, "r2", 0) < 0);
    assert_true(warned(&d, "r2"));
    trial_free(d.t);
    d = data_new(40, 2, false); /* nothing to be warned of */
    for (int i = 0; i < 40; i++) d.y[i] = trial_normal();
    for (int i = 0; i < 80; i++) d.x[i] = trial_normal();
    run(&d);
    assert_int_equal(d.t->task.warning_count, 0);
    trial_free(d.t);
}

/* Features that hardly vary, without an intercept: one has a part of 1e-4 of another's in y, and is
 * right to the last digits too. The truth is that of five rows in rational numbers. */
static void small_parts_are_right(void **state) {
    static const double x[5][3] = {{33554276, 2199023255412, 16777425},
                                   {33554442, 2199023255565, 16777239},
                                   {33554403, 2199023255527, 16777091},
                                   {33554454, 2199023255561, 16777255},
                                   {33554580, 2199023255514, 16777136}};
    static const double y[5] = {581845116912.5339, 581845116985.884, 581845117210.7527,
                                581845116949.9298, 581845116934.3617};
    static const double truth[3] = {-1.220292150662861, 0.2646208027711988, -1.2657620284731117};
    (void)state;
    for (int64_t n = 5; n <= EDGES_ROWS; n = n == 5 ? EDGES_ROWS / 20 * 5 : 2 * n) {
        struct data d = data_new(n, 3, false);
        for (int64_t i = 0; i < n; i++) {
            memcpy(d.x + i * 3, x[i % 5], sizeof x[0]);
            d.y[i] = y[i % 5];
        }
        trial_set_bool(d.t, "fit_intercept", false);
        run(&d);
        for (int j = 0; j < 3; j++) ASSERT_CLOSE(value(&d, "coef", j), truth[j], 1e-15);
        trial_free(d.t);
    }
}

/* One observation has a feature of its own: its residual is 0 and its leverage 1, whatever the
 * numbers are. HC2 and HC3 divide the one by the other; HC0 and HC1 do not, yet count it as no
 * error. */
static void leverages_of_one(void **state) {
    static const struct {
        int64_t n, p;
        double own, scale;
    } cases[] = {{20, 2, 1, 1},        {40, 3, 3.3, 1}, {300, 4, 1, 1},
                 {40, 4, 1, 1e-100},   {40, 3, 7, 1e6}, {EDGES_ROWS / 10, 4, 3.3, 1},
                 {EDGES_ROWS, 4, 1, 1}};
    static const char *const kinds[] = {"HC0", "HC1", "HC2", "HC3"};
    (void)state;
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++)
        for (int round = 0; round < (cases[c].n > 1000 ? 4 : 24); round++) {
            struct data d = data_new(cases[c].n, cases[c].p, round % 3 == 2);
            int64_t last = d.p - 1, alone = trial_between(0, d.n - 1);
            bool divides = round % 4 > 1;
            for (int64_t i = 0; i < d.n; i++) {
                for (int64_t j = 0; j < last; j++) d.x[i * d.p + j] = trial_normal();
                if (last > 1) d.x[i * d.p + 1] += 1e4 * d.x[i * d.p]; /* nearly that one again */
                d.x[i * d.p + last] = i == alone ? cases[c].own * cases[c].scale : 0;
                d.y[i] = d.x[i * d.p] + trial_normal();
            }
            if (d.w != NULL) d.w[alone] = 0.5;
            trial_set_choice(d.t, "cov_type", kinds[round % 4]);
            run(&d);
            for (int64_t j = 0; j <= d.p; j++)
                assert_true(isnan(value(&d, "stderr", j)) == divides);
            assert_true(warned(&d, "leverage 1"));
            trial_free(d.t);
        }
}

/* x and x + 2^-36 z span what x and z do: errors differ by a factor, residuals not at all. */
static void robust_errors_of_features_that_nearly_agree(void **state) {
    static const char *const covs[] = {"nonrobust", "HC0", "HC1", "HC2", "HC3"};
    (void)state;
    for (int round = 0; round < 40; round++) {
        bool weighted = round / 5 % 2 == 1;
        struct data apart = data_new(12, 2, weighted), near = data_new(12, 2, weighted);
        double far, size = 0;
        for (int64_t i = 0; i < apart.n; i++) {
            apart.x[2 * i] = near.x[2 * i] = (double)trial_between(-9, 9);
            apart.x[2 * i + 1] = (double)trial_between(-9, 9);
            near.x[2 * i + 1] = near.x[2 * i] + ldexp(apart.x[2 * i + 1], -36);
            apart.y[i] = near.y[i] = trial_normal();
            if (weighted) near.w[i] = apart.w[i];
        }
        for (int k = 0; k < 2; k++) {
            struct data *d = k == 0 ? &apart : &near;
            trial_set_choice(d->t, "cov_type", covs[round % 5]);
            trial_set_bool(d->t, "fit_intercept", round / 10 % 2 == 0);
            trial_set_bool(d->t, "residuals", true);
            run(d);
        }
        far = ldexp(value(&near, "stderr", round / 10 % 2 == 0 ? 2 : 1), -36);
        ASSERT_CLOSE(far, value(&apart, "stderr", round / 10 % 2 == 0 ? 2 : 1), 1e-9 * far);
        for (int64_t i = 0; i < near.n; i++) size = fmax(size, fabs(value(&near, "residuals", i)));
        for (int64_t i = 0; i < near.n; i++)
            ASSERT_CLOSE(value(&near, "residuals", i), value(&apart, "residuals", i), 1e-14 * size);
        trial_free(apart.t);
        trial_free(near.t);
    }
}

/* One feature of whole numbers: what is left of the first leverage, and of its residual, can be
 * told. */
static void what_is_left_of_leverages(void **state) {
    (void)state;
    for (int round = 0; round < 20; round++) {
        struct data d = data_new(4, 1, false);
        long double square = 0, others = 0, along = 0, sum = 0, expected;
        d.x[0] = ldexp(1, 2 + round);
        d.y[0] = (double)trial_between(1, 9);
        for (int64_t i = 1; i < d.n; i++) {
            d.x[i] = (double)trial_between(1, 9);
            d.y[i] = (double)trial_between(-9, 9);
            others += (long double)d.x[i] * (long double)d.x[i];
            along += (long double)d.x[i] * (long double)d.y[i];
        }
        square = (long double)d.x[0] * (long double)d.x[0] + others;
        for (int64_t i = 0; i < d.n; i++) {
            long double x = (long double)d.x[i], y = (long double)d.y[i];
            long double b = ((long double)d.x[0] * (long double)d.y[0] + along) / square;
            long double r = i == 0 ? (y * others - x * along) / square : y - x * b;
            long double left = (i == 0 ? others : square - x * x) / square;
            sum += x * r / left * (x * r / left);
        }
        trial_set_choice(d.t, "cov_type", "HC3");
        trial_set_bool(d.t, "fit_intercept", false);
        run(&d);
        expected = sqrtl(sum) / square;
        ASSERT_CLOSE(value(&d, "stderr", 0), expected, 1e-12L * expected);
        trial_free(d.t);
    }
}

/* Nearly all of one is not all of it. */
static void leverages_near_one(void **state) {
    (void)state;
    for (int round = 0; round < 40; round++) {
        struct data d = data_new(30, 2, false);
        double far = pow(10, round % 6);
        for (int64_t i = 0; i < d.n; i++) {
            for (int64_t j = 0; j < d.p; j++) d.x[i * d.p + j] = trial_normal();
            d.y[i] = d.x[i * d.p] + trial_normal();
        }
        d.x[0] = far;
        trial_set_choice(d.t, "cov_type", round % 2 ? "HC2" : "HC3");
        run(&d);
        for (int64_t j = 0; j <= d.p; j++) assert_true(value(&d, "stderr", j) > 0);
        assert_false(warned(&d, "leverage"));
        trial_free(d.t);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(constant_features_are_found),
        cmocka_unit_test(offsets_change_nothing),
        cmocka_unit_test(weights_whose_sum_rounds),
        cmocka_unit_test(weights_far_apart_in_any_order),
        cmocka_unit_test(wide_problems_with_means),
        cmocka_unit_test(nearly_deficient_designs),
        cmocka_unit_test(small_singular_values_are_left_out),
        cmocka_unit_test(descents_say_how_they_went),
        cmocka_unit_test(fits_that_say_nothing),
        cmocka_unit_test(small_parts_are_right),
        cmocka_unit_test(leverages_of_one),
        cmocka_unit_test(robust_errors_of_features_that_nearly_agree),
        cmocka_unit_test(what_is_left_of_leverages),
        cmocka_unit_test(leverages_near_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
