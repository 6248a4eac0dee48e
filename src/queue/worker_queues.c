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

int blasd_worker_queues_wait(struct blasd_worker_queues *all, const bool *wanted, int timeout_ms,
                             int *number, struct blasd_err *err) {
    struct pollfd fds[BLASD_QUEUES_MOST];
    int of[BLASD_QUEUES_MOST], count = 0, code = 0;
    for (int i = 0; i < all->count; i++) {
        *number = i;
        if (!wanted[i]) continue;
        if (all->count == 1) return blasd_worker_queue_wait(all->of[i], timeout_ms, err);
        fds[count] = (struct pollfd){.events = POLLIN};
        code = blasd_worker_queue_wait_begin(all->of[i], timeout_ms, &fds[count].fd, err);
        if (code != 0 || fds[count].fd < 0) return code; /* there is something to do */
        of[count++] = i;
    }
    poll_all(all, fds, count, timeout_ms);
    for (int k = 0; k < count; k++) {
        *number = of[k];
        if (fds[k].revents != 0) code = blasd_worker_queue_wait_end(all->of[of[k]], err);
        if (code != 0) return code;
    }
    return 0;
}
