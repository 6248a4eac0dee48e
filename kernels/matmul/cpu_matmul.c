/* matmul on the CPU: OpenBLAS on one thread for each product, in tiles that threads
 * of our own take where it is large.
 *
 * Read next: README.md for the method, ref_matmul.c for the meaning spelled out. */
#include "base/text.h"
#include "core/parallel.h"
#include "core/wanted.h"
#include "kernels/cpu/cpu.h"
#include "kernels/exact/exact.h"
#include "kernels/matmul/matmul.h"
#include "kernels/matmul/small.h"

#include <cblas.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define TILE_SIDE 2048   /* of the result, in one BLAS call: a user waits that long to cancel */
#define LEAST_SIDE 128   /* no longer sides are cut: tiles would lose speed to packing */
#define TILE_DEPTH 4096  /* of the inner length, in one BLAS call */
#define SHARED_FLOPS 1e8 /* work in a batch of small products from which threads share it */
#define PIECE_FLOPS 1e6  /* what a thread takes at a time */
#define VECTOR_FLOPS 1e8 /* of a matrix times a vector in one BLAS call */
#define VECTOR_BYTES 4e6 /* of the matrix, from which threads share it: 60 us of reading */
#define PART (INT64_C(1) << 20) /* elements filled, scaled or rounded between two questions */
/* Inputs of the next job that are fetched during a small product: fewer bytes were written so
 * lately that they are near, more would not stay in the second cache. */
#define SOON_LEAST 4096
#define SOON_MOST ((size_t)128 << 10)

/* A matrix as BLAS takes it, row-major. */
struct matrix {
    const char *data;
    CBLAS_TRANSPOSE trans;
    int ld;
};

/* One product into a dense row-major target. */
struct product {
    enum blasd_dtype dtype; /* float32, float64, complex64 or complex128 */
    int64_t m, n, k;
    struct matrix a, b;
    char *c;
    struct blasd_small_soon soon[2]; /* what is to be fetched meanwhile, where it is small */
};

static const char *at(const struct matrix *x, size_t size, int64_t row, int64_t column) {
    if (x->trans == CblasTrans) return x->data + (size_t)(column * x->ld + row) * size;
    return x->data + (size_t)(row * x->ld + column) * size;
}

/* Real factors as BLAS takes them for complex matrices. */
#define SINGLE(x) ((const float[2]){(float)(x), 0})
#define DOUBLE(x) ((const double[2]){(x), 0})

/* Operations of a product: a complex one is four real ones. */
static double flops_of(enum blasd_dtype dtype, int64_t m, int64_t n, int64_t k) {
    return (blasd_dtype_parts(dtype) == 2 ? 8.0 : 2.0) * (double)m * (double)n * (double)k;
}

static bool is_gemv(const struct product *p) {
    return p->m == 1 || p->n == 1;
}

/* A product with one row or one column is a matrix times a vector, and limited by memory. Makes the
 * `count` elements of the result from `first` on. */
static void run_gemv(const struct product *p, int64_t first, int64_t count) {
    bool left = p->m == 1; /* then c' = b' a' */
    size_t size = blasd_dtype_size(p->dtype);
    CBLAS_TRANSPOSE how;
    const struct matrix *x = left ? &p->b : &p->a, *v = left ? &p->a : &p->b;
    bool trans = (x->trans == CblasTrans) != left;
    int rows = (int)(left ? p->k : count), columns = (int)(left ? count : p->k);
    const void *from = left ? at(x, size, 0, first) : at(x, size, first, 0);
    void *to = p->c + (size_t)first * size;
    if (x->trans == CblasTrans) {
        int swap = rows;
        rows = columns;
        columns = swap;
    }
    how = trans ? CblasTrans : CblasNoTrans;
    /* a vector lies dense whichever way it is read: its other length is 1 */
    switch (p->dtype) {
    case BLASD_float32:
        cblas_sgemv(CblasRowMajor, how, rows, columns, 1, from, x->ld,
                    (const float *)(const void *)v->data, 1, 0, to, 1);
        break;
    case BLASD_complex64:
        cblas_cgemv(CblasRowMajor, how, rows, columns, SINGLE(1), from, x->ld, v->data, 1,
                    SINGLE(0), to, 1);
        break;
    case BLASD_complex128:
        cblas_zgemv(CblasRowMajor, how, rows, columns, DOUBLE(1), from, x->ld, v->data, 1,
                    DOUBLE(0), to, 1);
        break;
    default:
        cblas_dgemv(CblasRowMajor, how, rows, columns, 1, from, x->ld,
                    (const double *)(const void *)v->data, 1, 0, to, 1);
    }
}

