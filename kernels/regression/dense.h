/* The dense routines that regression's small remainders need, as a table: LAPACK's
 * (dense_lapack.c), on the host of a GPU too.
 *
 * Names and meanings are LAPACK's, matrices column-major. Functions that return int return 0, or
 * anything else where they could not do it. Read next: factor.c. */
#ifndef BLASD_REGRESSION_DENSE_H
#define BLASD_REGRESSION_DENSE_H

#include <stdbool.h>
#include <stdint.h>

struct regression_dense {
    /* pivot: from 1 */
    int (*geqp3)(int m, int n, double *a, int lda, int *pivot, double *tau);
    int (*geqrf)(int m, int n, double *a, int lda, double *tau);
    /* c (m x n) = Q'c, Q of k reflections */
    int (*ormqr)(int m, int n, int k, const double *a, int lda, const double *tau, double *c,
                 int ldc);
    /* a (m x n, m >= n) = Q */
    int (*orgqr)(int m, int n, double *a, int lda, const double *tau);
    /* the min(m, n) singular values, falling; a is destroyed */
    int (*gesdd)(int m, int n, double *a, int lda, double *values);
    /* the same with the vectors: left (m x least), vt (least x n), least = min(m, n); lda = m */
    int (*svd)(int m, int n, double *a, double *values, double *left, double *vt);
    int (*trtri)(bool upper, int n, double *a, int lda);
    int (*potrf)(bool upper, int n, double *a, int lda);
    /* b (m x n) = op(a)^-1 b, or b a^-1 with `right` */
    void (*trsm)(bool right, bool upper, bool trans, int m, int n, const double *a, int lda,
                 double *b, int ldb);
    /* c (m x n) = op(a) op(b) */
    void (*gemm)(bool trans_a, bool trans_b, int m, int n, int k, const double *a, int lda,
                 const double *b, int ldb, double *c, int ldc);
    void (*gemv)(int m, int n, const double *a, int lda, const double *x, double *y); /* y = a x */
    /* the upper triangle of c (n x n) += alpha x x' */
    void (*syr)(int n, double alpha, const double *x, double *c, int ldc);
    /* the upper triangle of c (n x n) = a'a, a being k x n */
    void (*syrk)(int n, int k, const double *a, int lda, double *c, int ldc);
    double (*dot)(int n, const double *x, const double *y);
    void (*axpy)(int n, double alpha, const double *x, double *y); /* y += alpha x */
};

extern const struct regression_dense blasd_regression_lapack;
struct blasd_cpu_progress;
/* From now on LAPACK's long calls on this thread tell `progress` (borrowed) how far they are; NULL:
 * nobody. */
void blasd_regression_dense_tells(struct blasd_cpu_progress *progress);
/* LAPACK's geqrf in calls that are not long, of as many operations as this; for tests to change.
 * `work` as dormqr wants it for 512 columns. */
int blasd_regression_qr(int m, int n, double *a, int lda, double *tau, double *work, int work_len);
extern double blasd_regression_long_call;

/* The length of x, which neither overflows nor underflows on the way. */
double blasd_regression_length(int64_t n, const double *x);

#endif
