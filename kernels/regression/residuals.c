/* Residuals, means and sums of squares in double-double, one pass over the data each. */
#include "kernels/regression/regression.h"

#include "core/wanted.h"
#include "kernels/numeric/dd.h"

/* The sum of the weights: a mean that it makes is as right as the sum above it. */
static struct dd total_of(const struct regression_data *data) {
    return (struct dd){data->total, data->rest};
}

/* The observation of the largest weight: the weighted mean is not far from what it says. */
static int64_t heaviest(const struct regression_data *data, int64_t n) {
    int64_t at = 0;
    for (int64_t i = 1; data->w != NULL && i < n; i++)
        if (data->w[i] > data->w[at]) at = i;
    return at;
}

/* Coefficients of a target without the intercept: doubles, or else in double-double. */
struct slopes {
    const double *b;
    const struct dd *doubled;
};

/* y - x b of row i, without the intercept. */
static struct dd left_of(const struct regression_shape *shape, const struct regression_data *data,
                         struct slopes slopes, int64_t i, int64_t target) {
    const double *x = data->x + i * shape->p, *b = slopes.b;
    struct dd r = dd_from(data->y[i * shape->t + target]);
    for (int64_t j = 0; b == NULL && j < shape->p; j++)
        r = dd_subtract(r, dd_scale(slopes.doubled[j], x[j]));
    if (b == NULL) return r;
    for (int64_t j = 0; j < shape->p; j++) r = dd_subtract(r, dd_two_product(x[j], b[j]));
    return r;
}

/* The intercept makes the residuals' mean 0: it is found from them, for the one that goes with
 * coefficients before they are rounded does not go with those after it. One row is taken away
 * before the mean is, so that what is far from 0 costs no digit. */
static void find_residuals(const struct regression_shape *shape, const struct regression_data *data,
                           const struct dd *b, struct regression_fit *fit, bool ssr) {
    int64_t q = shape->q, first = shape->intercept ? 1 : 0, done = 0, n = shape->n;
    bool centred = first == 1 && shape->method != METHOD_GD && data->total > 0;
    int64_t start = heaviest(data, n);
    for (int64_t target = 0; target < shape->t; target++) {
        double *coef = fit->coef + target * q;
        struct slopes slopes = {coef + first, NULL};
        if (b != NULL) slopes = (struct slopes){NULL, b + target * shape->p};
        double *residual = fit->residual == NULL ? NULL : fit->residual + target * n;
        struct dd squares = {0, 0}, sum = {0, 0}, mean = {0, 0}, origin = {0, 0};
        if (centred) origin = left_of(shape, data, slopes, start, target);
        if (first == 1 && !centred) origin = dd_from(coef[0]);
        for (int64_t i = 0; i < n && blasd_wanted_after(&done, 8 * q + 10); i++) {
            struct dd r = dd_subtract(left_of(shape, data, slopes, i, target), origin), wr;
            if (residual != NULL) residual[i] = dd_round(r);
            if (!ssr && !centred) continue;
            wr = data->w == NULL ? r : dd_scale(r, data->w[i]);
            sum = dd_add(sum, wr);
            squares = dd_add(squares, dd_multiply(r, wr));
        }
        if (centred) {
            mean = dd_divide(sum, total_of(data));
            squares = dd_subtract(squares, dd_multiply(mean, sum));
            for (int64_t i = 0; residual != NULL && i < n; i++) residual[i] -= dd_round(mean);
        }
        if (!ssr) continue;
        fit->ssr[target] = squares.hi > 0 ? dd_round(squares) : squares.hi == squares.hi ? 0 : NAN;
        if (centred) coef[0] = dd_round(dd_add(origin, mean));
    }
}

void blasd_regression_residuals(const struct regression_shape *shape,
                                const struct regression_data *data, struct regression_fit *fit,
                                bool ssr) {
    find_residuals(shape, data, NULL, fit, ssr);
}

