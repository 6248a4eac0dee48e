/* Kernels for one system that fills the device: what stands between the library's calls. Matrices
 * are column-major here, n x n, or n x k for right-hand sides.
 *
 * Read next: solve_large.cu. */
#ifndef BLASD_KERNELS_SOLVE_LARGE_KERNELS_CUH
#define BLASD_KERNELS_SOLVE_LARGE_KERNELS_CUH

#include "kernels/solve/solve_kernels.cuh"

#define LARGE_COLUMNS 256 /* right-hand sides worked on together */
#define LARGE_TOGETHER 8  /* of them, whose residuals are computed at once */

/* What the host is told of a column: sizes before scaling (as m 2^e) and as they stand. */
struct large_column {
    struct wide x, r, d;
    double x_most, d_most, b_most;
    int b_exponent, b_more, r_zero, bad;
};

/* What of a column is solved now: elements whose exponents are in (floor, top], in units of
 * 2^exponent. beyond: what was stored of it left the range. */
struct large_window {
    int exponent, floor, top, beyond;
};
#define LARGE_PLAIN (-2 * SOLVE_TOP) /* floor of a column that is taken as it is */

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
    team_of_lanes<1> team;
    struct solve_room<T> none = {};
    solver<team_of_lanes<1>, T> s(team, shape, none, a);
    int tx = (int)threadIdx.x % 32, ty = (int)threadIdx.x / 32, n = shape.n;
    int64_t across = (n + 31) / 32;
    bool by_rows = shape.a_column == 1;
    for (int64_t t = blockIdx.x; t < across * across; t += gridDim.x) {
        int i0 = (int)(t / across) * 32, j0 = (int)(t % across) * 32;
        for (int k = ty; k < 32; k += 8) {
            int i = i0 + (by_rows ? k : tx), j = j0 + (by_rows ? tx : k);
            if (i >= n || j >= n) continue;
            tile[i - i0][j - j0] = s.element(i, j);
            if (s.symmetric() && i > j &&
                a[i * shape.a_row + j * shape.a_column] != tile[i - i0][j - j0])
                *unsymmetric = 1;
        }
        __syncthreads();
        for (int k = ty; k < 32; k += 8)
            if (i0 + tx < n && j0 + k < n) to[(int64_t)(j0 + k) * n + i0 + tx] = tile[tx][k];
        __syncthreads();
    }
}

/* Largest elements and sums, in units of 2^e, of rows (a thread each) ... */
template <class T>
__global__ void __launch_bounds__(64)
    large_rows(int n, const T *a, int e, double *most, double *sums) {
    for (int i = (int)(blockIdx.x * 64 + threadIdx.x); i < n; i += (int)gridDim.x * 64) {
        double size, largest = 0, sum = 0;
        for (int j = 0; j < n; j++) {
            size = size_of((double)a[(int64_t)j * n + i]);
            largest = size > largest ? size : largest;
            sum += e != 0 ? ldexp(size, -e) : size;
        }
        most[i] = largest;
        sums[i] = sum;
    }
}
/* ... and of columns (a warp each), with the largest exponent once rows are scaled. */
template <class T>
__global__ void __launch_bounds__(256) large_columns(int n, const T *a, int e, const int *row_scale,
                                                     double *most, double *sums, int *exponents) {
    team_of_lanes<BLASD_WARP> team;
    for (int j = (int)(blockIdx.x * 8 + threadIdx.x / BLASD_WARP); j < n; j += (int)gridDim.x * 8) {
        double largest = 0, sum = 0, exponent = -100000;
        for (int i = team.rank(); i < n; i += BLASD_WARP) {
            double size = size_of((double)a[(int64_t)j * n + i]);
            largest = size > largest ? size : largest;
            sum += e != 0 ? ldexp(size, -e) : size;
            if (row_scale != nullptr && size != 0) {
                double own = exponent_of(size) + row_scale[i];
                exponent = own > exponent ? own : exponent;
            }
        }
        largest = team.most(largest);
        sum = team.sum(sum);
        exponent = team.most(exponent);
        if (team.rank() != 0) continue;
        most[j] = largest;
        sums[j] = sum;
        exponents[j] = (int)exponent;
    }
}

