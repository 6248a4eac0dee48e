/* One list has all jobs, those that run and those that wait: what may begin is read from it. One
 * mutex guards it, and one condition tells of its changes. The pool's threads hold it only between
 * jobs; the main thread never while it talks to Redis.
 *
 * The rules. Brief jobs run two at a time: while one of them is mapped, stored or ended the other
 * computes, and each takes its part of the device's units, for threads that take turns on a core
 * find its caches full of each other's matrices. Long ones run one by one. Both in order of
 * priority. A brief job that overruns begins again as a long one. A quarantined job, which may end
 * the worker, is among the long ones: it begins when nothing else runs, no other begins while it is
 * the next long one, and none in its first second. */
#include "worker/slow_pool.h"

#include "base/clock.h"
#include "base/log.h"
#include "core/parallel.h"
#include "queue/worker_queue.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define HEAVY_NS 10e6    /* jobs that are predicted to take longer run here */
#define LONG_NS 1000e6   /* those are long */
#define AHEAD_US 100000  /* of brief jobs that wait here, so that none of its threads does */
#define BRIEF_US 1000000 /* any brief job */
#define LONG_US (UINT64_C(1) << 50)
#define ALONE_NS (1000 * BLASD_MS)
/* The pool's threads have this nice value, so that it gives way soon to those of the front end, of
 * Redis and of the main thread, and still gets a tenth of a core that they all want. Those that
 * help it weigh a third of that. */
#define NICE 10

/* The first runs long jobs, the others brief ones. */
#define THREADS 3

/* A job that was taken over. */
struct slow_job {
    struct slow_job *next;
    struct blasd_item item;
    struct blasd_claim claim;
    struct blasd_group group;
    int64_t taken_ns;
    double ns; /* predicted */
    bool is_long, runs;
    unsigned char frame[]; /* the claim's */
};

/* One of the pool's threads. */
struct slow_thread {
    struct blasd_slow_pool *pool; /* borrowed */
    bool is_long, started;
    struct blasd_batcher batcher;     /* the thread's own */
    struct blasd_worker_queue *queue; /* owned; NULL: not connected yet */
    pthread_t handle;
};

struct blasd_slow_pool {
    struct slow_thread threads[THREADS];
    int thread_count;
    pthread_mutex_t lock;
    pthread_cond_t changed; /* a job came or ended, the main thread's ended, the end */

    /* under the lock */
    struct slow_job *jobs;  /* owned: by priority, those of the same in the order they came */
    int64_t alone_until_ns; /* a quarantined job runs by itself till then */
    bool main_runs;         /* jobs */
    bool wants_room; /* the worker asked for fewer jobs than it could run with the pool idle */
    bool stop;
    int code; /* negative: the device has failed, err says why */
    struct blasd_err err;
};

/* ---- what may begin; all with the lock ---- */

/* The brief or long job that waits first. */
static struct slow_job *first_waiting(const struct blasd_slow_pool *pool, bool is_long) {
    struct slow_job *job = pool->jobs;
    while (job != NULL && (job->runs || job->is_long != is_long)) job = job->next;
    return job;
}

static int running(const struct blasd_slow_pool *pool, bool is_long) {
    int count = 0;
    for (const struct slow_job *job = pool->jobs; job != NULL; job = job->next)
        count += job->runs && job->is_long == is_long;
    return count;
}

/* How long a quarantined job will yet have the worker to itself. */
static int64_t alone_ns(const struct blasd_slow_pool *pool) {
    int64_t left = pool->alone_until_ns == 0 ? 0 : pool->alone_until_ns - blasd_clock_ns();
    return left > 0 ? left : 0;
}

/* Whether jobs that are not quarantined may begin. */
static bool others_may(const struct blasd_slow_pool *pool) {
    const struct slow_job *next = first_waiting(pool, true);
    if (alone_ns(pool) > 0) return false;
    return next == NULL || !next->group.quarantined || running(pool, true) > 0 || pool->code != 0;
}

/* What a thread for such jobs should run now, or NULL. */
static struct slow_job *next_job(const struct blasd_slow_pool *pool, bool is_long) {
    struct slow_job *job = first_waiting(pool, is_long);
    bool may;
    if (job == NULL || pool->code != 0) return NULL;
    if (job->group.quarantined)
        may = running(pool, true) + running(pool, false) == 0 && !pool->main_runs;
    else
        may = others_may(pool);
    return may ? job : NULL;
}

