/* Distance on the CPU: which thread does which rows of which problem.
 *
 * Large problems are split into blocks of rows, one problem after the other; many small ones are
 * dealt to the threads whole. Either way an entry is computed by the same operations in the same
 * order, so results do not depend on the batch or the number of threads.
 * Read next: rows.c. */
#include "kernels/distance/distance.h"

#include "base/err.h"
#include "core/parallel.h"
#include "core/wanted.h"
#include "kernels/cpu/cpu.h"
#include "kernels/exact/exact.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define THREADS_WORK 4e6 /* operations from which another thread is worth starting */
#define PIECE_WORK 2e7   /* operations in a piece of work, about */

struct run {
    const struct distance_shape *shape;
    struct blasd_task *tasks;
    int64_t problems; /* in all tasks */
    double work;      /* of one problem, in operations */
    struct blasd_watch *watch;
    int threads;
    struct distance_room rooms[BLASD_PARALLEL_MAX];
    struct distance_problem ready[BLASD_PARALLEL_MAX]; /* one for each thread, or only the first */
    struct distance_note *notes;                       /* owned; of each problem */
    int64_t group; /* small problems that are one piece of work */
    /* of the large problem being worked on */
    struct distance_out out;
    int64_t block; /* rows in one piece of work */
    bool fill;
};

/* Fills `indices[o]` with which item of operand o (x, y) belongs to batch element `at`. */
static void operand_items(const struct distance_shape *shape, const struct blasd_task *task,
                          int64_t at, int64_t items[2]) {
    int64_t step[2] = {1, 1};
    items[0] = items[1] = 0;
    for (int b = shape->batch_rank - 1; b >= 0; b--) {
        int64_t index = at % shape->batch_shape[b];
        at /= shape->batch_shape[b];
        for (int o = 0; o < 2; o++) {
            const struct blasd_tensor *tensor = &task->inputs[o == 0 || shape->alone ? IN_X : IN_Y];
            int own = b - (shape->batch_rank - (tensor->rank - 2));
            if (own < 0) continue;
            if (tensor->shape[own] != 1) items[o] += index * step[o];
            step[o] *= tensor->shape[own];
        }
    }
}

struct distance_out blasd_distance_outputs(const struct distance_shape *shape,
                                           const struct blasd_task *task, int64_t at) {
    struct distance_out out = {0};
    const struct blasd_tensor *d = &task->outputs[OUT_D];
    int64_t elements = 1;
    for (int i = shape->batch_rank; i < d->rank; i++) elements *= d->shape[i];
    out.d = (char *)d->data + (size_t)(at * elements) * blasd_dtype_size(d->dtype);
    if (task->outputs[OUT_INDEX].rank >= 0)
        out.index = (int64_t *)task->outputs[OUT_INDEX].data + at * elements;
    if (task->outputs[OUT_ROW_SPLITS].rank >= 0)
        out.row_splits = (int64_t *)task->outputs[OUT_ROW_SPLITS].data + at * (shape->m + 1);
    return out;
}

struct distance_points blasd_distance_points(const struct distance_shape *shape,
                                             const struct blasd_task *task, int64_t at) {
    size_t size = blasd_dtype_size(shape->arithmetic);
    struct distance_points points = {task->inputs[IN_X].data, task->inputs[IN_Y].data};
    int64_t items[2];
    operand_items(shape, task, at, items);
    points.x += (size_t)(items[0] * shape->m * shape->k) * size;
    if (shape->alone)
        points.y = points.x;
    else
        points.y += (size_t)(items[1] * shape->n * shape->k) * size;
    return points;
}

/* Makes problem number `number` of the run ready; an error goes to its task. */
static int load(struct run *run, int64_t number, bool scaled, struct distance_problem *problem) {
    const struct distance_shape *shape = run->shape;
    struct blasd_task *task = &run->tasks[number / shape->problems];
    struct distance_points points = blasd_distance_points(shape, task, number % shape->problems);
    struct blasd_err err = {0};
    int code =
        blasd_distance_problem_load(problem, scaled, points.x, points.y, task->inputs[IN_W].data,
                                    task->inputs[IN_V].data, task->inputs[IN_VI].data, &err);
    if (code != 0)
        task->err = err;
    else
        run->notes[number] = blasd_distance_note(problem);
    return code;
}

/* Whether entries left the range, and the problem is to be computed again, scaled. If it was, notes
 * what is lost. `rooms`: those that were used. */
static bool is_left(struct run *run, int64_t number, const struct distance_problem *problem,
                    bool scaled, struct distance_room *rooms, int count) {
    int left = problem->left;
    for (int i = 0; i < count; i++) {
        left |= rooms[i].left;
        rooms[i].left = 0;
    }
    if (scaled) run->notes[number].below = (left & DISTANCE_BELOW) != 0;
    return left != 0 && !scaled && blasd_wanted();
}

