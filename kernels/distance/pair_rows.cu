/* Points made ready on the device, and their statistics. Read next: pair_rows.cuh says for what. */
#include "kernels/distance/pair_rows.cuh"

#include "kernels/numeric/dd_warp.cuh"

#define ROWS_THREADS 256
/* Points whose sums are one partial sum: at least, and partial sums at most where there are more.
 */
#define CHUNK_LEAST 256
#define CHUNKS_MOST 64

/* ---- rows ---- */

/* A power of two that brings a row of extreme numbers to where squares are safe; by a warp. */
static __device__ double row_scale(const double *x, const double *w, int64_t k) {
    double largest = 0;
    for (int64_t d = (int64_t)threadIdx.x % BLASD_WARP; d < k; d += BLASD_WARP)
        if (w == nullptr || w[d] != 0) largest = fmax(largest, fabs(x[d]));
    for (int by = BLASD_WARP / 2; by > 0; by /= 2)
        largest = fmax(largest, __shfl_xor_sync(BLASD_WARP_ALL, largest, by));
    return largest > 0x1p400 ? 0x1p-600 : largest < 0x1p-400 ? 0x1p600 : 1;
}

/* The weighted mean of a row, scaled, by a warp; a constant row's mean is that constant, exactly.
 */
static __device__ struct dd row_mean(const double *x, const double *w, int64_t k, double scale) {
    struct dd sum = {0, 0}, total = {0, 0};
    bool constant = true;
    int64_t first = 0; /* of those that count */
    while (w != nullptr && first + 1 < k && w[first] == 0) first++;
    for (int64_t d = (int64_t)threadIdx.x % BLASD_WARP; d < k; d += BLASD_WARP) {
        double weight = w == nullptr ? 1 : w[d];
        if (weight == 0) continue;
        if (x[d] != x[first]) constant = false;
        sum = dd_add(sum, dd_two_product(scale * x[d], weight));
        total = dd_add(total, {weight, 0});
    }
    sum = dd_lanes_sum(sum, BLASD_WARP);
    total = dd_lanes_sum(total, BLASD_WARP);
    constant = __all_sync(BLASD_WARP_ALL, constant);
    return constant && k > 0 ? dd{scale * x[first], 0} : dd_divide(sum, total);
}

static __device__ void unit_row(const double *x, const double *w, int64_t k, bool centred,
                                double *to, int *flags) {
    struct dd squares = {0, 0}, mean = {0, 0};
    double length, scale = row_scale(x, w, k);
    if (centred) mean = row_mean(x, w, k, scale);
    for (int64_t d = (int64_t)threadIdx.x % BLASD_WARP; d < k; d += BLASD_WARP) {
        struct dd e = dd_subtract(dd_from(scale * x[d]), mean), square;
        if (w != nullptr && w[d] == 0) continue; /* NaN does not count there either */
        square = dd_two_product(e.hi, e.hi);
        square.lo = __fma_rn(2 * e.hi, e.lo, square.lo);
        if (w != nullptr) square = dd_scale(square, w[d]);
        squares = dd_add(squares, square);
    }
    length = dd_round(dd_sqrt(dd_lanes_sum(squares, BLASD_WARP)));
    if (length == 0 && k > 0 && threadIdx.x % BLASD_WARP == 0) atomicOr(flags, PAIR_ZERO_ROW);
    for (int64_t d = (int64_t)threadIdx.x % BLASD_WARP; d < k; d += BLASD_WARP) {
        struct dd e = dd_subtract(dd_from(scale * x[d]), mean);
        double value = __dadd_rn(e.hi, e.lo);
        if (w != nullptr) value = w[d] == 0 ? 0 : __dmul_rn(value, __dsqrt_rn(w[d]));
        to[d] = __ddiv_rn(value, length);
    }
}

static __device__ void share_row(const double *x, int64_t k, double *to, int *flags) {
    struct dd sum = {0, 0};
    double all, scale = row_scale(x, nullptr, k);
    bool none = false;
    for (int64_t d = (int64_t)threadIdx.x % BLASD_WARP; d < k; d += BLASD_WARP) {
        sum = dd_add(sum, {scale * x[d], 0});
        if (x[d] < 0) none = true;
    }
    sum = dd_lanes_sum(sum, BLASD_WARP);
    all = __dadd_rn(sum.hi, sum.lo);
    none = !__all_sync(BLASD_WARP_ALL, !none);
    if (all == 0 && !none && k > 0 && threadIdx.x % BLASD_WARP == 0) atomicOr(flags, PAIR_ZERO_ROW);
    none |= all == 0;
    for (int64_t d = (int64_t)threadIdx.x % BLASD_WARP; d < k; d += BLASD_WARP)
        to[d] = none ? -1 : __ddiv_rn(scale * x[d], all);
}