/* Waits for a change, where `ns` is not 0 no longer than that. */
static void wait_for_change(struct blasd_slow_pool *pool, int64_t ns) {
    struct timespec until;
    if (ns == 0) {
        pthread_cond_wait(&pool->changed, &pool->lock);
        return;
    }
    clock_gettime(CLOCK_MONOTONIC, &until);
    ns += until.tv_nsec;
    until.tv_sec += ns / (1000 * BLASD_MS);
    until.tv_nsec = ns % (1000 * BLASD_MS);
    pthread_cond_timedwait(&pool->changed, &pool->lock, &until);
}

/* ---- the list; all with the lock ---- */

static void enqueue(struct blasd_slow_pool *pool, struct slow_job *job) {
    struct slow_job **at = &pool->jobs;
    while (*at != NULL && (*at)->group.priority <= job->group.priority) at = &(*at)->next;
    job->next = *at;
    *at = job;
}

static void slow_job_free(struct slow_job *job) {
    blasd_job_release(&job->item.job);
    free(job);
}

/* Takes one job out of the list. */
static void dequeue(struct blasd_slow_pool *pool, struct slow_job *job) {
    struct slow_job **at = &pool->jobs;
    while (*at != job) at = &(*at)->next;
    *at = job->next;
}

/* Whether it has the job: a master that was a replica may give once more what it does not know that
 * this worker was given. That runs once, and two would make one result. */
static bool has(const struct blasd_slow_pool *pool, const char *id) {
    const struct slow_job *job = pool->jobs;
    while (job != NULL && strcmp(job->claim.id, id) != 0) job = job->next;
    return job != NULL;
}

/* ---- what the pool's threads do ---- */

static int on_sharers(struct blasd_watch *watch) {
    const struct slow_thread *thread = watch->owner;
    int count;
    pthread_mutex_lock(&thread->pool->lock);
    count = running(thread->pool, thread->is_long);
    pthread_mutex_unlock(&thread->pool->lock);
    return count;
}

/* Runs a job, which has waited until now; called without the lock. */
static int run_job(struct slow_thread *thread, struct slow_job *job, struct blasd_err *err) {
    struct blasd_batcher *batcher = &thread->batcher;
    int64_t now = blasd_clock_ns();
    int code;
    job->claim.claimed_us += (now - job->taken_ns) / 1000;
    job->taken_ns = now;
    batcher->queue = thread->queue;
    batcher->lost = blasd_heartbeat_lost(batcher->heartbeat);
    if (batcher->lost) return 0; /* the queue has handed this job to others */
    code = blasd_batch_run(batcher, &job->item, &job->group, now, err);
    if (batcher->lost) blasd_heartbeat_give_up(batcher->heartbeat);
    blasd_worker_queue_tidy(batcher->queue);
    return code;
}

/* With the lock, which is left meanwhile. */
static void carry_out(struct slow_thread *thread, struct slow_job *job) {
    struct blasd_slow_pool *pool = thread->pool;
    struct blasd_err err = {0};
    bool wake;
    int code;
    job->runs = true;
    if (job->group.quarantined) {
        pool->alone_until_ns = blasd_clock_ns() + ALONE_NS;
        pthread_cond_broadcast(&pool->changed); /* others wait no longer than that */
    }
    pthread_mutex_unlock(&pool->lock);
    code = run_job(thread, job, &err);
    pthread_mutex_lock(&pool->lock);
    if (job->group.quarantined) pool->alone_until_ns = 0;
    if (code != 0 && pool->code == 0) {
        pool->code = code;
        pool->err = err;
    }
    dequeue(pool, job);
    if (job->item.overran && !job->is_long) {
        job->is_long = true;
        job->runs = false;
        enqueue(pool, job);
    } else {
        slow_job_free(job);
    }
    pthread_cond_broadcast(&pool->changed);
    wake = pool->wants_room && !pool->stop && !thread->batcher.lost;
    if (!wake) return;
    pool->wants_room = false;
    pthread_mutex_unlock(&pool->lock);
    blasd_worker_queue_wake(thread->queue); /* so that the worker asks for jobs again */
    pthread_mutex_lock(&pool->lock);
}

static void *run(void *arg) {
    struct slow_thread *thread = arg;
    struct blasd_slow_pool *pool = thread->pool;
    prctl(PR_SET_NAME, "slow pool");
    if (setpriority(PRIO_PROCESS, (id_t)gettid(), NICE) != 0)
        blasd_log(BLASD_LOG_DEBUG, "cannot lower the weight of the slow pool");
    blasd_parallel_background();
    pthread_mutex_lock(&pool->lock);
    while (!pool->stop) {
        int64_t alone = alone_ns(pool);
        struct slow_job *job = next_job(pool, thread->is_long);
        if (job != NULL)
            carry_out(thread, job);
        else
            wait_for_change(pool, alone);
    }
    pthread_mutex_unlock(&pool->lock);
    return NULL;
}

/* ---- what the main thread does ---- */

