/* The worker's loop: lease, claim, run, again; and what ends it. */
#include "worker/worker.h"

#include "base/clock.h"
#include "base/log.h"
#include "core/parallel.h"
#include "worker/cost_file.h"
#include "worker/group.h"
#include "worker/heartbeat.h"
#include "worker/registration.h"
#include "worker/runner.h"
#include "worker/slow_pool.h"

#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#define WAIT_MS 200 /* how soon an idle worker notices that it is to stop */
/* A worker takes no more quick jobs at once than it is predicted to do in this time: what it holds
 * cannot be run by another, nor be overtaken by a job of higher priority. Of others it takes what
 * would begin soon. */
#define CLAIM_US 262144
#define BRIEF_US 1000000 /* of a worker that runs all on one thread */

#define REFRESH_NS (5000 * BLASD_MS)

struct worker {
    const struct blasd_worker_options *options;
    struct blasd_batcher batcher;
    struct blasd_registration registered;
    struct blasd_slow_pool *pool; /* owned; NULL: all runs on this thread */
    struct blasd_grouping grouping;
    struct blasd_claim *claims; /* owned */
    struct blasd_item *items;   /* owned */
    int room;                   /* rows in both: how many to claim */
    int64_t refreshed_ns;       /* when the device was last asked about its memory */
};

static bool stopping(const struct worker *worker) {
    return worker->options->stopping(worker->options->arg);
}

/* Starts what goes on beside the main thread. */
static int start_threads(struct worker *worker, struct blasd_err *err) {
    struct blasd_batcher *batcher = &worker->batcher;
    int code = blasd_heartbeat_start(worker->options, &batcher->heartbeat, err);
    if (code != 0) return code;
    blasd_heartbeat_device(batcher->heartbeat, &batcher->info);
    if (!worker->options->backend->side_by_side) return 0;
    blasd_heartbeat_gives_way(batcher->heartbeat, batcher->slot);
    return blasd_slow_pool_open(batcher, &worker->pool, err);
}

/* A kernel may want its inputs in other dtypes, and take jobs into one call that are not alike. */
static void find_batch_key(const struct blasd_backend *backend, struct blasd_item *item) {
    const struct blasd_kernel *kernel = blasd_backend_kernel(backend, item->job.op);
    if (kernel != NULL && kernel->adapt != NULL) kernel->adapt(&item->job, &item->plan);
    if (kernel != NULL && kernel->batch_key != NULL && item->plan.batchable)
        kernel->batch_key(&item->job, &item->plan, &item->batch_key);
}

static int pool_failed(struct worker *worker, struct blasd_err *err) {
    return worker->pool == NULL ? 0 : blasd_slow_pool_failed(worker->pool, err);
}

static void give_item(struct worker *worker, const struct blasd_item *item, int64_t claimed_ns) {
    struct blasd_batcher *batcher = &worker->batcher;
    blasd_worker_queue_let_go(batcher->queue, 1);
    if (!blasd_slow_pool_take(worker->pool, item, claimed_ns))
        batcher->lost = true; /* it goes back to the queue */
}

/* Hands a group to the slow pool if that wants it. */
static bool give_group(struct worker *worker, const struct blasd_group *group, int64_t claimed_ns) {
    const struct blasd_item *items = worker->items;
    if (worker->pool == NULL || !blasd_slow_pool_wants(worker->pool, &items[group->first]))
        return false;
    for (int i = group->first; i >= 0; i = items[i].next) give_item(worker, &items[i], claimed_ns);
    return true;
}

/* What the slow pool's jobs, which have `taken` bytes, leave of those that one claim may have;
 * never so little that small jobs come one by one. */
static uint64_t claim_bytes(const struct worker *worker, uint64_t taken) {
    uint64_t all = worker->options->queue.limits->claim_bytes, least = all / 8;
    return taken < all - least ? all - taken : least;
}

/* What is asked for from now on, in bytes and predicted time. */
static uint64_t note_room(struct worker *worker) {
    struct blasd_slow_pool_view view = {.brief_us = BRIEF_US, .long_us = UINT64_C(1) << 50};
    if (worker->pool != NULL) view = blasd_slow_pool_look(worker->pool);
    blasd_worker_queue_lanes(worker->batcher.queue,
                             (const uint64_t[]){CLAIM_US, view.brief_us, view.long_us});
    return claim_bytes(worker, view.bytes);
}

