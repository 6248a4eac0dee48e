/* Makes a problem ready for the loops: points scaled or centred as the metric wants them, y laid
 * out in panels, weights and matrices in place.
 *
 * What is done here costs as much as the points, not as the matrix, so it is done with care (sums
 * in long double) and not with speed. Read next: rows.c. */
#include "kernels/distance/distance.h"

#include "base/err.h"
#include "core/wanted.h"
#include "kernels/cpu/cpu.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define PACK_ELEMENTS 1000000 /* laid out between two questions */
#define SINGULAR                                                                                   \
    0x1p80L         /* inflation of a variance, beyond which a coordinate is said by others        \
                     */
#define EXTREME 200 /* exponents of spreads beyond which points are scaled */

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
    const struct distance_metric_info *metric = &blasd_distance_metrics[shape->metric];
    size_t size = blasd_dtype_size(shape->arithmetic);
    size_t k = (size_t)shape->k, m = (size_t)shape->m, n = (size_t)shape->n;
    size_t extra = shape->metric == METRIC_mahalanobis ? k * k : k;
    memset(problem, 0, sizeof *problem);
    problem->shape = shape;
    problem->panel = blasd_cpu_alloc((n + DISTANCE_PAD) * k, size);
    problem->extra = blasd_cpu_alloc(extra, size);
    problem->wide = blasd_cpu_alloc(k, sizeof *problem->wide);
    if (metric->rows != ROWS_PLAIN) {
        problem->rows = blasd_cpu_alloc(m * k, size);
        if (!shape->alone) problem->rows_y = blasd_cpu_alloc(n * k, size);
    }
    if (problem->panel == NULL || problem->extra == NULL || problem->wide == NULL ||
        (metric->rows != ROWS_PLAIN &&
         (problem->rows == NULL || (!shape->alone && problem->rows_y == NULL)))) {
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
    free(problem->wide);
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

/* Weight `d` in both widths. What the arithmetic's type cannot hold asks for care everywhere. */
static void set_weight(struct distance_problem *problem, int64_t d, long double value) {
    bool single = problem->shape->arithmetic == BLASD_float32;
    long double least = single ? (long double)FLT_MIN : (long double)DBL_MIN;
    long double most = single ? (long double)FLT_MAX : (long double)DBL_MAX;
    problem->wide[d] = value;
    set_element(problem->shape->arithmetic, problem->extra, d, value);
    if (value != 0 && !(value >= least && value <= most)) problem->args.strict = true;
}

/* weights 1/V: of the variances given, or of those of the points */
static void load_variances(struct distance_problem *problem, const void *x, const void *y,
                           const void *v) {
    const struct distance_shape *shape = problem->shape;
    for (int64_t d = 0; d < shape->k && blasd_wanted(); d++) {
        struct distance_mean mean;
        if (v != NULL) {
            set_weight(problem, d, 1 / (long double)element(shape->arithmetic, v, d));
            continue;
        }
        mean = coordinate_mean(shape, x, y, d);
        set_weight(problem, d, 1 / variance(shape, x, y, d, mean));
    }
    problem->args.w = problem->extra;
}

/* The points with each coordinate divided by 2^shift, into rows of the problem's own. */
static int scale_points(struct distance_problem *problem, const void **x, const void **y,
                        const int *shift, struct blasd_err *err) {
    const struct distance_shape *shape = problem->shape;
    const void *from[2] = {*x, *y};
    void **to[2] = {&problem->rows, &problem->rows_y};
    int64_t counts[2] = {shape->m, shape->n}, done = 0;
    for (int i = 0; i < (shape->alone ? 1 : 2); i++) {
        if (*to[i] == NULL)
            *to[i] = blasd_cpu_alloc((size_t)counts[i] * (size_t)shape->k,
                                     blasd_dtype_size(shape->arithmetic));
        if (*to[i] == NULL)
            return blasd_fail(err, BLASD_E_out_of_memory, "", "no memory for the points");
        for (int64_t at = 0; at < counts[i] * shape->k && blasd_wanted_after(&done, 4); at++)
            set_element(shape->arithmetic, *to[i], at,
                        ldexpl((long double)element(shape->arithmetic, from[i], at),
                               -shift[at % shape->k]));
    }
    *x = problem->rows;
    *y = shape->alone ? problem->rows : problem->rows_y;
    return 0;
}

/* The matrix T of whiten.c, into `extra`. Where the points are so large or small that it leaves the
 * range of numbers, they are scaled and not the matrix. */
static int load_covariance(struct distance_problem *problem, const void **x, const void **y,
                           struct blasd_err *err) {
    const struct distance_shape *shape = problem->shape;
    int64_t k = shape->k;
    struct distance_mean *means = blasd_cpu_alloc((size_t)k, sizeof *means);
    int *shift = blasd_cpu_alloc((size_t)k, sizeof *shift);
    double *t = problem->extra;
    bool extreme = false;
    int code = 0;
    if (means == NULL || shift == NULL) {
        code = blasd_fail(err, BLASD_E_out_of_memory, "", "no memory for the covariance matrix");
        goto done;
    }
    for (int64_t d = 0; d < k && blasd_wanted(); d++) means[d] = coordinate_mean(shape, *x, *y, d);
    code = blasd_distance_whiten(problem, *x, *y, means, shift, err);
    if (code != 0 || !blasd_wanted()) goto done;
    if (!(problem->inflation < SINGULAR)) {
        code = blasd_fail(err, BLASD_E_singular_matrix, "inputs.VI",
                          "the covariance matrix of the points is singular: give VI");
        goto done;
    }
    for (int64_t d = 0; d < k; d++) extreme |= abs(shift[d]) > EXTREME;
    if (extreme) code = scale_points(problem, x, y, shift, err);
    for (int64_t at = 0; !extreme && at < k * k; at++) t[at] = ldexp(t[at], -shift[at % k]);
    problem->args.v = problem->extra;
    problem->args.whitened = true;
done:
    free(means);
    free(shift);
    return code;
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
    /* weights as given lose nothing in their own type */
    problem->args.strict = false;
    return 0;
}

/* canberra: sums of two numbers that overflow, though their quotients would not, do not show in the
 * result. */
static bool is_extreme(const struct distance_shape *shape, const void *points, int64_t count) {
    bool single = shape->arithmetic == BLASD_float32;
    double most = single ? (double)FLT_MAX / 4 : DBL_MAX / 4;
    int64_t done = 0;
    for (int64_t i = 0; i < count && blasd_wanted_after(&done, 1); i++) {
        double x = fabs(element(shape->arithmetic, points, i));
        if (x > most && x <= DBL_MAX && !(single && x > (double)FLT_MAX)) return true;
    }
    return false;
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

int blasd_distance_problem_load(struct distance_problem *problem, const void *x, const void *y,
                                const void *w, const void *v, const void *vi,
                                struct blasd_err *err) {
    const struct distance_shape *shape = problem->shape;
    bool made = blasd_distance_metrics[shape->metric].rows != ROWS_PLAIN;
    int code = 0;
    blasd_distance_choose(shape, &problem->args);
    problem->args.wide = problem->wide;
    problem->args.strict = problem->args.whitened = false;
    problem->zero_row = false;
    problem->inflation = 1;
    if (shape->alone) y = x;
    if (shape->metric == METRIC_seuclidean)
        load_variances(problem, x, y, v);
    else if (shape->metric == METRIC_mahalanobis && vi != NULL)
        problem->args.v = vi;
    else if (shape->metric == METRIC_mahalanobis)
        code = load_covariance(problem, &x, &y, err);
    else
        code = load_weights(problem, w, err);
    if (code != 0) return code;
    if (shape->metric == METRIC_canberra)
        problem->args.strict = is_extreme(shape, x, shape->m * shape->k) ||
                               (!shape->alone && is_extreme(shape, y, shape->n * shape->k));
    if (made) {
        make_rows(problem, x, shape->m, problem->rows);
        if (!shape->alone) make_rows(problem, y, shape->n, problem->rows_y);
        x = problem->rows;
        y = shape->alone ? problem->rows : problem->rows_y;
    }
    problem->x = x;
    problem->y = y;
    pack(shape, y, problem->panel);
    return 0;
}
