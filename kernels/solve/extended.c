/* Read next: recheck.c. */
#include "kernels/solve/extended.h"

#include "core/wanted.h"
#include "kernels/cpu/cpu.h"
#include "kernels/solve/element.h"
#include "kernels/solve/estimate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define STEPS 6               /* of refinement */
#define HALF 0x1.00000001p32L /* splits a long double's 64 bits */
#define UNITS 3               /* of columns, that a proof is tried in */
#define DOUBT 0x1p-4          /* of a bound on x, or on A: a larger one leaves no digit */

bool extended_make(struct extended *look) {
    size_t n = (size_t)look->n, square = n * n;
    look->matrix = blasd_cpu_alloc(2 * square + 6 * n, sizeof *look->matrix);
    look->rows = blasd_cpu_alloc(n, sizeof *look->rows);
    look->row_scale = blasd_cpu_alloc(2 * n, sizeof *look->row_scale);
    look->v = blasd_cpu_alloc(2 * n, sizeof *look->v);
    if (look->matrix == NULL || look->rows == NULL || look->row_scale == NULL || look->v == NULL)
        return false;
    look->sign = look->v + n;
    look->column_scale = look->row_scale + n;
    look->factors = look->matrix + square;
    look->x = look->factors + square;
    look->low = look->x + n;
    look->b = look->low + n;
    look->r = look->b + n;
    look->sizes = look->r + n;
    look->lost = look->sizes + n;
    return true;
}

void extended_free(struct extended *look) {
    free(look->matrix);
    free(look->rows);
    free(look->row_scale);
    free(look->v);
}

void extended_load(struct extended *look, int64_t start) {
    const struct blasd_tensor *a = &look->task->inputs[BLASD_SOLVE_A];
    int64_t n = look->n;
    long double least = INFINITY, most = 0;
    for (int64_t i = 0; i < n; i++) look->sizes[i] = 0;
    for (int64_t j = 0; j < n; j++)
        for (int64_t i = 0; i < n; i++) {
            long double value = solve_matrix_element(&look->layout, a, start, i, j);
            look->matrix[j * n + i] = value;
            look->sizes[i] += fabsl(value);
            if (value != 0) least = fminl(least, fabsl(value));
            most = fmaxl(most, fabsl(value));
        }
    look->graded = most > extended_spread(look) * least;
    look->norm = 0;
    for (int64_t i = 0; i < n; i++) look->norm = fmaxl(look->norm, look->sizes[i]);
}

static int exponent_of(long double value) {
    int exponent = 0;
    (void)frexpl(value, &exponent);
    return exponent;
}

/* Rows, then columns, are brought near 1 in what is factored. */
static void scale(struct extended *look) {
    int64_t n = look->n;
    long double *rows = look->r;
    memset(rows, 0, (size_t)n * sizeof *rows);
    for (int64_t j = 0; j < n; j++)
        for (int64_t i = 0; i < n; i++) rows[i] = fmaxl(rows[i], fabsl(look->matrix[j * n + i]));
    for (int64_t i = 0; i < n; i++) look->row_scale[i] = -exponent_of(rows[i]);
    for (int64_t j = 0; j < n; j++) {
        long double most = 0;
        for (int64_t i = 0; i < n; i++)
            most = fmaxl(most, ldexpl(fabsl(look->matrix[j * n + i]), look->row_scale[i]));
        look->column_scale[j] = -exponent_of(most);
    }
}

/* LU of the matrix, scaled where that is asked for. False: a pivot is 0, or nobody wants it any
 * more. */
