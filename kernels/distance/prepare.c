/* Makes a problem ready for the loops: points scaled or centred as the metric wants them, y laid
 * out in panels, weights and matrices in place.
 *
 * What is done here costs as much as the points, not as the matrix, so it is done with care (sums
 * in long double) and not with speed. Read next: rows.c. */
#include "kernels/distance/distance.h"

#include "base/err.h"
#include "core/wanted.h"
#include "kernels/cpu/cpu.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define PACK_ELEMENTS 1000000 /* laid out between two questions */
#define SINGULAR                                                                                   \
    0x1p80L         /* inflation of a variance, beyond which a coordinate is said by others        \
                     */
#define EXTREME 900 /* exponents of weights beyond which points are scaled */

static double element(enum blasd_dtype dtype, const void *data, int64_t i) {
    return dtype == BLASD_float64 ? ((const double *)data)[i] : (double)((const float *)data)[i];
}

static void set_element(enum blasd_dtype dtype, void *data, int64_t i, long double value) {
    if (dtype == BLASD_float64)
        ((double *)data)[i] = (double)value;
    else
        ((float *)data)[i] = (float)value;
}

static long double weight(const struct distance_problem *problem, int64_t d) {
    if (!problem->shape->weighted) return 1;
    return (long double)element(problem->shape->arithmetic, problem->args.w, d);
}

/* Writes a row to `to`, less `mean`, weighted and scaled to length 1; NaN where it has none. */
static void unit_row(struct distance_problem *problem, const void *from, int64_t at,
                     struct distance_mean mean, void *to) {
    enum blasd_dtype dtype = problem->shape->arithmetic;
    int64_t k = problem->shape->k;
    long double squares = 0, length;
    for (int64_t d = 0; d < k; d++) {
        long double x = blasd_distance_deviation(element(dtype, from, at + d), mean);
        if (weight(problem, d) != 0) squares += weight(problem, d) * x * x;
    }
    length = sqrtl(squares);
    problem->zero_row |= length == 0 && k > 0;
    for (int64_t d = 0; d < k; d++) {
        long double x = blasd_distance_deviation(element(dtype, from, at + d), mean);
        x = weight(problem, d) == 0 ? 0 : x * sqrtl(weight(problem, d));
        set_element(dtype, to, at + d, x / length);
    }
}

/* The weighted mean of a row; a constant row's mean is that constant, exactly. */
static struct distance_mean row_mean(const struct distance_problem *problem, const void *from,
                                     int64_t at) {
    enum blasd_dtype dtype = problem->shape->arithmetic;
    int64_t k = problem->shape->k;
    long double sum = 0, total = 0;
    struct distance_mean mean = {0, 0};
    bool constant = true;
    for (int64_t d = 0; d < k; d++) {
        double x = element(dtype, from, at + d);
        long double w = weight(problem, d);
        if (w == 0) continue;
        if (total == 0) mean.origin = (long double)x;
        if ((long double)x != mean.origin) constant = false;
        sum += w * (long double)x;
        total += w;
    }
    if (constant) return mean;
    mean.origin = (long double)(double)(sum / total); /* so that differences are exact nearby */
    sum = 0;
    for (int64_t d = 0; d < k; d++)
        if (weight(problem, d) != 0)
            sum += weight(problem, d) * ((long double)element(dtype, from, at + d) - mean.origin);
    mean.rest = sum / total;
    return mean;
}

static void share_row(struct distance_problem *problem, const void *from, int64_t at, void *to) {
    enum blasd_dtype dtype = problem->shape->arithmetic;
    int64_t k = problem->shape->k;
    long double sum = 0;
    bool negative = false;
    for (int64_t d = 0; d < k; d++) {
        double x = element(dtype, from, at + d);
        negative |= x < 0;
        sum += (long double)x;
    }
    problem->zero_row |= sum == 0 && !negative && k > 0;
    for (int64_t d = 0; d < k; d++) {
        long double share = (long double)element(dtype, from, at + d) / sum;
        set_element(dtype, to, at + d, negative || sum == 0 ? -1 : share);
    }
}

