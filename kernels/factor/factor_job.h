/* What a factor job means, for the plan and the kernel. Read next: op_factor.c. */
#ifndef BLASD_KERNELS_FACTOR_JOB_H
#define BLASD_KERNELS_FACTOR_JOB_H

#include "core/job.h"

#define BLASD_DECLARED "kernels/factor/factor.def"
#include "core/op_enums.h"

/* The choices of assume_a. */
enum blasd_factor_assume {
    BLASD_FACTOR_GENERAL,
    BLASD_FACTOR_SYMMETRIC,
    BLASD_FACTOR_POSITIVE_DEFINITE,
    BLASD_FACTOR_HERMITIAN
};

/* The job of solve with the same matrix and one right-hand side. */
void blasd_factor_solve_job(const struct blasd_job *job, struct blasd_job *ret);

#endif