struct blasd_slow_pool_view blasd_slow_pool_look(struct blasd_slow_pool *pool) {
    struct blasd_slow_pool_view view = {.brief_us = BRIEF_US, .long_us = LONG_US};
    double waiting_us = 0;
    pthread_mutex_lock(&pool->lock);
    for (const struct slow_job *job = pool->jobs; job != NULL; job = job->next) {
        view.bytes += job->group.bytes;
        if (job->is_long)
            view.long_us = 0;
        else if (!job->runs)
            waiting_us += job->ns / 1e3;
        if (!job->is_long) view.brief_us = 0;
    }
    pool->wants_room = pool->jobs != NULL;
    pthread_mutex_unlock(&pool->lock);
    if (view.brief_us == 0 && waiting_us < AHEAD_US)
        view.brief_us = AHEAD_US - (uint64_t)waiting_us;
    return view;
}

int blasd_slow_pool_ids(struct blasd_slow_pool *pool, char (**ret)[BLASD_ID_LEN + 1]) {
    int count = 0, most = 1;
    pthread_mutex_lock(&pool->lock);
    for (const struct slow_job *job = pool->jobs; job != NULL; job = job->next) most++;
    *ret = calloc((size_t)most, sizeof **ret);
    for (const struct slow_job *job = pool->jobs; job != NULL && *ret != NULL; job = job->next)
        memcpy((*ret)[count++], job->claim.id, BLASD_ID_LEN);
    pthread_mutex_unlock(&pool->lock);
    return *ret != NULL ? count : -1;
}

static double predict_ns(const struct blasd_slow_pool *pool, const struct blasd_item *item) {
    return blasd_heartbeat_estimate_ns(pool->threads[0].batcher.heartbeat, item->job.op,
                                       &item->plan);
}

bool blasd_slow_pool_wants(const struct blasd_slow_pool *pool, const struct blasd_item *item) {
    return item->claim->attempts > 0 || item->overran || predict_ns(pool, item) > HEAVY_NS;
}

bool blasd_slow_pool_take(struct blasd_slow_pool *pool, const struct blasd_item *item,
                          int64_t claimed_ns) {
    struct slow_job *job = calloc(1, sizeof *job + item->claim->frame_len);
    if (job == NULL) return false;
    job->claim = *item->claim;
    job->claim.frame = memcpy(job->frame, item->claim->frame, item->claim->frame_len);
    blasd_item_read(&job->item, &job->claim);
    job->item.plan = item->plan; /* as the backend adapted it */
    job->item.batch_key = item->batch_key;
    job->item.overran = item->overran;
    job->taken_ns = claimed_ns;
    job->ns = predict_ns(pool, item);
    job->group = (struct blasd_group){.count = 1,
                                      .quarantined = item->claim->attempts > 0,
                                      .priority = item->job.priority,
                                      .flops = item->plan.flops,
                                      .bytes = blasd_item_bytes(item)};
    job->is_long = job->group.quarantined || item->overran || job->ns >= LONG_NS;
    pthread_mutex_lock(&pool->lock);
    if (has(pool, job->claim.id))
        slow_job_free(job);
    else
        enqueue(pool, job);
    pthread_cond_broadcast(&pool->changed);
    pthread_mutex_unlock(&pool->lock);
    return true;
}

int blasd_slow_pool_failed(struct blasd_slow_pool *pool, struct blasd_err *err) {
    int code;
    pthread_mutex_lock(&pool->lock);
    code = pool->code;
    if (code != 0) *err = pool->err;
    pthread_mutex_unlock(&pool->lock);
    return code;
}

void blasd_slow_pool_main_begins(struct blasd_slow_pool *pool, struct blasd_heartbeat *heartbeat) {
    pthread_mutex_lock(&pool->lock);
    while (!others_may(pool)) {
        int64_t alone = alone_ns(pool);
        wait_for_change(pool, alone > 0 ? alone : ALONE_NS);
        blasd_heartbeat_sign(heartbeat);
    }
    pool->main_runs = true;
    pthread_mutex_unlock(&pool->lock);
}

/* A wake for nothing costs a small job more than its product. */
void blasd_slow_pool_main_ended(struct blasd_slow_pool *pool) {
    const struct slow_job *next;
    pthread_mutex_lock(&pool->lock);
    pool->main_runs = false;
    next = first_waiting(pool, true);
    if (next != NULL && next->group.quarantined) pthread_cond_broadcast(&pool->changed);
    pthread_mutex_unlock(&pool->lock);
}

