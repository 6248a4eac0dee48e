/* The end of a batch of regressions on a GPU, on the host: see device_fit.h.
 *
 * Where the rank is full, what came from the device is the answer and only statistics are added.
 * Where it is not, the least-norm solution is found from the triangle, and the residuals are made
 * here from the data. */
#include "kernels/regression/device_fit.h"

#include "base/err.h"
#include "core/parallel.h"
#include "kernels/cpu/cpu.h"
#include "kernels/regression/dense.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DEVICE_COEFFICIENTS 1024 /* gram.cuh's GRAM_MOST */
#define DEVICE_TARGETS 131072
#define HOST_WORK 2e9       /* operations of one problem done here, at most */
#define HOST_LITTLE 1e8     /* of lasso and elastic_net, where the device can do it too */
#define SURE 1e-10          /* of a condition's inverse: far above what the rank is decided by */
#define HOST_AGAIN 1e8      /* n q (q + t) of ridge done again here */
#define PIVOT 1e-10         /* of a column's square, that double-double does with */
#define PIVOT_NOISE 1e-20   /* and where it leaves too little */
#define PIECE 16            /* problems in a piece of work */
#define THREADS_PROBLEMS 64 /* from which another thread is worth starting */

bool blasd_regression_plain(const struct regression_shape *shape) {
    return shape->method == METHOD_OLS || (shape->method == METHOD_RIDGE && shape->alpha == 0);
}

bool blasd_regression_sparse(const struct regression_shape *shape) {
    return shape->method == METHOD_LASSO || shape->method == METHOD_ELASTIC_NET;
}

/* The job, or the ridge that it comes to, whose alpha is then for each unit of weight. */
static struct regression_shape what_is_done(const struct regression_shape *asked) {
    return blasd_regression_smooth(asked) ? blasd_regression_as_ridge(asked, 1) : *asked;
}

enum regression_where blasd_regression_where(const struct regression_shape *asked) {
    struct regression_shape shape = what_is_done(asked);
    double n = (double)shape.n, q = (double)shape.q, t = (double)shape.t;
    double work = 4 * n * n * (q + t); /* of making anything from a wide problem's rows */
    bool fits = shape.q <= DEVICE_COEFFICIENTS, sparse = blasd_regression_sparse(&shape);
    if (shape.grouped) return REGRESSION_HOST;
    if (shape.t > DEVICE_TARGETS) return REGRESSION_REFUSED;
    if (shape.way != WAY_WIDE || !(sparse || blasd_regression_plain(&shape)))
        return fits ? REGRESSION_DEVICE : REGRESSION_REFUSED;
    if (sparse && fits && work > HOST_LITTLE) return REGRESSION_DEVICE;
    return work <= HOST_WORK ? REGRESSION_HOST : REGRESSION_REFUSED;
}

/* What one thread needs beside the results; owned. */
struct room {
    struct regression_scaling scaling;
    /* the problem at hand, and data of it that came as float32: x, y, w */
    const struct blasd_task *task;
    int64_t at[IN_WEIGHT + 1];
    double *wide[IN_WEIGHT + 1];
    double *coef, *ssr, *residual, *dual_gap, *gradient;
    int64_t *n_iter, *converged;
};

struct run {
    const struct regression_shape *asked; /* the job, which says what the outputs are */
    const struct regression_shape *shape; /* what is done */
    struct blasd_task *tasks;
    const struct regression_results *results;
    int64_t problems;
    pthread_mutex_t lock; /* of tasks and counts: two threads may meet in one task */
    struct regression_counts *counts;
    struct room rooms[BLASD_PARALLEL_MAX];
    struct blasd_err errors[BLASD_PARALLEL_MAX];
};

static void room_release(struct room *room) {
    blasd_regression_scaling_release(&room->scaling);
    for (int i = IN_X; i <= IN_WEIGHT; i++) free(room->wide[i]);
    free(room->coef);
    free(room->ssr);
    free(room->residual);
    free(room->dual_gap);
    free(room->n_iter);
    free(room->gradient);
    free(room->converged);
}

static int no_memory(struct blasd_err *err) {
    return blasd_fail(err, BLASD_E_out_of_memory, "", "no memory for the host's part");
}

