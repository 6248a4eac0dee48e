/* Plain and slow on purpose: the formulas of SciPy's documentation, term by term. */
#include "kernels/distance/ref_distance.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

static long double weight(const struct blasd_ref_distance *ref, int64_t d) {
    return ref->w == NULL ? 1 : ref->w[d];
}

/* Sum of w |a-b|^p. */
static long double power_sum(const struct blasd_ref_distance *ref, const long double *a,
                             const long double *b, long double p) {
    long double sum = 0;
    for (int64_t d = 0; d < ref->k; d++) sum += weight(ref, d) * powl(fabsl(a[d] - b[d]), p);
    return sum;
}

static long double largest(const struct blasd_ref_distance *ref, const long double *a,
                           const long double *b) {
    long double most = 0;
    for (int64_t d = 0; d < ref->k; d++) {
        long double e = weight(ref, d) > 0 && a[d] != b[d] ? fabsl(a[d] - b[d]) : 0;
        if (isnan(e)) return e;
        if (e > most) most = e;
    }
    return most;
}

/* Scaled, for powers leave the range of long doubles too. */
static long double minkowski(const struct blasd_ref_distance *ref, const long double *a,
                             const long double *b) {
    long double most = largest(ref, a, b), sum = 0;
    if (isnan(most) || most == 0) return most;
    for (int64_t d = 0; d < ref->k; d++)
        sum += weight(ref, d) * powl(fabsl(a[d] - b[d]) / most, ref->p);
    return most * powl(sum, 1 / ref->p);
}

/* 1 - cos of the angle between a - mean_a and b - mean_b, as half the squared distance of the unit
 * vectors: the same number without the cancellation. */
static long double angle(const struct blasd_ref_distance *ref, const long double *a,
                         long double mean_a, const long double *b, long double mean_b) {
    long double aa = 0, bb = 0, sum = 0;
    for (int64_t d = 0; d < ref->k; d++) {
        aa += weight(ref, d) * (a[d] - mean_a) * (a[d] - mean_a);
        bb += weight(ref, d) * (b[d] - mean_b) * (b[d] - mean_b);
    }
    for (int64_t d = 0; d < ref->k; d++) {
        long double e = (a[d] - mean_a) / sqrtl(aa) - (b[d] - mean_b) / sqrtl(bb);
        sum += weight(ref, d) * e * e;
    }
    return ref->k == 0 ? NAN : sum / 2; /* rows without a length: 0/0 */
}

static long double mean(const struct blasd_ref_distance *ref, const long double *a) {
    long double sum = 0, total = 0;
    bool constant = true;
    for (int64_t d = 0; d < ref->k; d++) {
        sum += weight(ref, d) * a[d];
        total += weight(ref, d);
        if (a[d] != a[0]) constant = false;
    }
    return ref->k == 0 ? 0 : constant ? a[0] : sum / total;
}

static long double canberra(const struct blasd_ref_distance *ref, const long double *a,
                            const long double *b) {
    long double sum = 0;
    for (int64_t d = 0; d < ref->k; d++)
        if (a[d] != 0 || b[d] != 0)
            sum += weight(ref, d) * fabsl(a[d] - b[d]) / (fabsl(a[d]) + fabsl(b[d]));
    return sum;
}

static long double braycurtis(const struct blasd_ref_distance *ref, const long double *a,
                              const long double *b) {
    long double above = 0, below = 0;
    for (int64_t d = 0; d < ref->k; d++) {
        above += weight(ref, d) * fabsl(a[d] - b[d]);
        below += weight(ref, d) * fabsl(a[d] + b[d]);
    }
    return above / below;
}

static long double jensenshannon(const struct blasd_ref_distance *ref, const long double *a,
                                 const long double *b) {
    long double sum_a = 0, sum_b = 0, sum = 0;
    for (int64_t d = 0; d < ref->k; d++) {
        if (a[d] < 0 || b[d] < 0) return INFINITY;
        sum_a += a[d];
        sum_b += b[d];
    }
    if (sum_a == 0 || sum_b == 0) return INFINITY;
    for (int64_t d = 0; d < ref->k; d++) {
        long double p = a[d] / sum_a, q = b[d] / sum_b, m = (p + q) / 2;
        if (isnan(p) || isnan(q) || p < 0 || q < 0) return NAN;
        if (p > 0) sum += p * log1pl((p - m) / m);
        if (q > 0) sum += q * log1pl((q - m) / m);
    }
    if (sum < 0) sum = 0; /* equal rows leave rounding */
    return sqrtl(sum / 2 / (ref->base == 0 ? 1 : logl(ref->base)));
}

static long double seuclidean(const struct blasd_ref_distance *ref, const long double *a,
                              const long double *b) {
    long double sum = 0;
    for (int64_t d = 0; d < ref->k; d++) sum += (a[d] - b[d]) * (a[d] - b[d]) / ref->v[d];
    return sqrtl(sum);
}

