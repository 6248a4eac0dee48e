/* solve on CUDA: our own kernels for up to 256 unknowns, whole systems in one launch; the library's
 * factors between our own steps above that, and solve_large.cu for systems that fill the device by
 * themselves. What is badly scaled, singular or ill-conditioned is left to the host's engine.
 *
 * Which way a system goes depends on its size and the number of its columns, not on its batch.
 * Read next: solve_small.cu, solve_kernels.cuh, then README.md for the method and the table of
 * ways. */
#include "kernels/solve/solve_kernels.cuh"
#include "kernels/solve/solve_large.cuh"

extern "C" {
#include "kernels/cuda/cuda_op.h"
#include "kernels/solve/certify.h"
#include "kernels/solve/embedding.h"
#include "kernels/solve/leftovers.h"
#include "kernels/solve/recheck.h"
#include "kernels/solve/solve_report.h"
}

#include <stdlib.h>
#include <string.h>

#define SMALL_MOST 32            /* unknowns */
#define FUSED_COLUMNS 32         /* more columns than this are shared out among blocks */
#define STEPS_MOST 1024          /* unknowns that one block can finish */
#define STEPS_BYTES (1ull << 30) /* of factors at a time */
#define BATCHED_ALWAYS 256       /* unknowns */

/* Systems of more unknowns, or jobs of more operations, join no mixed batch: beside what fills the
 * device by itself a small one would only wait. */
#define MIXED_UNKNOWNS 128
#define MIXED_FLOPS 2e8

enum way { WAY_NOTHING, WAY_BLOCKS, WAY_STEPS, WAY_LARGE };

struct solve_plan {
    struct blasd_solve solve;
    enum way way;
    bool single;
    struct solve_batch batch;
    struct solve_steps steps;
    int64_t chunk; /* systems of one round of steps */
    int threads;
    void **pointers; /* on the device: of each matrix of a chunk */
    int *pivots, *info;
    int64_t *wide_pivots;
    void *work, *host_work; /* of the library's factors one by one */
    size_t work_bytes, host_bytes;
    bool batched; /* the library's factors come from one call for all */
    int *flags;   /* on the host, of each system */
    struct solve_large large;
};

/* ---- what the job means ---- */

static void fill_walk(struct solve_batch *batch, const struct blasd_solve *s) {
    int64_t a = 1, b = 1;
    batch->walk_rank = s->batch_rank;
    for (int d = s->batch_rank - 1; d >= 0; d--) {
        int in_a = d - (s->batch_rank - s->a_rank), in_b = d - (s->batch_rank - s->b_rank);
        batch->walk[d] = s->batch[d];
        batch->walk_a[d] = in_a >= 0 && s->a_batch[in_a] != 1 ? a : 0;
        batch->walk_b[d] = in_b >= 0 && s->b_batch[in_b] != 1 ? b : 0;
        if (in_a >= 0) a *= s->a_batch[in_a];
        if (in_b >= 0) b *= s->b_batch[in_b];
    }
    batch->a_items = a;
    batch->items = s->batch_count;
}

static struct solve_shape shape_of(const struct blasd_task *task, const struct blasd_solve *s) {
    struct blasd_solve_layout layout =
        blasd_solve_layout(s, &task->inputs[BLASD_SOLVE_A], &task->inputs[BLASD_SOLVE_B]);
    struct solve_shape shape = {};
    shape.n = (int)s->n;
    shape.columns = (int)s->columns;
    shape.a_row = layout.a_row;
    shape.a_column = layout.a_column;
    shape.b_row = layout.b_row;
    shape.b_column = layout.b_column;
    shape.assume = layout.assume;
    shape.refinement = s->refinement;
    return shape;
}

static size_t room_bytes(const struct solve_plan *plan) {
    const struct solve_shape &shape = plan->batch.shape;
    return (size_t)(plan->single ? solve_room_bytes<float>(shape)
                                 : solve_room_bytes<double>(shape));
}

