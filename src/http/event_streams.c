/* Streams of events. A stream is an answer without an end: while there is nothing to say its
 * connection is suspended, and the loop's timer resumes it. A client that reads slowly still has
 * the last text under way when the timer comes: nothing is gathered for it meanwhile. */
#include "http/event_streams.h"

#include "base/clock.h"
#include "base/container.h"
#include "http/authenticate.h"
#include "http/events.h"
#include "http/jobs.h"
#include "http/reply.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define LOOK_NS (100 * BLASD_MS)
#define ASK_NS (1000 * BLASD_MS)        /* whether it is still let in */
#define HEARTBEAT_NS (15000 * BLASD_MS) /* less than what proxies wait, as a rule */
#define DEAF_NS (1000 * BLASD_MS)       /* that the last text may take to go when all ends */
#define DEVICES_TICKS 5                 /* a second */
#define BLOCK_BYTES 65536

struct stream {
    struct blasd_list node;         /* in the loop's */
    struct http_exchange *exchange; /* held */
    struct http_events_reader reader;
    struct blasd_buf text; /* under way */
    size_t sent;           /* of it */
    int64_t wrote_ns, asked_ns;
    bool greeted, over;
};

static struct http_events *events_of(const struct stream *stream) {
    return stream->exchange->home->server->events;
}

static void stream_free(void *cls) {
    struct stream *stream = cls;
    http_events_leave(events_of(stream), &stream->reader);
    blasd_list_remove(&stream->node);
    blasd_buf_release(&stream->text);
    http_exchange_release(stream->exchange);
    free(stream);
}

static ssize_t read_stream(void *cls, uint64_t pos, char *out, size_t max) {
    struct stream *stream = cls;
    struct http_exchange *exchange = stream->exchange;
    size_t left = stream->text.len - stream->sent;
    (void)pos;
    if (exchange->state == HTTP_AT_GONE) return MHD_CONTENT_READER_END_WITH_ERROR;
    if (left == 0 && stream->over) return MHD_CONTENT_READER_END_OF_STREAM;
    if (left == 0) {
        http_exchange_suspend(exchange);
        http_exchange_watch_waiting(exchange); /* who leaves makes room at once */
        return 0;
    }
    if (left > max) left = max;
    memcpy(out, stream->text.data + stream->sent, left);
    stream->sent += left;
    exchange->home->turn.more = true;
    http_count(&exchange->home->metrics->sent_bytes, left);
    return (ssize_t)left;
}

/* The first event, once what happens is heard: nothing is lost from here on. */
static int greet(struct stream *stream) {
    const struct http_server *server = stream->exchange->home->server;
    const char *version = server->options->version;
    stream->greeted = http_events_begin(events_of(stream), &stream->reader);
    if (!stream->greeted) return 0;
    return blasd_buf_printf(
        &stream->text,
        "event: hello\nretry: 2000\ndata: {\"version\":\"%s\",\"time_ms\":%" PRId64
        ",\"started_ms\":%" PRId64 ",\"tenant\":\"%s\"}\n\n",
        version == NULL ? "" : version, blasd_clock_wall_us() / 1000, server->started_us / 1000,
        stream->reader.tenant);
}

/* NULL, or why its key, which may have been revoked or changed, hears no more. */
static const char *shut_out(struct stream *stream) {
    struct http_exchange *exchange = stream->exchange;
    int64_t now = blasd_loop_now(exchange->home->loop);
    struct blasd_err err = {0};
    if (now - stream->asked_ns < ASK_NS || exchange->connection == NULL) return NULL;
    stream->asked_ns = now;
    if (http_authenticate(exchange, &err) == 0 &&
        strcmp(exchange->caller.principal.tenant, stream->reader.tenant) != 0)
        err.code = BLASD_E_forbidden;
    return err.code == BLASD_OK ? NULL : blasd_err_info(err.code)->name;
}

/* Writes what is new; false where memory has run out. */
static bool look(struct stream *stream) {
    const struct http_loop *loop = stream->exchange->home;
    struct blasd_buf *text = &stream->text;
    const char *end = loop->stopping.draining ? "draining" : shut_out(stream);
    blasd_buf_reset(text);
    stream->sent = 0;
    if (end != NULL) {
        stream->over = true;
        return blasd_buf_printf(text, "event: end\ndata: {\"reason\":\"%s\"}\n\n", end) == 0;
    }
    if (stream->greeted)
        http_events_take(events_of(stream), &stream->reader, http_sees_all(stream->exchange), text);
    else if (greet(stream) != 0)
        return false;
    if (text->len == 0 && blasd_loop_now(loop->loop) - stream->wrote_ns >= HEARTBEAT_NS)
        return blasd_buf_puts(text, ": still here\n\n") == 0;
    return true;
}

/* Who does not read would hold up the end. */
static void cut_off_deaf(struct stream *stream) {
    bool under_way = stream->sent < stream->text.len || stream->over;
    if (under_way && stream->exchange->connection != NULL &&
        blasd_loop_now(stream->exchange->home->loop) - stream->wrote_ns > DEAF_NS)
        (void)shutdown(http_connection_fd(stream->exchange->connection), SHUT_RDWR);
}

