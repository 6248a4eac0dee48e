/* Addresses as text, and the users behind them. */
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

/* An end of a connection as /proc/net writes it: the words of the address in the machine's order,
 * and the port. */
static void end_text(const struct sockaddr_storage *address, bool four, char text[48]) {
    if (address->ss_family == AF_INET) {
        const struct sockaddr_in *in = (const void *)address;
        snprintf(text, 48, "%08X:%04X", (unsigned)in->sin_addr.s_addr,
                 (unsigned)ntohs(in->sin_port));
    } else {
        const struct sockaddr_in6 *in = (const void *)address;
        uint32_t words[4];
        memcpy(words, &in->sin6_addr, sizeof words);
        if (four) /* ::ffff:127.0.0.1 is 127.0.0.1 at its other end */
            snprintf(text, 48, "%08X:%04X", (unsigned)words[3], (unsigned)ntohs(in->sin6_port));
        else
            snprintf(text, 48, "%08X%08X%08X%08X:%04X", (unsigned)words[0], (unsigned)words[1],
                     (unsigned)words[2], (unsigned)words[3], (unsigned)ntohs(in->sin6_port));
    }
}

/* Finds the socket that is connected from `from` to `to` in a table of the system's. */
static bool find_user(const char *table, const char *from, const char *to, uid_t *ret) {
    char line[512], local[64], remote[64], state[8];
    unsigned uid;
    bool found = false;
    FILE *file = fopen(table, "re");
    if (file == NULL) return false;
    while (!found && fgets(line, sizeof line, file) != NULL)
        found = sscanf(line, " %*[^:]: %63s %63s %7s %*s %*s %*s %u", local, remote, state, &uid) ==
                    4 &&
                strcmp(local, from) == 0 && strcmp(remote, to) == 0 &&
                strcmp(state, "01") == 0; /* established */
    fclose(file);
    if (found) *ret = (uid_t)uid;
    return found;
}

bool http_peer_uid(int fd, uid_t *ret) {
    struct sockaddr_storage ours = {0}, theirs = {0};
    socklen_t our_size = sizeof ours, their_size = sizeof theirs;
    char from[48], to[48];
    struct ucred peer;
    socklen_t size = sizeof peer;
    if (getsockname(fd, (void *)&ours, &our_size) != 0 ||
        getpeername(fd, (void *)&theirs, &their_size) != 0)
        return false;
    if (ours.ss_family == AF_UNIX) {
        if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return false;
        *ret = peer.uid;
        return true;
    }
    if (ours.ss_family != AF_INET && ours.ss_family != AF_INET6) return false;
    end_text(&theirs, true, from);
    end_text(&ours, true, to);
    if (ours.ss_family == AF_INET ||
        IN6_IS_ADDR_V4MAPPED(&((const struct sockaddr_in6 *)(const void *)&theirs)->sin6_addr)) {
        if (find_user("/proc/net/tcp", from, to, ret)) return true;
        if (ours.ss_family == AF_INET) return false;
    }
    end_text(&theirs, false, from);
    end_text(&ours, false, to);
    return find_user("/proc/net/tcp6", from, to, ret);
}
