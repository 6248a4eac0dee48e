/* eigh, svd, qr and lstsq against their definitions in long double: shapes, scales up to the ends
 * of the range, ranks, graded rows and columns, both dtypes, stacks; and that what a job says of
 * its own quality holds. Of these and cholesky (test_cholesky.c): the triangle that is not read,
 * large ones in short calls. Read next: ../../../kernels/lapack/README.md. */
#include "decomposition_support.h"
#ifdef TRIAL_ON_THE_CPU
#include "kernels/lapack/lapack.h"
#endif

#include <float.h>

/* ---- eigh ---- */

static void check_eigh(enum kind kind, int n, bool single, bool upper) {
    double *a = matrix(kind, n, n, single);
    int e;
    struct trial *t, *values;
    long double *wide, *w = trial_alloc((size_t)(n + 1) * sizeof *w), all, sum = 0, *v,
                       u = unit_of(single);
    running = kind_names[kind];
    make_symmetric(a, n);
    e = exponent_of(a, n * n);
    t = job_of("eigh", a, n, n, single);
    trial_set_choice(t, "uplo", upper ? "upper" : "lower");
    assert_int_equal(trial_run(t), BLASD_OK);
    values = job_of("eigh", a, n, n, single);
    trial_set_bool(values, "vectors", false);
    assert_int_equal(trial_run(values), BLASD_OK);
    wide = widen(a, n * n, -e);
    all = norm(wide, n * n);
    v = values_of(t, "eigenvectors");
    for (int j = 0; j < n; j++)
        for (int i = 0; i < n; i++) {
            long double r = -ldexpl(value(t, "eigenvalues", j), -e) * v[i * n + j];
            for (int k = 0; k < n; k++) r += wide[i * n + k] * v[k * n + j];
            sum += r * r;
        }
    free(v);
    sum = sqrtl(sum);
    expect_at_most(t, "residual", sum, 4 * n * u * all);
    expect_at_most(t, "residual against what it says", sum, value(t, "residual", 0) * all);
    expect_at_most(t, "orthogonality", off_orthogonal(t, "eigenvectors", n, n, n, false),
                   value(t, "orthogonality", 0));
    expect_at_most(t, "said orthogonality", value(t, "orthogonality", 0), 16 * n * u);
    blasd_ref_eigh(n, wide, w);
    for (int i = 0; i < n; i++) {
        expect_at_most(t, "value", fabsl(ldexpl(value(t, "eigenvalues", i), -e) - w[i]),
                       4 * n * u * all);
        expect_at_most(values, "value", fabsl(ldexpl(value(values, "eigenvalues", i), -e) - w[i]),
                       4 * n * u * all);
        if (i > 0) assert_true(value(t, "eigenvalues", i) >= value(t, "eigenvalues", i - 1));
    }
    if (kind != HUGE_ONE) assert_int_equal(t->task.warning_count, 0);
    trial_free(t);
    trial_free(values);
    free(a);
    free(wide);
    free(w);
}

static void eigenvalues_and_vectors(void **state) {
    static const int sizes[] = {1, 2, 3, 7, 24, 40};
    (void)state;
    for (int kind = 0; kind < KINDS; kind++)
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i += (size_t)trial_step(2))
            for (int single = 0; single < 2; single++)
                check_eigh((enum kind)kind, sizes[i], single, (int)i % 2);
}

/* ---- svd ---- */

