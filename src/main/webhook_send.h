/* How webhooks are sent: signed requests, many at a time in one thread. A request ends with an
 * answer, or when it has taken too long. Read next: cmd_notify.c. */
#ifndef BLASD_MAIN_WEBHOOK_SEND_H
#define BLASD_MAIN_WEBHOOK_SEND_H

#include "auth/signer.h"
#include "core/price.h"
#include "outgoing/outgoing.h"
#include "queue/webhooks.h"

#define WEBHOOK_MOST_S 10    /* that a request may take */
#define WEBHOOK_ASKED_S 3600 /* after which, at the most, a receiver may ask to be tried again */

struct webhook_options {
    const struct blasd_outgoing *outgoing; /* borrowed, as all here */
    const struct blasd_signer *signer;
    const struct blasd_prices *prices; /* NULL: none */
    /* Called once for each request, with its `of`, whatever became of it: BLASD_WEBHOOK_GIVEN_UP
     * says that the receiver does not want it. */
    void (*over)(void *arg, void *of, enum blasd_webhook_outcome outcome, int asked_s);
    void *arg;
};

struct webhook_sender;

/* New: free with webhook_sender_free. NULL where there is no memory. `most` requests at one time.
 */
struct webhook_sender *webhook_sender_new(const struct webhook_options *options, int most);
void webhook_sender_free(struct webhook_sender *sender); /* takes NULL; what is under way is cut */

/* Begins a request for `of`; what cannot be sent is over at once. */
void webhook_sender_begin(struct webhook_sender *sender, const struct blasd_webhook *hook,
                          void *of);
/* Moves what there is on, waiting up to so long for something to do. */
void webhook_sender_turn(struct webhook_sender *sender, int wait_ms);

#endif
