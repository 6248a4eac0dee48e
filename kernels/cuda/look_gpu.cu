/* What the host would look for among the elements of a value, looked for where it lies. Read next:
 * residents.c, who calls this. */
#include <cmath>
#include <cstring>

#include "kernels/cuda/gpu.h"

extern "C" {
#include "kernels/cuda/device.h"
}

#define THREADS 256
#define BLOCKS_MOST 1024

enum { NONFINITE, NEGATIVE, NOT_POSITIVE, NONZERO, ZERO, LEAST, MOST };
static_assert(MOST + 1 == BLASD_CUDA_SEEN, "a word for each");

typedef unsigned long long word;

struct half_bits {
    uint16_t bits;
};
struct brain_bits {
    uint16_t bits;
};

static __device__ double number(double x) {
    return x;
}
static __device__ double number(float x) {
    return (double)x;
}
static __device__ double number(half_bits x) {
    return (double)blasd_gpu_float16_read(x.bits);
}
static __device__ double number(brain_bits x) {
    return (double)blasd_gpu_bfloat16_read(x.bits);
}

static __device__ word bits_of(double x) {
    return (word)__double_as_longlong(x);
}

/* What the least of a block's threads found joins the words. */
template <int WORDS> static __device__ void join(const word *found, word *words) {
    BLASD_STATIC_SHARED(word, least, [WORDS][THREADS / BLASD_WARP]);
    int warp = (int)threadIdx.x / BLASD_WARP;
    for (int w = 0; w < WORDS; w++) {
        word mine = found[w];
        for (int by = BLASD_WARP / 2; by > 0; by /= 2) {
            word other = __shfl_xor_sync(BLASD_WARP_ALL, mine, by);
            mine = other < mine ? other : mine;
        }
        if (threadIdx.x % BLASD_WARP == 0) least[w][warp] = mine;
    }
    __syncthreads();
    if (threadIdx.x < WORDS) {
        word all = ~(word)0;
        for (int i = 0; i < THREADS / BLASD_WARP; i++)
            all = least[threadIdx.x][i] < all ? least[threadIdx.x][i] : all;
        if (all != ~(word)0) atomicMin(words + threadIdx.x, all);
    }
}

/* Where that alone is asked for: the other words cost a product of 1024 a seventh of its time. */
template <class T>
static __global__ void __launch_bounds__(THREADS)
    look_for_nonfinite(const T *elements, int64_t n, int parts, word *words) {
    word first = ~(word)0;
    BLASD_UNROLL_BY(4)
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n;
         i += (int64_t)gridDim.x * blockDim.x)
        if (!(fabs(number(elements[i])) <= 1.7976931348623157e308) && (word)i < first)
            first = (word)i;
    if (first != ~(word)0) first /= (word)parts;
    join<1>(&first, words);
}

/* Each thread goes through the parts of elements in steps: of positions it keeps the first, of
 * magnitudes, whose bits are in the order of the numbers, the least and, turned round, the most.
 * All words begin as the largest there is. */
template <class T>
static __global__ void __launch_bounds__(THREADS)
    look_at(const T *elements, int64_t n, int parts, word *words) {
    word found[BLASD_CUDA_SEEN];
    for (int w = 0; w < BLASD_CUDA_SEEN; w++) found[w] = ~(word)0;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n;
         i += (int64_t)gridDim.x * blockDim.x) {
        double x = number(elements[i]), size = fabs(x);
        bool below = (bits_of(x) >> 63) != 0, zero = x == 0,
             finite = size <= 1.7976931348623157e308;
        const bool so[] = {!finite, below && !zero, below || zero, !zero, zero};
        for (int w = 0; w <= ZERO; w++)
            if (so[w] && (word)(i / parts) < found[w]) found[w] = (word)(i / parts);
        if (zero || !finite) continue;
        if (bits_of(size) < found[LEAST]) found[LEAST] = bits_of(size);
        if (~bits_of(size) < found[MOST]) found[MOST] = ~bits_of(size);
    }
    join<BLASD_CUDA_SEEN>(found, words);
}

template <class T>
static int start(struct blasd_gpu_stream *stream, int64_t n, int parts, const void *at, int wanted,
                 uint64_t *words, struct blasd_err *err) {
    int64_t blocks = (n + THREADS - 1) / THREADS;
    dim3 grid((unsigned)(blocks < BLOCKS_MOST ? blocks : BLOCKS_MOST));
    if (wanted == 1)
        return blasd_launch(look_for_nonfinite<T>, grid, dim3(THREADS), 0, stream, err,
                            (const T *)at, n, parts, (word *)words);
    return blasd_launch(look_at<T>, grid, dim3(THREADS), 0, stream, err, (const T *)at, n, parts,
                        (word *)words);
}

extern "C" int blasd_cuda_look(struct blasd_gpu_stream *stream,
                               const struct blasd_gpu_library *calls,
                               const struct blasd_tensor *tensor, const void *at, int wanted,
                               uint64_t *words, struct blasd_err *err) {
    int parts = blasd_dtype_parts(tensor->dtype);
    int64_t n = blasd_tensor_elements(tensor) * parts;
    int code = calls->fill(stream, words, 0xff, (size_t)wanted * sizeof *words, err);
    if (code != 0 || n == 0) return code;
    switch (blasd_dtype_part(tensor->dtype)) {
    case BLASD_float64: return start<double>(stream, n, parts, at, wanted, words, err);
    case BLASD_float32: return start<float>(stream, n, parts, at, wanted, words, err);
    case BLASD_float16: return start<half_bits>(stream, n, parts, at, wanted, words, err);
    default: return start<brain_bits>(stream, n, parts, at, wanted, words, err);
    }
}

static double number_of(uint64_t bits) {
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

extern "C" struct blasd_seen blasd_cuda_seen(const uint64_t *words) {
    struct blasd_seen seen = {};
    seen.first_nonfinite = (int64_t)words[NONFINITE];
    seen.first_negative = (int64_t)words[NEGATIVE];
    seen.first_not_positive = (int64_t)words[NOT_POSITIVE];
    seen.first_nonzero = (int64_t)words[NONZERO];
    seen.first_zero = (int64_t)words[ZERO];
    seen.least = words[LEAST] == UINT64_MAX ? HUGE_VAL : number_of(words[LEAST]);
    seen.most = words[MOST] == UINT64_MAX ? 0 : number_of(~words[MOST]);
    return seen;
}
