/* The value of one parameter, from JSON or from text, checked against its descriptor. */
#ifndef BLASD_WIRE_PARAM_READ_H
#define BLASD_WIRE_PARAM_READ_H

#include "base/err.h"
#include "core/op.h"
#include "wire/json_text.h"

/* From the value at `p`, a member of params; *next is one past it. */
int blasd_param_read_json(const struct blasd_param *param, const struct blasd_json_text *text,
                          const char *p, struct blasd_value *ret, const char **next,
                          struct blasd_err *err);
int blasd_param_read_text(const struct blasd_param *param, const char *text,
                          struct blasd_value *ret, struct blasd_err *err);

#endif
