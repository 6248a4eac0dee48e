/* distance on CUDA: what is made ready, which kernel does which blocks, and what comes back.
 *
 * All problems of a batch are one launch: a block finds its problem by its number. A matrix that
 * does not fit the device comes in rows, each block of them going down while the next is computed.
 * Read next: pair_calls.cuh, then README.md for the method and cpu_distance.c for the same without
 * a GPU. */
extern "C" {
#include "kernels/cuda/cuda_op.h"
#include "kernels/distance/distance.h"
}

#include "kernels/distance/pair_calls.cuh"
#include "kernels/distance/pair_rows.cuh"
#include "kernels/distance/pair_select.cuh"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define SLICE_PAIRS 16777216.0 /* entries from which a job is computed in more than one launch */
#define SLICE_MOST 8           /* such launches, where not the arithmetic asks for more */
#define SLICE_WORK 5e11        /* operations of a launch: what may go on after a job is cancelled */
#define STREAM_BYTES ((int64_t)128 << 20) /* rows of a matrix that goes down in blocks */
#define SELECT_BYTES ((int64_t)32 << 20)  /* rows of a matrix that neighbours are selected from */
#define MIRROR_WORK 24 /* operations an entry from which half the matrix is computed and mirrored  \
                        */

struct state {
    struct distance_shape shape;
    struct distance_args loop;
    struct pair_args args;
    int64_t problems; /* of all tasks */
    size_t size;      /* of a number in the arithmetic */
    bool empty, streamed, wide;
    struct pair_ready ready[2];
    int ready_count;
    char *weights; /* of seuclidean */
    int64_t reciprocals;
    struct pair_statistics statistics;
    bool variances, covariances;
    char *inverse; /* of mahalanobis */
    int *info;     /* on the host: two for each problem */
    struct pair_matrix matrix;
    struct pair_lists lists;
    struct pair_near near;
    struct pair_select select;
    char *rows[2]; /* of the matrix: streamed, or to select from */
    int64_t rows_each;
    int sent[2];
};

static enum distance_output output_of(const struct blasd_task *task) {
    return (enum distance_output)task->job->params[PARAM_OUTPUT].choice;
}

/* A matrix that, with all it takes, does not fit half of the device goes down in blocks of rows. */
static bool too_large(const struct blasd_task *task, const struct blasd_gpu_facts *facts) {
    double bytes = (double)task->plan->device_bytes;
    if (output_of(task) != OUTPUT_FULL && output_of(task) != OUTPUT_CONDENSED) return false;
    for (int i = IN_X; i <= IN_VI; i++)
        if (task->inputs[i].data != NULL) bytes += (double)blasd_tensor_bytes(&task->inputs[i]);
    bytes += (double)blasd_tensor_bytes(&task->outputs[OUT_D]);
    return bytes > (double)facts->memory_bytes / 2;
}

static void choose(const struct blasd_task *task, const struct blasd_gpu_facts *facts,
                   struct blasd_cuda_wish *wish) {
    if (too_large(task, facts)) wish->outputs = 0;
}

/* ---- before: addresses, and room for what is made on the device ---- */

/* Where the points of x or y lie, as they came. */
static void locate(struct blasd_cuda_job *job, const struct state *state, int input, int64_t points,
                   struct pair_source *ret) {
    const struct blasd_tensor *tensor = &job->tasks[0].inputs[input];
    const struct distance_shape *shape = &state->shape;
    int64_t step = 1;
    memset(ret, 0, sizeof *ret);
    ret->base = (const char *)blasd_cuda_in(job, 0, input);
    ret->task_step = blasd_cuda_in_step(job, input);
    ret->item_bytes = points * shape->k * (int64_t)state->size;
    for (int b = shape->batch_rank - 1; b >= 0; b--) {
        int own = b - (shape->batch_rank - (tensor->rank - 2));
        if (own < 0) continue;
        ret->steps[b] = tensor->shape[own] == 1 ? 0 : step;
        step *= tensor->shape[own];
    }
}