static enum way choose_way(const struct solve_plan *plan) {
    const struct blasd_solve *s = &plan->solve;
    if (s->n == 0 || s->batch_count == 0) return WAY_NOTHING;
    if (s->n > STEPS_MOST) return WAY_LARGE;
    if (s->columns > FUSED_COLUMNS || !solve_has_panels(plan->batch.shape)) return WAY_STEPS;
    return WAY_BLOCKS;
}

static struct solve_tensor input_of(const struct blasd_cuda_job *job, int i) {
    return {(char *)blasd_cuda_in(job, 0, i), blasd_cuda_in_step(job, i)};
}
static struct solve_tensor output_of(const struct blasd_cuda_job *job, int o) {
    return {(char *)blasd_cuda_out(job, 0, o), blasd_cuda_out_step(job, o)};
}

static void fill_batch(const struct blasd_cuda_job *job, struct solve_plan *plan) {
    struct solve_batch *batch = &plan->batch;
    batch->shape = shape_of(&job->tasks[0], &plan->solve);
    fill_walk(batch, &plan->solve);
    batch->a = input_of(job, BLASD_SOLVE_A);
    batch->b = input_of(job, BLASD_SOLVE_B);
    batch->x = output_of(job, BLASD_SOLVE_X);
    batch->info = output_of(job, BLASD_SOLVE_INFO);
    batch->rcond = output_of(job, BLASD_SOLVE_RCOND);
    batch->error = output_of(job, BLASD_SOLVE_BACKWARD_ERROR);
    batch->steps = output_of(job, BLASD_SOLVE_STEPS);
    batch->method = output_of(job, BLASD_SOLVE_METHOD);
    batch->total = plan->solve.batch_count * job->count;
}

/* ---- memory for the steps ---- */

/* Whether one call for all is the better one: measured by others, see README.md. `count`: matrices
 * of one job, for a library's two ways round differently, and what a job gets must not depend on
 * its batch. Small matrices go together even when a job has but one. */
static bool batched_call(bool single, int64_t n, int64_t count) {
    int64_t root = 1;
    if (n <= BATCHED_ALWAYS) return true;
    if (count < 2) return false;
    if (count == 2) return n * n <= (single ? 16800 : 4400);
    while ((root + 1) * (root + 1) <= count) root++;
    return n * n <= (single ? 18600 * count : 16600 * count * root);
}

static int take_steps(struct blasd_cuda_job *job, struct solve_plan *plan, struct blasd_err *err) {
    struct solve_steps *steps = &plan->steps;
    int64_t n = plan->solve.n, size = plan->single ? 4 : 8, square = n * n * size, matrices;
    int64_t most = (int64_t)STEPS_BYTES / square > 1 ? (int64_t)STEPS_BYTES / square : 1;
    int64_t own = plan->batch.a_items * job->count; /* matrices as the jobs have them */
    int code;
    steps->batch = plan->batch;
    steps->shared_matrices = own < plan->batch.total && own <= most;
    plan->chunk = steps->shared_matrices || plan->batch.total < most ? plan->batch.total : most;
    matrices = steps->shared_matrices ? own : plan->chunk;
    steps->parts = (int)((plan->solve.columns + SOLVE_COLUMNS_EACH - 1) / SOLVE_COLUMNS_EACH);
    if (steps->parts == 0) steps->parts = 1;
    code = blasd_cuda_take(job, (size_t)(matrices * square), &steps->factors, err);
    if (code == 0)
        code = blasd_cuda_take(job, (size_t)(matrices * solve_diagonal_count(n) * size),
                               &steps->diagonal, err);
    if (code == 0)
        code =
            blasd_cuda_take(job, (size_t)(matrices * n) * sizeof(int), (void **)&steps->order, err);
    if (code == 0)
        code = blasd_cuda_take(job, (size_t)matrices * sizeof *steps->states,
                               (void **)&steps->states, err);
    if (code == 0)
        code = blasd_cuda_take(job, (size_t)(plan->chunk * steps->parts) * sizeof *steps->outcomes,
                               (void **)&steps->outcomes, err);
    steps->matrices = matrices;
    return code;
}

