/* ridge in double: |y - Xb|^2 + alpha |b|^2 as scikit-learn has it. The intercept is not penalised.
 *
 * With many observations QR of the triangle and the penalty's rows together gives another triangle,
 * by which the coefficients are found and then refined with the data (qr_tall.c). With few, the
 * rows stand in the order of their sizes, for what a reflection takes from other columns is right
 * to the rounding of the row that it begins in: what is small there drowns. Touches no data. Uses
 * LAPACK. Read next: qr_small.c, for all that this is not good enough for, then coordinate.c. */
#include "kernels/regression/penalised.h"

#include "base/err.h"
#include "core/wanted.h"
#include "kernels/cpu/cpu.h"
#include "kernels/regression/dense.h"

#include <cblas.h>
#include <lapacke.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define GRADED 0x1p10 /* between the sizes of features */

static const struct regression_dense *const lapack = &blasd_regression_lapack;

/* A feature, in the order of their sizes. */
struct column {
    double size;
    int64_t at;
};

static int no_memory(struct blasd_err *err) {
    return blasd_fail(err, BLASD_E_out_of_memory, "", "no memory for the penalised problem");
}

static int larger_first(const void *a, const void *b) {
    double x = ((const struct column *)a)->size, y = ((const struct column *)b)->size;
    int64_t i = ((const struct column *)a)->at, j = ((const struct column *)b)->at;
    return x > y ? -1 : x < y ? 1 : i < j ? -1 : i > j;
}

/* v, of n numbers, with a'v = g and of least norm, from a P = Q R of `qr`; and once more from what
 * that leaves of g. room: 2 n. */
static int least_norm(const double *a, const double *qr, const double *tau, const int *pivot,
                      int64_t n, int64_t m, const double *g, double *v, double *room) {
    double *along = room, *left = room + n;
    int info = 0;
    memset(v, 0, (size_t)n * sizeof *v);
    for (int turn = 0; turn < 2 && info == 0; turn++) {
        bool finite = true;
        int64_t done = 0;
        for (int64_t i = 0; i < m && blasd_wanted_after(&done, 4 * n); i++) {
            long double sum = (long double)g[i];
            for (int64_t j = 0; turn > 0 && j < n; j++)
                sum -= (long double)a[i * n + j] * (long double)v[j];
            left[i] = (double)sum;
        }
        memset(along, 0, (size_t)n * sizeof *along);
        for (int64_t i = 0; i < m; i++) along[i] = left[pivot[i] - 1];
        cblas_dtrsv(CblasColMajor, CblasUpper, CblasTrans, CblasNonUnit, (int)m, qr, (int)n, along,
                    1);
        info = LAPACKE_dormqr(LAPACK_COL_MAJOR, 'L', 'N', (int)n, 1, (int)m, qr, (int)n, tau, along,
                              (int)n);
        for (int64_t j = 0; j < n; j++) finite = finite && isfinite(along[j]);
        for (int64_t j = 0; (finite || turn == 0) && j < n; j++) v[j] += along[j];
    }
    return info;
}

/* The condition number of m columns of n rows, scaled to length 1, from R of their QR; INFINITY
 * where there is no telling. */
static double scaled_condition(const double *qr, int64_t n, int64_t m) {
    double *r = blasd_cpu_alloc((size_t)(m * m), sizeof *r), squares = 0;
    bool told = r != NULL;
    for (int64_t j = 0; told && j < m; j++) {
        double length = blasd_regression_length(j + 1, qr + j * n);
        for (int64_t i = 0; i < m; i++) r[j * m + i] = i > j ? 0 : qr[j * n + i] / length;
        told = length > 0 && qr[j * n + j] != 0;
    }
    told = told && lapack->trtri(true, (int)m, r, (int)m) == 0;
    for (int64_t i = 0; told && i < m * m; i++) squares += r[i] * r[i];
    free(r);
    return told && isfinite(squares) ? sqrt(squares) : INFINITY;
}

/* How much longer all of v is than its part that are coefficients; that is without `but` numbers
 * from `from` on. */
static double beside(const double *v, int64_t n, int64_t from, int64_t but) {
    double own = hypot(blasd_regression_length(from, v),
                       blasd_regression_length(n - from - but, v + from + but));
    return own > 0 ? blasd_regression_length(n, v) / own : 1;
}

/* One unit for all columns: the least-norm solution of [M root] [b; v] = g, whose v is what is left
 * over. [M root]' = Q R; its rows are features, and those of the penalty where the features begin
 * to be smaller. Where they differ much in size, only pivoting of the columns keeps what is small
 * (Cox and Higham), as in least_norm.c. *doubt: what an error of b is of its rounding, about: the
 * condition, and more where observations that nearly depend on each other are told apart by v, so
 * that b is what is left of that. */
