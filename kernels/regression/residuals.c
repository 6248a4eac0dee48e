/* Residuals and sums of squares from coefficients, in double-double, one pass over the data. */
#include "kernels/regression/regression.h"

#include "kernels/numeric/double_double.h"

void blasd_regression_residuals(const struct regression_shape *shape,
                                const struct regression_data *data, struct regression_fit *fit,
                                bool ssr) {
    int64_t first = shape->intercept ? 1 : 0;
    for (int64_t target = 0; target < shape->t; target++) {
        const double *coef = fit->coef + target * shape->q;
        struct dd squares = {0, 0};
        for (int64_t i = 0; i < shape->n; i++) {
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

void blasd_regression_tss(const struct regression_shape *shape, const struct regression_data *data,
                          double *tss) {
    for (int64_t target = 0; target < shape->t; target++) {
        const double *y = data->y + target;
        struct dd mean = {0, 0}, squares = {0, 0};
        for (int64_t i = 0; shape->intercept && i < shape->n; i++)
            mean = dd_add(mean, dd_two_product(y[i * shape->t], data->w == NULL ? 1 : data->w[i]));
        if (data->total > 0) mean = dd_divide(mean, dd_from(data->total));
        for (int64_t i = 0; i < shape->n; i++) {
            struct dd r = dd_subtract(dd_from(y[i * shape->t]), mean);
            r = dd_multiply(r, r);
            squares = dd_add(squares, data->w == NULL ? r : dd_scale(r, data->w[i]));
        }
        tss[target] = dd_round(squares);
    }
}
