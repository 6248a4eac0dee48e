/* The columns' ranges and the Gram matrix: two passes over the data.
 *
 * A block takes some rows of one problem and a list of tiles of the matrix, a thread a tile of M x
 * M sums in registers; where there are more threads than tiles, groups of threads share the rows.
 * Each sum costs ten operations a row: the product and its rounding error, the sum and its rounding
 * error. Blocks leave partial sums, which are added in a fixed order. Read next: gram.cuh. */
#include "kernels/regression/gram_share.cuh"

#include <limits.h>

#define THREADS 256
#define SCAN_EACH 32768        /* numbers of a block, about, where there are that many blocks */
#define ROWS_EACH 1024         /* least of a block for products */
#define STAGE_BYTES (40 << 10) /* of rows in shared memory */
#define WIDE_TILE 24           /* coefficients up to which tiles are 2 x 2, then 4 x 4 */

static int64_t at_most(int64_t a, int64_t b) {
    return a < b ? a : b;
}

/* ---- the ranges of the columns ---- */

struct scan_in {
    struct gram_shape s;
    const struct gram_data *data;
    int blocks; /* of each problem */
    double *ranges;
};

/* ranges: for each problem and block, least and largest of p + t columns, then the sum and the
 * largest of the weights. */
template <class... In> static __global__ void __launch_bounds__(THREADS) scan_rows(In... in) {
    BLASD_STATIC_SHARED(double, least, [THREADS]);
    BLASD_STATIC_SHARED(double, largest, [THREADS]);
    const auto &share = gram_share(in...);
    const struct scan_in &args = share.args;
    const struct gram_shape s = args.s;
    int64_t problem = share.block() / args.blocks, block = share.block() % args.blocks;
    int64_t each = (s.n + args.blocks - 1) / args.blocks, from = block * each;
    int64_t to = from + each < s.n ? from + each : s.n;
    int all = s.p + s.t, tid = (int)threadIdx.x;
    double *out = args.ranges + (problem * args.blocks + block) * gram_range_numbers(s);
    double sum = 0, heaviest = 0;
    const struct gram_data d = args.data[problem];
    for (int c0 = 0; c0 < all; c0 += THREADS) {
        int width = all - c0 < THREADS ? all - c0 : THREADS, rows = THREADS / width;
        int row = tid / width, c = c0 + tid % width;
        const double *at = c < s.p ? d.x + c : d.y + (c - s.p);
        int64_t step = c < s.p ? s.p : s.t;
        double low = INFINITY, high = -INFINITY;
        for (int64_t i = from + row; row < rows && i < to; i += rows) {
            double v = at[i * step];
            low = v < low ? v : low;
            high = v > high ? v : high;
        }
        __syncthreads();
        least[tid] = low;
        largest[tid] = high;
        __syncthreads();
        for (int r = 1; tid < width && r < rows; r++) {
            low = least[r * width + tid] < low ? least[r * width + tid] : low;
            high = largest[r * width + tid] > high ? largest[r * width + tid] : high;
        }
        if (tid < width) {
            out[2 * (c0 + tid)] = low;
            out[2 * (c0 + tid) + 1] = high;
        }
    }
    if (d.w == nullptr) return;
    for (int64_t i = from + tid; i < to; i += THREADS) {
        sum += d.w[i];
        heaviest = d.w[i] > heaviest ? d.w[i] : heaviest;
    }
    __syncthreads();
    least[tid] = sum;
    largest[tid] = heaviest;
    for (int half = THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (tid >= half) continue;
        least[tid] += least[tid + half];
        if (largest[tid + half] > largest[tid]) largest[tid] = largest[tid + half];
    }
    if (tid != 0) return;
    out[2 * all] = least[0];
    out[2 * all + 1] = largest[0];
}

static __device__ double magnitude(double low, double high) {
    return -low > high ? -low : high;
}

/* `least` is the least exponent that it may have. */
static __device__ struct gram_column settle(double low, double high, bool shifts, int least) {
    struct gram_column column = {0, 1, 1, 0, 0, 0};
    double largest;
    if (shifts) column.shift = blasd_regression_shift(low, high);
    largest = magnitude(low - column.shift, high - column.shift);
    if (largest > 0 && largest < INFINITY) {
        frexp(largest, &column.own);
        column.exponent = column.own > least ? column.own : least;
    }
    column.scale = ldexp(1.0, -(column.exponent / 2));
    column.again = ldexp(1.0, -(column.exponent - column.exponent / 2));
    return column;
}

