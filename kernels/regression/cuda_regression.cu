/* regression on CUDA: the Gram matrix in double-double and what follows from it, for all problems
 * of a batch at once. Which kernels run for which method; the kernels are gram.cuh's, what the host
 * adds is device_fit.c.
 *
 * Read next: gram_plan.cuh, gram.cuh, device_fit.h, then README.md for what goes elsewhere. */
#include "kernels/regression/gram_plan.cuh"

extern "C" {
#include "kernels/cuda/tuning.h"
#include "kernels/regression/dense.h"
}

#define STEPS_EACH 20000  /* of gd in a launch */
#define STEPS_NARROW 128  /* coefficients up to which a block makes them */
#define STEPS_WIDE 1000   /* where the whole grid makes each */
#define SWEEPS_FIRST 1000 /* of lasso in the first launch, then twice as many each time */
#define SWEEPS_MOST 16000
#define LAUNCHES_AHEAD 8  /* before the host waits, so that a cancelled job is noticed */
#define MIXED_FLOPS 2e8   /* a larger job fills the device by itself: it joins no mixed batch */
#define SHARED_TARGETS 16 /* with robust errors, for which each takes launches */
#define HOST_THREADS 4    /* of the host's engine */
#define LARGE_WORK 1e7    /* n q q from which the worker is asked whether to go on */

static void choose(const struct blasd_task *task, const struct blasd_gpu_facts *,
                   struct blasd_cuda_moves *moves) {
    struct regression_shape shape;
    struct blasd_err err;
    moves->outputs = 0;
    if (blasd_regression_read(task->job, &shape, &err) != 0 || shape.problems == 0 ||
        blasd_regression_where(&shape) != REGRESSION_DEVICE) {
        moves->inputs = 0;
        return;
    }
    if (shape.residuals) moves->outputs = 1u << OUT_RESIDUALS | 1u << OUT_FITTED;
}

/* What came as float32 goes up as that, unless the host is going to work with all of it. */
static void adapt(const struct blasd_job *job, struct blasd_plan *plan) {
    struct regression_shape shape;
    struct blasd_err err;
    if (blasd_regression_read(job, &shape, &err) != 0 || shape.storage != BLASD_float32 ||
        shape.certify || blasd_regression_where(&shape) != REGRESSION_DEVICE)
        return;
    for (int i = IN_X; i <= IN_WEIGHT; i++) plan->input_dtype[i] = BLASD_float32;
}

static void fill(struct blasd_cuda_job *job, struct gram_plan *plan) {
    const struct regression_shape *shape = &plan->shape;
    struct gram_shape *g = &plan->gram;
    g->n = shape->n;
    g->problems = shape->problems * job->count;
    g->p = (int)shape->p;
    g->q = (int)shape->q;
    g->t = (int)shape->t;
    g->first = shape->intercept ? 1 : 0;
    g->weighted = shape->weighted;
    g->units = job->facts->units;
    plan->outputs.single = shape->storage == BLASD_float32;
    plan->outputs.robust = shape->method == METHOD_OLS && shape->cov != COV_NONROBUST;
    plan->outputs.cov = (int)shape->cov;
    plan->outputs.factor = (double)shape->n / (double)(shape->n - shape->q);
    plan->wants.basis = blasd_regression_plain(shape);
    plan->wants.triangle = plan->wants.basis || shape->method == METHOD_RIDGE;
    if (shape->method == METHOD_RIDGE)
        plan->wants.penalty = {shape->alpha, plan->asked.method != METHOD_RIDGE};
    plan->settling.shifts = shape->method != METHOD_GD;
    plan->settling.penalty = plan->wants.penalty;
    if (shape->method == METHOD_ELASTIC_NET)
        plan->settling.penalty = {shape->alpha * (1 - shape->l1_ratio), true};
}

static bool large(const struct gram_plan *plan) {
    double work = (double)plan->shape.n * (double)plan->shape.q * (double)plan->shape.q;
    return work >= LARGE_WORK;
}

static bool go_on(struct blasd_cuda_job *job, const struct gram_plan *plan, double progress) {
    return !large(plan) || blasd_cuda_go_on(job, progress);
}

