/* One list has all jobs, those that run and those that wait: what a lane does is read from it. One
 * mutex guards it, and who sleeps. The pool's threads hold it only between jobs; the main thread
 * never while it talks to Redis. */
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
/* The pool's threads have this nice value, so that it gives way soon to those of the front end, of
 * Redis and of the main thread, and still gets a tenth of a core that they all want. Those that
 * help it weigh a third of that. */
#define NICE 10

/* Brief jobs run two at a time: while one of them is mapped, stored or ended the other computes,
 * and neither waits for a thread that the front end has put aside. Long ones run one by one, by
 * priority.
 *
 * Of two that run at a time each takes its part of the device's units, for threads that take turns
 * on a core find its caches full of each other's matrices. */
#define THREADS 3
enum { BRIEF, LONG, LANES };

/* A quarantined job, which may end the worker, is among the long ones. It begins when nothing else
 * runs, and has the worker to itself for so long. Others are held back for it, unless it waits for
 * a long one. */
#define ALONE_NS (1000 * BLASD_MS)

/* A job that was taken over. */
struct slow_job {
    struct slow_job *next;
    struct blasd_item item;
    struct blasd_claim claim;
    struct blasd_group group;
    int64_t taken_ns;
    double ns; /* predicted */
    int lane;
    bool runs;             /* under the lock */
    bool again;            /* it ran, and begins again as a long one */
    unsigned char frame[]; /* the claim's */
};

/* What the list says of a lane. */
struct lane {
    struct slow_job *first; /* that waits */
    double waiting_ns;      /* of all that wait */
    int running;            /* jobs */
};

/* One of the pool's threads. */
struct slow_thread {
    struct blasd_slow_pool *pool; /* borrowed */
    int lane;
    struct blasd_batcher batcher;     /* the thread's own */
    struct blasd_worker_queue *queue; /* owned; NULL: not connected yet */
    pthread_t handle;
    bool started;
    pthread_cond_t wake;  /* work, the end */
    struct slow_job *job; /* under the lock: what it runs */
};

struct blasd_slow_pool {
    struct slow_thread threads[THREADS];
    int thread_count;
    pthread_mutex_t lock;
    pthread_cond_t news; /* the main thread: a job has ended */

    /* under the lock */
    struct slow_job *jobs;  /* owned: by priority, those of the same in the order they came */
    int64_t alone_until_ns; /* a quarantined job runs by itself till then */
    bool main_waits,
        main_turn;   /* for that; it runs jobs, or is next: a quarantined job waits for them */
    bool wants_room; /* the worker asked for fewer jobs than it could run with the pool idle */
    bool stop;
    int code; /* negative: the device has failed, err says why */
    struct blasd_err err;
};

/* ---- what the pool's threads do ---- */

/* With the lock. */
static struct lane look_at(const struct blasd_slow_pool *pool, int number) {
    struct lane lane = {.first = NULL};
    for (struct slow_job *job = pool->jobs; job != NULL; job = job->next) {
        if (job->lane != number) continue;
        if (!job->runs && lane.first == NULL) lane.first = job;
        if (!job->runs) lane.waiting_ns += job->ns;
        lane.running += job->runs;
    }
    return lane;
}

static int on_sharers(struct blasd_watch *watch) {
    const struct slow_thread *thread = watch->owner;
    int running;
    pthread_mutex_lock(&thread->pool->lock);
    running = look_at(thread->pool, thread->lane).running;
    pthread_mutex_unlock(&thread->pool->lock);
    return running;
}

/* Runs a job, which has waited until now; called without the lock. */
static int carry(struct slow_thread *thread, struct slow_job *job, struct blasd_err *err) {
    struct blasd_batcher *batcher = &thread->batcher;
    int64_t now = blasd_clock_ns();
    int code;
    job->claim.claimed_us += (now - job->taken_ns) / 1000;
    batcher->overran = NULL;
    batcher->queue = thread->queue;
    batcher->lost = blasd_heartbeat_lost(batcher->heartbeat);
    if (batcher->lost) return 0; /* the queue has handed this job to others */
    code = blasd_batch_run(batcher, &job->item, &job->group, now, err);
    if (batcher->lost) blasd_heartbeat_give_up(batcher->heartbeat);
    blasd_worker_queue_tidy(batcher->queue);
    return code;
}

