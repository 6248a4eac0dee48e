/* The life of one request, as libmicrohttpd calls it. It must not know what any route does.
 * Read next: routes.c, then jobs_post.c for the longest of them. */
#include "http/dispatch.h"

#include "base/container.h"
#include "http/answered.h"
#include "http/authenticate.h"
#include "http/head.h"
#include "http/reply.h"
#include "http/routes.h"
#include "http/timeouts.h"
#include "http/tls.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

/* A refused body of up to this size is read and thrown away, so that the connection lives on; of a
 * larger one the answer is sent at once and the connection closed. */
#define DRAIN_BYTES (UINT64_C(1) << 20)
#define STUCK_CHECKS 4                    /* a second or so */
#define PARKED_NS INT64_C(100000000)      /* who waits for longer is suspended at the next check */
#define WATCH_AFTER_NS INT64_C(500000000) /* most waits are over before that */

static struct http_exchange *begin_exchange(struct http_loop *loop,
                                            struct MHD_Connection *connection) {
    struct http_exchange *exchange = http_exchange_new(loop, connection);
    if (exchange == NULL) return NULL;
    exchange->client.connection = http_connection_of(connection);
    http_connection_asks(exchange->client.connection, exchange, exchange->began_ns);
    return exchange;
}

/* What libmicrohttpd can neither parse nor hold, such as a chunk extension longer than its memory,
 * it leaves unread, and then it spins. Bytes that nobody reads for STUCK_CHECKS are that. */
static bool is_stuck(struct http_exchange *exchange) {
    int unread = 0;
    bool moved = exchange->body.seen != exchange->body.checked_at;
    exchange->body.checked_at = exchange->body.seen;
    if (moved || ioctl(http_connection_fd(exchange->connection), FIONREAD, &unread) != 0 ||
        unread == 0)
        exchange->body.stuck_checks = 0;
    else
        exchange->body.stuck_checks++;
    return exchange->body.stuck_checks >= STUCK_CHECKS;
}

/* A body that has come to a standstill, or nearly. True where that is the end of it. */
static bool is_cut_off(struct http_exchange *exchange) {
    struct blasd_err problem = {0};
    if (!http_body_coming(exchange)) return false;
    if (is_stuck(exchange))
        blasd_fail(&problem, BLASD_E_headers_too_large, "Transfer-Encoding",
                   "a chunk's own header is longer than the memory of a connection (limit "
                   "connection_bytes)");
    else if (!http_timeouts_body(exchange, &problem))
        return false;
    if (exchange->upload != NULL && http_exchange_open(exchange))
        http_log_refused(exchange, &problem);
    http_cut_off(exchange->home, exchange->route, exchange->connection, &problem);
    exchange->answer.problem = problem;
    http_log_access(exchange, (unsigned)blasd_err_info(problem.code)->http_status);
    http_exchange_abandon(exchange);
    return true;
}

static bool waits_for(const struct http_exchange *exchange, int64_t ns) {
    return blasd_loop_now(exchange->home->loop) - exchange->began_ns >= ns;
}

void http_exchange_check(struct http_exchange *exchange) {
    if (exchange->connection == NULL || exchange->state == HTTP_AT_GONE) return;
    if (exchange->hold == HTTP_PARKED && waits_for(exchange, PARKED_NS))
        http_exchange_suspend(exchange);
    if (is_cut_off(exchange) || exchange->client.watched) return;
    if (exchange->hold == HTTP_SUSPENDED && waits_for(exchange, WATCH_AFTER_NS))
        http_exchange_watch_waiting(exchange);
}

/* What collects headers and query parameters; the first error stays. */
struct collecting {
    struct http_exchange *exchange;
    struct http_head head;
    struct blasd_err err;
};

/* Space behind a value is no part of it, and libmicrohttpd 0.9 leaves it there. The text lies in
 * the connection's memory, where it is read from once more. */
static size_t trim(const char *value, size_t len) {
    size_t all = len;
    while (len > 0 && (value[len - 1] == ' ' || value[len - 1] == '\t')) len--;
    if (len < all) ((char *)(uintptr_t)value)[len] = '\0';
    return len;
}

