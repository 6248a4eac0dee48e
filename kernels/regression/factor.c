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
#include "kernels/regression/dense.h"

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
    factor->exponent = blasd_cpu_alloc(q + t, sizeof(int));
    return factor->r != NULL && factor->z != NULL && factor->rest != NULL &&
           factor->exponent != NULL;
}

void blasd_regression_factor_release(struct regression_factor *factor) {
    free(factor->r);
    free(factor->z);
    free(factor->rest);
    free(factor->exponent);
}

static double tolerance(const struct regression_factor *factor, int64_t q) {
    int64_t least = factor->rows < q ? factor->rows : q;
    return RANK_UNITS * (double)(least > 8 ? least : 8);
}

/* The length of column j of r less its first `skip` rows, that is of the feature less its mean; 0
 * where that is no more than the noise which the feature's own size brings with it. */
static double column_length(const struct regression_factor *factor, int64_t q, int64_t skip,
                            int64_t j) {
    int64_t rows = factor->triangle ? j + 1 : factor->rows;
    double first = skip == 1 ? factor->r[j] : 0, sum = 0;
    for (int64_t i = skip; i < rows; i++) sum += factor->r[i * q + j] * factor->r[i * q + j];
    return sum > factor->noise * factor->noise * (sum + first * first) ? sqrt(sum) : 0;
}

double blasd_regression_condition(const struct regression_shape *shape,
                                  const struct regression_factor *factor, double *work) {
    int64_t q = shape->q, skip = shape->intercept ? 1 : 0, n = q - skip;
    double squares = 0;
    if (skip == 1 && !(factor->r[0] > 0 || factor->r[0] < 0)) return INFINITY;
    for (int64_t j = 0; j < n; j++) {
        double length = column_length(factor, q, skip, j + skip);
        if (!(length > 0)) return INFINITY;
        for (int64_t i = 0; i <= j; i++)
            work[j * n + i] = factor->r[(i + skip) * q + j + skip] / length;
        if (work[j * n + j] == 0) return INFINITY;
    }
    if (n > 0 && shape->dense->trtri(true, (int)n, work, (int)n) != 0) return INFINITY;
    for (int64_t j = 0; j < n; j++)
        for (int64_t i = 0; i <= j; i++) squares += work[j * n + i] * work[j * n + i];
    return isfinite(squares) ? sqrt(squares) * sqrt((double)n) : INFINITY;
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
            least = m < n ? m : n;
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
        pivoted->pivot[j] = 0;
        for (int64_t i = 0; i < m; i++)
            pivoted->a[j * m + i] = length == 0 ? 0 : factor->r[(i + skip) * q + j + skip] / length;
    }
    if (least > 0 &&
        shape->dense->geqp3((int)m, (int)n, pivoted->a, (int)m, pivoted->pivot, pivoted->tau) != 0)
        return no_memory(err);
    while (pivoted->rank < least && fabs(pivoted->a[pivoted->rank * m + pivoted->rank]) > limit)
        pivoted->rank++;
    return 0;
}

/* s (rank x n, row-major): the independent rows, in the units of the data, columns back in their
 * places. g (rank x t, column-major): what s b must equal. */
static int independent_rows(const struct pivoted *pivoted, const struct regression_shape *shape,
                            const struct regression_factor *factor, double *s, double *g) {
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
            g[l * pivoted->rank + i] = ldexp(work[l * m + i], factor->exponent[shape->q + l]);
    free(work);
    for (int64_t j = 0; j < n; j++) {
        int64_t column = pivoted->pivot[j] - 1;
        for (int64_t i = 0; i < pivoted->rank; i++)
            s[i * n + column] = i > j ? 0
                                      : ldexp(pivoted->a[j * m + i] * pivoted->length[column],
                                              factor->exponent[column + skip]);
    }
    return info;
}

/* s' = Q R; b = Q R'^-1 g; s becomes Q, then the pseudo-inverse of what s was (n x rank,
 * column-major). */
static int least_norm(const struct regression_dense *dense, double *s, int64_t n, int64_t rank,
                      double *g, int64_t t, double *tau, double *triangle, double *b) {
    int info = dense->geqrf((int)n, (int)rank, s, (int)n, tau);
    if (info != 0) return info;
    for (int64_t j = 0; j < rank; j++)
        for (int64_t i = 0; i < rank; i++) triangle[j * rank + i] = i > j ? 0 : s[j * n + i];
    info = dense->orgqr((int)n, (int)rank, s, (int)n, tau);
    if (info != 0) return info;
    if (t > 0) {
        dense->trsm(false, true, true, (int)rank, (int)t, triangle, (int)rank, g, (int)rank);
        dense->gemm(false, false, (int)n, (int)t, (int)rank, s, (int)n, g, (int)rank, b, (int)n);
    }
    dense->trsm(true, true, true, (int)n, (int)rank, triangle, (int)rank, s, (int)n);
    return 0;
}

double blasd_regression_intercept(const struct regression_shape *shape,
                                  const struct regression_factor *factor, const double *b,
                                  int64_t target) {
    const double *r = factor->r;
    const int *e = factor->exponent;
    double value = ldexp(factor->z[target], e[shape->q + target] - e[0]);
    if (r[0] == 0) return 0;
    for (int64_t j = 1; j < shape->q; j++) value -= ldexp(r[j], e[j] - e[0]) * b[j];
    return value / r[0];
}

