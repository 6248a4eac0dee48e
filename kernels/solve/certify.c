/* Proven bounds on the errors of solutions: Rump's way, from an approximate inverse.
 *
 * With R near inverse(A), G = I - R A and a norm of G below 1, A is not singular, and for any x the
 * error is inverse(A) (b - A x) = inverse(I - G) R r, so that by elements, with z >= |R r|,
 *
 *     |inverse(A) b - x| <= z + |G| e max(z) / (1 - norm(G)),   e all ones.
 *
 * Everything is computed to nearest, and what that may hide is bounded beforehand: a sum of n
 * products, in any order, with fused multiply-add or without, is off by at most gamma(n) times the
 * sum of their sizes; r is made of error-free transformations (Ogita, Rump and Oishi's Dot2). Sums
 * of numbers without a sign, and the few operations on them, are made larger by more than their
 * rounding. Only the matrix, the right-hand side and x themselves enter: how x was found does not.
 *
 * The system is that scaled by powers of two, R' A C' (C'^-1 x) = R' b, which rounds nothing but
 * what underflows, for which 2^-1022 is added.
 *
 * Read next: README.md, Certified. */
#include "kernels/solve/certify.h"

#include "core/parallel.h"
#include "core/wanted.h"
#include "kernels/cpu/cpu.h"
#include "kernels/numeric/bounds.h"
#include "kernels/numeric/dd.h"
#include "kernels/solve/element.h"

#include <cblas.h>
#include <lapacke.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define U BOUNDS_U
#define TINY 0x1p-1022 /* more than what underflow takes, however often it happens below */
#define BLOCK 64       /* terms of a product that are summed at once: gamma grows with them */
#define TURNED 8       /* columns that are turned at once: about a line of the cache */
#define LONG_N 512     /* from here on a matrix is inverted piece by piece, so that one can stop */
#define PANEL 128      /* columns of a piece */

struct certificate {
    int64_t n;
    double *matrix, *inverse, *product, *part; /* owned: n x n, column-major */
    double *b, *x, *r, *unsure, *g; /* owned: n each; r: what the residual is, up to unsure */
    double alpha;                   /* a norm of G; not below 1: nothing is proven */
    int *row_scale, *column_scale;  /* owned: n each */
    lapack_int *pivots;             /* owned */
    double from, to;                /* of the job's progress, for this system */
};

static int exponent_of(double value) {
    int exponent = 0;
    (void)frexp(value, &exponent);
    return exponent;
}

/* ---- the matrix ---- */

static void load(struct certificate *c, const struct blasd_tensor *a, int64_t start,
                 const struct blasd_solve_layout *layout) {
    int64_t n = c->n;
    for (int64_t j = 0; j < n; j++)
        for (int64_t i = 0; i < n; i++)
            c->matrix[j * n + i] = solve_matrix_element(layout, a, start, i, j);
}

/* Rows, then columns, are brought near 1. False: something underflowed. */
static bool scale(struct certificate *c) {
    int64_t n = c->n;
    bool exact = true;
    for (int64_t i = 0; i < n; i++) c->row_scale[i] = INT_MIN;
    for (int64_t j = 0; j < n; j++)
        for (int64_t i = 0; i < n; i++) {
            double value = c->matrix[j * n + i];
            if (value != 0 && exponent_of(value) > c->row_scale[i])
                c->row_scale[i] = exponent_of(value);
        }
    for (int64_t i = 0; i < n; i++) c->row_scale[i] = -c->row_scale[i];
    for (int64_t j = 0; j < n; j++) {
        int most = INT_MIN;
        for (int64_t i = 0; i < n; i++) {
            double value = c->matrix[j * n + i];
            int exponent = exponent_of(value) + (value != 0 ? c->row_scale[i] : 0);
            if (value != 0 && exponent > most) most = exponent;
        }
        if (most == INT_MIN) return false;
        c->column_scale[j] = -most;
        for (int64_t i = 0; i < n; i++) {
            double *value = &c->matrix[j * n + i];
            if (*value == 0) continue;
            *value = ldexp(*value, c->row_scale[i] - most);
            exact = exact && fabs(*value) >= TINY;
        }
    }
    return exact;
}

