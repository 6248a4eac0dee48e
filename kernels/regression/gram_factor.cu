/* What follows from the Gram matrix in double-double: U'DU with U unit upper triangular,
 * coefficients, U^-1, and what the host needs of them; singular values by Jacobi. A block a
 * problem, or all blocks for one problem after the other: the same bits either way, so that a
 * problem's batch could not matter even if it chose. Read next: gram.cuh, then
 * ../regression/factor.c for the rank. */
#include "kernels/regression/gram_eliminate.cuh"
#include "kernels/regression/gram_share.cuh"

extern "C" {
#include "kernels/cuda/tuning.h"
}

#define SWEEPS 40       /* of Jacobi, at most */
#define BY_ROWS 25      /* coefficients from which it turns the rows of R */
#define SHARED_PAIRS 64 /* coefficients up to which the columns lie in a block's shared memory */
#define WIDE_PAIRS 200  /* from which several warps turn a pair */
#define PAIR_MOST 128   /* threads that do */

struct factor_in {
    struct gram_shape s;
    struct gram_arrays a;
    struct gram_factor_wants wants;
};

/* The square root; 0 for what rounding has left below 0. */
static __device__ inline struct dd root_of(struct dd a) {
    return a.hi > 0 ? dd_sqrt(a) : dd_from(0);
}

/* The arrays of one problem. */
static __device__ struct gram_arrays of_problem(const struct gram_shape &s,
                                                const struct gram_arrays &all, int64_t i) {
    struct gram_arrays a = all;
    int64_t q = s.q, t = s.t;
    a.columns += i * (q + t);
    a.gram += i * q * q;
    a.with_y += i * q * t;
    a.squares += i * t;
    a.pivots += i * q;
    a.b += i * q * t;
    if (a.inverse != nullptr) a.inverse += i * q * q;
    if (a.slopes != nullptr) a.slopes += i * q * 2 * t;
    if (a.left_squares != nullptr) a.left_squares += i * 2 * t;
    if (a.r != nullptr) a.r += i * q * q;
    if (a.z != nullptr) a.z += i * q * t;
    if (a.rest != nullptr) a.rest += i * t;
    if (a.basis != nullptr) a.basis += i * q * q;
    if (a.singular != nullptr) a.singular += i * q;
    if (a.exponent != nullptr) a.exponent += i * (q + t);
    a.total += i;
    if (a.coef != nullptr) a.coef += i * q * t;
    if (a.ssr != nullptr) a.ssr += i * t;
    return a;
}

/* The problems of this team: the first, and how far it is to the next. */
template <class Share>
static __device__ inline int64_t first_of(const struct gram_block &, const Share &share) {
    return share.block();
}
template <class Share>
static __device__ inline int64_t first_of(const struct gram_grid &, const Share &) {
    return 0;
}
template <class Share>
static __device__ inline int64_t next_of(const struct gram_block &, const Share &share) {
    return share.blocks();
}
template <class Share>
static __device__ inline int64_t next_of(const struct gram_grid &, const Share &) {
    return 1;
}

/* Puts `kernel` on its way: KERNEL<gram_block> or KERNEL<gram_grid> by the number of coefficients
 * alone. What is for the grid is nothing to share. */
#define LAUNCH(kernel, way, stage, threads, bytes, in, err)                                        \
    ((in).s.q < blasd_cuda_tuning.spread_from                                                      \
         ? gram_launch<decltype(in)>(way, stage, kernel<gram_block>, kernel<gram_block>,           \
                                     (in).s.problems, threads, bytes, in, err)                     \
         : blasd_launch_together(kernel<gram_grid, decltype(in)>, (in).s.units,                    \
                                 dim3((unsigned)(threads)), (way)->stream, err, in))

/* x (q x columns) = U'^-1 x */
template <class Team>
static __device__ void solve_lower(const Team &team, int q, const struct dd *gram, struct dd *x,
                                   int columns) {
    for (int j = 0; j < q - 1; j++) {
        team.sync();
        for (int at = (j + 1) * columns + team.rank(); at < q * columns; at += team.size()) {
            int i = at / columns, l = at % columns;
            x[at] = dd_subtract(x[at], dd_multiply(gram[i * q + j], x[j * columns + l]));
        }
    }
    team.sync();
}

