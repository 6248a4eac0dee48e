/* The nearest points of each row: argmin and topk.
 *
 * Where the metric is a sum of squares, a matrix product in float32 says first, to a proven bound,
 * which points cannot be among the nearest; the others are computed from differences. So the
 * nearest are those of the matrix, with its bits and its ties, whatever the product rounds. Read
 * next: product.c; README.md has the bound. */
#include "kernels/distance/rows.h"

#include "core/wanted.h"
#include "kernels/cpu/cpu.h"

#include <cblas.h>
#include <math.h>

#define AT_ONCE DISTANCE_BLOCK /* rows of one product */
#define FIRST 128 /* columns that are computed directly: bounds for those that follow */
#define UNIT_F32 0x1p-24

/* A neighbour found. */
struct near {
    double d; /* as it was computed: of a scaled problem, scaled */
    int64_t j;
};

/* What a thread makes of some rows at a time. */
struct scan {
    const struct distance_problem *problem;
    struct distance_args args;
    void *rows[DISTANCE_ROWS]; /* segments */
    float *product;            /* AT_ONCE rows of DISTANCE_PART */
    struct near *near;         /* `count` of each row at once: a heap with the farthest on top */
    int32_t *found;            /* places in a segment, or in DISTANCE_ROWS rows of a product */
    int64_t count, done;
};

static int64_t rows_at_once(const struct distance_shape *shape) {
    return blasd_distance_multiplies(shape) ? AT_ONCE : DISTANCE_ROWS;
}

static int64_t count_of(const struct distance_shape *shape) {
    return shape->output == OUTPUT_TOPK ? shape->neighbours : 1;
}

static size_t found_most(const struct distance_shape *shape) {
    size_t columns = (size_t)blasd_distance_columns(shape);
    return columns > DISTANCE_ROWS * DISTANCE_PART ? columns : DISTANCE_ROWS * DISTANCE_PART;
}

size_t blasd_distance_nearest_bytes(const struct distance_shape *shape) {
    size_t near = (size_t)rows_at_once(shape) * (size_t)count_of(shape) * sizeof(struct near);
    if (shape->output == OUTPUT_WITHIN) near = 0;
    if (shape->output == OUTPUT_FULL || shape->output == OUTPUT_CONDENSED) return 0;
    if (blasd_distance_multiplies(shape)) near += AT_ONCE * DISTANCE_PART * sizeof(float);
    return near + found_most(shape) * sizeof(int32_t);
}

/* ---- the nearest so far ---- */

/* The order of neighbours: by distance, NaN last, then by index. */
static inline bool nearer(struct near one, struct near than) {
    if (one.d < than.d) return true;
    if (one.d > than.d) return false;
    if (one.d == than.d || (isnan(one.d) && isnan(than.d))) return one.j < than.j;
    return isnan(than.d);
}

static void heap_down(struct near *heap, int64_t count, int64_t at) {
    for (;;) {
        int64_t child = 2 * at + 1;
        struct near swap = heap[at];
        if (child >= count) return;
        if (child + 1 < count && nearer(heap[child], heap[child + 1])) child++;
        if (!nearer(heap[at], heap[child])) return;
        heap[at] = heap[child];
        heap[child] = swap;
        at = child;
    }
}

static inline void offer(struct near *heap, int64_t count, double d, int64_t j) {
    struct near found = {d, j};
    if (!nearer(found, heap[0])) return;
    heap[0] = found;
    heap_down(heap, count, 0);
}

/* Offers a segment of row i, of n columns from j0 on. */
static void keep_nearest(struct scan *scan, struct near *heap, const void *segment, int64_t i,
                         int64_t n, int64_t j0) {
    const struct distance_shape *shape = scan->problem->shape;
    for (int64_t j = j0; j < j0 + n; j++) {
        double d = blasd_distance_value(shape->arithmetic, segment, j - j0);
        if (d > heap[0].d || (shape->alone && j == i)) continue;
        offer(heap, scan->count, d, j);
    }
}

