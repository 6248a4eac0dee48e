/* What becomes of jobs, kept for a moment for who looks on: the newest events of all tenants, in a
 * ring that all loops share. Nothing needs them: who reads too slowly finds that some are gone, and
 * holds up nobody.
 *
 * Each tenant's events are numbered from when it was first seen, in microseconds since 1970: so a
 * number is known again by the process that gave it, and by no other; a gap says that events were
 * lost, and says nothing about other tenants. Knows nothing of HTTP.
 * Read next: event_streams.h. */
#ifndef BLASD_HTTP_EVENTS_H
#define BLASD_HTTP_EVENTS_H

#include "base/buf.h"
#include "core/record.h"
#include "queue/front_queue.h"

#include <stdbool.h>
#include <stdint.h>

struct http_events;

/* Keeps the `kept` newest ones, once there are any; jobs are told of with what they cost by
 * `prices`, which is borrowed, or NULL. NULL: no memory. */
struct http_events *http_events_new(size_t kept, const struct blasd_prices *prices);
void http_events_free(struct http_events *events); /* takes NULL */

/* From the thread that hears them: one more, or that there was no hearing for a while. */
void http_events_add(struct http_events *events, const struct blasd_queue_event *told);
/* Forgets all of them: nobody reads, and nobody will go on where he stood. */
void http_events_forget(struct http_events *events);
/* Whether what happens is heard, since the last forgetting. */
bool http_events_heard(struct http_events *events);

/* How the devices fare, told anew each second, as JSON; taken over. */
void http_events_set_devices(struct http_events *events, char *all, char *few);

/* Where a reader stands, and what it wants. The first part is the reader's to set. */
struct http_events_reader {
    char tenant[BLASD_TENANT_MAX];
    const char *op;   /* of this operation alone; NULL: any. Borrowed */
    int state;        /* in this state alone; -1: any */
    bool all;         /* it may know what everybody has the devices do */
    uint64_t at;      /* how many events had come before the next one it looks at */
    uint64_t number;  /* of the last one of its tenant's, or the one before its first */
    uint64_t devices; /* the last it was told of */
};

/* Counts a reader in, if there are fewer than `most`, and fewer than `most_of_one` of its tenant's.
 * To be followed by http_events_leave. */
bool http_events_join(struct http_events *events, const char *tenant, uint64_t most,
                      uint64_t most_of_one);
void http_events_leave(struct http_events *events, const char *tenant);
/* How many there are. */
int http_events_readers(struct http_events *events);

/* Sets the reader's place: behind the event number `after`, or, where that is 0, behind all. False
 * where events behind `after` are gone, or it was never given. */
bool http_events_begin(struct http_events *events, struct http_events_reader *reader,
                       uint64_t after);
/* Appends what is new for the reader, of `most` events at the most, as server-sent events; how many
 * these were, or -1 where there is no room for them. */
int http_events_read(struct http_events *events, struct http_events_reader *reader, int most,
                     struct blasd_buf *out);

#endif
