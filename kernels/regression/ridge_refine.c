/* ridge where QR of the factor over the penalty's rows is not enough.
 *
 * That QR is right to the rounding of its largest row. Where the penalty is large against the
 * features its rows are the largest, what the small rows say drowns in their rounding, and
 * coefficients lose digits (all of them where root alpha is 1e16 times |X|). The cure costs little:
 * the gradient X'(y - Xb) - alpha b in long double, and a step with the triangle at hand, whose
 * R'R = X'X + alpha is right in every column. With fewer rows than columns b = X'u with
 * (XX' + alpha) u = y, refined likewise. Where the penalty is small, QR alone is right, and these
 * matrices would be too ill-conditioned to step with. Read next: penalised.c. */
#include "kernels/regression/regression.h"

#include "core/wanted.h"
#include "kernels/cpu/cpu.h"

#include <cblas.h>
#include <lapacke.h>
#include <math.h>
#include <stdlib.h>

#define MOST_STEPS 5
#define STIFF 1e-6 /* alpha against the squares of the features, from which this is done */

/* Adds steps while each is a fraction of the last; false: this one is not, leave things as they
 * are. *last is the size of the last. */
static bool step_on(double *b, const double *step, const double *unit, int64_t n, double *last,
                    bool *going) {
    double change = 0, size = 0;
    for (int64_t j = 0; j < n; j++) {
        change = fmax(change, fabs(step[j] * unit[j]));
        size = fmax(size, fabs(b[j] * unit[j]));
    }
    *going = change > 1e-17 * size;
    if (!(change < *last / 4)) return false;
    for (int64_t j = 0; j < n; j++) b[j] += step[j];
    *last = change;
    return true;
}

bool blasd_regression_ridge_refine(const struct regression_ridge *ridge, const double *r,
                                   int64_t ldr, double *b) {
    int64_t rows = ridge->rows, p = ridge->p, done = 0;
    long double *left = blasd_cpu_alloc((size_t)rows, sizeof *left);
    double *step = blasd_cpu_alloc((size_t)p, sizeof *step);
    double *unit = blasd_cpu_alloc((size_t)p, sizeof *unit);
    bool got = left != NULL && step != NULL && unit != NULL;
    for (int64_t j = 0; got && j < p; j++) unit[j] = fabs(r[j * ldr + j]);
    for (int64_t l = 0; got && l < ridge->t; l++, b += p) {
        double last = INFINITY;
        bool going = p > 0;
        for (int steps = 0; going && steps < MOST_STEPS && blasd_wanted(); steps++) {
            for (int64_t i = 0; i < rows; i++) left[i] = (long double)ridge->g[l * rows + i];
            for (int64_t j = 0; j < p && blasd_wanted_after(&done, 4 * rows); j++)
                for (int64_t i = 0; i < rows; i++)
                    left[i] -= (long double)ridge->m[j * rows + i] * (long double)b[j];
            for (int64_t j = 0; j < p && blasd_wanted_after(&done, 4 * rows); j++) {
                long double slope = -(long double)ridge->alpha * (long double)b[j];
                for (int64_t i = 0; i < rows; i++)
                    slope += (long double)ridge->m[j * rows + i] * left[i];
                step[j] = (double)slope;
            }
            cblas_dtrsv(CblasColMajor, CblasUpper, CblasTrans, CblasNonUnit, (int)p, r, (int)ldr,
                        step, 1);
            cblas_dtrsv(CblasColMajor, CblasUpper, CblasNoTrans, CblasNonUnit, (int)p, r, (int)ldr,
                        step, 1);
            if (!step_on(b, step, unit, p, &last, &going)) break;
        }
    }
    free(left);
    free(step);
    free(unit);
    return got;
}

bool blasd_regression_ridge_stiff(const struct regression_ridge *ridge) {
    double length = 0;
    for (int64_t j = 0; j < ridge->p; j++)
        length = hypot(length, cblas_dnrm2((int)ridge->rows, ridge->m + j * ridge->rows, 1));
    return sqrt(ridge->alpha) >= sqrt(STIFF) * length;
}

/* left = g - (M M' + alpha) u, along = M'u */
static void dual_left(const struct regression_ridge *ridge, const double *g, const double *u,
                      long double *along, double *left) {
    int64_t rows = ridge->rows, done = 0;
    for (int64_t j = 0; j < ridge->p && blasd_wanted_after(&done, 4 * rows); j++) {
        along[j] = 0;
        for (int64_t i = 0; i < rows; i++)
            along[j] += (long double)ridge->m[j * rows + i] * (long double)u[i];
    }
    for (int64_t i = 0; i < rows && blasd_wanted_after(&done, 4 * ridge->p); i++) {
        long double sum = (long double)g[i] - (long double)ridge->alpha * (long double)u[i];
        for (int64_t j = 0; j < ridge->p; j++)
            sum -= (long double)ridge->m[j * rows + i] * along[j];
        left[i] = (double)sum;
    }
}

bool blasd_regression_ridge_dual(const struct regression_ridge *ridge, double *b) {
    int64_t rows = ridge->rows, p = ridge->p;
    int m = (int)rows;
    double *gram = blasd_cpu_alloc((size_t)rows * (size_t)rows, sizeof *gram);
    double *u = blasd_cpu_alloc((size_t)rows, sizeof *u);
    double *left = blasd_cpu_alloc((size_t)rows, sizeof *left);
    double *unit = blasd_cpu_alloc((size_t)rows, sizeof *unit);
    long double *along = blasd_cpu_alloc((size_t)p, sizeof *along);
    bool got = gram != NULL && u != NULL && left != NULL && unit != NULL && along != NULL;
    if (!got || rows == 0) goto done;
    cblas_dsyrk(CblasColMajor, CblasUpper, CblasNoTrans, m, (int)p, 1, ridge->m, m, 0, gram, m);
    for (int64_t i = 0; i < rows; i++) gram[i * rows + i] += ridge->alpha;
    got = LAPACKE_dpotrf_work(LAPACK_COL_MAJOR, 'U', m, gram, m) == 0;
    for (int64_t i = 0; i < rows; i++) unit[i] = 1;
    for (int64_t l = 0; got && l < ridge->t; l++) {
        double last = INFINITY;
        bool going = true;
        for (int64_t i = 0; i < rows; i++) u[i] = 0;
        for (int steps = 0; going && steps < MOST_STEPS && blasd_wanted(); steps++) {
            dual_left(ridge, ridge->g + l * rows, u, along, left);
            LAPACKE_dpotrs_work(LAPACK_COL_MAJOR, 'U', m, 1, gram, m, left, m);
            if (!step_on(u, left, unit, rows, &last, &going)) break;
        }
        dual_left(ridge, ridge->g + l * rows, u, along, left);
        for (int64_t j = 0; j < p; j++) b[l * p + j] = (double)along[j];
    }
done:
    free(gram);
    free(u);
    free(left);
    free(unit);
    free(along);
    return got;
}
