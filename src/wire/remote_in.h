/* Inputs that lie at a URL: what a request says of one, and the reader of its bytes, which somebody
 * else fetches. Knows nothing of the network. Read next: ../http/remote_inputs.h. */
#ifndef BLASD_WIRE_REMOTE_IN_H
#define BLASD_WIRE_REMOTE_IN_H

#include "wire/body_reader.h"
#include "wire/json_text.h"

enum blasd_remote_format { BLASD_REMOTE_NPY, BLASD_REMOTE_SAFETENSORS, BLASD_REMOTE_RAW };

/* {"url":URL} (a .npy file), with "tensor":NAME (of a safetensors file), or with "dtype" and
 * "shape" (bytes and nothing else); each with "slice" or without. */
struct blasd_remote {
    json_t *url, *tensor; /* strings, owned; `tensor` NULL but of a safetensors file */
    enum blasd_remote_format format;
    bool typed; /* its dtype was sent; what is there must have it */
    enum blasd_dtype dtype;
    struct blasd_tensor raw;      /* what the bytes are, of that format */
    struct blasd_reference slice; /* what of it is meant: has to lie in one piece */
};

void blasd_remote_free(struct blasd_remote *remote); /* takes NULL */

struct blasd_remote_in;

/* The inputs of `body` that lie at URLs, one after the other. New: free with blasd_remote_in_free.
 * `body` is borrowed; *ret is NULL where there are none. */
int blasd_remote_in_new(const struct blasd_body *body, struct blasd_remote_in **ret,
                        struct blasd_err *err);
void blasd_remote_in_free(struct blasd_remote_in *in); /* takes NULL */
/* Goes on to the next input; its URL, borrowed, or NULL where there is none left. */
const char *blasd_remote_in_next(struct blasd_remote_in *in);
/* "inputs.NAME", of the input in hand; borrowed. */
const char *blasd_remote_in_field(const struct blasd_remote_in *in);
/* What is at the URL has `size` bytes, of which those from *at to *end are wanted first. */
int blasd_remote_in_size(struct blasd_remote_in *in, uint64_t size, uint64_t *at, uint64_t *end,
                         struct blasd_err *err);
/* Takes the bytes from *at on, no more than to *end; then says which are wanted next. */
int blasd_remote_in_feed(struct blasd_remote_in *in, const char *bytes, size_t len, uint64_t *at,
                         uint64_t *end, struct blasd_err *err);
/* All that was wanted has come: the input is as if it had come with the request. */
int blasd_remote_in_finish(struct blasd_remote_in *in, struct blasd_err *err);

#endif