static int descend(struct blasd_cuda_job *job, struct gram_plan *plan, struct blasd_err *err) {
    const struct gram_shape *g = &plan->gram;
    int64_t left = plan->shape.iterations, each = g->q <= STEPS_NARROW ? STEPS_EACH : STEPS_WIDE;
    int code = gram_descent_start(g, &plan->arrays, &plan->descent, job->stream, err);
    for (int launches = 1; code == 0 && left > 0; launches++) {
        int64_t steps = left < each ? left : each;
        code = gram_descent_steps(g, &plan->arrays, &plan->descent, steps, job->stream, err);
        left -= steps;
        if (code != 0 || left == 0 || launches % LAUNCHES_AHEAD != 0) continue;
        code = blasd_cuda_pause(job, err);
        if (code == 0 &&
            !blasd_cuda_go_on(job, 0.5 + 0.4 * (1 - (double)left / (double)plan->shape.iterations)))
            return blasd_cuda_stopped(err);
    }
    if (code == 0) code = gram_descent_end(g, &plan->arrays, &plan->descent, job->stream, err);
    return code;
}

static int descend_coordinates(struct blasd_cuda_job *job, struct gram_plan *plan,
                               struct blasd_err *err) {
    const struct gram_shape *g = &plan->gram;
    int64_t most = plan->shape.iterations, to = SWEEPS_FIRST, each = SWEEPS_FIRST;
    int code = gram_sparse_start(g, &plan->arrays, &plan->sparse, job->stream, err);
    for (int launches = 1; code == 0; launches++) {
        bool last = to >= most;
        code = gram_sparse_sweeps(g, &plan->arrays, &plan->sparse, last ? most : to, last,
                                  job->stream, err);
        if (code != 0 || last) break;
        if (each < SWEEPS_MOST) each *= 2;
        to += each;
        if (launches % (2 * LAUNCHES_AHEAD) != 0) continue;
        code = blasd_cuda_pause(job, err);
        if (code == 0 && !blasd_cuda_go_on(job, 0.5 + 0.4 * (double)to / (double)(most + to)))
            return blasd_cuda_stopped(err);
    }
    return code;
}

/* Coefficients from the products. */
static int solve(struct blasd_cuda_job *job, struct gram_plan *plan, struct blasd_err *err) {
    const struct gram_shape *g = &plan->gram;
    const struct gram_arrays *a = &plan->arrays;
    int code;
    if (blasd_regression_sparse(&plan->shape)) return descend_coordinates(job, plan, err);
    code = plan->shape.method == METHOD_GD ? descend(job, plan, err)
                                           : gram_factor(g, a, &plan->wants, &plan->way, err);
    if (code == 0 && plan->wants.basis) code = gram_singular(g, a, &plan->way, err);
    if (code == 0) code = gram_leave(g, a, &plan->way, err);
    if (code == 0) code = gram_slopes(g, a, &plan->way, err);
    if (code == 0) code = gram_correct(g, a, plan->wants.basis, &plan->way, err);
    return code;
}

/* Residuals and fitted values to where they belong; the middles of robust covariances. */
static int end_rows(struct gram_plan *plan, struct blasd_err *err) {
    const struct gram_shape *g = &plan->gram;
    const struct gram_arrays *a = &plan->arrays;
    int code = 0;
    if (plan->shape.residuals || plan->outputs.robust)
        code = gram_put_rows(g, a, &plan->outputs, &plan->way, err);
    for (int l = 0; code == 0 && plan->outputs.robust && l < g->t; l++) {
        code = gram_weighted(g, a, l, plan->weighted, &plan->way, err);
        /* the matrix itself is not needed any more: it is room for the sandwich */
        if (code == 0) code = gram_sandwich(g, a, l, plan->weighted, a->gram, &plan->way, err);
    }
    return code;
}

/* All of it. */
static int launch(struct blasd_cuda_job *job, struct gram_plan *plan, struct blasd_err *err) {
    const struct gram_shape *g = &plan->gram;
    const struct gram_arrays *a = &plan->arrays;
    int blocks = gram_range_blocks(g);
    int code = gram_widen(plan->widening.spans, plan->widening.count, plan->widening.longest,
                          g->units, &plan->way, err);
    if (code == 0) code = gram_ranges(g, a, plan->ranges, blocks, &plan->way, err);
    if (code == 0) code = gram_settle(g, a, plan->ranges, blocks, &plan->settling, &plan->way, err);
    if (code == 0) code = gram_products(g, a, &plan->way, err);
    if (code == 0) code = gram_totals(g, a, &plan->way, err);
    if (code == 0 && plan->way.shared == nullptr && !go_on(job, plan, 0.5))
        return blasd_cuda_stopped(err);
    if (code == 0) code = solve(job, plan, err);
    if (code == 0) code = end_rows(plan, err);
    return code;
}

