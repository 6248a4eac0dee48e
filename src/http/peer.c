/* Addresses as text, and the users behind them. */
#include "http/peer.h"

#include "base/clock.h"

#include <arpa/inet.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define ESTABLISHED 1
#define TABLE_SHARE 20 /* a twentieth of the time may go on reading tables of connections */

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

/* --- by asking the kernel for the one socket --- */

static void end_of(const struct sockaddr_storage *address, __be32 words[4], __be16 *port,
                   __u32 *interface) {
    if (address->ss_family == AF_INET) {
        const struct sockaddr_in *in = (const void *)address;
        words[0] = in->sin_addr.s_addr;
        *port = in->sin_port;
    } else {
        const struct sockaddr_in6 *in = (const void *)address;
        memcpy(words, &in->sin6_addr, sizeof in->sin6_addr);
        *port = in->sin6_port;
        *interface = in->sin6_scope_id;
    }
}

/* Asks for the socket that is connected from `from` to `to`. False also where the kernel cannot be
 * asked so. */
static bool ask_kernel(const struct sockaddr_storage *from, const struct sockaddr_storage *to,
                       uid_t *ret) {
    struct {
        struct nlmsghdr head;
        struct inet_diag_req_v2 body;
    } question = {.head = {.nlmsg_len = sizeof question,
                           .nlmsg_type = SOCK_DIAG_BY_FAMILY,
                           .nlmsg_flags = NLM_F_REQUEST},
                  .body = {.sdiag_family = (__u8)from->ss_family,
                           .sdiag_protocol = IPPROTO_TCP,
                           .idiag_states = UINT32_MAX,
                           .id.idiag_cookie = {INET_DIAG_NOCOOKIE, INET_DIAG_NOCOOKIE}}};
    struct {
        struct nlmsghdr head;
        struct inet_diag_msg body;
        char more[4096];
    } answer;
    int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
    ssize_t got = -1;
    if (fd < 0) return false;
    end_of(to, question.body.id.idiag_dst, &question.body.id.idiag_dport,
           &question.body.id.idiag_if);
    end_of(from, question.body.id.idiag_src, &question.body.id.idiag_sport,
           &question.body.id.idiag_if);
    if (send(fd, &question, sizeof question, 0) == (ssize_t)sizeof question)
        got = recv(fd, &answer, sizeof answer, MSG_DONTWAIT); /* it was made while we sent */
    close(fd);
    if (got < (ssize_t)(sizeof answer.head + sizeof answer.body) ||
        answer.head.nlmsg_type != SOCK_DIAG_BY_FAMILY || answer.body.idiag_state != ESTABLISHED)
        return false;
    *ret = (uid_t)answer.body.idiag_uid;
    return true;
}

/* --- by reading tables of all of them --- */

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
                strtoul(state, NULL, 16) == ESTABLISHED;
    fclose(file);
    if (found) *ret = (uid_t)uid;
    return found;
}

static bool read_tables(const struct sockaddr_storage *theirs, const struct sockaddr_storage *ours,
                        uid_t *ret) {
    char from[48], to[48];
    end_text(theirs, true, from);
    end_text(ours, true, to);
    if (ours->ss_family == AF_INET ||
        IN6_IS_ADDR_V4MAPPED(&((const struct sockaddr_in6 *)(const void *)theirs)->sin6_addr)) {
        if (find_user("/proc/net/tcp", from, to, ret)) return true;
        if (ours->ss_family == AF_INET) return false;
    }
    end_text(theirs, false, from);
    end_text(ours, false, to);
    return find_user("/proc/net/tcp6", from, to, ret);
}

/* Whoever has many connections makes the tables long: others' requests wait meanwhile, so it is
 * not done again before as much time has passed as it may take of it. */
static bool read_tables_at_times(const struct sockaddr_storage *theirs,
                                 const struct sockaddr_storage *ours, uid_t *ret) {
    static _Atomic int64_t not_before;
    int64_t began = blasd_clock_ns(), ended;
    bool found;
    if (began < not_before) return false;
    found = read_tables(theirs, ours, ret);
    ended = blasd_clock_ns();
    not_before = ended + (TABLE_SHARE - 1) * (ended - began);
    return found;
}

bool http_peer_uid(int fd, uid_t *ret) {
    struct sockaddr_storage ours = {0}, theirs = {0};
    socklen_t our_size = sizeof ours, their_size = sizeof theirs;
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
    return ask_kernel(&theirs, &ours, ret) || read_tables_at_times(&theirs, &ours, ret);
}
