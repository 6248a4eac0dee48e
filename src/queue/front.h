/* What the parts of the front end's queue share: calls on their way, and the queue object.
 *
 *   front_call.c    a call: built, sent, answered, sent again after a lost connection, given up
 *   front_queue.c   the connections, housekeeping once a second, the view
 *   front_submit.c  jobs collected into batches, numbered so that one may be sent again
 *   front_entry.c  small jobs of a batch that share one entry of the queue
 *   front_waiters.c who waits for which job, and the messages that say which have ended
 *   front_events.c  what becomes of everybody's jobs, for who looks on
 *   front_read.c    get, watch, cancel, list, stats
 *   front_tensor.c  tensors that are kept
 *   front_blob.c    blobs, of either kind, out of the store and into it
 *   front_slice.c   payloads of middling size, in segments */
#ifndef BLASD_QUEUE_FRONT_H
#define BLASD_QUEUE_FRONT_H

#include "base/buf.h"
#include "base/clock.h"
#include "base/list.h"
#include "base/text.h"
#include "queue/front_queue.h"
#include "queue/queue_link.h"
#include "redis/async_link.h"
#include "store/segment.h"

#include <string.h>

#define CALL_KEPT (2000 * BLASD_MS) /* how long a call waits for a connection */

struct front_call;

/* Exactly one of: reply set (never an error reply), err set; both NULL for calls that
 * front_call_answer_later answered well. */
typedef void (*front_reply_fn)(struct front_call *call, const redisReply *reply,
                               const struct blasd_err *err);

/* Embedded as the first member of what each kind of call needs beside it. */
struct front_call {
    struct blasd_list node; /* in one of the lists below */
    struct blasd_front_queue *queue;
    struct front_connection *connection; /* the connection that it takes */
    struct blasd_buf command;            /* owned */
    size_t start;   /* where in `command` the command begins, once it is complete */
    size_t counted; /* its bytes in calls.held_bytes */
    int args;
    bool broken;       /* memory ran out while it was built */
    int tries_left;    /* times it may be sent again after its connection was lost */
    bool acknowledges; /* what it answers is a promise: kept until replicas have it (wait_replicas)
                        */
    uint64_t asked;    /* the question to them that stands behind it */
    uint64_t order;    /* in which calls were first sent; 0: it was not yet */
    redisReply *held;  /* owned: its answer, until that one's */
    int64_t until_ns, sent_ns;
    struct blasd_err err; /* of a call to be answered later; code BLASD_OK: well */
    front_reply_fn reply;
    size_t seq_at; /* where its SEQ stands, FRONT_SEQ digits set when it is first sent; 0: none */
    bool numbered; /* that was done */
    bool early;    /* it was made before the queue's key of ids was known */
    bool (*more)(const redisReply *reply);    /* whether it is to be sent again; NULL: never */
    void (*release)(struct front_call *call); /* frees what the kind owns; may be NULL */
};

/* What is said where memory has run out, and of an answer that no function of ours gives. */
void front_no_memory(struct blasd_err *err);
void front_unknown_answer(struct blasd_err *err);
/* What is said where only an id's signature could tell whether there was such a job or tensor, of a
 * call that was made before the queue's key was known. */
void front_too_early(struct blasd_err *err);

/* New calls of `size` bytes, zeroed, of which struct front_call is the first part; NULL where
 * memory has run out. */
void *front_call_new(struct blasd_front_queue *queue, size_t size, front_reply_fn reply);
/* Of a new call whose answer promises nothing, and may be long: it takes the other connection. */
void front_call_reads(struct front_call *call);
/* Starts the command as a call of the function `name` (with its key and LIMITS), or as any other.
 */
void front_call_function(struct front_call *call, const char *name);
void front_call_arg(struct front_call *call, const void *bytes, size_t len);
/* One argument of two parts. */
void front_call_arg2(struct front_call *call, const void *bytes, size_t len, const void *more,
                     size_t more_len);
