/* What the files of regression share: a job as numbers, a problem's triangular factor, and a fit.
 *
 * A least-squares problem is first turned into a factor: a triangle of q columns that holds all the
 * data say about the coefficients. Three files make one: qr_small.c in double-double, qr_tall.c for
 * many observations, wide_factor.c (from the data as they are) for more coefficients than
 * observations. Everything else works on it. Read next: op_regression.c (what may be asked),
 * cpu_regression.c (who runs what), README.md. */
#ifndef BLASD_REGRESSION_H
#define BLASD_REGRESSION_H

#include "core/job.h"

struct blasd_task;
struct blasd_walk;
struct blasd_watch;
struct blasd_cpu_progress;
struct regression_dense;
struct regression_counts;

/* Positions in the descriptor. */
#define BLASD_DECLARED "kernels/regression/regression.def"
#include "core/op_enums.h"

/* The orders are those of the parameters' choices. */
enum regression_method { METHOD_OLS, METHOD_RIDGE, METHOD_LASSO, METHOD_ELASTIC_NET, METHOD_GD };
enum regression_cov { COV_NONROBUST, COV_HC0, COV_HC1, COV_HC2, COV_HC3 };

/* How the factor is made. */
enum regression_way { WAY_SMALL, WAY_TALL, WAY_WIDE, WAYS };

/* A job as numbers. A plain value, the same for all tasks of a batch. */
struct regression_shape {
    enum regression_method method;
    enum regression_way way;
    enum regression_cov cov;
    bool intercept, weighted;
    bool many;                           /* y has a dimension of targets */
    bool use_t;                          /* t and not the normal distribution */
    bool residuals, cov_params, certify; /* asked for */
    bool correct;                        /* coef and sums are the nearest to the exact ones */
    int64_t n, p, q, t; /* observations, features, coefficients with intercept, targets */
    double alpha, l1_ratio, tol, learning_rate, level, rcond;
    int64_t iterations;       /* of gd; most, of lasso and elastic_net */
    enum blasd_dtype storage; /* of coef, intercept, residuals, fitted */
    double sent, sent_y;      /* units of rounding of the dtypes that x and y were sent in */
    int batch_rank;
    int64_t batch_shape[BLASD_MAX_RANK];
    int64_t problems; /* product of batch_shape */
    bool grouped; /* rows are cut by row_splits: problems are groups, and n is all rows, or those of
                   * the group at hand, which begin at row `from` */
    int64_t from;
    const struct regression_dense *dense; /* set by the backend: NULL from the reading */
};

/* Reads a job whose descriptor checks passed; refuses what does not fit together. */
int blasd_regression_read(const struct blasd_job *job, struct regression_shape *shape,
                          struct blasd_err *err);

/* lasso and elastic_net whose penalty has no absolute values in it are ridge: no sweep finds the
 * answer as well, and the duality gap says nothing. The second is that ridge, for weights (or
 * observations) that add up to `total`. */
bool blasd_regression_smooth(const struct regression_shape *shape);
struct regression_shape blasd_regression_as_ridge(const struct regression_shape *shape,
                                                  double total);

/* ways.c: sets shape->way, of a shape that is read but for that. */
void blasd_regression_choose_way(struct regression_shape *shape);
/* Whether a problem may be done again in double-double where its condition asks for it. */
bool blasd_regression_doubled(const struct regression_shape *shape);

/* groups.c: whether row_splits of a task are as they must be. */
int blasd_regression_splits(const struct regression_shape *shape, const struct blasd_task *task,
                            struct blasd_err *err);
/* The shape of problem `at` of a task: of a group that of a job with its rows alone. */
struct regression_shape blasd_regression_one(const struct regression_shape *shape,
                                             const struct blasd_task *task, int64_t at);
/* Where problem `at`, whose shape this is, has its rows in outputs like y. */
static inline int64_t blasd_regression_first_row(const struct regression_shape *shape, int64_t at) {
    return shape->grouped ? shape->from : at * shape->n;
}
/* How many singular values the output has for each problem. */
static inline int64_t blasd_regression_values(const struct regression_shape *shape) {
    return shape->n < shape->q && !shape->grouped ? shape->n : shape->q;
}