/* Of which libmicrohttpd takes no space as that. */
static bool is_framing(const char *name) {
    return strcasecmp(name, "Transfer-Encoding") == 0;
}

static enum MHD_Result collect_header(void *cls, enum MHD_ValueKind kind, const char *name,
                                      size_t name_len, const char *value, size_t len) {
    struct collecting *collecting = cls;
    (void)kind;
    if (http_head_header(&collecting->head, name, name_len, value, len, &collecting->err) == 0)
        http_request_header(&collecting->exchange->request, name, value,
                            is_framing(name) ? len : trim(value, len), &collecting->err);
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
                     const char *authority, struct blasd_err *err) {
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
    if (collecting.err.code == BLASD_OK && authority != NULL && request->host != NULL &&
        !http_head_is_host(authority, request->host))
        blasd_fail(&collecting.err, BLASD_E_malformed_query, "Host",
                   "the Host header differs from the host of the URL in the request line");
    *err = collecting.err;
    if (err->code == BLASD_OK) return 0;
    request->framing.ambiguous = true; /* what comes next may be no request */
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
    return exchange->request.framing.chunked || exchange->request.framing.content_length > 0;
}

static void refuse(struct http_exchange *exchange, const struct blasd_err *problem) {
    const struct http_route *route = exchange->route;
    if (problem->code != BLASD_E_unauthorized || route == NULL ||
        (route->roles & HTTP_SIGN_IN) == 0) {
        http_reply_problem(exchange, problem);
        return;
    }
    exchange->answer.problem = *problem;
    route->run(exchange);
}

/* The account that the memory of this request counts in: its tenant's, or without keys that of all
 * clients. Routes that no user's key may call use the quarter that clients leave, so that a tenant
 * cannot take it. */
static struct blasd_account *memory_of(const struct http_exchange *exchange) {
    struct http_shared_account *memory = &exchange->home->server->memory;
    bool monitors =
        exchange->route != NULL && exchange->route->roles == HTTP_ROLE(BLASD_ROLE_METRICS);
    struct blasd_account *own = http_account_of(memory, &exchange->caller.principal);
    return monitors ? &memory->all : own == &memory->all ? &memory->of[0] : own;
}

/* Finds the route and refuses what can be refused from the headers alone. */
static void begin(struct http_exchange *exchange, const char *target, const char *method,
                  const char *version) {
    struct http_request *request = &exchange->request;
    struct collecting collecting = {.exchange = exchange};
    const char *authority, *url = http_head_path(target, &authority);
    request->method = http_method_find(method);
    exchange->form.dialect = http_dialect_find(url);
    exchange->route = http_route_find(url, request->method, exchange->captures, &exchange->allow);
    if (read_head(exchange, method, version, authority, &collecting.err) == 0 &&
        http_origin_check(&exchange->home->server->origins, request, &exchange->client.foreign,
                          &collecting.err) == 0)
        http_authenticate(exchange, &collecting.err);
    exchange->memory.parent = memory_of(exchange);
    http_request_traced(exchange);
    if (collecting.err.code == BLASD_OK && exchange->route != NULL)
        MHD_get_connection_values_n(exchange->connection, MHD_GET_ARGUMENT_KIND, collect_param,
                                    &collecting);
    if (collecting.err.code != BLASD_OK) {
        refuse(exchange, &collecting.err);
    } else if (exchange->route == NULL) {
        const char *gone = http_route_gone(url);
        if (request->method == HTTP_OPTIONS && strcmp(url, "*") == 0)
            exchange->allow = HTTP_GET | HTTP_HEAD | HTTP_POST | HTTP_DELETE | HTTP_PATCH;
        if (exchange->allow != 0 && request->method == HTTP_OPTIONS)
            http_reply_options(exchange);
        else if (exchange->allow != 0)
            http_reply_fail(exchange, BLASD_E_method_not_allowed, "", "%.100s does not take %.20s",
                            url, method);
        else
            http_reply_fail(exchange, BLASD_E_route_not_found, "",
                            "no route is called '%.100s'%s%s", url,
                            gone == NULL ? "" : ": it was removed, ", gone == NULL ? "" : gone);
    } else if (request->coding != HTTP_CODING_NONE && exchange->route->jobs == NULL) {
        http_reply_fail(exchange, BLASD_E_unsupported_media_type, "Content-Encoding",
                        "this route takes bodies as they are, not compressed");
    } else if (exchange->route->begin != NULL) {
        exchange->route->begin(exchange);
    } else if (request->framing.content_length > DRAIN_BYTES) {
        http_reply_fail(exchange, BLASD_E_body_too_large, "", "this route takes no body");
    }
}

