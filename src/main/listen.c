/* Binding and inheriting listening sockets. */
#include "main/listen.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define BACKLOG 4096
#define LOCAL "unix:"

static int split(const char *address, struct listeners *listeners, char port[8],
                 struct blasd_err *err) {
    const char *colon = strrchr(address, ':'), *host = address;
    size_t len = colon == NULL ? 0 : (size_t)(colon - address);
    char *end = NULL;
    long number = colon == NULL ? -1 : strtol(colon + 1, &end, 10);
    if (len >= 2 && host[0] == '[' && host[len - 1] == ']') {
        host++;
        len -= 2;
    }
    if (colon == NULL || colon[1] == '\0' || *end != '\0' || number < 0 || number > 65535 ||
        len >= sizeof listeners->host || (host == address && memchr(host, ':', len) != NULL))
        return blasd_fail(err, BLASD_E_invalid_field, "listen",
                          "'%.80s' is not HOST:PORT; write 127.0.0.1:8080, [::1]:8080, "
                          ":8080 or unix:PATH",
                          address);
    memcpy(listeners->host, host, len);
    listeners->host[len] = '\0';
    snprintf(port, 8, "%ld", number);
    return 0;
}

static void set_port(struct sockaddr *address, int port) {
    if (address->sa_family == AF_INET6)
        ((struct sockaddr_in6 *)(void *)address)->sin6_port = htons((uint16_t)port);
    else
        ((struct sockaddr_in *)(void *)address)->sin_port = htons((uint16_t)port);
}

static int read_port(int fd) {
    struct sockaddr_storage address;
    socklen_t len = sizeof address;
    if (getsockname(fd, (struct sockaddr *)&address, &len) != 0) return -1;
    if (address.ss_family == AF_INET6)
        return ntohs(((struct sockaddr_in6 *)(void *)&address)->sin6_port);
    return ntohs(((struct sockaddr_in *)(void *)&address)->sin_port);
}

static int bind_socket(const struct addrinfo *at, bool share) {
    int on = 1, fd = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return -1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if ((share && setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof on) != 0) ||
        bind(fd, at->ai_addr, at->ai_addrlen) != 0) {
        int reason = errno;
        close(fd);
        errno = reason;
        return -1;
    }
    return fd;
}

static int bind_all(struct listeners *listeners, struct addrinfo *at, int count) {
    /* SO_REUSEPORT would let us share the port with another service of this user in silence */
    int probe = listeners->port == 0 ? -2 : bind_socket(at, false);
    if (probe == -1) return -1;
    if (probe >= 0) close(probe);
    for (int i = 0; i < count; i++) {
        int fd = bind_socket(at, true);
        if (fd < 0) return -1;
        listeners->fds[listeners->count++] = fd;
        if (i == 0) listeners->port = read_port(fd);
        set_port(at->ai_addr, listeners->port);
    }
    for (int i = 0; i < count; i++)
        if (listen(listeners->fds[i], BACKLOG) != 0) return -1;
    return 0;
}

/* A socket that nobody listens on any more, of a process that was killed, is in the way. */
static void remove_stale(const struct sockaddr_un *at) {
    struct stat facts;
    int fd;
    if (lstat(at->sun_path, &facts) != 0 || !S_ISSOCK(facts.st_mode)) return;
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return;
    if (connect(fd, (const struct sockaddr *)at, sizeof *at) != 0 && errno == ECONNREFUSED)
        unlink(at->sun_path);
    close(fd);
}

static int bind_local(const struct sockaddr_un *at, bool everybody) {
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), reason;
    mode_t mask;
    if (fd < 0) return -1;
    remove_stale(at);
    mask = umask(0177);
    reason = bind(fd, (const struct sockaddr *)at, sizeof *at) == 0 ? 0 : errno;
    umask(mask);
    if (reason == 0 && everybody && chmod(at->sun_path, 0666) != 0) reason = errno;
    if (reason == 0 && listen(fd, BACKLOG) != 0) reason = errno;
    if (reason == 0) return fd;
    close(fd);
    errno = reason;
    return -1;
}

