/* solve, correctly rounded. Two rungs, each of which computes the same on any machine:
 *
 * 1. An inverse R in double, by loops of our own, and a proof that the rows of |I - R A| come to
 *    less than 1/2. Then x as a sum of doubles: each step adds R times the residual, which is exact
 *    before it is rounded, and bounds what is left. An element is decided when all that it may be
 *    rounds to one number; else what has few digits and is near to x is tried for the solution.
 * 2. Elimination with whole numbers, if EXACT_WORK does.
 *
 * What neither decides is NaN and counted. Read next: whole.h, sum.h. */
#include "core/parallel.h"
#include "core/wanted.h"
#include "kernels/cpu/cpu.h"
#include "kernels/exact/exact.h"
#include "kernels/exact/whole.h"
#include "kernels/solve/solve.h"

#include <stdio.h>
#include <stdlib.h>

#define STEPS 6 /* doubles that x is a sum of, at the most */

/* One system: a dense and row-major as doubles, b beside it column by column. */
struct system {
    int64_t n, columns;
    enum blasd_dtype dtype;                   /* of x */
    double *a, *b;                            /* n x n; n x columns, row-major */
    double *scaled, *inverse, *defect;        /* n x n, n x n; sums of rows of |I - R A| */
    double *x, *right, *step, *error, *sizes; /* STEPS x n; n each */
    int64_t *row, *column;                    /* exponents */
    struct blasd_exact_sum *sums;             /* n */
    double alpha;                             /* the largest of defect */
    bool exact;                               /* `right` is 0, and was not rounded to it */
    double *answer;                           /* n x columns; NaN: not decided */
};

/* ---- rung 1 ---- */

static int size_of(double x) {
    int exponent;
    frexp(x, &exponent);
    return exponent;
}

/* a by powers of two, so that rows and columns have elements near 1; false where some would leave
 * the range in which they are exact. */
static bool scale(struct system *s) {
    int64_t n = s->n;
    for (int64_t i = 0; i < n; i++) {
        double most = 0;
        for (int64_t j = 0; j < n; j++) most = fmax(most, fabs(s->a[i * n + j]));
        if (most == 0) return false;
        s->row[i] = size_of(most);
    }
    for (int64_t j = 0; j < n; j++) {
        int most = -5000;
        for (int64_t i = 0; i < n; i++)
            if (s->a[i * n + j] != 0 && size_of(s->a[i * n + j]) - (int)s->row[i] > most)
                most = size_of(s->a[i * n + j]) - (int)s->row[i];
        if (most == -5000) return false;
        s->column[j] = most;
    }
    for (int64_t i = 0; i < n * n; i++) {
        s->scaled[i] = ldexp(s->a[i], -(int)(s->row[i / n] + s->column[i % n]));
        if (s->a[i] != 0 && !(fabs(s->scaled[i]) > 0x1p-400)) return false;
    }
    return true;
}

/* to -= from * factor, of n numbers. */
BLASD_CLONES
static void exact_solve_take(int64_t n, double *restrict to, const double *restrict from,
                             double factor) {
    for (int64_t i = 0; i < n; i++) to[i] -= from[i] * factor;
}

