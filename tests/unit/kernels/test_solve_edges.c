/* solve at the edges: right-hand sides whose numbers lie far apart, solutions beyond the range,
 * many right-hand sides, matrices that refinement or scaling gets wrong. Truths are exact by
 * construction. Read next: test_solve_quality.c, test_solve.c. */
#include "solve_support.h"

#include <float.h>

/* A number of the dtype's whole range, as it will be stored. */
static double far(enum blasd_dtype dtype) {
    bool single = dtype == BLASD_float32;
    double range = single ? 120 : 1015, v;
    v = ldexp(1 + trial_uniform() / 2, (int)(range * trial_uniform()));
    return single ? (double)(float)v : v;
}

/* Whether a warning says that not all digits are there. */
static bool doubted(const struct trial *t) {
    return warned(t, "digit") || warned(t, "the range of");
}

/* ---- elements of x that are small beside others ---- */

/* [A11 s A12; s A21 s A22], whose solution is [x1; x2 / s]: scaling makes A11 the small one. Small
 * whole numbers, and A21 x1 = 0, so that b is exact; large diagonals, so that x is well determined.
 */
static void what_is_small_in_rows_and_columns_is_right_or_doubted(void **state) {
    int said = 0;
    (void)state;
    for (int round = 0; round < 36; round++) {
        enum blasd_dtype dtype = round % 4 == 3 ? BLASD_float32 : BLASD_float64;
        int64_t n = sizes[3 + round % 9], half = n / 4 * 2, columns = 1 + round % 3;
        double s = dtype == BLASD_float32 ? 0x1p-38 : 0x1p-150, most = 0;
        double *m = trial_alloc((size_t)(n * n) * sizeof *m);
        double *x = trial_alloc((size_t)(n * columns) * sizeof *x);
        void *a, *b;
        struct trial *t = system_of(n, columns, dtype, &a, &b);
        for (int64_t i = 0; i < n * n; i++)
            m[i] = (double)trial_between(-9, 9) + (i % (n + 1) == 0 ? 20 : 0);
        for (int64_t i = half; i < n; i++)
            for (int64_t j = 0; j < half; j += 2) m[i * n + j + 1] = m[i * n + j];
        for (int64_t i = 0; i < n * columns; i++) x[i] = (double)trial_between(1, 3);
        for (int64_t i = 1; i < half; i += 2)
            for (int64_t c = 0; c < columns; c++) x[i * columns + c] = -x[(i - 1) * columns + c];
        for (int64_t i = 0; i < n; i++)
            for (int64_t c = 0; c < columns; c++) {
                double sum = 0;
                for (int64_t j = i < half ? 0 : half; j < n; j++)
                    sum += m[i * n + j] * x[j * columns + c];
                trial_put(b, dtype, i * columns + c, sum);
            }
        for (int64_t i = 0; i < n * n; i++)
            trial_put(a, dtype, i, i / n < half && i % n < half ? m[i] : m[i] * s);
        assert_int_equal(trial_run(t), BLASD_OK);
        for (int64_t i = 0; i < n * columns; i++) {
            double wish = x[i] / (i / columns < half ? 1 : s);
            most = fmax(most, fabs(x_at(t, i) - wish) / fabs(wish));
        }
        said += warned(t, "digit");
        if (!(most <= (dtype == BLASD_float32 ? 0x1p-9 : 0x1p-40)) && !warned(t, "digit"))
            fail_msg("n %lld, float%d: off by %g", (long long)n, dtype == BLASD_float32 ? 32 : 64,
                     most);
        free(m);
        free(x);
        trial_free(t);
    }
    assert_true(said <= 27);
}

/* A solution below the range of its type has lost digits, which is said. */
static void what_vanishes_is_said(void **state) {
    (void)state;
    for (int round = 0; round < 2 * SIZES; round++) {
        enum blasd_dtype dtype = round % 2 == 0 ? BLASD_float64 : BLASD_float32;
        double least = dtype == BLASD_float32 ? 0x1p-149 : 0x1p-1074;
        int64_t n = sizes[round / 2];
        void *a, *b;
        struct trial *t = system_of(n, 1, dtype, &a, &b);
        double size = round % 4 < 2 ? 8 : 0x1p20; /* some digits are left, or none */
        for (int64_t i = 0; i < n; i++) {
            trial_put(a, dtype, i * n + i, 3 * size);
            trial_put(b, dtype, i, least * (double)(5 + i % 7) * (size > 8 ? 1 : 64));
        }
        assert_int_equal(trial_run(t), BLASD_OK);
        assert_true(warned(t, "below the range"));
        assert_false(warned(t, "refined"));
        assert_true(scalar(t, "backward_error") >= (size > 8 ? 0.5 : 0x1p-8));
        assert_true(scalar(t, "backward_error") <= 1);
        trial_free(t);
    }
}

