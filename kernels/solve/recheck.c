/* Elements of x that are small beside others, for every backend, on the host.
 *
 * Norms say nothing of them. Their equations do: x solves exactly a system whose every element is
 * off by at most w = max |b - A x|i / (|A| |x| + |b|)i of itself (Oettli and Prager), which no
 * scale of rows or columns changes. Scaling rows and columns near 1 is right for most matrices and
 * wrong for some: where a block is small in its rows and in its columns, it makes small what was
 * not, and pivots from it drown the rest. So where w is large the system is solved once more as it
 * stands, by LU with partial pivoting in long double, whose exponents hold any product of four
 * doubles, and refined with residuals in twice that; and where that is not enough, scaled; what has
 * the smallest w is the answer.
 *
 * Only columns are looked at whose elements differ much; matrices that may be singular where
 * nothing has said so; and matrices of which it was said, for a pivot became 0, that need not be.
 * Read next: README.md. */
#include "kernels/solve/recheck.h"

#include "core/wanted.h"
#include "kernels/cpu/cpu.h"
#include "kernels/solve/element.h"
#include "kernels/solve/estimate.h"
#include "kernels/solve/solve_report.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MOST_WORK 0x1p27    /* elements of matrices that are gone through, for each job */
#define AGAIN_WORK 60       /* how often that is, when a column is solved again */
#define COLUMNS_WORK 0x1p31 /* for the right-hand sides of a matrix that may be singular */
#define LOST 0x1p-4         /* of a row's size: with a larger error no digit need be right */
#define BETTER 0x1p-4       /* what is computed again must be, against what was there */
#define RIM 0x1p30 /* normal numbers below the least of them times this may have lost some */
#define STEPS 6    /* of refinement */
#define HALF 0x1.00000001p32L /* splits a long double's 64 bits */

struct look {
    const struct blasd_solve *solve;
    struct blasd_solve_layout layout;
    struct blasd_task *task;
    int64_t n;
    long double *matrix, *factors; /* owned: n x n, column-major; as it stands, and LU of it */
    long double *x, *low, *b, *r, *sizes, *lost; /* owned: n each */
    int64_t *rows;                               /* owned: n; where LU has them from */
    int *row_scale, *column_scale;               /* owned: n; exponents, of what is factored */
    long double norm;                            /* of the matrix, infinity */
    bool loaded, graded;                         /* whose elements differ much */
    enum { NOT_FACTORED, AS_IT_STANDS, SCALED } factored;
    bool regular;
    bool sure;  /* x came to rest: corrections fell below its last digit */
    bool still; /* or below that of its largest element */
    double work;
};

static bool single(const struct look *look) {
    return look->task->outputs[BLASD_SOLVE_X].dtype == BLASD_float32;
}

static double digit_of(bool single) {
    return single ? 0x1p-24 : 0x1p-53;
}

static double last_digit(const struct look *look) {
    return digit_of(single(look));
}

/* Of the sizes in x, from which the small ones are looked at. */
static double spread_of(bool single) {
    return single ? 0x1p14 : 0x1p24;
}

static double spread(const struct look *look) {
    return spread_of(single(look));
}

static bool make(struct look *look) {
    size_t n = (size_t)look->n, square = n * n;
    look->matrix = blasd_cpu_alloc(2 * square + 6 * n, sizeof *look->matrix);
    look->rows = blasd_cpu_alloc(n, sizeof *look->rows);
    look->row_scale = blasd_cpu_alloc(2 * n, sizeof *look->row_scale);
    if (look->matrix == NULL || look->rows == NULL || look->row_scale == NULL) return false;
    look->column_scale = look->row_scale + n;
    look->factors = look->matrix + square;
    look->x = look->factors + square;
    look->low = look->x + n;
    look->b = look->low + n;
    look->r = look->b + n;
    look->sizes = look->r + n;
    look->lost = look->sizes + n;
    return true;
}

