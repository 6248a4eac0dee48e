/* matmul on the CPU: OpenBLAS for each product, in pieces where one takes long.
 *
 * Read next: README.md for the method, ref_matmul.c for the meaning spelled out. */
#include "kernels/cpu/cpu.h"
#include "kernels/matmul/matmul.h"
#include "kernels/numeric/parallel.h"

#include <cblas.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One BLAS call, about: what a user waits for a cancellation, a fraction of a second. Each call
 * packs the parts of both matrices it has in common with others anew: calls of 512 rows took 3 to
 * 7 % longer than one call, of 1024 rows 1 %. */
#define CALL_FLOPS 2e10
#define LEAST_ROWS 1024
#define LEAST_WIDTH 4096
#define LEAST_DEPTH 8192
#define SHARED_FLOPS 1e8 /* work in a batch of small products from which threads share it */
#define PIECE_FLOPS 1e6  /* what a thread takes at a time */

/* A matrix as BLAS takes it, row-major. */
struct matrix {
    const char *data;
    CBLAS_TRANSPOSE trans;
    int ld;
};

/* One product into a dense row-major target. */
struct product {
    bool single; /* float32, else float64 */
    int64_t m, n, k;
    double alpha, beta;
    struct matrix a, b;
    char *c;
};

static const char *at(const struct matrix *x, size_t size, int64_t row, int64_t column) {
    if (x->trans == CblasTrans) return x->data + (size_t)(column * x->ld + row) * size;
    return x->data + (size_t)(row * x->ld + column) * size;
}

/* A product with one row or one column is a matrix times a vector, and limited by memory. */
static void run_gemv(const struct product *p) {
    bool left = p->m == 1; /* then c' = b' a' */
    const struct matrix *x = left ? &p->b : &p->a, *v = left ? &p->a : &p->b;
    bool trans = (x->trans == CblasTrans) != left;
    int rows = (int)(left ? p->k : p->m), columns = (int)(left ? p->n : p->k);
    if (x->trans == CblasTrans) {
        int swap = rows;
        rows = columns;
        columns = swap;
    }
    /* a vector lies dense whichever way it is read: its other length is 1 */
    if (p->single)
        cblas_sgemv(CblasRowMajor, trans ? CblasTrans : CblasNoTrans, rows, columns,
                    (float)p->alpha, (const float *)(const void *)x->data, x->ld,
                    (const float *)(const void *)v->data, 1, (float)p->beta, (float *)(void *)p->c,
                    1);
    else
        cblas_dgemv(CblasRowMajor, trans ? CblasTrans : CblasNoTrans, rows, columns, p->alpha,
                    (const double *)(const void *)x->data, x->ld,
                    (const double *)(const void *)v->data, 1, p->beta, (double *)(void *)p->c, 1);
}

static void run_gemm(const struct product *p, int64_t i, int64_t j, int64_t l, int64_t m, int64_t n,
                     int64_t k) {
    size_t size = p->single ? sizeof(float) : sizeof(double);
    const void *a = at(&p->a, size, i, l), *b = at(&p->b, size, l, j);
    void *c = p->c + (size_t)(i * p->n + j) * size;
    double beta = l > 0 ? 1 : p->beta;
    if (p->single)
        cblas_sgemm(CblasRowMajor, p->a.trans, p->b.trans, (int)m, (int)n, (int)k, (float)p->alpha,
                    a, p->a.ld, b, p->b.ld, (float)beta, c, (int)p->n);
    else
        cblas_dgemm(CblasRowMajor, p->a.trans, p->b.trans, (int)m, (int)n, (int)k, p->alpha, a,
                    p->a.ld, b, p->b.ld, beta, c, (int)p->n);
}

/* Cuts a length of a piece of `flops` operations into equal parts, if one call should have less;
 * parts have `least` or more, but for the last one. */
