/* A tensor: dtype, shape and where its elements lie. Read next: op.h. */
#ifndef BLASD_CORE_TENSOR_H
#define BLASD_CORE_TENSOR_H

#include "core/dtype.h"

#define BLASD_MAX_RANK 8
#define BLASD_ALIGN UINT64_C(64) /* where a tensor's bytes begin, in whatever holds several */

struct blasd_err;

/* Row-major (C order) or column-major (Fortran order, as such .npy files come). */
enum blasd_order { BLASD_ROW_MAJOR, BLASD_COLUMN_MAJOR };

/* A plain value; owns nothing. */
struct blasd_tensor {
    enum blasd_dtype dtype;
    enum blasd_order order;
    int rank;
    int64_t shape[BLASD_MAX_RANK];
    void *data; /* borrowed; dense, aligned to 64 bytes when an operation runs; NULL while only the
                   shape is known */
};

static inline uint64_t blasd_align_up(uint64_t bytes) {
    return (bytes + BLASD_ALIGN - 1) & ~(BLASD_ALIGN - 1);
}

/* Elements in the tensor: 1 for rank 0. The shape must have passed blasd_tensor_check. */
int64_t blasd_tensor_elements(const struct blasd_tensor *tensor);
uint64_t blasd_tensor_bytes(const struct blasd_tensor *tensor);
/* Refuses ranks above BLASD_MAX_RANK, negative lengths, and shapes whose bytes overflow 2^62.
 * `field` names the tensor in the error. */
int blasd_tensor_check(const struct blasd_tensor *tensor, const char *field, struct blasd_err *err);
/* Makes a row-major tensor description without data. */
struct blasd_tensor blasd_tensor_make(enum blasd_dtype dtype, int rank, const int64_t *shape);
/* Writes the shape as "(2, 3)" into `text` and returns it. */
const char *blasd_tensor_shape_text(const struct blasd_tensor *tensor, char *text, size_t size);

/* Copies `from` into `to`, which has the same shape and row-major order, and a floating dtype (from
 * any real one, by value, rounding to nearest even), a complex one (from any), or int64 or uint64
 * (from integers and bool, modulo 2^64). Both have data. It, and the searches below, leave off once
 * they are not wanted any more (wanted.h), as if there were nothing further. */
void blasd_tensor_convert(const struct blasd_tensor *from, struct blasd_tensor *to);
/* Index of the first NaN or infinity among `n` elements of a floating or complex dtype, or of the
 * first byte among those of bool that is neither 0 nor 1; or -1. `data` need not be aligned. */
int64_t blasd_tensor_first_nonfinite(enum blasd_dtype dtype, const void *data, int64_t n);
/* Index of the first of n int64 that is less than the one before it, -1: none. *last: that of the
 * first; becomes the last one. `data` need not be aligned. */
int64_t blasd_tensor_first_descent(const void *data, int64_t n, int64_t *last);
/* Index of the first element below 0 among `n` of any dtype, or with `zero_too` of the first that
 * is 0 or below, or -1; always -1 for complex ones. -0.0 is 0; a NaN counts by its sign. `data`
 * need not be aligned. */
int64_t blasd_tensor_first_negative(enum blasd_dtype dtype, const void *data, int64_t n,
                                    bool zero_too);
/* Index of the first integer among `n` elements that float64 cannot hold, or -1; always -1 for
 * other dtypes than int64 and uint64. `data` need not be aligned. */
int64_t blasd_tensor_first_inexact(enum blasd_dtype dtype, const void *data, int64_t n);
/* Whether all of `n` elements are 0 or -0.0. `data` need not be aligned. */
bool blasd_tensor_all_zero(enum blasd_dtype dtype, const void *data, int64_t n);

/* NumPy's broadcasting of the leading `ra` and `rb` lengths of two shapes; at most BLASD_MAX_RANK.
 * Returns the rank of the result, or -1 where they do not fit. */
int blasd_shape_broadcast(const int64_t *a, int ra, const int64_t *b, int rb,
                          int64_t out[BLASD_MAX_RANK]);

#endif
