/* eigh: what may be asked, what it makes and costs. Knows no backend.
 * Read next: README.md, then cpu_eigh.c. */
#include "core/op.h"
#include "kernels/eigh/eigh.h"

static const struct blasd_port inputs[] = {
    {.name = "a",
     .shape = "(..., n, n)",
     .doc =
         "Symmetric matrices: one or a stack of them. One triangle is read; a warning says where "
         "the other differs.",
     BLASD_STACK_INPUT},
    {.name = NULL}};

static const struct blasd_port outputs[] = {
    [BLASD_EIGH_VALUES] = {.name = "eigenvalues",
                           .shape = "(..., n)",
                           .doc = "The eigenvalues, from the least to the largest. Each is within "
                                  "residual times ||a|| of the exact one of its place.",
                           BLASD_STACK_OUTPUT(1)},
    [BLASD_EIGH_VECTORS] = {.name = "eigenvectors",
                            .shape = "(..., n, n)",
                            .doc = "Column i is the eigenvector of eigenvalue i, of length 1.",
                            BLASD_STACK_OUTPUT(2),
                            .optional = true},
    [BLASD_EIGH_RESIDUAL] = {.name = "residual",
                             .doc = "With vectors, for each matrix: ||a V - V diag(w)|| / ||a|| in "
                                    "the Frobenius norm, with what measuring it may have rounded.",
                             BLASD_STACK_FIGURE(BLASD_float64),
                             .optional = true},
    [BLASD_EIGH_ORTHOGONALITY] = {.name = "orthogonality",
                                  .doc = "With vectors, for each matrix: ||V' V - 1|| in the "
                                         "Frobenius norm, with what measuring it may have rounded.",
                                  BLASD_STACK_FIGURE(BLASD_float64),
                                  .optional = true},
    {.name = NULL}};

static const char *const triangles[] = {
    [BLASD_EIGH_LOWER] = "lower", [BLASD_EIGH_UPPER] = "upper", NULL};

static const struct blasd_param params[] = {
    [BLASD_EIGH_UPLO] = {.name = "uplo",
                         .doc = "The triangle of a that is read.",
                         .kind = BLASD_PARAM_CHOICE,
                         .choices = triangles},
    [BLASD_EIGH_WANTS_VECTORS] = {.name = "vectors",
                                  .doc = "Also compute the eigenvectors; false: the eigenvalues "
                                         "alone, in a sixth of the operations.",
                                  .kind = BLASD_PARAM_BOOL,
                                  .preset = {.b = true}},
    {.name = NULL}};

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
                     (vectors ? 4 : 1) * square + 64 * (double)stack.n);
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
    .sample = blasd_stack_sample};
