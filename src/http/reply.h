/* Making answers. Each gives the exchange its answer through http_exchange_answer. */
#ifndef BLASD_HTTP_REPLY_H
#define BLASD_HTTP_REPLY_H

#include "http/exchange.h"
#include "wire/answer.h"

#include <jansson.h>

#define HTTP_TYPE_JSON "application/json"
#define HTTP_TYPE_HTML "text/html; charset=utf-8"
/* of a 401: what to show */
#define HTTP_CHALLENGE "Bearer realm=\"blasd\""

/* `body` is taken and left empty. `type` is static text. */
void http_reply_buf(struct http_exchange *exchange, unsigned status, const char *type,
                    struct blasd_buf *body);
/* 201 with a JSON body, which is taken and left empty; `under` NULL: without Location. */
void http_reply_created(struct http_exchange *exchange, const char *under, const char *id,
                        struct blasd_buf *body);
/* Counts the body of an answer that is sent at once; of a HEAD none is. */
static inline void http_reply_sends(const struct http_exchange *exchange, size_t len) {
    if (exchange->request.method != HTTP_HEAD)
        http_count(&exchange->home->metrics->sent_bytes, len);
}
/* 200 with `document`, which is taken; NULL: memory has run out. */
void http_reply_json(struct http_exchange *exchange, json_t *document);
/* A text that is part of the program, as it is and compressed, and its tag: made by mk/page.sh. */
struct http_page {
    const char *text, *packed, *tag;
    size_t len, packed_len;
};
#define HTTP_PAGE(name)                                                                            \
    ((struct http_page){name, name##_gz, name##_tag, sizeof name - 1, sizeof name##_gz - 1})
/* Answers with a page; `headers`, ended by NULL and static, stand in place of those that go with
 * the type, where they are given. */
void http_reply_page(struct http_exchange *exchange, unsigned status, const char *type,
                     const char *const (*headers)[2], const struct http_page *page);
/* `body` must live for ever. */
void http_reply_static(struct http_exchange *exchange, unsigned status, const char *type,
                       const char *body, size_t len);
/* The value of Retry-After where the problem has one, or NULL. Static. */
const char *http_retry_after(enum blasd_code code);
/* The body of a problem; returns its Content-Type (static), or NULL where memory has run out. */
const char *http_problem_body(const struct http_dialect *dialect, const struct blasd_err *problem,
                              struct blasd_buf *body);
void http_reply_problem(struct http_exchange *exchange, const struct blasd_err *problem);
__attribute__((format(printf, 4, 5))) void http_reply_fail(struct http_exchange *exchange,
                                                           enum blasd_code code, const char *field,
                                                           const char *fmt, ...);
void http_reply_no_memory(struct http_exchange *exchange);
/* The one line that is logged about a job that was refused. */
void http_log_refused(const struct http_exchange *exchange, const struct blasd_err *problem);
/* The one about a job that the request has cancelled. */
void http_log_cancelled(const struct http_exchange *exchange, const struct blasd_record *record);
/* The one about tensors that were to be kept. */
void http_log_tensors_refused(const struct http_exchange *exchange,
                              const struct blasd_err *problem);
/* The line about each job that was taken, where such lines are wanted. */
void http_audit_job(const struct http_exchange *exchange, bool repeated);
/* The job document; payload may be NULL. The second makes it and does not answer; NULL: memory has
 * run out. New. */
void http_reply_document(struct http_exchange *exchange, unsigned status,
                         const struct blasd_record *record, const void *payload);
struct MHD_Response *http_reply_document_response(struct http_exchange *exchange, unsigned status,
                                                  const struct blasd_record *record,
                                                  const void *payload);
/* OPTIONS, and the Allow header of 405. */
void http_reply_options(struct http_exchange *exchange);

/* Adds Location, where `id` is one, and Preference-Applied, where a preference was followed. */
void http_reply_job_headers(struct http_exchange *exchange, struct MHD_Response *response,
                            const char *id);
/* Adds the headers that every answer carries. */
void http_reply_headers(struct http_exchange *exchange, struct MHD_Response *response,
                        const char *type);

#endif
