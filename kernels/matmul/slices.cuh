/* A stack of products as the device code wants it, and products too large for the device, which
 * come and go in tiles. Read next: cuda_matmul.cu. */
#ifndef BLASD_KERNELS_MATMUL_SLICES_CUH
#define BLASD_KERNELS_MATMUL_SLICES_CUH

extern "C" {
#include "kernels/cpu/cpu.h"
#include "kernels/cuda/cuda_op.h"
#include "kernels/matmul/matmul.h"
#include "kernels/matmul/range.h"
}

#include "kernels/matmul/tiny.cuh"

struct stack {
    struct blasd_matmul mm;
    enum blasd_dtype dtype, out; /* of the factors; of the result */
    enum blasd_dtype sum;        /* float64 or float32: what the arithmetic is in */
    enum blasd_dtype added;      /* of c, where it is there */
    bool trans_a, trans_b;       /* as stored: dense, row-major, perhaps transposed */
    struct item_walk walk;
    int64_t c_row, c_column; /* steps of c in elements */
};

/* Reads the job; its shapes have been checked before, so that this does not fail on a sound one. */
int read_stack(struct stack *stack, const struct blasd_task *task, struct blasd_err *err);

/* Computes one task tile by tile, from its inputs on the host to its output there. */
int run_slices(struct blasd_cuda_job *job, struct blasd_task *task,
               enum blasd_gpu_rounding rounding, struct blasd_err *err);

/* target = factor * target (where kept) + beta * c (where added), as `blend` says. */
int launch_blend(struct blasd_cuda_job *job, enum blasd_dtype target, enum blasd_dtype added,
                 const struct blend *blend, struct blasd_err *err);
/* Rounds `elements` floats, `each` a task, to a half dtype. */
int launch_round(struct blasd_cuda_job *job, enum blasd_dtype out, const struct across_tasks *from,
                 const struct across_tasks *to, int64_t each, int64_t elements,
                 struct blasd_err *err);

#endif
