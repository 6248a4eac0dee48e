/* Small products, made without a copy of their factors: where BLAS spends more time on packing and
 * on its own call than on the product. Read next: small_body.h. */
#ifndef BLASD_KERNELS_SMALL_H
#define BLASD_KERNELS_SMALL_H

#include "core/kernel.h"

/* A matrix of float32 or float64: element (i, j) at data[i * row + j * column]; one of the two
 * steps is 1. */
struct blasd_small_factor {
    const void *data; /* borrowed */
    int64_t row, column;
};

/* Bytes that the next product reads: they are fetched into a cache during the product. */
struct blasd_small_soon {
    const char *data; /* borrowed; readable */
    size_t bytes;
};

/* c = a b, where c is dense and row-major. */
struct blasd_small {
    int64_t m, n, k; /* at least 1 */
    struct blasd_small_factor a, b;
    void *c;                         /* borrowed */
    struct blasd_small_soon soon[2]; /* bytes 0: nothing */
};

/* Whether products of this shape are made here: small ones, on machines where this is faster than
 * BLAS. The same for each product of a shape. */
bool blasd_small_takes(int64_t m, int64_t n, int64_t k);
/* Makes a product that blasd_small_takes. */
void blasd_small_f32(const struct blasd_small *product);
void blasd_small_f64(const struct blasd_small *product);

#endif