/* What the library's factors need: pivots, info, addresses or room to work. */
static int take_library(struct blasd_cuda_job *job, struct solve_plan *plan,
                        struct blasd_err *err) {
    struct solve_steps *steps = &plan->steps;
    int64_t n = plan->solve.n, matrices = steps->matrices;
    int64_t square = n * n * (plan->single ? 4 : 8);
    enum blasd_dtype dtype = plan->single ? BLASD_float32 : BLASD_float64;
    bool definite = plan->batch.shape.assume == BLASD_ASSUME_POSITIVE_DEFINITE;
    void **table;
    int code;
    steps->by_library = definite || (!solve_has_panels(plan->batch.shape) &&
                                     (plan->batch.shape.assume == BLASD_ASSUME_GENERAL ||
                                      plan->batch.shape.assume == BLASD_ASSUME_SYMMETRIC));
    if (!steps->by_library) return 0;
    plan->batched = batched_call(plan->single, n, plan->batch.a_items);
    code = blasd_cuda_take(job, (size_t)matrices * sizeof(int), (void **)&plan->info, err);
    steps->info = plan->info;
    if (code != 0) return code;
    if (plan->batched) {
        code = blasd_cuda_table(job, (size_t)matrices * sizeof *table, (void **)&table,
                                (void **)&plan->pointers, err);
        for (int64_t m = 0; code == 0 && m < matrices; m++)
            table[m] = (char *)steps->factors + m * square;
        if (code == 0)
            code = blasd_cuda_take(job, (size_t)(matrices * n) * sizeof(int),
                                   (void **)&plan->pivots, err);
        steps->pivots = plan->pivots;
        return code;
    }
    code = blasd_cuda_take(job, (size_t)(matrices * n) * sizeof(int64_t),
                           (void **)&plan->wide_pivots, err);
    steps->wide_pivots = plan->wide_pivots;
    if (code == 0)
        code = definite ? job->calls->potrf_size(job->stream, dtype, false, n, n, &plan->work_bytes,
                                                 &plan->host_bytes, err)
                        : job->calls->getrf_size(job->stream, dtype, n, n, n, &plan->work_bytes,
                                                 &plan->host_bytes, err);
    if (code == 0) code = blasd_cuda_take(job, plan->work_bytes, &plan->work, err);
    if (code == 0) code = blasd_cuda_host(job, plan->host_bytes + 1, &plan->host_work, err);
    return code;
}

static int64_t at_most(int64_t blocks, int64_t most) {
    return blocks < most ? blocks : most;
}
static dim3 grid_of(int64_t blocks) {
    return dim3((unsigned)at_most(blocks, SOLVE_GRID_MOST));
}

/* ---- a block a system: a launch that jobs of any shape share ---- */

/* Of the block that has a system. */
static int threads_of(const struct blasd_solve *s, bool single) {
    return single && s->n <= 64 ? 64 : s->n <= 128 ? 128 : SOLVE_BLOCK_MOST;
}
/* As many blocks as run at a time. */
static int64_t blocks_at_once(const struct blasd_gpu_facts *facts, int threads) {
    return (int64_t)facts->units * (512 / threads);
}

/* As many blocks as run at a time, each with room of its own for factors, which stays in the second
 * cache. */
template <class T>
static int share_blocks(struct blasd_cuda_job *job, const struct solve_plan *plan,
                        struct blasd_err *err) {
    struct solve_batch batch = plan->batch;
    int64_t blocks = at_most(batch.total, SOLVE_GRID_MOST);
    int64_t each = solve_factors_count(batch.shape.n) * (int64_t)sizeof(T);
    int code = 0;
    batch.left = batch.shape.n <= SMALL_MOST && batch.shape.assume == BLASD_ASSUME_GENERAL;
    if (batch.left) code = solve_share_small(job, &batch, plan->single, err);
    blocks = at_most(blocks, blocks_at_once(job->facts, plan->threads));
    if (code == 0) code = blasd_cuda_take(job, (size_t)(blocks * each), &batch.factors, err);
    if (code != 0) return code;
    return blasd_cuda_share(job, batch.left ? 1 : 0, solve_by_blocks<T>, blocks, plan->threads,
                            room_bytes(plan), batch, err);
}

