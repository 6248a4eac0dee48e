/* CUDA's device language on a CPU, so that the kernels of this tree run in tests on machines
 * without a GPU, under sanitizers too. Not for production: one core does the work of them all.
 *
 * Each CUDA thread is a fiber. A fiber runs until it meets a barrier, a warp function or its end;
 * which one runs next is drawn from a seed, so a barrier that is missing shows as a wrong result
 * under some seed. What CUDA leaves undefined and can be seen here (a barrier that not all threads
 * meet, a shuffle from a lane that is not there) fails the launch with a sentence. Knows nothing of
 * operations. Include gpu.h, never this. Read next: tests/standin/shim.cc. */
#ifndef BLASD_KERNELS_CUDA_SHIM_H
#define BLASD_KERNELS_CUDA_SHIM_H

#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <type_traits>

#define __global__
#define __device__
#define __host__
#define __constant__ static
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))

struct uint3 {
    unsigned x, y, z;
};
struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned ix = 1, unsigned iy = 1, unsigned iz = 1) : x(ix), y(iy), z(iz) {
    }
};
#define BLASD_SHIM_VECTORS(T, name, bytes)                                                         \
    struct alignas(2 * bytes) name##2 {                                                            \
        T x, y;                                                                                    \
    };                                                                                             \
    struct alignas(4 * bytes > 16 ? 16 : 4 * bytes) name##4 {                                      \
        T x, y, z, w;                                                                              \
    };                                                                                             \
    static inline name##2 make_##name##2(T x, T y) {                                               \
        return {x, y};                                                                             \
    }                                                                                              \
    static inline name##4 make_##name##4(T x, T y, T z, T w) {                                     \
        return {x, y, z, w};                                                                       \
    }
BLASD_SHIM_VECTORS(int, int, 4)
BLASD_SHIM_VECTORS(unsigned, uint, 4)
BLASD_SHIM_VECTORS(float, float, 4)
BLASD_SHIM_VECTORS(double, double, 8)

/* The thread that runs; set at each switch. */
extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;
constexpr int warpSize = 32;

/* ---- what tests set ---- */

/* 0: threads in ascending order, 1: the last one made ready first, others: at random. */
extern uint64_t blasd_shim_seed;
/* Runs all threads of a grid; false where the kernel did what CUDA does not define, with `why` (of
 * `size` bytes) filled in. `allowed`: what it was allowed when it was launched. Dynamic shared
 * memory is full of 0xff at the start of each block, and ends where it was said to end. `together`:
 * all blocks at once, which may be few. */
bool blasd_shim_run(const void *kernel, dim3 grid, dim3 block, size_t shared_bytes, size_t allowed,
                    bool together, const std::function<void()> &run, char *why, size_t size);

/* true: what a grid and a block may be is checked, and no thread runs. */
extern bool blasd_shim_checks_alone;
/* Of one block, static and dynamic, where the kernel was allowed it; 48 KiB where not. */
extern size_t blasd_shim_shared_most;
/* Allows a kernel this much dynamic shared memory from now on; false where no block has so much. */
bool blasd_shim_allow_shared(const void *kernel, size_t bytes);
size_t blasd_shim_allowed(const void *kernel);
/* No kernel has been allowed anything, as in a new process. */
void blasd_shim_forget_allowed(void);

/* ---- what the macros and functions below stand on ---- */

extern uint64_t blasd_shim_launches; /* that have begun */
/* The kernel that runs has come by this variable. What nvcc adds up from the code is learnt here as
 * a kernel comes by it, in this launch or an earlier one. */
void blasd_shim_static_shared(const void *variable, size_t bytes);

void *blasd_shim_dynamic_shared(void);
void blasd_shim_barrier(bool value, int *count); /* count: of the threads whose value was true */
void blasd_shim_grid_barrier(void);
enum blasd_shim_meeting {
    BLASD_SHIM_SYNC,
    BLASD_SHIM_SHUFFLE,
    BLASD_SHIM_BALLOT,
    BLASD_SHIM_ADD,
    BLASD_SHIM_MIN,
    BLASD_SHIM_MAX,
    BLASD_SHIM_AND,
    BLASD_SHIM_OR,
    BLASD_SHIM_XOR,
    BLASD_SHIM_MINS, /* signed */
    BLASD_SHIM_MAXS
};
/* Meets the lanes of `mask`; returns what the meeting gives this lane. */
uint64_t blasd_shim_meet(enum blasd_shim_meeting what, unsigned mask, uint64_t value, int source);
int blasd_shim_lane(void);