/* The inverse of `scaled`, about (Gauss and Jordan); false: a pivot is 0. */
static bool invert(struct system *s) {
    int64_t n = s->n, *swapped = s->row + 2 * n;
    double *r = s->inverse;
    memcpy(r, s->scaled, (size_t)(n * n) * sizeof *r);
    for (int64_t k = 0; k < n; k++) {
        int64_t pivot = k;
        double over;
        for (int64_t i = k + 1; i < n; i++)
            if (fabs(r[i * n + k]) > fabs(r[pivot * n + k])) pivot = i;
        if (r[pivot * n + k] == 0 || !blasd_wanted()) return false;
        swapped[k] = pivot;
        for (int64_t j = 0; j < n && pivot != k; j++) {
            double one = r[k * n + j];
            r[k * n + j] = r[pivot * n + j];
            r[pivot * n + j] = one;
        }
        over = 1 / r[k * n + k];
        r[k * n + k] = 1;
        for (int64_t j = 0; j < n; j++) r[k * n + j] *= over;
        for (int64_t i = 0; i < n; i++) {
            double factor = r[i * n + k];
            if (i == k || factor == 0) continue;
            r[i * n + k] = 0;
            exact_solve_take(n, r + i * n, r + k * n, factor);
        }
    }
    for (int64_t k = n - 1; k >= 0; k--)
        for (int64_t i = 0; i < n && swapped[k] != k; i++) {
            double one = r[i * n + k];
            r[i * n + k] = r[i * n + swapped[k]];
            r[i * n + swapped[k]] = one;
        }
    return true;
}

/* Bounds the rows of |I - R A|; false where they prove nothing. */
static bool prove(struct system *s) {
    int64_t n = s->n;
    double gamma = (double)(n + 3) * 0x1p-52, *row = s->step;
    for (int64_t i = 0; i < n; i++) {
        s->sizes[i] = 0;
        for (int64_t j = 0; j < n; j++) s->sizes[i] += fabs(s->scaled[i * n + j]);
    }
    s->alpha = 0;
    for (int64_t i = 0; i < n; i++) {
        const double *r = s->inverse + i * n;
        double sum = 0, rounding = 0;
        if (!blasd_wanted()) return false;
        for (int64_t j = 0; j < n; j++) row[j] = i == j;
        for (int64_t l = 0; l < n; l++) exact_solve_take(n, row, s->scaled + l * n, r[l]);
        for (int64_t j = 0; j < n; j++) {
            sum += fabs(row[j]);
            rounding += fabs(r[j]) * s->sizes[j];
        }
        s->defect[i] = (sum + gamma * (rounding + 1)) * (1 + 2 * gamma) + 0x1p-900;
        s->alpha = s->defect[i] > s->alpha || isnan(s->defect[i]) ? s->defect[i] : s->alpha;
        if (!(s->alpha < 0.5)) return false;
    }
    return true;
}

/* step = R right; returns a bound on the largest of what it and `error`, which becomes a bound on
 * its roundings and on that of `right`, come to. */
static double correct(struct system *s) {
    int64_t n = s->n;
    double gamma = (double)(n + 5) * 0x1p-52, most = 0;
    for (int64_t i = 0; i < n; i++) {
        const double *r = s->inverse + i * n;
        double sum[8] = {0}, size[8] = {0}, all = 0, sizes = 0, tiny = 0;
        for (int64_t j = 0; j < n; j++) {
            double term = r[j] * s->right[j];
            sum[j & 7] += term;
            size[j & 7] += fabs(term);
            tiny += fabs(r[j]);
        }
        for (int l = 0; l < 8; l++) {
            all += sum[l];
            sizes += size[l];
        }
        s->step[i] = all;
        s->error[i] = sizes * gamma + (tiny + (double)n) * 0x1p-1070;
        if (!(fabs(all) + s->error[i] <= most)) most = fabs(all) + s->error[i];
        if (isnan(most)) return most;
    }
    return most * (1 + 0x1p-50);
}

/* Element i as the number that all of x +- error round to, times 2^exponent; NaN: they differ. */
static double decide(const struct system *s, int64_t i, int steps, double error, int64_t exponent,
                     struct blasd_exact_sum *sum) {
    double end[2];
    for (int e = 0; e < 2; e++) {
        struct blasd_exact_number number;
        blasd_exact_clear(sum);
        for (int t = 0; t < steps; t++) blasd_exact_add(sum, s->x[t * s->n + i]);
        blasd_exact_add(sum, e == 0 ? -error : error);
        blasd_exact_read(sum, &number);
        end[e] = blasd_exact_nearest(number.limb, number.length, number.exponent + exponent,
                                     number.negative, false, s->dtype);
        if (error == 0) return end[0];
    }
    return end[0] == end[1] && signbit(end[0]) == signbit(end[1]) ? end[0] : (double)NAN;
}

