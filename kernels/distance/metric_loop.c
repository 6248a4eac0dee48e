/* What both devices ask before they compute distances: which loop a metric needs, and whether its
 * weights are weights. Read next: prepare.c for the CPU, cuda_distance.cu for CUDA. */
#include "kernels/distance/distance.h"

#include "base/err.h"

#include <math.h>

/* minkowski of order 1, 2 and infinity are metrics of their own. */
void blasd_distance_choose(const struct distance_shape *shape, struct distance_args *args) {
    const struct distance_metric_info *metric = &blasd_distance_metrics[shape->metric];
    /* exact: the rows made ready carry the weights of these metrics already */
    bool weighted = shape->weighted && metric->finish != FINISH_HALF;
    args->loop = metric->loop;
    args->finish = metric->finish;
    if (shape->metric == METRIC_minkowski && shape->p == 1) {
        args->loop = LOOP_ABSOLUTE;
    } else if (shape->metric == METRIC_minkowski && shape->p == 2) {
        args->loop = LOOP_SQUARES;
        args->finish = FINISH_ROOT;
    } else if (shape->metric == METRIC_minkowski && isinf(shape->p)) {
        args->loop = LOOP_LARGEST;
    }
    /* SciPy's dice is two: of numbers without weights, of truth values that differ with them */
    if (shape->metric == METRIC_dice && shape->weighted) args->loop = LOOP_DICE;
    /* without coordinates no row has a length: 0/0, which is what this loop makes of no terms */
    if (shape->k == 0 && metric->finish == FINISH_HALF) args->loop = LOOP_DICE;
    if (weighted && args->loop == LOOP_SQUARES) args->loop = LOOP_SQUARES_W;
    if (weighted && args->loop == LOOP_ABSOLUTE) args->loop = LOOP_ABSOLUTE_W;
    args->k = shape->k;
    args->p = shape->p;
    args->scale = 1 / log(shape->base);
}

int blasd_distance_check_weights(const struct distance_shape *shape, const void *w,
                                 struct blasd_err *err) {
    for (int64_t d = 0; w != NULL && d < shape->k; d++) {
        double value = shape->arithmetic == BLASD_float64 ? ((const double *)w)[d]
                                                          : (double)((const float *)w)[d];
        if (!(value >= 0))
            return blasd_fail(err, BLASD_E_out_of_range, "inputs.w",
                              "weight %lld is %g: weights must not be negative", (long long)d,
                              value);
    }
    return 0;
}

int blasd_distance_no_room(const struct distance_shape *shape, int64_t pairs,
                           struct blasd_err *err) {
    int code = blasd_fail(err, BLASD_E_invalid_parameter, "params.max_pairs",
                          "%lld pairs lie within the radius, and there is room for %lld: set "
                          "max_pairs to at least %lld",
                          (long long)pairs, (long long)shape->pairs, (long long)pairs);
    if (err != NULL) err->least = pairs;
    return code;
}
