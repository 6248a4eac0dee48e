/* Least squares with many observations: one pass over the data for a triangle, another to refine.
 *
 * The pass takes chunks of rows that fit in cache and folds each into the triangle (TSQR in a
 * row). The second pass computes the residuals y - Xb in double-double and their products with the
 * columns, g = X'(y - Xb), and corrects b by (R'R)^-1 g. Since g is exact to 30 digits, an error of
 * b shrinks by about the condition number times 1e-16 in each such step.
 *
 * Columns are shifted by one of their values and scaled by powers of two, which rounds nothing: a
 * feature that does not vary is 0 then, and one far from 0 is as good as one near it. Read next:
 * factor.c. */
#include "kernels/regression/regression.h"

#include "base/err.h"
#include "core/wanted.h"
#include "kernels/cpu/cpu.h"
#include "kernels/numeric/dd.h"
#include "kernels/regression/dense.h"

#include <cblas.h>
#include <float.h>
#include <lapacke.h>
#include <stdlib.h>
#include <string.h>

enum { LANES = 16 };
#define CHUNK_BYTES (384 << 10) /* of columns in one chunk */
#define MOST_STEPS 8            /* of refinement */
/* of the largest part that a feature has in y: one that is less is right to this */
#define SEEN 1e-8
#define UNREFINED 1e-8 /* of a coefficient: the last step was still larger */
#define TARGETS 512    /* in one call of LAPACK */

struct regression_tall {
    const struct regression_shape *shape; /* borrowed */
    int64_t chunk, stride;                /* rows in a chunk; in its columns with the triangle */
    double *columns;    /* owned: q + t columns of `stride`: triangle, then rows */
    double *tau, *work; /* owned: of LAPACK */
    int work_len;
    double *hi, *lo;         /* owned: residuals of a chunk */
    double *root;            /* owned: weights or their roots in a chunk */
    struct dd *b, *gradient; /* owned: q */
};

void blasd_regression_tall_free(struct regression_tall *tall) {
    if (tall == NULL) return;
    free(tall->columns);
    free(tall->tau);
    free(tall->work);
    free(tall->hi);
    free(tall->lo);
    free(tall->root);
    free(tall->b);
    free(tall->gradient);
    free(tall);
}

void blasd_regression_tall_next(struct regression_tall *tall,
                                const struct regression_shape *shape) {
    int64_t q = shape->q, all = q + shape->t, chunk = CHUNK_BYTES / 8 / (all > 0 ? all : 1);
    tall->shape = shape;
    if (chunk < q) chunk = q;
    if (chunk < 64) chunk = 64;
    if (chunk > shape->n) chunk = shape->n;
    tall->chunk = (chunk + LANES - 1) / LANES * LANES;
    tall->stride = q + tall->chunk;
}

struct regression_tall *blasd_regression_tall_new(const struct regression_shape *shape) {
    struct regression_tall *tall = calloc(1, sizeof *tall);
    int64_t q = shape->q, all = q + shape->t;
    double want = 0, want_mqr = 0;
    if (tall == NULL) return NULL;
    blasd_regression_tall_next(tall, shape);
    if (q > 0)
        LAPACKE_dgeqrf_work(LAPACK_COL_MAJOR, (int)tall->stride, (int)q, NULL, (int)tall->stride,
                            NULL, &want, -1);
    if (q > 0 && shape->t > 0)
        LAPACKE_dormqr_work(LAPACK_COL_MAJOR, 'L', 'T', (int)tall->stride, (int)shape->t, (int)q,
                            NULL, (int)tall->stride, NULL, NULL, (int)tall->stride, &want_mqr, -1);
    if (want_mqr > want) want = want_mqr;
    if (!(want < 1e9)) want = 1e9;
    tall->work_len = want < 1 ? 1 : (int)want;
    tall->columns = blasd_cpu_alloc((size_t)tall->stride * (size_t)all, sizeof(double));
    tall->tau = blasd_cpu_alloc((size_t)q, sizeof(double));
    tall->work = blasd_cpu_alloc((size_t)tall->work_len, sizeof(double));
    tall->hi = blasd_cpu_alloc((size_t)tall->chunk, sizeof(double));
    tall->lo = blasd_cpu_alloc((size_t)tall->chunk, sizeof(double));
    tall->root = blasd_cpu_alloc((size_t)tall->chunk, sizeof(double));
    tall->b = blasd_cpu_alloc((size_t)q, sizeof(struct dd));
    tall->gradient = blasd_cpu_alloc((size_t)q, sizeof(struct dd));
    if (tall->columns != NULL && tall->tau != NULL && tall->work != NULL && tall->hi != NULL &&
        tall->lo != NULL && tall->root != NULL && tall->b != NULL && tall->gradient != NULL)
        return tall;
    blasd_regression_tall_free(tall);
    return NULL;
}

