/* Distances, correctly rounded: differences without an error, their sums in two doubles with a
 * bound, and an exact sum for each entry that this does not decide; its root by whole numbers.
 * Read next: sum.h. */
#include "core/parallel.h"
#include "core/wanted.h"
#include "kernels/cpu/cpu.h"
#include "kernels/distance/distance.h"
#include "kernels/exact/exact.h"
#include "kernels/exact/sum.h"
#include "kernels/numeric/dd.h"

#include <stdio.h>
#include <stdlib.h>

#define ROWS 64     /* of a piece of the matrix */
#define COLUMNS 256 /* of it, which are worked on beside each other */

struct job {
    const struct blasd_task *task;      /* borrowed */
    const struct distance_shape *shape; /* borrowed */
    int64_t down, across;               /* pieces of one problem */
    bool no_memory;
};

/* Entries of one row: sums in two parts, then what they are rounded from. */
struct row {
    double high[COLUMNS], low[COLUMNS], least[COLUMNS], most[COLUMNS];
};

/* ---- by two doubles ---- */

DD_CLONES
static void exact_pairs_squares(double x, const double *restrict y, struct row *restrict row) {
    for (int j = 0; j < COLUMNS; j++) {
        struct dd far = dd_two_sum(x, -y[j]), square = dd_two_product(far.hi, far.hi);
        struct dd sum = dd_two_sum(row->high[j], square.hi);
        row->high[j] = sum.hi;
        row->low[j] += sum.lo + (square.lo + 2 * far.hi * far.lo);
    }
}

DD_CLONES
static void exact_pairs_sizes(double x, const double *restrict y, struct row *restrict row) {
    for (int j = 0; j < COLUMNS; j++) {
        struct dd far = dd_two_sum(x, -y[j]);
        struct dd sum = dd_two_sum(row->high[j], fabs(far.hi));
        row->high[j] = sum.hi;
        row->low[j] += sum.lo + (far.hi < 0 ? -far.lo : far.lo);
    }
}

DD_CLONES
static void exact_pairs_largest(double x, const double *restrict y, struct row *restrict row) {
    for (int j = 0; j < COLUMNS; j++) {
        double far = fabs(x - y[j]);
        row->high[j] = far > row->high[j] || far != far ? far : row->high[j];
    }
}

/* Bounds of the entries, by `relative` errors of sums: the rounding lies between those of the
 * bounds, where these are numbers. `wider`: the result has fewer digits than a double. */
DD_CLONES
static void exact_pairs_bounds(double relative, bool root, double wider, struct row *restrict row) {
    for (int j = 0; j < COLUMNS; j++) {
        double high = row->high[j], low = row->low[j], error = high * relative;
        bool safe = high > 0x1p-900 && high < 0x1p1000;
        double base = root ? sqrt(high) : high;
        double rest = root ? (__builtin_fma(-base, base, high) + low) / (2 * base) : low;
        error = (root ? base * relative : error) + base * wider + fabs(rest) * 0x1p-50;
        row->least[j] = safe ? base + (rest - error) : (double)NAN;
        row->most[j] = base + (rest + error);
    }
}

/* Entries of a whole row whose bounds are equal; false: some are not. */
DD_CLONES
static bool exact_pairs_agree(const struct row *restrict row, double *restrict out) {
    int other = 0;
    for (int j = 0; j < COLUMNS; j++) {
        out[j] = row->least[j];
        other += !(row->least[j] == row->most[j]);
    }
    return other == 0;
}

/* ---- by exact sums ---- */

/* The largest of differences, each rounded, which keeps their order. */
static double largest(struct blasd_exact_sum *sum, const double *x, const double *y, int64_t k,
                      enum blasd_dtype dtype) {
    double most = 0;
    for (int64_t d = 0; d < k; d++) {
        double far = fabs(x[d] - y[d]);
        if (isfinite(x[d]) && isfinite(y[d])) {
            blasd_exact_clear(sum);
            blasd_exact_add(sum, x[d]);
            blasd_exact_add(sum, -y[d]);
            far = fabs(blasd_exact_round(sum, dtype));
        }
        if (isnan(far)) return __builtin_nan("");
        most = far > most ? far : most;
    }
    return most;
}

static double entry(struct blasd_exact_sum *sum, const struct distance_shape *shape,
                    const double *x, const double *y) {
    if (shape->metric == METRIC_chebyshev) return largest(sum, x, y, shape->k, shape->storage);
    blasd_exact_clear(sum);
    for (int64_t d = 0; d < shape->k; d++) {
        double sign = x[d] < y[d] ? -1 : 1;
        if (!isfinite(x[d]) || !isfinite(y[d])) {
            blasd_exact_note(sum, fabs(x[d] - y[d]));
        } else if (shape->metric == METRIC_cityblock) {
            blasd_exact_add(sum, sign * x[d]);
            blasd_exact_add(sum, -sign * y[d]);
        } else {
            blasd_exact_add_product(sum, x[d], x[d]);
            blasd_exact_add_product(sum, y[d], y[d]);
            blasd_exact_add_product(sum, x[d], -y[d]);
            blasd_exact_add_product(sum, x[d], -y[d]);
        }
    }
    sum->terms |= EXACT_ABOVE; /* no distance is -0 */
    return shape->metric == METRIC_euclidean ? blasd_exact_root(sum, shape->storage)
                                             : blasd_exact_round(sum, shape->storage);
}