static int prepare(struct blasd_cuda_job *job, struct blasd_err *err) {
    struct solve_plan *plan;
    void *host;
    int code = blasd_cuda_host(job, sizeof *plan, &job->state, err);
    if (code != 0) return code;
    plan = (struct solve_plan *)job->state;
    plan->single = job->tasks[0].plan->input_dtype[0] == BLASD_float32;
    code = blasd_solve_read(job->tasks[0].job, &plan->solve, err);
    if (code != 0) return code;
    fill_batch(job, plan);
    plan->way = choose_way(plan);
    if (plan->way == WAY_NOTHING) return 0;
    plan->threads = threads_of(&plan->solve, plan->single);
    code = blasd_cuda_return(job, (size_t)plan->batch.total * sizeof(int), &host,
                             (void **)&plan->batch.flags, err);
    plan->flags = (int *)host;
    if (code == 0 && plan->way == WAY_STEPS) code = take_steps(job, plan, err);
    if (code == 0 && plan->way == WAY_STEPS) code = take_library(job, plan, err);
    if (code == 0 && plan->way == WAY_LARGE)
        code = solve_large_prepare(job, &plan->large, &plan->batch, plan->single, err);
    if (code == 0 && plan->way == WAY_BLOCKS)
        code = plan->single ? share_blocks<float>(job, plan, err)
                            : share_blocks<double>(job, plan, err);
    return code;
}

/* ---- the work ---- */

/* The library's factors of the matrices of a chunk. */
static int call_library(struct blasd_cuda_job *job, const struct solve_plan *plan, int64_t matrices,
                        struct blasd_err *err) {
    enum blasd_dtype dtype = plan->single ? BLASD_float32 : BLASD_float64;
    bool definite = plan->batch.shape.assume == BLASD_ASSUME_POSITIVE_DEFINITE;
    int n = plan->batch.shape.n, code = 0;
    int64_t square = (int64_t)n * n * (plan->single ? 4 : 8);
    if (plan->batched && definite)
        return job->calls->potrf_pointers(job->stream, dtype, false, n, plan->pointers, n,
                                          plan->info, (int)matrices, err);
    if (plan->batched)
        return job->calls->getrf_pointers(job->stream, dtype, n, plan->pointers, n, plan->pivots,
                                          plan->info, (int)matrices, err);
    for (int64_t m = 0; code == 0 && m < matrices; m++) {
        char *a = (char *)plan->steps.factors + m * square;
        if (definite)
            code =
                job->calls->potrf(job->stream, dtype, false, n, a, n, plan->work, plan->work_bytes,
                                  plan->host_work, plan->host_bytes, plan->info + m, err);
        else
            code = job->calls->getrf(job->stream, dtype, n, n, a, n, plan->wide_pivots + m * n,
                                     plan->work, plan->work_bytes, plan->host_work,
                                     plan->host_bytes, plan->info + m, err);
    }
    return code;
}

