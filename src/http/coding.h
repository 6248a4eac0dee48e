/* Bodies of requests that come compressed: gzip and deflate (zlib's form). Answers go as they are,
 * but for pages, which are compressed when this is built. Pure. Read next: jobs_post.c. */
#ifndef BLASD_HTTP_CODING_H
#define BLASD_HTTP_CODING_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum http_coding { HTTP_CODING_NONE, HTTP_CODING_GZIP, HTTP_CODING_DEFLATE };

/* Reads Content-Encoding; false where it names another one, or several. */
bool http_coding_find(const char *name, enum http_coding *ret);
/* Whether a client that sends this Accept-Encoding takes gzip. */
bool http_coding_takes_gzip(const char *value);

/* A body that is unpacked, and the memory that it has, zlib's with it. */
#define HTTP_UNPACKER_BYTES (UINT64_C(112) << 10)
struct http_unpacker;
struct http_unpacker *http_unpacker_new(enum http_coding coding); /* NULL: no memory */
void http_unpacker_free(struct http_unpacker *unpacker);          /* takes NULL */

/* Unpacks the next piece of a body and hands what comes out to `take`, in pieces; its error ends
 * it. No more than `most` bytes come out in all (body_too_large). malformed_query where it is not
 * so compressed. A thousand times as much as comes in may come out: one call stops behind the first
 * HTTP_UNPACK_TURN bytes, and *used is how far it came; the rest is to be given to the next. */
#define HTTP_UNPACK_TURN ((size_t)1 << 20) /* a millisecond or two, with what is done with it */
int http_unpack(struct http_unpacker *unpacker, const void *bytes, size_t len, size_t *used,
                uint64_t most,
                int (*take)(void *arg, const void *bytes, size_t len, struct blasd_err *err),
                void *arg, struct blasd_err *err);
/* Bytes that have come out so far. */
uint64_t http_unpacked(const struct http_unpacker *unpacker);
/* Whether the body has come to its end. */
int http_unpack_end(const struct http_unpacker *unpacker, struct blasd_err *err);

#endif
