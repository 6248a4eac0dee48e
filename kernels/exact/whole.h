/* Whole numbers of any length, and linear systems of them: elimination without fractions
 * (Bareiss), whose divisions leave nothing. Read next: whole.c. */
#ifndef BLASD_KERNELS_EXACT_WHOLE_H
#define BLASD_KERNELS_EXACT_WHOLE_H

#include "kernels/exact/sum.h"

/* limb[0 .. |length| - 1], negative where `length` is. */
struct blasd_whole {
    uint64_t *limb; /* borrowed; with room for what it is given */
    int64_t length;
};

void blasd_whole_multiply(struct blasd_whole *ret, const struct blasd_whole *a,
                          const struct blasd_whole *b); /* ret is none of them */
void blasd_whole_subtract(struct blasd_whole *ret, const struct blasd_whole *a,
                          const struct blasd_whole *b); /* ret may be one of them */
/* number * 2^-unit, which is a whole number, into its `room` limbs. */
void blasd_whole_load(const struct blasd_exact_number *number, int64_t unit,
                      struct blasd_whole *ret, int64_t room);
/* above / below * 2^exponent, as the nearest number of `dtype`; below is not 0. `work`: 2 more
 * limbs than each of them has. */
double blasd_whole_quotient(const struct blasd_whole *above, const struct blasd_whole *below,
                            int64_t exponent, enum blasd_dtype dtype, uint64_t *work);

/* A system of n equations with some right-hand sides, which lie beside each other in `columns`.
 * Element (i, j) is what `get` says, times 2^-(row[i] + column[j]); a whole number. */
struct blasd_elimination {
    int64_t n, columns; /* columns: n, and those of the right-hand sides */
    void (*get)(void *arg, int64_t i, int64_t j, struct blasd_exact_number *ret);
    void *arg;                   /* borrowed */
    const int64_t *row, *column; /* borrowed */
    int64_t room;                /* limbs of an element, at the most: set by prepare */
    struct blasd_whole *element; /* n x columns; owned, with all that follows */
    uint64_t *limbs, *work;
    /* by solve: the determinant, of either sign; unknown i of side l is element (i, n + l) over it,
     * times 2^(column[n + l] - column[i]) */
    struct blasd_whole determinant;
};

/* Operations that a system may take at the most, whatever the machine: of products of limbs. */
#define EXACT_WORK 4e9

/* Finds how long the numbers become; false: EXACT_WORK would not do. */
bool blasd_elimination_prepare(struct blasd_elimination *system);
/* 0: solved. k > 0: the matrix is singular, and k - 1 is the first column that those before it
 * make. -1: no memory, or stopped. */
int64_t blasd_elimination_solve(struct blasd_elimination *system);
void blasd_elimination_release(struct blasd_elimination *system);

#endif
