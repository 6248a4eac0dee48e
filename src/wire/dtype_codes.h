/* What the binary formats call the dtypes. */
#ifndef BLASD_WIRE_DTYPE_CODES_H
#define BLASD_WIRE_DTYPE_CODES_H

#include "core/dtype.h"

struct dtype_code {
    const char *safetensors, *npy; /* npy's as it is written here; NULL: it has no such dtype */
};

extern const struct dtype_code dtype_codes[BLASD_DTYPE_COUNT];

#endif
