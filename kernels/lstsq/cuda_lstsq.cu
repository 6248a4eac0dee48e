/* lstsq on CUDA: the steps of cpu_lstsq.c by cuSOLVER and cuBLAS, one matrix after the other.
 * Read next: README.md, then ../lapack/stack_gpu.cuh. */
#include "kernels/lapack/stack_gpu.cuh"

extern "C" {
#include "kernels/cpu/cpu.h"
#include "kernels/lstsq/lstsq.h"
}

#include "kernels/numeric/dd.h"

#define THREADS 256
#define COLUMNS 4      /* of right-hand sides for which an element of a is read once */
#define HOST_FLOPS 4e9 /* of an item that the host does again, at most */
/* said of an item on the device, in place of what LAPACK says */
#define AGAIN (-1000) /* x is unique, and wants more digits */
#define LOST (-1001)  /* digits of x are lost */

struct lstsq_state {
    struct stack_gpu gpu;
    struct blasd_lstsq l;
    bool nothing; /* there are no elements: x and residuals follow from b alone */
    int64_t rows; /* of the tall matrix */
    double *a, *qr, *tau, *s, *r, *u, *vt, *b, *y, *x, *slope, *c, *d, *ratios;
    int *of_b, *of_x; /* exponents of each column */
};

/* ---- kernels ---- */

/* How many singular values count, and the coordinates of the solution in them. */
static __global__ void __launch_bounds__(THREADS)
    lstsq_divide(int64_t k, int64_t columns, double rcond, const double *s, double *d,
                 int64_t *rank) {
    for (int64_t at = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; at < k * columns;
         at += (int64_t)gridDim.x * blockDim.x) {
        double value = s[at % k];
        d[at] = value > rcond * s[0] ? d[at] / value : 0;
    }
    if (blockIdx.x != 0 || threadIdx.x != 0) return;
    *rank = 0;
    while (*rank < k && s[*rank] > rcond * s[0]) *rank += 1;
}

static __global__ void __launch_bounds__(THREADS)
    lstsq_exponents(int64_t columns, const int *of_a, const int *of_b, int *of_x) {
    for (int64_t c = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; c < columns;
         c += (int64_t)gridDim.x * blockDim.x)
        of_x[c] = of_b[c] - *of_a;
}

/* As blasd_lstsq_round. */
static __global__ void __launch_bounds__(THREADS)
    lstsq_round(int64_t n, int64_t columns, const int *of_x, bool single, double *x) {
    for (int64_t at = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; at < n * columns;
         at += (int64_t)gridDim.x * blockDim.x) {
        int e = -of_x[at / n];
        double sent = ldexp(x[at], e);
        if (single) sent = (double)(float)sent;
        if (fabs(sent) < INFINITY) x[at] = ldexp(sent, -e);
    }
}

/* r = b - a x, each product and sum without error but in the last digit of what is left over:
 * otherwise rounding is all that is left of what x nearly meets. By threads that have a row each,
 * which COLUMNS columns of x share. */
static __global__ void __launch_bounds__(THREADS)
    lstsq_left(int64_t m, int64_t n, int64_t columns, const double *a, const double *x,
               const double *b, double *r) {
    int64_t groups = (columns + COLUMNS - 1) / COLUMNS;
    for (int64_t at = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; at < m * groups;
         at += (int64_t)gridDim.x * blockDim.x) {
        int64_t i = at % m, first = at / m * COLUMNS;
        struct dd sum[COLUMNS];
        BLASD_UNROLL
        for (int c = 0; c < COLUMNS; c++)
            sum[c] = dd_from(first + c < columns ? b[(first + c) * m + i] : 0);
        for (int64_t j = 0; j < n; j++) {
            BLASD_UNROLL
            for (int c = 0; c < COLUMNS; c++)
                if (first + c < columns)
                    sum[c] = dd_subtract_product(sum[c], a[j * m + i], x[(first + c) * n + j]);
        }
        BLASD_UNROLL
        for (int c = 0; c < COLUMNS; c++)
            if (first + c < columns) r[(first + c) * m + i] = dd_round(sum[c]);
    }
}

/* The sum of squares of `count` numbers, by a block, in an order that is always the same. */
static __device__ double block_squares(int64_t count, const double *x, double *own) {
    double sum = 0;
    for (int64_t i = threadIdx.x; i < count; i += blockDim.x) sum += x[i] * x[i];
    __syncthreads();
    own[threadIdx.x] = sum;
    for (int half = THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if ((int)threadIdx.x < half) own[threadIdx.x] += own[threadIdx.x + half];
    }
    __syncthreads();
    return own[0];
}