bool blasd_slow_pool_drop(struct blasd_slow_pool *pool) {
    bool left;
    pthread_mutex_lock(&pool->lock);
    for (struct slow_job *job = pool->jobs, *next; job != NULL; job = next) {
        next = job->next;
        if (job->runs || (job->item.overran && pool->code == 0)) continue;
        dequeue(pool, job);
        slow_job_free(job);
    }
    left = pool->jobs != NULL;
    pthread_cond_broadcast(&pool->changed);
    pthread_mutex_unlock(&pool->lock);
    return left;
}

int blasd_slow_pool_empty(struct blasd_slow_pool *pool, struct blasd_heartbeat *heartbeat,
                          struct blasd_err *err) {
    while (blasd_slow_pool_drop(pool)) {
        pthread_mutex_lock(&pool->lock);
        if (pool->jobs != NULL) wait_for_change(pool, 1000 * BLASD_MS);
        pthread_mutex_unlock(&pool->lock);
        blasd_heartbeat_sign(heartbeat);
    }
    return blasd_slow_pool_failed(pool, err);
}

int blasd_slow_pool_lease(struct blasd_slow_pool *pool, const char *worker, int64_t epoch,
                          struct blasd_err *err) {
    for (int i = 0; i < pool->thread_count; i++) {
        struct slow_thread *thread = &pool->threads[i];
        int code = 0;
        if (thread->queue == NULL)
            code = blasd_worker_queue_open(&thread->batcher.options->queue, &thread->queue, err);
        if (code != 0) return code;
        blasd_worker_queue_join(thread->queue, worker, epoch, i + 1);
    }
    return 0;
}

/* ---- from beginning to end ---- */

/* Starts a thread with a batcher and a device of its own. */
static int thread_start(struct slow_thread *thread, const struct blasd_batcher *main,
                        struct blasd_err *err) {
    struct blasd_batcher *batcher = &thread->batcher;
    struct blasd_watch *watch = blasd_heartbeat_watch(main->heartbeat, batcher->slot);
    int code;
    batcher->options = main->options;
    batcher->heartbeat = main->heartbeat;
    batcher->info = main->info;
    watch->sharers = on_sharers;
    watch->owner = thread;
    if (!thread->is_long) blasd_heartbeat_gives_way(main->heartbeat, batcher->slot);
    code = main->options->backend->device_open(main->options->ordinal, &batcher->device, err);
    if (code != 0) return code;
    thread->started = pthread_create(&thread->handle, NULL, run, thread) == 0;
    if (thread->started) return 0;
    return blasd_fail(err, BLASD_E_internal_error, "", "cannot start the slow pool");
}

int blasd_slow_pool_open(const struct blasd_batcher *main, struct blasd_slow_pool **ret,
                         struct blasd_err *err) {
    struct blasd_slow_pool *pool = calloc(1, sizeof *pool);
    pthread_condattr_t steady;
    int code = 0;
    if (pool == NULL)
        return blasd_fail(err, BLASD_E_out_of_memory, "", "no memory for the slow pool");
    pthread_mutex_init(&pool->lock, NULL);
    pthread_condattr_init(&steady);
    pthread_condattr_setclock(&steady, CLOCK_MONOTONIC);
    pthread_cond_init(&pool->changed, &steady);
    pthread_condattr_destroy(&steady);
    pool->thread_count = main->info.units > 1 ? THREADS : THREADS - 1;
    for (int i = 0; i < pool->thread_count; i++) {
        struct slow_thread *thread = &pool->threads[i];
        thread->pool = pool;
        thread->is_long = i == 0;
        blasd_batcher_init(&thread->batcher, main->options->queue.limits);
        thread->batcher.slot = BLASD_SLOT_SLOW + (enum blasd_slot)i;
    }
    for (int i = 0; code == 0 && i < pool->thread_count; i++)
        code = thread_start(&pool->threads[i], main, err);
    if (code == 0)
        *ret = pool;
    else
        blasd_slow_pool_close(pool);
    return code;
}

void blasd_slow_pool_close(struct blasd_slow_pool *pool) {
    if (pool == NULL) return;
    pthread_mutex_lock(&pool->lock);
    pool->stop = true;
    pthread_cond_broadcast(&pool->changed);
    pthread_mutex_unlock(&pool->lock);
    for (int i = 0; i < pool->thread_count; i++) {
        struct slow_thread *thread = &pool->threads[i];
        struct blasd_batcher *batcher = &thread->batcher;
        if (thread->started) pthread_join(thread->handle, NULL);
        if (batcher->heartbeat != NULL)
            blasd_heartbeat_watch(batcher->heartbeat, batcher->slot)->sharers = NULL;
        blasd_worker_queue_free(thread->queue);
        if (batcher->device != NULL) batcher->options->backend->device_close(batcher->device);
        blasd_batcher_release(batcher);
    }
    pthread_cond_destroy(&pool->changed);
    pthread_mutex_destroy(&pool->lock);
    free(pool);
}
