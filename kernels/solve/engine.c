/* What the engine's two precisions share: its memory.
 * Read next: engine_body.h. */
#include "kernels/solve/engine.h"

#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>

#define WORK_COLUMNS 64 /* LAPACK's own block size is at most this */
#define KEPT_LEAST ((size_t)1 << 20)
#define KEPT_MOST ((size_t)64 << 20)

/* Memory for a matrix and its factors. One that has been used waits for the next engine, whichever
 * thread that is on: it is in the caches still, and the kernel need not be asked for it. glibc
 * gives back what does not fit into the first 64 MB of a thread's arena, which depends on what
 * the thread did before, and up to a fifth of a solve went into faulting it in again. */
struct blasd_engine_room {
    _Alignas(64) size_t bytes;
};

static _Atomic(struct blasd_engine_room *) spare; /* owned; NULL: none */

/* New: give it to leave_room. NULL: no memory. */
static struct blasd_engine_room *take_room(size_t bytes) {
    struct blasd_engine_room *room = NULL;
    if (bytes >= KEPT_LEAST) room = atomic_exchange(&spare, NULL);
    if (room != NULL && room->bytes >= bytes) return room;
    free(room);
    room = blasd_cpu_alloc(sizeof *room + bytes, 1);
    if (room != NULL) room->bytes = bytes;
    return room;
}

static void leave_room(struct blasd_engine_room *room) {
    if (room != NULL && room->bytes >= KEPT_LEAST && room->bytes <= KEPT_MOST)
        room = atomic_exchange(&spare, room);
    free(room);
}

static lapack_int block_of(int64_t columns) {
    return columns < BLASD_SOLVE_PROBES     ? BLASD_SOLVE_PROBES
           : columns < BLASD_ENGINE_COLUMNS ? (lapack_int)columns
                                            : BLASD_ENGINE_COLUMNS;
}

struct blasd_engine *blasd_engine_new(const struct blasd_systems *shape, bool single) {
    size_t size = single ? sizeof(float) : sizeof(double), n = (size_t)shape->n, block, one;
    struct blasd_engine *e = calloc(1, sizeof *e);
    if (e == NULL) return NULL;
    e->shape = *shape;
    e->single = single;
    e->threads = shape->threads;
    e->n = (lapack_int)shape->n;
    e->block = block_of(shape->columns);
    block = (size_t)e->block;
    e->work_size = (lapack_int)(n * WORK_COLUMNS);
    if (!__builtin_mul_overflow(n * size, n, &one) && one < SIZE_MAX / 4)
        e->room = take_room(2 * (one = (one + 63) / 64 * 64));
    if (e->room != NULL) {
        e->own_matrix = e->room + 1;
        e->own_factors = (char *)e->own_matrix + one;
    }
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
    if (e->blocks == NULL || e->room == NULL || e->tau == NULL || e->x == NULL || e->b == NULL ||
        e->r == NULL || e->d == NULL || e->work == NULL || e->v == NULL || e->sum == NULL ||
        e->pivots == NULL || e->row_scale == NULL) {
        blasd_engine_free(e);
        return NULL;
    }
    e->sign = e->v + n;
    e->column_scale = e->row_scale + n;
    return e;
}

void blasd_engine_free(struct blasd_engine *e) {
    if (e == NULL) return;
    leave_room(e->room);
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

bool blasd_engine_factor(struct blasd_engine *e, struct blasd_system *system,
                         struct blasd_watch *watch) {
    e->watch = watch;
    e->from = 0;
    e->to = 1;
    return e->single ? blasd_engine_factor_f32(e, system) : blasd_engine_factor_f64(e, system);
}

bool blasd_engine_run(struct blasd_engine *e, struct blasd_system *system,
                      struct blasd_watch *watch, double from, double to) {
    e->watch = watch;
    e->from = from;
    e->to = to;
    return e->single ? blasd_engine_run_f32(e, system) : blasd_engine_run_f64(e, system);
}
