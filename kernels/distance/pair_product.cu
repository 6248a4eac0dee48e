/* Squared distances from a matrix product, with repairs.
 *
 * The product is float64 whatever the points are: a float32 distance comes out as if computed
 * exactly, and a float64 one is good where |a|^2 + |b|^2 is not much larger than it. Where it is,
 * the entry is computed again as pair_tiles.cuh does it: the whole tile if it has many such, a warp
 * an entry if few. Where x stands alone, only tiles on and above the diagonal are computed, and
 * mirrored. Read next: pair_sinks.cuh. */
#include "kernels/distance/pair_product.cuh"

#include "kernels/distance/pair_sinks.cuh"
#include "kernels/numeric/dd_warp.cuh"

#define FEW 256 /* entries of a tile that are computed again one by one */

/* ---- points ---- */

/* A warp does a point: to = (x - mean) sqrt(w), and its squared norm. */
template <class T>
static __device__ void centre_point(const T *x, const T *w, const struct dd *means, int64_t k,
                                    double *to, double *norm) {
    struct dd sum = {0, 0};
    for (int64_t d = (int64_t)threadIdx.x % BLASD_WARP; d < k; d += BLASD_WARP) {
        double e = __dsub_rn((double)x[d], means[d].hi);
        if (w != nullptr) e = w[d] == 0 ? 0 : __dmul_rn(e, __dsqrt_rn((double)w[d]));
        to[d] = e;
        sum = dd_add(sum, dd_two_product(e, e));
    }
    sum = dd_lanes_sum(sum, BLASD_WARP);
    if (threadIdx.x % BLASD_WARP == 0) *norm = __dadd_rn(sum.hi, sum.lo);
}

template <class T>
__global__ void __launch_bounds__(PAIR_THREADS)
    centre_points_of(struct pair_args args, struct pair_product product, int64_t number,
                     const struct dd *means) {
    struct pair_problem<T> problem = pair_locate<T>(args, number);
    int64_t warps = (int64_t)gridDim.x * (PAIR_THREADS / BLASD_WARP);
    int64_t warp = ((int64_t)blockIdx.x * PAIR_THREADS + threadIdx.x) / BLASD_WARP;
    int64_t points = args.alone ? args.m : args.m + args.n, k = args.k;
    means += number * k;
    for (int64_t i = warp; i < points; i += warps) {
        int64_t j = i - args.m;
        if (j < 0)
            centre_point<T>(problem.x + i * k, problem.w, means, k, product.x + i * k,
                            product.x_norms + i);
        else
            centre_point<T>(problem.y + j * k, problem.w, means, k, product.y + j * k,
                            product.y_norms + j);
    }
}

int pair_product_points(struct blasd_cuda_job *job, enum blasd_dtype dtype,
                        const struct pair_args &args, const struct pair_product &product,
                        int64_t number, const double *means, struct blasd_err *err) {
    int64_t blocks = (args.m + (args.alone ? 0 : args.n) + 7) / 8;
    int64_t most = (int64_t)job->facts->units * 32;
    dim3 grid((unsigned)(blocks < most ? blocks : most));
    const struct dd *centre = (const struct dd *)means;
    return pair_by_type(dtype, [&](auto zero) {
        return blasd_launch(centre_points_of<decltype(zero)>, grid, dim3(PAIR_THREADS), 0,
                            job->stream, err, args, product, number, centre);
    });
}

/* ---- entries ---- */

/* What a root or a half makes of a squared distance; float64, so that no float32 range is left. */
template <class T> static __device__ __forceinline__ T end_square(int finish, double s) {
    return (T)(finish == FINISH_HALF ? pair_half(s) : finish == FINISH_ROOT ? __dsqrt_rn(s) : s);
}

