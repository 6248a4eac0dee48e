/* What every backend does around a fit: finding a problem's data in a task, checking its weights,
 * telling the user what was out of the ordinary. */
#include "kernels/regression/regression.h"

#include "base/err.h"
#include "core/kernel.h"
#include "kernels/cpu/cpu.h"
#include "kernels/numeric/double_double.h"

#include <float.h>
#include <math.h>

bool blasd_regression_smooth(const struct regression_shape *shape) {
    if (shape->method == METHOD_LASSO) return shape->alpha == 0;
    return shape->method == METHOD_ELASTIC_NET && (shape->alpha == 0 || shape->l1_ratio == 0);
}

struct regression_shape blasd_regression_as_ridge(const struct regression_shape *shape,
                                                  double total) {
    struct regression_shape ridge = *shape;
    ridge.method = METHOD_RIDGE;
    ridge.alpha = shape->alpha * total;
    return ridge;
}

void blasd_regression_walk(const struct regression_shape *shape, const struct blasd_task *task,
                           int64_t at, struct blasd_walk *walk) {
    const struct blasd_tensor *in = task->inputs;
    int lead = in[IN_X].rank - 2;
    blasd_walk_init(walk, shape->batch_rank, shape->batch_shape);
    blasd_walk_operand(walk, 0, lead, in[IN_X].shape);
    blasd_walk_operand(walk, 1, lead, in[IN_Y].shape);
    if (shape->weighted) blasd_walk_operand(walk, 2, in[IN_WEIGHT].rank - 1, in[IN_WEIGHT].shape);
    blasd_walk_seek(walk, at);
}

struct regression_data blasd_regression_data(const struct regression_shape *shape,
                                             const struct blasd_task *task,
                                             const struct blasd_walk *walk) {
    const struct blasd_tensor *in = task->inputs;
    struct regression_data data = {0};
    data.x = (const double *)in[IN_X].data + walk->offset[0] * shape->n * shape->p;
    data.y = (const double *)in[IN_Y].data + walk->offset[1] * shape->n * shape->t;
    if (shape->weighted) data.w = (const double *)in[IN_WEIGHT].data + walk->offset[2] * shape->n;
    return data;
}

int blasd_regression_weights(const struct regression_shape *shape, struct regression_data *data,
                             struct blasd_err *err) {
    struct dd total = dd_from(data->w == NULL ? (double)shape->n : 0);
    data->total = data->rest = 0;
    data->without = 0;
    for (int64_t i = 0; data->w != NULL && i < shape->n; i++) {
        if (!(data->w[i] >= 0))
            return blasd_fail(err, BLASD_E_out_of_range, "inputs.sample_weight",
                              "weight %lld is %g: weights must not be negative", (long long)i,
                              data->w[i]);
        data->total += data->w[i];
        total = dd_add(total, dd_from(data->w[i]));
        data->without += data->w[i] == 0;
    }
    if (isfinite(data->total)) {
        data->total = total.hi;
        data->rest = total.lo;
    }
    if (data->total > 0 && data->total < INFINITY) return 0;
    if (data->total > 0)
        return blasd_fail(err, BLASD_E_out_of_range, "inputs.sample_weight",
                          "the sum of the weights is beyond the range of float64: divide them by a "
                          "large number");
    return blasd_fail(err, BLASD_E_out_of_range, "inputs.sample_weight",
                      "the weights add up to %g: at least one must be positive", data->total);
}

/* Of one target's column. Squares of its numbers may be beyond the range of doubles. */
static double gradient_norm(const struct regression_shape *shape, const double *g, int64_t target) {
    double largest = 0, squares = 0;
    for (int64_t j = 0; j < shape->q; j++) {
        double size = fabs(g[j * shape->t + target]);
        if (!(size <= largest)) largest = size; /* NaN stays */
    }
    if (!(largest > 0) || isinf(largest)) return largest;
    for (int64_t j = 0; j < shape->q; j++) {
        double part = g[j * shape->t + target] / largest;
        squares += part * part;
    }
    return largest * sqrt(squares);
}

#define CONVERGED 1e-6 /* of the gradient at the start */

/* The gradient of a quadratic function grows under equal steps exactly where its value does, or
 * will: in directions in which a step goes too far. */
void blasd_regression_judge(const struct regression_shape *shape, const double *start,
                            const double *end, double unit, struct regression_fit *fit) {
    for (int64_t l = 0; l < shape->t; l++) {
        double before = gradient_norm(shape, start, l), after = gradient_norm(shape, end, l);
        fit->gradient[l] = after * unit;
        fit->converged[l] = after <= CONVERGED * before;
        fit->diverged += !(after <= before * (1 + 1e-9));
    }
}

double blasd_regression_number(const struct blasd_tensor *tensor, int64_t at) {
    if (tensor->dtype == BLASD_float32) return (double)((const float *)tensor->data)[at];
    return ((const double *)tensor->data)[at];
}

#define WORSE (-1e-10) /* of r2: below 0 by more than its rounding */

/* Whether HC2 or HC3 found an observation of leverage 1: then no coefficient has an error. */
static bool has_no_error(const struct regression_shape *shape, const struct blasd_task *task,
                         int64_t at) {
    bool divides = shape->cov == COV_HC2 || shape->cov == COV_HC3;
    int64_t first = at * shape->t * shape->q;
    return divides && shape->t > 0 && shape->q > 0 &&
           isnan(blasd_regression_number(&task->outputs[OUT_STDERR], first));
}

