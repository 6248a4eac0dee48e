/* The thread that keeps the worker's lease: it renews, tells progress and figures, and learns of
 * cancellation, through a connection of its own. */
#include "base/clock.h"
#include "base/log.h"
#include "queue/worker_queue.h"
#include "worker/heartbeat_state.h"
#include "worker/remaining.h"

#include <stdlib.h>
#include <string.h>

#define RENEW_MOST_NS (1000 * BLASD_MS)
#define PROBE_NS (500 * BLASD_MS)
#define WARN_NS (10000 * BLASD_MS)

/* Redis says that a lease is lost: late news of an earlier one is none of the one there is now,
 * which may itself have been given up. */
static void note_lost(struct lease *lease, int64_t epoch) {
    struct blasd_heartbeat *heartbeat = lease->heartbeat;
    pthread_mutex_lock(&heartbeat->lock);
    if (lease->epoch == epoch) atomic_store(&lease->lost_epoch, epoch);
    pthread_mutex_unlock(&heartbeat->lock);
}

/* A Redis that is away is told of by the main thread, which waits for it; one that refuses is not.
 */
static void tell_refused(struct lease *lease, int code, const struct blasd_err *err) {
    int64_t now = blasd_clock_ns();
    bool due = lease->warned_ns == 0 || now - lease->warned_ns > WARN_NS;
    enum blasd_log_level level = BLASD_LOG_DEBUG;
    if (code != -(int)BLASD_E_queue_unavailable && due) {
        lease->warned_ns = now;
        level = BLASD_LOG_WARN;
    }
    blasd_log(level, "cannot renew the lease: %s", err->detail);
}

static void renew(struct lease *lease, int64_t epoch) {
    struct blasd_heartbeat *heartbeat = lease->heartbeat;
    struct blasd_err err = {0};
    bool lost = false;
    char *info = blasd_heartbeat_info(heartbeat);
    int code;
    if (info == NULL) return;
    blasd_worker_queue_join(lease->queue, heartbeat->options->name, epoch, BLASD_THREAD_LEASE);
    lease->renewed_epoch = epoch;
    code = blasd_worker_queue_renew(lease->queue, info, &lost, &err);
    if (code != 0)
        tell_refused(lease, code, &err);
    else if (lost)
        note_lost(lease, epoch);
    free(info);
}

/* Whether there is a connection; makes it. The main thread, which waits for it too, says why there
 * is none. Called and left with the lock. */
static bool connect_to_redis(struct lease *lease, int64_t now) {
    struct blasd_heartbeat *heartbeat = lease->heartbeat;
    struct blasd_err ignored;
    if (lease->queue != NULL) return true;
    if (lease->probed_ns != 0 && now - lease->probed_ns < PROBE_NS) return false;
    lease->probed_ns = now;
    pthread_mutex_unlock(&heartbeat->lock);
    (void)blasd_worker_queue_open(&heartbeat->options->queue, &lease->queue, &ignored);
    pthread_mutex_lock(&heartbeat->lock);
    return lease->queue != NULL;
}

/* Says what the device has copies of: GET /tensors/ID shows it. */
static void tell_copies(struct lease *lease) {
    struct blasd_heartbeat *heartbeat = lease->heartbeat;
    char ids[BLASD_KEPT_MOST][BLASD_ID_LEN + 1], device[sizeof heartbeat->device.id];
    struct blasd_err err = {0};
    int count;
    pthread_mutex_lock(&heartbeat->lock);
    count = heartbeat->kept_count;
    memcpy(ids, heartbeat->kept, (size_t)count * sizeof *ids);
    memcpy(device, heartbeat->device.id, sizeof device);
    pthread_mutex_unlock(&heartbeat->lock);
    if (count > 0 &&
        blasd_worker_queue_copies(lease->queue, device, (const char(*)[BLASD_ID_LEN + 1]) ids,
                                  count, &err) != 0)
        blasd_log(BLASD_LOG_DEBUG, "cannot tell what the device keeps: %s", err.detail);
}

/* Publishes what was counted of jobs, where any have ended since, or the last text is about to
 * expire. */
static void tell_phases(struct lease *lease, int64_t now) {
    struct blasd_heartbeat *heartbeat = lease->heartbeat;
    int64_t lasts = (int64_t)heartbeat->options->queue.limits->lease_ms * BLASD_MS;
    uint64_t jobs = blasd_phases_jobs(&heartbeat->phases);
    struct blasd_err err = {0};
    struct blasd_buf text;
    if (jobs == lease->told_jobs && now - lease->told_ns < lasts) return;
    blasd_buf_init(&text, BLASD_MIB);
    if (blasd_phases_text(&heartbeat->phases, heartbeat->options->otlp, &text) != 0)
        blasd_log(BLASD_LOG_DEBUG, "no memory for the figures of jobs");
    else if (blasd_worker_queue_figures(lease->queue, text.data, &err) != 0)
        blasd_log(BLASD_LOG_DEBUG, "cannot publish the figures of jobs: %s", err.detail);
    else
        lease->told_jobs = jobs;
    lease->told_ns = now;
    blasd_buf_release(&text);
}

