/* What solve says of how good its answer is: it warns where no digit is sure, and not for a small
 * rcond alone; errors that it reports are bounds; what it certifies is proven. Read next:
 * test_solve_edges.c. */
#include "solve_support.h"

/* ---- warnings ---- */

static void a_warning_looks_at_x_not_at_rcond(void **state) {
    (void)state;
    for (int round = 0; round < 8; round++) {
        int64_t n = round < 3 ? 20 + 10 * round : round == 3 ? 1030 : 150;
        void *a, *b;
        struct trial *t = system_of(n, 1, BLASD_float64, &a, &b);
        double *m = a, *v = b;
        for (int64_t i = 0; i < n; i++) {
            for (int64_t j = 0; j < n && round < 4; j++) /* rows graded */
                m[i * n + j] =
                    ldexp((double)trial_between(-99, 99) + (i == j ? 900 : 0), (int)(-340 * i / n));
            if (round >= 4) m[i * n + i] = 0.5; /* Jordan's */
            if (round >= 4 && i + 1 < n) m[i * n + i + 1] = 1;
            v[i] = trial_normal();
        }
        assert_int_equal(trial_run(t), BLASD_OK);
        assert_true(scalar(t, "rcond") < 1e-20);
        if (round < 4 && warned(t, "digit")) fail_msg("round %d: warns", round);
        for (int64_t i = n - 1, last = n; round >= 4 && i >= 0; i--, last--) {
            long double wish = ((long double)v[i] - (last < n ? x_at(t, last) : 0)) / 0.5;
            if (!(fabsl(x_at(t, i) - wish) <= 4 * 0x1p-53 * (fabsl(wish) + fabs(v[i]))))
                fail_msg("x[%lld] is %g from its equation", (long long)i,
                         (double)(x_at(t, i) - wish));
        }
        trial_free(t);
    }
}

static void a_warning_comes_where_no_digit_is_sure(void **state) {
    (void)state;
    for (int round = 0; round < 6; round++) {
        int64_t n = 18 + 25 * round;
        void *a, *b;
        struct trial *t = system_of(n, 1, BLASD_float64, &a, &b);
        double *m = a, *v = b;
        enum blasd_code code;
        for (int64_t i = 0; i < n; i++) {
            for (int64_t j = 0; j < n; j++)
                m[i * n + j] = round == 0 ? 1 / (double)(i + j + 1) : trial_normal();
            v[i] = trial_normal();
        }
        /* a row that is another but for rounding */
        for (int64_t j = 0; j < n && round > 0; j++)
            m[n + j] = m[j] * (1 + 1e-16 * (double)(j % 3));
        if (round > 0) m[n] += 0x1p-51 * fabs(m[n]);
        code = trial_run(t); /* rounding may make the last pivot 0 */
        assert_true(code == BLASD_OK || code == BLASD_E_singular_matrix);
        if (code == BLASD_OK && !warned(t, "digit"))
            fail_msg("n %lld: rcond %g", (long long)n, scalar(t, "rcond"));
        trial_free(t);
    }
}

/* An arrow, symmetric, whose diagonal is graded: regular, and known to the last digit; but what the
 * eliminated rows leave of the others is rounding, and a pivot 0. It is solved, or doubted. Alone
 * and in a stack, where a singular one stays what it is. */
