/* One mutex holds the lists of what waits and what is gone, and who sleeps. The lane's threads hold
 * it only between jobs; the main thread never while it talks to Redis. */
#include "worker/lane.h"

#include "base/clock.h"
#include "base/log.h"
#include "core/parallel.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define HEAVY_NS 10e6 /* jobs that take longer than this run here */
#define MOST_WAITING 64
/* The lane's threads have this nice value, so that it gives way soon to those of the front end, of
 * Redis and of the main thread, and still gets a tenth of a core that they all want. Those that
 * help it weigh a third of that. */
#define NICE 10

/* Jobs whose predicted time is below this run two at a time: while one of them is bound, stored or
 * ended the other computes, and neither waits for a thread that the front end has put aside. Longer
 * ones have the machine to themselves, but for the small jobs, and wait for each other by priority;
 * the next one begins when the threads of the one before run out of work, before its last pieces
 * are done and it is stored and ended.
 *
 * Of two that run at a time each takes its part of the device's units, for threads that take turns
 * on a core find its caches full of each other's matrices. */
#define BRIEF_NS 100e6
#define HANDS 2

/* A job that was taken over. */
struct load {
    struct load *next;
    struct blasd_item item;
    struct blasd_claim claim;
    struct blasd_group group;
    int64_t claimed_ns;
    bool brief;
    unsigned char frame[]; /* the claim's */
};

/* One of the lane's threads. */
struct blasd_hand {
    struct blasd_lane *lane;      /* borrowed */
    struct blasd_batcher batcher; /* the thread's own */
    pthread_t thread;
    bool started;
    pthread_cond_t wake; /* work, the end */
    struct load *load;   /* under the lock: what it runs; owned */
    bool fading;         /* under the lock: that is a long one, and has threads to spare */
};

struct blasd_lane {
    struct blasd_hand hands[HANDS];
    int hand_count, units; /* of the device */
    pthread_mutex_t lock;
    pthread_cond_t news; /* the main thread: a job has ended */

    /* under the lock */
    struct load *first;         /* owned: what waits, in the order in which it will run */
    int waiting;                /* jobs in that */
    uint64_t bytes;             /* of what waits and what runs */
    int running, long_running;  /* jobs; those of them that are not brief, */
    int fading;                 /* and of these the ones that have threads to spare */
    bool suspect;               /* what runs is quarantined: the main thread waits for its end */
    bool main_waits, main_turn; /* for that; it runs jobs, or is next: a suspect waits for them */
    bool stop;
    int code; /* negative: the device has failed, err says why */
    struct blasd_err err;
};

/* ---- what the lane's threads do ---- */

int blasd_lane_running(struct blasd_hand *hand) {
    int running;
    pthread_mutex_lock(&hand->lane->lock);
    running = hand->load->brief ? hand->lane->running : 1;
    pthread_mutex_unlock(&hand->lane->lock);
    return running;
}

static int on_sharers(struct blasd_watch *watch) {
    return blasd_lane_running(watch->owner);
}

/* Runs a load; called without the lock. */
static int carry(struct blasd_batcher *batcher, struct load *load, struct blasd_err *err) {
    int code;
    batcher->lost = blasd_heartbeat_lost(batcher->heartbeat);
    if (batcher->lost) return 0; /* the queue has handed this job to others */
    code = blasd_batch_run(batcher, &load->item, &load->group, load->claimed_ns, err);
    if (batcher->lost) blasd_heartbeat_give_up(batcher->heartbeat);
    blasd_worker_queue_tidy(batcher->queue);
    return code;
}

/* The functions that follow are called with the lock. */

static void wake_hands(struct blasd_lane *lane) {
    for (int i = 0; i < lane->hand_count; i++) pthread_cond_signal(&lane->hands[i].wake);
}

/* Whether what waits first is quarantined, and waits at the most for the main thread. */
static bool suspect_is_due(const struct blasd_lane *lane) {
    return lane->running == 0 && lane->code == 0 && lane->first != NULL &&
           lane->first->group.quarantined;
}

