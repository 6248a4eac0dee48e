/* The queue from a front end's side: asynchronous, in the caller's event loop, one object a loop.
 *
 * Calls made in one turn of the loop are collected and sent as one round trip by
 * blasd_front_queue_flush. Two connections: one for commands, one subscribed to the loop's own
 * channel, on which workers publish the records of jobs as they end. While Redis is away, calls end
 * with queue_unavailable; it reconnects by itself, and after resubscribing reads the record of
 * every job that is watched, for a published message may have been missed. */
#ifndef BLASD_QUEUE_FRONT_QUEUE_H
#define BLASD_QUEUE_FRONT_QUEUE_H

#include "base/buf.h"
#include "base/hash.h"
#include "base/loop.h"
#include "queue/queue.h"

struct blasd_front_queue;

/* Callbacks run on the loop's thread, from inside blasd_loop_step or _flush, never from inside the
 * call that takes them (but for the one case that memory has run out). They may make new calls;
 * they must not free the queue. `err` is NULL on success. Each call below that takes a callback
 * calls it exactly once, unless the queue is freed first. The process must ignore SIGPIPE. */

/* The final record of a job that came before the answer to the call that asked for it. */
struct blasd_early {
    void *bytes; /* owned */
    size_t len;
    bool came;
};

/* A request that waits for a job to end, part of what waits. Zeroed but for `ended`, and not to be
 * copied or freed while it waits, nor while the call is unanswered that it was given to. */
struct blasd_waiter {
    /* The job has ended: its final record, borrowed during the call; NULL where the record has gone
     * meanwhile (forgotten or expired while Redis was away). Called once; it waits no longer. Never
     * comes before the callback of the call that the waiter was given to. */
    void (*ended)(struct blasd_waiter *waiter, const void *record, size_t len);
    char id[BLASD_ID_LEN + 1]; /* of the job, while it waits; the rest is the queue's own */
    char tenant[BLASD_TENANT_MAX];
    bool waits;
    bool again;   /* another one that waited here was told of the same end before */
    bool pending; /* the call that it was given to is unanswered */
    bool unasked; /* Redis was asked about the others meanwhile */
    struct blasd_early early;
    struct blasd_hash_node node;
};

struct blasd_submission {
    const struct blasd_job *job; /* borrowed during the call; id, sizes and times filled in */
    const void *frame;           /* borrowed during the call: frame, then any inline payload */
    size_t frame_len;
    uint64_t cost_bytes;         /* inputs and predicted outputs, for the limit queue_bytes */
    uint64_t result_bytes;       /* predicted, of its record: they are reserved until it ends */
    uint64_t made_bytes, made;   /* the same of outputs that become tensors, and how many do */
    double work_s;               /* predicted time on a device; 0: not known */
    const char *idempotency_key; /* NULL: none; borrowed during the call */
    /* of the request, to tell reuse of a key by another one; the first half is all that a front end
     * before this one kept, and is compared alone with what it has kept */
    uint64_t fingerprint, fingerprint_more;
    bool known; /* nothing is queued: only an earlier job of that key is asked for, without frame */
    const char
        *notify; /* a URL that is told of the job's end; NULL: none. Borrowed during the call */
    struct blasd_waiter *waiter; /* waits for the job's end; NULL: nobody does */
    struct blasd_blob *blob;     /* the inputs, or NULL; for a store of kind redis its bytes are
                                    sent ahead of the job. Stays the caller's, who closes it only
                                    once the callback has come. */
    /* What jobs must share to run as one call, of a job so small that it may share its entry of the
     * queue with others like it; NULL: it travels alone. Borrowed during the call. */
    const struct blasd_key *batch_key;
    /* For a job of any class: the one whose workers are to take it, or any. Once no worker of that
     * class has lived for some seconds the others take it. */
    enum blasd_device_class chosen;
};

/* `id`: the job's id, which is an earlier job's where the Idempotency-Key had been used for the
 * same request (*repeated; the waiter then waits for that one, and a record that is already final
 * comes to it right after). Errors: queue_full, quota_exceeded (`field` names which),
 * queue_unavailable and disk_full (it is then not known whether the job was queued), results_full,
 * too_many_webhooks, no_such_device, idempotency_conflict, inputs_lost; job_not_found where only a
 * job that is `known` was asked for, and there is none. */