void blasd_regression_residuals_of(const struct regression_shape *shape,
                                   const struct regression_data *data, const struct dd *b,
                                   struct regression_fit *fit) {
    find_residuals(shape, data, b, fit, true);
}

void blasd_regression_means(const struct regression_shape *shape,
                            const struct regression_data *data, double *hi, double *lo) {
    int64_t done = 0;
    for (int64_t j = 0; j < shape->p; j++) hi[j] = lo[j] = 0;
    for (int64_t i = 0; i < shape->n && blasd_wanted_after(&done, 20 * shape->p); i++) {
        const double *x = data->x + i * shape->p;
        double w = data->w == NULL ? 1 : data->w[i];
        for (int64_t j = 0; j < shape->p; j++) {
            struct dd sum = dd_add((struct dd){hi[j], lo[j]}, dd_two_product(w, x[j]));
            hi[j] = sum.hi;
            lo[j] = sum.lo;
        }
    }
    for (int64_t j = 0; j < shape->p; j++) {
        struct dd mean = dd_divide((struct dd){hi[j], lo[j]}, total_of(data));
        hi[j] = mean.hi;
        lo[j] = mean.lo;
    }
}

enum { LANES = 8 }; /* sums side by side, which the compiler turns into a vector */

/* Inlined where step, power and whether there are weights are known: a compiler that makes masks of
 * these questions reads weights at address 0 under a mask, which some processors do very slowly. */
DD_INLINE struct dd add_up(const double *y, int64_t step, const double *w, int64_t n,
                           struct dd mean, int power) {
    double hi[LANES] = {0}, lo[LANES] = {0};
    struct dd sum = {0, 0};
    int64_t whole = n / LANES * LANES;
    for (int64_t i = 0; i < whole; i += LANES) {
        for (int l = 0; l < LANES; l++) {
            struct dd r = dd_subtract(dd_from(y[(i + l) * step]), mean), next;
            if (power == 2) r = dd_multiply(r, r);
            if (w != NULL) r = dd_scale(r, w[i + l]);
            next = dd_add((struct dd){hi[l], lo[l]}, r);
            hi[l] = next.hi;
            lo[l] = next.lo;
        }
    }
    for (int l = 0; l < LANES; l++) sum = dd_add(sum, (struct dd){hi[l], lo[l]});
    for (int64_t i = whole; i < n; i++) {
        struct dd r = dd_subtract(dd_from(y[i * step]), mean);
        if (power == 2) r = dd_multiply(r, r);
        sum = dd_add(sum, w == NULL ? r : dd_scale(r, w[i]));
    }
    return sum;
}

/* Sum of w (y - mean)^power, power 1 or 2, over n numbers `step` apart; w NULL: 1. */
DD_CLONES
static struct dd moment(const double *y, int64_t step, const double *w, int64_t n, struct dd mean,
                        int power) {
    if (w != NULL)
        return power == 2 ? add_up(y, step, w, n, mean, 2) : add_up(y, step, w, n, mean, 1);
    if (step == 1)
        return power == 2 ? add_up(y, 1, NULL, n, mean, 2) : add_up(y, 1, NULL, n, mean, 1);
    return power == 2 ? add_up(y, step, NULL, n, mean, 2) : add_up(y, step, NULL, n, mean, 1);
}

void blasd_regression_tss(const struct regression_shape *shape, const struct regression_data *data,
                          double *tss) {
    int64_t done = 0;
    for (int64_t target = 0; target < shape->t && blasd_wanted_after(&done, 20 * shape->n);
         target++) {
        const double *y = data->y + target;
        struct dd mean = {0, 0};
        if (shape->intercept && data->total > 0)
            mean = dd_divide(moment(y, shape->t, data->w, shape->n, mean, 1), total_of(data));
        tss[target] = dd_round(moment(y, shape->t, data->w, shape->n, mean, 2));
    }
}
