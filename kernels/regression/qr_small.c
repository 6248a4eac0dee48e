/* Least squares in double-double arithmetic: modified Gram-Schmidt on the columns of [1 X y].
 *
 * With 31 digits to work in, what the data say is computed to the last bit of a double for every
 * condition number that doubles can express, and so is everything derived from the factors:
 * standard errors too, which refinement of coefficients alone would leave behind.
 *
 * Columns are shifted and scaled, which rounds nothing (blasd_regression_settle). [1 X] = V U with
 * V orthogonal (columns of squared length d) and U unit upper triangular; y = V c + residual. Below
 * the observations of ridge lie rows of the penalty's root, one a feature. */
#include "kernels/regression/regression.h"

#include "core/wanted.h"
#include "kernels/cpu/cpu.h"
#include "kernels/numeric/dd.h"

#include <stdlib.h>
#include <string.h>

enum { LANES = 16 }; /* rows come in blocks, the last one filled up with zeros */

/* A column orthogonal to this part of its own length depends on those before it. */
#define DEPENDENT 0x1p-90

/* The unit of rounding, with what products and sums make of it, which in fact is a hundredth or
 * less; how much of a coefficient it may be; and, of a coefficient of exactly 0, what is no part of
 * a target, beside the largest of its parts |x_k b_k|. */
#define UNIT 0x1p-104
#define RIGHT 0x1p-44
#define NO_PART 0x1p-88

/* Operations that a product and a subtraction of two columns count for, an element. */
#define STEP_WORK 30.0

struct regression_small {
    const struct regression_shape *shape;  /* borrowed */
    int64_t body;                          /* n rounded up to whole blocks */
    int64_t stride;                        /* and of ridge the penalty's rows */
    struct dd penalty;                     /* the root of ridge's */
    double *hi, *lo;                       /* owned: q + t columns of `stride` */
    struct dd *root;                       /* owned: n square roots of weights */
    struct dd *u;                          /* owned: q x q, row-major */
    struct dd *d;                          /* owned: q */
    struct dd *c;                          /* owned: q x t, row-major */
    struct dd *b;                          /* owned: q */
    struct dd *inverse;                    /* owned: q x q, row-major: of U */
    const struct regression_factor *units; /* borrowed: shifts and exponents of the columns */
};

static int64_t in_blocks(int64_t rows) {
    return (rows + LANES - 1) / LANES * LANES;
}

static bool has_penalty(const struct regression_shape *shape) {
    return shape->method == METHOD_RIDGE && shape->alpha > 0;
}

void blasd_regression_small_free(struct regression_small *small) {
    if (small == NULL) return;
    free(small->hi);
    free(small->lo);
    free(small->root);
    free(small->u);
    free(small->d);
    free(small->c);
    free(small->b);
    free(small->inverse);
    free(small);
}

struct regression_small *blasd_regression_small_new(const struct regression_shape *shape) {
    struct regression_small *small = calloc(1, sizeof *small);
    size_t q = (size_t)shape->q, t = (size_t)shape->t, rows;
    if (small == NULL) return NULL;
    blasd_regression_small_next(small, shape);
    rows = (size_t)(small->body + (shape->method == METHOD_OLS ? 0 : in_blocks(shape->p)));
    small->hi = blasd_cpu_alloc(rows * (q + t), sizeof(double));
    small->lo = blasd_cpu_alloc(rows * (q + t), sizeof(double));
    small->root = blasd_cpu_alloc(rows, sizeof(struct dd));
    small->u = blasd_cpu_alloc(q * q, sizeof(struct dd));
    small->d = blasd_cpu_alloc(q, sizeof(struct dd));
    small->c = blasd_cpu_alloc(q * t, sizeof(struct dd));
    small->b = blasd_cpu_alloc(q, sizeof(struct dd));
    small->inverse = blasd_cpu_alloc(q * q, sizeof(struct dd));
    if (small->hi != NULL && small->lo != NULL && small->root != NULL && small->u != NULL &&
        small->d != NULL && small->c != NULL && small->b != NULL && small->inverse != NULL)
        return small;
    blasd_regression_small_free(small);
    return NULL;
}

