/* Which products want wider sums, and which loops make them. Read next: range_body.h. */
#include "kernels/matmul/range.h"

#include "core/half.h"
#include "core/parallel.h"
#include "core/wanted.h"
#include "kernels/cpu/cpu.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the range of the inputs ---- */

/* Binary exponents of the smallest and the largest magnitude that is neither 0 nor without end. */
struct range {
    int least, most;
};

/* Converts `count` numbers from number `at` on. */
static void read_numbers(const struct blasd_tensor *tensor, int64_t at, int64_t count, double *to) {
    enum blasd_dtype dtype = blasd_dtype_part(tensor->dtype);
    struct blasd_tensor from = blasd_tensor_make(dtype, 1, &count);
    struct blasd_tensor room = blasd_tensor_make(BLASD_float64, 1, &count);
    from.data = (char *)tensor->data + (size_t)at * blasd_dtype_size(dtype);
    room.data = to;
    blasd_tensor_convert(&from, &room);
}

static struct range range_of(const struct blasd_tensor *tensor) {
    enum { PART = 1024 };
    int64_t n = blasd_tensor_elements(tensor) * blasd_dtype_parts(tensor->dtype), done = 0;
    double least = INFINITY, most = 0, room[PART];
    struct range range = {0, 0};
    for (int64_t at = 0; at < n && blasd_wanted_after(&done, PART); at += PART) {
        int64_t count = n - at < PART ? n - at : PART;
        read_numbers(tensor, at, count, room);
        for (int64_t i = 0; i < count; i++) {
            double size = fabs(room[i]);
            most = size > most && size <= DBL_MAX ? size : most;
            least = size < least && size > 0 ? size : least;
        }
    }
    if (most == 0) return range;
    frexp(least, &range.least);
    frexp(most, &range.most);
    return range;
}

static int exponent(double value) {
    int ret;
    frexp(value, &ret);
    return ret;
}

/* Whether every product and sum that any order of evaluation may make stays in the range of `sum`:
 * where it does not overflow, nor vanish before a factor makes it large again. */
static bool is_safe(struct blasd_task *task, const struct blasd_matmul *mm, enum blasd_dtype sum) {
    bool single = blasd_dtype_part(sum) == BLASD_float32;
    bool same = fabs(mm->alpha) == 1 || mm->alpha == 0;
    int most = single ? FLT_MAX_EXP : DBL_MAX_EXP, least = single ? FLT_MIN_EXP : DBL_MIN_EXP;
    int alpha = exponent(mm->alpha), beta = exponent(mm->beta);
    struct range a, b;
    int high, low, product;
    blasd_task_make_inputs(task);
    a = range_of(&task->inputs[BLASD_MATMUL_A]);
    b = range_of(&task->inputs[BLASD_MATMUL_B]);
    high = a.most > b.most ? a.most : b.most;
    low = a.least < b.least ? a.least : b.least;
    product = a.most + b.most + exponent((double)mm->k) + 1;
    if (product >= most - 1 || product + alpha >= most - 1) return false;
    if (mm->add_c) {
        struct range c = range_of(&task->inputs[BLASD_MATMUL_C]);
        if (beta <= least || beta >= most || c.most + beta >= most - 1) return false;
    }
    if (same) return true;
    /* BLAS may multiply a factor by alpha first */
    return alpha > least && alpha < most && high + alpha < most && low + alpha > least + 1 &&
           a.least + b.least > least + 1 && a.least + b.least + alpha > least + 1;
}

enum blasd_matmul_need blasd_matmul_need(struct blasd_task *task, const struct blasd_matmul *mm,
                                         enum blasd_dtype sum) {
    bool same = fabs(mm->alpha) == 1 || mm->alpha == 0 || mm->k == 0;
    bool same_c = !mm->add_c || fabs(mm->beta) == 1;
    if (same && same_c) {
        /* sums may overflow on the way: to be seen in the result, or where there is more of that
         * than of the factors, in them */
        bool in_result = mm->add_c || mm->alpha == 0 ||
                         (double)mm->m * (double)mm->n <= (double)(mm->m + mm->n) * (double)mm->k;
        return in_result || !is_safe(task, mm, sum) ? BLASD_MATMUL_CHECK : BLASD_MATMUL_BLAS;
    }
    return is_safe(task, mm, sum) ? BLASD_MATMUL_BLAS : BLASD_MATMUL_WIDE;
}

bool blasd_matmul_again(struct blasd_task *task, const struct blasd_matmul *mm,
                        enum blasd_dtype sum) {
    return !is_safe(task, mm, sum);
}

