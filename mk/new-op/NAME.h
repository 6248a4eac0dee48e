/* What a NAME job means, for the plan and for every backend. Read next: op_NAME.c. */
#ifndef BLASD_KERNELS_NAME_H
#define BLASD_KERNELS_NAME_H

#include "core/job.h"

#define BLASD_DECLARED "kernels/NAME/NAME.def"
#include "core/op_enums.h"

/* The operation by its definition, for tests (ref_NAME.c). */
void blasd_ref_NAME(int64_t count, const long double *x, long double scale, long double *y);

#endif
