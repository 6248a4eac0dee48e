/* matmul, correctly rounded: factors cut into slices whose products BLAS makes without an error,
 * their sums in two doubles with a bound on what is left out, and an exact sum for each element
 * that this does not decide.
 *
 * A slice holds 21 bits of each row of a, or column of b, against its largest element, so that sums
 * of 1024 products of slices are whole numbers below 2^53 in whatever order BLAS adds them. Four
 * slices make ten products. A result of 24 digits or fewer needs none: one product in double has a
 * bound that decides nearly all. Read next: sum.h. */
#include "core/parallel.h"
#include "core/wanted.h"
#include "kernels/cpu/cpu.h"
#include "kernels/exact/exact.h"
#include "kernels/exact/sum.h"
#include "kernels/matmul/matmul.h"
#include "kernels/numeric/dd.h"

#include <cblas.h>
#include <stdio.h>
#include <stdlib.h>

#define ROWS 128    /* of a tile of the result */
#define COLUMNS 256 /* of it */
#define DEPTH 1024  /* products in a sum of slices */
#define SLICES 4    /* of a factor */
#define BITS 21     /* of a slice */

struct job {
    const struct blasd_task *task; /* borrowed */
    const struct blasd_matmul *mm; /* borrowed */
    struct blasd_matmul_steps a, b;
    enum blasd_dtype dtype; /* of the result */
    int slices;             /* 1: uncut */
    int64_t down, across;   /* tiles of one item */
    struct blasd_err *err;  /* where memory has run out */
};

/* A tile: where its factors begin, and what they are cut into. */
struct tile {
    const struct job *job; /* borrowed */
    const double *a, *b;   /* borrowed */
    int64_t first;         /* element of the result */
    int64_t rows, columns, depth;
    double *cut_a[SLICES], *cut_b[SLICES]; /* rows x depth, depth x columns */
    double *product, *high, *low;          /* rows x columns */
    int *row, *column;                     /* exponents; EXACT_LEFT: not finite */
    struct blasd_exact_sum sum, scaled;
};
#define EXACT_LEFT 100000

/* ---- an element by its exact sum ---- */

static void sum_element(struct tile *tile, int64_t i, int64_t j) {
    const struct job *job = tile->job;
    const struct blasd_matmul *mm = job->mm;
    const double *a = tile->a + i * job->a.row, *b = tile->b + j * job->b.column;
    const struct blasd_tensor *out = &job->task->outputs[0], *c = &job->task->inputs[2];
    int64_t at = tile->first + i * mm->n + j;
    struct blasd_exact_sum *sum = &tile->sum;
    blasd_exact_clear(sum);
    for (int64_t l = 0; l < mm->k; l++)
        blasd_exact_add_product(sum, a[l * job->a.column], b[l * job->b.row]);
    if (mm->alpha != 1 || mm->add_c) {
        sum = &tile->scaled;
        blasd_exact_clear(sum);
        blasd_exact_add_scaled(sum, &tile->sum, mm->alpha);
        if (mm->add_c)
            blasd_exact_add_product(sum, mm->beta,
                                    ((const double *)c->data)[blasd_matmul_place_of_c(c, out, at)]);
    }
    blasd_exact_store(blasd_exact_round(sum, job->dtype), job->dtype, out->data, at);
}

/* ---- slices ---- */

/* The exponent of the largest of `count` numbers: all are at most 2^it. */
static int exponent_of(const double *x, int64_t count, int64_t step) {
    double most = 0;
    int exponent;
    for (int64_t l = 0; l < count; l++) {
        double size = fabs(x[l * step]);
        if (!(size <= most)) most = size;
        if (!isfinite(size)) return EXACT_LEFT;
    }
    frexp(most, &exponent);
    return most == 0 ? 0 : exponent;
}

/* `count` numbers times 2^-exponent, of which at most the last digits of the least are lost;
 * zeros where not all are finite. */
static void scale(const double *x, int64_t count, int64_t step, int exponent, double *to,
                  int64_t to_step) {
    double half = ldexp(1, -exponent / 2), rest = ldexp(1, -exponent - -exponent / 2);
    for (int64_t l = 0; l < count; l++)
        to[l * to_step] = exponent == EXACT_LEFT ? 0 : x[l * step] * half * rest;
}

/* Cuts numbers of at most 1: slice p to cut[p], in steps of 2^-21 (p + 1), each at most half a step
 * of the one before; what is left of a number is at most half a step of the last. */
DD_CLONES
static void exact_product_cut(int64_t count, double *cut[SLICES]) {
    double *restrict first = cut[0], *restrict second = cut[1];
    double *restrict third = cut[2], *restrict fourth = cut[3];
    const double shift = 0x1.8p52;
    for (int64_t i = 0; i < count; i++) {
        double rest = first[i];
        first[i] = (rest + shift * 0x1p-21) - shift * 0x1p-21;
        rest -= first[i];
        second[i] = (rest + shift * 0x1p-42) - shift * 0x1p-42;
        rest -= second[i];
        third[i] = (rest + shift * 0x1p-63) - shift * 0x1p-63;
        rest -= third[i];
        fourth[i] = (rest + shift * 0x1p-84) - shift * 0x1p-84;
    }
}

