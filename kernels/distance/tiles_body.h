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

/* Whether two points differ, so that a sum next to 0 has lost digits. Of a quadratic form that was
 * scaled, whether they differ by next to nothing: its matrix may cancel the rest. */
static bool differ(const struct distance_args *args, const T *a, const T *block, int step) {
    const bool scaled = args->scaled && args->loop == LOOP_MAHALANOBIS;
    bool some = false;
    for (int64_t d = 0; d < args->k; d++) {
        const T e = FABS(a[d] - block[d * step]);
        some |= e != 0;
        if (scaled && e > SQRT((T)SQUARE_LEAST)) return false;
    }
    return some;
}

/* Notes sums of one block that left the range of T, or lost digits at its lower end. */
static __attribute__((noinline)) void note_left(const struct distance_args *args, const T *const *a,
                                                const T *block, T sums[R][W]) {
    for (int r = 0; r < R; r++)
        for (int l = 0; l < W; l++) {
            if (sums[r][l] > (T)SQUARE_MOST) *args->left |= DISTANCE_ABOVE;
            if (FABS(sums[r][l]) < (T)SQUARE_LEAST && differ(args, a[r], block + l, W))
                *args->left |= DISTANCE_BELOW;
        }
}

/* Of a loop over the coordinates. Not the same in both precisions: clang gives what chooses between
 * the clones of a static function an external name. */
#define LOOP(name) NAME(name##_)

/* The end of the loops over squares and absolute values, for one block. Sums of absolute values
 * without weights lose nothing. */
