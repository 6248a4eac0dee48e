/* Systems that fill the device by themselves, one after the other. Between the library's calls the
 * host waits, decides as engine_body.h does, and asks whether to go on. Factors in float32 come
 * first where they may be the faster ones: refinement is as ever, and where it does not converge
 * float64 takes over.
 *
 * Read next: large_matrix.cu, solve_large_kernels.cuh. */
#include "kernels/solve/large_matrix.cuh"

#include <cmath>
#include <stdlib.h>
#include <string.h>

#define MIXED_N 4096   /* from here on float32 factors are tried, where float64 is slow */
#define MIXED_STEPS 20 /* of refinement with them */

/* ---- right-hand sides ---- */

/* Chooses the windows of a band, which begin where those of the last one ended, and loads it. */
template <class T>
static int load_block(struct solve_large *l, struct large_block *block, const T *b, bool first,
                      struct blasd_err *err) {
    struct large_column *columns = OF(struct large_column, l->pinned);
    size_t bytes = (size_t)block->k * sizeof *block->window;
    double safe = safe_of(l);
    int k = block->k;
    int64_t all = (int64_t)l->n * k;
    b += block->first * l->batch.shape.b_column;
    for (int c = 0; first && c < k; c++) block->window[c].top = SOLVE_TOP;
    TRY(large_send_over(l, l->windows, block->window, bytes, err));
    TRY(blasd_launch(large_measure_b<T>, dim3((unsigned)k), dim3(256), 0, l->job->stream, err,
                     l->batch.shape, b, k, rows_scaled(l), l->windows, l->columns));
    TRY(l->job->calls->copy_down(l->job->stream, columns, l->columns, (size_t)k * sizeof *columns,
                                 err));
    TRY(large_wait(l, err));
    block->more = false;
    for (int c = 0; c < k; c++) {
        struct large_window *w = &block->window[c];
        double most = columns[c].b_most;
        bool plain = first && !l->state.scaled && most < safe && (most > 1 / safe || most == 0);
        w->exponent = plain ? 0 : columns[c].b_exponent;
        w->floor = plain ? LARGE_PLAIN : w->exponent - precision<T>::band;
        w->beyond = 0;
        block->norm_b[c] = ldexpl((long double)most, -w->exponent);
        block->more = block->more || (!plain && columns[c].b_more != 0);
    }
    TRY(large_send_over(l, l->windows, block->window, bytes, err));
    return blasd_launch(large_load_b<T>, spread(l, all / 256), dim3(256), 0, l->job->stream, err,
                        l->batch.shape, b, k, rows_scaled(l), l->windows, OF(T, l->b));
}
/* What left the range on the way is an error without bound. */
template <class T>
static int store_block(struct solve_large *l, struct large_block *block, bool add, T *x,
                       struct blasd_err *err) {
    size_t bytes = (size_t)block->k * sizeof *block->window;
    int64_t all = (int64_t)l->n * block->k;
    TRY(large_send_over(l, l->windows, block->window, bytes, err));
    TRY(blasd_launch(large_store_x<T>, spread(l, all / 256), dim3(256), 0, l->job->stream, err,
                     l->batch.shape, OF(const T, l->x), block->k, columns_scaled(l), (int)add,
                     l->windows, x + block->first));
    TRY(large_bring_back(l, block->window, l->windows, bytes, err));
    for (int c = 0; c < block->k; c++) {
        long double below = ldexpl(block->below[c], block->window[c].exponent);
        if (block->window[c].beyond != 0) block->error[c] = INFINITY;
        if (below > block->all_below[c]) block->all_below[c] = below;
        if (add && below > 0) block->all_r[c] += unit_of(l) * block->all_below[c]; /* of the sum */
        block->all_r[c] = std::isfinite(block->error[c]) ? block->all_r[c] + block->error[c] * below
                                                         : (long double)INFINITY;
        block->window[c].top = block->window[c].floor; /* a plain column has nothing below that */
    }
    return 0;
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
    return l->single ? residual_extended<float>(l, block->k, err)
                     : residual_extended<double>(l, block->k, err);
}

/* Puts on the stream what brings sizes of x, r and d of each column into pinned memory, as the
 * first of two sets or the second. */
