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

bool blasd_dtype_find(const char *name, size_t len, enum blasd_dtype *ret) {
    for (int dtype = 0; dtype < BLASD_DTYPE_COUNT; dtype++) {
        if (strlen(table[dtype].name) != len || memcmp(table[dtype].name, name, len) != 0) continue;
        *ret = (enum blasd_dtype)dtype;
        return true;
    }
    return false;
}
