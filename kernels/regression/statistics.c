/* The statistics of a fit, as statsmodels gives them, and every output of one problem.
 *
 * Standard errors come from the basis B with (X'WX)^+ = B B': they are lengths of its rows,
 * so nothing cancels. Dense routines come from shape->dense. Read next: distribution.c. */
#include "kernels/regression/regression.h"

#include "base/err.h"
#include "core/kernel.h"
#include "core/wanted.h"
#include "kernels/cpu/cpu.h"
#include "kernels/numeric/double_double.h"
#include "kernels/regression/dense.h"
#include "kernels/regression/distribution.h"
#include "kernels/regression/far.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void put(const struct blasd_task *task, int output, int64_t at, double value) {
    const struct blasd_tensor *tensor = &task->outputs[output];
    if (tensor->rank < 0) return;
    if (tensor->dtype == BLASD_float32)
        ((float *)tensor->data)[at] = (float)value;
    else
        ((double *)tensor->data)[at] = value;
}

static void put_int(const struct blasd_task *task, int output, int64_t at, int64_t value) {
    if (task->outputs[output].rank >= 0) ((int64_t *)task->outputs[output].data)[at] = value;
}

static int no_memory(struct blasd_err *err) {
    return blasd_fail(err, BLASD_E_out_of_memory, "", "no memory for the statistics");
}

/* Row i of [1 X] times the root of its weight, into q numbers; X less its means (two numbers each)
 * where there is an intercept. */
static void weighted_row(const struct regression_shape *shape, const struct regression_data *data,
                         const double *means, int64_t i, double *row) {
    const double *x = data->x + i * shape->p, *low = means + shape->p;
    int64_t first = shape->intercept ? 1 : 0;
    double root = data->w == NULL ? 1 : sqrt(data->w[i]);
    if (first == 1) row[0] = root;
    for (int64_t j = 0; j < shape->p; j++)
        row[first + j] = root * (first == 1 ? x[j] - means[j] - low[j] : x[j]);
}

/* Row 0 of the basis as it is where the features have mean 0: its first number alone. The others
 * come and go from `kept`. */
static void centre_basis(const struct regression_shape *shape, const struct regression_fit *fit,
                         double *kept, bool back) {
    for (int64_t c = 1; shape->intercept && c < fit->spread; c++) {
        if (!back) kept[c] = fit->basis[c];
        fit->basis[c] = back ? kept[c] : 0;
    }
}

/* What multiplies (root weight * row)(...)' of observation i in the middle of the sandwich; left: 1
 * less its leverage. */
static double middle_weight(const struct regression_shape *shape, double residual, double left,
                            double df_resid) {
    double square = residual * residual;
    switch (shape->cov) {
    case COV_HC1: return square * (double)shape->n / df_resid;
    case COV_HC2: return square / left;
    case COV_HC3: return square / (left * left);
    default: return square;
    }
}

/* Element c of observation i in the orthonormal basis, of V. */
static struct dd orthonormal(const struct regression_fit *fit, int64_t i, int64_t c) {
    int64_t at = c * fit->stride + i;
    return dd_divide((struct dd){fit->orthogonal[at], fit->low[at]}, dd_sqrt(fit->squares[c]));
}

/* 1 less the leverage of an observation, h'h with h = B' row. NaN where that is but rounding: it
 * decides a coefficient alone, and whatever its residual is, 0, is divided by 0. */
static double left_of_leverage(const struct regression_shape *shape,
                               const struct regression_fit *fit, int64_t i, const double *row,
                               const double *h) {
    int64_t q = shape->q, s = fit->spread;
    struct dd rest = {1, 0};
    double left, off = 0;
    for (int64_t c = 0; c < s; c++) {
        struct dd part = fit->orthogonal == NULL ? dd_from(h[c]) : orthonormal(fit, i, c);
        rest = dd_subtract(rest, dd_multiply(part, part));
    }
    left = dd_round(rest);
    for (int64_t c = 0; left < 0.5 && c < s; c++) {
        double size = 0;
        if (fit->orthogonal != NULL) size = fabs(h[c]);
        for (int64_t j = 0; fit->orthogonal == NULL && j < q; j++)
            size += fabs(fit->basis[j * s + c] * row[j]);
        off += 2 * fabs(h[c]) * size;
    }
    return left > off * blasd_regression_leverage_unit(shape->n, q) ? left : NAN;
}

