/* lstsq on the CPU: R of a or of its transpose, the singular values of R, then x from them; from a
 * once more, with more digits, where it is unique and singular values do not do.
 * Read next: README.md, then ../lapack/lapack.c. */
#include "core/wanted.h"
#include "kernels/cpu/cpu.h"
#include "kernels/exact/exact.h"
#include "kernels/lstsq/lstsq.h"
#include "kernels/regression/unique.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct work {
    struct blasd_stack_work base; /* first */
    struct blasd_lstsq l;
    int threads; /* of what is done for a whole task */
};

/* What an item is computed in; the tall matrix is a, or its transpose where it is wide. */
struct bench {
    double *a, *qr;     /* m x n, as it came; the tall matrix, then its reflectors */
    double *tau, *s;    /* k */
    double *r, *u, *vt; /* k x k: the triangle and what it is made of */
    double *b, *y;      /* m x columns: as it came; what becomes the residuals */
    double *x, *slope;  /* n x columns */
    double *c, *d;      /* k x columns */
    int *e;             /* columns */
};

static bool wide(const struct blasd_lstsq *l) {
    return l->stack.m < l->stack.n;
}

static struct blasd_lapack_product product_of(int64_t m, int64_t n, int64_t k, const double *a,
                                              const double *b, double *c) {
    return (struct blasd_lapack_product){.m = (int)m,
                                         .n = (int)n,
                                         .k = (int)k,
                                         .alpha = 1,
                                         .a = a,
                                         .b = b,
                                         .c = c,
                                         .lda = (int)m,
                                         .ldb = (int)k,
                                         .ldc = (int)m};
}

/* The tall matrix = Q u diag(s) vt. Returns info. */
static int decompose(const struct blasd_lstsq *l, int threads, const struct bench *b) {
    int64_t k = l->k, rows = wide(l) ? l->stack.n : l->stack.m, done = 0;
    int info = blasd_lapack_qr(threads, (int)rows, (int)k, b->qr, (int)rows, b->tau);
    if (info != 0 || !blasd_wanted()) return info;
    for (int64_t j = 0; j < k && blasd_wanted_after(&done, k); j++) {
        memcpy(b->r + j * k, b->qr + j * rows, (size_t)(j + 1) * sizeof *b->r);
        memset(b->r + j * k + j + 1, 0, (size_t)(k - j - 1) * sizeof *b->r);
    }
    return blasd_lapack_svd((int)k, (int)k, b->r, b->s, b->u, (int)k, b->vt);
}

/* The first k of `rows` rows of each column. */
static void narrow(int64_t rows, int64_t k, int64_t columns, const double *from, double *to) {
    int64_t done = 0;
    for (int64_t c = 0; c < columns && blasd_wanted_after(&done, k); c++)
        memmove(to + c * k, from + c * rows, (size_t)k * sizeof *to);
}

/* x of least norm for the right-hand sides, by `rank` singular values. */
static int apply(const struct blasd_lstsq *l, int threads, const struct bench *b, int64_t rank) {
    int64_t k = l->k, columns = l->columns, rows = wide(l) ? l->stack.n : l->stack.m;
    struct blasd_lapack_product into =
        product_of(k, columns, k, wide(l) ? b->vt : b->u, b->c, b->d);
    struct blasd_lapack_product back =
        product_of(k, columns, k, wide(l) ? b->u : b->vt, b->d, b->c);
    double *x = b->x, *y = b->y;
    int64_t done = 0;
    int info = 0;
    blasd_stack_move(l->stack.m * columns, b->b, y);
    if (!wide(l))
        info = blasd_lapack_q(threads, true, (int)rows, (int)columns, (int)k, b->qr, (int)rows,
                              b->tau, y, (int)rows);
    if (info != 0 || !blasd_wanted()) return info;
    narrow(wide(l) ? k : rows, k, columns, y, b->c);
    into.trans_a = !wide(l);
    blasd_lapack_multiply(threads, &into);
    for (int64_t c = 0; c < columns && blasd_wanted_after(&done, k); c++)
        for (int64_t i = 0; i < k; i++) b->d[c * k + i] = i < rank ? b->d[c * k + i] / b->s[i] : 0;
    back.trans_a = !wide(l);
    blasd_lapack_multiply(threads, &back);
    if (!wide(l)) {
        blasd_stack_move(k * columns, b->c, x);
        return 0;
    }
    for (int64_t c = 0; c < columns && blasd_wanted_after(&done, rows); c++) {
        memcpy(x + c * rows, b->c + c * k, (size_t)k * sizeof *x);
        memset(x + c * rows + k, 0, (size_t)(rows - k) * sizeof *x);
    }
    return blasd_lapack_q(threads, false, (int)rows, (int)columns, (int)k, b->qr, (int)rows, b->tau,
                          x, (int)rows);
}

