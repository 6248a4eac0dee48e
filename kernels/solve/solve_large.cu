/* Systems that fill the device by themselves, what engine_body.h does with LAPACK done with
 * cuSOLVER and cuBLAS: the same steps, constants and decisions. Between the steps the host waits,
 * decides, and asks whether to go on. Factors in float32 come first where they may be the faster
 * ones; then all refinement is as ever, and where it does not converge float64 takes over.
 *
 * Symmetric matrices are factored by LU here. Read next: solve_large_kernels.cuh. */
#include "kernels/solve/solve_large.cuh"

extern "C" {
#include "kernels/solve/estimate.h"
#include "kernels/solve/solve_report.h"
}

#include <climits>
#include <cmath>
#include <stdlib.h>
#include <string.h>

#define MIXED_N 4096        /* from here on float32 factors are tried */
#define MIXED_STEPS 20      /* of refinement with them */
#define MIXED_RCOND 0x1p-30 /* below it there is no hope in them */

#define TRY(call)                                                                                  \
    do {                                                                                           \
        int try_code = (call);                                                                     \
        if (try_code != 0) return try_code;                                                        \
    } while (0)

static dim3 spread(const struct solve_large *l, int64_t blocks) {
    int64_t most = 32 * (int64_t)l->job->facts->units;
    return dim3((unsigned)(blocks < 1 ? 1 : blocks < most ? blocks : most));
}
static double unit_of(const struct solve_large *l) {
    return l->single ? 0x1p-24 : 0x1p-53;
}
static double safe_of(const struct solve_large *l) {
    return l->single ? 0x1p40 : 0x1p200;
}
static size_t size_of_type(const struct solve_large *l) {
    return l->single ? sizeof(float) : sizeof(double);
}
static const int *rows_scaled(const struct solve_large *l) {
    return l->state.scaled ? l->scales : nullptr;
}
static const int *columns_scaled(const struct solve_large *l) {
    return l->state.scaled ? l->scales + l->n : nullptr;
}

#define OF(T, pointer) static_cast<T *>(pointer)
/* Launches the kernel of the system's precision that takes n and the matrix first. */
#define LAUNCH_MATRIX(l, kernel, blocks, err, ...)                                                 \
    ((l)->single ? blasd_launch(kernel<float>, spread(l, blocks), dim3(256), 0, (l)->job->stream,  \
                                err, (l)->n, OF(float, (l)->matrix), __VA_ARGS__)                  \
                 : blasd_launch(kernel<double>, spread(l, blocks), dim3(256), 0, (l)->job->stream, \
                                err, (l)->n, OF(double, (l)->matrix), __VA_ARGS__))

/* ---- between host and device ---- */

static int bring_back(struct solve_large *l, void *host, const void *device, size_t bytes,
                      struct blasd_err *err) {
    TRY(l->job->calls->copy_down(l->job->stream, l->pinned, device, bytes, err));
    TRY(l->job->calls->stream_wait(l->job->stream, err));
    memcpy(host, l->pinned, bytes);
    return 0;
}
/* The stream must have come past what was sent last. */
static int send_over(struct solve_large *l, void *device, const void *host, size_t bytes,
                     struct blasd_err *err) {
    TRY(l->job->calls->stream_wait(l->job->stream, err));
    memcpy(l->pinned, host, bytes);
    return l->job->calls->copy_up(l->job->stream, device, l->pinned, bytes, err);
}
static int go_on(struct solve_large *l, double share, struct blasd_err *err) {
    double all = (double)l->batch.total;
    if (!blasd_cuda_go_on(l->job, ((double)l->system + share) / all))
        return blasd_cuda_stopped(err);
    return 0;
}

/* ---- scaling ---- */

static bool balanced(const struct solve_large *l, const double *most) {
    double least = INFINITY, greatest = 0;
    for (int i = 0; i < l->n; i++) {
        if (most[i] == 0) continue;
        least = most[i] < least ? most[i] : least;
        greatest = most[i] > greatest ? most[i] : greatest;
    }
    return greatest == 0 ||
           (least >= greatest * 0x1p-8 && greatest < safe_of(l) && least > 1 / safe_of(l));
}
static int exponent_on_host(double x) {
    int exponent = 0;
    (void)frexp(x, &exponent);
    return exponent;
}
static bool is_symmetric(const struct solve_large *l) {
    return l->batch.shape.assume == BLASD_ASSUME_SYMMETRIC ||
           l->batch.shape.assume == BLASD_ASSUME_POSITIVE_DEFINITE;
}

/* On the device: the largest of rows, sums of rows, largest of columns, sums of columns. */
template <class T>
static int measure_as(struct solve_large *l, int e, const int *row_scale, struct blasd_err *err) {
    const T *a = OF(const T, l->matrix);
    int n = l->n;
    double *sizes = l->sizes;
    TRY(blasd_launch(large_rows<T>, spread(l, (n + 63) / 64), dim3(64), 0, l->job->stream, err, n,
                     a, e, sizes, sizes + n));
    return blasd_launch(large_columns<T>, spread(l, (n + 7) / 8), dim3(256), 0, l->job->stream, err,
                        n, a, e, row_scale, sizes + 2 * n, sizes + 3 * n, l->scales + n);
}
static int measure(struct solve_large *l, int e, const int *row_scale, struct blasd_err *err) {
    return l->single ? measure_as<float>(l, e, row_scale, err)
                     : measure_as<double>(l, e, row_scale, err);
}
/* Downloads one of the four. */
static int size_row(struct solve_large *l, int which, double *to, struct blasd_err *err) {
    size_t n = (size_t)l->n;
    return bring_back(l, to, l->sizes + (size_t)which * n, n * sizeof *to, err);
}
static int most_of_sums(struct solve_large *l, int e, struct blasd_err *err) {
    double row = 0, column = 0;
    TRY(size_row(l, 1, l->v, err));
    TRY(size_row(l, 3, l->sign, err));
    for (int i = 0; i < l->n; i++) {
        row = l->v[i] > row ? l->v[i] : row;
        column = l->sign[i] > column ? l->sign[i] : column;
    }
    l->norm_inf = ldexpl(row, e);
    l->norm_1 = ldexpl(column, e);
    return 0;
}

