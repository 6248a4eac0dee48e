/* The descriptor of distance: what may be asked, and what it will cost.
 *
 * Touches no data. Read next: prepare.c. */
#include "kernels/distance/distance.h"
#include "kernels/exact/exact.h"

#include "base/err.h"

#include <float.h>
#include <math.h>
#include <string.h>

#define POINTS (BLASD_DTYPES_FLOAT | BLASD_DTYPES_HALF | BLASD_DTYPES_INTEGER)
#define NUMBERS (BLASD_DTYPES_FLOAT | BLASD_DTYPES_INTEGER)
#define MOST_PAIRS 1e12
#define PAIRS_PER_ROW 64 /* of within, where max_pairs is not given */
#define PAIRS_LEAST 4096

static const char *const metric_names[] = {
#define X(name, loop, finish, rows, extra) #name,
    DISTANCE_METRICS(X)
#undef X
        NULL};
static const char *const output_names[] = {
    [OUTPUT_FULL] = "full", [OUTPUT_CONDENSED] = "condensed", [OUTPUT_ARGMIN] = "argmin",
    [OUTPUT_TOPK] = "topk", [OUTPUT_WITHIN] = "within",       NULL};

static const char *const roundings[] = BLASD_ROUNDING_NAMES;

#define BLASD_DECLARED "kernels/distance/distance.def"
#include "core/op_tables.h"

/* The type in which d comes out: NumPy's promotion; float16 with bfloat16 gives float32. */
static enum blasd_dtype promote(enum blasd_dtype a, enum blasd_dtype b) {
    if (blasd_dtype_kind(a) != 'f' || a == BLASD_float64) return BLASD_float64;
    if (blasd_dtype_kind(b) != 'f' || b == BLASD_float64) return BLASD_float64;
    return a == b ? a : BLASD_float32;
}

/* float64 for what float32 is too short for: powers, quotients by V and products with VI, rows that
 * are made ready first, and weights that were sent in a longer type. */
static enum blasd_dtype arithmetic_of(const struct blasd_job *job,
                                      const struct distance_shape *shape) {
    enum distance_loop loop = blasd_distance_metrics[shape->metric].loop;
    bool power = loop == LOOP_POWER && shape->p != 1 && shape->p != 2 && !isinf(shape->p);
    bool weights = shape->weighted && job->inputs[IN_W].tensor.dtype != BLASD_float32;
    /* a row at length 1, or as shares, is rounded: between rows that nearly agree that counts */
    bool made = blasd_distance_metrics[shape->metric].rows == ROWS_UNIT ||
                blasd_distance_metrics[shape->metric].rows == ROWS_CENTRED ||
                blasd_distance_metrics[shape->metric].rows == ROWS_SHARES;
    bool wide =
        power || weights || made || loop == LOOP_MAHALANOBIS || shape->metric == METRIC_seuclidean;
    return wide || shape->storage == BLASD_float64 ? BLASD_float64 : BLASD_float32;
}

/* Arrays and parameters that the metric does not take are errors, not silence. */
static int check_extras(const struct blasd_job *job, const struct distance_shape *shape,
                        struct blasd_err *err) {
    static const struct {
        int input;
        enum distance_extra extra;
    } arrays[] = {{IN_W, EXTRA_W}, {IN_V, EXTRA_V}, {IN_VI, EXTRA_VI}};
    const struct distance_metric_info *metric = &blasd_distance_metrics[shape->metric];
    for (int i = 0; i < 3; i++) {
        const struct blasd_port *port = &inputs[arrays[i].input];
        const struct blasd_tensor *tensor = &job->inputs[arrays[i].input].tensor;
        char field[64] = "inputs.";
        strncat(field, port->name, sizeof field - 8);
        if (!blasd_job_has(job, arrays[i].input)) continue;
        if (metric->extra != arrays[i].extra)
            return blasd_fail(err, BLASD_E_unknown_input, field,
                              "the metric %s takes no input %s: leave it out", metric->name,
                              port->name);
        if (tensor->shape[0] != shape->k || (tensor->rank == 2 && tensor->shape[1] != shape->k))
            return blasd_fail(err, BLASD_E_shape_mismatch, field,
                              "%s has length %lld where the points have %lld coordinates",
                              port->name, (long long)tensor->shape[tensor->rank - 1],
                              (long long)shape->k);
    }
    if (job->params[PARAM_P].given && shape->metric != METRIC_minkowski)
        return blasd_fail(err, BLASD_E_invalid_parameter, "params.p",
                          "p belongs to minkowski, not to %s", metric->name);
    if (job->params[PARAM_BASE].given && shape->metric != METRIC_jensenshannon)
        return blasd_fail(err, BLASD_E_invalid_parameter, "params.base",
                          "base belongs to jensenshannon, not to %s", metric->name);
    if (shape->metric == METRIC_mahalanobis && !blasd_job_has(job, IN_VI) &&
        (shape->alone ? shape->m : shape->m + shape->n) <= shape->k)
        return blasd_fail(err, BLASD_E_missing_input, "inputs.VI",
                          "too few points for a covariance matrix of %lld coordinates: give VI",
                          (long long)shape->k);
    return 0;
}

