/* Regression on the CPU: which problem is fitted where and how.
 *
 * Many small problems are dealt to the threads; a large one is worked on alone. What is done to a
 * problem depends on its shape and data, never on the batch.
 * Read next: qr_small.c, qr_tall.c, factor.c, then penalised.c, descent.c, statistics.c. */
#include "kernels/regression/regression.h"

#include "base/err.h"
#include "core/parallel.h"
#include "core/wanted.h"
#include "kernels/cpu/cpu.h"
#include "kernels/exact/exact.h"
#include "kernels/regression/dense.h"
#include "kernels/regression/unique.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DOUBLED_CONDITION 4e6 /* above, tall problems are done again in double-double */
#define UNSURE_CONDITION 1e13 /* above, refinement may not converge */
#define UNSURE_WIDE 1e9       /* without refinement */
#define THREADS_WORK 4e6      /* operations from which another thread is worth starting */
#define PIECE_WORK 2e7        /* operations in a piece of work, about */
#define DOUBLE_DOUBLE 15      /* operations for one in double-double, about */

/* What one thread needs to fit one problem after the other by the same way. */
struct room {
    struct regression_shape made;         /* what it has memory for; its n is the most rows */
    const struct regression_shape *shape; /* of the problem at hand; NULL: nothing is made yet */
    struct regression_small *small;
    struct regression_tall *tall;
    struct regression_factor factor;
    struct regression_fit fit;
    struct regression_scaling scaling;
    double *tss, *work;
    const char *how; /* static text: the method of the last problem */
};

struct run {
    const struct regression_shape *shape;
    struct blasd_task *tasks;
    int64_t problems; /* in all tasks */
    int64_t *starts;  /* owned: of pieces of work, and their end */
    struct room rooms[BLASD_PARALLEL_MAX][WAYS];
    pthread_mutex_t lock; /* of tasks and what follows: two threads may meet in one task */
    struct regression_counts *counts;   /* owned: of each task */
    bool *refused;                      /* owned: of each task: its row_splits are not right */
    struct blasd_err *errors;           /* of each slot */
    struct blasd_cpu_progress progress; /* of the calling thread, where it works alone */
};

static void room_release(struct room *room) {
    blasd_regression_small_free(room->small);
    blasd_regression_tall_free(room->tall);
    blasd_regression_factor_release(&room->factor);
    free(room->fit.coef);
    free(room->fit.ssr);
    free(room->fit.basis);
    free(room->fit.residual);
    free(room->fit.singular);
    free(room->fit.n_iter);
    free(room->fit.dual_gap);
    free(room->fit.gradient);
    free(room->fit.converged);
    blasd_regression_scaling_release(&room->scaling);
    free(room->tss);
    free(room->work);
}

static int no_memory(struct blasd_err *err) {
    return blasd_fail(err, BLASD_E_out_of_memory, "", "no memory for the factors");
}

/* What a fit by a factor needs beside the coefficients. */
static int factor_room_init(struct room *room, struct blasd_err *err) {
    const struct regression_shape *shape = room->shape;
    size_t n = (size_t)shape->n, q = (size_t)shape->q, spread = n + 1 < q ? n + 1 : q;
    bool again = shape->method != METHOD_OLS && blasd_regression_doubled(shape);
    int64_t rows = shape->way == WAY_WIDE && !again ? shape->n : shape->q;
    struct regression_fit *fit = &room->fit;
    fit->basis = blasd_cpu_alloc(q * spread, sizeof(double));
    fit->singular = blasd_cpu_alloc(spread, sizeof(double));
    if (!blasd_regression_factor_alloc(&room->factor, shape, rows) || fit->basis == NULL ||
        fit->singular == NULL)
        return no_memory(err);
    if (shape->way == WAY_SMALL && (room->small = blasd_regression_small_new(shape)) == NULL)
        return no_memory(err);
    if (shape->way != WAY_TALL) return 0;
    room->tall = blasd_regression_tall_new(shape);
    room->work = blasd_cpu_alloc(q * q, sizeof(double));
    return room->tall == NULL || room->work == NULL ? no_memory(err) : 0;
}