static int ask_sizes(struct solve_large *l, int k, int set, struct blasd_err *err) {
    struct large_column *to = OF(struct large_column, l->pinned) + set * LARGE_COLUMNS;
    TRY(l->single
            ? blasd_launch(large_measure<float>, dim3((unsigned)k), dim3(256), 0, l->job->stream,
                           err, l->n, k, OF(const float, l->x), OF(const float, l->r),
                           OF(const float, l->d), rows_scaled(l), columns_scaled(l), l->columns)
            : blasd_launch(large_measure<double>, dim3((unsigned)k), dim3(256), 0, l->job->stream,
                           err, l->n, k, OF(const double, l->x), OF(const double, l->r),
                           OF(const double, l->d), rows_scaled(l), columns_scaled(l), l->columns));
    return l->job->calls->copy_down(l->job->stream, to, l->columns, (size_t)k * sizeof *to, err);
}
static double error_of(const struct solve_large *l, const struct large_column *c,
                       struct large_block *block, int at) {
    long double x = ldexpl(c->x.m, c->x.e), r = ldexpl(c->r.m, c->r.e), below;
    if ((c->bad & 1) != 0) return INFINITY;
    block->below[at] = below = l->norm_inf * x + block->norm_b[at];
    if (!(below > 0)) return 0;
    return (double)(r / below) * (1 + 4 * unit_of(l) * (l->n + 2)) +
           residual_unit_of(l) * (l->n + 2);
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
    double ratio = size / block->last[c], least = l->state.contraction;
    if (step == 1 && l->state.scaled && l->state.rcond < l->state.own_rcond)
        least *= l->state.own_rcond / l->state.rcond;
    if (!(error < block->error[c] || error <= 2 * u)) {
        block->done[c] = true;
        return false;
    }
    block->error[c] = error;
    block->steps[c] = step;
    block->last[c] = size;
    /* what the condition allows is far above what float32 factors do: there only the first step,
     * which may have been small by luck, is not taken at its word */
    if (step == 1 || (!l->narrow && ratio < least)) ratio = fmax(ratio, fmin(least, 0.5));
    block->converged[c] = error <= 2 * u && size * ratio <= u / 4;
    block->done[c] = block->converged[c] || !(ratio <= 0.5);
    return true;
}

/* How large d is against x, as they stand and before scaling: an element that is small here may not
 * be small there. */
static double correction_of(const struct large_column *c) {
    long double own = ldexpl(c->d.m, c->d.e - c->x.e);
    double size = c->d_most / c->x_most;
    if ((c->bad & 2) != 0) return INFINITY;
    return c->x.m > 0 ? fmax(size, (double)(own / c->x.m)) : size;
}

/* One step of refinement of the columns that are not done. */
static int refine_once(struct solve_large *l, struct large_block *block, int step,
                       struct blasd_err *err) {
    size_t bytes = (size_t)l->n * (size_t)block->k * size_of_type(l);
    const struct large_column *before = OF(const struct large_column, l->pinned);
    const struct large_column *sizes = before + LARGE_COLUMNS;
    struct large_mask tried = {}, back = {};
    bool any = false;
    TRY(l->job->calls->copy_within(l->job->stream, l->d, l->r, bytes, err));
    TRY(large_matrix_apply(l, l->d, block->k, false, err));
    TRY(ask_sizes(l, block->k, 0, err));
    for (int c = 0; c < block->k; c++)
        if (!block->done[c]) tried.bits[c / 64] |= UINT64_C(1) << c % 64;
    TRY(move(l, block->k, &tried, false, err));
    TRY(residuals(l, block, err));
    TRY(ask_sizes(l, block->k, 1, err));
    TRY(large_wait(l, err));
    for (int c = 0; c < block->k; c++) {
        double correction = correction_of(&before[c]);
        double error = error_of(l, &sizes[c], block, c);
        if (block->done[c] || judge(l, block, c, step, error, correction)) continue;
        back.bits[c / 64] |= UINT64_C(1) << c % 64;
        any = true;
    }
    return any ? move(l, block->k, &back, true, err) : 0;
}

/* Where corrections may be noise, as in engine_body.h, x is again what it was before them. */
static int take_back(struct solve_large *l, struct large_block *block, struct blasd_err *err) {
    size_t bytes = (size_t)l->n * (size_t)block->k * size_of_type(l);
    const double u = unit_of(l);
    struct large_mask back = {};
    bool any = false;
    for (int c = 0; c < block->k && !l->narrow && l->state.contraction >= 0.5; c++) {
        double noise = (u * block->error[c] + residual_unit_of(l) * l->n) / l->state.own_rcond;
        bool shrunk = block->converged[c] || !block->done[c] || block->last[c] <= 4 * u;
        if (block->steps[c] == 0 || (shrunk && noise <= 0x1p-20) ||
            !(block->first_error[c] <= 3 * u))
            continue;
        block->error[c] = block->first_error[c];
        block->steps[c] = 0;
        block->last[c] = 1;
        block->converged[c] = false;
        back.bits[c / 64] |= UINT64_C(1) << c % 64;
        any = true;
    }
    if (!any) return 0;
    TRY(l->job->calls->copy_within(l->job->stream, l->d, l->b, bytes, err));
    TRY(large_matrix_apply(l, l->d, block->k, false, err));
    return move(l, block->k, &back, true, err);
}