/* Between the passes of within: counts become starts; what the lists do not need is marked. */
static int start_lists(struct run *run, int64_t number, const struct distance_out *out) {
    const struct distance_shape *shape = run->shape;
    struct blasd_task *task = &run->tasks[number / shape->problems];
    int64_t one = 1, done = 0;
    double infinity = INFINITY;
    struct blasd_tensor from = blasd_tensor_make(BLASD_float64, 1, &one);
    struct blasd_tensor to = blasd_tensor_make(shape->storage, 1, &one);
    out->row_splits[0] = 0;
    for (int64_t i = 0; i < shape->m; i++) out->row_splits[i + 1] += out->row_splits[i];
    if (out->row_splits[shape->m] > shape->pairs)
        return blasd_distance_no_room(shape, out->row_splits[shape->m], &task->err);
    from.data = &infinity;
    for (int64_t at = out->row_splits[shape->m]; at < shape->pairs; at++) {
        if (!blasd_wanted_after(&done, 10)) return -1;
        out->index[at] = -1;
        to.data = (char *)out->d + (size_t)at * blasd_dtype_size(shape->storage);
        blasd_tensor_convert(&from, &to);
    }
    return 0;
}

/* One problem whole, on one thread. */
static void small_problem(struct run *run, int64_t number, int slot) {
    const struct distance_shape *shape = run->shape;
    struct blasd_task *task = &run->tasks[number / shape->problems];
    struct distance_problem *problem = &run->ready[slot];
    struct distance_room *room = &run->rooms[slot];
    struct distance_out out = blasd_distance_outputs(shape, task, number % shape->problems);
    bool within = shape->output == OUTPUT_WITHIN;
    for (bool scaled = false;; scaled = true) {
        if (load(run, number, scaled, problem) != 0) return;
        if (within)
            blasd_distance_within(problem, room, 0, shape->m, false, &out);
        else
            blasd_distance_rows(problem, room, 0, shape->m, &out);
        if (!is_left(run, number, problem, scaled, room, 1)) break;
    }
    /* where not all is counted there are no lists */
    if (within && blasd_wanted() && start_lists(run, number, &out) == 0)
        blasd_distance_within(problem, room, 0, shape->m, true, &out);
}

/* A piece of work that is some small problems. */
static bool small_problems(void *arg, int64_t piece, int slot) {
    struct run *run = arg;
    int64_t end = (piece + 1) * run->group, done = 0, work = (int64_t)run->work + 500;
    if (end > run->problems) end = run->problems;
    for (int64_t number = piece * run->group; number < end && blasd_wanted_after(&done, work);
         number++)
        small_problem(run, number, slot);
    return blasd_wanted();
}

/* A piece of work that is some rows of the problem in run->ready[0]. */
static bool some_rows(void *arg, int64_t piece, int slot) {
    struct run *run = arg;
    int64_t from = piece * run->block, to = from + run->block;
    if (to > run->shape->m) to = run->shape->m;
    if (run->shape->output == OUTPUT_WITHIN)
        blasd_distance_within(&run->ready[0], &run->rooms[slot], from, to, run->fill, &run->out);
    else
        blasd_distance_rows(&run->ready[0], &run->rooms[slot], from, to, &run->out);
    return blasd_wanted();
}

/* False: stopped. */
static bool large_problem(struct run *run, int64_t number) {
    const struct distance_shape *shape = run->shape;
    struct blasd_task *task = &run->tasks[number / shape->problems];
    double from = (double)number / (double)run->problems, part = 1 / (double)run->problems;
    struct blasd_parallel loop = {.piece = some_rows,
                                  .arg = run,
                                  .count = (shape->m + run->block - 1) / run->block,
                                  .threads = run->threads,
                                  .watch = run->watch,
                                  .from = from,
                                  .to = from + part};
    bool within = shape->output == OUTPUT_WITHIN;
    run->out = blasd_distance_outputs(shape, task, number % shape->problems);
    run->fill = false;
    if (within) loop.to = from + part / 2;
    for (bool scaled = false;; scaled = true) {
        if (load(run, number, scaled, &run->ready[0]) != 0) return blasd_wanted();
        if (!blasd_parallel_run(&loop)) return false;
        if (!is_left(run, number, &run->ready[0], scaled, run->rooms, run->threads)) break;
    }
    if (!within) return true;
    if (start_lists(run, number, &run->out) != 0) return blasd_wanted();
    run->fill = true;
    loop.from = loop.to;
    loop.to = from + part;
    return blasd_parallel_run(&loop);
}

static int64_t at_least_one(double count, double most) {
    if (!(count < most)) count = most;
    return count < 1 ? 1 : (int64_t)count;
}

