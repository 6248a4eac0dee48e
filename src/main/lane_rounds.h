/* Webhooks that are sent: rounds of a few requests for one lane each, all of
 * them at once in one thread. A round ends when each of its requests has been answered, or has
 * taken too long; its lane gets no other meanwhile, so a receiver that hangs holds up nobody
 * else's. Knows neither Redis nor what is sent. Read next: webhook_send.c, cmd_notify.c. */
#ifndef BLASD_MAIN_LANE_ROUNDS_H
#define BLASD_MAIN_LANE_ROUNDS_H

#include "outgoing/outgoing.h"
#include "queue/webhooks.h"

#define LANE_ROUNDS 64 /* lanes at one time */
#define LANE_EACH 4    /* requests of one at one time */

/* One request. */
struct lane_request {
    struct blasd_webhook_outcome outcome;
    struct blasd_outgoing_transfer transfer;
    struct curl_slist *headers; /* owned, as all below */
    CURL *curl;
    void *body; /* the sender's own */
    size_t replied;
};

/* How one kind is sent. */
struct lane_sender {
    const char *noun;  /* for the log */
    const char *field; /* of the job, that names its URL */
    void *arg;         /* borrowed */
    /* Makes body and headers, and says how they are sent; where to is said already. */
    int (*begin)(void *arg, const char *lane, const struct blasd_webhook *hook,
                 struct lane_request *request, struct blasd_err *err);
    /* Why what could not be sent, with that error, was not; whether to try again. */
    void (*refuse)(struct lane_request *request, const struct blasd_err *err);
    /* What the answer means, `status` 0: there was none, for `code` says why. Sets the outcome. */
    void (*judge)(struct lane_request *request, CURLcode code, long status);
    void (*release)(struct lane_request *request); /* frees the body, which may be NULL */
};

/* Appends one; false where memory has run out. */
bool lane_request_header(struct lane_request *request, const char *name, const char *value);
/* After how many seconds the receiver asks to be tried again. */
int lane_request_asked(const struct lane_request *request);

struct lane_rounds;

/* New: free with lane_rounds_free. NULL where there is no memory. `outgoing` is borrowed. */
struct lane_rounds *lane_rounds_new(const struct blasd_outgoing *outgoing);
void lane_rounds_free(struct lane_rounds *rounds); /* takes NULL */

/* How many more there may be. */
int lane_rounds_room(const struct lane_rounds *rounds);

/* What lane_rounds_begin is called with. */
struct lane_rounds_order {
    struct lane_rounds *rounds;
    const struct lane_sender *sender;
};
/* Begins one; a blasd_webhook_lane_fn whose arg is such an order. */
void lane_rounds_begin(void *order, const char *lane, const struct blasd_webhook *hooks, int count);
/* Moves what there is on, waiting up to so long for something to do. */
void lane_rounds_turn(struct lane_rounds *rounds, int wait_ms);
/* Calls `tell` for each round of that sender that is over, which then is forgotten unless that
 * gives a code (not 0). Returns the last such code. */
int lane_rounds_over(struct lane_rounds *rounds, const struct lane_sender *sender,
                     int (*tell)(void *arg, const char *lane,
                                 const struct blasd_webhook_outcome *outcomes, int count),
                     void *arg);

#endif
