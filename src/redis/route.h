/* The way to the server that has the queue, from whichever address was given: through what servers
 * of a cluster (MOVED) and Sentinels say. Each new connection goes it anew, so that nobody has to
 * be told of a failover or of a slot that was moved.
 *
 * Knows of no kind of connection but the blocking one it can make itself. Read next: caller.c,
 * async_link.c. */
#ifndef BLASD_REDIS_ROUTE_H
#define BLASD_REDIS_ROUTE_H

#include "redis/redis_link.h"

#define BLASD_ROUTE_ON 1 /* what blasd_route_heard returns where another server has to be asked */
#define BLASD_ROUTE_WORDS 3 /* at most, of a question */

/* Zeroed it is ready; `turn` may be set, so that not everybody asks the first address first. */
struct blasd_route {
    const struct blasd_link_address *address; /* borrowed */
    struct blasd_link_place to; /* connect there; host "": to the address' unix socket */
    bool sentinel; /* what is there is no server: it is asked, and has neither users nor databases
                      that the address tells of */
    unsigned turn; /* which of the address' places is next */
    int hops;
};

/* Sets out from the next of the places. */
void blasd_route_begin(struct blasd_route *route, const struct blasd_link_address *address);
/* The first command on a connection to `to`, behind AUTH and SELECT; returns how many words. */
int blasd_route_question(const struct blasd_route *route, const char *words[BLASD_ROUTE_WORDS]);
/* The reply to it. 0: this is the server; BLASD_ROUTE_ON: connect to what is `to` now, and ask
 * again; else a negative code: queue_unavailable where another place, or a later time, may help. */
int blasd_route_heard(struct blasd_route *route, const redisReply *reply, struct blasd_err *err);

/* Connects to the server that has the queue, waiting, and authenticates and selects the database.
 * New: free with redisFree. `timeout_ms` is for each server on the way. queue_unavailable where
 * nobody answers in time; internal_error where the password is wrong. */
int blasd_link_connect(const struct blasd_link_address *address, int timeout_ms, redisContext **ret,
                       struct blasd_err *err);

#endif
