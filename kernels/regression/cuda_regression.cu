/* regression on CUDA: the Gram matrix in double-double and what follows from it, for all problems
 * of a batch at once. Which kernels run for which method; the kernels are gram.cuh's, what the host
 * adds is device_fit.c.
 *
 * Read next: gram.cuh, device_fit.h, then README.md for the method and for what goes elsewhere. */
extern "C" {
#include "kernels/cpu/cpu.h"
#include "kernels/cuda/cuda_op.h"
#include "kernels/regression/dense.h"
#include "kernels/regression/device_fit.h"
}

#include "kernels/regression/gram.cuh"

#define STEPS_EACH 20000      /* of gd in a launch */
#define STEPS_ONE_BY_ONE 1000 /* where each is a launch */
#define LAUNCHES_AHEAD 8      /* before the host waits, so that a cancelled job is noticed */
#define SWEEPS_FIRST 1000     /* of lasso in the first launch, then twice as many each time */
#define SWEEPS_MOST 16000
#define ROOM_BYTES (256 << 20) /* for targets of lasso that are worked on at once */
#define LARGE_WORK 1e7         /* n q q from which the worker is asked whether to go on */

struct plan {
    struct regression_shape shape;
    enum regression_where where;
    struct gram_shape gram;
    struct gram_arrays arrays;
    struct gram_descent descent;
    struct gram_sparse sparse;
    struct gram_outputs outputs;
    struct gram_factor_wish wish;
    struct twofold *weighted; /* q x q, for robust errors */
    struct regression_results results;
};

static void choose(const struct blasd_task *task, const struct blasd_gpu_facts *facts,
                   struct blasd_cuda_wish *wish) {
    struct regression_shape shape;
    struct blasd_err err;
    (void)facts;
    wish->outputs = 0;
    if (blasd_regression_read(task->job, &shape, &err) != 0 ||
        blasd_regression_where(&shape) != REGRESSION_DEVICE || shape.problems == 0) {
        wish->inputs = 0;
        return;
    }
    if (shape.residuals) wish->outputs = 1u << OUT_RESIDUALS | 1u << OUT_FITTED;
}

/* ---- memory ---- */

/* Device memory for `each` elements of every problem. */
template <class T>
static int take(struct blasd_cuda_job *job, int64_t problems, int64_t each, T **ret,
                struct blasd_err *err) {
    size_t bytes;
    if (__builtin_mul_overflow((size_t)problems * sizeof(T), (size_t)each, &bytes))
        return blasd_fail(err, BLASD_E_out_of_memory, "", "the batch is too large for the device");
    return blasd_cuda_take(job, bytes, (void **)ret, err);
}

/* The same, and it comes back to the host. */
template <class T>
static int take_back(struct blasd_cuda_job *job, int64_t problems, int64_t each, T **host, T **ret,
                     struct blasd_err *err) {
    size_t bytes;
    if (__builtin_mul_overflow((size_t)problems * sizeof(T), (size_t)each, &bytes))
        return blasd_fail(err, BLASD_E_out_of_memory, "", "the batch is too large for the device");
    return blasd_cuda_return(job, bytes, (void **)host, (void **)ret, err);
}

