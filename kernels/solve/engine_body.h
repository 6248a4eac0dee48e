/* The engine: one system at a time, of any structure, with the care that the lanes do not take.
 * Included once for each precision with REAL, LAPACK(name), CBLAS(name), NAME(name), UNIT, SAFE and
 * residual() defined.
 *
 * Scale by powers of two where the rows or columns differ much, factor, estimate the condition,
 * then for blocks of right-hand sides solve and refine with residuals in twice the precision. Where
 * that leaves the bound (pivots that grew), factor again by Householder QR. README.md has the
 * reasons and the bounds. Read next: factor_body.h. */

#define GOOD_RATIO 0x1p-8 /* rows, or columns, that differ by less are left as they are */
#define MOST_STEPS 10
#define TILE 32
#define BLOCK 8 /* elements, about a line of the cache: those of so many rows stay in it */
#define SUMS 32 /* a chain of sums or comparisons waits for each; so many go side by side */

static REAL *at(const void *matrix, int64_t ld, int64_t i, int64_t j) {
    return (REAL *)matrix + j * ld + i;
}

/* ---- from the job's matrix to the scaled one ---- */

/* The transpose of a block of `a`, whose rows are `row` elements apart, to columns of length n. */
static void transpose_block(const REAL *a, int64_t row, REAL *to, int64_t n) {
    REAL block[BLOCK][BLOCK];
    for (int i = 0; i < BLOCK; i++)
        for (int j = 0; j < BLOCK; j++) block[j][i] = a[i * row + j];
    for (int j = 0; j < BLOCK; j++) memcpy(to + j * n, block[j], sizeof block[j]);
}

/* Copies op(a) into e->matrix, by blocks where it is read against its order: at lengths that are
 * powers of two rows fall on one another in the cache, and a larger tile would not stay there. */
static void load_all(struct blasd_engine *e, const REAL *a) {
    int64_t n = e->n, row = e->shape.a_row, column = e->shape.a_column, done = 0;
    int64_t whole = row != 1 && column == 1 ? n / BLOCK * BLOCK : 0;
    for (int64_t i = 0; i < whole && blasd_wanted_after(&done, n * BLOCK); i += BLOCK)
        for (int64_t j = 0; j < whole; j += BLOCK)
            transpose_block(a + i * row + j, row, at(e->matrix, n, i, j), n);
    for (int64_t j = 0; j < n && blasd_wanted_after(&done, n); j++)
        for (int64_t i = j < whole ? whole : 0; i < n; i++)
            *at(e->matrix, n, i, j) = a[i * row + j * column];
}

/* The elements of op(a) that count, zeros elsewhere. */
static void load_general(struct blasd_engine *e, const REAL *a) {
    int64_t n = e->n;
    load_all(e, a);
    for (int64_t j = 0; j < n && e->shape.assume == BLASD_ASSUME_LOWER_TRIANGULAR; j++)
        memset(at(e->matrix, n, 0, j), 0, (size_t)j * sizeof *a);
    for (int64_t j = 0; j < n && e->shape.assume == BLASD_ASSUME_UPPER_TRIANGULAR; j++)
        memset(at(e->matrix, n, j + 1, j), 0, (size_t)(n - 1 - j) * sizeof *a);
}

static void load_symmetric(struct blasd_engine *e, const REAL *a) {
    int64_t n = e->n, row = e->shape.a_row, column = e->shape.a_column, done = 0;
    for (int64_t jj = 0; jj < n && blasd_wanted_after(&done, n * TILE); jj += TILE)
        for (int64_t ii = 0; ii <= jj; ii += TILE)
            for (int64_t j = jj; j < jj + TILE && j < n; j++)
                for (int64_t i = ii; i < ii + TILE && i <= j; i++) {
                    REAL u = a[i * row + j * column], l = a[j * row + i * column];
                    e->unsymmetric = e->unsymmetric || u != l;
                    *at(e->matrix, n, i, j) = *at(e->matrix, n, j, i) = u;
                }
}

static int exponent_of(double x) {
    int exponent = 0;
    (void)frexp(x, &exponent);
    return exponent;
}

