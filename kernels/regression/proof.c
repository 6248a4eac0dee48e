/* Proven bounds on the errors of coefficients, for ols with `certify`.
 *
 * With A the columns [1 X] less their shifts, in units of powers of two, W the weights and R near
 * the inverse of a triangle of A's, B = W^1/2 A R has nearly orthogonal columns. B'B = I + E with a
 * norm alpha of E below 1 proves that the rank is full, and for any v the exact coefficients are
 *
 *     v + R (I + E)^-1 h,   h = R' A'W (y - A v),
 *
 * so that coefficient j is within |row j of R| |h| / (1 - alpha) of v. v is a pair of doubles that
 * starts at the coefficients as they were given and is refined until h is what double-double leaves
 * of it; the distance from there to those coefficients is added.
 *
 * What rounding may hide is bounded beforehand, as in kernels/solve/certify.c (numeric/bounds.h):
 * gamma for sums in double in any order, 3.01 u^2 for an operation in double-double. Underflow
 * takes less than TINY, for columns, weights and targets have units of their own. Only the data and
 * the coefficients enter: how these were found does not. Read next: README.md, Certified. */
#include "base/err.h"
#include "core/kernel.h"
#include "core/wanted.h"
#include "kernels/cpu/cpu.h"
#include "kernels/numeric/bounds.h"
#include "kernels/numeric/dd.h"
#include "kernels/regression/dense.h"
#include "kernels/regression/regression.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define U BOUNDS_U
#define TINY 0x1p-600
#define ROOT_TINY 0x1p-300 /* weights may have lost as much as TINY before they were given here */
#define FAR 0x1p150        /* no scaled number of a problem that can be proven is larger */
#define ROWS 64            /* whose sums are added up first */
#define TURNS 8            /* of refinement, at most */

struct proof {
    const struct regression_shape *shape;
    const struct regression_data *data;
    int64_t n, q, skip;
    struct regression_factor settled; /* owned: shifts and exponents of the data */
    double *inverse;                  /* owned: R, q x q, column-major */
    double *gram, *part;              /* owned: B'B, that of some rows; column-major */
    double *rows, *image;             /* owned: ROWS x q of A and of B, column-major */
    double *row, *mean, *length;      /* owned: q each; length: of the columns of W^1/2 A */
    double *sizes, *h;                /* owned: q each */
    struct dd *v, *best, *g, *sum;    /* owned: q each */
    double alpha, spread;
};

static void release(struct proof *p) {
    blasd_regression_factor_release(&p->settled);
    free(p->inverse);
    free(p->rows);
    free(p->row);
    free(p->v);
}

static bool init(struct proof *p, const struct regression_shape *shape,
                 const struct regression_data *data) {
    size_t q = (size_t)shape->q;
    memset(p, 0, sizeof *p);
    p->shape = shape;
    p->data = data;
    p->n = shape->n;
    p->q = shape->q;
    p->skip = shape->q - shape->p;
    p->inverse = blasd_cpu_alloc(3 * q * q, sizeof(double));
    p->rows = blasd_cpu_alloc(2 * ROWS * q, sizeof(double));
    p->row = blasd_cpu_alloc(5 * q, sizeof(double));
    p->v = blasd_cpu_alloc(4 * q, sizeof *p->v);
    if (!blasd_regression_factor_alloc(&p->settled, shape, 1) || p->inverse == NULL ||
        p->rows == NULL || p->row == NULL || p->v == NULL)
        return false;
    p->gram = p->inverse + q * q;
    p->part = p->gram + q * q;
    p->image = p->rows + ROWS * q;
    p->mean = p->row + q;
    p->length = p->mean + q;
    p->sizes = p->length + q;
    p->h = p->sizes + q;
    p->best = p->v + q;
    p->g = p->best + q;
    p->sum = p->g + q;
    return true;
}

/* ---- the matrix ---- */

/* Row i of A: shifts are taken away, and units too, without rounding. */
static void load_row(struct proof *p, int64_t i) {
    const double *x = p->data->x + i * p->shape->p;
    if (p->skip == 1) p->row[0] = 1;
    for (int64_t j = p->skip; j < p->q; j++)
        p->row[j] = ldexp(x[j - p->skip] - p->settled.shift[j], -p->settled.exponent[j]);
}

static double weight(const struct proof *p, int64_t i) {
    return p->data->w == NULL ? 1 : p->data->w[i];
}