/* A warp does a row. */
__global__ void __launch_bounds__(ROWS_THREADS) ready_rows(struct pair_ready r) {
    int64_t warps = (int64_t)gridDim.x * (ROWS_THREADS / BLASD_WARP);
    int64_t warp = ((int64_t)blockIdx.x * ROWS_THREADS + threadIdx.x) / BLASD_WARP;
    for (int64_t row = warp; row < r.all_rows; row += warps) {
        int64_t task = row / r.rows;
        const double *x =
            reinterpret_cast<const double *>(r.from + task * r.from_step) + row % r.rows * r.k;
        const double *w =
            r.w == nullptr ? nullptr : reinterpret_cast<const double *>(r.w + task * r.w_step);
        double *to = reinterpret_cast<double *>(r.to) + row * r.k;
        if (r.kind == ROWS_SHARES)
            share_row(x, r.k, to, r.flags + task);
        else
            unit_row(x, w, r.k, r.kind == ROWS_CENTRED, to, r.flags + task);
    }
}

static dim3 blocks_for(struct blasd_cuda_job *job, int64_t work, int64_t each) {
    int64_t blocks = (work + each - 1) / each, most = (int64_t)job->facts->units * 32;
    return dim3((unsigned)(blocks < 1 ? 1 : blocks < most ? blocks : most));
}

int pair_make_ready(struct blasd_cuda_job *job, const struct pair_ready &ready,
                    struct blasd_err *err) {
    return blasd_launch(ready_rows, blocks_for(job, ready.all_rows, ROWS_THREADS / BLASD_WARP),
                        dim3(ROWS_THREADS), 0, job->stream, err, ready);
}

__global__ void __launch_bounds__(ROWS_THREADS)
    reciprocals(const double *v, double *w, int64_t count) {
    for (int64_t i = (int64_t)blockIdx.x * ROWS_THREADS + threadIdx.x; i < count;
         i += (int64_t)gridDim.x * ROWS_THREADS)
        w[i] = 1 / v[i];
}

int pair_reciprocals(struct blasd_cuda_job *job, const double *v, double *w, int64_t count,
                     struct blasd_err *err) {
    return blasd_launch(reciprocals, blocks_for(job, count, ROWS_THREADS), dim3(ROWS_THREADS), 0,
                        job->stream, err, v, w, count);
}

/* ---- statistics of coordinates ---- */

static __host__ __device__ inline int64_t points_of(const struct pair_args &args) {
    return args.alone ? args.m : args.m + args.n;
}

/* partial[problem][chunk][coordinate] = sum over the chunk's points of x, or of (x - mean)^2: 32
 * coordinates a block, a warp for each eighth of the points. */
template <class T>
__global__ void __launch_bounds__(ROWS_THREADS)
    column_sums(struct pair_args args, const struct dd *means, struct dd *partial, int64_t chunks,
                int64_t each) {
    BLASD_STATIC_SHARED(struct dd, sums, [ROWS_THREADS / BLASD_WARP][BLASD_WARP]);
    int64_t groups = (args.k + BLASD_WARP - 1) / BLASD_WARP, group = blockIdx.x % groups;
    int64_t chunk = blockIdx.x / groups % chunks, number = blockIdx.x / groups / chunks;
    int64_t d = group * BLASD_WARP + threadIdx.x % BLASD_WARP, points = points_of(args);
    struct pair_problem<T> problem = pair_locate<T>(args, number);
    struct dd sum = {0, 0}, mean = {0, 0};
    if (means != nullptr && d < args.k) mean = means[number * args.k + d];
    int64_t end = d >= args.k ? 0 : (chunk + 1) * each < points ? (chunk + 1) * each : points;
    PAIR_FOURFOLD
    for (int64_t i = chunk * each + threadIdx.x / BLASD_WARP; i < end;
         i += ROWS_THREADS / BLASD_WARP) {
        double x =
            (double)(i < args.m ? problem.x[i * args.k + d] : problem.y[(i - args.m) * args.k + d]);
        struct dd e = dd_subtract(dd_from(x), mean), square = e;
        if (means != nullptr) {
            square = dd_two_product(e.hi, e.hi);
            square.lo = __fma_rn(2 * e.hi, e.lo, square.lo);
        }
        sum = dd_add(sum, square);
    }
    sums[threadIdx.x / BLASD_WARP][threadIdx.x % BLASD_WARP] = sum;
    __syncthreads();
    if (threadIdx.x >= BLASD_WARP || d >= args.k) return;
    for (int i = 1; i < ROWS_THREADS / BLASD_WARP; i++) sum = dd_add(sum, sums[i][threadIdx.x]);
    partial[(number * chunks + chunk) * args.k + d] = sum;
}