static bool factor(struct extended *look, bool scaled) {
    int64_t n = look->n, done = 0;
    long double *lu = look->factors;
    memset(look->row_scale, 0, 2 * (size_t)n * sizeof *look->row_scale);
    memcpy(lu, look->matrix, (size_t)n * (size_t)n * sizeof *lu);
    if (scaled) scale(look);
    for (int64_t j = 0; j < n && scaled; j++)
        for (int64_t i = 0; i < n; i++)
            lu[j * n + i] = ldexpl(lu[j * n + i], look->row_scale[i] + look->column_scale[j]);
    for (int64_t i = 0; i < n; i++) look->rows[i] = i;
    for (int64_t k = 0; k < n && blasd_wanted_after(&done, (n - k) * (n - k) * 2); k++) {
        int64_t pivot = k, row = look->rows[k];
        for (int64_t i = k + 1; i < n; i++)
            if (fabsl(lu[k * n + i]) > fabsl(lu[k * n + pivot])) pivot = i;
        if (lu[k * n + pivot] == 0) return false;
        look->rows[k] = look->rows[pivot];
        look->rows[pivot] = row;
        for (int64_t j = 0; j < n && pivot != k; j++) {
            long double value = lu[j * n + k];
            lu[j * n + k] = lu[j * n + pivot];
            lu[j * n + pivot] = value;
        }
        for (int64_t i = k + 1; i < n; i++) lu[k * n + i] /= lu[k * n + k];
        for (int64_t j = k + 1; j < n; j++) {
            long double by = lu[j * n + k];
            for (int64_t i = k + 1; by != 0 && i < n; i++) lu[j * n + i] -= lu[k * n + i] * by;
        }
    }
    return blasd_wanted();
}

void extended_substitute(const struct extended *look, const long double *r, long double *d) {
    const long double *lu = look->factors;
    int64_t n = look->n;
    for (int64_t i = 0; i < n; i++) d[i] = ldexpl(r[look->rows[i]], look->row_scale[look->rows[i]]);
    for (int64_t j = 0; j < n; j++)
        for (int64_t i = j + 1; d[j] != 0 && i < n; i++) d[i] -= lu[j * n + i] * d[j];
    for (int64_t j = n - 1; j >= 0; j--) {
        d[j] /= lu[j * n + j];
        for (int64_t i = 0; d[j] != 0 && i < j; i++) d[i] -= lu[j * n + i] * d[j];
    }
    for (int64_t j = 0; j < n; j++) d[j] = ldexpl(d[j], look->column_scale[j]);
}

void extended_substitute_transposed(const struct extended *look, long double *r, long double *d) {
    const long double *lu = look->factors;
    int64_t n = look->n;
    for (int64_t j = 0; j < n; j++) {
        r[j] = ldexpl(r[j], look->column_scale[j]);
        for (int64_t i = 0; i < j; i++) r[j] -= lu[j * n + i] * r[i];
        r[j] /= lu[j * n + j];
    }
    for (int64_t j = n - 1; j >= 0; j--)
        for (int64_t i = j + 1; i < n; i++) r[j] -= lu[j * n + i] * r[i];
    for (int64_t i = 0; i < n; i++) d[look->rows[i]] = ldexpl(r[i], look->row_scale[look->rows[i]]);
}

/* What rounding leaves out of x y (Dekker). */
static long double product_error(long double x, long double y, long double product) {
    long double a = x * HALF, b = y * HALF, x1, y1, x2, y2;
    x1 = a - (a - x);
    y1 = b - (b - y);
    x2 = x - x1;
    y2 = y - y1;
    return x2 * y2 - (((product - x1 * y1) - x2 * y1) - x1 * y2);
}

void extended_residual(struct extended *look) {
    int64_t n = look->n;
    long double *r = look->r, *lost = look->lost, *sizes = look->sizes;
    for (int64_t i = 0; i < n; i++) {
        r[i] = look->b[i];
        lost[i] = 0;
        sizes[i] = fabsl(look->b[i]);
    }
    for (int64_t j = 0; j < n; j++) {
        const long double *column = look->matrix + j * n;
        for (int64_t i = 0; look->x[j] != 0 && i < n; i++) {
            long double product = -column[i] * look->x[j], next = r[i] + product;
            long double part = next - r[i];
            lost[i] += product_error(-column[i], look->x[j], product) - column[i] * look->low[j] +
                       (r[i] - (next - part)) + (product - part);
            r[i] = next;
            sizes[i] += fabsl(product);
        }
    }
    for (int64_t i = 0; i < n; i++) r[i] += lost[i];
}

