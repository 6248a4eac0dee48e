/* The stand-in for cuBLAS and cuSOLVER: the same functions by OpenBLAS and LAPACKE, for tests.
 *
 * Rounding is done as it is asked for: a product that was not allowed TF32 is not rounded, one that
 * was is, so that a test can tell. Workspace sizes are invented, and touched to their last byte. */
#include "kernels/cuda/library_parts.h"
#include "tests/standin/library_standin.h"
#include "tests/standin/standin_stream.h"

extern "C" {
#include "core/half.h"
}

#include <algorithm>
#include <cblas.h>
#include <climits>
#include <cmath>
#include <cstring>
#include <lapacke.h>
#include <vector>

#define FAULT()                                                                                    \
    if (int fault_ = blasd_standin_fault(err); fault_ != 0) return fault_

static CBLAS_TRANSPOSE trans_of(bool trans) {
    return trans ? CblasTrans : CblasNoTrans;
}
static char triangle(bool upper) {
    return upper ? 'U' : 'L';
}

static float rounded(float x, enum blasd_gpu_rounding rounding) {
    uint32_t bits = blasd_float_bits(x);
    if (rounding == BLASD_GPU_BF16) return blasd_bfloat16_read(blasd_bfloat16_write(x));
    if (rounding == BLASD_GPU_NATIVE || !std::isfinite(x)) return x;
    return blasd_float_from_bits((bits + 0xfffu + ((bits >> 13) & 1u)) & ~0x1fffu);
}

static float element(const void *x, int64_t i, enum blasd_dtype dtype,
                     enum blasd_gpu_rounding rounding) {
    if (dtype == BLASD_float16) return blasd_float16_read(((const uint16_t *)x)[i]);
    if (dtype == BLASD_bfloat16) return blasd_bfloat16_read(((const uint16_t *)x)[i]);
    return rounded(((const float *)x)[i], rounding);
}

/* A dense copy of a factor as floats. */
static std::vector<float> factor(const struct blasd_gpu_gemm &g, const void *x, bool trans,
                                 int64_t rows, int64_t columns, int64_t ld) {
    std::vector<float> out((size_t)(rows * columns));
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++)
            out[(size_t)(i * columns + j)] =
                element(x, trans ? j * ld + i : i * ld + j, g.dtype, g.rounding);
    return out;
}

static void product_of_floats(const struct blasd_gpu_gemm &g, const void *a, const void *b,
                              void *c) {
    std::vector<float> fa = factor(g, a, g.trans_a, g.m, g.k, g.lda);
    std::vector<float> fb = factor(g, b, g.trans_b, g.k, g.n, g.ldb);
    std::vector<float> fc((size_t)(g.m * g.n));
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, (int)g.m, (int)g.n, (int)g.k, 1,
                fa.data(), (int)g.k, fb.data(), (int)g.n, 0, fc.data(), (int)g.n);
    for (int64_t i = 0; i < g.m; i++)
        for (int64_t j = 0; j < g.n; j++) {
            int64_t at = i * g.ldc + j;
            float v = (float)g.alpha * fc[(size_t)(i * g.n + j)];
            if (g.beta != 0) v += (float)g.beta * element(c, at, g.out, BLASD_GPU_NATIVE);
            if (g.out == BLASD_float16)
                ((uint16_t *)c)[at] = blasd_float16_write(v);
            else if (g.out == BLASD_bfloat16)
                ((uint16_t *)c)[at] = blasd_bfloat16_write(v);
            else
                ((float *)c)[at] = v;
        }
}

static void product_of_complex(const struct blasd_gpu_gemm &g, const void *a, const void *b,
                               void *c) {
    const double alpha[2] = {g.alpha, 0}, beta[2] = {g.beta, 0};
    const float alpha32[2] = {(float)g.alpha, 0}, beta32[2] = {(float)g.beta, 0};
    if (g.dtype == BLASD_complex128)
        cblas_zgemm(CblasRowMajor, trans_of(g.trans_a), trans_of(g.trans_b), (int)g.m, (int)g.n,
                    (int)g.k, alpha, a, (int)g.lda, b, (int)g.ldb, beta, c, (int)g.ldc);
    else
        cblas_cgemm(CblasRowMajor, trans_of(g.trans_a), trans_of(g.trans_b), (int)g.m, (int)g.n,
                    (int)g.k, alpha32, a, (int)g.lda, b, (int)g.ldb, beta32, c, (int)g.ldc);
}

