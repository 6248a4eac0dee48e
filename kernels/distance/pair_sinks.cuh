/* What becomes of tiles of the distance matrix on the device: the matrix itself, the nearest points
 * of each row, or all within a radius. The last two never write the matrix. Read next:
 * pair_calls.cuh, then cuda_distance.cu. */
#ifndef BLASD_KERNELS_DISTANCE_PAIR_SINKS_CUH
#define BLASD_KERNELS_DISTANCE_PAIR_SINKS_CUH

#include "kernels/cuda/mixed_batch.cuh"
#include "kernels/distance/pair_calls.cuh"
#include "kernels/distance/pair_tiles.cuh"

#include <type_traits>

static __device__ __forceinline__ void pair_put(void *d, int64_t at, float v, int storage) {
    if (storage == BLASD_float32)
        static_cast<float *>(d)[at] = v;
    else
        static_cast<uint16_t *>(d)[at] =
            storage == BLASD_float16 ? blasd_gpu_float16_write(v) : blasd_gpu_bfloat16_write(v);
}

/* float64 sums for a shorter result: by way of a float that no second rounding can go wrong with.
 */
static __device__ __forceinline__ float pair_odd_float(double v) {
    float nearest = (float)v;
    uint32_t bits;
    memcpy(&bits, &nearest, sizeof bits);
    if ((double)nearest == v || v != v || (bits & 1) != 0 || (bits & 0x7f800000u) == 0x7f800000u)
        return nearest;
    bits = (v > (double)nearest) == (v > 0) ? bits + 1 : bits - 1;
    memcpy(&nearest, &bits, sizeof bits);
    return nearest;
}
static __device__ __forceinline__ void pair_put(void *d, int64_t at, double v, int storage) {
    if (storage == BLASD_float64)
        static_cast<double *>(d)[at] = v;
    else
        pair_put(d, at, storage == BLASD_float32 ? (float)v : pair_odd_float(v), storage);
}

/* Four entries side by side, at an address that is aligned to all of them (to 16 bytes at most). */
static __device__ __forceinline__ void pair_put_four(void *d, int64_t at, double a, double b,
                                                     double c, double e, int storage) {
    double2 *to = reinterpret_cast<double2 *>(static_cast<double *>(d) + at);
    if (storage != BLASD_float64) {
        pair_put(d, at, a, storage);
        pair_put(d, at + 1, b, storage);
        pair_put(d, at + 2, c, storage);
        pair_put(d, at + 3, e, storage);
        return;
    }
    __stwb(to, make_double2(a, b)); /* by an assignment the compiler writes number by number */
    __stwb(to + 1, make_double2(c, e));
}
static __device__ __forceinline__ unsigned pair_halves(float a, float b, int storage) {
    unsigned low =
        storage == BLASD_float16 ? blasd_gpu_float16_write(a) : blasd_gpu_bfloat16_write(a);
    unsigned high =
        storage == BLASD_float16 ? blasd_gpu_float16_write(b) : blasd_gpu_bfloat16_write(b);
    return low | high << 16;
}
static __device__ __forceinline__ void pair_put_four(void *d, int64_t at, float a, float b, float c,
                                                     float e, int storage) {
    if (storage == BLASD_float32)
        __stwb(reinterpret_cast<float4 *>(static_cast<float *>(d) + at), make_float4(a, b, c, e));
    else
        __stwb(reinterpret_cast<uint2 *>(static_cast<uint16_t *>(d) + at),
               make_uint2(pair_halves(a, b, storage), pair_halves(c, e, storage)));
}

/* ---- the matrix ---- */

/* Where entry (i, j) of a problem goes; both are rows of the whole matrix. */
static __device__ __forceinline__ int64_t pair_place(const struct pair_args &args,
                                                     const struct pair_matrix &out, int64_t i,
                                                     int64_t j) {
    if (!out.condensed) return (i - args.first_row) * args.n + j;
    /* row i of the triangle starts behind rows of n-1, n-2, ... */
    return i * (2 * args.n - i - 1) / 2 + j - i - 1 - out.offset;
}