void blasd_regression_small_next(struct regression_small *small,
                                 const struct regression_shape *shape) {
    small->shape = shape;
    small->body = in_blocks(shape->n);
    small->stride = small->body + (has_penalty(shape) ? in_blocks(shape->p) : 0);
}

/* Adds lanes [half, 2 half) to those below: a tree of sums waits for few of them. */
DD_INLINE void add_half(double *hi, double *lo, int half) {
    for (int l = 0; l < half; l++) {
        struct dd sum = dd_add((struct dd){hi[l], lo[l]}, (struct dd){hi[l + half], lo[l + half]});
        hi[l] = sum.hi;
        lo[l] = sum.lo;
    }
}

DD_CLONES
static struct dd dot(const double *a_hi, const double *a_lo, const double *b_hi, const double *b_lo,
                     int64_t n) {
    double hi[LANES] = {0}, lo[LANES] = {0};
    for (int64_t i = 0; i < n; i += LANES) {
        for (int l = 0; l < LANES; l++) {
            struct dd a = {a_hi[i + l], a_lo[i + l]}, b = {b_hi[i + l], b_lo[i + l]};
            struct dd next = dd_add((struct dd){hi[l], lo[l]}, dd_multiply(a, b));
            hi[l] = next.hi;
            lo[l] = next.lo;
        }
    }
    add_half(hi, lo, 8);
    add_half(hi, lo, 4);
    add_half(hi, lo, 2);
    add_half(hi, lo, 1);
    return (struct dd){hi[0], lo[0]};
}

/* b -= factor * a */
DD_CLONES
static void subtract_multiple(struct dd factor, const double *a_hi, const double *a_lo,
                              double *b_hi, double *b_lo, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        struct dd a = {a_hi[i], a_lo[i]};
        struct dd next = dd_subtract((struct dd){b_hi[i], b_lo[i]}, dd_multiply(factor, a));
        b_hi[i] = next.hi;
        b_lo[i] = next.lo;
    }
}

static double *column_hi(const struct regression_small *small, int64_t j) {
    return small->hi + j * small->stride;
}
static double *column_lo(const struct regression_small *small, int64_t j) {
    return small->lo + j * small->stride;
}

/* Fills column `j` from n elements `step` apart (NULL: ones), shifted, scaled and weighted. */
static void load_column(struct regression_small *small, int64_t j, const double *from, int64_t step,
                        bool weighted) {
    int64_t n = small->shape->n;
    double *hi = column_hi(small, j), *lo = column_lo(small, j), shift = small->units->shift[j];
    int exponent = small->units->exponent[j];
    bool plain = exponent > -1000 && exponent < 1000; /* the power of two is a number */
    double scale = plain ? ldexp(1, -exponent) : 1;
    for (int64_t i = 0; i < n; i++) {
        double x = from == NULL ? 1 : from[i * step] - shift;
        struct dd scaled = dd_from(plain ? x * scale : ldexp(x, -exponent));
        if (weighted) scaled = dd_scale(small->root[i], scaled.hi);
        hi[i] = scaled.hi;
        lo[i] = scaled.lo;
    }
    for (int64_t i = n; i < small->stride; i++) hi[i] = lo[i] = 0;
    if (small->stride > small->body && from != NULL && j < small->shape->q) {
        struct dd root = dd_shift(small->penalty, -exponent);
        hi[small->body + j - (small->shape->q - small->shape->p)] = root.hi;
        lo[small->body + j - (small->shape->q - small->shape->p)] = root.lo;
    }
}

