/* What an eigh job means, for the plan and for every backend. Read next: op_eigh.c. */
#ifndef BLASD_KERNELS_EIGH_H
#define BLASD_KERNELS_EIGH_H

#include "kernels/lapack/stack.h"

#define BLASD_DECLARED "kernels/eigh/eigh.def"
#include "core/op_enums.h"
enum { BLASD_EIGH_LOWER, BLASD_EIGH_UPPER }; /* the choices of uplo */

double blasd_eigh_flops(const struct blasd_stack *stack, bool vectors);

/* What is the same on every backend (eigh_report.c). */

/* An item without a result. */
void blasd_eigh_refuse(struct blasd_task *task, const struct blasd_stack *stack, int64_t item);
/* uneven: of the matrices so many are not symmetric. */
void blasd_eigh_finish(struct blasd_task *task, const struct blasd_stack *stack, int64_t uneven);

#endif