static int room_init(struct room *room, const struct regression_shape *shape,
                     struct blasd_err *err) {
    size_t n = (size_t)shape->n, q = (size_t)shape->q, t = (size_t)shape->t;
    struct regression_fit *fit = &room->fit;
    room->made = *shape;
    room->shape = &room->made;
    fit->need_residuals = shape->residuals || shape->cov != COV_NONROBUST;
    fit->coef = blasd_cpu_alloc(t * q, sizeof(double));
    fit->ssr = blasd_cpu_alloc(t, sizeof(double));
    room->tss = blasd_cpu_alloc(t, sizeof(double));
    fit->n_iter = blasd_cpu_alloc(t, sizeof(int64_t));
    fit->dual_gap = blasd_cpu_alloc(t, sizeof(double));
    fit->gradient = blasd_cpu_alloc(t, sizeof(double));
    fit->converged = blasd_cpu_alloc(t, sizeof(int64_t));
    if (fit->need_residuals) fit->residual = blasd_cpu_alloc(t * n, sizeof(double));
    if (fit->coef == NULL || fit->ssr == NULL || room->tss == NULL || fit->n_iter == NULL ||
        fit->dual_gap == NULL || fit->gradient == NULL || fit->converged == NULL ||
        (fit->need_residuals && fit->residual == NULL))
        return no_memory(err);
    return shape->method == METHOD_GD ? 0 : factor_room_init(room, err);
}

/* Makes the factor in double-double, by which room->small can solve. */
static int make_doubled(struct room *room, const struct regression_data *data,
                        struct blasd_cpu_progress *progress, struct blasd_err *err) {
    if (room->small == NULL) room->small = blasd_regression_small_new(&room->made);
    if (room->small == NULL)
        return blasd_fail(err, BLASD_E_out_of_memory, "", "no memory for double-double");
    blasd_regression_small_next(room->small, room->shape);
    return blasd_regression_small_factor(room->small, data, &room->factor, progress, err);
}

static bool has_penalty(const struct regression_shape *shape) {
    return shape->method == METHOD_RIDGE && shape->alpha > 0;
}

/* Makes the factor, of ridge with the penalty in it but where it is wide. *doubled: it is in
 * double-double. */
static int make_factor(struct room *room, const struct regression_data *data, bool *doubled,
                       struct blasd_cpu_progress *progress, struct blasd_err *err) {
    const struct regression_shape *shape = room->shape;
    bool penalty = has_penalty(shape);
    double condition;
    int code = 0;
    *doubled = shape->way == WAY_SMALL;
    if (shape->way == WAY_WIDE)
        return blasd_regression_wide_factor(shape, data, &room->factor, err);
    if (shape->way == WAY_TALL) {
        code = blasd_regression_tall_factor(room->tall, data, &room->factor, progress, err);
        if (code == 0 && penalty) code = blasd_regression_ridge_triangle(shape, &room->factor, err);
        if (code != 0 || (!penalty && !blasd_regression_doubled(shape))) return code;
        condition = blasd_regression_condition(shape, &room->factor, room->work);
        if (condition < DOUBLED_CONDITION) return 0;
        *doubled = blasd_regression_doubled(shape);
        if (!*doubled) room->fit.unsure = !(condition < UNSURE_CONDITION);
    }
    return *doubled ? make_doubled(room, data, progress, err) : 0;
}

/* Coefficients of full rank, and what goes with them, from the factor. */
static int solve_full(struct room *room, const struct regression_data *data, bool doubled,
                      struct blasd_cpu_progress *progress, struct blasd_err *err) {
    const struct regression_shape *shape = room->shape;
    struct regression_fit *fit = &room->fit;
    int code = 0;
    if (doubled) {
        blasd_regression_small_solve(room->small, data, fit);
        return 0;
    }
    code = blasd_regression_triangle(shape, &room->factor, fit, err);
    if (code == 0)
        code = blasd_regression_tall_refine(room->tall, shape, data, &room->factor, fit, progress,
                                            err);
    if (code == 0 && fit->need_residuals) blasd_regression_residuals(shape, data, fit, false);
    return code;
}

