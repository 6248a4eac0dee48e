/* What is read off a factor: shifts, rank, and coefficients and their basis where the rank is full.
 *
 * The rank is decided by QR with column pivoting on columns in units of what is nothing in them.
 * Read next: least_norm.c (the rank is not full), singular.c.
 */
#include "kernels/regression/factor.h"
#include "base/err.h"
#include "core/wanted.h"
#include "kernels/cpu/cpu.h"
#include "kernels/numeric/dd.h"
#include "kernels/regression/dense.h"
#include "kernels/regression/far.h"

#include <float.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Columns count as dependent below this many units in the last place of what they are made in,
 * times their number: of float64 whatever the data are, of the dtype sent where that rounded them.
 */
#define RANK_UNITS 16.0
/* and below this much of what rounding may have moved them, which is more where they are far from 0
 */
#define DEPENDENT 4

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

double blasd_regression_unshifted(const struct regression_factor *factor, int64_t j) {
    const int *e = factor->exponent;
    return factor->r[j] +
           (j > 0 ? factor->r[0] * ldexp(blasd_regression_shift_of(factor, j), e[0] - e[j]) : 0);
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
    int least = INT_MIN;
    if (shape->method == METHOD_RIDGE && shape->alpha > 0) (void)frexp(sqrt(shape->alpha), &least);
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
        if (j < q && factor->exponent[j] < least) factor->exponent[j] = least;
    }
}

double blasd_regression_unshift(const struct regression_shape *shape,
                                const struct regression_factor *factor, const struct dd *b,
                                int64_t target) {
    int64_t q = shape->q;
    int unit = factor->exponent[q + target];
    struct dd sum = dd_shift(b[0], unit - factor->exponent[0]);
    sum = dd_add(sum, dd_from(blasd_regression_shift_of(factor, q + target)));
    for (int64_t j = 1; j < q; j++)
        if (blasd_regression_shift_of(factor, j) != 0)
            sum = dd_subtract(
                sum, dd_scale(dd_shift(b[j], unit - factor->exponent[j]), factor->shift[j]));
    return dd_round(sum);
}

/* ---- the rank ---- */

/* The length of column j of r less its first `skip` rows, that is of the feature less its mean; 0
 * where that is no more than the noise that the factor has, or than what rounding leaves of a
 * constant. *whole: that of the feature with its mean. */
static double column_length(const struct regression_factor *factor, int64_t q, int64_t skip,
                            int64_t j, double *whole) {
    int64_t rows = factor->triangle ? j + 1 : factor->rows;
    double first = skip == 1 ? factor->r[j] : 0,
           mean = skip == 1 ? blasd_regression_unshifted(factor, j) : 0;
    double sum = 0;
    for (int64_t i = skip; i < rows; i++) sum += factor->r[i * q + j] * factor->r[i * q + j];
    sum = sqrt(sum);
    *whole = hypot(sum, mean);
    return sum > factor->noise * hypot(sum, first) && sum > DBL_EPSILON * fabs(mean) ? sum : 0;
}

#define SPARE 4       /* binary places that values do not use where nothing was rounded */
#define SPARE_WHOLE 2 /* where they are whole numbers */

bool blasd_regression_exact(const double *values, int64_t step, int64_t n, double sent) {
    double most = 0, place;
    int exponent;
    for (int64_t i = 0; i < n; i++) most = fmax(most, fabs(values[i * step]));
    (void)frexp(most, &exponent);
    place = ldexp(sent, exponent + SPARE);
    if (place > 1 && ldexp(sent, exponent + SPARE_WHOLE) <= 1) place = 1;
    for (int64_t i = 0; i < n; i++) {
        double places = values[i * step] / place;
        if (!(places == rint(places))) return false;
    }
    return true;
}

/* A feature less its mean: how long it is, how far rounding may have moved it when its values were
 * made, and the length below which a part of it is nothing. */
struct column {
    double length, noise, limit;
};

