/* What rounding to nearest may hide of computations in float64, for proofs (Higham's gamma). */
#ifndef BLASD_NUMERIC_BOUNDS_H
#define BLASD_NUMERIC_BOUNDS_H

#define BOUNDS_U 0x1p-53

/* A sum of so many products, in any order, is off by at most this part of the sum of their sizes.
 */
static inline double bounds_gamma(double terms) {
    return terms * BOUNDS_U / (1 - terms * BOUNDS_U) * (1 + 4 * BOUNDS_U);
}

/* At least the exact value of what `terms` operations on numbers without a sign made. */
static inline double bounds_up(double value, double terms) {
    return value * (1 + 4 * (terms + 2) * BOUNDS_U);
}

#endif