/* Coefficients and basis where the rank is not full. */
static int deficient(const struct regression_shape *shape, const struct regression_factor *factor,
                     const struct pivoted *pivoted, struct regression_fit *fit,
                     struct blasd_err *err) {
    int64_t q = shape->q, t = shape->t, n = pivoted->columns, skip = q - n, rank = pivoted->rank;
    double *s = blasd_cpu_alloc((size_t)rank * (size_t)n, sizeof *s);
    double *g = blasd_cpu_alloc((size_t)rank * (size_t)t, sizeof *g);
    double *b = blasd_cpu_alloc((size_t)n * (size_t)t, sizeof *b);
    double *tau = blasd_cpu_alloc((size_t)rank, sizeof *tau);
    double *triangle = blasd_cpu_alloc((size_t)rank * (size_t)rank, sizeof *triangle);
    int code = 0;
    if (s == NULL || g == NULL || tau == NULL || b == NULL || triangle == NULL) {
        code = no_memory(err);
        goto done;
    }
    memset(b, 0, (size_t)n * (size_t)t * sizeof *b);
    if (independent_rows(pivoted, shape, factor, s, g) != 0 ||
        (rank > 0 && least_norm(shape->dense, s, n, rank, g, t, tau, triangle, b) != 0)) {
        code = no_memory(err);
        goto done;
    }
    for (int64_t l = 0; l < t; l++) {
        double *coef = fit->coef + l * q;
        memcpy(coef + skip, b + l * n, (size_t)n * sizeof *b);
        if (skip == 1) coef[0] = blasd_regression_intercept(shape, factor, coef, l);
    }
    fit->spread = rank + skip;
    memset(fit->basis, 0, (size_t)(q * fit->spread) * sizeof *fit->basis);
    for (int64_t j = 0; j < n; j++)
        for (int64_t c = 0; c < rank; c++)
            fit->basis[(j + skip) * fit->spread + c + skip] = s[c * n + j];
    if (skip == 1 && factor->r[0] != 0) {
        double unit = factor->r[0];
        fit->basis[0] = 1 / ldexp(unit, factor->exponent[0]);
        for (int64_t j = 1; j < q; j++) {
            double mean = ldexp(factor->r[j] / unit, factor->exponent[j] - factor->exponent[0]);
            for (int64_t c = 1; c < fit->spread; c++)
                fit->basis[c] -= mean * fit->basis[j * fit->spread + c];
        }
    }
done:
    free(s);
    free(g);
    free(b);
    free(tau);
    free(triangle);
    return code;
}

int blasd_regression_rank(const struct regression_shape *shape,
                          const struct regression_factor *factor, struct regression_fit *fit,
                          struct blasd_err *err) {
    int64_t q = shape->q, skip = shape->intercept ? 1 : 0;
    struct pivoted pivoted;
    int code;
    if (factor->triangle) {
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
            a[j * rows + i] = ldexp(factor->r[i * q + j], factor->exponent[j] - most);
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

/* The mean of n numbers `step` apart, weighted by w (NULL: 1); `total` is the weights' sum. */
static double mean_of(const double *from, int64_t step, const double *w, int64_t n, double total) {
    long double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += (w == NULL ? 1 : (long double)w[i]) * (long double)from[i * step];
    return total > 0 ? (double)(sum / (long double)total) : 0;
}

/* Column `j` of a factor from n numbers `step` apart; of targets, z where `target`. */
static void wide_column(const struct regression_shape *shape, const struct regression_data *data,
                        const double *from, int64_t step, double *to, int64_t width,
                        int *exponent) {
    double mean = shape->intercept ? mean_of(from, step, data->w, shape->n, data->total) : 0;
    double largest = fabs(mean), root = sqrt(data->total);
    int64_t skip = shape->intercept ? 1 : 0;
    for (int64_t i = 0; i < shape->n; i++)
        if (fabs(from[i * step]) > largest) largest = fabs(from[i * step]);
    *exponent = 0;
    if (largest > 0) frexp(largest, exponent);
    if (skip == 1) to[0] = ldexp(mean, -*exponent) * root;
    for (int64_t i = 0; i < shape->n; i++)
        to[(i + skip) * width] =
            ldexp(from[i * step] - mean, -*exponent) * (data->w == NULL ? 1 : sqrt(data->w[i]));
}

void blasd_regression_wide_factor(const struct regression_shape *shape,
                                  const struct regression_data *data,
                                  struct regression_factor *factor) {
    int64_t skip = shape->intercept ? 1 : 0, done = 0;
    factor->rows = shape->n + skip;
    factor->triangle = false;
    factor->noise = 4 * DBL_EPSILON; /* of the means, which are rounded */
    if (skip == 1) {
        for (int64_t i = 1; i < factor->rows; i++) factor->r[i * shape->q] = 0;
        factor->r[0] = sqrt(data->total);
        factor->exponent[0] = 0;
    }
    for (int64_t j = 0; j < shape->p && blasd_wanted_after(&done, 30 * shape->n); j++)
        wide_column(shape, data, data->x + j, shape->p, factor->r + j + skip, shape->q,
                    &factor->exponent[j + skip]);
    for (int64_t l = 0; l < shape->t && blasd_wanted_after(&done, 30 * shape->n); l++) {
        wide_column(shape, data, data->y + l, shape->t, factor->z + l, shape->t,
                    &factor->exponent[shape->q + l]);
        factor->rest[l] = 0;
    }
}
