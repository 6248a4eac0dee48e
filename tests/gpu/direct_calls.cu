/* cuBLAS and cuSOLVER for direct_calls.h. Row-major is column-major with a and b swapped. */
#include "tests/gpu/direct_calls.h"

#include "kernels/cuda/library_cuda.h"

#define BLAS(call, what) blasd_gpu_blas_status(call, what, err)
#define SOLVER(call, what) blasd_gpu_solver_status(call, what, err)

int direct_gemm_grouped(struct blasd_gpu_stream *stream, enum blasd_dtype dtype,
                        const struct direct_group *groups, int count, const void *const *a,
                        const void *const *b, void *const *c, struct blasd_err *err) {
    static cublasOperation_t plain[DIRECT_GROUPS];
    static int64_t m[DIRECT_GROUPS], n[DIRECT_GROUPS], k[DIRECT_GROUPS], one[DIRECT_GROUPS];
    static double wide[2][DIRECT_GROUPS];
    static float single[2][DIRECT_GROUPS];
    bool is_wide = dtype == BLASD_float64;
    cudaDataType_t type = blasd_gpu_type(dtype);
    int code = blasd_gpu_blas(stream, err);
    for (int i = 0; i < count; i++) {
        plain[i] = CUBLAS_OP_N;
        m[i] = groups[i].m;
        n[i] = groups[i].n;
        k[i] = groups[i].k;
        one[i] = 1;
        wide[0][i] = single[0][i] = 1;
    }
    if (code != 0) return code;
    return BLAS(cublasGemmGroupedBatchedEx_64(
                    stream->blas, plain, plain, n, m, k,
                    is_wide ? (const void *)wide[0] : single[0], b, type, n, a, type, k,
                    is_wide ? (const void *)wide[1] : single[1], c, type, n, count, one,
                    is_wide ? CUBLAS_COMPUTE_64F : CUBLAS_COMPUTE_32F),
                "grouped gemm");
}

int direct_getrs_batched(struct blasd_gpu_stream *stream, enum blasd_dtype dtype, int n,
                         const void *const *a, const int *pivots, void *const *b, int count,
                         struct blasd_err *err) {
    int info = 0, code = blasd_gpu_blas(stream, err);
    if (code != 0) return code;
    if (dtype == BLASD_float64)
        return BLAS(cublasDgetrsBatched(stream->blas, CUBLAS_OP_T, n, 1, (const double *const *)a,
                                        n, pivots, (double *const *)b, n, &info, count),
                    "batched getrs");
    return BLAS(cublasSgetrsBatched(stream->blas, CUBLAS_OP_T, n, 1, (const float *const *)a, n,
                                    pivots, (float *const *)b, n, &info, count),
                "batched getrs");
}
