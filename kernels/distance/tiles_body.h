/* The body of tiles_f64.c and tiles_f32.c, which define T (the type), BITS (an integer of its
 * width), FABS, SQRT, SQUARE_MOST, SQUARE_LEAST and NAME.
 *
 * Every sum runs over the coordinates in order, one rounding an operation (the build forbids fused
 * multiply-add), so that d(a,b) and d(b,a) are equal to the last bit wherever they are computed,
 * and equal rows are exactly 0 apart. */
#include "kernels/distance/tiles.h"

#include "core/parallel.h"

#include <math.h>
#include <string.h>

enum { W = DISTANCE_VECTOR / (int)sizeof(T), R = DISTANCE_ROWS };

typedef T vec __attribute__((vector_size(DISTANCE_VECTOR)));
typedef BITS bits __attribute__((vector_size(DISTANCE_VECTOR)));

void NAME(pack_)(const T *rows, int64_t n, int64_t k, T *panel) {
    for (int64_t j0 = 0; j0 < n; j0 += W, panel += k * W) {
        int64_t lanes = n - j0 < W ? n - j0 : W;
        for (int64_t l = 0; l < W; l++) {
            const T *row = rows + (j0 + (l < lanes ? l : 0)) * k;
            for (int64_t d = 0; d < k; d++) panel[d * W + l] = row[d];
        }
    }
}

static inline __attribute__((always_inline)) void store(T acc[R][W], int64_t j, int64_t n,
                                                        T *const *out) {
    int64_t lanes = n - j < W ? n - j : W;
    if (lanes == W)
        for (int r = 0; r < R; r++) memcpy(out[r] + j, acc[r], sizeof acc[r]);
    else
        for (int r = 0; r < R; r++) memcpy(out[r] + j, acc[r], (size_t)lanes * sizeof(T));
}

/* (sum of w |a-b|^p)^(1/p), scaled by the largest difference and the largest weight. */
static long double careful_power(const struct distance_args *args, const T *a, const T *block) {
    long double largest = 0, heaviest = 0, sum = 0, p = (long double)args->p;
    for (int64_t d = 0; d < args->k; d++) {
        long double e = fabsl((long double)a[d] - (long double)block[d * W]);
        if (args->wide[d] == 0) continue;
        if (e != e) return e;
        if (e > largest) largest = e;
        if (args->wide[d] > heaviest) heaviest = args->wide[d];
    }
    if (largest == 0 || isinf(largest)) return largest;
    for (int64_t d = 0; d < args->k; d++) {
        long double e = fabsl((long double)a[d] - (long double)block[d * W]);
        if (args->wide[d] != 0) sum += args->wide[d] / heaviest * powl(e / largest, p);
    }
    return largest * powl(heaviest * sum, 1 / p);
}

/* (a-b)' V (a-b), or the square of V (a-b) */
static long double careful_quadratic(const struct distance_args *args, const T *a, const T *block) {
    const T *v = args->v;
    long double sum = 0;
    for (int64_t d = 0; d < args->k; d++) {
        long double inner = 0, e = (long double)a[d] - (long double)block[d * W];
        for (int64_t c = 0; c < (args->whitened ? d + 1 : args->k); c++)
            inner +=
                (long double)v[d * args->k + c] * ((long double)a[c] - (long double)block[c * W]);
        sum += (args->whitened ? inner : e) * inner;
    }
    return sum;
}

/* One entry in long double, whose range no square of a T leaves. */
static __attribute__((noinline)) T careful(const struct distance_args *args, const T *a,
                                           const T *block) {
    long double s = 0, u = 0;
    if (args->loop == LOOP_POWER) return (T)careful_power(args, a, block);
    if (args->loop == LOOP_MAHALANOBIS) return (T)sqrtl(careful_quadratic(args, a, block));
    for (int64_t d = 0; d < args->k; d++) {
        long double x = (long double)a[d], y = (long double)block[d * W], w = args->wide[d];
        long double e = fabsl(x - y);
        if (w == 0) continue; /* NaN and infinities do not count there either */
        switch (args->loop) {
        case LOOP_SQUARES:
        case LOOP_SQUARES_W: s += w * (e * e); break;
        case LOOP_LARGEST:
            if (x == y) break; /* infinities too */
            if (e != e) return (T)e;
            s = e > s ? e : s;
            break;
        case LOOP_CANBERRA:
            if (x != 0 || y != 0) s += w * (e / (fabsl(x) + fabsl(y)));
            break;
        case LOOP_BRAYCURTIS:
            s += w * e;
            u += w * fabsl(x + y);
            break;
        default: s += w * e;
        }
    }
    if (args->loop == LOOP_BRAYCURTIS) return (T)(s / u);
    return (T)(args->finish == FINISH_ROOT ? sqrtl(s) : s);
}

