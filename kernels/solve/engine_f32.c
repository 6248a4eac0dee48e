/* The engine in float32: residuals in double, in which each product is exact. Read next:
 * engine_body.h. */
#include "kernels/solve/engine.h"
#include "kernels/solve/kept.h"

#include "core/parallel.h"
#include "core/wanted.h"

#include <cblas.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define REAL float
#define LAPACK(name) LAPACKE_s##name##_work
#define CBLAS(name) cblas_s##name
#define NAME(name) name##_f32
#define UNIT 0x1p-24f
#define SAFE 0x1p40f
#define RESIDUAL_COLUMNS 128 /* whose residuals are computed together */
#define ROWS 256             /* of a tile of A that is widened */
#define STRIP 1024           /* rows whose sums are kept for one column */
#define DEPTH 96             /* its columns */
#define RESIDUAL_UNIT 0x1p-52
#define LIGHT 0x1p-6 /* of u: what an update in plain arithmetic may hide of a residual */
#define UPDATE_TERMS(n) ((n) < UPDATE_DEPTH ? (n) + 4 : UPDATE_DEPTH + 4) /* roundings of it */
#define FOUR 4 /* columns of A at a time */

/* A block of float32, `from` apart, in double. */
BLASD_CLONES
static void widen_f32(double *restrict to, int64_t to_row, const float *restrict from,
                      int64_t from_row, int64_t rows, int64_t length) {
    for (int64_t j = 0; j < rows; j++)
        for (int64_t i = 0; i < length; i++) to[j * to_row + i] = (double)from[j * from_row + i];
}

/* sum -= a x in double, for FOUR columns of a, n apart. */
BLASD_CLONES
static void subtract_columns_f32(double *restrict sum, const float *restrict a, int64_t n,
                                 const float x[FOUR], int64_t rows) {
    const double x0 = (double)x[0], x1 = (double)x[1], x2 = (double)x[2], x3 = (double)x[3];
    for (int64_t i = 0; i < rows; i++)
        sum[i] = sum[i] - (double)a[i] * x0 - (double)a[n + i] * x1 - (double)a[2 * n + i] * x2 -
                 (double)a[3 * n + i] * x3;
}

/* r := b - A x, rounded once: one column reads A as it lies, by strips whose sums stay in the
 * cache. */
static void residual_of_one(const struct blasd_engine *e, const float *x, const float *b,
                            float *r) {
    double sum[STRIP];
    const int64_t n = e->n;
    const float *matrix = e->matrix;
    for (int64_t i = 0; i < n; i += STRIP) {
        int64_t rows = n - i < STRIP ? n - i : STRIP, j = 0;
        for (int64_t p = 0; p < rows; p++) sum[p] = (double)b[i + p];
        for (; j + FOUR <= n; j += FOUR)
            subtract_columns_f32(sum, matrix + j * n + i, n, x + j, rows);
        for (; j < n; j++)
            for (int64_t p = 0; p < rows; p++)
                sum[p] -= (double)matrix[j * n + i + p] * (double)x[j];
        for (int64_t p = 0; p < rows; p++) r[i + p] = (float)sum[p];
    }
}

/* Columns c[0 .. k] of r := b - A x, rounded once: products by tiles, in double, in which those of
 * two numbers are exact. */
static void residual_f32(const struct blasd_engine *e, const float *x, const float *b, float *r,
                         const lapack_int *c, int k) {
    double sum[RESIDUAL_COLUMNS * ROWS], tile[DEPTH * ROWS], wide[RESIDUAL_COLUMNS * DEPTH];
    const int64_t n = e->n;
    const float *matrix = e->matrix;
    if (e->shape.columns == 1) {
        residual_of_one(e, x + c[0] * n, b + c[0] * n, r + c[0] * n);
        return;
    }
    for (int64_t i = 0; i < n; i += ROWS) {
        int64_t rows = n - i < ROWS ? n - i : ROWS;
        for (int m = 0; m < k; m++) widen_f32(sum + m * ROWS, ROWS, b + c[m] * n + i, n, 1, rows);
        for (int64_t j = 0; j < n; j += DEPTH) {
            int64_t depth = n - j < DEPTH ? n - j : DEPTH;
            widen_f32(tile, ROWS, matrix + j * n + i, n, depth, rows);
            for (int m = 0; m < k; m++)
                widen_f32(wide + m * DEPTH, DEPTH, x + c[m] * n + j, n, 1, depth);
            cblas_dgemm(CblasColMajor, CblasNoTrans, CblasNoTrans, (int)rows, k, (int)depth, -1,
                        tile, ROWS, wide, DEPTH, 1, sum, ROWS);
        }
        for (int m = 0; m < k; m++)
            for (int64_t p = 0; p < rows; p++) r[c[m] * n + i + p] = (float)sum[m * ROWS + p];
    }
}

/* r := r - A (x - d) for one column: to read A again takes as long with x. */
static void update_one_f32(const struct blasd_engine *e) {
    residual_of_one(e, e->x, e->b, e->r);
}

#include "kernels/solve/engine_body.h"
