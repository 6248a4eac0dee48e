/* Who is at the other end of a connection, as text for a log line. Read next: reply.h. */
#ifndef BLASD_HTTP_PEER_H
#define BLASD_HTTP_PEER_H

#include <netinet/in.h>

#define HTTP_PEER_TEXT 64

/* "192.0.2.1:40000", "[2001:db8::1]:40000", or "-" for what has no address; NULL is taken. */
void http_peer_text(const struct sockaddr *address, char text[HTTP_PEER_TEXT]);

#endif
