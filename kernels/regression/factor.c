/* What is read off a factor: rank, coefficients (of least norm where they are not unique), the
 * basis of their covariance, singular values.
 *
 * Least norm is found by QR with column pivoting and a second QR of what is left ("complete
 * orthogonal decomposition"). The rank is decided on columns of equal length, the norm is that of
 * the coefficients as the user sees them. Dense routines come from shape->dense: LAPACK, or our
 * own. */
#include "kernels/regression/regression.h"

#include "base/err.h"
#include "core/wanted.h"
#include "kernels/cpu/cpu.h"
#include "kernels/numeric/double_double.h"
#include "kernels/regression/dense.h"
#include "kernels/regression/far.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Columns count as dependent below this much of the largest, times their number. */
#define RANK_UNITS (16 * DBL_EPSILON)

static int no_memory(struct blasd_err *err) {
    return blasd_fail(err, BLASD_E_out_of_memory, "", "no memory to solve with the factor");
}

bool blasd_regression_factor_alloc(struct regression_factor *factor,
                                   const struct regression_shape *shape, int64_t rows) {
    size_t q = (size_t)shape->q, t = (size_t)shape->t;
    factor->r = blasd_cpu_alloc((size_t)rows * q, sizeof(double));
    factor->z = blasd_cpu_alloc((size_t)rows * t, sizeof(double));
    factor->rest = blasd_cpu_alloc(t, sizeof(double));
    factor->shift = blasd_cpu_alloc(q + t, sizeof(double));
    factor->range = blasd_cpu_alloc(2 * (q + t), sizeof(double));
    factor->exponent = blasd_cpu_alloc(q + t, sizeof(int));
    return factor->r != NULL && factor->z != NULL && factor->rest != NULL &&
           factor->shift != NULL && factor->range != NULL && factor->exponent != NULL;
}

void blasd_regression_factor_release(struct regression_factor *factor) {
    free(factor->r);
    free(factor->z);
    free(factor->rest);
    free(factor->shift);
    free(factor->range);
    free(factor->exponent);
}

/* ---- shifts ---- */

static double shift_of(const struct regression_factor *factor, int64_t j) {
    return factor->shift == NULL ? 0 : factor->shift[j];
}

/* The first row of r as it is for the data without shifts. */
static double unshifted(const struct regression_factor *factor, int64_t j) {
    const int *e = factor->exponent;
    return factor->r[j] + (j > 0 ? factor->r[0] * ldexp(shift_of(factor, j), e[0] - e[j]) : 0);
}

static void widen(double *range, const double *row, int64_t count) {
    for (int64_t j = 0; j < count; j++) {
        range[2 * j] = row[j] < range[2 * j] ? row[j] : range[2 * j];
        range[2 * j + 1] = row[j] > range[2 * j + 1] ? row[j] : range[2 * j + 1];
    }
}

void blasd_regression_settle(const struct regression_shape *shape,
                             const struct regression_data *data, struct regression_factor *factor) {
    int64_t first = shape->intercept ? 1 : 0, q = shape->q, t = shape->t, done = 0;
    double *range = factor->range;
    for (int64_t j = 0; j < q + t; j++) {
        range[2 * j] = INFINITY;
        range[2 * j + 1] = -INFINITY;
    }
    for (int64_t i = 0; i < shape->n && blasd_wanted_after(&done, q + t); i++) {
        widen(range + 2 * first, data->x + i * shape->p, shape->p);
        widen(range + 2 * q, data->y + i * t, t);
    }
    for (int64_t j = 0; j < q + t; j++) {
        double low = range[2 * j], high = range[2 * j + 1], largest;
        factor->exponent[j] = 0;
        factor->shift[j] = 0;
        if (j < first) continue;
        if (first == 1) factor->shift[j] = blasd_regression_shift(low, high);
        largest = fmax(fabs(low - factor->shift[j]), fabs(high - factor->shift[j]));
        if (largest > 0 && largest < INFINITY) frexp(largest, &factor->exponent[j]);
    }
}

double blasd_regression_unshift(const struct regression_shape *shape,
                                const struct regression_factor *factor, const struct dd *b,
                                int64_t target) {
    int64_t q = shape->q;
    int unit = factor->exponent[q + target];
    struct dd sum = dd_shift(b[0], unit - factor->exponent[0]);
    sum = dd_add(sum, dd_from(shift_of(factor, q + target)));
    for (int64_t j = 1; j < q; j++)
        if (shift_of(factor, j) != 0)
            sum = dd_subtract(
                sum, dd_scale(dd_shift(b[j], unit - factor->exponent[j]), factor->shift[j]));
    return dd_round(sum);
}