/* Copies `count` rows of a row-major matrix of `width` into columns `stride` apart, shifted and
 * scaled. */
static void copy_columns(const double *from, int64_t width, int64_t count, double *to,
                         int64_t stride, const double *shift, const int *exponent) {
    for (int64_t j0 = 0; j0 < width; j0 += 8) {
        int64_t end = j0 + 8 < width ? j0 + 8 : width;
        double scale[8];
        bool plain = true; /* the powers of two are numbers */
        for (int64_t j = j0; j < end; j++) {
            scale[j - j0] = ldexp(1, -exponent[j]);
            if (exponent[j] > 1000 || exponent[j] < -1000) plain = false;
        }
        for (int64_t i = 0; i < count; i++)
            for (int64_t j = j0; j < end; j++) {
                double x = from[i * width + j] - shift[j];
                to[j * stride + i] = plain ? x * scale[j - j0] : ldexp(x, -exponent[j]);
            }
    }
}

/* Puts rows i0 .. i0 + count into the columns at row `at`, shifted and scaled but not weighted. */
static void load(struct regression_tall *tall, const struct regression_data *data,
                 const struct regression_factor *factor, int64_t i0, int64_t count, int64_t at) {
    const struct regression_shape *shape = tall->shape;
    int64_t first = shape->intercept ? 1 : 0, q = shape->q;
    if (first == 1)
        for (int64_t i = 0; i < count; i++) tall->columns[at + i] = 1;
    copy_columns(data->x + i0 * shape->p, shape->p, count,
                 tall->columns + first * tall->stride + at, tall->stride, factor->shift + first,
                 factor->exponent + first);
    copy_columns(data->y + i0 * shape->t, shape->t, count, tall->columns + q * tall->stride + at,
                 tall->stride, factor->shift + q, factor->exponent + q);
}

/* Folds the rows behind the triangle into it; targets become Q'y, and what is left of them is the
 * rest of their squares. */
static int fold(struct regression_tall *tall, int64_t count, double *rest) {
    const struct regression_shape *shape = tall->shape;
    int64_t q = shape->q, t = shape->t, rows = q + count, stride = tall->stride;
    double *targets = tall->columns + q * stride;
    if (q > 0 && blasd_regression_qr((int)rows, (int)q, tall->columns, (int)stride, tall->tau,
                                     tall->work, tall->work_len) != 0)
        return -1;
    for (int64_t l = 0; q > 0 && l < t && blasd_wanted(); l += TARGETS)
        if (LAPACKE_dormqr_work(LAPACK_COL_MAJOR, 'L', 'T', (int)rows,
                                (int)(t - l < TARGETS ? t - l : TARGETS), (int)q, tall->columns,
                                (int)stride, tall->tau, targets + l * stride, (int)stride,
                                tall->work, tall->work_len) != 0)
            return -1;
    for (int64_t j = 0; j < q; j++)
        memset(tall->columns + j * stride + j + 1, 0, (size_t)(rows - j - 1) * sizeof(double));
    for (int64_t l = 0; l < t; l++) {
        const double *left = targets + l * stride + q;
        for (int64_t i = 0; i < count; i++) rest[l] += left[i] * left[i];
    }
    return 0;
}