/* From partial sums to means, or to weights 1 / variance. */
__global__ void __launch_bounds__(ROWS_THREADS)
    column_ends(const struct dd *partial, int64_t chunks, int64_t k, int64_t problems,
                double points, struct dd *means, double *w, int64_t task_problems, int *flags) {
    for (int64_t i = (int64_t)blockIdx.x * ROWS_THREADS + threadIdx.x; i < problems * k;
         i += (int64_t)gridDim.x * ROWS_THREADS) {
        struct dd sum = {0, 0};
        PAIR_FOURFOLD
        for (int64_t c = 0; c < chunks; c++)
            sum = dd_add(sum, partial[(i / k * chunks + c) * k + i % k]);
        if (w == nullptr) {
            means[i] = dd_divide(sum, {points, 0});
        } else {
            struct dd variance = dd_divide(sum, {points - 1, 0});
            double whole = __dadd_rn(variance.hi, variance.lo);
            w[i] = __ddiv_rn(1, whole);
            if (whole != 0 && !(whole > 0x1p-900 && whole < 0x1p900))
                atomicOr(flags + i / k / task_problems, PAIR_LEFT);
        }
    }
}

template <class T>
static int columns(struct blasd_cuda_job *job, const struct pair_args &args,
                   const struct pair_statistics &s, bool squares, double *w,
                   struct blasd_err *err) {
    int64_t blocks = (args.k + BLASD_WARP - 1) / BLASD_WARP * s.chunks * s.problems;
    struct dd *partial = (struct dd *)s.partial, *means = (struct dd *)s.means;
    int code;
    if (blocks > INT32_MAX)
        return blasd_fail(err, BLASD_E_job_too_large, "inputs.x", "there are too many points");
    code =
        blasd_launch(column_sums<T>, dim3((unsigned)blocks), dim3(ROWS_THREADS), 0, job->stream,
                     err, args, squares ? means : (struct dd *)nullptr, partial, s.chunks, s.each);
    if (code != 0) return code;
    return blasd_launch(column_ends, blocks_for(job, s.problems * args.k, ROWS_THREADS),
                        dim3(ROWS_THREADS), 0, job->stream, err, partial, s.chunks, args.k,
                        s.problems, (double)points_of(args), means, w, args.problems, args.flags);
}

int pair_means(struct blasd_cuda_job *job, enum blasd_dtype dtype, const struct pair_args &args,
               const struct pair_statistics &statistics, struct blasd_err *err) {
    return pair_by_type(dtype, [&](auto zero) {
        return columns<decltype(zero)>(job, args, statistics, false, nullptr, err);
    });
}

int pair_variances(struct blasd_cuda_job *job, const struct pair_args &args,
                   const struct pair_statistics &statistics, double *w, struct blasd_err *err) {
    int code = columns<double>(job, args, statistics, false, nullptr, err);
    return code != 0 ? code : columns<double>(job, args, statistics, true, w, err);
}

/* ---- covariance ---- */

/* to = the points of a problem, x and y, less the means. */
__global__ void __launch_bounds__(ROWS_THREADS)
    centre_points(struct pair_args args, int64_t number, const struct dd *means, double *to) {
    struct pair_problem<double> problem = pair_locate<double>(args, number);
    int64_t first = args.m * args.k, all = points_of(args) * args.k;
    for (int64_t i = (int64_t)blockIdx.x * ROWS_THREADS + threadIdx.x; i < all;
         i += (int64_t)gridDim.x * ROWS_THREADS) {
        double x = i < first ? problem.x[i] : problem.y[i - first];
        struct dd e = dd_subtract(dd_from(x), means[number * args.k + i % args.k]);
        to[i] = __dadd_rn(e.hi, e.lo);
    }
}

/* The right-hand sides that make a solution the inverse; keeps the diagonal of the matrix. */
__global__ void __launch_bounds__(ROWS_THREADS)
    identity(const double *matrix, double *diagonal, double *to, int64_t k) {
    for (int64_t i = (int64_t)blockIdx.x * ROWS_THREADS + threadIdx.x; i < k * k;
         i += (int64_t)gridDim.x * ROWS_THREADS) {
        to[i] = i / k == i % k ? 1 : 0;
        if (i / k == i % k) diagonal[i / k] = matrix[i];
    }
}

/* Where a variance has no more of its own, whatever the other coordinates say, than `units` of its
 * rounding (of elimination and of sums over the points) make doubtful, the host is asked. */
