/* Validators of what a GET answers: the tag of a representation, and whether the client has that
 * one already (RFC 9110, 13). An exchange has a tag where its answer never changes under its path:
 * an output, a tensor, a page. Read next: reply.h. */
#ifndef BLASD_HTTP_ETAG_H
#define BLASD_HTTP_ETAG_H

#include "http/exchange.h"

#define HTTP_TAG 180 /* bytes of an ETag */

/* Whether the path names one output, or a tensor, which never changes under it. */
bool http_etag_is_output(const struct http_exchange *exchange);
/* Where it does, gives the answer its tag in that format. */
void http_etag_of_output(struct http_exchange *exchange, enum blasd_format format);
/* Cuts an output to the range that is asked for, if one is, and the client has the representation
 * that If-Range names. Of other methods than GET a range says nothing. Takes the answer, which may
 * be NULL, and returns it; NULL with `err` filled: range_not_satisfiable. */
struct blasd_answer *http_etag_cut(struct http_exchange *exchange, struct blasd_answer *answer,
                                   struct blasd_err *err);
/* Whether an answer of this status has a tag. */
bool http_etag_counts(const struct http_exchange *exchange, unsigned status);
/* Writes the ETag of what is sent, as it is or compressed; whether the client has that one. */
bool http_etag_held(const struct http_exchange *exchange, bool packed, char tag[HTTP_TAG]);

#endif
