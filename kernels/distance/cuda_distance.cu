/* distance on CUDA: which kernel does which blocks, and what comes back.
 *
 * All problems of a batch are one launch: a block finds its problem by its number. A matrix that
 * does not fit the device comes in rows, each block of them going down while the next is computed.
 * Read next: pair_calls.cuh and pair_prepare.cu, then README.md for the method and cpu_distance.c
 * for the same without a GPU. */
#include "kernels/distance/pair_state.cuh"

#include <math.h>
#include <stdio.h>

#define SLICE_PAIRS 16777216.0 /* entries from which a job is computed in more than one launch */
#define SLICE_MOST 8           /* such launches, where not the arithmetic asks for more */
#define SLICE_WORK 5e11        /* operations of a launch: what may go on after a job is cancelled */

static void choose(const struct blasd_task *task, const struct blasd_gpu_facts *facts,
                   struct blasd_cuda_moves *moves) {
    if (pair_too_large(task, facts)) moves->outputs = 0;
}

/* ---- the work ---- */

static int make_ready(struct blasd_cuda_job *job, const struct pair_state *state,
                      struct blasd_err *err) {
    int code = 0;
    for (int i = 0; code == 0 && i < state->ready_count; i++)
        code = pair_make_ready(job, state->ready[i], err);
    if (code == 0 && state->reciprocals > 0)
        code = pair_reciprocals(job, (const double *)blasd_cuda_in(job, 0, IN_V),
                                (double *)(void *)state->weights, state->reciprocals, err);
    if (code == 0 && state->variances)
        code = pair_variances(job, state->args, state->statistics, (double *)(void *)state->weights,
                              err);
    if (code == 0 && state->covariances)
        code = pair_covariances(job, state->args, state->statistics,
                                (double *)(void *)state->inverse, err);
    return code;
}

/* Launches `blocks` blocks by `launch(first, count)`, in slices between which a long job says how
 * far it is and may be stopped. From `from` to `to`: the part of the job's progress that this is.
 */
template <class Launch>
static int in_slices(struct blasd_cuda_job *job, const struct pair_state *state, int64_t blocks,
                     double from, double to, Launch launch, struct blasd_err *err) {
    double pairs = (double)state->problems * (double)state->shape.m * (double)state->shape.n;
    double slices = ceil(pairs / SLICE_PAIRS),
           heavy = ceil(pairs * pair_entry_work(state) / SLICE_WORK);
    int64_t each;
    if (slices > SLICE_MOST) slices = SLICE_MOST;
    if (slices < heavy) slices = heavy;
    each = (int64_t)ceil((double)blocks / (slices < 1 ? 1 : slices));
    if (each > INT32_MAX) each = INT32_MAX;
    for (int64_t first = 0; first < blocks; first += each) {
        int64_t count = blocks - first < each ? blocks - first : each;
        double done = from + (to - from) * (double)first / (double)blocks;
        int code = 0;
        if (slices > 1 && !blasd_cuda_go_on(job, done)) return blasd_cuda_stopped(err);
        /* what cannot be taken back stays short */
        if (heavy > 1 && first > 0) code = blasd_cuda_pause(job, err);
        if (code == 0) code = launch(first, count);
        if (code != 0) return code;
    }
    return 0;
}

static const struct pair_kernels *kernels_of(const struct pair_state *state) {
    return state->shape.arithmetic == BLASD_float64 ? &pair_kernels_f64 : &pair_kernels_f32;
}

static int64_t matrix_blocks(const struct pair_args &args, const struct pair_matrix &matrix) {
    int64_t side = (int64_t)matrix.strip * PAIR_SIDE;
    return pair_tiles(args.n) * ((args.m + side - 1) / side);
}

static int run_matrix(struct blasd_cuda_job *job, const struct pair_state *state,
                      struct blasd_err *err) {
    return in_slices(
        job, state, matrix_blocks(state->args, state->matrix) * state->problems, 0, 1,
        [=](int64_t first, int64_t count) {
            return kernels_of(state)->launch_matrix(job->stream, state->loop.loop, state->args,
                                                    state->matrix, first, count, err);
        },
        err);
}

