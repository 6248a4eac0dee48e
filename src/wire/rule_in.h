/* A rule in a JSON body: the members that an input's object has in place of data or base64.
 *
 *     {"random":"uniform" or "normal", "seed":7, "shape":[2,3]}    {"eye":3}
 *     {"full":[2,3], "value":1.5}    {"arange":[0,10,2]}    {"linspace":[0,1,5]}
 *
 * each with "dtype" where it shall not be float64. The object's reader, json_tensor.c, hands over
 * the members it does not know and, at the end, dtype and shape. Read next: ../core/rule.h. */
#ifndef BLASD_WIRE_RULE_IN_H
#define BLASD_WIRE_RULE_IN_H

#include "wire/json_text.h"
#include "wire/tensor_writer.h"

#define BLASD_RULE_MEMBERS 7

/* Where the values of a rule's members begin. Zeroed: none is there. */
struct blasd_rule_in {
    const char *at[BLASD_RULE_MEMBERS]; /* borrowed; NULL: not there */
};

/* Notes the member `name`, whose value begins at `p`, and steps over it. 1, 0 where no rule has
 * such a member, or a negative code. */
int blasd_rule_in_member(const struct blasd_json_text *text, struct blasd_rule_in *in,
                         const char *field, const char *name, const char *p, const char **next,
                         struct blasd_err *err);
/* Whether there was one. */
bool blasd_rule_in_given(const struct blasd_rule_in *in);
/* Makes `to`, whose dtype is known, the input that the members describe. `rank` and `shape` are the
 * member shape; rank -1: there was none. `plain`: there was no dtype. */
int blasd_rule_in_finish(const struct blasd_json_text *text, const struct blasd_rule_in *in,
                         const char *field, int rank, const int64_t *shape, bool plain,
                         struct blasd_named_input *to, struct blasd_err *err);

#endif