/* Weighted means of the columns and lengths; their number of roundings is that of the rows. */
static void measure(struct proof *p) {
    double total = 0;
    int64_t done = 0;
    memset(p->mean, 0, (size_t)p->q * sizeof *p->mean);
    memset(p->length, 0, (size_t)p->q * sizeof *p->length);
    for (int64_t i = 0; i < p->n && blasd_wanted_after(&done, 4 * p->q); i++) {
        double w = weight(p, i);
        load_row(p, i);
        total += w;
        for (int64_t j = 0; j < p->q; j++) {
            p->mean[j] += w * p->row[j];
            p->length[j] += w * p->row[j] * p->row[j];
        }
    }
    for (int64_t j = 0; j < p->q; j++) {
        p->mean[j] /= total;
        p->length[j] = bounds_up(sqrt(bounds_up(p->length[j], (double)p->n + 4)) + TINY, 2);
    }
}

/* R from the fit's triangle, whose first row depends on shifts that may be others: it is made anew.
 * False: the triangle has no inverse. */
static bool invert(struct proof *p, const struct regression_factor *factor) {
    int64_t q = p->q, skip = p->skip, m = q - skip;
    double *r = p->part;
    for (int64_t j = 0; j < m; j++)
        for (int64_t i = 0; i < m; i++)
            r[j * m + i] = i > j ? 0 : factor->r[(i + skip) * q + j + skip];
    if (m > 0 && p->shape->dense->trtri(true, (int)m, r, (int)m) != 0) return false;
    memset(p->inverse, 0, (size_t)(q * q) * sizeof *p->inverse);
    if (skip == 1) p->inverse[0] = 1 / p->length[0];
    for (int64_t k = 0; k < m; k++) {
        double *column = p->inverse + (k + skip) * q;
        for (int64_t j = 0; j <= k; j++) {
            int64_t at = j + skip;
            column[at] = ldexp(r[k * m + j], p->settled.exponent[at] - factor->exponent[at]);
            if (skip == 1) column[0] -= p->mean[at] * column[at];
        }
    }
    for (int64_t i = 0; i < q * q; i++)
        if (!(fabs(p->inverse[i]) < FAR)) return false;
    return true;
}

/* One row of A R in twice the precision, rounded. */
DD_CLONES
static void multiply_row(const double *row, const double *inverse, int64_t q, double *image) {
    for (int64_t k = 0; k < q; k++) {
        struct dd sum = {0, 0};
        for (int64_t j = 0; j <= k; j++)
            sum = dd_add(sum, dd_two_product(row[j], inverse[k * q + j]));
        image[k * ROWS] = dd_round(sum);
    }
}

/* gram := B'B, by some rows at a time; `wide`: of B made in twice the precision. */
static void make_gram(struct proof *p, bool wide) {
    const struct regression_dense *dense = p->shape->dense;
    int64_t q = p->q;
    memset(p->gram, 0, (size_t)(q * q) * sizeof *p->gram);
    for (int64_t i = 0; i < p->n && blasd_wanted(); i += ROWS) {
        int64_t count = p->n - i < ROWS ? p->n - i : ROWS;
        for (int64_t r = 0; r < count; r++) {
            load_row(p, i + r);
            if (wide) multiply_row(p->row, p->inverse, q, p->image + r);
            for (int64_t j = 0; j < q; j++) p->rows[j * ROWS + r] = p->row[j];
        }
        if (!wide)
            dense->gemm(false, false, (int)count, (int)q, (int)q, p->rows, ROWS, p->inverse, (int)q,
                        p->image, ROWS);
        for (int64_t r = 0; r < count && p->data->w != NULL; r++) {
            double root = sqrt(p->data->w[i + r]);
            for (int64_t j = 0; j < q; j++) p->image[j * ROWS + r] *= root;
        }
        dense->syrk((int)q, (int)count, p->image, ROWS, p->part, (int)q);
        for (int64_t k = 0; k < q; k++)
            for (int64_t j = 0; j <= k; j++) p->gram[k * q + j] += p->part[k * q + j];
    }
}

/* The length of row j of R. */
static double row_length(const struct proof *p, int64_t j) {
    double sum = 0;
    for (int64_t k = j; k < p->q; k++) sum += p->inverse[k * p->q + j] * p->inverse[k * p->q + j];
    return bounds_up(sqrt(bounds_up(sum, (double)p->q + 2)) + TINY, 2);
}

