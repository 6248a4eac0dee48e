/* The decompositions of one matrix on the CPU, by LAPACK: panels of Cholesky and QR by the
 * library's own routines, what follows them in strips that threads share. Between calls the work
 * may end (core/wanted.h); what comes out then is worthless, and whoever called asks.
 *
 * Matrices are float64, column-major, dense unless a leading dimension is given. Results depend on
 * shapes alone, never on the number of threads. Functions return LAPACK's info: 0; a positive
 * number where the matrix is at fault; BLASD_LAPACK_NO_MEMORY. Knows nothing of jobs.
 * Read next: lapack.c, lapack_eigh.c, lapack_svd.c. */
#ifndef BLASD_KERNELS_LAPACK_H
#define BLASD_KERNELS_LAPACK_H

#include "core/kernel.h"

#define BLASD_LAPACK_NO_MEMORY (-1011)

/* What a call may use, and the part of the batch's progress that it is. */
struct blasd_lapack {
    int threads;               /* that share the matrix */
    struct blasd_watch *watch; /* borrowed; of the batch; NULL: others tell it */
    double from, to;
};

/* Operations from which a library call is cut into shorter ones. Tests lower it. */
extern double blasd_lapack_long_call;
bool blasd_lapack_is_long(double flops);

/* The part of `how` from `from` to `to`, both from 0 to 1. */
struct blasd_lapack blasd_lapack_part(const struct blasd_lapack *how, double from, double to);
/* Does piece 0 to count - 1 on the threads of `how`; false: stopped. */
bool blasd_lapack_share(const struct blasd_lapack *how, int64_t count,
                        bool (*piece)(void *arg, int64_t i, int slot), void *arg);

/* a = L L': the lower triangle of a (n x n) is read and overwritten; info k: the leading minor of
 * order k is not positive. */
int blasd_lapack_cholesky(const struct blasd_lapack *how, int n, double *a);

/* a (m x n) = Q R: R in its upper triangle, Q's reflectors below and in tau (min(m, n) of them). */
int blasd_lapack_qr(const struct blasd_lapack *how, int m, int n, double *a, int lda, double *tau);
/* c (m x n) = Q c, or Q' c with trans; Q is k reflectors as blasd_lapack_qr left them. */
int blasd_lapack_q(const struct blasd_lapack *how, bool trans, int m, int n, int k, const double *a,
                   int lda, const double *tau, double *c, int ldc);

/* c (m x n) = alpha op(a) op(b) + beta c, by tiles. */
struct blasd_lapack_product {
    bool trans_a, trans_b;
    int m, n, k;
    double alpha, beta;
    const double *a, *b;
    double *c;
    int lda, ldb, ldc;
};
void blasd_lapack_multiply(const struct blasd_lapack *how, const struct blasd_lapack_product *p);

/* The lower triangle of a (n x n, overwritten) = V diag(w) V', w rising; v (n x n) NULL: w alone.
 * info > 0: did not converge. */
int blasd_lapack_eigh(const struct blasd_lapack *how, int n, double *a, double *w, double *v);

/* a (m x n, m >= n, overwritten) = U diag(s) Vt, s falling. u is m x columns, columns n or m; vt is
 * n x n; both NULL: s alone. info > 0: did not converge. */
int blasd_lapack_svd(const struct blasd_lapack *how, int m, int n, double *a, double *s, double *u,
                     int columns, double *vt);

#endif