/* The triangle and what it leaves, out of the shifts: r, z, rest. */
template <class Team>
static __device__ void put_triangle(const Team &team, const struct gram_shape &s,
                                    const struct gram_arrays &a) {
    int q = s.q, t = s.t, rank = team.rank(), all = team.size();
    for (int at = rank; at < q * (q + t); at += all) {
        int j = at / (q + t), l = at % (q + t);
        struct dd root = root_of(a.pivots[j]), value = dd_from(0);
        if (l < q && l > j)
            value = dd_multiply(root, a.gram[l * q + j]);
        else if (l == j)
            value = root;
        else if (l >= q)
            value = over(a.with_y[j * t + l - q], root);
        if (j == 0 && s.first == 1 && l > 0)
            value =
                dd_add(value, dd_shift(dd_scale(root, a.columns[l].shift), -a.columns[l].exponent));
        if (l < q)
            a.r[j * q + l] = dd_round(value);
        else
            a.z[j * t + l - q] = dd_round(value);
    }
    for (int l = rank; l < t; l += all) {
        struct dd sum = a.squares[l];
        for (int j = 0; j < q; j++) {
            struct dd c = a.with_y[j * t + l];
            if (a.pivots[j].hi > 0)
                sum = dd_subtract(sum, dd_multiply(c, dd_divide(c, a.pivots[j])));
        }
        sum = dd_shift(sum, 2 * gram_exponent(a.columns[q + l]));
        a.rest[l] = sum.hi > 0 ? dd_round(sum) : 0;
    }
    for (int j = rank; j < q + t; j += all) a.exponent[j] = gram_exponent(a.columns[j]);
}

/* basis = U^-1 D^-1/2, out of shifts and scales. */
template <class Team>
static __device__ void put_basis(const Team &team, const struct gram_shape &s,
                                 const struct gram_arrays &a) {
    int q = s.q;
    for (int at = team.rank(); at < q * q; at += team.size()) {
        int j = at / q, c = at % q;
        struct dd value = c < j ? dd_from(0) : a.inverse[at];
        if (j == 0 && s.first == 1)
            for (int i = 1; i <= c; i++)
                value =
                    dd_subtract(value, dd_shift(dd_scale(a.inverse[i * q + c], a.columns[i].shift),
                                                -a.columns[i].exponent));
        a.basis[at] = ldexp(dd_round(over(value, root_of(a.pivots[c]))), -a.columns[j].exponent);
    }
}

template <class Team>
static __device__ void factor_one(const Team &team, const struct factor_in &in, int64_t problem) {
    const struct gram_shape &s = in.s;
    struct gram_arrays a = of_problem(s, in.a, problem);
    int q = s.q, t = s.t, rank = team.rank(), all = team.size();
    double *diagonal = static_cast<double *>(in.a.scratch) + problem * q;
    double alpha = gram_alpha(in.wants.penalty, *a.total, in.a.weight_scale[problem]);
    for (int j = rank; j < q; j += all) {
        if (j >= s.first && alpha > 0)
            a.gram[j * q + j] =
                dd_add(a.gram[j * q + j], dd_from(ldexp(alpha, -2 * a.columns[j].exponent)));
        diagonal[j] = a.gram[j * q + j].hi;
    }
    eliminate(team, q, t, a.gram, a.with_y, a.pivots, diagonal);
    for (int at = rank; at < q * t; at += all) a.b[at] = over(a.with_y[at], a.pivots[at / t]);
    solve_upper(team, q, a.gram, a.b, t, false);
    if (in.wants.triangle) put_triangle(team, s, a);
    if (!in.wants.basis) return;
    for (int at = rank; at < q * q; at += all) a.inverse[at] = dd_from(at / q == at % q);
    solve_upper(team, q, a.gram, a.inverse, q, true);
    put_basis(team, s, a);
}

