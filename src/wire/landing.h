/* Where a tensor of a request comes down: its name and description, and its bytes on their way to
 * the sink. Every body format lands its tensors here.
 *
 * Looks at each element once as it passes (NaN and infinities, bytes that are no bool, byte order;
 * where some operation's input of this name states a range, signs and zeros) and keeps none. Knows
 * no format. Read next: envelope.h for the rest of a request. */
#ifndef BLASD_WIRE_LANDING_H
#define BLASD_WIRE_LANDING_H

#include "wire/intake.h"

/* The operation may be named after the tensors, so a few more than any operation takes are held
 * before their names can be checked. */
#define BLASD_ARRIVALS_MAX (BLASD_MAX_INPUTS + 8)

struct blasd_arrival {
    char name[BLASD_NAME_MAX]; /* printable ASCII */
    struct blasd_input input;
};

/* The tensors of one request by name. Owns nothing. */
struct blasd_arrivals {
    struct blasd_sink *sink; /* borrowed */
    int count;
    struct blasd_arrival items[BLASD_ARRIVALS_MAX];
};

/* Adds a tensor that is still to be described. *ret is borrowed. Refuses a name that was there
 * before (invalid_field), one that no operation can have, and too many (unknown_input). */
int blasd_arrivals_add(struct blasd_arrivals *arrivals, const char *name, size_t len,
                       struct blasd_arrival **ret, struct blasd_err *err);

/* One tensor coming down. A plain value; owns nothing. */
struct blasd_landing {
    struct blasd_sink *sink;     /* borrowed */
    struct blasd_arrival *to;    /* borrowed */
    const struct blasd_scan *by; /* what to look for in the elements; NULL: nothing */
    unsigned values;             /* BLASD_VALUES_* to look for as well */
    uint64_t offset, left;       /* in the payload; bytes still to come */
    unsigned size;               /* bytes an element, or of complex ones a part */
    int parts;                   /* floats in an element: 2 of complex dtypes */
    bool swap;                   /* the elements come big-endian */
    int64_t index;               /* elements (parts) looked at so far */
    unsigned part_len;           /* bytes of an element split between two pieces */
    unsigned char part[8];
};

/* Reserves `bytes` for `to`, whose tensor.dtype is known, and makes the landing ready for them.
 * `look`: search for NaN, infinities and bad bools; false where the caller knows of them. */
int blasd_landing_begin(struct blasd_landing *landing, struct blasd_sink *sink,
                        struct blasd_arrival *to, uint64_t bytes, bool look, bool swap,
                        struct blasd_err *err);
/* Takes the next bytes, at most landing->left. */
int blasd_landing_feed(struct blasd_landing *landing, const void *bytes, size_t len,
                       struct blasd_err *err);

#endif
