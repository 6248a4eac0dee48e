/* Closing a connection whose client is still sending.
 *
 * Closing a socket with unread bytes resets it, and the client may then never see the answer that
 * was on its way. So we keep a second descriptor of it, say that we send no more, and read and
 * throw away what comes until the client has closed, or for a bounded time and size. */
#include "base/container.h"
#include "base/id.h"
#include "http/exchange.h"
#include "http/reply.h"
#include "http/tls.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define LINGER_MAX 64 /* connections of a loop at one time; further ones are closed at once */
#define LINGER_NS INT64_C(2000000000)
#define LINGER_BYTES (UINT64_C(64) << 20)

struct lingering {
    struct blasd_watcher watcher;
    struct blasd_timer timer;
    struct http_loop *home;
    uint64_t bytes;
};

static void end(struct lingering *lingering) {
    blasd_loop_unwatch(lingering->home->loop, &lingering->watcher);
    blasd_loop_timer_clear(lingering->home->loop, &lingering->timer);
    close(lingering->watcher.fd);
    lingering->home->lingering--;
    free(lingering);
}

static void on_ready(struct blasd_watcher *watcher, uint32_t events) {
    struct lingering *lingering = blasd_container_of(watcher, struct lingering, watcher);
    char bytes[65536];
    ssize_t got = recv(watcher->fd, bytes, sizeof bytes, MSG_DONTWAIT);
    (void)events;
    if (got > 0) lingering->bytes += (uint64_t)got;
    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR) ||
        lingering->bytes > LINGER_BYTES)
        end(lingering);
}

static void on_late(struct blasd_timer *timer) {
    end(blasd_container_of(timer, struct lingering, timer));
}

void http_lingering_close(struct http_loop *loop, int fd) {
    struct lingering *lingering;
    if (fd < 0 || loop->lingering >= LINGER_MAX ||
        (uint64_t)loop->lingering >= loop->acceptor.limit / 4 || loop->stopping.out_of_time)
        return;
    lingering = calloc(1, sizeof *lingering);
    if (lingering == NULL) return;
    lingering->home = loop;
    lingering->watcher =
        (struct blasd_watcher){.fd = fcntl(fd, F_DUPFD_CLOEXEC, 0), .ready = on_ready};
    lingering->timer.fire = on_late;
    if (lingering->watcher.fd < 0) {
        free(lingering);
        return;
    }
    shutdown(lingering->watcher.fd, SHUT_WR);
    loop->lingering++;
    if (blasd_loop_watch(loop->loop, &lingering->watcher, EPOLLIN) != 0 ||
        blasd_loop_timer_set(loop->loop, &lingering->timer,
                             blasd_loop_now(loop->loop) + LINGER_NS) != 0)
        end(lingering);
}

/* Nothing was sent on this connection since the last answer, so a few hundred bytes fit. */
static void send_last(struct http_loop *loop, struct MHD_Connection *connection, int fd,
                      const struct blasd_buf *answer) {
    ssize_t sent;
    if (loop->server->tls != NULL) {
        (void)http_tls_last_words(connection, answer->data, answer->len);
        return;
    }
    sent = send(fd, answer->data, answer->len, MSG_NOSIGNAL | MSG_DONTWAIT);
    (void)sent;
}

void http_close_with_problem(struct http_loop *loop, const struct http_route *route,
                             struct MHD_Connection *connection, int fd,
                             const struct blasd_err *problem) {
    const struct blasd_err_info *info = blasd_err_info(problem->code);
    struct http_problem_headers headers;
    struct blasd_buf body, answer;
    char id[HTTP_REQUEST_ID + 1];
    const char *type;
    bool failed;
    if (fd < 0) return;
    http_metrics_request(loop->metrics, http_route_number(loop, route), (unsigned)info->http_status,
                         problem->code);
    blasd_random_hex(id, HTTP_REQUEST_ID);
    blasd_buf_init(&body, 16 * BLASD_KIB);
    blasd_buf_init(&answer, 32 * BLASD_KIB);
    type = http_problem_body(route == NULL ? NULL : loop->server->dialect_of(route->path), problem,
                             &body);
    http_problem_headers(NULL, problem, &headers);
    failed =
        type == NULL ||
        blasd_buf_printf(&answer,
                         "HTTP/1.1 %d %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\n"
                         "Request-Id: %s\r\nConnection: close\r\n",
                         info->http_status, MHD_get_reason_phrase_for((unsigned)info->http_status),
                         type, body.len, id) != 0;
    for (const struct http_header *row = headers.rows; row->name != NULL && !failed; row++)
        failed = row->value != NULL &&
                 blasd_buf_printf(&answer, "%s: %s\r\n", row->name, row->value) != 0;
    if (!failed && blasd_buf_puts(&answer, "\r\n") == 0 &&
        blasd_buf_add(&answer, body.data, body.len) == 0)
        send_last(loop, connection, fd, &answer);
    blasd_buf_release(&answer);
    blasd_buf_release(&body);
}
