/* The headers of the binary formats; the tensors' bytes follow them as they are. */
#ifndef BLASD_WIRE_BINARY_OUT_H
#define BLASD_WIRE_BINARY_OUT_H

#include "base/buf.h"
#include "core/record.h"

#define BINARY_ALIGN 64 /* the first tensor of a file lies at a multiple of it */

/* Writes a safetensors header for the outputs of `record` at the positions `outputs`, whose bytes
 * will follow in that order without gaps; the job document goes into __metadata__. */
int safetensors_header(const struct blasd_record *record, const int *outputs, int count,
                       struct blasd_buf *out);
/* The same for one tensor, without metadata. */
int safetensors_header_one(const char *name, const struct blasd_tensor *tensor,
                           struct blasd_buf *out);
/* Puts outputs into the order in which each lies at a multiple of its element's size. */
void safetensors_order(const struct blasd_record *record, int *outputs, int count);

/* Whether .npy has the dtype. */
bool npy_possible(enum blasd_dtype dtype);
/* Writes the header of a .npy file, version 1.0. */
int npy_header(const struct blasd_tensor *tensor, struct blasd_buf *out);

#endif
