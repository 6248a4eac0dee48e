/* cholesky on CUDA: cuSOLVER's potrf, one matrix after the other, between our own kernels that
 * scale. Read next: README.md, then ../lapack/stack_gpu.cuh. */
#include "kernels/lapack/stack_gpu.cuh"

extern "C" {
#include "kernels/cholesky/cholesky.h"
}

#include <math.h>

#define THREADS 256

struct cholesky_state {
    struct stack_gpu gpu;
    struct blasd_stack stack;
    double *a, *copy, *l, *trials, *solved;
};

/* 2^d[i] brings element i of the diagonal to [1, 4), as blasd_cholesky_scale does. */
static __global__ void __launch_bounds__(THREADS)
    cholesky_exponents(int64_t n, const double *a, int *d) {
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n;
         i += (int64_t)gridDim.x * blockDim.x) {
        double x = a[i * n + i];
        int e = 0;
        if (x > 0) frexp(x, &e);
        d[i] = x > 0 ? -((e - 1) - ((e - 1) & 1)) / 2 : 0;
    }
}

/* a becomes D A D; with `back`, the rows of L are those of the matrix as it came. */
static __global__ void __launch_bounds__(THREADS)
    cholesky_scale(int64_t n, double *a, const int *d, int back) {
    for (int64_t at = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; at < n * n;
         at += (int64_t)gridDim.x * blockDim.x) {
        int e = back ? -d[at % n] : d[at % n] + d[at / n];
        if (e != 0) a[at] = ldexp(a[at], e);
        if (!back && at % n != at / n && fabs(a[at]) > BLASD_CHOLESKY_MOST)
            a[at] = copysign(BLASD_CHOLESKY_MOST, a[at]);
    }
}

static __global__ void __launch_bounds__(THREADS)
    cholesky_trials(int64_t n, double *trials, double *solved) {
    for (int64_t at = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
         at < BLASD_CHOLESKY_TRIALS * n; at += (int64_t)gridDim.x * blockDim.x)
        trials[at] = solved[at] = BLASD_CHOLESKY_TRIAL(at % n, at / n);
}

static dim3 blocks_of(int64_t count) {
    int64_t blocks = (count + THREADS - 1) / THREADS;
    return dim3((unsigned)(blocks < 2048 ? blocks : 2048));
}

static int prepare(struct blasd_cuda_job *job, struct blasd_err *err) {
    struct cholesky_state *s;
    size_t work = 0, host_work = 0;
    int64_t n;
    STACK_TRY(blasd_cuda_host(job, sizeof *s, &job->state, err));
    s = (struct cholesky_state *)job->state;
    STACK_TRY(blasd_stack_read(job->tasks[0].job, true, &s->stack, err));
    n = s->stack.n;
    if (n == 0 || s->stack.count == 0) return 0;
    STACK_TRY(stack_gpu_prepare(&s->gpu, job, n, s->stack.count * job->count, err));
    STACK_TRY(
        job->calls->potrf_size(job->stream, BLASD_float64, false, n, n, &work, &host_work, err));
    stack_gpu_want(&s->gpu, work, host_work);
    STACK_TRY(stack_gpu_take_room(&s->gpu, err));
    STACK_TRY(stack_gpu_doubles(&s->gpu, n * n, &s->a, err));
    STACK_TRY(stack_gpu_doubles(&s->gpu, n * n, &s->copy, err));
    STACK_TRY(stack_gpu_doubles(&s->gpu, BLASD_CHOLESKY_TRIALS * n, &s->trials, err));
    STACK_TRY(stack_gpu_doubles(&s->gpu, BLASD_CHOLESKY_TRIALS * n, &s->solved, err));
    return stack_gpu_doubles(&s->gpu, n * n, &s->l, err);
}

