/* cholesky: what may be asked, what it makes and costs. Knows no backend.
 * Read next: README.md, then cpu_cholesky.c. */
#include "core/op.h"
#include "kernels/cholesky/cholesky.h"

#define BLASD_DECLARED "kernels/cholesky/cholesky.def"
#include "core/op_tables.h"

double blasd_cholesky_flops(const struct blasd_stack *stack) {
    double n = (double)stack->n;
    return n * n * n / 3 + n * n;
}

static int plan(const struct blasd_job *job, struct blasd_plan *plan, struct blasd_err *err) {
    struct blasd_stack stack;
    int code = blasd_stack_read(job, true, &stack, err);
    if (code != 0) return code;
    blasd_stack_plan(plan, job, &stack, blasd_cholesky_flops(&stack),
                     2 * (double)stack.n * (double)stack.n);
    blasd_stack_output(plan, BLASD_CHOLESKY_L, &stack, 2, stack.n, stack.n);
    blasd_stack_figure(plan, BLASD_CHOLESKY_INFO, &stack, BLASD_int64);
    blasd_stack_figure(plan, BLASD_CHOLESKY_RESIDUAL, &stack, BLASD_float64);
    blasd_stack_figure(plan, BLASD_CHOLESKY_LEAST, &stack, BLASD_float64);
    return 0;
}

/* Symmetric, and its diagonal dominates. */
static void sample_values(int i, const struct blasd_tensor *a) {
    int64_t n = a->shape[a->rank - 1], count = blasd_tensor_elements(a);
    (void)i;
    for (int64_t at = 0; at < count; at++) {
        int64_t row = at / n % n, column = at % n, twin = at + (column - row) * (n - 1);
        if (a->dtype == BLASD_float32) {
            float *x = a->data;
            x[at] = row == column ? (float)n : column < row ? x[twin] : x[at];
        } else {
            double *x = a->data;
            x[at] = row == column ? (double)n : column < row ? x[twin] : x[at];
        }
    }
}

const struct blasd_op blasd_op_cholesky = {
    .name = "cholesky",
    .summary = "Cholesky factor, a = L @ L.T",
    .doc = "The factor of symmetric positive definite matrices, as numpy.linalg.cholesky gives it. "
           "It is computed in float64, with rows and columns scaled by powers of two, so that "
           "neither their sizes nor the ends of the range cost it digits, and rounded to the dtype "
           "of a. A single matrix that is not positive definite fails with not_positive_definite; "
           "in a stack that matrix alone is marked in info and its factor is NaN. A matrix that is "
           "definite by no more than the rounding of its dtype has a factor, and the warning "
           "near_singular.",
    .inputs = inputs,
    .outputs = outputs,
    .params = params,
    .plan = plan,
    .slower = 2,
    .sample = blasd_stack_sample,
    .sample_values = sample_values};
