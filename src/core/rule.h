/* A rule that makes a tensor: what an input can be in place of bytes.
 *
 * A job carries the rule, some bytes; the elements are made where the operand is used, by
 * blasd_rule_fill on the host or by a kernel on a device, the same bits on both. What each rule
 * makes is in rule_element.h. Read next: ../wire/rule_in.h for how users write them. */
#ifndef BLASD_CORE_RULE_H
#define BLASD_CORE_RULE_H

#include "core/tensor.h"

struct blasd_err;
struct blasd_input;

/* The order is part of stored frames: append only. */
enum blasd_rule_kind {
    BLASD_RULE_FULL,
    BLASD_RULE_EYE,
    BLASD_RULE_ARANGE,
    BLASD_RULE_LINSPACE,
    BLASD_RULE_UNIFORM,
    BLASD_RULE_NORMAL,
    BLASD_RULE_KINDS
};

#define BLASD_RULE_VALUE_BYTES 16 /* of an element of any dtype */

/* A plain value. Which tensor it makes depends on dtype and shape too, which stand beside it. */
struct blasd_rule {
    enum blasd_rule_kind kind;
    union {
        unsigned char value[BLASD_RULE_VALUE_BYTES]; /* full: the element */
        uint64_t seed;                               /* uniform, normal */
        /* arange: element 0, the difference and element 1, each as the dtype holds it; linspace:
         * the first element, the difference, the last */
        struct {
            double start, step, stop;
        } line;
    };
};

/* Each fills `rule` and the shape of `tensor`, whose dtype is known (blasd_rule_random: the shape
 * too). `field` names the input. invalid_tensor where there can be no such tensor or its elements
 * are beyond the dtype; unsupported_dtype. */
int blasd_rule_eye(struct blasd_rule *rule, struct blasd_tensor *tensor, int64_t n,
                   const char *field, struct blasd_err *err);
int blasd_rule_arange(struct blasd_rule *rule, struct blasd_tensor *tensor, double start,
                      double stop, double step, const char *field, struct blasd_err *err);
int blasd_rule_linspace(struct blasd_rule *rule, struct blasd_tensor *tensor, double start,
                        double stop, int64_t n, const char *field, struct blasd_err *err);
int blasd_rule_random(struct blasd_rule *rule, const struct blasd_tensor *tensor,
                      enum blasd_rule_kind kind, uint64_t seed, const char *field,
                      struct blasd_err *err);

/* Elements `first` to first + n of the tensor at `out`, which is aligned to its dtype. */
void blasd_rule_make(const struct blasd_rule *rule, const struct blasd_tensor *tensor,
                     int64_t first, int64_t n, void *out);
/* All of them at tensor->data, for as long as that is wanted (wanted.h). */
void blasd_rule_fill(const struct blasd_rule *rule, const struct blasd_tensor *tensor);

/* Fills what the input says of its elements (first_nonfinite, and with `values`, BLASD_VALUES_*,
 * the others), as if they had been looked at one by one. out_of_range where that would take too
 * long: many random elements that must all be greater than 0. */
int blasd_rule_look(struct blasd_input *input, unsigned values, const char *field,
                    struct blasd_err *err);

#endif
