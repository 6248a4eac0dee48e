/* In which units and from which origin columns are worked with, and what counts as rounding: what
 * the host (scaling.c, factor.c) and the kernels of a GPU (gram.cu) must agree on. Read next:
 * scaling.c. */
#ifndef BLASD_REGRESSION_FAR_H
#define BLASD_REGRESSION_FAR_H

#include <float.h>
#include <math.h>
#include <stdint.h>
#ifdef __cplusplus
#include "kernels/cuda/gpu.h"
#define BLASD_REGRESSION_BOTH __host__ __device__
#else
#define BLASD_REGRESSION_BOTH
#endif

/* Exponents up to this are left alone: products of four such numbers and of residuals 1e-16 of
 * their size stay in range. Larger ones are brought to it and no further, so that coefficients
 * between y and x of opposite extremes stay in range too. */
#define BLASD_REGRESSION_FAR 200

/* The power of two by which numbers up to `largest` are divided. */
static inline BLASD_REGRESSION_BOTH int blasd_regression_excess(double largest) {
    int exponent = 0;
    if (!(largest > 0) || !(largest < INFINITY)) return 0;
    (void)frexp(largest, &exponent);
    if (exponent > BLASD_REGRESSION_FAR) return exponent - BLASD_REGRESSION_FAR;
    return exponent < -BLASD_REGRESSION_FAR ? exponent + BLASD_REGRESSION_FAR : 0;
}

/* The exponent of the unit of weights up to `heaviest`: even, so that its root is a power of two,
 * too. A penalty `alpha` beside them (0: none, or one for each unit of weight) gets the same unit,
 * and must stay a number in it. */
static inline BLASD_REGRESSION_BOTH int blasd_regression_weight_unit(double heaviest,
                                                                     double alpha) {
    int unit = blasd_regression_excess(heaviest), most = unit > 0 ? unit : 0, exponent = 0;
    int least = unit < 0 ? unit : 0;
    if (alpha > 0) {
        (void)frexp(alpha, &exponent);
        if (exponent + 1000 < most) most = exponent + 1000 > 0 ? exponent + 1000 : 0;
        if (exponent - 1000 > least) least = exponent - 1000 < 0 ? exponent - 1000 : 0;
    }
    return (unit > most ? most : unit < least ? least : unit) / 2 * 2;
}

/* What is taken from a column beside an intercept, whose values lie between low and high: one of
 * them where all are within a factor of two, for then no difference rounds. */
static inline BLASD_REGRESSION_BOTH double blasd_regression_shift(double low, double high) {
    if (low > 0 && high <= 2 * low) return low;
    return high < 0 && low >= 2 * high ? high : 0;
}

/* Of the mean square: an observation of leverage 1 has less of a residual. */
#define BLASD_REGRESSION_MET 1e-6

/* A leverage is off by this part of the products that it is the sum of: the factor of n rows has
 * rounded each of its columns about once in 256 rows. */
static inline BLASD_REGRESSION_BOTH double blasd_regression_leverage_unit(int64_t n, int64_t q) {
    return DBL_EPSILON * (8 + (double)q + (double)n / 256);
}

#endif