struct lstsq_sizes {
    int64_t m, n, columns;
    const double *r, *slope, *x, *b, *a, *s;
    const int *of_b;
    const int64_t *rank;
    double *ratios; /* columns; and their doubts, columns */
};

/* Of each column: the residual's square into the output, and how far x is from the best. */
template <class T>
static __global__ void __launch_bounds__(THREADS)
    lstsq_columns(struct lstsq_sizes z, T *residuals) {
    BLASD_STATIC_SHARED(double, own, [THREADS]);
    for (int64_t c = blockIdx.x; c < z.columns; c += gridDim.x) {
        double norm = sqrt(block_squares(z.m * z.n, z.a, own));
        double above = sqrt(block_squares(z.n, z.slope + c * z.n, own));
        double size = sqrt(block_squares(z.n, z.x + c * z.n, own));
        double right = sqrt(block_squares(z.m, z.b + c * z.m, own));
        double sum = block_squares(z.m, z.r + c * z.m, own), below = norm * (norm * size + right);
        if (threadIdx.x != 0) continue;
        residuals[c] = (T)ldexp(sum, -2 * z.of_b[c]);
        z.ratios[c] = below > 0 ? above / below : below == 0 ? 0 : NAN;
        z.ratios[z.columns + c] =
            *z.rank > 0 ? blasd_lstsq_doubt(z.s[0], z.s[*z.rank - 1], size, sqrt(sum)) : 0;
    }
}

static __global__ void __launch_bounds__(1)
    lstsq_worst(struct lstsq_sizes z, double slack, double *ret, int *info) {
    bool unique = *z.rank == z.n && z.m >= z.n;
    double most = 0, doubt = 0;
    for (int64_t c = 0; c < z.columns && most == most; c++)
        most = z.ratios[c] <= most ? most : z.ratios[c];
    for (int64_t c = 0; c < z.columns; c++) doubt = fmax(doubt, z.ratios[z.columns + c]);
    *ret = most + slack;
    if (*info != 0) return;
    if (unique && doubt > BLASD_LSTSQ_REFINED) *info = AGAIN;
    if (!unique && doubt > BLASD_LSTSQ_LOST) *info = LOST;
}

/* ---- the operation ---- */

static dim3 blocks_of(int64_t count) {
    int64_t blocks = (count + THREADS - 1) / THREADS;
    return dim3((unsigned)(blocks < 1 ? 1 : blocks < 2048 ? blocks : 2048));
}

static bool wide(const struct blasd_lstsq *l) {
    return l->stack.m < l->stack.n;
}

static int want(struct lstsq_state *s, struct blasd_err *err) {
    struct blasd_cuda_job *job = s->gpu.job;
    int64_t k = s->l.k, rows = s->rows;
    size_t work = 0, host_work = 0;
    STACK_TRY(
        job->calls->geqrf_size(job->stream, BLASD_float64, rows, k, rows, &work, &host_work, err));
    stack_gpu_want(&s->gpu, work, host_work);
    STACK_TRY(
        job->calls->gesvd_size(job->stream, BLASD_float64, k, k, k, true, &work, &host_work, err));
    stack_gpu_want(&s->gpu, work, host_work);
    if (s->l.columns > 0)
        STACK_TRY(job->calls->ormqr_size(job->stream, BLASD_float64, !wide(&s->l), (int)rows,
                                         (int)s->l.columns, (int)k, (int)rows, (int)rows, &work,
                                         err));
    stack_gpu_want(&s->gpu, work, 0);
    return stack_gpu_take_room(&s->gpu, err);
}

static int prepare(struct blasd_cuda_job *job, struct blasd_err *err) {
    struct lstsq_state *s;
    struct blasd_lstsq *l;
    int64_t m, n, k, columns;
    STACK_TRY(blasd_cuda_host(job, sizeof *s, &job->state, err));
    s = (struct lstsq_state *)job->state;
    l = &s->l;
    STACK_TRY(blasd_lstsq_read(job->tasks[0].job, l, err));
    m = l->stack.m;
    n = l->stack.n;
    k = l->k;
    columns = l->columns;
    s->rows = m > n ? m : n;
    s->nothing = k == 0 || l->stack.count == 0;
    STACK_TRY(stack_gpu_prepare(&s->gpu, job, 1, l->stack.count * job->count, err));
    if (s->nothing) return 0;
    STACK_TRY(want(s, err));
    const int64_t lengths[] = {m * n,       m * n,       k,           k,           k * k,
                               k * k,       k * k,       m * columns, m * columns, n * columns,
                               n * columns, k * columns, k * columns, 2 * columns};
    double **const parts[] = {&s->a, &s->qr, &s->tau, &s->s,     &s->r, &s->u, &s->vt,
                              &s->b, &s->y,  &s->x,   &s->slope, &s->c, &s->d, &s->ratios};
    for (int i = 0; i < 14; i++) STACK_TRY(stack_gpu_doubles(&s->gpu, lengths[i], parts[i], err));
    STACK_TRY(blasd_cuda_take(job, (size_t)columns * sizeof(int), (void **)&s->of_b, err));
    return blasd_cuda_take(job, (size_t)columns * sizeof(int), (void **)&s->of_x, err);
}

