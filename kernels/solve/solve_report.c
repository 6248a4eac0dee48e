/* What a solve job says of its systems: outputs, errors, warnings and the name of the method.
 * Read next: solve_report.h. */
#include "kernels/solve/solve_report.h"

#include "core/wanted.h"

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
    if (s->batch_rank > 0 || info <= 0) return false;
    blasd_solve_refuse(task, info, (flags & BLASD_SOLVE_SINGULAR) != 0);
    return true;
}

/* What is known of the systems of a job, in numbers. */
struct tally {
    double unit, range; /* range: of backward_error, above which it is large */
    int64_t failed, refined, first_ill;
    int64_t counts[BLASD_SOLVE_METHOD_COUNT];
    int64_t doubts[BLASD_W_not_symmetric + 1]; /* systems, by the number of the warning */
    int64_t lost;                              /* of those of precision_loss, by small elements */
    double least_rcond, worst_estimate;
};

/* How far x is from the solution, against its largest element. Refinement that came to rest leaves
 * the last digit; else it is what the condition makes of the equations. */
static double estimate(const struct tally *tally, double error, double rcond, int flags) {
    double most = (flags & BLASD_SOLVE_DOUBTFUL) != 0 ? 1 : 2 * error / rcond;
    if (isnan(error) || isinf(error)) return error;
    if ((flags & (BLASD_SOLVE_DOUBTFUL | BLASD_SOLVE_SETTLED)) == BLASD_SOLVE_SETTLED)
        most = fmax(tally->unit, error);
    return error == 0 && most != 1 ? 0 : fmin(most, 1);
}

/* The doubts about a system that is solved; returns the number of the worst about x, or 0. */
static int take_doubts(struct tally *tally, double error, double estimate, int flags) {
    static const int worst_first[] = {BLASD_W_near_singular,  BLASD_W_overflow,
                                      BLASD_W_precision_loss, BLASD_W_underflow,
                                      BLASD_W_inexact,        BLASD_W_not_symmetric};
    bool doubtful = (flags & BLASD_SOLVE_DOUBTFUL) != 0;
    bool vanished = (flags & BLASD_SOLVE_VANISHED) != 0, lost = (flags & BLASD_SOLVE_LOST) != 0;
    bool half = !doubtful && !vanished && estimate > sqrt(tally->unit) && isfinite(error);
    bool has[BLASD_W_not_symmetric + 1] = {[BLASD_W_near_singular] = doubtful,
                                           [BLASD_W_overflow] = !isfinite(error),
                                           [BLASD_W_precision_loss] = lost || half,
                                           [BLASD_W_underflow] = vanished,
                                           [BLASD_W_inexact] = isfinite(error) &&
                                                               error > tally->range && !vanished};
    int worst = 0;
    for (size_t i = 0; i < sizeof worst_first / sizeof *worst_first; i++) {
        tally->doubts[worst_first[i]] += has[worst_first[i]];
        if (worst == 0 && has[worst_first[i]]) worst = worst_first[i];
    }
    tally->lost += lost;
    if (half) tally->worst_estimate = fmax(tally->worst_estimate, estimate);
    return worst;
}

static void name_method(struct blasd_task *task, const struct tally *tally) {
    const char *how;
    int main_method = BLASD_SOLVED_NOT;
    for (int m = 1; m < BLASD_SOLVE_METHOD_COUNT; m++)
        if (tally->counts[m] > tally->counts[main_method] || main_method == BLASD_SOLVED_NOT)
            main_method = tally->counts[m] > 0 ? m : main_method;
    how = blasd_solve_method_name((enum blasd_solve_method)main_method);
    snprintf(task->method, sizeof task->method, "%s%s", how, tally->refined > 0 ? "+refine" : "");
    if (main_method != BLASD_SOLVED_QR && tally->counts[BLASD_SOLVED_QR] > 0)
        snprintf(task->method, sizeof task->method, "%s+refine, qr for %lld", how,
                 (long long)tally->counts[BLASD_SOLVED_QR]);
}

