/* Systems that a device leaves to the host. Read next: systems.c. */
#ifndef BLASD_KERNELS_LEFTOVERS_H
#define BLASD_KERNELS_LEFTOVERS_H

#include "core/kernel.h"
#include "kernels/solve/solve.h"

/* Solves the systems of a task whose flags have BLASD_SOLVE_LEFT by the engine, and replaces their
 * flags. Needs the outputs in host memory where there are such. */
int blasd_solve_leftovers(struct blasd_task *task, const struct blasd_solve *s, int *flags,
                          struct blasd_err *err);

#endif