/* The largest of `n` elements; what is not a number does not count. */
BLASD_CLONES
static double NAME(largest)(const REAL *x, int64_t n) {
    REAL most[SUMS] = {0};
    double all = 0;
    int64_t i = 0;
    for (; i + SUMS <= n; i += SUMS)
        for (int k = 0; k < SUMS; k++) {
            REAL size = (REAL)fabs((double)x[i + k]);
            most[k] = size > most[k] ? size : most[k];
        }
    for (; i < n; i++) all = fabs((double)x[i]) > all ? fabs((double)x[i]) : all;
    for (int k = 0; k < SUMS; k++) all = (double)most[k] > all ? (double)most[k] : all;
    return all;
}

/* What a column adds to the largest and to the sum of each row; `ret`: its own. */
BLASD_CLONES
static void NAME(measure_column)(const REAL *restrict x, int64_t n, double *restrict most,
                                 double *restrict sums, double ret[2]) {
    double columns_most[SUMS] = {0}, columns_sum[SUMS] = {0};
    int64_t i = 0;
    for (; i + SUMS <= n; i += SUMS)
        for (int k = 0; k < SUMS; k++) {
            double size = fabs((double)x[i + k]);
            most[i + k] = size > most[i + k] ? size : most[i + k];
            sums[i + k] += size;
            columns_most[k] = size > columns_most[k] ? size : columns_most[k];
            columns_sum[k] += size;
        }
    for (int k = 0; i < n; i++, k++) {
        double size = fabs((double)x[i]);
        most[i] = size > most[i] ? size : most[i];
        sums[i] += size;
        columns_most[k] = size > columns_most[k] ? size : columns_most[k];
        columns_sum[k] += size;
    }
    ret[0] = ret[1] = 0;
    for (int k = 0; k < SUMS; k++) {
        ret[0] = columns_most[k] > ret[0] ? columns_most[k] : ret[0];
        ret[1] += columns_sum[k];
    }
}

/* Of the matrix as it stands: the largest of each row (into v) and column (into sign), the norms
 * (which are op(a)'s unless it is scaled). */
static void measure(struct blasd_engine *e) {
    int64_t n = e->n, done = 0;
    double column[2];
    memset(e->v, 0, (size_t)n * sizeof *e->v);
    memset(e->sum, 0, (size_t)n * sizeof *e->sum);
    e->most = 0;
    e->norm_1 = e->norm_inf = 0;
    for (int64_t j = 0; j < n && blasd_wanted_after(&done, n); j++) {
        NAME(measure_column)(at(e->matrix, n, 0, j), n, e->v, e->sum, column);
        e->sign[j] = column[0];
        e->most = fmax(e->most, column[0]);
        e->norm_1 = fmaxl(e->norm_1, column[1]);
    }
    for (int64_t i = 0; i < n; i++) e->norm_inf = fmaxl(e->norm_inf, e->sum[i]);
}

/* Whether the largest elements differ little and are far from overflow; zeros are left alone, for
 * they make the matrix singular whatever is done. */
static bool balanced(const double *most, lapack_int n) {
    double least = INFINITY, greatest = 0;
    for (lapack_int i = 0; i < n; i++) {
        if (most[i] == 0) continue;
        least = most[i] < least ? most[i] : least;
        greatest = most[i] > greatest ? most[i] : greatest;
    }
    return greatest == 0 ||
           (least >= greatest * GOOD_RATIO && greatest < SAFE && least > 1 / (double)SAFE);
}

static bool is_symmetric(const struct blasd_engine *e) {
    return e->shape.assume == BLASD_ASSUME_SYMMETRIC ||
           e->shape.assume == BLASD_ASSUME_POSITIVE_DEFINITE;
}

/* The norms of op(a) itself, from the scaled matrix. long double has the exponents for it. */
static void take_norms(struct blasd_engine *e) {
    int64_t n = e->n, done = 0;
    e->norm_1 = e->norm_inf = 0;
    for (int64_t j = 0; j < n && blasd_wanted_after(&done, 20 * n); j++) {
        const REAL *column = at(e->matrix, n, 0, j);
        long double wide = 0;
        for (int64_t i = 0; i < n; i++)
            wide += ldexpl(fabsl((long double)column[i]), -e->row_scale[i]);
        wide = ldexpl(wide, -e->column_scale[j]);
        e->norm_1 = wide > e->norm_1 ? wide : e->norm_1;
    }
    for (int64_t i = 0; i < n && blasd_wanted_after(&done, 20 * n); i++) {
        long double wide = 0;
        for (int64_t j = 0; j < n; j++)
            wide += ldexpl(fabsl((long double)*at(e->matrix, n, i, j)), -e->column_scale[j]);
        wide = ldexpl(wide, -e->row_scale[i]);
        e->norm_inf = wide > e->norm_inf ? wide : e->norm_inf;
    }
}

