/* svd on CUDA: R of the tall matrix by cuSOLVER's geqrf, its values and vectors by gesvd, one
 * matrix after the other. Read next: README.md, then ../lapack/stack_gpu.cuh. */
#include "kernels/lapack/stack_gpu.cuh"

extern "C" {
#include "kernels/svd/svd.h"
}

struct svd_state {
    struct stack_gpu gpu;
    struct blasd_svd svd;
    bool nothing; /* there are no elements to take apart */
    double *a, *copy, *tau, *r, *s, *small, *u, *vt, *room;
};

static int want(struct svd_state *s, struct blasd_err *err) {
    struct blasd_cuda_job *job = s->gpu.job;
    int64_t m = s->svd.rows, n = s->svd.columns;
    size_t work = 0, host_work = 0;
    STACK_TRY(job->calls->geqrf_size(job->stream, BLASD_float64, m, n, m, &work, &host_work, err));
    stack_gpu_want(&s->gpu, work, host_work);
    STACK_TRY(job->calls->gesvd_size(job->stream, BLASD_float64, n, n, n, s->svd.vectors, &work,
                                     &host_work, err));
    stack_gpu_want(&s->gpu, work, host_work);
    if (s->svd.vectors)
        STACK_TRY(job->calls->ormqr_size(job->stream, BLASD_float64, false, (int)m,
                                         (int)s->svd.left, (int)n, (int)m, (int)m, &work, err));
    stack_gpu_want(&s->gpu, work, 0);
    return stack_gpu_take_room(&s->gpu, err);
}

static int prepare(struct blasd_cuda_job *job, struct blasd_err *err) {
    struct svd_state *s;
    int64_t m, n;
    STACK_TRY(blasd_cuda_host(job, sizeof *s, &job->state, err));
    s = (struct svd_state *)job->state;
    STACK_TRY(blasd_svd_read(job->tasks[0].job, &s->svd, err));
    m = s->svd.rows;
    n = s->svd.columns;
    STACK_TRY(stack_gpu_prepare(&s->gpu, job, 1, s->svd.stack.count * job->count, err));
    s->nothing = n == 0 || s->svd.stack.count == 0;
    if (s->nothing) return 0;
    STACK_TRY(want(s, err));
    STACK_TRY(stack_gpu_doubles(&s->gpu, m * n, &s->a, err));
    STACK_TRY(stack_gpu_doubles(&s->gpu, n, &s->tau, err));
    STACK_TRY(stack_gpu_doubles(&s->gpu, n * n, &s->r, err));
    STACK_TRY(stack_gpu_doubles(&s->gpu, n, &s->s, err));
    if (!s->svd.vectors) return 0;
    STACK_TRY(stack_gpu_doubles(&s->gpu, m * n, &s->copy, err));
    STACK_TRY(stack_gpu_doubles(&s->gpu, n * n, &s->small, err));
    STACK_TRY(stack_gpu_doubles(&s->gpu, m * s->svd.left, &s->u, err));
    STACK_TRY(stack_gpu_doubles(&s->gpu, n * n, &s->vt, err));
    return stack_gpu_doubles(&s->gpu, m * n, &s->room, err); /* left is at most m */
}

/* The vectors and what is said of them; a holds R's reflectors. */
static int answer(struct svd_state *s, int t, int64_t item, int *info, struct blasd_err *err) {
    struct stack_gpu *gpu = &s->gpu;
    struct blasd_cuda_job *job = gpu->job;
    const struct blasd_svd *svd = &s->svd;
    int64_t m = svd->rows, n = svd->columns, left = svd->left;
    int first = svd->wide ? BLASD_SVD_VH : BLASD_SVD_U,
        second = svd->wide ? BLASD_SVD_U : BLASD_SVD_VH;
    const struct stack_gpu_block embed = {n, n, n, m, left, true, false, s->small, s->u};
    const struct stack_gpu_view of_u = {s->u,
                                        svd->wide ? left : m,
                                        svd->wide ? m : left,
                                        svd->wide ? m : 1,
                                        svd->wide ? 1 : m,
                                        nullptr,
                                        false};
    const struct stack_gpu_view of_vt = {s->vt,   n,    n, svd->wide ? n : 1, svd->wide ? 1 : n,
                                         nullptr, false};
    struct blasd_lapack_product p = {};
    p.m = p.lda = p.ldc = (int)m;
    p.n = p.k = p.ldb = (int)n;
    p.alpha = 1;
    p.beta = -1;
    p.a = s->room;
    p.b = s->vt;
    p.c = s->a;
    STACK_TRY(stack_gpu_block(gpu, &embed, err));
    STACK_TRY(job->calls->ormqr(job->stream, BLASD_float64, false, (int)m, (int)left, (int)n, s->a,
                                (int)m, s->tau, s->u, (int)m, gpu->work, gpu->work_bytes, info,
                                err));
    STACK_TRY(stack_gpu_round(gpu, &svd->stack, m * left, s->u, err));
    STACK_TRY(stack_gpu_round(gpu, &svd->stack, n * n, s->vt, err));
    STACK_TRY(stack_gpu_by_columns(gpu, m, n, s->u, s->s, s->room, err));
    STACK_TRY(stack_gpu_copy(gpu, m * n, s->copy, s->a, err));
    STACK_TRY(stack_gpu_multiply(gpu, &p, err));
    STACK_TRY(stack_gpu_residual(gpu, t, BLASD_SVD_RESIDUAL, item, m * n, s->a, s->copy,
                                 blasd_stack_slack(n), &svd->stack, n, 1, err));
    STACK_TRY(stack_gpu_orthogonality(gpu, t, BLASD_SVD_ORTHOGONALITY, item, m, n, left, s->u,
                                      s->room, false, err));
    STACK_TRY(stack_gpu_orthogonality(gpu, t, BLASD_SVD_ORTHOGONALITY, item, n, n, n, s->vt,
                                      s->room, true, err));
    STACK_TRY(stack_gpu_store(gpu, t, first, item, &of_u, err));
    return stack_gpu_store(gpu, t, second, item, &of_vt, err);
}