/* Where each problem's data lie, and its residuals. */
static int make_tables(struct blasd_cuda_job *job, struct plan *plan, struct blasd_err *err) {
    const struct regression_shape *shape = &plan->shape;
    int64_t problems = plan->gram.problems, rows = shape->n * shape->t;
    size_t size = blasd_dtype_size(shape->storage);
    struct gram_data *data;
    char **residuals = nullptr, **fitted = nullptr;
    struct blasd_walk walk;
    int code = blasd_cuda_table(job, (size_t)problems * sizeof *data, (void **)&data,
                                (void **)&plan->arrays.data, err);
    if (code == 0 && shape->residuals)
        code = blasd_cuda_table(job, (size_t)problems * sizeof(char *), (void **)&residuals,
                                (void **)&plan->outputs.residuals, err);
    if (code == 0 && shape->residuals)
        code = blasd_cuda_table(job, (size_t)problems * sizeof(char *), (void **)&fitted,
                                (void **)&plan->outputs.fitted, err);
    for (int64_t number = 0; code == 0 && number < problems; number++) {
        int task = (int)(number / shape->problems);
        int64_t at = number % shape->problems;
        if (at == 0) blasd_regression_walk(shape, &job->tasks[task], 0, &walk);
        data[number].x =
            (const double *)blasd_cuda_in(job, task, IN_X) + walk.offset[0] * shape->n * shape->p;
        data[number].y =
            (const double *)blasd_cuda_in(job, task, IN_Y) + walk.offset[1] * shape->n * shape->t;
        if (shape->weighted)
            data[number].w =
                (const double *)blasd_cuda_in(job, task, IN_WEIGHT) + walk.offset[2] * shape->n;
        if (residuals != nullptr) {
            residuals[number] =
                (char *)blasd_cuda_out(job, task, OUT_RESIDUALS) + (size_t)(at * rows) * size;
            fitted[number] =
                (char *)blasd_cuda_out(job, task, OUT_FITTED) + (size_t)(at * rows) * size;
        }
        blasd_walk_next(&walk);
    }
    return code;
}

/* What every method needs: the matrix and its factor. */
static int take_common(struct blasd_cuda_job *job, struct plan *plan, struct blasd_err *err) {
    struct gram_arrays *a = &plan->arrays;
    int64_t problems = plan->gram.problems, q = plan->shape.q, t = plan->shape.t;
    int code = take(job, problems, q + t, &a->columns, err);
    if (code == 0) code = take(job, problems, 1, &a->total, err);
    if (code == 0) code = take(job, problems, q * q, &a->gram, err);
    if (code == 0) code = take(job, problems, q * t, &a->with_y, err);
    if (code == 0) code = take(job, problems, t, &a->squares, err);
    if (code == 0) code = take(job, problems, q, &a->pivots, err);
    if (code == 0) code = take(job, problems, q * t, &a->b, err);
    if (code == 0) code = blasd_cuda_take(job, gram_scratch_bytes(&plan->gram), &a->scratch, err);
    if (code == 0) code = take_back(job, problems, t, &plan->results.tss, &a->tss, err);
    return code;
}

/* For the triangle that goes to the host. */
static int take_triangle(struct blasd_cuda_job *job, struct plan *plan, struct blasd_err *err) {
    struct gram_arrays *a = &plan->arrays;
    struct regression_results *back = &plan->results;
    int64_t problems = plan->gram.problems, q = plan->shape.q, t = plan->shape.t;
    int code = take_back(job, problems, q * q, &back->r, &a->r, err);
    if (code == 0) code = take_back(job, problems, q * t, &back->z, &a->z, err);
    if (code == 0) code = take_back(job, problems, t, &back->rest, &a->rest, err);
    if (code == 0) code = take_back(job, problems, q + t, &back->exponent, &a->exponent, err);
    return code;
}

/* For coefficients and their residuals. */
static int take_rows(struct blasd_cuda_job *job, struct plan *plan, struct blasd_err *err) {
    struct gram_arrays *a = &plan->arrays;
    struct regression_results *back = &plan->results;
    int64_t problems = plan->gram.problems, q = plan->shape.q, t = plan->shape.t;
    int code = take_back(job, problems, q * t, &back->coef, &a->coef, err);
    if (code == 0) code = take_back(job, problems, t, &back->ssr, &a->ssr, err);
    if (code != 0 || blasd_regression_sparse(&plan->shape)) return code;
    code = take(job, problems, q * 2 * t, &a->slopes, err);
    if (code == 0) code = take(job, problems, 2 * t, &a->left_squares, err);
    if (code == 0) code = take(job, problems, plan->shape.n * 2 * t, &a->left, err);
    return code;
}