static void make_rows(struct distance_problem *problem, const void *from, int64_t count, void *to) {
    enum blasd_dtype dtype = problem->shape->arithmetic;
    int64_t k = problem->shape->k, worked = 0;
    for (int64_t i = 0; i < count && blasd_wanted_after(&worked, 8 * k); i++) {
        switch (blasd_distance_metrics[problem->shape->metric].rows) {
        case ROWS_PLAIN: break;
        case ROWS_UNIT: unit_row(problem, from, i * k, (struct distance_mean){0, 0}, to); break;
        case ROWS_CENTRED:
            unit_row(problem, from, i * k, row_mean(problem, from, i * k), to);
            break;
        case ROWS_SHARES: share_row(problem, from, i * k, to); break;
        case ROWS_TRUTH:
            for (int64_t d = i * k; d < (i + 1) * k; d++)
                set_element(dtype, to, d, element(dtype, from, d) != 0);
            break;
        }
    }
}

int blasd_distance_problem_init(struct distance_problem *problem,
                                const struct distance_shape *shape, struct blasd_err *err) {
    size_t size = blasd_dtype_size(shape->arithmetic);
    size_t k = (size_t)shape->k, n = (size_t)shape->n;
    size_t extra = shape->metric == METRIC_mahalanobis ? k * k : k;
    memset(problem, 0, sizeof *problem);
    problem->shape = shape;
    problem->panel = blasd_cpu_alloc((n + DISTANCE_PAD) * k, size);
    problem->extra = blasd_cpu_alloc(extra, size);
    problem->shift = blasd_cpu_alloc(k, sizeof *problem->shift);
    if (problem->panel == NULL || problem->extra == NULL || problem->shift == NULL ||
        (blasd_distance_multiplies(shape) && !blasd_distance_product_init(problem))) {
        blasd_distance_problem_release(problem);
        return blasd_fail(err, BLASD_E_out_of_memory, "", "no memory for the points");
    }
    return 0;
}

void blasd_distance_problem_release(struct distance_problem *problem) {
    free(problem->rows);
    free(problem->rows_y);
    free(problem->panel);
    free(problem->extra);
    free(problem->shift);
    free(problem->product.x);
    memset(problem, 0, sizeof *problem);
}

/* Sum of coordinate `d` over one set of points, each less `origin`. */
static long double coordinate_sum(const struct distance_shape *shape, const void *points,
                                  int64_t count, int64_t d, long double origin) {
    long double sum = 0;
    for (int64_t i = 0; i < count; i++)
        sum += (long double)element(shape->arithmetic, points, i * shape->k + d) - origin;
    return sum;
}

/* Mean of coordinate `d` over the points of x and y, of which there are some. From the first one
 * on: where all are the same it is that, however many they are. */
static struct distance_mean coordinate_mean(const struct distance_shape *shape, const void *x,
                                            const void *y, int64_t d) {
    struct distance_mean mean = {(long double)element(shape->arithmetic, x, d), 0};
    long double sum = coordinate_sum(shape, x, shape->m, d, mean.origin);
    int64_t count = shape->alone ? shape->m : shape->m + shape->n;
    if (!shape->alone) sum += coordinate_sum(shape, y, shape->n, d, mean.origin);
    mean.rest = sum / (long double)count;
    return mean;
}

/* Sum over one set of points of the squares of what coordinate `d` is from its mean. */
static long double square_sum(const struct distance_shape *shape, const void *points, int64_t count,
                              int64_t d, struct distance_mean mean) {
    long double sum = 0;
    for (int64_t i = 0; i < count; i++) {
        long double e =
            blasd_distance_deviation(element(shape->arithmetic, points, i * shape->k + d), mean);
        sum += e * e;
    }
    return sum;
}

/* Variance of a coordinate over x and y together, with ddof 1 as in NumPy's cov. */
static long double variance(const struct distance_shape *shape, const void *x, const void *y,
                            int64_t d, struct distance_mean mean) {
    long double sum = square_sum(shape, x, shape->m, d, mean);
    int64_t count = shape->alone ? shape->m : shape->m + shape->n;
    if (!shape->alone) sum += square_sum(shape, y, shape->n, d, mean);
    return sum / (long double)(count - 1);
}

