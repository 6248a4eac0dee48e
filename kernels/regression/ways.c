/* By which way a problem is fitted, and how many digits it is worth: what costs little is a
 * property of the problem alone, so that a batch changes no result. */
#include "kernels/regression/regression.h"

#define SMALL_WORK 1e6    /* n q (q + t) */
#define DOUBLED_WORK 4e9  /* the most that is done again so, where the condition asks for it */
#define DOUBLED_MOST 1024 /* coefficients */

/* ridge has a row for each feature's penalty, too. */
static bool is_ridge(const struct regression_shape *shape) {
    return shape->method == METHOD_RIDGE || blasd_regression_smooth(shape);
}
static double work_of(const struct regression_shape *shape) {
    double rows = (double)(shape->n + (is_ridge(shape) ? shape->p : 0));
    return rows * (double)shape->q * (double)(shape->q + shape->t);
}

void blasd_regression_choose_way(struct regression_shape *shape) {
    bool narrow = is_ridge(shape) || shape->q <= 2 * shape->n + 16 ||
                  (shape->method != METHOD_OLS && shape->q <= BLASD_REGRESSION_POLISHED);
    if (work_of(shape) <= SMALL_WORK && narrow)
        shape->way = WAY_SMALL;
    else
        shape->way = shape->n >= shape->q ? WAY_TALL : WAY_WIDE;
}

bool blasd_regression_doubled(const struct regression_shape *shape) {
    return work_of(shape) <= DOUBLED_WORK && shape->q <= DOUBLED_MOST;
}
