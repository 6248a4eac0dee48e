/* One request and its answer, and the loop it lives on: the types that every file here shares.
 *
 * The life of an exchange: libmicrohttpd calls us with the headers (the route is found, refusals
 * are decided), with pieces of the body (the route's `body`), and once more at its end (the route's
 * `run`). `run` either makes an answer at once, or asks the queue and leaves the exchange waiting,
 * parked or suspended; the queue's callback then makes the answer, which wakes it. An exchange is
 * freed once libmicrohttpd has finished with the connection and no callback is still to come, so a
 * callback must first ask http_exchange_open.
 * Read next: exchange.c, reply.h (making answers), waits.h (waiting for jobs). */
#ifndef BLASD_HTTP_EXCHANGE_H
#define BLASD_HTTP_EXCHANGE_H

#include "base/buf.h"
#include "base/loop.h"
#include "base/spares.h"
#include "http/choice.h"
#include "http/doorman.h"
#include "http/guard.h"
#include "http/http.h"
#include "http/metrics.h"
#include "http/pieces.h"
#include "http/request.h"
#include "queue/front_queue.h"

#include <microhttpd.h>
#include <stdatomic.h>

/* Whether libmicrohttpd can be told to look at the lines of a head itself (head.h, server.c). */
#define HTTP_STRICT_LIBRARY (MHD_VERSION >= 0x00097701)

/* A refused body of up to this size is read and thrown away, so that the connection lives on; of a
 * larger one the answer is sent at once and the connection closed. */
#define HTTP_DRAIN_BYTES (UINT64_C(1) << 20)

struct http_loop;
struct http_exchange;
struct http_upload;
struct http_handed;
struct http_visit;

/* What all loops share. Constant once the loops run, but for the atomics. */
struct http_server {
    const struct blasd_http_options *options;
    const struct blasd_limits *limits;
    struct blasd_store *store;
    struct http_guard guard;
    struct http_loop *loops;                /* owned */
    struct http_metrics *metrics;           /* owned; one a loop */
    _Atomic uint64_t intake_used;           /* bytes of bodies being received */
    _Atomic uint64_t intake_limit;          /* what they may be */
    _Atomic uint64_t store_free, store_all; /* a second ago */
    _Atomic uint64_t outputs_coming; /* of jobs on their way to the queue, see jobs_submit.c */
    bool queue_taken;                /* it has been told that jobs are taken */
    int64_t queue_down_ns; /* since when the first loop's queue takes no jobs; 0: it does */
    int64_t queue_told_ns; /* when on_queue was told so; 0: not since it did */
    int64_t started_us;
    int quit_fd;             /* an eventfd, written when it is time to drain; nobody reads it */
    _Atomic int told, quiet; /* bytes that stop_fd gave; loops that were without requests since */
};

#define HTTP_SPARES 4
#define HTTP_ANSWER_BLOCK ((size_t)32768)
#define HTTP_LANDINGS 512         /* bodies at a time that come straight into slices */
#define HTTP_EXCHANGE_SPARES 1024 /* and as many of uploads: some 2 MB */

struct http_loop {
    struct http_server *server; /* borrowed */
    struct blasd_loop *loop;    /* owned, as the next two */
    struct blasd_front_queue *queue;
    struct MHD_Daemon *daemons[HTTP_ROOMS]; /* owned; NULL where the usual one serves */
    struct http_doorman doorman;            /* gives each connection to one of them */
    struct http_metrics *metrics;           /* this loop's own counters; borrowed from the server */
    struct blasd_watcher mhd_watchers[HTTP_ROOMS], stop_watcher, quit_watcher;
    struct http_choice choice; /* of the device class for a job */
    struct blasd_timer grace, tick;
    _Atomic unsigned ticks;
    unsigned seen_ticks;             /* the first loop's: at its last look */
    struct http_exchange *exchanges; /* every one that has a connection */
    int exchange_count;
    struct http_visit *visits;      /* every connection of libmicrohttpd's: patience.c */
    struct http_exchange **waiting; /* buckets of the table in waits.c; owned */
    size_t waiting_buckets, waiting_count;
    struct http_exchange *gate_first, *gate_last; /* gate.c, as the next three */
    struct blasd_timer gate_timer;
    int64_t gate_spent_ns;
    int gate_earned;
    struct http_handed *handed_first, *handed_last; /* share.c */
    uint64_t submitting; /* jobs on their way to the queue, which its view does not count yet */
    /* memory that is used again: of exchanges, of what reads bodies, and of answers (results.c) */
    struct blasd_spares exchange_blocks, upload_blocks, intake_blocks, answer_blocks;
    struct blasd_buf scratch;             /* for what does not outlive a call */
    struct blasd_buf spares[HTTP_SPARES]; /* memory of bodies, to be used again */
    int spare_count;
    int landings;              /* bodies that are coming into slices */
    int lingering;             /* see linger.c */
    int parked;                /* exchanges that wait without being suspended */
    int parked_most;           /* by the pace: each turn asks all of them */
    int answers;               /* in this turn */
    int mapped_answers;        /* see results.c */
    struct http_pieces pieces; /* of large answers */
    double pace;               /* answers a turn, of late */
    bool resumed;              /* MHD_run must be called in this turn */
    bool more;                 /* and again in the next: there may be more to receive or to send */
    bool rest; /* and again in this turn: what is left of a short body may lie there */
    bool draining, out_of_time;
};

