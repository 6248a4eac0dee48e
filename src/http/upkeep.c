/* Ticks, and what the first loop sees to for all. */
#include "http/upkeep.h"

#include "base/clock.h"
#include "base/container.h"
#include "base/id.h"
#include "base/log.h"
#include "http/dispatch.h"
#include "http/event_streams.h"
#include "http/exchange.h"
#include "http/timeouts.h"
#include "http/tls.h"

#include <stdio.h>

#define TRIED_BYTES 65536 /* of the store, each second */
#define TICK_NS INT64_C(200000000)
#define SERVING_NS INT64_C(10000000)
#define SLOW_TICKS 5
#define CHECK_TICKS 2                     /* a client that has left is dropped at the second look */
#define QUEUE_DOWN_NS INT64_C(1000000000) /* before it is worth a word */
#define QUEUE_AGAIN_NS INT64_C(10000000000) /* between two of them */
#define INTAKE_LEAST (64 * BLASD_MIB)       /* what may be received however full the store is */

/* Writes a small blob and removes it, as /health/ready wants to know whether that is possible. */
static void try_store(struct http_server *server) {
    char id[BLASD_ID_LEN + 1], name[BLASD_BLOB_NAME];
    struct blasd_blob blob = {.fd = -1};
    struct blasd_err err = {0};
    bool fails;
    if (blasd_store_kind(server->store) != BLASD_STORE_DIR) return;
    blasd_id_new(BLASD_ID_ASYNC, blasd_clock_wall_us(), id);
    snprintf(name, sizeof name, "%s.in", id);
    fails = blasd_blob_create(server->store, name, &blob, &err) != 0 ||
            blasd_blob_grow(&blob, TRIED_BYTES, &err) != 0;
    if (blob.fd >= 0) blasd_blob_remove(&blob);
    if (fails != atomic_exchange(&server->store_fails, fails))
        blasd_log(fails ? BLASD_LOG_ERROR : BLASD_LOG_INFO, "the blob store %s: %s",
                  fails ? "cannot be written" : "can be written again",
                  fails ? err.detail : blasd_store_path(server->store));
}

static void measure_intake(struct http_server *server) {
    uint64_t limit = server->limits->intake_bytes, free_bytes, all_bytes;
    blasd_store_trim(server->store);
    blasd_store_space(server->store, &free_bytes, &all_bytes);
    try_store(server);
    if (limit == 0) limit = free_bytes / 2 < INTAKE_LEAST ? INTAKE_LEAST : free_bytes / 2;
    atomic_store_explicit(&server->store_free, free_bytes, memory_order_relaxed);
    atomic_store_explicit(&server->store_all, all_bytes, memory_order_relaxed);
    http_account_limit(&server->intake, limit);
}

static void tell_of_queue(struct http_loop *loop) {
    struct http_server *server = loop->server;
    const struct blasd_queue_view *view = blasd_front_queue_view(loop->queue);
    int64_t now = blasd_loop_now(loop->loop);
    if (view->available) {
        bool told = server->queue_told.told_ns != 0;
        server->queue_told.down_ns = server->queue_told.told_ns = 0;
        if (!told && server->queue_told.taken) return;
        server->queue_told.taken = true;
        server->options->on_queue(server->options->arg, NULL);
        return;
    }
    if (server->queue_told.down_ns == 0) server->queue_told.down_ns = now;
    if (now - server->queue_told.down_ns < QUEUE_DOWN_NS || loop->stopping.draining) return;
    if (server->queue_told.told_ns != 0 && now - server->queue_told.told_ns < QUEUE_AGAIN_NS)
        return;
    server->queue_told.told_ns = now;
    server->options->on_queue(server->options->arg, view->trouble);
}

