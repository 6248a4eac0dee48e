/* Making answers of documents and problems. Read next: results.c, for answers that carry tensors.
 */
#include "http/reply.h"

#include "base/log.h"
#include "base/text.h"

#include "http/etag.h"
#include "http/peer.h"
#include "http/upload.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PROBLEM_TYPE "application/problem+json"
/* A page runs nothing, and loads nothing but its style from here. */
#define PAGE_POLICY                                                                                \
    "Content-Security-Policy", "default-src 'none'; style-src 'self'; base-uri 'none'; "           \
                               "form-action 'none'; frame-ancestors 'none'"
#define DOCUMENT_BYTES_USUAL 1000 /* from 1 KiB on malloc sweeps all small pieces up first */
#define UNCOUNTED_BYTES 4096 /* short answers, as problems are, need no memory of the account's */
#define DOCUMENT_BYTES_MAX (UINT64_C(1) << 32)

static void add(struct MHD_Response *response, const char *name, const char *value) {
    (void)MHD_add_response_header(response, name, value);
}

static void method_names(unsigned methods, char *text, size_t size) {
    static const char *const names[] = {"GET", "HEAD", "POST", "DELETE"};
    size_t at = 0;
    for (unsigned i = 0; i < 4; i++)
        if ((methods & (1u << i)) != 0)
            at += (size_t)snprintf(text + at, size - at, "%s, ", names[i]);
    if ((methods & HTTP_PATCH) != 0) at += (size_t)snprintf(text + at, size - at, "PATCH, ");
    snprintf(text + at, size - at, "OPTIONS");
}

/* Whether the client wants to be told where its outputs lie, and may be. */
static bool shares(const struct http_exchange *exchange) {
    return exchange->request.prefer.share && exchange->home->server->options->share;
}

void http_job_headers(const struct http_exchange *exchange, const char *id,
                      struct http_job_headers *ret) {
    bool preferred, async = exchange->request.prefer.async;
    double wait = http_request_wait(&exchange->request, exchange->home->server->limits, &preferred);
    const char *under = exchange->form.graph ? "/graphs/" : "/jobs/";
    if (id != NULL) blasd_text_join(ret->where, sizeof ret->where, under, id, NULL);
    if (preferred) snprintf(ret->wait, sizeof ret->wait, "wait=%.6g", wait);
    ret->rows[0] = (struct http_header){"Location", id == NULL ? NULL : ret->where};
    ret->rows[1] =
        (struct http_header){"Preference-Applied", preferred              ? ret->wait
                                                   : async && !(wait > 0) ? "respond-async"
                                                                          : NULL};
    ret->rows[2] = (struct http_header){"Preference-Applied", shares(exchange) ? "share" : NULL};
    ret->rows[3] = (struct http_header){"Vary", "Accept"};
    ret->rows[4] = (struct http_header){NULL, NULL};
}

/* --- every answer --- */

static bool has_header(const struct http_header *headers, const char *name) {
    for (; headers != NULL && headers->name != NULL; headers++)
        if (headers->value != NULL && strcmp(headers->name, name) == 0) return true;
    return false;
}

/* How many jobs its key may still submit in this second. */
static void add_rate(const struct http_exchange *exchange, struct MHD_Response *response) {
    const struct blasd_rate_view *rate = &exchange->answer.rate;
    char text[64];
    if (rate->limit == 0) return;
    snprintf(text, sizeof text, "\"jobs\";q=%" PRIu64 ";w=1", rate->limit);
    add(response, "RateLimit-Policy", text);
    snprintf(text, sizeof text, "\"jobs\";r=%" PRIu64 ";t=1", rate->remaining);
    add(response, "RateLimit", text);
}

/* Adds what every answer has. `bare`: it says that the client has the body already. */
static void add_usual(struct http_exchange *exchange, struct MHD_Response *response,
                      const char *type, const struct http_header *headers, bool bare) {
    bool reads = (exchange->request.method & (HTTP_GET | HTTP_HEAD)) != 0;
    if (type != NULL && !bare) add(response, "Content-Type", type);
    if (type != NULL && strcmp(type, HTTP_TYPE_HTML) == 0 &&
        !has_header(headers, "Content-Security-Policy"))
        add(response, PAGE_POLICY);
    /* what is read by GET is for the caller alone, and changes unless it has a tag */
    if (type != NULL && reads && !has_header(headers, "Cache-Control"))
        add(response, "Cache-Control",
            exchange->answer.tag[0] != '\0' ? "private, no-cache" : "no-store");
    if (exchange->home->stopping.draining || exchange->request.framing.ambiguous)
        add(response, "Connection", "close");
    add(response, "Request-Id", http_request_id(exchange));
    add_rate(exchange, response);
    for (; headers != NULL && headers->name != NULL; headers++)
        if (headers->value != NULL &&
            !(bare && strncmp(headers->name, "Content-", strlen("Content-")) == 0))
            add(response, headers->name, headers->value);
    if (!exchange->client.foreign) return;
    add(response, "Access-Control-Allow-Origin", exchange->request.origin);
    add(response, "Access-Control-Expose-Headers",
        "Location, Retry-After, Preference-Applied, Request-Id, RateLimit, RateLimit-Policy, "
        "WWW-Authenticate, Accept-Ranges, Content-Range, ETag, Inference-Header-Content-Length");
    add(response, "Vary", "Origin");
}