static void cut(int64_t *length, int64_t least, double *flops) {
    int64_t whole = *length, most = whole / least, parts;
    double wanted = ceil(*flops / CALL_FLOPS);
    parts = wanted < (double)most ? (int64_t)wanted : most;
    if (parts < 2) return;
    *length = ((whole + parts - 1) / parts + 63) / 64 * 64;
    *flops *= (double)*length / (double)whole;
}

/* The product, cut into calls of about CALL_FLOPS: along its longer side, then, where it is very
 * large, along the other one and along the sum. */
static bool run_pieces(const struct product *p, struct blasd_cpu_progress *progress) {
    double flops = 2.0 * (double)p->m * (double)p->n * (double)p->k;
    int64_t m = p->m, n = p->n, k = p->k;
    if (m == 1 || n == 1) {
        run_gemv(p);
        return blasd_cpu_step(progress, flops);
    }
    cut(m >= n ? &m : &n, LEAST_ROWS, &flops);
    cut(p->m >= p->n ? &n : &m, LEAST_WIDTH, &flops);
    cut(&k, LEAST_DEPTH, &flops);
    for (int64_t i = 0; i < p->m; i += m)
        for (int64_t j = 0; j < p->n; j += n)
            for (int64_t l = 0; l < p->k; l += k) {
                int64_t rows = p->m - i < m ? p->m - i : m, columns = p->n - j < n ? p->n - j : n;
                int64_t depth = p->k - l < k ? p->k - l : k;
                run_gemm(p, i, j, l, rows, columns, depth);
                if (!blasd_cpu_step(progress, 2.0 * (double)rows * (double)columns * (double)depth))
                    return false;
            }
    return true;
}

static void scale(bool single, void *data, int64_t n, double factor) {
    if (single) {
        float *x = data, f = (float)factor;
        for (int64_t i = 0; i < n; i++) x[i] *= f;
    } else {
        double *x = data;
        for (int64_t i = 0; i < n; i++) x[i] *= factor;
    }
}

/* Copies c, broadcast to the shape of the result, into `out`, times `factor`; or adds it. */
static void spread(const struct blasd_tensor *c, const struct blasd_tensor *shape, bool single,
                   void *out, double factor, bool add) {
    struct blasd_walk walk;
    int64_t columns = shape->rank > 0 ? shape->shape[shape->rank - 1] : 1;
    int64_t elements = blasd_tensor_elements(shape), own, step;
    if (elements == 0) return;
    own = c->rank > 0 ? c->shape[c->rank - 1] : 1;
    step = own == 1 ? 0 : 1;
    blasd_walk_init(&walk, shape->rank > 0 ? shape->rank - 1 : 0, shape->shape);
    blasd_walk_operand(&walk, 0, c->rank > 0 ? c->rank - 1 : 0, c->shape);
    for (int64_t r = 0; r < elements / columns; r++) {
        if (single) {
            const float *from = (const float *)c->data + walk.offset[0] * own;
            float *to = (float *)out + r * columns, f = (float)factor;
            for (int64_t i = 0; i < columns; i++) to[i] = (add ? to[i] : 0.0f) + f * from[i * step];
        } else {
            const double *from = (const double *)c->data + walk.offset[0] * own;
            double *to = (double *)out + r * columns;
            for (int64_t i = 0; i < columns; i++)
                to[i] = (add ? to[i] : 0.0) + factor * from[i * step];
        }
        blasd_walk_next(&walk);
    }
}

static struct matrix matrix_of(const struct blasd_tensor *tensor,
                               const struct blasd_matmul_operand *operand) {
    bool column_major = tensor->rank == 2 && tensor->order == BLASD_COLUMN_MAJOR;
    bool trans = operand->transposed != column_major;
    int64_t ld = trans ? operand->rows : operand->columns;
    return (struct matrix){.data = tensor->data,
                           .trans = trans ? CblasTrans : CblasNoTrans,
                           .ld = ld > 0 ? (int)ld : 1};
}