DD_CLONES
static void exact_product_add(int64_t count, const double *restrict product, double *restrict high,
                              double *restrict low) {
    for (int64_t i = 0; i < count; i++) {
        struct dd sum = dd_two_sum(high[i], product[i]);
        high[i] = sum.hi;
        low[i] += sum.lo;
    }
}

/* Terms [from, from + depth) of all elements of the tile, added to high + low. */
static bool add_terms(struct tile *tile, int64_t from, int64_t depth) {
    const struct job *job = tile->job;
    int64_t rows = tile->rows, columns = tile->columns;
    for (int64_t i = 0; i < rows; i++)
        scale(tile->a + i * job->a.row + from * job->a.column, depth, job->a.column, tile->row[i],
              tile->cut_a[0] + i * depth, 1);
    for (int64_t j = 0; j < columns; j++)
        scale(tile->b + j * job->b.column + from * job->b.row, depth, job->b.row, tile->column[j],
              tile->cut_b[0] + j, columns);
    if (job->slices > 1) {
        exact_product_cut(rows * depth, tile->cut_a);
        exact_product_cut(depth * columns, tile->cut_b);
    }
    for (int order = 0; order < job->slices; order++) {
        for (int p = 0; p <= order; p++) {
            if (!blasd_wanted()) return false;
            cblas_dgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, (int)rows, (int)columns,
                        (int)depth, 1, tile->cut_a[p], (int)depth, tile->cut_b[order - p],
                        (int)columns, p > 0, tile->product, (int)columns);
        }
        exact_product_add(rows * columns, tile->product, tile->high, tile->low);
    }
    return true;
}

/* ---- the rounding ---- */

/* alpha (high + low) + beta c, in the unit of the element, with its error; false where numbers are
 * too far apart for that. */
static bool blend(const struct tile *tile, int64_t at, int exponent, struct dd *value,
                  double *error) {
    const struct job *job = tile->job;
    const struct blasd_tensor *c = &job->task->inputs[2];
    double alpha = job->mm->alpha, beta = job->mm->beta, added = 0, most;
    int e_alpha, e_added;
    if (alpha == 1 && !job->mm->add_c) return true;
    if (job->mm->add_c)
        added = ((const double *)c->data)[blasd_matmul_place_of_c(c, &job->task->outputs[0], at)];
    frexp(alpha, &e_alpha);
    frexp(added, &e_added);
    if (alpha == 0 || !isfinite(added) || abs(e_alpha) > 300 || abs(e_added) > 600 ||
        abs(e_added - exponent) > 300 || !(fabs(beta) < 0x1p300) ||
        (beta != 0 && fabs(beta) < 0x1p-300))
        return false;
    *value = dd_scale(*value, alpha);
    most = fabs(value->hi);
    if (added != 0) {
        struct dd term = dd_two_product(beta, ldexp(added, -exponent));
        most += fabs(term.hi);
        *value = dd_add(*value, term);
    }
    *error = *error * fabs(alpha) + most * 0x1p-98;
    return true;
}

/* The number of the dtype nearest to all of value +- error, times 2^exponent; false: they differ,
 * or it is near the ends of the range. */
static bool decide(struct dd value, double error, int exponent, enum blasd_dtype dtype,
                   double *ret) {
    double low, high, size, unit;
    uint64_t bits = (uint64_t)(exponent + 1023) << 52;
    if (dtype != BLASD_float64) error += fabs(value.hi) * 0x1p-51;
    error += (error + fabs(value.lo)) * 0x1p-51;
    low = value.hi + (value.lo - error);
    high = value.hi + (value.lo + error);
    size = fabs(low);
    if (!(low > 0 || high < 0) || !(size > 0x1p-100 && size < 0x1p100) || abs(exponent) > 900)
        return false;
    memcpy(&unit, &bits, sizeof unit);
    low = blasd_exact_narrow(low * unit, dtype);
    high = blasd_exact_narrow(high * unit, dtype);
    *ret = low;
    return low == high;
}

/* What is not in high + low: what slices leave out of each product, and roundings. */
static double error_of(const struct job *job) {
    double k = (double)job->mm->k, chunks = ceil(k / DEPTH) * SLICES;
    if (job->slices == 1) return k * (DEPTH + 2) * 0x1p-52;
    return k * (0x1p-83 + chunks * chunks * 0x1p-105);
}

static void finish(struct tile *tile) {
    const struct job *job = tile->job;
    const struct blasd_tensor *out = &job->task->outputs[0];
    const double slack = error_of(job);
    int64_t done = 0;
    for (int64_t i = 0; i < tile->rows; i++)
        for (int64_t j = 0; j < tile->columns; j++) {
            int64_t at = tile->first + i * job->mm->n + j, place = i * tile->columns + j;
            struct dd value = dd_two_sum(tile->high[place], tile->low[place]);
            double error = slack, number;
            int exponent = tile->row[i] + tile->column[j];
            if (exponent < EXACT_LEFT / 2 && blend(tile, at, exponent, &value, &error) &&
                decide(value, error, exponent, job->dtype, &number)) {
                blasd_exact_store(number, job->dtype, out->data, at);
                continue;
            }
            if (!blasd_wanted_after(&done, 4 * job->mm->k)) return;
            sum_element(tile, i, j);
        }
}

