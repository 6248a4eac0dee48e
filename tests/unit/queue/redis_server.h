/* A real redis-server of a test's own, in a directory of its own, with a clock that the test moves
 * (redis_clock.c). */
#ifndef TESTS_REDIS_SERVER_H
#define TESTS_REDIS_SERVER_H

#include "../child_fork.h"

#include <fcntl.h>
#include <hiredis/hiredis.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

/* `dir` outlives the server, so that it can be started again on its files. */
struct redis {
    char dir[64], socket[96], url[112];
    char port[8]; /* "": listens on no TCP port; else there, and wants the password "secret" */
    pid_t pid;
};

static inline void sleep_ms(long ms) {
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000}, NULL);
}

/* In a process that becomes redis-server: redis_clock.c gives it its time. */
static inline void redis_clock_preload(const struct redis *redis) {
    char path[4096], clock[96];
    ssize_t len = readlink("/proc/self/exe", path, sizeof path - 64);
    if (len <= 0) _exit(127);
    path[len] = '\0';
    snprintf(strrchr(path, '/') + 1, 64, "../queue/redis_clock.so");
    snprintf(clock, sizeof clock, "%s/clock", redis->dir);
    setenv("LD_PRELOAD", path, 1);
    setenv("BLASD_TEST_CLOCK", clock, 1);
}

/* Moves the server's clock on, or only makes sure that it has one to be moved. */
static int64_t redis_ahead_us; /* of the server moved last */

static inline void redis_forward(const struct redis *redis, int64_t ms) {
    char path[96];
    int64_t ahead_us = 0;
    snprintf(path, sizeof path, "%s/clock", redis->dir);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_true(pread(fd, &ahead_us, sizeof ahead_us, 0) >= 0);
    ahead_us += ms * 1000;
    assert_int_equal(pwrite(fd, &ahead_us, sizeof ahead_us, 0), sizeof ahead_us);
    close(fd);
    redis_ahead_us = ahead_us;
}

/* Starts the server on its directory, as the supervisor does. */
static inline void redis_launch(struct redis *redis) {
    bool tcp = redis->port[0] != '\0';
    char check[200];
    snprintf(check, sizeof check,
             "f=%s/appendonlydir/appendonly.aof.manifest; [ ! -e $f ] || echo y | redis-check-aof "
             "--fix $f >/dev/null",
             redis->dir);
    assert_int_equal(system(check), 0);
    redis_forward(redis, 0);
    redis->pid = child_fork();
    assert_true(redis->pid >= 0);
    if (redis->pid == 0) {
        redis_clock_preload(redis);
        execlp("redis-server", "redis-server", "--port", tcp ? redis->port : "0", "--bind",
               "127.0.0.1", "--unixsocket", redis->socket, "--dir", redis->dir, "--appendonly",
               "yes", "--appendfsync", "no", "--save", "", "--requirepass", tcp ? "secret" : "",
               "--logfile", "redis.log", (char *)NULL);
        _exit(127);
    }
}

/* Waits until it answers. New: the connection that it answers on. */
static inline redisContext *redis_client(const struct redis *redis) {
    for (int i = 0; i < 6000; i++) {
        redisContext *c = redisConnectUnix(redis->socket);
        redisReply *reply;
        bool up;
        if (c && !c->err && redis->port[0] != '\0') freeReplyObject(redisCommand(c, "AUTH secret"));
        reply = c && !c->err ? redisCommand(c, "PING") : NULL;
        up = reply && reply->type == REDIS_REPLY_STATUS;
        freeReplyObject(reply);
        if (up) return c;
        if (c) redisFree(c);
        sleep_ms(10);
    }
    fail_msg("redis-server did not start; see %s/redis.log", redis->dir);
    return NULL;
}

static inline void redis_up(struct redis *redis) {
    redis_launch(redis);
    redisFree(redis_client(redis));
}

static inline void redis_end(struct redis *redis, int sig) {
    if (redis->pid <= 0) return;
    kill(redis->pid, sig);
    waitpid(redis->pid, NULL, 0);
    redis->pid = 0;
}

/* Makes the directory. */
static inline int redis_init(struct redis *redis) {
    signal(SIGPIPE, SIG_IGN);
    *redis = (struct redis){.dir = "/tmp/test_queue.XXXXXX"};
    if (!mkdtemp(redis->dir)) return -1;
    snprintf(redis->socket, sizeof redis->socket, "%s/r.sock", redis->dir);
    snprintf(redis->url, sizeof redis->url, "unix:%s", redis->socket);
    return 0;
}

static inline int redis_start(struct redis *redis) {
    if (redis_init(redis) != 0) return -1;
    redis_up(redis);
    return 0;
}

/* Ends it, and removes the directory. */
static inline void redis_stop(struct redis *redis) {
    char command[96];
    redis_end(redis, SIGKILL);
    snprintf(command, sizeof command, "rm -rf '%s'", redis->dir);
    assert_int_equal(system(command), 0);
}

#endif