double extended_off(struct extended *look, double *error) {
    long double most = 0, greatest_r = 0, greatest_x = 0, greatest_b = 0, below;
    extended_residual(look);
    for (int64_t i = 0; i < look->n; i++) {
        long double r = fabsl(look->r[i]);
        if (r > 0 && !(r <= most * look->sizes[i])) most = r / look->sizes[i];
        r += 0x1p-100L * look->sizes[i]; /* what rounding may hide */
        if (!(r <= greatest_r)) greatest_r = r;
        greatest_x = fmaxl(greatest_x, fabsl(look->x[i]));
        greatest_b = fmaxl(greatest_b, fabsl(look->b[i]));
    }
    below = look->norm * greatest_x + greatest_b;
    *error = below > 0 ? (double)(greatest_r / below) * (1 + 0x1p-40) : 0;
    return (double)most;
}

void extended_solve(struct extended *look, long double *d) {
    long double last = INFINITY;
    look->still = false;
    memset(look->low, 0, (size_t)look->n * sizeof *look->low);
    extended_substitute(look, look->b, look->x);
    for (int step = 0; step < STEPS && blasd_wanted(); step++) {
        long double most = 0, greatest_d = 0, greatest_x = 0;
        extended_residual(look);
        extended_substitute(look, look->r, d);
        for (int64_t i = 0; i < look->n; i++) {
            long double size = fabsl(d[i]) / fabsl(look->x[i]);
            if (d[i] != 0 && !(size <= most)) most = size;
            if (!(fabsl(d[i]) <= greatest_d)) greatest_d = fabsl(d[i]);
            greatest_x = fmaxl(greatest_x, fabsl(look->x[i]));
        }
        look->still = greatest_d <= 0x1p-56L * greatest_x;
        if (!(most < last / 2) && !(most <= 0x1p-60L)) break;
        for (int64_t i = 0; i < look->n; i++) {
            long double by = look->low[i] + d[i], next = look->x[i] + by;
            look->low[i] = by - (next - look->x[i]);
            look->x[i] = next;
        }
        if (most <= 0x1p-60L) break;
        last = most;
    }
    for (int64_t i = 0; i < look->n; i++) look->x[i] += look->low[i];
    memset(look->low, 0, (size_t)look->n * sizeof *look->low);
}

/* ---- estimates ---- */

/* v := F inverse(A)' v, or inverse(A) F v, F = look->sizes; then, or before, in the units of
 * columns, where there are any. */
static bool apply_errors(void *arg, double *v, bool transposed) {
    struct extended *look = arg;
    long double *r = look->r, *d = look->lost;
    for (int64_t i = 0; i < look->n; i++) r[i] = transposed ? v[i] * look->sizes[i] : v[i];
    if (transposed)
        extended_substitute(look, r, d);
    else
        extended_substitute_transposed(look, r, d);
    for (int64_t i = 0; i < look->n; i++)
        v[i] = (double)(transposed ? d[i] : d[i] * look->sizes[i]);
    return blasd_wanted();
}

/* The same with inverse(D) inverse(A) for inverse(A), where D = look->low. */
static bool apply_even_errors(void *arg, double *v, bool transposed) {
    const struct extended *look = arg;
    bool going;
    for (int64_t j = 0; !transposed && j < look->n; j++) v[j] = (double)(v[j] / look->low[j]);
    going = apply_errors(arg, v, transposed);
    for (int64_t j = 0; transposed && j < look->n; j++) v[j] = (double)(v[j] / look->low[j]);
    return going;
}

/* look->sizes := E d, by rows of A: A is L U but for errors E of at most n 2^-64 |L| |U| where
 * something was subtracted. */
