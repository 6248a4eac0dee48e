/* Rows of the distance matrix and what becomes of them: written out, or reduced at once. The matrix
 * itself is never held: a few rows of one panel's columns are, in cache.
 *
 * Knows no metric. Read next: nearest.c, cpu_distance.c. */
#include "kernels/distance/rows.h"

#include "base/err.h"
#include "core/wanted.h"
#include "kernels/cpu/cpu.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int blasd_distance_room_init(struct distance_room *room, const struct distance_shape *shape,
                             struct blasd_err *err) {
    room->scratch = DISTANCE_ROWS * blasd_distance_segment_bytes(shape);
    room->nearest = room->scratch + (size_t)shape->k * DISTANCE_VECTOR;
    room->left = 0;
    room->memory = blasd_cpu_alloc(room->nearest + blasd_distance_nearest_bytes(shape), 1);
    if (room->memory == NULL)
        return blasd_fail(err, BLASD_E_out_of_memory, "", "no memory for a segment of rows");
    return 0;
}

void blasd_distance_room_release(struct distance_room *room) {
    free(room->memory);
    room->memory = NULL;
}

/* What a full or condensed row needs of a segment of columns j .. j + n. */
static void put_segment(const struct distance_shape *shape, const void *segment, int64_t i,
                        int64_t j, int64_t n, void *d) {
    size_t size = blasd_dtype_size(shape->arithmetic);
    int64_t first = i + 1 > j ? i + 1 : j;
    if (shape->output == OUTPUT_FULL)
        blasd_distance_put(shape, segment, n, d, i * shape->n + j);
    else if (first < j + n) /* row i of the triangle starts behind rows of m-1, m-2, ... */
        blasd_distance_put(shape, (const char *)segment + (size_t)(first - j) * size, j + n - first,
                           d, i * (2 * shape->m - i - 1) / 2 + first - i - 1);
}

/* The matrix itself, where no rounding stands between: straight into the output. */
static void full_rows(const struct distance_problem *problem, const struct distance_args *args,
                      int64_t from, int64_t to, const struct distance_out *out) {
    const struct distance_shape *shape = problem->shape;
    size_t size = blasd_dtype_size(shape->arithmetic);
    int64_t columns = blasd_distance_columns(shape), done = 0;
    for (int64_t j = 0; j < shape->n; j += columns) {
        int64_t n = shape->n - j < columns ? shape->n - j : columns;
        for (int64_t i = from; i < to; i += DISTANCE_ROWS) {
            void *rows[DISTANCE_ROWS];
            if (!blasd_wanted_after(&done, blasd_distance_segment_work(shape, n))) return;
            for (int r = 0; r < DISTANCE_ROWS; r++) {
                int64_t row = i + r < to ? i + r : to - 1;
                rows[r] = (char *)out->d + (size_t)(row * shape->n + j) * size;
            }
            blasd_distance_segment(problem, args, i, to, j, n, rows);
        }
    }
}

/* Rows that are rounded to a shorter type, scaled back, or but the part above the diagonal. */
static void cut_rows(const struct distance_problem *problem, const struct distance_args *args,
                     struct distance_room *room, int64_t from, int64_t to,
                     const struct distance_out *out) {
    const struct distance_shape *shape = problem->shape;
    int64_t columns = blasd_distance_columns(shape), done = 0;
    void *rows[DISTANCE_ROWS];
    for (int r = 0; r < DISTANCE_ROWS; r++) rows[r] = blasd_distance_room_segment(room, shape, r);
    for (int64_t i = from; i < to; i += DISTANCE_ROWS) {
        int64_t start = shape->output == OUTPUT_CONDENSED ? i / columns * columns : 0;
        for (int64_t j = start; j < shape->n; j += columns) {
            int64_t n = shape->n - j < columns ? shape->n - j : columns;
            if (!blasd_wanted_after(&done, blasd_distance_segment_work(shape, n))) return;
            blasd_distance_segment(problem, args, i, to, j, n, rows);
            for (int r = 0; r < DISTANCE_ROWS && i + r < to; r++) {
                blasd_distance_unscale(problem, rows[r], n);
                put_segment(shape, rows[r], i + r, j, n, out->d);
            }
        }
    }
}

void blasd_distance_rows(const struct distance_problem *problem, struct distance_room *room,
                         int64_t from, int64_t to, const struct distance_out *out) {
    const struct distance_shape *shape = problem->shape;
    struct distance_args args = problem->args;
    args.scratch = blasd_distance_room_scratch(room);
    args.left = &room->left;
    if (shape->output == OUTPUT_ARGMIN || shape->output == OUTPUT_TOPK)
        blasd_distance_nearest(problem, room, from, to, out);
    else if (shape->output == OUTPUT_FULL && shape->storage == shape->arithmetic &&
             problem->unscale == 0)
        full_rows(problem, &args, from, to, out);
    else
        cut_rows(problem, &args, room, from, to, out);
}

void blasd_distance_within(const struct distance_problem *problem, struct distance_room *room,
                           int64_t from, int64_t to, bool fill, const struct distance_out *out) {
    const struct distance_shape *shape = problem->shape;
    struct distance_args args = problem->args;
    size_t size = blasd_dtype_size(shape->arithmetic);
    int64_t columns = blasd_distance_columns(shape), done = 0, picked;
    int32_t *found = blasd_distance_room_nearest(room);
    void *rows[DISTANCE_ROWS];
    args.scratch = blasd_distance_room_scratch(room);
    args.left = &room->left;
    for (int r = 0; r < DISTANCE_ROWS; r++) rows[r] = blasd_distance_room_segment(room, shape, r);
    for (int64_t i = from; i < to; i += DISTANCE_ROWS) {
        int used = to - i < DISTANCE_ROWS ? (int)(to - i) : DISTANCE_ROWS;
        int64_t at[DISTANCE_ROWS] = {0};
        for (int r = 0; fill && r < used; r++) at[r] = out->row_splits[i + r];
        for (int64_t j = 0; j < shape->n; j += columns) {
            int64_t n = shape->n - j < columns ? shape->n - j : columns;
            if (!blasd_wanted_after(&done, blasd_distance_segment_work(shape, n))) return;
            blasd_distance_segment(problem, &args, i, to, j, n, rows);
            for (int r = 0; r < used; r++) {
                blasd_distance_unscale(problem, rows[r], n);
                picked = shape->arithmetic == BLASD_float64
                             ? blasd_distance_pick_f64(rows[r], n, shape->reach, found)
                             : blasd_distance_pick_f32(rows[r], n, (float)shape->reach, found);
                for (int64_t p = 0; p < picked; p++) {
                    int64_t c = found[p];
                    if (isnan(blasd_distance_value(shape->arithmetic, rows[r], c)) ||
                        (shape->alone && j + c == i + r))
                        continue;
                    if (fill) {
                        blasd_distance_put(shape, (char *)rows[r] + (size_t)c * size, 1, out->d,
                                           at[r]);
                        out->index[at[r]] = j + c;
                    }
                    at[r]++;
                }
            }
        }
        for (int r = 0; !fill && r < used; r++) out->row_splits[i + r + 1] = at[r];
    }
}
