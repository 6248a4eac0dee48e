/* What an input refers to that lies in the blob store already: a tensor that is kept, or an output
 * of a job; and which part of it. What of a job's outputs is kept. Read next: job.h.
 */
#ifndef BLASD_CORE_REFERENCE_H
#define BLASD_CORE_REFERENCE_H

#include "base/id.h"
#include "core/op.h"

#define BLASD_SLICE_OPEN INT64_MIN /* `from` and `to` of a slice: there is no bound */

/* A plain value; owns nothing. */
struct blasd_reference {
    char id[BLASD_ID_LEN + 1]; /* of the tensor, or of the job */
    char output[64];           /* of that job */
    char field[64];            /* where it stands in the request; no part of a stored job */
    bool typed;                /* the input's dtype was sent, and what it refers to must have it */
    int sliced;                /* how many lengths `from` and `to` bound; 0: all of it is meant */
    /* As they were sent; once it is resolved, of a part that does not lie in one piece, `to` says
     * how many elements lie from one index to the next, for each length, and `sliced` is the rank.
     */
    int64_t from[BLASD_MAX_RANK], to[BLASD_MAX_RANK];
    uint64_t blob_bytes; /* once it is resolved: what the blob has at the least */
};

/* Resolves a reference to `whole`, which begins at byte `offset` of its blob: describes in `part`
 * what is meant, and says where that begins, *at. Errors, about `field`: invalid_reference. */
int blasd_reference_resolve(struct blasd_reference *reference, const struct blasd_tensor *whole,
                            uint64_t offset, struct blasd_tensor *part, uint64_t *at,
                            const char *field, struct blasd_err *err);
/* One past the last byte of the part, counted from its begin. */
uint64_t blasd_reference_extent(const struct blasd_reference *reference,
                                const struct blasd_tensor *part);
/* Copies a part that does not lie in one piece, from its begin, to where it does, row-major. */
void blasd_reference_gather(const struct blasd_reference *reference, const void *from,
                            struct blasd_tensor *to);
/* Copies one that does. Like the other, it leaves off once it is not wanted any more. */
void blasd_reference_copy(const void *from, uint64_t bytes, void *to);

/* Outputs that become tensors, and those that are not sent. Zeroed: none. */
struct blasd_keeping {
    uint64_t keep, withhold; /* by position in op->outputs */
    uint32_t life_s;         /* of the tensors */
    /* The last part of each tensor's id; the rest is that of the job's, but for the kind. */
    char ids[BLASD_MAX_OUTPUTS][BLASD_ID_LEN - BLASD_ID_ENTRY + 1];
};

static inline bool blasd_keeps(const struct blasd_keeping *keeping, int output) {
    return keeping->keep >> output & 1;
}
static inline bool blasd_withholds(const struct blasd_keeping *keeping, int output) {
    return keeping->withhold >> output & 1;
}
/* The id of the tensor that the output becomes. */
void blasd_keeping_id(const struct blasd_keeping *keeping, const char *job, int output,
                      char id[BLASD_ID_LEN + 1]);

#define BLASD_SHA256_MAX 65

/* What is known of a tensor that is kept. */
struct blasd_stored_tensor {
    char id[BLASD_ID_LEN + 1];
    struct blasd_tensor tensor;
    uint64_t bytes, life_s;
    int64_t created_us, used_us, expires_us;
    char sha256[BLASD_SHA256_MAX]; /* of its bytes, in hexadecimal; "": nobody asked for it */
    char device[16];               /* that has a copy, too, as it said a moment ago; "": none */
};

/* What the blob of a tensor of so many bytes has: none is empty. */
static inline uint64_t blasd_stored_bytes(uint64_t bytes) {
    return bytes < BLASD_ALIGN ? BLASD_ALIGN : bytes;
}

#define BLASD_FORM_MAX 208

/* dtype, order and shape as a text without tabs, "float64 0 2 3"; returns it. */
const char *blasd_form_write(const struct blasd_tensor *tensor, char form[BLASD_FORM_MAX]);
/* False where the text is none. */
bool blasd_form_read(const char *form, struct blasd_tensor *tensor);

#endif
