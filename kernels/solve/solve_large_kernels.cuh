/* Kernels for one system that fills the device: what stands between the library's calls. Matrices
 * are column-major here, n x n, or n x k for right-hand sides.
 *
 * Read next: solve_large.cu. */
#ifndef BLASD_KERNELS_SOLVE_LARGE_KERNELS_CUH
#define BLASD_KERNELS_SOLVE_LARGE_KERNELS_CUH

#include "kernels/solve/solve_kernels.cuh"

#define LARGE_COLUMNS 256 /* right-hand sides worked on together */
#define LARGE_TOGETHER 8  /* of them, whose residuals are computed at once */

/* The largest elements of a column's x, r and d; infinite where one is not finite. */
struct large_column {
    double x, r, d;
};

/* Columns that a kernel shall touch. */
struct large_mask {
    uint64_t bits[LARGE_COLUMNS / 64];
};
static __host__ __device__ inline bool large_wants(const struct large_mask &mask, int column) {
    return (mask.bits[column / 64] >> column % 64 & 1) != 0;
}

/* The job's matrix as its structure has it, by tiles that are read as they lie in memory.
 * *unsymmetric is set where triangles differ. */
template <class T>
__global__ void __launch_bounds__(256)
    large_load(struct solve_shape shape, const T *a, T *to, int *unsymmetric) {
    BLASD_STATIC_SHARED(T, tile, [32][33]);
    int tx = (int)threadIdx.x % 32, ty = (int)threadIdx.x / 32, n = shape.n;
    int64_t across = (n + 31) / 32;
    bool by_rows = shape.a_column == 1;
    for (int64_t t = blockIdx.x; t < across * across; t += gridDim.x) {
        int i0 = (int)(t / across) * 32, j0 = (int)(t % across) * 32;
        for (int k = ty; k < 32; k += 8) {
            int i = i0 + (by_rows ? k : tx), j = j0 + (by_rows ? tx : k);
            if (i >= n || j >= n) continue;
            tile[i - i0][j - j0] = solve_element(shape, a, i, j);
            if (solve_is_symmetric(shape) && i > j &&
                a[i * shape.a_row + j * shape.a_column] != tile[i - i0][j - j0])
                *unsymmetric = 1;
        }
        __syncthreads();
        for (int k = ty; k < 32; k += 8)
            if (i0 + tx < n && j0 + k < n) to[(int64_t)(j0 + k) * n + i0 + tx] = tile[tx][k];
        __syncthreads();
    }
}

/* Largest elements and sums of rows (a thread each) ... */
template <class T>
__global__ void __launch_bounds__(64) large_rows(int n, const T *a, double *most, double *sums) {
    for (int i = (int)(blockIdx.x * 64 + threadIdx.x); i < n; i += (int)gridDim.x * 64) {
        double size, largest = 0, sum = 0;
        for (int j = 0; j < n; j++) {
            size = size_of((double)a[(int64_t)j * n + i]);
            largest = size > largest ? size : largest;
            sum += size;
        }
        most[i] = largest;
        sums[i] = sum;
    }
}
/* ... and of columns (a warp each). */
template <class T>
__global__ void __launch_bounds__(256)
    large_columns(int n, const T *a, double *most, double *sums) {
    team_of_lanes<BLASD_WARP> team;
    for (int j = (int)(blockIdx.x * 8 + threadIdx.x / BLASD_WARP); j < n; j += (int)gridDim.x * 8) {
        double largest = 0, sum = 0;
        for (int i = team.rank(); i < n; i += BLASD_WARP) {
            double size = size_of((double)a[(int64_t)j * n + i]);
            largest = size > largest ? size : largest;
            sum += size;
        }
        largest = team.most(largest);
        sum = team.sum(sum);
        if (team.rank() != 0) continue;
        most[j] = largest;
        sums[j] = sum;
    }
}

/* The largest element of a matrix, or of its upper triangle, as the bits of a double: those of
 * numbers that are not negative are in their order. */
template <class T>
__global__ void __launch_bounds__(256)
    large_most(int n, const T *a, int upper, unsigned long long *ret) {
    team_of_block team;
    double most = 0;
    int64_t all = (int64_t)n * n;
    for (int64_t at = (int64_t)blockIdx.x * 256 + threadIdx.x; at < all;
         at += (int64_t)gridDim.x * 256) {
        double size = size_of((double)a[at]);
        if (!(upper && at % n > at / n) && size > most) most = size;
    }
    most = team.most(most);
    if (threadIdx.x == 0) atomicMax(ret, (unsigned long long)__double_as_longlong(most));
}

