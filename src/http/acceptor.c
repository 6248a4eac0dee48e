/* Accepting connections. */
#include "http/acceptor.h"

#include "base/clock.h"
#include "base/container.h"
#include "base/limits.h"
#include "http/peer.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#define ACCEPTS_A_TURN 128
#define LAST_TURNS 64               /* more than a backlog has */
#define DEFER_S 1                   /* a silent connection is taken in after as long */
#define HEAD_BYTES 4096             /* that are looked at; a small request has no more */
#define BODY_WORTH_MEMORY BLASD_MIB /* below, more gains nothing that can be measured */
#define LARGE_MOST 64               /* their memory stays bounded whatever clients announce */
/* Descriptors that are not for connections: a connection may need a second one, for a file. */
#define RESERVED_FILES 16
#define LINKS_OF_A_LOOP 3 /* to Redis */
#define CONNECTIONS_LEAST 4

static uint32_t slot_of(const struct http_crowd *crowd, uint64_t part, int row) {
    uint64_t hash = (part ^ crowd->seed) * UINT64_C(0x9fb21c651e98df25);
    hash = (hash ^ hash >> 32 ^ crowd->seed) * UINT64_C(0xd6e8feb86659fd93);
    return (uint32_t)(hash >> (row == 0 ? 32 : 48)) % HTTP_CROWD_SLOTS;
}

void http_crowd_count(struct http_crowd *crowd, uint64_t part, bool began) {
    if (part == 0) return;
    for (int row = 0; row < 2; row++)
        crowd->slots[row][slot_of(crowd, part, row)] += began ? 1 : UINT32_MAX;
}

uint32_t http_crowd_of(const struct http_crowd *crowd, uint64_t part) {
    uint32_t one, other;
    if (part == 0) return 0;
    one = crowd->slots[0][slot_of(crowd, part, 0)];
    other = crowd->slots[1][slot_of(crowd, part, 1)];
    return one < other ? one : other;
}

/* Whether there is a place for one more. Those that were cut go in this turn, or the next ones. */
static bool is_full(const struct http_acceptor *acceptor) {
    uint64_t connections = 0;
    for (int i = 0; i < HTTP_MEMORIES; i++)
        connections += acceptor->daemons[i].open + acceptor->daemons[i].given;
    return connections >= acceptor->limit + acceptor->cut;
}

/* The number that a Content-Length among `len` bytes of a request states; 0: none. */
static uint64_t stated_length(const char *head, size_t len) {
    static const char name[] = "\r\nContent-Length:";
    const size_t name_len = sizeof name - 1;
    uint64_t length = 0;
    const char *end = memmem(head, len, "\r\n\r\n", 4), *at = head;
    if (end == NULL) end = head + len;
    while ((at = memchr(at, '\r', (size_t)(end - at))) != NULL) {
        if ((size_t)(end - at) > name_len && strncasecmp(at, name, name_len) == 0) break;
        at++;
    }
    if (at == NULL) return 0;
    for (at += name_len; at < end && (*at == ' ' || *at == '\t'); at++) continue;
    for (; at < end && *at >= '0' && *at <= '9' && length < BLASD_TIB; at++)
        length = 10 * length + (uint64_t)(*at - '0');
    return length;
}

/* Those who post little go on posting little as a rule. */
static enum http_memory memory_for(int fd) {
    char head[HEAD_BYTES];
    ssize_t got = recv(fd, head, sizeof head, MSG_PEEK | MSG_DONTWAIT);
    uint64_t body = got > 0 ? stated_length(head, (size_t)got) : 0;
    if (body >= BODY_WORTH_MEMORY) return HTTP_LARGE_BODIES;
    if (body == 0 || (uint64_t)got + body > HEAD_BYTES) return HTTP_ANY_REQUEST;
    return memcmp(head, "POST ", 5) == 0 ? HTTP_SMALL_POSTS : HTTP_ANY_REQUEST;
}

static struct http_daemon *daemon_for(struct http_acceptor *acceptor, int fd) {
    struct http_daemon *daemon = &acceptor->daemons[memory_for(fd)];
    if (daemon == &acceptor->daemons[HTTP_LARGE_BODIES] &&
        daemon->open + daemon->given >= LARGE_MOST)
        return &acceptor->daemons[HTTP_ANY_REQUEST];
    return daemon;
}

/* Gives the connection to a daemon, which owns it from here on: where it cannot take it, it closes
 * the socket. */
static void take_in(struct http_acceptor *acceptor, int fd, const struct sockaddr *from,
                    socklen_t len) {
    struct http_daemon *daemon = daemon_for(acceptor, fd);
    uint64_t begun = acceptor->begun, part = http_peer_part(fd, from);
    uint64_t own = http_crowd_of(&acceptor->crowd, part);
    if (own >= acceptor->limit_of_one ||
        (is_full(acceptor) && !acceptor->make_room(acceptor->arg, own))) {
        acceptor->refuse(acceptor->arg, fd, from);
        return;
    }
    daemon->given++;
    http_crowd_count(&acceptor->crowd, part, true);
    if (MHD_add_connection(daemon->daemon, fd, from, len) != MHD_YES && acceptor->begun == begun)
        http_crowd_count(&acceptor->crowd, part, false); /* else its end was told as well */
}

static void stop_listening(struct http_acceptor *acceptor) {
    blasd_loop_unwatch(acceptor->loop, &acceptor->listener);
    acceptor->paused = true;
}

static int open_reserve(void) {
    return open("/dev/null", O_RDONLY | O_CLOEXEC);
}

