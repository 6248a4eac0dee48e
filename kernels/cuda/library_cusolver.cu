/* cuSOLVER behind library.h. Read next: tests/standin/library_standin.cc, the same without a GPU.
 */
#include "kernels/cuda/library_cuda.h"

#define SOLVER(call, what) blasd_gpu_solver_status(call, what, err)

#define READY()                                                                                    \
    int code = blasd_gpu_solver(stream, err);                                                      \
    if (code != 0) return code

static cublasFillMode_t triangle(bool upper) {
    return upper ? CUBLAS_FILL_MODE_UPPER : CUBLAS_FILL_MODE_LOWER;
}
static cublasOperation_t op(bool trans) {
    return trans ? CUBLAS_OP_T : CUBLAS_OP_N;
}

int blasd_gpu_getrf_size(struct blasd_gpu_stream *stream, enum blasd_dtype dtype, int64_t m,
                         int64_t n, int64_t lda, size_t *work, size_t *host_work,
                         struct blasd_err *err) {
    cudaDataType_t type = blasd_gpu_type(dtype);
    READY();
    return SOLVER(cusolverDnXgetrf_bufferSize(stream->solver, stream->solver_params, m, n, type,
                                              nullptr, lda, type, work, host_work),
                  "getrf");
}

int blasd_gpu_getrf(struct blasd_gpu_stream *stream, enum blasd_dtype dtype, int64_t m, int64_t n,
                    void *a, int64_t lda, int64_t *pivots, void *work, size_t work_bytes,
                    void *host_work, size_t host_bytes, int *info, struct blasd_err *err) {
    cudaDataType_t type = blasd_gpu_type(dtype);
    READY();
    return SOLVER(cusolverDnXgetrf(stream->solver, stream->solver_params, m, n, type, a, lda,
                                   pivots, type, work, work_bytes, host_work, host_bytes, info),
                  "getrf");
}

int blasd_gpu_getrs(struct blasd_gpu_stream *stream, enum blasd_dtype dtype, bool trans, int64_t n,
                    int64_t columns, const void *a, int64_t lda, const int64_t *pivots, void *b,
                    int64_t ldb, int *info, struct blasd_err *err) {
    cudaDataType_t type = blasd_gpu_type(dtype);
    READY();
    return SOLVER(cusolverDnXgetrs(stream->solver, stream->solver_params, op(trans), n, columns,
                                   type, a, lda, pivots, type, b, ldb, info),
                  "getrs");
}

int blasd_gpu_potrf_size(struct blasd_gpu_stream *stream, enum blasd_dtype dtype, bool upper,
                         int64_t n, int64_t lda, size_t *work, size_t *host_work,
                         struct blasd_err *err) {
    cudaDataType_t type = blasd_gpu_type(dtype);
    READY();
    return SOLVER(cusolverDnXpotrf_bufferSize(stream->solver, stream->solver_params,
                                              triangle(upper), n, type, nullptr, lda, type, work,
                                              host_work),
                  "potrf");
}

int blasd_gpu_potrf(struct blasd_gpu_stream *stream, enum blasd_dtype dtype, bool upper, int64_t n,
                    void *a, int64_t lda, void *work, size_t work_bytes, void *host_work,
                    size_t host_bytes, int *info, struct blasd_err *err) {
    cudaDataType_t type = blasd_gpu_type(dtype);
    READY();
    return SOLVER(cusolverDnXpotrf(stream->solver, stream->solver_params, triangle(upper), n, type,
                                   a, lda, type, work, work_bytes, host_work, host_bytes, info),
                  "potrf");
}

int blasd_gpu_potrs(struct blasd_gpu_stream *stream, enum blasd_dtype dtype, bool upper, int64_t n,
                    int64_t columns, const void *a, int64_t lda, void *b, int64_t ldb, int *info,
                    struct blasd_err *err) {
    cudaDataType_t type = blasd_gpu_type(dtype);
    READY();
    return SOLVER(cusolverDnXpotrs(stream->solver, stream->solver_params, triangle(upper), n,
                                   columns, type, a, lda, type, b, ldb, info),
                  "potrs");
}

int blasd_gpu_potrf_pointers(struct blasd_gpu_stream *stream, enum blasd_dtype dtype, bool upper,
                             int n, void *const *a, int lda, int *info, int count,
                             struct blasd_err *err) {
    READY();
    if (dtype == BLASD_float64)
        return SOLVER(cusolverDnDpotrfBatched(stream->solver, triangle(upper), n, (double **)a, lda,
                                              info, count),
                      "batched potrf");
    return SOLVER(
        cusolverDnSpotrfBatched(stream->solver, triangle(upper), n, (float **)a, lda, info, count),
        "batched potrf");
}

