/* One request and its answer, and the loop it lives on: the types that every file here shares.
 *
 * The life of an exchange: libmicrohttpd calls dispatch.c with the headers (the route is found,
 * refusals are decided), with pieces of the body (the route's `body`), and once more at its end
 * (the route's `run`). `run` either makes an answer at once, or asks the queue and leaves the
 * exchange waiting, parked or suspended; the queue's callback then makes the answer, which wakes
 * it. An exchange is freed once libmicrohttpd has finished with the connection and no callback is
 * still to come, so a callback must first ask http_exchange_open.
 * Read next: dispatch.c, reply.h (making answers), waiters.h (waiting for jobs). */
#ifndef BLASD_HTTP_EXCHANGE_H
#define BLASD_HTTP_EXCHANGE_H

#include "auth/auth.h"
#include "base/account.h"
#include "base/buf.h"
#include "base/freelist.h"
#include "base/loop.h"
#include "http/acceptor.h"
#include "http/admission.h"
#include "http/http.h"
#include "http/metrics.h"
#include "http/origin_check.h"
#include "http/peer.h"
#include "http/pieces.h"
#include "http/placement.h"
#include "http/request.h"
#include "http/small_tensors.h"
#include "http/state.h"
#include "queue/front_queue.h"

#include <microhttpd.h>
#include <stdatomic.h>

struct blasd_fetcher;
struct blasd_intake_options;
struct http_events;
struct http_exchange;
struct http_header;
struct http_inference;
struct http_remote_inputs;
struct http_loop;
struct http_upload;
struct http_connection;
struct http_tls;

/* What a route keeps beside an exchange: the first member of it. */
struct http_side {
    void (*release)(struct http_side *side); /* with the exchange */
};
#define HTTP_TENANT_PLACES 256 /* tenants that meet in one are counted together */

/* Bytes of something that all tenants share, and each tenant's: of whose account the former is the
 * parent, and which has a share of three quarters. */
struct http_shared_account {
    struct blasd_account all, of[HTTP_TENANT_PLACES];
};

/* What all loops share. Constant once the loops run, but for the atomics. */
struct http_server {
    const struct blasd_http_options *options;
    const struct blasd_limits *limits;
    struct blasd_store *store;
    struct http_tls *tls;            /* owned; NULL: none */
    const struct http_route *routes; /* ended by one whose path is NULL */
    const struct http_dialect *(*dialect_of)(const char *path); /* routes.h */
    struct http_origins origins;
    struct http_loop *loops;                /* owned */
    struct http_metrics *metrics;           /* owned; one a loop */
    struct http_events *events;             /* owned */
    struct blasd_fetcher *fetcher;          /* of inputs by URL; owned; NULL: no host is listed */
    struct http_shared_account intake;      /* of the store: bodies being received */
    struct http_shared_account memory;      /* of the heap: what requests and answers hold there */
    _Atomic uint64_t store_free, store_all; /* a second ago */
    _Atomic bool store_fails;               /* nothing could be written to it then */
    _Atomic uint64_t outputs_coming; /* of jobs on their way to the queue, see jobs_submit.c */
    struct blasd_timer serving;      /* the first loop's, until jobs would run */
    struct {
        bool taken;      /* on_queue was told that jobs are taken */
        int64_t down_ns; /* since when the first loop's queue takes none; 0: it does */
        int64_t told_ns; /* when on_queue was told so; 0: not since it did */
    } queue_told;
    int64_t started_us;
    int quit_fd;             /* an eventfd, written when it is time to drain; nobody reads it */
    _Atomic int told, quiet; /* bytes that stop_fd gave; loops that were without requests since */
};

#define HTTP_EXCHANGES_KEPT 1024 /* and as many uploads: some 2 MB */

/* Memory of a loop that is used again: of exchanges, and of what reads bodies. */
struct http_freelists {
    struct blasd_freelist exchanges, uploads, intakes;
};

/* Exchanges that wait without being suspended; the most that may. */
struct http_parking {
    int count, most;
    int answers; /* in this turn */
    double rate; /* answers a turn, of late (EWMA) */
};

