/* One tensor among those of a safetensors file whose header is at hand. */
#ifndef BLASD_WIRE_SAFETENSORS_IN_H
#define BLASD_WIRE_SAFETENSORS_IN_H

#include "base/buf.h"
#include "wire/body_reader.h"

/* Describes the tensor `name` in `to`, and says where in the data, behind the header, it begins and
 * ends. `header`: the eight bytes of its length and the header, with room for BLASD_JSON_SLACK
 * more. malformed_safetensors, unsupported_dtype, invalid_tensor; invalid_reference where it is not
 * there.
 */
int blasd_safetensors_find(struct blasd_buf *header, const struct blasd_limits *limits,
                           const char *name, struct blasd_named_input *to, uint64_t *begin,
                           uint64_t *end, struct blasd_err *err);

#endif
