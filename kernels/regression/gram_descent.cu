/* Gradient descent on the Gram matrix: b -= rate 2/n (G b - h), step after step in one launch, the
 * matrix in registers of a block; where it does not fit there, the whole grid makes a step and
 * waits for itself. Read next: gram.cuh. */
#include "kernels/regression/gram.cuh"

#define THREADS 256
#define WIDE_THREADS 512
#define LANES 4 /* that share a row of the matrix, at most */

/* The matrix and X'Wy in the user's units, whole; b = 0. */
static __global__ void __launch_bounds__(THREADS)
    start(struct gram_shape s, struct gram_arrays a, struct gram_descent d) {
    int q = s.q, t = s.t, width = q + t;
    int64_t each = (int64_t)q * width, all = s.problems * each;
    for (int64_t at = (int64_t)blockIdx.x * THREADS + threadIdx.x; at < all;
         at += (int64_t)gridDim.x * THREADS) {
        int64_t problem = at / each;
        int i = (int)(at % each / width), l = (int)(at % width);
        const struct gram_column *columns = a.columns + problem * width;
        if (l < q) {
            int64_t from = problem * q * q + (l < i ? l * q + i : i * q + l);
            d.g[(problem * q + i) * q + l] =
                ldexp(dd_round(a.gram[from]), columns[i].exponent + columns[l].exponent);
        } else {
            int64_t to = (problem * q + i) * t + l - q;
            d.h[to] =
                ldexp(dd_round(a.with_y[to]), columns[i].exponent + gram_exponent(columns[l]));
            d.b[to] = 0;
        }
    }
}

int gram_descent_start(const struct gram_shape *s, const struct gram_arrays *arrays,
                       const struct gram_descent *descent, struct blasd_gpu_stream *stream,
                       struct blasd_err *err) {
    int64_t all = s->problems * s->q * (s->q + s->t), blocks = (all + THREADS - 1) / THREADS;
    if (blocks == 0) return 0;
    if (blocks > s->units * 32) blocks = s->units * 32;
    return blasd_launch(start, dim3((unsigned)blocks), dim3(THREADS), 0, stream, err, *s, *arrays,
                        *descent);
}

/* A block a problem and target; `lanes` threads a row, each with EACH of its elements at most:
 * element e of lane l is column e lanes + l. */
template <int EACH>
static __global__ void __launch_bounds__(128 * LANES)
    descend(struct gram_shape s, struct gram_descent d, const double *total, int lanes,
            int64_t steps) {
    BLASD_STATIC_SHARED(double, now, [2][128]);
    int tid = (int)threadIdx.x, row = tid / lanes, lane = tid % lanes, q = s.q;
    int64_t problem = blockIdx.x / s.t, l = blockIdx.x % s.t;
    double own[EACH], rate = d.learning_rate * 2 / total[problem], h = 0, b = 0;
    double *to = d.b + (problem * q + row) * s.t + l;
    bool mine = row < q;
    for (int e = 0; e < EACH; e++) {
        int column = e * lanes + lane;
        own[e] = mine && column < q ? d.g[(problem * q + row) * q + column] : 0;
    }
    if (mine) {
        h = d.h[(problem * q + row) * s.t + l];
        b = *to;
    }
    for (int i = tid; i < 256; i += (int)blockDim.x) now[i / 128][i % 128] = 0;
    __syncthreads();
    if (mine && lane == 0) now[0][row] = b;
    __syncthreads();
    for (int64_t step = 0; step < steps; step++) {
        const double *from = now[step & 1];
        double sum[2] = {0, 0}, along;
        for (int e = 0; e < EACH; e++)
            if (e * lanes < q) sum[e & 1] = __fma_rn(own[e], from[e * lanes + lane], sum[e & 1]);
        along = sum[0] + sum[1];
        for (int by = lanes / 2; by > 0; by /= 2)
            along += __shfl_xor_sync(BLASD_WARP_ALL, along, by);
        b -= __dmul_rn(rate, along - h);
        if (mine && lane == 0) now[(step + 1) & 1][row] = b;
        __syncthreads(); /* the other half was read before the last one */
    }
    if (mine && lane == 0) *to = b;
}

/* Steps of all problems and targets by a grid launched together, a warp an element: from b to other
 * and back. After an odd number b is where other was. */
