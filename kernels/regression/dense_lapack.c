/* dense.h with OpenBLAS and LAPACKE. What would be a long call of a library is made of shorter
 * ones, between which the work may end, and tells how far it is; the arithmetic is LAPACK's own.
 * Read next: kernels/lapack/lapack.h. */
#include "kernels/regression/dense.h"

#include "core/wanted.h"
#include "kernels/cpu/cpu.h"
#include "kernels/lapack/lapack.h"

#include <cblas.h>
#include <lapacke.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

double blasd_regression_long_call = 5e9; /* operations: some tenths of a second */

#define PANEL 128  /* columns that are factored or inverted at once */
#define STRIP 512  /* columns or rows that follow at once */
#define PIVOTED 32 /* columns of a panel with pivoting, as geqp3 has them */

static _Thread_local struct blasd_cpu_progress *told; /* borrowed; NULL: nobody asks */

void blasd_regression_dense_tells(struct blasd_cpu_progress *progress) {
    told = progress;
}

/* Whether to go on after so many operations. */
static bool step(double flops) {
    return told == NULL ? blasd_wanted() : blasd_cpu_step(told, flops);
}

double blasd_regression_length(int64_t n, const double *x) {
    double largest = 0, sum = 0;
    int unit;
    for (int64_t i = 0; i < n; i++) {
        if (isnan(x[i])) return NAN;
        if (fabs(x[i]) > largest) largest = fabs(x[i]);
    }
    if (largest == 0 || isinf(largest)) return largest;
    if (largest > 1e-140 && largest < 1e140) {
        for (int64_t i = 0; i < n; i++) sum += x[i] * x[i];
        return sqrt(sum);
    }
    /* in units of a power of two, which round nothing */
    (void)frexp(largest, &unit);
    for (int64_t i = 0; i < n; i++) sum += ldexp(x[i], -unit) * ldexp(x[i], -unit);
    return ldexp(sqrt(sum), unit);
}

static bool is_long(double flops) {
    return flops > blasd_regression_long_call;
}

static int least_of(int a, int b) {
    return a < b ? a : b;
}

/* A panel of geqp3, which LAPACKE does not declare. */
void dlaqps_(const int *m, const int *n, const int *offset, const int *nb, int *kb, double *a,
             const int *lda, int *jpvt, double *tau, double *vn1, double *vn2, double *auxv,
             double *f, const int *ldf);

static double *at(const double *a, int lda, int i, int j) {
    return (double *)(uintptr_t)a + (int64_t)j * lda + i;
}

/* tells: as all do whose caller does not. */
static int qr(int m, int n, double *a, int lda, double *tau, double *work, int work_len,
              bool tells) {
    int least = least_of(m, n), info = 0;
    if (!is_long(2.0 * m * n * least))
        return LAPACKE_dgeqrf_work(LAPACK_COL_MAJOR, m, n, a, lda, tau, work, work_len);
    for (int j = 0; info == 0 && j < least; j += PANEL) {
        if (!step(tells ? 4.0 * (m - j) * (n - j) * PANEL : 0)) break;
        int width = least_of(PANEL, least - j);
        info = LAPACKE_dgeqrf_work(LAPACK_COL_MAJOR, m - j, width, at(a, lda, j, j), lda, tau + j,
                                   work, work_len);
        for (int c = j + width; info == 0 && c < n && blasd_wanted(); c += STRIP)
            info = LAPACKE_dormqr_work(LAPACK_COL_MAJOR, 'L', 'T', m - j, least_of(STRIP, n - c),
                                       width, at(a, lda, j, j), lda, tau + j, at(a, lda, j, c), lda,
                                       work, work_len);
    }
    return info;
}

/* What LAPACK's geqp3 does with its panels, of which each is a call. */
static int pivoted_panels(int m, int n, double *a, int lda, int *pivot, double *tau, double *room) {
    int least = least_of(m, n), block, width = PIVOTED;
    double *norms = room, *before = room + n, *along = room + 2 * (int64_t)n;
    double *f = along + PIVOTED;
    for (int j = 0; j < n; j++) {
        pivot[j] = j + 1;
        norms[j] = before[j] = cblas_dnrm2(m, at(a, lda, 0, j), 1);
    }
    for (int j = 0; j < least && step(8.0 * (m - j) * (n - j) * width); j += width) {
        int columns = n - j;
        block = least_of(PIVOTED, least - j);
        dlaqps_(&m, &columns, &j, &block, &width, at(a, lda, 0, j), &lda, pivot + j, tau + j,
                norms + j, before + j, along, f, &columns);
        if (width < 1) return -1;
    }
    return 0;
}

static int geqp3(int m, int n, double *a, int lda, int *pivot, double *tau) {
    double *room;
    int info;
    if (!is_long(4.0 * m * n * least_of(m, n)))
        return LAPACKE_dgeqp3(LAPACK_COL_MAJOR, m, n, a, lda, pivot, tau);
    room = malloc(((size_t)n * (PIVOTED + 2) + PIVOTED) * sizeof *room);
    info = room == NULL ? -1 : pivoted_panels(m, n, a, lda, pivot, tau, room);
    free(room);
    return info;
}
int blasd_regression_qr(int m, int n, double *a, int lda, double *tau, double *work, int work_len) {
    return qr(m, n, a, lda, tau, work, work_len, false);
}