/* Writes the tile at (row, column). Where rows are aligned and the tile is whole, each thread
 * writes its four neighbours at once; elsewhere a warp's rows pass through `stage`, so that its
 * lanes write side by side. */
template <class T>
static __device__ __forceinline__ void pair_write(const struct pair_args &args,
                                                  const struct pair_matrix &out, void *d,
                                                  int64_t row, int64_t column,
                                                  const T (&v)[PAIR_EACH][PAIR_EACH], T *stage) {
    int lane = (int)threadIdx.x % BLASD_WARP, ty = (int)threadIdx.x / 16,
        tx = (int)threadIdx.x % 16;
    if (out.vectors && row + PAIR_SIDE <= args.m && column + PAIR_SIDE <= args.n) {
        int64_t at = (row + ty * PAIR_EACH) * args.n + column + tx * PAIR_EACH;
        PAIR_UNROLL
        for (int r = 0; r < PAIR_EACH; r++, at += args.n)
            pair_put_four(d, at, v[r][0], v[r][1], v[r][2], v[r][3], out.storage);
        return;
    }
    PAIR_FOUR(r) {
        __syncwarp();
        PAIR_FOUR(c)
        stage[ty % 2 * PAIR_SIDE + tx * PAIR_EACH + c] = v[r][c];
        __syncwarp();
        PAIR_ONCE
        for (int q = lane; q < 2 * PAIR_SIDE; q += BLASD_WARP) {
            int64_t i = row + (ty / 2 * 2 + q / PAIR_SIDE) * PAIR_EACH + r;
            int64_t j = column + q % PAIR_SIDE;
            if (i >= args.m || j >= args.n) continue;
            i += args.first_row;
            if (!out.condensed || j > i)
                pair_put(d, pair_place(args, out, i, j), stage[q], out.storage);
        }
    }
}

/* Writes the tile's mirror image: rows and columns change places. d: of the whole matrix. */
template <class T>
static __device__ __forceinline__ void pair_write_mirrored(const struct pair_args &args,
                                                           const struct pair_matrix &out, void *d,
                                                           int64_t row, int64_t column,
                                                           const T (&v)[PAIR_EACH][PAIR_EACH]) {
    int64_t i = args.first_row + row + (int)threadIdx.x / 16 * PAIR_EACH,
            end = args.first_row + args.m;
    int64_t j = column + (int)threadIdx.x % 16 * PAIR_EACH;
    PAIR_FOUR(c) {
        if (j + c >= args.n) break;
        int64_t at = (j + c) * args.n + i;
        if (out.vectors && i + PAIR_EACH <= end) {
            pair_put_four(d, at, v[0][c], v[1][c], v[2][c], v[3][c], out.storage);
            continue;
        }
        PAIR_FOUR(r)
        if (i + r < end) pair_put(d, at + r, v[r][c], out.storage);
    }
}

/* Block `at` of the matrices does `strip` tiles one below the other. */
template <class T, int LOOP>
static __device__ __forceinline__ void pair_matrix_block(const struct pair_args &args,
                                                         const struct pair_matrix &out,
                                                         int64_t at) {
    BLASD_STATIC_SHARED(struct pair_shared<T>, sh);
    BLASD_STATIC_SHARED(T, stage, [PAIR_THREADS / BLASD_WARP][2 * PAIR_SIDE]);
    int64_t across = (args.n + PAIR_SIDE - 1) / PAIR_SIDE;
    int64_t side = (int64_t)out.strip * PAIR_SIDE, down = (args.m + side - 1) / side;
    int64_t number = at / (across * down), place = at % (across * down);
    int64_t column = place % across * PAIR_SIDE, from = place / across * side;
    struct pair_problem<T> problem = pair_locate<T>(args, number);
    char *d =
        out.d + number / args.problems * out.task_step + number % args.problems * out.item_bytes;
    bool kept = false;
    for (int64_t row = from; row < from + side && row < args.m; row += PAIR_SIDE) {
        T v[PAIR_EACH][PAIR_EACH];
        int64_t whole_row = args.first_row + row;
        if (out.condensed && column + PAIR_SIDE - 1 <= whole_row) break; /* below the diagonal */
        if (out.mirrored && column < row) break;
        pair_tile<T, LOOP>(args, problem, row, column, kept, sh, v);
        kept = args.k <= PAIR_DEEP;
        pair_write<T>(args, out, d, row, column, v, stage[threadIdx.x / BLASD_WARP]);
        if (out.mirrored && column > row) pair_write_mirrored<T>(args, out, d, row, column, v);
    }
}

