/* Bodies that are compressed on their way: gzip and deflate (zlib's form), both directions. Pure.
 * Read next: reply.c and results.c for answers, jobs_post.c for requests. */
#ifndef BLASD_HTTP_CODING_H
#define BLASD_HTTP_CODING_H

#include "base/buf.h"
#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum http_coding { HTTP_CODING_NONE, HTTP_CODING_GZIP, HTTP_CODING_DEFLATE };

/* "gzip", "deflate", as headers say it. */
const char *http_coding_name(enum http_coding coding);
/* Reads Content-Encoding; false where it names another one, or several. */
bool http_coding_find(const char *name, enum http_coding *ret);
/* The one of ours that an Accept-Encoding header likes best. */
enum http_coding http_coding_accepted(const char *value);

/* Whether a whole body of that length may be: a short one goes as it is. */
bool http_coding_suits(size_t len);
/* Compresses a whole body in place, where that makes it shorter; whether it did. */
bool http_coding_pack(enum http_coding coding, struct blasd_buf *body);

/* One stream, of either direction, and the memory that it has, zlib's with it. */
#define HTTP_UNPACKER_BYTES (UINT64_C(112) << 10)
#define HTTP_PACKER_BYTES (UINT64_C(336) << 10)
struct http_stream;
struct http_stream *http_unpacker_new(enum http_coding coding); /* NULL: no memory */
struct http_stream *http_packer_new(enum http_coding coding);
void http_stream_free(struct http_stream *stream); /* takes NULL */

/* Unpacks the next piece of a body and hands what comes out to `take`, in pieces; its error ends
 * it. No more than `most` bytes come out in all (body_too_large). malformed_query where it is not
 * so compressed. A thousand times as much as comes in may come out: one call stops behind the first
 * HTTP_UNPACK_TURN bytes, and *used is how far it came; the rest is to be given to the next. */
#define HTTP_UNPACK_TURN ((size_t)1 << 20) /* a millisecond or two, with what is done with it */
int http_unpack(struct http_stream *stream, const void *bytes, size_t len, size_t *used,
                uint64_t most,
                int (*take)(void *arg, const void *bytes, size_t len, struct blasd_err *err),
                void *arg, struct blasd_err *err);
/* Bytes that have come out so far. */
uint64_t http_unpacked(const struct http_stream *stream);
/* Whether the body has come to its end. */
int http_unpack_end(const struct http_stream *stream, struct blasd_err *err);
/* Fills `out` with compressed bytes of what `give` gives, which gives 0 at the end. Hundreds
 * of times as much as comes out may go in: one call stops behind the first HTTP_PACK_TURN bytes,
 * also where nothing has come out yet. */
#define HTTP_PACK_TURN ((size_t)262144)
size_t http_pack_read(struct http_stream *stream, size_t (*give)(void *arg, char *out, size_t max),
                      void *arg, char *out, size_t max);
/* Whether all of it has come out. */
bool http_pack_ended(const struct http_stream *stream);

#endif
