/* A second look at solutions, for every backend, on the host.
 *
 * Norms say nothing of small elements of x. Their equations do: x solves exactly a system whose
 * every element is off by at most w = max |b - A x|i / (|A| |x| + |b|)i of itself (Oettli and
 * Prager), which no scale changes. Where w is large, a warning says so.
 *
 * float32 systems that are in doubt, or whose w is large, are solved again by the engine in
 * float64. In float64 the doubt is the answer. What is decided of a system depends on that system
 * alone. Read next: README.md. */
#include "kernels/solve/recheck.h"

#include "core/wanted.h"
#include "kernels/cpu/cpu.h"
#include "kernels/numeric/dd.h"
#include "kernels/solve/element.h"
#include "kernels/solve/solve_report.h"
#include "kernels/solve/systems.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

#define SPREAD 0x1p24 /* of the sizes in x, from which the small ones are looked at */
#define SPREAD_SINGLE 0x1p14
#define ENOUGH 0x1p-48 /* of w: with more, small elements may have lost digits */
#define ENOUGH_SINGLE 0x1p-20
#define ANY 0x1p-4 /* of x: what may change by more has no digit */
#define RIM 0x1p30 /* normal numbers below the least of them times this may have lost some */

/* A task, and the system of it that is looked at. */
struct look {
    struct blasd_task *task;
    const struct blasd_solve *solve;
    struct blasd_solve_layout layout;
    bool single;
    int64_t at, a_at, b_at; /* its number; where its operands begin */
    double *sizes;          /* |A| |x| + |b| of the column that was measured last */
    int *flags;
};

static double spread_of(bool single) {
    return single ? SPREAD_SINGLE : SPREAD;
}

/* w of column k; look->sizes. *error: the residual against norms, as backward_error has it. */
static double off_of(const struct look *look, int64_t k, double *error) {
    const struct blasd_tensor *x = &look->task->outputs[BLASD_SOLVE_X];
    const struct blasd_tensor *a = &look->task->inputs[BLASD_SOLVE_A];
    const struct blasd_tensor *b = &look->task->inputs[BLASD_SOLVE_B];
    int64_t n = look->solve->n, columns = look->solve->columns, done = 0;
    int64_t b_at = look->b_at + k * look->layout.b_column, x_at = look->at * n * columns + k;
    double most = 0, most_r = 0, most_b = 0, most_x = 0, norm = 0, below;
    for (int64_t i = 0; i < n && blasd_wanted_after(&done, 20 * n); i++) {
        struct dd r = dd_from(solve_element(b, b_at + i * look->layout.b_row));
        double size = fabs(r.hi), row = 0, left;
        most_b = fmax(most_b, size);
        most_x = fmax(most_x, fabs(solve_element(x, x_at + i * columns)));
        for (int64_t j = 0; j < n; j++) {
            double element = solve_matrix_element(&look->layout, a, look->a_at, i, j);
            double value = solve_element(x, x_at + j * columns);
            r = dd_subtract_product(r, element, value);
            size += fabs(element * value);
            row += fabs(element);
        }
        norm = fmax(norm, row);
        look->sizes[i] = size;
        left = fabs(dd_round(r));
        if (left != 0 && !(left <= most * size)) most = left / size;
        if (!(left <= most_r)) most_r = left;
    }
    below = norm * most_x + most_b;
    *error = below > 0 ? most_r / below + (double)(n + 2) * 0x1p-104 : 0;
    return most;
}

/* The least and the largest size that is not 0 in column k of x, and whether one is 0. False:
 * something is not finite. */
static bool sizes_of(const struct look *look, int64_t k, double *least, double *most, bool *zeros) {
    const struct blasd_tensor *x = &look->task->outputs[BLASD_SOLVE_X];
    int64_t n = look->solve->n, columns = look->solve->columns;
    double all = 0;
    *zeros = false;
    *least = INFINITY;
    *most = 0;
    for (int64_t i = 0; i < n; i++) {
        double size = fabs(solve_element(x, (look->at * n + i) * columns + k));
        all += 0 * size;
        *zeros = *zeros || size == 0;
        if (size != 0 && size < *least) *least = size;
        if (size > *most) *most = size;
    }
    return all == 0;
}

