/* The engine's factors, and what is done with them: made panel by panel where the matrix is large,
 * by strips that threads share. Included by engine_body.h, once for each precision, under its
 * definitions; knows nothing of scales and refinement. */

#define BLOCKED_N 2048   /* from here on panels are wide, and the job may end between them */
#define SHARED_N 512     /* from here on factors are made panel by panel, for threads to share */
#define STRIPS 16        /* how many what is shared is cut into, whoever shares it */
#define PANEL 256        /* columns of a panel, at most */
#define SHARED_PANEL 96  /* the same of LU below BLOCKED_N, */
#define SHARED_SQUARE 64 /* and of Cholesky */
#define LEAST_STRIP 64   /* columns of a strip of what lies right of a panel */
#define MOST_STRIP 1024

/* What is done with a panel once it is factored, strip by strip. */
struct NAME(sweep) {
    struct blasd_engine *e;
    int64_t j, width; /* of the panel */
    int64_t first;    /* columns of a strip before the others, 0: none */
    int64_t strip;    /* columns, or rows, of a strip */
    int64_t count;
};

/* `first`: columns that are to be a strip of their own, before the others. */
static struct NAME(sweep)
    sweep_from(struct blasd_engine *e, int64_t j, int64_t width, int64_t first) {
    struct NAME(sweep) sweep = {.e = e, .j = j, .width = width};
    int64_t rest = e->n - j - width;
    sweep.first = first < rest ? first : rest;
    rest -= sweep.first;
    sweep.strip = ((rest + STRIPS - 1) / STRIPS + 31) / 32 * 32;
    if (sweep.strip < LEAST_STRIP) sweep.strip = LEAST_STRIP;
    if (sweep.strip > MOST_STRIP) sweep.strip = MOST_STRIP;
    sweep.count = (rest + sweep.strip - 1) / sweep.strip + (sweep.first > 0);
    return sweep;
}

/* Does `piece` for all strips, on the engine's threads; `last`: the panel is done with that, which
 * the watch hears. False: stopped. */
static bool sweep_run(struct NAME(sweep) * sweep, bool (*piece)(void *, int64_t, int), bool last) {
    struct blasd_engine *e = sweep->e;
    struct blasd_parallel loop = {.piece = piece, .arg = sweep, .count = sweep->count};
    double n = (double)e->n, before = (double)(e->n - sweep->j),
           after = before - (double)sweep->width;
    loop.threads = e->threads;
    loop.watch = last ? e->watch : NULL;
    loop.from = e->from + (e->to - e->from) * 0.9 * (1 - pow(before / n, 3));
    loop.to = e->from + (e->to - e->from) * 0.9 * (1 - pow(after / n, 3));
    return blasd_parallel_run(&loop);
}

/* The columns of strip `i`, from *c on. */
static lapack_int strip_at(const struct NAME(sweep) * sweep, int64_t i, int64_t *c) {
    int64_t n = sweep->e->n, begin = sweep->j + sweep->width;
    if (sweep->first > 0 && i == 0) {
        *c = begin;
        return (lapack_int)sweep->first;
    }
    *c = begin + sweep->first + (sweep->first > 0 ? i - 1 : i) * sweep->strip;
    return (lapack_int)(n - *c < sweep->strip ? n - *c : sweep->strip);
}

static lapack_int lu_panel_at(const struct blasd_engine *e, lapack_int j) {
    lapack_int panel = e->n >= BLOCKED_N ? PANEL : SHARED_PANEL;
    return e->n - j < panel ? e->n - j : panel;
}

/* Factors the panel from column j on, where its columns are up to date. */
static void lu_panel(struct blasd_engine *e, lapack_int j) {
    lapack_int n = e->n, width = lu_panel_at(e, j);
    lapack_int info =
        LAPACK(getrf)(LAPACK_COL_MAJOR, n - j, width, at(e->factors, n, j, j), n, e->pivots + j);
    if (info != 0) e->info = j + info;
    for (lapack_int i = j; i < j + width; i++) e->pivots[i] += j;
}

/* Interchanges, triangle and update of a strip of columns right of a panel. The first of them is
 * the next panel, which is factored at once, while other threads have the other strips. */
static bool lu_strip(void *arg, int64_t i, int slot) {
    const struct NAME(sweep) *sweep = arg;
    struct blasd_engine *e = sweep->e;
    lapack_int n = e->n, j = (lapack_int)sweep->j, width = (lapack_int)sweep->width;
    lapack_int below = j + width;
    int64_t c;
    lapack_int columns = strip_at(sweep, i, &c);
    (void)slot;
    LAPACK(laswp)
    (LAPACK_COL_MAJOR, columns, at(e->factors, n, 0, c), n, j + 1, below, e->pivots, 1);
    CBLAS(trsm)
    (CblasColMajor, CblasLeft, CblasLower, CblasNoTrans, CblasUnit, width, columns, 1,
     at(e->factors, n, j, j), n, at(e->factors, n, j, c), n);
    CBLAS(gemm)
    (CblasColMajor, CblasNoTrans, CblasNoTrans, n - below, columns, width, -1,
     at(e->factors, n, below, j), n, at(e->factors, n, j, c), n, 1, at(e->factors, n, below, c), n);
    if (i == 0) lu_panel(e, below);
    return true;
}

