/* From tasks to calls: how the products of a job are made, and where their operands lie.
 *
 * What our own kernels make is one launch for all such jobs of a batch; what the library makes is a
 * call for each task. Read next: cuda_matmul.cu. */
#include "kernels/matmul/products.cuh"

static bool stored_transposed(const struct blasd_tensor *tensor,
                              const struct blasd_matmul_operand *operand) {
    bool column_major = tensor->rank == 2 && tensor->order == BLASD_COLUMN_MAJOR;
    return operand->transposed != column_major;
}

/* Steps of an operand whose leading lengths broadcast to the batch's. */
static void walk_steps(int64_t *steps, int rank, int own_rank, const int64_t *own, int64_t step) {
    for (int d = 0; d < rank; d++) steps[d] = 0;
    for (int d = own_rank - 1; d >= 0; d--) {
        steps[d + rank - own_rank] = own[d] == 1 ? 0 : step;
        step *= own[d];
    }
}

/* c is right-aligned against the result: its last lengths are those of rows and columns, where the
 * result has these. */
static void read_c(struct stack *stack, const struct blasd_task *task) {
    const struct blasd_tensor *c = &task->inputs[BLASD_MATMUL_C];
    bool rows = task->inputs[BLASD_MATMUL_A].rank > 1;
    bool columns = task->inputs[BLASD_MATMUL_B].rank > 1;
    int rank = c->rank;
    int64_t step = 1;
    if (!stack->mm.add_c) return;
    if (columns && rank > 0) {
        rank--;
        stack->c_column = c->shape[rank] == 1 ? 0 : step;
        step *= c->shape[rank];
    }
    if (rows && rank > 0) {
        rank--;
        stack->c_row = c->shape[rank] == 1 ? 0 : step;
        step *= c->shape[rank];
    }
    walk_steps(stack->walk.c, stack->mm.batch_rank, rank, c->shape, step);
}

int read_stack(struct stack *stack, const struct blasd_task *task, struct blasd_err *err) {
    const struct blasd_tensor *a = &task->inputs[BLASD_MATMUL_A];
    const struct blasd_tensor *b = &task->inputs[BLASD_MATMUL_B];
    struct blasd_matmul *mm = &stack->mm;
    int code = blasd_matmul_read(task->job, mm, err);
    if (code != 0) return code;
    /* modulo 2^64, signed and unsigned integers are the same bits */
    stack->dtype = mm->exact ? BLASD_uint64 : a->dtype;
    stack->out = mm->exact ? BLASD_uint64 : task->outputs[0].dtype;
    stack->sum = blasd_dtype_size(stack->dtype) == 2 ? BLASD_float32 : stack->dtype;
    stack->added = mm->add_c && !mm->exact ? task->inputs[BLASD_MATMUL_C].dtype : stack->sum;
    if (blasd_dtype_size(stack->out) == 2 && stack->dtype != stack->out)
        return blasd_fail(err, BLASD_E_internal_error, "", "a half product of %s factors",
                          blasd_dtype_name(stack->dtype));
    stack->trans_a = stored_transposed(a, &mm->a);
    stack->trans_b = stored_transposed(b, &mm->b);
    stack->walk = {};
    stack->walk.rank = mm->batch_rank;
    for (int d = 0; d < mm->batch_rank; d++) stack->walk.shape[d] = mm->batch[d];
    walk_steps(stack->walk.a, mm->batch_rank, mm->a.batch_rank, mm->a.batch, 1);
    walk_steps(stack->walk.b, mm->batch_rank, mm->b.batch_rank, mm->b.batch, 1);
    stack->c_row = stack->c_column = 0;
    read_c(stack, task);
    return 0;
}

static dim3 blocks_for(int64_t elements, const struct blasd_gpu_facts *facts) {
    int64_t blocks = (elements + 255) / 256, most = (int64_t)facts->units * 64;
    return dim3((unsigned)(blocks < most ? blocks : most));
}

template <class Target, class C>
static int blend_of(struct blasd_cuda_job *job, const struct blend *blend, struct blasd_err *err) {
    return blasd_launch(blend_elements<Target, C>, blocks_for(blend->elements, job->facts),
                        dim3(256), 0, job->stream, err, *blend);
}

