/* Shapes: sizes, checks, text and NumPy's broadcasting. Conversions are in convert.c. */
#include "core/tensor.h"

#include "base/err.h"

#include <stdio.h>

/* Sums of a few tensors' bytes must not overflow 64 bits either. */
#define MOST_BYTES (INT64_C(1) << 60)

int64_t blasd_tensor_elements(const struct blasd_tensor *tensor) {
    int64_t n = 1;
    for (int i = 0; i < tensor->rank; i++) n *= tensor->shape[i];
    return n;
}

uint64_t blasd_tensor_bytes(const struct blasd_tensor *tensor) {
    return (uint64_t)blasd_tensor_elements(tensor) * blasd_dtype_size(tensor->dtype);
}

int blasd_tensor_check(const struct blasd_tensor *tensor, const char *field,
                       struct blasd_err *err) {
    int64_t left = MOST_BYTES / (int64_t)blasd_dtype_size(tensor->dtype);
    if (tensor->rank < 0 || tensor->rank > BLASD_MAX_RANK)
        return blasd_fail(err, BLASD_E_invalid_tensor, field,
                          "it has %d dimensions; at most %d are taken", tensor->rank,
                          BLASD_MAX_RANK);
    /* a zero length hides the others from the product, yet none of them may be absurd: the product
     * of the lengths that are not zero is what must fit */
    for (int i = 0; i < tensor->rank; i++) {
        int64_t length = tensor->shape[i];
        if (length < 0)
            return blasd_fail(err, BLASD_E_invalid_tensor, field,
                              "length %d of its shape is negative", i);
        if (length > left)
            return blasd_fail(err, BLASD_E_invalid_tensor, field,
                              "its shape has more elements than can be addressed");
        if (length > 0) left /= length;
    }
    return 0;
}

struct blasd_tensor blasd_tensor_make(enum blasd_dtype dtype, int rank, const int64_t *shape) {
    struct blasd_tensor tensor = {.dtype = dtype, .order = BLASD_ROW_MAJOR, .rank = rank};
    for (int i = 0; i < rank; i++) tensor.shape[i] = shape[i];
    return tensor;
}

const char *blasd_tensor_shape_text(const struct blasd_tensor *tensor, char *text, size_t size) {
    size_t len = (size_t)snprintf(text, size, "(");
    for (int i = 0; i < tensor->rank && len < size; i++)
        len += (size_t)snprintf(text + len, size - len, "%s%lld", i == 0 ? "" : ", ",
                                (long long)tensor->shape[i]);
    if (len < size) snprintf(text + len, size - len, tensor->rank == 1 ? ",)" : ")");
    return text;
}

int blasd_shape_broadcast(const int64_t *a, int ra, const int64_t *b, int rb,
                          int64_t out[BLASD_MAX_RANK]) {
    int rank = ra > rb ? ra : rb;
    if (rank > BLASD_MAX_RANK) return -1;
    for (int i = 1; i <= rank; i++) {
        int64_t la = i <= ra ? a[ra - i] : 1, lb = i <= rb ? b[rb - i] : 1;
        if (la != lb && la != 1 && lb != 1) return -1;
        out[rank - i] = la == 1 ? lb : la;
    }
    return rank;
}
