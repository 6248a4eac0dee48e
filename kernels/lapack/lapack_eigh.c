/* Eigenvalues of a symmetric matrix: tridiagonal by Householder reflections, panel by panel as
 * dsytrd does it; then divide and conquer, merge by merge as dstedc does it; then the reflections
 * applied to the eigenvectors in strips. Read next: lapack.h, lapack_svd.c. */
#include "kernels/lapack/lapack.h"

#include "core/wanted.h"
#include "kernels/cpu/cpu.h"

#include <cblas.h>
#include <float.h>
#include <lapacke.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define PANEL 32
#define STRIP 256
#define LEAF 25 /* order of the problems that are solved by QL, as in LAPACK */

/* what sytrd and stedc are made of, which LAPACKE does not have; the last argument is the text's
 * length */
void dlatrd_(const char *uplo, const lapack_int *n, const lapack_int *nb, double *a,
             const lapack_int *lda, double *e, double *tau, double *w, const lapack_int *ldw,
             size_t length);
void dlaed1_(const lapack_int *n, double *d, double *q, const lapack_int *ldq, lapack_int *indxq,
             const double *rho, const lapack_int *cutpnt, double *work, lapack_int *iwork,
             lapack_int *info);

static int least(int a, int b) {
    return a < b ? a : b;
}
static double *at(const double *a, int lda, int i, int j) {
    return (double *)(uintptr_t)a + (int64_t)j * lda + i;
}

/* ---- to tridiagonal form ---- */

/* a -= v w' + w v' for what lies right of a panel, in strips of columns of the lower triangle. */
struct update {
    double *a;
    const double *v, *w;
    int n, lda, ldw; /* of a; v has its leading dimension */
};

static bool update_strip(void *arg, int64_t piece, int slot) {
    const struct update *u = arg;
    int from = (int)piece * STRIP, width = least(STRIP, u->n - from), below = from + width;
    int rows = u->n - below;
    (void)slot;
    cblas_dsyr2k(CblasColMajor, CblasLower, CblasNoTrans, width, PANEL, -1, u->v + from, u->lda,
                 u->w + from, u->ldw, 1, at(u->a, u->lda, from, from), u->lda);
    if (rows == 0) return true;
    cblas_dgemm(CblasColMajor, CblasNoTrans, CblasTrans, rows, width, PANEL, -1, u->v + below,
                u->lda, u->w + from, u->ldw, 1, at(u->a, u->lda, below, from), u->lda);
    cblas_dgemm(CblasColMajor, CblasNoTrans, CblasTrans, rows, width, PANEL, -1, u->w + below,
                u->ldw, u->v + from, u->lda, 1, at(u->a, u->lda, below, from), u->lda);
    return true;
}

static int tridiagonal(const struct blasd_lapack *how, int n, double *a, double *d, double *e,
                       double *tau) {
    const lapack_int nb = PANEL;
    int i = 0, room = n * PANEL, info;
    double *work = blasd_cpu_alloc((size_t)n * PANEL, sizeof *work);
    if (work == NULL) return BLASD_LAPACK_NO_MEMORY;
    while (blasd_lapack_is_long(4.0 / 3 * (n - i) * (double)(n - i) * (n - i)) &&
           n - i > 2 * PANEL && blasd_wanted()) {
        lapack_int left = n - i;
        struct update u = {.a = at(a, n, i + PANEL, i + PANEL),
                           .v = at(a, n, i + PANEL, i),
                           .w = work + PANEL,
                           .n = left - PANEL,
                           .lda = n,
                           .ldw = n};
        double before = 1.0 - (double)i / n, after = 1.0 - (double)(i + PANEL) / n;
        struct blasd_lapack part =
            blasd_lapack_part(how, 1 - before * before * before, 1 - after * after * after);
        dlatrd_("L", &left, &nb, at(a, n, i, i), &n, e + i, tau + i, work, &n, 1);
        if (!blasd_lapack_share(&part, (u.n + STRIP - 1) / STRIP, update_strip, &u)) break;
        for (int j = i; j < i + PANEL; j++) {
            *at(a, n, j + 1, j) = e[j];
            d[j] = *at(a, n, j, j);
        }
        i += PANEL;
    }
    info = !blasd_wanted() ? 0
                           : LAPACKE_dsytrd_work(LAPACK_COL_MAJOR, 'L', n - i, at(a, n, i, i), n,
                                                 d + i, e + i, tau + i, work, room);
    free(work);
    return info;
}

/* ---- divide and conquer ---- */

