/* What every .cu file of the backend includes: CUDA's device language, from nvcc or from the shim,
 * and the launch.
 *
 *     __global__ void halve(float *x, int n) { ... }
 *     code = blasd_launch(halve, dim3(blocks), dim3(256), 0, stream, err, x, n);
 *
 * Kernels are written against what both have: shim.h lists it. Shared memory is declared inside a
 * kernel with BLASD_STATIC_SHARED and BLASD_DYNAMIC_SHARED. Read next: README.md. */
#ifndef BLASD_KERNELS_CUDA_GPU_H
#define BLASD_KERNELS_CUDA_GPU_H

extern "C" {
#include "base/err.h"
#include "core/dtype.h"
struct blasd_gpu_stream;
}

#include <cstddef>
#include <cstdint>

/* The lanes of a warp, and the mask of all of them: where a kernel counts on warps it says so by
 * these, and not by a number. */
#define BLASD_WARP 32
#define BLASD_WARP_ALL 0xffffffffu

/* What is asked of a card for so many bytes of dynamic shared memory. ptxas makes one load, of up
 * to 16 bytes, of neighbours that a program reads under conditions of their own: at the end of an
 * array that is behind what the program reads, and must lie within the block's memory all the same.
 * The shim, whose bounds are exact, knows nothing of it. */
static inline size_t blasd_whole_loads(size_t shared_bytes) {
    return (shared_bytes + 15) / 16 * 16;
}

#ifdef __CUDACC__

#include <cooperative_groups.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

/* BLASD_STATIC_SHARED(double, sums, [2][32]): variables that all threads of a block share. */
#define BLASD_STATIC_SHARED(type, name, ...) __shared__ type name __VA_ARGS__
/* `type *name` becomes the block's dynamic shared memory, aligned to 16 bytes. */
#define BLASD_DYNAMIC_SHARED(type, name)                                                           \
    extern __shared__ __align__(16) unsigned char blasd_dynamic_shared[];                          \
    type *name = reinterpret_cast<type *>(blasd_dynamic_shared)

/* before a loop whose arrays are to be registers, before one whose code is to stand there so many
 * times (a constant), and before one where it is to stand once */
#define BLASD_PRAGMA(text) _Pragma(#text)
#define BLASD_UNROLL _Pragma("unroll")
#define BLASD_UNROLL_BY(times) BLASD_PRAGMA(unroll times)
#define BLASD_UNROLL_NOT _Pragma("unroll 1")

static __device__ inline float blasd_gpu_float16_read(uint16_t x) {
    return __half2float(__ushort_as_half(x));
}
static __device__ inline uint16_t blasd_gpu_float16_write(float x) {
    return __half_as_ushort(__float2half_rn(x));
}
static __device__ inline float blasd_gpu_bfloat16_read(uint16_t x) {
    return __bfloat162float(__ushort_as_bfloat16(x));
}
static __device__ inline uint16_t blasd_gpu_bfloat16_write(float x) {
    return __bfloat16_as_ushort(__float2bfloat16_rn(x));
}

extern "C" {
/* of library_cuda.cu */
void *blasd_gpu_stream_raw(struct blasd_gpu_stream *stream);
int blasd_gpu_cuda_status(int status, const char *what, struct blasd_err *err);
}

/* All threads of a grid that was launched together meet here. */
static __device__ inline void blasd_grid_barrier(void) {
    cooperative_groups::this_grid().sync();
}

static inline int blasd_gpu_allow_shared(const void *kernel, size_t bytes, struct blasd_err *err) {
    return blasd_gpu_cuda_status(
        (int)cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes),
        "shared memory", err);
}
template <class... P, class... A>
int blasd_gpu_start(void (*kernel)(P...), dim3 grid, dim3 block, size_t shared_bytes, bool together,
                    struct blasd_gpu_stream *stream, struct blasd_err *err, A... args) {
    cudaLaunchAttribute attribute = {};
    cudaLaunchConfig_t config = {};
    attribute.id = cudaLaunchAttributeCooperative;
    attribute.val.cooperative = 1;
    config.gridDim = grid;
    config.blockDim = block;
    config.dynamicSmemBytes = blasd_whole_loads(shared_bytes);
    config.stream = (cudaStream_t)blasd_gpu_stream_raw(stream);
    config.attrs = &attribute;
    config.numAttrs = together ? 1 : 0;
    cudaError_t status = cudaLaunchKernelEx(&config, kernel, static_cast<P>(args)...);
    if (status != cudaSuccess) (void)cudaGetLastError(); /* or the next launch would tell it */
    return blasd_gpu_cuda_status((int)status, "launch", err);
}

