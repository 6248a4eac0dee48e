/* Noting requests. */
#include "http/answered.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"
#include "trace/otlp.h"

#include <stdio.h>
#include <string.h>

#define MS_TEXT (BLASD_TEXT_NUMBER + 4)

void http_request_traced(struct http_exchange *exchange) {
    struct blasd_otlp *otlp = exchange->home->server->options->otlp;
    struct blasd_trace *trace = &exchange->request.tracing.trace;
    bool given = blasd_trace_given(trace->id);
    if (!given && exchange->route != NULL && exchange->route->jobs != NULL &&
        blasd_otlp_samples(otlp)) {
        blasd_trace_random(trace->id, sizeof trace->id);
        trace->sampled = true;
    }
    if (trace->sampled && otlp != NULL) blasd_trace_random(trace->span, sizeof trace->span);
}

static const char *method_of(const struct http_exchange *exchange) {
    switch (exchange->request.method) {
    case HTTP_GET: return "GET";
    case HTTP_HEAD: return "HEAD";
    case HTTP_POST: return "POST";
    case HTTP_DELETE: return "DELETE";
    case HTTP_PATCH: return "PATCH";
    case HTTP_OPTIONS: return "OPTIONS";
    case HTTP_OTHER: break;
    }
    return "OTHER";
}

/* The route, not the path: what a client makes up stands in no log and no trace. */
static const char *route_of(const struct http_exchange *exchange) {
    return exchange->route == NULL ? "-" : exchange->route->path;
}

static void add_span(const struct http_exchange *exchange) {
    struct blasd_otlp *otlp = exchange->home->server->options->otlp;
    struct blasd_span span = {.kind = BLASD_SPAN_SERVER, .end_us = blasd_clock_wall_us()};
    unsigned status = exchange->answer.status;
    if (otlp == NULL || !exchange->request.tracing.trace.sampled) return;
    memcpy(span.trace, exchange->request.tracing.trace.id, sizeof span.trace);
    memcpy(span.id, exchange->request.tracing.trace.span, sizeof span.id);
    memcpy(span.parent, exchange->request.tracing.parent, sizeof span.parent);
    snprintf(span.name, sizeof span.name, "%s %s", method_of(exchange), route_of(exchange));
    span.start_us = span.end_us - (blasd_clock_ns() - exchange->began_ns) / 1000;
    if (status >= 500) span.error = blasd_err_info(exchange->answer.problem.code)->name;
    blasd_span_text(&span, "http.request.method", method_of(exchange));
    blasd_span_text(&span, "http.route", route_of(exchange));
    blasd_span_number(&span, "http.response.status_code", (int64_t)status);
    blasd_span_number(&span, "http.request.body.size", (int64_t)exchange->body.seen);
    blasd_span_text(&span, "blasd.job.id", exchange->id);
    blasd_otlp_add(otlp, &span);
}

/* Milliseconds with three places. */
static void write_ms(char out[MS_TEXT], uint64_t us) {
    size_t len = blasd_text_number(out, us / 1000);
    out[len++] = '.';
    for (unsigned unit = 100; unit > 0; unit /= 10) out[len++] = (char)('0' + us / unit % 10);
    out[len] = '\0';
}

void http_log_access(struct http_exchange *exchange, unsigned status) {
    char client[HTTP_PEER_TEXT], code[BLASD_TEXT_NUMBER], ms[MS_TEXT], received[BLASD_TEXT_NUMBER],
        trace[BLASD_TRACE_TEXT];
    const char *problem = exchange->answer.problem.code == BLASD_OK
                              ? NULL
                              : blasd_err_info(exchange->answer.problem.code)->name;
    const struct blasd_identity *caller = &exchange->caller;
    const struct blasd_log_field fields[] = {
        {"method", method_of(exchange), false},
        {"route", route_of(exchange), false},
        {"status", code, true},
        {"code", problem, false},
        {"ms", ms, true},
        {"received", received, true},
        {"id", exchange->id[0] == '\0' ? NULL : exchange->id, false},
        {"request_id", http_request_id(exchange), false},
        {"trace_id", http_trace_text(exchange, trace), false},
        {"tenant", caller->principal.tenant[0] == '\0' ? NULL : caller->principal.tenant, false},
        {"key", caller->name[0] == '\0' ? NULL : caller->name, false},
        {"client", client, false}};
    if (!exchange->home->server->options->log.access) return;
    http_client_text(exchange, client);
    blasd_text_number(code, status);
    write_ms(ms, (uint64_t)(blasd_clock_ns() - exchange->began_ns) / 1000);
    blasd_text_number(received, exchange->body.seen);
    blasd_log_collect(BLASD_LOG_INFO, "request", fields, sizeof fields / sizeof *fields);
}

void http_request_answered(struct http_exchange *exchange) {
    struct http_loop *loop = exchange->home;
    http_metrics_request(loop->metrics, http_route_number(loop, exchange->route),
                         exchange->answer.status, exchange->answer.problem.code);
    if (blasd_trace_given(exchange->request.tracing.trace.id)) add_span(exchange);
    http_log_access(exchange, exchange->answer.status);
}
