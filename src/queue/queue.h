/* The queue as both its sides see it: where it is and how a job stands in it.
 *
 * All keys of a queue share the hash tag {NAME}. What the keys are and what each function does is
 * told in functions/contract.lua; that folder is loaded into Redis as a library of functions whose
 * name carries the schema number. Read next: worker_queue.h, front_queue.h. */
#ifndef BLASD_QUEUE_QUEUE_H
#define BLASD_QUEUE_QUEUE_H

#include "base/err.h"
#include "base/limits.h"
#include "core/job.h"
#include "core/principal.h"
#include "core/record.h"
#include "store/store.h"

/* Every call that touches jobs takes who asks: it makes, finds and changes jobs of that tenant
 * alone, and those of another are to it as if they never were. Without keys everybody is this one.
 */
extern const struct blasd_principal blasd_anonymous;

struct blasd_queue_options {
    const char *url;  /* where Redis is, as blasd_link_parse reads it */
    const char *name; /* the queue's name, the hash tag of all its keys; "blasd" by default */
    const struct blasd_limits *limits; /* borrowed for the life of the queue */
    struct blasd_store *store;         /* borrowed for the life of the queue */
    bool may_lose_jobs;                /* a Redis will do that keeps no file, or may evict keys */
};

/* Makes the store of `options` the deployment's own, whatever was recorded. Only for a process that
 * knows that no other one uses the queue yet, as `blasd up` does of its private Redis: the store on
 * tmpfs of before a reboot is gone. */
int blasd_queue_adopt_store(const struct blasd_queue_options *options, struct blasd_err *err);
/* Whether Redis loses no jobs and the store of `options` is the deployment's: internal_error where
 * that is not so, queue_unavailable where Redis does not say so within a second.
 * BLASD_QUEUE_UNSURE: the store is, but this user of Redis may not ask about the rest. */
#define BLASD_QUEUE_UNSURE 1
int blasd_queue_check_store(const struct blasd_queue_options *options, struct blasd_err *err);

#endif
