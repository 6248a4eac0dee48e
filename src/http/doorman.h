/* Takes new connections in, and gives each to that one of a loop's libmicrohttpd daemons whose
 * memory suits its first request.
 *
 * A large body is received in pieces of half of its connection's memory, so it wants much of it; a
 * small request wants little, for all of that memory is cleared each time. The memory is fixed when
 * libmicrohttpd gets the connection. So the first bytes are looked at, and left in the socket,
 * before it does. A guess is all that is made from them: each daemon serves any request.
 * Knows nothing of requests. Read next: server.c. */
#ifndef BLASD_HTTP_DOORMAN_H
#define BLASD_HTTP_DOORMAN_H

#include "base/loop.h"

#include <microhttpd.h>
#include <stdbool.h>
#include <stdint.h>

struct http_newcomer;

#define HTTP_CROWD_SLOTS 4096

/* Connections by the address that they come from, without its port; of IPv6 by its /64. An address
 * counts in two slots that a secret seed chooses, and has no more connections than the lesser of
 * them: that somebody shares both with a crowd does not happen. */
struct http_crowd {
    uint64_t seed;
    uint32_t slots[2][HTTP_CROWD_SLOTS];
};

void http_crowd_count(struct http_crowd *crowd, const struct sockaddr *address, bool began);
/* Connections of that address; 0 for what has none, such as a unix socket. */
uint32_t http_crowd_of(const struct http_crowd *crowd, const struct sockaddr *address);

/* The daemons, by the memory of a connection. */
enum http_room { HTTP_TIGHT, HTTP_USUAL, HTTP_ROOMY, HTTP_ROOMS };

struct http_doorman {
    struct blasd_loop *loop;                /* borrowed */
    struct MHD_Daemon *daemons[HTTP_ROOMS]; /* borrowed; NULL: the usual one, which is there,
                                               serves in its place */
    struct blasd_watcher listener;          /* its fd is owned; -1: closed */
    struct http_newcomer *oldest, *newest;  /* connections whose first bytes are still to come */
    uint64_t limit;                         /* connections, of all daemons and newcomers */
    uint64_t limit_of_one;                  /* of one address */
    struct http_crowd crowd;
    uint64_t begun; /* connections that the daemons have had */
    /* Tells who has too many; the socket is taken. */
    void (*refuse)(void *arg, int fd, const struct sockaddr *address);
    void *arg;
    uint64_t waiting;            /* newcomers */
    uint64_t open[HTTP_ROOMS];   /* connections that the daemons have */
    uint64_t handed[HTTP_ROOMS]; /* given to them since the last turn */
    bool paused;                 /* the listener is not watched */
    bool starved;                /* for the system had no descriptor left */
};

/* Starts taking connections of `listen_fd`; the limits, `refuse` and `arg` are set. Until
 * http_doorman_free the daemons must stand. 0, or -1 with errno; the socket is taken either way. */
int http_doorman_open(struct http_doorman *doorman, struct blasd_loop *loop, int listen_fd);
/* Once in each turn, after the daemons have run. */
void http_doorman_turn(struct http_doorman *doorman);
/* A few times a second: who has said nothing for a while goes to the usual daemon, where the
 * time-out of idle connections holds. */
void http_doorman_tick(struct http_doorman *doorman);
/* A daemon began or ended with a connection. */
void http_doorman_count(struct http_doorman *doorman, struct MHD_Connection *connection,
                        bool began);
/* Whether that daemon has anything to do. */
static inline bool http_doorman_busy(const struct http_doorman *doorman, enum http_room room) {
    return doorman->open[room] + doorman->handed[room] > 0;
}
/* Takes no new connections any more, but for those that the kernel has accepted. */
void http_doorman_close(struct http_doorman *doorman);
void http_doorman_free(struct http_doorman *doorman); /* takes one that was never opened, zeroed
                                                         but for listener.fd */

#endif
