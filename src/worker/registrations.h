/* The worker's places at the queues of its deployment: where it has a lease, and whose turn it is.
 *
 * With one queue the worker waits for its Redis as long as that takes. With several it works with
 * those that it reaches, and takes its place at the others once their leases' threads have found
 * them (heartbeat.h). Read next: worker.c. */
#ifndef BLASD_WORKER_REGISTRATIONS_H
#define BLASD_WORKER_REGISTRATIONS_H

#include "queue/worker_queues.h"
#include "worker/runner.h"
#include "worker/slow_pool.h"

struct blasd_registrations {
    struct blasd_worker_queues queues; /* the main thread's */
    bool held[BLASD_QUEUES_MOST];      /* it has a lease, for all that is known */
    bool had[BLASD_QUEUES_MOST];       /* or had one */
    int tries[BLASD_QUEUES_MOST];      /* in vain, since */
    int64_t again_ns[BLASD_QUEUES_MOST], told_ns[BLASD_QUEUES_MOST];
    int turn; /* which is looked at first in the next claim */
};

void blasd_registrations_init(struct blasd_registrations *registered,
                              const struct blasd_worker_options *options);
void blasd_registrations_release(struct blasd_registrations *registered);
/* Takes leases where there are none, one try each, and notes which are lost: their jobs, also those
 * that wait in `pool` (NULL: there is none) or run there, are not this worker's any more. Negative
 * where it could not start: wrong store, or another number of queues; or where the pool's device
 * failed. */
int blasd_registrations_care(struct blasd_registrations *registered, struct blasd_batcher *main,
                             struct blasd_slow_pool *pool, struct blasd_err *err);
/* Whether there is a lease at all. */
bool blasd_registrations_any(const struct blasd_registrations *registered);
/* The next in turn where a claim may find something, -1: none, for at each the worker waits
 * already. */
int blasd_registrations_next(struct blasd_registrations *registered,
                             const struct blasd_heartbeat *heartbeat);
/* The lease at queue `number` is lost, or was given up; and that queue does not answer. */
void blasd_registrations_lose(struct blasd_registrations *registered, struct blasd_batcher *main,
                              int number);
void blasd_registrations_miss(struct blasd_registrations *registered, struct blasd_batcher *main,
                              int number, const struct blasd_err *err);
/* Waits at all of them, up to `timeout_ms`. */
void blasd_registrations_wait(struct blasd_registrations *registered, struct blasd_batcher *main,
                              int timeout_ms);
/* For who was busy, with jobs of one of them or else: sees what has come to those that are idle,
 * and waits for nothing. */
void blasd_registrations_look(struct blasd_registrations *registered, struct blasd_batcher *main,
                              int timeout_ms);
/* What comes to queue `number` alone is done for the next moments, which may be long: waits no more
 * at the others, so that what comes there is not kept from workers that have time. */
void blasd_registrations_leave_others(struct blasd_registrations *registered,
                                      struct blasd_batcher *main, int number);
/* Gives back all leases; where one does not arrive it lapses by itself. */
void blasd_registrations_give_back(struct blasd_registrations *registered);

#endif
