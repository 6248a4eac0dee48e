/* The life of one request, as libmicrohttpd calls it. It must not know what any route does.
 * Read next: routes.c, then jobs_post.c for the longest of them. */
#include "http/exchange.h"

#include "base/clock.h"
#include "base/container.h"
#include "http/gate.h"
#include "http/head.h"
#include "http/jobs.h"
#include "http/patience.h"
#include "http/reply.h"
#include "http/waits.h"

#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#define STUCK_CHECKS 4                    /* a second or so */
#define PARKED_NS INT64_C(100000000)      /* who waits for longer is suspended at the next check */
#define SLOW_NS INT64_C(200000000)        /* most bodies have come by then */
#define REST_BYTES (64 * BLASD_KIB)       /* some pieces; with more the turn would grow long */
#define WATCH_AFTER_NS INT64_C(500000000) /* most waits are over before that */

static struct http_exchange *exchange_new(struct http_loop *loop,
                                          struct MHD_Connection *connection) {
    struct http_exchange *exchange = blasd_spares_take_zeroed(&loop->exchange_blocks);
    if (exchange == NULL) return NULL;
    exchange->home = loop;
    exchange->connection = connection;
    exchange->visit = http_visit_of(connection);
    http_visit_asks(exchange->visit, true);
    exchange->began_ns = blasd_clock_ns();
    exchange->output = HTTP_DOCUMENT;
    exchange->wait_status = 200;
    exchange->next = loop->exchanges;
    if (loop->exchanges != NULL) loop->exchanges->prev = exchange;
    loop->exchanges = exchange;
    loop->exchange_count++;
    http_count(&loop->metrics->in_flight, 1);
    return exchange;
}

static void exchange_free(struct http_exchange *exchange) {
    struct http_loop *loop = exchange->home;
    if (exchange->next != NULL) exchange->next->prev = exchange->prev;
    if (exchange->prev != NULL)
        exchange->prev->next = exchange->next;
    else
        loop->exchanges = exchange->next;
    if (exchange->response != NULL) MHD_destroy_response(exchange->response);
    http_upload_free(exchange->upload);
    blasd_spares_give(&loop->exchange_blocks, exchange);
}

void http_exchange_hold(struct http_exchange *exchange) {
    exchange->pending++;
}

void http_exchange_release(struct http_exchange *exchange) {
    if (--exchange->pending == 0 && exchange->connection == NULL) exchange_free(exchange);
}

static int connection_fd(struct MHD_Connection *connection) {
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    return info == NULL ? -1 : info->connect_fd;
}

/* Has `ready` called when the client closes its end, in every turn until it is unwatched. Where
 * this cannot be had the request still ends, only a client that leaves is noticed later. */
static void watch_client(struct http_exchange *exchange,
                         void (*ready)(struct blasd_watcher *watcher, uint32_t events)) {
    exchange->client =
        (struct blasd_watcher){.fd = connection_fd(exchange->connection), .ready = ready};
    exchange->watched = blasd_loop_watch(exchange->home->loop, &exchange->client, EPOLLRDHUP) == 0;
}

static void unwatch_client(struct http_exchange *exchange) {
    if (exchange->watched) blasd_loop_unwatch(exchange->home->loop, &exchange->client);
    exchange->watched = false;
}

static void suspend(struct http_exchange *exchange) {
    MHD_suspend_connection(exchange->connection);
    exchange->suspended = true;
}

static void unpark(struct http_exchange *exchange) {
    if (exchange->parked) exchange->home->parked--;
    exchange->parked = false;
}

/* Waits for an answer. Suspending takes the connection out of libmicrohttpd's epoll set, resuming
 * puts it back and has it read for nothing: three system calls. Most answers come within
 * milliseconds, so the exchange is parked first: libmicrohttpd goes on asking for the answer in
 * every turn, which costs about a hundredth of that. What waits for long is suspended
 * (http_exchange_check), and so is what is more than turns of late have answers for. */
static void await_answer(struct http_exchange *exchange) {
    if (exchange->home->parked >= exchange->home->parked_most) {
        suspend(exchange);
        return;
    }
    exchange->parked = true;
    exchange->home->parked++;
}

static void resume(struct http_exchange *exchange) {
    http_gate_leave(exchange);
    if (!exchange->parked && !exchange->suspended) return;
    unpark(exchange);
    unwatch_client(exchange);
    if (exchange->suspended) MHD_resume_connection(exchange->connection);
    exchange->suspended = false;
    exchange->home->resumed = true;
}

