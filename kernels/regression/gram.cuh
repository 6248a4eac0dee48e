/* Least squares on the device through the Gram matrix in double-double.
 *
 * [1 X]'W[1 X y] is summed with products that are exact and sums of 31 digits, so squaring the
 * condition number costs no digit that a double can show: the error is that of QR in double,
 * squared. All else is done to this matrix. Every function puts kernels on their way; a batch of
 * problems of one shape is worked on at once, and what is done to a problem depends on its shape
 * alone. Read next: gram.cu, gram_factor.cu, gram_rows.cu, gram_descent.cu, cuda_regression.cu. */
#ifndef BLASD_REGRESSION_GRAM_CUH
#define BLASD_REGRESSION_GRAM_CUH

#include "kernels/numeric/dd_warp.cuh"
#include "kernels/regression/far.h"

#define GRAM_MOST 1024 /* coefficients */

/* Where a problem lies on the device. */
struct gram_data {
    const double *x, *y, *w; /* w NULL: 1 */
};

/* Numbers that came as float32, and where they are wanted as float64. */
struct gram_span {
    const float *from;
    double *to;
    int64_t count;
};

/* One column of [1 X y]: what is worked with is (value - shift) 2^-exponent, which is exact: there
 * is a shift only where all values lie within a factor of two of it. */
struct gram_column {
    double shift;
    double scale, again; /* their product is 2^-exponent, each alone within range */
    int exponent;
    int own;  /* the exponent of its largest value, shift taken off; no penalty's */
    int unit; /* of a target far from 1: answers are given divided by 2^unit (scaling.c) */
};

/* What is added to the squares of the features. */
struct gram_penalty {
    double alpha;
    bool by_weight; /* alpha is for each unit of weight */
};

/* How columns are to be treated. */
struct gram_settling {
    bool shifts;                 /* columns may be shifted */
    struct gram_penalty penalty; /* columns that are small against its root are scaled by that */
};

/* What all problems of a batch have in common. */
struct gram_shape {
    int64_t n, problems;
    int p, q, t; /* features, coefficients, targets */
    int first;   /* 1 with an intercept, which is column 0 */
    bool weighted;
    int units; /* multiprocessors */
};

/* Arrays on the device, problem after problem. `scratch` is what the launches below need beside. */
struct gram_arrays {
    const struct gram_data *data;
    struct gram_column *columns; /* q + t */
    double *total;               /* of the weights, in their unit */
    double *weight_scale;        /* what weights are multiplied by: a power of two */
    struct dd *gram;             /* q x q: above, the products; below, what the factor leaves */
    struct dd *with_y;           /* q x t */
    struct dd *squares;          /* t */
    struct dd *pivots;           /* q: 0 where a column depends on those before it */
    struct dd *inverse;          /* q x q */
    struct dd *b;                /* q x t, of the columns as they are worked with */
    struct dd *slopes;           /* q x 2 t: X'W r */
    struct dd *left_squares;     /* 2 t */
    double *left;                /* n x 2 t: r as two numbers */
    double *row_weight;          /* t x n, for robust errors */
    void *scratch;
    /* what goes back to the host */
    double *r, *z, *rest, *coef, *ssr, *tss, *basis, *singular, *middle;
    int *exponent; /* q + t: of the targets less their units */
    int *unit;     /* t of targets, then the weights' */
};

/* What a factor is made for. */
struct gram_factor_wants {
    struct gram_penalty penalty;
    bool basis, triangle;
};

/* Where kernels go. */
struct gram_way {
    struct blasd_gpu_stream *stream;
    struct blasd_cuda_job *shared; /* that one's shares of launches, in prepare (gram_share.cuh);
                                    * NULL: launches of their own */
};

/* `count` spans, of at most `longest` numbers, to float64. */
int gram_widen(const struct gram_span *spans, int count, int64_t longest, int units,
               const struct gram_way *way, struct blasd_err *err);

/* Bytes of scratch that the launches for this shape use. */
size_t gram_scratch_bytes(const struct gram_shape *shape);

/* Blocks that share the rows of a problem when the ranges of its columns are found. */
int gram_range_blocks(const struct gram_shape *shape);
/* The ranges of the columns, by `blocks` blocks for each problem, gram_range_numbers each. */
int gram_ranges(const struct gram_shape *shape, const struct gram_arrays *arrays, double *ranges,
                int blocks, const struct gram_way *way, struct blasd_err *err);
/* columns, total, weight_scale and unit from them. */
int gram_settle(const struct gram_shape *shape, const struct gram_arrays *arrays,
                const double *ranges, int blocks, const struct gram_settling *settling,
                const struct gram_way *way, struct blasd_err *err);
/* The same as gram_products, of shapes that fit it (gram_bytes.cu). */
bool gram_bytes_fit(const struct gram_shape *shape);
size_t gram_bytes_scratch(const struct gram_shape *shape);
int gram_bytes(const struct gram_shape *shape, const struct gram_arrays *arrays,
               const struct gram_way *way, struct blasd_err *err);
/* gram, with_y, squares. */
int gram_products(const struct gram_shape *shape, const struct gram_arrays *arrays,
                  const struct gram_way *way, struct blasd_err *err);
/* slopes and left_squares from `left`. */
int gram_slopes(const struct gram_shape *shape, const struct gram_arrays *arrays,
                const struct gram_way *way, struct blasd_err *err);
/* X' diag(row_weight of one target) X into `to` (q x q for each problem). */
int gram_weighted(const struct gram_shape *shape, const struct gram_arrays *arrays, int target,
                  struct dd *to, const struct gram_way *way, struct blasd_err *err);

