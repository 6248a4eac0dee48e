/* Singular values of a design, from its factor, and its condition number.
 * Read next: factor.c. */
#include "base/err.h"
#include "kernels/cpu/cpu.h"
#include "kernels/regression/dense.h"
#include "kernels/regression/factor.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

static int no_memory(struct blasd_err *err) {
    return blasd_fail(err, BLASD_E_out_of_memory, "", "no memory to solve with the factor");
}

/* Singular values of a small matrix by one-sided Jacobi: columns of `a` (column-major) are turned
 * in pairs until all are orthogonal; their lengths are the values, small ones accurate too. */
static void jacobi(double *a, int64_t rows, int64_t columns, double *values) {
    for (int sweep = 0; sweep < 60; sweep++) {
        bool turned = false;
        for (int64_t j = 0; j < columns; j++) {
            for (int64_t l = j + 1; l < columns; l++) {
                double *u = a + j * rows, *v = a + l * rows, uu = 0, vv = 0, uv = 0, zeta, tangent;
                double cosine, sine;
                for (int64_t i = 0; i < rows; i++) {
                    uu += u[i] * u[i];
                    vv += v[i] * v[i];
                    uv += u[i] * v[i];
                }
                if (!(fabs(uv) > DBL_EPSILON * sqrt(uu) * sqrt(vv))) continue;
                turned = true;
                zeta = (vv - uu) / (2 * uv);
                tangent = (zeta < 0 ? -1 : 1) / (fabs(zeta) + sqrt(1 + zeta * zeta));
                cosine = 1 / sqrt(1 + tangent * tangent);
                sine = cosine * tangent;
                for (int64_t i = 0; i < rows; i++) {
                    double x = u[i];
                    u[i] = cosine * x - sine * v[i];
                    v[i] = sine * x + cosine * v[i];
                }
            }
        }
        if (!turned) break;
    }
    for (int64_t j = 0; j < columns; j++) values[j] = blasd_regression_length(rows, a + j * rows);
}

static int falling(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? 1 : x > y ? -1 : 0;
}

#define JACOBI_MOST 24 /* columns */

int blasd_regression_singular(const struct regression_shape *shape,
                              const struct regression_factor *factor, struct regression_fit *fit,
                              struct blasd_err *err) {
    int64_t q = shape->q, rows = factor->rows, wanted = shape->n < q ? shape->n : q;
    int64_t least = rows < q ? rows : q;
    double *a = blasd_cpu_alloc((size_t)rows * (size_t)q, sizeof *a);
    double *values = blasd_cpu_alloc((size_t)q, sizeof *values);
    int code = 0, most = -(1 << 30);
    if (a == NULL || values == NULL) {
        code = no_memory(err);
        goto done;
    }
    for (int64_t j = 0; j < q; j++)
        if (factor->exponent[j] > most) most = factor->exponent[j];
    for (int64_t j = 0; j < q; j++) /* in units of 2^most, so that nothing overflows */
        for (int64_t i = 0; i < rows; i++)
            a[j * rows + i] =
                ldexp(i == 0 ? blasd_regression_unshifted(factor, j) : factor->r[i * q + j],
                      factor->exponent[j] - most);
    if (q <= JACOBI_MOST)
        jacobi(a, rows, q, values);
    else if (least > 0 && shape->dense->gesdd((int)rows, (int)q, a, (int)rows, values) != 0)
        code = no_memory(err);
    if (q <= JACOBI_MOST && q > 1) qsort(values, (size_t)q, sizeof *values, falling);
    for (int64_t j = 0; j < wanted; j++) fit->singular[j] = ldexp(values[j], most);
done:
    free(a);
    free(values);
    return code;
}

/* The least singular value as it is computed may be all rounding of the largest. Rows of the basis
 * are not, and it is at most the root of q over their length. */
void blasd_regression_cond(const struct regression_shape *shape, struct regression_fit *fit) {
    int64_t q = shape->q, values = shape->n < q ? shape->n : q;
    fit->cond = values < q ? INFINITY : NAN;
    if (values < q || q == 0) return;
    fit->cond = fit->singular[0] / fit->singular[q - 1];
    if (fit->rank == q && isfinite(fit->singular[0]))
        fit->cond = fmax(fit->cond, fit->singular[0] / sqrt((double)q) *
                                        blasd_regression_length(q * q, fit->basis));
}
