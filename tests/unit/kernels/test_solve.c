/* solve: easy and hard matrices of every structure against their own residuals in long double and
 * against elimination with complete pivoting; conditions against true inverses; large systems.
 * Read next: test_solve_stacks.c. */
#include "kernel_support.h"
#include "kernels/cpu/ref.h"
#include "kernels/solve/ref_solve.h"
#include "kernels/solve/solve.h"

#include <float.h>

static double unit(enum blasd_dtype dtype) {
    return dtype == BLASD_float32 ? 0x1p-24 : 0x1p-53;
}

/* ---- hard cases ---- */

enum kind {
    RANDOM,
    INTEGER,
    GRADED_ROWS,
    GRADED_COLUMNS,
    GRADED_BOTH,
    HILBERT,
    WILKINSON, /* the growth matrix: partial pivoting multiplies by 2^(n-1) */
    HUGE,
    TINY,
    PERMUTATION,
    NEARLY_SINGULAR,
    VANDERMONDE,
    TRIANGLE,
    DIAGONAL,
    KIND_COUNT
};
static const char *const kind_names[] = {
    "random", "integer", "graded rows", "graded columns",  "graded",      "hilbert",  "wilkinson",
    "huge",   "tiny",    "permutation", "nearly singular", "vandermonde", "triangle", "diagonal"};

static double element(enum kind kind, int64_t n, int64_t i, int64_t j, bool single) {
    double range = single ? 30 : 250; /* decimal digits are too many for float32 */
    switch (kind) {
    case INTEGER: return (double)trial_between(-9, 9) + (i == j ? 40 : 0);
    case GRADED_ROWS: return trial_normal() * ldexp(1, (int)(-range * (double)i / (double)n));
    case GRADED_COLUMNS: return trial_normal() * ldexp(1, (int)(range * (double)j / (double)n));
    case GRADED_BOTH:
        return trial_normal() * ldexp(1, (int)(-range / 2 * (double)(i + j) / (double)n));
    case HILBERT: return 1 / (double)(i + j + 1);
    case WILKINSON: return j == n - 1 || i == j ? 1 : i > j ? -1 : 0;
    case HUGE: return trial_uniform() * (single ? 0x1p125 : 0x1p1020);
    case TINY: return trial_uniform() * (single ? 0x1p-120 : 0x1p-1010);
    case PERMUTATION: return j == (i * 7 + 3) % n && n % 7 != 0 ? 3 : 0;
    case NEARLY_SINGULAR:
        return (double)((i + 1) * (j + 1)) / (double)(n * n) +
               trial_normal() * (single ? 1e-4 : 1e-12);
    case VANDERMONDE: return pow((double)(i + 1) / (double)n, (double)j);
    case TRIANGLE: return i >= j ? trial_normal() : 0;
    case DIAGONAL:
        return i == j ? ldexp(trial_uniform() + 1.5, (int)trial_between((int)-range, (int)range))
                      : 0;
    default: return trial_normal();
    }
}

struct sizes {
    int64_t n, columns;
    enum blasd_dtype dtype;
    enum blasd_order order;
    bool transposed;
};

/* One system of this kind. `shape_up` makes it symmetric (1) or positive definite (2). */
static struct trial *make(enum kind kind, const struct sizes *s, int shape_up, const char *assume) {
    int64_t n = s->n;
    struct trial *t = trial_new("solve");
    void *a = trial_input(t, "a", s->dtype, s->order, 2, (int64_t[]){n, n});
    void *b = trial_input(t, "b", s->dtype, s->order, 2, (int64_t[]){n, s->columns});
    double *m = trial_alloc((size_t)(n * n + 1) * sizeof *m);
    double scale = kind == HUGE   ? (s->dtype == BLASD_float32 ? 0x1p120 : 0x1p1000)
                   : kind == TINY ? (s->dtype == BLASD_float32 ? 0x1p-120 : 0x1p-1000)
                                  : 1;
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++)
            m[i * n + j] = element(kind, n, i, j, s->dtype == BLASD_float32);
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++) {
            double v = shape_up > 0 && i > j ? m[j * n + i] : m[i * n + j];
            if (shape_up == 2) /* diagonally dominant */
                v = i == j ? 2 * (double)n * (fabs(v) + 10) : v;
            trial_put(a, s->dtype, s->order == BLASD_COLUMN_MAJOR ? j * n + i : i * n + j, v);
        }
    for (int64_t i = 0; i < n * s->columns; i++)
        trial_put(b, s->dtype, i,
                  kind == INTEGER ? (double)trial_between(-50, 50) : scale * trial_normal());
    trial_set_choice(t, "assume_a", assume);
    trial_set_bool(t, "transposed", s->transposed);
    free(m);
    return t;
}