/* sum[i] = sum over j of |m(i, j)| v[j], v of ones where NULL; not yet rounded up */
static void sum_sizes(const double *m, const double *v, int64_t n, double *sum) {
    memset(sum, 0, (size_t)n * sizeof *sum);
    for (int64_t j = 0; j < n; j++) {
        double by = v == NULL ? 1 : v[j];
        for (int64_t i = 0; i < n; i++) sum[i] += fabs(m[j * n + i]) * by;
    }
}

/* Whether to go on; `share` of a system's work is done. */
static bool step(const struct certificate *c, double share) {
    return blasd_wanted_at(c->from + (c->to - c->from) * share);
}

/* product := R A, by blocks of terms; returns how many roundings one element has seen. */
static double multiply(struct certificate *c) {
    lapack_int n = (lapack_int)c->n, block = n > 2 * BLOCK ? BLOCK : n;
    memset(c->product, 0, (size_t)c->n * (size_t)c->n * sizeof *c->product);
    for (lapack_int k = 0; k < n && step(c, 0.5 + 0.5 * k / n); k += block) {
        lapack_int terms = n - k < block ? n - k : block;
        cblas_dgemm(CblasColMajor, CblasNoTrans, CblasNoTrans, n, n, terms, 1,
                    c->inverse + (int64_t)k * n, n, c->matrix + k, n, 0, c->part, n);
        for (int64_t i = 0; i < c->n * c->n; i++) c->product[i] += c->part[i];
    }
    return block + (double)n / block + 2;
}

/* ---- the inverse of a large matrix, piece by piece ---- */

static double *at(double *matrix, lapack_int n, lapack_int i, lapack_int j) {
    return matrix + (int64_t)j * n + i;
}

/* LU in c->inverse. False: a pivot is 0, or nobody wants it any more. */
static bool factor_pieces(struct certificate *c) {
    lapack_int n = (lapack_int)c->n;
    double *lu = c->inverse;
    for (lapack_int j = 0; j < n; j += PANEL) {
        lapack_int width = n - j < PANEL ? n - j : PANEL, end = j + width;
        if (LAPACKE_dgetrf_work(LAPACK_COL_MAJOR, n - j, width, at(lu, n, j, j), n,
                                c->pivots + j) != 0)
            return false;
        for (lapack_int i = j; i < end; i++) c->pivots[i] += j;
        LAPACKE_dlaswp_work(LAPACK_COL_MAJOR, j, lu, n, j + 1, end, c->pivots, 1);
        for (lapack_int k = end; k < n; k += PANEL) {
            lapack_int columns = n - k < PANEL ? n - k : PANEL;
            LAPACKE_dlaswp_work(LAPACK_COL_MAJOR, columns, at(lu, n, 0, k), n, j + 1, end,
                                c->pivots, 1);
            cblas_dtrsm(CblasColMajor, CblasLeft, CblasLower, CblasNoTrans, CblasUnit, width,
                        columns, 1, at(lu, n, j, j), n, at(lu, n, j, k), n);
            cblas_dgemm(CblasColMajor, CblasNoTrans, CblasNoTrans, n - end, columns, width, -1,
                        at(lu, n, end, j), n, at(lu, n, j, k), n, 1, at(lu, n, end, k), n);
            if (!step(c, 0.17 * (1 - pow((double)(n - j) / n, 3)))) return false;
        }
    }
    return true;
}

/* c->inverse := the inverse of what its factors are of, by rows: so what it leaves of R A = I, of
 * which G is, is as small as a solution's residual. */
