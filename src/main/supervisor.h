/* The life of `blasd up`: what is started after what, what is started again, and in which order all
 * of it ends. Read next: child.h. */
#ifndef BLASD_MAIN_SUPERVISOR_H
#define BLASD_MAIN_SUPERVISOR_H

#include "main/access.h"
#include "main/blob_dir.h"
#include "main/child.h"
#include "main/listen.h"
#include "main/options.h"
#include "main/private_redis.h"
#include "queue/queue.h"

#include <limits.h>

#define WORKERS_MOST 256

/* One worker. */
struct worker_plan {
    struct child child;
    char device[16];
    char label[40];
    char name[128];
    char measured[PATH_MAX + 16];
    char *argv[10];
    cpu_set_t cpus; /* where it may run; empty: anywhere */
};

/* The way down. */
struct shutdown {
    bool begun;          /* told to end, or unable to start */
    bool requests_ended; /* the front end has none that the workers should still answer */
    bool refused_enough; /* and was told to end */
    bool done;
    int told, status;
    struct blasd_timer requests_due;
};

struct supervisor;

/* The blob directory, where `blasd up` chose it. */
struct supervised_blobs {
    /* borrowed; NULL: it is somebody else's */
    const char *spec;
    const struct data_dir *dir;
    ino_t inode;
    struct blasd_timer look;
    struct supervisor *up; /* the supervisor's to set */
};

struct supervisor {
    /* set before supervisor_run; borrowed */
    struct common_options *common;
    struct blasd_store *store;
    struct private_redis *redis; /* NULL: it is somebody else's */
    struct listeners *listeners;
    struct supervised_blobs *blobs;
    const struct access_options *access;
    char *const *api_argv;
    cpu_set_t api_cpus;       /* as a worker's */
    bool delivers;            /* somebody is to send webhooks and put outputs */
    bool lifeline;            /* the end of standard input, where that is a pipe, is as SIGTERM */
    const char *worker_redis; /* where workers reach Redis */
    struct worker_plan *workers;
    int worker_count;

    /* its own; zero */
    struct blasd_loop *loop;
    struct child redis_child, check_child, api_child, notify_child;
    const char *worker_variables[3]; /* name, value, NULL */
    struct blasd_watcher signals, input;
    struct blasd_timer adopt_due, api_due;
    bool rest_starts; /* workers and front end were told to */
    bool running;     /* the ready line was printed */
    struct shutdown shutdown;
};

/* Starts everything, prints the ready line on standard output, keeps everything alive, and returns
 * the exit status after all children have ended. */
int supervisor_run(struct supervisor *supervisor);

#endif
