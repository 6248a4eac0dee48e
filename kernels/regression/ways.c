/* By which way a problem is fitted, and how many digits it is worth: what costs little is a
 * property of the problem alone, so that a batch changes no result. */
#include "kernels/regression/regression.h"

#define SMALL_WORK 1e6 /* n q (q + t) */
#define QUAD_SMALL BLASD_REGRESSION_QUAD_SMALL
#define DOUBLED_WORK 4e9  /* the most that is done again so, where the condition asks for it */
#define DOUBLED_MOST 1024 /* coefficients */
/* A product of two quads costs what ten of two doubles in double-double do, and more. */
#define QUAD_MOST 448 /* coefficients */

static double work_of(const struct regression_shape *shape) {
    return (double)shape->n * (double)shape->q * (double)(shape->q + shape->t);
}

void blasd_regression_choose_way(struct regression_shape *shape) {
    /* ridge is solved from its matrix, whose elimination takes long */
    bool penalised = shape->method == METHOD_RIDGE || blasd_regression_smooth(shape);
    bool narrow =
        penalised ? shape->q <= shape->n && shape->q <= QUAD_SMALL : shape->q <= 2 * shape->n + 16;
    if (work_of(shape) <= SMALL_WORK && narrow)
        shape->way = WAY_SMALL;
    else
        shape->way = shape->n >= shape->q ? WAY_TALL : WAY_WIDE;
}

bool blasd_regression_doubled(const struct regression_shape *shape) {
    return work_of(shape) <= DOUBLED_WORK && shape->q <= DOUBLED_MOST;
}

/* The matrix is q x q, whatever n is, and is eliminated, too. */
static bool quad_is_little(const struct regression_shape *shape) {
    double n = (double)shape->n, q = (double)shape->q;
    return shape->q <= QUAD_SMALL && (n + q) * q * (q + (double)shape->t) <= SMALL_WORK;
}

bool blasd_regression_ridge_small(const struct regression_shape *shape) {
    return shape->way == WAY_WIDE ? quad_is_little(shape) : shape->way == WAY_SMALL;
}

bool blasd_regression_sparse_small(const struct regression_shape *shape) {
    return quad_is_little(shape);
}

bool blasd_regression_ridge_quads(const struct regression_shape *shape) {
    return blasd_regression_doubled(shape) && shape->q <= QUAD_MOST;
}