static int diagonal(struct solve_large *l, double *to, struct blasd_err *err) {
    TRY(LAUNCH_MATRIX(l, large_diagonal, (l->n + 255) / 256, err, l->sizes));
    return size_row(l, 0, to, err);
}

/* Chooses the scales from the largest elements (of rows, in v) and applies them. */
static int scale(struct solve_large *l, struct blasd_err *err) {
    bool definite = l->batch.shape.assume == BLASD_ASSUME_POSITIVE_DEFINITE;
    size_t bytes = (size_t)l->n * sizeof(int);
    double greatest = 0;
    int n = l->n, e;
    for (int i = 0; i < n; i++) greatest = l->v[i] > greatest ? l->v[i] : greatest;
    e = exponent_on_host(greatest);
    if (definite) TRY(diagonal(l, l->sign, err));
    for (int i = 0; i < n; i++) {
        double most = definite && l->sign[i] > 0 ? l->sign[i] : l->v[i];
        int own = most == 0 ? 0 : exponent_on_host(most);
        l->row_scale[i] = is_symmetric(l) ? -(own / 2) : -own;
    }
    TRY(send_over(l, l->scales, l->row_scale, bytes, err));
    TRY(measure(l, e, l->scales, err)); /* leaves the columns' exponents where their scales go */
    TRY(most_of_sums(l, e, err));
    TRY(bring_back(l, l->column_scale, l->scales + n, bytes, err));
    for (int j = 0; j < n; j++) {
        int most = l->column_scale[j];
        l->column_scale[j] = is_symmetric(l) ? l->row_scale[j] : most == -100000 ? 0 : -most;
    }
    TRY(send_over(l, l->scales + n, l->column_scale, bytes, err));
    l->state.scaled = true;
    return LAUNCH_MATRIX(l, large_scale, (int64_t)n * n / 256, err, l->scales, l->scales + n);
}

/* The job's matrix, scaled, and its norms. */
static int load(struct solve_large *l, struct blasd_err *err) {
    int64_t tiles = ((int64_t)l->n + 31) / 32;
    bool rows, columns;
    int unsymmetric = 0;
    memset(&l->state, 0, sizeof l->state);
    l->state.singular = true;
    TRY(l->job->calls->fill(l->job->stream, l->unsymmetric, 0, sizeof(int), err));
    TRY(l->single ? blasd_launch(large_load<float>, spread(l, tiles * tiles), dim3(256), 0,
                                 l->job->stream, err, l->batch.shape, OF(const float, l->a),
                                 OF(float, l->matrix), l->unsymmetric)
                  : blasd_launch(large_load<double>, spread(l, tiles * tiles), dim3(256), 0,
                                 l->job->stream, err, l->batch.shape, OF(const double, l->a),
                                 OF(double, l->matrix), l->unsymmetric));
    TRY(measure(l, 0, nullptr, err));
    TRY(bring_back(l, &unsymmetric, l->unsymmetric, sizeof unsymmetric, err));
    l->state.unsymmetric = unsymmetric;
    TRY(most_of_sums(l, 0, err));
    TRY(size_row(l, 2, l->sign, err));
    TRY(size_row(l, 0, l->v, err));
    rows = balanced(l, l->v);
    columns = balanced(l, l->sign);
    return rows && columns ? 0 : scale(l, err);
}

/* ---- factors ---- */

