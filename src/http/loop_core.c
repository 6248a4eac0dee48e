/* Read next: loop_core.h. */
#include "http/loop_core.h"

#include "base/clock.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define LOOK_NS INT64_C(100000000)   /* apart; idle time is counted in hundredths of seconds */
#define STALE_NS INT64_C(1000000000) /* what lies further back says nothing of now */
#define AWAY_NS INT64_C(20000000)    /* without bytes, and the thread is let go */
#define STAY_NS INT64_C(50000000)    /* at a time, */
#define FREE_NS INT64_C(4000000)     /* and so long between, a tick of the kernel or more */
/* Of all cores' time: with less to spare the thread is kept near, with more it is let go. */
#define IDLE_LEAST 0.06
#define IDLE_MOST 0.12

void http_loop_core_open(struct http_loop_core *core, const char *uptime) {
    *core = (struct http_loop_core){.cores = (int)sysconf(_SC_NPROCESSORS_ONLN)};
    if (core->cores < 2) return;
    blasd_seat_open(&core->seat);
    core->uptime = uptime;
}

bool http_loop_core_is_local(int fd) {
    struct sockaddr_storage peer = {0};
    socklen_t len = sizeof peer;
    if (getpeername(fd, (struct sockaddr *)&peer, &len) != 0) return false;
    if (peer.ss_family == AF_INET) {
        struct sockaddr_in v4;
        memcpy(&v4, &peer, sizeof v4);
        return ntohl(v4.sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
    }
    if (peer.ss_family == AF_INET6) {
        struct sockaddr_in6 v6;
        memcpy(&v6, &peer, sizeof v6);
        return IN6_IS_ADDR_LOOPBACK(&v6.sin6_addr) ||
               (IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr) && v6.sin6_addr.s6_addr[12] == IN_LOOPBACKNET);
    }
    return false;
}

static bool read_uptime(const char *path, double *up_s, double *idle_s) {
    FILE *file = fopen(path, "re");
    if (file == NULL) return false;
    bool read = fscanf(file, "%lf %lf", up_s, idle_s) == 2;
    (void)fclose(file);
    return read;
}

/* Looks, once in a while, at the time that nobody used. */
static void look(struct http_loop_core *core, int64_t now) {
    double up_s, idle_s, most = core->crowded ? IDLE_MOST : IDLE_LEAST;
    int64_t since = now - core->looked_ns;
    if (since < LOOK_NS) return;
    if (!read_uptime(core->uptime, &up_s, &idle_s)) {
        core->uptime = NULL;
        core->crowded = false;
        return;
    }
    double all_s = (up_s - core->up_s) * core->cores;
    core->crowded = since < STALE_NS && idle_s - core->idle_s < most * all_s;
    core->looked_ns = now;
    core->up_s = up_s;
    core->idle_s = idle_s;
}

void http_loop_core_moves(struct http_loop_core *core, int fd) {
    int number = -1;
    socklen_t len = sizeof number;
    if (core->uptime == NULL) return;
    core->moved_ns = blasd_clock_ns();
    look(core, core->moved_ns);
    if (!core->crowded) {
        if (core->why == HTTP_CORE_NEAR) http_loop_core_leave(core);
    } else if (getsockopt(fd, SOL_SOCKET, SO_INCOMING_CPU, &number, &len) == 0) {
        blasd_seat_take_core(&core->seat, number);
        if (core->seat.taken && core->seat.core == number) core->why = HTTP_CORE_NEAR;
    }
}

static void stay(struct http_loop_core *core, int64_t now) {
    blasd_seat_take_core(&core->seat, sched_getcpu());
    if (core->seat.taken) core->why = HTTP_CORE_STAYS;
    core->since_ns = now;
}

void http_loop_core_turn(struct http_loop_core *core, bool busy) {
    if (core->seat.thread == 0 || (core->why == HTTP_CORE_ANY && !busy)) return;
    int64_t now = blasd_clock_ns();
    if (core->why == HTTP_CORE_NEAR && now - core->moved_ns > AWAY_NS)
        http_loop_core_leave(core);
    else if (core->why == HTTP_CORE_STAYS && (!busy || now - core->since_ns > STAY_NS))
        http_loop_core_leave(core);
    else if (core->why == HTTP_CORE_ANY && now - core->since_ns > FREE_NS)
        stay(core, now);
}

void http_loop_core_leave(struct http_loop_core *core) {
    if (core->why == HTTP_CORE_ANY) return;
    blasd_seat_leave(&core->seat);
    core->why = HTTP_CORE_ANY;
    core->since_ns = blasd_clock_ns();
}
