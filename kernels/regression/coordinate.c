/* lasso and elastic net by coordinate descent on the factor's columns, and what they share with
 * ridge: the features' part of the factor.
 *
 * The objective is scikit-learn's: |y - Xb|^2 / (2 n) + alpha l1_ratio |b|_1 +
 * alpha (1 - l1_ratio) |b|^2 / 2, with the weights' sum for n and weighted squares where there are
 * weights. The intercept is not penalised. Working on the factor and not on the data, a sweep over
 * p features costs p^2 whatever n is. Touches no data. Dense routines come from shape->dense. */
#include "kernels/regression/penalised.h"

#include "base/err.h"
#include "core/wanted.h"
#include "kernels/cpu/cpu.h"
#include "kernels/regression/dense.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static int no_memory(struct blasd_err *err) {
    return blasd_fail(err, BLASD_E_out_of_memory, "", "no memory for the penalised problem");
}

void blasd_regression_part_release(struct regression_part *part) {
    free(part->m);
    free(part->g);
    free(part->unit);
}

static void choose_units(struct regression_part *part, const int *exponent, double root,
                         bool common) {
    int least = INT_MIN, most = INT_MIN;
    if (root > 0 && root < INFINITY) (void)frexp(root, &least);
    for (int64_t j = 0; j < part->p; j++) {
        part->unit[j] = exponent[j] > least ? exponent[j] : least;
        if (part->unit[j] > most) most = part->unit[j];
    }
    for (int64_t j = 0; common && j < part->p; j++) part->unit[j] = most;
}

int blasd_regression_part_init(struct regression_part *part, const struct regression_shape *shape,
                               const struct regression_factor *factor, double root, bool common,
                               struct blasd_err *err) {
    int64_t q = shape->q, t = shape->t, skip = q - shape->p, rows = factor->rows - skip, done = 0;
    memset(part, 0, sizeof *part);
    part->rows = rows;
    part->p = shape->p;
    part->t = t;
    part->m = blasd_cpu_alloc((size_t)rows * (size_t)shape->p, sizeof(double));
    part->g = blasd_cpu_alloc((size_t)rows * (size_t)t, sizeof(double));
    part->unit = blasd_cpu_alloc((size_t)shape->p, sizeof(int));
    if (part->m == NULL || part->g == NULL || part->unit == NULL) return no_memory(err);
    choose_units(part, factor->exponent + skip, root, common);
    for (int64_t i = 0; i < rows && blasd_wanted_after(&done, 10 * shape->p); i++) {
        for (int64_t j = 0; j < shape->p; j++)
            part->m[j * rows + i] = ldexp(factor->r[(i + skip) * q + j + skip],
                                          factor->exponent[j + skip] - part->unit[j]);
        for (int64_t l = 0; l < t; l++) part->g[l * rows + i] = factor->z[(i + skip) * t + l];
    }
    return 0;
}

void blasd_regression_part_finish(const struct regression_shape *shape,
                                  const struct regression_factor *factor,
                                  const struct regression_part *part, int64_t target,
                                  const double *b, double *left, struct regression_fit *fit) {
    double *coef = fit->coef + target * shape->q, squares = 0;
    const double *g = part->g + target * part->rows;
    int unit = factor->exponent[shape->q + target];
    int64_t done = 0;
    for (int64_t i = 0; i < part->rows; i++) left[i] = g[i];
    for (int64_t j = 0; j < shape->p && blasd_wanted_after(&done, part->rows); j++)
        if (b[j] != 0) shape->dense->axpy((int)part->rows, -b[j], part->m + j * part->rows, left);
    for (int64_t i = 0; i < part->rows; i++) squares += left[i] * left[i];
    fit->ssr[target] = factor->rest[target] + ldexp(squares, 2 * unit);
    for (int64_t j = 0; j < shape->p; j++)
        coef[shape->q - shape->p + j] = ldexp(b[j], unit - part->unit[j]);
    if (shape->intercept) coef[0] = blasd_regression_intercept(shape, factor, coef, target);
}