/* Whether what waits first may begin beside what runs. */
static bool may_begin(const struct blasd_lane *lane) {
    const struct load *load = lane->first;
    if (load == NULL || lane->code != 0) return false;
    if (load->group.quarantined) return suspect_is_due(lane) && !lane->main_turn;
    return lane->running == lane->fading || (load->brief && lane->long_running == 0);
}

static struct load *pop(struct blasd_lane *lane) {
    struct load *load = lane->first;
    lane->first = load->next;
    lane->waiting--;
    lane->running++;
    if (!load->brief) lane->long_running++;
    lane->suspect = load->group.quarantined; /* which is not brief: none begins beside it */
    return load;
}

/* The job of a hand needs fewer threads than it had. */
static void on_spare(struct blasd_watch *watch) {
    struct blasd_hand *hand = watch->owner;
    struct blasd_lane *lane = hand->lane;
    pthread_mutex_lock(&lane->lock);
    if (!hand->load->brief && !lane->suspect && !hand->fading) {
        hand->fading = true;
        lane->fading++;
        if (may_begin(lane)) wake_hands(lane);
    }
    pthread_mutex_unlock(&lane->lock);
}

static void ended(struct blasd_lane *lane, struct load *load, int code,
                  const struct blasd_err *err) {
    lane->running--;
    if (!load->brief) lane->long_running--;
    if (lane->suspect) lane->main_turn = lane->main_waits; /* they take turns */
    lane->suspect = false;
    lane->bytes -= load->group.bytes;
    if (code != 0 && lane->code == 0) {
        lane->code = code;
        lane->err = *err;
    }
    if (may_begin(lane)) wake_hands(lane);
}

static void *run(void *arg) {
    struct blasd_hand *hand = arg;
    struct blasd_lane *lane = hand->lane;
    prctl(PR_SET_NAME, "heavy lane");
    if (setpriority(PRIO_PROCESS, (id_t)gettid(), NICE) != 0)
        blasd_log(BLASD_LOG_DEBUG, "cannot lower the weight of the heavy lane");
    blasd_parallel_background();
    pthread_mutex_lock(&lane->lock);
    while (!lane->stop) {
        struct blasd_err err = {0};
        struct load *load;
        int code;
        if (!may_begin(lane)) {
            pthread_cond_wait(&hand->wake, &lane->lock);
            continue;
        }
        load = hand->load = pop(lane);
        pthread_mutex_unlock(&lane->lock);
        code = carry(&hand->batcher, load, &err);
        pthread_mutex_lock(&lane->lock);
        if (hand->fading) lane->fading--;
        hand->fading = false;
        hand->load = NULL;
        ended(lane, load, code, &err);
        free(load);
        pthread_cond_signal(&lane->news);
    }
    pthread_mutex_unlock(&lane->lock);
    return NULL;
}

/* ---- what the main thread does ---- */

static void free_loads(struct load *load) {
    while (load != NULL) {
        struct load *next = load->next;
        free(load);
        load = next;
    }
}

bool blasd_lane_idle(struct blasd_lane *lane) {
    bool idle;
    pthread_mutex_lock(&lane->lock);
    idle = lane->running == 0 && lane->first == NULL;
    pthread_mutex_unlock(&lane->lock);
    return idle;
}

static uint64_t bytes_of(const struct blasd_plan *plan) {
    return plan->input_bytes + plan->output_bytes + plan->workspace_bytes;
}

static double weight(const struct blasd_lane *lane, const struct blasd_item *item) {
    return blasd_estimate_ns(blasd_heartbeat_estimate(lane->hands[0].batcher.heartbeat),
                             item->job.op, &item->plan);
}

bool blasd_lane_wants(struct blasd_lane *lane, const struct blasd_item *items,
                      const struct blasd_group *group) {
    return group->quarantined || weight(lane, &items[group->first]) > HEAVY_NS;
}