/* NULL with `err` filled, or not: memory has run out. */
static struct MHD_Response *response_of(struct http_exchange *exchange,
                                        const struct http_body *body, struct blasd_err *err) {
    struct MHD_Response *response = NULL;
    uint64_t size = body->size < 0 ? MHD_SIZE_UNKNOWN : (uint64_t)body->size;
    struct blasd_buf *buf = body->buf;
    size_t len = body->kind == HTTP_BUF ? buf->len : body->len;
    switch (body->kind) {
    case HTTP_EMPTY:
    case HTTP_TEXT:
        response = MHD_create_response_from_buffer(len, (void *)(uintptr_t)body->text,
                                                   MHD_RESPMEM_PERSISTENT);
        break;
    case HTTP_BUF:
        if (buf->account != NULL || len <= UNCOUNTED_BYTES ||
            http_exchange_reserve(exchange, buf->cap, err) == 0)
            response = MHD_create_response_from_buffer(len, buf->data, MHD_RESPMEM_MUST_FREE);
        if (response == NULL) blasd_buf_release(buf);
        blasd_buf_init(buf, buf->max);
        exchange->answer.whole = response != NULL && len > 0;
        break;
    case HTTP_PIECES:
        response = MHD_create_response_from_callback(size, body->block, body->read, body->cls,
                                                     body->release);
        if (response == NULL) body->release(body->cls);
        break;
    }
    if (response != NULL && exchange->request.method != HTTP_HEAD)
        http_count(&exchange->home->metrics->sent_bytes, len);
    return response;
}

void http_reply(struct http_exchange *exchange, unsigned status, const char *type,
                const struct http_header *headers, struct http_body body) {
    struct blasd_err err = {0};
    struct MHD_Response *response = response_of(exchange, &body, &err);
    bool held = false;
    if (err.code != BLASD_OK) {
        http_reply_problem(exchange, &err);
        return;
    }
    if (response != NULL && http_etag_counts(exchange, status)) {
        char tag[HTTP_TAG];
        held = http_etag_held(exchange, has_header(headers, "Content-Encoding"), tag);
        if (held) {
            MHD_destroy_response(response);
            response = MHD_create_response_from_buffer(0, NULL, MHD_RESPMEM_PERSISTENT);
            status = 304;
        }
        if (response != NULL) add(response, "ETag", tag);
    }
    if (response != NULL) add_usual(exchange, response, type, headers, held);
    http_exchange_answer(exchange, status, response);
}

void http_reply_written(struct http_exchange *exchange, int failed, struct blasd_buf *body) {
    if (failed == 0)
        http_reply(exchange, 200, HTTP_TYPE_JSON, NULL, http_buf(body));
    else
        http_reply_no_memory(exchange);
    blasd_buf_release(body);
}

void http_reply_json(struct http_exchange *exchange, json_t *document) {
    char *text =
        document == NULL ? NULL : json_dumps(document, JSON_COMPACT | JSON_REAL_PRECISION(9));
    struct blasd_buf body;
    blasd_buf_init(&body, 64 * BLASD_MIB);
    http_reply_written(exchange, text == NULL ? -1 : blasd_buf_puts(&body, text), &body);
    free(text);
    json_decref(document);
}

void http_reply_page(struct http_exchange *exchange, unsigned status, const char *type,
                     const struct http_header *headers, const struct http_page *page) {
    bool packed = exchange->request.takes_gzip;
    struct http_header rows[8] = {{"Content-Encoding", packed ? "gzip" : NULL},
                                  {"Vary", "Accept-Encoding"}};
    for (int i = 2; headers != NULL && headers->name != NULL && i < 7; i++) rows[i] = *headers++;
    blasd_text_join(exchange->answer.tag, sizeof exchange->answer.tag, page->tag, NULL, NULL);
    http_reply(exchange, status, type, rows,
               packed ? http_text(page->packed, page->packed_len)
                      : http_text(page->text, page->len));
}

/* --- what is logged --- */

static const char *or_dash(const char *text) {
    return text[0] == '\0' ? "-" : text;
}

