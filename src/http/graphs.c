/* The routes of graphs, which are jobs of several steps: what differs. Read next: jobs_post.c. */
#include "core/graph.h"
#include "http/jobs.h"
#include "wire/frame.h"

#include <string.h>

void http_graphs_post_begin(struct http_exchange *exchange) {
    exchange->form.graph = true;
    exchange->request.elsewhere = true; /* the steps are stored beside their data */
    http_jobs_post_begin(exchange);
}

void http_graphs_get(struct http_exchange *exchange) {
    exchange->form.graph = true;
    http_jobs_get(exchange);
}

static void on_record(void *arg, const struct blasd_err *err, const void *bytes, size_t len) {
    struct http_exchange *exchange = arg;
    struct blasd_record record;
    struct blasd_err bad = {0};
    size_t payload_at;
    if (err == NULL && blasd_record_decode(bytes, len, &record, &payload_at, &bad) != 0) err = &bad;
    if (!http_exchange_open(exchange))
        ;
    else if (err == NULL && strcmp(record.op, blasd_op_graph.name) == 0)
        http_jobs_delete(exchange);
    else
        http_result_record(exchange, err, bytes, len, true);
    http_exchange_release(exchange);
}

/* A job of another kind is not to be cancelled here: whether it is one comes first. */
void http_graphs_delete(struct http_exchange *exchange) {
    exchange->form.graph = true;
    if (!http_jobs_target(exchange)) return;
    http_exchange_hold(exchange);
    blasd_front_queue_get(http_queue(exchange), &exchange->caller.principal, exchange->id,
                          on_record, exchange);
}
