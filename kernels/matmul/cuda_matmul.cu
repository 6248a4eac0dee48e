/* matmul on CUDA: cuBLAS for each job whose products are large, our own kernels for all that are
 * small.
 *
 * products.cu has decided how each goes. Row-major throughout: library.h swaps the
 * operands. Read next: tiny.cuh, then README.md for the method and cpu_matmul.c for the same
 * without a GPU. */
#include "kernels/matmul/products.cuh"

#include <stdio.h>

#define BLOCKS_MOST (1 << 20)

template <class In, class C, class Out>
static int share_own(struct blasd_cuda_job *job, const struct product_plan *plan,
                     struct blasd_err *err) {
    struct tiny_batch batch = tiny_batch_of(job, plan);
    int64_t mn = (int64_t)batch.m * batch.n, blocks;
    int64_t bytes = (int64_t)(batch.m + batch.n) * batch.k * (int64_t)sizeof(In);
    if (plan->way == WAY_SMALL) {
        blocks = small_tiles(batch) * batch.products;
        if (blocks > BLOCKS_MOST) blocks = BLOCKS_MOST;
        return blasd_cuda_share(job, 0, small_products<In, C, Out>, blocks, SMALL_THREADS, 0, batch,
                                err);
    }
    batch.each = (int)(TINY_THREADS / mn > 1 ? TINY_THREADS / mn : 1);
    if (bytes > 0 && batch.each > TINY_SHARED / bytes) batch.each = (int)(TINY_SHARED / bytes);
    blocks = (batch.products + batch.each - 1) / batch.each;
    return blasd_cuda_share(job, 0, tiny_products<In, C, Out>, blocks, TINY_THREADS,
                            (size_t)(bytes * batch.each), batch, err);
}

/* Half factors with a half result have a half c, and so on: see adapt. */
template <class Half>
static int share_half(struct blasd_cuda_job *job, const struct product_plan *plan,
                      struct blasd_err *err) {
    if (plan->out == BLASD_float32) return share_own<Half, float, float>(job, plan, err);
    return share_own<Half, Half, Half>(job, plan, err);
}

static int make_own(struct blasd_cuda_job *job, const struct product_plan *plan,
                    struct blasd_err *err) {
    if (plan->dtype == BLASD_float64) return share_own<double, double, double>(job, plan, err);
    if (plan->dtype == BLASD_uint64) return share_own<uint64_t, uint64_t, uint64_t>(job, plan, err);
    if (plan->dtype == BLASD_complex128)
        return share_own<complex128, complex128, complex128>(job, plan, err);
    if (plan->dtype == BLASD_complex64)
        return share_own<complex64, complex64, complex64>(job, plan, err);
    if (plan->dtype == BLASD_float16) return share_half<float16_bits>(job, plan, err);
    if (plan->dtype == BLASD_bfloat16) return share_half<bfloat16_bits>(job, plan, err);
    return share_own<float, float, float>(job, plan, err);
}

/* alpha and c, and the rounding to half, of what the product has made; of nothing with k 0. */
static int after_product(struct blasd_cuda_job *job, const struct product_plan *plan,
                         struct blasd_err *err) {
    const struct blasd_matmul *mm = &plan->mm;
    struct blend blend = {};
    int code = 0;
    blend.target = plan->target;
    blend.c = plan->c;
    blend.keep = mm->k > 0;
    blend.add_c = mm->add_c;
    blend.factor = mm->alpha;
    blend.beta = mm->beta;
    blend.m = mm->m;
    blend.n = mm->n;
    blend.items = mm->batch_count;
    blend.c_row = plan->c_row;
    blend.c_column = plan->c_column;
    blend.elements = plan->elements * job->count;
    blend.walk = plan->walk;
    if (plan->blended) code = launch_blend(job, plan->made, plan->added, &blend, err);
    if (code != 0 || plan->wide == nullptr) return code;
    return launch_round(job, plan->out, &plan->target, &plan->out_at, plan->elements,
                        blend.elements, err);
}

