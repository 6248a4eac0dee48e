/* The end of lasso and elastic_net with few coefficients: from where coordinate descent has come,
 * the equations of the coefficients in use are solved in double-double.
 *
 * Their matrix is that of the factor in double-double (qr_small.c). A pivot tells how many of its
 * digits are left; where they are too few, that is said. Read next: coordinate.c. */
#include "kernels/regression/regression.h"

#include "base/err.h"
#include "core/wanted.h"
#include "kernels/cpu/cpu.h"
#include "kernels/numeric/dd.h"

#include <math.h>
#include <stdlib.h>

#define COLUMNS BLASD_REGRESSION_POLISHED
/* Of a pivot beside its column's square: from here on all digits of a double are right; below the
 * second, none may be. */
#define SURE 0x1p-50
#define NOTHING 0x1p-95

struct normal {
    const struct regression_shape *shape;   /* borrowed */
    const struct regression_factor *factor; /* borrowed: shifts and exponents */
    struct dd *g;                           /* owned: q x (q + t), the upper part and targets */
    struct dd *b;                           /* owned: t x p, in the user's units */
};

/* One target, in the units of the matrix. An intercept is always in use and has no sign. */
struct active {
    const struct normal *normal; /* borrowed */
    int64_t target, used;
    bool unsure;                       /* rounding may have spoilt x */
    struct dd l1;                      /* of the user's coefficients, in the unit of y */
    double b[COLUMNS];                 /* where it stands */
    int sign[COLUMNS];                 /* 0: not in use */
    int64_t at[COLUMNS];               /* the columns in use */
    struct dd x[COLUMNS];              /* where their equations lead */
    struct dd m[COLUMNS][COLUMNS + 1]; /* room */
};

static struct dd product_of(const struct normal *normal, int64_t i, int64_t j) {
    int64_t all = normal->shape->q + normal->shape->t;
    return i <= j ? normal->g[i * all + j] : normal->g[j * all + i];
}

static bool is_free(const struct active *a, int64_t j) {
    return j < a->normal->shape->q - a->normal->shape->p;
}

static struct dd pull(const struct active *a, int64_t j) {
    return is_free(a, j) ? dd_from(0) : dd_shift(a->l1, -a->normal->factor->exponent[j]);
}

/* x of (G + l2) x = c - l1 sign for those in use. False: they depend on each other. */
static bool solve_used(struct active *a) {
    const struct normal *normal = a->normal;
    int64_t q = normal->shape->q, k = 0;
    for (int64_t j = 0; j < q; j++)
        if (is_free(a, j) || a->sign[j] != 0) a->at[k++] = j;
    a->used = k;
    a->unsure = false;
    for (int64_t i = 0; i < k; i++) {
        struct dd c = product_of(normal, a->at[i], q + a->target), l1 = pull(a, a->at[i]);
        for (int64_t j = 0; j < k; j++) a->m[i][j] = product_of(normal, a->at[i], a->at[j]);
        a->m[i][k] = dd_add(c, a->sign[a->at[i]] > 0 ? dd_negate(l1) : l1);
        if (is_free(a, a->at[i])) a->m[i][k] = c;
    }
    for (int64_t i = 0; i < k; i++) {
        double square = product_of(normal, a->at[i], a->at[i]).hi;
        a->unsure = a->unsure || !(a->m[i][i].hi > SURE * square);
        if (!(a->m[i][i].hi > NOTHING * square)) return false;
        for (int64_t l = i + 1; l < k; l++) {
            struct dd part = dd_divide(a->m[i][l], a->m[i][i]);
            for (int64_t j = l; j <= k; j++)
                a->m[l][j] = dd_subtract(a->m[l][j], dd_multiply(part, a->m[i][j]));
        }
    }
    for (int64_t i = k - 1; i >= 0; i--) {
        struct dd sum = a->m[i][k];
        for (int64_t j = i + 1; j < k; j++)
            sum = dd_subtract(sum, dd_multiply(a->m[i][j], a->x[j]));
        a->x[i] = dd_divide(sum, a->m[i][i]);
    }
    return true;
}

