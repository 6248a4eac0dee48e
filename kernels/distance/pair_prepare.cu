/* Before distance's kernels run: addresses, scratch memory, tables, and which way a job goes.
 * Read next: pair_state.cuh, then cuda_distance.cu. */
#include "kernels/distance/pair_state.cuh"

#include <cmath>
#include <limits>
#include <string.h>

/* Largest part of a variance, over what of it is its own, times the units that it is rounded by,
 * with which the device inverts a covariance: then d keeps 9 digits. */
#define MOST_INFLATION 0x1p22
#define MIRROR_WORK                                                                                \
    24 /* operations an entry from which half the matrix is computed and mirrored                  \
        */

struct blasd_distance_limits blasd_distance_limits = {.stream_bytes = (int64_t)128 << 20,
                                                      .nearest_most = PAIR_NEAREST_MOST,
                                                      .select_bytes = (int64_t)32 << 20,
                                                      .product_bytes = (int64_t)64 << 20,
                                                      .product_pairs = (int64_t)1 << 18,
                                                      .product_deep_f64 = 64,
                                                      .product_deep_f32 = 128};

static enum distance_output output_of(const struct blasd_task *task) {
    return (enum distance_output)task->job->params[PARAM_OUTPUT].choice;
}

bool pair_too_large(const struct blasd_task *task, const struct blasd_gpu_facts *facts) {
    double bytes = (double)task->plan->device_bytes;
    if (output_of(task) != OUTPUT_FULL && output_of(task) != OUTPUT_CONDENSED) return false;
    for (int i = IN_X; i <= IN_VI; i++)
        if (task->inputs[i].data != NULL) bytes += (double)blasd_tensor_bytes(&task->inputs[i]);
    bytes += (double)blasd_tensor_bytes(&task->outputs[OUT_D]);
    return bytes > (double)facts->memory_bytes / 2;
}

