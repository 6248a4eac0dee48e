/* Regression with penalties: ridge by QR of the factor with the penalty's rows under it, lasso and
 * elastic net by coordinate descent on the factor's columns.
 *
 * The objectives are scikit-learn's: ridge |y - Xb|^2 + alpha |b|^2; elastic net
 * |y - Xb|^2 / (2 n) + alpha l1_ratio |b|_1 + alpha (1 - l1_ratio) |b|^2 / 2, with the weights' sum
 * for n and weighted squares where there are weights. The intercept is not penalised. Working on
 * the factor and not on the data, a sweep over p features costs p^2 whatever n is. Touches no data.
 * Uses LAPACK. */
#include "kernels/regression/regression.h"

#include "base/err.h"
#include "kernels/cpu/cpu.h"

#include <cblas.h>
#include <lapacke.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static int no_memory(struct blasd_err *err) {
    return blasd_fail(err, BLASD_E_out_of_memory, "", "no memory for the penalised problem");
}

/* The features' part of the factor, in the units of the data: m (rows x p, column-major) and g
 * (rows x t, column-major). */
struct part {
    int64_t rows, p, t;
    double *m, *g; /* owned */
};

static void part_release(struct part *part) {
    free(part->m);
    free(part->g);
}

static int part_init(struct part *part, const struct regression_shape *shape,
                     const struct regression_factor *factor, int64_t more, struct blasd_err *err) {
    int64_t q = shape->q, t = shape->t, skip = q - shape->p, ld;
    memset(part, 0, sizeof *part);
    part->rows = factor->rows - skip;
    part->p = shape->p;
    part->t = t;
    ld = part->rows + more;
    part->m = blasd_cpu_alloc((size_t)ld * (size_t)shape->p, sizeof(double));
    part->g = blasd_cpu_alloc((size_t)ld * (size_t)t, sizeof(double));
    if (part->m == NULL || part->g == NULL) return no_memory(err);
    memset(part->m, 0, (size_t)(ld * shape->p) * sizeof(double));
    memset(part->g, 0, (size_t)(ld * t) * sizeof(double));
    for (int64_t i = 0; i < part->rows; i++) {
        for (int64_t j = 0; j < shape->p; j++)
            part->m[j * ld + i] =
                ldexp(factor->r[(i + skip) * q + j + skip], factor->exponent[j + skip]);
        for (int64_t l = 0; l < t; l++)
            part->g[l * ld + i] = ldexp(factor->z[(i + skip) * t + l], factor->exponent[q + l]);
    }
    return 0;
}

/* ssr and the intercept of one target from its coefficients. */
static void finish_target(const struct regression_shape *shape,
                          const struct regression_factor *factor, const struct part *part,
                          int64_t target, double *left, struct regression_fit *fit) {
    double *coef = fit->coef + target * shape->q, squares = factor->rest[target];
    double *b = coef + (shape->q - shape->p);
    const double *g = part->g + target * part->rows;
    for (int64_t i = 0; i < part->rows; i++) left[i] = g[i];
    for (int64_t j = 0; j < shape->p; j++)
        if (b[j] != 0) cblas_daxpy((int)part->rows, -b[j], part->m + j * part->rows, 1, left, 1);
    for (int64_t i = 0; i < part->rows; i++) squares += left[i] * left[i];
    fit->ssr[target] = squares;
    if (shape->intercept) coef[0] = blasd_regression_intercept(shape, factor, coef, target);
}

/* min |M b - g|^2 + alpha |b|^2 with at least as many rows as columns: QR of M over the penalty. */
static int ridge_tall(const struct regression_shape *shape, struct part *part, double root,
                      double *b) {
    int64_t p = shape->p, t = shape->t, rows = part->rows + p;
    for (int64_t j = 0; j < p; j++) part->m[j * rows + part->rows + j] = root;
    if (p == 0 || t == 0) return 0;
    if (LAPACKE_dgels(LAPACK_COL_MAJOR, 'N', (int)rows, (int)p, (int)t, part->m, (int)rows, part->g,
                      (int)rows) != 0)
        return -1;
    for (int64_t l = 0; l < t; l++) memcpy(b + l * p, part->g + l * rows, (size_t)p * sizeof *b);
    return 0;
}

/* The same with fewer rows: the least-norm solution of [M root] [b; v] = g, whose v is what is left
 * over. [M root]' = Q R. */
static int ridge_wide(const struct regression_shape *shape, const struct part *part, double root,
                      double *b) {
    int64_t p = shape->p, t = shape->t, m = part->rows, n = p + m;
    double *a = blasd_cpu_alloc((size_t)n * (size_t)m, sizeof *a);
    double *g = blasd_cpu_alloc((size_t)n * (size_t)t, sizeof *g);
    int info = a == NULL || g == NULL ? -1 : 0;
    if (info == 0) {
        memset(a, 0, (size_t)(n * m) * sizeof *a);
        memset(g, 0, (size_t)(n * t) * sizeof *g);
        for (int64_t i = 0; i < m; i++) {
            for (int64_t j = 0; j < p; j++) a[i * n + j] = part->m[j * m + i];
            a[i * n + p + i] = root;
        }
        for (int64_t l = 0; l < t; l++) memcpy(g + l * n, part->g + l * m, (size_t)m * sizeof *g);
        /* a is the transpose of the wide matrix: 'T' asks for its least-norm solution */
        if (m > 0 && t > 0)
            info =
                LAPACKE_dgels(LAPACK_COL_MAJOR, 'T', (int)n, (int)m, (int)t, a, (int)n, g, (int)n);
        for (int64_t l = 0; l < t; l++) memcpy(b + l * p, g + l * n, (size_t)p * sizeof *b);
    }
    free(a);
    free(g);
    return info;
}