static int copy_matrix(struct solve_large *l, struct blasd_err *err) {
    size_t bytes = (size_t)l->n * (size_t)l->n * size_of_type(l);
    l->narrow = false;
    return l->job->calls->copy_within(l->job->stream, l->factors, l->matrix, bytes, err);
}
static int call_getrf(struct solve_large *l, enum blasd_dtype dtype, struct blasd_err *err) {
    TRY(l->job->calls->getrf(l->job->stream, dtype, l->n, l->n, l->factors, l->n, l->pivots,
                             l->work, l->work_bytes, l->host_work, l->host_bytes, l->info, err));
    return bring_back(l, &l->state.info, l->info, sizeof(int), err);
}
static int factor_lu_wide(struct solve_large *l, struct blasd_err *err) {
    l->state.method = BLASD_SOLVED_LU;
    TRY(copy_matrix(l, err));
    return call_getrf(l, l->dtype, err);
}
/* The largest element of a matrix, or of its upper triangle. */
template <class T>
static int most_of(struct solve_large *l, const void *a, bool upper, double *ret,
                   struct blasd_err *err) {
    TRY(l->job->calls->fill(l->job->stream, l->most, 0, sizeof *l->most, err));
    TRY(blasd_launch(large_most<T>, spread(l, (int64_t)l->n * l->n / 256), dim3(256), 0,
                     l->job->stream, err, l->n, OF(const T, a), (int)upper, l->most));
    return bring_back(l, ret, l->most, sizeof *ret, err);
}
static int factor_lu_narrow(struct solve_large *l, struct blasd_err *err) {
    double most = 0;
    int64_t all = (int64_t)l->n * l->n;
    TRY(most_of<double>(l, l->matrix, false, &most, err));
    l->narrow_exponent = exponent_on_host(most);
    l->narrow = true;
    l->state.method = BLASD_SOLVED_LU;
    TRY(blasd_launch(large_narrow<double>, spread(l, all / 256), dim3(256), 0, l->job->stream, err,
                     all, OF(const double, l->matrix), OF(float, l->factors), l->narrow_exponent));
    return call_getrf(l, BLASD_float32, err);
}
static int factor_cholesky_large(struct solve_large *l, struct blasd_err *err) {
    int minor;
    l->state.method = BLASD_SOLVED_CHOLESKY;
    TRY(copy_matrix(l, err));
    TRY(l->job->calls->potrf(l->job->stream, l->dtype, false, l->n, l->factors, l->n, l->work,
                             l->work_bytes, l->host_work, l->host_bytes, l->info, err));
    TRY(bring_back(l, &l->state.info, l->info, sizeof(int), err));
    minor = l->state.info;
    if (minor == 0) return 0;
    TRY(factor_lu_wide(l, err)); /* singular only if LU says so too */
    l->state.singular = l->state.info != 0;
    l->state.info = minor;
    return 0;
}
static int factor_triangle(struct solve_large *l, struct blasd_err *err) {
    l->state.method = BLASD_SOLVED_TRIANGULAR;
    TRY(diagonal(l, l->v, err));
    for (int i = 0; i < l->n && l->state.info == 0; i++)
        if (l->v[i] == 0) l->state.info = i + 1;
    return copy_matrix(l, err);
}
static int factor_qr_large(struct solve_large *l, bool *good, struct blasd_err *err) {
    l->state.method = BLASD_SOLVED_QR;
    TRY(copy_matrix(l, err));
    TRY(l->job->calls->geqrf(l->job->stream, l->dtype, l->n, l->n, l->factors, l->n, l->tau,
                             l->work, l->work_bytes, l->host_work, l->host_bytes, l->info, err));
    *good = true; /* a zero in R makes what follows infinite, which is not kept */
    return 0;
}

static struct blasd_gpu_triangle triangle_of(const struct solve_large *l, int k, bool upper,
                                             bool trans) {
    struct blasd_gpu_triangle t = {};
    t.dtype = l->dtype;
    t.upper = upper;
    t.trans = trans;
    t.m = l->n;
    t.n = k;
    t.alpha = 1;
    t.lda = t.ldb = l->n;
    return t;
}
static int apply_qr_large(struct solve_large *l, void *x, int k, bool transposed,
                          struct blasd_err *err) {
    struct blasd_gpu_triangle t = triangle_of(l, k, true, transposed);
    const struct blasd_gpu_library *calls = l->job->calls;
    if (transposed) TRY(calls->trsm(l->job->stream, &t, l->factors, x, err));
    TRY(calls->ormqr(l->job->stream, l->dtype, !transposed, l->n, k, l->n, l->factors, l->n, l->tau,
                     x, l->n, l->work, l->work_bytes, l->info, err));
    return transposed ? 0 : calls->trsm(l->job->stream, &t, l->factors, x, err);
}
/* By way of `keep`, with columns brought into float32's range. */
static int apply_narrow(struct solve_large *l, double *x, int k, bool transposed,
                        struct blasd_err *err) {
    float *narrow = OF(float, l->keep);
    int64_t all = (int64_t)l->n * k;
    TRY(blasd_launch(large_narrow_columns<double>, dim3((unsigned)k), dim3(256), 0, l->job->stream,
                     err, l->n, k, x, narrow, l->small));
    TRY(l->job->calls->getrs(l->job->stream, BLASD_float32, transposed, l->n, k, l->factors, l->n,
                             l->pivots, narrow, l->n, l->info, err));
    return blasd_launch(large_widen_columns<double>, spread(l, all / 256), dim3(256), 0,
                        l->job->stream, err, l->n, k, narrow, x, l->small, l->narrow_exponent);
}
/* x := inverse(factors) x for k columns, or with the transposed inverse. */
static int apply(struct solve_large *l, void *x, int k, bool transposed, struct blasd_err *err) {
    struct blasd_gpu_triangle t;
    switch (l->state.method) {
    case BLASD_SOLVED_LU:
        if (l->narrow) return apply_narrow(l, OF(double, x), k, transposed, err);
        return l->job->calls->getrs(l->job->stream, l->dtype, transposed, l->n, k, l->factors, l->n,
                                    l->pivots, x, l->n, l->info, err);
    case BLASD_SOLVED_CHOLESKY:
        return l->job->calls->potrs(l->job->stream, l->dtype, false, l->n, k, l->factors, l->n, x,
                                    l->n, l->info, err);
    case BLASD_SOLVED_TRIANGULAR:
        t = triangle_of(l, k, l->batch.shape.assume == BLASD_ASSUME_UPPER_TRIANGULAR, transposed);
        return l->job->calls->trsm(l->job->stream, &t, l->factors, x, err);
    default: return apply_qr_large(l, x, k, transposed, err);
    }
}

/* ---- condition ---- */

static int norm_exponent(const struct solve_large *l) {
    int exponent = 0;
    (void)frexpl(l->norm_1, &exponent);
    return exponent;
}