/* The residual, less what `x` adds: to `right`, rounded. */
static void subtract(struct system *s, const double *x) {
    struct blasd_exact_number number;
    s->exact = true;
    for (int64_t i = 0; i < s->n; i++) {
        const double *a = s->scaled + i * s->n;
        for (int64_t j = 0; j < s->n; j++) blasd_exact_add_product(&s->sums[i], -a[j], x[j]);
        blasd_exact_read(&s->sums[i], &number);
        s->exact = s->exact && number.length == 0;
        s->right[i] = blasd_exact_nearest(number.limb, number.length, number.exponent,
                                          number.negative, false, BLASD_float64);
    }
}

/* Right-hand side `side`, in the unit 2^*unit, as the residual of nothing; false: numbers of it are
 * too far apart. */
static bool begin(struct system *s, int64_t side, int *unit) {
    *unit = -5000;
    for (int64_t i = 0; i < s->n; i++) {
        double b = s->b[i * s->columns + side];
        if (b != 0 && size_of(b) - (int)s->row[i] > *unit) *unit = size_of(b) - (int)s->row[i];
    }
    if (*unit == -5000) *unit = 0;
    s->exact = false;
    for (int64_t i = 0; i < s->n; i++) {
        double b = s->b[i * s->columns + side];
        s->right[i] = ldexp(b, -(int)s->row[i] - *unit);
        if (b != 0 && !(fabs(s->right[i]) > 0x1p-800)) return false;
        blasd_exact_clear(&s->sums[i]);
        blasd_exact_add(&s->sums[i], s->right[i]);
    }
    return true;
}

/* Replaces x by what is near to it, within `error`, and has few digits: the exact solution where
 * that has few, as zeros and ties do. False: it is another. */
static bool simplify(struct system *s, int64_t side, struct blasd_exact_sum *sum) {
    int64_t n = s->n;
    int unit;
    for (int64_t i = 0; i < n; i++) {
        int digit = size_of(s->error[i]) + 3, part = 0;
        blasd_exact_clear(sum);
        for (int t = 0; t < STEPS; t++) blasd_exact_add(sum, s->x[t * n + i]);
        for (int t = 0; t < STEPS; t++) s->x[t * n + i] = 0;
        for (bool last = false; !last; part++) {
            double value = blasd_exact_round(sum, BLASD_float64);
            last = fabs(value) < ldexp(1, digit + 53);
            if (last) value = ldexp(rint(ldexp(value, -digit)), digit);
            if (part == STEPS || !isfinite(value)) return false;
            s->x[part * n + i] = value;
            blasd_exact_add(sum, -value);
        }
    }
    if (!begin(s, side, &unit)) return false;
    for (int t = 0; t < STEPS; t++) subtract(s, s->x + t * n);
    return s->exact;
}

/* Right-hand side `side`; false: some elements are not decided. */
static bool solve_side(struct system *s, int64_t side, struct blasd_exact_sum *sum) {
    int64_t n = s->n;
    int unit;
    bool decided = false;
    if (!begin(s, side, &unit)) return false;
    for (int t = 0; t < STEPS && !decided; t++) {
        double largest = correct(s), *x = s->x + t * n;
        if (!isfinite(largest) || !blasd_wanted()) return false;
        memcpy(x, s->step, (size_t)n * sizeof *x);
        decided = t > 0;
        for (int64_t i = 0; i < n && t > 0; i++) {
            double *answer = &s->answer[i * s->columns + side];
            double error = s->error[i] + s->defect[i] * largest / (1 - s->alpha) * (1 + 0x1p-50);
            s->error[i] = error = s->exact ? 0 : error * (1 + 0x1p-50);
            if (isnan(*answer)) *answer = decide(s, i, t + 1, error, unit - s->column[i], sum);
            decided = decided && !isnan(*answer);
        }
        if (!decided && t + 1 < STEPS) subtract(s, x);
    }
    if (decided || !simplify(s, side, sum)) return decided;
    for (int64_t i = 0; i < n; i++)
        s->answer[i * s->columns + side] = decide(s, i, STEPS, 0, unit - s->column[i], sum);
    return true;
}