struct http_route {
    const char *path; /* {…} stands for one segment; also the label in metrics */
    unsigned methods; /* HTTP_ bits this row serves */
    unsigned params;  /* HTTP_PARAM_ bits it takes */
    /* Each may refuse by making an answer. begin: headers; body: a piece; run: all is there. */
    void (*begin)(struct http_exchange *exchange);
    void (*body)(struct http_exchange *exchange, const void *bytes, size_t len);
    void (*run)(struct http_exchange *exchange);
};

#define HTTP_CAPTURES 2

struct http_exchange {
    struct http_loop *home;
    struct http_exchange *next, *prev; /* in home->exchanges */
    struct MHD_Connection *connection; /* NULL once libmicrohttpd is done with it */
    struct http_visit *visit;       /* the connection's; borrowed, as long as that; may be NULL */
    const struct http_route *route; /* NULL: none */
    struct http_request request;
    char captures[HTTP_CAPTURES][64]; /* what stood for {…} */
    unsigned allow;                   /* methods of the path, for OPTIONS and 405 */
    bool foreign;                     /* an allowed page of another origin asks */

    struct MHD_Response *response; /* the answer, until it is queued; owned */
    unsigned status;
    struct blasd_err problem; /* where the answer is a problem */
    bool answered;            /* an answer was made, or its making is under way */
    bool complete;            /* the body has come, or is not wanted */
    bool running;             /* `run` was called */
    bool parked;              /* waits for its answer, which libmicrohttpd asks for in every turn */
    bool suspended;           /* waits for its answer, and libmicrohttpd does not look at it */
    bool gone;                /* the client left while the connection was suspended */
    bool linger;              /* closed with a body still coming */
    bool early;               /* libmicrohttpd would not take the answer yet */
    int pending;              /* callbacks of the queue still to come */
    uint64_t body;            /* bytes of the body seen */
    uint64_t body_refused_at;
    int64_t began_ns;
    struct blasd_watcher client; /* of the connection's descriptor, while `watched` */
    bool watched;
    bool closing;        /* given up in mid-body */
    uint64_t checked_at; /* body bytes seen at the last check */
    int stuck_checks;    /* checks since then at which bytes lay there unread */

    /* waiting for a job: waits.c */
    char id[BLASD_ID_LEN + 1];
    struct http_exchange *waiting_next;
    bool waiting, time_up;
    struct blasd_timer timer;
    unsigned wait_status; /* of the answer where the time is up */
    int output;           /* position of the one output asked for; -1: all; -2: the document */
    int format;           /* enum blasd_format of the answer */

    struct http_upload *upload;                  /* POST /jobs: upload.h; owned */
    struct http_exchange *gate_next, *gate_prev; /* gate.c */
    bool at_gate;
};

#define HTTP_ALL_OUTPUTS (-1)
#define HTTP_DOCUMENT (-2)

/* libmicrohttpd's callbacks; cls is the loop. */
enum MHD_Result http_exchange_handle(void *cls, struct MHD_Connection *connection, const char *url,
                                     const char *method, const char *version, const char *upload,
                                     size_t *upload_size, void **context);
void *http_exchange_uri(void *cls, const char *uri, struct MHD_Connection *connection);
void http_exchange_completed(void *cls, struct MHD_Connection *connection, void **context,
                             enum MHD_RequestTerminationCode code);

/* Gives the exchange its answer; `response` is taken (NULL: memory has run out, and the connection
 * is closed) and sent from the next turn of libmicrohttpd. */
void http_exchange_answer(struct http_exchange *exchange, unsigned status,
                          struct MHD_Response *response);
/* Called a few times a second: from then on a client that leaves in the middle of its request, or
 * while it waits, is noticed. Most requests are over before that and cost no system call for it. */
void http_exchange_check(struct http_exchange *exchange);
/* The service ends: a suspended connection is resumed to be closed. */
void http_exchange_abandon(struct http_exchange *exchange);
/* Counts an answer for GET /metrics. `route`: NULL where there is none. */
void http_exchange_count(struct http_loop *loop, const struct http_route *route, unsigned status);
/* A callback of the queue is to come, or has come. After http_exchange_release, which may free the
 * exchange, it is not to be touched. */
void http_exchange_hold(struct http_exchange *exchange);
void http_exchange_release(struct http_exchange *exchange);
/* Whether anybody still waits for an answer. */
static inline bool http_exchange_open(const struct http_exchange *exchange) {
    return exchange->connection != NULL && !exchange->gone && !exchange->answered;
}

/* routes.c: finds the row for a path and method, fills captures and allow. Sets nothing else. */
const struct http_route *http_route_find(const char *path, enum http_method method,
                                         char captures[HTTP_CAPTURES][64], unsigned *allow);
extern const struct http_route http_routes[]; /* ended by a row whose path is NULL */
int http_route_count(void);

/* linger.c: reads on for a moment after an early answer, so that a client that is still sending
 * sees it. `fd` is duplicated. */
void http_linger(struct http_loop *loop, int fd);
/* Sends a problem as raw bytes on `fd`, for libmicrohttpd takes no answer in mid-body; it counts as
 * an answer of `route` (NULL: of none). */
void http_linger_problem(struct http_loop *loop, const struct http_route *route, int fd,
                         const struct blasd_err *problem);

#endif
