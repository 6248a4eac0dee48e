/* Ends requests that come too slowly. The connections of a loop stand in a list, which is gone
 * through once a second: what a request costs here is a note of when it began and ended. */
#include "http/timeouts.h"

#include "base/clock.h"
#include "http/exchange.h"
#include "http/tls.h"

#include <inttypes.h>
#include <stdlib.h>
#include <sys/socket.h>

#define SECOND_NS INT64_C(1000000000)

struct http_connection *http_connection_new(struct http_loop *loop, struct MHD_Connection *mhd) {
    struct http_connection *connection = calloc(1, sizeof *connection);
    if (connection == NULL) return NULL;
    connection->mhd = mhd;
    connection->since_ns = blasd_clock_ns();
    if (loop->server->tls != NULL) connection->line = http_tls_line_new(mhd, &loop->turn.tls);
    blasd_list_add(&loop->connections, &connection->node);
    return connection;
}

void http_connection_end(struct http_connection *connection) {
    if (connection == NULL) return;
    blasd_list_remove(&connection->node);
    http_tls_line_free(connection->line);
    free(connection->certificate);
    free(connection);
}

void http_connection_asks(struct http_connection *connection, bool asks) {
    if (connection == NULL) return;
    connection->asks = asks;
    if (!asks) connection->since_ns = blasd_clock_ns();
}

struct http_connection *http_connection_of(struct MHD_Connection *mhd) {
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    return info == NULL ? NULL : info->socket_context;
}

void http_cut_off(struct http_loop *loop, const struct http_route *route,
                  struct MHD_Connection *mhd, const struct blasd_err *problem) {
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_CONNECTION_FD);
    int fd = info == NULL ? -1 : info->connect_fd;
    http_close_with_problem(loop, route, mhd, fd, problem);
    if (fd >= 0) (void)shutdown(fd, SHUT_RDWR);
    /* with its memory full libmicrohttpd does not even notice that: its time is to run out */
    (void)MHD_set_connection_option(mhd, MHD_CONNECTION_OPTION_TIMEOUT, 1u);
}

bool http_timeouts_body(const struct http_exchange *exchange, struct blasd_err *problem) {
    const struct blasd_limits *limits = exchange->home->server->limits;
    uint64_t seconds = limits->request_s + exchange->body.seen / limits->request_rate;
    if ((blasd_clock_ns() - exchange->began_ns) / SECOND_NS < (int64_t)seconds) return false;
    blasd_fail(problem, BLASD_E_request_timeout, "",
               "%" PRIu64 " bytes of the body came in %" PRIu64
               " seconds (limits request_s and request_rate)",
               exchange->body.seen, seconds);
    return true;
}

void http_timeouts_check(struct http_loop *loop) {
    const struct blasd_limits *limits = loop->server->limits;
    uint64_t seconds = limits->connection_idle_s + limits->request_s;
    int64_t before = blasd_clock_ns() - (int64_t)seconds * SECOND_NS;
    struct blasd_err problem = {0};
    blasd_fail(&problem, BLASD_E_request_timeout, "",
               "the head of the request was not complete after %" PRIu64
               " seconds (limits connection_idle_s and request_s)",
               seconds);
    BLASD_LIST_EACH(node, &loop->connections) {
        struct http_connection *connection = blasd_container_of(node, struct http_connection, node);
        if (connection->asks || connection->closing || connection->since_ns > before) continue;
        connection->closing = true;
        http_cut_off(loop, NULL, connection->mhd, &problem);
    }
}