/* The largest number that rounds to one of dtype `storage` within `radius`. */
static double reach_of(enum blasd_dtype storage, double radius) {
    uint64_t low = 0, high; /* as integers, positive numbers have the order that they have */
    double infinity = INFINITY, rounded;
    struct blasd_tensor wide = blasd_tensor_make(BLASD_float64, 0, NULL);
    struct blasd_tensor narrow = blasd_tensor_make(storage, 0, NULL), back = wide;
    double value, room;
    if (storage == BLASD_float64 || isinf(radius)) return radius;
    memcpy(&high, &infinity, sizeof high);
    wide.data = &value;
    narrow.data = &room;
    back.data = &rounded;
    while (high - low > 1) {
        uint64_t middle = low + (high - low) / 2;
        memcpy(&value, &middle, sizeof value);
        blasd_tensor_convert(&wide, &narrow);
        blasd_tensor_convert(&narrow, &back);
        if (rounded <= radius)
            low = middle;
        else
            high = middle;
    }
    memcpy(&value, &low, sizeof value);
    return value;
}

/* The rounding of the points as they were sent: the coarser of two dtypes. */
static double unit_of(const struct blasd_job *job) {
    double unit = 0x1p-53;
    for (int i = IN_X; i <= IN_Y; i++) {
        enum blasd_dtype dtype = job->inputs[i].tensor.dtype;
        double own = dtype == BLASD_float32    ? 0x1p-24
                     : dtype == BLASD_float16  ? 0x1p-11
                     : dtype == BLASD_bfloat16 ? 0x1p-8
                                               : 0x1p-53;
        if (blasd_job_has(job, i) && own > unit) unit = own;
    }
    return unit;
}

static int check_output(const struct blasd_job *job, struct distance_shape *shape,
                        struct blasd_err *err) {
    static const struct {
        int param;
        enum distance_output output;
    } belongs[] = {
        {PARAM_K, OUTPUT_TOPK}, {PARAM_RADIUS, OUTPUT_WITHIN}, {PARAM_MAX_PAIRS, OUTPUT_WITHIN}};
    int64_t others = shape->alone ? shape->n - 1 : shape->n, all, room;
    for (int i = 0; i < 3; i++) {
        char field[64] = "params.";
        strncat(field, params[belongs[i].param].name, sizeof field - 8);
        if (job->params[belongs[i].param].given && shape->output != belongs[i].output)
            return blasd_fail(err, BLASD_E_invalid_parameter, field,
                              "it belongs to output %s, not to %s", output_names[belongs[i].output],
                              output_names[shape->output]);
    }
    if (shape->output == OUTPUT_CONDENSED && !shape->alone)
        return blasd_fail(err, BLASD_E_invalid_parameter, "params.output",
                          "condensed is of x alone: leave y out, or ask for full");
    if (shape->output == OUTPUT_ARGMIN && shape->m > 0 && others < 1)
        return blasd_fail(err, BLASD_E_invalid_shape, shape->alone ? "inputs.x" : "inputs.y",
                          "y has no points");
    shape->neighbours = job->params[PARAM_K].i;
    if (shape->output == OUTPUT_TOPK && shape->m > 0 && shape->neighbours > others)
        return blasd_fail(err, BLASD_E_invalid_parameter, "params.k",
                          "%lld neighbours asked for, but there are only %lld other points",
                          (long long)shape->neighbours, (long long)(others < 0 ? 0 : others));
    if (shape->output != OUTPUT_WITHIN) return 0;
    if (!job->params[PARAM_RADIUS].given)
        return blasd_fail(err, BLASD_E_invalid_parameter, "params.radius",
                          "output within needs a radius");
    if (shape->arithmetic == BLASD_float32 && shape->radius > (double)FLT_MAX &&
        !isinf(shape->radius))
        return blasd_fail(err, BLASD_E_invalid_parameter, "params.radius",
                          "distances beyond %g, the largest float32, are infinite: give points in "
                          "float64, or the radius infinity for all pairs",
                          (double)FLT_MAX);
    if (others < 0) others = 0;
    if (__builtin_mul_overflow(shape->m, others, &all)) all = INT64_MAX;
    if (__builtin_mul_overflow(shape->m, PAIRS_PER_ROW, &room)) room = INT64_MAX;
    if (room < PAIRS_LEAST) room = PAIRS_LEAST;
    if (job->params[PARAM_MAX_PAIRS].i > 0) room = job->params[PARAM_MAX_PAIRS].i;
    shape->pairs = room < all ? room : all;
    return 0;
}