/* ols, and ridge without a penalty. */
static int least_squares(struct room *room, const struct regression_data *data,
                         struct blasd_cpu_progress *progress, struct blasd_err *err) {
    const struct regression_shape *shape = room->shape;
    struct regression_fit *fit = &room->fit;
    bool doubled;
    int code = make_factor(room, data, &doubled, progress, err);
    if (code == 0) code = blasd_regression_rank(shape, &room->factor, data, fit, err);
    if (code == 0) code = blasd_regression_singular(shape, &room->factor, fit, err);
    if (code == 0 && !blasd_wanted()) code = blasd_cpu_stopped(err);
    if (code != 0) return code;
    room->how = fit->truncated         ? "truncated singular value decomposition"
                : fit->rank < shape->q ? "complete orthogonal decomposition"
                : doubled              ? "qr in double-double"
                                       : "tsqr with refinement";
    if (fit->rank < shape->q)
        blasd_regression_residuals(shape, data, fit, true);
    else
        code = solve_full(room, data, doubled, progress, err);
    if (code == 0) blasd_regression_cond(shape, fit);
    return code;
}

/* ridge with a penalty. */
static int ridge(struct room *room, const struct regression_data *data,
                 struct blasd_cpu_progress *progress, struct blasd_err *err) {
    const struct regression_shape *shape = room->shape;
    struct regression_fit *fit = &room->fit;
    double doubt = 1;
    bool doubled;
    int code = make_factor(room, data, &doubled, progress, err);
    if (code == 0 && shape->way == WAY_WIDE) {
        code = blasd_regression_ridge(shape, &room->factor, fit, &doubt, err);
        fit->unsure = doubt > UNSURE_WIDE;
        doubled = !(doubt < DOUBLED_CONDITION) && blasd_regression_doubled(shape);
        if (code == 0 && !doubled && fit->need_residuals)
            blasd_regression_residuals(shape, data, fit, false);
        if (code == 0 && doubled) code = make_doubled(room, data, progress, err);
        if (!doubled) room->how = "qr with penalty";
        if (code != 0 || !doubled) return code;
    }
    room->how = doubled ? "qr with penalty in double-double" : "qr with penalty";
    return code == 0 ? solve_full(room, data, doubled, progress, err) : code;
}

static int fit_problem(struct room *room, const struct regression_data *data,
                       struct blasd_cpu_progress *progress, struct blasd_err *err);

/* lasso and elastic_net without absolute values. */
static int fit_as_ridge(struct room *room, const struct regression_data *data,
                        struct blasd_cpu_progress *progress, struct blasd_err *err) {
    const struct regression_shape *shape = room->shape;
    struct regression_shape ridge = blasd_regression_as_ridge(shape, data->total);
    int code;
    for (int64_t l = 0; l < shape->t; l++) {
        room->fit.n_iter[l] = 0;
        room->fit.dual_gap[l] = 0;
    }
    room->shape = &ridge;
    code = fit_problem(room, data, progress, err);
    room->shape = shape;
    return code;
}

/* Fits one problem. */
static int fit_problem(struct room *room, const struct regression_data *data,
                       struct blasd_cpu_progress *progress, struct blasd_err *err) {
    const struct regression_shape *shape = room->shape;
    struct regression_fit *fit = &room->fit;
    bool doubled;
    int code;
    fit->rank = shape->q;
    fit->unconverged = 0;
    fit->diverged = 0;
    fit->truncated = false;
    fit->unsure = false;
    fit->alone = false;
    fit->doubt = 0;
    fit->orthogonal = NULL;
    blasd_regression_tss(shape, data, room->tss);
    if (shape->method == METHOD_OLS || (shape->method == METHOD_RIDGE && shape->alpha == 0))
        return least_squares(room, data, progress, err);
    if (shape->method == METHOD_GD) {
        room->how = "gradient descent";
        return blasd_regression_descend(shape, data, fit, progress, err);
    }
    if (blasd_regression_smooth(shape)) return fit_as_ridge(room, data, progress, err);
    if (shape->method == METHOD_RIDGE) return ridge(room, data, progress, err);
    code = make_factor(room, data, &doubled, progress, err);
    if (code != 0) return code;
    room->how = "coordinate descent";
    code = blasd_regression_coordinate(shape, &room->factor, data->total, room->scaling.target, fit,
                                       progress, err);
    if (code == 0 && doubled && shape->q <= BLASD_REGRESSION_POLISHED)
        return blasd_regression_polish(shape, data, room->small, &room->factor,
                                       room->scaling.target, fit, err);
    if (code == 0 && fit->need_residuals) blasd_regression_residuals(shape, data, fit, false);
    return code;
}

