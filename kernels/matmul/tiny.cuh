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

/* Times alpha or beta, which are real, and whole where the element is. */
template <class T> static __device__ inline T times(double factor, T x) {
    return (T)factor * x;
}
static __device__ inline uint64_t times(double factor, uint64_t x) {
    return (uint64_t)(int64_t)factor * x;
}
template <class Part>
static __device__ inline complex_of<Part> times(double factor, const complex_of<Part> &x) {
    return {(Part)factor * x.re, (Part)factor * x.im};
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
template <class T, class C, class Out>
static __device__ inline void finish_element(const struct tiny_batch &batch, int64_t task,
                                             int64_t item, int row, int column, T sum) {
    sum = times(batch.alpha, sum);
    if (batch.add_c) {
        const C *c = reinterpret_cast<const C *>(of_task(batch.c, task));
        sum += times(batch.beta, (T)load(c + walk_to(batch.walk, batch.walk.c, item) +
                                         row * batch.c_row + column * batch.c_column));
    }
    store(reinterpret_cast<Out *>(of_task(batch.out, task)) + item * batch.m * batch.n +
              (int64_t)row * batch.n + column,
          sum);
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
        finish_element<T, C, Out>(batch, task, item, row, column, sum);
    }
}

#define SMALL_TILE 32  /* of a result: a block's work */
#define SMALL_DEPTH 16 /* of the factors in shared memory at a time */

static __host__ __device__ inline int64_t small_tiles(const struct tiny_batch &batch) {
    return ((int64_t)batch.m + SMALL_TILE - 1) / SMALL_TILE *
           (((int64_t)batch.n + SMALL_TILE - 1) / SMALL_TILE);
}
/* Products of any size: a tile of a result for each block, four elements a
 * thread. Sums run over k in order here too. */
template <class In, class C, class Out>
__global__ void __launch_bounds__(TINY_THREADS)
    small_products(const blasd_share<tiny_batch> *shares, int count) {
    using T = sums<In>;
    const blasd_share<tiny_batch> &share = blasd_share_of(shares, count);
    const struct tiny_batch &batch = share.args;
    int64_t m = batch.m, n = batch.n, k = batch.k, tiles = small_tiles(batch);
    int64_t across = (n + SMALL_TILE - 1) / SMALL_TILE;
    BLASD_STATIC_SHARED(T, left, [SMALL_DEPTH][SMALL_TILE + 1]);
    BLASD_STATIC_SHARED(T, right, [SMALL_DEPTH][SMALL_TILE + 1]);
    int tid = (int)threadIdx.x, i = tid / 16, j = tid % 16;
    for (int64_t at = share.block(); at < tiles * batch.products; at += share.blocks()) {
        int64_t product = at / tiles, tile = at % tiles;
        int64_t row = tile / across * SMALL_TILE, column = tile % across * SMALL_TILE;
        int64_t task = product / batch.items, item = product % batch.items;
        const In *x = reinterpret_cast<const In *>(of_task(batch.a, task)) +
                      walk_to(batch.walk, batch.walk.a, item) * m * k;
        const In *y = reinterpret_cast<const In *>(of_task(batch.b, task)) +
                      walk_to(batch.walk, batch.walk.b, item) * k * n;
        T sum[2][2] = {};
        for (int64_t k0 = 0; k0 < k; k0 += SMALL_DEPTH) {
            int depth = k - k0 < SMALL_DEPTH ? (int)(k - k0) : SMALL_DEPTH;
            for (int e = tid; e < SMALL_DEPTH * SMALL_TILE; e += TINY_THREADS) {
                /* neighbours in memory are read by neighbours */
                int l = batch.trans_a ? e / SMALL_TILE : e % SMALL_DEPTH;
                int r = batch.trans_a ? e % SMALL_TILE : e / SMALL_DEPTH;
                T none = {};
                bool there = row + r < m && l < depth;
                int64_t place = batch.trans_a ? (k0 + l) * m + row + r : (row + r) * k + k0 + l;
                left[l][r] = there ? load(x + place) : none;
                l = batch.trans_b ? e % SMALL_DEPTH : e / SMALL_TILE;
                r = batch.trans_b ? e / SMALL_DEPTH : e % SMALL_TILE;
                there = column + r < n && l < depth;
                place = batch.trans_b ? (column + r) * k + k0 + l : (k0 + l) * n + column + r;
                right[l][r] = there ? load(y + place) : none;
            }
            __syncthreads();
            for (int l = 0; l < depth; l++)
                for (int e = 0; e < 4; e++)
                    sum[e / 2][e % 2] += left[l][i + e / 2 * 16] * right[l][j + e % 2 * 16];
            __syncthreads();
        }
        for (int e = 0; e < 4; e++) {
            int64_t r = row + i + e / 2 * 16, c = column + j + e % 2 * 16;
            if (r < m && c < n)
                finish_element<T, C, Out>(batch, task, item, (int)r, (int)c, sum[e / 2][e % 2]);
        }
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