/* Where b is one matrix for the whole stack and a a full one, they are one tall product. */
static void join_rows(const struct blasd_matmul *mm, struct product *p, int64_t *count) {
    struct blasd_tensor a = blasd_tensor_make(BLASD_float64, mm->a.batch_rank, mm->a.batch);
    struct blasd_tensor b = blasd_tensor_make(BLASD_float64, mm->b.batch_rank, mm->b.batch);
    if (*count < 2 || p->a.trans == CblasTrans || blasd_tensor_elements(&b) != 1) return;
    if (blasd_tensor_elements(&a) != *count || *count > INT32_MAX / p->m) return;
    p->m *= *count;
    *count = 1;
}

/* The products of one job's stack, or a part of them. */
struct stack {
    const struct blasd_matmul *mm;
    struct product product; /* of item 0 */
    int64_t count, in_piece;
    struct blasd_cpu_progress *progress;
};

static bool run_items(void *arg, int64_t piece_at, int slot) {
    const struct stack *stack = arg;
    const struct blasd_matmul *mm = stack->mm;
    struct product p = stack->product;
    size_t size = p.single ? sizeof(float) : sizeof(double);
    int64_t first = piece_at * stack->in_piece, end = first + stack->in_piece;
    struct blasd_walk walk;
    (void)slot;
    if (end > stack->count) end = stack->count;
    blasd_walk_init(&walk, mm->batch_rank, mm->batch);
    blasd_walk_operand(&walk, 0, mm->a.batch_rank, mm->a.batch);
    blasd_walk_operand(&walk, 1, mm->b.batch_rank, mm->b.batch);
    blasd_walk_seek(&walk, first);
    for (int64_t i = first; i < end; i++) {
        p.a.data = stack->product.a.data + (size_t)(walk.offset[0] * mm->m * mm->k) * size;
        p.b.data = stack->product.b.data + (size_t)(walk.offset[1] * mm->k * mm->n) * size;
        p.c = stack->product.c + (size_t)(i * mm->m * mm->n) * size;
        if (!run_pieces(&p, stack->progress)) return false;
        blasd_walk_next(&walk);
    }
    return true;
}

/* Small products of a large stack are shared among `threads`; BLAS then has one for each. */
static bool run_stack(const struct blasd_task *task, const struct blasd_matmul *mm, bool single,
                      void *out, double alpha, double beta, int threads,
                      struct blasd_cpu_progress *progress) {
    struct stack stack = {.mm = mm, .count = mm->batch_count, .progress = progress};
    struct product *p = &stack.product;
    struct blasd_cpu_progress silent = {.total = 1};
    double flops = 2.0 * (double)mm->m * (double)mm->n * (double)mm->k;
    *p = (struct product){.single = single, .m = mm->m, .n = mm->n, .k = mm->k, .c = out};
    p->alpha = alpha;
    p->beta = beta;
    p->a = matrix_of(&task->inputs[BLASD_MATMUL_A], &mm->a);
    p->b = matrix_of(&task->inputs[BLASD_MATMUL_B], &mm->b);
    join_rows(mm, p, &stack.count);
    stack.in_piece = stack.count;
    if (threads > 1 && stack.count > 1 && flops * (double)stack.count > SHARED_FLOPS) {
        struct blasd_parallel loop = {.piece = run_items, .arg = &stack, .threads = threads};
        stack.in_piece = (int64_t)(PIECE_FLOPS / (flops + 1000)) + 1;
        stack.progress = &silent; /* the loop asks instead */
        loop.count = (stack.count + stack.in_piece - 1) / stack.in_piece;
        loop.watch = progress->watch;
        loop.from = fmin(1, progress->done / progress->total);
        progress->done += flops * (double)stack.count;
        loop.to = fmin(1, progress->done / progress->total);
        return blasd_parallel_run(&loop);
    }
    return run_items(&stack, 0, 0);
}