/* One target of lasso or elastic net. */
struct descent {
    const struct regression_part *part;
    const struct regression_dense *dense;
    const double *g, *squares; /* the target; squared lengths of the columns */
    double *b, *left;          /* coefficients; g - M b */
    double *l1, *l2;           /* of each coefficient */
    double rest;
};

/* Nonzero elements of column j lie in its first `length` places. */
static int64_t column_rows(const struct regression_part *part, bool triangle, int64_t j) {
    return triangle && j + 1 < part->rows ? j + 1 : part->rows;
}

/* One sweep over the coordinates, or over those that are not 0; returns the largest change, against
 * the largest coefficient. */
static double sweep(struct descent *d, bool triangle, bool active) {
    double change = 0, size = 0;
    int64_t done = 0;
    for (int64_t j = 0; j < d->part->p && blasd_wanted_after(&done, 4 * d->part->rows); j++) {
        const double *column = d->part->m + j * d->part->rows;
        int rows = (int)column_rows(d->part, triangle, j);
        double old = d->b[j], along, now = 0;
        if (d->squares[j] == 0 || (active && old == 0)) continue;
        along = d->dense->dot(rows, column, d->left) + d->squares[j] * old;
        if (fabs(along) > d->l1[j])
            now = (along > 0 ? along - d->l1[j] : along + d->l1[j]) / (d->squares[j] + d->l2[j]);
        if (now != old) d->dense->axpy(rows, old - now, column, d->left);
        d->b[j] = now;
        if (fabs(now - old) > change) change = fabs(now - old);
        if (fabs(now) > size) size = fabs(now);
    }
    return size > 0 ? change / size : 0;
}

/* How far the objective can be above its least value (the duality gap). */
static double duality_gap(const struct descent *d, bool triangle) {
    double ratio = 1, left = d->rest, along = d->rest, absolute = 0, pull = 0, shrink, gap;
    int64_t done = 0;
    for (int64_t j = 0; j < d->part->p && blasd_wanted_after(&done, 4 * d->part->rows); j++) {
        const double *column = d->part->m + j * d->part->rows;
        double product = d->dense->dot((int)column_rows(d->part, triangle, j), column, d->left) -
                         d->l2[j] * d->b[j];
        if (fabs(product) > ratio * d->l1[j]) ratio = fabs(product) / d->l1[j];
        if (d->b[j] == 0) continue; /* whose penalty may be infinite */
        absolute += d->l1[j] * fabs(d->b[j]);
        pull += d->l2[j] * d->b[j] * d->b[j];
    }
    for (int64_t i = 0; i < d->part->rows; i++) {
        left += d->left[i] * d->left[i];
        along += d->left[i] * d->g[i];
    }
    shrink = 1 / ratio;
    gap = 0.5 * left * (1 + shrink * shrink) + absolute - shrink * along +
          0.5 * (1 + shrink * shrink) * pull;
    return gap > 0 ? gap : 0;
}

#define ACTIVE_MOST 64     /* sweeps over the coefficients in use between two over all */
#define ACTIVE_CHANGE 1e-5 /* change of a sweep at which those in use are solved for directly */
#define SETTLED 1e-10      /* change of a sweep over all at which nothing moves any more */
#define DAMPING 1e-9       /* of such a direction, against the longest column's square */
#define NEWTON_MOST 40     /* coefficients that leave in one go */
#define POLISH_MOST 2000   /* coefficients in use that are solved for directly */

/* A Newton step on the coefficients in use, whose signs are known:
 * (M'M + l2) step = M'left - l2 b - l1 sign, penalties being each one's own. It goes as far as no
 * sign changes, which lowers the objective all the way; a coefficient that would change its sign
 * becomes 0, and *again is set. False: no memory. */