/* op(a) and b as they are meant, in long double. */
static void meaning(const struct trial *t, const struct sizes *s, const char *assume,
                    long double *a, long double *b) {
    struct blasd_tensor ta = t->job.inputs[0].tensor, tb = t->job.inputs[1].tensor;
    ta.data = t->given[0];
    tb.data = t->given[1];
    for (int64_t i = 0; i < s->n; i++)
        for (int64_t j = 0; j < s->n; j++) {
            int64_t r = s->transposed ? j : i, c = s->transposed ? i : j;
            long double v;
            if ((strcmp(assume, "symmetric") == 0 || strcmp(assume, "positive_definite") == 0) &&
                r > c) {
                int64_t keep = r;
                r = c;
                c = keep;
            }
            v = blasd_ref_at(&ta, (int64_t[]){r, c});
            if (strcmp(assume, "lower_triangular") == 0 && r < c) v = 0;
            if (strcmp(assume, "upper_triangular") == 0 && r > c) v = 0;
            a[i * s->n + j] = v;
        }
    for (int64_t i = 0; i < s->n; i++)
        for (int64_t c = 0; c < s->columns; c++)
            b[i * s->columns + c] = blasd_ref_at(&tb, (int64_t[]){i, c});
}

/* The largest ||b - a x|| / (||a|| ||x|| + ||b||) of the columns, by definition. */
static double measured_error(const struct sizes *s, const long double *a, const long double *b,
                             const struct blasd_tensor *x) {
    long double worst = 0, norm_a = 0;
    for (int64_t i = 0; i < s->n; i++) {
        long double sum = 0;
        for (int64_t j = 0; j < s->n; j++) sum += fabsl(a[i * s->n + j]);
        norm_a = fmaxl(norm_a, sum);
    }
    for (int64_t c = 0; c < s->columns; c++) {
        long double norm_x = 0, norm_b = 0, norm_r = 0, below;
        for (int64_t i = 0; i < s->n; i++) {
            long double r = b[i * s->columns + c], v = trial_value(x, i * s->columns + c);
            if (!isfinite((double)v)) return INFINITY;
            norm_b = fmaxl(norm_b, fabsl(r));
            norm_x = fmaxl(norm_x, fabsl(v));
            for (int64_t j = 0; j < s->n; j++)
                r -= a[i * s->n + j] * (long double)trial_value(x, j * s->columns + c);
            norm_r = fmaxl(norm_r, fabsl(r));
        }
        below = norm_a * norm_x + norm_b;
        if (below > 0) worst = fmaxl(worst, norm_r / below);
    }
    return (double)worst;
}

static long double norm_1(int64_t n, const long double *a) {
    long double most = 0;
    for (int64_t j = 0; j < n; j++) {
        long double sum = 0;
        for (int64_t i = 0; i < n; i++) sum += fabsl(a[i * n + j]);
        most = fmaxl(most, sum);
    }
    return most;
}

/* 1 / (||a|| ||inverse||) from a full inverse; `a` is overwritten. */
static double true_rcond(int64_t n, long double *a) {
    long double *inverse = trial_alloc((size_t)(n * n) * sizeof *inverse), norm = norm_1(n, a),
                rcond;
    for (int64_t i = 0; i < n * n; i++) inverse[i] = i % (n + 1) == 0;
    assert_int_equal(blasd_ref_solve(n, n, a, inverse), 0);
    rcond = 1 / norm / norm_1(n, inverse);
    free(inverse);
    return (double)rcond;
}