static void check_svd(enum kind kind, int m, int n, bool single, bool full) {
    double *a = matrix(kind, m, n, single);
    int e = exponent_of(a, m * n), k = m < n ? m : n, columns = full ? m : k, rows = full ? n : k;
    struct trial *t = job_of("svd", a, m, n, single), *values = job_of("svd", a, m, n, single);
    long double *wide = widen(a, m * n, -e), all = norm(wide, m * n), sum = 0, u = unit_of(single);
    long double *s = trial_alloc((size_t)(k + 1) * sizeof *s), *ref, *v, left, right, *x, *y;
    running = kind_names[kind];
    trial_set_bool(t, "full_matrices", full);
    trial_set_bool(values, "compute_uv", false);
    assert_int_equal(trial_run(t), BLASD_OK);
    assert_int_equal(trial_run(values), BLASD_OK);
    x = values_of(t, "U");
    y = values_of(t, "Vh");
    for (int i = 0; i < m; i++)
        for (int p = 0; p < k; p++) x[i * columns + p] *= ldexpl(value(t, "S", p), -e);
    for (int i = 0; i < m; i++)
        for (int j = 0; j < n; j++) {
            long double r = wide[i * n + j];
            for (int p = 0; p < k; p++) r -= x[i * columns + p] * y[p * n + j];
            sum += r * r;
        }
    free(x);
    free(y);
    sum = sqrtl(sum);
    expect_at_most(t, "residual", sum, 4 * (m + n) * u * all);
    expect_at_most(t, "residual against what it says", sum, value(t, "residual", 0) * all);
    left = off_orthogonal(t, "U", m, columns, columns, false);
    right = off_orthogonal(t, "Vh", rows, n, rows, true);
    expect_at_most(t, "left", left, 16 * (m + n) * u);
    expect_at_most(t, "right", right, 16 * (m + n) * u);
    left = off_orthogonal(t, "U", m, columns, k, false);
    right = off_orthogonal(t, "Vh", rows, n, k, true);
    expect_at_most(t, "orthogonality", fmaxl(left, right), value(t, "orthogonality", 0));
    ref = trial_alloc((size_t)(m * n + 1) * sizeof *ref);
    v = trial_alloc((size_t)(k * k + 1) * sizeof *v);
    for (int i = 0; i < m * n; i++)
        ref[m >= n ? i : i % n * m + i / n] = wide[i]; /* the tall one */
    blasd_ref_svd(m >= n ? m : n, k, ref, s, v);
    for (int i = 0; i < k; i++) {
        expect_at_most(t, "value", fabsl(ldexpl(value(t, "S", i), -e) - s[i]),
                       4 * (m + n) * u * all);
        expect_at_most(values, "value", fabsl(ldexpl(value(values, "S", i), -e) - s[i]),
                       4 * (m + n) * u * all);
    }
    trial_free(t);
    trial_free(values);
    free(a);
    free(wide);
    free(s);
    free(ref);
    free(v);
}

static void singular_values_and_vectors(void **state) {
    static const int sizes[][2] = {{1, 1}, {1, 5},  {6, 1},  {4, 4},
                                   {9, 7}, {5, 12}, {40, 9}, {30, 30}};
    (void)state;
    for (int kind = 0; kind < KINDS; kind++)
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i += (size_t)trial_step(2))
            for (int how = 0; how < 4; how++)
                check_svd((enum kind)kind, sizes[i][0], sizes[i][1], how % 2, how / 2);
}

/* ---- qr ---- */

static void check_qr(enum kind kind, int m, int n, bool single, const char *mode) {
    double *a = matrix(kind, m, n, single);
    int k = m < n ? m : n, rows = strcmp(mode, "complete") == 0 ? m : k;
    struct trial *t = job_of("qr", a, m, n, single);
    long double u = unit_of(single), *r, *q = NULL;
    running = kind_names[kind];
    trial_set_choice(t, "mode", mode);
    assert_int_equal(trial_run(t), BLASD_OK);
    assert_int_equal(trial_has_output(t, "Q"), strcmp(mode, "r") != 0);
    r = values_of(t, "R");
    if (trial_has_output(t, "Q")) q = values_of(t, "Q");
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < i && j < n; j++) assert_true(value(t, "R", i * n + j) == 0);
    for (int j = 0; j < n; j++) { /* each column by itself: Householder's reflections are so good */
        long double of_r = 0, of_a = 0, sum = 0;
        const int e = kind == TINY ? 900 : 0;
        for (int i = 0; i < rows; i++) of_r += ldexpl(r[i * n + j] * r[i * n + j], 2 * e);
        for (int i = 0; i < m; i++) {
            long double x = a[i * n + j];
            of_a += ldexpl(x * x, 2 * e);
            for (int p = 0; q != NULL && p < rows; p++) x -= q[i * rows + p] * r[p * n + j];
            sum += ldexpl(x * x, 2 * e);
        }
        if (q == NULL) sum = 0;
        expect_at_most(t, "length of a column", fabsl(sqrtl(of_r) - sqrtl(of_a)),
                       8 * (m + n) * u * sqrtl(of_a));
        expect_at_most(t, "column", sqrtl(sum), 8 * (m + n) * u * sqrtl(of_a));
    }
    if (strcmp(mode, "r") != 0) {
        expect_at_most(t, "Q", off_orthogonal(t, "Q", m, rows, rows, false), 16 * (m + n) * u);
        expect_at_most(t, "Q against what it says", off_orthogonal(t, "Q", m, rows, k, false),
                       value(t, "orthogonality", 0));
    }
    if (kind == PLAIN && m >= n) {
        long double *wide = widen(a, m * n, 0), *ref = trial_alloc((size_t)(n * n) * sizeof *ref);
        blasd_ref_qr(m, n, wide, ref);
        for (int i = 0; i < n; i++)
            expect_at_most(t, "R", fabsl(fabsl(value(t, "R", i * n + i)) - ref[i * n + i]),
                           1e3L * n * u);
        free(wide);
        free(ref);
    }
    free(r);
    free(q);
    trial_free(t);
    free(a);
}