static long double mahalanobis(const struct blasd_ref_distance *ref, const long double *a,
                               const long double *b) {
    long double sum = 0;
    for (int64_t d = 0; d < ref->k; d++)
        for (int64_t e = 0; e < ref->k; e++)
            sum += (a[d] - b[d]) * ref->vi[d * ref->k + e] * (a[e] - b[e]);
    return sqrtl(sum);
}

static long double differing(const struct blasd_ref_distance *ref, const long double *a,
                             const long double *b, bool among_nonzero) {
    long double above = 0, below = 0;
    for (int64_t d = 0; d < ref->k; d++) {
        if (a[d] != b[d]) above += weight(ref, d);
        if (!among_nonzero || a[d] != 0 || b[d] != 0) below += weight(ref, d);
    }
    return among_nonzero && below == 0 ? 0 : above / below;
}

static long double jaccard(const struct blasd_ref_distance *ref, const long double *a,
                           const long double *b) {
    long double above = 0, below = 0;
    for (int64_t d = 0; d < ref->k; d++) {
        if ((a[d] != 0) != (b[d] != 0)) above += weight(ref, d);
        if (a[d] != 0 || b[d] != 0) below += weight(ref, d);
    }
    return below == 0 ? 0 : above / below;
}

static long double dice(const struct blasd_ref_distance *ref, const long double *a,
                        const long double *b) {
    long double tt = 0, tf = 0, ft = 0;
    for (int64_t d = 0; d < ref->k; d++) {
        if (ref->w != NULL) {
            tt += a[d] != 0 && b[d] != 0 ? ref->w[d] : 0;
            tf += a[d] != b[d] ? ref->w[d] : 0;
            continue;
        }
        tt += weight(ref, d) * a[d] * b[d];
        tf += weight(ref, d) * a[d] * (1 - b[d]);
        ft += weight(ref, d) * (1 - a[d]) * b[d];
    }
    return (tf + ft) / (2 * tt + tf + ft);
}

static long double boolean(const struct blasd_ref_distance *ref, const long double *a,
                           const long double *b) {
    long double tt = 0, tf = 0, ft = 0, ff = 0;
    const char *metric = ref->metric;
    for (int64_t d = 0; d < ref->k; d++)
        *(a[d] != 0 ? b[d] != 0 ? &tt : &tf : b[d] != 0 ? &ft : &ff) += weight(ref, d);
    if (strcmp(metric, "dice_legacy") == 0) return (tf + ft) / (2 * tt + tf + ft);
    if (strcmp(metric, "kulczynski1") == 0) return tt / (tf + ft);
    if (strcmp(metric, "rogerstanimoto") == 0 || strcmp(metric, "sokalmichener") == 0)
        return 2 * (tf + ft) / (tt + ff + 2 * (tf + ft));
    if (strcmp(metric, "russellrao") == 0) return (tf + ft + ff) / (tt + tf + ft + ff);
    if (strcmp(metric, "sokalsneath") == 0) return 2 * (tf + ft) / (tt + 2 * (tf + ft));
    if (strcmp(metric, "yule") == 0) return tf * ft == 0 ? 0 : 2 * tf * ft / (tt * ff + tf * ft);
    return NAN;
}

long double blasd_ref_distance(const struct blasd_ref_distance *ref, const long double *a,
                               const long double *b) {
    const char *metric = ref->metric;
    if (strcmp(metric, "euclidean") == 0) return sqrtl(power_sum(ref, a, b, 2));
    if (strcmp(metric, "sqeuclidean") == 0) return power_sum(ref, a, b, 2);
    if (strcmp(metric, "cityblock") == 0) return power_sum(ref, a, b, 1);
    if (strcmp(metric, "chebyshev") == 0) return largest(ref, a, b);
    if (strcmp(metric, "minkowski") == 0)
        return isinf(ref->p) ? largest(ref, a, b) : minkowski(ref, a, b);
    if (strcmp(metric, "cosine") == 0) return angle(ref, a, 0, b, 0);
    if (strcmp(metric, "correlation") == 0) return angle(ref, a, mean(ref, a), b, mean(ref, b));
    if (strcmp(metric, "canberra") == 0) return canberra(ref, a, b);
    if (strcmp(metric, "braycurtis") == 0) return braycurtis(ref, a, b);
    if (strcmp(metric, "jensenshannon") == 0) return jensenshannon(ref, a, b);
    if (strcmp(metric, "seuclidean") == 0) return seuclidean(ref, a, b);
    if (strcmp(metric, "mahalanobis") == 0) return mahalanobis(ref, a, b);
    if (strcmp(metric, "hamming") == 0) return differing(ref, a, b, false);
    if (strcmp(metric, "jaccard_legacy") == 0) return differing(ref, a, b, true);
    if (strcmp(metric, "jaccard") == 0) return jaccard(ref, a, b);
    if (strcmp(metric, "dice") == 0) return dice(ref, a, b);
    return boolean(ref, a, b);
}
