/* The heavy lane: threads of the worker, its hands, that run large jobs at a lower scheduling
 * weight, while the worker's main thread goes on claiming and running small ones. A job is run by
 * itself: a call costs nothing beside it, and it ends, or is stopped, without the others. Two run
 * at once where both are brief (lane.c), else one.
 *
 * The main thread claims. Each hand marks its jobs as begun and ends them over a connection of its
 * own, under the worker's one lease: Redis refuses whatever comes under another. Read next:
 * runner.h. */
#ifndef BLASD_WORKER_LANE_H
#define BLASD_WORKER_LANE_H

#include "worker/runner.h"

struct blasd_lane;
struct blasd_hand;

/* Starts the threads; `main` lends them options, heartbeat and info. New: end it with
 * blasd_lane_close once it is empty. */
int blasd_lane_open(const struct blasd_batcher *main, struct blasd_lane **ret,
                    struct blasd_err *err);
void blasd_lane_close(struct blasd_lane *lane); /* takes NULL */

/* The functions below are the main thread's. */

/* The worker has a new lease; the lane is empty. */
void blasd_lane_lease(struct blasd_lane *lane, const char *worker, int64_t epoch);
/* Whether a group made from `items` belongs here: a job of it takes long, or it must run when
 * nothing else does (`group->quarantined`). */
bool blasd_lane_wants(struct blasd_lane *lane, const struct blasd_item *items,
                      const struct blasd_group *group);
/* Takes a group over that `main` has claimed, job by job, with copies of its claims and frames.
 * False: no memory for that, and none was taken. */
bool blasd_lane_take(struct blasd_lane *lane, const struct blasd_batcher *main,
                     const struct blasd_item *items, const struct blasd_group *group,
                     int64_t claimed_ns);
/* Negative: the lane's device cannot go on. */
int blasd_lane_failed(struct blasd_lane *lane, struct blasd_err *err);
/* The main thread's jobs begin, once no quarantined one runs here, or is next; and have ended, so
 * that one may begin. */
void blasd_lane_main_begins(struct blasd_lane *lane, struct blasd_batcher *main);
void blasd_lane_main_ended(struct blasd_lane *lane);
/* Whether nothing runs or waits here. */
bool blasd_lane_idle(struct blasd_lane *lane);
/* Whether so much waits here that nothing more should be claimed. */
bool blasd_lane_full(struct blasd_lane *lane);
/* Bytes that the jobs here take, or will. */
uint64_t blasd_lane_bytes(struct blasd_lane *lane);
/* Waits for the lane to have room, for up to `ms`. */
void blasd_lane_rest(struct blasd_lane *lane, int ms);
/* Forgets what waits and lets what runs end; where main->lost it is asked to stop, and none of it
 * is recorded but what has been on its way to Redis. */
int blasd_lane_empty(struct blasd_lane *lane, struct blasd_batcher *main, struct blasd_err *err);

/* How many jobs run in the lane now, this thread's included: they share the device. Its own
 * threads call this. */
int blasd_lane_running(struct blasd_hand *hand);

#endif
