/* The matrix of a system that fills the device: factors and condition by cuSOLVER and cuBLAS, with
 * the constants of engine_body.h. Symmetric ones are factored by LU here.
 *
 * Read next: solve_large.cu. */
#include "kernels/solve/large_matrix.cuh"

extern "C" {
#include "kernels/solve/estimate.h"
}

#include <cmath>
#include <string.h>

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

/* ---- the matrix ---- */

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
static double largest(const double *v, int n) {
    double most = 0;
    for (int i = 0; i < n; i++) most = v[i] > most ? v[i] : most;
    return most;
}

/* On the device: the largest of rows, sums of rows, largest of columns, sums of columns. */
template <class T> static int measure_as(struct solve_large *l, struct blasd_err *err) {
    const T *a = OF(const T, l->matrix);
    int n = l->n;
    double *sizes = l->sizes;
    TRY(blasd_launch(large_rows<T>, spread(l, (n + 63) / 64), dim3(64), 0, l->job->stream, err, n,
                     a, sizes, sizes + n));
    return blasd_launch(large_columns<T>, spread(l, (n + 7) / 8), dim3(256), 0, l->job->stream, err,
                        n, a, sizes + 2 * n, sizes + 3 * n);
}
template <class T> static int load_as(struct solve_large *l, struct blasd_err *err) {
    int64_t tiles = ((int64_t)l->n + 31) / 32;
    TRY(blasd_launch(large_load<T>, spread(l, tiles * tiles), dim3(256), 0, l->job->stream, err,
                     l->batch.shape, OF(const T, l->a), OF(T, l->matrix), l->unsymmetric));
    return measure_as<T>(l, err);
}

int large_matrix_load(struct solve_large *l, struct blasd_err *err) {
    double *sizes = OF(double, l->pinned);
    size_t n = (size_t)l->n;
    memset(&l->state, 0, sizeof l->state);
    TRY(l->job->calls->fill(l->job->stream, l->unsymmetric, 0, sizeof(int), err));
    TRY(l->single ? load_as<float>(l, err) : load_as<double>(l, err));
    TRY(l->job->calls->copy_down(l->job->stream, sizes, l->sizes, 4 * n * sizeof *sizes, err));
    TRY(l->job->calls->copy_down(l->job->stream, sizes + 4 * n, l->unsymmetric, sizeof(int), err));
    TRY(large_wait(l, err));
    memcpy(&l->state.unsymmetric, sizes + 4 * n, sizeof(int));
    l->state.most = largest(sizes, l->n);
    l->state.norm_inf = largest(sizes + n, l->n);
    l->state.norm_1 = largest(sizes + 3 * n, l->n);
    l->state.left = !balanced(l, sizes) || !balanced(l, sizes + 2 * n);
    return 0;
}

/* ---- factors ---- */

static int factor(struct solve_large *l, struct blasd_err *err) {
    size_t bytes = (size_t)l->n * (size_t)l->n * size_of_type(l);
    int info = 0;
    TRY(l->job->calls->copy_within(l->job->stream, l->factors, l->matrix, bytes, err));
    switch (l->batch.shape.assume) {
    case BLASD_ASSUME_GENERAL:
    case BLASD_ASSUME_SYMMETRIC:
        l->state.method = BLASD_SOLVED_LU;
        TRY(l->job->calls->getrf(l->job->stream, l->dtype, l->n, l->n, l->factors, l->n, l->pivots,
                                 l->work, l->work_bytes, l->host_work, l->host_bytes, l->info,
                                 err));
        break;
    case BLASD_ASSUME_POSITIVE_DEFINITE:
        l->state.method = BLASD_SOLVED_CHOLESKY;
        TRY(l->job->calls->potrf(l->job->stream, l->dtype, false, l->n, l->factors, l->n, l->work,
                                 l->work_bytes, l->host_work, l->host_bytes, l->info, err));
        break;
    default:
        l->state.method = BLASD_SOLVED_TRIANGULAR; /* with a pivot of 0 nothing stays finite */
        return 0;
    }
    TRY(large_bring_back(l, &info, l->info, sizeof info, err));
    l->state.left = info != 0;
    return 0;
}