template <class Team, class... In>
static __global__ void __launch_bounds__(GRAM_THREADS) make_factor(In... in) {
    const auto &share = gram_share(in...);
    Team team;
    for (int64_t i = first_of(team, share); i < share.args.s.problems; i += next_of(team, share))
        factor_one(team, share.args, i);
}

int gram_factor(const struct gram_shape *s, const struct gram_arrays *arrays,
                const struct gram_factor_wants *wants, const struct gram_way *way,
                struct blasd_err *err) {
    struct factor_in in = {*s, *arrays, *wants};
    if (s->problems == 0) return 0;
    return LAUNCH(make_factor, way, STAGE_FACTOR, gram_threads(s->q), 0, in, err);
}

/* Row 0 of with_y is the targets' sum, row 0's square the weights'; no factor changes them. */
template <class... In> static __global__ void __launch_bounds__(64) find_totals(In... in) {
    const auto &share = gram_share(in...);
    const struct gram_shape s = share.args.s;
    const struct gram_arrays &a = share.args.a;
    int64_t all = s.problems * s.t;
    for (int64_t at = share.block() * 64 + threadIdx.x; at < all; at += share.blocks() * 64) {
        int64_t problem = at / s.t, q = s.q;
        const struct gram_column *columns = a.columns + problem * (q + s.t) + q;
        struct dd sum = a.squares[at];
        if (s.first == 1) {
            struct dd y = a.with_y[problem * q * s.t + at % s.t];
            sum = dd_subtract(sum, over(dd_multiply(y, y), a.gram[problem * q * q]));
        }
        sum = dd_shift(sum, 2 * gram_exponent(columns[at % s.t]));
        a.tss[at] = sum.hi > 0 ? dd_round(sum) : 0;
    }
}

int gram_totals(const struct gram_shape *s, const struct gram_arrays *arrays,
                const struct gram_way *way, struct blasd_err *err) {
    int64_t blocks = (s->problems * s->t + 63) / 64;
    if (blocks == 0) return 0;
    if (blocks > s->units * 32) blocks = s->units * 32;
    return gram_launch<struct gram_in>(way, STAGE_TOTALS, find_totals, find_totals, blocks, 64, 0,
                                       {*s, *arrays}, err);
}

/* ---- after the residuals ---- */

template <class Team>
static __device__ void correct_one(const Team &team, const struct gram_shape &s,
                                   const struct gram_arrays &arrays, bool correct,
                                   int64_t problem) {
    struct gram_arrays a = of_problem(s, arrays, problem);
    int q = s.q, t = s.t, tid = team.rank(), all = team.size();
    struct dd *step = a.slopes; /* its first q x t, once they are read */
    for (int base = 0; correct && base < q * t; base += all) {
        int at = base + tid;
        struct dd sum = {0, 0};
        if (at < q * t) sum = dd_add(a.slopes[2 * at], a.slopes[2 * at + 1]);
        team.sync(); /* what is written next has been read */
        if (at < q * t) a.slopes[at] = sum;
        team.sync();
    }
    if (correct) {
        /* the slope is needed twice: the second half of slopes keeps it */
        for (int at = tid; at < q * t; at += all) a.slopes[q * t + at] = step[at];
        solve_lower(team, q, a.gram, step, t);
        for (int at = tid; at < q * t; at += all) step[at] = over(step[at], a.pivots[at / t]);
        solve_upper(team, q, a.gram, step, t, false);
    }
    for (int l = tid; l < t; l += all) {
        struct dd sum = dd_add(a.left_squares[2 * l], a.left_squares[2 * l + 1]);
        for (int j = 0; correct && j < q; j++)
            sum = dd_subtract(sum, dd_multiply(a.slopes[q * t + j * t + l], step[j * t + l]));
        sum = dd_shift(sum, 2 * gram_exponent(a.columns[q + l]));
        a.ssr[l] = sum.hi > 0 ? dd_round(sum) : sum.hi == 0 || sum.hi < 0 ? 0 : sum.hi;
    }
    for (int at = tid; correct && at < q * t; at += all) a.b[at] = dd_add(a.b[at], step[at]);
    team.sync();
    for (int at = tid; at < q * t; at += all) {
        int l = at / q, j = at % q, shift = gram_exponent(a.columns[q + l]);
        struct dd value = dd_shift(a.b[j * t + l], shift - a.columns[j].exponent);
        if (j == 0 && s.first == 1) {
            value = dd_add(value, dd_from(ldexp(a.columns[q + l].shift, -a.columns[q + l].unit)));
            for (int i = 1; i < q; i++) {
                if (a.columns[i].shift == 0) continue;
                value = dd_subtract(
                    value, dd_scale(dd_shift(a.b[i * t + l], shift - a.columns[i].exponent),
                                    a.columns[i].shift));
            }
        }
        a.coef[at] = dd_round(value);
    }
}

