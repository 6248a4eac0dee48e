/* A child process that is kept alive: started by fork and exec, started again when it dies, told to
 * end, killed where it does not. Knows nothing of what its children do. Read next: cmd_up.c.
 *
 * The supervisor has one thread, and must: a child asks to be killed when the thread that started
 * it ends. */
#ifndef BLASD_MAIN_CHILD_H
#define BLASD_MAIN_CHILD_H

#include "base/loop.h"

#include <sched.h>
#include <stdbool.h>
#include <sys/types.h>

#define CHILD_KEEP_MOST 66
/* The environment variable that names the descriptor on which a child says "ready". */
#define CHILD_NOTIFY "BLASD_NOTIFY_FD"

struct child {
    /* set before child_start, borrowed for the life of the child */
    struct blasd_loop *loop;
    const char *label;      /* for log lines */
    const char *executable; /* looked for in PATH; NULL: this very program */
    char *const *argv;
    const int *keep_fds; /* descriptors it inherits, under the same numbers */
    int keep_count;
    const char *const *variables; /* of its environment: name, value, …, NULL; or NULL */
    const cpu_set_t *cpus;        /* where it may run; NULL: anywhere */
    bool notifies;                /* says when it is ready */
    void (*on_ready)(struct child *child);
    /* It ended; it will be started again after this unless child_stop was called or *again is set
     * to false. */
    void (*on_exit)(struct child *child, int status, bool *again);
    void *arg;

    /* its own; zero */
    pid_t pid; /* 0: not running */
    bool ready, stopping;
    int starts, delay_ms;
    int64_t started_ns;
    struct blasd_watcher notify;
    struct blasd_timer restart, kill;
};

/* Starts it; where that fails now it is tried again later. */
void child_start(struct child *child);
/* To be called on SIGCHLD; does nothing where it still runs. */
void child_reap(struct child *child);
/* Sends SIGTERM, and SIGKILL after `grace_ms`; it is not started again. */
void child_stop(struct child *child, int grace_ms);
/* Sends a signal to it if it runs. */
void child_signal(const struct child *child, int signal);

/* For the child: tells the supervisor, if there is one, that it is ready. False: there is none. */
bool child_tell_ready(void);

#endif
