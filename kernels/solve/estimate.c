/* Higham's estimate of the norm of an inverse. Read next: estimate.h. */
#include "kernels/solve/estimate.h"

#include <math.h>

#define ESTIMATE_ROUNDS 5

static double norm_1(const double *v, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += fabs(v[i]);
    return sum;
}

static int64_t largest(const double *v, int64_t n) {
    int64_t at = 0;
    for (int64_t i = 1; i < n; i++)
        if (fabs(v[i]) > fabs(v[at])) at = i;
    return at;
}

/* Replaces v by its signs; whether they are the ones from last time. */
static bool take_signs(double *v, double *sign, int64_t n) {
    bool same = true;
    for (int64_t i = 0; i < n; i++) {
        v[i] = signbit(v[i]) ? -1 : 1;
        same = same && v[i] == sign[i];
        sign[i] = v[i];
    }
    return same;
}

/* Higham's algorithm (the one of LAPACK's xLACN2): climbs from column to column of the inverse to
 * one whose norm is as large as it can find, then tries a vector that the climb tends to miss. */
double blasd_norm_inverse(int64_t n, double *v, double *sign,
                          bool (*apply)(void *arg, double *v, bool transposed), void *arg) {
    int64_t at, last;
    double best, other;
    for (int64_t i = 0; i < n; i++) v[i] = 1.0 / (double)n;
    if (!apply(arg, v, false)) return -1;
    best = norm_1(v, n);
    if (n == 1) return best;
    for (int64_t i = 0; i < n; i++) sign[i] = 0;
    take_signs(v, sign, n);
    if (!apply(arg, v, true)) return -1;
    at = largest(v, n);
    for (int round = 0; round < ESTIMATE_ROUNDS; round++) {
        for (int64_t i = 0; i < n; i++) v[i] = 0;
        v[at] = 1;
        if (!apply(arg, v, false)) return -1;
        other = norm_1(v, n);
        if (!(other > best)) break;
        best = other;
        if (take_signs(v, sign, n)) break;
        if (!apply(arg, v, true)) return -1;
        last = at;
        at = largest(v, n);
        if (fabs(v[last]) == fabs(v[at])) break;
    }
    for (int64_t i = 0; i < n; i++)
        v[i] = (i % 2 == 0 ? 1 : -1) * (1 + (double)i / (double)(n - 1));
    if (!apply(arg, v, false)) return -1;
    other = 2 * norm_1(v, n) / (3.0 * (double)n);
    /* a value that is not a number means that the factors are worthless: say so upwards */
    return other > best || isnan(other) ? other : best;
}
