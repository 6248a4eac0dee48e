/* A reference in JSON: {"tensor": ID} or {"job": ID, "output": NAME}, each with "slice" or without,
 * or {"url": URL}, which remote_in.h tells of. */
#ifndef BLASD_WIRE_REFERENCE_IN_H
#define BLASD_WIRE_REFERENCE_IN_H

#include "wire/json_text.h"
#include "wire/tensor_writer.h"

/* Whether a member of that name makes an input's object a reference. */
bool blasd_reference_begins(const char *name);
/* Reads the object at `p` into `to`; `field` names the input in errors, here and below. */
int blasd_reference_read(const struct blasd_json_text *text, const char *p,
                         struct blasd_named_input *to, const char *field, const char **next,
                         struct blasd_err *err);
/* What the members "slice" and "dtype" of any reference say, at `p`; the slice must not be there
 * yet. */
int blasd_reference_slice(const struct blasd_json_text *text, const char *p,
                          struct blasd_named_input *to, const char *field, const char **next,
                          struct blasd_err *err);
int blasd_reference_dtype(const struct blasd_json_text *text, const char *p,
                          struct blasd_named_input *to, const char *field, const char **next,
                          struct blasd_err *err);

#endif