/* One element of x is below the range, beside others just within it: columns of all sizes. */
static void an_element_that_vanishes_is_said(void **state) {
    (void)state;
    for (int round = 0; round < 2 * SIZES; round++) {
        enum blasd_dtype dtype = round % 2 == 0 ? BLASD_float64 : BLASD_float32;
        int least = dtype == BLASD_float32 ? -149 : -1074;
        int64_t n = sizes[round / 2];
        void *a, *b;
        struct trial *t = system_of(n, 3, dtype, &a, &b);
        for (int64_t i = 0; i < n; i++) {
            trial_put(a, dtype, i * n + i, i == n - 1 ? 4 : 1);
            trial_put(b, dtype, i * 3, 1);
            trial_put(b, dtype, i * 3 + 1, ldexp(1, i == n - 1 ? least : least + 40));
            trial_put(b, dtype, i * 3 + 2, ldexp(1, -least - 60));
        }
        assert_int_equal(trial_run(t), BLASD_OK);
        assert_true(x_at(t, (n - 1) * 3 + 1) == 0);
        assert_true(doubted(t));
        trial_free(t);
    }
}

/* ---- right-hand sides ---- */

/* Or a warning says what left the range. */
static void what_is_far_from_the_largest_stays(void **state) {
    (void)state;
    TRIAL_FULL_ON_DEVICE();
    for (int round = 0; round < 4 * SIZES * 5 + 2; round++) {
        int64_t n =
            round < 4 * SIZES * 5 ? sizes[round % SIZES] : 1030; /* the device's large way */
        int64_t columns = round % 3 == 0 ? 1 : 3;
        const char *assume = diagonal_kinds[round / SIZES % 5];
        enum blasd_dtype dtype = round % 2 == 0 ? BLASD_float64 : BLASD_float32;
        void *a, *b;
        double least = dtype == BLASD_float32 ? FLT_MIN : DBL_MIN;
        double most = dtype == BLASD_float32 ? FLT_MAX : DBL_MAX;
        double *d = trial_alloc((size_t)n * sizeof *d), *v;
        struct trial *t = system_of(n, columns, dtype, &a, &b);
        v = trial_alloc((size_t)(n * columns) * sizeof *v);
        for (int64_t i = 0; i < n; i++) {
            d[i] = round / SIZES % 4 < 2 ? (double)trial_between(1, 9) : fabs(far(dtype));
            trial_put(a, dtype, i * n + i, d[i]);
        }
        for (int64_t i = 0; i < n * columns; i++) trial_put(b, dtype, i, v[i] = far(dtype));
        trial_set_choice(t, "assume_a", assume);
        assert_int_equal(trial_run(t), BLASD_OK);
        for (int64_t i = 0; i < n * columns && !doubted(t); i++) {
            long double wish = (long double)v[i] / d[i / columns];
            double got = x_at(t, i);
            bool right = fabsl(got - wish) <= 32 * unit(dtype) * fabsl(wish) + least;
            if (fabsl(wish) > most) right = isinf(got);
            if (!right)
                fail_msg("%s n %lld float%d: %g / %g is not %g", assume, (long long)n,
                         dtype == BLASD_float32 ? 32 : 64, v[i], d[i / columns], got);
        }
        free(d);
        free(v);
        trial_free(t);
    }
}

/* Two systems that do not touch, in one matrix, give what each gives alone. */
static void blocks_of_different_sizes(void **state) {
    (void)state;
    for (int round = 0; round < 40; round++) {
        enum blasd_dtype dtype = round % 2 == 0 ? BLASD_float64 : BLASD_float32;
        int64_t k = trial_between(1, 30), n = 2 * k;
        double scale = dtype == BLASD_float32 ? 0x1p100 : 0x1p990;
        void *a, *b, *own_a[2], *own_b[2];
        struct trial *t = system_of(n, 1, dtype, &a, &b), *own[2];
        for (int half = 0; half < 2; half++) {
            double by = half == 0 ? scale : 1 / scale;
            own[half] = system_of(k, 1, dtype, &own_a[half], &own_b[half]);
            for (int64_t i = 0; i < k; i++) {
                for (int64_t j = 0; j < k; j++) {
                    double v = (double)(float)(trial_normal() + (i == j ? 20 : 0));
                    trial_put(own_a[half], dtype, i * k + j, v);
                    trial_put(a, dtype, (half * k + i) * n + half * k + j, v);
                }
                double v = (double)(float)trial_normal();
                trial_put(own_b[half], dtype, i, v);
                trial_put(b, dtype, half * k + i, v * by);
            }
            assert_int_equal(trial_run(own[half]), BLASD_OK);
        }
        assert_int_equal(trial_run(t), BLASD_OK);
        for (int64_t i = 0; i < n && !doubted(t); i++) {
            double wish = x_at(own[i / k], i % k) * (i < k ? scale : 1 / scale);
            if (!(fabs(x_at(t, i) - wish) <=
                  8 * unit(dtype) * fabs(wish) + 40 * unit(dtype) / scale))
                fail_msg("n %lld: x[%lld] %g is %g", (long long)n, (long long)i, wish, x_at(t, i));
        }
        for (int half = 0; half < 2; half++) trial_free(own[half]);
        trial_free(t);
    }
}