/* Room for the rows of one operand, made ready; from here on they are its points. */
static int take_ready(struct blasd_cuda_job *job, struct state *state, int input, int64_t points,
                      struct pair_source *source, struct blasd_err *err) {
    const struct blasd_tensor *tensor = &job->tasks[0].inputs[input];
    const struct distance_shape *shape = &state->shape;
    struct pair_ready *ready = &state->ready[state->ready_count++];
    int64_t items = 1, bytes;
    int code;
    for (int i = 0; i < tensor->rank - 2; i++) items *= tensor->shape[i];
    ready->from = source->base;
    ready->from_step = source->task_step;
    ready->w = (const char *)blasd_cuda_in(job, 0, IN_W);
    ready->w_step = blasd_cuda_in_step(job, IN_W);
    ready->rows = items * points;
    ready->k = shape->k;
    ready->all_rows = ready->rows * job->count;
    ready->kind = blasd_distance_metrics[shape->metric].rows;
    bytes = ready->rows * shape->k * (int64_t)state->size;
    code = blasd_cuda_take(job, (size_t)(bytes * job->count), (void **)&ready->to, err);
    source->base = ready->to;
    source->task_step = bytes;
    return code;
}

static int prepare_points(struct blasd_cuda_job *job, struct state *state, struct blasd_err *err) {
    const struct distance_shape *shape = &state->shape;
    enum distance_rows rows = blasd_distance_metrics[shape->metric].rows;
    struct pair_args *args = &state->args;
    int code = 0;
    args->rank = shape->batch_rank;
    memcpy(args->shape, shape->batch_shape, sizeof args->shape);
    args->problems = shape->problems;
    args->m = shape->m;
    args->n = shape->n;
    args->k = shape->k;
    args->finish = state->loop.finish;
    args->alone = shape->alone;
    args->p = state->loop.p;
    args->scale = state->loop.scale;
    locate(job, state, IN_X, shape->m, &args->x);
    if (!shape->alone) locate(job, state, IN_Y, shape->n, &args->y);
    if (rows == ROWS_UNIT || rows == ROWS_CENTRED || rows == ROWS_SHARES) {
        code = take_ready(job, state, IN_X, shape->m, &args->x, err);
        if (code == 0 && !shape->alone)
            code = take_ready(job, state, IN_Y, shape->n, &args->y, err);
    }
    if (shape->alone) args->y = args->x;
    return code;
}

/* The sum of each task's weights; one that is negative is its task's error, in finish. */
static int prepare_totals(struct blasd_cuda_job *job, struct state *state, struct blasd_err *err) {
    void *host, *device;
    int code = blasd_cuda_table(job, (size_t)job->count * sizeof(double), &host, &device, err);
    if (code != 0) return code;
    for (int t = 0; t < job->count; t++) {
        struct blasd_err ignored;
        double *total = (double *)host + t;
        if (blasd_distance_weigh(&state->shape, job->tasks[t].inputs[IN_W].data, total, &ignored) !=
            0)
            *total = NAN;
    }
    state->args.totals = (const double *)device;
    return 0;
}

/* Weights: as given, or 1 / V, or 1 / variance of the points. */
static int prepare_weights(struct blasd_cuda_job *job, struct state *state, struct blasd_err *err) {
    const struct distance_shape *shape = &state->shape;
    struct pair_args *args = &state->args;
    int64_t bytes = shape->k * (int64_t)state->size;
    int code = 0;
    if (shape->metric == METRIC_seuclidean && blasd_cuda_in(job, 0, IN_V) != NULL) {
        args->w_task = blasd_cuda_in_step(job, IN_V);
        state->reciprocals =
            (args->w_task * (job->count - 1) + bytes) / (int64_t)state->size; /* gaps too */
        code = blasd_cuda_take(job, (size_t)state->reciprocals * state->size,
                               (void **)&state->weights, err);
        args->w = state->weights;
    } else if (shape->metric == METRIC_seuclidean && shape->k > 0) {
        state->variances = true;
        args->w_task = bytes * shape->problems;
        args->w_item = bytes;
        code =
            blasd_cuda_take(job, (size_t)(bytes * state->problems), (void **)&state->weights, err);
        if (code == 0)
            code =
                pair_statistics_take(job, *args, state->problems, false, &state->statistics, err);
        args->w = state->weights;
    } else if (shape->weighted && state->loop.finish != FINISH_HALF) {
        args->w = (const char *)blasd_cuda_in(job, 0, IN_W);
        args->w_task = blasd_cuda_in_step(job, IN_W);
    }
    return code;
}

