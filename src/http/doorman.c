/* Accepting connections, and looking at how they begin. */
#include "http/doorman.h"

#include "base/clock.h"
#include "base/container.h"
#include "base/limits.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#define ACCEPTS_A_TURN 128
#define HEAD_BYTES 4096                /* that are looked at; a small request has no more */
#define BODY_WORTH_ROOM BLASD_MIB      /* below, more memory gains nothing that can be measured */
#define ROOMY_MOST 64                  /* their memory stays bounded whatever clients announce */
#define SILENCE_NS INT64_C(1000000000) /* nobody is looked at for longer */

struct http_newcomer {
    struct blasd_watcher watcher; /* its fd is owned */
    struct http_doorman *home;
    struct http_newcomer *next, *prev;
    int64_t since_ns;
    socklen_t address_len;
    struct sockaddr_storage address;
};

/* The parts of an address that somebody else does not have; false: none. */
static bool part_of(const struct sockaddr *address, uint64_t *part) {
    const struct sockaddr_in *four = (const void *)address;
    const struct sockaddr_in6 *six = (const void *)address;
    *part = 0;
    if (address->sa_family == AF_INET)
        memcpy(part, &four->sin_addr, 4);
    else if (address->sa_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&six->sin6_addr))
        memcpy(part, six->sin6_addr.s6_addr + 12, 4);
    else if (address->sa_family == AF_INET6)
        memcpy(part, six->sin6_addr.s6_addr, 8);
    else
        return false;
    return true;
}

static uint32_t slot_of(const struct http_crowd *crowd, uint64_t part, int row) {
    uint64_t hash = (part ^ crowd->seed) * UINT64_C(0x9fb21c651e98df25);
    hash = (hash ^ hash >> 32 ^ crowd->seed) * UINT64_C(0xd6e8feb86659fd93);
    return (uint32_t)(hash >> (row == 0 ? 32 : 48)) % HTTP_CROWD_SLOTS;
}

void http_crowd_count(struct http_crowd *crowd, const struct sockaddr *address, bool began) {
    uint64_t part;
    if (!part_of(address, &part)) return;
    for (int row = 0; row < 2; row++)
        crowd->slots[row][slot_of(crowd, part, row)] += began ? 1 : UINT32_MAX;
}

uint32_t http_crowd_of(const struct http_crowd *crowd, const struct sockaddr *address) {
    uint32_t one, other;
    uint64_t part;
    if (!part_of(address, &part)) return 0;
    one = crowd->slots[0][slot_of(crowd, part, 0)];
    other = crowd->slots[1][slot_of(crowd, part, 1)];
    return one < other ? one : other;
}

static void forget(struct http_newcomer *newcomer) {
    struct http_doorman *doorman = newcomer->home;
    blasd_loop_unwatch(doorman->loop, &newcomer->watcher);
    if (newcomer->next != NULL)
        newcomer->next->prev = newcomer->prev;
    else
        doorman->newest = newcomer->prev;
    if (newcomer->prev != NULL)
        newcomer->prev->next = newcomer->next;
    else
        doorman->oldest = newcomer->next;
    doorman->waiting--;
    free(newcomer);
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
    for (at += name_len; at < end && (*at == ' ' || *at == '\t'); at++) {
    }
    for (; at < end && *at >= '0' && *at <= '9' && length < BLASD_TIB; at++)
        length = 10 * length + (uint64_t)(*at - '0');
    return length;
}

/* Gives the connection to a daemon, which owns it from here on. */
static void hand_over(struct http_doorman *doorman, int fd, const struct sockaddr_storage *address,
                      socklen_t len, enum http_room room) {
    if (doorman->daemons[room] == NULL ||
        (room == HTTP_ROOMY && doorman->open[room] + doorman->handed[room] >= ROOMY_MOST))
        room = HTTP_USUAL;
    doorman->handed[room]++;
    /* where it cannot take it, the socket is closed */
    uint64_t begun = doorman->begun;
    const struct sockaddr *from = (const struct sockaddr *)(const void *)address;
    if (MHD_add_connection(doorman->daemons[room], fd, from, len) != MHD_YES &&
        doorman->begun == begun) /* else its end was told as well */
        http_crowd_count(&doorman->crowd, from, false);
}

