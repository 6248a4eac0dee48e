/* Right-hand sides: loading them, solving, refining with residuals in twice the precision, and once
 * more by QR where the factors were bad. Included by engine_body.h, once for each precision, under
 * its definitions. Read next: engine_body.h. */

#define MOST_STEPS 10
#define NOISE 0x1p-20
#define UPDATE_ROWS 128 /* of a tile of A in an update of residuals */
#define UPDATE_DEPTH 128

/* Brings the block's columns into e->b, scaled as the matrix is and near 1 where they are far from
 * it. What lies so far below a column's largest element that it leaves the range is lost: the
 * equations of x say so (recheck.c). */
static void load_block(struct blasd_engine *e, struct blasd_block *block) {
    const struct blasd_systems *shape = &e->shape;
    for (lapack_int c = 0; c < block->k; c++) {
        const REAL *from = (const REAL *)block->system->b + (block->first + c) * shape->b_column;
        REAL *to = at(e->b, e->n, 0, c);
        int most = INT_MIN;
        double greatest = 0;
        for (lapack_int i = 0; i < e->n; i++) {
            double value = (double)from[i * shape->b_row];
            int exponent = exponent_of(value) + e->row_scale[i];
            greatest = fabs(value) > greatest ? fabs(value) : greatest;
            if (value != 0 && exponent > most) most = exponent;
        }
        if (greatest == 0 || (!e->scaled && greatest < (double)SAFE && greatest > 1 / (double)SAFE))
            most = 0;
        block->exponent[c] = most;
        block->norm_b[c] = ldexpl((long double)greatest, -most);
        for (lapack_int i = 0; i < e->n; i++) {
            REAL value = from[i * shape->b_row];
            to[i] = most == 0 && !e->scaled ? value
                                            : (REAL)ldexp((double)value, e->row_scale[i] - most);
        }
    }
}

/* What leaves the range on the way is an error without bound. */
static void store_block(const struct blasd_engine *e, struct blasd_block *block) {
    REAL *x = block->system->x;
    int64_t columns = e->shape.columns;
    for (lapack_int c = 0; c < block->k; c++) {
        const REAL *from = at(e->x, e->n, 0, c);
        REAL *to = x + block->first + c;
        bool plain = !e->scaled && block->exponent[c] == 0;
        for (lapack_int i = 0; i < e->n; i++) {
            REAL value =
                plain ? from[i]
                      : (REAL)ldexp((double)from[i], e->column_scale[i] + block->exponent[c]);
            to[i * columns] = value;
            if (!isfinite((double)value)) block->error[c] = INFINITY;
        }
    }
}

/* A bound on ||b - A x|| / (||A|| ||x|| + ||b||) before scaling, from the scaled residual and what
 * rounding may have hidden from it. */
static double backward_error(const struct blasd_engine *e, const struct blasd_block *block,
                             lapack_int c) {
    const REAL *x = at(e->x, e->n, 0, c), *r = at(e->r, e->n, 0, c);
    long double size_x = NAME(size_of)(x, e->n), size_r = NAME(size_of)(r, e->n), below;
    if (!isfinite(size_x) || !isfinite(size_r)) return INFINITY;
    if (e->scaled) size_x = size_r = 0;
    for (lapack_int i = 0; e->scaled && i < e->n; i++) {
        size_x = fmaxl(size_x, ldexpl(fabs((double)x[i]), e->column_scale[i]));
        size_r = fmaxl(size_r, ldexpl(fabs((double)r[i]), -e->row_scale[i]));
    }
    below = e->norm_inf * size_x + block->norm_b[c];
    return below > 0 ? (double)(size_r / below) * (1 + 4 * (double)UNIT * (e->n + 2)) +
                           (e->n + 2) * RESIDUAL_UNIT
                     : 0;
}

/* Columns of a block that are still worked on, and where they lie. */
struct NAME(residuals) {
    const struct blasd_engine *e;
    lapack_int column[BLASD_ENGINE_COLUMNS];
    int k, each; /* of a piece */
    bool light;
};