/* Row 0 of a basis of the shifted columns, in the data's units, becomes that of the data. */
static void unshift_basis(const struct regression_factor *factor, struct regression_fit *fit,
                          int64_t q) {
    for (int64_t j = 1; factor->shift != NULL && j < q; j++)
        for (int64_t c = 0; factor->shift[j] != 0 && c < fit->spread; c++)
            fit->basis[c] -= factor->shift[j] * fit->basis[j * fit->spread + c];
}

/* ---- the rank ---- */

static double tolerance(const struct regression_factor *factor, int64_t q) {
    int64_t least = factor->rows < q ? factor->rows : q;
    return fmax(RANK_UNITS * (double)(least > 8 ? least : 8), factor->noise);
}

/* The length of column j of r less its first `skip` rows, that is of the feature less its mean; 0
 * where that is no more than the noise that the factor has, or than what rounding leaves of a
 * constant. */
static double column_length(const struct regression_factor *factor, int64_t q, int64_t skip,
                            int64_t j) {
    int64_t rows = factor->triangle ? j + 1 : factor->rows;
    double first = skip == 1 ? factor->r[j] : 0, mean = skip == 1 ? unshifted(factor, j) : 0;
    double sum = 0;
    for (int64_t i = skip; i < rows; i++) sum += factor->r[i * q + j] * factor->r[i * q + j];
    sum = sqrt(sum);
    return sum > factor->noise * hypot(sum, first) && sum > DBL_EPSILON * fabs(mean) ? sum : 0;
}

double blasd_regression_condition(const struct regression_shape *shape,
                                  const struct regression_factor *factor, double *work) {
    int64_t q = shape->q, skip = shape->intercept ? 1 : 0, n = q - skip;
    double squares = 0, far = 0;
    if (skip == 1 && !(factor->r[0] > 0 || factor->r[0] < 0)) return INFINITY;
    for (int64_t j = 0; j < n; j++) {
        double length = column_length(factor, q, skip, j + skip);
        if (!(length > 0)) return INFINITY;
        if (skip == 1) far = fmax(far, fabs(factor->r[j + 1]) / length);
        for (int64_t i = 0; i <= j; i++)
            work[j * n + i] = factor->r[(i + skip) * q + j + skip] / length;
        if (work[j * n + j] == 0) return INFINITY;
    }
    if (n > 0 && shape->dense->trtri(true, (int)n, work, (int)n) != 0) return INFINITY;
    for (int64_t j = 0; j < n; j++)
        for (int64_t i = 0; i <= j; i++) squares += work[j * n + i] * work[j * n + i];
    return isfinite(squares) ? fmax(sqrt(squares) * sqrt((double)n), far) : INFINITY;
}

struct pivoted {
    int64_t rows, columns; /* of r less the intercept's row and column */
    int64_t rank;
    double *a, *tau, *length; /* owned: the factor, column-major, its reflections, scales */
    int *pivot;               /* owned: from 1 */
};

static void pivoted_release(struct pivoted *pivoted) {
    free(pivoted->a);
    free(pivoted->tau);
    free(pivoted->length);
    free(pivoted->pivot);
}

