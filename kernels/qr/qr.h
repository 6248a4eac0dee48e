/* What a qr job means, for the plan and for every backend. Read next: op_qr.c. */
#ifndef BLASD_KERNELS_QR_H
#define BLASD_KERNELS_QR_H

#include "kernels/lapack/stack.h"

#define BLASD_DECLARED "kernels/qr/qr.def"
#include "core/op_enums.h"
enum blasd_qr_mode {
    BLASD_QR_REDUCED,
    BLASD_QR_COMPLETE,
    BLASD_QR_R_ALONE
}; /* the choices of mode */

struct blasd_qr {
    struct blasd_stack stack;
    enum blasd_qr_mode mode;
    int64_t k;    /* the lesser of m and n */
    int64_t rows; /* of R, columns of Q */
};
int blasd_qr_read(const struct blasd_job *job, struct blasd_qr *ret, struct blasd_err *err);
double blasd_qr_flops(const struct blasd_qr *qr);

/* What is the same on every backend (qr_report.c). */

/* Scales each column of a (m x n) by a power of two where it is far from 1; e has theirs. */
void blasd_qr_scale(const struct blasd_qr *qr, double *a, int *e);
/* R (rows x n, column-major, zeros below) of the scaled matrix into the outputs of an item. */
void blasd_qr_answer(struct blasd_task *task, const struct blasd_qr *qr, int64_t item, double *r,
                     const int *e);
/* `look_at_r`: unless all of R is known to be finite. */
void blasd_qr_finish(struct blasd_task *task, const struct blasd_qr *qr, bool look_at_r);

#endif