static int lapack_failed(struct blasd_err *err) {
    return blasd_fail(err, BLASD_E_out_of_memory, "", "the factorisation could not be made");
}

int blasd_regression_tall_factor(struct regression_tall *tall, const struct regression_data *data,
                                 struct regression_factor *factor,
                                 struct blasd_cpu_progress *progress, struct blasd_err *err) {
    const struct regression_shape *shape = tall->shape;
    int64_t q = shape->q, t = shape->t, stride = tall->stride;
    blasd_regression_settle(shape, data, factor);
    memset(tall->columns, 0, (size_t)(stride * (q + t)) * sizeof(double));
    memset(factor->rest, 0, (size_t)t * sizeof(double));
    for (int64_t i0 = 0; i0 < shape->n; i0 += tall->chunk) {
        int64_t count = shape->n - i0 < tall->chunk ? shape->n - i0 : tall->chunk;
        load(tall, data, factor, i0, count, q);
        for (int64_t i = 0; data->w != NULL && i < count; i++)
            tall->root[i] = sqrt(data->w[i0 + i]);
        for (int64_t j = 0; data->w != NULL && j < q + t; j++)
            for (int64_t i = 0; i < count; i++) tall->columns[j * stride + q + i] *= tall->root[i];
        if (fold(tall, count, factor->rest) != 0) return lapack_failed(err);
        if (!blasd_cpu_step(progress, 2.0 * (double)count * (double)q * (double)(q + 2 * t)))
            return blasd_cpu_stopped(err);
    }
    factor->rows = q;
    factor->triangle = true;
    /* each fold rounds all that was folded before */
    factor->noise = (32 + 4 * (double)((shape->n - 1) / tall->chunk)) * DBL_EPSILON;
    for (int64_t i = 0; i < q; i++) {
        for (int64_t j = 0; j < q; j++) factor->r[i * q + j] = tall->columns[j * stride + i];
        for (int64_t l = 0; l < t; l++) factor->z[i * t + l] = tall->columns[(q + l) * stride + i];
    }
    for (int64_t l = 0; l < t; l++)
        factor->rest[l] = ldexp(factor->rest[l], 2 * factor->exponent[q + l]);
    return 0;
}

/* r -= a b, element by element */
DD_CLONES
static void subtract_column(const double *restrict a, struct dd b, double *restrict hi,
                            double *restrict lo, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        struct dd part = dd_two_product(a[i], b.hi), next;
        part.lo += a[i] * b.lo;
        next = dd_two_sum(hi[i], -part.hi);
        next = dd_fast_sum(next.hi, next.lo + (lo[i] - part.lo));
        hi[i] = next.hi;
        lo[i] = next.lo;
    }
}

/* Sum of a r. */
DD_CLONES
static struct dd column_product(const double *restrict a, const double *restrict hi,
                                const double *restrict lo, int64_t n) {
    double sum_hi[LANES] = {0}, sum_lo[LANES] = {0};
    struct dd sum = {0, 0};
    for (int64_t i = 0; i < n; i += LANES) {
        for (int l = 0; l < LANES; l++) {
            struct dd part = dd_two_product(a[i + l], hi[i + l]), next;
            part.lo += a[i + l] * lo[i + l];
            next = dd_two_sum(sum_hi[l], part.hi);
            next = dd_fast_sum(next.hi, next.lo + (sum_lo[l] + part.lo));
            sum_hi[l] = next.hi;
            sum_lo[l] = next.lo;
        }
    }
    for (int l = 0; l < LANES; l++) sum = dd_add(sum, (struct dd){sum_hi[l], sum_lo[l]});
    return sum;
}