static int geqrf(int m, int n, double *a, int lda, double *tau) {
    int work_len = 64 * (n > STRIP ? n : STRIP) + 8192, info; /* dormqr's largest block, and more */
    double *work;
    if (!is_long(2.0 * m * n * least_of(m, n)))
        return LAPACKE_dgeqrf(LAPACK_COL_MAJOR, m, n, a, lda, tau);
    work = malloc((size_t)work_len * sizeof *work);
    info = work == NULL ? -1 : qr(m, n, a, lda, tau, work, work_len, true);
    free(work);
    return info;
}
static int ormqr(int m, int n, int k, const double *a, int lda, const double *tau, double *c,
                 int ldc) {
    int strip = is_long(4.0 * m * n * k) ? STRIP : n > 0 ? n : 1, info = 0;
    for (int j = 0; info == 0 && j < n && step(4.0 * m * k * strip); j += strip)
        info = LAPACKE_dormqr(LAPACK_COL_MAJOR, 'L', 'T', m, least_of(strip, n - j), k, a, lda, tau,
                              at(c, ldc, 0, j), ldc);
    return info;
}
static int orgqr(int m, int n, double *a, int lda, const double *tau) {
    double flops = 4.0 * m * n * n, *q;
    int info;
    if (!is_long(flops)) return LAPACKE_dorgqr(LAPACK_COL_MAJOR, m, n, n, a, lda, tau);
    q = calloc((size_t)m * (size_t)n, sizeof *q);
    if (q == NULL) return -1;
    (void)step(flops);
    for (int j = 0; j < n; j++) q[(int64_t)j * m + j] = 1;
    info = blasd_lapack_q(1, false, m, n, n, a, lda, tau, q, m);
    for (int j = 0; j < n; j++) memcpy(at(a, lda, 0, j), q + (int64_t)j * m, (size_t)m * sizeof *q);
    free(q);
    return info;
}

/* to (n x m) = a', of a (m x n). */
static void turn(int m, int n, const double *a, int lda, double *to) {
    for (int j = 0; j < n; j++)
        for (int i = 0; i < m; i++) to[(int64_t)i * n + j] = *at(a, lda, i, j);
}

static double *square(int m, int n) {
    return malloc((size_t)m * (size_t)n * sizeof(double) + 1);
}

/* Singular values, and vectors where left is not NULL, of a tall matrix or a wide one, turned. */
static int svd_pieces(int m, int n, double *a, int lda, double *values, double *left, double *vt) {
    int most = m > n ? m : n, least = least_of(m, n), info = -1;
    double *tall = square(m, n), *u = NULL, *v = NULL;
    if (left != NULL) u = square(most, least);
    if (left != NULL) v = square(least, least);
    if (tall == NULL || (left != NULL && (u == NULL || v == NULL))) goto done;
    if (m < n)
        turn(m, n, a, lda, tall);
    else
        for (int j = 0; j < n; j++)
            memcpy(tall + (int64_t)j * m, at(a, lda, 0, j), (size_t)m * sizeof *a);
    (void)step(4.0 * m * n * least * (left == NULL ? 1 : 4));
    info = blasd_lapack_svd(most, least, tall, values, u, least, v);
    if (info != 0 || left == NULL) goto done;
    if (m < n) {
        turn(m, m, v, m, left);
        turn(n, m, u, n, vt);
    } else {
        memcpy(left, u, (size_t)m * (size_t)n * sizeof *u);
        memcpy(vt, v, (size_t)n * (size_t)n * sizeof *v);
    }
done:
    free(tall);
    free(u);
    free(v);
    return info;
}

static int gesdd(int m, int n, double *a, int lda, double *values) {
    if (is_long(4.0 * m * n * least_of(m, n))) return svd_pieces(m, n, a, lda, values, NULL, NULL);
    return LAPACKE_dgesdd(LAPACK_COL_MAJOR, 'N', m, n, a, lda, values, NULL, 1, NULL, 1);
}
static int svd(int m, int n, double *a, double *values, double *left, double *vt) {
    if (is_long(8.0 * m * n * least_of(m, n))) return svd_pieces(m, n, a, m, values, left, vt);
    return LAPACKE_dgesdd(LAPACK_COL_MAJOR, 'S', m, n, a, m, values, left, m, vt, least_of(m, n));
}
static void trsm_call(bool right, bool upper, bool trans, int m, int n, const double *a, int lda,
                      double *b, int ldb) {
    cblas_dtrsm(CblasColMajor, right ? CblasRight : CblasLeft, upper ? CblasUpper : CblasLower,
                trans ? CblasTrans : CblasNoTrans, CblasNonUnit, m, n, 1, a, lda, b, ldb);
}
static void trsm(bool right, bool upper, bool trans, int m, int n, const double *a, int lda,
                 double *b, int ldb) {
    int free_side = right ? m : n, strip = free_side;
    if (is_long((double)m * n * (right ? n : m))) strip = STRIP;
    for (int i = 0; i < free_side && blasd_wanted(); i += strip) {
        int part = least_of(strip, free_side - i);
        trsm_call(right, upper, trans, right ? part : m, right ? n : part, a, lda,
                  right ? at(b, ldb, i, 0) : at(b, ldb, 0, i), ldb);
    }
}

