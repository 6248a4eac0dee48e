/* From tasks to calls: which products run together, how, and where their operands lie.
 *
 * Tasks of equal key form a group and run as one call; a batch of small products may hold several,
 * which share a grouped call where the library has one. Read next: cuda_matmul.cu. */
#include "kernels/matmul/products.cuh"

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

static int read_group(struct group *group, const struct blasd_task *task,
                      const struct blasd_gpu_facts *facts, struct blasd_err *err) {
    const struct blasd_matmul *mm = &group->mm;
    int code = read_stack(group, task, err);
    if (code != 0) return code;
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
    else if (mm->exact)
        group->way = WAY_PLAIN;
    else
        group->way = WAY_POINTERS; /* or better, once addresses are known */
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
    int code = locate(job, plan, group, false, BLASD_MATMUL_A, &group->a, err);
    if (code == 0) code = locate(job, plan, group, false, BLASD_MATMUL_B, &group->b, err);
    if (code == 0 && group->mm.add_c)
        code = locate(job, plan, group, false, BLASD_MATMUL_C, &group->c, err);
    if (code == 0) code = locate(job, plan, group, true, 0, &group->out_at, err);
    group->target = group->out_at;
    if (code != 0 || group->way == WAY_TINY || group->out == group->made) return code;
    group->target = {};
    group->target.step = (group->elements * (int64_t)blasd_dtype_size(group->made) + 63) / 64 * 64;
    code =
        blasd_cuda_take(job, (size_t)group->target.step * (size_t)group->count, &group->wide, err);
    group->target.base = (char *)group->wide;
    return code;
}

/* The step, in elements, from product to product of all tasks, where there is one for all; -1
 * where there is not. */
static int64_t product_step(const struct group *group, const struct across_tasks *x,
                            enum blasd_dtype dtype, const int64_t *steps, int64_t matrix) {
    int64_t size = (int64_t)blasd_dtype_size(dtype), step = 0, within = 1;
    if (group->items > 1) { /* a dense walk, or one matrix for all */
        bool dense = true, fixed = true;
        for (int d = group->walk.rank - 1; d >= 0; d--) {
            if (group->walk.shape[d] == 1) continue;
            if (steps[d] != within) dense = false;
            if (steps[d] != 0) fixed = false;
            within *= group->walk.shape[d];
        }
        if (!dense && !fixed) return -1;
        step = dense ? matrix : 0;
        if (group->count > 1 && (x->table != nullptr || x->step != step * group->items * size))
            return -1;
        return step;
    }
    if (group->count == 1) return 0;
    if (x->table != nullptr || x->step % size != 0) return -1;
    return x->step / size;
}

static void fill_gemm(struct group *group, enum blasd_gpu_rounding rounding) {
    struct blasd_gpu_gemm *g = &group->gemm;
    int64_t mk = group->m * group->mm.k, kn = group->mm.k * group->n, mn = group->m * group->n;
    struct item_walk out = group->walk;
    int64_t within = 1;
    for (int d = out.rank - 1; d >= 0; d--) {
        out.a[d] = within;
        within *= out.shape[d];
    }
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
    g->a = group->a.base;
    g->b = group->b.base;
    g->c = group->target.base;
    g->lda = group->trans_a ? group->m : group->mm.k;
    g->ldb = group->trans_b ? group->mm.k : group->n;
    g->ldc = group->n;
    g->stride_a = product_step(group, &group->a, group->dtype, group->walk.a, mk);
    g->stride_b = product_step(group, &group->b, group->dtype, group->walk.b, kn);
    g->stride_c = product_step(group, &group->target, group->made, out.a, mn);
    g->count = group->items * group->count;
    if (g->stride_a >= 0 && g->stride_b >= 0 && g->stride_c >= 0) group->way = WAY_STRIDED;
}

static char *task_address(const struct product_plan *plan, const struct blasd_cuda_job *job,
                          const struct group *group, int t, int which) {
    int task = plan->order[group->first + t];
    if (which < 2) return (char *)blasd_cuda_in(job, task, which);
    if (group->wide != nullptr) return group->target.base + t * group->target.step;
    return (char *)blasd_cuda_out(job, task, 0);
}

/* Writes the addresses of one operand (0: a, 1: b, 2: the target) of all products of a group. */
static void fill_pointers(const struct product_plan *plan, const struct blasd_cuda_job *job,
                          const struct group *group, int which, void **to) {
    int64_t size = (int64_t)blasd_dtype_size(which == 2 ? group->made : group->dtype);
    int64_t matrix = which == 0   ? group->m * group->mm.k
                     : which == 1 ? group->mm.k * group->n
                                  : group->m * group->n;
    const int64_t *steps = which == 0 ? group->walk.a : group->walk.b;
    for (int t = 0; t < group->count; t++) {
        char *base = task_address(plan, job, group, t, which);
        for (int64_t i = 0; i < group->items; i++) {
            int64_t item = group->items == 1 ? 0 : which == 2 ? i : walk_to(group->walk, steps, i);
            *to++ = base + item * matrix * size;
        }
    }
}