/* One problem: a batch element of one task. */
struct regression_data {
    const double *x; /* n x p, row-major */
    const double *y; /* n x t, row-major */
    const double *w; /* n weights, or NULL */
    double total;    /* sum of the weights, or n */
    double rest;     /* what rounding took from it: in double-double it is the two */
    int64_t without; /* observations of weight 0 */
};

/* A walk over the problems of a task that stands at problem `at`; what the problem there is made
 * of, without its total. */
void blasd_regression_walk(const struct regression_shape *shape, const struct blasd_task *task,
                           int64_t at, struct blasd_walk *walk);
struct regression_data blasd_regression_data(const struct regression_shape *shape,
                                             const struct blasd_task *task,
                                             const struct blasd_walk *walk);
/* Sets data->total, rest and without; refuses weights that are negative or all 0. */
int blasd_regression_weights(const struct regression_shape *shape, struct regression_data *data,
                             struct blasd_err *err);

/* What keeps a group from being fitted: 0, or what `info` says. */
enum { GROUP_EMPTY = -1, GROUP_NOT_FINITE = -2, GROUP_WITHOUT_WEIGHT = -3 };
int blasd_regression_group_fault(const struct regression_shape *shape,
                                 const struct regression_data *data);
/* The outputs of group `at` that has no fit. */
void blasd_regression_without_fit(const struct regression_shape *shape, struct blasd_task *task,
                                  int64_t at, int fault, struct regression_counts *counts);

/* What is worth a warning, of a problem or of its targets; the worst first. */
enum regression_doubt {
    DOUBT_DIVERGED,
    DOUBT_INFINITE,
    DOUBT_UNCONVERGED,
    DOUBT_UNSURE,
    DOUBT_ILL,
    DOUBT_DEFICIENT,
    DOUBT_TRUNCATED,
    DOUBT_SATURATED,
    DOUBT_UNWEIGHTED,
    DOUBT_ALONE,
    DOUBT_MET,
    DOUBT_CONSTANT,
    DOUBT_WORSE,
    DOUBT_UNPROVEN,
    DOUBT_NO_FIT, /* of a group */
    DOUBTS
};
/* How often each is said of a task's problems, or targets of them; and of the worst of those what
 * it is about. */
struct regression_counts {
    int64_t of[DOUBTS];
    int64_t rank;                /* least */
    double doubt, kept, dropped; /* largest; singular values about rcond */
};

/* With columns of the weighted [1 X] less shift[j], divided by 2^exponent[j], and targets less
 * shift[q + l], by 2^exponent[q + l], the sum of squares of target l is |R b - z|^2 + rest[l] for
 * every b. Shifts are 0 without an intercept, which makes up for them. */
struct regression_factor {
    int64_t rows;  /* of r: q, or n where there are fewer observations than coefficients */
    bool triangle; /* r is upper triangular */
    double *r;     /* rows x q, row-major; below its first row the intercept's column is 0 */
    double *z;     /* rows x t, row-major */
    double *rest;  /* t, in the units of y squared */
    double *shift; /* q + t, or NULL: none */
    double *range; /* 2 (q + t): room */
    int *exponent; /* q + t */
    double noise;  /* what rounding leaves of a column that depends on others, against its size */
};
/* Memory for a factor of `rows` rows; false where that has run out. Free it with
 * blasd_regression_factor_release, in either case. */
bool blasd_regression_factor_alloc(struct regression_factor *factor,
                                   const struct regression_shape *shape, int64_t rows);
/* Takes one that is zeroed. */
void blasd_regression_factor_release(struct regression_factor *factor);

/* The factor's shifts, which are exact, and exponents: |element - shift| < 2^exponent, and of ridge
 * the root of the penalty too. */
void blasd_regression_settle(const struct regression_shape *shape,
                             const struct regression_data *data, struct regression_factor *factor);

struct dd;

enum { CRITICALS = 128 };

/* What a fit found; arrays are the caller's. Coefficients count from the intercept, where there is
 * one, and are in the units of the data. */