/* The functions that follow are called with the lock. */

/* Wakes the threads if a job waits or the pool stops: a wake for nothing costs a small job more
 * than its product. */
static void wake_threads(struct blasd_slow_pool *pool) {
    const struct slow_job *job = pool->jobs;
    while (job != NULL && job->runs) job = job->next;
    if (job == NULL && !pool->stop) return;
    for (int i = 0; i < pool->thread_count; i++) pthread_cond_signal(&pool->threads[i].wake);
}

/* Whether a quarantined job is next that no long one is in the way of. */
static bool holds_back(const struct blasd_slow_pool *pool) {
    struct lane slow = look_at(pool, LONG);
    return pool->code == 0 && slow.running == 0 && slow.first != NULL &&
           slow.first->group.quarantined;
}

/* How long a quarantined job will yet have the worker to itself. */
static int64_t alone_ns(const struct blasd_slow_pool *pool) {
    int64_t left = pool->alone_until_ns == 0 ? 0 : pool->alone_until_ns - blasd_clock_ns();
    return left > 0 ? left : 0;
}

/* What waits first in a lane, if it may begin beside what runs; else NULL. */
static struct slow_job *next_job(const struct blasd_slow_pool *pool, int number) {
    struct lane lane = look_at(pool, number);
    struct slow_job *job = lane.first;
    bool may;
    if (job == NULL || pool->code != 0 || alone_ns(pool) > 0) return NULL;
    if (job->group.quarantined)
        may = lane.running + look_at(pool, BRIEF).running == 0 && !pool->main_turn;
    else
        may = !holds_back(pool);
    return may ? job : NULL;
}

static void begin(struct slow_thread *thread, struct slow_job *job) {
    thread->job = job;
    job->runs = true;
    if (job->group.quarantined) thread->pool->alone_until_ns = blasd_clock_ns() + ALONE_NS;
}

static void slow_job_free(struct slow_job *job) {
    blasd_job_release(&job->item.job);
    free(job);
}

/* Frees a job, or all that never ran: then `job` is NULL. */
static void forget(struct blasd_slow_pool *pool, const struct slow_job *job) {
    for (struct slow_job **at = &pool->jobs, *one; (one = *at) != NULL;) {
        bool stays = one->runs || (one->again && pool->code == 0);
        if (one != job && (job != NULL || stays)) {
            at = &one->next;
            continue;
        }
        *at = one->next;
        slow_job_free(one);
    }
}

static void ended(struct blasd_slow_pool *pool, struct slow_thread *thread, int code,
                  const struct blasd_err *err) {
    if (thread->job->group.quarantined) {
        pool->alone_until_ns = 0;
        pool->main_turn = pool->main_waits; /* they take turns */
    }
    forget(pool, thread->job);
    thread->job = NULL;
    if (code != 0 && pool->code == 0) {
        pool->code = code;
        pool->err = *err;
    }
    wake_threads(pool);
    pthread_cond_signal(&pool->news);
}

static void wait_for(pthread_cond_t *cond, struct blasd_slow_pool *pool, int64_t ns) {
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    ns += until.tv_nsec;
    until.tv_sec += ns / (1000 * BLASD_MS);
    until.tv_nsec = ns % (1000 * BLASD_MS);
    pthread_cond_timedwait(cond, &pool->lock, &until);
}

