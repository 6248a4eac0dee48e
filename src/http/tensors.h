/* The routes of tensors that are kept, and the references to them in jobs. */
#ifndef BLASD_HTTP_TENSORS_H
#define BLASD_HTTP_TENSORS_H

#include "http/exchange.h"
#include "http/upload.h"

/* tensors_post.c */
void http_tensors_post_begin(struct http_exchange *exchange);
void http_tensors_post_body(struct http_exchange *exchange, const void *bytes, size_t len);
void http_tensors_post_run(struct http_exchange *exchange);
/* tensors_get.c */
void http_tensors_list(struct http_exchange *exchange);
void http_tensors_get(struct http_exchange *exchange);
void http_tensors_patch_body(struct http_exchange *exchange, const void *bytes, size_t len);
void http_tensors_patch(struct http_exchange *exchange);
void http_tensors_delete(struct http_exchange *exchange);

/* references.c: looks up what the inputs of upload->job refer to, describes them there, and brings
 * what lies in no blob into the upload's sink. `done` comes once, with the exchange, which is held
 * till then. 0, or a negative code where it does not come. */
int http_references_resolve(struct http_upload *upload,
                            void (*done)(void *arg, const struct blasd_err *err),
                            struct blasd_err *err);

#endif