/* ---- rung 2 ---- */

static void get(void *arg, int64_t i, int64_t j, struct blasd_exact_number *ret) {
    const struct system *s = arg;
    double value = j < s->n ? s->a[i * s->n + j] : s->b[i * s->columns + j - s->n];
    ret->limb[0] = blasd_exact_split(value, &ret->exponent);
    ret->length = ret->limb[0] != 0;
    ret->negative = value < 0;
}

/* The exponent of the last binary digit that is not 0. */
static int64_t last_digit(double x) {
    int exponent;
    uint64_t mantissa = blasd_exact_split(x, &exponent);
    return exponent + __builtin_ctzll(mantissa);
}

/* Exponents of rows, then of columns, by which all elements are whole numbers. */
static void find_units(struct system *s) {
    int64_t n = s->n;
    for (int64_t i = 0; i < n; i++) {
        int64_t least = INT64_MAX;
        for (int64_t j = 0; j < n; j++)
            if (s->a[i * n + j] != 0 && last_digit(s->a[i * n + j]) < least)
                least = last_digit(s->a[i * n + j]);
        s->row[i] = least == INT64_MAX ? 0 : least;
    }
    for (int64_t j = 0; j < n + s->columns; j++) {
        int64_t least = INT64_MAX;
        for (int64_t i = 0; i < n; i++) {
            double x = j < n ? s->a[i * n + j] : s->b[i * s->columns + j - n];
            if (x != 0 && last_digit(x) - s->row[i] < least) least = last_digit(x) - s->row[i];
        }
        s->column[j] = least == INT64_MAX ? 0 : least;
    }
}

/* 0, k > 0 for a singular matrix (whole.h), or -1: it is not done. */
static int64_t solve_whole(struct system *s) {
    struct blasd_elimination whole = {
        .n = s->n, .columns = s->n + s->columns, .get = get, .arg = s};
    int64_t code = -1, room;
    uint64_t *work;
    find_units(s);
    whole.row = s->row;
    whole.column = s->column;
    if (!blasd_elimination_prepare(&whole)) return -1;
    room = 2 * whole.room + 4;
    work = malloc((size_t)(2 * room) * sizeof *work);
    if (work != NULL) code = blasd_elimination_solve(&whole);
    for (int64_t i = 0; i < s->n && code == 0; i++)
        for (int64_t l = 0; l < s->columns; l++)
            s->answer[i * s->columns + l] = blasd_whole_quotient(
                &whole.element[i * whole.columns + s->n + l], &whole.determinant,
                s->column[s->n + l] - s->column[i], s->dtype, work);
    blasd_elimination_release(&whole);
    free(work);
    return code;
}

/* ---- a system ---- */

static void drop(struct system *s) {
    if (s == NULL) return;
    free(s->a);
    free(s->row);
    free(s->sums);
    free(s);
}

static struct system *make(int64_t n, int64_t columns, enum blasd_dtype dtype) {
    struct system *s = calloc(1, sizeof *s);
    double *room =
        blasd_cpu_alloc((size_t)(3 * n * n + 2 * n * columns + (STEPS + 5) * n), sizeof *room);
    if (s == NULL || room == NULL) {
        free(room);
        free(s);
        return NULL;
    }
    *s = (struct system){.n = n, .columns = columns, .dtype = dtype, .a = room};
    s->scaled = s->a + n * n;
    s->inverse = s->scaled + n * n;
    s->b = s->inverse + n * n;
    s->answer = s->b + n * columns;
    s->x = s->answer + n * columns;
    s->right = s->x + STEPS * n;
    s->step = s->right + n;
    s->error = s->step + n;
    s->sizes = s->error + n;
    s->defect = s->sizes + n;
    s->row = malloc((size_t)(3 * n + columns) * sizeof *s->row);
    s->column = s->row + n;
    s->sums = malloc((size_t)(n + 1) * sizeof *s->sums);
    if (s->row != NULL && s->sums != NULL) return s;
    drop(s);
    return NULL;
}

