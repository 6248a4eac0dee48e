/* cuBLAS behind library.h. A row-major product is the column-major one with a and b swapped.
 * Read next: library_lt.cu. */
#include "kernels/cuda/library_cuda.h"

#define BLAS(call, what) blasd_gpu_blas_status(call, what, err)

static cublasOperation_t op(bool trans) {
    return trans ? CUBLAS_OP_T : CUBLAS_OP_N;
}

/* A factor in the type of the arithmetic, where cuBLAS wants its address. */
struct scalar {
    double wide[2];
    float single[2];
    const void *at;
    scalar(enum blasd_dtype dtype, double value)
        : wide{value, 0}, single{(float)value, 0},
          at(blasd_dtype_part(dtype) == BLASD_float64 ? (const void *)wide : single) {
    }
    scalar(const scalar &) = delete;
};

cublasComputeType_t blasd_gpu_compute_type(enum blasd_dtype dtype,
                                           enum blasd_gpu_rounding rounding) {
    if (blasd_dtype_part(dtype) == BLASD_float64) return CUBLAS_COMPUTE_64F;
    if (dtype == BLASD_float32 && rounding == BLASD_GPU_TF32) return CUBLAS_COMPUTE_32F_FAST_TF32;
    if (dtype == BLASD_float32 && rounding == BLASD_GPU_BF16) return CUBLAS_COMPUTE_32F_FAST_16BF;
    return CUBLAS_COMPUTE_32F;
}

int blasd_gpu_gemm(struct blasd_gpu_stream *stream, const struct blasd_gpu_gemm *g,
                   struct blasd_err *err) {
    cudaDataType_t type = blasd_gpu_type(g->dtype), out = blasd_gpu_type(g->out);
    cublasComputeType_t compute = blasd_gpu_compute_type(g->dtype, g->rounding);
    const scalar alpha(g->dtype, g->alpha), beta(g->dtype, g->beta);
    int code = blasd_gpu_blas(stream, err);
    if (code != 0) return code;
    if (g->choice != nullptr && (g->choice->room == 0 || stream->blas_room != nullptr))
        return blasd_gpu_gemm_chosen(stream, g, err);
    if (g->count == 1)
        return BLAS(cublasGemmEx_64(stream->blas, op(g->trans_b), op(g->trans_a), g->n, g->m, g->k,
                                    alpha.at, g->b, type, g->ldb, g->a, type, g->lda, beta.at, g->c,
                                    out, g->ldc, compute, CUBLAS_GEMM_DEFAULT),
                    "gemm");
    return BLAS(cublasGemmStridedBatchedEx_64(
                    stream->blas, op(g->trans_b), op(g->trans_a), g->n, g->m, g->k, alpha.at, g->b,
                    type, g->ldb, g->stride_b, g->a, type, g->lda, g->stride_a, beta.at, g->c, out,
                    g->ldc, g->stride_c, g->count, compute, CUBLAS_GEMM_DEFAULT),
                "batched gemm");
}

int blasd_gpu_gemm_pointers(struct blasd_gpu_stream *stream, const struct blasd_gpu_gemm *g,
                            struct blasd_err *err) {
    cudaDataType_t type = blasd_gpu_type(g->dtype), out = blasd_gpu_type(g->out);
    const scalar alpha(g->dtype, g->alpha), beta(g->dtype, g->beta);
    int code = blasd_gpu_blas(stream, err);
    if (code != 0) return code;
    return BLAS(cublasGemmBatchedEx_64(
                    stream->blas, op(g->trans_b), op(g->trans_a), g->n, g->m, g->k, alpha.at,
                    (const void *const *)g->b, type, g->ldb, (const void *const *)g->a, type,
                    g->lda, beta.at, (void *const *)g->c, out, g->ldc, g->count,
                    blasd_gpu_compute_type(g->dtype, g->rounding), CUBLAS_GEMM_DEFAULT),
                "gemm of pointers");
}

/* The groups' numbers as the arrays that cuBLAS wants, a piece at a time on the stack. */
#define MOST_GROUPS 64
struct group_arrays {
    cublasOperation_t trans_a[MOST_GROUPS], trans_b[MOST_GROUPS];
    int64_t m[MOST_GROUPS], n[MOST_GROUPS], k[MOST_GROUPS];
    int64_t lda[MOST_GROUPS], ldb[MOST_GROUPS], ldc[MOST_GROUPS], size[MOST_GROUPS];
    double alpha[MOST_GROUPS], beta[MOST_GROUPS];
    float alpha32[MOST_GROUPS], beta32[MOST_GROUPS];
};

int blasd_gpu_gemm_grouped(struct blasd_gpu_stream *stream, enum blasd_dtype dtype,
                           enum blasd_gpu_rounding rounding, const struct blasd_gpu_group *groups,
                           int group_count, const void *const *a, const void *const *b,
                           void *const *c, struct blasd_err *err) {
    cudaDataType_t type = blasd_gpu_type(dtype);
    bool wide = dtype == BLASD_float64;
    struct group_arrays s;
    int code = blasd_gpu_blas(stream, err);
    for (int from = 0; code == 0 && from < group_count; from += MOST_GROUPS) {
        int count = group_count - from < MOST_GROUPS ? group_count - from : MOST_GROUPS;
        int64_t products = 0;
        for (int i = 0; i < count; i++) {
            const struct blasd_gpu_group *g = &groups[from + i];
            s.trans_a[i] = op(g->trans_a);
            s.trans_b[i] = op(g->trans_b);
            s.m[i] = g->m;
            s.n[i] = g->n;
            s.k[i] = g->k;
            s.lda[i] = g->lda;
            s.ldb[i] = g->ldb;
            s.ldc[i] = g->ldc;
            s.alpha[i] = g->alpha;
            s.beta[i] = g->beta;
            s.alpha32[i] = (float)g->alpha;
            s.beta32[i] = (float)g->beta;
            s.size[i] = g->count;
            products += g->count;
        }
        code = BLAS(cublasGemmGroupedBatchedEx_64(
                        stream->blas, s.trans_b, s.trans_a, s.n, s.m, s.k,
                        wide ? (const void *)s.alpha : s.alpha32, b, type, s.ldb, a, type, s.lda,
                        wide ? (const void *)s.beta : s.beta32, c, type, s.ldc, count, s.size,
                        blasd_gpu_compute_type(dtype, rounding)),
                    "grouped gemm");
        a += products;
        b += products;
        c += products;
    }
    return code;
}

