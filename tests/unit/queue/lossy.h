/* A way to Redis that loses one message: what goes through it is counted, and the one chosen, from
 * either side, is dropped with its connection. So a call is lost before Redis has done it, or
 * after.
 */
#ifndef TESTS_LOSSY_H
#define TESTS_LOSSY_H

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#define LOSSY_LINKS 64

struct lossy {
    char path[100], to[108], url[112];
    pthread_t thread;
    int listener;
    int fd[LOSSY_LINKS][2]; /* the caller's side, Redis' side; 0: none */
    _Atomic int drop[2];    /* which message of each side, counted down; 0: none more */
    _Atomic int dropped;
    _Atomic bool stop;
};

static inline int lossy_socket(const char *path, struct sockaddr_un *address) {
    memset(address, 0, sizeof *address);
    address->sun_family = AF_UNIX;
    snprintf(address->sun_path, sizeof address->sun_path, "%s", path);
    return socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
}

static inline void lossy_close(struct lossy *lossy, int link) {
    for (int side = 0; side < 2; side++) close(lossy->fd[link][side]);
    memset(lossy->fd[link], 0, sizeof lossy->fd[link]);
}

static inline void lossy_accept(struct lossy *lossy) {
    struct sockaddr_un address;
    int link = 0, caller = accept(lossy->listener, NULL, NULL);
    int redis = lossy_socket(lossy->to, &address);
    while (link < LOSSY_LINKS && lossy->fd[link][0] != 0) link++;
    if (caller < 0 || redis < 0 || link == LOSSY_LINKS ||
        connect(redis, (struct sockaddr *)&address, sizeof address) != 0) {
        if (caller >= 0) close(caller);
        if (redis >= 0) close(redis);
        return;
    }
    lossy->fd[link][0] = caller;
    lossy->fd[link][1] = redis;
}

/* Moves what is there from one side to the other. */
static inline void lossy_move(struct lossy *lossy, int link, int side) {
    static char bytes[1 << 20];
    ssize_t len = read(lossy->fd[link][side], bytes, sizeof bytes);
    bool drop = len > 0 && atomic_load(&lossy->drop[side]) > 0 &&
                atomic_fetch_sub(&lossy->drop[side], 1) == 1;
    if (drop) atomic_fetch_add(&lossy->dropped, 1);
    for (ssize_t at = 0, n; !drop && at < len; at += n) {
        n = send(lossy->fd[link][!side], bytes + at, (size_t)(len - at), MSG_NOSIGNAL);
        if (n <= 0) break;
    }
    if (drop || len <= 0) lossy_close(lossy, link);
}

static inline void *lossy_run(void *arg) {
    struct lossy *lossy = arg;
    while (!atomic_load(&lossy->stop)) {
        struct pollfd set[2 * LOSSY_LINKS + 1] = {{.fd = lossy->listener, .events = POLLIN}};
        for (int i = 0; i < 2 * LOSSY_LINKS; i++) {
            int fd = lossy->fd[i / 2][i % 2];
            set[i + 1] = (struct pollfd){.fd = fd > 0 ? fd : -1, .events = POLLIN};
        }
        if (poll(set, 2 * LOSSY_LINKS + 1, 20) <= 0) continue;
        for (int i = 0; i < 2 * LOSSY_LINKS; i++)
            if (set[i + 1].revents != 0 && lossy->fd[i / 2][i % 2] == set[i + 1].fd)
                lossy_move(lossy, i / 2, i % 2);
        if (set[0].revents != 0) lossy_accept(lossy);
    }
    return NULL;
}

/* Listens at DIR/lossy.sock for what is meant for the server at `to`. New: end it with lossy_free,
 * which a test that fails does not come to: its thread then goes on with it to the program's end.
 */
static inline struct lossy *lossy_new(const char *dir, const char *to) {
    struct lossy *lossy = calloc(1, sizeof *lossy);
    struct sockaddr_un address;
    assert_non_null(lossy);
    snprintf(lossy->path, sizeof lossy->path, "%s/lossy.sock", dir);
    snprintf(lossy->url, sizeof lossy->url, "unix:%s", lossy->path);
    snprintf(lossy->to, sizeof lossy->to, "%s", to);
    unlink(lossy->path);
    lossy->listener = lossy_socket(lossy->path, &address);
    assert_true(lossy->listener >= 0);
    assert_int_equal(bind(lossy->listener, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(listen(lossy->listener, LOSSY_LINKS), 0);
    assert_int_equal(pthread_create(&lossy->thread, NULL, lossy_run, lossy), 0);
    return lossy;
}

/* The message number `nth`, from 1, that comes from now on from the caller (side 0), or from Redis
 * (side 1), is lost. */
static inline void lossy_drop(struct lossy *lossy, int side, int nth) {
    atomic_store(&lossy->dropped, 0);
    atomic_store(&lossy->drop[side], nth);
    atomic_store(&lossy->drop[!side], 0);
}

static inline void lossy_free(struct lossy *lossy) {
    atomic_store(&lossy->stop, true);
    pthread_join(lossy->thread, NULL);
    for (int i = 0; i < LOSSY_LINKS; i++)
        if (lossy->fd[i][0] != 0) lossy_close(lossy, i);
    close(lossy->listener);
    free(lossy);
}

#endif
