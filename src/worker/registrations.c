/* Leases, taken and lost, and turns. */
#include "worker/registrations.h"

#include "base/clock.h"
#include "base/log.h"

#include <stdlib.h>
#include <time.h>

#define AGAIN_NS (50 * BLASD_MS)
#define AGAIN_MOST 10
#define TELL_NS (10000 * BLASD_MS)
#define PAUSE_NS (100 * BLASD_MS) /* of the only queue, where it does not answer */

void blasd_registrations_init(struct blasd_registrations *registered,
                              const struct blasd_worker_options *options) {
    *registered =
        (struct blasd_registrations){.queues = {.count = blasd_queue_count(&options->queue)}};
}

void blasd_registrations_release(struct blasd_registrations *registered) {
    blasd_worker_queues_release(&registered->queues);
}

bool blasd_registrations_any(const struct blasd_registrations *registered) {
    for (int i = 0; i < registered->queues.count; i++)
        if (registered->held[i]) return true;
    return false;
}

static bool had_any(const struct blasd_registrations *registered) {
    for (int i = 0; i < registered->queues.count; i++)
        if (registered->had[i]) return true;
    return false;
}

/* Of several: whether it is worth speaking to that one. */
static bool reaches(const struct blasd_registrations *registered,
                    const struct blasd_heartbeat *heartbeat, int number) {
    return registered->queues.count == 1 || blasd_heartbeat_reaches(heartbeat, number);
}

/* Connects this thread, and those of the pool, and takes a lease. */
static int take(struct blasd_registrations *registered, struct blasd_batcher *main,
                struct blasd_slow_pool *pool, int number, struct blasd_err *err) {
    const struct blasd_worker_options *options = main->options;
    int64_t epoch = 0;
    char *info = blasd_heartbeat_info(main->heartbeat);
    int code =
        info == NULL ? blasd_fail(err, BLASD_E_out_of_memory, "", "no memory for the worker") : 0;
    if (code == 0)
        code = blasd_worker_queues_open(&registered->queues, &options->queue, number, err);
    if (code == 0 && pool != NULL) code = blasd_slow_pool_reach(pool, number, err);
    if (code == 0)
        code = blasd_worker_queue_register(registered->queues.of[number], options->name,
                                           options->backend->device_class, info, &epoch, err);
    free(info);
    if (code != 0) return code;
    blasd_heartbeat_lease(main->heartbeat, number, epoch);
    if (pool != NULL) blasd_slow_pool_lease(pool, number, options->name, epoch);
    if (registered->queues.count == 1 || !had_any(registered))
        blasd_log(BLASD_LOG_INFO, "worker %s serves %s (%s)", options->name, main->info.id,
                  main->info.name);
    registered->held[number] = registered->had[number] = true;
    registered->tries[number] = 0;
    return 0;
}

/* It is tried again, later each time. */
static void put_off(struct blasd_registrations *registered, int number,
                    const struct blasd_err *err) {
    int tries = registered->tries[number] < AGAIN_MOST ? ++registered->tries[number] : AGAIN_MOST;
    int64_t now = blasd_clock_ns();
    registered->again_ns[number] = now + tries * AGAIN_NS;
    if (registered->told_ns[number] != 0 && now - registered->told_ns[number] < TELL_NS) return;
    registered->told_ns[number] = now;
    blasd_log(BLASD_LOG_WARN, "waiting for Redis: %s", err->detail);
}

int blasd_registrations_care(struct blasd_registrations *registered, struct blasd_batcher *main,
                             struct blasd_slow_pool *pool, struct blasd_err *err) {
    for (int i = 0; i < registered->queues.count; i++) {
        int code = 0;
        if (registered->held[i] && blasd_heartbeat_lost(main->heartbeat, i))
            blasd_registrations_lose(registered, main, i);
        if (registered->held[i] || blasd_clock_ns() < registered->again_ns[i] ||
            !reaches(registered, main->heartbeat, i))
            continue;
        if (pool != NULL) code = blasd_slow_pool_failed(pool, err);
        if (code != 0) return code;
        if (pool != NULL && blasd_slow_pool_drop(pool, i)) continue; /* until that has stopped */
        if (registered->had[i]) blasd_log(BLASD_LOG_WARN, "the lease was lost; taking a new one");
        *err = (struct blasd_err){0};
        code = take(registered, main, pool, i, err);
        if (code == 0) continue;
        if (code != -(int)BLASD_E_queue_unavailable && !had_any(registered)) return code;
        if (code == -(int)BLASD_E_queue_unavailable) blasd_heartbeat_missed(main->heartbeat, i);
        put_off(registered, i, err);
    }
    return 0;
}

