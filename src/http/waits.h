/* Waiting for jobs to end: which exchange waits for which job, on one loop. */
#ifndef BLASD_HTTP_WAITS_H
#define BLASD_HTTP_WAITS_H

#include "http/exchange.h"

/* Enters the exchange under exchange->id and starts the clock: after `seconds` (0: no clock)
 * http_waits_timed_out answers with the record as it stands and exchange->wait_status. */
void http_waits_add(struct http_exchange *exchange, double seconds);
/* Moves it to another id. */
void http_waits_rename(struct http_exchange *exchange, const char *id);
/* Takes it out, if it is in; tells the queue where nobody waits for the job any more. */
void http_waits_remove(struct http_exchange *exchange);
/* The time is up (or the service ends): answers with the record as it stands. */
void http_waits_time_up(struct http_exchange *exchange);
/* The queue's hook: answers everybody who waits for the job. */
void http_waits_ended(void *arg, const char *id, const void *record, size_t len);
/* The queue's hook: logs a job that no worker and no request has ended. */
void http_waits_unseen(void *arg, const char *line, size_t len);

#endif
