/* What both sides of the queue say to Redis in the same way: which library, which limits, the first
 * words on a new connection. What the keys and functions are is told in functions/contract.lua. */
#ifndef BLASD_QUEUE_LINK_H
#define BLASD_QUEUE_LINK_H

#include "queue/queue.h"
#include "redis/redis_link.h"

#define BLASD_QUEUE_LIBRARY "blasd_7"
/* The name of a function as FCALL takes it: BLASD_QUEUE_FN("submit"). */
#define BLASD_QUEUE_FN(name) BLASD_QUEUE_LIBRARY "_" name
extern const struct blasd_link_library blasd_queue_library;

#define BLASD_QUEUE_CHUNK BLASD_MIB       /* a chunk of a blob of kind redis */
#define BLASD_QUEUE_FRONT_CHANNEL "front" /* {q}:front:… are the names of reply channels */

/* The limits as the functions take them, with those that are 0 resolved from the store's size. */
struct blasd_link_limits {
    char text[288]; /* the argument LIMITS */
    char told[400]; /* which of the deployment's differ from this process' own; "": none */
    uint64_t queue_jobs, queue_bytes, record_bytes, record_sync_bytes, tensor_bytes;
    uint64_t webhooks; /* not among these */
};
void blasd_link_limits(const struct blasd_queue_options *options, struct blasd_link_limits *ret);
/* The lease alone, in `limits`, where Redis can be asked now: a worker that renews its own later
 * than others expect would lose it. */
void blasd_queue_take_lease(const struct blasd_queue_options *options, struct blasd_limits *limits);
/* Takes over what is recorded as the deployment's limits, as a text: true where that changes
 * anything, and logs it. */
bool blasd_link_take_limits(struct blasd_link_limits *limits, const char *recorded);

/* Writes the rules of a Redis ACL user that may do what a worker of the queue does, and nothing
 * else; as snprintf. They come from the functions (mk/worker-acl.sh). */
#define BLASD_QUEUE_ACL 2048 /* bytes that are enough */
int blasd_queue_worker_acl(const char *queue, char *text, size_t size);

/* Why a process whose store is `own` cannot be of the deployment that has recorded another one.
 * Returns the negative code. */
int blasd_queue_differs(const char *own, const char *recorded, struct blasd_err *err);

/* Checks that Redis loses no jobs, loads the library, makes the queue's keys and checks that the
 * store is the one the deployment uses (recording it where this is the first to come;
 * internal_error where it is another). `adopt`: record it all the same.
 * Returns as blasd_queue_check_store. */
int blasd_link_open(redisContext *redis, const struct blasd_queue_options *options, bool adopt,
                    struct blasd_err *err);

#endif
