/* The values of a tile of the distance matrix on the device: 64 rows of x against 64 of y, 16
 * entries a thread, from differences of coordinates.
 *
 * Coordinates pass through shared memory 16 at a time, coordinate by coordinate, so that the sums
 * of a thread's 4 x 4 entries stay in registers and each number read serves four of them. Every sum
 * runs over the coordinates in order and by the same operations in every kernel, so that d(a,b) and
 * d(b,a) are equal to the last bit, equal rows are exactly 0 apart, and all outputs see the same
 * numbers. Knows nothing of what becomes of a tile. Read next: pair_sinks.cuh. */
#ifndef BLASD_KERNELS_DISTANCE_PAIR_TILES_CUH
#define BLASD_KERNELS_DISTANCE_PAIR_TILES_CUH

#include "kernels/cuda/gpu.h"

extern "C" {
#include "kernels/distance/distance.h"
}

#include <math.h>

#define PAIR_THREADS 256 /* 16 x 16 */
#define PAIR_SIDE 64     /* rows and columns of a tile */
#define PAIR_EACH 4      /* rows and columns of a thread */
#define PAIR_DEEP 16     /* coordinates in shared memory */
#define PAIR_LOADS (PAIR_SIDE * PAIR_DEEP / PAIR_THREADS)

/* Before a loop over a thread's own entries: they are to stay in registers. */
#ifdef __CUDACC__
#define PAIR_UNROLL _Pragma("unroll")
#define PAIR_TWICE _Pragma("unroll 2")    /* and before those over coordinates */
#define PAIR_FOURFOLD _Pragma("unroll 4") /* that wait for memory */
#define PAIR_ONCE _Pragma("unroll 1")     /* and before those that matter little */
#else
#define PAIR_UNROLL
#define PAIR_TWICE
#define PAIR_FOURFOLD
#define PAIR_ONCE
#endif
/* The loops over a thread's rows or columns, and over both. */
#define PAIR_FOUR(r) PAIR_UNROLL for (int r = 0; r < PAIR_EACH; r++)
#define PAIR_ENTRIES(r, c) PAIR_FOUR(r) PAIR_FOUR(c)
/* Blocks that a multiprocessor is to hold at least, which limits a thread's registers; `more` where
 * they have little else to keep. */
#define PAIR_BLOCKS(T, LOOP, more)                                                                 \
    (sizeof(T) == 4 ? 2 + (more && LOOP < LOOP_JACCARD) : LOOP < LOOP_JACCARD ? 2 : 1)

/* Where the items of one operand lie: those of task t from base + t * task_step on. */
struct pair_source {
    const char *base;
    int64_t task_step, item_bytes;
    int64_t steps[BLASD_MAX_RANK]; /* of the batch's dimensions, in items */
};

/* Problems in device memory, all of one shape. */
struct pair_args {
    int rank;
    int64_t shape[BLASD_MAX_RANK]; /* of the batch */
    struct pair_source x, y;
    const char *w; /* k weights; NULL: ones */
    int64_t w_task, w_item;
    const char *v; /* k x k, of mahalanobis */
    int64_t v_task, v_item;
    int64_t problems; /* of a task */
    int64_t m, n, k;
    int64_t first_row; /* of the whole matrix: what row 0 of x is */
    int finish, alone;
    int truth;  /* numbers but 0 are all alike */
    int *flags; /* PAIR_LEFT, PAIR_ZERO_ROW of each task */
    double p, scale;
};
enum { PAIR_ZERO_ROW = 1, PAIR_LEFT = 2 /* an entry left the range: the host is to see */ };

template <class T> struct pair_problem {
    const T *x, *y, *w, *v;
    int *flags; /* of its task */
};

static __host__ __device__ inline int64_t pair_item(const struct pair_args &args,
                                                    const struct pair_source &source, int64_t at) {
    int64_t sum = 0;
    for (int d = args.rank - 1; d >= 0; d--) {
        sum += at % args.shape[d] * source.steps[d];
        at /= args.shape[d];
    }
    return sum;
}

