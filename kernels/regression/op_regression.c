/* The descriptor of regression: what may be asked, and what it will cost.
 *
 * Touches no data. Read next: regression.h. */
#include "kernels/exact/exact.h"
#include "kernels/regression/device_fit.h"
#include "kernels/regression/regression.h"

#include "base/err.h"

#include <math.h>
#include <string.h>

#define NUMBERS (BLASD_DTYPES_FLOAT | BLASD_DTYPES_INTEGER)
#define RESULT BLASD_DTYPES_FLOAT
#define FLOAT64 BLASD_DTYPE_BIT(BLASD_float64)
#define INT64 BLASD_DTYPE_BIT(BLASD_int64)
#define MOST_COEFFICIENTS 100000000 /* of a wide problem; what LAPACK's int can index */
#define MOST_TRIANGLE 40000         /* rows of a square factor */

static const char *const method_names[] = {
    [METHOD_OLS] = "ols",     [METHOD_RIDGE] = "ridge",
    [METHOD_LASSO] = "lasso", [METHOD_ELASTIC_NET] = "elastic_net",
    [METHOD_GD] = "gd",       NULL};
static const char *const cov_names[] = {[COV_NONROBUST] = "nonrobust",
                                        [COV_HC0] = "HC0",
                                        [COV_HC1] = "HC1",
                                        [COV_HC2] = "HC2",
                                        [COV_HC3] = "HC3",
                                        NULL};

static const char *const roundings[] = BLASD_ROUNDING_NAMES;

#define BLASD_DECLARED "kernels/regression/regression.def"
#include "core/op_tables.h"

/* Which methods each parameter belongs to. */
#define BIT(method) (1u << (method))
static const unsigned param_methods[] = {
    [PARAM_METHOD] = ~0u,
    [PARAM_FIT_INTERCEPT] = ~0u,
    [PARAM_ALPHA] = BIT(METHOD_RIDGE) | BIT(METHOD_LASSO) | BIT(METHOD_ELASTIC_NET),
    [PARAM_L1_RATIO] = BIT(METHOD_ELASTIC_NET),
    [PARAM_TOL] = BIT(METHOD_LASSO) | BIT(METHOD_ELASTIC_NET),
    [PARAM_MAX_ITER] = BIT(METHOD_LASSO) | BIT(METHOD_ELASTIC_NET),
    [PARAM_LEARNING_RATE] = BIT(METHOD_GD),
    [PARAM_ITERATIONS] = BIT(METHOD_GD),
    [PARAM_LEVEL] = BIT(METHOD_OLS),
    [PARAM_COV_TYPE] = BIT(METHOD_OLS),
    [PARAM_USE_T] = BIT(METHOD_OLS),
    [PARAM_RESIDUALS] = ~0u,
    [PARAM_COV_PARAMS] = BIT(METHOD_OLS),
    [PARAM_RCOND] = BIT(METHOD_OLS),
    [PARAM_CERTIFY] = BIT(METHOD_OLS),
    [PARAM_ROUNDING] = BIT(METHOD_OLS)};

static int check_params(const struct blasd_job *job, enum regression_method method,
                        struct blasd_err *err) {
    for (int i = 0; params[i].name != NULL; i++) {
        char field[64] = "params.";
        if (!job->params[i].given || (param_methods[i] & BIT(method)) != 0) continue;
        strncat(field, params[i].name, sizeof field - 8);
        return blasd_fail(err, BLASD_E_invalid_parameter, field,
                          "method %s has no parameter %s: leave it out", method_names[method],
                          params[i].name);
    }
    return 0;
}

static bool single(const struct blasd_tensor *tensor) {
    return tensor->dtype == BLASD_float32;
}

