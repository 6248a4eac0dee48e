/* qr by Gram and Schmidt, each column twice, in long double. Read next: ../lapack/ref_lapack.h. */
#include "kernels/lapack/ref_lapack.h"

#include <math.h>

void blasd_ref_qr(int m, int n, long double *a, long double *r) {
    for (int i = 0; i < n * n; i++) r[i] = 0;
    for (int j = 0; j < n; j++) {
        long double norm = 0;
        for (int pass = 0; pass < 2; pass++)
            for (int k = 0; k < j; k++) {
                long double dot = 0;
                for (int i = 0; i < m; i++) dot += a[i * n + k] * a[i * n + j];
                for (int i = 0; i < m; i++) a[i * n + j] -= dot * a[i * n + k];
                r[k * n + j] += dot;
            }
        for (int i = 0; i < m; i++) norm += a[i * n + j] * a[i * n + j];
        r[j * n + j] = norm = sqrtl(norm);
        for (int i = 0; norm > 0 && i < m; i++) a[i * n + j] /= norm;
    }
}