template <class T>
static __device__ pair_problem<T> pair_locate(const struct pair_args &args, int64_t number) {
    int64_t task = number / args.problems, at = number % args.problems;
    struct pair_problem<T> ret;
    ret.x = reinterpret_cast<const T *>(args.x.base + task * args.x.task_step +
                                        pair_item(args, args.x, at) * args.x.item_bytes);
    ret.y = reinterpret_cast<const T *>(args.y.base + task * args.y.task_step +
                                        pair_item(args, args.y, at) * args.y.item_bytes);
    ret.w = args.w == nullptr
                ? nullptr
                : reinterpret_cast<const T *>(args.w + task * args.w_task + at * args.w_item);
    ret.v = args.v == nullptr
                ? nullptr
                : reinterpret_cast<const T *>(args.v + task * args.v_task + at * args.v_item);
    ret.flags = args.flags + task;
    return ret;
}

/* ---- arithmetic ---- */

/* Beyond these the root's square may have overflowed, or lost bits to underflow. */
template <class T> constexpr T pair_most = (T)(sizeof(T) == 8 ? 0x1p510 : 0x1p63);
template <class T> constexpr T pair_least = (T)(sizeof(T) == 8 ? 0x1p-480 : 0x1p-49);

static __device__ inline double pair_abs(double x) {
    return fabs(x);
}
static __device__ inline float pair_abs(float x) {
    return fabsf(x);
}
static __device__ inline double pair_root(double x) {
    return __dsqrt_rn(x);
}
static __device__ inline float pair_root(float x) {
    return __fsqrt_rn(x);
}
/* The same to the last bit where pair_least and pair_most hold the root, and NaN or beyond them
 * where they do not: without a branch, so that a thread's roots overlap. */
static __device__ __forceinline__ float pair_root_within(float x) {
#ifdef __CUDACC__
    float y = rsqrtf(x), g = __fmul_rn(x, y);
    return __fmaf_rn(__fmaf_rn(-g, g, x), __fmul_rn(0.5f, y), g);
#else
    return pair_root(x);
#endif
}
static __device__ __forceinline__ double pair_root_within(double x) {
#ifdef __CUDACC__
    double y, rest, g;
    asm("rsqrt.approx.ftz.f64 %0, %1;" : "=d"(y) : "d"(x)); /* 20 bits */
    rest = __fma_rn(-x, __dmul_rn(y, y), 1.0);
    y = __fma_rn(__fma_rn(rest, 0.375, 0.5), __dmul_rn(y, rest), y);
    g = __dmul_rn(x, y);
    return __fma_rn(__fma_rn(-g, g, x), __dmul_rn(0.5, y), g);
#else
    return pair_root(x);
#endif
}
/* a b + c, rounded once: said and not left to the compiler, so that all kernels agree */
static __device__ inline double pair_fma(double a, double b, double c) {
    return __fma_rn(a, b, c);
}
static __device__ inline float pair_fma(float a, float b, float c) {
    return __fmaf_rn(a, b, c);
}

template <class T> static __device__ __noinline__ T pair_power(T x, T p) {
    return pow(x, p);
}

/* (1+t) log(1+t) + (1-t) log(1-t), halved: where that would cancel, its series t^2/2 + t^4/12 +
 * ..., whose terms are all positive (as in tiles_body.h). The products are rounded one by one: a
 * fused one would tell t from -t. */
template <class T> static __device__ __noinline__ T pair_shannon(T t) {
    const double c[] = {1.0 / 2,   1.0 / 12,  1.0 / 30,  1.0 / 56,  1.0 / 90,
                        1.0 / 132, 1.0 / 182, 1.0 / 240, 1.0 / 306, 1.0 / 380,
                        1.0 / 462, 1.0 / 552, 1.0 / 650, 1.0 / 756};
    double square = __dmul_rn(t, t), sum = 0;
    if (t > 0.3 || t < -0.3) {
        double more = t <= -1 ? 0 : __dmul_rn(1 + t, log(1 + t));
        double less = t >= 1 ? 0 : __dmul_rn(1 - t, log(1 - t));
        return 0.5 * __dadd_rn(more, less);
    }
    for (int i = 13; i >= 0; i--) sum = __fma_rn(sum, square, c[i]);
    return sum * square;
}

