/* Leases, taken and lost, and turns. */
#include "worker/seats.h"

#include "base/clock.h"
#include "base/log.h"

#include <stdlib.h>
#include <time.h>

#define AGAIN_NS (50 * BLASD_MS)
#define AGAIN_MOST 10
#define TELL_NS (10000 * BLASD_MS)
#define PAUSE_NS (100 * BLASD_MS) /* of the only queue, where it does not answer */

void blasd_seats_init(struct blasd_seats *seats, const struct blasd_worker_options *options) {
    *seats = (struct blasd_seats){.queues = {.count = blasd_queue_count(&options->queue)}};
}

void blasd_seats_release(struct blasd_seats *seats) {
    blasd_worker_queues_release(&seats->queues);
}

bool blasd_seats_any(const struct blasd_seats *seats) {
    for (int i = 0; i < seats->queues.count; i++)
        if (seats->held[i]) return true;
    return false;
}

static bool had_any(const struct blasd_seats *seats) {
    for (int i = 0; i < seats->queues.count; i++)
        if (seats->had[i]) return true;
    return false;
}

/* Of several: whether it is worth speaking to that one. */
static bool reaches(const struct blasd_seats *seats, const struct blasd_heartbeat *heartbeat,
                    int number) {
    return seats->queues.count == 1 || blasd_heartbeat_reaches(heartbeat, number);
}

/* Connects this thread, and those of the pool, and takes a lease. */
static int take(struct blasd_seats *seats, struct blasd_batcher *main, struct blasd_slow_pool *pool,
                int number, struct blasd_err *err) {
    const struct blasd_worker_options *options = main->options;
    int64_t epoch = 0;
    char *info = blasd_heartbeat_info(main->heartbeat);
    int code =
        info == NULL ? blasd_fail(err, BLASD_E_out_of_memory, "", "no memory for the worker") : 0;
    if (code == 0) code = blasd_worker_queues_open(&seats->queues, &options->queue, number, err);
    if (code == 0 && pool != NULL) code = blasd_slow_pool_reach(pool, number, err);
    if (code == 0)
        code = blasd_worker_queue_register(seats->queues.of[number], options->name,
                                           options->backend->device_class, info, &epoch, err);
    free(info);
    if (code != 0) return code;
    blasd_heartbeat_lease(main->heartbeat, number, epoch);
    if (pool != NULL) blasd_slow_pool_lease(pool, number, options->name, epoch);
    if (seats->queues.count == 1 || !had_any(seats))
        blasd_log(BLASD_LOG_INFO, "worker %s serves %s (%s)", options->name, main->info.id,
                  main->info.name);
    seats->held[number] = seats->had[number] = true;
    seats->tries[number] = 0;
    return 0;
}

/* It is tried again, later each time. */
static void put_off(struct blasd_seats *seats, int number, const struct blasd_err *err) {
    int tries = seats->tries[number] < AGAIN_MOST ? ++seats->tries[number] : AGAIN_MOST;
    int64_t now = blasd_clock_ns();
    seats->again_ns[number] = now + tries * AGAIN_NS;
    if (seats->told_ns[number] != 0 && now - seats->told_ns[number] < TELL_NS) return;
    seats->told_ns[number] = now;
    blasd_log(BLASD_LOG_WARN, "waiting for Redis: %s", err->detail);
}

int blasd_seats_care(struct blasd_seats *seats, struct blasd_batcher *main,
                     struct blasd_slow_pool *pool, struct blasd_err *err) {
    for (int i = 0; i < seats->queues.count; i++) {
        int code = 0;
        if (seats->held[i] && blasd_heartbeat_lost(main->heartbeat, i))
            blasd_seats_lose(seats, main, i);
        if (seats->held[i] || blasd_clock_ns() < seats->again_ns[i] ||
            !reaches(seats, main->heartbeat, i))
            continue;
        if (pool != NULL) code = blasd_slow_pool_failed(pool, err);
        if (code != 0) return code;
        if (pool != NULL && blasd_slow_pool_drop(pool, i)) continue; /* until that has stopped */
        if (seats->had[i]) blasd_log(BLASD_LOG_WARN, "the lease was lost; taking a new one");
        *err = (struct blasd_err){0};
        code = take(seats, main, pool, i, err);
        if (code == 0) continue;
        if (code != -(int)BLASD_E_queue_unavailable && !had_any(seats)) return code;
        if (code == -(int)BLASD_E_queue_unavailable) blasd_heartbeat_missed(main->heartbeat, i);
        put_off(seats, i, err);
    }
    return 0;
}

void blasd_seats_lose(struct blasd_seats *seats, struct blasd_batcher *main, int number) {
    blasd_heartbeat_give_up(main->heartbeat, number);
    seats->held[number] = false;
}

void blasd_seats_miss(struct blasd_seats *seats, struct blasd_batcher *main, int number,
                      const struct blasd_err *err) {
    blasd_log(BLASD_LOG_DEBUG, "the queue does not answer: %s", err->detail);
    blasd_heartbeat_missed(main->heartbeat, number);
    if (seats->queues.count == 1) nanosleep(&(struct timespec){.tv_nsec = PAUSE_NS}, NULL);
}

int blasd_seats_next(struct blasd_seats *seats, const struct blasd_heartbeat *heartbeat) {
    for (int k = 0; k < seats->queues.count; k++) {
        int i = (seats->turn + k) % seats->queues.count;
        if (!seats->held[i] || !reaches(seats, heartbeat, i) ||
            blasd_worker_queue_is_idle(seats->queues.of[i]))
            continue;
        seats->turn = (i + 1) % seats->queues.count;
        return i;
    }
    return -1;
}

void blasd_seats_wait(struct blasd_seats *seats, struct blasd_batcher *main, int timeout_ms) {
    bool wanted[BLASD_QUEUES_MOST];
    struct blasd_err err = {0};
    bool any = false;
    int number = 0;
    for (int i = 0; i < seats->queues.count; i++) {
        wanted[i] = seats->held[i] && reaches(seats, main->heartbeat, i);
        any |= wanted[i];
    }
    if (!any)
        nanosleep(&(struct timespec){.tv_nsec = PAUSE_NS / 2}, NULL);
    else if (blasd_worker_queues_wait(&seats->queues, wanted, timeout_ms, &number, &err) != 0)
        blasd_seats_miss(seats, main, number, &err);
}

void blasd_seats_leave_others(struct blasd_seats *seats, struct blasd_batcher *main, int number) {
    for (int i = 0; i < seats->queues.count; i++) {
        struct blasd_err err = {0};
        if (i == number || !seats->held[i] || !reaches(seats, main->heartbeat, i)) continue;
        if (blasd_worker_queue_wait_give_up(seats->queues.of[i], &err) != 0)
            blasd_seats_miss(seats, main, i, &err);
    }
}

void blasd_seats_give_back(struct blasd_seats *seats) {
    struct blasd_err ignored;
    for (int i = 0; i < seats->queues.count; i++)
        if (seats->queues.of[i] != NULL) blasd_worker_queue_release(seats->queues.of[i], &ignored);
}