/* op(a) as its structure has it, from `start` on. */
static void load(struct look *look, int64_t start) {
    const struct blasd_tensor *a = &look->task->inputs[BLASD_SOLVE_A];
    int64_t n = look->n;
    long double least = INFINITY, most = 0;
    for (int64_t i = 0; i < n; i++) look->sizes[i] = 0;
    for (int64_t j = 0; j < n; j++)
        for (int64_t i = 0; i < n; i++) {
            long double value = solve_matrix_element(&look->layout, a, start, i, j);
            look->matrix[j * n + i] = value;
            look->sizes[i] += fabsl(value);
            if (value != 0) least = fminl(least, fabsl(value));
            most = fmaxl(most, fabsl(value));
        }
    look->graded = most > spread(look) * least;
    look->norm = 0;
    for (int64_t i = 0; i < n; i++) look->norm = fmaxl(look->norm, look->sizes[i]);
    look->loaded = true;
    look->factored = NOT_FACTORED;
}

static int exponent_of(long double value) {
    int exponent = 0;
    (void)frexpl(value, &exponent);
    return exponent;
}

/* Rows, then columns, are brought near 1 in what is factored. */
static void scale(struct look *look) {
    int64_t n = look->n;
    long double *rows = look->r;
    memset(rows, 0, (size_t)n * sizeof *rows);
    for (int64_t j = 0; j < n; j++)
        for (int64_t i = 0; i < n; i++) rows[i] = fmaxl(rows[i], fabsl(look->matrix[j * n + i]));
    for (int64_t i = 0; i < n; i++) look->row_scale[i] = -exponent_of(rows[i]);
    for (int64_t j = 0; j < n; j++) {
        long double most = 0;
        for (int64_t i = 0; i < n; i++)
            most = fmaxl(most, ldexpl(fabsl(look->matrix[j * n + i]), look->row_scale[i]));
        look->column_scale[j] = -exponent_of(most);
    }
}

/* LU of the matrix, scaled where that is asked for. False: a pivot is 0, or nobody wants it any
 * more. */
static bool factor(struct look *look, bool scaled) {
    int64_t n = look->n, done = 0;
    long double *lu = look->factors;
    memset(look->row_scale, 0, 2 * (size_t)n * sizeof *look->row_scale);
    memcpy(lu, look->matrix, (size_t)n * (size_t)n * sizeof *lu);
    if (scaled) scale(look);
    for (int64_t j = 0; j < n && scaled; j++)
        for (int64_t i = 0; i < n; i++)
            lu[j * n + i] = ldexpl(lu[j * n + i], look->row_scale[i] + look->column_scale[j]);
    for (int64_t i = 0; i < n; i++) look->rows[i] = i;
    for (int64_t k = 0; k < n && blasd_wanted_after(&done, (n - k) * (n - k) * 2); k++) {
        int64_t pivot = k, row = look->rows[k];
        for (int64_t i = k + 1; i < n; i++)
            if (fabsl(lu[k * n + i]) > fabsl(lu[k * n + pivot])) pivot = i;
        if (lu[k * n + pivot] == 0) return false;
        look->rows[k] = look->rows[pivot];
        look->rows[pivot] = row;
        for (int64_t j = 0; j < n && pivot != k; j++) {
            long double value = lu[j * n + k];
            lu[j * n + k] = lu[j * n + pivot];
            lu[j * n + pivot] = value;
        }
        for (int64_t i = k + 1; i < n; i++) lu[k * n + i] /= lu[k * n + k];
        for (int64_t j = k + 1; j < n; j++) {
            long double by = lu[j * n + k];
            for (int64_t i = k + 1; by != 0 && i < n; i++) lu[j * n + i] -= lu[k * n + i] * by;
        }
    }
    return blasd_wanted();
}

/* Factors the way of `how`, if they are not there. */
static void take_factors(struct look *look, int how) {
    if ((int)look->factored == how) return;
    look->work += pow((double)look->n, 3) / 3;
    look->regular = factor(look, how == SCALED);
    look->factored = how == SCALED ? SCALED : AS_IT_STANDS;
}