template <class T, int LOOP>
__global__ void __launch_bounds__(PAIR_THREADS, PAIR_BLOCKS(T, LOOP, 1))
    pair_matrix_tiles(struct pair_args args, struct pair_matrix out, int64_t first) {
    pair_matrix_block<T, LOOP>(args, out, first + blockIdx.x);
}

/* The same for jobs of different shapes. */
struct pair_matrix_work {
    struct pair_args args;
    struct pair_matrix out;
};
template <class T, int LOOP>
__global__ void __launch_bounds__(PAIR_THREADS, PAIR_BLOCKS(T, LOOP, 1))
    pair_matrix_shares(const blasd_share<pair_matrix_work> *shares, int count) {
    const blasd_share<pair_matrix_work> &share = blasd_share_of(shares, count);
    pair_matrix_block<T, LOOP>(share.args.args, share.args.out, share.block());
}

/* ---- the nearest ---- */

/* The order of neighbours: by distance, NaN last, then by index. */
template <class T>
static __device__ __forceinline__ bool pair_nearer(T d, uint32_t j, T than, uint32_t than_j) {
    if (d < than) return true;
    if (d > than) return false;
    if (d == than || (d != d && than != than)) return j < than_j;
    return than != than;
}

/* A warp puts the `keep` nearest of `count` entries, in order, at their front. */
template <class T> static __device__ void pair_shrink(T *d, uint32_t *j, int count, int keep) {
    constexpr int each = (PAIR_NEAREST_MOST + PAIR_NEAREST_SLACK + BLASD_WARP - 1) / BLASD_WARP;
    int lane = (int)threadIdx.x % BLASD_WARP, rank[each];
    T own[each];
    uint32_t own_j[each];
    for (int e = 0; e < each; e++) {
        int i = lane + BLASD_WARP * e;
        rank[e] = keep;
        if (i >= count) continue;
        own[e] = d[i];
        own_j[e] = j[i];
        rank[e] = 0;
        for (int q = 0; q < count; q++)
            rank[e] += pair_nearer<T>(d[q], j[q], own[e], own_j[e]) ? 1 : 0;
    }
    __syncwarp();
    for (int e = 0; e < each; e++) {
        if (rank[e] >= keep) continue;
        d[rank[e]] = own[e];
        j[rank[e]] = own_j[e];
    }
    __syncwarp();
}

/* The lists of a block's 64 rows. A row's first `keep` entries are in order once `far` is set to
 * the last of them; what is nearer is added behind, and now and then the list is shrunk again. */
template <class T> struct pair_heads {
    T far[PAIR_SIDE];
    uint32_t far_j[PAIR_SIDE];
    int count[PAIR_SIDE];
};

/* Adds what is nearer; says whether some list is to be shrunk. */
template <class T>
static __device__ bool pair_offer(const struct pair_args &args, int64_t row, int64_t column,
                                  int keep, int room, const T (&v)[PAIR_EACH][PAIR_EACH],
                                  struct pair_heads<T> &heads, T *d, uint32_t *j) {
    bool crowded = false;
    PAIR_FOUR(r) {
        int line = (int)threadIdx.x / 16 * PAIR_EACH + r;
        T far = heads.far[line];
        uint32_t far_j = heads.far_j[line];
        if (row + line >= args.m) continue;
        PAIR_FOUR(c) {
            int64_t at = column + (int)threadIdx.x % 16 * PAIR_EACH + c;
            int place;
            if (at >= args.n || (args.alone && at == args.first_row + row + line)) continue;
            if (!pair_nearer<T>(v[r][c], (uint32_t)at, far, far_j)) continue;
            place = atomicAdd(&heads.count[line], 1);
            d[line * room + place] = v[r][c];
            j[line * room + place] = (uint32_t)at;
            crowded |= place >= room - PAIR_SIDE || (place + 1 >= keep && far_j == PAIR_NOBODY);
        }
    }
    return crowded;
}