/* For the covariance of least squares. */
static int take_basis(struct blasd_cuda_job *job, struct plan *plan, struct blasd_err *err) {
    struct gram_arrays *a = &plan->arrays;
    struct regression_results *back = &plan->results;
    int64_t problems = plan->gram.problems, q = plan->shape.q, t = plan->shape.t;
    int code = take(job, problems, q * q, &a->inverse, err);
    if (code == 0) code = take_back(job, problems, q * q, &back->basis, &a->basis, err);
    if (code == 0) code = take_back(job, problems, q, &back->singular, &a->singular, err);
    if (code != 0 || !plan->outputs.robust) return code;
    code = take(job, problems, t * plan->shape.n, &a->row_weight, err);
    if (code == 0) code = take(job, problems, q * q, &plan->weighted, err);
    if (code == 0) code = take_back(job, problems, t * q * q, &back->middle, &a->middle, err);
    return code;
}

/* For gd. */
static int take_descent(struct blasd_cuda_job *job, struct plan *plan, struct blasd_err *err) {
    struct gram_descent *d = &plan->descent;
    int64_t problems = plan->gram.problems, q = plan->shape.q, t = plan->shape.t;
    int code = take(job, problems, q * q, &d->g, err);
    d->learning_rate = plan->shape.learning_rate;
    if (code == 0) code = take(job, problems, q * t, &d->h, err);
    if (code == 0) code = take(job, problems, q * t, &d->b, err);
    if (code == 0) code = take(job, problems, q * t, &d->other, err);
    return code;
}

/* For lasso and elastic_net. */
static int take_sparse(struct blasd_cuda_job *job, struct plan *plan, struct blasd_err *err) {
    const struct regression_shape *shape = &plan->shape;
    struct gram_sparse *s = &plan->sparse;
    struct regression_results *back = &plan->results;
    int64_t problems = plan->gram.problems, p = shape->p, t = shape->t;
    int64_t each = problems * gram_sparse_room(p) * (int64_t)sizeof *s->room, rooms;
    double ratio = shape->method == METHOD_LASSO ? 1 : shape->l1_ratio;
    int code = take(job, problems, p * p, &s->gram, err);
    if (code == 0) code = take(job, problems, p * t, &s->with_y, err);
    if (code == 0) code = take(job, problems, t, &s->squares, err);
    if (code == 0) code = take(job, problems, p * t, &s->b, err);
    if (code == 0) code = take(job, problems, t, &s->progress, err);
    if (code == 0) code = take_back(job, problems, t, &back->gap, &s->gap, err);
    if (code == 0) code = take_back(job, problems, t, &back->sweeps, &s->sweeps, err);
    rooms = each > 0 ? ROOM_BYTES / each : t;
    s->rooms = (int)(rooms < 1 ? 1 : rooms < t ? rooms : t);
    s->l1 = shape->alpha * ratio;
    s->l2 = shape->alpha * (1 - ratio);
    s->tol = shape->tol;
    if (code == 0) code = take(job, problems * s->rooms, gram_sparse_room(p), &s->room, err);
    return code;
}

static void fill_gram(struct blasd_cuda_job *job, struct plan *plan) {
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
    plan->wish.basis = blasd_regression_plain(shape);
    plan->wish.triangle = plan->wish.basis;
    plan->wish.penalty = shape->method == METHOD_RIDGE ? shape->alpha : 0;
}

static int prepare(struct blasd_cuda_job *job, struct blasd_err *err) {
    struct plan *plan;
    int code = blasd_cuda_host(job, sizeof *plan, &job->state, err);
    if (code != 0) return code;
    plan = (struct plan *)job->state;
    code = blasd_regression_read(job->tasks[0].job, &plan->shape, err);
    if (code != 0) return code;
    plan->shape.dense = &blasd_regression_own;
    plan->where = blasd_regression_where(&plan->shape);
    if (plan->where != REGRESSION_DEVICE || plan->shape.problems == 0) return 0;
    fill_gram(job, plan);
    if (plan->gram.problems > INT32_MAX / 1024)
        return blasd_fail(err, BLASD_E_out_of_memory, "", "the batch is too large for the device");
    code = make_tables(job, plan, err);
    if (code == 0) code = take_common(job, plan, err);
    if (code == 0 && plan->wish.triangle) code = take_triangle(job, plan, err);
    if (code == 0) code = take_rows(job, plan, err);
    if (code == 0 && plan->wish.basis) code = take_basis(job, plan, err);
    if (code == 0 && plan->shape.method == METHOD_GD) code = take_descent(job, plan, err);
    if (code == 0 && blasd_regression_sparse(&plan->shape)) code = take_sparse(job, plan, err);
    return code;
}

