/* Squared distances in many dimensions from a matrix product: |a|^2 + |b|^2 - 2 a.b of centred
 * points in float64, where entries that cancel are computed again from differences.
 * Read next: pair_product.cu. */
#ifndef BLASD_KERNELS_DISTANCE_PAIR_PRODUCT_CUH
#define BLASD_KERNELS_DISTANCE_PAIR_PRODUCT_CUH

extern "C" {
#include "kernels/cuda/cuda_op.h"
}

#include "kernels/distance/pair_calls.cuh"

/* Scratch of one problem at a time, and what is the same for all. */
struct pair_product {
    double *x, *y;             /* points, centred and weighted; y is x where x stands alone */
    double *x_norms, *y_norms; /* squared */
    double *product;           /* -2 a.b: some rows */
    int64_t rows;              /* of `product`, at most */
    double doubt;              /* entries below this times the squared norms are not believed */
};

/* Centres the points of problem `number` around `means` (high and low parts, k for each problem).
 */
int pair_product_points(struct blasd_cuda_job *job, enum blasd_dtype dtype,
                        const struct pair_args &args, const struct pair_product &product,
                        int64_t number, const double *means, struct blasd_err *err);

/* Rows of one problem: `args` are those rows as a problem of their own (first_row says which they
 * are), `out` the whole problem's matrix. */
int pair_product_rows(struct blasd_cuda_job *job, enum blasd_dtype dtype, bool weighted,
                      const struct pair_args &args, const struct pair_product &product,
                      const struct pair_matrix &out, struct blasd_err *err);

#endif
