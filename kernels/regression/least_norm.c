/* Coefficients of least norm, where they are not unique.
 *
 * They are found by QR with column pivoting and a second QR of what is left ("complete orthogonal
 * decomposition"), or from singular values where rcond asks for that. The rank is decided on
 * columns of equal length, the norm is that of the coefficients as the user sees them. Read next:
 * factor.c. */
#include "base/err.h"
#include "core/wanted.h"
#include "kernels/cpu/cpu.h"
#include "kernels/numeric/dd.h"
#include "kernels/regression/dense.h"
#include "kernels/regression/factor.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static int no_memory(struct blasd_err *err) {
    return blasd_fail(err, BLASD_E_out_of_memory, "", "no memory to solve with the factor");
}

/* A least-norm problem s b = g: s is rank x n (row-major), g rank x t, b n x t (column-major). */
struct norm_problem {
    int64_t rank, n, t;
    double *s, *g, *b;        /* owned */
    double *q, *triangle;     /* owned: s' = q triangle, q being n x rank, column-major */
    double *inverse;          /* owned: pseudo-inverse of s, as q */
    double *tau;              /* owned: room */
    int *pivot;               /* owned: room */
    struct feature *features; /* owned: in the order in which they stand in s */
    bool graded;              /* their sizes differ much */
};
struct feature {
    double size;
    int64_t at;
};

static int larger_first(const void *a, const void *b) {
    double x = ((const struct feature *)a)->size, y = ((const struct feature *)b)->size;
    return x < y ? 1 : x > y ? -1 : 0;
}

static void norm_problem_release(struct norm_problem *m) {
    free(m->s);
    free(m->g);
    free(m->b);
    free(m->q);
    free(m->inverse);
    free(m->tau);
    free(m->triangle);
    free(m->pivot);
    free(m->features);
}

static bool norm_problem_init(struct norm_problem *m, int64_t rank, int64_t n, int64_t t) {
    size_t k = (size_t)rank, all = (size_t)n;
    memset(m, 0, sizeof *m);
    m->rank = rank;
    m->n = n;
    m->t = t;
    m->s = blasd_cpu_alloc(k * all, sizeof(double));
    m->g = blasd_cpu_alloc(k * (size_t)t, sizeof(double));
    m->b = blasd_cpu_alloc(all * (size_t)t, sizeof(double));
    m->q = blasd_cpu_alloc(k * all, sizeof(double));
    m->inverse = blasd_cpu_alloc(k * all, sizeof(double));
    m->tau = blasd_cpu_alloc(k, sizeof(double));
    m->triangle = blasd_cpu_alloc(k * k, sizeof(double));
    m->pivot = blasd_cpu_alloc(k, sizeof(int));
    m->features = blasd_cpu_alloc(all, sizeof *m->features);
    return m->s != NULL && m->g != NULL && m->b != NULL && m->q != NULL && m->inverse != NULL &&
           m->tau != NULL && m->triangle != NULL && m->pivot != NULL && m->features != NULL;
}

#define GRADED 0x1p10 /* between the sizes of features */

/* The independent rows in the units of the data, large features first, and what they must equal. */
static int independent_rows(const struct pivoted *pivoted, const struct regression_shape *shape,
                            const struct regression_factor *factor, struct norm_problem *to) {
    int64_t t = shape->t, m = pivoted->rows, n = pivoted->columns, skip = shape->q - n;
    int64_t least = m < n ? m : n;
    double *work = blasd_cpu_alloc((size_t)m * (size_t)t, sizeof *work);
    int info = 0;
    if (work == NULL) return -1;
    for (int64_t i = 0; i < m; i++)
        for (int64_t l = 0; l < t; l++) work[l * m + i] = factor->z[(i + skip) * t + l];
    if (least > 0 && t > 0)
        info = shape->dense->ormqr((int)m, (int)t, (int)least, pivoted->a, (int)m, pivoted->tau,
                                   work, (int)m);
    for (int64_t i = 0; i < pivoted->rank; i++)
        for (int64_t l = 0; l < t; l++)
            to->g[l * pivoted->rank + i] = ldexp(work[l * m + i], factor->exponent[shape->q + l]);
    free(work);
    for (int64_t j = 0; j < n; j++) { /* `at`: where pivoting put it */
        int64_t column = pivoted->pivot[j] - 1;
        double size = ldexp(pivoted->length[column], factor->exponent[column + skip]);
        to->features[j] = (struct feature){.size = size, .at = j};
    }
    qsort(to->features, (size_t)n, sizeof *to->features, larger_first);
    to->graded = n > 0 && !(to->features[0].size <= GRADED * to->features[n - 1].size);
    for (int64_t place = 0; place < n; place++) {
        int64_t j = to->features[place].at, column = pivoted->pivot[j] - 1;
        to->features[place].at = column;
        for (int64_t i = 0; i < pivoted->rank; i++)
            to->s[i * n + place] = i > j ? 0
                                         : ldexp(pivoted->a[j * m + i] * pivoted->unit[column],
                                                 factor->exponent[column + skip]);
    }
    return info;
}