static void product(const struct blasd_gpu_gemm &g, const void *a, const void *b, void *c) {
    openblas_set_num_threads(1);
    if (g.dtype == BLASD_float64)
        cblas_dgemm(CblasRowMajor, trans_of(g.trans_a), trans_of(g.trans_b), (int)g.m, (int)g.n,
                    (int)g.k, g.alpha, (const double *)a, (int)g.lda, (const double *)b, (int)g.ldb,
                    g.beta, (double *)c, (int)g.ldc);
    else if (blasd_dtype_parts(g.dtype) == 2)
        product_of_complex(g, a, b, c);
    else if (g.dtype == BLASD_float32 && g.rounding == BLASD_GPU_NATIVE)
        cblas_sgemm(CblasRowMajor, trans_of(g.trans_a), trans_of(g.trans_b), (int)g.m, (int)g.n,
                    (int)g.k, (float)g.alpha, (const float *)a, (int)g.lda, (const float *)b,
                    (int)g.ldb, (float)g.beta, (float *)c, (int)g.ldc);
    else
        product_of_floats(g, a, b, c);
}

/* ---- float64 by integers ---- */

size_t blasd_gpu_gemm_room(const struct blasd_gpu_gemm *g) {
    return blasd_standin.emulates ? (size_t)(8 * (g->m + g->n) + 1000) : 0;
}

/* Powers of two that `count` numbers lie apart; INT_MAX where one is not finite. */
static int spread(const double *x, int64_t count, int64_t step) {
    int least = 0, most = 0, exponent;
    bool any = false;
    for (int64_t i = 0; i < count; i++) {
        if (!std::isfinite(x[i * step])) return INT_MAX;
        if (x[i * step] == 0) continue;
        (void)frexp(x[i * step], &exponent);
        least = any && least < exponent ? least : exponent;
        most = any && most > exponent ? most : exponent;
        any = true;
    }
    return most - least;
}

/* So many bits that integers beside a power of two for each row of a and column of b hold the
 * factors exactly, in bytes whose first bit is a sign. */
static int bits_of(const struct blasd_gpu_gemm &g) {
    int apart = 0;
    for (int64_t i = 0; i < g.m; i++)
        apart = std::max(apart, spread((const double *)g.a + i * (g.trans_a ? 1 : g.lda), g.k,
                                       g.trans_a ? g.lda : 1));
    for (int64_t j = 0; j < g.n; j++)
        apart = std::max(apart, spread((const double *)g.b + j * (g.trans_b ? g.ldb : 1), g.k,
                                       g.trans_b ? 1 : g.ldb));
    return apart > BLASD_GPU_FIXED_MOST ? INT_MAX : (53 + apart + 1 + 7) / 8 * 8 - 1;
}

/* Such sums are exact, and rounded once; false: too many bits, or not worth it. */
static bool product_of_integers(const struct blasd_gpu_gemm &g) {
    int bits = bits_of(g);
    memset(g.room, 0xdd, blasd_gpu_gemm_room(&g));
    if (bits > BLASD_GPU_FIXED_MOST) return false;
    for (int64_t i = 0; i < g.m; i++)
        for (int64_t j = 0; j < g.n; j++) {
            double *c = (double *)g.c + i * g.ldc + j;
            long double sum = 0;
            for (int64_t k = 0; k < g.k; k++)
                sum +=
                    (long double)((const double *)g.a)[g.trans_a ? k * g.lda + i : i * g.lda + k] *
                    ((const double *)g.b)[g.trans_b ? j * g.ldb + k : k * g.ldb + j];
            sum *= g.alpha;
            *c = (double)(g.beta != 0 ? sum + g.beta * (long double)*c : sum);
        }
    *g.bits = bits;
    return true;
}

/* What cuBLAS refuses. */
static int gemm_check(const struct blasd_gpu_gemm *g, struct blasd_err *err) {
    FAULT();
    blasd_standin.gemms++;
    if (g->m < 1 || g->n < 1 || g->k < 1 || g->count < 1 || g->lda < (g->trans_a ? g->m : g->k) ||
        g->ldb < (g->trans_b ? g->k : g->n) || g->ldc < g->n ||
        (g->out != g->dtype && g->out != BLASD_float32) ||
        (g->dtype == BLASD_float64 && g->out != BLASD_float64) ||
        (g->rounding == BLASD_GPU_FIXED &&
         (!blasd_standin.emulates || g->dtype != BLASD_float64 || g->count != 1 ||
          g->room == nullptr || g->bits == nullptr)))
        return blasd_fail(err, BLASD_E_internal_error, "", "gemm was given arguments that fit not");
    return 0;
}

