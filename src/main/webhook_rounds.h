/* Webhooks on their way: rounds of a few for one lane each, all of them at once in one thread. A
 * round ends when each of its requests has been answered, or has taken too long; its lane gets no
 * other meanwhile, so a receiver that hangs holds up nobody else's. Knows nothing of Redis. Read
 * next: cmd_notify.c. */
#ifndef BLASD_MAIN_WEBHOOK_ROUNDS_H
#define BLASD_MAIN_WEBHOOK_ROUNDS_H

#include "auth/signer.h"
#include "core/price.h"
#include "outgoing/outgoing.h"
#include "queue/webhooks.h"

#define WEBHOOK_ROUNDS 64 /* lanes at one time */
#define WEBHOOK_EACH 4    /* requests of one at one time */
#define WEBHOOK_MOST_S 10 /* that a request may take */

struct webhook_rounds;

struct webhook_rounds_options {
    const struct blasd_outgoing *outgoing; /* borrowed, as all here */
    const struct blasd_signer *signer;
    const struct blasd_prices *prices; /* NULL: none */
};

/* New: free with webhook_rounds_free. NULL where there is no memory. */
struct webhook_rounds *webhook_rounds_new(const struct webhook_rounds_options *options);
void webhook_rounds_free(struct webhook_rounds *rounds); /* takes NULL */

/* How many more there may be. */
int webhook_rounds_room(const struct webhook_rounds *rounds);
/* Begins one; a blasd_webhook_lane_fn whose arg is the rounds. */
void webhook_rounds_begin(void *rounds, const char *lane, const struct blasd_webhook *hooks,
                          int count);
/* Moves what there is on, waiting up to so long for something to do. */
void webhook_rounds_turn(struct webhook_rounds *rounds, int wait_ms);
/* Calls `tell` for each round that is over, which then is forgotten unless that gives a code (not
 * 0). Returns the last such code. */
int webhook_rounds_over(struct webhook_rounds *rounds,
                        int (*tell)(void *arg, const char *lane,
                                    const struct blasd_webhook_outcome *outcomes, int count),
                        void *arg);

#endif