static int run_item(struct cholesky_state *s, int t, int64_t item, int64_t at,
                    struct blasd_err *err) {
    struct stack_gpu *gpu = &s->gpu;
    struct blasd_cuda_job *job = gpu->job;
    bool upper = job->tasks[t].job->params[BLASD_CHOLESKY_UPPER].b;
    int64_t n = s->stack.n, square = n * n;
    const struct stack_gpu_view factor = {s->l, n, n, upper ? n : 1, upper ? 1 : n, nullptr, false};
    struct blasd_lapack_product p = {};
    p.trans_b = true;
    p.m = p.n = p.k = p.lda = p.ldb = p.ldc = (int)n;
    p.alpha = -1;
    p.beta = 1;
    p.a = p.b = s->l;
    p.c = s->a;
    STACK_TRY(stack_gpu_load(gpu, t, BLASD_CHOLESKY_A, item, n, n, false, s->a, err));
    STACK_TRY(stack_gpu_mirror(gpu, n, upper, s->a, gpu->uneven + at, err));
    STACK_TRY(blasd_launch(cholesky_exponents, blocks_of(n), dim3(THREADS), 0, job->stream, err, n,
                           s->a, gpu->exponents));
    STACK_TRY(blasd_launch(cholesky_scale, blocks_of(square), dim3(THREADS), 0, job->stream, err, n,
                           s->a, gpu->exponents, 0));
    STACK_TRY(stack_gpu_copy(gpu, square, s->a, s->l, err));
    STACK_TRY(job->calls->potrf(job->stream, BLASD_float64, false, n, s->l, n, gpu->work,
                                gpu->work_bytes, gpu->host_work, gpu->host_bytes, gpu->info + at,
                                err));
    STACK_TRY(stack_gpu_clear(gpu, n, n, false, s->l, err));
    STACK_TRY(blasd_launch(cholesky_trials, blocks_of(BLASD_CHOLESKY_TRIALS * n), dim3(THREADS), 0,
                           job->stream, err, n, s->trials, s->solved));
    STACK_TRY(job->calls->potrs(job->stream, BLASD_float64, false, n, BLASD_CHOLESKY_TRIALS, s->l,
                                n, s->solved, n, gpu->info + s->stack.count * job->count, err));
    STACK_TRY(stack_gpu_figure(gpu, t, BLASD_CHOLESKY_LEAST, item, BLASD_CHOLESKY_TRIALS * n,
                               s->trials, BLASD_CHOLESKY_TRIALS * n, s->solved, 0, false, err));
    STACK_TRY(stack_gpu_round(gpu, &s->stack, square, s->l, err));
    STACK_TRY(stack_gpu_copy(gpu, square, s->a, s->copy, err));
    STACK_TRY(stack_gpu_multiply(gpu, &p, err));
    STACK_TRY(stack_gpu_figure(gpu, t, BLASD_CHOLESKY_RESIDUAL, item, square, s->a, square, s->copy,
                               blasd_stack_slack(n), false, err));
    STACK_TRY(blasd_launch(cholesky_scale, blocks_of(square), dim3(THREADS), 0, job->stream, err, n,
                           s->l, gpu->exponents, 1));
    return stack_gpu_store(gpu, t, BLASD_CHOLESKY_L, item, &factor, err);
}

static int compute(struct blasd_cuda_job *job, struct blasd_err *err) {
    struct cholesky_state *s = (struct cholesky_state *)job->state;
    int64_t each = s->stack.n == 0 ? 0 : s->stack.count, all = each * job->count;
    double flops = blasd_cholesky_flops(&s->stack);
    for (int64_t at = 0; at < all; at++) {
        STACK_TRY(run_item(s, (int)(at / each), at % each, at, err));
        STACK_TRY(stack_gpu_next(&s->gpu, flops, at + 1, all, err));
    }
    return 0;
}

static int finish(struct blasd_cuda_job *job, struct blasd_err *err) {
    struct cholesky_state *s = (struct cholesky_state *)job->state;
    for (int t = 0; t < job->count; t++) {
        struct blasd_task *task = &job->tasks[t];
        int64_t uneven;
        for (int64_t i = 0; i < s->stack.count; i++) {
            int info = s->stack.n > 0 ? s->gpu.host_info[t * s->stack.count + i] : 0;
            ((int64_t *)task->outputs[BLASD_CHOLESKY_INFO].data)[i] = 0;
            if (s->stack.n == 0) {
                blasd_stack_put(&task->outputs[BLASD_CHOLESKY_RESIDUAL], i, 0);
                blasd_stack_put(&task->outputs[BLASD_CHOLESKY_LEAST], i, INFINITY);
            }
            if (info <= 0) continue;
            STACK_TRY(blasd_cuda_outputs_to_host(job, t, err));
            blasd_cholesky_refuse(task, &s->stack, i, info);
        }
        uneven = stack_gpu_tell_uneven(&s->gpu, job, t, s->stack.count);
        if (uneven >= 0) blasd_cholesky_finish(task, &s->stack, uneven);
    }
    return 0;
}

static void join(struct blasd_task *task, const int *notes) {
    struct blasd_stack stack;
    struct blasd_err ignored;
    if (blasd_stack_read(task->job, true, &stack, &ignored) == 0)
        blasd_cholesky_finish(task, &stack, stack_gpu_count_uneven(notes, stack.count));
}

extern "C" const struct blasd_cuda_op blasd_cuda_cholesky = {
    .kernel = BLASD_CUDA_KERNEL_ADAPTED("cholesky", NULL, NULL, 1u << BLASD_CHOLESKY_A),
    .choose = nullptr,
    .prepare = prepare,
    .compute = compute,
    .finish = finish,
    .stack = stack_gpu_items,
    .residents = UINT64_C(1) << BLASD_CHOLESKY_L,
    .join = join,
};
