/* lasso and elastic net by coordinate descent on the centred Gram matrix, a block a problem and
 * target; everything that tells one coefficient from another is in double-double, so that the
 * matrix in place of the data costs no digit.
 *
 * Sweeps over all coordinates, then over those in use until they change little; then those in use
 * are solved for directly (Newton, shortened where a sign would change), and all are swept again.
 * As
 * ../regression/coordinate.c does it. Works in the units of the columns, where each coefficient has
 * its own penalty. Read next: gram.cuh. */
#include "kernels/regression/gram_eliminate.cuh"

#define ACTIVE_MOST 64     /* sweeps over the coefficients in use between two over all */
#define ACTIVE_CHANGE 1e-5 /* change of a sweep at which those in use are solved for directly */
#define SETTLED 1e-10      /* change of a sweep over all at which nothing moves any more */
#define IDLE_MOST 20       /* such sweeps whose gap is what rounding makes it: the end */
#define DAMPING 1e-9       /* of a direction that is not unique, against the largest square */
#define NEWTON_MOST 40     /* coefficients that leave in one go */

/* ---- sums over a block ---- */

enum reduction { SUM, LARGEST, LEAST };

static __device__ double join(enum reduction what, double a, double b) {
    if (what == SUM) return a + b;
    return (what == LARGEST) == (a > b) ? a : b;
}

/* Of one number a thread; the same for all threads. */
static __device__ double block_join(enum reduction what, double value, double *room) {
    int lane = (int)threadIdx.x % BLASD_WARP, warps = (int)blockDim.x / BLASD_WARP;
    for (int by = BLASD_WARP / 2; by > 0; by /= 2)
        value = join(what, value, __shfl_xor_sync(BLASD_WARP_ALL, value, by));
    __syncthreads();
    if (lane == 0) room[threadIdx.x / BLASD_WARP] = value;
    __syncthreads();
    value = room[0];
    for (int w = 1; w < warps; w++) value = join(what, value, room[w]);
    return value;
}

/* ---- one problem ---- */

/* Pointers into the block's shared memory and the problem's arrays. */
struct sparse_block {
    int p;
    double *b, *l1, *l2;   /* shared: coefficients; penalties of each */
    struct dd *s;          /* shared: c - C b */
    int *used;             /* shared: the coefficients in use */
    struct dd *delta;      /* shared: what a Newton step changes */
    double *sums;          /* shared: 32 */
    const struct dd *gram; /* p x p, whole */
    struct dd *room;       /* p x p and 3 p */
    double *diagonal;      /* p */
    int64_t rows;          /* that the data have, less the intercept */
};

static __device__ double soft(double along, double l1) {
    return along > l1 ? along - l1 : along < -l1 ? along + l1 : 0;
}

/* Returns the largest change against the largest coefficient. */
static __device__ double sweep(const struct sparse_block &d, bool active) {
    int tid = (int)threadIdx.x, all = (int)blockDim.x, p = d.p;
    double change = 0, size = 0;
    for (int j = 0; j < p; j++) {
        double old = d.b[j], square = d.gram[(int64_t)j * p + j].hi, now, along;
        if (!(square > 0) || (active && old == 0)) continue;
        along = dd_round(dd_add(d.s[j], dd_two_product(square, old)));
        now = soft(along, d.l1[j]) / (square + d.l2[j]);
        change = fabs(now - old) > change ? fabs(now - old) : change;
        size = fabs(now) > size ? fabs(now) : size;
        if (now == old) continue;
        __syncthreads(); /* everybody has read s and b */
        struct dd step = dd_two_sum(old, -now);
        for (int k = tid; k < p; k += all)
            d.s[k] = dd_add(d.s[k], dd_multiply(d.gram[(int64_t)j * p + k], step));
        if (tid == 0) d.b[j] = now;
        __syncthreads();
    }
    return size > 0 ? change / size : 0;
}