/* What the end of this claim asks for. */
static void note_demand(struct worker *worker) {
    uint64_t bytes = note_room(worker);
    blasd_worker_queue_demand(worker->batcher.queue, stopping(worker) ? 0 : worker->room, bytes);
}

/* Hands what has overrun to the slow pool. The next groups of that operation and tenant would
 * overrun, too. */
static void give_overran(struct worker *worker, int at, int64_t claimed_ns) {
    struct blasd_item *items = worker->items;
    const struct blasd_group *group = &worker->grouping.groups[at];
    const struct blasd_item *overran = NULL;
    for (int i = group->first; i >= 0; i = items[i].next) {
        if (!items[i].overran) continue;
        overran = &items[i];
        give_item(worker, overran, claimed_ns);
    }
    while (overran != NULL && ++at < worker->grouping.count) {
        struct blasd_item *next = &items[worker->grouping.groups[at].first];
        if (next->job.op == overran->job.op &&
            strcmp(next->claim->tenant, overran->claim->tenant) == 0)
            for (int i = (int)(next - items); i >= 0; i = items[i].next) items[i].overran = true;
    }
}

/* Runs the groups of a claim but for those that the slow pool takes, which get there first. */
static int run_groups(struct worker *worker, int64_t claimed_ns, struct blasd_err *err) {
    struct blasd_batcher *batcher = &worker->batcher;
    struct blasd_grouping *grouping = &worker->grouping;
    int code = 0, kept = 0;
    for (int g = 0; g < grouping->count; g++)
        if (!give_group(worker, &grouping->groups[g], claimed_ns))
            grouping->groups[kept++] = grouping->groups[g];
    grouping->count = kept;
    note_demand(worker);
    for (int g = 0; g < kept; g++) {
        if (g > 0 && stopping(worker)) break; /* the rest is given back */
        code = pool_failed(worker, err);
        if (code != 0 || batcher->lost || blasd_heartbeat_lost(batcher->heartbeat)) break;
        if (g > 0 && give_group(worker, &grouping->groups[g], claimed_ns)) continue;
        code = blasd_batch_run(batcher, worker->items, &grouping->groups[g], claimed_ns, err);
        if (code != 0 || batcher->lost) break;
        give_overran(worker, g, claimed_ns);
    }
    return code;
}

static int run_claimed(struct worker *worker, int count, int64_t claimed_ns,
                       struct blasd_err *err) {
    struct blasd_batcher *batcher = &worker->batcher;
    struct blasd_err ignored;
    bool refused = false;
    int code = 0, finished;
    if (worker->pool != NULL) blasd_slow_pool_main_begins(worker->pool, batcher->heartbeat);
    for (int i = 0; i < count; i++) {
        struct blasd_item *item = &worker->items[i];
        blasd_item_read(item, &worker->claims[i]);
        if (item->err.code != BLASD_OK)
            refused = true;
        else
            find_batch_key(worker->options->backend, item);
    }
    if (refused) blasd_batch_refuse(batcher, worker->items, count, claimed_ns);
    blasd_group_items(&worker->grouping, worker->items, count, worker->options->queue.limits);
    if (!batcher->lost) code = run_groups(worker, claimed_ns, err);
    finished = blasd_batch_finish(batcher, code == 0 ? err : &ignored);
    if (worker->pool != NULL) blasd_slow_pool_main_ended(worker->pool);
    return code != 0 ? code : finished;
}

static void memory_comes(void *arg, void *memory, uint64_t bytes, bool writable) {
    const struct worker *worker = arg;
    worker->options->backend->memory_comes(worker->batcher.device, memory, bytes, writable);
}

static void memory_goes(void *arg, void *memory) {
    const struct worker *worker = arg;
    worker->options->backend->memory_goes(worker->batcher.device, memory);
}

/* A device that copies by itself is told where inputs and outputs may lie. */
static void watch_memory(struct worker *worker, bool on) {
    const struct blasd_store_watch watch = {memory_comes, memory_goes, worker};
    if (worker->options->backend->memory_comes != NULL)
        blasd_store_watch(worker->options->queue.store, on ? &watch : NULL);
}