/* Where the points of x or y lie, as they came. */
static void locate(struct blasd_cuda_job *job, const struct pair_state *state, int input,
                   int64_t points, struct pair_source *ret) {
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
static int take_ready(struct blasd_cuda_job *job, struct pair_state *state, int input,
                      int64_t points, struct pair_source *source, struct blasd_err *err) {
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
    ready->flags = state->args.flags;
    bytes = ready->rows * shape->k * (int64_t)state->size;
    code = blasd_cuda_take(job, (size_t)(bytes * job->count), (void **)&ready->to, err);
    source->base = ready->to;
    source->task_step = bytes;
    return code;
}

static int prepare_points(struct blasd_cuda_job *job, struct pair_state *state,
                          struct blasd_err *err) {
    const struct distance_shape *shape = &state->shape;
    enum distance_rows rows = blasd_distance_metrics[shape->metric].rows;
    struct pair_args *args = &state->args;
    int code = blasd_cuda_flags(job, (size_t)job->count * sizeof(int), (void **)&state->flags,
                                (void **)&args->flags, err);
    if (code != 0) return code;
    args->rank = shape->batch_rank;
    memcpy(args->shape, shape->batch_shape, sizeof args->shape);
    args->problems = shape->problems;
    args->m = shape->m;
    args->n = shape->n;
    args->k = shape->k;
    args->finish = state->loop.finish;
    args->alone = shape->alone;
    args->truth = rows == ROWS_TRUTH;
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

/* Weights: as given, or 1 / V, or 1 / variance of the points. */
static int prepare_weights(struct blasd_cuda_job *job, struct pair_state *state,
                           struct blasd_err *err) {
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
static int prepare_inverse(struct blasd_cuda_job *job, struct pair_state *state,
                           struct blasd_err *err) {
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
    state->statistics.most = fmin(MOST_INFLATION, 1 / shape->unit);
    args->v = state->inverse;
    return code;
}

/* Operations for one entry of the matrix, about. */
double pair_entry_work(const struct pair_state *state) {
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

/* Whether float64 products run at the rate of float32 ones or near it: the data centres' chips. */
static bool fast_float64(const struct blasd_gpu_facts *facts) {
    return facts->minor == 0 && (facts->major == 8 || facts->major == 9 || facts->major == 10);
}

/* Many coordinates, and problems large enough to be done one after the other. */
static bool product_serves(const struct blasd_cuda_job *job, const struct pair_state *state) {
    const struct distance_shape *shape = &state->shape;
    const struct blasd_distance_limits *limits = &blasd_distance_limits;
    if (state->loop.loop > LOOP_SQUARES_W) return false;
    if ((double)shape->m * (double)shape->n < (double)limits->product_pairs) return false;
    if (shape->m > INT32_MAX || shape->n > INT32_MAX || shape->k > INT32_MAX) return false;
    if (shape->arithmetic == BLASD_float64) return shape->k >= limits->product_deep_f64;
    return fast_float64(job->facts) && shape->k >= limits->product_deep_f32;
}

static int prepare_product(struct blasd_cuda_job *job, struct pair_state *state,
                           struct blasd_err *err) {
    const struct distance_shape *shape = &state->shape;
    struct pair_product *product = &state->product;
    struct pair_matrix *matrix = &state->matrix;
    size_t m = (size_t)shape->m, n = (size_t)shape->n, k = (size_t)shape->k;
    int64_t rows = blasd_distance_limits.product_bytes / (shape->n * 8), eighth = shape->m / 8;
    int code = pair_statistics_take(job, state->args, state->problems, false, &state->means, err);
    state->multiplied = true;
    matrix->mirrored = shape->alone && !matrix->condensed;
    /* of a triangle the first rows are the longest: in more blocks less is computed for nothing */
    if (shape->alone && eighth < 1024) eighth = 1024;
    if (shape->alone && rows > eighth) rows = eighth;
    rows = rows < PAIR_SIDE ? PAIR_SIDE : rows / PAIR_SIDE * PAIR_SIDE;
    product->rows = rows < shape->m ? rows : shape->m;
    product->doubt = shape->arithmetic == BLASD_float64 ? 0.5 : ((double)k + 8) * 0x1p-26;
    if (code == 0) code = blasd_cuda_take(job, m * k * 8, (void **)&product->x, err);
    if (code == 0) code = blasd_cuda_take(job, m * 8, (void **)&product->x_norms, err);
    if (code == 0 && !shape->alone)
        code = blasd_cuda_take(job, n * k * 8, (void **)&product->y, err);
    if (code == 0 && !shape->alone)
        code = blasd_cuda_take(job, n * 8, (void **)&product->y_norms, err);
    if (shape->alone) product->y = product->x;
    if (shape->alone) product->y_norms = product->x_norms;
    if (code == 0)
        code = blasd_cuda_take(job, (size_t)product->rows * n * 8, (void **)&product->product, err);
    return code;
}

static int prepare_matrix(struct blasd_cuda_job *job, struct pair_state *state,
                          struct blasd_err *err) {
    const struct distance_shape *shape = &state->shape;
    struct pair_matrix *matrix = &state->matrix;
    int64_t element = (int64_t)blasd_dtype_size(shape->storage), row = shape->n * element, bytes;
    int64_t tiles = pair_tiles(shape->m) * pair_tiles(shape->n) * state->problems;
    matrix->d = (char *)blasd_cuda_out(job, 0, OUT_D);
    matrix->task_step = blasd_cuda_out_step(job, OUT_D);
    matrix->storage = shape->storage;
    matrix->element = (int)element;
    matrix->condensed = shape->output == OUTPUT_CONDENSED;
    matrix->item_bytes =
        (matrix->condensed ? shape->n * (shape->n - 1) / 2 : shape->m * shape->n) * element;
    matrix->vectors = !matrix->condensed && shape->n % PAIR_EACH == 0;
    matrix->mirrored = shape->alone && !matrix->condensed && !state->streamed &&
                       pair_entry_work(state) >= MIRROR_WORK;
    /* tiles of a block: more of them share what is read and worked out, while blocks are many */
    tiles /= (int64_t)job->facts->units * 6;
    matrix->strip = matrix->mirrored || tiles < 1 ? 1 : tiles > 4 ? 4 : (int)tiles;
    if (!state->streamed && product_serves(job, state)) return prepare_product(job, state, err);
    if (!state->streamed) return 0;
    bytes = (int64_t)(job->facts->memory_bytes / 16);
    if (bytes > blasd_distance_limits.stream_bytes) bytes = blasd_distance_limits.stream_bytes;
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
static int split_rows(const struct blasd_cuda_job *job, const struct pair_state *state,
                      int64_t *columns) {
    int64_t across = pair_tiles(state->shape.n),
            blocks = pair_tiles(state->shape.m) * state->problems;
    int64_t splits = ((int64_t)job->facts->units * 4 + blocks - 1) / blocks;
    if (splits > 32) splits = 32;
    if (splits > across) splits = across;
    *columns = (across + splits - 1) / splits * PAIR_SIDE;
    return (int)((across * PAIR_SIDE + *columns - 1) / *columns);
}

static int prepare_select(struct blasd_cuda_job *job, struct pair_state *state,
                          struct blasd_err *err) {
    const struct distance_shape *shape = &state->shape;
    struct pair_select *select = &state->select;
    int64_t row, size = (int64_t)state->size;
    int code;
    select->n = shape->n;
    select->keep = shape->neighbours;
    select->storage = shape->storage;
    for (select->room = 1; select->room < select->keep;) select->room *= 2;
    row = shape->n * size + select->room * (size + (int64_t)sizeof(uint32_t));
    state->rows_each = blasd_distance_limits.select_bytes / row;
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

static int prepare_nearest(struct blasd_cuda_job *job, struct pair_state *state,
                           struct blasd_err *err) {
    const struct distance_shape *shape = &state->shape;
    struct pair_lists *lists = &state->lists;
    int64_t keep = shape->output == OUTPUT_TOPK ? shape->neighbours : 1, entries, most;
    int code;
    /* of the many nearest in float32 a large job takes half the time by way of rows; the rest is
     * static shared memory */
    most = state->size == 4 && job->tasks[0].plan->flops > PAIR_MIXED_FLOPS ? PAIR_NEAREST_FEW
                                                                            : PAIR_NEAREST_MOST;
    state->wide = keep > most || keep > blasd_distance_limits.nearest_most ||
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

static int prepare_near(struct blasd_cuda_job *job, struct pair_state *state,
                        struct blasd_err *err) {
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
    near->radius = shape->reach;
    near->storage = shape->storage;
    near->splits = split_rows(job, state, &near->columns);
    return blasd_cuda_take(job,
                           (size_t)(state->problems * shape->m * near->splits) * sizeof(int64_t),
                           (void **)&near->counts, err);
}

/* ---- the range of the numbers ---- */

/* Weights, variances and matrices alone are looked at, which are few numbers; what entries make of
 * points the kernels see themselves. */
bool pair_on_host(const struct blasd_task *task, const struct distance_shape *shape) {
    bool wide = shape->arithmetic == BLASD_float64;
    double most = wide ? 0x1p300 : 0x1p32;
    for (int i = IN_W; i <= IN_VI; i++) {
        const struct blasd_tensor *tensor = &task->inputs[i];
        for (int64_t at = 0; tensor->data != NULL && at < blasd_tensor_elements(tensor); at++) {
            double size = fabs(wide ? ((const double *)tensor->data)[at]
                                    : (double)((const float *)tensor->data)[at]);
            if (size > most || (size != 0 && size < 1 / most)) return true;
        }
    }
    return false;
}

int pair_prepare(struct blasd_cuda_job *job, struct blasd_err *err) {
    struct pair_state *state;
    struct distance_shape *shape;
    int code = blasd_cuda_host(job, sizeof *state, &job->state, err);
    if (code != 0) return code;
    state = (struct pair_state *)job->state;
    shape = &state->shape;
    code = blasd_distance_read(job->tasks[0].job, shape, err);
    if (code != 0) return code;
    blasd_distance_choose(shape, &state->loop);
    state->size = blasd_dtype_size(shape->arithmetic);
    state->problems = shape->problems * job->count;
    state->empty = state->problems == 0 || shape->m == 0 || shape->n == 0;
    state->streamed = pair_too_large(&job->tasks[0], job->facts);
    if (state->empty) return 0;
    if (shape->m >= UINT32_MAX || shape->n >= UINT32_MAX)
        return blasd_fail(err, BLASD_E_job_too_large, "inputs.x",
                          "a CUDA device takes at most 2^32 - 2 points");
    code = prepare_points(job, state, err);
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