static void what_rounding_made_singular_is_not_refused(void **state) {
    static const char *const structures[] = {"symmetric", "general"};
    (void)state;
    for (int round = 0; round < 60; round++) {
        enum blasd_dtype dtype = round % 4 == 3 ? BLASD_float32 : BLASD_float64;
        int64_t n = 4 + round % 13, at = round % (n - 1), stack = round % 3 == 0 ? 3 : 1;
        int step = dtype == BLASD_float32 ? 90 / (int)n : 400 / (int)n;
        struct trial *t = trial_new("solve");
        int64_t shape[] = {stack, n, n}, columns[] = {stack, n, 1};
        int rank = stack > 1 ? 3 : 2, skip = stack > 1 ? 0 : 1;
        void *a = trial_input(t, "a", dtype, BLASD_ROW_MAJOR, rank, shape + skip);
        void *b = trial_input(t, "b", dtype, BLASD_ROW_MAJOR, rank, columns + skip);
        trial_set_choice(t, "assume_a", structures[round / 2 % 2]);
        for (int64_t s = 0; s < stack; s++)
            for (int64_t i = 0; i < n; i++) {
                double tip = (double)(1 + (i + round) % 5);
                double diagonal = ldexp(1, -step * (int)((i * 7 + round) % n));
                if (s == 1) { /* the singular one */
                    for (int64_t j = 0; j < n; j++) trial_put(a, dtype, (s * n + i) * n + j, 1);
                    trial_put(b, dtype, s * n + i, 1);
                } else if (i < n - 1) { /* x: that of `at`, and the last, 1 */
                    trial_put(a, dtype, (s * n + i) * n + i, diagonal);
                    trial_put(a, dtype, (s * n + i) * n + n - 1, tip);
                    trial_put(a, dtype, (s * n + n - 1) * n + i, tip);
                    trial_put(b, dtype, s * n + i, i == at ? tip - 7 : tip);
                    if (i == at) trial_put(b, dtype, s * n + n - 1, -7 / diagonal * tip);
                }
            }
        assert_int_equal(trial_run(t), BLASD_OK);
        for (int64_t s = 0; s < stack; s++) {
            double diagonal = ldexp(1, -step * (int)((at * 7 + round) % n));
            int64_t info = (int64_t)trial_value(trial_output(t, "info"), s);
            assert_int_equal(info > 0, s == 1);
            for (int64_t i = 0; i < n && s != 1 && !warned(t, "digit"); i++) {
                double wish = i == at ? -7 / diagonal : i == n - 1 ? 1 : 0;
                assert_true(fabs(x_at(t, s * n + i) - wish) <= 7 / diagonal / 16);
            }
        }
        trial_free(t);
    }
}

/* A singular system beside elements of x that are far larger than what rounding made of its own:
 * what is left of its pivot is rounding alone, so that factors know nothing of its inverse. */
static void a_singular_block_is_doubted_beside_a_large_x(void **state) {
    int solved = 0;
    (void)state;
    for (int round = 0; round < 8 * SIZES + 4; round++) {
        enum blasd_dtype dtype = round % 2 == 0 ? BLASD_float64 : BLASD_float32;
        bool definite = round / 2 % 2 == 0;
        int64_t n = round < 8 * SIZES ? sizes[round / 8] + 2 : 1026,
                columns = round / 4 % 2 * 3 + 1;
        double scale = dtype == BLASD_float32 ? 0x1p40 : 0x1p70;
        void *a, *b;
        struct trial *t = system_of(n, columns, dtype, &a, &b);
        double v[4] = {49, 49, 1, 1}; /* singular: a row is 49 times the other */
        enum blasd_code code;
        if (definite) v[0] = v[1] = v[2] = v[3] = (double)trial_between(2, 99);
        for (int64_t i = 0; i < n; i++) {
            trial_put(a, dtype, i * n + i, i < 2 ? v[i * 3] * scale : 1);
            for (int64_t c = 0; c < columns; c++)
                trial_put(b, dtype, i * columns + c, 1 + trial_uniform() / 2);
        }
        trial_put(a, dtype, 1, v[1] * scale);
        trial_put(a, dtype, n, v[2] * scale);
        trial_set_choice(t, "assume_a", definite ? "positive_definite" : "general");
        code = trial_run(t);
        if (code == BLASD_OK && !warned(t, "digit"))
            fail_msg("%s n %lld, float%d: x = %g, %g, %g, rcond %g", definite ? "definite" : "",
                     (long long)n, dtype == BLASD_float32 ? 32 : 64, x_at(t, 0), x_at(t, columns),
                     x_at(t, 2 * columns), scalar(t, "rcond"));
        solved += code == BLASD_OK;
        trial_free(t);
    }
    assert_true(solved > 4);
}

/* Not definite, but for rounding: what the small elements beside the large block say is lost, and
 * x with it. */
