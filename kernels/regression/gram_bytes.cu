/* The Gram matrix of up to 56 columns without weights, in whole numbers, on the tensor cores that
 * multiply bytes.
 *
 * A value is a whole number of units 2^-110 of its column's largest (what lies below is cut off:
 * doubles within 2^57 of the largest are whole), written in 14 digits of a byte from -128 to 127.
 * Products of two digits and their sums over thousands of rows are exact in 32 bits, for each
 * place, whatever the order; products of places below the last one, 1e-32 of the largest square,
 * are left out. Digits that are 0 in all of a step's rows, as the lower half of most data's are,
 * cost nothing. Read next: gram.cu, which does the same for everything else. */
#include "kernels/regression/gram_share.cuh"

#define STEP 32    /* rows that a block turns into digits at a time */
#define WORDS 12   /* of four rows' digits each, of which 8 are used: no two lanes meet in a bank */
#define DIGITS 14  /* of a value */
#define PLACES 110 /* binary places of a value in them */
#define COLUMNS 64 /* in shared memory, of which the last 8 stay 0 */
#define TILES 16   /* of 16 x 8, on and above the diagonal: a warp each */
#define TILE 128   /* numbers of a tile */
#define FLUSH 256  /* steps after which sums go on: 14 products of 2^14 for 8192 rows fit an int */
#define ROWS_EACH 1024 /* least of a block */
#define THREADS (TILES * BLASD_WARP)
#define GATHER 256 /* threads of a block that adds the sums of the blocks */

/* sums += a b of 16 x 32 by 32 x 8 signed bytes; which lane has what is the PTX manual's
 * (mma.m16n8k32). */
