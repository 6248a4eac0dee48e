/* How long a client may take to send a request.
 *
 * libmicrohttpd closes a connection that is silent for `connection_idle_s`, but one whose bytes
 * come in drops would stay for ever. So a head has `request_s` from its first byte on, and a body
 * another `request_s` and a second for each `request_rate` bytes of it that came; then the client
 * is told so (408) and the connection closed. When the first byte of a head came is not known: it
 * may be as late as `connection_idle_s` after the answer before it. Read next: exchange.h. */
#ifndef BLASD_HTTP_TIMEOUTS_H
#define BLASD_HTTP_TIMEOUTS_H

#include "base/err.h"
#include "base/list.h"
#include "http/peer.h"

#include <microhttpd.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct http_exchange;
struct http_loop;
struct http_route;
struct http_tls_line;

/* A connection from its beginning to its end, which libmicrohttpd keeps as its socket context. */
struct http_connection {
    struct blasd_list node;     /* in the loop's connections */
    struct MHD_Connection *mhd; /* borrowed */
    int64_t since_ns;           /* its beginning, or the end of its last request */
    bool asks;                  /* the head of a request has come, and no answer has gone */
    bool closing;
    char client[HTTP_PEER_TEXT]; /* its address, once somebody wanted to know; "": nobody has */
    bool user_known; /* whose process is at the other end: asked once, by who wants to know */
    uid_t user;
    struct http_tls_line *line; /* owned; NULL: without TLS */
    int64_t certified_ns;       /* until then this holds: */
    char *certificate;          /* owned; whose the client has shown, or NULL */
};

/* New, which stays until http_connection_end; NULL: no memory, and the connection has no limit. */
struct http_connection *http_connection_new(struct http_loop *loop, struct MHD_Connection *mhd);
/* Takes NULL, as the next. */
void http_connection_end(struct http_connection *connection);
/* The head of a request has come, or its exchange has ended. */
void http_connection_asks(struct http_connection *connection, bool asks);
/* That of a connection, or NULL. */
struct http_connection *http_connection_of(struct MHD_Connection *mhd);
/* Once a second or so: ends those whose head takes too long. */
void http_timeouts_check(struct http_loop *loop);

/* Whether the body of the exchange takes too long, which `problem` then says. */
bool http_timeouts_body(const struct http_exchange *exchange, struct blasd_err *problem);
/* Answers on a connection that libmicrohttpd waits for, and has it closed. `route`: what it is
 * counted under; NULL: none. */
void http_cut_off(struct http_loop *loop, const struct http_route *route,
                  struct MHD_Connection *mhd, const struct blasd_err *problem);

#endif
