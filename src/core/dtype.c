/* The table of dtypes. */
#include "core/dtype.h"

#include <string.h>

static const struct {
    const char *name;
    unsigned char size;
    char kind;
} table[] = {
#define X(name, size, kind) {#name, size, kind},
    BLASD_DTYPES(X)
#undef X
};

const char *blasd_dtype_name(enum blasd_dtype dtype) {
    return table[dtype].name;
}

size_t blasd_dtype_size(enum blasd_dtype dtype) {
    return table[dtype].size;
}

char blasd_dtype_kind(enum blasd_dtype dtype) {
    return table[dtype].kind;
}

enum blasd_dtype blasd_dtype_part(enum blasd_dtype dtype) {
    return dtype == BLASD_complex128  ? BLASD_float64
           : dtype == BLASD_complex64 ? BLASD_float32
                                      : dtype;
}

int blasd_dtype_parts(enum blasd_dtype dtype) {
    return table[dtype].kind == 'c' ? 2 : 1;
}

bool blasd_dtype_converts(enum blasd_dtype from, enum blasd_dtype to) {
    bool whole = (BLASD_DTYPES_INTEGER & BLASD_DTYPE_BIT(from)) != 0;
    switch (table[to].kind) {
    case 'c': return true;
    case 'f': return table[from].kind != 'c';
    default: return whole && table[to].size == 8;
    }
}

bool blasd_dtype_find(const char *name, size_t len, enum blasd_dtype *ret) {
    for (int dtype = 0; dtype < BLASD_DTYPE_COUNT; dtype++) {
        if (strlen(table[dtype].name) != len || memcmp(table[dtype].name, name, len) != 0) continue;
        *ret = (enum blasd_dtype)dtype;
        return true;
    }
    return false;
}