/* What a turn of the loop is still to do. */
struct http_turn {
    bool resumed;      /* MHD_run must be called in this turn */
    bool more;         /* and again in the next: there may be more to send */
    bool rest;         /* and again in this turn: more of a body may lie there */
    uint64_t unpacked; /* bytes of bodies in this turn: no more than some, for others wait */
    int tls;           /* and in so many turns to come, without a wait: HTTP_TLS_TURNS */
};

struct http_ticking {
    struct blasd_timer timer;
    _Atomic unsigned count;
    unsigned seen; /* the first loop's: at its last look */
};

struct http_stopping {
    struct blasd_watcher told, quit;
    struct blasd_timer grace;
    bool draining, out_of_time;
};

struct http_loop {
    struct http_server *server; /* borrowed */
    struct blasd_loop *loop;    /* owned, as the next */
    struct blasd_front_queue *queue;
    struct http_acceptor acceptor;   /* its daemons are owned here */
    struct http_metrics *metrics;    /* this loop's own counters; borrowed from the server */
    struct http_placement placement; /* of the device class for a job */
    struct blasd_list exchanges;     /* every one, by its node */
    int exchange_count;
    struct blasd_list connections; /* every connection of libmicrohttpd's: timeouts.c */
    struct http_admission admission;
    struct blasd_list shared_files; /* shared_files.c */
    struct {
        struct blasd_watcher watcher;
        _Atomic(struct http_remote_inputs *) ended; /* those whose fetch has */
    } remote;                                       /* inputs by URL: remote_inputs.c */
    uint64_t submitting; /* jobs on their way to the queue, which its view does not count yet */
    struct {
        struct blasd_list open; /* by their nodes */
        struct blasd_timer timer;
        bool hears; /* the first loop's, as the next: what happens is asked for */
        unsigned ticks;
    } streams;                /* of events: event_streams.c */
    struct blasd_buf scratch; /* for what does not outlive a call */
    struct http_freelists freelists;
    struct http_small_tensors small_tensors; /* of jobs' references */
    int lingering;                           /* connections, see lingering_close.c */
    struct http_parking parking;
    struct http_pieces pieces; /* of large answers */
    struct http_turn turn;
    struct http_ticking ticking;
    struct http_stopping stopping;
};

/* What the route does besides that takes jobs in. */
struct http_body_handlers {
    /* Of who waits for admission: takes the job in, or answers with a refusal; false where there is
     * no room yet. `late`: refused rather than that. */
    bool (*admit)(struct http_exchange *exchange, bool late);
    /* The client left before the answer; `taken`: the queue has the job. */
    void (*gone)(struct http_exchange *exchange, bool taken);
    void (*release)(struct http_exchange *exchange);
};

/* How answers of some paths are written, where that is not our own way. */
struct http_dialect {
    const char *prefix; /* of these paths */
    const char *problem_type;
    int (*problem)(const struct blasd_err *problem, struct blasd_buf *out);
    /* The tensors of a job that has succeeded. As blasd_answer_new, with `err` filled for NULL. */
    struct blasd_answer *(*answer)(struct http_exchange *exchange,
                                   const struct blasd_record *record, const void *payload,
                                   struct blasd_err *err);
    /* The headers of such an answer beside its Content-Type, which is returned; `text` is room for
     * one. */
    const char *(*headers)(struct http_exchange *exchange, struct http_header *rows, char text[80]);
    /* POST: says what reads the body. */
    void (*intake)(struct http_exchange *exchange, struct blasd_intake_options *options);
    void (*release)(struct http_exchange *exchange); /* frees what is in exchange->form */
};
/* A route without any is for admins alone. */
#define HTTP_ROLE(role) (1u << (role))
#define HTTP_OPEN (1u << 31) /* to everybody, also without a key */
/* Who shows no valid key gets the row's own answer, as a 401: answer.problem says so to `run`. */
#define HTTP_SIGN_IN (1u << 30)

struct http_route {
    const char *path; /* {…} stands for one segment; also the label in metrics */
    unsigned methods; /* HTTP_ bits this row serves */
    unsigned params;  /* HTTP_PARAM_ bits it takes */
    /* Each may refuse by making an answer. begin: headers; body: a piece, of which it may leave
     * some for the next turn (http_body_seen.left); run: all is there. */
    void (*begin)(struct http_exchange *exchange);
    void (*body)(struct http_exchange *exchange, const void *bytes, size_t len);
    void (*run)(struct http_exchange *exchange);
    const struct http_body_handlers *jobs; /* NULL: the route takes none in */
    unsigned roles; /* who may call it beside admins, HTTP_ROLE bits, or HTTP_OPEN; HTTP_SIGN_IN */
};