/* d := inverse(A) r by the factors. */
static void substitute(const struct look *look, const long double *r, long double *d) {
    const long double *lu = look->factors;
    int64_t n = look->n;
    for (int64_t i = 0; i < n; i++) d[i] = ldexpl(r[look->rows[i]], look->row_scale[look->rows[i]]);
    for (int64_t j = 0; j < n; j++)
        for (int64_t i = j + 1; d[j] != 0 && i < n; i++) d[i] -= lu[j * n + i] * d[j];
    for (int64_t j = n - 1; j >= 0; j--) {
        d[j] /= lu[j * n + j];
        for (int64_t i = 0; d[j] != 0 && i < j; i++) d[i] -= lu[j * n + i] * d[j];
    }
    for (int64_t j = 0; j < n; j++) d[j] = ldexpl(d[j], look->column_scale[j]);
}

/* d := inverse(A') r. Destroys r. */
static void substitute_transposed(const struct look *look, long double *r, long double *d) {
    const long double *lu = look->factors;
    int64_t n = look->n;
    for (int64_t j = 0; j < n; j++) {
        r[j] = ldexpl(r[j], look->column_scale[j]);
        for (int64_t i = 0; i < j; i++) r[j] -= lu[j * n + i] * r[i];
        r[j] /= lu[j * n + j];
    }
    for (int64_t j = n - 1; j >= 0; j--)
        for (int64_t i = j + 1; i < n; i++) r[j] -= lu[j * n + i] * r[i];
    for (int64_t i = 0; i < n; i++) d[look->rows[i]] = ldexpl(r[i], look->row_scale[look->rows[i]]);
}

/* What rounding leaves out of x y (Dekker). */
static long double product_error(long double x, long double y, long double product) {
    long double a = x * HALF, b = y * HALF, x1, y1, x2, y2;
    x1 = a - (a - x);
    y1 = b - (b - y);
    x2 = x - x1;
    y2 = y - y1;
    return x2 * y2 - (((product - x1 * y1) - x2 * y1) - x1 * y2);
}

/* look->r := b - A (x + low), `fine` as if in twice the precision; look->sizes := |A| |x| + |b|. */
static void residual(struct look *look, bool fine) {
    int64_t n = look->n;
    long double *r = look->r, *lost = look->lost, *sizes = look->sizes;
    for (int64_t i = 0; i < n; i++) {
        r[i] = look->b[i];
        lost[i] = 0;
        sizes[i] = fabsl(look->b[i]);
    }
    for (int64_t j = 0; j < n; j++) {
        const long double *column = look->matrix + j * n;
        for (int64_t i = 0; look->x[j] != 0 && i < n; i++) {
            long double product = -column[i] * look->x[j], next = r[i] + product;
            if (fine) {
                long double part = next - r[i];
                lost[i] += product_error(-column[i], look->x[j], product) -
                           column[i] * look->low[j] + (r[i] - (next - part)) + (product - part);
            }
            r[i] = next;
            sizes[i] += fabsl(product);
        }
    }
    for (int64_t i = 0; i < n; i++) r[i] += lost[i];
}

/* By how much, of its own size, each element of A and b may be changed for look->x to be exact.
 * *error: the residual against norms, as backward_error has it. */
static double off(struct look *look, double *error) {
    long double most = 0, greatest_r = 0, greatest_x = 0, greatest_b = 0, below;
    residual(look, false);
    for (int64_t i = 0; i < look->n; i++) {
        long double r = fabsl(look->r[i]);
        if (r > 0 && !(r <= most * look->sizes[i])) most = r / look->sizes[i];
        if (!(r <= greatest_r)) greatest_r = r;
        greatest_x = fmaxl(greatest_x, fabsl(look->x[i]));
        greatest_b = fmaxl(greatest_b, fabsl(look->b[i]));
    }
    below = look->norm * greatest_x + greatest_b;
    *error = below > 0 ? (double)(greatest_r / below) * (1 + 0x1p-40) : 0;
    return (double)most;
}

