/* The loops: what happens in one turn, and how they start and end.
 *
 * All waiting is done in one epoll set of our own, which holds the epoll descriptors of
 * libmicrohttpd's daemons, the connections to the queue and the descriptors of suspended clients.
 * libmicrohttpd itself is only ever asked to do what is ready now: its own waits with suspended
 * connections can hang (it takes events in rounds of 128 and, after a full round, waits with the
 * same time-out although connections lie ready). What it leaves undone keeps its descriptor
 * readable, so the next turn goes on with it. Read next: exchange.h, acceptor.h, upkeep.h. */
#include "base/clock.h"
#include "base/container.h"
#include "base/cut.h"
#include "base/log.h"
#include "base/memory_limit.h"
#include "http/dispatch.h"
#include "http/event_streams.h"
#include "http/events.h"
#include "http/peer.h"
#include "http/remote_inputs.h"
#include "http/routes.h"
#include "http/timeouts.h"
#include "http/tls.h"
#include "http/upkeep.h"
#include "http/upload.h"
#include "http/waiters.h"
#include "outgoing/fetch.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

#define SPARE_BLOCKS 64
#define PARKED_WAIT_MS 3    /* longer than most jobs take: they need no time-out */
#define PARKED_FROM 8.0     /* answers a turn: with fewer, turns would be made only to ask */
#define PARKED_AN_ANSWER 32 /* a turn asks each of them: so many cost half of what one saves */
#define TURNS_IN_A_ROW 4
#define SMALL_MEMORY ((size_t)16 * BLASD_KIB) /* of a connection of small posts, at most */
#define LARGE_MEMORY ((size_t)BLASD_MIB)      /* of one of large bodies, at least */
#define MEMORY_LEAST (4 * BLASD_MIB)          /* for requests and answers */
#define LAST_MOMENTS_NS                                                                            \
    INT64_C(3000000000) /* after the grace period, for what is then answered                       \
                         */

static void on_daemon(struct blasd_watcher *watcher, uint32_t events) {
    (void)events;
    blasd_container_of(watcher, struct http_daemon, watcher)->fired = true;
}

static struct http_exchange *exchange_of(struct blasd_list *node) {
    return blasd_container_of(node, struct http_exchange, node);
}

/* The grace period has passed: whoever waits gets the record as it stands. */
static void on_grace(struct blasd_timer *timer) {
    struct http_loop *loop = blasd_container_of(timer, struct http_loop, stopping.grace);
    loop->stopping.out_of_time = true;
    BLASD_LIST_EACH(node, &loop->exchanges) {
        struct http_exchange *exchange = exchange_of(node);
        if (exchange->wait.begun) http_wait_time_up(exchange);
    }
}

/* On the first loop alone, which tells every other. */
static void on_told(struct blasd_watcher *watcher, uint32_t events) {
    struct http_loop *loop = blasd_container_of(watcher, struct http_loop, stopping.told);
    char byte;
    (void)events;
    if (read(watcher->fd, &byte, 1) != 1) return;
    if (byte == SIGHUP)
        http_upkeep_reread(loop->server);
    else if (atomic_fetch_add(&loop->server->told, 1) == 0)
        (void)eventfd_write(loop->server->quit_fd, 1);
}

/* Whether the daemon has something to do now: its descriptor says so, or it does itself. */
static bool is_due(const struct http_daemon *daemon) {
    unsigned long long left;
    return daemon->fired || daemon->given > 0 ||
           (MHD_get_timeout(daemon->daemon, &left) == MHD_YES && left == 0);
}

/* libmicrohttpd reads once from a connection when it is run. Bodies come in pieces: short ones are
 * taken to their ends in one turn, so that the jobs of all go to the queue together, in larger
 * calls than if each turn ended a few of them. `all`: also those that are not due. */