/* Joins the leading dimensions of an input to the batch. */
static int join_batch(struct regression_shape *shape, const struct blasd_tensor *tensor, int rank,
                      const char *field, struct blasd_err *err) {
    int64_t joined[BLASD_MAX_RANK];
    char text[64];
    int both =
        blasd_shape_broadcast(shape->batch_shape, shape->batch_rank, tensor->shape, rank, joined);
    if (both < 0)
        return blasd_fail(err, BLASD_E_shape_mismatch, field,
                          "its leading dimensions in %s do not broadcast against those of x",
                          blasd_tensor_shape_text(tensor, text, sizeof text));
    shape->batch_rank = both;
    memcpy(shape->batch_shape, joined, sizeof joined);
    return 0;
}

static int check_length(int64_t length, int64_t n, const char *field, struct blasd_err *err) {
    if (length == n) return 0;
    return blasd_fail(err, BLASD_E_shape_mismatch, field,
                      "it has %lld observations where x has %lld", (long long)length, (long long)n);
}

/* Rows in groups: the problems are these. */
static int read_groups(const struct blasd_job *job, struct regression_shape *shape,
                       struct blasd_err *err) {
    const struct blasd_input *input = &job->inputs[IN_SPLITS];
    const struct blasd_tensor *splits = &input->tensor;
    char text[64];
    shape->grouped = true;
    if (shape->batch_rank > 0)
        return blasd_fail(err, BLASD_E_invalid_shape, "inputs.row_splits",
                          "x, y and sample_weight must not have leading dimensions if it is given");
    if (splits->shape[0] < 1)
        return blasd_fail(err, BLASD_E_invalid_shape, "inputs.row_splits",
                          "its shape is %s: g groups have g + 1 numbers, the first of which is 0",
                          blasd_tensor_shape_text(splits, text, sizeof text));
    if (input->splits && input->first_descent < 0 && input->last != shape->n)
        return blasd_fail(err, BLASD_E_out_of_range, "inputs.row_splits",
                          "it ends with %lld where x has %lld rows", (long long)input->last,
                          (long long)shape->n);
    shape->batch_rank = 1;
    shape->batch_shape[0] = shape->problems = splits->shape[0] - 1;
    return 0;
}

int blasd_regression_read(const struct blasd_job *job, struct regression_shape *shape,
                          struct blasd_err *err) {
    const struct blasd_tensor *x = &job->inputs[IN_X].tensor, *y = &job->inputs[IN_Y].tensor;
    const struct blasd_tensor *w = &job->inputs[IN_WEIGHT].tensor;
    char text[64];
    const struct blasd_value *v = job->params;
    int lead, code;
    memset(shape, 0, sizeof *shape);
    shape->method = (enum regression_method)v[PARAM_METHOD].choice;
    shape->cov = (enum regression_cov)v[PARAM_COV_TYPE].choice;
    shape->intercept = v[PARAM_FIT_INTERCEPT].b;
    shape->use_t = v[PARAM_USE_T].given ? v[PARAM_USE_T].b : shape->cov == COV_NONROBUST;
    shape->residuals = v[PARAM_RESIDUALS].b;
    shape->cov_params = v[PARAM_COV_PARAMS].b;
    shape->certify = v[PARAM_CERTIFY].b;
    shape->correct = v[PARAM_ROUNDING].choice == BLASD_ROUNDING_CORRECT;
    shape->alpha = v[PARAM_ALPHA].f;
    shape->l1_ratio = v[PARAM_L1_RATIO].f;
    shape->tol = v[PARAM_TOL].f;
    shape->learning_rate = v[PARAM_LEARNING_RATE].f;
    shape->level = v[PARAM_LEVEL].f;
    shape->rcond = v[PARAM_RCOND].f;
    shape->iterations = v[shape->method == METHOD_GD ? PARAM_ITERATIONS : PARAM_MAX_ITER].i;
    code = check_params(job, shape->method, err);
    if (code != 0) return code;
    shape->weighted = blasd_job_has(job, IN_WEIGHT);
    shape->n = x->shape[x->rank - 2];
    shape->p = x->shape[x->rank - 1];
    shape->q = shape->p + (shape->intercept ? 1 : 0);
    if (y->rank != x->rank && y->rank != x->rank - 1)
        return blasd_fail(err, BLASD_E_shape_mismatch, "inputs.y",
                          "it has shape %s: give it one dimension less than x, or as many for "
                          "several targets",
                          blasd_tensor_shape_text(y, text, sizeof text));
    shape->many = y->rank == x->rank;
    shape->t = shape->many ? y->shape[y->rank - 1] : 1;
    lead = x->rank - 2;
    code = check_length(y->shape[lead], shape->n, "inputs.y", err);
    if (code == 0 && shape->n < 1 && !blasd_job_has(job, IN_SPLITS))
        code = blasd_fail(err, BLASD_E_invalid_shape, "inputs.x", "there are no observations");
    if (code == 0) code = join_batch(shape, x, lead, "inputs.x", err);
    if (code == 0) code = join_batch(shape, y, lead, "inputs.y", err);
    if (code == 0 && shape->weighted) {
        code = check_length(w->shape[w->rank - 1], shape->n, "inputs.sample_weight", err);
        if (code == 0) code = join_batch(shape, w, w->rank - 1, "inputs.sample_weight", err);
    }
    if (code != 0) return code;
    shape->problems = 1;
    for (int i = 0; i < shape->batch_rank; i++)
        if (__builtin_mul_overflow(shape->problems, shape->batch_shape[i], &shape->problems))
            return blasd_fail(err, BLASD_E_job_too_large, "inputs.x",
                              "the batch has too many members");
    if (blasd_job_has(job, IN_SPLITS) && (code = read_groups(job, shape, err)) != 0) return code;
    blasd_regression_choose_way(shape);
    shape->sent = single(x) ? 0x1p-24 : 0x1p-53;
    shape->sent_y = single(y) ? 0x1p-24 : 0x1p-53;
    shape->storage =
        single(x) && single(y) && (!shape->weighted || single(w)) ? BLASD_float32 : BLASD_float64;
    return 0;
}

