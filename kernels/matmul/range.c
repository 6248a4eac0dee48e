/* Which products want wider sums, and which loops make them. Read next: range_body.h. */
#include "kernels/matmul/range.h"

#include "core/half.h"
#include "core/parallel.h"
#include "core/wanted.h"
#include "kernels/cpu/cpu.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- the range of the inputs ---- */

/* Binary exponents of the smallest and the largest magnitude that is neither 0 nor without end. */
struct range {
    int least, most;
};

static struct range range_of(const struct blasd_tensor *tensor) {
    enum { PART = 1024 };
    int64_t n = blasd_tensor_elements(tensor) * blasd_dtype_parts(tensor->dtype), done = 0;
    enum blasd_dtype dtype = blasd_dtype_part(tensor->dtype);
    double least = INFINITY, most = 0, room[PART];
    struct range range = {0, 0};
    for (int64_t at = 0; at < n && blasd_wanted_after(&done, PART); at += PART) {
        int64_t count = n - at < PART ? n - at : PART;
        struct blasd_tensor from = blasd_tensor_make(dtype, 1, &count);
        struct blasd_tensor to = blasd_tensor_make(BLASD_float64, 1, &count);
        from.data = (char *)tensor->data + (size_t)at * blasd_dtype_size(dtype);
        to.data = room;
        blasd_tensor_convert(&from, &to);
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
        if (!in_result && mm->k * blasd_dtype_parts(sum) < 2) return BLASD_MATMUL_BLAS;
        return in_result || !is_safe(task, mm, sum) ? BLASD_MATMUL_CHECK : BLASD_MATMUL_BLAS;
    }
    return is_safe(task, mm, sum) ? BLASD_MATMUL_BLAS : BLASD_MATMUL_WIDE;
}

bool blasd_matmul_again(struct blasd_task *task, const struct blasd_matmul *mm,
                        enum blasd_dtype sum) {
    const struct blasd_tensor *out = &task->outputs[0];
    return blasd_tensor_first_nonfinite(out->dtype, out->data, blasd_tensor_elements(out)) >= 0 &&
           !is_safe(task, mm, sum);
}

/* ---- the products ---- */

/* An operand's matrices, in elements. */
struct factor {
    const char *data;
    int64_t matrix, row, column; /* steps */
};

struct wide {
    const struct blasd_task *task; /* borrowed */
    const struct blasd_matmul *mm; /* borrowed */
    struct factor a, b;
    int64_t c_steps[BLASD_MAX_RANK]; /* of c along the dimensions of the result; 0: the same */
    int64_t down, across;            /* patches of one item */
};

#define ROWS 16    /* of a patch of the result */
#define COLUMNS 32 /* beside each other */
#define DEPTH 128  /* of b, copied at once */

/* Where c lies for an element of the result. */
static int64_t place_of_c(const struct wide *wide, int64_t at) {
    const struct blasd_tensor *out = &wide->task->outputs[0];
    int64_t place = 0;
    for (int d = out->rank - 1; d >= 0; d--) {
        place += at % out->shape[d] * wide->c_steps[d];
        at /= out->shape[d];
    }
    return place;
}

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
        from.data = (char *)c->data +
                    (size_t)(place_of_c(wide, at) * parts + part) * blasd_dtype_size(dtype);
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

static struct factor factor_of(const struct blasd_tensor *tensor,
                               const struct blasd_matmul_operand *operand) {
    bool column_major = tensor->rank == 2 && tensor->order == BLASD_COLUMN_MAJOR;
    bool swapped = operand->transposed != column_major;
    return (struct factor){.data = tensor->data,
                           .matrix = operand->rows * operand->columns,
                           .row = swapped ? 1 : operand->columns,
                           .column = swapped ? operand->rows : 1};
}

bool blasd_matmul_wide(struct blasd_task *task, const struct blasd_matmul *mm, int threads,
                       struct blasd_cpu_progress *progress) {
    const struct blasd_tensor *out = &task->outputs[0], *c = &task->inputs[BLASD_MATMUL_C];
    struct wide wide = {.task = task, .mm = mm};
    struct blasd_parallel loop = {.arg = &wide, .threads = threads, .watch = progress->watch};
    const char *how = "sums in float64";
    blasd_task_make_inputs(task);
    wide.a = factor_of(&task->inputs[BLASD_MATMUL_A], &mm->a);
    wide.b = factor_of(&task->inputs[BLASD_MATMUL_B], &mm->b);
    wide.down = (mm->m + ROWS - 1) / ROWS;
    wide.across = (mm->n + COLUMNS - 1) / COLUMNS;
    loop.count = mm->batch_count * wide.down * wide.across;
    loop.from = fmin(1, progress->done / progress->total);
    progress->done += task->plan->flops;
    loop.to = fmin(1, progress->done / progress->total);
    for (int64_t d = 0, step = 1; mm->add_c && d < c->rank; d++) {
        int64_t length = c->shape[c->rank - 1 - d];
        wide.c_steps[out->rank - 1 - d] = length == 1 ? 0 : step;
        step *= length;
    }
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