#ifdef __CUDACC__
static __device__ inline void multiply_tile(int (&sums)[4], const unsigned (&a)[4],
                                            const unsigned (&b)[2]) {
    asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 "
                 "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+r"(sums[0]), "+r"(sums[1]), "+r"(sums[2]), "+r"(sums[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
#else
struct tile_lane {
    unsigned a[4], b[2];
};
static int of_bytes(unsigned a, unsigned b) {
    int sum = 0;
    for (int i = 0; i < 32; i += 8) sum += (int8_t)(a >> i) * (int8_t)(b >> i);
    return sum;
}
static void multiply_tile(int (&sums)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
    static struct tile_lane lanes[TILES][BLASD_WARP];
    struct tile_lane *mine = lanes[threadIdx.x / BLASD_WARP];
    int lane = (int)threadIdx.x % BLASD_WARP;
    mine[lane] = {{a[0], a[1], a[2], a[3]}, {b[0], b[1]}};
    __syncwarp();
    for (int e = 0; e < 4; e++)
        for (int k = 0; k < 4; k++) {
            const struct tile_lane &row = mine[lane / 4 * 4 + k];
            const struct tile_lane &column = mine[(lane % 4 * 2 + e % 2) * 4 + k];
            sums[e] +=
                of_bytes(row.a[e / 2], column.b[0]) + of_bytes(row.a[2 + e / 2], column.b[1]);
        }
    __syncwarp(); /* everybody has read */
}
#endif

struct bytes_in {
    struct gram_shape s;
    const struct gram_data *data;
    const struct gram_column *columns;
    int blocks; /* that share the rows of a problem */
    struct dd *partial;
};

struct gather_in {
    struct gram_shape s;
    struct gram_arrays a;
    int blocks;
};

/* What a thread turns into digits: four rows of one column. */
struct quarter {
    const double *at; /* NULL: 1 in each row */
    int64_t step;
    double shift;
    int own, column, rows; /* rows: the first of four in a step */
    bool there;
};

static __device__ struct quarter find_quarter(const struct bytes_in &in, int64_t problem) {
    const struct gram_column *columns = in.columns + problem * (in.s.q + in.s.t);
    const struct gram_data &d = in.data[problem];
    int warp = (int)threadIdx.x / BLASD_WARP, lane = (int)threadIdx.x % BLASD_WARP;
    struct quarter q = {};
    q.column = warp % 7 * 8 + lane % 8;
    q.rows = (warp / 7 * 4 + lane / 8) * 4;
    q.there = warp < 14 && q.column < in.s.q + in.s.t;
    if (!q.there) return q;
    q.shift = columns[q.column].shift;
    q.own = columns[q.column].own;
    q.step = q.column < in.s.q ? in.s.p : in.s.t;
    if (q.column >= in.s.q)
        q.at = d.y + (q.column - in.s.q);
    else if (q.column >= in.s.first)
        q.at = d.x + (q.column - in.s.first);
    return q;
}

static __device__ inline void load_quarter(const struct quarter &q, int64_t from, int64_t to,
                                           double (&raw)[4]) {
    BLASD_UNROLL
    for (int r = 0; r < 4; r++) {
        int64_t i = from + q.rows + r;
        bool there = q.there && i < to;
        raw[r] = !there ? 0 : q.at == nullptr ? 1 : q.at[i * q.step] - q.shift;
    }
}

/* The digits of a value in the lowest 14 bytes, the last one lowest. False: it is no number. */
static __device__ inline bool to_digits(double value, int own, unsigned (&words)[4]) {
    const unsigned __int128 middle = (unsigned __int128)0x808080808080u << 64 | 0x8080808080808080u;
    int64_t bits = __double_as_longlong(value), mantissa = bits & (((int64_t)1 << 52) - 1);
    int exponent = (int)(bits >> 52 & 2047), by;
    unsigned __int128 all = 0;
    if (exponent > 0)
        mantissa |= (int64_t)1 << 52;
    else
        exponent = 1;
    by = exponent - (1075 - PLACES) - own;
    if (by >= 0)
        all = (unsigned __int128)(uint64_t)mantissa << (by & 63);
    else if (by > -53)
        all = (unsigned __int128)(uint64_t)(mantissa >> -by);
    if (bits < 0) all = -all;
    all = (all + middle) ^ middle; /* each byte's carry goes to the next */
    BLASD_UNROLL
    for (int w = 0; w < 4; w++) words[w] = (unsigned)(all >> (32 * w));
    return exponent < 2047 && (mantissa == 0 || by <= PLACES - 52);
}

/* Rows of bytes become columns. */
static __device__ inline void transpose(unsigned a, unsigned b, unsigned c, unsigned d,
                                        unsigned (&out)[4]) {
    unsigned even = (a & 0x00ff00ffu) | (b & 0x00ff00ffu) << 8;
    unsigned odd = (a >> 8 & 0x00ff00ffu) | (b & 0xff00ff00u);
    unsigned even_after = (c & 0x00ff00ffu) | (d & 0x00ff00ffu) << 8;
    unsigned odd_after = (c >> 8 & 0x00ff00ffu) | (d & 0xff00ff00u);
    out[0] = (even & 0xffffu) | even_after << 16;
    out[1] = (odd & 0xffffu) | odd_after << 16;
    out[2] = even >> 16 | (even_after & 0xffff0000u);
    out[3] = odd >> 16 | (odd_after & 0xffff0000u);
}

static __device__ inline unsigned *word_of(unsigned *shared, int digit, int column, int word) {
    return shared + (digit * COLUMNS + column) * WORDS + word;
}

/* Puts a quarter's digits where all see them; which of them are not all 0. */
static __device__ inline unsigned put_digits(const struct quarter &q, const double (&raw)[4],
                                             unsigned *shared, bool *broken) {
    unsigned digits[4][4], used = 0;
    BLASD_UNROLL
    for (int r = 0; r < 4; r++)
        if (!to_digits(raw[r], q.own, digits[r])) *broken = true;
    BLASD_UNROLL
    for (int w = 0; w < 4; w++) {
        unsigned out[4];
        transpose(digits[0][w], digits[1][w], digits[2][w], digits[3][w], out);
        BLASD_UNROLL
        for (int b = 0; b < 4; b++) {
            int digit = DIGITS - 1 - (4 * w + b);
            if (digit < 0) continue;
            *word_of(shared, digit, q.column, q.rows / 4) = out[b];
            if (out[b] != 0) used |= 1u << digit;
        }
    }
    return used;
}

/* Where tile number k begins. */
static __host__ __device__ inline void tile_at(int k, int *row, int *column) {
    int i = k < 7 ? 0 : k < 12 ? 1 : k < 15 ? 2 : 3;
    const int before = i == 0 ? 0 : i == 1 ? 7 : i == 2 ? 12 : 15;
    *row = 16 * i;
    *column = 8 * (k - before + 2 * i);
}

static __device__ inline void multiply_digits(unsigned *shared, unsigned used, int row, int column,
                                              int (&sums)[DIGITS][4]) {
    int lane = (int)threadIdx.x % BLASD_WARP, of = lane / 4, word = lane % 4;
    unsigned b[DIGITS][2];
    BLASD_UNROLL
    for (int j = 0; j < DIGITS; j++) {
        if ((used >> j & 1) == 0) continue;
        b[j][0] = *word_of(shared, j, column + of, word);
        b[j][1] = *word_of(shared, j, column + of, word + 4);
    }
    BLASD_UNROLL
    for (int i = 0; i < DIGITS; i++) {
        if ((used >> i & 1) == 0) continue;
        const unsigned a[4] = {
            *word_of(shared, i, row + of, word), *word_of(shared, i, row + of + 8, word),
            *word_of(shared, i, row + of, word + 4), *word_of(shared, i, row + of + 8, word + 4)};
        BLASD_UNROLL
        for (int j = 0; j < DIGITS - i; j++)
            if ((used >> j & 1) != 0) multiply_tile(sums[i + j], a, b[j]);
    }
}

/* Adds the sums to what a warp has left before, and makes them 0. */
static __device__ void flush_sums(int (&sums)[DIGITS][4], struct dd *to, bool first, bool broken) {
    BLASD_UNROLL
    for (int e = 0; e < 4; e++) {
        struct dd all = first ? dd_from(0) : to[e * BLASD_WARP];
        struct dd sum = dd_from(0);
        BLASD_UNROLL
        for (int d = DIGITS - 1; d >= 0; d--) {
            sum = dd_add(sum, dd_from(ldexp((double)sums[d][e], -12 - 8 * d)));
            sums[d][e] = 0;
        }
        all = dd_add(all, sum);
        if (broken) all = dd_from(NAN);
        to[e * BLASD_WARP] = all;
    }
}

/* Blocks: row blocks of problem after problem. partial: [problem][block][tile][element][lane]. */
template <class... In>
static __global__ void __launch_bounds__(THREADS) multiply_bytes(In... from_host) {
    BLASD_DYNAMIC_SHARED(unsigned, shared);
    BLASD_STATIC_SHARED(unsigned, used, [2]); /* in this step, and the next */
    const auto &share = gram_share(from_host...);
    const struct bytes_in in = share.args;
    int64_t problem = share.block() / in.blocks, block = share.block() % in.blocks;
    int64_t each = (in.s.n + in.blocks - 1) / in.blocks, from = block * each;
    int64_t to = from + each < in.s.n ? from + each : in.s.n;
    int tid = (int)threadIdx.x, warp = tid / BLASD_WARP, lane = tid % BLASD_WARP, row, column;
    const struct quarter q = find_quarter(in, problem);
    struct dd *partial = in.partial + ((share.block() * TILES + warp) * TILE + lane);
    int sums[DIGITS][4] = {}, steps = 0;
    bool broken = false, first = true, mine;
    double raw[4];
    tile_at(warp, &row, &column);
    mine = row < in.s.q + in.s.t && column < in.s.q + in.s.t;
    for (int at = tid; at < DIGITS * COLUMNS * WORDS; at += THREADS) shared[at] = 0;
    if (tid < 2) used[tid] = 0;
    load_quarter(q, from, to, raw);
    __syncthreads();
    for (int64_t i0 = from; i0 < to; i0 += STEP, steps++) {
        if (q.there) {
            unsigned digits = put_digits(q, raw, shared, &broken);
            atomicOr(&used[steps % 2], digits);
        }
        __syncthreads();
        unsigned now = used[steps % 2];
        if (tid == 0) used[(steps + 1) % 2] = 0;
        load_quarter(q, i0 + STEP, to, raw);
        if (mine) multiply_digits(shared, now, row, column, sums);
        if (steps % FLUSH == FLUSH - 1) {
            flush_sums(sums, partial, first, false);
            first = false;
        }
        __syncthreads();
    }
    broken = __syncthreads_or(broken) != 0;
    flush_sums(sums, partial, first, broken);
}

/* The blocks' sums, in the units that the columns are worked with. */
template <class... In> static __global__ void __launch_bounds__(GATHER) gather_bytes(In... in) {
    const auto &share = gram_share(in...);
    const struct gram_shape s = share.args.s;
    const struct gram_arrays &a = share.args.a;
    int blocks = share.args.blocks, lanes = gram_lanes_over(blocks);
    int lane = (int)threadIdx.x % lanes, in_warp = (int)threadIdx.x % BLASD_WARP / lanes;
    const struct dd *partial = static_cast<const struct dd *>(a.scratch);
    int64_t all = s.problems * TILES * TILE, at = (share.block() * GATHER + threadIdx.x) / lanes;
    for (; at - in_warp < all; at += share.blocks() * GATHER / lanes) {
        int64_t unit = at < all ? at : all - 1, problem = unit / (TILES * TILE);
        int element = (int)(unit % (TILES * TILE)), k = element % TILE, i, l;
        const struct gram_column *columns = a.columns + problem * (s.q + s.t);
        struct dd sum = {0, 0}, *put;
        for (int b = lane; b < blocks; b += lanes)
            sum = dd_add(sum, partial[(problem * blocks + b) * TILES * TILE + element]);
        sum = dd_lanes_sum(sum, lanes);
        tile_at(element / TILE, &i, &l);
        i += k % BLASD_WARP / 4 + (k >= 2 * BLASD_WARP ? 8 : 0);
        l += k % 4 * 2 + k / BLASD_WARP % 2;
        if (lane != 0 || at >= all || i > l || l >= s.q + s.t) continue;
        if (i >= s.q && i != l) continue;
        sum = dd_shift(sum,
                       columns[i].own - columns[i].exponent + columns[l].own - columns[l].exponent);
        put = l < s.q   ? a.gram + (problem * s.q + i) * s.q + l
              : i < s.q ? a.with_y + (problem * s.q + i) * s.t + l - s.q
                        : a.squares + problem * s.t + l - s.q;
        *put = sum;
    }
}

static int blocks_of(const struct gram_shape *s) {
    int64_t blocks = (s->n + ROWS_EACH - 1) / ROWS_EACH;
    return (int)(blocks < s->units ? blocks : s->units);
}

bool gram_bytes_fit(const struct gram_shape *s) {
    return !s->weighted && s->q > 24 && s->q + s->t <= COLUMNS - 8 && s->n >= ROWS_EACH;
}

size_t gram_bytes_scratch(const struct gram_shape *s) {
    return (size_t)s->problems * (size_t)blocks_of(s) * TILES * TILE * sizeof(struct dd);
}

int gram_bytes(const struct gram_shape *s, const struct gram_arrays *arrays,
               const struct gram_way *way, struct blasd_err *err) {
    int blocks = blocks_of(s), code;
    int64_t threads = s->problems * TILES * TILE * gram_lanes_over(blocks);
    int64_t gathering = (threads + GATHER - 1) / GATHER, most = (int64_t)s->units * 16;
    if (s->problems == 0) return 0;
    code = gram_launch<struct bytes_in>(
        way, STAGE_PRODUCTS, multiply_bytes, multiply_bytes, s->problems * blocks, THREADS,
        (size_t)DIGITS * COLUMNS * WORDS * sizeof(unsigned),
        {*s, arrays->data, arrays->columns, blocks, static_cast<struct dd *>(arrays->scratch)},
        err);
    if (code != 0) return code;
    return gram_launch<struct gather_in>(way, STAGE_PRODUCTS + 1, gather_bytes, gather_bytes,
                                         gathering < most ? gathering : most, GATHER, 0,
                                         {*s, *arrays, blocks}, err);
}