/* look->x from the factors, to the last digits that the dtype of the answer has. */
static void solve(struct look *look, long double *d) {
    long double last = INFINITY;
    look->sure = look->still = false;
    memset(look->low, 0, (size_t)look->n * sizeof *look->low);
    substitute(look, look->b, look->x);
    for (int step = 0; step < STEPS && blasd_wanted(); step++) {
        long double most = 0, greatest_d = 0, greatest_x = 0;
        residual(look, true);
        substitute(look, look->r, d);
        for (int64_t i = 0; i < look->n; i++) {
            long double size = fabsl(d[i]) / fabsl(look->x[i]);
            if (d[i] != 0 && !(size <= most)) most = size;
            if (!(fabsl(d[i]) <= greatest_d)) greatest_d = fabsl(d[i]);
            greatest_x = fmaxl(greatest_x, fabsl(look->x[i]));
        }
        look->still = greatest_d <= 0x1p-56L * greatest_x;
        if (!(most < last / 2) && !(most <= 0x1p-60L)) break;
        for (int64_t i = 0; i < look->n; i++) {
            long double by = look->low[i] + d[i], next = look->x[i] + by;
            look->low[i] = by - (next - look->x[i]);
            look->x[i] = next;
        }
        look->sure = most <= 0x1p-60L;
        if (look->sure) break;
        last = most;
    }
    for (int64_t i = 0; i < look->n; i++) look->x[i] += look->low[i];
    memset(look->low, 0, (size_t)look->n * sizeof *look->low);
}

/* Whether no pivot is so small beside what it is the rest of that errors of the last digit in A may
 * make it 0. Scales of rows and columns change neither. */
static bool pivots_stand(const struct look *look) {
    const long double *lu = look->factors;
    int64_t n = look->n;
    for (int64_t k = 0; k < n; k++) {
        long double pivot = fabsl(lu[k * n + k]), sum = pivot;
        for (int64_t j = 0; j < k; j++) sum += fabsl(lu[j * n + k] * lu[k * n + j]);
        if (!(pivot > 4 * last_digit(look) * sum)) return false;
    }
    return true;
}

static void take_x(struct look *look, const struct blasd_tensor *x, int64_t at, int64_t step) {
    for (int64_t i = 0; i < look->n; i++) look->x[i] = (long double)solve_element(x, at + i * step);
    memset(look->low, 0, (size_t)look->n * sizeof *look->low);
}

/* Puts look->x in place of what is there. */
static void put_x(struct look *look, const struct blasd_tensor *x, int64_t at, int64_t step) {
    for (int64_t i = 0; i < look->n; i++) {
        if (single(look))
            ((float *)x->data)[at + i * step] = (float)look->x[i];
        else
            ((double *)x->data)[at + i * step] = (double)look->x[i];
    }
}

/* look->x as the answer will have it. False: beyond its range. */
static bool round_x(struct look *look) {
    bool finite = true;
    for (int64_t i = 0; i < look->n; i++) {
        double value = (double)look->x[i];
        look->x[i] = (long double)(single(look) ? (double)(float)value : value);
        finite = finite && isfinite(look->x[i]);
    }
    return finite;
}

/* Whether x in some column is far from where these factors lead, or too many columns are left to
 * tell; what is not quite there gets it. */
