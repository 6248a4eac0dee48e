/* The engine: one system at a time, of any structure, with the care that the lanes do not take.
 * Included once for each precision with REAL, LAPACK(name), CBLAS(name), NAME(name), UNIT, SAFE and
 * NAME(residual) defined.
 *
 * Scale by powers of two where the rows or columns differ much, factor, estimate the condition,
 * then for blocks of right-hand sides solve and refine with residuals in twice the precision. Where
 * that leaves the bound (pivots that grew), factor again by Householder QR. README.md has the
 * reasons and the bounds. Read next: factor_body.h. */

#define GOOD_RATIO 0x1p-8 /* rows, or columns, that differ by less are left as they are */
#define MOST_STEPS 10
#define DOUBT 0x1p-4 /* of x: with a larger error not one digit need be right */
#define NOISE 0x1p-20
#define LIGHT 0x1p-10 /* of u: what an update in plain arithmetic may hide of a residual */
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

/* v := 2^after inverse(factors) 2^before v, times 2^shift, or with the transposed inverse.
 * Exponents may be NULL: zeros. Brought near 1 on the way, so that only what is beyond double
 * overflows. */
static void apply_between(struct blasd_engine *e, double *v, bool transposed, const int *before,
                          const int *after, int shift) {
    REAL *x = e->d;
    int most = INT_MIN;
    for (lapack_int i = 0; i < e->n; i++) {
        int exponent = exponent_of(v[i]) + (before != NULL ? before[i] : 0);
        if (v[i] != 0 && exponent > most) most = exponent;
    }
    if (most == INT_MIN) most = 0;
    for (lapack_int i = 0; i < e->n; i++)
        x[i] = (REAL)ldexp(v[i], (before != NULL ? before[i] : 0) - most);
    apply_factors(e, x, 1, transposed);
    for (lapack_int i = 0; i < e->n; i++)
        v[i] = ldexp((double)x[i], (after != NULL ? after[i] : 0) + most + shift);
}

/* v := inverse(R A C) v, or with the transposed inverse */
static void apply_own_inverse(struct blasd_engine *e, double *v, bool transposed) {
    REAL *x = e->d;
    for (lapack_int i = 0; i < e->n; i++) x[i] = (REAL)v[i];
    apply_factors(e, x, 1, transposed);
    for (lapack_int i = 0; i < e->n; i++) v[i] = (double)x[i];
}

/* v := inverse(A 2^-shift) v of the matrix before scaling, C (R A C)^-1 R 2^shift; transposed,
 * R (..)^-T C 2^shift. The shift brings the norm of A to 1, so that only a condition number beyond
 * the range of double can overflow. */
static void apply_inverse(struct blasd_engine *e, double *v, bool transposed) {
    if (e->scaled)
        apply_between(e, v, transposed, transposed ? e->column_scale : e->row_scale,
                      transposed ? e->row_scale : e->column_scale, norm_exponent(e));
    else
        apply_own_inverse(e, v, transposed);
}

/* How much larger than the matrix its factor U is: what partial pivoting does not bound. */
static double growth(const struct blasd_engine *e) {
    double most = 0;
    if (e->method != BLASD_SOLVED_LU) return 1;
    for (lapack_int j = 0; j < e->n; j++)
        most = fmax(most, NAME(largest)(at(e->factors, e->n, 0, j), j + 1));
    return most > e->most ? most / e->most : 1;
}

/* The 1-norm of R A C. */
static double own_norm(const struct blasd_engine *e) {
    double norm = 0;
    for (lapack_int j = 0; j < e->n; j++) {
        const REAL *column = at(e->matrix, e->n, 0, j);
        double sum = 0;
        for (lapack_int i = 0; i < e->n; i++) sum += fabs((double)column[i]);
        norm = fmax(norm, sum);
    }
    return norm;
}

static double reciprocal(double inverse, long double norm) {
    long double rcond = 1 / (long double)inverse / norm;
    return rcond <= 1 ? (double)rcond : rcond > 1 ? 1 : 0;
}

/* Of the job's matrix, which the user is told, and of the one that is solved with, which says how
 * refinement goes. */