static void what_cancels_in_a_definite_matrix_is_doubted(void **state) {
    (void)state;
    for (int single = 0; single < 2; single++) {
        enum blasd_dtype dtype = single ? BLASD_float32 : BLASD_float64;
        void *a, *b;
        struct trial *t = system_of(4, 1, dtype, &a, &b);
        for (int g = 2; g < 99; g++) {
            double large = ldexp(g, single ? 40 : 90);
            const double m[16] = {4, 0, 3, 0, 0, large, large, 1, 3, large, large, 0, 0, 1, 0, 4};
            for (int64_t i = 0; i < 16; i++) trial_put(a, dtype, i, m[i]);
            for (int64_t i = 0; i < 4; i++) trial_put(b, dtype, i, (double)(i == 1 ? 1 : 5 + i));
            trial_set_choice(t, "assume_a", "positive_definite");
            if (trial_run(t) == BLASD_OK && !warned(t, "digit"))
                fail_msg("%d, float%d: x = %g, %g, %g, %g", g, single ? 32 : 64, x_at(t, 0),
                         x_at(t, 1), x_at(t, 2), x_at(t, 3));
        }
        trial_free(t);
    }
}

/* ---- bounds ---- */

/* A diagonal of all sizes below a first row and column near 1: pivots that look best hide what the
 * small rows say. x is right, or said to be doubtful. */
static void what_pivots_hide_is_doubted(void **state) {
    int quiet = 0;
    (void)state;
    for (int round = 0; round < 300; round++) {
        enum blasd_dtype dtype = round % 2 == 0 ? BLASD_float32 : BLASD_float64;
        int64_t n = sizes[2 + round % (SIZES - 5)], columns = round % 3 == 0 ? 1 : 3;
        double range = dtype == BLASD_float32 ? 40 : 300;
        double *d = trial_alloc((size_t)(n * (3 + columns)) * sizeof *d);
        double *u = d + n, *v = u + n, *y = v + n;
        void *a, *b;
        struct trial *t = system_of(n, columns, dtype, &a, &b);
        enum blasd_code code;
        for (int64_t i = 0; i < n * n; i++) trial_put(a, dtype, i, 0);
        for (int64_t i = 0; i < n; i++) {
            d[i] = (double)(float)(1 + trial_uniform() / 2);
            d[i] = ldexp(d[i], (int)(range * trial_uniform()));
            u[i] = (double)(float)trial_normal();
            v[i] = (double)(float)trial_normal();
            trial_put(a, dtype, i * n + i, d[i]);
        }
        for (int64_t i = 1; i < n; i++) {
            trial_put(a, dtype, i, u[i]);
            trial_put(a, dtype, i * n, v[i]);
        }
        for (int64_t i = 0; i < n * columns; i++)
            trial_put(b, dtype, i, y[i] = (double)(float)trial_normal());
        code = trial_run(t);
        assert_true(code == BLASD_OK || code == BLASD_E_singular_matrix);
        for (int64_t c = 0; code == BLASD_OK && c < columns; c++) {
            long double above = 0, below = 0, sizes_above = 0, sizes_below = 0, x, x0;
            long double worst, most, rest, sizes_rest;
            bool lost;
            for (int64_t i = 0; i < n; i++) {
                x = i == 0 ? d[0] : -(long double)u[i] * v[i] / d[i];
                below += x;
                sizes_below += fabsl(x);
                x = i == 0 ? y[c] : -(long double)u[i] * y[i * columns + c] / d[i];
                above += x;
                sizes_above += fabsl(x);
            }
            /* an element whose row cancels follows from the first row; of two the truth is not
             * known well enough */
            lost = fabsl(above) < 0x1p-20L * sizes_above || fabsl(below) < 0x1p-20L * sizes_below;
            x0 = above / below;
            most = fabsl(x0);
            worst = fabsl(x_at(t, c) - x0);
            rest = sizes_rest = y[c] - d[0] * x0;
            for (int64_t i = 1, from_first = 0; i < 2 * n; i++) {
                bool again = i >= n;
                int64_t at = i % n;
                x = y[at * columns + c] - v[at] * x0;
                if (at == 0 || (again && at != from_first)) continue;
                if (!again && fabsl(x) < 0x1p-20L * fabs(y[at * columns + c])) {
                    lost = lost || from_first != 0;
                    from_first = at;
                    continue;
                }
                x = again ? rest / u[at] : x / d[at];
                lost = lost || (again && fabsl(rest) < 0x1p-20L * sizes_rest);
                rest -= u[at] * x;
                sizes_rest = fmaxl(sizes_rest, fabsl(u[at] * x));
                most = fmaxl(most, fabsl(x));
                worst = fmaxl(worst, fabsl(x_at(t, at * columns + c) - x));
            }
            if (lost) continue;
            if (warned(t, "digit")) continue;
            quiet++;
            if (!(worst <= most / 8))
                fail_msg("round %d, n %lld: off by %Lg of %Lg, rcond %g", round, (long long)n,
                         worst, most, scalar(t, "rcond"));
        }
        free(d);
        trial_free(t);
    }
    assert_true(quiet > 100);
}