bool blasd_matmul_is_finite(const struct blasd_task *task) {
    const struct blasd_tensor *out = &task->outputs[0];
    return blasd_tensor_first_nonfinite(out->dtype, out->data, blasd_tensor_elements(out)) < 0;
}

/* Whether an element is finite. */
static bool is_finite(const struct blasd_tensor *tensor, int64_t at) {
    int parts = blasd_dtype_parts(tensor->dtype);
    double part[2] = {0, 0};
    read_numbers(tensor, at * parts, parts, part);
    return isfinite(part[0]) && isfinite(part[1]);
}

/* A flag for each row of a stack of matrices, or each column: whether it is finite. NULL: no
 * memory. */
static bool *finite_lines(const struct blasd_tensor *tensor,
                          const struct blasd_matmul_operand *operand, bool rows) {
    struct blasd_matmul_steps steps = blasd_matmul_steps(tensor, operand);
    int64_t lines = rows ? operand->rows : operand->columns, done = 0;
    int64_t each = rows ? operand->columns : operand->rows;
    int64_t matrices = 1;
    for (int d = 0; d < operand->batch_rank; d++) matrices *= operand->batch[d];
    bool *finite = blasd_cpu_alloc((size_t)(matrices * lines), sizeof *finite);
    if (finite != NULL) memset(finite, true, (size_t)(matrices * lines) * sizeof *finite);
    for (int64_t i = 0; finite != NULL && i < matrices * lines && blasd_wanted_after(&done, each);
         i++) {
        int64_t at = i / lines * steps.matrix + i % lines * (rows ? steps.row : steps.column);
        for (int64_t l = 0; finite[i] && l < each; l++)
            finite[i] = is_finite(tensor, at + l * (rows ? steps.column : steps.row));
    }
    return finite;
}

/* How many elements from number `first` of the result on, those of one product, are not finite,
 * though all that they are made of is. */
static int64_t count_beyond(const struct blasd_task *task, const struct blasd_matmul *mm,
                            int64_t first, const bool *rows, const bool *columns) {
    const struct blasd_tensor *out = &task->outputs[0], *c = &task->inputs[BLASD_MATMUL_C];
    int64_t beyond = 0, done = 0;
    for (int64_t at = 0; at < mm->m * mm->n && blasd_wanted_after(&done, 8); at++) {
        if (!rows[at / mm->n] || !columns[at % mm->n] || is_finite(out, first + at)) continue;
        beyond += !mm->add_c || is_finite(c, blasd_matmul_place_of_c(c, out, first + at));
    }
    return beyond;
}

void blasd_matmul_judge_range(struct blasd_task *task, const struct blasd_matmul *mm) {
    const struct blasd_tensor *out = &task->outputs[0];
    const struct blasd_tensor *a = &task->inputs[BLASD_MATMUL_A], *b = a + 1;
    int64_t beyond = 0;
    bool *rows, *columns;
    struct blasd_walk walk;
    if (!isfinite(mm->alpha) || (mm->add_c && !isfinite(mm->beta))) return;
    blasd_task_make_inputs(task);
    rows = finite_lines(a, &mm->a, true);
    columns = finite_lines(b, &mm->b, false);
    blasd_walk_init(&walk, mm->batch_rank, mm->batch);
    blasd_walk_operand(&walk, 0, mm->a.batch_rank, mm->a.batch);
    blasd_walk_operand(&walk, 1, mm->b.batch_rank, mm->b.batch);
    for (int64_t i = 0; rows != NULL && columns != NULL && i < mm->batch_count; i++) {
        beyond += count_beyond(task, mm, i * mm->m * mm->n, rows + walk.offset[0] * mm->m,
                               columns + walk.offset[1] * mm->n);
        blasd_walk_next(&walk);
    }
    free(rows);
    free(columns);
    if (beyond > 0 && blasd_wanted())
        blasd_task_warn(task, BLASD_W_overflow, "%lld elements are beyond the range of %s",
                        (long long)beyond, blasd_dtype_name(out->dtype));
}

/* ---- the products ---- */

struct wide {
    const struct blasd_task *task; /* borrowed */
    const struct blasd_matmul *mm; /* borrowed */
    struct blasd_matmul_steps a, b;
    int64_t down, across; /* patches of one item */
};

#define ROWS 16    /* of a patch of the result */
#define COLUMNS 32 /* beside each other */
#define DEPTH 128  /* of b, copied at once */

