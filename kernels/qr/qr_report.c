/* What a qr job says of its matrices, the same on every backend. Knows no BLAS.
 * Read next: qr.h. */
#include "core/wanted.h"
#include "kernels/qr/qr.h"

#include <math.h>
#include <stdio.h>

void blasd_qr_scale(const struct blasd_qr *qr, double *a, int *e) {
    int64_t m = qr->stack.m;
    for (int64_t j = 0; j < qr->stack.n; j++) e[j] = blasd_stack_scale(m, a + j * m);
}

void blasd_qr_answer(struct blasd_task *task, const struct blasd_qr *qr, int64_t item, double *r,
                     const int *e) {
    int64_t done = 0;
    for (int64_t j = 0; j < qr->stack.n && blasd_wanted_after(&done, e[j] != 0 ? j : 0); j++)
        for (int64_t i = 0; e[j] != 0 && i <= j && i < qr->rows; i++)
            r[j * qr->rows + i] = ldexp(r[j * qr->rows + i], -e[j]);
    blasd_stack_store(&task->outputs[BLASD_QR_R], item, qr->rows, qr->stack.n, r, qr->rows, false,
                      0);
}

void blasd_qr_finish(struct blasd_task *task, const struct blasd_qr *qr, bool look_at_r) {
    static const int figures[] = {BLASD_QR_RESIDUAL, BLASD_QR_ORTHOGONALITY, -1};
    blasd_stack_clear_info(task, &qr->stack);
    snprintf(task->method, sizeof task->method, "householder");
    if (qr->mode != BLASD_QR_R_ALONE) blasd_stack_judge(task, &qr->stack, figures);
    if (look_at_r) blasd_stack_judge_range(task, &qr->stack, BLASD_QR_R, "R", 0);
}