/* Rows from `row` on of one problem, as a problem of their own. */
static struct pair_args some_rows(const struct pair_state *state, int64_t number, int64_t row,
                                  int64_t rows) {
    struct pair_args args = state->args;
    int64_t task = number / args.problems, item = number % args.problems;
    args.x.base += task * args.x.task_step + pair_item(args, args.x, item) * args.x.item_bytes +
                   row * args.k * (int64_t)state->size;
    args.y.base += task * args.y.task_step + pair_item(args, args.y, item) * args.y.item_bytes;
    if (args.w != nullptr) args.w += task * args.w_task + item * args.w_item;
    if (args.v != nullptr) args.v += task * args.v_task + item * args.v_item;
    args.flags += task;
    args.rank = 0;
    args.problems = 1;
    args.first_row = row;
    args.m = rows;
    return args;
}

/* Entries of a problem's output before those of row `row`. */
static int64_t entries_before(const struct pair_state *state, int64_t row) {
    int64_t n = state->shape.n;
    return state->matrix.condensed ? row * (2 * n - row - 1) / 2 : row * n;
}

/* A matrix that does not fit: rows are computed into one of two buffers while the other goes down.
 */
static int run_stream(struct blasd_cuda_job *job, struct pair_state *state, struct blasd_err *err) {
    int64_t m = state->shape.m, element = (int64_t)blasd_dtype_size(state->shape.storage);
    int turn = 0, code = 0;
    for (int64_t at = 0; code == 0 && at < state->problems; at++) {
        struct blasd_task *task = &job->tasks[at / state->shape.problems];
        char *host = (char *)task->outputs[OUT_D].data +
                     at % state->shape.problems * state->matrix.item_bytes;
        for (int64_t row = 0; code == 0 && row < m; row += state->rows_each, turn ^= 1) {
            int64_t rows = m - row < state->rows_each ? m - row : state->rows_each;
            int64_t from = entries_before(state, row), to = entries_before(state, row + rows);
            struct pair_args args = some_rows(state, at, row, rows);
            struct pair_matrix matrix = state->matrix;
            double done = ((double)at + (double)row / (double)m) / (double)state->problems;
            if (!blasd_cuda_go_on(job, done)) return blasd_cuda_stopped(err);
            if (state->sent[turn] >= 0) code = blasd_cuda_sent(job, state->sent[turn], err);
            matrix.d = state->rows[turn];
            matrix.offset = matrix.condensed ? from : 0;
            if (code == 0)
                code = kernels_of(state)->launch_matrix(job->stream, state->loop.loop, args, matrix,
                                                        0, matrix_blocks(args, matrix), err);
            if (code == 0)
                code = blasd_cuda_send(job, host + from * element, matrix.d,
                                       (size_t)((to - from) * element), &state->sent[turn], err);
        }
    }
    return code;
}

/* Waits now and then, so that not too much is queued that a cancelled job could not take back. */
static int stay_short(struct blasd_cuda_job *job, double work, double *queued,
                      struct blasd_err *err) {
    int code = 0;
    if (*queued > SLICE_WORK) {
        code = blasd_cuda_pause(job, err);
        *queued = 0;
    }
    *queued += work;
    return code;
}

