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

BLASD_CLONES
static void subtract_column_f32(double *restrict sum, const float *restrict column, double x,
                                int64_t n) {
    for (int64_t i = 0; i < n; i++) sum[i] -= (double)column[i] * x;
}

/* r := b - A x, rounded once. By strips of rows, whose sums stay in the cache. */
static void residual(const struct blasd_engine *e, const float *x, const float *b, float *r) {
    const int64_t strip = 1024;
    const float *matrix = e->matrix;
    for (int64_t i = 0; i < e->n; i += strip) {
        int64_t rows = e->n - i < strip ? e->n - i : strip;
        for (int64_t k = 0; k < rows; k++) e->sum[k] = (double)b[i + k];
        for (int64_t j = 0; j < e->n; j++)
            subtract_column_f32(e->sum, matrix + j * e->n + i, (double)x[j], rows);
        for (int64_t k = 0; k < rows; k++) r[i + k] = (float)e->sum[k];
    }
}

/* what sytrf is made of, which LAPACKE does not have; the last argument is the text's length */
void FORTRAN(lasyf)(const char *uplo, const lapack_int *n, const lapack_int *nb, lapack_int *kb,
                    REAL *a, const lapack_int *lda, lapack_int *pivots, REAL *work,
                    const lapack_int *ldwork, lapack_int *info, size_t length);
void FORTRAN(sytf2)(const char *uplo, const lapack_int *n, REAL *a, const lapack_int *lda,
                    lapack_int *pivots, lapack_int *info, size_t length);

#include "kernels/solve/engine_body.h"
