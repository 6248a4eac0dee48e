/* Elements of x that are small beside others, for every backend, on the host.
 *
 * Norms say nothing of them. Their equations do: x solves exactly a system whose every element is
 * off by at most w = max |b - A x|i / (|A| |x| + |b|)i of itself (Oettli and Prager), which no
 * scale of rows or columns changes. Scaling rows and columns near 1 is right for most matrices and
 * wrong for some: where a block is small in its rows and in its columns, it makes small what was
 * not, and pivots from it drown the rest. So where w is large the system is solved once more as it
 * stands, by LU with partial pivoting in long double, whose exponents hold any product of four
 * doubles, and refined with residuals in twice that; and where that is not enough, scaled; what has
 * the smallest w is the answer.
 *
 * Only columns are looked at whose elements differ much; matrices that may be singular where
 * nothing has said so; and matrices of which it was said, for a pivot became 0, that need not be.
 * Read next: README.md. */
#include "kernels/solve/recheck.h"

#include "core/wanted.h"
#include "kernels/cpu/cpu.h"
#include "kernels/solve/element.h"
#include "kernels/solve/estimate.h"
#include "kernels/solve/extended.h"
#include "kernels/solve/solve_report.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MOST_WORK 0x1p27      /* elements of matrices that are gone through, for each job */
#define AGAIN_WORK 60         /* how often that is, when a column is solved again */
#define COLUMNS_WORK 0x1p31   /* for the right-hand sides of a matrix that may be singular */
#define LOST 0x1p-4           /* of a row's size: with a larger error no digit need be right */
#define ENOUGH_SINGLE 0x1p-20 /* of w: with less, x is right as it is */
#define ENOUGH 0x1p-48
#define BETTER 0x1p-4 /* what is computed again must be, against what was there */
#define RIM 0x1p30    /* normal numbers below the least of them times this may have lost some */

static void take_x(struct extended *look, const struct blasd_tensor *x, int64_t at, int64_t step) {
    for (int64_t i = 0; i < look->n; i++) look->x[i] = (long double)solve_element(x, at + i * step);
    memset(look->low, 0, (size_t)look->n * sizeof *look->low);
}