/* Weight `d`. Of a problem that is to be scaled its power of two goes to coordinate d of the
 * points: to its square in the sums of squares. */
static void set_weight(struct distance_problem *problem, int64_t d, long double value) {
    const enum distance_loop loop = problem->args.loop;
    const bool square = loop == LOOP_SQUARES_W;
    int exponent = 0;
    frexpl(value, &exponent);
    if (problem->scaled && value > 0 && !isinf(value) &&
        (square || loop == LOOP_ABSOLUTE_W || loop == LOOP_BRAYCURTIS)) {
        problem->shift[d] = square ? exponent / 2 : exponent;
        value = ldexpl(value, square ? -2 * problem->shift[d] : -exponent);
    }
    set_element(problem->shape->arithmetic, problem->extra, d, value);
    problem->dropped |= value == 0;
    if (value != 0 && element(problem->shape->arithmetic, problem->extra, d) == 0)
        problem->left |= DISTANCE_BELOW;
}

/* weights 1/V: of the variances given, or of those of the points */
static void load_variances(struct distance_problem *problem, const void *x, const void *y,
                           const void *v) {
    const struct distance_shape *shape = problem->shape;
    for (int64_t d = 0; d < shape->k && blasd_wanted(); d++) {
        long double spread = v != NULL ? (long double)element(shape->arithmetic, v, d)
                                       : variance(shape, x, y, d, coordinate_mean(shape, x, y, d));
        int exponent = 0;
        frexpl(spread, &exponent);
        if (!problem->scaled && abs(exponent) > EXTREME) problem->left |= DISTANCE_BELOW;
        set_weight(problem, d, 1 / spread);
    }
    problem->args.w = problem->extra;
}

/* A matrix as given; of a problem that is to be scaled, times the power of four that makes its
 * largest element about 1. */
static void load_matrix(struct distance_problem *problem, const double *vi) {
    const int64_t k = problem->shape->k;
    double largest = 0;
    int exponent = 0;
    problem->args.v = vi;
    for (int64_t at = 0; at < k * k; at++) largest = fmax(largest, fabs(vi[at]));
    if (!problem->scaled || largest == 0 || isinf(largest)) return;
    frexp(largest, &exponent);
    for (int64_t at = 0; at < k * k; at++)
        ((double *)problem->extra)[at] = ldexp(vi[at], -exponent / 2 * 2);
    problem->args.v = problem->extra;
    problem->unscale = exponent / 2;
}

/* The matrix T of whiten.c, into `extra`. Where the points are so large or small that it leaves the
 * range of numbers, they are to be scaled and not the matrix. */
static int load_covariance(struct distance_problem *problem, const void *x, const void *y,
                           struct blasd_err *err) {
    const struct distance_shape *shape = problem->shape;
    int64_t k = shape->k;
    struct distance_mean *means = blasd_cpu_alloc((size_t)k, sizeof *means);
    double *t = problem->extra;
    int code;
    if (means == NULL)
        return blasd_fail(err, BLASD_E_out_of_memory, "", "no memory for the covariance matrix");
    for (int64_t d = 0; d < k && blasd_wanted(); d++) means[d] = coordinate_mean(shape, x, y, d);
    code = blasd_distance_whiten(problem, x, y, means, problem->shift, err);
    free(means);
    if (code != 0 || !blasd_wanted()) return code;
    if (!(problem->inflation < SINGULAR))
        return blasd_fail(err, BLASD_E_singular_matrix, "inputs.VI",
                          "the covariance matrix of the points is singular: give VI");
    problem->args.v = problem->extra;
    problem->args.whitened = true;
    for (int64_t d = 0; d < k; d++) {
        const int shift = problem->shift[d];
        problem->shift[d] = problem->scaled ? -shift : 0;
        if (problem->scaled) continue;
        if (abs(shift) > EXTREME / 4) problem->left |= DISTANCE_BELOW;
        for (int64_t row = 0; row < k; row++) t[row * k + d] = ldexp(t[row * k + d], -shift);
    }
    return 0;
}

