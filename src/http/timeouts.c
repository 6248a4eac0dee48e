/* Ends requests that come too slowly, or no more. The connections of a loop stand in a list, which
 * is gone through twice a second: what a request costs here is a note of when it began and ended.
 */
#include "http/timeouts.h"

#include "http/exchange.h"
#include "http/tls.h"

#include <inttypes.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#define SECOND_NS INT64_C(1000000000)
#define LOOKS 512 /* sockets that one system call looks at */

struct http_connection *http_connection_new(struct http_loop *loop, struct MHD_Connection *mhd) {
    struct http_connection *connection = calloc(1, sizeof *connection);
    if (connection == NULL) return NULL;
    connection->mhd = mhd;
    connection->since_ns = blasd_loop_now(loop->loop);
    connection->part = http_peer_part_of(mhd);
    if (loop->server->tls != NULL) connection->line = http_tls_line_new(mhd, &loop->turn.tls);
    blasd_list_append(&loop->connections, &connection->node);
    return connection;
}

void http_connection_end(struct http_loop *loop, struct http_connection *connection) {
    if (connection == NULL) return;
    if (connection->cut) loop->acceptor.cut--;
    blasd_list_remove(&connection->node);
    http_tls_line_free(connection->line);
    free(connection->certificate);
    free(connection);
}

void http_connection_asks(struct http_connection *connection, struct http_exchange *exchange,
                          int64_t now) {
    if (connection == NULL) return;
    connection->exchange = exchange;
    connection->left_at = 0;
    if (exchange == NULL) connection->since_ns = now;
}

struct http_connection *http_connection_of(struct MHD_Connection *mhd) {
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    return info == NULL ? NULL : info->socket_context;
}

/* With its memory full libmicrohttpd does not even notice that: its time is to run out. */
static void close_now(struct MHD_Connection *mhd, int fd) {
    if (fd >= 0) (void)shutdown(fd, SHUT_RDWR);
    (void)MHD_set_connection_option(mhd, MHD_CONNECTION_OPTION_TIMEOUT, 1u);
}

void http_cut_off(struct http_loop *loop, const struct http_route *route,
                  struct MHD_Connection *mhd, const struct blasd_err *problem) {
    int fd = http_connection_fd(mhd);
    http_close_with_problem(loop, route, mhd, fd, problem);
    close_now(mhd, fd);
}

/* Whether it may be cut to make room: 0 before all others, 1 if there are no such, -1 never. */
static int cut_rank(const struct http_connection *connection) {
    const struct http_exchange *exchange = connection->exchange;
    if (connection->closing) return -1;
    if (exchange == NULL || http_body_coming(exchange)) return 0;
    return http_exchange_open(exchange) ? -1 : 1;
}

static uint32_t crowd_of(const struct http_loop *loop, const struct http_connection *connection) {
    return http_crowd_of(&loop->acceptor.crowd, connection->part);
}

bool http_timeouts_make_room(void *arg, uint64_t own) {
    struct http_loop *loop = arg;
    const struct http_connection *largest = NULL;
    uint64_t most = 0, cut;
    if (loop->acceptor.largest > 0 && own + 1 >= loop->acceptor.largest) return false;
    BLASD_LIST_EACH(node, &loop->connections) {
        struct http_connection *connection = blasd_container_of(node, struct http_connection, node);
        if (crowd_of(loop, connection) <= most || cut_rank(connection) < 0) continue;
        most = crowd_of(loop, connection);
        largest = connection;
    }
    loop->acceptor.largest = most;
    if (own + 1 >= most) return false;
    cut = (most - own) / 2 < HTTP_CUT_MOST ? (most - own) / 2 : HTTP_CUT_MOST;
    for (int rank = 0; rank <= 1; rank++) BLASD_LIST_EACH(node, &loop->connections) {
            struct http_connection *connection =
                blasd_container_of(node, struct http_connection, node);
            if (cut == 0) break;
            if (connection->part != largest->part || cut_rank(connection) != rank) continue;
            cut--;
            loop->acceptor.cut++;
            connection->cut = connection->closing = true;
            if (connection->exchange != NULL) http_exchange_abandon(connection->exchange);
            close_now(connection->mhd, http_connection_fd(connection->mhd));
        }
    return true;
}

