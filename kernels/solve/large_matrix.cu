/* The matrix of a system that fills the device: scaling, factors and condition by cuSOLVER and
 * cuBLAS, with the steps, constants and decisions of engine_body.h. Symmetric ones are factored by
 * LU here.
 *
 * Read next: solve_large.cu. */
#include "kernels/solve/large_matrix.cuh"

extern "C" {
#include "kernels/solve/estimate.h"
}

#include <climits>
#include <cmath>
#include <string.h>

#define MIXED_RCOND 0x1p-30 /* float32 factors: below it there is no hope in them */

/* ---- between host and device ---- */

int large_wait(struct solve_large *l, struct blasd_err *err) {
    TRY(l->job->calls->stream_wait(l->job->stream, err));
    l->sending = false;
    return 0;
}
int large_bring_back(struct solve_large *l, void *host, const void *device, size_t bytes,
                     struct blasd_err *err) {
    TRY(l->job->calls->copy_down(l->job->stream, l->pinned, device, bytes, err));
    TRY(large_wait(l, err));
    memcpy(host, l->pinned, bytes);
    return 0;
}
int large_send_over(struct solve_large *l, void *device, const void *host, size_t bytes,
                    struct blasd_err *err) {
    if (l->sending) TRY(large_wait(l, err));
    memcpy(l->pinned, host, bytes);
    l->sending = true;
    return l->job->calls->copy_up(l->job->stream, device, l->pinned, bytes, err);
}
int large_go_on(struct solve_large *l, double share, struct blasd_err *err) {
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
    return large_bring_back(l, to, l->sizes + (size_t)which * n, n * sizeof *to, err);
}
/* All four, and a number beside them, in pinned memory until that is used again. */
static int all_sizes(struct solve_large *l, int *number, struct blasd_err *err) {
    double *to = OF(double, l->pinned);
    size_t each = (size_t)l->n;
    TRY(l->job->calls->copy_down(l->job->stream, to, l->sizes, 4 * each * sizeof *to, err));
    TRY(l->job->calls->copy_down(l->job->stream, to + 4 * each, l->unsymmetric, sizeof(int), err));
    TRY(large_wait(l, err));
    memcpy(number, to + 4 * each, sizeof *number);
    return 0;
}
/* From all_sizes. */
static void most_of_sums(struct solve_large *l, int e) {
    const double *rows = OF(const double, l->pinned) + l->n, *columns = rows + 2 * (int64_t)l->n;
    double row = 0, column = 0;
    for (int i = 0; i < l->n; i++) {
        row = rows[i] > row ? rows[i] : row;
        column = columns[i] > column ? columns[i] : column;
    }
    l->norm_inf = ldexpl(row, e);
    l->norm_1 = ldexpl(column, e);
}

static int diagonal(struct solve_large *l, double *to, struct blasd_err *err) {
    TRY(LAUNCH_MATRIX(l, large_diagonal, (l->n + 255) / 256, err, l->sizes));
    return size_row(l, 0, to, err);
}

/* As scale_body.h does it: halves what is left of the largest elements, whose exponents once rows
 * are scaled are in column_scale. Whether anything was. */
static bool balance(struct solve_large *l) {
    bool any = false;
    for (int j = 0; j < l->n; j++) {
        int most = l->column_scale[j];
        int over = most == -100000 ? 0 : (most + l->row_scale[j]) / 2;
        any = any || over != 0;
        l->row_scale[j] -= over;
    }
    return any;
}

/* Chooses the scales from the largest elements (of rows, in v) and applies them. */
static int scale(struct solve_large *l, struct blasd_err *err) {
    bool definite = l->batch.shape.assume == BLASD_ASSUME_POSITIVE_DEFINITE;
    size_t bytes = (size_t)l->n * sizeof(int);
    double greatest = 0;
    bool again = true;
    int n = l->n, e, unused;
    for (int i = 0; i < n; i++) greatest = l->v[i] > greatest ? l->v[i] : greatest;
    e = exponent_on_host(greatest);
    if (definite) TRY(diagonal(l, l->sign, err));
    for (int i = 0; i < n; i++) {
        double most = definite && l->sign[i] > 0 ? l->sign[i] : l->v[i];
        int own = most == 0 ? 0 : exponent_on_host(most);
        l->row_scale[i] = is_symmetric(l) ? -(own / 2) : -own;
    }
    for (int pass = 1; again; pass++) {
        TRY(large_send_over(l, l->scales, l->row_scale, bytes, err));
        TRY(measure(l, e, l->scales,
                    err)); /* leaves the columns' exponents where their scales go */
        TRY(large_bring_back(l, l->column_scale, l->scales + n, bytes, err));
        again = pass < 16 && l->batch.shape.assume == BLASD_ASSUME_SYMMETRIC && balance(l);
    }
    TRY(all_sizes(l, &unused, err));
    most_of_sums(l, e);
    for (int j = 0; j < n; j++) {
        int most = l->column_scale[j];
        l->column_scale[j] = is_symmetric(l) ? l->row_scale[j] : most == -100000 ? 0 : -most;
    }
    TRY(large_send_over(l, l->scales + n, l->column_scale, bytes, err));
    l->state.scaled = true;
    return LAUNCH_MATRIX(l, large_scale, (int64_t)n * n / 256, err, l->scales, l->scales + n);
}