/* Robust covariance: B (sum over i of m_i h_i h_i') B', where h_i = B' x_i is row i of the
 * orthonormal basis of the design. `cov` is q x q. */
static int robust_covariance(const struct regression_shape *shape,
                             const struct regression_data *data, const struct regression_fit *fit,
                             int64_t target, double *cov, struct blasd_err *err) {
    int64_t q = shape->q, s = fit->spread;
    const struct regression_dense *dense = shape->dense;
    double *row = blasd_cpu_alloc((size_t)q, sizeof *row);
    double *h = blasd_cpu_alloc((size_t)s, sizeof *h);
    double *middle = blasd_cpu_alloc((size_t)s * (size_t)s, sizeof *middle);
    double *half = blasd_cpu_alloc((size_t)q * (size_t)s, sizeof *half);
    double *means = blasd_cpu_alloc(2 * (size_t)shape->p, sizeof *means);
    double df_resid = (double)(shape->n - fit->rank);
    int64_t worked = 0;
    int code = 0;
    if (row == NULL || h == NULL || middle == NULL || half == NULL || means == NULL) {
        code = no_memory(err);
        goto done;
    }
    memset(middle, 0, (size_t)(s * s) * sizeof *middle);
    if (fit->middle != NULL)
        memcpy(middle, fit->middle + target * s * s, (size_t)(s * s) * sizeof *middle);
    else if (shape->intercept)
        blasd_regression_means(shape, data, means, means + shape->p);
    centre_basis(shape, fit, half, false);
    for (int64_t i = 0; fit->middle == NULL && i < shape->n && s > 0; i++) {
        if (!blasd_wanted_after(&worked, s * (q + s))) break;
        double residual = fit->residual[target * shape->n + i], left = 1;
        if (data->w != NULL) residual *= sqrt(data->w[i]);
        for (int64_t c = 0; fit->orthogonal != NULL && c < s; c++)
            h[c] = dd_round(orthonormal(fit, i, c));
        if (fit->orthogonal == NULL) {
            weighted_row(shape, data, means, i, row);
            dense->gemv((int)s, (int)q, fit->basis, (int)s, row, h); /* column-major: s x q */
        }
        if (shape->cov == COV_HC2 || shape->cov == COV_HC3)
            left = left_of_leverage(shape, fit, i, row, h);
        dense->syr((int)s, middle_weight(shape, residual, left, df_resid), h, middle, (int)s);
    }
    centre_basis(shape, fit, half, true);
    for (int64_t i = 0; i < s; i++)
        for (int64_t j = 0; j < i; j++) middle[j * s + i] = middle[i * s + j];
    memset(cov, 0, (size_t)(q * q) * sizeof *cov);
    if (q > 0 && s > 0) { /* column-major, half is (basis middle)' and basis is basis' */
        dense->gemm(false, false, (int)s, (int)q, (int)s, middle, (int)s, fit->basis, (int)s, half,
                    (int)s);
        dense->gemm(true, false, (int)q, (int)q, (int)s, fit->basis, (int)s, half, (int)s, cov,
                    (int)q);
    }
done:
    free(row);
    free(h);
    free(middle);
    free(half);
    free(means);
    return code;
}

static void plain_covariance(const struct regression_shape *shape, const struct regression_fit *fit,
                             double scale, double *cov) {
    int64_t q = shape->q, s = fit->spread, done = 0;
    for (int64_t i = 0; i < q; i++) {
        for (int64_t j = 0; j <= i && blasd_wanted_after(&done, s); j++) {
            double sum = 0;
            for (int64_t c = 0; c < s; c++) sum += fit->basis[i * s + c] * fit->basis[j * s + c];
            cov[i * q + j] = cov[j * q + i] = sum * scale;
        }
    }
}

/* Standard errors: lengths of the basis's rows. nrm2 neither overflows nor underflows, where
 * squares would for features of 1e200 or 1e-200. */
static void plain_errors(const struct regression_shape *shape, const struct regression_fit *fit,
                         double scale, double *error) {
    for (int64_t i = 0; i < shape->q; i++)
        error[i] = sqrt(scale) * blasd_regression_length(fit->spread, fit->basis + i * fit->spread);
}

/* The F test that all coefficients but the intercept are 0, with a robust covariance:
 * b' cov^-1 b / their number. NaN where the covariance is singular, as of deficient designs. */