/* The interchanges of all later panels, in a panel that is factored. */
static bool lu_interchange(void *arg, int64_t i, int slot) {
    struct blasd_engine *e = arg;
    lapack_int j = (lapack_int)i * lu_panel_at(e, 0), width = lu_panel_at(e, j);
    (void)slot;
    if (j + width < e->n) LAPACK(laswp)
    (LAPACK_COL_MAJOR, width, at(e->factors, e->n, 0, j), e->n, j + width + 1, e->n, e->pivots, 1);
    return blasd_wanted();
}

/* Right-looking LU by panels; the same arithmetic as getrf, with pauses. What lies left of a panel
 * takes its interchanges at the end, for then each column is read once. */
static bool factor_lu_panels(struct blasd_engine *e) {
    lapack_int n = e->n, panel = lu_panel_at(e, 0);
    struct blasd_parallel loop = {.piece = lu_interchange, .arg = e, .threads = e->threads};
    e->info = 0;
    lu_panel(e, 0);
    for (lapack_int j = 0; j < n && e->info == 0; j += panel) {
        struct NAME(sweep) sweep = sweep_from(e, j, lu_panel_at(e, j), panel);
        if (!sweep_run(&sweep, lu_strip, true)) return false;
    }
    loop.count = e->info == 0 ? (n + panel - 1) / panel : 0;
    return blasd_parallel_run(&loop);
}

/* The panel's own rows, from the triangle on its top. */
static bool cholesky_rows(void *arg, int64_t i, int slot) {
    const struct NAME(sweep) *sweep = arg;
    struct blasd_engine *e = sweep->e;
    lapack_int n = e->n;
    int64_t r;
    lapack_int rows = strip_at(sweep, i, &r);
    (void)slot;
    CBLAS(trsm)
    (CblasColMajor, CblasRight, CblasLower, CblasTrans, CblasNonUnit, rows,
     (lapack_int)sweep->width, 1, at(e->factors, n, sweep->j, sweep->j), n,
     at(e->factors, n, r, sweep->j), n);
    return true;
}

/* What is at and below the diagonal of a strip of columns. */
static bool cholesky_strip(void *arg, int64_t i, int slot) {
    const struct NAME(sweep) *sweep = arg;
    struct blasd_engine *e = sweep->e;
    lapack_int n = e->n;
    int64_t c;
    lapack_int columns = strip_at(sweep, i, &c);
    (void)slot;
    CBLAS(gemm)
    (CblasColMajor, CblasNoTrans, CblasTrans, n - (lapack_int)c, columns, (lapack_int)sweep->width,
     -1, at(e->factors, n, c, sweep->j), n, at(e->factors, n, c, sweep->j), n, 1,
     at(e->factors, n, c, c), n);
    return true;
}

static bool factor_cholesky_panels(struct blasd_engine *e) {
    lapack_int n = e->n, panel = n >= BLOCKED_N ? PANEL : SHARED_SQUARE;
    e->info = 0;
    for (lapack_int j = 0; j < n; j += panel) {
        lapack_int width = n - j < panel ? n - j : panel;
        lapack_int info = LAPACK(potrf)(LAPACK_COL_MAJOR, 'L', width, at(e->factors, n, j, j), n);
        struct NAME(sweep) sweep = sweep_from(e, j, width, 0);
        if (info != 0) {
            e->info = j + info;
            return true;
        }
        sweep_run(&sweep, cholesky_rows, false);
        if (!sweep_run(&sweep, cholesky_strip, true)) return false;
    }
    return true;
}

static void copy_matrix(struct blasd_engine *e) {
    int64_t n = e->n, done = 0;
    for (int64_t j = 0; j < n && blasd_wanted_after(&done, n); j++)
        memcpy(at(e->factors, n, 0, j), at(e->matrix, n, 0, j), (size_t)n * sizeof(REAL));
}

static bool factor_ldlt(struct blasd_engine *e) {
    copy_matrix(e);
    e->info = LAPACK(sytrf)(LAPACK_COL_MAJOR, 'L', e->n, e->factors, e->n, e->pivots, e->work,
                            e->work_size);
    return blasd_wanted();
}

static bool by_panels(const struct blasd_engine *e) {
    return e->n >= SHARED_N;
}

static bool factor_lu(struct blasd_engine *e) {
    copy_matrix(e);
    if (by_panels(e)) return factor_lu_panels(e);
    e->info = LAPACK(getrf)(LAPACK_COL_MAJOR, e->n, e->n, e->factors, e->n, e->pivots);
    return true;
}

/* Where rounding makes a pivot 0 that LU, with all rows to choose from, may not have, LU it is. */
static bool factor_symmetric(struct blasd_engine *e) {
    if (!factor_ldlt(e)) return false;
    if (e->info == 0) return true;
    e->method = BLASD_SOLVED_LU;
    return factor_lu(e);
}