#else

#include "kernels/cuda/shim.h"

extern "C" {
#include "core/half.h"
}

/* blocks run one after the other, so one copy serves them all */
#define BLASD_STATIC_SHARED(type, name, ...)                                                       \
    static type name __VA_ARGS__;                                                                  \
    static uint64_t blasd_seen_##name;                                                             \
    if (blasd_seen_##name != blasd_shim_launches) {                                                \
        blasd_seen_##name = blasd_shim_launches;                                                   \
        blasd_shim_static_shared(&name, sizeof name);                                              \
    }                                                                                              \
    static_assert(true)
#define BLASD_DYNAMIC_SHARED(type, name)                                                           \
    type *name = static_cast<type *>(blasd_shim_dynamic_shared())

#define BLASD_UNROLL
#define BLASD_UNROLL_BY(times) static_assert((times) > 0);
#define BLASD_UNROLL_NOT

static inline float blasd_gpu_float16_read(uint16_t x) {
    return blasd_float16_read(x);
}
static inline uint16_t blasd_gpu_float16_write(float x) {
    return blasd_float16_write(x);
}
static inline float blasd_gpu_bfloat16_read(uint16_t x) {
    return blasd_bfloat16_read(x);
}
static inline uint16_t blasd_gpu_bfloat16_write(float x) {
    return blasd_bfloat16_write(x);
}

static inline void blasd_grid_barrier(void) {
    blasd_shim_grid_barrier();
}

/* Puts a launch on a stream of the stand-in library; with stream NULL it runs at once. */
int blasd_shim_launch(const void *kernel, dim3 grid, dim3 block, size_t shared_bytes, bool together,
                      struct blasd_gpu_stream *stream, std::function<void()> run,
                      struct blasd_err *err);

static inline int blasd_gpu_allow_shared(const void *kernel, size_t bytes, struct blasd_err *err) {
    if (blasd_shim_allow_shared(kernel, bytes)) return 0;
    return blasd_fail(err, BLASD_E_internal_error, "", "shared memory: no block has %zu bytes",
                      bytes);
}
template <class... P, class... A>
int blasd_gpu_start(void (*kernel)(P...), dim3 grid, dim3 block, size_t shared_bytes, bool together,
                    struct blasd_gpu_stream *stream, struct blasd_err *err, A... args) {
    return blasd_shim_launch((const void *)kernel, grid, block, shared_bytes, together, stream,
                             [=] { kernel(static_cast<P>(args)...); }, err);
}

#endif

/* Starts a kernel on a stream. 0, or a negative code where it could not be started. More than 48
 * KiB of shared memory must be asked for; static counts too, and only nvcc knows how much there is,
 * so every kernel asks for its dynamic part. */
template <class... P, class... A>
int blasd_launch(void (*kernel)(P...), dim3 grid, dim3 block, size_t shared_bytes,
                 struct blasd_gpu_stream *stream, struct blasd_err *err, A... args) {
    if (shared_bytes > 0) {
        int code =
            blasd_gpu_allow_shared((const void *)kernel, blasd_whole_loads(shared_bytes), err);
        if (code != 0) return code;
    }
    return blasd_gpu_start(kernel, grid, block, shared_bytes, false, stream, err, args...);
}

/* The same for blocks that may wait for each other with blasd_grid_barrier, which orders what they
 * write as well: all of them run at once, which a block for each multiprocessor always can. */
template <class... P, class... A>
int blasd_launch_together(void (*kernel)(P...), int blocks, dim3 block,
                          struct blasd_gpu_stream *stream, struct blasd_err *err, A... args) {
    return blasd_gpu_start(kernel, dim3((unsigned)blocks), block, 0, true, stream, err, args...);
}

#endif