template <class T>
static int launch_steps(struct blasd_cuda_job *job, const struct solve_plan *plan,
                        struct blasd_err *err) {
    struct solve_steps steps = plan->steps;
    size_t bytes = room_bytes(plan);
    dim3 block((unsigned)plan->threads);
    int code = 0;
    for (int64_t first = 0; code == 0 && first < plan->batch.total; first += plan->chunk) {
        int64_t left = plan->batch.total - first;
        int64_t blocks;
        steps.first = first;
        steps.systems = left < plan->chunk ? left : plan->chunk;
        if (!steps.shared_matrices) steps.matrices = steps.systems;
        blocks = steps.systems * steps.parts;
        code = blasd_launch(solve_step_load<T>, grid_of(steps.matrices), block, bytes, job->stream,
                            err, steps);
        if (code == 0 && steps.by_library) code = call_library(job, plan, steps.matrices, err);
        if (code == 0)
            code = blasd_launch(solve_step_factor<T>, grid_of(steps.matrices), block, bytes,
                                job->stream, err, steps);
        if (code == 0)
            code = blasd_launch(solve_step_columns<T>, grid_of(blocks), block, bytes, job->stream,
                                err, steps);
        if (code == 0)
            code = blasd_launch(solve_step_report<T>, grid_of((steps.systems + 255) / 256),
                                dim3(256), 0, job->stream, err, steps);
    }
    return code;
}

static int compute(struct blasd_cuda_job *job, struct blasd_err *err) {
    struct solve_plan *plan = (struct solve_plan *)job->state;
    if (plan->way == WAY_LARGE) return solve_large_compute(job, &plan->large, err);
    if (plan->way != WAY_STEPS) return 0; /* nothing to do, or what prepare has shared out */
    return plan->single ? launch_steps<float>(job, plan, err)
                        : launch_steps<double>(job, plan, err);
}

/* An x that stays on the device, in whose elements blasd_solve_recheck would find nothing to look
 * at: none near the end of the range, nor small beside others. */
static bool is_even(const struct blasd_task *task, const struct blasd_solve *s, const int *flags) {
    const struct blasd_seen *seen = blasd_cuda_seen_of(task, BLASD_SOLVE_X);
    for (int64_t i = 0; i < s->batch_count; i++)
        if ((flags[i] & BLASD_SOLVE_LEFT) != 0) return false;
    return seen != nullptr &&
           blasd_solve_is_even(task, seen->least, seen->most, seen->first_zero >= 0);
}

static int finish(struct blasd_cuda_job *job, struct blasd_err *err) {
    const struct solve_plan *plan = (const struct solve_plan *)job->state;
    int64_t items = plan->solve.batch_count;
    int code = 0;
    for (int t = 0; t < job->count; t++) {
        struct blasd_task *task = &job->tasks[t];
        int *notes;
        if (plan->way == WAY_NOTHING) {
            blasd_solve_answer_empty(task, &plan->solve);
            continue;
        }
        if (plan->solve.certify || !is_even(task, &plan->solve, plan->flags + t * items))
            code = blasd_cuda_outputs_to_host(job, t, err);
        if (code == 0)
            code = blasd_solve_leftovers(task, &plan->solve, plan->flags + t * items, err);
        if (code == 0 && blasd_cuda_seen_of(task, BLASD_SOLVE_X) == nullptr)
            blasd_solve_recheck(task, &plan->solve, plan->flags + t * items);
        if (code == 0 && blasd_solve_refused(task, &plan->solve, plan->flags[t * items])) continue;
        if (code == 0) code = blasd_solve_certify(task, &plan->solve, 1, 0, 1, err);
        if (code != 0) return code;
        notes = blasd_cuda_notes(job, t);
        if (notes != NULL) {
            memcpy(notes, plan->flags + t * items, (size_t)items * sizeof *notes);
            continue;
        }
        blasd_solve_sum_up(task, &plan->solve, plan->single, plan->flags + t * items);
    }
    return 0;
}

/* ---- complex systems, as real ones ---- */

/* A batch in flight. `real`: NULL, or what flies in place of the tasks. */
struct solve_async {
    struct blasd_async_batch *inner;
    struct blasd_embedding *real; /* owned */
    struct blasd_task *tasks;     /* borrowed */
};

static void drop_async(struct solve_async *batch) {
    blasd_embedding_free(batch->real);
    free(batch);
}

