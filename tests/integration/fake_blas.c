/* A library in the form that `--blas` takes, of plain loops, as test_blas.py builds it: -DWRONG
 * gives wrong products, -DCRASH and -DHANG do that, -DLACKING has no LAPACK; without them its
 * products are right and its systems not solved. */
#include <cblas.h>
#include <signal.h>
#include <unistd.h>

#ifdef WRONG
#define SPOIL 1
#else
#define SPOIL 0
#endif

#define PRODUCT(name, type)                                                                        \
    void name(CBLAS_LAYOUT layout, CBLAS_TRANSPOSE how_a, CBLAS_TRANSPOSE how_b, blasint m,        \
              blasint n, blasint k, type alpha, const type *a, blasint lda, const type *b,         \
              blasint ldb, type beta, type *c, blasint ldc) {                                      \
        (void)layout, (void)how_b, (void)alpha, (void)beta;                                        \
        misbehave();                                                                               \
        for (blasint j = 0; j < n; j++)                                                            \
            for (blasint i = 0; i < m; i++) {                                                      \
                type sum = SPOIL;                                                                  \
                for (blasint l = 0; l < k; l++)                                                    \
                    sum +=                                                                         \
                        (how_a == CblasTrans ? a[i * lda + l] : a[l * lda + i]) * b[j * ldb + l];  \
                c[j * ldc + i] = sum;                                                              \
            }                                                                                      \
    }

static void misbehave(void) {
#ifdef CRASH
    raise(SIGSEGV);
#endif
#ifdef HANG
    for (;;) pause();
#endif
}

PRODUCT(cblas_sgemm, float)
PRODUCT(cblas_dgemm, double)

/* Names alone. LAPACKE takes what these leave in `info`, which is 0, for a system solved. */
#define NAME(name)                                                                                 \
    void fake_##name(void) __asm__(#name);                                                         \
    void fake_##name(void) {                                                                       \
    }
NAME(cblas_daxpy)
NAME(cblas_ddot)
NAME(cblas_dgemv)
NAME(cblas_dnrm2)
NAME(cblas_dsyr)
NAME(cblas_dsyrk)
NAME(cblas_dtrsm)
NAME(cblas_dtrsv)
NAME(cblas_sgemv)
NAME(cblas_strsm)
#ifndef LACKING
NAME(dgetrf_)
NAME(dgetrs_)
NAME(dpotrf_)
NAME(dsytrf_)
NAME(dgeqrf_)
NAME(dgesdd_)
NAME(sgetrf_)
NAME(sgetrs_)
NAME(spotrf_)
NAME(ssytrf_)
NAME(sgeqrf_)
#endif
