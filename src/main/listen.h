/* Listening sockets: several on one address, one for each event loop of the front end. */
#ifndef BLASD_MAIN_LISTEN_H
#define BLASD_MAIN_LISTEN_H

#include "base/err.h"

#include <stdbool.h>
#include <sys/socket.h>

#define LISTEN_MOST 64
#define LISTEN_URL 320 /* bytes of the URL of a listener with its zero */

struct listeners {
    int fds[LISTEN_MOST]; /* owned, close-on-exec */
    int count;
    char host[256]; /* as it was asked for, brackets taken off; of a unix socket its path */
    bool local;     /* a unix socket */
    int port;       /* the real one, where 0 was asked for too */
};

/* Binds `count` sockets to "HOST:PORT", "[V6]:PORT" or ":PORT" (all addresses) with SO_REUSEPORT
 * and listens on them, after making sure that nobody else, of the same user included, has the
 * port; or makes a socket at "unix:PATH", which everybody on this machine may connect to where
 * `everybody`, else this user alone. */
int listeners_open(struct listeners *listeners, const char *address, int count, bool everybody,
                   struct blasd_err *err);
/* Takes over sockets that a supervisor bound: their numbers, separated by commas. */
int listeners_adopt(struct listeners *listeners, const char *fds, struct blasd_err *err);
void listeners_close(struct listeners *listeners);
/* Removes a unix socket that was made here, once nobody serves it any more. */
void listeners_remove(const struct listeners *listeners);
/* "http://HOST:PORT", "https://HOST:PORT" or "unix:PATH" */
void listeners_url(const struct listeners *listeners, bool tls, char url[LISTEN_URL]);
/* Whether others than this machine may reach them. */
bool listeners_exposed(const struct listeners *listeners);

#endif
