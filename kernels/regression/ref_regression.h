/* The references of regression, in long double and by the plainest way: for tests. */
#ifndef BLASD_REF_REGRESSION_H
#define BLASD_REF_REGRESSION_H

#include <stdint.h>

/* A problem of full rank: a is n x q row-major (with the column of ones, where there is one,
 * first), y has n elements, w has n or is NULL. */
struct blasd_ref_problem {
    int64_t n, q;
    const double *a, *y, *w;
    double penalty; /* of ridge, on columns from `penalised` on; 0: none */
    int64_t penalised;
};

/* min sum of w (y - a b)^2 + penalty |b|^2 by Gram-Schmidt, twice over each column. `basis`, if not
 * NULL, becomes q x q with (a'Wa + penalty)^-1 = basis basis'. */
void blasd_ref_least_squares(const struct blasd_ref_problem *problem, long double *b,
                             long double *basis);
/* Gradient descent on the mean of the squared residuals from b = 0. */
void blasd_ref_descent(const struct blasd_ref_problem *problem, double rate, int64_t iterations,
                       long double *b);
/* Robust covariance by its definition, q x q; hc is 0 to 3. */
void blasd_ref_robust(const struct blasd_ref_problem *problem, int hc, long double *cov);

#endif