static void run_daemons(struct http_loop *loop, bool all) {
    int runs = 0;
    do {
        loop->turn.rest = false;
        for (int i = 0; i < HTTP_MEMORIES; i++) {
            struct http_daemon *daemon = &loop->acceptor.daemons[i];
            if (!http_daemon_busy(daemon) || !(all || runs > 0 || is_due(daemon))) continue;
            daemon->fired = false;
            MHD_run(daemon->daemon);
        }
    } while (loop->turn.rest && ++runs <= TURNS_IN_A_ROW);
    http_acceptor_turn(&loop->acceptor);
}

static void start_draining(struct blasd_watcher *watcher, uint32_t events) {
    struct http_loop *loop = blasd_container_of(watcher, struct http_loop, stopping.quit);
    (void)events;
    blasd_loop_unwatch(loop->loop, watcher);
    loop->stopping.draining = true;
    loop->stopping.grace.fire = on_grace;
    if (loop->server->options->grace_ms < 0) return;
    if (blasd_loop_timer_set(loop->loop, &loop->stopping.grace,
                             blasd_loop_now(loop->loop) +
                                 (int64_t)loop->server->options->grace_ms * 1000000) != 0)
        on_grace(&loop->stopping.grace);
}

/* For whoever is parked libmicrohttpd says that it cannot wait, and for who has not ended the
 * handshake of TLS. What else it cannot wait for comes
 * with an event or is known to `turn`; should it not be, a moment later is soon enough. */
static int wait_ms(struct http_loop *loop) {
    const struct http_turn *turn = &loop->turn;
    int wait = -1;
    if (turn->resumed || turn->more || turn->rest || turn->tls > 0 ||
        !blasd_list_empty(&loop->shared_files))
        return 0;
    for (int i = 0; i < HTTP_MEMORIES; i++) {
        const struct http_daemon *daemon = &loop->acceptor.daemons[i];
        unsigned long long left;
        if (!http_daemon_busy(daemon) || MHD_get_timeout(daemon->daemon, &left) != MHD_YES)
            continue;
        if (left > 60000) left = 60000;
        if (wait < 0 || (int)left < wait) wait = (int)left;
    }
    if (wait == 0 && (loop->parking.count > 0 || loop->server->tls != NULL)) return PARKED_WAIT_MS;
    return wait;
}

static void set_parking(struct http_loop *loop) {
    loop->parking.rate += (loop->parking.answers - loop->parking.rate) / 16;
    loop->parking.most =
        loop->parking.rate < PARKED_FROM ? 0 : (int)(PARKED_AN_ANSWER * loop->parking.rate);
    loop->parking.answers = 0;
}

/* Who has waited for admission goes on before the answers are sent that made it, or a queue
 * that was full would run empty meanwhile. */
static void admit_waiting(struct http_loop *loop) {
    if (!http_admission_busy(loop)) return;
    http_admission_turn(loop);
    blasd_front_queue_flush(loop->queue);
}

static void turn(struct http_loop *loop, int max_wait_ms) {
    int wait = wait_ms(loop);
    bool all;
    if (max_wait_ms >= 0 && (wait < 0 || wait > max_wait_ms)) wait = max_wait_ms;
    blasd_loop_step(loop->loop, wait);
    admit_waiting(loop);
    all = loop->turn.resumed || loop->turn.more || loop->turn.rest || loop->turn.tls > 0;
    loop->turn.resumed = loop->turn.more = false;
    loop->turn.unpacked = 0;
    if (loop->turn.tls > 0) loop->turn.tls--;
    http_pieces_turn(&loop->pieces);
    run_daemons(loop, all);
    http_admission_turn(loop);
    http_shared_file_turn(loop);
    set_parking(loop);
    blasd_front_queue_flush(loop->queue);
    blasd_log_flush();
}

/* Whether there is a request under way, or what is left of one. */
static bool is_busy(const struct http_loop *loop) {
    return loop->exchange_count > 0 || loop->lingering > 0;
}

/* Goes on serving, but for new jobs, until it is told to end, the grace is over or, where there is
 * one, nothing is left to do. */
