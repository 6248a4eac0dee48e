/* What a job of solve says: how many systems, of what kind, and how they lie. */
#include "base/err.h"
#include "core/op.h"
#include "kernels/solve/solve.h"

#include <string.h>

const char *blasd_solve_method_name(enum blasd_solve_method method) {
    static const char *const names[] = {"none", "lu", "ldlt", "cholesky", "substitution", "qr"};
    return names[method];
}

struct blasd_solve_layout blasd_solve_layout(const struct blasd_solve *s,
                                             const struct blasd_tensor *a,
                                             const struct blasd_tensor *b) {
    bool symmetric = s->assume == BLASD_ASSUME_SYMMETRIC || s->assume == BLASD_ASSUME_HERMITIAN ||
                     s->assume == BLASD_ASSUME_POSITIVE_DEFINITE;
    bool by_columns = a->rank == 2 && a->order == BLASD_COLUMN_MAJOR;
    bool turned = by_columns != (s->transposed && !symmetric);
    bool b_turned = b->rank == 2 && b->order == BLASD_COLUMN_MAJOR;
    struct blasd_solve_layout layout = {.a_row = turned ? 1 : s->n,
                                        .a_column = turned ? s->n : 1,
                                        .b_row = b_turned ? 1 : s->columns,
                                        .b_column = b_turned ? s->n : 1,
                                        .assume = s->assume};
    if (s->transposed && s->assume == BLASD_ASSUME_LOWER_TRIANGULAR)
        layout.assume = BLASD_ASSUME_UPPER_TRIANGULAR;
    if (s->transposed && s->assume == BLASD_ASSUME_UPPER_TRIANGULAR)
        layout.assume = BLASD_ASSUME_LOWER_TRIANGULAR;
    return layout;
}

enum blasd_dtype blasd_solve_dtype(const struct blasd_job *job) {
    enum blasd_dtype a = job->inputs[BLASD_SOLVE_A].tensor.dtype;
    enum blasd_dtype b = job->inputs[BLASD_SOLVE_B].tensor.dtype;
    bool single = blasd_dtype_part(a) == BLASD_float32 && blasd_dtype_part(b) == BLASD_float32;
    if (blasd_dtype_parts(a) == 2 || blasd_dtype_parts(b) == 2)
        return single ? BLASD_complex64 : BLASD_complex128;
    return single ? BLASD_float32 : BLASD_float64;
}

void blasd_solve_stand_in(const struct blasd_job *job, struct blasd_job *ret) {
    const struct blasd_tensor *factor = &job->inputs[BLASD_SOLVE_FACTOR].tensor;
    const int64_t shape[] = {factor->shape[1], factor->shape[1]};
    blasd_job_share(job, ret);
    ret->inputs[BLASD_SOLVE_A] = job->inputs[BLASD_SOLVE_FACTOR];
    ret->inputs[BLASD_SOLVE_A].tensor = blasd_tensor_make(factor->dtype, 2, shape);
    ret->inputs[BLASD_SOLVE_A].tensor.order = BLASD_COLUMN_MAJOR;
    ret->inputs[BLASD_SOLVE_A].first_nonfinite = -1; /* of the matrix, which was looked at */
    blasd_input_init(&ret->inputs[BLASD_SOLVE_FACTOR]);
}

int blasd_solve_read(const struct blasd_job *job, struct blasd_solve *ret, struct blasd_err *err) {
    const struct blasd_tensor *a = &job->inputs[BLASD_SOLVE_A].tensor;
    const struct blasd_tensor *b = &job->inputs[BLASD_SOLVE_B].tensor;
    struct blasd_tensor x;
    char shape_a[96], shape_b[96];
    int code;
    memset(ret, 0, sizeof *ret);
    ret->assume = (enum blasd_assume)job->params[BLASD_SOLVE_ASSUME_A].choice;
    if (ret->assume == BLASD_ASSUME_HERMITIAN && blasd_dtype_parts(blasd_solve_dtype(job)) == 1)
        ret->assume = BLASD_ASSUME_SYMMETRIC;
    ret->transposed = job->params[BLASD_SOLVE_TRANSPOSED].b;
    ret->certify = job->params[BLASD_SOLVE_CERTIFY].b;
    ret->refinement = (enum blasd_refinement)job->params[BLASD_SOLVE_REFINEMENT].choice;
    blasd_tensor_shape_text(a, shape_a, sizeof shape_a);
    blasd_tensor_shape_text(b, shape_b, sizeof shape_b);
    ret->n = a->shape[a->rank - 1];
    ret->vector = b->rank == 1;
    ret->columns = ret->vector ? 1 : b->shape[b->rank - 1];
    if (a->shape[a->rank - 2] != ret->n)
        return blasd_fail(err, BLASD_E_invalid_shape, "inputs.a",
                          "the matrices of a must be square; its shape is %s", shape_a);
    if (ret->n > BLASD_SOLVE_LARGEST_N || ret->columns > INT32_MAX)
        return blasd_fail(err, BLASD_E_invalid_shape,
                          ret->n > BLASD_SOLVE_LARGEST_N ? "inputs.a" : "inputs.b",
                          "at most %d unknowns and %d right-hand sides are taken",
                          BLASD_SOLVE_LARGEST_N, INT32_MAX);
    if (b->shape[b->rank - (ret->vector ? 1 : 2)] != ret->n)
        return blasd_fail(err, BLASD_E_shape_mismatch, "inputs.b",
                          "a %s has %lld rows, b %s must have as many%s", shape_a,
                          (long long)ret->n, shape_b,
                          ret->vector ? "" : " (a vector b has one dimension)");
    ret->a_rank = a->rank - 2;
    ret->b_rank = ret->vector ? 0 : b->rank - 2;
    for (int i = 0; i < ret->a_rank; i++) ret->a_batch[i] = a->shape[i];
    for (int i = 0; i < ret->b_rank; i++) ret->b_batch[i] = b->shape[i];
    ret->batch_rank =
        blasd_shape_broadcast(ret->a_batch, ret->a_rank, ret->b_batch, ret->b_rank, ret->batch);
    if (ret->batch_rank < 0)
        return blasd_fail(err, BLASD_E_shape_mismatch, "inputs.b",
                          "the batch dimensions of a %s and b %s do not broadcast", shape_a,
                          shape_b);
    x = blasd_tensor_make(BLASD_float64, ret->batch_rank, ret->batch);
    code = blasd_tensor_check(&x, "inputs", err); /* so that no product of lengths overflows */
    ret->batch_count = code == 0 ? blasd_tensor_elements(&x) : 0;
    return code;
}