/* `data`: NULL where every feature is taken to be rounded. */
static struct column measure(const struct regression_shape *shape,
                             const struct regression_factor *factor,
                             const struct regression_data *data, int64_t j) {
    int64_t q = shape->q, skip = q - shape->p, least = factor->rows < q ? factor->rows : q;
    double whole, units = RANK_UNITS * (double)(least > 8 ? least : 8);
    struct column column = {.length = column_length(factor, q, skip, j, &whole)};
    column.limit = fmax(units * DBL_EPSILON, factor->noise) * column.length;
    if (data != NULL && blasd_regression_exact(data->x + j - skip, shape->p, shape->n, shape->sent))
        return column;
    column.noise = shape->sent * whole;
    column.limit =
        fmax(column.limit, fmin(2 * units * shape->sent, sqrt(shape->sent)) * column.length);
    column.limit = fmax(column.limit, DEPENDENT * column.noise);
    return column;
}

/* The rows' lengths of the inverse of the features' triangle, columns scaled to length 1: 1 over
 * the part of each feature that the others do not explain. False: there is no inverse. `work` holds
 * q x q numbers. */
static bool invert_scaled(const struct regression_shape *shape,
                          const struct regression_factor *factor, double *work, double *rows) {
    int64_t q = shape->q, skip = q - shape->p, n = shape->p;
    if (skip == 1 && !(factor->r[0] > 0 || factor->r[0] < 0)) return false;
    for (int64_t j = 0; j < n; j++) {
        double whole, length = column_length(factor, q, skip, j + skip, &whole);
        if (!(length > 0)) return false;
        for (int64_t i = 0; i <= j; i++)
            work[j * n + i] = factor->r[(i + skip) * q + j + skip] / length;
        if (work[j * n + j] == 0) return false;
    }
    if (n > 0 && shape->dense->trtri(true, (int)n, work, (int)n) != 0) return false;
    for (int64_t i = 0; i < n; i++) {
        double squares = 0;
        for (int64_t j = i; j < n; j++) squares += work[j * n + i] * work[j * n + i];
        if (!isfinite(squares)) return false;
        rows[i] = sqrt(squares);
    }
    return true;
}

double blasd_regression_condition(const struct regression_shape *shape,
                                  const struct regression_factor *factor, double *work) {
    int64_t q = shape->q, skip = q - shape->p, n = shape->p;
    double far = 0, *rows = blasd_cpu_alloc((size_t)n, sizeof *rows), condition = INFINITY;
    if (rows != NULL && invert_scaled(shape, factor, work, rows)) {
        for (int64_t j = 0; j < n && skip == 1; j++) {
            double whole, length = column_length(factor, q, skip, j + 1, &whole);
            far = fmax(far, fabs(factor->r[j + 1]) / length);
        }
        condition = fmax(blasd_regression_length(n, rows) * sqrt((double)n), far);
    }
    free(rows);
    return condition;
}

static void pivoted_release(struct pivoted *pivoted) {
    free(pivoted->a);
    free(pivoted->tau);
    free(pivoted->length);
    free(pivoted->unit);
    free(pivoted->pivot);
}

