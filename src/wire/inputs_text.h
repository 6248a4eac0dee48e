/* Inputs as a JSON text, beside tensors that come in binary: references, as a rule. */
#ifndef BLASD_WIRE_INPUTS_TEXT_H
#define BLASD_WIRE_INPUTS_TEXT_H

#include "base/limits.h"
#include "wire/tensor_writer.h"

#define BLASD_INPUTS_TEXT "inputs" /* the name of the form's field, or of the metadata's member */

/* Reads {NAME: input, ...}, each as it stands in a JSON job. */
int blasd_inputs_text(struct blasd_named_inputs *inputs, const struct blasd_limits *limits,
                      const char *text, size_t len, struct blasd_err *err);

#endif
