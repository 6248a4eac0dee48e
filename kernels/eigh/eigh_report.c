/* What an eigh job says of its matrices, the same on every backend. Knows no BLAS.
 * Read next: eigh.h. */
#include "kernels/eigh/eigh.h"

#include <math.h>
#include <stdio.h>

void blasd_eigh_refuse(struct blasd_task *task, const struct blasd_stack *stack, int64_t item) {
    blasd_stack_store_nan(&task->outputs[BLASD_EIGH_VALUES], item, stack->n);
    blasd_stack_store_nan(&task->outputs[BLASD_EIGH_VECTORS], item, stack->n * stack->n);
    blasd_stack_put(&task->outputs[BLASD_EIGH_RESIDUAL], item, NAN);
    blasd_stack_put(&task->outputs[BLASD_EIGH_ORTHOGONALITY], item, NAN);
}

void blasd_eigh_finish(struct blasd_task *task, const struct blasd_stack *stack, int64_t uneven) {
    static const int figures[] = {BLASD_EIGH_RESIDUAL, BLASD_EIGH_ORTHOGONALITY, -1};
    const bool vectors = task->outputs[BLASD_EIGH_VECTORS].rank >= 0;
    int64_t lost;
    blasd_stack_clear_info(task, stack);
    snprintf(task->method, sizeof task->method, vectors ? "divide and conquer" : "qr iteration");
    lost = blasd_stack_judge_lost(task, stack, BLASD_EIGH_VALUES, stack->n, "eigenvalues");
    if (vectors) blasd_stack_judge(task, stack, figures);
    blasd_stack_judge_range(task, stack, BLASD_EIGH_VALUES, "eigenvalues", lost * stack->n);
    blasd_stack_judge_symmetry(task, stack, uneven,
                               task->job->params[BLASD_EIGH_UPLO].choice == BLASD_EIGH_UPPER);
}