/* ---- barriers, warps ---- */

static inline void __syncthreads(void) {
    blasd_shim_barrier(false, nullptr);
}
static inline int __syncthreads_count(int predicate) {
    int count = 0;
    blasd_shim_barrier(predicate != 0, &count);
    return count;
}
static inline int __syncthreads_or(int predicate) {
    return __syncthreads_count(predicate) != 0;
}
static inline int __syncthreads_and(int predicate) {
    return __syncthreads_count(predicate == 0) == 0;
}
static inline void __syncwarp(unsigned mask = 0xffffffffu) {
    blasd_shim_meet(BLASD_SHIM_SYNC, mask, 0, 0);
}
static inline unsigned __ballot_sync(unsigned mask, int predicate) {
    return (unsigned)blasd_shim_meet(BLASD_SHIM_BALLOT, mask, predicate != 0, 0);
}
static inline int __any_sync(unsigned mask, int predicate) {
    return __ballot_sync(mask, predicate) != 0;
}
static inline int __all_sync(unsigned mask, int predicate) {
    return __ballot_sync(mask, predicate == 0) == 0;
}

template <class T> static inline T blasd_shim_shuffle(unsigned mask, T value, int source) {
    static_assert(sizeof(T) <= 8 && std::is_trivially_copyable<T>::value, "as in CUDA");
    uint64_t bits = 0;
    memcpy(&bits, &value, sizeof value);
    bits = blasd_shim_meet(BLASD_SHIM_SHUFFLE, mask, bits, source);
    memcpy(&value, &bits, sizeof value);
    return value;
}
template <class T>
static inline T __shfl_sync(unsigned mask, T value, int source, int width = warpSize) {
    int lane = blasd_shim_lane();
    return blasd_shim_shuffle(mask, value, (lane & ~(width - 1)) | (source & (width - 1)));
}
template <class T>
static inline T __shfl_up_sync(unsigned mask, T value, unsigned by, int width = warpSize) {
    int lane = blasd_shim_lane(), from = lane - (int)by;
    return blasd_shim_shuffle(mask, value, from < (lane & ~(width - 1)) ? lane : from);
}
template <class T>
static inline T __shfl_down_sync(unsigned mask, T value, unsigned by, int width = warpSize) {
    int lane = blasd_shim_lane(), from = lane + (int)by;
    return blasd_shim_shuffle(mask, value, from > (lane | (width - 1)) ? lane : from);
}
template <class T>
static inline T __shfl_xor_sync(unsigned mask, T value, int with, int width = warpSize) {
    int lane = blasd_shim_lane(), from = lane ^ with;
    return blasd_shim_shuffle(mask, value, from > (lane | (width - 1)) ? lane : from);
}
#define BLASD_SHIM_REDUCE(name, T, what)                                                           \
    static inline T name(unsigned mask, T value) {                                                 \
        return (T)blasd_shim_meet(what, mask, (uint64_t)(int64_t)value, 0);                        \
    }
BLASD_SHIM_REDUCE(__reduce_add_sync, unsigned, BLASD_SHIM_ADD)
BLASD_SHIM_REDUCE(__reduce_min_sync, unsigned, BLASD_SHIM_MIN)
BLASD_SHIM_REDUCE(__reduce_max_sync, unsigned, BLASD_SHIM_MAX)
BLASD_SHIM_REDUCE(__reduce_and_sync, unsigned, BLASD_SHIM_AND)
BLASD_SHIM_REDUCE(__reduce_or_sync, unsigned, BLASD_SHIM_OR)
BLASD_SHIM_REDUCE(__reduce_xor_sync, unsigned, BLASD_SHIM_XOR)
BLASD_SHIM_REDUCE(__reduce_add_sync, int, BLASD_SHIM_ADD)
BLASD_SHIM_REDUCE(__reduce_min_sync, int, BLASD_SHIM_MINS)
BLASD_SHIM_REDUCE(__reduce_max_sync, int, BLASD_SHIM_MAXS)