/* The largest | |inverse| (|a| |x| + |b|) | / |x| of the columns. `a` is overwritten. */
static double condition_of_x(int64_t n, int64_t columns, long double *a, const long double *b,
                             const struct blasd_tensor *x) {
    long double *inverse = trial_alloc((size_t)(n * n) * sizeof *inverse), worst = 0;
    long double *f = trial_alloc((size_t)(n * columns) * sizeof *f);
    for (int64_t i = 0; i < n * n; i++) inverse[i] = i % (n + 1) == 0;
    for (int64_t i = 0; i < n * columns; i++) {
        f[i] = fabsl(b[i]);
        for (int64_t j = 0; j < n; j++)
            f[i] += fabsl(a[i / columns * n + j] * trial_value(x, j * columns + i % columns));
    }
    assert_int_equal(blasd_ref_solve(n, n, a, inverse), 0);
    for (int64_t c = 0; c < columns; c++) {
        long double most = 0, size = 0;
        for (int64_t i = 0; i < n; i++) {
            long double sum = 0;
            for (int64_t j = 0; j < n; j++) sum += fabsl(inverse[i * n + j]) * f[j * columns + c];
            most = fmaxl(most, sum);
            size = fmaxl(size, fabs(trial_value(x, i * columns + c)));
        }
        worst = fmaxl(worst, most / size);
    }
    free(inverse);
    free(f);
    return (double)worst;
}

/* Whether elements of a column of x lie so far apart that it was looked at again: where it was
 * mended, the figure is a bound that x before it had too. */
static bool far_apart(const struct sizes *s, const struct blasd_tensor *x) {
    for (int64_t c = 0; c < s->columns; c++) {
        double least = INFINITY, most = 0;
        for (int64_t i = 0; i < s->n; i++) {
            double size = fabs(trial_value(x, i * s->columns + c));
            least = fmin(least, size);
            most = fmax(most, size);
        }
        if (most > (s->dtype == BLASD_float32 ? 0x1p14 : 0x1p24) * least) return true;
    }
    return false;
}

static int systems_seen, needless_warnings;

static void check(struct trial *t, const struct sizes *s, const char *assume, const char *name) {
    int64_t n = s->n;
    double u = unit(s->dtype), error, reported, rcond, expected, worst = 0, largest = 0;
    const struct blasd_tensor *x = trial_output(t, "x");
    long double *a = trial_alloc((size_t)(n * n) * sizeof *a);
    long double *b = trial_alloc((size_t)(n * s->columns) * sizeof *b);
    meaning(t, s, assume, a, b);
    error = measured_error(s, a, b, x);
    reported = trial_value(trial_output(t, "backward_error"), 0);
    rcond = trial_value(trial_output(t, "rcond"), 0);
    if (!(error <= 3 * u))
        fail_msg(
            "%s %s n %lld: backward error %.3g u (%.3g n u), reported %.3g u by %s, rcond %.3g",
            name, assume, (long long)n, error / u, error / u / (double)n, reported / u,
            t->task.method, rcond);
    /* a bound (long double hides a little of it from us), and no more than u/64 above: what an
     * update of a residual may hide; where a system was solved again in part, one of all of it */
    if (!(reported >= error * (1 - 1e-3) - 0.01 * u) ||
        !(reported <=
          (far_apart(s, x) || t->task.warning_count > 0 ? 3 * u : error * (1 + 1e-3) + u / 60)))
        fail_msg("%s %s n %lld: reports %.3g u, is %.3g u", name, assume, (long long)n,
                 reported / u, error / u);
    assert_int_equal((int)trial_value(trial_output(t, "info"), 0), 0);
    /* forward: as exact as the dtype, where refinement can converge */
    assert_int_equal(blasd_ref_solve(n, s->columns, a, b), 0);
    for (int64_t c = 0; c < s->columns; c++) {
        worst = largest = 0;
        for (int64_t i = 0; i < n; i++) {
            double got = trial_value(x, i * s->columns + c), wish = (double)b[i * s->columns + c];
            worst = fmax(worst, fabs(got - wish));
            largest = fmax(largest, fabs(wish));
        }
        if (rcond > 1e5 * u && !(worst <= (4 * u + 8 * 0x1p-64 / rcond) * largest))
            fail_msg("%s %s n %lld: x is %.3g u from the truth, rcond %.3g, steps %g, %s", name,
                     assume, (long long)n, worst / largest / u, rcond,
                     trial_value(trial_output(t, "refinement_steps"), 0), t->task.method);
    }
    meaning(t, s, assume, a, b);
    expected = true_rcond(n, a);
    /* an estimate is never less than the truth, and seldom more than a few times as large */
    if (expected > 20 * (double)n * u && !(rcond >= expected * 0.99 && rcond <= expected * 10))
        fail_msg("%s %s n %lld: rcond %.3g, is %.3g", name, assume, (long long)n, rcond, expected);
    meaning(t, s, assume, a, b);
    expected = condition_of_x(n, s->columns, a, b, x) * u;
    if (expected > 2) assert_true(t->task.warning_count > 0);
    systems_seen++;
    if (expected < 0x1p-6) needless_warnings += t->task.warning_count > 0;
    free(a);
    free(b);
}

