/* The small kernels around the library's calls. Read next: stack_gpu.cuh. */
#include "kernels/lapack/stack_gpu.cuh"

#include <string.h>

#define THREADS 256
#define BLOCKS_MOST 2048
#define FAR 200         /* as in stack.c */
#define PAUSE_FLOPS 2e9 /* of one matrix, from which the host looks in between */

static dim3 blocks_of(int64_t count) {
    int64_t blocks = (count + THREADS - 1) / THREADS;
    return dim3((unsigned)(blocks < 1 ? 1 : blocks < BLOCKS_MOST ? blocks : BLOCKS_MOST));
}

/* ---- kernels ---- */

#define EACH(i, count)                                                                             \
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < (count);                  \
         i += (int64_t)gridDim.x * blockDim.x)

/* Bits of a magnitude rise as it does. */
static __device__ unsigned long long bits_of(double x) {
    return (unsigned long long)__double_as_longlong(fabs(x));
}

static __device__ int exponent_of(unsigned long long bits) {
    double most = __longlong_as_double((long long)bits);
    int e = 0;
    if (most == 0 || (most >= ldexp(1.0, -FAR) && most <= ldexp(1.0, FAR))) return 0;
    frexp(most, &e);
    return most < 1 ? -e : FAR - e;
}

static __global__ void __launch_bounds__(THREADS)
    stack_most(int64_t count, const double *x, unsigned long long *most) {
    unsigned long long own = 0;
    EACH(i, count) own = bits_of(x[i]) > own ? bits_of(x[i]) : own;
    if (own != 0) atomicMax(most, own);
}

static __global__ void __launch_bounds__(THREADS)
    stack_scale(int64_t count, double *x, const unsigned long long *most, int *exponent) {
    int e = exponent_of(*most);
    if (e != 0) EACH(i, count) x[i] = ldexp(x[i], e);
    if (blockIdx.x == 0 && threadIdx.x == 0) *exponent = e;
}

static __global__ void __launch_bounds__(THREADS)
    stack_scale_columns(int64_t m, int64_t n, double *x, int *exponents) {
    BLASD_STATIC_SHARED(unsigned long long, most, [1]);
    for (int64_t j = blockIdx.x; j < n; j += gridDim.x) {
        unsigned long long own = 0;
        int e;
        if (threadIdx.x == 0) most[0] = 0;
        __syncthreads();
        for (int64_t i = threadIdx.x; i < m; i += blockDim.x)
            own = bits_of(x[j * m + i]) > own ? bits_of(x[j * m + i]) : own;
        if (own != 0) atomicMax(&most[0], own);
        __syncthreads();
        e = exponent_of(most[0]);
        for (int64_t i = threadIdx.x; e != 0 && i < m; i += blockDim.x)
            x[j * m + i] = ldexp(x[j * m + i], e);
        if (threadIdx.x == 0) exponents[j] = e;
        __syncthreads();
    }
}

static __global__ void __launch_bounds__(THREADS)
    stack_load(int64_t rows, int64_t columns, const double *from, int64_t down, int64_t right,
               double *to) {
    EACH(i, rows * columns) to[i] = from[i % rows * down + i / rows * right];
}

static __global__ void __launch_bounds__(THREADS)
    stack_mirror(int64_t n, int upper, double *a, int *uneven) {
    EACH(at, n * n) {
        int64_t i = at % n, j = at / n;
        if (i <= j || a[at] == a[i * n + j]) continue;
        *uneven = 1;
        if (upper)
            a[at] = a[i * n + j];
        else
            a[i * n + j] = a[at];
    }
}

static __global__ void __launch_bounds__(THREADS)
    stack_clear(int64_t m, int64_t n, int below, double *a) {
    EACH(at, m * n) {
        if (below ? at % m > at / m : at % m < at / m) a[at] = 0;
    }
}

static __global__ void __launch_bounds__(THREADS) stack_block(struct stack_gpu_block b) {
    EACH(at, b.high * b.columns) {
        int64_t i = at % b.high, j = at / b.high;
        bool inside = i < b.rows && j < b.n && !(b.triangle && i > j);
        b.to[at] = inside ? b.from[j * b.m + i] : b.unit && i == j ? 1 : 0;
    }
}

static __global__ void __launch_bounds__(THREADS)
    stack_by_columns(int64_t m, int64_t n, const double *from, const double *by, double *to) {
    EACH(at, m * n) to[at] = from[at] * by[at / m];
}

static __global__ void __launch_bounds__(THREADS) stack_round(int64_t count, double *x) {
    EACH(i, count) x[i] = (double)(float)x[i];
}

