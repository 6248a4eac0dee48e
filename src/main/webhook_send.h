/* How webhooks are sent: signed requests, many at a time in one thread. A request ends with an
 * answer, or when it has taken too long. Read next: cmd_notify.c. */
#ifndef BLASD_MAIN_WEBHOOK_SEND_H
#define BLASD_MAIN_WEBHOOK_SEND_H

#include "auth/signer.h"
#include "core/price.h"
#include "main/webhook_queue.h"
#include "outgoing/outgoing.h"

struct webhook_sender {
    const struct blasd_outgoing *outgoing; /* borrowed, as the next */
    const struct blasd_prices *prices;     /* NULL: none */
    struct blasd_signer *signer;           /* owned, as the next */
    CURLM *multi;
};

/* Begins the request of a hook, or says why it cannot be sent. */
int webhook_send(struct webhook_sender *sender, const struct blasd_webhook *webhook,
                 struct webhook_hook *hook, struct blasd_err *err);
/* Takes the result of the next request that has ended; NULL: there is none. `asked_s`: after which
 * the receiver asks to be tried again. */
struct webhook_hook *webhook_sent(struct webhook_sender *sender,
                                  enum blasd_webhook_outcome *outcome, int *asked_s);
/* Cuts the request of a hook, if it has one. */
void webhook_cut(struct webhook_sender *sender, struct webhook_hook *hook);

#endif
