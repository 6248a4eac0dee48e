/* The stream of webhooks that are to be delivered, for the one process that delivers them: an index
 * of what is there, the text of each, and what became of it. Read next: ../main/webhook_queue.h. */
#ifndef BLASD_QUEUE_WEBHOOKS_H
#define BLASD_QUEUE_WEBHOOKS_H

#include "queue/queue.h"

#define BLASD_WEBHOOK_ENTRY 44 /* bytes of an entry's name with its zero */
#define BLASD_WEBHOOK_URL_MAX 2048

struct blasd_webhooks;

/* One webhook. The texts are borrowed during a call, or until blasd_webhook_release. */
struct blasd_webhook {
    const char *entry, *id, *tenant, *url;
    const void *record; /* without its outputs */
    size_t record_len;
    void *reply; /* owned; NULL: of the caller */
};

/* Who hears of entries. */
struct blasd_webhook_index {
    /* Forget all that you were told: it will be told again, or another process delivers now. */
    void (*anew)(void *arg);
    void (*add)(void *arg, const struct blasd_webhook *webhook);
    void *arg;
};

/* What became of one. */
enum blasd_webhook_outcome {
    BLASD_WEBHOOK_DELIVERED,
    BLASD_WEBHOOK_FAILED,
    BLASD_WEBHOOK_GIVEN_UP
};

/* Connects at the first call. New: free with blasd_webhooks_free, which gives back the lease. */
int blasd_webhooks_open(const struct blasd_queue_options *options, struct blasd_webhooks **ret,
                        struct blasd_err *err);
void blasd_webhooks_free(struct blasd_webhooks *webhooks); /* takes NULL */

/* Tells of the entries that are new, at most so many, while this process has the lease, and renews
 * that; returns how many. To be called at least once a second. queue_unavailable.
 */
int blasd_webhooks_take(struct blasd_webhooks *webhooks, int most,
                        const struct blasd_webhook_index *index, struct blasd_err *err);
/* The time on Redis' clock, as far as the last take told it. */
int64_t blasd_webhooks_now_us(const struct blasd_webhooks *webhooks);
/* 1; 0 where the entry is not there any more. queue_unavailable. To be given to
 * blasd_webhook_release in any case. */
int blasd_webhooks_get(struct blasd_webhooks *webhooks, const char *entry,
                       struct blasd_webhook *ret, struct blasd_err *err);
void blasd_webhook_release(struct blasd_webhook *webhook);
/* Unless it failed the entry goes from the stream. queue_unavailable: it may be told of once more.
 */
int blasd_webhooks_done(struct blasd_webhooks *webhooks, const char *entry,
                        enum blasd_webhook_outcome outcome, struct blasd_err *err);

#endif
