/* cholesky against its definition in long double: factors of definite matrices of all scales, what
 * is not definite, alone and in a stack. In short calls and interrupted: test_decompositions.c,
 * which is also what to read next. */
#include "decomposition_support.h"

static void factors_of_definite_matrices(void **state) {
    static const int sizes[] = {1, 2, 5, 33, 60}, ranges[][2] = {{0, 0}, {20, 400}, {50, 500}};
    (void)state;
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (int how = 0; how < 12; how++) {
            const bool single = how % 2, upper = how / 2 % 2;
            const int n = sizes[s], range = ranges[how / 4][single ? 0 : 1];
            double *a = definite(n, range, single);
            struct trial *t = job_of("cholesky", a, n, n, single);
            long double *wide = widen(a, n * n, 0);
            running = "definite";
            trial_set_bool(t, "upper", upper);
            assert_int_equal(trial_run(t), BLASD_OK);
            assert_int_equal(blasd_ref_cholesky(n, wide), 0);
            for (int i = 0; i < n; i++)
                for (int j = 0; j < n; j++) {
                    long double got = value(t, "L", upper ? j * n + i : i * n + j);
                    /* against the length of its row, which is the root of a's diagonal */
                    long double size = sqrtl((long double)a[i * n + i]);
                    if (j > i) assert_true(got == 0);
                    if (j <= i)
                        expect_at_most(t, "element", fabsl(got - wide[i * n + j]),
                                       40.0L * n * n * unit_of(single) * size + 0x1p-1074L +
                                           (single ? 0x1p-149L : 0));
                }
            expect_at_most(t, "residual", value(t, "residual", 0), 16 * (n + 1) * unit_of(single));
            assert_int_equal(t->task.warning_count, 0);
            trial_free(t);
            free(a);
            free(wide);
        }
}

static void matrices_that_are_not_definite(void **state) {
    (void)state;
    for (int n = 1; n < 70; n += 17)
        for (int bad = 0; bad < n; bad += 5) {
            double *a = definite(n, 100, false);
            struct trial *t;
            char words[80];
            a[bad * n + bad] = bad % 2 == 0 ? 0 : -1e-300;
            t = job_of("cholesky", a, n, n, false);
            assert_int_equal(trial_run(t), BLASD_E_not_positive_definite);
            snprintf(words, sizeof words, "order %d ", bad + 1);
            assert_non_null(strstr(t->task.err.detail, words));
            trial_free(t);
            free(a);
        }
}

/* Elements that no diagonal goes with, and that may overflow where it is scaled: beside zeros they
 * make pivots that are not numbers. */
static void elements_far_beyond_their_diagonal(void **state) {
    static const double sizes[][2] = {{1e-300, 1e300}, {1, 1e300}, {1, 1e200}, {1e300, 1e306}};
    (void)state;
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (int n = 3; n < 70; n += 22) {
            double *a = trial_alloc((size_t)(n * n) * sizeof *a);
            struct trial *t;
            char words[80];
            for (int i = 0; i < n * n; i++) a[i] = i % (n + 1) == 0 ? 1 : 0;
            a[0] = sizes[s][0];
            a[n - 1] = a[(n - 1) * n] = sizes[s][1];
            t = job_of("cholesky", a, n, n, false);
            assert_int_equal(trial_run(t), BLASD_E_not_positive_definite);
            snprintf(words, sizeof words, "order %d ", n);
            assert_non_null(strstr(t->task.err.detail, words));
            trial_free(t);
            free(a);
        }
}

/* In a stack each matrix has its own fate. */
static void one_of_a_stack_is_not_definite(void **state) {
    struct trial *t = trial_new("cholesky");
    double *a = trial_input(t, "a", BLASD_float64, BLASD_ROW_MAJOR, 4, (int64_t[]){2, 3, 5, 5});
    (void)state;
    for (int i = 0; i < 6; i++) {
        double *one = definite(5, 10, false);
        memcpy(a + i * 25, one, 25 * sizeof *one);
        free(one);
    }
    a[4 * 25 + 2 * 5 + 2] = -1;
    a[5 * 25 + 4] += 1; /* the triangle that is not read */
    assert_int_equal(trial_run(t), BLASD_OK);
    for (int i = 0; i < 6; i++) {
        assert_true(value(t, "info", i) == (i == 4 ? 3 : 0));
        assert_int_equal(isnan((double)value(t, "L", i * 25)), i == 4);
        assert_int_equal(isnan((double)value(t, "residual", i)), i == 4);
    }
    assert_int_equal(t->task.warning_count, 2);
    trial_free(t);
}

/* f f' of factors that are: 0, whole and one column short; 1, a unit triangle, whose inverse grows
 * as a power of its size; 2, one whose least eigenvalue is 2^-`bits`, for n of one size. */
static double *product_of(int n, int kind, int bits) {
    double *f = trial_alloc((size_t)(n * n) * sizeof *f),
           *a = trial_alloc((size_t)(n * n) * sizeof *a);
    for (int at = 0; at < n * n; at++) {
        int i = at / n, j = at % n;
        f[at] = kind == 0   ? j == n - 1 ? 0 : (double)trial_between(-9, 9)
                  : kind == 1 ? i == j  ? 1
                                : j < i ? trial_normal()
                                        : 0
                            : (i == j) * (i == n - 1 ? ldexp(1, -bits / 2) : 1);
        if (kind == 2 && i == n - 1 && j < n - 1) f[at] = sqrt(1.0 / n);
    }
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++) {
            long double sum = 0;
            for (int l = 0; l < n; l++) sum += (long double)f[i * n + l] * f[j * n + l];
            a[i * n + j] = (double)sum;
        }
    free(f);
    return a;
}

/* What is not definite, or no more than rounding makes it, fails or is warned of; what is by more
 * does not. */
static void definite_to_rounding(void **state) {
    static const struct {
        int n, kind, bits;
        bool single, doubtful;
    } cases[] = {{2, 0, 0, false, true},    {3, 0, 0, true, true},   {7, 0, 0, false, true},
                 {20, 0, 0, true, true},    {60, 0, 0, false, true}, {150, 0, 0, false, true},
                 {90, 1, 0, false, true},   {60, 1, 0, true, true},  {5, 2, 40, false, false},
                 {50, 2, 40, false, false}, {5, 2, 40, true, true},  {50, 2, 10, true, false},
                 {9, 2, 56, false, true}};
    (void)state;
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++)
        for (int round = 0; round < 20; round++) {
            const int n = cases[c].n;
            double *a = product_of(n, cases[c].kind, cases[c].bits);
            struct trial *t = job_of("cholesky", a, n, n, cases[c].single);
            enum blasd_code code = trial_run(t);
            bool warned =
                t->task.warning_count > 0 && t->task.warnings[0].code == BLASD_W_near_singular;
            if ((code == BLASD_E_not_positive_definite || warned) != cases[c].doubtful)
                fail_msg("case %zu: %d, least eigenvalue %.3Lg", c, (int)code,
                         code == BLASD_OK ? value(t, "least_eigenvalue", 0) : -1);
            trial_free(t);
            free(a);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(factors_of_definite_matrices),
        cmocka_unit_test(matrices_that_are_not_definite),
        cmocka_unit_test(elements_far_beyond_their_diagonal),
        cmocka_unit_test(one_of_a_stack_is_not_definite),
        cmocka_unit_test(definite_to_rounding),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
