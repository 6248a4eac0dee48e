/* The worker's place at the queue: the main thread's connection, and the lease.
 *
 * The worker waits for Redis as long as that takes. Read next: worker.c. */
#ifndef BLASD_WORKER_REGISTRATION_H
#define BLASD_WORKER_REGISTRATION_H

#include "worker/runner.h"
#include "worker/slow_pool.h"

struct blasd_registration {
    struct blasd_worker_queue *queue; /* owned; the main thread's. NULL: not connected yet */
    bool held;                        /* there is a lease, for all that is known */
    bool had;                         /* or was one */
    int tries;                        /* in vain, since */
    int64_t again_ns, told_ns;
};

void blasd_registration_release(struct blasd_registration *registered);
/* Takes a lease where there is none, one try, and notes that it is lost: the jobs, also those that
 * wait in `pool` (NULL: there is none) or run there, are not this worker's any more. Negative where
 * the worker cannot start, for its store is another one; or where the pool's device failed. */
int blasd_registration_care(struct blasd_registration *registered, struct blasd_batcher *main,
                            struct blasd_slow_pool *pool, struct blasd_err *err);
/* The lease is lost, or was given up; and the queue does not answer. */
void blasd_registration_lose(struct blasd_registration *registered, struct blasd_batcher *main);
void blasd_registration_miss(const struct blasd_err *err);
/* Gives back the lease; where that does not arrive it lapses by itself. */
void blasd_registration_give_back(struct blasd_registration *registered);

#endif
