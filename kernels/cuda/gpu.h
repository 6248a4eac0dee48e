/* What every .cu file of the backend includes: CUDA's device language, from nvcc or from the shim,
 * and the launch.
 *
 *     __global__ void halve(float *x, int n) { ... }
 *     code = blasd_launch(halve, dim3(blocks), dim3(256), 0, stream, err, x, n);
 *
 * Kernels are written against what both have: shim.h lists it. Dynamic shared memory is asked for
 * inside a kernel with BLASD_DYNAMIC_SHARED. Read next: README.md. */
#ifndef BLASD_KERNELS_CUDA_GPU_H
#define BLASD_KERNELS_CUDA_GPU_H

extern "C" {
#include "base/err.h"
#include "core/dtype.h"
struct blasd_gpu_stream;
}

#include <cstddef>
#include <cstdint>

#ifdef __CUDACC__

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

/* `type *name` becomes the block's dynamic shared memory, aligned to 16 bytes. */
#define BLASD_DYNAMIC_SHARED(type, name)                                                           \
    extern __shared__ __align__(16) unsigned char blasd_dynamic_shared[];                          \
    type *name = reinterpret_cast<type *>(blasd_dynamic_shared)

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

/* Starts a kernel on a stream. 0, or a negative code where it could not be started. */
template <class... P, class... A>
int blasd_launch(void (*kernel)(P...), dim3 grid, dim3 block, size_t shared_bytes,
                 struct blasd_gpu_stream *stream, struct blasd_err *err, A... args) {
    if (shared_bytes > 48u << 10) {
        cudaError_t status = cudaFuncSetAttribute(
            (const void *)kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared_bytes);
        if (status != cudaSuccess) return blasd_gpu_cuda_status((int)status, "shared memory", err);
    }
    kernel<<<grid, block, shared_bytes, (cudaStream_t)blasd_gpu_stream_raw(stream)>>>(
        static_cast<P>(args)...);
    cudaError_t status = cudaGetLastError();
    return status == cudaSuccess ? 0 : blasd_gpu_cuda_status((int)status, "launch", err);
}

#else

#include "kernels/cuda/shim.h"

extern "C" {
#include "core/half.h"
}

#define BLASD_DYNAMIC_SHARED(type, name)                                                           \
    type *name = static_cast<type *>(blasd_shim_dynamic_shared())

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

/* Puts a launch on a stream of the stand-in library; with stream NULL it runs at once. */
int blasd_shim_launch(dim3 grid, dim3 block, size_t shared_bytes, struct blasd_gpu_stream *stream,
                      std::function<void()> kernel, struct blasd_err *err);

template <class... P, class... A>
int blasd_launch(void (*kernel)(P...), dim3 grid, dim3 block, size_t shared_bytes,
                 struct blasd_gpu_stream *stream, struct blasd_err *err, A... args) {
    return blasd_shim_launch(
        grid, block, shared_bytes, stream, [=] { kernel(static_cast<P>(args)...); }, err);
}

#endif
#endif
