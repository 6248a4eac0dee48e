/* Systems that the precision of their dtype leaves in doubt, for every backend, on the host: they
 * are solved again by LU in long double, of the matrix as it stands and then of the scaled one,
 * refined with residuals in twice that. These are
 *
 * - systems whose factors may know nothing of the inverse, or whose refinement did not come to
 * rest;
 * - systems that were called singular, for a pivot became 0, and need not be;
 * - right-hand sides whose small elements of x are lost beside larger ones. Norms say nothing of
 *   them; their equations do: x solves exactly a system whose every element is off by at most w =
 *   max |b - A x|i / (|A| |x| + |b|)i of itself (Oettli and Prager), which no scale changes.
 *
 * What is decided of a system depends on that system alone. Read next: README.md, extended.h. */
#include "kernels/solve/recheck.h"

#include "core/wanted.h"
#include "kernels/cpu/cpu.h"
#include "kernels/solve/element.h"
#include "kernels/solve/extended.h"
#include "kernels/solve/solve_report.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MOST_WORK 0x1p27      /* elements that the right-hand sides of one system go through */
#define LOST 0x1p-4           /* of a row's size: with a larger error no digit need be right */
#define ENOUGH_SINGLE 0x1p-20 /* of w: with less, x is right as it is */
#define ENOUGH 0x1p-48
#define BETTER 0x1p-4 /* what is computed again must be, against what was there */
#define RIM 0x1p30    /* normal numbers below the least of them times this may have lost some */

/* A system of the batch, and what is known of its right-hand sides. */
struct item {
    int64_t at, a_at, b_at; /* its number; where its operands begin */
    int *flags;
    double *off; /* of each column: w of the x that is there, INFINITY in doubt; 0: it stays */
};

static int64_t x_start(const struct extended *look, const struct item *item) {
    return item->at * look->n * look->solve->columns;
}

static void put_x(struct extended *look, const struct item *item, int64_t k) {
    const struct blasd_tensor *x = &look->task->outputs[BLASD_SOLVE_X];
    int64_t at = x_start(look, item) + k, step = look->solve->columns;
    for (int64_t i = 0; i < look->n; i++) {
        if (extended_single(look))
            ((float *)x->data)[at + i * step] = (float)look->x[i];
        else
            ((double *)x->data)[at + i * step] = (double)look->x[i];
    }
}

/* look->x as the answer will have it. False: beyond its range. */
static bool round_x(struct extended *look) {
    bool finite = true;
    for (int64_t i = 0; i < look->n; i++) {
        double value = (double)look->x[i];
        look->x[i] = (long double)(extended_single(look) ? (double)(float)value : value);
        finite = finite && isfinite(look->x[i]);
    }
    return finite;
}

/* w of the x that is there, for column k. */
static double off_of(const struct extended *look, const struct item *item, int64_t k) {
    const struct blasd_tensor *x = &look->task->outputs[BLASD_SOLVE_X];
    const struct blasd_tensor *a = &look->task->inputs[BLASD_SOLVE_A];
    const struct blasd_tensor *b = &look->task->inputs[BLASD_SOLVE_B];
    int64_t b_at = item->b_at + k * look->layout.b_column, x_at = x_start(look, item) + k;
    long double most = 0;
    for (int64_t i = 0; i < look->n; i++) {
        long double r = solve_element(b, b_at + i * look->layout.b_row), size = fabsl(r);
        for (int64_t j = 0; j < look->n; j++) {
            long double product =
                (long double)solve_matrix_element(&look->layout, a, item->a_at, i, j) *
                solve_element(x, x_at + j * look->solve->columns);
            r -= product;
            size += fabsl(product);
        }
        if (r != 0 && !(fabsl(r) <= most * size)) most = fabsl(r) / size;
    }
    return (double)most;
}

/* The least and the largest size that is not 0 in a column of x, and whether one is 0. False:
 * something is not finite. */
static bool sizes_of(const struct blasd_tensor *x, int64_t at, int64_t step, int64_t n,
                     double *least, double *most, bool *zeros) {
    double all = 0;
    *zeros = false;
    *least = INFINITY;
    *most = 0;
    for (int64_t i = 0; i < n; i++) {
        double size = fabs(solve_element(x, at + i * step));
        all += 0 * size;
        *zeros = *zeros || size == 0;
        if (size != 0 && size < *least) *least = size;
        if (size > *most) *most = size;
    }
    return all == 0;
}

static bool all_zero(const struct blasd_tensor *b, int64_t at, int64_t step, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        if (solve_element(b, at + i * step) != 0) return false;
    return true;
}

/* Whether the system as a whole is to be solved again. What is to be positive definite must be more
 * than regular; a triangle's pivots are what was sent. */