/* Chooses the scales from the largest elements and applies them. */
static void scale_matrix(struct blasd_engine *e) {
    int64_t n = e->n, done = 0;
    memset(e->row_scale, 0, (size_t)n * sizeof(int));
    memset(e->column_scale, 0, (size_t)n * sizeof(int));
    measure(e);
    e->scaled = !balanced(e->v, e->n) || !balanced(e->sign, e->n);
    if (!e->scaled) return;
    e->most = 0;
    for (int64_t i = 0; i < n; i++) {
        double most = e->v[i], diagonal = (double)*at(e->matrix, n, i, i);
        if (e->shape.assume == BLASD_ASSUME_POSITIVE_DEFINITE && diagonal > 0) most = diagonal;
        if (most == 0) continue;
        e->row_scale[i] = -exponent_of(most);
        if (is_symmetric(e)) e->row_scale[i] = e->column_scale[i] = -(exponent_of(most) / 2);
    }
    for (int64_t j = 0; j < n && blasd_wanted_after(&done, 40 * n); j++) {
        REAL *column = at(e->matrix, n, 0, j);
        int least = INT_MIN;
        if (is_symmetric(e)) {
            least = -e->column_scale[j];
        } else {
            for (int64_t i = 0; i < n; i++)
                if (column[i] != 0) {
                    int exponent = exponent_of((double)column[i]) + e->row_scale[i];
                    least = exponent > least ? exponent : least;
                }
            if (least == INT_MIN) least = 0;
            e->column_scale[j] = -least;
        }
        for (int64_t i = 0; i < n; i++)
            column[i] = (REAL)ldexp((double)column[i], e->row_scale[i] - least);
        e->most = fmax(e->most, NAME(largest)(column, n));
    }
    take_norms(e);
}

#include "kernels/solve/factor_body.h"

static int norm_exponent(const struct blasd_engine *e) {
    int exponent = 0;
    (void)frexpl(e->norm_1, &exponent);
    return exponent;
}

/* v := inverse(A 2^-shift) v of the matrix before scaling, C (R A C)^-1 R 2^shift; transposed,
 * R (..)^-T C 2^shift. The shift brings the norm of A to 1, so that only a condition number beyond
 * the range of double can overflow. */
static void apply_inverse(struct blasd_engine *e, double *v, bool transposed) {
    const int *before = transposed ? e->column_scale : e->row_scale;
    const int *after = transposed ? e->row_scale : e->column_scale;
    REAL *x = e->d;
    int most = INT_MIN, shift = 0;
    if (!e->scaled) {
        for (lapack_int i = 0; i < e->n; i++) x[i] = (REAL)v[i];
        apply_factors(e, x, 1, transposed);
        for (lapack_int i = 0; i < e->n; i++) v[i] = (double)x[i];
        return;
    }
    for (lapack_int i = 0; i < e->n; i++)
        if (v[i] != 0 && exponent_of(v[i]) + before[i] > most) most = exponent_of(v[i]) + before[i];
    if (most == INT_MIN) most = 0;
    for (lapack_int i = 0; i < e->n; i++) x[i] = (REAL)ldexp(v[i], before[i] - most);
    apply_factors(e, x, 1, transposed);
    shift = most + norm_exponent(e);
    for (lapack_int i = 0; i < e->n; i++) v[i] = ldexp((double)x[i], after[i] + shift);
}

/* How much larger than the matrix its factor U is: what partial pivoting does not bound. */
static double growth(const struct blasd_engine *e) {
    double most = 0;
    if (e->method != BLASD_SOLVED_LU) return 1;
    for (lapack_int j = 0; j < e->n; j++)
        most = fmax(most, NAME(largest)(at(e->factors, e->n, 0, j), j + 1));
    return most > e->most ? most / e->most : 1;
}

static void estimate_rcond(struct blasd_engine *e) {
    double inverse = blasd_engine_norm_inverse(e, apply_inverse);
    long double norm = e->scaled ? ldexpl(e->norm_1, -norm_exponent(e)) : e->norm_1;
    long double rcond = 1 / (long double)inverse / norm;
    e->rcond = rcond <= 1 ? (double)rcond : rcond > 1 ? 1 : 0;
    e->contraction = 4 * (double)UNIT * growth(e) / e->rcond;
}

