/* The slow pool: threads of the worker that run what is not quick at a lower scheduling weight,
 * while the worker's main thread goes on claiming and running quick jobs. Brief jobs and long ones
 * have threads of their own, so that a long job never delays a brief one. A job is run by itself: a
 * call costs nothing compared with it, and it ends, or is stopped, without the others.
 *
 * The main thread claims. Each of these threads marks its jobs as begun and ends them over a
 * connection of its own, under the worker's one lease: Redis refuses whatever comes under another.
 * Read next: runner.h. */
#ifndef BLASD_WORKER_SLOW_POOL_H
#define BLASD_WORKER_SLOW_POOL_H

#include "worker/runner.h"

struct blasd_slow_pool;

/* Starts the threads; `main` lends them options, heartbeat and info. New: end it with
 * blasd_slow_pool_close once it is empty. */
int blasd_slow_pool_open(const struct blasd_batcher *main, struct blasd_slow_pool **ret,
                         struct blasd_err *err);
void blasd_slow_pool_close(struct blasd_slow_pool *pool); /* takes NULL */

/* The functions below are the main thread's. */

/* The worker has a new lease; connects the threads to the queue. The pool is empty. Errors as of
 * blasd_worker_queue_open. */
int blasd_slow_pool_lease(struct blasd_slow_pool *pool, const char *worker, int64_t epoch,
                          struct blasd_err *err);
/* Whether a job belongs here: it takes long, has overrun, or is quarantined. */
bool blasd_slow_pool_wants(const struct blasd_slow_pool *pool, const struct blasd_item *item);
/* Takes a job over, with a copy of its claim and its frame. False: memory has run out. */
bool blasd_slow_pool_take(struct blasd_slow_pool *pool, const struct blasd_item *item,
                          int64_t claimed_ns);
/* Negative: the pool's device cannot go on. */
int blasd_slow_pool_failed(struct blasd_slow_pool *pool, struct blasd_err *err);
/* The main thread's jobs begin, once the quarantined ones that are next here have run; and have
 * ended, so that a quarantined one may begin. */
void blasd_slow_pool_main_begins(struct blasd_slow_pool *pool, struct blasd_heartbeat *heartbeat);
void blasd_slow_pool_main_ended(struct blasd_slow_pool *pool);
struct blasd_slow_pool_view {
    uint64_t bytes; /* that the jobs here take, or will */
    /* predicted us of the brief and the long jobs that should be claimed now, as they would begin
     * soon; 0: none */
    uint64_t brief_us, long_us;
};
/* How it stands now. */
struct blasd_slow_pool_view blasd_slow_pool_look(struct blasd_slow_pool *pool);
/* The jobs here that have not ended, for all that is known: *ret is new; how many, or -1: no
 * memory. */
int blasd_slow_pool_ids(struct blasd_slow_pool *pool, char (**ret)[BLASD_ID_LEN + 1]);
/* Forgets the jobs that never began; whether others are left, which are asked to stop where the
 * lease is given up: none of them is recorded but what has been on its way to Redis. */
bool blasd_slow_pool_drop(struct blasd_slow_pool *pool);
/* The same, and waits until none is left. */
int blasd_slow_pool_empty(struct blasd_slow_pool *pool, struct blasd_heartbeat *heartbeat,
                          struct blasd_err *err);

#endif