/* Sorts the heaps of rows i .. end into the output. */
static void put_nearest(struct scan *scan, int64_t i, int64_t end, const struct distance_out *out) {
    for (int64_t row = i; row < end; row++) {
        struct near *heap = scan->near + (row - i) * scan->count;
        for (int64_t left = scan->count; left > 0 && blasd_wanted_after(&scan->done, 100); left--) {
            int64_t at = row * scan->count + left - 1;
            blasd_distance_put_one(scan->problem, heap[0].d, out->d, at);
            out->index[at] = heap[0].j;
            heap[0] = heap[left - 1];
            heap_down(heap, left - 1, 0);
        }
    }
}

/* Rows i .. end, of which at most DISTANCE_ROWS, against columns from .. to, directly. False: not
 * wanted any more. */
static bool scan_directly(struct scan *scan, struct near *near, int64_t i, int64_t end,
                          int64_t from, int64_t to) {
    const struct distance_shape *shape = scan->problem->shape;
    int64_t columns = blasd_distance_columns(shape);
    for (int64_t j = from; j < to; j += columns) {
        int64_t n = to - j < columns ? to - j : columns;
        if (!blasd_wanted_after(&scan->done, blasd_distance_segment_work(shape, n))) return false;
        blasd_distance_segment(scan->problem, &scan->args, i, end, j, n, scan->rows);
        for (int64_t row = i; row < end; row++)
            keep_nearest(scan, near + (row - i) * scan->count, scan->rows[row - i], row, n, j);
    }
    return true;
}

/* ---- by a product ---- */

/* What an element of a row's product must not be above where its point may be among the nearest: of
 * those in DISTANCE_PART columns from number `part` on. Beyond it lies what rounding of factors,
 * product, and of the distances themselves can make: README.md. */
static float highest_of(const struct scan *scan, int64_t row, int64_t part, double farthest) {
    const struct distance_product *product = &scan->problem->product;
    bool wide = scan->problem->shape->arithmetic == BLASD_float64;
    double unit = wide ? 0x1p-53 : UNIT_F32;
    double square = scan->args.finish == FINISH_ROOT   ? farthest * farthest
                    : scan->args.finish == FINISH_HALF ? 2 * farthest
                                                       : farthest;
    double lengths = sqrt(product->x_squares[row]) + product->y_lengths[part];
    double error = 1.1 * UNIT_F32 * (2 * (double)scan->args.k + 16) * lengths * lengths + 1e-30;
    double most = square * product->scale * (1 + 8 * unit) + error - product->x_squares[row];
    float highest = (float)most;
    if (isnan(most)) return INFINITY;
    return (double)highest < most ? nextafterf(highest, INFINITY) : highest;
}

/* Computes the places of columns from j0 on, that row i may have its nearest in, from differences.
 */
static void try_few(struct scan *scan, struct near *heap, int64_t i, int64_t j0,
                    const int32_t *found, int64_t count) {
    const struct distance_problem *problem = scan->problem;
    const int64_t k = scan->args.k;
    for (int64_t c = 0; c < count; c += DISTANCE_ROWS) {
        int64_t j[DISTANCE_ROWS];
        double wide[DISTANCE_ROWS];
        float single[DISTANCE_ROWS];
        for (int r = 0; r < DISTANCE_ROWS; r++) j[r] = j0 + found[c + r < count ? c + r : c];
        if (problem->shape->arithmetic == BLASD_float64) {
            const double *y = problem->y;
            blasd_distance_few_f64(
                &scan->args, (const double *)problem->x + i * k,
                (const double *const[]){y + j[0] * k, y + j[1] * k, y + j[2] * k, y + j[3] * k},
                wide);
        } else {
            const float *y = problem->y;
            blasd_distance_few_f32(
                &scan->args, (const float *)problem->x + i * k,
                (const float *const[]){y + j[0] * k, y + j[1] * k, y + j[2] * k, y + j[3] * k},
                single);
            for (int r = 0; r < DISTANCE_ROWS; r++) wide[r] = (double)single[r];
        }
        for (int r = 0; r < DISTANCE_ROWS && c + r < count; r++)
            if (!problem->shape->alone || j[r] != i) offer(heap, scan->count, wide[r], j[r]);
    }
}