static bool fits(enum kind kind, const struct sizes *s) {
    if (kind == HILBERT) return s->n <= (s->dtype == BLASD_float32 ? 7 : 12);
    if (kind == VANDERMONDE) return s->n <= (s->dtype == BLASD_float32 ? 8 : 17);
    if (kind == NEARLY_SINGULAR) return s->n > 1;
    if (kind == TRIANGLE)
        return s->n <= (s->dtype == BLASD_float32 ? 24 : 33); /* singular beyond */
    return kind != PERMUTATION || s->n % 7 != 0;
}

static const int64_t sizes_small[] = {1, 2, 3, 4, 5, 7, 8, 9, 13, 16, 17, 24, 31, 32, 33, 40};
static const int64_t sizes_large[] = {41, 50, 64, 65, 97, 130};

static void try_kind(enum kind kind, int64_t n, int shape_up, const char *assume) {
    static const int64_t columns[] = {1, 1, 2, 5, 9};
    struct sizes s = {.n = n,
                      .columns = columns[trial_between(0, 4)],
                      .dtype = trial_between(0, 1) ? BLASD_float64 : BLASD_float32,
                      .order = trial_between(0, 1) ? BLASD_ROW_MAJOR : BLASD_COLUMN_MAJOR,
                      .transposed = trial_between(0, 2) == 0};
    struct trial *t;
    enum blasd_code code;
    if (!fits(kind, &s)) return;
    t = make(kind, &s, shape_up, assume);
    code = trial_run(t);
    if (code != BLASD_OK)
        fail_msg("%s %s n %lld: %s %s", kind_names[kind], assume, (long long)n,
                 blasd_err_info(code)->name, t->task.err.detail);
    check(t, &s, assume, kind_names[kind]);
    trial_free(t);
}

static void general_systems_of_every_kind(void **state) {
    (void)state;
    for (int kind = 0; kind < KIND_COUNT; kind++) {
        for (int round = 0; round < 4; round++)
            for (size_t i = 0; i < sizeof sizes_small / sizeof *sizes_small; i++)
                try_kind((enum kind)kind, sizes_small[i], 0, "general");
        for (size_t i = 0; i < sizeof sizes_large / sizeof *sizes_large; i++)
            try_kind((enum kind)kind, sizes_large[i], 0, "general");
    }
}

static void structured_systems(void **state) {
    static const enum kind symmetric[] = {RANDOM, INTEGER, GRADED_BOTH, HILBERT, HUGE, TINY};
    static const enum kind triangles[] = {INTEGER, GRADED_ROWS, GRADED_COLUMNS, HILBERT,
                                          HUGE,    TINY,        DIAGONAL};
    (void)state;
    for (size_t k = 0; k < sizeof symmetric / sizeof *symmetric; k++)
        for (size_t i = 0; i < sizeof sizes_small / sizeof *sizes_small; i++)
            try_kind(symmetric[k], sizes_small[i], 1, "symmetric");
    for (size_t i = 0; i < sizeof sizes_large / sizeof *sizes_large; i++) {
        try_kind(RANDOM, sizes_large[i], 1, "symmetric");
        try_kind(RANDOM, sizes_large[i], 2, "positive_definite");
        try_kind(INTEGER, sizes_large[i], 0, "lower_triangular");
        try_kind(INTEGER, sizes_large[i], 0, "upper_triangular");
    }
    for (size_t i = 0; i < sizeof sizes_small / sizeof *sizes_small; i++) {
        try_kind(RANDOM, sizes_small[i], 2, "positive_definite");
        try_kind(INTEGER, sizes_small[i], 2, "positive_definite");
        try_kind(HILBERT, sizes_small[i], 1, "positive_definite");
        for (size_t k = 0; k < sizeof triangles / sizeof *triangles; k++) {
            try_kind(triangles[k], sizes_small[i], 0, "lower_triangular");
            try_kind(triangles[k], sizes_small[i], 0, "upper_triangular");
        }
    }
}

static void growth_is_left_to_qr(void **state) {
    struct sizes s = {.n = 130, .columns = 2, .dtype = BLASD_float64, .order = BLASD_ROW_MAJOR};
    (void)state;
    for (int single = 0; single < 2; single++) {
        struct trial *t;
        s.dtype = single ? BLASD_float32 : BLASD_float64;
        t = make(WILKINSON, &s, 0, "general");
        assert_int_equal(trial_run(t), BLASD_OK);
        check(t, &s, "general", "wilkinson");
        assert_non_null(strstr(t->task.method, "qr"));
        assert_int_equal((int)trial_value(trial_output(t, "method"), 0), 5);
        trial_free(t);
    }
}