static bool x_is_far(struct look *look, int64_t item, int64_t x_at, int64_t b_at) {
    const struct blasd_tensor *x = &look->task->outputs[BLASD_SOLVE_X];
    const struct blasd_tensor *b = &look->task->inputs[BLASD_SOLVE_B];
    double *error = look->task->outputs[BLASD_SOLVE_BACKWARD_ERROR].data, now;
    double most = look->work + COLUMNS_WORK;
    bool far = false;
    for (int64_t k = 0; k < look->solve->columns && blasd_wanted(); k++) {
        if (look->work > most) return true;
        long double *d = look->sizes, greatest_d = 0, greatest_x = 0;
        for (int64_t i = 0; i < look->n; i++)
            look->b[i] = (long double)solve_element(b, b_at + k * look->layout.b_column +
                                                           i * look->layout.b_row);
        take_x(look, x, x_at + k, look->solve->columns);
        residual(look, true);
        substitute(look, look->r, d);
        look->work += 2 * (double)(look->n * look->n);
        for (int64_t i = 0; i < look->n; i++) {
            greatest_d = fmaxl(greatest_d, fabsl(d[i]));
            greatest_x = fmaxl(greatest_x, fabsl(look->x[i]));
        }
        if (!isfinite(greatest_x) || greatest_d <= 4 * last_digit(look) * greatest_x) continue;
        far = far || !(greatest_d <= LOST * greatest_x);
        look->work += AGAIN_WORK * (double)(look->n * look->n);
        solve(look, look->sizes);
        far = far || !look->still; /* no factors lead there */
        if (!look->still || !round_x(look)) continue;
        put_x(look, x, x_at + k, look->solve->columns);
        off(look, &now);
        error[item] = fmax(error[item], now);
    }
    return far;
}

/* Whether x need have no digit though nothing said so: A is singular, or may be but for the last
 * digits of its elements, or x is far from its solution. Factors of A in its own precision then
 * have a pivot that is rounding alone, and know nothing of its inverse: where other elements of x
 * are far larger than what comes of that, no condition that is estimated with them shows it. */
static bool hidden_doubt(struct look *look, int64_t item, int64_t x_at, int64_t b_at) {
    bool regular = false;
    for (int how = AS_IT_STANDS; how <= SCALED && !regular; how++) {
        take_factors(look, how);
        regular = look->regular && pivots_stand(look);
    }
    return blasd_wanted() && (!regular || x_is_far(look, item, x_at, b_at));
}

/* look->x once more, by the way of factors `how`. Returns what off() says of it. */
static double again(struct look *look, int how, double *error) {
    look->work += AGAIN_WORK * (double)(look->n * look->n);
    take_factors(look, how);
    if (!look->regular) return INFINITY;
    solve(look, look->sizes);
    return round_x(look) ? off(look, error) : INFINITY;
}

/* One right-hand side whose elements of x differ much. Whether all of x is right. */
static bool look_at(struct look *look, int64_t item, int64_t x_at, int64_t b_at, int *flags) {
    const struct blasd_tensor *x = &look->task->outputs[BLASD_SOLVE_X];
    const struct blasd_tensor *b = &look->task->inputs[BLASD_SOLVE_B];
    double *error = look->task->outputs[BLASD_SOLVE_BACKWARD_ERROR].data;
    double enough = single(look) ? 0x1p-20 : 0x1p-48, before, now;
    bool sure = false;
    for (int64_t i = 0; i < look->n; i++)
        look->b[i] = (long double)solve_element(b, b_at + i * look->layout.b_row);
    take_x(look, x, x_at, look->solve->columns);
    before = off(look, &now);
    for (int how = AS_IT_STANDS; how <= SCALED && !(before <= enough); how++) {
        double after = again(look, how, &now);
        if (!blasd_wanted()) return false;
        if (!(after <= before * BETTER)) continue;
        put_x(look, x, x_at, look->solve->columns);
        ((int64_t *)look->task->outputs[BLASD_SOLVE_METHOD].data)[item] = BLASD_SOLVED_LU;
        if (!(now <= error[item])) error[item] = now;
        before = after;
        sure = look->sure;
    }
    if (!(before < LOST)) *flags |= BLASD_SOLVE_LOST;
    return sure;
}

/* The least and the largest size that is not 0 in a column of x, and whether one is 0. False:
 * something is not finite. */
static bool sizes_of(const struct blasd_tensor *x, int64_t at, int64_t step, int64_t n,
                     double *least, double *most, bool *zeros) {
    double all = 0;
    *zeros = false;
    *least = INFINITY;
    *most = 0;
    for (int64_t i = 0; i < n; i++) {
        double size = fabs(solve_element(x, at + i * step));
        all += 0 * size;
        *zeros = *zeros || size == 0;
        if (size != 0 && size < *least) *least = size;
        if (size > *most) *most = size;
    }
    return all == 0;
}

