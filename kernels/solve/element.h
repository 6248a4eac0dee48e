/* Elements of a job's tensors as the host's checks of solutions read them. */
#ifndef BLASD_SOLVE_ELEMENT_H
#define BLASD_SOLVE_ELEMENT_H

#include "core/tensor.h"
#include "kernels/solve/solve.h"

static inline double solve_element(const struct blasd_tensor *tensor, int64_t at) {
    return tensor->dtype == BLASD_float32 ? (double)((const float *)tensor->data)[at]
                                          : ((const double *)tensor->data)[at];
}

/* Row i, column j of op(a) as its structure has it; the matrix begins at `start`. */
static inline double solve_matrix_element(const struct blasd_solve_layout *layout,
                                          const struct blasd_tensor *a, int64_t start, int64_t i,
                                          int64_t j) {
    bool symmetric = layout->assume == BLASD_ASSUME_SYMMETRIC ||
                     layout->assume == BLASD_ASSUME_POSITIVE_DEFINITE;
    int64_t row = symmetric && i > j ? j : i, column = symmetric && i > j ? i : j;
    if ((layout->assume == BLASD_ASSUME_LOWER_TRIANGULAR && i < j) ||
        (layout->assume == BLASD_ASSUME_UPPER_TRIANGULAR && i > j))
        return 0;
    return solve_element(a, start + row * layout->a_row + column * layout->a_column);
}

#endif