/* Of a loop over the coordinates. Not the same in both precisions: clang gives what chooses between
 * the clones of a static function an external name. */
#define LOOP(name) NAME(name##_)

/* Whether a sum left the range. NaN is one that did only where there are weights: infinity times a
 * weight of 0. Sums of absolute values lose no bits where they are small. */
#define ODD(sum)                                                                                   \
    (((sum) > (T)SQUARE_MOST) | ((sum) < (squares ? (T)SQUARE_LEAST : 0)) |                        \
     (weighted & ((sum) != (sum))))

/* The end of the loops over squares and absolute values, for one block. */
static inline __attribute__((always_inline)) void finish_block(const struct distance_args *args,
                                                               const T *const *a, const T *block,
                                                               T acc[R][W], const int squares,
                                                               const int weighted) {
    const bool root = squares && args->finish == FINISH_ROOT;
    T sums[R][W];
    int odd = 0;
    if (squares && args->finish == FINISH_HALF) {
        for (int r = 0; r < R; r++)
            for (int l = 0; l < W; l++) {
                T half = acc[r][l] * (T)0.5;
                acc[r][l] = half > 2 ? 2 : half; /* of opposite rows, but for rounding */
            }
        return;
    }
    if (!root && !weighted) return;
    for (int r = 0; r < R; r++)
        for (int l = 0; l < W; l++) odd |= ODD(acc[r][l]);
    if (odd != 0) memcpy(sums, acc, sizeof sums);
    for (int r = 0; root && r < R; r++)
        for (int l = 0; l < W; l++) acc[r][l] = SQRT(acc[r][l]);
    for (int r = 0; odd != 0 && r < R; r++)
        for (int l = 0; l < W; l++)
            if (ODD(sums[r][l])) acc[r][l] = careful(args, a[r], block + l);
}

/* The two sums that matter most keep their accumulators in registers. */
#define REGISTER_LOOP(name, TERM, SQUARES, WEIGHTED)                                               \
    BLASD_CLONES                                                                                   \
    static void LOOP(name)(const struct distance_args *args, const T *const *a, const T *panel,    \
                           int64_t n, T *const *out) {                                             \
        const T *a0 = a[0], *a1 = a[1], *a2 = a[2], *a3 = a[3], *w = args->w;                      \
        const int64_t k = args->k;                                                                 \
        for (int64_t j = 0; j < n; j += W, panel += k * W) {                                       \
            vec s0 = {0}, s1 = {0}, s2 = {0}, s3 = {0};                                            \
            T acc[R][W];                                                                           \
            for (int64_t d = 0; d < k; d++) {                                                      \
                vec b, e;                                                                          \
                memcpy(&b, panel + d * W, sizeof b);                                               \
                e = a0[d] - b;                                                                     \
                s0 += TERM(e);                                                                     \
                e = a1[d] - b;                                                                     \
                s1 += TERM(e);                                                                     \
                e = a2[d] - b;                                                                     \
                s2 += TERM(e);                                                                     \
                e = a3[d] - b;                                                                     \
                s3 += TERM(e);                                                                     \
            }                                                                                      \
            memcpy(acc[0], &s0, sizeof s0);                                                        \
            memcpy(acc[1], &s1, sizeof s1);                                                        \
            memcpy(acc[2], &s2, sizeof s2);                                                        \
            memcpy(acc[3], &s3, sizeof s3);                                                        \
            finish_block(args, a, panel, acc, SQUARES, WEIGHTED);                                  \
            store(acc, j, n, out);                                                                 \
        }                                                                                          \
        (void)w;                                                                                   \
    }

