/* The decompositions by their definitions, in long double, sharing no code with the kernels: for
 * tests. Matrices are row-major. Slow and plain on purpose. */
#ifndef BLASD_KERNELS_REF_LAPACK_H
#define BLASD_KERNELS_REF_LAPACK_H

/* Eigenvalues of the symmetric a (n x n, overwritten), rising, by Jacobi's rotations (ref_eigh.c).
 */
void blasd_ref_eigh(int n, long double *a, long double *w);
/* a (m x n, m >= n) = U diag(s) V', by rotations of its columns: a becomes U diag(s), v is n x n, s
 * falls (ref_svd.c). */
void blasd_ref_svd(int m, int n, long double *a, long double *s, long double *v);
/* The lower triangle of a (n x n) becomes L. 0, or k where minor k is not positive
 * (ref_cholesky.c). */
int blasd_ref_cholesky(int n, long double *a);
/* R of a (m x n, overwritten) with a positive diagonal, n x n, by two passes of Gram and Schmidt
 * (ref_qr.c). */
void blasd_ref_qr(int m, int n, long double *a, long double *r);
/* The x of least norm for one right-hand side, by the singular values above rcond times the largest
 * (ref_lstsq.c). Returns their number, or -1 without memory. */
int blasd_ref_lstsq(int m, int n, const long double *a, const long double *b, long double rcond,
                    long double *x);

#endif
