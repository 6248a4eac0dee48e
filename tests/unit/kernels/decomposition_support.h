/* What the tests of decompositions share: matrices of all kinds, jobs made of them, and the ways to
 * look at what comes out in long double. Read next: test_decompositions.c. */
#ifndef BLASD_TESTS_DECOMPOSITION_SUPPORT_H
#define BLASD_TESTS_DECOMPOSITION_SUPPORT_H

#include "kernel_support.h"
#include "kernels/lapack/ref_lapack.h"

/* ---- matrices ---- */

enum kind { PLAIN, HUGE_ONE, TINY, LOW_RANK, GRADED_ROWS, GRADED_COLUMNS, EQUAL, DIAGONAL, KINDS };
static TRIAL_UNUSED const char *const kind_names[] = {
    "plain", "huge", "tiny", "low rank", "graded rows", "graded columns", "equal", "diagonal"};

static TRIAL_UNUSED double entry(enum kind kind, int m, int n, int i, int j, bool single) {
    double range = single ? 30 : 250, x = trial_uniform();
    switch (kind) {
    case HUGE_ONE: return x * (single ? 0x1p120 : 0x1p1015);
    case TINY: return x * (single ? 0x1p-120 : 0x1p-1015);
    case LOW_RANK: return (double)((i + 1) * (j + 1)) / (double)(m * n) + (i % 2) * (j % 3);
    case GRADED_ROWS: return x * ldexp(1, (int)(-range * i / m));
    case GRADED_COLUMNS: return x * ldexp(1, (int)(-range * j / n));
    case EQUAL: return 1;
    case DIAGONAL: return i == j ? (double)(i % 5) - 2 : 0;
    default: return x;
    }
}

/* m x n as float64, row-major; what the job gets is rounded to its dtype, and so is this. */
static TRIAL_UNUSED double *matrix(enum kind kind, int m, int n, bool single) {
    double *a = trial_alloc((size_t)(m * n) * sizeof *a + 8);
    for (int i = 0; i < m * n; i++) {
        a[i] = entry(kind, m, n, i / n, i % n, single);
        if (single) a[i] = (double)(float)a[i];
    }
    return a;
}
static TRIAL_UNUSED void make_symmetric(double *a, int n) {
    for (int i = 0; i < n; i++)
        for (int j = 0; j < i; j++) a[i * n + j] = a[j * n + i];
}

/* Positive definite, its rows and columns of sizes 2^-range to 2^range. */
static TRIAL_UNUSED double *definite(int n, int range, bool single) {
    double *b = matrix(PLAIN, n, n, false), *a = trial_alloc((size_t)(n * n) * sizeof *a);
    int *d = trial_alloc((size_t)n * sizeof *d);
    for (int i = 0; i < n; i++) d[i] = (int)trial_between(-range, range);
    for (int i = 0; i < n; i++)
        for (int j = 0; j <= i; j++) {
            double sum = i == j ? 1 : 0;
            for (int k = 0; k < n; k++) sum += b[i * n + k] * b[j * n + k];
            sum = ldexp(sum, d[i] + d[j]);
            a[i * n + j] = a[j * n + i] = single ? (double)(float)sum : sum;
        }
    free(b);
    free(d);
    return a;
}

static TRIAL_UNUSED struct trial *job_of(const char *op, const double *a, int m, int n,
                                         bool single) {
    struct trial *t = trial_new(op);
    enum blasd_dtype dtype = single ? BLASD_float32 : BLASD_float64;
    void *to = trial_input(t, "a", dtype, BLASD_ROW_MAJOR, 2, (int64_t[]){m, n});
    for (int i = 0; i < m * n; i++) trial_put(to, dtype, i, a[i]);
    return t;
}

static TRIAL_UNUSED long double *widen(const double *a, int count, int e) {
    long double *wide = trial_alloc((size_t)(count + 1) * sizeof *wide);
    for (int i = 0; i < count; i++) wide[i] = ldexpl((long double)a[i], e);
    return wide;
}
static TRIAL_UNUSED int exponent_of(const double *a, int count) {
    double most = 0;
    int e = 0;
    for (int i = 0; i < count; i++) most = fmax(most, fabs(a[i]));
    frexp(most, &e);
    return most > 0 ? e : 0;
}

/* ---- what comes out ---- */

static TRIAL_UNUSED long double value(const struct trial *t, const char *name, int i) {
    const struct blasd_tensor *out = trial_output(t, name);
    switch (out->dtype) {
    case BLASD_float32: return (long double)((const float *)out->data)[i];
    case BLASD_int64: return (long double)((const int64_t *)out->data)[i];
    default: return (long double)((const double *)out->data)[i];
    }
}
/* All elements of an output. */
static TRIAL_UNUSED long double *values_of(const struct trial *t, const char *name) {
    int64_t count = blasd_tensor_elements(trial_output(t, name));
    long double *x = trial_alloc((size_t)(count + 1) * sizeof *x);
    for (int i = 0; i < count; i++) x[i] = value(t, name, i);
    return x;
}
static TRIAL_UNUSED long double norm(const long double *a, int count) {
    long double sum = 0;
    for (int i = 0; i < count; i++) sum += a[i] * a[i];
    return sqrtl(sum);
}

/* || x' x - 1 || of the first k columns of an output m x n. */
static TRIAL_UNUSED long double off_orthogonal(const struct trial *t, const char *name, int m,
                                               int n, int k, bool rows) {
    long double sum = 0, *x = values_of(t, name);
    int down = rows ? 1 : n, right = rows ? n : 1; /* steps along a vector, and to the next one */
    for (int p = 0; p < k; p++)
        for (int q = 0; q < (rows ? m : n); q++) {
            long double dot = p == q ? -1 : 0;
            for (int i = 0; i < (rows ? n : m); i++)
                dot += x[i * down + p * right] * x[i * down + q * right];
            sum += dot * dot;
        }
    free(x);
    return sqrtl(sum);
}

static const char *running; /* the kind of matrix, for what is said of a failure */
static TRIAL_UNUSED void expect_at_most(const struct trial *t, const char *what, long double got,
                                        long double most) {
    if (got <= most) return;
    fail_msg("%s %s, %s: %.3Lg, at most %.3Lg", t->job.op->name, running, what, got, most);
}
static TRIAL_UNUSED double unit_of(bool single) {
    return single ? 0x1p-24 : 0x1p-53;
}

#endif