static void warn(struct blasd_task *task, const struct blasd_solve *s, const struct tally *tally,
                 const char *dtype) {
    const int64_t *doubts = tally->doubts;
    if (doubts[BLASD_W_not_symmetric] > 0)
        blasd_task_warn(task, BLASD_W_not_symmetric,
                        "%s not symmetric: the upper triangle was used",
                        s->batch_rank == 0 ? "a is" : "some of the matrices are");
    if (doubts[BLASD_W_near_singular] > 0 && s->batch_rank == 0)
        blasd_task_warn(task, BLASD_W_near_singular,
                        "a is nearly singular (rcond %.2g): x may have no correct digit",
                        tally->least_rcond);
    else if (doubts[BLASD_W_near_singular] > 0)
        blasd_task_warn(task, BLASD_W_near_singular,
                        "%lld systems, the first at %lld, are nearly singular (rcond down to "
                        "%.2g): x may have no correct digit",
                        (long long)doubts[BLASD_W_near_singular], (long long)tally->first_ill,
                        tally->least_rcond);
    if (tally->failed > 0 && s->batch_rank > 0)
        blasd_task_warn(task, BLASD_W_no_solution,
                        "%lld of %lld systems have no solution: see info", (long long)tally->failed,
                        (long long)s->batch_count);
    if (doubts[BLASD_W_inexact] > 0)
        blasd_task_warn(task, BLASD_W_inexact,
                        "%lld systems have a large backward_error: let them be refined",
                        (long long)doubts[BLASD_W_inexact]);
    if (tally->lost > 0)
        blasd_task_warn(task, BLASD_W_precision_loss,
                        "%lld systems have solutions whose smallest elements may have no correct "
                        "digit",
                        (long long)tally->lost);
    if (tally->worst_estimate > 0)
        blasd_task_warn(task, BLASD_W_precision_loss,
                        "some solutions may have fewer than half of their digits (error_estimate "
                        "up to %.2g)",
                        tally->worst_estimate);
    if (doubts[BLASD_W_underflow] > 0)
        blasd_task_warn(task, BLASD_W_underflow,
                        "%lld systems have solutions below the range of %s, which have lost digits",
                        (long long)doubts[BLASD_W_underflow], dtype);
    if (doubts[BLASD_W_overflow] > 0)
        blasd_task_warn(
            task, BLASD_W_overflow,
            "%lld systems have solutions beyond the range of %s; their small elements may be lost",
            (long long)doubts[BLASD_W_overflow], dtype);
}

void blasd_solve_sum_up(struct blasd_task *task, const struct blasd_solve *s, bool single,
                        const int *flags) {
    int64_t *info = task->outputs[BLASD_SOLVE_INFO].data, done = 0;
    const int64_t *method = task->outputs[BLASD_SOLVE_METHOD].data;
    const int64_t *steps = task->outputs[BLASD_SOLVE_STEPS].data;
    const double *rcond = task->outputs[BLASD_SOLVE_RCOND].data;
    const double *error = task->outputs[BLASD_SOLVE_BACKWARD_ERROR].data;
    double *estimates = task->outputs[BLASD_SOLVE_ERROR_ESTIMATE].data;
    struct tally tally = {
        .unit = single ? 0x1p-24 : 0x1p-53, .first_ill = -1, .least_rcond = INFINITY};
    tally.range = 16 * (double)s->n * tally.unit;
    for (int64_t i = 0; i < s->batch_count && blasd_wanted_after(&done, 10); i++) {
        int worst;
        tally.counts[method[i]]++;
        tally.refined += steps[i] > 0;
        tally.failed += info[i] > 0;
        estimates[i] = info[i] > 0 ? (double)NAN : estimate(&tally, error[i], rcond[i], flags[i]);
        tally.doubts[BLASD_W_not_symmetric] += (flags[i] & BLASD_SOLVE_UNSYMMETRIC) != 0;
        if (info[i] > 0) continue;
        worst = take_doubts(&tally, error[i], estimates[i], flags[i]);
        if (s->batch_rank > 0) info[i] = -worst; /* the job's warnings are those of its only one */
        if (worst != BLASD_W_near_singular) continue;
        if (tally.first_ill < 0) tally.first_ill = i;
        tally.least_rcond = fmin(tally.least_rcond, rcond[i]);
    }
    name_method(task, &tally);
    warn(task, s, &tally, single ? "float32" : "float64");
}

/* No unknowns: nothing to solve, and nothing wrong. */
void blasd_solve_answer_empty(struct blasd_task *task, const struct blasd_solve *s) {
    int64_t done = 0;
    for (int64_t i = 0; i < s->batch_count && blasd_wanted_after(&done, 30); i++)
        for (int o = BLASD_SOLVE_INFO; o <= BLASD_SOLVE_ERROR_ESTIMATE; o++)
            blasd_solve_put(task, o, i, o == BLASD_SOLVE_RCOND ? 1 : 0, 0);
    snprintf(task->method, sizeof task->method, "none");
}