static void refresh_kept(struct worker *worker) {
    struct blasd_batcher *batcher = &worker->batcher;
    char ids[BLASD_KEPT_MOST][BLASD_ID_LEN + 1];
    int count;
    if (worker->options->backend->device_kept == NULL) return;
    count = worker->options->backend->device_kept(batcher->device, ids, BLASD_KEPT_MOST);
    blasd_heartbeat_kept(batcher->heartbeat, (const char(*)[BLASD_ID_LEN + 1]) ids, count);
}

/* What the device has left changes; GET /devices shows it. */
static void refresh(struct worker *worker) {
    blasd_log_job_tick();
    struct blasd_batcher *batcher = &worker->batcher;
    struct blasd_device_info info;
    struct blasd_err ignored;
    int64_t now = blasd_clock_ns();
    if (now - worker->refreshed_ns < REFRESH_NS) return;
    worker->refreshed_ns = now;
    refresh_kept(worker);
    if (worker->options->backend->device_info(batcher->device, false, &info, &ignored) != 0) return;
    if (strcmp(batcher->info.remark, info.remark) != 0)
        blasd_log(BLASD_LOG_WARN, "%s: %s", batcher->info.id, info.remark);
    memcpy(batcher->info.remark, info.remark, sizeof info.remark);
    batcher->info.memory_free_bytes = info.memory_free_bytes;
    batcher->info.busy_percent = info.busy_percent;
    batcher->info.power_watts = info.power_watts;
    batcher->info.energy_joules = info.energy_joules;
    blasd_heartbeat_device(batcher->heartbeat, &batcher->info);
}

/* What an earlier start has learnt of the device's speed. */
static void begin_cost(const struct worker *worker) {
    const struct blasd_worker_options *options = worker->options;
    struct blasd_cost cost;
    (void)blasd_cost_file_load(options->kept_in, &worker->batcher.info, options->version, &cost);
    blasd_heartbeat_cost(worker->batcher.heartbeat, &cost);
}

/* What jobs have taught, for the next start. */
static void keep_cost(const struct worker *worker) {
    const struct blasd_worker_options *options = worker->options;
    struct blasd_cost cost;
    struct blasd_err err = {0};
    blasd_heartbeat_learnt(worker->batcher.heartbeat, &cost);
    if (blasd_cost_file_save(options->kept_in, &worker->batcher.info, options->version, &cost,
                             &err) != 0)
        blasd_log(BLASD_LOG_WARN, "%s", err.detail);
}

/* After a claim over a new connection: tells Redis what this worker holds, which is what it has
 * just claimed and the slow pool's. Where that cannot be done it is told after the next claim. */
static void tell_holdings(struct worker *worker) {
    struct blasd_batcher *batcher = &worker->batcher;
    char(*ids)[BLASD_ID_LEN + 1] = NULL;
    struct blasd_err ignored;
    int count = worker->pool != NULL ? blasd_slow_pool_ids(worker->pool, &ids) : 0;
    if (count >= 0)
        blasd_worker_queue_holds(batcher->queue, (const char(*)[BLASD_ID_LEN + 1]) ids, count,
                                 &batcher->lost, &ignored);
    free(ids);
}

/* One claim and all its work but for the slow pool's; *count: how many jobs came. Negative where
 * the worker must end. */
static int claim(struct worker *worker, int *count, struct blasd_err *err) {
    struct blasd_batcher *batcher = &worker->batcher;
    struct blasd_err problem = {0};
    int64_t claimed_ns;
    int code;
    batcher->queue = worker->registered.queue;
    batcher->lost = false;
    code = blasd_worker_queue_claim(batcher->queue, worker->room, note_room(worker), worker->claims,
                                    count, &batcher->lost, &problem);
    if (code == 0 && !batcher->lost && blasd_worker_queue_moved(batcher->queue))
        tell_holdings(worker);
    claimed_ns = blasd_clock_ns();
    if (code != 0) {
        *count = 0;
        blasd_registration_miss(&problem);
        return 0;
    }
    if (*count > 0 && !batcher->lost) code = run_claimed(worker, *count, claimed_ns, err);
    if (batcher->lost) blasd_registration_lose(&worker->registered, batcher);
    return code;
}

/* Claims jobs, unless the queue is known to have none, and does them; waits where there are none.
 * Negative where the worker must end. */