/* The matrix of mahalanobis: as given, or the inverse covariance of the points. */
static int prepare_inverse(struct blasd_cuda_job *job, struct state *state, struct blasd_err *err) {
    const struct distance_shape *shape = &state->shape;
    struct pair_args *args = &state->args;
    int64_t bytes = shape->k * shape->k * (int64_t)state->size;
    void *device = NULL;
    int code;
    if (shape->metric != METRIC_mahalanobis || shape->k == 0) return 0;
    if (blasd_cuda_in(job, 0, IN_VI) != NULL) {
        args->v = (const char *)blasd_cuda_in(job, 0, IN_VI);
        args->v_task = blasd_cuda_in_step(job, IN_VI);
        return 0;
    }
    state->covariances = true;
    args->v_task = bytes * shape->problems;
    args->v_item = bytes;
    code = blasd_cuda_return(job, 2 * (size_t)state->problems * sizeof(int), (void **)&state->info,
                             &device, err);
    if (code == 0)
        code =
            blasd_cuda_take(job, (size_t)(bytes * state->problems), (void **)&state->inverse, err);
    if (code == 0)
        code = pair_statistics_take(job, *args, state->problems, true, &state->statistics, err);
    state->statistics.info = (int *)device;
    args->v = state->inverse;
    return code;
}

/* Operations for one entry of the matrix, about. */
static double entry_work(const struct state *state) {
    double k = (double)(state->shape.k > 0 ? state->shape.k : 1);
    switch (state->loop.loop) {
    case LOOP_MAHALANOBIS: return 4 + 2 * k * k;
    case LOOP_POWER:
    case LOOP_JENSENSHANNON: return 4 + 40 * k;
    case LOOP_SQUARES:
    case LOOP_SQUARES_W:
    case LOOP_ABSOLUTE:
    case LOOP_ABSOLUTE_W: return 4 + 2 * k;
    default: return 4 + 8 * k;
    }
}

static int64_t tiles_of(int64_t points) {
    return (points + PAIR_SIDE - 1) / PAIR_SIDE;
}

static int prepare_matrix(struct blasd_cuda_job *job, struct state *state, struct blasd_err *err) {
    const struct distance_shape *shape = &state->shape;
    struct pair_matrix *matrix = &state->matrix;
    int64_t element = (int64_t)blasd_dtype_size(shape->storage), row = shape->n * element, bytes;
    int64_t tiles = tiles_of(shape->m) * tiles_of(shape->n) * state->problems;
    matrix->d = (char *)blasd_cuda_out(job, 0, OUT_D);
    matrix->task_step = blasd_cuda_out_step(job, OUT_D);
    matrix->storage = shape->storage;
    matrix->condensed = shape->output == OUTPUT_CONDENSED;
    matrix->item_bytes =
        (matrix->condensed ? shape->n * (shape->n - 1) / 2 : shape->m * shape->n) * element;
    matrix->vectors = !matrix->condensed && shape->n % PAIR_EACH == 0;
    matrix->mirrored =
        shape->alone && !matrix->condensed && !state->streamed && entry_work(state) >= MIRROR_WORK;
    matrix->strip = !matrix->mirrored && tiles >= (int64_t)job->facts->units * 64 ? 4 : 1;
    if (!state->streamed) return 0;
    bytes = (int64_t)(job->facts->memory_bytes / 16);
    if (bytes > STREAM_BYTES) bytes = STREAM_BYTES;
    state->rows_each = bytes / row;
    if (state->rows_each > PAIR_SIDE) state->rows_each -= state->rows_each % PAIR_SIDE;
    if (state->rows_each < 1) state->rows_each = 1;
    if (state->rows_each > shape->m) state->rows_each = shape->m;
    for (int i = 0; i < 2; i++) {
        int code =
            blasd_cuda_take(job, (size_t)(state->rows_each * row), (void **)&state->rows[i], err);
        if (code != 0) return code;
        state->sent[i] = -1;
    }
    return 0;
}