static void orthogonal_and_triangular(void **state) {
    static const int sizes[][2] = {{1, 1}, {1, 5},  {6, 1},  {300, 1}, {4, 4},
                                   {9, 7}, {5, 12}, {40, 9}, {30, 30}};
    static const char *const modes[] = {"reduced", "complete", "r"};
    (void)state;
    for (int kind = 0; kind < KINDS; kind++)
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i += (size_t)trial_step(2))
            for (int how = 0; how < 6; how++)
                check_qr((enum kind)kind, sizes[i][0], sizes[i][1], how % 2, modes[how / 2]);
}

/* As LAPACK has it: nothing below the first element leaves it its sign, all else turns it round. */
static void signs_of_a_single_column(void **state) {
    static const double columns[][3] = {{3, 0, 4}, {-3, 0, 4}, {3, 0, 0}, {-3, 0, 0}, {0, 0, 0}};
    static const double r[] = {-5, 5, 3, -3, 0}, q[] = {-0.6, -0.6, 1, 1, 1};
    (void)state;
    for (size_t i = 0; i < sizeof r / sizeof *r; i++) {
        struct trial *t = job_of("qr", columns[i], 3, 1, i % 2);
        assert_int_equal(trial_run(t), BLASD_OK);
        expect_at_most(t, "R", fabsl(value(t, "R", 0) - r[i]), 1e-6L);
        expect_at_most(t, "Q", fabsl(value(t, "Q", 0) - q[i]), 1e-6L);
        trial_free(t);
    }
}

/* ---- lstsq ---- */

static void check_lstsq(enum kind kind, int m, int n, int columns, bool single) {
    double *a = matrix(kind, m, n, single), *b = matrix(PLAIN, m, columns, single);
    int e = exponent_of(a, m * n), k = m < n ? m : n, rank = 0;
    enum blasd_dtype dtype = single ? BLASD_float32 : BLASD_float64;
    struct trial *t = job_of("lstsq", a, m, n, single);
    void *to = trial_input(t, "b", dtype, BLASD_ROW_MAJOR, 2, (int64_t[]){m, columns});
    long double *wide = widen(a, m * n, -e), u = unit_of(single), rcond = single ? 1e-4L : 1e-10L;
    long double *x = trial_alloc((size_t)n * sizeof *x),
                *right = trial_alloc((size_t)m * sizeof *x);
    running = kind_names[kind];
    for (int i = 0; i < m * columns; i++) trial_put(to, dtype, i, b[i]);
    trial_set_float(t, "rcond", (double)rcond);
    assert_int_equal(trial_run(t), BLASD_OK);
    for (int c = 0; c < columns; c++) {
        long double size = 0, off = 0, sum = 0, s0 = value(t, "s", 0), sk;
        for (int i = 0; i < m; i++) right[i] = b[i * columns + c];
        rank = blasd_ref_lstsq(m, n, wide, right, rcond, x);
        assert_int_equal((int)value(t, "rank", 0), rank);
        sk = rank > 0 ? value(t, "s", rank - 1) : s0;
        for (int i = 0; i < n; i++) {
            long double d = ldexpl(value(t, "x", i * columns + c), e) - x[i];
            size += x[i] * x[i];
            off += d * d;
        }
        for (int i = 0; i < m; i++) {
            long double r = right[i];
            for (int j = 0; j < n; j++) r -= wide[i * n + j] * x[j];
            sum += r * r;
        }
        /* the condition, times the residual's part that it squares */
        if (sk > 0)
            expect_at_most(t, "x", sqrtl(off),
                           30.0L * (m + n) * u * (s0 / sk) *
                               (sqrtl(size) + sqrtl(sum) / ldexpl(sk, -e)));
        expect_at_most(t, "residuals", fabsl(sqrtl(value(t, "residuals", c)) - sqrtl(sum)),
                       30.0L * (m + n) * u * (norm(right, m) + sqrtl(sum)));
    }
    expect_at_most(t, "optimality", value(t, "optimality", 0), 16 * (m + n) * u + rcond);
    assert_int_equal(t->task.warning_count,
                     (rank < k) + (value(t, "info", 0) == BLASD_W_precision_loss));
    if (rank == k && m >= n) assert_true(value(t, "info", 0) == 0);
    trial_free(t);
    free(a);
    free(b);
    free(x);
    free(right);
    free(wide);
}