/* The coefficients that are not 0, in order; how many. */
static __device__ int find_used(const struct sparse_block &d) {
    BLASD_STATIC_SHARED(int, count);
    int lane = (int)threadIdx.x;
    __syncthreads();
    if (lane < BLASD_WARP) {
        int found = 0;
        for (int base = 0; base < d.p; base += BLASD_WARP) {
            bool used = base + lane < d.p && d.b[base + lane] != 0;
            unsigned mask = __ballot_sync(BLASD_WARP_ALL, used);
            if (used) d.used[found + __popc(mask & ((1u << lane) - 1))] = base + lane;
            found += __popc(mask);
        }
        if (lane == 0) count = found;
    }
    __syncthreads();
    return count;
}

/* room = the matrix of those in use, with penalties; behind it the slope. */
static __device__ void newton_system(const struct sparse_block &d, int used, struct dd *slope) {
    int tid = (int)threadIdx.x, all = (int)blockDim.x, p = d.p;
    double damping = 0;
    for (int i = tid; i < used; i += all) {
        double square = d.gram[(int64_t)d.used[i] * p + d.used[i]].hi;
        damping = square > damping ? square : damping;
    }
    damping = used > d.rows ? DAMPING * block_join(LARGEST, damping, d.sums) : 0;
    for (int at = tid; at < used * used; at += all) {
        int i = at / used, l = at % used, j = d.used[i];
        struct dd value = d.gram[(int64_t)j * p + d.used[l]];
        if (i == l) value = dd_add(value, dd_from(d.l2[j] + damping));
        d.room[at] = value;
        if (i == l) d.diagonal[i] = value.hi;
    }
    for (int i = tid; i < used; i += all) {
        int j = d.used[i];
        struct dd value = dd_subtract(d.s[j], dd_two_product(d.l2[j], d.b[j]));
        slope[i] = dd_add(value, dd_from(d.b[j] > 0 ? -d.l1[j] : d.l1[j]));
    }
    __syncthreads();
}

/* A step on the coefficients in use, whose signs are known, as far as no sign changes; one that
 * would change becomes 0. True: it did, and the step is to be made again. */
static __device__ bool newton(const struct sparse_block &d) {
    int tid = (int)threadIdx.x, all = (int)blockDim.x, p = d.p, used = find_used(d);
    struct dd *slope = d.room + (int64_t)p * p, *step = slope + p, *pivots = step + p;
    double far = 1;
    bool broken = false;
    if (used == 0) return false;
    newton_system(d, used, slope);
    eliminate(gram_block(), used, 1, d.room, slope, pivots, d.diagonal);
    for (int i = tid; i < used; i += all) step[i] = over(slope[i], pivots[i]);
    __syncthreads();
    solve_upper(gram_block(), used, d.room, step, 1, false);
    for (int i = tid; i < used; i += all) {
        double old = d.b[d.used[i]], by = dd_round(step[i]);
        if (!(fabs(by) < INFINITY)) broken = true;
        if (old * (old + by) <= 0 && -old / by < far) far = -old / by;
    }
    if (__syncthreads_or(broken)) return false;
    far = block_join(LEAST, far, d.sums);
    for (int i = tid; i < used; i += all) {
        int j = d.used[i];
        double old = d.b[j], by = dd_round(step[i]), now = old + far * by;
        if (far < 1 && -old / by <= far && old * by < 0) now = 0;
        d.delta[i] = dd_two_sum(now, -old);
        d.b[j] = now;
    }
    __syncthreads();
    for (int k = tid; k < p; k += all) {
        struct dd sum = d.s[k];
        for (int i = 0; i < used; i++)
            sum = dd_subtract(sum, dd_multiply(d.gram[(int64_t)d.used[i] * p + k], d.delta[i]));
        d.s[k] = sum;
    }
    __syncthreads();
    return far < 1;
}

