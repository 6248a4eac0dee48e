/* matmul's own device code: products too small for cuBLAS, and what surrounds a product: c spread
 * over the result, the factors, the rounding to half. Read next: cuda_matmul.cu. */
#ifndef BLASD_KERNELS_MATMUL_TINY_CUH
#define BLASD_KERNELS_MATMUL_TINY_CUH

#include "kernels/cuda/mixed_batch.cuh"

#include <type_traits>

#define TINY_MOST 16 /* rows, columns and depth */
#define TINY_THREADS 256
#define TINY_SHARED (32 << 10) /* bytes of a block, at most */
#define WALK_MOST 8            /* dimensions */

/* One tensor of each task, at even steps. */
struct across_tasks {
    char *base;
    int64_t step; /* bytes */
};

/* How the items of a result are numbered, and which item of an operand each of them takes. */
struct item_walk {
    int rank;
    int64_t shape[WALK_MOST], a[WALK_MOST], b[WALK_MOST], c[WALK_MOST]; /* steps; c: in elements */
};

struct tiny_batch {
    struct across_tasks a, b, c, out;
    int m, n, k, trans_a, trans_b, add_c;
    int each;                       /* products of one block: tiny */
    int64_t items, c_row, c_column; /* of one task; steps of c in elements */
    int64_t products;               /* items of all tasks */
    double alpha, beta;
    struct item_walk walk;
};

/* Half numbers, told apart by type. */
struct float16_bits {
    uint16_t bits;
};
struct bfloat16_bits {
    uint16_t bits;
};
/* A complex element; as much of its arithmetic as products need. */
template <class Part> struct complex_of {
    Part re, im;
    __host__ __device__ complex_of &operator+=(const complex_of &x) {
        re += x.re;
        im += x.im;
        return *this;
    }
};
using complex128 = complex_of<double>;
using complex64 = complex_of<float>;
template <class Part>
static __device__ inline complex_of<Part> operator*(const complex_of<Part> &x,
                                                    const complex_of<Part> &y) {
    return {x.re * y.re - x.im * y.im, x.re * y.im + x.im * y.re};
}

static __device__ inline uint64_t load(const uint64_t *from) {
    return *from;
}
template <class Part> static __device__ inline complex_of<Part> load(const complex_of<Part> *from) {
    return *from;
}
static __device__ inline double load(const double *from) {
    return *from;
}
static __device__ inline float load(const float *from) {
    return *from;
}
static __device__ inline float load(const float16_bits *from) {
    return blasd_gpu_float16_read(from->bits);
}
static __device__ inline float load(const bfloat16_bits *from) {
    return blasd_gpu_bfloat16_read(from->bits);
}
static __device__ inline void store(uint64_t *to, uint64_t v) {
    *to = v;
}
template <class Part>
static __device__ inline void store(complex_of<Part> *to, const complex_of<Part> &v) {
    *to = v;
}
static __device__ inline void store(double *to, double v) {
    *to = v;
}
static __device__ inline void store(float *to, float v) {
    *to = v;
}
static __device__ inline void store(float16_bits *to, float v) {
    to->bits = blasd_gpu_float16_write(v);
}
static __device__ inline void store(bfloat16_bits *to, float v) {
    to->bits = blasd_gpu_bfloat16_write(v);
}

/* In what numbers of a type are multiplied and added up. */
template <class In> using sums = std::conditional_t<sizeof(In) == 2, float, In>;

/* Times alpha or beta, which are float64 whatever the element is, and whole where it is. */
template <class T> static __device__ inline T times(double factor, T x) {
    return (T)(factor * (double)x);
}
static __device__ inline uint64_t times(double factor, uint64_t x) {
    return (uint64_t)(int64_t)factor * x;
}
template <class Part>
static __device__ inline complex_of<Part> times(double factor, const complex_of<Part> &x) {
    return {times(factor, x.re), times(factor, x.im)};
}

static __device__ inline char *of_task(const struct across_tasks &x, int64_t t) {
    return x.base + t * x.step;
}

/* The item of an operand that item `at` of the result takes. */
static __host__ __device__ inline int64_t walk_to(const struct item_walk &walk,
                                                  const int64_t *steps, int64_t at) {
    int64_t sum = 0;
    for (int d = walk.rank - 1; d >= 0; d--) {
        sum += at % walk.shape[d] * steps[d];
        at /= walk.shape[d];
    }
    return sum;
}

