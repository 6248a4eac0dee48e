/* What a machine does without the service: probes, each of which measures one or two figures once.
 * The program (bench_machine.c) calls each in every round. Nothing here knows of blasd.
 *
 * A probe returns NULL, or in words why this machine has no such figure; that text is static. Times
 * are in microseconds unless a name says otherwise, rates in 10^9 bytes or operations a second.
 *
 * Read next: machine_trips.c, machine_redis.c, machine_memory.c, machine_compute.c. */
#ifndef BENCH_MACHINE_H
#define BENCH_MACHINE_H

#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define MACHINE_VALUES 2        /* figures of a probe, at the most */
#define MACHINE_COPY (64 << 20) /* bytes */

struct machine {
    cpu_set_t allowed; /* the cores that this process may use, */
    int cores;         /* their number, */
    int first, second; /* and the two of them that pairs of processes are bound to, of which
                          second is -1 where there is one alone */
    double trips_s;    /* round trips of one kind take so long in a round, */
    int trips_least;   /* but are so many at least */
    char *from, *to;   /* owned; MACHINE_COPY bytes each that have been used before */
    pid_t redis;       /* 0: not started; -1: it cannot be */
    char redis_dir[32];
};

/* Sets up all but Redis, which its probe starts. 0, or -1 with errno. */
int machine_init(struct machine *m);
/* Ends what was started and forgets what was made; takes one that machine_init refused, too. */
void machine_release(struct machine *m);

double machine_now(void);    /* seconds */
void machine_bind(int core); /* this process to one core; -1: does nothing */
void machine_unbind(struct machine *m);
void machine_redis_stop(struct machine *m);
/* Fetches and sends exactly `size` bytes. False at an end or an error. */
bool machine_receive(int fd, void *data, size_t size);
bool machine_send(int fd, const void *data, size_t size);

/* What goes there and back: `ask_len` bytes and `answer_len`, 64 at the most. */
struct trip {
    const char *ask;
    size_t ask_len, answer_len;
    bool poll; /* the answer is awaited in poll, not in read */
};

/* Trips again and again, from the core this process is bound to. values: median and 99th
 * percentile. */
const char *machine_trips(struct machine *m, int in, int out, const struct trip *trip,
                          double *values);

/* Both ends are processes that block in read. values: median, 99th percentile. */
const char *machine_pipe_one_core(struct machine *m, double *values);
const char *machine_pipe_two_cores(struct machine *m, double *values);
const char *machine_pipe_awake(struct machine *m, double *values); /* idle cores may not halt */
const char *machine_tcp_one_core(struct machine *m, double *values);
const char *machine_tcp_two_cores(struct machine *m, double *values);
const char *machine_redis_ping(struct machine *m, double *values);
const char *machine_redis_ping_poll(struct machine *m, double *values); /* the client is in poll */

const char *machine_tcp_stream(struct machine *m, double *values);   /* GB/s */
const char *machine_copy(struct machine *m, double *values);         /* GB/s */
const char *machine_fresh_memory(struct machine *m, double *values); /* a page */
const char *machine_fresh_tmpfs(struct machine *m, double *values);  /* a page */

const char *machine_system_call(struct machine *m, double *values);     /* ns */
const char *machine_sgemm_one_core(struct machine *m, double *values);  /* GFLOP/s */
const char *machine_sgemm_all_cores(struct machine *m, double *values); /* GFLOP/s */

#endif
