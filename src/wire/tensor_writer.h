/* A tensor of a request on its way to the sink: its name and description, and its bytes, for
 * every body format.
 *
 * Looks at each element once as it passes (NaN and infinities, bytes that are no bool, byte order;
 * where some operation's input of this name states a range, signs and zeros) and keeps none. Knows
 * no format. Read next: request_fields.h for the rest of a request. */
#ifndef BLASD_WIRE_TENSOR_WRITER_H
#define BLASD_WIRE_TENSOR_WRITER_H

#include "wire/intake.h"

/* The operation may be named after the tensors, so a few more than any operation takes are held
 * before their names can be checked. */
#define BLASD_NAMED_INPUTS_MAX (BLASD_MAX_INPUTS + 8)
#define BLASD_GRAPH_INPUTS_MAX 32 /* of a graph, beside what stands in its steps */

struct blasd_remote;
struct blasd_named_input {
    char name[BLASD_NAME_MAX];   /* printable ASCII */
    bool any;                    /* some input of any name may get it: everything is looked for */
    struct blasd_remote *remote; /* where it is still to be fetched from (remote_in.h); owned by
                                    whoever has the inputs; NULL: from nowhere */
    struct blasd_input input;
};

/* The tensors of one request by name. */
struct blasd_named_inputs {
    struct blasd_sink *sink; /* borrowed */
    bool any;                /* of each that is added: they are a graph's */
    int count;
    struct blasd_named_input items[BLASD_GRAPH_INPUTS_MAX];
};

/* Adds a tensor that is still to be described. *ret is borrowed. Refuses a name that was there
 * before (invalid_field), one that no operation can have, and too many (unknown_input). */
int blasd_named_inputs_add(struct blasd_named_inputs *inputs, const char *name, size_t len,
                           struct blasd_named_input **ret, struct blasd_err *err);

/* The BLASD_VALUES_* that are to be looked for in it. */
static inline unsigned blasd_named_input_values(const struct blasd_named_input *input) {
    return input->any ? BLASD_VALUES_ALL : blasd_ops_values(input->name);
}

/* One tensor being written. A plain value; owns nothing. */
struct blasd_tensor_writer {
    struct blasd_sink *sink;      /* borrowed */
    struct blasd_named_input *to; /* borrowed */
    bool look;                    /* for NaN, infinities and bytes that are no bool */
    unsigned values;              /* BLASD_VALUES_* to look for as well */
    uint64_t offset, left;        /* in the payload; bytes still to come */
    unsigned size;                /* bytes an element, or of complex ones a part */
    int parts;                    /* floats in an element: 2 of complex dtypes */
    bool swap;                    /* the elements come big-endian */
    int64_t index;                /* elements (parts) looked at so far */
    unsigned part_len;            /* bytes of an element split between two pieces */
    unsigned char part[8];
};

/* Reserves `bytes` for `to`, whose tensor.dtype is known, and makes the writer ready for them.
 * `look`: search for NaN, infinities and bad bools; false where the caller knows of them. */
int blasd_tensor_writer_begin(struct blasd_tensor_writer *writer, struct blasd_sink *sink,
                              struct blasd_named_input *to, uint64_t bytes, bool look, bool swap,
                              struct blasd_err *err);
/* Takes the next bytes, at most writer->left. */
int blasd_tensor_writer_feed(struct blasd_tensor_writer *writer, const void *bytes, size_t len,
                             struct blasd_err *err);

#endif
