/* .npy, version 1.0: magic, length, a Python dict as text, padded so that the elements lie at a
 * multiple of 64. Read next: answer.c. */
#include "wire/binary_out.h"

#include "base/text.h"

#include <string.h>

static const char *const descr[BLASD_DTYPE_COUNT] = {
    [BLASD_float64] = "<f8",     [BLASD_float32] = "<f4",   [BLASD_float16] = "<f2",
    [BLASD_int64] = "<i8",       [BLASD_int32] = "<i4",     [BLASD_int16] = "<i2",
    [BLASD_int8] = "|i1",        [BLASD_uint64] = "<u8",    [BLASD_uint32] = "<u4",
    [BLASD_uint16] = "<u2",      [BLASD_uint8] = "|u1",     [BLASD_bool] = "|b1",
    [BLASD_complex128] = "<c16", [BLASD_complex64] = "<c8",
};

bool npy_possible(enum blasd_dtype dtype) {
    return descr[dtype] != NULL;
}

int npy_header(const struct blasd_tensor *tensor, struct blasd_buf *out) {
    static const char spaces[BINARY_ALIGN + 1] =
        "                                                                ";
    size_t before = out->len, used, padding;
    char digits[BLASD_TEXT_NUMBER];
    if (blasd_buf_add(out, "\x93NUMPY\x01\0\0\0", 10) != 0 ||
        blasd_buf_puts(out, "{'descr': '") != 0 || blasd_buf_puts(out, descr[tensor->dtype]) != 0 ||
        blasd_buf_puts(out, "', 'fortran_order': False, 'shape': (") != 0)
        return -1;
    for (int i = 0; i < tensor->rank; i++) {
        blasd_text_number(digits, (uint64_t)tensor->shape[i]);
        if (blasd_buf_puts(out, i == 0 ? "" : " ") != 0 || blasd_buf_puts(out, digits) != 0 ||
            blasd_buf_puts(out, ",") != 0)
            return -1;
    }
    /* Python's tuple of one keeps its comma, longer ones lose it */
    if (tensor->rank > 1) out->len--;
    used = out->len - before + strlen("), }\n");
    padding = (BINARY_ALIGN - used % BINARY_ALIGN) % BINARY_ALIGN;
    if (blasd_buf_puts(out, "), }") != 0 || blasd_buf_add(out, spaces, padding) != 0 ||
        blasd_buf_puts(out, "\n") != 0)
        return -1;
    used = out->len - before - 10;
    out->data[before + 8] = (char)(unsigned char)used;
    out->data[before + 9] = (char)(unsigned char)(used >> 8);
    return 0;
}
