/* What every backend does around a fit: finding a problem's data in a task, checking its weights,
 * telling the user what was out of the ordinary. */
#include "kernels/regression/regression.h"

#include "base/err.h"
#include "core/kernel.h"
#include "kernels/cpu/cpu.h"

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
    data->total = data->w == NULL ? (double)shape->n : 0;
    for (int64_t i = 0; data->w != NULL && i < shape->n; i++) {
        if (!(data->w[i] >= 0))
            return blasd_fail(err, BLASD_E_out_of_range, "inputs.sample_weight",
                              "weight %lld is %g: weights must not be negative", (long long)i,
                              data->w[i]);
        data->total += data->w[i];
    }
    if (data->total > 0 && data->total < INFINITY) return 0;
    if (data->total > 0)
        return blasd_fail(err, BLASD_E_out_of_range, "inputs.sample_weight",
                          "the sum of the weights is beyond the range of float64: divide them by a "
                          "large number");
    return blasd_fail(err, BLASD_E_out_of_range, "inputs.sample_weight",
                      "the weights add up to %g: at least one must be positive", data->total);
}

void blasd_regression_warn(const struct regression_shape *shape, struct blasd_task *task,
                           const struct regression_counts *counts) {
    if (counts->deficient > 0)
        blasd_task_warn(task,
                        "%lld of %lld designs are rank-deficient or wide: their solutions are "
                        "those of least norm",
                        (long long)counts->deficient, (long long)shape->problems);
    if (counts->unconverged > 0)
        blasd_task_warn(task,
                        "%lld targets did not reach tol within max_iter: see dual_gap, and "
                        "raise max_iter or tol",
                        (long long)counts->unconverged);
    if (counts->overflowed > 0)
        blasd_task_warn(task, "gradient descent diverged: lower learning_rate or scale x");
}