/* A request that expects `100 Continue` and has no body: where the next request lies behind it
 * already, libmicrohttpd 0.9 calls us once too early, and takes no answer then. */
static bool comes_again(struct http_exchange *exchange) {
    bool again = exchange->request.framing.expects_continue && !has_body(exchange) &&
                 !exchange->answer.early;
    exchange->answer.early = true;
    exchange->home->turn.more = true;
    return again;
}

static enum MHD_Result send_answer(struct http_exchange *exchange) {
    struct http_loop *loop = exchange->home;
    struct MHD_Response *response = exchange->answer.response;
    enum MHD_Result result;
    if (response == NULL) return MHD_NO; /* memory has run out: closing is all that is left */
    result = MHD_queue_response(exchange->connection, exchange->answer.status, response);
    if (result != MHD_YES && comes_again(exchange)) return MHD_YES;
    exchange->answer.response = NULL;
    if (exchange->answer.whole && exchange->client.connection != NULL &&
        exchange->request.method != HTTP_HEAD)
        http_tls_line_hold(exchange->client.connection->line);
    loop->parking.answers++;
    http_request_answered(exchange);
    MHD_destroy_response(response);
    return result;
}

/* Whether more of a refused body would come than is worth reading. */
static bool too_much_to_drain(const struct http_exchange *exchange) {
    if (exchange->request.framing.chunked)
        return exchange->body.seen - exchange->body.refused_at > DRAIN_BYTES;
    return exchange->body.seen < exchange->request.framing.content_length &&
           exchange->request.framing.content_length - exchange->body.seen > DRAIN_BYTES;
}

/* What the route has left of a piece comes again, with what has come meanwhile, in the next turn:
 * resuming makes libmicrohttpd look at the connection then. */
static size_t leave_rest(struct http_exchange *exchange) {
    size_t left = http_exchange_open(exchange) ? exchange->body.left : 0;
    exchange->body.left = 0;
    if (left == 0) return 0;
    exchange->body.seen -= left;
    MHD_suspend_connection(exchange->connection);
    MHD_resume_connection(exchange->connection);
    exchange->home->turn.resumed = true;
    return left;
}

/* *left: of these bytes, to come again. */
static enum MHD_Result take_body(struct http_exchange *exchange, const char *bytes, size_t len,
                                 size_t *left) {
    exchange->body.seen += len;
    if (http_exchange_open(exchange)) {
        exchange->body.refused_at = exchange->body.seen;
        if (exchange->route->body != NULL)
            exchange->route->body(exchange, bytes, len);
        else if (exchange->body.seen > DRAIN_BYTES)
            http_reply_fail(exchange, BLASD_E_body_too_large, "", "this route takes no body");
    }
    *left = leave_rest(exchange);
    /* libmicrohttpd reads once when it is run, and more may lie there already */
    if (*left == 0 && exchange->body.seen != exchange->request.framing.content_length)
        exchange->home->turn.rest = true;
    http_count(&exchange->home->metrics->received_bytes, len - *left);
    if (http_exchange_open(exchange) || !too_much_to_drain(exchange)) return MHD_YES;
    http_close_with_problem(exchange->home, exchange->route, exchange->connection,
                            http_connection_fd(exchange->connection), &exchange->answer.problem);
    http_log_access(exchange, exchange->answer.status);
    exchange->client.linger = true;
    return MHD_NO; /* closes */
}

