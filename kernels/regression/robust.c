/* Robust covariances of coefficients, their F test, and which of them are 0.
 *
 * With B of the fit, h_i = B' x_i is row i of the orthonormal basis of the design, and the
 * covariance is B M B', M = sum of m_i h_i h_i'. Where the observations that decide a coefficient
 * have residuals of 0 its variance is 0, and rounding is all that B M B' leaves of it: then it is
 * made again as a sum of squares, whose rounding is known. Read next: statistics.c. */
#include "kernels/regression/regression.h"

#include "base/err.h"
#include "core/wanted.h"
#include "kernels/cpu/cpu.h"
#include "kernels/numeric/dd.h"
#include "kernels/regression/dense.h"
#include "kernels/regression/far.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SUSPECT 1e-9      /* of what a variance is made of: little but rounding may be left */
#define NO_RESIDUAL 1e-18 /* of the sum of squares, along a column of the orthonormal basis */

/* Row i of [1 X] times the root of its weight, into q numbers; X less its means (two numbers each)
 * where there is an intercept. */
static void weighted_row(const struct regression_shape *shape, const struct regression_data *data,
                         const double *means, int64_t i, double *row) {
    const double *x = data->x + i * shape->p, *low = means + shape->p;
    int64_t first = shape->intercept ? 1 : 0;
    double root = data->w == NULL ? 1 : sqrt(data->w[i]);
    if (first == 1) row[0] = root;
    for (int64_t j = 0; j < shape->p; j++)
        row[first + j] = root * (first == 1 ? x[j] - means[j] - low[j] : x[j]);
}

/* Row 0 of the basis as it is where the features have mean 0: its first number alone. The others
 * come and go from `kept`. */
static void centre_basis(const struct regression_shape *shape, const struct regression_fit *fit,
                         double *kept, bool back) {
    for (int64_t c = 1; shape->intercept && c < fit->spread; c++) {
        if (!back) kept[c] = fit->basis[c];
        fit->basis[c] = back ? kept[c] : 0;
    }
}

/* What multiplies (root weight * row)(...)' of observation i in the middle of the sandwich; left: 1
 * less its leverage. */
static double middle_weight(const struct regression_shape *shape, double residual, double left,
                            double df_resid) {
    double square = residual * residual;
    switch (shape->cov) {
    case COV_HC1: return square * (double)shape->n / df_resid;
    case COV_HC2: return square / left;
    case COV_HC3: return square / (left * left);
    default: return square;
    }
}

/* Element c of observation i in the orthonormal basis, of V. */
static struct dd orthonormal(const struct regression_fit *fit, int64_t i, int64_t c) {
    int64_t at = c * fit->stride + i;
    return dd_divide((struct dd){fit->orthogonal[at], fit->low[at]}, dd_sqrt(fit->squares[c]));
}

/* 1 less the leverage of an observation, h'h with h = B' row. NaN where that is but rounding: it
 * decides a coefficient alone, and whatever its residual is, 0, is divided by 0. */
static double left_of_leverage(const struct regression_shape *shape,
                               const struct regression_fit *fit, int64_t i, const double *row,
                               const double *h) {
    int64_t q = shape->q, s = fit->spread;
    struct dd rest = {1, 0};
    double left, off = 0;
    for (int64_t c = 0; c < s; c++) {
        struct dd part = fit->orthogonal == NULL ? dd_from(h[c]) : orthonormal(fit, i, c);
        rest = dd_subtract(rest, dd_multiply(part, part));
    }
    left = dd_round(rest);
    for (int64_t c = 0; left < 0.5 && c < s; c++) {
        double size = 0;
        if (fit->orthogonal != NULL) size = fabs(h[c]);
        for (int64_t j = 0; fit->orthogonal == NULL && j < q; j++)
            size += fabs(fit->basis[j * s + c] * row[j]);
        off += 2 * fabs(h[c]) * size;
    }
    return left > off * blasd_regression_leverage_unit(shape->n, q) ? left : NAN;
}

/* Room for a row of the design, of its orthonormal basis, and for what M is made in; owned. */
struct room {
    double *row, *h, *kept; /* q, s, s */
    double *means;          /* 2 p */
    double *middle, *half;  /* s x s, q x s */
};

static int room_init(struct room *room, const struct regression_shape *shape,
                     const struct regression_fit *fit, struct blasd_err *err) {
    size_t q = (size_t)shape->q, s = (size_t)fit->spread;
    room->row = blasd_cpu_alloc(q, sizeof(double));
    room->h = blasd_cpu_alloc(s, sizeof(double));
    room->kept = blasd_cpu_alloc(s, sizeof(double));
    room->means = blasd_cpu_alloc(2 * (size_t)shape->p, sizeof(double));
    room->middle = blasd_cpu_alloc(s * s, sizeof(double));
    room->half = blasd_cpu_alloc(q * s, sizeof(double));
    if (room->row != NULL && room->h != NULL && room->kept != NULL && room->means != NULL &&
        room->middle != NULL && room->half != NULL)
        return 0;
    return blasd_fail(err, BLASD_E_out_of_memory, "", "no memory for the robust covariance");
}

