/* The routes that read and cancel one job. Read next: results.c, jobs_list.c. */
#include "http/jobs.h"
#include "http/reply.h"
#include "http/waiters.h"
#include "wire/frame.h"

#include <string.h>

static bool gave(void *arg, const struct blasd_principal *tenant) {
    const struct http_exchange *exchange = arg;
    return blasd_front_queue_gave(http_queue(exchange), tenant, exchange->id);
}

/* An admin reaches jobs of all tenants that have keys: its request is then as one of that tenant's.
 */
static void act_as_owner(struct http_exchange *exchange) {
    struct blasd_auth *auth = exchange->home->server->options->auth;
    if (auth == NULL || exchange->caller.role != BLASD_ROLE_ADMIN ||
        gave(exchange, &exchange->caller.principal))
        return;
    (void)blasd_auth_find_tenant(auth, gave, exchange, &exchange->caller.principal);
}

/* Reads the id and the Accept header of a job route. */
static bool read_target(struct http_exchange *exchange, bool allow_npy) {
    enum blasd_format format;
    if (!blasd_id_valid(exchange->captures[0])) {
        http_reply_fail(exchange, BLASD_E_job_not_found, "", "no job has this id");
        return false;
    }
    if (!blasd_accept_choose(&exchange->request.accepts, allow_npy, &format)) {
        http_reply_fail(exchange, BLASD_E_not_acceptable, "Accept",
                        "no answer of this route has a format that '%.100s' names",
                        exchange->request.accept);
        return false;
    }
    memcpy(exchange->id, exchange->captures[0], sizeof exchange->id);
    exchange->wanted.format = (int)format;
    act_as_owner(exchange);
    return true;
}

/* The record as it stood when the wait began: only a final one, or an error, ends the wait. */
static void on_watched(void *arg, const struct blasd_err *err, const void *record, size_t len) {
    struct http_exchange *exchange = arg;
    http_result_record(exchange, err, record, len, false);
    if (exchange->wait.time_up && http_exchange_open(exchange)) http_jobs_fetch(exchange);
    http_exchange_release(exchange);
}

void http_jobs_get(struct http_exchange *exchange) {
    bool preferred;
    double wait = http_request_wait(&exchange->request, exchange->home->server->limits, &preferred);
    if (!read_target(exchange, true)) return;
    if (!(wait > 0)) {
        http_jobs_fetch(exchange);
        return;
    }
    http_wait_begin(exchange, wait);
    http_exchange_hold(exchange);
    blasd_front_queue_watch(http_queue(exchange), &exchange->caller.principal, exchange->id,
                            &exchange->wait.waiter, on_watched, exchange);
}

void http_jobs_result(struct http_exchange *exchange) {
    if (!read_target(exchange, true)) return;
    exchange->wanted.output = HTTP_ALL_OUTPUTS;
    http_jobs_fetch(exchange);
}

void http_jobs_output(struct http_exchange *exchange) {
    if (!read_target(exchange, true)) return;
    exchange->wanted.output = HTTP_ALL_OUTPUTS; /* until the record tells the operation */
    if (exchange->captures[1][0] == '\0')
        http_reply_fail(exchange, BLASD_E_output_not_found, "", "no output has so long a name");
    else
        http_jobs_fetch(exchange);
}

bool http_jobs_target(struct http_exchange *exchange) {
    exchange->request.accepts = (struct blasd_accept){0};
    return read_target(exchange, false);
}

/* A job that had not ended was cancelled: now it can be forgotten. */
static void on_forgotten(void *arg, const struct blasd_err *err, const void *bytes, size_t len) {
    struct http_exchange *exchange = arg;
    struct blasd_record record;
    struct blasd_err bad;
    size_t payload_at;
    bool again = err == NULL && blasd_record_decode(bytes, len, &record, &payload_at, &bad) == 0 &&
                 record.state == BLASD_CANCELLED && !exchange->wanted.forgotten;
    if (!again) {
        http_result_on_record(exchange, err, bytes, len);
        return;
    }
    exchange->wanted.forgotten = true;
    blasd_front_queue_cancel(http_queue(exchange), &exchange->caller.principal, exchange->id, true,
                             on_forgotten, exchange);
}

void http_jobs_delete(struct http_exchange *exchange) {
    if (!http_jobs_target(exchange)) return;
    http_exchange_hold(exchange);
    blasd_front_queue_cancel(http_queue(exchange), &exchange->caller.principal, exchange->id,
                             exchange->request.query.forget,
                             exchange->request.query.forget ? on_forgotten : http_result_on_record,
                             exchange);
}