/* One coordinate of one pair. s, t, u, v: the sums of the pair, as far as the loop has them. */
template <class T, int LOOP>
static __device__ __forceinline__ void pair_step(const struct pair_args &args, T x, T y, T w, T &s,
                                                 T &t, T &u, T &v) {
    (void)args, (void)w, (void)t, (void)u, (void)v;
    if constexpr (LOOP == LOOP_SQUARES) {
        T e = x - y;
        s = pair_fma(e, e, s);
    } else if constexpr (LOOP == LOOP_SQUARES_W) {
        T e = x - y;
        s = pair_fma(e * w, e, s);
    } else if constexpr (LOOP == LOOP_ABSOLUTE) {
        s += pair_abs(x - y);
    } else if constexpr (LOOP == LOOP_ABSOLUTE_W) {
        s = pair_fma(pair_abs(x - y), w, s);
    } else if constexpr (LOOP == LOOP_LARGEST) { /* the comparison drops NaN, t keeps it */
        T e = x == y ? 0 : pair_abs(x - y);      /* infinities too */
        s = e > s ? e : s;
        t += e;
    } else if constexpr (LOOP == LOOP_POWER) { /* after a loop over the largest, which is u */
        s = pair_fma(w, (T)pair_power((double)(pair_abs(x - y) / u), args.p), s);
    } else if constexpr (LOOP == LOOP_CANBERRA) {
        T e = pair_abs(x - y), size = pair_abs(x) + pair_abs(y);
        t += size;
        s = size == 0 ? s : pair_fma(w, e / size, s);
    } else if constexpr (LOOP == LOOP_BRAYCURTIS) {
        s = pair_fma(w, pair_abs(x - y), s);
        t = pair_fma(w, pair_abs(x + y), t);
    } else if constexpr (LOOP == LOOP_JENSENSHANNON) {
        double sum = (double)x + (double)y;
        if (x < 0 || y < 0)
            s = (T)INFINITY;
        else if (sum != 0) /* NaN too */
            s += (T)__dmul_rn(sum, pair_shannon(((double)x - (double)y) / sum));
    } else if constexpr (LOOP == LOOP_HAMMING) {
        s += x != y ? w : 0;
    } else if constexpr (LOOP == LOOP_JACCARD) {
        s += (args.truth ? (x != 0) != (y != 0) : x != y) ? w : 0;
        t += x != 0 || y != 0 ? w : 0;
    } else if constexpr (LOOP == LOOP_DICE) {
        s += x != y ? w : 0;
        t += x != 0 && y != 0 ? w : 0;
    } else if (LOOP == LOOP_BOOLEAN && !args.truth) { /* products rounded one by one: symmetric */
        s += x * y;
        t += x * (1 - y);
        u += (1 - x) * y;
    } else if constexpr (LOOP == LOOP_BOOLEAN) {
        s += x != 0 && y != 0 ? w : 0;
        t += x != 0 && !(y != 0) ? w : 0;
        u += !(x != 0) && y != 0 ? w : 0;
        v += !(x != 0) && !(y != 0) ? w : 0;
    }
}

/* Whether a sum left the range of T, or may have lost digits at its lower end. */
template <class T> static __device__ __forceinline__ bool pair_odd(T sum) {
    return sum > pair_most<T> * pair_most<T> || sum < pair_least<T> * pair_least<T>;
}

/* Of entries that are odd: notes if their points differ, and are finite. */
template <class T>
static __device__ __noinline__ void pair_note(const T *a, const T *b, const T *w, int64_t k,
                                              int *flags) {
    bool differ = false;
    for (int64_t d = 0; d < k; d++) {
        if (w != nullptr && w[d] == 0) continue;
        if (a[d] - a[d] != 0 || b[d] - b[d] != 0) return;
        differ |= a[d] != b[d];
    }
    if (differ) atomicOr(flags, PAIR_LEFT);
}

/* Of rows of length 1: 2 where they are opposite, which rounding does not exceed. */
template <class T> static __device__ __forceinline__ T pair_half(T s) {
    T half = s * (T)0.5;
    return half > 2 ? (T)2 : half;
}