/* libmicrohttpd does not look at a suspended connection, so we do. */
static void client_gone(struct blasd_watcher *watcher, uint32_t events) {
    struct http_exchange *exchange = blasd_container_of(watcher, struct http_exchange, client);
    (void)events;
    exchange->gone = true;
    http_waits_remove(exchange);
    if (exchange->upload != NULL) http_jobs_post_gone(exchange);
    resume(exchange);
}

void http_exchange_abandon(struct http_exchange *exchange) {
    exchange->gone = true;
    resume(exchange);
}

/* A piece of a body and the client's leaving can come as one event, of which libmicrohttpd sees the
 * first part alone: it believes that it has read all there is. Resuming makes it read again. */
static void upload_cut(struct blasd_watcher *watcher, uint32_t events) {
    struct http_exchange *exchange = blasd_container_of(watcher, struct http_exchange, client);
    (void)events;
    MHD_suspend_connection(exchange->connection);
    MHD_resume_connection(exchange->connection);
    exchange->home->resumed = true;
}

/* What libmicrohttpd can neither parse nor hold, such as a chunk extension longer than its memory,
 * it leaves unread, and then it spins. Bytes that nobody reads for STUCK_CHECKS are that. */
static bool is_stuck(struct http_exchange *exchange) {
    int unread = 0;
    bool moved = exchange->body != exchange->checked_at;
    exchange->checked_at = exchange->body;
    if (moved || ioctl(connection_fd(exchange->connection), FIONREAD, &unread) != 0 || unread == 0)
        exchange->stuck_checks = 0;
    else
        exchange->stuck_checks++;
    return exchange->stuck_checks >= STUCK_CHECKS;
}

/* A body that has come to a standstill, or nearly. True where that is the end of it. */
static bool is_cut_off(struct http_exchange *exchange) {
    struct blasd_err problem = {0};
    if (exchange->complete) return false;
    if (is_stuck(exchange))
        blasd_fail(&problem, BLASD_E_headers_too_large, "Transfer-Encoding",
                   "a chunk's own header is longer than the memory of a connection (limit "
                   "connection_bytes)");
    else if (!http_body_late(exchange, &problem))
        return false;
    if (exchange->upload != NULL && !exchange->answered)
        http_log_job(exchange, "refused", &problem);
    unwatch_client(exchange);
    http_cut_off(exchange->home, exchange->route, exchange->connection, &problem);
    exchange->closing = true;
    return true;
}

static bool waits_for(const struct http_exchange *exchange, int64_t ns) {
    return blasd_clock_ns() - exchange->began_ns >= ns;
}

void http_exchange_check(struct http_exchange *exchange) {
    if (exchange->connection == NULL || exchange->closing) return;
    if (exchange->parked && waits_for(exchange, PARKED_NS)) {
        unpark(exchange);
        suspend(exchange);
    }
    if (!exchange->running && exchange->upload != NULL && waits_for(exchange, SLOW_NS))
        http_jobs_post_slow(exchange);
    if (is_cut_off(exchange) || exchange->watched) return;
    if (exchange->suspended && waits_for(exchange, WATCH_AFTER_NS))
        watch_client(exchange, client_gone);
    else if (!exchange->running)
        watch_client(exchange, upload_cut);
}

void http_exchange_answer(struct http_exchange *exchange, unsigned status,
                          struct MHD_Response *response) {
    exchange->answered = true;
    http_waits_remove(exchange);
    if (exchange->connection == NULL || exchange->gone || exchange->response != NULL) {
        if (response != NULL) MHD_destroy_response(response);
        return;
    }
    exchange->status = status;
    exchange->response = response;
    resume(exchange);
}

/* What collects headers and query parameters; the first error stays. */
struct collecting {
    struct http_exchange *exchange;
    struct http_head head;
    struct blasd_err err;
};

static enum MHD_Result collect_header(void *cls, enum MHD_ValueKind kind, const char *name,
                                      size_t name_len, const char *value, size_t len) {
    struct collecting *collecting = cls;
    (void)kind;
    if (http_head_header(&collecting->head, name, name_len, value, len, &collecting->err) == 0)
        http_request_header(&collecting->exchange->request, name, value, len, &collecting->err);
    return collecting->err.code == BLASD_OK ? MHD_YES : MHD_NO;
}

/* The first byte behind the head, which begins with the method. */
static const char *behind_head(struct MHD_Connection *connection, const char *method) {
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE);
    return info == NULL ? NULL : method + info->header_size;
}