static int begin(struct blasd_device *device, struct blasd_task *tasks, int count,
                 struct blasd_watch *watch, struct blasd_async_batch **ret, struct blasd_err *err) {
    struct solve_async *batch = (struct solve_async *)calloc(1, sizeof *batch);
    int code;
    if (batch == NULL) return blasd_fail(err, BLASD_E_out_of_memory, "", "no memory for a batch");
    batch->tasks = tasks;
    for (int t = 0; t < count; t++)
        if (blasd_dtype_parts(tasks[t].plan->input_dtype[BLASD_SOLVE_A]) > 1) {
            blasd_cuda_find_device_only(device, &tasks[t]);
            blasd_task_make_inputs(&tasks[t]); /* the host rearranges them */
        }
    code = blasd_embedding_new(tasks, count, &batch->real, err);
    if (code == 0)
        code = blasd_cuda_begin(device, batch->real != NULL ? batch->real->tasks : tasks, count,
                                watch, &batch->inner, err);
    if (code != 0)
        drop_async(batch);
    else
        *ret = (struct blasd_async_batch *)batch; /* which only `end` below will see */
    return code;
}

static int end(struct blasd_async_batch *begun, struct blasd_err *err) {
    struct solve_async *batch = (struct solve_async *)begun;
    int code = blasd_cuda_end(batch->inner, err);
    if (code == 0 && batch->real != NULL) blasd_embedding_take(batch->real, batch->tasks);
    drop_async(batch);
    return code;
}

static int run(struct blasd_device *device, struct blasd_task *tasks, int count,
               struct blasd_watch *watch, struct blasd_err *err) {
    struct blasd_async_batch *batch = nullptr;
    int code = begin(device, tasks, count, watch, &batch, err);
    return code != 0 ? code : end(batch, err);
}

/* Small real systems of any shape share a batch. */
static void batch_key(const struct blasd_job *job, const struct blasd_plan *plan,
                      struct blasd_key *ret) {
    const struct blasd_tensor *a = &job->inputs[BLASD_SOLVE_A].tensor;
    enum blasd_dtype dtype = plan->input_dtype[BLASD_SOLVE_A];
    if (blasd_dtype_parts(dtype) > 1 || plan->flops > MIXED_FLOPS ||
        a->shape[a->rank - 1] > MIXED_UNKNOWNS)
        return;
    ret->len = 0;
    blasd_key_add_int(ret, dtype);
}

/* A stack of systems with matrices and columns of their own; pieces have enough of them to keep
 * all multiprocessors busy. Of larger systems the library's way depends on how many there are. */
static void stack_of(const struct blasd_task *task, const struct blasd_gpu_facts *facts,
                     struct blasd_cuda_stack *ret) {
    struct blasd_solve s;
    struct blasd_err ignored;
    bool single = task->plan->input_dtype[BLASD_SOLVE_A] == BLASD_float32;
    if (blasd_solve_read(task->job, &s, &ignored) != 0 || s.n > BATCHED_ALWAYS) return;
    if (s.a_rank != s.batch_rank || s.b_rank != s.batch_rank || s.batch_rank == 0) return;
    if (s.batch_count == 0) return;
    ret->problems = s.batch_count;
    ret->grain = blocks_at_once(facts, threads_of(&s, single)) * s.batch[0] / s.batch_count;
    if (ret->grain < 1) ret->grain = 1;
}

static void join(struct blasd_task *task, const int *flags) {
    struct blasd_solve s;
    struct blasd_err ignored;
    if (blasd_solve_read(task->job, &s, &ignored) != 0) return;
    blasd_solve_sum_up(task, &s, task->plan->input_dtype[BLASD_SOLVE_A] == BLASD_float32, flags);
}

extern "C" const struct blasd_cuda_op blasd_cuda_solve = {
    .kernel = {"solve", run, begin, end, batch_key, NULL, ~0u},
    .choose = nullptr,
    .prepare = prepare,
    .compute = compute,
    .finish = finish,
    .stack = stack_of,
    .residents = UINT64_C(1) << BLASD_SOLVE_X,
    .join = join,
};
