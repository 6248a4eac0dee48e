/* How long jobs take on this worker's device: the costs that were measured, and go on with the
 * batches that run. Tells a heavy job from a light one, and is what the worker publishes. Safe to
 * use from several threads. Read next: ../core/cost.h, lane.h. */
#ifndef BLASD_WORKER_ESTIMATE_H
#define BLASD_WORKER_ESTIMATE_H

#include "core/cost.h"
#include "core/kernel.h"

#include <pthread.h>

struct blasd_estimate {
    pthread_mutex_t lock;
    struct blasd_cost cost; /* under it */
};

void blasd_estimate_init(struct blasd_estimate *estimate);
/* Takes over what was measured. */
void blasd_estimate_set(struct blasd_estimate *estimate, const struct blasd_cost *cost);
void blasd_estimate_get(struct blasd_estimate *estimate, struct blasd_cost *ret);
/* Nanoseconds that a job takes by itself. */
double blasd_estimate_ns(struct blasd_estimate *estimate, const struct blasd_op *op,
                         const struct blasd_plan *plan);
/* Notes that a call with these tasks took `ns`. */
void blasd_estimate_learn(struct blasd_estimate *estimate, const struct blasd_task *tasks,
                          int count, int64_t ns);

#endif