static void load(struct regression_small *small, const struct regression_data *data) {
    const struct regression_shape *shape = small->shape;
    int64_t first = shape->intercept ? 1 : 0;
    bool weighted = data->w != NULL;
    small->penalty = dd_sqrt(dd_from(shape->alpha));
    for (int64_t i = 0; weighted && i < shape->n; i++)
        small->root[i] = dd_sqrt(dd_from(data->w[i]));
    if (shape->intercept) load_column(small, 0, NULL, 0, weighted);
    for (int64_t j = 0; j < shape->p; j++)
        load_column(small, first + j, data->x + j, shape->p, weighted);
    for (int64_t j = 0; j < shape->t; j++)
        load_column(small, shape->q + j, data->y + j, shape->t, weighted);
}

static struct dd squares(const struct regression_small *small, int64_t j) {
    return dot(column_hi(small, j), column_lo(small, j), column_hi(small, j), column_lo(small, j),
               small->stride);
}

/* The sum of squares of target `j`'s residuals in the units of y. */
static double target_squares(const struct regression_small *small, int64_t j) {
    const double *hi = column_hi(small, small->shape->q + j);
    const double *lo = column_lo(small, small->shape->q + j);
    return ldexp(dd_round(dot(hi, lo, hi, lo, small->body)),
                 2 * small->units->exponent[small->shape->q + j]);
}

/* [1 X] = V U, y = V c + residual; the columns become V and the residuals. False: stopped. */
static bool orthogonalise(struct regression_small *small, struct blasd_cpu_progress *progress) {
    int64_t q = small->shape->q, t = small->shape->t;
    double pair = STEP_WORK * (double)small->stride;
    int64_t work = 30 * small->stride, done = 0;
    for (int64_t j = 0; j < q; j++) /* squared lengths before anything is taken away */
        small->b[j] = squares(small, j);
    for (int64_t j = 0; j < q; j++) {
        const double *hi = column_hi(small, j), *lo = column_lo(small, j);
        bool dependent;
        small->d[j] = squares(small, j);
        dependent = !(small->d[j].hi > DEPENDENT * DEPENDENT * small->b[j].hi);
        if (dependent) small->d[j] = dd_from(0);
        for (int64_t l = 0; l <= j; l++) small->u[j * q + l] = dd_from(l == j);
        for (int64_t l = j + 1; l < q + t && blasd_wanted_after(&done, work); l++) {
            struct dd part = {0, 0};
            if (!dependent) {
                part =
                    dd_divide(dot(hi, lo, column_hi(small, l), column_lo(small, l), small->stride),
                              small->d[j]);
                subtract_multiple(part, hi, lo, column_hi(small, l), column_lo(small, l),
                                  small->stride);
            }
            if (l < q)
                small->u[j * q + l] = part;
            else
                small->c[j * t + l - q] = part;
        }
        if (!blasd_cpu_step(progress, pair * (double)(q + t - j))) return false;
    }
    return true;
}

int blasd_regression_small_factor(struct regression_small *small,
                                  const struct regression_data *data,
                                  struct regression_factor *factor,
                                  struct blasd_cpu_progress *progress, struct blasd_err *err) {
    int64_t q = small->shape->q, t = small->shape->t;
    small->units = factor;
    blasd_regression_settle(small->shape, data, factor);
    load(small, data);
    if (!orthogonalise(small, progress)) return blasd_cpu_stopped(err);
    factor->rows = q;
    factor->triangle = true;
    factor->noise = 0;
    for (int64_t j = 0; j < q; j++) {
        struct dd length = dd_sqrt(small->d[j]);
        for (int64_t l = 0; l < q; l++)
            factor->r[j * q + l] = l < j ? 0 : dd_round(dd_multiply(length, small->u[j * q + l]));
        for (int64_t l = 0; l < t; l++)
            factor->z[j * t + l] = dd_round(dd_multiply(length, small->c[j * t + l]));
    }
    for (int64_t j = 0; j < t; j++) factor->rest[j] = target_squares(small, j);
    return 0;
}

