/* The batches that run, one in each place: what computing threads tell, and are told. */
#include "base/clock.h"
#include "base/container.h"
#include "worker/heartbeat_state.h"

#include <inttypes.h>
#include <time.h>

bool blasd_active_go_on(struct blasd_watch *watch, double progress) {
    struct active *active = blasd_container_of(watch, struct active, watch);
    atomic_store_explicit(&active->progress, progress, memory_order_relaxed);
    return atomic_load_explicit(&active->told, memory_order_relaxed) == BLASD_GO_ON &&
           !blasd_heartbeat_lost(active->heartbeat);
}

struct blasd_watch *blasd_heartbeat_watch(struct blasd_heartbeat *heartbeat, enum blasd_slot slot) {
    return &heartbeat->active[slot].watch;
}

enum blasd_told blasd_heartbeat_told(const struct blasd_heartbeat *heartbeat,
                                     enum blasd_slot slot) {
    return atomic_load(&heartbeat->active[slot].told);
}

int blasd_heartbeat_too_long(const struct blasd_heartbeat *heartbeat, enum blasd_slot slot,
                             struct blasd_err *err) {
    return blasd_fail(err, BLASD_E_job_too_long, "",
                      "the job computed for longer than %" PRIu64 " s (limit job_s, or its key's)",
                      heartbeat->active[slot].most_s);
}

void blasd_heartbeat_sign(struct blasd_heartbeat *heartbeat) {
    atomic_store(&heartbeat->main_ns, atomic_load(&heartbeat->clock_ns));
}

void blasd_heartbeat_give_up(struct blasd_heartbeat *heartbeat) {
    atomic_store(&heartbeat->lost_epoch, atomic_load(&heartbeat->leased_epoch));
}

bool blasd_heartbeat_lost(const struct blasd_heartbeat *heartbeat) {
    return atomic_load_explicit(&heartbeat->lost_epoch, memory_order_relaxed) ==
           atomic_load_explicit(&heartbeat->leased_epoch, memory_order_relaxed);
}

void blasd_heartbeat_device(struct blasd_heartbeat *heartbeat,
                            const struct blasd_device_info *info) {
    pthread_mutex_lock(&heartbeat->lock);
    heartbeat->device = *info;
    pthread_mutex_unlock(&heartbeat->lock);
}

void blasd_heartbeat_cost(struct blasd_heartbeat *heartbeat, const struct blasd_cost *cost) {
    blasd_estimate_set(&heartbeat->estimate, cost);
}

struct blasd_estimate *blasd_heartbeat_estimate(struct blasd_heartbeat *heartbeat) {
    return &heartbeat->estimate;
}

void blasd_heartbeat_lease(struct blasd_heartbeat *heartbeat, int64_t epoch) {
    pthread_mutex_lock(&heartbeat->lock);
    heartbeat->epoch = epoch;
    atomic_store(&heartbeat->leased_epoch, epoch);
    pthread_mutex_unlock(&heartbeat->lock);
}

/* How long a batch may compute: as the job of it that may least. 0: as long as it takes. */
static uint64_t least_time(const struct blasd_heartbeat *heartbeat, struct blasd_item *const *jobs,
                           int count) {
    uint64_t least = heartbeat->options->queue.limits->job_s;
    for (int i = 0; i < count; i++)
        if (jobs[i]->job.most_s > 0 && (least == 0 || jobs[i]->job.most_s < least))
            least = jobs[i]->job.most_s;
    return least;
}

void blasd_heartbeat_begin(struct blasd_heartbeat *heartbeat, enum blasd_slot slot,
                           struct blasd_item *const *jobs, int count) {
    struct active *active = &heartbeat->active[slot];
    pthread_mutex_lock(&heartbeat->lock);
    active->jobs = jobs;
    active->count = count;
    active->batch++;
    active->began_ns = blasd_clock_ns();
    active->computing = true;
    active->since_ns = atomic_load(&heartbeat->clock_ns);
    active->told_ns = 0;
    active->most_s = least_time(heartbeat, jobs, count);
    atomic_store(&active->progress, 0.0);
    atomic_store(&active->told, BLASD_GO_ON);
    pthread_mutex_unlock(&heartbeat->lock);
}

enum blasd_told blasd_heartbeat_ran(struct blasd_heartbeat *heartbeat, enum blasd_slot slot) {
    pthread_mutex_lock(&heartbeat->lock);
    heartbeat->active[slot].computing = false;
    pthread_mutex_unlock(&heartbeat->lock);
    return blasd_heartbeat_told(heartbeat, slot);
}

void blasd_heartbeat_end(struct blasd_heartbeat *heartbeat, enum blasd_slot slot, int jobs,
                         int failed) {
    struct active *active = &heartbeat->active[slot];
    pthread_mutex_lock(&heartbeat->lock);
    active->count = 0;
    active->computing = false;
    heartbeat->tally.jobs += (uint64_t)jobs;
    heartbeat->tally.failed += (uint64_t)failed;
    if (jobs > 0) heartbeat->tally.batches++;
    heartbeat->tally.busy_ns += blasd_clock_ns() - active->began_ns;
    pthread_mutex_unlock(&heartbeat->lock);
    if (slot == BLASD_SLOT_MAIN) blasd_heartbeat_sign(heartbeat);
}

int blasd_active_jobs(const struct blasd_heartbeat *heartbeat) {
    int count = 0;
    for (int i = 0; i < BLASD_SLOTS; i++) count += heartbeat->active[i].count;
    return count;
}

int64_t blasd_silence_ns(const struct blasd_heartbeat *heartbeat) {
    return (int64_t)heartbeat->options->queue.limits->silence_s * 1000 * BLASD_MS;
}

int64_t blasd_main_silence(const struct blasd_heartbeat *heartbeat) {
    if (heartbeat->active[BLASD_SLOT_MAIN].count > 0) return 0;
    return atomic_load(&heartbeat->clock_ns) - atomic_load(&heartbeat->main_ns);
}

void blasd_heartbeat_wait(struct blasd_heartbeat *heartbeat, int64_t ns) {
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    ns += until.tv_nsec;
    until.tv_sec += ns / (1000 * BLASD_MS);
    until.tv_nsec = ns % (1000 * BLASD_MS);
    pthread_cond_timedwait(&heartbeat->wake, &heartbeat->lock, &until);
}