/* A library rounds in other ways when it is called in other ways: here the last bits of every
 * element tell which way it was. */
static void mark(void *x, int64_t elements, enum blasd_dtype dtype, int64_t way) {
    int64_t parts = elements * blasd_dtype_parts(dtype);
    if (!blasd_standin.ways_differ) return;
    for (int64_t i = 0; i < parts; i++) {
        if (blasd_dtype_part(dtype) == BLASD_float64)
            ((double *)x)[i] *= 1 + 0x1p-50 * (double)way;
        else if (blasd_dtype_part(dtype) == BLASD_float32)
            ((float *)x)[i] *= 1 + 0x1p-21f * (float)way;
    }
}

int blasd_gpu_gemm(struct blasd_gpu_stream *stream, const struct blasd_gpu_gemm *gemm,
                   struct blasd_err *err) {
    struct blasd_gpu_gemm g = *gemm;
    int code = gemm_check(gemm, err);
    if (code != 0) return code;
    blasd_standin_put(stream, [g] {
        int64_t in = (int64_t)blasd_dtype_size(g.dtype), out = (int64_t)blasd_dtype_size(g.out);
        for (int64_t i = 0; i < g.count; i++) {
            char *c = (char *)g.c + i * g.stride_c * out;
            if (g.rounding == BLASD_GPU_FIXED && product_of_integers(g)) continue;
            product(g, (const char *)g.a + i * g.stride_a * in,
                    (const char *)g.b + i * g.stride_b * in, c);
            for (int64_t row = 0; row < g.m; row++)
                mark(c + row * g.ldc * out, g.n, g.out, g.count % 7);
        }
    });
    return 0;
}

static void solve_triangle(const struct blasd_gpu_triangle &t, const void *a, void *b) {
    CBLAS_SIDE side = t.right ? CblasRight : CblasLeft;
    CBLAS_UPLO uplo = t.upper ? CblasUpper : CblasLower;
    CBLAS_DIAG diag = t.unit ? CblasUnit : CblasNonUnit;
    if (t.dtype == BLASD_float64)
        cblas_dtrsm(CblasColMajor, side, uplo, trans_of(t.trans), diag, (int)t.m, (int)t.n, t.alpha,
                    (const double *)a, (int)t.lda, (double *)b, (int)t.ldb);
    else
        cblas_strsm(CblasColMajor, side, uplo, trans_of(t.trans), diag, (int)t.m, (int)t.n,
                    (float)t.alpha, (const float *)a, (int)t.lda, (float *)b, (int)t.ldb);
}

int blasd_gpu_trsm(struct blasd_gpu_stream *stream, const struct blasd_gpu_triangle *triangle,
                   const void *a, void *b, struct blasd_err *err) {
    struct blasd_gpu_triangle t = *triangle;
    FAULT();
    blasd_standin_put(stream, [=] { solve_triangle(t, a, b); });
    return 0;
}

/* LAPACKE is typed: these call the one of the dtype. The *_work forms check for no NaN. */
static int lu(enum blasd_dtype dtype, int m, int n, void *a, int lda, int *pivots) {
    if (dtype == BLASD_float64)
        return LAPACKE_dgetrf_work(LAPACK_COL_MAJOR, m, n, (double *)a, lda, pivots);
    return LAPACKE_sgetrf_work(LAPACK_COL_MAJOR, m, n, (float *)a, lda, pivots);
}
static int lu_solve(enum blasd_dtype dtype, bool trans, int n, int columns, const void *a, int lda,
                    const int *pivots, void *b, int ldb) {
    char t = trans ? 'T' : 'N';
    if (dtype == BLASD_float64)
        return LAPACKE_dgetrs_work(LAPACK_COL_MAJOR, t, n, columns, (const double *)a, lda, pivots,
                                   (double *)b, ldb);
    return LAPACKE_sgetrs_work(LAPACK_COL_MAJOR, t, n, columns, (const float *)a, lda, pivots,
                               (float *)b, ldb);
}
static int cholesky(enum blasd_dtype dtype, bool upper, int n, void *a, int lda) {
    if (dtype == BLASD_float64)
        return LAPACKE_dpotrf_work(LAPACK_COL_MAJOR, triangle(upper), n, (double *)a, lda);
    return LAPACKE_spotrf_work(LAPACK_COL_MAJOR, triangle(upper), n, (float *)a, lda);
}