/* r = b - A x, or with A', for k columns, in working precision. */
static int residual_by_product(struct solve_large *l, int k, bool transposed,
                               struct blasd_err *err) {
    size_t bytes = (size_t)l->n * (size_t)k * size_of_type(l);
    struct blasd_gpu_gemm g = {};
    TRY(l->job->calls->copy_within(l->job->stream, l->r, l->b, bytes, err));
    /* column-major r = b - A x is row-major r' = b' - x' A', and the memory is the same */
    g.dtype = g.out = l->dtype;
    g.trans_b = transposed;
    g.m = k;
    g.n = g.k = g.lda = g.ldb = g.ldc = l->n;
    g.alpha = -1;
    g.beta = 1;
    g.count = 1;
    g.a = l->x;
    g.b = l->matrix;
    g.c = l->r;
    return l->job->calls->gemm(l->job->stream, &g, err);
}

/* d := inverse(A) d in float64 by float32 factors, refined once: their own error would show in the
 * condition. Uses x, b and r. */
static int apply_refined(struct solve_large *l, bool transposed, struct blasd_err *err) {
    const struct blasd_gpu_library *calls = l->job->calls;
    size_t bytes = (size_t)l->n * sizeof(double);
    struct large_mask first = {{1}};
    TRY(calls->copy_within(l->job->stream, l->b, l->d, bytes, err));
    TRY(apply(l, l->d, 1, transposed, err));
    TRY(calls->copy_within(l->job->stream, l->x, l->d, bytes, err));
    TRY(residual_by_product(l, 1, transposed, err));
    TRY(apply(l, l->r, 1, transposed, err));
    TRY(blasd_launch(large_step<double>, spread(l, l->n / 256), dim3(256), 0, l->job->stream, err,
                     l->n, 1, OF(double, l->d), OF(double, l->r), first, 0));
    return 0;
}

template <class T>
static int apply_to_vector(struct solve_large *l, double *v, bool transposed,
                           struct blasd_err *err) {
    const int *before = transposed ? l->column_scale : l->row_scale;
    const int *after = transposed ? l->row_scale : l->column_scale;
    T *x = OF(T, l->pinned);
    size_t bytes = (size_t)l->n * sizeof(T);
    bool scaled = l->state.scaled;
    int most = INT_MIN, shift;
    for (int i = 0; scaled && i < l->n; i++)
        if (v[i] != 0 && exponent_on_host(v[i]) + before[i] > most)
            most = exponent_on_host(v[i]) + before[i];
    if (most == INT_MIN) most = 0;
    TRY(l->job->calls->stream_wait(l->job->stream, err)); /* pinned memory may be on its way */
    for (int i = 0; i < l->n; i++) x[i] = (T)(scaled ? ldexp(v[i], before[i] - most) : v[i]);
    TRY(l->job->calls->copy_up(l->job->stream, l->d, x, bytes, err));
    TRY(l->narrow ? apply_refined(l, transposed, err) : apply(l, l->d, 1, transposed, err));
    TRY(l->job->calls->copy_down(l->job->stream, x, l->d, bytes, err));
    TRY(l->job->calls->stream_wait(l->job->stream, err));
    shift = most + norm_exponent(l);
    for (int i = 0; i < l->n; i++)
        v[i] = scaled ? ldexp((double)x[i], after[i] + shift) : (double)x[i];
    return 0;
}
struct callback {
    struct solve_large *l;
    struct blasd_err *err;
};
static bool apply_back(void *arg, double *v, bool transposed) {
    struct callback *callback = static_cast<struct callback *>(arg);
    struct solve_large *l = callback->l;
    l->code = l->single ? apply_to_vector<float>(l, v, transposed, callback->err)
                        : apply_to_vector<double>(l, v, transposed, callback->err);
    if (l->code == 0) l->code = go_on(l, 0.8, callback->err);
    return l->code == 0;
}
static int growth(struct solve_large *l, double *ret, struct blasd_err *err) {
    double own = 0, factor = 0;
    *ret = 1;
    if (l->state.method != BLASD_SOLVED_LU) return 0;
    TRY(l->single ? most_of<float>(l, l->matrix, false, &own, err)
                  : most_of<double>(l, l->matrix, false, &own, err));
    TRY(l->single || l->narrow ? most_of<float>(l, l->factors, true, &factor, err)
                               : most_of<double>(l, l->factors, true, &factor, err));
    if (l->narrow) factor = ldexp(factor, l->narrow_exponent);
    if (factor > own) *ret = factor / own;
    return 0;
}
static int estimate(struct solve_large *l, struct blasd_err *err) {
    struct callback callback = {l, err};
    double inverse, by = 1;
    long double norm, rcond;
    l->code = 0;
    inverse = blasd_norm_inverse(l->n, l->v, l->sign, apply_back, &callback);
    TRY(l->code);
    norm = l->state.scaled ? ldexpl(l->norm_1, -norm_exponent(l)) : l->norm_1;
    rcond = 1 / (long double)inverse / norm;
    l->state.rcond = rcond <= 1 ? (double)rcond : rcond > 1 ? 1 : 0;
    TRY(growth(l, &by, err));
    l->state.contraction = 4 * (l->narrow ? 0x1p-24 : unit_of(l)) * by / l->state.rcond;
    return 0;
}

