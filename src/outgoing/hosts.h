/* The list of hosts that clients may name, and the addresses behind them. Pure: no request is made
 * here. Read next: hosts.c, then address.c. */
#ifndef BLASD_OUTGOING_HOSTS_H
#define BLASD_OUTGOING_HOSTS_H

#include "outgoing/outgoing.h"

#include <stdbool.h>
#include <sys/socket.h>

#define OUTGOING_NAME 256

/* What kind of network an address belongs to. */
enum outgoing_reach {
    OUTGOING_PUBLIC,
    OUTGOING_PRIVATE, /* this machine, or a network of the operator's */
    OUTGOING_NEVER /* what no name may lead to: link-local, a cloud's own services, groups, … */
};

enum outgoing_reach outgoing_reach_of(const struct sockaddr *address);
/* Whether the address is the one that `literal` writes, as hosts in URLs are. */
bool outgoing_is_address(const struct sockaddr *address, const char *literal);

struct outgoing_host {
    char name[OUTGOING_NAME]; /* in lower case; of *.NAME from the dot on; an address without [] */
    unsigned port;
    bool http, below, literal, private;
};

struct blasd_outgoing {
    struct outgoing_host *hosts; /* owned, as `ca` */
    int count;
    char *ca; /* or NULL */
};

/* Whether a connection to this address may be made for that host. */
bool outgoing_may_connect(const struct outgoing_host *host, const struct sockaddr *address);
/* blasd_outgoing_check that finds the list's entry, too. */
int outgoing_find(const struct blasd_outgoing *outgoing, const char *url, size_t len,
                  const char *field, char plain[BLASD_OUTGOING_URL],
                  const struct outgoing_host **ret, struct blasd_err *err);

#endif