static void shortest_solutions(void **state) {
    static const int sizes[][2] = {{1, 1}, {1, 5}, {6, 1}, {4, 4}, {9, 7}, {5, 12}, {40, 9}};
    static const enum kind kinds[] = {PLAIN, LOW_RANK, EQUAL, DIAGONAL, GRADED_ROWS};
    (void)state;
    for (size_t kind = 0; kind < sizeof kinds / sizeof *kinds; kind++)
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
            for (int how = 0; how < 4; how++)
                check_lstsq(kinds[kind], sizes[i][0], sizes[i][1], how / 2 ? 3 : 1, how % 2);
}

/* Batch dimensions of a and b broadcast; a vector b serves every matrix. */
static void lstsq_broadcasts(void **state) {
    struct trial *t = trial_new("lstsq"), *one;
    double *a = trial_input(t, "a", BLASD_float64, BLASD_ROW_MAJOR, 4, (int64_t[]){2, 1, 6, 3});
    double *b = trial_input(t, "b", BLASD_float64, BLASD_ROW_MAJOR, 4, (int64_t[]){1, 3, 6, 2});
    (void)state;
    for (int i = 0; i < 36; i++) a[i] = trial_normal();
    for (int i = 0; i < 36; i++) b[i] = trial_normal();
    assert_int_equal(trial_run(t), BLASD_OK);
    for (int i = 0; i < 6; i++) {
        one = trial_new("lstsq");
        memcpy(trial_input(one, "a", BLASD_float64, BLASD_ROW_MAJOR, 2, (int64_t[]){6, 3}),
               a + i / 3 * 18, 18 * sizeof *a);
        memcpy(trial_input(one, "b", BLASD_float64, BLASD_ROW_MAJOR, 2, (int64_t[]){6, 2}),
               b + i % 3 * 12, 12 * sizeof *b);
        assert_int_equal(trial_run(one), BLASD_OK);
        for (int j = 0; j < 6; j++) assert_true(value(t, "x", i * 6 + j) == value(one, "x", j));
        for (int j = 0; j < 2; j++)
            assert_true(value(t, "residuals", i * 2 + j) == value(one, "residuals", j));
        trial_free(one);
    }
    trial_free(t);
}

/* Solutions and scales at the ends of the range. */
/* x is too small for its dtype: the residuals are those of what is sent. */
static void lstsq_residuals_are_of_x_as_it_is_sent(void **state) {
    (void)state;
    for (int single = 0; single < 2; single++) {
        const double size = single ? 0x1p-60 : 0x1p-330, steep = single ? 0x1p100 : 0x1p1000;
        const double a[2] = {steep, steep}, b[2] = {3 * size, size};
        struct trial *t = trial_new("lstsq");
        enum blasd_dtype dtype = single ? BLASD_float32 : BLASD_float64;
        void *in_a = trial_input(t, "a", dtype, BLASD_ROW_MAJOR, 2, (int64_t[]){2, 1});
        void *in_b = trial_input(t, "b", dtype, BLASD_ROW_MAJOR, 1, (int64_t[]){2});
        for (int i = 0; i < 2; i++) {
            trial_put(in_a, dtype, i, a[i]);
            trial_put(in_b, dtype, i, b[i]);
        }
        assert_int_equal(trial_run(t), BLASD_OK);
        assert_true(trial_value(trial_output(t, "x"), 0) == 0);
        ASSERT_CLOSE(trial_value(trial_output(t, "residuals"), 0), 10 * size * size,
                     1e-6 * size * size);
        trial_free(t);
    }
}

