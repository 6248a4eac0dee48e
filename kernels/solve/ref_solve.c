/* solve by elimination with complete pivoting in long double: slow, and as safe as elimination
 * gets. Read next: ../../tests/unit/kernels/test_solve.c. */
#include "kernels/solve/ref_solve.h"

#include <math.h>
#include <stdlib.h>

static void swap(long double *a, long double *b) {
    long double keep = *a;
    *a = *b;
    *b = keep;
}

int64_t blasd_ref_solve(int64_t n, int64_t columns, long double *a, long double *b) {
    int64_t *order = malloc((size_t)(n + 1) * sizeof *order), info = 0;
    if (order == NULL) return -1;
    for (int64_t i = 0; i < n; i++) order[i] = i;
    for (int64_t k = 0; k < n; k++) {
        int64_t row = k, column = k;
        for (int64_t i = k; i < n; i++)
            for (int64_t j = k; j < n; j++)
                if (fabsl(a[i * n + j]) > fabsl(a[row * n + column])) {
                    row = i;
                    column = j;
                }
        if (a[row * n + column] == 0) {
            info = k + 1;
            goto done;
        }
        for (int64_t j = 0; j < n; j++) swap(&a[k * n + j], &a[row * n + j]);
        for (int64_t j = 0; j < columns; j++) swap(&b[k * columns + j], &b[row * columns + j]);
        for (int64_t i = 0; i < n; i++) swap(&a[i * n + k], &a[i * n + column]);
        row = order[k];
        order[k] = order[column];
        order[column] = row;
        for (int64_t i = k + 1; i < n; i++) {
            long double factor = a[i * n + k] / a[k * n + k];
            for (int64_t j = k + 1; j < n; j++) a[i * n + j] -= factor * a[k * n + j];
            for (int64_t j = 0; j < columns; j++) b[i * columns + j] -= factor * b[k * columns + j];
        }
    }
    for (int64_t j = 0; j < columns; j++)
        for (int64_t i = n - 1; i >= 0; i--) {
            for (int64_t k = i + 1; k < n; k++)
                b[i * columns + j] -= a[i * n + k] * b[k * columns + j];
            b[i * columns + j] /= a[i * n + i];
        }
    /* unknown k of the permuted system is unknown order[k]: put each where it belongs */
    for (int64_t i = 0; i < n; i++)
        while (order[i] != i) {
            int64_t to = order[i];
            for (int64_t j = 0; j < columns; j++) swap(&b[i * columns + j], &b[to * columns + j]);
            order[i] = order[to];
            order[to] = to;
        }
done:
    free(order);
    return info;
}
