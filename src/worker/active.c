/* The batches that run, one in each place: what computing threads tell, and are told; and what the
 * worker says of itself. */
#include "base/clock.h"
#include "base/container.h"
#include "wire/device_json.h"
#include "worker/heartbeat_state.h"

#include <inttypes.h>
#include <time.h>
#include <unistd.h>

#define SHARE_NS (10000 * BLASD_MS) /* the window of busy_share and jobs_per_s */
#define SHARE_LEAST_NS (500 * BLASD_MS)

bool blasd_active_go_on(struct blasd_watch *watch, double progress) {
    struct active *active = blasd_container_of(watch, struct active, watch);
    atomic_store_explicit(&active->progress, progress, memory_order_relaxed);
    return atomic_load_explicit(&active->told, memory_order_relaxed) == BLASD_GO_ON &&
           !blasd_heartbeat_lost(active->heartbeat);
}

struct blasd_watch *blasd_heartbeat_watch(struct blasd_heartbeat *heartbeat, enum blasd_slot slot) {
    return &heartbeat->active[slot].watch;
}

struct blasd_phases *blasd_heartbeat_phases(struct blasd_heartbeat *heartbeat) {
    return &heartbeat->phases;
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
    struct lease *lease = &heartbeat->lease;
    atomic_store(&lease->lost_epoch, atomic_load(&lease->leased_epoch));
}

bool blasd_heartbeat_lost(const struct blasd_heartbeat *heartbeat) {
    const struct lease *lease = &heartbeat->lease;
    return atomic_load_explicit(&lease->lost_epoch, memory_order_relaxed) ==
           atomic_load_explicit(&lease->leased_epoch, memory_order_relaxed);
}

void blasd_heartbeat_device(struct blasd_heartbeat *heartbeat,
                            const struct blasd_device_info *info) {
    pthread_mutex_lock(&heartbeat->lock);
    heartbeat->device = *info;
    pthread_mutex_unlock(&heartbeat->lock);
}

void blasd_heartbeat_kept(struct blasd_heartbeat *heartbeat, const char (*ids)[BLASD_ID_LEN + 1],
                          int count) {
    pthread_mutex_lock(&heartbeat->lock);
    memcpy(heartbeat->kept, ids, (size_t)count * sizeof *ids);
    heartbeat->kept_count = count;
    pthread_mutex_unlock(&heartbeat->lock);
}

void blasd_heartbeat_cost(struct blasd_heartbeat *heartbeat, const struct blasd_cost *cost) {
    pthread_mutex_lock(&heartbeat->lock);
    heartbeat->cost = *cost;
    pthread_mutex_unlock(&heartbeat->lock);
}

void blasd_heartbeat_learnt(struct blasd_heartbeat *heartbeat, struct blasd_cost *ret) {
    pthread_mutex_lock(&heartbeat->lock);
    *ret = heartbeat->cost;
    pthread_mutex_unlock(&heartbeat->lock);
}

double blasd_active_estimate_ns(const struct blasd_heartbeat *heartbeat, const struct blasd_op *op,
                                const struct blasd_plan *plan) {
    struct blasd_cost_work work;
    struct blasd_cost_guess guess = {0};
    blasd_cost_work(plan, blasd_op_position(op), &work);
    (void)blasd_cost_predict(&heartbeat->cost, &work, &guess);
    return guess.alone_s * 1e9;
}

double blasd_heartbeat_estimate_ns(struct blasd_heartbeat *heartbeat, const struct blasd_op *op,
                                   const struct blasd_plan *plan) {
    double ns;
    pthread_mutex_lock(&heartbeat->lock);
    ns = blasd_active_estimate_ns(heartbeat, op, plan);
    pthread_mutex_unlock(&heartbeat->lock);
    return ns;
}

