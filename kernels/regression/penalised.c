/* ridge: QR of the factor with the penalty's rows under it, |y - Xb|^2 + alpha |b|^2 as
 * scikit-learn has it. The intercept is not penalised. Touches no data. Uses LAPACK. Read next:
 * coordinate.c. */
#include "kernels/regression/penalised.h"

#include "base/err.h"
#include "kernels/cpu/cpu.h"

#include <lapacke.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static int no_memory(struct blasd_err *err) {
    return blasd_fail(err, BLASD_E_out_of_memory, "", "no memory for the penalised problem");
}

/* min |M b - g|^2 + alpha |b|^2 with at least as many rows as columns: QR of M over the penalty. */
static int ridge_tall(const struct regression_shape *shape, struct regression_part *part,
                      double root, double *b) {
    int64_t p = shape->p, t = shape->t, rows = part->rows + p;
    for (int64_t j = 0; j < p; j++) part->m[j * rows + part->rows + j] = root;
    if (p == 0 || t == 0) return 0;
    if (LAPACKE_dgels(LAPACK_COL_MAJOR, 'N', (int)rows, (int)p, (int)t, part->m, (int)rows, part->g,
                      (int)rows) != 0)
        return -1;
    for (int64_t l = 0; l < t; l++) memcpy(b + l * p, part->g + l * rows, (size_t)p * sizeof *b);
    return 0;
}

/* The same with fewer rows: the least-norm solution of [M root] [b; v] = g, whose v is what is left
 * over. [M root]' = Q R. */
static int ridge_wide(const struct regression_shape *shape, const struct regression_part *part,
                      double root, double *b) {
    int64_t p = shape->p, t = shape->t, m = part->rows, n = p + m;
    double *a = blasd_cpu_alloc((size_t)n * (size_t)m, sizeof *a);
    double *g = blasd_cpu_alloc((size_t)n * (size_t)t, sizeof *g);
    int info = a == NULL || g == NULL ? -1 : 0;
    if (info == 0) {
        memset(a, 0, (size_t)(n * m) * sizeof *a);
        memset(g, 0, (size_t)(n * t) * sizeof *g);
        for (int64_t i = 0; i < m; i++) {
            for (int64_t j = 0; j < p; j++) a[i * n + j] = part->m[j * m + i];
            a[i * n + p + i] = root;
        }
        for (int64_t l = 0; l < t; l++) memcpy(g + l * n, part->g + l * m, (size_t)m * sizeof *g);
        /* a is the transpose of the wide matrix: 'T' asks for its least-norm solution */
        if (m > 0 && t > 0)
            info =
                LAPACKE_dgels(LAPACK_COL_MAJOR, 'T', (int)n, (int)m, (int)t, a, (int)n, g, (int)n);
        for (int64_t l = 0; l < t; l++) memcpy(b + l * p, g + l * n, (size_t)p * sizeof *b);
    }
    free(a);
    free(g);
    return info;
}

/* What QR may have lost in b. */
static bool improve(const struct regression_shape *shape, bool tall, const double *m,
                    const double *g, int64_t rows, const double *qr, double *b) {
    struct regression_ridge ridge = {rows, shape->p, shape->t, shape->alpha, m, g};
    if (!blasd_regression_ridge_stiff(&ridge)) return true;
    if (tall) return blasd_regression_ridge_refine(&ridge, qr, rows + shape->p, b);
    return blasd_regression_ridge_dual(&ridge, b);
}

int blasd_regression_ridge(const struct regression_shape *shape,
                           const struct regression_factor *factor, struct regression_fit *fit,
                           struct blasd_err *err) {
    int64_t p = shape->p, t = shape->t, skip = shape->q - p;
    struct regression_part part, whole;
    double *b = blasd_cpu_alloc((size_t)p * (size_t)t, sizeof *b), *left = NULL;
    bool tall = factor->rows - skip >= p;
    int info = 0, code = blasd_regression_part_init(&part, shape, factor, tall ? p : 0, err);
    memset(&whole, 0, sizeof whole);
    if (code == 0) code = blasd_regression_part_init(&whole, shape, factor, 0, err);
    left = code == 0 ? blasd_cpu_alloc((size_t)whole.rows, sizeof *left) : NULL;
    if (code == 0 && (b == NULL || left == NULL)) code = no_memory(err);
    if (code != 0) goto done;
    info = tall ? ridge_tall(shape, &part, sqrt(shape->alpha), b)
                : ridge_wide(shape, &part, sqrt(shape->alpha), b);
    if (info == 0 && !improve(shape, tall, whole.m, whole.g, whole.rows, part.m, b)) info = -1;
    if (info != 0) {
        code = no_memory(err);
        goto done;
    }
    for (int64_t l = 0; l < t; l++) {
        memcpy(fit->coef + l * shape->q + skip, b + l * p, (size_t)p * sizeof *b);
        blasd_regression_part_finish(shape, factor, &whole, l, left, fit);
    }
done:
    blasd_regression_part_release(&part);
    blasd_regression_part_release(&whole);
    free(b);
    free(left);
    return code;
}
