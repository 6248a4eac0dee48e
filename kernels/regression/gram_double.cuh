/* Double-double numbers of the Gram matrix: what numeric/dd.h leaves to a device. */
#ifndef BLASD_REGRESSION_GRAM_DOUBLE_CUH
#define BLASD_REGRESSION_GRAM_DOUBLE_CUH

#include "kernels/cuda/gpu.h"
#include "kernels/numeric/dd.h"

/* The square root; 0 for what rounding has left below 0. */
static __device__ inline struct dd gram_root(struct dd a) {
    return a.hi > 0 ? dd_sqrt(a) : dd_from(0);
}
/* Of `lanes` lanes beside each other, a power of two: all of a warp come here. */
static __device__ inline struct dd gram_lanes_sum(struct dd value, int lanes) {
    for (int by = lanes / 2; by > 0; by /= 2) {
        struct dd other;
        other.hi = __shfl_xor_sync(BLASD_WARP_ALL, value.hi, by);
        other.lo = __shfl_xor_sync(BLASD_WARP_ALL, value.lo, by);
        value = dd_add(value, other);
    }
    return value;
}
/* a, with the sums that were left in its low part brought in order */
static __device__ inline struct dd gram_settled(struct dd a) {
    return dd_fast_sum(a.hi, a.lo);
}

#endif