int blasd_gpu_getrf_pointers(struct blasd_gpu_stream *stream, enum blasd_dtype dtype, int n,
                             void *const *a, int lda, int *pivots, int *info, int count,
                             struct blasd_err *err) {
    FAULT();
    blasd_standin_put(stream, [=] {
        for (int i = 0; i < count; i++) {
            info[i] = lu(dtype, n, n, a[i], lda, pivots + (int64_t)i * n);
            mark(a[i], (int64_t)lda * n, dtype, 3);
        }
    });
    return 0;
}

/* Room that a caller forgot, or made too small, shows as a crash or to a sanitizer. */
static void touch(void *work, size_t bytes) {
    if (bytes > 0) memset(work, 0xff, bytes);
}
static void sizes(enum blasd_dtype dtype, int64_t n, size_t *work, size_t *host_work) {
    *work = (size_t)(n + 7) * blasd_dtype_size(dtype);
    if (host_work != nullptr) *host_work = 24;
}

int blasd_gpu_getrf_size(struct blasd_gpu_stream *, enum blasd_dtype dtype, int64_t, int64_t n,
                         int64_t, size_t *work, size_t *host_work, struct blasd_err *err) {
    FAULT();
    sizes(dtype, n, work, host_work);
    return 0;
}

int blasd_gpu_getrf(struct blasd_gpu_stream *stream, enum blasd_dtype dtype, int64_t m, int64_t n,
                    void *a, int64_t lda, int64_t *pivots, void *work, size_t work_bytes,
                    void *host_work, size_t host_bytes, int *info, struct blasd_err *err) {
    FAULT();
    blasd_standin_put(stream, [=] {
        std::vector<int> narrow((size_t)(m < n ? m : n));
        touch(work, work_bytes);
        touch(host_work, host_bytes);
        *info = lu(dtype, (int)m, (int)n, a, (int)lda, narrow.data());
        for (size_t i = 0; i < narrow.size(); i++) pivots[i] = narrow[i];
    });
    return 0;
}

int blasd_gpu_getrs(struct blasd_gpu_stream *stream, enum blasd_dtype dtype, bool trans, int64_t n,
                    int64_t columns, const void *a, int64_t lda, const int64_t *pivots, void *b,
                    int64_t ldb, int *info, struct blasd_err *err) {
    FAULT();
    blasd_standin_put(stream, [=] {
        std::vector<int> narrow((size_t)n);
        for (size_t i = 0; i < narrow.size(); i++) narrow[i] = (int)pivots[i];
        *info =
            lu_solve(dtype, trans, (int)n, (int)columns, a, (int)lda, narrow.data(), b, (int)ldb);
    });
    return 0;
}

int blasd_gpu_potrf_size(struct blasd_gpu_stream *, enum blasd_dtype dtype, bool, int64_t n,
                         int64_t, size_t *work, size_t *host_work, struct blasd_err *err) {
    FAULT();
    sizes(dtype, n, work, host_work);
    return 0;
}

int blasd_gpu_potrf(struct blasd_gpu_stream *stream, enum blasd_dtype dtype, bool upper, int64_t n,
                    void *a, int64_t lda, void *work, size_t work_bytes, void *host_work,
                    size_t host_bytes, int *info, struct blasd_err *err) {
    FAULT();
    blasd_standin_put(stream, [=] {
        touch(work, work_bytes);
        touch(host_work, host_bytes);
        *info = cholesky(dtype, upper, (int)n, a, (int)lda);
    });
    return 0;
}

int blasd_gpu_potrs(struct blasd_gpu_stream *stream, enum blasd_dtype dtype, bool upper, int64_t n,
                    int64_t columns, const void *a, int64_t lda, void *b, int64_t ldb, int *info,
                    struct blasd_err *err) {
    FAULT();
    blasd_standin_put(stream, [=] {
        if (dtype == BLASD_float64)
            *info = LAPACKE_dpotrs_work(LAPACK_COL_MAJOR, triangle(upper), (int)n, (int)columns,
                                        (const double *)a, (int)lda, (double *)b, (int)ldb);
        else
            *info = LAPACKE_spotrs_work(LAPACK_COL_MAJOR, triangle(upper), (int)n, (int)columns,
                                        (const float *)a, (int)lda, (float *)b, (int)ldb);
    });
    return 0;
}

