/* Making answers of documents and problems. Read next: results.c, for answers that carry tensors.
 */
#include "http/reply.h"

#include "base/clock.h"
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

/* Which of its tenant's quotas is used up. */
static void add_quota(const struct http_exchange *exchange, const struct blasd_err *problem,
                      struct MHD_Response *response) {
    struct blasd_quotas quotas =
        blasd_front_queue_quotas(http_queue(exchange), &exchange->caller.principal);
    bool jobs = strcmp(problem->field, "jobs") == 0, bytes = strcmp(problem->field, "bytes") == 0;
    const char *name = jobs ? "queued-jobs" : bytes ? "queued-bytes" : "stored-bytes";
    uint64_t most = jobs ? quotas.jobs : bytes ? quotas.bytes : quotas.stored_bytes;
    char text[64];
    snprintf(text, sizeof text, "\"%s\";q=%" PRIu64, name, most);
    add(response, "RateLimit-Policy", text);
    snprintf(text, sizeof text, "\"%s\";r=0;t=%s", name, http_retry_after(problem->code));
    add(response, "RateLimit", text);
}

void http_reply_headers(struct http_exchange *exchange, struct MHD_Response *response,
                        const char *type) {
    if (type != NULL) add(response, "Content-Type", type);
    if (type != NULL && strcmp(type, HTTP_TYPE_HTML) == 0) add(response, PAGE_POLICY);
    /* what is read by GET is for the caller alone, and changes unless it has a tag */
    if (type != NULL && (exchange->request.method & (HTTP_GET | HTTP_HEAD)) != 0)
        add(response, "Cache-Control",
            exchange->answer.tag[0] != '\0' ? "private, no-cache" : "no-store");
    if (exchange->home->stopping.draining || exchange->request.framing.ambiguous)
        add(response, "Connection", "close");
    add(response, "Request-Id", http_request_id(exchange));
    add_rate(exchange, response);
    if (!exchange->foreign) return;
    add(response, "Access-Control-Allow-Origin", exchange->request.origin);
    add(response, "Access-Control-Expose-Headers",
        "Location, Retry-After, Preference-Applied, Request-Id, RateLimit, RateLimit-Policy, "
        "WWW-Authenticate, Accept-Ranges, Content-Range, ETag, Inference-Header-Content-Length");
    add(response, "Vary", "Origin");
}

/* Whether the client wants to be told where its outputs lie, and may be. */
static bool shares(const struct http_exchange *exchange) {
    return exchange->request.prefer.share && exchange->home->server->options->share;
}

void http_reply_job_headers(struct http_exchange *exchange, struct MHD_Response *response,
                            const char *id) {
    bool preferred;
    char text[64];
    double wait = http_request_wait(&exchange->request, exchange->home->server->limits, &preferred);
    if (id != NULL) {
        blasd_text_join(text, sizeof text, exchange->form.graph ? "/graphs/" : "/jobs/", id, NULL);
        add(response, "Location", text);
    }
    if (preferred) {
        snprintf(text, sizeof text, "wait=%.6g", wait);
        add(response, "Preference-Applied", text);
    } else if (exchange->request.prefer.async && !(wait > 0)) {
        add(response, "Preference-Applied", "respond-async");
    }
    if (shares(exchange)) add(response, "Preference-Applied", "share");
}

/* A response of a body that was written, or not; takes the body over. NULL: without a body, then.
 */
static struct MHD_Response *response_of(struct http_exchange *exchange, struct blasd_buf *body,
                                        bool written, const char *type) {
    struct MHD_Response *response = NULL;
    struct blasd_err full = {0};
    if (written && body->account == NULL && body->len > UNCOUNTED_BYTES &&
        http_exchange_reserve(exchange, body->cap, &full) != 0)
        written = false;
    if (written)
        response = MHD_create_response_from_buffer(body->len, body->data, MHD_RESPMEM_MUST_FREE);
    if (response == NULL) {
        blasd_buf_release(body);
        if (full.code != BLASD_OK) http_reply_problem(exchange, &full); /* the answer is that one */
        return NULL;
    }
    exchange->answer.whole = body->len > 0;
    http_reply_sends(exchange, body->len);
    http_reply_headers(exchange, response, type);
    return response;
}

void http_reply_buf(struct http_exchange *exchange, unsigned status, const char *type,
                    struct blasd_buf *body) {
    struct MHD_Response *response = response_of(exchange, body, true, type);
    blasd_buf_init(body, body->max);
    http_exchange_answer(exchange, status, response);
}

void http_reply_created(struct http_exchange *exchange, const char *under, const char *id,
                        struct blasd_buf *body) {
    struct MHD_Response *response = response_of(exchange, body, true, HTTP_TYPE_JSON);
    char text[64];
    if (response != NULL && under != NULL) {
        blasd_text_join(text, sizeof text, under, id, NULL);
        add(response, "Location", text);
    }
    http_exchange_answer(exchange, 201, response);
}

void http_reply_json(struct http_exchange *exchange, json_t *document) {
    char *text =
        document == NULL ? NULL : json_dumps(document, JSON_COMPACT | JSON_REAL_PRECISION(9));
    struct blasd_buf body;
    blasd_buf_init(&body, 64 * BLASD_MIB);
    if (text == NULL || blasd_buf_puts(&body, text) != 0)
        http_reply_no_memory(exchange);
    else
        http_reply_buf(exchange, 200, HTTP_TYPE_JSON, &body);
    blasd_buf_release(&body);
    free(text);
    json_decref(document);
}