static bool all_zero(const struct blasd_tensor *b, int64_t at, int64_t step, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        if (solve_element(b, at + i * step) != 0) return false;
    return true;
}

/* By the condition that is told of it, which may be wrong. */
static bool may_be_singular(const struct blasd_task *task, const struct blasd_solve *s,
                            int64_t item) {
    bool single = task->outputs[BLASD_SOLVE_X].dtype == BLASD_float32;
    const double *rcond = task->outputs[BLASD_SOLVE_RCOND].data;
    return rcond[item] < 2 * (double)s->n * digit_of(single);
}

bool blasd_solve_is_even(const struct blasd_task *task, const struct blasd_solve *s, double least,
                         double most, bool zeros) {
    bool single = task->outputs[BLASD_SOLVE_X].dtype == BLASD_float32;
    double normal = single ? (double)FLT_MIN : DBL_MIN;
    for (int64_t i = 0; i < s->batch_count; i++)
        if (may_be_singular(task, s, i)) return false;
    return !zeros && least >= normal * RIM && most <= spread_of(single) * least;
}

static bool worth_a_look(const struct look *look) {
    return look->n <= BLASD_RECHECK_N && look->work <= MOST_WORK;
}

/* The matrix from a_at on is at hand. False: no memory. */
static bool ready(struct look *look, int64_t a_at) {
    blasd_task_make_inputs(look->task);
    if (look->matrix == NULL && !make(look)) return false;
    if (!look->loaded) load(look, a_at);
    return true;
}

/* ---- matrices that were called singular ---- */

/* v := inverse(A) norm v, or with the transposed inverse; in double, of which it may be beyond. */
static bool apply_inverse(void *arg, double *v, bool transposed) {
    struct look *look = arg;
    long double *r = look->r, *d = look->lost;
    for (int64_t i = 0; i < look->n; i++) r[i] = v[i];
    if (transposed)
        substitute_transposed(look, r, d);
    else
        substitute(look, r, d);
    for (int64_t i = 0; i < look->n; i++) v[i] = (double)(d[i] * look->norm);
    return blasd_wanted();
}

/* v := F inverse(A') v, or inverse(A) F v, F = look->sizes: what the equations may be off. */
static bool apply_errors(void *arg, double *v, bool transposed) {
    struct look *look = arg;
    long double *r = look->r, *d = look->lost;
    for (int64_t i = 0; i < look->n; i++) r[i] = transposed ? v[i] * look->sizes[i] : v[i];
    if (transposed)
        substitute(look, r, d);
    else
        substitute_transposed(look, r, d);
    for (int64_t i = 0; i < look->n; i++)
        v[i] = (double)(transposed ? d[i] : d[i] * look->sizes[i]);
    return blasd_wanted();
}

/* Whether errors of the last digit in A and b leave no digit of look->x, which is what it is, as
 * off() left it: as the engine asks (condition_body.h), but with these factors. */
static bool x_may_be_any(struct look *look, double *v) {
    long double size = 0;
    for (int64_t i = 0; i < look->n; i++) size = fmaxl(size, fabsl(look->x[i]));
    if (!(size > 0) || !isfinite(size)) return false;
    for (int64_t i = 0; i < look->n; i++) look->sizes[i] *= last_digit(look) / size;
    return !(blasd_norm_inverse(look->n, v, v + look->n, apply_errors, look) < LOST);
}

/* 1 / (norm of A, norm of its inverse), both the largest sum of a column. */
static double rcond_of(struct look *look, double *v) {
    double inverse;
    look->norm = 0; /* from here on that one */
    for (int64_t j = 0; j < look->n; j++) {
        long double sum = 0;
        for (int64_t i = 0; i < look->n; i++) sum += fabsl(look->matrix[j * look->n + i]);
        look->norm = fmaxl(look->norm, sum);
    }
    inverse = blasd_norm_inverse(look->n, v, v + look->n, apply_inverse, look);
    return inverse > 1 ? 1 / inverse : inverse > 0 ? 1 : 0;
}