/* Columns c[0 .. k] of r := r - A (x - d), where d is the x that r is of: by products of tiles,
 * which are added up in double. */
static void update_columns(const struct blasd_engine *e, const lapack_int *c, int k) {
    double sum[RESIDUAL_COLUMNS * UPDATE_ROWS];
    REAL by[RESIDUAL_COLUMNS * UPDATE_DEPTH], part[RESIDUAL_COLUMNS * UPDATE_ROWS];
    const int64_t n = e->n;
    const REAL *x = e->x, *d = e->d;
    REAL *r = e->r;
    for (int64_t i = 0; i < n; i += UPDATE_ROWS) {
        int64_t rows = n - i < UPDATE_ROWS ? n - i : UPDATE_ROWS;
        for (int m = 0; m < k; m++)
            for (int64_t p = 0; p < rows; p++)
                sum[m * UPDATE_ROWS + p] = (double)r[c[m] * n + i + p];
        for (int64_t j = 0; j < n; j += UPDATE_DEPTH) {
            int64_t depth = n - j < UPDATE_DEPTH ? n - j : UPDATE_DEPTH;
            for (int m = 0; m < k; m++)
                for (int64_t q = 0; q < depth; q++)
                    by[m * UPDATE_DEPTH + q] = x[c[m] * n + j + q] - d[c[m] * n + j + q];
            CBLAS(gemm)
            (CblasColMajor, CblasNoTrans, CblasNoTrans, (int)rows, k, (int)depth, 1,
             at(e->matrix, n, i, j), (int)n, by, UPDATE_DEPTH, 0, part, UPDATE_ROWS);
            for (int m = 0; m < k; m++)
                for (int64_t p = 0; p < rows; p++)
                    sum[m * UPDATE_ROWS + p] -= (double)part[m * UPDATE_ROWS + p];
        }
        for (int m = 0; m < k; m++)
            for (int64_t p = 0; p < rows; p++) r[c[m] * n + i + p] = (REAL)sum[m * UPDATE_ROWS + p];
    }
}

static bool residual_piece(void *arg, int64_t piece, int slot) {
    const struct NAME(residuals) *work = arg;
    const struct blasd_engine *e = work->e;
    int from = (int)piece * work->each, left = work->k - from;
    int count = left < work->each ? left : work->each;
    (void)slot;
    if (work->light && e->shape.columns > 1)
        update_columns(e, work->column + from, count);
    else if (work->light)
        NAME(update_one)(e);
    else
        NAME(residual)(e, e->x, e->b, e->r, work->column + from, count);
    return blasd_wanted();
}

/* r := b - A x for the columns that are not done, of those that are light or of the others. */
static void residual_block(struct blasd_engine *e, const struct blasd_block *block, bool light) {
    struct NAME(residuals) work = {.e = e, .light = light};
    struct blasd_parallel loop = {.piece = residual_piece, .arg = &work, .threads = e->threads};
    for (lapack_int c = 0; c < block->k; c++)
        if (!block->done[c] && block->light[c] == light) work.column[work.k++] = c;
    if (work.k == 0) return;
    /* by what there is to do alone: threads change no bit */
    work.each = (work.k + 3) / 4 < 4 ? 4 : (work.k + 3) / 4;
    if (work.each > RESIDUAL_COLUMNS) work.each = RESIDUAL_COLUMNS;
    loop.count = (work.k + work.each - 1) / work.each;
    blasd_parallel_run(&loop);
}

/* x + d in place of x for column c, and the old x in d; how large d was against x. */
static double step_forward(struct blasd_engine *e, lapack_int c) {
    lapack_int n = e->n;
    REAL *x = at(e->x, n, 0, c), *d = at(e->d, n, 0, c);
    double size = NAME(size_of)(d, n) / NAME(size_of)(x, n);
    long double own_d = 0, own_x = 0; /* before scaling: an element that is small here may not be */
    for (lapack_int i = 0; e->scaled && i < n; i++) {
        own_d = fmaxl(own_d, ldexpl(fabsl((long double)d[i]), e->column_scale[i]));
        own_x = fmaxl(own_x, ldexpl(fabsl((long double)x[i]), e->column_scale[i]));
    }
    if (own_x > 0) size = fmax(size, (double)(own_d / own_x));
    for (lapack_int i = 0; i < n; i++) {
        REAL next = x[i] + d[i];
        d[i] = x[i];
        x[i] = next;
    }
    return size;
}