/* ---- memory: fibers switch nowhere in here, so plain reads and writes are atomic ---- */

static inline void __threadfence(void) {
}
static inline void __threadfence_block(void) {
}
static inline void __threadfence_system(void) {
}
template <class T> static inline T __ldg(const T *at) {
    return *at;
}
#define BLASD_SHIM_ATOMIC(name, expression)                                                        \
    template <class T> static inline T name(T *at, std::type_identity_t<T> value) {                \
        T old = *at;                                                                               \
        *at = (T)(expression);                                                                     \
        return old;                                                                                \
    }
BLASD_SHIM_ATOMIC(atomicAdd, old + value)
BLASD_SHIM_ATOMIC(atomicSub, old - value)
BLASD_SHIM_ATOMIC(atomicMin, value < old ? value : old)
BLASD_SHIM_ATOMIC(atomicMax, value > old ? value : old)
BLASD_SHIM_ATOMIC(atomicAnd, old &value)
BLASD_SHIM_ATOMIC(atomicOr, old | value)
BLASD_SHIM_ATOMIC(atomicExch, value)
template <class T>
static inline T atomicCAS(T *at, std::type_identity_t<T> expected, std::type_identity_t<T> value) {
    T old = *at;
    if (old == expected) *at = value;
    return old;
}

/* ---- arithmetic ---- */

template <class T> static inline T min(T a, T b) {
    return b < a ? b : a;
}
template <class T> static inline T max(T a, T b) {
    return a < b ? b : a;
}
#define BLASD_SHIM_ROUNDED(T, letter)                                                              \
    static inline T __##letter##add_rn(T a, T b) {                                                 \
        return a + b;                                                                              \
    }                                                                                              \
    static inline T __##letter##sub_rn(T a, T b) {                                                 \
        return a - b;                                                                              \
    }                                                                                              \
    static inline T __##letter##mul_rn(T a, T b) {                                                 \
        return a * b;                                                                              \
    }                                                                                              \
    static inline T __##letter##div_rn(T a, T b) {                                                 \
        return a / b;                                                                              \
    }                                                                                              \
    static inline T __##letter##sqrt_rn(T a) {                                                     \
        return std::sqrt(a);                                                                       \
    }                                                                                              \
    static inline T __##letter##rcp_rn(T a) {                                                      \
        return 1 / a;                                                                              \
    }
BLASD_SHIM_ROUNDED(double, d)
BLASD_SHIM_ROUNDED(float, f)
static inline double __fma_rn(double a, double b, double c) {
    return std::fma(a, b, c);
}
static inline float __fmaf_rn(float a, float b, float c) {
    return std::fma(a, b, c);
}
static inline double rsqrt(double x) {
    return 1 / std::sqrt(x);
}
/* A store of a vector as one. */
template <class T> static inline void __stwb(T *to, T value) {
    *to = value;
}
static inline float rsqrtf(float x) {
    return 1 / std::sqrt(x);
}
static inline int __popc(unsigned x) {
    return __builtin_popcount(x);
}
static inline int __popcll(unsigned long long x) {
    return __builtin_popcountll(x);
}
static inline int __clz(int x) {
    return x == 0 ? 32 : __builtin_clz((unsigned)x);
}
static inline int __ffs(int x) {
    return __builtin_ffs(x);
}
template <class To, class From> static inline To blasd_shim_bits(From from) {
    static_assert(sizeof(To) == sizeof(From), "the same bits");
    To to;
    memcpy(&to, &from, sizeof to);
    return to;
}
static inline int __float_as_int(float x) {
    return blasd_shim_bits<int>(x);
}
static inline float __int_as_float(int x) {
    return blasd_shim_bits<float>(x);
}
static inline unsigned __float_as_uint(float x) {
    return blasd_shim_bits<unsigned>(x);
}
static inline float __uint_as_float(unsigned x) {
    return blasd_shim_bits<float>(x);
}
static inline long long __double_as_longlong(double x) {
    return blasd_shim_bits<long long>(x);
}
static inline double __longlong_as_double(long long x) {
    return blasd_shim_bits<double>(x);
}

#endif
