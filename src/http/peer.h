/* Who is at the other end of a connection: as text for a log line, and as a
 * number. Read
 * next: reply.h. */
#ifndef BLASD_HTTP_PEER_H
#define BLASD_HTTP_PEER_H

#include <microhttpd.h>
#include <netinet/in.h>
#include <stdint.h>

#define HTTP_PEER_TEXT 64

/* "192.0.2.1:40000", "[2001:db8::1]:40000", or "-" for what has no address; NULL is taken. */
void http_peer_text(const struct sockaddr *address, char text[HTTP_PEER_TEXT]);
/* Where the client of a connection comes from, in a number: its address without the port, of IPv6
 * the /64; of a unix socket the user. 0: neither is known. */
uint64_t http_peer_part(int fd, const struct sockaddr *address);
uint64_t http_peer_part_of(struct MHD_Connection *connection);

#endif
