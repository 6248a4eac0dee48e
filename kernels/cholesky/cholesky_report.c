/* What a cholesky job says of its matrices, the same on every backend. Knows no BLAS.
 * Read next: cholesky.h. */
#include "core/wanted.h"
#include "kernels/cholesky/cholesky.h"

#include <math.h>
#include <stdio.h>

void blasd_cholesky_scale(int64_t n, double *a, bool upper, int *d) {
    int64_t done = 0;
    if (upper) blasd_stack_mirror(n, a, true);
    for (int64_t i = 0; i < n; i++) {
        int exponent = 0;
        if (a[i * n + i] > 0) frexp(a[i * n + i], &exponent);
        /* floor((exponent - 1) / 2): half of the largest even power that is not above it */
        d[i] = -((exponent - 1) - ((exponent - 1) & 1)) / 2;
        if (!(a[i * n + i] > 0)) d[i] = 0;
    }
    for (int64_t j = 0; j < n && blasd_wanted_after(&done, 8 * n); j++)
        for (int64_t i = j; i < n; i++) {
            double *x = &a[j * n + i];
            if (d[i] + d[j] != 0) *x = ldexp(*x, d[i] + d[j]);
            if (i != j && fabs(*x) > BLASD_CHOLESKY_MOST) *x = copysign(BLASD_CHOLESKY_MOST, *x);
        }
}

static void put_info(const struct blasd_task *task, int64_t item, int64_t info) {
    ((int64_t *)task->outputs[BLASD_CHOLESKY_INFO].data)[item] = info;
}

void blasd_cholesky_answer(struct blasd_task *task, const struct blasd_stack *stack, int64_t item,
                           double *l, const int *d) {
    const bool upper = task->job->params[BLASD_CHOLESKY_UPPER].b;
    int64_t n = stack->n, done = 0;
    for (int64_t j = 0; j < n && blasd_wanted_after(&done, 8 * n); j++)
        for (int64_t i = 0; i < n; i++)
            l[j * n + i] = i < j ? 0 : d[i] != 0 ? ldexp(l[j * n + i], -d[i]) : l[j * n + i];
    blasd_stack_store(&task->outputs[BLASD_CHOLESKY_L], item, n, n, l, n, upper, 0);
    put_info(task, item, 0);
}

void blasd_cholesky_refuse(struct blasd_task *task, const struct blasd_stack *stack, int64_t item,
                           int64_t info) {
    blasd_stack_store_nan(&task->outputs[BLASD_CHOLESKY_L], item, stack->n * stack->n);
    blasd_stack_put(&task->outputs[BLASD_CHOLESKY_RESIDUAL], item, NAN);
    blasd_stack_put(&task->outputs[BLASD_CHOLESKY_LEAST], item, NAN);
    put_info(task, item, info);
}

/* Warns of matrices of which rounding to their dtype may make indefinite ones. */
static void judge_definiteness(struct blasd_task *task, const struct blasd_stack *stack) {
    const double *least = task->outputs[BLASD_CHOLESKY_LEAST].data;
    double most = 4 * ((double)stack->n + 1) * (stack->single ? 0x1p-24 : 0x1p-53);
    int64_t near = 0, done = 0;
    for (int64_t i = 0; i < stack->count && blasd_wanted_after(&done, 10); i++)
        if (least[i] <= most) {
            near++;
            blasd_stack_note(task, stack, i, BLASD_W_near_singular);
        }
    if (near > 0 && stack->rank == 0)
        blasd_task_warn(task, BLASD_W_near_singular,
                        "a is definite to rounding alone: scaled, its least eigenvalue is about "
                        "%.1g or less",
                        least[0]);
    else if (near > 0)
        blasd_task_warn(
            task, BLASD_W_near_singular,
            "%lld of %lld matrices are definite to rounding alone: see least_eigenvalue",
            (long long)near, (long long)stack->count);
}

void blasd_cholesky_finish(struct blasd_task *task, const struct blasd_stack *stack,
                           int64_t uneven) {
    static const int figures[] = {BLASD_CHOLESKY_RESIDUAL, -1};
    const int64_t *info = task->outputs[BLASD_CHOLESKY_INFO].data;
    struct blasd_stack noted = *stack;
    int64_t failed = 0, done = 0;
    for (int64_t i = 0; i < stack->count && blasd_wanted_after(&done, 10); i++)
        failed += info[i] > 0;
    snprintf(task->method, sizeof task->method, "cholesky");
    if (failed > 0 && stack->rank == 0) {
        blasd_fail(&task->err, BLASD_E_not_positive_definite, "inputs.a",
                   "the leading minor of order %lld is not positive", (long long)info[0]);
        return;
    }
    if (failed > 0)
        blasd_task_warn(task, BLASD_W_not_positive_definite,
                        "%lld of %lld matrices are not positive definite: see info",
                        (long long)failed, (long long)stack->count);
    noted.minus = true;
    judge_definiteness(task, &noted);
    blasd_stack_judge(task, &noted, figures);
    blasd_stack_judge_symmetry(task, stack, uneven, task->job->params[BLASD_CHOLESKY_UPPER].b);
}