/* s' = Q R, and the pseudo-inverse is Q R'^-1. Where features are graded, only QR
 * with pivoting, the largest features being the first rows, is right for the small ones too (Cox
 * and Higham); s and g then get the order of the pivots. */
static int least_norm(const struct regression_dense *dense, struct norm_problem *p) {
    int64_t rank = p->rank, n = p->n, t = p->t;
    double *q = p->q;
    int info;
    memcpy(q, p->s, (size_t)(rank * n) * sizeof *q);
    for (int64_t i = 0; i < rank; i++) p->pivot[i] = 0;
    info = p->graded ? dense->geqp3((int)n, (int)rank, q, (int)n, p->pivot, p->tau)
                     : dense->geqrf((int)n, (int)rank, q, (int)n, p->tau);
    if (info != 0) return info;
    for (int64_t j = 0; j < rank; j++)
        for (int64_t i = 0; i < rank; i++) p->triangle[j * rank + i] = i > j ? 0 : q[j * n + i];
    info = dense->orgqr((int)n, (int)rank, q, (int)n, p->tau);
    if (info != 0) return info;
    memcpy(p->inverse, q, (size_t)(rank * n) * sizeof *q);
    dense->trsm(true, true, true, (int)n, (int)rank, p->triangle, (int)rank, p->inverse, (int)n);
    for (int64_t c = 0; p->graded && c < rank; c++) { /* columns back in their places */
        int64_t at = p->pivot[c] - 1;
        while (at < c) at = p->pivot[at] - 1;
        for (int64_t j = 0; at != c && j < n; j++) {
            double x = p->s[c * n + j];
            p->s[c * n + j] = p->s[at * n + j];
            p->s[at * n + j] = x;
        }
        for (int64_t l = 0; at != c && l < t; l++) {
            double x = p->g[l * rank + c];
            p->g[l * rank + c] = p->g[l * rank + at];
            p->g[l * rank + at] = x;
        }
    }
    return 0;
}

/* b = Q R'^-1 g, and once more from what that leaves of g. */
static void solve_norm(const struct regression_dense *dense, struct norm_problem *p) {
    int64_t rank = p->rank, n = p->n, done = 0;
    memset(p->b, 0, (size_t)(n * p->t) * sizeof *p->b);
    for (int64_t l = 0; rank > 0 && l < p->t; l++) {
        double *b = p->b + l * n, *left = p->tau;
        for (int turn = 0; turn < 2; turn++) {
            bool finite = true;
            for (int64_t i = 0; i < rank && blasd_wanted_after(&done, 20 * n); i++) {
                struct dd sum = dd_from(p->g[l * rank + i]);
                for (int64_t j = 0; turn > 0 && j < n; j++)
                    sum = dd_subtract(sum, dd_two_product(p->s[i * n + j], b[j]));
                left[i] = dd_round(sum);
            }
            dense->trsm(false, true, true, (int)rank, 1, p->triangle, (int)rank, left, (int)rank);
            for (int64_t c = 0; c < rank; c++) finite = finite && isfinite(left[c]);
            for (int64_t c = 0; (finite || turn == 0) && c < rank; c++)
                dense->axpy((int)n, left[c], p->q + c * n, b);
        }
    }
}

double blasd_regression_intercept(const struct regression_shape *shape,
                                  const struct regression_factor *factor, const double *b,
                                  int64_t target) {
    const double *r = factor->r;
    const int *e = factor->exponent;
    double value = ldexp(factor->z[target], e[shape->q + target] - e[0]);
    struct dd sum;
    if (r[0] == 0) return 0;
    for (int64_t j = 1; j < shape->q; j++) value -= ldexp(r[j], e[j] - e[0]) * b[j];
    sum = dd_add(dd_from(value / r[0]),
                 dd_from(blasd_regression_shift_of(factor, shape->q + target)));
    for (int64_t j = 1; j < shape->q; j++)
        sum = dd_subtract(sum, dd_two_product(blasd_regression_shift_of(factor, j), b[j]));
    return dd_round(sum);
}

/* What is known of a fit of lower rank: coefficients b (n x t, column-major) and the pseudo-inverse
 * s (n x rank, column-major) of the features less their means, in the order of `features` or, where
 * that is NULL, their own. */
static void put_deficient(const struct regression_shape *shape,
                          const struct regression_factor *factor, int64_t rank, const double *b,
                          const double *s, const struct feature *features,
                          struct regression_fit *fit) {
    int64_t q = shape->q, n = shape->p, skip = q - n, spread = rank + skip;
    for (int64_t l = 0; l < shape->t; l++) {
        double *coef = fit->coef + l * q;
        for (int64_t j = 0; j < n; j++)
            coef[skip + (features == NULL ? j : features[j].at)] = b[l * n + j];
        if (skip == 1) coef[0] = blasd_regression_intercept(shape, factor, coef, l);
    }
    fit->spread = spread;
    memset(fit->basis, 0, (size_t)(q * spread) * sizeof *fit->basis);
    for (int64_t j = 0; j < n; j++) {
        double *row = fit->basis + (skip + (features == NULL ? j : features[j].at)) * spread;
        for (int64_t c = 0; c < rank; c++) row[c + skip] = s[c * n + j];
    }
    if (skip == 0 || factor->r[0] == 0) return;
    fit->basis[0] = 1 / ldexp(factor->r[0], factor->exponent[0]);
    for (int64_t j = 1; j < q; j++) {
        double mean = ldexp(factor->r[j] / factor->r[0], factor->exponent[j] - factor->exponent[0]);
        for (int64_t c = 1; c < spread; c++) fit->basis[c] -= mean * fit->basis[j * spread + c];
    }
    blasd_regression_unshift_basis(factor, fit, q);
}