/* ---- right-hand sides ---- */

/* Columns from the job to b ... */
template <class T>
__global__ void __launch_bounds__(256)
    large_load_b(struct solve_shape shape, const T *from, int k, T *to) {
    int64_t all = (int64_t)shape.n * k;
    for (int64_t at = (int64_t)blockIdx.x * 256 + threadIdx.x; at < all;
         at += (int64_t)gridDim.x * 256)
        to[at] = from[at % shape.n * shape.b_row + at / shape.n * shape.b_column];
}
/* ... and from x to the job. */
template <class T>
__global__ void __launch_bounds__(256)
    large_store_x(struct solve_shape shape, const T *from, int k, T *to) {
    int64_t all = (int64_t)shape.n * k;
    for (int64_t at = (int64_t)blockIdx.x * 256 + threadIdx.x; at < all;
         at += (int64_t)gridDim.x * 256)
        to[at / k * shape.columns + at % k] = from[at % k * shape.n + at / k];
}

/* Part of r = b - A x in twice the precision: `parts` ranges of columns of A, for one row a thread.
 * pairs: hi and lo of each part, row and column. */
template <class T>
__global__ void __launch_bounds__(128)
    large_residual_parts(int n, const T *a, const T *x, int parts, double *pairs) {
    int part = (int)blockIdx.y, c = (int)blockIdx.z, each = (n + parts - 1) / parts;
    int from = part * each, to = from + each < n ? from + each : n;
    for (int i = (int)(blockIdx.x * 128 + threadIdx.x); i < n; i += (int)gridDim.x * 128) {
        double hi = 0, lo = 0, *pair = pairs + 2 * (((int64_t)c * parts + part) * n + i);
        for (int j = from; j < to; j++)
            subtract_product(hi, lo, a[(int64_t)j * n + i], x[(int64_t)c * n + j]);
        pair[0] = hi;
        pair[1] = lo;
    }
}
template <class T>
__global__ void __launch_bounds__(128)
    large_residual_sum(int n, const T *b, int parts, const double *pairs, T *r) {
    int c = (int)blockIdx.z;
    for (int i = (int)(blockIdx.x * 128 + threadIdx.x); i < n; i += (int)gridDim.x * 128) {
        double hi = (double)b[(int64_t)c * n + i], lo = 0;
        for (int part = 0; part < parts; part++) {
            const double *pair = pairs + 2 * (((int64_t)c * parts + part) * n + i);
            add_pair(hi, lo, pair[0], pair[1]);
        }
        r[(int64_t)c * n + i] = (T)(hi + lo);
    }
}

/* Sizes of x, r and d: a block a column. */
template <class T>
static __device__ double large_size(const team_of_block &team, int n, const T *x) {
    double most = 0;
    int bad = 0;
    for (int i = team.rank(); i < n; i += team.size()) {
        double size = size_of((double)x[i]);
        bad |= !is_finite(size);
        most = size > most ? size : most;
    }
    bad = team.any(bad);
    most = team.most(most);
    return bad ? precision<T>::infinity() : most;
}
template <class T>
__global__ void __launch_bounds__(256)
    large_measure(int n, int k, const T *x, const T *r, const T *d, struct large_column *ret) {
    team_of_block team;
    for (int c = (int)blockIdx.x; c < k; c += (int)gridDim.x) {
        int64_t at = (int64_t)c * n;
        struct large_column sizes = {large_size(team, n, x + at), large_size(team, n, r + at),
                                     large_size(team, n, d + at)};
        if (team.rank() == 0) ret[c] = sizes;
    }
}

/* x += d, and the old x into d; or x = d; in the columns of the mask. */
template <class T>
__global__ void __launch_bounds__(256)
    large_step(int n, int k, T *x, T *d, struct large_mask mask, int back) {
    int64_t all = (int64_t)n * k;
    for (int64_t at = (int64_t)blockIdx.x * 256 + threadIdx.x; at < all;
         at += (int64_t)gridDim.x * 256) {
        T old = x[at];
        if (!large_wants(mask, (int)(at / n))) continue;
        x[at] = back ? d[at] : old + d[at];
        if (!back) d[at] = old;
    }
}

template <class T>
__global__ void __launch_bounds__(1)
    large_report(struct solve_batch batch, int64_t system, struct solve_matrix matrix,
                 struct solve_outcome outcome) {
    report(batch, system, matrix, outcome);
}

#endif
