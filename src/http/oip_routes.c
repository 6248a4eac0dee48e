/* The routes of the Open Inference Protocol beside inference: the server and its models. */
#include "http/inference.h"
#include "http/jobs.h"
#include "http/reply.h"

#include <string.h>

#define DOCUMENT_MOST (4 * BLASD_MIB)

const struct blasd_op *http_oip_model_find(struct http_exchange *exchange, struct blasd_err *err) {
    const struct blasd_op *op = blasd_op_find(exchange->captures[0]);
    const char *version = exchange->captures[1];
    bool versioned = strstr(exchange->route->path, "{version}") != NULL;
    if (op == NULL || op->composed)
        blasd_fail(err, BLASD_E_route_not_found, "",
                   "unknown model '%.63s'; POST /v2/repository/index lists them",
                   exchange->captures[0]);
    else if (versioned && strcmp(version, BLASD_OIP_VERSION) != 0)
        blasd_fail(err, BLASD_E_route_not_found, "",
                   "the model '%s' has no version '%.63s', only " BLASD_OIP_VERSION, op->name,
                   version);
    else {
        exchange->captures[1][0] = '\0'; /* no output's name */
        return op;
    }
    return NULL;
}

/* Answers with what `write` makes of the model that the path names. */
static void reply_model(struct http_exchange *exchange,
                        int (*write)(const struct blasd_op *op, struct blasd_buf *out)) {
    struct blasd_err err = {0};
    const struct blasd_op *op = http_oip_model_find(exchange, &err);
    struct blasd_buf body;
    blasd_buf_init(&body, DOCUMENT_MOST);
    if (op == NULL)
        http_reply_problem(exchange, &err);
    else
        http_reply_written(exchange, write(op, &body), &body);
}

void http_oip_server(struct http_exchange *exchange) {
    const struct blasd_http_options *options = exchange->home->server->options;
    struct blasd_buf body;
    blasd_buf_init(&body, DOCUMENT_MOST);
    http_reply_written(
        exchange, blasd_oip_server(options->version == NULL ? "" : options->version, &body), &body);
}

void http_oip_repository(struct http_exchange *exchange) {
    const struct blasd_queue_view *view = blasd_front_queue_view(http_queue(exchange));
    struct blasd_buf body;
    blasd_buf_init(&body, DOCUMENT_MOST);
    http_reply_written(exchange, blasd_oip_repository(view->available && view->workers > 0, &body),
                       &body);
}

void http_oip_model(struct http_exchange *exchange) {
    reply_model(exchange, blasd_oip_model);
}

void http_oip_config(struct http_exchange *exchange) {
    reply_model(exchange, blasd_oip_config);
}

/* Some clients go by the status of these answers, others by what is in them. */
void http_oip_live(struct http_exchange *exchange) {
    static const char live[] = "{\"status\":\"live\",\"live\":true}";
    http_reply(exchange, 200, HTTP_TYPE_JSON, NULL, http_text(live, sizeof live - 1));
}

void http_oip_ready(struct http_exchange *exchange) {
    static const char ready[] = "{\"status\":\"ready\",\"live\":true,\"ready\":true}";
    if (http_health_check(exchange))
        http_reply(exchange, 200, HTTP_TYPE_JSON, NULL, http_text(ready, sizeof ready - 1));
}

void http_oip_model_ready(struct http_exchange *exchange) {
    struct blasd_err err = {0};
    const struct blasd_op *op = http_oip_model_find(exchange, &err);
    struct blasd_buf body;
    if (op == NULL) {
        http_reply_problem(exchange, &err);
    } else if (http_health_check(exchange)) {
        blasd_buf_init(&body, DOCUMENT_MOST);
        http_reply_written(exchange, blasd_oip_model_ready(op, &body), &body);
    }
}

void http_oip_statistics(struct http_exchange *exchange) {
    struct blasd_oip_stats stats[BLASD_OPS_MOST] = {0};
    struct blasd_err err = {0};
    const struct blasd_op *op = NULL;
    struct blasd_buf body;
    if (strchr(exchange->route->path, '{') != NULL &&
        (op = http_oip_model_find(exchange, &err)) == NULL) {
        http_reply_problem(exchange, &err);
        return;
    }
    for (int i = 0; blasd_ops[i] != NULL; i++)
        http_metrics_op(exchange->home->server, i, &stats[i]);
    blasd_buf_init(&body, DOCUMENT_MOST);
    http_reply_written(exchange, blasd_oip_statistics(op, stats, &body), &body);
}
