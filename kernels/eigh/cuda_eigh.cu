/* eigh on CUDA: cuSOLVER's divide and conquer, one matrix after the other. Read next: README.md,
 * then
 * ../lapack/stack_gpu.cuh. */
#include "kernels/lapack/stack_gpu.cuh"

extern "C" {
#include "kernels/eigh/eigh.h"
#include "kernels/eigh/library_eigh.h"
}

#include <math.h>

struct eigh_state {
    struct stack_gpu gpu;
    struct blasd_stack stack;
    bool vectors;
    double *a, *copy, *room, *more_room, *w;
};

static int prepare(struct blasd_cuda_job *job, struct blasd_err *err) {
    struct eigh_state *s;
    size_t work = 0, host_work = 0;
    int64_t square;
    STACK_TRY(blasd_cuda_host(job, sizeof *s, &job->state, err));
    s = (struct eigh_state *)job->state;
    STACK_TRY(blasd_stack_read(job->tasks[0].job, true, &s->stack, err));
    s->vectors = job->tasks[0].outputs[BLASD_EIGH_VECTORS].rank >= 0;
    if (s->stack.n == 0 || s->stack.count == 0) return 0;
    square = s->stack.n * s->stack.n;
    STACK_TRY(stack_gpu_prepare(&s->gpu, job, 1, s->stack.count * job->count, err));
    STACK_TRY(blasd_gpu_syevd_size(job->stream, s->stack.n, s->vectors, &work, &host_work, err));
    stack_gpu_want(&s->gpu, work, host_work);
    STACK_TRY(stack_gpu_take_room(&s->gpu, err));
    STACK_TRY(stack_gpu_doubles(&s->gpu, square, &s->a, err));
    STACK_TRY(stack_gpu_doubles(&s->gpu, s->stack.n, &s->w, err));
    if (!s->vectors) return 0;
    STACK_TRY(stack_gpu_doubles(&s->gpu, square, &s->copy, err));
    STACK_TRY(stack_gpu_doubles(&s->gpu, square, &s->room, err));
    return stack_gpu_doubles(&s->gpu, square, &s->more_room, err);
}

/* V := V (3 - V'V) / 2, which squares what V'V is off by. cuSOLVER's vectors of equal values are
 * orthogonal to 3e-6 alone (of a matrix of ones, n = 40, on an H100); those of different values
 * stay as they are, so what AV - VW is off by stays small. */
static int orthogonalise(struct eigh_state *s, struct blasd_err *err) {
    struct blasd_lapack_product p = {};
    int64_t n = s->stack.n;
    p.m = p.n = p.k = p.lda = p.ldb = p.ldc = (int)n;
    for (int round = 0; round < 2; round++) {
        p.trans_a = true;
        p.alpha = 1;
        p.beta = 0;
        p.a = p.b = s->a;
        p.c = s->room;
        STACK_TRY(stack_gpu_multiply(&s->gpu, &p, err));
        STACK_TRY(stack_gpu_copy(&s->gpu, n * n, s->a, s->more_room, err));
        p.trans_a = false;
        p.alpha = -0.5;
        p.beta = 1.5;
        p.a = s->more_room;
        p.b = s->room;
        p.c = s->a;
        STACK_TRY(stack_gpu_multiply(&s->gpu, &p, err));
    }
    return 0;
}

/* What is said of the vectors, which are in s->a, and the vectors. */
static int answer(struct eigh_state *s, int t, int64_t item, struct blasd_err *err) {
    struct stack_gpu *gpu = &s->gpu;
    const struct stack_gpu_view vectors = {s->a,       s->stack.n, s->stack.n, 1,
                                           s->stack.n, nullptr,    false};
    struct blasd_lapack_product p = {};
    int64_t n = s->stack.n, square = n * n;
    p.m = p.n = p.k = p.lda = p.ldb = p.ldc = (int)n;
    p.alpha = 1;
    p.beta = -1;
    p.a = s->copy;
    p.b = s->a;
    p.c = s->room;
    STACK_TRY(orthogonalise(s, err));
    STACK_TRY(stack_gpu_round(gpu, &s->stack, square, s->a, err));
    STACK_TRY(stack_gpu_by_columns(gpu, n, n, s->a, s->w, s->room, err));
    STACK_TRY(stack_gpu_multiply(gpu, &p, err));
    STACK_TRY(stack_gpu_residual(gpu, t, BLASD_EIGH_RESIDUAL, item, square, s->room, s->copy,
                                 blasd_stack_slack(n), &s->stack, n, 1, err));
    STACK_TRY(stack_gpu_orthogonality(gpu, t, BLASD_EIGH_ORTHOGONALITY, item, n, n, n, s->a,
                                      s->room, false, err));
    return stack_gpu_store(gpu, t, BLASD_EIGH_VECTORS, item, &vectors, err);
}

