/* Read next: recheck.c. */
#include "kernels/solve/extended.h"

#include "core/wanted.h"
#include "kernels/cpu/cpu.h"
#include "kernels/solve/element.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define STEPS 6               /* of refinement */
#define HALF 0x1.00000001p32L /* splits a long double's 64 bits */

bool extended_make(struct extended *look) {
    size_t n = (size_t)look->n, square = n * n;
    look->matrix = blasd_cpu_alloc(2 * square + 6 * n, sizeof *look->matrix);
    look->rows = blasd_cpu_alloc(n, sizeof *look->rows);
    look->row_scale = blasd_cpu_alloc(2 * n, sizeof *look->row_scale);
    if (look->matrix == NULL || look->rows == NULL || look->row_scale == NULL) return false;
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
    look->loaded = true;
    look->factored = NOT_FACTORED;
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

void extended_factor(struct extended *look, int how) {
    if ((int)look->factored == how) return;
    look->work += pow((double)look->n, 3) / 3;
    look->regular = factor(look, how == SCALED);
    look->factored = how == SCALED ? SCALED : AS_IT_STANDS;
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

void extended_residual(struct extended *look, bool fine) {
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
            if (fine) {
                long double part = next - r[i];
                lost[i] += product_error(-column[i], look->x[j], product) -
                           column[i] * look->low[j] + (r[i] - (next - part)) + (product - part);
            }
            r[i] = next;
            sizes[i] += fabsl(product);
        }
    }
    for (int64_t i = 0; i < n; i++) r[i] += lost[i];
}

double extended_off(struct extended *look, double *error) {
    long double most = 0, greatest_r = 0, greatest_x = 0, greatest_b = 0, below;
    extended_residual(look, false);
    for (int64_t i = 0; i < look->n; i++) {
        long double r = fabsl(look->r[i]);
        if (r > 0 && !(r <= most * look->sizes[i])) most = r / look->sizes[i];
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
    look->sure = look->still = false;
    memset(look->low, 0, (size_t)look->n * sizeof *look->low);
    extended_substitute(look, look->b, look->x);
    for (int step = 0; step < STEPS && blasd_wanted(); step++) {
        long double most = 0, greatest_d = 0, greatest_x = 0;
        extended_residual(look, true);
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
        look->sure = most <= 0x1p-60L;
        if (look->sure) break;
        last = most;
    }
    for (int64_t i = 0; i < look->n; i++) look->x[i] += look->low[i];
    memset(look->low, 0, (size_t)look->n * sizeof *look->low);
}

bool extended_pivots_stand(const struct extended *look) {
    const long double *lu = look->factors;
    int64_t n = look->n;
    for (int64_t k = 0; k < n; k++) {
        long double pivot = fabsl(lu[k * n + k]), sum = pivot;
        for (int64_t j = 0; j < k; j++) sum += fabsl(lu[j * n + k] * lu[k * n + j]);
        if (!(pivot > 4 * extended_digit(look) * sum)) return false;
    }
    return true;
}
