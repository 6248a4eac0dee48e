/* Regression on the CPU: which problem is fitted where, and its outputs.
 *
 * Read next: qr_small.c. */
#include "kernels/regression/regression.h"

#include "base/err.h"
#include "kernels/cpu/cpu.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Where problem `at` of a task finds its operands. */
static int problem_data(const struct regression_shape *shape, struct blasd_task *task,
                        const struct blasd_walk *walk, struct regression_data *data) {
    data->x = (const double *)task->inputs[IN_X].data + walk->offset[0] * shape->n * shape->p;
    data->y = (const double *)task->inputs[IN_Y].data + walk->offset[1] * shape->n * shape->t;
    data->w = NULL;
    if (!shape->weighted) return 0;
    data->w = (const double *)task->inputs[IN_WEIGHT].data + walk->offset[2] * shape->n;
    for (int64_t i = 0; i < shape->n; i++)
        if (!(data->w[i] >= 0))
            return blasd_fail(&task->err, BLASD_E_invalid_tensor, "inputs.sample_weight",
                              "weight %lld is %g: weights must not be negative", (long long)i,
                              data->w[i]);
    return 0;
}

static void put(const struct blasd_tensor *output, int64_t at, double value) {
    if (output->dtype == BLASD_float32)
        ((float *)output->data)[at] = (float)value;
    else
        ((double *)output->data)[at] = value;
}

static void put_fit(const struct regression_shape *shape, struct blasd_task *task, int64_t at,
                    const struct regression_fit *fit) {
    int64_t first = shape->intercept ? 1 : 0;
    for (int64_t target = 0; target < shape->t; target++) {
        const double *coef = fit->coef + target * shape->q;
        int64_t place = at * shape->t + target;
        for (int64_t j = 0; j < shape->p; j++)
            put(&task->outputs[OUT_COEF], place * shape->p + j, coef[first + j]);
        put(&task->outputs[OUT_INTERCEPT], place, shape->intercept ? coef[0] : 0);
        put(&task->outputs[OUT_SSR], place, fit->ssr[target]);
        put(&task->outputs[OUT_R2], place, 1 - fit->ssr[target] / fit->tss[target]);
    }
    ((int64_t *)task->outputs[OUT_RANK].data)[at] = fit->rank;
    ((int64_t *)task->outputs[OUT_DF_MODEL].data)[at] = fit->rank - first;
    ((int64_t *)task->outputs[OUT_DF_RESID].data)[at] = shape->n - fit->rank;
}

struct room {
    struct regression_small *small;
    struct regression_fit fit;
};

static int room_init(struct room *room, const struct regression_shape *shape,
                     struct blasd_err *err) {
    size_t t = (size_t)shape->t, q = (size_t)shape->q, n = (size_t)shape->n;
    memset(room, 0, sizeof *room);
    room->small = blasd_regression_small_new(shape);
    room->fit.coef = blasd_cpu_alloc(t * q, sizeof(double));
    room->fit.residual = blasd_cpu_alloc(t * n, sizeof(double));
    room->fit.ssr = blasd_cpu_alloc(t, sizeof(double));
    room->fit.tss = blasd_cpu_alloc(t, sizeof(double));
    if (room->small != NULL && room->fit.coef != NULL && room->fit.residual != NULL &&
        room->fit.ssr != NULL && room->fit.tss != NULL)
        return 0;
    return blasd_fail(err, BLASD_E_out_of_memory, "", "no memory for the factors");
}

static void room_release(struct room *room) {
    blasd_regression_small_free(room->small);
    free(room->fit.coef);
    free(room->fit.residual);
    free(room->fit.ssr);
    free(room->fit.tss);
}

static int run_task(const struct regression_shape *shape, struct blasd_task *task,
                    struct room *room, struct blasd_cpu_progress *progress) {
    const struct blasd_tensor *in = task->inputs;
    struct blasd_walk walk;
    double work = 30.0 * (double)shape->n * (double)shape->q * (double)(shape->q + shape->t);
    int64_t deficient = 0;
    snprintf(task->method, sizeof task->method, "qr double-double");
    blasd_walk_init(&walk, shape->batch_rank, shape->batch_shape);
    blasd_walk_operand(&walk, 0, in[IN_X].rank - 2, in[IN_X].shape);
    blasd_walk_operand(&walk, 1, in[IN_X].rank - 2, in[IN_Y].shape);
    if (shape->weighted) blasd_walk_operand(&walk, 2, in[IN_WEIGHT].rank - 1, in[IN_WEIGHT].shape);
    for (int64_t at = 0; at < shape->problems; at++, blasd_walk_next(&walk)) {
        struct regression_data data;
        if (problem_data(shape, task, &walk, &data) != 0) return 0;
        if (blasd_regression_small_fit(room->small, &data, &room->fit, &task->err) != 0) return 0;
        if (room->fit.rank < shape->q) deficient++;
        put_fit(shape, task, at, &room->fit);
        if (!blasd_cpu_step(progress, work)) return -1;
    }
    if (deficient > 0 && shape->problems == 1)
        blasd_task_warn(task,
                        "the design has rank %lld of %lld: this is the solution of least norm",
                        (long long)room->fit.rank, (long long)shape->q);
    else if (deficient > 0)
        blasd_task_warn(task, "%lld of %lld designs are rank-deficient: solutions of least norm",
                        (long long)deficient, (long long)shape->problems);
    return 0;
}

static int regression_run(struct blasd_device *device, struct blasd_task *tasks, int count,
                          struct blasd_watch *watch, struct blasd_err *err) {
    struct regression_shape shape;
    struct blasd_cpu_progress progress = {.watch = watch};
    struct room room;
    int code = blasd_regression_read(tasks[0].job, &shape, err);
    if (code != 0) return code;
    blasd_cpu_blas_threads(device, 0);
    progress.total = 30.0 * (double)shape.n * (double)shape.q * (double)(shape.q + shape.t) *
                     (double)shape.problems * count;
    code = room_init(&room, &shape, err);
    for (int i = 0; code == 0 && i < count; i++)
        if (run_task(&shape, &tasks[i], &room, &progress) != 0) code = blasd_cpu_stopped(err);
    room_release(&room);
    return code;
}

const struct blasd_kernel blasd_cpu_regression = {.op = "regression", .run = regression_run};