static void room_release(struct room *room) {
    free(room->row);
    free(room->h);
    free(room->kept);
    free(room->means);
    free(room->middle);
    free(room->half);
}

/* Row i into room->row and room->h, and what multiplies the square of its residual in M. The basis
 * is that of centred features. */
static double take_row(const struct regression_shape *shape, const struct regression_data *data,
                       const struct regression_fit *fit, int64_t i, struct room *room) {
    int64_t q = shape->q, s = fit->spread;
    double left = 1;
    weighted_row(shape, data, room->means, i, room->row);
    for (int64_t c = 0; fit->orthogonal != NULL && c < s; c++)
        room->h[c] = dd_round(orthonormal(fit, i, c));
    if (fit->orthogonal == NULL) /* column-major: s x q */
        shape->dense->gemv((int)s, (int)q, fit->basis, (int)s, room->row, room->h);
    if (shape->cov == COV_HC2 || shape->cov == COV_HC3)
        left = left_of_leverage(shape, fit, i, room->row, room->h);
    return middle_weight(shape, 1, left, (double)(shape->n - fit->rank));
}

static double weighted_residual(const struct regression_shape *shape,
                                const struct regression_data *data,
                                const struct regression_fit *fit, int64_t target, int64_t i) {
    double residual = fit->residual[target * shape->n + i];
    return data->w == NULL ? residual : residual * sqrt(data->w[i]);
}

/* M; and fit->alone. */
static void make_middle(const struct regression_shape *shape, const struct regression_data *data,
                        struct regression_fit *fit, int64_t target, struct room *room) {
    int64_t s = fit->spread, worked = 0;
    double *middle = room->middle,
           small = BLASD_REGRESSION_MET * fit->ssr[target] / (double)shape->n;
    if (fit->middle != NULL) {
        memcpy(middle, fit->middle + target * s * s, (size_t)(s * s) * sizeof *middle);
    } else {
        memset(middle, 0, (size_t)(s * s) * sizeof *middle);
        if (shape->intercept)
            blasd_regression_means(shape, data, room->means, room->means + shape->p);
        centre_basis(shape, fit, room->kept, false);
        for (int64_t i = 0; i < shape->n && s > 0; i++) {
            double residual = weighted_residual(shape, data, fit, target, i);
            if (!blasd_wanted_after(&worked, s * (shape->q + s))) break;
            double by = take_row(shape, data, fit, i, room);
            if (isnan(by) || (residual * residual <= small &&
                              isnan(left_of_leverage(shape, fit, i, room->row, room->h))))
                fit->alone = true;
            shape->dense->syr((int)s, by * residual * residual, room->h, middle, (int)s);
        }
        centre_basis(shape, fit, room->kept, true);
    }
    for (int64_t i = 0; i < s; i++)
        for (int64_t j = 0; j < i; j++) middle[j * s + i] = middle[i * s + j];
}

/* Whether the variance of coefficient j may be no more than the rounding of B M B'. */
static bool is_suspect(const struct regression_fit *fit, const double *middle, double ssr,
                       int64_t j) {
    int64_t s = fit->spread;
    const double *row = fit->basis + j * s;
    double size = 0, value = 0, least = NO_RESIDUAL * ssr, unit = 0;
    for (int64_t c = 0; c < s; c++) unit = fmax(unit, fabs(row[c]));
    for (int64_t c = 0; unit > 0 && c < s; c++) {
        double along = middle[c * s + c] * (row[c] / unit) / 2;
        for (int64_t d = 0; d < c; d++) along += middle[c * s + d] * (row[d] / unit);
        value += 2 * along * (row[c] / unit);
        size += fabs(row[c] / unit) * sqrt(middle[c * s + c] + least);
    }
    return value <= SUSPECT * size * size;
}

bool blasd_regression_robust_suspect(const struct regression_shape *shape,
                                     const struct regression_fit *fit) {
    int64_t s = fit->spread;
    for (int64_t target = 0; fit->middle != NULL && target < shape->t; target++)
        for (int64_t j = 0; j < shape->q; j++)
            if (is_suspect(fit, fit->middle + target * s * s, fit->ssr[target], j)) return true;
    return false;
}

/* The variance of coefficient j as the sum of m_i (B_j h_i)^2; 0 where that is no more than twice
 * what rounding of residuals, of B and of h may have made of 0. */