void blasd_regression_tally(const struct regression_shape *shape, const struct blasd_task *task,
                            int64_t at, const struct regression_data *data,
                            const struct regression_fit *fit, struct regression_counts *counts) {
    int64_t t = shape->t, p = shape->p;
    bool ols = shape->method == METHOD_OLS, deficient = fit->rank < shape->q;
    counts->unproven += fit->unproven;
    counts->unsure += fit->unsure;
    counts->unconverged += fit->unconverged;
    counts->diverged += fit->diverged;
    if (fit->truncated && counts->truncated++ == 0) {
        counts->kept = fit->kept;
        counts->dropped = fit->dropped;
    } else if (deficient && !fit->truncated) {
        counts->deficient++;
    }
    if (deficient && (counts->rank == 0 || fit->rank < counts->rank)) counts->rank = fit->rank;
    if (ols && shape->n <= fit->rank) counts->saturated++;
    if (ols && shape->n > fit->rank && shape->n - data->without <= fit->rank) counts->unweighted++;
    if (ols && shape->n > fit->rank) counts->alone += has_no_error(shape, task, at);
    if (!deficient && fit->doubt >= BLASD_REGRESSION_DOUBT) {
        counts->ill++;
        counts->doubt = fmax(counts->doubt, fit->doubt);
    }
    for (int64_t l = 0; l < t; l++) {
        bool finite = isfinite(blasd_regression_number(&task->outputs[OUT_INTERCEPT], at * t + l));
        for (int64_t j = 0; finite && j < p; j++)
            finite =
                isfinite(blasd_regression_number(&task->outputs[OUT_COEF], (at * t + l) * p + j));
        counts->infinite += !finite;
        counts->worse +=
            finite && blasd_regression_number(&task->outputs[OUT_R2], at * t + l) < WORSE;
    }
}

static void warn_of_rank(const struct regression_shape *shape, struct blasd_task *task,
                         const struct regression_counts *counts) {
    long long all = (long long)shape->problems, q = (long long)shape->q;
    if (counts->deficient > 0)
        blasd_task_warn(task, BLASD_W_rank_deficient,
                        "%lld of %lld designs are rank-deficient or wide: their solutions are "
                        "those of least norm; rank %lld of %lld%s",
                        (long long)counts->deficient, all, (long long)counts->rank, q,
                        counts->saturated > 0 ? ", no degrees of freedom are left" : "");
    if (counts->truncated > 0)
        blasd_task_warn(task, BLASD_W_rank_truncated,
                        "rcond truncated %lld of %lld designs: rank %lld of %lld, singular values "
                        "kept to %.3g, dropped from %.3g",
                        (long long)counts->truncated, all, (long long)counts->rank, q, counts->kept,
                        counts->dropped);
    if (counts->saturated > 0 && counts->deficient == 0)
        blasd_task_warn(task, BLASD_W_no_degrees_of_freedom,
                        "%lld of %lld fits have no degrees of freedom left (n = rank): r2 says "
                        "nothing, and there are no standard errors",
                        (long long)counts->saturated, all);
    if (counts->unweighted > 0)
        blasd_task_warn(task, BLASD_W_no_degrees_of_freedom,
                        "%lld of %lld fits have no more observations of a weight above 0 than "
                        "independent coefficients: r2 and standard errors say nothing, though "
                        "df_resid counts all observations",
                        (long long)counts->unweighted, all);
    if (counts->alone > 0)
        blasd_task_warn(task, BLASD_W_leverage_one,
                        "%lld of %lld fits have an observation of leverage 1, for which HC2 and "
                        "HC3 give no standard errors: take HC0 or HC1, or drop it",
                        (long long)counts->alone, all);
    if (counts->ill > 0)
        blasd_task_warn(task, BLASD_W_ill_conditioned,
                        "%lld of %lld designs have features whose own part is little more than the "
                        "rounding of %s, up to %.2g of it: send more digits, drop features or set "
                        "rcond",
                        (long long)counts->ill, all,
                        shape->sent > DBL_EPSILON ? "float32" : "float64", counts->doubt);
    if (counts->unsure > 0)
        blasd_task_warn(task, BLASD_W_ill_conditioned,
                        "the condition of %lld of %lld penalised problems is beyond what rounding "
                        "leaves: coefficients may have few correct digits; raise alpha, scale x or "
                        "drop features",
                        (long long)counts->unsure, all);
}

void blasd_regression_warn(const struct regression_shape *shape, struct blasd_task *task,
                           const struct regression_counts *counts) {
    warn_of_rank(shape, task, counts);
    if (counts->unproven > 0)
        blasd_task_warn(
            task, BLASD_W_not_certifiable,
            "not_certifiable: %lld of %lld designs are deficient in rank, or too near to "
            "that for a proof; their error_bound is infinite",
            (long long)counts->unproven, (long long)shape->problems);
    if (counts->unconverged > 0)
        blasd_task_warn(task, BLASD_W_not_converged,
                        "%lld targets did not reach tol within max_iter: see dual_gap, and "
                        "raise max_iter or tol",
                        (long long)counts->unconverged);
    if (counts->diverged > 0)
        blasd_task_warn(task, BLASD_W_diverged,
                        "gradient descent diverged for %lld targets, the loss grows: lower "
                        "learning_rate or scale x",
                        (long long)counts->diverged);
    if (counts->infinite > counts->diverged)
        blasd_task_warn(task, BLASD_W_overflow,
                        "coefficients of %lld targets are beyond the range of %s: change the "
                        "units of x or y%s",
                        (long long)counts->infinite,
                        shape->storage == BLASD_float32 ? "float32" : "float64",
                        shape->storage == BLASD_float32 ? ", or send float64" : "");
    if (counts->worse > 0)
        blasd_task_warn(task, BLASD_W_negative_r2,
                        "r2 is negative for %lld targets: the fit is worse than %s",
                        (long long)counts->worse, shape->intercept ? "the mean of y" : "0");
}
