/* The life of one request, as libmicrohttpd calls it. Read next: routes.h. */
#ifndef BLASD_HTTP_DISPATCH_H
#define BLASD_HTTP_DISPATCH_H

#include "http/exchange.h"

/* Whether libmicrohttpd can be told to look at the lines of a head itself (head.h, server.c). */
#define HTTP_STRICT_LIBRARY (MHD_VERSION >= 0x00097701)

/* libmicrohttpd's callbacks; cls is the loop. */
enum MHD_Result http_exchange_handle(void *cls, struct MHD_Connection *connection, const char *url,
                                     const char *method, const char *version, const char *upload,
                                     size_t *upload_size, void **context);
void *http_exchange_uri(void *cls, const char *uri, struct MHD_Connection *connection);
void http_exchange_completed(void *cls, struct MHD_Connection *connection, void **context,
                             enum MHD_RequestTerminationCode code);
/* Called a few times a second: from then on a client that leaves in the middle of its request, or
 * while it waits, is noticed. Most requests are over before that and cost no system call for it. */
void http_exchange_check(struct http_exchange *exchange);

#endif