template <class T>
static __device__ void pair_keep(int keep, int room, bool last, struct pair_heads<T> &heads, T *d,
                                 uint32_t *j) {
    for (int line = (int)threadIdx.x / BLASD_WARP * 8; line < (int)threadIdx.x / BLASD_WARP * 8 + 8;
         line++) {
        int count = heads.count[line];
        bool full = count > room - PAIR_SIDE || (count >= keep && heads.far_j[line] == PAIR_NOBODY);
        if (!full && !last) continue;
        pair_shrink<T>(d + line * room, j + line * room, count, keep);
        if (threadIdx.x % BLASD_WARP == 0) {
            heads.count[line] = count < keep ? count : keep;
            if (count >= keep) {
                heads.far[line] = d[line * room + keep - 1];
                heads.far_j[line] = j[line * room + keep - 1];
            }
        }
        __syncwarp();
    }
}

/* A block walks along 64 rows, or along the part of them that is its split. */
template <class T, int LOOP>
static __device__ __forceinline__ void pair_nearest_block(const struct pair_args &args,
                                                          const struct pair_lists &lists,
                                                          int64_t at) {
    BLASD_DYNAMIC_SHARED(T, d);
    BLASD_STATIC_SHARED(struct pair_shared<T>, sh);
    BLASD_STATIC_SHARED(struct pair_heads<T>, heads);
    uint32_t *j = reinterpret_cast<uint32_t *>(d + PAIR_SIDE * lists.room);
    int64_t down = (args.m + PAIR_SIDE - 1) / PAIR_SIDE;
    int64_t split = at % lists.splits, number = at / lists.splits / down;
    int64_t row = at / lists.splits % down * PAIR_SIDE;
    int64_t from = split * lists.columns, to = from + lists.columns;
    struct pair_problem<T> problem = pair_locate<T>(args, number);
    if (threadIdx.x < PAIR_SIDE) {
        heads.far[threadIdx.x] = (T)NAN;
        heads.far_j[threadIdx.x] = PAIR_NOBODY;
        heads.count[threadIdx.x] = 0;
    }
    __syncthreads();
    for (int64_t column = from; column < to && column < args.n; column += PAIR_SIDE) {
        T v[PAIR_EACH][PAIR_EACH];
        bool crowded;
        pair_tile<T, LOOP>(args, problem, row, column, false, sh, v);
        crowded = pair_offer<T>(args, row, column, lists.keep, lists.room, v, heads, d, j);
        if (!__syncthreads_or(crowded)) continue;
        pair_keep<T>(lists.keep, lists.room, false, heads, d, j);
        __syncthreads();
    }
    pair_keep<T>(lists.keep, lists.room, true, heads, d, j);
    __syncthreads();
    for (int e = (int)threadIdx.x; e < PAIR_SIDE * lists.keep; e += PAIR_THREADS) {
        int line = e / lists.keep, place = e % lists.keep;
        bool there = place < heads.count[line];
        int64_t to_row = number * args.m + row + line;
        int64_t to_at = (to_row * lists.splits + split) * lists.keep + place;
        if (row + line >= args.m) continue;
        static_cast<T *>(lists.d)[to_at] = there ? d[line * lists.room + place] : (T)NAN;
        lists.j[to_at] = there ? j[line * lists.room + place] : PAIR_NOBODY;
    }
}

template <class T, int LOOP>
__global__ void __launch_bounds__(PAIR_THREADS, PAIR_BLOCKS(T, LOOP, 0))
    pair_nearest_rows(struct pair_args args, struct pair_lists lists, int64_t first) {
    pair_nearest_block<T, LOOP>(args, lists, first + blockIdx.x);
}

