/* One mutex holds the list of what waits, the errand, and who sleeps. The lane's thread holds it
 * only between batches; the main thread never while it talks to Redis. */
#include "worker/lane.h"

#include "base/clock.h"
#include "base/log.h"
#include "kernels/numeric/parallel.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define MS INT64_C(1000000)
#define HEAVY_NS 10e6 /* jobs that take longer than this run here */
#define MOST_WAITING 64
/* The lane's thread has this nice value, so that it gives way soon to those of the front end, of
 * Redis and of the main thread, and still gets a tenth of a core that they all want. Those that
 * help it give way at once. */
#define NICE 10

/* A group that was taken over. */
struct load {
    struct load *next;
    struct blasd_item *items;   /* owned */
    struct blasd_claim *claims; /* owned */
    unsigned char *frames;      /* owned */
    struct blasd_group group;
    int64_t claimed_ns;
};

/* What the lane's thread waits for the main one to do. */
struct errand {
    const char *const *ids;       /* to be marked as begun; NULL: */
    struct blasd_ending *endings; /* to be finished */
    int count, code;
    bool lost, done;
    struct blasd_err *err;
};

struct blasd_lane {
    struct blasd_batcher batcher; /* the thread's own */
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake; /* the lane's thread: work, the errand is done, the end */
    pthread_cond_t news; /* the main thread: an errand, a batch has ended */

    /* under the lock */
    struct load *first; /* owned: what waits, in the order in which it will run */
    int waiting;        /* jobs in that */
    uint64_t bytes;     /* of what waits and what runs */
    struct errand *errand;
    bool busy, stop, main_waits;
    int code; /* negative: the device has failed, err says why */
    struct blasd_err err;
};

static void load_free(struct load *load) {
    if (load == NULL) return;
    free(load->items);
    free(load->claims);
    free(load->frames);
    free(load);
}

/* ---- what the lane's thread does ---- */

/* Hands `errand` to the main thread and waits until it is done. */
static void ask(struct blasd_lane *lane, struct errand *errand) {
    struct blasd_err ignored;
    bool nudge;
    pthread_mutex_lock(&lane->lock);
    lane->errand = errand;
    nudge = lane->main_waits;
    pthread_cond_signal(&lane->news);
    pthread_mutex_unlock(&lane->lock);
    /* where this does not arrive, the wait ends by itself soon */
    if (nudge) blasd_worker_queue_nudge(lane->batcher.queue, &ignored);
    pthread_mutex_lock(&lane->lock);
    while (!errand->done) pthread_cond_wait(&lane->wake, &lane->lock);
    pthread_mutex_unlock(&lane->lock);
}

int blasd_lane_begin(struct blasd_lane *lane, const char *const *ids, int count,
                     struct blasd_err *err) {
    struct errand errand = {.ids = ids, .count = count, .err = err};
    ask(lane, &errand);
    return errand.code;
}

int blasd_lane_finish(struct blasd_lane *lane, struct blasd_ending *endings, int count, bool *lost,
                      struct blasd_err *err) {
    struct errand errand = {.endings = endings, .count = count, .err = err};
    ask(lane, &errand);
    *lost = errand.lost;
    return errand.code;
}

/* Runs a load; called without the lock. */
static int carry(struct blasd_lane *lane, struct load *load, struct blasd_err *err) {
    struct blasd_batcher *batcher = &lane->batcher;
    int code;
    batcher->lost = blasd_heartbeat_lost(batcher->heartbeat);
    if (batcher->lost) return 0; /* the queue has handed these jobs to others */
    code = blasd_batch_run(batcher, load->items, &load->group, load->claimed_ns, err);
    if (batcher->lost) blasd_heartbeat_give_up(batcher->heartbeat);
    blasd_worker_queue_tidy(batcher->queue);
    return code;
}

