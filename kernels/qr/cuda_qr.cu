/* qr on CUDA: cuSOLVER's geqrf and ormqr, one matrix after the other. Read next: README.md, then
 * ../lapack/stack_gpu.cuh. */
#include "kernels/lapack/stack_gpu.cuh"

extern "C" {
#include "kernels/qr/qr.h"
}

struct qr_state {
    struct stack_gpu gpu;
    struct blasd_qr qr;
    bool alone;   /* R is all that is wanted */
    bool nothing; /* there are no elements to take apart */
    double *a, *copy, *tau, *r, *q, *room;
};

static int prepare(struct blasd_cuda_job *job, struct blasd_err *err) {
    struct qr_state *s;
    const struct blasd_stack *stack;
    size_t work = 0, host_work = 0;
    int64_t m, n, rows;
    STACK_TRY(blasd_cuda_host(job, sizeof *s, &job->state, err));
    s = (struct qr_state *)job->state;
    STACK_TRY(blasd_qr_read(job->tasks[0].job, &s->qr, err));
    stack = &s->qr.stack;
    s->alone = s->qr.mode == BLASD_QR_R_ALONE;
    m = stack->m;
    n = stack->n;
    rows = s->qr.rows;
    STACK_TRY(stack_gpu_prepare(&s->gpu, job, n, stack->count * job->count, err));
    s->nothing = m == 0 || stack->count == 0;
    if (s->nothing) return 0;
    if (n > 0) {
        STACK_TRY(
            job->calls->geqrf_size(job->stream, BLASD_float64, m, n, m, &work, &host_work, err));
        stack_gpu_want(&s->gpu, work, host_work);
        if (!s->alone) {
            STACK_TRY(job->calls->ormqr_size(job->stream, BLASD_float64, false, (int)m, (int)rows,
                                             (int)s->qr.k, (int)m, (int)m, &work, err));
            stack_gpu_want(&s->gpu, work, 0);
        }
    }
    STACK_TRY(stack_gpu_take_room(&s->gpu, err));
    STACK_TRY(stack_gpu_doubles(&s->gpu, m * n, &s->a, err));
    STACK_TRY(stack_gpu_doubles(&s->gpu, n, &s->tau, err));
    STACK_TRY(stack_gpu_doubles(&s->gpu, rows * n, &s->r, err));
    if (s->alone) return 0;
    STACK_TRY(stack_gpu_doubles(&s->gpu, m * n, &s->copy, err));
    STACK_TRY(stack_gpu_doubles(&s->gpu, m * rows, &s->q, err));
    return stack_gpu_doubles(&s->gpu, s->qr.k * rows, &s->room, err);
}

/* Q, R as it was before it is scaled back, and what is said of them. */
static int make_q(struct qr_state *s, int t, int64_t item, int *info, struct blasd_err *err) {
    struct stack_gpu *gpu = &s->gpu;
    struct blasd_cuda_job *job = gpu->job;
    int64_t m = s->qr.stack.m, n = s->qr.stack.n, rows = s->qr.rows;
    const struct stack_gpu_block unit = {0, 1, 0, m, rows, true, false, s->q, s->q};
    const struct stack_gpu_view view = {s->q, m, rows, 1, m, nullptr, false};
    struct blasd_lapack_product p = {};
    p.m = p.lda = p.ldc = (int)m;
    p.n = (int)n;
    p.k = (int)s->qr.k;
    p.ldb = (int)rows;
    p.alpha = -1;
    p.beta = 1;
    p.a = s->q;
    p.b = s->r;
    p.c = s->a;
    STACK_TRY(stack_gpu_block(gpu, &unit, err));
    if (n > 0)
        STACK_TRY(job->calls->ormqr(job->stream, BLASD_float64, false, (int)m, (int)rows,
                                    (int)s->qr.k, s->a, (int)m, s->tau, s->q, (int)m, gpu->work,
                                    gpu->work_bytes, info, err));
    STACK_TRY(stack_gpu_round(gpu, &s->qr.stack, m * rows, s->q, err));
    STACK_TRY(stack_gpu_copy(gpu, m * n, s->copy, s->a, err));
    STACK_TRY(stack_gpu_multiply(gpu, &p, err));
    STACK_TRY(stack_gpu_residual(gpu, t, BLASD_QR_RESIDUAL, item, m * n, s->a, s->copy,
                                 blasd_stack_slack(s->qr.k), &s->qr.stack, s->qr.k * n, n, err));
    STACK_TRY(stack_gpu_orthogonality(gpu, t, BLASD_QR_ORTHOGONALITY, item, m, s->qr.k, rows, s->q,
                                      s->room, false, err));
    return stack_gpu_store(gpu, t, BLASD_QR_Q, item, &view, err);
}