typedef void (*blasd_submitted_fn)(void *arg, const struct blasd_err *err, const char *id,
                                   bool repeated);
/* Whether a submission that ended with this may have been queued all the same, by a call whose
 * reply was lost: its inputs must stay, and the sweep will tell. */
static inline bool blasd_front_queue_unsure(const struct blasd_err *err) {
    return err->code == BLASD_E_queue_unavailable || err->code == BLASD_E_disk_full;
}
/* `record` bytes (wire/frame.h) are borrowed during the call; the record may be of any state.
 * Errors: job_not_found, record_expired, queue_unavailable. */
typedef void (*blasd_record_fn)(void *arg, const struct blasd_err *err, const void *record,
                                size_t len);
/* `count` records, and where the next page goes on, "" at the end; see blasd_front_queue_list. */
typedef void (*blasd_list_fn)(void *arg, const struct blasd_err *err, const char *cursor,
                              const void *const *records, const size_t *lens, int count);
/* One text, borrowed during the call. */
typedef void (*blasd_text_fn)(void *arg, const struct blasd_err *err, const char *text, size_t len);
/* A blob, mapped for reading; the callee owns it and closes it. Errors: inputs_lost,
 * record_expired. */
typedef void (*blasd_blob_fn)(void *arg, const struct blasd_err *err, struct blasd_blob *blob);

/* What blasd_front_queue_subscribe has told of; borrowed during the call. Without tenant: from now
 * on everything is told, and what came before may have been lost. */
struct blasd_queue_event {
    char tenant[BLASD_TENANT_MAX]; /* whose jobs */
    const char *worker; /* it has begun `jobs` as one batch; NULL: it is not about that */
    uint64_t jobs;      /* that were told at once; where there is no record: or not told,
                           for there were too many */
    bool first;         /* of them */
    const void *record; /* as it stands then, maybe without its tensors; NULL: none */
    size_t len;
};

struct blasd_front_queue_hooks {
    /* For the log: "ID OP STATE CODE" of a job that was ended by a passed deadline or as poisoned,
     * by no worker and no request; each comes to one front end. May be NULL. */
    void (*on_unseen)(void *arg, const char *line, size_t len);
    /* May be NULL where blasd_front_queue_subscribe is not called. */
    void (*on_event)(void *arg, const struct blasd_queue_event *told);
    struct blasd_histogram *trips; /* of calls, in microseconds; may be NULL. Borrowed */
    void *arg;
};

/* Opens its connections without waiting; calls made before they stand are kept for up to two
 * seconds. */
int blasd_front_queue_open(const struct blasd_queue_options *options, struct blasd_loop *loop,
                           const struct blasd_front_queue_hooks *hooks,
                           struct blasd_front_queue **ret, struct blasd_err *err);
void blasd_front_queue_free(struct blasd_front_queue *queue); /* takes NULL */
/* Sends what was collected; call it once a turn of the loop. */
void blasd_front_queue_flush(struct blasd_front_queue *queue);

/* Whether Redis answers, takes writes and the functions are loaded; workers: live ones, by class,
 * as of the last second. Costs nothing; the pointer stays the same for the queue's life. */
struct blasd_queue_view {
    bool available;                  /* a job would be taken now, as far as is known */
    const struct blasd_err *trouble; /* why it is not; lives with the queue */
    /* Which of the deployment's limits differ from those of this process; "": none. The same. */
    const char *limits_told;
    int workers, workers_of[BLASD_DEVICE_CLASS_COUNT]; /* by the worker's own class (cpu, cuda) */
    uint64_t jobs, bytes;                              /* queued and running, and their cost */
    uint64_t jobs_limit, bytes_limit;
    uint64_t kept, kept_limit; /* bytes of results that were promised */
};
const struct blasd_queue_view *blasd_front_queue_view(const struct blasd_front_queue *queue);
/* What Redis' clock says now, by the ticks. */
int64_t blasd_front_queue_now_us(const struct blasd_front_queue *queue);

/* A new id for a job that is to be submitted. */
void blasd_front_queue_id(struct blasd_front_queue *queue, const struct blasd_principal *principal,
                          enum blasd_id_kind kind, char id[BLASD_ID_LEN + 1]);
