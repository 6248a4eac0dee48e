/* Double-double arithmetic: numbers held as the unevaluated sum of two doubles, about 31 digits.
 *
 * Needs a compiler that neither reorders nor contracts (-ffp-contract=off); with the instruction
 * for fused multiply-add it is fast, without one it is right. All functions take normalised numbers
 * (|lo| at most half a unit in the last place of hi) and give such. */
#ifndef BLASD_KERNELS_DOUBLE_DOUBLE_H
#define BLASD_KERNELS_DOUBLE_DOUBLE_H

#include <math.h>

#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__) /* it would trip over the resolvers */
#define DD_CLONES __attribute__((target_clones("avx512f", "fma", "default")))
#else
#define DD_CLONES
#endif
#define DD_INLINE static inline __attribute__((always_inline, unused))

struct dd {
    double hi, lo;
};

/* a + b exactly, for |a| >= |b|. */
DD_INLINE struct dd dd_fast_sum(double a, double b) {
    double sum = a + b;
    return (struct dd){sum, b - (sum - a)};
}
/* a + b exactly. */
DD_INLINE struct dd dd_two_sum(double a, double b) {
    double sum = a + b, part = sum - a;
    return (struct dd){sum, (a - (sum - part)) + (b - part)};
}
/* a * b exactly. */
DD_INLINE struct dd dd_two_product(double a, double b) {
    double product = a * b;
    return (struct dd){product, __builtin_fma(a, b, -product)};
}
DD_INLINE struct dd dd_from(double a) {
    return (struct dd){a, 0};
}
DD_INLINE double dd_round(struct dd a) {
    return a.hi + a.lo;
}
DD_INLINE struct dd dd_negate(struct dd a) {
    return (struct dd){-a.hi, -a.lo};
}
DD_INLINE struct dd dd_add(struct dd a, struct dd b) {
    struct dd high = dd_two_sum(a.hi, b.hi), low = dd_two_sum(a.lo, b.lo);
    high = dd_fast_sum(high.hi, high.lo + low.hi);
    return dd_fast_sum(high.hi, high.lo + low.lo);
}
DD_INLINE struct dd dd_subtract(struct dd a, struct dd b) {
    return dd_add(a, dd_negate(b));
}
DD_INLINE struct dd dd_multiply(struct dd a, struct dd b) {
    struct dd product = dd_two_product(a.hi, b.hi);
    product.lo += a.hi * b.lo + a.lo * b.hi;
    return dd_fast_sum(product.hi, product.lo);
}
DD_INLINE struct dd dd_scale(struct dd a, double b) {
    struct dd product = dd_two_product(a.hi, b);
    product.lo += a.lo * b;
    return dd_fast_sum(product.hi, product.lo);
}
DD_INLINE struct dd dd_divide(struct dd a, struct dd b) {
    double first = a.hi / b.hi, second, third;
    struct dd rest = dd_subtract(a, dd_scale(b, first));
    second = rest.hi / b.hi;
    rest = dd_subtract(rest, dd_scale(b, second));
    third = rest.hi / b.hi;
    return dd_add(dd_fast_sum(first, second), dd_from(third));
}
/* a 2^e, which rounds nothing as long as it stays within the range of numbers. */
DD_INLINE struct dd dd_shift(struct dd a, int e) {
    return (struct dd){ldexp(a.hi, e), ldexp(a.lo, e)};
}
/* The square root; 0 for 0. */
DD_INLINE struct dd dd_sqrt(struct dd a) {
    double root, rest;
    if (!(a.hi > 0)) return dd_from(a.hi == 0 ? 0 : NAN);
    root = __builtin_sqrt(a.hi);
    rest = dd_round(dd_subtract(a, dd_two_product(root, root)));
    return dd_fast_sum(root, rest / (2 * root));
}

#endif