/* Sum of w r^2; r becomes w r. */
DD_CLONES
static struct dd weigh(const double *restrict w, double *restrict hi, double *restrict lo,
                       int64_t n) {
    double sum_hi[LANES] = {0}, sum_lo[LANES] = {0};
    struct dd sum = {0, 0};
    for (int64_t i = 0; i < n; i += LANES) {
        for (int l = 0; l < LANES; l++) {
            struct dd r = {hi[i + l], lo[i + l]}, weighted = dd_scale(r, w[i + l]);
            struct dd next = dd_add((struct dd){sum_hi[l], sum_lo[l]}, dd_multiply(r, weighted));
            hi[i + l] = weighted.hi;
            lo[i + l] = weighted.lo;
            sum_hi[l] = next.hi;
            sum_lo[l] = next.lo;
        }
    }
    for (int l = 0; l < LANES; l++) sum = dd_add(sum, (struct dd){sum_hi[l], sum_lo[l]});
    return sum;
}

/* The gradient at b of one target, and the sum of squared residuals. False: stopped. */
static bool gradient(struct regression_tall *tall, const struct regression_data *data,
                     const struct regression_factor *factor, int64_t target, struct dd *squares,
                     struct blasd_cpu_progress *progress) {
    const struct regression_shape *shape = tall->shape;
    int64_t q = shape->q, stride = tall->stride, done = 0;
    const double *y = tall->columns + (q + target) * stride;
    for (int64_t j = 0; j < q; j++) tall->gradient[j] = dd_from(0);
    *squares = dd_from(0);
    for (int64_t i0 = 0; i0 < shape->n; i0 += tall->chunk) {
        int64_t count = shape->n - i0 < tall->chunk ? shape->n - i0 : tall->chunk;
        int64_t padded = (count + LANES - 1) / LANES * LANES;
        load(tall, data, factor, i0, count, 0);
        for (int64_t i = 0; i < padded; i++) {
            tall->hi[i] = i < count ? y[i] : 0;
            tall->lo[i] = 0;
        }
        for (int64_t j = 0; j < q && blasd_wanted_after(&done, 8 * count); j++)
            subtract_column(tall->columns + j * stride, tall->b[j], tall->hi, tall->lo, count);
        for (int64_t i = 0; i < padded; i++)
            tall->root[i] = i >= count || data->w == NULL ? 1 : data->w[i0 + i];
        *squares = dd_add(*squares, weigh(tall->root, tall->hi, tall->lo, padded));
        for (int64_t j = 0; j < q && blasd_wanted_after(&done, 8 * count); j++) {
            double *column = tall->columns + j * stride;
            for (int64_t i = count; i < padded; i++) column[i] = 0;
            tall->gradient[j] =
                dd_add(tall->gradient[j], column_product(column, tall->hi, tall->lo, padded));
        }
        if (!blasd_cpu_step(progress, 40.0 * (double)count * (double)q)) return false;
    }
    return true;
}

/* The penalty's part in the gradient of ridge, and in what a step takes from the residuals'
 * squares: |r - X s|^2 is |r|^2 - s'g - alpha (2 s'b + s's), where (X'X + alpha) s = g = X'r -
 * alpha b. */
static void penalise(struct regression_tall *tall, const struct regression_shape *shape,
                     const struct regression_factor *factor) {
    for (int64_t j = shape->q - shape->p; j < shape->q; j++)
        tall->gradient[j] = dd_subtract(
            tall->gradient[j], dd_scale(tall->b[j], ldexp(shape->alpha, -2 * factor->exponent[j])));
}

static struct dd penalised_fall(const struct regression_tall *tall,
                                const struct regression_shape *shape,
                                const struct regression_factor *factor, const double *step,
                                struct dd fall) {
    for (int64_t j = shape->q - shape->p; j < shape->q; j++) {
        struct dd twice = dd_add(dd_shift(tall->b[j], 1), dd_from(step[j]));
        fall = dd_add(fall, dd_scale(dd_scale(twice, step[j]),
                                     ldexp(shape->alpha, -2 * factor->exponent[j])));
    }
    return fall;
}

/* By how much a step shrinks the error, at worst or so: its gradient is rounded to a double before
 * the triangle's inverse, twice, makes the step. */