/* As solve_whole. What is not decided is NaN. */
static int64_t solve(struct system *s) {
    bool proven, decided;
    for (int64_t i = 0; i < s->n * s->columns; i++) s->answer[i] = NAN;
    for (int64_t i = 0; i <= s->n; i++) blasd_exact_new(&s->sums[i]);
    decided = proven = scale(s) && invert(s) && prove(s);
    for (int64_t side = 0; side < s->columns && proven; side++)
        decided = solve_side(s, side, &s->sums[s->n]) && decided;
    return decided || !blasd_wanted() ? 0 : solve_whole(s);
}

struct job {
    struct blasd_task *task;         /* borrowed */
    const struct blasd_solve *solve; /* borrowed */
    struct blasd_solve_layout layout;
    enum blasd_dtype dtype;
    int64_t unproven; /* elements */
    bool no_memory;
};

/* Element `at` of an input, which is float64 or float32. */
static double number_at(const struct blasd_tensor *tensor, int64_t at) {
    return tensor->dtype == BLASD_float32 ? ((const float *)tensor->data)[at]
                                          : ((const double *)tensor->data)[at];
}

static void load(const struct job *job, int64_t matrix, int64_t side, struct system *s) {
    const struct blasd_tensor *a = &job->task->inputs[BLASD_SOLVE_A];
    const struct blasd_tensor *b = &job->task->inputs[BLASD_SOLVE_B];
    const struct blasd_solve_layout *layout = &job->layout;
    int64_t n = s->n;
    bool mirrored = layout->assume == BLASD_ASSUME_SYMMETRIC ||
                    layout->assume == BLASD_ASSUME_POSITIVE_DEFINITE;
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++) {
            int64_t p = mirrored && i > j ? j : i, q = mirrored && i > j ? i : j;
            bool outside = (layout->assume == BLASD_ASSUME_LOWER_TRIANGULAR && j > i) ||
                           (layout->assume == BLASD_ASSUME_UPPER_TRIANGULAR && j < i);
            s->a[i * n + j] =
                outside ? 0
                        : number_at(a, matrix * n * n + p * layout->a_row + q * layout->a_column);
        }
    for (int64_t i = 0; i < n; i++)
        for (int64_t l = 0; l < s->columns; l++)
            s->b[i * s->columns + l] =
                number_at(b, side * n * s->columns + i * layout->b_row + l * layout->b_column);
}

/* What is told of system `at`. */
static void answer(struct job *job, int64_t at, const struct system *s, int64_t code) {
    const struct blasd_tensor *outputs = job->task->outputs;
    int64_t all = s->n * s->columns, unproven = 0;
    bool fast = ((const double *)outputs[BLASD_SOLVE_RCOND].data)[at] > 0;
    for (int64_t i = 0; i < all; i++) {
        unproven += code <= 0 && isnan(s->answer[i]);
        blasd_exact_store(code > 0 ? (double)NAN : s->answer[i], job->dtype,
                          outputs[BLASD_SOLVE_X].data, at * all + i);
    }
    ((int64_t *)outputs[BLASD_SOLVE_UNPROVEN].data)[at] = unproven;
    ((int64_t *)outputs[BLASD_SOLVE_INFO].data)[at] = code > 0 ? code
                                                      : unproven > 0 && job->solve->batch_rank > 0
                                                          ? -BLASD_W_not_certifiable
                                                          : 0;
    ((double *)outputs[BLASD_SOLVE_ERROR_ESTIMATE].data)[at] =
        code > 0 || unproven > 0      ? (double)NAN
        : job->dtype == BLASD_float32 ? 0x1p-24
                                      : 0x1p-53;
    if (!fast) ((double *)outputs[BLASD_SOLVE_BACKWARD_ERROR].data)[at] = NAN;
    __atomic_fetch_add(&job->unproven, unproven, __ATOMIC_RELAXED);
}

