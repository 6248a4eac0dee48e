/* GET /usage: what a tenant's jobs used, by hour and operation, as `blasd meter` has added it up.
 */
#include "http/jobs.h"
#include "http/reply.h"

#include "base/clock.h"

#include <string.h>

#define HOUR_S 3600
#define DAY_S (24 * HOUR_S)

/* What is asked for: hours that begin in [from, to), in s since 1970. */
struct span {
    int64_t from, to;
};

/* By default the last 24 hours, and the one that has not ended. */
static struct span span_of(const struct http_query *query) {
    int64_t now = blasd_clock_wall_us() / 1000000;
    struct span span = {.from = now - DAY_S, .to = now + HOUR_S};
    if ((query->given & HTTP_PARAM_BEFORE) != 0) {
        span.to = query->before_us / 1000000;
        span.from = span.to - DAY_S;
    }
    if ((query->given & HTTP_PARAM_SINCE) != 0) span.from = query->since_us / 1000000;
    if (span.from < 0) span.from = 0;
    return span;
}

static double number_of(const json_t *row, const char *key) {
    return json_number_value(json_object_get(row, key));
}

static json_t *row_document(const json_t *row, int64_t begin_s) {
    char text[BLASD_TIME_TEXT];
    blasd_clock_text(begin_s * 1000000, text);
    return json_pack(
        "{s:O, s:s, s:O, s:I, s:I, s:f, s:f, s:I, s:f}", "tenant", json_object_get(row, "tenant"),
        "hour", text, "op", json_object_get(row, "op"), "jobs", (json_int_t)number_of(row, "jobs"),
        "failed", (json_int_t)number_of(row, "failed"), "device_seconds",
        number_of(row, "device_us") / 1e6, "energy_joules", number_of(row, "energy_mj") / 1e3,
        "bytes", (json_int_t)number_of(row, "bytes"), "flops", number_of(row, "flops"));
}

/* NULL where the text is none of the queue's, or there is no memory. */
static json_t *document_of(const char *text, size_t len, struct span span) {
    json_t *told = json_loadb(text, len, 0, NULL), *rows = json_object_get(told, "rows");
    json_t *usage = json_array(), *row;
    size_t i;
    bool failed = told == NULL;
    json_array_foreach(rows, i, row) { /* no rows are an empty object there */
        int64_t begin_s = (int64_t)number_of(row, "hour") * HOUR_S;
        if (begin_s >= span.from - span.from % HOUR_S && begin_s < span.to)
            failed |= json_array_append_new(usage, row_document(row, begin_s)) != 0;
    }
    json_decref(told);
    if (!failed) return json_pack("{s:o}", "usage", usage);
    json_decref(usage);
    return NULL;
}

static void on_usage(void *arg, const struct blasd_err *err, const char *text, size_t len) {
    struct http_exchange *exchange = arg;
    if (http_exchange_open(exchange)) {
        if (err != NULL)
            http_reply_problem(exchange, err);
        else
            http_reply_json(exchange, document_of(text, len, span_of(&exchange->request.query)));
    }
    http_exchange_release(exchange);
}

/* Admins see what all tenants used, others their own. */
void http_usage(struct http_exchange *exchange) {
    const struct blasd_identity *caller = &exchange->caller;
    struct span span = span_of(&exchange->request.query);
    const struct blasd_figures_query query = {
        .of = BLASD_FIGURES_USAGE,
        .tenant = caller->role == BLASD_ROLE_ADMIN ? "" : caller->principal.tenant,
        .from_day = span.from / DAY_S,
        .to_day = span.to > 0 ? (span.to - 1) / DAY_S : 0};
    http_exchange_hold(exchange);
    blasd_front_queues_figures(exchange->home->queues, &query, on_usage, exchange);
}
