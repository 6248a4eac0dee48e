/* The routes' handlers, and what those about jobs share. Read next: upload.h. */
#ifndef BLASD_HTTP_JOBS_H
#define BLASD_HTTP_JOBS_H

#include "core/record.h"
#include "http/exchange.h"

/* jobs_post.c */
void http_jobs_post_begin(struct http_exchange *exchange);
void http_jobs_post_body(struct http_exchange *exchange, const void *bytes, size_t len);
void http_jobs_post_run(struct http_exchange *exchange);
/* The body has been coming for a while. Called a few times a second. */
void http_jobs_post_slow(struct http_exchange *exchange);
/* Bytes of a struct http_upload, for who keeps memory for them. */
size_t http_upload_bytes(void);
void http_upload_free(struct http_upload *upload); /* takes NULL */
/* For who waits at the gate: takes the job in or answers with a refusal; false where there is no
 * room yet and it is not `late`. */
bool http_jobs_post_try(struct http_exchange *exchange, bool late);

/* jobs_submit.c */
/* A wait is over and the answer is the record as it stands; false where the submission is still
 * under way, which then sees to it. */
bool http_upload_submitted(const struct http_exchange *exchange);
/* The client left before the answer: cancels what nobody can fetch any more. */
void http_jobs_post_gone(struct http_exchange *exchange);

/* jobs_get.c */
void http_jobs_get(struct http_exchange *exchange);
void http_jobs_delete(struct http_exchange *exchange);
void http_jobs_list(struct http_exchange *exchange);
void http_jobs_result(struct http_exchange *exchange);
void http_jobs_output(struct http_exchange *exchange);
/* Asks for the record exchange->id and answers with it as it stands. */
void http_jobs_fetch(struct http_exchange *exchange);

/* results.c */
/* The payload of `record`, which came with it at `beside`, or lies in a slice and is copied to the
 * loop's scratch, or is NULL: it lies in a blob, or nobody needs it. record_expired, no_space. */
int http_result_payload(struct http_exchange *exchange, const struct blasd_record *record,
                        const char *beside, const char **payload, struct blasd_err *err);
/* Answers with a record, in the format and with the outputs the exchange asks for. `payload`, where
 * its outputs are not in a blob, is borrowed during the call. A record that is not final is
 * answered with `unended`, one that is with 200. */
void http_result_answer(struct http_exchange *exchange, unsigned unended,
                        const struct blasd_record *record, const char *payload);

/* meta.c */
void http_ops_list(struct http_exchange *exchange);
void http_ops_one(struct http_exchange *exchange);
void http_devices(struct http_exchange *exchange);
void http_health_live(struct http_exchange *exchange);
void http_health_ready(struct http_exchange *exchange);
void http_openapi(struct http_exchange *exchange);
/* share.c */
void http_share(struct http_exchange *exchange);
/* metrics.c */
void http_metrics_show(struct http_exchange *exchange);

#endif
