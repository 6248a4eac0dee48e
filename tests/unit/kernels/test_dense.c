/* The dense routines without a library beside LAPACK's: the same problems, what both must fulfil.
 */
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
static const struct regression_dense *const own = &blasd_regression_own;
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

static const int sizes[][2] = {{1, 1}, {5, 3}, {3, 5}, {17, 17}, {40, 9}, {9, 40}, {33, 32}};

static void qr_is_lapacks(void **state) {
    (void)state;
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (int pivoted = 0; pivoted < 2; pivoted++) {
            int m = sizes[s][0], n = sizes[s][1], least = m < n ? m : n;
            int pivots[2][MOST] = {0};
            double a[2][MOST * MOST], tau[2][MOST], c[2][MOST * 3];
            fill(a[0], m * n);
            fill(c[0], m * 3);
            for (int i = 0; pivoted && n > 2 && i < m; i++) a[0][m + i] = a[0][i] / 2;
            memcpy(a[1], a[0], sizeof *a);
            memcpy(c[1], c[0], sizeof *c);
            for (int w = 0; w < 2; w++) {
                const struct regression_dense *d = w == 0 ? own : lapack;
                if (pivoted)
                    assert_int_equal(d->geqp3(m, n, a[w], m, pivots[w], tau[w]), 0);
                else
                    assert_int_equal(d->geqrf(m, n, a[w], m, tau[w]), 0);
                assert_int_equal(d->ormqr(m, 3, least, a[w], m, tau[w], c[w], m), 0);
            }
            for (int j = 0; j < n; j++)
                for (int i = 0; i <= j && i < m; i++)
                    if (i < least - 1 || !pivoted)
                        CLOSE(fabs(a[0][j * m + i]), fabs(a[1][j * m + i]), 1e-12);
            if (pivoted) continue;
            for (int i = 0; i < least - 1; i++)
                if (fabs(a[1][i * m + i]) > 1e-9) CLOSE(fabs(c[0][i]), fabs(c[1][i]), 1e-10);
            if (m < n) continue;
            for (int w = 0; w < 2; w++) {
                const struct regression_dense *d = w == 0 ? own : lapack;
                assert_int_equal(d->orgqr(m, n, a[w], m, tau[w]), 0);
            }
            for (int j = 0; j < n; j++)
                for (int l = 0; l <= j; l++)
                    CLOSE(own->dot(m, a[0] + j * m, a[0] + l * m), j == l, 1e-13);
        }
}

static void singular_values_are_lapacks(void **state) {
    (void)state;
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        int m = sizes[s][0], n = sizes[s][1], least = m < n ? m : n;
        double a[2][MOST * MOST], values[2][MOST];
        fill(a[0], m * n);
        memcpy(a[1], a[0], sizeof *a);
        blasd_regression_long_call = s % 2 == 0 ? 0 : 1e18; /* in parts */
        assert_int_equal(own->gesdd(m, n, a[0], m, values[0]), 0);
        assert_int_equal(lapack->gesdd(m, n, a[1], m, values[1]), 0);
        blasd_regression_long_call = 5e9;
        for (int i = 0; i < least; i++) CLOSE(values[0][i], values[1][i], 1e-13 * values[1][0]);
    }
}

static void triangles_are_lapacks(void **state) {
    (void)state;
    for (int n = 1; n <= MOST; n += 13)
        for (int c = 0; c < 8; c++) {
            bool right = c & 1, upper = c & 2, trans = c & 4;
            double a[2][MOST * MOST], b[2][MOST * 7];
            int m = right ? 7 : n, columns = right ? n : 7;
            fill(a[0], n * n);
            fill(b[0], n * 7);
            for (int i = 0; i < n; i++) a[0][i * n + i] += 8;
            memcpy(a[1], a[0], sizeof *a);
            memcpy(b[1], b[0], sizeof *b);
            own->trsm(right, upper, trans, m, columns, a[0], n, b[0], m);
            lapack->trsm(right, upper, trans, m, columns, a[1], n, b[1], m);
            for (int i = 0; i < n * 7; i++) CLOSE(b[0][i], b[1][i], 1e-13);
            assert_int_equal(own->trtri(upper, n, a[0], n), 0);
            assert_int_equal(lapack->trtri(upper, n, a[1], n), 0);
            for (int i = 0; i < n * n; i++) CLOSE(a[0][i], a[1][i], 1e-13);
            a[0][n * n - 1] = 0;
            assert_true(own->trtri(upper, n, a[0], n) != 0);
        }
}

static void products_are_lapacks(void **state) {
    (void)state;
    for (int c = 0; c < 4; c++) {
        double a[35 * 35], b[35 * 35], d[2][35 * 35], g[2][35 * 35], y[2][35];
        int m = 5, n = 6, k = 35, lda = c & 1 ? k : m, ldb = c & 2 ? n : k;
        fill(a, 35 * 35);
        fill(b, 35 * 35);
        for (int w = 0; w < 2; w++) {
            const struct regression_dense *dense = w == 0 ? own : lapack;
            dense->gemm(c & 1, c & 2, m, n, k, a, lda, b, ldb, d[w], m);
            dense->gemv(m, k, a, m, b, y[w]);
            memset(g[w], 0, sizeof *g);
            dense->syrk(35, 20, a, 20, g[w], 35);
            dense->syr(35, 0.7, b, g[w], 35);
            for (int i = 0; i < 35; i++) g[w][i * 36] += 40;
            assert_int_equal(dense->potrf(true, 35, g[w], 35), 0);
        }
        for (int i = 0; i < m * n; i++) CLOSE(d[0][i], d[1][i], 1e-13);
        for (int i = 0; i < m; i++) CLOSE(y[0][i], y[1][i], 1e-13);
        for (int j = 0; j < 35; j++)
            for (int i = 0; i <= j; i++) CLOSE(g[0][j * 35 + i], g[1][j * 35 + i], 1e-13);
        memset(g[0], 0, sizeof *g);
        assert_true(own->potrf(false, 35, g[0], 35) != 0);
    }
}

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
        cmocka_unit_test(qr_is_lapacks),
        cmocka_unit_test(singular_values_are_lapacks),
        cmocka_unit_test(triangles_are_lapacks),
        cmocka_unit_test(products_are_lapacks),
        cmocka_unit_test(decompositions_in_parts),
        cmocka_unit_test(calls_in_parts_are_lapacks),
        cmocka_unit_test(lengths_neither_overflow_nor_vanish),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
