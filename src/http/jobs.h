/* The routes' handlers, and what those about jobs share. Read next: upload.h. */
#ifndef BLASD_HTTP_JOBS_H
#define BLASD_HTTP_JOBS_H

#include "core/record.h"
#include "http/exchange.h"

/* jobs_post.c */
void http_jobs_post_begin(struct http_exchange *exchange);
void http_jobs_post_body(struct http_exchange *exchange, const void *bytes, size_t len);
void http_jobs_post_run(struct http_exchange *exchange);
bool http_jobs_post_admit(struct http_exchange *exchange, bool late);
void http_jobs_post_release(struct http_exchange *exchange);
/* jobs_submit.c: cancels what nobody can fetch any more. */
void http_jobs_post_gone(struct http_exchange *exchange, bool taken);

/* jobs_get.c */
void http_jobs_get(struct http_exchange *exchange);
void http_jobs_delete(struct http_exchange *exchange);
/* Reads the id of a route whose answer is always a document; false: it is none, and answered. */
bool http_jobs_target(struct http_exchange *exchange);
void http_jobs_result(struct http_exchange *exchange);
void http_jobs_output(struct http_exchange *exchange);

/* jobs_list.c */
void http_jobs_list(struct http_exchange *exchange);
void http_jobs_cancel(struct http_exchange *exchange);
void http_graphs_list(struct http_exchange *exchange);

/* graphs.c */
void http_graphs_post_begin(struct http_exchange *exchange);
void http_graphs_get(struct http_exchange *exchange);
void http_graphs_delete(struct http_exchange *exchange);

/* results.c */
/* Asks for the record exchange->id and answers with it as it stands. */
void http_jobs_fetch(struct http_exchange *exchange);
/* A blasd_record_fn of a held exchange: answers with the error, or the record as it stands. */
void http_result_on_record(void *arg, const struct blasd_err *err, const void *record, size_t len);
/* Answers with an error, or with a record; one that is not final only where `unended_too`. */
void http_result_record(struct http_exchange *exchange, const struct blasd_err *err,
                        const void *bytes, size_t len, bool unended_too);
/* Answers with a record, in the format and with the outputs the exchange asks for. `payload`, where
 * its outputs are not in a blob, is borrowed during the call. A record that is not final is
 * answered with 202 where the request has made the job. */
void http_result_answer(struct http_exchange *exchange, const struct blasd_record *record,
                        const char *payload);

/* Answers with the bytes of a tensor that is kept, in the format the exchange asks for. */
void http_result_tensor(struct http_exchange *exchange, const struct blasd_stored_tensor *tensor);

/* meta.c */
void http_ops_list(struct http_exchange *exchange);
void http_ops_one(struct http_exchange *exchange);
void http_devices(struct http_exchange *exchange);
/* Whether the caller may know what others have the service do. */
bool http_sees_all(const struct http_exchange *exchange);
/* What GET /devices answers, with the time, where these are the queue's stats; `all`: to who sees
 * all. New: free it; NULL: no memory. */
char *http_devices_text(const struct http_server *server, const char *stats, size_t len, bool all);
void http_health_live(struct http_exchange *exchange);
void http_health_ready(struct http_exchange *exchange);
/* Whether jobs are taken; false: answered, with why not. */
bool http_health_check(struct http_exchange *exchange);
void http_openapi(struct http_exchange *exchange);
void http_version(struct http_exchange *exchange);
/* pages.c: for people */
void http_docs(struct http_exchange *exchange);
void http_docs_style(struct http_exchange *exchange);
void http_error_page(struct http_exchange *exchange);
/* console.c */
void http_console_page(struct http_exchange *exchange);
/* event_streams.c */
void http_events_get(struct http_exchange *exchange);
/* shared_files.c */
void http_share(struct http_exchange *exchange);
/* class_load.c */
void http_load(struct http_exchange *exchange);
/* metrics.c */
void http_metrics_show(struct http_exchange *exchange);

#endif
