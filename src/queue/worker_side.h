/* What the parts of the worker's side of the queue share.
 *
 *   worker_queue.c  its connection's beginning and end, and its lease
 *   worker_turn.c   how it ends jobs and comes by others
 *   worker_wait.c   how it waits for them
 *   worker_blob.c   blobs, whole, and sweeps
 *   worker_slice.c  payloads of middling size, in segments
 */
#ifndef BLASD_QUEUE_WORKER_SIDE_H
#define BLASD_QUEUE_WORKER_SIDE_H

#include "base/buf.h"
#include "queue/queue_link.h"
#include "queue/worker_queue.h"
#include "redis/caller.h"
#include "store/segment.h"

#define BLASD_WORKER_NAME_MAX 128 /* bytes of a worker's name with its zero */
#define BLASD_WAIT_MOST_MS 3000   /* the connection gives up on Redis after five seconds */

/* Under which name and lease this connection speaks. */
struct blasd_worker_lease {
    char worker[BLASD_WORKER_NAME_MAX];
    char epoch[24];    /* "" without a lease */
    char thread[2];    /* "0": it claims; of others "1", "2", ... */
    char device_class; /* '1' cpu, '2' cuda; '0': this connection does not claim */
    int64_t offset_us; /* Redis' clock minus this process' steady one */
};

/* The last wait as it was sent: a formatted command. */
struct blasd_worker_wait {
    char *text; /* owned; NULL before the first */
    int len, ms;
    char key[BLASD_LINK_KEY_MAX], seconds[24]; /* words of it */
};

/* Where the exchange of worker_turn.c stands. */
struct blasd_worker_turns {
    bool watched;    /* somebody wants to hear when jobs begin, as the last turn said */
    uint64_t seq;    /* of the last turn */
    bool unsure;     /* its reply is not known: it must be sent again */
    bool popped;     /* the reply to the last turn came in the list */
    bool completion; /* and it has completions: only who has them can */
    bool idle;       /* it found nothing: its reply will come in the list */
    int jobs;        /* MAX and MAX_BYTES, as last asked for */
    uint64_t bytes;
    uint64_t lanes[BLASD_LANES]; /* us of each, as last asked for; zeros: it was never said */
    int jobs_most;               /* the largest MAX so far */
    int64_t answered_ns;         /* when jobs came last */
    redisReply *next;            /* owned: a reply with jobs that claim has not given yet */
    redisReply *claimed;         /* owned: the frames of the last claim lie here */
    int left;                    /* jobs that claim has given and that have not ended */
    bool led;                    /* and the wait for it has been sent behind it */
    bool busy;                   /* the last wait was short */
    struct blasd_worker_wait wait;
    /* the turns that `next` and `claimed` answer; 0: there is none */
    uint64_t next_in, claimed_in;
    /* caller.connections when the last turn was answered, and when `holds` was told; 0: not yet */
    uint64_t answered_on, held_on;
    struct blasd_buf refused; /* names that could not be read, a space before each */
    struct blasd_buf
        entries;            /* the same of batch entries that were claimed and are not all ended */
    struct blasd_buf begun; /* the line of the batch that began last */
};

struct blasd_worker_queue {
    struct blasd_queue_options options;
    char name[BLASD_LINK_NAME_MAX]; /* of the queue; options.name points here */
    struct blasd_link_limits limits;
    struct blasd_caller caller;
    struct blasd_worker_lease lease;
    struct blasd_worker_turns turns;
    struct blasd_buf text;           /* scratch */
    struct blasd_buf outputs;        /* scratch for OUTPUTS */
    struct blasd_segments *segments; /* owned: outputs of jobs */
    struct blasd_views *views;       /* owned: inputs */
    int64_t trimmed_ns;
};

/* Starts a call of the function `name` that carries NAME EPOCH. */
void blasd_worker_leased(struct blasd_worker_queue *queue, const char *name);
/* Gives back, about once a second, what segments are not used. */
void blasd_worker_slices_trim(struct blasd_worker_queue *queue);
/* worker_turn.c: a new lease, or none: nothing is held, nothing is on its way. */
void blasd_worker_turns_reset(struct blasd_worker_turns *turns);
/* A turn's reply, or that in the list, without the digits: kept where it has jobs, else freed. */
void blasd_worker_turns_keep(struct blasd_worker_turns *turns, redisReply *reply);

#endif
