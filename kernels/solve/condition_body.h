/* Condition numbers: of the matrix, which the user is told, and of the scaled one, which says how
 * refinement goes; and whether the factors are worth anything. Included
 * by engine_body.h, once for each precision, under its definitions. Read next: refine_body.h. */

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

/* ---- of the factors ---- */

/* Whether the factors may know nothing of the inverse, where the condition leaves that open. For w
 * = A inverse(factors) w + r with a singular A, y' r = y' w, y being orthogonal to its columns: r
 * is about as large as w, whatever the factors are and however they are scaled. So small remainders
 * of some w that no y is orthogonal to say that A is regular, and that refinement converges.
 * Destroys e->x, e->b and e->r. */
static bool unproven(struct blasd_engine *e) {
    lapack_int n = e->n;
    REAL *x = e->x;
    for (lapack_int p = 0; p < BLASD_SOLVE_PROBES; p++)
        for (lapack_int i = 0; i < n; i++)
            *at(x, n, i, p) = *at(e->b, n, i, p) = (REAL)blasd_solve_probe(i, p);
    apply_factors(e, x, BLASD_SOLVE_PROBES, false);
    for (lapack_int p = 0; p < BLASD_SOLVE_PROBES && blasd_wanted(); p++) {
        const REAL *r = at(e->r, n, 0, p);
        double left = 0;
        NAME(residual)(e, x, e->b, e->r, &p, 1);
        for (lapack_int i = 0; i < n; i++) left += (double)r[i] * (double)r[i];
        if (!(sqrt(left) <= BLASD_SOLVE_PROBE_LEFT)) return true;
    }
    return false;
}
