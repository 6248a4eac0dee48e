/* Listening sockets: several on one address, one for each event loop of the front end. */
#ifndef BLASD_MAIN_LISTEN_H
#define BLASD_MAIN_LISTEN_H

#include "base/err.h"

#include <sys/socket.h>

#define LISTEN_MOST 64

struct listeners {
    int fds[LISTEN_MOST]; /* owned, close-on-exec */
    int count;
    char host[256]; /* as it was asked for, brackets taken off */
    int port;       /* the real one, where 0 was asked for too */
};

/* Binds `count` sockets to "HOST:PORT", "[V6]:PORT" or ":PORT" (all addresses) with SO_REUSEPORT
 * and listens on them, after making sure that nobody else, of the same user included, has the
 * port. */
int listeners_open(struct listeners *listeners, const char *address, int count,
                   struct blasd_err *err);
/* Takes over sockets that a supervisor bound: their numbers, separated by commas. */
int listeners_adopt(struct listeners *listeners, const char *fds, struct blasd_err *err);
void listeners_close(struct listeners *listeners);
/* "http://HOST:PORT" */
void listeners_url(const struct listeners *listeners, char *url, unsigned size);

/* The address at which this machine itself reaches the sockets. */
void listeners_reach(const struct listeners *listeners, struct sockaddr_storage *address,
                     socklen_t *len);

#endif