static bool solve_item(void *arg, int64_t at, int slot) {
    struct job *job = arg;
    const struct blasd_solve *s = job->solve;
    struct system *system = make(s->n, s->columns, job->dtype);
    struct blasd_walk walk;
    int64_t code;
    (void)slot;
    if (system == NULL) {
        __atomic_store_n(&job->no_memory, true, __ATOMIC_RELAXED);
        return false;
    }
    blasd_walk_init(&walk, s->batch_rank, s->batch);
    blasd_walk_operand(&walk, 0, s->a_rank, s->a_batch);
    blasd_walk_operand(&walk, 1, s->b_rank, s->b_batch);
    blasd_walk_seek(&walk, at);
    load(job, walk.offset[0], walk.offset[1], system);
    code = solve(system);
    if (blasd_wanted()) answer(job, at, system, code);
    drop(system);
    return blasd_wanted();
}

/* Keeps the warnings that are about the inputs, or about the range of x. */
static void sift(struct blasd_task *task) {
    int kept = 0;
    for (int i = 0; i < task->warning_count; i++)
        if (task->warnings[i].code == BLASD_W_not_symmetric)
            task->warnings[kept++] = task->warnings[i];
    task->warning_count = kept;
}

static void conclude(struct job *job) {
    struct blasd_task *task = job->task;
    const int64_t *info = task->outputs[BLASD_SOLVE_INFO].data;
    int64_t singular = 0, count = job->solve->batch_count;
    for (int64_t i = 0; i < count; i++) singular += info[i] > 0;
    sift(task);
    memset(&task->err, 0, sizeof task->err);
    snprintf(task->method, sizeof task->method, "correctly rounded");
    if (singular > 0 && job->solve->batch_rank == 0)
        blasd_fail(&task->err, BLASD_E_singular_matrix, "inputs.a",
                   "column %lld (counted from 1) is a combination of those before it",
                   (long long)info[0]);
    else if (singular > 0)
        blasd_task_warn(task, BLASD_W_no_solution,
                        "%lld of %lld systems have no solution: see info", (long long)singular,
                        (long long)count);
    if (job->unproven > 0)
        blasd_task_warn(task, BLASD_W_not_certifiable,
                        "not_certifiable: %lld elements could not be proven, and are NaN: see "
                        "unproven",
                        (long long)job->unproven);
}

bool blasd_exact_solve(struct blasd_task *task, const struct blasd_solve *s, int threads,
                       struct blasd_watch *watch) {
    struct job job = {.task = task, .solve = s, .dtype = task->outputs[BLASD_SOLVE_X].dtype};
    struct blasd_parallel loop = {.piece = solve_item,
                                  .arg = &job,
                                  .count = s->batch_count,
                                  .threads = threads,
                                  .watch = watch,
                                  .from = 1,
                                  .to = 1};
    bool going;
    if (task->err.code != BLASD_OK && task->err.code != BLASD_E_singular_matrix) return true;
    blasd_task_make_inputs(task);
    job.layout = blasd_solve_layout(s, &task->inputs[BLASD_SOLVE_A], &task->inputs[BLASD_SOLVE_B]);
    memset(task->outputs[BLASD_SOLVE_UNPROVEN].data, 0, (size_t)s->batch_count * sizeof(int64_t));
    going = s->batch_count == 0 || s->n == 0 || blasd_parallel_run(&loop);
    if (job.no_memory)
        blasd_fail(&task->err, BLASD_E_out_of_memory, "", "no memory to solve in");
    else if (going && s->n > 0)
        conclude(&job);
    return going || job.no_memory;
}
