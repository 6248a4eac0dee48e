/* Cholesky, QR and products by panels and strips; eigenvalues and singular values by whole calls.
 * Read next: lapack.h. */
#include "kernels/lapack/lapack.h"

#include "core/parallel.h"
#include "core/wanted.h"
#include "kernels/cpu/cpu.h"

#include <cblas.h>
#include <lapacke.h>
#include <stdlib.h>
#include <string.h>

double blasd_lapack_long_call = 1e8;

#define PANEL 128 /* columns that are factored at once */
#define STRIP 256 /* columns or rows that follow at once */
#define TILE 512  /* rows and columns of a product */
#define FEW 64    /* reflectors that LAPACK may apply one by one, writing into them meanwhile */

static bool is_long(double flops) {
    return flops > blasd_lapack_long_call;
}

static int least(int a, int b) {
    return a < b ? a : b;
}

static double *at(const double *a, int lda, int i, int j) {
    return (double *)(uintptr_t)a + (int64_t)j * lda + i;
}

static bool share(int threads, int64_t count, bool (*piece)(void *arg, int64_t i, int slot),
                  void *arg) {
    struct blasd_parallel loop = {.piece = piece, .arg = arg, .count = count, .threads = threads};
    return blasd_parallel_run(&loop);
}

/* ---- products ---- */

struct tiles {
    const struct blasd_lapack_product *p;
    int rows, columns, down; /* of a tile; tiles down the result */
};

static int ld_of(int ld) {
    return ld > 1 ? ld : 1;
}

static void multiply(const struct blasd_lapack_product *p, int i, int j, int m, int n) {
    if (p->n == 1) { /* one column: a product of matrices would first pack a */
        const double *a = p->trans_a ? at(p->a, p->lda, 0, i) : at(p->a, p->lda, i, 0);
        cblas_dgemv(CblasColMajor, p->trans_a ? CblasTrans : CblasNoTrans, p->trans_a ? p->k : m,
                    p->trans_a ? m : p->k, p->alpha, a, ld_of(p->lda), p->b,
                    p->trans_b ? ld_of(p->ldb) : 1, p->beta, at(p->c, p->ldc, i, 0), 1);
        return;
    }
    cblas_dgemm(CblasColMajor, p->trans_a ? CblasTrans : CblasNoTrans,
                p->trans_b ? CblasTrans : CblasNoTrans, m, n, p->k, p->alpha,
                p->trans_a ? at(p->a, p->lda, 0, i) : at(p->a, p->lda, i, 0), ld_of(p->lda),
                p->trans_b ? at(p->b, p->ldb, j, 0) : at(p->b, p->ldb, 0, j), ld_of(p->ldb),
                p->beta, at(p->c, p->ldc, i, j), ld_of(p->ldc));
}

static bool tile(void *arg, int64_t piece, int slot) {
    const struct tiles *tiles = arg;
    const struct blasd_lapack_product *p = tiles->p;
    int i = (int)(piece % tiles->down) * tiles->rows,
        j = (int)(piece / tiles->down) * tiles->columns;
    (void)slot;
    multiply(p, i, j, least(tiles->rows, p->m - i), least(tiles->columns, p->n - j));
    return true;
}

void blasd_lapack_multiply(int threads, const struct blasd_lapack_product *p) {
    struct tiles tiles = {.p = p, .rows = TILE, .columns = TILE};
    if (p->m == 0 || p->n == 0) return;
    if (!is_long(2.0 * p->m * p->n * p->k)) {
        multiply(p, 0, 0, p->m, p->n);
        return;
    }
    tiles.down = (p->m + TILE - 1) / TILE;
    share(threads, (int64_t)tiles.down * ((p->n + TILE - 1) / TILE), tile, &tiles);
}

/* ---- Cholesky: right-looking; behind each panel its rows, then the columns to its right ---- */

struct trailing {
    double *a;
    int n, j, width; /* the panel: columns j to j + width - 1 */
};

