/* The webhooks that wait, in memory: which is to be tried when. What a tenant has for one host is a
 * queue. Four of a queue are under way at one time, one where the last failed, and after that none
 * for a while, so a receiver that hangs holds up no other one. Knows neither Redis nor HTTP. Read
 * next: webhook_send.h, cmd_notify.c. */
#ifndef BLASD_MAIN_WEBHOOK_QUEUE_H
#define BLASD_MAIN_WEBHOOK_QUEUE_H

#include "base/hash.h"
#include "base/list.h"
#include "queue/webhooks.h"

#define WEBHOOK_REQUESTS 256 /* under way at one time */
#define WEBHOOK_EACH 4       /* of one queue */

struct webhook_queue;
struct webhook_request;

/* A webhook that waits, or is under way. */
struct webhook_hook {
    struct blasd_list node; /* of its queue, while it waits; else of those under way */
    struct webhook_queue *queue;
    struct webhook_request *request; /* webhook_send.c's; NULL: there is none */
    char entry[BLASD_WEBHOOK_ENTRY];
    int64_t ended_us, due_us;
};

struct webhook_queues {
    struct blasd_hash by_name;
    uint64_t seed;
    struct blasd_list all;     /* the queue that had its turn last stands last */
    struct blasd_list running; /* webhooks under way */
    int running_count;
};

void webhook_queues_init(struct webhook_queues *queues);
/* Frees all; no request may be under way. */
void webhook_queues_release(struct webhook_queues *queues);
/* Forgets what waits, but not which queues fail. */
void webhook_queues_forget(struct webhook_queues *queues);
/* One more that waits, unless it is under way. 0, or -1 where there is no memory. */
int webhook_queues_add(struct webhook_queues *queues, const struct blasd_webhook *webhook);
/* The next that is to be sent now, which is then under way; NULL: none. */
struct webhook_hook *webhook_queues_next(struct webhook_queues *queues, int64_t now_us);
/* It has been tried. One that has failed waits as long again as it has been tried for, and for
 * `asked_s` at the least; others are forgotten. */
void webhook_queues_over(struct webhook_queues *queues, struct webhook_hook *hook, bool failed,
                         int asked_s, int64_t now_us);
const char *webhook_queue_name(const struct webhook_queue *queue);

#endif