/* Every column of x by the factors at hand; the worst of their backward errors. False: one of them
 * need have no digit, or they are too many. */
static bool solve_all(struct look *look, int64_t x_at, int64_t b_at, double *v, double *worst) {
    const struct blasd_tensor *x = &look->task->outputs[BLASD_SOLVE_X];
    const struct blasd_tensor *b = &look->task->inputs[BLASD_SOLVE_B];
    double most = look->work + COLUMNS_WORK;
    for (int64_t k = 0; k < look->solve->columns && blasd_wanted(); k++) {
        double error;
        if (look->work > most) return false;
        for (int64_t i = 0; i < look->n; i++)
            look->b[i] = (long double)solve_element(b, b_at + k * look->layout.b_column +
                                                           i * look->layout.b_row);
        look->work += AGAIN_WORK * (double)(look->n * look->n);
        solve(look, look->sizes);
        if (!look->still || !(off(look, &error) < LOST) || x_may_be_any(look, v)) return false;
        if (!round_x(look))
            error = INFINITY;
        else
            off(look, &error);
        put_x(look, x, x_at + k, look->solve->columns);
        *worst = fmax(*worst, error);
    }
    return true;
}

static void forget_x(struct look *look, int64_t x_at) {
    const struct blasd_tensor *x = &look->task->outputs[BLASD_SOLVE_X];
    for (int64_t i = 0; i < look->n; i++) look->x[i] = (long double)NAN;
    for (int64_t k = 0; k < look->solve->columns; k++)
        put_x(look, x, x_at + k, look->solve->columns);
}

/* Whether a system that has no solution may have one. What is to be positive definite must be more
 * than regular; a triangle's pivots are what was sent. */
static bool may_have_one(const struct look *look, int flags) {
    return (flags & BLASD_SOLVE_SINGULAR) != 0 && worth_a_look(look) &&
           (look->layout.assume == BLASD_ASSUME_GENERAL ||
            look->layout.assume == BLASD_ASSUME_SYMMETRIC);
}

/* A system without a solution, for a pivot became 0: its solution, where factors in long double say
 * that rounding alone made it 0. False: no memory. */
static bool solve_singular(struct look *look, int64_t item, int64_t a_at, int64_t b_at,
                           int *flags) {
    int64_t x_at = item * look->n * look->solve->columns;
    double worst = 0, *v;
    look->loaded = false;
    if (!ready(look, a_at)) return false;
    v = blasd_cpu_alloc(2 * (size_t)look->n, sizeof *v);
    if (v == NULL) return false;
    for (int how = AS_IT_STANDS; how <= SCALED && (*flags & BLASD_SOLVE_SINGULAR) != 0; how++) {
        take_factors(look, how);
        if (!look->regular || !pivots_stand(look)) continue;
        if (solve_all(look, x_at, b_at, v, &worst)) {
            *flags &= ~BLASD_SOLVE_SINGULAR;
            blasd_solve_put(look->task, BLASD_SOLVE_INFO, item, 0, 0);
            blasd_solve_put(look->task, BLASD_SOLVE_RCOND, item, rcond_of(look, v), 0);
            blasd_solve_put(look->task, BLASD_SOLVE_BACKWARD_ERROR, item, worst, 0);
            blasd_solve_put(look->task, BLASD_SOLVE_METHOD, item, 0, BLASD_SOLVED_LU);
        } else {
            forget_x(look, x_at);
        }
    }
    free(v);
    return true;
}