/* What every problem needs here; more comes when it is needed. */
static int room_init(struct room *room, const struct run *run, struct blasd_err *err) {
    const struct regression_shape *shape = run->shape;
    size_t q = (size_t)shape->q, t = (size_t)shape->t;
    room->dual_gap = blasd_cpu_alloc(t, sizeof(double));
    room->n_iter = blasd_cpu_alloc(t, sizeof(int64_t));
    room->gradient = blasd_cpu_alloc(t, sizeof(double));
    room->converged = blasd_cpu_alloc(t, sizeof(int64_t));
    room->coef = blasd_cpu_alloc(t * q, sizeof(double));
    room->ssr = blasd_cpu_alloc(t, sizeof(double));
    if (room->dual_gap == NULL || room->n_iter == NULL || room->coef == NULL || room->ssr == NULL ||
        room->gradient == NULL || room->converged == NULL)
        return no_memory(err);
    return 0;
}

/* The factor and fit of problem `number`, as far as the device made them. */
static void take_results(const struct run *run, struct room *room, int64_t number,
                         struct regression_factor *factor, struct regression_fit *fit) {
    const struct regression_results *all = run->results;
    int64_t q = run->shape->q, t = run->shape->t;
    fit->n_iter = room->n_iter;
    fit->dual_gap = room->dual_gap;
    fit->gradient = room->gradient;
    fit->converged = room->converged;
    for (int64_t l = 0; l < t; l++) { /* of ridge by another name */
        fit->n_iter[l] = 0;
        fit->dual_gap[l] = 0;
    }
    factor->rows = q;
    factor->triangle = true;
    fit->coef = all->coef != NULL ? all->coef + number * q * t : room->coef;
    fit->ssr = all->ssr != NULL ? all->ssr + number * t : room->ssr;
    if (all->r != NULL) {
        factor->r = all->r + number * q * q;
        factor->z = all->z + number * q * t;
        factor->rest = all->rest + number * t;
        factor->exponent = all->exponent + number * (q + t);
    }
    if (all->gap != NULL) {
        fit->dual_gap = all->gap + number * t;
        fit->n_iter = all->sweeps + number * t;
    }
    if (all->basis != NULL) fit->basis = all->basis + number * q * q;
    if (all->singular != NULL) fit->singular = all->singular + number * q;
    if (all->middle != NULL) fit->middle = all->middle + number * t * q * q;
    for (int64_t l = 0; all->middle != NULL && l < t; l++)
        fit->alone = fit->alone || isnan(factor->rest[l]);
    fit->spread = q;
}

/* The data of the problem at hand where they are float64. Where they are float32, `data` has none
 * of them but what is widened when it is looked at, which is seldom. */
static struct regression_data data_of(const struct regression_shape *shape, struct room *room,
                                      const struct blasd_task *task,
                                      const struct blasd_walk *walk) {
    room->task = task;
    for (int i = IN_X; i <= IN_WEIGHT; i++) room->at[i] = walk->offset[i];
    if (task->inputs[IN_X].dtype != BLASD_float32) return blasd_regression_data(shape, task, walk);
    return (struct regression_data){.x = NULL};
}

static int widen(const struct regression_shape *shape, struct room *room, int input,
                 const double **data, struct blasd_err *err) {
    const int64_t each[] = {shape->n * shape->p, shape->n * shape->t, shape->n};
    const struct blasd_tensor *tensor = &room->task->inputs[input];
    const float *from = tensor->data;
    if (tensor->data == NULL || tensor->dtype != BLASD_float32) return 0;
    if (room->wide[input] == NULL)
        room->wide[input] = blasd_cpu_alloc((size_t)each[input], sizeof(double));
    if (room->wide[input] == NULL) return no_memory(err);
    from += room->at[input] * each[input];
    for (int64_t i = 0; i < each[input]; i++) room->wide[input][i] = (double)from[i];
    *data = room->wide[input];
    return 0;
}

/* Room for residuals that the host makes, where anybody asks for them. */
static int want_residuals(const struct regression_shape *shape, struct room *room,
                          struct regression_fit *fit, struct blasd_err *err) {
    if (!shape->residuals && shape->cov == COV_NONROBUST) return 0;
    if (room->residual == NULL)
        room->residual = blasd_cpu_alloc((size_t)shape->n * (size_t)shape->t, sizeof(double));
    fit->residual = room->residual;
    return room->residual == NULL ? no_memory(err) : 0;
}

