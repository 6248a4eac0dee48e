/* The engine in float64: residuals in double-double. Read next: engine_body.h. */
#include "kernels/solve/engine.h"
#include "kernels/solve/kept.h"

#include "core/parallel.h"
#include "core/wanted.h"
#include "kernels/numeric/dd.h"

#include <cblas.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define REAL double
#define LAPACK(name) LAPACKE_d##name##_work
#define CBLAS(name) cblas_d##name
#define NAME(name) name##_f64
#define UNIT 0x1p-53
#define SAFE 0x1p200
#define RESIDUAL_SUMS 2048 /* shorter columns are read too much in pieces */
#define RESIDUAL_UNIT 0x1p-104
#define RESIDUAL_COLUMNS 32 /* whose residuals are computed together, */
#define RESIDUAL_GROUP 8    /* by so many that their sums stay in the cache */
#define RESIDUAL_STRIP (RESIDUAL_SUMS / RESIDUAL_GROUP) /* rows of several columns' sums */
#define SIZES_DEPTH 64
#define LIGHT 0x1p-10 /* of u: what an update in plain arithmetic may hide of a residual */
#define UPDATE_TERMS(n) ((n) + 4) /* roundings of it */
#define FOUR 4                    /* columns of A at a time */

/* For FOUR columns of a, n apart. */
DD_CLONES
static void subtract_columns_f64(double *restrict sum, double *restrict rest,
                                 const double *restrict a, int64_t n, const double x[FOUR],
                                 int64_t rows) {
    const double x0 = x[0], x1 = x[1], x2 = x[2], x3 = x[3];
    for (int64_t i = 0; i < rows; i++) {
        struct dd own = dd_make(sum[i], rest[i]);
        own = dd_subtract_product(own, a[i], x0);
        own = dd_subtract_product(own, a[n + i], x1);
        own = dd_subtract_product(own, a[2 * n + i], x2);
        own = dd_subtract_product(own, a[3 * n + i], x3);
        sum[i] = own.hi;
        rest[i] = own.lo;
    }
}

DD_CLONES
static void subtract_column_f64(double *restrict sum, double *restrict rest,
                                const double *restrict a, double x, int64_t rows) {
    for (int64_t i = 0; i < rows; i++) {
        struct dd own = dd_subtract_product(dd_make(sum[i], rest[i]), a[i], x);
        sum[i] = own.hi;
        rest[i] = own.lo;
    }
}

/* The same where sum began so far above all that is subtracted that it never comes near 0: then the
 * part of a product that it cannot hold is found by one more fused multiply-add. */
DD_CLONES
static void subtract_below_f64(double *restrict sum, double *restrict rest,
                               const double *restrict a, int64_t n, const double x[FOUR],
                               int64_t rows) {
    const double x0 = -x[0], x1 = -x[1], x2 = -x[2], x3 = -x[3];
    for (int64_t i = 0; i < rows; i++) {
        double s0 = sum[i], low = rest[i], s1 = __builtin_fma(a[i], x0, s0),
               s2 = __builtin_fma(a[n + i], x1, s1), s3 = __builtin_fma(a[2 * n + i], x2, s2),
               s4 = __builtin_fma(a[3 * n + i], x3, s3);
        low += __builtin_fma(a[i], x0, s0 - s1) + __builtin_fma(a[n + i], x1, s1 - s2);
        low += __builtin_fma(a[2 * n + i], x2, s2 - s3) + __builtin_fma(a[3 * n + i], x3, s3 - s4);
        sum[i] = s4;
        rest[i] = low;
    }
}

BLASD_CLONES
static void take_sizes_f64(double *restrict to, const double *restrict from, int64_t count) {
    for (int64_t i = 0; i < count; i++) to[i] = fabs(from[i]);
}

/* Where sums begin so that they stay far from 0: above |b| + |A| |x|, for k columns of a strip. */
static void start_above_f64(const struct blasd_engine *e, const double *x, const double *b,
                            const lapack_int *c, int k, int64_t i, int64_t rows, double *above) {
    double tile[RESIDUAL_STRIP * SIZES_DEPTH], by[RESIDUAL_GROUP * SIZES_DEPTH];
    const int64_t n = e->n;
    const double *matrix = e->matrix;
    for (int m = 0; m < k; m++) take_sizes_f64(above + m * RESIDUAL_STRIP, b + c[m] * n + i, rows);
    for (int64_t j = 0; j < n; j += SIZES_DEPTH) {
        int64_t depth = n - j < SIZES_DEPTH ? n - j : SIZES_DEPTH;
        for (int64_t q = 0; q < depth; q++)
            take_sizes_f64(tile + q * rows, matrix + (j + q) * n + i, rows);
        for (int m = 0; m < k; m++) take_sizes_f64(by + m * SIZES_DEPTH, x + c[m] * n + j, depth);
        cblas_dgemm(CblasColMajor, CblasNoTrans, CblasNoTrans, (int)rows, k, (int)depth, 4, tile,
                    (int)rows, by, SIZES_DEPTH, j == 0 ? 4 : 1, above, RESIDUAL_STRIP);
    }
}