/* ---- tiles ---- */

static bool tile_room(struct tile *tile) {
    size_t size = (size_t)(tile->rows * tile->columns), slices = (size_t)tile->job->slices;
    size_t a = (size_t)(tile->rows * tile->depth), b = (size_t)(tile->columns * tile->depth);
    double *room = blasd_cpu_alloc(3 * size + slices * (a + b), sizeof *room);
    tile->row = malloc((size_t)(tile->rows + tile->columns) * sizeof *tile->row);
    tile->product = room;
    if (room == NULL || tile->row == NULL) return false;
    tile->column = tile->row + tile->rows;
    tile->high = room + size;
    tile->low = tile->high + size;
    memset(tile->high, 0, 2 * size * sizeof *room);
    room += 3 * size;
    for (size_t p = 0; p < slices; p++, room += a + b) {
        tile->cut_a[p] = room;
        tile->cut_b[p] = room + a;
    }
    return true;
}

/* Places tile number `piece` of the job. */
static void tile_place(const struct job *job, int64_t piece, struct tile *tile) {
    const struct blasd_matmul *mm = job->mm;
    int64_t each = job->down * job->across, item = piece / each;
    int64_t i = piece % each / job->across * ROWS, j = piece % each % job->across * COLUMNS;
    struct blasd_walk walk;
    blasd_walk_init(&walk, mm->batch_rank, mm->batch);
    blasd_walk_operand(&walk, 0, mm->a.batch_rank, mm->a.batch);
    blasd_walk_operand(&walk, 1, mm->b.batch_rank, mm->b.batch);
    blasd_walk_seek(&walk, item);
    tile->job = job;
    tile->rows = mm->m - i < ROWS ? mm->m - i : ROWS;
    tile->columns = mm->n - j < COLUMNS ? mm->n - j : COLUMNS;
    tile->depth = mm->k < DEPTH ? mm->k : DEPTH;
    tile->first = (item * mm->m + i) * mm->n + j;
    tile->a = (const double *)job->task->inputs[BLASD_MATMUL_A].data +
              walk.offset[0] * job->a.matrix + i * job->a.row;
    tile->b = (const double *)job->task->inputs[BLASD_MATMUL_B].data +
              walk.offset[1] * job->b.matrix + j * job->b.column;
    blasd_exact_new(&tile->sum);
    blasd_exact_new(&tile->scaled);
}

static bool make_tile(void *arg, int64_t piece, int slot) {
    const struct job *job = arg;
    const struct blasd_matmul *mm = job->mm;
    struct tile *tile = calloc(1, sizeof *tile);
    bool going = tile != NULL;
    (void)slot;
    if (going) tile_place(job, piece, tile);
    if (!going || !tile_room(tile)) {
        blasd_fail(job->err, BLASD_E_out_of_memory, "", "no memory for the product");
        going = false;
    }
    for (int64_t i = 0; going && i < tile->rows; i++)
        tile->row[i] = exponent_of(tile->a + i * job->a.row, mm->k, job->a.column);
    for (int64_t j = 0; going && j < tile->columns; j++)
        tile->column[j] = exponent_of(tile->b + j * job->b.column, mm->k, job->b.row);
    for (int64_t l = 0; going && l < mm->k; l += DEPTH)
        going = add_terms(tile, l, mm->k - l < DEPTH ? mm->k - l : DEPTH);
    if (going) finish(tile);
    if (tile != NULL) {
        free(tile->product);
        free(tile->row);
    }
    free(tile);
    return going && blasd_wanted();
}

bool blasd_exact_matmul(struct blasd_task *task, const struct blasd_matmul *mm, int threads,
                        struct blasd_cpu_progress *progress) {
    struct blasd_err err = {0};
    struct job job = {.task = task, .mm = mm, .dtype = task->outputs[0].dtype, .err = &err};
    struct blasd_parallel loop = {.piece = make_tile, .arg = &job, .threads = threads};
    bool going = true;
    job.slices = job.dtype == BLASD_float64 ? SLICES : 1;
    job.a = blasd_matmul_steps(&task->inputs[BLASD_MATMUL_A], &mm->a);
    job.b = blasd_matmul_steps(&task->inputs[BLASD_MATMUL_B], &mm->b);
    job.down = (mm->m + ROWS - 1) / ROWS;
    job.across = (mm->n + COLUMNS - 1) / COLUMNS;
    loop.watch = progress->watch;
    loop.count = mm->batch_count * job.down * job.across;
    loop.from = fmin(1, progress->done / progress->total);
    progress->done += task->plan->flops;
    loop.to = fmin(1, progress->done / progress->total);
    snprintf(task->method, sizeof task->method, "correctly rounded");
    if (loop.count > 0) going = blasd_parallel_run(&loop);
    if (err.code != BLASD_OK) task->err = err;
    return going || err.code != BLASD_OK;
}