static __global__ void __launch_bounds__(WIDE_THREADS)
    descend_wide(struct gram_shape s, struct gram_descent d, const double *total, int64_t steps) {
    int lane = (int)threadIdx.x % BLASD_WARP, q = s.q, t = s.t;
    int64_t all = s.problems * q * t, warps = (int64_t)gridDim.x * WIDE_THREADS / BLASD_WARP;
    int64_t first = ((int64_t)blockIdx.x * WIDE_THREADS + threadIdx.x) / BLASD_WARP;
    for (int64_t step = 0; step < steps; step++) {
        const double *from = step % 2 == 0 ? d.b : d.other;
        double *to = step % 2 == 0 ? d.other : d.b;
        for (int64_t at = first; at < all; at += warps) {
            int64_t problem = at / t / q, l = at % t;
            const double *row = d.g + at / t * q, *b = from + problem * q * t + l;
            double sum = 0;
            for (int j = lane; j < q; j += BLASD_WARP)
                sum = __fma_rn(row[j], b[(int64_t)j * t], sum);
            for (int by = BLASD_WARP / 2; by > 0; by /= 2)
                sum += __shfl_xor_sync(BLASD_WARP_ALL, sum, by);
            if (lane == 0)
                to[at] = from[at] - __dmul_rn(d.learning_rate * 2 / total[problem], sum - d.h[at]);
        }
        blasd_grid_barrier();
    }
}

int gram_descent_steps(const struct gram_shape *s, const struct gram_arrays *arrays,
                       struct gram_descent *descent, int64_t steps, struct blasd_gpu_stream *stream,
                       struct blasd_err *err) {
    int64_t blocks = s->problems * s->t, all = blocks * s->q;
    int lanes = s->q <= 8 ? 1 : s->q <= 16 ? 2 : LANES, code;
    unsigned threads = (unsigned)((s->q * lanes + BLASD_WARP - 1) / BLASD_WARP * BLASD_WARP);
    if (all == 0) return 0;
    if (s->q <= 32)
        return blasd_launch(descend<8>, dim3((unsigned)blocks), dim3(threads), 0, stream, err, *s,
                            *descent, arrays->total, lanes, steps);
    if (s->q <= 64)
        return blasd_launch(descend<16>, dim3((unsigned)blocks), dim3(threads), 0, stream, err, *s,
                            *descent, arrays->total, lanes, steps);
    if (s->q <= 128)
        return blasd_launch(descend<32>, dim3((unsigned)blocks), dim3(threads), 0, stream, err, *s,
                            *descent, arrays->total, lanes, steps);
    code = blasd_launch_together(descend_wide, s->units, dim3(WIDE_THREADS), stream, err, *s,
                                 *descent, arrays->total, steps);
    if (steps % 2 != 0) {
        double *b = descent->b;
        descent->b = descent->other;
        descent->other = b;
    }
    return code;
}

/* b in the units of the columns, for the residuals; the slopes 2/n (G b - h). */
static __global__ void __launch_bounds__(THREADS)
    finish(struct gram_shape s, struct gram_arrays a, struct gram_descent d) {
    int64_t each = (int64_t)s.q * s.t, all = s.problems * each;
    for (int64_t at = (int64_t)blockIdx.x * THREADS + threadIdx.x; at < all;
         at += (int64_t)gridDim.x * THREADS) {
        int64_t problem = at / each, l = at % s.t, to = at + problem * each;
        const struct gram_column *columns = a.columns + problem * (s.q + s.t);
        const double *row = d.g + at / s.t * s.q, *b = d.b + problem * each + l;
        double rate = 2 / a.total[problem], sum = -d.h[at];
        for (int j = 0; j < s.q; j++) sum = __fma_rn(row[j], b[(int64_t)j * s.t], sum);
        d.slopes[to] = -rate * d.h[at];
        d.slopes[to + each] = rate * sum;
        a.b[at] = dd_from(
            ldexp(d.b[at], columns[at / s.t % s.q].exponent - gram_exponent(columns[s.q + l])));
    }
}

int gram_descent_end(const struct gram_shape *s, const struct gram_arrays *arrays,
                     const struct gram_descent *descent, struct blasd_gpu_stream *stream,
                     struct blasd_err *err) {
    int64_t all = s->problems * s->q * s->t, blocks = (all + THREADS - 1) / THREADS;
    if (blocks == 0) return 0;
    if (blocks > s->units * 32) blocks = s->units * 32;
    return blasd_launch(finish, dim3((unsigned)blocks), dim3(THREADS), 0, stream, err, *s, *arrays,
                        *descent);
}