static bool invert_pieces(struct certificate *c) {
    lapack_int n = (lapack_int)c->n;
    double *lu = c->inverse, *rows = c->product;
    memset(rows, 0, (size_t)n * (size_t)n * sizeof *rows);
    for (lapack_int j = 0; j < n && step(c, 0.17 + 0.33 * j / n); j += PANEL) {
        lapack_int width = n - j < PANEL ? n - j : PANEL;
        for (lapack_int i = j; i < j + width; i++) *at(rows, n, i, i) = 1;
        cblas_dtrsm(CblasColMajor, CblasLeft, CblasUpper, CblasTrans, CblasNonUnit, n - j, width, 1,
                    at(lu, n, j, j), n, at(rows, n, j, j), n);
        cblas_dtrsm(CblasColMajor, CblasLeft, CblasLower, CblasTrans, CblasUnit, n, width, 1, lu, n,
                    at(rows, n, 0, j), n);
        LAPACKE_dlaswp_work(LAPACK_COL_MAJOR, width, at(rows, n, 0, j), n, 1, n, c->pivots, -1);
    }
    for (lapack_int j = 0; j < n && blasd_wanted(); j += TURNED)
        for (lapack_int i = 0; i < n; i++)
            for (lapack_int k = j; k < n && k < j + TURNED; k++)
                *at(c->inverse, n, i, k) = *at(rows, n, k, i);
    return blasd_wanted();
}

/* The inverse in c->inverse. False: there is none, or nobody wants it any more. */
static bool make_inverse(struct certificate *c) {
    lapack_int n = (lapack_int)c->n, work = n < 64 ? n * n : n * 64;
    memcpy(c->inverse, c->matrix, (size_t)c->n * (size_t)c->n * sizeof *c->inverse);
    if (n >= LONG_N) return factor_pieces(c) && invert_pieces(c);
    return LAPACKE_dgetrf_work(LAPACK_COL_MAJOR, n, n, c->inverse, n, c->pivots) == 0 &&
           LAPACKE_dgetri_work(LAPACK_COL_MAJOR, n, c->inverse, n, c->pivots, c->product, work) ==
               0 &&
           blasd_wanted();
}

/* The inverse and what it leaves: c->g bounds the rows of |G|, c->alpha its norm. */
static void invert(struct certificate *c) {
    double roundings;
    c->alpha = INFINITY;
    if (!make_inverse(c)) return;
    roundings = multiply(c);
    /* |I - R A| e: what is seen, and what rounding may have hidden */
    for (int64_t i = 0; i < c->n; i++) c->product[i * c->n + i] -= 1;
    sum_sizes(c->matrix, NULL, c->n, c->r);
    for (int64_t i = 0; i < c->n; i++) c->r[i] = bounds_up(c->r[i], (double)c->n);
    sum_sizes(c->inverse, c->r, c->n, c->unsure);
    sum_sizes(c->product, NULL, c->n, c->g);
    c->alpha = 0;
    for (int64_t i = 0; i < c->n; i++) {
        /* U: of taking 1 away */
        c->g[i] = bounds_up(c->g[i] * (1 + 2 * U) + bounds_gamma(roundings) * c->unsure[i] + TINY,
                            2 * (double)c->n);
        if (!(c->g[i] <= c->alpha)) c->alpha = c->g[i];
    }
}

/* ---- a right-hand side ---- */

/* r := b - A x as if in twice the precision, rounded; unsure: by how much that may be off. */
DD_CLONES
static void residual(const double *matrix, int64_t n, const double *b, const double *x, double *r,
                     double *rest, double *sizes) {
    for (int64_t i = 0; i < n; i++) {
        r[i] = b[i];
        rest[i] = 0;
        sizes[i] = fabs(b[i]);
    }
    for (int64_t j = 0; j < n; j++) {
        const double *column = matrix + j * n;
        for (int64_t i = 0; i < n; i++) {
            struct dd product = dd_two_product(-column[i], x[j]);
            struct dd sum = dd_two_sum(r[i], product.hi);
            r[i] = sum.hi;
            rest[i] += sum.lo + product.lo;
            sizes[i] += fabs(product.hi);
        }
    }
    for (int64_t i = 0; i < n; i++) r[i] += rest[i];
}

