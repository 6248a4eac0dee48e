/* The thread that keeps the worker's lease alive while the other one computes: it renews, tells
 * progress, learns of cancellation, and sweeps the store. Read next: runner.h. */
#ifndef BLASD_WORKER_HEARTBEAT_H
#define BLASD_WORKER_HEARTBEAT_H

#include "core/cost.h"
#include "worker/worker.h"

struct blasd_heartbeat;

/* Starts the thread with a connection of its own; it is idle until it is given a lease. `options`
 * is borrowed until the stop. New: end it with blasd_heartbeat_stop. */
int blasd_heartbeat_start(const struct blasd_worker_options *options, struct blasd_heartbeat **ret,
                          struct blasd_err *err);
/* Ends the thread and frees all; takes NULL. The lease is left as it is. */
void blasd_heartbeat_stop(struct blasd_heartbeat *heartbeat);

/* A JSON object about the worker for GET /devices. Owned by the caller (free); NULL where memory
 * has run out. */
char *blasd_heartbeat_info(struct blasd_heartbeat *heartbeat);
/* What the device is, for that object; called before the first lease, and later to refresh it. */
void blasd_heartbeat_device(struct blasd_heartbeat *heartbeat,
                            const struct blasd_device_info *info);
/* What jobs cost on the device, for that object too. */
void blasd_heartbeat_cost(struct blasd_heartbeat *heartbeat, const struct blasd_cost *cost);
/* A new lease, to be renewed from now on. */
void blasd_heartbeat_lease(struct blasd_heartbeat *heartbeat, int64_t epoch);
/* Whether the lease given last was lost. */
bool blasd_heartbeat_lost(const struct blasd_heartbeat *heartbeat);

/* From now on the lease counts as lost, though Redis may not have said so: what is held goes back
 * when the worker takes a new one. */
void blasd_heartbeat_give_up(struct blasd_heartbeat *heartbeat);

/* A worker may run several batches at once, one in each place. */
enum blasd_place { BLASD_PLACE_MAIN, BLASD_PLACE_LANE, BLASD_PLACE_LANE_TOO, BLASD_PLACES };

/* The jobs of the batch that begins now; 0, or -1 where memory has run out. */
int blasd_heartbeat_begin(struct blasd_heartbeat *heartbeat, enum blasd_place place,
                          const char *const *ids, int count);
/* The batch has ended; `failed` of its jobs did not succeed. */
void blasd_heartbeat_end(struct blasd_heartbeat *heartbeat, enum blasd_place place, int jobs,
                         int failed);
/* What a kernel is given: its go_on is false once the batch is unwanted or the lease is lost.
 * Borrowed. */
struct blasd_watch *blasd_heartbeat_watch(struct blasd_heartbeat *heartbeat,
                                          enum blasd_place place);
/* Whether every job of the batch that runs has been cancelled or has expired. */
bool blasd_heartbeat_unwanted(const struct blasd_heartbeat *heartbeat, enum blasd_place place);

#endif
