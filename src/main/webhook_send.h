/* Webhooks as something to be sent. Read next: webhook_send.c. */
#ifndef BLASD_MAIN_WEBHOOK_SEND_H
#define BLASD_MAIN_WEBHOOK_SEND_H

#include "auth/signer.h"
#include "core/price.h"
#include "main/lane_rounds.h"

#define WEBHOOK_MOST_S 10 /* that a request may take */

struct webhook_options {
    const struct blasd_signer *signer; /* borrowed, as all here */
    const struct blasd_prices *prices; /* NULL: none */
};

/* `options` is borrowed by what it returns. */
struct lane_sender webhook_sender(const struct webhook_options *options);

#endif
