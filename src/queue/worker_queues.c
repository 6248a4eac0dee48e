/* The waits are sent, and then waited for together; what comes while the thread is busy elsewhere
 * lies in the connection until it looks again. */
#include "queue/worker_queues.h"

#include "base/clock.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>

int blasd_worker_queues_open(struct blasd_worker_queues *all,
                             const struct blasd_queue_options *options, int number,
                             struct blasd_err *err) {
    struct blasd_queue_one one;
    if (all->of[number] != NULL) return 0;
    blasd_queue_one(options, number, &one);
    return blasd_worker_queue_open(&one.options, &all->of[number], err);
}

void blasd_worker_queues_release(struct blasd_worker_queues *all) {
    for (int i = 0; i < BLASD_QUEUES_MOST; i++) blasd_worker_queue_free(all->of[i]);
    *all = (struct blasd_worker_queues){0};
}

/* Waits for one of them, at first awake where waits are short: as for one queue. */
static void poll_all(struct blasd_worker_queues *all, struct pollfd *fds, int count,
                     int timeout_ms) {
    int64_t began_ns = blasd_clock_ns();
    int ready = 0;
    if (all->busy)
        while ((ready = poll(fds, (nfds_t)count, 0)) == 0 &&
               blasd_clock_ns() - began_ns < BLASD_WAIT_AWAKE_NS)
            sched_yield();
    if (ready == 0) ready = poll(fds, (nfds_t)count, timeout_ms);
    for (int i = 0; ready < 0 && i < count; i++) fds[i].revents = 0;
    all->busy = ready > 0 && blasd_clock_ns() - began_ns < BLASD_WAIT_SHORT_NS;
}

/* Those at which there is a wait whose end has not been heard. */
struct waits {
    struct pollfd fds[BLASD_QUEUES_MOST];
    int of[BLASD_QUEUES_MOST], count;
};

/* At queue `number`; whether it is among them then: else there is something to do. */
static bool begin_wait(struct blasd_worker_queues *all, struct waits *waits, int number,
                       int timeout_ms, int *code, struct blasd_err *err) {
    struct pollfd *fd = &waits->fds[waits->count];
    *fd = (struct pollfd){.events = POLLIN};
    *code = blasd_worker_queue_wait_begin(all->of[number], timeout_ms, &fd->fd, err);
    if (*code != 0 || fd->fd < 0) return false;
    waits->of[waits->count++] = number;
    return true;
}

/* Takes what ended those that have. */
static int end_waits(struct blasd_worker_queues *all, const struct waits *waits, int *number,
                     struct blasd_err *err) {
    int code = 0;
    for (int k = 0; code == 0 && k < waits->count; k++) {
        *number = waits->of[k];
        if (waits->fds[k].revents != 0) code = blasd_worker_queue_wait_end(all->of[*number], err);
    }
    return code;
}

int blasd_worker_queues_wait(struct blasd_worker_queues *all, const bool *wanted, int timeout_ms,
                             int *number, struct blasd_err *err) {
    struct waits waits = {.count = 0};
    int code = 0;
    for (int i = 0; i < all->count; i++) {
        *number = i;
        if (!wanted[i]) continue;
        if (all->count == 1) return blasd_worker_queue_wait(all->of[i], timeout_ms, err);
        if (!begin_wait(all, &waits, i, timeout_ms, &code, err)) return code;
    }
    poll_all(all, waits.fds, waits.count, timeout_ms);
    return end_waits(all, &waits, number, err);
}

int blasd_worker_queues_look(struct blasd_worker_queues *all, const bool *wanted, int timeout_ms,
                             int *number, struct blasd_err *err) {
    struct waits waits = {.count = 0};
    int code = 0;
    for (int i = 0; i < all->count; i++) {
        *number = i;
        if (!wanted[i] || !blasd_worker_queue_is_idle(all->of[i])) continue;
        if (!begin_wait(all, &waits, i, timeout_ms, &code, err) && code != 0) return code;
    }
    if (waits.count == 0 || poll(waits.fds, (nfds_t)waits.count, 0) <= 0) return 0;
    return end_waits(all, &waits, number, err);
}