/* Sums of weights alone stand above and below in these metrics: a power of two makes no difference,
 * and keeps their products in range. */
static bool only_ratios(enum distance_loop loop) {
    return loop == LOOP_HAMMING || loop == LOOP_JACCARD || loop == LOOP_DICE ||
           loop == LOOP_BOOLEAN || loop == LOOP_BRAYCURTIS;
}

static int load_weights(struct distance_problem *problem, const void *w, struct blasd_err *err) {
    const struct distance_shape *shape = problem->shape;
    int code = blasd_distance_check_weights(shape, w, err), shift = 0;
    double largest = 0;
    if (code != 0) return code;
    for (int64_t d = 0; w != NULL && d < shape->k; d++)
        largest = fmax(largest, element(shape->arithmetic, w, d));
    if (only_ratios(problem->args.loop) && largest > 0) frexp(largest, &shift);
    for (int64_t d = 0; d < shape->k; d++)
        set_weight(problem, d,
                   w == NULL ? 1 : ldexpl((long double)element(shape->arithmetic, w, d), -shift));
    problem->args.w = problem->extra;
    return 0;
}

/* Room for rows of the problem's own; NULL where memory has run out. */
static void *take_rows(struct distance_problem *problem, int which) {
    const struct distance_shape *shape = problem->shape;
    void **rows = which == 0 ? &problem->rows : &problem->rows_y;
    if (*rows == NULL)
        *rows = blasd_cpu_alloc((size_t)(which == 0 ? shape->m : shape->n) * (size_t)shape->k,
                                blasd_dtype_size(shape->arithmetic));
    return *rows;
}

/* The largest exponent that a finite coordinate has, times 2^shift. */
static int largest_exponent(const struct distance_problem *problem, const void *points,
                            int64_t count) {
    const struct distance_shape *shape = problem->shape;
    int64_t done = 0;
    int largest = INT_MIN;
    for (int64_t at = 0; at < count * shape->k && blasd_wanted_after(&done, 2); at++) {
        double x = element(shape->arithmetic, points, at);
        int exponent = 0;
        if (x == 0 || !isfinite(x)) continue;
        frexp(x, &exponent);
        exponent += problem->shift[at % shape->k];
        if (exponent > largest) largest = exponent;
    }
    return largest;
}

/* The exponent up to which no sum over the coordinates leaves the range. */
static int safe_exponent(const struct distance_problem *problem) {
    int most = problem->shape->arithmetic == BLASD_float32 ? 126 : 1020, sums = 0;
    frexp((double)problem->shape->k, &sums);
    switch (problem->args.loop) {
    case LOOP_SQUARES:
    case LOOP_SQUARES_W: return most / 2 - sums - 2;
    case LOOP_MAHALANOBIS: return most / 2 - sums - 60; /* elements of a triangle are large, too */
    default: return most - sums - 2;
    }
}

/* Points times 2^shift, into rows of their own, without coordinates of weight 0. */
static void scale_points(struct distance_problem *problem, const void *from, int64_t count,
                         void *to) {
    const struct distance_shape *shape = problem->shape;
    double least = shape->arithmetic == BLASD_float32 ? 0x1p-102 : 0x1p-969;
    int64_t done = 0;
    for (int64_t at = 0; at < count * shape->k && blasd_wanted_after(&done, 4); at++) {
        int64_t d = at % shape->k;
        double x = element(shape->arithmetic, from, at), scaled = ldexp(x, problem->shift[d]);
        if (problem->dropped && element(shape->arithmetic, problem->extra, d) == 0) x = scaled = 0;
        if (problem->scaled && x != 0 && fabs(scaled) < least) problem->left |= DISTANCE_BELOW;
        set_element(shape->arithmetic, to, at, (long double)scaled);
    }
}

