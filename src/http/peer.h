/* Who is at the other end of a connection: as text for a log line, and whose process it is. Read
 * next: reply.h. */
#ifndef BLASD_HTTP_PEER_H
#define BLASD_HTTP_PEER_H

#include <netinet/in.h>
#include <stdbool.h>
#include <sys/types.h>

#define HTTP_PEER_TEXT 64

/* "192.0.2.1:40000", "[2001:db8::1]:40000", or "-" for what has no address; NULL is taken. */
void http_peer_text(const struct sockaddr *address, char text[HTTP_PEER_TEXT]);
/* The user of the process that connected; false where it is none of this machine's, as the system
 * sees them from here. */
bool http_peer_uid(int fd, uid_t *ret);

#endif