/* That of the penalty's root: in such units the penalty is at most 1 beside squares of at most 1,
 * and what it makes of the smallest feature is still a number. */
static __device__ int penalty_exponent(double alpha) {
    int exponent = 0;
    if (!(alpha > 0) || !(alpha < INFINITY)) return INT_MIN;
    frexp(alpha, &exponent);
    return (exponent + 1) / 2;
}

/* The sum of the weights in their unit, and that. */
static __device__ double settle_weights(const struct gram_shape &s, const double *from, int blocks,
                                        const struct gram_penalty &penalty, double *scale,
                                        int *unit) {
    double sum = s.weighted ? 0 : (double)s.n, heaviest = 0;
    for (int b = 0; s.weighted && b < blocks; b++) {
        const double *weights = from + (int64_t)b * gram_range_numbers(s) + 2 * (s.p + s.t);
        sum += weights[0];
        heaviest = weights[1] > heaviest ? weights[1] : heaviest;
    }
    *unit = s.weighted
                ? blasd_regression_weight_unit(heaviest, penalty.by_weight ? 0 : penalty.alpha)
                : 0;
    *scale = ldexp(1.0, -*unit);
    return sum * *scale;
}

struct settle_in {
    struct gram_shape s;
    struct gram_arrays a;
    const double *ranges;
    int blocks; /* that have left some */
    int parts;  /* blocks that share a problem's columns */
    struct gram_settling settling;
};

template <class... In> static __global__ void __launch_bounds__(THREADS) settle_columns(In... in) {
    const auto &share = gram_share(in...);
    const struct gram_shape s = share.args.s;
    const struct gram_arrays &a = share.args.a;
    const struct gram_settling settling = share.args.settling;
    BLASD_STATIC_SHARED(double, weights);
    BLASD_STATIC_SHARED(double, scale);
    int parts = share.args.parts, part = (int)(share.block() % parts);
    int64_t problem = share.block() / parts, numbers = gram_range_numbers(s);
    int all = s.p + s.t, blocks = share.args.blocks;
    const double *from = share.args.ranges + problem * blocks * numbers;
    struct gram_column *to = a.columns + problem * (s.q + s.t);
    int *unit = a.unit + problem * (s.t + 1);
    if (threadIdx.x == 0) {
        double power;
        int of_weights;
        weights = settle_weights(s, from, blocks, settling.penalty, &power, &of_weights);
        scale = power;
        if (part == 0) {
            if (s.first == 1) to[0] = {0, 1, 1, 0, 0, 0};
            a.total[problem] = weights;
            a.weight_scale[problem] = scale;
            unit[s.t] = of_weights;
        }
    }
    __syncthreads();
    int root = penalty_exponent(gram_alpha(settling.penalty, weights, scale));
    int lanes = gram_lanes_over(blocks), lane = (int)threadIdx.x % lanes,
        group = (int)threadIdx.x / lanes;
    for (int c0 = part * (THREADS / lanes); c0 < all; c0 += parts * (THREADS / lanes)) {
        int c = c0 + group;
        double low = INFINITY, high = -INFINITY;
        for (int b = lane; c < all && b < blocks; b += lanes) {
            const double *range = from + b * numbers + 2 * c;
            low = range[0] < low ? range[0] : low;
            high = range[1] > high ? range[1] : high;
        }
        for (int by = lanes / 2; by > 0; by /= 2) {
            double least = __shfl_xor_sync(BLASD_WARP_ALL, low, by);
            double largest = __shfl_xor_sync(BLASD_WARP_ALL, high, by);
            low = least < low ? least : low;
            high = largest > high ? largest : high;
        }
        if (c >= all || lane != 0) continue;
        struct gram_column column =
            settle(low, high, settling.shifts && s.first == 1, c < s.p ? root : INT_MIN);
        if (c >= s.p) {
            column.unit = blasd_regression_excess(magnitude(low, high));
            unit[c - s.p] = column.unit;
        }
        to[s.first + c] = column;
    }
}

int gram_range_blocks(const struct gram_shape *s) {
    int columns = s->p + s->t > 0 ? s->p + s->t : 1; /* there may be no element */
    int64_t each = SCAN_EACH / columns + 1, blocks = (s->n + each - 1) / each;
    return (int)at_most(blocks, (int64_t)s->units * 4);
}