/* Residuals of one target where observations have no weight: V has nothing of them. */
static void take_unweighted(const struct regression_small *small,
                            const struct regression_data *data, int64_t target,
                            struct regression_fit *fit) {
    const struct regression_shape *shape = small->shape;
    const struct regression_factor *units = small->units;
    int64_t q = shape->q, first = q - shape->p;
    for (int64_t i = 0; i < shape->n; i++) {
        const double *x = data->x + i * shape->p;
        double y = data->y[i * shape->t + target] - units->shift[q + target];
        struct dd r = dd_from(ldexp(y, -units->exponent[q + target]));
        if (data->w[i] != 0) continue;
        if (first == 1) r = dd_subtract(r, small->b[0]);
        for (int64_t j = first; j < q; j++)
            r = dd_subtract(r, dd_scale(small->b[j], ldexp(x[j - first] - units->shift[j],
                                                           -units->exponent[j])));
        fit->residual[target * shape->n + i] = ldexp(dd_round(r), units->exponent[q + target]);
    }
}

/* Coefficients by back substitution: U b = c, then out of the scaling. */
static void solve(struct regression_small *small, const struct regression_data *data,
                  struct regression_fit *fit) {
    int64_t q = small->shape->q, t = small->shape->t, done = 0;
    for (int64_t target = 0; target < t && blasd_wanted_after(&done, 10 * q * q); target++) {
        int shift = small->units->exponent[q + target];
        for (int64_t j = q - 1; j >= 0; j--) {
            struct dd sum = small->c[j * t + target];
            for (int64_t l = j + 1; l < q; l++)
                sum = dd_subtract(sum, dd_multiply(small->u[j * q + l], small->b[l]));
            small->b[j] = sum;
            fit->coef[target * q + j] = ldexp(dd_round(sum), shift - small->units->exponent[j]);
        }
        if (small->shape->intercept)
            fit->coef[target * q] =
                blasd_regression_unshift(small->shape, small->units, small->b, target);
        if (fit->need_residuals && data->without > 0) take_unweighted(small, data, target, fit);
    }
}

/* U^-1. */
static void invert(struct regression_small *small) {
    int64_t q = small->shape->q, done = 0;
    struct dd *inverse = small->inverse;
    for (int64_t c = 0; c < q && blasd_wanted_after(&done, 10 * q * q); c++)
        for (int64_t j = q - 1; j >= 0; j--) {
            struct dd sum = dd_from(j == c);
            for (int64_t l = j + 1; l <= c; l++)
                sum = dd_subtract(sum, dd_multiply(small->u[j * q + l], inverse[l * q + c]));
            inverse[j * q + c] = j > c ? dd_from(0) : sum;
        }
}

/* basis = U^-1 D^-1/2, out of shifts and scaling. */
static void take_basis(const struct regression_small *small, struct regression_fit *fit) {
    int64_t q = small->shape->q;
    const struct regression_factor *units = small->units;
    for (int64_t c = 0; c < q; c++) {
        struct dd length = dd_sqrt(small->d[c]);
        for (int64_t j = 0; j < q; j++) {
            struct dd sum = small->inverse[j * q + c];
            for (int64_t l = 1; j == 0 && l <= c; l++)
                if (units->shift[l] != 0)
                    sum = dd_subtract(
                        sum, dd_scale(dd_shift(small->inverse[l * q + c], -units->exponent[l]),
                                      units->shift[l]));
            fit->basis[j * q + c] =
                j > c ? 0 : ldexp(dd_round(dd_divide(sum, length)), -units->exponent[j]);
        }
    }
    fit->spread = q;
}

/* What rounding may have done to the coefficients of ridge. With G the matrix of columns a and of
 * a residual r, rounding of the columns moves b_j by at most its unit times
 * sum |G^-1_jk| |a_k| |r| + sqrt(G^-1_jj) sum |a_k b_k|. Whether that is too much
 * of a coefficient that matters. */