int launch_blend(struct blasd_cuda_job *job, enum blasd_dtype target, enum blasd_dtype added,
                 const struct blend *blend, struct blasd_err *err) {
    if (target == BLASD_float64) return blend_of<double, double>(job, blend, err);
    if (target == BLASD_complex128) return blend_of<complex128, complex128>(job, blend, err);
    if (target == BLASD_complex64) return blend_of<complex64, complex64>(job, blend, err);
    if (added == BLASD_float16) return blend_of<float, float16_bits>(job, blend, err);
    if (added == BLASD_bfloat16) return blend_of<float, bfloat16_bits>(job, blend, err);
    return blend_of<float, float>(job, blend, err);
}

int launch_round(struct blasd_cuda_job *job, enum blasd_dtype out, const struct across_tasks *from,
                 const struct across_tasks *to, int64_t each, int64_t elements,
                 struct blasd_err *err) {
    dim3 blocks = blocks_for(elements, job->facts);
    if (out == BLASD_float16)
        return blasd_launch(round_elements<float16_bits>, blocks, dim3(256), 0, job->stream, err,
                            *from, *to, each, elements);
    return blasd_launch(round_elements<bfloat16_bits>, blocks, dim3(256), 0, job->stream, err,
                        *from, *to, each, elements);
}

/* Where b is one matrix for all items and a a full stack, they are one tall product. */
static void join_rows(struct product_plan *plan) {
    int64_t a = 1, b = 1;
    for (int d = 0; d < plan->mm.a.batch_rank; d++) a *= plan->mm.a.batch[d];
    for (int d = 0; d < plan->mm.b.batch_rank; d++) b *= plan->mm.b.batch[d];
    plan->m = plan->mm.m;
    plan->n = plan->mm.n;
    plan->items = plan->mm.batch_count;
    if (plan->items < 2 || plan->trans_a || b != 1 || a != plan->items) return;
    if (plan->m < 1 || plan->items > INT32_MAX / plan->m) return;
    plan->m *= plan->items;
    plan->items = 1;
}

static bool is_small(const struct blasd_matmul *mm) {
    int64_t work;
    if (mm->m > SMALL_SIDE || mm->n > SMALL_SIDE || mm->k > SMALL_SIDE) return false;
    work = mm->m * mm->n * mm->k;
    return mm->batch_count <= SMALL_JOB / (work > 0 ? work : 1);
}

static int read_products(struct product_plan *plan, const struct blasd_task *task,
                         struct blasd_err *err) {
    const struct blasd_matmul *mm = &plan->mm;
    int code = read_stack(plan, task, err);
    if (code != 0) return code;
    plan->elements = blasd_tensor_elements(&task->outputs[0]);
    plan->blended = mm->k == 0 || mm->alpha != 1 || mm->add_c;
    plan->made = plan->blended ? plan->sum : plan->out; /* cuBLAS rounds half products once */
    join_rows(plan);
    if (plan->elements == 0)
        plan->way = WAY_NOTHING;
    else if (mm->m <= TINY_MOST && mm->n <= TINY_MOST && mm->k <= TINY_MOST)
        plan->way = WAY_TINY;
    else
        plan->way = mm->exact || is_small(mm) ? WAY_SMALL : WAY_LIBRARY;
    return 0;
}

static void locate(const struct blasd_cuda_job *job, int input, struct across_tasks *ret) {
    *ret = {(char *)blasd_cuda_in(job, 0, input), blasd_cuda_in_step(job, input)};
}

static int locate_all(struct blasd_cuda_job *job, struct product_plan *plan,
                      struct blasd_err *err) {
    int code;
    if (plan->way != WAY_LIBRARY) {
        locate(job, BLASD_MATMUL_A, &plan->a);
        locate(job, BLASD_MATMUL_B, &plan->b);
    }
    if (plan->mm.add_c) locate(job, BLASD_MATMUL_C, &plan->c);
    plan->out_at = {(char *)blasd_cuda_out(job, 0, 0), blasd_cuda_out_step(job, 0)};
    plan->target = plan->out_at;
    if (plan->way != WAY_LIBRARY || plan->out == plan->made) return 0;
    plan->target.step = (plan->elements * (int64_t)blasd_dtype_size(plan->made) + 63) / 64 * 64;
    code = blasd_cuda_take(job, (size_t)plan->target.step * (size_t)job->count, &plan->wide, err);
    plan->target.base = (char *)plan->wide;
    return code;
}

