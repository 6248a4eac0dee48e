/* What both devices ask before they compute distances: which loop a metric needs, and whether its
 * weights are weights. Read next: prepare.c for the CPU, cuda_distance.cu for CUDA. */
#include "kernels/distance/distance.h"

#include "base/err.h"
#include "core/kernel.h"

#include <math.h>
#include <stdio.h>

const struct distance_metric_info blasd_distance_metrics[DISTANCE_METRIC_COUNT] = {
#define X(name, loop, finish, rows, extra) {#name, loop, finish, rows, extra},
    DISTANCE_METRICS(X)
#undef X
};

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

struct distance_note blasd_distance_note(const struct distance_problem *problem) {
    long double lost = sqrtl(problem->inflation); /* what rounding of the points is amplified by */
    struct distance_note note = {.zero_row = problem->zero_row};
    if (problem->inflation * (long double)problem->shape->unit > 1)
        note.lost = (unsigned char)ceill(log10l(lost));
    return note;
}

void blasd_distance_warn(struct blasd_task *task, const struct distance_shape *shape,
                         const struct distance_note *notes, int64_t count) {
    int64_t doubtful = 0;
    bool zero = false, below = false;
    char of[64] = "";
    int lost = 0;
    for (int64_t i = 0; i < count; i++) {
        zero |= notes[i].zero_row;
        below |= notes[i].below;
        doubtful += notes[i].lost > 0;
        if (notes[i].lost > lost) lost = notes[i].lost;
    }
    if (zero)
        blasd_task_warn(task, BLASD_W_zero_row, "rows are %s: their d is %s",
                        shape->metric == METRIC_correlation ? "constant" : "zero",
                        shape->metric == METRIC_jensenshannon ? "infinite" : "NaN");
    if (below)
        blasd_task_warn(task, BLASD_W_precision_loss,
                        "points lie too close for the largest numbers among them: some d, and the "
                        "order of neighbours, may have no correct digit");
    if (doubtful > 0) {
        if (count > 1)
            snprintf(of, sizeof of, " (%lld of %lld problems)", (long long)doubtful,
                     (long long)count);
        blasd_task_warn(task, BLASD_W_covariance_ill_conditioned,
                        "coordinates nearly depend on each other%s: %d digits of d are lost", of,
                        lost);
    }
}