/* tss, from the products. */
int gram_totals(const struct gram_shape *shape, const struct gram_arrays *arrays,
                const struct gram_way *way, struct blasd_err *err);
/* pivots, b; r, z, rest, exponent with `triangle`; inverse and basis with `basis`. */
int gram_factor(const struct gram_shape *shape, const struct gram_arrays *arrays,
                const struct gram_factor_wants *wants, const struct gram_way *way,
                struct blasd_err *err);
/* b += (X'WX)^-1 slopes where `correct`; ssr; coef from b. */
int gram_correct(const struct gram_shape *shape, const struct gram_arrays *arrays, bool correct,
                 const struct gram_way *way, struct blasd_err *err);
/* The singular values of [1 X] from r, in no order. */
int gram_singular(const struct gram_shape *shape, const struct gram_arrays *arrays,
                  const struct gram_way *way, struct blasd_err *err);
/* One target's place in `middle` from gram_weighted's matrix; `room` is q x q numbers each. */
int gram_sandwich(const struct gram_shape *shape, const struct gram_arrays *arrays, int target,
                  const struct dd *weighted, struct dd *room, const struct gram_way *way,
                  struct blasd_err *err);

/* left = y - [1 X] b, in the units of the columns. */
int gram_leave(const struct gram_shape *shape, const struct gram_arrays *arrays,
               const struct gram_way *way, struct blasd_err *err);
/* Residuals and fitted values from b, as the user sees them (float where `single`), n x t each,
 * and row_weight for robust errors. Any of the three may be NULL: addresses of the first problem's
 * and steps in elements come with them. */
struct gram_outputs {
    void *const *residuals, *const *fitted; /* tables of addresses, a problem each, on the device */
    bool single;
    bool robust;
    int cov;       /* as enum regression_cov counts */
    double factor; /* of HC1 */
};
int gram_put_rows(const struct gram_shape *shape, const struct gram_arrays *arrays,
                  const struct gram_outputs *out, const struct gram_way *way,
                  struct blasd_err *err);

/* gd: `steps` further steps from b (q x t numbers, in the user's units) to b. */
struct gram_descent {
    double *g, *h; /* q x q and q x t numbers: X'WX and X'Wy in the user's units */
    double *b, *other;
    double *slopes; /* of the loss, q x t each: at the start, at the end; for the host */
    double learning_rate;
};
int gram_descent_start(const struct gram_shape *shape, const struct gram_arrays *arrays,
                       const struct gram_descent *descent, struct blasd_gpu_stream *stream,
                       struct blasd_err *err);
int gram_descent_steps(const struct gram_shape *shape, const struct gram_arrays *arrays,
                       struct gram_descent *descent, int64_t steps, struct blasd_gpu_stream *stream,
                       struct blasd_err *err);
/* arrays->b and the slopes from descent->b. */
int gram_descent_end(const struct gram_shape *shape, const struct gram_arrays *arrays,
                     const struct gram_descent *descent, struct blasd_gpu_stream *stream,
                     struct blasd_err *err);

/* lasso and elastic_net. How far one target has come: */
struct gram_progress {
    int64_t sweeps;
    int active, done;
};
struct gram_sparse {
    double l1, l2, tol;             /* penalties for each unit of weight; of the gap, against y'y */
    struct dd *gram;                /* p x p: centred */
    struct dd *with_y;              /* p x t: centred */
    struct dd *squares;             /* t: of y, centred */
    double *b;                      /* t x p, in the units of the columns */
    struct gram_progress *progress; /* t */
    struct dd *room;                /* gram_sparse_room for each of problems x rooms */
    int rooms;                      /* targets that are worked on at once */
    double *gap;                    /* t, for the host */
    int64_t *sweeps;                /* t, for the host */
};
/* Numbers of room that one target takes while it is worked on. */
static inline __host__ __device__ int64_t gram_sparse_room(int64_t p) {
    return p * p + 4 * p;
}
/* All of *sparse but what was given, from the products. */
int gram_sparse_start(const struct gram_shape *shape, const struct gram_arrays *arrays,
                      const struct gram_sparse *sparse, struct blasd_gpu_stream *stream,
                      struct blasd_err *err);
/* Sweeps until all is settled or `most` are made in all; with `last`, coef, ssr, gap and sweeps. */
int gram_sparse_sweeps(const struct gram_shape *shape, const struct gram_arrays *arrays,
                       const struct gram_sparse *sparse, int64_t most, bool last,
                       struct blasd_gpu_stream *stream, struct blasd_err *err);

/* Lanes that go over the parts which so many blocks left: a power of two. */
static __host__ __device__ inline int gram_lanes_over(int blocks) {
    int lanes = 1;
    while (lanes < BLASD_WARP && 2 * lanes <= blocks) lanes *= 2;
    return lanes;
}

/* Numbers that describe the ranges of p + t columns and the weights. */
static inline __host__ __device__ int gram_range_numbers(const struct gram_shape &s) {
    return 2 * (s.p + s.t) + 2;
}

/* alpha of a problem whose weights are multiplied by `scale` and then add up to `total`. */
static __device__ inline double gram_alpha(const struct gram_penalty &penalty, double total,
                                           double scale) {
    return penalty.alpha * (penalty.by_weight ? total : scale);
}

/* The exponent of a column in the units that answers are given in. */
static __device__ inline int gram_exponent(const struct gram_column &column) {
    return column.exponent - column.unit;
}

/* Value of column j (of q, then t) in a row, as it is worked with. */
static __device__ inline double gram_value(const struct gram_column &column, double value) {
    return (value - column.shift) * column.scale * column.again;
}

#endif
