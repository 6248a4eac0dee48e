/* What the operations on stacks of matrices have in common on CUDA: one matrix after the other,
 * each by the library's calls between small kernels that bring elements in, scale, measure and
 * bring out. Everything is float64 and column-major. Functions put work on the job's stream and
 * wait for nothing. Read next: stack_gpu.cu, ../eigh/cuda_eigh.cu. */
#ifndef BLASD_KERNELS_STACK_GPU_CUH
#define BLASD_KERNELS_STACK_GPU_CUH

#include "kernels/cuda/gpu.h"

extern "C" {
#include "kernels/cuda/cuda_op.h"
#include "kernels/lapack/stack.h"
}

#define STACK_PARTS 64 /* sums of squares are made in so many parts, always */

#define STACK_TRY(call)                                                                            \
    do {                                                                                           \
        int code_ = (call);                                                                        \
        if (code_ != 0) return code_;                                                              \
    } while (0)

/* What one matrix at a time is worked on with; in device memory but for the library's. */
struct stack_gpu {
    struct blasd_cuda_job *job;
    double *sums;             /* 2 STACK_PARTS: of what is measured, and of what it is beside */
    unsigned long long *most; /* of a matrix, as bits */
    int *exponents;           /* of it, or of its columns */
    void *work, *host_work;   /* of the library's largest call */
    size_t work_bytes, host_bytes;
    int *info; /* one for each matrix of the batch, and one to throw away */
    const int *host_info;
    int *uneven; /* likewise: whether it is not symmetric, where stack_gpu_mirror has looked */
    const int *host_uneven; /* NULL: there are no matrices */
};

/* What `stack` of these operations is: the matrices of a task, where they are a stack. */
void stack_gpu_items(const struct blasd_task *task, const struct blasd_gpu_facts *facts,
                     struct blasd_cuda_stack *ret);

/* `columns`: exponents wanted; `matrices`: of all tasks. */
int stack_gpu_prepare(struct stack_gpu *gpu, struct blasd_cuda_job *job, int64_t columns,
                      int64_t matrices, struct blasd_err *err);
/* Room for a call that wants so much; before stack_gpu_take_room. */
void stack_gpu_want(struct stack_gpu *gpu, size_t work, size_t host_work);
int stack_gpu_take_room(struct stack_gpu *gpu, struct blasd_err *err);
int stack_gpu_doubles(struct stack_gpu *gpu, int64_t count, double **ret, struct blasd_err *err);

/* Matrix `item` of an input of task t, m x n, or its transpose. */
int stack_gpu_load(struct stack_gpu *gpu, int t, int input, int64_t item, int64_t m, int64_t n,
                   bool trans, double *to, struct blasd_err *err);
/* As blasd_stack_scale; the exponent goes to exponents[0]. */
int stack_gpu_scale(struct stack_gpu *gpu, int64_t count, double *x, struct blasd_err *err);
/* Each column by its own; theirs go to exponents. */
int stack_gpu_scale_columns(struct stack_gpu *gpu, int64_t m, int64_t n, double *x, int *exponents,
                            struct blasd_err *err);
/* The triangle that is read in the place of the other, too; *uneven is whether they differed. */
int stack_gpu_mirror(struct stack_gpu *gpu, int64_t n, bool upper, double *a, int *uneven,
                     struct blasd_err *err);
/* In finish, of the `matrices` of task t: how many are not symmetric. -1: it is a piece of a stack,
 * and has left that in its notes, for join to count. */
int64_t stack_gpu_tell_uneven(const struct stack_gpu *gpu, const struct blasd_cuda_job *job, int t,
                              int64_t matrices);
int64_t stack_gpu_count_uneven(const int *notes, int64_t matrices);
/* Zeros below the diagonal (lower false) or above it, of m x n, ld m. */
int stack_gpu_clear(struct stack_gpu *gpu, int64_t m, int64_t n, bool below, double *a,
                    struct blasd_err *err);
int stack_gpu_copy(struct stack_gpu *gpu, int64_t count, const double *from, double *to,
                   struct blasd_err *err);
/* The first `rows` of m rows of each column; further rows of `to` (which has `high`) are zeros, or
 * with unit those of the unit matrix, up to `columns` columns of which `from` has n. */
struct stack_gpu_block {
    int64_t rows, m, n, high, columns;
    bool unit, triangle; /* triangle: what is below the diagonal of `from` counts as zeros */
    const double *from;
    double *to;
};
int stack_gpu_block(struct stack_gpu *gpu, const struct stack_gpu_block *block,
                    struct blasd_err *err);
/* to[:, j] = from[:, j] * by[j] */
int stack_gpu_by_columns(struct stack_gpu *gpu, int64_t m, int64_t n, const double *from,
                         const double *by, double *to, struct blasd_err *err);
/* Rounded to float32 where results are that. */
int stack_gpu_round(struct stack_gpu *gpu, const struct blasd_stack *stack, int64_t count,
                    double *x, struct blasd_err *err);
/* c (m x n) = alpha op(a) op(b) + beta c, all dense but for the leading dimensions given. */
int stack_gpu_multiply(struct stack_gpu *gpu, const struct blasd_lapack_product *p,
                       struct blasd_err *err);

/* Figure `item` of an output of task t: || x || / || beside || + slack, or 0 where beside is 0;
 * NULL: over 1. `at_least`: not less than what stands there already. */
int stack_gpu_figure(struct stack_gpu *gpu, int t, int output, int64_t item, int64_t count,
                     const double *x, int64_t beside_count, const double *beside, double slack,
                     bool at_least, struct blasd_err *err);
/* The same of a residual, where what it is of is stored times 2^-exponents (`scales` of them),
 * which may take something from `values` numbers: blasd_stack_lost. */
int stack_gpu_residual(struct stack_gpu *gpu, int t, int output, int64_t item, int64_t count,
                       const double *x, const double *beside, double slack,
                       const struct blasd_stack *stack, int64_t values, int64_t scales,
                       struct blasd_err *err);
/* || v' v - [1 0] || of the first k columns, into a figure; room: k x columns. */
int stack_gpu_orthogonality(struct stack_gpu *gpu, int t, int output, int64_t item, int64_t m,
                            int64_t k, int64_t columns, const double *v, double *room,
                            bool at_least, struct blasd_err *err);

/* A matrix (rows x columns as the output has it; element i, j at from[i down + j right]) times
 * 2^-exponent, which is one number, or one for each column (by_column), or NULL, into an output. */
struct stack_gpu_view {
    const double *from;
    int64_t rows, columns, down, right;
    const int *exponents;
    bool by_column;
};
int stack_gpu_store(struct stack_gpu *gpu, int t, int output, int64_t item,
                    const struct stack_gpu_view *view, struct blasd_err *err);

/* Between matrices: where one takes long, waits for the stream and asks whether to go on. */
int stack_gpu_next(struct stack_gpu *gpu, double flops, int64_t done, int64_t all,
                   struct blasd_err *err);

#endif