/* Of what x nearly meets float64 leaves rounding: two digits, or none. */
static void lstsq_residuals_of_nearly_exact_fits(void **state) {
    static const int sizes[][2] = {{1, 1}, {6, 3}, {4, 4}, {3, 6}, {40, 10}, {600, 5}};
    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int size = 0; size <= 40; size += 8) {
            const int m = sizes[i][0], n = sizes[i][1];
            double *a = matrix(PLAIN, m, n, false);
            struct trial *t = job_of("lstsq", a, m, n, false);
            double *b = trial_input(t, "b", BLASD_float64, BLASD_ROW_MAJOR, 2, (int64_t[]){m, 2});
            for (int p = 0; p < m; p++) { /* one that is met but for its size, one that is not */
                b[2 * p] = ldexp(trial_uniform(), -size);
                b[2 * p + 1] = trial_uniform();
                for (int j = 0; j < n; j++) b[2 * p] += a[p * n + j] * (j + 1);
            }
            assert_int_equal(trial_run(t), BLASD_OK);
            for (int c = 0; c < 2; c++) {
                long double sum = 0, sizes_of = 0;
                for (int p = 0; p < m; p++) {
                    long double r = b[2 * p + c], all = fabsl(r);
                    for (int j = 0; j < n; j++) {
                        long double term = (long double)a[p * n + j] * value(t, "x", 2 * j + c);
                        r -= term;
                        all += fabsl(term);
                    }
                    sum += r * r;
                    sizes_of += all * all;
                }
                /* what long double may have rounded; and of large residuals, float64 */
                expect_at_most(t, "residuals", fabsl(sqrtl(value(t, "residuals", c)) - sqrtl(sum)),
                               (n + 2) * (0x1p-63L * sqrtl(sizes_of) + 0x1p-42L * sqrtl(sum)));
            }
            trial_free(t);
            free(a);
        }
}

static void lstsq_at_the_ends_of_the_range(void **state) {
    static const double scales[][2] = {
        {1e300, 1e300}, {1e-300, 1e-300}, {1e300, 1}, {1e-150, 1e150}, {1e-310, 1e-310}};
    (void)state;
    for (size_t s = 0; s < sizeof scales / sizeof *scales; s++) {
        struct trial *t = trial_new("lstsq");
        double *a = trial_input(t, "a", BLASD_float64, BLASD_ROW_MAJOR, 2, (int64_t[]){3, 2});
        double *b = trial_input(t, "b", BLASD_float64, BLASD_ROW_MAJOR, 1, (int64_t[]){3});
        a[0] = a[3] = scales[s][0];
        b[0] = 2 * scales[s][1];
        b[1] = 3 * scales[s][1];
        assert_int_equal(trial_run(t), BLASD_OK);
        for (int i = 0; i < 2; i++) {
            long double wish = (long double)b[i] / (long double)scales[s][0];
            expect_at_most(t, "x", fabsl(value(t, "x", i) - wish),
                           8 * DBL_EPSILON * wish + 0x1p-1074L);
        }
        assert_int_equal(t->task.warning_count, 0);
        a[0] = a[3] = 1e-200;
        for (int sign = 0; sign < 4; sign++) { /* infinities of both signs count alike */
            b[0] = sign % 2 == 0 ? 1e200 : -1e200;
            b[1] = sign / 2 == 0 ? 1e200 : -1e200;
            b[2] = 0;
            assert_int_equal(trial_run(t), BLASD_OK);
            assert_true(isinf((double)value(t, "x", 0)) && isinf((double)value(t, "x", 1)));
            assert_true(t->task.warning_count >= 1); /* another may be of residuals */
            assert_string_equal(t->task.warnings[0].text,
                                "2 elements of x are beyond the range of float64");
        }
        trial_free(t);
    }
}