/* The residuals into b->y; returns the optimality. */
static double measure(const struct blasd_lstsq *l, int threads, const struct bench *b) {
    int64_t m = l->stack.m, n = l->stack.n, columns = l->columns;
    double norm = blasd_stack_norm(m * n, b->a), most = 0;
    struct blasd_lapack_product left = product_of(m, columns, n, b->a, b->x, b->y);
    struct blasd_lapack_product slope = product_of(n, columns, m, b->a, b->y, b->slope);
    blasd_stack_move(m * columns, b->b, b->y);
    left.alpha = -1;
    left.beta = 1;
    blasd_lapack_multiply(threads, &left);
    for (int64_t c = 0; c < columns && l->k > 0; c++)
        b->d[c] = norm * blasd_stack_norm(n, b->x + c * n);
    if (l->k > 0) blasd_lstsq_near(l, threads, b->a, b->x, b->b, b->d, b->y);
    slope.trans_a = true;
    slope.lda = (int)m;
    blasd_lapack_multiply(threads, &slope);
    for (int64_t c = 0; c < columns; c++) {
        double below =
            norm * (norm * blasd_stack_norm(n, b->x + c * n) + blasd_stack_norm(m, b->b + c * m));
        double above = blasd_stack_norm(n, b->slope + c * n);
        if (below != 0 && !(above / below <= most)) most = above / below;
        if (isnan(most)) break;
    }
    return norm > 0 ? most + blasd_stack_slack(m + n) + (l->stack.single ? 0x1p-24 : 0) : 0;
}

/* The largest doubt of the right-hand sides, whose residuals are in b->y. */
static double doubt_of(const struct blasd_lstsq *l, const struct bench *b, int64_t rank) {
    double most = 0;
    for (int64_t c = 0; c < l->columns && rank > 0; c++)
        most = fmax(most, blasd_lstsq_doubt(b->s[0], b->s[rank - 1],
                                            blasd_stack_norm(l->stack.n, b->x + c * l->stack.n),
                                            blasd_stack_norm(l->stack.m, b->y + c * l->stack.m)));
    return most;
}

/* x that is unique, as regression computes it. False: not all of its digits may be right. */
static bool solve_again(const struct blasd_lstsq *l, const struct bench *b, struct blasd_err *err) {
    int64_t m = l->stack.m, n = l->stack.n, columns = l->columns;
    double *rows = blasd_cpu_alloc((size_t)(m * (n + columns)), sizeof *rows);
    double *right = rows + m * n;
    bool sure = false;
    if (rows == NULL) {
        blasd_fail(err, BLASD_E_out_of_memory, "", "no memory to compute in");
        return false;
    }
    for (int64_t i = 0; i < m; i++) {
        for (int64_t j = 0; j < n; j++) rows[i * n + j] = b->a[j * m + i];
        for (int64_t c = 0; c < columns; c++) right[i * columns + c] = b->b[c * m + i];
    }
    (void)blasd_regression_unique(m, n, columns, rows, right, b->x, &sure, err);
    free(rows);
    return sure;
}

static bool bench_make(const struct blasd_lstsq *l, struct bench *b) {
    size_t m = (size_t)l->stack.m, n = (size_t)l->stack.n, k = (size_t)l->k;
    size_t columns = (size_t)l->columns;
    const size_t lengths[] = {m * n,       m * n,       k,           k,           k * k,
                              k * k,       k * k,       m * columns, m * columns, n * columns,
                              n * columns, k * columns, k * columns, columns};
    double **const parts[] = {&b->a, &b->qr, &b->tau, &b->s,     &b->r, &b->u, &b->vt,
                              &b->b, &b->y,  &b->x,   &b->slope, &b->c, &b->d};
    size_t total = 0;
    double *memory;
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) total += lengths[i];
    memory = blasd_cpu_alloc(total, sizeof *memory);
    if (memory == NULL) return false;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        *parts[i] = memory;
        memory += lengths[i];
    }
    b->e = (int *)(void *)memory;
    return true;
}

