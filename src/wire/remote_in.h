/* Inputs that lie at a URL: what a request says of one, and the reader of its bytes, which somebody
 * else fetches. Knows nothing of the network. Read next: ../http/remote_inputs.h. */
#ifndef BLASD_WIRE_REMOTE_IN_H
#define BLASD_WIRE_REMOTE_IN_H

#include "wire/body_reader.h"
#include "wire/json_text.h"

/* {"url":URL}, a .npy file; or with "dtype" and "shape", bytes and nothing else. */
struct blasd_remote {
    char *url;  /* owned */
    bool plain; /* bytes and nothing else, which are `raw` */
    bool typed; /* its dtype was sent; what is there must have it */
    enum blasd_dtype dtype;
    struct blasd_tensor raw;
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
/* What is at the URL has `size` bytes. */
int blasd_remote_in_size(struct blasd_remote_in *in, uint64_t size, struct blasd_err *err);
int blasd_remote_in_feed(struct blasd_remote_in *in, const char *bytes, size_t len,
                         struct blasd_err *err);
/* All of it has come: the input is as if it had come with the request. */
int blasd_remote_in_finish(struct blasd_remote_in *in, struct blasd_err *err);
/* Ends what the inputs own: where they are still to be fetched from, and what they refer by. */
void blasd_named_inputs_release(struct blasd_named_inputs *inputs);

#endif