int blasd_distance_read(const struct blasd_job *job, struct distance_shape *shape,
                        struct blasd_err *err) {
    const struct blasd_tensor *x = &job->inputs[IN_X].tensor;
    const struct blasd_tensor *y = &job->inputs[blasd_job_has(job, IN_Y) ? IN_Y : IN_X].tensor;
    char x_text[64], y_text[64];
    int code;
    memset(shape, 0, sizeof *shape);
    shape->metric = (enum distance_metric)job->params[PARAM_METRIC].choice;
    shape->output = (enum distance_output)job->params[PARAM_OUTPUT].choice;
    shape->alone = !blasd_job_has(job, IN_Y);
    shape->weighted = blasd_job_has(job, IN_W);
    shape->m = x->shape[x->rank - 2];
    shape->n = y->shape[y->rank - 2];
    shape->k = x->shape[x->rank - 1];
    shape->p = job->params[PARAM_P].f;
    shape->base = job->params[PARAM_BASE].f;
    shape->radius = job->params[PARAM_RADIUS].f;
    shape->storage = promote(x->dtype, y->dtype);
    shape->correct = job->params[PARAM_ROUNDING].choice == BLASD_ROUNDING_CORRECT;
    shape->arithmetic = shape->correct ? BLASD_float64 : arithmetic_of(job, shape);
    shape->reach = reach_of(shape->storage, shape->radius);
    shape->unit = unit_of(job);
    if (y->shape[y->rank - 1] != shape->k)
        return blasd_fail(err, BLASD_E_shape_mismatch, "inputs.y",
                          "its points have %lld coordinates, those of x have %lld",
                          (long long)y->shape[y->rank - 1], (long long)shape->k);
    shape->batch_rank =
        blasd_shape_broadcast(x->shape, x->rank - 2, y->shape, y->rank - 2, shape->batch_shape);
    if (shape->batch_rank < 0)
        return blasd_fail(err, BLASD_E_shape_mismatch, "inputs.y",
                          "its leading dimensions in %s do not broadcast against those of x in %s",
                          blasd_tensor_shape_text(y, y_text, sizeof y_text),
                          blasd_tensor_shape_text(x, x_text, sizeof x_text));
    shape->problems = 1;
    for (int i = 0; i < shape->batch_rank; i++)
        if (__builtin_mul_overflow(shape->problems, shape->batch_shape[i], &shape->problems))
            return blasd_fail(err, BLASD_E_job_too_large, "inputs.x",
                              "the batch has too many members");
    code = check_extras(job, shape, err);
    return code != 0 ? code : check_output(job, shape, err);
}

