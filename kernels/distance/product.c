/* The factors of a product from which nearest.c sees which points cannot be the nearest. Read next:
 * nearest.c. */
#include "kernels/distance/distance.h"

#include "core/wanted.h"
#include "kernels/cpu/cpu.h"

#include <math.h>
#include <stdlib.h>

#define DEEP_LEAST 2 /* coordinates from which a product serves */
#define DEEP_MOST 16384
#define ROWS_LEAST 32
#define COLUMNS_LEAST 1024
#define COLUMNS_EACH 32 /* columns for each neighbour, at least */

bool blasd_distance_multiplies(const struct distance_shape *shape) {
    struct distance_args args;
    int64_t count = shape->output == OUTPUT_TOPK ? shape->neighbours : 1;
    blasd_distance_choose(shape, &args);
    return (shape->output == OUTPUT_ARGMIN || shape->output == OUTPUT_TOPK) &&
           args.loop == LOOP_SQUARES && shape->m >= ROWS_LEAST && shape->n >= COLUMNS_LEAST &&
           shape->k >= DEEP_LEAST && shape->k <= DEEP_MOST && count <= shape->n / COLUMNS_EACH;
}

bool blasd_distance_product_init(struct distance_problem *problem) {
    const struct distance_shape *shape = problem->shape;
    struct distance_product *product = &problem->product;
    size_t row = (size_t)shape->k + 1, m = (size_t)shape->m, n = (size_t)shape->n;
    size_t floats = (m + n) * row, parts = n / DISTANCE_PART + 1;
    floats += floats % 2;
    product->x = blasd_cpu_alloc(floats / 2 + m + parts + row, sizeof(double));
    if (product->x == NULL) return false;
    product->y = product->x + m * row;
    product->x_squares = (double *)(void *)(product->x + floats);
    product->y_lengths = product->x_squares + m;
    product->centre = product->y_lengths + parts;
    return true;
}

static double element(const struct distance_shape *shape, const void *data, int64_t i) {
    return shape->arithmetic == BLASD_float64 ? ((const double *)data)[i]
                                              : (double)((const float *)data)[i];
}

/* A point's factor, centred and scaled; returns the square of its length. */
static double load_factor(const struct distance_shape *shape, const void *points, int64_t i,
                          const double *centre, double scale, float *to) {
    double sum = 0;
    for (int64_t d = 0; d < shape->k; d++) {
        to[d] = (float)((element(shape, points, i * shape->k + d) - centre[d]) * scale);
        sum += (double)to[d] * (double)to[d];
    }
    return sum;
}

/* The exponent of the largest finite x - c. */
static int exponent_of(const struct distance_shape *shape, const void *points, int64_t count,
                       const double *centre) {
    double largest = 0;
    int exponent = 0;
    int64_t done = 0;
    for (int64_t i = 0; i < count && blasd_wanted_after(&done, 2 * shape->k); i++)
        for (int64_t d = 0; d < shape->k; d++) {
            double size = fabs(element(shape, points, i * shape->k + d) - centre[d]);
            if (size > largest && isfinite(size)) largest = size;
        }
    frexp(largest, &exponent);
    return exponent;
}

/* The mean of y, as far as it is finite; to `centre`, which is of k numbers. */
static void find_centre(const struct distance_problem *problem, double *centre) {
    const struct distance_shape *shape = problem->shape;
    int64_t done = 0;
    for (int64_t d = 0; d < shape->k; d++) centre[d] = 0;
    for (int64_t i = 0; i < shape->n && blasd_wanted_after(&done, 2 * shape->k); i++)
        for (int64_t d = 0; d < shape->k; d++)
            centre[d] += element(shape, problem->y, i * shape->k + d) / (double)shape->n;
    for (int64_t d = 0; d < shape->k; d++)
        if (!isfinite(centre[d])) centre[d] = 0;
}

void blasd_distance_product_load(struct distance_problem *problem) {
    const struct distance_shape *shape = problem->shape;
    struct distance_product *product = &problem->product;
    double *centre = product->centre, scale;
    int64_t k = shape->k, done = 0;
    int exponent, other;
    product->scale = 0;
    if (problem->scaled) return;
    find_centre(problem, centre);
    exponent = exponent_of(shape, problem->x, shape->m, centre);
    other = exponent_of(shape, problem->y, shape->n, centre);
    if (other > exponent) exponent = other;
    if (abs(exponent) > 400) return;
    scale = ldexp(1, -exponent);
    product->scale = scale * scale;
    for (int64_t i = 0; i < shape->m && blasd_wanted_after(&done, 4 * k); i++) {
        float *to = product->x + i * (k + 1);
        product->x_squares[i] = load_factor(shape, problem->x, i, centre, scale, to);
        for (int64_t d = 0; d < k; d++) to[d] *= -2;
        to[k] = 1;
    }
    for (int64_t j = 0; j < shape->n && blasd_wanted_after(&done, 4 * k); j++) {
        float *to = product->y + j * (k + 1);
        double *most = product->y_lengths + j / DISTANCE_PART;
        double square = load_factor(shape, problem->y, j, centre, scale, to);
        to[k] = (float)square;
        *most = fmax(j % DISTANCE_PART == 0 ? 0 : *most, sqrt(square));
    }
}
