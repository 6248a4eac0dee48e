/* The engine in float32: residuals in double, in which each product is exact. Read next:
 * engine_body.h. */
#include "kernels/solve/engine.h"

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
#define FORTRAN(name) s##name##_
#define NAME(name) name##_f32
#define UNIT 0x1p-24f
#define SAFE 0x1p40f
#define BAND 40             /* exponents of a right-hand side that are solved at once */
#define RESIDUAL_COLUMNS 32 /* whose residuals are computed together */
#define RESIDUAL_SUMS 4096
#define MOST_ROWS 256 /* of a strip */
#define FOUR 4        /* columns of A at a time */
#define RESIDUAL_UNIT 0x1p-52

/* sum -= a x, for FOUR columns of a, `rows` apart. */
BLASD_CLONES
static void subtract_columns_f32(double *restrict sum, const double *restrict a,
                                 const double x[FOUR], int64_t rows) {
    const double x0 = x[0], x1 = x[1], x2 = x[2], x3 = x[3];
    const double *restrict a1 = a + rows, *restrict a2 = a1 + rows, *restrict a3 = a2 + rows;
    for (int64_t i = 0; i < rows; i++)
        sum[i] = sum[i] - a[i] * x0 - a1[i] * x1 - a2[i] * x2 - a3[i] * x3;
}

/* Columns c[0 .. k] of r := b - A x, rounded once. By strips of rows, whose sums stay in the cache;
 * a strip's piece of FOUR columns of A becomes double once and serves all k. */
BLASD_CLONES
static void residual_f32(const struct blasd_engine *e, const float *x, const float *b, float *r,
                         const lapack_int *c, int k) {
    double sum[RESIDUAL_SUMS], piece[FOUR * MOST_ROWS], by[FOUR];
    const int64_t n = e->n, strip = RESIDUAL_SUMS / k < MOST_ROWS ? RESIDUAL_SUMS / k : MOST_ROWS;
    const float *matrix = e->matrix;
    for (int64_t i = 0; i < n; i += strip) {
        int64_t rows = n - i < strip ? n - i : strip;
        for (int m = 0; m < k; m++)
            for (int64_t p = 0; p < rows; p++) sum[m * strip + p] = (double)b[c[m] * n + i + p];
        for (int64_t j = 0; j < n; j += FOUR) {
            int64_t count = n - j < FOUR ? n - j : FOUR;
            for (int64_t q = 0; q < count; q++)
                for (int64_t p = 0; p < rows; p++)
                    piece[q * rows + p] = (double)matrix[(j + q) * n + i + p];
            memset(piece + count * rows, 0, (size_t)((FOUR - count) * rows) * sizeof *piece);
            for (int m = 0; m < k; m++) {
                for (int64_t q = 0; q < FOUR; q++)
                    by[q] = q < count ? (double)x[c[m] * n + j + q] : 0;
                subtract_columns_f32(sum + m * strip, piece, by, rows);
            }
        }
        for (int m = 0; m < k; m++)
            for (int64_t p = 0; p < rows; p++) r[c[m] * n + i + p] = (float)sum[m * strip + p];
    }
}

/* what sytrf is made of, which LAPACKE does not have; the last argument is the text's length */
void FORTRAN(lasyf)(const char *uplo, const lapack_int *n, const lapack_int *nb, lapack_int *kb,
                    REAL *a, const lapack_int *lda, lapack_int *pivots, REAL *work,
                    const lapack_int *ldwork, lapack_int *info, size_t length);
void FORTRAN(sytf2)(const char *uplo, const lapack_int *n, REAL *a, const lapack_int *lda,
                    lapack_int *pivots, lapack_int *info, size_t length);

#include "kernels/solve/engine_body.h"