static double robust_f(const struct regression_shape *shape, const double *coef,
                       const double *cov) {
    int64_t q = shape->q, skip = q - shape->p, p = shape->p;
    double *a = blasd_cpu_alloc((size_t)p * (size_t)p, sizeof *a);
    double *b = blasd_cpu_alloc((size_t)p, sizeof *b), sum = NAN;
    if (a != NULL && b != NULL && p > 0) {
        for (int64_t i = 0; i < p; i++) {
            double unit = sqrt(cov[(i + skip) * q + i + skip]);
            b[i] = coef[i + skip] / unit;
            for (int64_t j = 0; j < p; j++)
                a[i * p + j] =
                    cov[(i + skip) * q + j + skip] / (unit * sqrt(cov[(j + skip) * q + j + skip]));
        }
        if (shape->dense->potrf(false, (int)p, a, (int)p) == 0) {
            sum = 0;
            shape->dense->trsm(false, false, false, (int)p, 1, a, (int)p, b, (int)p);
            for (int64_t i = 0; i < p; i++) sum += b[i] * b[i];
        }
    }
    free(a);
    free(b);
    return sum / (double)p;
}

/* What the target's numbers follow from. */
struct summary {
    double ssr, tss, df_model, df_resid, scale;
};

static void put_quality(const struct regression_shape *shape, const struct blasd_task *task,
                        int64_t place, const struct regression_data *data,
                        const struct summary *sum) {
    double n = (double)shape->n, k = shape->intercept ? 1 : 0, logs = 0, loglik;
    double r2 = 1 - sum->ssr / sum->tss, parameters = sum->df_model + k;
    put(task, OUT_R2_ADJ, place, 1 - (n - k) / sum->df_resid * (1 - r2));
    for (int64_t i = 0; data->w != NULL && i < shape->n; i++) logs += log(data->w[i]);
    loglik = -n / 2 * (log(sum->ssr) + 1 + log(2 * acos(-1) / n)) + logs / 2;
    put(task, OUT_LOGLIK, place, loglik);
    put(task, OUT_AIC, place, -2 * loglik + 2 * parameters);
    put(task, OUT_BIC, place, -2 * loglik + log(n) * parameters);
    put(task, OUT_SCALE, place, sum->scale);
}

/* t, p and intervals of each coefficient from its standard error. */
static void put_coefficients(const struct regression_shape *shape, const struct blasd_task *task,
                             int64_t place, const double *coef, const double *errors,
                             double df_resid, struct regression_fit *fit) {
    double df = shape->use_t ? df_resid : INFINITY, critical;
    if (df_resid <= 0) df = NAN;
    if (!(fit->critical_df == df)) fit->critical = blasd_student_critical(1 - shape->level, df);
    fit->critical_df = df;
    critical = fit->critical;
    for (int64_t j = 0; j < shape->q && blasd_wanted(); j++) {
        double error = errors[j], t = coef[j] / error;
        int64_t at = place * shape->q + j;
        put(task, OUT_STDERR, at, error);
        put(task, OUT_TVALUES, at, t);
        put(task, OUT_PVALUES, at, blasd_student_tails(t, df));
        put(task, OUT_CONF_INT, 2 * at, coef[j] - critical * error);
        put(task, OUT_CONF_INT, 2 * at + 1, coef[j] + critical * error);
    }
}

/* Inference for one target of ols. `errors` is room for q numbers, `cov` for q x q where a
 * covariance is needed. */
static int put_inference(const struct regression_shape *shape, const struct blasd_task *task,
                         int64_t at, int64_t target, const struct regression_data *data,
                         struct regression_fit *fit, const struct summary *sum, double *errors,
                         double *cov, struct blasd_err *err) {
    int64_t q = shape->q, place = at * shape->t + target;
    const double *coef = fit->coef + target * q;
    bool whole = shape->cov != COV_NONROBUST || shape->cov_params;
    double f = (sum->tss - sum->ssr) / sum->df_model / sum->scale;
    int code = 0;
    if (shape->cov != COV_NONROBUST)
        code = robust_covariance(shape, data, fit, target, cov, err);
    else if (whole)
        plain_covariance(shape, fit, sum->scale, cov);
    if (code != 0) return code;
    if (shape->cov == COV_NONROBUST) plain_errors(shape, fit, sum->scale, errors);
    for (int64_t i = 0; shape->cov != COV_NONROBUST && i < q; i++) errors[i] = sqrt(cov[i * q + i]);
    for (int64_t i = 0; sum->df_resid <= 0 && i < q; i++) errors[i] = NAN;
    for (int64_t i = 0; sum->df_resid <= 0 && whole && i < q * q; i++) cov[i] = NAN;
    put_coefficients(shape, task, place, coef, errors, sum->df_resid, fit);
    if (shape->cov != COV_NONROBUST) f = fit->rank < q ? NAN : robust_f(shape, coef, cov);
    if (sum->df_model < 1) f = NAN;
    put(task, OUT_FVALUE, place, f);
    put(task, OUT_F_PVALUE, place, blasd_fisher_tail(f, sum->df_model, sum->df_resid));
    for (int64_t i = 0; shape->cov_params && i < q * q; i++)
        put(task, OUT_COV_PARAMS, place * q * q + i, cov[i]);
    return 0;
}

