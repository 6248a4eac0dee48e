/* What goes on while batches compute. One thread keeps the worker's lease alive: it renews, tells
 * progress, and learns of cancellation. A second one sweeps the store. The third, the watchdog,
 * never waits for Redis: it says when a batch must end, and ends the worker where that is in vain.
 *
 * Whose sign of life means what: the main thread gives one in each turn of its loop, but while a
 * batch of its own is open; a thread of the slow pool none. A batch that computes is judged by
 * itself: it may take job_s while somebody wants it. Read next: runner.h. */
#ifndef BLASD_WORKER_HEARTBEAT_H
#define BLASD_WORKER_HEARTBEAT_H

#include "core/cost.h"
#include "worker/group.h"
#include "worker/worker.h"

struct blasd_heartbeat;
struct blasd_phases;

/* Starts the threads; a lease's, which makes a connection of its own, is idle until it is given
 * one. `options` is borrowed until the stop. New: end it with blasd_heartbeat_stop. */
int blasd_heartbeat_start(const struct blasd_worker_options *options, struct blasd_heartbeat **ret,
                          struct blasd_err *err);
/* Ends the threads and frees all; takes NULL. The lease is left as it is. */
void blasd_heartbeat_stop(struct blasd_heartbeat *heartbeat);

/* A JSON object about the worker for GET /devices. Owned by the caller (free); NULL where memory
 * has run out. */
char *blasd_heartbeat_info(struct blasd_heartbeat *heartbeat);
/* What the device is, for that object; called before the first lease, and later to refresh it. */
void blasd_heartbeat_device(struct blasd_heartbeat *heartbeat,
                            const struct blasd_device_info *info);
/* The tensors and jobs, by id, of which the device keeps a copy. */
#define BLASD_KEPT_MOST 256
void blasd_heartbeat_kept(struct blasd_heartbeat *heartbeat, const char (*ids)[BLASD_ID_LEN + 1],
                          int count);
/* What jobs cost on the device, to begin with; for that object too. */
void blasd_heartbeat_cost(struct blasd_heartbeat *heartbeat, const struct blasd_cost *cost);
/* That, with what was learnt since. */
void blasd_heartbeat_learnt(struct blasd_heartbeat *heartbeat, struct blasd_cost *ret);
/* Notes that a call with these tasks, one or more of one operation, took `ns`. */
void blasd_heartbeat_learn(struct blasd_heartbeat *heartbeat, const struct blasd_task *tasks,
                           int count, int64_t ns);
/* Nanoseconds that a job takes by itself, as that has it. */
double blasd_heartbeat_estimate_ns(struct blasd_heartbeat *heartbeat, const struct blasd_op *op,
                                   const struct blasd_plan *plan);
/* A new lease, to be renewed from now on. */
void blasd_heartbeat_lease(struct blasd_heartbeat *heartbeat, int64_t epoch);
/* Whether the lease given last was lost. */
bool blasd_heartbeat_lost(const struct blasd_heartbeat *heartbeat);
/* From now on the lease counts as lost, though Redis may not have said so: what is held goes back
 * when the worker takes a new one. */
void blasd_heartbeat_give_up(struct blasd_heartbeat *heartbeat);

/* A worker may run several batches at once, one in each place. */
enum blasd_slot { BLASD_SLOT_MAIN, BLASD_SLOT_SLOW, BLASD_SLOTS = BLASD_SLOT_SLOW + 3 };

/* What a batch was told. */
enum blasd_told {
    BLASD_GO_ON,
    BLASD_UNWANTED, /* every job of it has been cancelled or has expired */
    BLASD_TOO_LONG, /* it computes for longer than job_s */
    BLASD_OVERRAN   /* or than others should wait for it */
};

/* The main thread is alive. */
void blasd_heartbeat_sign(struct blasd_heartbeat *heartbeat);
/* A call begins that computes these jobs; they, and the array, are borrowed until its end. */
void blasd_heartbeat_begin(struct blasd_heartbeat *heartbeat, enum blasd_slot slot,
                           struct blasd_item *const *jobs, int count);
/* A batch in that place is told BLASD_OVERRAN after BLASD_OVERRUN_NS, from now on. */
#define BLASD_OVERRUN_NS (1500 * BLASD_MS)
void blasd_heartbeat_gives_way(struct blasd_heartbeat *heartbeat, enum blasd_slot slot);
/* It has computed; what it was told meanwhile. */
enum blasd_told blasd_heartbeat_ran(struct blasd_heartbeat *heartbeat, enum blasd_slot slot);
/* It has ended with so many jobs, of which `failed` did not succeed; 0: they are to be run again.
 */
void blasd_heartbeat_end(struct blasd_heartbeat *heartbeat, enum blasd_slot slot, int jobs,
                         int failed);
/* What is counted of ended jobs; any thread may count. */
struct blasd_phases *blasd_heartbeat_phases(struct blasd_heartbeat *heartbeat);
/* What a kernel is given: its go_on is false once the batch was told to end or the lease is lost.
 * Borrowed. */
struct blasd_watch *blasd_heartbeat_watch(struct blasd_heartbeat *heartbeat, enum blasd_slot slot);
/* The error of a job that was told BLASD_TOO_LONG; returns its negative code. */
int blasd_heartbeat_too_long(const struct blasd_heartbeat *heartbeat, enum blasd_slot slot,
                             struct blasd_err *err);
enum blasd_told blasd_heartbeat_told(const struct blasd_heartbeat *heartbeat, enum blasd_slot slot);

#endif
