/* Double-double arithmetic: numbers held as the unevaluated sum of two doubles, about 31 digits;
 * for the host and for devices.
 *
 * The host needs a compiler that neither reorders nor contracts (-ffp-contract=off); with the
 * instruction for fused multiply-add it is fast, without one it is right. On a device each rounding
 * is written out. All functions take normalised numbers (|lo| at most half a unit in the last place
 * of hi) and give such, unless they say otherwise. */
#ifndef BLASD_KERNELS_DD_H
#define BLASD_KERNELS_DD_H

#include <math.h>

#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__) /* it would trip over the resolvers */
#define DD_CLONES __attribute__((target_clones("avx512f", "fma", "default")))
#else
#define DD_CLONES
#endif

#ifdef __CUDACC__
#define DD_INLINE static __host__ __device__ inline
#else
#define DD_INLINE static inline __attribute__((always_inline, unused))
#endif

/* DD_JOINED: a b + c, of which the last digits do not matter. The shim rounds as a device does. */
#if defined(__CUDA_ARCH__) || defined(BLASD_KERNELS_CUDA_SHIM_H)
#define DD_PLUS(a, b) __dadd_rn(a, b)
#define DD_LESS(a, b) __dsub_rn(a, b)
#define DD_TIMES(a, b) __dmul_rn(a, b)
#define DD_FMA(a, b, c) __fma_rn(a, b, c)
#define DD_JOINED(a, b, c) __fma_rn(a, b, c)
#else
#define DD_PLUS(a, b) ((a) + (b))
#define DD_LESS(a, b) ((a) - (b))
#define DD_TIMES(a, b) ((a) * (b))
#define DD_FMA(a, b, c) __builtin_fma(a, b, c)
#define DD_JOINED(a, b, c) ((c) + (a) * (b))
#endif

#ifdef __CUDACC__
struct __align__(16) dd {
    double hi, lo;
};
#else
struct dd {
    double hi, lo;
};
#endif

DD_INLINE struct dd dd_make(double hi, double lo) {
    struct dd a;
    a.hi = hi;
    a.lo = lo;
    return a;
}
/* a + b exactly, for |a| >= |b|. */
DD_INLINE struct dd dd_fast_sum(double a, double b) {
    double sum = DD_PLUS(a, b);
    return dd_make(sum, DD_LESS(b, DD_LESS(sum, a)));
}
/* a + b exactly. */
DD_INLINE struct dd dd_two_sum(double a, double b) {
    double sum = DD_PLUS(a, b), part = DD_LESS(sum, a);
    return dd_make(sum, DD_PLUS(DD_LESS(a, DD_LESS(sum, part)), DD_LESS(b, part)));
}
/* a * b exactly. */
DD_INLINE struct dd dd_two_product(double a, double b) {
    double product = DD_TIMES(a, b);
    return dd_make(product, DD_FMA(a, b, -product));
}
DD_INLINE struct dd dd_from(double a) {
    return dd_make(a, 0);
}
DD_INLINE double dd_round(struct dd a) {
    return DD_PLUS(a.hi, a.lo);
}
DD_INLINE struct dd dd_negate(struct dd a) {
    return dd_make(-a.hi, -a.lo);
}
DD_INLINE struct dd dd_add(struct dd a, struct dd b) {
    struct dd high = dd_two_sum(a.hi, b.hi), low = dd_two_sum(a.lo, b.lo);
    high = dd_fast_sum(high.hi, DD_PLUS(high.lo, low.hi));
    return dd_fast_sum(high.hi, DD_PLUS(high.lo, low.lo));
}
DD_INLINE struct dd dd_subtract(struct dd a, struct dd b) {
    return dd_add(a, dd_negate(b));
}
/* sum - a x for long sums: without error but in the last digit of lo, which is not normalised. */
DD_INLINE struct dd dd_subtract_product(struct dd sum, double a, double x) {
    struct dd product = dd_two_product(-a, x), next = dd_two_sum(sum.hi, product.hi);
    return dd_make(next.hi, DD_PLUS(sum.lo, DD_PLUS(next.lo, product.lo)));
}
DD_INLINE struct dd dd_multiply(struct dd a, struct dd b) {
    struct dd product = dd_two_product(a.hi, b.hi);
    product.lo = DD_PLUS(product.lo, DD_JOINED(a.lo, b.hi, DD_TIMES(a.hi, b.lo)));
    return dd_fast_sum(product.hi, product.lo);
}
DD_INLINE struct dd dd_scale(struct dd a, double b) {
    struct dd product = dd_two_product(a.hi, b);
    product.lo = DD_JOINED(a.lo, b, product.lo);
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
    return dd_make(ldexp(a.hi, e), ldexp(a.lo, e));
}
/* The square root; 0 for 0. */
DD_INLINE struct dd dd_sqrt(struct dd a) {
    double root, rest;
    if (!(a.hi > 0)) return dd_from(a.hi == 0 ? 0 : NAN);
    root = sqrt(a.hi);
    rest = dd_round(dd_subtract(a, dd_two_product(root, root)));
    return dd_fast_sum(root, rest / (2 * root));
}

#endif