/* Problem by problem, rows by rows: a product, and what it needs to be the matrix. */
static int run_product(struct blasd_cuda_job *job, const struct pair_state *state,
                       struct blasd_err *err) {
    const struct distance_shape *shape = &state->shape;
    double work = 2 * (double)state->product.rows * (double)shape->n * (double)shape->k, queued = 0;
    double rounds = ceil((double)shape->m / (double)state->product.rows) * (double)state->problems;
    int code = pair_means(job, shape->arithmetic, state->args, state->means, err);
    for (int64_t at = 0; code == 0 && at < state->problems; at++) {
        code = pair_product_points(job, shape->arithmetic, state->args, state->product, at,
                                   state->means.means, err);
        for (int64_t row = 0; code == 0 && row < shape->m; row += state->product.rows) {
            int64_t rows = shape->m - row;
            struct pair_matrix matrix = state->matrix;
            struct pair_args args;
            double done = ((double)at + (double)row / (double)shape->m) / (double)state->problems;
            if (rows > state->product.rows) rows = state->product.rows;
            args = some_rows(state, at, row, rows);
            matrix.d +=
                at / shape->problems * matrix.task_step + at % shape->problems * matrix.item_bytes;
            if (rounds > 1 && !blasd_cuda_go_on(job, done)) return blasd_cuda_stopped(err);
            code = stay_short(job, work, &queued, err);
            if (code == 0)
                code = pair_product_rows(job, shape->arithmetic, state->loop.loop == LOOP_SQUARES_W,
                                         args, state->product, matrix, err);
        }
    }
    return code;
}

/* More neighbours than one kernel can keep: rows of the matrix, then the nearest in each. */
static int run_select(struct blasd_cuda_job *job, struct pair_state *state, struct blasd_err *err) {
    const struct distance_shape *shape = &state->shape;
    int64_t element = (int64_t)blasd_dtype_size(shape->storage), m = shape->m;
    double work = (double)state->rows_each * (double)shape->n * pair_entry_work(state), queued = 0;
    bool heavy = (double)m * (double)shape->n * (double)state->problems > SLICE_PAIRS;
    int code = 0;
    for (int64_t at = 0; code == 0 && at < state->problems; at++) {
        int t = (int)(at / shape->problems);
        int64_t item = at % shape->problems;
        for (int64_t row = 0; code == 0 && row < m; row += state->rows_each) {
            int64_t rows = m - row < state->rows_each ? m - row : state->rows_each;
            int64_t place = (item * m + row) * shape->neighbours;
            struct pair_args args = some_rows(state, at, row, rows);
            struct pair_matrix matrix = {};
            struct pair_select select = state->select;
            double done = ((double)at + (double)row / (double)m) / (double)state->problems;
            if (heavy && !blasd_cuda_go_on(job, done)) return blasd_cuda_stopped(err);
            matrix.d = state->rows[0];
            matrix.storage = shape->arithmetic;
            matrix.vectors = shape->n % PAIR_EACH == 0;
            matrix.strip = 1;
            select.rows = state->rows[0];
            select.count = rows;
            select.self = shape->alone ? row : -1;
            select.to = (char *)blasd_cuda_out(job, t, OUT_D) + place * element;
            select.index =
                (char *)blasd_cuda_out(job, t, OUT_INDEX) + place * (int64_t)sizeof(int64_t);
            code = stay_short(job, work, &queued, err);
            if (code == 0)
                code = kernels_of(state)->launch_matrix(job->stream, state->loop.loop, args, matrix,
                                                        0, matrix_blocks(args, matrix), err);
            if (code == 0) code = pair_select_rows(job, shape->arithmetic, select, err);
        }
    }
    return code;
}

static int64_t nearest_blocks(const struct pair_state *state) {
    return pair_tiles(state->shape.m) * state->lists.splits * state->problems;
}

static struct pair_merge merge_of(const struct blasd_cuda_job *job,
                                  const struct pair_state *state) {
    const struct distance_shape *shape = &state->shape;
    struct pair_merge merge = {};
    merge.lists = state->lists;
    merge.d = (char *)blasd_cuda_out(job, 0, OUT_D);
    merge.index = (char *)blasd_cuda_out(job, 0, OUT_INDEX);
    merge.d_step = blasd_cuda_out_step(job, OUT_D);
    merge.index_step = blasd_cuda_out_step(job, OUT_INDEX);
    merge.task_rows = shape->problems * shape->m;
    merge.rows = state->problems * shape->m;
    merge.storage = shape->storage;
    return merge;
}

