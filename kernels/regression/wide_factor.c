/* The factor of a problem with more coefficients than observations: the data themselves, weighted,
 * and turned by one Householder reflection that takes the column of the intercept to the first
 * row. That row then holds the means, the others the data less their means, and there are as many
 * rows as observations, so the rank cannot be more. All of it in double-double: what is rounded
 * are the results alone, however far the means are from 0. Read next: factor.c. */
#include "kernels/regression/regression.h"

#include "base/err.h"
#include "core/wanted.h"
#include "kernels/cpu/cpu.h"
#include "kernels/numeric/dd.h"

#include <stdlib.h>

/* The column of the intercept: roots of the weights, its length, and that plus its first root. */
struct ones {
    double *root; /* owned: n */
    struct dd length, beside;
};

static bool ones_init(struct ones *ones, const struct regression_shape *shape,
                      const struct regression_data *data) {
    struct dd squares = {0, 0};
    ones->root = blasd_cpu_alloc((size_t)shape->n, sizeof(double));
    for (int64_t i = 0; ones->root != NULL && i < shape->n; i++) {
        ones->root[i] = data->w == NULL ? 1 : sqrt(data->w[i]);
        squares = dd_add(squares, dd_two_product(ones->root[i], ones->root[i]));
    }
    ones->length = dd_sqrt(squares);
    ones->beside = ones->root == NULL ? squares : dd_add(ones->length, dd_from(ones->root[0]));
    return ones->root != NULL;
}

/* One column: n numbers `step` apart to n numbers `width` apart. */
static void turn_column(const struct regression_shape *shape, const struct ones *ones,
                        const double *from, int64_t step, double shift, int exponent, double *to,
                        int64_t width) {
    const double *root = ones->root;
    struct dd along = {0, 0}, part = {0, 0}, start = {0, 0};
    for (int64_t i = 0; shape->intercept && i < shape->n; i++) {
        double x = ldexp(from[i * step] - shift, -exponent);
        struct dd weighted = dd_two_product(root[i], x);
        if (i == 0) start = weighted;
        along = dd_add(along, dd_scale(weighted, root[i]));
    }
    if (shape->intercept) {
        along = dd_divide(along, ones->length);
        part = dd_divide(dd_add(along, start), ones->beside);
    }
    for (int64_t i = 0; i < shape->n; i++) {
        struct dd x = dd_from(ldexp(from[i * step] - shift, -exponent));
        to[i * width] = dd_round(dd_scale(dd_subtract(x, part), root[i]));
    }
    if (shape->intercept) to[0] = dd_round(along);
}

int blasd_regression_wide_factor(const struct regression_shape *shape,
                                 const struct regression_data *data,
                                 struct regression_factor *factor, struct blasd_err *err) {
    int64_t skip = shape->intercept ? 1 : 0, q = shape->q, t = shape->t, done = 0;
    struct ones ones;
    if (!ones_init(&ones, shape, data))
        return blasd_fail(err, BLASD_E_out_of_memory, "", "no memory for the factor");
    blasd_regression_settle(shape, data, factor);
    factor->rows = shape->n;
    factor->triangle = false;
    factor->noise = 0;
    for (int64_t i = 0; skip == 1 && i < shape->n; i++)
        factor->r[i * q] = i == 0 ? dd_round(ones.length) : 0;
    for (int64_t j = skip; j < q && blasd_wanted_after(&done, 60 * shape->n); j++)
        turn_column(shape, &ones, data->x + j - skip, shape->p, factor->shift[j],
                    factor->exponent[j], factor->r + j, q);
    for (int64_t l = 0; l < t && blasd_wanted_after(&done, 60 * shape->n); l++) {
        turn_column(shape, &ones, data->y + l, t, factor->shift[q + l], factor->exponent[q + l],
                    factor->z + l, t);
        factor->rest[l] = 0;
    }
    free(ones.root);
    return 0;
}