/* Columns come in units of what is nothing in them. */
static int pivoted_init(struct pivoted *pivoted, const struct regression_shape *shape,
                        const struct regression_factor *factor, const struct regression_data *data,
                        struct blasd_err *err) {
    int64_t q = shape->q, skip = q - shape->p, m = factor->rows - skip, n = shape->p,
            least = m < n ? m : n, most = shape->n - skip, done = 0;
    memset(pivoted, 0, sizeof *pivoted);
    pivoted->rows = m;
    pivoted->columns = n;
    pivoted->a = blasd_cpu_alloc((size_t)m * (size_t)n, sizeof(double));
    pivoted->tau = blasd_cpu_alloc((size_t)least, sizeof(double));
    pivoted->length = blasd_cpu_alloc((size_t)n, sizeof(double));
    pivoted->unit = blasd_cpu_alloc((size_t)n, sizeof(double));
    pivoted->pivot = blasd_cpu_alloc((size_t)n, sizeof(int));
    if (pivoted->a == NULL || pivoted->tau == NULL || pivoted->pivot == NULL ||
        pivoted->length == NULL || pivoted->unit == NULL)
        return no_memory(err);
    for (int64_t j = 0; j < n && blasd_wanted_after(&done, shape->n + m); j++) {
        struct column column = measure(shape, factor, data, j + skip);
        double unit = column.length > 0 ? column.limit : 1;
        pivoted->length[j] = column.length;
        pivoted->unit[j] = unit;
        pivoted->pivot[j] = least > 0 ? 0 : (int)j + 1; /* 0: free to be moved */
        for (int64_t i = 0; i < m; i++)
            pivoted->a[j * m + i] =
                column.length > 0 ? factor->r[(i + skip) * q + j + skip] / unit : 0;
    }
    if (least > 0 &&
        shape->dense->geqp3((int)m, (int)n, pivoted->a, (int)m, pivoted->pivot, pivoted->tau) != 0)
        return no_memory(err);
    while (pivoted->rank < least && pivoted->rank < most &&
           fabs(pivoted->a[pivoted->rank * m + pivoted->rank]) > 1)
        pivoted->rank++;
    return 0;
}

/* Whether all columns are independent beyond doubt; and fit->doubt. */
static bool surely_independent(const struct regression_shape *shape,
                               const struct regression_factor *factor,
                               const struct regression_data *data, const double *rows,
                               struct regression_fit *fit) {
    int64_t n = shape->p, skip = shape->q - n;
    double limits = 0, noises = 0;
    for (int64_t j = 0; j < n && blasd_wanted(); j++) {
        struct column column = measure(shape, factor, data, j + skip);
        limits += pow(column.limit / column.length * rows[j], 2);
        noises += pow(column.noise / column.length * rows[j], 2);
    }
    fit->doubt = sqrt(noises);
    return limits * (double)n < 1;
}

/* The rank as the columns alone decide it. Data are looked at where what was rounded in them
 * matters. */
static int natural_rank(const struct regression_shape *shape,
                        const struct regression_factor *factor, const struct regression_data *data,
                        struct regression_fit *fit, struct blasd_err *err) {
    int64_t q = shape->q, skip = q - shape->p;
    struct pivoted pivoted;
    int code;
    if (factor->triangle && shape->n >= q) {
        double *work = blasd_cpu_alloc((size_t)q * (size_t)(q + 1), sizeof *work);
        double *rows = work + q * q;
        bool full;
        if (work == NULL) return no_memory(err);
        full = invert_scaled(shape, factor, work, rows);
        if (full && !(surely_independent(shape, factor, NULL, rows, fit) &&
                      fit->doubt < BLASD_REGRESSION_DOUBT))
            full = surely_independent(shape, factor, data, rows, fit);
        free(work);
        fit->rank = q;
        if (full) return 0;
    }
    code = pivoted_init(&pivoted, shape, factor, data, err);
    if (code == 0 && !blasd_wanted()) code = blasd_cpu_stopped(err);
    if (code == 0) {
        fit->rank = pivoted.rank + (skip == 1 && factor->r[0] != 0);
        if (fit->rank < q) code = blasd_regression_deficient(shape, factor, &pivoted, fit, err);
    }
    pivoted_release(&pivoted);
    return code;
}

int blasd_regression_rank(const struct regression_shape *shape,
                          const struct regression_factor *factor,
                          const struct regression_data *data, struct regression_fit *fit,
                          struct blasd_err *err) {
    int code = natural_rank(shape, factor, data, fit, err);
    fit->truncated = false;
    if (code != 0 || shape->rcond == 0) return code;
    return blasd_regression_truncate(shape, factor, fit, err);
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
    blasd_regression_unshift_basis(factor, fit, q);
    return 0;
}