static void a_solution_beyond_the_range_is_said(void **state) {
    (void)state;
    for (int which = 0; which < 2 * SIZES + 2; which++) {
        enum blasd_dtype dtype = which % 2 == 0 ? BLASD_float64 : BLASD_float32;
        bool single = dtype == BLASD_float32;
        int64_t n = which < 2 * SIZES ? sizes[which / 2] : 1030;
        void *a, *b;
        struct trial *t = system_of(n, 1, dtype, &a, &b);
        for (int64_t i = 0; i < n; i++) trial_put(a, dtype, i * n + i, 1);
        trial_put(a, dtype, 0, single ? 1e-10 : 1e-10);
        trial_put(b, dtype, 0, single ? 1e38 : 1e308);
        if (n > 1) trial_put(b, dtype, n - 1, single ? 0x1p-30 : 1e-20);
        assert_int_equal(trial_run(t), BLASD_OK);
        assert_true(isinf(x_at(t, 0)));
        assert_true(isinf(scalar(t, "backward_error")));
        assert_true(warned(t, "beyond the range"));
        trial_free(t);
    }
}

/* ---- many right-hand sides ---- */

/* Each column of many is solved as well as it is alone, whatever their number. */
static void many_are_solved_as_well_as_one(void **state) {
    static const int64_t counts[] = {1, 16, 17, 33, 70, 300};
    const int64_t n = 90;
    double *a = trial_alloc((size_t)(n * n) * sizeof *a), *alone = NULL;
    (void)state;
    /* condition 1e12 or so: a random matrix, two of whose rows are nearly the same */
    for (int64_t i = 0; i < n * n; i++) a[i] = trial_normal();
    for (int64_t j = 0; j < n; j++) a[n + j] = a[j] + 1e-11 * trial_normal();
    for (int c = 0; c < 6; c++) {
        int64_t columns = counts[c];
        void *ta, *tb;
        struct trial *t = system_of(n, columns, BLASD_float64, &ta, &tb);
        memcpy(ta, a, (size_t)(n * n) * sizeof *a);
        for (int64_t i = 0; i < n; i++)
            for (int64_t k = 0; k < columns; k++)
                trial_put(tb, BLASD_float64, i * columns + k,
                          sin((double)(i * 7 + 1) + (double)(k % 5)));
        assert_int_equal(trial_run(t), BLASD_OK);
        if (c == 0) alone = trial_alloc((size_t)n * sizeof *alone);
        for (int64_t i = 0; c == 0 && i < n; i++) alone[i] = x_at(t, i);
        double most = 0, worst = 0;
        for (int64_t i = 0; i < n; i++)
            for (int64_t k = 0; k < columns; k += 5) {
                most = fmax(most, fabs(alone[i]));
                worst = fmax(worst, fabs(x_at(t, i * columns + k) - alone[i]));
            }
        if (!(worst <= 2 * 0x1p-53 * most))
            fail_msg("%lld right-hand sides: %g off", (long long)columns, worst / most);
        assert_false(warned(t, "digit"));
        trial_free(t);
    }
    free(alone);
    free(a);
}

/* ---- refinement that must not harm ---- */

/* A = L L' with ones on the diagonal of L and minus ones below (Moler's), or U' of it: inverses
 * have no minus sign, so that sums of positive numbers give the truth. */
