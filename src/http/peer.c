/* Addresses as text. */
#include "http/peer.h"

#include <arpa/inet.h>
#include <stdio.h>

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