/* |e|: the sign bit goes */
#define ABS(e) ((vec)(MOST_BITS & (bits)(e)))
#define MOST_BITS                                                                                  \
    ((BITS)(((BITS)1 << (sizeof(BITS) * 8 - 2)) - 1 + ((BITS)1 << (sizeof(BITS) * 8 - 2))))
#define TERM_SQUARE(e) ((e) * (e))
/* not (e e) w: a square that vanishes may have a weight that brings it back */
#define TERM_SQUARE_W(e) (((e)*w[d]) * (e))
#define TERM_ABSOLUTE(e) ABS(e)
#define TERM_ABSOLUTE_W(e) (ABS(e) * w[d])
REGISTER_LOOP(squares, TERM_SQUARE, 1, 0)
REGISTER_LOOP(squares_w, TERM_SQUARE_W, 1, 1)
REGISTER_LOOP(absolute, TERM_ABSOLUTE, 0, 0)
REGISTER_LOOP(absolute_w, TERM_ABSOLUTE_W, 0, 1)

/* Whether a sum is in range, and has lost no bits at its lower end; NaN is not. */
#define FITS(sum) ((sum) <= (T)SQUARE_MOST && (sum) >= (T)SQUARE_LEAST)

static __attribute__((noinline)) void repair_all(const struct distance_args *args,
                                                 const T *const *a, const T *block, T acc[R][W]) {
    for (int r = 0; r < R; r++)
        for (int l = 0; l < W; l++)
            if (acc[r][l] != acc[r][l]) acc[r][l] = careful(args, a[r], block + l);
}

/* Entries that are NaN once more, with care. */
static inline __attribute__((always_inline)) void repair(const struct distance_args *args,
                                                         const T *const *a, const T *block,
                                                         T acc[R][W]) {
    int odd = 0;
    for (int r = 0; r < R; r++)
        for (int l = 0; l < W; l++) odd |= acc[r][l] != acc[r][l];
    if (odd != 0) repair_all(args, a, block, acc);
}

/* Of the weights, in the order in which the loops add up parts of them: no part is more. */
static T sum_of(const struct distance_args *args) {
    const T *w = args->w;
    T sum = 0;
    for (int64_t d = 0; d < args->k; d++) sum += w[d];
    return sum;
}

/* The rest: `s` (and `t`, `u`) are sums of one lane, x and y its coordinates, wd the weight. One
 * row at a time: the sums of a block's lanes then are few enough to stay in registers. */
#ifdef __clang__
#define KEEP_LOOP
#else
#define KEEP_LOOP _Pragma("GCC unroll 1") /* what gcc unrolls too early it does not vectorise */
#endif
#define PLAIN_LOOP(name, STEP, FINISH) PLAIN_LOOP_ODD(name, STEP, FINISH, false)
/* AGAIN: entries that are NaN are to be computed with care. */
#define PLAIN_LOOP_ODD(name, STEP, FINISH, AGAIN)                                                  \
    BLASD_CLONES                                                                                   \
    static void LOOP(name)(const struct distance_args *args, const T *const *a, const T *panel,    \
                           int64_t n, T *const *out) {                                             \
        const T *restrict w = args->w;                                                             \
        const T p = (T)args->p, total = sum_of(args), scale = (T)args->scale;                      \
        const int64_t k = args->k;                                                                 \
        for (int64_t j = 0; j < n; j += W, panel += k * W) {                                       \
            T acc[R][W];                                                                           \
            for (int r = 0; r < R; r++) {                                                          \
                T s[W] = {0}, t[W] = {0}, u[W] = {0}, v[W] = {0};                                  \
                const T *restrict row = a[r];                                                      \
                for (int64_t d = 0; d < k; d++) {                                                  \
                    const T *restrict b = panel + d * W;                                           \
                    const T x = row[d], wd = w[d];                                                 \
                    if (wd == 0) continue;                                                         \
                    KEEP_LOOP                                                                      \
                    for (int l = 0; l < W; l++) {                                                  \
                        const T y = b[l];                                                          \
                        STEP                                                                       \
                    }                                                                              \
                }                                                                                  \
                for (int l = 0; l < W; l++) {                                                      \
                    FINISH                                                                         \
                    acc[r][l] = S;                                                                 \
                }                                                                                  \
                (void)t;                                                                           \
                (void)u;                                                                           \
                (void)v;                                                                           \
            }                                                                                      \
            if (AGAIN) repair(args, a, panel, acc);                                                \
            store(acc, j, n, out);                                                                 \
        }                                                                                          \
        (void)p;                                                                                   \
        (void)total;                                                                               \
        (void)scale;                                                                               \
    }
