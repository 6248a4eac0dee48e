/* matmul on CUDA: cuBLAS for each job whose products are large, our own kernels for all that are
 * small.
 *
 * products.cu has decided what runs together and how. Row-major throughout: library.h swaps the
 * operands. Read next: tiny.cuh, then README.md for the method and cpu_matmul.c for the same
 * without a GPU. */
#include "kernels/matmul/products.cuh"

#include <stdio.h>

#define BLOCKS_MOST (1 << 20)

template <class In, class C, class Out>
static int launch_own(struct blasd_cuda_job *job, const struct group *group,
                      struct blasd_err *err) {
    struct tiny_batch batch = tiny_batch_of(group);
    int64_t mn = (int64_t)batch.m * batch.n, blocks;
    int64_t bytes = (int64_t)(batch.m + batch.n) * batch.k * (int64_t)sizeof(In);
    if (group->way == WAY_SMALL) {
        blocks = group->small_blocks;
        if (blocks > BLOCKS_MOST) blocks = BLOCKS_MOST;
        return blasd_launch(small_products<In, C, Out>, dim3((unsigned)blocks), dim3(TINY_THREADS),
                            0, job->stream, err, group->small, group->small_count,
                            group->small_blocks);
    }
    batch.each = (int)(TINY_THREADS / mn > 1 ? TINY_THREADS / mn : 1);
    if (bytes > 0 && batch.each > TINY_SHARED / bytes) batch.each = (int)(TINY_SHARED / bytes);
    blocks = (batch.products + batch.each - 1) / batch.each;
    return blasd_launch(tiny_products<In, C, Out>, dim3((unsigned)blocks), dim3(TINY_THREADS),
                        (size_t)(bytes * batch.each), job->stream, err, batch);
}

/* Half factors with a half result have a half c, and so on: see adapt. */
template <class Half>
static int launch_half(struct blasd_cuda_job *job, const struct group *group,
                       struct blasd_err *err) {
    if (group->out == BLASD_float32) return launch_own<Half, float, float>(job, group, err);
    return launch_own<Half, Half, Half>(job, group, err);
}

static int run_own(struct blasd_cuda_job *job, const struct group *group, struct blasd_err *err) {
    if (group->dtype == BLASD_float64) return launch_own<double, double, double>(job, group, err);
    if (group->dtype == BLASD_uint64)
        return launch_own<uint64_t, uint64_t, uint64_t>(job, group, err);
    if (group->dtype == BLASD_complex128)
        return launch_own<complex128, complex128, complex128>(job, group, err);
    if (group->dtype == BLASD_complex64)
        return launch_own<complex64, complex64, complex64>(job, group, err);
    if (group->dtype == BLASD_float16) return launch_half<float16_bits>(job, group, err);
    if (group->dtype == BLASD_bfloat16) return launch_half<bfloat16_bits>(job, group, err);
    return launch_own<float, float, float>(job, group, err);
}

static int run_blend(struct blasd_cuda_job *job, const struct group *group, bool keep,
                     double factor, bool add_c, double beta, struct blasd_err *err) {
    struct blend blend = {};
    blend.target = group->target;
    blend.c = group->c;
    blend.keep = keep;
    blend.add_c = add_c;
    blend.factor = factor;
    blend.beta = beta;
    blend.m = group->mm.m;
    blend.n = group->mm.n;
    blend.items = group->mm.batch_count;
    blend.c_row = group->c_row;
    blend.c_column = group->c_column;
    blend.elements = group->elements * group->count;
    blend.walk = group->walk;
    return launch_blend(job, group->made, group->added, &blend, err);
}

/* What the product finds in its target: c, spread; or zeros, where there will be no product. */
static int before_product(struct blasd_cuda_job *job, const struct group *group,
                          struct blasd_err *err) {
    const struct blasd_matmul *mm = &group->mm;
    if (mm->k == 0) return run_blend(job, group, false, 0, mm->add_c, mm->beta, err);
    if (group->beta != 0) return run_blend(job, group, false, 0, true, 1, err);
    return 0;
}

static int after_product(struct blasd_cuda_job *job, const struct group *group,
                         struct blasd_err *err) {
    const struct blasd_matmul *mm = &group->mm;
    int64_t elements = group->elements * group->count;
    int code = 0;
    if (mm->k > 0 && mm->alpha == 0)
        code = run_blend(job, group, true, 0, mm->add_c, mm->beta, err);
    if (code != 0 || group->wide == nullptr) return code;
    return launch_round(job, group->out, &group->target, &group->out_at, group->elements, elements,
                        err);
}

/* Whether a job's stack is one call. */
static bool is_even(const struct group *group) {
    return group->gemm.stride_a >= 0 && group->gemm.stride_b >= 0;
}

/* A call for each job; for each product where the items of a stack lie unevenly. */
static int run_library(struct blasd_cuda_job *job, const struct product_plan *plan,
                       const struct group *group, struct blasd_err *err) {
    int64_t a_bytes = group->gemm.m * group->gemm.k * (int64_t)blasd_dtype_size(group->dtype);
    int64_t b_bytes = group->gemm.k * group->gemm.n * (int64_t)blasd_dtype_size(group->dtype);
    int64_t c_bytes = group->gemm.stride_c * (int64_t)blasd_dtype_size(group->made);
    bool even = is_even(group);
    int code = 0;
    for (int t = 0; code == 0 && t < group->count; t++) {
        int task = plan->order[group->first + t];
        const char *a = (const char *)blasd_cuda_in(job, task, BLASD_MATMUL_A);
        const char *b = (const char *)blasd_cuda_in(job, task, BLASD_MATMUL_B);
        char *c = group->wide != nullptr ? group->target.base + t * group->target.step
                                         : (char *)blasd_cuda_out(job, task, 0);
        struct blasd_gpu_gemm gemm = group->gemm;
        if (!even) gemm.count = 1;
        for (int64_t i = 0; code == 0 && i < (even ? 1 : group->items); i++) {
            gemm.a = a + walk_to(group->walk, group->walk.a, i) * a_bytes;
            gemm.b = b + walk_to(group->walk, group->walk.b, i) * b_bytes;
            gemm.c = c + i * c_bytes;
            code = job->calls->gemm(job->stream, &gemm, err);
        }
    }
    return code;
}