/* ---- pieces ---- */

/* Sums and bounds of row x against `panel`, which has COLUMNS points, coordinate by coordinate. */
static void bound_row(const struct distance_shape *shape, const double *x, const double *panel,
                      struct row *row) {
    double k = (double)shape->k, wider = shape->storage == BLASD_float64 ? 0 : 0x1p-50;
    double relative = k * (k * 0x1p-104 + 0x1p-100) + 0x1p-99;
    bool root = shape->metric == METRIC_euclidean;
    memset(row, 0, sizeof *row);
    for (int64_t d = 0; d < shape->k; d++) {
        if (shape->metric == METRIC_chebyshev)
            exact_pairs_largest(x[d], panel + d * COLUMNS, row);
        else if (shape->metric == METRIC_cityblock)
            exact_pairs_sizes(x[d], panel + d * COLUMNS, row);
        else
            exact_pairs_squares(x[d], panel + d * COLUMNS, row);
    }
    /* of the largest, whose rounding to a double is its entry, fewer digits need bounds */
    if (shape->metric == METRIC_chebyshev) relative = 0;
    exact_pairs_bounds(relative, root, wider, row);
}

/* Where entry (i, j) of a problem goes; negative: nowhere. */
static int64_t place_of(const struct distance_shape *shape, int64_t i, int64_t j) {
    if (shape->output == OUTPUT_FULL) return i * shape->n + j;
    return j > i ? i * shape->n - i * (i + 1) / 2 + j - i - 1 : -1;
}

static bool make_piece(void *arg, int64_t piece, int slot) {
    struct job *job = arg;
    const struct distance_shape *shape = job->shape;
    int64_t each = job->down * job->across, problem = piece / each, k = shape->k, done = 0;
    int64_t top = piece % each / job->across * ROWS, left = piece % each % job->across * COLUMNS;
    int64_t columns = shape->n - left < COLUMNS ? shape->n - left : COLUMNS;
    struct distance_points points = blasd_distance_points(shape, job->task, problem);
    void *out = blasd_distance_outputs(shape, job->task, problem).d;
    const double *x = (const double *)(const void *)points.x;
    const double *y = (const double *)(const void *)points.y + left * k;
    double *panel = blasd_cpu_alloc((size_t)k * COLUMNS, sizeof *panel);
    struct blasd_exact_sum sum;
    struct row row;
    (void)slot;
    if (panel == NULL) {
        __atomic_store_n(&job->no_memory, true, __ATOMIC_RELAXED);
        return false;
    }
    blasd_exact_new(&sum);
    for (int64_t d = 0; d < k; d++)
        for (int64_t j = 0; j < COLUMNS; j++)
            panel[d * COLUMNS + j] = j < columns ? y[j * k + d] : 0;
    for (int64_t i = top; i < top + ROWS && i < shape->m; i++) {
        if (!blasd_wanted_after(&done, COLUMNS * (k + 4))) break;
        bound_row(shape, x + i * k, panel, &row);
        if (shape->output == OUTPUT_FULL && shape->storage == BLASD_float64 && columns == COLUMNS &&
            exact_pairs_agree(&row, (double *)out + i * shape->n + left))
            continue;
        for (int64_t j = 0; j < columns; j++) {
            int64_t at = place_of(shape, i, left + j);
            double least = blasd_exact_narrow(row.least[j], shape->storage);
            if (at < 0) continue;
            if (!(least == blasd_exact_narrow(row.most[j], shape->storage)))
                least = entry(&sum, shape, x + i * k, y + j * k);
            blasd_exact_store(least, shape->storage, out, at);
        }
    }
    free(panel);
    return blasd_wanted();
}

bool blasd_exact_distance(struct blasd_task *task, const struct distance_shape *shape, int threads,
                          struct blasd_watch *watch) {
    struct job job = {.task = task, .shape = shape};
    struct blasd_parallel loop = {
        .piece = make_piece, .arg = &job, .threads = threads, .watch = watch, .to = 1};
    bool going;
    snprintf(task->method, sizeof task->method, "correctly rounded");
    job.down = (shape->m + ROWS - 1) / ROWS;
    job.across = (shape->n + COLUMNS - 1) / COLUMNS;
    loop.count = shape->problems * job.down * job.across;
    going = loop.count == 0 || blasd_parallel_run(&loop);
    if (!job.no_memory) return going;
    blasd_fail(&task->err, BLASD_E_out_of_memory, "", "no memory for the points");
    return true;
}

int blasd_exact_distance_check(const struct blasd_job *job, const struct distance_shape *shape,
                               struct blasd_err *err) {
    bool metric = shape->metric == METRIC_euclidean || shape->metric == METRIC_sqeuclidean ||
                  shape->metric == METRIC_cityblock || shape->metric == METRIC_chebyshev;
    if (!metric || shape->weighted)
        return blasd_fail(err, BLASD_E_invalid_parameter, "params.rounding",
                          "correct is for the metrics euclidean, sqeuclidean, cityblock and "
                          "chebyshev, without weights");
    if (shape->output != OUTPUT_FULL && shape->output != OUTPUT_CONDENSED)
        return blasd_fail(err, BLASD_E_invalid_parameter, "params.rounding",
                          "correct is for the outputs full and condensed");
    return blasd_exact_check(job, err);
}
