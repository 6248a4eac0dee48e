/* What an lstsq job says of its matrices, the same on every backend. Knows no BLAS.
 * Read next: lstsq.h. */
#include "core/wanted.h"
#include "kernels/lstsq/lstsq.h"

#include <math.h>
#include <stdio.h>

int64_t blasd_lstsq_rank(const struct blasd_lstsq *l, const double *s) {
    int64_t rank = 0;
    while (rank < l->k && s[rank] > l->rcond * s[0]) rank++;
    return rank;
}

void blasd_lstsq_round(const struct blasd_lstsq *l, double *x,
                       const struct blasd_lstsq_scale *scale) {
    int64_t done = 0;
    for (int64_t c = 0; c < l->columns && blasd_wanted_after(&done, l->stack.n); c++)
        for (int64_t i = 0; i < l->stack.n; i++) {
            int e = scale->a - scale->b[c];
            double *at = &x[c * l->stack.n + i], sent = ldexp(*at, e);
            if (l->stack.single) sent = (double)(float)sent;
            if (isfinite(sent)) *at = ldexp(sent, -e);
        }
}

static void put_rank(const struct blasd_task *task, int64_t item, int64_t rank) {
    ((int64_t *)task->outputs[BLASD_LSTSQ_RANK].data)[item] = rank;
}

void blasd_lstsq_answer(struct blasd_task *task, const struct blasd_lstsq *l, int64_t item,
                        double *x, const double *r, const double *s, int64_t rank,
                        double optimality, const struct blasd_lstsq_scale *scale) {
    int64_t m = l->stack.m, n = l->stack.n, columns = l->columns, done = 0;
    for (int64_t c = 0; c < columns && blasd_wanted_after(&done, n); c++) {
        double norm = blasd_stack_norm(m, r + c * m), sum = ldexp(norm * norm, -2 * scale->b[c]);
        blasd_stack_store(&task->outputs[BLASD_LSTSQ_RESIDUALS], item * columns + c, 1, 1, &sum, 1,
                          false, 0);
        for (int64_t i = 0; i < n; i++) x[c * n + i] = ldexp(x[c * n + i], scale->a - scale->b[c]);
    }
    blasd_stack_store(&task->outputs[BLASD_LSTSQ_X], item, n, columns, x, n, false, 0);
    blasd_stack_store(&task->outputs[BLASD_LSTSQ_S], item, l->k, 1, s, l->k, false, -scale->a);
    put_rank(task, item, rank);
    blasd_stack_put(&task->outputs[BLASD_LSTSQ_OPTIMALITY], item, optimality);
}

static int64_t *info_of(const struct blasd_task *task) {
    return task->outputs[BLASD_LSTSQ_INFO].data;
}

void blasd_lstsq_tell(struct blasd_task *task, int64_t item, bool lost) {
    info_of(task)[item] = lost ? BLASD_W_precision_loss : 0;
}

void blasd_lstsq_refuse(struct blasd_task *task, const struct blasd_lstsq *l, int64_t item) {
    blasd_stack_store_nan(&task->outputs[BLASD_LSTSQ_X], item, l->stack.n * l->columns);
    blasd_stack_store_nan(&task->outputs[BLASD_LSTSQ_RESIDUALS], item, l->columns);
    blasd_stack_store_nan(&task->outputs[BLASD_LSTSQ_S], item, l->k);
    blasd_stack_put(&task->outputs[BLASD_LSTSQ_OPTIMALITY], item, NAN);
    put_rank(task, item, -1);
    info_of(task)[item] = BLASD_W_not_converged;
}

/* Whether one of an item's `each` elements of an output is beyond the range of its dtype. */
static bool overflowed(const struct blasd_task *task, int output, int64_t item, int64_t each) {
    const struct blasd_tensor *tensor = &task->outputs[output];
    bool finite = true;
    for (int64_t i = item * each; finite && i < (item + 1) * each; i++)
        finite = tensor->dtype == BLASD_float32 ? isfinite(((const float *)tensor->data)[i])
                                                : isfinite(((const double *)tensor->data)[i]);
    return !finite;
}

void blasd_lstsq_finish(struct blasd_task *task, const struct blasd_lstsq *l, bool look_at_x) {
    const int64_t *rank = task->outputs[BLASD_LSTSQ_RANK].data;
    const double *optimality = task->outputs[BLASD_LSTSQ_OPTIMALITY].data;
    double u = l->stack.single ? 0x1p-24 : 0x1p-53;
    double most = 16 * (double)(l->stack.m + l->stack.n + 1) * u + l->rcond;
    int64_t deficient = 0, least = l->k, poor = 0, done = 0, few = 0, columns = l->columns, lost;
    snprintf(task->method, sizeof task->method, "svd");
    for (int64_t i = 0; i < l->stack.count && blasd_wanted_after(&done, l->stack.n * columns);
         i++) {
        int64_t *info = &info_of(task)[i];
        bool poorly = optimality[i] > most, deficiently = rank[i] < l->k;
        if (rank[i] < 0) continue;
        few += *info == BLASD_W_precision_loss;
        poor += poorly;
        deficient += deficiently;
        if (rank[i] < least) least = rank[i];
        if (*info == 0 && poorly) *info = BLASD_W_inexact;
        if (*info == 0 && deficiently) *info = BLASD_W_rank_deficient;
        if ((look_at_x && overflowed(task, BLASD_LSTSQ_X, i, l->stack.n * columns)) ||
            overflowed(task, BLASD_LSTSQ_S, i, l->k) ||
            overflowed(task, BLASD_LSTSQ_RESIDUALS, i, columns))
            *info = BLASD_W_overflow;
    }
    lost = blasd_stack_judge_lost(task, &l->stack, BLASD_LSTSQ_S, l->k, "singular values");
    if (deficient > 0 && l->stack.rank == 0)
        blasd_task_warn(task, BLASD_W_rank_deficient,
                        "a is rank-deficient: %lld of %lld singular values are above rcond (%.2g) "
                        "times the largest; x is the shortest of many",
                        (long long)least, (long long)l->k, l->rcond);
    else if (deficient > 0)
        blasd_task_warn(task, BLASD_W_rank_deficient,
                        "%lld matrices are rank-deficient, down to rank %lld of %lld: see rank",
                        (long long)deficient, (long long)least, (long long)l->k);
    if (few > 0)
        blasd_task_warn(task, BLASD_W_precision_loss,
                        "the condition of %lld matrices, or its square times the residual, leaves "
                        "fewer than half of the digits of x",
                        (long long)few);
    if (poor > 0)
        blasd_task_warn(task, BLASD_W_inexact,
                        "%lld results are less exact than they should be: see optimality",
                        (long long)poor);
    if (look_at_x)
        blasd_stack_judge_range(task, &l->stack, BLASD_LSTSQ_X, "x",
                                lost * l->stack.n * l->columns);
    blasd_stack_judge_range(task, &l->stack, BLASD_LSTSQ_S, "s", lost * l->k);
    blasd_stack_judge_range(task, &l->stack, BLASD_LSTSQ_RESIDUALS, "residuals", lost * l->columns);
}