/* Columns c[0 .. k] of r := b - A x, rounded once. By strips of rows, whose sums stay in the cache;
 * a strip's piece of a column of A serves all k. */
static void residual_group(const struct blasd_engine *e, const double *x, const double *b,
                           double *r, const lapack_int *c, int k) {
    double sum[RESIDUAL_SUMS], rest[RESIDUAL_SUMS], above[RESIDUAL_SUMS] = {0};
    const bool several = e->shape.columns > 1;
    const int64_t n = e->n, strip = several ? RESIDUAL_STRIP : RESIDUAL_SUMS;
    const double *matrix = e->matrix;
    for (int64_t i = 0; i < n; i += strip) {
        int64_t rows = n - i < strip ? n - i : strip, j = 0;
        /* of several columns sizes cost less than they save; one waits for memory, not for sums */
        if (several) start_above_f64(e, x, b, c, k, i, rows, above);
        for (int m = 0; m < k; m++)
            for (int64_t p = 0; p < rows; p++) {
                double from = above[m * strip + p], value = b[c[m] * n + i + p];
                sum[m * strip + p] = from + value;
                rest[m * strip + p] = value - (sum[m * strip + p] - from);
            }
        for (; j + FOUR <= n; j += FOUR)
            for (int m = 0; m < k; m++)
                (several ? subtract_below_f64
                         : subtract_columns_f64)(sum + m * strip, rest + m * strip,
                                                 matrix + j * n + i, n, x + c[m] * n + j, rows);
        for (; j < n; j++)
            for (int m = 0; m < k; m++)
                subtract_column_f64(sum + m * strip, rest + m * strip, matrix + j * n + i,
                                    x[c[m] * n + j], rows);
        for (int m = 0; m < k; m++)
            for (int64_t p = 0; p < rows; p++)
                r[c[m] * n + i + p] =
                    (sum[m * strip + p] - above[m * strip + p]) + rest[m * strip + p];
    }
}

static void residual_f64(const struct blasd_engine *e, const double *x, const double *b, double *r,
                         const lapack_int *c, int k) {
    for (int m = 0; m < k; m += RESIDUAL_GROUP)
        residual_group(e, x, b, r, c + m, k - m < RESIDUAL_GROUP ? k - m : RESIDUAL_GROUP);
}

/* sum -= a x in plain arithmetic, for FOUR columns of a, n apart. */
BLASD_CLONES
static void subtract_plainly_f64(double *restrict sum, const double *restrict a, int64_t n,
                                 const double x[FOUR], int64_t rows) {
    const double x0 = x[0], x1 = x[1], x2 = x[2], x3 = x[3];
    for (int64_t i = 0; i < rows; i++)
        sum[i] = sum[i] - a[i] * x0 - a[n + i] * x1 - a[2 * n + i] * x2 - a[3 * n + i] * x3;
}

/* r := r - A (x - d) for one column, where d is the x that r is of. */
static void update_one_f64(const struct blasd_engine *e) {
    const int64_t n = e->n;
    const double *matrix = e->matrix, *x = e->x, *d = e->d;
    double *r = e->r, by[FOUR];
    for (int64_t i = 0; i < n; i += RESIDUAL_SUMS) {
        int64_t rows = n - i < RESIDUAL_SUMS ? n - i : RESIDUAL_SUMS, j = 0;
        for (; j + FOUR <= n; j += FOUR) {
            for (int64_t q = 0; q < FOUR; q++) by[q] = x[j + q] - d[j + q];
            subtract_plainly_f64(r + i, matrix + j * n + i, n, by, rows);
        }
        for (; j < n; j++)
            for (int64_t p = 0; p < rows; p++) r[i + p] -= matrix[j * n + i + p] * (x[j] - d[j]);
    }
}

#include "kernels/solve/engine_body.h"
