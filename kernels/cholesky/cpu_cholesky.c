/* cholesky on the CPU. Read next: README.md, then ../lapack/lapack.c. */
#include "core/wanted.h"
#include "kernels/cholesky/cholesky.h"
#include "kernels/cpu/cpu.h"

#include <lapacke.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* || a - l l' || / || a || of the scaled matrix; l has been rounded to the dtype of the result.
 * Only the lower triangle of a is read, and overwritten. */
static double residual(int threads, int64_t n, double *a, const double *l) {
    const struct blasd_lapack_product product = {.trans_b = true,
                                                 .m = (int)n,
                                                 .n = (int)n,
                                                 .k = (int)n,
                                                 .alpha = -1,
                                                 .beta = 1,
                                                 .a = l,
                                                 .b = l,
                                                 .c = a,
                                                 .lda = (int)n,
                                                 .ldb = (int)n,
                                                 .ldc = (int)n};
    double norm;
    if (n == 0) return 0;
    blasd_stack_mirror(n, a, false);
    norm = blasd_stack_norm(n * n, a);
    blasd_lapack_multiply(threads, &product);
    return blasd_stack_norm(n * n, a) / norm + blasd_stack_slack(n);
}

/* An estimate from above of the least eigenvalue of l l'; room: BLASD_CHOLESKY_TRIALS n. */
static double least_eigenvalue(int64_t n, const double *l, double *room) {
    const int64_t count = BLASD_CHOLESKY_TRIALS * n;
    if (n == 0) return INFINITY;
    for (int64_t at = 0; at < count; at++) room[at] = BLASD_CHOLESKY_TRIAL(at % n, at / n);
    LAPACKE_dpotrs_work(LAPACK_COL_MAJOR, 'L', (int)n, BLASD_CHOLESKY_TRIALS, l, (int)n, room,
                        (int)n);
    return sqrt((double)count) / blasd_stack_norm(count, room);
}

static void item(const struct blasd_stack_work *work, struct blasd_task *task, int64_t item,
                 int threads) {
    const struct blasd_stack *stack = &work->stack;
    int64_t n = stack->n, square = n * n;
    double *a = blasd_cpu_alloc(2 * (size_t)square + (BLASD_CHOLESKY_TRIALS + 1) * (size_t)n,
                                sizeof *a),
           *l, *room;
    int64_t done = 0;
    int *d, info;
    if (a == NULL) {
        blasd_stack_no_memory(task);
        return;
    }
    l = a + square;
    room = l + square;
    d = (int *)(void *)(room + BLASD_CHOLESKY_TRIALS * n);
    blasd_stack_copy(&task->inputs[BLASD_CHOLESKY_A], item, n, n, false, a);
    blasd_cholesky_scale(n, a, task->job->params[BLASD_CHOLESKY_UPPER].b, d);
    blasd_stack_move(square, a, l);
    info = blasd_lapack_cholesky(threads, (int)n, l);
    if (info == BLASD_LAPACK_NO_MEMORY) blasd_stack_no_memory(task);
    if (info > 0) blasd_cholesky_refuse(task, stack, item, info);
    if (info == 0 && blasd_wanted()) {
        for (int64_t j = 0; j < n && blasd_wanted_after(&done, j); j++)
            memset(l + j * n, 0, (size_t)j * sizeof *l);
        blasd_stack_put(&task->outputs[BLASD_CHOLESKY_LEAST], item, least_eigenvalue(n, l, room));
        blasd_stack_round(stack, l, square);
        blasd_stack_put(&task->outputs[BLASD_CHOLESKY_RESIDUAL], item, residual(threads, n, a, l));
        blasd_cholesky_answer(task, stack, item, l, d);
    }
    free(a);
}

static void finish(const struct blasd_stack_work *work, struct blasd_task *task) {
    blasd_cholesky_finish(task, &work->stack, blasd_stack_uneven(task, &work->stack));
}

static int run(struct blasd_device *device, struct blasd_task *tasks, int count,
               struct blasd_watch *watch, struct blasd_err *err) {
    struct blasd_stack_work work = {.item = item, .finish = finish};
    int code = blasd_stack_read(tasks[0].job, true, &work.stack, err);
    if (code != 0) return code;
    work.flops = blasd_cholesky_flops(&work.stack);
    return blasd_stack_run(&work, device, tasks, count, watch, err);
}

const struct blasd_kernel blasd_cpu_cholesky = {.op = "cholesky", .run = run};