static bool in_doubt(const struct blasd_solve *s, int64_t info, int flags) {
    bool triangle =
        s->assume == BLASD_ASSUME_LOWER_TRIANGULAR || s->assume == BLASD_ASSUME_UPPER_TRIANGULAR;
    if (info != 0)
        return (flags & BLASD_SOLVE_SINGULAR) != 0 && !triangle &&
               s->assume != BLASD_ASSUME_POSITIVE_DEFINITE;
    return (flags & BLASD_SOLVE_DOUBTFUL) != 0 ||
           ((flags & BLASD_SOLVE_SETTLED) == 0 && s->refinement != BLASD_REFINE_NONE);
}

bool blasd_solve_is_even(const struct blasd_task *task, const struct blasd_solve *s,
                         const int *flags, double least, double most, bool zeros) {
    bool single = task->outputs[BLASD_SOLVE_X].dtype == BLASD_float32;
    const int64_t *info = task->outputs[BLASD_SOLVE_INFO].data;
    double normal = single ? (double)FLT_MIN : DBL_MIN;
    for (int64_t i = 0; i < s->batch_count; i++)
        if (in_doubt(s, info[i], flags[i])) return false;
    return !zeros && least >= normal * RIM && most <= extended_spread_of(single) * least;
}

/* Finds the columns whose small elements may be lost; *vanished: what those below the range may
 * have lost. Returns how many there are. */
static int64_t find_lost(struct extended *look, const struct item *item, double *vanished) {
    const struct blasd_tensor *x = &look->task->outputs[BLASD_SOLVE_X];
    const struct blasd_tensor *b = &look->task->inputs[BLASD_SOLVE_B];
    double normal = extended_single(look) ? (double)FLT_MIN : DBL_MIN;
    double half = extended_single(look) ? (double)FLT_TRUE_MIN / 2 : DBL_TRUE_MIN;
    int64_t count = 0;
    for (int64_t k = 0; k < look->solve->columns && blasd_wanted(); k++) {
        double least, most;
        bool zeros;
        item->off[k] = 0;
        if (!sizes_of(x, x_start(look, item) + k, look->solve->columns, look->n, &least, &most,
                      &zeros))
            continue;
        if (most < normal * RIM) {
            blasd_task_make_inputs(look->task);
            if (all_zero(b, item->b_at + k * look->layout.b_column, look->layout.b_row, look->n))
                continue;
            *vanished = fmax(*vanished, most > 0 ? fmin(half / most, 1) : 1);
            if (most < normal) *item->flags |= BLASD_SOLVE_VANISHED;
            continue;
        }
        if (!(most > extended_spread(look) * least || zeros)) continue;
        blasd_task_make_inputs(look->task);
        item->off[k] = off_of(look, item, k);
        if (item->off[k] <= (extended_single(look) ? ENOUGH_SINGLE : ENOUGH)) item->off[k] = 0;
        count += item->off[k] > 0;
    }
    return count;
}

/* Column k by the factors at hand, in place of what is there if that is better; *any: errors of the
 * last digit may change all of it. */
static void solve_column(struct extended *look, const struct item *item, int64_t k, bool *any) {
    const struct blasd_tensor *b = &look->task->inputs[BLASD_SOLVE_B];
    double *error = look->task->outputs[BLASD_SOLVE_BACKWARD_ERROR].data, now, after;
    for (int64_t i = 0; i < look->n; i++)
        look->b[i] = (long double)solve_element(b, item->b_at + k * look->layout.b_column +
                                                       i * look->layout.b_row);
    extended_solve(look, look->sizes);
    if (!look->still) return;
    extended_off(look, &now);
    if (any != NULL) *any = *any || extended_may_be_any(look);
    if (!round_x(look)) {
        now = INFINITY;
        after = 0; /* it is what it is */
    } else {
        after = extended_off(look, &now);
    }
    if (!(after <= item->off[k] * BETTER)) return;
    put_x(look, item, k);
    error[item->at] = fmax(error[item->at], now);
    blasd_solve_put(look->task, BLASD_SOLVE_METHOD, item->at, 0, BLASD_SOLVED_LU);
    item->off[k] = after;
}

/* The columns that need it once more, by both ways of factors. `doubt`: all of them, and whether
 * the system has a solution at all. Returns whether it has one that the last digits do not decide.
 */
static bool solve_again(struct extended *look, const struct item *item, bool doubt) {
    double enough = extended_single(look) ? ENOUGH_SINGLE : ENOUGH;
    bool any = false, left = true;
    for (int how = AS_IT_STANDS; how <= SCALED && left && blasd_wanted(); how++) {
        bool regular = extended_factor(look, (enum extended_way)how);
        left = false;
        for (int64_t k = 0; k < look->solve->columns && blasd_wanted(); k++) {
            if (item->off[k] == 0 || item->off[k] <= enough) continue;
            if (regular) solve_column(look, item, k, doubt ? &any : NULL);
            left = left || item->off[k] > enough;
        }
    }
    for (int64_t k = 0; k < look->solve->columns; k++) {
        if (isinf(item->off[k]))
            any = true;
        else if (item->off[k] >= LOST)
            *item->flags |= BLASD_SOLVE_LOST;
    }
    return !any;
}