static int run_nearest(struct blasd_cuda_job *job, const struct pair_state *state,
                       struct blasd_err *err) {
    const struct distance_shape *shape = &state->shape;
    int code = in_slices(
        job, state, nearest_blocks(state), 0, 1,
        [=](int64_t first, int64_t count) {
            return kernels_of(state)->launch_nearest(job->stream, state->loop.loop, state->args,
                                                     state->lists, first, count, err);
        },
        err);
    if (code != 0) return code;
    return pair_merge_lists(job, shape->arithmetic, merge_of(job, state), err);
}

/* A small job's matrix, or its nearest points, beside those of other jobs. Which it is follows from
 * the job alone. */
static int share_launches(struct blasd_cuda_job *job, const struct pair_state *state,
                          struct blasd_err *err) {
    const struct distance_shape *shape = &state->shape;
    const struct pair_kernels *kernels = kernels_of(state);
    int code;
    if (shape->output == OUTPUT_FULL || shape->output == OUTPUT_CONDENSED)
        return kernels->share_matrix(job, state->loop.loop, state->args, state->matrix,
                                     matrix_blocks(state->args, state->matrix) * state->problems,
                                     err);
    code = kernels->share_nearest(job, state->loop.loop, state->args, state->lists,
                                  nearest_blocks(state), err);
    return code != 0 ? code : pair_share_merge(job, shape->arithmetic, merge_of(job, state), err);
}

static int prepare(struct blasd_cuda_job *job, struct blasd_err *err) {
    struct pair_state *state;
    int code = pair_prepare(job, err);
    if (code != 0) return code;
    state = (struct pair_state *)job->state;
    state->shared = !state->empty && !state->streamed && !state->wide && !state->multiplied &&
                    state->shape.output != OUTPUT_WITHIN &&
                    job->tasks[0].plan->flops <= PAIR_MIXED_FLOPS;
    return state->shared ? share_launches(job, state, err) : 0;
}

/* Two passes over the same values: the first counts, the second fills the lists. */
static int run_near(struct blasd_cuda_job *job, const struct pair_state *state,
                    struct blasd_err *err) {
    const struct distance_shape *shape = &state->shape;
    int code = 0;
    for (int fill = 0; code == 0 && fill < 2; fill++) {
        struct pair_near near = state->near;
        near.fill = fill;
        if (fill == 1) code = pair_start_lists(job, state->args, near, state->problems, err);
        if (code != 0) return code;
        code = in_slices(
            job, state, pair_tiles(shape->m) * near.splits * state->problems, 0.5 * fill,
            0.5 * fill + 0.5,
            [=](int64_t first, int64_t count) {
                return kernels_of(state)->launch_near(job->stream, state->loop.loop, state->args,
                                                      near, first, count, err);
            },
            err);
    }
    return code;
}

/* No points on one side: there is nothing to compute, and lists are empty. */
static int run_empty(struct blasd_cuda_job *job, const struct pair_state *state,
                     struct blasd_err *err) {
    int code = 0;
    if (state->shape.output != OUTPUT_WITHIN) return 0;
    for (int t = 0; code == 0 && t < job->count; t++)
        code = job->calls->fill(job->stream, blasd_cuda_out(job, t, OUT_ROW_SPLITS), 0,
                                blasd_tensor_bytes(&job->tasks[t].outputs[OUT_ROW_SPLITS]), err);
    return code;
}

static int compute(struct blasd_cuda_job *job, struct blasd_err *err) {
    struct pair_state *state = (struct pair_state *)job->state;
    int code;
    if (state->empty) return run_empty(job, state, err);
    code = make_ready(job, state, err);
    if (code != 0 || state->shared) return code;
    if (state->shape.output == OUTPUT_WITHIN) return run_near(job, state, err);
    if (state->shape.output == OUTPUT_ARGMIN || state->shape.output == OUTPUT_TOPK)
        return state->wide ? run_select(job, state, err) : run_nearest(job, state, err);
    if (state->multiplied) return run_product(job, state, err);
    return state->streamed ? run_stream(job, state, err) : run_matrix(job, state, err);
}

/* ---- after ---- */

