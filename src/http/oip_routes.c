/* The routes of the Open Inference Protocol beside inference: the server, its models, and regions
 * of shared memory. */
#include "http/inference.h"
#include "http/jobs.h"
#include "http/reply.h"

#include <jansson.h>
#include <string.h>

#define DOCUMENT_MOST (4 * BLASD_MIB)

const struct blasd_op *http_oip_model_find(struct http_exchange *exchange, struct blasd_err *err) {
    const struct blasd_op *op = blasd_op_find(exchange->captures[0]);
    const char *version = exchange->captures[1];
    bool versioned = strstr(exchange->route->path, "{version}") != NULL;
    if (op == NULL || op->composed)
        blasd_fail(err, BLASD_E_route_not_found, "",
                   "there is no model '%.63s'; POST /v2/repository/index lists them",
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

/* Answers with a document that was written, or not. */
static void reply(struct http_exchange *exchange, struct blasd_buf *body, int rc) {
    if (rc == 0)
        http_reply_buf(exchange, 200, HTTP_TYPE_JSON, body);
    else
        http_reply_fail(exchange, BLASD_E_no_space, "", "memory has run out");
    blasd_buf_release(body);
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
        reply(exchange, &body, write(op, &body));
}

void http_oip_server(struct http_exchange *exchange) {
    const struct blasd_http_options *options = exchange->home->server->options;
    struct blasd_buf body;
    blasd_buf_init(&body, DOCUMENT_MOST);
    reply(
        exchange, &body,
        blasd_oip_server(options->version == NULL ? "" : options->version, options->share, &body));
}

void http_oip_repository(struct http_exchange *exchange) {
    const struct blasd_queue_view *view = blasd_front_queues_view(exchange->home->queues);
    struct blasd_buf body;
    blasd_buf_init(&body, DOCUMENT_MOST);
    reply(exchange, &body, blasd_oip_repository(view->available && view->workers > 0, &body));
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
    http_reply_static(exchange, 200, HTTP_TYPE_JSON, live, sizeof live - 1);
}

void http_oip_ready(struct http_exchange *exchange) {
    static const char ready[] = "{\"status\":\"ready\",\"live\":true,\"ready\":true}";
    if (http_health_check(exchange))
        http_reply_static(exchange, 200, HTTP_TYPE_JSON, ready, sizeof ready - 1);
}

void http_oip_model_ready(struct http_exchange *exchange) {
    struct blasd_err err = {0};
    const struct blasd_op *op = http_oip_model_find(exchange, &err);
    struct blasd_buf body;
    if (op == NULL) {
        http_reply_problem(exchange, &err);
    } else if (http_health_check(exchange)) {
        blasd_buf_init(&body, DOCUMENT_MOST);
        reply(exchange, &body, blasd_oip_model_ready(op, &body));
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
    reply(exchange, &body, blasd_oip_statistics(op, stats, &body));
}

/* --- shared memory -----------------------------------------------------------------------------
 */

static void reply_empty(struct http_exchange *exchange) {
    static const char empty[] = "{}";
    http_reply_static(exchange, 200, HTTP_TYPE_JSON, empty, sizeof empty - 1);
}

/* The region that the path names; NULL: all of them. False: answered. */
static bool region_named(struct http_exchange *exchange, const char **name) {
    *name = strchr(exchange->route->path, '{') == NULL ? NULL : exchange->captures[0];
    if (*name == NULL || (*name)[0] != '\0') return true;
    http_reply_fail(exchange, BLASD_E_invalid_field, "name", "a region's name has at most %d bytes",
                    BLASD_OIP_REGION_MAX - 1);
    return false;
}

void http_oip_regions_body(struct http_exchange *exchange, const void *bytes, size_t len) {
    if (blasd_buf_add(&exchange->body.kept, bytes, len) != 0)
        http_reply_fail(exchange, BLASD_E_body_too_large, "", "this route takes at most %zu bytes",
                        HTTP_SMALL_BODY);
}

/* What is asked to be registered; the text of `key` is the document's. */
static int read_region(const json_t *document, const char **key, uint64_t *offset, uint64_t *bytes,
                       struct blasd_err *err) {
    const json_t *from = json_object_get(document, "offset"),
                 *size = json_object_get(document, "byte_size");
    *key = json_string_value(json_object_get(document, "key"));
    if (*key == NULL || !json_is_integer(size) || json_integer_value(size) < 1 ||
        (from != NULL && (!json_is_integer(from) || json_integer_value(from) < 0)))
        return blasd_fail(err, BLASD_E_invalid_field, "",
                          "send {\"key\":NAME,\"offset\":BYTES,\"byte_size\":BYTES}");
    *offset = from == NULL ? 0 : (uint64_t)json_integer_value(from);
    *bytes = (uint64_t)json_integer_value(size);
    return 0;
}

void http_oip_regions_register(struct http_exchange *exchange) {
    struct http_server *server = exchange->home->server;
    struct blasd_err err = {0};
    const char *name, *key;
    uint64_t offset = 0, bytes = 0;
    json_t *document;
    struct http_region_owner caller;
    int rc = 0;
    if (!region_named(exchange, &name)) return;
    if (!server->options->share)
        rc = blasd_fail(&err, BLASD_E_sharing_off, "", "the service was started without --share");
    if (rc == 0) rc = http_regions_caller(exchange, &caller, &err);
    document = json_loadb(exchange->body.kept.data == NULL ? "" : exchange->body.kept.data,
                          exchange->body.kept.len, JSON_REJECT_DUPLICATES, NULL);
    if (rc == 0) rc = read_region(document, &key, &offset, &bytes, &err);
    if (rc == 0)
        rc = http_regions_add(&server->regions, name, key, offset, bytes,
                              server->limits->shared_regions, &caller, &err);
    json_decref(document);
    if (rc == 0)
        reply_empty(exchange);
    else
        http_reply_problem(exchange, &err);
}

void http_oip_regions_unregister(struct http_exchange *exchange) {
    struct blasd_err err = {0};
    const char *name;
    struct http_region_owner caller;
    if (!region_named(exchange, &name)) return;
    if (!exchange->home->server->options->share) {
        reply_empty(exchange);
    } else if (http_regions_caller(exchange, &caller, &err) != 0) {
        http_reply_problem(exchange, &err);
    } else {
        http_regions_remove(&exchange->home->server->regions, name, &caller);
        reply_empty(exchange);
    }
}

void http_oip_regions_status(struct http_exchange *exchange) {
    struct http_server *server = exchange->home->server;
    struct blasd_err err = {0};
    struct blasd_buf body;
    const char *name;
    struct http_region_owner caller;
    if (!region_named(exchange, &name)) return;
    if (!server->options->share && name == NULL) {
        http_oip_no_regions(exchange);
        return;
    }
    if (http_regions_caller(exchange, &caller, &err) != 0) {
        http_reply_problem(exchange, &err);
    } else if (name != NULL && !http_regions_has(&server->regions, name, &caller)) {
        http_reply_fail(exchange, BLASD_E_route_not_found, "",
                        "no region '%.63s' is registered by this caller", name);
    } else {
        blasd_buf_init(&body, DOCUMENT_MOST);
        reply(exchange, &body, http_regions_write(&server->regions, name, &caller, &body));
    }
}

void http_oip_no_regions(struct http_exchange *exchange) {
    static const char none[] = "[]";
    http_reply_static(exchange, 200, HTTP_TYPE_JSON, none, sizeof none - 1);
}

void http_oip_no_unregister(struct http_exchange *exchange) {
    reply_empty(exchange);
}