static void drain(struct http_loop *loop) {
    struct http_server *server = loop->server;
    const struct blasd_http_options *options = server->options;
    bool quiet = false;
    while (atomic_load(&server->told) < 2 && !loop->stopping.out_of_time) {
        turn(loop, 50);
        if (quiet || is_busy(loop)) continue;
        quiet = true;
        if (atomic_fetch_add(&server->quiet, 1) + 1 == options->loops && options->on_quiet != NULL)
            options->on_quiet(options->arg);
        if (options->grace_ms >= 0) break;
    }
    /* what the kernel has accepted already would be reset when the socket closes: take it first */
    http_acceptor_close(&loop->acceptor);
    for (int i = 0; i < 64; i++) run_daemons(loop, true);
    if (atomic_load(&server->told) > 1) on_grace(&loop->stopping.grace);
}

static void *run_loop(void *arg) {
    struct http_loop *loop = arg;
    int64_t end = 0;
    while (!loop->stopping.draining) turn(loop, -1);
    drain(loop);
    while (is_busy(loop)) {
        turn(loop, 50);
        if (!loop->stopping.out_of_time) continue;
        if (end == 0) end = blasd_loop_now(loop->loop) + LAST_MOMENTS_NS;
        if (blasd_loop_now(loop->loop) >= end) break;
    }
    blasd_log_flush();
    return NULL;
}

static void count_connection(void *cls, struct MHD_Connection *connection, void **context,
                             enum MHD_ConnectionNotificationCode code) {
    struct http_loop *loop = cls;
    http_acceptor_count(&loop->acceptor, connection, code == MHD_CONNECTION_NOTIFY_STARTED);
    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
        http_count(&loop->metrics->connections, 1);
        *context = http_connection_new(loop, connection);
    } else {
        http_uncount(&loop->metrics->connections);
        http_connection_end(loop, *context);
    }
}

/* A zero byte would end the path early for us and not for whoever wrote it. */
static size_t unescape(void *cls, struct MHD_Connection *connection, char *text) {
    size_t len = MHD_http_unescape(text);
    (void)cls, (void)connection;
    for (size_t i = 0; i < len; i++)
        if (text[i] == '\0') text[i] = '\x7f'; /* which no path and no parameter has */
    return len;
}

__attribute__((format(printf, 2, 0))) static void log_line(void *cls, const char *fmt,
                                                           va_list args) {
    char line[512];
    size_t len;
    if (strstr(fmt, "Content-Length") != NULL) http_timeouts_bad_length(cls);
    vsnprintf(line, sizeof line, fmt, args);
    len = strlen(line);
    while (len > 0 && line[len - 1] == '\n') line[--len] = '\0';
    /* mostly about clients that leave, so not worth more than this */
    blasd_log(BLASD_LOG_DEBUG, "libmicrohttpd: %s", line);
}

/* A daemon without a listening socket, for the acceptor has that, watched from here on.
 *
 * libmicrohttpd receives into half of a connection's memory, and makes that larger by an eighth of
 * what is left where it has less room than the increment: with one above the half it does so before
 * each receive, and a body of 33 KB with its head comes in one piece less. */
