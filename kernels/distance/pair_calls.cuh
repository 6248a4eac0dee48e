/* What the host asks of distance's kernels: their arguments as plain values, and functions that
 * start them. Each call does `blocks` blocks of the whole work, from block `first` on; or it shares
 * all of them out, to be launched with those of other jobs.
 *
 * Read next: pair_tiles.cuh for a tile's values, pair_sinks.cuh for what becomes of them,
 * pair_rows.cu for what is done to the points before. */
#ifndef BLASD_KERNELS_DISTANCE_PAIR_CALLS_CUH
#define BLASD_KERNELS_DISTANCE_PAIR_CALLS_CUH

extern "C" {
#include "kernels/cuda/cuda_op.h"
}

#include "kernels/distance/pair_tiles.cuh"

#define PAIR_NOBODY 0xffffffffu /* the index where there is no neighbour */
#define PAIR_NEAREST_MOST 64    /* neighbours that the kernel which reduces at once can keep */
#define PAIR_NEAREST_FEW 24     /* those of a large job in float32 */
#define PAIR_NEAREST_SLACK 96   /* entries of a list beyond those it keeps; at least PAIR_SIDE */

/* The matrix, or its triangle. */
struct pair_matrix {
    char *d;
    int64_t task_step, item_bytes;
    int64_t offset;       /* condensed: the place of d's first entry */
    int storage, element; /* enum blasd_dtype, and its bytes */
    int condensed;
    int vectors;  /* rows are aligned to four entries */
    int mirrored; /* x alone, whole matrix: compute what is above the diagonal, write both */
    int strip;    /* tiles of a block, one below the other */
};

/* The nearest of each row, for each of `splits` parts of it: `keep` entries in order; what is
 * missing is NaN and PAIR_NOBODY. */
struct pair_lists {
    void *d; /* of the arithmetic's type */
    uint32_t *j;
    int keep, room, splits; /* room: entries of a list while it grows */
    int64_t columns;        /* of a part: whole tiles */
};

static inline size_t pair_nearest_bytes(size_t size, int room) {
    return PAIR_SIDE * (size_t)room * (size + sizeof(uint32_t));
}

/* All within a radius. Counts for each row and part of it; as starts, with `fill`. */
struct pair_near {
    int64_t *counts;
    char *d, *index, *row_splits;
    int64_t d_step, index_step, splits_step; /* from task to task */
    int64_t pairs, element;                  /* room of a problem; bytes of an entry of d */
    int64_t columns;                         /* of a part: whole tiles */
    double radius;
    int storage, splits, fill;
};

/* The kernels of one arithmetic. */
struct pair_kernels {
    int (*share_matrix)(struct blasd_cuda_job *job, enum distance_loop loop,
                        const struct pair_args &args, const struct pair_matrix &out, int64_t blocks,
                        struct blasd_err *err);
    int (*share_nearest)(struct blasd_cuda_job *job, enum distance_loop loop,
                         const struct pair_args &args, const struct pair_lists &lists,
                         int64_t blocks, struct blasd_err *err);
    int (*launch_matrix)(struct blasd_gpu_stream *stream, enum distance_loop loop,
                         const struct pair_args &args, const struct pair_matrix &out, int64_t first,
                         int64_t blocks, struct blasd_err *err);
    int (*launch_nearest)(struct blasd_gpu_stream *stream, enum distance_loop loop,
                          const struct pair_args &args, const struct pair_lists &lists,
                          int64_t first, int64_t blocks, struct blasd_err *err);
    int (*launch_near)(struct blasd_gpu_stream *stream, enum distance_loop loop,
                       const struct pair_args &args, const struct pair_near &near, int64_t first,
                       int64_t blocks, struct blasd_err *err);
};
extern const struct pair_kernels pair_kernels_f32, pair_kernels_f64;

/* Calls f with a number of the dtype: what it does is for that type. */
template <class F> static inline int pair_by_type(enum blasd_dtype dtype, F f) {
    return dtype == BLASD_float64 ? f(0.0) : f(0.0F);
}

#endif
