/* An inference on its way: what it adds to a job's, and its answer. Read next: oip_routes.c. */
#include "http/inference.h"

#include "http/jobs.h"
#include "http/reply.h"
#include "http/upload.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define LATE_S 5 /* the job's own deadline comes first */

struct http_inference {
    struct blasd_oip oip;
    size_t header_bytes; /* of the answer's JSON; 0: it is all there is */
};

static void release(struct http_exchange *exchange) {
    struct http_inference *inference = exchange->form.inference;
    blasd_oip_release(&inference->oip);
    free(inference);
}

/* --- the request -------------------------------------------------------------------------------
 */

static int read_json_bytes(const struct http_request *request, struct blasd_oip *oip,
                           struct blasd_err *err) {
    const char *text = request->json_bytes;
    oip->has_header = text != NULL;
    if (text == NULL) return 0;
    if (!http_count_read(text, &oip->header_bytes))
        return blasd_fail(err, BLASD_E_malformed_query, "Inference-Header-Content-Length",
                          "the header is not a whole number");
    if (request->framing.chunked || request->coding != HTTP_CODING_NONE ||
        oip->header_bytes <= request->framing.content_length)
        return 0;
    return blasd_fail(err, BLASD_E_malformed_query, "Inference-Header-Content-Length",
                      "the JSON cannot be longer than the body, which has %" PRIu64 " bytes",
                      request->framing.content_length);
}

/* Makes the request one of POST /jobs that waits. */
static int translate(struct http_exchange *exchange, struct http_inference *inference,
                     struct blasd_err *err) {
    const struct blasd_limits *limits = exchange->home->server->limits;
    struct http_request *request = &exchange->request;
    int64_t wait_ms = (int64_t)limits->wait_s * 1000;
    inference->oip.wait_ms =
        wait_ms < (int64_t)limits->deadline_ms ? wait_ms : (int64_t)limits->deadline_ms;
    request->query.given |= HTTP_PARAM_WAIT;
    request->query.wait_s = (double)(limits->wait_s + LATE_S);
    request->accepts = (struct blasd_accept){0};
    request->prefer = (struct http_prefer){0};
    request->content_type =
        request->json_bytes == NULL ? HTTP_TYPE_JSON : "application/octet-stream";
    exchange->wanted.output = HTTP_ALL_OUTPUTS;
    return read_json_bytes(request, &inference->oip, err);
}

void http_inference_begin(struct http_exchange *exchange) {
    struct http_inference *inference;
    struct blasd_err err = {0};
    const struct blasd_op *op = http_oip_model_find(exchange, &err);
    if (op == NULL) {
        http_reply_problem(exchange, &err);
        return;
    }
    inference = exchange->form.inference = calloc(1, sizeof *inference);
    if (inference == NULL) {
        http_reply_no_memory(exchange);
        return;
    }
    inference->oip.op = op;
    if (translate(exchange, inference, &err) != 0)
        http_reply_problem(exchange, &err);
    else
        http_jobs_post_begin(exchange);
}

static void say_intake(struct http_exchange *exchange, struct blasd_intake_options *options) {
    options->reader = blasd_oip_reader_new;
    options->reader_arg = &exchange->form.inference->oip;
}

/* --- the answer --------------------------------------------------------------------------------
 */

static struct blasd_answer *answer(struct http_exchange *exchange,
                                   const struct blasd_record *record, const void *payload,
                                   struct blasd_err *err) {
    struct http_inference *inference = exchange->form.inference;
    return blasd_oip_answer(record, payload, &inference->oip, &inference->header_bytes, err);
}

static const char *headers(struct http_exchange *exchange, struct http_header *rows,
                           char text[80]) {
    size_t bytes = exchange->form.inference->header_bytes;
    if (bytes == 0) return HTTP_TYPE_JSON;
    snprintf(text, 80, "%zu", bytes);
    rows[0] = (struct http_header){"Inference-Header-Content-Length", text};
    rows[1] = (struct http_header){NULL, NULL};
    return "application/octet-stream";
}

const struct http_dialect http_inference_dialect = {.prefix = "/v2",
                                                    .problem_type = HTTP_TYPE_JSON,
                                                    .problem = blasd_oip_problem,
                                                    .answer = answer,
                                                    .headers = headers,
                                                    .intake = say_intake,
                                                    .release = release};