static const char *op_text(const struct http_exchange *exchange) {
    const char *op = exchange->upload == NULL ? NULL : exchange->upload->op;
    return op == NULL ? "-" : op;
}

/* Whose request a line is about, behind what it says of the job. */
static void log_request(const struct http_exchange *exchange, bool always, const char *event,
                        const char *id, const char *op, const struct blasd_err *problem) {
    const struct blasd_err_info *info = problem == NULL ? NULL : blasd_err_info(problem->code);
    char client[HTTP_PEER_TEXT], status[16], trace[BLASD_TRACE_TEXT];
    const struct blasd_log_field fields[] = {
        {"id", id[0] == '\0' ? NULL : id, false},
        {"code", info == NULL ? NULL : info->name, false},
        {"status", info == NULL ? NULL : status, true},
        {"op", op, false},
        {"tenant", or_dash(exchange->caller.principal.tenant), false},
        {"key", or_dash(exchange->caller.name), false},
        {"client", client, false},
        {"trace_id", http_trace_text(exchange, trace), false}};
    http_client_text(exchange, client);
    snprintf(status, sizeof status, "%d", info == NULL ? 0 : info->http_status);
    (always ? blasd_log_event : blasd_log_job_event)(BLASD_LOG_INFO, event, fields,
                                                     sizeof fields / sizeof *fields);
}

void http_log_refused(const struct http_exchange *exchange, const struct blasd_err *problem) {
    log_request(exchange, false, "job refused", exchange->id, op_text(exchange), problem);
}

void http_log_cancelled(const struct http_exchange *exchange, const struct blasd_record *record) {
    const struct blasd_err cancelled = {.code = BLASD_E_cancelled};
    log_request(exchange, exchange->home->server->options->log.audit, "job cancelled", record->id,
                record->op, &cancelled);
}

void http_log_tensors_refused(const struct http_exchange *exchange,
                              const struct blasd_err *problem) {
    log_request(exchange, false, "tensors refused", exchange->id, op_text(exchange), problem);
}

void http_audit_job(const struct http_exchange *exchange, bool repeated) {
    if (exchange->home->server->options->log.audit)
        log_request(exchange, true, repeated ? "job repeated" : "job accepted", exchange->id,
                    op_text(exchange), NULL);
}

/* Whether a job was taken, whatever its answer is. */
static bool took_job(const struct http_exchange *exchange) {
    return exchange->upload != NULL && exchange->state >= HTTP_AT_WAITING;
}

/* A job that was to be submitted: the one line about it has the id that its answer has. */
static void note_refusal(struct http_exchange *exchange, const struct blasd_err *problem) {
    if (exchange->route == NULL || exchange->route->jobs == NULL || took_job(exchange)) return;
    (void)http_request_id(exchange);
    http_log_refused(exchange, problem);
}

const char *http_problem_body(const struct http_dialect *dialect, const struct blasd_err *problem,
                              struct blasd_buf *body) {
    if (dialect == NULL) return blasd_problem_document(problem, body) == 0 ? PROBLEM_TYPE : NULL;
    return dialect->problem(problem, body) == 0 ? dialect->problem_type : NULL;
}

static const char *retry_after(enum blasd_code code) {
    const struct blasd_err_info *info = blasd_err_info(code);
    if (!info->retry || (info->http_status != 429 && info->http_status != 503)) return NULL;
    switch (code) {
    case BLASD_E_draining: return "5";
    case BLASD_E_queue_unavailable: return "2";
    case BLASD_E_disk_full: return "10";
    default: return "1";
    }
}

/* Says which of its tenant's quotas is used up. */
static void write_quota(const struct http_exchange *exchange, const struct blasd_err *problem,
                        struct http_problem_headers *ret) {
    struct blasd_quotas quotas =
        blasd_front_queue_quotas(http_queue(exchange), &exchange->caller.principal);
    bool jobs = strcmp(problem->field, "jobs") == 0, bytes = strcmp(problem->field, "bytes") == 0;
    const char *name = jobs ? "queued-jobs" : bytes ? "queued-bytes" : "stored-bytes";
    uint64_t most = jobs ? quotas.jobs : bytes ? quotas.bytes : quotas.stored_bytes;
    snprintf(ret->policy, sizeof ret->policy, "\"%s\";q=%" PRIu64, name, most);
    snprintf(ret->rate, sizeof ret->rate, "\"%s\";r=0;t=%s", name, retry_after(problem->code));
}