static bool newton(struct descent *d, bool *again) {
    int64_t rows = d->part->rows, used = 0, p = d->part->p, at = 0;
    double *m, *gram, *step, *own;
    double far = 1, largest = 0;
    bool got;
    *again = false;
    for (int64_t j = 0; j < p; j++) used += d->b[j] != 0;
    if (used == 0 || used > POLISH_MOST) return true;
    m = blasd_cpu_alloc((size_t)rows * (size_t)used, sizeof *m);
    gram = blasd_cpu_alloc((size_t)used * (size_t)used, sizeof *gram);
    step = blasd_cpu_alloc(2 * (size_t)used, sizeof *step);
    own = step + used;
    got = m != NULL && gram != NULL && step != NULL;
    if (!got) goto done;
    for (int64_t j = 0; j < p; j++) {
        if (d->b[j] == 0) continue;
        memcpy(m + at * rows, d->part->m + j * rows, (size_t)rows * sizeof *m);
        step[at] = d->dense->dot((int)rows, m + at * rows, d->left) - d->l2[j] * d->b[j] -
                   (d->b[j] > 0 ? d->l1[j] : -d->l1[j]);
        own[at++] = d->l2[j];
    }
    d->dense->syrk((int)used, (int)rows, m, (int)rows, gram, (int)used);
    for (int64_t j = 0; j < used; j++) largest = fmax(largest, gram[j * used + j]);
    for (int64_t j = 0; j < used; j++) /* more than there are rows: the step is only a direction */
        gram[j * used + j] += own[j] + (used > rows ? DAMPING * largest : 0);
    if (d->dense->potrf(true, (int)used, gram, (int)used) != 0) goto done;
    d->dense->trsm(false, true, true, (int)used, 1, gram, (int)used, step, (int)used);
    d->dense->trsm(false, true, false, (int)used, 1, gram, (int)used, step, (int)used);
    at = 0;
    for (int64_t j = 0; j < p; j++) {
        if (d->b[j] == 0) continue;
        if (!isfinite(step[at])) goto done;
        if (d->b[j] * (d->b[j] + step[at]) <= 0 && -d->b[j] / step[at] < far)
            far = -d->b[j] / step[at];
        at++;
    }
    *again = far < 1;
    at = 0;
    for (int64_t j = 0; j < p; j++) {
        double now = d->b[j] + far * step[at < used ? at : 0];
        if (d->b[j] == 0) continue;
        if (far < 1 && -d->b[j] / step[at] <= far && d->b[j] * step[at] < 0) now = 0;
        d->dense->axpy((int)rows, d->b[j] - now, m + at * rows, d->left);
        d->b[j] = now;
        at++;
    }
done:
    free(m);
    free(gram);
    free(step);
    return got;
}

static bool polish(struct descent *d) {
    bool again = true;
    for (int steps = 0; again && steps < NEWTON_MOST && blasd_wanted(); steps++)
        if (!newton(d, &again)) return false;
    return true;
}

/* Sweeps until the gap is within tol of |y|^2 and the coefficients have settled: over all
 * coordinates, then over those in use until they change little and can be solved for, and so on.
 * False: stopped. */
static bool descend(const struct regression_shape *shape, struct descent *d, bool triangle,
                    double size, struct regression_fit *fit, int64_t target,
                    struct blasd_cpu_progress *progress) {
    double work = 4.0 * (double)d->part->rows * (double)d->part->p + 100, spent = 0, gap = INFINITY;
    double share = progress->total / (double)(shape->t > 0 ? shape->t : 1) / 4;
    int64_t sweeps = 0, active = ACTIVE_MOST;
    while (sweeps < shape->iterations) {
        bool full = active >= ACTIVE_MOST;
        double change = sweep(d, triangle, !full);
        sweeps++;
        active = full ? 0 : active + 1;
        if (!full && (change <= ACTIVE_CHANGE || active == ACTIVE_MOST)) {
            active = ACTIVE_MOST;
            if (!polish(d)) break;
        }
        if (full && (change <= SETTLED || sweeps % 4 == 0)) {
            gap = duality_gap(d, triangle);
            if ((gap <= shape->tol * size && change <= SETTLED) || change <= 1e-16) break;
        }
        /* how many sweeps there will be is not known: progress slows down, and never ends early;
         * whether to go on is asked all the same */
        if (work > (share - spent) / 16) work = (share - spent) / 16;
        spent += work;
        if (!blasd_cpu_step(progress, work)) return false;
    }
    gap = duality_gap(d, triangle);
    fit->n_iter[target] = sweeps;
    fit->dual_gap[target] = gap;
    if (!(gap <= shape->tol * size) && !(gap <= 1e-13 * size)) fit->unconverged++;
    return true;
}