/* Everything about the matrix. False: stopped. */
static bool prepare(struct blasd_engine *e, const REAL *a) {
    bool going = true;
    e->factored = NULL;
    e->singular = true;
    e->unsymmetric = false;
    e->rcond = 0;
    if (is_symmetric(e))
        load_symmetric(e, a);
    else
        load_general(e, a);
    scale_matrix(e);
    if (!blasd_wanted()) return false;
    switch (e->shape.assume) {
    case BLASD_ASSUME_GENERAL:
        e->method = BLASD_SOLVED_LU;
        going = factor_lu(e);
        break;
    case BLASD_ASSUME_SYMMETRIC:
        e->method = BLASD_SOLVED_LDLT;
        going = factor_symmetric(e);
        break;
    case BLASD_ASSUME_POSITIVE_DEFINITE:
        e->method = BLASD_SOLVED_CHOLESKY;
        going = factor_cholesky(e);
        break;
    case BLASD_ASSUME_LOWER_TRIANGULAR:
    case BLASD_ASSUME_UPPER_TRIANGULAR:
        e->method = BLASD_SOLVED_TRIANGULAR;
        factor_triangle(e);
        break;
    }
    if (!going || !blasd_wanted()) return false;
    if (e->info == 0) estimate_rcond(e);
    e->factored = a;
    return blasd_wanted();
}

/* ---- right-hand sides ---- */

static void load_block(struct blasd_engine *e, struct blasd_block *block) {
    const struct blasd_systems *shape = &e->shape;
    for (lapack_int c = 0; c < block->k; c++) {
        const REAL *from = (const REAL *)block->system->b + (block->first + c) * shape->b_column;
        REAL *to = at(e->b, e->n, 0, c);
        int most = INT_MIN, scale = 0;
        double size, greatest = 0;
        for (lapack_int i = 0; i < e->n; i++) {
            size = fabs((double)from[i * shape->b_row]);
            greatest = size > greatest ? size : greatest;
        }
        block->norm_b[c] = (long double)greatest;
        block->exponent[c] = 0;
        if (!e->scaled && greatest < SAFE && (greatest > 1 / (double)SAFE || greatest == 0)) {
            for (lapack_int i = 0; i < e->n; i++) to[i] = from[i * shape->b_row];
            continue;
        }
        for (lapack_int i = 0; i < e->n; i++) {
            double value = (double)from[i * shape->b_row];
            if (value != 0 && exponent_of(value) + e->row_scale[i] > most)
                most = exponent_of(value) + e->row_scale[i];
        }
        scale = most == INT_MIN ? 0 : most;
        for (lapack_int i = 0; i < e->n; i++)
            to[i] = (REAL)ldexp((double)from[i * shape->b_row], e->row_scale[i] - scale);
        block->exponent[c] = scale;
        block->norm_b[c] = ldexpl(block->norm_b[c], -scale);
    }
}

static void store_block(const struct blasd_engine *e, const struct blasd_block *block) {
    REAL *x = block->system->x;
    int64_t columns = e->shape.columns;
    for (lapack_int c = 0; c < block->k; c++) {
        const REAL *from = at(e->x, e->n, 0, c);
        REAL *to = x + block->first + c;
        bool plain = !e->scaled && block->exponent[c] == 0;
        for (lapack_int i = 0; i < e->n; i++)
            to[i * columns] =
                plain ? from[i]
                      : (REAL)ldexp((double)from[i], e->column_scale[i] + block->exponent[c]);
    }
}

/* ||b - A x|| / (||A|| ||x|| + ||b||) before scaling, from the scaled residual. */
static double backward_error(const struct blasd_engine *e, const REAL *x, const REAL *r,
                             long double norm_b) {
    long double size_x = 0, size_r = 0, below;
    double plain_x = 0, plain_r = 0;
    for (lapack_int i = 0; i < e->n; i++) {
        double sx = fabs((double)x[i]), sr = fabs((double)r[i]);
        /* written so that a NaN stays */
        if (!(sx <= plain_x)) plain_x = sx;
        if (!(sr <= plain_r)) plain_r = sr;
        if (!isfinite(sx) || !isfinite(sr)) return INFINITY;
        if (e->scaled) {
            size_x = fmaxl(size_x, ldexpl(sx, e->column_scale[i]));
            size_r = fmaxl(size_r, ldexpl(sr, -e->row_scale[i]));
        }
    }
    if (!e->scaled) {
        size_x = plain_x;
        size_r = plain_r;
    }
    below = e->norm_inf * size_x + norm_b;
    return below > 0 ? (double)(size_r / below) : 0;
}