/* What QR may have lost in b. */
static bool improve(const struct regression_shape *shape, bool tall, const double *m,
                    const double *g, int64_t rows, const double *qr, double *b) {
    struct regression_ridge ridge = {rows, shape->p, shape->t, shape->alpha, m, g};
    if (!blasd_regression_ridge_stiff(&ridge)) return true;
    if (tall) return blasd_regression_ridge_refine(&ridge, qr, rows + shape->p, b);
    return blasd_regression_ridge_dual(&ridge, b);
}

int blasd_regression_ridge(const struct regression_shape *shape,
                           const struct regression_factor *factor, struct regression_fit *fit,
                           struct blasd_err *err) {
    int64_t p = shape->p, t = shape->t, skip = shape->q - p;
    struct part part, whole;
    double *b = blasd_cpu_alloc((size_t)p * (size_t)t, sizeof *b), *left = NULL;
    bool tall = factor->rows - skip >= p;
    int info = 0, code = part_init(&part, shape, factor, tall ? p : 0, err);
    memset(&whole, 0, sizeof whole);
    if (code == 0) code = part_init(&whole, shape, factor, 0, err);
    left = code == 0 ? blasd_cpu_alloc((size_t)whole.rows, sizeof *left) : NULL;
    if (code == 0 && (b == NULL || left == NULL)) code = no_memory(err);
    if (code != 0) goto done;
    info = tall ? ridge_tall(shape, &part, sqrt(shape->alpha), b)
                : ridge_wide(shape, &part, sqrt(shape->alpha), b);
    if (info == 0 && !improve(shape, tall, whole.m, whole.g, whole.rows, part.m, b)) info = -1;
    if (info != 0) {
        code = no_memory(err);
        goto done;
    }
    for (int64_t l = 0; l < t; l++) {
        memcpy(fit->coef + l * shape->q + skip, b + l * p, (size_t)p * sizeof *b);
        finish_target(shape, factor, &whole, l, left, fit);
    }
done:
    part_release(&part);
    part_release(&whole);
    free(b);
    free(left);
    return code;
}

/* One target of lasso or elastic net. */
struct descent {
    const struct part *part;
    const double *g, *squares; /* the target; squared lengths of the columns */
    double *b, *left;          /* coefficients; g - M b */
    double l1, l2, rest;
};

/* Nonzero elements of column j lie in its first `length` places. */
static int64_t column_rows(const struct part *part, bool triangle, int64_t j) {
    return triangle && j + 1 < part->rows ? j + 1 : part->rows;
}

/* One sweep over the coordinates, or over those that are not 0; returns the largest change, against
 * the largest coefficient. */
static double sweep(struct descent *d, bool triangle, bool active) {
    double change = 0, size = 0;
    for (int64_t j = 0; j < d->part->p; j++) {
        const double *column = d->part->m + j * d->part->rows;
        int rows = (int)column_rows(d->part, triangle, j);
        double old = d->b[j], along, now = 0;
        if (d->squares[j] == 0 || (active && old == 0)) continue;
        along = cblas_ddot(rows, column, 1, d->left, 1) + d->squares[j] * old;
        if (fabs(along) > d->l1)
            now = (along > 0 ? along - d->l1 : along + d->l1) / (d->squares[j] + d->l2);
        if (now != old) cblas_daxpy(rows, old - now, column, 1, d->left, 1);
        d->b[j] = now;
        if (fabs(now - old) > change) change = fabs(now - old);
        if (fabs(now) > size) size = fabs(now);
    }
    return size > 0 ? change / size : 0;
}

/* How far the objective can be above its least value (the duality gap). */
static double duality_gap(const struct descent *d, bool triangle) {
    double largest = 0, left = d->rest, along = d->rest, absolute = 0, squares = 0, shrink = 1, gap;
    for (int64_t j = 0; j < d->part->p; j++) {
        const double *column = d->part->m + j * d->part->rows;
        double product = cblas_ddot((int)column_rows(d->part, triangle, j), column, 1, d->left, 1) -
                         d->l2 * d->b[j];
        if (fabs(product) > largest) largest = fabs(product);
        absolute += fabs(d->b[j]);
        squares += d->b[j] * d->b[j];
    }
    for (int64_t i = 0; i < d->part->rows; i++) {
        left += d->left[i] * d->left[i];
        along += d->left[i] * d->g[i];
    }
    if (largest > d->l1) shrink = d->l1 / largest;
    gap = 0.5 * left * (1 + shrink * shrink) + d->l1 * absolute - shrink * along +
          0.5 * d->l2 * (1 + shrink * shrink) * squares;
    return gap > 0 ? gap : 0;
}