static int factor(struct solve_large *l, struct blasd_err *err) {
    switch (l->batch.shape.assume) {
    case BLASD_ASSUME_GENERAL:
    case BLASD_ASSUME_SYMMETRIC: return factor_lu_wide(l, err);
    case BLASD_ASSUME_POSITIVE_DEFINITE: return factor_cholesky_large(l, err);
    default: return factor_triangle(l, err);
    }
}
/* Factors and condition; `mix`: by float32, if that serves. */
static int factor_and_estimate(struct solve_large *l, bool mix, struct blasd_err *err) {
    TRY(go_on(l, 0.05, err));
    l->state.info = 0;
    if (mix) {
        TRY(factor_lu_narrow(l, err));
        if (l->state.info == 0) TRY(estimate(l, err));
        /* that of a matrix before scaling says nothing of the one that is solved */
        if (l->state.info == 0 && (l->state.scaled || l->state.rcond >= MIXED_RCOND)) return 0;
        l->state.info = 0;
        TRY(go_on(l, 0.3, err));
    }
    TRY(factor(l, err));
    TRY(go_on(l, 0.7, err));
    return l->state.info == 0 ? estimate(l, err) : 0;
}

/* ---- right-hand sides ---- */

template <class T>
static int load_block(struct solve_large *l, struct large_block *block, const T *b,
                      struct blasd_err *err) {
    struct large_column *columns = OF(struct large_column, l->pinned);
    double safe = safe_of(l);
    int k = block->k;
    int64_t all = (int64_t)l->n * k;
    b += block->first * l->batch.shape.b_column;
    TRY(blasd_launch(large_measure_b<T>, dim3((unsigned)k), dim3(256), 0, l->job->stream, err,
                     l->batch.shape, b, k, rows_scaled(l), l->columns));
    TRY(l->job->calls->copy_down(l->job->stream, columns, l->columns, (size_t)k * sizeof *columns,
                                 err));
    TRY(l->job->calls->stream_wait(l->job->stream, err));
    for (int c = 0; c < k; c++) {
        double most = columns[c].b_most;
        bool plain = !l->state.scaled && most < safe && (most > 1 / safe || most == 0);
        block->exponent[c] = plain ? 0 : columns[c].b_exponent;
        block->norm_b[c] = ldexpl((long double)most, -block->exponent[c]);
    }
    TRY(send_over(l, l->small, block->exponent, (size_t)k * sizeof(int), err));
    return blasd_launch(large_load_b<T>, spread(l, all / 256), dim3(256), 0, l->job->stream, err,
                        l->batch.shape, b, k, rows_scaled(l), l->small, OF(T, l->b));
}
template <class T>
static int store_block(struct solve_large *l, const struct large_block *block, T *x,
                       struct blasd_err *err) {
    int64_t all = (int64_t)l->n * block->k;
    TRY(send_over(l, l->small, block->exponent, (size_t)block->k * sizeof(int), err));
    return blasd_launch(large_store_x<T>, spread(l, all / 256), dim3(256), 0, l->job->stream, err,
                        l->batch.shape, OF(const T, l->x), block->k, columns_scaled(l), l->small,
                        x + block->first);
}

template <class T>
static int residual_extended(struct solve_large *l, int k, struct blasd_err *err) {
    int64_t n = l->n;
    unsigned rows = (unsigned)((n + 127) / 128);
    for (int c = 0; c < k; c += LARGE_TOGETHER) {
        unsigned wide = (unsigned)(k - c < LARGE_TOGETHER ? k - c : LARGE_TOGETHER);
        TRY(blasd_launch(large_residual_parts<T>, dim3(rows, (unsigned)l->parts, wide), dim3(128),
                         0, l->job->stream, err, l->n, OF(const T, l->matrix),
                         OF(const T, l->x) + c * n, l->parts, l->pairs));
        TRY(blasd_launch(large_residual_sum<T>, dim3(rows, 1, wide), dim3(128), 0, l->job->stream,
                         err, l->n, OF(const T, l->b) + c * n, l->parts, l->pairs,
                         OF(T, l->r) + c * n));
    }
    return 0;
}
static int residuals(struct solve_large *l, const struct large_block *block,
                     struct blasd_err *err) {
    if (!block->extended) return residual_by_product(l, block->k, false, err);
    return l->single ? residual_extended<float>(l, block->k, err)
                     : residual_extended<double>(l, block->k, err);
}

/* Sizes of x, r and d of each column, into pinned memory. */
static int sizes_of(struct solve_large *l, int k, struct blasd_err *err) {
    TRY(l->single
            ? blasd_launch(large_measure<float>, dim3((unsigned)k), dim3(256), 0, l->job->stream,
                           err, l->n, k, OF(const float, l->x), OF(const float, l->r),
                           OF(const float, l->d), rows_scaled(l), columns_scaled(l), l->columns)
            : blasd_launch(large_measure<double>, dim3((unsigned)k), dim3(256), 0, l->job->stream,
                           err, l->n, k, OF(const double, l->x), OF(const double, l->r),
                           OF(const double, l->d), rows_scaled(l), columns_scaled(l), l->columns));
    TRY(l->job->calls->copy_down(l->job->stream, l->pinned, l->columns,
                                 (size_t)k * sizeof(struct large_column), err));
    return l->job->calls->stream_wait(l->job->stream, err);
}
static double error_of(const struct solve_large *l, const struct large_column *c,
                       long double norm_b) {
    long double x = ldexpl(c->x.m, c->x.e), r = ldexpl(c->r.m, c->r.e), below;
    if ((c->bad & 1) != 0) return INFINITY;
    below = l->norm_inf * x + norm_b;
    return below > 0 ? (double)(r / below) : 0;
}
static int move(struct solve_large *l, int k, const struct large_mask *mask, bool back,
                struct blasd_err *err) {
    dim3 grid = spread(l, (int64_t)l->n * k / 256);
    return l->single ? blasd_launch(large_step<float>, grid, dim3(256), 0, l->job->stream, err,
                                    l->n, k, OF(float, l->x), OF(float, l->d), *mask, (int)back)
                     : blasd_launch(large_step<double>, grid, dim3(256), 0, l->job->stream, err,
                                    l->n, k, OF(double, l->x), OF(double, l->d), *mask, (int)back);
}