/* One socket, which every event loop takes connections from. */
static int open_local(struct listeners *listeners, const char *path, int count, bool everybody,
                      struct blasd_err *err) {
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    int fd;
    if (path[0] == '\0' || strlen(path) >= sizeof at.sun_path)
        return blasd_fail(err, BLASD_E_invalid_field, "listen",
                          "the path of a unix socket has 1 to %zu bytes: '%.120s'",
                          sizeof at.sun_path - 1, path);
    snprintf(at.sun_path, sizeof at.sun_path, "%s", path);
    fd = bind_local(&at, everybody);
    if (fd < 0)
        return blasd_fail(err, BLASD_E_internal_error, "listen",
                          "cannot listen on unix:%.120s: %s%s", path, strerror(errno),
                          errno == EADDRINUSE ? "; another service uses it, or it is not a socket"
                                              : "");
    snprintf(listeners->host, sizeof listeners->host, "%s", path);
    listeners->local = true;
    listeners->fds[listeners->count++] = fd;
    while (listeners->count < count && (fd = fcntl(fd, F_DUPFD_CLOEXEC, 0)) >= 0)
        listeners->fds[listeners->count++] = fd;
    return 0;
}

static int open_inet(struct listeners *listeners, const char *address, int count,
                     struct blasd_err *err) {
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV};
    struct addrinfo *found = NULL;
    char port[8];
    int code;
    code = split(address, listeners, port, err);
    if (code != 0) return code;
    listeners->port = (int)strtol(port, NULL, 10);
    code = getaddrinfo(listeners->host[0] == '\0' ? NULL : listeners->host, port, &hints, &found);
    if (code != 0)
        return blasd_fail(err, BLASD_E_invalid_field, "listen", "the address of %.120s: %s",
                          address, gai_strerror(code));
    if (listeners->host[0] == '\0')
        snprintf(listeners->host, sizeof listeners->host,
                 found->ai_family == AF_INET6 ? "::" : "0.0.0.0");
    if (bind_all(listeners, found, count) != 0) {
        int reason = errno;
        listeners_close(listeners);
        code = blasd_fail(err, BLASD_E_internal_error, "listen", "cannot listen on %.120s: %s%s",
                          address, strerror(reason),
                          reason == EADDRINUSE ? "; another service has it, give another --listen"
                                               : "");
    }
    freeaddrinfo(found);
    return code;
}

int listeners_open(struct listeners *listeners, const char *address, int count, bool everybody,
                   struct blasd_err *err) {
    *listeners = (struct listeners){.count = 0};
    return strncmp(address, LOCAL, strlen(LOCAL)) == 0
               ? open_local(listeners, address + strlen(LOCAL), count, everybody, err)
               : open_inet(listeners, address, count, err);
}

static bool is_listening(int fd) {
    int listening = 0;
    socklen_t len = sizeof listening;
    return getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &len) == 0 && listening;
}

int listeners_adopt(struct listeners *listeners, const char *fds, struct blasd_err *err) {
    const char *at = fds;
    *listeners = (struct listeners){.host = "inherited"};
    while (listeners->count < LISTEN_MOST) {
        char *end;
        long fd = strtol(at, &end, 10);
        if (end == at || fd < 3 || fd > 65535 || !is_listening((int)fd)) break;
        fcntl((int)fd, F_SETFD, FD_CLOEXEC);
        listeners->fds[listeners->count++] = (int)fd;
        at = end + 1;
        if (*end == '\0') {
            listeners->port = read_port(listeners->fds[0]);
            return 0;
        }
        if (*end != ',') break;
    }
    return blasd_fail(err, BLASD_E_invalid_field, "listen-fds",
                      "'%.80s' is not a list of listening sockets", fds);
}

void listeners_close(struct listeners *listeners) {
    for (int i = 0; i < listeners->count; i++) close(listeners->fds[i]);
    listeners->count = 0;
}

void listeners_remove(const struct listeners *listeners) {
    if (listeners->local) unlink(listeners->host);
}

void listeners_url(const struct listeners *listeners, bool tls, char url[LISTEN_URL]) {
    bool v6 = strchr(listeners->host, ':') != NULL;
    if (listeners->local)
        snprintf(url, LISTEN_URL, LOCAL "%s", listeners->host);
    else
        snprintf(url, LISTEN_URL, "http%s://%s%s%s:%d", tls ? "s" : "", v6 ? "[" : "",
                 listeners->host, v6 ? "]" : "", listeners->port);
}

bool listeners_exposed(const struct listeners *listeners) {
    struct sockaddr_storage address = {.ss_family = AF_UNSPEC};
    const struct sockaddr_in *v4 = (const void *)&address;
    const struct sockaddr_in6 *v6 = (const void *)&address;
    socklen_t len = sizeof address;
    const unsigned char *bytes;
    if (getsockname(listeners->fds[0], (struct sockaddr *)&address, &len) != 0) return true;
    if (address.ss_family == AF_UNIX) return false;
    if (address.ss_family == AF_INET) return ntohl(v4->sin_addr.s_addr) >> 24 != 127;
    bytes = v6->sin6_addr.s6_addr;
    if (IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr)) return bytes[12] != 127;
    return !IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr);
}