static bool doubtful(const struct regression_small *small, const struct regression_fit *fit) {
    int64_t q = small->shape->q, t = small->shape->t, first = q - small->shape->p, done = 0;
    const int *e = small->units->exponent;
    double *length = blasd_cpu_alloc((size_t)q, sizeof *length);
    bool doubt = length == NULL;
    for (int64_t k = 0; k < q && !doubt; k++) {
        double sum = 0;
        for (int64_t c = 0; c <= k; c++)
            sum += small->u[c * q + k].hi * small->u[c * q + k].hi * small->d[c].hi;
        length[k] = sqrt(sum);
        doubt = !(small->d[k].hi > 0);
    }
    for (int64_t j = first; j < q && !doubt && blasd_wanted_after(&done, q * q); j++) {
        const struct dd *row = small->inverse + j * q;
        double along = 0, own = 0;
        for (int64_t k = 0; k < q; k++) {
            double element = 0;
            for (int64_t c = k > j ? k : j; c < q; c++)
                element += row[c].hi * small->inverse[k * q + c].hi / small->d[c].hi;
            along += fabs(element) * length[k];
            if (k == j) own = sqrt(element);
        }
        for (int64_t l = 0; l < t && !doubt; l++) {
            double left = sqrt(squares(small, q + l).hi), error, b, most = 0,
                   sizes = first == 1 ? fabs(small->c[l].hi) * length[0] : 0;
            for (int64_t k = 0; k < q; k++) {
                b = k < first ? 0 : fabs(ldexp(fit->coef[l * q + k], e[k] - e[q + l]));
                sizes += length[k] * b;
                most = fmax(most, length[k] * b);
            }
            b = fabs(ldexp(fit->coef[l * q + j], e[j] - e[q + l]));
            error = UNIT * (double)(4 + q) * (along * left + own * sizes);
            doubt = !(error <= RIGHT * b || (b == 0 && error * length[j] <= NO_PART * most));
        }
    }
    free(length);
    return doubt;
}

void blasd_regression_small_gram(const struct regression_small *small, struct dd *g) {
    int64_t q = small->shape->q, t = small->shape->t;
    for (int64_t i = 0; i < q; i++)
        for (int64_t j = i; j < q + t; j++) {
            struct dd sum = {0, 0};
            for (int64_t k = 0; k <= i; k++)
                sum =
                    dd_add(sum, dd_multiply(dd_multiply(small->u[k * q + i], small->d[k]),
                                            j < q ? small->u[k * q + j] : small->c[k * t + j - q]));
            g[i * (q + t) + j] = sum;
        }
}

/* The residuals out of the scaling and the weights. */
static void take_residuals(const struct regression_small *small, const struct regression_data *data,
                           struct regression_fit *fit) {
    const struct regression_shape *shape = small->shape;
    for (int64_t j = 0; j < shape->t; j++) {
        const double *hi = column_hi(small, shape->q + j), *lo = column_lo(small, shape->q + j);
        for (int64_t i = 0; i < shape->n; i++) {
            struct dd r = {hi[i], lo[i]};
            if (data->w != NULL && data->w[i] == 0) continue;
            if (data->w != NULL) r = dd_divide(r, small->root[i]);
            fit->residual[j * shape->n + i] =
                ldexp(dd_round(r), small->units->exponent[shape->q + j]);
        }
    }
}

void blasd_regression_small_solve(struct regression_small *small,
                                  const struct regression_data *data, struct regression_fit *fit) {
    bool penalty = has_penalty(small->shape);
    solve(small, data, fit);
    invert(small);
    memcpy(fit->ssr, small->units->rest, (size_t)small->shape->t * sizeof *fit->ssr);
    if (penalty) {
        fit->unsure = doubtful(small, fit);
    } else {
        take_basis(small, fit);
        fit->orthogonal = small->hi;
        fit->low = small->lo;
        fit->squares = small->d;
        fit->stride = small->stride;
    }
    if (fit->need_residuals) take_residuals(small, data, fit);
}