static int ridge_wide(const struct regression_part *part, double root, const struct column *order,
                      double *a, double *g, double *b, double *doubt) {
    int64_t p = part->p, t = part->t, m = part->rows, n = p + m, large = 0, done = 0;
    double *qr = blasd_cpu_alloc((size_t)(n * m), sizeof *qr);
    double *room = blasd_cpu_alloc((size_t)(2 * n + m), sizeof *room);
    int *pivot = blasd_cpu_alloc((size_t)m, sizeof *pivot), info = -1;
    double most = 1;
    if (qr == NULL || room == NULL || pivot == NULL) goto done;
    while (large < p && order[large].size >= 1) large++;
    for (int64_t i = 0; i < m && blasd_wanted_after(&done, 2 * p); i++) {
        a[i * n + large + i] = ldexp(root, -part->unit[0]);
        for (int64_t j = 0; j < p; j++)
            a[i * n + (j < large ? j : m + j)] = part->m[order[j].at * m + i];
        pivot[i] = order[0].size <= GRADED * order[p - 1].size ? (int)i + 1 : 0;
    }
    memcpy(qr, a, (size_t)(n * m) * sizeof *a);
    info = pivot[0] == 0 ? lapack->geqp3((int)n, (int)m, qr, (int)n, pivot, room + 2 * n)
                         : lapack->geqrf((int)n, (int)m, qr, (int)n, room + 2 * n);
    if (info == 0) *doubt = fmax(*doubt, scaled_condition(qr, n, m));
    for (int64_t l = 0; l < t && info == 0 && blasd_wanted(); l++) {
        double *v = g + l * n;
        info = least_norm(a, qr, room + 2 * n, pivot, n, m, part->g + l * m, v, room);
        for (int64_t j = 0; j < p; j++) b[l * p + order[j].at] = v[j < large ? j : m + j];
        most = fmax(most, beside(v, n, large, m));
    }
    *doubt *= most;
done:
    free(qr);
    free(room);
    free(pivot);
    return info;
}

/* b (p x t, column-major), in the part's units. */
static int ridge_solve(const struct regression_part *part, double alpha, double *doubt, double *b) {
    double root = sqrt(alpha);
    size_t p = (size_t)part->p, t = (size_t)part->t, m = (size_t)part->rows, n = p + m;
    double *a = blasd_cpu_alloc(n * m, sizeof *a);
    double *g = blasd_cpu_alloc(n * t, sizeof *g);
    struct column *order = blasd_cpu_alloc(p, sizeof *order);
    int info = a == NULL || g == NULL || order == NULL ? -1 : 0;
    if (info == 0 && p > 0 && t > 0 && m > 0) {
        memset(a, 0, n * m * sizeof *a);
        memset(g, 0, n * t * sizeof *g);
        for (size_t j = 0; j < p; j++)
            order[j] = (struct column){blasd_regression_length((int64_t)m, part->m + j * m) /
                                           ldexp(root, -part->unit[j]),
                                       (int64_t)j};
        qsort(order, p, sizeof *order, larger_first);
        *doubt = order[0].size > GRADED * order[p - 1].size ? INFINITY : 1;
        info = ridge_wide(part, root, order, a, g, b, doubt);
    } else if (info == 0) {
        memset(b, 0, p * t * sizeof *b);
    }
    free(a);
    free(g);
    free(order);
    return info;
}

int blasd_regression_ridge(const struct regression_shape *shape,
                           const struct regression_factor *factor, struct regression_fit *fit,
                           double *doubt, struct blasd_err *err) {
    int64_t p = shape->p, t = shape->t;
    struct regression_part part;
    double *b = blasd_cpu_alloc((size_t)p * (size_t)t, sizeof *b), *left = NULL;
    int code = blasd_regression_part_init(&part, shape, factor, sqrt(shape->alpha), true, err);
    left = code == 0 ? blasd_cpu_alloc((size_t)part.rows, sizeof *left) : NULL;
    if (code == 0 && (b == NULL || left == NULL)) code = no_memory(err);
    *doubt = 1;
    if (code == 0 && ridge_solve(&part, shape->alpha, doubt, b) != 0) code = no_memory(err);
    for (int64_t l = 0; code == 0 && l < t; l++)
        blasd_regression_part_finish(shape, factor, &part, l, b + l * p, left, fit);
    blasd_regression_part_release(&part);
    free(b);
    free(left);
    return code;
}

int blasd_regression_ridge_triangle(const struct regression_shape *shape,
                                    struct regression_factor *factor, struct blasd_err *err) {
    int64_t q = shape->q, t = shape->t, first = q - shape->p, rows = q + shape->p;
    double *a = blasd_cpu_alloc((size_t)(rows * q), sizeof *a), root = sqrt(shape->alpha);
    double *g = blasd_cpu_alloc((size_t)(rows * t), sizeof *g);
    double *tau = blasd_cpu_alloc((size_t)q, sizeof *tau);
    int info = -1;
    if (a == NULL || g == NULL || tau == NULL) goto done;
    memset(a, 0, (size_t)(rows * q) * sizeof *a);
    memset(g, 0, (size_t)(rows * t) * sizeof *g);
    for (int64_t j = 0; j < q; j++) {
        for (int64_t i = 0; i <= j; i++) a[j * rows + i] = factor->r[i * q + j];
        if (j >= first) a[j * rows + q + j - first] = ldexp(root, -factor->exponent[j]);
    }
    for (int64_t l = 0; l < t; l++)
        for (int64_t i = 0; i < q; i++) g[l * rows + i] = factor->z[i * t + l];
    info = lapack->geqrf((int)rows, (int)q, a, (int)rows, tau);
    if (info == 0 && t > 0)
        info = lapack->ormqr((int)rows, (int)t, (int)q, a, (int)rows, tau, g, (int)rows);
    for (int64_t i = 0; i < q; i++) {
        for (int64_t j = i; j < q; j++) factor->r[i * q + j] = a[j * rows + i];
        for (int64_t l = 0; l < t; l++) factor->z[i * t + l] = g[l * rows + i];
    }
done:
    free(a);
    free(g);
    free(tau);
    return info == 0 ? 0 : no_memory(err);
}
