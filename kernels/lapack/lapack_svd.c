/* Singular values: of a tall matrix those of its R; LAPACK's bidiagonal form and divide and
 * conquer; then the reflections applied to both sides' vectors in strips. Read next: lapack.h. */
#include "kernels/lapack/lapack.h"

#include "core/wanted.h"
#include "kernels/cpu/cpu.h"

#include <lapacke.h>
#include <stdlib.h>
#include <string.h>

#define STRIP 256
#define BLOCK 64 /* rows and columns for which gebrd has room */
#define TALL 1.7 /* rows a column from which R comes first */

static int least(int a, int b) {
    return a < b ? a : b;
}
static double *at(const double *a, int lda, int i, int j) {
    return (double *)(uintptr_t)a + (int64_t)j * lda + i;
}

/* The n x n vectors in `small` into u (m x columns), whose other columns are those of the unit
 * matrix. */
static void embed(int m, int n, int columns, const double *small, double *u) {
    int64_t done = 0;
    for (int j = 0; j < columns && blasd_wanted_after(&done, m); j++) {
        memset(at(u, m, 0, j), 0, (size_t)m * sizeof *u);
        if (j < n)
            memcpy(at(u, m, 0, j), at(small, n, 0, j), (size_t)n * sizeof *u);
        else
            *at(u, m, j, j) = 1;
    }
}

/* ---- the vectors ---- */

struct rows {
    const double *a, *taup;
    double *vt;
    int lda, n, strip, info;
};

/* vt P' in strips of its rows. */
static bool rows_strip(void *arg, int64_t piece, int slot) {
    struct rows *r = arg;
    int from = (int)piece * r->strip, count = least(r->strip, r->n - from);
    int room = 64 * (count > r->n ? count : r->n) + 8192, info = BLASD_LAPACK_NO_MEMORY;
    double *work = blasd_cpu_alloc((size_t)room, sizeof *work);
    (void)slot;
    if (work != NULL)
        info = LAPACKE_dormbr_work(LAPACK_COL_MAJOR, 'P', 'R', 'T', count, r->n, r->n, r->a, r->lda,
                                   r->taup, r->vt + from, r->n, work, room);
    free(work);
    if (info != 0) __atomic_store_n(&r->info, info, __ATOMIC_RELAXED);
    return info == 0;
}

static int apply_right(const struct blasd_lapack *how, int n, const double *a, int lda,
                       const double *taup, double *vt) {
    struct rows r = {.a = a, .taup = taup, .vt = vt, .lda = lda, .n = n, .strip = n};
    struct blasd_lapack all = *how;
    if (n < 2) return 0;
    if (n <= 64) all.threads = 1;
    if (blasd_lapack_is_long(4.0 * n * (double)n * n))
        r.strip = least(n, (int)(2 * blasd_lapack_long_call / ((double)n * n)) + 16);
    if (r.strip > STRIP && r.strip < n) r.strip = STRIP;
    blasd_lapack_share(&all, (n + r.strip - 1) / r.strip, rows_strip, &r);
    return r.info;
}

/* Of a square matrix, or one not much taller; `a` has the leading dimension lda. */
static int square(const struct blasd_lapack *how, int m, int n, double *a, int lda, double *s,
                  double *u, int columns, double *vt) {
    struct blasd_lapack third = blasd_lapack_part(how, 0.7, 0.85);
    struct blasd_lapack fourth = blasd_lapack_part(how, 0.85, 1);
    size_t order = (size_t)n, room = BLOCK * ((size_t)m + order);
    size_t all = u != NULL ? order * (3 * order + 4) : 0;
    size_t small_size = u != NULL && m > n ? order * order : 0;
    double *e = blasd_cpu_alloc(3 * order + (room > all ? room : all) + small_size, sizeof *e);
    double *tauq, *taup, *work, *small;
    lapack_int *iwork = malloc(8 * order * sizeof *iwork);
    int info = BLASD_LAPACK_NO_MEMORY;
    if (e == NULL || iwork == NULL) goto done;
    tauq = e + n;
    taup = tauq + n;
    small = taup + n;
    work = small + small_size;
    info = LAPACKE_dgebrd_work(LAPACK_COL_MAJOR, m, n, a, lda, s, e, tauq, taup, work, (int)room);
    if (info != 0 || !blasd_wanted_at(how->from + 0.4 * (how->to - how->from))) goto done;
    if (u == NULL) {
        info = LAPACKE_dbdsqr_work(LAPACK_COL_MAJOR, 'U', n, 0, 0, 0, s, e, NULL, 1, NULL, 1, NULL,
                                   1, work);
        goto done;
    }
    info = LAPACKE_dbdsdc_work(LAPACK_COL_MAJOR, 'U', 'I', n, s, e, small_size > 0 ? small : u, n,
                               vt, n, NULL, NULL, work, iwork);
    if (info != 0 || !blasd_wanted_at(third.from)) goto done;
    if (small_size > 0) embed(m, n, columns, small, u);
    info = blasd_lapack_q(&third, false, m, columns, n, a, lda, tauq, u, m);
    if (info == 0 && blasd_wanted()) info = apply_right(&fourth, n, a, lda, taup, vt);
done:
    free(iwork);
    free(e);
    return info;
}

int blasd_lapack_svd(const struct blasd_lapack *how, int m, int n, double *a, double *s, double *u,
                     int columns, double *vt) {
    struct blasd_lapack first = blasd_lapack_part(how, 0, 0.3);
    struct blasd_lapack second = blasd_lapack_part(how, 0.3, u != NULL ? 0.8 : 1);
    struct blasd_lapack third = blasd_lapack_part(how, 0.8, 1);
    size_t all = (size_t)n * (size_t)n;
    double *r, *tau, *small;
    int64_t done = 0;
    int info;
    if (n == 0) {
        if (u != NULL) embed(m, 0, columns, NULL, u);
        return 0;
    }
    if (m < TALL * n) return square(how, m, n, a, m, s, u, columns, vt);
    r = blasd_cpu_alloc((u != NULL ? 2 : 1) * all + (size_t)n, sizeof *r);
    if (r == NULL) return BLASD_LAPACK_NO_MEMORY;
    tau = r + all;
    small = tau + n;
    info = blasd_lapack_qr(&first, m, n, a, m, tau);
    if (info != 0 || !blasd_wanted()) goto done;
    for (int j = 0; j < n && blasd_wanted_after(&done, n); j++) {
        memcpy(at(r, n, 0, j), at(a, m, 0, j), ((size_t)j + 1) * sizeof *r);
        memset(at(r, n, 0, j) + j + 1, 0, (size_t)(n - j - 1) * sizeof *r);
    }
    info = square(&second, n, n, r, n, s, u != NULL ? small : NULL, n, vt);
    if (info != 0 || u == NULL || !blasd_wanted()) goto done;
    embed(m, n, columns, small, u);
    info = blasd_lapack_q(&third, false, m, columns, n, a, m, tau, u, m);
done:
    free(r);
    return info;
}