/* From a pair's sum of squares to its distance. *odd: that left the range. */
template <class T> static __device__ __forceinline__ T pair_of_squares(int finish, T s, bool *odd) {
    T root;
    if (finish == FINISH_HALF) return pair_half(s);
    if (finish != FINISH_ROOT) {
        *odd = pair_odd(s);
        return s;
    }
    root = pair_root_within(s);
    *odd = !(root <= pair_most<T> && root >= pair_least<T>);
    return *odd ? pair_root(s) : root;
}

template <class T> static __device__ T pair_boolean(int finish, T s, T t, T u, T v) {
    T both = t + u, others = both + v;
    double cross = __dmul_rn((double)t, (double)u);
    switch (finish) {
    case FINISH_KULCZYNSKI1: return s / both;
    case FINISH_ROGERSTANIMOTO: return 2 * both / ((s + v) + 2 * both);
    case FINISH_RUSSELLRAO: return others / (s + others);
    case FINISH_SOKALSNEATH: return 2 * both / (s + 2 * both);
    case FINISH_YULE:
        return (T)(cross == 0 ? 0 : 2 * cross / pair_fma((double)s, (double)v, cross));
    default: return both / (2 * s + both);
    }
}

template <class T, int LOOP>
static __device__ __forceinline__ T pair_finish(const struct pair_args &args, T total, T s, T t,
                                                T u, T v, bool *odd) {
    (void)total, (void)t, (void)u, (void)v;
    *odd = false;
    if constexpr (LOOP <= LOOP_SQUARES_W)
        return pair_of_squares<T>(args.finish, s, odd);
    else if constexpr (LOOP == LOOP_ABSOLUTE_W) {
        *odd = pair_odd(s);
        return s;
    } else if constexpr (LOOP == LOOP_LARGEST)
        return t != t ? t : s;
    else if constexpr (LOOP == LOOP_POWER) { /* float64 always */
        T root = u * (T)pair_power((double)s, 1 / args.p);
        if (t != t || u == 0 || u - u != 0) return t != t ? t : u;
        *odd = !(root <= (T)0x1p1000 && root >= (T)0x1p-960);
        return root;
    } else if constexpr (LOOP == LOOP_CANBERRA) {
        *odd = t > pair_most<T> * pair_most<T>;
        return s;
    } else if constexpr (LOOP == LOOP_BRAYCURTIS) {
        *odd = pair_odd(s) || pair_odd(t);
        return s / t;
    } else if constexpr (LOOP == LOOP_JENSENSHANNON)
        return args.k == 0 ? (T)INFINITY : pair_root(s / 2 * (T)args.scale);
    else if constexpr (LOOP == LOOP_HAMMING)
        return s / total;
    else if constexpr (LOOP == LOOP_JACCARD)
        return t == 0 ? 0 : s / t;
    else if constexpr (LOOP == LOOP_DICE)
        return s / (2 * t + s);
    else if constexpr (LOOP == LOOP_BOOLEAN)
        return pair_boolean<T>(args.finish, s, t, u, v);
    else if constexpr (LOOP == LOOP_MAHALANOBIS) {
        *odd = pair_odd(pair_abs(s)) || s != s;
        return pair_root(s);
    } else
        return s;
}

/* ---- tiles ---- */

/* A row is one coordinate of a tile's points. The 16 bytes behind it spread the columns in which
 * points arrive over the banks. */
template <class T> struct pair_shared {
    static constexpr int length = PAIR_SIDE + 16 / (int)sizeof(T);
    __align__(16) T x[PAIR_DEEP][length];
    __align__(16) T y[PAIR_DEEP][length];
    T w[PAIR_DEEP];
};

static __device__ __forceinline__ void pair_four(const float *from, float (&to)[PAIR_EACH]) {
    float4 v = *reinterpret_cast<const float4 *>(from);
    to[0] = v.x, to[1] = v.y, to[2] = v.z, to[3] = v.w;
}
static __device__ __forceinline__ void pair_four(const double *from, double (&to)[PAIR_EACH]) {
    double2 v = reinterpret_cast<const double2 *>(from)[0];
    double2 w = reinterpret_cast<const double2 *>(from)[1];
    to[0] = v.x, to[1] = v.y, to[2] = w.x, to[3] = w.y;
}

/* The point of a tile that its coordinate number e is of; a division by a constant is cheaper. */
static __device__ __forceinline__ unsigned pair_load_row(unsigned e, unsigned deep) {
    return deep == PAIR_DEEP ? e / PAIR_DEEP : e / deep;
}