static double shrinking(const struct regression_factor *factor, int64_t q) {
    double most = 0, least = INFINITY;
    for (int64_t j = 0; j < q; j++) {
        most = fmax(most, fabs(factor->r[j * q + j]));
        least = fmin(least, fabs(factor->r[j * q + j]));
    }
    return q == 0 ? 0 : fmin(100 * DBL_EPSILON * (most / least) * (most / least), 1);
}

/* One target: steps until the correction is below the rounding of b. False: stopped. */
static bool refine_target(struct regression_tall *tall, const struct regression_shape *shape,
                          const struct regression_data *data,
                          const struct regression_factor *factor, int64_t target,
                          struct regression_fit *fit, struct blasd_cpu_progress *progress) {
    int64_t q = shape->q;
    const int *e = factor->exponent;
    int shift = e[q + target];
    double *step = tall->tau, last = INFINITY, by = shrinking(factor, q), left = 0;
    bool penalised = shape->method == METHOD_RIDGE && shape->alpha > 0;
    struct dd squares = {0, 0}, fall = {0, 0};
    for (int64_t j = 0; j < q; j++)
        tall->b[j] = dd_from(ldexp(fit->coef[target * q + j], e[j] - shift));
    for (int steps = 0; steps < MOST_STEPS; steps++) {
        double size = 0, change = 0, part = 0;
        if (!gradient(tall, data, factor, target, &squares, progress)) return false;
        if (penalised) penalise(tall, shape, factor);
        for (int64_t j = 0; j < q; j++) step[j] = dd_round(tall->gradient[j]);
        if (q > 0) {
            cblas_dtrsv(CblasRowMajor, CblasUpper, CblasTrans, CblasNonUnit, (int)q, factor->r,
                        (int)q, step, 1);
            cblas_dtrsv(CblasRowMajor, CblasUpper, CblasNoTrans, CblasNonUnit, (int)q, factor->r,
                        (int)q, step, 1);
        }
        fall = dd_from(0);
        for (int64_t j = 0; j < q; j++) {
            fall = dd_add(fall, dd_scale(tall->gradient[j], step[j]));
            if (fabs(tall->b[j].hi) > size) size = fabs(tall->b[j].hi);
            if (fabs(step[j]) > change) change = fabs(step[j]);
        }
        for (int64_t j = 0; j < q; j++) {
            double own = fmax(fabs(tall->b[j].hi), penalised ? 0 : SEEN * size);
            if (fabs(step[j]) > part * own) part = fabs(step[j]) / own;
        }
        if (penalised) fall = penalised_fall(tall, shape, factor, step, fall);
        left = part;
        if (!(change < last / 4)) break; /* no longer better: leave b as it is */
        for (int64_t j = 0; j < q; j++) tall->b[j] = dd_add(tall->b[j], dd_from(step[j]));
        if (steps > 0) by = change / last;
        last = change;
        squares = dd_subtract(squares, fall); /* |r - X step|^2, since X'X step = g */
        left = part * by; /* the next correction would be about this one times `by` */
        if (!(change > 1e-9 * size) && !(part * by > 1e-17) && !(penalised && part > 1e-9)) break;
    }
    if (!penalised && left > UNREFINED) fit->unsure = true;
    for (int64_t j = 0; j < q; j++)
        fit->coef[target * q + j] = ldexp(dd_round(tall->b[j]), shift - e[j]);
    if (shape->intercept)
        fit->coef[target * q] = blasd_regression_unshift(shape, factor, tall->b, target);
    fit->ssr[target] = squares.hi > 0 ? ldexp(dd_round(squares), 2 * shift) : 0;
    return true;
}

int blasd_regression_tall_refine(struct regression_tall *tall, const struct regression_shape *shape,
                                 const struct regression_data *data,
                                 const struct regression_factor *factor, struct regression_fit *fit,
                                 struct blasd_cpu_progress *progress, struct blasd_err *err) {
    for (int64_t target = 0; target < shape->t; target++)
        if (!refine_target(tall, shape, data, factor, target, fit, progress))
            return blasd_cpu_stopped(err);
    return 0;
}
