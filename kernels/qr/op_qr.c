/* qr: what may be asked, what it makes and costs. Knows no backend.
 * Read next: README.md, then cpu_qr.c. */
#include "core/op.h"
#include "kernels/qr/qr.h"

static const struct blasd_port inputs[] = {{.name = "a",
                                            .shape = "(..., m, n)",
                                            .doc = "Matrices of any shape: one or a stack of them.",
                                            BLASD_STACK_INPUT},
                                           {.name = NULL}};

static const struct blasd_port outputs[] = {
    [BLASD_QR_Q] = {.name = "Q",
                    .shape = "(..., m, k) or (..., m, m)",
                    .doc = "Orthonormal columns; k is the lesser of m and n.",
                    BLASD_STACK_OUTPUT(2),
                    .optional = true},
    [BLASD_QR_R] = {.name = "R",
                    .shape = "(..., k, n) or (..., m, n)",
                    .doc = "Upper triangular, with LAPACK's signs: numbers on the diagonal may be "
                           "negative.",
                    BLASD_STACK_OUTPUT(2)},
    [BLASD_QR_RESIDUAL] = {.name = "residual",
                           .doc = "Where there is Q, for each matrix: ||a - Q R|| / ||a|| in the "
                                  "Frobenius norm, columns far from 1 in size scaled by powers of "
                                  "two first, with what measuring it may have rounded.",
                           BLASD_STACK_FIGURE(BLASD_float64),
                           .optional = true},
    [BLASD_QR_ORTHOGONALITY] = {.name = "orthogonality",
                                .doc = "Where there is Q, for each matrix: ||Q' Q - 1|| in the "
                                       "Frobenius norm, of the products with the first k columns, "
                                       "with what measuring it may have rounded.",
                                BLASD_STACK_FIGURE(BLASD_float64),
                                .optional = true},
    {.name = NULL}};

static const char *const modes[] = {[BLASD_QR_REDUCED] = "reduced",
                                    [BLASD_QR_COMPLETE] = "complete",
                                    [BLASD_QR_R_ALONE] = "r",
                                    NULL};

static const struct blasd_param params[] = {
    [BLASD_QR_MODE] = {.name = "mode",
                       .doc =
                           "reduced: Q is m x k, R k x n. complete: m x m and m x n. r: R alone, "
                           "k x n.",
                       .kind = BLASD_PARAM_CHOICE,
                       .choices = modes},
    {.name = NULL}};

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
    .sample = blasd_stack_sample};
