/* solve on the CPU: the systems of all jobs in a batch are one list, cut into pieces that threads
 * take; small general ones go through the lanes, the rest through the engine one by one.
 *
 * Read next: README.md for the method, systems.h for the two solvers. */
#include "core/parallel.h"
#include "core/wanted.h"
#include "kernels/cpu/cpu.h"
#include "kernels/exact/exact.h"
#include "kernels/solve/certify.h"
#include "kernels/solve/embedding.h"
#include "kernels/solve/kept.h"
#include "kernels/solve/recheck.h"
#include "kernels/solve/solve_report.h"
#include "kernels/solve/systems.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PIECE_WORK 3e5    /* work, in operations or so, of a piece: a tenth of a millisecond */
#define THREADS_WORK 5e6  /* below this a second thread costs more than it brings */
#define MOST_IN_PIECE 512 /* systems */
#define SOLVED 0.2        /* of the progress, where what was solved is certified */

/* What one thread works with. */
struct bench {
    struct blasd_engine *engine; /* owned; made when first needed */
    void *lanes;                 /* owned */
};

struct batch {
    struct blasd_task *tasks; /* borrowed */
    struct blasd_solve solve;
    struct blasd_systems shape;
    bool single, use_lanes;
    int64_t total, in_piece, pieces;
    struct blasd_watch *watch; /* borrowed; for loops within a system */
    int *flags;                /* owned: of each system */
    struct bench benches[BLASD_PARALLEL_MAX];
};

static bool run_engine(struct batch *batch, struct bench *bench, struct blasd_system *system,
                       int64_t at) {
    /* as if all pieces were whole, as the loop over them counts */
    double all = (double)(batch->pieces * batch->in_piece);
    if (bench->engine == NULL) bench->engine = blasd_engine_new(&batch->shape, batch->single);
    if (bench->engine == NULL) {
        blasd_fail(&batch->tasks[at / batch->solve.batch_count].err, BLASD_E_out_of_memory, "",
                   "no memory to solve in");
        return true;
    }
    if (batch->solve.certify) all /= SOLVED;
    return blasd_engine_run(bench->engine, system, batch->watch, (double)at / all,
                            (double)(at + 1) / all);
}

/* The systems at, at+1, … of one call of the lanes; those that need it go to the engine. */
static bool run_lanes(struct batch *batch, struct bench *bench, struct blasd_system *systems,
                      int count, int64_t at) {
    if (batch->single)
        blasd_lanes_run_f32(&batch->shape, systems, count, bench->lanes);
    else
        blasd_lanes_run_f64(&batch->shape, systems, count, bench->lanes);
    for (int i = 0; i < count; i++)
        if (systems[i].leave_to_all && !run_engine(batch, bench, &systems[i], at + i)) return false;
    return true;
}

static bool run_piece(void *arg, int64_t piece, int slot) {
    struct batch *batch = arg;
    struct bench *bench = &batch->benches[slot];
    const struct blasd_solve *s = &batch->solve;
    int64_t at = piece * batch->in_piece, end = at + batch->in_piece;
    int width = batch->use_lanes ? blasd_lanes_width(batch->single) : 1, count;
    int64_t work = width * (s->n * s->n * 30 + 500), done = 0;
    struct blasd_system systems[BLASD_LANES_MAX];
    struct blasd_walk walk;
    if (end > batch->total) end = batch->total;
    blasd_walk_init(&walk, s->batch_rank, s->batch);
    blasd_walk_operand(&walk, 0, s->a_rank, s->a_batch);
    blasd_walk_operand(&walk, 1, s->b_rank, s->b_batch);
    blasd_walk_seek(&walk, at % s->batch_count);
    for (; at < end && blasd_wanted_after(&done, work); at += count) {
        for (count = 0; count < width && at + count < end; count++) {
            systems[count] = blasd_system_of(&batch->tasks[(at + count) / s->batch_count], s, &walk,
                                             (at + count) % s->batch_count);
            blasd_walk_next(&walk);
        }
        if (batch->use_lanes ? !run_lanes(batch, bench, systems, count, at)
                             : !run_engine(batch, bench, systems, at))
            return false;
        for (int i = 0; i < count; i++)
            batch->flags[at + i] = blasd_system_publish(&batch->tasks[(at + i) / s->batch_count],
                                                        (at + i) % s->batch_count, &systems[i]);
    }
    return blasd_wanted();
}