static int falling(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? 1 : x > y ? -1 : 0;
}

/* Whether the rank is full beyond doubt, by the condition number of the centred features scaled to
 * length 1, which the basis gives for q^2 operations: the inverse need not be made again. And
 * fit->doubt, all features being taken to be rounded. */
static bool surely_full(const struct regression_shape *shape,
                        const struct regression_factor *factor, struct regression_fit *fit) {
    int64_t q = shape->q, skip = shape->intercept ? 1 : 0;
    double squares = 0, noises = 0;
    if (skip == 1 && !(factor->r[0] > 0)) return false;
    for (int64_t j = skip; j < q; j++) {
        double length = 0, row = 0, first = skip == 1 ? factor->r[j] : 0;
        for (int64_t i = skip; i <= j; i++) length += factor->r[i * q + j] * factor->r[i * q + j];
        if (!(length > SURE * SURE * first * first) || !(factor->r[j * q + j] > 0)) return false;
        for (int64_t c = j; c < q; c++) {
            double scaled = ldexp(fit->basis[j * q + c], factor->exponent[j]);
            row += scaled * scaled;
        }
        squares += length * row;
        noises += (length + first * first) * row;
    }
    fit->doubt = shape->sent * sqrt(noises);
    return sqrt(squares) * sqrt((double)(q - skip)) * SURE < 1 &&
           fit->doubt < BLASD_REGRESSION_DOUBT;
}

/* Least squares without a penalty: the rank decides whether the device's solution is the one. */
static int end_plain(const struct regression_shape *shape, struct room *room,
                     struct regression_data *data, const struct regression_factor *factor,
                     struct regression_fit *fit, const char **how, struct blasd_err *err) {
    bool look = shape->rcond > 0 || !surely_full(shape, factor, fit);
    int code = look ? widen(shape, room, IN_X, &data->x, err) : 0;
    if (code == 0 && look) code = blasd_regression_rank(shape, factor, data, fit, err);
    if (code != 0) return code;
    if (shape->q > 1) qsort(fit->singular, (size_t)shape->q, sizeof *fit->singular, falling);
    *how = "gram in double-double";
    blasd_regression_cond(shape, fit);
    if (fit->rank == shape->q) {
        fit->spread = shape->q;
        if (!blasd_regression_robust_suspect(shape, fit)) return 0;
    } else {
        *how = fit->truncated ? "truncated singular value decomposition"
                              : "complete orthogonal decomposition";
    }
    fit->middle = NULL; /* that of another basis, or not enough */
    fit->alone = false;
    code = widen(shape, room, IN_X, &data->x, err);
    if (code == 0) code = widen(shape, room, IN_Y, &data->y, err);
    if (code == 0) code = blasd_regression_scale_targets(shape, &room->scaling, data, err);
    if (code == 0) code = want_residuals(shape, room, fit, err);
    if (code == 0) blasd_regression_residuals(shape, data, fit, fit->rank < shape->q);
    return code;
}

/* The least pivot that the penalised matrix had, beside the square of its column: what elimination
 * took away of the digits. */
static double least_pivot(const struct regression_shape *shape,
                          const struct regression_factor *factor) {
    int64_t q = shape->q, skip = shape->intercept ? 1 : 0;
    double least = 1;
    for (int64_t j = skip; j < q; j++) {
        double own = factor->r[j * q + j], length = 0, first = skip == 1 ? factor->r[j] : 0;
        for (int64_t i = skip; i <= j; i++) length += factor->r[i * q + j] * factor->r[i * q + j];
        if (!(length > SURE * SURE * first * first)) return 0;
        least = own * own > least * length ? least : own * own / length;
    }
    return least;
}

/* Again, from the data, as the host does it: ridge, or elastic_net from where the device left it.
 */