/* The job's matrix, scaled, and its norms. */
int large_matrix_load(struct solve_large *l, struct blasd_err *err) {
    int64_t tiles = ((int64_t)l->n + 31) / 32;
    const double *sizes = OF(const double, l->pinned);
    size_t n = (size_t)l->n;
    bool rows, columns;
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
    TRY(all_sizes(l, &l->state.unsymmetric, err));
    most_of_sums(l, 0);
    memcpy(l->sign, sizes + 2 * n, n * sizeof *sizes);
    memcpy(l->v, sizes, n * sizeof *sizes);
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
    return large_bring_back(l, &l->state.info, l->info, sizeof(int), err);
}
static int factor_lu_wide(struct solve_large *l, struct blasd_err *err) {
    l->state.method = BLASD_SOLVED_LU;
    TRY(copy_matrix(l, err));
    return call_getrf(l, l->dtype, err);
}
/* The largest element of a matrix, or of its upper triangle, as number `at` of l->most. */
template <class T>
static int most_of(struct solve_large *l, const void *a, bool upper, int at,
                   struct blasd_err *err) {
    TRY(l->job->calls->fill(l->job->stream, l->most + at, 0, sizeof *l->most, err));
    return blasd_launch(large_most<T>, spread(l, (int64_t)l->n * l->n / 256), dim3(256), 0,
                        l->job->stream, err, l->n, OF(const T, a), (int)upper, l->most + at);
}
static int factor_lu_narrow(struct solve_large *l, struct blasd_err *err) {
    double most = 0;
    int64_t all = (int64_t)l->n * l->n;
    TRY(most_of<double>(l, l->matrix, false, 0, err));
    TRY(large_bring_back(l, &most, l->most, sizeof most, err));
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
    TRY(large_bring_back(l, &l->state.info, l->info, sizeof(int), err));
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
/* A zero in R makes what follows infinite, which is not kept. */
int large_matrix_qr(struct solve_large *l, struct blasd_err *err) {
    l->state.method = BLASD_SOLVED_QR;
    TRY(copy_matrix(l, err));
    return l->job->calls->geqrf(l->job->stream, l->dtype, l->n, l->n, l->factors, l->n, l->tau,
                                l->work, l->work_bytes, l->host_work, l->host_bytes, l->info, err);
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
int large_matrix_apply(struct solve_large *l, void *x, int k, bool transposed,
                       struct blasd_err *err) {
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
int large_matrix_residual(struct solve_large *l, int k, bool transposed, struct blasd_err *err) {
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
    TRY(large_matrix_apply(l, l->d, 1, transposed, err));
    TRY(calls->copy_within(l->job->stream, l->x, l->d, bytes, err));
    TRY(large_matrix_residual(l, 1, transposed, err));
    TRY(large_matrix_apply(l, l->r, 1, transposed, err));
    TRY(blasd_launch(large_step<double>, spread(l, l->n / 256), dim3(256), 0, l->job->stream, err,
                     l->n, 1, OF(double, l->d), OF(double, l->r), first, 0));
    return 0;
}

/* v := 2^after inverse(factors) 2^before v, times 2^shift, or with the transposed inverse, brought
 * near 1 on the way; null: no exponents. */
template <class T>
static int apply_between(struct solve_large *l, double *v, bool transposed, const int *before,
                         const int *after, int shift, struct blasd_err *err) {
    T *x = OF(T, l->pinned);
    size_t bytes = (size_t)l->n * sizeof(T);
    int most = INT_MIN;
    for (int i = 0; i < l->n; i++) {
        int own = exponent_on_host(v[i]) + (before != nullptr ? before[i] : 0);
        if (v[i] != 0 && own > most) most = own;
    }
    if (most == INT_MIN) most = 0;
    if (l->sending) TRY(large_wait(l, err));
    for (int i = 0; i < l->n; i++)
        x[i] = (T)ldexp(v[i], (before != nullptr ? before[i] : 0) - most);
    TRY(l->job->calls->copy_up(l->job->stream, l->d, x, bytes, err));
    TRY(l->narrow ? apply_refined(l, transposed, err)
                  : large_matrix_apply(l, l->d, 1, transposed, err));
    TRY(l->job->calls->copy_down(l->job->stream, x, l->d, bytes, err));
    TRY(large_wait(l, err));
    for (int i = 0; i < l->n; i++)
        v[i] = ldexp((double)x[i], (after != nullptr ? after[i] : 0) + most + shift);
    return 0;
}
/* v := what l->inverse says, times v. */
template <class T>
static int apply_to_vector(struct solve_large *l, double *v, bool transposed,
                           struct blasd_err *err) {
    const int *rows = l->state.scaled ? l->row_scale : nullptr;
    const int *columns = l->state.scaled ? l->column_scale : nullptr;
    if (l->inverse == SOLVE_OWN_INVERSE)
        return apply_between<T>(l, v, transposed, nullptr, nullptr, 0, err);
    return apply_between<T>(l, v, transposed, transposed ? columns : rows,
                            transposed ? rows : columns, norm_exponent(l), err);
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
    if (l->code == 0) l->code = large_go_on(l, 0.8, callback->err);
    return l->code == 0;
}
static int growth(struct solve_large *l, double *ret, struct blasd_err *err) {
    double both[2], own, factor;
    *ret = 1;
    if (l->state.method != BLASD_SOLVED_LU) return 0;
    TRY(l->single ? most_of<float>(l, l->matrix, false, 0, err)
                  : most_of<double>(l, l->matrix, false, 0, err));
    TRY(l->single || l->narrow ? most_of<float>(l, l->factors, true, 1, err)
                               : most_of<double>(l, l->factors, true, 1, err));
    TRY(large_bring_back(l, both, l->most, sizeof both, err));
    own = both[0];
    factor = both[1];
    if (l->narrow) factor = ldexp(factor, l->narrow_exponent);
    if (factor > own) *ret = factor / own;
    return 0;
}
static int norm_of_inverse(struct solve_large *l, enum solve_inverse inverse, double *ret,
                           struct blasd_err *err) {
    struct callback callback = {l, err};
    l->code = 0;
    l->inverse = inverse;
    *ret = blasd_norm_inverse(l->n, l->v, l->sign, apply_back, &callback);
    return l->code;
}
static double reciprocal(double inverse, long double norm) {
    long double rcond = 1 / (long double)inverse / norm;
    return rcond <= 1 ? (double)rcond : rcond > 1 ? 1 : 0;
}
/* The 1-norm of the matrix that is solved. */
static int own_norm(struct solve_large *l, double *ret, struct blasd_err *err) {
    TRY(measure(l, 0, nullptr, err)); /* which uses the place of the columns' scales */
    TRY(size_row(l, 3, l->sign, err));
    *ret = 0;
    for (int i = 0; i < l->n; i++) *ret = l->sign[i] > *ret ? l->sign[i] : *ret;
    return large_send_over(l, l->scales + l->n, l->column_scale, (size_t)l->n * sizeof(int), err);
}
int large_matrix_estimate(struct solve_large *l, struct blasd_err *err) {
    double inverse, norm, by = 1;
    TRY(norm_of_inverse(l, SOLVE_INVERSE, &inverse, err));
    l->state.own_rcond = l->state.rcond = reciprocal(inverse, ldexpl(l->norm_1, -norm_exponent(l)));
    if (l->state.scaled) {
        TRY(own_norm(l, &norm, err));
        TRY(norm_of_inverse(l, SOLVE_OWN_INVERSE, &inverse, err));
        l->state.own_rcond = reciprocal(inverse, norm);
    }
    TRY(growth(l, &by, err));
    l->state.contraction = 4 * (l->narrow ? 0x1p-24 : unit_of(l)) * by / l->state.own_rcond;
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
int large_matrix_factor(struct solve_large *l, bool mix, struct blasd_err *err) {
    TRY(large_go_on(l, 0.05, err));
    l->state.info = 0;
    if (mix) {
        TRY(factor_lu_narrow(l, err));
        if (l->state.info == 0) TRY(large_matrix_estimate(l, err));
        if (l->state.info == 0 && l->state.own_rcond >= MIXED_RCOND) return 0;
        l->state.info = 0;
        TRY(large_go_on(l, 0.3, err));
    }
    TRY(factor(l, err));
    TRY(large_go_on(l, 0.7, err));
    return l->state.info == 0 ? large_matrix_estimate(l, err) : 0;
}