/* Reads the head; whether a body follows, and where it ends, is clear if this returns 0. */
static int read_head(struct http_exchange *exchange, const char *method, const char *version,
                     struct blasd_err *err) {
    struct http_request *request = &exchange->request;
    struct collecting collecting = {.exchange = exchange, .head.bare_lines = !HTTP_STRICT_LIBRARY};
    const char *behind = behind_head(exchange->connection, method);
    if (http_head_start(&collecting.head, version, &collecting.err) == 0)
        MHD_get_connection_values_n(exchange->connection, MHD_HEADER_KIND, collect_header,
                                    &collecting);
    if (collecting.err.code == BLASD_OK)
        http_head_finish(&collecting.head, behind, &collecting.err);
    if (collecting.err.code == BLASD_OK && request->host == NULL &&
        strcmp(version, "HTTP/1.0") != 0)
        blasd_fail(&collecting.err, BLASD_E_malformed_query, "Host",
                   "a request of %.20s has a Host header", version);
    *err = collecting.err;
    if (err->code == BLASD_OK) return 0;
    request->ambiguous = true; /* what comes next may be no request */
    return -(int)err->code;
}

static enum MHD_Result collect_param(void *cls, enum MHD_ValueKind kind, const char *name,
                                     size_t name_len, const char *value, size_t len) {
    struct collecting *collecting = cls;
    struct http_exchange *exchange = collecting->exchange;
    (void)kind, (void)name_len;
    http_request_param(&exchange->request, exchange->route->params, exchange->home->server->limits,
                       name, value, len, &collecting->err);
    return collecting->err.code == BLASD_OK ? MHD_YES : MHD_NO;
}

static bool has_body(const struct http_exchange *exchange) {
    return exchange->request.chunked || exchange->request.content_length > 0;
}

/* Finds the route and refuses what can be refused from the headers alone. */
static void begin(struct http_exchange *exchange, const char *url, const char *method,
                  const char *version) {
    struct http_request *request = &exchange->request;
    struct collecting collecting = {.exchange = exchange};
    request->method = http_method_find(method);
    exchange->route = http_route_find(url, request->method, exchange->captures, &exchange->allow);
    if (read_head(exchange, method, version, &collecting.err) == 0)
        http_guard_check(&exchange->home->server->guard, request, &exchange->foreign,
                         &collecting.err);
    if (collecting.err.code == BLASD_OK && exchange->route != NULL)
        MHD_get_connection_values_n(exchange->connection, MHD_GET_ARGUMENT_KIND, collect_param,
                                    &collecting);
    if (collecting.err.code != BLASD_OK) {
        http_reply_problem(exchange, &collecting.err);
    } else if (exchange->route == NULL) {
        if (exchange->allow != 0 && request->method == HTTP_OPTIONS)
            http_reply_options(exchange);
        else if (exchange->allow != 0)
            http_reply_fail(exchange, BLASD_E_method_not_allowed, "", "%.40s does not take %.20s",
                            url, method);
        else
            http_reply_fail(exchange, BLASD_E_route_not_found, "", "no route is called '%.100s'",
                            url);
    } else if (exchange->route->begin != NULL) {
        exchange->route->begin(exchange);
    } else if (request->content_length > HTTP_DRAIN_BYTES) {
        http_reply_fail(exchange, BLASD_E_body_too_large, "", "this route takes no body");
    }
}

void http_exchange_count(struct http_loop *loop, const struct http_route *route, unsigned status) {
    http_metrics_request(loop->metrics, route == NULL ? -1 : (int)(route - http_routes), status);
}

/* A request that expects `100 Continue` and has no body: where the next request lies behind it
 * already, libmicrohttpd 0.9 calls us once too early, and takes no answer then. */
static bool comes_again(struct http_exchange *exchange) {
    bool again = exchange->request.expects_continue && !has_body(exchange) && !exchange->early;
    exchange->early = true;
    exchange->home->more = true;
    return again;
}

static enum MHD_Result send_answer(struct http_exchange *exchange) {
    struct http_loop *loop = exchange->home;
    struct MHD_Response *response = exchange->response;
    enum MHD_Result result;
    if (response == NULL) return MHD_NO; /* memory has run out: closing is all that is left */
    result = MHD_queue_response(exchange->connection, exchange->status, response);
    if (result != MHD_YES && comes_again(exchange)) return MHD_YES;
    exchange->response = NULL;
    loop->answers++;
    http_exchange_count(loop, exchange->route, exchange->status);
    MHD_destroy_response(response);
    return result;
}

/* Whether more of a refused body would come than is worth reading. */
static bool too_much_to_drain(const struct http_exchange *exchange) {
    if (exchange->request.chunked)
        return exchange->body - exchange->body_refused_at > HTTP_DRAIN_BYTES;
    return exchange->body < exchange->request.content_length &&
           exchange->request.content_length - exchange->body > HTTP_DRAIN_BYTES;
}