struct regression_fit {
    double *coef;  /* t x q: one target after the other */
    double *ssr;   /* t: sum of w r^2 */
    int64_t rank;  /* of [1 X] */
    double *basis; /* q x spread, row-major: (X'WX)^+ = basis basis'; ols only */
    int64_t spread;
    /* V of the weighted [1 X] = V U in double-double: q orthogonal columns, `stride` apart, and the
     * squares of their lengths; NULL: there is none. Borrowed from what solved, until that solves
     * again. */
    const double *orthogonal, *low;
    const struct dd *squares;
    int64_t stride;
    double *residual; /* t x n: y - Xb; filled only where `need_residuals` */
    bool need_residuals;
    /* t x spread x spread, symmetric: the middle of the robust covariance; NULL: made from data and
     * residuals */
    const double *middle;
    double *singular;    /* min(n, q), falling; ols only */
    double cond;         /* ols only */
    double doubt;        /* what rounding of x as it was sent may be of what is a feature's own */
    int64_t *n_iter;     /* t: lasso, elastic_net */
    double *dual_gap;    /* t: lasso, elastic_net */
    int64_t unconverged; /* targets that did not reach tol */
    double *gradient;    /* t: gd's, its length at the end */
    int64_t *converged;  /* t: gd; whether that is small against the one at the start */
    int64_t diverged;    /* targets of gd where it grew */
    bool unsure;         /* rounding may have spoilt it */
    bool alone;     /* with robust errors: an observation of leverage 1 decides something alone */
    bool unproven;  /* a coefficient has no bound on its error */
    bool truncated; /* rcond lowered the rank */
    double kept, dropped; /* then: the last singular value above it, the first below */
    /* quantiles that were asked for, each where its degrees of freedom say: of the next fits too */
    struct {
        double df, value;
    } critical[CRITICALS];
};

/* Least squares in double-double throughout: the way for problems small enough, and for tall ones
 * whose condition asks for it. New: free with blasd_regression_small_free. NULL where memory has
 * run out. */
struct regression_small;
struct regression_small *blasd_regression_small_new(const struct regression_shape *shape);
void blasd_regression_small_free(struct regression_small *small); /* takes NULL */
/* The next problem has this shape, borrowed, of no more rows than the one it was made for. */
void blasd_regression_small_next(struct regression_small *small,
                                 const struct regression_shape *shape);
/* Makes the factor. cancelled where the progress says so. */
int blasd_regression_small_factor(struct regression_small *small,
                                  const struct regression_data *data,
                                  struct regression_factor *factor,
                                  struct blasd_cpu_progress *progress, struct blasd_err *err);
/* After it, where the rank is full: coefficients, ssr, basis and residuals to the last digit. Of
 * ridge without a basis, and fit->unsure says whether rounding may have reached that digit. */
void blasd_regression_small_solve(struct regression_small *small,
                                  const struct regression_data *data, struct regression_fit *fit);
/* After it: [1 X]'W[1 X y] of the shifted and scaled columns, q x (q + t), row-major, on and above
 * the diagonal. */
void blasd_regression_small_gram(const struct regression_small *small, struct dd *g);

/* The same for many observations: QR of chunks in double, then refinement with residuals in
 * double-double. */
struct regression_tall;
struct regression_tall *blasd_regression_tall_new(const struct regression_shape *shape);
void blasd_regression_tall_free(struct regression_tall *tall); /* takes NULL */
/* As blasd_regression_small_next. */
void blasd_regression_tall_next(struct regression_tall *tall, const struct regression_shape *shape);
/* cancelled where the progress says so. */
int blasd_regression_tall_factor(struct regression_tall *tall, const struct regression_data *data,
                                 struct regression_factor *factor,
                                 struct blasd_cpu_progress *progress, struct blasd_err *err);
/* Improves fit->coef, of full rank, with the factor just made, and fills ssr; of ridge, whose
 * factor has the penalty in it, too. `shape`: what is fitted, which may be elastic_net's ridge. */
int blasd_regression_tall_refine(struct regression_tall *tall, const struct regression_shape *shape,
                                 const struct regression_data *data,
                                 const struct regression_factor *factor, struct regression_fit *fit,
                                 struct blasd_cpu_progress *progress, struct blasd_err *err);

/* The factor of a problem with more coefficients than observations: its data, turned so that the
 * first row alone holds the means. */
int blasd_regression_wide_factor(const struct regression_shape *shape,
                                 const struct regression_data *data,
                                 struct regression_factor *factor, struct blasd_err *err);

/* A bound on the condition number of the features less their means, scaled to length 1, and on how
 * far such a mean lies from its feature's values; infinite where a feature is constant. Of
 * triangles; `work` holds q x q numbers. */
double blasd_regression_condition(const struct regression_shape *shape,
                                  const struct regression_factor *factor, double *work);

