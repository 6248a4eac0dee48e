/* From tasks to calls: which products run together, how, and where their operands lie.
 *
 * Tasks of equal key form a group. What our own kernels make is one launch for the group, or for
 * all small ones of a batch; what the library makes is a call for each job. Read next:
 * cuda_matmul.cu. */
#include "kernels/matmul/products.cuh"

#include <cmath>

int take_host(struct blasd_cuda_job *job, size_t count, size_t size, void **ret,
              struct blasd_err *err) {
    return blasd_cuda_host(job, count * size, ret, err);
}

/* Where b is one matrix for all items and a a full stack, they are one tall product. */
static void join_rows(struct group *group) {
    int64_t a = 1, b = 1;
    for (int d = 0; d < group->mm.a.batch_rank; d++) a *= group->mm.a.batch[d];
    for (int d = 0; d < group->mm.b.batch_rank; d++) b *= group->mm.b.batch[d];
    group->m = group->mm.m;
    group->n = group->mm.n;
    group->items = group->mm.batch_count;
    if (group->items < 2 || group->trans_a || b != 1 || a != group->items) return;
    if (group->m < 1 || group->items > INT32_MAX / group->m) return;
    group->m *= group->items;
    group->items = 1;
}

static bool is_small(const struct blasd_matmul *mm) {
    int64_t work;
    if (mm->m > SMALL_SIDE || mm->n > SMALL_SIDE || mm->k > SMALL_SIDE) return false;
    work = mm->m * mm->n * mm->k;
    return work <= SMALL_WORK && mm->batch_count <= SMALL_JOB / (work > 0 ? work : 1);
}

static int read_group(struct group *group, const struct blasd_task *task,
                      const struct blasd_gpu_facts *facts, struct blasd_err *err) {
    const struct blasd_matmul *mm = &group->mm;
    int code = read_stack(group, task, err);
    if (code != 0) return code;
    /* a finite one makes nothing of an empty sum, also where it is infinite in float32 */
    if (mm->k == 0 && mm->alpha != 0 && std::isfinite(mm->alpha)) group->mm.alpha = 1;
    group->key = &task->plan->key;
    group->elements = blasd_tensor_elements(&task->outputs[0]);
    /* cuBLAS rounds sums of half products once; what is multiplied by 0 afterwards must not have
     * become infinite before */
    group->made =
        group->dtype != group->sum && (mm->alpha != 0 || mm->k == 0) ? group->out : group->sum;
    join_rows(group);
    /* a library may skip the product where alpha is 0, and lose the NaNs in it */
    group->alpha = mm->alpha == 0 ? 1 : mm->alpha;
    group->beta = mm->add_c && mm->alpha != 0 ? mm->beta : 0;
    group->too_large = too_large(task, facts);
    if (group->elements == 0 || (mm->exact && group->too_large))
        group->way = WAY_NOTHING;
    else if (group->too_large)
        group->way = WAY_SLICES;
    else if (mm->m <= TINY_MOST && mm->n <= TINY_MOST && mm->k <= TINY_MOST)
        group->way = WAY_TINY;
    else
        group->way = mm->exact || is_small(mm) ? WAY_SMALL : WAY_LIBRARY;
    return 0;
}