static int run_item(struct eigh_state *s, int t, int64_t item, int64_t at, struct blasd_err *err) {
    struct stack_gpu *gpu = &s->gpu;
    struct blasd_cuda_job *job = gpu->job;
    const struct stack_gpu_view values = {s->w,       s->stack.n,     1,    1,
                                          s->stack.n, gpu->exponents, false};
    bool upper = job->tasks[t].job->params[BLASD_EIGH_UPLO].choice == BLASD_EIGH_UPPER;
    int64_t n = s->stack.n, square = n * n;
    STACK_TRY(stack_gpu_load(gpu, t, BLASD_EIGH_A, item, n, n, false, s->a, err));
    STACK_TRY(stack_gpu_mirror(gpu, n, upper, s->a, gpu->uneven + at, err));
    STACK_TRY(stack_gpu_scale(gpu, square, s->a, err));
    if (s->vectors) STACK_TRY(stack_gpu_copy(gpu, square, s->a, s->copy, err));
    STACK_TRY(blasd_gpu_syevd(job->stream, n, s->vectors, s->a, s->w, gpu->work, gpu->work_bytes,
                              gpu->host_work, gpu->host_bytes, gpu->info + at, err));
    if (s->vectors) STACK_TRY(answer(s, t, item, err));
    return stack_gpu_store(gpu, t, BLASD_EIGH_VALUES, item, &values, err);
}

static int compute(struct blasd_cuda_job *job, struct blasd_err *err) {
    struct eigh_state *s = (struct eigh_state *)job->state;
    int64_t each = s->stack.n == 0 ? 0 : s->stack.count, all = each * job->count;
    double flops = blasd_eigh_flops(&s->stack, s->vectors);
    for (int64_t at = 0; at < all; at++) {
        STACK_TRY(run_item(s, (int)(at / each), at % each, at, err));
        STACK_TRY(stack_gpu_next(&s->gpu, flops, at + 1, all, err));
    }
    return 0;
}

static int finish(struct blasd_cuda_job *job, struct blasd_err *err) {
    struct eigh_state *s = (struct eigh_state *)job->state;
    for (int t = 0; t < job->count; t++) {
        struct blasd_task *task = &job->tasks[t];
        int64_t uneven;
        for (int64_t i = 0; i < s->stack.count; i++) {
            if (s->stack.n == 0 && s->vectors) {
                blasd_stack_put(&task->outputs[BLASD_EIGH_RESIDUAL], i, 0);
                blasd_stack_put(&task->outputs[BLASD_EIGH_ORTHOGONALITY], i, 0);
            } else if (s->stack.n > 0 && s->gpu.host_info[t * s->stack.count + i] != 0) {
                STACK_TRY(blasd_cuda_outputs_to_host(job, t, err));
                blasd_eigh_refuse(task, &s->stack, i);
            }
        }
        uneven = stack_gpu_tell_uneven(&s->gpu, job, t, s->stack.count);
        if (uneven >= 0) blasd_eigh_finish(task, &s->stack, uneven);
    }
    return 0;
}

static void join(struct blasd_task *task, const int *notes) {
    struct blasd_stack stack;
    struct blasd_err ignored;
    if (blasd_stack_read(task->job, true, &stack, &ignored) == 0)
        blasd_eigh_finish(task, &stack, stack_gpu_count_uneven(notes, stack.count));
}

extern "C" const struct blasd_cuda_op blasd_cuda_eigh = {
    .kernel = BLASD_CUDA_KERNEL_ADAPTED("eigh", NULL, NULL, 1u << BLASD_EIGH_A),
    .choose = nullptr,
    .prepare = prepare,
    .compute = compute,
    .finish = finish,
    .stack = stack_gpu_items,
    .residents = UINT64_C(1) << BLASD_EIGH_VECTORS,
    .join = join,
};