/* Whether a job's stack is one call. */
static bool is_even(const struct product_plan *plan) {
    return plan->gemm.stride_a >= 0 && plan->gemm.stride_b >= 0;
}

/* One product, whose rows go to the library in panels. */
static int run_panels(struct blasd_cuda_job *job, const struct blasd_gpu_gemm *whole,
                      struct blasd_err *err) {
    int64_t rows = panel_rows(whole->n, whole->rounding, whole->dtype), m;
    int64_t a_row = whole->lda * (int64_t)blasd_dtype_size(whole->dtype);
    int64_t c_row = whole->ldc * (int64_t)blasd_dtype_size(whole->out);
    int code = 0;
    for (int64_t at = 0; code == 0 && at < whole->m; at += m) {
        struct blasd_gpu_gemm panel = *whole;
        m = whole->m - at < rows + rows / 2 ? whole->m - at : rows;
        panel.m = m;
        panel.a = (const char *)whole->a + at * a_row;
        panel.c = (char *)whole->c + at * c_row;
        code = job->calls->gemm(job->stream, &panel, err);
    }
    return code;
}

/* A call for each job, or for each panel of its rows; for each product where the items of a stack
 * lie unevenly. */
static int run_library(struct blasd_cuda_job *job, const struct product_plan *plan,
                       struct blasd_err *err) {
    int64_t a_bytes = plan->gemm.m * plan->gemm.k * (int64_t)blasd_dtype_size(plan->dtype);
    int64_t b_bytes = plan->gemm.k * plan->gemm.n * (int64_t)blasd_dtype_size(plan->dtype);
    int64_t c_bytes = plan->gemm.stride_c * (int64_t)blasd_dtype_size(plan->made);
    bool even = is_even(plan);
    int code = 0;
    if (plan->bits != nullptr)
        code = job->calls->fill(job->stream, plan->bits, 0, (size_t)job->count * sizeof(int), err);
    for (int t = 0; code == 0 && t < job->count; t++) {
        const char *a = (const char *)blasd_cuda_in(job, t, BLASD_MATMUL_A);
        const char *b = (const char *)blasd_cuda_in(job, t, BLASD_MATMUL_B);
        char *c = plan->target.base + t * plan->target.step;
        struct blasd_gpu_gemm gemm = plan->gemm;
        if (!even) gemm.count = 1;
        if (plan->bits != nullptr) gemm.bits = plan->bits + t;
        for (int64_t i = 0; code == 0 && i < (even ? 1 : plan->items); i++) {
            gemm.a = a + walk_to(plan->walk, plan->walk.a, i) * a_bytes;
            gemm.b = b + walk_to(plan->walk, plan->walk.b, i) * b_bytes;
            gemm.c = c + i * c_bytes;
            code = has_panels(plan) ? run_panels(job, &gemm, err)
                                    : job->calls->gemm(job->stream, &gemm, err);
        }
    }
    return code;
}

/* What overflows is seen in the result: by the host in small results, in larger ones where they are
 * made. */
#define LOOK_LEAST (1 << 18)
static bool is_looked_at(const struct blasd_cuda_job *job, const struct product_plan *plan) {
    return plan->way == WAY_LIBRARY && job->tasks[0].residents == nullptr &&
           plan->elements >= LOOK_LEAST;
}

static int look(struct blasd_cuda_job *job, const struct product_plan *plan,
                struct blasd_err *err) {
    int code = 0;
    for (int t = 0; code == 0 && plan->nonfinite != nullptr && t < job->count; t++)
        code = blasd_cuda_look(job->stream, job->calls, &job->tasks[t].outputs[0],
                               blasd_cuda_out(job, t, 0), 1, plan->nonfinite + t, err);
    return code;
}

