/* The condition of a matrix whose inverse can be applied. Knows no backend and no BLAS. */
#ifndef BLASD_KERNELS_ESTIMATE_H
#define BLASD_KERNELS_ESTIMATE_H

#include <stdbool.h>
#include <stdint.h>

/* The Hager-Higham estimate of the 1-norm of an inverse of order n: `apply` multiplies v by the
 * inverse, or by its transpose, in place; false: it could not. v and sign: room for n each. NaN
 * where the inverse made one; -1 where apply could not. */
double blasd_norm_inverse(int64_t n, double *v, double *sign,
                          bool (*apply)(void *arg, double *v, bool transposed), void *arg);

#endif
