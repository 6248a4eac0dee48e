/* A few rows against a few columns, and how entries go to the output. Read next: nearest.c, rows.c.
 */
#include "kernels/distance/rows.h"

#include "core/wanted.h"

#include <math.h>

#define PANEL_BYTES (128 << 10) /* of y in one pass: what a second-level cache keeps */
#define PANEL_MOST 4096         /* columns */

int64_t blasd_distance_columns(const struct distance_shape *shape) {
    int64_t width = DISTANCE_VECTOR / (int64_t)blasd_dtype_size(shape->arithmetic);
    int64_t columns = PANEL_BYTES / (DISTANCE_VECTOR / width) / (shape->k > 0 ? shape->k : 1);
    if (columns > PANEL_MOST) columns = PANEL_MOST;
    return columns < width ? width : columns / width * width;
}

size_t blasd_distance_segment_bytes(const struct distance_shape *shape) {
    return (size_t)blasd_distance_columns(shape) * blasd_dtype_size(shape->arithmetic);
}

void *blasd_distance_room_segment(const struct distance_room *room,
                                  const struct distance_shape *shape, int row) {
    return room->memory + (size_t)row * blasd_distance_segment_bytes(shape);
}

void *blasd_distance_room_scratch(const struct distance_room *room) {
    return room->memory + room->scratch;
}

void *blasd_distance_room_nearest(const struct distance_room *room) {
    return room->memory + room->nearest;
}

void blasd_distance_segment(const struct distance_problem *problem,
                            const struct distance_args *args, int64_t i, int64_t end, int64_t j,
                            int64_t n, void *const out[DISTANCE_ROWS]) {
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

int64_t blasd_distance_segment_work(const struct distance_shape *shape, int64_t n) {
    double work = DISTANCE_ROWS * (double)n * blasd_distance_entry_work(shape) / 4;
    return work < BLASD_WANTED_WORK ? (int64_t)work : BLASD_WANTED_WORK;
}

static void set_value(enum blasd_dtype dtype, void *data, int64_t i, double value) {
    if (dtype == BLASD_float64)
        ((double *)data)[i] = value;
    else
        ((float *)data)[i] = (float)value;
}

void blasd_distance_unscale(const struct distance_problem *problem, void *data, int64_t n) {
    enum blasd_dtype dtype = problem->shape->arithmetic;
    for (int64_t i = 0; problem->unscale != 0 && i < n; i++)
        set_value(dtype, data, i, ldexp(blasd_distance_value(dtype, data, i), problem->unscale));
}

void blasd_distance_put(const struct distance_shape *shape, const void *from, int64_t n, void *d,
                        int64_t at) {
    struct blasd_tensor source = blasd_tensor_make(shape->arithmetic, 1, &n);
    struct blasd_tensor target = blasd_tensor_make(shape->storage, 1, &n);
    if (n <= 0) return;
    source.data = (void *)(uintptr_t)from;
    target.data = (char *)d + (size_t)at * blasd_dtype_size(shape->storage);
    blasd_tensor_convert(&source, &target);
}

void blasd_distance_put_one(const struct distance_problem *problem, double value, void *d,
                            int64_t at) {
    double one;
    set_value(problem->shape->arithmetic, &one, 0, value);
    blasd_distance_unscale(problem, &one, 1);
    blasd_distance_put(problem->shape, &one, 1, d, at);
}
