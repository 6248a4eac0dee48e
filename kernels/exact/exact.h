/* Answers that are correctly rounded: what the operations call where params.rounding is "correct".
 *
 * Each element is the number of its dtype nearest to the exact result for the inputs as given, so
 * bits do not depend on the machine, the threads or the batch. Read next: sum.h (exact sums),
 * rounded_product.c (matmul),
 * rounded_pairs.c (distance), rounded_solve.c, ../../docs/rounding.md (the contract). */
#ifndef BLASD_KERNELS_EXACT_H
#define BLASD_KERNELS_EXACT_H

#include "core/kernel.h"

/* The choices of `rounding`, for op_NAME.c. */
enum { BLASD_ROUNDING_FAST, BLASD_ROUNDING_CORRECT };
#define BLASD_ROUNDING_NAMES                                                                       \
    { [BLASD_ROUNDING_FAST] = "fast", [BLASD_ROUNDING_CORRECT] = "correct", NULL }
/* Why the CPU alone runs such jobs: plan->host_only. */
#define BLASD_ROUNDING_HOST_ONLY "devices take rounding fast alone"

/* Refuses inputs whose elements a double need not hold: of int64, uint64 and complex dtypes. */
int blasd_exact_check(const struct blasd_job *job, struct blasd_err *err);

struct blasd_matmul;
struct blasd_cpu_progress;
/* A product, whose inputs are float64. False: stopped. */
bool blasd_exact_matmul(struct blasd_task *task, const struct blasd_matmul *mm, int threads,
                        struct blasd_cpu_progress *progress);

struct distance_shape;
/* What distance refuses; the distances of a task, whose points are float64. False: stopped. */
int blasd_exact_distance_check(const struct blasd_job *job, const struct distance_shape *shape,
                               struct blasd_err *err);
bool blasd_exact_distance(struct blasd_task *task, const struct distance_shape *shape, int threads,
                          struct blasd_watch *watch);

struct blasd_solve;
/* The systems of a task that was solved fast: x once more, with what is said of it. False: stopped.
 */
bool blasd_exact_solve(struct blasd_task *task, const struct blasd_solve *s, int threads,
                       struct blasd_watch *watch);

struct blasd_lstsq;
struct regression_shape;
/* x and residuals; coef, intercept, ssr, tss and r2, of a task that was fitted fast. A task may
 * fail for memory; where it is stopped, blasd_wanted() says so. */
void blasd_exact_lstsq(struct blasd_task *task, const struct blasd_lstsq *l, int threads);
void blasd_exact_ols(struct blasd_task *task, const struct regression_shape *shape, int threads);

#endif
