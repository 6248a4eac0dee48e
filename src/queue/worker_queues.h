/* One thread's connections to the queues of a deployment, one to each, and the wait at several.
 *
 * Each connection is a whole one (worker_queue.h) that knows of no other; one that cannot be made
 * yet is missing. Read next: ../worker/registrations.h. */
#ifndef BLASD_QUEUE_WORKER_QUEUES_H
#define BLASD_QUEUE_WORKER_QUEUES_H

#include "queue/worker_queue.h"

struct blasd_worker_queues {
    int count;
    bool busy;                                        /* the last wait was short */
    struct blasd_worker_queue *of[BLASD_QUEUES_MOST]; /* owned; NULL: not connected yet */
};

/* Makes the connection to queue `number` of `options`, unless it is there; errors as of
 * blasd_worker_queue_open. */
int blasd_worker_queues_open(struct blasd_worker_queues *all,
                             const struct blasd_queue_options *options, int number,
                             struct blasd_err *err);
void blasd_worker_queues_release(struct blasd_worker_queues *all);
/* Waits until there may be jobs at one of those that are `wanted`, or one of these has gone away,
 * up to `timeout_ms`. Where one does not answer that is the code, and `number` says which. */
int blasd_worker_queues_wait(struct blasd_worker_queues *all, const bool *wanted, int timeout_ms,
                             int *number, struct blasd_err *err);
/* The same for who has something else to do: begins such a wait at those that are idle, sees which
 * has ended, and waits for none. */
int blasd_worker_queues_look(struct blasd_worker_queues *all, const bool *wanted, int timeout_ms,
                             int *number, struct blasd_err *err);

#endif
