/* Bodies that are tensors alone: a .npy file, or JSON that is one tensor or {"tensors": {NAME: …}}.
 * Read next: body_reader.h. */
#ifndef BLASD_WIRE_TENSOR_BODY_H
#define BLASD_WIRE_TENSOR_BODY_H

#include "wire/body_reader.h"

#define BLASD_TENSOR_BODY_NAME "tensor" /* of one that came without a name */

struct blasd_tensor_body {
    bool npy;   /* it is called a .npy file: nothing else is taken */
    bool named; /* becomes true where the body gives names */
};

/* Tells by the first byte what comes, where the body is not called a .npy file. New: freed with its
 * own `free`; NULL where memory has run out. `arg` is a struct blasd_tensor_body, borrowed, or
 * NULL.
 */
struct blasd_body_reader *blasd_tensor_body_reader_new(const struct blasd_body *body, void *arg);

#endif
