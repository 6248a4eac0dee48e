/* What the engine's two precisions share: its memory, and the condition estimate.
 * Read next: engine_body.h. */
#include "kernels/solve/engine.h"

#include <math.h>
#include <stdlib.h>

#define WORK_COLUMNS 64 /* LAPACK's own block size is at most this */
#define ESTIMATE_ROUNDS 5

static lapack_int block_of(int64_t columns) {
    return columns < 1                      ? 1
           : columns < BLASD_ENGINE_COLUMNS ? (lapack_int)columns
                                            : BLASD_ENGINE_COLUMNS;
}

uint64_t blasd_engine_bytes(int64_t n, int64_t columns, bool single) {
    uint64_t size = single ? 4 : 8, rows = (uint64_t)n, block = (uint64_t)block_of(columns);
    return size * (2 * rows * rows + 4 * rows * block + (WORK_COLUMNS + 1) * rows) + 48 * rows;
}

struct blasd_engine *blasd_engine_new(const struct blasd_systems *shape, bool single) {
    size_t size = single ? sizeof(float) : sizeof(double), n = (size_t)shape->n, block;
    struct blasd_engine *e = calloc(1, sizeof *e);
    if (e == NULL) return NULL;
    e->shape = *shape;
    e->single = single;
    e->threads = shape->threads;
    e->n = (lapack_int)shape->n;
    e->block = block_of(shape->columns);
    block = (size_t)e->block;
    e->work_size = (lapack_int)(n * WORK_COLUMNS);
    e->matrix = blasd_cpu_alloc(n * n, size);
    e->factors = blasd_cpu_alloc(n * n, size);
    e->tau = blasd_cpu_alloc(n, size);
    e->x = blasd_cpu_alloc(n * block, size);
    e->b = blasd_cpu_alloc(n * block, size);
    e->r = blasd_cpu_alloc(n * block, size);
    e->d = blasd_cpu_alloc(n * block, size);
    e->work = blasd_cpu_alloc(n * WORK_COLUMNS, size);
    e->v = blasd_cpu_alloc(2 * n, sizeof(double));
    e->sum = blasd_cpu_alloc(2 * n, sizeof(double));
    e->pivots = blasd_cpu_alloc(n, sizeof *e->pivots);
    e->row_scale = blasd_cpu_alloc(2 * n, sizeof(int));
    e->blocks = blasd_cpu_alloc(2, sizeof *e->blocks);
    if (e->blocks == NULL || e->matrix == NULL || e->factors == NULL || e->tau == NULL ||
        e->x == NULL || e->b == NULL || e->r == NULL || e->d == NULL || e->work == NULL ||
        e->v == NULL || e->sum == NULL || e->pivots == NULL || e->row_scale == NULL) {
        blasd_engine_free(e);
        return NULL;
    }
    e->sign = e->v + n;
    e->rest = e->sum + n;
    e->column_scale = e->row_scale + n;
    return e;
}

void blasd_engine_free(struct blasd_engine *e) {
    if (e == NULL) return;
    free(e->matrix);
    free(e->factors);
    free(e->tau);
    free(e->x);
    free(e->b);
    free(e->r);
    free(e->d);
    free(e->work);
    free(e->v);
    free(e->sum);
    free(e->pivots);
    free(e->row_scale);
    free(e->blocks);
    free(e);
}

bool blasd_engine_run(struct blasd_engine *e, struct blasd_system *system,
                      struct blasd_watch *watch, double from, double to) {
    e->watch = watch;
    e->from = from;
    e->to = to;
    return e->single ? blasd_engine_run_f32(e, system) : blasd_engine_run_f64(e, system);
}

bool blasd_engine_step(struct blasd_engine *e, double share) {
    double progress = e->from + (e->to - e->from) * share;
    return e->watch == NULL || e->watch->go_on(e->watch, progress < e->to ? progress : e->to);
}

static double norm_1(const double *v, lapack_int n) {
    double sum = 0;
    for (lapack_int i = 0; i < n; i++) sum += fabs(v[i]);
    return sum;
}

static lapack_int largest(const double *v, lapack_int n) {
    lapack_int at = 0;
    for (lapack_int i = 1; i < n; i++)
        if (fabs(v[i]) > fabs(v[at])) at = i;
    return at;
}

/* Replaces v by its signs; whether they are the ones from last time. */
static bool take_signs(double *v, double *sign, lapack_int n) {
    bool same = true;
    for (lapack_int i = 0; i < n; i++) {
        v[i] = signbit(v[i]) ? -1 : 1;
        same = same && v[i] == sign[i];
        sign[i] = v[i];
    }
    return same;
}

/* Higham's algorithm (the one of LAPACK's xLACN2): climbs from column to column of the inverse to
 * one whose norm is as large as it can find, then tries a vector that the climb tends to miss. */
double blasd_engine_norm_inverse(struct blasd_engine *e,
                                 void (*apply)(struct blasd_engine *engine, double *v,
                                               bool transposed)) {
    lapack_int n = e->n, at, last;
    double *v = e->v, best, other;
    for (lapack_int i = 0; i < n; i++) v[i] = 1.0 / n;
    apply(e, v, false);
    best = norm_1(v, n);
    if (n == 1) return best;
    for (lapack_int i = 0; i < n; i++) e->sign[i] = 0;
    take_signs(v, e->sign, n);
    apply(e, v, true);
    at = largest(v, n);
    for (int round = 0; round < ESTIMATE_ROUNDS; round++) {
        for (lapack_int i = 0; i < n; i++) v[i] = 0;
        v[at] = 1;
        apply(e, v, false);
        other = norm_1(v, n);
        if (!(other > best)) break;
        best = other;
        if (take_signs(v, e->sign, n)) break;
        apply(e, v, true);
        last = at;
        at = largest(v, n);
        if (fabs(v[last]) == fabs(v[at])) break;
    }
    for (lapack_int i = 0; i < n; i++)
        v[i] = (i % 2 == 0 ? 1 : -1) * (1 + (double)i / (double)(n - 1));
    apply(e, v, false);
    other = 2 * norm_1(v, n) / (3.0 * n);
    /* a value that is not a number means that the factors are worthless: say so upwards */
    return other > best || isnan(other) ? other : best;
}