/* A bound on the norm of E. B is off by at most `off`, in Frobenius' norm. */
static double distance(struct proof *p, bool wide) {
    double q = (double)p->q, off = 0, trace = 0, squares = 0, terms;
    make_gram(p, wide);
    for (int64_t k = 0; k < p->q; k++) trace += p->gram[k * p->q + k];
    terms = 2 * ROWS + (double)p->n / ROWS + 4;
    trace = bounds_up(trace / (1 - bounds_gamma(terms)), q);
    for (int64_t j = 0; j < p->q; j++) off += p->length[j] * row_length(p, j);
    off = bounds_up(off, q + 2);
    off = wide ? 8 * U * sqrt(trace) + 8 * (q + 2) * U * U * off : bounds_gamma(q + 4) * off;
    off = bounds_up(off + ROOT_TINY, 8);
    for (int64_t k = 0; k < p->q; k++)
        for (int64_t j = 0; j <= k; j++) {
            double e = p->gram[k * p->q + j] - (j == k ? 1 : 0);
            squares += (j == k ? 1 : 2) * e * e;
        }
    return bounds_up(bounds_up(sqrt(bounds_up(squares, q * q)), 2) +
                         (bounds_gamma(terms) + 2 * U) * trace +
                         off * (2 * bounds_up(sqrt(trace), 2) + off),
                     16);
}

/* ---- a target ---- */

/* g := A'W (y - A v) in double-double; in `sizes` what the error of its sums is relative to, and in
 * `spread` the length of what that of y - A v is, times W^1/2. */
DD_CLONES
static void gradient(struct proof *p, int64_t target) {
    int64_t q = p->q, t = p->shape->t, done = 0;
    double shift = p->settled.shift[q + target];
    int exponent = -p->settled.exponent[q + target];
    for (int64_t j = 0; j < q; j++) {
        p->g[j] = p->sum[j] = dd_from(0);
        p->sizes[j] = 0;
    }
    p->spread = 0;
    for (int64_t i = 0; i < p->n && blasd_wanted_after(&done, 40 * q); i++) {
        struct dd rest = dd_from(ldexp(p->data->y[i * t + target] - shift, exponent));
        double size = fabs(rest.hi), w = weight(p, i);
        load_row(p, i);
        for (int64_t j = 0; j < q; j++) {
            rest = dd_subtract(rest, dd_scale(p->v[j], p->row[j]));
            size += fabs(p->row[j] * p->v[j].hi);
        }
        p->spread += w * size * size;
        rest = dd_scale(rest, w);
        for (int64_t j = 0; j < q; j++) {
            p->sum[j] = dd_add(p->sum[j], dd_scale(rest, p->row[j]));
            p->sizes[j] += fabs(p->row[j] * rest.hi);
        }
        if (i % ROWS != ROWS - 1 && i != p->n - 1) continue;
        for (int64_t j = 0; j < q; j++) {
            p->g[j] = dd_add(p->g[j], p->sum[j]);
            p->sum[j] = dd_from(0);
        }
    }
}

/* h := R'g; returns its length, and in *unsure that of what it may be off by. */
static double project(struct proof *p, double *unsure) {
    double n = (double)p->n, q = (double)p->q, most = 0, squares = 0, errors = 0;
    double each = 4 * ((n < ROWS ? n : ROWS + n / ROWS) + 8) * U * U;
    for (int64_t k = 0; k < p->q; k++) {
        struct dd sum = {0, 0};
        double off = 0;
        for (int64_t j = 0; j <= k; j++) {
            double by = p->inverse[k * p->q + j];
            sum = dd_add(sum, dd_scale(p->g[j], by));
            off += fabs(by) *
                   bounds_up(each * p->sizes[j] + 8 * (q + 2) * U * U * fabs(p->g[j].hi) + TINY,
                             n + q);
        }
        p->h[k] = dd_round(sum);
        off = bounds_up(off + 2 * U * fabs(p->h[k]), q + 4);
        squares += p->h[k] * p->h[k];
        errors += off * off;
        if (!(fabs(p->h[k]) <= most)) most = fabs(p->h[k]);
    }
    *unsure =
        bounds_up(sqrt(bounds_up(errors, q + 2)) + TINY, 4) +
        8 * (q + 2) * U * U * bounds_up(sqrt((1 + p->alpha) * bounds_up(p->spread, n + q + 8)), 8);
    *unsure = bounds_up(*unsure, 4);
    return most < FAR ? bounds_up(sqrt(bounds_up(squares, q + 2)) + TINY, 4) : INFINITY;
}

