/* The queue from a worker's side: blocking calls, pipelined over all the jobs of a batch.
 *
 * One object serves one thread; the heartbeat thread opens its own. Every call returns 0 or a
 * negative code; queue_unavailable means that Redis is away, loading or out of memory: nothing was
 * lost, try again (the object reconnects by itself). */
#ifndef BLASD_QUEUE_WORKER_QUEUE_H
#define BLASD_QUEUE_WORKER_QUEUE_H

#include "queue/queue.h"
#include "store/segment.h"

struct blasd_worker_queue;

/* A job that was claimed. */
struct blasd_claim {
    char id[BLASD_ID_LEN + 1];
    const void *frame; /* borrowed until the next claim; see wire/frame.h */
    size_t frame_len;
    int attempts;                  /* workers that began it before this one and did not end it */
    int64_t submitted_us;          /* Redis' clock */
    int64_t claimed_us;            /* Redis' clock */
    bool stored;                   /* its inputs are in the blob "ID.in" */
    char tenant[BLASD_TENANT_MAX]; /* "": one that no limits are kept for */
};

/* How a claimed job ended. */
struct blasd_completion {
    const char *id;     /* borrowed */
    const void *record; /* borrowed; a final record with its inline payload, wire/frame.h */
    size_t record_len;
    uint64_t out_bytes;       /* of outputs outside the record, in the blob "ID.out" or the slice */
    struct blasd_slice slice; /* where the outputs are, if it is given */
    /* Of the outputs that became tensors, whose blobs are there: "\tID BYTES FORM" of each.
     * Borrowed; NULL: there are none. */
    const char *kept;
    bool accepted; /* set: false where the job had already ended otherwise (cancelled,
                      expired, taken by others) and this record was dropped */
};

/* Connects, loads the functions if the server has not this schema's, checks that the store is the
 * one the deployment uses (recording it where this is the first to come). */
int blasd_worker_queue_open(const struct blasd_queue_options *options,
                            struct blasd_worker_queue **ret, struct blasd_err *err);
void blasd_worker_queue_free(struct blasd_worker_queue *queue); /* takes NULL */

/* Takes a lease under `worker` (a name unique among live workers) with a new epoch, for the device
 * class given; jobs left by an earlier holder of the name go back to the queue. `info` is a JSON
 * object for GET /devices. */
int blasd_worker_queue_register(struct blasd_worker_queue *queue, const char *worker,
                                enum blasd_device_class device, const char *info, int64_t *epoch,
                                struct blasd_err *err);
/* Makes `queue`, another connection of the same worker, speak under that name and epoch, for a
 * thread of its own, from 1 to 9: of these 1 and 2 begin jobs, one batch at a time, and end them,
 * that thread 0, which is registered, has claimed. */
void blasd_worker_queue_join(struct blasd_worker_queue *queue, const char *worker, int64_t epoch,
                             int thread);
/* So many of the jobs claimed are such a thread's to end. */
void blasd_worker_queue_let_go(struct blasd_worker_queue *queue, int count);
/* Renews the lease, publishes `info`, and does the housekeeping that anyone may do (lapsed leases,
 * passed deadlines, expired records). *lost: the lease had lapsed, so every claimed job belongs to
 * others now and the worker must register anew. */
int blasd_worker_queue_renew(struct blasd_worker_queue *queue, const char *info, bool *lost,
                             struct blasd_err *err);
/* Says that the device has copies of these tensors, until a lease that was renewed now would lapse;
 * ids of anything else are passed over. */
int blasd_worker_queue_copies(struct blasd_worker_queue *queue, const char *device,
                              const char (*ids)[BLASD_ID_LEN + 1], int count,
                              struct blasd_err *err);
/* Publishes what the worker has counted, a JSON object, for some seconds. */
int blasd_worker_queue_figures(struct blasd_worker_queue *queue, const char *text,
                               struct blasd_err *err);
/* Gives up the lease; jobs claimed and not ended go back at once, without counting as attempts
 * unless they had begun. */
int blasd_worker_queue_release(struct blasd_worker_queue *queue, struct blasd_err *err);

/* Takes up to `max` jobs whose bytes stay within `max_bytes` (the first may exceed it), by priority
 * with ageing. *count 0: there are none; wait then. Jobs with attempts > 0 must each run alone. The
 * end of the last job claimed asks for others as they were last asked for, so `claims` has room for
 * the largest `max` so far. */
int blasd_worker_queue_claim(struct blasd_worker_queue *queue, int max, uint64_t max_bytes,
                             struct blasd_claim *claims, int *count, bool *lost,
                             struct blasd_err *err);
/* Whether the queue may have jobs down to this worker that it has ended, or never heard of: the
 * connection is a new one, and may lead to a Redis that lacks the last turns (a replica that took
 * over). Then blasd_worker_queue_holds is to be called, after a claim. */