/* One exact factor for all points, with which their largest number is as large as may be. */
static void choose_scale(struct distance_problem *problem, const void *x, const void *y) {
    const struct distance_shape *shape = problem->shape;
    const enum distance_loop loop = problem->args.loop;
    int largest = largest_exponent(problem, x, shape->m), by;
    if (!shape->alone) {
        int other = largest_exponent(problem, y, shape->n);
        if (other > largest) largest = other;
    }
    by = largest == INT_MIN ? 0 : safe_exponent(problem) - largest;
    for (int64_t d = 0; d < shape->k; d++) problem->shift[d] += by;
    problem->unscale -= by;
    if (loop == LOOP_CANBERRA || loop == LOOP_BRAYCURTIS) problem->unscale = 0;
    if (loop <= LOOP_SQUARES_W && problem->args.finish == FINISH_NONE) problem->unscale *= 2;
}

/* What the metric makes of rows, and what is scaled or left out of them. */
static int load_rows(struct distance_problem *problem, const void *x, const void *y,
                     struct blasd_err *err) {
    const struct distance_shape *shape = problem->shape;
    const bool made = blasd_distance_metrics[shape->metric].rows != ROWS_PLAIN;
    const void *from[2] = {x, y};
    int64_t counts[2] = {shape->m, shape->n};
    if (problem->scaled) choose_scale(problem, x, y);
    for (int i = 0; (made || problem->scaled || problem->dropped) && i < 2 - shape->alone; i++) {
        void *to = take_rows(problem, i);
        if (to == NULL)
            return blasd_fail(err, BLASD_E_out_of_memory, "", "no memory for the points");
        if (made)
            make_rows(problem, from[i], counts[i], to);
        else
            scale_points(problem, from[i], counts[i], to);
        from[i] = to;
    }
    problem->x = from[0];
    problem->y = shape->alone ? from[0] : from[1];
    return 0;
}

/* In parts of whole blocks, between which the work may end. */
static void pack(const struct distance_shape *shape, const void *rows, void *panel) {
    size_t size = blasd_dtype_size(shape->arithmetic);
    int64_t k = shape->k, part;
    if (k == 0) return;
    part = (PACK_ELEMENTS / k / DISTANCE_PAD + 1) * DISTANCE_PAD;
    for (int64_t j = 0; j < shape->n && (j == 0 || blasd_wanted()); j += part) {
        int64_t n = shape->n - j < part ? shape->n - j : part;
        const void *from = (const char *)rows + (size_t)(j * k) * size;
        void *to = (char *)panel + (size_t)(j * k) * size;
        if (shape->arithmetic == BLASD_float64)
            blasd_distance_pack_f64(from, n, k, to);
        else
            blasd_distance_pack_f32(from, n, k, to);
    }
}

int blasd_distance_problem_load(struct distance_problem *problem, bool scaled, const void *x,
                                const void *y, const void *w, const void *v, const void *vi,
                                struct blasd_err *err) {
    const struct distance_shape *shape = problem->shape;
    int code = 0;
    blasd_distance_choose(shape, &problem->args);
    problem->scaled = scaled && blasd_distance_metrics[shape->metric].rows == ROWS_PLAIN;
    problem->args.scaled = problem->scaled;
    problem->args.weighted = shape->weighted;
    problem->args.whitened = problem->zero_row = problem->dropped = false;
    problem->left = problem->unscale = 0;
    problem->inflation = 1;
    memset(problem->shift, 0, (size_t)shape->k * sizeof *problem->shift);
    if (shape->alone) y = x;
    if (shape->metric == METRIC_seuclidean)
        load_variances(problem, x, y, v);
    else if (shape->metric == METRIC_mahalanobis && vi != NULL)
        load_matrix(problem, vi);
    else if (shape->metric == METRIC_mahalanobis)
        code = load_covariance(problem, x, y, err);
    else
        code = load_weights(problem, w, err);
    if (code == 0) code = load_rows(problem, x, y, err);
    if (code != 0) return code;
    pack(shape, problem->y, problem->panel);
    if (problem->product.x != NULL) blasd_distance_product_load(problem);
    return 0;
}
