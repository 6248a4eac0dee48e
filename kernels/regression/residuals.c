/* Residuals and sums of squares from coefficients, in double-double, one pass over the data. */
#include "kernels/regression/regression.h"

#include "core/wanted.h"
#include "kernels/numeric/double_double.h"

void blasd_regression_residuals(const struct regression_shape *shape,
                                const struct regression_data *data, struct regression_fit *fit,
                                bool ssr) {
    int64_t first = shape->intercept ? 1 : 0, done = 0;
    for (int64_t target = 0; target < shape->t; target++) {
        const double *coef = fit->coef + target * shape->q;
        struct dd squares = {0, 0};
        for (int64_t i = 0; i < shape->n && blasd_wanted_after(&done, 8 * shape->q + 10); i++) {
            const double *x = data->x + i * shape->p;
            struct dd r = dd_from(data->y[i * shape->t + target]);
            if (first == 1) r = dd_subtract(r, dd_from(coef[0]));
            for (int64_t j = 0; j < shape->p; j++)
                r = dd_subtract(r, dd_two_product(x[j], coef[first + j]));
            if (fit->residual != NULL) fit->residual[target * shape->n + i] = dd_round(r);
            if (!ssr) continue;
            r = dd_multiply(r, r);
            squares = dd_add(squares, data->w == NULL ? r : dd_scale(r, data->w[i]));
        }
        if (ssr) fit->ssr[target] = dd_round(squares);
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
            mean = dd_divide(moment(y, shape->t, data->w, shape->n, mean, 1), dd_from(data->total));
        tss[target] = dd_round(moment(y, shape->t, data->w, shape->n, mean, 2));
    }
}