static void estimate_rcond(struct blasd_engine *e) {
    double inverse = blasd_engine_norm_inverse(e, apply_inverse);
    e->own_rcond = e->rcond =
        reciprocal(inverse, e->scaled ? ldexpl(e->norm_1, -norm_exponent(e)) : e->norm_1);
    if (e->scaled)
        e->own_rcond = reciprocal(blasd_engine_norm_inverse(e, apply_own_inverse), own_norm(e));
    e->contraction = 4 * (double)UNIT * growth(e) / e->own_rcond;
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

/* Brings the block's columns into e->b, scaled as the matrix is and near 1 where they are far from
 * it. A column whose elements lie so far apart that one scale would push the small ones out of the
 * range is solved in bands, one after the other, whose solutions are added up: `band` takes what is
 * within 2^BAND of the largest element that no band has had. Returns whether any column has more.
 */
static bool load_block(struct blasd_engine *e, struct blasd_block *block, int band) {
    const struct blasd_systems *shape = &e->shape;
    bool more = false;
    for (lapack_int c = 0; c < block->k; c++) {
        const REAL *from = (const REAL *)block->system->b + (block->first + c) * shape->b_column;
        REAL *to = at(e->b, e->n, 0, c);
        int top = band > 0 ? block->top[c] : INT_MAX, most = INT_MIN;
        double greatest = 0;
        for (lapack_int i = 0; band == 0 && !e->scaled && i < e->n; i++) {
            double size = fabs((double)from[i * shape->b_row]);
            greatest = size > greatest ? size : greatest;
        }
        block->exponent[c] = 0;
        block->top[c] = INT_MIN;
        if (band == 0 && !e->scaled && greatest < SAFE &&
            (greatest > 1 / (double)SAFE || greatest == 0)) {
            block->norm_b[c] = (long double)greatest;
            for (lapack_int i = 0; i < e->n; i++) to[i] = from[i * shape->b_row];
            continue;
        }
        for (lapack_int i = 0; i < e->n; i++) {
            double value = (double)from[i * shape->b_row];
            int exponent = exponent_of(value) + e->row_scale[i];
            if (value != 0 && exponent <= top && exponent > most) most = exponent;
        }
        block->norm_b[c] = 0;
        if (most == INT_MIN) most = 0;
        block->exponent[c] = most;
        for (lapack_int i = 0; i < e->n; i++) {
            double value = (double)from[i * shape->b_row];
            int exponent = exponent_of(value) + e->row_scale[i];
            bool here = value != 0 && exponent <= top && exponent > most - BAND;
            if (value != 0 && exponent <= top && exponent <= most - BAND) {
                block->top[c] = most - BAND;
                more = true;
            }
            to[i] = here ? (REAL)ldexp(value, e->row_scale[i] - most) : 0;
            if (here) block->norm_b[c] = fmaxl(block->norm_b[c], ldexpl(fabs(value), -most));
        }
    }
    return more;
}

/* x, or what this band adds to it. What leaves the range on the way is an error without bound. */
static void store_block(const struct blasd_engine *e, struct blasd_block *block, int band) {
    REAL *x = block->system->x;
    int64_t columns = e->shape.columns;
    for (lapack_int c = 0; c < block->k; c++) {
        const REAL *from = at(e->x, e->n, 0, c);
        REAL *to = x + block->first + c;
        bool plain = !e->scaled && block->exponent[c] == 0;
        if (band > 0 && block->norm_b[c] == 0) continue;
        for (lapack_int i = 0; i < e->n; i++) {
            REAL value =
                plain ? from[i]
                      : (REAL)ldexp((double)from[i], e->column_scale[i] + block->exponent[c]);
            to[i * columns] = band > 0 ? to[i * columns] + value : value;
            if (!isfinite((double)to[i * columns])) block->error[c] = INFINITY;
        }
    }
}

/* A bound on ||b - A x|| / (||A|| ||x|| + ||b||) before scaling, from the scaled residual and what
 * rounding may have hidden from it; what is below the line stays in block->below. */
static double backward_error(const struct blasd_engine *e, struct blasd_block *block,
                             lapack_int c) {
    const REAL *x = at(e->x, e->n, 0, c), *r = at(e->r, e->n, 0, c);
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
    block->below[c] = below = e->norm_inf * size_x + block->norm_b[c];
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

static bool residual_piece(void *arg, int64_t piece, int slot) {
    const struct NAME(residuals) *work = arg;
    const struct blasd_engine *e = work->e;
    int from = (int)piece * work->each, left = work->k - from;
    int count = left < work->each ? left : work->each;
    (void)slot;
#ifdef UPDATE
    if (work->light) {
        UPDATE(e, work->column + from, count);
        return blasd_wanted();
    }
#endif
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
    work.each = e->threads > 1 ? (work.k + e->threads - 1) / e->threads : work.k;
    if (work.each > RESIDUAL_COLUMNS) work.each = RESIDUAL_COLUMNS;
    loop.count = (work.k + work.each - 1) / work.each;
    blasd_parallel_run(&loop);
}

static double size_of(const REAL *v, lapack_int n) {
    double most = 0;
    for (lapack_int i = 0; i < n; i++) {
        double size = fabs((double)v[i]);
        if (!(size <= most)) most = size;
    }
    return most;
}

/* x + d in place of x for column c, and the old x in d; how large d was against x. */
static double step_forward(struct blasd_engine *e, lapack_int c) {
    lapack_int n = e->n;
    REAL *x = at(e->x, n, 0, c), *d = at(e->d, n, 0, c);
    double size = size_of(d, n) / size_of(x, n);
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
    double ratio = size / block->last[c];
    return step == 1 || ratio < e->contraction ? fmax(ratio, fmin(e->contraction, 0.5)) : ratio;
}

/* By how much an update of the residual in plain arithmetic may be off, as backward_error counts:
 * with A (x - d) and r. */
static double hidden(const struct blasd_engine *e, const struct blasd_block *block, lapack_int c,
                     double size) {
    return (e->n + 2) * (double)UNIT * (2 * size + block->error[c]);
}

/* Whether this correction is the last one, and so small that its residual needs no extended
 * precision to be known. */
static bool light(const struct blasd_engine *e, const struct blasd_block *block, lapack_int c,
                  int step, double size) {
#ifdef UPDATE
    return !e->scaled && size * shrinking(e, block, c, step, size) <= UNIT / 4 &&
           hidden(e, block, c, size) <= LIGHT * (double)UNIT;
#else
    (void)e, (void)block, (void)c, (void)step, (void)size;
    return false;
#endif
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
        block->converged[c] = size_of(at(e->r, n, 0, c), n) == 0;
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
            e->own_rcond > 32 * e->n * (double)UNIT &&
            (!block->converged[c] || e->contraction > 0.1))
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

/* ---- what may be said of x ---- */

/* v := F inverse(A)' v in units of x's largest element, or v := inverse(A) F v, where F has
 * |A| |x| + |b| on its diagonal. */
static void apply_condition(struct blasd_engine *e, double *v, bool transposed) {
    for (lapack_int i = 0; transposed && i < e->n; i++) v[i] *= e->sum[i];
    apply_between(e, v, !transposed, transposed ? NULL : e->column_scale,
                  transposed ? e->column_scale : NULL, -e->unit_exponent);
    for (lapack_int i = 0; !transposed && i < e->n; i++) v[i] *= e->sum[i];
}

/* Whether errors of the last digit in A and b may change all of x: its condition, |inverse(A)|
 * (|A| |x| + |b|) against |x| in the largest element, does not depend on how rows are scaled, as
 * rcond does. */
static bool doubtful(struct blasd_engine *e, const struct blasd_block *block, lapack_int c) {
    const REAL *x = at(e->x, e->n, 0, c), *b = at(e->b, e->n, 0, c);
    double size = 0, condition;
    int most = INT_MIN;
    for (lapack_int i = 0; i < e->n; i++) {
        int exponent = exponent_of((double)x[i]) + e->column_scale[i];
        if (x[i] != 0 && exponent > most) most = exponent;
        e->sum[i] = fabs((double)b[i]);
    }
    if (most == INT_MIN || !isfinite(block->error[c])) return false;
    for (lapack_int j = 0; j < e->n; j++) {
        const REAL *column = at(e->matrix, e->n, 0, j);
        size = fmax(size, ldexp(fabs((double)x[j]), e->column_scale[j] - most));
        for (lapack_int i = 0; i < e->n; i++)
            e->sum[i] += fabs((double)column[i]) * fabs((double)x[j]);
    }
    e->unit_exponent = most;
    condition = blasd_engine_norm_inverse(e, apply_condition) / size;
    return !(condition * (double)UNIT < DOUBT);
}

/* Whether some x of a block may be doubtful: one estimate, with the largest that each element of x
 * and b has in any column against its column's size, in place of one for each column. */
static bool some_doubtful(struct blasd_engine *e, const struct blasd_block *block) {
    REAL *most = e->r;
    if (e->scaled || block->k < 3) return true;
    memset(most, 0, (size_t)e->n * sizeof *most);
    memset(e->sum, 0, (size_t)e->n * sizeof *e->sum);
    for (lapack_int c = 0; c < block->k; c++) {
        const REAL *x = at(e->x, e->n, 0, c), *b = at(e->b, e->n, 0, c);
        double size = NAME(largest)(x, e->n);
        if (size == 0 || !isfinite(block->error[c])) continue;
        for (lapack_int i = 0; i < e->n; i++) {
            most[i] = (REAL)fmax((double)most[i], fabs((double)x[i]) / size);
            e->sum[i] = fmax(e->sum[i], fabs((double)b[i]) / size);
        }
    }
    for (lapack_int j = 0; j < e->n; j++) {
        const REAL *column = at(e->matrix, e->n, 0, j);
        for (lapack_int i = 0; i < e->n; i++)
            e->sum[i] += fabs((double)column[i]) * (double)most[j];
    }
    e->unit_exponent = 0;
    return !(blasd_engine_norm_inverse(e, apply_condition) * (double)UNIT < DOUBT);
}

static bool refactor(struct blasd_engine *e, const REAL *a) {
    return e->factored == a || prepare(e, a);
}

/* Adds the errors of a band to those of the column as a whole, of which it may be a tiny part. */
static void add_band(struct blasd_block *block, lapack_int c) {
    long double below = ldexpl(block->below[c], block->exponent[c]);
    if (below > block->all_below[c]) block->all_below[c] = below;
    if (!isfinite(block->error[c]))
        block->all_r[c] = INFINITY;
    else
        block->all_r[c] += (long double)block->error[c] * below;
}

/* The block's columns, to their end; sums up what came of them. */
static bool run_block(struct blasd_engine *e, struct blasd_system *system,
                      struct blasd_block *block) {
    bool more = true;
    for (int band = 0; more; band++) {
        if (!refactor(e, system->a)) return false;
        more = load_block(e, block, band);
        solve_block(e, block);
        if (!blasd_wanted()) return false;
        if (!good_enough(e, block)) solve_block_qr(e, block, block + 1);
        store_block(e, block, band);
        for (lapack_int c = 0; c < block->k; c++) {
            add_band(block, c);
            if (block->steps[c] > system->steps) system->steps = block->steps[c];
        }
        if (e->method == BLASD_SOLVED_QR) system->method = BLASD_SOLVED_QR;
        system->rcond = e->rcond;
        if (!(e->rcond < 2 * e->n * (double)UNIT)) continue;
        if (!refactor(e, system->a)) return false; /* QR may have left nothing */
        if (!some_doubtful(e, block)) continue;
        for (lapack_int c = 0; c < block->k && !system->doubtful && blasd_wanted(); c++)
            system->doubtful = doubtful(e, block, c);
    }
    for (lapack_int c = 0; c < block->k; c++) {
        double error = block->all_r[c] > 0 ? (double)(block->all_r[c] / block->all_below[c]) : 0;
        if (!(error <= system->error)) system->error = error;
    }
    return blasd_wanted();
}

bool NAME(blasd_engine_run)(struct blasd_engine *e, struct blasd_system *system) {
    struct blasd_block *block = e->blocks;
    int64_t columns = e->shape.columns, done = 0;
    bool going = true;
    system->steps = 0;
    system->error = 0;
    system->doubtful = false;
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
        going = run_block(e, system, block) &&
                blasd_engine_step(e, 0.9 + 0.1 * (double)(c + block->k) / (double)columns);
    }
    /* the next system with this matrix begins as this one did, not with QR */
    if (e->method == BLASD_SOLVED_QR) e->factored = NULL;
    return going;
}
