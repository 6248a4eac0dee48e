/* What the files of the real library share. Nobody else may include this. */
#ifndef BLASD_KERNELS_CUDA_LIBRARY_CUDA_H
#define BLASD_KERNELS_CUDA_LIBRARY_CUDA_H

#include "kernels/cuda/library_parts.h"

#include <cublas_v2.h>
#include <cuda_runtime.h>
#include <cusolverDn.h>

struct blasd_gpu {
    int ordinal;
};

struct blasd_gpu_stream {
    struct blasd_gpu *gpu; /* borrowed */
    cudaStream_t raw;
    cublasHandle_t blas;       /* NULL until needed */
    void *blas_room;           /* its workspace */
    cusolverDnHandle_t solver; /* NULL until needed */
    cusolverDnParams_t solver_params;
};

/* 0, or the negative code that a status means. */
extern "C" void *blasd_gpu_stream_raw(struct blasd_gpu_stream *stream);
extern "C" int blasd_gpu_cuda_status(int status, const char *what, struct blasd_err *err);
int blasd_gpu_blas_status(cublasStatus_t status, const char *what, struct blasd_err *err);
int blasd_gpu_solver_status(cusolverStatus_t status, const char *what, struct blasd_err *err);
/* Makes the handles on first use. */
int blasd_gpu_blas(struct blasd_gpu_stream *stream, struct blasd_err *err);
int blasd_gpu_solver(struct blasd_gpu_stream *stream, struct blasd_err *err);
cudaDataType_t blasd_gpu_type(enum blasd_dtype dtype);
/* Bytes of a stream's blas_room, where there is one: what NVIDIA recommends for Hopper. Given by us
 * so that cuBLAS allocates nothing by itself. */
constexpr size_t blasd_gpu_blas_room = (size_t)32 << 20;

#endif