static int compute(struct blasd_cuda_job *job, struct blasd_err *err) {
    struct product_plan *plan = (struct product_plan *)job->state;
    int code = 0;
    for (int g = 0; code == 0 && g < plan->group_count; g++) {
        struct group *group = &plan->groups[g];
        if (group->way == WAY_NOTHING) continue;
        if (group->way == WAY_SLICES) {
            for (int t = 0; code == 0 && t < group->count; t++)
                code = run_slices(job, &job->tasks[plan->order[group->first + t]], plan->rounding,
                                  err);
            continue;
        }
        if (group->way != WAY_LIBRARY) {
            if (group->way == WAY_TINY || group->small_count > 0) code = run_own(job, group, err);
            continue;
        }
        code = before_product(job, group, err);
        if (code == 0 && group->mm.k > 0) code = run_library(job, plan, group, err);
        if (code == 0) code = after_product(job, group, err);
    }
    return code;
}

static const char *way_name(const struct group *group) {
    if (group->way == WAY_SLICES) return " in tiles";
    if (group->way != WAY_LIBRARY || group->items == 1) return "";
    return is_even(group) ? " batched" : " one by one";
}

static const char *base_name(const struct group *group) {
    if (group->mm.exact) return "integers";
    if (group->way == WAY_TINY) return "tiny";
    if (group->way == WAY_SMALL) return "small";
    switch (group->dtype) {
    case BLASD_float64: return "dgemm";
    case BLASD_complex128: return "zgemm";
    case BLASD_complex64: return "cgemm";
    case BLASD_float16: return "hgemm";
    case BLASD_bfloat16: return "bgemm";
    default: return "sgemm";
    }
}

/* Sums that overflow on the way alone: in large results, which the host would look at for longer
 * than the device computes, they stay. */
#define LOOK_MOST (1 << 20)
static bool is_plain(const struct group *group) {
    return (group->mm.alpha == 1 || group->mm.alpha == -1) && !group->mm.add_c;
}

/* What the device's arithmetic is too short for, and integers that it had no room for, the host
 * makes by itself. */
static int make_on_host(struct blasd_task *task, const struct group *group, bool *made,
                        struct blasd_err *err) {
    struct blasd_cpu_progress progress = {};
    enum blasd_matmul_need need = BLASD_MATMUL_BLAS;
    progress.total = 1;
    if (!group->mm.exact && (!is_plain(group) || group->elements <= LOOK_MOST))
        need = blasd_matmul_need(task, &group->mm, group->sum);
    *made = need == BLASD_MATMUL_WIDE || (group->mm.exact && group->too_large) ||
            (need == BLASD_MATMUL_CHECK && blasd_matmul_again(task, &group->mm, group->sum));
    if (*made && !blasd_matmul_wide(task, &group->mm, 1, &progress)) return blasd_cuda_stopped(err);
    return 0;
}

static int finish(struct blasd_cuda_job *job, struct blasd_err *err) {
    const struct product_plan *plan = (const struct product_plan *)job->state;
    int code;
    for (int t = 0; t < job->count; t++) {
        const struct group *group = &plan->groups[plan->group_of[t]];
        struct blasd_task *task = &job->tasks[t];
        bool single =
            group->dtype == BLASD_float32 && group->way != WAY_TINY && group->way != WAY_SMALL;
        const char *rounding = !single                            ? ""
                               : plan->rounding == BLASD_GPU_TF32 ? ", tf32"
                               : plan->rounding == BLASD_GPU_BF16 ? ", bf16"
                                                                  : "";
        bool half = group->dtype != group->sum, made = false;
        code = make_on_host(task, group, &made, err);
        if (code != 0) return code;
        if (made) continue;
        snprintf(task->method, sizeof task->method, "%s%s%s%s", base_name(group), way_name(group),
                 group->way == WAY_NOTHING || !half ? rounding : ", float32 sums",
                 group->out != group->sum ? ", rounded once" : "");
        blasd_matmul_warn(task);
    }
    return 0;
}

static void choose(const struct blasd_task *task, const struct blasd_gpu_facts *facts,
                   struct blasd_cuda_wish *wish) {
    const struct blasd_value *beta = &task->job->params[BLASD_MATMUL_BETA];
    if (too_large(task, facts)) wish->inputs = wish->outputs = 0;
    if (beta->f == 0) wish->inputs &= ~(UINT64_C(1) << BLASD_MATMUL_C); /* is not read */
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
}

/* Small products of any shape share a call, if they are computed in one dtype and rounded alike. */
static void batch_key(const struct blasd_job *job, const struct blasd_plan *plan,
                      struct blasd_key *ret) {
    if (plan->flops > COMPANY_FLOPS) return;
    ret->len = 0;
    blasd_key_add_int(ret, plan->input_dtype[0]);
    blasd_key_add_int(ret, job->params[BLASD_MATMUL_PRECISION].choice);
}

extern "C" const struct blasd_cuda_op blasd_cuda_matmul = {
    .kernel = BLASD_CUDA_KERNEL_ADAPTED("matmul", batch_key, adapt, ~0u),
    .choose = choose,
    .prepare = prepare_products,
    .compute = compute,
    .finish = finish,
    .cuts_stacks = true,
};
