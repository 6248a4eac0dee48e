/* The names of the functions that a library's table takes from other files than its runtime's: both
 * libraries define each as blasd_gpu_NAME. C++ only. */
#ifndef BLASD_KERNELS_CUDA_LIBRARY_PARTS_H
#define BLASD_KERNELS_CUDA_LIBRARY_PARTS_H

extern "C" {
#include "kernels/cuda/library.h"
}

#include <type_traits>

#define BLASD_GPU_PARTS(X)                                                                         \
    X(gemm)                                                                                        \
    X(gemm_pointers)                                                                               \
    X(gemm_grouped)                                                                                \
    X(trsm)                                                                                        \
    X(trsm_pointers)                                                                               \
    X(syrk)                                                                                        \
    X(getrf_pointers)                                                                              \
    X(getrs_pointers)                                                                              \
    X(getrf_size)                                                                                  \
    X(getrf)                                                                                       \
    X(getrs)                                                                                       \
    X(potrf_size)                                                                                  \
    X(potrf)                                                                                       \
    X(potrs)                                                                                       \
    X(potrf_pointers)                                                                              \
    X(gesv_mixed_size)                                                                             \
    X(gesv_mixed)                                                                                  \
    X(geqrf_size)                                                                                  \
    X(geqrf)                                                                                       \
    X(ormqr_size)                                                                                  \
    X(ormqr)                                                                                       \
    X(gesvd_size)                                                                                  \
    X(gesvd)
#define X(name) extern std::remove_pointer_t<decltype(blasd_gpu_library::name)> blasd_gpu_##name;
BLASD_GPU_PARTS(X)
#undef X

#endif
