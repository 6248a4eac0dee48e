/* Singular values: of a tall matrix those of its R; bidiagonal by Householder reflections, panel by
 * panel as dgebrd does it; then divide and conquer, merge by merge as dbdsdc does it; then the
 * reflections applied to both sides' vectors in strips. Read next: lapack.h. */
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
#define LEAF 25  /* order of the problems that are solved by QR iterations, as in LAPACK */
#define TALL 1.7 /* rows a column from which R comes first */

/* what gebrd and bdsdc are made of, which LAPACKE does not have; the last argument is the text's
 * length */
void dlabrd_(const lapack_int *m, const lapack_int *n, const lapack_int *nb, double *a,
             const lapack_int *lda, double *d, double *e, double *tauq, double *taup, double *x,
             const lapack_int *ldx, double *y, const lapack_int *ldy);
void dlasdt_(const lapack_int *n, lapack_int *lvl, lapack_int *nd, lapack_int *inode,
             lapack_int *ndiml, lapack_int *ndimr, const lapack_int *msub);
void dlasdq_(const char *uplo, const lapack_int *sqre, const lapack_int *n, const lapack_int *ncvt,
             const lapack_int *nru, const lapack_int *ncc, double *d, double *e, double *vt,
             const lapack_int *ldvt, double *u, const lapack_int *ldu, double *c,
             const lapack_int *ldc, double *work, lapack_int *info, size_t length);
void dlasd1_(const lapack_int *nl, const lapack_int *nr, const lapack_int *sqre, double *d,
             double *alpha, double *beta, double *u, const lapack_int *ldu, double *vt,
             const lapack_int *ldvt, lapack_int *idxq, lapack_int *iwork, double *work,
             lapack_int *info);

static int least(int a, int b) {
    return a < b ? a : b;
}
static double *at(const double *a, int lda, int i, int j) {
    return (double *)(uintptr_t)a + (int64_t)j * lda + i;
}

/* ---- to bidiagonal form ---- */

/* d, e: the two diagonals; tauq, taup: the reflections, whose vectors are left in a. */
static int bidiagonal(const struct blasd_lapack *how, int m, int n, double *a, int lda, double *d,
                      double *e, double *tauq, double *taup) {
    const lapack_int nb = PANEL;
    int room = (m + n) * PANEL, i = 0, info = 0;
    double *x = blasd_cpu_alloc((size_t)(m + n) * PANEL, sizeof *x), *y;
    if (x == NULL) return BLASD_LAPACK_NO_MEMORY;
    y = x + (int64_t)m * PANEL;
    for (; blasd_lapack_is_long(4.0 * (m - i) * (double)(n - i) * (n - i)) && n - i > 2 * PANEL &&
           blasd_wanted();
         i += PANEL) {
        lapack_int rows = m - i, columns = n - i;
        double before = 1.0 - (double)i / n, after = 1.0 - (double)(i + PANEL) / n;
        struct blasd_lapack part =
            blasd_lapack_part(how, 1 - before * before * before, 1 - after * after * after);
        struct blasd_lapack_product left = {.trans_b = true,
                                            .m = rows - PANEL,
                                            .n = columns - PANEL,
                                            .k = PANEL,
                                            .alpha = -1,
                                            .beta = 1,
                                            .a = at(a, lda, i + PANEL, i),
                                            .lda = lda,
                                            .b = y + PANEL,
                                            .ldb = n,
                                            .c = at(a, lda, i + PANEL, i + PANEL),
                                            .ldc = lda};
        struct blasd_lapack_product right = left;
        dlabrd_(&rows, &columns, &nb, at(a, lda, i, i), &lda, d + i, e + i, tauq + i, taup + i, x,
                &m, y, &n);
        right.trans_b = false;
        right.a = x + PANEL;
        right.lda = m;
        right.b = at(a, lda, i, i + PANEL);
        right.ldb = lda;
        blasd_lapack_multiply(&part, &left);
        part.from = part.to;
        blasd_lapack_multiply(&part, &right);
        for (int j = i; j < i + PANEL; j++) {
            *at(a, lda, j, j) = d[j];
            *at(a, lda, j, j + 1) = e[j];
        }
    }
    if (blasd_wanted())
        info = LAPACKE_dgebrd_work(LAPACK_COL_MAJOR, m - i, n - i, at(a, lda, i, i), lda, d + i,
                                   e + i, tauq + i, taup + i, x, room);
    free(x);
    return info;
}

/* ---- divide and conquer ---- */

/* A bidiagonal block, scaled and not reducible: what dlasd0 does, with questions between its
 * merges. */