static int prepare(struct blasd_cuda_job *job, struct blasd_err *err) {
    struct product_plan *plan;
    int code = prepare_products(job, err);
    plan = (struct product_plan *)job->state;
    if (code == 0 && is_looked_at(job, plan))
        code = blasd_cuda_return(job, (size_t)job->count * sizeof *plan->nonfinite,
                                 (void **)&plan->nonfinite_host, (void **)&plan->nonfinite, err);
    if (code != 0 || (plan->way != WAY_TINY && plan->way != WAY_SMALL)) return code;
    return make_own(job, plan, err);
}

static int compute(struct blasd_cuda_job *job, struct blasd_err *err) {
    const struct product_plan *plan = (const struct product_plan *)job->state;
    int code = 0;
    if (plan->way != WAY_LIBRARY) return 0;
    if (plan->mm.k > 0) code = run_library(job, plan, err);
    if (code == 0) code = after_product(job, plan, err);
    return code == 0 ? look(job, plan, err) : code;
}

static const char *way_name(const struct product_plan *plan) {
    if (plan->way != WAY_LIBRARY || plan->items == 1) return "";
    return is_even(plan) ? " batched" : " one by one";
}

static const char *base_name(const struct product_plan *plan) {
    if (plan->mm.exact) return "integers";
    if (plan->way == WAY_TINY) return "tiny";
    if (plan->way == WAY_SMALL) return "small";
    switch (plan->dtype) {
    case BLASD_float64: return "dgemm";
    case BLASD_complex128: return "zgemm";
    case BLASD_complex64: return "cgemm";
    case BLASD_float16: return "hgemm";
    case BLASD_bfloat16: return "bgemm";
    default: return "sgemm";
    }
}

/* What was done to the factors. */
static const char *rounding_name(const struct product_plan *plan) {
    if (plan->dtype != plan->sum && plan->way != WAY_NOTHING) return ", float32 sums";
    if (plan->dtype != BLASD_float32 || plan->way == WAY_TINY || plan->way == WAY_SMALL) return "";
    return plan->rounding == BLASD_GPU_TF32   ? ", tf32"
           : plan->rounding == BLASD_GPU_BF16 ? ", bf16"
                                              : "";
}

static void name_method(struct blasd_task *task, const struct product_plan *plan, int bits) {
    if (bits > 0 && bits <= BLASD_GPU_FIXED_MOST)
        snprintf(task->method, sizeof task->method, "%s, fixed point of %d bits", base_name(plan),
                 bits);
    else
        snprintf(task->method, sizeof task->method, "%s%s%s%s", base_name(plan), way_name(plan),
                 rounding_name(plan), plan->out != plan->sum ? ", rounded once" : "");
}

/* Whether the device saw that nothing has left the range. */
static bool is_settled(const struct blasd_task *task, const struct product_plan *plan, int t) {
    const struct blasd_seen *seen = blasd_cuda_seen_of(task, 0);
    if (plan->mm.exact) return true;
    if (plan->mm.alpha < -1 || plan->mm.alpha > 1) return false; /* products may have vanished */
    return (seen != nullptr && seen->first_nonfinite < 0) ||
           (plan->nonfinite != nullptr && plan->nonfinite_host[t] == UINT64_MAX);
}

static int finish(struct blasd_cuda_job *job, struct blasd_err *err) {
    const struct product_plan *plan = (const struct product_plan *)job->state;
    for (int t = 0; t < job->count; t++) {
        struct blasd_task *task = &job->tasks[t];
        if (!is_settled(task, plan, t)) {
            int code = blasd_cuda_outputs_to_host(job, t, err);
            if (code != 0) return code;
            blasd_matmul_judge_range(task, &plan->mm);
        }
        name_method(task, plan, plan->bits != nullptr ? plan->bits_host[t] : 0);
        blasd_matmul_warn(task);
    }
    return 0;
}

