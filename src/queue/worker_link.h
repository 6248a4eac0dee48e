/* One worker's connection to Redis: builds a command, sends it, waits, and reconnects when it must.
 *
 * Internal to worker_*.c. The caller's process ignores SIGPIPE.
 */
#ifndef BLASD_QUEUE_WORKER_LINK_H
#define BLASD_QUEUE_WORKER_LINK_H

#include "queue/held.h"
#include "queue/redis_link.h"
#include "queue/worker_queue.h"
#include "store/segment.h"

#define BLASD_WORKER_NAME_MAX 128 /* bytes of a worker's name with its zero */
#define BLASD_WORKER_LOST 1       /* what blasd_worker_call returns where the lease has lapsed */

struct blasd_worker_queue {
    struct blasd_queue_options options;
    char name[BLASD_LINK_NAME_MAX]; /* of the queue; options.name points here */
    char tag[BLASD_LINK_NAME_MAX + 2];
    struct blasd_link_address address;
    struct blasd_link_limits limits;

    redisContext *redis; /* owned; NULL while there is no connection */
    bool silent;         /* Redis lets it do without replies */
    bool missed;         /* a reply to the present call was lost with its connection */
    bool once;           /* the present call must not be sent again where its reply was lost */
    int64_t spin_ns;     /* for so long the reply to the present call is awaited without sleep */
    bool leads;          /* the wait for jobs is to be sent behind the present call */
    bool ahead;          /* it has been: its reply is the next one of this connection */
    char *wait_text;     /* owned: the last wait, as it was sent; NULL before the first */
    int wait_len, wait_ms;

    const char **argv; /* owned: the command in the making; its words are borrowed */
    size_t *lens;      /* owned */
    size_t argc, arg_room;
    bool arg_failed;

    char worker[BLASD_WORKER_NAME_MAX];
    char epoch[24];     /* "" without a lease */
    char part[2];       /* "0"; "1", "2", ... where this one ends what another one claims */
    char device_class;  /* '1' cpu, '2' cuda; '0': this connection does not claim */
    unsigned turn;      /* claims so far, for ageing */
    bool idle;          /* the last claim found nothing, so this worker is registered as idle */
    bool may_wait;      /* and nothing has woken it since */
    bool rested;        /* it is idle, by finish or in spite of a nudge, and has not waited since */
    int64_t claimed_ns; /* when the last claim was answered, and what it asked for: */
    bool busy;          /* the last wait was short */
    int asked_jobs;     /* MAX; 0 before the first */
    uint64_t asked_bytes;
    bool handed;        /* what woke it holds jobs: `claimed` is the list's reply */
    bool claim_missed;  /* a claim may have given jobs of which the reply was lost */
    bool finish_missed; /* a finish may have been done of which the reply was lost */
    int64_t offset_us;  /* Redis' clock minus this process' steady one */
    struct blasd_held held;
    struct blasd_buf text;           /* scratch for HELD, TEXT and PIECES */
    struct blasd_buf outputs;        /* scratch for OUTPUTS */
    struct blasd_segments *segments; /* owned: outputs of jobs */
    struct blasd_views *views;       /* owned: inputs */
    int64_t trimmed_ns;
    redisReply *claimed; /* owned: the frames of the last claim lie here */
};

/* Starts a command; the words added are borrowed until the call. */
void blasd_worker_command(struct blasd_worker_queue *queue, const char *word);
/* Starts a call of the function `name` (BLASD_LINK_FN), with its key and LIMITS. */
void blasd_worker_function(struct blasd_worker_queue *queue, const char *name);
/* The same for one that carries NAME EPOCH. */
void blasd_worker_leased(struct blasd_worker_queue *queue, const char *name);
void blasd_worker_arg(struct blasd_worker_queue *queue, const void *bytes, size_t len);
void blasd_worker_text(struct blasd_worker_queue *queue, const char *text);

/* Sends the command and waits for its reply, reconnecting and sending again (then queue->missed is
 * set) for up to `patience_ms`. *ret: new; free with freeReplyObject. Returns 0, BLASD_WORKER_LOST,
 * or a negative code. */
int blasd_worker_call(struct blasd_worker_queue *queue, int patience_ms, redisReply **ret,
                      struct blasd_err *err);
/* The reply to the wait that was sent behind a call, in which jobs may be. Returns as
 * blasd_worker_call does; nothing is sent again. */
int blasd_worker_collect(struct blasd_worker_queue *queue, redisReply **ret, struct blasd_err *err);
/* Sends the command and tells Redis not to reply. Returns 0, or -1 where the connection is gone
 * or Redis does not allow that. */
int blasd_worker_post(struct blasd_worker_queue *queue);
/* How long a call goes on trying. */
int blasd_worker_patience(const struct blasd_worker_queue *queue);
/* For a reply that has not the form it should have. */
int blasd_worker_odd_reply(const char *what, struct blasd_err *err);
/* Gives back, about once a second, what segments are not used. */
void blasd_worker_slices_trim(struct blasd_worker_queue *queue);
/* A new lease, or none: nothing is held, nothing is on its way. */
void blasd_worker_forget(struct blasd_worker_queue *queue);
/* Forgets the wait that was kept for finish: it names the worker. */
void blasd_worker_wait_forget(struct blasd_worker_queue *queue);
/* Closes the connection. What a wait that is ahead may have brought goes back with the next claim.
 */
void blasd_worker_hang_up(struct blasd_worker_queue *queue);

#endif