void http_timeouts_bad_length(struct http_loop *loop) {
    BLASD_LIST_EACH(node, &loop->connections) {
        struct http_connection *connection = blasd_container_of(node, struct http_connection, node);
        const char *length;
        struct blasd_err problem = {0};
        uint64_t bytes;
        int fd;
        if (connection->exchange != NULL || connection->closing) continue;
        length = MHD_lookup_connection_value(connection->mhd, MHD_HEADER_KIND, "Content-Length");
        if (length == NULL || (http_count_read(length, &bytes) && bytes < UINT64_MAX)) continue;
        blasd_fail(&problem, BLASD_E_malformed_query, "Content-Length",
                   "the header is not a whole number of bytes that could come");
        fd = http_connection_fd(connection->mhd);
        connection->closing = true;
        http_close_with_problem(loop, NULL, connection->mhd, fd, &problem);
        (void)shutdown(fd, SHUT_WR);
        http_lingering_close(loop, fd);
    }
}

bool http_timeouts_body(const struct http_exchange *exchange, struct blasd_err *problem) {
    const struct blasd_limits *limits = exchange->home->server->limits;
    uint64_t seconds = limits->request_s + exchange->body.seen / limits->request_rate;
    if ((blasd_loop_now(exchange->home->loop) - exchange->began_ns) / SECOND_NS < (int64_t)seconds)
        return false;
    blasd_fail(problem, BLASD_E_request_timeout, "",
               "%" PRIu64 " bytes of the body came in %" PRIu64
               " seconds (limits request_s and request_rate)",
               exchange->body.seen, seconds);
    return true;
}

/* Ends those of the connections whose client has closed its side, has sent nothing more since the
 * last look, and has nothing left to be read. */
static void drop_left(struct http_connection *const *connections, const struct pollfd *sockets,
                      int count) {
    for (int i = 0; i < count; i++) {
        struct http_connection *connection = connections[i];
        struct http_exchange *exchange = connection->exchange;
        uint64_t seen = 1 + (exchange == NULL ? 0 : exchange->body.seen);
        int unread = 0;
        if ((sockets[i].revents & (POLLRDHUP | POLLHUP | POLLERR)) == 0) continue;
        if (connection->left_at != seen ||
            (ioctl(sockets[i].fd, FIONREAD, &unread) == 0 && unread > 0)) {
            connection->left_at = seen;
            continue;
        }
        connection->closing = true;
        if (exchange != NULL) http_exchange_abandon(exchange);
        close_now(connection->mhd, sockets[i].fd);
    }
}

/* Looks at the sockets of all requests that are not whole, some at a time. */
static void check_left(struct http_loop *loop) {
    struct http_connection *connections[LOOKS];
    struct pollfd sockets[LOOKS];
    int count = 0;
    BLASD_LIST_EACH(node, &loop->connections) {
        struct http_connection *connection = blasd_container_of(node, struct http_connection, node);
        if (connection->closing ||
            (connection->exchange != NULL && !http_body_coming(connection->exchange)))
            continue;
        connections[count] = connection;
        sockets[count++] =
            (struct pollfd){.fd = http_connection_fd(connection->mhd), .events = POLLRDHUP};
        if (count < LOOKS) continue;
        if (poll(sockets, LOOKS, 0) > 0) drop_left(connections, sockets, LOOKS);
        count = 0;
    }
    if (count > 0 && poll(sockets, (nfds_t)count, 0) > 0) drop_left(connections, sockets, count);
}

void http_timeouts_check(struct http_loop *loop) {
    const struct blasd_limits *limits = loop->server->limits;
    uint64_t seconds = limits->connection_idle_s + limits->request_s;
    int64_t before = blasd_loop_now(loop->loop) - (int64_t)seconds * SECOND_NS;
    struct blasd_err problem = {0};
    blasd_fail(&problem, BLASD_E_request_timeout, "",
               "the head of the request was not complete after %" PRIu64
               " seconds (limits connection_idle_s and request_s)",
               seconds);
    BLASD_LIST_EACH(node, &loop->connections) {
        struct http_connection *connection = blasd_container_of(node, struct http_connection, node);
        if (connection->exchange != NULL || connection->closing || connection->since_ns > before)
            continue;
        connection->closing = true;
        http_cut_off(loop, NULL, connection->mhd, &problem);
    }
    check_left(loop);
}
