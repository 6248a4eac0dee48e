/* A nested list of numbers in a JSON text becomes the elements of a tensor, without a node for any
 * of them. Read next: json_in.c. */
#ifndef BLASD_WIRE_JSON_LIST_H
#define BLASD_WIRE_JSON_LIST_H

#include "wire/json_text.h"
#include "wire/tensor_writer.h"

/* What a list turned out to be. */
struct blasd_json_shape {
    int rank; /* 0 for a number that stands alone */
    int64_t lengths[BLASD_MAX_RANK];
    int64_t elements;
};

/* Reads the value at `p`, a number or lists of equal lengths, as elements of `to`'s dtype and sends
 * them to `sink`. `plain`: true and false count as 1 and 0 though the dtype is not bool. Fills
 * to->input but for its shape. *next is one past the value. */
int blasd_json_list(const struct blasd_json_text *text, const char *p, bool plain,
                    struct blasd_sink *sink, struct blasd_named_input *to,
                    struct blasd_json_shape *shape, const char **next, struct blasd_err *err);
/* Reads the list of lengths at `p`, whole numbers from 0, at most BLASD_MAX_RANK. invalid_tensor,
 * which names `field`, where it is none. *next is one past it. */
int blasd_json_lengths(const struct blasd_json_text *text, const char *p, const char *field,
                       int *rank, int64_t *lengths, const char **next, struct blasd_err *err);
/* Whether what a list turned out to be suits `sent`, whose shape was sent beside it: flat, with as
 * many elements, or nested just so. invalid_tensor otherwise. */
int blasd_json_shape_check(const struct blasd_tensor *sent, const struct blasd_json_shape *found,
                           const char *field, struct blasd_err *err);

#endif