static double sum_of_squares(const struct regression_shape *shape,
                             const struct regression_data *data, const struct regression_fit *fit,
                             int64_t target, const double *basis_row, struct room *room) {
    int64_t q = shape->q, s = fit->spread, skip = q - shape->p, done = 0;
    const double *coef = fit->coef + target * q;
    double unit = blasd_regression_leverage_unit(shape->n, q), variance = 0, noise = 0;
    for (int64_t i = 0; i < shape->n && blasd_wanted_after(&done, s * (q + s)); i++) {
        double r = weighted_residual(shape, data, fit, target, i), along = 0, blur = 0;
        double by = take_row(shape, data, fit, i, room), off = fabs(r);
        for (int64_t l = skip; l < q; l++) off += fabs(room->row[l] * coef[l]);
        for (int64_t c = 0; c < s; c++) {
            double size = fit->orthogonal != NULL ? fabs(room->h[c]) : 0;
            for (int64_t l = 0; fit->orthogonal == NULL && l < q; l++)
                size += fabs(fit->basis[l * s + c] * room->row[l]);
            along += basis_row[c] * room->h[c];
            blur += fabs(basis_row[c]) * size;
        }
        off *= unit;
        blur *= unit;
        variance += by * r * r * along * along;
        noise += by * (blur * blur * (r * r + off * off) + along * along * off * off);
    }
    return variance <= 4 * noise ? 0 : variance;
}

/* Variances of `cov` (q x q) that B M B' cannot give; of those that are 0 the covariances too. */
static void look_again(const struct regression_shape *shape, const struct regression_data *data,
                       const struct regression_fit *fit, int64_t target, struct room *room,
                       double *cov) {
    int64_t q = shape->q, s = fit->spread;
    if (fit->residual == NULL || fit->middle != NULL) return;
    memcpy(room->half, fit->basis, (size_t)(q * s) * sizeof *room->half);
    for (int64_t j = 0; j < q; j++) {
        if (!is_suspect(fit, room->middle, fit->ssr[target], j)) continue;
        centre_basis(shape, fit, room->kept, false);
        cov[j * q + j] = sum_of_squares(shape, data, fit, target, room->half + j * s, room);
        centre_basis(shape, fit, room->kept, true);
        for (int64_t l = 0; cov[j * q + j] == 0 && l < q; l++) cov[j * q + l] = cov[l * q + j] = 0;
    }
}

/* The F test that all coefficients but the intercept are 0: b' cov^-1 b over their number, which is
 * g' M^-1 g for B g = b, so that no condition of the features spoils it. NaN where the covariance
 * is singular, as of deficient designs. */
static double wald(const struct regression_shape *shape, const struct regression_fit *fit,
                   int64_t target, struct room *room) {
    int64_t q = shape->q, skip = q - shape->p, p = shape->p, s = fit->spread;
    const double *coef = fit->coef + target * q, *basis = fit->basis;
    double *g = room->row, *a = room->half, sum = 0;
    if (fit->rank < q || p == 0) return NAN;
    for (int64_t j = p - 1; j >= 0; j--) { /* the basis is triangular where the rank is full */
        double left = coef[j + skip];
        for (int64_t c = j + 1; c < p; c++) left -= basis[(j + skip) * s + c + skip] * g[c];
        g[j] = left / basis[(j + skip) * s + j + skip];
    }
    for (int64_t j = 0; j < p; j++) {
        double square = room->middle[(j + skip) * s + j + skip];
        if (!(square > NO_RESIDUAL * fit->ssr[target])) return NAN;
        room->kept[j] = sqrt(square);
        g[j] /= room->kept[j];
    }
    for (int64_t j = 0; j < p; j++)
        for (int64_t l = 0; l < p; l++)
            a[j * p + l] =
                room->middle[(j + skip) * s + l + skip] / (room->kept[j] * room->kept[l]);
    if (shape->dense->potrf(false, (int)p, a, (int)p) != 0) return NAN;
    for (int64_t j = 0; j < p; j++)
        if (!(a[j * p + j] * a[j * p + j] > blasd_regression_leverage_unit(shape->n, q)))
            return NAN;
    shape->dense->trsm(false, false, false, (int)p, 1, a, (int)p, g, (int)p);
    for (int64_t j = 0; j < p; j++) sum += g[j] * g[j];
    return sum / (double)p;
}

int blasd_regression_robust(const struct regression_shape *shape,
                            const struct regression_data *data, struct regression_fit *fit,
                            int64_t target, double *cov, double *f, struct blasd_err *err) {
    int64_t q = shape->q, s = fit->spread;
    const struct regression_dense *dense = shape->dense;
    struct room room = {0};
    int code = room_init(&room, shape, fit, err);
    memset(cov, 0, (size_t)(q * q) * sizeof *cov);
    if (code == 0 && q > 0 && s > 0) {
        make_middle(shape, data, fit, target, &room);
        /* column-major, half is (basis middle)' and basis is basis' */
        dense->gemm(false, false, (int)s, (int)q, (int)s, room.middle, (int)s, fit->basis, (int)s,
                    room.half, (int)s);
        dense->gemm(true, false, (int)q, (int)q, (int)s, fit->basis, (int)s, room.half, (int)s, cov,
                    (int)q);
        look_again(shape, data, fit, target, &room, cov);
    }
    *f = code == 0 ? wald(shape, fit, target, &room) : NAN;
    room_release(&room);
    return code;
}