/* What suits who begins so: those who post little go on posting little as a rule. */
static enum http_room room_for(const char *head, size_t len) {
    uint64_t body = stated_length(head, len);
    if (body >= BODY_WORTH_ROOM) return HTTP_ROOMY;
    bool post = len > 5 && memcmp(head, "POST ", 5) == 0;
    return post && body > 0 && len + body <= HEAD_BYTES ? HTTP_TIGHT : HTTP_USUAL;
}

/* Where the request that begins on `fd` suits; -1: nothing has come yet; -2: nothing will. */
static int look(int fd) {
    char head[HEAD_BYTES];
    ssize_t got = recv(fd, head, sizeof head, MSG_PEEK | MSG_DONTWAIT);
    if (got > 0) return (int)room_for(head, (size_t)got);
    return got < 0 && (errno == EAGAIN || errno == EINTR) ? -1 : -2;
}

static void on_first_bytes(struct blasd_watcher *watcher, uint32_t events) {
    struct http_newcomer *newcomer = blasd_container_of(watcher, struct http_newcomer, watcher);
    int room = look(watcher->fd);
    (void)events;
    if (room == -1) return;
    if (room == -2) {
        close(watcher->fd);
        http_crowd_count(&newcomer->home->crowd, (struct sockaddr *)(void *)&newcomer->address,
                         false);
    } else
        hand_over(newcomer->home, watcher->fd, &newcomer->address, newcomer->address_len,
                  (enum http_room)room);
    forget(newcomer);
}

/* Remembers a connection until its first bytes come. False where that cannot be had. */
static bool remember(struct http_doorman *doorman, int fd, const struct sockaddr_storage *address,
                     socklen_t len) {
    struct http_newcomer *newcomer = calloc(1, sizeof *newcomer);
    if (newcomer == NULL) return false;
    newcomer->watcher = (struct blasd_watcher){.fd = fd, .ready = on_first_bytes};
    if (blasd_loop_watch(doorman->loop, &newcomer->watcher, EPOLLIN | EPOLLRDHUP) != 0) {
        free(newcomer);
        return false;
    }
    newcomer->home = doorman;
    newcomer->since_ns = blasd_clock_ns();
    newcomer->address = *address;
    newcomer->address_len = len;
    newcomer->prev = doorman->newest;
    if (doorman->newest != NULL)
        doorman->newest->next = newcomer;
    else
        doorman->oldest = newcomer;
    doorman->newest = newcomer;
    doorman->waiting++;
    return true;
}

static void take_in(struct http_doorman *doorman, int fd, const struct sockaddr_storage *address,
                    socklen_t len) {
    const struct sockaddr *from = (const struct sockaddr *)(const void *)address;
    if (http_crowd_of(&doorman->crowd, from) >= doorman->limit_of_one) {
        doorman->refuse(doorman->arg, fd, from);
        return;
    }
    http_crowd_count(&doorman->crowd, from, true);
    bool choice = doorman->daemons[HTTP_TIGHT] != NULL || doorman->daemons[HTTP_ROOMY] != NULL;
    int room = choice ? look(fd) : HTTP_USUAL;
    if (room == -1 && remember(doorman, fd, address, len)) return;
    hand_over(doorman, fd, address, len, room < 0 ? HTTP_USUAL : (enum http_room)room);
}

static void stop_listening(struct http_doorman *doorman) {
    blasd_loop_unwatch(doorman->loop, &doorman->listener);
    doorman->paused = true;
}

static bool is_full(const struct http_doorman *doorman) {
    uint64_t connections = doorman->waiting;
    for (int i = 0; i < HTTP_ROOMS; i++) connections += doorman->open[i] + doorman->handed[i];
    return connections >= doorman->limit;
}