/* Everything for one job, in the dtype it is computed in. False: stopped. */
static bool run_job(const struct blasd_task *task, const struct blasd_matmul *mm, bool single,
                    void *out, int threads, struct blasd_cpu_progress *progress) {
    const struct blasd_tensor *shape = &task->outputs[0], *c = &task->inputs[BLASD_MATMUL_C];
    int64_t elements = blasd_tensor_elements(shape);
    if (elements == 0) return true;
    if (mm->k == 0 || mm->alpha == 0) {
        /* BLAS would skip the product where alpha is 0, and lose the NaNs in it */
        memset(out, 0, (size_t)elements * (single ? sizeof(float) : sizeof(double)));
        if (mm->k > 0 && !run_stack(task, mm, single, out, 1, 0, threads, progress)) return false;
        scale(single, out, elements, mm->alpha);
        if (mm->add_c) spread(c, shape, single, out, mm->beta, true);
        return true;
    }
    if (mm->add_c) spread(c, shape, single, out, 1, false);
    return run_stack(task, mm, single, out, mm->alpha, mm->add_c ? mm->beta : 0, threads, progress);
}

/* One job of the batch, with its conversion where the result is shorter than float32. */
static bool run_task(struct blasd_task *task, int threads, struct blasd_cpu_progress *progress) {
    struct blasd_tensor *out = &task->outputs[0], wide = *out;
    bool single = task->plan->input_dtype[0] == BLASD_float32, going;
    bool half = blasd_dtype_size(out->dtype) == 2;
    struct blasd_matmul mm;
    if (blasd_matmul_read(task->job, &mm, &task->err) != 0) return true;
    if (half) {
        wide.dtype = BLASD_float32;
        wide.data = blasd_cpu_alloc((size_t)blasd_tensor_elements(out), sizeof(float));
        if (wide.data == NULL) {
            blasd_fail(&task->err, BLASD_E_out_of_memory, "", "no memory for the product");
            return true;
        }
    }
    going = run_job(task, &mm, single, wide.data, threads, progress);
    if (half) {
        blasd_tensor_convert(&wide, out);
        free(wide.data);
    }
    snprintf(task->method, sizeof task->method, "%s%s%s", single ? "s" : "d",
             mm.m == 1 || mm.n == 1 ? "gemv" : "gemm", half ? " in float32, rounded once" : "");
    return going;
}

static bool run_tasks(void *arg, int64_t task, int slot) {
    struct blasd_cpu_progress silent = {.total = 1};
    (void)slot;
    return run_task((struct blasd_task *)arg + task, 1, &silent);
}

static int run(struct blasd_device *device, struct blasd_task *tasks, int count,
               struct blasd_watch *watch, struct blasd_err *err) {
    struct blasd_cpu_progress progress = {.watch = watch};
    struct blasd_matmul mm;
    double flops;
    bool going = true;
    int code = blasd_matmul_read(tasks[0].job, &mm, err);
    if (code != 0) return code;
    /* all jobs of a batch have the same shapes: large products use BLAS's threads, small ones ours
     */
    flops = 2.0 * (double)mm.m * (double)mm.n * (double)mm.k;
    blasd_cpu_blas_threads(device, flops);
    for (int t = 0; t < count; t++) progress.total += tasks[t].plan->flops;
    if (count > 1 && flops < BLASD_CPU_THREADS_FLOPS && progress.total > SHARED_FLOPS) {
        struct blasd_parallel loop = {.piece = run_tasks,
                                      .arg = tasks,
                                      .count = count,
                                      .threads = device->threads,
                                      .watch = watch,
                                      .to = 1};
        going = blasd_parallel_run(&loop);
    } else {
        int threads = flops < BLASD_CPU_THREADS_FLOPS ? device->threads : 1;
        for (int t = 0; going && t < count; t++) going = run_task(&tasks[t], threads, &progress);
    }
    return going ? 0 : blasd_cpu_stopped(err);
}

const struct blasd_kernel blasd_cpu_matmul = {.op = "matmul", .run = run};