/* What a step has brought for column c: false: less than nothing. */
static bool judge(const struct solve_large *l, struct large_block *block, int c, int step,
                  double error, double size) {
    const double u = unit_of(l);
    double ratio = size / block->last[c];
    if (!(error < block->error[c] || (block->extended && error <= 2 * u))) {
        block->done[c] = true;
        return false;
    }
    block->error[c] = error;
    block->steps[c] = step;
    block->last[c] = size;
    /* what the condition allows is far above what float32 factors do: there only the first step,
     * which may have been small by luck, is not taken at its word */
    if (step == 1 || (!l->narrow && ratio < l->state.contraction))
        ratio = fmax(ratio, fmin(l->state.contraction, 0.5));
    block->converged[c] = error <= 2 * u && size * ratio <= u / 4;
    block->done[c] = block->converged[c] || !(ratio <= 0.5);
    return true;
}

/* One step of refinement of the columns that are not done. */
static int refine_once(struct solve_large *l, struct large_block *block, int step,
                       struct blasd_err *err) {
    size_t bytes = (size_t)l->n * (size_t)block->k * size_of_type(l);
    const struct large_column *sizes = OF(const struct large_column, l->pinned);
    struct large_mask tried = {}, back = {};
    double corrections[LARGE_COLUMNS];
    bool any = false;
    TRY(l->job->calls->copy_within(l->job->stream, l->d, l->r, bytes, err));
    TRY(apply(l, l->d, block->k, false, err));
    TRY(sizes_of(l, block->k, err));
    for (int c = 0; c < block->k; c++) {
        corrections[c] = (sizes[c].bad & 2) != 0 ? INFINITY : sizes[c].d_most / sizes[c].x_most;
        if (!block->done[c]) tried.bits[c / 64] |= UINT64_C(1) << c % 64;
    }
    TRY(move(l, block->k, &tried, false, err));
    TRY(residuals(l, block, err));
    TRY(sizes_of(l, block->k, err));
    for (int c = 0; c < block->k; c++) {
        double error = error_of(l, &sizes[c], block->norm_b[c]);
        if (block->done[c] || judge(l, block, c, step, error, corrections[c])) continue;
        back.bits[c / 64] |= UINT64_C(1) << c % 64;
        any = true;
    }
    return any ? move(l, block->k, &back, true, err) : 0;
}

/* Solves a block with the factors at hand and refines it. */
static int solve_block(struct solve_large *l, struct large_block *block, struct blasd_err *err) {
    size_t bytes = (size_t)l->n * (size_t)block->k * size_of_type(l);
    const struct large_column *sizes = OF(const struct large_column, l->pinned);
    int most = l->batch.shape.refinement == BLASD_REFINE_NONE ? 0
               : l->narrow                                    ? MIXED_STEPS
               : block->extended                              ? SOLVE_STEPS
                                                              : 1;
    bool all = true;
    TRY(l->job->calls->copy_within(l->job->stream, l->x, l->b, bytes, err));
    TRY(apply(l, l->x, block->k, false, err));
    TRY(residuals(l, block, err));
    TRY(l->job->calls->copy_within(l->job->stream, l->d, l->r, bytes, err));
    TRY(sizes_of(l, block->k, err));
    for (int c = 0; c < block->k; c++) {
        block->error[c] = error_of(l, &sizes[c], block->norm_b[c]);
        block->steps[c] = 0;
        block->last[c] = 1;
        block->converged[c] = block->error[c] == 0;
        block->done[c] = block->converged[c] || !std::isfinite(block->error[c]);
        all = all && block->done[c];
    }
    for (int step = 1; step <= most && !all; step++) {
        TRY(go_on(l, 0.9, err));
        TRY(refine_once(l, block, step, err));
        all = true;
        for (int c = 0; c < block->k; c++) all = all && block->done[c];
    }
    return 0;
}

/* Whether what was reached is what refinement reaches, unless the factors are bad. */
static bool good_enough(const struct solve_large *l, const struct large_block *block) {
    double u = unit_of(l), bound = block->extended ? 3 * u : (8 + (double)l->n / 2) * u;
    if (l->batch.shape.refinement == BLASD_REFINE_NONE || l->state.method == BLASD_SOLVED_QR)
        return true;
    for (int c = 0; c < block->k; c++) {
        if (!(block->error[c] <= bound)) return false;
        if (block->extended && l->state.method == BLASD_SOLVED_LU && block->steps[c] > 0 &&
            (l->narrow ? !block->converged[c]
                       : l->state.rcond > 32 * l->n * u &&
                             (!block->converged[c] || l->state.contraction > 0.1)))
            return false;
    }
    return true;
}
static double worst_of(const struct large_block *block) {
    double worst = 0;
    for (int c = 0; c < block->k; c++)
        if (!(block->error[c] <= worst)) worst = block->error[c];
    return worst;
}