static void refinement_is_never_worse_than_none(void **state) {
    (void)state;
    for (int round = 0; round < 40; round++) {
        enum blasd_dtype dtype = round % 2 == 0 ? BLASD_float64 : BLASD_float32;
        int64_t n = dtype == BLASD_float32 ? trial_between(15, 30) : trial_between(30, 62);
        long double *x = trial_alloc((size_t)n * sizeof *x), most = 0;
        double errors[2] = {0};
        for (int which = 0; which < 2; which++) {
            void *a, *b;
            struct trial *t = system_of(n, 1, dtype, &a, &b);
            for (int64_t i = 0; i < n; i++)
                for (int64_t j = 0; j < n; j++)
                    trial_put(a, dtype, i * n + j,
                              i == j ? (double)i + 1 : (double)(i < j ? i : j) - 1);
            for (int64_t i = 0; i < n; i++) {
                double v = (double)((i * 37 + round) % 64 + 1) / 8;
                trial_put(b, dtype, i, v);
                x[i] = v;
            }
            for (int64_t i = 0; i < n; i++)
                for (int64_t j = 0; j < i; j++) x[i] += x[j];
            for (int64_t i = n - 1; i >= 0; i--)
                for (int64_t j = i + 1; j < n; j++) x[i] += x[j];
            trial_set_choice(t, "refinement", which == 0 ? "none" : "auto");
            assert_int_equal(trial_run(t), BLASD_OK);
            for (int64_t i = 0; i < n; i++) {
                errors[which] = fmax(errors[which], (double)fabsl(x_at(t, i) - x[i]));
                most = fmaxl(most, fabsl(x[i]));
            }
            trial_free(t);
        }
        if (!(errors[1] <= 2 * errors[0] + 8 * unit(dtype) * (double)most))
            fail_msg("n %lld: %g off without refinement, %g with", (long long)n,
                     errors[0] / (double)most, errors[1] / (double)most);
        free(x);
    }
}

/* ---- symmetric matrices whose rows and columns are of all sizes ---- */

/* D M D x = D b with D of powers of two is M y = b, y = D x, to the last digits of each element. */
static void graded_symmetric_systems(void **state) {
    (void)state;
    for (int round = 0; round < 4 * SIZES + 1; round++) {
        int64_t n = round < 4 * SIZES ? sizes[round / 4] : 1030; /* the device's large way */
        enum blasd_dtype dtype = round % 2 == 0 ? BLASD_float64 : BLASD_float32;
        int range = dtype == BLASD_float64 ? 450 : 50, *d = trial_alloc((size_t)n * sizeof *d);
        void *a, *b, *m, *c;
        struct trial *graded = system_of(n, 1, dtype, &a, &b);
        struct trial *plain = system_of(n, 1, dtype, &m, &c);
        double most = 0;
        for (int64_t i = 0; i < n; i++) {
            double right = (double)(float)(1 + trial_uniform() / 2);
            d[i] = (int)(range * trial_uniform());
            trial_put(c, dtype, i, right);
            trial_put(b, dtype, i, ldexp(right, d[i]));
            for (int64_t j = 0; j <= i; j++) {
                double v = (double)(float)trial_uniform();
                if (i == j) v = (double)(float)((v < 0 ? -1 : 1) * (1 + v * v) * sqrt((double)n));
                trial_put(m, dtype, i * n + j, v);
                trial_put(m, dtype, j * n + i, v);
                trial_put(a, dtype, i * n + j, ldexp(v, d[i] + d[j]));
                trial_put(a, dtype, j * n + i, ldexp(v, d[i] + d[j]));
            }
        }
        trial_set_choice(graded, "assume_a", "symmetric");
        assert_int_equal(trial_run(graded), BLASD_OK);
        assert_int_equal(trial_run(plain), BLASD_OK);
        assert_false(warned(graded, "digit"));
        for (int64_t i = 0; i < n; i++) most = fmax(most, fabs(x_at(plain, i)));
        for (int64_t i = 0; i < n; i++) {
            double got = ldexp(x_at(graded, i), d[i]), wish = x_at(plain, i);
            if (!(fabs(got - wish) <= unit(dtype) * (4 * fabs(wish) + most / 8)))
                fail_msg("n %lld, %s: x[%lld] is %g u off, rcond %g", (long long)n,
                         dtype == BLASD_float64 ? "float64" : "float32", (long long)i,
                         (got - wish) / wish / unit(dtype), scalar(graded, "rcond"));
        }
        trial_free(graded);
        trial_free(plain);
        free(d);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_small_in_rows_and_columns_is_right_or_doubted),
        cmocka_unit_test(what_vanishes_is_said),
        cmocka_unit_test(an_element_that_vanishes_is_said),
        cmocka_unit_test(what_is_far_from_the_largest_stays),
        cmocka_unit_test(blocks_of_different_sizes),
        cmocka_unit_test(a_solution_beyond_the_range_is_said),
        cmocka_unit_test(many_are_solved_as_well_as_one),
        cmocka_unit_test(refinement_is_never_worse_than_none),
        cmocka_unit_test(graded_symmetric_systems),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