static void on_look(struct blasd_timer *timer) {
    struct http_loop *loop = blasd_container_of(timer, struct http_loop, streams.timer);
    BLASD_LIST_EACH(node, &loop->streams.open) {
        struct stream *stream = blasd_container_of(node, struct stream, node);
        if (loop->stopping.draining) cut_off_deaf(stream);
        if (stream->over || stream->sent < stream->text.len) continue;
        if (!look(stream)) stream->over = true;
        if (stream->text.len == 0 && !stream->over) continue;
        stream->wrote_ns = blasd_loop_now(loop->loop);
        http_exchange_resume(stream->exchange);
    }
    if (!blasd_list_empty(&loop->streams.open))
        (void)blasd_loop_timer_set(loop->loop, timer, blasd_loop_now(loop->loop) + LOOK_NS);
}

static bool may_join(const struct http_exchange *exchange, struct http_events_reader *reader) {
    const struct http_server *server = exchange->home->server;
    uint64_t most = server->limits->event_streams, of_one = most;
    if (server->options->auth != NULL) of_one = (most + 3) / 4;
    return http_events_join(server->events, reader, most, of_one);
}

/* NULL: answered. */
static struct stream *stream_new(struct http_exchange *exchange) {
    const struct http_query *query = &exchange->request.query;
    struct stream *stream = calloc(1, sizeof *stream);
    if (stream == NULL) {
        http_reply_no_memory(exchange);
        return NULL;
    }
    stream->exchange = exchange;
    memcpy(stream->reader.tenant, exchange->caller.principal.tenant, sizeof stream->reader.tenant);
    stream->reader.op = query->op;
    stream->reader.state = (query->given & HTTP_PARAM_STATE) != 0 ? query->state : -1;
    stream->wrote_ns = stream->asked_ns = blasd_loop_now(exchange->home->loop);
    blasd_buf_init(&stream->text, HTTP_EVENTS_WAITING);
    if (!may_join(exchange, &stream->reader)) {
        http_reply_fail(
            exchange, BLASD_E_too_many_streams, "",
            "as many streams of events are open as may be (limit event_streams, %" PRIu64
            "; with keys a quarter of them for one tenant)",
            exchange->home->server->limits->event_streams);
        free(stream);
        return NULL;
    }
    blasd_list_append(&exchange->home->streams.open, &stream->node);
    http_exchange_hold(exchange);
    return stream;
}

void http_events_get(struct http_exchange *exchange) {
    struct http_loop *loop = exchange->home;
    struct stream *stream;
    if (loop->stopping.draining) {
        http_reply_fail(exchange, BLASD_E_draining, "", "the service is shutting down");
        return;
    }
    if (exchange->request.last_event_id != NULL) {
        http_reply_fail(exchange, BLASD_E_malformed_query, "Last-Event-ID",
                        "events are not kept: leave the header out, and list the jobs (GET /jobs) "
                        "once the stream has said hello");
        return;
    }
    if ((stream = stream_new(exchange)) == NULL) return;
    loop->streams.timer.fire = on_look;
    if (loop->streams.timer.slot == 0) /* who comes does not put off those who are there */
        (void)blasd_loop_timer_set(loop->loop, &loop->streams.timer,
                                   blasd_loop_now(loop->loop) + LOOK_NS);
    http_reply(exchange, 200, "text/event-stream",
               (const struct http_header[]){{"X-Accel-Buffering", "no"} /* nginx */, {NULL, NULL}},
               (struct http_body){.kind = HTTP_PIECES,
                                  .read = read_stream,
                                  .release = stream_free,
                                  .cls = stream,
                                  .size = -1,
                                  .block = BLOCK_BYTES});
}

/* The first loop's part. */

void http_event_streams_event(void *arg, const struct blasd_queue_event *told) {
    const struct http_loop *first = arg;
    http_events_add(first->server->events, told);
}

static void on_stats(void *arg, const struct blasd_err *err, const char *text, size_t len) {
    struct http_loop *first = arg;
    if (err != NULL) return;
    http_events_devices(first->server->events, http_devices_text(first->server, text, len, true),
                        http_devices_text(first->server, text, len, false));
}

void http_event_streams_tick(struct http_loop *first) {
    struct http_events *events = first->server->events;
    if (http_events_readers(events) == 0) {
        if (first->streams.hears && http_events_end(events)) {
            blasd_front_queue_subscribe(first->queue, false);
            first->streams.hears = false;
        }
        return;
    }
    first->streams.hears = true;
    blasd_front_queue_subscribe(first->queue, true);
    if (first->streams.ticks++ % DEVICES_TICKS == 0 &&
        blasd_front_queue_view(first->queue)->available)
        blasd_front_queue_figures(first->queue, &(struct blasd_figures_query){0}, on_stats, first);
}