/* An infinity of x leaves its other elements as they are, and is NaN in what is said of it. */
static void lstsq_beyond_the_range_in_part(void **state) {
    static const double a[4] = {1, 0, 0, 1e-310};
    struct trial *t = job_of("lstsq", a, 2, 2, false);
    double *b = trial_input(t, "b", BLASD_float64, BLASD_ROW_MAJOR, 2, (int64_t[]){2, 2});
    (void)state;
    for (int i = 0; i < 4; i += 2) b[i] = 1;
    trial_set_float(t, "rcond", 0);
    assert_int_equal(trial_run(t), BLASD_OK);
    assert_int_equal((int)value(t, "rank", 0), 2);
    assert_true(value(t, "x", 0) == 1 && isinf((double)value(t, "x", 2)));
    assert_true(value(t, "x", 1) == 0 && value(t, "x", 3) == 0);
    assert_true(isnan((double)value(t, "optimality", 0)));
    assert_int_equal(t->task.warning_count, 2);
    assert_string_equal(t->task.warnings[0].text,
                        "1 elements of x are beyond the range of float64");
    assert_string_equal(t->task.warnings[1].text,
                        "1 elements of residuals are beyond the range of float64");
    assert_int_equal((int)value(t, "info", 0), BLASD_W_overflow);
    trial_free(t);
}

/* ---- below the range ---- */

/* left (m x k) right (k x n), what is between times by[i] (NULL: 1), against a. */
static void check_below(const struct trial *t, const double *a, int m, int n, int k,
                        const char *left, const char *by, const char *right, bool adjoint) {
    long double off = 0, size = 0;
    for (int i = 0; i < m; i++)
        for (int j = 0; j < n; j++) {
            long double sum = -(long double)a[i * n + j];
            for (int l = 0; l < k; l++)
                sum += value(t, left, i * k + l) * (by == NULL ? 1 : value(t, by, l)) *
                       value(t, right, adjoint ? j * k + l : l * n + j);
            off += sum * sum;
            size += (long double)a[i * n + j] * (long double)a[i * n + j];
        }
    expect_at_most(t, "residual", sqrtl(off) / sqrtl(size), value(t, "residual", 0));
}

/* Values are rounded to what there is below the range, and the residual says it. V is orthogonal
 * but for 1e-15, so V diag(w) V' will do for eigh. */
static void below_the_range(void **state) {
    static const struct {
        double size;
        bool single;
    } cases[] = {{1e-308, false}, {1e-310, false}, {1e-318, false}, {3e-323, false},
                 {1e-38, true},   {1e-42, true},   {1e-44, true}};
    const int n = 4;
    (void)state;
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++)
        for (int turn = 0; turn < 8; turn += trial_step(3)) {
            bool single = cases[c].single;
            double *a = matrix(PLAIN, n, n, false);
            struct trial *t;
            running = "below the range";
            make_symmetric(a, n);
            for (int i = 0; i < n * n; i++) {
                a[i] *= cases[c].size;
                if (single) a[i] = (double)(float)a[i];
            }
            t = job_of("eigh", a, n, n, single);
            assert_int_equal(trial_run(t), BLASD_OK);
            check_below(t, a, n, n, n, "eigenvectors", "eigenvalues", "eigenvectors", true);
            trial_free(t);
            t = job_of("svd", a, n, n, single);
            assert_int_equal(trial_run(t), BLASD_OK);
            check_below(t, a, n, n, n, "U", "S", "Vh", false);
            trial_free(t);
            t = job_of("qr", a, n, n, single);
            assert_int_equal(trial_run(t), BLASD_OK);
            check_below(t, a, n, n, n, "Q", NULL, "R", false);
            trial_free(t);
            free(a);
        }
}

/* ---- the triangle that is not read ---- */