static bool residual_piece(void *arg, int64_t i, int slot) {
    const struct NAME(columns) *work = arg;
    const struct blasd_engine *e = work->e;
    int64_t c = i * work->strip, k = work->k - c < work->strip ? work->k - c : work->strip;
    (void)slot;
    CBLAS(gemm)
    (CblasColMajor, CblasNoTrans, CblasNoTrans, e->n, (int)k, e->n, -1, e->matrix, e->n,
     work->x + c * e->n, e->n, 1, at(work->to, e->n, 0, c), e->n);
    return true;
}

/* r := b - A x for all columns, by one product in working precision. */
static void residual_block(struct blasd_engine *e, const struct blasd_block *block, const REAL *x,
                           REAL *r) {
    struct NAME(columns) work = {.e = e, .x = x, .to = r, .k = block->k, .threads = e->threads};
    memcpy(r, e->b, (size_t)e->n * (size_t)block->k * sizeof(REAL));
    share_columns(&work, residual_piece);
}

static double size_of(const REAL *v, lapack_int n) {
    double most = 0;
    for (lapack_int i = 0; i < n; i++) {
        double size = fabs((double)v[i]);
        if (!(size <= most)) most = size;
    }
    return most;
}

/* Tries x + d in place of x for column c; keeps the better. Decides whether it is done. */
static void try_step(struct blasd_engine *e, struct blasd_block *block, lapack_int c, int step) {
    lapack_int n = e->n;
    REAL *x = at(e->x, n, 0, c), *d = at(e->d, n, 0, c), *r = at(e->r, n, 0, c);
    double size = size_of(d, n) / size_of(x, n), ratio = size / block->last[c], error;
    for (lapack_int i = 0; i < n; i++) {
        REAL next = x[i] + d[i];
        d[i] = x[i]; /* the old one, in case it was better */
        x[i] = next;
    }
    if (block->extended)
        residual(e, x, at(e->b, n, 0, c), r);
    else
        return; /* the caller measures all columns at once */
    error = backward_error(e, x, r, block->norm_b[c]);
    if (!(error <= 2 * UNIT || error < block->error[c])) {
        memcpy(x, d, (size_t)n * sizeof(REAL));
        block->done[c] = true;
        return;
    }
    block->error[c] = error;
    block->steps[c] = step;
    /* the corrections shrink by `ratio` each time (the first one may have been small by luck): is
     * what is left below the last digit? */
    block->last[c] = size;
    if (step == 1 || ratio < e->contraction) ratio = fmax(ratio, fmin(e->contraction, 0.5));
    block->converged[c] = error <= 2 * UNIT && size * ratio <= UNIT / 4;
    block->done[c] = block->converged[c] || !(ratio <= 0.5);
}

/* Solves a block with the factors at hand and refines it. */
static void solve_block(struct blasd_engine *e, struct blasd_block *block) {
    lapack_int n = e->n;
    int most = e->shape.refinement == BLASD_REFINE_NONE ? 0 : block->extended ? MOST_STEPS : 1;
    int64_t work = 4 * (int64_t)n * n, done = 0; /* of a residual */
    memcpy(e->x, e->b, (size_t)n * (size_t)block->k * sizeof(REAL));
    apply_factors(e, e->x, block->k, false);
    for (int step = 0; step <= most; step++) {
        bool all = true;
        if (step > 0) {
            memcpy(e->d, e->r, (size_t)n * (size_t)block->k * sizeof(REAL));
            apply_factors(e, e->d, block->k, false);
        }
        for (lapack_int c = 0; step > 0 && c < block->k && blasd_wanted_after(&done, work); c++)
            if (!block->done[c]) try_step(e, block, c, step);
        if (!block->extended) residual_block(e, block, e->x, e->r);
        for (lapack_int c = 0; c < block->k && blasd_wanted_after(&done, work); c++) {
            REAL *x = at(e->x, n, 0, c), *r = at(e->r, n, 0, c);
            if (step == 0 && block->extended) residual(e, x, at(e->b, n, 0, c), r);
            if (step == 0) {
                block->error[c] = backward_error(e, x, r, block->norm_b[c]);
                block->steps[c] = 0;
                block->last[c] = 1;
                block->converged[c] = block->error[c] == 0;
                block->done[c] = block->converged[c] || !isfinite(block->error[c]);
            } else if (!block->extended && !block->done[c]) {
                double error = backward_error(e, x, r, block->norm_b[c]);
                if (error < block->error[c]) {
                    block->error[c] = error;
                    block->steps[c] = step;
                } else {
                    memcpy(x, at(e->d, n, 0, c), (size_t)n * sizeof(REAL));
                }
            }
            all = all && block->done[c];
        }
        if (all || !blasd_wanted()) break;
    }
}

