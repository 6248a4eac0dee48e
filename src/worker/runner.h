/* One group of jobs from its inputs to its final records. Read next: map_io.h. */
#ifndef BLASD_WORKER_RUNNER_H
#define BLASD_WORKER_RUNNER_H

#include "trace/spans.h"
#include "worker/arena.h"
#include "worker/completion.h"
#include "worker/group.h"
#include "worker/heartbeat.h"
#include "worker/worker.h"

/* What the tensors and tasks of one batch take; owned. */
struct blasd_batch_room {
    struct blasd_arena arena;
    int rows;                    /* of the four arrays */
    struct blasd_item **members; /* of the group */
    const char **ids;
    struct blasd_task *tasks; /* of those members that could be mapped, and what they hold */
    struct blasd_io *ios;
};

/* A batch that has begun on the device and will be ended once the next one has begun. */
struct blasd_batch_pending {
    const struct blasd_kernel *kernel; /* NULL: there is none */
    struct blasd_async_batch *batch;
    int count, live;
    int64_t claimed_ns, began_ns, mapped_ns;
};

/* What running a batch needs; owned by the worker, or its slow pool, and reused for all batches.
 */
struct blasd_batcher {
    const struct blasd_worker_options *options; /* borrowed */
    struct blasd_worker_queue *queue;           /* borrowed */
    struct blasd_heartbeat *heartbeat;          /* borrowed */
    struct blasd_device *device;                /* borrowed */
    enum blasd_slot slot;                       /* where this runs, for the heartbeat */
    struct blasd_device_info info;
    struct blasd_batch_room *room, *other; /* of the batch in hand; of the pending one */
    struct blasd_batch_room rooms[2];
    struct blasd_batch_pending pending;
    struct blasd_completions completions;
    struct blasd_batch_span span;
    bool lost; /* the lease is gone: nothing more of this claim can be ended */
};

/* Fills in everything but the borrowed members and info. */
void blasd_batcher_init(struct blasd_batcher *batcher, const struct blasd_limits *limits);
void blasd_batcher_release(struct blasd_batcher *batcher);

/* Runs a group made from `items`, claimed at `claimed_ns`; on a device that works by itself it may
 * only be begun, and the one before be ended. Items that are told BLASD_OVERRAN have not ended, and
 * have `overran` set. 0, also where jobs failed or the lease was lost
 * (batcher->lost); -BLASD_E_device_error where the device cannot go on: the jobs have then not been
 * ended. */
int blasd_batch_run(struct blasd_batcher *batcher, struct blasd_item *items,
                    const struct blasd_group *group, int64_t claimed_ns, struct blasd_err *err);
/* Ends what blasd_batch_run has only begun; to be called before `items` is used again. Returns as
 * that does. */
int blasd_batch_finish(struct blasd_batcher *batcher, struct blasd_err *err);
/* Ends those of `items` that cannot run (their err is set) as failed. */
void blasd_batch_refuse(struct blasd_batcher *batcher, struct blasd_item *items, int count,
                        int64_t claimed_ns);

#endif
