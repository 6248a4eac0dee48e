/* qr: what may be asked, what it makes and costs. Knows no backend.
 * Read next: README.md, then cpu_qr.c. */
#include "core/op.h"
#include "kernels/qr/qr.h"

static const char *const modes[] = {[BLASD_QR_REDUCED] = "reduced",
                                    [BLASD_QR_COMPLETE] = "complete",
                                    [BLASD_QR_R_ALONE] = "r",
                                    NULL};

#define BLASD_DECLARED "kernels/qr/qr.def"
#include "core/op_tables.h"

int blasd_qr_read(const struct blasd_job *job, struct blasd_qr *ret, struct blasd_err *err) {
    int code = blasd_stack_read(job, false, &ret->stack, err);
    if (code != 0) return code;
    ret->mode = (enum blasd_qr_mode)job->params[BLASD_QR_MODE].choice;
    ret->k = ret->stack.m < ret->stack.n ? ret->stack.m : ret->stack.n;
    ret->rows = ret->mode == BLASD_QR_COMPLETE ? ret->stack.m : ret->k;
    return 0;
}

double blasd_qr_flops(const struct blasd_qr *qr) {
    double m = (double)qr->stack.m, n = (double)qr->stack.n, k = (double)qr->k;
    double flops = 2 * m * n * k - 2.0 / 3 * k * k * k + 10 * m * n;
    if (qr->mode != BLASD_QR_R_ALONE) flops += 6 * m * k * (double)qr->rows;
    /* columns of Q beyond those of a are made, moved and checked: what that takes, as operations */
    if (qr->rows > qr->k) flops += 450 * m * (double)(qr->rows - qr->k);
    return flops;
}

static int plan(const struct blasd_job *job, struct blasd_plan *plan, struct blasd_err *err) {
    struct blasd_qr qr;
    double m, n;
    int code = blasd_qr_read(job, &qr, err);
    if (code != 0) return code;
    m = (double)qr.stack.m;
    n = (double)qr.stack.n;
    blasd_stack_plan(plan, job, &qr.stack, blasd_qr_flops(&qr),
                     m * n + (double)qr.rows * n + 64 * n +
                         (qr.mode == BLASD_QR_R_ALONE ? 0 : m * n + m * (double)qr.rows));
    if (qr.stack.rank > 0) blasd_stack_figure(plan, BLASD_QR_INFO, &qr.stack, BLASD_int64);
    blasd_stack_output(plan, BLASD_QR_R, &qr.stack, 2, qr.rows, qr.stack.n);
    if (qr.mode == BLASD_QR_R_ALONE) return 0;
    blasd_stack_output(plan, BLASD_QR_Q, &qr.stack, 2, qr.stack.m, qr.rows);
    blasd_stack_figure(plan, BLASD_QR_RESIDUAL, &qr.stack, BLASD_float64);
    blasd_stack_figure(plan, BLASD_QR_ORTHOGONALITY, &qr.stack, BLASD_float64);
    return 0;
}

const struct blasd_op blasd_op_qr = {
    .name = "qr",
    .summary = "QR factorisation, a = Q @ R",
    .doc = "As numpy.linalg.qr gives it, by Householder reflections without pivoting: computed in "
           "float64, columns scaled by powers of two where their elements are near the ends of "
           "the range, and rounded to the dtype of a.",
    .inputs = inputs,
    .outputs = outputs,
    .params = params,
    .plan = plan,
    .slower = 4,
    .sample = blasd_stack_sample};