/* Coordinates at .. at + deep of the points from `first` on; the last point again where there are
 * fewer than a tile has. All loads are on their way before the first is waited for. */
template <class T>
static __device__ __forceinline__ void pair_fetch(const T *from, int64_t first, int64_t count,
                                                  int64_t k, int64_t at, unsigned deep,
                                                  T (&own)[PAIR_LOADS]) {
    PAIR_UNROLL
    for (unsigned i = 0; i < PAIR_LOADS; i++) {
        unsigned e = threadIdx.x + i * PAIR_THREADS, row;
        int64_t point;
        if (e >= PAIR_SIDE * deep) continue;
        row = pair_load_row(e, deep);
        point = first + row < count ? first + row : count - 1;
        own[i] = from[point * k + at + (e - row * deep)];
    }
}
template <class T, class To>
static __device__ __forceinline__ void pair_store(const T (&own)[PAIR_LOADS], unsigned deep,
                                                  To &to) {
    PAIR_UNROLL
    for (unsigned i = 0; i < PAIR_LOADS; i++) {
        unsigned e = threadIdx.x + i * PAIR_THREADS, row;
        if (e >= PAIR_SIDE * deep) continue;
        row = pair_load_row(e, deep);
        to[e - row * deep][row] = own[i];
    }
}

template <class T>
static __device__ void pair_load_weights(const T *from, int64_t at, int deep, T *to) {
    if ((int)threadIdx.x < deep)
        to[threadIdx.x] = from == nullptr ? (T)1 : from[at + (int64_t)threadIdx.x];
}

/* The coordinates of a thread's rows and columns. */
template <class T> struct pair_corner {
    T x[PAIR_EACH];
    T y[PAIR_EACH];
};
template <class T>
static __device__ __forceinline__ struct pair_corner<T> pair_read(const struct pair_shared<T> &sh,
                                                                  int d) {
    struct pair_corner<T> ret;
    pair_four(&sh.x[d][(int)threadIdx.x / 16 * PAIR_EACH], ret.x);
    pair_four(&sh.y[d][(int)threadIdx.x % 16 * PAIR_EACH], ret.y);
    return ret;
}

/* (a-b)' V (a-b), differences first: for each coordinate d, the inner product of row d of V. */
template <class T>
static __device__ __forceinline__ void pair_quadratic(const struct pair_args &args,
                                                      const struct pair_problem<T> &problem,
                                                      int64_t row, int64_t column,
                                                      struct pair_shared<T> &sh,
                                                      T (&s)[PAIR_EACH][PAIR_EACH]) {
    T inner[PAIR_EACH][PAIR_EACH], own[PAIR_EACH][PAIR_EACH] = {};
    T x[PAIR_LOADS] = {}, y[PAIR_LOADS] = {};
    for (int64_t d = 0; d < args.k; d++) {
        PAIR_ENTRIES(r, c) inner[r][c] = 0;
        for (int64_t at = 0; at < args.k; at += PAIR_DEEP) {
            int deep = args.k - at < PAIR_DEEP ? (int)(args.k - at) : PAIR_DEEP;
            if (d == 0 || args.k > PAIR_DEEP) {
                pair_fetch(problem.x, row, args.m, args.k, at, (unsigned)deep, x);
                pair_fetch(problem.y, column, args.n, args.k, at, (unsigned)deep, y);
                __syncthreads();
                pair_store(x, (unsigned)deep, sh.x);
                pair_store(y, (unsigned)deep, sh.y);
                __syncthreads();
            }
            if (d >= at && d < at + deep) {
                struct pair_corner<T> corner = pair_read(sh, (int)(d - at));
                PAIR_ENTRIES(r, c) own[r][c] = corner.x[r] - corner.y[c];
            }
            PAIR_TWICE
            for (int e = 0; e < deep; e++) {
                struct pair_corner<T> corner = pair_read(sh, e);
                T v = problem.v[d * args.k + at + e];
                PAIR_ENTRIES(r, c)
                inner[r][c] = pair_fma(v, corner.x[r] - corner.y[c], inner[r][c]);
            }
        }
        PAIR_ENTRIES(r, c) s[r][c] = pair_fma(own[r][c], inner[r][c], s[r][c]);
    }
}