static int start_daemon(struct http_loop *loop, struct http_daemon *daemon, size_t memory) {
    const struct blasd_limits *limits = loop->server->limits;
    const union MHD_DaemonInfo *info;
    struct MHD_OptionItem tls[HTTP_TLS_OPTIONS] = {{.option = MHD_OPTION_END}};
    const unsigned flags = loop->server->tls == NULL ? 0 : MHD_USE_TLS;
    if (loop->server->tls != NULL) http_tls_options(loop->server->tls, tls);
    daemon->daemon = MHD_start_daemon(
        MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG | MHD_USE_NO_LISTEN_SOCKET |
            flags,
        0, NULL, NULL, http_exchange_handle, loop, MHD_OPTION_EXTERNAL_LOGGER, log_line, loop,
        MHD_OPTION_CONNECTION_LIMIT, (unsigned)limits->connections + HTTP_CUT_MOST,
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, memory, MHD_OPTION_CONNECTION_MEMORY_INCREMENT,
        memory / 2 + memory / 32, MHD_OPTION_CONNECTION_TIMEOUT,
        (unsigned)limits->connection_idle_s, MHD_OPTION_NOTIFY_COMPLETED, http_exchange_completed,
        loop, MHD_OPTION_NOTIFY_CONNECTION, count_connection, loop, MHD_OPTION_UNESCAPE_CALLBACK,
        unescape, NULL, MHD_OPTION_URI_LOG_CALLBACK, http_exchange_uri, loop, MHD_OPTION_ARRAY, tls,
#if HTTP_STRICT_LIBRARY
        MHD_OPTION_CLIENT_DISCIPLINE_LVL, 1,
#endif
        MHD_OPTION_END);
    info = daemon->daemon == NULL ? NULL
                                  : MHD_get_daemon_info(daemon->daemon, MHD_DAEMON_INFO_EPOLL_FD);
    if (info == NULL) return -1;
    daemon->watcher = (struct blasd_watcher){.fd = info->epoll_fd, .ready = on_daemon};
    return blasd_loop_watch(loop->loop, &daemon->watcher, EPOLLIN);
}

static int start_daemons(struct http_loop *loop) {
    const size_t usual = (size_t)loop->server->limits->connection_bytes;
    const size_t memory[HTTP_MEMORIES] = {
        [HTTP_SMALL_POSTS] = usual < SMALL_MEMORY ? usual : SMALL_MEMORY,
        [HTTP_ANY_REQUEST] = usual,
        [HTTP_LARGE_BODIES] = usual > LARGE_MEMORY ? usual : LARGE_MEMORY,
    };
    for (int i = 0; i < HTTP_MEMORIES; i++)
        if (start_daemon(loop, &loop->acceptor.daemons[i], memory[i]) != 0) return -1;
    return 0;
}

static void refuse_crowd(void *arg, int fd, const struct sockaddr *address) {
    struct http_loop *loop = arg;
    struct blasd_err problem = {0};
    char client[HTTP_PEER_TEXT];
    http_peer_text(address, client);
    blasd_log_job_event(BLASD_LOG_WARN, "connection refused",
                        (const struct blasd_log_field[]){{"code", "too_many_connections", false},
                                                         {"client", client, false}},
                        2);
    if (address == NULL)
        blasd_fail(&problem, BLASD_E_too_many_connections, "",
                   "the front end may open no more files (ulimit -n)");
    else
        blasd_fail(&problem, BLASD_E_too_many_connections, "",
                   "this address has %u"
                   " connections open (limit connections_per_address), or, with all connections in "
                   "use (limit connections), as many as any other",
                   http_crowd_of(&loop->acceptor.crowd, http_peer_part(fd, address)));
    http_close_with_problem(loop, NULL, NULL, fd, &problem);
    http_lingering_close(loop, fd);
    close(fd);
}

/* The daemons, and the acceptor before them. */
static int start_serving(struct http_loop *loop, int listen_fd, struct blasd_err *err) {
    const struct blasd_limits *limits = loop->server->limits;
    if (start_daemons(loop) != 0)
        return blasd_fail(err, BLASD_E_internal_error, "", "libmicrohttpd did not start");
    loop->acceptor.limit = limits->connections;
    loop->acceptor.make_room = http_timeouts_make_room;
    loop->acceptor.refuse = refuse_crowd;
    loop->acceptor.arg = loop;
    if (http_acceptor_open(&loop->acceptor, loop->loop, listen_fd) != 0)
        return blasd_fail(err, BLASD_E_internal_error, "", "the listening socket: %s",
                          strerror(errno));
    return 0;
}

