/* Penalised fits by their normal equations with 62 digits to work in, straight from the data: ridge
 * of small problems, and of those whose condition asks for it; lasso and elastic_net of small ones,
 * from where coordinate descent has come.
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
#define QUAD_COLUMNS BLASD_REGRESSION_QUAD_SMALL
#define PRODUCT 50 /* operations for one in the matrix, about; for one of quads: */
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

/* [1 X]'W[1 X y] and l2 of the user's coefficients. False: stopped. */
static bool multiply(struct normal *normal, const struct regression_data *data, struct quad l2,
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
            row[i] = quad_add(row[i], quad_shift(l2, -2 * normal->factor->exponent[i]));
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
        got = multiply(&normal, data, quad_from(shape->alpha), progress) &&
              eliminate(&normal, &fit->unsure, progress);
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

/* ---- lasso and elastic_net ---- */

/* One target, in the units of the matrix. An intercept is always in use and has no sign. */
struct active {
    const struct normal *normal; /* borrowed */
    int64_t target, used;
    struct quad l1;              /* of the user's coefficients, in the unit of y */
    double b[QUAD_COLUMNS];      /* where it stands */
    int sign[QUAD_COLUMNS];      /* 0: not in use */
    int64_t at[QUAD_COLUMNS];    /* the columns in use */
    struct quad x[QUAD_COLUMNS]; /* where their equations lead */
    struct quad m[QUAD_COLUMNS][QUAD_COLUMNS + 1]; /* room */
};

static struct quad product_of(const struct normal *normal, int64_t i, int64_t j) {
    int64_t all = normal->shape->q + normal->shape->t;
    return i <= j ? normal->g[i * all + j] : normal->g[j * all + i];
}

static bool is_free(const struct active *a, int64_t j) {
    return j < a->normal->shape->q - a->normal->shape->p;
}

static struct quad pull(const struct active *a, int64_t j) {
    return is_free(a, j) ? quad_from(0) : quad_shift(a->l1, -a->normal->factor->exponent[j]);
}

/* x of (G + l2) x = c - l1 sign for those in use. False: they depend on each other. */
static bool solve_used(struct active *a) {
    const struct normal *normal = a->normal;
    int64_t q = normal->shape->q, k = 0;
    for (int64_t j = 0; j < q; j++)
        if (is_free(a, j) || a->sign[j] != 0) a->at[k++] = j;
    a->used = k;
    for (int64_t i = 0; i < k; i++) {
        struct quad c = product_of(normal, a->at[i], q + a->target), l1 = pull(a, a->at[i]);
        for (int64_t j = 0; j < k; j++) a->m[i][j] = product_of(normal, a->at[i], a->at[j]);
        a->m[i][k] = quad_add(c, a->sign[a->at[i]] > 0 ? quad_negate(l1) : l1);
        if (is_free(a, a->at[i])) a->m[i][k] = c;
    }
    for (int64_t i = 0; i < k; i++) {
        double square = product_of(normal, a->at[i], a->at[i]).c[0];
        if (!(a->m[i][i].c[0] > UNSURE * square)) return false;
        for (int64_t l = i + 1; l < k; l++) {
            struct quad part = quad_divide(a->m[i][l], a->m[i][i]);
            for (int64_t j = l; j <= k; j++)
                a->m[l][j] = quad_subtract(a->m[l][j], quad_multiply(part, a->m[i][j]));
        }
    }
    for (int64_t i = k - 1; i >= 0; i--) {
        struct quad sum = a->m[i][k];
        for (int64_t j = i + 1; j < k; j++)
            sum = quad_subtract(sum, quad_multiply(a->m[i][j], a->x[j]));
        a->x[i] = quad_divide(sum, a->m[i][i]);
    }
    return true;
}

/* Goes from b towards x as far as no sign changes; false where that is not all the way. */
static bool go_there(struct active *a) {
    double far = 1;
    int64_t first = -1;
    for (int64_t i = 0; i < a->used; i++) {
        int64_t j = a->at[i];
        double x = a->x[i].c[0], part = a->b[j] / (a->b[j] - x);
        if (is_free(a, j) || x * a->sign[j] > 0 || part >= far) continue;
        far = part;
        first = j;
    }
    for (int64_t i = 0; i < a->used; i++) {
        double *b = &a->b[a->at[i]];
        *b = first < 0 ? a->x[i].c[0] : *b + far * (a->x[i].c[0] - *b);
    }
    if (first < 0) return true;
    a->b[first] = a->sign[first] = 0;
    return false;
}

/* Takes into use the column that the residuals pull most, where one is pulled more than l1 allows.
 */
static bool take_another(struct active *a) {
    const struct normal *normal = a->normal;
    int64_t q = normal->shape->q, best = -1;
    double most = 1 + 1e-12;
    int sign = 0;
    for (int64_t j = 0; j < q; j++) {
        struct quad slope = product_of(normal, j, q + a->target);
        double ratio;
        if (is_free(a, j) || a->sign[j] != 0) continue;
        for (int64_t i = 0; i < a->used; i++)
            slope = quad_subtract(slope, quad_multiply(product_of(normal, j, a->at[i]), a->x[i]));
        ratio = fabs(slope.c[0]) / pull(a, j).c[0];
        if (!(ratio > most)) continue;
        most = ratio;
        best = j;
        sign = slope.c[0] > 0 ? 1 : -1;
    }
    if (best >= 0) a->sign[best] = sign;
    return best >= 0;
}

/* From coefficients in fit->coef to those that are least, by equations of the ones in use. Each
 * turn lowers the objective; where rounding keeps it from an end it stays with what it was given.
 */
static bool polish(struct active *a, const struct regression_fit *fit, struct dd *b) {
    const struct normal *normal = a->normal;
    const int *e = normal->factor->exponent;
    int64_t q = normal->shape->q, first = q - normal->shape->p;
    for (int64_t j = 0; j < q; j++) {
        a->b[j] = ldexp(fit->coef[a->target * q + j], e[j] - e[q + a->target]);
        a->sign[j] = j < first ? 0 : (a->b[j] > 0) - (a->b[j] < 0);
    }
    for (int64_t turn = 0; turn < 4 * q + 20 && blasd_wanted(); turn++) {
        if (!solve_used(a)) return false;
        if (!go_there(a) || take_another(a)) continue;
        for (int64_t j = 0; j < q - first; j++) b[j] = dd_from(0);
        for (int64_t i = 0; i < a->used; i++)
            if (a->at[i] >= first)
                b[a->at[i] - first] = dd_shift(quad_round(a->x[i]), e[q + a->target] - e[a->at[i]]);
        return true;
    }
    return false;
}

static void polish_all(struct normal *normal, const struct regression_fit *fit, struct quad l1,
                       const int *far, struct active *a) {
    const struct regression_shape *shape = normal->shape;
    int64_t p = shape->p, first = shape->q - p;
    for (int64_t l = 0; l < shape->t; l++) {
        struct dd *b = normal->b + l * p;
        a->normal = normal;
        a->target = l;
        a->l1 = quad_shift(l1, -normal->factor->exponent[shape->q + l] - far[l]);
        if (!polish(a, fit, b))
            for (int64_t j = 0; j < p; j++) b[j] = dd_from(fit->coef[l * shape->q + first + j]);
        for (int64_t j = 0; j < p; j++) fit->coef[l * shape->q + first + j] = dd_round(b[j]);
    }
}

int blasd_regression_sparse_quad(const struct regression_shape *shape,
                                 const struct regression_data *data,
                                 struct regression_factor *factor, const int *far,
                                 struct regression_fit *fit, struct blasd_cpu_progress *progress,
                                 struct blasd_err *err) {
    struct quad ratio = quad_from(shape->method == METHOD_LASSO ? 1 : shape->l1_ratio);
    struct quad all = quad_multiply(quad_from(shape->alpha), quad_from(data->total));
    struct quad l2 = quad_multiply(all, quad_subtract(quad_from(1), ratio));
    struct active *a = blasd_cpu_alloc(1, sizeof *a);
    struct normal normal;
    bool got = normal_init(&normal, shape) && a != NULL;
    normal.factor = factor;
    if (got) {
        blasd_regression_settle(shape, data, factor);
        load(&normal, data);
        got = multiply(&normal, data, l2, progress);
    }
    if (got) {
        polish_all(&normal, fit, quad_multiply(all, ratio), far, a);
        blasd_regression_residuals_of(shape, data, normal.b, fit);
    }
    normal_release(&normal);
    free(a);
    if (got) return 0;
    return blasd_wanted() ? blasd_fail(err, BLASD_E_out_of_memory, "", "no memory for the factors")
                          : blasd_cpu_stopped(err);
}
