/* What the penalised methods share: the features' part of a factor. For penalised.c and
 * coordinate.c.
 */
#ifndef BLASD_REGRESSION_PENALISED_H
#define BLASD_REGRESSION_PENALISED_H

#include "kernels/regression/regression.h"

/* The features' part of the factor: m (rows x p, column-major) and g (rows x t, column-major),
 * column j of m divided by 2^unit[j], g in the units that the factor gives targets. A coefficient
 * here times 2^(its target's exponent - unit[j]) is the user's: so features of any size are near 1,
 * and each has a penalty of its own. */
struct regression_part {
    int64_t rows, p, t;
    double *m, *g; /* owned */
    int *unit;     /* owned */
};

/* The unit of a column is its own, or that of `root` (of a penalty on squares) where that is
 * larger; with `common` all have the largest of these. Release it also after a failure. */
int blasd_regression_part_init(struct regression_part *part, const struct regression_shape *shape,
                               const struct regression_factor *factor, double root, bool common,
                               struct blasd_err *err);
void blasd_regression_part_release(struct regression_part *part);
/* What is to be known of one target, from its coefficients b in the part's units: the user's, the
 * intercept, ssr. left: room for `rows` numbers. */
void blasd_regression_part_finish(const struct regression_shape *shape,
                                  const struct regression_factor *factor,
                                  const struct regression_part *part, int64_t target,
                                  const double *b, double *left, struct regression_fit *fit);

#endif
