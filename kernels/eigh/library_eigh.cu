/* syevd by cuSOLVER. Read next: library_eigh.h; library_eigh.cc, the same without a GPU. */
#include "kernels/cuda/library_cuda.h"

extern "C" {
#include "kernels/eigh/library_eigh.h"
}

static cusolverEigMode_t mode_of(bool vectors) {
    return vectors ? CUSOLVER_EIG_MODE_VECTOR : CUSOLVER_EIG_MODE_NOVECTOR;
}

int blasd_gpu_syevd_size(struct blasd_gpu_stream *stream, int64_t n, bool vectors, size_t *work,
                         size_t *host_work, struct blasd_err *err) {
    if (int code = blasd_gpu_solver(stream, err); code != 0) return code;
    return blasd_gpu_solver_status(
        cusolverDnXsyevd_bufferSize(stream->solver, stream->solver_params, mode_of(vectors),
                                    CUBLAS_FILL_MODE_LOWER, n, CUDA_R_64F, nullptr, n, CUDA_R_64F,
                                    nullptr, CUDA_R_64F, work, host_work),
        "syevd", err);
}

int blasd_gpu_syevd(struct blasd_gpu_stream *stream, int64_t n, bool vectors, double *a, double *w,
                    void *work, size_t work_bytes, void *host_work, size_t host_bytes, int *info,
                    struct blasd_err *err) {
    if (int code = blasd_gpu_solver(stream, err); code != 0) return code;
    return blasd_gpu_solver_status(cusolverDnXsyevd(stream->solver, stream->solver_params,
                                                    mode_of(vectors), CUBLAS_FILL_MODE_LOWER, n,
                                                    CUDA_R_64F, a, n, CUDA_R_64F, w, CUDA_R_64F,
                                                    work, work_bytes, host_work, host_bytes, info),
                                   "syevd", err);
}