/* Rows i .. end, of which at most AT_ONCE, against n columns from j on: those of one part. Where
 * the bound leaves many of a few rows, these are computed directly. */
static bool scan_product(struct scan *scan, int64_t i, int64_t end, int64_t j, int64_t n) {
    const struct distance_product *product = &scan->problem->product;
    int64_t row = scan->args.k + 1, part = j / DISTANCE_PART;
    if (!blasd_wanted_after(&scan->done, 2 * (end - i) * n / 16 * row)) return false;
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, (int)(end - i), (int)n, (int)row, 1,
                product->x + i * row, (int)row, product->y + j * row, (int)row, 0, scan->product,
                DISTANCE_PART);
    for (int64_t first = i; first < end; first += DISTANCE_ROWS) {
        int64_t last = end - first < DISTANCE_ROWS ? end : first + DISTANCE_ROWS, all = 0;
        struct near *near = scan->near + (first - i) * scan->count;
        int64_t picked[DISTANCE_ROWS] = {0};
        for (int64_t r = 0; r < last - first; r++) {
            float most = highest_of(scan, first + r, part, near[r * scan->count].d);
            picked[r] = blasd_distance_pick_f32(scan->product + (first - i + r) * DISTANCE_PART, n,
                                                most, scan->found + r * DISTANCE_PART);
            all += picked[r];
        }
        if (all > n / 2) {
            if (!scan_directly(scan, near, first, last, j, j + n)) return false;
            continue;
        }
        for (int64_t r = 0; r < last - first; r++)
            try_few(scan, near + r * scan->count, first + r, j, scan->found + r * DISTANCE_PART,
                    picked[r]);
    }
    return true;
}

static bool scan_block(struct scan *scan, int64_t i, int64_t end) {
    const struct distance_shape *shape = scan->problem->shape;
    bool multiplies = scan->problem->product.x != NULL && scan->problem->product.scale != 0;
    for (int64_t at = 0; at < (end - i) * scan->count && blasd_wanted_after(&scan->done, 1); at++)
        scan->near[at] = (struct near){NAN, shape->n};
    for (int64_t row = i; row < end; row += DISTANCE_ROWS)
        if (!scan_directly(scan, scan->near + (row - i) * scan->count, row,
                           end - row < DISTANCE_ROWS ? end : row + DISTANCE_ROWS, 0,
                           multiplies ? FIRST : shape->n))
            return false;
    for (int64_t j = FIRST; multiplies && j < shape->n;) {
        int64_t next = (j / DISTANCE_PART + 1) * DISTANCE_PART;
        if (next > shape->n) next = shape->n;
        if (!scan_product(scan, i, end, j, next - j)) return false;
        j = next;
    }
    return true;
}

void blasd_distance_nearest(const struct distance_problem *problem, struct distance_room *room,
                            int64_t from, int64_t to, const struct distance_out *out) {
    const struct distance_shape *shape = problem->shape;
    int64_t each = rows_at_once(shape);
    struct scan scan = {.problem = problem, .args = problem->args, .count = count_of(shape)};
    scan.args.scratch = blasd_distance_room_scratch(room);
    scan.args.left = &room->left;
    for (int r = 0; r < DISTANCE_ROWS; r++)
        scan.rows[r] = blasd_distance_room_segment(room, shape, r);
    scan.near = blasd_distance_room_nearest(room);
    scan.found = (int32_t *)(void *)(scan.near + each * scan.count);
    scan.product = (float *)(void *)(scan.found + found_most(shape));
    for (int64_t i = from; i < to; i += each) {
        int64_t end = to - i < each ? to : i + each;
        if (!scan_block(&scan, i, end)) return;
        put_nearest(&scan, i, end, out);
    }
}
