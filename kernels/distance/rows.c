/* Rows of the distance matrix and what becomes of them: written out, or reduced at once. The matrix
 * itself is never held: a few rows of one panel's columns are, in cache.
 *
 * Knows no metric. Read next: cpu_distance.c. */
#include "kernels/distance/distance.h"

#include "base/err.h"
#include "core/wanted.h"
#include "kernels/cpu/cpu.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define PANEL_BYTES (128 << 10) /* of y in one pass: what a second-level cache keeps */
#define PANEL_MOST 4096         /* columns */

/* A neighbour found. */
struct near {
    double d; /* as it was computed: of a scaled problem, scaled */
    int64_t j;
};

/* The order of neighbours: by distance, NaN last, then by index. */
static inline bool nearer(struct near one, struct near than) {
    if (one.d < than.d) return true;
    if (one.d > than.d) return false;
    if (one.d == than.d || (isnan(one.d) && isnan(than.d))) return one.j < than.j;
    return isnan(than.d);
}

/* Columns in one pass: whole blocks, as many as stay in cache. */
static int64_t panel_columns(const struct distance_shape *shape) {
    int64_t width = DISTANCE_VECTOR / (int64_t)blasd_dtype_size(shape->arithmetic);
    int64_t columns = PANEL_BYTES / (DISTANCE_VECTOR / width) / (shape->k > 0 ? shape->k : 1);
    if (columns > PANEL_MOST) columns = PANEL_MOST;
    return columns < width ? width : columns / width * width;
}

/* The room holds: segments of rows, the neighbours of topk, the loops' scratch. */
static size_t segments_bytes(const struct distance_shape *shape) {
    return (size_t)DISTANCE_ROWS * (size_t)panel_columns(shape) * sizeof(double);
}

int blasd_distance_room_init(struct distance_room *room, const struct distance_shape *shape,
                             struct blasd_err *err) {
    size_t near =
        shape->output == OUTPUT_TOPK ? (size_t)shape->neighbours * sizeof(struct near) : 64;
    size_t scratch = (size_t)shape->k * DISTANCE_VECTOR;
    near = (near * DISTANCE_ROWS + 63) / 64 * 64;
    room->segment_bytes = segments_bytes(shape);
    room->left = 0;
    room->memory = blasd_cpu_alloc(room->segment_bytes + near + scratch, 1);
    if (room->memory == NULL)
        return blasd_fail(err, BLASD_E_out_of_memory, "", "no memory for a segment of rows");
    return 0;
}

void blasd_distance_room_release(struct distance_room *room) {
    free(room->memory);
    room->memory = NULL;
}

static struct near *room_near(const struct distance_room *room) {
    return (struct near *)(void *)(room->memory + room->segment_bytes);
}

static void *room_scratch(const struct distance_room *room, const struct distance_shape *shape) {
    size_t near =
        shape->output == OUTPUT_TOPK ? (size_t)shape->neighbours * sizeof(struct near) : 64;
    return room->memory + room->segment_bytes + (near * DISTANCE_ROWS + 63) / 64 * 64;
}

/* Distances of rows i .. i + DISTANCE_ROWS (row `end` - 1 again where there are fewer) to columns
 * j .. j + n, to `out`; j is at the start of a block. */
static void segment(const struct distance_problem *problem, const struct distance_args *args,
                    int64_t i, int64_t end, int64_t j, int64_t n, void *const out[DISTANCE_ROWS]) {
    const struct distance_shape *shape = problem->shape;
    int64_t k = shape->k;
    if (shape->arithmetic == BLASD_float64) {
        const double *a[DISTANCE_ROWS];
        double *to[DISTANCE_ROWS];
        for (int r = 0; r < DISTANCE_ROWS; r++) {
            a[r] = (const double *)problem->x + (i + r < end ? i + r : end - 1) * k;
            to[r] = out[r];
        }
        blasd_distance_f64(args, a, (const double *)problem->panel + j * k, n, to);
    } else {
        const float *a[DISTANCE_ROWS];
        float *to[DISTANCE_ROWS];
        for (int r = 0; r < DISTANCE_ROWS; r++) {
            a[r] = (const float *)problem->x + (i + r < end ? i + r : end - 1) * k;
            to[r] = out[r];
        }
        blasd_distance_f32(args, a, (const float *)problem->panel + j * k, n, to);
    }
}

/* About what a segment of n columns takes. */
static int64_t segment_work(const struct distance_shape *shape, int64_t n) {
    double work = DISTANCE_ROWS * (double)n * blasd_distance_entry_work(shape) / 4;
    return work < BLASD_WANTED_WORK ? (int64_t)work : BLASD_WANTED_WORK;
}

static double value_at(enum blasd_dtype dtype, const void *data, int64_t i) {
    return dtype == BLASD_float64 ? ((const double *)data)[i] : (double)((const float *)data)[i];
}