static bool is_zero(const struct look *look, int64_t k) {
    const struct blasd_tensor *b = &look->task->inputs[BLASD_SOLVE_B];
    int64_t at = look->b_at + k * look->layout.b_column;
    for (int64_t i = 0; i < look->solve->n; i++)
        if (solve_element(b, at + i * look->layout.b_row) != 0) return false;
    return true;
}

/* Whether the system as a whole is in doubt. What is to be positive definite must be more than
 * regular; a triangle's pivots are what was sent. */
static bool in_doubt(const struct blasd_solve *s, int64_t info, int flags) {
    bool triangle =
        s->assume == BLASD_ASSUME_LOWER_TRIANGULAR || s->assume == BLASD_ASSUME_UPPER_TRIANGULAR;
    if (info != 0)
        return (flags & BLASD_SOLVE_SINGULAR) != 0 && !triangle &&
               s->assume != BLASD_ASSUME_POSITIVE_DEFINITE;
    return (flags & BLASD_SOLVE_DOUBTFUL) != 0 ||
           ((flags & BLASD_SOLVE_SETTLED) == 0 && s->refinement != BLASD_REFINE_NONE);
}

bool blasd_solve_is_even(const struct blasd_task *task, const struct blasd_solve *s,
                         const int *flags, double least, double most, bool zeros) {
    bool single = task->outputs[BLASD_SOLVE_X].dtype == BLASD_float32;
    const int64_t *info = task->outputs[BLASD_SOLVE_INFO].data;
    double normal = single ? (double)FLT_MIN : DBL_MIN;
    for (int64_t i = 0; single && i < s->batch_count; i++)
        if (in_doubt(s, info[i], flags[i])) return false;
    return !zeros && least >= normal * RIM && most <= spread_of(single) * least;
}

/* What the columns of x may have lost: *vanished below the range, and the largest w. */
static double find_lost(const struct look *look, double *vanished) {
    double normal = look->single ? (double)FLT_MIN : DBL_MIN, worst = 0, error;
    double half = look->single ? (double)FLT_TRUE_MIN / 2 : DBL_TRUE_MIN;
    *vanished = 0;
    for (int64_t k = 0; k < look->solve->columns && blasd_wanted(); k++) {
        double least, most;
        bool zeros, low;
        if (!sizes_of(look, k, &least, &most, &zeros)) continue;
        low = most < normal * RIM;
        if (!low && !zeros && most <= spread_of(look->single) * least) continue;
        blasd_task_make_inputs(look->task);
        if (most == 0 && is_zero(look, k)) continue;
        if (low) *vanished = fmax(*vanished, most > 0 ? fmin(half / most, 1) : 1);
        if (most < normal)
            *look->flags |= BLASD_SOLVE_VANISHED;
        else
            worst = fmax(worst, off_of(look, k, &error));
    }
    return worst;
}

static double *widen(const struct blasd_tensor *from, int64_t start, int64_t count) {
    double *to = blasd_cpu_alloc((size_t)count, sizeof *to);
    for (int64_t i = 0; to != NULL && i < count; i++) to[i] = solve_element(from, start + i);
    return to;
}

/* Puts x, rounded to float32, and what is known of it. */
static void publish(const struct look *look, struct blasd_engine *engine,
                    struct blasd_system *system) {
    const double *x = system->x;
    int64_t n = look->solve->n, columns = look->solve->columns;
    float *to = (float *)look->task->outputs[BLASD_SOLVE_X].data + look->at * n * columns;
    if (system->info == 0) system->error = 0;
    for (int64_t i = 0; i < n * columns; i++) {
        to[i] = (float)x[i];
        if (system->info == 0 && !isfinite(to[i])) system->error = INFINITY;
    }
    for (int64_t k = 0; system->info == 0 && k < columns && isfinite(system->error); k++) {
        double error, size = 0;
        off_of(look, k, &error);
        system->error = fmax(system->error, error);
        for (int64_t i = 0; i < n; i++) size = fmax(size, fabs(x[i * columns + k]));
        for (int64_t i = 0; i < n; i++) look->sizes[i] *= 0x1p-24 / (size > 0 ? size : 1);
        /* errors of the last digit in A and b may change all of x */
        if (!(blasd_engine_change(engine, system, look->sizes) < ANY)) system->doubtful = true;
    }
    *look->flags = blasd_system_publish(look->task, look->at, system);
}