static int pivoted_init(struct pivoted *pivoted, const struct regression_shape *shape,
                        const struct regression_factor *factor, struct blasd_err *err) {
    int64_t q = shape->q, skip = shape->intercept ? 1 : 0, m = factor->rows - skip, n = q - skip,
            least = m < n ? m : n, most = shape->n - skip;
    double limit = tolerance(factor, q);
    memset(pivoted, 0, sizeof *pivoted);
    pivoted->rows = m;
    pivoted->columns = n;
    pivoted->a = blasd_cpu_alloc((size_t)m * (size_t)n, sizeof(double));
    pivoted->tau = blasd_cpu_alloc((size_t)least, sizeof(double));
    pivoted->length = blasd_cpu_alloc((size_t)n, sizeof(double));
    pivoted->pivot = blasd_cpu_alloc((size_t)n, sizeof(int));
    if (pivoted->a == NULL || pivoted->tau == NULL || pivoted->pivot == NULL ||
        pivoted->length == NULL)
        return no_memory(err);
    for (int64_t j = 0; j < n; j++) {
        double length = column_length(factor, q, skip, j + skip);
        pivoted->length[j] = length;
        pivoted->pivot[j] = least > 0 ? 0 : (int)j + 1; /* 0: free to be moved */
        for (int64_t i = 0; i < m; i++)
            pivoted->a[j * m + i] = length == 0 ? 0 : factor->r[(i + skip) * q + j + skip] / length;
    }
    if (least > 0 &&
        shape->dense->geqp3((int)m, (int)n, pivoted->a, (int)m, pivoted->pivot, pivoted->tau) != 0)
        return no_memory(err);
    while (pivoted->rank < least && pivoted->rank < most &&
           fabs(pivoted->a[pivoted->rank * m + pivoted->rank]) > limit)
        pivoted->rank++;
    return 0;
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
                                         : ldexp(pivoted->a[j * m + i] * pivoted->length[column],
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
    sum = dd_add(dd_from(value / r[0]), dd_from(shift_of(factor, shape->q + target)));
    for (int64_t j = 1; j < shape->q; j++)
        sum = dd_subtract(sum, dd_two_product(shift_of(factor, j), b[j]));
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
    unshift_basis(factor, fit, q);
}

/* Coefficients and basis where the rank is not full. */
static int deficient(const struct regression_shape *shape, const struct regression_factor *factor,
                     const struct pivoted *pivoted, struct regression_fit *fit,
                     struct blasd_err *err) {
    struct norm_problem p;
    int code =
        norm_problem_init(&p, pivoted->rank, pivoted->columns, shape->t) ? 0 : no_memory(err);
    if (code == 0 && (independent_rows(pivoted, shape, factor, &p) != 0 ||
                      (p.rank > 0 && least_norm(shape->dense, &p) != 0)))
        code = no_memory(err);
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

/* What is left of the features where singular values up to rcond of the largest count as 0, if
 * that is less than what the rank says: coefficients and basis. */
static int truncate(const struct regression_shape *shape, const struct regression_factor *factor,
                    struct regression_fit *fit, struct blasd_err *err) {
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

/* The rank as the columns alone decide it. */
static int natural_rank(const struct regression_shape *shape,
                        const struct regression_factor *factor, struct regression_fit *fit,
                        struct blasd_err *err) {
    int64_t q = shape->q, skip = shape->intercept ? 1 : 0;
    struct pivoted pivoted;
    int code;
    if (factor->triangle && shape->n >= q) {
        double *work = blasd_cpu_alloc((size_t)q * (size_t)q, sizeof *work);
        double condition;
        if (work == NULL) return no_memory(err);
        condition = blasd_regression_condition(shape, factor, work);
        free(work);
        fit->rank = q;
        if (condition * tolerance(factor, q) < 1) return 0;
    }
    code = pivoted_init(&pivoted, shape, factor, err);
    if (code == 0) {
        fit->rank = pivoted.rank + (skip == 1 && factor->r[0] != 0);
        if (fit->rank < q) code = deficient(shape, factor, &pivoted, fit, err);
    }
    pivoted_release(&pivoted);
    return code;
}

int blasd_regression_rank(const struct regression_shape *shape,
                          const struct regression_factor *factor, struct regression_fit *fit,
                          struct blasd_err *err) {
    int code = natural_rank(shape, factor, fit, err);
    fit->truncated = false;
    if (code != 0 || shape->rcond == 0) return code;
    return truncate(shape, factor, fit, err);
}

int blasd_regression_triangle(const struct regression_shape *shape,
                              const struct regression_factor *factor, struct regression_fit *fit,
                              struct blasd_err *err) {
    int64_t q = shape->q, t = shape->t, done = 0;
    const int *e = factor->exponent;
    double *b = blasd_cpu_alloc((size_t)q * (size_t)t, sizeof *b);
    if (b == NULL) return no_memory(err);
    memcpy(b, factor->z, (size_t)(q * t) * sizeof *b);
    memcpy(fit->basis, factor->r, (size_t)(q * q) * sizeof *b);
    if (t > 0) /* row-major r b is column-major b r, r being lower there */
        shape->dense->trsm(true, false, false, (int)t, (int)q, factor->r, (int)q, b, (int)t);
    for (int64_t l = 0; l < t && blasd_wanted_after(&done, 10 * q); l++)
        for (int64_t j = 0; j < q; j++) fit->coef[l * q + j] = ldexp(b[j * t + l], e[q + l] - e[j]);
    free(b);
    /* row-major upper is column-major lower */
    if (shape->dense->trtri(false, (int)q, fit->basis, (int)q) != 0) return no_memory(err);
    for (int64_t j = 0; j < q; j++)
        for (int64_t c = 0; c < q; c++)
            fit->basis[j * q + c] = c < j ? 0 : ldexp(fit->basis[j * q + c], -e[j]);
    fit->spread = q;
    unshift_basis(factor, fit, q);
    return 0;
}

/* Singular values of a small matrix by one-sided Jacobi: columns of `a` (column-major) are turned
 * in pairs until all are orthogonal; their lengths are the values, small ones accurate too. */
static void jacobi(double *a, int64_t rows, int64_t columns, double *values) {
    for (int sweep = 0; sweep < 60; sweep++) {
        bool turned = false;
        for (int64_t j = 0; j < columns; j++) {
            for (int64_t l = j + 1; l < columns; l++) {
                double *u = a + j * rows, *v = a + l * rows, uu = 0, vv = 0, uv = 0, zeta, tangent;
                double cosine, sine;
                for (int64_t i = 0; i < rows; i++) {
                    uu += u[i] * u[i];
                    vv += v[i] * v[i];
                    uv += u[i] * v[i];
                }
                if (!(fabs(uv) > DBL_EPSILON * sqrt(uu) * sqrt(vv))) continue;
                turned = true;
                zeta = (vv - uu) / (2 * uv);
                tangent = (zeta < 0 ? -1 : 1) / (fabs(zeta) + sqrt(1 + zeta * zeta));
                cosine = 1 / sqrt(1 + tangent * tangent);
                sine = cosine * tangent;
                for (int64_t i = 0; i < rows; i++) {
                    double x = u[i];
                    u[i] = cosine * x - sine * v[i];
                    v[i] = sine * x + cosine * v[i];
                }
            }
        }
        if (!turned) break;
    }
    for (int64_t j = 0; j < columns; j++) values[j] = blasd_regression_length(rows, a + j * rows);
}

static int falling(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? 1 : x > y ? -1 : 0;
}

#define JACOBI_MOST 24 /* columns */

int blasd_regression_singular(const struct regression_shape *shape,
                              const struct regression_factor *factor, struct regression_fit *fit,
                              struct blasd_err *err) {
    int64_t q = shape->q, rows = factor->rows, wanted = shape->n < q ? shape->n : q;
    int64_t least = rows < q ? rows : q;
    double *a = blasd_cpu_alloc((size_t)rows * (size_t)q, sizeof *a);
    double *values = blasd_cpu_alloc((size_t)q, sizeof *values);
    int code = 0, most = -(1 << 30);
    if (a == NULL || values == NULL) {
        code = no_memory(err);
        goto done;
    }
    for (int64_t j = 0; j < q; j++)
        if (factor->exponent[j] > most) most = factor->exponent[j];
    for (int64_t j = 0; j < q; j++) /* in units of 2^most, so that nothing overflows */
        for (int64_t i = 0; i < rows; i++)
            a[j * rows + i] = ldexp(i == 0 ? unshifted(factor, j) : factor->r[i * q + j],
                                    factor->exponent[j] - most);
    if (q <= JACOBI_MOST)
        jacobi(a, rows, q, values);
    else if (least > 0 && shape->dense->gesdd((int)rows, (int)q, a, (int)rows, values) != 0)
        code = no_memory(err);
    if (q <= JACOBI_MOST && q > 1) qsort(values, (size_t)q, sizeof *values, falling);
    for (int64_t j = 0; j < wanted; j++) fit->singular[j] = ldexp(values[j], most);
done:
    free(a);
    free(values);
    return code;
}

/* The least singular value as it is computed may be all rounding of the largest. Rows of the basis
 * are not, and it is at most the root of q over their length. */
void blasd_regression_cond(const struct regression_shape *shape, struct regression_fit *fit) {
    int64_t q = shape->q, values = shape->n < q ? shape->n : q;
    fit->cond = values < q ? INFINITY : NAN;
    if (values < q || q == 0) return;
    fit->cond = fit->singular[0] / fit->singular[q - 1];
    if (fit->rank == q && isfinite(fit->singular[0]))
        fit->cond = fmax(fit->cond, fit->singular[0] / sqrt((double)q) *
                                        blasd_regression_length(q * q, fit->basis));
}
