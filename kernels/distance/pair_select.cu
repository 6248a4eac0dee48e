/* Neighbours put in order: lists merged, the many nearest selected from rows, lists of variable
 * length given their places. Read next: pair_select.cuh says for what. */
#include "kernels/distance/pair_select.cuh"

#include "kernels/distance/pair_sinks.cuh"

#define THREADS 256

static dim3 blocks_of(struct blasd_cuda_job *job, int64_t work, int64_t each) {
    int64_t blocks = (work + each - 1) / each, most = (int64_t)job->facts->units * 32;
    return dim3((unsigned)(blocks < 1 ? 1 : blocks < most ? blocks : most));
}

/* ---- lists of a row's parts ---- */

/* How many entries of an ordered list are nearer than this. */
template <class T>
static __device__ int nearer_in(const T *d, const uint32_t *j, int count, T than, uint32_t than_j) {
    int low = 0, high = count;
    while (low < high) {
        int middle = (low + high) / 2;
        if (pair_nearer<T>(d[middle], j[middle], than, than_j))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* An entry's place is the number of those before it, in its own list and in the others. */
template <class T>
static __device__ __forceinline__ void merge_block(const struct pair_merge &m, int64_t block,
                                                   int64_t blocks) {
    const T *d = static_cast<const T *>(m.lists.d);
    const uint32_t *j = m.lists.j;
    int keep = m.lists.keep, splits = m.lists.splits;
    int64_t each = (int64_t)keep * splits;
    for (int64_t at = block * THREADS + threadIdx.x; at < m.rows * each; at += blocks * THREADS) {
        int64_t row = at / each, task = row / m.task_rows, line = row % m.task_rows;
        int own = (int)(at % each) / keep, place = (int)(at % each) % keep;
        for (int s = 0; s < splits; s++)
            if (s != own)
                place += nearer_in<T>(d + row * each + (int64_t)s * keep,
                                      j + row * each + (int64_t)s * keep, keep, d[at], j[at]);
        if (place >= keep) continue;
        pair_put(m.d + task * m.d_step, line * keep + place, d[at], m.storage);
        reinterpret_cast<int64_t *>(m.index + task * m.index_step)[line * keep + place] = j[at];
    }
}

template <class T> __global__ void __launch_bounds__(THREADS) merge_lists(struct pair_merge m) {
    merge_block<T>(m, blockIdx.x, gridDim.x);
}
template <class T>
__global__ void __launch_bounds__(THREADS)
    merge_shares(const blasd_share<pair_merge> *shares, int count) {
    const blasd_share<pair_merge> &share = blasd_share_of(shares, count);
    merge_block<T>(share.args, share.block(), share.blocks());
}

int pair_share_merge(struct blasd_cuda_job *job, enum blasd_dtype dtype,
                     const struct pair_merge &merge, struct blasd_err *err) {
    int64_t blocks = blocks_of(job, merge.rows * merge.lists.keep * merge.lists.splits, THREADS).x;
    return pair_by_type(dtype, [&](auto zero) {
        return blasd_cuda_share(job, 1, merge_shares<decltype(zero)>, blocks, THREADS, 0, merge,
                                err);
    });
}

int pair_merge_lists(struct blasd_cuda_job *job, enum blasd_dtype dtype,
                     const struct pair_merge &merge, struct blasd_err *err) {
    dim3 blocks = blocks_of(job, merge.rows * merge.lists.keep * merge.lists.splits, THREADS);
    return pair_by_type(dtype, [&](auto zero) {
        return blasd_launch(merge_lists<decltype(zero)>, blocks, dim3(THREADS), 0, job->stream, err,
                            merge);
    });
}

/* ---- the many nearest ---- */

/* Numbers in the order of neighbours: by size, NaN last. */
static __device__ uint32_t ordered(float d) {
    uint32_t bits = __float_as_uint(d + 0.0f);
    return d != d ? 0xffffffffu : (bits >> 31) != 0 ? ~bits : bits | 0x80000000u;
}
static __device__ uint64_t ordered(double d) {
    uint64_t bits = (uint64_t)__double_as_longlong(d + 0.0);
    return d != d ? ~UINT64_C(0) : (bits >> 63) != 0 ? ~bits : bits | UINT64_C(1) << 63;
}

/* Where a thread's flag stands among those set, and how many there are. All threads call this. */
static __device__ int flag_place(bool flag, int *all) {
    BLASD_STATIC_SHARED(int, counts, [THREADS / BLASD_WARP]);
    unsigned found = __ballot_sync(BLASD_WARP_ALL, flag);
    int before = __popc(found & ((1u << threadIdx.x % BLASD_WARP) - 1)), sum = 0;
    __syncthreads();
    if (threadIdx.x % BLASD_WARP == 0) counts[threadIdx.x / BLASD_WARP] = __popc(found);
    __syncthreads();
    for (int w = 0; w < THREADS / BLASD_WARP; w++) {
        if (w == (int)threadIdx.x / BLASD_WARP) before += sum;
        sum += counts[w];
    }
    *all = sum;
    return before;
}

/* Adds to the bin of each lane's digit; -1: of none. All lanes call this. Keys of distances often
 * begin alike, so the lanes that agree with the first of them are counted at once. */
static __device__ void count_digits(unsigned *histogram, int digit) {
    unsigned some = __ballot_sync(BLASD_WARP_ALL, digit >= 0);
    int first = some != 0 ? __ffs((int)some) - 1 : 0;
    int common = __shfl_sync(BLASD_WARP_ALL, digit, first);
    unsigned alike = __ballot_sync(BLASD_WARP_ALL, digit == common);
    if (digit < 0) return;
    if (digit != common)
        atomicAdd(&histogram[digit], 1u);
    else if ((int)threadIdx.x % BLASD_WARP == first)
        atomicAdd(&histogram[digit], (unsigned)__popc(alike));
}

/* The keep-th smallest key of a row, digit by digit; *ties: how many entries with that very key are
 * among the smallest. */
template <class T>
static __device__ auto threshold_of(const T *row, int64_t n, int64_t self, int64_t keep,
                                    int64_t *ties) {
    using key = decltype(ordered(T()));
    BLASD_STATIC_SHARED(unsigned, histogram, [256]);
    BLASD_STATIC_SHARED(int64_t, left);
    BLASD_STATIC_SHARED(int, digit);
    key prefix = 0, mask = 0;
    for (int shift = (int)sizeof(key) * 8 - 8; shift >= 0; shift -= 8) {
        __syncthreads();
        histogram[threadIdx.x] = 0;
        __syncthreads();
        for (int64_t from = 0; from < n; from += THREADS) {
            int64_t i = from + threadIdx.x;
            key k = i < n ? ordered(row[i]) : 0;
            bool counts = i < n && i != self && (k & mask) == prefix;
            count_digits(histogram, counts ? (int)(k >> shift & 255) : -1);
        }
        __syncthreads();
        if (threadIdx.x == 0) {
            int64_t need = keep;
            int at = 0;
            while (at < 255 && need > (int64_t)histogram[at]) need -= histogram[at++];
            left = need;
            digit = at;
        }
        __syncthreads();
        keep = left;
        prefix |= (key)digit << shift;
        mask |= (key)255 << shift;
    }
    *ties = keep;
    return prefix;
}

/* Collects the nearest of a row in the order of their columns. */
template <class T>
static __device__ void collect(const T *row, const struct pair_select &s, int64_t self, T *d,
                               uint32_t *j) {
    int64_t ties, tied = 0, taken = 0;
    auto most = threshold_of<T>(row, s.n, self, s.keep, &ties);
    for (int64_t from = 0; from < s.n; from += THREADS) {
        int64_t i = from + threadIdx.x;
        bool there = i < s.n && i != self, tie = there && ordered(row[i]) == most;
        int all, place = flag_place(tie, &all);
        bool take = there && (ordered(row[i]) < most || (tie && tied + place < ties));
        tied += all;
        place = flag_place(take, &all);
        if (take) {
            d[taken + place] = row[i];
            j[taken + place] = (uint32_t)i;
        }
        taken += all;
    }
}

/* Puts `count` entries, a power of two, in order. */
template <class T> static __device__ void sort_entries(T *d, uint32_t *j, int64_t count) {
    for (int64_t size = 2; size <= count; size *= 2)
        for (int64_t step = size / 2; step > 0; step /= 2) {
            __syncthreads();
            for (int64_t e = threadIdx.x; e < count / 2; e += THREADS) {
                int64_t low = e / step * 2 * step + e % step, high = low + step;
                bool falling = (low & size) != 0;
                T a = d[low], b = d[high];
                uint32_t p = j[low], q = j[high];
                if (pair_nearer<T>(b, q, a, p) == falling) continue;
                d[low] = b, d[high] = a;
                j[low] = q, j[high] = p;
            }
        }
    __syncthreads();
}

template <class T> __global__ void __launch_bounds__(THREADS) select_rows(struct pair_select s) {
    for (int64_t line = blockIdx.x; line < s.count; line += gridDim.x) {
        const T *row = static_cast<const T *>(s.rows) + line * s.n;
        T *d = static_cast<T *>(s.d) + line * s.room;
        uint32_t *j = s.j + line * s.room;
        collect<T>(row, s, s.self < 0 ? -1 : s.self + line, d, j);
        for (int64_t i = s.keep + threadIdx.x; i < s.room; i += THREADS) {
            d[i] = (T)NAN;
            j[i] = PAIR_NOBODY;
        }
        sort_entries<T>(d, j, s.room);
        for (int64_t i = threadIdx.x; i < s.keep; i += THREADS) {
            pair_put(s.to, line * s.keep + i, d[i], s.storage);
            reinterpret_cast<int64_t *>(s.index)[line * s.keep + i] = j[i];
        }
        __syncthreads();
    }
}

int pair_select_rows(struct blasd_cuda_job *job, enum blasd_dtype dtype,
                     const struct pair_select &select, struct blasd_err *err) {
    dim3 blocks = blocks_of(job, select.count, 1);
    return pair_by_type(dtype, [&](auto zero) {
        return blasd_launch(select_rows<decltype(zero)>, blocks, dim3(THREADS), 0, job->stream, err,
                            select);
    });
}

/* ---- lists of variable length ---- */

/* A block for each problem: the counts of rows' parts become starts. */
__global__ void __launch_bounds__(THREADS)
    start_lists(struct pair_args args, struct pair_near near) {
    BLASD_STATIC_SHARED(int64_t, sums, [THREADS / BLASD_WARP]);
    int64_t number = blockIdx.x, task = number / args.problems, item = number % args.problems;
    int64_t *counts = near.counts + number * args.m * near.splits, all = args.m * near.splits;
    int64_t *row_splits = reinterpret_cast<int64_t *>(near.row_splits + task * near.splits_step) +
                          item * (args.m + 1);
    int64_t carry = 0;
    int lane = (int)threadIdx.x % BLASD_WARP, warp = (int)threadIdx.x / BLASD_WARP;
    for (int64_t from = 0; from < all; from += THREADS) {
        int64_t i = from + threadIdx.x, own = i < all ? counts[i] : 0, sum = own, before = carry;
        for (int by = 1; by < BLASD_WARP; by *= 2) {
            int64_t other = __shfl_up_sync(BLASD_WARP_ALL, sum, (unsigned)by);
            if (lane >= by) sum += other;
        }
        __syncthreads();
        if (lane == BLASD_WARP - 1) sums[warp] = sum;
        __syncthreads();
        for (int w = 0; w < THREADS / BLASD_WARP; w++) {
            if (w < warp) before += sums[w];
            carry += sums[w];
        }
        if (i >= all) continue; /* the last round: no barrier follows */
        counts[i] = before + sum - own;
        if (i % near.splits == 0) row_splits[i / near.splits] = before + sum - own;
    }
    if (threadIdx.x == 0) row_splits[args.m] = carry;
}

template <class T>
__global__ void __launch_bounds__(THREADS)
    mark_rest(struct pair_args args, struct pair_near near, int64_t problems) {
    for (int64_t at = (int64_t)blockIdx.x * THREADS + threadIdx.x; at < problems * near.pairs;
         at += (int64_t)gridDim.x * THREADS) {
        int64_t number = at / near.pairs, place = at % near.pairs;
        int64_t task = number / args.problems, item = number % args.problems;
        const int64_t *splits =
            reinterpret_cast<const int64_t *>(near.row_splits + task * near.splits_step) +
            item * (args.m + 1);
        if (place < splits[args.m]) continue;
        pair_put(near.d + task * near.d_step, item * near.pairs + place, (T)INFINITY, near.storage);
        reinterpret_cast<int64_t *>(near.index +
                                    task * near.index_step)[item * near.pairs + place] = -1;
    }
}

int pair_start_lists(struct blasd_cuda_job *job, const struct pair_args &args,
                     const struct pair_near &near, int64_t problems, struct blasd_err *err) {
    dim3 blocks = blocks_of(job, problems * near.pairs, THREADS);
    int code;
    if (problems > INT32_MAX)
        return blasd_fail(err, BLASD_E_job_too_large, "inputs.x", "the batch has too many members");
    code = blasd_launch(start_lists, dim3((unsigned)problems), dim3(THREADS), 0, job->stream, err,
                        args, near);
    if (code != 0 || near.pairs == 0) return code;
    return pair_by_type((enum blasd_dtype)near.storage, [&](auto zero) {
        return blasd_launch(mark_rest<decltype(zero)>, blocks, dim3(THREADS), 0, job->stream, err,
                            args, near, problems);
    });
}