#define HTTP_CAPTURES 2
#define HTTP_REQUEST_ID 20 /* characters of the id of a request that makes no job */
#define HTTP_SMALL_BODY ((size_t)65536)

struct http_answering {
    struct MHD_Response *response; /* until it is queued; owned */
    unsigned status;
    struct blasd_err problem; /* where the answer is a problem */
    bool early;               /* libmicrohttpd would not take it yet */
    bool whole;               /* it has a body, which lies in memory */
    unsigned retry_s;         /* Retry-After of a problem; 0: as its code says */
    char tag[160];            /* of what is sent: etag.h; "": it has none */
    struct blasd_rate_view rate;
};

/* In which form the request came and its answer goes. */
struct http_form {
    const struct http_dialect *dialect; /* NULL: ours */
    struct http_inference *inference;   /* of the dialect, which releases it; owned */
    bool graph;                         /* under /graphs: the body is one, the job is to be one */
};

/* The bytes of the body that were seen: by now, when it was refused, and at the last check. */
struct http_body_seen {
    uint64_t seen, refused_at, checked_at;
    int stuck_checks; /* checks since then at which bytes lay there unread */
    size_t left;      /* of the piece that the route was given: it takes them in the next turn */
    struct blasd_buf kept; /* of a route that takes a small one whole */
};

struct http_client {
    struct http_connection
        *connection;              /* the connection's; borrowed, as long as that; may be NULL */
    struct blasd_watcher watcher; /* of its descriptor, while `watched` */
    bool watched;
    bool linger;  /* closed with a body still coming */
    bool foreign; /* a page of another origin, which may ask */
};

/* How libmicrohttpd is kept from the connection while the answer is awaited. */
enum http_hold {
    HTTP_RUNS,
    HTTP_PARKED,   /* it asks for the answer in every turn */
    HTTP_SUSPENDED /* it does not look at it */
};

/* Waiting for the job: waiters.c. */
struct http_wait {
    struct blasd_waiter waiter;
    struct blasd_timer timer;
    bool begun, time_up;
};

struct http_exchange {
    struct http_loop *home;
    struct blasd_list node;            /* in home->exchanges */
    struct MHD_Connection *connection; /* NULL once libmicrohttpd is done with it */
    const struct http_route *route;    /* NULL: none */
    struct http_form form;
    struct blasd_identity caller; /* who asks; until the head is read, who may nothing */
    struct http_request request;
    char captures[HTTP_CAPTURES][64]; /* what stood for {…} */
    unsigned allow;                   /* methods of the path, for OPTIONS and 405 */
    enum http_state state;            /* changed by http_exchange_enter alone */
    enum http_hold hold;
    int pending; /* callbacks of the queue still to come */
    int64_t began_ns;
    struct blasd_account memory; /* that it holds; all is given back at its end */
    struct http_answering answer;
    struct http_body_seen body;
    struct http_client client;
    char id[BLASD_ID_LEN + 1];            /* of the job */
    char request_id[HTTP_REQUEST_ID + 1]; /* "" until it is asked for */
    struct http_wait wait;
    struct {
        int output;   /* position of the one output asked for; -1: all; -2: the document */
        int format;   /* enum blasd_format of the answer */
        bool ranges;  /* a tensor is sent, of which a part may be asked for */
        bool partial; /* only bytes `from` to `to` of `all` are sent, as Range asks */
        uint64_t from, to, all;
        bool forgotten; /* DELETE: the job was cancelled, and is to be forgotten */
    } wanted;
    struct http_upload *upload;  /* POST /jobs: upload.h; owned */
    struct http_side *side;      /* owned; NULL: the route has none */
    struct blasd_list admission; /* its place among those that wait for room */
};

#define HTTP_ALL_OUTPUTS (-1)
#define HTTP_DOCUMENT (-2)