static int make_benches(struct batch *batch, int threads, struct blasd_err *err) {
    for (int t = 0; batch->use_lanes && t < threads; t++) {
        batch->benches[t].lanes = blasd_cpu_alloc(blasd_lanes_bytes(batch->solve.n), 1);
        if (batch->benches[t].lanes == NULL)
            return blasd_fail(err, BLASD_E_out_of_memory, "", "no memory to solve in");
    }
    return 0;
}

/* How the list is cut, and on how many threads it runs. */
static int choose(struct batch *batch, const struct blasd_device *device, int count) {
    const struct blasd_solve *s = &batch->solve;
    double n = (double)s->n, work = n * n * n + n * n * (30 + 15 * (double)s->columns) + 2000;
    struct blasd_tensor a = blasd_tensor_make(BLASD_float64, s->a_rank, s->a_batch);
    bool shared = s->batch_count > 1 && blasd_tensor_elements(&a) == 1;
    int threads = device->threads < BLASD_PARALLEL_MAX ? device->threads : BLASD_PARALLEL_MAX;
    int width = blasd_lanes_width(batch->single);
    batch->total = s->batch_count * count;
    batch->use_lanes = s->assume == BLASD_ASSUME_GENERAL && s->n <= BLASD_LANES_N && !shared;
    batch->in_piece = work < PIECE_WORK ? (int64_t)(PIECE_WORK / work) : 1;
    if (batch->in_piece > MOST_IN_PIECE) batch->in_piece = MOST_IN_PIECE;
    if (batch->use_lanes) batch->in_piece = (batch->in_piece + width - 1) / width * width;
    /* one matrix for all: its factors are made once in a piece */
    if (shared) batch->in_piece = s->batch_count / (4 * threads) + 1;
    /* threads share a large system, one after the other */
    if (work >= BLASD_CPU_THREADS_FLOPS) batch->shape.threads = threads;
    if (work >= BLASD_CPU_THREADS_FLOPS || work * (double)batch->total < THREADS_WORK) threads = 1;
    batch->pieces = (batch->total + batch->in_piece - 1) / batch->in_piece;
    blasd_cpu_blas_alone();
    return threads;
}

static int run_all(struct blasd_device *device, struct blasd_task *tasks, int count,
                   struct blasd_watch *watch, struct blasd_err *err) {
    struct batch *batch = calloc(1, sizeof *batch);
    struct blasd_parallel loop = {.piece = run_piece, .watch = watch, .to = 1};
    int code = 0;
    if (batch == NULL) return blasd_fail(err, BLASD_E_out_of_memory, "", "no memory to solve in");
    batch->tasks = tasks;
    batch->single = tasks[0].plan->input_dtype[0] == BLASD_float32;
    code = blasd_solve_read(tasks[0].job, &batch->solve, err);
    if (code != 0) goto done;
    if (batch->solve.n == 0 || batch->solve.batch_count == 0) {
        for (int t = 0; t < count; t++) blasd_solve_answer_empty(&tasks[t], &batch->solve);
        goto done;
    }
    batch->shape = blasd_systems_of(&tasks[0], &batch->solve);
    loop.threads = choose(batch, device, count);
    batch->flags = calloc((size_t)batch->total, sizeof *batch->flags);
    if (batch->flags == NULL) {
        code = blasd_fail(err, BLASD_E_out_of_memory, "", "no memory to solve in");
        goto done;
    }
    code = make_benches(batch, loop.threads, err);
    if (code != 0) goto done;
    batch->watch = loop.threads == 1 ? watch : NULL;
    loop.arg = batch;
    loop.count = batch->pieces;
    if (batch->solve.certify) loop.to = SOLVED;
    if (!blasd_parallel_run(&loop)) {
        code = blasd_cpu_stopped(err);
        goto done;
    }
    for (int t = 0; t < count; t++) {
        if (tasks[t].err.code != BLASD_OK) continue;
        blasd_solve_recheck(&tasks[t], &batch->solve, batch->flags + t * batch->solve.batch_count);
        if (blasd_solve_refused(&tasks[t], &batch->solve,
                                batch->flags[t * batch->solve.batch_count]))
            continue;
        code = blasd_solve_certify(&tasks[t], &batch->solve, device->threads,
                                   loop.to + (1 - loop.to) * t / count,
                                   loop.to + (1 - loop.to) * (t + 1) / count, err);
        if (code != 0) goto done;
        blasd_solve_sum_up(&tasks[t], &batch->solve, batch->single,
                           batch->flags + t * batch->solve.batch_count);
    }
done:
    for (int t = 0; code == 0 && t < count && tasks[t].outputs[BLASD_SOLVE_UNPROVEN].rank >= 0; t++)
        if (!blasd_exact_solve(&tasks[t], &batch->solve, device->threads, watch))
            code = blasd_cpu_stopped(err);
    for (int t = 0; t < BLASD_PARALLEL_MAX; t++) {
        blasd_engine_free(batch->benches[t].engine);
        free(batch->benches[t].lanes);
    }
    free(batch->flags);
    free(batch);
    return code;
}