int large_matrix_apply(struct solve_large *l, void *x, int k, bool transposed,
                       struct blasd_err *err) {
    struct blasd_gpu_triangle t = {};
    if (l->state.method == BLASD_SOLVED_LU)
        return l->job->calls->getrs(l->job->stream, l->dtype, transposed, l->n, k, l->factors, l->n,
                                    l->pivots, x, l->n, l->info, err);
    if (l->state.method == BLASD_SOLVED_CHOLESKY)
        return l->job->calls->potrs(l->job->stream, l->dtype, false, l->n, k, l->factors, l->n, x,
                                    l->n, l->info, err);
    t.dtype = l->dtype;
    t.upper = l->batch.shape.assume == BLASD_ASSUME_UPPER_TRIANGULAR;
    t.trans = transposed;
    t.m = l->n;
    t.n = k;
    t.alpha = 1;
    t.lda = t.ldb = l->n;
    return l->job->calls->trsm(l->job->stream, &t, l->factors, x, err);
}

/* ---- condition ---- */

/* v := inverse(factors) v, or with the transposed inverse. */
template <class T>
static int apply_to_vector(struct solve_large *l, double *v, bool transposed,
                           struct blasd_err *err) {
    T *x = OF(T, l->pinned);
    size_t bytes = (size_t)l->n * sizeof(T);
    if (l->sending) TRY(large_wait(l, err));
    for (int i = 0; i < l->n; i++) x[i] = (T)v[i];
    TRY(l->job->calls->copy_up(l->job->stream, l->d, x, bytes, err));
    TRY(large_matrix_apply(l, l->d, 1, transposed, err));
    TRY(l->job->calls->copy_down(l->job->stream, x, l->d, bytes, err));
    TRY(large_wait(l, err));
    for (int i = 0; i < l->n; i++) v[i] = (double)x[i];
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
    if (l->code == 0) l->code = large_go_on(l, 0.8, callback->err);
    return l->code == 0;
}
/* How much larger than the matrix its factor U is. */
static int growth(struct solve_large *l, double *ret, struct blasd_err *err) {
    dim3 blocks = spread(l, (int64_t)l->n * l->n / 256);
    double most;
    *ret = 1;
    if (l->state.method != BLASD_SOLVED_LU) return 0;
    TRY(l->job->calls->fill(l->job->stream, l->most, 0, sizeof *l->most, err));
    TRY(l->single ? blasd_launch(large_most<float>, blocks, dim3(256), 0, l->job->stream, err, l->n,
                                 OF(const float, l->factors), 1, l->most)
                  : blasd_launch(large_most<double>, blocks, dim3(256), 0, l->job->stream, err,
                                 l->n, OF(const double, l->factors), 1, l->most));
    TRY(large_bring_back(l, &most, l->most, sizeof most, err));
    if (most > l->state.most) *ret = most / l->state.most;
    return 0;
}
static int estimate(struct solve_large *l, struct blasd_err *err) {
    struct callback callback = {l, err};
    double inverse, rcond, by = 1;
    l->code = 0;
    inverse = blasd_norm_inverse(l->n, l->v, l->sign, apply_back, &callback);
    TRY(l->code);
    TRY(growth(l, &by, err));
    rcond = 1 / inverse / l->state.norm_1;
    l->state.rcond = rcond <= 1 ? rcond : rcond > 1 ? 1 : 0;
    l->state.contraction = 4 * unit_of(l) * by / l->state.rcond;
    l->state.left = blasd_solve_is_open(l->n, unit_of(l), l->state.rcond, l->state.contraction);
    return 0;
}
int large_matrix_factor(struct solve_large *l, struct blasd_err *err) {
    TRY(large_go_on(l, 0.05, err));
    TRY(factor(l, err));
    TRY(large_go_on(l, 0.7, err));
    return l->state.left ? 0 : estimate(l, err);
}
