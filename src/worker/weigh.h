/* How long a job will take on this worker's device, about: what tells a heavy job from a light one.
 * Learns from the batches that ran; safe to use from several threads. Read next: lane.h. */
#ifndef BLASD_WORKER_WEIGH_H
#define BLASD_WORKER_WEIGH_H

#include "core/job.h"

#include <stdatomic.h>
#include <stdint.h>

struct blasd_weigher {
    _Atomic double ns_per_flop[BLASD_OPS_MOST]; /* by place in blasd_ops */
};

void blasd_weigher_init(struct blasd_weigher *weigher);
/* Nanoseconds for work of that many operations on that many bytes. */
double blasd_weigh(const struct blasd_weigher *weigher, const struct blasd_op *op, double flops,
                   double bytes);
/* Notes that such work took `ns`. */
void blasd_weigh_learn(struct blasd_weigher *weigher, const struct blasd_op *op, double flops,
                       double bytes, int64_t ns);

#endif
