/* Rank, and the least-squares solution of least norm, from a triangular factor. */
#ifndef BLASD_REGRESSION_MIN_NORM_H
#define BLASD_REGRESSION_MIN_NORM_H

#include "kernels/regression/regression.h"

/* The numerical rank of the design whose columns, scaled by powers of two to size about 1, have the
 * triangular factor `r` (q x q, row-major): how many of its columns are independent by more than
 * the rounding of the data. The intercept's column counts. */
int blasd_regression_rank(const struct regression_shape *shape, const double *r, int64_t *rank,
                          struct blasd_err *err);

/* Among all coefficients that minimise |r b - z| (z is q x t, row-major) those of least Euclidean
 * norm, in the units of the data: column j was divided by 2^exponent[j], target l by
 * 2^exponent[q + l]. The intercept is not part of the norm. Fills fit->coef and fit->rank. */
int blasd_regression_min_norm(const struct regression_shape *shape, const double *r,
                              const double *z, const int *exponent, struct regression_fit *fit,
                              struct blasd_err *err);

#endif