static struct blasd_lapack_product product_of(int64_t m, int64_t n, int64_t k, const double *a,
                                              const double *b, double *c) {
    struct blasd_lapack_product p = {};
    p.m = p.lda = p.ldc = (int)m;
    p.n = (int)n;
    p.k = p.ldb = (int)k;
    p.alpha = 1;
    p.a = a;
    p.b = b;
    p.c = c;
    return p;
}

/* a and b of the item, scaled; the tall matrix as Q u diag(s) vt. */
static int decompose(struct lstsq_state *s, int t, int64_t at_a, int64_t at_b, int *info,
                     int *ignored, struct blasd_err *err) {
    struct stack_gpu *gpu = &s->gpu;
    struct blasd_cuda_job *job = gpu->job;
    const struct blasd_lstsq *l = &s->l;
    int64_t m = l->stack.m, n = l->stack.n, k = l->k, rows = s->rows;
    const struct stack_gpu_block triangle = {k, rows, k, k, k, false, true, s->qr, s->r};
    STACK_TRY(stack_gpu_load(gpu, t, BLASD_LSTSQ_A, at_a, m, n, false, s->a, err));
    STACK_TRY(stack_gpu_load(gpu, t, BLASD_LSTSQ_A, at_a, m, n, wide(l), s->qr, err));
    STACK_TRY(stack_gpu_load(gpu, t, BLASD_LSTSQ_B, at_b, m, l->columns, false, s->b, err));
    STACK_TRY(stack_gpu_scale(gpu, m * n, s->a, err));
    STACK_TRY(stack_gpu_scale(gpu, m * n, s->qr, err));
    STACK_TRY(stack_gpu_scale_columns(gpu, m, l->columns, s->b, s->of_b, err));
    STACK_TRY(job->calls->geqrf(job->stream, BLASD_float64, rows, k, s->qr, rows, s->tau, gpu->work,
                                gpu->work_bytes, gpu->host_work, gpu->host_bytes, ignored, err));
    STACK_TRY(stack_gpu_block(gpu, &triangle, err));
    return job->calls->gesvd(job->stream, BLASD_float64, k, k, s->r, k, s->s, s->u, k, s->vt, k,
                             gpu->work, gpu->work_bytes, gpu->host_work, gpu->host_bytes, info,
                             err);
}

/* x of least norm, and the rank into its output. */
static int apply(struct lstsq_state *s, int t, int64_t item, int *ignored, struct blasd_err *err) {
    struct stack_gpu *gpu = &s->gpu;
    struct blasd_cuda_job *job = gpu->job;
    const struct blasd_lstsq *l = &s->l;
    int64_t m = l->stack.m, k = l->k, columns = l->columns, rows = s->rows;
    int64_t *rank = (int64_t *)blasd_cuda_out(job, t, BLASD_LSTSQ_RANK) + item;
    const struct stack_gpu_block top = {k, m, columns, k, columns, false, false, s->y, s->c};
    const struct stack_gpu_block embed = {k, k, columns, rows, columns, false, false, s->c, s->x};
    struct blasd_lapack_product into =
        product_of(k, columns, k, wide(l) ? s->vt : s->u, s->c, s->d);
    struct blasd_lapack_product back =
        product_of(k, columns, k, wide(l) ? s->u : s->vt, s->d, s->c);
    into.trans_a = back.trans_a = !wide(l);
    STACK_TRY(stack_gpu_copy(gpu, m * columns, s->b, s->y, err));
    if (!wide(l) && columns > 0)
        STACK_TRY(job->calls->ormqr(job->stream, BLASD_float64, true, (int)rows, (int)columns,
                                    (int)k, s->qr, (int)rows, s->tau, s->y, (int)rows, gpu->work,
                                    gpu->work_bytes, ignored, err));
    STACK_TRY(stack_gpu_block(gpu, &top, err));
    STACK_TRY(stack_gpu_multiply(gpu, &into, err));
    STACK_TRY(blasd_launch(lstsq_divide, blocks_of(k * columns), dim3(THREADS), 0, job->stream, err,
                           k, columns, l->rcond, s->s, s->d, rank));
    STACK_TRY(stack_gpu_multiply(gpu, &back, err));
    if (!wide(l) || columns == 0) return stack_gpu_copy(gpu, k * columns, s->c, s->x, err);
    STACK_TRY(stack_gpu_block(gpu, &embed, err));
    return job->calls->ormqr(job->stream, BLASD_float64, false, (int)rows, (int)columns, (int)k,
                             s->qr, (int)rows, s->tau, s->x, (int)rows, gpu->work, gpu->work_bytes,
                             ignored, err);
}