static struct load *pop(struct blasd_lane *lane) {
    struct load *load = lane->first;
    lane->first = load->next;
    lane->waiting -= load->group.count;
    lane->busy = true;
    return load;
}

/* With the lock. */
static void ended(struct blasd_lane *lane, struct load *load, int code,
                  const struct blasd_err *err) {
    lane->busy = false;
    lane->bytes -= load->group.bytes;
    if (code != 0 && lane->code == 0) {
        lane->code = code;
        lane->err = *err;
    }
    load_free(load);
}

static void *run(void *arg) {
    struct blasd_lane *lane = arg;
    prctl(PR_SET_NAME, "heavy lane");
    if (setpriority(PRIO_PROCESS, (id_t)gettid(), NICE) != 0)
        blasd_log(BLASD_LOG_DEBUG, "cannot lower the weight of the heavy lane");
    blasd_parallel_background();
    pthread_mutex_lock(&lane->lock);
    while (!lane->stop) {
        struct blasd_err err = {0};
        struct load *load;
        int code;
        if (lane->first == NULL || lane->first->group.suspect || lane->code != 0 || lane->busy) {
            pthread_cond_wait(&lane->wake, &lane->lock);
            continue;
        }
        load = pop(lane);
        pthread_mutex_unlock(&lane->lock);
        code = carry(lane, load, &err);
        pthread_mutex_lock(&lane->lock);
        ended(lane, load, code, &err);
        pthread_cond_signal(&lane->news);
    }
    pthread_mutex_unlock(&lane->lock);
    return NULL;
}

/* ---- what the main thread does ---- */

bool blasd_lane_idle(struct blasd_lane *lane) {
    bool idle;
    pthread_mutex_lock(&lane->lock);
    idle = !lane->busy && lane->first == NULL;
    pthread_mutex_unlock(&lane->lock);
    return idle;
}

bool blasd_lane_wants(struct blasd_lane *lane, const struct blasd_item *items,
                      const struct blasd_group *group) {
    double share = 1.0 / (double)group->count;
    if (group->suspect) return !blasd_lane_idle(lane);
    return blasd_weigh(lane->batcher.weigher, items[group->first].job.op, group->flops * share,
                       (double)group->bytes * share) > HEAVY_NS;
}

static size_t frame_room(const struct blasd_claim *claim) {
    return (claim->frame_len + 63) / 64 * 64;
}

/* Copies of the group's claims and frames, read anew. */
static struct load *load_new(const struct blasd_item *items, const struct blasd_group *group) {
    size_t count = (size_t)group->count, bytes = 64, at = 0;
    struct load *load = calloc(1, sizeof *load);
    int k = 0;
    if (load == NULL) return NULL;
    for (int i = group->first; i >= 0; i = items[i].next) bytes += frame_room(items[i].claim);
    load->items = calloc(count, sizeof *load->items);
    load->claims = calloc(count, sizeof *load->claims);
    load->frames = malloc(bytes);
    load->group = *group;
    load->group.first = 0;
    load->group.last = group->count - 1;
    if (load->items == NULL || load->claims == NULL || load->frames == NULL) goto fail;
    for (int i = group->first; i >= 0; i = items[i].next, k++) {
        struct blasd_claim *claim = &load->claims[k];
        *claim = *items[i].claim;
        memcpy(load->frames + at, items[i].claim->frame, claim->frame_len);
        claim->frame = load->frames + at;
        at += frame_room(claim);
        blasd_item_read(&load->items[k], claim);
        if (load->items[k].err.code != BLASD_OK) goto fail; /* it was fine a moment ago */
        load->items[k].next = k + 1 < group->count ? k + 1 : -1;
    }
    return load;
fail:
    load_free(load);
    return NULL;
}

