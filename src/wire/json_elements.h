/* The elements of a tensor as nested JSON lists, written in pieces of any size.
 *
 * Nothing is built whole: a piece is as long as the room the caller gives. Read next: answer.c. */
#ifndef BLASD_WIRE_JSON_ELEMENTS_H
#define BLASD_WIRE_JSON_ELEMENTS_H

#include "core/tensor.h"

/* A plain value; owns nothing. */
struct json_elements {
    const unsigned char *data; /* borrowed: row-major, of any alignment */
    enum blasd_dtype dtype;    /* that of a part where elements are complex */
    size_t size;               /* bytes an element */
    int rank; /* of the lists: for a tensor without elements, dimensions before the first 0 */
    int64_t shape[BLASD_MAX_RANK + 1]; /* of complex tensors with the pair of parts behind */
    int64_t index[BLASD_MAX_RANK + 1];
    int64_t left;   /* elements to be written */
    bool hollow;    /* the tensor has no elements: those counted are lists, each "[]" */
    bool begun;     /* the opening brackets are written */
    char spill[72]; /* one element with its brackets, where the caller's room was smaller */
    unsigned spill_at, spill_len;
};

/* How many numbers or lists the text of `tensor` holds: what it costs to write. */
int64_t json_elements_weight(const struct blasd_tensor *tensor);
void json_elements_init(struct json_elements *writer, const struct blasd_tensor *tensor,
                        const void *data);
/* Writes up to `max` bytes to `out` and fills it unless the text ends; 0 at the end. */
size_t json_elements_read(struct json_elements *writer, char *out, size_t max);

#endif