static void put_residuals(const struct regression_shape *shape, const struct blasd_task *task,
                          int64_t at, int64_t target, const struct regression_data *data,
                          const struct regression_fit *fit) {
    for (int64_t i = 0; shape->residuals && fit->residual != NULL && i < shape->n; i++) {
        double y = data->y[i * shape->t + target], r = fit->residual[target * shape->n + i];
        int64_t place = (at * shape->n + i) * shape->t + target;
        put(task, OUT_RESIDUALS, place, r);
        put(task, OUT_FITTED, place, y - r);
    }
}

int blasd_regression_outputs(const struct regression_shape *shape, struct blasd_task *task,
                             int64_t at, const struct regression_data *data,
                             struct regression_fit *fit, const double *tss, struct blasd_err *err) {
    int64_t q = shape->q, first = q - shape->p, values = shape->n < q ? shape->n : q;
    bool ols = shape->method == METHOD_OLS;
    bool whole = shape->cov != COV_NONROBUST || shape->cov_params;
    double *cov = ols ? blasd_cpu_alloc((size_t)(whole ? q * q : 0), sizeof *cov) : NULL;
    double *errors = ols ? blasd_cpu_alloc((size_t)q, sizeof *errors) : NULL;
    int code = 0;
    if (ols && (cov == NULL || errors == NULL)) {
        code = no_memory(err);
        goto done;
    }
    for (int64_t target = 0; code == 0 && target < shape->t && blasd_wanted(); target++) {
        const double *coef = fit->coef + target * q;
        int64_t place = at * shape->t + target;
        struct summary sum = {.ssr = fit->ssr[target], .tss = tss[target]};
        for (int64_t j = 0; j < shape->p; j++)
            put(task, OUT_COEF, place * shape->p + j, coef[first + j]);
        put(task, OUT_INTERCEPT, place, shape->intercept ? coef[0] : 0);
        put(task, OUT_SSR, place, sum.ssr);
        put(task, OUT_TSS, place, sum.tss);
        put(task, OUT_R2, place, 1 - sum.ssr / sum.tss);
        put_residuals(shape, task, at, target, data, fit);
        if (shape->method == METHOD_LASSO || shape->method == METHOD_ELASTIC_NET) {
            put_int(task, OUT_N_ITER, place, fit->n_iter[target]);
            put(task, OUT_DUAL_GAP, place, fit->dual_gap[target]);
        }
        if (shape->method == METHOD_GD) {
            put(task, OUT_GRADIENT_NORM, place, fit->gradient[target]);
            put_int(task, OUT_CONVERGED, place, fit->converged[target]);
        }
        if (!ols) continue;
        sum.df_model = (double)(fit->rank - first);
        sum.df_resid = (double)(shape->n - fit->rank);
        sum.scale = sum.df_resid > 0 ? sum.ssr / sum.df_resid : NAN;
        put_quality(shape, task, place, data, &sum);
        code = put_inference(shape, task, at, target, data, fit, &sum, errors, cov, err);
    }
    if (!ols || code != 0) goto done;
    put_int(task, OUT_RANK, at, fit->rank);
    put_int(task, OUT_DF_MODEL, at, fit->rank - first);
    put_int(task, OUT_DF_RESID, at, shape->n - fit->rank);
    for (int64_t j = 0; j < values; j++)
        put(task, OUT_SINGULAR_VALUES, at * values + j, fit->singular[j]);
    put(task, OUT_COND, at, fit->cond);
done:
    free(cov);
    free(errors);
    return code;
}
