/* Launches of a regression's kernels: of its own, or shared with regressions of other shapes.
 *
 * A kernel is one text for both. It takes what its arguments come as, asks gram_share for them and
 * the share for its blocks:
 *
 *     template <class... In> static __global__ void __launch_bounds__(256) halve(In... in) {
 *         const auto &share = gram_share(in...);
 *         const struct halve_in &args = share.args;
 *         ... share.block() ... share.blocks() ...
 *
 *     gram_launch<struct halve_in>(way, STAGE_HALVE, halve, halve, blocks, 256, 0, {x, n}, err);
 *
 * Read next: gram.cuh, ../cuda/mixed_batch.cuh. */
#ifndef BLASD_REGRESSION_GRAM_SHARE_CUH
#define BLASD_REGRESSION_GRAM_SHARE_CUH

#include "kernels/cuda/mixed_batch.cuh"
#include "kernels/regression/gram.cuh"

/* The order of shared launches: that in which a job of its own makes them. */
enum gram_stage {
    STAGE_WIDEN,
    STAGE_RANGES,
    STAGE_SETTLE,
    STAGE_PRODUCTS, /* and their sums */
    STAGE_TOTALS = STAGE_PRODUCTS + 2,
    STAGE_FACTOR,
    STAGE_SINGULAR,
    STAGE_LEAVE,
    STAGE_SLOPES, /* and their sums */
    STAGE_CORRECT = STAGE_SLOPES + 2,
    STAGE_ROWS,
    STAGE_ROBUST, /* products, their sums and the sandwich: of each target */
    STAGES_OF_TARGET = 3
};

/* What many kernels take. */
struct gram_in {
    struct gram_shape s;
    struct gram_arrays a;
};

/* A launch that is nobody else's. */
template <class Args> struct gram_alone {
    const Args &args;
    __device__ int64_t block() const {
        return blockIdx.x;
    }
    __device__ int64_t blocks() const {
        return gridDim.x;
    }
};

template <class Args> static __device__ inline gram_alone<Args> gram_share(const Args &args) {
    return {args};
}
template <class Args>
static __device__ inline const blasd_share<Args> &gram_share(const blasd_share<Args> *shares,
                                                             int count) {
    return blasd_share_of(shares, count);
}

/* One kernel for either way. */
template <class Args>
static int gram_launch(const struct gram_way *way, int stage, void (*alone)(Args),
                       void (*shared)(const blasd_share<Args> *, int), int64_t blocks, int threads,
                       size_t shared_bytes, const Args &args, struct blasd_err *err) {
    if (way->shared != nullptr)
        return blasd_cuda_share(way->shared, stage, shared, blocks, threads, shared_bytes, args,
                                err);
    return blasd_launch(alone, dim3((unsigned)blocks), dim3((unsigned)threads), shared_bytes,
                        way->stream, err, args);
}

#endif