int gram_ranges(const struct gram_shape *s, const struct gram_arrays *arrays, double *ranges,
                int blocks, const struct gram_way *way, struct blasd_err *err) {
    if (s->problems == 0) return 0;
    return gram_launch<struct scan_in>(way, STAGE_RANGES, scan_rows, scan_rows,
                                       s->problems * blocks, THREADS, 0,
                                       {*s, arrays->data, blocks, ranges}, err);
}

int gram_settle(const struct gram_shape *s, const struct gram_arrays *arrays, const double *ranges,
                int blocks, const struct gram_settling *settling, const struct gram_way *way,
                struct blasd_err *err) {
    int columns = THREADS / gram_lanes_over(blocks), parts = (s->p + s->t + columns - 1) / columns;
    if (s->problems == 0) return 0;
    if (parts < 1) parts = 1;
    return gram_launch<struct settle_in>(way, STAGE_SETTLE, settle_columns, settle_columns,
                                         s->problems * parts, THREADS, 0,
                                         {*s, *arrays, ranges, blocks, parts, *settling}, err);
}

/* ---- the products ---- */

/* The matrix in tiles: first those of X'X, row by row above the diagonal, then for each tile of
 * targets those with all tiles of X and its own with itself. */
struct tiling {
    int of_x;         /* tiles of the coefficients */
    int of_y;         /* tiles of the targets */
    int pairs;        /* tiles of X'X */
    int first, count; /* those asked for */
    int chunk;        /* of a block */
    int groups;       /* of threads, which share a block's rows */
    int blocks;       /* that share the rows of a problem */
    int rows;         /* in shared memory at a time */
    int width;        /* of the columns there, at most */
};

/* What is multiplied. */
struct products_of {
    const struct gram_data *data;
    const struct gram_column *columns;
    const double *left;         /* in place of y: 2 t columns as they are; or NULL */
    const double *row_weight;   /* in place of w, `weight_step` from problem to problem; or NULL */
    const double *weight_scale; /* of w, for each problem */
    int64_t weight_step;
    int targets; /* columns of y or left */
};

struct products_in {
    struct gram_shape s;
    struct products_of of;
    struct tiling t;
    struct dd *partial;
};

enum part { ALL, ONLY_X, ONLY_Y };

template <int M>
static struct tiling make_tiling(const struct gram_shape *s, int targets, bool weighted,
                                 enum part part) {
    struct tiling t = {};
    int one; /* tiles as if there were one target: what is done to X must not depend on them */
    int64_t blocks = (s->n + ROWS_EACH - 1) / ROWS_EACH;
    t.of_x = (s->q + M - 1) / M;
    t.of_y = (targets + M - 1) / M;
    t.pairs = t.of_x * (t.of_x + 1) / 2;
    t.count = t.pairs + t.of_y * (t.of_x + 1);
    one = (part == ONLY_Y ? 0 : t.pairs) + (part == ONLY_X ? 0 : t.of_x + 1);
    if (part == ONLY_X) t.count = t.pairs;
    if (part == ONLY_Y) t.first = t.pairs;
    t.count -= t.first;
    if (one < 1) one = 1;
    t.groups = one < THREADS ? THREADS / one : 1;
    if (t.groups > 32) t.groups = 32;
    while ((t.groups & (t.groups - 1)) != 0) t.groups &= t.groups - 1; /* a power of two */
    t.chunk = THREADS / t.groups;
    t.blocks = (int)at_most(blocks, (int64_t)s->units * 4);
    t.width = (t.of_x + t.chunk / (t.of_x + 1) + 2) * M;
    t.rows = (int)(STAGE_BYTES / 8 / (weighted ? 3 : 1) / t.width);
    if (t.rows > 64) t.rows = 64;
    if (t.rows < 1) t.rows = 1;
    return t;
}

/* Which tiles of columns tile number k multiplies: those of y are counted after those of x. */
static __device__ void find_tile(const struct tiling &t, int k, int *left, int *right) {
    if (k < t.pairs) {
        int j = 0;
        while (k >= t.of_x - j) k -= t.of_x - j++;
        *left = j;
        *right = j + k;
        return;
    }
    k -= t.pairs;
    *right = t.of_x + k / (t.of_x + 1);
    *left = k % (t.of_x + 1) < t.of_x ? k % (t.of_x + 1) : *right;
}

