/* The table of what may follow what. */
#include "http/state.h"

#include "http/exchange.h"

#define TO(state) (1u << HTTP_AT_##state)

static const unsigned after[HTTP_STATES] = {
    [HTTP_AT_HEAD] = TO(BODY) | TO(REFUSED) | TO(GONE),
    [HTTP_AT_BODY] = TO(FETCHING) | TO(WAITING) | TO(REFUSED) | TO(GONE),
    [HTTP_AT_FETCHING] = TO(RESOLVING) | TO(ADMISSION) | TO(SUBMITTED) | TO(ANSWERED) | TO(GONE),
    [HTTP_AT_RESOLVING] = TO(ADMISSION) | TO(SUBMITTED) | TO(ANSWERED) | TO(GONE),
    [HTTP_AT_ADMISSION] = TO(SUBMITTED) | TO(ANSWERED) | TO(GONE),
    [HTTP_AT_SUBMITTED] = TO(ADMISSION) | TO(WAITING) | TO(ANSWERED) | TO(GONE),
    [HTTP_AT_WAITING] = TO(ANSWERED) | TO(GONE),
    [HTTP_AT_REFUSED] = TO(REFUSED) | TO(ANSWERED) | TO(GONE),
    [HTTP_AT_ANSWERED] = TO(ANSWERED) | TO(GONE),
};

bool http_state_follows(enum http_state from, enum http_state to) {
    return (after[from] >> to & 1) != 0;
}

bool http_exchange_enter(struct http_exchange *exchange, enum http_state to) {
    if (!http_state_follows(exchange->state, to)) return false;
    if (exchange->state == HTTP_AT_ADMISSION) blasd_list_remove(&exchange->admission);
    exchange->state = to;
    return true;
}
