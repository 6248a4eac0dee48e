/* A second look at the small elements of solutions, for every backend, on the host.
 *
 * Norms say nothing of small elements of x. Their equations do: x solves exactly a system whose
 * every element is off by at most w = max |b - A x|i / (|A| |x| + |b|)i of itself (Oettli and
 * Prager), which no scale changes. Where w is large, a warning says so.
 *
 * What is decided of a system depends on that system alone. Read next: README.md. */
#include "kernels/solve/recheck.h"

#include "core/wanted.h"
#include "kernels/cpu/cpu.h"
#include "kernels/numeric/dd.h"
#include "kernels/solve/element.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

#define SPREAD 0x1p24 /* of the sizes in x, from which the small ones are looked at */
#define SPREAD_SINGLE 0x1p14
#define ENOUGH 0x1p-48 /* of w: with more, small elements may have lost digits */
#define ENOUGH_SINGLE 0x1p-20
#define RIM 0x1p30 /* normal numbers below the least of them times this may have lost some */

/* A task, and the system of it that is looked at. */
struct look {
    struct blasd_task *task;
    const struct blasd_solve *solve;
    struct blasd_solve_layout layout;
    bool single;
    int64_t at, a_at, b_at; /* its number; where its operands begin */
    int *flags;
};

static double spread_of(bool single) {
    return single ? SPREAD_SINGLE : SPREAD;
}

/* w of column k. */
static double off_of(const struct look *look, int64_t k) {
    const struct blasd_tensor *x = &look->task->outputs[BLASD_SOLVE_X];
    const struct blasd_tensor *a = &look->task->inputs[BLASD_SOLVE_A];
    const struct blasd_tensor *b = &look->task->inputs[BLASD_SOLVE_B];
    int64_t n = look->solve->n, columns = look->solve->columns, done = 0;
    int64_t b_at = look->b_at + k * look->layout.b_column, x_at = look->at * n * columns + k;
    double most = 0;
    for (int64_t i = 0; i < n && blasd_wanted_after(&done, 20 * n); i++) {
        struct dd r = dd_from(solve_element(b, b_at + i * look->layout.b_row));
        double size = fabs(r.hi), left;
        for (int64_t j = 0; j < n; j++) {
            double element = solve_matrix_element(&look->layout, a, look->a_at, i, j);
            double value = solve_element(x, x_at + j * columns);
            r = dd_subtract_product(r, element, value);
            size += fabs(element * value);
        }
        left = fabs(dd_round(r));
        if (left != 0 && !(left <= most * size)) most = left / size;
    }
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

bool blasd_solve_is_even(const struct blasd_task *task, double least, double most, bool zeros) {
    bool single = task->outputs[BLASD_SOLVE_X].dtype == BLASD_float32;
    double normal = single ? (double)FLT_MIN : DBL_MIN;
    return !zeros && least >= normal * RIM && most <= spread_of(single) * least;
}

/* What the columns of x may have lost: *vanished below the range, and the largest w. */
static double find_lost(const struct look *look, double *vanished) {
    double normal = look->single ? (double)FLT_MIN : DBL_MIN, worst = 0;
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
            worst = fmax(worst, off_of(look, k));
    }
    return worst;
}

static void look_at_system(const struct look *look) {
    const int64_t *info = (const int64_t *)look->task->outputs[BLASD_SOLVE_INFO].data + look->at;
    double enough = look->single ? ENOUGH_SINGLE : ENOUGH, vanished, *error;
    if (*info != 0) return;
    if (find_lost(look, &vanished) > enough) *look->flags |= BLASD_SOLVE_LOST;
    error = (double *)look->task->outputs[BLASD_SOLVE_BACKWARD_ERROR].data + look->at;
    if (vanished > 0) *error = fmin(*error + vanished, 1);
}

void blasd_solve_recheck(struct blasd_task *task, const struct blasd_solve *s, int *flags) {
    struct look look = {
        .task = task, .solve = s, .single = task->outputs[BLASD_SOLVE_X].dtype == BLASD_float32};
    struct blasd_walk walk;
    int64_t done = 0;
    if (s->n == 0 || s->batch_count == 0) return;
    look.layout = blasd_solve_layout(s, &task->inputs[BLASD_SOLVE_A], &task->inputs[BLASD_SOLVE_B]);
    blasd_walk_init(&walk, s->batch_rank, s->batch);
    blasd_walk_operand(&walk, 0, s->a_rank, s->a_batch);
    blasd_walk_operand(&walk, 1, s->b_rank, s->b_batch);
    for (int64_t at = 0; at < s->batch_count; at++) {
        look.at = at;
        look.a_at = walk.offset[0] * s->n * s->n;
        look.b_at = walk.offset[1] * s->n * s->columns;
        look.flags = flags + at;
        if (!blasd_wanted_after(&done, 4 * s->n * s->columns)) return;
        look_at_system(&look);
        blasd_walk_next(&walk);
    }
}