bool blasd_worker_queue_moved(const struct blasd_worker_queue *queue);
/* Says that the worker holds the jobs of the last claim, and these, which its other threads are to
 * end, and no others: those go back. */
int blasd_worker_queue_holds(struct blasd_worker_queue *queue, const char (*ids)[BLASD_ID_LEN + 1],
                             int count, bool *lost, struct blasd_err *err);
/* Changes what the end of the last job claimed will ask for; `max` 0: nothing. */
void blasd_worker_queue_demand(struct blasd_worker_queue *queue, int max, uint64_t max_bytes);
/* Of each lane, quick, brief and long jobs, how many us of what is predicted is asked for from now
 * on; of long ones no more than one job is given. As much as there is, before the first call. */
#define BLASD_LANES 3
void blasd_worker_queue_lanes(struct blasd_worker_queue *queue, const uint64_t us[BLASD_LANES]);
/* Whether there are none, as the last claim or finish has found: to be waited for, without a claim
 * before. */
bool blasd_worker_queue_is_idle(const struct blasd_worker_queue *queue);
/* After a wait shorter than SHORT the next one begins with so long a time awake. */
#define BLASD_WAIT_SHORT_NS (600 * INT64_C(1000))
#define BLASD_WAIT_AWAKE_NS (400 * INT64_C(1000))
/* Ends the wait of the worker's other connection, which then asks for jobs again: the worker has
 * room for more. Where that fails the wait ends by itself. */
void blasd_worker_queue_wake(struct blasd_worker_queue *queue);
/* Waits until there may be jobs, up to `timeout_ms`. */
int blasd_worker_queue_wait(struct blasd_worker_queue *queue, int timeout_ms,
                            struct blasd_err *err);
/* Notes that the jobs begin now, of which the batch before the last has ended; sent, not waited
 * for. */
int blasd_worker_queue_begin(struct blasd_worker_queue *queue, const char *const *ids, int count,
                             struct blasd_err *err);
/* Ends jobs and publishes their records, unless the lease is lost: then *lost and none accepted.
 * After queue_unavailable it is to be called again with the same completions, or the lease given
 * up. */
int blasd_worker_queue_finish(struct blasd_worker_queue *queue,
                              struct blasd_completion *completions, int count, bool *lost,
                              struct blasd_err *err);
/* Reports progress of begun jobs, and how long they will yet take (-1: not known), and learns
 * whether any of them is still wanted of this worker (not cancelled, expired or another's). Called
 * through the heartbeat's connection. */
int blasd_worker_queue_progress(struct blasd_worker_queue *queue, const char *const *ids, int count,
                                double progress, int64_t remaining_us, bool *wanted,
                                struct blasd_err *err);

/* Blobs of either kind, whole. put: makes what was written visible to others (dir: nothing to do).
 * get: opens for reading and maps. remove: deletes. discard: closes one that this process made, and
 * deletes it where the name still is its (redis: unless it is referred to). */
int blasd_worker_queue_blob_put(struct blasd_worker_queue *queue, struct blasd_blob *blob,
                                struct blasd_err *err);
int blasd_worker_queue_blob_get(struct blasd_worker_queue *queue, const char *name, uint64_t bytes,
                                struct blasd_blob *blob, struct blasd_err *err);
void blasd_worker_queue_blob_remove(struct blasd_worker_queue *queue, const char *name);
void blasd_worker_queue_blob_discard(struct blasd_worker_queue *queue, struct blasd_blob *blob);
/* The payload of a claimed job that lies in a slice; *hold keeps it there until
 * blasd_views_let_go (segment.h). inputs_lost. */
int blasd_worker_queue_slice_get(struct blasd_worker_queue *queue, const struct blasd_slice *slice,
                                 uint64_t bytes, const void **ret, struct blasd_view **hold,
                                 struct blasd_err *err);
/* Room for the outputs of the job `id`; NULL where payloads of that size travel another way, or
 * there is no room. It is the caller's until _done. */
void *blasd_worker_queue_slice_take(struct blasd_worker_queue *queue, const char *id,
                                    uint64_t bytes, struct blasd_slice *slice);
/* `sure`: whether the job ended with these outputs is known. */
void blasd_worker_queue_slice_done(struct blasd_worker_queue *queue,
                                   const struct blasd_slice *slice, bool sure);
/* Gives back the memory of slices that has been free for some seconds; the wait does it too. */
void blasd_worker_queue_tidy(struct blasd_worker_queue *queue);
/* Sweeps the store of orphans; of all workers that call, one in ten seconds does it, or one in a
 * second after a sweep that found some. Returns the number removed or a negative code. */
int blasd_worker_queue_sweep(struct blasd_worker_queue *queue, struct blasd_err *err);
/* The same while jobs end, so that files of records that had to make way serve the next ones: one
 * in a second, however long ago the last sweep found anything; of what takes long, one in twenty
 * times as long. */
int blasd_worker_queue_sweep_at_work(struct blasd_worker_queue *queue, struct blasd_err *err);

#endif