__global__ void __launch_bounds__(ROWS_THREADS)
    take_inverse(const double *diagonal, const double *inverse, double *v, int64_t k, double units,
                 double most, int *info) {
    for (int64_t i = (int64_t)blockIdx.x * ROWS_THREADS + threadIdx.x; i < k * k;
         i += (int64_t)gridDim.x * ROWS_THREADS) {
        int64_t row = i / k, column = i % k;
        v[i] = inverse[row > column ? i : column * k + row];
        if (row == column && !(inverse[i] * diagonal[row] * units < most)) atomicOr(info, 1);
    }
}

static int inverse_of(struct blasd_cuda_job *job, const struct pair_args &args,
                      const struct pair_statistics &s, int64_t number, double *v,
                      struct blasd_err *err) {
    int64_t k = args.k, points = points_of(args);
    dim3 blocks = blocks_for(job, k * k, ROWS_THREADS);
    struct blasd_gpu_gemm g = {};
    int code =
        blasd_launch(centre_points, blocks_for(job, points * k, ROWS_THREADS), dim3(ROWS_THREADS),
                     0, job->stream, err, args, number, (const struct dd *)s.means, s.centred);
    g.dtype = g.out = BLASD_float64;
    g.trans_a = true;
    g.m = g.n = g.lda = g.ldb = g.ldc = k;
    g.k = points;
    g.alpha = 1 / (double)(points - 1);
    g.a = g.b = s.centred;
    g.c = s.matrix;
    g.count = 1;
    if (code == 0) code = job->calls->gemm(job->stream, &g, err);
    if (code == 0)
        code = blasd_launch(identity, blocks, dim3(ROWS_THREADS), 0, job->stream, err,
                            (const double *)s.matrix, s.diagonal, s.inverse, k);
    if (code == 0)
        code = job->calls->potrf(job->stream, BLASD_float64, true, k, s.matrix, k, s.work,
                                 s.work_bytes, s.host_work, s.host_bytes, s.info + 2 * number, err);
    if (code == 0)
        code = job->calls->potrs(job->stream, BLASD_float64, true, k, k, s.matrix, k, s.inverse, k,
                                 s.info + 2 * number + 1, err);
    if (code == 0)
        code = blasd_launch(take_inverse, blocks, dim3(ROWS_THREADS), 0, job->stream, err,
                            (const double *)s.diagonal, (const double *)s.inverse,
                            v + number * k * k, k, 4 * ((double)k + 1) + sqrt((double)points),
                            s.most, s.info + 2 * number);
    return code;
}

int pair_covariances(struct blasd_cuda_job *job, const struct pair_args &args,
                     const struct pair_statistics &statistics, double *v, struct blasd_err *err) {
    int code = columns<double>(job, args, statistics, false, nullptr, err);
    for (int64_t p = 0; code == 0 && p < statistics.problems; p++)
        code = inverse_of(job, args, statistics, p, v, err);
    return code;
}

int pair_statistics_take(struct blasd_cuda_job *job, const struct pair_args &args, int64_t problems,
                         bool covariance, struct pair_statistics *ret, struct blasd_err *err) {
    size_t k = (size_t)args.k, points = (size_t)points_of(args);
    struct pair_statistics s = {};
    int code;
    s.problems = problems;
    s.each = (int64_t)(points + CHUNKS_MOST - 1) / CHUNKS_MOST;
    if (s.each < CHUNK_LEAST) s.each = CHUNK_LEAST;
    s.chunks = ((int64_t)points + s.each - 1) / s.each;
    code = blasd_cuda_take(job, (size_t)(s.chunks * problems) * k * sizeof(struct dd),
                           (void **)&s.partial, err);
    if (code == 0)
        code =
            blasd_cuda_take(job, (size_t)problems * k * sizeof(struct dd), (void **)&s.means, err);
    if (!covariance || code != 0) {
        *ret = s;
        return code;
    }
    if (k > INT32_MAX)
        return blasd_fail(err, BLASD_E_job_too_large, "inputs.x", "there are too many coordinates");
    code = blasd_cuda_take(job, points * k * sizeof(double), (void **)&s.centred, err);
    if (code == 0) code = blasd_cuda_take(job, k * k * sizeof(double), (void **)&s.matrix, err);
    if (code == 0) code = blasd_cuda_take(job, k * k * sizeof(double), (void **)&s.inverse, err);
    if (code == 0) code = blasd_cuda_take(job, k * sizeof(double), (void **)&s.diagonal, err);
    if (code == 0)
        code = job->calls->potrf_size(job->stream, BLASD_float64, true, args.k, args.k,
                                      &s.work_bytes, &s.host_bytes, err);
    if (code == 0) code = blasd_cuda_take(job, s.work_bytes, &s.work, err);
    if (code == 0) code = blasd_cuda_host(job, s.host_bytes, &s.host_work, err);
    *ret = s;
    return code;
}