/* Solves a float32 system by the engine in float64. False: no memory. */
static bool solve_again(const struct look *look) {
    const struct blasd_solve *s = look->solve;
    int64_t square = s->n * s->n, count = s->n * s->columns;
    struct blasd_systems shape = blasd_systems_of(look->task, s);
    double *a = widen(&look->task->inputs[BLASD_SOLVE_A], look->a_at, square);
    double *b = widen(&look->task->inputs[BLASD_SOLVE_B], look->b_at, count);
    double *x = blasd_cpu_alloc((size_t)count, sizeof *x);
    struct blasd_engine *engine = blasd_engine_new(&shape, false);
    struct blasd_system system = {.a = a, .b = b, .x = x};
    bool room = a != NULL && b != NULL && x != NULL && engine != NULL;
    if (room && blasd_engine_run(engine, &system, NULL, 0, 1)) publish(look, engine, &system);
    blasd_engine_free(engine);
    free(a);
    free(b);
    free(x);
    return room;
}

/* One system. False: no memory. */
static bool look_at_system(const struct look *look) {
    const struct blasd_solve *s = look->solve;
    const int64_t *info = (const int64_t *)look->task->outputs[BLASD_SOLVE_INFO].data + look->at;
    double enough = look->single ? ENOUGH_SINGLE : ENOUGH, vanished = 0, lost = 0, *error;
    if (*info == 0) lost = find_lost(look, &vanished);
    if (look->single && s->n <= BLASD_RECHECK_N &&
        (in_doubt(s, *info, *look->flags) || lost > enough)) {
        blasd_task_make_inputs(look->task);
        if (!solve_again(look)) return false;
        lost = vanished = 0;
        if (*info == 0) lost = find_lost(look, &vanished);
    }
    if (lost > enough) *look->flags |= BLASD_SOLVE_LOST;
    error = (double *)look->task->outputs[BLASD_SOLVE_BACKWARD_ERROR].data + look->at;
    if (vanished > 0) *error = fmin(*error + vanished, 1);
    return true;
}

int blasd_solve_recheck(struct blasd_task *task, const struct blasd_solve *s, int *flags,
                        struct blasd_err *err) {
    struct look look = {
        .task = task, .solve = s, .single = task->outputs[BLASD_SOLVE_X].dtype == BLASD_float32};
    struct blasd_walk walk;
    int64_t done = 0;
    bool room;
    if (s->n == 0 || s->batch_count == 0) return 0;
    look.sizes = blasd_cpu_alloc((size_t)s->n, sizeof *look.sizes);
    look.layout = blasd_solve_layout(s, &task->inputs[BLASD_SOLVE_A], &task->inputs[BLASD_SOLVE_B]);
    blasd_walk_init(&walk, s->batch_rank, s->batch);
    blasd_walk_operand(&walk, 0, s->a_rank, s->a_batch);
    blasd_walk_operand(&walk, 1, s->b_rank, s->b_batch);
    room = look.sizes != NULL;
    for (int64_t at = 0; at < s->batch_count && room; at++) {
        look.at = at;
        look.a_at = walk.offset[0] * s->n * s->n;
        look.b_at = walk.offset[1] * s->n * s->columns;
        look.flags = flags + at;
        if (!blasd_wanted_after(&done, 4 * s->n * s->columns)) break;
        room = look_at_system(&look);
        blasd_walk_next(&walk);
    }
    free(look.sizes);
    return room ? 0 : blasd_fail(err, BLASD_E_out_of_memory, "", "no memory to look at x again");
}
