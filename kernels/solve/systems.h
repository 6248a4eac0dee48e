/* A linear system as the CPU's solvers see it, and the two solvers: `lanes` for many small
 * general systems side by side, `engine` for everything, one system at a time.
 *
 * Read next: lanes_body.h, engine_body.h. */
#ifndef BLASD_KERNELS_SYSTEMS_H
#define BLASD_KERNELS_SYSTEMS_H

#include "kernels/cpu/cpu.h"
#include "kernels/solve/solve.h"

/* What all systems of a batch share. Strides are in elements; op(a), which is a or its transpose,
 * is at (i, j) a[i * a_row + j * a_column]. Of a symmetric matrix the upper triangle is read. */
struct blasd_systems {
    int64_t n, columns;
    int64_t a_row, a_column, b_row, b_column; /* x is dense and row-major: (n, columns) */
    enum blasd_assume assume;                 /* of op(a): a transposed triangle is the other one */
    enum blasd_refinement refinement;
    int threads; /* of the engine, for one system; 0 is 1. The lanes have one */
};

/* One system: where it lies, and what came of it. */
struct blasd_system {
    const void *a, *b;               /* borrowed */
    const struct blasd_tensor *kept; /* borrowed: a's factors, for `engine` (kept.h); NULL: none */
    void *x;                         /* borrowed */
    int64_t info, steps;
    double rcond, error;
    enum blasd_solve_method method;
    bool singular;     /* with info > 0: else it is not positive definite */
    bool unsymmetric;  /* the triangle that is not read differs from the one that is */
    bool doubtful;     /* the factors may know nothing of the inverse */
    bool settled;      /* refinement came to rest for each right-hand side */
    bool leave_to_all; /* set by `lanes` where the system needs the engine's care */
};

/* What the systems of a task share; one of them, `walk` being at item `item`; writes what came of
 * it to its place in the outputs, and returns its flags. */
struct blasd_systems blasd_systems_of(const struct blasd_task *task, const struct blasd_solve *s);
struct blasd_system blasd_system_of(const struct blasd_task *task, const struct blasd_solve *s,
                                    const struct blasd_walk *walk, int64_t item);
int blasd_system_publish(struct blasd_task *task, int64_t item, const struct blasd_system *system);

/* ---- lanes: n up to BLASD_LANES_N, assume general ---- */

#define BLASD_LANES_N 40
#define BLASD_LANES_MAX 16

/* Systems side by side in one call on this machine (at most BLASD_LANES_MAX). */
int blasd_lanes_width(bool single);
/* Bytes of workspace, aligned to 64, for one call. */
size_t blasd_lanes_bytes(int64_t n);
/* Solves `count` systems, 1 to blasd_lanes_width(). Each gives the same bits whoever is beside it.
 */
void blasd_lanes_run_f64(const struct blasd_systems *shape, struct blasd_system *systems, int count,
                         void *work);
void blasd_lanes_run_f32(const struct blasd_systems *shape, struct blasd_system *systems, int count,
                         void *work);

/* ---- engine ---- */

struct blasd_engine;

/* New: free with blasd_engine_free. NULL where memory has run out. */
struct blasd_engine *blasd_engine_new(const struct blasd_systems *shape, bool single);
void blasd_engine_free(struct blasd_engine *engine); /* takes NULL */
/* Solves one system; factors are kept for a next one with the same matrix `a`. False: it is not
 * wanted any more. `watch`: told between parts of a large one; may be NULL. `from` and `to`: the
 * part of the batch's progress that this system is. */
bool blasd_engine_run(struct blasd_engine *engine, struct blasd_system *system,
                      struct blasd_watch *watch, double from, double to);
/* Factors the matrix alone, and fills what is known of it without a right-hand side. False: it is
 * not wanted any more. */
bool blasd_engine_factor(struct blasd_engine *engine, struct blasd_system *system,
                         struct blasd_watch *watch);

#endif
