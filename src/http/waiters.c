/* Requests that wait for jobs: the clock of each, and the answer once its job has ended. */
#include "http/waiters.h"

#include "base/container.h"
#include "base/log.h"
#include "http/jobs.h"
#include "http/reply.h"
#include "http/upload.h"
#include "trace/spans.h"
#include "wire/frame.h"

#include <stdio.h>
#include <string.h>

static void on_ended(struct blasd_waiter *waiter, const void *bytes, size_t len) {
    struct http_exchange *exchange = blasd_container_of(waiter, struct http_exchange, wait.waiter);
    struct blasd_record record;
    struct blasd_err err = {0};
    size_t payload_at;
    http_exchange_wait_end(exchange);
    if (!http_exchange_open(exchange)) return;
    if (bytes == NULL)
        blasd_fail(&err, BLASD_E_job_lost, "", "the job %s was waited for and is gone", waiter->id);
    else if (blasd_record_decode(bytes, len, &record, &payload_at, &err) == 0 && !waiter->again)
        http_metrics_job(exchange->home->metrics, &record);
    record.prices = exchange->home->server->options->prices;
    if (err.code != BLASD_OK)
        http_reply_problem(exchange, &err);
    else
        http_result_answer(exchange, &record, (const char *)bytes + payload_at);
}

static void on_timer(struct blasd_timer *timer) {
    http_wait_time_up(blasd_container_of(timer, struct http_exchange, wait.timer));
}

void http_wait_begin(struct http_exchange *exchange, double seconds) {
    struct http_loop *loop = exchange->home;
    struct http_wait *wait = &exchange->wait;
    if (loop->stopping.out_of_time) seconds = 0;
    wait->begun = true;
    wait->waiter.ended = on_ended;
    wait->timer.fire = on_timer;
    http_count(&loop->metrics->waiting, 1);
    if (blasd_loop_timer_set(loop->loop, &wait->timer,
                             blasd_loop_now(loop->loop) + (int64_t)(seconds * 1e9)) != 0)
        wait->time_up = true;
}

/* Where the submission is still under way, that sees to it. */
void http_wait_time_up(struct http_exchange *exchange) {
    exchange->wait.time_up = true;
    if (!exchange->wait.begun || exchange->state != HTTP_AT_WAITING) return;
    if (!http_exchange_left(exchange)) http_jobs_fetch(exchange); /* short waits are not watched */
}

/* A line of {q}:unlogged, in words. */
struct unlogged {
    char id[BLASD_ID_LEN + 1], op[64], state[16], code[64], tenant[BLASD_TENANT_MAX];
};

static void log_ended(const struct unlogged *job, bool audit, const char *trace) {
    const struct blasd_log_field fields[] = {{"id", job->id, false},
                                             {"code", job->code, false},
                                             {"op", job->op, false},
                                             {"tenant", job->tenant, false},
                                             {"trace_id", trace, false}};
    char event[32];
    if (strcmp(job->state, "cancelled") == 0) return; /* the request that did it is logged */
    snprintf(event, sizeof event, "job %s", job->state);
    (audit ? blasd_log_event : blasd_log_job_event)(BLASD_LOG_INFO, event, fields,
                                                    sizeof fields / sizeof *fields);
}

/* What follows the line of a job that has a trace: queue/functions/contract.lua, {q}:unlogged. */
static bool read_traced(const char *bytes, size_t len, struct blasd_trace *trace,
                        struct blasd_record *record) {
    const size_t head = sizeof trace->id + sizeof trace->span + 1;
    struct blasd_err err;
    size_t payload_at;
    if (len < head) return false;
    memcpy(trace->id, bytes, sizeof trace->id);
    memcpy(trace->span, bytes + sizeof trace->id, sizeof trace->span);
    trace->sampled = bytes[head - 1] == 1;
    return blasd_record_decode(bytes + head, len - head, record, &payload_at, &err) == 0;
}

void http_tell_unseen(void *arg, const char *line, size_t len) {
    const struct http_loop *loop = arg;
    const char *end = memchr(line, '\n', len);
    size_t line_len = end == NULL ? len : (size_t)(end - line);
    struct unlogged job = {.tenant = "anonymous"};
    char text[256], digits[BLASD_TRACE_TEXT];
    struct blasd_trace trace = {.sampled = false};
    struct blasd_record record;
    bool traced = end != NULL && read_traced(end + 1, len - line_len - 1, &trace, &record);
    if (line_len >= sizeof text) return;
    memcpy(text, line, line_len);
    text[line_len] = '\0';
    blasd_trace_text(trace.id, digits);
    if (sscanf(text, "%41s %63s %15s %63s %31s", job.id, job.op, job.state, job.code, job.tenant) >=
        4)
        log_ended(&job, loop->server->options->log.audit, traced ? digits : NULL);
    if (traced) blasd_spans_unfinished(loop->server->options->otlp, &trace, &record);
}
