/* What an svd job means, for the plan and for every backend. Read next: op_svd.c. */
#ifndef BLASD_KERNELS_SVD_H
#define BLASD_KERNELS_SVD_H

#include "kernels/lapack/stack.h"

#define BLASD_DECLARED "kernels/svd/svd.def"
#include "core/op_enums.h"

/* The job as the singular values of a tall matrix: a itself, or its transpose where it is wide. */
struct blasd_svd {
    struct blasd_stack stack;
    bool wide, vectors;
    int64_t rows, columns; /* of the tall matrix, rows >= columns */
    int64_t left;          /* of its left vectors: columns, or rows where all are wanted */
};
int blasd_svd_read(const struct blasd_job *job, struct blasd_svd *ret, struct blasd_err *err);
double blasd_svd_flops(const struct blasd_svd *svd);

/* What is the same on every backend (svd_report.c). */

/* Of the tall matrix times 2^e: s, the left vectors u (rows x left), the right ones vt (columns x
 * columns), both column-major, into the outputs of an item. */
void blasd_svd_answer(struct blasd_task *task, const struct blasd_svd *svd, int64_t item,
                      const double *s, const double *u, const double *vt, int e);
void blasd_svd_refuse(struct blasd_task *task, const struct blasd_svd *svd, int64_t item);
void blasd_svd_finish(struct blasd_task *task, const struct blasd_svd *svd);

#endif
