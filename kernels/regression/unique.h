/* Least squares whose solution is unique, for other operations: as regression without an intercept
 * solves it. Read next: cpu_regression.c. */
#ifndef BLASD_REGRESSION_UNIQUE_H
#define BLASD_REGRESSION_UNIQUE_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

/* coef (t x p) for which y (n x t) less x coef' is least, x (n x p, n >= p) of full rank; all
 * row-major. *sure: refinement came to its end, or was not needed. */
int blasd_regression_unique(int64_t n, int64_t p, int64_t t, const double *x, const double *y,
                            double *coef, bool *sure, struct blasd_err *err);

#endif
