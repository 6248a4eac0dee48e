/* A connection to Redis that another process makes and watches over, its guard, so that this one
 * needs no password and can send nothing that it should not. A guard is asked over one socket for
 * any number of connections; what the client of such a one may send is told where guards are made.
 *
 * Read next: relay.h, ../main/guard.h. */
#ifndef BLASD_REDIS_GUARDED_H
#define BLASD_REDIS_GUARDED_H

#include "redis/redis_link.h"

/* What is asked, as one message, with one end of a pair of sockets; the connection's first reply
 * says what has become of it. Both are of the same program. */
struct blasd_guard_ask {
    char tag[BLASD_LINK_NAME_MAX + 2]; /* the queue's, "{QUEUE}" */
    int timeout_ms;                    /* for each server on the way */
};

/* Asks the guard behind address->guard; as blasd_link_connect. internal_error where the guard has
 * ended, too. */
int blasd_guarded_connect(const struct blasd_link_address *address, int timeout_ms,
                          redisContext **ret, struct blasd_err *err);

/* The guard's side: receives one question, whose end of the pair is *client, the caller's. 1; 0:
 * nobody will ask any more; -1: it was none, and nothing is held. */
int blasd_guard_receive(int guard, struct blasd_guard_ask *ret, int *client);
/* Tells the client of that what blasd_link_connect has returned, and `err` why. */
void blasd_guard_tell(int client, int rc, const struct blasd_err *err);

#endif
