/* Least squares, correctly rounded: the normal equations as exact sums, solved by elimination with
 * whole numbers. All of a fit is then a quotient of two whole numbers.
 *
 * A fit that is not of full rank, or would take more than EXACT_WORK, is not proven: NaN.
 * Read next: whole.h, sum.h. */
#include "core/parallel.h"
#include "core/wanted.h"
#include "kernels/cpu/cpu.h"
#include "kernels/exact/exact.h"
#include "kernels/exact/whole.h"
#include "kernels/lstsq/lstsq.h"
#include "kernels/regression/regression.h"

#include <stdlib.h>

/* One problem: columns of `rows` numbers, q features and t targets. */
struct fit {
    int64_t rows, q, t;
    double *column;                      /* owned, with all that follows */
    struct blasd_exact_number *products; /* of columns i <= j: see pair_at */
    int64_t *unit;                       /* exponent of the last digit of each column */
    uint64_t *limbs;
};

/* Where the product of columns i and j is, of which i is the lesser; of targets each has its own
 * alone. */
static struct blasd_exact_number *pair_at(const struct fit *fit, int64_t i, int64_t j) {
    int64_t most = i < j ? j : i, least = i < j ? i : j, q = fit->q;
    if (most < q) return fit->products + least * q - least * (least - 1) / 2 + most - least;
    return fit->products + q * (q + 1) / 2 + (most - q) * (q + 1) + (least < q ? least : q);
}

static bool make_pair(void *arg, int64_t piece, int slot) {
    const struct fit *fit = arg;
    struct blasd_exact_sum sum;
    const double *a = fit->column + piece * fit->rows;
    int64_t done = 0;
    (void)slot;
    for (int64_t j = piece; j < fit->q + fit->t; j++) {
        const double *b = fit->column + j * fit->rows;
        if (piece >= fit->q && j > piece) break;
        if (!blasd_wanted_after(&done, 4 * fit->rows)) return false;
        blasd_exact_new(&sum);
        for (int64_t r = 0; r < fit->rows; r++) blasd_exact_add_product(&sum, a[r], b[r]);
        blasd_exact_read(&sum, pair_at(fit, piece, j));
    }
    return true;
}

static void get(void *arg, int64_t i, int64_t j, struct blasd_exact_number *ret) {
    const struct fit *fit = arg;
    *ret = *pair_at(fit, i, j);
}

static void find_units(struct fit *fit) {
    for (int64_t j = 0; j < fit->q + fit->t; j++) {
        int64_t least = INT64_MAX;
        for (int64_t r = 0; r < fit->rows; r++) {
            int exponent;
            uint64_t mantissa = blasd_exact_split(fit->column[j * fit->rows + r], &exponent);
            if (mantissa != 0 && exponent + __builtin_ctzll(mantissa) < least)
                least = exponent + __builtin_ctzll(mantissa);
        }
        fit->unit[j] = least == INT64_MAX ? 0 : least;
    }
}

/* What a fit gives; NULL: nobody asks for it. */
struct numbers {
    double *coef, *ssr, *tss, *r2; /* t x q; t each */
    enum blasd_dtype dtype, rest;  /* of coef; of the sums */
    bool centred;                  /* the first column is all 1, and tss about the mean */
};

