/* Problems whose numbers lie so far from 1 that squares of them leave the range of doubles: targets
 * of 1e160, weights of 1e-250, features of 1e-200 with robust errors.
 *
 * They are fitted in other units, powers of two away, and the outputs are taken back to the user's.
 * That rounds nothing, so what can be said in doubles comes out as it would near 1. All other
 * problems, which is nearly all, pass through as they are. Read next: cpu_regression.c. */
#include "kernels/regression/regression.h"

#include "base/err.h"
#include "core/kernel.h"
#include "core/wanted.h"
#include "kernels/cpu/cpu.h"
#include "kernels/regression/far.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void blasd_regression_scaling_release(struct regression_scaling *scaling) {
    free(scaling->x);
    free(scaling->y);
    free(scaling->w);
    free(scaling->target);
    free(scaling->column);
    memset(scaling, 0, sizeof *scaling);
}

static int no_memory(struct blasd_err *err) {
    return blasd_fail(err, BLASD_E_out_of_memory, "", "no memory for the data in other units");
}

static double largest_of(const double *from, int64_t step, int64_t n) {
    double largest = 0;
    for (int64_t i = 0; i < n; i++)
        largest = fabs(from[i * step]) > largest ? fabs(from[i * step]) : largest;
    return largest;
}

/* Room for `count` of *array, in place of what was there. */
static bool room(double **array, size_t count) {
    free(*array);
    *array = blasd_cpu_alloc(count, sizeof **array);
    return *array != NULL;
}

/* Exponents of 0 for a problem. */
static int begin(const struct regression_shape *shape, struct regression_scaling *scaling,
                 struct blasd_err *err) {
    size_t q = (size_t)shape->q, t = (size_t)shape->t;
    scaling->on = false;
    scaling->weight = 0;
    if (scaling->target == NULL) scaling->target = blasd_cpu_alloc(t, sizeof(int));
    if (scaling->column == NULL) scaling->column = blasd_cpu_alloc(q, sizeof(int));
    if (scaling->target == NULL || scaling->column == NULL) return no_memory(err);
    memset(scaling->target, 0, t * sizeof(int));
    memset(scaling->column, 0, q * sizeof(int));
    return 0;
}

static int scale_weights(const struct regression_shape *shape, struct regression_scaling *scaling,
                         struct regression_data *data, struct blasd_err *err) {
    if (scaling->weight == 0) return 0;
    if (!room(&scaling->w, (size_t)shape->n)) return no_memory(err);
    for (int64_t i = 0; i < shape->n; i++) scaling->w[i] = ldexp(data->w[i], -scaling->weight);
    data->w = scaling->w;
    data->total = ldexp(data->total, -scaling->weight);
    data->rest = ldexp(data->rest, -scaling->weight);
    scaling->on = true;
    return 0;
}

int blasd_regression_scale_targets(const struct regression_shape *shape,
                                   struct regression_scaling *scaling, struct regression_data *data,
                                   struct blasd_err *err) {
    size_t n = (size_t)shape->n, t = (size_t)shape->t;
    bool far = false;
    for (size_t l = 0; l < t; l++) far = far || scaling->target[l] != 0;
    if (!far) return 0;
    if (!room(&scaling->y, n * t)) return no_memory(err);
    for (size_t i = 0; i < n * t; i++) scaling->y[i] = ldexp(data->y[i], -scaling->target[i % t]);
    data->y = scaling->y;
    scaling->on = true;
    return 0;
}

int blasd_regression_scale(const struct regression_shape *shape, struct regression_scaling *scaling,
                           struct regression_data *data, struct blasd_err *err) {
    int64_t done = 0;
    int code = begin(shape, scaling, err);
    if (code != 0) return code;
    for (int64_t l = 0; l < shape->t && blasd_wanted_after(&done, 4 * shape->n); l++)
        scaling->target[l] = blasd_regression_excess(largest_of(data->y + l, shape->t, shape->n));
    if (data->w != NULL)
        scaling->weight = blasd_regression_weight_unit(
            largest_of(data->w, 1, shape->n), shape->method == METHOD_RIDGE ? shape->alpha : 0);
    code = blasd_regression_scale_targets(shape, scaling, data, err);
    return code != 0 ? code : scale_weights(shape, scaling, data, err);
}

int blasd_regression_scale_as(const struct regression_shape *shape,
                              struct regression_scaling *scaling, const int *exponents,
                              struct regression_data *data, struct blasd_err *err) {
    int code = begin(shape, scaling, err);
    if (code != 0) return code;
    for (int64_t l = 0; l < shape->t; l++) {
        scaling->target[l] = exponents[l];
        if (exponents[l] != 0) scaling->on = true;
    }
    scaling->weight = exponents[shape->t];
    return scale_weights(shape, scaling, data, err);
}

