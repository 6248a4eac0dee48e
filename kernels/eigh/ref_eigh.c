/* eigh by Jacobi's rotations in long double. Read next: ../lapack/ref_lapack.h. */
#include "kernels/lapack/ref_lapack.h"

#include <math.h>

static void rotate(int n, long double *a, int p, int q) {
    long double apq = a[p * n + q], theta, t, c, s;
    if (apq == 0) return;
    theta = (a[q * n + q] - a[p * n + p]) / (2 * apq);
    t = (theta >= 0 ? 1 : -1) / (fabsl(theta) + sqrtl(theta * theta + 1));
    c = 1 / sqrtl(t * t + 1);
    s = t * c;
    for (int i = 0; i < n; i++) {
        long double x = a[i * n + p], y = a[i * n + q];
        a[i * n + p] = c * x - s * y;
        a[i * n + q] = s * x + c * y;
    }
    for (int i = 0; i < n; i++) {
        long double x = a[p * n + i], y = a[q * n + i];
        a[p * n + i] = c * x - s * y;
        a[q * n + i] = s * x + c * y;
    }
}

void blasd_ref_eigh(int n, long double *a, long double *w) {
    for (int sweep = 0; sweep < 60; sweep++) {
        long double off = 0, all = 0;
        for (int i = 0; i < n * n; i++) {
            all += a[i] * a[i];
            if (i / n != i % n) off += a[i] * a[i];
        }
        if (off <= all * 1e-40L) break;
        for (int p = 0; p < n; p++)
            for (int q = p + 1; q < n; q++) rotate(n, a, p, q);
    }
    for (int i = 0; i < n; i++) {
        int at = i;
        long double value = a[i * n + i];
        for (; at > 0 && w[at - 1] > value; at--) w[at] = w[at - 1];
        w[at] = value;
    }
}