/* Finds the groups: tasks of one batch mostly have one key. */
static int find_groups(struct blasd_cuda_job *job, struct product_plan *plan,
                       struct blasd_err *err) {
    size_t count = (size_t)job->count;
    int code = take_host(job, count, sizeof *plan->order, (void **)&plan->order, err), at = 0;
    int room = 1;
    if (code == 0)
        code = take_host(job, count, sizeof *plan->group_of, (void **)&plan->group_of, err);
    /* count them first: a batch of one key needs one group */
    for (int t = 1; t < job->count; t++)
        if (!blasd_key_equal(&job->tasks[t].plan->key, &job->tasks[t - 1].plan->key)) room++;
    if (code == 0)
        code = take_host(job, (size_t)room, sizeof *plan->groups, (void **)&plan->groups, err);
    for (int t = 0; code == 0 && t < job->count; t++) {
        const struct blasd_key *key = &job->tasks[t].plan->key;
        int g = t > 0 ? plan->group_of[t - 1] : 0;
        if (t == 0 || !blasd_key_equal(key, plan->groups[g].key))
            for (g = 0; g < plan->group_count; g++)
                if (blasd_key_equal(key, plan->groups[g].key)) break;
        if (g == plan->group_count)
            code = read_group(&plan->groups[plan->group_count++], &job->tasks[t], job->facts, err);
        plan->group_of[t] = g;
        plan->groups[g].count++;
    }
    for (int g = 0; code == 0 && g < plan->group_count; g++) {
        plan->groups[g].first = at;
        at += plan->groups[g].count;
        plan->groups[g].count = 0;
    }
    for (int t = 0; code == 0 && t < job->count; t++) {
        struct group *group = &plan->groups[plan->group_of[t]];
        plan->order[group->first + group->count++] = t;
    }
    return code;
}

/* The addresses of one tensor of the group's tasks: even steps where the group is the whole batch
 * and has them, else a table. */
static int locate(struct blasd_cuda_job *job, const struct product_plan *plan,
                  const struct group *group, bool output, int i, struct across_tasks *ret,
                  struct blasd_err *err) {
    int first = plan->order[group->first], code;
    int64_t step = output ? blasd_cuda_out_step(job, i) : blasd_cuda_in_step(job, i);
    void *host, *device;
    *ret = {};
    ret->base = (char *)(output ? blasd_cuda_out(job, first, i) : blasd_cuda_in(job, first, i));
    ret->step = step;
    if (group->count == 1 || (step != 0 && plan->group_count == 1)) return 0;
    code = blasd_cuda_table(job, (size_t)group->count * sizeof(void *), &host, &device, err);
    if (code != 0) return code;
    for (int t = 0; t < group->count; t++) {
        int task = plan->order[group->first + t];
        ((void **)host)[t] = output ? blasd_cuda_out(job, task, i) : blasd_cuda_in(job, task, i);
    }
    ret->table = (void *const *)device;
    return 0;
}

static int locate_all(struct blasd_cuda_job *job, const struct product_plan *plan,
                      struct group *group, struct blasd_err *err) {
    bool own = group->way <= WAY_SMALL;
    int code = own ? locate(job, plan, group, false, BLASD_MATMUL_A, &group->a, err) : 0;
    if (code == 0 && own) code = locate(job, plan, group, false, BLASD_MATMUL_B, &group->b, err);
    if (code == 0 && group->mm.add_c)
        code = locate(job, plan, group, false, BLASD_MATMUL_C, &group->c, err);
    if (code == 0) code = locate(job, plan, group, true, 0, &group->out_at, err);
    group->target = group->out_at;
    if (code != 0 || own || group->out == group->made) return code;
    group->target = {};
    group->target.step = (group->elements * (int64_t)blasd_dtype_size(group->made) + 63) / 64 * 64;
    code =
        blasd_cuda_take(job, (size_t)group->target.step * (size_t)group->count, &group->wide, err);
    group->target.base = (char *)group->wide;
    return code;
}

/* The step, in elements, from item to item of one job's operand, where there is one; -1 where there
 * is not. */
static int64_t item_step(const struct group *group, const int64_t *steps, int64_t matrix) {
    bool dense = true, fixed = true; /* item by item; one matrix for all */
    int64_t within = 1;
    if (group->items == 1) return 0;
    for (int d = group->walk.rank - 1; d >= 0; d--) {
        if (group->walk.shape[d] == 1) continue;
        if (steps[d] != within) dense = false;
        if (steps[d] != 0) fixed = false;
        within *= group->walk.shape[d];
    }
    return dense ? matrix : fixed ? 0 : -1;
}

