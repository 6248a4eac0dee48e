/* eigh: what may be asked, what it makes and costs. Knows no backend.
 * Read next: README.md, then cpu_eigh.c. */
#include "core/op.h"
#include "kernels/eigh/eigh.h"

static const char *const triangles[] = {
    [BLASD_EIGH_LOWER] = "lower", [BLASD_EIGH_UPPER] = "upper", NULL};

#define BLASD_DECLARED "kernels/eigh/eigh.def"
#include "core/op_tables.h"

double blasd_eigh_flops(const struct blasd_stack *stack, bool vectors) {
    double n = (double)stack->n;
    return (vectors ? 9 : 4.0 / 3) * n * n * n + 30 * n * n;
}

static int plan(const struct blasd_job *job, struct blasd_plan *plan, struct blasd_err *err) {
    const bool vectors = job->params[BLASD_EIGH_WANTS_VECTORS].b;
    struct blasd_stack stack;
    double square;
    int code = blasd_stack_read(job, true, &stack, err);
    if (code != 0) return code;
    square = (double)stack.n * (double)stack.n;
    blasd_stack_plan(plan, job, &stack, blasd_eigh_flops(&stack, vectors),
                     (vectors ? 5 : 1) * square + 66 * (double)stack.n);
    if (stack.rank > 0) blasd_stack_figure(plan, BLASD_EIGH_INFO, &stack, BLASD_int64);
    blasd_stack_output(plan, BLASD_EIGH_VALUES, &stack, 1, stack.n, 1);
    if (!vectors) return 0;
    blasd_stack_output(plan, BLASD_EIGH_VECTORS, &stack, 2, stack.n, stack.n);
    blasd_stack_figure(plan, BLASD_EIGH_RESIDUAL, &stack, BLASD_float64);
    blasd_stack_figure(plan, BLASD_EIGH_ORTHOGONALITY, &stack, BLASD_float64);
    return 0;
}

const struct blasd_op blasd_op_eigh = {
    .name = "eigh",
    .summary = "Eigenvalues and eigenvectors of symmetric matrices",
    .doc = "As numpy.linalg.eigh gives them, or eigvalsh without vectors: computed in float64, "
           "scaled by a power of two where elements are near the ends of the range, and rounded "
           "to the dtype of a. A single matrix for which the iteration does not converge fails "
           "with not_converged; in a stack its results are NaN.",
    .inputs = inputs,
    .outputs = outputs,
    .params = params,
    .plan = plan,
    .slower = 10,
    .sample = blasd_stack_sample};