static bool panel_rows(void *arg, int64_t piece, int slot) {
    const struct trailing *t = arg;
    int from = t->j + t->width + (int)piece * STRIP;
    (void)slot;
    cblas_dtrsm(CblasColMajor, CblasRight, CblasLower, CblasTrans, CblasNonUnit,
                least(STRIP, t->n - from), t->width, 1, at(t->a, t->n, t->j, t->j), t->n,
                at(t->a, t->n, from, t->j), t->n);
    return true;
}

static bool trailing_columns(void *arg, int64_t piece, int slot) {
    const struct trailing *t = arg;
    int from = t->j + t->width + (int)piece * STRIP, width = least(STRIP, t->n - from);
    int below = from + width;
    const double *rows = at(t->a, t->n, from, t->j);
    (void)slot;
    cblas_dsyrk(CblasColMajor, CblasLower, CblasNoTrans, width, t->width, -1, rows, t->n, 1,
                at(t->a, t->n, from, from), t->n);
    if (below < t->n)
        cblas_dgemm(CblasColMajor, CblasNoTrans, CblasTrans, t->n - below, width, t->width, -1,
                    at(t->a, t->n, below, t->j), t->n, rows, t->n, 1, at(t->a, t->n, below, from),
                    t->n);
    return true;
}

int blasd_lapack_cholesky(int threads, int n, double *a) {
    struct trailing t = {.a = a, .n = n};
    int info = 0;
    if (!is_long((double)n * n * n / 3))
        return LAPACKE_dpotrf_work(LAPACK_COL_MAJOR, 'L', n, a, n > 0 ? n : 1);
    for (; info == 0 && t.j < n && blasd_wanted(); t.j += t.width) {
        int64_t strips;
        t.width = least(PANEL, n - t.j);
        strips = (n - t.j - t.width + STRIP - 1) / STRIP;
        info = LAPACKE_dpotrf_work(LAPACK_COL_MAJOR, 'L', t.width, at(a, n, t.j, t.j), n);
        if (info != 0) return info + t.j;
        if (strips == 0) break;
        if (!share(threads, strips, panel_rows, &t)) break;
        if (!share(threads, strips, trailing_columns, &t)) break;
    }
    return info;
}

/* ---- QR ---- */

/* Room for ormqr of up to `columns`, and geqrf: its blocks have at most 64 reflectors. */
static int room_of(int columns) {
    return 64 * (columns > 1 ? columns : 1) + 8192;
}

struct reflectors {
    const double *a, *tau;
    double *c;
    int lda, ldc, m, n, k, strip;
    bool trans;
    int info;
};

static bool reflect_strip(void *arg, int64_t piece, int slot) {
    struct reflectors *r = arg;
    int from = (int)piece * r->strip, columns = least(r->strip, r->n - from);
    int room = room_of(columns), info = BLASD_LAPACK_NO_MEMORY;
    double *work = blasd_cpu_alloc((size_t)room, sizeof *work);
    (void)slot;
    if (work != NULL)
        info = LAPACKE_dormqr_work(LAPACK_COL_MAJOR, 'L', r->trans ? 'T' : 'N', r->m, columns, r->k,
                                   r->a, r->lda, r->tau, at(r->c, r->ldc, 0, from), r->ldc, work,
                                   room);
    free(work);
    if (info != 0) __atomic_store_n(&r->info, info, __ATOMIC_RELAXED);
    return info == 0;
}

/* c, one column, times the one reflector in a: what LAPACK spends on its blocks is more than that
 * takes, for columns of some thousands. */
static void reflect_column(int m, const double *a, double tau, double *c) {
    double part = tau * (c[0] + cblas_ddot(m - 1, a + 1, 1, c + 1, 1));
    c[0] -= part;
    cblas_daxpy(m - 1, -part, a + 1, 1, c + 1, 1);
}