static int add_output(struct blasd_plan *plan, const struct distance_shape *shape, int output,
                      enum blasd_dtype dtype, int more, int64_t a, int64_t b,
                      struct blasd_err *err) {
    int64_t lengths[BLASD_MAX_RANK + 2];
    if (shape->batch_rank + more > BLASD_MAX_RANK)
        return blasd_fail(err, BLASD_E_invalid_shape, "inputs.x", "it has too many dimensions");
    memcpy(lengths, shape->batch_shape, sizeof shape->batch_shape);
    lengths[shape->batch_rank] = a;
    lengths[shape->batch_rank + 1] = b;
    plan->outputs[output] = blasd_tensor_make(dtype, shape->batch_rank + more, lengths);
    return 0;
}

static int plan_outputs(struct blasd_plan *plan, const struct distance_shape *shape,
                        struct blasd_err *err) {
    int64_t half = 0, splits = 0;
    int code = 0;
    if (__builtin_mul_overflow(shape->m, shape->m > 0 ? shape->m - 1 : 0, &half) ||
        __builtin_add_overflow(shape->m, 1, &splits))
        return blasd_fail(err, BLASD_E_job_too_large, "inputs.x", "there are too many points");
    switch (shape->output) {
    case OUTPUT_FULL:
        return add_output(plan, shape, OUT_D, shape->storage, 2, shape->m, shape->n, err);
    case OUTPUT_CONDENSED:
        return add_output(plan, shape, OUT_D, shape->storage, 1, half / 2, 0, err);
    case OUTPUT_ARGMIN:
        code = add_output(plan, shape, OUT_D, shape->storage, 1, shape->m, 0, err);
        return code != 0 ? code
                         : add_output(plan, shape, OUT_INDEX, BLASD_int64, 1, shape->m, 0, err);
    case OUTPUT_TOPK:
        code = add_output(plan, shape, OUT_D, shape->storage, 2, shape->m, shape->neighbours, err);
        return code != 0 ? code
                         : add_output(plan, shape, OUT_INDEX, BLASD_int64, 2, shape->m,
                                      shape->neighbours, err);
    case OUTPUT_WITHIN:
        code = add_output(plan, shape, OUT_D, shape->storage, 1, shape->pairs, 0, err);
        if (code != 0) return code;
        code = add_output(plan, shape, OUT_INDEX, BLASD_int64, 1, shape->pairs, 0, err);
        return code != 0 ? code
                         : add_output(plan, shape, OUT_ROW_SPLITS, BLASD_int64, 1, splits, 0, err);
    }
    return 0;
}

/* pow and log count for many, as they take. */
double blasd_distance_entry_work(const struct distance_shape *shape) {
    double each = 3.0 * (double)shape->k + 4;
    if (shape->correct) return 6 * each;
    switch (blasd_distance_metrics[shape->metric].loop) {
    case LOOP_MAHALANOBIS: return each * (double)(shape->k > 0 ? shape->k : 1);
    case LOOP_POWER: return each * 80;
    case LOOP_JENSENSHANNON: return each * 130;
    case LOOP_SQUARES:
    case LOOP_SQUARES_W:
    case LOOP_ABSOLUTE:
    case LOOP_ABSOLUTE_W: return each;
    default: return each * 3;
    }
}

/* Operations of one problem: its entries, twice where they are counted first; the heap of
 * neighbours and its order, as many as they take; the points, made ready; a covariance matrix and
 * its inverse. */
static double count_flops(const struct distance_shape *shape, bool covariance) {
    double m = (double)shape->m, n = (double)shape->n, k = (double)shape->k;
    double points = (shape->alone ? m : m + n) * k, each = blasd_distance_entry_work(shape);
    double sorted = shape->output == OUTPUT_TOPK ? (double)shape->neighbours : 0;
    if (shape->output == OUTPUT_WITHIN) each *= 2;
    return m * (n * each + 400 * sorted * log2(sorted + 1)) + 4 * points +
           (covariance ? points * k + k * k * k : 0);
}

/* Factors of a product, and what a block of it leaves. */
static double product_bytes(const struct distance_shape *shape) {
    double m = (double)shape->m, n = (double)shape->n, k = (double)shape->k;
    return (double)sizeof(float) * (k + 1) * (m + n) +
           (double)sizeof(double) * (m + n / DISTANCE_PART + k + 2) +
           64.0 * DISTANCE_BLOCK * fmin((double)shape->neighbours, n / 32);
}