/* libmicrohttpd reads once when it is run, and more of the body may lie there already. */
static void expect_rest(struct http_exchange *exchange) {
    const struct http_request *request = &exchange->request;
    if (exchange->body == request->content_length) return;
    if (!request->chunked && request->content_length - exchange->body <= REST_BYTES)
        exchange->home->rest = true;
    else
        exchange->home->more = true;
}

static enum MHD_Result take_body(struct http_exchange *exchange, const char *bytes, size_t len) {
    http_count(&exchange->home->metrics->received_bytes, len);
    exchange->body += len;
    expect_rest(exchange);
    if (!exchange->answered) {
        exchange->body_refused_at = exchange->body;
        if (exchange->route->body != NULL)
            exchange->route->body(exchange, bytes, len);
        else if (exchange->body > HTTP_DRAIN_BYTES)
            http_reply_fail(exchange, BLASD_E_body_too_large, "", "this route takes no body");
    }
    if (!exchange->answered || !too_much_to_drain(exchange)) return MHD_YES;
    http_linger_problem(exchange->home, exchange->route, connection_fd(exchange->connection),
                        &exchange->problem);
    exchange->linger = true;
    return MHD_NO; /* closes */
}

static enum MHD_Result finish(struct http_exchange *exchange) {
    if (exchange->parked) return MHD_YES;
    exchange->complete = true;
    unwatch_client(exchange);
    if (exchange->gone) return MHD_NO;
    if (!exchange->answered && !exchange->running) {
        exchange->running = true;
        exchange->route->run(exchange);
        if (!exchange->answered) {
            await_answer(exchange);
            return MHD_YES;
        }
    }
    return send_answer(exchange);
}

/* Parameters that do not fit a connection's memory make libmicrohttpd close it without a word, or
 * with a page of its own, before we are asked. So they are counted before it reads them. */
void *http_exchange_uri(void *cls, const char *uri, struct MHD_Connection *connection) {
    const char *at = strchr(uri, '?');
    struct http_exchange *exchange;
    struct blasd_err problem = {0};
    int count = at == NULL ? 0 : 1, fd = connection_fd(connection);
    while (at != NULL && (at = strchr(at + 1, '&')) != NULL) count++;
    if (count <= HTTP_PARAMS_MOST || (exchange = exchange_new(cls, connection)) == NULL)
        return NULL;
    blasd_fail(&problem, BLASD_E_malformed_query, "", "the query has %d parameters; %d are read",
               count, HTTP_PARAMS_MOST);
    http_linger_problem(exchange->home, NULL, fd, &problem);
    (void)shutdown(fd, SHUT_WR);
    exchange->closing = exchange->linger = exchange->complete = true;
    return exchange;
}

enum MHD_Result http_exchange_handle(void *cls, struct MHD_Connection *connection, const char *url,
                                     const char *method, const char *version, const char *upload,
                                     size_t *upload_size, void **context) {
    struct http_exchange *exchange = *context;
    if (exchange == NULL) {
        exchange = exchange_new(cls, connection);
        if (exchange == NULL) return MHD_NO;
        *context = exchange;
        begin(exchange, url, method, version);
        if (exchange->request.expects_continue) exchange->home->more = true; /* and it says so */
        /* an answer given now closes the connection, so it waits for the end of a small body */
        if (!exchange->answered || !has_body(exchange)) return MHD_YES;
        if (!exchange->request.chunked && !exchange->request.expects_continue &&
            exchange->request.content_length <= HTTP_DRAIN_BYTES)
            return MHD_YES;
        exchange->linger = exchange->complete = true;
        return send_answer(exchange);
    }
    if (exchange->closing) return MHD_NO;
    if (*upload_size > 0) {
        size_t len = *upload_size;
        *upload_size = 0;
        return take_body(exchange, upload, len);
    }
    return finish(exchange);
}

void http_exchange_completed(void *cls, struct MHD_Connection *connection, void **context,
                             enum MHD_RequestTerminationCode code) {
    struct http_exchange *exchange = *context;
    bool left;
    (void)cls;
    if (exchange == NULL) return;
    *context = NULL;
    left = exchange->parked && code != MHD_REQUEST_TERMINATED_DAEMON_SHUTDOWN;
    if (exchange->linger) http_linger(exchange->home, connection_fd(connection));
    http_gate_leave(exchange);
    http_waits_remove(exchange);
    unwatch_client(exchange);
    unpark(exchange);
    exchange->suspended = false;
    http_visit_asks(exchange->visit, false);
    exchange->visit = NULL;
    exchange->connection = NULL;
    if (left && exchange->upload != NULL) http_jobs_post_gone(exchange);
    exchange->home->exchange_count--;
    http_uncount(&exchange->home->metrics->in_flight);
    if (exchange->pending == 0) exchange_free(exchange);
}