/* ---- the work ---- */

static bool go_on(struct blasd_cuda_job *job, const struct plan *plan, double progress) {
    double work = (double)plan->shape.n * (double)plan->shape.q * (double)plan->shape.q;
    return work < LARGE_WORK || blasd_cuda_go_on(job, progress);
}

static int descend(struct blasd_cuda_job *job, struct plan *plan, struct blasd_err *err) {
    const struct gram_shape *g = &plan->gram;
    int64_t left = plan->shape.iterations, each = g->q <= 128 ? STEPS_EACH : STEPS_ONE_BY_ONE;
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

/* The middles of robust covariances, target by target. */
static int robust(struct blasd_cuda_job *job, struct plan *plan, struct blasd_err *err) {
    const struct gram_shape *g = &plan->gram;
    int code = 0;
    for (int l = 0; code == 0 && l < g->t; l++) {
        code = gram_weighted(g, &plan->arrays, l, plan->weighted, job->stream, err);
        /* the matrix of the factor is not needed any more: it is room for the sandwich, once its
         * factor has done its last */
        if (code == 0)
            code = gram_sandwich(g, &plan->arrays, l, plan->weighted, plan->arrays.gram,
                                 job->stream, err);
    }
    return code;
}

static int descend_coordinates(struct blasd_cuda_job *job, struct plan *plan,
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

static int compute(struct blasd_cuda_job *job, struct blasd_err *err) {
    struct plan *plan = (struct plan *)job->state;
    const struct gram_shape *g = &plan->gram;
    const struct gram_arrays *a = &plan->arrays;
    bool descends = plan->shape.method == METHOD_GD, sparse = blasd_regression_sparse(&plan->shape);
    int code;
    if (plan->where != REGRESSION_DEVICE || g->problems == 0) return 0;
    code = gram_scan(g, a, !descends, job->stream, err);
    if (code == 0) code = gram_products(g, a, job->stream, err);
    if (code == 0) code = gram_totals(g, a, job->stream, err);
    if (code == 0 && !go_on(job, plan, 0.5)) return blasd_cuda_stopped(err);
    if (code == 0 && descends) code = descend(job, plan, err);
    if (code == 0 && sparse) code = descend_coordinates(job, plan, err);
    if (code == 0 && !descends && !sparse) code = gram_factor(g, a, &plan->wish, job->stream, err);
    if (code == 0 && plan->wish.basis) code = gram_singular(g, a, job->stream, err);
    if (code == 0 && !sparse) code = gram_leave(g, a, job->stream, err);
    if (code == 0 && !sparse) code = gram_slopes(g, a, job->stream, err);
    if (code == 0 && !sparse) code = gram_correct(g, a, plan->wish.basis, job->stream, err);
    if (code == 0 && (plan->outputs.residuals != nullptr || plan->outputs.robust))
        code = gram_put_rows(g, a, &plan->outputs, job->stream, err);
    if (code == 0 && plan->outputs.robust) code = robust(job, plan, err);
    return code;
}

static int finish(struct blasd_cuda_job *job, struct blasd_err *err) {
    struct plan *plan = (struct plan *)job->state;
    if (plan->where == REGRESSION_REFUSED) {
        for (int t = 0; t < job->count; t++)
            (void)blasd_fail(&job->tasks[t].err, BLASD_E_job_too_large, "inputs.x",
                             "on a GPU a regression may have 1024 coefficients, or be wide and "
                             "small: ask for device \"cpu\"");
        return 0;
    }
    return blasd_regression_finish(&plan->shape, job->tasks, job->count,
                                   plan->where == REGRESSION_DEVICE ? &plan->results : nullptr,
                                   err);
}

extern "C" const struct blasd_cuda_op blasd_cuda_regression = {
    .kernel = BLASD_CUDA_KERNEL("regression"),
    .choose = choose,
    .prepare = prepare,
    .compute = compute,
    .finish = finish,
};