void blasd_heartbeat_learn(struct blasd_heartbeat *heartbeat, const struct blasd_task *tasks,
                           int count, int64_t ns) {
    struct blasd_cost_work work, all;
    int op = blasd_op_position(tasks[0].job->op);
    blasd_cost_work(tasks[0].plan, op, &all);
    for (int i = 1; i < count; i++) {
        blasd_cost_work(tasks[i].plan, op, &work);
        all.flops += work.flops;
        all.bytes += work.bytes;
        all.out_bytes += work.out_bytes;
        all.items += work.items;
    }
    pthread_mutex_lock(&heartbeat->lock);
    blasd_cost_learn(&heartbeat->cost, &all, (double)ns * 1e-9);
    pthread_mutex_unlock(&heartbeat->lock);
}

void blasd_heartbeat_lease(struct blasd_heartbeat *heartbeat, int64_t epoch) {
    pthread_mutex_lock(&heartbeat->lock);
    heartbeat->lease.epoch = epoch;
    atomic_store(&heartbeat->lease.leased_epoch, epoch);
    pthread_mutex_unlock(&heartbeat->lock);
}

void blasd_heartbeat_gives_way(struct blasd_heartbeat *heartbeat, enum blasd_slot slot) {
    pthread_mutex_lock(&heartbeat->lock);
    heartbeat->active[slot].gives_way = true;
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

/* Rates over the last window, the batch that is running included. Under the lock. */
static void measure(struct blasd_heartbeat *heartbeat, int64_t now) {
    int64_t busy = heartbeat->tally.busy_ns, span = now - heartbeat->tally.window_ns;
    for (int i = 0; i < BLASD_SLOTS; i++)
        if (heartbeat->active[i].count > 0) busy += now - heartbeat->active[i].began_ns;
    if (span < SHARE_LEAST_NS) return;
    heartbeat->tally.busy_share = (double)(busy - heartbeat->tally.window_busy_ns) / (double)span;
    if (heartbeat->tally.busy_share > 1) heartbeat->tally.busy_share = 1;
    if (heartbeat->tally.busy_share < 0) heartbeat->tally.busy_share = 0;
    heartbeat->tally.jobs_per_s =
        (double)(heartbeat->tally.jobs - heartbeat->tally.window_jobs) * 1e9 / (double)span;
    if (span < SHARE_NS) return;
    heartbeat->tally.window_ns = now;
    heartbeat->tally.window_busy_ns = busy;
    heartbeat->tally.window_jobs = heartbeat->tally.jobs;
}

char *blasd_heartbeat_info(struct blasd_heartbeat *heartbeat) {
    const struct tally *tally = &heartbeat->tally;
    int64_t now = blasd_clock_ns();
    int product = blasd_op_position(blasd_op_find("matmul"));
    char host[65] = "", *text;
    if (gethostname(host, sizeof host - 1) != 0) host[0] = '\0';
    pthread_mutex_lock(&heartbeat->lock);
    measure(heartbeat, now);
    heartbeat->device.gflops_float64 =
        blasd_cost_best_rate(&heartbeat->cost, product, BLASD_COST_FLOAT64) / 1e9;
    heartbeat->device.gflops_float32 =
        blasd_cost_best_rate(&heartbeat->cost, product, BLASD_COST_FLOAT32) / 1e9;
    text = blasd_worker_json(
        &(struct blasd_worker_facts){.name = heartbeat->options->name,
                                     .host = host,
                                     .backend = heartbeat->options->backend,
                                     .device = &heartbeat->device,
                                     .cost = &heartbeat->cost,
                                     .host_memory = heartbeat->host_memory,
                                     .jobs = tally->jobs,
                                     .failed = tally->failed,
                                     .batches = tally->batches,
                                     .running = blasd_active_jobs(heartbeat),
                                     .uptime_s = (double)(now - heartbeat->started_ns) / 1e9,
                                     .busy_s = (double)tally->busy_ns / 1e9,
                                     .busy_share = tally->busy_share,
                                     .jobs_per_s = tally->jobs_per_s});
    pthread_mutex_unlock(&heartbeat->lock);
    return text;
}
