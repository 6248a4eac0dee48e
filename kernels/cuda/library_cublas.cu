/* cuBLAS behind library.h. A row-major product is the column-major one with a and b swapped.
 * Read next: library_cusolver.cu. */
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

static cublasComputeType_t compute_type(enum blasd_dtype dtype, enum blasd_gpu_rounding rounding) {
    if (blasd_dtype_part(dtype) == BLASD_float64) return CUBLAS_COMPUTE_64F;
    if (dtype == BLASD_float32 && rounding == BLASD_GPU_TF32) return CUBLAS_COMPUTE_32F_FAST_TF32;
    if (dtype == BLASD_float32 && rounding == BLASD_GPU_BF16) return CUBLAS_COMPUTE_32F_FAST_16BF;
    return CUBLAS_COMPUTE_32F;
}

/* ---- float64 by integers, on the units that multiply them fast ---- */

#if CUBLAS_VERSION >= 130100

static size_t up_to(int64_t n, int64_t multiple) {
    return (size_t)((n + multiple - 1) / multiple * multiple);
}

/* No less than what NVIDIA's manual says: the factors as bytes, ten of them for the bits of the
 * most, the sums of their products, or else what choosing the bits takes; a quarter more, and
 * 128 MiB. */
size_t blasd_gpu_gemm_room(const struct blasd_gpu_gemm *g) {
    const size_t slices = (BLASD_GPU_FIXED_MOST + 1 + 7) / 8, most_sums = (size_t)1 << 32;
    size_t m = up_to(g->m, 1024), n = up_to(g->n, 1024), k = up_to(g->k, 128), factors, sums,
           choice;
    factors = (m + n) * k * slices + 4 * (m + n);
    sums = 4 * m * n * slices;
    sums = (sums < most_sums ? sums : most_sums) * (up_to(g->k, 8192) / 8192);
    choice = 4 * ((size_t)(g->m + g->n) * (up_to(g->k, 64) / 64) + (size_t)(g->m * g->n));
    if (factors + sums > choice) choice = factors + sums;
    return choice + choice / 4 + ((size_t)128 << 20);
}

/* What the handle is to know of this product; of no product with NULL. cuBLAS chooses the bits, so
 * that the error is no more than float64's, and whether it pays (CUBLAS_EMULATION_STRATEGY in the
 * environment: eager, performant). */
static int emulate(struct blasd_gpu_stream *stream, const struct blasd_gpu_gemm *g,
                   struct blasd_err *err) {
    bool own = g == nullptr && stream->blas_room != nullptr;
    void *room = g != nullptr ? g->room : stream->blas_room;
    size_t bytes = g != nullptr ? blasd_gpu_gemm_room(g) : own ? blasd_gpu_blas_room : 0;
    int code = BLAS(cublasSetWorkspace(stream->blas, room, bytes), "workspace");
    if (code != 0) return code;
    return BLAS(cublasSetFixedPointEmulationMantissaBitCountPointer(
                    stream->blas, g != nullptr ? g->bits : nullptr),
                "emulated gemm");
}

static int gemm_fixed(struct blasd_gpu_stream *stream, const struct blasd_gpu_gemm *g,
                      struct blasd_err *err) {
    struct blasd_err other;
    int code = emulate(stream, g, err), after;
    if (code == 0)
        code = BLAS(cublasGemmEx_64(stream->blas, op(g->trans_b), op(g->trans_a), g->n, g->m, g->k,
                                    &g->alpha, g->b, CUDA_R_64F, g->ldb, g->a, CUDA_R_64F, g->lda,
                                    &g->beta, g->c, CUDA_R_64F, g->ldc,
                                    CUBLAS_COMPUTE_64F_EMULATED_FIXEDPOINT, CUBLAS_GEMM_DEFAULT),
                    "emulated gemm");
    after = emulate(stream, nullptr, code == 0 ? err : &other);
    return code != 0 ? code : after;
}

#else

size_t blasd_gpu_gemm_room(const struct blasd_gpu_gemm *) {
    return 0;
}
static int gemm_fixed(struct blasd_gpu_stream *, const struct blasd_gpu_gemm *,
                      struct blasd_err *err) {
    return blasd_fail(err, BLASD_E_internal_error, "", "this cuBLAS emulates no float64");
}

#endif

int blasd_gpu_gemm(struct blasd_gpu_stream *stream, const struct blasd_gpu_gemm *g,
                   struct blasd_err *err) {
    cudaDataType_t type = blasd_gpu_type(g->dtype), out = blasd_gpu_type(g->out);
    cublasComputeType_t compute = compute_type(g->dtype, g->rounding);
    const scalar alpha(g->dtype, g->alpha), beta(g->dtype, g->beta);
    int code = blasd_gpu_blas(stream, err);
    if (code != 0) return code;
    if (g->rounding == BLASD_GPU_FIXED) return gemm_fixed(stream, g, err);
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
