/* What an lstsq job means, for the plan and for every backend. Read next: op_lstsq.c. */
#ifndef BLASD_KERNELS_LSTSQ_H
#define BLASD_KERNELS_LSTSQ_H

#include "kernels/lapack/stack.h"

#define BLASD_DECLARED "kernels/lstsq/lstsq.def"
#include "core/op_enums.h"

struct blasd_lstsq {
    struct blasd_stack stack; /* its batch is that of the results, not a's own */
    int64_t columns;          /* of b */
    int64_t k;                /* the lesser of m and n */
    bool vector;              /* b is one vector */
    double rcond;
    int a_rank, b_rank; /* of the batch dimensions of each */
    int64_t a_batch[BLASD_MAX_RANK], b_batch[BLASD_MAX_RANK];
};
int blasd_lstsq_read(const struct blasd_job *job, struct blasd_lstsq *ret, struct blasd_err *err);
double blasd_lstsq_flops(const struct blasd_lstsq *l);

/* What is the same on every backend (lstsq_report.c). */

/* How many of the singular values count. */
int64_t blasd_lstsq_rank(const struct blasd_lstsq *l, const double *s);
/* Powers of two by which a is scaled, and each column of b. */
struct blasd_lstsq_scale {
    int a, *b;
};
/* How far a right-hand side's x, as singular values give it, may be from the exact one, in units of
 * rounding: by those values (k of them, `rank` kept) and the lengths of x and its residual. From
 * the first on an x that is unique is computed with more digits, above the second a warning tells.
 */
#define BLASD_LSTSQ_REFINED 0x1p12
#define BLASD_LSTSQ_LOST 0x1p24
#ifdef __CUDACC__
#define BLASD_LSTSQ_BOTH __host__ __device__
#else
#define BLASD_LSTSQ_BOTH
#endif
static inline BLASD_LSTSQ_BOTH double blasd_lstsq_doubt(double largest, double least, double x,
                                                        double residual) {
    double condition = least > 0 ? largest / least : 1;
    return condition * (1 + (x > 0 && largest > 0 ? condition * (residual / (largest * x)) : 0));
}
/* Whether x is unique. */
static inline bool blasd_lstsq_unique(const struct blasd_lstsq *l, int64_t rank) {
    return rank == l->stack.n && l->stack.m >= l->stack.n;
}
/* One item on the host, whole. cpu_lstsq.c. */
void blasd_lstsq_on_host(const struct blasd_lstsq *l, struct blasd_task *task, int64_t item,
                         int threads);
/* x (n x columns, column-major) of the scaled problem as it is sent, where that is finite: rounded
 * to its dtype and at the ends of its range, so that what is said of it holds for it. */
void blasd_lstsq_round(const struct blasd_lstsq *l, double *x,
                       const struct blasd_lstsq_scale *scale);
/* r = b - a x of those columns (all column-major) where the r that is there, in float64, is little
 * of what is subtracted, size[c] in norms; size is overwritten. lstsq_residuals.c, on the CPU. */
void blasd_lstsq_near(const struct blasd_lstsq *l, int threads, const double *a, const double *x,
                      const double *b, double *size, double *r);
/* x (n x columns, column-major) and residuals b - a x (m x columns) of the scaled problem, s, the
 * rank, and || a' r || / (|| a || (|| a || || x || + || b ||)) into the outputs of an item. */
void blasd_lstsq_answer(struct blasd_task *task, const struct blasd_lstsq *l, int64_t item,
                        double *x, const double *r, const double *s, int64_t rank,
                        double optimality, const struct blasd_lstsq_scale *scale);
/* Whether digits of an item's x were lost, into info. */
void blasd_lstsq_tell(struct blasd_task *task, int64_t item, bool lost);
void blasd_lstsq_refuse(struct blasd_task *task, const struct blasd_lstsq *l, int64_t item);
/* `look_at_x`: unless all of x is known to be finite. */
void blasd_lstsq_finish(struct blasd_task *task, const struct blasd_lstsq *l, bool look_at_x);

#endif
