/* Takes new connections in: so many, and so many of one address; libmicrohttpd can limit both, but
 * closes without a word, and who has too many is told here. Each goes to that one of a loop's
 * daemons whose memory suits its first request.
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

/* The part of an address that somebody else does not have, of IPv6 its /64; false: it has none. */
bool http_address_part(const struct sockaddr *address, uint64_t *part);

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

/* What the memory of a connection suits. */
enum http_memory { HTTP_SMALL_POSTS, HTTP_ANY_REQUEST, HTTP_LARGE_BODIES, HTTP_MEMORIES };

/* One of a loop's daemons. */
struct http_daemon {
    struct MHD_Daemon *daemon; /* owned by the loop; must stand until http_acceptor_free */
    struct blasd_watcher watcher;
    uint64_t open;  /* connections */
    uint64_t given; /* to it since the last turn: it may not have counted them yet */
};

struct http_acceptor {
    struct blasd_loop *loop; /* borrowed */
    struct http_daemon daemons[HTTP_MEMORIES];
    struct blasd_watcher listener; /* its fd is owned; -1: closed */
    uint64_t limit, limit_of_one;  /* connections, in all and of one address */
    struct http_crowd crowd;
    uint64_t begun; /* connections that there were */
    /* Tells who has too many; the socket is taken. */
    void (*refuse)(void *arg, int fd, const struct sockaddr *address);
    void *arg;
    bool paused;  /* the listener is not watched */
    bool starved; /* for the system had no descriptor left */
};

/* Starts taking connections of `listen_fd`; the daemons, the limits, `refuse` and `arg` are set. 0,
 * or -1 with errno; the socket is taken either way. */
int http_acceptor_open(struct http_acceptor *acceptor, struct blasd_loop *loop, int listen_fd);
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
