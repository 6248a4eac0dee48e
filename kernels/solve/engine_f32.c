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
#define BAND 40 /* exponents of a right-hand side that are solved at once */
#define RESIDUAL_SUMS 1024
#define RESIDUAL_UNIT 0x1p-52

BLASD_CLONES
static void subtract_column_f32(double *restrict sum, const float *restrict column, double x,
                                int64_t n) {
    for (int64_t i = 0; i < n; i++) sum[i] -= (double)column[i] * x;
}

/* Columns c[0 .. k] of r := b - A x, rounded once. By strips of rows, whose sums stay in the cache;
 * a strip's piece of a column of A serves all k. */
static void residual(const struct blasd_engine *e, const float *x, const float *b, float *r,
                     const lapack_int *c, int k) {
    double sum[RESIDUAL_SUMS];
    const int64_t n = e->n, strip = RESIDUAL_SUMS / k;
    const float *matrix = e->matrix;
    for (int64_t i = 0; i < n; i += strip) {
        int64_t rows = n - i < strip ? n - i : strip;
        for (int m = 0; m < k; m++)
            for (int64_t p = 0; p < rows; p++) sum[m * strip + p] = (double)b[c[m] * n + i + p];
        for (int64_t j = 0; j < n; j++)
            for (int m = 0; m < k; m++)
                subtract_column_f32(sum + m * strip, matrix + j * n + i, (double)x[c[m] * n + j],
                                    rows);
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
