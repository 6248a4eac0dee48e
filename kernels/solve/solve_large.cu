/* Systems that fill the device by themselves, one after the other. Between the library's calls the
 * host waits, decides as solve_columns.cuh does, and asks whether to go on.
 *
 * Read next: large_matrix.cu, solve_large_kernels.cuh. */
#include "kernels/solve/large_matrix.cuh"

#include <cmath>
#include <stdlib.h>
#include <string.h>

/* ---- right-hand sides ---- */

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
/* Puts on the stream what brings sizes of x, r and d of each column into pinned memory, as the
 * first of two sets or the second. */
template <class T>
static int ask_sizes(struct solve_large *l, int k, const void *x, int set, struct blasd_err *err) {
    struct large_column *to = OF(struct large_column, l->pinned) + set * LARGE_COLUMNS;
    TRY(blasd_launch(large_measure<T>, dim3((unsigned)k), dim3(256), 0, l->job->stream, err, l->n,
                     k, OF(const T, x), OF(const T, l->r), OF(const T, l->d), l->columns));
    return l->job->calls->copy_down(l->job->stream, to, l->columns, (size_t)k * sizeof *to, err);
}
template <class T>
static int load_block(struct solve_large *l, struct large_block *block, const T *b,
                      struct blasd_err *err) {
    const struct large_column *sizes = OF(const struct large_column, l->pinned);
    TRY(blasd_launch(large_load_b<T>, spread(l, (int64_t)l->n * block->k / 256), dim3(256), 0,
                     l->job->stream, err, l->batch.shape,
                     b + block->first * l->batch.shape.b_column, block->k, OF(T, l->b)));
    TRY(ask_sizes<T>(l, block->k, l->b, 0, err));
    TRY(large_wait(l, err));
    for (int c = 0; c < block->k; c++) block->norm_b[c] = sizes[c].x;
    return 0;
}
static double error_of(const struct solve_large *l, const struct large_column *c, double norm_b) {
    double below = l->state.norm_inf * c->x + norm_b;
    if (!std::isfinite(below) || !std::isfinite(c->r)) return INFINITY;
    if (!(below > 0)) return 0;
    return c->r / below * (1 + 4 * unit_of(l) * (l->n + 2)) + residual_unit_of(l) * (l->n + 2);
}
template <class T>
static int move(struct solve_large *l, int k, const struct large_mask *mask, bool back,
                struct blasd_err *err) {
    return blasd_launch(large_step<T>, spread(l, (int64_t)l->n * k / 256), dim3(256), 0,
                        l->job->stream, err, l->n, k, OF(T, l->x), OF(T, l->d), *mask, (int)back);
}

/* What a step has brought for column c: false: less than nothing. */
static bool judge(const struct solve_large *l, struct large_block *block, int c, int step,
                  double error, double size) {
    const double u = unit_of(l);
    double ratio = size / block->last[c], least = l->state.contraction;
    if (!(error < block->error[c] || error <= 2 * u)) {
        block->done[c] = true;
        return false;
    }
    block->error[c] = error;
    block->steps[c] = step;
    block->last[c] = size;
    if (step == 1 || ratio < least) ratio = fmax(ratio, fmin(least, 0.5));
    block->converged[c] = error <= 2 * u && size * ratio <= u / 4;
    block->done[c] = block->converged[c] || !(ratio <= 0.5);
    return true;
}

/* One step of refinement of the columns that are not done. */
template <class T>
static int refine_once(struct solve_large *l, struct large_block *block, int step,
                       struct blasd_err *err) {
    size_t bytes = (size_t)l->n * (size_t)block->k * sizeof(T);
    const struct large_column *before = OF(const struct large_column, l->pinned);
    const struct large_column *sizes = before + LARGE_COLUMNS;
    struct large_mask tried = {}, back = {};
    bool any = false;
    TRY(l->job->calls->copy_within(l->job->stream, l->d, l->r, bytes, err));
    TRY(large_matrix_apply(l, l->d, block->k, false, err));
    TRY(ask_sizes<T>(l, block->k, l->x, 0, err));
    for (int c = 0; c < block->k; c++)
        if (!block->done[c]) tried.bits[c / 64] |= UINT64_C(1) << c % 64;
    TRY(move<T>(l, block->k, &tried, false, err));
    TRY(residual_extended<T>(l, block->k, err));
    TRY(ask_sizes<T>(l, block->k, l->x, 1, err));
    TRY(large_wait(l, err));
    for (int c = 0; c < block->k; c++) {
        double error = error_of(l, &sizes[c], block->norm_b[c]);
        if (block->done[c] || judge(l, block, c, step, error, before[c].d / before[c].x)) continue;
        back.bits[c / 64] |= UINT64_C(1) << c % 64;
        any = true;
    }
    return any ? move<T>(l, block->k, &back, true, err) : 0;
}

/* Solves a block with the factors at hand and refines it. */
template <class T>
static int solve_block(struct solve_large *l, struct large_block *block, struct blasd_err *err) {
    size_t bytes = (size_t)l->n * (size_t)block->k * sizeof(T);
    const struct large_column *sizes = OF(const struct large_column, l->pinned);
    int most = l->batch.shape.refinement == BLASD_REFINE_NONE ? 0 : SOLVE_STEPS;
    bool all = true;
    TRY(l->job->calls->copy_within(l->job->stream, l->x, l->b, bytes, err));
    TRY(large_matrix_apply(l, l->x, block->k, false, err));
    TRY(residual_extended<T>(l, block->k, err));
    TRY(ask_sizes<T>(l, block->k, l->x, 0, err));
    TRY(large_wait(l, err));
    for (int c = 0; c < block->k; c++) {
        block->error[c] = error_of(l, &sizes[c], block->norm_b[c]);
        block->steps[c] = 0;
        block->last[c] = 1;
        block->converged[c] = sizes[c].r == 0 && block->error[c] <= unit_of(l);
        block->done[c] = block->converged[c] || !std::isfinite(block->error[c]);
        all = all && block->done[c];
    }
    for (int step = 1; step <= most && !all; step++) {
        TRY(large_go_on(l, 0.9, err));
        TRY(refine_once<T>(l, block, step, err));
        all = true;
        for (int c = 0; c < block->k; c++) all = all && block->done[c];
    }
    return 0;
}

