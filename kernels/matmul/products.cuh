/* What a job's products are done with: the way they go, and the addresses that it reads. Made by
 * prepare_products (products.cu), run by cuda_matmul.cu. */
#ifndef BLASD_KERNELS_MATMUL_PRODUCTS_CUH
#define BLASD_KERNELS_MATMUL_PRODUCTS_CUH

extern "C" {
#include "kernels/cuda/cuda_op.h"
#include "kernels/cuda/tuning.h"
#include "kernels/matmul/matmul.h"
}

#include "kernels/matmul/tiny.cuh"

/* A stack of products as the device code wants it. */
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

/* Products beyond this many operations fill the device by themselves: they join no mixed batch. */
#define MIXED_FLOPS 2e8

/* Products up to SMALL_SIDE in each length are made by a kernel of ours, many jobs in one launch,
 * where all of a job is SMALL_JOB multiplications at most. */
#define SMALL_SIDE 128
#define SMALL_JOB (SMALL_SIDE * SMALL_SIDE * SMALL_SIDE)

/* Which it is follows from the job alone: a library may choose another algorithm for another number
 * of products, so a call of it never holds products of two jobs. */
enum way { WAY_NOTHING, WAY_TINY, WAY_SMALL, WAY_LIBRARY };

struct product_plan : stack {
    enum way way;
    enum blasd_gpu_rounding rounding;
    int64_t m, n, items; /* of one task, after joining rows */
    int64_t elements;    /* of one task's result */
    bool blended;        /* alpha or c follow the product */
    struct across_tasks a, b, c, out_at, target;
    void *wide;            /* float32 results that are yet to be rounded to half */
    int *bits, *bits_host; /* FIXED: of each task; NULL: none is */
    /* of each task, the place in its result, or -1; NULL: none is looked at */
    uint64_t *nonfinite, *nonfinite_host;
    enum blasd_dtype made;      /* what the product makes: `out`, or wide */
    struct blasd_gpu_gemm gemm; /* WAY_LIBRARY: of one task, but for its addresses */
};

/* What a job lets be done to the factors; FIXED is chosen later, where there is room for it. */
static inline enum blasd_gpu_rounding rounding_of(const struct blasd_task *task) {
    int precision = task->job->params[BLASD_MATMUL_PRECISION].choice;
    return precision == BLASD_MATMUL_TF32   ? BLASD_GPU_TF32
           : precision == BLASD_MATMUL_BF16 ? BLASD_GPU_BF16
                                            : BLASD_GPU_NATIVE;
}

/* Rows of a product with n columns that go to the library in one call: enough to fill the device,
 * which of short factors (tf32, bf16, half) takes twice as many, and more than SMALL_SIDE by far.
 * Between them a large product comes in pieces, which have the bits of the whole because both ask
 * here. */
static inline int64_t panel_rows(int64_t n, enum blasd_gpu_rounding rounding,
                                 enum blasd_dtype factors) {
    bool are_short = rounding != BLASD_GPU_NATIVE || blasd_dtype_size(factors) < 4;
    int64_t elements = blasd_cuda_tuning.panel_elements * (are_short ? 2 : 1);
    int64_t rows = (elements / (n > 0 ? n : 1) + 127) / 128 * 128;
    return rows > blasd_cuda_tuning.panel_rows ? rows : blasd_cuda_tuning.panel_rows;
}

/* The calls of emulated float64 choose their bits by the elements of all rows. */
static inline bool has_panels(const struct product_plan *plan) {
    return plan->items == 1 && !plan->trans_a && plan->gemm.rounding != BLASD_GPU_FIXED;
}

/* The products of a job as the device code wants them. */
struct tiny_batch tiny_batch_of(const struct blasd_cuda_job *job, const struct product_plan *plan);

/* Leaves the struct product_plan in job->state. */
int prepare_products(struct blasd_cuda_job *job, struct blasd_err *err);

/* target = factor * target (where kept) + beta * c (where added), as `blend` says. */
int launch_blend(struct blasd_cuda_job *job, enum blasd_dtype target, enum blasd_dtype added,
                 const struct blend *blend, struct blasd_err *err);
/* Rounds `elements` floats, `each` a task, to a half dtype. */
int launch_round(struct blasd_cuda_job *job, enum blasd_dtype out, const struct across_tasks *from,
                 const struct across_tasks *to, int64_t each, int64_t elements,
                 struct blasd_err *err);

#endif