/* s = c - C b, from scratch: no rounding of many steps is left in it. */
static __device__ void renew(const struct sparse_block &d, const struct dd *c, int step) {
    __syncthreads();
    for (int k = (int)threadIdx.x; k < d.p; k += (int)blockDim.x) {
        struct dd sum = c[(int64_t)k * step];
        for (int j = 0; j < d.p; j++)
            if (d.b[j] != 0) sum = dd_subtract(sum, dd_scale(d.gram[(int64_t)j * d.p + k], d.b[j]));
        d.s[k] = sum;
    }
    __syncthreads();
}

/* The squares that are left, and how far the objective can be above its least value. */
static __device__ double duality_gap(const struct sparse_block &d, const struct dd *c, int step,
                                     struct dd squares, double *left) {
    double ratio = 0, absolute = 0, pull = 0, shrink, along, gap;
    struct dd both = {0, 0}, one = {0, 0};
    for (int j = (int)threadIdx.x; j < d.p; j += (int)blockDim.x) {
        double product = fabs(dd_round(d.s[j]) - d.l2[j] * d.b[j]);
        if (product > d.l1[j] && product > ratio * d.l1[j])
            ratio = d.l1[j] > 0 ? product / d.l1[j] : INFINITY;
        absolute += d.l1[j] * fabs(d.b[j]);
        pull += d.l2[j] * d.b[j] * d.b[j];
        one = dd_add(one, dd_scale(c[(int64_t)j * step], d.b[j]));
        both = dd_add(both, dd_scale(d.s[j], d.b[j]));
    }
    ratio = block_join(LARGEST, ratio, d.sums);
    absolute = block_join(SUM, absolute, d.sums);
    pull = block_join(SUM, pull, d.sums);
    /* |r|^2 = y'y - b'c - b's and r'y = y'y - b'c */
    one = {block_join(SUM, one.hi, d.sums), block_join(SUM, one.lo, d.sums)};
    both = {block_join(SUM, both.hi, d.sums), block_join(SUM, both.lo, d.sums)};
    along = dd_round(squares) - dd_round(one);
    *left = along - dd_round(both);
    if (!(*left > 0)) *left = 0;
    shrink = ratio > 1 ? 1 / ratio : 1;
    gap = 0.5 * *left * (1 + shrink * shrink) + absolute - shrink * along +
          0.5 * (1 + shrink * shrink) * pull;
    return gap > 0 ? gap : 0;
}

static __device__ struct sparse_block lay_out(const struct gram_shape &s, unsigned char *shared) {
    struct sparse_block d = {};
    int p = s.p;
    d.p = p;
    d.s = reinterpret_cast<struct dd *>(shared);
    d.delta = d.s + p;
    d.b = reinterpret_cast<double *>(d.delta + p);
    d.l1 = d.b + p;
    d.l2 = d.l1 + p;
    d.sums = d.l2 + p;
    d.used = reinterpret_cast<int *>(d.sums + 32);
    d.rows = s.n - s.first;
    return d;
}

static size_t shared_bytes(int p) {
    return (size_t)p * (2 * sizeof(struct dd) + 3 * sizeof(double) + sizeof(int)) +
           32 * sizeof(double);
}

/* Goes on from where the last launch stopped, for at most `most` sweeps in all. */
static __device__ void run_sweeps(const struct sparse_block &d, const struct gram_sparse &sparse,
                                  struct gram_progress *progress, const struct dd *c, int step,
                                  struct dd squares, int64_t most) {
    int64_t sweeps = progress->sweeps;
    int active = progress->active, idle = 0;
    bool done = false;
    double left;
    while (!done && sweeps < most) {
        bool full = active >= ACTIVE_MOST;
        double change = sweep(d, !full);
        sweeps++;
        active = full ? 0 : active + 1;
        if (!full && (change <= ACTIVE_CHANGE || active == ACTIVE_MOST)) {
            active = ACTIVE_MOST;
            for (int steps = 0; steps < NEWTON_MOST; steps++)
                if (!newton(d)) break;
        }
        if (full && change <= SETTLED) {
            double gap = duality_gap(d, c, step, squares, &left);
            done = gap <= sparse.tol * dd_round(squares) || change <= 1e-16 || ++idle == IDLE_MOST;
        }
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        progress->sweeps = sweeps;
        progress->active = active;
        progress->done = done;
    }
}

