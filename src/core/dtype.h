/* Element types, by NumPy's names. Read next: tensor.h. */
#ifndef BLASD_CORE_DTYPE_H
#define BLASD_CORE_DTYPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* X(name, bytes an element, kind: 'f' floating, 'i' signed, 'u' unsigned, 'b' bool, 'c' complex).
 * The order is part of stored frames: append only. */
#define BLASD_DTYPES(X)                                                                            \
    X(float64, 8, 'f')                                                                             \
    X(float32, 4, 'f')                                                                             \
    X(float16, 2, 'f')                                                                             \
    X(bfloat16, 2, 'f')                                                                            \
    X(int64, 8, 'i')                                                                               \
    X(int32, 4, 'i')                                                                               \
    X(int16, 2, 'i')                                                                               \
    X(int8, 1, 'i')                                                                                \
    X(uint64, 8, 'u')                                                                              \
    X(uint32, 4, 'u')                                                                              \
    X(uint16, 2, 'u')                                                                              \
    X(uint8, 1, 'u')                                                                               \
    X(bool, 1, 'b')                                                                                \
    X(complex128, 16, 'c')                                                                         \
    X(complex64, 8, 'c')

enum blasd_dtype {
#define X(name, size, kind) BLASD_##name,
    BLASD_DTYPES(X)
#undef X
        BLASD_DTYPE_COUNT
};

/* Sets of dtypes, as bit masks: BLASD_DTYPE_BIT(BLASD_float32) | … */
#define BLASD_DTYPE_BIT(dtype) (1u << (unsigned)(dtype))
#define BLASD_DTYPES_FLOAT (BLASD_DTYPE_BIT(BLASD_float64) | BLASD_DTYPE_BIT(BLASD_float32))
#define BLASD_DTYPES_HALF (BLASD_DTYPE_BIT(BLASD_float16) | BLASD_DTYPE_BIT(BLASD_bfloat16))
/* the integers and bool, which operations take as float64 */
#define BLASD_DTYPES_INTEGER ((BLASD_DTYPE_BIT(BLASD_bool + 1) - 1) & ~0xfu)
#define BLASD_DTYPES_COMPLEX (BLASD_DTYPE_BIT(BLASD_complex128) | BLASD_DTYPE_BIT(BLASD_complex64))

const char *blasd_dtype_name(enum blasd_dtype dtype); /* static text */
size_t blasd_dtype_size(enum blasd_dtype dtype);
char blasd_dtype_kind(enum blasd_dtype dtype);
/* What an element consists of: a complex one of `parts` 2 floats, the real part first; any other of
 * itself. */
enum blasd_dtype blasd_dtype_part(enum blasd_dtype dtype);
int blasd_dtype_parts(enum blasd_dtype dtype);
/* Whether blasd_tensor_convert (tensor.h) can. */
bool blasd_dtype_converts(enum blasd_dtype from, enum blasd_dtype to);
/* Finds a dtype by its name of `len` bytes; false where there is none. */
bool blasd_dtype_find(const char *name, size_t len, enum blasd_dtype *ret);

#endif