/* The distance of two points by a warp, from differences; the same for (b, a). */
template <class T, bool weighted>
static __device__ T warp_distance(int finish, const T *a, const T *b, const T *w, int64_t k,
                                  int *flags) {
    T sum = 0;
    PAIR_FOURFOLD
    for (int64_t d = (int64_t)threadIdx.x % BLASD_WARP; d < k; d += BLASD_WARP) {
        T e = pair_abs(a[d] - b[d]);
        if (weighted) e = w[d] == 0 ? (T)0 : e * pair_root(w[d]);
        sum = pair_fma(e, e, sum);
    }
    for (int by = BLASD_WARP / 2; by > 0; by /= 2) sum += __shfl_xor_sync(BLASD_WARP_ALL, sum, by);
    if (finish == FINISH_HALF) return pair_half(sum);
    if (pair_odd(sum) && threadIdx.x % BLASD_WARP == 0)
        pair_note<T>(a, b, weighted ? w : nullptr, k, flags);
    return finish == FINISH_ROOT ? pair_root(sum) : sum;
}

/* Entries of a tile that were not believed: their places in it, row by row. */
struct doubtful {
    int count;
    uint16_t places[FEW];
};

template <class T>
static __device__ __forceinline__ void read_product(const struct pair_args &args,
                                                    const struct pair_product &product, int64_t row,
                                                    int64_t column, int64_t left, bool triangle,
                                                    struct doubtful &doubtful,
                                                    T (&v)[PAIR_EACH][PAIR_EACH]) {
    int own_row = (int)threadIdx.x / 16 * PAIR_EACH, own_column = (int)threadIdx.x % 16 * PAIR_EACH;
    int64_t width = args.n - left;
    double x_norm[PAIR_EACH], y_norm[PAIR_EACH];
    PAIR_FOUR(r) {
        int64_t i = row + own_row + r, j = column + own_column + r;
        x_norm[r] = product.x_norms[args.first_row + (i < args.m ? i : args.m - 1)];
        y_norm[r] = product.y_norms[j < args.n ? j : args.n - 1];
    }
    PAIR_ENTRIES(r, c) {
        int64_t i = row + own_row + r, j = column + own_column + c;
        bool there = i < args.m && j < args.n;
        double all = __dadd_rn(x_norm[r], y_norm[c]);
        double s = there ? __dadd_rn(all, product.product[i * width + j - left]) : 0;
        /* a point with numbers only is 0 away from itself */
        if (triangle && j == args.first_row + i && all < 0x1p1000) {
            v[r][c] = 0;
            continue;
        }
        v[r][c] = end_square<T>(args.finish, s);
        if (triangle && j < args.first_row + i) continue; /* its mirror image counts */
        /* NaN is not believed either, nor what may have left the range of numbers */
        if (there && !(s >= product.doubt * all && all > 0x1p-900 && all < 0x1p1000)) {
            int place = atomicAdd(&doubtful.count, 1);
            if (place < FEW)
                doubtful.places[place] = (uint16_t)((own_row + r) * PAIR_SIDE + own_column + c);
        }
    }
}

/* One entry again, into the matrix and where it is mirrored. */
template <class T, bool weighted>
static __device__ void repair_entry(const struct pair_args &args, const struct pair_matrix &out,
                                    const struct pair_problem<T> &problem, int64_t i, int64_t j) {
    T value = warp_distance<T, weighted>(args.finish, problem.x + i * args.k,
                                         problem.y + j * args.k, problem.w, args.k, problem.flags);
    int64_t whole = args.first_row + i;
    if (threadIdx.x % BLASD_WARP != 0 || (out.condensed && j <= whole)) return;
    if (out.condensed) {
        pair_put(out.d, pair_place(args, out, whole, j), value, out.storage);
        return;
    }
    pair_put(out.d, whole * args.n + j, value, out.storage);
    if (out.mirrored && j > whole) pair_put(out.d, j * args.n + whole, value, out.storage);
}