/* Whether what was reached is what refinement reaches, unless the factors are bad: a small backward
 * error, and convergence where the condition allows it. */
static bool good_enough(const struct blasd_engine *e, const struct blasd_block *block) {
    double bound = block->extended ? 3 * (double)UNIT : (8 + (double)e->n / 2) * (double)UNIT;
    if (e->shape.refinement == BLASD_REFINE_NONE || e->method == BLASD_SOLVED_QR) return true;
    for (lapack_int c = 0; c < block->k; c++) {
        if (!(block->error[c] <= bound)) return false;
        if (block->extended && e->method == BLASD_SOLVED_LU && block->steps[c] > 0 &&
            e->rcond > 32 * e->n * (double)UNIT && (!block->converged[c] || e->contraction > 0.1))
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
    *second = *block;
    if (first != NULL) memcpy(first, e->x, bytes);
    if (first != NULL && factor_qr(e)) {
        solve_block(e, second);
        if (worst_of(second) <= fmax(worst_of(block), 2 * (double)UNIT)) {
            *block = *second;
            estimate_rcond(e);
            free(first);
            return;
        }
    }
    if (first != NULL) memcpy(e->x, first, bytes);
    free(first);
    e->method = before;
    e->factored = NULL; /* the factors are QR's, perhaps in part */
}

static bool refactor(struct blasd_engine *e, const REAL *a) {
    return e->factored == a || prepare(e, a);
}

bool NAME(blasd_engine_run)(struct blasd_engine *e, struct blasd_system *system) {
    struct blasd_block *block = e->blocks;
    int64_t columns = e->shape.columns, done = 0;
    bool going = true;
    system->steps = 0;
    system->error = 0;
    if (!refactor(e, system->a)) return false;
    system->info = e->info;
    system->singular = e->singular;
    system->unsymmetric = e->unsymmetric;
    system->rcond = e->info == 0 ? e->rcond : 0;
    system->method = e->info == 0 ? e->method : BLASD_SOLVED_NOT;
    if (e->info != 0) {
        REAL *x = system->x;
        for (int64_t i = 0; i < e->shape.n * columns && blasd_wanted_after(&done, 1); i++)
            x[i] = (REAL)NAN;
        system->error = NAN;
        return true;
    }
    for (int64_t c = 0; going && c < columns; c += e->block) {
        memset(block, 0, sizeof *block);
        block->system = system;
        block->first = c;
        block->k = columns - c < e->block ? (lapack_int)(columns - c) : e->block;
        block->extended =
            blasd_solve_wants_extended(e->shape.refinement, e->shape.n, e->shape.columns);
        going = refactor(e, system->a);
        if (!going) break;
        load_block(e, block);
        solve_block(e, block);
        if (!blasd_wanted()) return false;
        if (!good_enough(e, block)) solve_block_qr(e, block, block + 1);
        store_block(e, block);
        for (lapack_int i = 0; i < block->k; i++) {
            if (!(block->error[i] <= system->error)) system->error = block->error[i];
            if (block->steps[i] > system->steps) system->steps = block->steps[i];
        }
        if (e->method == BLASD_SOLVED_QR) system->method = BLASD_SOLVED_QR;
        system->rcond = e->rcond;
        going = blasd_engine_step(e, 0.9 + 0.1 * (double)(c + block->k) / (double)columns);
    }
    /* the next system with this matrix begins as this one did, not with QR */
    if (e->method == BLASD_SOLVED_QR) e->factored = NULL;
    return going;
}
