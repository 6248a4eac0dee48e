/* The exchange itself: its making and its end, its answer, and its waiting for one. */
#include "http/exchange.h"

#include "base/clock.h"
#include "base/container.h"
#include "base/hash.h"
#include "base/id.h"
#include "http/timeouts.h"

#include <inttypes.h>
#include <poll.h>
#include <string.h>
#include <sys/epoll.h>

struct http_exchange *http_exchange_new(struct http_loop *loop, struct MHD_Connection *connection) {
    struct http_exchange *exchange = blasd_freelist_take_zeroed(&loop->freelists.exchanges);
    if (exchange == NULL) return NULL;
    exchange->home = loop;
    exchange->connection = connection;
    exchange->began_ns = blasd_loop_now(loop->loop);
    exchange->wanted.output = HTTP_DOCUMENT;
    exchange->memory.limit = UINT64_MAX;
    exchange->memory.parent = &loop->server->memory.all;
    blasd_buf_init(&exchange->body.kept, HTTP_SMALL_BODY);
    exchange->body.kept.account = &exchange->memory;
    blasd_list_add(&loop->exchanges, &exchange->node);
    loop->exchange_count++;
    http_count(&loop->metrics->in_flight, 1);
    return exchange;
}

struct blasd_account *http_account_of(struct http_shared_account *shared,
                                      const struct blasd_principal *tenant) {
    uint64_t hash;
    if (tenant->weight == 0) return &shared->all; /* there are no keys */
    hash = blasd_hash_bytes(0, tenant->tenant, strlen(tenant->tenant));
    return &shared->of[hash % HTTP_TENANT_PLACES];
}

void http_account_limit(struct http_shared_account *shared, uint64_t limit) {
    blasd_account_set(&shared->all, limit);
    for (int i = 0; i < HTTP_TENANT_PLACES; i++) {
        shared->of[i].parent = &shared->all;
        blasd_account_set(&shared->of[i], limit / 4 * 3);
    }
}

int http_exchange_reserve(struct http_exchange *exchange, uint64_t bytes, struct blasd_err *err) {
    if (blasd_account_take(&exchange->memory, bytes)) return 0;
    return blasd_fail(err, BLASD_E_no_space, "",
                      "%" PRIu64 " bytes of memory are not free: requests and answers hold %" PRIu64
                      " of %" PRIu64 " (limit memory_bytes), and a tenant may have three quarters",
                      bytes, blasd_account_used(&exchange->home->server->memory.all),
                      blasd_account_limit(&exchange->home->server->memory.all));
}

static void exchange_free(struct http_exchange *exchange) {
    struct http_loop *loop = exchange->home;
    blasd_list_remove(&exchange->node);
    if (exchange->answer.response != NULL) MHD_destroy_response(exchange->answer.response);
    if (exchange->upload != NULL) exchange->route->jobs->release(exchange);
    if (exchange->side != NULL) exchange->side->release(exchange->side);
    if (exchange->form.inference != NULL) exchange->form.dialect->release(exchange);
    blasd_buf_release(&exchange->body.kept);
    blasd_account_give(&exchange->memory, blasd_account_used(&exchange->memory));
    blasd_freelist_give(&loop->freelists.exchanges, exchange);
}

void http_exchange_hold(struct http_exchange *exchange) {
    exchange->pending++;
}

void http_exchange_release(struct http_exchange *exchange) {
    if (--exchange->pending == 0 && exchange->connection == NULL) exchange_free(exchange);
}

int http_connection_fd(struct MHD_Connection *connection) {
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    return info == NULL ? -1 : info->connect_fd;
}

void http_exchange_unwatch(struct http_exchange *exchange) {
    if (exchange->client.watched)
        blasd_loop_unwatch(exchange->home->loop, &exchange->client.watcher);
    exchange->client.watched = false;
}

static void set_hold(struct http_exchange *exchange, enum http_hold hold) {
    if (exchange->hold == HTTP_PARKED) exchange->home->parking.count--;
    if (hold == HTTP_PARKED) exchange->home->parking.count++;
    exchange->hold = hold;
}

void http_exchange_suspend(struct http_exchange *exchange) {
    MHD_suspend_connection(exchange->connection);
    set_hold(exchange, HTTP_SUSPENDED);
}

/* Suspending takes the connection out of libmicrohttpd's epoll set, resuming
 * puts it back and has it read for nothing: three system calls. Most answers come within
 * milliseconds, so the exchange is parked first: libmicrohttpd goes on asking for the answer in
 * every turn, which costs about a hundredth of that. What waits for long is suspended
 * (http_exchange_check), and so is what is more than turns of late have answers for. */
void http_exchange_await(struct http_exchange *exchange) {
    if (exchange->home->parking.count >= exchange->home->parking.most)
        http_exchange_suspend(exchange);
    else
        set_hold(exchange, HTTP_PARKED);
}