static void run_gemm(const struct product *p, int64_t i, int64_t j, int64_t l, int64_t m, int64_t n,
                     int64_t k) {
    size_t size = blasd_dtype_size(p->dtype);
    const void *a = at(&p->a, size, i, l), *b = at(&p->b, size, l, j);
    void *c = p->c + (size_t)(i * p->n + j) * size;
    float beta = l > 0 ? 1 : 0;
    switch (p->dtype) {
    case BLASD_float32:
        cblas_sgemm(CblasRowMajor, p->a.trans, p->b.trans, (int)m, (int)n, (int)k, 1, a, p->a.ld, b,
                    p->b.ld, beta, c, (int)p->n);
        break;
    case BLASD_complex64:
        cblas_cgemm(CblasRowMajor, p->a.trans, p->b.trans, (int)m, (int)n, (int)k, SINGLE(1), a,
                    p->a.ld, b, p->b.ld, SINGLE(beta), c, (int)p->n);
        break;
    case BLASD_complex128:
        cblas_zgemm(CblasRowMajor, p->a.trans, p->b.trans, (int)m, (int)n, (int)k, DOUBLE(1), a,
                    p->a.ld, b, p->b.ld, DOUBLE(beta), c, (int)p->n);
        break;
    default:
        cblas_dgemm(CblasRowMajor, p->a.trans, p->b.trans, (int)m, (int)n, (int)k, 1, a, p->a.ld, b,
                    p->b.ld, (double)beta, c, (int)p->n);
    }
}

static struct blasd_small_factor factor_of(const struct matrix *x) {
    bool trans = x->trans == CblasTrans;
    return (struct blasd_small_factor){
        .data = x->data, .row = trans ? 1 : x->ld, .column = trans ? x->ld : 1};
}

static void run_small(const struct product *p) {
    struct blasd_small small = {.m = p->m, .n = p->n, .k = p->k};
    small.a = factor_of(&p->a);
    small.b = factor_of(&p->b);
    small.c = p->c;
    memcpy(small.soon, p->soon, sizeof small.soon);
    if (p->dtype == BLASD_float32)
        blasd_small_f32(&small);
    else
        blasd_small_f64(&small);
}

/* A large product, cut into tiles of its result, which threads take one after the other. The shape
 * alone says how: bits are the same on any number of threads. */
struct tiling {
    const struct product *product;
    int64_t rows, columns; /* of a tile; fewer at the edges */
    int64_t across;        /* tiles beside each other */
    int64_t count;
};

/* A part of the result. */
struct patch {
    int64_t row, column, rows, columns;
};

static int64_t ceil_div(int64_t a, int64_t b) {
    return (a + b - 1) / b;
}

/* x, but no more than `most`, and no less than `least` even then. */
static int64_t between(int64_t least, int64_t x, int64_t most) {
    if (x > most) x = most;
    return x > least ? x : least;
}

/* Equal tiles, of whole vectors where that is possible. */
static int64_t side(int64_t length, int64_t tiles) {
    int64_t part = ceil_div(ceil_div(length, tiles), 32) * 32;
    return part < length ? part : length;
}