/* A copy of the claim and its frame, read anew. NULL: no memory. */
static struct load *load_new(const struct blasd_lane *lane, const struct blasd_item *item,
                             const struct blasd_group *group, int64_t claimed_ns) {
    struct load *load = calloc(1, sizeof *load + item->claim->frame_len);
    if (load == NULL) return NULL;
    load->claim = *item->claim;
    load->claim.frame = memcpy(load->frame, item->claim->frame, item->claim->frame_len);
    blasd_item_read(&load->item, &load->claim);
    if (load->item.err.code != BLASD_OK) { /* it was fine a moment ago */
        free(load);
        return NULL;
    }
    load->claimed_ns = claimed_ns;
    load->brief = weight(lane, item) < BRIEF_NS && !group->quarantined;
    load->group = (struct blasd_group){.count = 1,
                                       .quarantined = group->quarantined,
                                       .priority = group->priority,
                                       .flops = item->plan.flops,
                                       .bytes = bytes_of(&item->plan)};
    return load;
}

/* With the lock. */
static void enqueue(struct blasd_lane *lane, struct load *load) {
    struct load **at = &lane->first;
    while (*at != NULL && (*at)->group.priority <= load->group.priority) at = &(*at)->next;
    load->next = *at;
    *at = load;
    lane->waiting++;
    lane->bytes += load->group.bytes;
}

bool blasd_lane_take(struct blasd_lane *lane, const struct blasd_batcher *main,
                     const struct blasd_item *items, const struct blasd_group *group,
                     int64_t claimed_ns) {
    struct load *loads = NULL, **end = &loads;
    for (int i = group->first; i >= 0; i = items[i].next) {
        if ((*end = load_new(lane, &items[i], group, claimed_ns)) == NULL) {
            free_loads(loads);
            return false;
        }
        end = &(*end)->next;
    }
    blasd_worker_queue_let_go(main->queue, group->count);
    pthread_mutex_lock(&lane->lock);
    while (loads != NULL) {
        struct load *load = loads;
        loads = load->next;
        enqueue(lane, load);
    }
    wake_hands(lane);
    pthread_mutex_unlock(&lane->lock);
    return true;
}

int blasd_lane_failed(struct blasd_lane *lane, struct blasd_err *err) {
    int code;
    pthread_mutex_lock(&lane->lock);
    code = lane->code;
    if (code != 0) *err = lane->err;
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
    until.tv_nsec += ms * BLASD_MS;
    until.tv_sec += until.tv_nsec / (1000 * BLASD_MS);
    until.tv_nsec %= 1000 * BLASD_MS;
    pthread_cond_timedwait(&lane->news, &lane->lock, &until);
}

void blasd_lane_rest(struct blasd_lane *lane, int ms) {
    pthread_mutex_lock(&lane->lock);
    if (lane->code == 0 && lane->waiting >= MOST_WAITING) await_news(lane, ms);
    pthread_mutex_unlock(&lane->lock);
}

void blasd_lane_main_begins(struct blasd_lane *lane, struct blasd_batcher *main) {
    pthread_mutex_lock(&lane->lock);
    lane->main_waits = true;
    while (!lane->main_turn && (lane->suspect || suspect_is_due(lane))) {
        await_news(lane, 1000);
        blasd_heartbeat_sign(main->heartbeat);
    }
    lane->main_waits = false;
    lane->main_turn = true;
    pthread_mutex_unlock(&lane->lock);
}

void blasd_lane_main_ended(struct blasd_lane *lane) {
    pthread_mutex_lock(&lane->lock);
    lane->main_turn = false;
    if (may_begin(lane)) wake_hands(lane);
    pthread_mutex_unlock(&lane->lock);
}

int blasd_lane_empty(struct blasd_lane *lane, struct blasd_batcher *main, struct blasd_err *err) {
    bool busy = true;
    if (main->lost) blasd_heartbeat_give_up(main->heartbeat);
    pthread_mutex_lock(&lane->lock);
    for (const struct load *load = lane->first; load != NULL; load = load->next)
        lane->bytes -= load->group.bytes;
    free_loads(lane->first);
    lane->first = NULL;
    lane->waiting = 0;
    pthread_mutex_unlock(&lane->lock);
    while (busy) {
        pthread_mutex_lock(&lane->lock);
        busy = lane->running > 0;
        if (busy) await_news(lane, 1000);
        pthread_mutex_unlock(&lane->lock);
        blasd_heartbeat_sign(main->heartbeat);
    }
    return blasd_lane_failed(lane, err);
}