static unsigned any_numbers(const struct blasd_job *job) {
    return blasd_job_has(job, IN_SPLITS) ? 1u << IN_X | 1u << IN_Y | 1u << IN_WEIGHT : 0;
}

/* An output with the batch's dimensions, that of targets where `each` asks for it, and `more`. */
static int add_output(struct blasd_plan *plan, const struct regression_shape *shape, int output,
                      enum blasd_dtype dtype, bool each, int more, int64_t a, int64_t b,
                      struct blasd_err *err) {
    int64_t lengths[BLASD_MAX_RANK + 3];
    int rank = shape->batch_rank;
    memcpy(lengths, shape->batch_shape, sizeof shape->batch_shape);
    if (each && shape->many) lengths[rank++] = shape->t;
    if (more >= 1) lengths[rank++] = a;
    if (more == 2) lengths[rank++] = b;
    if (rank > BLASD_MAX_RANK)
        return blasd_fail(err, BLASD_E_invalid_shape, "inputs.x", "it has too many dimensions");
    plan->outputs[output] = blasd_tensor_make(dtype, rank, lengths);
    return 0;
}

/* An output like y. */
static int add_rows(struct blasd_plan *plan, const struct regression_shape *shape, int output,
                    struct blasd_err *err) {
    struct regression_shape whole = *shape;
    if (shape->grouped) whole.batch_rank = 0;
    return add_output(plan, &whole, output, shape->storage, false, shape->many ? 2 : 1, shape->n,
                      shape->t, err);
}