/* Fits one problem; the penalty of ridge gets the unit that the weights have. */
static int fit_in_units(struct room *room, const struct regression_data *data,
                        struct blasd_cpu_progress *progress, struct blasd_err *err) {
    const struct regression_shape *shape = room->shape;
    struct regression_shape own = *shape;
    int code;
    if (shape->method == METHOD_RIDGE) own.alpha = ldexp(shape->alpha, -room->scaling.weight);
    room->shape = &own;
    code = fit_problem(room, data, progress, err);
    room->shape = shape;
    return code;
}

/* A thread's room for a problem of this shape, which makes it if need be. */
static int room_for(struct run *run, int slot, const struct regression_shape *shape,
                    struct room **ret, struct blasd_err *err) {
    struct room *room = *ret = &run->rooms[slot][shape->way];
    if (room->shape == NULL || room->made.n < shape->n) {
        struct regression_shape wanted = *shape;
        if (room->shape != NULL && wanted.n < 2 * room->made.n) wanted.n = 2 * room->made.n;
        room_release(room);
        memset(room, 0, sizeof *room);
        if (room_init(room, &wanted, err) != 0) return err->code;
    }
    room->shape = shape;
    if (room->small != NULL) blasd_regression_small_next(room->small, shape);
    if (room->tall != NULL) blasd_regression_tall_next(room->tall, shape);
    return 0;
}

/* Fits problem `at` of a task, and writes its outputs. */
static int fit_one(struct room *room, struct blasd_task *task, int64_t at,
                   struct regression_data *data, struct blasd_cpu_progress *progress,
                   struct blasd_err *err) {
    const struct regression_shape *shape = room->shape;
    struct regression_data given = *data;
    int code = blasd_regression_weights(shape, data, err);
    if (code == 0) code = blasd_regression_scale(shape, &room->scaling, data, err);
    if (code == 0) code = fit_in_units(room, data, progress, err);
    if (code == 0)
        code = blasd_regression_scale_columns(shape, &room->scaling, data, &room->fit, err);
    if (code == 0)
        code = blasd_regression_outputs(shape, task, at, data, &room->fit, room->tss, err);
    if (code == 0) blasd_regression_unscale(shape, &room->scaling, task, at, &room->fit);
    given.w = data->w;
    if (code == 0 && shape->certify)
        code = blasd_regression_prove(shape, &given, &room->factor, &room->fit, task, at, err);
    return code;
}

static double problem_work(const struct regression_shape *shape);

/* Whether a problem of the run is worked on alone. */
static bool is_long(const struct run *run, const struct regression_shape *shape) {
    return run->problems == 1 || problem_work(shape) >= PIECE_WORK;
}

/* Fits those of problems [from, to) of the run that are long, or those that are not. Errors of a
 * problem are its task's; a negative return means stop. */
static int fit_range(struct run *run, int slot, int64_t from, int64_t to, bool alone,
                     struct blasd_cpu_progress *progress, struct blasd_err *err) {
    int64_t problems = run->shape->problems;
    for (int64_t number = from; number < to; number++) {
        int64_t place = number / problems, at = number % problems;
        struct blasd_task *task = &run->tasks[place];
        struct regression_shape one = blasd_regression_one(run->shape, task, at);
        struct regression_data data;
        struct blasd_walk walk;
        struct room *room = NULL;
        struct blasd_err own = {0};
        int code, fault;
        if (run->refused[place] || is_long(run, &one) != alone) continue;
        if (!blasd_wanted()) return blasd_cpu_stopped(err);
        blasd_regression_walk(&one, task, at, &walk);
        data = blasd_regression_data(&one, task, &walk);
        fault = blasd_regression_group_fault(&one, &data);
        code = fault != 0 ? 0 : room_for(run, slot, &one, &room, &own);
        if (code == 0 && fault == 0) code = fit_one(room, task, at, &data, progress, &own);
        if (code != 0 && own.code == BLASD_E_cancelled) {
            *err = own;
            return code;
        }
        pthread_mutex_lock(&run->lock);
        if (code != 0) {
            task->err = own;
        } else if (fault != 0) {
            blasd_regression_without_fit(&one, task, at, fault, &run->counts[place]);
        } else {
            snprintf(task->method, sizeof task->method, "%s", room->how);
            blasd_regression_tally(&one, task, at, &data, &room->fit, &run->counts[place]);
        }
        pthread_mutex_unlock(&run->lock);
    }
    return 0;
}