static cublasSideMode_t side(const struct blasd_gpu_triangle *t) {
    return t->right ? CUBLAS_SIDE_RIGHT : CUBLAS_SIDE_LEFT;
}
static cublasFillMode_t triangle(bool upper) {
    return upper ? CUBLAS_FILL_MODE_UPPER : CUBLAS_FILL_MODE_LOWER;
}
static cublasDiagType_t diagonal(const struct blasd_gpu_triangle *t) {
    return t->unit ? CUBLAS_DIAG_UNIT : CUBLAS_DIAG_NON_UNIT;
}

int blasd_gpu_trsm(struct blasd_gpu_stream *stream, const struct blasd_gpu_triangle *t,
                   const void *a, void *b, struct blasd_err *err) {
    const float alpha32 = (float)t->alpha;
    int code = blasd_gpu_blas(stream, err);
    if (code != 0) return code;
    if (t->dtype == BLASD_float64)
        return BLAS(cublasDtrsm_64(stream->blas, side(t), triangle(t->upper), op(t->trans),
                                   diagonal(t), t->m, t->n, &t->alpha, (const double *)a, t->lda,
                                   (double *)b, t->ldb),
                    "trsm");
    return BLAS(cublasStrsm_64(stream->blas, side(t), triangle(t->upper), op(t->trans), diagonal(t),
                               t->m, t->n, &alpha32, (const float *)a, t->lda, (float *)b, t->ldb),
                "trsm");
}

int blasd_gpu_trsm_pointers(struct blasd_gpu_stream *stream, const struct blasd_gpu_triangle *t,
                            const void *const *a, void *const *b, int count,
                            struct blasd_err *err) {
    const float alpha32 = (float)t->alpha;
    int code = blasd_gpu_blas(stream, err);
    if (code != 0) return code;
    if (t->dtype == BLASD_float64)
        return BLAS(cublasDtrsmBatched_64(stream->blas, side(t), triangle(t->upper), op(t->trans),
                                          diagonal(t), t->m, t->n, &t->alpha,
                                          (const double *const *)a, t->lda, (double *const *)b,
                                          t->ldb, count),
                    "batched trsm");
    return BLAS(cublasStrsmBatched_64(stream->blas, side(t), triangle(t->upper), op(t->trans),
                                      diagonal(t), t->m, t->n, &alpha32, (const float *const *)a,
                                      t->lda, (float *const *)b, t->ldb, count),
                "batched trsm");
}

int blasd_gpu_syrk(struct blasd_gpu_stream *stream, enum blasd_dtype dtype, bool upper, bool trans,
                   int64_t n, int64_t k, double alpha, const void *a, int64_t lda, double beta,
                   void *c, int64_t ldc, struct blasd_err *err) {
    const float alpha32 = (float)alpha, beta32 = (float)beta;
    int code = blasd_gpu_blas(stream, err);
    if (code != 0) return code;
    if (dtype == BLASD_float64)
        return BLAS(cublasDsyrk_64(stream->blas, triangle(upper), op(trans), n, k, &alpha,
                                   (const double *)a, lda, &beta, (double *)c, ldc),
                    "syrk");
    return BLAS(cublasSsyrk_64(stream->blas, triangle(upper), op(trans), n, k, &alpha32,
                               (const float *)a, lda, &beta32, (float *)c, ldc),
                "syrk");
}

int blasd_gpu_getrf_pointers(struct blasd_gpu_stream *stream, enum blasd_dtype dtype, int n,
                             void *const *a, int lda, int *pivots, int *info, int count,
                             struct blasd_err *err) {
    int code = blasd_gpu_blas(stream, err);
    if (code != 0) return code;
    if (dtype == BLASD_float64)
        return BLAS(
            cublasDgetrfBatched(stream->blas, n, (double *const *)a, lda, pivots, info, count),
            "batched getrf");
    return BLAS(cublasSgetrfBatched(stream->blas, n, (float *const *)a, lda, pivots, info, count),
                "batched getrf");
}

int blasd_gpu_getrs_pointers(struct blasd_gpu_stream *stream, enum blasd_dtype dtype, bool trans,
                             int n, int columns, const void *const *a, int lda, const int *pivots,
                             void *const *b, int ldb, int count, struct blasd_err *err) {
    int info = 0, code = blasd_gpu_blas(stream, err);
    if (code != 0) return code;
    if (dtype == BLASD_float64)
        code =
            BLAS(cublasDgetrsBatched(stream->blas, op(trans), n, columns, (const double *const *)a,
                                     lda, pivots, (double *const *)b, ldb, &info, count),
                 "batched getrs");
    else
        code =
            BLAS(cublasSgetrsBatched(stream->blas, op(trans), n, columns, (const float *const *)a,
                                     lda, pivots, (float *const *)b, ldb, &info, count),
                 "batched getrs");
    if (code == 0 && info != 0)
        return blasd_fail(err, BLASD_E_internal_error, "", "batched getrs: argument %d", -info);
    return code;
}