/* The sums of target l. */
static void sum_up(const struct fit *fit, const struct blasd_elimination *whole, int64_t l,
                   const struct numbers *to) {
    const struct blasd_whole *d = &whole->determinant;
    int64_t size = 4 * whole->room + 240, q = fit->q, unit = 2 * fit->unit[q + l];
    uint64_t count = (uint64_t)fit->rows, *work = fit->limbs;
    struct blasd_whole number[5], rows = {&count, 1}, one = {work + 5 * size, 0};
    struct blasd_whole *rest = &number[0], *all = &number[1], *part = &number[2];
    for (int i = 0; i < 5; i++) number[i] = (struct blasd_whole){work + i * size, 0};
    work += 6 * size;
    /* rest: (y'y) d - sum of (column' y) times unknowns */
    blasd_whole_load(pair_at(fit, q + l, q + l), unit, part, size);
    blasd_whole_multiply(rest, part, d);
    *all = *part;
    part = &number[4];
    for (int64_t j = 0; j < q; j++) {
        blasd_whole_load(pair_at(fit, j, q + l), fit->unit[j] + fit->unit[q + l], part, size);
        blasd_whole_multiply(&one, part, &whole->element[j * whole->columns + q + l]);
        blasd_whole_subtract(rest, rest, &one);
    }
    to->ssr[l] = blasd_whole_quotient(rest, d, unit, to->rest, work);
    if (to->tss == NULL) return;
    /* all: y'y, or rows times it less the square of the sum of y */
    part = &number[3];
    if (to->centred) {
        blasd_whole_multiply(part, all, &rows);
        blasd_whole_load(pair_at(fit, 0, q + l), fit->unit[q + l], &number[4], size);
        blasd_whole_multiply(&one, &number[4], &number[4]);
        blasd_whole_subtract(part, part, &one);
    } else {
        memcpy(part->limb, all->limb, (size_t)all->length * sizeof *part->limb);
        part->length = all->length;
        count = 1;
    }
    to->tss[l] = blasd_whole_quotient(part, &rows, unit, to->rest, work);
    if (part->length == 0) {
        to->r2[l] = __builtin_nan("");
        return;
    }
    /* r2: (part d - rows rest) / (part d) */
    blasd_whole_multiply(&number[4], part, d);
    blasd_whole_multiply(&one, rest, &rows);
    blasd_whole_subtract(&one, &number[4], &one);
    to->r2[l] = blasd_whole_quotient(&one, &number[4], 0, to->rest, work);
}

static bool room_for(struct fit *fit) {
    int64_t q = fit->q, t = fit->t;
    fit->column = blasd_cpu_alloc((size_t)(fit->rows * (q + t)), sizeof *fit->column);
    fit->products = malloc((size_t)(q * (q + 1) / 2 + t * (q + 1)) * sizeof *fit->products);
    fit->unit = malloc((size_t)(q + t + 1) * sizeof *fit->unit);
    return fit->column != NULL && fit->products != NULL && fit->unit != NULL;
}

static void release(struct fit *fit) {
    free(fit->column);
    free(fit->products);
    free(fit->unit);
    free(fit->limbs);
}

/* Fits; true: all is proven. What is not is NaN. */
static bool solve(struct fit *fit, int threads, const struct numbers *to) {
    struct blasd_parallel loop = {
        .piece = make_pair, .arg = fit, .count = fit->q + fit->t, .threads = threads, .from = 1};
    struct blasd_elimination whole = {
        .n = fit->q, .columns = fit->q + fit->t, .get = get, .arg = fit};
    bool proven = false;
    loop.to = 1;
    for (int64_t i = 0; i < fit->q * fit->t; i++) to->coef[i] = NAN;
    for (int64_t l = 0; l < fit->t; l++) to->ssr[l] = NAN;
    for (int64_t l = 0; l < fit->t && to->tss != NULL; l++) to->tss[l] = to->r2[l] = NAN;
    if (fit->rows < fit->q || fit->q == 0) return false;
    find_units(fit);
    whole.row = whole.column = fit->unit;
    if (!blasd_parallel_run(&loop)) return false;
    if (blasd_elimination_prepare(&whole)) {
        fit->limbs = malloc((size_t)(16 * (4 * whole.room + 240)) * sizeof *fit->limbs);
        proven = fit->limbs != NULL && blasd_elimination_solve(&whole) == 0;
    }
    for (int64_t l = 0; l < fit->t && proven; l++) {
        sum_up(fit, &whole, l, to);
        for (int64_t j = 0; j < fit->q; j++)
            to->coef[l * fit->q + j] = blasd_whole_quotient(
                &whole.element[j * whole.columns + fit->q + l], &whole.determinant,
                fit->unit[fit->q + l] - fit->unit[j], to->dtype, fit->limbs);
    }
    blasd_elimination_release(&whole);
    return proven;
}

static void not_proven(struct blasd_task *task, int64_t unproven) {
    if (unproven > 0)
        blasd_task_warn(task, BLASD_W_not_certifiable,
                        "not_certifiable: %lld elements could not be proven, and are NaN: see "
                        "unproven",
                        (long long)unproven);
}

/* ---- lstsq ---- */

