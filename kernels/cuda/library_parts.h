/* The names of a library's functions, in the order of library.h: both libraries define each as
 * blasd_gpu_NAME, and make their table of them. C++ only. */
#ifndef BLASD_KERNELS_CUDA_LIBRARY_PARTS_H
#define BLASD_KERNELS_CUDA_LIBRARY_PARTS_H

extern "C" {
#include "kernels/cuda/library.h"
}

#include <type_traits>

#define BLASD_GPU_PARTS(X)                                                                         \
    X(driver)                                                                                      \
    X(peek)                                                                                        \
    X(open)                                                                                        \
    X(close)                                                                                       \
    X(facts)                                                                                       \
    X(device_alloc)                                                                                \
    X(device_free)                                                                                 \
    X(host_alloc)                                                                                  \
    X(host_free)                                                                                   \
    X(host_register)                                                                               \
    X(host_unregister)                                                                             \
    X(stream_open)                                                                                 \
    X(stream_close)                                                                                \
    X(stream_wait)                                                                                 \
    X(event_open)                                                                                  \
    X(event_close)                                                                                 \
    X(event_record)                                                                                \
    X(stream_after)                                                                                \
    X(event_wait)                                                                                  \
    X(event_us)                                                                                    \
    X(copy_up)                                                                                     \
    X(copy_down)                                                                                   \
    X(copy_within)                                                                                 \
    X(fill)                                                                                        \
    X(gemm_room)                                                                                   \
    X(gemm)                                                                                        \
    X(trsm)                                                                                        \
    X(getrf_pointers)                                                                              \
    X(getrf_size)                                                                                  \
    X(getrf)                                                                                       \
    X(getrs)                                                                                       \
    X(potrf_size)                                                                                  \
    X(potrf)                                                                                       \
    X(potrs)                                                                                       \
    X(potrf_pointers)                                                                              \
    X(geqrf_size)                                                                                  \
    X(geqrf)                                                                                       \
    X(ormqr_size)                                                                                  \
    X(ormqr)                                                                                       \
    X(gesvd_size)                                                                                  \
    X(gesvd)
#define X(name) extern std::remove_pointer_t<decltype(blasd_gpu_library::name)> blasd_gpu_##name;
BLASD_GPU_PARTS(X)
#undef X

#define BLASD_GPU_ENTRY(name) .name = blasd_gpu_##name,
/* by hand: versions of clang-format differ in how they lay out braces in a macro */
/* clang-format off */
#define BLASD_GPU_TABLE(title) {.name = title, BLASD_GPU_PARTS(BLASD_GPU_ENTRY)}
/* clang-format on */

#endif