/* The answer of one target in the user's units: coefficients, squares left, gap. */
static __device__ void put_target(const struct gram_shape &s, const struct gram_arrays &a,
                                  const struct sparse_block &d, int64_t problem, int l, double left,
                                  double gap, const struct gram_sparse &sparse, int64_t sweeps) {
    const struct gram_column *columns = a.columns + problem * (s.q + s.t);
    const struct dd *gram = a.gram + problem * s.q * s.q;
    int64_t place = problem * s.t + l;
    int unit = columns[s.q + l].unit, shift = gram_exponent(columns[s.q + l]);
    double *coef = a.coef + place * s.q;
    struct dd *b = a.b + problem * s.q * s.t + l;
    for (int j = (int)threadIdx.x; j < d.p; j += (int)blockDim.x) {
        coef[s.first + j] = ldexp(d.b[j], shift - columns[s.first + j].exponent);
        b[(int64_t)(s.first + j) * s.t] = dd_from(d.b[j]);
    }
    if (threadIdx.x != 0) return;
    if (s.first == 1) { /* the means of the columns, less their shifts, are row 0 over its first */
        struct dd mean = over(a.with_y[problem * s.q * s.t + l], gram[0]);
        for (int j = 1; j < s.q; j++) {
            if (d.b[j - 1] == 0) continue;
            mean = dd_subtract(mean, dd_scale(over(gram[j], gram[0]), d.b[j - 1]));
        }
        b[0] = mean;
        mean = dd_add(dd_shift(mean, shift), dd_from(ldexp(columns[s.q + l].shift, -unit)));
        for (int j = 1; j < s.q; j++)
            mean =
                dd_subtract(mean, dd_two_product(columns[j].shift,
                                                 ldexp(d.b[j - 1], shift - columns[j].exponent)));
        coef[0] = dd_round(mean);
    }
    a.ssr[place] = ldexp(left, 2 * shift);
    sparse.gap[place] = ldexp(gap, 2 * shift);
    sparse.sweeps[place] = sweeps;
}

/* Targets first .. first + count of each problem; `last` launch: writes the answer. */
static __global__ void __launch_bounds__(GRAM_THREADS)
    descend_coordinates(struct gram_shape s, struct gram_arrays a, struct gram_sparse sparse,
                        int first, int count, int64_t most, bool last) {
    BLASD_DYNAMIC_SHARED(unsigned char, shared);
    int64_t problem = blockIdx.x / count, p = s.p;
    int l = first + (int)(blockIdx.x % count), tid = (int)threadIdx.x, all = (int)blockDim.x;
    struct sparse_block d = lay_out(s, shared);
    struct gram_progress *progress = sparse.progress + problem * s.t + l;
    const struct gram_column *columns = a.columns + problem * (s.q + s.t);
    const struct dd *c = sparse.with_y + problem * p * s.t + l;
    double *b = sparse.b + (problem * s.t + l) * p, left = 0, gap, total = a.total[problem];
    struct dd *room = sparse.room + (int64_t)blockIdx.x * gram_sparse_room(s.p);
    d.gram = sparse.gram + problem * p * p;
    d.room = room;
    d.diagonal = reinterpret_cast<double *>(room + p * p + 3 * p);
    if (!last && progress->done) return;
    for (int j = tid; j < p; j += all) {
        int e = columns[s.first + j].exponent;
        d.b[j] = b[j];
        d.l1[j] = ldexp(sparse.l1 * total, -e - columns[s.q + l].exponent);
        d.l2[j] = ldexp(sparse.l2 * total, -2 * e);
    }
    renew(d, c, s.t);
    if (!progress->done)
        run_sweeps(d, sparse, progress, c, s.t, sparse.squares[problem * s.t + l], most);
    __syncthreads();
    for (int j = tid; j < p; j += all) b[j] = d.b[j];
    if (!last) return;
    renew(d, c, s.t);
    gap = duality_gap(d, c, s.t, sparse.squares[problem * s.t + l], &left);
    put_target(s, a, d, problem, l, left, gap, sparse, progress->sweeps);
}

