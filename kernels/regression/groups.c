/* Jobs whose rows are cut into groups of unequal sizes (row_splits): which rows are whose, and what
 * becomes of a group that cannot be fitted. All else takes a group for a problem of its own. */
#include "kernels/regression/regression.h"

#include "base/err.h"
#include "core/kernel.h"

#include <math.h>
#include <string.h>

static const int64_t *splits_of(const struct blasd_task *task) {
    return task->inputs[IN_SPLITS].data;
}

int blasd_regression_splits(const struct regression_shape *shape, const struct blasd_task *task,
                            struct blasd_err *err) {
    const int64_t *splits = splits_of(task);
    const char *field = "inputs.row_splits";
    int64_t g = shape->problems;
    if (!shape->grouped) return 0;
    if (splits[0] != 0)
        return blasd_fail(err, BLASD_E_out_of_range, field, "it begins with %lld, not with 0",
                          (long long)splits[0]);
    for (int64_t i = 0; i < g; i++)
        if (splits[i + 1] < splits[i])
            return blasd_fail(err, BLASD_E_out_of_range, field,
                              "it descends from %lld to %lld at [%lld]", (long long)splits[i],
                              (long long)splits[i + 1], (long long)(i + 1));
    if (splits[g] != shape->n)
        return blasd_fail(err, BLASD_E_out_of_range, field,
                          "it ends with %lld where x has %lld rows", (long long)splits[g],
                          (long long)shape->n);
    return 0;
}

struct regression_shape blasd_regression_one(const struct regression_shape *shape,
                                             const struct blasd_task *task, int64_t at) {
    struct regression_shape one = *shape;
    if (!shape->grouped) return one;
    one.from = splits_of(task)[at];
    one.n = splits_of(task)[at + 1] - one.from;
    blasd_regression_choose_way(&one);
    return one;
}

static bool all_finite(const double *values, int64_t n) {
    bool finite = true;
    for (int64_t i = 0; i < n; i++) finite &= values[i] - values[i] == 0;
    return finite;
}

int blasd_regression_group_fault(const struct regression_shape *shape,
                                 const struct regression_data *data) {
    struct regression_data weighed = *data;
    struct blasd_err ignored;
    if (!shape->grouped) return 0;
    if (shape->n == 0) return GROUP_EMPTY;
    if (!all_finite(data->x, shape->n * shape->p) || !all_finite(data->y, shape->n * shape->t) ||
        (data->w != NULL && !all_finite(data->w, shape->n)))
        return GROUP_NOT_FINITE;
    return blasd_regression_weights(shape, &weighed, &ignored) == 0 ? 0 : GROUP_WITHOUT_WEIGHT;
}

/* NaN, or 0 in whole numbers. */
static void clear(const struct blasd_tensor *tensor, int64_t from, int64_t count) {
    for (int64_t i = from; i < from + count; i++) {
        if (tensor->dtype == BLASD_float64)
            ((double *)tensor->data)[i] = NAN;
        else if (tensor->dtype == BLASD_float32)
            ((float *)tensor->data)[i] = NAN;
        else
            ((int64_t *)tensor->data)[i] = 0;
    }
}

void blasd_regression_without_fit(const struct regression_shape *shape, struct blasd_task *task,
                                  int64_t at, int fault, struct regression_counts *counts) {
    for (int i = 0; i < BLASD_MAX_OUTPUTS && task->job->op->outputs[i].name != NULL; i++) {
        const struct blasd_tensor *tensor = &task->outputs[i];
        int64_t each;
        if (tensor->rank < 0) continue;
        each = blasd_tensor_elements(tensor) / shape->problems;
        if (i == OUT_RESIDUALS || i == OUT_FITTED)
            clear(tensor, shape->from * shape->t, shape->n * shape->t);
        else
            clear(tensor, at * each, each);
    }
    ((int64_t *)task->outputs[OUT_INFO].data)[at] = fault;
    counts->of[DOUBT_NO_FIT]++;
}