/* No descriptor is left: the next client is answered with the one in reserve, and closed. Without
 * one nothing is accepted until the next tick. */
static bool accept_on_reserve(struct http_acceptor *acceptor) {
    int fd = -1;
    if (acceptor->reserve >= 0) {
        close(acceptor->reserve);
        fd = accept4(acceptor->listener.fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd >= 0) acceptor->refuse(acceptor->arg, fd, NULL);
        acceptor->reserve = open_reserve();
    }
    if (fd < 0) stop_listening(acceptor);
    acceptor->starved = fd < 0;
    return fd >= 0;
}

void http_acceptor_tick(struct http_acceptor *acceptor) {
    if (acceptor->reserve < 0) acceptor->reserve = open_reserve();
    acceptor->starved = acceptor->reserve < 0;
    acceptor->largest = 0;
}

/* Accepts up to `most`; whether there may be more. */
static bool accept_some(struct http_acceptor *acceptor, int most) {
    for (int i = 0; i < most; i++) {
        struct sockaddr_storage address;
        struct sockaddr *from = (struct sockaddr *)(void *)&address;
        socklen_t len = sizeof address;
        int fd = accept4(acceptor->listener.fd, from, &len, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd >= 0) {
            take_in(acceptor, fd, from, len);
        } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
            if (!accept_on_reserve(acceptor)) return false;
        } else if (errno != ECONNABORTED && errno != EINTR && errno != EPROTO) {
            return false;
        }
    }
    return true;
}

static void on_arrival(struct blasd_watcher *watcher, uint32_t events) {
    struct http_acceptor *acceptor = blasd_container_of(watcher, struct http_acceptor, listener);
    (void)events;
    (void)accept_some(acceptor, ACCEPTS_A_TURN);
}

int http_acceptor_open(struct http_acceptor *acceptor, struct blasd_loop *loop, int listen_fd) {
    const int defer_s = DEFER_S;
    int flags = fcntl(listen_fd, F_GETFL);
    acceptor->loop = loop;
    acceptor->reserve = open_reserve();
    /* of a socket that cannot, every connection is taken to be of the usual kind */
    (void)setsockopt(listen_fd, IPPROTO_TCP, TCP_DEFER_ACCEPT, &defer_s, sizeof defer_s);
    if (getrandom(&acceptor->crowd.seed, sizeof acceptor->crowd.seed, GRND_NONBLOCK) < 0)
        acceptor->crowd.seed = (uint64_t)blasd_clock_ns();
    acceptor->listener = (struct blasd_watcher){.fd = listen_fd, .ready = on_arrival};
    if (flags < 0 || fcntl(listen_fd, F_SETFL, flags | O_NONBLOCK) != 0) return -1;
    return blasd_loop_watch(loop, &acceptor->listener, EPOLLIN);
}

/* Descriptors that are open; negative where the system does not tell. */
static int64_t count_open(void) {
    DIR *dir = opendir("/proc/self/fd");
    int64_t count = -3; /* ".", ".." and that of the directory */
    if (dir == NULL) return -1;
    while (readdir(dir) != NULL) count++;
    closedir(dir);
    return count;
}

uint64_t http_acceptor_afford(uint64_t limit, int loops) {
    struct rlimit files;
    int64_t used = count_open() + RESERVED_FILES + (int64_t)loops * LINKS_OF_A_LOOP;
    uint64_t most;
    if (getrlimit(RLIMIT_NOFILE, &files) != 0 || files.rlim_cur == RLIM_INFINITY) return limit;
    most = files.rlim_cur > (rlim_t)used ? (files.rlim_cur - (uint64_t)used) / 2 : 0;
    most /= (uint64_t)loops;
    if (most < CONNECTIONS_LEAST) most = CONNECTIONS_LEAST;
    return most < limit ? most : limit;
}

void http_acceptor_turn(struct http_acceptor *acceptor) {
    for (int i = 0; i < HTTP_MEMORIES; i++) acceptor->daemons[i].given = 0;
    if (!acceptor->paused || acceptor->starved || acceptor->listener.fd < 0) return;
    acceptor->paused = blasd_loop_watch(acceptor->loop, &acceptor->listener, EPOLLIN) != 0;
}

void http_acceptor_count(struct http_acceptor *acceptor, struct MHD_Connection *connection,
                         bool begins) {
    const union MHD_ConnectionInfo *info;
    acceptor->begun += begins ? 1 : 0;
    if (!begins) http_crowd_count(&acceptor->crowd, http_peer_part_of(connection), false);
    info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_DAEMON);
    for (int i = 0; i < HTTP_MEMORIES; i++)
        if (info != NULL && info->daemon == acceptor->daemons[i].daemon)
            acceptor->daemons[i].open += begins ? 1 : UINT64_MAX;
}

void http_acceptor_close(struct http_acceptor *acceptor) {
    /* a flood must not keep it from ending */
    for (int i = 0; i < LAST_TURNS && accept_some(acceptor, ACCEPTS_A_TURN); i++) {
    }
    http_acceptor_free(acceptor);
}

void http_acceptor_free(struct http_acceptor *acceptor) {
    if (acceptor->listener.fd < 0) return;
    if (acceptor->loop != NULL && acceptor->reserve >= 0) close(acceptor->reserve);
    if (acceptor->loop != NULL) blasd_loop_unwatch(acceptor->loop, &acceptor->listener);
    close(acceptor->listener.fd);
    acceptor->listener.fd = -1;
}