/* alpha times the sum, with c: an element of the result of a task. Adds of another type than the
 * result are those of jobs whose inputs were all widened. */
template <class T, class C>
static __device__ inline T finished(const struct tiny_batch &batch, int64_t task, int64_t item,
                                    int row, int column, T sum) {
    sum = times(batch.alpha, sum);
    if (batch.add_c) {
        const C *c = reinterpret_cast<const C *>(of_task(batch.c, task));
        sum += times(batch.beta, (T)load(c + walk_to(batch.walk, batch.walk.c, item) +
                                         row * batch.c_row + column * batch.c_column));
    }
    return sum;
}

/* `each` products a block: their factors side by side in shared memory, then a thread an element.
 * Sums run over k in order, so a product gives the same bits in any batch. */
template <class In, class C, class Out>
__global__ void __launch_bounds__(TINY_THREADS)
    tiny_products(const blasd_share<tiny_batch> *shares, int count_of_shares) {
    using T = sums<In>;
    const blasd_share<tiny_batch> &share = blasd_share_of(shares, count_of_shares);
    const struct tiny_batch &batch = share.args;
    BLASD_DYNAMIC_SHARED(In, shared);
    int mk = batch.m * batch.k, kn = batch.k * batch.n, mn = batch.m * batch.n;
    int64_t first = share.block() * batch.each, left = batch.products - first;
    int count = left < batch.each ? (int)left : batch.each;
    In *a = shared, *b = shared + (int64_t)batch.each * mk;
    for (int i = (int)threadIdx.x; i < count * mk; i += TINY_THREADS) {
        int64_t product = first + i / mk;
        const In *from = reinterpret_cast<const In *>(of_task(batch.a, product / batch.items));
        a[i] = from[walk_to(batch.walk, batch.walk.a, product % batch.items) * mk + i % mk];
    }
    for (int i = (int)threadIdx.x; i < count * kn; i += TINY_THREADS) {
        int64_t product = first + i / kn;
        const In *from = reinterpret_cast<const In *>(of_task(batch.b, product / batch.items));
        b[i] = from[walk_to(batch.walk, batch.walk.b, product % batch.items) * kn + i % kn];
    }
    __syncthreads();
    for (int i = (int)threadIdx.x; i < count * mn; i += TINY_THREADS) {
        int64_t product = first + i / mn, task = product / batch.items;
        int64_t item = product % batch.items;
        int row = i % mn / batch.n, column = i % batch.n;
        const In *x = a + i / mn * mk + row * (batch.trans_a ? 1 : batch.k);
        const In *y = b + i / mn * kn + column * (batch.trans_b ? batch.k : 1);
        int step_x = batch.trans_a ? batch.m : 1, step_y = batch.trans_b ? 1 : batch.n;
        T sum = {};
        for (int l = 0; l < batch.k; l++) sum += load(x + l * step_x) * load(y + l * step_y);
        store(reinterpret_cast<Out *>(of_task(batch.out, task)) + item * mn + i % mn,
              finished<T, C>(batch, task, item, row, column, sum));
    }
}

#define SMALL_TILE 32    /* of a result: a block's work */
#define SMALL_DEPTH 16   /* of the factors in shared memory at a time */
#define SMALL_THREADS 64 /* 8 x 8 */
#define SMALL_EACH 4     /* rows and columns of a thread */
#define SMALL_LOADS (SMALL_TILE * SMALL_DEPTH / SMALL_THREADS)

static __host__ __device__ inline int64_t small_tiles(const struct tiny_batch &batch) {
    return ((int64_t)batch.m + SMALL_TILE - 1) / SMALL_TILE *
           (((int64_t)batch.n + SMALL_TILE - 1) / SMALL_TILE);
}

/* Four numbers that are read or written at once, 16 bytes at a time. */
template <class T> struct alignas(sizeof(T) < 4 ? 4 * sizeof(T) : 16) small_four {
    T v[SMALL_EACH];
};
/* Of a factor in shared memory: for each depth the numbers of a tile's lines (rows of a, columns of
 * b). The 16 bytes behind them spread the depths over the banks. */
