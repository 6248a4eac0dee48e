/* Rows of the matrix, a few at a time: what segment.c has for rows.c and nearest.c. Read next:
 * segment.c. */
#ifndef BLASD_DISTANCE_ROWS_H
#define BLASD_DISTANCE_ROWS_H

#include "kernels/distance/distance.h"

/* A room holds: segments of DISTANCE_ROWS rows, the loops' scratch, and what nearest.c needs. */
void *blasd_distance_room_segment(const struct distance_room *room,
                                  const struct distance_shape *shape, int row);
void *blasd_distance_room_scratch(const struct distance_room *room);
void *blasd_distance_room_nearest(const struct distance_room *room);
size_t blasd_distance_segment_bytes(const struct distance_shape *shape);
/* The bytes of the last. */
size_t blasd_distance_nearest_bytes(const struct distance_shape *shape);

/* Columns in one pass: whole blocks, as many as stay in cache. */
int64_t blasd_distance_columns(const struct distance_shape *shape);
/* Distances of rows i .. i + DISTANCE_ROWS (row `end` - 1 again where there are fewer) to columns
 * j .. j + n, to `out`; j is at the start of a block. */
void blasd_distance_segment(const struct distance_problem *problem,
                            const struct distance_args *args, int64_t i, int64_t end, int64_t j,
                            int64_t n, void *const out[DISTANCE_ROWS]);
/* About what a segment of n columns takes. */
int64_t blasd_distance_segment_work(const struct distance_shape *shape, int64_t n);
/* Takes the power of two out of n entries, by which a problem was scaled. */
void blasd_distance_unscale(const struct distance_problem *problem, void *data, int64_t n);
/* Copies `n` distances from a segment to the output, rounding where it is of a shorter type. */
void blasd_distance_put(const struct distance_shape *shape, const void *from, int64_t n, void *d,
                        int64_t at);
/* Rounds one entry to the type of the output, scaled back. */
void blasd_distance_put_one(const struct distance_problem *problem, double value, void *d,
                            int64_t at);

static inline double blasd_distance_value(enum blasd_dtype dtype, const void *data, int64_t i) {
    return dtype == BLASD_float64 ? ((const double *)data)[i] : (double)((const float *)data)[i];
}

/* nearest.c's part of blasd_distance_rows where the nearest are asked for. */
void blasd_distance_nearest(const struct distance_problem *problem, struct distance_room *room,
                            int64_t from, int64_t to, const struct distance_out *out);

#endif