/* New exchange of the connection; NULL: no memory. Ended by http_exchange_end. */
struct http_exchange *http_exchange_new(struct http_loop *loop, struct MHD_Connection *connection);
/* The part of the caller's tenant in what is shared. */
struct blasd_account *http_account_of(struct http_shared_account *shared,
                                      const struct blasd_principal *tenant);
/* Sets the limit of what is shared. */
void http_account_limit(struct http_shared_account *shared, uint64_t limit);
/* Reserves memory for the exchange, until its end. no_space. */
int http_exchange_reserve(struct http_exchange *exchange, uint64_t bytes, struct blasd_err *err);
/* Libmicrohttpd is done with it. `left`: the client went away. */
void http_exchange_end(struct http_exchange *exchange, bool left);
/* A callback of the queue is to come, or has come. After http_exchange_release, which may free the
 * exchange, it is not to be touched. */
void http_exchange_hold(struct http_exchange *exchange);
void http_exchange_release(struct http_exchange *exchange);
/* Gives the exchange its answer; `response` is taken (NULL: memory has run out, and the connection
 * is closed) and sent from the next turn of libmicrohttpd. */
void http_exchange_answer(struct http_exchange *exchange, unsigned status,
                          struct MHD_Response *response);
/* Waits for an answer, parked or suspended. */
void http_exchange_await(struct http_exchange *exchange);
void http_exchange_suspend(struct http_exchange *exchange);
/* It goes on in the next turn of libmicrohttpd, if it waited. */
void http_exchange_resume(struct http_exchange *exchange);
/* It does not wait for its job any more. */
void http_exchange_wait_end(struct http_exchange *exchange);
/* From now on, until it is unwatched, a client that leaves while it waits for an answer is noticed.
 * If this cannot be had the request still ends, only later. */
void http_exchange_watch_waiting(struct http_exchange *exchange);
void http_exchange_unwatch(struct http_exchange *exchange);
/* Whether the client of an open exchange has left while nobody watched, which is then as if
 * somebody had. */
bool http_exchange_left(struct http_exchange *exchange);
/* It is given up: the connection, which is resumed if it waited, is closed without an answer. */
void http_exchange_abandon(struct http_exchange *exchange);
/* Whether anybody still waits for an answer. */
static inline bool http_exchange_open(const struct http_exchange *exchange) {
    return exchange->state <= HTTP_AT_WAITING;
}
/* Whether bytes of the body may still come, wanted or not. */
static inline bool http_body_coming(const struct http_exchange *exchange) {
    return exchange->state <= HTTP_AT_BODY || exchange->state == HTTP_AT_REFUSED;
}
/* The queue, over the connections of the exchange's loop. */
static inline struct blasd_front_queue *http_queue(const struct http_exchange *exchange) {
    return exchange->home->queue;
}
int http_connection_fd(struct MHD_Connection *connection);
/* Where the answer cannot be had in the format that is wanted: wants the one that the client would
 * have next. False where there is none. */
bool http_other_format(struct http_exchange *exchange);
/* The id of the request, as its answer and the log tell it: that of the job which it is to make. */
const char *http_request_id(struct http_exchange *exchange);
/* Who asks, as a log tells it. */
void http_client_text(const struct http_exchange *exchange, char client[HTTP_PEER_TEXT]);
/* The id of its trace in a document or a log; NULL: it is part of none. */
const char *http_trace_text(const struct http_exchange *exchange, char text[BLASD_TRACE_TEXT]);
/* The row of a route, for metrics; negative for NULL. */
static inline int http_route_number(const struct http_loop *loop, const struct http_route *route) {
    return route == NULL ? -1 : (int)(route - loop->server->routes);
}

/* lingering_close.c: reads on for a moment after an early answer, so that a client that is still
 * sending sees it. `fd` is duplicated. */
void http_lingering_close(struct http_loop *loop, int fd);
/* Sends a problem past libmicrohttpd, which takes no answer in mid-body; it counts as an answer of
 * `route` (NULL: of none). `connection` NULL: libmicrohttpd does not have the connection of `fd`
 * yet; with TLS nothing can be said there. */
void http_close_with_problem(struct http_loop *loop, const struct http_route *route,
                             struct MHD_Connection *connection, int fd,
                             const struct blasd_err *problem);

#endif
