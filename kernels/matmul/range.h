/* Products whose sums are made in wider numbers than the factors: of floats that overflow or vanish
 * on the way to a result that does not, and of integers, which are exact modulo 2^64.
 *
 * Plain loops over the host's memory, for every backend; slower than BLAS, and rarely needed. */
#ifndef BLASD_KERNELS_MATMUL_RANGE_H
#define BLASD_KERNELS_MATMUL_RANGE_H

#include "core/kernel.h"
#include "kernels/matmul/matmul.h"

/* What the factors alpha and beta ask for. */
enum blasd_matmul_need {
    BLASD_MATMUL_BLAS,  /* nothing: neither changes a magnitude */
    BLASD_MATMUL_CHECK, /* BLAS will do unless its result is not finite */
    BLASD_MATMUL_WIDE   /* a product, or a factor times alpha, may leave the range of the dtype */
};

/* Looks at the magnitudes of the inputs where alpha or beta may matter. The task's inputs are bound
 * in any floating or complex dtype; sums are in `sum`, float32 or float64. */
enum blasd_matmul_need blasd_matmul_need(struct blasd_task *task, const struct blasd_matmul *mm,
                                         enum blasd_dtype sum);
/* After BLAS, of a task that wants the check and whose result is not finite: whether it is to be
 * done again. */
bool blasd_matmul_again(struct blasd_task *task, const struct blasd_matmul *mm,
                        enum blasd_dtype sum);

bool blasd_matmul_is_finite(const struct blasd_task *task);
/* Of a task whose result is not finite: warns of elements that are not, of factors that are. */
void blasd_matmul_judge_range(struct blasd_task *task, const struct blasd_matmul *mm);

struct blasd_cpu_progress;
/* Makes the whole result of the task, on `threads`, and sets its method. False: stopped. */
bool blasd_matmul_wide(struct blasd_task *task, const struct blasd_matmul *mm, int threads,
                       struct blasd_cpu_progress *progress);

#endif