static int distance_plan(const struct blasd_job *job, struct blasd_plan *plan,
                         struct blasd_err *err) {
    struct distance_shape shape;
    double bytes;
    int code = blasd_distance_read(job, &shape, err);
    if (code != 0) return code;
    if (shape.correct) code = blasd_exact_distance_check(job, &shape, err);
    if (code == 0) code = plan_outputs(plan, &shape, err);
    if (code != 0) return code;
    if (shape.correct) plan->host_only = BLASD_ROUNDING_HOST_ONLY;
    for (int i = IN_X; i <= IN_VI; i++) plan->input_dtype[i] = shape.arithmetic;
    plan->items = (double)shape.problems;
    plan->flops = plan->items * count_flops(&shape, shape.metric == METRIC_mahalanobis &&
                                                        !blasd_job_has(job, IN_VI));
    /* y in panels, rows made ready, and a segment of rows for each of a few threads */
    bytes = (double)blasd_dtype_size(shape.arithmetic) *
                ((double)shape.k * (3 * (double)shape.n + (double)shape.m + 64) +
                 (double)shape.k *
                     (shape.metric == METRIC_mahalanobis ? 3 * (double)shape.k + 128 : 1)) +
            64.0 * DISTANCE_ROWS * (double)shape.neighbours + 8e6;
    if (blasd_distance_multiplies(&shape)) bytes += product_bytes(&shape);
    if (!(bytes < 0x1p62))
        return blasd_fail(err, BLASD_E_job_too_large, "inputs.x", "there are too many points");
    plan->workspace_bytes = (uint64_t)bytes;
    plan->device_bytes = plan->workspace_bytes;
    plan->batchable = true;
    return 0;
}

/* n points and n others in 16 dimensions, all distances. */
static bool distance_sample(struct blasd_job *job, int64_t n, int64_t items,
                            enum blasd_dtype dtype) {
    int64_t shape[3] = {items, n, 16};
    if (items < 1) return false;
    for (int i = IN_X; i <= IN_Y; i++)
        blasd_job_give(job, i, dtype, items > 1 ? 3 : 2, items > 1 ? shape : shape + 1);
    return true;
}

const struct blasd_op blasd_op_distance = {
    .name = "distance",
    .summary = "Distances between points, d[i,j] = metric(x[i], y[j])",
    .doc =
        "The metrics of SciPy's cdist and pdist, computed from direct differences, so that "
        "nothing cancels wherever the points lie; d is symmetric to the last bit and exactly 0 "
        "for equal points.\n"
        "Without y the points of x are compared with each other; argmin, topk and within then "
        "leave out the point itself. Points at equal distance, before d is rounded to a shorter "
        "type, are listed by index; NaN counts as farther than everything.\n"
        "within fills index and d up to row_splits[m]; what follows is -1 and infinity. It lists "
        "the points whose d, as it is returned, is at most the radius.\n"
        "A coordinate of weight 0 does not count, nor do NaN and infinities in it. Rows without a "
        "direction (cosine: zero; correlation: constant) are NaN from all others, and a warning "
        "says so.\n"
        "float16 and bfloat16 points are computed with in float32 and d is rounded to their "
        "type; integers and bool are computed with in float64, as are cosine, correlation, "
        "jensenshannon, seuclidean, mahalanobis and minkowski of other orders than 1, 2 and "
        "infinity.\n"
        "The metrics mean what they do in SciPy since 1.15. jaccard and the boolean metrics "
        "(kulczynski1, rogerstanimoto, russellrao, sokalmichener, sokalsneath, yule) take every "
        "number but 0 as true; dice computes with the numbers themselves, or "
        "with weights counts those that differ beside those that are both not 0. "
        "jaccard_legacy, which "
        "compares the numbers, and dice_legacy, of truth values, are those of older releases; "
        "for bools there is no difference. jensenshannon is infinite where a row is negative "
        "somewhere or sums to 0.",
    .inputs = inputs,
    .outputs = outputs,
    .params = params,
    .plan = distance_plan,
    .slower = 4,
    .sample = distance_sample,
};
