/* The descriptor of regression: what may be asked, and what it will cost.
 *
 * Touches no data. Read next: regression.h. */
#include "kernels/regression/regression.h"

#include "base/err.h"

#include <math.h>
#include <string.h>

#define NUMBERS (BLASD_DTYPES_FLOAT | BLASD_DTYPES_INTEGER)
#define RESULT BLASD_DTYPES_FLOAT
#define FLOAT64 BLASD_DTYPE_BIT(BLASD_float64)
#define INT64 BLASD_DTYPE_BIT(BLASD_int64)

static const struct blasd_port inputs[] = {
    [IN_X] = {"x", "(..., n, p)", "Observations, one a row, of p features.", NUMBERS, 2,
              BLASD_MAX_RANK, false, true},
    [IN_Y] = {"y", "(..., n) or (..., n, t)",
              "What is to be explained: one target (one dimension less than x), or t of them. "
              "Leading dimensions broadcast against those of x.",
              NUMBERS, 1, BLASD_MAX_RANK, false, true},
    [IN_WEIGHT] = {"sample_weight", "(..., n)", "Weights of the observations, not negative.",
                   NUMBERS, 1, BLASD_MAX_RANK - 1, true, true},
    {0}};

static const struct blasd_port outputs[] = {
    [OUT_COEF] = {"coef", "(..., [t,] p)", "Coefficients of the features.", RESULT, 1,
                  BLASD_MAX_RANK, false, false},
    [OUT_INTERCEPT] = {"intercept", "(..., [t])", "The intercept; 0 without fit_intercept.", RESULT,
                       0, BLASD_MAX_RANK, false, false},
    [OUT_RANK] = {"rank", "(...)", "Rank of the design matrix, the intercept's column included.",
                  INT64, 0, BLASD_MAX_RANK, false, false},
    [OUT_SSR] = {"ssr", "(..., [t])", "Sum of squared residuals, weighted.", FLOAT64, 0,
                 BLASD_MAX_RANK, false, false},
    [OUT_R2] = {"r2", "(..., [t])",
                "Coefficient of determination; uncentred without fit_intercept.", FLOAT64, 0,
                BLASD_MAX_RANK, false, false},
    [OUT_DF_MODEL] = {"df_model", "(...)", "Degrees of freedom of the model: rank less intercept.",
                      INT64, 0, BLASD_MAX_RANK, false, false},
    [OUT_DF_RESID] = {"df_resid", "(...)", "Degrees of freedom of the residuals: n - rank.", INT64,
                      0, BLASD_MAX_RANK, false, false},
    {0}};

static const struct blasd_param params[] = {
    [PARAM_FIT_INTERCEPT] = {.name = "fit_intercept",
                             .doc = "Whether the model has a constant term.",
                             .kind = BLASD_PARAM_BOOL,
                             .preset = {.b = true}},
    {0}};

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

int blasd_regression_read(const struct blasd_job *job, struct regression_shape *shape,
                          struct blasd_err *err) {
    const struct blasd_tensor *x = &job->inputs[IN_X].tensor, *y = &job->inputs[IN_Y].tensor;
    const struct blasd_tensor *w = &job->inputs[IN_WEIGHT].tensor;
    char text[64];
    int lead, code;
    memset(shape, 0, sizeof *shape);
    shape->intercept = job->params[PARAM_FIT_INTERCEPT].b;
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
    if (code == 0 && shape->n < 1)
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
    shape->storage =
        single(x) && single(y) && (!shape->weighted || single(w)) ? BLASD_float32 : BLASD_float64;
    return 0;
}

/* An output with the batch's dimensions, those of targets where `each` asks for them, and `more`.
 */
static int add_output(struct blasd_plan *plan, const struct regression_shape *shape, int output,
                      enum blasd_dtype dtype, bool each, int more, int64_t last,
                      struct blasd_err *err) {
    int64_t lengths[BLASD_MAX_RANK + 2];
    int rank = shape->batch_rank;
    memcpy(lengths, shape->batch_shape, sizeof shape->batch_shape);
    if (each && shape->many) lengths[rank++] = shape->t;
    if (more == 1) lengths[rank++] = last;
    if (rank > BLASD_MAX_RANK)
        return blasd_fail(err, BLASD_E_invalid_shape, "inputs.x", "it has too many dimensions");
    plan->outputs[output] = blasd_tensor_make(dtype, rank, lengths);
    return 0;
}

static int regression_plan(const struct blasd_job *job, struct blasd_plan *plan,
                           struct blasd_err *err) {
    struct regression_shape shape;
    double n, q, t, bytes;
    int code = blasd_regression_read(job, &shape, err);
    if (code != 0) return code;
    if ((code = add_output(plan, &shape, OUT_COEF, shape.storage, true, 1, shape.p, err)) != 0 ||
        (code = add_output(plan, &shape, OUT_INTERCEPT, shape.storage, true, 0, 0, err)) != 0 ||
        (code = add_output(plan, &shape, OUT_RANK, BLASD_int64, false, 0, 0, err)) != 0 ||
        (code = add_output(plan, &shape, OUT_SSR, BLASD_float64, true, 0, 0, err)) != 0 ||
        (code = add_output(plan, &shape, OUT_R2, BLASD_float64, true, 0, 0, err)) != 0 ||
        (code = add_output(plan, &shape, OUT_DF_MODEL, BLASD_int64, false, 0, 0, err)) != 0 ||
        (code = add_output(plan, &shape, OUT_DF_RESID, BLASD_int64, false, 0, 0, err)) != 0)
        return code;
    for (int i = IN_X; i <= IN_WEIGHT; i++) plan->input_dtype[i] = BLASD_float64;
    n = (double)shape.n;
    q = (double)shape.q;
    t = (double)shape.t;
    plan->flops = (double)shape.problems * 2 * n * q * (q + 2 * t);
    bytes = 8 * ((n + 32) * (2 * q + 3 * t + 4) + 8 * (q + t) * (q + t) + 64);
    if (!(bytes < 0x1p62) || shape.q > 40000)
        return blasd_fail(err, BLASD_E_job_too_large, "inputs.x",
                          "it has more observations or features than one job may have");
    plan->workspace_bytes = (uint64_t)bytes;
    plan->device_bytes = plan->workspace_bytes;
    plan->batchable = true;
    for (int i = IN_X; i <= IN_WEIGHT; i++) {
        blasd_key_add_int(&plan->key, blasd_job_has(job, i));
        if (blasd_job_has(job, i)) blasd_key_add_tensor(&plan->key, &job->inputs[i].tensor);
    }
    blasd_key_add_int(&plan->key, shape.intercept);
    return 0;
}

const struct blasd_op blasd_op_regression = {
    .name = "regression",
    .summary = "Linear regression: y = intercept + x coef, by least squares",
    .doc = "Ordinary and weighted least squares by orthogonal factorisation in extended precision. "
           "Where the features are not independent, or more than the observations, the solution "
           "of least norm is given (the intercept is not part of the norm), with a warning.",
    .inputs = inputs,
    .outputs = outputs,
    .params = params,
    .plan = regression_plan,
};