/* Asked often, for somebody waits for the service to start. */
static void look_serving(struct blasd_timer *timer) {
    struct http_server *server = blasd_container_of(timer, struct http_server, serving);
    struct http_loop *loop = &server->loops[0];
    const struct blasd_queue_view *view = blasd_front_queue_view(loop->queue);
    if (loop->stopping.draining) return;
    if (view->available && view->workers > 0)
        server->options->on_serving(server->options->arg);
    else
        (void)blasd_loop_timer_set(loop->loop, timer, blasd_loop_now(loop->loop) + SERVING_NS);
}

/* A loop that stands still, or can accept no connection, keeps its clients waiting: then the whole
 * gives no sign of life. */
static void give_sign(struct http_server *server) {
    const struct blasd_http_options *options = server->options;
    bool all = true;
    for (int i = 0; i < options->loops; i++)
        if (atomic_load(&server->loops[i].ticking.count) == server->loops[i].ticking.seen ||
            server->loops[i].acceptor.starved)
            all = false;
    if (!all) return;
    for (int i = 0; i < options->loops; i++)
        server->loops[i].ticking.seen = atomic_load(&server->loops[i].ticking.count);
    if (options->on_alive != NULL) options->on_alive(options->arg);
}

/* Each change of a key has a line, however many come at once. */
static void key_changed(void *arg, const char *what, const struct blasd_identity *caller) {
    const struct blasd_log_field fields[] = {{"key", caller->name, false},
                                             {"tenant", caller->principal.tenant, false},
                                             {"role", blasd_role_names[caller->role], false}};
    char event[16];
    (void)arg;
    snprintf(event, sizeof event, "key %s", what);
    blasd_log_event(BLASD_LOG_INFO, event, fields, sizeof fields / sizeof *fields);
}

static void reread_keys(struct http_server *server) {
    struct blasd_err err = {0};
    int rc = server->options->auth == NULL ? 0 : blasd_auth_refresh(server->options->auth, &err);
    if (rc > 0)
        blasd_log(BLASD_LOG_INFO, "the keys have changed: %zu are in force",
                  blasd_auth_keys(server->options->auth));
    if (rc < 0) blasd_log(BLASD_LOG_ERROR, "%s", err.detail);
}

static void on_tick(struct blasd_timer *timer) {
    struct http_loop *loop = blasd_container_of(timer, struct http_loop, ticking.timer);
    http_acceptor_tick(&loop->acceptor);
    loop->ticking.count++;
    if (loop == &loop->server->loops[0] && loop->ticking.count % SLOW_TICKS == 0) {
        measure_intake(loop->server);
        reread_keys(loop->server);
        give_sign(loop->server);
    }
    if (loop == &loop->server->loops[0] && loop->server->options->on_queue != NULL)
        tell_of_queue(loop);
    if (loop == &loop->server->loops[0]) http_event_streams_tick(loop);
    if (loop->ticking.count % SLOW_TICKS == 0) blasd_log_job_tick();
    if (loop->ticking.count % CHECK_TICKS == 0) http_timeouts_check(loop);
    http_placement_tick(loop);
    BLASD_LIST_EACH(node, &loop->exchanges)
    http_exchange_check(blasd_container_of(node, struct http_exchange, node));
    (void)blasd_loop_timer_set(loop->loop, timer, blasd_loop_now(loop->loop) + TICK_NS);
}

void http_upkeep_reread(struct http_server *server) {
    struct blasd_err err = {0};
    reread_keys(server);
    if (server->tls == NULL) return;
    if (http_tls_reread(server->tls, &err) == 0)
        blasd_log(BLASD_LOG_INFO, "the certificate was read again");
    else
        blasd_log(BLASD_LOG_ERROR, "%s; the certificate stays as it was", err.detail);
}

void http_upkeep_start(struct http_loop *loop) {
    loop->ticking.timer.fire = on_tick;
    on_tick(&loop->ticking.timer);
}

void http_upkeep_serving(struct http_server *server) {
    server->serving.fire = look_serving;
    if (server->options->on_serving != NULL) look_serving(&server->serving);
}

void http_upkeep_open(struct http_server *server) {
    if (server->options->auth != NULL)
        blasd_auth_on_change(server->options->auth, key_changed, NULL);
    measure_intake(server);
}
