/* ridge by its normal equations with 62 digits to work in, straight from the data: for small
 * problems, and for those whose condition asks for it.
 *
 * The matrix [1 X]'W[1 X] is right to all of these digits, for products of doubles are exact, and
 * its condition is that of the problem squared. That takes in every one that a penalty can have
 * beside features of doubles: such as depend on each other, are more than the observations, or
 * differ in size by 1e15. Columns are shifted and scaled, which rounds nothing. Uses no library.
 * Read next: penalised.c, for what is large. */
#include "kernels/regression/regression.h"

#include "base/err.h"
#include "core/wanted.h"
#include "kernels/cpu/cpu.h"
#include "kernels/numeric/quad_double.h"

#include <math.h>
#include <stdlib.h>

enum { LANES = 8 };
#define UNSURE 0x1p-150 /* of a pivot beside its column's square: 50 of 200 bits are left then */
#define PRODUCT 50      /* operations for one in the matrix, about; for one of quads: */
#define QUAD_PRODUCT 400

struct normal {
    const struct regression_shape *shape;   /* borrowed */
    const struct regression_factor *factor; /* borrowed: shifts and exponents */
    int64_t stride;                         /* n in whole blocks */
    double *columns;                        /* owned: q + t of `stride` */
    double *hi, *lo;                        /* owned: a column times the weights */
    double *square;                         /* owned: q, the matrix's diagonal */
    struct quad *g;                         /* owned: q x (q + t), the upper part and targets */
    struct dd *b;                           /* owned: t x p, in the user's units */
};

static void normal_release(struct normal *normal) {
    free(normal->columns);
    free(normal->hi);
    free(normal->lo);
    free(normal->square);
    free(normal->g);
    free(normal->b);
}

static bool normal_init(struct normal *normal, const struct regression_shape *shape) {
    size_t q = (size_t)shape->q, t = (size_t)shape->t;
    size_t stride = (size_t)((shape->n + LANES - 1) / LANES * LANES);
    *normal = (struct normal){.shape = shape, .stride = (int64_t)stride};
    normal->columns = blasd_cpu_alloc(stride * (q + t), sizeof(double));
    normal->hi = blasd_cpu_alloc(stride, sizeof(double));
    normal->lo = blasd_cpu_alloc(stride, sizeof(double));
    normal->square = blasd_cpu_alloc(q, sizeof(double));
    normal->g = blasd_cpu_alloc(q * (q + t), sizeof(struct quad));
    normal->b = blasd_cpu_alloc((size_t)shape->p * t, sizeof(struct dd));
    return normal->columns != NULL && normal->hi != NULL && normal->lo != NULL &&
           normal->square != NULL && normal->g != NULL && normal->b != NULL;
}

/* n elements `step` apart (NULL: ones), shifted and scaled. */
static void load_column(struct normal *normal, int64_t j, const double *from, int64_t step) {
    double *to = normal->columns + j * normal->stride, shift = normal->factor->shift[j];
    int exponent = normal->factor->exponent[j];
    int64_t n = normal->shape->n;
    for (int64_t i = 0; i < n; i++)
        to[i] = from == NULL ? 1 : ldexp(from[i * step] - shift, -exponent);
    for (int64_t i = n; i < normal->stride; i++) to[i] = 0;
}

static void load(struct normal *normal, const struct regression_data *data) {
    const struct regression_shape *shape = normal->shape;
    int64_t first = shape->q - shape->p;
    if (first == 1) load_column(normal, 0, NULL, 0);
    for (int64_t j = 0; j < shape->p; j++) load_column(normal, first + j, data->x + j, shape->p);
    for (int64_t l = 0; l < shape->t; l++) load_column(normal, shape->q + l, data->y + l, shape->t);
}

/* Column j times the weights, exactly. */
static void weigh(struct normal *normal, const struct regression_data *data, int64_t j) {
    const double *column = normal->columns + j * normal->stride;
    for (int64_t i = 0; i < normal->stride; i++) {
        struct dd part = dd_from(column[i]);
        if (data->w != NULL && i < normal->shape->n) part = dd_two_product(column[i], data->w[i]);
        normal->hi[i] = part.hi;
        normal->lo[i] = part.lo;
    }
}

/* Adds a lane's number to its sum. */
#define TAKE(number)                                                                               \
    do {                                                                                           \
        double rest_ = (number);                                                                   \
        for (int k_ = 0; k_ < 3; k_++) {                                                           \
            struct dd next_ = dd_two_sum(sums[k_][l], rest_);                                      \
            sums[k_][l] = next_.hi;                                                                \
            rest_ = next_.lo;                                                                      \
        }                                                                                          \
        sums[3][l] += rest_;                                                                       \
    } while (0)