/* Outputs that only ols has. */
static int plan_statistics(struct blasd_plan *plan, const struct regression_shape *shape,
                           struct blasd_err *err) {
    static const int each[] = {OUT_R2_ADJ, OUT_FVALUE, OUT_F_PVALUE, OUT_LOGLIK,
                               OUT_AIC,    OUT_BIC,    OUT_SCALE};
    static const int counts[] = {OUT_DF_MODEL, OUT_DF_RESID, OUT_RANK};
    static const int each_coef[] = {OUT_STDERR, OUT_TVALUES, OUT_PVALUES};
    int64_t q = shape->q, values = blasd_regression_values(shape);
    int code = 0;
    for (size_t i = 0; code == 0 && i < sizeof each / sizeof *each; i++)
        code = add_output(plan, shape, each[i], BLASD_float64, true, 0, 0, 0, err);
    for (size_t i = 0; code == 0 && i < sizeof counts / sizeof *counts; i++)
        code = add_output(plan, shape, counts[i], BLASD_int64, false, 0, 0, 0, err);
    for (size_t i = 0; code == 0 && i < sizeof each_coef / sizeof *each_coef; i++)
        code = add_output(plan, shape, each_coef[i], BLASD_float64, true, 1, q, 0, err);
    if (code == 0) code = add_output(plan, shape, OUT_CONF_INT, BLASD_float64, true, 2, q, 2, err);
    if (code == 0)
        code =
            add_output(plan, shape, OUT_SINGULAR_VALUES, BLASD_float64, false, 1, values, 0, err);
    if (code == 0) code = add_output(plan, shape, OUT_COND, BLASD_float64, false, 0, 0, 0, err);
    if (code == 0 && shape->cov_params)
        code = add_output(plan, shape, OUT_COV_PARAMS, BLASD_float64, true, 2, q, q, err);
    if (code == 0 && shape->correct)
        code = add_output(plan, shape, OUT_UNPROVEN, BLASD_int64, false, 0, 0, 0, err);
    if (code == 0 && shape->certify)
        code = add_output(plan, shape, OUT_ERROR_BOUND, BLASD_float64, true, 1, shape->p, 0, err);
    return code;
}

static int plan_outputs(struct blasd_plan *plan, const struct regression_shape *shape,
                        struct blasd_err *err) {
    static const int each[] = {OUT_R2, OUT_SSR, OUT_TSS};
    int code = add_output(plan, shape, OUT_COEF, shape->storage, true, 1, shape->p, 0, err);
    if (code == 0)
        code = add_output(plan, shape, OUT_INTERCEPT, shape->storage, true, 0, 0, 0, err);
    for (size_t i = 0; code == 0 && i < sizeof each / sizeof *each; i++)
        code = add_output(plan, shape, each[i], BLASD_float64, true, 0, 0, 0, err);
    if (code == 0) code = add_output(plan, shape, OUT_INFO, BLASD_int64, false, 0, 0, 0, err);
    if (code == 0 && shape->method == METHOD_OLS) code = plan_statistics(plan, shape, err);
    if (code == 0 && (shape->method == METHOD_LASSO || shape->method == METHOD_ELASTIC_NET)) {
        code = add_output(plan, shape, OUT_N_ITER, BLASD_int64, true, 0, 0, 0, err);
        if (code == 0)
            code = add_output(plan, shape, OUT_DUAL_GAP, BLASD_float64, true, 0, 0, 0, err);
    }
    if (code == 0 && shape->method == METHOD_GD)
        code = add_output(plan, shape, OUT_GRADIENT_NORM, BLASD_float64, true, 0, 0, 0, err);
    if (code == 0 && shape->method == METHOD_GD)
        code = add_output(plan, shape, OUT_CONVERGED, BLASD_int64, true, 0, 0, 0, err);
    for (int i = OUT_RESIDUALS; code == 0 && shape->residuals && i <= OUT_FITTED; i++)
        code = add_rows(plan, shape, i, err);
    return code;
}

#define STEP_FLOPS 300   /* what a step or a sweep costs beside its arithmetic */
#define NEWTON_SWEEPS 32 /* sweeps for which one set of coefficients is solved for directly */

/* Operations of one step of gd, or of one sweep of lasso with its part of what follows. */
static double step_flops(const struct regression_shape *shape) {
    double n = (double)shape->n, q = (double)shape->q, t = (double)shape->t;
    double rows = n < q ? n : q, used = q < 200 ? q : 200;
    if (shape->method == METHOD_GD)
        return t * (2 * q * (q < 2 * n ? q : 2 * n) + 2 * q) + STEP_FLOPS;
    return t * (4 * rows * q + used * used * (rows + used / 3) / NEWTON_SWEEPS + STEP_FLOPS);
}

