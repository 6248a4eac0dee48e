/* What the engine's two precisions share: its memory.
 * Read next: engine_body.h. */
#include "kernels/solve/engine.h"

#include <stdlib.h>

#define WORK_COLUMNS 64 /* LAPACK's own block size is at most this */

static lapack_int block_of(int64_t columns) {
    return columns < 1                      ? 1
           : columns < BLASD_ENGINE_COLUMNS ? (lapack_int)columns
                                            : BLASD_ENGINE_COLUMNS;
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
    e->sum = blasd_cpu_alloc(n, sizeof(double));
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
