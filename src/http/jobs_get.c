/* The routes that read, list and cancel jobs. Read next: results.c. */
#include "base/log.h"
#include "http/jobs.h"
#include "http/reply.h"
#include "http/waiters.h"
#include "wire/frame.h"

#include <stdlib.h>
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

void http_jobs_delete(struct http_exchange *exchange) {
    if (!http_jobs_target(exchange)) return;
    http_exchange_hold(exchange);
    blasd_front_queue_cancel(http_queue(exchange), &exchange->caller.principal, exchange->id,
                             exchange->request.query.forget, http_result_on_record, exchange);
}

/* What a list is sorted by, and where its record lies. */
struct listed {
    int64_t created_us;
    int position;
};

static int newest_first(const void *a, const void *b) {
    const struct listed *x = a, *y = b;
    if (x->created_us != y->created_us) return x->created_us < y->created_us ? 1 : -1;
    return x->position - y->position;
}

/* The queue gives a page of what is asked for; here it is put in order. */
static int write_list(const struct blasd_prices *prices, const char *cursor,
                      const void *const *records, const size_t *lens, int count,
                      struct blasd_buf *out, struct blasd_err *err) {
    struct listed *order = calloc((size_t)count + 1, sizeof *order);
    struct blasd_record record;
    size_t payload_at;
    int kept = 0, damaged = 0, rc = 0;
    bool full = order == NULL;
    struct blasd_err bad = {0};
    for (int i = 0; !full && i < count; i++) {
        if (blasd_record_decode(records[i], lens[i], &record, &payload_at, &bad) != 0)
            damaged++; /* whoever asks for that job is told; the others are still listed */
        else
            order[kept++] = (struct listed){.created_us = record.created_us, .position = i};
    }
    if (damaged > 0)
        blasd_log(BLASD_LOG_WARN, "%d records of %d are damaged: %s", damaged, count, bad.detail);
    if (kept > 0) qsort(order, (size_t)kept, sizeof *order, newest_first);
    full = full || blasd_buf_puts(out, "{\"jobs\":[") != 0;
    for (int i = 0; !full && rc == 0 && i < kept; i++) {
        int at = order[i].position;
        rc = blasd_record_decode(records[at], lens[at], &record, &payload_at, err);
        if (rc == 0) record.prices = prices;
        full = (i > 0 && blasd_buf_puts(out, ",") != 0) ||
               (rc == 0 && blasd_job_document(&record, NULL, 0, false, out) != 0);
    }
    full = full || blasd_buf_puts(out, "]") != 0;
    if (cursor[0] != '\0') full = full || blasd_buf_printf(out, ",\"cursor\":\"%s\"", cursor) != 0;
    full = full || blasd_buf_puts(out, "}") != 0;
    free(order);
    if (rc != 0 || !full) return rc;
    return blasd_fail(err, BLASD_E_no_space, "", "memory has run out; ask for fewer jobs");
}

static void on_list(void *arg, const struct blasd_err *err, const char *cursor,
                    const void *const *records, const size_t *lens, int count) {
    struct http_exchange *exchange = arg;
    struct blasd_buf body;
    struct blasd_err bad = {0};
    if (http_exchange_open(exchange)) {
        blasd_buf_init(&body, BLASD_GIB);
        if (err != NULL)
            http_reply_problem(exchange, err);
        else if (write_list(exchange->home->server->options->prices, cursor, records, lens, count,
                            &body, &bad) != 0)
            http_reply_problem(exchange, &bad);
        else
            http_reply_buf(exchange, 200, HTTP_TYPE_JSON, &body);
        blasd_buf_release(&body);
    }
    http_exchange_release(exchange);
}

void http_jobs_list(struct http_exchange *exchange) {
    const struct http_request *request = &exchange->request;
    const struct blasd_list_query query = {
        .state = (request->query.given & HTTP_PARAM_STATE) != 0 ? request->query.state : -1,
        .op = request->query.op,
        .label = request->query.label,
        .since_us = request->query.since_us,
        .before_us =
            (request->query.given & HTTP_PARAM_BEFORE) != 0 ? request->query.before_us : INT64_MAX,
        .limit = (request->query.given & HTTP_PARAM_LIMIT) != 0
                     ? request->query.limit
                     : (int)exchange->home->server->limits->list_jobs,
        .cursor = request->query.cursor};
    http_exchange_hold(exchange);
    blasd_front_queue_list(http_queue(exchange), &exchange->caller.principal, &query, on_list,
                           exchange);
}