static void set_value(enum blasd_dtype dtype, void *data, int64_t i, double value) {
    if (dtype == BLASD_float64)
        ((double *)data)[i] = value;
    else
        ((float *)data)[i] = (float)value;
}

/* Takes the power of two out of n entries, by which a problem was scaled. */
static void unscale(const struct distance_problem *problem, void *data, int64_t n) {
    enum blasd_dtype dtype = problem->shape->arithmetic;
    for (int64_t i = 0; problem->unscale != 0 && i < n; i++)
        set_value(dtype, data, i, ldexp(value_at(dtype, data, i), problem->unscale));
}

/* Copies `n` distances from a segment to the output, rounding where it is of a shorter type. */
static void put(const struct distance_shape *shape, const void *from, int64_t n, void *d,
                int64_t at) {
    struct blasd_tensor source = blasd_tensor_make(shape->arithmetic, 1, &n);
    struct blasd_tensor target = blasd_tensor_make(shape->storage, 1, &n);
    if (n <= 0) return;
    source.data = (void *)(uintptr_t)from;
    target.data = (char *)d + (size_t)at * blasd_dtype_size(shape->storage);
    blasd_tensor_convert(&source, &target);
}

static void put_one(const struct distance_problem *problem, double value, void *d, int64_t at) {
    double one;
    set_value(problem->shape->arithmetic, &one, 0, value);
    unscale(problem, &one, 1);
    put(problem->shape, &one, 1, d, at);
}

/* Where topk's list of the nearest so far is a heap with the farthest on top. */
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

static void keep_nearest(const struct distance_shape *shape, struct near *heap, int64_t count,
                         const void *segment, int64_t n, int64_t j0, int64_t skip) {
    for (int64_t j = 0; j < n; j++) {
        struct near found = {value_at(shape->arithmetic, segment, j), j0 + j};
        if (found.d > heap[0].d || found.j == skip || !nearer(found, heap[0])) continue;
        heap[0] = found;
        heap_down(heap, count, 0);
    }
}

static void put_nearest(const struct distance_problem *problem, struct near *heap, int64_t count,
                        int64_t row, const struct distance_out *out) {
    int64_t done = 0;
    for (int64_t left = count; left > 0 && blasd_wanted_after(&done, 100); left--) {
        struct near farthest = heap[0];
        int64_t at = row * count + left - 1;
        put_one(problem, farthest.d, out->d, at);
        out->index[at] = farthest.j;
        heap[0] = heap[left - 1];
        heap_down(heap, left - 1, 0);
    }
}

/* What a full or condensed row needs of a segment of columns j .. j + n. */
static void put_segment(const struct distance_shape *shape, const void *segment, int64_t i,
                        int64_t j, int64_t n, void *d) {
    size_t size = blasd_dtype_size(shape->arithmetic);
    int64_t first = i + 1 > j ? i + 1 : j;
    if (shape->output == OUTPUT_FULL)
        put(shape, segment, n, d, i * shape->n + j);
    else if (first < j + n) /* row i of the triangle starts behind rows of m-1, m-2, ... */
        put(shape, (const char *)segment + (size_t)(first - j) * size, j + n - first, d,
            i * (2 * shape->m - i - 1) / 2 + first - i - 1);
}

/* The matrix itself, where no rounding stands between: straight into the output. */
static void full_rows(const struct distance_problem *problem, const struct distance_args *args,
                      int64_t from, int64_t to, const struct distance_out *out) {
    const struct distance_shape *shape = problem->shape;
    size_t size = blasd_dtype_size(shape->arithmetic);
    int64_t columns = panel_columns(shape), done = 0;
    for (int64_t j = 0; j < shape->n; j += columns) {
        int64_t n = shape->n - j < columns ? shape->n - j : columns;
        for (int64_t i = from; i < to; i += DISTANCE_ROWS) {
            void *rows[DISTANCE_ROWS];
            if (!blasd_wanted_after(&done, segment_work(shape, n))) return;
            for (int r = 0; r < DISTANCE_ROWS; r++) {
                int64_t row = i + r < to ? i + r : to - 1;
                rows[r] = (char *)out->d + (size_t)(row * shape->n + j) * size;
            }
            segment(problem, args, i, to, j, n, rows);
        }
    }
}

static void start_nearest(const struct distance_shape *shape, struct near *near, int64_t count) {
    int64_t done = 0;
    for (int64_t at = 0; at < DISTANCE_ROWS * count && blasd_wanted_after(&done, 1); at++)
        near[at] = (struct near){NAN, shape->n};
}

/* What a thread makes of some rows at a time. */
struct scan {
    const struct distance_problem *problem;
    const struct distance_out *out;
    struct distance_args args;
    void *rows[DISTANCE_ROWS];
    struct near *near;
    int64_t count; /* of neighbours; 0: the matrix itself is asked for */
};