/* Tables of pointers for the groups of one way, operand by operand, where that way reads them. */
static int make_pointers(struct blasd_cuda_job *job, struct product_plan *plan, enum way way,
                         int from, int to, void *ret[3], struct blasd_err *err) {
    bool on_host = way == WAY_LOOP;
    size_t products = 0;
    for (int g = from; g < to; g++)
        if (plan->groups[g].way == way)
            products += (size_t)(plan->groups[g].items * plan->groups[g].count);
    for (int which = 0; which < 3; which++) {
        void *host;
        int code = on_host
                       ? blasd_cuda_host(job, products * sizeof(void *), &host, err)
                       : blasd_cuda_table(job, products * sizeof(void *), &host, &ret[which], err);
        if (code != 0) return code;
        if (on_host) ret[which] = host;
        for (int g = from; g < to; g++) {
            const struct group *group = &plan->groups[g];
            if (group->way != way) continue;
            fill_pointers(plan, job, group, which, (void **)host);
            host = (void **)host + group->items * group->count;
        }
    }
    return 0;
}

/* Whether a group may share the call of the first one that may. */
static bool may_group(const struct group *group, const struct product_plan *plan,
                      const struct blasd_cuda_can *can) {
    double flops = 2.0 * (double)group->m * (double)group->n * (double)group->mm.k;
    uint32_t product = blasd_cuda_product(group->dtype, group->dtype, plan->rounding);
    if (group->way < WAY_STRIDED || flops > GROUPED_FLOPS || group->mm.k == 0) return false;
    return group->dtype == plan->groups[0].dtype && group->made == group->dtype &&
           (can->grouped & product) != 0;
}

/* Products of different shapes that are small go into one call. */
static int plan_grouped(struct blasd_cuda_job *job, struct product_plan *plan,
                        struct blasd_err *err) {
    void *tables[3];
    int many = 0, code;
    for (int g = 0; g < plan->group_count; g++)
        if (may_group(&plan->groups[g], plan, job->can)) many++;
    if (many < 2) return 0;
    for (int g = 0; g < plan->group_count; g++)
        if (may_group(&plan->groups[g], plan, job->can)) plan->groups[g].way = WAY_GROUPED;
    code = make_pointers(job, plan, WAY_GROUPED, 0, plan->group_count, tables, err);
    plan->grouped = true;
    plan->grouped_a = (const void *const *)tables[0];
    plan->grouped_b = (const void *const *)tables[1];
    plan->grouped_c = (void *const *)tables[2];
    return code;
}

/* What the library does not take on this device is done call by call, or by a kernel of ours. */
static void fall_back(struct group *group, const struct product_plan *plan,
                      const struct blasd_cuda_can *can) {
    uint32_t product = blasd_cuda_product(group->dtype, group->made, plan->rounding);
    uint32_t taken = group->way == WAY_POINTERS ? can->pointers
                     : group->gemm.count > 1    ? can->strided
                                                : can->gemm;
    if (group->way != WAY_STRIDED && group->way != WAY_POINTERS) return;
    if (group->mm.k == 0 || (taken & product) != 0) return;
    group->way = group->gemm.count > 1 && (can->gemm & product) != 0 ? WAY_LOOP : WAY_PLAIN;
}

/* The addresses that calls with pointers want; a loop of calls wants them on the host. */
static int point(struct blasd_cuda_job *job, struct product_plan *plan, int g, bool strided,
                 struct blasd_err *err) {
    struct group *group = &plan->groups[g];
    void *tables[3];
    int code;
    if (group->way != WAY_POINTERS && group->way != WAY_LOOP) return 0;
    if (group->way == WAY_LOOP && strided) return 0;
    code = make_pointers(job, plan, group->way, g, g + 1, tables, err);
    if (code != 0) return code;
    if (group->way == WAY_LOOP) {
        for (int i = 0; i < 3; i++) group->addresses[i] = (void **)tables[i];
        return 0;
    }
    group->gemm.a = tables[0];
    group->gemm.b = tables[1];
    group->gemm.c = tables[2];
    return 0;
}

int prepare_products(struct blasd_cuda_job *job, struct blasd_err *err) {
    struct product_plan *plan;
    bool sliced = false;
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
        if (group->way == WAY_SLICES) sliced = true;
        if (group->way <= WAY_SLICES) continue;
        code = locate_all(job, plan, group, err);
        if (group->way > WAY_PLAIN) fill_gemm(group, plan->rounding);
    }
    if (code == 0) code = plan_grouped(job, plan, err);
    for (int g = 0; code == 0 && g < plan->group_count; g++) {
        bool strided = plan->groups[g].way == WAY_STRIDED;
        fall_back(&plan->groups[g], plan, job->can);
        code = point(job, plan, g, strided, err);
    }
    if (code == 0 && plan->group_count > 1 && !plan->grouped && !sliced) blasd_cuda_repeats(job);
    return code;
}