/* The number of tiles that keep some threads busy: more of them cost more packing. */
static int64_t tiles_wanted(const struct product *p) {
    double flops = flops_of(p->dtype, p->m, p->n, p->k);
    if (is_gemv(p)) /* as much work as there is to read */
        return (double)p->k * (double)(p->m * p->n) * (double)blasd_dtype_size(p->dtype) <
                       VECTOR_BYTES
                   ? 1
                   : 4;
    if (flops < BLASD_CPU_THREADS_FLOPS) return 1;
    return flops < 1.2e8 ? 2 : flops < 2.5e10 ? 4 : flops < 2.5e11 ? 16 : 32;
}

/* Tiles as wide as one call takes, of few rows: each packs the columns of b again, which costs less
 * than to pack both factors again. */
static struct tiling cut(const struct product *p) {
    int64_t wanted = tiles_wanted(p), across = ceil_div(p->n, TILE_SIDE), down;
    struct tiling tiling = {.product = p};
    down = between(ceil_div(p->m, TILE_SIDE), ceil_div(wanted, across), p->m / LEAST_SIDE);
    across = between(across, ceil_div(wanted, down), p->n / LEAST_SIDE);
    tiling.rows = side(p->m, down);
    tiling.columns = side(p->n, across);
    tiling.across = ceil_div(p->n, tiling.columns);
    tiling.count = tiling.across * ceil_div(p->m, tiling.rows);
    return tiling;
}

/* Whether threads share one such product: else each takes whole ones. */
static bool is_shared(enum blasd_dtype dtype, const struct blasd_matmul *mm, int threads) {
    struct product p = {.dtype = dtype, .m = mm->m, .n = mm->n, .k = mm->k};
    return mm->m > 0 && mm->n > 0 && threads > 1 && cut(&p).count > 1;
}

/* The tile of that number. */
static struct patch tile_at(const struct tiling *tiling, int64_t number) {
    const struct product *p = tiling->product;
    struct patch tile = {.row = number / tiling->across * tiling->rows,
                         .column = number % tiling->across * tiling->columns};
    tile.rows = p->m - tile.row < tiling->rows ? p->m - tile.row : tiling->rows;
    tile.columns = p->n - tile.column < tiling->columns ? p->n - tile.column : tiling->columns;
    return tile;
}

/* The same, in calls that are short enough to be stopped between them. */
static bool run_gemv_parts(const struct product *p, int64_t first, int64_t count) {
    double rows = VECTOR_FLOPS / (2 * (double)p->k + 1);
    int64_t part = rows < 64 ? 64 : rows < (double)count ? (int64_t)rows : count;
    if (part >= count) {
        run_gemv(p, first, count);
        return true;
    }
    for (int64_t i = 0; i < count && blasd_wanted(); i += part)
        run_gemv(p, first + i, count - i < part ? count - i : part);
    return blasd_wanted();
}

static bool run_piece(void *arg, int64_t number, int slot) {
    const struct tiling *tiling = arg;
    const struct product *p = tiling->product;
    struct patch patch = tile_at(tiling, number);
    int64_t depth = side(p->k, ceil_div(p->k, TILE_DEPTH));
    (void)slot;
    if (is_gemv(p))
        return run_gemv_parts(p, p->m == 1 ? patch.column : patch.row, patch.rows * patch.columns);
    for (int64_t l = 0; l < p->k && (l == 0 || blasd_wanted()); l += depth)
        run_gemm(p, patch.row, patch.column, l, patch.rows, patch.columns,
                 p->k - l < depth ? p->k - l : depth);
    return true;
}

/* One product, in tiles that `threads` take. */
static bool run_product(const struct product *p, int threads, struct blasd_cpu_progress *progress) {
    double flops = flops_of(p->dtype, p->m, p->n, p->k);
    struct tiling tiling;
    struct blasd_parallel loop = {.piece = run_piece, .arg = &tiling};
    if (!is_gemv(p) && blasd_dtype_parts(p->dtype) == 1 && blasd_small_takes(p->m, p->n, p->k)) {
        run_small(p);
        return blasd_cpu_step(progress, flops);
    }
    tiling = cut(p);
    loop.count = tiling.count;
    if (tiling.count == 1) {
        run_piece(&tiling, 0, 0);
        return blasd_cpu_step(progress, flops);
    }
    loop.threads = threads;
    loop.watch = progress->watch;
    loop.from = fmin(1, progress->done / progress->total);
    progress->done += flops;
    loop.to = fmin(1, progress->done / progress->total);
    return blasd_parallel_run(&loop);
}