/* Tries again with QR; keeps whichever is better, for this block and those that follow. */
static int solve_by_qr(struct solve_large *l, struct large_block *block, struct large_block *second,
                       struct blasd_err *err) {
    size_t bytes = (size_t)l->n * (size_t)block->k * size_of_type(l);
    struct solve_matrix before = l->state;
    bool good = false;
    *second = *block;
    TRY(l->job->calls->copy_within(l->job->stream, l->keep, l->x, bytes, err));
    TRY(factor_qr_large(l, &good, err));
    if (good) TRY(solve_block(l, second, err));
    if (good && worst_of(second) <= fmax(worst_of(block), 2 * unit_of(l))) {
        *block = *second;
        return estimate(l, err);
    }
    TRY(l->job->calls->copy_within(l->job->stream, l->x, l->keep, bytes, err));
    l->state = before;
    l->a = nullptr; /* the factors are QR's, perhaps in part */
    return 0;
}

/* ---- systems ---- */

/* A block of columns to its end. */
template <class T>
static int run_block(struct solve_large *l, struct large_block *block, const T *b, T *x,
                     struct blasd_err *err) {
    TRY(load_block<T>(l, block, b, err));
    TRY(solve_block(l, block, err));
    if (l->narrow && !good_enough(l, block)) {
        TRY(factor_and_estimate(l, false, err));
        if (l->state.info == 0) TRY(solve_block(l, block, err));
    }
    if (l->state.info == 0 && !good_enough(l, block)) {
        int code = solve_by_qr(l, block, block + 1, err);
        if (code != 0) return code;
    }
    return store_block<T>(l, block, x, err);
}

template <class T>
static int run_columns(struct solve_large *l, const T *a, const T *b, T *x,
                       struct solve_outcome *outcome, struct blasd_err *err) {
    struct large_block *block = l->blocks;
    int columns = l->batch.shape.columns;
    *outcome = {0, l->state.rcond, 0, l->state.method};
    for (int first = 0; first < columns && l->state.info == 0; first += l->block) {
        if (l->a == nullptr) {
            TRY(factor_and_estimate(l, false, err));
            l->a = a;
        }
        memset(block, 0, sizeof *block);
        block->first = first;
        block->k = columns - first < l->block ? columns - first : l->block;
        block->extended = l->batch.shape.extended;
        TRY(run_block<T>(l, block, b, x, err));
        for (int c = 0; c < block->k; c++) {
            if (!(block->error[c] <= outcome->error)) outcome->error = block->error[c];
            if (block->steps[c] > outcome->steps) outcome->steps = block->steps[c];
        }
        if (outcome->method != BLASD_SOLVED_QR) outcome->method = l->state.method;
        outcome->rcond = l->state.rcond;
        TRY(go_on(l, 0.9 + 0.1 * (first + block->k) / columns, err));
    }
    return 0;
}

/* As in matrix_of and its kind, on the host. */
static int64_t step_to(const struct solve_batch *batch, const int64_t *steps, int64_t at) {
    int64_t sum = 0;
    for (int d = batch->walk_rank - 1; d >= 0; d--) {
        sum += at % batch->walk[d] * steps[d];
        at /= batch->walk[d];
    }
    return sum;
}

template <class T>
static int run_system(struct solve_large *l, int64_t system, struct blasd_err *err) {
    const struct solve_batch *batch = &l->batch;
    int64_t task = system / batch->items, at = system % batch->items, n = l->n;
    int64_t each = n * batch->shape.columns;
    const T *a = OF(const T, (void *)(batch->a.base + task * batch->a.step)) +
                 step_to(batch, batch->walk_a, at) * n * n;
    const T *b = OF(const T, (void *)(batch->b.base + task * batch->b.step)) +
                 step_to(batch, batch->walk_b, at) * each;
    T *x = OF(T, (void *)(batch->x.base + task * batch->x.step)) + at * each;
    bool mix = l->mixes;
    struct solve_outcome outcome = {};
    l->system = system;
    if (l->a != a) {
        l->a = a;
        TRY(go_on(l, 0, err));
        TRY(load(l, err));
        TRY(factor_and_estimate(l, mix, err));
    }
    TRY(run_columns<T>(l, a, b, x, &outcome, err));
    l->was_narrow = l->was_narrow || (l->narrow && l->state.info == 0);
    if (l->state.info != 0)
        TRY(blasd_launch(large_refuse<T>, spread(l, each / 256), dim3(256), 0, l->job->stream, err,
                         batch->shape, x));
    TRY(blasd_launch(large_report<T>, dim3(1), dim3(1), 0, l->job->stream, err, *batch, system,
                     l->state, outcome));
    /* the next system with this matrix begins as this one did, not with QR */
    if (l->state.method == BLASD_SOLVED_QR) l->a = nullptr;
    return 0;
}

int solve_large_compute(struct blasd_cuda_job *job, struct solve_large *l, struct blasd_err *err) {
    struct blasd_err ignored;
    int code;
    l->job = job;
    code = job->calls->host_alloc(job->gpu, l->pinned_bytes, &l->pinned, err);
    if (code != 0) return code;
    for (int64_t s = 0; code == 0 && s < l->batch.total; s++)
        code = l->single ? run_system<float>(l, s, err) : run_system<double>(l, s, err);
    (void)job->calls->stream_wait(job->stream, &ignored);
    job->calls->host_free(job->gpu, l->pinned);
    l->pinned = nullptr;
    return code;
}

const char *solve_large_name(const struct solve_large *l) {
    return l->was_narrow ? "lu, factors in float32" : nullptr;
}

