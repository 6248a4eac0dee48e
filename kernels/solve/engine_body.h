/* The engine: one system at a time, of any structure, with the care that the lanes do not take.
 * Included once for each precision with REAL, LAPACK(name), CBLAS(name), NAME(name), UNIT, SAFE and
 * NAME(residual) defined.
 *
 * Scale by powers of two where the rows or columns differ much, factor, estimate the condition,
 * then for blocks of right-hand sides solve and refine with residuals in twice the precision. Where
 * that leaves the bound (pivots that grew), factor again by Householder QR. README.md has the
 * reasons and the bounds. Read next: scale_body.h. */

#include "kernels/solve/scale_body.h"

#include "kernels/solve/factor_body.h"

static bool prepare(struct blasd_engine *e, const REAL *a);

#include "kernels/solve/condition_body.h"

#include "kernels/solve/refine_body.h"

static void load(struct blasd_engine *e, const REAL *a) {
    if (is_symmetric(e))
        load_symmetric(e, a);
    else
        load_general(e, a);
}

/* Everything about a matrix whose factors were kept: at most its scales are made again. */
static bool restore(struct blasd_engine *e, const REAL *a) {
    bool as_kept = blasd_kept_restore(e);
    memset(e->row_scale, 0, (size_t)e->n * sizeof(int));
    memset(e->column_scale, 0, (size_t)e->n * sizeof(int));
    if (as_kept) {
        e->matrix = a;
    } else {
        load(e, a);
        if (e->scaled) scale_matrix(e);
        (void)blasd_kept_restore(e); /* what the two have overwritten */
    }
    e->factored = a;
    return blasd_wanted();
}

/* Everything about the matrix. False: stopped. */
static bool prepare(struct blasd_engine *e, const REAL *a) {
    bool going = true;
    e->matrix = e->own_matrix;
    e->factors = e->own_factors;
    e->factored = NULL;
    e->singular = true;
    e->unsymmetric = false;
    e->rcond = 0;
    if (e->kept != NULL) return restore(e, a);
    load(e, a);
    scale_matrix(e);
    if (!blasd_wanted()) return false;
    switch (e->shape.assume) {
    case BLASD_ASSUME_GENERAL:
        e->method = BLASD_SOLVED_LU;
        going = factor_lu(e);
        break;
    case BLASD_ASSUME_SYMMETRIC:
        e->method = BLASD_SOLVED_LDLT;
        going = factor_symmetric(e);
        break;
    case BLASD_ASSUME_POSITIVE_DEFINITE:
        e->method = BLASD_SOLVED_CHOLESKY;
        going = factor_cholesky(e);
        break;
    case BLASD_ASSUME_LOWER_TRIANGULAR:
    case BLASD_ASSUME_UPPER_TRIANGULAR:
        e->method = BLASD_SOLVED_TRIANGULAR;
        factor_triangle(e);
        break;
    case BLASD_ASSUME_HERMITIAN: return false; /* of complex systems alone: embedding.c */
    }
    if (!going || !blasd_wanted()) return false;
    if (e->info == 0) estimate_rcond(e);
    e->factored = a;
    return blasd_wanted();
}

static bool refactor(struct blasd_engine *e, const REAL *a) {
    return e->factored == a || prepare(e, a);
}

static bool is_open(const struct blasd_engine *e) {
    return blasd_solve_is_open((double)e->n, (double)UNIT, e->rcond, e->contraction);
}

/* The block's columns, to their end; sums up what came of them. */
static bool run_block(struct blasd_engine *e, struct blasd_system *system,
                      struct blasd_block *block) {
    bool open;
    if (!refactor(e, system->a)) return false;
    load_block(e, block);
    solve_block(e, block);
    if (!blasd_wanted()) return false;
    open = is_open(e);
    if (!good_enough(e, block)) {
        solve_block_qr(e, block, block + 1);
        if (e->factored != NULL) open = is_open(e);
    }
    e->open = e->open || open;
    store_block(e, block);
    for (lapack_int c = 0; c < block->k; c++) {
        if (!(block->error[c] <= system->error)) system->error = block->error[c];
        if (block->steps[c] > system->steps) system->steps = block->steps[c];
        system->settled =
            system->settled && (block->converged[c] || block->last[c] <= 4 * (double)UNIT);
    }
    if (e->method == BLASD_SOLVED_QR) system->method = BLASD_SOLVED_QR;
    system->rcond = e->rcond;
    return blasd_wanted();
}

/* What is known before any right-hand side. */
static void take_prepared(const struct blasd_engine *e, struct blasd_system *system) {
    system->info = e->info;
    system->singular = e->singular;
    system->unsymmetric = e->unsymmetric;
    system->rcond = e->info == 0 ? e->rcond : 0;
    system->method = e->info == 0 ? e->method : BLASD_SOLVED_NOT;
}

bool NAME(blasd_engine_factor)(struct blasd_engine *e, struct blasd_system *system) {
    e->kept = NULL;
    if (!refactor(e, system->a)) return false;
    take_prepared(e, system);
    system->doubtful = e->info == 0 && is_open(e) && unproven(e);
    return blasd_wanted();
}

bool NAME(blasd_engine_run)(struct blasd_engine *e, struct blasd_system *system) {
    struct blasd_block *block = e->blocks;
    int64_t columns = e->shape.columns, done = 0;
    bool going = true;
    system->steps = 0;
    system->error = 0;
    system->doubtful = e->open = false;
    system->settled = true;
    e->kept = system->kept;
    if (!refactor(e, system->a)) return false;
    take_prepared(e, system);
    if (e->info != 0) {
        REAL *x = system->x;
        for (int64_t i = 0; i < e->shape.n * columns && blasd_wanted_after(&done, 1); i++)
            x[i] = (REAL)NAN;
        system->error = NAN;
        return true;
    }
    for (int64_t c = 0; going && c < columns; c += e->block) {
        memset(block, 0, sizeof *block);
        block->system = system;
        block->first = c;
        block->k = columns - c < e->block ? (lapack_int)(columns - c) : e->block;
        going = run_block(e, system, block) &&
                blasd_engine_step(e, 0.9 + 0.1 * (double)(c + block->k) / (double)columns);
    }
    if (going && e->open) {
        if (!refactor(e, system->a)) return false; /* QR may have left nothing */
        system->doubtful = unproven(e);
    }
    /* the next system with this matrix begins as this one did, not with QR */
    if (e->method == BLASD_SOLVED_QR) e->factored = NULL;
    return going;
}