static enum MHD_Result finish(struct http_exchange *exchange) {
    if (exchange->hold == HTTP_PARKED) return MHD_YES;
    if (exchange->state == HTTP_AT_REFUSED) http_exchange_enter(exchange, HTTP_AT_ANSWERED);
    if (exchange->state == HTTP_AT_BODY) {
        http_exchange_enter(exchange,
                            exchange->route->jobs == NULL ? HTTP_AT_WAITING : HTTP_AT_FETCHING);
        exchange->route->run(exchange);
        if (http_exchange_open(exchange)) {
            http_exchange_await(exchange);
            return MHD_YES;
        }
    }
    return send_answer(exchange);
}

/* Parameters that do not fit a connection's memory make libmicrohttpd close it without a word, or
 * with a page of its own, before we are asked. So they are counted before it reads them. */
void *http_exchange_uri(void *cls, const char *uri, struct MHD_Connection *connection) {
    const struct http_head head = {.bare_lines = !HTTP_STRICT_LIBRARY};
    const char *at = strchr(uri, '?');
    struct http_exchange *exchange;
    struct blasd_err problem = {0};
    int count = at == NULL ? 0 : 1, fd = http_connection_fd(connection);
    while (at != NULL && (at = strchr(at + 1, '&')) != NULL) count++;
    if (!http_head_target(&head, uri))
        blasd_fail(&problem, BLASD_E_malformed_query, "",
                   "the request's first line is not a method, a path and a version, each once");
    else if (count > HTTP_PARAMS_MOST)
        blasd_fail(&problem, BLASD_E_malformed_query, "",
                   "the query has %d parameters; %d are read", count, HTTP_PARAMS_MOST);
    if (problem.code == BLASD_OK || (exchange = begin_exchange(cls, connection)) == NULL)
        return NULL;
    http_close_with_problem(exchange->home, NULL, connection, fd, &problem);
    (void)shutdown(fd, SHUT_WR);
    exchange->client.linger = true;
    http_exchange_abandon(exchange);
    return exchange;
}

enum MHD_Result http_exchange_handle(void *cls, struct MHD_Connection *connection, const char *url,
                                     const char *method, const char *version, const char *upload,
                                     size_t *upload_size, void **context) {
    struct http_exchange *exchange = *context;
    if (exchange == NULL) {
        exchange = begin_exchange(cls, connection);
        if (exchange == NULL) return MHD_NO;
        *context = exchange;
        begin(exchange, url, method, version);
        http_exchange_enter(exchange, HTTP_AT_BODY); /* where it was not refused */
        if (exchange->request.framing.expects_continue)
            exchange->home->turn.more = true; /* and it says so */
        /* an answer given now closes the connection, so it waits for the end of a small body */
        if (http_exchange_open(exchange) || !has_body(exchange)) return MHD_YES;
        if (!exchange->request.framing.chunked && !exchange->request.framing.expects_continue &&
            exchange->request.framing.content_length <= DRAIN_BYTES)
            return MHD_YES;
        exchange->client.linger = true;
        http_exchange_enter(exchange, HTTP_AT_ANSWERED);
        return send_answer(exchange);
    }
    if (exchange->state == HTTP_AT_GONE) return MHD_NO;
    if (*upload_size > 0) {
        size_t len = *upload_size;
        *upload_size = 0;
        return take_body(exchange, upload, len, upload_size);
    }
    return finish(exchange);
}

void http_exchange_completed(void *cls, struct MHD_Connection *connection, void **context,
                             enum MHD_RequestTerminationCode code) {
    struct http_exchange *exchange = *context;
    (void)cls;
    if (exchange == NULL) return;
    *context = NULL;
    if (exchange->client.linger)
        http_lingering_close(exchange->home, http_connection_fd(connection));
    http_connection_asks(exchange->client.connection, NULL, blasd_loop_now(exchange->home->loop));
    http_exchange_end(exchange, exchange->hold == HTTP_PARKED &&
                                    code != MHD_REQUEST_TERMINATED_DAEMON_SHUTDOWN);
}