struct pair_nearest_work {
    struct pair_args args;
    struct pair_lists lists;
};
template <class T, int LOOP>
__global__ void __launch_bounds__(PAIR_THREADS, PAIR_BLOCKS(T, LOOP, 0))
    pair_nearest_shares(const blasd_share<pair_nearest_work> *shares, int count) {
    const blasd_share<pair_nearest_work> &share = blasd_share_of(shares, count);
    pair_nearest_block<T, LOOP>(share.args.args, share.args.lists, share.block());
}

/* ---- within a radius ---- */

/* Counts, or with `fill` writes, the entries of a row within the radius, in order. */
template <class T>
static __device__ __forceinline__ int64_t pair_list_row(const struct pair_near &near,
                                                        const bool (&pass)[PAIR_EACH],
                                                        const T (&v)[PAIR_EACH], int64_t column,
                                                        int64_t at, char *d, int64_t *index) {
    int lane = (int)threadIdx.x % BLASD_WARP, before = 0, all = 0;
    PAIR_FOUR(c) {
        unsigned found = __ballot_sync(BLASD_WARP_ALL, pass[c]) >> (lane & 16) & 0xffffu;
        before += __popc(found & ((1u << (lane & 15)) - 1));
        all += __popc(found);
    }
    if (near.fill) {
        int64_t place = at + before;
        PAIR_FOUR(c) {
            if (!pass[c]) continue;
            pair_put(d, place, v[c], near.storage);
            index[place] = column + lane % 16 * PAIR_EACH + c;
            place++;
        }
    }
    return at + all;
}

template <class T, int LOOP>
__global__ void __launch_bounds__(PAIR_THREADS, PAIR_BLOCKS(T, LOOP, 0))
    pair_near_rows(struct pair_args args, struct pair_near near, int64_t first) {
    BLASD_STATIC_SHARED(struct pair_shared<T>, sh);
    int64_t down = (args.m + PAIR_SIDE - 1) / PAIR_SIDE, block = first + blockIdx.x;
    int64_t split = block % near.splits, number = block / near.splits / down;
    int64_t row = block / near.splits % down * PAIR_SIDE, line = row + threadIdx.x / 16 * PAIR_EACH;
    int64_t from = split * near.columns, to = from + near.columns;
    int64_t task = number / args.problems, item = number % args.problems;
    int64_t *counts = near.counts + (number * args.m + line) * near.splits + split;
    char *d = near.d + task * near.d_step + item * near.pairs * near.element;
    int64_t *index =
        reinterpret_cast<int64_t *>(near.index + task * near.index_step) + item * near.pairs;
    const int64_t *splits =
        reinterpret_cast<const int64_t *>(near.row_splits + task * near.splits_step) +
        item * (args.m + 1);
    struct pair_problem<T> problem = pair_locate<T>(args, number);
    int64_t at[PAIR_EACH] = {};
    if (near.fill && splits[args.m] > near.pairs) return; /* no room: nothing is listed */
    PAIR_FOUR(r)
    if (near.fill && line + r < args.m) at[r] = counts[r * near.splits];
    for (int64_t column = from; column < to && column < args.n; column += PAIR_SIDE) {
        T v[PAIR_EACH][PAIR_EACH];
        pair_tile<T, LOOP>(args, problem, row, column, false, sh, v);
        PAIR_FOUR(r) {
            bool pass[PAIR_EACH];
            PAIR_FOUR(c) {
                int64_t j = column + (int)threadIdx.x % 16 * PAIR_EACH + c;
                pass[c] = line + r < args.m && j < args.n && (double)v[r][c] <= near.radius &&
                          !(args.alone && j == args.first_row + line + r);
            }
            at[r] = pair_list_row<T>(near, pass, v[r], column, at[r], d, index);
        }
    }
    PAIR_FOUR(r)
    if (!near.fill && threadIdx.x % 16 == 0 && line + r < args.m) counts[r * near.splits] = at[r];
}

/* ---- which kernel ---- */

