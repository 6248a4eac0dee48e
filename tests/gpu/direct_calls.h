/* Calls of the libraries that blasd does not make, and that benchmarks compare it with. */
#ifndef BLASD_TESTS_GPU_DIRECT_CALLS_H
#define BLASD_TESTS_GPU_DIRECT_CALLS_H

#include "kernels/cuda/library.h"

/* One product, row-major, dense: m x k by k x n. */
struct direct_group {
    int64_t m, n, k;
};
#define DIRECT_GROUPS 500 /* at most */

#ifdef __cplusplus
extern "C" {
#endif
/* Products of different shapes in one call; the tables of addresses are in device memory. */
int direct_gemm_grouped(struct blasd_gpu_stream *stream, enum blasd_dtype dtype,
                        const struct direct_group *groups, int count, const void *const *a,
                        const void *const *b, void *const *c, struct blasd_err *err);
/* What follows getrf_pointers, for one column each. */
int direct_getrs_batched(struct blasd_gpu_stream *stream, enum blasd_dtype dtype, int n,
                         const void *const *a, const int *pivots, void *const *b, int count,
                         struct blasd_err *err);
#ifdef __cplusplus
}
#endif

#endif
