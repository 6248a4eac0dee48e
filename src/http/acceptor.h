/* Takes new connections in: so many, and so many of one address; libmicrohttpd can limit both, but
 * closes without a word. Here the client gets a 503. If all places are taken, addresses share them
 * evenly: a client whose address has fewer than another gets the place of that one's. Each goes to
 * that one of a loop's daemons whose memory suits its first request.
 *
 * libmicrohttpd receives a body in pieces of half of its connection's memory, so large ones want
 * much of it, and clears all of it after each request, so small ones want little; it is fixed from
 * the beginning. So the kernel is asked for connections whose first bytes are there, and these are
 * looked at and left where they are. It is a guess: each daemon serves any request.
 * Knows nothing of requests. Read next: server.c. */
#ifndef BLASD_HTTP_ACCEPTOR_H
#define BLASD_HTTP_ACCEPTOR_H

#include "base/loop.h"

#include <microhttpd.h>
#include <stdbool.h>
#include <stdint.h>

#define HTTP_CROWD_SLOTS 4096

/* Counts connections by where they come from (http_peer_part). A place counts in two slots that a
 * secret seed chooses, and has no more connections than the lesser of them: that two clients share
 * both does not happen. */
struct http_crowd {
    uint64_t seed;
    uint32_t slots[2][HTTP_CROWD_SLOTS];
};

void http_crowd_count(struct http_crowd *crowd, uint64_t part, bool began);
/* Connections of that place; 0 for the part 0. */
uint32_t http_crowd_of(const struct http_crowd *crowd, uint64_t part);

/* What the memory of a connection suits. */
enum http_memory { HTTP_SMALL_POSTS, HTTP_ANY_REQUEST, HTTP_LARGE_BODIES, HTTP_MEMORIES };

/* One of a loop's daemons. */
struct http_daemon {
    struct MHD_Daemon *daemon; /* owned by the loop; must stand until http_acceptor_free */
    struct blasd_watcher watcher;
    uint64_t open;  /* connections */
    uint64_t given; /* to it since the last turn: it may not have counted them yet */
    bool fired;     /* its descriptor, since it was run last */
};

struct http_acceptor {
    struct blasd_loop *loop; /* borrowed */
    struct http_daemon daemons[HTTP_MEMORIES];
    struct blasd_watcher listener; /* its fd is owned; -1: closed */
    uint64_t limit;                /* connections, in all */
    uint64_t limit_of_one;         /* of one address */
    uint64_t largest; /* connections of the address that has most, since the tick; 0: not looked */
    uint64_t cut;     /* connections that make_room has cut and that are still open */
    int reserve; /* owned; a descriptor that is closed to answer a client when no other is left */
    struct http_crowd crowd;
    uint64_t begun; /* connections that there were */
    /* Answers that there are too many, of the address or (NULL) in all, and takes the socket. */
    void (*refuse)(void *arg, int fd, const struct sockaddr *address);
    /* Cuts connections of the address that has most, which it counts in `cut`, for one that has
     * `own`. False: there are none to cut. */
    bool (*make_room)(void *arg, uint64_t own);
    void *arg;
    bool paused;          /* the listener is not watched */
    _Atomic bool starved; /* no descriptor is left, and no reserve */
};

/* Starts taking connections of `listen_fd`; the daemons, the limits, `refuse` and `arg` are set. 0,
 * or -1 with errno; the socket is taken either way. */
int http_acceptor_open(struct http_acceptor *acceptor, struct blasd_loop *loop, int listen_fd);
/* Sets the connections that descriptors are left for, of `loops` loops, once all are open. */
uint64_t http_acceptor_afford(uint64_t limit, int loops);
/* Several times a second: a descriptor may be free again. */
void http_acceptor_tick(struct http_acceptor *acceptor);
/* Once in each turn, after the daemons have run. */
void http_acceptor_turn(struct http_acceptor *acceptor);
/* A daemon begins or ends with a connection. */
void http_acceptor_count(struct http_acceptor *acceptor, struct MHD_Connection *connection,
                         bool begins);
/* Whether the daemon has anything to do. */
static inline bool http_daemon_busy(const struct http_daemon *daemon) {
    return daemon->open + daemon->given > 0;
}
/* Takes no new connections any more, but for those that the kernel has accepted. */
void http_acceptor_close(struct http_acceptor *acceptor);
/* Takes one that was never opened, zeroed but for listener.fd. */
void http_acceptor_free(struct http_acceptor *acceptor);

#endif