/* hi + lo += a b, a = high + low */
template <bool WEIGHTED>
static __device__ inline void add_product(double *hi, double *lo, double high, double low,
                                          double b) {
    struct dd product = dd_two_product(high, b), sum = dd_two_sum(*hi, product.hi);
    if (WEIGHTED) product.lo = DD_JOINED(low, b, product.lo);
    *lo += sum.lo + product.lo;
    *hi = sum.hi;
}

/* Element `column` (counted in tiles' columns of M) of row i, 0 where there is none. */
template <int M>
static __device__ double element(const struct gram_shape &s, const struct products_of &in,
                                 const struct gram_data &d, const struct tiling &t, int64_t problem,
                                 int64_t i, int column) {
    const struct gram_column *columns = in.columns + problem * (s.q + s.t);
    if (column < t.of_x * M) {
        if (column >= s.q) return 0;
        if (column < s.first) return 1;
        return gram_value(columns[column], d.x[i * s.p + column - s.first]);
    }
    column -= t.of_x * M;
    if (column >= in.targets) return 0;
    if (in.left != nullptr) return in.left[(problem * s.n + i) * in.targets + column];
    return gram_value(columns[s.q + column], d.y[i * s.t + column]);
}

/* Adds the groups' sums, half of them to the other half, through shared memory. */
template <int M>
static __device__ void join_groups(const struct tiling &t, int tile, int group, double (*hi)[M],
                                   double (*lo)[M], struct dd *room) {
    for (int half = t.groups / 2; half > 0; half /= 2) {
        __syncthreads();
        if (group >= half && group < 2 * half)
            for (int e = 0; e < M * M; e++)
                room[(e * half + group - half) * t.chunk + tile] = {hi[e / M][e % M],
                                                                    lo[e / M][e % M]};
        __syncthreads();
        if (group < half)
            for (int e = 0; e < M * M; e++) {
                struct dd sum = dd_add({hi[e / M][e % M], lo[e / M][e % M]},
                                       room[(e * half + group) * t.chunk + tile]);
                hi[e / M][e % M] = sum.hi;
                lo[e / M][e % M] = sum.lo;
            }
    }
}

/* Blocks: row blocks of problem after problem, for chunk after chunk of tiles.
 * partial: [problem][block][tile - first][M x M]. */
template <int M, bool WEIGHTED, class... In>
static __global__ void __launch_bounds__(THREADS) multiply_rows(In... from_host) {
    BLASD_DYNAMIC_SHARED(double, shared);
    const auto &share = gram_share(from_host...);
    const struct gram_shape s = share.args.s;
    const struct products_of in = share.args.of;
    const struct tiling t = share.args.t;
    struct dd *partial = share.args.partial;
    int64_t row_blocks = s.problems * t.blocks, at_row = share.block() % row_blocks;
    int64_t problem = at_row / t.blocks, block = at_row % t.blocks;
    int64_t each = (s.n + t.blocks - 1) / t.blocks, from = block * each;
    int64_t to = from + each < s.n ? from + each : s.n;
    int tid = (int)threadIdx.x, tile = tid % t.chunk, group = tid / t.chunk;
    int low_k = t.first + (int)(share.block() / row_blocks) * t.chunk, end = t.first + t.count,
        k = low_k + tile;
    int last_k = low_k + t.chunk < end ? low_k + t.chunk - 1 : end - 1;
    bool mine = k < end && group < t.groups;
    /* columns of targets that this block's tiles meet lie behind those of x */
    int y_from = low_k < t.pairs ? 0 : (low_k - t.pairs) / (t.of_x + 1);
    int y_to = last_k < t.pairs ? y_from : (last_k - t.pairs) / (t.of_x + 1) + 1;
    int width = (t.of_x + y_to - y_from) * M, left = 0, right = 0;
    double *plain = shared, *high = shared + t.rows * width, *low = high + t.rows * width;
    double hi[M][M] = {}, lo[M][M] = {};
    const struct gram_data d = in.data[problem];
    const double *w = in.row_weight != nullptr ? in.row_weight + problem * in.weight_step : d.w;
    double weight_scale = in.row_weight != nullptr ? 1 : in.weight_scale[problem];
    if (mine) find_tile(t, k, &left, &right);
    if (left >= t.of_x) left -= y_from;
    if (right >= t.of_x) right -= y_from;
    for (int64_t i0 = from; i0 < to; i0 += t.rows) {
        int rows = to - i0 < t.rows ? (int)(to - i0) : t.rows;
        for (int at = tid; at < rows * width; at += THREADS) {
            int row = at / width, column = at % width;
            double v;
            if (column >= t.of_x * M) column += y_from * M;
            v = element<M>(s, in, d, t, problem, i0 + row, column);
            plain[at] = v;
            if (WEIGHTED) {
                struct dd weighted = dd_two_product(w[i0 + row] * weight_scale, v);
                high[at] = weighted.hi;
                low[at] = weighted.lo;
            }
        }
        __syncthreads();
        for (int row = group; mine && row < rows; row += t.groups) {
            const double *b = plain + row * width + right * M;
            const double *a = (WEIGHTED ? high : plain) + row * width + left * M;
            const double *a_low = low + row * width + left * M;
            for (int i = 0; i < M; i++)
                for (int l = 0; l < M; l++)
                    add_product<WEIGHTED>(&hi[i][l], &lo[i][l], a[i], WEIGHTED ? a_low[i] : 0,
                                          b[l]);
        }
        __syncthreads();
        for (int e = 0; e < M * M; e++) {
            struct dd sum = dd_fast_sum(hi[e / M][e % M], lo[e / M][e % M]);
            hi[e / M][e % M] = sum.hi;
            lo[e / M][e % M] = sum.lo;
        }
    }
    join_groups<M>(t, tile, group, hi, lo, reinterpret_cast<struct dd *>(shared));
    if (!mine || group != 0) return;
    for (int e = 0; e < M * M; e++)
        partial[(at_row * t.count + k - t.first) * M * M + e] = {hi[e / M][e % M],
                                                                 lo[e / M][e % M]};
}

