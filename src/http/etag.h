/* Validators of what a GET answers: the tag of a representation, and whether the client has that
 * one already (RFC 9110, 13). An exchange has a tag where its answer never changes under its path:
 * an output, a tensor, a page. Read next: reply.h. */
#ifndef BLASD_HTTP_ETAG_H
#define BLASD_HTTP_ETAG_H

#include "http/exchange.h"

/* Gives the answer the tag of the output, or tensor, that its path names, in its format. */
void http_etag_of_output(struct http_exchange *exchange, const char *type);
/* Whether a range of the answer may be sent: the client has the representation with that tag. */
bool http_etag_allows_range(const struct http_exchange *exchange);
/* Adds the tag to an answer of status 200 or 206, and makes it a 304 if the client has that one.
 * Takes the response, which may be NULL. */
struct MHD_Response *http_etag_apply(const struct http_exchange *exchange, unsigned *status,
                                     struct MHD_Response *response);

#endif