/* What came of a block's columns; those of which one is the host's are all. */
static void take_block(const struct solve_large *l, const struct large_block *block,
                       struct solve_outcome *outcome) {
    const double u = unit_of(l), safe = safe_of(l);
    for (int c = 0; c < block->k; c++) {
        double b = block->norm_b[c];
        bool good = std::isfinite(block->error[c]) && b < safe && (b > 1 / safe || b == 0);
        if (l->batch.shape.refinement != BLASD_REFINE_NONE)
            good =
                good && block->error[c] <= 3 * u && (block->steps[c] == 0 || block->converged[c]);
        outcome->left = outcome->left || !good;
        outcome->settled = outcome->settled && (block->converged[c] || block->last[c] <= 4 * u);
        if (block->steps[c] > outcome->steps) outcome->steps = block->steps[c];
        if (!(block->error[c] <= outcome->error)) outcome->error = block->error[c];
    }
}

/* ---- systems ---- */

template <class T>
static int run_columns(struct solve_large *l, const T *b, T *x, struct solve_outcome *outcome,
                       struct blasd_err *err) {
    struct large_block *block = l->columns_at_work;
    int columns = l->batch.shape.columns;
    for (int first = 0; first < columns && !outcome->left; first += l->block) {
        memset(block, 0, sizeof *block);
        block->first = first;
        block->k = columns - first < l->block ? columns - first : l->block;
        TRY(load_block<T>(l, block, b, err));
        TRY(solve_block<T>(l, block, err));
        TRY(blasd_launch(large_store_x<T>, spread(l, (int64_t)l->n * block->k / 256), dim3(256), 0,
                         l->job->stream, err, l->batch.shape, OF(const T, l->x), block->k,
                         x + block->first));
        take_block(l, block, outcome);
        TRY(large_go_on(l, 0.9 + 0.1 * (first + block->k) / columns, err));
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
    struct solve_outcome outcome = {0, 0, false, true};
    l->system = system;
    if (l->a != a) {
        l->a = a;
        TRY(large_go_on(l, 0, err));
        TRY(large_matrix_load(l, err));
        if (!l->state.left) TRY(large_matrix_factor(l, err));
    }
    outcome.left = l->state.left;
    TRY(run_columns<T>(l, b, x, &outcome, err));
    return blasd_launch(large_report<T>, dim3(1), dim3(1), 0, l->job->stream, err, *batch, system,
                        l->state, outcome);
}

int solve_large_compute(struct blasd_cuda_job *job, struct solve_large *l, struct blasd_err *err) {
    int code = blasd_cuda_host_pinned(job, l->pinned_bytes, &l->pinned, err);
    l->job = job;
    l->sending = true; /* by whoever had it before */
    for (int64_t s = 0; code == 0 && s < l->batch.total; s++)
        code = l->single ? run_system<float>(l, s, err) : run_system<double>(l, s, err);
    return code;
}

/* ---- memory ---- */

static int find_work(struct solve_large *l, struct blasd_err *err) {
    const struct blasd_gpu_library *calls = l->job->calls;
    bool definite = l->batch.shape.assume == BLASD_ASSUME_POSITIVE_DEFINITE;
    int n = l->n;
    TRY(definite ? calls->potrf_size(l->job->stream, l->dtype, false, n, n, &l->work_bytes,
                                     &l->host_bytes, err)
                 : calls->getrf_size(l->job->stream, l->dtype, n, n, n, &l->work_bytes,
                                     &l->host_bytes, err));
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
    return blasd_cuda_host(l->job, sizeof *l->columns_at_work, (void **)&l->columns_at_work, err);
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
    tall = n * (size_t)l->block * size;
    TRY(blasd_cuda_take(job, n * n * size, &l->matrix, err));
    TRY(blasd_cuda_take(job, n * n * size, &l->factors, err));
    TRY(blasd_cuda_take(job, tall, &l->x, err));
    TRY(blasd_cuda_take(job, tall, &l->b, err));
    TRY(blasd_cuda_take(job, tall, &l->r, err));
    TRY(blasd_cuda_take(job, tall, &l->d, err));
    TRY(blasd_cuda_take(job, n * 2 * LARGE_TOGETHER * (size_t)l->parts * sizeof(double),
                        (void **)&l->pairs, err));
    TRY(blasd_cuda_take(job, 4 * n * sizeof(double), (void **)&l->sizes, err));
    TRY(blasd_cuda_take(job, LARGE_COLUMNS * sizeof *l->columns, (void **)&l->columns, err));
    TRY(blasd_cuda_take(job, n * sizeof *l->pivots, (void **)&l->pivots, err));
    TRY(blasd_cuda_take(job, sizeof *l->info, (void **)&l->info, err));
    TRY(blasd_cuda_take(job, sizeof *l->unsymmetric, (void **)&l->unsymmetric, err));
    TRY(blasd_cuda_take(job, sizeof *l->most, (void **)&l->most, err));
    TRY(find_work(l, err));
    return take_host(l, err);
}
