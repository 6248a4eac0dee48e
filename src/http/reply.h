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

/* A header of one answer; a list of them ends with a row that has no name, and a row without a
 * value is passed over. Borrowed during the call. */
struct http_header {
    const char *name, *value;
};

/* What an answer carries. */
struct http_body {
    enum { HTTP_EMPTY, HTTP_TEXT, HTTP_BUF, HTTP_PIECES } kind;
    const char *text;      /* a part of the program, */
    size_t len;            /* of so many bytes */
    struct blasd_buf *buf; /* taken, and left empty */
    /* or pieces of at most `block` bytes, in all `size` or, where that is negative, nobody knows */
    MHD_ContentReaderCallback read;
    MHD_ContentReaderFreeCallback release; /* called in any case */
    void *cls;
    int64_t size;
    size_t block;
};

static inline struct http_body http_text(const char *text, size_t len) {
    return (struct http_body){.kind = HTTP_TEXT, .text = text, .len = len};
}
static inline struct http_body http_buf(struct blasd_buf *buf) {
    return (struct http_body){.kind = HTTP_BUF, .buf = buf};
}

/* Gives the exchange its answer, with `headers` (or NULL) and those that every answer has, unless
 * `headers` has them. Where memory runs out the answer is that problem; where it has run out
 * altogether the connection is closed. `type` is static text, or NULL. */
void http_reply(struct http_exchange *exchange, unsigned status, const char *type,
                const struct http_header *headers, struct http_body body);
/* 200 with `document`, which is taken; NULL: memory has run out. */
void http_reply_json(struct http_exchange *exchange, json_t *document);
/* 200 with a JSON text that was written into `body`, or (`failed`) could not be; released. */
void http_reply_written(struct http_exchange *exchange, int failed, struct blasd_buf *body);
/* A text that is part of the program, as it is and compressed, and its tag: made by mk/page.sh. */
struct http_page {
    const char *text, *packed, *tag;
    size_t len, packed_len;
};
#define HTTP_PAGE(name)                                                                            \
    ((struct http_page){name, name##_gz, name##_tag, sizeof name - 1, sizeof name##_gz - 1})
void http_reply_page(struct http_exchange *exchange, unsigned status, const char *type,
                     const struct http_header *headers, const struct http_page *page);
/* Room for what headers about a job say. */
struct http_job_headers {
    struct http_header rows[5];
    char where[64], wait[32];
};
/* Location, where `id` is one; Preference-Applied, where a preference was followed; Vary. */
void http_job_headers(const struct http_exchange *exchange, const char *id,
                      struct http_job_headers *ret);

/* Room for the headers of a problem. */
struct http_problem_headers {
    struct http_header rows[10];
    char retry[16], policy[64], rate[64], range[48], methods[64];
    struct http_job_headers job;
};
/* The headers of a problem; `exchange` NULL: those that follow from it alone. */
void http_problem_headers(const struct http_exchange *exchange, const struct blasd_err *problem,
                          struct http_problem_headers *ret);
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
/* The job document; payload may be NULL. `cut`, where it is not NULL, says whether what `payload`
 * points to was cut meanwhile: then the answer is that. */
void http_reply_document(struct http_exchange *exchange, unsigned status,
                         const struct blasd_record *record, const void *payload,
                         bool (*cut)(void *arg), void *arg);
/* OPTIONS. */
void http_reply_options(struct http_exchange *exchange);

#endif