static bool some_problems(void *arg, int64_t piece, int slot) {
    struct run *run = arg;
    struct blasd_cpu_progress quiet = {.total = 0}; /* the loop reports */
    return fit_range(run, slot, run->starts[piece], run->starts[piece + 1], false, &quiet,
                     &run->errors[slot]) == 0;
}

/* Operations of one problem, roughly in the time they take. */
static double problem_work(const struct regression_shape *shape) {
    double n = (double)shape->n, q = (double)shape->q, t = (double)shape->t;
    double work = 2 * n * q * (q + 2 * t) + 80 * n * q * t + 2000;
    if (shape->way == WAY_SMALL) work *= DOUBLE_DOUBLE;
    if (shape->method == METHOD_GD)
        work += (double)shape->iterations * t * 2 * q * (q < 2 * n ? q : 2 * n);
    if (shape->method == METHOD_LASSO || shape->method == METHOD_ELASTIC_NET)
        work += 400 * t * q * q;
    return work;
}

static void warn(const struct run *run) {
    int64_t problems = run->shape->problems;
    for (int64_t place = 0; place * problems < run->problems; place++)
        blasd_regression_warn(run->shape, &run->tasks[place], &run->counts[place]);
}

/* The same of one that is worked on alone, with what a problem with many coefficients takes in
 * LAPACK's long calls: factors, and singular values. */
static double work_alone(const struct regression_shape *shape) {
    double n = (double)shape->n, q = (double)shape->q, least = n < q ? n : q;
    double work = shape->way == WAY_WIDE ? 2000 : problem_work(shape);
    if (shape->way == WAY_SMALL || shape->method == METHOD_GD) return work;
    if (shape->method == METHOD_OLS) return work + (n < q ? 20 : 8) * least * least * q;
    return work + 4 * least * least * (n < q ? n + q : q);
}

/* Work in problems that are dealt out and that are worked on alone; and where pieces of the former
 * start, which follows from the shapes alone: how many. starts NULL: they are counted. */
struct cut {
    double dealt, alone;
    int64_t pieces;
};

static struct cut cut_run(const struct run *run, int64_t *starts) {
    struct cut cut = {0, 0, 0};
    double room = 0; /* in the piece at hand */
    for (int64_t number = 0; number < run->problems; number++) {
        int64_t place = number / run->shape->problems, at = number % run->shape->problems;
        struct regression_shape one;
        double work;
        if (run->refused[place]) continue;
        one = blasd_regression_one(run->shape, &run->tasks[place], at);
        if (is_long(run, &one)) {
            cut.alone += work_alone(&one);
            continue;
        }
        work = problem_work(&one);
        cut.dealt += work;
        if (work > room) {
            if (starts != NULL) starts[cut.pieces] = number;
            cut.pieces++;
            room = PIECE_WORK;
        }
        room -= work;
    }
    if (starts != NULL) starts[cut.pieces] = run->problems;
    return cut;
}

/* Runs everything: long problems one by one, all others dealt out to threads. */
static int run_all(struct run *run, int devices, struct blasd_watch *watch, struct blasd_err *err) {
    struct cut cut = cut_run(run, NULL);
    double all = cut.dealt + cut.alone;
    int threads = cut.dealt / THREADS_WORK < devices ? (int)(cut.dealt / THREADS_WORK) : devices;
    int code = 0;
    if (threads > BLASD_PARALLEL_MAX) threads = BLASD_PARALLEL_MAX;
    if (threads < 1) threads = 1;
    run->starts = blasd_cpu_alloc((size_t)cut.pieces + 1, sizeof *run->starts);
    if (run->starts == NULL)
        return blasd_fail(err, BLASD_E_out_of_memory, "", "no memory for the batch");
    (void)cut_run(run, run->starts);
    if (cut.alone > 0) {
        run->progress = (struct blasd_cpu_progress){.watch = watch, .total = all};
        blasd_regression_dense_tells(&run->progress);
        code = fit_range(run, 0, 0, run->problems, true, &run->progress, err);
        blasd_regression_dense_tells(NULL);
    }
    if (code != 0 || cut.pieces == 0) return code;
    if (!blasd_parallel_run(&(struct blasd_parallel){.piece = some_problems,
                                                     .arg = run,
                                                     .count = cut.pieces,
                                                     .threads = threads,
                                                     .watch = watch,
                                                     .from = cut.alone / all,
                                                     .to = 1}))
        return blasd_cpu_stopped(err);
    return 0;
}

