/* cholesky by its definition in long double. Read next: ../lapack/ref_lapack.h. */
#include "kernels/lapack/ref_lapack.h"

#include <math.h>

int blasd_ref_cholesky(int n, long double *a) {
    for (int j = 0; j < n; j++)
        for (int i = j; i < n; i++) {
            long double sum = a[i * n + j];
            for (int k = 0; k < j; k++) sum -= a[i * n + k] * a[j * n + k];
            if (i == j && !(sum > 0)) return j + 1;
            a[i * n + j] = i == j ? sqrtl(sum) : sum / a[j * n + j];
        }
    return 0;
}