/* Parts of rows, where whole rows are too few blocks for the device. */
static int split_rows(const struct blasd_cuda_job *job, const struct state *state,
                      int64_t *columns) {
    int64_t across = tiles_of(state->shape.n), blocks = tiles_of(state->shape.m) * state->problems;
    int64_t splits = ((int64_t)job->facts->units * 4 + blocks - 1) / blocks;
    if (splits > 32) splits = 32;
    if (splits > across) splits = across;
    *columns = (across + splits - 1) / splits * PAIR_SIDE;
    return (int)((across * PAIR_SIDE + *columns - 1) / *columns);
}

static int prepare_select(struct blasd_cuda_job *job, struct state *state, struct blasd_err *err) {
    const struct distance_shape *shape = &state->shape;
    struct pair_select *select = &state->select;
    int64_t row, size = (int64_t)state->size;
    int code;
    select->n = shape->n;
    select->keep = shape->neighbours;
    select->storage = shape->storage;
    for (select->room = 1; select->room < select->keep;) select->room *= 2;
    row = shape->n * size + select->room * (size + (int64_t)sizeof(uint32_t));
    state->rows_each = SELECT_BYTES / row;
    if (state->rows_each < 1) state->rows_each = 1;
    if (state->rows_each > shape->m) state->rows_each = shape->m;
    code = blasd_cuda_take(job, (size_t)(state->rows_each * shape->n * size),
                           (void **)&state->rows[0], err);
    if (code == 0)
        code =
            blasd_cuda_take(job, (size_t)(state->rows_each * select->room * size), &select->d, err);
    if (code == 0)
        code = blasd_cuda_take(job, (size_t)(state->rows_each * select->room) * sizeof(uint32_t),
                               (void **)&select->j, err);
    return code;
}

static int prepare_nearest(struct blasd_cuda_job *job, struct state *state, struct blasd_err *err) {
    const struct distance_shape *shape = &state->shape;
    struct pair_lists *lists = &state->lists;
    int64_t keep = shape->output == OUTPUT_TOPK ? shape->neighbours : 1, entries;
    int code;
    /* the rest is static shared memory */
    state->wide = keep > PAIR_NEAREST_MOST ||
                  pair_nearest_bytes(state->size, (int)keep + PAIR_NEAREST_SLACK) + (20u << 10) >
                      job->facts->shared_bytes;
    if (state->wide) return prepare_select(job, state, err);
    lists->keep = (int)keep;
    lists->room = (int)keep + PAIR_NEAREST_SLACK;
    lists->splits = split_rows(job, state, &lists->columns);
    entries = state->problems * shape->m * lists->splits * keep;
    code = blasd_cuda_take(job, (size_t)entries * state->size, &lists->d, err);
    return code != 0
               ? code
               : blasd_cuda_take(job, (size_t)entries * sizeof(uint32_t), (void **)&lists->j, err);
}

static int prepare_near(struct blasd_cuda_job *job, struct state *state, struct blasd_err *err) {
    const struct distance_shape *shape = &state->shape;
    struct pair_near *near = &state->near;
    near->d = (char *)blasd_cuda_out(job, 0, OUT_D);
    near->index = (char *)blasd_cuda_out(job, 0, OUT_INDEX);
    near->row_splits = (char *)blasd_cuda_out(job, 0, OUT_ROW_SPLITS);
    near->d_step = blasd_cuda_out_step(job, OUT_D);
    near->index_step = blasd_cuda_out_step(job, OUT_INDEX);
    near->splits_step = blasd_cuda_out_step(job, OUT_ROW_SPLITS);
    near->pairs = shape->pairs;
    near->element = (int64_t)blasd_dtype_size(shape->storage);
    near->radius = shape->radius;
    near->storage = shape->storage;
    near->splits = split_rows(job, state, &near->columns);
    return blasd_cuda_take(job,
                           (size_t)(state->problems * shape->m * near->splits) * sizeof(int64_t),
                           (void **)&near->counts, err);
}

