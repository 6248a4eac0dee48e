/* What a worker has to say to Redis, and nothing else has: what its guard lets through. So whoever
 * has taken a worker over ends the jobs that it was given, and can do no more to the queue.
 *
 * Read next: worker_rules.c (the table), ../main/guard.h. */
#ifndef BLASD_QUEUE_WORKER_RULES_H
#define BLASD_QUEUE_WORKER_RULES_H

#include "queue/queue_link.h"
#include "redis/redis_request.h"

#include <stdbool.h>

struct blasd_worker_rules {
    const char *worker;                /* its name; borrowed */
    char tag[BLASD_LINK_NAME_MAX + 2]; /* the queue's, "{QUEUE}" */
    struct blasd_link_limits limits;
    char store[BLASD_QUEUE_RECORDED];
};

/* Those for a worker of that name of one queue; `options->guard` is set, as it is for the worker.
 */
void blasd_worker_rules_init(struct blasd_worker_rules *rules, const char *worker,
                             const struct blasd_queue_options *options);
/* Whether it may send the request, whose words lie in `data`. */
bool blasd_worker_may(const struct blasd_worker_rules *rules, const char *data,
                      const struct blasd_redis_request *request);

#endif