static void bound_errors(struct extended *look, const long double *d) {
    const long double *lu = look->factors;
    int64_t n = look->n;
    long double *row = look->b, *sizes = look->lost, unit = (long double)n * 0x1p-64L;
    for (int64_t i = 0; i < n; i++) row[i] = sizes[i] = 0;
    for (int64_t j = 0; j < n; j++) /* |U| d, in the units of columns of what is factored */
        for (int64_t i = 0; i <= j; i++)
            row[i] += fabsl(lu[j * n + i]) * ldexpl(d[j], -look->column_scale[j]);
    for (int64_t j = 0; j < n; j++)
        for (int64_t i = j + 1; i < n; i++) sizes[i] += fabsl(lu[j * n + i]) * row[j] * unit;
    for (int64_t i = 0; i < n; i++) {
        int64_t at = look->rows[i];
        if (sizes[i] > 0) sizes[i] += row[i] * unit;
        look->sizes[at] = ldexpl(sizes[i], -look->row_scale[at]);
    }
}

/* d := |inverse(A) E d| or so, for E d in look->sizes: by sums of changing signs. */
static void follow_errors(struct extended *look, long double *d) {
    long double *r = look->r, *to = look->lost;
    for (int64_t j = 0; j < look->n; j++) d[j] *= 0x1p-64L;
    for (int p = 0; p < BLASD_SOLVE_PROBES; p++) {
        for (int64_t i = 0; i < look->n; i++) r[i] = look->sizes[i] * blasd_solve_probe(i, p);
        extended_substitute(look, r, to);
        for (int64_t j = 0; j < look->n; j++) d[j] = fmaxl(d[j], fabsl(to[j]));
    }
}

/* Whether the factors prove A regular: were it singular, the norm of inverse(D) inverse(L U) E D
 * would be at least 1, whatever the units D of columns. So what an early small pivot amplifies is
 * in it, and what was never subtracted from is not. Units are first those that make columns alike,
 * then those of what the errors become. */
static bool is_regular(struct extended *look) {
    long double *d = look->low;
    for (int64_t j = 0; j < look->n; j++) {
        long double most = 0;
        for (int64_t i = 0; i < look->n; i++)
            most = fmaxl(most, fabsl(look->matrix[j * look->n + i]));
        d[j] = most > 0 ? 1 / most : 1;
    }
    for (int round = 0; round < UNITS && blasd_wanted(); round++) {
        if (round > 0) follow_errors(look, d);
        bound_errors(look, d);
        if (blasd_norm_inverse(look->n, look->v, look->sign, apply_even_errors, look) < DOUBT)
            return blasd_wanted();
    }
    return false;
}

bool extended_factor(struct extended *look, enum extended_way how) {
    return factor(look, how == SCALED) && is_regular(look);
}

bool extended_may_be_any(struct extended *look) {
    long double size = 0;
    for (int64_t i = 0; i < look->n; i++) size = fmaxl(size, fabsl(look->x[i]));
    if (!(size > 0) || !isfinite(size)) return false;
    for (int64_t i = 0; i < look->n; i++) look->sizes[i] *= extended_digit(look) / size;
    return !(blasd_norm_inverse(look->n, look->v, look->sign, apply_errors, look) < DOUBT);
}

/* v := inverse(A) norm v, or with the transposed inverse; in double, of which it may be beyond. */
static bool apply_inverse(void *arg, double *v, bool transposed) {
    struct extended *look = arg;
    long double *r = look->r, *d = look->lost;
    for (int64_t i = 0; i < look->n; i++) r[i] = v[i] * look->sizes[0];
    if (transposed)
        extended_substitute_transposed(look, r, d);
    else
        extended_substitute(look, r, d);
    for (int64_t i = 0; i < look->n; i++) v[i] = (double)d[i];
    return blasd_wanted();
}

double extended_rcond(struct extended *look) {
    long double norm = 0;
    double inverse;
    for (int64_t j = 0; j < look->n; j++) {
        long double sum = 0;
        for (int64_t i = 0; i < look->n; i++) sum += fabsl(look->matrix[j * look->n + i]);
        norm = fmaxl(norm, sum);
    }
    look->sizes[0] = norm;
    inverse = blasd_norm_inverse(look->n, look->v, look->sign, apply_inverse, look);
    return inverse > 1 ? 1 / inverse : inverse > 0 ? 1 : 0;
}