/* The corrections shrink by so much each time (the first one may have been small by luck). */
static double shrinking(const struct blasd_engine *e, const struct blasd_block *block, lapack_int c,
                        int step, double size) {
    double ratio = size / block->last[c], least = e->contraction;
    /* what is small where it is scaled may be large where it is not, and noise */
    if (step == 1 && e->scaled && e->rcond < e->own_rcond) least *= e->own_rcond / e->rcond;
    return step == 1 || ratio < least ? fmax(ratio, fmin(least, 0.5)) : ratio;
}

/* By how much an update of the residual in plain arithmetic may be off, as backward_error counts:
 * with A (x - d) and r. */
static double hidden(const struct blasd_engine *e, const struct blasd_block *block, lapack_int c,
                     double size) {
    return UPDATE_TERMS(e->n) * (double)UNIT * (2 * size + block->error[c]);
}

/* Whether this correction is the last one, and so small that its residual needs no extended
 * precision to be known. */
static bool light(const struct blasd_engine *e, const struct blasd_block *block, lapack_int c,
                  int step, double size) {
    return !e->scaled && size * shrinking(e, block, c, step, size) <= UNIT / 4 &&
           hidden(e, block, c, size) <= LIGHT * (double)UNIT;
}

/* Keeps the better of x and the one before it, in d. Decides whether column c is done. */
static void judge_step(struct blasd_engine *e, struct blasd_block *block, lapack_int c, int step,
                       double size) {
    lapack_int n = e->n;
    REAL *x = at(e->x, n, 0, c);
    double ratio = shrinking(e, block, c, step, size);
    double error = backward_error(e, block, c);
    if (block->light[c]) error += hidden(e, block, c, size);
    if (!(error <= 2 * UNIT || error < block->error[c])) {
        memcpy(x, at(e->d, n, 0, c), (size_t)n * sizeof(REAL));
        block->done[c] = true;
        return;
    }
    block->error[c] = error;
    block->steps[c] = step;
    block->last[c] = size;
    /* is what is left below the last digit? */
    block->converged[c] = error <= 2 * UNIT && size * ratio <= UNIT / 4;
    block->done[c] = block->converged[c] || !(ratio <= 0.5);
}

/* Whether the corrections of column c may be noise: where the condition does not promise that they
 * help, and they did not shrink to rounding, or what rounding leaves in a residual is enough for a
 * correction. Then x as it was before them is at least no worse, if it was as good an answer to the
 * equations. */
static bool harmed(const struct blasd_engine *e, const struct blasd_block *block, lapack_int c) {
    double noise = (UNIT * block->error[c] + RESIDUAL_UNIT * e->n) / e->own_rcond;
    bool shrunk = block->converged[c] || !block->done[c] || block->last[c] <= 4 * UNIT;
    return e->contraction >= 0.5 && block->steps[c] > 0 && !(shrunk && noise <= NOISE) &&
           block->first_error[c] <= 3 * (double)UNIT;
}
static void take_back(struct blasd_engine *e, struct blasd_block *block) {
    size_t bytes = (size_t)e->n * sizeof(REAL);
    bool any = false;
    for (lapack_int c = 0; c < block->k; c++) any = any || harmed(e, block, c);
    if (!any) return;
    memcpy(e->d, e->b, bytes * (size_t)block->k);
    apply_factors(e, e->d, block->k, false);
    for (lapack_int c = 0; c < block->k; c++) {
        if (!harmed(e, block, c)) continue;
        memcpy(at(e->x, e->n, 0, c), at(e->d, e->n, 0, c), bytes);
        block->error[c] = block->first_error[c];
        block->steps[c] = 0;
        block->last[c] = 1;
        block->converged[c] = false;
    }
}