struct correct_in {
    struct gram_shape s;
    struct gram_arrays a;
    bool correct;
};

template <class Team, class... In>
static __global__ void __launch_bounds__(GRAM_THREADS) correct_b(In... in) {
    const auto &share = gram_share(in...);
    const struct correct_in &args = share.args;
    Team team;
    for (int64_t i = first_of(team, share); i < args.s.problems; i += next_of(team, share))
        correct_one(team, args.s, args.a, args.correct, i);
}

int gram_correct(const struct gram_shape *s, const struct gram_arrays *arrays, bool correct,
                 const struct gram_way *way, struct blasd_err *err) {
    struct correct_in in = {*s, *arrays, correct};
    if (s->problems == 0) return 0;
    return LAUNCH(correct_b, way, STAGE_CORRECT, gram_threads(s->q), 0, in, err);
}

/* ---- singular values ---- */

/* Threads that turn a pair of columns. Few, because each of them works out the same angle, which is
 * most of the work; from WIDE_PAIRS on several warps, for the grid has more than there are pairs.
 */
static __device__ inline int threads_of_pair(int q) {
    return q <= SHARED_PAIRS ? 8 : q < WIDE_PAIRS ? BLASD_WARP : PAIR_MOST;
}

struct pair_sums {
    double uu, vv, uv;
};

/* Of a pair's threads; the same for each. All threads of a block come here. */
static __device__ inline struct pair_sums join_pair(struct pair_sums sums, int threads) {
    BLASD_STATIC_SHARED(struct pair_sums, of_warp, [GRAM_THREADS / BLASD_WARP]);
    int lanes = threads < BLASD_WARP ? threads : BLASD_WARP, warp = (int)threadIdx.x / BLASD_WARP;
    for (int by = lanes / 2; by > 0; by /= 2) {
        sums.uu += __shfl_xor_sync(BLASD_WARP_ALL, sums.uu, by);
        sums.vv += __shfl_xor_sync(BLASD_WARP_ALL, sums.vv, by);
        sums.uv += __shfl_xor_sync(BLASD_WARP_ALL, sums.uv, by);
    }
    if (threads <= BLASD_WARP) return sums;
    if ((int)threadIdx.x % BLASD_WARP == 0) of_warp[warp] = sums;
    __syncthreads();
    int warps = threads / BLASD_WARP, first = warp / warps * warps;
    sums = of_warp[first];
    for (int w = 1; w < warps; w++) {
        sums.uu += of_warp[first + w].uu;
        sums.vv += of_warp[first + w].vv;
        sums.uv += of_warp[first + w].uv;
    }
    __syncthreads();
    return sums;
}

/* Turns columns u and v, of m numbers, so that they are orthogonal; `mine`: there is such a pair.
 */
