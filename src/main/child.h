/* A child process that is kept alive: started by fork and exec, started again when it dies or gives
 * no sign of life, told to end, killed where it does not. Knows nothing of what its children do.
 * Read next: cmd_up.c.
 *
 * One thread alone starts children: a child asks to be killed when the thread that started it
 * ends. */
#ifndef BLASD_MAIN_CHILD_H
#define BLASD_MAIN_CHILD_H

#include "base/loop.h"

#include <sched.h>
#include <stdbool.h>
#include <sys/types.h>

/* The environment variable that names the descriptor on which a child says, each with one byte,
 * that it is ready, that it is alive (once a second from then on, and while it waits for others
 * before), once that what it serves can be used, and while it ends that it has nothing under way.
 */
#define CHILD_NOTIFY "BLASD_NOTIFY_FD"

struct child;

/* What a child does; each may be NULL. */
struct child_events {
    void (*on_ready)(struct child *child);
    void (*on_serving)(struct child *child);
    void (*on_quiet)(struct child *child);
    /* It ended; it will be started again after this unless child_stop was called or *again is set
     * to false. */
    void (*on_exit)(struct child *child, int status, bool *again);
};

struct child {
    /* set before child_start, borrowed for the life of the child */
    struct blasd_loop *loop;
    const char *label; /* for log lines */
    bool foreign;      /* argv[0] is looked for in PATH; else it is this very program */
    char *const *argv;
    const int *keep_fds; /* descriptors it inherits, under the same numbers */
    int keep_count;
    const char *const *variables; /* of its environment: name, value, …, NULL; or NULL */
    const cpu_set_t *cpus;        /* where it may run; NULL or empty: anywhere */
    bool notifies;                /* says all that */
    int silence_s; /* killed where it gave no sign of life for so long since it was ready, */
    int start_s;   /* or before, where it notifies */
    const struct child_events *events;
    void *arg; /* whoever owns the events */

    /* its own; zero */
    pid_t pid; /* 0: not running */
    bool ready, stopping;
    int starts, delay_ms;
    int silent; /* looks since its last sign of life, one a second */
    int64_t started_ns;
    struct blasd_watcher notify;
    struct blasd_timer restart, kill, look;
};

/* Starts it; where that fails now it is tried again later. */
void child_start(struct child *child);
/* To be called on SIGCHLD; does nothing where it still runs. */
void child_reap(struct child *child);
/* One that does not notify has given a sign of life, of which the first says that it is ready. */
void child_sign(struct child *child);
/* Sends SIGTERM, and SIGKILL after `grace_ms`; it is not started again. May be called again. */
void child_stop(struct child *child, int grace_ms);
/* Sends a signal to it if it runs. */
void child_signal(const struct child *child, int signal);

/* For the child: tells the supervisor, if there is one, that it is ready. False: there is none. */
bool child_tell_ready(void);
/* Whether there is one. */
bool child_has_supervisor(void);
/* The same, that it is alive. */
void child_tell_alive(void *unused);
/* The same, that what it serves can be used. */
void child_tell_serving(void *unused);
/* The same, that it has nothing under way any more. */
void child_tell_quiet(void *unused);

#endif