void http_exchange_resume(struct http_exchange *exchange) {
    if (exchange->hold == HTTP_RUNS) return;
    http_exchange_unwatch(exchange);
    if (exchange->hold == HTTP_SUSPENDED) MHD_resume_connection(exchange->connection);
    set_hold(exchange, HTTP_RUNS);
    exchange->home->turn.resumed = true;
}

/* The client has left: an answer that is still to be made is not wanted any more. */
static void leave(struct http_exchange *exchange) {
    enum http_state before = exchange->state;
    http_exchange_abandon(exchange);
    http_exchange_wait_end(exchange);
    if (exchange->upload != NULL && before <= HTTP_AT_WAITING)
        exchange->route->jobs->gone(exchange, before == HTTP_AT_WAITING);
}

/* libmicrohttpd does not look at a suspended connection, so we do. */
static void client_gone(struct blasd_watcher *watcher, uint32_t events) {
    (void)events;
    leave(blasd_container_of(watcher, struct http_exchange, client.watcher));
}

bool http_exchange_left(struct http_exchange *exchange) {
    struct pollfd client = {.fd = http_connection_fd(exchange->connection), .events = POLLRDHUP};
    if (exchange->client.watched || poll(&client, 1, 0) <= 0) return false;
    leave(exchange);
    return true;
}

void http_exchange_watch_waiting(struct http_exchange *exchange) {
    exchange->client.watcher = (struct blasd_watcher){
        .fd = http_connection_fd(exchange->connection), .ready = client_gone};
    exchange->client.watched =
        blasd_loop_watch(exchange->home->loop, &exchange->client.watcher, EPOLLRDHUP) == 0;
}

void http_exchange_wait_end(struct http_exchange *exchange) {
    struct http_loop *loop = exchange->home;
    if (!exchange->wait.begun) return;
    exchange->wait.begun = false;
    http_uncount(&loop->metrics->waiting);
    blasd_loop_timer_clear(loop->loop, &exchange->wait.timer);
    blasd_front_queue_unwatch(loop->queue, &exchange->wait.waiter);
}

void http_exchange_end(struct http_exchange *exchange, bool left) {
    bool taken = exchange->state == HTTP_AT_WAITING;
    http_exchange_wait_end(exchange);
    http_exchange_unwatch(exchange);
    set_hold(exchange, HTTP_RUNS);
    exchange->client.connection = NULL;
    exchange->connection = NULL;
    left = left && http_exchange_open(exchange);
    if (exchange->state != HTTP_AT_ANSWERED) http_exchange_enter(exchange, HTTP_AT_GONE);
    if (left && exchange->upload != NULL) exchange->route->jobs->gone(exchange, taken);
    exchange->home->exchange_count--;
    http_uncount(&exchange->home->metrics->in_flight);
    if (exchange->pending == 0) exchange_free(exchange);
}

void http_exchange_abandon(struct http_exchange *exchange) {
    http_exchange_enter(exchange, HTTP_AT_GONE);
    http_exchange_resume(exchange);
}

void http_exchange_answer(struct http_exchange *exchange, unsigned status,
                          struct MHD_Response *response) {
    enum http_state to = http_body_coming(exchange) ? HTTP_AT_REFUSED : HTTP_AT_ANSWERED;
    http_exchange_wait_end(exchange);
    if (!http_exchange_enter(exchange, to) || exchange->connection == NULL ||
        exchange->answer.response != NULL) {
        if (response != NULL) MHD_destroy_response(response);
        return;
    }
    exchange->answer.response = response;
    exchange->answer.status = status;
    http_exchange_resume(exchange);
}

bool http_other_format(struct http_exchange *exchange) {
    enum blasd_format format = (enum blasd_format)exchange->wanted.format;
    if (!blasd_accept_other(&exchange->request.accepts, &format)) return false;
    exchange->wanted.format = (int)format;
    return true;
}

const char *http_request_id(struct http_exchange *exchange) {
    if (exchange->route != NULL && exchange->route->jobs != NULL) {
        if (exchange->id[0] == '\0')
            blasd_id_new(BLASD_ID_ASYNC, blasd_clock_wall_us(), exchange->id);
        return exchange->id;
    }
    if (exchange->request_id[0] == '\0') blasd_random_hex(exchange->request_id, HTTP_REQUEST_ID);
    return exchange->request_id;
}

void http_client_text(const struct http_exchange *exchange, char client[HTTP_PEER_TEXT]) {
    struct http_connection *connection = exchange->client.connection;
    const union MHD_ConnectionInfo *peer;
    if (connection != NULL && connection->client[0] != '\0') {
        memcpy(client, connection->client, sizeof connection->client);
        return;
    }
    peer = exchange->connection == NULL
               ? NULL
               : MHD_get_connection_info(exchange->connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    http_peer_text(peer == NULL ? NULL : peer->client_addr, client);
    if (connection != NULL) memcpy(connection->client, client, sizeof connection->client);
}

const char *http_trace_text(const struct http_exchange *exchange, char text[BLASD_TRACE_TEXT]) {
    if (!blasd_trace_given(exchange->request.tracing.trace.id)) return NULL;
    blasd_trace_text(exchange->request.tracing.trace.id, text);
    return text;
}
