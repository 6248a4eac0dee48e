/* Eigenvalues of a symmetric matrix: LAPACK's tridiagonal form and divide and conquer, then the
 * reflections applied to the eigenvectors in strips. Read next: lapack.h, lapack_svd.c. */
#include "kernels/lapack/lapack.h"

#include "core/wanted.h"
#include "kernels/cpu/cpu.h"

#include <lapacke.h>
#include <stdlib.h>

#define BLOCK 64 /* columns for which sytrd has room */

int blasd_lapack_eigh(const struct blasd_lapack *how, int n, double *a, double *w, double *v) {
    struct blasd_lapack last = blasd_lapack_part(how, 0.75, 1);
    size_t order = (size_t)n, room = BLOCK * order, integers = v != NULL ? 3 + 5 * order : 1;
    double *e, *tau, *work;
    lapack_int *iwork;
    int info = BLASD_LAPACK_NO_MEMORY;
    if (n == 0) return 0;
    if (v != NULL && 1 + 4 * order + order * order > room) room = 1 + 4 * order + order * order;
    e = blasd_cpu_alloc(2 * order + room, sizeof *e);
    iwork = malloc(integers * sizeof *iwork);
    if (e == NULL || iwork == NULL) goto done;
    tau = e + n;
    work = tau + n;
    info = LAPACKE_dsytrd_work(LAPACK_COL_MAJOR, 'L', n, a, n, w, e, tau, work, (int)room);
    if (info != 0 || !blasd_wanted_at(how->from + 0.45 * (how->to - how->from))) goto done;
    if (v == NULL) {
        info = LAPACKE_dsterf_work(n, w, e);
        goto done;
    }
    info = LAPACKE_dstedc_work(LAPACK_COL_MAJOR, 'I', n, w, e, v, n, work, (int)room, iwork,
                               (int)integers);
    if (info == 0 && n > 1 && blasd_wanted_at(last.from))
        info = blasd_lapack_q(&last, false, n - 1, n, n - 1, a + 1, n, tau, v + 1, n);
done:
    free(e);
    free(iwork);
    return info;
}