/* What lies far below the rest of b is solved by itself and added, and lost where x has no room for
 * it: the error says so. */
static void what_a_sum_loses_is_counted(void **state) {
    static const char *const kinds[] = {"general", "upper_triangular"};
    (void)state;
    for (int kind = 0; kind < 2; kind++) {
        void *a, *b;
        struct trial *t = system_of(2, 1, BLASD_float32, &a, &b);
        double r, below;
        memcpy(a, (float[]){0x1p30f, 0x1p30f, 0, 1}, 4 * sizeof(float));
        memcpy(b, (float[]){0x1.8p-10f, 1}, 2 * sizeof(float));
        trial_set_choice(t, "assume_a", kinds[kind]);
        assert_int_equal(trial_run(t), BLASD_OK);
        r = fabs(0x1.8p-10 - 0x1p30 * (x_at(t, 0) + x_at(t, 1)));
        below = 0x1p31 * fmax(fabs(x_at(t, 0)), fabs(x_at(t, 1))) + 1;
        if (!(scalar(t, "backward_error") >= r / below))
            fail_msg("%s: %g is reported, %g it is", kinds[kind], scalar(t, "backward_error"),
                     r / below);
        trial_free(t);
    }
}

static void backward_errors_are_bounds(void **state) {
    static const char *const choices[] = {"auto", "none"};
    (void)state;
    for (int round = 0; round < 60; round++) {
        enum blasd_dtype dtype = round % 3 == 2 ? BLASD_float32 : BLASD_float64;
        int64_t n = trial_between(1, 70), columns = round % 4 == 0 ? 40 : 2;
        void *a, *b;
        struct trial *t = system_of(n, columns, dtype, &a, &b);
        const struct blasd_tensor *x;
        long double norm = 0, error = 0;
        double *m = trial_alloc((size_t)(n * n) * sizeof *m), reported;
        double *v = trial_alloc((size_t)(n * columns) * sizeof *v);
        for (int64_t i = 0; i < n; i++) {
            long double row = 0;
            for (int64_t j = 0; j < n; j++) {
                double e = (double)(float)(i == j  ? 2 * (double)n + trial_uniform()
                                           : j < i ? m[j * n + i]
                                                   : trial_uniform());
                m[i * n + j] = e;
                trial_put(a, dtype, i * n + j, e);
                row += fabsl(e);
            }
            norm = fmaxl(norm, row);
        }
        for (int64_t i = 0; i < n * columns; i++)
            trial_put(b, dtype, i, v[i] = (double)(float)trial_normal());
        trial_set_choice(t, "assume_a", round % 2 == 0 ? "general" : "positive_definite");
        trial_set_choice(t, "refinement", choices[round / 2 % 2]);
        assert_int_equal(trial_run(t), BLASD_OK);
        x = trial_output(t, "x");
        for (int64_t c = 0; c < columns; c++) {
            long double size_x = 0, size_b = 0, size_r = 0;
            for (int64_t i = 0; i < n; i++) {
                long double r = v[i * columns + c];
                for (int64_t j = 0; j < n; j++)
                    r -= (long double)m[i * n + j] * trial_value(x, j * columns + c);
                size_r = fmaxl(size_r, fabsl(r));
                size_b = fmaxl(size_b, fabs(v[i * columns + c]));
                size_x = fmaxl(size_x, fabs(trial_value(x, i * columns + c)));
            }
            error = fmaxl(error, size_r / (norm * size_x + size_b));
        }
        reported = scalar(t, "backward_error");
        /* long double itself is off by a few hundredths of a percent of u */
        if (!(reported >= error - 1e-2L * unit(BLASD_float64) * n) ||
            !(reported <= 1.01L * error + 1e-2L * unit(dtype)))
            fail_msg("n %lld: %g is reported, %g it is", (long long)n, reported, (double)error);
        free(m);
        free(v);
        trial_free(t);
    }
}

/* ---- proofs ---- */