template <class T>
__global__ void __launch_bounds__(256)
    large_scale(int n, T *a, const int *row_scale, const int *column_scale) {
    int64_t all = (int64_t)n * n;
    for (int64_t at = (int64_t)blockIdx.x * 256 + threadIdx.x; at < all;
         at += (int64_t)gridDim.x * 256)
        a[at] = (T)ldexp((double)a[at], row_scale[at % n] + column_scale[at / n]);
}

template <class T>
__global__ void __launch_bounds__(256) large_diagonal(int n, const T *a, double *ret) {
    for (int i = (int)(blockIdx.x * 256 + threadIdx.x); i < n; i += (int)gridDim.x * 256)
        ret[i] = (double)a[(int64_t)i * (n + 1)];
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

/* ---- float32 copies, for factors in mixed precision ---- */

template <class T>
__global__ void __launch_bounds__(256) large_narrow(int64_t all, const T *from, float *to, int e) {
    for (int64_t at = (int64_t)blockIdx.x * 256 + threadIdx.x; at < all;
         at += (int64_t)gridDim.x * 256)
        to[at] = (float)ldexp((double)from[at], -e);
}
/* Columns, each brought near to 1 by a power of two; *exponents says which. */
template <class T>
__global__ void __launch_bounds__(256)
    large_narrow_columns(int n, int k, const T *from, float *to, int *exponents) {
    team_of_block team;
    for (int c = (int)blockIdx.x; c < k; c += (int)gridDim.x) {
        const T *x = from + (int64_t)c * n;
        double most = 0;
        int e;
        for (int i = team.rank(); i < n; i += team.size())
            most = size_of((double)x[i]) > most ? size_of((double)x[i]) : most;
        most = team.most(most);
        e = is_finite(most) ? exponent_of(most) : 0;
        for (int i = team.rank(); i < n; i += team.size())
            to[(int64_t)c * n + i] = (float)ldexp((double)x[i], -e);
        if (team.rank() == 0) exponents[c] = e;
    }
}
template <class T>
__global__ void __launch_bounds__(256)
    large_widen_columns(int n, int k, const float *from, T *to, const int *exponents, int e) {
    int64_t all = (int64_t)n * k;
    for (int64_t at = (int64_t)blockIdx.x * 256 + threadIdx.x; at < all;
         at += (int64_t)gridDim.x * 256)
        to[at] = (T)ldexp((double)from[at], exponents[at / n] - e);
}

/* ---- right-hand sides ---- */

/* Sizes of what is not above the windows' tops in the job's columns: a block each. */
template <class T>
__global__ void __launch_bounds__(256)
    large_measure_b(struct solve_shape shape, const T *b, int k, const int *row_scale,
                    const struct large_window *windows, struct large_column *ret) {
    team_of_block team;
    for (int c = (int)blockIdx.x; c < k; c += (int)gridDim.x) {
        double most = 0, exponent = -SOLVE_TOP;
        int more = 0, floor;
        for (int i = team.rank(); i < shape.n; i += team.size()) {
            double size = size_of((double)b[i * shape.b_row + c * shape.b_column]);
            int e = exponent_of(size) + (row_scale != nullptr ? row_scale[i] : 0);
            if (size != 0 && e <= windows[c].top && e > exponent) exponent = e;
        }
        exponent = team.most(exponent);
        floor = (int)exponent - precision<T>::band;
        for (int i = team.rank(); i < shape.n; i += team.size()) {
            double size = size_of((double)b[i * shape.b_row + c * shape.b_column]);
            int e = exponent_of(size) + (row_scale != nullptr ? row_scale[i] : 0);
            if (size == 0 || e > windows[c].top) continue;
            more |= e <= floor;
            most = e > floor && size > most ? size : most;
        }
        most = team.most(most);
        more = team.any(more);
        if (team.rank() != 0) continue;
        ret[c].b_most = most;
        ret[c].b_more = more;
        ret[c].b_exponent = exponent == -SOLVE_TOP ? 0 : (int)exponent;
    }
}
/* Columns from the job to b ... */
template <class T>
__global__ void __launch_bounds__(256)
    large_load_b(struct solve_shape shape, const T *from, int k, const int *row_scale,
                 const struct large_window *windows, T *to) {
    int64_t all = (int64_t)shape.n * k;
    for (int64_t at = (int64_t)blockIdx.x * 256 + threadIdx.x; at < all;
         at += (int64_t)gridDim.x * 256) {
        int64_t i = at % shape.n, c = at / shape.n;
        const struct large_window &w = windows[c];
        int scale = row_scale != nullptr ? row_scale[i] : 0, e;
        T value = from[i * shape.b_row + c * shape.b_column];
        e = exponent_of((double)value) + scale;
        to[at] = w.floor == LARGE_PLAIN      ? value
                 : e > w.floor && e <= w.top ? (T)ldexp((double)value, scale - w.exponent)
                                             : (T)0;
    }
}
/* ... and from x to the job, or what x adds to what is there. */
template <class T>
__global__ void __launch_bounds__(256)
    large_store_x(struct solve_shape shape, const T *from, int k, const int *column_scale, int add,
                  struct large_window *windows, T *to) {
    int64_t all = (int64_t)shape.n * k;
    for (int64_t at = (int64_t)blockIdx.x * 256 + threadIdx.x; at < all;
         at += (int64_t)gridDim.x * 256) {
        int64_t i = at / k, c = at % k;
        int e = (column_scale != nullptr ? column_scale[i] : 0) + windows[c].exponent;
        T value = from[c * shape.n + i], *there = to + i * shape.columns + c;
        value = e == 0 ? value : (T)ldexp((double)value, e);
        *there = value = add ? *there + value : value;
        if (!is_finite((double)value)) windows[c].beyond = 1;
    }
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
__global__ void __launch_bounds__(256)
    large_measure(int n, int k, const T *x, const T *r, const T *d, const int *row_scale,
                  const int *column_scale, struct large_column *ret) {
    team_of_block team;
    bool scaled = row_scale != nullptr;
    for (int c = (int)blockIdx.x; c < k; c += (int)gridDim.x) {
        struct wide most_x = wide_make(0, 0, scaled), most_r = most_x, most_d = most_x;
        double plain_x = 0, plain_d = 0;
        int bad = 0;
        for (int i = team.rank(); i < n; i += team.size()) {
            double sx = size_of((double)x[(int64_t)c * n + i]);
            double sr = size_of((double)r[(int64_t)c * n + i]);
            double sd = size_of((double)d[(int64_t)c * n + i]);
            struct wide wx, wr, wd;
            plain_d = !(sd <= plain_d) ? sd : plain_d; /* a NaN stays, in this thread */
            bad |= is_finite(plain_d) ? 0 : 2;
            wd = wide_make(is_finite(sd) ? sd : 0, scaled ? column_scale[i] : 0, scaled);
            if (wd.e > most_d.e || (wd.e == most_d.e && wd.m > most_d.m)) most_d = wd;
            bad |= is_finite(sx) && is_finite(sr) ? 0 : 1;
            if (!is_finite(sx) || !is_finite(sr)) continue;
            plain_x = sx > plain_x ? sx : plain_x;
            wx = wide_make(sx, scaled ? column_scale[i] : 0, scaled);
            wr = wide_make(sr, scaled ? -row_scale[i] : 0, scaled);
            if (wx.e > most_x.e || (wx.e == most_x.e && wx.m > most_x.m)) most_x = wx;
            if (wr.e > most_r.e || (wr.e == most_r.e && wr.m > most_r.m)) most_r = wr;
        }
        most_x = wide_most(team, most_x, scaled);
        most_r = wide_most(team, most_r, scaled);
        most_d = wide_most(team, most_d, scaled);
        plain_x = team.most(plain_x);
        plain_d = team.most(is_finite(plain_d) ? plain_d : 0);
        bad = team.any(bad & 1) | 2 * team.any(bad & 2);
        if (team.rank() != 0) continue;
        ret[c].x = most_x;
        ret[c].r = most_r;
        ret[c].d = most_d;
        ret[c].x_most = plain_x;
        ret[c].d_most = plain_d;
        ret[c].r_zero = most_r.m == 0;
        ret[c].bad = bad;
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
__global__ void __launch_bounds__(256) large_refuse(struct solve_shape shape, T *x) {
    int64_t all = (int64_t)shape.n * shape.columns;
    for (int64_t at = (int64_t)blockIdx.x * 256 + threadIdx.x; at < all;
         at += (int64_t)gridDim.x * 256)
        x[at] = (T)precision<T>::nan();
}
template <class T>
__global__ void __launch_bounds__(1)
    large_report(struct solve_batch batch, int64_t system, struct solve_matrix matrix,
                 struct solve_outcome outcome) {
    report(batch, system, matrix, outcome);
}

#endif