/* Accepts up to `most`; whether there may be more. */
static bool accept_some(struct http_doorman *doorman, int most) {
    for (int i = 0; i < most && !is_full(doorman); i++) {
        struct sockaddr_storage address;
        socklen_t len = sizeof address;
        int fd = accept4(doorman->listener.fd, (struct sockaddr *)(void *)&address, &len,
                         SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd >= 0) {
            take_in(doorman, fd, &address, len);
        } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
            stop_listening(doorman);
            doorman->starved = true; /* until the next tick, for until then it would be no better */
            return false;
        } else if (errno != ECONNABORTED && errno != EINTR && errno != EPROTO) {
            return false;
        }
    }
    return !is_full(doorman);
}

static void on_arrival(struct blasd_watcher *watcher, uint32_t events) {
    struct http_doorman *doorman = blasd_container_of(watcher, struct http_doorman, listener);
    (void)events;
    (void)accept_some(doorman, ACCEPTS_A_TURN);
    if (is_full(doorman)) stop_listening(doorman);
}

int http_doorman_open(struct http_doorman *doorman, struct blasd_loop *loop, int listen_fd) {
    int flags = fcntl(listen_fd, F_GETFL);
    doorman->loop = loop;
    if (getrandom(&doorman->crowd.seed, sizeof doorman->crowd.seed, GRND_NONBLOCK) < 0)
        doorman->crowd.seed = (uint64_t)blasd_clock_ns();
    doorman->listener = (struct blasd_watcher){.fd = listen_fd, .ready = on_arrival};
    if (flags < 0 || fcntl(listen_fd, F_SETFL, flags | O_NONBLOCK) != 0) return -1;
    return blasd_loop_watch(loop, &doorman->listener, EPOLLIN);
}

void http_doorman_turn(struct http_doorman *doorman) {
    memset(doorman->handed, 0, sizeof doorman->handed); /* the daemons have counted them by now */
    if (!doorman->paused || doorman->starved || is_full(doorman) || doorman->listener.fd < 0)
        return;
    doorman->paused = blasd_loop_watch(doorman->loop, &doorman->listener, EPOLLIN) != 0;
}

static void give_up_looking(struct http_doorman *doorman, int64_t since_ns) {
    while (doorman->oldest != NULL && doorman->oldest->since_ns <= since_ns) {
        struct http_newcomer *newcomer = doorman->oldest;
        hand_over(doorman, newcomer->watcher.fd, &newcomer->address, newcomer->address_len,
                  HTTP_USUAL);
        forget(newcomer);
    }
}

void http_doorman_tick(struct http_doorman *doorman) {
    doorman->starved = false;
    give_up_looking(doorman, blasd_clock_ns() - SILENCE_NS);
}

void http_doorman_count(struct http_doorman *doorman, struct MHD_Connection *connection,
                        bool began) {
    /* what libmicrohttpd 1.0 points to lasts until it is asked again */
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    int room = HTTP_USUAL;
    doorman->begun += began ? 1 : 0;
    if (!began && info != NULL && info->client_addr != NULL)
        http_crowd_count(&doorman->crowd, info->client_addr, false);
    info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_DAEMON);
    for (int i = 0; i < HTTP_ROOMS; i++)
        if (info != NULL && info->daemon == doorman->daemons[i]) room = i;
    doorman->open[room] += began ? 1 : UINT64_MAX;
}

void http_doorman_close(struct http_doorman *doorman) {
    while (accept_some(doorman, ACCEPTS_A_TURN)) {
    }
    blasd_loop_unwatch(doorman->loop, &doorman->listener);
    close(doorman->listener.fd);
    doorman->listener.fd = -1;
    give_up_looking(doorman, INT64_MAX);
}

void http_doorman_free(struct http_doorman *doorman) {
    while (doorman->oldest != NULL) {
        close(doorman->oldest->watcher.fd);
        forget(doorman->oldest);
    }
    if (doorman->listener.fd >= 0) close(doorman->listener.fd);
    doorman->listener.fd = -1;
}
