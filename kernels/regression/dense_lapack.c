/* dense.h with OpenBLAS and LAPACKE. */
#include "kernels/regression/dense.h"

#include <cblas.h>
#include <lapacke.h>

static int geqp3(int m, int n, double *a, int lda, int *pivot, double *tau) {
    return LAPACKE_dgeqp3(LAPACK_COL_MAJOR, m, n, a, lda, pivot, tau);
}
static int geqrf(int m, int n, double *a, int lda, double *tau) {
    return LAPACKE_dgeqrf(LAPACK_COL_MAJOR, m, n, a, lda, tau);
}
static int ormqr(int m, int n, int k, const double *a, int lda, const double *tau, double *c,
                 int ldc) {
    return LAPACKE_dormqr(LAPACK_COL_MAJOR, 'L', 'T', m, n, k, a, lda, tau, c, ldc);
}
static int orgqr(int m, int n, double *a, int lda, const double *tau) {
    return LAPACKE_dorgqr(LAPACK_COL_MAJOR, m, n, n, a, lda, tau);
}
static int gesdd(int m, int n, double *a, int lda, double *values) {
    return LAPACKE_dgesdd(LAPACK_COL_MAJOR, 'N', m, n, a, lda, values, NULL, 1, NULL, 1);
}
static int trtri(bool upper, int n, double *a, int lda) {
    return LAPACKE_dtrtri_work(LAPACK_COL_MAJOR, upper ? 'U' : 'L', 'N', n, a, lda);
}
static int potrf(bool upper, int n, double *a, int lda) {
    return LAPACKE_dpotrf_work(LAPACK_COL_MAJOR, upper ? 'U' : 'L', n, a, lda);
}
static void trsm(bool right, bool upper, bool trans, int m, int n, const double *a, int lda,
                 double *b, int ldb) {
    cblas_dtrsm(CblasColMajor, right ? CblasRight : CblasLeft, upper ? CblasUpper : CblasLower,
                trans ? CblasTrans : CblasNoTrans, CblasNonUnit, m, n, 1, a, lda, b, ldb);
}
static void gemm(bool trans_a, bool trans_b, int m, int n, int k, const double *a, int lda,
                 const double *b, int ldb, double *c, int ldc) {
    cblas_dgemm(CblasColMajor, trans_a ? CblasTrans : CblasNoTrans,
                trans_b ? CblasTrans : CblasNoTrans, m, n, k, 1, a, lda, b, ldb, 0, c, ldc);
}
static void gemv(int m, int n, const double *a, int lda, const double *x, double *y) {
    cblas_dgemv(CblasColMajor, CblasNoTrans, m, n, 1, a, lda, x, 1, 0, y, 1);
}
static void syr(int n, double alpha, const double *x, double *c, int ldc) {
    cblas_dsyr(CblasColMajor, CblasUpper, n, alpha, x, 1, c, ldc);
}
static void syrk(int n, int k, const double *a, int lda, double *c, int ldc) {
    cblas_dsyrk(CblasColMajor, CblasUpper, CblasTrans, n, k, 1, a, lda, 0, c, ldc);
}
static double dot(int n, const double *x, const double *y) {
    return cblas_ddot(n, x, 1, y, 1);
}
static void axpy(int n, double alpha, const double *x, double *y) {
    cblas_daxpy(n, alpha, x, 1, y, 1);
}

const struct regression_dense blasd_regression_lapack = {
    .geqp3 = geqp3,
    .geqrf = geqrf,
    .ormqr = ormqr,
    .orgqr = orgqr,
    .gesdd = gesdd,
    .trtri = trtri,
    .potrf = potrf,
    .trsm = trsm,
    .gemm = gemm,
    .gemv = gemv,
    .syr = syr,
    .syrk = syrk,
    .dot = dot,
    .axpy = axpy,
};
