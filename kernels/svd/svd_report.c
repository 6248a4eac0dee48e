/* What an svd job says of its matrices, the same on every backend. Knows no BLAS.
 * Read next: svd.h. */
#include "kernels/svd/svd.h"

#include <math.h>
#include <stdio.h>

void blasd_svd_answer(struct blasd_task *task, const struct blasd_svd *svd, int64_t item,
                      const double *s, const double *u, const double *vt, int e) {
    int64_t m = svd->rows, n = svd->columns;
    blasd_stack_store(&task->outputs[BLASD_SVD_S], item, n, 1, s, n, false, -e);
    if (!svd->vectors) return;
    blasd_stack_store(&task->outputs[svd->wide ? BLASD_SVD_VH : BLASD_SVD_U], item, m, svd->left, u,
                      m, svd->wide, 0);
    blasd_stack_store(&task->outputs[svd->wide ? BLASD_SVD_U : BLASD_SVD_VH], item, n, n, vt, n,
                      svd->wide, 0);
}

void blasd_svd_refuse(struct blasd_task *task, const struct blasd_svd *svd, int64_t item) {
    int64_t m = svd->rows, n = svd->columns;
    blasd_stack_store_nan(&task->outputs[BLASD_SVD_S], item, n);
    blasd_stack_store_nan(&task->outputs[svd->wide ? BLASD_SVD_VH : BLASD_SVD_U], item,
                          m * svd->left);
    blasd_stack_store_nan(&task->outputs[svd->wide ? BLASD_SVD_U : BLASD_SVD_VH], item, n * n);
    blasd_stack_put(&task->outputs[BLASD_SVD_RESIDUAL], item, NAN);
    blasd_stack_put(&task->outputs[BLASD_SVD_ORTHOGONALITY], item, NAN);
}

void blasd_svd_finish(struct blasd_task *task, const struct blasd_svd *svd) {
    static const int figures[] = {BLASD_SVD_RESIDUAL, BLASD_SVD_ORTHOGONALITY, -1};
    int64_t lost;
    blasd_stack_clear_info(task, &svd->stack);
    snprintf(task->method, sizeof task->method, svd->vectors ? "divide and conquer" : "dqds");
    lost = blasd_stack_judge_lost(task, &svd->stack, BLASD_SVD_S, svd->columns, "singular values");
    if (svd->vectors) blasd_stack_judge(task, &svd->stack, figures);
    blasd_stack_judge_range(task, &svd->stack, BLASD_SVD_S, "S", lost * svd->columns);
}
