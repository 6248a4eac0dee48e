/* What the worker says of itself. */
#include "base/clock.h"
#include "wire/device_json.h"
#include "worker/heartbeat_state.h"

#include <unistd.h>

#define SHARE_NS (10000 * BLASD_MS) /* the window of busy_share and jobs_per_s */
#define SHARE_LEAST_NS (500 * BLASD_MS)

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
    char host[65] = "", *text;
    struct blasd_cost cost;
    if (gethostname(host, sizeof host - 1) != 0) host[0] = '\0';
    blasd_estimate_get(&heartbeat->estimate, &cost);
    pthread_mutex_lock(&heartbeat->lock);
    measure(heartbeat, now);
    text = blasd_worker_json(
        &(struct blasd_worker_facts){.name = heartbeat->options->name,
                                     .host = host,
                                     .backend = heartbeat->options->backend,
                                     .device = &heartbeat->device,
                                     .cost = &cost,
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