static int prepare(struct blasd_cuda_job *job, struct blasd_err *err) {
    struct state *state;
    struct distance_shape *shape;
    int code = blasd_cuda_host(job, sizeof *state, &job->state, err);
    if (code != 0) return code;
    state = (struct state *)job->state;
    shape = &state->shape;
    code = blasd_distance_read(job->tasks[0].job, shape, err);
    if (code != 0) return code;
    blasd_distance_choose(shape, &state->loop);
    state->size = blasd_dtype_size(shape->arithmetic);
    state->problems = shape->problems * job->count;
    state->empty = state->problems == 0 || shape->m == 0 || shape->n == 0;
    state->streamed = too_large(&job->tasks[0], job->facts);
    if (state->empty) return 0;
    if (shape->m >= UINT32_MAX || shape->n >= UINT32_MAX)
        return blasd_fail(err, BLASD_E_job_too_large, "inputs.x",
                          "a CUDA device takes at most 2^32 - 2 points");
    code = prepare_totals(job, state, err);
    if (code == 0) code = prepare_points(job, state, err);
    if (code == 0) code = prepare_weights(job, state, err);
    if (code == 0) code = prepare_inverse(job, state, err);
    if (code != 0) return code;
    switch (shape->output) {
    case OUTPUT_FULL:
    case OUTPUT_CONDENSED: return prepare_matrix(job, state, err);
    case OUTPUT_ARGMIN:
    case OUTPUT_TOPK: return prepare_nearest(job, state, err);
    case OUTPUT_WITHIN: return prepare_near(job, state, err);
    }
    return 0;
}

/* ---- the work ---- */

static int make_ready(struct blasd_cuda_job *job, const struct state *state,
                      struct blasd_err *err) {
    enum blasd_dtype dtype = state->shape.arithmetic;
    int code = 0;
    for (int i = 0; code == 0 && i < state->ready_count; i++)
        code = pair_make_ready(job, dtype, state->ready[i], err);
    if (code == 0 && state->reciprocals > 0)
        code = pair_reciprocals(job, dtype, blasd_cuda_in(job, 0, IN_V), state->weights,
                                state->reciprocals, err);
    if (code == 0 && state->variances)
        code = pair_variances(job, dtype, state->args, state->statistics, state->weights, err);
    if (code == 0 && state->covariances)
        code = pair_covariances(job, dtype, state->args, state->statistics, state->inverse, err);
    return code;
}

/* Launches `blocks` blocks by `launch(first, count)`, in slices between which a long job says how
 * far it is and may be stopped. From `from` to `to`: the part of the job's progress that this is.
 */
