/* One tensor of a JSON body: nested lists, or an object with dtype, shape and data or base64, or
 * with a rule (rule_in.h).
 * Read next: json_in.c for the body around it. */
#ifndef BLASD_WIRE_JSON_TENSOR_H
#define BLASD_WIRE_JSON_TENSOR_H

#include "wire/json_text.h"
#include "wire/tensor_writer.h"

/* Writes the tensor whose value begins at `p`. *next is one past the value. */
int blasd_json_tensor(const struct blasd_json_text *text, const char *p, struct blasd_sink *sink,
                      struct blasd_named_input *to, const char **next, struct blasd_err *err);

#endif