int blasd_regression_unique(int64_t n, int64_t p, int64_t t, const double *x, const double *y,
                            double *coef, bool *sure, struct blasd_err *err) {
    struct regression_shape shape = {
        .method = METHOD_OLS, .n = n, .p = p, .q = p, .t = t, .dense = &blasd_regression_lapack};
    struct regression_data data = {.x = x, .y = y, .total = (double)n};
    struct blasd_cpu_progress quiet = {.total = 0};
    struct room room = {0};
    bool doubled;
    int code;
    blasd_regression_choose_way(&shape);
    code = room_init(&room, &shape, err);
    if (code == 0) code = make_factor(&room, &data, &doubled, &quiet, err);
    if (code == 0) code = solve_full(&room, &data, doubled, &quiet, err);
    for (int64_t i = 0; code == 0 && i < t * p; i++) coef[i] = room.fit.coef[i];
    *sure = !room.fit.unsure;
    room_release(&room);
    return code;
}

int blasd_regression_tasks(struct blasd_task *tasks, int count, int threads,
                           struct blasd_watch *watch, struct blasd_err *err) {
    struct regression_shape shape;
    struct run *run = calloc(1, sizeof *run);
    int code = blasd_regression_read(tasks[0].job, &shape, err);
    if (run == NULL) return blasd_fail(err, BLASD_E_out_of_memory, "", "no memory for the batch");
    if (code != 0) goto done;
    shape.dense = &blasd_regression_lapack;
    run->shape = &shape;
    run->tasks = tasks;
    pthread_mutex_init(&run->lock, NULL);
    run->problems = shape.problems * count;
    run->counts = calloc((size_t)count + 1, sizeof *run->counts);
    run->refused = calloc((size_t)count + 1, sizeof *run->refused);
    run->errors = calloc(BLASD_PARALLEL_MAX, sizeof *run->errors);
    if (run->counts == NULL || run->refused == NULL || run->errors == NULL) {
        code = blasd_fail(err, BLASD_E_out_of_memory, "", "no memory for the batch");
        goto done;
    }
    blasd_cpu_blas_alone(); /* calls are small, or made by threads of our own */
    for (int i = 0; i < count; i++) {
        snprintf(tasks[i].method, sizeof tasks[i].method, "none");
        run->refused[i] = blasd_regression_splits(&shape, &tasks[i], &tasks[i].err) != 0;
    }
    if (run->problems > 0) code = run_all(run, threads, watch, err);
    if (code == 0) warn(run);
    for (int i = 0; code == 0 && shape.correct && i < count; i++)
        if (tasks[i].err.code == BLASD_OK) blasd_exact_ols(&tasks[i], &shape, threads);
    if (code == 0 && !blasd_wanted()) code = blasd_cpu_stopped(err);
done:
    for (int i = 0; i < BLASD_PARALLEL_MAX; i++)
        for (int way = 0; way < WAYS; way++) room_release(&run->rooms[i][way]);
    if (run->shape != NULL) pthread_mutex_destroy(&run->lock);
    free(run->starts);
    free(run->refused);
    free(run->counts);
    free(run->errors);
    free(run);
    return code;
}

static int regression_run(struct blasd_device *device, struct blasd_task *tasks, int count,
                          struct blasd_watch *watch, struct blasd_err *err) {
    blasd_wanted_begin(watch);
    return blasd_wanted_end(blasd_regression_tasks(tasks, count, device->threads, watch, err), err);
}

const struct blasd_kernel blasd_cpu_regression = {.op = "regression", .run = regression_run};