template <class Launch>
static int in_slices(struct blasd_cuda_job *job, const struct state *state, int64_t blocks,
                     double from, double to, Launch launch, struct blasd_err *err) {
    double pairs = (double)state->problems * (double)state->shape.m * (double)state->shape.n;
    double slices = ceil(pairs / SLICE_PAIRS), heavy = ceil(pairs * entry_work(state) / SLICE_WORK);
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

static int launch_matrix(struct blasd_cuda_job *job, const struct state *state,
                         const struct pair_args &args, const struct pair_matrix &matrix,
                         int64_t first, int64_t blocks, struct blasd_err *err) {
    if (state->shape.arithmetic == BLASD_float64)
        return pair_launch_matrix<double>(job->stream, state->loop.loop, args, matrix, first,
                                          blocks, err);
    return pair_launch_matrix<float>(job->stream, state->loop.loop, args, matrix, first, blocks,
                                     err);
}

static int64_t matrix_blocks(const struct pair_args &args, const struct pair_matrix &matrix) {
    int64_t side = (int64_t)matrix.strip * PAIR_SIDE;
    return tiles_of(args.n) * ((args.m + side - 1) / side);
}

static int run_matrix(struct blasd_cuda_job *job, const struct state *state,
                      struct blasd_err *err) {
    return in_slices(
        job, state, matrix_blocks(state->args, state->matrix) * state->problems, 0, 1,
        [=](int64_t first, int64_t count) {
            return launch_matrix(job, state, state->args, state->matrix, first, count, err);
        },
        err);
}

/* Rows from `row` on of one problem, as a problem of their own. */
static struct pair_args some_rows(const struct state *state, int64_t number, int64_t row,
                                  int64_t rows) {
    struct pair_args args = state->args;
    int64_t task = number / args.problems, item = number % args.problems;
    args.x.base += task * args.x.task_step + pair_item(args, args.x, item) * args.x.item_bytes +
                   row * args.k * (int64_t)state->size;
    args.y.base += task * args.y.task_step + pair_item(args, args.y, item) * args.y.item_bytes;
    if (args.w != nullptr) args.w += task * args.w_task + item * args.w_item;
    if (args.v != nullptr) args.v += task * args.v_task + item * args.v_item;
    args.totals += task;
    args.rank = 0;
    args.problems = 1;
    args.first_row = row;
    args.m = rows;
    return args;
}

/* Entries of a problem's output before those of row `row`. */
static int64_t entries_before(const struct state *state, int64_t row) {
    int64_t n = state->shape.n;
    return state->matrix.condensed ? row * (2 * n - row - 1) / 2 : row * n;
}

/* A matrix that does not fit: rows are computed into one of two buffers while the other goes down.
 */
static int run_stream(struct blasd_cuda_job *job, struct state *state, struct blasd_err *err) {
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
                code = launch_matrix(job, state, args, matrix, 0, matrix_blocks(args, matrix), err);
            if (code == 0)
                code = blasd_cuda_send(job, host + from * element, matrix.d,
                                       (size_t)((to - from) * element), &state->sent[turn], err);
        }
    }
    return code;
}

/* More neighbours than one kernel can keep: rows of the matrix, then the nearest in each. */
static int run_select(struct blasd_cuda_job *job, struct state *state, struct blasd_err *err) {
    const struct distance_shape *shape = &state->shape;
    int64_t element = (int64_t)blasd_dtype_size(shape->storage), m = shape->m;
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
            code = launch_matrix(job, state, args, matrix, 0, matrix_blocks(args, matrix), err);
            if (code == 0) code = pair_select_rows(job, shape->arithmetic, select, err);
        }
    }
    return code;
}

static int run_nearest(struct blasd_cuda_job *job, const struct state *state,
                       struct blasd_err *err) {
    const struct distance_shape *shape = &state->shape;
    struct pair_merge merge = {};
    int code = in_slices(
        job, state, tiles_of(shape->m) * state->lists.splits * state->problems, 0, 1,
        [=](int64_t first, int64_t count) {
            if (shape->arithmetic == BLASD_float64)
                return pair_launch_nearest<double>(job->stream, state->loop.loop, state->args,
                                                   state->lists, first, count, err);
            return pair_launch_nearest<float>(job->stream, state->loop.loop, state->args,
                                              state->lists, first, count, err);
        },
        err);
    if (code != 0) return code;
    merge.lists = state->lists;
    merge.d = (char *)blasd_cuda_out(job, 0, OUT_D);
    merge.index = (char *)blasd_cuda_out(job, 0, OUT_INDEX);
    merge.d_step = blasd_cuda_out_step(job, OUT_D);
    merge.index_step = blasd_cuda_out_step(job, OUT_INDEX);
    merge.task_rows = shape->problems * shape->m;
    merge.rows = state->problems * shape->m;
    merge.storage = shape->storage;
    return pair_merge_lists(job, shape->arithmetic, merge, err);
}

