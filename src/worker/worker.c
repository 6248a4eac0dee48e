/* The worker's loop: lease, claim, run, again; and what ends it. */
#include "worker/worker.h"

#include "base/clock.h"
#include "base/log.h"
#include "core/parallel.h"
#include "worker/cost_file.h"
#include "worker/group.h"
#include "worker/heartbeat.h"
#include "worker/measure.h"
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

/* The device is measured while it has been idle for a moment; one that never is, all the same, now
 * and then a step. Twice more when it has been idle for longer, for others may have been in the
 * way. */
#define MEASURE_IDLE_NS (50 * BLASD_MS)
#define MEASURE_LATE_NS (5000 * BLASD_MS)
#define MEASURE_APART_NS (1000 * BLASD_MS)
#define MEASURE_PASSES 3
static const int64_t measure_after_ns[MEASURE_PASSES] = {0, 15000 * BLASD_MS, 60000 * BLASD_MS};

struct worker {
    const struct blasd_worker_options *options;
    struct blasd_batcher batcher;
    struct blasd_registration registered;
    struct blasd_slow_pool *pool; /* owned; NULL: all runs on this thread */
    struct blasd_grouping grouping;
    struct blasd_claim *claims;    /* owned */
    struct blasd_item *items;      /* owned */
    int room;                      /* rows in both: how many to claim */
    int64_t refreshed_ns;          /* when the device was last asked about its memory */
    struct blasd_measure *measure; /* owned; NULL: the costs are known, or not wanted */
    int pass;                      /* of them all */
    int64_t measure_ns;            /* when the pass begins; then, when a step is due under load */
    int64_t idle_ns;               /* since when there have been no jobs */
    struct blasd_cost cost;
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
    code = blasd_slow_pool_open(batcher, &worker->pool, err);
    batcher->pool = worker->pool;
    batcher->take_long = blasd_slow_pool_take_long;
    return code;
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

/* Hands to the slow pool what belongs there; true: all of this group. */
static bool give_to_pool(struct worker *worker, const struct blasd_group *group,
                         int64_t claimed_ns) {
    return worker->pool != NULL && blasd_slow_pool_wants(worker->pool, worker->items, group) &&
           blasd_slow_pool_take(worker->pool, &worker->batcher, worker->items, group, claimed_ns);
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

/* Runs the groups of a claim but for those that the slow pool takes, which get there first. */
static int run_groups(struct worker *worker, int64_t claimed_ns, struct blasd_err *err) {
    struct blasd_batcher *batcher = &worker->batcher;
    struct blasd_grouping *grouping = &worker->grouping;
    int code = 0, kept = 0;
    for (int g = 0; g < grouping->count; g++)
        if (!give_to_pool(worker, &grouping->groups[g], claimed_ns))
            grouping->groups[kept++] = grouping->groups[g];
    note_demand(worker);
    for (int g = 0; g < kept; g++) {
        if (g > 0 && stopping(worker)) break; /* the rest is given back */
        code = pool_failed(worker, err);
        if (code != 0 || batcher->lost || blasd_heartbeat_lost(batcher->heartbeat)) break;
        code = blasd_batch_run(batcher, worker->items, &grouping->groups[g], claimed_ns, err);
        if (code != 0 || batcher->lost) break;
    }
    return code;
}

static int run_claimed(struct worker *worker, int count, int64_t claimed_ns,
                       struct blasd_err *err) {
    struct blasd_batcher *batcher = &worker->batcher;
    struct blasd_err ignored;
    bool refused = false;
    int code = 0, finished;
    batcher->overran = NULL;
    if (worker->pool != NULL) blasd_slow_pool_main_begins(worker->pool, batcher);
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

static void publish_cost(struct worker *worker) {
    struct blasd_batcher *batcher = &worker->batcher;
    blasd_measure_info(&worker->cost, &batcher->info);
    blasd_heartbeat_device(batcher->heartbeat, &batcher->info);
    blasd_heartbeat_cost(batcher->heartbeat, &worker->cost);
}

/* Costs from an earlier start, or the means to measure them. */
static void begin_cost(struct worker *worker) {
    const struct blasd_worker_options *options = worker->options;
    struct blasd_batcher *batcher = &worker->batcher;
    struct blasd_err err = {0};
    if (!options->measure) return;
    if (blasd_cost_file_load(options->kept_in, &batcher->info, options->version, &worker->cost)) {
        publish_cost(worker);
        return;
    }
    if (!blasd_cost_file_begin(options->kept_in, &batcher->info)) {
        blasd_log(BLASD_LOG_WARN, "%s is not measured: it ended the worker before; see %s",
                  batcher->info.id, options->kept_in);
        return;
    }
    if (blasd_measure_new(options->backend, batcher->device, &worker->measure, &err) != 0)
        blasd_log(BLASD_LOG_WARN, "%s", err.detail);
    worker->idle_ns = worker->measure_ns = blasd_clock_ns();
}

/* What jobs have taught, for the next start. */
static void keep_learnt(const struct worker *worker) {
    const struct blasd_worker_options *options = worker->options;
    struct blasd_cost cost;
    struct blasd_err err = {0};
    blasd_heartbeat_learnt(worker->batcher.heartbeat, &cost);
    if (options->measure && blasd_cost_known(&cost) &&
        blasd_cost_file_learnt(options->kept_in, &worker->batcher.info, options->version, &cost,
                               &err) != 0)
        blasd_log(BLASD_LOG_WARN, "%s", err.detail);
}

/* Measuring was survived so far. */
static void note_end(const struct worker *worker) {
    if (worker->measure != NULL)
        blasd_cost_file_end(worker->options->kept_in, &worker->batcher.info);
}

/* The end of a pass over all that is measured. */
static void end_pass(struct worker *worker) {
    const struct blasd_worker_options *options = worker->options;
    struct blasd_err err = {0};
    blasd_measure_cost(worker->measure, &worker->cost);
    if (blasd_cost_known(&worker->cost)) publish_cost(worker);
    if (blasd_cost_known(&worker->cost) &&
        blasd_cost_file_save(options->kept_in, &worker->batcher.info, options->version,
                             &worker->cost, &err) != 0)
        blasd_log(BLASD_LOG_WARN, "%s", err.detail);
    blasd_log(BLASD_LOG_DEBUG, "measured %s", worker->batcher.info.id);
    note_end(worker);
    if (++worker->pass < MEASURE_PASSES) {
        blasd_measure_again(worker->measure);
        worker->measure_ns = blasd_clock_ns() + measure_after_ns[worker->pass];
    } else {
        blasd_measure_free(worker->measure);
        worker->measure = NULL;
    }
}

/* Whether a step of measuring is due now, after a claim that brought `jobs`. */
static bool measure_due(struct worker *worker, bool jobs) {
    int64_t now;
    if (worker->measure == NULL) return false;
    now = blasd_clock_ns();
    if (jobs) worker->idle_ns = now;
    if (worker->pool != NULL &&
        !blasd_slow_pool_look(worker->pool).idle) { /* two would slow each other */
        worker->idle_ns = now;
        return false;
    }
    if (now < worker->measure_ns) return false;
    if (worker->pass > 0) return now - worker->idle_ns > MEASURE_APART_NS;
    return now - worker->idle_ns > MEASURE_IDLE_NS ||
           (jobs && now - worker->measure_ns > MEASURE_LATE_NS);
}

/* Whether jobs were handed to a worker that was idle and measures: its list alone tells it. */
static bool jobs_came(struct worker *worker) {
    struct blasd_worker_queue *queue = worker->registered.queue;
    struct blasd_err problem = {0};
    if (blasd_worker_queue_look(queue, WAIT_MS, &problem) != 0) blasd_registration_miss(&problem);
    return !blasd_worker_queue_is_idle(queue);
}

/* Takes one step of measuring. Negative where the device cannot go on. */
static int step_cost(struct worker *worker, bool jobs, struct blasd_err *err) {
    int code = blasd_measure_step(worker->measure, err);
    if (jobs) worker->measure_ns = blasd_clock_ns() + MEASURE_APART_NS - MEASURE_LATE_NS;
    if (code == 0) end_pass(worker);
    return code < 0 ? code : 0;
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
    if (measure_due(worker, count > 0) && (count > 0 || !jobs_came(worker)))
        return step_cost(worker, count > 0, err);
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
    if (worker.pool != NULL) drained = blasd_slow_pool_empty(worker.pool, batcher, &ignored);
    if (code == 0 && drained != 0) {
        code = drained;
        *err = ignored;
    }
    blasd_slow_pool_close(worker.pool);
    worker.pool = NULL;
    if (code != -(int)BLASD_E_device_error) note_end(&worker);
    if (code == 0) keep_learnt(&worker);
    blasd_heartbeat_stop(batcher->heartbeat);
    batcher->heartbeat = NULL;
    blasd_registration_give_back(&worker.registered);
done:
    blasd_heartbeat_stop(batcher->heartbeat);
    blasd_registration_release(&worker.registered);
    blasd_parallel_dismiss();
    watch_memory(&worker, false);
    if (batcher->device != NULL) backend->device_close(batcher->device);
    blasd_measure_free(worker.measure);
    blasd_grouping_release(&worker.grouping);
    blasd_batcher_release(batcher);
    free(worker.claims);
    for (int i = 0; worker.items != NULL && i < worker.room; i++)
        blasd_job_release(&worker.items[i].job);
    free(worker.items);
    return code;
}
