/* What a cholesky job means, for the plan and for every backend. Read next: op_cholesky.c. */
#ifndef BLASD_KERNELS_CHOLESKY_H
#define BLASD_KERNELS_CHOLESKY_H

#include "kernels/lapack/stack.h"

#define BLASD_DECLARED "kernels/cholesky/cholesky.def"
#include "core/op_enums.h"

/* Beside a scaled diagonal, which is below 4: where an element is larger the matrix is not positive
 * definite, however large it is. It is cut to this, for an infinity makes pivots that are not
 * numbers, which LAPACK takes for positive ones. */
#define BLASD_CHOLESKY_MOST 8.0

/* The least eigenvalue is below || b || / || a^-1 b || for every b: these are so many, of ones and
 * minus ones that follow no pattern. Element i of vector r. */
#define BLASD_CHOLESKY_TRIALS 3
#define BLASD_CHOLESKY_MIX(x) ((((x) ^ (x) >> 15) * 0x85ebca77u >> 16 & 1) == 0 ? 1.0 : -1.0)
#define BLASD_CHOLESKY_TRIAL(i, r)                                                                 \
    BLASD_CHOLESKY_MIX(((uint32_t)(i)*BLASD_CHOLESKY_TRIALS + (uint32_t)(r) + 1) * 0x9e3779b1u)

double blasd_cholesky_flops(const struct blasd_stack *stack);

/* What is the same on every backend (cholesky_report.c). */

/* `a` (n x n, column-major, as read) becomes D A D with the powers of two 2^d[i] that bring its
 * diagonal to [1, 4): nothing is rounded, but what is beside it 2^-1074. Where `upper`, the upper
 * triangle is read, into the lower one. */
void blasd_cholesky_scale(int64_t n, double *a, bool upper, int *d);
/* L (n x n, lower) of the scaled matrix into the outputs of an item. */
void blasd_cholesky_answer(struct blasd_task *task, const struct blasd_stack *stack, int64_t item,
                           double *l, const int *d);
/* The leading minor of order `info` is not positive. */
void blasd_cholesky_refuse(struct blasd_task *task, const struct blasd_stack *stack, int64_t item,
                           int64_t info);
/* uneven: of the matrices so many are not symmetric. */
void blasd_cholesky_finish(struct blasd_task *task, const struct blasd_stack *stack,
                           int64_t uneven);

#endif
