/* What the parts of the heartbeat share, and nobody else sees: lease.c (the thread that speaks to
 * Redis), sweeper.c (the one that sweeps the store), watchdog.c (the one that never does), active.c
 * (the batches that run, and what the worker says of itself) and heartbeat.c (start and end). */
#ifndef BLASD_WORKER_HEARTBEAT_STATE_H
#define BLASD_WORKER_HEARTBEAT_STATE_H

#include "worker/heartbeat.h"
#include "worker/phases.h"

#include <pthread.h>
#include <stdatomic.h>

#define BLASD_TICK_NS (200 * BLASD_MS) /* of the lease's thread and the watchdog */
#define BLASD_HEARTBEAT_THREADS 3
/* Their numbers for blasd_worker_queue_join; the slow pool's begin at 1. */
enum { BLASD_THREAD_SWEEPER = 7, BLASD_THREAD_LEASE, BLASD_THREAD_WATCHDOG };

/* The batch that runs in one place. All but the atomics is under the heartbeat's lock. */
struct active {
    struct blasd_watch watch; /* what its kernel asks */
    struct blasd_heartbeat *heartbeat;
    struct blasd_item *const *jobs; /* borrowed */
    int count;
    uint64_t batch; /* counts batches, so that news of one is not taken for the next one's */
    int64_t began_ns;
    bool computing;
    bool gives_way;            /* it is told when it takes longer than others should wait for it */
    int64_t since_ns, told_ns; /* the watchdog's clock: it began; it was told to end, 0: not yet */
    uint64_t most_s;           /* it may compute for so long; 0: as long as it takes */
    _Atomic double progress;
    _Atomic enum blasd_told told;
};

/* What the worker has done; under the lock. */
struct tally {
    uint64_t jobs, failed, batches;
    int64_t busy_ns;
    int64_t window_ns, window_busy_ns; /* where the current window began, and busy_ns then */
    uint64_t window_jobs;
    double busy_share, jobs_per_s;
};

/* But for the first three the thread's own. */
struct lease {
    struct blasd_heartbeat *heartbeat; /* borrowed: it is a part of it */
    int64_t epoch;                     /* under the lock; 0: no lease */
    _Atomic int64_t leased_epoch, lost_epoch;
    struct blasd_worker_queue *queue; /* owned; NULL: not connected yet */
    int64_t probed_ns, warned_ns;
    int64_t renewed_ns;
    int64_t renewed_epoch; /* the lease that the queue speaks for */
    int64_t told_ns;       /* when the phases were published last, */
    uint64_t told_jobs;    /* and how many jobs were in them */
};

struct blasd_heartbeat {
    const struct blasd_worker_options *options;
    pthread_t threads[BLASD_HEARTBEAT_THREADS];
    int thread_count; /* of them that were started */
    pthread_mutex_t lock;
    pthread_cond_t wake;
    /* time as the watchdog sees it: it stands still while the process is stopped */
    _Atomic int64_t clock_ns, main_ns; /* now; when the main thread gave its last sign */
    int64_t started_ns;
    struct lease lease;
    struct blasd_phases phases; /* counts by itself, without the lock */

    /* under the lock */
    bool stop;
    struct active active[BLASD_SLOTS];
    struct blasd_device_info device;
    char kept[BLASD_KEPT_MOST][BLASD_ID_LEN + 1];
    int kept_count;
    uint64_t host_memory;
    struct tally tally;
    struct blasd_cost cost;
};

/* For active[].watch. */
bool blasd_active_go_on(struct blasd_watch *watch, double progress);
/* As blasd_heartbeat_estimate_ns. With the lock. */
double blasd_active_estimate_ns(const struct blasd_heartbeat *heartbeat, const struct blasd_op *op,
                                const struct blasd_plan *plan);
/* Jobs of the batches that run. With the lock. */
int blasd_active_jobs(const struct blasd_heartbeat *heartbeat);
/* How long ago the main thread gave a sign that it owes. With the lock. */
int64_t blasd_main_silence(const struct blasd_heartbeat *heartbeat);
int64_t blasd_silence_ns(const struct blasd_heartbeat *heartbeat);
/* Waits for so long, or the end. With the lock. */
void blasd_heartbeat_wait(struct blasd_heartbeat *heartbeat, int64_t ns);

/* The threads; `arg` is the heartbeat. */
void *blasd_lease_run(void *arg);
void *blasd_sweeper_run(void *arg);
void *blasd_watchdog_run(void *arg);

#endif
