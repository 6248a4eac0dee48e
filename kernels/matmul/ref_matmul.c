/* matmul by its definition. Shares nothing with the kernels, so that a mistake in how they read
 * shapes shows. Read next: ../../tests/unit/kernels/test_matmul.c. */
#include "kernels/matmul/ref_matmul.h"

#include "kernels/cpu/ref.h"

#include <math.h>

/* The index of an operand's matrix at the batch index of the result, right-aligned. */
static void batch_index(const struct blasd_tensor *tensor, const int64_t *batch, int batch_rank,
                        int64_t *index) {
    int own = tensor->rank - 2;
    for (int i = 0; i < own; i++) index[i] = batch[batch_rank - own + i];
}

void blasd_ref_matmul(const struct blasd_job *job, const struct blasd_tensor *inputs,
                      const int64_t *at, int rank, long double *value, long double *size) {
    const struct blasd_op *op = job->op;
    const struct blasd_tensor *a = &inputs[0], *b = &inputs[1], *c = &inputs[2];
    bool ta = job->params[blasd_op_param(op, "transpose_a")].b;
    bool tb = job->params[blasd_op_param(op, "transpose_b")].b;
    long double alpha = job->params[blasd_op_param(op, "alpha")].f;
    long double beta = job->params[blasd_op_param(op, "beta")].f;
    int matrix_rank = (a->rank > 1) + (b->rank > 1), batch_rank = rank - matrix_rank;
    int64_t row = a->rank > 1 ? at[batch_rank] : 0, column = b->rank > 1 ? at[rank - 1] : 0;
    int64_t ia[BLASD_MAX_RANK] = {0}, ib[BLASD_MAX_RANK] = {0};
    int64_t depth = a->rank == 1 ? a->shape[0] : a->shape[a->rank - (ta ? 2 : 1)];
    long double sum = 0, sizes = 0;
    batch_index(a, at, batch_rank, ia);
    batch_index(b, at, batch_rank, ib);
    for (int64_t l = 0; l < depth; l++) {
        long double x, y;
        if (a->rank == 1) {
            ia[0] = l;
        } else {
            ia[a->rank - 2] = ta ? l : row;
            ia[a->rank - 1] = ta ? row : l;
        }
        if (b->rank == 1) {
            ib[0] = l;
        } else {
            ib[b->rank - 2] = tb ? column : l;
            ib[b->rank - 1] = tb ? l : column;
        }
        x = blasd_ref_at(a, ia);
        y = blasd_ref_at(b, ib);
        sum += x * y;
        sizes += fabsl(x) * fabsl(y);
    }
    sum *= alpha;
    sizes *= fabsl(alpha);
    if (c->data != NULL && beta != 0) {
        long double z = blasd_ref_at(c, at + (rank - c->rank));
        sum += beta * z;
        sizes += fabsl(beta) * fabsl(z);
    }
    *value = sum;
    *size = sizes;
}
