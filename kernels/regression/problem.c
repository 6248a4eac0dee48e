/* What every backend does around a fit: finding a problem's data in a task, checking its weights,
 * telling the user what was out of the ordinary. */
#include "kernels/regression/regression.h"

#include "base/err.h"
#include "core/kernel.h"
#include "kernels/cpu/cpu.h"
#include "kernels/numeric/dd.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

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

/* Where row i of the problem at which the walk stands lies in an input. */
static int64_t row_of(const struct regression_shape *shape, const struct blasd_walk *walk,
                      int input, int64_t i) {
    return walk->offset[input] * shape->n + shape->from + i;
}

struct regression_data blasd_regression_data(const struct regression_shape *shape,
                                             const struct blasd_task *task,
                                             const struct blasd_walk *walk) {
    const struct blasd_tensor *in = task->inputs;
    struct regression_data data = {0};
    data.x = (const double *)in[IN_X].data + row_of(shape, walk, IN_X, 0) * shape->p;
    data.y = (const double *)in[IN_Y].data + row_of(shape, walk, IN_Y, 0) * shape->t;
    if (shape->weighted)
        data.w = (const double *)in[IN_WEIGHT].data + row_of(shape, walk, IN_WEIGHT, 0);
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

/* Whether a robust standard error, or their F, is missing or 0: an observation of leverage 1 has no
 * residual to tell it, nor have observations that are all met. */
static bool lacks_errors(const struct regression_shape *shape, const struct blasd_task *task,
                         int64_t at, int64_t rank) {
    if (shape->cov == COV_NONROBUST) return false;
    for (int64_t l = at * shape->t; l < (at + 1) * shape->t; l++) {
        if (rank == shape->q && shape->p > 0 &&
            isnan(blasd_regression_number(&task->outputs[OUT_FVALUE], l)))
            return true;
        for (int64_t j = 0; j < shape->q; j++)
            if (!(blasd_regression_number(&task->outputs[OUT_STDERR], l * shape->q + j) > 0))
                return true;
    }
    return false;
}

/* Observation i of the problem at which the walk stands, and its weight. */
static double target_of(const struct regression_shape *shape, const struct blasd_task *task,
                        const struct blasd_walk *walk, int64_t i, int64_t target, double *weight) {
    *weight = 1;
    if (shape->weighted)
        *weight =
            blasd_regression_number(&task->inputs[IN_WEIGHT], row_of(shape, walk, IN_WEIGHT, i));
    return blasd_regression_number(&task->inputs[IN_Y],
                                   row_of(shape, walk, IN_Y, i) * shape->t + target);
}

bool blasd_regression_constant(const struct regression_shape *shape, const struct blasd_task *task,
                               int64_t at, int64_t target) {
    double first = 0, weight;
    struct blasd_walk walk;
    bool found = !shape->intercept; /* then 0 alone is meant */
    blasd_regression_walk(shape, task, at, &walk);
    for (int64_t i = 0; i < shape->n; i++) {
        double y = target_of(shape, task, &walk, i, target, &weight);
        if (weight == 0) continue;
        if (!found) first = y;
        found = true;
        if (y != first) return false;
    }
    return true;
}

#define MET 0x1p-20 /* of tss: above, ssr is not looked at any closer */

/* Whether what is left of a target is no more than the rounding of its values as they were sent, or
 * where these are exact than that of float64. */
static bool is_met(const struct regression_shape *shape, const struct blasd_task *task, int64_t at,
                   int64_t target, double ssr, double tss) {
    double squares = 0, limit = 64 * 0x1p-106 * tss, *y;
    struct blasd_walk walk;
    if (tss < 0x1p-900 || tss > 0x1p900) return false; /* so are they, in part, beyond the range */
    if (ssr <= limit) return true;
    if (!(ssr <= MET * tss)) return false;
    y = blasd_cpu_alloc((size_t)shape->n, sizeof *y);
    if (y == NULL) return false;
    blasd_regression_walk(shape, task, at, &walk);
    for (int64_t i = 0; i < shape->n; i++) {
        double weight;
        y[i] = target_of(shape, task, &walk, i, target, &weight);
        squares += weight * y[i] * y[i];
    }
    if (!blasd_regression_exact(y, 1, shape->n, shape->sent_y))
        limit = shape->sent_y * shape->sent_y * squares;
    free(y);
    return ssr <= limit;
}

/* What is said of the targets of a problem. */
static void tally_targets(const struct regression_shape *shape, const struct blasd_task *task,
                          int64_t at, bool judged, int64_t *of) {
    bool ols = shape->method == METHOD_OLS;
    for (int64_t l = at * shape->t; l < (at + 1) * shape->t; l++) {
        bool finite = isfinite(blasd_regression_number(&task->outputs[OUT_INTERCEPT], l));
        double tss = blasd_regression_number(&task->outputs[OUT_TSS], l);
        double ssr = blasd_regression_number(&task->outputs[OUT_SSR], l);
        double r2 = blasd_regression_number(&task->outputs[OUT_R2], l);
        for (int64_t j = 0; finite && j < shape->p; j++)
            finite = isfinite(blasd_regression_number(&task->outputs[OUT_COEF], l * shape->p + j));
        of[DOUBT_INFINITE] += !finite;
        if (finite && tss == 0 && !isfinite(r2)) {
            of[DOUBT_CONSTANT] += judged;
            continue;
        }
        of[DOUBT_WORSE] += finite && r2 < WORSE;
        if (finite && judged && ols && is_met(shape, task, at, l - at * shape->t, ssr, tss))
            of[DOUBT_MET]++;
    }
}

/* The code of each doubt. */
static const enum blasd_warning_code codes[DOUBTS] = {
    [DOUBT_DIVERGED] = BLASD_W_diverged,
    [DOUBT_INFINITE] = BLASD_W_overflow,
    [DOUBT_UNCONVERGED] = BLASD_W_not_converged,
    [DOUBT_UNSURE] = BLASD_W_ill_conditioned,
    [DOUBT_ILL] = BLASD_W_ill_conditioned,
    [DOUBT_DEFICIENT] = BLASD_W_rank_deficient,
    [DOUBT_TRUNCATED] = BLASD_W_rank_truncated,
    [DOUBT_SATURATED] = BLASD_W_no_degrees_of_freedom,
    [DOUBT_UNWEIGHTED] = BLASD_W_no_degrees_of_freedom,
    [DOUBT_ALONE] = BLASD_W_leverage_one,
    [DOUBT_MET] = BLASD_W_exact_fit,
    [DOUBT_CONSTANT] = BLASD_W_constant_target,
    [DOUBT_WORSE] = BLASD_W_negative_r2,
    [DOUBT_UNPROVEN] = BLASD_W_not_certifiable,
    [DOUBT_NO_FIT] = BLASD_W_group_without_fit,
};

void blasd_regression_tally(const struct regression_shape *shape, const struct blasd_task *task,
                            int64_t at, const struct regression_data *data,
                            const struct regression_fit *fit, struct regression_counts *counts) {
    bool ols = shape->method == METHOD_OLS, deficient = fit->rank < shape->q;
    bool left = shape->n > fit->rank; /* degrees of freedom */
    int64_t of[DOUBTS] = {0}, info = 0;
    tally_targets(shape, task, at, left || !ols, of);
    of[DOUBT_DIVERGED] = fit->diverged;
    of[DOUBT_INFINITE] -= of[DOUBT_INFINITE] < fit->diverged ? of[DOUBT_INFINITE] : fit->diverged;
    of[DOUBT_UNCONVERGED] = fit->unconverged;
    of[DOUBT_UNSURE] = fit->unsure;
    of[DOUBT_ILL] = !deficient && fit->doubt >= BLASD_REGRESSION_DOUBT;
    of[DOUBT_DEFICIENT] = deficient && !fit->truncated;
    of[DOUBT_TRUNCATED] = fit->truncated;
    of[DOUBT_SATURATED] = ols && !left;
    of[DOUBT_UNWEIGHTED] = ols && left && shape->n - data->without <= fit->rank;
    of[DOUBT_ALONE] = ols && left && of[DOUBT_MET] == 0 && of[DOUBT_CONSTANT] == 0 &&
                      (fit->alone || lacks_errors(shape, task, at, fit->rank));
    of[DOUBT_UNPROVEN] = fit->unproven;
    if (fit->truncated && counts->of[DOUBT_TRUNCATED] == 0) {
        counts->kept = fit->kept;
        counts->dropped = fit->dropped;
    }
    if (deficient && (counts->rank == 0 || fit->rank < counts->rank)) counts->rank = fit->rank;
    if (of[DOUBT_ILL] > 0) counts->doubt = fmax(counts->doubt, fit->doubt);
    for (int d = DOUBTS - 1; d >= 0; d--) {
        counts->of[d] += of[d];
        if (of[d] > 0) info = codes[d];
    }
    ((int64_t *)task->outputs[OUT_INFO].data)[at] = info;
}

static void warn_of_rank(const struct regression_shape *shape, struct blasd_task *task,
                         const struct regression_counts *counts) {
    long long all = (long long)shape->problems, q = (long long)shape->q;
    const int64_t *of = counts->of;
    if (of[DOUBT_DEFICIENT] > 0)
        blasd_task_warn(task, BLASD_W_rank_deficient,
                        "%lld of %lld designs are rank-deficient or wide: their solutions are "
                        "those of least norm; rank %lld of %lld%s",
                        (long long)of[DOUBT_DEFICIENT], all, (long long)counts->rank, q,
                        of[DOUBT_SATURATED] > 0 ? ", no degrees of freedom are left" : "");
    if (of[DOUBT_TRUNCATED] > 0)
        blasd_task_warn(task, BLASD_W_rank_truncated,
                        "rcond truncated %lld of %lld designs: rank %lld of %lld, singular values "
                        "kept to %.3g, dropped from %.3g",
                        (long long)of[DOUBT_TRUNCATED], all, (long long)counts->rank, q,
                        counts->kept, counts->dropped);
    if (of[DOUBT_ILL] > 0)
        blasd_task_warn(task, BLASD_W_ill_conditioned,
                        "%lld of %lld designs have features whose own part is little more than the "
                        "rounding of %s, up to %.2g of it: send more digits, drop features or set "
                        "rcond",
                        (long long)of[DOUBT_ILL], all,
                        shape->sent > DBL_EPSILON ? "float32" : "float64", counts->doubt);
    if (of[DOUBT_UNSURE] > 0)
        blasd_task_warn(task, BLASD_W_ill_conditioned,
                        "the condition of %lld of %lld problems is beyond what rounding leaves: "
                        "coefficients may have few correct digits; scale x, drop features or use "
                        "a penalty",
                        (long long)of[DOUBT_UNSURE], all);
}

/* Of statistics that say nothing. */
static void warn_of_errors(const struct regression_shape *shape, struct blasd_task *task,
                           const struct regression_counts *counts) {
    long long all = (long long)shape->problems;
    const int64_t *of = counts->of;
    if (of[DOUBT_SATURATED] > 0 && of[DOUBT_DEFICIENT] == 0)
        blasd_task_warn(task, BLASD_W_no_degrees_of_freedom,
                        "%lld of %lld fits have no degrees of freedom left (n = rank): r2 says "
                        "nothing, and there are no standard errors",
                        (long long)of[DOUBT_SATURATED], all);
    if (of[DOUBT_UNWEIGHTED] > 0)
        blasd_task_warn(task, BLASD_W_no_degrees_of_freedom,
                        "%lld of %lld fits have no more observations of a weight above 0 than "
                        "independent coefficients: r2 and standard errors say nothing",
                        (long long)of[DOUBT_UNWEIGHTED], all);
    if (of[DOUBT_ALONE] > 0)
        blasd_task_warn(task, BLASD_W_leverage_one,
                        "%lld of %lld fits have observations of leverage 1, or coefficients of "
                        "residuals that are 0: robust errors do not count these; use cov_type "
                        "nonrobust",
                        (long long)of[DOUBT_ALONE], all);
    if (of[DOUBT_MET] > 0)
        blasd_task_warn(task, BLASD_W_exact_fit,
                        "%lld targets are fitted exactly up to rounding: standard errors, t, F and "
                        "p are meaningless",
                        (long long)of[DOUBT_MET]);
    if (of[DOUBT_CONSTANT] > 0)
        blasd_task_warn(task, BLASD_W_constant_target,
                        "%lld targets %s: r2, F and their p-values are NaN",
                        (long long)of[DOUBT_CONSTANT], shape->intercept ? "do not vary" : "are 0");
}

void blasd_regression_warn(const struct regression_shape *shape, struct blasd_task *task,
                           const struct regression_counts *counts) {
    const int64_t *of = counts->of;
    if (of[DOUBT_NO_FIT] > 0)
        blasd_task_warn(task, BLASD_W_group_without_fit,
                        "%lld of %lld groups have no fit: they have no rows, values that are not "
                        "finite or no weight; their outputs are NaN, and info says why",
                        (long long)of[DOUBT_NO_FIT], (long long)shape->problems);
    warn_of_rank(shape, task, counts);
    warn_of_errors(shape, task, counts);
    if (of[DOUBT_UNPROVEN] > 0)
        blasd_task_warn(
            task, BLASD_W_not_certifiable,
            "not_certifiable: %lld of %lld designs are deficient in rank, or too near to "
            "that for a proof; their error_bound is infinite",
            (long long)of[DOUBT_UNPROVEN], (long long)shape->problems);
    if (of[DOUBT_UNCONVERGED] > 0)
        blasd_task_warn(task, BLASD_W_not_converged,
                        "%lld targets did not reach tol within max_iter: see dual_gap, and "
                        "raise max_iter or tol",
                        (long long)of[DOUBT_UNCONVERGED]);
    if (of[DOUBT_DIVERGED] > 0)
        blasd_task_warn(task, BLASD_W_diverged,
                        "gradient descent diverged for %lld targets, the loss grows: lower "
                        "learning_rate or scale x",
                        (long long)of[DOUBT_DIVERGED]);
    if (of[DOUBT_INFINITE] > 0)
        blasd_task_warn(task, BLASD_W_overflow,
                        "coefficients of %lld targets are beyond the range of %s: change the "
                        "units of x or y%s",
                        (long long)of[DOUBT_INFINITE],
                        shape->storage == BLASD_float32 ? "float32" : "float64",
                        shape->storage == BLASD_float32 ? ", or send float64" : "");
    if (of[DOUBT_WORSE] > 0)
        blasd_task_warn(task, BLASD_W_negative_r2,
                        "r2 is negative for %lld targets: the fit is worse than %s",
                        (long long)of[DOUBT_WORSE], shape->intercept ? "the mean of y" : "0");
}
