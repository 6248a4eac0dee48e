/* The life of `blasd up`: what is started after what, what is started again, and in which order all
 * of it ends. Read next: child.h. */
#ifndef BLASD_MAIN_SUPERVISOR_H
#define BLASD_MAIN_SUPERVISOR_H

#include "main/access.h"
#include "main/child.h"
#include "main/listen.h"
#include "main/options.h"
#include "main/private_redis.h"
#include "queue/queue.h"

#include <limits.h>

#define WORKERS_MOST 256

/* One worker. */
struct worker_plan {
    char device[16];
    char label[40];
    char name[128];
    char measured[PATH_MAX + 16];
    char *argv[10];
    cpu_set_t cpus; /* where it may run; empty: anywhere */
};

/* The parts, in the table of a supervisor. */
enum supervised_part { PART_REDIS, PART_API, PART_NOTIFY, PART_WORKERS };

/* How far it has come: each state follows the one before. */
enum supervisor_state {
    UP_REDIS_STARTS, /* nothing else was started */
    UP_PARTS_START,  /* workers and front end were told to */
    UP_RUNNING,      /* the ready line was printed; nothing is given up from here on */
    UP_REQUESTS_END, /* told to end: the front end refuses jobs, workers take those under way */
    UP_WORKERS_END,  /* they end what they compute, which the front end still hands out */
    UP_API_ENDS,
    UP_NOTIFY_ENDS,
    UP_REDIS_ENDS,
    UP_ENDED
};

struct supervisor {
    /* set before supervisor_run; borrowed */
    struct common_options *common;
    struct blasd_store *store;
    struct private_redis *redis; /* NULL: it is somebody else's */
    struct listeners *listeners;
    const char *blobs; /* the blob directory that `blasd up` chose; NULL: it is somebody else's */
    const struct data_dir *dir;
    const struct access_options *access;
    char *const *api_argv;
    cpu_set_t api_cpus;       /* as a worker's */
    bool delivers;            /* webhooks are to be sent */
    bool lifeline;            /* the end of standard input, where that is a pipe, is as SIGTERM */
    const char *worker_redis; /* where workers reach Redis */
    struct worker_plan *workers;
    int worker_count;

    /* its own; zero */
    enum supervisor_state state;
    struct blasd_loop *loop;
    struct child *parts;             /* owned: PART_WORKERS + worker_count */
    const char *worker_variables[3]; /* name, value, NULL */
    struct blasd_watcher signals, input;
    struct blasd_timer adopt_due, api_due, requests_due, blobs_due;
    ino_t blobs_inode;
    int blobs_mark;   /* held; 0 or below: none */
    int told, status; /* how often to end; the exit status */
};

/* Starts everything, prints the ready line on standard output, keeps everything alive, and returns
 * the exit status after all children have ended. */
int supervisor_run(struct supervisor *supervisor);

#endif