int blasd_regression_scale_columns(const struct regression_shape *shape,
                                   struct regression_scaling *scaling, struct regression_data *data,
                                   struct regression_fit *fit, struct blasd_err *err) {
    int64_t first = shape->intercept ? 1 : 0, s = fit->spread, p = shape->p;
    bool columns = false;
    if (shape->method != METHOD_OLS || (shape->cov == COV_NONROBUST && !shape->cov_params))
        return 0;
    for (int64_t j = first; j < shape->q; j++) {
        int exponent = blasd_regression_excess(largest_of(fit->basis + j * s, 1, s));
        scaling->column[j] = exponent;
        if (exponent == 0) continue;
        columns = true;
        for (int64_t c = 0; c < s; c++)
            fit->basis[j * s + c] = ldexp(fit->basis[j * s + c], -exponent);
        for (int64_t l = 0; l < shape->t; l++)
            fit->coef[l * shape->q + j] = ldexp(fit->coef[l * shape->q + j], -exponent);
    }
    if (!columns) return 0;
    scaling->on = true;
    if (shape->cov == COV_NONROBUST || fit->middle != NULL) return 0; /* no data are looked at */
    if (!room(&scaling->x, (size_t)shape->n * (size_t)p)) return no_memory(err);
    for (int64_t i = 0; i < shape->n; i++)
        for (int64_t j = 0; j < p; j++)
            scaling->x[i * p + j] = ldexp(data->x[i * p + j], scaling->column[first + j]);
    data->x = scaling->x;
    return 0;
}

/* An output of problem `at` of `task`, which has `each` numbers a problem. */
struct place {
    const struct blasd_tensor *tensor;
    int64_t from, each;
};

static struct place find(const struct blasd_task *task, int output, int64_t at, int64_t each) {
    return (struct place){.tensor = &task->outputs[output], .from = at * each, .each = each};
}

static double get(const struct place *place, int64_t i) {
    if (place->tensor->dtype == BLASD_float32)
        return ((const float *)place->tensor->data)[place->from + i];
    return ((const double *)place->tensor->data)[place->from + i];
}

static void set(const struct place *place, int64_t i, double value) {
    if (place->tensor->dtype == BLASD_float32)
        ((float *)place->tensor->data)[place->from + i] = (float)value;
    else
        ((double *)place->tensor->data)[place->from + i] = value;
}

/* Multiplies number i by 2^(the exponents of its target, `powers` times, and column, and more);
 * targets of `step` numbers each, columns of `width`. column NULL: none. */
static void move(const struct place *place, const struct regression_shape *shape,
                 const struct regression_scaling *scaling, int64_t step, int powers,
                 const int *column, int64_t width, int more) {
    if (place->tensor->rank < 0) return;
    for (int64_t i = 0; i < place->each; i++) {
        int exponent = powers * scaling->target[i / step % shape->t] + more;
        if (column != NULL) exponent += column[i % step / width];
        set(place, i, ldexp(get(place, i), exponent));
    }
}

/* The log-likelihood of numbers 2^e as large is n e log 2 less; weights take no part in it. */
static void move_likelihood(const struct blasd_task *task, int output, int64_t at, double factor,
                            const struct regression_shape *shape,
                            const struct regression_scaling *scaling) {
    struct place place = find(task, output, at, shape->t);
    if (place.tensor->rank < 0) return;
    for (int64_t l = 0; l < shape->t; l++)
        set(&place, l,
            get(&place, l) + factor * (double)shape->n * scaling->target[l] * 0.6931471805599453);
}

void blasd_regression_unscale(const struct regression_shape *shape,
                              const struct regression_scaling *scaling, struct blasd_task *task,
                              int64_t at, struct regression_fit *fit) {
    static const int squares[] = {OUT_SSR, OUT_TSS, OUT_SCALE, OUT_DUAL_GAP};
    int64_t q = shape->q, t = shape->t, p = shape->p, values = shape->n < q ? shape->n : q;
    int64_t row = blasd_regression_first_row(shape, at);
    const int *column = scaling->column, *feature = column + (q - p);
    struct place place;
    if (!scaling->on || t == 0) return;
    place = find(task, OUT_COEF, at, t * p);
    move(&place, shape, scaling, p, 1, feature, 1, 0);
    place = find(task, OUT_GRADIENT_NORM, at, t);
    move(&place, shape, scaling, 1, 1, NULL, 1, 0);
    place = find(task, OUT_INTERCEPT, at, t);
    move(&place, shape, scaling, 1, 1, NULL, 1, 0);
    place = find(task, OUT_STDERR, at, t * q);
    move(&place, shape, scaling, q, 1, column, 1, 0);
    place = find(task, OUT_CONF_INT, at, t * q * 2);
    move(&place, shape, scaling, 2 * q, 1, column, 2, 0);
    for (size_t i = 0; i < sizeof squares / sizeof *squares; i++) {
        place = find(task, squares[i], at, t);
        move(&place, shape, scaling, 1, 2, NULL, 1, scaling->weight);
    }
    place = find(task, OUT_SINGULAR_VALUES, at, blasd_regression_values(shape));
    for (int64_t i = 0; place.tensor->rank >= 0 && i < values; i++)
        set(&place, i, ldexp(get(&place, i), scaling->weight / 2));
    move_likelihood(task, OUT_LOGLIK, at, -1, shape, scaling);
    move_likelihood(task, OUT_AIC, at, 2, shape, scaling);
    move_likelihood(task, OUT_BIC, at, 2, shape, scaling);
    place = find(task, OUT_COV_PARAMS, at, t * q * q);
    for (int64_t i = 0; place.tensor->rank >= 0 && i < place.each; i++)
        set(&place, i,
            ldexp(get(&place, i),
                  2 * scaling->target[i / (q * q)] + column[i / q % q] + column[i % q]));
    if (fit->residual == NULL) return; /* a GPU gave them as the user wants them */
    for (int output = OUT_RESIDUALS; output <= OUT_FITTED; output++) { /* targets vary fastest */
        place = (struct place){&task->outputs[output], row * t, shape->n * t};
        move(&place, shape, scaling, 1, 1, NULL, 1, 0);
    }
}