static __global__ void __launch_bounds__(THREADS) stack_minus_one(int64_t k, double *x) {
    EACH(i, k) x[i * k + i] -= 1;
}

/* Part blockIdx.x of the sum of squares, in an order that is always the same. */
static __global__ void __launch_bounds__(THREADS)
    stack_squares(int64_t count, const double *x, double *sums) {
    BLASD_STATIC_SHARED(double, own, [THREADS]);
    double sum = 0;
    EACH(i, count) sum += x[i] * x[i];
    own[threadIdx.x] = sum;
    for (int half = THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if ((int)threadIdx.x < half) own[threadIdx.x] += own[threadIdx.x + half];
    }
    if (threadIdx.x == 0) sums[blockIdx.x] = own[0];
}

/* What is taken from a result where it is stored. */
struct lost {
    double root; /* of how many numbers */
    int least;
    int64_t scales;
    const int *exponents;
};

static __global__ void __launch_bounds__(BLASD_WARP)
    stack_figure(const double *sums, int beside, double slack, int at_least, struct lost lost,
                 double *ret) {
    int most = 0;
    double above = 0, below = 0, value;
    if (threadIdx.x != 0) return;
    for (int i = 0; i < STACK_PARTS; i++) above += sums[i];
    for (int i = 0; beside && i < STACK_PARTS; i++) below += sums[STACK_PARTS + i];
    for (int64_t i = 0; i < lost.scales; i++)
        most = lost.exponents[i] > most ? lost.exponents[i] : most;
    above = sqrt(above) + ldexp(lost.root, most + lost.least);
    value = beside && below == 0 ? 0 : above / (beside ? sqrt(below) : 1) + slack;
    *ret = at_least && *ret > value ? *ret : value;
}

template <class T>
static __global__ void __launch_bounds__(THREADS) stack_store(struct stack_gpu_view v, T *to) {
    EACH(at, v.rows * v.columns) {
        int64_t i = at / v.columns, j = at % v.columns;
        double x = v.from[i * v.down + j * v.right];
        if (v.exponents != nullptr) x = ldexp(x, -v.exponents[v.by_column ? j : 0]);
        to[at] = (T)x;
    }
}

/* ---- what operations call ---- */

#define START(gpu, kernel, count, ...)                                                             \
    blasd_launch(kernel, blocks_of(count), dim3(THREADS), 0, (gpu)->job->stream, err, __VA_ARGS__)

void stack_gpu_items(const struct blasd_task *task, const struct blasd_gpu_facts *facts,
                     struct blasd_cuda_stack *ret) {
    const struct blasd_tensor *a = &task->inputs[0];
    (void)facts;
    ret->problems = a->rank > 2 ? 1 : 0;
    for (int d = 0; d < a->rank - 2; d++) ret->problems *= a->shape[d];
}

int stack_gpu_prepare(struct stack_gpu *gpu, struct blasd_cuda_job *job, int64_t columns,
                      int64_t matrices, struct blasd_err *err) {
    const size_t ints = (size_t)(matrices + 1);
    void *host;
    gpu->job = job;
    STACK_TRY(blasd_cuda_take(job, 2 * STACK_PARTS * sizeof(double), (void **)&gpu->sums, err));
    STACK_TRY(blasd_cuda_take(job, sizeof *gpu->most, (void **)&gpu->most, err));
    STACK_TRY(
        blasd_cuda_take(job, (size_t)(columns + 1) * sizeof(int), (void **)&gpu->exponents, err));
    STACK_TRY(blasd_cuda_return(job, 2 * ints * sizeof(int), &host, (void **)&gpu->info, err));
    gpu->host_info = (const int *)host;
    gpu->uneven = gpu->info + ints;
    gpu->host_uneven = gpu->host_info + ints;
    return 0;
}

void stack_gpu_want(struct stack_gpu *gpu, size_t work, size_t host_work) {
    if (work > gpu->work_bytes) gpu->work_bytes = work;
    if (host_work > gpu->host_bytes) gpu->host_bytes = host_work;
}

int stack_gpu_take_room(struct stack_gpu *gpu, struct blasd_err *err) {
    STACK_TRY(blasd_cuda_take(gpu->job, gpu->work_bytes + 1, &gpu->work, err));
    return blasd_cuda_host(gpu->job, gpu->host_bytes + 1, &gpu->host_work, err);
}

