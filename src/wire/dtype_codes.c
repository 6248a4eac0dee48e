/* What the binary formats call the dtypes. */
#include "wire/dtype_codes.h"

const struct dtype_code dtype_codes[BLASD_DTYPE_COUNT] = {
    [BLASD_float64] = {"F64", "<f8"},      [BLASD_float32] = {"F32", "<f4"},
    [BLASD_float16] = {"F16", "<f2"},      [BLASD_bfloat16] = {"BF16", NULL},
    [BLASD_int64] = {"I64", "<i8"},        [BLASD_int32] = {"I32", "<i4"},
    [BLASD_int16] = {"I16", "<i2"},        [BLASD_int8] = {"I8", "|i1"},
    [BLASD_uint64] = {"U64", "<u8"},       [BLASD_uint32] = {"U32", "<u4"},
    [BLASD_uint16] = {"U16", "<u2"},       [BLASD_uint8] = {"U8", "|u1"},
    [BLASD_bool] = {"BOOL", "|b1"},        [BLASD_complex64] = {"C64", "<c8"},
    [BLASD_complex128] = {"C128", "<c16"}, /* ours: safetensors has no name for it */
};
