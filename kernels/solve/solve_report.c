/* What a solve job says of its systems: outputs, errors, warnings and the name of the method.
 * Read next: solve_report.h. */
#include "kernels/solve/solve_report.h"

#include "core/wanted.h"

#include <float.h>
#include <math.h>
#include <stdio.h>

void blasd_solve_put(const struct blasd_task *task, int output, int64_t item, double number,
                     int64_t whole) {
    const struct blasd_tensor *out = &task->outputs[output];
    if (out->dtype == BLASD_int64)
        ((int64_t *)out->data)[item] = whole;
    else
        ((double *)out->data)[item] = number;
}

void blasd_solve_refuse(struct blasd_task *task, int64_t info, bool singular) {
    if (singular)
        blasd_fail(&task->err, BLASD_E_singular_matrix, "inputs.a",
                   "the pivot of column %lld (counted from 1) is exactly zero", (long long)info);
    else
        blasd_fail(&task->err, BLASD_E_not_positive_definite, "inputs.a",
                   "the leading minor of order %lld is not positive", (long long)info);
}

bool blasd_solve_refused(struct blasd_task *task, const struct blasd_solve *s, int flags) {
    int64_t info = *(const int64_t *)task->outputs[BLASD_SOLVE_INFO].data;
    if (s->batch_rank > 0 || info == 0) return false;
    blasd_solve_refuse(task, info, (flags & BLASD_SOLVE_SINGULAR) != 0);
    return true;
}

/* What the user should know of a job's systems, and how they were solved, in words. */
void blasd_solve_sum_up(struct blasd_task *task, const struct blasd_solve *s, bool single,
                        const int *flags, const char *how) {
    const int64_t *info = task->outputs[BLASD_SOLVE_INFO].data;
    const int64_t *method = task->outputs[BLASD_SOLVE_METHOD].data;
    const int64_t *steps = task->outputs[BLASD_SOLVE_STEPS].data;
    const double *rcond = task->outputs[BLASD_SOLVE_RCOND].data;
    const double *error = task->outputs[BLASD_SOLVE_BACKWARD_ERROR].data;
    double least = (double)s->n * (single ? (double)FLT_EPSILON : DBL_EPSILON), worst = INFINITY;
    int64_t ill = 0, first = -1, failed = 0, overflowed = 0, inexact = 0, done = 0;
    int64_t unsymmetric = 0, lost = 0, vanished = 0;
    int64_t counts[BLASD_SOLVE_METHOD_COUNT] = {0};
    bool refined = false;
    int main_method = BLASD_SOLVED_NOT;
    for (int64_t i = 0; i < s->batch_count && blasd_wanted_after(&done, 10); i++) {
        counts[method[i]]++;
        refined = refined || steps[i] > 0;
        failed += info[i] != 0;
        unsymmetric += (flags[i] & BLASD_SOLVE_UNSYMMETRIC) != 0;
        if (info[i] != 0) continue;
        overflowed += !isfinite(error[i]);
        lost += (flags[i] & BLASD_SOLVE_LOST) != 0;
        vanished += (flags[i] & BLASD_SOLVE_VANISHED) != 0;
        inexact += isfinite(error[i]) && error[i] > 8 * least && /* 16 n u */
                   (flags[i] & BLASD_SOLVE_VANISHED) == 0;
        if ((flags[i] & BLASD_SOLVE_DOUBTFUL) == 0) continue;
        if (first < 0) first = i;
        ill++;
        worst = rcond[i] < worst ? rcond[i] : worst;
    }
    for (int m = 1; m < BLASD_SOLVE_METHOD_COUNT; m++)
        if (counts[m] > counts[main_method] || main_method == BLASD_SOLVED_NOT)
            main_method = counts[m] > 0 ? m : main_method;
    snprintf(task->method, sizeof task->method, "%s%s",
             how != NULL ? how : blasd_solve_method_name((enum blasd_solve_method)main_method),
             refined ? "+refine" : "");
    if (main_method != BLASD_SOLVED_QR && counts[BLASD_SOLVED_QR] > 0)
        snprintf(task->method, sizeof task->method, "%s+refine, qr for %lld",
                 how != NULL ? how : blasd_solve_method_name((enum blasd_solve_method)main_method),
                 (long long)counts[BLASD_SOLVED_QR]);
    if (unsymmetric > 0)
        blasd_task_warn(task, BLASD_W_not_symmetric,
                        "%s not symmetric: the upper triangle was used",
                        s->batch_rank == 0 ? "a is" : "some of the matrices are");
    if (ill > 0 && s->batch_rank == 0)
        blasd_task_warn(task, BLASD_W_near_singular,
                        "a is nearly singular (rcond %.2g): x may have no correct digit", worst);
    else if (ill > 0)
        blasd_task_warn(task, BLASD_W_near_singular,
                        "%lld systems, the first at %lld, are nearly singular (rcond down to "
                        "%.2g): x may have no correct digit",
                        (long long)ill, (long long)first, worst);
    if (failed > 0 && s->batch_rank > 0)
        blasd_task_warn(task, BLASD_W_no_solution,
                        "%lld of %lld systems have no solution: see info", (long long)failed,
                        (long long)s->batch_count);
    if (inexact > 0)
        blasd_task_warn(task, BLASD_W_inexact,
                        "%lld systems have a large backward_error: let them be refined",
                        (long long)inexact);
    if (lost > 0)
        blasd_task_warn(task, BLASD_W_precision_loss,
                        "%lld systems have solutions whose smallest elements may have no correct "
                        "digit",
                        (long long)lost);
    if (vanished > 0)
        blasd_task_warn(task, BLASD_W_underflow,
                        "%lld systems have solutions below the range of %s, which have lost digits",
                        (long long)vanished, single ? "float32" : "float64");
    if (overflowed > 0)
        blasd_task_warn(task, BLASD_W_overflow,
                        "%lld systems have solutions beyond the range of %s", (long long)overflowed,
                        single ? "float32" : "float64");
}

/* No unknowns: nothing to solve, and nothing wrong. */
void blasd_solve_answer_empty(struct blasd_task *task, const struct blasd_solve *s) {
    int64_t done = 0;
    for (int64_t i = 0; i < s->batch_count && blasd_wanted_after(&done, 30); i++)
        for (int o = BLASD_SOLVE_INFO; o <= BLASD_SOLVE_METHOD; o++)
            blasd_solve_put(task, o, i, o == BLASD_SOLVE_RCOND ? 1 : 0, 0);
    snprintf(task->method, sizeof task->method, "none");
}