/* The step, in elements, from item to item of one job's operand, where there is one; -1 where there
 * is not. */
static int64_t item_step(const struct product_plan *plan, const int64_t *steps, int64_t matrix) {
    bool dense = true, fixed = true; /* item by item; one matrix for all */
    int64_t within = 1;
    if (plan->items == 1) return 0;
    for (int d = plan->walk.rank - 1; d >= 0; d--) {
        if (plan->walk.shape[d] == 1) continue;
        if (steps[d] != within) dense = false;
        if (steps[d] != 0) fixed = false;
        within *= plan->walk.shape[d];
    }
    return dense ? matrix : fixed ? 0 : -1;
}

static void fill_gemm(struct product_plan *plan) {
    int64_t mk = plan->m * plan->mm.k, kn = plan->mm.k * plan->n;
    struct blasd_gpu_gemm *g = &plan->gemm;
    *g = {};
    g->dtype = plan->dtype;
    g->out = plan->made;
    g->rounding = plan->rounding;
    g->trans_a = plan->trans_a;
    g->trans_b = plan->trans_b;
    g->m = plan->m;
    g->n = plan->n;
    g->k = plan->mm.k;
    g->alpha = 1;
    g->lda = plan->trans_a ? plan->m : plan->mm.k;
    g->ldb = plan->trans_b ? plan->mm.k : plan->n;
    g->ldc = plan->n;
    g->stride_a = item_step(plan, plan->walk.a, mk);
    g->stride_b = item_step(plan, plan->walk.b, kn);
    g->stride_c = plan->m * plan->n;
    g->count = plan->items;
}

/* One product of float64 for each task, where the library has it and there is room for it. */
static int plan_emulation(struct blasd_cuda_job *job, struct product_plan *plan,
                          struct blasd_err *err) {
    size_t bytes = (size_t)job->count * sizeof(int), room;
    int code;
    if (plan->way != WAY_LIBRARY || plan->dtype != BLASD_float64 || plan->items != 1) return 0;
    if (plan->mm.k == 0) return 0;
    room = job->calls->gemm_room(&plan->gemm);
    if (room == 0 || room > job->facts->memory_bytes / 4) return 0;
    code = blasd_cuda_return(job, bytes, (void **)&plan->bits_host, (void **)&plan->bits, err);
    if (code == 0) code = blasd_cuda_take(job, room, &plan->gemm.room, err);
    plan->gemm.rounding = BLASD_GPU_FIXED;
    return code;
}

struct tiny_batch tiny_batch_of(const struct blasd_cuda_job *job, const struct product_plan *plan) {
    const struct blasd_matmul *mm = &plan->mm;
    struct tiny_batch batch = {};
    batch.a = plan->a;
    batch.b = plan->b;
    batch.c = plan->c;
    batch.out = plan->out_at;
    batch.m = (int)mm->m;
    batch.n = (int)mm->n;
    batch.k = (int)mm->k;
    batch.trans_a = plan->trans_a;
    batch.trans_b = plan->trans_b;
    batch.add_c = mm->add_c;
    batch.items = mm->batch_count;
    batch.products = mm->batch_count * job->count;
    batch.c_row = plan->c_row;
    batch.c_column = plan->c_column;
    batch.alpha = mm->alpha;
    batch.beta = mm->beta;
    batch.walk = plan->walk;
    return batch;
}

int prepare_products(struct blasd_cuda_job *job, struct blasd_err *err) {
    struct product_plan *plan;
    int code = blasd_cuda_host(job, sizeof *plan, &job->state, err);
    int precision = job->tasks[0].job->params[BLASD_MATMUL_PRECISION].choice;
    if (code != 0) return code;
    plan = (struct product_plan *)job->state;
    plan->rounding = rounding_of(&job->tasks[0]);
    code = read_products(plan, &job->tasks[0], err);
    if (code == 0 && plan->way != WAY_NOTHING) code = locate_all(job, plan, err);
    if (plan->way == WAY_LIBRARY) fill_gemm(plan);
    if (code == 0 && precision == BLASD_MATMUL_FP64_EMULATED) code = plan_emulation(job, plan, err);
    return code;
}
