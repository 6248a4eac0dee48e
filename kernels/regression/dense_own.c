/* dense.h without a library: Householder reflections, one-sided Jacobi, plain loops along columns.
 * For matrices of some hundred columns at most; larger ones are right, but slow. */
#include "kernels/regression/dense.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

double blasd_regression_length(int64_t n, const double *x) {
    double largest = 0, sum = 0;
    int unit;
    for (int64_t i = 0; i < n; i++) {
        if (isnan(x[i])) return NAN;
        if (fabs(x[i]) > largest) largest = fabs(x[i]);
    }
    if (largest == 0 || isinf(largest)) return largest;
    if (largest > 1e-140 && largest < 1e140) {
        for (int64_t i = 0; i < n; i++) sum += x[i] * x[i];
        return sqrt(sum);
    }
    /* in units of a power of two, which round nothing */
    (void)frexp(largest, &unit);
    for (int64_t i = 0; i < n; i++) sum += ldexp(x[i], -unit) * ldexp(x[i], -unit);
    return ldexp(sqrt(sum), unit);
}

/* Partial sums side by side let the compiler use vectors, in an order that is always the same. */
static double dot(int n, const double *x, const double *y) {
    double sum[4] = {0};
    int i = 0;
    for (; i + 4 <= n; i += 4)
        for (int l = 0; l < 4; l++) sum[l] += x[i + l] * y[i + l];
    for (; i < n; i++) sum[0] += x[i] * y[i];
    return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

static void axpy(int n, double alpha, const double *restrict x, double *restrict y) {
    for (int i = 0; i < n; i++) y[i] += alpha * x[i];
}

/* x (n >= 1) becomes (beta, v[1:]) with H = I - tau v v', v[0] = 1, H x = beta e1. */
static double reflect(int n, double *x) {
    double rest = blasd_regression_length(n - 1, x + 1), beta, tau;
    if (rest == 0) return 0;
    beta = -copysign(hypot(x[0], rest), x[0]);
    tau = (beta - x[0]) / beta;
    for (int i = 1; i < n; i++) x[i] /= x[0] - beta;
    x[0] = beta;
    return tau;
}

/* c (n numbers) = H c, v[0] being 1 whatever is stored there. */
static void apply(int n, const double *v, double tau, double *c) {
    double along = tau * (c[0] + dot(n - 1, v + 1, c + 1));
    c[0] -= along;
    axpy(n - 1, -along, v + 1, c + 1);
}

static void swap_columns(int m, double *a, double *b) {
    for (int i = 0; i < m; i++) {
        double x = a[i];
        a[i] = b[i];
        b[i] = x;
    }
}

static int geqp3(int m, int n, double *a, int lda, int *pivot, double *tau) {
    int least = m < n ? m : n;
    for (int j = 0; j < n; j++) pivot[j] = j + 1;
    for (int j = 0; j < least; j++) {
        int longest = j;
        double most = -1;
        for (int l = j; l < n; l++) {
            double length = blasd_regression_length(m - j, a + (int64_t)l * lda + j);
            if (length > most) {
                most = length;
                longest = l;
            }
        }
        if (longest != j) {
            int p = pivot[j];
            pivot[j] = pivot[longest];
            pivot[longest] = p;
            swap_columns(m, a + (int64_t)j * lda, a + (int64_t)longest * lda);
        }
        tau[j] = reflect(m - j, a + (int64_t)j * lda + j);
        for (int l = j + 1; l < n; l++)
            apply(m - j, a + (int64_t)j * lda + j, tau[j], a + (int64_t)l * lda + j);
    }
    return 0;
}

static int geqrf(int m, int n, double *a, int lda, double *tau) {
    int least = m < n ? m : n;
    for (int j = 0; j < least; j++) {
        tau[j] = reflect(m - j, a + (int64_t)j * lda + j);
        for (int l = j + 1; l < n; l++)
            apply(m - j, a + (int64_t)j * lda + j, tau[j], a + (int64_t)l * lda + j);
    }
    return 0;
}

static int ormqr(int m, int n, int k, const double *a, int lda, const double *tau, double *c,
                 int ldc) {
    for (int j = 0; j < k; j++)
        for (int l = 0; l < n; l++)
            apply(m - j, a + (int64_t)j * lda + j, tau[j], c + (int64_t)l * ldc + j);
    return 0;
}

static int orgqr(int m, int n, double *a, int lda, const double *tau) {
    for (int j = n - 1; j >= 0; j--) {
        double *v = a + (int64_t)j * lda + j;
        for (int l = j + 1; l < n; l++) apply(m - j, v, tau[j], a + (int64_t)l * lda + j);
        for (int i = 1; i < m - j; i++) v[i] *= -tau[j];
        v[0] = 1 - tau[j];
        for (int i = 0; i < j; i++) a[(int64_t)j * lda + i] = 0;
    }
    return 0;
}

static int falling(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? 1 : x > y ? -1 : 0;
}

/* Turns two columns until they are orthogonal, and two of `along` numbers with them; whether they
 * were not. */
static bool turn(int m, double *u, double *v, int along, double *with_u, double *with_v) {
    double uu = dot(m, u, u), vv = dot(m, v, v), uv = dot(m, u, v), zeta, tangent, cosine, sine;
    /* the sum itself is not better than this */
    if (!(fabs(uv) > DBL_EPSILON * sqrt(m) * sqrt(uu) * sqrt(vv))) return false;
    zeta = (vv - uu) / (2 * uv);
    tangent = (zeta < 0 ? -1 : 1) / (fabs(zeta) + sqrt(1 + zeta * zeta));
    cosine = 1 / sqrt(1 + tangent * tangent);
    sine = cosine * tangent;
    for (int i = 0; i < m; i++) {
        double x = u[i];
        u[i] = cosine * x - sine * v[i];
        v[i] = sine * x + cosine * v[i];
    }
    for (int i = 0; i < along; i++) {
        double x = with_u[i];
        with_u[i] = cosine * x - sine * with_v[i];
        with_v[i] = sine * x + cosine * with_v[i];
    }
    return true;
}

#define MOST_SWEEPS 60

/* The columns of a until all are orthogonal; those of v (along x n) go with them. */
static void jacobi(int m, int n, double *a, int lda, int along, double *v) {
    for (int sweep = 0; sweep < MOST_SWEEPS; sweep++) {
        bool turned = false;
        for (int j = 0; j < n; j++)
            for (int l = j + 1; l < n; l++)
                if (turn(m, a + (int64_t)j * lda, a + (int64_t)l * lda, along,
                         along > 0 ? v + (int64_t)j * along : NULL,
                         along > 0 ? v + (int64_t)l * along : NULL))
                    turned = true;
        if (!turned) break;
    }
}

static int gesdd(int m, int n, double *a, int lda, double *values) {
    double *turned = m < n ? malloc((size_t)m * (size_t)n * sizeof *turned + 1) : NULL;
    double *lengths;
    if (m < n) { /* the shorter side has the fewer pairs */
        int code = -1;
        for (int j = 0; turned != NULL && j < n; j++)
            for (int i = 0; i < m; i++) turned[(int64_t)i * n + j] = a[(int64_t)j * lda + i];
        if (turned != NULL) code = gesdd(n, m, turned, n, values);
        free(turned);
        return code;
    }
    lengths = malloc((size_t)(n > 0 ? n : 1) * sizeof *lengths);
    if (lengths == NULL) return -1;
    jacobi(m, n, a, lda, 0, NULL);
    for (int j = 0; j < n; j++) lengths[j] = blasd_regression_length(m, a + (int64_t)j * lda);
    if (n > 1) qsort(lengths, (size_t)n, sizeof *lengths, falling);
    for (int j = 0; j < n; j++) values[j] = lengths[j];
    free(lengths);
    return 0;
}

/* a = tall long' on its shorter side: of a wide matrix the transpose is turned, so what belongs to
 * rows and columns changes places. */
static int svd(int m, int n, double *a, double *values, double *left, double *vt) {
    bool wide = m < n;
    int rows = wide ? n : m, least = wide ? m : n;
    size_t square = (size_t)least * (size_t)least, all = (size_t)rows * (size_t)least;
    double *turned = calloc(all + square + (size_t)least + 1, sizeof *turned), *v, *lengths;
    if (turned == NULL) return -1;
    v = turned + all;
    lengths = v + square;
    for (int j = 0; j < least; j++)
        for (int i = 0; i < rows; i++)
            turned[(int64_t)j * rows + i] = wide ? a[(int64_t)i * m + j] : a[(int64_t)j * m + i];
    for (int j = 0; j < least; j++) v[(int64_t)j * least + j] = 1;
    jacobi(rows, least, turned, rows, least, v);
    for (int j = 0; j < least; j++)
        lengths[j] = blasd_regression_length(rows, turned + (int64_t)j * rows);
    for (int c = 0; c < least; c++) { /* the longest that is left */
        int j = 0;
        for (int l = 1; l < least; l++)
            if (lengths[l] > lengths[j]) j = l;
        values[c] = lengths[j];
        lengths[j] = -1;
        for (int i = 0; i < rows; i++) {
            double unit = turned[(int64_t)j * rows + i] / (values[c] > 0 ? values[c] : 1);
            if (wide)
                vt[(int64_t)i * least + c] = unit;
            else
                left[(int64_t)c * m + i] = unit;
        }
        for (int i = 0; i < least; i++) {
            if (wide)
                left[(int64_t)c * m + i] = v[(int64_t)j * least + i];
            else
                vt[(int64_t)i * least + c] = v[(int64_t)j * least + i];
        }
    }
    free(turned);
    return 0;
}

/* One triangular system; `lower` as the steps go: from the first unknown to the last. */
static void solve_one(bool upper, bool trans, int m, const double *a, int lda, double *b) {
    bool forward = upper == trans;
    for (int step = 0; step < m; step++) {
        int j = forward ? step : m - 1 - step;
        const double *column = a + (int64_t)j * lda;
        int from = upper ? 0 : j + 1, count = upper ? j : m - 1 - j;
        if (trans) {
            b[j] = (b[j] - dot(count, column + from, b + from)) / column[j];
        } else {
            b[j] /= column[j];
            axpy(count, -b[j], column + from, b + from);
        }
    }
}

/* b = b a^-1: column by column of b. */
static void solve_right(bool upper, bool trans, int m, int n, const double *a, int lda, double *b,
                        int ldb) {
    bool forward = upper != trans;
    for (int step = 0; step < n; step++) {
        int j = forward ? step : n - 1 - step;
        double *to = b + (int64_t)j * ldb;
        for (int l = forward ? 0 : j + 1; l < (forward ? j : n); l++)
            axpy(m, -(trans ? a[(int64_t)l * lda + j] : a[(int64_t)j * lda + l]),
                 b + (int64_t)l * ldb, to);
        for (int i = 0; i < m; i++) to[i] /= a[(int64_t)j * lda + j];
    }
}

static void trsm(bool right, bool upper, bool trans, int m, int n, const double *a, int lda,
                 double *b, int ldb) {
    if (right)
        solve_right(upper, trans, m, n, a, lda, b, ldb);
    else
        for (int l = 0; l < n; l++) solve_one(upper, trans, m, a, lda, b + (int64_t)l * ldb);
}

static int trtri(bool upper, int n, double *a, int lda) {
    for (int j = 0; j < n; j++)
        if (a[(int64_t)j * lda + j] == 0) return j + 1;
    for (int step = 0; step < n; step++) { /* columns whose others are still the triangle's */
        int j = upper ? n - 1 - step : step, from = upper ? 0 : j + 1;
        int count = upper ? j : n - 1 - j;
        double *column = a + (int64_t)j * lda;
        column[j] = 1 / column[j];
        for (int i = from; i < from + count; i++) column[i] *= -column[j];
        solve_one(upper, false, count, a + (int64_t)from * lda + from, lda, column + from);
    }
    return 0;
}

static int potrf(bool upper, int n, double *a, int lda) {
    for (int j = 0; j < n; j++) {
        double pivot = a[(int64_t)j * lda + j];
        if (!(pivot > 0)) return j + 1;
        pivot = sqrt(pivot);
        a[(int64_t)j * lda + j] = pivot;
        for (int l = j + 1; l < n; l++)
            a[upper ? (int64_t)l * lda + j : (int64_t)j * lda + l] /= pivot;
        for (int l = j + 1; l < n; l++)
            for (int i = l; i < n; i++) {
                double x = a[upper ? (int64_t)l * lda + j : (int64_t)j * lda + l];
                double y = a[upper ? (int64_t)i * lda + j : (int64_t)j * lda + i];
                a[upper ? (int64_t)i * lda + l : (int64_t)l * lda + i] -= x * y;
            }
    }
    return 0;
}

static void gemm(bool trans_a, bool trans_b, int m, int n, int k, const double *a, int lda,
                 const double *b, int ldb, double *c, int ldc) {
    for (int j = 0; j < n; j++) {
        double *to = c + (int64_t)j * ldc;
        for (int i = 0; i < m; i++)
            to[i] = trans_a && !trans_b ? dot(k, a + (int64_t)i * lda, b + (int64_t)j * ldb) : 0;
        if (trans_a && !trans_b) continue;
        for (int l = 0; trans_a && l < k; l++)
            for (int i = 0; i < m; i++) to[i] += a[(int64_t)i * lda + l] * b[(int64_t)l * ldb + j];
        for (int l = 0; !trans_a && l < k; l++)
            axpy(m, b[trans_b ? (int64_t)l * ldb + j : (int64_t)j * ldb + l], a + (int64_t)l * lda,
                 to);
    }
}

static void gemv(int m, int n, const double *a, int lda, const double *x, double *y) {
    gemm(false, false, m, 1, n, a, lda, x, n, y, m);
}

static void syr(int n, double alpha, const double *x, double *c, int ldc) {
    for (int j = 0; j < n; j++)
        for (int i = 0; i <= j; i++) c[(int64_t)j * ldc + i] += alpha * x[j] * x[i];
}

static void syrk(int n, int k, const double *a, int lda, double *c, int ldc) {
    for (int j = 0; j < n; j++)
        for (int i = 0; i <= j; i++)
            c[(int64_t)j * ldc + i] = dot(k, a + (int64_t)i * lda, a + (int64_t)j * lda);
}

const struct regression_dense blasd_regression_own = {
    .geqp3 = geqp3,
    .geqrf = geqrf,
    .ormqr = ormqr,
    .orgqr = orgqr,
    .gesdd = gesdd,
    .svd = svd,
    .trtri = trtri,
    .potrf = potrf,
    .trsm = trsm,
    .gemm = gemm,
    .gemv = gemv,
    .syr = syr,
    .syrk = syrk,
    .dot = dot,
    .axpy = axpy,
};