int blasd_regression_deficient(const struct regression_shape *shape,
                               const struct regression_factor *factor,
                               const struct pivoted *pivoted, struct regression_fit *fit,
                               struct blasd_err *err) {
    struct norm_problem p;
    int code =
        norm_problem_init(&p, pivoted->rank, pivoted->columns, shape->t) ? 0 : no_memory(err);
    if (code == 0 && (independent_rows(pivoted, shape, factor, &p) != 0 ||
                      (p.rank > 0 && least_norm(shape->dense, &p) != 0)))
        code = no_memory(err);
    if (code == 0 && !blasd_wanted()) code = blasd_cpu_stopped(err);
    if (code == 0) {
        solve_norm(shape->dense, &p);
        put_deficient(shape, factor, p.rank, p.b, p.inverse, p.features, fit);
    }
    norm_problem_release(&p);
    return code;
}

/* The centred features by their singular values: `a` is m x n, column-major. */
struct decomposed {
    int64_t m, n, least;
    int unit;                       /* values are in units of 2^unit */
    double *a, *values, *left, *vt; /* owned: destroyed; least; m x least; least x n */
};

static void decomposed_release(struct decomposed *d) {
    free(d->a);
    free(d->values);
    free(d->left);
    free(d->vt);
}

static int decomposed_init(struct decomposed *d, const struct regression_shape *shape,
                           const struct regression_factor *factor, struct blasd_err *err) {
    int64_t q = shape->q, skip = q - shape->p, m = factor->rows - skip, n = shape->p;
    int64_t least = m < n ? m : n;
    memset(d, 0, sizeof *d);
    d->m = m;
    d->n = n;
    d->least = least;
    d->unit = -(1 << 30);
    d->a = blasd_cpu_alloc((size_t)m * (size_t)n, sizeof(double));
    d->values = blasd_cpu_alloc((size_t)least, sizeof(double));
    d->left = blasd_cpu_alloc((size_t)m * (size_t)least, sizeof(double));
    d->vt = blasd_cpu_alloc((size_t)least * (size_t)n, sizeof(double));
    if (d->a == NULL || d->values == NULL || d->left == NULL || d->vt == NULL)
        return no_memory(err);
    for (int64_t j = skip; j < q; j++)
        if (factor->exponent[j] > d->unit) d->unit = factor->exponent[j];
    for (int64_t j = 0; j < n; j++)
        for (int64_t i = 0; i < m; i++)
            d->a[j * m + i] =
                ldexp(factor->r[(i + skip) * q + j + skip], factor->exponent[j + skip] - d->unit);
    if (least > 0 && shape->dense->svd((int)m, (int)n, d->a, d->values, d->left, d->vt) != 0)
        return no_memory(err);
    return 0;
}

int blasd_regression_truncate(const struct regression_shape *shape,
                              const struct regression_factor *factor, struct regression_fit *fit,
                              struct blasd_err *err) {
    int64_t q = shape->q, t = shape->t, skip = q - shape->p, kept = 0, n = shape->p;
    struct decomposed d;
    int code = decomposed_init(&d, shape, factor, err);
    double *b = blasd_cpu_alloc((size_t)n * (size_t)t, sizeof *b);
    double *s = blasd_cpu_alloc((size_t)n * (size_t)d.least, sizeof *s);
    if (code == 0 && (b == NULL || s == NULL)) code = no_memory(err);
    if (code != 0) goto done;
    while (kept < d.least && d.values[kept] > shape->rcond * d.values[0]) kept++;
    if (kept + skip >= fit->rank) goto done;
    memset(b, 0, (size_t)n * (size_t)t * sizeof *b);
    for (int64_t c = 0; c < kept; c++) {
        for (int64_t j = 0; j < n; j++)
            s[c * n + j] = ldexp(d.vt[j * d.least + c] / d.values[c], -d.unit);
        for (int64_t l = 0; l < t; l++) {
            double along = 0;
            for (int64_t i = 0; i < d.m; i++)
                along += d.left[c * d.m + i] * factor->z[(i + skip) * t + l];
            along = ldexp(along, factor->exponent[q + l]);
            for (int64_t j = 0; j < n; j++) b[l * n + j] += along * s[c * n + j];
        }
    }
    fit->rank = kept + skip;
    fit->truncated = true;
    fit->kept = kept > 0 ? ldexp(d.values[kept - 1], d.unit) : 0;
    fit->dropped = ldexp(d.values[kept], d.unit);
    put_deficient(shape, factor, kept, b, s, NULL, fit);
done:
    decomposed_release(&d);
    free(b);
    free(s);
    return code;
}