void front_call_text(struct front_call *call, const char *text);
void front_call_number(struct front_call *call, uint64_t number);
/* Hands a complete call over: it is answered and freed by the queue from here on. */
void front_call_send(struct front_call *call);
/* Has the call answered with `err` (NULL: well) by the next flush, without asking Redis. */
void front_call_answer_later(struct front_call *call, const struct blasd_err *err);
void front_call_free(struct front_call *call);

/* The parts of flush: answers what can be answered without Redis, sends, gives up what has waited
 * too long. */
void front_calls_answer(struct blasd_front_queue *queue);
void front_calls_pump(struct blasd_front_queue *queue);
void front_calls_expire(struct blasd_front_queue *queue);
void front_calls_init(struct blasd_front_queue *queue);
void front_calls_free(struct blasd_front_queue *queue);
/* When the first waiting call is to be given up; INT64_MAX: none. */
int64_t front_calls_next_ns(const struct blasd_front_queue *queue);

#define FRONT_SEQ 16

#define FRONT_CHANNEL_MAX (BLASD_LINK_NAME_MAX + 64)

#define FRONT_NOTE_MAX                                                                             \
    (2 + BLASD_SEGMENT_NAME + FRONT_CHANNEL_MAX + BLASD_NAME_MAX + BLASD_LABELS_MAX +              \
     BLASD_TENANT_MAX + 5 * (1 + BLASD_TEXT_NUMBER))

#define FRONT_ENTRIES 8 /* in the making at a time; more kinds of jobs than that travel alone */
#define FRONT_ENTRY_JOBS 128
#define FRONT_QUICK_US 8192 /* as in functions/metas.lua */
#define FRONT_ENTRY_US                                                                             \
    131072 /* predicted, together: half of what a worker claims of quick jobs                      \
            */
#define FRONT_ENTRY_BYTES (4 * BLASD_MIB) /* of their costs */
/* The same where tensors travel in the frames: to look at one job Redis reads all of its batch
 * entry. */
#define FRONT_ENTRY_INLINE (256 * BLASD_KIB)

/* A batch entry in the making: what its jobs share, and their frames. */
struct front_entry {
    char id[BLASD_ID_LEN + 1]; /* of its first job; it begins with the batch entry's name */
    int jobs, jobs_most;
    uint64_t cost, result;         /* of each */
    uint64_t bytes_most;           /* of all costs */
    uint64_t stream;               /* SI, see functions/contract.lua */
    enum blasd_device_class asked; /* by the user */
    char note[FRONT_NOTE_MAX];
    size_t note_len;
    char holds[2 + BLASD_MAX_INPUTS * (BLASD_REFERRED_NAME + 1)]; /* OPTIONS: the tensors */
    size_t holds_len;
    struct blasd_key batch_key;
    struct blasd_buf
        record_frames; /* owned by the batch entry's place, and kept for the next one there */
};

struct front_entries {
    struct front_entry of[FRONT_ENTRIES];
    int count;
    int jobs_most; /* of a batch entry: half of what a worker claims, or it would have to be opened
                    */
    size_t bytes;  /* of all record frames */
};

/* A connection, and its calls by how far they are. */
struct front_connection {
    struct blasd_async_link link;
    struct blasd_list again, waiting, flight;
    int64_t heard_ns; /* the last reply */
};

/* Redis has a promise in its file before the reply goes out, unless the connection has replies left
 * over that it could not write at once: then what follows them goes out in the turn that made it,
 * ahead of the file, and a Redis that is killed there forgets what it has acknowledged. Long
 * replies leave some over, so they have a connection without promises. */
struct front_calls {
    struct front_connection commands, reads;
    struct blasd_list held, answered;
    uint64_t held_bytes;  /* of the commands of all calls */
    uint64_t sent;        /* calls, of either connection: the order of the last one */
    uint64_t seq;         /* of the last call of submit that was sent */
    uint64_t asked, told; /* questions to the replicas that were sent, and that have ended */
    bool to_ask;          /* something was sent that replicas are to have */
    struct blasd_timer expire_timer;
};

/* One list is made at a time, of the tenants that wait for one in turns. */
struct front_listings {
    char last[BLASD_TENANT_MAX]; /* whose was made last */
    struct blasd_list waiting;   /* calls, owned: asked for while another list is made */
    bool listing;
    int64_t listed_ns; /* when that was asked for */
    struct blasd_timer list_timer;
};