/* Calls f with the number of the loop. */
template <class T, class F>
static int pair_by_loop(enum distance_loop loop, struct blasd_err *err, F f) {
    switch (loop) {
#define X(name)                                                                                    \
    case name: return f(std::integral_constant<int, name>());
        X(LOOP_SQUARES)
        X(LOOP_SQUARES_W)
        X(LOOP_ABSOLUTE)
        X(LOOP_ABSOLUTE_W)
        X(LOOP_LARGEST)
        X(LOOP_CANBERRA)
        X(LOOP_BRAYCURTIS)
        X(LOOP_HAMMING)
        X(LOOP_JACCARD)
        X(LOOP_DICE)
        X(LOOP_BOOLEAN)
    default: break;
    }
    if constexpr (sizeof(T) == 8) { /* these are computed in float64 always */
        switch (loop) {
            X(LOOP_POWER)
            X(LOOP_JENSENSHANNON)
            X(LOOP_MAHALANOBIS)
#undef X
        default: break;
        }
    }
    return blasd_fail(err, BLASD_E_internal_error, "", "there is no loop %d", (int)loop);
}

template <class T>
static int pair_share_matrix(struct blasd_cuda_job *job, enum distance_loop loop,
                             const struct pair_args &args, const struct pair_matrix &out,
                             int64_t blocks, struct blasd_err *err) {
    struct pair_matrix_work work = {args, out};
    return pair_by_loop<T>(loop, err, [&](auto at) {
        return blasd_cuda_share(job, 0, pair_matrix_shares<T, decltype(at)::value>, blocks,
                                PAIR_THREADS, 0, work, err);
    });
}

template <class T>
static int pair_share_nearest(struct blasd_cuda_job *job, enum distance_loop loop,
                              const struct pair_args &args, const struct pair_lists &lists,
                              int64_t blocks, struct blasd_err *err) {
    struct pair_nearest_work work = {args, lists};
    return pair_by_loop<T>(loop, err, [&](auto at) {
        return blasd_cuda_share(job, 0, pair_nearest_shares<T, decltype(at)::value>, blocks,
                                PAIR_THREADS, pair_nearest_bytes(sizeof(T), lists.room), work, err);
    });
}

template <class T>
static int pair_launch_matrix(struct blasd_gpu_stream *stream, enum distance_loop loop,
                              const struct pair_args &args, const struct pair_matrix &out,
                              int64_t first, int64_t blocks, struct blasd_err *err) {
    return pair_by_loop<T>(loop, err, [&](auto at) {
        return blasd_launch(pair_matrix_tiles<T, decltype(at)::value>, dim3((unsigned)blocks),
                            dim3(PAIR_THREADS), 0, stream, err, args, out, first);
    });
}

template <class T>
static int pair_launch_nearest(struct blasd_gpu_stream *stream, enum distance_loop loop,
                               const struct pair_args &args, const struct pair_lists &lists,
                               int64_t first, int64_t blocks, struct blasd_err *err) {
    return pair_by_loop<T>(loop, err, [&](auto at) {
        return blasd_launch(pair_nearest_rows<T, decltype(at)::value>, dim3((unsigned)blocks),
                            dim3(PAIR_THREADS), pair_nearest_bytes(sizeof(T), lists.room), stream,
                            err, args, lists, first);
    });
}

template <class T>
static int pair_launch_near(struct blasd_gpu_stream *stream, enum distance_loop loop,
                            const struct pair_args &args, const struct pair_near &near,
                            int64_t first, int64_t blocks, struct blasd_err *err) {
    return pair_by_loop<T>(loop, err, [&](auto at) {
        return blasd_launch(pair_near_rows<T, decltype(at)::value>, dim3((unsigned)blocks),
                            dim3(PAIR_THREADS), 0, stream, err, args, near, first);
    });
}

template <class T>
constexpr struct pair_kernels pair_kernels_of = {
    .share_matrix = pair_share_matrix<T>,
    .share_nearest = pair_share_nearest<T>,
    .launch_matrix = pair_launch_matrix<T>,
    .launch_nearest = pair_launch_nearest<T>,
    .launch_near = pair_launch_near<T>,
};

#endif
