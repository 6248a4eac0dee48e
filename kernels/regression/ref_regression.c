/* Plain and slow on purpose. */
#include "kernels/regression/ref_regression.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Rows of the weighted design with those of the penalty under them. */
static long double *stack(const struct blasd_ref_problem *p, int64_t *rows) {
    long double *a;
    *rows = p->n + (p->penalty > 0 ? p->q : 0);
    a = calloc((size_t)(*rows * (p->q + 1)) + 1, sizeof *a);
    if (a == NULL) abort();
    for (int64_t i = 0; i < p->n; i++) {
        long double root = p->w == NULL ? 1 : sqrtl((long double)p->w[i]);
        for (int64_t j = 0; j < p->q; j++)
            a[i * (p->q + 1) + j] = root * (long double)p->a[i * p->q + j];
        a[i * (p->q + 1) + p->q] = root * (long double)p->y[i];
    }
    for (int64_t j = p->penalised; p->penalty > 0 && j < p->q; j++)
        a[(p->n + j) * (p->q + 1) + j] = sqrtl((long double)p->penalty);
    return a;
}

void blasd_ref_least_squares(const struct blasd_ref_problem *p, long double *b,
                             long double *basis) {
    int64_t q = p->q, width = q + 1, rows;
    long double *a = stack(p, &rows);
    long double *r = calloc((size_t)(width * width), sizeof *r);
    if (r == NULL) abort();
    for (int64_t j = 0; j < q; j++) {
        long double length = 0;
        for (int pass = 0; pass < 2; pass++) {
            for (int64_t l = 0; l < j; l++) {
                long double part = 0;
                for (int64_t i = 0; i < rows; i++) part += a[i * width + l] * a[i * width + j];
                for (int64_t i = 0; i < rows; i++) a[i * width + j] -= part * a[i * width + l];
                r[l * width + j] += part;
            }
        }
        for (int64_t i = 0; i < rows; i++) length += a[i * width + j] * a[i * width + j];
        r[j * width + j] = length = sqrtl(length);
        for (int64_t i = 0; i < rows; i++) a[i * width + j] /= length;
    }
    for (int64_t l = 0; l < q; l++) { /* y, one column after the other */
        long double part = 0;
        for (int64_t i = 0; i < rows; i++) part += a[i * width + l] * a[i * width + q];
        for (int64_t i = 0; i < rows; i++) a[i * width + q] -= part * a[i * width + l];
        r[l * width + q] = part;
    }
    for (int64_t j = q - 1; j >= 0; j--) {
        b[j] = r[j * width + q];
        for (int64_t l = j + 1; l < q; l++) b[j] -= r[j * width + l] * b[l];
        b[j] /= r[j * width + j];
    }
    for (int64_t c = 0; basis != NULL && c < q; c++) {
        for (int64_t j = q - 1; j >= 0; j--) {
            long double sum = j == c;
            for (int64_t l = j + 1; l < q; l++) sum -= r[j * width + l] * basis[l * q + c];
            basis[j * q + c] = sum / r[j * width + j];
        }
    }
    free(a);
    free(r);
}

void blasd_ref_descent(const struct blasd_ref_problem *p, double rate, int64_t iterations,
                       long double *b) {
    long double total = 0, *g = calloc((size_t)p->q + 1, sizeof *g);
    if (g == NULL) abort();
    for (int64_t i = 0; i < p->n; i++) total += p->w == NULL ? 1 : (long double)p->w[i];
    for (int64_t j = 0; j < p->q; j++) b[j] = 0;
    for (int64_t step = 0; step < iterations; step++) {
        for (int64_t j = 0; j < p->q; j++) g[j] = 0;
        for (int64_t i = 0; i < p->n; i++) {
            long double left = -(long double)p->y[i];
            for (int64_t j = 0; j < p->q; j++) left += (long double)p->a[i * p->q + j] * b[j];
            if (p->w != NULL) left *= (long double)p->w[i];
            for (int64_t j = 0; j < p->q; j++) g[j] += left * (long double)p->a[i * p->q + j];
        }
        for (int64_t j = 0; j < p->q; j++) b[j] -= (long double)rate * 2 / total * g[j];
    }
    free(g);
}

void blasd_ref_robust(const struct blasd_ref_problem *p, int hc, long double *cov) {
    int64_t n = p->n, q = p->q;
    long double *b = calloc((size_t)q, sizeof *b), *basis = calloc((size_t)(q * q), sizeof *basis);
    long double *h = calloc((size_t)q, sizeof *h), *pinv = calloc((size_t)q, sizeof *pinv);
    if (b == NULL || basis == NULL || h == NULL || pinv == NULL) abort();
    blasd_ref_least_squares(p, b, basis);
    for (int64_t i = 0; i < q * q; i++) cov[i] = 0;
    for (int64_t i = 0; i < n; i++) {
        long double w = p->w == NULL ? 1 : (long double)p->w[i], leverage = 0, m;
        long double left = (long double)p->y[i];
        for (int64_t j = 0; j < q; j++) left -= (long double)p->a[i * q + j] * b[j];
        for (int64_t c = 0; c < q; c++) {
            h[c] = 0;
            for (int64_t j = 0; j < q; j++)
                h[c] += sqrtl(w) * (long double)p->a[i * q + j] * basis[j * q + c];
            leverage += h[c] * h[c];
        }
        m = w * left * left;
        if (hc == 1) m *= (long double)n / (long double)(n - q);
        if (hc == 2) m /= 1 - leverage;
        if (hc == 3) m /= (1 - leverage) * (1 - leverage);
        for (int64_t j = 0; j < q; j++) {
            pinv[j] = 0;
            for (int64_t c = 0; c < q; c++) pinv[j] += basis[j * q + c] * h[c];
        }
        for (int64_t j = 0; j < q; j++)
            for (int64_t l = 0; l < q; l++) cov[j * q + l] += m * pinv[j] * pinv[l];
    }
    free(b);
    free(basis);
    free(h);
    free(pinv);
}