static void forget_x(struct extended *look, const struct item *item) {
    for (int64_t i = 0; i < look->n; i++) look->x[i] = (long double)NAN;
    for (int64_t k = 0; k < look->solve->columns; k++) put_x(look, item, k);
}

/* A system that is in doubt as a whole. */
static void settle(struct extended *look, const struct item *item) {
    struct blasd_task *task = look->task;
    bool refused = ((int64_t *)task->outputs[BLASD_SOLVE_INFO].data)[item->at] != 0, solved;
    double *error = task->outputs[BLASD_SOLVE_BACKWARD_ERROR].data, before;
    for (int64_t k = 0; k < look->solve->columns; k++) item->off[k] = INFINITY;
    before = error[item->at];
    error[item->at] = 0;
    solved = solve_again(look, item, true);
    if (solved) {
        *item->flags |= BLASD_SOLVE_SETTLED;
        *item->flags &= ~(BLASD_SOLVE_DOUBTFUL | (refused ? BLASD_SOLVE_SINGULAR : 0));
    } else if (!refused) {
        *item->flags |= BLASD_SOLVE_DOUBTFUL;
        for (int64_t k = 0; k < look->solve->columns; k++) /* an x that stays */
            if (isinf(item->off[k])) error[item->at] = fmax(error[item->at], before);
    } else {
        forget_x(look, item);
        error[item->at] = NAN;
        blasd_solve_put(task, BLASD_SOLVE_METHOD, item->at, 0, BLASD_SOLVED_NOT);
    }
    if (!refused || !solved) return;
    blasd_solve_put(task, BLASD_SOLVE_INFO, item->at, 0, 0);
    blasd_solve_put(task, BLASD_SOLVE_RCOND, item->at, extended_rcond(look), 0);
}

/* One system. False: no memory. */
static bool look_at_system(struct extended *look, const struct item *item) {
    const struct blasd_solve *s = look->solve;
    int64_t info = ((const int64_t *)look->task->outputs[BLASD_SOLVE_INFO].data)[item->at];
    double vanished = 0;
    bool doubt = in_doubt(s, info, *item->flags);
    int64_t lost = info == 0 ? find_lost(look, item, &vanished) : 0;
    bool fits = s->n <= BLASD_RECHECK_N && (double)(s->n * s->n) * (double)s->columns <= MOST_WORK;
    if ((doubt || lost > 0) && fits) {
        blasd_task_make_inputs(look->task);
        if (look->matrix == NULL && !extended_make(look)) return false;
        extended_load(look, item->a_at);
    }
    if (doubt && fits)
        settle(look, item);
    else if (lost > 0 && fits)
        solve_again(look, item, false);
    for (int64_t k = 0; info == 0 && !fits && lost > 0 && k < s->columns; k++)
        if (item->off[k] >= LOST) *item->flags |= BLASD_SOLVE_LOST;
    if (vanished > 0) {
        double *error = look->task->outputs[BLASD_SOLVE_BACKWARD_ERROR].data;
        error[item->at] = fmin(error[item->at] + vanished, 1);
    }
    return true;
}

int blasd_solve_recheck(struct blasd_task *task, const struct blasd_solve *s, int *flags,
                        struct blasd_err *err) {
    struct extended look = {.solve = s, .task = task, .n = s->n};
    struct blasd_walk walk;
    double *off;
    int64_t done = 0;
    bool room;
    if (s->n == 0 || s->batch_count == 0) return 0;
    off = blasd_cpu_alloc((size_t)s->columns, sizeof *off);
    room = off != NULL;
    look.layout = blasd_solve_layout(s, &task->inputs[BLASD_SOLVE_A], &task->inputs[BLASD_SOLVE_B]);
    blasd_walk_init(&walk, s->batch_rank, s->batch);
    blasd_walk_operand(&walk, 0, s->a_rank, s->a_batch);
    blasd_walk_operand(&walk, 1, s->b_rank, s->b_batch);
    for (int64_t at = 0; at < s->batch_count && room; at++) {
        struct item item = {.at = at,
                            .a_at = walk.offset[0] * s->n * s->n,
                            .b_at = walk.offset[1] * s->n * s->columns,
                            .flags = flags + at,
                            .off = off};
        if (!blasd_wanted_after(&done, 4 * s->n * s->columns)) break;
        room = look_at_system(&look, &item);
        blasd_walk_next(&walk);
    }
    extended_free(&look);
    free(off);
    return room ? 0 : blasd_fail(err, BLASD_E_out_of_memory, "", "no memory to look at x again");
}