/* Whether all launches of a job can be shared: blocks for each of its problems, and no word of the
 * host in between. It follows from one problem alone, whatever the stack or batch. */
static bool shares(const struct blasd_cuda_job *job, const struct gram_plan *plan) {
    const struct regression_shape *shape = &plan->shape;
    if (plan->gram.q >= blasd_cuda_tuning.spread_from) return false;
    if (job->tasks[0].plan->flops > MIXED_FLOPS * (double)shape->problems) return false;
    if (plan->outputs.robust && shape->t > SHARED_TARGETS) return false;
    return shape->method == METHOD_OLS || shape->method == METHOD_RIDGE;
}

static int prepare(struct blasd_cuda_job *job, struct blasd_err *err) {
    struct gram_plan *plan;
    int code = blasd_cuda_host(job, sizeof *plan, &job->state, err);
    if (code != 0) return code;
    plan = (struct gram_plan *)job->state;
    code = blasd_regression_read(job->tasks[0].job, &plan->asked, err);
    if (code != 0) return code;
    plan->asked.dense = &blasd_regression_lapack;
    plan->shape = plan->asked;
    if (blasd_regression_smooth(&plan->asked))
        plan->shape = blasd_regression_as_ridge(&plan->asked, 1); /* the totals are not known yet */
    plan->where = blasd_regression_where(&plan->asked);
    if (plan->where != REGRESSION_DEVICE || plan->shape.problems == 0) return 0;
    fill(job, plan);
    /* more problems than a grid has blocks */
    if (plan->gram.problems > INT32_MAX / 1024)
        return blasd_fail(err, BLASD_E_out_of_memory, "inputs.x",
                          "so many problems do not fit the device: send them in several jobs");
    code = gram_take(job, plan, err);
    plan->way = {job->stream, shares(job, plan) ? job : nullptr};
    return code == 0 && plan->way.shared != nullptr ? launch(job, plan, err) : code;
}

static int compute(struct blasd_cuda_job *job, struct blasd_err *err) {
    struct gram_plan *plan = (struct gram_plan *)job->state;
    if (plan->where != REGRESSION_DEVICE || plan->gram.problems == 0) return 0;
    if (plan->way.shared == nullptr) return launch(job, plan, err);
    return go_on(job, plan, 0.5) ? 0 : blasd_cuda_stopped(err);
}

static int finish(struct blasd_cuda_job *job, struct blasd_err *err) {
    struct gram_plan *plan = (struct gram_plan *)job->state;
    if (plan->where == REGRESSION_REFUSED) {
        for (int t = 0; t < job->count; t++)
            (void)blasd_fail(&job->tasks[t].err, BLASD_E_job_too_large, "inputs.x",
                             REGRESSION_DEVICE_TAKES ": ask for device \"cpu\"");
        return 0;
    }
    if (plan->where == REGRESSION_HOST)
        return blasd_regression_tasks(job->tasks, job->count, HOST_THREADS, nullptr, err);
    return blasd_regression_finish(&plan->asked, job->tasks, job->count, &plan->results, err);
}

/* Small jobs of any shape and method share a batch, and launches where they can. */
static void batch_key(const struct blasd_job *job, const struct blasd_plan *plan,
                      struct blasd_key *ret) {
    (void)job;
    if (plan->flops > MIXED_FLOPS) return;
    ret->len = 0;
    blasd_key_add_int(ret, plan->input_dtype[IN_X]);
}

extern "C" const struct blasd_cuda_op blasd_cuda_regression = {
    .kernel = BLASD_CUDA_KERNEL_ADAPTED("regression", batch_key, adapt, 0),
    .choose = choose,
    .prepare = prepare,
    .compute = compute,
    .finish = finish,
    .stack = nullptr,
    .residents = 0,
    .join = nullptr,
};
