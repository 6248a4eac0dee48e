/* How long a client may take to send a request.
 *
 * libmicrohttpd closes a connection that is silent for `connection_idle_s`, but one whose bytes
 * come in drops would stay for ever. So a head has `request_s` from its first byte on, and a body
 * another `request_s` and a second for each `request_rate` bytes of it that came; then the client
 * is told so (408) and the connection closed. A client that closes or resets its connection before
 * its request is whole is dropped at once: libmicrohttpd does not see the end of a stream that
 * comes together with its last bytes, so the sockets are looked at. When the first byte of a head
 * came is not known: it may be as late as `connection_idle_s` after the answer before it. Read
 * next: exchange.h. */
#ifndef BLASD_HTTP_TIMEOUTS_H
#define BLASD_HTTP_TIMEOUTS_H

#include "base/err.h"
#include "base/list.h"
#include "http/peer.h"

#include <microhttpd.h>
#include <stdbool.h>
#include <stdint.h>

struct http_exchange;
struct http_loop;
struct http_route;
struct http_tls_line;

/* A connection from its beginning to its end, which libmicrohttpd keeps as its socket context. */
struct http_connection {
    struct blasd_list node;         /* in the loop's connections */
    struct MHD_Connection *mhd;     /* borrowed */
    int64_t since_ns;               /* its beginning, or the end of its last request */
    struct http_exchange *exchange; /* of the request whose head has come; borrowed, or NULL */
    uint64_t left_at; /* bytes that had come when the client was seen to have left, and one */
    uint64_t part;    /* where it comes from: http_peer_part */
    bool closing;
    bool cut;                    /* to make room */
    char client[HTTP_PEER_TEXT]; /* its address, once somebody wanted to know; "": nobody has */
    struct http_tls_line *line;  /* owned; NULL: without TLS */
    int64_t certified_ns;        /* until then this holds: */
    char *certificate;           /* owned; whose the client has shown, or NULL */
};

/* New, which stays until http_connection_end; NULL: no memory, and the connection has no limit. */
struct http_connection *http_connection_new(struct http_loop *loop, struct MHD_Connection *mhd);
/* Takes NULL, as the next. */
void http_connection_end(struct http_loop *loop, struct http_connection *connection);
/* The head of a request has come, or its exchange has ended (NULL). */
void http_connection_asks(struct http_connection *connection, struct http_exchange *exchange,
                          int64_t now);
/* That of a connection, or NULL. */
struct http_connection *http_connection_of(struct MHD_Connection *mhd);
/* Several times a second: ends those whose head takes too long, and those whose client has left
 * before its request was whole. */
void http_timeouts_check(struct http_loop *loop);

/* Every place is taken: cuts connections of the address that has most, for one of an address that
 * has `own`; `arg` is the loop. Those go first whose request is not whole, and none that waits for
 * its answer. False: no address has more than one above that. */
#define HTTP_CUT_MOST 64
bool http_timeouts_make_room(void *arg, uint64_t own);

/* libmicrohttpd is about to refuse a Content-Length, before an exchange begins: 0.9.75 would send
 * the head of its answer twice. So the answer is sent here, and libmicrohttpd can send no more. */
void http_timeouts_bad_length(struct http_loop *loop);

/* Whether the body of the exchange takes too long, which `problem` then says. */
bool http_timeouts_body(const struct http_exchange *exchange, struct blasd_err *problem);
/* Answers on a connection that libmicrohttpd waits for, and has it closed. `route`: what it is
 * counted under; NULL: none. */
void http_cut_off(struct http_loop *loop, const struct http_route *route,
                  struct MHD_Connection *mhd, const struct blasd_err *problem);

#endif
