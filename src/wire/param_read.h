/* The value of one parameter, from JSON or from text, checked against its descriptor. */
#ifndef BLASD_WIRE_PARAM_READ_H
#define BLASD_WIRE_PARAM_READ_H

#include "base/err.h"
#include "core/op.h"

#include <jansson.h>

int blasd_param_read_value(const struct blasd_param *param, const json_t *from,
                           struct blasd_value *ret, struct blasd_err *err);
int blasd_param_read_text(const struct blasd_param *param, const char *text,
                          struct blasd_value *ret, struct blasd_err *err);

#endif
