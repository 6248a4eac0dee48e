/* One launch for jobs of different shapes: each brings a share of the blocks, with arguments of its
 * own, and a block finds its share by its number.
 *
 * A kernel made for this takes the shares and their count and no more, and asks of its share what a
 * kernel for one job would ask of the grid: so a job is worked on in the same way, to the bit,
 * whoever shares the launch. Read next: mixed_batch.c, then ../solve/solve_kernels.cuh. */
#ifndef BLASD_KERNELS_CUDA_MIXED_BATCH_CUH
#define BLASD_KERNELS_CUDA_MIXED_BATCH_CUH

#include "kernels/cuda/gpu.h"

extern "C" {
#include "kernels/cuda/cuda_op.h"
}

template <class Args> struct blasd_share {
    struct blasd_share_head head;
    Args args;
    /* In place of blockIdx.x and gridDim.x. */
    __device__ int64_t block() const {
        return (int64_t)blockIdx.x - head.first;
    }
    __device__ int64_t blocks() const {
        return head.blocks;
    }
};

template <class Args>
static __device__ inline const blasd_share<Args> &blasd_share_of(const blasd_share<Args> *shares,
                                                                 int count) {
    int low = 0, high = count; /* the last one that does not begin behind this block */
    while (high - low > 1) {
        int middle = (low + high) / 2;
        if (shares[middle].head.first <= (int64_t)blockIdx.x)
            low = middle;
        else
            high = middle;
    }
    return shares[low];
}

template <class Args>
static int blasd_start_joint(const struct blasd_cuda_joint *joint, struct blasd_gpu_stream *stream,
                             struct blasd_err *err) {
    typedef void (*kernel)(const blasd_share<Args> *, int);
    return blasd_launch(reinterpret_cast<kernel>(joint->kernel), dim3((unsigned)joint->blocks),
                        dim3((unsigned)joint->threads), joint->shared_bytes, stream, err,
                        static_cast<const blasd_share<Args> *>(joint->shares), joint->count);
}

/* In prepare only: this job's `blocks` blocks of the kernel, which run when every job's `compute`
 * has put its work on the stream, those of stage 0 first. */
template <class Args>
static int blasd_cuda_share(struct blasd_cuda_job *job, int stage,
                            void (*kernel)(const blasd_share<Args> *, int), int64_t blocks,
                            int threads, size_t shared_bytes, const Args &args,
                            struct blasd_err *err) {
    struct blasd_cuda_joint alone = {};
    blasd_share<Args> share = {};
    alone.stage = stage;
    alone.kernel = reinterpret_cast<void (*)(void)>(kernel);
    alone.start = blasd_start_joint<Args>;
    alone.share_bytes = sizeof share;
    alone.blocks = share.head.blocks = blocks;
    alone.threads = threads;
    alone.shared_bytes = shared_bytes;
    share.args = args;
    return blasd_cuda_share_add(job, &alone, &share, err);
}

#endif
