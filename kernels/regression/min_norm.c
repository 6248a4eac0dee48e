/* Rank by QR with column pivoting, minimum norm by a second QR of what is left ("complete
 * orthogonal decomposition"). The rank is decided on columns of about equal length, so that units
 * of measurement do not decide it; the norm is that of the coefficients as the user sees them.
 *
 * Works on triangular factors only, never on the data. Uses LAPACK. */
#include "kernels/regression/min_norm.h"

#include "base/err.h"
#include "kernels/cpu/cpu.h"

#include <float.h>
#include <lapacke.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Columns count as dependent below this much of the largest, times their number. */
#define RANK_UNITS (16 * DBL_EPSILON)

struct pivoted {
    int64_t rows, columns; /* of the triangle that is factored: q less the intercept */
    int rank;
    double *a;   /* owned: columns x columns, column-major: the factor and its reflections */
    double *tau; /* owned */
    int *pivot;  /* owned: from 1 */
};

static void pivoted_release(struct pivoted *pivoted) {
    free(pivoted->a);
    free(pivoted->tau);
    free(pivoted->pivot);
}

/* QR with column pivoting of r less its first `skip` rows and columns. */
static int pivoted_init(struct pivoted *pivoted, const double *r, int64_t q, int64_t skip,
                        struct blasd_err *err) {
    int64_t m = q - skip;
    double tolerance = RANK_UNITS * (double)(q > 8 ? q : 8);
    memset(pivoted, 0, sizeof *pivoted);
    pivoted->columns = m;
    pivoted->a = blasd_cpu_alloc((size_t)m * (size_t)m, sizeof(double));
    pivoted->tau = blasd_cpu_alloc((size_t)m, sizeof(double));
    pivoted->pivot = blasd_cpu_alloc((size_t)m, sizeof(int));
    if (pivoted->a == NULL || pivoted->tau == NULL || pivoted->pivot == NULL || q > 40000)
        return blasd_fail(err, BLASD_E_out_of_memory, "", "no memory for a factor of %lld columns",
                          (long long)q);
    for (int64_t j = 0; j < m; j++) {
        double length = 0;
        for (int64_t i = 0; i <= j + skip; i++) /* of the whole column */
            length = hypot(length, r[i * q + j + skip]);
        for (int64_t i = 0; i < m; i++)
            pivoted->a[j * m + i] =
                i > j || length == 0 ? 0 : r[(i + skip) * q + j + skip] / length;
        pivoted->pivot[j] = 0;
    }
    if (m > 0 && LAPACKE_dgeqp3(LAPACK_COL_MAJOR, (int)m, (int)m, pivoted->a, (int)m,
                                pivoted->pivot, pivoted->tau) != 0)
        return blasd_fail(err, BLASD_E_out_of_memory, "", "no memory to factor");
    while (pivoted->rank < m && fabs(pivoted->a[pivoted->rank * m + pivoted->rank]) > tolerance)
        pivoted->rank++;
    return 0;
}

int blasd_regression_rank(const struct regression_shape *shape, const double *r, int64_t *rank,
                          struct blasd_err *err) {
    struct pivoted pivoted;
    int64_t skip = shape->intercept ? 1 : 0;
    int code = pivoted_init(&pivoted, r, shape->q, skip, err);
    *rank = pivoted.rank + (skip == 1 && r[0] != 0);
    pivoted_release(&pivoted);
    return code;
}

/* S (rank x m, row-major): the independent rows of the triangle, in the units of the data, columns
 * back in their places; g (rank x t): what S b must equal. */