static int conquer(const struct blasd_lapack *how, int n, int ld, double *d, double *e, double *u,
                   double *vt, double *work, lapack_int *iwork) {
    const lapack_int leaf = LEAF, none = 0, one = 1;
    lapack_int *node = iwork, *lefts = iwork + n, *rights = lefts + n, *order = rights + n;
    lapack_int *room = order + n, levels, nodes, info = 0;
    double part = 1;
    if (n <= LEAF) {
        dlasdq_("U", &none, &n, &n, &n, &none, d, e, vt, &ld, u, &ld, u, &ld, work, &info, 1);
        return info;
    }
    dlasdt_(&n, &levels, &nodes, node, lefts, rights, &leaf);
    for (int i = (nodes + 1) / 2 - 1; info == 0 && i < nodes; i++) {
        lapack_int center = node[i], left = lefts[i], right = rights[i], more = left + 1;
        int from = center - left - 1; /* the left part begins there, the right one behind center */
        dlasdq_("U", &one, &left, &more, &left, &none, d + from, e + from, at(vt, ld, from, from),
                &ld, at(u, ld, from, from), &ld, at(u, ld, from, from), &ld, work, &info, 1);
        for (int j = 0; j < left; j++) order[from + j] = j + 1;
        if (info != 0) break;
        more = right + (i + 1 == nodes ? 0 : 1);
        dlasdq_("U", i + 1 == nodes ? &none : &one, &right, &more, &right, &none, d + center,
                e + center, at(vt, ld, center, center), &ld, at(u, ld, center, center), &ld,
                at(u, ld, center, center), &ld, work, &info, 1);
        for (int j = 0; j < right; j++) order[center + j] = j + 1;
        if (!blasd_wanted()) return 0;
    }
    for (int level = levels - 1; info == 0 && level >= 0; level--) {
        int first = (1 << level) - 1, last = 2 * first;
        part = 1.0 / (double)(1 << level);
        for (int i = first; info == 0 && i <= last; i++) {
            int center = node[i], from = center - lefts[i] - 1;
            double alpha = d[center - 1], beta = e[center - 1];
            if (!blasd_wanted_at(how->from + (how->to - how->from) * part * part / 4)) return 0;
            dlasd1_(&lefts[i], &rights[i], i == last ? &none : &one, d + from, &alpha, &beta,
                    at(u, ld, from, from), &ld, at(vt, ld, from, from), &ld, order + from, room,
                    work, &info);
        }
    }
    return info;
}

static void sort_values(int n, double *d, double *u, double *vt) {
    for (int i = 0; i < n && blasd_wanted(); i++) {
        int most = i;
        double keep = d[i];
        for (int j = i + 1; j < n; j++)
            if (d[j] > d[most]) most = j;
        if (most == i) continue;
        d[i] = d[most];
        d[most] = keep;
        cblas_dswap(n, at(u, n, 0, i), 1, at(u, n, 0, most), 1);
        cblas_dswap(n, at(vt, n, i, 0), n, at(vt, n, most, 0), n);
    }
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

/* The upper bidiagonal matrix of d and e = u diag(d) vt, all n x n, as dbdsdc. */
static int divide(const struct blasd_lapack *how, int n, double *d, double *e, double *u,
                  double *vt) {
    const double tiny = 0.45 * DBL_EPSILON;
    double *work = blasd_cpu_alloc((size_t)n * (3 * (size_t)n + 4) + 1, sizeof *work), scale = 0;
    lapack_int *iwork = malloc(((size_t)n * 8 + 8) * sizeof *iwork);
    int info = 0;
    if (work == NULL || iwork == NULL) {
        info = BLASD_LAPACK_NO_MEMORY;
        goto done;
    }
    embed(n, 0, n, NULL, u);
    embed(n, 0, n, NULL, vt);
    if (!blasd_wanted()) goto done;
    for (int i = 0; i < n; i++) scale = fmax(scale, fabs(d[i]));
    for (int i = 0; i + 1 < n; i++) scale = fmax(scale, fabs(e[i]));
    if (scale == 0) goto done;
    for (int i = 0; i < n; i++) {
        d[i] /= scale;
        if (i + 1 < n) e[i] /= scale;
        if (fabs(d[i]) < tiny && n > LEAF) d[i] = copysign(tiny, d[i]);
    }
    if (n <= LEAF) info = conquer(how, n, n, d, e, u, vt, work, iwork);
    for (int from = 0, end; info == 0 && n > LEAF && from < n; from = end) {
        for (end = from + 1; end < n && fabs(e[end - 1]) >= tiny;) end++;
        if (end - from == 1) {
            *at(u, n, from, from) = copysign(1, d[from]);
            d[from] = fabs(d[from]);
            continue;
        }
        info = conquer(how, end - from, n, d + from, e + from, at(u, n, from, from),
                       at(vt, n, from, from), work, iwork);
    }
    for (int i = 0; i < n; i++) d[i] *= scale;
    if (info == 0) sort_values(n, d, u, vt);
done:
    free(work);
    free(iwork);
    return info;
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
    struct blasd_lapack first = blasd_lapack_part(how, 0, u != NULL ? 0.4 : 1);
    struct blasd_lapack second = blasd_lapack_part(how, 0.4, 0.7);
    struct blasd_lapack third = blasd_lapack_part(how, 0.7, 0.85);
    struct blasd_lapack fourth = blasd_lapack_part(how, 0.85, 1);
    double *e = blasd_cpu_alloc(7 * (size_t)n, sizeof *e), *tauq, *taup, *small = NULL;
    int info = BLASD_LAPACK_NO_MEMORY;
    if (e == NULL) return info;
    tauq = e + n;
    taup = tauq + n;
    if (u != NULL && m > n) small = blasd_cpu_alloc((size_t)n * (size_t)n, sizeof *small);
    if (u != NULL && m > n && small == NULL) goto done;
    info = bidiagonal(&first, m, n, a, lda, s, e, tauq, taup);
    if (info != 0 || !blasd_wanted()) goto done;
    if (u == NULL) {
        info = LAPACKE_dbdsqr_work(LAPACK_COL_MAJOR, 'U', n, 0, 0, 0, s, e, NULL, 1, NULL, 1, NULL,
                                   1, taup + n);
        goto done;
    }
    info = divide(&second, n, s, e, small != NULL ? small : u, vt);
    if (info != 0 || !blasd_wanted()) goto done;
    if (small != NULL) embed(m, n, columns, small, u);
    info = blasd_lapack_q(&third, false, m, columns, n, a, lda, tauq, u, m);
    if (info == 0 && blasd_wanted()) info = apply_right(&fourth, n, a, lda, taup, vt);
done:
    free(small);
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
