/* What the client's own files share; not for its users. */
#ifndef BLASD_CLIENT_INTERNAL_H
#define BLASD_CLIENT_INTERNAL_H

#include "clients/c/blasd.h"

#include <jansson.h>

#define BLASD_REPLY_ARRAYS 64

struct blasd_reply {
    unsigned char *body; /* owned: what the service sent; arrays point into it */
    size_t len;
    json_t *document; /* owned: the job document */
    json_t *header;   /* owned: the safetensors header, which owns the names; NULL for JSON */
    char *text;       /* owned: the document as text */
    struct blasd_array arrays[BLASD_REPLY_ARRAYS];
    int array_count;
};

/* The safetensors dtype code of a NumPy name and back, with the element's size; NULL: unknown. */
const char *blasd_dtype_code(const char *name, size_t *size);
const char *blasd_dtype_of_code(const char *code, size_t *size);

/* The safetensors header (its length in front) of a request. New, for free(); NULL and `problem`
 * where the request is not well formed. */
unsigned char *blasd_request_header(const struct blasd_request *request, size_t *len,
                                    uint64_t *data_bytes, struct blasd_problem *problem);
/* Makes a reply of a body, which it takes over also where it fails. */
struct blasd_reply *blasd_reply_parse(unsigned char *body, size_t len, bool safetensors,
                                      struct blasd_problem *problem);
/* Fills `problem` from a problem document (or whatever the body is). */
void blasd_problem_parse(struct blasd_problem *problem, long status, const void *body, size_t len);
/* The same from a JSON value; NULL is taken. */
void blasd_problem_from(struct blasd_problem *problem, const json_t *document);
int blasd_problem_set(struct blasd_problem *problem, const char *code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

#endif