static void the_other_triangle_is_not_read(void **state) {
    (void)state;
    for (int upper = 0; upper < 2; upper++) {
        double *a = definite(6, 3, false);
        struct trial *clean = job_of("eigh", a, 6, 6, false), *dirty, *factor, *other;
        factor = job_of("cholesky", a, 6, 6, false);
        for (int i = 0; i < 6; i++)
            for (int j = 0; j < i; j++) a[upper ? i * 6 + j : j * 6 + i] = 1e305;
        dirty = job_of("eigh", a, 6, 6, false);
        other = job_of("cholesky", a, 6, 6, false);
        trial_set_choice(dirty, "uplo", upper ? "upper" : "lower");
        trial_set_bool(factor, "upper", upper);
        trial_set_bool(other, "upper", upper);
        assert_int_equal(trial_run(clean), BLASD_OK);
        assert_int_equal(trial_run(dirty), BLASD_OK);
        assert_int_equal(trial_run(factor), BLASD_OK);
        assert_int_equal(trial_run(other), BLASD_OK);
        for (int i = 0; i < 6; i++)
            assert_true(value(clean, "eigenvalues", i) == value(dirty, "eigenvalues", i));
        for (int i = 0; i < 36; i++) assert_true(value(factor, "L", i) == value(other, "L", i));
        assert_int_equal(clean->task.warning_count, 0);
        assert_non_null(strstr(dirty->task.warnings[0].text, "not symmetric"));
        assert_non_null(strstr(other->task.warnings[0].text, "not symmetric"));
        trial_free(clean);
        trial_free(dirty);
        trial_free(factor);
        trial_free(other);
        free(a);
    }
}

/* Eigenvalues of 1.7e308 on all places are beyond the range, and that is said. */
static void values_beyond_the_range(void **state) {
    double a[4] = {1.7e308, 1.7e308, 1.7e308, 1.7e308};
    struct trial *t = job_of("eigh", a, 2, 2, false), *s = job_of("svd", a, 2, 2, false);
    (void)state;
    assert_int_equal(trial_run(t), BLASD_OK);
    assert_int_equal(trial_run(s), BLASD_OK);
    assert_true(isinf((double)value(t, "eigenvalues", 1)) && isinf((double)value(s, "S", 0)));
    assert_non_null(strstr(t->task.warnings[0].text, "beyond the range of float64"));
    assert_non_null(strstr(s->task.warnings[0].text, "beyond the range of float64"));
    trial_free(t);
    trial_free(s);
}

#ifdef TRIAL_ON_THE_CPU
/* What large matrices go through: panels, strips, merges. */
static void large_ones_in_short_calls(void **state) {
    static const enum kind kinds[] = {PLAIN, LOW_RANK, GRADED_ROWS, DIAGONAL};
    const double before = blasd_lapack_long_call;
    (void)state;
    TRIAL_FULL();
    blasd_lapack_long_call = 1e4;
    for (int i = 0; i < 4; i++) {
        check_eigh(kinds[i], 90, i % 2, false);
        check_svd(kinds[i], 80, 75, i % 2, i / 2);
        check_svd(kinds[i], 30, 90, i % 2, i / 2);
        check_qr(kinds[i], 140, 135, i % 2, i / 2 ? "complete" : "r");
        check_qr(kinds[i], 60, 150, i % 2, "reduced");
    }
    check_lstsq(PLAIN, 90, 70, 3, false);
    check_lstsq(LOW_RANK, 40, 90, 40, false);
    blasd_lapack_long_call = before;
}