/* Integers whose solution is known: every bound holds, and most are a few units in the last place;
 * where the matrix is singular but for rounding nothing is claimed. */
static void certified_bounds_hold(void **state) {
    int64_t tight = 0, all = 0;
    (void)state;
    for (int round = 0; round < 120; round++) {
        enum blasd_dtype dtype = round % 4 == 3 ? BLASD_float32 : BLASD_float64;
        int64_t n = trial_between(1, round % 10 == 0 ? 150 : 12), columns = round % 3 + 1;
        const char *assume = diagonal_kinds[round % 5];
        bool hilbert = dtype == BLASD_float64 && round % 2 == 0 && n <= 9, low, high;
        void *a, *b;
        struct trial *t = system_of(n, columns, dtype, &a, &b);
        int64_t *x = trial_alloc((size_t)(n * columns) * sizeof *x);
        for (int64_t i = 0; i < n * columns; i++) x[i] = trial_between(-200, 200);
        low = strcmp(assume, "lower_triangular") == 0;
        high = strcmp(assume, "upper_triangular") == 0;
        for (int64_t i = 0; i < n; i++)
            for (int64_t j = 0; j < n; j++) {
                int64_t low_one = i < j ? i : j, high_one = i < j ? j : i;
                int64_t v = hilbert          ? 12252240 / (i + j + 1)
                            : i == j         ? 1000
                            : round % 5 == 0 ? (i * 7 + j * j * 3 + round) % 19 - 9
                                             : (low_one * 7 + high_one * high_one) % 13 - 6;
                trial_put(a, dtype, i * n + j, (double)v);
                if ((low && i < j) || (high && i > j)) v = 0;
                for (int64_t c = 0; c < columns; c++)
                    trial_put(b, dtype, i * columns + c,
                              (dtype == BLASD_float32 ? (double)((float *)b)[i * columns + c]
                                                      : ((double *)b)[i * columns + c]) +
                                  (double)(v * x[j * columns + c]));
            }
        trial_set_choice(t, "assume_a", assume);
        trial_set_bool(t, "certify", true);
        assert_int_equal(trial_run(t), BLASD_OK);
        assert_false(warned(t, "not_certifiable"));
        for (int64_t i = 0; i < n * columns; i++) {
            double bound = trial_value(trial_output(t, "error_bound"), i),
                   size = fabs((double)x[i]);
            if (!(fabs(x_at(t, i) - (double)x[i]) <= bound))
                fail_msg("%s n %lld: %g off, the bound is %g", assume, (long long)n,
                         x_at(t, i) - (double)x[i], bound);
            all++;
            tight += bound <= 8 * unit(dtype) * size;
        }
        free(x);
        trial_free(t);
    }
    if (!((double)tight >= (double)all * 0.9))
        fail_msg("%lld of %lld bounds are tight", (long long)tight, (long long)all);
}

static void what_cannot_be_proven_is_not_claimed(void **state) {
    void *a, *b;
    struct trial *t = system_of(3, 1, BLASD_float64, &a, &b);
    (void)state;
    memcpy(a, (double[]){0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9}, 9 * sizeof(double));
    memcpy(b, (double[]){1, 2, 4}, 3 * sizeof(double));
    assert_int_equal(trial_run(t), BLASD_OK);
    assert_false(trial_has_output(t, "error_bound"));
    trial_set_bool(t, "certify", true);
    assert_int_equal(trial_run(t), BLASD_OK);
    for (int64_t i = 0; i < 3; i++)
        assert_true(isinf(trial_value(trial_output(t, "error_bound"), i)));
    assert_true(warned(t, "not_certifiable"));
    trial_free(t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_warning_looks_at_x_not_at_rcond),
        cmocka_unit_test(a_warning_comes_where_no_digit_is_sure),
        cmocka_unit_test(what_pivots_hide_is_doubted),
        cmocka_unit_test(what_rounding_made_singular_is_not_refused),
        cmocka_unit_test(a_singular_block_is_doubted_beside_a_large_x),
        cmocka_unit_test(what_cancels_in_a_definite_matrix_is_doubted),
        cmocka_unit_test(what_a_sum_loses_is_counted),
        cmocka_unit_test(backward_errors_are_bounds),
        cmocka_unit_test(certified_bounds_hold),
        cmocka_unit_test(what_cannot_be_proven_is_not_claimed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