/* Goes from b towards x as far as no sign changes; false where that is not all the way. */
static bool go_there(struct active *a) {
    double far = 1;
    int64_t first = -1;
    for (int64_t i = 0; i < a->used; i++) {
        int64_t j = a->at[i];
        double x = a->x[i].hi, part = a->b[j] / (a->b[j] - x);
        if (is_free(a, j) || x * a->sign[j] > 0 || part >= far) continue;
        far = part;
        first = j;
    }
    for (int64_t i = 0; i < a->used; i++) {
        double *b = &a->b[a->at[i]];
        *b = first < 0 ? a->x[i].hi : *b + far * (a->x[i].hi - *b);
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
        struct dd slope = product_of(normal, j, q + a->target);
        double ratio;
        if (is_free(a, j) || a->sign[j] != 0) continue;
        for (int64_t i = 0; i < a->used; i++)
            slope = dd_subtract(slope, dd_multiply(product_of(normal, j, a->at[i]), a->x[i]));
        ratio = fabs(slope.hi) / pull(a, j).hi;
        if (!(ratio > most)) continue;
        most = ratio;
        best = j;
        sign = slope.hi > 0 ? 1 : -1;
    }
    if (best >= 0) a->sign[best] = sign;
    return best >= 0;
}

/* From coefficients in fit->coef to those that are least, by equations of the ones in use. Each
 * turn lowers the objective; if rounding prevents an end, the coefficients stay as they were. */
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
                b[a->at[i] - first] = dd_shift(a->x[i], e[q + a->target] - e[a->at[i]]);
        return true;
    }
    return false;
}

int blasd_regression_polish(const struct regression_shape *shape,
                            const struct regression_data *data,
                            const struct regression_small *small,
                            const struct regression_factor *factor, const int *far,
                            struct regression_fit *fit, struct blasd_err *err) {
    int64_t p = shape->p, q = shape->q, t = shape->t, first = q - p;
    struct dd ratio = dd_from(shape->method == METHOD_LASSO ? 1 : shape->l1_ratio);
    struct dd all = dd_multiply(dd_from(shape->alpha), dd_from(data->total));
    struct dd l1 = dd_multiply(all, ratio), l2 = dd_subtract(all, l1);
    struct active *a = blasd_cpu_alloc(1, sizeof *a);
    struct normal normal = {.shape = shape, .factor = factor};
    bool got;
    normal.g = blasd_cpu_alloc((size_t)q * (size_t)(q + t), sizeof *normal.g);
    normal.b = blasd_cpu_alloc((size_t)p * (size_t)t, sizeof *normal.b);
    got = a != NULL && normal.g != NULL && normal.b != NULL;
    if (got) blasd_regression_small_gram(small, normal.g);
    for (int64_t j = first; got && j < q; j++) {
        struct dd *square = normal.g + j * (q + t) + j;
        *square = dd_add(*square, dd_shift(l2, -2 * factor->exponent[j]));
    }
    for (int64_t l = 0; got && l < t; l++) {
        struct dd *b = normal.b + l * p;
        double *coef = fit->coef + l * q + first;
        a->normal = &normal;
        a->target = l;
        a->l1 = dd_shift(l1, -factor->exponent[q + l] - far[l]);
        if (!polish(a, fit, b))
            for (int64_t j = 0; j < p; j++) b[j] = dd_from(coef[j]);
        for (int64_t j = 0; j < p; j++) coef[j] = dd_round(b[j]);
        fit->unsure = fit->unsure || a->unsure;
    }
    if (got) blasd_regression_residuals_of(shape, data, normal.b, fit);
    free(normal.g);
    free(normal.b);
    free(a);
    return got ? 0 : blasd_fail(err, BLASD_E_out_of_memory, "", "no memory for the factors");
}