static int solve_again(const struct regression_shape *shape, struct room *room,
                       struct regression_data *data, struct regression_fit *fit,
                       struct blasd_err *err) {
    struct blasd_cpu_progress quiet = {.total = 0};
    struct regression_factor own = {0};
    struct regression_small *small = blasd_regression_small_new(shape);
    int code = widen(shape, room, IN_X, &data->x, err);
    if (code == 0) code = widen(shape, room, IN_Y, &data->y, err);
    if (code == 0) code = blasd_regression_scale_targets(shape, &room->scaling, data, err);
    if (code == 0) code = want_residuals(shape, room, fit, err);
    if (code == 0 && (small == NULL || !blasd_regression_factor_alloc(&own, shape, shape->q)))
        code = no_memory(err);
    if (code == 0) code = blasd_regression_small_factor(small, data, &own, &quiet, err);
    if (code == 0 && shape->method == METHOD_RIDGE)
        blasd_regression_small_solve(small, data, fit);
    else if (code == 0)
        code = blasd_regression_polish(shape, data, small, &own, room->scaling.target, fit, err);
    blasd_regression_small_free(small);
    blasd_regression_factor_release(&own);
    return code;
}

/* ridge that the device's digits may not have been enough for is done again. */
static int end_ridge(const struct run *run, struct room *room, struct regression_data *data,
                     const struct regression_factor *factor, struct regression_fit *fit,
                     const char **how, struct blasd_err *err) {
    struct regression_shape shape = *run->shape;
    double pivot = least_pivot(&shape, factor);
    double work = (double)shape.n * (double)shape.q * (double)(shape.q + shape.t);
    *how = "gram in double-double with penalty";
    if (shape.alpha == 0 || pivot > PIVOT) return 0;
    fit->unsure = pivot < PIVOT_NOISE;
    if (work > HOST_AGAIN || !blasd_regression_doubled(&shape)) return 0;
    *how = "qr with penalty in double-double";
    if (run->asked->method == METHOD_RIDGE)
        shape.alpha = ldexp(shape.alpha, -room->scaling.weight);
    else
        shape.alpha *= data->total;
    return solve_again(&shape, room, data, fit, err);
}

/* So are the few coefficients of elastic_net, which the gap alone does not tell apart. */
static int end_sparse(const struct regression_shape *shape, struct room *room,
                      struct regression_data *data, struct regression_fit *fit,
                      struct blasd_err *err) {
    double l2 = shape->alpha * (1 - shape->l1_ratio);
    if (shape->method == METHOD_LASSO || !(l2 > 0) || shape->way != WAY_SMALL ||
        shape->q > BLASD_REGRESSION_POLISHED)
        return 0;
    return solve_again(shape, room, data, fit, err);
}

static int end_problem(const struct run *run, struct room *room, int64_t number,
                       struct regression_data *data, struct regression_factor *factor,
                       struct regression_fit *fit, const char **how, struct blasd_err *err) {
    const struct regression_shape *shape = run->shape;
    take_results(run, room, number, factor, fit);
    fit->rank = shape->q;
    if (blasd_regression_plain(shape)) return end_plain(shape, room, data, factor, fit, how, err);
    if (blasd_regression_sparse(shape)) {
        *how = "coordinate descent";
        for (int64_t l = 0; l < shape->t; l++) {
            double most = run->results->tss[number * shape->t + l];
            most *= shape->tol > 1e-13 ? shape->tol : 1e-13;
            if (!(fit->dual_gap[l] <= most)) fit->unconverged++;
        }
        return end_sparse(shape, room, data, fit, err);
    }
    if (shape->method == METHOD_RIDGE) return end_ridge(run, room, data, factor, fit, how, err);
    *how = "gradient descent";
    blasd_regression_judge(shape, run->results->slopes + number * 2 * shape->q * shape->t,
                           run->results->slopes + (2 * number + 1) * shape->q * shape->t, 1, fit);
    return 0;
}

/* The data in the units that the problem is, or was, fitted in. */
static int change_units(const struct run *run, struct room *room, int64_t number,
                        struct regression_data *data, struct blasd_err *err) {
    return blasd_regression_scale_as(run->asked, &room->scaling,
                                     run->results->unit + number * (run->asked->t + 1), data, err);
}