static int loop_start(struct http_loop *loop, struct http_server *server, int number,
                      struct blasd_err *err) {
    const struct blasd_http_options *options = server->options;
    const struct blasd_front_queue_hooks hooks = {.on_unseen = http_tell_unseen,
                                                  .on_event = http_event_streams_event,
                                                  .trips = &server->metrics[number].redis,
                                                  .arg = loop};
    int rc;
    blasd_list_init(&loop->exchanges);
    blasd_list_init(&loop->connections);
    blasd_list_init(&loop->streams.open);
    blasd_list_init(&loop->shared_files);
    blasd_list_init(&loop->admission.waiting);
    loop->server = server;
    loop->placement.most_s = (double)server->limits->job_s;
    loop->acceptor.listener.fd = options->listen_fds[number];
    loop->metrics = &server->metrics[number];
    blasd_buf_init(&loop->scratch, http_body_sink_memory(server) + 4 * BLASD_MIB);
    loop->freelists.intakes =
        (struct blasd_freelist){.size = blasd_intake_bytes(), .most = SPARE_BLOCKS};
    loop->freelists.exchanges =
        (struct blasd_freelist){.size = sizeof(struct http_exchange), .most = HTTP_EXCHANGES_KEPT};
    loop->freelists.uploads =
        (struct blasd_freelist){.size = sizeof(struct http_upload), .most = HTTP_EXCHANGES_KEPT};
    loop->loop = blasd_loop_new();
    if (loop->loop == NULL)
        return blasd_fail(err, BLASD_E_internal_error, "", "an event loop could not be made: %s",
                          strerror(errno));
    rc = blasd_front_queue_open(options->queue, loop->loop, &hooks, &loop->queue, err);
    if (rc != 0) return rc;
    rc = start_serving(loop, options->listen_fds[number], err);
    if (rc != 0) return rc;
    loop->stopping.quit = (struct blasd_watcher){.fd = server->quit_fd, .ready = start_draining};
    loop->stopping.told = (struct blasd_watcher){.fd = options->stop_fd, .ready = on_told};
    if (http_remote_inputs_open(loop) != 0 ||
        blasd_loop_watch(loop->loop, &loop->stopping.quit, EPOLLIN) != 0 ||
        (number == 0 && blasd_loop_watch(loop->loop, &loop->stopping.told, EPOLLIN) != 0))
        return blasd_fail(err, BLASD_E_internal_error, "", "epoll: %s", strerror(errno));
    http_upkeep_start(loop);
    return 0;
}

/* Takes a loop that was never started, or half. */
static void loop_stop(struct http_loop *loop) {
    loop->stopping.out_of_time = true;
    /* libmicrohttpd stops only without suspended ones */
    BLASD_LIST_EACH(node, &loop->exchanges) http_exchange_abandon(exchange_of(node));
    for (int i = 0; i < HTTP_MEMORIES; i++) {
        struct MHD_Daemon *daemon = loop->acceptor.daemons[i].daemon;
        if (daemon == NULL) continue;
        MHD_run(daemon);
        MHD_stop_daemon(daemon);
    }
    http_acceptor_free(&loop->acceptor);
    blasd_front_queue_free(loop->queue);
    BLASD_LIST_EACH(node, &loop->exchanges) { /* their callbacks will not come any more */
        exchange_of(node)->pending = 1;
        http_exchange_release(exchange_of(node));
    }
    http_remote_inputs_close(loop);
    blasd_loop_free(loop->loop);
    blasd_buf_release(&loop->scratch);
    http_small_tensors_release(&loop->small_tensors);
    blasd_freelist_release(&loop->freelists.exchanges);
    blasd_freelist_release(&loop->freelists.uploads);
    blasd_freelist_release(&loop->freelists.intakes);
}

/* Each connection is a descriptor, and each body or result on its way may be one more. */
static void raise_file_limit(const struct http_server *server) {
    struct rlimit files;
    rlim_t want = 2 * (rlim_t)server->limits->connections * (rlim_t)server->options->loops + 256;
    if (getrlimit(RLIMIT_NOFILE, &files) != 0 || files.rlim_cur >= want) return;
    files.rlim_cur = want < files.rlim_max ? want : files.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &files);
}

