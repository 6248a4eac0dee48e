/* svd: what may be asked, what it makes and costs. Knows no backend.
 * Read next: README.md, then cpu_svd.c. */
#include "core/op.h"
#include "kernels/svd/svd.h"

#define BLASD_DECLARED "kernels/svd/svd.def"
#include "core/op_tables.h"

int blasd_svd_read(const struct blasd_job *job, struct blasd_svd *ret, struct blasd_err *err) {
    int code = blasd_stack_read(job, false, &ret->stack, err);
    if (code != 0) return code;
    ret->vectors = job->params[BLASD_SVD_COMPUTE_UV].b;
    ret->wide = ret->stack.m < ret->stack.n;
    ret->rows = ret->wide ? ret->stack.n : ret->stack.m;
    ret->columns = ret->wide ? ret->stack.m : ret->stack.n;
    ret->left = job->params[BLASD_SVD_FULL].b ? ret->rows : ret->columns;
    return 0;
}

/* R first, where the matrix is tall; then its square part. */
double blasd_svd_flops(const struct blasd_svd *svd) {
    double m = (double)svd->rows, n = (double)svd->columns, left = (double)svd->left;
    if (!svd->vectors) return 2 * m * n * n + 2 * n * n * n + 30 * m;
    return 4 * m * n * n + 4 * m * n * left + 13 * n * n * n + m * left + 100 * m;
}

static int plan(const struct blasd_job *job, struct blasd_plan *plan, struct blasd_err *err) {
    struct blasd_svd svd;
    double all, square;
    int code = blasd_svd_read(job, &svd, err);
    if (code != 0) return code;
    all = (double)svd.rows * (double)svd.columns;
    square = (double)svd.columns * (double)svd.columns;
    blasd_stack_plan(plan, job, &svd.stack, blasd_svd_flops(&svd),
                     svd.vectors ? 2 * all + (double)svd.rows * (double)svd.left + 6 * square
                                 : all + square + 100 * (double)svd.rows);
    if (svd.stack.rank > 0) blasd_stack_figure(plan, BLASD_SVD_INFO, &svd.stack, BLASD_int64);
    blasd_stack_output(plan, BLASD_SVD_S, &svd.stack, 1, svd.columns, 1);
    if (!svd.vectors) return 0;
    blasd_stack_output(plan, BLASD_SVD_U, &svd.stack, 2, svd.stack.m,
                       svd.wide ? svd.columns : svd.left);
    blasd_stack_output(plan, BLASD_SVD_VH, &svd.stack, 2, svd.wide ? svd.left : svd.columns,
                       svd.stack.n);
    blasd_stack_figure(plan, BLASD_SVD_RESIDUAL, &svd.stack, BLASD_float64);
    blasd_stack_figure(plan, BLASD_SVD_ORTHOGONALITY, &svd.stack, BLASD_float64);
    return 0;
}

const struct blasd_op blasd_op_svd = {
    .name = "svd",
    .summary = "Singular value decomposition, a = U @ diag(S) @ Vh",
    .doc = "As numpy.linalg.svd gives it, or svdvals without vectors: computed in float64, scaled "
           "by a power of two where elements are near the ends of the range, and rounded to the "
           "dtype of a. A single matrix for which the iteration does not converge fails with "
           "not_converged; in a stack its results are NaN.",
    .inputs = inputs,
    .outputs = outputs,
    .params = params,
    .plan = plan,
    .slower = 10,
    .sample = blasd_stack_sample};