/* What coefficients of one target are punished with: l1 |b| and l2 b^2 / 2 of the user's, whose y
 * is divided by 2^far, in units of the part's. */
static void take_penalties(struct descent *d, double l1, double l2, int unit, int far) {
    for (int64_t j = 0; j < d->part->p; j++) {
        d->l1[j] = ldexp(l1, -d->part->unit[j] - unit - far);
        d->l2[j] = ldexp(l2, -2 * d->part->unit[j]);
    }
}

static int descent_init(struct descent *d, const struct regression_part *part, double **squares,
                        struct blasd_err *err) {
    size_t p = (size_t)part->p;
    d->part = part;
    d->left = blasd_cpu_alloc((size_t)part->rows, sizeof *d->left);
    d->b = blasd_cpu_alloc(p, sizeof *d->b);
    d->l1 = blasd_cpu_alloc(p, sizeof *d->l1);
    d->l2 = blasd_cpu_alloc(p, sizeof *d->l2);
    d->squares = *squares = blasd_cpu_alloc(p, sizeof **squares);
    if (d->left == NULL || d->b == NULL || d->l1 == NULL || d->l2 == NULL || *squares == NULL)
        return no_memory(err);
    for (int64_t j = 0; j < part->p && blasd_wanted(); j++) {
        double length = blasd_regression_length(part->rows, part->m + j * part->rows);
        (*squares)[j] = length * length;
    }
    return 0;
}

int blasd_regression_coordinate(const struct regression_shape *shape,
                                const struct regression_factor *factor, double total,
                                const int *far, struct regression_fit *fit,
                                struct blasd_cpu_progress *progress, struct blasd_err *err) {
    double ratio = shape->method == METHOD_LASSO ? 1 : shape->l1_ratio;
    double l1 = shape->alpha * ratio * total, l2 = shape->alpha * (1 - ratio) * total;
    struct regression_part part;
    struct descent d = {.dense = shape->dense};
    double *squares = NULL;
    int code = blasd_regression_part_init(&part, shape, factor, sqrt(l2), false, err);
    if (code == 0) code = descent_init(&d, &part, &squares, err);
    for (int64_t l = 0; code == 0 && l < shape->t; l++) {
        int unit = factor->exponent[shape->q + l];
        double size = d.rest = ldexp(factor->rest[l], -2 * unit);
        take_penalties(&d, l1, l2, unit, far[l]);
        d.g = part.g + l * part.rows;
        for (int64_t j = 0; j < part.p; j++) d.b[j] = 0;
        for (int64_t i = 0; i < part.rows; i++) {
            d.left[i] = d.g[i];
            size += d.g[i] * d.g[i];
        }
        if (!descend(shape, &d, factor->triangle, size, fit, l, progress))
            code = blasd_cpu_stopped(err);
        else
            blasd_regression_part_finish(shape, factor, &part, l, d.b, d.left, fit);
        fit->dual_gap[l] = ldexp(fit->dual_gap[l], 2 * unit);
    }
    blasd_regression_part_release(&part);
    free(squares);
    free(d.left);
    free(d.b);
    free(d.l1);
    free(d.l2);
    return code;
}