void blasd_lane_lease(struct blasd_lane *lane, const char *worker, int64_t epoch) {
    for (int i = 0; i < lane->hand_count; i++)
        blasd_worker_queue_join(lane->hands[i].batcher.queue, worker, epoch, i + 1);
}

/* ---- from beginning to end ---- */

/* Ends the threads that were started, and frees all. */
static void lane_free(struct blasd_lane *lane) {
    pthread_mutex_lock(&lane->lock);
    lane->stop = true;
    wake_hands(lane);
    pthread_mutex_unlock(&lane->lock);
    for (int i = 0; i < lane->hand_count; i++) {
        struct blasd_hand *hand = &lane->hands[i];
        struct blasd_batcher *batcher = &hand->batcher;
        if (hand->started) pthread_join(hand->thread, NULL);
        if (batcher->heartbeat != NULL) {
            struct blasd_watch *watch = blasd_heartbeat_watch(batcher->heartbeat, batcher->slot);
            watch->spare = NULL;
            watch->sharers = NULL;
        }
        blasd_worker_queue_free(batcher->queue);
        if (batcher->device != NULL) batcher->options->backend->device_close(batcher->device);
        blasd_batcher_release(batcher);
        pthread_cond_destroy(&hand->wake);
    }
    pthread_cond_destroy(&lane->news);
    pthread_mutex_destroy(&lane->lock);
    free(lane);
}

/* What a hand has before its thread starts. */
static int hand_open(struct blasd_hand *hand, const struct blasd_batcher *main,
                     struct blasd_err *err) {
    const struct blasd_worker_options *options = main->options;
    struct blasd_batcher *batcher = &hand->batcher;
    struct blasd_watch *watch = blasd_heartbeat_watch(main->heartbeat, batcher->slot);
    int code;
    batcher->options = options;
    batcher->heartbeat = main->heartbeat;
    batcher->info = main->info;
    watch->spare = on_spare;
    watch->sharers = on_sharers;
    watch->owner = hand;
    code = options->backend->device_open(options->ordinal, &batcher->device, err);
    return code != 0 ? code : blasd_worker_queue_open(&options->queue, &batcher->queue, err);
}

static void lane_init(struct blasd_lane *lane, const struct blasd_batcher *main) {
    pthread_condattr_t steady;
    pthread_mutex_init(&lane->lock, NULL);
    pthread_condattr_init(&steady);
    pthread_condattr_setclock(&steady, CLOCK_MONOTONIC);
    pthread_cond_init(&lane->news, &steady);
    pthread_condattr_destroy(&steady);
    lane->units = main->info.units;
    lane->hand_count = lane->units > 1 ? HANDS : 1;
    for (int i = 0; i < lane->hand_count; i++) {
        struct blasd_hand *hand = &lane->hands[i];
        hand->lane = lane;
        pthread_cond_init(&hand->wake, NULL);
        blasd_batcher_init(&hand->batcher, main->options->queue.limits);
        hand->batcher.slot = BLASD_SLOT_LANE + (enum blasd_slot)i;
    }
}

int blasd_lane_open(const struct blasd_batcher *main, struct blasd_lane **ret,
                    struct blasd_err *err) {
    struct blasd_lane *lane = calloc(1, sizeof *lane);
    int code = 0;
    if (lane == NULL)
        return blasd_fail(err, BLASD_E_out_of_memory, "", "no memory for the heavy lane");
    lane_init(lane, main);
    for (int i = 0; code == 0 && i < lane->hand_count; i++)
        code = hand_open(&lane->hands[i], main, err);
    for (int i = 0; code == 0 && i < lane->hand_count; i++) {
        struct blasd_hand *hand = &lane->hands[i];
        hand->started = pthread_create(&hand->thread, NULL, run, hand) == 0;
        if (!hand->started)
            code = blasd_fail(err, BLASD_E_internal_error, "", "cannot start the heavy lane");
    }
    if (code == 0)
        *ret = lane;
    else
        lane_free(lane);
    return code;
}

void blasd_lane_close(struct blasd_lane *lane) {
    if (lane != NULL) lane_free(lane);
}
