/* The engine's inside, shared by its two precisions. Read next: engine_body.h. */
#ifndef BLASD_KERNELS_ENGINE_H
#define BLASD_KERNELS_ENGINE_H

#include "kernels/solve/systems.h"

#include <lapacke.h>

#define BLASD_ENGINE_COLUMNS 256 /* right-hand sides worked on together, at most */

/* One block of right-hand sides while it is worked on. */
struct blasd_block {
    const struct blasd_system *system;
    int64_t first;                            /* its first column in the job's b */
    lapack_int k;                             /* columns */
    int exponent[BLASD_ENGINE_COLUMNS];       /* see load_block */
    long double norm_b[BLASD_ENGINE_COLUMNS]; /* of R^-1 b', in the units of b' */
    /* backward errors now and before refinement; sizes of the last correction against x, which is
     * 1 for x itself */
    double error[BLASD_ENGINE_COLUMNS], first_error[BLASD_ENGINE_COLUMNS];
    double last[BLASD_ENGINE_COLUMNS];
    int steps[BLASD_ENGINE_COLUMNS];
    bool light[BLASD_ENGINE_COLUMNS]; /* whose last residual was updated in plain arithmetic */
    bool done[BLASD_ENGINE_COLUMNS], converged[BLASD_ENGINE_COLUMNS];
};

/* Arrays are of the engine's precision unless they say double. Matrices are column-major, n x n or
 * n x block. The system that is solved is the scaled one, (R A C) x' = R b 2^-e, where R and C are
 * powers of two whose exponents are row_scale and column_scale, so that scaling rounds nothing. */
struct blasd_engine {
    struct blasd_systems shape;
    bool single;
    int threads;                     /* for one system; 0 is 1 */
    lapack_int n, block;             /* block: right-hand sides that are worked on together */
    struct blasd_engine_room *room;  /* owned: what the two matrices lie in */
    const struct blasd_tensor *kept; /* borrowed while a system runs: its factors; NULL: none */
    const void *matrix;              /* borrowed: R A C, full, whatever the structure */
    void *factors;                   /* borrowed */
    void *own_matrix, *own_factors;  /* borrowed from `room`: where they are made */
    void *tau;                       /* owned: of QR */
    void *x, *b, *r, *d;             /* owned: n x block each */
    void *work;                      /* owned: work_size elements */
    lapack_int work_size;
    double *v, *sign; /* owned: n, for the condition estimate */
    double *sum;      /* owned: n, for norms and conditions */
    lapack_int *pivots;
    int *row_scale, *column_scale; /* owned: n */
    bool scaled;
    long double norm_inf, norm_1; /* of A itself */
    double most;                  /* largest element of R A C */
    const void *factored;         /* borrowed: the matrix the rest of this is about; NULL: none */
    bool singular, unsymmetric;
    int64_t info;
    double rcond;       /* of A */
    double own_rcond;   /* of R A C */
    bool open;          /* whether the condition of what was solved with leaves it open that A is
                           singular */
    double contraction; /* by how much a step of refinement shrinks the error, at worst or so */
    enum blasd_solve_method method;
    struct blasd_block *blocks; /* owned: two, the second for what QR makes of the first */
    struct blasd_watch *watch;  /* borrowed while a system runs; may be NULL */
    double from, to;
};

bool blasd_engine_factor_f64(struct blasd_engine *engine, struct blasd_system *system);
bool blasd_engine_factor_f32(struct blasd_engine *engine, struct blasd_system *system);
bool blasd_engine_run_f64(struct blasd_engine *engine, struct blasd_system *system);
bool blasd_engine_run_f32(struct blasd_engine *engine, struct blasd_system *system);

/* Asks the watch; `share` of this system's work is done. */
bool blasd_engine_step(struct blasd_engine *engine, double share);
/* The Hager-Higham estimate of the 1-norm of the inverse: `apply` multiplies v by the inverse, or
 * by its transpose, in place. */
double blasd_engine_norm_inverse(struct blasd_engine *engine,
                                 void (*apply)(struct blasd_engine *engine, double *v,
                                               bool transposed));

#endif
