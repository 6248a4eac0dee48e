/* Products by an algorithm that the caller names: cuBLASLt behind library.h. Which of them is
 * fastest for a shape is found by tune.c. Read next: library_cusolver.cu. */
#include "kernels/cuda/library_cuda.h"

#include <cublasLt.h>
#include <string.h>

#define BLAS(call, what) blasd_gpu_blas_status(call, what, err)
#define MOST_CHOICES 16

static_assert(sizeof(cublasLtMatmulAlgo_t) == sizeof(blasd_gpu_choice::words),
              "an algorithm fits into a choice");

/* A product as cuBLASLt wants it: column-major, so a and b change places. Plain values, nothing to
 * free. */
struct lt_product {
    cublasLtMatmulDescOpaque_t what;
    cublasLtMatrixLayoutOpaque_t left, right, out;
};

static cublasStatus_t layout(cublasLtMatrixLayoutOpaque_t *ret, enum blasd_dtype dtype,
                             int64_t rows, int64_t columns, int64_t ld, int64_t step,
                             int64_t count) {
    int32_t batch = (int32_t)count;
    cublasStatus_t status =
        cublasLtMatrixLayoutInit(ret, blasd_gpu_type(dtype), (uint64_t)rows, (uint64_t)columns, ld);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = cublasLtMatrixLayoutSetAttribute(ret, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batch,
                                                  sizeof batch);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = cublasLtMatrixLayoutSetAttribute(ret, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                                  &step, sizeof step);
    return status;
}

static cublasStatus_t describe(const struct blasd_gpu_gemm *g, struct lt_product *p) {
    cublasOperation_t left = g->trans_b ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasOperation_t right = g->trans_a ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasStatus_t status = cublasLtMatmulDescInit(
        &p->what, blasd_gpu_compute_type(g->dtype, g->rounding),
        g->dtype == BLASD_float64 ? CUDA_R_64F : CUDA_R_32F); /* of alpha and beta */
    if (status == CUBLAS_STATUS_SUCCESS)
        status = cublasLtMatmulDescSetAttribute(&p->what, CUBLASLT_MATMUL_DESC_TRANSA, &left,
                                                sizeof left);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = cublasLtMatmulDescSetAttribute(&p->what, CUBLASLT_MATMUL_DESC_TRANSB, &right,
                                                sizeof right);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = layout(&p->left, g->dtype, g->trans_b ? g->k : g->n, g->trans_b ? g->n : g->k,
                        g->ldb, g->stride_b, g->count);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = layout(&p->right, g->dtype, g->trans_a ? g->m : g->k, g->trans_a ? g->k : g->m,
                        g->lda, g->stride_a, g->count);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = layout(&p->out, g->out, g->n, g->m, g->ldc, g->stride_c, g->count);
    return status;
}

/* Algorithms that want more than an address is a multiple of must not be offered. */
static uint32_t alignment(const void *address) {
    return (uint32_t)blasd_gpu_alignment(address);
}

static cublasStatus_t wishes(const struct blasd_gpu_gemm *g, size_t room,
                             cublasLtMatmulPreferenceOpaque_t *ret) {
    /* partial sums stay in the dtype of sums: a half result is rounded once */
    uint32_t schemes = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    uint64_t most = room;
    const struct {
        cublasLtMatmulPreferenceAttributes_t name;
        uint32_t bytes;
    } aligned[] = {{CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment(g->b)},
                   {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment(g->a)},
                   {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment(g->c)},
                   {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment(g->c)}};
    cublasStatus_t status = cublasLtMatmulPreferenceInit(ret);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = cublasLtMatmulPreferenceSetAttribute(
            ret, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &schemes, sizeof schemes);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = cublasLtMatmulPreferenceSetAttribute(ret, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                      &most, sizeof most);
    for (const auto &a : aligned)
        if (status == CUBLAS_STATUS_SUCCESS)
            status = cublasLtMatmulPreferenceSetAttribute(ret, a.name, &a.bytes, sizeof a.bytes);
    return status;
}

int blasd_gpu_gemm_choices(struct blasd_gpu_stream *stream, const struct blasd_gpu_gemm *g,
                           int most, struct blasd_gpu_choice *ret, int *count,
                           struct blasd_err *err) {
    cublasLtMatmulHeuristicResult_t found[MOST_CHOICES];
    cublasLtMatmulPreferenceOpaque_t preference;
    struct lt_product p;
    cublasStatus_t status;
    int got = 0, code = blasd_gpu_blas(stream, err);
    *count = 0;
    if (code != 0) return code;
    if (most > MOST_CHOICES) most = MOST_CHOICES;
    if (g->count > INT32_MAX) return 0;
    code = BLAS(describe(g, &p), "describing a product");
    if (code == 0)
        code = BLAS(wishes(g, stream->blas_room != nullptr ? blasd_gpu_blas_room : 0, &preference),
                    "describing a product");
    if (code != 0) return code;
    /* a handle of cuBLAS serves as one of cuBLASLt */
    status =
        cublasLtMatmulAlgoGetHeuristic((cublasLtHandle_t)stream->blas, &p.what, &p.left, &p.right,
                                       &p.out, &p.out, &preference, most, found, &got);
    if (status == CUBLAS_STATUS_NOT_SUPPORTED) return 0;
    code = BLAS(status, "asking for algorithms");
    for (int i = 0; code == 0 && i < got; i++) {
        struct blasd_gpu_choice *choice = &ret[*count];
        if (found[i].state != CUBLAS_STATUS_SUCCESS) continue;
        memcpy(choice->words, &found[i].algo, sizeof found[i].algo);
        choice->room = found[i].workspaceSize;
        ++*count;
    }
    return code;
}

int blasd_gpu_gemm_chosen(struct blasd_gpu_stream *stream, const struct blasd_gpu_gemm *g,
                          struct blasd_err *err) {
    const float alpha32 = (float)g->alpha, beta32 = (float)g->beta;
    bool wide = g->dtype == BLASD_float64;
    cublasLtMatmulAlgo_t algorithm;
    struct lt_product p;
    int code = blasd_gpu_blas(stream, err);
    if (code == 0) code = BLAS(describe(g, &p), "describing a product");
    if (code != 0) return code;
    memcpy(&algorithm, g->choice->words, sizeof algorithm);
    return BLAS(cublasLtMatmul((cublasLtHandle_t)stream->blas, &p.what,
                               wide ? (const void *)&g->alpha : &alpha32, g->b, &p.left, g->a,
                               &p.right, wide ? (const void *)&g->beta : &beta32, g->c, &p.out,
                               g->c, &p.out, &algorithm, stream->blas_room, g->choice->room,
                               stream->raw),
                "gemm by a chosen algorithm");
}
