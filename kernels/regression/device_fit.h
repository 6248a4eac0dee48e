/* The host's part of a regression on a GPU: what a few numbers a problem are enough for. Rank,
 * least-norm solutions, statistics, outputs; and what does not go to the device at all.
 *
 * Read next: device_fit.c, gram.cuh. */
#ifndef BLASD_REGRESSION_DEVICE_FIT_H
#define BLASD_REGRESSION_DEVICE_FIT_H

#include "kernels/regression/regression.h"

/* Who does what. */
enum regression_where {
    REGRESSION_DEVICE, /* all but the small remainder */
    REGRESSION_HOST,   /* the host's engine: wide and small enough, or rows in groups */
    REGRESSION_REFUSED /* the CPU's version does it */
};
/* What is not refused, in words. */
#define REGRESSION_DEVICE_TAKES                                                                    \
    "a regression on a GPU may have 1024 coefficients and 131072 targets, or more coefficients "   \
    "than observations and 2e9 operations (4 n n (q + t))"
enum regression_where blasd_regression_where(const struct regression_shape *shape);
/* Whether least squares without a penalty, whose rank matters. */
bool blasd_regression_plain(const struct regression_shape *shape);
/* lasso or elastic_net. */
bool blasd_regression_sparse(const struct regression_shape *shape);

/* What came back from the device, problem after problem; the names are gram.cuh's. Arrays that the
 * method does not need are NULL; the others are overwritten. */
struct regression_results {
    double *r, *z, *rest, *coef, *ssr, *tss, *basis, *singular, *middle, *gap;
    /* rest is NaN where robust errors met an observation of leverage 1 */
    double *slopes; /* of gd's loss, q x t each: at the start, at the end */
    int *exponent, *unit;
    int64_t *sweeps;
};

/* Ends all problems of a batch; errors of a problem are its task's. */
int blasd_regression_finish(const struct regression_shape *shape, struct blasd_task *tasks,
                            int count, const struct regression_results *results,
                            struct blasd_err *err);

#endif