/* Solves a block with the factors at hand and refines it. */
static int solve_block(struct solve_large *l, struct large_block *block, struct blasd_err *err) {
    size_t bytes = (size_t)l->n * (size_t)block->k * size_of_type(l);
    const struct large_column *sizes = OF(const struct large_column, l->pinned);
    int most = l->batch.shape.refinement == BLASD_REFINE_NONE ? 0
               : l->narrow                                    ? MIXED_STEPS
                                                              : SOLVE_STEPS;
    bool all = true;
    TRY(l->job->calls->copy_within(l->job->stream, l->x, l->b, bytes, err));
    TRY(large_matrix_apply(l, l->x, block->k, false, err));
    TRY(residuals(l, block, err));
    TRY(l->job->calls->copy_within(l->job->stream, l->d, l->r, bytes, err));
    TRY(ask_sizes(l, block->k, 0, err));
    TRY(large_wait(l, err));
    for (int c = 0; c < block->k; c++) {
        block->first_error[c] = block->error[c] = error_of(l, &sizes[c], block, c);
        block->steps[c] = 0;
        block->last[c] = 1;
        block->converged[c] = sizes[c].r_zero != 0 && block->error[c] <= unit_of(l);
        block->done[c] = block->converged[c] || !std::isfinite(block->error[c]);
        all = all && block->done[c];
    }
    for (int step = 1; step <= most && !all; step++) {
        TRY(large_go_on(l, 0.9, err));
        TRY(refine_once(l, block, step, err));
        all = true;
        for (int c = 0; c < block->k; c++) all = all && block->done[c];
    }
    return take_back(l, block, err);
}

