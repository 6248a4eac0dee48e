/* Condition numbers: of the matrix, which the user is told, of the scaled one, which says how
 * refinement goes, and of a solution, which says whether any of its digits must be right. Included
 * by engine_body.h, once for each precision, under its definitions. Read next: refine_body.h. */

#define DOUBT 0x1p-4 /* of x: with a larger error not one digit need be right */

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

/* ---- of a solution ---- */

/* v := F inverse(A)' v in units of x's largest element, or v := inverse(A) F v, where F has what is
 * left of b and what rounding hides on its diagonal. */
static void apply_condition(struct blasd_engine *e, double *v, bool transposed) {
    for (lapack_int i = 0; transposed && i < e->n; i++) v[i] *= e->sum[i];
    apply_between(e, v, !transposed, transposed ? NULL : e->column_scale,
                  transposed ? e->column_scale : NULL, -e->unit_exponent);
    for (lapack_int i = 0; !transposed && i < e->n; i++) v[i] *= e->sum[i];
}

/* Adds what column c leaves of b, |b - A x|, to e->sum, and by how much errors of the last digit in
 * A and b may change that, u (|A| |x| + |b|); both over `size`, and the larger of it and what is
 * there. */
static void take_errors(struct blasd_engine *e, lapack_int c, double size) {
    const REAL *x = at(e->x, e->n, 0, c), *b = at(e->b, e->n, 0, c), *r = at(e->r, e->n, 0, c);
    double *sum = e->v;
    for (lapack_int i = 0; i < e->n; i++)
        sum[i] = fabs((double)r[i]) + (double)UNIT * fabs((double)b[i]);
    for (lapack_int j = 0; j < e->n; j++) {
        const REAL *column = at(e->matrix, e->n, 0, j);
        double by = (double)UNIT * fabs((double)x[j]);
        for (lapack_int i = 0; i < e->n; i++) sum[i] += fabs((double)column[i]) * by;
    }
    for (lapack_int i = 0; i < e->n; i++) e->sum[i] = fmax(e->sum[i], sum[i] / size);
}

/* Whether x may have no correct digit: a bound on its error, |inverse(A)| times what the equations
 * are off and may be off, against its largest element. It does not depend on how rows are scaled,
 * as rcond does; and what factors lost that a small row needs shows in what is left of b. */
static bool doubtful(struct blasd_engine *e, const struct blasd_block *block, lapack_int c) {
    const REAL *x = at(e->x, e->n, 0, c);
    double size = 0;
    int most = INT_MIN;
    for (lapack_int i = 0; i < e->n; i++) {
        int exponent = exponent_of((double)x[i]) + e->column_scale[i];
        if (x[i] != 0 && exponent > most) most = exponent;
    }
    if (most == INT_MIN || !isfinite(block->error[c])) return false;
    for (lapack_int j = 0; j < e->n; j++)
        size = fmax(size, ldexp(fabs((double)x[j]), e->column_scale[j] - most));
    memset(e->sum, 0, (size_t)e->n * sizeof *e->sum);
    take_errors(e, c, 1);
    e->unit_exponent = most;
    return !(blasd_engine_norm_inverse(e, apply_condition) / size < DOUBT);
}

/* Whether some x of a block may be doubtful: one estimate, with the largest of each row in any
 * column against its column's size, in place of one for each column. */
static bool some_doubtful(struct blasd_engine *e, const struct blasd_block *block) {
    if (e->scaled || block->k < 3) return true;
    memset(e->sum, 0, (size_t)e->n * sizeof *e->sum);
    for (lapack_int c = 0; c < block->k; c++) {
        double size = NAME(largest)(at(e->x, e->n, 0, c), e->n);
        if (size > 0 && isfinite(block->error[c])) take_errors(e, c, size);
    }
    e->unit_exponent = 0;
    return !(blasd_engine_norm_inverse(e, apply_condition) < DOUBT);
}

/* Adds to e->sum the sizes of what was subtracted from each pivot, and the pivots to e->v. */
static void sum_pivots(struct blasd_engine *e) {
    bool lu = e->method == BLASD_SOLVED_LU;
    int64_t n = e->n, done = 0;
    for (int64_t j = 0; j < n && blasd_wanted_after(&done, 4 * (n - j)); j++) {
        const REAL *column = at(e->factors, n, 0, j), *row = at(e->factors, n, j, 0);
        double own = fabs((double)column[j]);
        e->v[j] = lu || e->method == BLASD_SOLVED_QR ? own : own * own;
        if (e->method == BLASD_SOLVED_QR) {
            for (int64_t i = 0; i < j; i++) e->sum[j] += fabs((double)column[i]);
            continue;
        }
        for (int64_t k = j + 1; k < n; k++)
            e->sum[k] += fabs((double)column[k] * (double)(lu ? row[k * n] : column[k]));
    }
}

/* Whether the factors are of a kind whose pivots are known what for. */
static bool has_pivots(const struct blasd_engine *e) {
    return e->method == BLASD_SOLVED_LU || e->method == BLASD_SOLVED_CHOLESKY ||
           e->method == BLASD_SOLVED_QR;
}

/* Whether some pivot may be rounding alone: then the factors know nothing of the inverse, and no
 * condition that is estimated with them shows what a singular block hides beside elements of x that
 * are far larger. Where none may be, recheck.c need not ask the same of better factors. */
static bool pivots_may_be_rounding(struct blasd_engine *e) {
    double lost = 4 * sqrt((double)e->n) * (double)UNIT;
    if (!has_pivots(e)) return true;
    memset(e->sum, 0, (size_t)e->n * sizeof *e->sum);
    sum_pivots(e);
    for (lapack_int k = 0; k < e->n; k++)
        if (!(e->v[k] > lost * (e->v[k] + e->sum[k]))) return true;
    return false;
}