int blasd_gpu_potrf_pointers(struct blasd_gpu_stream *stream, enum blasd_dtype dtype, bool upper,
                             int n, void *const *a, int lda, int *info, int count,
                             struct blasd_err *err) {
    FAULT();
    blasd_standin_put(stream, [=] {
        for (int i = 0; i < count; i++) {
            info[i] = cholesky(dtype, upper, n, a[i], lda);
            mark(a[i], (int64_t)lda * n, dtype, 3);
        }
    });
    return 0;
}

int blasd_gpu_geqrf_size(struct blasd_gpu_stream *, enum blasd_dtype dtype, int64_t, int64_t n,
                         int64_t, size_t *work, size_t *host_work, struct blasd_err *err) {
    FAULT();
    sizes(dtype, n, work, host_work);
    return 0;
}

int blasd_gpu_geqrf(struct blasd_gpu_stream *stream, enum blasd_dtype dtype, int64_t m, int64_t n,
                    void *a, int64_t lda, void *tau, void *work, size_t work_bytes, void *host_work,
                    size_t host_bytes, int *info, struct blasd_err *err) {
    FAULT();
    blasd_standin_put(stream, [=] {
        touch(work, work_bytes);
        touch(host_work, host_bytes);
        *info = dtype == BLASD_float64 ? LAPACKE_dgeqrf(LAPACK_COL_MAJOR, (int)m, (int)n,
                                                        (double *)a, (int)lda, (double *)tau)
                                       : LAPACKE_sgeqrf(LAPACK_COL_MAJOR, (int)m, (int)n,
                                                        (float *)a, (int)lda, (float *)tau);
    });
    return 0;
}

int blasd_gpu_ormqr_size(struct blasd_gpu_stream *, enum blasd_dtype dtype, bool, int, int n, int,
                         int, int, size_t *work, struct blasd_err *err) {
    FAULT();
    sizes(dtype, n, work, nullptr);
    return 0;
}

int blasd_gpu_ormqr(struct blasd_gpu_stream *stream, enum blasd_dtype dtype, bool trans, int m,
                    int n, int k, const void *a, int lda, const void *tau, void *c, int ldc,
                    void *work, size_t work_bytes, int *info, struct blasd_err *err) {
    char t = trans ? 'T' : 'N';
    FAULT();
    blasd_standin_put(stream, [=] {
        touch(work, work_bytes);
        *info = dtype == BLASD_float64
                    ? LAPACKE_dormqr(LAPACK_COL_MAJOR, 'L', t, m, n, k, (const double *)a, lda,
                                     (const double *)tau, (double *)c, ldc)
                    : LAPACKE_sormqr(LAPACK_COL_MAJOR, 'L', t, m, n, k, (const float *)a, lda,
                                     (const float *)tau, (float *)c, ldc);
    });
    return 0;
}

int blasd_gpu_gesvd_size(struct blasd_gpu_stream *, enum blasd_dtype dtype, int64_t, int64_t n,
                         int64_t, bool, size_t *work, size_t *host_work, struct blasd_err *err) {
    FAULT();
    sizes(dtype, 4 * n, work, host_work);
    return 0;
}

int blasd_gpu_gesvd(struct blasd_gpu_stream *stream, enum blasd_dtype dtype, int64_t m, int64_t n,
                    void *a, int64_t lda, void *s, void *u, int64_t ldu, void *vt, int64_t ldvt,
                    void *work, size_t work_bytes, void *host_work, size_t host_bytes, int *info,
                    struct blasd_err *err) {
    char job = u != nullptr ? 'S' : 'N';
    int left = u != nullptr ? (int)ldu : (int)m, right = u != nullptr ? (int)ldvt : (int)n;
    FAULT();
    if (m < n)
        return blasd_fail(err, BLASD_E_internal_error, "", "gesvd takes no more columns than rows");
    blasd_standin_put(stream, [=] {
        touch(work, work_bytes);
        touch(host_work, host_bytes);
        if (dtype == BLASD_float64) {
            std::vector<double> rest((size_t)n);
            *info =
                LAPACKE_dgesvd(LAPACK_COL_MAJOR, job, job, (int)m, (int)n, (double *)a, (int)lda,
                               (double *)s, (double *)u, left, (double *)vt, right, rest.data());
        } else {
            std::vector<float> rest((size_t)n);
            *info = LAPACKE_sgesvd(LAPACK_COL_MAJOR, job, job, (int)m, (int)n, (float *)a, (int)lda,
                                   (float *)s, (float *)u, left, (float *)vt, right, rest.data());
        }
    });
    return 0;
}
