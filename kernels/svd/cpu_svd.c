/* svd on the CPU. Read next: README.md, then ../lapack/lapack.c. */
#include "core/wanted.h"
#include "kernels/cpu/cpu.h"
#include "kernels/svd/svd.h"

#include <math.h>
#include <stdlib.h>

struct work {
    struct blasd_stack_work base; /* first */
    struct blasd_svd svd;
};

/* What an item is computed in. */
struct bench {
    double *a, *copy; /* rows x columns */
    double *s, *u, *vt;
};

/* || a - u diag(s) vt || / || a ||; b->copy is a times 2^e, b->a room. */
static double residual(int threads, const struct blasd_svd *svd, const struct bench *b, int e) {
    int64_t m = svd->rows, n = svd->columns;
    double lost = blasd_stack_lost(&svd->stack, n, e);
    const struct blasd_lapack_product product = {.m = (int)m,
                                                 .n = (int)n,
                                                 .k = (int)n,
                                                 .alpha = 1,
                                                 .beta = -1,
                                                 .a = b->a,
                                                 .b = b->vt,
                                                 .c = b->copy,
                                                 .lda = (int)m,
                                                 .ldb = (int)n,
                                                 .ldc = (int)m};
    double norm = blasd_stack_norm(m * n, b->copy);
    int64_t done = 0;
    if (!(norm > 0)) return 0;
    for (int64_t j = 0; j < n && blasd_wanted_after(&done, m); j++)
        for (int64_t i = 0; i < m; i++) b->a[j * m + i] = b->s[j] * b->u[j * m + i];
    blasd_lapack_multiply(threads, &product);
    return (blasd_stack_norm(m * n, b->copy) + lost) / norm + blasd_stack_slack(n) +
           (svd->stack.single ? 0x1p-24 : 0);
}

static void measure(const struct blasd_svd *svd, struct blasd_task *task, int64_t item, int threads,
                    const struct bench *b, int e) {
    int64_t m = svd->rows, n = svd->columns;
    double left, right;
    blasd_stack_round(&svd->stack, b->u, m * svd->left);
    blasd_stack_round(&svd->stack, b->vt, n * n);
    blasd_stack_put(&task->outputs[BLASD_SVD_RESIDUAL], item, residual(threads, svd, b, e));
    left = blasd_stack_orthogonality(threads, m, n, svd->left, b->u, b->a);
    right = blasd_stack_orthogonality(threads, n, n, n, b->vt, b->a);
    blasd_stack_put(&task->outputs[BLASD_SVD_ORTHOGONALITY], item, fmax(left, right));
}

static void item(const struct blasd_stack_work *base, struct blasd_task *task, int64_t item,
                 int threads) {
    const struct blasd_svd *svd = &((const struct work *)(const void *)base)->svd;
    size_t m = (size_t)svd->rows, n = (size_t)svd->columns, all = m * n,
           left = m * (size_t)svd->left;
    double *memory =
        blasd_cpu_alloc((svd->vectors ? 2 * all + left + n * n : all) + n, sizeof *memory);
    struct bench b = {.a = memory};
    int e, info;
    if (memory == NULL) {
        blasd_stack_no_memory(task);
        return;
    }
    b.s = memory + all;
    if (svd->vectors) {
        b.copy = b.s + n;
        b.u = b.copy + all;
        b.vt = b.u + left;
    }
    blasd_stack_copy(&task->inputs[BLASD_SVD_A], item, svd->stack.m, svd->stack.n, svd->wide, b.a);
    e = blasd_stack_scale((int64_t)all, b.a);
    if (svd->vectors) blasd_stack_move((int64_t)all, b.a, b.copy);
    info = blasd_lapack_svd((int)m, (int)n, b.a, b.s, b.u, (int)svd->left, b.vt);
    if (info == BLASD_LAPACK_NO_MEMORY) {
        blasd_stack_no_memory(task);
    } else if (info != 0) {
        blasd_svd_refuse(task, svd, item);
    } else if (blasd_wanted()) {
        if (svd->vectors) measure(svd, task, item, threads, &b, e);
        blasd_svd_answer(task, svd, item, b.s, b.u, b.vt, e);
    }
    free(memory);
}

static void finish(const struct blasd_stack_work *base, struct blasd_task *task) {
    blasd_svd_finish(task, &((const struct work *)(const void *)base)->svd);
}

static int run(struct blasd_device *device, struct blasd_task *tasks, int count,
               struct blasd_watch *watch, struct blasd_err *err) {
    struct work work = {.base = {.item = item, .finish = finish}};
    int code = blasd_svd_read(tasks[0].job, &work.svd, err);
    if (code != 0) return code;
    work.base.stack = work.svd.stack;
    work.base.flops = blasd_svd_flops(&work.svd);
    return blasd_stack_run(&work.base, device, tasks, count, watch, err);
}

const struct blasd_kernel blasd_cpu_svd = {.op = "svd", .run = run};
