/* The covariance of all points, taken apart for mahalanobis. Read next: prepare.c.
 *
 * The covariance matrix itself would square the condition of the points, and its inverse would be
 * rounded at the size of its largest part. So the points, less their means, go through a QR
 * factorization in long double, points (N of them) = Q R, and (a-b)' S^-1 (a-b) becomes the square
 * of the length of T (a-b), T = sqrt(N - 1) R'^-1, of which nothing cancels. */
#include "kernels/distance/distance.h"

#include "base/err.h"
#include "core/wanted.h"
#include "kernels/cpu/cpu.h"

#include <math.h>
#include <stdlib.h>

#define ROWS 64 /* points that are folded into R at once */

/* R of R above `rows` rows more, whose columns lie one after the other in `more`. */
static void fold(int64_t k, int64_t rows, long double *r, long double *more) {
    int64_t done = 0;
    for (int64_t j = 0; j < k && blasd_wanted_after(&done, 16 * rows * (k - j)); j++) {
        long double *own = more + j * ROWS, squares = 0, top = r[j * k + j], first;
        for (int64_t i = 0; i < rows; i++) squares += own[i] * own[i];
        if (squares == 0) continue;
        r[j * k + j] = top > 0 ? -sqrtl(top * top + squares) : sqrtl(top * top + squares);
        first = top - r[j * k + j]; /* the reflector is `first` and `own` */
        squares += first * first;
        for (int64_t c = j + 1; c < k; c++) {
            long double *other = more + c * ROWS, part = first * r[j * k + c];
            for (int64_t i = 0; i < rows; i++) part += own[i] * other[i];
            part *= 2 / squares;
            r[j * k + c] -= part * first;
            for (int64_t i = 0; i < rows; i++) other[i] -= part * own[i];
        }
    }
}

/* Folds one set of points into R. */
static void fold_points(const struct distance_shape *shape, const double *points, int64_t count,
                        const struct distance_mean *means, long double *r, long double *more) {
    int64_t k = shape->k;
    for (int64_t at = 0; at < count && blasd_wanted(); at += ROWS) {
        int64_t rows = count - at < ROWS ? count - at : ROWS;
        for (int64_t i = 0; i < rows; i++)
            for (int64_t d = 0; d < k; d++)
                more[d * ROWS + i] = blasd_distance_deviation(points[(at + i) * k + d], means[d]);
        fold(k, rows, r, more);
    }
}

/* r becomes its inverse, an upper triangle; room: k numbers. */
static void invert(int64_t k, long double *r, long double *room) {
    int64_t done = 0;
    for (int64_t j = k - 1; j >= 0 && blasd_wanted_after(&done, (k - j) * (k - j)); j--) {
        long double *row = r + j * k, own = 1 / row[j];
        for (int64_t c = j + 1; c < k; c++) room[c] = 0;
        for (int64_t i = j + 1; i < k; i++)
            for (int64_t c = i; c < k; c++) room[c] += row[i] * r[i * k + c];
        for (int64_t c = j + 1; c < k; c++) row[c] = -own * room[c];
        row[j] = own;
    }
}

int blasd_distance_whiten(struct distance_problem *problem, const double *x, const double *y,
                          const struct distance_mean *means, int *shift, struct blasd_err *err) {
    const struct distance_shape *shape = problem->shape;
    int64_t k = shape->k;
    long double points = (long double)(shape->alone ? shape->m : shape->m + shape->n);
    long double *r = blasd_cpu_alloc((size_t)(k * (k + ROWS + 1)), sizeof *r), *more, *spread;
    double *t = problem->extra;
    if (r == NULL)
        return blasd_fail(err, BLASD_E_out_of_memory, "", "no memory for the covariance matrix");
    more = r + k * k;
    spread = more + k * ROWS;
    for (int64_t i = 0; i < k * k; i++) r[i] = 0;
    fold_points(shape, x, shape->m, means, r, more);
    if (!shape->alone) fold_points(shape, y, shape->n, means, r, more);
    for (int64_t c = 0; c < k; c++) {
        spread[c] = 0;
        for (int64_t d = 0; d <= c; d++) spread[c] += r[d * k + c] * r[d * k + c];
        shift[c] = 0;
        frexpl(sqrtl(spread[c] / (points - 1)), &shift[c]);
    }
    invert(k, r, more);
    problem->inflation = 1;
    for (int64_t c = 0; c < k && blasd_wanted(); c++) {
        long double squares = 0;
        for (int64_t d = c; d < k; d++) squares += r[c * k + d] * r[c * k + d];
        squares *= spread[c];
        if (isnan(squares)) squares = INFINITY;
        if (squares > problem->inflation) problem->inflation = squares;
        for (int64_t d = 0; d < k; d++)
            t[d * k + c] = d < c ? 0 : (double)ldexpl(sqrtl(points - 1) * r[c * k + d], shift[c]);
    }
    free(r);
    return 0;
}