/* Whether n values, `step` apart, leave the last binary places of their dtype free, whose unit of
 * rounding is `sent`: whole numbers, quarters. Then nothing was rounded when they were made. */
bool blasd_regression_exact(const double *values, int64_t step, int64_t n, double sent);
/* From this fit->doubt on fewer than three digits of a coefficient are sure. */
#define BLASD_REGRESSION_DOUBT 0x1p-10
/* The numerical rank of [1 X], decided on columns scaled to equal length, so that units of
 * measurement do not matter, and then by rcond: fit->rank. Where it is less than q, also the
 * coefficients of least norm (the intercept is not part of the norm) and the basis. */
int blasd_regression_rank(const struct regression_shape *shape,
                          const struct regression_factor *factor,
                          const struct regression_data *data, struct regression_fit *fit,
                          struct blasd_err *err);
/* Coefficients and basis from a triangle of full rank; the intercept is still that of the shifted
 * columns. */
int blasd_regression_triangle(const struct regression_shape *shape,
                              const struct regression_factor *factor, struct regression_fit *fit,
                              struct blasd_err *err);
/* fit->singular of [1 X]. */
int blasd_regression_singular(const struct regression_shape *shape,
                              const struct regression_factor *factor, struct regression_fit *fit,
                              struct blasd_err *err);
/* The intercept of the data from coefficients b of the shifted and scaled columns. */
double blasd_regression_unshift(const struct regression_shape *shape,
                                const struct regression_factor *factor, const struct dd *b,
                                int64_t target);
/* fit->cond, from the singular values and, of full rank, the basis. */
void blasd_regression_cond(const struct regression_shape *shape, struct regression_fit *fit);
/* Means: the intercept that goes with coefficients b (in the data's units, from 1) of one target.
 */
double blasd_regression_intercept(const struct regression_shape *shape,
                                  const struct regression_factor *factor, const double *b,
                                  int64_t target);

/* The triangle and z of a tall factor become those of the data with the penalty's rows below. */
int blasd_regression_ridge_triangle(const struct regression_shape *shape,
                                    struct regression_factor *factor, struct blasd_err *err);
/* ridge from the factor of a wide problem. *doubt: what its coefficients' error is of rounding, at
 * most or so; infinite where features differ in size so much that doubles do not do. */
int blasd_regression_ridge(const struct regression_shape *shape,
                           const struct regression_factor *factor, struct regression_fit *fit,
                           double *doubt, struct blasd_err *err);
/* lasso and elastic_net from a factor of targets that were divided by 2^far[l]. */
int blasd_regression_coordinate(const struct regression_shape *shape,
                                const struct regression_factor *factor, double total,
                                const int *far, struct regression_fit *fit,
                                struct blasd_cpu_progress *progress, struct blasd_err *err);
/* The same from fit->coef, of few coefficients, with the factor of `small` just made: what is
 * solved in double-double; where that comes to no end they stay as they are. fit->unsure. */
#define BLASD_REGRESSION_POLISHED 32 /* coefficients, at most */
int blasd_regression_polish(const struct regression_shape *shape,
                            const struct regression_data *data,
                            const struct regression_small *small,
                            const struct regression_factor *factor, const int *far,
                            struct regression_fit *fit, struct blasd_err *err);
/* gd, straight from the data. */
int blasd_regression_descend(const struct regression_shape *shape,
                             const struct regression_data *data, struct regression_fit *fit,
                             struct blasd_cpu_progress *progress, struct blasd_err *err);

/* How gd went, from the gradients (q x t, row-major, times `unit`) at its start and end. */
void blasd_regression_judge(const struct regression_shape *shape, const double *start,
                            const double *end, double unit, struct regression_fit *fit);

/* fit->residual from fit->coef, in double-double; with `ssr`, fit->ssr too and the intercept that
 * goes with the other coefficients as they are rounded. */
void blasd_regression_residuals(const struct regression_shape *shape,
                                const struct regression_data *data, struct regression_fit *fit,
                                bool ssr);
/* The same for coefficients b in double-double (t x p, in the data's units), whose intercept and
 * fit->ssr it finds. */
void blasd_regression_residuals_of(const struct regression_shape *shape,
                                   const struct regression_data *data, const struct dd *b,
                                   struct regression_fit *fit);