/* Where the sums go. */
struct products_out {
    struct dd *gram, *with_y, *squares;
};

struct collect_in {
    struct gram_shape s;
    struct tiling t;
    int targets;
    const struct dd *partial;
    struct products_out out;
};

/* The partial sums of each element: its lanes share them out, each in order, then add theirs. */
template <int M, class... In> static __global__ void __launch_bounds__(THREADS) collect(In... in) {
    const auto &share = gram_share(in...);
    const struct gram_shape s = share.args.s;
    const struct tiling t = share.args.t;
    const struct products_out out = share.args.out;
    int targets = share.args.targets;
    int64_t each = (int64_t)t.count * M * M, all = s.problems * each;
    int lanes = gram_lanes_over(t.blocks), lane = (int)threadIdx.x % lanes;
    int in_warp = (int)threadIdx.x % BLASD_WARP / lanes;
    int64_t at = (share.block() * THREADS + threadIdx.x) / lanes;
    /* all lanes of a warp go on as long as one has an element */
    for (; at - in_warp < all; at += share.blocks() * THREADS / lanes) {
        int64_t unit = at < all ? at : all - 1, problem = unit / each, element = unit % each;
        int left, right, i, l;
        struct dd sum = {0, 0};
        find_tile(t, t.first + (int)(element / (M * M)), &left, &right);
        i = left * M + (int)(element % (M * M)) / M;
        l = right * M + (int)(element % (M * M)) % M;
        for (int b = lane; b < t.blocks; b += lanes)
            sum = dd_add(sum, share.args.partial[(problem * t.blocks + b) * each + element]);
        sum = dd_lanes_sum(sum, lanes);
        if (lane != 0 || at >= all) continue;
        if (right < t.of_x) {
            if (i < s.q && l < s.q && l >= i) *(out.gram + (problem * s.q + i) * s.q + l) = sum;
            continue;
        }
        l -= t.of_x * M;
        if (l >= targets) continue;
        if (left < t.of_x) {
            if (i < s.q) *(out.with_y + (problem * s.q + i) * targets + l) = sum;
        } else if (i - t.of_x * M == l) {
            *(out.squares + problem * targets + l) = sum;
        }
    }
}

/* What is multiplied, and where the sums go; `stage` is that of the first of two launches. */
struct products {
    struct products_of of;
    enum part part;
    int stage;
    struct dd *scratch;
    struct products_out out;
};