static int run_item(struct svd_state *s, int t, int64_t item, int *info, int *ignored,
                    struct blasd_err *err) {
    struct stack_gpu *gpu = &s->gpu;
    struct blasd_cuda_job *job = gpu->job;
    const struct blasd_svd *svd = &s->svd;
    int64_t m = svd->rows, n = svd->columns;
    const struct stack_gpu_block triangle = {n, m, n, n, n, false, true, s->a, s->r};
    const struct stack_gpu_view values = {s->s, n, 1, 1, n, gpu->exponents, false};
    STACK_TRY(stack_gpu_load(gpu, t, BLASD_SVD_A, item, svd->stack.m, svd->stack.n, svd->wide, s->a,
                             err));
    STACK_TRY(stack_gpu_scale(gpu, m * n, s->a, err));
    if (svd->vectors) STACK_TRY(stack_gpu_copy(gpu, m * n, s->a, s->copy, err));
    STACK_TRY(job->calls->geqrf(job->stream, BLASD_float64, m, n, s->a, m, s->tau, gpu->work,
                                gpu->work_bytes, gpu->host_work, gpu->host_bytes, ignored, err));
    STACK_TRY(stack_gpu_block(gpu, &triangle, err));
    STACK_TRY(job->calls->gesvd(job->stream, BLASD_float64, n, n, s->r, n, s->s, s->small, n, s->vt,
                                n, gpu->work, gpu->work_bytes, gpu->host_work, gpu->host_bytes,
                                info, err));
    if (svd->vectors) STACK_TRY(answer(s, t, item, ignored, err));
    return stack_gpu_store(gpu, t, BLASD_SVD_S, item, &values, err);
}

static int compute(struct blasd_cuda_job *job, struct blasd_err *err) {
    struct svd_state *s = (struct svd_state *)job->state;
    int64_t each = s->svd.stack.count, all = s->nothing ? 0 : each * job->count;
    for (int64_t at = 0; at < all; at++) {
        STACK_TRY(
            run_item(s, (int)(at / each), at % each, s->gpu.info + at, s->gpu.info + all, err));
        STACK_TRY(stack_gpu_next(&s->gpu, blasd_svd_flops(&s->svd), at + 1, all, err));
    }
    return 0;
}

/* Of a matrix without elements U or Vh may be a unit matrix. */
static void answer_empty(struct blasd_task *task, const struct blasd_svd *svd, int64_t item) {
    int output = svd->wide ? BLASD_SVD_VH : BLASD_SVD_U;
    const struct blasd_tensor *out = &task->outputs[output];
    int64_t side = svd->left;
    blasd_stack_put(&task->outputs[BLASD_SVD_RESIDUAL], item, 0);
    blasd_stack_put(&task->outputs[BLASD_SVD_ORTHOGONALITY], item, 0);
    for (int64_t i = 0; out->rank >= 0 && i < side * svd->rows; i++) {
        int64_t at = item * side * svd->rows + i;
        double one = i / svd->rows == i % svd->rows;
        if (out->dtype == BLASD_float32)
            ((float *)out->data)[at] = (float)one;
        else
            ((double *)out->data)[at] = one;
    }
}

static int finish(struct blasd_cuda_job *job, struct blasd_err *err) {
    struct svd_state *s = (struct svd_state *)job->state;
    for (int t = 0; t < job->count; t++) {
        struct blasd_task *task = &job->tasks[t];
        for (int64_t i = 0; i < s->svd.stack.count; i++) {
            if (!s->nothing && s->gpu.host_info[t * s->svd.stack.count + i] == 0) continue;
            STACK_TRY(blasd_cuda_outputs_to_host(job, t, err));
            if (s->nothing)
                answer_empty(task, &s->svd, i);
            else
                blasd_svd_refuse(task, &s->svd, i);
        }
        if (blasd_cuda_notes(job, t) == NULL) blasd_svd_finish(task, &s->svd);
    }
    return 0;
}

static void join(struct blasd_task *task, const int *notes) {
    struct blasd_svd svd;
    struct blasd_err ignored;
    (void)notes;
    if (blasd_svd_read(task->job, &svd, &ignored) == 0) blasd_svd_finish(task, &svd);
}

extern "C" const struct blasd_cuda_op blasd_cuda_svd = {
    .kernel = BLASD_CUDA_KERNEL_ADAPTED("svd", NULL, NULL, 1u << BLASD_SVD_A),
    .choose = nullptr,
    .prepare = prepare,
    .compute = compute,
    .finish = finish,
    .stack = stack_gpu_items,
    .residents = UINT64_C(1) << BLASD_SVD_U | UINT64_C(1) << BLASD_SVD_VH,
    .join = join,
};