/* How things stand with Redis, and with the workers. */
struct front_standing {
    bool ready;         /* `calls.commands` speaks with the functions, the store is the right one */
    bool writable;      /* the last probe was taken */
    bool was_here;      /* {q}:here:… was written */
    bool subscribed;    /* `replies` hears the channel */
    bool hearing;       /* the events of all jobs are wanted, on the same connection */
    bool rewatch;       /* Redis must be told of all waiters, and their records read */
    bool rewatch_later; /* that failed: try again with the next tick */
    bool view_known;    /* a tick was answered */
    bool troubled;      /* `trouble` says more than that there was no answer yet */
    struct blasd_err trouble; /* why no job is taken, where none is */
};

/* Housekeeping. */
struct front_ticks {
    struct blasd_timer tick_timer, deadline_timer;
    bool ticking, tick_again; /* a tick is in flight; another one is wanted after it */
    int64_t ticked_ns;        /* when the last one was sent */
    int64_t ahead_us;         /* how far the clock of Redis is ahead of this one */
    bool timed;               /* that is known */
    int unheard;              /* of our own messages on the channel */
};

struct front_slices {
    struct blasd_segments *segments; /* owned: inputs of jobs */
    struct blasd_views *views;       /* owned: outputs */
    bool asking;                     /* which segments are free: a call is in flight */
};

/* What the operator allows. */
struct front_rules {
    bool may_lose_jobs;             /* a Redis that keeps no file */
    bool no_worker_needed;          /* limit ready_workers is 0 */
    uint64_t replicas, replicas_ms; /* limits wait_replicas, wait_replicas_ms */
};

/* Requests that wait for a job to end. */
struct front_waiters {
    struct blasd_hash by_id;
    uint64_t seed;
};

struct blasd_front_queue {
    struct blasd_loop *loop;              /* borrowed */
    struct blasd_front_queue_hooks hooks; /* a copy */
    struct blasd_store *store;            /* borrowed */
    char name[BLASD_LINK_NAME_MAX];       /* of the queue */
    char channel[FRONT_CHANNEL_MAX];      /* ours, for as long as the object lives */
    struct blasd_link_address address;
    struct blasd_link_limits limits;
    struct front_rules rules;
    struct blasd_id_key id_key;
    struct blasd_async_link replies;
    bool closing, in_flush;
    struct blasd_queue_view view;
    struct front_submit *batch;   /* being collected; NULL: none */
    struct front_entries entries; /* of that batch */
    struct tensors_call *asking;  /* for tensors, being collected; NULL: none */
    struct front_standing standing;
    struct front_calls calls;
    struct front_listings listings;
    struct front_ticks ticks;
    struct front_slices slices;
    struct front_waiters waiters;
};

/* What our channel's name ends in: ours alone. */
static inline const char *front_name(const struct blasd_front_queue *queue) {
    return strrchr(queue->channel, ':') + 1;
}

/* Whether there are no keys, so that nothing is kept apart. */
static inline bool front_alone(const struct blasd_principal *principal) {
    return strcmp(principal->tenant, blasd_anonymous.tenant) == 0;
}

/* What the ids of a tenant's jobs are signed with. The anonymous tenant's is the deployment's own:
 * its ids outlive the coming of tenants. */
static inline struct blasd_id_key front_id_key(const struct blasd_front_queue *queue,
                                               const struct blasd_principal *principal) {
    if (front_alone(principal)) return queue->id_key;
    return blasd_id_key_for(&queue->id_key, principal->tenant);
}

/* front_read.c: a fire of list_timer, and what is there at the end. */
void front_lists_next(struct blasd_timer *timer);

/* front_submit.c */
void front_batch_close(struct blasd_front_queue *queue);
void front_batch_free(struct blasd_front_queue *queue);

/* front_entry.c */
/* Of zeroed ones; `claim_jobs` is what a worker claims at the most. */
void front_entries_init(struct front_entries *entries, uint64_t claim_jobs);
/* Gives `id`, which is a new job's, to a batch entry of jobs like it, where there is one
 * with room or a place for one: its first characters then change to the batch entry's, and it is to
 * be signed anew with the number that is given back. -1: it stays as it is. */