/* Rounds one part of an element to the dtype of the result. */
static void store_part(const struct blasd_tensor *out, int64_t part, long double value) {
    enum blasd_dtype dtype = blasd_dtype_part(out->dtype);
    char *to = (char *)out->data + (size_t)part * blasd_dtype_size(dtype);
    double nearest = (double)value;
    float single = (float)value;
    struct blasd_tensor from = blasd_tensor_make(BLASD_float64, 0, NULL);
    struct blasd_tensor half = blasd_tensor_make(dtype, 0, NULL);
    if (dtype == BLASD_float64) {
        memcpy(to, &nearest, sizeof nearest);
    } else if (dtype == BLASD_float32) {
        memcpy(to, &single, sizeof single);
    } else {
        from.data = &nearest;
        half.data = to;
        blasd_tensor_convert(&from, &half);
    }
}

/* A part of alpha times the sum, and of beta times c. */
static void finish_part(const struct wide *wide, int64_t at, int part, int parts, long double sum) {
    const struct blasd_tensor *c = &wide->task->inputs[BLASD_MATMUL_C];
    long double value = (long double)wide->mm->alpha * sum;
    if (wide->mm->add_c) {
        enum blasd_dtype dtype = blasd_dtype_part(c->dtype);
        double added;
        struct blasd_tensor from = blasd_tensor_make(dtype, 0, NULL);
        struct blasd_tensor to = blasd_tensor_make(BLASD_float64, 0, NULL);
        from.data =
            (char *)c->data +
            (size_t)(blasd_matmul_place_of_c(c, &wide->task->outputs[0], at) * parts + part) *
                blasd_dtype_size(dtype);
        to.data = &added;
        blasd_tensor_convert(&from, &to);
        value += (long double)wide->mm->beta * (long double)added;
    }
    store_part(&wide->task->outputs[0], at * parts + part, value);
}

#define LOAD(x) ((SUM)(x))
#define ITEM float
#define SUM double
#define PARTS 1
#define NAME(name) name##_f32
#include "kernels/matmul/range_body.h"
#define PARTS 2
#define NAME(name) name##_c64
#include "kernels/matmul/range_body.h"
#undef ITEM
#undef SUM
#define ITEM double
#define SUM long double
#define PARTS 1
#define NAME(name) name##_f64
#include "kernels/matmul/range_body.h"
#define PARTS 2
#define NAME(name) name##_c128
#include "kernels/matmul/range_body.h"
#undef ITEM
#undef SUM
#define ITEM uint64_t
#define SUM uint64_t
#define PARTS 1
#define EXACT
#define NAME(name) name##_u64
#include "kernels/matmul/range_body.h"
#undef EXACT
#undef ITEM
#undef SUM
#undef LOAD
#define ITEM uint16_t
#define SUM double
#define PARTS 1
#define LOAD(x) ((double)blasd_float16_read(x))
#define NAME(name) name##_f16
#include "kernels/matmul/range_body.h"
#undef LOAD
#define PARTS 1
#define LOAD(x) ((double)blasd_bfloat16_read(x))
#define NAME(name) name##_bf16
#include "kernels/matmul/range_body.h"

bool blasd_matmul_wide(struct blasd_task *task, const struct blasd_matmul *mm, int threads,
                       struct blasd_cpu_progress *progress) {
    struct wide wide = {.task = task, .mm = mm};
    struct blasd_parallel loop = {.arg = &wide, .threads = threads, .watch = progress->watch};
    const char *how = "sums in float64";
    blasd_task_make_inputs(task);
    wide.a = blasd_matmul_steps(&task->inputs[BLASD_MATMUL_A], &mm->a);
    wide.b = blasd_matmul_steps(&task->inputs[BLASD_MATMUL_B], &mm->b);
    wide.down = (mm->m + ROWS - 1) / ROWS;
    wide.across = (mm->n + COLUMNS - 1) / COLUMNS;
    loop.count = mm->batch_count * wide.down * wide.across;
    loop.from = fmin(1, progress->done / progress->total);
    progress->done += task->plan->flops;
    loop.to = fmin(1, progress->done / progress->total);
    switch (task->inputs[BLASD_MATMUL_A].dtype) {
    case BLASD_float32: loop.piece = patch_f32; break;
    case BLASD_float16: loop.piece = patch_f16; break;
    case BLASD_bfloat16: loop.piece = patch_bf16; break;
    case BLASD_complex64: loop.piece = patch_c64; break;
    case BLASD_float64:
        loop.piece = patch_f64;
        how = "sums in long double";
        break;
    case BLASD_complex128:
        loop.piece = patch_c128;
        how = "sums in long double";
        break;
    default: loop.piece = patch_u64; how = "integers modulo 2^64";
    }
    snprintf(task->method, sizeof task->method, "%s", how);
    return loop.count == 0 || blasd_parallel_run(&loop);
}