/* The sums of a thread's pairs over all coordinates. */
template <class T, int LOOP>
static __device__ __forceinline__ void pair_sums(
    const struct pair_args &args, const struct pair_problem<T> &problem, int64_t row,
    int64_t column, bool kept, struct pair_shared<T> &sh, T (&s)[PAIR_EACH][PAIR_EACH],
    T (&t)[PAIR_EACH][PAIR_EACH], T (&u)[PAIR_EACH][PAIR_EACH], T (&v)[PAIR_EACH][PAIR_EACH],
    T *total) {
    T x[PAIR_LOADS] = {}, y[PAIR_LOADS] = {};
    for (int64_t at = 0; at < args.k; at += PAIR_DEEP) {
        int deep = args.k - at < PAIR_DEEP ? (int)(args.k - at) : PAIR_DEEP;
        pair_fetch(problem.x, row, args.m, args.k, at, (unsigned)deep, x);
        if (!kept) pair_fetch(problem.y, column, args.n, args.k, at, (unsigned)deep, y);
        __syncthreads();
        pair_store(x, (unsigned)deep, sh.x);
        if (!kept) pair_store(y, (unsigned)deep, sh.y);
        if (!kept) pair_load_weights(problem.w, at, deep, sh.w);
        __syncthreads();
        PAIR_TWICE
        for (int d = 0; d < deep; d++) {
            struct pair_corner<T> corner = pair_read(sh, d);
            T w = sh.w[d];
            /* a weight of 0 drops its coordinate, NaN and all */
            if (LOOP != LOOP_SQUARES && LOOP != LOOP_ABSOLUTE && w == 0) continue;
            if constexpr (LOOP == LOOP_HAMMING) *total += w;
            PAIR_ENTRIES(r, c)
            pair_step<T, LOOP>(args, corner.x[r], corner.y[c], w, s[r][c], t[r][c], u[r][c],
                               v[r][c]);
        }
    }
}

/* out[r][c] = distance of the points row + 4 (thread / 16) + r of x and column + 4 (thread % 16) +
 * c of y. `kept`: the columns are those of the call before, and there is but one round of
 * coordinates. All threads of the block call this. */
template <class T, int LOOP>
static __device__ __forceinline__ void pair_tile(const struct pair_args &args,
                                                 const struct pair_problem<T> &problem, int64_t row,
                                                 int64_t column, bool kept,
                                                 struct pair_shared<T> &sh,
                                                 T (&out)[PAIR_EACH][PAIR_EACH]) {
    T s[PAIR_EACH][PAIR_EACH] = {}, t[PAIR_EACH][PAIR_EACH] = {}, u[PAIR_EACH][PAIR_EACH] = {};
    T v[PAIR_EACH][PAIR_EACH] = {}, total = 0; /* of the weights, in the order of the sums */
    if constexpr (LOOP == LOOP_MAHALANOBIS) {
        pair_quadratic<T>(args, problem, row, column, sh, s);
    } else {
        if constexpr (LOOP == LOOP_POWER) {
            pair_sums<T, LOOP_LARGEST>(args, problem, row, column, false, sh, u, t, s, v, &total);
            PAIR_ENTRIES(r, c) s[r][c] = 0;
        }
        pair_sums<T, LOOP>(args, problem, row, column, kept, sh, s, t, u, v, &total);
    }
    unsigned odd = 0;
    PAIR_ENTRIES(r, c) {
        bool one;
        out[r][c] = pair_finish<T, LOOP>(args, total, s[r][c], t[r][c], u[r][c], v[r][c], &one);
        odd |= (unsigned)one << (r * PAIR_EACH + c);
    }
    for (int e = 0; odd >> e != 0; e++) {
        int64_t i = row + (int)threadIdx.x / 16 * PAIR_EACH + e / PAIR_EACH;
        int64_t j = column + (int)threadIdx.x % 16 * PAIR_EACH + e % PAIR_EACH;
        if ((odd >> e & 1) != 0 && i < args.m && j < args.n)
            pair_note<T>(problem.x + i * args.k, problem.y + j * args.k, problem.w, args.k,
                         problem.flags);
    }
}

#endif
