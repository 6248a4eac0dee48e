/* The dense routines of regression: long calls in parts, and lengths. */
#include "kernels/regression/dense.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MOST = 40 };
static const struct regression_dense *const lapack = &blasd_regression_lapack;

static double uniform(void) {
    static uint64_t state = 1;
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (double)(int64_t)state * 0x1p-63;
}

static void fill(double *a, int count) {
    for (int i = 0; i < count; i++) a[i] = uniform();
}

#define CLOSE(a, b, tolerance)                                                                     \
    do {                                                                                           \
        if (!(fabs((a) - (b)) <= (tolerance)))                                                     \
            fail_msg("%s is %.17g, expected %.17g", #a, (double)(a), (double)(b));                 \
    } while (0)

/* One of the routines on fresh numbers, its calls whole or in parts, into `out` of SIDE x SIDE. */
enum { SIDE = 600 };
static void run_routine(int which, bool in_parts, double *a, double *b, double *out) {
    double tau[SIDE];
    bool first = which % 2 == 0;
    blasd_regression_long_call = in_parts ? 0 : 1e18;
    switch (which / 2) {
    case 0: assert_int_equal(lapack->trtri(first, SIDE, a, SIDE), 0); break;
    case 1: assert_int_equal(lapack->potrf(first, SIDE, a, SIDE), 0); break;
    case 2: lapack->trsm(first, true, !first, SIDE, SIDE, b, SIDE, a, SIDE); break;
    case 3: lapack->trsm(first, false, first, SIDE, SIDE, b, SIDE, a, SIDE); break;
    case 4: lapack->gemm(first, !first, SIDE, SIDE, 30, a, SIDE, b, SIDE, out, SIDE); return;
    case 5: lapack->syrk(SIDE, 40, a, SIDE, out, SIDE); return;
    default:
        assert_int_equal(lapack->geqrf(SIDE, SIDE - 40, a, SIDE, tau), 0);
        assert_int_equal(lapack->ormqr(SIDE, SIDE, SIDE - 40, a, SIDE, tau, b, SIDE), 0);
        memcpy(out, b, (size_t)SIDE * SIDE * sizeof *out);
        return;
    }
    memcpy(out, a, (size_t)SIDE * SIDE * sizeof *out);
}

/* a (SIDE x n or n x SIDE) of rank 200, taken apart, whole and in parts: the same values, pivots
 * that fall, and what the parts make is a again. */
static void decompositions_in_parts(void **state) {
    double usual = blasd_regression_long_call;
    (void)state;
    for (int which = 0; which < 4; which++) {
        int m = which % 2 == 0 ? SIDE : 300, n = which % 2 == 0 ? 300 : SIDE, least = 300;
        size_t count = (size_t)SIDE * SIDE;
        double *a = calloc(3 * count, sizeof *a), *b = a + count, *c = b + count;
        double *left = calloc(2 * count, sizeof *a), *vt = left + count, values[2][SIDE];
        double tau[SIDE], worst = 0;
        int pivot[SIDE] = {0};
        assert_true(a != NULL && left != NULL);
        fill(left, m * 200);
        fill(vt, 200 * n);
        lapack->gemm(false, false, m, n, 200, left, m, vt, 200, a, m);
        memcpy(b, a, count * sizeof *a);
        memcpy(c, a, count * sizeof *a);
        blasd_regression_long_call = 1e18;
        assert_int_equal(lapack->gesdd(m, n, b, m, values[0]), 0);
        blasd_regression_long_call = 0;
        if (which < 2) { /* c = U S V' */
            assert_int_equal(lapack->svd(m, n, c, values[1], left, vt), 0);
            for (int i = 0; i < least; i++) CLOSE(values[1][i], values[0][i], 1e-11);
            for (int j = 0; j < n; j++)
                for (int i = 0; i < least; i++) vt[j * least + i] *= values[1][i];
            lapack->gemm(false, false, m, n, least, left, m, vt, least, b, m);
        } else { /* c P = Q R */
            assert_int_equal(lapack->geqp3(m, n, c, m, pivot, tau), 0);
            memset(vt, 0, count * sizeof *a);
            for (int j = 0; j < n; j++)
                for (int i = 0; i <= j && i < least; i++)
                    vt[(pivot[j] - 1) * least + i] = c[j * m + i];
            for (int i = 1; i < least; i++)
                assert_true(fabs(c[i * m + i]) <= fabs(c[(i - 1) * m + i - 1]) + 1e-10);
            CLOSE(c[200 * m + 200], 0, 1e-9);
            assert_true(fabs(c[199 * m + 199]) > 1e-3);
            assert_int_equal(lapack->orgqr(m, least, c, m, tau), 0);
            lapack->gemm(false, false, m, n, least, c, m, vt, least, b, m);
        }
        for (int i = 0; i < m * n; i++) worst = fmax(worst, fabs(b[i] - a[i]));
        CLOSE(worst, 0, 1e-10);
        free(a);
        free(left);
    }
    blasd_regression_long_call = usual;
}

/* What would be a long call is made of short ones, with the same result. */
static void calls_in_parts_are_lapacks(void **state) {
    double *m[6]; /* a and b, as they are and for either run; whole, in parts */
    double usual = blasd_regression_long_call;
    size_t bytes = (size_t)SIDE * SIDE * sizeof(double);
    (void)state;
    for (int i = 0; i < 6; i++) assert_non_null(m[i] = calloc(1, bytes));
    fill(m[0], SIDE * SIDE);
    fill(m[1], SIDE * SIDE);
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < SIDE; j++) m[i][j * SIDE + j] += 2 * SIDE;
    for (int which = 0; which < 13; which++) {
        for (int run = 0; run < 2; run++) {
            memcpy(m[2], m[0], bytes);
            memcpy(m[3], m[1], bytes);
            run_routine(which, run == 1, m[2], m[3], m[4 + run]);
        }
        for (int i = 0; i < SIDE * SIDE; i++) CLOSE(m[5][i], m[4][i], 1e-10 * (1 + fabs(m[4][i])));
    }
    m[0][7 * SIDE + 7] = 0;
    blasd_regression_long_call = 0;
    assert_int_equal(lapack->trtri(true, SIDE, m[0], SIDE), 8);
    m[1][200 * SIDE + 200] = -1;
    assert_int_equal(lapack->potrf(true, SIDE, m[1], SIDE), 201);
    blasd_regression_long_call = usual;
    for (int i = 0; i < 6; i++) free(m[i]);
}

static void lengths_neither_overflow_nor_vanish(void **state) {
    const double large[3] = {3e300, 4e300, 0}, small[3] = {3e-300, 0, 4e-300};
    const double odd[2] = {1, NAN};
    (void)state;
    CLOSE(blasd_regression_length(3, large) / 1e300, 5, 1e-15);
    CLOSE(blasd_regression_length(3, small) * 1e300, 5, 1e-15);
    assert_true(isnan(blasd_regression_length(2, odd)));
    assert_true(blasd_regression_length(0, odd) == 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(decompositions_in_parts),
        cmocka_unit_test(calls_in_parts_are_lapacks),
        cmocka_unit_test(lengths_neither_overflow_nor_vanish),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
