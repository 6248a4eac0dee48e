/* Sums of double-double numbers over the lanes of a warp. */
#ifndef BLASD_KERNELS_DD_WARP_CUH
#define BLASD_KERNELS_DD_WARP_CUH

#include "kernels/cuda/gpu.h"
#include "kernels/numeric/dd.h"

/* The sum over `lanes` lanes beside each other, a power of two, to each of them: all lanes of a
 * warp come here. */
static __device__ inline struct dd dd_lanes_sum(struct dd value, int lanes) {
    for (int by = lanes / 2; by > 0; by /= 2) {
        struct dd other;
        other.hi = __shfl_xor_sync(BLASD_WARP_ALL, value.hi, by);
        other.lo = __shfl_xor_sync(BLASD_WARP_ALL, value.lo, by);
        value = dd_add(value, other);
    }
    return value;
}

#endif