/* Scales b and x, of which 2^*by is taken away so that the largest is near 1. False: not finite. */
static bool load_column(struct certificate *c, const struct blasd_tensor *b, int64_t b_at,
                        int64_t b_step, const struct blasd_tensor *x, int64_t x_at, int64_t x_step,
                        int *by) {
    *by = INT_MIN;
    for (int64_t i = 0; i < c->n; i++) {
        c->b[i] = solve_element(b, b_at + i * b_step);
        c->x[i] = solve_element(x, x_at + i * x_step);
        if (!isfinite(c->x[i])) return false;
        if (c->b[i] != 0 && exponent_of(c->b[i]) + c->row_scale[i] > *by)
            *by = exponent_of(c->b[i]) + c->row_scale[i];
        if (c->x[i] != 0 && exponent_of(c->x[i]) - c->column_scale[i] > *by)
            *by = exponent_of(c->x[i]) - c->column_scale[i];
    }
    if (*by == INT_MIN) *by = 0;
    for (int64_t i = 0; i < c->n; i++) {
        c->b[i] = ldexp(c->b[i], c->row_scale[i] - *by);
        c->x[i] = ldexp(c->x[i], -c->column_scale[i] - *by);
    }
    return true;
}

/* Bounds of the errors of a column's elements. b and x are in c; `sizes`: room for n. */
static void bound_column(struct certificate *c, int by, double *sizes, double *ret, int64_t step) {
    int64_t n = c->n;
    double gamma = bounds_gamma((double)n + 2), most = 0;
    residual(c->matrix, n, c->b, c->x, c->r, c->unsure, sizes);
    for (int64_t i = 0; i < n; i++) {
        /* what is hidden in r, and what will be in R r, which shall be |R| times this more; the
         * scaled b and x may have lost less than TINY */
        double hidden =
            U * fabs(c->r[i]) + gamma * gamma * bounds_up(sizes[i], (double)n) + TINY * (double)n;
        c->unsure[i] = bounds_up(hidden + gamma * fabs(c->r[i]), 8);
    }
    sum_sizes(c->inverse, c->unsure, n, sizes);
    memset(c->b, 0, (size_t)n * sizeof *c->b);
    for (int64_t j = 0; j < n; j++)
        for (int64_t i = 0; i < n; i++) c->b[i] += c->inverse[j * n + i] * c->r[j];
    for (int64_t i = 0; i < n; i++) {
        c->b[i] = bounds_up(fabs(c->b[i]) + bounds_up(sizes[i], (double)n) + TINY, 2);
        if (!(c->b[i] <= most)) most = c->b[i];
    }
    for (int64_t i = 0; i < n; i++) {
        double bound = bounds_up(c->b[i] + c->g[i] * (most / ((1 - c->alpha) * (1 - 8 * U))), 8);
        bound = ldexp(bound, c->column_scale[i] + by);
        /* nextafter: what ldexp may have rounded off below the normal numbers */
        ret[i * step] = isfinite(bound) ? nextafter(bound, INFINITY) : INFINITY;
    }
}

/* ---- a job ---- */

struct certify {
    struct blasd_task *task;
    const struct blasd_solve *solve;
    struct blasd_solve_layout layout;
    struct certificate certificates[BLASD_PARALLEL_MAX];
    int64_t unproven;
    double from, to; /* of the batch's progress */
};

static void drop(struct certificate *c) {
    free(c->matrix);
    free(c->b);
    free(c->row_scale);
    free(c->pivots);
}

static bool make(struct certificate *c, int64_t n) {
    size_t square = (size_t)n * (size_t)n;
    c->n = n;
    c->matrix = malloc(4 * square * sizeof *c->matrix + 1);
    c->b = malloc(5 * (size_t)n * sizeof *c->b + 1);
    c->row_scale = malloc(2 * (size_t)n * sizeof *c->row_scale + 1);
    c->pivots = malloc((size_t)n * sizeof *c->pivots + 1);
    if (c->matrix == NULL || c->b == NULL || c->row_scale == NULL || c->pivots == NULL)
        return false;
    c->inverse = c->matrix + square;
    c->product = c->inverse + square;
    c->part = c->product + square;
    c->x = c->b + n;
    c->r = c->x + n;
    c->unsure = c->r + n;
    c->g = c->unsure + n;
    c->column_scale = c->row_scale + n;
    return true;
}

