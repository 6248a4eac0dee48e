/* The fetching thread writes to the sink, and nobody else does until it is done: what is left to
 * the loop is to begin and to end. */
#include "http/remote_inputs.h"

#include "base/container.h"
#include "outgoing/fetch.h"
#include "wire/remote_in.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct http_remote_inputs {
    struct blasd_fetch fetch;
    struct http_exchange *exchange; /* borrowed, as the next */
    struct http_body_sink *sink;
    struct blasd_remote_in *in; /* owned */
    uint64_t most;              /* bytes that all of it may come to */
    void (*done)(void *arg, const struct blasd_err *err);
    bool cancelled;
    struct blasd_err err;            /* of the fetch that has ended */
    struct http_remote_inputs *next; /* in the loop's list of those that have */
};

static struct http_remote_inputs *inputs_of(struct blasd_fetch *fetch) {
    return blasd_container_of(fetch, struct http_remote_inputs, fetch);
}

/* --- in the fetching thread --- */

static int on_size(struct blasd_fetch *fetch, uint64_t size, struct blasd_err *err) {
    struct http_remote_inputs *inputs = inputs_of(fetch);
    struct http_body_sink *sink = inputs->sink;
    int rc = blasd_remote_in_size(inputs->in, size, err);
    if (rc != 0) return rc;
    if (size > inputs->most || sink->total > inputs->most - size)
        return blasd_fail(err, BLASD_E_body_too_large, fetch->field,
                          "%" PRIu64 " bytes are at the URL, and the inputs of a job may come to "
                          "%" PRIu64 " here (limits body_bytes, queue_bytes, the tenant's quota)",
                          size, inputs->most);
    sink->expected = sink->total + size; /* a file of that size is taken up again */
    return http_body_sink_intake(sink, sink->expected, err);
}

static int on_feed(struct blasd_fetch *fetch, const char *bytes, size_t len,
                   struct blasd_err *err) {
    return blasd_remote_in_feed(inputs_of(fetch)->in, bytes, len, err);
}

static void on_done(struct blasd_fetch *fetch, const struct blasd_err *err) {
    struct http_remote_inputs *inputs = inputs_of(fetch);
    struct http_loop *home = inputs->exchange->home;
    int fd = home->remote.watcher.fd;
    inputs->err = err == NULL ? (struct blasd_err){0} : *err;
    inputs->next = atomic_load(&home->remote.ended);
    while (!atomic_compare_exchange_weak(&home->remote.ended, &inputs->next, inputs)) continue;
    (void)eventfd_write(fd, 1);
}

/* --- in the loop --- */

/* Begins the next fetch; false where there is none. */
static bool go_on(struct http_remote_inputs *inputs) {
    const struct http_exchange *exchange = inputs->exchange;
    struct blasd_fetch *fetch = &inputs->fetch;
    const char *url = blasd_remote_in_next(inputs->in);
    if (url == NULL) return false;
    memset(fetch, 0, sizeof *fetch);
    fetch->url = url;
    fetch->field = blasd_remote_in_field(inputs->in);
    if (exchange->caller.principal.weight > 0)
        memcpy(fetch->tenant, exchange->caller.principal.tenant, sizeof fetch->tenant);
    fetch->size = on_size;
    fetch->feed = on_feed;
    fetch->done = on_done;
    atomic_store(&fetch->unwanted, inputs->cancelled);
    blasd_fetch_begin(exchange->home->server->fetcher, fetch);
    return true;
}

static void fetched(struct http_remote_inputs *inputs) {
    struct blasd_err *err = &inputs->err;
    if (err->code == BLASD_OK) (void)blasd_remote_in_finish(inputs->in, err);
    if (err->code == BLASD_OK && go_on(inputs)) return;
    inputs->done(inputs->exchange, err->code == BLASD_OK ? NULL : err);
}