/* Sweeps go on until the coefficients stand still, which may be soon; steps are taken as asked. */
static bool may_end_early(const struct regression_shape *shape) {
    return (shape->method == METHOD_LASSO || shape->method == METHOD_ELASTIC_NET) &&
           !blasd_regression_smooth(shape);
}

/* Operations of one problem: as usually counted, with `steps` steps or sweeps, and what many
 * targets and robust errors add. */
static double count_flops(const struct regression_shape *shape, double steps) {
    double n = (double)shape->n, q = (double)shape->q, t = (double)shape->t;
    double least = n < q ? n : q, flops = 2 * n * q * (least + 2 * t);
    if (shape->method == METHOD_OLS && t > 1) flops += (t - 1) * q * (80 * n + 1000);
    if (shape->method == METHOD_OLS && shape->cov != COV_NONROBUST) flops += 3 * n * q * q * t;
    if (shape->method == METHOD_OLS && shape->cov_params) flops += q * q * least * t;
    if (shape->certify) flops += 2 * n * q * q + 150 * n * q * t;
    if (shape->correct) flops += 20 * n * q * (q + t);
    if (shape->method == METHOD_GD || may_end_early(shape)) flops += step_flops(shape) * steps;
    return flops;
}

/* Bytes beside inputs and outputs. */
static double count_bytes(const struct regression_shape *shape) {
    double n = (double)shape->n, q = (double)shape->q, t = (double)shape->t;
    double rows = n < q ? n + 1 : q, numbers = (rows + 8) * (4 * q + 3 * t) + 4 * q * q + 4 * n * t;
    if (shape->method == METHOD_GD) numbers += n * (q + 2 * t);
    numbers += n * (t + 1); /* in other units, as is x for a covariance */
    if (shape->cov != COV_NONROBUST || shape->cov_params) numbers += n * q;
    if (shape->way == WAY_SMALL) numbers += 2 * (n + 32) * (q + t) + 8 * q * (q + t);
    if (shape->way == WAY_TALL) {
        numbers += 65536 + (q + t) * (2 * q + 256);
        if (blasd_regression_doubled(shape)) numbers += 2 * (n + 32) * (q + t) + 8 * q * (q + t);
    }
    if (shape->way == WAY_WIDE) numbers += 3 * rows * q - 4 * q * q + 4 * rows * rows;
    if (shape->method != METHOD_OLS && shape->method != METHOD_GD)
        numbers += (n + 16) * (q + t + 2) + 4 * q * (q + t) + 2 * q * t;
    if (shape->certify) numbers += 4 * q * q + 256 * q;
    if (shape->correct) numbers += n * (q + t) + 120 * q * (q + t);
    return 8 * numbers + 65536;
}

/* Rounding correct: what it is rejected for, and what it has. */
static int plan_correct(const struct blasd_job *job, const struct regression_shape *shape,
                        struct blasd_plan *plan, struct blasd_err *err) {
    if (shape->weighted || shape->grouped)
        return blasd_fail(err, BLASD_E_invalid_parameter, "params.rounding",
                          "correct takes neither sample_weight nor row_splits");
    plan->host_only = BLASD_ROUNDING_HOST_ONLY;
    return blasd_exact_check(job, err);
}

