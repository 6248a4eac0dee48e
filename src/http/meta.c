/* The routes about the service itself: operations, devices, health, the contract. */
#include "base/clock.h"
#include "http/jobs.h"
#include "http/reply.h"
#include "wire/stats_load.h"

#include <jansson.h>
#include <openapi_json.h>
#include <stdlib.h>
#include <string.h>

static void show_ops(struct http_exchange *exchange, const struct blasd_op *only) {
    struct blasd_buf body;
    blasd_buf_init(&body, 16 * BLASD_MIB);
    http_reply_written(exchange, blasd_ops_document(only, &body), &body);
}

void http_ops_list(struct http_exchange *exchange) {
    show_ops(exchange, NULL);
}

void http_ops_one(struct http_exchange *exchange) {
    const struct blasd_op *op = blasd_op_find(exchange->captures[0]);
    if (op == NULL || op->composed)
        http_reply_fail(exchange, BLASD_E_route_not_found, "", "unknown operation '%s'",
                        exchange->captures[0]);
    else
        show_ops(exchange, op);
}

/* Each "cuda:0: why" as {"device":"cuda:0","reason":"why"}. New reference. */
static json_t *list_unusable(const char *const *texts) {
    json_t *list = json_array();
    for (; texts != NULL && *texts != NULL; texts++) {
        const char *colon = strstr(*texts, ": ");
        if (colon == NULL) continue;
        json_array_append_new(list, json_pack("{s:s%, s:s}", "device", *texts,
                                              (size_t)(colon - *texts), "reason", colon + 2));
    }
    return list;
}

bool http_sees_all(const struct http_exchange *exchange) {
    enum blasd_role role = exchange->caller.role;
    return role == BLASD_ROLE_ADMIN || role == BLASD_ROLE_METRICS;
}

/* Of what a worker says of itself, what tells nothing of work. */
static json_t *without_work(json_t *info) {
    static const char *const names[] = {
        "device", "device_name",    "class",          "units",         "memory_bytes",
        "blas",   "gflops_float64", "gflops_float32", "copy_gbytes_s", "cost",
        "id",     "host",           "uptime_s",       "ops",           "host_memory_bytes"};
    json_t *device = json_object();
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        json_object_set(device, names[i], json_object_get(info, names[i]));
    return device;
}

/* {"workers":{NAME:INFO}} becomes {"devices":[INFO with "worker":NAME]}. New reference. */
static json_t *list_devices(const char *text, size_t len, const char *const *unusable, bool all) {
    json_t *stats = blasd_stats_load(text, len);
    json_t *devices = json_array(), *document = json_object();
    const char *name;
    json_t *info;
    json_object_foreach(json_object_get(stats, "workers"), name, info) {
        json_t *device = all && json_is_object(info) ? json_copy(info) : without_work(info);
        json_object_del(device, "pid"); /* of use on its own machine alone */
        json_object_set_new(device, "worker", json_string(name));
        json_array_append_new(devices, device);
    }
    json_object_set_new(document, "devices", devices);
    json_object_set_new(document, "unusable", list_unusable(unusable));
    if (all) json_object_set(document, "queue", json_object_get(stats, "queue"));
    if (all) json_object_set(document, "totals", json_object_get(stats, "totals"));
    json_decref(stats);
    return document;
}

static void on_stats(void *arg, const struct blasd_err *err, const char *text, size_t len) {
    struct http_exchange *exchange = arg;
    if (http_exchange_open(exchange)) {
        if (err != NULL)
            http_reply_problem(exchange, err);
        else
            http_reply_json(
                exchange, list_devices(text, len, exchange->home->server->options->unusable_devices,
                                       http_sees_all(exchange)));
    }
    http_exchange_release(exchange);
}

void http_devices(struct http_exchange *exchange) {
    http_exchange_hold(exchange);
    blasd_front_queue_figures(http_queue(exchange), &(struct blasd_figures_query){0}, on_stats,
                              exchange);
}

char *http_devices_text(const struct http_server *server, const char *stats, size_t len, bool all) {
    json_t *document = list_devices(stats, len, server->options->unusable_devices, all);
    json_object_set_new(document, "time_ms", json_integer(blasd_clock_wall_us() / 1000));
    char *text = document == NULL ? NULL : json_dumps(document, JSON_COMPACT);
    json_decref(document);
    return text;
}

void http_health_live(struct http_exchange *exchange) {
    static const char live[] = "{\"status\":\"live\"}";
    http_reply(exchange, 200, HTTP_TYPE_JSON, NULL, http_text(live, sizeof live - 1));
}

bool http_health_check(struct http_exchange *exchange) {
    const struct blasd_queue_view *view = blasd_front_queue_view(http_queue(exchange));
    if (exchange->home->stopping.draining)
        http_reply_fail(exchange, BLASD_E_draining, "", "the service takes no new jobs");
    else if (!view->available)
        http_reply_problem(exchange, view->trouble);
    else if ((uint64_t)view->workers < exchange->home->server->limits->ready_workers)
        http_reply_fail(exchange, BLASD_E_queue_unavailable, "",
                        "%d workers are alive (limit ready_workers)", view->workers);
    else if (atomic_load(&exchange->home->server->store_fails))
        http_reply_fail(exchange, BLASD_E_no_space, "",
                        "the blob store cannot be written: it is full or read-only");
    else
        return true;
    return false;
}

void http_health_ready(struct http_exchange *exchange) {
    static const char ready[] = "{\"status\":\"ready\"}";
    const char *told = blasd_front_queue_view(http_queue(exchange))->limits_told;
    if (!http_health_check(exchange)) return;
    if (told[0] != '\0')
        http_reply_json(exchange, json_pack("{s:s,s:s}", "status", "ready", "limits", told));
    else
        http_reply(exchange, 200, HTTP_TYPE_JSON, NULL, http_text(ready, sizeof ready - 1));
}

void http_version(struct http_exchange *exchange) {
    const char *version = exchange->home->server->options->version;
    http_reply_json(exchange, json_pack("{s:s}", "version", version == NULL ? "" : version));
}

void http_openapi(struct http_exchange *exchange) {
    http_reply_page(exchange, 200, HTTP_TYPE_JSON, NULL, &HTTP_PAGE(openapi_json));
}