void http_reply_static(struct http_exchange *exchange, unsigned status, const char *type,
                       const char *body, size_t len) {
    struct MHD_Response *response =
        MHD_create_response_from_buffer(len, (void *)(uintptr_t)body, MHD_RESPMEM_PERSISTENT);
    if (response != NULL) {
        http_reply_sends(exchange, len);
        http_reply_headers(exchange, response, type);
    }
    http_exchange_answer(exchange, status, response);
}

void http_reply_page(struct http_exchange *exchange, unsigned status, const char *type,
                     const char *const (*headers)[2], const struct http_page *page) {
    bool packed = exchange->request.takes_gzip;
    size_t len = packed ? page->packed_len : page->len;
    struct MHD_Response *response = MHD_create_response_from_buffer(
        len, (void *)(uintptr_t)(packed ? page->packed : page->text), MHD_RESPMEM_PERSISTENT);
    blasd_text_join(exchange->answer.tag, sizeof exchange->answer.tag, page->tag, NULL, NULL);
    if (response != NULL) {
        http_reply_sends(exchange, len);
        http_reply_headers(exchange, response, headers == NULL ? type : NULL);
        if (headers != NULL) add(response, "Content-Type", type);
        if (packed) add(response, "Content-Encoding", "gzip");
        add(response, "Vary", "Accept-Encoding");
    }
    for (; response != NULL && headers != NULL && (*headers)[0] != NULL; headers++)
        add(response, (*headers)[0], (*headers)[1]);
    http_exchange_answer(exchange, status, response);
}

const char *http_retry_after(enum blasd_code code) {
    const struct blasd_err_info *info = blasd_err_info(code);
    if (!info->retry || (info->http_status != 429 && info->http_status != 503)) return NULL;
    switch (code) {
    case BLASD_E_draining: return "5";
    case BLASD_E_queue_unavailable: return "2";
    case BLASD_E_disk_full: return "10";
    default: return "1";
    }
}

static const char *retry_after(const struct http_exchange *exchange, enum blasd_code code,
                               char text[16]) {
    if (exchange->answer.retry_s == 0) return http_retry_after(code);
    snprintf(text, 16, "%u", exchange->answer.retry_s);
    return text;
}

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
    return exchange->upload != NULL && exchange->upload->submitted;
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

void http_reply_problem(struct http_exchange *exchange, const struct blasd_err *problem) {
    const struct blasd_err_info *info = blasd_err_info(problem->code);
    unsigned status = (unsigned)info->http_status;
    struct MHD_Response *response;
    struct blasd_buf body;
    const char *type;
    char seconds[16];
    exchange->answer.problem = *problem;
    exchange->answer.tag[0] = '\0';
    blasd_buf_init(&body, 16 * BLASD_KIB);
    type = http_problem_body(exchange->form.dialect, problem, &body);
    response = response_of(exchange, &body, type != NULL, type);
    if (response != NULL && http_retry_after(problem->code) != NULL)
        add(response, "Retry-After", retry_after(exchange, problem->code, seconds));
    if (response != NULL && problem->code == BLASD_E_quota_exceeded)
        add_quota(exchange, problem, response);
    if (response != NULL && status == 401) add(response, "WWW-Authenticate", HTTP_CHALLENGE);
    note_refusal(exchange, problem);
    if (response != NULL && took_job(exchange) && exchange->form.dialect == NULL)
        http_reply_job_headers(exchange, response, exchange->id); /* where its document is */
    if (response != NULL && problem->code == BLASD_E_range_not_satisfiable) {
        char range[48];
        snprintf(range, sizeof range, "bytes */%" PRIu64, exchange->wanted.all);
        add(response, "Content-Range", range);
    }
    if (response != NULL && status == 405) {
        char methods[64];
        method_names(exchange->allow, methods, sizeof methods);
        add(response, "Allow", methods);
    }
    http_exchange_answer(exchange, status, response);
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

struct MHD_Response *http_reply_document_response(struct http_exchange *exchange, unsigned status,
                                                  const struct blasd_record *record,
                                                  const void *payload) {
    struct MHD_Response *response;
    struct blasd_buf body;
    bool located = exchange->request.method == HTTP_POST || status == 202, written;
    blasd_buf_init(&body, DOCUMENT_BYTES_MAX);
    written =
        blasd_buf_reserve(&body, DOCUMENT_BYTES_USUAL) == 0 &&
        blasd_job_document(record, payload, exchange->home->server->limits->answer_inline_elements,
                           shares(exchange), &body) == 0;
    response = response_of(exchange, &body, written, HTTP_TYPE_JSON);
    if (response != NULL) http_reply_job_headers(exchange, response, located ? record->id : NULL);
    if (response != NULL) add(response, "Vary", "Accept");
    return response;
}

void http_reply_document(struct http_exchange *exchange, unsigned status,
                         const struct blasd_record *record, const void *payload) {
    http_exchange_answer(exchange, status,
                         http_reply_document_response(exchange, status, record, payload));
}

void http_reply_options(struct http_exchange *exchange) {
    struct MHD_Response *response =
        MHD_create_response_from_buffer(0, NULL, MHD_RESPMEM_PERSISTENT);
    if (response != NULL) {
        char methods[64];
        method_names(exchange->allow, methods, sizeof methods);
        http_reply_headers(exchange, response, NULL);
        add(response, "Allow", methods);
        if (exchange->foreign) {
            add(response, "Access-Control-Allow-Methods", methods);
            add(response, "Access-Control-Allow-Headers",
                "Authorization, Content-Type, Content-Encoding, Accept, Prefer, Range, "
                "Idempotency-Key, Inference-Header-Content-Length, traceparent");
            add(response, "Access-Control-Max-Age", "600");
        }
    }
    http_exchange_answer(exchange, 204, response);
}