static int independent_rows(const struct pivoted *pivoted, const struct regression_shape *shape,
                            const double *r, const double *z, const int *exponent, double *s,
                            double *g) {
    int64_t q = shape->q, t = shape->t, m = pivoted->columns, skip = q - m;
    double *work = blasd_cpu_alloc((size_t)m * (size_t)t, sizeof *work);
    int info = 0;
    if (work == NULL) return -1;
    for (int64_t j = 0; j < m; j++)
        for (int64_t l = 0; l < t; l++) work[l * m + j] = z[(j + skip) * t + l];
    if (m > 0 && t > 0)
        info = LAPACKE_dormqr(LAPACK_COL_MAJOR, 'L', 'T', (int)m, (int)t, (int)m, pivoted->a,
                              (int)m, pivoted->tau, work, (int)m);
    for (int64_t i = 0; i < pivoted->rank; i++)
        for (int64_t l = 0; l < t; l++)
            g[l * pivoted->rank + i] = ldexp(work[l * m + i], exponent[q + l]);
    free(work);
    for (int64_t j = 0; j < m; j++) {
        int64_t column = pivoted->pivot[j] - 1;
        double length = 0;
        for (int64_t i = 0; i <= column + skip; i++)
            length = hypot(length, r[i * q + column + skip]);
        for (int64_t i = 0; i < pivoted->rank; i++)
            s[i * m + column] =
                i > j ? 0 : ldexp(pivoted->a[j * m + i] * length, exponent[column + skip]);
    }
    return info;
}

int blasd_regression_min_norm(const struct regression_shape *shape, const double *r,
                              const double *z, const int *exponent, struct regression_fit *fit,
                              struct blasd_err *err) {
    struct pivoted pivoted;
    int64_t q = shape->q, t = shape->t, skip = shape->intercept ? 1 : 0, m = q - skip;
    double *s = NULL, *g = NULL, *tau = NULL, *b = NULL;
    int rank, info = 0, code = pivoted_init(&pivoted, r, q, skip, err);
    if (code != 0) goto done;
    rank = pivoted.rank;
    fit->rank = rank + (skip == 1 && r[0] != 0);
    s = blasd_cpu_alloc((size_t)rank * (size_t)m, sizeof *s);
    g = blasd_cpu_alloc((size_t)rank * (size_t)t, sizeof *g);
    b = blasd_cpu_alloc((size_t)m * (size_t)t, sizeof *b);
    tau = blasd_cpu_alloc((size_t)rank, sizeof *tau);
    if (s == NULL || g == NULL || tau == NULL || b == NULL) {
        code = blasd_fail(err, BLASD_E_out_of_memory, "", "no memory for the solution");
        goto done;
    }
    info = independent_rows(&pivoted, shape, r, z, exponent, s, g);
    memset(b, 0, (size_t)m * (size_t)t * sizeof *b);
    if (info == 0 && rank > 0 && t > 0) {
        /* s row-major is its transpose column-major: S' = Q R, b = Q R^-T g */
        info = LAPACKE_dgeqrf(LAPACK_COL_MAJOR, (int)m, rank, s, (int)m, tau);
        if (info == 0)
            info =
                LAPACKE_dtrtrs(LAPACK_COL_MAJOR, 'U', 'T', 'N', rank, (int)t, s, (int)m, g, rank);
        for (int64_t l = 0; l < t; l++) memcpy(b + l * m, g + l * rank, (size_t)rank * sizeof *b);
        if (info == 0)
            info = LAPACKE_dormqr(LAPACK_COL_MAJOR, 'L', 'N', (int)m, (int)t, rank, s, (int)m, tau,
                                  b, (int)m);
    }
    if (info != 0) {
        code = blasd_fail(err, BLASD_E_out_of_memory, "", "no memory to factor");
        goto done;
    }
    for (int64_t l = 0; l < t; l++) {
        double mean = skip == 1 ? ldexp(z[l], exponent[q + l] - exponent[0]) : 0;
        for (int64_t j = 0; j < m; j++) {
            fit->coef[l * q + skip + j] = b[l * m + j];
            if (skip == 1) mean -= ldexp(r[1 + j], exponent[1 + j] - exponent[0]) * b[l * m + j];
        }
        if (skip == 1) fit->coef[l * q] = r[0] != 0 ? mean / r[0] : 0;
    }
done:
    pivoted_release(&pivoted);
    free(s);
    free(g);
    free(tau);
    free(b);
    return code;
}