#define S s[l]
#define U t[l]
#define V u[l]
#define NEITHER v[l]

/* The comparison drops NaN, the sum in U keeps it. */
PLAIN_LOOP_ODD(
    largest,
    {
        T e = FABS(x - y);
        S = e > S ? e : S;
        U += e;
    },
    S = U != U ? U : S;
    , true)

PLAIN_LOOP_ODD(
    power, { S += wd * (T)pow((double)FABS(x - y), args->p); },
    S = FITS(S) ? (T)pow((double)S, 1 / args->p) : (T)NAN;
    , true)

PLAIN_LOOP(
    canberra, {
        T e = FABS(x - y);
        T size = FABS(x) + FABS(y);
        S += size == 0 ? 0 : wd * (e / size);
    }, )

PLAIN_LOOP_ODD(
    braycurtis,
    {
        S += wd * FABS(x - y);
        U += wd * FABS(x + y);
    },
    S = FITS(U) && S <= (T)SQUARE_MOST ? S / U : (T)NAN;
    , true)

PLAIN_LOOP(
    hamming,
    {
        const T differs = x != y ? wd : 0;
        S += differs;
    },
    S = S / total;)

PLAIN_LOOP(
    jaccard,
    {
        S += x != y ? wd : 0;
        U += ((x != 0) | (y != 0)) ? wd : 0;
    },
    S = U == 0 ? 0 : S / U;)

PLAIN_LOOP(
    dice_w,
    {
        S += x != y ? wd : 0;
        U += ((x != 0) & (y != 0)) ? wd : 0;
    },
    S = S / (2 * U + S);)

/* x and y are 0 or 1 here, but for dice. */
#define BOOLEAN_STEP                                                                               \
    {                                                                                              \
        S += (wd * x) * y;                                                                         \
        U += (wd * x) * (1 - y);                                                                   \
        V += (wd * (1 - x)) * y;                                                                   \
    }
PLAIN_LOOP(dice, BOOLEAN_STEP, S = (U + V) / (2 * S + (U + V));)
PLAIN_LOOP(kulczynski1, BOOLEAN_STEP, S = S / (U + V);)
PLAIN_LOOP(sokalsneath, BOOLEAN_STEP, S = 2 * (U + V) / (S + 2 * (U + V));)
/* What is 0 in both has a sum of its own: less the others, a total would leave rounding of it. */
#define FOURFOLD_STEP BOOLEAN_STEP NEITHER += (wd * (1 - x)) * (1 - y);
PLAIN_LOOP(rogerstanimoto, {FOURFOLD_STEP}, {
    T others = 2 * (U + V);
    S = others / ((S + NEITHER) + others);
})
PLAIN_LOOP(russellrao, {FOURFOLD_STEP}, {
    T others = (U + V) + NEITHER;
    S = others / (S + others);
})
PLAIN_LOOP(yule, {FOURFOLD_STEP}, {
    double cross = (double)U * (double)V;
    S = (T)(cross == 0 ? 0 : 2 * cross / ((double)S * (double)NEITHER + cross));
})

/* (1+t) log(1+t) + (1-t) log(1-t), halved. Where the logarithms would cancel, its series
 * t^2/2 + t^4/12 + t^6/30 + ..., whose terms are all positive. */
static inline double shannon(double t) {
    static const double c[] = {1.0 / 2,   1.0 / 12,  1.0 / 30,  1.0 / 56,  1.0 / 90,
                               1.0 / 132, 1.0 / 182, 1.0 / 240, 1.0 / 306, 1.0 / 380,
                               1.0 / 462, 1.0 / 552, 1.0 / 650, 1.0 / 756};
    double square = t * t, sum = 0;
    if (t > 0.3 || t < -0.3) {
        double more = t <= -1 ? 0 : (1 + t) * log(1 + t), less = t >= 1 ? 0 : (1 - t) * log(1 - t);
        return 0.5 * (more + less);
    }
    for (int i = (int)(sizeof c / sizeof *c) - 1; i >= 0; i--) sum = sum * square + c[i];
    return sum * square;
}