void blasd_exact_lstsq(struct blasd_task *task, const struct blasd_lstsq *l, int threads) {
    int64_t n = l->stack.n, k = l->columns, unproven = 0;
    int64_t *left = task->outputs[BLASD_LSTSQ_UNPROVEN].data;
    struct blasd_walk walk;
    blasd_walk_init(&walk, l->stack.rank, l->stack.batch);
    blasd_walk_operand(&walk, 0, l->a_rank, l->a_batch);
    blasd_walk_operand(&walk, 1, l->b_rank, l->b_batch);
    for (int64_t at = 0; at < l->stack.count && blasd_wanted(); at++, blasd_walk_next(&walk)) {
        struct fit fit = {.rows = l->stack.m, .q = n, .t = k};
        struct numbers to = {.dtype = task->outputs[BLASD_LSTSQ_X].dtype};
        to.rest = to.dtype;
        to.coef = malloc((size_t)(n * k + k + 1) * sizeof *to.coef);
        if (to.coef == NULL || !room_for(&fit)) {
            blasd_fail(&task->err, BLASD_E_out_of_memory, "", "no memory to fit in");
        } else {
            to.ssr = to.coef + n * k;
            blasd_stack_copy(&task->inputs[BLASD_LSTSQ_A], walk.offset[0], fit.rows, n, false,
                             fit.column);
            blasd_stack_copy(&task->inputs[BLASD_LSTSQ_B], walk.offset[1], fit.rows, k, false,
                             fit.column + n * fit.rows);
            left[at] = solve(&fit, threads, &to) ? 0 : k * (n + 1);
            unproven += left[at];
            for (int64_t i = 0; i < n * k; i++)
                blasd_exact_store(to.coef[i % k * n + i / k], to.dtype,
                                  task->outputs[BLASD_LSTSQ_X].data, at * n * k + i);
            for (int64_t i = 0; i < k; i++)
                blasd_exact_store(to.ssr[i], to.rest, task->outputs[BLASD_LSTSQ_RESIDUALS].data,
                                  at * k + i);
        }
        free(to.coef);
        release(&fit);
    }
    not_proven(task, unproven);
}

/* ---- regression ---- */

/* Problem `at`, whose data are given; returns how many of its elements are not proven. */
static int64_t fit_problem(struct blasd_task *task, const struct regression_shape *shape,
                           int64_t at, const struct regression_data *data, int threads) {
    struct blasd_tensor *outputs = task->outputs;
    int64_t n = shape->n, p = shape->p, t = shape->t, q = shape->q, first = q - p;
    struct fit fit = {.rows = n, .q = q, .t = t};
    struct numbers to = {.dtype = outputs[OUT_COEF].dtype, .centred = shape->intercept};
    bool proven = false;
    to.rest = BLASD_float64;
    to.coef = malloc((size_t)(t * q + 1) * sizeof *to.coef);
    to.ssr = (double *)outputs[OUT_SSR].data + at * t;
    to.tss = (double *)outputs[OUT_TSS].data + at * t;
    to.r2 = (double *)outputs[OUT_R2].data + at * t;
    if (to.coef == NULL || !room_for(&fit)) {
        blasd_fail(&task->err, BLASD_E_out_of_memory, "", "no memory to fit in");
    } else {
        for (int64_t r = 0; r < n; r++) {
            if (first == 1) fit.column[r] = 1;
            for (int64_t j = 0; j < p; j++) fit.column[(j + first) * n + r] = data->x[r * p + j];
            for (int64_t l = 0; l < t; l++) fit.column[(q + l) * n + r] = data->y[r * t + l];
        }
        proven = solve(&fit, threads, &to);
        for (int64_t l = 0; l < t; l++) {
            for (int64_t j = 0; j < p; j++)
                blasd_exact_store(to.coef[l * q + first + j], to.dtype, outputs[OUT_COEF].data,
                                  (at * t + l) * p + j);
            blasd_exact_store(first == 1 ? to.coef[l * q] : 0, to.dtype,
                              outputs[OUT_INTERCEPT].data, at * t + l);
        }
    }
    free(to.coef);
    release(&fit);
    return proven ? 0 : t * (q + 3);
}

void blasd_exact_ols(struct blasd_task *task, const struct regression_shape *shape, int threads) {
    int64_t *left = task->outputs[OUT_UNPROVEN].data, unproven = 0;
    struct blasd_walk walk;
    if (shape->problems > 0) blasd_regression_walk(shape, task, 0, &walk);
    for (int64_t at = 0; at < shape->problems && blasd_wanted(); at++) {
        struct regression_data data = blasd_regression_data(shape, task, &walk);
        blasd_walk_next(&walk);
        left[at] = fit_problem(task, shape, at, &data, threads);
        unproven += left[at];
    }
    not_proven(task, unproven);
}