/* What may have gone wrong with one task, in the order in which the CPU finds it. */
static int check_task(const struct pair_state *state, struct blasd_task *task) {
    const struct distance_shape *shape = &state->shape;
    int code = blasd_distance_check_weights(shape, task->inputs[IN_W].data, &task->err);
    for (int64_t p = 0; code == 0 && shape->output == OUTPUT_WITHIN && p < shape->problems; p++) {
        const int64_t *splits =
            (const int64_t *)task->outputs[OUT_ROW_SPLITS].data + p * (shape->m + 1);
        if (splits[shape->m] > shape->pairs)
            code = blasd_distance_no_room(shape, splits[shape->m], &task->err);
    }
    return code;
}

/* Whether the host is to compute a task: for its numbers, or for a covariance whose inverse needs
 * more digits. */
static bool is_left_to_host(const struct pair_state *state, int t, struct blasd_task *task) {
    bool left =
        !state->empty && ((state->flags[t] & PAIR_LEFT) != 0 || pair_on_host(task, &state->shape));
    for (int64_t p = 0; state->covariances && p < state->shape.problems; p++)
        left |= state->info[2 * (t * state->shape.problems + p)] != 0;
    return left;
}

static int finish(struct blasd_cuda_job *job, struct blasd_err *err) {
    const struct pair_state *state = (const struct pair_state *)job->state;
    for (int t = 0; t < job->count; t++) {
        struct blasd_task *task = &job->tasks[t];
        if (is_left_to_host(state, t, task)) {
            blasd_task_make_inputs(task);
            if (task->err.code != BLASD_OK) continue;
            int code = blasd_cuda_outputs_to_host(job, t, err);
            if (code == 0) code = blasd_distance_on_host(task, nullptr, err);
            if (code != 0) return code;
            continue;
        }
        if (!state->empty && check_task(state, task) != 0) continue;
        if (!state->empty && (state->flags[t] & PAIR_ZERO_ROW) != 0) {
            struct distance_note note = {};
            note.zero_row = true;
            blasd_distance_warn(task, &state->shape, &note, 1);
        }
        snprintf(task->method, sizeof task->method, "%s%s%s", state->multiplied ? "dgemm and " : "",
                 state->shape.arithmetic == BLASD_float64 ? "direct float64" : "direct float32",
                 state->streamed ? ", in rows"
                 : state->wide   ? ", selected"
                                 : "");
    }
    return 0;
}

/* Small jobs of any shape and metric share a batch. */
static void batch_key(const struct blasd_job *job, const struct blasd_plan *plan,
                      struct blasd_key *ret) {
    (void)job;
    if (plan->flops > PAIR_MIXED_FLOPS) return;
    ret->len = 0;
    blasd_key_add_int(ret, plan->input_dtype[IN_X]);
}

/* A stack of problems whose x and y are stacks too; weights are those of all. What the host would
 * compute as a whole is none. */
static void stack_of(const struct blasd_task *task, const struct blasd_gpu_facts *facts,
                     struct blasd_cuda_stack *ret) {
    struct distance_shape shape;
    struct blasd_err ignored;
    (void)facts;
    ret->shared = 1u << IN_W | 1u << IN_V | 1u << IN_VI;
    if (blasd_distance_read(task->job, &shape, &ignored) != 0 || shape.batch_rank == 0) return;
    if (task->inputs[IN_X].rank != shape.batch_rank + 2) return;
    if (!shape.alone && task->inputs[IN_Y].rank != shape.batch_rank + 2) return;
    /* the host looks at numbers that it has */
    if (task->unmade == 0 && task->device_only == 0 && !pair_on_host(task, &shape))
        ret->problems = shape.problems;
}

extern "C" const struct blasd_cuda_op blasd_cuda_distance = {
    .kernel = BLASD_CUDA_KERNEL_MIXED("distance", batch_key),
    .choose = choose,
    .prepare = prepare,
    .compute = compute,
    .finish = finish,
    .stack = stack_of,
    .residents = UINT64_C(1) << OUT_D,
    .join = nullptr,
};