static void fill_gemm(struct group *group, enum blasd_gpu_rounding rounding) {
    int64_t mk = group->m * group->mm.k, kn = group->mm.k * group->n;
    struct blasd_gpu_gemm *g = &group->gemm;
    *g = {};
    g->dtype = group->dtype;
    g->out = group->made;
    g->rounding = rounding;
    g->trans_a = group->trans_a;
    g->trans_b = group->trans_b;
    g->m = group->m;
    g->n = group->n;
    g->k = group->mm.k;
    g->alpha = group->alpha;
    g->beta = group->beta;
    g->lda = group->trans_a ? group->m : group->mm.k;
    g->ldb = group->trans_b ? group->mm.k : group->n;
    g->ldc = group->n;
    g->stride_a = item_step(group, group->walk.a, mk);
    g->stride_b = item_step(group, group->walk.b, kn);
    g->stride_c = group->m * group->n;
    g->count = group->items;
}

struct tiny_batch tiny_batch_of(const struct group *group) {
    const struct blasd_matmul *mm = &group->mm;
    struct tiny_batch batch = {};
    batch.a = group->a;
    batch.b = group->b;
    batch.c = group->c;
    batch.out = group->out_at;
    batch.m = (int)mm->m;
    batch.n = (int)mm->n;
    batch.k = (int)mm->k;
    batch.trans_a = group->trans_a;
    batch.trans_b = group->trans_b;
    batch.add_c = mm->add_c;
    batch.items = mm->batch_count;
    batch.products = mm->batch_count * group->count;
    batch.c_row = group->c_row;
    batch.c_column = group->c_column;
    batch.alpha = mm->alpha;
    batch.beta = mm->beta;
    batch.walk = group->walk;
    return batch;
}

/* Small products of one kind of numbers are one launch, whatever their shapes. */
static int plan_small(struct blasd_cuda_job *job, struct product_plan *plan,
                      struct blasd_err *err) {
    struct tiny_batch *host, *device;
    int count = 0, at = 0, code;
    for (int g = 0; g < plan->group_count; g++)
        if (plan->groups[g].way == WAY_SMALL) count++;
    if (count == 0) return 0;
    code =
        blasd_cuda_table(job, (size_t)count * sizeof *host, (void **)&host, (void **)&device, err);
    for (int g = 0; code == 0 && g < plan->group_count; g++) {
        struct group *first = &plan->groups[g];
        if (first->way != WAY_SMALL || first->small != nullptr) continue;
        for (int h = g; h < plan->group_count; h++) {
            struct group *group = &plan->groups[h];
            if (group->way != WAY_SMALL || group->dtype != first->dtype || group->out != first->out)
                continue;
            group->small = device + at - first->small_count;
            host[at] = tiny_batch_of(group);
            host[at].first_block = first->small_blocks;
            first->small_blocks += small_blocks(host[at++]);
            first->small_count++;
        }
    }
    return code;
}

int prepare_products(struct blasd_cuda_job *job, struct blasd_err *err) {
    struct product_plan *plan;
    int code = take_host(job, 1, sizeof *plan, &job->state, err);
    int precision = job->tasks[0].job->params[BLASD_MATMUL_PRECISION].choice;
    if (code != 0) return code;
    plan = (struct product_plan *)job->state;
    plan->rounding = precision == BLASD_MATMUL_TF32   ? BLASD_GPU_TF32
                     : precision == BLASD_MATMUL_BF16 ? BLASD_GPU_BF16
                                                      : BLASD_GPU_NATIVE;
    code = find_groups(job, plan, err);
    for (int g = 0; code == 0 && g < plan->group_count; g++) {
        struct group *group = &plan->groups[g];
        if (group->way <= WAY_SLICES) continue;
        code = locate_all(job, plan, group, err);
        if (group->way == WAY_LIBRARY) fill_gemm(group, plan->rounding);
    }
    return code == 0 ? plan_small(job, plan, err) : code;
}