int blasd_gpu_geqrf_size(struct blasd_gpu_stream *stream, enum blasd_dtype dtype, int64_t m,
                         int64_t n, int64_t lda, size_t *work, size_t *host_work,
                         struct blasd_err *err) {
    cudaDataType_t type = blasd_gpu_type(dtype);
    READY();
    return SOLVER(cusolverDnXgeqrf_bufferSize(stream->solver, stream->solver_params, m, n, type,
                                              nullptr, lda, type, nullptr, type, work, host_work),
                  "geqrf");
}

int blasd_gpu_geqrf(struct blasd_gpu_stream *stream, enum blasd_dtype dtype, int64_t m, int64_t n,
                    void *a, int64_t lda, void *tau, void *work, size_t work_bytes, void *host_work,
                    size_t host_bytes, int *info, struct blasd_err *err) {
    cudaDataType_t type = blasd_gpu_type(dtype);
    READY();
    return SOLVER(cusolverDnXgeqrf(stream->solver, stream->solver_params, m, n, type, a, lda, type,
                                   tau, type, work, work_bytes, host_work, host_bytes, info),
                  "geqrf");
}

int blasd_gpu_ormqr_size(struct blasd_gpu_stream *stream, enum blasd_dtype dtype, bool trans, int m,
                         int n, int k, int lda, int ldc, size_t *work, struct blasd_err *err) {
    int elements = 0;
    READY();
    if (dtype == BLASD_float64)
        code =
            SOLVER(cusolverDnDormqr_bufferSize(stream->solver, CUBLAS_SIDE_LEFT, op(trans), m, n, k,
                                               nullptr, lda, nullptr, nullptr, ldc, &elements),
                   "ormqr");
    else
        code =
            SOLVER(cusolverDnSormqr_bufferSize(stream->solver, CUBLAS_SIDE_LEFT, op(trans), m, n, k,
                                               nullptr, lda, nullptr, nullptr, ldc, &elements),
                   "ormqr");
    *work = (size_t)elements * blasd_dtype_size(dtype);
    return code;
}

int blasd_gpu_ormqr(struct blasd_gpu_stream *stream, enum blasd_dtype dtype, bool trans, int m,
                    int n, int k, const void *a, int lda, const void *tau, void *c, int ldc,
                    void *work, size_t work_bytes, int *info, struct blasd_err *err) {
    int elements = (int)(work_bytes / blasd_dtype_size(dtype));
    READY();
    if (dtype == BLASD_float64)
        return SOLVER(cusolverDnDormqr(stream->solver, CUBLAS_SIDE_LEFT, op(trans), m, n, k,
                                       (const double *)a, lda, (const double *)tau, (double *)c,
                                       ldc, (double *)work, elements, info),
                      "ormqr");
    return SOLVER(cusolverDnSormqr(stream->solver, CUBLAS_SIDE_LEFT, op(trans), m, n, k,
                                   (const float *)a, lda, (const float *)tau, (float *)c, ldc,
                                   (float *)work, elements, info),
                  "ormqr");
}

int blasd_gpu_gesvd_size(struct blasd_gpu_stream *stream, enum blasd_dtype dtype, int64_t m,
                         int64_t n, int64_t lda, bool vectors, size_t *work, size_t *host_work,
                         struct blasd_err *err) {
    cudaDataType_t type = blasd_gpu_type(dtype);
    signed char job = vectors ? 'S' : 'N';
    READY();
    return SOLVER(cusolverDnXgesvd_bufferSize(stream->solver, stream->solver_params, job, job, m, n,
                                              type, nullptr, lda, type, nullptr, type, nullptr, m,
                                              type, nullptr, n, type, work, host_work),
                  "gesvd");
}

int blasd_gpu_gesvd(struct blasd_gpu_stream *stream, enum blasd_dtype dtype, int64_t m, int64_t n,
                    void *a, int64_t lda, void *s, void *u, int64_t ldu, void *vt, int64_t ldvt,
                    void *work, size_t work_bytes, void *host_work, size_t host_bytes, int *info,
                    struct blasd_err *err) {
    cudaDataType_t type = blasd_gpu_type(dtype);
    signed char job = u != nullptr ? 'S' : 'N';
    READY();
    return SOLVER(cusolverDnXgesvd(stream->solver, stream->solver_params, job, job, m, n, type, a,
                                   lda, type, s, type, u, u != nullptr ? ldu : m, type, vt,
                                   vt != nullptr ? ldvt : n, type, work, work_bytes, host_work,
                                   host_bytes, info),
                  "gesvd");
}
