/* The one state of an exchange, and the one place where it changes.
 *
 * Most go HEAD, BODY, WAITING, ANSWERED; those that make a job go HEAD, BODY, FETCHING, SUBMITTED,
 * WAITING, ANSWERED. Read next: exchange.h. */
#ifndef BLASD_HTTP_STATE_H
#define BLASD_HTTP_STATE_H

#include <stdbool.h>

/* In this order: up to WAITING the answer is still to be made. */
enum http_state {
    HTTP_AT_HEAD,      /* the head is read */
    HTTP_AT_BODY,      /* the body comes; without one, until libmicrohttpd says so */
    HTTP_AT_FETCHING,  /* the body has come; what belongs to it may not have: a file, URLs */
    HTTP_AT_RESOLVING, /* the job is read, and what its inputs refer to is looked up */
    HTTP_AT_ADMISSION, /* it waits for room in the queue: admission.h */
    HTTP_AT_SUBMITTED, /* the job is on its way to the queue */
    HTTP_AT_WAITING,   /* the queue has the job, or was asked: an answer follows */
    HTTP_AT_REFUSED,   /* the answer is made before the body has come, whose rest is thrown away */
    HTTP_AT_ANSWERED,  /* the answer is made, or being made from what lies in the store */
    HTTP_AT_GONE,      /* the client has left, or was given up */
    HTTP_STATES
};

/* Whether an exchange may go from the one state to the other. */
bool http_state_follows(enum http_state from, enum http_state to);

struct http_exchange;
/* Puts the exchange into that state. False: the table does not allow it, and it stays as it is, as
 * where the answer comes after the client has left. One that waited for admission leaves there. */
bool http_exchange_enter(struct http_exchange *exchange, enum http_state to);

#endif