/* Whether what was reached is what refinement reaches, unless the factors are bad. */
static bool good_enough(const struct solve_large *l, const struct large_block *block) {
    double u = unit_of(l), bound = 3 * u;
    if (l->batch.shape.refinement == BLASD_REFINE_NONE || l->state.method == BLASD_SOLVED_QR)
        return true;
    for (int c = 0; c < block->k; c++) {
        if (!(block->error[c] <= bound)) return false;
        if (l->state.method == BLASD_SOLVED_LU && block->steps[c] > 0 &&
            (l->narrow
                 ? !block->converged[c]
                 : (!block->converged[c] || l->state.contraction > 0.1) &&
                       blasd_solve_may_help(l->n, u, l->state.own_rcond, l->state.contraction)))
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
    *second = *block;
    TRY(l->job->calls->copy_within(l->job->stream, l->keep, l->x, bytes, err));
    TRY(large_matrix_qr(l, err));
    TRY(large_matrix_estimate(l, err));
    TRY(solve_block(l, second, err));
    if (worst_of(second) <= fmax(worst_of(block), 2 * unit_of(l))) {
        *block = *second;
        return 0;
    }
    TRY(l->job->calls->copy_within(l->job->stream, l->x, l->keep, bytes, err));
    l->state = before;
    l->a = nullptr; /* the factors are QR's, perhaps in part */
    return 0;
}

/* ---- systems ---- */

/* What factors in float32 do for float64 shows in what refinement makes of it. */
static bool is_open(const struct solve_large *l) {
    return !l->narrow &&
           blasd_solve_is_open(l->n, unit_of(l), l->state.rcond, l->state.contraction);
}

/* Whether the factors may know nothing of the inverse, as in condition_body.h. Of x and b nothing
 * is left. */
template <class T> static int unproven(struct solve_large *l, bool *ret, struct blasd_err *err) {
    size_t bytes = (size_t)l->n * sizeof(T);
    T *own = (T *)(void *)l->v;
    *ret = false;
    for (int p = 0; p < BLASD_SOLVE_PROBES && !*ret; p++) {
        double left = 0;
        for (int i = 0; i < l->n; i++) own[i] = (T)blasd_solve_probe(i, p);
        TRY(large_send_over(l, l->b, own, bytes, err));
        TRY(l->job->calls->copy_within(l->job->stream, l->x, l->b, bytes, err));
        TRY(large_matrix_apply(l, l->x, 1, false, err));
        TRY(residual_extended<T>(l, 1, err));
        TRY(large_bring_back(l, own, l->r, bytes, err));
        for (int i = 0; i < l->n; i++) left += (double)own[i] * (double)own[i];
        *ret = !(sqrt(left) <= BLASD_SOLVE_PROBE_LEFT);
    }
    return 0;
}

/* Whatever factors are for, where QR left none. */
static int refactor(struct solve_large *l, const void *a, struct blasd_err *err) {
    if (l->a != nullptr) return 0;
    l->a = a;
    return large_matrix_factor(l, false, err);
}

/* A block of columns to its end, band by band. */
template <class T>
static int run_block(struct solve_large *l, struct large_block *block, const T *a, const T *b, T *x,
                     struct solve_outcome *outcome, struct blasd_err *err) {
    bool open;
    block->more = true;
    for (bool first = true; block->more && l->state.info == 0; first = false) {
        TRY(refactor(l, a, err));
        TRY(load_block<T>(l, block, b, first, err));
        TRY(solve_block(l, block, err));
        if (l->narrow && !good_enough(l, block)) {
            TRY(large_matrix_factor(l, false, err));
            if (l->state.info == 0) TRY(solve_block(l, block, err));
        }
        open = is_open(l);
        if (l->state.info == 0 && !good_enough(l, block)) {
            TRY(solve_by_qr(l, block, block + 1, err));
            if (l->a != nullptr) open = is_open(l);
        }
        l->open = l->open || open;
        TRY(store_block<T>(l, block, !first, x, err));
        for (int c = 0; c < block->k; c++) {
            if (block->steps[c] > outcome->steps) outcome->steps = block->steps[c];
            outcome->settled =
                outcome->settled && (block->converged[c] || block->last[c] <= 4 * unit_of(l));
        }
        if (outcome->method != BLASD_SOLVED_QR) outcome->method = l->state.method;
        outcome->rcond = l->state.rcond;
    }
    for (int c = 0; c < block->k; c++) {
        double error = block->all_r[c] > 0 ? (double)(block->all_r[c] / block->all_below[c]) : 0;
        if (!(error <= outcome->error)) outcome->error = error;
    }
    return 0;
}

template <class T>
static int run_columns(struct solve_large *l, const T *a, const T *b, T *x,
                       struct solve_outcome *outcome, struct blasd_err *err) {
    struct large_block *block = l->blocks;
    int columns = l->batch.shape.columns;
    *outcome = {0, l->state.rcond, 0, l->state.method, false, true};
    l->open = false;
    for (int first = 0; first < columns && l->state.info == 0; first += l->block) {
        memset(block, 0, sizeof *block);
        block->first = first;
        block->k = columns - first < l->block ? columns - first : l->block;
        TRY(run_block<T>(l, block, a, b, x, outcome, err));
        TRY(large_go_on(l, 0.9 + 0.1 * (first + block->k) / columns, err));
    }
    if (!l->open || l->state.info != 0) return 0;
    TRY(refactor(l, a, err));
    return l->state.info == 0 ? unproven<T>(l, &outcome->doubtful, err) : 0;
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
        TRY(large_go_on(l, 0, err));
        TRY(large_matrix_load(l, err));
        TRY(large_matrix_factor(l, mix, err));
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
    int code = blasd_cuda_host_pinned(job, l->pinned_bytes, &l->pinned, err);
    l->job = job;
    l->sending = true; /* by whoever had it before */
    for (int64_t s = 0; code == 0 && s < l->batch.total; s++)
        code = l->single ? run_system<float>(l, s, err) : run_system<double>(l, s, err);
    return code;
}

const char *solve_large_name(const struct solve_large *l) {
    return l->was_narrow ? "lu, factors in float32" : nullptr;
}

/* ---- memory ---- */

static bool wants_mixed(const struct solve_large *l) {
    const char *from = getenv("BLASD_SOLVE_MIXED");
    long usual = l->job->facts->float64_cost > 2 ? MIXED_N : 0;
    long least = from != nullptr ? strtol(from, nullptr, 10) : usual;
    return !l->single && l->batch.shape.assume == BLASD_ASSUME_GENERAL &&
           l->batch.shape.refinement != BLASD_REFINE_NONE && least > 0 && l->n >= least;
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
    l->pinned_bytes = 4 * n * sizeof(double) + sizeof(int);
    if (l->pinned_bytes < 2 * LARGE_COLUMNS * sizeof(struct large_column))
        l->pinned_bytes = 2 * LARGE_COLUMNS * sizeof(struct large_column);
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
    TRY(blasd_cuda_take(job, LARGE_COLUMNS * sizeof *l->windows, (void **)&l->windows, err));
    TRY(blasd_cuda_take(job, n * sizeof *l->pivots, (void **)&l->pivots, err));
    TRY(blasd_cuda_take(job, sizeof *l->info, (void **)&l->info, err));
    TRY(blasd_cuda_take(job, sizeof *l->unsymmetric, (void **)&l->unsymmetric, err));
    TRY(blasd_cuda_take(job, 2 * sizeof *l->most, (void **)&l->most, err));
    TRY(find_work(l, err));
    return take_host(l, err);
}