/* A block does a tile. `left`: the column at which the product begins. */
template <class T, bool weighted>
__global__ void __launch_bounds__(PAIR_THREADS, 2)
    finish_product(struct pair_args args, struct pair_product product, struct pair_matrix out,
                   int64_t left) {
    BLASD_STATIC_SHARED(struct pair_shared<T>, sh);
    BLASD_STATIC_SHARED(T, stage, [PAIR_THREADS / BLASD_WARP][2 * PAIR_SIDE]);
    BLASD_STATIC_SHARED(struct doubtful, doubtful);
    int64_t across = (args.n - left + PAIR_SIDE - 1) / PAIR_SIDE;
    int64_t row = blockIdx.x / across * PAIR_SIDE;
    int64_t column = left + blockIdx.x % across * PAIR_SIDE, whole = args.first_row + row;
    struct pair_problem<T> problem = pair_locate<T>(args, 0);
    bool triangle = out.condensed || out.mirrored;
    char *d = out.d + (out.condensed ? 0 : args.first_row * args.n * out.element);
    T v[PAIR_EACH][PAIR_EACH];
    int count;
    if (triangle && column + PAIR_SIDE - 1 < whole) return; /* below the diagonal */
    if (threadIdx.x == 0) doubtful.count = 0;
    __syncthreads();
    read_product<T>(args, product, row, column, left, triangle, doubtful, v);
    __syncthreads();
    count = doubtful.count;
    if (count > FEW)
        pair_tile<T, weighted ? LOOP_SQUARES_W : LOOP_SQUARES>(args, problem, row, column, false,
                                                               sh, v);
    pair_write<T>(args, out, d, row, column, v, stage[threadIdx.x / BLASD_WARP]);
    if (out.mirrored && column > whole) {
        pair_write_mirrored<T>(args, out, out.d, row, column, v);
    } else if (out.mirrored) { /* on the diagonal one half is written over the other */
        __syncthreads();
        PAIR_ENTRIES(r, c) {
            int64_t i = row + (int)threadIdx.x / 16 * PAIR_EACH + r;
            int64_t j = column + (int)threadIdx.x % 16 * PAIR_EACH + c;
            if (i < args.m && j < args.n && j > args.first_row + i)
                pair_put(out.d, j * args.n + args.first_row + i, v[r][c], out.storage);
        }
    }
    if (count > FEW) return;
    __syncthreads(); /* what is repaired is written after what was there */
    for (int e = (int)threadIdx.x / BLASD_WARP; e < count; e += PAIR_THREADS / BLASD_WARP) {
        int place = doubtful.places[e];
        repair_entry<T, weighted>(args, out, problem, row + place / PAIR_SIDE,
                                  column + place % PAIR_SIDE);
    }
}

template <class T, bool weighted>
static int finish_rows(struct blasd_cuda_job *job, const struct pair_args &args,
                       const struct pair_product &product, const struct pair_matrix &out,
                       int64_t left, struct blasd_err *err) {
    int64_t across = (args.n - left + PAIR_SIDE - 1) / PAIR_SIDE;
    int64_t blocks = across * ((args.m + PAIR_SIDE - 1) / PAIR_SIDE);
    return blasd_launch(finish_product<T, weighted>, dim3((unsigned)blocks), dim3(PAIR_THREADS), 0,
                        job->stream, err, args, product, out, left);
}

int pair_product_rows(struct blasd_cuda_job *job, enum blasd_dtype dtype, bool weighted,
                      const struct pair_args &args, const struct pair_product &product,
                      const struct pair_matrix &out, struct blasd_err *err) {
    /* whole tiles to the left of the diagonal are not computed */
    int64_t left = out.condensed || out.mirrored ? args.first_row / PAIR_SIDE * PAIR_SIDE : 0;
    struct blasd_gpu_gemm g = {};
    int code;
    g.dtype = g.out = BLASD_float64;
    g.trans_b = true;
    g.m = args.m;
    g.n = args.n - left;
    g.k = g.lda = g.ldb = args.k;
    g.ldc = g.n;
    g.alpha = -2;
    g.a = product.x + args.first_row * args.k;
    g.b = product.y + left * args.k;
    g.c = product.product;
    g.count = 1;
    code = job->calls->gemm(job->stream, &g, err);
    if (code != 0) return code;
    return pair_by_type(dtype, [&](auto zero) {
        return weighted ? finish_rows<decltype(zero), true>(job, args, product, out, left, err)
                        : finish_rows<decltype(zero), false>(job, args, product, out, left, err);
    });
}