/* Block column by block column, as LAPACK's own: of an upper triangle from the left, of a lower one
 * from the right; what is done already times the block, times the inverse of its diagonal. */
static int trtri(bool upper, int n, double *a, int lda) {
    CBLAS_UPLO uplo = upper ? CblasUpper : CblasLower;
    int last = (n - 1) / PANEL * PANEL;
    if (!is_long((double)n * n * n / 3))
        return LAPACKE_dtrtri_work(LAPACK_COL_MAJOR, upper ? 'U' : 'L', 'N', n, a, lda);
    for (int i = 0; i < n; i++)
        if (*at(a, lda, i, i) == 0) return i + 1;
    for (int step = 0; step <= last && blasd_wanted(); step += PANEL) {
        int j = upper ? step : last - step, width = least_of(PANEL, n - j);
        int from = upper ? 0 : j + width, rows = upper ? j : n - from;
        double *block = at(a, lda, from, j);
        if (rows > 0) {
            cblas_dtrmm(CblasColMajor, CblasLeft, uplo, CblasNoTrans, CblasNonUnit, rows, width, 1,
                        at(a, lda, from, from), lda, block, lda);
            cblas_dtrsm(CblasColMajor, CblasRight, uplo, CblasNoTrans, CblasNonUnit, rows, width,
                        -1, at(a, lda, j, j), lda, block, lda);
        }
        LAPACKE_dtrtri_work(LAPACK_COL_MAJOR, upper ? 'U' : 'L', 'N', width, at(a, lda, j, j), lda);
    }
    return 0;
}

/* Each panel beside the diagonal takes what is done already, then its own triangle. */
static int potrf(bool upper, int n, double *a, int lda) {
    CBLAS_UPLO uplo = upper ? CblasUpper : CblasLower;
    char letter = upper ? 'U' : 'L';
    int info = 0;
    if (!is_long((double)n * n * n / 3))
        return LAPACKE_dpotrf_work(LAPACK_COL_MAJOR, letter, n, a, lda);
    for (int j = 0; info == 0 && j < n && blasd_wanted(); j += PANEL) {
        int width = least_of(PANEL, n - j);
        double *panel = upper ? at(a, lda, 0, j) : at(a, lda, j, 0);
        if (j > 0)
            cblas_dtrsm(CblasColMajor, upper ? CblasLeft : CblasRight, uplo, CblasTrans,
                        CblasNonUnit, upper ? j : width, upper ? width : j, 1, a, lda, panel, lda);
        cblas_dsyrk(CblasColMajor, uplo, upper ? CblasTrans : CblasNoTrans, width, j, -1, panel,
                    lda, 1, at(a, lda, j, j), lda);
        info = LAPACKE_dpotrf_work(LAPACK_COL_MAJOR, letter, width, at(a, lda, j, j), lda);
        if (info != 0) info += j;
    }
    return info;
}
static void gemm(bool trans_a, bool trans_b, int m, int n, int k, const double *a, int lda,
                 const double *b, int ldb, double *c, int ldc) {
    bool parts = is_long(2.0 * m * n * k);
    int rows = parts ? 2 * STRIP : m, columns = parts ? STRIP : n;
    for (int j = 0; j < n; j += columns)
        for (int i = 0; i < m && blasd_wanted(); i += rows)
            cblas_dgemm(
                CblasColMajor, trans_a ? CblasTrans : CblasNoTrans,
                trans_b ? CblasTrans : CblasNoTrans, least_of(rows, m - i),
                least_of(columns, n - j), k, 1, trans_a ? at(a, lda, 0, i) : at(a, lda, i, 0), lda,
                trans_b ? at(b, ldb, j, 0) : at(b, ldb, 0, j), ldb, 0, at(c, ldc, i, j), ldc);
}
static void gemv(int m, int n, const double *a, int lda, const double *x, double *y) {
    cblas_dgemv(CblasColMajor, CblasNoTrans, m, n, 1, a, lda, x, 1, 0, y, 1);
}
static void syr(int n, double alpha, const double *x, double *c, int ldc) {
    cblas_dsyr(CblasColMajor, CblasUpper, n, alpha, x, 1, c, ldc);
}
static void syrk(int n, int k, const double *a, int lda, double *c, int ldc) {
    int strip = is_long((double)n * n * k) ? STRIP : n > 0 ? n : 1;
    for (int j = 0; j < n && blasd_wanted(); j += strip) {
        int width = least_of(strip, n - j);
        gemm(true, false, j, width, k, a, lda, at(a, lda, 0, j), lda, at(c, ldc, 0, j), ldc);
        cblas_dsyrk(CblasColMajor, CblasUpper, CblasTrans, width, k, 1, at(a, lda, 0, j), lda, 0,
                    at(c, ldc, j, j), ldc);
    }
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
    .svd = svd,
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