static void scan_init(struct scan *scan, const struct distance_problem *problem,
                      struct distance_room *room, const struct distance_out *out) {
    const struct distance_shape *shape = problem->shape;
    size_t bytes = (size_t)panel_columns(shape) * blasd_dtype_size(shape->arithmetic);
    *scan = (struct scan){.problem = problem, .out = out, .near = room_near(room)};
    scan->args = problem->args;
    scan->args.scratch = room_scratch(room, shape);
    scan->args.left = &room->left;
    for (int r = 0; r < DISTANCE_ROWS; r++) scan->rows[r] = room->memory + (size_t)r * bytes;
    if (shape->output == OUTPUT_ARGMIN) scan->count = 1;
    if (shape->output == OUTPUT_TOPK) scan->count = shape->neighbours;
}

/* Rows i .. i + used against all columns. False: not wanted any more. */
static bool scan_rows(struct scan *scan, int64_t i, int64_t to, int used, int64_t *done) {
    const struct distance_problem *problem = scan->problem;
    const struct distance_shape *shape = problem->shape;
    int64_t columns = panel_columns(shape);
    int64_t start = shape->output == OUTPUT_CONDENSED ? i / columns * columns : 0;
    if (scan->count > 0) start_nearest(shape, scan->near, scan->count);
    for (int64_t j = start; j < shape->n; j += columns) {
        int64_t n = shape->n - j < columns ? shape->n - j : columns;
        if (!blasd_wanted_after(done, segment_work(shape, n))) return false;
        segment(problem, &scan->args, i, to, j, n, scan->rows);
        for (int r = 0; r < used; r++) {
            if (scan->count > 0) {
                keep_nearest(shape, scan->near + r * scan->count, scan->count, scan->rows[r], n, j,
                             shape->alone ? i + r : -1);
                continue;
            }
            unscale(problem, scan->rows[r], n);
            put_segment(shape, scan->rows[r], i + r, j, n, scan->out->d);
        }
    }
    return true;
}

void blasd_distance_rows(const struct distance_problem *problem, struct distance_room *room,
                         int64_t from, int64_t to, const struct distance_out *out) {
    const struct distance_shape *shape = problem->shape;
    struct scan scan;
    int64_t done = 0;
    scan_init(&scan, problem, room, out);
    if (shape->output == OUTPUT_FULL && shape->storage == shape->arithmetic &&
        problem->unscale == 0) {
        full_rows(problem, &scan.args, from, to, out);
        return;
    }
    for (int64_t i = from; i < to; i += DISTANCE_ROWS) {
        int used = to - i < DISTANCE_ROWS ? (int)(to - i) : DISTANCE_ROWS;
        if (!scan_rows(&scan, i, to, used, &done)) return;
        for (int r = 0; scan.count > 0 && r < used; r++)
            put_nearest(problem, scan.near + r * scan.count, scan.count, i + r, out);
    }
}

void blasd_distance_within(const struct distance_problem *problem, struct distance_room *room,
                           int64_t from, int64_t to, bool fill, const struct distance_out *out) {
    const struct distance_shape *shape = problem->shape;
    struct distance_args args = problem->args;
    size_t size = blasd_dtype_size(shape->arithmetic);
    int64_t columns = panel_columns(shape), done = 0;
    void *rows[DISTANCE_ROWS];
    args.scratch = room_scratch(room, shape);
    args.left = &room->left;
    for (int r = 0; r < DISTANCE_ROWS; r++)
        rows[r] = room->memory + (size_t)r * (size_t)columns * size;
    for (int64_t i = from; i < to; i += DISTANCE_ROWS) {
        int used = to - i < DISTANCE_ROWS ? (int)(to - i) : DISTANCE_ROWS;
        int64_t at[DISTANCE_ROWS] = {0};
        for (int r = 0; fill && r < used; r++) at[r] = out->row_splits[i + r];
        for (int64_t j = 0; j < shape->n; j += columns) {
            int64_t n = shape->n - j < columns ? shape->n - j : columns;
            if (!blasd_wanted_after(&done, segment_work(shape, n))) return;
            segment(problem, &args, i, to, j, n, rows);
            for (int r = 0; r < used; r++) {
                unscale(problem, rows[r], n);
                for (int64_t c = 0; c < n; c++) {
                    double d = value_at(shape->arithmetic, rows[r], c);
                    if (!(d <= shape->reach) || (shape->alone && j + c == i + r)) continue;
                    if (fill) {
                        put(shape, (char *)rows[r] + (size_t)c * size, 1, out->d, at[r]);
                        out->index[at[r]] = j + c;
                    }
                    at[r]++;
                }
            }
        }
        for (int r = 0; !fill && r < used; r++) out->row_splits[i + r + 1] = at[r];
    }
}