/* Solves a block with the factors at hand and refines it. */
static void solve_block(struct blasd_engine *e, struct blasd_block *block) {
    lapack_int n = e->n;
    size_t bytes = (size_t)n * (size_t)block->k * sizeof(REAL);
    int most = e->shape.refinement == BLASD_REFINE_NONE ? 0 : MOST_STEPS;
    double sizes[BLASD_ENGINE_COLUMNS];
    bool all = true, again;
    memset(block->done, 0, sizeof block->done);
    memset(block->light, 0, sizeof block->light);
    memcpy(e->x, e->b, bytes);
    apply_factors(e, e->x, block->k, false);
    residual_block(e, block, false);
    if (!blasd_wanted()) return;
    for (lapack_int c = 0; c < block->k; c++) {
        block->first_error[c] = block->error[c] = backward_error(e, block, c);
        block->steps[c] = 0;
        block->last[c] = 1;
        block->converged[c] = NAME(size_of)(at(e->r, n, 0, c), n) == 0;
        block->done[c] = block->converged[c] || !isfinite(block->error[c]);
        all = all && block->done[c];
    }
    for (int step = 1; step <= most && !all; step++) {
        memcpy(e->d, e->r, bytes);
        apply_factors(e, e->d, block->k, false);
        for (lapack_int c = 0; c < block->k; c++)
            if (!block->done[c]) {
                sizes[c] = step_forward(e, c);
                block->light[c] = light(e, block, c, step, sizes[c]);
            }
        residual_block(e, block, false);
        residual_block(e, block, true);
        if (!blasd_wanted()) return;
        all = true;
        again = false;
        for (lapack_int c = 0; c < block->k; c++) {
            if (!block->done[c]) judge_step(e, block, c, step, sizes[c]);
            again = again || (block->light[c] && !block->done[c]);
            block->light[c] = false;
            all = all && block->done[c];
        }
        if (again) residual_block(e, block, false); /* what is corrected next is known in full */
    }
    take_back(e, block);
}

/* Whether what was reached is what refinement reaches, unless the factors are bad: a small backward
 * error, and convergence where the condition allows it. */
static bool good_enough(const struct blasd_engine *e, const struct blasd_block *block) {
    double bound = 3 * (double)UNIT;
    if (e->shape.refinement == BLASD_REFINE_NONE || e->method == BLASD_SOLVED_QR) return true;
    for (lapack_int c = 0; c < block->k; c++) {
        if (!(block->error[c] <= bound)) return false;
        if (e->method == BLASD_SOLVED_LU && block->steps[c] > 0 &&
            (!block->converged[c] || e->contraction > 0.1) &&
            blasd_solve_may_help(e->n, UNIT, e->own_rcond, e->contraction))
            return false;
    }
    return true;
}

static double worst_of(const struct blasd_block *block) {
    double worst = 0;
    for (lapack_int c = 0; c < block->k; c++)
        if (!(block->error[c] <= worst)) worst = block->error[c];
    return worst;
}

/* Tries again with QR; keeps whichever is better, for this block and those that follow. */
static void solve_block_qr(struct blasd_engine *e, struct blasd_block *block,
                           struct blasd_block *second) {
    enum blasd_solve_method before = e->method;
    size_t bytes = (size_t)e->n * (size_t)block->k * sizeof(REAL);
    REAL *first = malloc(bytes == 0 ? 1 : bytes);
    e->method = BLASD_SOLVED_QR;
    e->factors = e->own_factors; /* not those that were kept */
    *second = *block;
    if (first != NULL) memcpy(first, e->x, bytes);
    if (first != NULL && factor_qr(e)) {
        estimate_rcond(e);
        solve_block(e, second);
        if (worst_of(second) <= fmax(worst_of(block), 2 * (double)UNIT)) {
            *block = *second;
            free(first);
            return;
        }
    }
    if (first != NULL) memcpy(e->x, first, bytes);
    free(first);
    e->method = before;
    e->factored = NULL; /* the factors are QR's, perhaps in part */
}
