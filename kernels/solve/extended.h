/* One system in long double: its matrix, LU of it, and a column's solution, refined with residuals
 * in twice that precision. What recheck.c solves with where the precision of the dtype leaves
 * doubt.
 */
#ifndef BLASD_SOLVE_EXTENDED_H
#define BLASD_SOLVE_EXTENDED_H

#include "core/kernel.h"
#include "kernels/solve/solve.h"

struct extended {
    const struct blasd_solve *solve;
    struct blasd_solve_layout layout;
    struct blasd_task *task;
    int64_t n;
    long double *matrix, *factors; /* owned: n x n, column-major; as it stands, and LU of it */
    long double *x, *low, *b, *r, *sizes, *lost; /* owned: n each */
    int64_t *rows;                               /* owned: n; where LU has them from */
    int *row_scale, *column_scale;               /* owned: n; exponents, of what is factored */
    long double norm;                            /* of the matrix, infinity */
    double *v, *sign;                            /* owned: n each, for estimates */
    bool graded;                                 /* whose elements differ much */
    bool still; /* x came to rest: corrections fell below the last digit of its largest element */
};

enum extended_way { AS_IT_STANDS, SCALED };

static inline bool extended_single(const struct extended *look) {
    return look->task->outputs[BLASD_SOLVE_X].dtype == BLASD_float32;
}

static inline double extended_digit_of(bool single) {
    return single ? 0x1p-24 : 0x1p-53;
}

static inline double extended_digit(const struct extended *look) {
    return extended_digit_of(extended_single(look));
}

/* Of the sizes in x, from which the small ones are looked at. */
static inline double extended_spread_of(bool single) {
    return single ? 0x1p14 : 0x1p24;
}

static inline double extended_spread(const struct extended *look) {
    return extended_spread_of(extended_single(look));
}

/* Room for a system of n unknowns; false: none. Freed by extended_free. */
bool extended_make(struct extended *look);
void extended_free(struct extended *look);
/* op(a) as its structure has it, from `start` on. */
void extended_load(struct extended *look, int64_t start);
/* Factors of the matrix as it stands or scaled. False: none that prove it regular, or nobody wants
 * them any more. */
bool extended_factor(struct extended *look, enum extended_way how);
/* d := inverse(A) r by the factors. */
void extended_substitute(const struct extended *look, const long double *r, long double *d);
/* d := inverse(A') r. Destroys r. */
void extended_substitute_transposed(const struct extended *look, long double *r, long double *d);
/* look->r := b - A (x + low), as if in twice the precision; look->sizes := |A| |x| + |b|. */
void extended_residual(struct extended *look);
/* By how much, of its own size, each element of A and b may be changed for look->x to be exact.
 * *error: the residual against norms, as backward_error has it. look->sizes := |A| |x| + |b|. */
double extended_off(struct extended *look, double *error);
/* look->x from the factors, to the last digits that the dtype of the answer has; d: room for n. */
void extended_solve(struct extended *look, long double *d);
/* Whether errors of the last digit in A and b leave no digit of look->x, which is what it is, as
 * extended_off() left it. */
bool extended_may_be_any(struct extended *look);
/* 1 / (norm of A, norm of its inverse), both the largest sum of a column. */
double extended_rcond(struct extended *look);

#endif