PLAIN_LOOP(
    jensenshannon,
    {
        double sum = (double)x + (double)y;
        if (x < 0 || y < 0)
            S = (T)INFINITY;
        else if (sum != 0) /* NaN too */
            S += (T)(sum * shannon(((double)x - (double)y) / sum));
    },
    S = k == 0 ? (T)INFINITY : SQRT(S / 2 * scale);) /* sums of rows that are 0 */

BLASD_CLONES
static void LOOP(mahalanobis)(const struct distance_args *args, const T *const *a, const T *panel,
                              int64_t n, T *const *out) {
    const int64_t k = args->k;
    const T *matrix = args->v;
    T *diff = args->scratch;
    for (int64_t j = 0; j < n; j += W, panel += k * W) {
        T acc[R][W];
        for (int r = 0; r < R; r++) {
            vec sum = {0};
            for (int64_t d = 0; d < k; d++) {
                vec b;
                memcpy(&b, panel + d * W, sizeof b);
                b = a[r][d] - b;
                memcpy(diff + d * W, &b, sizeof b);
            }
            for (int64_t d = 0; d < k; d++) {
                vec inner = {0}, e;
                for (int64_t c = 0; c < (args->whitened ? d + 1 : k); c++) {
                    memcpy(&e, diff + c * W, sizeof e);
                    inner += matrix[d * k + c] * e;
                }
                memcpy(&e, diff + d * W, sizeof e);
                sum += (args->whitened ? inner : e) * inner;
            }
            memcpy(acc[r], &sum, sizeof sum);
            for (int l = 0; l < W; l++) {
                acc[r][l] = FITS(acc[r][l]) ? SQRT(acc[r][l]) : careful(args, a[r], panel + l);
            }
        }
        store(acc, j, n, out);
    }
}

/* Every entry with care. */
static void LOOP(strict)(const struct distance_args *args, const T *const *a, const T *panel,
                         int64_t n, T *const *out) {
    for (int64_t j = 0; j < n; j += W, panel += args->k * W) {
        T acc[R][W];
        for (int r = 0; r < R; r++)
            for (int l = 0; l < W; l++) acc[r][l] = careful(args, a[r], panel + l);
        store(acc, j, n, out);
    }
}

typedef void loop_fn(const struct distance_args *, const T *const *, const T *, int64_t,
                     T *const *);

static loop_fn *boolean_loop(enum distance_finish finish) {
    switch (finish) {
    case FINISH_KULCZYNSKI1: return LOOP(kulczynski1);
    case FINISH_ROGERSTANIMOTO: return LOOP(rogerstanimoto);
    case FINISH_RUSSELLRAO: return LOOP(russellrao);
    case FINISH_SOKALSNEATH: return LOOP(sokalsneath);
    case FINISH_YULE: return LOOP(yule);
    default: return LOOP(dice);
    }
}

void NAME()(const struct distance_args *args, const T *const *a, const T *panel, int64_t n,
            T *const *out) {
    static loop_fn *const loops[] = {
        [LOOP_SQUARES] = LOOP(squares),
        [LOOP_SQUARES_W] = LOOP(squares_w),
        [LOOP_ABSOLUTE] = LOOP(absolute),
        [LOOP_ABSOLUTE_W] = LOOP(absolute_w),
        [LOOP_LARGEST] = LOOP(largest),
        [LOOP_POWER] = LOOP(power),
        [LOOP_CANBERRA] = LOOP(canberra),
        [LOOP_BRAYCURTIS] = LOOP(braycurtis),
        [LOOP_JENSENSHANNON] = LOOP(jensenshannon),
        [LOOP_HAMMING] = LOOP(hamming),
        [LOOP_JACCARD] = LOOP(jaccard),
        [LOOP_DICE] = LOOP(dice_w),
        [LOOP_MAHALANOBIS] = LOOP(mahalanobis),
    };
    loop_fn *loop = args->loop == LOOP_BOOLEAN ? boolean_loop(args->finish) : loops[args->loop];
    if (args->strict) loop = LOOP(strict);
    loop(args, a, panel, n, out);
}