bool blasd_lane_take(struct blasd_lane *lane, const struct blasd_item *items,
                     const struct blasd_group *group, int64_t claimed_ns) {
    struct load *load = load_new(items, group), **at = &lane->first;
    if (load == NULL) return false;
    load->claimed_ns = claimed_ns;
    pthread_mutex_lock(&lane->lock);
    while (*at != NULL && (*at)->group.priority <= group->priority) at = &(*at)->next;
    load->next = *at;
    *at = load;
    lane->waiting += group->count;
    lane->bytes += group->bytes;
    pthread_cond_signal(&lane->wake);
    pthread_mutex_unlock(&lane->lock);
    return true;
}

int blasd_lane_serve(struct blasd_lane *lane, struct blasd_batcher *main, struct blasd_err *err) {
    struct errand *errand;
    int code;
    pthread_mutex_lock(&lane->lock);
    errand = lane->errand;
    lane->errand = NULL;
    pthread_mutex_unlock(&lane->lock);
    if (errand != NULL) { /* it lies in the other thread's frame, which waits */
        if (main->lost)
            errand->lost = true;
        else if (errand->ids != NULL)
            errand->code =
                blasd_worker_queue_begin(main->queue, errand->ids, errand->count, errand->err);
        else
            errand->code = blasd_worker_queue_finish(main->queue, errand->endings, errand->count,
                                                     &errand->lost, errand->err);
        if (errand->lost) main->lost = true;
    }
    pthread_mutex_lock(&lane->lock);
    if (errand != NULL) {
        errand->done = true;
        pthread_cond_signal(&lane->wake);
    }
    code = lane->code;
    if (code != 0) *err = lane->err;
    pthread_mutex_unlock(&lane->lock);
    return code;
}

/* With the lock. */
static bool alone_is_due(const struct blasd_lane *lane) {
    return !lane->busy && lane->first != NULL && lane->first->group.suspect;
}

int blasd_lane_run_alone(struct blasd_lane *lane, struct blasd_batcher *main,
                         struct blasd_err *err) {
    struct load *load = NULL;
    int code = 0;
    pthread_mutex_lock(&lane->lock);
    if (alone_is_due(lane)) load = pop(lane); /* `busy` keeps the lane's own thread still */
    pthread_mutex_unlock(&lane->lock);
    if (load == NULL) return 0;
    code = blasd_batch_run(main, load->items, &load->group, load->claimed_ns, err);
    pthread_mutex_lock(&lane->lock);
    ended(lane, load, 0, err);
    pthread_cond_signal(&lane->wake);
    pthread_mutex_unlock(&lane->lock);
    return code;
}

bool blasd_lane_full(struct blasd_lane *lane) {
    bool full;
    pthread_mutex_lock(&lane->lock);
    full = lane->waiting >= MOST_WAITING;
    pthread_mutex_unlock(&lane->lock);
    return full;
}

uint64_t blasd_lane_bytes(struct blasd_lane *lane) {
    uint64_t bytes;
    pthread_mutex_lock(&lane->lock);
    bytes = lane->bytes;
    pthread_mutex_unlock(&lane->lock);
    return bytes;
}

static void await_news(struct blasd_lane *lane, int ms) {
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += ms * MS;
    until.tv_sec += until.tv_nsec / (1000 * MS);
    until.tv_nsec %= 1000 * MS;
    pthread_cond_timedwait(&lane->news, &lane->lock, &until);
}

void blasd_lane_rest(struct blasd_lane *lane, int ms) {
    pthread_mutex_lock(&lane->lock);
    if (lane->errand == NULL && lane->code == 0 && lane->waiting >= MOST_WAITING &&
        !alone_is_due(lane))
        await_news(lane, ms);
    pthread_mutex_unlock(&lane->lock);
}

int blasd_lane_wait(struct blasd_lane *lane, struct blasd_worker_queue *queue, int ms,
                    struct blasd_err *err) {
    bool now;
    int code;
    pthread_mutex_lock(&lane->lock);
    now = lane->errand != NULL || lane->code != 0 || alone_is_due(lane);
    lane->main_waits = !now;
    pthread_mutex_unlock(&lane->lock);
    if (now) return 0;
    code = blasd_worker_queue_wait(queue, ms, err);
    pthread_mutex_lock(&lane->lock);
    lane->main_waits = false;
    pthread_mutex_unlock(&lane->lock);
    return code;
}