/* Has the worker ask for jobs again. Leaves the lock meanwhile. */
static void tell_room(struct slow_thread *thread) {
    struct blasd_slow_pool *pool = thread->pool;
    if (!pool->wants_room || pool->stop || thread->batcher.lost) return;
    pool->wants_room = false;
    pthread_mutex_unlock(&pool->lock);
    blasd_worker_queue_wake(thread->queue);
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
        struct slow_job *job = next_job(pool, thread->lane);
        struct blasd_err err = {0};
        int code;
        if (job == NULL) {
            if (alone_ns(pool) > 0)
                wait_for(&thread->wake, pool, alone_ns(pool));
            else
                pthread_cond_wait(&thread->wake, &pool->lock);
            continue;
        }
        begin(thread, job);
        pthread_mutex_unlock(&pool->lock);
        code = carry(thread, job, &err);
        pthread_mutex_lock(&pool->lock);
        ended(pool, thread, code, &err);
        tell_room(thread);
    }
    pthread_mutex_unlock(&pool->lock);
    return NULL;
}

/* ---- what the main thread does ---- */

/* Whether a job that comes to the lane would begin at once. */
static bool is_free(const struct lane *lane) {
    return lane->first == NULL && lane->running == 0;
}

struct blasd_slow_pool_view blasd_slow_pool_look(struct blasd_slow_pool *pool) {
    struct blasd_slow_pool_view view = {.bytes = 0};
    struct lane brief, slow;
    pthread_mutex_lock(&pool->lock);
    brief = look_at(pool, BRIEF);
    slow = look_at(pool, LONG);
    for (const struct slow_job *job = pool->jobs; job != NULL; job = job->next)
        view.bytes += job->group.bytes;
    view.idle = pool->jobs == NULL;
    pool->wants_room = !is_free(&brief) || !is_free(&slow);
    pthread_mutex_unlock(&pool->lock);
    view.long_us = is_free(&slow) ? LONG_US : 0;
    if (is_free(&brief))
        view.brief_us = BRIEF_US;
    else if (brief.waiting_ns < AHEAD_US * 1e3)
        view.brief_us = AHEAD_US - (uint64_t)(brief.waiting_ns / 1e3);
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

static double weight(const struct blasd_slow_pool *pool, const struct blasd_item *item) {
    return blasd_heartbeat_estimate_ns(pool->threads[0].batcher.heartbeat, item->job.op,
                                       &item->plan);
}

bool blasd_slow_pool_wants(struct blasd_slow_pool *pool, const struct blasd_item *items,
                           const struct blasd_group *group) {
    return group->quarantined || weight(pool, &items[group->first]) > HEAVY_NS;
}

/* A copy of the item, its claim and its frame, which the plan goes with. NULL: no memory. */
static struct slow_job *slow_job_new(const struct blasd_slow_pool *pool,
                                     const struct blasd_item *item, bool quarantined,
                                     bool takes_long, int64_t taken_ns) {
    struct slow_job *job = calloc(1, sizeof *job + item->claim->frame_len);
    if (job == NULL) return NULL;
    job->claim = *item->claim;
    job->claim.frame = memcpy(job->frame, item->claim->frame, item->claim->frame_len);
    blasd_item_read(&job->item, &job->claim);
    job->item.plan = item->plan; /* as the backend adapted it */
    job->item.batch_key = item->batch_key;
    job->taken_ns = taken_ns;
    job->ns = weight(pool, item);
    job->lane = quarantined || takes_long || job->ns >= LONG_NS ? LONG : BRIEF;
    job->group = (struct blasd_group){.count = 1,
                                      .quarantined = quarantined,
                                      .priority = item->job.priority,
                                      .flops = item->plan.flops,
                                      .bytes = blasd_item_bytes(item)};
    return job;
}

/* With the lock. */
static void enqueue(struct blasd_slow_pool *pool, struct slow_job *job) {
    struct slow_job **at = &pool->jobs;
    while (*at != NULL && (*at)->group.priority <= job->group.priority) at = &(*at)->next;
    job->next = *at;
    *at = job;
}

/* With the lock. Whether it has the job: a master that was a replica may give once more what it
 * does not know that this worker was given. That runs once, and two would make one result. */
static bool has(const struct blasd_slow_pool *pool, const char *id) {
    const struct slow_job *job = pool->jobs;
    while (job != NULL && strcmp(job->claim.id, id) != 0) job = job->next;
    return job != NULL;
}

bool blasd_slow_pool_take(struct blasd_slow_pool *pool, const struct blasd_batcher *main,
                          const struct blasd_item *items, const struct blasd_group *group,
                          int64_t claimed_ns) {
    struct slow_job *jobs = NULL, **end = &jobs, *job;
    bool whole = true;
    for (int i = group->first; i >= 0 && whole; i = items[i].next) {
        *end = slow_job_new(pool, &items[i], group->quarantined, false, claimed_ns);
        whole = *end != NULL;
        if (whole) end = &(*end)->next;
    }
    if (whole) blasd_worker_queue_let_go(main->queue, group->count);
    pthread_mutex_lock(&pool->lock);
    while ((job = jobs) != NULL) {
        jobs = job->next;
        if (whole && !has(pool, job->claim.id))
            enqueue(pool, job);
        else
            slow_job_free(job);
    }
    wake_threads(pool);
    pthread_mutex_unlock(&pool->lock);
    return whole;
}

bool blasd_slow_pool_take_long(struct blasd_slow_pool *pool, const struct blasd_item *item) {
    struct slow_job *job =
        slow_job_new(pool, item, item->claim->attempts > 0, true, blasd_clock_ns());
    if (job == NULL) return false;
    job->again = true;
    pthread_mutex_lock(&pool->lock);
    enqueue(pool, job);
    wake_threads(pool);
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

void blasd_slow_pool_main_begins(struct blasd_slow_pool *pool, struct blasd_batcher *main) {
    pthread_mutex_lock(&pool->lock);
    pool->main_waits = true;
    while (!pool->main_turn && (alone_ns(pool) > 0 || holds_back(pool))) {
        wait_for(&pool->news, pool, alone_ns(pool) > 0 ? alone_ns(pool) : ALONE_NS);
        blasd_heartbeat_sign(main->heartbeat);
    }
    pool->main_waits = false;
    pool->main_turn = true;
    pthread_mutex_unlock(&pool->lock);
}

void blasd_slow_pool_main_ended(struct blasd_slow_pool *pool) {
    pthread_mutex_lock(&pool->lock);
    pool->main_turn = false;
    wake_threads(pool);
    pthread_mutex_unlock(&pool->lock);
}

bool blasd_slow_pool_drop(struct blasd_slow_pool *pool) {
    bool busy;
    pthread_mutex_lock(&pool->lock);
    forget(pool, NULL);
    busy = pool->jobs != NULL;
    wake_threads(pool);
    pthread_mutex_unlock(&pool->lock);
    return busy;
}

int blasd_slow_pool_empty(struct blasd_slow_pool *pool, struct blasd_batcher *main,
                          struct blasd_err *err) {
    while (blasd_slow_pool_drop(pool)) {
        pthread_mutex_lock(&pool->lock);
        if (pool->jobs != NULL) wait_for(&pool->news, pool, 1000 * BLASD_MS);
        pthread_mutex_unlock(&pool->lock);
        blasd_heartbeat_sign(main->heartbeat);
    }
    return blasd_slow_pool_failed(pool, err);
}

int blasd_slow_pool_reach(struct blasd_slow_pool *pool, struct blasd_err *err) {
    int code = 0;
    for (int i = 0; code == 0 && i < pool->thread_count; i++) {
        struct slow_thread *thread = &pool->threads[i];
        if (thread->queue == NULL)
            code = blasd_worker_queue_open(&thread->batcher.options->queue, &thread->queue, err);
    }
    return code;
}

void blasd_slow_pool_lease(struct blasd_slow_pool *pool, const char *worker, int64_t epoch) {
    for (int i = 0; i < pool->thread_count; i++)
        blasd_worker_queue_join(pool->threads[i].queue, worker, epoch, i + 1);
}

/* ---- from beginning to end ---- */

/* Ends the threads that were started, and frees all. */
static void pool_free(struct blasd_slow_pool *pool) {
    pthread_mutex_lock(&pool->lock);
    pool->stop = true;
    wake_threads(pool);
    pthread_mutex_unlock(&pool->lock);
    for (int i = 0; i < pool->thread_count; i++) {
        struct slow_thread *thread = &pool->threads[i];
        struct blasd_batcher *batcher = &thread->batcher;
        if (thread->started) pthread_join(thread->handle, NULL);
        if (batcher->heartbeat != NULL) {
            struct blasd_watch *watch = blasd_heartbeat_watch(batcher->heartbeat, batcher->slot);
            watch->sharers = NULL;
        }
        blasd_worker_queue_free(thread->queue);
        if (batcher->device != NULL) batcher->options->backend->device_close(batcher->device);
        blasd_batcher_release(batcher);
        pthread_cond_destroy(&thread->wake);
    }
    pthread_cond_destroy(&pool->news);
    pthread_mutex_destroy(&pool->lock);
    free(pool);
}

/* What a thread has before its thread starts. */
static int thread_open(struct slow_thread *thread, const struct blasd_batcher *main,
                       struct blasd_err *err) {
    const struct blasd_worker_options *options = main->options;
    struct blasd_batcher *batcher = &thread->batcher;
    struct blasd_watch *watch = blasd_heartbeat_watch(main->heartbeat, batcher->slot);
    batcher->options = options;
    batcher->heartbeat = main->heartbeat;
    batcher->info = main->info;
    watch->sharers = on_sharers;
    watch->owner = thread;
    if (thread->lane == BRIEF) {
        batcher->pool = thread->pool;
        batcher->take_long = blasd_slow_pool_take_long;
        blasd_heartbeat_gives_way(main->heartbeat, batcher->slot);
    }
    return options->backend->device_open(options->ordinal, &batcher->device, err);
}

static void pool_init(struct blasd_slow_pool *pool, const struct blasd_batcher *main) {
    pthread_condattr_t steady;
    pthread_mutex_init(&pool->lock, NULL);
    pthread_condattr_init(&steady);
    pthread_condattr_setclock(&steady, CLOCK_MONOTONIC);
    pthread_cond_init(&pool->news, &steady);
    pool->thread_count = main->info.units > 1 ? THREADS : LANES;
    for (int i = 0; i < pool->thread_count; i++) {
        struct slow_thread *thread = &pool->threads[i];
        thread->pool = pool;
        thread->lane = i % LANES;
        pthread_cond_init(&thread->wake, &steady);
        blasd_batcher_init(&thread->batcher, main->options->queue.limits);
        thread->batcher.slot = BLASD_SLOT_SLOW + (enum blasd_slot)i;
    }
    pthread_condattr_destroy(&steady);
}

int blasd_slow_pool_open(const struct blasd_batcher *main, struct blasd_slow_pool **ret,
                         struct blasd_err *err) {
    struct blasd_slow_pool *pool = calloc(1, sizeof *pool);
    int code = 0;
    if (pool == NULL)
        return blasd_fail(err, BLASD_E_out_of_memory, "", "no memory for the slow pool");
    pool_init(pool, main);
    for (int i = 0; code == 0 && i < pool->thread_count; i++)
        code = thread_open(&pool->threads[i], main, err);
    for (int i = 0; code == 0 && i < pool->thread_count; i++) {
        struct slow_thread *thread = &pool->threads[i];
        thread->started = pthread_create(&thread->handle, NULL, run, thread) == 0;
        if (!thread->started)
            code = blasd_fail(err, BLASD_E_internal_error, "", "cannot start the slow pool");
    }
    if (code == 0)
        *ret = pool;
    else
        pool_free(pool);
    return code;
}

void blasd_slow_pool_close(struct blasd_slow_pool *pool) {
    if (pool != NULL) pool_free(pool);
}