/* As many connections as there are descriptors for, once all else has its own. */
static void limit_connections(struct http_server *server) {
    const uint64_t limit = server->limits->connections;
    const int loops = server->options->loops;
    uint64_t most = http_acceptor_afford(limit, loops);
    if (most < limit)
        blasd_log(BLASD_LOG_WARN,
                  "too few files may be open (ulimit -n): at most %" PRIu64
                  " connections in each of %d threads, fewer than the limit",
                  most, loops);
    for (int i = 0; i < loops; i++) {
        server->loops[i].acceptor.limit = most;
        server->loops[i].acceptor.limit_of_one = server->limits->connections_per_address > 0
                                                     ? server->limits->connections_per_address
                                                     : (most + 1) / 2;
    }
}

/* By itself a quarter of what there is. */
static void limit_memory(struct http_server *server) {
    uint64_t limit = server->limits->memory_bytes;
    if (limit == 0) limit = blasd_memory_here().all / 4;
    http_account_limit(&server->memory, limit > MEMORY_LEAST ? limit : MEMORY_LEAST);
}

static int run_all(struct http_server *server, struct blasd_err *err) {
    const struct blasd_http_options *options = server->options;
    pthread_t *threads = calloc((size_t)options->loops, sizeof *threads);
    int started = 1, rc = 0;
    if (threads == NULL) return blasd_fail(err, BLASD_E_internal_error, "", "memory has run out");
    for (; started < options->loops; started++)
        if (pthread_create(&threads[started], NULL, run_loop, &server->loops[started]) != 0) {
            rc = blasd_fail(err, BLASD_E_internal_error, "", "a thread could not be started");
            break;
        }
    if (rc != 0) {
        atomic_store(&server->told, 2);
        (void)eventfd_write(server->quit_fd, 1);
    } else {
        if (options->on_ready != NULL) options->on_ready(options->arg);
        http_upkeep_serving(server);
    }
    run_loop(&server->loops[0]);
    for (int i = 1; i < started; i++) pthread_join(threads[i], NULL);
    free(threads);
    return rc;
}

int blasd_http_run(const struct blasd_http_options *options, struct blasd_err *err) {
    struct http_server server = {.options = options,
                                 .limits = options->queue->limits,
                                 .store = options->queue->store,
                                 .routes = http_routes,
                                 .dialect_of = http_dialect_find,
                                 .started_us = blasd_clock_wall_us()};
    size_t count = (size_t)options->loops;
    int started = 0, rc = 0;
    server.quit_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    signal(SIGPIPE, SIG_IGN);
    blasd_cut_init();
    blasd_log_job_most(server.limits->log_jobs);
    http_origins_init(&server.origins, options->allow_hosts, options->allow_origins);
    raise_file_limit(&server);
    limit_memory(&server);
    http_upkeep_open(&server);
    server.loops = calloc(count, sizeof *server.loops);
    server.metrics = calloc(count, sizeof *server.metrics);
    server.events = http_events_new(server.limits->event_rate, server.options->prices);
    if (server.loops == NULL || server.metrics == NULL || server.events == NULL ||
        server.quit_fd < 0)
        rc = blasd_fail(err, BLASD_E_internal_error, "", "no memory or descriptors are left");
    if (rc == 0 && options->tls != NULL) rc = http_tls_open(options->tls, &server.tls, err);
    if (rc == 0 && options->outgoing != NULL)
        rc = blasd_fetcher_start(options->outgoing, server.limits, &server.fetcher, err);
    for (; rc == 0 && started < options->loops; started++)
        rc = loop_start(&server.loops[started], &server, started, err);
    if (rc == 0) limit_connections(&server);
    if (rc == 0) rc = run_all(&server, err);
    blasd_fetcher_stop(server.fetcher); /* which writes to what the loops have */
    for (int i = 0; i < started; i++) loop_stop(&server.loops[i]);
    for (int i = started; i < options->loops; i++) close(options->listen_fds[i]);
    if (server.quit_fd >= 0) close(server.quit_fd);
    http_events_free(server.events);
    http_tls_free(server.tls);
    free(server.loops);
    free(server.metrics);
    return rc;
}