/* Gives a job with `batch_key` another id where it can travel with others (base/id.h tells how).
 * The submission is complete but for its frame; blasd_front_queue_submit is to follow, if it does,
 * before any other call. */
void blasd_front_queue_join(struct blasd_front_queue *queue,
                            const struct blasd_principal *principal,
                            const struct blasd_submission *submission, char id[BLASD_ID_LEN + 1]);
/* Whether the id is one that was given to that tenant. */
bool blasd_front_queue_gave(const struct blasd_front_queue *queue,
                            const struct blasd_principal *principal, const char *id);
/* What shows that something is a tenant's, to who was given it: digits, "" of the anonymous one. */
#define BLASD_TENANT_TAG 16
void blasd_front_queue_tag(const struct blasd_front_queue *queue,
                           const struct blasd_principal *principal, char tag[BLASD_TENANT_TAG + 1]);
/* What the tenant may take up: its own limits, or three quarters of all there is, so that it does
 * not shut others out. */
struct blasd_quotas blasd_front_queue_quotas(const struct blasd_front_queue *queue,
                                             const struct blasd_principal *principal);
void blasd_front_queue_submit(struct blasd_front_queue *queue,
                              const struct blasd_principal *principal,
                              const struct blasd_submission *submission, blasd_submitted_fn done,
                              void *arg);
/* The record as it stands. */
void blasd_front_queue_get(struct blasd_front_queue *queue, const struct blasd_principal *principal,
                           const char *id, blasd_record_fn done, void *arg);
/* The record, and where the job has not ended, its end is kept as long as that of one that nobody
 * waited for: to be called before an answer promises it. */
void blasd_front_queue_keep(struct blasd_front_queue *queue,
                            const struct blasd_principal *principal, const char *id,
                            blasd_record_fn done, void *arg);
/* Waits for the job `id` to end, wherever it was submitted; the record as it stands comes to `done`
 * first, and if it is final the waiter does not wait. */
void blasd_front_queue_watch(struct blasd_front_queue *queue,
                             const struct blasd_principal *principal, const char *id,
                             struct blasd_waiter *waiter, blasd_record_fn done, void *arg);
/* It waits no longer, if it did: `ended` does not come. */
void blasd_front_queue_unwatch(struct blasd_front_queue *queue, struct blasd_waiter *waiter);
/* A job that has not ended ends as cancelled; one that has is forgotten with its tensors if
 * `forget`, else that is the error job_ended. The record as it then stands (of the forgotten job:
 * as it stood) comes back. */
void blasd_front_queue_cancel(struct blasd_front_queue *queue,
                              const struct blasd_principal *principal, const char *id, bool forget,
                              blasd_record_fn done, void *arg);
/* Which jobs a list is to hold. */
struct blasd_list_query {
    int state;                   /* an enum blasd_state, or -1: any */
    const char *op;              /* NULL: any */
    const char *label;           /* "NAME=VALUE" or "NAME"; NULL: any */
    int64_t since_us, before_us; /* made from the one on, and before the other */
    int limit;
    const char *cursor; /* NULL: from the begin */
};
/* A page of them, pending ones first, and newest first as far as functions/contract.lua says. Few
 * jobs are looked at for one page: it may hold less than the limit, or none, and not be the last.
 * malformed_query where the cursor is none. */
void blasd_front_queue_list(struct blasd_front_queue *queue,
                            const struct blasd_principal *principal,
                            const struct blasd_list_query *query, blasd_list_fn done, void *arg);
/* Which figures of a queue. */
enum blasd_figures {
    /* {"totals":{"OP STATE[ CODE]":jobs that ended so,…,"OP submitted":…},"workers":{NAME:INFO,…},
     * "queue":{…counts by class and priority…}}; where a tenant is named with "own":{CLASS:its jobs
     * that are queued or claimed,…} */
    BLASD_FIGURES_STATS,
    /* the same with what only GET /metrics asks for: how long what waits has waited, and what
     * workers count (worker/phases.h); */
    BLASD_FIGURES_METRICS,
    BLASD_FIGURES_TENANTS, /* and with what each tenant has */
};
struct blasd_figures_query {
    enum blasd_figures of;
    const char *tenant; /* NULL: of none */
};
/* They come as a JSON object. */
void blasd_front_queue_figures(struct blasd_front_queue *queue,
                               const struct blasd_figures_query *query, blasd_text_fn done,
                               void *arg);