int front_entry_join(struct front_entries *entries, const struct front_entry *like,
                     char id[BLASD_ID_LEN + 1]);
/* The batch entry that the job was given to, or NULL. */
struct front_entry *front_entry_of(struct front_entries *entries, const char *id);
/* Adds the job; 0, or -1 where memory has run out. */
int front_entry_add(struct front_entries *entries, struct front_entry *entry, const char *id,
                    const void *frame, size_t len);
/* NAME FRAME SI COST of a batch entry with jobs. */
void front_entry_write(const struct front_entry *entry, struct front_call *call);
/* COST of `jobs` jobs that cost so much each, and whose records will take so much. */
void front_entry_cost(struct front_call *call, uint64_t cost, int jobs, uint64_t result);
void front_entries_reset(struct front_entries *entries); /* none are in the making */
void front_entries_free(struct front_entries *entries);

/* front_queue.c: does the queue's housekeeping now, and brings what the view shows. */
void front_tick(struct blasd_front_queue *queue);

/* front_call.c: no job is taken at present, until a probe is. */
void front_refused(struct blasd_front_queue *queue, const struct blasd_err *err);
/* A deadline passes in `ms` milliseconds; somebody has to see to it then. */
void front_deadline_in(struct blasd_front_queue *queue, int64_t ms);

/* front_waiters.c. A waiter is pending while the call is in flight that it began with: a record
 * that comes ahead of the answer is kept. Each takes NULL for a waiter. */
void front_wait_begin(struct blasd_front_queue *queue, const char *tenant,
                      struct blasd_waiter *waiter, const char *id);
/* The call has been answered. `stands`: the job has not ended, and its end will be published.
 * Called before the call's own callback, after which the waiter may be gone; what it returns goes
 * to front_wait_early behind that. */
struct blasd_early front_wait_settle(struct blasd_front_queue *queue, struct blasd_waiter *waiter,
                                     bool stands);
/* Tells who waits for `id` of the record, if one has come, and frees it. */
void front_wait_early(struct blasd_front_queue *queue, const char *id, struct blasd_early *early);
/* The record of a job that is final: published (tenant NULL), or what was answered to `tenant`,
 * which is nobody else's answer: NULL, where that has no such job. */
void front_wait_ended(struct blasd_front_queue *queue, const char *tenant, const char *id,
                      const void *record, size_t len);
/* A message of the channel. */
void front_wait_message(struct blasd_front_queue *queue, const char *bytes, size_t len);
/* Tells Redis of all waiters anew, where that is due and possible. */
void front_wait_again(struct blasd_front_queue *queue);
/* Tells Redis of one. */
void front_wait_ask(struct blasd_front_queue *queue, const char *tenant, const char *id);
void front_waiters_free(struct blasd_front_queue *queue);
/* Whether the bytes of a record (queue/functions/contract.lua) say that the job has ended. */
bool front_record_final(const void *record, size_t len);

/* front_tensor.c: sends what is being collected; frees it. */
void front_asking_close(struct blasd_front_queue *queue);
void front_asking_free(struct blasd_front_queue *queue);
/* What the tenant's tensors may come to; 0: as all. */
uint64_t front_tensor_quota(const struct blasd_front_queue *queue,
                            const struct blasd_principal *principal);
/* front_events.c: SUBSCRIBE or UNSUBSCRIBE, on the connection that listens. */
void front_events_subscribe(struct blasd_front_queue *queue, const char *command);

/* front_slice.c: asks which segments are free again, where that is worth it or `all` are wanted. */
void front_slices_ask(struct blasd_front_queue *queue, bool all);
/* Once a second: gives back what is not used. */
void front_slices_trim(struct blasd_front_queue *queue);

/* front_blob.c: sends a blob of kind redis, then the call `then` (taken over), which is answered
 * with the error if that fails; one without a word is not sent, but answered when the blob is
 * there. `blob` is borrowed until `then` is answered. */
void front_blob_put(struct blasd_front_queue *queue, const struct blasd_blob *blob,
                    struct front_call *then);

#endif
