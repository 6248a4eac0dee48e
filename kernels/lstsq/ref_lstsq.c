/* lstsq by the singular values of ref_svd.c in long double. Read next: ../lapack/ref_lapack.h. */
#include "kernels/lapack/ref_lapack.h"

#include <stdlib.h>

int blasd_ref_lstsq(int m, int n, const long double *a, const long double *b, long double rcond,
                    long double *x) {
    int rows = m > n ? m : n, rank = 0; /* zeros below a wide matrix change nothing */
    size_t all = (size_t)rows * (size_t)n;
    long double *u = calloc(all + (size_t)n * ((size_t)n + 1) + 1, sizeof *u), *v, *s;
    if (u == NULL) return -1;
    v = u + all;
    s = v + (size_t)n * (size_t)n;
    for (int i = 0; i < m * n; i++) u[i] = a[i];
    blasd_ref_svd(rows, n, u, s, v);
    for (int i = 0; i < n; i++) x[i] = 0;
    for (; rank < n && rank < m && s[rank] > rcond * s[0]; rank++) {
        long double part = 0;
        for (int i = 0; i < m; i++) part += u[i * n + rank] * b[i];
        part /= s[rank] * s[rank];
        for (int i = 0; i < n; i++) x[i] += v[i * n + rank] * part;
    }
    free(u);
    return rank;
}
