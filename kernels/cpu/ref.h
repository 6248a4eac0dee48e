/* For the reference implementations: one element of any tensor, by its index, as a long double.
 * Slow and plain on purpose. */
#ifndef BLASD_KERNELS_REF_H
#define BLASD_KERNELS_REF_H

#include "core/tensor.h"

#include <string.h>

/* `index` has one number for each dimension of `tensor`; those of length 1 are read at 0, so that a
 * broadcast index can be given. */
static inline long double blasd_ref_at(const struct blasd_tensor *tensor, const int64_t *index) {
    struct blasd_tensor one = blasd_tensor_make(tensor->dtype, 0, NULL);
    struct blasd_tensor wide = blasd_tensor_make(BLASD_float64, 0, NULL);
    int64_t at = 0, step = 1;
    double value = 0;
    for (int n = 0; n < tensor->rank; n++) {
        int i = tensor->order == BLASD_COLUMN_MAJOR ? n : tensor->rank - 1 - n;
        at += (tensor->shape[i] == 1 ? 0 : index[i]) * step;
        step *= tensor->shape[i];
    }
    one.data = (char *)tensor->data + (size_t)at * blasd_dtype_size(tensor->dtype);
    wide.data = &value;
    blasd_tensor_convert(&one, &wide);
    return (long double)value;
}

#endif
