/* The engine in float64: residuals in double-double. Read next: engine_body.h. */
#include "kernels/solve/engine.h"

#include "core/parallel.h"
#include "core/wanted.h"

#include <cblas.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define REAL double
#define LAPACK(name) LAPACKE_d##name##_work
#define CBLAS(name) cblas_d##name
#define FORTRAN(name) d##name##_
#define NAME(name) name##_f64
#define UNIT 0x1p-53
#define SAFE 0x1p200
#define BAND 400           /* exponents of a right-hand side that are solved at once */
#define RESIDUAL_SUMS 2048 /* shorter columns are read too much in pieces */
#define RESIDUAL_UNIT 0x1p-104
#define RESIDUAL_COLUMNS 8 /* whose residuals are computed together */
#define UPDATE update_f64
#define FOUR 4 /* columns of A at a time */

#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__) /* it would trip over the resolvers */
#define WITH_FMA __attribute__((target_clones("avx512f", "arch=haswell", "default")))
#else
#define WITH_FMA
#endif

/* (sum, rest) -= a x, each product and each addition without error but in the last digit of `rest`.
 */
#define SUBTRACT_PRODUCT(sum, rest, a, x)                                                          \
    {                                                                                              \
        double p = -(a) * (x), e = __builtin_fma(-(a), x, -p);                                     \
        double s = (sum) + p, back = s - (sum);                                                    \
        (rest) += ((sum) - (s - back)) + (p - back) + e;                                           \
        (sum) = s;                                                                                 \
    }

/* For FOUR columns of a, n apart. */
WITH_FMA
static void subtract_columns_f64(double *restrict sum, double *restrict rest,
                                 const double *restrict a, int64_t n, const double x[FOUR],
                                 int64_t rows) {
    const double x0 = x[0], x1 = x[1], x2 = x[2], x3 = x[3];
    for (int64_t i = 0; i < rows; i++) {
        double high = sum[i], low = rest[i];
        SUBTRACT_PRODUCT(high, low, a[i], x0);
        SUBTRACT_PRODUCT(high, low, a[n + i], x1);
        SUBTRACT_PRODUCT(high, low, a[2 * n + i], x2);
        SUBTRACT_PRODUCT(high, low, a[3 * n + i], x3);
        sum[i] = high;
        rest[i] = low;
    }
}

WITH_FMA
static void subtract_column_f64(double *restrict sum, double *restrict rest,
                                const double *restrict a, double x, int64_t rows) {
    for (int64_t i = 0; i < rows; i++) SUBTRACT_PRODUCT(sum[i], rest[i], a[i], x);
}

/* Columns c[0 .. k] of r := b - A x, rounded once. By strips of rows, whose sums stay in the cache;
 * a strip's piece of a column of A serves all k. */
static void residual_f64(const struct blasd_engine *e, const double *x, const double *b, double *r,
                         const lapack_int *c, int k) {
    double sum[RESIDUAL_SUMS], rest[RESIDUAL_SUMS];
    const int64_t n = e->n, strip = RESIDUAL_SUMS / k;
    const double *matrix = e->matrix;
    for (int64_t i = 0; i < n; i += strip) {
        int64_t rows = n - i < strip ? n - i : strip, j = 0;
        for (int m = 0; m < k; m++) {
            memcpy(sum + m * strip, b + c[m] * n + i, (size_t)rows * sizeof *r);
            memset(rest + m * strip, 0, (size_t)rows * sizeof *r);
        }
        for (; j + FOUR <= n; j += FOUR)
            for (int m = 0; m < k; m++)
                subtract_columns_f64(sum + m * strip, rest + m * strip, matrix + j * n + i, n,
                                     x + c[m] * n + j, rows);
        for (; j < n; j++)
            for (int m = 0; m < k; m++)
                subtract_column_f64(sum + m * strip, rest + m * strip, matrix + j * n + i,
                                    x[c[m] * n + j], rows);
        for (int m = 0; m < k; m++)
            for (int64_t p = 0; p < rows; p++)
                r[c[m] * n + i + p] = sum[m * strip + p] + rest[m * strip + p];
    }
}

/* sum -= a x in plain arithmetic, for FOUR columns of a, n apart. */
BLASD_CLONES
static void subtract_plainly_f64(double *restrict sum, const double *restrict a, int64_t n,
                                 const double x[FOUR], int64_t rows) {
    const double x0 = x[0], x1 = x[1], x2 = x[2], x3 = x[3];
    for (int64_t i = 0; i < rows; i++)
        sum[i] = sum[i] - a[i] * x0 - a[n + i] * x1 - a[2 * n + i] * x2 - a[3 * n + i] * x3;
}

/* Columns c[0 .. k] of r := r - A (x - d), where d is the x that r is of. */
static void update_f64(const struct blasd_engine *e, const lapack_int *c, int k) {
    const int64_t n = e->n, strip = RESIDUAL_SUMS / k;
    const double *matrix = e->matrix, *x = e->x, *d = e->d;
    double *r = e->r, by[FOUR];
    for (int64_t i = 0; i < n; i += strip) {
        int64_t rows = n - i < strip ? n - i : strip, j = 0;
        for (; j + FOUR <= n; j += FOUR)
            for (int m = 0; m < k; m++) {
                for (int64_t q = 0; q < FOUR; q++)
                    by[q] = x[c[m] * n + j + q] - d[c[m] * n + j + q];
                subtract_plainly_f64(r + c[m] * n + i, matrix + j * n + i, n, by, rows);
            }
        for (; j < n; j++)
            for (int m = 0; m < k; m++)
                for (int64_t p = 0; p < rows; p++)
                    r[c[m] * n + i + p] -=
                        matrix[j * n + i + p] * (x[c[m] * n + j] - d[c[m] * n + j]);
    }
}

/* what sytrf is made of, which LAPACKE does not have; the last argument is the text's length */
void FORTRAN(lasyf)(const char *uplo, const lapack_int *n, const lapack_int *nb, lapack_int *kb,
                    REAL *a, const lapack_int *lda, lapack_int *pivots, REAL *work,
                    const lapack_int *ldwork, lapack_int *info, size_t length);
void FORTRAN(sytf2)(const char *uplo, const lapack_int *n, REAL *a, const lapack_int *lda,
                    lapack_int *pivots, lapack_int *info, size_t length);

#include "kernels/solve/engine_body.h"
