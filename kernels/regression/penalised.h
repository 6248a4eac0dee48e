/* What the penalised methods share: the features' part of a factor. For penalised.c and
 * coordinate.c.
 */
#ifndef BLASD_REGRESSION_PENALISED_H
#define BLASD_REGRESSION_PENALISED_H

#include "kernels/regression/regression.h"

/* The features' part of the factor, in the units of the data: m (rows x p, column-major) and g
 * (rows x t, column-major). */
struct regression_part {
    int64_t rows, p, t;
    double *m, *g; /* owned */
};

/* Columns are `more` numbers longer than rows, those being 0. Release it also after a failure. */
int blasd_regression_part_init(struct regression_part *part, const struct regression_shape *shape,
                               const struct regression_factor *factor, int64_t more,
                               struct blasd_err *err);
void blasd_regression_part_release(struct regression_part *part);
/* ssr and the intercept of one target from its coefficients; left: room for `rows` numbers. */
void blasd_regression_part_finish(const struct regression_shape *shape,
                                  const struct regression_factor *factor,
                                  const struct regression_part *part, int64_t target, double *left,
                                  struct regression_fit *fit);

#endif