/* One system: item of the batch, whose operands begin at a_at and b_at. */
static bool look_at_system(struct look *look, int64_t item, int64_t a_at, int64_t b_at,
                           int *flags) {
    const struct blasd_solve *s = look->solve;
    const struct blasd_tensor *x = &look->task->outputs[BLASD_SOLVE_X];
    const struct blasd_tensor *b = &look->task->inputs[BLASD_SOLVE_B];
    double *error = look->task->outputs[BLASD_SOLVE_BACKWARD_ERROR].data, vanished = 0;
    double normal = single(look) ? (double)FLT_MIN : DBL_MIN;
    double half = single(look) ? (double)FLT_TRUE_MIN / 2 : DBL_TRUE_MIN;
    int64_t sure = 0;
    look->loaded = false;
    if (may_be_singular(look->task, s, item) && worth_a_look(look) &&
        (*flags & (BLASD_SOLVE_DOUBTFUL | BLASD_SOLVE_STEADY)) == 0 &&
        look->layout.assume != BLASD_ASSUME_LOWER_TRIANGULAR &&
        look->layout.assume != BLASD_ASSUME_UPPER_TRIANGULAR) {
        if (!ready(look, a_at)) return false;
        if (hidden_doubt(look, item, item * s->n * s->columns, b_at))
            *flags |= BLASD_SOLVE_DOUBTFUL;
    }
    for (int64_t k = 0; k < s->columns; k++) {
        int64_t x_at = item * s->n * s->columns + k, at = b_at + k * look->layout.b_column;
        double least, most;
        bool zeros;
        if (!sizes_of(x, x_at, s->columns, s->n, &least, &most, &zeros)) continue;
        if (most < normal * RIM) {
            blasd_task_make_inputs(look->task);
            if (all_zero(b, at, look->layout.b_row, s->n)) continue;
            vanished = fmax(vanished, most > 0 ? fmin(half / most, 1) : 1);
            if (most < normal) *flags |= BLASD_SOLVE_VANISHED;
            continue;
        }
        if (!(most > spread(look) * least || zeros) || !worth_a_look(look)) continue;
        if (!ready(look, a_at)) return false;
        if (!(most > spread(look) * least || look->graded))
            continue; /* zeros of the structure, then */
        look->work += (double)(s->n * s->n);
        if (!blasd_wanted()) return true;
        sure += look_at(look, item, x_at, at, flags);
    }
    if (sure == s->columns) *flags &= ~BLASD_SOLVE_DOUBTFUL; /* which was said of other factors */
    if (vanished > 0) error[item] = fmin(error[item] + vanished, 1);
    return true;
}

int blasd_solve_recheck(struct blasd_task *task, const struct blasd_solve *s, int *flags,
                        struct blasd_err *err) {
    struct look look = {.solve = s, .task = task, .n = s->n};
    const int64_t *info = task->outputs[BLASD_SOLVE_INFO].data;
    struct blasd_walk walk;
    int64_t done = 0;
    bool room = true;
    if (s->n == 0 || s->batch_count == 0) return 0;
    look.layout = blasd_solve_layout(s, &task->inputs[BLASD_SOLVE_A], &task->inputs[BLASD_SOLVE_B]);
    blasd_walk_init(&walk, s->batch_rank, s->batch);
    blasd_walk_operand(&walk, 0, s->a_rank, s->a_batch);
    blasd_walk_operand(&walk, 1, s->b_rank, s->b_batch);
    for (int64_t item = 0; item < s->batch_count && room; item++) {
        if (!blasd_wanted_after(&done, 4 * s->n * s->columns)) break;
        if (info[item] != 0 && may_have_one(&look, flags[item]))
            room = solve_singular(&look, item, walk.offset[0] * s->n * s->n,
                                  walk.offset[1] * s->n * s->columns, flags + item);
        if (room && info[item] == 0)
            room = look_at_system(&look, item, walk.offset[0] * s->n * s->n,
                                  walk.offset[1] * s->n * s->columns, flags + item);
        blasd_walk_next(&walk);
    }
    free(look.matrix);
    free(look.rows);
    free(look.row_scale);
    return room ? 0 : blasd_fail(err, BLASD_E_out_of_memory, "", "no memory to look at x again");
}