static int answer(struct lstsq_state *s, int t, int64_t item, int *info, struct blasd_err *err) {
    struct stack_gpu *gpu = &s->gpu;
    struct blasd_cuda_job *job = gpu->job;
    const struct blasd_lstsq *l = &s->l;
    int64_t m = l->stack.m, n = l->stack.n, columns = l->columns;
    struct blasd_lapack_product slope = product_of(n, columns, m, s->a, s->y, s->slope);
    const int64_t *rank = (int64_t *)blasd_cuda_out(job, t, BLASD_LSTSQ_RANK) + item;
    const struct lstsq_sizes sizes = {m,    n,    columns, s->y,    s->slope, s->x,
                                      s->b, s->a, s->s,    s->of_b, rank,     s->ratios};
    const struct stack_gpu_view x = {s->x, n, columns, 1, n, s->of_x, true};
    const struct stack_gpu_view values = {s->s, l->k, 1, 1, l->k, gpu->exponents, false};
    double slack = blasd_stack_slack(m + n) + (l->stack.single ? 0x1p-24 : 0);
    void *residuals = blasd_cuda_out(job, t, BLASD_LSTSQ_RESIDUALS);
    dim3 blocks((unsigned)(columns < 1 ? 1 : columns < 2048 ? columns : 2048));
    slope.trans_a = true;
    slope.lda = (int)m;
    STACK_TRY(blasd_launch(lstsq_exponents, blocks_of(columns), dim3(THREADS), 0, job->stream, err,
                           columns, gpu->exponents, s->of_b, s->of_x));
    STACK_TRY(blasd_launch(lstsq_round, blocks_of(n * columns), dim3(THREADS), 0, job->stream, err,
                           n, columns, (const int *)s->of_x, l->stack.single, s->x));
    STACK_TRY(blasd_launch(lstsq_left, blocks_of(m * ((columns + COLUMNS - 1) / COLUMNS)),
                           dim3(THREADS), 0, job->stream, err, m, n, columns, (const double *)s->a,
                           (const double *)s->x, (const double *)s->b, s->y));
    STACK_TRY(stack_gpu_multiply(gpu, &slope, err));
    if (l->stack.single)
        STACK_TRY(blasd_launch(lstsq_columns<float>, blocks, dim3(THREADS), 0, job->stream, err,
                               sizes, (float *)residuals + item * columns));
    else
        STACK_TRY(blasd_launch(lstsq_columns<double>, blocks, dim3(THREADS), 0, job->stream, err,
                               sizes, (double *)residuals + item * columns));
    STACK_TRY(blasd_launch(lstsq_worst, dim3(1), dim3(1), 0, job->stream, err, sizes, slack,
                           (double *)blasd_cuda_out(job, t, BLASD_LSTSQ_OPTIMALITY) + item, info));
    STACK_TRY(stack_gpu_store(gpu, t, BLASD_LSTSQ_X, item, &x, err));
    return stack_gpu_store(gpu, t, BLASD_LSTSQ_S, item, &values, err);
}

static int compute(struct blasd_cuda_job *job, struct blasd_err *err) {
    struct lstsq_state *s = (struct lstsq_state *)job->state;
    const struct blasd_lstsq *l = &s->l;
    int64_t each = l->stack.count, all = s->nothing ? 0 : each * job->count;
    struct blasd_walk walk;
    blasd_walk_init(&walk, l->stack.rank, l->stack.batch);
    blasd_walk_operand(&walk, 0, l->a_rank, l->a_batch);
    blasd_walk_operand(&walk, 1, l->b_rank, l->b_batch);
    for (int64_t at = 0; at < all; at++) {
        int *info = s->gpu.info + at, *ignored = s->gpu.info + all, t = (int)(at / each);
        STACK_TRY(decompose(s, t, walk.offset[0], walk.offset[1], info, ignored, err));
        STACK_TRY(apply(s, t, at % each, ignored, err));
        STACK_TRY(answer(s, t, at % each, info, err));
        STACK_TRY(stack_gpu_next(&s->gpu, blasd_lstsq_flops(l), at + 1, all, err));
        blasd_walk_next(&walk);
    }
    return 0;
}