/* ---- memory ---- */

static bool wants_mixed(const struct solve_large *l) {
    const char *from = getenv("BLASD_SOLVE_MIXED");
    long least = from != nullptr ? strtol(from, nullptr, 10) : MIXED_N;
    return !l->single && l->batch.shape.assume == BLASD_ASSUME_GENERAL &&
           l->batch.shape.refinement != BLASD_REFINE_NONE && l->batch.shape.extended && least > 0 &&
           l->n >= least;
}

static int find_work(struct solve_large *l, struct blasd_err *err) {
    const struct blasd_gpu_library *calls = l->job->calls;
    struct blasd_gpu_stream *stream = l->job->stream;
    int n = l->n;
    size_t work = 0, host = 0;
    struct {
        int asked;
        enum blasd_dtype dtype;
    } factors[2] = {{1, l->dtype}, {l->mixes, BLASD_float32}};
#define LARGEST()                                                                                  \
    do {                                                                                           \
        l->work_bytes = work > l->work_bytes ? work : l->work_bytes;                               \
        l->host_bytes = host > l->host_bytes ? host : l->host_bytes;                               \
    } while (0)
    for (int i = 0; i < 2; i++) {
        if (!factors[i].asked) continue;
        TRY(calls->getrf_size(stream, factors[i].dtype, n, n, n, &work, &host, err));
        LARGEST();
    }
    TRY(calls->potrf_size(stream, l->dtype, false, n, n, &work, &host, err));
    LARGEST();
    TRY(calls->geqrf_size(stream, l->dtype, n, n, n, &work, &host, err));
    LARGEST();
    for (int trans = 0; trans < 2; trans++) {
        host = 0;
        TRY(calls->ormqr_size(stream, l->dtype, trans == 0, n, l->block, n, n, n, &work, err));
        LARGEST();
    }
#undef LARGEST
    TRY(blasd_cuda_take(l->job, l->work_bytes, &l->work, err));
    return blasd_cuda_host(l->job, l->host_bytes + 1, &l->host_work, err);
}

static int take_host(struct solve_large *l, struct blasd_err *err) {
    size_t n = (size_t)l->n;
    l->pinned_bytes = n * sizeof(double);
    if (l->pinned_bytes < LARGE_COLUMNS * sizeof(struct large_column))
        l->pinned_bytes = LARGE_COLUMNS * sizeof(struct large_column);
    TRY(blasd_cuda_host(l->job, n * sizeof *l->v, (void **)&l->v, err));
    TRY(blasd_cuda_host(l->job, n * sizeof *l->sign, (void **)&l->sign, err));
    TRY(blasd_cuda_host(l->job, n * sizeof(int), (void **)&l->row_scale, err));
    TRY(blasd_cuda_host(l->job, n * sizeof(int), (void **)&l->column_scale, err));
    return blasd_cuda_host(l->job, 2 * sizeof *l->blocks, (void **)&l->blocks, err);
}

int solve_large_prepare(struct blasd_cuda_job *job, struct solve_large *l,
                        const struct solve_batch *batch, bool single, struct blasd_err *err) {
    size_t size = single ? sizeof(float) : sizeof(double), n = (size_t)batch->shape.n, tall;
    l->job = job;
    l->batch = *batch;
    l->single = single;
    l->dtype = single ? BLASD_float32 : BLASD_float64;
    l->n = batch->shape.n;
    l->block = batch->shape.columns < LARGE_COLUMNS ? batch->shape.columns : LARGE_COLUMNS;
    if (l->block < 1) l->block = 1;
    l->parts = 4 * job->facts->units * 128 / l->n;
    l->parts = l->parts < 1 ? 1 : l->parts > 32 ? 32 : l->parts;
    l->mixes = wants_mixed(l);
    tall = n * (size_t)l->block * size;
    TRY(blasd_cuda_take(job, n * n * size, &l->matrix, err));
    TRY(blasd_cuda_take(job, n * n * size, &l->factors, err));
    TRY(blasd_cuda_take(job, n * size, &l->tau, err));
    TRY(blasd_cuda_take(job, tall, &l->x, err));
    TRY(blasd_cuda_take(job, tall, &l->b, err));
    TRY(blasd_cuda_take(job, tall, &l->r, err));
    TRY(blasd_cuda_take(job, tall, &l->d, err));
    TRY(blasd_cuda_take(job, tall, &l->keep, err));
    TRY(blasd_cuda_take(job, n * 2 * LARGE_TOGETHER * (size_t)l->parts * sizeof(double),
                        (void **)&l->pairs, err));
    TRY(blasd_cuda_take(job, 4 * n * sizeof(double), (void **)&l->sizes, err));
    TRY(blasd_cuda_take(job, 2 * n * sizeof(int), (void **)&l->scales, err));
    TRY(blasd_cuda_take(job, LARGE_COLUMNS * sizeof(int), (void **)&l->small, err));
    TRY(blasd_cuda_take(job, LARGE_COLUMNS * sizeof *l->columns, (void **)&l->columns, err));
    TRY(blasd_cuda_take(job, n * sizeof *l->pivots, (void **)&l->pivots, err));
    TRY(blasd_cuda_take(job, sizeof *l->info, (void **)&l->info, err));
    TRY(blasd_cuda_take(job, sizeof *l->unsymmetric, (void **)&l->unsymmetric, err));
    TRY(blasd_cuda_take(job, sizeof *l->most, (void **)&l->most, err));
    TRY(find_work(l, err));
    return take_host(l, err);
}
