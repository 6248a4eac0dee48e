/* The statistics of a fit, as statsmodels gives them, and every output of one problem.
 *
 * Standard errors come from the basis B with (X'WX)^+ = B B': they are lengths of its rows,
 * so nothing cancels. Dense routines come from shape->dense. Read next: robust.c, distribution.c.
 */
#include "kernels/regression/regression.h"

#include "base/err.h"
#include "core/kernel.h"
#include "core/wanted.h"
#include "kernels/cpu/cpu.h"
#include "kernels/regression/dense.h"
#include "kernels/regression/distribution.h"

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

/* The quantile for intervals. */
static double critical_of(const struct regression_shape *shape, double df,
                          struct regression_fit *fit) {
    int at = df > 0 && df < 1e9 ? (int)df % CRITICALS : 0;
    if (!(df > 0)) return NAN;
    if (fit->critical[at].df != df) {
        fit->critical[at].value = blasd_student_critical(1 - shape->level, df);
        fit->critical[at].df = df;
    }
    return fit->critical[at].value;
}

/* t, p and intervals of each coefficient from its standard error. A robust one of 0 says that no
 * residual tells how far the coefficient may be off: then there are none. */
static void put_coefficients(const struct regression_shape *shape, const struct blasd_task *task,
                             int64_t place, const double *coef, const double *errors,
                             double df_resid, struct regression_fit *fit) {
    double df = shape->use_t ? df_resid : INFINITY, critical;
    if (df_resid <= 0) df = NAN;
    critical = critical_of(shape, df, fit);
    for (int64_t j = 0; j < shape->q && blasd_wanted(); j++) {
        bool none = shape->cov != COV_NONROBUST && errors[j] == 0;
        double error = errors[j], t = none ? NAN : coef[j] / error,
               half = none ? NAN : critical * error;
        int64_t at = place * shape->q + j;
        put(task, OUT_STDERR, at, error);
        put(task, OUT_TVALUES, at, t);
        put(task, OUT_PVALUES, at, blasd_student_tails(t, df));
        put(task, OUT_CONF_INT, 2 * at, coef[j] - half);
        put(task, OUT_CONF_INT, 2 * at + 1, coef[j] + half);
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
        code = blasd_regression_robust(shape, data, fit, target, cov, &f, err);
    else if (whole)
        plain_covariance(shape, fit, sum->scale, cov);
    if (code != 0) return code;
    if (shape->cov == COV_NONROBUST) plain_errors(shape, fit, sum->scale, errors);
    for (int64_t i = 0; shape->cov != COV_NONROBUST && i < q; i++) errors[i] = sqrt(cov[i * q + i]);
    for (int64_t i = 0; sum->df_resid <= 0 && i < q; i++) errors[i] = NAN;
    for (int64_t i = 0; sum->df_resid <= 0 && whole && i < q * q; i++) cov[i] = NAN;
    put_coefficients(shape, task, place, coef, errors, sum->df_resid, fit);
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
        int64_t place = (blasd_regression_first_row(shape, at) + i) * shape->t + target;
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
        if (blasd_regression_constant(shape, task, at, target)) sum.tss = 0;
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
        put(task, OUT_SINGULAR_VALUES, at * blasd_regression_values(shape) + j, fit->singular[j]);
    for (int64_t j = values; j < blasd_regression_values(shape); j++)
        put(task, OUT_SINGULAR_VALUES, at * q + j, NAN);
    put(task, OUT_COND, at, fit->cond);
done:
    free(cov);
    free(errors);
    return code;
}
