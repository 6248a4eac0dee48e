/* Read next: near.h. */
#include "base/near.h"

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
/* Of all cores' time: with less to spare the thread is kept near, with more it is let go. */
#define IDLE_LEAST 0.06
#define IDLE_MOST 0.12

void blasd_near_open(struct blasd_near *near, const char *uptime) {
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    *near = (struct blasd_near){.core = -1, .cores = (int)cores};
    if (cores > 1 && cores <= CPU_SETSIZE) near->uptime = uptime;
}

bool blasd_near_peer(int fd) {
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
static void look(struct blasd_near *near, int64_t now) {
    double up_s, idle_s, most = near->crowded ? IDLE_MOST : IDLE_LEAST;
    int64_t since = now - near->looked_ns;
    if (since < LOOK_NS) return;
    if (!read_uptime(near->uptime, &up_s, &idle_s)) {
        near->uptime = NULL;
        near->crowded = false;
        return;
    }
    double all_s = (up_s - near->up_s) * near->cores;
    near->crowded = since < STALE_NS && idle_s - near->idle_s < most * all_s;
    near->looked_ns = now;
    near->up_s = up_s;
    near->idle_s = idle_s;
}

static void keep_on(struct blasd_near *near, int core) {
    cpu_set_t only;
    if (core < 0 || core >= CPU_SETSIZE || core == near->core) return;
    if (near->core < 0 && sched_getaffinity(0, sizeof near->usual, &near->usual) != 0) return;
    if (!CPU_ISSET((size_t)core, &near->usual)) return;
    CPU_ZERO(&only);
    CPU_SET((size_t)core, &only);
    if (sched_setaffinity(0, sizeof only, &only) == 0) near->core = core;
}

void blasd_near_moves(struct blasd_near *near, int fd) {
    int core = -1;
    socklen_t len = sizeof core;
    if (near->uptime == NULL) return;
    near->moved_ns = blasd_clock_ns();
    look(near, near->moved_ns);
    if (!near->crowded)
        blasd_near_leave(near);
    else if (getsockopt(fd, SOL_SOCKET, SO_INCOMING_CPU, &core, &len) == 0)
        keep_on(near, core);
}

void blasd_near_leave(struct blasd_near *near) {
    if (near->core < 0) return;
    near->core = -1;
    (void)sched_setaffinity(0, sizeof near->usual, &near->usual);
}

void blasd_near_turn(struct blasd_near *near) {
    if (near->core >= 0 && blasd_clock_ns() - near->moved_ns > AWAY_NS) blasd_near_leave(near);
}