template <class T> struct small_slab {
    alignas(16) T at[SMALL_DEPTH][SMALL_TILE + 16 / sizeof(T)];
};

/* What a thread brings of a factor: neighbours in memory are read by neighbours. */
template <class In> struct small_loads {
    const In *from; /* the thread's first element at depth 0 */
    int64_t along;  /* steps to its next one, and to the next slab; in elements */
    int64_t deeper;
    int line, depth, more_lines, more_depth; /* of its first element; to the next one */
    int lines;                               /* of the tile that are there */
    sums<In> own[SMALL_LOADS];

    /* `dense`: what lies side by side are depths of one line. */
    __device__ small_loads(const In *factor, int64_t first, int64_t all, int64_t k, bool dense) {
        int tid = (int)threadIdx.x;
        int64_t line_step = dense ? k : 1, depth_step = dense ? 1 : all;
        line = dense ? tid / SMALL_DEPTH : tid % SMALL_TILE;
        depth = dense ? tid % SMALL_DEPTH : tid / SMALL_TILE;
        more_lines = dense ? SMALL_THREADS / SMALL_DEPTH : 0;
        more_depth = dense ? 0 : SMALL_THREADS / SMALL_TILE;
        lines = all - first < SMALL_TILE ? (int)(all - first) : SMALL_TILE;
        from = factor + (first + line) * line_step + depth * depth_step;
        along = more_lines * line_step + more_depth * depth_step;
        deeper = SMALL_DEPTH * depth_step;
    }
    /* The elements of the next slab, of which `left` depths are there. */
    __device__ void fetch(int64_t left) {
        BLASD_UNROLL
        for (int i = 0; i < SMALL_LOADS; i++) {
            bool there = line + i * more_lines < lines && depth + i * more_depth < left;
            own[i] = there ? load(from + i * along) : sums<In>{};
        }
        from += deeper;
    }
    __device__ void put(struct small_slab<sums<In>> &to) const {
        BLASD_UNROLL
        for (int i = 0; i < SMALL_LOADS; i++)
            to.at[depth + i * more_depth][line + i * more_lines] = own[i];
    }
};

template <class T>
static __device__ inline struct small_four<T> small_read(
    const T (&line)[SMALL_TILE + 16 / sizeof(T)], int at) {
    return *reinterpret_cast<const struct small_four<T> *>(&line[at]);
}

/* The thread's part of a product's tile. */
template <class T, class C, class Out>
static __device__ inline void small_finish(const struct tiny_batch &batch, int64_t product, int row,
                                           int column, const T (&sum)[SMALL_EACH][SMALL_EACH]) {
    int64_t task = product / batch.items, item = product % batch.items;
    Out *to = reinterpret_cast<Out *>(of_task(batch.out, task)) + item * batch.m * batch.n;
    bool whole = batch.n % SMALL_EACH == 0;
    if (column >= batch.n) return;
    BLASD_UNROLL
    for (int r = 0; r < SMALL_EACH; r++) {
        struct small_four<Out> four;
        if (row + r >= batch.m) return;
        BLASD_UNROLL
        for (int c = 0; c < SMALL_EACH; c++)
            if (whole || column + c < batch.n)
                store(&four.v[c],
                      finished<T, C>(batch, task, item, row + r, column + c, sum[r][c]));
        if (whole) {
            *reinterpret_cast<struct small_four<Out> *>(to + (int64_t)(row + r) * batch.n +
                                                        column) = four;
            continue;
        }
        BLASD_UNROLL
        for (int c = 0; c < SMALL_EACH; c++)
            if (column + c < batch.n) to[(int64_t)(row + r) * batch.n + column + c] = four.v[c];
    }
}

/* Products of any size: a tile of a result for each block, 4 x 4 elements a thread; the next slab
 * is on its way while one is multiplied. Sums run over k in order here too. */
