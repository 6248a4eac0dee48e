/* A second look at the small elements of solutions, whatever made them. Read next: recheck.c. */
#ifndef BLASD_KERNELS_RECHECK_H
#define BLASD_KERNELS_RECHECK_H

#include "core/kernel.h"
#include "kernels/solve/solve.h"

/* Says where small elements of x may have lost half of their digits (BLASD_SOLVE_LOST), and what is
 * lost below the range of the dtype (BLASD_SOLVE_VANISHED), which backward_error counts. Needs the
 * operands in host memory. blasd_wanted stops it. */
void blasd_solve_recheck(struct blasd_task *task, const struct blasd_solve *s, int *flags);
/* Whether it would find nothing to look at, where the finite elements of x have sizes, but for
 * zeros, from `least` to `most`. */
bool blasd_solve_is_even(const struct blasd_task *task, double least, double most, bool zeros);

#endif