int blasd_lapack_q(int threads, bool trans, int m, int n, int k, const double *a, int lda,
                   const double *tau, double *c, int ldc) {
    struct reflectors r = {.a = a,
                           .tau = tau,
                           .c = c,
                           .lda = lda,
                           .ldc = ldc,
                           .m = m,
                           .n = n,
                           .k = k,
                           .strip = n,
                           .trans = trans};
    double strip = 8 * blasd_lapack_long_call / (4.0 * m * (k > 0 ? k : 1));
    if (m == 0 || n == 0 || k == 0) return 0;
    if (n == 1 && k == 1) {
        reflect_column(m, a, tau[0], c);
        return 0;
    }
    if (k <= FEW) threads = 1;
    if (is_long(4.0 * m * n * k)) r.strip = strip < 16 ? 16 : least((int)strip, STRIP);
    share(threads, (n + r.strip - 1) / r.strip, reflect_strip, &r);
    return r.info;
}

int blasd_lapack_qr(int threads, int m, int n, double *a, int lda, double *tau) {
    int all = least(m, n), room = room_of(STRIP > n ? n : STRIP), info = 0;
    double *work;
    if (all == 0) return 0;
    if (n == 1) return LAPACKE_dlarfg_work(m, a, a + 1, 1, tau);
    work = blasd_cpu_alloc((size_t)room, sizeof *work);
    if (work == NULL) return BLASD_LAPACK_NO_MEMORY;
    if (!is_long(2.0 * m * n * all)) {
        info = LAPACKE_dgeqrf_work(LAPACK_COL_MAJOR, m, n, a, lda, tau, work, room);
        free(work);
        return info;
    }
    for (int j = 0; info == 0 && j < all && blasd_wanted(); j += PANEL) {
        int width = least(PANEL, all - j);
        info = LAPACKE_dgeqrf_work(LAPACK_COL_MAJOR, m - j, width, at(a, lda, j, j), lda, tau + j,
                                   work, room);
        if (info == 0 && j + width < n)
            info = blasd_lapack_q(threads, true, m - j, n - j - width, width, at(a, lda, j, j), lda,
                                  tau + j, at(a, lda, j, j + width), lda);
    }
    free(work);
    return info;
}

/* ---- eigenvalues and singular values ---- */

/* Workspaces count in int, which BLASD_STACK_SIDE allows for. */
int blasd_lapack_eigh(int n, double *a, double *w, bool vectors) {
    size_t order = (size_t)n, room = vectors ? 1 + 6 * order + 2 * order * order : 1 + 66 * order;
    size_t integers = vectors ? 3 + 5 * order : 1;
    double *work = blasd_cpu_alloc(room, sizeof *work);
    lapack_int *iwork = malloc(integers * sizeof *iwork);
    int info = BLASD_LAPACK_NO_MEMORY;
    if (n == 0) info = 0;
    if (n > 0 && work != NULL && iwork != NULL)
        info = LAPACKE_dsyevd_work(LAPACK_COL_MAJOR, vectors ? 'V' : 'N', 'L', n, a, n, w, work,
                                   (int)room, iwork, (int)integers);
    free(work);
    free(iwork);
    return info;
}

int blasd_lapack_svd(int m, int n, double *a, double *s, double *u, int columns, double *vt) {
    char job = u == NULL ? 'N' : columns > n ? 'A' : 'S';
    lapack_int *iwork;
    double room = 0, *work;
    int info;
    if (n == 0) { /* U is the unit matrix */
        for (int j = 0; u != NULL && j < columns; j++) {
            memset(at(u, m, 0, j), 0, (size_t)m * sizeof *u);
            *at(u, m, j, j) = 1;
        }
        return 0;
    }
    info = LAPACKE_dgesdd_work(LAPACK_COL_MAJOR, job, m, n, a, m, s, u, m, vt, n, &room, -1, NULL);
    if (info != 0) return info;
    work = blasd_cpu_alloc((size_t)room, sizeof *work);
    iwork = malloc(8 * (size_t)n * sizeof *iwork);
    info = BLASD_LAPACK_NO_MEMORY;
    if (work != NULL && iwork != NULL)
        info = LAPACKE_dgesdd_work(LAPACK_COL_MAJOR, job, m, n, a, m, s, u, m, vt, n, work,
                                   (int)room, iwork);
    free(work);
    free(iwork);
    return info;
}
