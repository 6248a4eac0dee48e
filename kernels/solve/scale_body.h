/* From the job's matrix to the scaled one, R A C: loading by structure, largest elements, norms,
 * scales. Included by engine_body.h, once for each precision, under its definitions; knows nothing
 * of factors. Read next: factor_body.h. */

#define GOOD_RATIO 0x1p-8 /* rows, or columns, that differ by less are left as they are */
#define BALANCE_PASSES 16 /* each halves exponents, of which the largest are about 2^11 */
#define TILE 32
#define BLOCK 8 /* elements, about a line of the cache: those of so many rows stay in it */
#define SUMS 32 /* a chain of sums or comparisons waits for each; so many go side by side */

static REAL *at(const void *matrix, int64_t ld, int64_t i, int64_t j) {
    return (REAL *)matrix + j * ld + i;
}

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
    bool lower = e->shape.assume == BLASD_ASSUME_LOWER_TRIANGULAR;
    bool upper = e->shape.assume == BLASD_ASSUME_UPPER_TRIANGULAR;
    int64_t n = e->n, done = 0;
    load_all(e, a);
    for (int64_t j = 0; j < n && lower && blasd_wanted_after(&done, n); j++)
        memset(at(e->matrix, n, 0, j), 0, (size_t)j * sizeof *a);
    for (int64_t j = 0; j < n && upper && blasd_wanted_after(&done, n); j++)
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

/* The same, but NaN where an element is not finite. */
BLASD_CLONES
static double NAME(size_of)(const REAL *x, int64_t n) {
    REAL none[SUMS] = {0};
    double all = NAME(largest)(x, n);
    int64_t i = 0;
    for (; i + SUMS <= n; i += SUMS)
        for (int k = 0; k < SUMS; k++) none[k] += 0 * x[i + k];
    for (; i < n; i++) none[0] += 0 * x[i];
    for (int k = 0; k < SUMS; k++) all += (double)none[k];
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

/* One scale for row and column i, so that the largest element of each row comes to about 1: a row's
 * largest has another row's scale in it, so what is left is halved, again and again. Begins with
 * the scales that are there. */
static void balance_symmetric(struct blasd_engine *e) {
    int64_t n = e->n, done = 0;
    bool again = true;
    for (int pass = 0; again && pass < BALANCE_PASSES; pass++) {
        again = false;
        for (int64_t i = 0; i < n; i++) e->sum[i] = INT_MIN;
        for (int64_t j = 0; j < n && blasd_wanted_after(&done, 20 * n); j++) {
            const REAL *column = at(e->matrix, n, 0, j);
            for (int64_t i = 0; i < n; i++)
                if (column[i] != 0)
                    e->sum[i] =
                        fmax(e->sum[i], exponent_of((double)column[i]) + e->column_scale[j]);
        }
        for (int64_t i = 0; i < n; i++) {
            int over = e->sum[i] == INT_MIN ? 0 : ((int)e->sum[i] + e->row_scale[i]) / 2;
            again = again || over != 0;
            e->row_scale[i] -= over;
        }
        memcpy(e->column_scale, e->row_scale, (size_t)n * sizeof(int));
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
    if (e->shape.assume == BLASD_ASSUME_SYMMETRIC) balance_symmetric(e);
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