static int run_matrices(struct blasd_device *device, struct blasd_task *tasks, int count,
                        struct blasd_watch *watch, struct blasd_err *err) {
    struct blasd_embedding *real;
    int code;
    code = blasd_embedding_new(tasks, count, &real, err);
    if (code == 0) code = run_all(device, real != NULL ? real->tasks : tasks, count, watch, err);
    if (code == 0 && real != NULL) blasd_embedding_take(real, tasks);
    blasd_embedding_free(real);
    return code;
}

/* A job that gives factors, as the one that gives the matrix within them. The factors are used
 * where they are those that the job needs: of a in the dtype of x, not transposed. */
static int run_factor(struct blasd_device *device, struct blasd_task *task,
                      struct blasd_watch *watch, struct blasd_err *err) {
    const struct blasd_job *job = task->job;
    struct blasd_tensor kept = task->inputs[BLASD_SOLVE_FACTOR], matrix, *a;
    enum blasd_dtype dtype = task->plan->input_dtype[BLASD_SOLVE_A];
    struct blasd_job stand_in;
    void *wide = NULL;
    int code;
    if (blasd_kept_check(&kept, &task->err) != 0) return 0;
    blasd_solve_stand_in(job, &stand_in);
    stand_in.params[BLASD_SOLVE_ASSUME_A].choice = (int)blasd_kept_assume(&kept);
    a = &task->inputs[BLASD_SOLVE_A];
    *a = matrix = blasd_kept_matrix(&kept);
    if (dtype != kept.dtype) {
        *a = blasd_tensor_make(dtype, 2, matrix.shape);
        a->data = wide = blasd_cpu_alloc((size_t)blasd_tensor_bytes(a) + 1, 1);
        if (wide == NULL) return blasd_fail(err, BLASD_E_out_of_memory, "", "no memory for a");
        blasd_tensor_convert(&matrix, a);
    }
    if (wide != NULL || job->params[BLASD_SOLVE_TRANSPOSED].b)
        task->inputs[BLASD_SOLVE_FACTOR].data = NULL;
    stand_in.inputs[BLASD_SOLVE_A].tensor.order = a->order;
    task->job = &stand_in;
    code = run_matrices(device, task, 1, watch, err);
    task->job = job;
    task->inputs[BLASD_SOLVE_FACTOR] = kept;
    a->data = NULL;
    free(wide);
    return code;
}

static int run(struct blasd_device *device, struct blasd_task *tasks, int count,
               struct blasd_watch *watch, struct blasd_err *err) {
    int code;
    blasd_wanted_begin(watch);
    code = blasd_job_has(tasks[0].job, BLASD_SOLVE_FACTOR)
               ? run_factor(device, tasks, watch, err)
               : run_matrices(device, tasks, count, watch, err);
    return blasd_wanted_end(code, err);
}

const struct blasd_kernel blasd_cpu_solve = {.op = "solve", .run = run};