/* Sum of (hi + lo) x, without rounding but in the last of four doubles; lo NULL: 0. */
DD_CLONES
static struct quad product(const double *hi, const double *lo, const double *x, int64_t n) {
    double sums[4][LANES] = {{0}};
    struct quad sum = {{0, 0, 0, 0}};
    for (int64_t i = 0; i < n; i += LANES) {
        for (int l = 0; l < LANES; l++) {
            struct dd part = dd_two_product(hi[i + l], x[i + l]);
            TAKE(part.hi);
            TAKE(part.lo);
        }
        for (int l = 0; lo != NULL && l < LANES; l++) {
            struct dd part = dd_two_product(lo[i + l], x[i + l]);
            TAKE(part.hi);
            TAKE(part.lo);
        }
    }
    for (int k = 0; k < 4; k++)
        for (int l = 0; l < LANES; l++) quad_take(&sum, sums[k][l]);
    return quad_settle(sum);
}

/* [1 X]'W[1 X y] and the penalty. False: stopped. */
static bool multiply(struct normal *normal, const struct regression_data *data,
                     struct blasd_cpu_progress *progress) {
    const struct regression_shape *shape = normal->shape;
    int64_t q = shape->q, all = q + shape->t, done = 0, stride = normal->stride;
    for (int64_t i = 0; i < q; i++) {
        struct quad *row = normal->g + i * all;
        weigh(normal, data, i);
        for (int64_t j = i; j < all && blasd_wanted_after(&done, PRODUCT * stride); j++)
            row[j] = product(normal->hi, data->w == NULL ? NULL : normal->lo,
                             normal->columns + j * stride, stride);
        if (i >= q - shape->p)
            row[i] =
                quad_add(row[i], quad_from(ldexp(shape->alpha, -2 * normal->factor->exponent[i])));
        if (!blasd_cpu_step(progress, PRODUCT * (double)stride * (double)(all - i))) return false;
    }
    return true;
}

/* U'DU of the matrix, U on the targets too; a pivot that is 0 leaves its row 0. False: stopped. */
static bool eliminate(struct normal *normal, bool *unsure, struct blasd_cpu_progress *progress) {
    int64_t q = normal->shape->q, all = q + normal->shape->t, done = 0;
    for (int64_t k = 0; k < q; k++) normal->square[k] = normal->g[k * all + k].c[0];
    for (int64_t k = 0; k < q; k++) {
        struct quad *row = normal->g + k * all, *pivot = row + k;
        if (!(pivot->c[0] > UNSURE * normal->square[k])) {
            *pivot = quad_from(0);
            if (normal->square[k] > 0) *unsure = true;
        }
        for (int64_t i = k + 1; i < q && pivot->c[0] > 0; i++) {
            struct quad *other = normal->g + i * all, part;
            if (row[i].c[0] == 0) continue;
            part = quad_divide(row[i], *pivot);
            for (int64_t j = i; j < all && blasd_wanted_after(&done, QUAD_PRODUCT); j++)
                other[j] = quad_subtract(other[j], quad_multiply(part, row[j]));
        }
        if (!blasd_cpu_step(progress, QUAD_PRODUCT * (double)(q - k) *
                                          ((double)(q - k) / 2 + (double)(all - q))))
            return false;
    }
    return true;
}

/* Coefficients of one target, from the triangle. */
static void solve(struct normal *normal, int64_t target) {
    const struct regression_shape *shape = normal->shape;
    int64_t q = shape->q, p = shape->p, all = q + shape->t, first = q - p, done = 0;
    const int *e = normal->factor->exponent;
    for (int64_t k = q - 1; k >= 0; k--) {
        struct quad *row = normal->g + k * all, sum = row[q + target];
        for (int64_t j = k + 1; j < q && blasd_wanted_after(&done, QUAD_PRODUCT); j++)
            sum = quad_subtract(sum, quad_multiply(row[j], normal->g[j * all + q + target]));
        row[q + target] = row[k].c[0] > 0 ? quad_divide(sum, row[k]) : quad_from(0);
        if (k >= first)
            normal->b[target * p + k - first] =
                dd_shift(quad_round(row[q + target]), e[q + target] - e[k]);
    }
}

int blasd_regression_ridge_quad(const struct regression_shape *shape,
                                const struct regression_data *data,
                                struct regression_factor *factor, struct regression_fit *fit,
                                struct blasd_cpu_progress *progress, struct blasd_err *err) {
    int64_t p = shape->p, t = shape->t, first = shape->q - p;
    struct normal normal;
    bool got = normal_init(&normal, shape);
    normal.factor = factor;
    fit->unsure = false;
    if (got) {
        blasd_regression_settle(shape, data, factor);
        load(&normal, data);
        got = multiply(&normal, data, progress) && eliminate(&normal, &fit->unsure, progress);
    }
    for (int64_t l = 0; got && l < t; l++) {
        solve(&normal, l);
        for (int64_t j = 0; j < p; j++)
            fit->coef[l * shape->q + first + j] = dd_round(normal.b[l * p + j]);
    }
    if (got) blasd_regression_residuals_of(shape, data, normal.b, fit);
    normal_release(&normal);
    if (got) return 0;
    return blasd_wanted() ? blasd_fail(err, BLASD_E_out_of_memory, "", "no memory for the factors")
                          : blasd_cpu_stopped(err);
}