int blasd_lane_empty(struct blasd_lane *lane, struct blasd_batcher *main, struct blasd_err *err) {
    struct load *load;
    bool busy = true;
    int code = 0;
    if (main->lost) blasd_heartbeat_give_up(main->heartbeat);
    pthread_mutex_lock(&lane->lock);
    while ((load = lane->first) != NULL) {
        lane->first = load->next;
        lane->bytes -= load->group.bytes;
        load_free(load);
    }
    lane->waiting = 0;
    pthread_mutex_unlock(&lane->lock);
    while (busy) {
        struct blasd_err problem = {0};
        int served = blasd_lane_serve(lane, main, &problem);
        if (served != 0) {
            code = served;
            *err = problem;
        }
        pthread_mutex_lock(&lane->lock);
        busy = lane->busy;
        if (busy && lane->errand == NULL) await_news(lane, 1000);
        pthread_mutex_unlock(&lane->lock);
    }
    return code;
}

void blasd_lane_lease(struct blasd_lane *lane, int64_t epoch) {
    blasd_worker_queue_join(lane->batcher.queue, lane->batcher.options->name, epoch);
}

/* ---- from beginning to end ---- */

static void lane_free(struct blasd_lane *lane) {
    struct blasd_batcher *batcher = &lane->batcher;
    blasd_worker_queue_free(batcher->queue);
    if (batcher->device != NULL) batcher->options->backend->device_close(batcher->device);
    blasd_batcher_release(batcher);
    pthread_cond_destroy(&lane->news);
    pthread_cond_destroy(&lane->wake);
    pthread_mutex_destroy(&lane->lock);
    free(lane);
}

int blasd_lane_open(const struct blasd_batcher *main, struct blasd_lane **ret,
                    struct blasd_err *err) {
    const struct blasd_worker_options *options = main->options;
    struct blasd_lane *lane = calloc(1, sizeof *lane);
    struct blasd_batcher *batcher;
    pthread_condattr_t steady;
    int code;
    if (lane == NULL)
        return blasd_fail(err, BLASD_E_out_of_memory, "", "no memory for the heavy lane");
    pthread_mutex_init(&lane->lock, NULL);
    pthread_cond_init(&lane->wake, NULL);
    pthread_condattr_init(&steady);
    pthread_condattr_setclock(&steady, CLOCK_MONOTONIC);
    pthread_cond_init(&lane->news, &steady);
    pthread_condattr_destroy(&steady);
    batcher = &lane->batcher;
    blasd_batcher_init(batcher, options->queue.limits);
    batcher->options = options;
    batcher->heartbeat = main->heartbeat;
    batcher->info = main->info;
    batcher->weigher = main->weigher;
    batcher->lane = lane;
    batcher->place = BLASD_PLACE_LANE;
    code = options->backend->device_open(options->ordinal, &batcher->device, err);
    if (code == 0) code = blasd_worker_queue_open(&options->queue, &batcher->queue, err);
    if (code == 0 && pthread_create(&lane->thread, NULL, run, lane) != 0)
        code = blasd_fail(err, BLASD_E_internal_error, "", "cannot start the heavy lane");
    if (code == 0)
        *ret = lane;
    else
        lane_free(lane);
    return code;
}

void blasd_lane_close(struct blasd_lane *lane) {
    if (lane == NULL) return;
    pthread_mutex_lock(&lane->lock);
    lane->stop = true;
    pthread_cond_signal(&lane->wake);
    pthread_mutex_unlock(&lane->lock);
    pthread_join(lane->thread, NULL);
    lane_free(lane);
}
