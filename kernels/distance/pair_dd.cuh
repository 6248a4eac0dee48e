/* Numbers held as the sum of two doubles, on the device: for what is summed once over the points.
 * Roundings are written out, so that nothing is contracted. On the host:
 * ../numeric/dd.h. */
#ifndef BLASD_KERNELS_DISTANCE_PAIR_DD_CUH
#define BLASD_KERNELS_DISTANCE_PAIR_DD_CUH

#include "kernels/cuda/gpu.h"

struct pair_dd {
    double hi, lo;
};

static __device__ inline struct pair_dd pair_dd_sum(double a, double b) {
    double sum = __dadd_rn(a, b), part = __dsub_rn(sum, a);
    return {sum, __dadd_rn(__dsub_rn(a, __dsub_rn(sum, part)), __dsub_rn(b, part))};
}
static __device__ inline struct pair_dd pair_dd_fast(double a, double b) {
    double sum = __dadd_rn(a, b);
    return {sum, __dsub_rn(b, __dsub_rn(sum, a))};
}
static __device__ inline struct pair_dd pair_dd_product(double a, double b) {
    double product = __dmul_rn(a, b);
    return {product, __fma_rn(a, b, -product)};
}
static __device__ inline struct pair_dd pair_dd_add(struct pair_dd a, struct pair_dd b) {
    struct pair_dd high = pair_dd_sum(a.hi, b.hi), low = pair_dd_sum(a.lo, b.lo);
    high = pair_dd_fast(high.hi, __dadd_rn(high.lo, low.hi));
    return pair_dd_fast(high.hi, __dadd_rn(high.lo, low.lo));
}
static __device__ inline struct pair_dd pair_dd_scale(struct pair_dd a, double b) {
    struct pair_dd product = pair_dd_product(a.hi, b);
    product.lo = __fma_rn(a.lo, b, product.lo);
    return pair_dd_fast(product.hi, product.lo);
}
/* x - mean */
static __device__ inline struct pair_dd pair_dd_less(double x, struct pair_dd mean) {
    struct pair_dd high = pair_dd_sum(x, -mean.hi);
    return pair_dd_fast(high.hi, __dsub_rn(high.lo, mean.lo));
}
/* a / b, to a few units of the last place of the low part */
static __device__ inline struct pair_dd pair_dd_quotient(struct pair_dd a, struct pair_dd b) {
    double first = __ddiv_rn(a.hi, b.hi), rest;
    struct pair_dd back = pair_dd_scale(b, first);
    rest = __dadd_rn(__dsub_rn(a.hi, back.hi), __dsub_rn(a.lo, back.lo));
    return pair_dd_fast(first, __ddiv_rn(rest, b.hi));
}
/* The root, rounded once or nearly so. */
static __device__ inline double pair_dd_root(struct pair_dd a) {
    double root = __dsqrt_rn(a.hi), rest;
    if (!(root > 0) || root - root != 0) return root;
    rest = __dadd_rn(__fma_rn(-root, root, a.hi), a.lo);
    return __dadd_rn(root, __ddiv_rn(rest, 2 * root));
}
/* The sum over a warp, to all of its lanes alike. */
static __device__ inline struct pair_dd pair_dd_over_warp(struct pair_dd a) {
    for (int by = BLASD_WARP / 2; by > 0; by /= 2) {
        struct pair_dd other = {__shfl_xor_sync(BLASD_WARP_ALL, a.hi, by),
                                __shfl_xor_sync(BLASD_WARP_ALL, a.lo, by)};
        a = pair_dd_add(a, other);
    }
    return a;
}

#endif
