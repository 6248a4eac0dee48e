/* Symmetric elimination in double-double by one block or by a whole grid, and the triangular
 * systems that follow. What is done to a number does not depend on how many do it, so neither do
 * its bits.
 *
 * A column is taken to depend on those before it where less than DEPENDENT of its squared length is
 * left: far above the rounding of the products (1e-31), and below what the rank is decided by. */
#ifndef BLASD_REGRESSION_GRAM_ELIMINATE_CUH
#define BLASD_REGRESSION_GRAM_ELIMINATE_CUH

#include "kernels/regression/gram.cuh"

#define GRAM_THREADS 512
#define DEPENDENT 0x1p-94

/* Those who work on a problem, whole warps: a block, or from blasd_cuda_tuning.spread_from
 * coefficients on the grid. A block would take most of a second for 1024, and a wait for the grid
 * takes about a microsecond: by reasoning, not by measuring. */
struct gram_block {
    __device__ int rank() const {
        return (int)threadIdx.x;
    }
    __device__ int size() const {
        return (int)blockDim.x;
    }
    __device__ void sync() const {
        __syncthreads();
    }
};
struct gram_grid { /* of a launch together */
    __device__ int rank() const {
        return (int)(blockIdx.x * blockDim.x + threadIdx.x);
    }
    __device__ int size() const {
        return (int)(gridDim.x * blockDim.x);
    }
    __device__ void sync() const {
        blasd_grid_barrier();
    }
};

/* Threads of a block that works on q columns. */
static inline int gram_threads(int q) {
    return q <= 12 ? 64 : q <= 24 ? 128 : q <= 64 ? 256 : GRAM_THREADS;
}

/* a over a root or a pivot, 0 where that belongs to a dependent column. */
static __device__ inline struct dd over(struct dd a, struct dd root) {
    return root.hi > 0 ? dd_divide(a, root) : dd_from(0);
}

/* gram = U'DU in place: pivots, U' below the diagonal; with_y = D U'^-1 X'y. `diagonal`: the
 * squares that were there before. */
template <class Team>
static __device__ inline void eliminate(const Team &team, int q, int t, struct dd *gram,
                                        struct dd *with_y, struct dd *pivots,
                                        const double *diagonal) {
    int rank = team.rank(), all = team.size(), lane = rank % BLASD_WARP, warp = rank / BLASD_WARP;
    for (int j = 0; j < q; j++) {
        int rest = q - j - 1,
            chunks = (rest + BLASD_WARP - 1) / BLASD_WARP; /* of columns, which a warp takes */
        team.sync();
        struct dd pivot = gram[j * q + j];
        bool dependent = !(pivot.hi > DEPENDENT * diagonal[j]);
        for (int l = j + 1 + rank; l < q; l += all)
            gram[l * q + j] = dependent ? dd_from(0) : dd_divide(gram[j * q + l], pivot);
        if (rank == 0) pivots[j] = dependent ? dd_from(0) : pivot;
        team.sync();
        for (int k = warp; !dependent && k < rest * chunks; k += all / BLASD_WARP) {
            int i = j + 1 + k / chunks, l = j + 1 + k % chunks * BLASD_WARP + lane;
            if (l >= i && l < q)
                gram[i * q + l] =
                    dd_subtract(gram[i * q + l], dd_multiply(gram[i * q + j], gram[j * q + l]));
        }
        for (int at = rank; !dependent && at < rest * t; at += all) {
            int i = j + 1 + at / t, l = at % t;
            with_y[i * t + l] =
                dd_subtract(with_y[i * t + l], dd_multiply(gram[i * q + j], with_y[j * t + l]));
        }
    }
    team.sync();
}

/* x (q x columns) = U^-1 x; with `triangle`, x is upper triangular and stays so. */
template <class Team>
static __device__ inline void solve_upper(const Team &team, int q, const struct dd *gram,
                                          struct dd *x, int columns, bool triangle) {
    for (int j = q - 1; j > 0; j--) {
        int first = triangle ? j : 0, width = columns - first;
        team.sync();
        for (int at = team.rank(); at < j * width; at += team.size()) {
            int i = at / width, l = first + at % width;
            x[i * columns + l] =
                dd_subtract(x[i * columns + l], dd_multiply(gram[j * q + i], x[j * columns + l]));
        }
    }
    team.sync();
}

#endif