/* Splits the work; returns whether problems go to the threads whole. */
static bool divide(struct run *run, int devices) {
    const struct distance_shape *shape = run->shape;
    double all = run->work * (double)run->problems, row = run->work / (double)shape->m;
    bool whole = run->problems > 1 && run->work < PIECE_WORK;
    run->group = at_least_one(PIECE_WORK / run->work, (double)run->problems);
    run->block = blasd_distance_multiplies(shape) ? DISTANCE_BLOCK
                                                  : at_least_one(PIECE_WORK / row, DISTANCE_BLOCK);
    run->block = (run->block + DISTANCE_ROWS - 1) / DISTANCE_ROWS * DISTANCE_ROWS;
    run->threads = (int)at_least_one((whole ? all : run->work) / THREADS_WORK, devices);
    if (run->threads > BLASD_PARALLEL_MAX) run->threads = BLASD_PARALLEL_MAX;
    if (whole && run->threads > 1 && run->group > run->problems / run->threads)
        run->group = at_least_one((double)(run->problems / run->threads), (double)run->problems);
    return whole;
}

/* No pairs: lists are empty, and nothing else has an element. */
static void fill_empty(struct run *run) {
    if (run->shape->output != OUTPUT_WITHIN) return;
    for (int64_t number = 0; number < run->problems && blasd_wanted(); number++) {
        struct blasd_task *task = &run->tasks[number / run->shape->problems];
        struct distance_out out =
            blasd_distance_outputs(run->shape, task, number % run->shape->problems);
        memset(out.row_splits, 0, (size_t)(run->shape->m + 1) * sizeof *out.row_splits);
        start_lists(run, number, &out);
    }
}

static int run_all(struct blasd_device *device, struct blasd_task *tasks, int count,
                   struct blasd_watch *watch, struct blasd_err *err) {
    struct distance_shape shape;
    struct run *run = NULL;
    bool whole, done = true;
    int code = blasd_distance_read(tasks[0].job, &shape, err);
    if (code != 0) return code;
    for (int i = 0; shape.correct && i < count; i++)
        if (!blasd_exact_distance(&tasks[i], &shape, device->threads, watch))
            return blasd_cpu_stopped(err);
    if (shape.correct) return 0;
    run = calloc(1, sizeof *run);
    if (run == NULL) return blasd_fail(err, BLASD_E_out_of_memory, "", "no memory for the batch");
    blasd_cpu_blas_alone();
    run->shape = &shape;
    run->tasks = tasks;
    run->watch = watch;
    run->problems = shape.problems * count;
    run->work = blasd_distance_entry_work(&shape) * (double)shape.m * (double)shape.n;
    for (int i = 0; i < count; i++)
        snprintf(tasks[i].method, sizeof tasks[i].method, "%sdirect %s",
                 blasd_distance_multiplies(&shape) ? "sgemm and " : "",
                 shape.arithmetic == BLASD_float64 ? "float64" : "float32");
    if (run->problems == 0 || shape.m == 0 || shape.n == 0 ||
        (shape.output == OUTPUT_CONDENSED && shape.m == 1)) {
        fill_empty(run);
        goto done;
    }
    whole = divide(run, device->threads);
    run->notes = calloc((size_t)run->problems, sizeof *run->notes);
    if (run->notes == NULL) {
        code = blasd_fail(err, BLASD_E_out_of_memory, "", "no memory for the batch");
        goto done;
    }
    for (int i = 0; i < run->threads; i++) {
        code = blasd_distance_room_init(&run->rooms[i], &shape, err);
        if (code == 0 && (whole || i == 0))
            code = blasd_distance_problem_init(&run->ready[i], &shape, err);
        if (code != 0) goto done;
    }
    if (whole) {
        struct blasd_parallel loop = {.piece = small_problems,
                                      .arg = run,
                                      .count = (run->problems + run->group - 1) / run->group,
                                      .threads = run->threads,
                                      .watch = watch,
                                      .to = 1};
        done = blasd_parallel_run(&loop);
    }
    for (int64_t number = 0; !whole && done && number < run->problems; number++)
        done = large_problem(run, number);
    if (!done) code = blasd_cpu_stopped(err);
    for (int i = 0; done && i < count; i++)
        if (tasks[i].err.code == BLASD_OK)
            blasd_distance_warn(&tasks[i], &shape, run->notes + i * shape.problems, shape.problems);
done:
    for (int i = 0; i < BLASD_PARALLEL_MAX; i++) {
        blasd_distance_room_release(&run->rooms[i]);
        blasd_distance_problem_release(&run->ready[i]);
    }
    free(run->notes);
    free(run);
    return code;
}

static int distance_run(struct blasd_device *device, struct blasd_task *tasks, int count,
                        struct blasd_watch *watch, struct blasd_err *err) {
    blasd_wanted_begin(watch);
    return blasd_wanted_end(run_all(device, tasks, count, watch, err), err);
}

int blasd_distance_on_host(struct blasd_task *task, struct blasd_watch *watch,
                           struct blasd_err *err) {
    struct blasd_device host = {.threads = 1};
    return run_all(&host, task, 1, watch, err);
}

const struct blasd_kernel blasd_cpu_distance = {.op = "distance", .run = distance_run};