/* Of sizes with several strips and tiles: the same as by whole calls. */
static void short_calls_and_whole_ones_agree(void **state) {
    static const char *const ops[] = {"eigh", "svd", "qr", "cholesky", "lstsq"};
    static const char *const compared[] = {"eigenvalues", "S", "R", "L", "x"};
    const double before = blasd_lapack_long_call;
    (void)state;
    for (int i = 0; i < 5; i++) {
        const int m = 580, n = i % 3 == 0 ? 580 : 530;
        double *a = n == m ? definite(n, 0, false) : matrix(PLAIN, m, n, false), most = 0;
        struct trial *t[2];
        for (int whole = 0; whole < 2; whole++) {
            blasd_lapack_long_call = whole ? 1e30 : 1e5;
            t[whole] = job_of(ops[i], a, m, n, false);
            if (i == 4) {
                double *b =
                    trial_input(t[whole], "b", BLASD_float64, BLASD_ROW_MAJOR, 1, (int64_t[]){m});
                for (int j = 0; j < m; j++) b[j] = a[j];
            }
            assert_int_equal(trial_run(t[whole]), BLASD_OK);
            assert_int_equal(t[whole]->task.warning_count, 0); /* of residual and the like */
        }
        for (int j = 0; j < blasd_tensor_elements(trial_output(t[0], compared[i])); j++)
            most = fmax(most, fabs(trial_value(trial_output(t[0], compared[i]), j)));
        for (int j = 0; j < blasd_tensor_elements(trial_output(t[0], compared[i])); j++)
            ASSERT_CLOSE(trial_value(trial_output(t[0], compared[i]), j),
                         trial_value(trial_output(t[1], compared[i]), j), 1e-9 * most);
        trial_free(t[0]);
        trial_free(t[1]);
        free(a);
    }
    for (int n = 300; n < 600; n += 250) { /* the panel with the bad pivot is the last one */
        double *a = definite(n, 0, false);
        struct trial *t;
        char words[40];
        blasd_lapack_long_call = 1e5;
        a[(n - 1) * n + n - 1] = -1;
        t = job_of("cholesky", a, n, n, false);
        assert_int_equal(trial_run(t), BLASD_E_not_positive_definite);
        snprintf(words, sizeof words, "order %d ", n);
        assert_non_null(strstr(t->task.err.detail, words));
        trial_free(t);
        free(a);
    }
    blasd_lapack_long_call = before;
}

/* Wherever it is stopped it ends as cancelled, soon. */
static void large_ones_hear(void **state) {
    static const struct {
        const char *op;
        int m, n;
    } jobs[] = {{"eigh", 200, 200}, {"svd", 220, 200},   {"svd", 200, 600},
                {"qr", 300, 280},   {"lstsq", 300, 200}, {"cholesky", 300, 300}};
    const double before = blasd_lapack_long_call;
    (void)state;
    blasd_lapack_long_call = 1e5;
    for (size_t i = 0; i < sizeof jobs / sizeof *jobs; i++) {
        int m = jobs[i].m, n = jobs[i].n, all;
        double *a = m == n ? definite(n, 0, false) : matrix(PLAIN, m, n, false);
        struct trial *t = job_of(jobs[i].op, a, m, n, false);
        if (strcmp(jobs[i].op, "lstsq") == 0)
            trial_input(t, "b", BLASD_float64, BLASD_ROW_MAJOR, 2, (int64_t[]){m, 2});
        assert_int_equal(trial_run(t), BLASD_OK);
        all = trial_watch.calls;
        assert_true(all > 0); /* questions, and with them reports of progress */
        for (int after = 1; after < all; after += 1 + all / 40) {
            trial_watch.stop_after = after;
            /* how often is asked depends on the threads: a run may end before the answer is no */
            if (trial_run(t) != BLASD_E_cancelled) assert_true(trial_watch.calls < after);
            assert_true(trial_watch.calls <= after + 1);
        }
        trial_watch.stop_after = 0;
        trial_free(t);
        free(a);
    }
    blasd_lapack_long_call = before;
}
#endif

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(eigenvalues_and_vectors),
        cmocka_unit_test(singular_values_and_vectors),
        cmocka_unit_test(orthogonal_and_triangular),
        cmocka_unit_test(signs_of_a_single_column),
        cmocka_unit_test(shortest_solutions),
        cmocka_unit_test(lstsq_broadcasts),
        cmocka_unit_test(lstsq_residuals_are_of_x_as_it_is_sent),
        cmocka_unit_test(lstsq_residuals_of_nearly_exact_fits),
        cmocka_unit_test(lstsq_at_the_ends_of_the_range),
        cmocka_unit_test(lstsq_beyond_the_range_in_part),
        cmocka_unit_test(below_the_range),
        cmocka_unit_test(the_other_triangle_is_not_read),
        cmocka_unit_test(values_beyond_the_range),
#ifdef TRIAL_ON_THE_CPU
        cmocka_unit_test(large_ones_in_short_calls),
        cmocka_unit_test(short_calls_and_whole_ones_agree),
        cmocka_unit_test(large_ones_hear),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