/* Weighted means of the features as two numbers each, in double-double. */
void blasd_regression_means(const struct regression_shape *shape,
                            const struct regression_data *data, double *hi, double *lo);
/* tss of each target, in double-double. */
void blasd_regression_tss(const struct regression_shape *shape, const struct regression_data *data,
                          double *tss);

/* A problem in units that keep squares in range: scaling.c. `on`: the outputs must be taken back.
 */
struct regression_scaling {
    bool on;
    int *target;       /* owned: t; targets are divided by 2^target */
    int weight;        /* weights are divided by 2^weight, which is even */
    int *column;       /* owned: q; features are multiplied by 2^column, coefficients divided */
    double *x, *y, *w; /* owned: the data in such units, where they are needed */
};
void blasd_regression_scaling_release(struct regression_scaling *scaling);
/* Before the fit: data->y and data->w become those of `scaling` where they are extreme. */
int blasd_regression_scale(const struct regression_shape *shape, struct regression_scaling *scaling,
                           struct regression_data *data, struct blasd_err *err);
/* The same where somebody else has found the exponents of t targets and then of the weights, and
 * fitted in those units: data->w alone is changed. */
int blasd_regression_scale_as(const struct regression_shape *shape,
                              struct regression_scaling *scaling, const int *exponents,
                              struct regression_data *data, struct blasd_err *err);
/* data->y too, for who looks at it after that. */
int blasd_regression_scale_targets(const struct regression_shape *shape,
                                   struct regression_scaling *scaling, struct regression_data *data,
                                   struct blasd_err *err);
/* After the fit, before the outputs: the same for data->x with fit->basis and fit->coef, where a
 * covariance matrix is asked for. */
int blasd_regression_scale_columns(const struct regression_shape *shape,
                                   struct regression_scaling *scaling, struct regression_data *data,
                                   struct regression_fit *fit, struct blasd_err *err);
/* The outputs of problem `at`, in place, in the user's units; residuals only where fit->residual
 * has them, for otherwise they were written in those units. */
void blasd_regression_unscale(const struct regression_shape *shape,
                              const struct regression_scaling *scaling, struct blasd_task *task,
                              int64_t at, struct regression_fit *fit);

/* The output error_bound of problem `at`, whose coefficients are there, from the data in the user's
 * units (weights in those of the fit) and the factor of the fit; fit->unproven. */
int blasd_regression_prove(const struct regression_shape *shape, const struct regression_data *data,
                           const struct regression_factor *factor, struct regression_fit *fit,
                           const struct blasd_task *task, int64_t at, struct blasd_err *err);

/* Fits all tasks of a batch on this machine's processors. */
int blasd_regression_tasks(struct blasd_task *tasks, int count, int threads,
                           struct blasd_watch *watch, struct blasd_err *err);

/* Element `at` of an output of floats. */
double blasd_regression_number(const struct blasd_tensor *tensor, int64_t at);
/* Whether a target of problem `at` does not vary, observations of weight 0 aside; without an
 * intercept: whether it is 0. */
bool blasd_regression_constant(const struct regression_shape *shape, const struct blasd_task *task,
                               int64_t at, int64_t target);
/* Notes what is worth a warning in the outputs of problem `at`, which are complete but for info. */
void blasd_regression_tally(const struct regression_shape *shape, const struct blasd_task *task,
                            int64_t at, const struct regression_data *data,
                            const struct regression_fit *fit, struct regression_counts *counts);
void blasd_regression_warn(const struct regression_shape *shape, struct blasd_task *task,
                           const struct regression_counts *counts);

/* The robust covariance (q x q) of a target's coefficients, and their F. Rows of coefficients that
 * have no residuals to tell their variance are 0. */
int blasd_regression_robust(const struct regression_shape *shape,
                            const struct regression_data *data, struct regression_fit *fit,
                            int64_t target, double *cov, double *f, struct blasd_err *err);
/* Whether fit->middle may not be enough for that: residuals and data are wanted in its place. */
bool blasd_regression_robust_suspect(const struct regression_shape *shape,
                                     const struct regression_fit *fit);
/* Writes every output of problem `at` of a task. */
int blasd_regression_outputs(const struct regression_shape *shape, struct blasd_task *task,
                             int64_t at, const struct regression_data *data,
                             struct regression_fit *fit, const double *tss, struct blasd_err *err);

#endif
