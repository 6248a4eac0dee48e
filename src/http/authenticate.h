/* Who sent a request, and whether they may: decided from its head alone, before any of its body is
 * read. Read next: ../auth/auth.h. */
#ifndef BLASD_HTTP_AUTHENTICATE_H
#define BLASD_HTTP_AUTHENTICATE_H

#include "http/exchange.h"

/* Fills in the caller. The request's route was looked for. 0; or unauthorized, too_many_failures,
 * forbidden or rate_limited, with what belongs in the answer's headers set. */
int http_authenticate(struct http_exchange *exchange, struct blasd_err *err);

#endif