/* Ends problems [from, to). Errors of a problem are its task's. */
static int end_range(struct run *run, struct room *room, int64_t from, int64_t to) {
    const struct regression_shape *shape = run->shape;
    struct blasd_walk walk;
    for (int64_t number = from; number < to; number++) {
        int64_t place = number / shape->problems, at = number % shape->problems;
        struct blasd_task *task = &run->tasks[place];
        struct regression_data data, given;
        struct regression_factor factor = {0};
        struct regression_fit fit = {0};
        struct blasd_err own = {0};
        const char *how = "";
        const double *tss;
        int code;
        if (number == from || at == 0) blasd_regression_walk(shape, task, at, &walk);
        data = given = data_of(shape, room, task, &walk);
        blasd_walk_next(&walk);
        code = widen(shape, room, IN_WEIGHT, &data.w, &own);
        if (code == 0) code = blasd_regression_weights(shape, &data, &own);
        if (code == 0) code = change_units(run, room, number, &data, &own);
        if (code == 0) code = end_problem(run, room, number, &data, &factor, &fit, &how, &own);
        if (code == 0)
            code = blasd_regression_scale_columns(shape, &room->scaling, &data, &fit, &own);
        tss = run->results->tss + number * shape->t;
        if (code == 0)
            code = blasd_regression_outputs(run->asked, task, at, &data, &fit, tss, &own);
        if (code == 0) blasd_regression_unscale(shape, &room->scaling, task, at, &fit);
        given.w = data.w;
        if (code == 0 && shape->certify)
            code = blasd_regression_prove(shape, &given, &factor, &fit, task, at, &own);
        pthread_mutex_lock(&run->lock);
        if (code != 0) {
            task->err = own;
        } else {
            snprintf(task->method, sizeof task->method, "%s", how);
            blasd_regression_tally(run->asked, task, at, &data, &fit, &run->counts[place]);
        }
        pthread_mutex_unlock(&run->lock);
    }
    return 0;
}

static bool some_problems(void *arg, int64_t piece, int slot) {
    struct run *run = arg;
    int64_t from = piece * PIECE, to = from + PIECE;
    if (to > run->problems) to = run->problems;
    return end_range(run, &run->rooms[slot], from, to) == 0;
}

/* Statistics of a thousand problems are worth some threads. */
static int run_all(struct run *run, struct blasd_err *err) {
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    int64_t threads = online > 1 ? online : 1, code = 0;
    if (threads > run->problems / THREADS_PROBLEMS) threads = run->problems / THREADS_PROBLEMS;
    if (threads > BLASD_PARALLEL_MAX) threads = BLASD_PARALLEL_MAX;
    if (threads < 1) threads = 1;
    for (int64_t i = 0; code == 0 && i < threads; i++) code = room_init(&run->rooms[i], run, err);
    if (code != 0) return (int)code;
    (void)blasd_parallel_run(&(struct blasd_parallel){.piece = some_problems,
                                                      .arg = run,
                                                      .count = (run->problems + PIECE - 1) / PIECE,
                                                      .threads = (int)threads,
                                                      .to = 1});
    return 0;
}

int blasd_regression_finish(const struct regression_shape *asked, struct blasd_task *tasks,
                            int count, const struct regression_results *results,
                            struct blasd_err *err) {
    struct regression_shape shape = what_is_done(asked);
    struct run *run = calloc(1, sizeof *run);
    int code = 0;
    if (run == NULL) return no_memory(err);
    run->asked = asked;
    run->shape = &shape;
    run->tasks = tasks;
    run->results = results;
    run->problems = asked->problems * count;
    pthread_mutex_init(&run->lock, NULL);
    blasd_cpu_blas_alone();
    run->counts = calloc((size_t)count + 1, sizeof *run->counts);
    if (run->counts == NULL) code = no_memory(err);
    for (int i = 0; i < count; i++) snprintf(tasks[i].method, sizeof tasks[i].method, "none");
    if (code == 0 && run->problems > 0) code = run_all(run, err);
    for (int i = 0; code == 0 && i < count; i++)
        blasd_regression_warn(asked, &tasks[i], &run->counts[i]);
    for (int i = 0; i < BLASD_PARALLEL_MAX; i++) room_release(&run->rooms[i]);
    pthread_mutex_destroy(&run->lock);
    free(run->counts);
    free(run);
    return code;
}
