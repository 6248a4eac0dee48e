/* Gradient descent as it is taught: the loss is the mean of the squared residuals, all coefficients
 * start at 0, each step is b -= learning_rate * 2/n X'(Xb - y), and the intercept is a column of
 * ones.
 *
 * X'(Xb - y) is (X'X) b - X'y: with both products made once, a step costs q^2 and not 2 n q, and
 * gives the same iterates up to rounding. Where q is larger than 2 n the plain way costs less. */
#include "kernels/regression/regression.h"

#include "base/err.h"
#include "core/wanted.h"
#include "kernels/cpu/cpu.h"

#include <cblas.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define CALL_FLOPS 5e9 /* of one call of BLAS, about: the work may end between two */

struct descent {
    const struct regression_shape *shape;
    int64_t n, q, t;
    double *a;            /* owned: [1 X] with rows times sqrt(weight), n x q row-major */
    double *y;            /* owned: the same of y, n x t */
    double *gram, *ay;    /* owned: q x q and q x t, row-major; NULL for the plain way */
    double *b, *g, *left; /* owned: q x t, q x t, n x t */
    double *start;        /* owned: g at the start */
};

static void release(struct descent *d) {
    free(d->a);
    free(d->y);
    free(d->gram);
    free(d->ay);
    free(d->b);
    free(d->g);
    free(d->left);
    free(d->start);
}

static int init(struct descent *d, const struct regression_shape *shape,
                const struct regression_data *data, struct blasd_err *err) {
    size_t n = (size_t)shape->n, q = (size_t)shape->q, t = (size_t)shape->t;
    int64_t first = shape->intercept ? 1 : 0, done = 0;
    bool gram = shape->q <= 2 * shape->n;
    memset(d, 0, sizeof *d);
    d->shape = shape;
    d->n = shape->n;
    d->q = shape->q;
    d->t = shape->t;
    d->a = blasd_cpu_alloc(n * q, sizeof(double));
    d->y = blasd_cpu_alloc(n * t, sizeof(double));
    d->b = blasd_cpu_alloc(q * t, sizeof(double));
    d->g = blasd_cpu_alloc(q * t, sizeof(double));
    d->start = blasd_cpu_alloc(q * t, sizeof(double));
    if (gram) d->gram = blasd_cpu_alloc(q * q, sizeof(double));
    if (gram) d->ay = blasd_cpu_alloc(q * t, sizeof(double));
    if (!gram) d->left = blasd_cpu_alloc(n * t, sizeof(double));
    if (d->a == NULL || d->y == NULL || d->b == NULL || d->g == NULL || d->start == NULL ||
        (gram ? d->gram == NULL || d->ay == NULL : d->left == NULL))
        return blasd_fail(err, BLASD_E_out_of_memory, "", "no memory for the descent");
    for (int64_t i = 0; i < d->n && blasd_wanted_after(&done, 2 * (d->q + d->t)); i++) {
        double root = data->w == NULL ? 1 : sqrt(data->w[i]);
        double *row = d->a + i * d->q;
        if (first == 1) row[0] = root;
        for (int64_t j = 0; j < shape->p; j++) row[first + j] = root * data->x[i * shape->p + j];
        for (int64_t l = 0; l < d->t; l++) d->y[i * d->t + l] = root * data->y[i * d->t + l];
    }
    memset(d->b, 0, q * t * sizeof(double));
    return 0;
}

/* X'X (both triangles) and X'y. */
static void products(struct descent *d) {
    int n = (int)d->n, q = (int)d->q, t = (int)d->t;
    double most = CALL_FLOPS / (2.0 * q * (q > t ? q : t) + 1);
    int part = most < 256 ? 256 : most < n ? (int)most : n; /* rows that are added at once */
    if (q == 0 || t == 0) return;
    for (int i = 0; i < n && blasd_wanted(); i += part) {
        const double *a = d->a + i * d->q, *y = d->y + i * d->t;
        int rows = n - i < part ? n - i : part;
        double beta = i > 0 ? 1 : 0;
        cblas_dsyrk(CblasRowMajor, CblasUpper, CblasTrans, q, rows, 1, a, q, beta, d->gram, q);
        cblas_dgemm(CblasRowMajor, CblasTrans, CblasNoTrans, q, t, rows, 1, a, q, y, t, beta, d->ay,
                    t);
    }
    for (int64_t i = 0; i < d->q; i++)
        for (int64_t j = 0; j < i; j++) d->gram[i * d->q + j] = d->gram[j * d->q + i];
}

/* g = X'(X b - y) */
static void gradient(struct descent *d) {
    int n = (int)d->n, q = (int)d->q, t = (int)d->t;
    int targets = 2.0 * q * q * t > CALL_FLOPS ? 256 : t;
    if (d->gram != NULL) {
        memcpy(d->g, d->ay, (size_t)(d->q * d->t) * sizeof(double));
        if (t == 1)
            cblas_dgemv(CblasRowMajor, CblasNoTrans, q, q, 1, d->gram, q, d->b, 1, -1, d->g, 1);
        for (int l = 0; t > 1 && l < t && blasd_wanted(); l += targets)
            cblas_dgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, q,
                        t - l < targets ? t - l : targets, q, 1, d->gram, q, d->b + l, t, -1,
                        d->g + l, t);
        return;
    }
    memcpy(d->left, d->y, (size_t)(d->n * d->t) * sizeof(double));
    cblas_dgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, n, t, q, 1, d->a, q, d->b, t, -1,
                d->left, t);
    cblas_dgemm(CblasRowMajor, CblasTrans, CblasNoTrans, q, t, n, 1, d->a, q, d->left, t, 0, d->g,
                t);
}

int blasd_regression_descend(const struct regression_shape *shape,
                             const struct regression_data *data, struct regression_fit *fit,
                             struct blasd_cpu_progress *progress, struct blasd_err *err) {
    struct descent d;
    double rate = shape->learning_rate * 2 / data->total, work;
    int code = init(&d, shape, data, err);
    if (code != 0 || d.q == 0 || d.t == 0) goto done;
    if (d.gram != NULL) products(&d);
    work = d.gram != NULL ? 2.0 * (double)d.q * (double)d.q * (double)d.t
                          : 4.0 * (double)d.n * (double)d.q * (double)d.t;
    gradient(&d);
    memcpy(d.start, d.g, (size_t)(d.q * d.t) * sizeof *d.g);
    for (int64_t step = 0; step < shape->iterations; step++) {
        for (int64_t at = 0; at < d.q * d.t; at++) d.b[at] -= rate * d.g[at];
        gradient(&d);
        if (!blasd_cpu_step(progress, work)) {
            code = blasd_cpu_stopped(err);
            goto done;
        }
    }
    for (int64_t j = 0; j < d.q; j++)
        for (int64_t l = 0; l < d.t; l++) fit->coef[l * d.q + j] = d.b[j * d.t + l];
done:
    if (code == 0) blasd_regression_judge(shape, d.start, d.g, 2 / data->total, fit);
    release(&d);
    if (code == 0) blasd_regression_residuals(shape, data, fit, true);
    return code;
}
