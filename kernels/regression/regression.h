/* What the files of regression share: a job as numbers, and a least-squares problem made ready.
 *
 * Read next: op_regression.c (what may be asked), cpu_regression.c (who runs what), qr_small.c. */
#ifndef BLASD_REGRESSION_H
#define BLASD_REGRESSION_H

#include "core/job.h"

struct blasd_watch;

/* Positions in the descriptor. */
enum { IN_X, IN_Y, IN_WEIGHT };
enum { OUT_COEF, OUT_INTERCEPT, OUT_RANK, OUT_SSR, OUT_R2, OUT_DF_MODEL, OUT_DF_RESID };
enum { PARAM_FIT_INTERCEPT };

/* A job as numbers. A plain value, the same for all tasks of a batch. */
struct regression_shape {
    bool intercept, weighted;
    bool many;                /* y has a dimension of targets */
    int64_t n, p, q, t;       /* observations, features, coefficients with intercept, targets */
    enum blasd_dtype storage; /* of coef, intercept, residuals, fitted */
    int batch_rank;
    int64_t batch_shape[BLASD_MAX_RANK];
    int64_t problems; /* product of batch_shape */
};

/* Reads a job whose descriptor checks passed; refuses what does not fit together. */
int blasd_regression_read(const struct blasd_job *job, struct regression_shape *shape,
                          struct blasd_err *err);

/* One problem: a batch element of one task. */
struct regression_data {
    const double *x; /* n x p, row-major */
    const double *y; /* n x t, row-major */
    const double *w; /* n weights, or NULL */
};

/* What a fit found; arrays are the caller's. Coefficients count from the intercept, where there is
 * one. */
struct regression_fit {
    double *coef;     /* t x q: one target after the other */
    double *residual; /* t x n: y - Xb */
    double *ssr;      /* t: sum of w r^2 */
    double *tss;      /* t: the same of y, less its mean where there is an intercept */
    int64_t rank;
};

/* Least squares in double-double throughout: the way for problems small enough. */
struct regression_small;
/* New: free with blasd_regression_small_free. NULL where memory has run out. */
struct regression_small *blasd_regression_small_new(const struct regression_shape *shape);
void blasd_regression_small_free(struct regression_small *small); /* takes NULL */
int blasd_regression_small_fit(struct regression_small *small, const struct regression_data *data,
                               struct regression_fit *fit, struct blasd_err *err);

#endif
