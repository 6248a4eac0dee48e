/* The regularised incomplete beta function by its continued fraction, in long double.
 *
 * Tails are computed as such, never as 1 minus something near 1, and the factor in front of the
 * fraction through logarithms of 1+small, so that relative accuracy holds for p-values of 1e-300
 * and for millions of degrees of freedom. */
#include "kernels/regression/distribution.h"

#include <float.h>
#include <math.h>
#include <stdbool.h>

#define MOST_TERMS 200000   /* of the fraction; about sqrt(max(a, b)) are needed */
#define KEPT 256            /* logarithms, of a thread */
#define HUGE_STEP 0x1p4000L /* numerators and denominators are divided by it from there on */

/* lgamma(z) less its leading terms, (z - 1/2) log z - z + log(2 pi) / 2; for large z. */
static long double stirling_rest(long double z) {
    long double inverse = 1 / z, square = inverse * inverse;
    return inverse * (1.0L / 12 - square * (1.0L / 360 - square * (1.0L / 1260 - square / 1680)));
}

static long double make_log_beta(long double a, long double b) {
    int sign;
    if (a < b) {
        long double swap = a;
        a = b;
        b = swap;
    }
    if (a < 200) return lgammal_r(a, &sign) + lgammal_r(b, &sign) - lgammal_r(a + b, &sign);
    /* lgamma(a) - lgamma(a + b) with what is common taken out */
    return lgammal_r(b, &sign) - (a - 0.5L) * log1pl(b / a) - b * logl(a + b) + b +
           stirling_rest(a) - stirling_rest(a + b);
}

/* The same, kept: the coefficients of a fit ask for one, and so do fits of as many observations. */
static long double log_beta(long double a, long double b) {
    static _Thread_local struct { long double a, b, value; } kept[KEPT];
    long double sum = 2 * a + 32 * b;
    int at = sum < 1e9L ? (int)sum % KEPT : 0;
    if (kept[at].a != a || kept[at].b != b) {
        kept[at].value = make_log_beta(a, b);
        kept[at].a = a;
        kept[at].b = b;
    }
    return kept[at].value;
}

/* The continued fraction of the incomplete beta function over a, a + n1 / (a + 1 + n2 / (a + 2 +
 * ...)), as its numerators over its denominators: no step divides. */
static long double beta_fraction(long double a, long double b, long double x) {
    long double top[2] = {1, a}, bottom[2] = {0, 1}; /* of the last two steps */
    for (int m = 0; m < MOST_TERMS; m++) {
        long double odd = -(a + m) * (a + b + m) * x, even = (m + 1) * (b - m - 1) * x;
        long double place = a + 2 * m + 1, cross, miss;
        top[0] = place * top[1] + odd * top[0];
        bottom[0] = place * bottom[1] + odd * bottom[0];
        top[1] = (place + 1) * top[0] + even * top[1];
        bottom[1] = (place + 1) * bottom[0] + even * bottom[1];
        cross = top[1] * bottom[0];
        miss = cross - top[0] * bottom[1];
        if (fabsl(miss) <= 4 * LDBL_EPSILON * fabsl(cross)) break;
        if (fabsl(top[1]) < HUGE_STEP) continue;
        for (int i = 0; i < 2; i++) {
            top[i] /= HUGE_STEP;
            bottom[i] /= HUGE_STEP;
        }
    }
    return top[1] / bottom[1];
}

/* I_x(a, b), with y = 1 - x and both logarithms given by those who know them exactly. */
static long double incomplete_beta(long double a, long double b, long double x, long double y,
                                   long double log_x, long double log_y) {
    long double front;
    if (!(x > 0)) return x == 0 ? 0 : NAN;
    if (!(y > 0)) return y == 0 ? 1 : NAN;
    front = a * log_x + b * log_y - log_beta(a, b);
    if (x < (a + 1) / (a + b + 2)) return expl(front) / beta_fraction(a, b, x);
    return 1 - expl(front) / beta_fraction(b, a, y);
}

static long double student_tails(long double t, long double df) {
    long double square = t * t;
    if (isnan(t) || isnan(df)) return NAN;
    if (t == 0) return 1;
    if (isinf(t)) return 0;
    if (isinf(df)) return erfcl(fabsl(t) / sqrtl(2));
    return incomplete_beta(df / 2, 0.5L, df / (df + square), square / (df + square),
                           -log1pl(square / df), -log1pl(df / square));
}

double blasd_student_tails(double t, double df) {
    return (double)student_tails((long double)t, (long double)df);
}

/* log of twice the density of Student's t */
static long double log_density(long double t, long double df) {
    if (isinf(df)) return logl(2 / sqrtl(2 * acosl(-1))) - t * t / 2;
    return logl(2) - log_beta(0.5L, df / 2) - logl(df) / 2 - (df + 1) / 2 * log1pl(t * t / df);
}

double blasd_student_critical(double tails, double df) {
    long double target = logl((long double)tails), low = -60, high = 60, at = 0; /* log t */
    if (!(tails > 0 && tails < 1 && df > 0)) return NAN;
    while (logl(student_tails(expl(high), (long double)df)) > target && high < 8000) high *= 2;
    while (logl(student_tails(expl(low), (long double)df)) < target && low > -8000) low *= 2;
    for (int i = 0; i < 200; i++) {
        long double t = expl(at), p = student_tails(t, (long double)df);
        long double miss = logl(p) - target, next;
        if (miss > 0)
            low = at;
        else
            high = at;
        /* Newton on log p as a function of log t; bisection where it leaves the bracket */
        next = at + miss * p / (t * expl(log_density(t, (long double)df)));
        if (!(next > low && next < high)) next = (low + high) / 2;
        if (fabsl(next - at) < 4 * LDBL_EPSILON) break;
        at = next;
    }
    return (double)expl(at);
}

double blasd_fisher_tail(double f, double d1, double d2) {
    long double ratio = (long double)d1 * (long double)f / (long double)d2;
    if (isnan(f) || !(d1 > 0) || !(d2 > 0)) return NAN;
    if (f <= 0) return 1;
    if (isinf(f)) return 0;
    return (double)incomplete_beta((long double)d2 / 2, (long double)d1 / 2, 1 / (1 + ratio),
                                   ratio / (1 + ratio), -log1pl(ratio), -log1pl(1 / ratio));
}