/* Where the coefficients as they were given lie: v, in units. False: out of range. */
static bool start(struct proof *p, const struct blasd_task *task, int64_t at, int64_t target) {
    const struct blasd_tensor *coef = &task->outputs[OUT_COEF];
    int64_t item = at * p->shape->t + target;
    int unit = p->settled.exponent[p->q + target];
    struct dd intercept =
        dd_from(blasd_regression_number(&task->outputs[OUT_INTERCEPT], item) * (double)p->skip);
    for (int64_t j = p->skip; j < p->q; j++) {
        double c = blasd_regression_number(coef, item * p->shape->p + j - p->skip);
        intercept = dd_add(intercept, dd_two_product(c, p->settled.shift[j]));
        p->v[j] = dd_from(ldexp(c, p->settled.exponent[j] - unit));
        if (!(fabs(p->v[j].hi) < FAR)) return false;
    }
    intercept = dd_subtract(intercept, dd_from(p->settled.shift[p->q + target]));
    if (p->skip == 1) p->v[0] = dd_shift(intercept, -unit);
    if (p->skip == 1 && !(fabs(p->v[0].hi) < FAR)) p->v[0] = dd_from(0);
    return true;
}

/* Refines v for as long as that makes h smaller; p->best is the v of the bound that it returns, of
 * |h| / (1 - alpha). */
static double refine(struct proof *p, int64_t target) {
    double before = INFINITY, least = INFINITY;
    for (int turn = 0; turn < TURNS && blasd_wanted(); turn++) {
        double unsure, length, bound;
        gradient(p, target);
        length = project(p, &unsure);
        bound = bounds_up((length + unsure) / ((1 - p->alpha) * (1 - 4 * U)), 4);
        if (bound < least) {
            least = bound;
            memcpy(p->best, p->v, (size_t)p->q * sizeof *p->v);
        }
        if (!(length > unsure / 8) || !(length < before / 2)) break;
        before = length;
        for (int64_t j = 0; j < p->q; j++) {
            double step = 0;
            for (int64_t k = j; k < p->q; k++) step += p->inverse[k * p->q + j] * p->h[k];
            p->v[j] = dd_add(p->v[j], dd_from(step));
        }
    }
    return least;
}

/* The bounds of one target's coefficients. False: not all are finite. */
static bool bound_target(struct proof *p, const struct blasd_task *task, int64_t at,
                         int64_t target) {
    int64_t first = (at * p->shape->t + target) * p->shape->p;
    double *ret = (double *)task->outputs[OUT_ERROR_BOUND].data + first, left;
    bool proven = true;
    for (int64_t j = 0; j < p->shape->p; j++) ret[j] = INFINITY;
    if (!(p->alpha < 1) || !start(p, task, at, target)) return p->shape->p == 0;
    left = refine(p, target);
    for (int64_t j = p->skip; j < p->q && blasd_wanted(); j++) {
        int unit = p->settled.exponent[j] - p->settled.exponent[p->q + target];
        double c = blasd_regression_number(&task->outputs[OUT_COEF], first + j - p->skip), bound;
        struct dd off = dd_subtract(dd_from(ldexp(c, unit)), p->best[j]);
        bound = bounds_up(fabs(dd_round(off)), 4) + bounds_up(row_length(p, j) * left, 4) + TINY;
        /* nextafter: what ldexp may have rounded off below the normal numbers */
        bound = nextafter(ldexp(bounds_up(bound, 4), -unit), INFINITY);
        ret[j - p->skip] = isfinite(bound) ? bound : INFINITY;
        proven = proven && isfinite(bound);
    }
    return proven;
}

int blasd_regression_prove(const struct regression_shape *shape, const struct regression_data *data,
                           const struct regression_factor *factor, struct regression_fit *fit,
                           const struct blasd_task *task, int64_t at, struct blasd_err *err) {
    struct proof p;
    bool full = fit->rank == shape->q && shape->n >= shape->q && factor->triangle;
    fit->unproven = false;
    if (!init(&p, shape, data)) {
        release(&p);
        return blasd_fail(err, BLASD_E_out_of_memory, "", "no memory to certify in");
    }
    blasd_regression_settle(shape, data, &p.settled);
    p.alpha = INFINITY;
    if (full) measure(&p);
    if (full && invert(&p, factor)) {
        p.alpha = distance(&p, false);
        if (!(p.alpha < 0.5)) p.alpha = distance(&p, true);
    }
    for (int64_t l = 0; l < shape->t && blasd_wanted(); l++)
        if (!bound_target(&p, task, at, l)) fit->unproven = true;
    release(&p);
    return 0;
}
