/* Waiting for a job to end. */
#ifndef BLASD_HTTP_WAITERS_H
#define BLASD_HTTP_WAITERS_H

#include "http/exchange.h"

/* The exchange waits from now on, for `seconds`, until http_exchange_wait_end: its waiter is to be
 * given to the queue. When the time is up the answer is the record as it stands. */
void http_wait_begin(struct http_exchange *exchange, double seconds);
/* The time is up (or the service ends). */
void http_wait_time_up(struct http_exchange *exchange);
/* The queue's hook: tells in the log, and to the collector of spans, of a job that no worker has
 * ended; `arg` is the loop. */
void http_tell_unseen(void *arg, const char *line, size_t len);

#endif