static int turn(struct worker *worker, struct blasd_err *err) {
    struct blasd_err problem = {0};
    int count = 0, code;
    if ((code = pool_failed(worker, err)) != 0) return code;
    if (!blasd_worker_queue_is_idle(worker->registered.queue)) {
        code = claim(worker, &count, err);
        if (code != 0 || !worker->registered.held || stopping(worker)) return code;
    }
    if (count == 0 && blasd_worker_queue_wait(worker->registered.queue, WAIT_MS, &problem) != 0)
        blasd_registration_miss(&problem);
    return 0;
}

static int work(struct worker *worker, struct blasd_err *err) {
    struct blasd_batcher *batcher = &worker->batcher;
    bool told = false;
    while (!stopping(worker)) {
        int code;
        blasd_heartbeat_sign(batcher->heartbeat);
        code = blasd_registration_care(&worker->registered, batcher, worker->pool, err);
        if (code != 0) return code;
        if (!worker->registered.held) {
            nanosleep(&(struct timespec){.tv_nsec = 20 * BLASD_MS}, NULL);
            continue;
        }
        if (!told) worker->options->ready(worker->options->arg);
        told = true;
        refresh(worker);
        code = turn(worker, err);
        if (code != 0) return code;
    }
    return 0;
}

static int make_rooms(struct worker *worker, struct blasd_err *err) {
    worker->room = (int)worker->options->queue.limits->claim_jobs;
    blasd_log_job_most(worker->options->queue.limits->log_jobs);
    worker->claims = calloc((size_t)worker->room, sizeof *worker->claims);
    worker->items = calloc((size_t)worker->room, sizeof *worker->items);
    if (worker->claims == NULL || worker->items == NULL ||
        blasd_grouping_init(&worker->grouping, worker->room) != 0)
        return blasd_fail(err, BLASD_E_out_of_memory, "", "no memory for %d jobs (claim_jobs)",
                          worker->room);
    return 0;
}

/* Each job with blobs holds two descriptors. */
static void raise_descriptors(void) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
    limit.rlim_cur = limit.rlim_max < 65536 ? limit.rlim_max : 65536;
    setrlimit(RLIMIT_NOFILE, &limit);
}

int blasd_worker_run(const struct blasd_worker_options *options, struct blasd_err *err) {
    struct worker worker = {.options = options};
    struct blasd_batcher *batcher = &worker.batcher;
    const struct blasd_backend *backend = options->backend;
    struct blasd_err ignored = {0};
    int code, drained = 0;
    raise_descriptors();
    blasd_batcher_init(batcher, options->queue.limits);
    batcher->options = options;
    code = make_rooms(&worker, err);
    if (code != 0) goto done;
    code = backend->device_open(options->ordinal, &batcher->device, err);
    if (code != 0) goto done;
    watch_memory(&worker, true);
    code = backend->device_info(batcher->device, false, &batcher->info, err);
    if (code != 0) goto done;
    code = start_threads(&worker, err);
    if (code != 0) goto done;
    begin_cost(&worker);
    code = work(&worker, err);
    if (code != 0) blasd_heartbeat_give_up(batcher->heartbeat); /* the slow pool is to stop */
    if (worker.pool != NULL)
        drained = blasd_slow_pool_empty(worker.pool, batcher->heartbeat, &ignored);
    if (code == 0 && drained != 0) {
        code = drained;
        *err = ignored;
    }
    blasd_slow_pool_close(worker.pool);
    worker.pool = NULL;
    if (code == 0) keep_cost(&worker);
    blasd_heartbeat_stop(batcher->heartbeat);
    batcher->heartbeat = NULL;
    blasd_registration_give_back(&worker.registered);
done:
    blasd_heartbeat_stop(batcher->heartbeat);
    blasd_registration_release(&worker.registered);
    blasd_parallel_dismiss();
    watch_memory(&worker, false);
    if (batcher->device != NULL) backend->device_close(batcher->device);
    blasd_grouping_release(&worker.grouping);
    blasd_batcher_release(batcher);
    free(worker.claims);
    for (int i = 0; worker.items != NULL && i < worker.room; i++)
        blasd_job_release(&worker.items[i].job);
    free(worker.items);
    return code;
}
