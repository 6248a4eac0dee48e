/* GET /events: what becomes of jobs, as server-sent events (the HTML standard's text/event-stream).
 *
 * The first loop hears the events (events.h) while any loop has a stream; each loop
 * looks ten times a second what there is for its own. */
#ifndef BLASD_HTTP_EVENT_STREAMS_H
#define BLASD_HTTP_EVENT_STREAMS_H

#include "http/exchange.h"

/* http_events_get is in jobs.h. */
/* In each tick of the first loop: hears, or no longer, and asks how the devices fare. */
void http_event_streams_tick(struct http_loop *first);
/* The queue's hook. `arg`: the first loop. */
void http_event_streams_event(void *arg, const struct blasd_queue_event *told);

#endif