int stack_gpu_doubles(struct stack_gpu *gpu, int64_t count, double **ret, struct blasd_err *err) {
    return blasd_cuda_take(gpu->job, (size_t)(count + 1) * sizeof **ret, (void **)ret, err);
}

int stack_gpu_load(struct stack_gpu *gpu, int t, int input, int64_t item, int64_t m, int64_t n,
                   bool trans, double *to, struct blasd_err *err) {
    bool by_columns = gpu->job->tasks[t].inputs[input].order == BLASD_COLUMN_MAJOR;
    const double *from = (const double *)blasd_cuda_in(gpu->job, t, input) + item * m * n;
    int64_t down = by_columns ? 1 : n, right = by_columns ? m : 1;
    if (m * n == 0) return 0;
    return START(gpu, stack_load, m * n, trans ? n : m, trans ? m : n, from, trans ? right : down,
                 trans ? down : right, to);
}

int stack_gpu_scale(struct stack_gpu *gpu, int64_t count, double *x, struct blasd_err *err) {
    STACK_TRY(gpu->job->calls->fill(gpu->job->stream, gpu->most, 0, sizeof *gpu->most, err));
    STACK_TRY(START(gpu, stack_most, count, count, x, gpu->most));
    return START(gpu, stack_scale, count, count, x, gpu->most, gpu->exponents);
}

int stack_gpu_scale_columns(struct stack_gpu *gpu, int64_t m, int64_t n, double *x, int *exponents,
                            struct blasd_err *err) {
    if (n == 0) return 0;
    return START(gpu, stack_scale_columns, n * THREADS, m, n, x, exponents);
}

int stack_gpu_mirror(struct stack_gpu *gpu, int64_t n, bool upper, double *a, int *uneven,
                     struct blasd_err *err) {
    STACK_TRY(gpu->job->calls->fill(gpu->job->stream, uneven, 0, sizeof *uneven, err));
    return START(gpu, stack_mirror, n * n, n, (int)upper, a, uneven);
}

int64_t stack_gpu_count_uneven(const int *notes, int64_t matrices) {
    int64_t count = 0;
    for (int64_t i = 0; i < matrices; i++) count += notes[i];
    return count;
}

int64_t stack_gpu_tell_uneven(const struct stack_gpu *gpu, const struct blasd_cuda_job *job, int t,
                              int64_t matrices) {
    const int *uneven = gpu->host_uneven;
    int *notes = blasd_cuda_notes(job, t);
    if (uneven == nullptr) return notes == nullptr ? 0 : -1;
    uneven += t * matrices;
    if (notes == nullptr) return stack_gpu_count_uneven(uneven, matrices);
    memcpy(notes, uneven, (size_t)matrices * sizeof *notes);
    return -1;
}

int stack_gpu_clear(struct stack_gpu *gpu, int64_t m, int64_t n, bool below, double *a,
                    struct blasd_err *err) {
    return START(gpu, stack_clear, m * n, m, n, (int)below, a);
}

int stack_gpu_copy(struct stack_gpu *gpu, int64_t count, const double *from, double *to,
                   struct blasd_err *err) {
    if (count == 0) return 0;
    return gpu->job->calls->copy_within(gpu->job->stream, to, from, (size_t)count * sizeof *to,
                                        err);
}

int stack_gpu_block(struct stack_gpu *gpu, const struct stack_gpu_block *block,
                    struct blasd_err *err) {
    return START(gpu, stack_block, block->high * block->columns, *block);
}

int stack_gpu_by_columns(struct stack_gpu *gpu, int64_t m, int64_t n, const double *from,
                         const double *by, double *to, struct blasd_err *err) {
    return START(gpu, stack_by_columns, m * n, m, n, from, by, to);
}

int stack_gpu_round(struct stack_gpu *gpu, const struct blasd_stack *stack, int64_t count,
                    double *x, struct blasd_err *err) {
    return stack->single ? START(gpu, stack_round, count, count, x) : 0;
}

/* The library's products are row-major: c' = op(b)' op(a)'. */
int stack_gpu_multiply(struct stack_gpu *gpu, const struct blasd_lapack_product *p,
                       struct blasd_err *err) {
    struct blasd_gpu_gemm gemm = {};
    if (p->m == 0 || p->n == 0) return 0;
    if (p->k == 0)
        return p->beta == 1
                   ? 0
                   : gpu->job->calls->fill(gpu->job->stream, p->c, 0,
                                           (size_t)p->m * (size_t)p->n * sizeof *p->c, err);
    gemm.dtype = gemm.out = BLASD_float64;
    gemm.rounding = BLASD_GPU_NATIVE;
    gemm.trans_a = p->trans_b;
    gemm.trans_b = p->trans_a;
    gemm.m = p->n;
    gemm.n = p->m;
    gemm.k = p->k;
    gemm.alpha = p->alpha;
    gemm.beta = p->beta;
    gemm.a = p->b;
    gemm.b = p->a;
    gemm.c = p->c;
    gemm.lda = p->ldb;
    gemm.ldb = p->lda;
    gemm.ldc = p->ldc;
    gemm.count = 1;
    return gpu->job->calls->gemm(gpu->job->stream, &gemm, err);
}