static void on_ended(struct blasd_watcher *watcher, uint32_t events) {
    struct http_loop *loop = blasd_container_of(watcher, struct http_loop, remote.watcher);
    struct http_remote_inputs *inputs, *next;
    eventfd_t ignored;
    (void)events;
    (void)eventfd_read(watcher->fd, &ignored);
    for (inputs = atomic_exchange(&loop->remote.ended, NULL); inputs != NULL; inputs = next) {
        next = inputs->next;
        fetched(inputs);
    }
}

int http_remote_inputs_open(struct http_loop *loop) {
    loop->remote.watcher =
        (struct blasd_watcher){.fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), .ready = on_ended};
    return blasd_loop_watch(loop->loop, &loop->remote.watcher, EPOLLIN);
}

void http_remote_inputs_close(struct http_loop *loop) {
    if (loop->remote.watcher.ready == NULL) return;
    blasd_loop_unwatch(loop->loop, &loop->remote.watcher);
    if (loop->remote.watcher.fd >= 0) close(loop->remote.watcher.fd);
}

/* What the inputs of a job of this caller may come to. */
static uint64_t most_of(const struct http_exchange *exchange) {
    uint64_t most = exchange->home->server->limits->body_bytes;
    uint64_t queue = blasd_front_queue_view(http_queue(exchange))->bytes_limit;
    uint64_t own = exchange->caller.principal.quotas.bytes;
    if (queue < most) most = queue;
    return own > 0 && own < most ? own : most;
}

/* Whether the URLs of all of them may be gone to, before the first is. */
static int check_urls(const struct http_exchange *exchange, const struct blasd_body *body,
                      struct blasd_err *err) {
    const struct blasd_outgoing *outgoing = exchange->home->server->options->outgoing;
    char plain[BLASD_OUTGOING_URL], field[64];
    for (int i = 0; i < body->inputs->count; i++) {
        const struct blasd_named_input *input = &body->inputs->items[i];
        int rc;
        if (input->remote == NULL) continue;
        snprintf(field, sizeof field, "inputs.%s", input->name);
        rc = blasd_outgoing_check(outgoing, input->remote->url, strlen(input->remote->url), field,
                                  plain, err);
        if (rc != 0) return rc;
    }
    return 0;
}

int http_remote_inputs_gather(struct http_exchange *exchange, struct blasd_intake *intake,
                              struct http_body_sink *sink,
                              void (*done)(void *arg, const struct blasd_err *err),
                              struct http_remote_inputs **ret, struct blasd_err *err) {
    struct http_remote_inputs *inputs;
    struct blasd_remote_in *in = NULL;
    int rc = blasd_intake_end(intake, err);
    if (rc == 0) rc = blasd_remote_in_new(blasd_intake_body(intake), &in, err);
    if (rc != 0 || in == NULL) return rc;
    rc = check_urls(exchange, blasd_intake_body(intake), err);
    if (rc == 0 && sink->base.in_place)
        rc = blasd_fail(err, BLASD_E_invalid_reference, "inputs",
                        "an input by URL cannot be combined with Body-File");
    inputs = rc == 0 ? calloc(1, sizeof *inputs) : NULL;
    if (rc == 0 && inputs == NULL) rc = blasd_no_memory(err);
    if (inputs == NULL) {
        blasd_remote_in_free(in);
        return rc;
    }
    *inputs = (struct http_remote_inputs){
        .exchange = exchange, .sink = sink, .in = in, .most = most_of(exchange), .done = done};
    sink->claim_limit = sink->total + inputs->most + (uint64_t)64 * (BLASD_GRAPH_INPUTS_MAX + 1);
    sink->exact = false;
    *ret = inputs;
    http_exchange_hold(exchange);
    (void)go_on(inputs);
    return 1;
}

void http_remote_inputs_cancel(struct http_remote_inputs *inputs) {
    if (inputs == NULL) return;
    inputs->cancelled = true;
    blasd_fetch_cancel(&inputs->fetch);
}

void http_remote_inputs_free(struct http_remote_inputs *inputs) {
    if (inputs == NULL) return;
    blasd_remote_in_free(inputs->in);
    free(inputs);
}