template <int M, bool WEIGHTED>
static int run_products(const struct gram_shape *s, const struct products *p,
                        const struct gram_way *way, struct blasd_err *err) {
    const struct tiling t = make_tiling<M>(s, p->of.targets, WEIGHTED, p->part);
    size_t stage = (size_t)t.rows * (size_t)t.width * 8 * (WEIGHTED ? 3 : 1);
    size_t room = t.groups > 1 ? (size_t)THREADS / 2 * M * M * sizeof(struct dd) : 0;
    int64_t threads = s->problems * t.count * M * M * gram_lanes_over(t.blocks);
    int64_t blocks = (threads + THREADS - 1) / THREADS;
    int code;
    if (t.count == 0 || s->problems == 0) return 0;
    /* chunks of tiles may be more than the 65,535 blocks of a grid's second dimension */
    code = gram_launch<struct products_in>(
        way, p->stage, multiply_rows<M, WEIGHTED>, multiply_rows<M, WEIGHTED>,
        s->problems * t.blocks * ((t.count + t.chunk - 1) / t.chunk), THREADS,
        stage > room ? stage : room, {*s, p->of, t, p->scratch}, err);
    if (code != 0) return code;
    return gram_launch<struct collect_in>(way, p->stage + 1, collect<M>, collect<M>,
                                          at_most(blocks, (int64_t)s->units * 16), THREADS, 0,
                                          {*s, t, p->of.targets, p->scratch, p->out}, err);
}

static int any_products(const struct gram_shape *s, const struct products *p,
                        const struct gram_way *way, struct blasd_err *err) {
    bool weighted = s->weighted || p->of.row_weight != nullptr;
    if (s->q <= WIDE_TILE)
        return weighted ? run_products<2, true>(s, p, way, err)
                        : run_products<2, false>(s, p, way, err);
    return weighted ? run_products<4, true>(s, p, way, err)
                    : run_products<4, false>(s, p, way, err);
}

template <int M> static size_t products_bytes(const struct gram_shape *s) {
    struct tiling t = make_tiling<M>(s, 2 * s->t, true, ALL);
    return (size_t)s->problems * (size_t)t.blocks * (size_t)t.count * M * M * sizeof(struct dd);
}

size_t gram_scratch_bytes(const struct gram_shape *s) {
    size_t products = s->q <= WIDE_TILE ? products_bytes<2>(s) : products_bytes<4>(s);
    size_t square = (size_t)s->problems * (size_t)s->q * (size_t)(s->q + 1) * 8;
    if (gram_bytes_fit(s) && gram_bytes_scratch(s) > products) products = gram_bytes_scratch(s);
    return square > products ? square : products;
}

/* With the weights that came. */
static struct products products_with(const struct gram_arrays *arrays, const double *left,
                                     int targets, enum part part, int stage) {
    struct products p = {};
    p.of = {arrays->data, arrays->columns, left, nullptr, arrays->weight_scale, 0, targets};
    p.part = part;
    p.stage = stage;
    p.scratch = static_cast<struct dd *>(arrays->scratch);
    return p;
}

int gram_products(const struct gram_shape *s, const struct gram_arrays *arrays,
                  const struct gram_way *way, struct blasd_err *err) {
    struct products p = products_with(arrays, nullptr, s->t, ALL, STAGE_PRODUCTS);
    if (gram_bytes_fit(s)) return gram_bytes(s, arrays, way, err);
    p.out = {arrays->gram, arrays->with_y, arrays->squares};
    return any_products(s, &p, way, err);
}

int gram_slopes(const struct gram_shape *s, const struct gram_arrays *arrays,
                const struct gram_way *way, struct blasd_err *err) {
    struct products p = products_with(arrays, arrays->left, 2 * s->t, ONLY_Y, STAGE_SLOPES);
    p.out = {nullptr, arrays->slopes, arrays->left_squares};
    return any_products(s, &p, way, err);
}

int gram_weighted(const struct gram_shape *s, const struct gram_arrays *arrays, int target,
                  struct dd *to, const struct gram_way *way, struct blasd_err *err) {
    int stage = STAGE_ROBUST + target * STAGES_OF_TARGET;
    struct products p = products_with(arrays, nullptr, 0, ONLY_X, stage);
    p.of.row_weight = arrays->row_weight + (int64_t)target * s->n;
    p.of.weight_step = (int64_t)s->t * s->n;
    p.out = {to, nullptr, nullptr};
    return any_products(s, &p, way, err);
}