/* One row of alpha times the product, plus beta times c where there is one: `n` elements of `parts`
 * numbers. `step`: 0 where all elements of the row take one of c. Factors stay float64. */
static void finish_f32(const struct blasd_matmul *mm, float *row, int64_t n, int parts,
                       const float *c, int64_t step) {
    for (int64_t i = 0; i < n; i++)
        for (int p = 0; p < parts; p++) {
            double value = mm->alpha * (double)row[i * parts + p];
            if (c != NULL) value += mm->beta * (double)c[i * step * parts + p];
            row[i * parts + p] = (float)value;
        }
}
static void finish_f64(const struct blasd_matmul *mm, double *row, int64_t n, int parts,
                       const double *c, int64_t step) {
    for (int64_t i = 0; i < n; i++)
        for (int p = 0; p < parts; p++) {
            double value = mm->alpha * row[i * parts + p];
            if (c != NULL) value += mm->beta * c[i * step * parts + p];
            row[i * parts + p] = value;
        }
}

/* out = alpha * out + beta * c, with c broadcast to the shape of the result. */
static void finish(const struct blasd_matmul *mm, enum blasd_dtype dtype,
                   const struct blasd_tensor *c, const struct blasd_tensor *shape, void *out) {
    struct blasd_walk walk;
    int64_t columns = shape->rank > 0 ? shape->shape[shape->rank - 1] : 1;
    int64_t rows = blasd_tensor_elements(shape) / columns, done = 0;
    int rank = mm->add_c && c->rank > 0 ? c->rank - 1 : 0; /* without c its tensor is no tensor */
    int64_t own = mm->add_c && c->rank > 0 ? c->shape[rank] : 1;
    size_t size = blasd_dtype_size(dtype);
    int parts = blasd_dtype_parts(dtype);
    if (mm->alpha == 1 && !mm->add_c) return;
    blasd_walk_init(&walk, shape->rank > 0 ? shape->rank - 1 : 0, shape->shape);
    blasd_walk_operand(&walk, 0, rank, c->shape);
    for (int64_t r = 0; r < rows && blasd_wanted_after(&done, columns); r++) {
        const void *from = NULL;
        void *to = (char *)out + (size_t)(r * columns) * size;
        if (mm->add_c) from = (const char *)c->data + (size_t)(walk.offset[0] * own) * size;
        if (blasd_dtype_part(dtype) == BLASD_float32)
            finish_f32(mm, to, columns, parts, from, own != 1);
        else
            finish_f64(mm, to, columns, parts, from, own != 1);
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

/* One job. */
struct work {
    const struct blasd_task *task, *next; /* borrowed; next: whose turn it is afterwards, or NULL */
    const struct blasd_matmul *mm;        /* borrowed; of task */
    enum blasd_dtype dtype;               /* in which it is computed */
    int threads;
    struct blasd_cpu_progress *progress; /* borrowed */
};

/* Lets the last of a job's products fetch what the next job reads: it lies where another process
 * wrote it, mostly in another core's cache. */
static void fetch_next(const struct work *work, struct blasd_small_soon soon[2]) {
    size_t bytes[2], all;
    if (work->next == NULL) return;
    for (int i = 0; i < 2; i++) bytes[i] = (size_t)blasd_tensor_bytes(&work->next->inputs[i]);
    all = bytes[0] + bytes[1];
    if (bytes[0] > SOON_MOST || bytes[1] > SOON_MOST || all < SOON_LEAST || all > SOON_MOST) return;
    for (int i = 0; i < 2; i++)
        soon[i] = (struct blasd_small_soon){work->next->inputs[i].data, bytes[i]};
}

/* The products of one job's stack, or a part of them. */
struct stack {
    const struct blasd_matmul *mm;
    struct product product;          /* of item 0 */
    struct blasd_small_soon soon[2]; /* for the last item */
    int64_t count, in_piece;
    int threads; /* for each product */
    struct blasd_cpu_progress *progress;
};

static bool run_items(void *arg, int64_t piece_at, int slot) {
    const struct stack *stack = arg;
    const struct blasd_matmul *mm = stack->mm;
    struct product p = stack->product;
    size_t size = blasd_dtype_size(p.dtype);
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
        if (i + 1 == stack->count) memcpy(p.soon, stack->soon, sizeof p.soon);
        if (!run_product(&p, stack->threads, stack->progress)) return false;
        blasd_walk_next(&walk);
    }
    return true;
}

/* Small products of a large stack are shared among threads, large ones are cut for them. */
static bool run_stack(const struct work *work, void *out) {
    const struct blasd_matmul *mm = work->mm;
    struct blasd_cpu_progress silent = {.total = 1}, *progress = work->progress;
    struct stack stack = {.mm = mm, .count = mm->batch_count, .progress = progress};
    bool small;
    struct product *p = &stack.product;
    double flops = flops_of(work->dtype, mm->m, mm->n, mm->k);
    *p = (struct product){.dtype = work->dtype, .m = mm->m, .n = mm->n, .k = mm->k, .c = out};
    p->a = matrix_of(&work->task->inputs[BLASD_MATMUL_A], &mm->a);
    p->b = matrix_of(&work->task->inputs[BLASD_MATMUL_B], &mm->b);
    join_rows(mm, p, &stack.count);
    fetch_next(work, stack.soon);
    stack.in_piece = stack.count;
    stack.threads = work->threads;
    small = !is_shared(work->dtype, mm, work->threads);
    if (work->threads > 1 && small && stack.count > 1 &&
        flops * (double)stack.count > SHARED_FLOPS) {
        struct blasd_parallel loop = {.piece = run_items, .arg = &stack, .threads = work->threads};
        stack.in_piece = (int64_t)(PIECE_FLOPS / (flops + 1000)) + 1;
        stack.progress = &silent; /* the loop asks instead */
        stack.threads = 1;
        loop.count = (stack.count + stack.in_piece - 1) / stack.in_piece;
        loop.watch = progress->watch;
        loop.from = fmin(1, progress->done / progress->total);
        progress->done += flops * (double)stack.count;
        loop.to = fmin(1, progress->done / progress->total);
        return blasd_parallel_run(&loop);
    }
    return run_items(&stack, 0, 0);
}

static void clear(void *out, size_t bytes) {
    const size_t part = (size_t)PART * sizeof(double);
    for (size_t at = 0; at < bytes && blasd_wanted(); at += part)
        memset((char *)out + at, 0, bytes - at < part ? bytes - at : part);
}

/* Rounds what was computed in float32 to the dtype of the result. */
static void round_once(const struct blasd_tensor *wide, const struct blasd_tensor *out) {
    int64_t elements = blasd_tensor_elements(out);
    for (int64_t at = 0; at < elements && blasd_wanted(); at += PART) {
        int64_t n = elements - at < PART ? elements - at : PART;
        struct blasd_tensor from = blasd_tensor_make(wide->dtype, 1, &n);
        struct blasd_tensor to = blasd_tensor_make(out->dtype, 1, &n);
        from.data = (float *)wide->data + at;
        to.data = (char *)out->data + (size_t)at * blasd_dtype_size(out->dtype);
        blasd_tensor_convert(&from, &to);
    }
}

/* Everything for the job, in the dtype it is computed in. BLAS multiplies by no factor: it would
 * round alpha to the dtype, and skip the product where alpha is 0. False: stopped. */
static bool run_job(const struct work *work, void *out) {
    const struct blasd_matmul *mm = work->mm;
    const struct blasd_tensor *shape = &work->task->outputs[0];
    int64_t elements = blasd_tensor_elements(shape);
    if (elements == 0) return true;
    if (mm->k == 0) clear(out, (size_t)elements * blasd_dtype_size(work->dtype));
    if (mm->k > 0 && !run_stack(work, out)) return false;
    finish(mm, work->dtype, &work->task->inputs[BLASD_MATMUL_C], shape, out);
    return true;
}

/* The product by BLAS, with its conversion where the result is shorter than float32. */
static bool run_blas(const struct work *work, struct blasd_task *task) {
    struct blasd_tensor *out = &task->outputs[0], wide = *out;
    bool half = blasd_dtype_size(out->dtype) == 2, going;
    const char *type;
    if (half) {
        wide.dtype = BLASD_float32;
        wide.data = blasd_cpu_alloc((size_t)blasd_tensor_elements(out), sizeof(float));
        if (wide.data == NULL) {
            blasd_fail(&task->err, BLASD_E_out_of_memory, "", "no memory for the product");
            return true;
        }
    }
    going = run_job(work, wide.data);
    if (half) {
        round_once(&wide, out);
        free(wide.data);
    }
    type = work->dtype == BLASD_float32     ? "s"
           : work->dtype == BLASD_float64   ? "d"
           : work->dtype == BLASD_complex64 ? "c"
                                            : "z";
    blasd_text_join(task->method, sizeof task->method, type,
                    work->mm->m == 1 || work->mm->n == 1 ? "gemv" : "gemm",
                    half ? " in float32, rounded once" : "");
    return going;
}

/* One job of the batch. `next`: the job that this thread runs afterwards, or NULL. */
static bool run_task(struct blasd_task *task, const struct blasd_task *next, int threads,
                     struct blasd_cpu_progress *progress) {
    struct blasd_matmul mm;
    struct work work = {task, next, &mm, task->plan->input_dtype[0], threads, progress};
    if (blasd_matmul_read(task->job, &mm, &task->err) != 0) return true;
    if (mm.correct) return blasd_exact_matmul(task, &mm, threads, progress);
    if (!(mm.exact ? blasd_matmul_exact(task, &mm, threads, progress) : run_blas(&work, task)))
        return false;
    if (!mm.exact && task->err.code == BLASD_OK) blasd_matmul_judge_range(task, &mm);
    blasd_matmul_warn(task);
    return !mm.exact || blasd_wanted();
}

static bool run_tasks(void *arg, int64_t task, int slot) {
    struct blasd_cpu_progress silent = {.total = 1};
    (void)slot;
    return run_task((struct blasd_task *)arg + task, NULL, 1, &silent);
}

static int run_all(struct blasd_device *device, struct blasd_task *tasks, int count,
                   struct blasd_watch *watch, struct blasd_err *err) {
    struct blasd_cpu_progress progress = {.watch = watch};
    struct blasd_matmul mm;
    bool going = true;
    int code = blasd_matmul_read(tasks[0].job, &mm, err);
    if (code != 0) return code;
    /* all jobs of a batch have the same shapes: threads share a large product, or many small ones
     */
    blasd_cpu_blas_alone();
    for (int t = 0; t < count; t++) progress.total += tasks[t].plan->flops;
    if (count > 1 && !is_shared(tasks[0].plan->input_dtype[0], &mm, device->threads) &&
        progress.total > SHARED_FLOPS) {
        struct blasd_parallel loop = {.piece = run_tasks,
                                      .arg = tasks,
                                      .count = count,
                                      .threads = device->threads,
                                      .watch = watch,
                                      .to = 1};
        going = blasd_parallel_run(&loop);
    } else {
        for (int t = 0; going && t < count; t++)
            going = run_task(&tasks[t], t + 1 < count ? &tasks[t + 1] : NULL, device->threads,
                             &progress);
    }
    return going ? 0 : blasd_cpu_stopped(err);
}

static int run(struct blasd_device *device, struct blasd_task *tasks, int count,
               struct blasd_watch *watch, struct blasd_err *err) {
    blasd_wanted_begin(watch);
    return blasd_wanted_end(run_all(device, tasks, count, watch, err), err);
}

const struct blasd_kernel blasd_cpu_matmul = {.op = "matmul", .run = run};
