/* Ends requests that come too slowly. The connections of a loop stand in a list, which is gone
 * through once a second: what a request costs here is a note of when it began and ended. */
#include "http/patience.h"

#include "base/clock.h"
#include "http/exchange.h"

#include <inttypes.h>
#include <stdlib.h>
#include <sys/socket.h>

#define SECOND_NS INT64_C(1000000000)

struct http_visit *http_visit_new(struct http_loop *loop, struct MHD_Connection *connection) {
    struct http_visit *visit = calloc(1, sizeof *visit);
    if (visit == NULL) return NULL;
    *visit = (struct http_visit){
        .home = loop, .next = loop->visits, .connection = connection, .since_ns = blasd_clock_ns()};
    if (loop->visits != NULL) loop->visits->prev = visit;
    loop->visits = visit;
    return visit;
}

void http_visit_end(struct http_visit *visit) {
    if (visit == NULL) return;
    if (visit->next != NULL) visit->next->prev = visit->prev;
    *(visit->prev == NULL ? &visit->home->visits : &visit->prev->next) = visit->next;
    free(visit);
}

void http_visit_asks(struct http_visit *visit, bool asks) {
    if (visit == NULL) return;
    visit->asks = asks;
    if (!asks) visit->since_ns = blasd_clock_ns();
}

struct http_visit *http_visit_of(struct MHD_Connection *connection) {
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    return info == NULL ? NULL : info->socket_context;
}

void http_cut_off(struct http_loop *loop, const struct http_route *route,
                  struct MHD_Connection *connection, const struct blasd_err *problem) {
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    int fd = info == NULL ? -1 : info->connect_fd;
    http_linger_problem(loop, route, fd, problem);
    if (fd >= 0) (void)shutdown(fd, SHUT_RDWR);
    /* with its memory full libmicrohttpd does not even notice that: its time is to run out */
    (void)MHD_set_connection_option(connection, MHD_CONNECTION_OPTION_TIMEOUT, 1u);
}

bool http_body_late(const struct http_exchange *exchange, struct blasd_err *problem) {
    const struct blasd_limits *limits = exchange->home->server->limits;
    uint64_t seconds = limits->request_s + exchange->body.seen / limits->request_rate;
    if ((blasd_clock_ns() - exchange->began_ns) / SECOND_NS < (int64_t)seconds) return false;
    blasd_fail(problem, BLASD_E_request_timeout, "",
               "%" PRIu64 " bytes of the body came in %" PRIu64
               " seconds (limits request_s and request_rate)",
               exchange->body.seen, seconds);
    return true;
}

void http_visits_check(struct http_loop *loop) {
    const struct blasd_limits *limits = loop->server->limits;
    uint64_t seconds = limits->connection_idle_s + limits->request_s;
    int64_t before = blasd_clock_ns() - (int64_t)seconds * SECOND_NS;
    struct blasd_err problem = {0};
    blasd_fail(&problem, BLASD_E_request_timeout, "",
               "the head of the request was not complete after %" PRIu64
               " seconds (limits connection_idle_s and request_s)",
               seconds);
    for (struct http_visit *visit = loop->visits; visit != NULL; visit = visit->next) {
        if (visit->asks || visit->closing || visit->since_ns > before) continue;
        visit->closing = true;
        http_cut_off(loop, NULL, visit->connection, &problem);
    }
}