/* Two passes over the same values: the first counts, the second fills the lists. */
static int run_near(struct blasd_cuda_job *job, const struct state *state, struct blasd_err *err) {
    const struct distance_shape *shape = &state->shape;
    int code = 0;
    for (int fill = 0; code == 0 && fill < 2; fill++) {
        struct pair_near near = state->near;
        near.fill = fill;
        if (fill == 1) code = pair_start_lists(job, state->args, near, state->problems, err);
        if (code != 0) return code;
        code = in_slices(
            job, state, tiles_of(shape->m) * near.splits * state->problems, 0.5 * fill,
            0.5 * fill + 0.5,
            [=](int64_t first, int64_t count) {
                if (shape->arithmetic == BLASD_float64)
                    return pair_launch_near<double>(job->stream, state->loop.loop, state->args,
                                                    near, first, count, err);
                return pair_launch_near<float>(job->stream, state->loop.loop, state->args, near,
                                               first, count, err);
            },
            err);
    }
    return code;
}

/* No points on one side: there is nothing to compute, and lists are empty. */
static int run_empty(struct blasd_cuda_job *job, const struct state *state, struct blasd_err *err) {
    int code = 0;
    if (state->shape.output != OUTPUT_WITHIN) return 0;
    for (int t = 0; code == 0 && t < job->count; t++)
        code = job->calls->fill(job->stream, blasd_cuda_out(job, t, OUT_ROW_SPLITS), 0,
                                blasd_tensor_bytes(&job->tasks[t].outputs[OUT_ROW_SPLITS]), err);
    return code;
}

static int compute(struct blasd_cuda_job *job, struct blasd_err *err) {
    struct state *state = (struct state *)job->state;
    int code;
    if (state->empty) return run_empty(job, state, err);
    code = make_ready(job, state, err);
    if (code != 0) return code;
    if (state->shape.output == OUTPUT_WITHIN) return run_near(job, state, err);
    if (state->shape.output == OUTPUT_ARGMIN || state->shape.output == OUTPUT_TOPK)
        return state->wide ? run_select(job, state, err) : run_nearest(job, state, err);
    return state->streamed ? run_stream(job, state, err) : run_matrix(job, state, err);
}

/* ---- after ---- */

/* What may have gone wrong with one task, in the order in which the CPU finds it. */
static int check_task(const struct state *state, int t, struct blasd_task *task) {
    const struct distance_shape *shape = &state->shape;
    double total;
    int code = 0;
    if (task->inputs[IN_W].data != NULL)
        code = blasd_distance_weigh(shape, task->inputs[IN_W].data, &total, &task->err);
    for (int64_t p = 0; code == 0 && state->covariances && p < shape->problems; p++)
        if (state->info[2 * (t * shape->problems + p)] != 0)
            code = blasd_fail(&task->err, BLASD_E_singular_matrix, "inputs.VI",
                              "the covariance matrix of the points is singular: give VI");
    for (int64_t p = 0; code == 0 && shape->output == OUTPUT_WITHIN && p < shape->problems; p++) {
        const int64_t *splits =
            (const int64_t *)task->outputs[OUT_ROW_SPLITS].data + p * (shape->m + 1);
        if (splits[shape->m] > shape->pairs)
            code = blasd_distance_no_room(shape, splits[shape->m], &task->err);
    }
    return code;
}

static int finish(struct blasd_cuda_job *job, struct blasd_err *err) {
    const struct state *state = (const struct state *)job->state;
    (void)err;
    for (int t = 0; t < job->count; t++) {
        struct blasd_task *task = &job->tasks[t];
        if (!state->empty) check_task(state, t, task);
        snprintf(task->method, sizeof task->method, "direct %s%s",
                 state->shape.arithmetic == BLASD_float64 ? "float64" : "float32",
                 state->streamed ? ", in blocks of rows"
                 : state->wide   ? ", selected"
                                 : "");
    }
    return 0;
}

extern "C" const struct blasd_cuda_op blasd_cuda_distance = {
    .kernel = BLASD_CUDA_KERNEL("distance"),
    .choose = choose,
    .prepare = prepare,
    .compute = compute,
    .finish = finish,
};
