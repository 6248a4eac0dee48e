/* Addresses as text and as a number. */
#include "http/peer.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

void http_peer_text(const struct sockaddr *address, char text[HTTP_PEER_TEXT]) {
    char name[INET6_ADDRSTRLEN];
    snprintf(text, HTTP_PEER_TEXT, "-");
    if (address == NULL) return;
    if (address->sa_family == AF_INET) {
        const struct sockaddr_in *four = (const void *)address;
        if (inet_ntop(AF_INET, &four->sin_addr, name, sizeof name) != NULL)
            snprintf(text, HTTP_PEER_TEXT, "%s:%u", name, (unsigned)ntohs(four->sin_port));
    } else if (address->sa_family == AF_INET6) {
        const struct sockaddr_in6 *six = (const void *)address;
        if (inet_ntop(AF_INET6, &six->sin6_addr, name, sizeof name) != NULL)
            snprintf(text, HTTP_PEER_TEXT, "[%s]:%u", name, (unsigned)ntohs(six->sin6_port));
    }
}

#define LOCAL_USER (UINT64_C(1) << 63) /* no IPv6 address that is routed begins so, nor IPv4 */

uint64_t http_peer_part(int fd, const struct sockaddr *address) {
    const struct sockaddr_in *four = (const void *)address;
    const struct sockaddr_in6 *six = (const void *)address;
    uint64_t part = 0;
    struct ucred peer;
    socklen_t size = sizeof peer;
    switch (address == NULL ? AF_UNSPEC : address->sa_family) {
    case AF_INET: memcpy(&part, &four->sin_addr, 4); break;
    case AF_INET6:
        if (IN6_IS_ADDR_V4MAPPED(&six->sin6_addr))
            memcpy(&part, six->sin6_addr.s6_addr + 12, 4);
        else
            memcpy(&part, six->sin6_addr.s6_addr, 8);
        break;
    case AF_UNIX:
        if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0)
            part = LOCAL_USER | peer.uid;
        break;
    default: break;
    }
    return part;
}

uint64_t http_peer_part_of(struct MHD_Connection *connection) {
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    int fd = info == NULL ? -1 : info->connect_fd;
    /* what libmicrohttpd 1.0 points to lasts until it is asked again */
    info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    return http_peer_part(fd, info == NULL ? NULL : info->client_addr);
}
