/* What is noted of a request: that it begins, with the trace it is a part of, and that it was
 * answered: counted, a span, a line in the access log. Read next: metrics.h. */
#ifndef BLASD_HTTP_ANSWERED_H
#define BLASD_HTTP_ANSWERED_H

#include "http/exchange.h"

/* The head was read: whose trace this is, or the begin of one. */
void http_request_traced(struct http_exchange *exchange);
/* The answer goes out. */
void http_request_answered(struct http_exchange *exchange);
/* The line of the access log, where one is kept. */
void http_log_access(struct http_exchange *exchange, unsigned status);

#endif