#define ACTIVE_MOST 64     /* sweeps over the coefficients in use between two over all */
#define ACTIVE_CHANGE 1e-5 /* change of a sweep at which those in use are solved for directly */
#define SETTLED 1e-10      /* change of a sweep over all at which nothing moves any more */
#define DAMPING 1e-9       /* of such a direction, against the longest column's square */
#define NEWTON_MOST 40     /* coefficients that leave in one go */
#define POLISH_MOST 2000   /* coefficients in use that are solved for directly */

/* A Newton step on the coefficients in use, whose signs are known:
 * (M'M + l2) step = M'left - l2 b - l1 sign. It goes as far as no sign changes, which lowers the
 * objective all the way; a coefficient that would change its sign becomes 0, and *again is set.
 * False: no memory. */
static bool newton(struct descent *d, bool *again) {
    int64_t rows = d->part->rows, used = 0, p = d->part->p, at = 0;
    double *m, *gram, *step;
    double far = 1, largest = 0;
    bool got;
    *again = false;
    for (int64_t j = 0; j < p; j++) used += d->b[j] != 0;
    if (used == 0 || used > POLISH_MOST) return true;
    m = blasd_cpu_alloc((size_t)rows * (size_t)used, sizeof *m);
    gram = blasd_cpu_alloc((size_t)used * (size_t)used, sizeof *gram);
    step = blasd_cpu_alloc((size_t)used, sizeof *step);
    got = m != NULL && gram != NULL && step != NULL;
    if (!got) goto done;
    for (int64_t j = 0; j < p; j++) {
        if (d->b[j] == 0) continue;
        memcpy(m + at * rows, d->part->m + j * rows, (size_t)rows * sizeof *m);
        step[at] = cblas_ddot((int)rows, m + at * rows, 1, d->left, 1) - d->l2 * d->b[j] -
                   (d->b[j] > 0 ? d->l1 : -d->l1);
        at++;
    }
    cblas_dsyrk(CblasColMajor, CblasUpper, CblasTrans, (int)used, (int)rows, 1, m, (int)rows, 0,
                gram, (int)used);
    for (int64_t j = 0; j < used; j++) largest = fmax(largest, gram[j * used + j]);
    for (int64_t j = 0; j < used; j++) /* more than there are rows: the step is only a direction */
        gram[j * used + j] += d->l2 + (used > rows ? DAMPING * largest : 0);
    if (LAPACKE_dpotrf_work(LAPACK_COL_MAJOR, 'U', (int)used, gram, (int)used) != 0) goto done;
    LAPACKE_dpotrs_work(LAPACK_COL_MAJOR, 'U', (int)used, 1, gram, (int)used, step, (int)used);
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
        cblas_daxpy((int)rows, d->b[j] - now, m + at * rows, 1, d->left, 1);
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
    for (int steps = 0; again && steps < NEWTON_MOST; steps++)
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
        /* how many sweeps there will be is not known: progress slows down, and never ends early */
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

int blasd_regression_coordinate(const struct regression_shape *shape,
                                const struct regression_factor *factor, double total,
                                struct regression_fit *fit, struct blasd_cpu_progress *progress,
                                struct blasd_err *err) {
    double ratio = shape->method == METHOD_LASSO ? 1 : shape->l1_ratio;
    struct part part;
    struct descent d = {.part = &part,
                        .l1 = shape->alpha * ratio * total,
                        .l2 = shape->alpha * (1 - ratio) * total};
    double *squares = NULL;
    int code = part_init(&part, shape, factor, 0, err);
    if (code == 0) squares = blasd_cpu_alloc((size_t)part.p, sizeof *squares);
    if (code == 0) d.left = blasd_cpu_alloc((size_t)part.rows, sizeof *d.left);
    if (code == 0 && (squares == NULL || d.left == NULL)) code = no_memory(err);
    for (int64_t j = 0; code == 0 && j < part.p; j++) {
        double length = cblas_dnrm2((int)part.rows, part.m + j * part.rows, 1);
        squares[j] = length * length;
    }
    d.squares = squares;
    for (int64_t l = 0; code == 0 && l < shape->t; l++) {
        double size = factor->rest[l];
        d.b = fit->coef + l * shape->q + (shape->q - shape->p);
        d.g = part.g + l * part.rows;
        d.rest = factor->rest[l];
        for (int64_t j = 0; j < part.p; j++) d.b[j] = 0;
        for (int64_t i = 0; i < part.rows; i++) {
            d.left[i] = d.g[i];
            size += d.g[i] * d.g[i];
        }
        if (!descend(shape, &d, factor->triangle, size, fit, l, progress))
            code = blasd_cpu_stopped(err);
        else
            finish_target(shape, factor, &part, l, d.left, fit);
    }
    part_release(&part);
    free(squares);
    free(d.left);
    return code;
}
