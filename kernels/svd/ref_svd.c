/* svd by Hestenes' rotations of columns in long double. Read next: ../lapack/ref_lapack.h. */
#include "kernels/lapack/ref_lapack.h"

#include <math.h>

static void turn(int rows, int n, long double *a, int p, int q, long double c, long double s) {
    for (int i = 0; i < rows; i++) {
        long double x = a[i * n + p], y = a[i * n + q];
        a[i * n + p] = c * x - s * y;
        a[i * n + q] = s * x + c * y;
    }
}

/* Makes two columns orthogonal; false: they were. */
static int rotate(int m, int n, long double *a, long double *v, int p, int q) {
    long double pp = 0, qq = 0, pq = 0, zeta, t, c;
    for (int i = 0; i < m; i++) {
        pp += a[i * n + p] * a[i * n + p];
        qq += a[i * n + q] * a[i * n + q];
        pq += a[i * n + p] * a[i * n + q];
    }
    if (fabsl(pq) <= 1e-19L * sqrtl(pp) * sqrtl(qq)) return 0;
    zeta = (qq - pp) / (2 * pq);
    t = (zeta >= 0 ? 1 : -1) / (fabsl(zeta) + sqrtl(1 + zeta * zeta));
    c = 1 / sqrtl(1 + t * t);
    turn(m, n, a, p, q, c, c * t);
    turn(n, n, v, p, q, c, c * t);
    return 1;
}

void blasd_ref_svd(int m, int n, long double *a, long double *s, long double *v) {
    for (int i = 0; i < n * n; i++) v[i] = i / n == i % n;
    for (int sweep = 0, turned = 1; sweep < 60 && turned; sweep++) {
        turned = 0;
        for (int p = 0; p < n; p++)
            for (int q = p + 1; q < n; q++) turned |= rotate(m, n, a, v, p, q);
    }
    for (int j = 0; j < n; j++) {
        s[j] = 0;
        for (int i = 0; i < m; i++) s[j] += a[i * n + j] * a[i * n + j];
        s[j] = sqrtl(s[j]);
    }
    for (int i = 0; i < n; i++)
        for (int j = i + 1; j < n; j++)
            if (s[j] > s[i]) {
                long double keep = s[i];
                s[i] = s[j];
                s[j] = keep;
                turn(m, n, a, i, j, 0, 1);
                turn(n, n, v, i, j, 0, 1);
            }
}
