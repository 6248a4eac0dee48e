/* Double-double numbers on the device: about 31 digits. ../numeric/double_double.h says the same
 * for the CPU. Products are written so that the compiler joins no two roundings into one. */
#ifndef BLASD_REGRESSION_GRAM_DOUBLE_CUH
#define BLASD_REGRESSION_GRAM_DOUBLE_CUH

#include "kernels/cuda/gpu.h"

struct __align__(16) twofold {
    double hi, lo;
};

static __device__ inline struct twofold two_from(double a) {
    return {a, 0};
}
/* a + b exactly, for |a| >= |b| */
static __device__ inline struct twofold two_fast_sum(double a, double b) {
    double sum = a + b;
    return {sum, b - (sum - a)};
}
static __device__ inline struct twofold two_sum(double a, double b) {
    double sum = a + b, part = sum - a;
    return {sum, (a - (sum - part)) + (b - part)};
}
static __device__ inline struct twofold two_product(double a, double b) {
    double product = __dmul_rn(a, b);
    return {product, __fma_rn(a, b, -product)};
}
static __device__ inline double two_round(struct twofold a) {
    return a.hi + a.lo;
}
static __device__ inline struct twofold two_add(struct twofold a, struct twofold b) {
    struct twofold high = two_sum(a.hi, b.hi), low = two_sum(a.lo, b.lo);
    high = two_fast_sum(high.hi, high.lo + low.hi);
    return two_fast_sum(high.hi, high.lo + low.lo);
}
static __device__ inline struct twofold two_subtract(struct twofold a, struct twofold b) {
    return two_add(a, {-b.hi, -b.lo});
}
static __device__ inline struct twofold two_multiply(struct twofold a, struct twofold b) {
    struct twofold product = two_product(a.hi, b.hi);
    product.lo = __fma_rn(a.hi, b.lo, __fma_rn(a.lo, b.hi, product.lo));
    return two_fast_sum(product.hi, product.lo);
}
static __device__ inline struct twofold two_scale(struct twofold a, double b) {
    struct twofold product = two_product(a.hi, b);
    product.lo = __fma_rn(a.lo, b, product.lo);
    return two_fast_sum(product.hi, product.lo);
}
static __device__ inline struct twofold two_divide(struct twofold a, struct twofold b) {
    double first = a.hi / b.hi, second, third;
    struct twofold rest = two_subtract(a, two_scale(b, first));
    second = rest.hi / b.hi;
    rest = two_subtract(rest, two_scale(b, second));
    third = rest.hi / b.hi;
    return two_add(two_fast_sum(first, second), two_from(third));
}
/* The square root of a number that is not negative. */
static __device__ inline struct twofold two_root(struct twofold a) {
    double root, rest;
    if (!(a.hi > 0)) return two_from(0);
    root = sqrt(a.hi);
    rest = two_round(two_subtract(a, two_product(root, root)));
    return two_fast_sum(root, rest / (2 * root));
}
/* a 2^e, which rounds nothing as long as it stays within the range of numbers */
static __device__ inline struct twofold two_shift(struct twofold a, int e) {
    return {ldexp(a.hi, e), ldexp(a.lo, e)};
}
/* Of `lanes` lanes beside each other, a power of two: all of a warp come here. */
static __device__ inline struct twofold two_lanes_sum(struct twofold value, int lanes) {
    for (int by = lanes / 2; by > 0; by /= 2) {
        struct twofold other;
        other.hi = __shfl_xor_sync(BLASD_WARP_ALL, value.hi, by);
        other.lo = __shfl_xor_sync(BLASD_WARP_ALL, value.lo, by);
        value = two_add(value, other);
    }
    return value;
}
/* a, with the sums that were left in its low part brought in order */
static __device__ inline struct twofold two_settle(struct twofold a) {
    return two_fast_sum(a.hi, a.lo);
}

#endif