void blasd_registrations_lose(struct blasd_registrations *registered, struct blasd_batcher *main,
                              int number) {
    blasd_heartbeat_give_up(main->heartbeat, number);
    registered->held[number] = false;
}

void blasd_registrations_miss(struct blasd_registrations *registered, struct blasd_batcher *main,
                              int number, const struct blasd_err *err) {
    blasd_log(BLASD_LOG_DEBUG, "the queue does not answer: %s", err->detail);
    blasd_heartbeat_missed(main->heartbeat, number);
    if (registered->queues.count == 1) nanosleep(&(struct timespec){.tv_nsec = PAUSE_NS}, NULL);
}

int blasd_registrations_next(struct blasd_registrations *registered,
                             const struct blasd_heartbeat *heartbeat) {
    for (int k = 0; k < registered->queues.count; k++) {
        int i = (registered->turn + k) % registered->queues.count;
        if (!registered->held[i] || !reaches(registered, heartbeat, i) ||
            blasd_worker_queue_is_idle(registered->queues.of[i]))
            continue;
        registered->turn = (i + 1) % registered->queues.count;
        return i;
    }
    return -1;
}

/* Those that may be waited at; whether there are any. */
static bool find_wanted(const struct blasd_registrations *registered,
                        const struct blasd_batcher *main, bool wanted[BLASD_QUEUES_MOST]) {
    bool any = false;
    for (int i = 0; i < registered->queues.count; i++) {
        wanted[i] = registered->held[i] && reaches(registered, main->heartbeat, i);
        any |= wanted[i];
    }
    return any;
}

void blasd_registrations_wait(struct blasd_registrations *registered, struct blasd_batcher *main,
                              int timeout_ms) {
    bool wanted[BLASD_QUEUES_MOST];
    struct blasd_err err = {0};
    int number = 0, code;
    if (!find_wanted(registered, main, wanted)) {
        nanosleep(&(struct timespec){.tv_nsec = PAUSE_NS / 2}, NULL);
        return;
    }
    code = blasd_worker_queues_wait(&registered->queues, wanted, timeout_ms, &number, &err);
    if (code != 0) blasd_registrations_miss(registered, main, number, &err);
}

void blasd_registrations_look(struct blasd_registrations *registered, struct blasd_batcher *main,
                              int timeout_ms) {
    bool wanted[BLASD_QUEUES_MOST];
    struct blasd_err err = {0};
    int number = 0, code;
    (void)find_wanted(registered, main, wanted);
    code = blasd_worker_queues_look(&registered->queues, wanted, timeout_ms, &number, &err);
    if (code != 0) blasd_registrations_miss(registered, main, number, &err);
}

void blasd_registrations_leave_others(struct blasd_registrations *registered,
                                      struct blasd_batcher *main, int number) {
    for (int i = 0; i < registered->queues.count; i++) {
        struct blasd_err err = {0};
        if (i == number || !registered->held[i] || !reaches(registered, main->heartbeat, i))
            continue;
        if (blasd_worker_queue_wait_give_up(registered->queues.of[i], &err) != 0)
            blasd_registrations_miss(registered, main, i, &err);
    }
}

void blasd_registrations_give_back(struct blasd_registrations *registered) {
    struct blasd_err ignored;
    for (int i = 0; i < registered->queues.count; i++)
        if (registered->queues.of[i] != NULL)
            blasd_worker_queue_release(registered->queues.of[i], &ignored);
}