/* What dlaed0 does, with questions between its merges: d and e are scaled and not reducible. */
static int conquer(const struct blasd_lapack *how, int n, double *d, double *e, double *v, int ldv,
                   double *work, lapack_int *iwork) {
    int *ends = malloc((size_t)(2 * n / LEAF + 4) * sizeof *ends), count = 1, info = 0;
    lapack_int *order = iwork + 4 * (int64_t)n;
    if (ends == NULL) return BLASD_LAPACK_NO_MEMORY;
    ends[0] = n;
    for (; ends[count - 1] > LEAF; count *= 2)
        for (int j = count - 1; j >= 0; j--) {
            int size = ends[j];
            ends[2 * j + 1] = (size + 1) / 2;
            ends[2 * j] = size / 2;
        }
    for (int j = 1; j < count; j++) ends[j] += ends[j - 1];
    for (int j = 0; j + 1 < count; j++) { /* cut by matrices of rank 1 */
        int cut = ends[j];
        d[cut - 1] -= fabs(e[cut - 1]);
        d[cut] -= fabs(e[cut - 1]);
    }
    for (int j = 0; info == 0 && j < count && blasd_wanted(); j++) {
        int from = j == 0 ? 0 : ends[j - 1], size = ends[j] - from;
        info = LAPACKE_dsteqr_work(LAPACK_COL_MAJOR, 'I', size, d + from, e + from,
                                   at(v, ldv, from, from), ldv, work);
        for (int i = 0; i < size; i++) order[from + i] = i + 1;
    }
    for (; info == 0 && count > 1; count /= 2)
        for (int j = 0; info == 0 && j < count; j += 2) {
            lapack_int from = j == 0 ? 0 : ends[j - 1], size = ends[j + 1] - from;
            lapack_int cut = ends[j] - from;
            double part = 1 / (double)count; /* a level takes four times what the one below does */
            if (!blasd_wanted_at(how->from + (how->to - how->from) * part * part)) goto done;
            dlaed1_(&size, d + from, at(v, ldv, from, from), &ldv, order + from, e + from + cut - 1,
                    &cut, work, iwork, &info);
            ends[j / 2] = ends[j + 1];
        }
    if (info != 0) goto done;
    for (int i = 0; i < n; i++) work[i] = d[order[i] - 1];
    memcpy(d, work, (size_t)n * sizeof *d);
    /* the vectors in that order, by cycles: no second matrix */
    for (int i = 0; i < n && blasd_wanted(); i++) {
        int to = i;
        if (order[i] <= 0) continue;
        memcpy(work, at(v, ldv, 0, i), (size_t)n * sizeof *work);
        for (int next = order[to] - 1; next != i && blasd_wanted(); next = order[to] - 1) {
            memcpy(at(v, ldv, 0, to), at(v, ldv, 0, next), (size_t)n * sizeof *work);
            order[to] = 0;
            to = next;
        }
        memcpy(at(v, ldv, 0, to), work, (size_t)n * sizeof *work);
        order[to] = 0;
    }
done:
    free(ends);
    return info;
}

static void swap_columns(double *v, int n, int i, int j) {
    cblas_dswap(n, at(v, n, 0, i), 1, at(v, n, 0, j), 1);
}

/* d, e = v diag(d) v', as dstedc: blocks between negligible e apart, each scaled. */
static int divide(const struct blasd_lapack *how, int n, double *d, double *e, double *v) {
    double *work = blasd_cpu_alloc((size_t)n * ((size_t)n + 4) + 1, sizeof *work);
    lapack_int *iwork = malloc(((size_t)n * 5 + 5) * sizeof *iwork);
    int64_t done = 0;
    int info = 0;
    if (work == NULL || iwork == NULL) {
        info = BLASD_LAPACK_NO_MEMORY;
        goto done;
    }
    for (int i = 0; i < n && blasd_wanted_after(&done, n); i++) {
        memset(at(v, n, 0, i), 0, (size_t)n * sizeof *v);
        *at(v, n, i, i) = 1;
    }
    if (!blasd_wanted()) goto done;
    for (int from = 0, end; info == 0 && from < n; from = end) {
        double most = 0;
        int size;
        for (end = from + 1; end < n; end++)
            if (fabs(e[end - 1]) <= DBL_EPSILON / 2 * sqrt(fabs(d[end - 1])) * sqrt(fabs(d[end])))
                break;
        size = end - from;
        for (int i = from; i < end; i++) most = fmax(most, fabs(d[i]));
        for (int i = from; i + 1 < end; i++) most = fmax(most, fabs(e[i]));
        if (size == 1 || most == 0) continue;
        if (size <= LEAF) {
            info = LAPACKE_dsteqr_work(LAPACK_COL_MAJOR, 'I', size, d + from, e + from,
                                       at(v, n, from, from), n, work);
            continue;
        }
        for (int i = from; i < end; i++) d[i] /= most;
        for (int i = from; i + 1 < end; i++) e[i] /= most;
        info = conquer(how, size, d + from, e + from, at(v, n, from, from), n, work, iwork);
        for (int i = from; i < end; i++) d[i] *= most;
    }
    for (int i = 0; info == 0 && i < n && blasd_wanted(); i++) { /* blocks into one order */
        int first = i;
        for (int j = i + 1; j < n; j++)
            if (d[j] < d[first]) first = j;
        if (first == i) continue;
        double keep = d[i];
        d[i] = d[first];
        d[first] = keep;
        swap_columns(v, n, i, first);
    }
done:
    free(work);
    free(iwork);
    return info;
}

int blasd_lapack_eigh(const struct blasd_lapack *how, int n, double *a, double *w, double *v) {
    struct blasd_lapack first = blasd_lapack_part(how, 0, v != NULL ? 0.45 : 1);
    struct blasd_lapack second = blasd_lapack_part(how, 0.45, 0.75);
    struct blasd_lapack third = blasd_lapack_part(how, 0.75, 1);
    double *e, *tau;
    int info;
    if (n == 0) return 0;
    e = blasd_cpu_alloc(2 * (size_t)n, sizeof *e);
    if (e == NULL) return BLASD_LAPACK_NO_MEMORY;
    tau = e + n;
    info = tridiagonal(&first, n, a, w, e, tau);
    if (info != 0 || !blasd_wanted()) goto done;
    if (v == NULL) {
        info = LAPACKE_dsterf_work(n, w, e);
        goto done;
    }
    info = divide(&second, n, w, e, v);
    if (info == 0 && n > 1 && blasd_wanted())
        info = blasd_lapack_q(&third, false, n - 1, n, n - 1, a + 1, n, tau, v + 1, n);
done:
    free(e);
    return info;
}