static int regression_plan(const struct blasd_job *job, struct blasd_plan *plan,
                           struct blasd_err *err) {
    struct regression_shape shape, each;
    double bytes;
    int code = blasd_regression_read(job, &shape, err);
    if (code == 0) code = plan_outputs(plan, &shape, err);
    if (code == 0 && shape.correct) code = plan_correct(job, &shape, plan, err);
    if (code != 0) return code;
    for (int i = IN_X; i <= IN_WEIGHT; i++) plan->input_dtype[i] = BLASD_float64;
    plan->input_dtype[IN_SPLITS] = BLASD_int64;
    each = shape;
    if (shape.grouped && shape.problems > 0) /* the values are not known: groups of equal size */
        each.n = (shape.n + shape.problems - 1) / shape.problems;
    plan->items = (double)shape.problems;
    plan->flops = plan->items * count_flops(&each, (double)shape.iterations);
    if (may_end_early(&shape)) plan->flops_least = plan->items * count_flops(&each, 1);
    bytes = count_bytes(&shape);
    if (!(bytes < 0x1p62) || shape.q > MOST_COEFFICIENTS || shape.t > MOST_COEFFICIENTS ||
        ((shape.way == WAY_TALL || shape.grouped) && shape.q > MOST_TRIANGLE) ||
        (shape.way == WAY_WIDE && shape.n > MOST_TRIANGLE))
        return blasd_fail(
            err, BLASD_E_job_too_large, "inputs.x",
            "%lld observations, %lld coefficients and %lld targets are too many: a job "
            "may have %d coefficients and targets, and %d of whichever of "
            "observations and coefficients are fewer",
            (long long)shape.n, (long long)shape.q, (long long)shape.t, MOST_COEFFICIENTS,
            MOST_TRIANGLE);
    plan->workspace_bytes = (uint64_t)bytes;
    plan->device_bytes = plan->workspace_bytes;
    plan->device_least_bytes = plan->device_bytes;
    if (blasd_regression_where(&shape) == REGRESSION_REFUSED)
        plan->host_only = REGRESSION_DEVICE_TAKES;
    plan->batchable = true;
    return 0;
}

/* Least squares: n / 8 features, and 16 n observations of each. */
static bool regression_sample(struct blasd_job *job, int64_t n, int64_t items,
                              enum blasd_dtype dtype) {
    int64_t x[3] = {items, 16 * n, n < 8 ? 1 : n / 8}, y[2] = {items, 16 * n};
    if (items < 1) return false;
    blasd_job_give(job, IN_X, dtype, items > 1 ? 3 : 2, items > 1 ? x : x + 1);
    blasd_job_give(job, IN_Y, dtype, items > 1 ? 2 : 1, items > 1 ? y : y + 1);
    return true;
}

const struct blasd_op blasd_op_regression = {
    .name = "regression",
    .summary = "Linear regression: y = intercept + x coef",
    .doc =
        "ols solves (weighted) least squares by orthogonal factorisation, in double-double "
        "arithmetic where the problem is small or ill-conditioned, else in double with refinement "
        "by double-double residuals; statistics have statsmodels' meanings. Where the features are "
        "not independent, or more than the observations, the solution of least norm is given (the "
        "intercept is not part of the norm), with a warning: by the rounding of the dtype that x "
        "was "
        "sent in, on features less their means and in units of their own. Features of which little "
        "more is left than that, ridge that is too ill-conditioned and too large for more digits, "
        "a fit without degrees of freedom or without residuals, a y that does not vary, robust "
        "errors where an observation decides a coefficient alone and a negative r2 are warned of "
        "too; `info` says of which.\n"
        "ridge minimises |y - Xb|^2 + alpha |b|^2; lasso |y - Xb|^2 / (2n) + alpha |b|_1; "
        "elastic_net |y - Xb|^2 / (2n) + alpha l1_ratio |b|_1 + alpha (1 - l1_ratio) |b|^2 / 2. "
        "With sample_weight squares are weighted and n is the weights' sum. The intercept is not "
        "penalised.\n"
        "gd takes `iterations` steps b -= learning_rate * 2/n X'(Xb - y) from b = 0, the intercept "
        "being a column of ones; where its gradient has grown, a warning says so.\n"
        "float32 and float64 are computed with in float64; coef, intercept, residuals and fitted "
        "come in the type of the inputs, statistics in float64.\n"
        "With row_splits a job fits many groups of rows, of unequal sizes: each as a job of its "
        "own "
        "would, bit for bit on a CPU. x, y and sample_weight may hold NaN and infinities then: "
        "they spoil their group alone.",
    .inputs = inputs,
    .outputs = outputs,
    .params = params,
    .plan = regression_plan,
    .any_numbers = any_numbers,
    .slower = 4,
    .sample = regression_sample,
};