static __device__ bool turn(bool mine, int threads, int m, double *u, double *v) {
    int first = (int)threadIdx.x % threads;
    struct pair_sums sums = {0, 0, 0};
    double zeta, tangent, cosine, sine;
    for (int i = first; mine && i < m; i += threads) {
        sums.uu += u[i] * u[i];
        sums.vv += v[i] * v[i];
        sums.uv += u[i] * v[i];
    }
    sums = join_pair(sums, threads);
    /* the sum itself is not better than this; a root is as dear as all of a lane's products */
    double least = 2.2e-16 * 2.2e-16 * (m > 4 ? m : 4), both = sums.uu * sums.vv;
    if (!mine || (both > 1e-240 && both < INFINITY && !(sums.uv * sums.uv > least * both)))
        return false;
    if (!(both > 1e-240 && both < INFINITY) &&
        !(fabs(sums.uv) > sqrt(least) * sqrt(sums.uu) * sqrt(sums.vv)))
        return false;
    zeta = (sums.vv - sums.uu) / (2 * sums.uv);
    tangent = (zeta < 0 ? -1 : 1) / (fabs(zeta) + sqrt(1 + zeta * zeta));
    cosine = rsqrt(1 + tangent * tangent);
    sine = cosine * tangent;
    for (int i = first; i < m; i += threads) {
        double x = u[i], y = v[i];
        u[i] = cosine * x - sine * y;
        v[i] = sine * x + cosine * y;
    }
    return true;
}

/* Whether it is so for any of the team's threads, who ask for the `time`th time, from 1; between
 * two times they meet. said: 0 at first, of the grid. */
static __device__ inline bool any_of(const struct gram_block &, int *, int, bool so) {
    return __syncthreads_or(so) != 0;
}
static __device__ inline bool any_of(const struct gram_grid &team, int *said, int time, bool so) {
    if (so) atomicMax(said, time);
    team.sync();
    return *said == time;
}

/* One-sided Jacobi, all pairs by the rounds of a tournament. columns: q x q. Up to 24 coefficients
 * those of R are turned, which keeps the digits of small singular values where features differ in
 * size, as singular.c does it; then R's rows, which are nearer to orthogonal (R R' is nearer to
 * diagonal than R'R), and what is small is accurate beside what is large. */
template <class Team>
static __device__ void singular_one(const Team &team, const struct gram_shape &s,
                                    const struct gram_arrays &a, double *columns, int *said) {
    int q = s.q, even = (q + 1) / 2 * 2, rank = team.rank(), all = team.size();
    int lane = rank % BLASD_WARP, warp = rank / BLASD_WARP, most = a.columns[0].exponent;
    int threads = threads_of_pair(q), pair = rank / threads, pairs = all / threads;
    for (int j = 1; j < q; j++) most = a.columns[j].exponent > most ? a.columns[j].exponent : most;
    for (int at = rank; at < q * q; at += all) {
        int i = q < BY_ROWS ? at % q : at / q, j = q < BY_ROWS ? at / q : at % q;
        columns[at] = ldexp(a.r[i * q + j], a.columns[j].exponent - most);
    }
    if (rank == 0) *said = 0;
    team.sync();
    for (int sweep = 0; sweep < SWEEPS; sweep++) {
        bool turned = false;
        for (int round = 0; round < even - 1; round++) {
            for (int from = 0; from < even / 2; from += pairs) {
                int k = from + pair, u = (round + k) % (even - 1);
                int v = k == 0 ? even - 1 : (round + even - 1 - k) % (even - 1);
                int first = u < v ? u : v, second = u < v ? v : u;
                bool mine = k < even / 2 && second < q;
                if (turn(mine, threads, q, columns + (int64_t)first * q,
                         columns + (int64_t)second * q))
                    turned = true;
            }
            team.sync();
        }
        if (!any_of(team, said, sweep + 1, turned)) break;
    }
    for (int j = warp; j < q; j += all / BLASD_WARP) {
        double sum = 0;
        for (int i = lane; i < q; i += BLASD_WARP) sum += columns[j * q + i] * columns[j * q + i];
        for (int by = BLASD_WARP / 2; by > 0; by /= 2)
            sum += __shfl_xor_sync(BLASD_WARP_ALL, sum, by);
        if (lane == 0) a.singular[j] = ldexp(sqrt(sum), most);
    }
}

