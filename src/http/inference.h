/* Requests of the Open Inference Protocol: POST /v2/models/NAME/infer is POST /jobs with a body of
 * another form, and an answer of another form from the same record. The other routes under /v2 tell
 * of the models. Read next: ../oip/oip.h. */
#ifndef BLASD_HTTP_INFERENCE_H
#define BLASD_HTTP_INFERENCE_H

#include "http/exchange.h"
#include "oip/oip.h"
#include "wire/intake.h"

extern const struct http_dialect http_inference_dialect;

/* The model that the path names; NULL with `err` filled where there is none, or not that version.
 */
const struct blasd_op *http_oip_model_find(struct http_exchange *exchange, struct blasd_err *err);

/* The routes. */
void http_inference_begin(struct http_exchange *exchange); /* then those of jobs.h */
void http_oip_live(struct http_exchange *exchange);
void http_oip_ready(struct http_exchange *exchange);
void http_oip_server(struct http_exchange *exchange);
void http_oip_repository(struct http_exchange *exchange);
void http_oip_model(struct http_exchange *exchange);
void http_oip_model_ready(struct http_exchange *exchange);
void http_oip_config(struct http_exchange *exchange);
void http_oip_statistics(struct http_exchange *exchange);

#endif
