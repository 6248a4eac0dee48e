/* A list, in the order of arrival. Who waits is refused after the same time, so the first one is
 * also the first whose time is up. */
#include "http/gate.h"

#include "base/clock.h"
#include "http/jobs.h"

#define SMALL_BODY (64 * BLASD_KIB)

bool http_gate_suits(const struct http_exchange *exchange) {
    const struct http_request *request = &exchange->request;
    return !request->chunked && request->body_file == NULL && !request->expects_continue &&
           request->content_length <= SMALL_BODY &&
           exchange->home->server->limits->queue_wait_ms > 0;
}

void http_gate_enter(struct http_exchange *exchange, bool again) {
    struct http_loop *loop = exchange->home;
    struct http_exchange *before = again ? NULL : loop->gate_last;
    exchange->gate_prev = before;
    exchange->gate_next = before == NULL ? loop->gate_first : NULL;
    *(before == NULL ? &loop->gate_first : &before->gate_next) = exchange;
    *(exchange->gate_next == NULL ? &loop->gate_last : &exchange->gate_next->gate_prev) = exchange;
    exchange->at_gate = true;
}

void http_gate_leave(struct http_exchange *exchange) {
    struct http_loop *loop = exchange->home;
    struct http_exchange *next = exchange->gate_next, *prev = exchange->gate_prev;
    if (!exchange->at_gate) return;
    *(prev == NULL ? &loop->gate_first : &prev->gate_next) = next;
    *(next == NULL ? &loop->gate_last : &next->gate_prev) = prev;
    exchange->gate_next = exchange->gate_prev = NULL;
    exchange->at_gate = false;
}

void http_gate_turn(struct http_loop *loop) {
    int64_t patience = (int64_t)loop->server->limits->queue_wait_ms * 1000000, now;
    if (loop->gate_first == NULL) return;
    now = blasd_clock_ns();
    while (loop->gate_first != NULL &&
           http_jobs_post_try(loop->gate_first, now - loop->gate_first->began_ns >= patience))
        ;
}