/* Where a team's columns are turned. */
static __device__ inline double *lies_in(const struct gram_block &, int q, double *shared,
                                         double *room) {
    return q <= SHARED_PAIRS ? shared : room;
}
static __device__ inline double *lies_in(const struct gram_grid &, int, double *, double *room) {
    return room;
}

template <class Team, class... In>
static __global__ void __launch_bounds__(GRAM_THREADS) find_singular(In... in) {
    BLASD_DYNAMIC_SHARED(double, shared);
    const auto &share = gram_share(in...);
    const struct gram_shape s = share.args.s;
    const struct gram_arrays &arrays = share.args.a;
    double *room = static_cast<double *>(arrays.scratch);
    Team team;
    for (int64_t i = first_of(team, share); i < s.problems; i += next_of(team, share)) {
        double *columns = lies_in(team, s.q, shared, room + i * s.q * s.q);
        int *said = reinterpret_cast<int *>(room + s.problems * s.q * s.q + i);
        singular_one(team, s, of_problem(s, arrays, i), columns, said);
        team.sync(); /* before the next one's columns */
    }
}

int gram_singular(const struct gram_shape *s, const struct gram_arrays *arrays,
                  const struct gram_way *way, struct blasd_err *err) {
    int threads = s->q > SHARED_PAIRS ? GRAM_THREADS : gram_threads(s->q);
    size_t bytes = s->q > SHARED_PAIRS ? 0 : (size_t)s->q * (size_t)s->q * sizeof(double);
    struct gram_in in = {*s, *arrays};
    if (s->problems == 0 || s->q == 0) return 0;
    return LAUNCH(find_singular, way, STAGE_SINGULAR, threads, bytes, in, err);
}

/* ---- robust errors ---- */

struct sandwich_in {
    struct gram_shape s;
    struct gram_arrays a;
    int target, blocks; /* blocks of a problem, which share its columns */
    const struct dd *weighted;
    struct dd *room;
};

/* middle = V'(X' v X) V with V = U^-1 D^-1/2. */
template <class... In> static __global__ void __launch_bounds__(GRAM_THREADS) sandwich(In... in) {
    const auto &share = gram_share(in...);
    const struct sandwich_in args = share.args;
    int64_t problem = share.block() / args.blocks;
    struct gram_arrays a = of_problem(args.s, args.a, problem);
    int q = args.s.q, tid = (int)threadIdx.x, all = (int)blockDim.x;
    const struct dd *m = args.weighted + problem * q * q;
    struct dd *column = args.room + problem * q * q;
    double *out = args.a.middle + (problem * args.s.t + args.target) * q * q;
    for (int c = (int)(share.block() % args.blocks); c < q; c += args.blocks) {
        struct dd root = root_of(a.pivots[c]);
        for (int i = tid; i < q; i += all) { /* m times column c of U^-1 */
            struct dd sum = {0, 0};
            for (int j = 0; j <= c; j++)
                sum = dd_add(
                    sum, dd_multiply(j < i ? m[j * q + i] : m[i * q + j], a.inverse[j * q + c]));
            column[c * q + i] = over(sum, root);
        }
        __syncthreads();
        for (int i = tid; i < q; i += all) {
            struct dd sum = {0, 0};
            for (int j = 0; j <= i; j++)
                sum = dd_add(sum, dd_multiply(a.inverse[j * q + i], column[c * q + j]));
            out[i * q + c] = dd_round(over(sum, root_of(a.pivots[i])));
        }
    }
}

int gram_sandwich(const struct gram_shape *s, const struct gram_arrays *arrays, int target,
                  const struct dd *weighted, struct dd *room, const struct gram_way *way,
                  struct blasd_err *err) {
    int blocks = s->problems > 256 ? 1 : s->q < 64 ? s->q : 64;
    if (s->problems == 0 || s->q == 0) return 0;
    return gram_launch<struct sandwich_in>(
        way, STAGE_ROBUST + target * STAGES_OF_TARGET + 2, sandwich, sandwich, s->problems * blocks,
        gram_threads(s->q), 0, {*s, *arrays, target, blocks, weighted, room}, err);
}