int gram_sparse_sweeps(const struct gram_shape *s, const struct gram_arrays *arrays,
                       const struct gram_sparse *sparse, int64_t most, bool last,
                       struct blasd_gpu_stream *stream, struct blasd_err *err) {
    int code = 0;
    if (s->problems == 0) return 0;
    for (int first = 0; code == 0 && first < s->t; first += sparse->rooms) {
        int count = s->t - first < sparse->rooms ? s->t - first : sparse->rooms;
        code = blasd_launch(descend_coordinates, dim3((unsigned)(s->problems * count)),
                            dim3((unsigned)gram_threads(s->p)), shared_bytes(s->p), stream, err, *s,
                            *arrays, *sparse, first, count, most, last);
    }
    return code;
}

/* ---- the centred matrix ---- */

static __global__ void __launch_bounds__(256)
    centre(struct gram_shape s, struct gram_arrays a, struct gram_sparse sparse) {
    int p = s.p, q = s.q, t = s.t, f = s.first, width = p + t;
    int64_t each = (int64_t)(p + 1) * width, all = s.problems * each;
    for (int64_t at = (int64_t)blockIdx.x * 256 + threadIdx.x; at < all;
         at += (int64_t)gridDim.x * 256) {
        int64_t problem = at / each;
        int i = (int)(at % each / width), l = (int)(at % each % width);
        const struct dd *gram = a.gram + problem * q * q;
        const struct dd *with_y = a.with_y + problem * q * t;
        if (i < p && l < p) {
            int low = i < l ? i : l, high = i < l ? l : i;
            struct dd value = gram[(low + f) * q + high + f];
            if (f == 1)
                value =
                    dd_subtract(value, over(dd_multiply(gram[low + 1], gram[high + 1]), gram[0]));
            if (i == l && !(value.hi > DEPENDENT * gram[(i + f) * q + i + f].hi))
                value = dd_from(0); /* a constant: it has no coefficient */
            sparse.gram[(problem * p + i) * p + l] = value;
        } else if (i < p) {
            struct dd value = with_y[(i + f) * t + l - p];
            if (f == 1)
                value = dd_subtract(value, over(dd_multiply(gram[i + 1], with_y[l - p]), gram[0]));
            sparse.with_y[(problem * p + i) * t + l - p] = value;
        } else if (l >= p) {
            struct dd value = a.squares[problem * t + l - p], y = with_y[l - p];
            if (f == 1) value = dd_subtract(value, over(dd_multiply(y, y), gram[0]));
            if (!(value.hi > 0)) value = dd_from(0);
            sparse.squares[problem * t + l - p] = value;
            sparse.progress[problem * t + l - p] = {0, ACTIVE_MOST, 0};
            for (int j = 0; j < p; j++) sparse.b[(problem * t + l - p) * p + j] = 0;
        }
    }
}

int gram_sparse_start(const struct gram_shape *s, const struct gram_arrays *arrays,
                      const struct gram_sparse *sparse, struct blasd_gpu_stream *stream,
                      struct blasd_err *err) {
    int64_t all = s->problems * (s->p + 1) * (s->p + s->t), blocks = (all + 255) / 256;
    if (blocks == 0) return 0;
    if (blocks > s->units * 32) blocks = s->units * 32;
    return blasd_launch(centre, dim3((unsigned)blocks), dim3(256), 0, stream, err, *s, *arrays,
                        *sparse);
}
