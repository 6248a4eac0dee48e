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
#define ROWS 64             /* of a tile of A that is widened */
#define DEPTH 128           /* its columns */
#define RESIDUAL_UNIT 0x1p-52

/* A block of float32, `from` apart, in double. */
BLASD_CLONES
static void widen_f32(double *restrict to, int64_t to_row, const float *restrict from,
                      int64_t from_row, int64_t rows, int64_t length) {
    for (int64_t j = 0; j < rows; j++)
        for (int64_t i = 0; i < length; i++) to[j * to_row + i] = (double)from[j * from_row + i];
}

/* Columns c[0 .. k] of r := b - A x, rounded once: products by tiles, in double, in which those of
 * two numbers are exact. */
static void residual_f32(const struct blasd_engine *e, const float *x, const float *b, float *r,
                         const lapack_int *c, int k) {
    double sum[RESIDUAL_COLUMNS * ROWS], tile[DEPTH * ROWS], wide[RESIDUAL_COLUMNS * DEPTH];
    const int64_t n = e->n;
    const float *matrix = e->matrix;
    for (int64_t i = 0; i < n; i += ROWS) {
        int64_t rows = n - i < ROWS ? n - i : ROWS;
        for (int m = 0; m < k; m++) widen_f32(sum + m * ROWS, ROWS, b + c[m] * n + i, n, 1, rows);
        for (int64_t j = 0; j < n; j += DEPTH) {
            int64_t depth = n - j < DEPTH ? n - j : DEPTH;
            widen_f32(tile, ROWS, matrix + j * n + i, n, depth, rows);
            for (int m = 0; m < k; m++)
                widen_f32(wide + m * DEPTH, DEPTH, x + c[m] * n + j, n, 1, depth);
            if (k == 1)
                cblas_dgemv(CblasColMajor, CblasNoTrans, (int)rows, (int)depth, -1, tile, ROWS,
                            wide, 1, 1, sum, 1);
            else
                cblas_dgemm(CblasColMajor, CblasNoTrans, CblasNoTrans, (int)rows, k, (int)depth, -1,
                            tile, ROWS, wide, DEPTH, 1, sum, ROWS);
        }
        for (int m = 0; m < k; m++)
            for (int64_t p = 0; p < rows; p++) r[c[m] * n + i + p] = (float)sum[m * ROWS + p];
    }
}

/* what sytrf is made of, which LAPACKE does not have; the last argument is the text's length */
void FORTRAN(lasyf)(const char *uplo, const lapack_int *n, const lapack_int *nb, lapack_int *kb,
                    REAL *a, const lapack_int *lda, lapack_int *pivots, REAL *work,
                    const lapack_int *ldwork, lapack_int *info, size_t length);
void FORTRAN(sytf2)(const char *uplo, const lapack_int *n, REAL *a, const lapack_int *lda,
                    lapack_int *pivots, lapack_int *info, size_t length);

#include "kernels/solve/engine_body.h"