/* How long the batch will yet take. With the lock. */
static int64_t remaining_us(const struct blasd_heartbeat *heartbeat, const struct active *active) {
    double estimate_ns = 0, elapsed_ns = (double)(blasd_clock_ns() - active->began_ns);
    for (int i = 0; i < active->count; i++)
        estimate_ns +=
            blasd_active_estimate_ns(heartbeat, active->jobs[i]->job.op, &active->jobs[i]->plan);
    return (int64_t)(1e6 * blasd_remaining_s(estimate_ns * 1e-9, elapsed_ns * 1e-9,
                                             atomic_load(&active->progress)));
}

/* Tells the progress of a batch that has run for a while, and learns whether it is still wanted.
 * Called with the lock, which is left while Redis is asked. */
static void report_progress(struct lease *lease, struct active *active) {
    struct blasd_heartbeat *heartbeat = lease->heartbeat;
    uint64_t batch = active->batch;
    int count = active->count;
    int64_t left_us = remaining_us(heartbeat, active);
    bool wanted = true;
    struct blasd_err err = {0};
    char(*copies)[BLASD_ID_LEN + 1] = calloc((size_t)count, sizeof *copies);
    const char **ids = calloc((size_t)count, sizeof *ids);
    if (copies == NULL || ids == NULL) goto done;
    for (int i = 0; i < count; i++) {
        memcpy(copies[i], active->jobs[i]->claim->id, sizeof *copies);
        ids[i] = copies[i];
    }
    pthread_mutex_unlock(&heartbeat->lock);
    if (blasd_worker_queue_progress(lease->queue, ids, count, atomic_load(&active->progress),
                                    left_us, &wanted, &err) != 0)
        wanted = true; /* nothing was learnt */
    pthread_mutex_lock(&heartbeat->lock);
    if (!wanted && active->batch == batch) atomic_store(&active->told, BLASD_UNWANTED);
done:
    free(copies);
    free(ids);
}

/* Whether the batch has run so long that it is time to ask after it. It is asked for in the name of
 * the lease that was renewed last: of a batch that began under a newer one Redis would say that
 * this worker has no business with it, which must not be taken for a cancellation. */
static bool report_due(const struct lease *lease, const struct active *active, int64_t now) {
    return active->count > 0 && now - active->began_ns >= BLASD_TICK_NS &&
           lease->epoch == lease->renewed_epoch;
}

/* One round; called and left with the lock. */
static void tick(struct lease *lease, int64_t every_ns) {
    struct blasd_heartbeat *heartbeat = lease->heartbeat;
    int64_t now = blasd_clock_ns(), epoch;
    if (!connect_to_redis(lease, now)) return;
    epoch = lease->epoch;
    if (epoch == 0 || blasd_heartbeat_lost(heartbeat)) return;
    /* a main thread that stands still must not keep its jobs from other workers */
    if (blasd_main_silence(heartbeat) <= blasd_silence_ns(heartbeat) &&
        (now - lease->renewed_ns >= every_ns || epoch != lease->renewed_epoch)) {
        lease->renewed_ns = now;
        pthread_mutex_unlock(&heartbeat->lock);
        renew(lease, epoch);
        tell_copies(lease);
        tell_phases(lease, now);
        pthread_mutex_lock(&heartbeat->lock);
    }
    for (int i = 0; i < BLASD_SLOTS; i++) {
        struct active *active = &heartbeat->active[i];
        if (report_due(lease, active, now)) report_progress(lease, active);
    }
}

void *blasd_lease_run(void *arg) {
    struct blasd_heartbeat *heartbeat = arg;
    struct lease *lease = &heartbeat->lease;
    int64_t every_ns = (int64_t)heartbeat->options->queue.limits->lease_ms * BLASD_MS / 4;
    int64_t tick_ns;
    if (every_ns > RENEW_MOST_NS) every_ns = RENEW_MOST_NS;
    tick_ns = every_ns < BLASD_TICK_NS ? every_ns : BLASD_TICK_NS;
    pthread_mutex_lock(&heartbeat->lock);
    while (!heartbeat->stop) {
        tick(lease, every_ns);
        if (!heartbeat->stop) blasd_heartbeat_wait(heartbeat, tick_ns);
    }
    pthread_mutex_unlock(&heartbeat->lock);
    return NULL;
}
