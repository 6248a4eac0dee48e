/* Validators of what a GET answers: the tag of a representation, and whether the client has that
 * one already (RFC 9110, 13). An exchange has a tag where its answer never changes under its path:
 * an output, a tensor, a page. Read next: reply.h. */
#ifndef BLASD_HTTP_ETAG_H
#define BLASD_HTTP_ETAG_H

#include "http/exchange.h"

#define HTTP_TAG 180 /* bytes of an ETag */

/* Gives the answer the tag of the output, or tensor, that its path names, in its format. */
void http_etag_of_output(struct http_exchange *exchange, const char *type);
/* Whether a range of the answer may be sent: the client has the representation with that tag. */
bool http_etag_allows_range(const struct http_exchange *exchange);
/* Whether an answer of this status has a tag. */
bool http_etag_counts(const struct http_exchange *exchange, unsigned status);
/* Writes the ETag of what is sent, as it is or compressed; whether the client has that one. */
bool http_etag_held(const struct http_exchange *exchange, bool packed, char tag[HTTP_TAG]);

#endif
