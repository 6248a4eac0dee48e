/* Proven bounds on the errors of solutions, whatever made them. Read next: certify.c. */
#ifndef BLASD_KERNELS_CERTIFY_H
#define BLASD_KERNELS_CERTIFY_H

#include "core/kernel.h"
#include "kernels/solve/solve.h"

/* Fills the output `error_bound` of a task whose other outputs are there, where it was asked for;
 * warns of systems that it cannot prove anything about. Needs the operands in host memory. Threads:
 * at most so many. blasd_wanted stops it, and is told its progress, from `from` to `to`. */
int blasd_solve_certify(struct blasd_task *task, const struct blasd_solve *s, int threads,
                        double from, double to, struct blasd_err *err);

#endif