static void choose(const struct blasd_task *task, const struct blasd_gpu_facts *,
                   struct blasd_cuda_moves *moves) {
    const struct blasd_value *beta = &task->job->params[BLASD_MATMUL_BETA];
    if (beta->f == 0) moves->inputs &= ~(UINT64_C(1) << BLASD_MATMUL_C); /* is not read */
}

/* Factors of one half dtype stay as they are: they travel in half the bytes, and are multiplied as
 * such. c then has the dtype of the result. */
static void adapt(const struct blasd_job *job, struct blasd_plan *plan) {
    enum blasd_dtype a = job->inputs[BLASD_MATMUL_A].tensor.dtype;
    enum blasd_dtype out = plan->outputs[0].dtype;
    if (a != job->inputs[BLASD_MATMUL_B].tensor.dtype || out == BLASD_float64) return;
    if (a != BLASD_float16 && a != BLASD_bfloat16) return;
    plan->device_bytes = plan->workspace_bytes + blasd_tensor_bytes(&plan->outputs[0]);
    for (int i = BLASD_MATMUL_A; i <= BLASD_MATMUL_C; i++) {
        plan->input_dtype[i] = i == BLASD_MATMUL_C ? out : a;
        if (blasd_job_has(job, i))
            plan->device_bytes += (uint64_t)blasd_tensor_elements(&job->inputs[i].tensor) *
                                  blasd_dtype_size(plan->input_dtype[i]);
    }
    plan->device_least_bytes = plan->device_bytes;
}

/* Small products of any shape share a call, if they are computed in one dtype and rounded alike. */
static void batch_key(const struct blasd_job *job, const struct blasd_plan *plan,
                      struct blasd_key *ret) {
    if (plan->flops > MIXED_FLOPS) return;
    ret->len = 0;
    blasd_key_add_int(ret, plan->input_dtype[0]);
    blasd_key_add_int(ret, job->params[BLASD_MATMUL_PRECISION].choice);
}

/* The rows of one large product, whose b goes up once. What is resident on the device is computed
 * where it is, in the same panels. */
static void rows_of(const struct blasd_task *task, const struct blasd_gpu_facts *facts,
                    struct blasd_cuda_stack *ret) {
    const struct blasd_value *params = task->job->params;
    if (task->device_only != 0 || task->residents != nullptr) return;
    if (blasd_tensor_bytes(&task->inputs[BLASD_MATMUL_B]) > facts->memory_bytes / 16) return;
    if (params[BLASD_MATMUL_TRANSPOSE_A].b ||
        params[BLASD_MATMUL_PRECISION].choice == BLASD_MATMUL_FP64_EMULATED)
        return;
    ret->problems = task->outputs[0].shape[0];
    ret->grain = panel_rows(task->outputs[0].shape[1], rounding_of(task),
                            task->plan->input_dtype[BLASD_MATMUL_A]);
    ret->shared = 1u << BLASD_MATMUL_B;
}

/* A stack of products whose factors are stacks too, or one. */
static void stack_of(const struct blasd_task *task, const struct blasd_gpu_facts *facts,
                     struct blasd_cuda_stack *ret) {
    const struct blasd_tensor *out = &task->outputs[0];
    for (int i = 0; i < BLASD_MAX_INPUTS; i++)
        if (task->inputs[i].data != NULL && task->inputs[i].rank != out->rank) return;
    if (out->rank == 2) rows_of(task, facts, ret);
    if (out->rank < 3) return;
    ret->problems = 1;
    for (int d = 0; d < out->rank - 2; d++) ret->problems *= out->shape[d];
}

extern "C" const struct blasd_cuda_op blasd_cuda_matmul = {
    .kernel = BLASD_CUDA_KERNEL_ADAPTED("matmul", batch_key, adapt, ~0u),
    .choose = choose,
    .prepare = prepare,
    .compute = compute,
    .finish = finish,
    .stack = stack_of,
    .residents = 1,
    .join = nullptr,
};
