/* The decompositions of one matrix on the CPU, by LAPACK: eigenvalues and singular values by one
 * call each; panels of Cholesky and QR, and what follows them in strips that threads share. The
 * work may end between calls (core/wanted.h), and its results are then worthless: callers ask.
 *
 * Matrices are float64, column-major, dense unless a leading dimension is given. Results depend on
 * shapes alone, never on the number of threads. Functions return LAPACK's info: 0; a positive
 * number where the matrix is at fault; BLASD_LAPACK_NO_MEMORY. Knows nothing of jobs.
 * Read next: lapack.c. */
#ifndef BLASD_KERNELS_LAPACK_H
#define BLASD_KERNELS_LAPACK_H

#include "core/kernel.h"

#define BLASD_LAPACK_NO_MEMORY (-1011)

/* Operations from which threads share a step. Tests lower it. */
extern double blasd_lapack_long_call;

/* a = L L': the lower triangle of a (n x n) is read and overwritten; info k: the leading minor of
 * order k is not positive. */
int blasd_lapack_cholesky(int threads, int n, double *a);

/* a (m x n) = Q R: R in its upper triangle, Q's reflectors below and in tau (min(m, n) of them). */
int blasd_lapack_qr(int threads, int m, int n, double *a, int lda, double *tau);
/* c (m x n) = Q c, or Q' c with trans; Q is k reflectors as blasd_lapack_qr left them. */
int blasd_lapack_q(int threads, bool trans, int m, int n, int k, const double *a, int lda,
                   const double *tau, double *c, int ldc);

/* c (m x n) = alpha op(a) op(b) + beta c, by tiles. */
struct blasd_lapack_product {
    bool trans_a, trans_b;
    int m, n, k;
    double alpha, beta;
    const double *a, *b;
    double *c;
    int lda, ldb, ldc;
};
void blasd_lapack_multiply(int threads, const struct blasd_lapack_product *p);

/* The lower triangle of a (n x n) = V diag(w) V', w rising. With vectors V replaces a, else a is
 * lost. info > 0: did not converge. */
int blasd_lapack_eigh(int n, double *a, double *w, bool vectors);

/* a (m x n, m >= n, overwritten) = U diag(s) Vt, s falling. u is m x columns, columns n or m; vt is
 * n x n; both NULL: s alone. info > 0: did not converge. */
int blasd_lapack_svd(int m, int n, double *a, double *s, double *u, int columns, double *vt);

#endif