/* One system: its matrix is inverted once for all its right-hand sides. */
static bool certify_system(void *arg, int64_t at, int slot) {
    struct certify *job = arg;
    struct certificate *c = &job->certificates[slot];
    const struct blasd_solve *s = job->solve;
    const struct blasd_tensor *x = &job->task->outputs[BLASD_SOLVE_X];
    double *bounds = job->task->outputs[BLASD_SOLVE_ERROR_BOUND].data;
    const int64_t *info = job->task->outputs[BLASD_SOLVE_INFO].data;
    int64_t start = at * s->n * s->columns;
    bool proven = true;
    struct blasd_walk walk;
    blasd_walk_init(&walk, s->batch_rank, s->batch);
    blasd_walk_operand(&walk, 0, s->a_rank, s->a_batch);
    blasd_walk_operand(&walk, 1, s->b_rank, s->b_batch);
    blasd_walk_seek(&walk, at);
    c->alpha = INFINITY;
    c->from = job->from + (job->to - job->from) * (double)at / (double)s->batch_count;
    c->to = job->from + (job->to - job->from) * (double)(at + 1) / (double)s->batch_count;
    load(c, &job->task->inputs[BLASD_SOLVE_A], walk.offset[0] * s->n * s->n, &job->layout);
    if (info[at] == 0 && scale(c)) invert(c);
    for (int64_t k = 0; k < s->columns && blasd_wanted(); k++) {
        double *ret = bounds + start + k;
        int by;
        bool sure = c->alpha < 1 &&
                    load_column(c, &job->task->inputs[BLASD_SOLVE_B],
                                walk.offset[1] * s->n * s->columns + k * job->layout.b_column,
                                job->layout.b_row, x, start + k, s->columns, &by);
        if (sure) bound_column(c, by, c->part, ret, s->columns);
        for (int64_t i = 0; i < s->n; i++) {
            if (!sure) ret[i * s->columns] = INFINITY;
            proven = proven && isfinite(ret[i * s->columns]);
        }
    }
    if (!proven) __atomic_fetch_add(&job->unproven, 1, __ATOMIC_RELAXED);
    return blasd_wanted();
}

int blasd_solve_certify(struct blasd_task *task, const struct blasd_solve *s, int threads,
                        double from, double to, struct blasd_err *err) {
    struct certify *job;
    struct blasd_parallel loop = {.piece = certify_system, .to = 1, .count = s->batch_count};
    int code = 0;
    if (!s->certify || s->n == 0 || s->batch_count == 0) return 0;
    blasd_task_make_inputs(task);
    job = calloc(1, sizeof *job);
    if (job == NULL) return blasd_fail(err, BLASD_E_out_of_memory, "", "no memory to certify in");
    job->task = task;
    job->solve = s;
    job->from = from;
    job->to = to;
    job->layout = blasd_solve_layout(s, &task->inputs[BLASD_SOLVE_A], &task->inputs[BLASD_SOLVE_B]);
    loop.arg = job;
    loop.threads = threads < s->batch_count ? threads : (int)s->batch_count;
    if (loop.threads > BLASD_PARALLEL_MAX) loop.threads = BLASD_PARALLEL_MAX;
    if (loop.threads < 1) loop.threads = 1;
    for (int t = 0; t < loop.threads && code == 0; t++)
        if (!make(&job->certificates[t], s->n))
            code = blasd_fail(err, BLASD_E_out_of_memory, "", "no memory to certify in");
    if (code == 0) blasd_parallel_run(&loop);
    if (code == 0 && job->unproven > 0)
        blasd_task_warn(task, BLASD_W_not_certifiable,
                        "not_certifiable: %lld of %lld systems are too near to a singular one "
                        "for a proof; their error_bound is infinite",
                        (long long)job->unproven, (long long)s->batch_count);
    for (int t = 0; t < loop.threads; t++) drop(&job->certificates[t]);
    free(job);
    return code;
}