static int squares(struct stack_gpu *gpu, int64_t count, const double *x, double *sums,
                   struct blasd_err *err) {
    return blasd_launch(stack_squares, dim3(STACK_PARTS), dim3(THREADS), 0, gpu->job->stream, err,
                        count, x, sums);
}

static int put_figure(struct stack_gpu *gpu, int t, int output, int64_t item, int64_t count,
                      const double *x, int64_t beside_count, const double *beside, double slack,
                      bool at_least, struct lost lost, struct blasd_err *err) {
    double *ret = (double *)blasd_cuda_out(gpu->job, t, output) + item;
    STACK_TRY(squares(gpu, count, x, gpu->sums, err));
    if (beside != nullptr)
        STACK_TRY(squares(gpu, beside_count, beside, gpu->sums + STACK_PARTS, err));
    return blasd_launch(stack_figure, dim3(1), dim3(BLASD_WARP), 0, gpu->job->stream, err,
                        gpu->sums, (int)(beside != nullptr), slack, (int)at_least, lost, ret);
}

int stack_gpu_figure(struct stack_gpu *gpu, int t, int output, int64_t item, int64_t count,
                     const double *x, int64_t beside_count, const double *beside, double slack,
                     bool at_least, struct blasd_err *err) {
    return put_figure(gpu, t, output, item, count, x, beside_count, beside, slack, at_least,
                      {0, 0, 0, nullptr}, err);
}

int stack_gpu_residual(struct stack_gpu *gpu, int t, int output, int64_t item, int64_t count,
                       const double *x, const double *beside, double slack,
                       const struct blasd_stack *stack, int64_t values, int64_t scales,
                       struct blasd_err *err) {
    int least = stack->single ? BLASD_STACK_LEAST_SINGLE : BLASD_STACK_LEAST;
    return put_figure(gpu, t, output, item, count, x, count, beside,
                      slack + (stack->single ? 0x1p-24 : 0), false,
                      {sqrt((double)values), least, scales, gpu->exponents}, err);
}

int stack_gpu_orthogonality(struct stack_gpu *gpu, int t, int output, int64_t item, int64_t m,
                            int64_t k, int64_t columns, const double *v, double *room,
                            bool at_least, struct blasd_err *err) {
    struct blasd_lapack_product p = {};
    p.trans_a = true;
    p.m = (int)k;
    p.n = (int)columns;
    p.k = (int)m;
    p.alpha = 1;
    p.a = p.b = v;
    p.c = room;
    p.lda = p.ldb = (int)m;
    p.ldc = (int)k;
    if (k == 0 || columns == 0)
        return stack_gpu_figure(gpu, t, output, item, 0, room, 0, nullptr, 0, at_least, err);
    STACK_TRY(stack_gpu_multiply(gpu, &p, err));
    STACK_TRY(START(gpu, stack_minus_one, k, k, room));
    return stack_gpu_figure(gpu, t, output, item, k * columns, room, 0, nullptr,
                            blasd_stack_slack(m), at_least, err);
}

int stack_gpu_store(struct stack_gpu *gpu, int t, int output, int64_t item,
                    const struct stack_gpu_view *view, struct blasd_err *err) {
    int64_t each = view->rows * view->columns;
    void *to = blasd_cuda_out(gpu->job, t, output);
    if (each == 0) return 0;
    if (gpu->job->tasks[t].outputs[output].dtype == BLASD_float32)
        return START(gpu, stack_store<float>, each, *view, (float *)to + item * each);
    return START(gpu, stack_store<double>, each, *view, (double *)to + item * each);
}

int stack_gpu_next(struct stack_gpu *gpu, double flops, int64_t done, int64_t all,
                   struct blasd_err *err) {
    if (flops < PAUSE_FLOPS) return 0;
    STACK_TRY(blasd_cuda_pause(gpu->job, err));
    return blasd_cuda_go_on(gpu->job, (double)done / (double)all) ? 0 : blasd_cuda_stopped(err);
}