static int run_item(struct qr_state *s, int t, int64_t item, int *info, struct blasd_err *err) {
    struct stack_gpu *gpu = &s->gpu;
    struct blasd_cuda_job *job = gpu->job;
    int64_t m = s->qr.stack.m, n = s->qr.stack.n, rows = s->qr.rows;
    const struct stack_gpu_block triangle = {s->qr.k, m, n, rows, n, false, true, s->a, s->r};
    const struct stack_gpu_view view = {s->r, rows, n, 1, rows, gpu->exponents, true};
    STACK_TRY(stack_gpu_load(gpu, t, BLASD_QR_A, item, m, n, false, s->a, err));
    STACK_TRY(stack_gpu_scale_columns(gpu, m, n, s->a, gpu->exponents, err));
    if (!s->alone) STACK_TRY(stack_gpu_copy(gpu, m * n, s->a, s->copy, err));
    if (n > 0)
        STACK_TRY(job->calls->geqrf(job->stream, BLASD_float64, m, n, s->a, m, s->tau, gpu->work,
                                    gpu->work_bytes, gpu->host_work, gpu->host_bytes, info, err));
    STACK_TRY(stack_gpu_block(gpu, &triangle, err));
    STACK_TRY(stack_gpu_round(gpu, &s->qr.stack, rows * n, s->r, err));
    if (!s->alone) STACK_TRY(make_q(s, t, item, info, err));
    return stack_gpu_store(gpu, t, BLASD_QR_R, item, &view, err);
}

static int compute(struct blasd_cuda_job *job, struct blasd_err *err) {
    struct qr_state *s = (struct qr_state *)job->state;
    int64_t each = s->qr.stack.count, all = s->nothing ? 0 : each * job->count;
    for (int64_t at = 0; at < all; at++) {
        STACK_TRY(run_item(s, (int)(at / each), at % each, s->gpu.info + at, err));
        STACK_TRY(stack_gpu_next(&s->gpu, blasd_qr_flops(&s->qr), at + 1, all, err));
    }
    return 0;
}

static int finish(struct blasd_cuda_job *job, struct blasd_err *err) {
    struct qr_state *s = (struct qr_state *)job->state;
    for (int t = 0; t < job->count; t++) {
        struct blasd_task *task = &job->tasks[t];
        const struct blasd_seen *r = blasd_cuda_seen_of(task, BLASD_QR_R);
        for (int64_t i = 0; s->nothing && i < s->qr.stack.count; i++) {
            blasd_stack_put(&task->outputs[BLASD_QR_RESIDUAL], i, 0);
            blasd_stack_put(&task->outputs[BLASD_QR_ORTHOGONALITY], i, 0);
        }
        if (blasd_cuda_notes(job, t) != NULL) continue;
        /* elements of R beyond the range are counted */
        if (r != NULL && r->first_nonfinite >= 0)
            STACK_TRY(blasd_cuda_outputs_to_host(job, t, err));
        blasd_qr_finish(task, &s->qr, blasd_cuda_seen_of(task, BLASD_QR_R) == NULL);
    }
    return 0;
}

static void join(struct blasd_task *task, const int *notes) {
    struct blasd_qr qr;
    struct blasd_err ignored;
    (void)notes;
    if (blasd_qr_read(task->job, &qr, &ignored) == 0) blasd_qr_finish(task, &qr, true);
}

extern "C" const struct blasd_cuda_op blasd_cuda_qr = {
    .kernel = BLASD_CUDA_KERNEL_ADAPTED("qr", NULL, NULL, 1u << BLASD_QR_A),
    .choose = nullptr,
    .prepare = prepare,
    .compute = compute,
    .finish = finish,
    .stack = stack_gpu_items,
    .residents = UINT64_C(1) << BLASD_QR_Q | UINT64_C(1) << BLASD_QR_R,
    .join = join,
};
