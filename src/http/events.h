/* What becomes of jobs, for the readers of GET /events: each has a buffer, to which events that it
 * wants are added as they are heard, and which its loop takes away. Nothing is kept for a reader
 * that is not there. A reader that is too slow finds that some events are lost, and holds up no
 * other. Knows nothing of HTTP. Read next: event_streams.h. */
#ifndef BLASD_HTTP_EVENTS_H
#define BLASD_HTTP_EVENTS_H

#include "base/buf.h"
#include "base/list.h"
#include "core/record.h"
#include "queue/front_queue.h"

#include <stdbool.h>
#include <stdint.h>

#define HTTP_EVENTS_WAITING ((size_t)4 * 1024 * 1024) /* bytes, until a reader takes them */

struct http_events;

/* Jobs are told of with what they cost by `prices`, which is borrowed, or NULL. A reader is told of
 * `rate` events a second at the most. NULL: no memory. */
struct http_events *http_events_new(uint64_t rate, const struct blasd_prices *prices);
void http_events_free(struct http_events *events); /* takes NULL */

/* A reader, which stays where it is until http_events_leave. The first part is its owner's to set
 * before http_events_join. */
struct http_events_reader {
    char tenant[BLASD_TENANT_MAX];
    const char *op; /* of this operation alone; NULL: any. Borrowed */
    int state;      /* in this state alone; -1: any */

    /* under the lock of the events */
    struct blasd_list node;
    bool hears;            /* since its first event */
    bool all;              /* it may know what everybody has the devices do */
    struct blasd_buf text; /* server-sent events that it has not taken */
    uint64_t told, lost;   /* in this second; since the last that was told */
    int64_t second;
    bool unheard; /* there was no hearing for a while */
};

/* Counts a reader in, if there are fewer than `most`, and fewer than `most_of_one` of its
 * tenant's. */
bool http_events_join(struct http_events *events, struct http_events_reader *reader, uint64_t most,
                      uint64_t most_of_one);
void http_events_leave(struct http_events *events, struct http_events_reader *reader);
/* How many there are. */
int http_events_readers(struct http_events *events);
/* From here on the reader is told of everything; false where nothing is heard yet. */
bool http_events_begin(struct http_events *events, struct http_events_reader *reader);
/* Moves what is new to `text`, which is empty. `all` is the reader's from here on. */
void http_events_take(struct http_events *events, struct http_events_reader *reader, bool all,
                      struct blasd_buf *text);

/* From the thread that hears them: one more, or that there was no hearing for a while. */
void http_events_add(struct http_events *events, const struct blasd_queue_event *told);
/* Nothing is heard any more; false where there is a reader. */
bool http_events_end(struct http_events *events);
/* How the devices fare, told anew each second, as JSON; taken over. */
void http_events_devices(struct http_events *events, char *all, char *few);

#endif