/* Also where the condition leaves plain elimination half of its digits. */
static void integers_are_solved_exactly(void **state) {
    (void)state;
    for (int round = 0; round < 40; round++) {
        int64_t n = round < 20 ? round + 1 : round < 24 ? (round - 19) * 14 : round % 6 + 3;
        bool hilbert = round >= 24;
        struct trial *t = trial_new("solve");
        double *a = trial_input(t, "a", BLASD_float64, BLASD_ROW_MAJOR, 2, (int64_t[]){n, n});
        double *b = trial_input(t, "b", BLASD_float64, BLASD_ROW_MAJOR, 1, (int64_t[]){n}), x[60];
        for (int64_t i = 0; i < n * n; i++)
            a[i] =
                hilbert ? 360360.0 / (double)(i / n + i % n + 1) : (double)trial_between(-20, 20);
        for (int64_t i = 0; i < n && !hilbert; i++) a[i * n + i] += 30;
        for (int64_t i = 0; i < n; i++) x[i] = (double)trial_between(-1000, 1000);
        for (int64_t i = 0; i < n; i++)
            for (int64_t j = 0; j < n; j++) b[i] += a[i * n + j] * x[j];
        assert_int_equal(trial_run(t), BLASD_OK);
        for (int64_t i = 0; i < n; i++)
            ASSERT_CLOSE(trial_value(trial_output(t, "x"), i), x[i], x[i] == 0 ? 1e-13 : 0);
        trial_free(t);
    }
}

/* ---- large ones ---- */

static struct trial *large(int64_t n, int64_t columns, enum blasd_dtype dtype, const char *assume) {
    struct trial *t = trial_new("solve");
    void *a = trial_input(t, "a", dtype, BLASD_ROW_MAJOR, 2, (int64_t[]){n, n});
    void *b = trial_input(t, "b", dtype, BLASD_ROW_MAJOR, 2, (int64_t[]){n, columns});
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = i; j < n; j++) {
            double v = trial_uniform() + (i == j ? 2 * sqrt((double)n) : 0);
            trial_put(a, dtype, i * n + j, v);
            trial_put(a, dtype, j * n + i, v);
        }
    for (int64_t i = 0; i < n * columns; i++) trial_put(b, dtype, i, trial_uniform());
    trial_set_choice(t, "assume_a", assume);
    return t;
}

static void large_systems_in_panels_can_be_stopped(void **state) {
    static const char *const assumes[] = {"general", "positive_definite", "symmetric"};
    (void)state;
    for (int which = 0; which < 3; which++) {
        struct trial *t = large(2100, 1, BLASD_float64, assumes[which]);
        assert_int_equal(trial_run(t), BLASD_OK);
        assert_true(trial_watch.calls > 5);
        if (!(trial_value(trial_output(t, "backward_error"), 0) <= 0x1p-53)) fail();
        trial_watch.stop_after = 3;
        assert_int_equal(trial_run(t), BLASD_E_cancelled);
        trial_watch.stop_after = 0;
        trial_free(t);
    }
}

#ifdef TRIAL_ON_THE_CPU
/* Where threads share the strips, the next panel is factored among them: rows come from far below,
 * and a pivot that is 0 is found in whatever panel it lies, or in none. */
static void panels_that_threads_share(void **state) {
    static const int64_t zero_columns[] = {-1, 0, 95, 96, 300, 698, 699};
    const int64_t n = 700;
    (void)state;
    for (size_t i = 0; i < 2 * sizeof zero_columns / sizeof *zero_columns; i++) {
        enum blasd_dtype dtype = i % 2 == 0 ? BLASD_float64 : BLASD_float32;
        int64_t zero = zero_columns[i / 2];
        struct trial *t = large(n, 1, dtype, "general");
        void *a = t->given[blasd_op_input(t->job.op, "a")];
        struct sizes s = {.n = n, .columns = 1, .dtype = dtype};
        char column[24];
        for (int64_t k = 0; k < n * n; k++)
            trial_put(a, dtype, k, k % n == zero ? 0 : trial_uniform());
        snprintf(column, sizeof column, "column %d", (int)zero + 1);
        if (zero < 0) {
            long double *wide = trial_alloc((size_t)(n * n) * sizeof *wide);
            long double *b = trial_alloc((size_t)n * sizeof *b);
            assert_int_equal(trial_run(t), BLASD_OK);
            meaning(t, &s, "general", wide, b);
            assert_true(measured_error(&s, wide, b, trial_output(t, "x")) <= 3 * unit(dtype));
            assert_int_equal((int)trial_value(trial_output(t, "method"), 0), BLASD_SOLVED_LU);
            free(wide);
            free(b);
        } else {
            assert_int_equal(trial_run(t), BLASD_E_singular_matrix);
            if (strstr(t->task.err.detail, column) == NULL)
                fail_msg("%s: %s", column, t->task.err.detail);
        }
        trial_free(t);
    }
}

