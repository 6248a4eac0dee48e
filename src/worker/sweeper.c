/* The thread that sweeps the store, through a connection of its own: a sweep of many files takes
 * long, and must delay neither jobs nor the renewal of the lease. */
#include "base/clock.h"
#include "base/log.h"
#include "queue/worker_queue.h"
#include "worker/heartbeat_state.h"

#define SWEEP_NS (5000 * BLASD_MS)
#define SWEEP_SOON_NS (1100 * BLASD_MS) /* while jobs end, and after one that found something */

struct sweeper {
    struct blasd_worker_queue *queue; /* owned; NULL: not connected yet */
    int64_t swept_ns;                 /* when the store was swept last, */
    bool found;                       /* whether that found anything, */
    uint64_t jobs;                    /* and how many jobs had ended then */
};

/* Sweeps the store if that is due. Called and left with the lock. */
static void sweep(struct blasd_heartbeat *heartbeat, struct sweeper *sweeper) {
    bool at_work = heartbeat->tally.jobs != sweeper->jobs;
    int64_t epoch = heartbeat->lease.epoch;
    struct blasd_err err = {0};
    int removed = 0;
    if (sweeper->swept_ns != 0 && !at_work && !sweeper->found &&
        blasd_clock_ns() - sweeper->swept_ns < SWEEP_NS)
        return;
    sweeper->jobs = heartbeat->tally.jobs;
    pthread_mutex_unlock(&heartbeat->lock);
    if (sweeper->queue == NULL)
        removed = blasd_worker_queue_open(&heartbeat->options->queue, &sweeper->queue, &err);
    if (removed == 0) {
        blasd_worker_queue_join(sweeper->queue, heartbeat->options->name, epoch,
                                BLASD_THREAD_SWEEPER);
        removed = at_work ? blasd_worker_queue_sweep_at_work(sweeper->queue, &err)
                          : blasd_worker_queue_sweep(sweeper->queue, &err);
    }
    if (removed < 0) blasd_log(BLASD_LOG_DEBUG, "cannot sweep the store: %s", err.detail);
    sweeper->found = removed > 0;
    sweeper->swept_ns = blasd_clock_ns();
    pthread_mutex_lock(&heartbeat->lock);
}

void *blasd_sweeper_run(void *arg) {
    struct blasd_heartbeat *heartbeat = arg;
    struct sweeper sweeper = {.queue = NULL};
    pthread_mutex_lock(&heartbeat->lock);
    while (!heartbeat->stop) {
        bool leased = heartbeat->lease.epoch != 0 && !blasd_heartbeat_lost(heartbeat);
        if (leased) sweep(heartbeat, &sweeper);
        if (!heartbeat->stop)
            blasd_heartbeat_wait(heartbeat, leased ? SWEEP_SOON_NS : BLASD_TICK_NS);
    }
    pthread_mutex_unlock(&heartbeat->lock);
    blasd_worker_queue_free(sweeper.queue);
    return NULL;
}