/* From now on on_event comes with what becomes of jobs of all tenants, wherever they were
 * submitted; or no longer. */
void blasd_front_queue_subscribe(struct blasd_front_queue *queue, bool wanted);
/* The outputs of a job that lie in the store. */
void blasd_front_queue_blob_get(struct blasd_front_queue *queue, const char *name, uint64_t bytes,
                                blasd_blob_fn done, void *arg);
/* Room for the inputs of the job `id` that is to be submitted, for the caller to write and to name
 * in the job; NULL where payloads of that size travel another way, or there is no room. A slice
 * whose job is not submitted after all is given back with _drop. */
void *blasd_front_queue_slice_take(struct blasd_front_queue *queue, const char *id, uint64_t bytes,
                                   struct blasd_slice *slice);
void blasd_front_queue_slice_drop(struct blasd_front_queue *queue, const struct blasd_slice *slice);
/* The outputs of a job that lie in a slice, where they lie; NULL: record_expired. What is read
 * there counts only if _let_go, which must follow in the same turn of the loop, still finds them.
 */
struct blasd_view;
const void *blasd_front_queue_slice_look(struct blasd_front_queue *queue,
                                         const struct blasd_slice *slice, uint64_t bytes,
                                         struct blasd_view **hold, struct blasd_err *err);
/* Takes NULL, which was always there. Errors: record_expired. */
int blasd_front_queue_slice_let_go(struct blasd_view *hold, const struct blasd_slice *slice,
                                   struct blasd_err *err);
/* Appends them. Errors: record_expired, no_space. */
int blasd_front_queue_slice_read(struct blasd_front_queue *queue, const struct blasd_slice *slice,
                                 uint64_t bytes, struct blasd_buf *out, struct blasd_err *err);
/* Tensors that are kept: one, or a page of them and where the next one goes on, "" at the end. */
typedef void (*blasd_tensors_fn)(void *arg, const struct blasd_err *err,
                                 const struct blasd_stored_tensor *tensors, int count,
                                 const char *cursor);
struct blasd_tensor_put {
    char id[BLASD_ID_LEN + 1];
    struct blasd_tensor tensor;
    struct blasd_blob *blob;       /* borrowed until the answer: ID.in, whole */
    char sha256[BLASD_SHA256_MAX]; /* "": not summed */
};
/* Keeps all of them or none; gives none back. Errors: tensor_too_large, tensors_full, inputs_lost,
 * queue_unavailable. */
void blasd_front_queue_tensor_put(struct blasd_front_queue *queue,
                                  const struct blasd_principal *principal, uint64_t life_s,
                                  const struct blasd_tensor_put *tensors, int count,
                                  blasd_tensors_fn done, void *arg);
/* One, whose life begins anew where it is to be used. Errors: tensor_not_found, tensor_expired. */
void blasd_front_queue_tensor_get(struct blasd_front_queue *queue,
                                  const struct blasd_principal *principal, const char *id, bool use,
                                  blasd_tensors_fn done, void *arg);
/* From now on it lives so long from each use. */
void blasd_front_queue_tensor_life(struct blasd_front_queue *queue,
                                   const struct blasd_principal *principal, const char *id,
                                   uint64_t life_s, blasd_tensors_fn done, void *arg);
/* Forgets it; its bytes stay for the jobs that refer to it. */
void blasd_front_queue_tensor_drop(struct blasd_front_queue *queue,
                                   const struct blasd_principal *principal, const char *id,
                                   blasd_tensors_fn done, void *arg);
/* A page, newest first; `cursor` NULL: from the begin. */
void blasd_front_queue_tensor_list(struct blasd_front_queue *queue,
                                   const struct blasd_principal *principal, int limit,
                                   const char *cursor, blasd_tensors_fn done, void *arg);
/* Gives ids to the outputs of the job `id` that are to become tensors. */
void blasd_front_queue_keep_outputs(struct blasd_front_queue *queue,
                                    const struct blasd_principal *principal, const char *id,
                                    struct blasd_keeping *keeping);
/* Removes a blob, of either kind. */
void blasd_front_queue_blob_remove(struct blasd_front_queue *queue, const char *name);

#endif
