/* What a solve job says of its systems, the same on every backend. Knows no BLAS. */
#ifndef BLASD_KERNELS_SOLVE_REPORT_H
#define BLASD_KERNELS_SOLVE_REPORT_H

#include "core/kernel.h"
#include "kernels/solve/solve.h"

/* Writes one element of an output of float64 (number) or int64 (whole). */
void blasd_solve_put(const struct blasd_task *task, int output, int64_t item, double number,
                     int64_t whole);
/* The error of a job whose only system has no solution. */
void blasd_solve_refuse(struct blasd_task *task, int64_t info, bool singular);
/* Refuses a job that has but one system, which has no solution. Whether it did. */
bool blasd_solve_refused(struct blasd_task *task, const struct blasd_solve *s, int flags);
/* No unknowns: nothing to solve, and nothing wrong. */
void blasd_solve_answer_empty(struct blasd_task *task, const struct blasd_solve *s);
/* Warnings and the method's name, from the outputs and the flags of each system. */
void blasd_solve_sum_up(struct blasd_task *task, const struct blasd_solve *s, bool single,
                        const int *flags);

#endif