/* x is 0, and the residuals are b. */
static void answer_empty(struct blasd_task *task, const struct blasd_lstsq *l, int64_t item) {
    const double *b = (const double *)task->inputs[BLASD_LSTSQ_B].data;
    int64_t m = l->stack.m, columns = l->columns;
    struct blasd_walk walk;
    blasd_walk_init(&walk, l->stack.rank, l->stack.batch);
    blasd_walk_operand(&walk, 0, l->a_rank, l->a_batch);
    blasd_walk_operand(&walk, 1, l->b_rank, l->b_batch);
    blasd_walk_seek(&walk, item);
    b += walk.offset[1] * m * columns;
    bool by_columns = task->inputs[BLASD_LSTSQ_B].order == BLASD_COLUMN_MAJOR;
    for (int64_t c = 0; c < columns; c++) {
        double sum = 0, zero = 0;
        for (int64_t i = 0; i < m; i++) {
            double x = b[by_columns ? c * m + i : i * columns + c];
            sum += x * x;
        }
        blasd_stack_store(&task->outputs[BLASD_LSTSQ_RESIDUALS], item * columns + c, 1, 1, &sum, 1,
                          false, 0);
        for (int64_t i = 0; i < l->stack.n; i++)
            blasd_stack_store(&task->outputs[BLASD_LSTSQ_X], (item * l->stack.n + i) * columns + c,
                              1, 1, &zero, 1, false, 0);
    }
    blasd_stack_put(&task->outputs[BLASD_LSTSQ_OPTIMALITY], item, 0);
    ((int64_t *)task->outputs[BLASD_LSTSQ_RANK].data)[item] = 0;
}

/* What the host has to do to an item, or say of it. */
static int end_item(struct blasd_cuda_job *job, int t, int64_t item, struct blasd_err *err) {
    struct lstsq_state *s = (struct lstsq_state *)job->state;
    struct blasd_task *task = &job->tasks[t];
    int info = s->nothing ? 0 : s->gpu.host_info[t * s->l.stack.count + item];
    if (s->nothing) answer_empty(task, &s->l, item);
    if (info != 0 && info != LOST) STACK_TRY(blasd_cuda_outputs_to_host(job, t, err));
    if (info == 0 || info == LOST || (info == AGAIN && blasd_lstsq_flops(&s->l) > HOST_FLOPS)) {
        blasd_lstsq_tell(task, item, info != 0);
    } else if (info == AGAIN) {
        blasd_cpu_blas_alone();
        blasd_lstsq_on_host(&s->l, task, item, 1);
    } else {
        blasd_lstsq_refuse(task, &s->l, item);
    }
    return 0;
}

static int finish(struct blasd_cuda_job *job, struct blasd_err *err) {
    struct lstsq_state *s = (struct lstsq_state *)job->state;
    for (int t = 0; t < job->count; t++) {
        struct blasd_task *task = &job->tasks[t];
        const struct blasd_seen *x = blasd_cuda_seen_of(task, BLASD_LSTSQ_X);
        bool again = false;
        for (int64_t i = 0; !s->nothing && i < s->l.stack.count; i++)
            again = again || s->gpu.host_info[t * s->l.stack.count + i] == AGAIN;
        if (again) blasd_task_make_inputs(task);
        /* elements of x beyond the range are counted */
        if (s->nothing || (x != NULL && x->first_nonfinite >= 0))
            STACK_TRY(blasd_cuda_outputs_to_host(job, t, err));
        for (int64_t i = 0; task->err.code == BLASD_OK && i < s->l.stack.count; i++)
            STACK_TRY(end_item(job, t, i, err));
        if (task->err.code == BLASD_OK)
            blasd_lstsq_finish(task, &s->l, blasd_cuda_seen_of(task, BLASD_LSTSQ_X) == NULL);
    }
    return 0;
}

extern "C" const struct blasd_cuda_op blasd_cuda_lstsq = {
    .kernel = BLASD_CUDA_KERNEL_ADAPTED("lstsq", NULL, NULL, 1u << BLASD_LSTSQ_A),
    .choose = nullptr,
    .prepare = prepare,
    .compute = compute,
    .finish = finish,
    .stack = nullptr,
    .residents = UINT64_C(1) << BLASD_LSTSQ_X,
    .join = nullptr,
};
