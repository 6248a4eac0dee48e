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

#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__) /* it would trip over the resolvers */
#define WITH_FMA __attribute__((target_clones("avx512f", "arch=haswell", "default")))
#else
#define WITH_FMA
#endif

/* (sum, rest) -= column x, each product and each addition without error but in the last digit of
 * `rest`. */
WITH_FMA
static void subtract_column_f64(double *restrict sum, double *restrict rest,
                                const double *restrict column, double x, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        double p = -column[i] * x, e = __builtin_fma(-column[i], x, -p);
        double s = sum[i] + p, back = s - sum[i];
        rest[i] += (sum[i] - (s - back)) + (p - back) + e;
        sum[i] = s;
    }
}

/* r := b - A x, rounded once. By strips of rows, whose sums stay in the cache. */
static void residual(const struct blasd_engine *e, const double *x, const double *b, double *r) {
    const int64_t strip = 2048; /* shorter columns are read too much in pieces */
    const double *matrix = e->matrix;
    for (int64_t i = 0; i < e->n; i += strip) {
        int64_t rows = e->n - i < strip ? e->n - i : strip;
        memcpy(e->sum, b + i, (size_t)rows * sizeof *r);
        memset(e->rest, 0, (size_t)rows * sizeof *r);
        for (int64_t j = 0; j < e->n; j++)
            subtract_column_f64(e->sum, e->rest, matrix + j * e->n + i, x[j], rows);
        for (int64_t k = 0; k < rows; k++) r[i + k] = e->sum[k] + e->rest[k];
    }
}

/* what sytrf is made of, which LAPACKE does not have; the last argument is the text's length */
void FORTRAN(lasyf)(const char *uplo, const lapack_int *n, const lapack_int *nb, lapack_int *kb,
                    REAL *a, const lapack_int *lda, lapack_int *pivots, REAL *work,
                    const lapack_int *ldwork, lapack_int *info, size_t length);
void FORTRAN(sytf2)(const char *uplo, const lapack_int *n, REAL *a, const lapack_int *lda,
                    lapack_int *pivots, lapack_int *info, size_t length);

#include "kernels/solve/engine_body.h"
