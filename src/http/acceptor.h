/* Takes new connections in for a loop's libmicrohttpd daemon: so many, and so many of one address.
 *
 * libmicrohttpd can limit both, but closes without a word; who has too many is told here.
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

struct http_acceptor {
    struct blasd_loop *loop;       /* borrowed, as the next */
    struct MHD_Daemon *daemon;     /* must stand until http_acceptor_free */
    struct blasd_watcher listener; /* its fd is owned; -1: closed */
    uint64_t limit, limit_of_one;  /* connections, in all and of one address */
    struct http_crowd crowd;
    uint64_t open, begun; /* connections of the daemon: that there are, and that there were */
    uint64_t given;       /* to it since the last turn: it may not have counted them yet */
    /* Tells who has too many; the socket is taken. */
    void (*refuse)(void *arg, int fd, const struct sockaddr *address);
    void *arg;
    bool paused;  /* the listener is not watched */
    bool starved; /* for the system had no descriptor left */
};

/* Starts taking connections of `listen_fd`; the daemon, the limits, `refuse` and `arg` are set. 0,
 * or -1 with errno; the socket is taken either way. */
int http_acceptor_open(struct http_acceptor *acceptor, struct blasd_loop *loop, int listen_fd);
/* Once in each turn, after the daemon has run. */
void http_acceptor_turn(struct http_acceptor *acceptor);
/* The daemon begins or ends with a connection. */
void http_acceptor_count(struct http_acceptor *acceptor, struct MHD_Connection *connection,
                         bool begins);
/* Whether the daemon has anything to do. */
static inline bool http_acceptor_busy(const struct http_acceptor *acceptor) {
    return acceptor->open + acceptor->given > 0;
}
/* Takes no new connections any more, but for those that the kernel has accepted. */
void http_acceptor_close(struct http_acceptor *acceptor);
/* Takes one that was never opened, zeroed but for listener.fd. */
void http_acceptor_free(struct http_acceptor *acceptor);

#endif