static inline __attribute__((always_inline)) void finish_block(const struct distance_args *args,
                                                               const T *const *a, const T *block,
                                                               T acc[R][W], const int squares,
                                                               const int weighted) {
    int odd = 0;
    if (squares && args->finish == FINISH_HALF) {
        for (int r = 0; r < R; r++)
            for (int l = 0; l < W; l++) {
                T half = acc[r][l] * (T)0.5;
                acc[r][l] = half > 2 ? 2 : half; /* of opposite rows, but for rounding */
            }
        return;
    }
    if (!squares && !weighted) return;
    for (int r = 0; r < R; r++)
        for (int l = 0; l < W; l++)
            odd |= (acc[r][l] > (T)SQUARE_MOST) | (acc[r][l] < (T)SQUARE_LEAST);
    if (odd != 0) note_left(args, a, block, acc);
    if (!squares || args->finish != FINISH_ROOT) return;
    for (int r = 0; r < R; r++)
        for (int l = 0; l < W; l++) acc[r][l] = SQRT(acc[r][l]);
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
#define PLAIN_LOOP(name, STEP, FINISH)                                                             \
    BLASD_CLONES                                                                                   \
    static void LOOP(name)(const struct distance_args *args, const T *const *a, const T *panel,    \
                           int64_t n, T *const *out) {                                             \
        const T *restrict w = args->w;                                                             \
        const T total = sum_of(args), scale = (T)args->scale;                                      \
        const int64_t k = args->k;                                                                 \
        for (int64_t j = 0; j < n; j += W, panel += k * W) {                                       \
            T acc[R][W];                                                                           \
            for (int r = 0; r < R; r++) {                                                          \
                T s[W] = {0}, t[W] = {0}, u[W] = {0}, v[W] = {0};                                  \
                const T *restrict row = a[r];                                                      \
                for (int64_t d = 0; d < k; d++) {                                                  \
                    const T *restrict b = panel + d * W;                                           \
                    const T x = row[d], wd = w[d];                                                 \
                    (void)wd;                                                                      \
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
            store(acc, j, n, out);                                                                 \
        }                                                                                          \
        (void)total;                                                                               \
        (void)scale;                                                                               \
    }
#define S s[l]
#define U t[l]
#define V u[l]
#define NEITHER v[l]

/* The comparison drops NaN, the sum in U keeps it. */
PLAIN_LOOP(
    largest,
    {
        T e = x == y ? 0 : FABS(x - y); /* infinities too */
        S = e > S ? e : S;
        U += e;
    },
    S = U != U ? U : S;)

PLAIN_LOOP(
    canberra,
    {
        T e = FABS(x - y);
        T size = FABS(x) + FABS(y);
        S += size == 0 ? 0 : wd * (e / size);
        U += size;
    },
    if (U > (T)SQUARE_MOST) *args->left |= DISTANCE_ABOVE;)

/* Weights of their own may lose digits of either sum. */
static void note_quotient(const struct distance_args *args, const T *a, const T *block, T s, T u) {
    if (!(s <= (T)SQUARE_MOST && u <= (T)SQUARE_MOST)) *args->left |= DISTANCE_ABOVE;
    if (!args->weighted) return;
    if ((s < (T)SQUARE_LEAST && differ(args, a, block, W)) ||
        (u < (T)SQUARE_LEAST && (u > 0 || !args->scaled)))
        *args->left |= DISTANCE_BELOW;
}

PLAIN_LOOP(
    braycurtis,
    {
        S += wd * FABS(x - y);
        U += wd * FABS(x + y);
    },
    note_quotient(args, row, panel + l, S, U);
    S = S / U;)

/* (sum of w |a-b|^p)^(1/p), scaled by the largest difference: powers leave the range at once. */
static T power_of(const struct distance_args *args, const T *a, const T *block) {
    const T *w = args->w;
    T largest = 0, all = 0, root;
    double sum = 0;
    for (int64_t d = 0; d < args->k; d++) {
        const T e = FABS(a[d] - block[d * W]);
        largest = e > largest ? e : largest;
        all += e; /* keeps NaN */
    }
    if (largest > (T)SQUARE_MOST) *args->left |= DISTANCE_ABOVE;
    if (all != all || largest == 0 || isinf(largest)) return all != all ? all : largest;
    for (int64_t d = 0; d < args->k; d++)
        sum += (double)w[d] * pow((double)(FABS(a[d] - block[d * W]) / largest), args->p);
    root = (T)((double)largest * pow(sum, 1 / args->p));
    if (!(root <= (T)SQUARE_MOST && root >= (T)SQUARE_LEAST)) *args->left |= DISTANCE_BELOW;
    return root;
}

static void LOOP(power)(const struct distance_args *args, const T *const *a, const T *panel,
                        int64_t n, T *const *out) {
    for (int64_t j = 0; j < n; j += W, panel += args->k * W) {
        T acc[R][W];
        for (int r = 0; r < R; r++)
            for (int l = 0; l < W; l++) acc[r][l] = power_of(args, a[r], panel + l);
        store(acc, j, n, out);
    }
}

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
        }
        note_left(args, a, panel, acc);
        for (int r = 0; r < R; r++)
            for (int l = 0; l < W; l++) {
                if (acc[r][l] != acc[r][l]) *args->left |= DISTANCE_ABOVE; /* infinities met */
                acc[r][l] = SQRT(acc[r][l]);
            }
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
    loop(args, a, panel, n, out);
}

void NAME(few_)(const struct distance_args *args, const T *a, const T *const *b, T *out) {
    T s[R] = {0};
    for (int64_t d = 0; d < args->k; d++)
        for (int i = 0; i < R; i++) {
            const T e = a[d] - b[i][d];
            s[i] += e * e;
        }
    for (int i = 0; i < R; i++) {
        const T half = s[i] * (T)0.5;
        out[i] = s[i];
        if (args->finish == FINISH_HALF) {
            out[i] = half > 2 ? 2 : half;
            continue;
        }
        if (s[i] > (T)SQUARE_MOST) *args->left |= DISTANCE_ABOVE;
        if (s[i] < (T)SQUARE_LEAST && differ(args, a, b[i], 1)) *args->left |= DISTANCE_BELOW;
        if (args->finish == FINISH_ROOT) out[i] = SQRT(s[i]);
    }
}

BLASD_CLONES
static int64_t LOOP(picked)(const T *from, int64_t n, T most, int32_t *found) {
    int64_t count = 0;
    for (int64_t j = 0; j < n; j += 4 * W) {
        const int64_t end = n - j < 4 * W ? n : j + 4 * W;
        BITS some = end < j + 4 * W;
        if (some == 0)
            for (int i = 0; i < 4 * W; i++) some |= from[j + i] > most ? (BITS)0 : (BITS)1;
        if (some == 0) continue;
        for (int64_t i = j; i < end; i++)
            if (!(from[i] > most)) found[count++] = (int32_t)i;
    }
    return count;
}

/* Of its own, as clang gives other files no name for what chooses between clones. */
int64_t NAME(pick_)(const T *from, int64_t n, T most, int32_t *found) {
    return LOOP(picked)(from, n, most, found);
}
