/* qr on the CPU. Read next: README.md, then ../lapack/lapack.c. */
#include "core/wanted.h"
#include "kernels/cpu/cpu.h"
#include "kernels/qr/qr.h"

#include <stdlib.h>
#include <string.h>

struct work {
    struct blasd_stack_work base; /* first */
    struct blasd_qr qr;
};

/* What an item is computed in. */
struct bench {
    double *a, *copy;    /* m x n; a is left as reflectors */
    double *tau, *r, *q; /* r has room for k x rows, too */
    int *e;
};

/* || a - q r || / || a ||; b->copy is a. */
static double residual(int threads, const struct blasd_qr *qr, const struct bench *b) {
    int64_t m = qr->stack.m, n = qr->stack.n;
    const struct blasd_lapack_product product = {.m = (int)m,
                                                 .n = (int)n,
                                                 .k = (int)qr->k,
                                                 .alpha = 1,
                                                 .beta = -1,
                                                 .a = b->q,
                                                 .b = b->r,
                                                 .c = b->copy,
                                                 .lda = (int)m,
                                                 .ldb = (int)qr->rows,
                                                 .ldc = (int)m};
    double norm = blasd_stack_norm(m * n, b->copy), lost;
    int most = 0;
    if (!(norm > 0)) return 0;
    for (int64_t j = 0; j < n; j++) most = b->e[j] > most ? b->e[j] : most;
    lost = blasd_stack_lost(&qr->stack, qr->k * n, most);
    blasd_lapack_multiply(threads, &product);
    return (blasd_stack_norm(m * n, b->copy) + lost) / norm + blasd_stack_slack(qr->k) +
           (qr->stack.single ? 0x1p-24 : 0);
}

/* Returns info. */
static int make_q(const struct blasd_qr *qr, struct blasd_task *task, int64_t item, int threads,
                  const struct bench *b) {
    int64_t m = qr->stack.m;
    int64_t done = 0;
    int info;
    for (int64_t i = 0; i < qr->rows && blasd_wanted_after(&done, m); i++) {
        memset(b->q + i * m, 0, (size_t)m * sizeof *b->q);
        b->q[i * m + i] = 1;
    }
    info = blasd_lapack_q(threads, false, (int)m, (int)qr->rows, (int)qr->k, b->a, (int)m, b->tau,
                          b->q, (int)m);
    if (info != 0 || !blasd_wanted()) return info;
    blasd_stack_round(&qr->stack, b->q, m * qr->rows);
    blasd_stack_put(&task->outputs[BLASD_QR_RESIDUAL], item, residual(threads, qr, b));
    blasd_stack_store(&task->outputs[BLASD_QR_Q], item, m, qr->rows, b->q, m, false, 0);
    return 0;
}

/* The upper triangle of what the reflectors are in. */
static void take_r(const struct blasd_qr *qr, const struct bench *b) {
    int64_t m = qr->stack.m, n = qr->stack.n, rows = qr->rows, done = 0;
    for (int64_t j = 0; j < n && blasd_wanted_after(&done, rows); j++) {
        int64_t own = j + 1 < qr->k ? j + 1 : qr->k;
        memcpy(b->r + j * rows, b->a + j * m, (size_t)own * sizeof *b->r);
        memset(b->r + j * rows + own, 0, (size_t)(rows - own) * sizeof *b->r);
    }
    blasd_stack_round(&qr->stack, b->r, rows * n);
}

static int decompose(const struct blasd_qr *qr, struct blasd_task *task, int64_t item, int threads,
                     const struct bench *b) {
    const bool alone = qr->mode == BLASD_QR_R_ALONE;
    int64_t m = qr->stack.m, n = qr->stack.n;
    int info = blasd_lapack_qr(threads, (int)m, (int)n, b->a, (int)m, b->tau);
    if (info != 0 || !blasd_wanted()) return info;
    take_r(qr, b);
    if (!alone) info = make_q(qr, task, item, threads, b);
    if (info != 0 || !blasd_wanted()) return info;
    blasd_qr_answer(task, qr, item, b->r, b->e);
    if (!alone)
        blasd_stack_put(&task->outputs[BLASD_QR_ORTHOGONALITY], item,
                        blasd_stack_orthogonality(threads, m, qr->k, qr->rows, b->q, b->r));
    return 0;
}

static void item(const struct blasd_stack_work *base, struct blasd_task *task, int64_t item,
                 int threads) {
    const struct blasd_qr *qr = &((const struct work *)(const void *)base)->qr;
    const bool alone = qr->mode == BLASD_QR_R_ALONE;
    size_t n = (size_t)qr->stack.n, all = (size_t)qr->stack.m * n, rows = (size_t)qr->rows;
    size_t r = rows * (n > (size_t)qr->k ? n : (size_t)qr->k), q = (size_t)qr->stack.m * rows;
    double *memory = blasd_cpu_alloc(all + r + 2 * n + (alone ? 0 : all + q), sizeof *memory);
    struct bench b = {.a = memory};
    if (memory == NULL) {
        blasd_stack_no_memory(task);
        return;
    }
    b.r = b.a + all;
    b.tau = b.r + r;
    b.e = (int *)(void *)(b.tau + n);
    if (!alone) {
        b.copy = b.tau + 2 * n;
        b.q = b.copy + all;
    }
    blasd_stack_copy(&task->inputs[BLASD_QR_A], item, qr->stack.m, qr->stack.n, false, b.a);
    blasd_qr_scale(qr, b.a, b.e);
    if (!alone) blasd_stack_move((int64_t)all, b.a, b.copy);
    if (decompose(qr, task, item, threads, &b) != 0) blasd_stack_no_memory(task);
    free(memory);
}

static void finish(const struct blasd_stack_work *base, struct blasd_task *task) {
    blasd_qr_finish(task, &((const struct work *)(const void *)base)->qr, true);
}

static int run(struct blasd_device *device, struct blasd_task *tasks, int count,
               struct blasd_watch *watch, struct blasd_err *err) {
    struct work work = {.base = {.item = item, .finish = finish}};
    int code = blasd_qr_read(tasks[0].job, &work.qr, err);
    if (code != 0) return code;
    work.base.stack = work.qr.stack;
    work.base.flops = blasd_qr_flops(&work.qr);
    return blasd_stack_run(&work.base, device, tasks, count, watch, err);
}

const struct blasd_kernel blasd_cpu_qr = {.op = "qr", .run = run};
