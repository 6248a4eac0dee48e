/* eigh on the CPU. Read next: README.md, then ../lapack/lapack.c. */
#include "core/wanted.h"
#include "kernels/cpu/cpu.h"
#include "kernels/eigh/eigh.h"

#include <stdlib.h>

/* || a v - v diag(w) || / || a ||, where storing w may take `lost` from it; `room` is n x n. */
static double residual(int threads, int64_t n, const double *a, const double *w, const double *v,
                       double *room, double lost) {
    const struct blasd_lapack_product product = {.m = (int)n,
                                                 .n = (int)n,
                                                 .k = (int)n,
                                                 .alpha = 1,
                                                 .beta = -1,
                                                 .a = a,
                                                 .b = v,
                                                 .c = room,
                                                 .lda = (int)n,
                                                 .ldb = (int)n,
                                                 .ldc = (int)n};
    double norm = blasd_stack_norm(n * n, a);
    int64_t done = 0;
    if (!(norm > 0)) return 0;
    for (int64_t j = 0; j < n && blasd_wanted_after(&done, n); j++)
        for (int64_t i = 0; i < n; i++) room[j * n + i] = w[j] * v[j * n + i];
    blasd_lapack_multiply(threads, &product);
    return (blasd_stack_norm(n * n, room) + lost) / norm + blasd_stack_slack(n);
}

/* What an item is computed in: the matrix, which becomes the vectors; a copy; room; the values. */
struct bench {
    double *v, *copy, *room, *w;
};

static void answer(const struct blasd_stack *stack, struct blasd_task *task, int64_t item,
                   int threads, struct bench *b, int e) {
    int64_t n = stack->n;
    double u = stack->single ? 0x1p-24 : 0;
    if (task->outputs[BLASD_EIGH_VECTORS].rank >= 0) {
        blasd_stack_round(stack, b->v, n * n);
        blasd_stack_put(
            &task->outputs[BLASD_EIGH_RESIDUAL], item,
            residual(threads, n, b->copy, b->w, b->v, b->room, blasd_stack_lost(stack, n, e)) +
                (n > 0 ? u : 0));
        blasd_stack_put(&task->outputs[BLASD_EIGH_ORTHOGONALITY], item,
                        blasd_stack_orthogonality(threads, n, n, n, b->v, b->room));
        blasd_stack_store(&task->outputs[BLASD_EIGH_VECTORS], item, n, n, b->v, n, false, 0);
    }
    blasd_stack_store(&task->outputs[BLASD_EIGH_VALUES], item, n, 1, b->w, n, false, -e);
}

static void item(const struct blasd_stack_work *work, struct blasd_task *task, int64_t item,
                 int threads) {
    const struct blasd_stack *stack = &work->stack;
    const bool vectors = task->outputs[BLASD_EIGH_VECTORS].rank >= 0;
    size_t n = (size_t)stack->n, square = n * n;
    double *memory = blasd_cpu_alloc((vectors ? 3 : 1) * square + n, sizeof *memory);
    struct bench b = {.v = memory};
    int e, info;
    if (memory == NULL) {
        blasd_stack_no_memory(task);
        return;
    }
    b.w = memory + square;
    if (vectors) {
        b.copy = b.w + n;
        b.room = b.copy + square;
    }
    blasd_stack_copy(&task->inputs[BLASD_EIGH_A], item, stack->n, stack->n, false, b.v);
    blasd_stack_mirror(stack->n, b.v,
                       task->job->params[BLASD_EIGH_UPLO].choice == BLASD_EIGH_UPPER);
    e = blasd_stack_scale((int64_t)square, b.v);
    if (vectors) blasd_stack_move((int64_t)square, b.v, b.copy);
    info = blasd_lapack_eigh((int)n, b.v, b.w, vectors);
    if (info == BLASD_LAPACK_NO_MEMORY)
        blasd_stack_no_memory(task);
    else if (info != 0)
        blasd_eigh_refuse(task, stack, item);
    else if (blasd_wanted())
        answer(stack, task, item, threads, &b, e);
    free(memory);
}

static void finish(const struct blasd_stack_work *work, struct blasd_task *task) {
    blasd_eigh_finish(task, &work->stack, blasd_stack_uneven(task, &work->stack));
}

static int run(struct blasd_device *device, struct blasd_task *tasks, int count,
               struct blasd_watch *watch, struct blasd_err *err) {
    struct blasd_stack_work work = {.item = item, .finish = finish};
    int code = blasd_stack_read(tasks[0].job, true, &work.stack, err);
    if (code != 0) return code;
    work.flops = blasd_eigh_flops(&work.stack, tasks[0].job->params[BLASD_EIGH_WANTS_VECTORS].b);
    return blasd_stack_run(&work, device, tasks, count, watch, err);
}

const struct blasd_kernel blasd_cpu_eigh = {.op = "eigh", .run = run};