/* Puts look->x in place of what is there. */
static void put_x(struct extended *look, const struct blasd_tensor *x, int64_t at, int64_t step) {
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

/* Whether x in some column is far from where these factors lead, or too many columns are left to
 * tell; what is not quite there gets it. */
static bool x_is_far(struct extended *look, int64_t item, int64_t x_at, int64_t b_at) {
    const struct blasd_tensor *x = &look->task->outputs[BLASD_SOLVE_X];
    const struct blasd_tensor *b = &look->task->inputs[BLASD_SOLVE_B];
    double *error = look->task->outputs[BLASD_SOLVE_BACKWARD_ERROR].data, now;
    double most = look->work + COLUMNS_WORK;
    bool far = false;
    for (int64_t k = 0; k < look->solve->columns && blasd_wanted(); k++) {
        if (look->work > most) return true;
        long double *d = look->sizes, greatest_d = 0, greatest_x = 0;
        for (int64_t i = 0; i < look->n; i++)
            look->b[i] = (long double)solve_element(b, b_at + k * look->layout.b_column +
                                                           i * look->layout.b_row);
        take_x(look, x, x_at + k, look->solve->columns);
        extended_residual(look, true);
        extended_substitute(look, look->r, d);
        look->work += 2 * (double)(look->n * look->n);
        for (int64_t i = 0; i < look->n; i++) {
            greatest_d = fmaxl(greatest_d, fabsl(d[i]));
            greatest_x = fmaxl(greatest_x, fabsl(look->x[i]));
        }
        if (!isfinite(greatest_x) || greatest_d <= 4 * extended_digit(look) * greatest_x) continue;
        far = far || !(greatest_d <= LOST * greatest_x);
        look->work += AGAIN_WORK * (double)(look->n * look->n);
        extended_solve(look, look->sizes);
        far = far || !look->still; /* no factors lead there */
        if (!look->still || !round_x(look)) continue;
        put_x(look, x, x_at + k, look->solve->columns);
        extended_off(look, &now);
        error[item] = fmax(error[item], now);
    }
    return far;
}

/* Whether x need have no digit though nothing said so: A is singular, or may be but for the last
 * digits of its elements, or x is far from its solution. Factors of A in its own precision then
 * have a pivot that is rounding alone, and know nothing of its inverse: where other elements of x
 * are far larger than what comes of that, no condition that is estimated with them shows it. */
static bool hidden_doubt(struct extended *look, int64_t item, int64_t x_at, int64_t b_at) {
    bool regular = false;
    for (int how = AS_IT_STANDS; how <= SCALED && !regular; how++) {
        extended_factor(look, how);
        regular = look->regular && extended_pivots_stand(look);
    }
    return blasd_wanted() && (!regular || x_is_far(look, item, x_at, b_at));
}

/* look->x once more, by the way of factors `how`. Returns what extended_off() says of it. */
static double again(struct extended *look, int how, double *error) {
    look->work += AGAIN_WORK * (double)(look->n * look->n);
    extended_factor(look, how);
    if (!look->regular) return INFINITY;
    extended_solve(look, look->sizes);
    return round_x(look) ? extended_off(look, error) : INFINITY;
}

/* Whether a column in float32 has so small a w that look_at() would leave it, told without long
 * double: in float64 the products are exact. Of 256 random unknowns one column in 25 comes here. */
static bool is_right(const struct extended *look, int64_t a_at, int64_t x_at, int64_t b_at) {
    const struct blasd_tensor *x = &look->task->outputs[BLASD_SOLVE_X];
    const struct blasd_tensor *a = &look->task->inputs[BLASD_SOLVE_A];
    const struct blasd_tensor *b = &look->task->inputs[BLASD_SOLVE_B];
    for (int64_t i = 0; i < look->n; i++) {
        double r = solve_element(b, b_at + i * look->layout.b_row), size = fabs(r);
        for (int64_t j = 0; j < look->n; j++) {
            double product = solve_matrix_element(&look->layout, a, a_at, i, j) *
                             solve_element(x, x_at + j * look->solve->columns);
            r -= product;
            size += fabs(product);
        }
        if (!(fabs(r) <= ENOUGH_SINGLE * (1 - 0x1p-20) * size)) return false;
    }
    return true;
}

/* One right-hand side whose elements of x differ much. Whether all of x is right. */
static bool look_at(struct extended *look, int64_t item, int64_t x_at, int64_t b_at, int *flags) {
    const struct blasd_tensor *x = &look->task->outputs[BLASD_SOLVE_X];
    const struct blasd_tensor *b = &look->task->inputs[BLASD_SOLVE_B];
    double *error = look->task->outputs[BLASD_SOLVE_BACKWARD_ERROR].data;
    double enough = extended_single(look) ? ENOUGH_SINGLE : ENOUGH, before, now;
    bool sure = false;
    for (int64_t i = 0; i < look->n; i++)
        look->b[i] = (long double)solve_element(b, b_at + i * look->layout.b_row);
    take_x(look, x, x_at, look->solve->columns);
    before = extended_off(look, &now);
    for (int how = AS_IT_STANDS; how <= SCALED && !(before <= enough); how++) {
        double after = again(look, how, &now);
        if (!blasd_wanted()) return false;
        if (!(after <= before * BETTER)) continue;
        put_x(look, x, x_at, look->solve->columns);
        ((int64_t *)look->task->outputs[BLASD_SOLVE_METHOD].data)[item] = BLASD_SOLVED_LU;
        if (!(now <= error[item])) error[item] = now;
        before = after;
        sure = look->sure;
    }
    if (!(before < LOST)) *flags |= BLASD_SOLVE_LOST;
    return sure;
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

/* By the condition that is told of it, which may be wrong. */
static bool may_be_singular(const struct blasd_task *task, const struct blasd_solve *s,
                            int64_t item) {
    bool single = task->outputs[BLASD_SOLVE_X].dtype == BLASD_float32;
    const double *rcond = task->outputs[BLASD_SOLVE_RCOND].data;
    return rcond[item] < 2 * (double)s->n * extended_digit_of(single);
}

bool blasd_solve_is_even(const struct blasd_task *task, const struct blasd_solve *s, double least,
                         double most, bool zeros) {
    bool single = task->outputs[BLASD_SOLVE_X].dtype == BLASD_float32;
    double normal = single ? (double)FLT_MIN : DBL_MIN;
    for (int64_t i = 0; i < s->batch_count; i++)
        if (may_be_singular(task, s, i)) return false;
    return !zeros && least >= normal * RIM && most <= extended_spread_of(single) * least;
}

static bool worth_a_look(const struct extended *look) {
    return look->n <= BLASD_RECHECK_N && look->work <= MOST_WORK;
}

/* The matrix from a_at on is at hand. False: no memory. */
static bool ready(struct extended *look, int64_t a_at) {
    blasd_task_make_inputs(look->task);
    if (look->matrix == NULL && !extended_make(look)) return false;
    if (!look->loaded) extended_load(look, a_at);
    return true;
}

/* ---- matrices that were called singular ---- */

/* v := inverse(A) norm v, or with the transposed inverse; in double, of which it may be beyond. */
static bool apply_inverse(void *arg, double *v, bool transposed) {
    struct extended *look = arg;
    long double *r = look->r, *d = look->lost;
    for (int64_t i = 0; i < look->n; i++) r[i] = v[i];
    if (transposed)
        extended_substitute_transposed(look, r, d);
    else
        extended_substitute(look, r, d);
    for (int64_t i = 0; i < look->n; i++) v[i] = (double)(d[i] * look->norm);
    return blasd_wanted();
}

/* v := F inverse(A') v, or inverse(A) F v, F = look->sizes: what the equations may be off. */
static bool apply_errors(void *arg, double *v, bool transposed) {
    struct extended *look = arg;
    long double *r = look->r, *d = look->lost;
    for (int64_t i = 0; i < look->n; i++) r[i] = transposed ? v[i] * look->sizes[i] : v[i];
    if (transposed)
        extended_substitute(look, r, d);
    else
        extended_substitute_transposed(look, r, d);
    for (int64_t i = 0; i < look->n; i++)
        v[i] = (double)(transposed ? d[i] : d[i] * look->sizes[i]);
    return blasd_wanted();
}

/* Whether errors of the last digit in A and b leave no digit of look->x, which is what it is, as
 * extended_off() left it: as the engine asks (condition_body.h), but with these factors. */
static bool x_may_be_any(struct extended *look, double *v) {
    long double size = 0;
    for (int64_t i = 0; i < look->n; i++) size = fmaxl(size, fabsl(look->x[i]));
    if (!(size > 0) || !isfinite(size)) return false;
    for (int64_t i = 0; i < look->n; i++) look->sizes[i] *= extended_digit(look) / size;
    return !(blasd_norm_inverse(look->n, v, v + look->n, apply_errors, look) < LOST);
}

/* 1 / (norm of A, norm of its inverse), both the largest sum of a column. */
static double rcond_of(struct extended *look, double *v) {
    double inverse;
    look->norm = 0; /* from here on that one */
    for (int64_t j = 0; j < look->n; j++) {
        long double sum = 0;
        for (int64_t i = 0; i < look->n; i++) sum += fabsl(look->matrix[j * look->n + i]);
        look->norm = fmaxl(look->norm, sum);
    }
    inverse = blasd_norm_inverse(look->n, v, v + look->n, apply_inverse, look);
    return inverse > 1 ? 1 / inverse : inverse > 0 ? 1 : 0;
}

/* Every column of x by the factors at hand; the worst of their backward errors. False: one of them
 * need have no digit, or they are too many. */
static bool solve_all(struct extended *look, int64_t x_at, int64_t b_at, double *v, double *worst) {
    const struct blasd_tensor *x = &look->task->outputs[BLASD_SOLVE_X];
    const struct blasd_tensor *b = &look->task->inputs[BLASD_SOLVE_B];
    double most = look->work + COLUMNS_WORK;
    for (int64_t k = 0; k < look->solve->columns && blasd_wanted(); k++) {
        double error;
        if (look->work > most) return false;
        for (int64_t i = 0; i < look->n; i++)
            look->b[i] = (long double)solve_element(b, b_at + k * look->layout.b_column +
                                                           i * look->layout.b_row);
        look->work += AGAIN_WORK * (double)(look->n * look->n);
        extended_solve(look, look->sizes);
        if (!look->still || !(extended_off(look, &error) < LOST) || x_may_be_any(look, v))
            return false;
        if (!round_x(look))
            error = INFINITY;
        else
            extended_off(look, &error);
        put_x(look, x, x_at + k, look->solve->columns);
        *worst = fmax(*worst, error);
    }
    return true;
}

static void forget_x(struct extended *look, int64_t x_at) {
    const struct blasd_tensor *x = &look->task->outputs[BLASD_SOLVE_X];
    for (int64_t i = 0; i < look->n; i++) look->x[i] = (long double)NAN;
    for (int64_t k = 0; k < look->solve->columns; k++)
        put_x(look, x, x_at + k, look->solve->columns);
}

/* Whether a system that has no solution may have one. What is to be positive definite must be more
 * than regular; a triangle's pivots are what was sent. */
static bool may_have_one(const struct extended *look, int flags) {
    return (flags & BLASD_SOLVE_SINGULAR) != 0 && worth_a_look(look) &&
           (look->layout.assume == BLASD_ASSUME_GENERAL ||
            look->layout.assume == BLASD_ASSUME_SYMMETRIC);
}

/* A system without a solution, for a pivot became 0: its solution, where factors in long double say
 * that rounding alone made it 0. False: no memory. */
static bool solve_singular(struct extended *look, int64_t item, int64_t a_at, int64_t b_at,
                           int *flags) {
    int64_t x_at = item * look->n * look->solve->columns;
    double worst = 0, *v;
    look->loaded = false;
    if (!ready(look, a_at)) return false;
    v = blasd_cpu_alloc(2 * (size_t)look->n, sizeof *v);
    if (v == NULL) return false;
    for (int how = AS_IT_STANDS; how <= SCALED && (*flags & BLASD_SOLVE_SINGULAR) != 0; how++) {
        extended_factor(look, how);
        if (!look->regular || !extended_pivots_stand(look)) continue;
        if (solve_all(look, x_at, b_at, v, &worst)) {
            *flags &= ~BLASD_SOLVE_SINGULAR;
            blasd_solve_put(look->task, BLASD_SOLVE_INFO, item, 0, 0);
            blasd_solve_put(look->task, BLASD_SOLVE_RCOND, item, rcond_of(look, v), 0);
            blasd_solve_put(look->task, BLASD_SOLVE_BACKWARD_ERROR, item, worst, 0);
            blasd_solve_put(look->task, BLASD_SOLVE_METHOD, item, 0, BLASD_SOLVED_LU);
        } else {
            forget_x(look, x_at);
        }
    }
    free(v);
    return true;
}

/* One system: item of the batch, whose operands begin at a_at and b_at. */
static bool look_at_system(struct extended *look, int64_t item, int64_t a_at, int64_t b_at,
                           int *flags) {
    const struct blasd_solve *s = look->solve;
    const struct blasd_tensor *x = &look->task->outputs[BLASD_SOLVE_X];
    const struct blasd_tensor *b = &look->task->inputs[BLASD_SOLVE_B];
    double *error = look->task->outputs[BLASD_SOLVE_BACKWARD_ERROR].data, vanished = 0;
    double normal = extended_single(look) ? (double)FLT_MIN : DBL_MIN;
    double half = extended_single(look) ? (double)FLT_TRUE_MIN / 2 : DBL_TRUE_MIN;
    int64_t sure = 0;
    look->loaded = false;
    if (may_be_singular(look->task, s, item) && worth_a_look(look) &&
        (*flags & (BLASD_SOLVE_DOUBTFUL | BLASD_SOLVE_STEADY)) == 0 &&
        look->layout.assume != BLASD_ASSUME_LOWER_TRIANGULAR &&
        look->layout.assume != BLASD_ASSUME_UPPER_TRIANGULAR) {
        if (!ready(look, a_at)) return false;
        if (hidden_doubt(look, item, item * s->n * s->columns, b_at))
            *flags |= BLASD_SOLVE_DOUBTFUL;
    }
    for (int64_t k = 0; k < s->columns; k++) {
        int64_t x_at = item * s->n * s->columns + k, at = b_at + k * look->layout.b_column;
        double least, most;
        bool zeros;
        if (!sizes_of(x, x_at, s->columns, s->n, &least, &most, &zeros)) continue;
        if (most < normal * RIM) {
            blasd_task_make_inputs(look->task);
            if (all_zero(b, at, look->layout.b_row, s->n)) continue;
            vanished = fmax(vanished, most > 0 ? fmin(half / most, 1) : 1);
            if (most < normal) *flags |= BLASD_SOLVE_VANISHED;
            continue;
        }
        if (!(most > extended_spread(look) * least || zeros) || !worth_a_look(look)) continue;
        if (!blasd_wanted()) return true;
        if (extended_single(look)) {
            blasd_task_make_inputs(look->task);
            look->work += (double)(s->n * s->n);
            if (is_right(look, a_at, x_at, at)) continue;
        }
        if (!ready(look, a_at)) return false;
        if (!(most > extended_spread(look) * least || look->graded))
            continue; /* zeros of the structure, then */
        look->work += (double)(s->n * s->n);
        sure += look_at(look, item, x_at, at, flags);
    }
    if (sure == s->columns) *flags &= ~BLASD_SOLVE_DOUBTFUL; /* which was said of other factors */
    if (vanished > 0) error[item] = fmin(error[item] + vanished, 1);
    return true;
}

int blasd_solve_recheck(struct blasd_task *task, const struct blasd_solve *s, int *flags,
                        struct blasd_err *err) {
    struct extended look = {.solve = s, .task = task, .n = s->n};
    const int64_t *info = task->outputs[BLASD_SOLVE_INFO].data;
    struct blasd_walk walk;
    int64_t done = 0;
    bool room = true;
    if (s->n == 0 || s->batch_count == 0) return 0;
    look.layout = blasd_solve_layout(s, &task->inputs[BLASD_SOLVE_A], &task->inputs[BLASD_SOLVE_B]);
    blasd_walk_init(&walk, s->batch_rank, s->batch);
    blasd_walk_operand(&walk, 0, s->a_rank, s->a_batch);
    blasd_walk_operand(&walk, 1, s->b_rank, s->b_batch);
    for (int64_t item = 0; item < s->batch_count && room; item++) {
        if (!blasd_wanted_after(&done, 4 * s->n * s->columns)) break;
        if (info[item] != 0 && may_have_one(&look, flags[item]))
            room = solve_singular(&look, item, walk.offset[0] * s->n * s->n,
                                  walk.offset[1] * s->n * s->columns, flags + item);
        if (room && info[item] == 0)
            room = look_at_system(&look, item, walk.offset[0] * s->n * s->n,
                                  walk.offset[1] * s->n * s->columns, flags + item);
        blasd_walk_next(&walk);
    }
    extended_free(&look);
    return room ? 0 : blasd_fail(err, BLASD_E_out_of_memory, "", "no memory to look at x again");
}