/* A symmetric one with pivots of both kinds on either side of each panel's end, and one whose
 * pivots grow, which is left to QR. */
static void large_systems_of_other_kinds(void **state) {
    const int64_t n = 2111;
    (void)state;
    for (int kind = 0; kind < 4; kind++) {
        enum blasd_dtype dtype = kind % 2 == 0 ? BLASD_float64 : BLASD_float32;
        struct trial *t = large(n, 2, dtype, kind < 2 ? "symmetric" : "general");
        void *a = t->given[blasd_op_input(t->job.op, "a")];
        for (int64_t i = 0; kind < 2 && i < n; i++)
            trial_put(a, dtype, i * n + i, i % 3 == 0 ? trial_uniform() : 0);
        for (int64_t i = 0; kind >= 2 && i < n; i++)
            for (int64_t j = 0; j < n; j++) {
                bool wild = i < 70 && j < 70;
                double v = i == j ? 1 : !wild ? 0 : j == 69 ? 1 : i > j ? -1 : 0;
                trial_put(a, dtype, i * n + j, v);
            }
        assert_int_equal(trial_run(t), BLASD_OK);
        assert_int_equal((int)trial_value(trial_output(t, "method"), 0),
                         kind < 2 ? BLASD_SOLVED_LDLT : BLASD_SOLVED_QR);
        if (!(trial_value(trial_output(t, "backward_error"), 0) <=
              (dtype == BLASD_float64 ? 0x1p-52 : 0x1p-23)))
            fail_msg("kind %d: %g", kind, trial_value(trial_output(t, "backward_error"), 0));
        trial_free(t);
    }
}
#endif

static void many_right_hand_sides(void **state) {
    static const char *const choices[] = {"auto", "extended", "none"};
    (void)state;
    for (int c = 0; c < 3; c++) {
        struct trial *t = large(150, 300, c == 1 ? BLASD_float32 : BLASD_float64, "general");
        struct sizes s = {.n = 150, .columns = 300};
        long double *a = trial_alloc(150 * 150 * sizeof *a),
                    *b = trial_alloc(150 * 300 * sizeof *b);
        double error, u = c == 1 ? 0x1p-24 : 0x1p-53;
        trial_set_choice(t, "refinement", choices[c]);
        assert_int_equal(trial_run(t), BLASD_OK);
        meaning(t, &s, "general", a, b);
        error = measured_error(&s, a, b, trial_output(t, "x"));
        if (!(error <= (c == 2 ? 150 : c == 1 ? 1.5 : 8) * u))
            fail_msg("%s: %.3g u", choices[c], error / u);
        assert_int_equal((int)trial_value(trial_output(t, "refinement_steps"), 0) > 0, c != 2);
        free(a);
        free(b);
        trial_free(t);
    }
}

/* Systems whose solution the last digits of a and b hardly change, of all that ran above. */
static void a_needless_warning_is_rare(void **state) {
    (void)state;
    if (needless_warnings * 50 > systems_seen)
        fail_msg("%d of %d", needless_warnings, systems_seen);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(general_systems_of_every_kind),
        cmocka_unit_test(structured_systems),
        cmocka_unit_test(growth_is_left_to_qr),
        cmocka_unit_test(a_needless_warning_is_rare),
        cmocka_unit_test(integers_are_solved_exactly),
        cmocka_unit_test(large_systems_in_panels_can_be_stopped),
#ifdef TRIAL_ON_THE_CPU
        cmocka_unit_test(panels_that_threads_share),
        cmocka_unit_test(large_systems_of_other_kinds),
#endif
        cmocka_unit_test(many_right_hand_sides),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
