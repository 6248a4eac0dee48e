/* Symmetric elimination in double-double by one block, and the triangular systems that follow.
 *
 * A column is taken to depend on those before it where less than DEPENDENT of its squared length is
 * left: far above the rounding of the products (1e-31), and below what the rank is decided by. */
#ifndef BLASD_REGRESSION_GRAM_ELIMINATE_CUH
#define BLASD_REGRESSION_GRAM_ELIMINATE_CUH

#include "kernels/regression/gram.cuh"

#define GRAM_THREADS 512
#define DEPENDENT 0x1p-94

/* Threads of a block that works on q columns. */
static inline int gram_threads(int q) {
    return q <= 12 ? 64 : q <= 24 ? 128 : q <= 64 ? 256 : GRAM_THREADS;
}

/* a over a root or a pivot, 0 where that belongs to a dependent column. */
static __device__ inline struct twofold over(struct twofold a, struct twofold root) {
    return root.hi > 0 ? two_divide(a, root) : two_from(0);
}

/* gram = U'DU in place: pivots, U' below the diagonal; with_y = D U'^-1 X'y. `diagonal`: the
 * squares that were there before. */
static __device__ inline void eliminate(int q, int t, struct twofold *gram, struct twofold *with_y,
                                        struct twofold *pivots, const double *diagonal) {
    int tid = (int)threadIdx.x, all = (int)blockDim.x, lane = tid % 32, warp = tid / 32;
    for (int j = 0; j < q; j++) {
        __syncthreads();
        struct twofold pivot = gram[j * q + j];
        bool dependent = !(pivot.hi > DEPENDENT * diagonal[j]);
        for (int l = j + 1 + tid; l < q; l += all)
            gram[l * q + j] = dependent ? two_from(0) : two_divide(gram[j * q + l], pivot);
        if (tid == 0) pivots[j] = dependent ? two_from(0) : pivot;
        __syncthreads();
        for (int i = j + 1 + warp; !dependent && i < q; i += all / 32) {
            struct twofold factor = gram[i * q + j];
            for (int l = i + lane; l < q; l += 32)
                gram[i * q + l] =
                    two_subtract(gram[i * q + l], two_multiply(factor, gram[j * q + l]));
            for (int l = lane; l < t; l += 32)
                with_y[i * t + l] =
                    two_subtract(with_y[i * t + l], two_multiply(factor, with_y[j * t + l]));
        }
    }
    __syncthreads();
}

/* x (q x columns) = U^-1 x; with `triangle`, x is upper triangular and stays so. */
static __device__ inline void solve_upper(int q, const struct twofold *gram, struct twofold *x,
                                          int columns, bool triangle) {
    int tid = (int)threadIdx.x, all = (int)blockDim.x, lane = tid % 32, warp = tid / 32;
    for (int j = q - 1; j > 0; j--) {
        __syncthreads();
        if (columns >= 16) {
            for (int i = warp; i < j; i += all / 32)
                for (int l = (triangle ? j : 0) + lane; l < columns; l += 32)
                    x[i * columns + l] = two_subtract(
                        x[i * columns + l], two_multiply(gram[j * q + i], x[j * columns + l]));
        } else {
            for (int at = tid; at < j * columns; at += all) {
                int i = at / columns, l = at % columns;
                if (triangle && l < j) continue;
                x[at] = two_subtract(x[at], two_multiply(gram[j * q + i], x[j * columns + l]));
            }
        }
    }
    __syncthreads();
}

#endif