void http_problem_headers(const struct http_exchange *exchange, const struct blasd_err *problem,
                          struct http_problem_headers *ret) {
    int status = blasd_err_info(problem->code)->http_status, at = 0;
    const char *retry = retry_after(problem->code);
    bool known = exchange != NULL, quota = known && problem->code == BLASD_E_quota_exceeded;
    bool range = known && problem->code == BLASD_E_range_not_satisfiable;
    bool allow = known && status == 405;
    bool located = known && took_job(exchange) && exchange->form.dialect == NULL;
    if (retry != NULL && known && exchange->answer.retry_s > 0) {
        snprintf(ret->retry, sizeof ret->retry, "%u", exchange->answer.retry_s);
        retry = ret->retry;
    }
    if (quota) write_quota(exchange, problem, ret);
    if (range) snprintf(ret->range, sizeof ret->range, "bytes */%" PRIu64, exchange->wanted.all);
    if (allow) method_names(exchange->allow, ret->methods, sizeof ret->methods);
    ret->rows[at++] = (struct http_header){"Retry-After", retry};
    ret->rows[at++] = (struct http_header){"RateLimit-Policy", quota ? ret->policy : NULL};
    ret->rows[at++] = (struct http_header){"RateLimit", quota ? ret->rate : NULL};
    ret->rows[at++] =
        (struct http_header){"WWW-Authenticate", status == 401 ? HTTP_CHALLENGE : NULL};
    ret->rows[at++] = (struct http_header){"Content-Range", range ? ret->range : NULL};
    ret->rows[at++] = (struct http_header){"Allow", allow ? ret->methods : NULL};
    if (located) {
        http_job_headers(exchange, exchange->id, &ret->job);
        memcpy(ret->rows + at, ret->job.rows, 3 * sizeof *ret->rows);
        at += 3;
    }
    ret->rows[at] = (struct http_header){NULL, NULL};
}

void http_reply_problem(struct http_exchange *exchange, const struct blasd_err *problem) {
    struct http_problem_headers headers;
    struct blasd_buf body;
    const char *type;
    exchange->answer.problem = *problem;
    exchange->answer.tag[0] = '\0';
    note_refusal(exchange, problem);
    blasd_buf_init(&body, 16 * BLASD_KIB);
    type = http_problem_body(exchange->form.dialect, problem, &body);
    http_problem_headers(exchange, problem, &headers);
    if (type != NULL)
        http_reply(exchange, (unsigned)blasd_err_info(problem->code)->http_status, type,
                   headers.rows, http_buf(&body));
    else
        http_exchange_answer(exchange, 500, NULL);
    blasd_buf_release(&body);
}

void http_reply_fail(struct http_exchange *exchange, enum blasd_code code, const char *field,
                     const char *fmt, ...) {
    struct blasd_err err;
    char detail[sizeof err.detail];
    va_list args;
    va_start(args, fmt);
    vsnprintf(detail, sizeof detail, fmt, args);
    va_end(args);
    blasd_fail(&err, code, field, "%s", detail);
    http_reply_problem(exchange, &err);
}

void http_reply_no_memory(struct http_exchange *exchange) {
    http_reply_fail(exchange, BLASD_E_no_space, "", "memory has run out");
}

void http_reply_document(struct http_exchange *exchange, unsigned status,
                         const struct blasd_record *record, const void *payload,
                         bool (*cut)(void *arg), void *arg) {
    uint64_t most = exchange->home->server->limits->answer_inline_elements;
    bool located = exchange->request.method == HTTP_POST, written;
    struct http_job_headers headers;
    struct blasd_buf body;
    blasd_buf_init(&body, DOCUMENT_BYTES_MAX);
    written = blasd_buf_reserve(&body, DOCUMENT_BYTES_USUAL) == 0 &&
              blasd_job_document(record, payload, most, shares(exchange), &body) == 0;
    http_job_headers(exchange, located ? record->id : NULL, &headers);
    if (cut != NULL && cut(arg))
        http_reply_fail(exchange, BLASD_E_record_expired, "", "the outputs of the job were cut");
    else if (written)
        http_reply(exchange, status, HTTP_TYPE_JSON, headers.rows, http_buf(&body));
    else
        http_reply_no_memory(exchange);
    blasd_buf_release(&body);
}

void http_reply_options(struct http_exchange *exchange) {
    char methods[64];
    const char *told = exchange->client.foreign ? methods : NULL;
    const struct http_header rows[] = {
        {"Allow", methods},
        {"Access-Control-Allow-Methods", told},
        {"Access-Control-Allow-Headers",
         told == NULL ? NULL
                      : "Authorization, Content-Type, Content-Encoding, Accept, Prefer, Range, "
                        "Idempotency-Key, Inference-Header-Content-Length, traceparent"},
        {"Access-Control-Max-Age", told == NULL ? NULL : "600"},
        {NULL, NULL}};
    method_names(exchange->allow, methods, sizeof methods);
    http_reply(exchange, 204, NULL, rows, (struct http_body){.kind = HTTP_EMPTY});
}
