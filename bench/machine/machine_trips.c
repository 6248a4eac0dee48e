/* Round trips between two processes, through pipes and loopback TCP, and a stream over the latter.
 * On one core a trip is what two switches and four system calls cost; on two it holds two wake-ups
 * of a core that has gone idle, which is what a virtual machine's host makes of them. */
#include "machine.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define TRIPS_MOST 1000
#define TRIPS_WARM 10 /* first ones, not counted */
#define SMALL 64      /* bytes of a small request over TCP */
#define STREAM (32 << 20)
#define PIECE (256 << 10)

bool machine_receive(int fd, void *data, size_t size) {
    for (size_t done = 0; done < size;) {
        ssize_t got = read(fd, (char *)data + done, size - done);
        if (got == 0 || (got < 0 && errno != EINTR)) return false;
        if (got > 0) done += (size_t)got;
    }
    return true;
}

bool machine_send(int fd, const void *data, size_t size) {
    for (size_t done = 0; done < size;) {
        ssize_t put = write(fd, (const char *)data + done, size - done);
        if (put < 0 && errno != EINTR) return false;
        if (put > 0) done += (size_t)put;
    }
    return true;
}

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

const char *machine_trips(struct machine *m, int in, int out, const struct trip *trip,
                          double *values) {
    static double times[TRIPS_MOST];
    char answer[SMALL];
    struct pollfd answered = {.fd = in, .events = POLLIN};
    int count = 0;
    double begin = machine_now(), before = begin, after = begin;
    for (int i = -TRIPS_WARM; i < TRIPS_MOST; i++) {
        if (i >= m->trips_least && after - begin > m->trips_s) break;
        if (!machine_send(out, trip->ask, trip->ask_len)) return "the other process has ended";
        if (trip->poll) poll(&answered, 1, -1);
        if (!machine_receive(in, answer, trip->answer_len)) return "the other process has ended";
        after = machine_now();
        if (i >= 0) times[count++] = (after - before) * 1e6;
        before = after;
    }
    qsort(times, (size_t)count, sizeof *times, by_size);
    values[0] = times[count / 2];
    values[1] = times[count * 99 / 100];
    return NULL;
}

/* Two ways between this process and its partner: each end is read from [0] and written to [1]. */
struct ends {
    int mine[2], theirs[2];
};

static int pipes_open(struct ends *ends) {
    int there[2], back[2];
    if (pipe2(there, O_CLOEXEC) < 0) return -1;
    if (pipe2(back, O_CLOEXEC) < 0) {
        close(there[0]);
        close(there[1]);
        return -1;
    }
    *ends = (struct ends){.mine = {back[0], there[1]}, .theirs = {there[0], back[1]}};
    return 0;
}

static int tcp_open(struct ends *ends) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof address;
    int on = 1, mine = -1, theirs = -1, result = -1;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (listener < 0 || bind(listener, (struct sockaddr *)&address, len) < 0 ||
        listen(listener, 1) < 0 || getsockname(listener, (struct sockaddr *)&address, &len) < 0)
        goto done;
    mine = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (mine < 0 || connect(mine, (struct sockaddr *)&address, len) < 0) goto done;
    theirs = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    if (theirs < 0) goto done;
    setsockopt(mine, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(theirs, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    *ends = (struct ends){.mine = {mine, mine}, .theirs = {theirs, theirs}};
    result = 0;
done:
    if (listener >= 0) close(listener);
    if (result < 0 && mine >= 0) close(mine);
    return result;
}

static void ends_close(const int ends[2]) {
    close(ends[0]);
    if (ends[1] != ends[0]) close(ends[1]);
}

/* The other process: takes `take` bytes and gives `give`, until nothing more comes. */
static void partner(const int ends[2], size_t take, size_t give) {
    static char piece[PIECE];
    for (;;) {
        for (size_t left = take; left > 0;) {
            size_t size = left < PIECE ? left : PIECE;
            if (!machine_receive(ends[0], piece, size)) return;
            left -= size;
        }
        if (!machine_send(ends[1], piece, give)) return;
    }
}

/* Starts it on `core`. Afterwards this process holds its own ends alone. */
static pid_t partner_start(const struct ends *ends, int core, size_t take, size_t give) {
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        ends_close(ends->mine);
        machine_bind(core);
        partner(ends->theirs, take, give);
        _exit(0);
    }
    ends_close(ends->theirs);
    return pid;
}

static const char *trips_with(struct machine *m, int (*open_ends)(struct ends *), int core,
                              size_t size, double *values) {
    static const char ask[SMALL];
    struct trip trip = {.ask = ask, .ask_len = size, .answer_len = size};
    const char *problem = "no process could be started";
    struct ends ends;
    if (core < 0) return "there is one core only";
    if (open_ends(&ends) < 0) return "no connection could be made";
    pid_t pid = partner_start(&ends, core, size, size);
    if (pid > 0) {
        machine_bind(m->first);
        problem = machine_trips(m, ends.mine[0], ends.mine[1], &trip, values);
        machine_unbind(m);
    }
    ends_close(ends.mine);
    if (pid > 0) waitpid(pid, NULL, 0);
    return problem;
}

const char *machine_pipe_one_core(struct machine *m, double *values) {
    return trips_with(m, pipes_open, m->first, 1, values);
}

const char *machine_pipe_two_cores(struct machine *m, double *values) {
    return trips_with(m, pipes_open, m->second, 1, values);
}

const char *machine_pipe_awake(struct machine *m, double *values) {
    int32_t none_us = 0; /* an idle core may take so long to wake up: it spins then */
    int fd = open("/dev/cpu_dma_latency", O_WRONLY | O_CLOEXEC);
    if (fd < 0) return "/dev/cpu_dma_latency cannot be opened";
    const char *problem = machine_send(fd, &none_us, sizeof none_us)
                              ? machine_pipe_two_cores(m, values)
                              : "/dev/cpu_dma_latency cannot be written to";
    close(fd); /* which ends the request */
    return problem;
}

const char *machine_tcp_one_core(struct machine *m, double *values) {
    return trips_with(m, tcp_open, m->first, SMALL, values);
}

const char *machine_tcp_two_cores(struct machine *m, double *values) {
    return trips_with(m, tcp_open, m->second, SMALL, values);
}

/* Sends STREAM bytes; done when the other end has them all and says so. */
static bool stream_once(struct machine *m, const struct ends *ends) {
    char told;
    for (size_t sent = 0; sent < STREAM; sent += PIECE)
        if (!machine_send(ends->mine[1], m->from + sent, PIECE)) return false;
    return machine_receive(ends->mine[0], &told, 1);
}

const char *machine_tcp_stream(struct machine *m, double *values) {
    const char *problem = "the stream broke off";
    struct ends ends;
    if (m->second < 0) return "there is one core only";
    if (tcp_open(&ends) < 0) return "no connection could be made";
    pid_t pid = partner_start(&ends, m->second, STREAM, 1);
    machine_bind(m->first);
    if (pid > 0 && stream_once(m, &ends)) { /* once untimed: windows grow */
        double begin = machine_now();
        if (stream_once(m, &ends)) {
            values[0] = STREAM / (machine_now() - begin) / 1e9;
            problem = NULL;
        }
    }
    machine_unbind(m);
    ends_close(ends.mine);
    if (pid > 0) waitpid(pid, NULL, 0);
    return problem;
}
