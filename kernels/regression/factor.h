/* Between the files that read a factor: factor.c, least_norm.c, singular.c. */
#ifndef BLASD_REGRESSION_FACTOR_H
#define BLASD_REGRESSION_FACTOR_H

#include "kernels/regression/regression.h"

static inline double blasd_regression_shift_of(const struct regression_factor *factor, int64_t j) {
    return factor->shift == NULL ? 0 : factor->shift[j];
}
/* The first row of r as it is for the data without shifts. */
double blasd_regression_unshifted(const struct regression_factor *factor, int64_t j);
/* Row 0 of a basis of the shifted columns, in the data's units, becomes that of the data. */
static inline void blasd_regression_unshift_basis(const struct regression_factor *factor,
                                                  struct regression_fit *fit, int64_t q) {
    for (int64_t j = 1; factor->shift != NULL && j < q; j++)
        for (int64_t c = 0; factor->shift[j] != 0 && c < fit->spread; c++)
            fit->basis[c] -= factor->shift[j] * fit->basis[j * fit->spread + c];
}

/* The features' part of a factor after QR with column pivoting. */
struct pivoted {
    int64_t rows, columns; /* of r less the intercept's row and column */
    int64_t rank;
    double *a, *tau; /* owned: the factor of columns over their units, column-major; reflections */
    double *length, *unit; /* owned: of the columns as they were */
    int *pivot;            /* owned: from 1 */
};

/* Coefficients of least norm and their basis where the rank is not full. */
int blasd_regression_deficient(const struct regression_shape *shape,
                               const struct regression_factor *factor,
                               const struct pivoted *pivoted, struct regression_fit *fit,
                               struct blasd_err *err);
/* What is left of the features where singular values up to rcond of the largest count as 0, if
 * that is less than what the rank says: coefficients and basis. */
int blasd_regression_truncate(const struct regression_shape *shape,
                              const struct regression_factor *factor, struct regression_fit *fit,
                              struct blasd_err *err);

#endif