/* Where Cholesky fails the matrix is singular only if LU says so too. */
static bool factor_cholesky(struct blasd_engine *e) {
    int64_t info;
    copy_matrix(e);
    if (by_panels(e)) {
        if (!factor_cholesky_panels(e)) return false;
    } else {
        e->info = LAPACK(potrf)(LAPACK_COL_MAJOR, 'L', e->n, e->factors, e->n);
    }
    /* of elements that overflowed, far beside their diagonal: potrf takes NaN for positive */
    for (lapack_int k = 0; k < e->n && e->info == 0; k++)
        if (!(*at(e->factors, e->n, k, k) > 0)) e->info = k + 1;
    if (e->info == 0) return true;
    info = e->info;
    if (!factor_lu(e)) return false;
    e->singular = e->info != 0;
    e->info = info;
    return true;
}

static void factor_triangle(struct blasd_engine *e) {
    copy_matrix(e);
    e->info = 0;
    for (lapack_int i = 0; i < e->n && e->info == 0; i++)
        if (*at(e->factors, e->n, i, i) == 0) e->info = i + 1;
}

static bool factor_qr(struct blasd_engine *e) {
    copy_matrix(e);
    LAPACK(geqrf)
    (LAPACK_COL_MAJOR, e->n, e->n, e->factors, e->n, e->tau, e->work, e->work_size);
    for (lapack_int i = 0; i < e->n; i++)
        if (*at(e->factors, e->n, i, i) == 0) return false;
    return true;
}

/* x := inverse(factors) x for `k` columns, or with the transposed inverse. */
static void apply_to(struct blasd_engine *e, REAL *x, lapack_int k, bool transposed) {
    char trans = transposed ? 'T' : 'N', uplo = 'U';
    lapack_int n = e->n;
    if (e->shape.assume == BLASD_ASSUME_LOWER_TRIANGULAR) uplo = 'L';
    switch (e->method) {
    case BLASD_SOLVED_LU:
        LAPACK(getrs)(LAPACK_COL_MAJOR, trans, n, k, e->factors, n, e->pivots, x, n);
        break;
    case BLASD_SOLVED_LDLT:
        LAPACK(sytrs)(LAPACK_COL_MAJOR, 'L', n, k, e->factors, n, e->pivots, x, n);
        break;
    case BLASD_SOLVED_CHOLESKY:
        LAPACK(potrs)(LAPACK_COL_MAJOR, 'L', n, k, e->factors, n, x, n);
        break;
    case BLASD_SOLVED_TRIANGULAR:
        LAPACK(trtrs)(LAPACK_COL_MAJOR, uplo, trans, 'N', n, k, e->factors, n, x, n);
        break;
    case BLASD_SOLVED_QR:
        if (!transposed) LAPACK(ormqr)
        (LAPACK_COL_MAJOR, 'L', 'T', n, k, n, e->factors, n, e->tau, x, n, e->work, e->work_size);
        LAPACK(trtrs)(LAPACK_COL_MAJOR, 'U', trans, 'N', n, k, e->factors, n, x, n);
        if (transposed) LAPACK(ormqr)
        (LAPACK_COL_MAJOR, 'L', 'N', n, k, n, e->factors, n, e->tau, x, n, e->work, e->work_size);
        break;
    default: break;
    }
}

/* Work on the columns of a block of right-hand sides, which the engine's threads share. */
struct NAME(columns) {
    struct blasd_engine *e;
    REAL *to;
    int64_t k, strip;
    int threads;
    bool transposed;
};

static bool apply_piece(void *arg, int64_t i, int slot) {
    const struct NAME(columns) *work = arg;
    int64_t c = i * work->strip, k = work->k - c < work->strip ? work->k - c : work->strip;
    (void)slot;
    apply_to(work->e, at(work->to, work->e->n, 0, c), (lapack_int)k, work->transposed);
    return blasd_wanted();
}

static void share_columns(struct NAME(columns) * work, bool (*piece)(void *, int64_t, int)) {
    double n = (double)work->e->n;
    struct blasd_parallel loop = {.piece = piece, .arg = work, .threads = work->threads};
    work->strip = work->k;
    if (n * n * (double)work->k >= BLASD_CPU_THREADS_FLOPS)
        work->strip = ((work->k + STRIPS - 1) / STRIPS + 15) / 16 * 16;
    loop.count = (work->k + work->strip - 1) / work->strip;
    blasd_parallel_run(&loop);
}

static void apply_factors(struct blasd_engine *e, REAL *x, lapack_int k, bool transposed) {
    struct NAME(columns)
        work = {.e = e, .to = x, .k = k, .threads = e->threads, .transposed = transposed};
    if (e->method == BLASD_SOLVED_LDLT || e->method == BLASD_SOLVED_QR)
        work.threads = 1; /* these have one workspace */
    share_columns(&work, apply_piece);
}