static void load(const struct blasd_lstsq *l, const struct blasd_task *task, int64_t item,
                 struct bench *b, struct blasd_lstsq_scale *scale) {
    int64_t m = l->stack.m, n = l->stack.n;
    struct blasd_walk walk;
    struct blasd_tensor turned = {.order = BLASD_COLUMN_MAJOR, .data = b->a};
    blasd_walk_init(&walk, l->stack.rank, l->stack.batch);
    blasd_walk_operand(&walk, 0, l->a_rank, l->a_batch);
    blasd_walk_operand(&walk, 1, l->b_rank, l->b_batch);
    blasd_walk_seek(&walk, item);
    blasd_stack_copy(&task->inputs[BLASD_LSTSQ_A], walk.offset[0], m, n, false, b->a);
    blasd_stack_copy(&task->inputs[BLASD_LSTSQ_B], walk.offset[1], m, l->columns, false, b->b);
    scale->a = blasd_stack_scale(m * n, b->a);
    scale->b = b->e;
    for (int64_t c = 0; c < l->columns; c++) b->e[c] = blasd_stack_scale(m, b->b + c * m);
    blasd_stack_copy(&turned, 0, m, n, wide(l), b->qr);
}

/* Rounds x and measures it; once more where it can be had with more digits. */
static void conclude(const struct blasd_lstsq *l, struct blasd_task *task, int64_t item,
                     int threads, const struct bench *b, int64_t rank,
                     const struct blasd_lstsq_scale *scale) {
    double optimality, doubt;
    bool lost;
    blasd_lstsq_round(l, b->x, scale);
    optimality = measure(l, threads, b);
    doubt = doubt_of(l, b, rank);
    lost = doubt > BLASD_LSTSQ_LOST;
    if (doubt > BLASD_LSTSQ_REFINED && blasd_lstsq_unique(l, rank) && blasd_wanted()) {
        lost = !solve_again(l, b, &task->err);
        blasd_lstsq_round(l, b->x, scale);
        optimality = measure(l, threads, b);
    }
    blasd_lstsq_answer(task, l, item, b->x, b->y, b->s, rank, optimality, scale);
    blasd_lstsq_tell(task, item, lost);
}

void blasd_lstsq_on_host(const struct blasd_lstsq *l, struct blasd_task *task, int64_t item,
                         int threads) {
    struct blasd_lstsq_scale scale;
    struct bench b;
    int64_t rank = 0;
    int info;
    if (!bench_make(l, &b)) {
        blasd_stack_no_memory(task);
        return;
    }
    load(l, task, item, &b, &scale);
    info = decompose(l, threads, &b);
    if (info == 0 && blasd_wanted()) {
        rank = blasd_lstsq_rank(l, b.s);
        info = apply(l, threads, &b, rank);
    }
    if (info < 0)
        blasd_stack_no_memory(task);
    else if (info > 0)
        blasd_lstsq_refuse(task, l, item);
    else if (blasd_wanted())
        conclude(l, task, item, threads, &b, rank, &scale);
    free(b.a);
}

static void item(const struct blasd_stack_work *base, struct blasd_task *task, int64_t item,
                 int threads) {
    blasd_lstsq_on_host(&((const struct work *)(const void *)base)->l, task, item, threads);
}

static void finish(const struct blasd_stack_work *base, struct blasd_task *task) {
    const struct work *work = (const struct work *)(const void *)base;
    blasd_lstsq_finish(task, &work->l, true);
    if (task->outputs[BLASD_LSTSQ_UNPROVEN].rank >= 0)
        blasd_exact_lstsq(task, &work->l, work->threads);
}

static int run(struct blasd_device *device, struct blasd_task *tasks, int count,
               struct blasd_watch *watch, struct blasd_err *err) {
    struct work work = {.base = {.item = item, .finish = finish}, .threads = device->threads};
    int code = blasd_lstsq_read(tasks[0].job, &work.l, err);
    if (code != 0) return code;
    work.base.stack = work.l.stack;
    work.base.flops = blasd_lstsq_flops(&work.l);
    return blasd_stack_run(&work.base, device, tasks, count, watch, err);
}

const struct blasd_kernel blasd_cpu_lstsq = {.op = "lstsq", .run = run};
