/* Webhooks that wait to be delivered, as whoever delivers them sees them: a lane for what each
 * tenant has for each receiver, given to one deliverer at a time. functions/lanes.lua has the rules
 * by which they are tried again. Read next:
 * ../main/lane_rounds.h. */
#ifndef BLASD_QUEUE_WEBHOOKS_H
#define BLASD_QUEUE_WEBHOOKS_H

#include "queue/queue.h"

#define BLASD_WEBHOOK_LANE 384   /* bytes of a lane's name with its zero */
#define BLASD_WEBHOOK_OUTCOME 24 /* of what became of one */
#define BLASD_WEBHOOK_URL_MAX 2048

struct blasd_webhooks;

/* One that is due. The texts are borrowed during the call. */
struct blasd_webhook {
    const char *id; /* of the job */
    const char *url;
    const void *record; /* without what lies in it of outputs */
    size_t record_len;
};

/* What became of one: "delivered", "never" or, where it failed, how many seconds it is to wait at
 * the least, as a number. */
struct blasd_webhook_outcome {
    char id[BLASD_ID_LEN + 1];
    char text[BLASD_WEBHOOK_OUTCOME];
};

typedef void (*blasd_webhook_lane_fn)(void *arg, const char *lane,
                                      const struct blasd_webhook *hooks, int count);

/* Connects at the first call. New: free with blasd_webhooks_free. */
int blasd_webhooks_open(const struct blasd_queue_options *options, struct blasd_webhooks **ret,
                        struct blasd_err *err);
void blasd_webhooks_free(struct blasd_webhooks *webhooks); /* takes NULL */

/* Calls `begin` for up to `lanes` lanes, each with up to `each` webhooks, which are its own until
 * blasd_webhooks_done, or for so long; returns how many. queue_unavailable. */
int blasd_webhooks_take(struct blasd_webhooks *webhooks, int lanes, int each, int lease_s,
                        blasd_webhook_lane_fn begin, void *arg, struct blasd_err *err);
/* Tells what became of them; those of jobs that ended `life_s` ago are given up where they failed.
 * Returns how many were given up. queue_unavailable: to be told again. */
int blasd_webhooks_done(struct blasd_webhooks *webhooks, const char *lane, uint64_t life_s,
                        const struct blasd_webhook_outcome *outcomes, int count,
                        struct blasd_err *err);

#endif