template <class In, class C, class Out>
__global__ void __launch_bounds__(SMALL_THREADS)
    small_products(const blasd_share<tiny_batch> *shares, int count) {
    using T = sums<In>;
    const blasd_share<tiny_batch> &share = blasd_share_of(shares, count);
    const struct tiny_batch &batch = share.args;
    int64_t m = batch.m, n = batch.n, k = batch.k, tiles = small_tiles(batch);
    int64_t across = (n + SMALL_TILE - 1) / SMALL_TILE;
    BLASD_STATIC_SHARED(struct small_slab<T>, left);
    BLASD_STATIC_SHARED(struct small_slab<T>, right);
    int i = (int)threadIdx.x / 8 * SMALL_EACH, j = (int)threadIdx.x % 8 * SMALL_EACH;
    for (int64_t at = share.block(); at < tiles * batch.products; at += share.blocks()) {
        int64_t product = at / tiles, tile = at % tiles;
        int64_t row = tile / across * SMALL_TILE, column = tile % across * SMALL_TILE;
        int64_t task = product / batch.items, item = product % batch.items;
        struct small_loads<In> x(reinterpret_cast<const In *>(of_task(batch.a, task)) +
                                     walk_to(batch.walk, batch.walk.a, item) * m * k,
                                 row, m, k, !batch.trans_a);
        struct small_loads<In> y(reinterpret_cast<const In *>(of_task(batch.b, task)) +
                                     walk_to(batch.walk, batch.walk.b, item) * k * n,
                                 column, n, k, batch.trans_b);
        T sum[SMALL_EACH][SMALL_EACH] = {};
        x.fetch(k);
        y.fetch(k);
        for (int64_t l0 = 0; l0 < k; l0 += SMALL_DEPTH) {
            int depth = k - l0 < SMALL_DEPTH ? (int)(k - l0) : SMALL_DEPTH;
            __syncthreads(); /* the last slab has been read */
            x.put(left);
            y.put(right);
            __syncthreads();
            x.fetch(k - l0 - SMALL_DEPTH);
            y.fetch(k - l0 - SMALL_DEPTH);
            for (int l = 0; l < depth; l++) {
                struct small_four<T> a = small_read(left.at[l], i), b = small_read(right.at[l], j);
                BLASD_UNROLL
                for (int e = 0; e < SMALL_EACH * SMALL_EACH; e++)
                    sum[e / SMALL_EACH][e % SMALL_EACH] +=
                        a.v[e / SMALL_EACH] * b.v[e % SMALL_EACH];
            }
        }
        small_finish<T, C, Out>(batch, product, (int)row + i, (int)column + j, sum);
    }
}

/* What surrounds a product of any size. */
struct blend {
    struct across_tasks target, c;
    int keep, add_c; /* read the target; read c */
    double factor, beta;
    int64_t m, n, items, c_row, c_column, elements; /* elements: of all tasks */
    struct item_walk walk;
};

/* target = factor * target (where kept) + beta * c (where added), c spread over the result; rounded
 * once where the target is half. */
template <class Target, class C>
__global__ void __launch_bounds__(256) blend_elements(struct blend blend) {
    using T = sums<Target>;
    int64_t each = blend.m * blend.n * blend.items;
    for (int64_t at = (int64_t)blockIdx.x * 256 + threadIdx.x; at < blend.elements;
         at += (int64_t)gridDim.x * 256) {
        int64_t task = at / each, i = at % each;
        int64_t item = i / (blend.m * blend.n), place = i % (blend.m * blend.n);
        Target *target = reinterpret_cast<Target *>(of_task(blend.target, task)) + i;
        T value = {};
        if (blend.keep) value = times(blend.factor, (T)load(target));
        if (blend.add_c) {
            const C *c = reinterpret_cast<const C *>(of_task(blend.c, task)) +
                         walk_to(blend.walk, blend.walk.c, item) + place / blend.n * blend.c_row +
                         place % blend.n * blend.c_column;
            if (blend.keep)
                value += times(blend.beta, (T)load(c));
            else
                value = times(blend.beta, (T)load(c));
        }
        store(target, value);
    }
}

/* Rounds float32 results to half. */
template <class Out>
__global__ void __launch_bounds__(256)
    round_elements(struct across_tasks from, struct across_tasks to, int64_t each,
                   int64_t elements) {
    for (int64_t at = (int64_t)blockIdx.x * 256 + threadIdx.x; at < elements;
         at += (int64_t)gridDim.x * 256) {
        const float *x = reinterpret_cast<const float *>(of_task(from, at / each)) + at % each;
        store(reinterpret_cast<Out *>(of_task(to, at / each)) + at % each, *x);
    }
}

#endif
