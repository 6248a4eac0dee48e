/* Drives the connections: closed loop, open loop, all at once, or submit and poll.
 *
 * Closed loop: each connection sends its next request when the last is answered. Open loop:
 * requests fall due at given times whatever the server does; one that finds no free connection
 * waits, and its latency counts from when it was due, so a slow server cannot slow the clock it is
 * measured by. Polling: a connection asks for a job that is due for it, or else submits another.
 *
 * Every connection is watched edge-triggered for reading and writing from its beginning, so a
 * request costs no system call beside one send, one receive and its share of a wait. Read next:
 * load_jobs.c. */
#include "load_engine.h"

#include <arpa/inet.h>
#include <errno.h>
#include <math.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define EVENTS 512
#define ROOM (256u << 10)
#define ERRORS_MOST 20000
#define TICK_NS 50000000

int64_t load_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

void engine_sample(struct engine *engine, const char *what, const char *bytes, size_t n) {
    char *sample = engine->result->sample;
    if (sample[0] != '\0') return;
    snprintf(sample, LOAD_SAMPLE, "%s: %.*s", what, n > 300 ? 300 : (int)n,
             bytes == NULL ? "" : bytes);
    for (char *at = sample; *at != '\0'; at++)
        if (*at < ' ' || *at > '~') *at = '.';
}

/* --- connections
 * ---------------------------------------------------------------------------------------- */

static void set_free(struct engine *engine, struct connection *c) {
    c->state = CONNECTION_FREE;
    if (c->in_ring) return;
    c->in_ring = true;
    engine->free_ring[(engine->free_head + engine->free_count++) %
                      (unsigned)engine->spec->connections] = (int)(c - engine->connections);
}

/* The connection that has been free for longest, or NULL; ones that have closed since are left out.
 */
static struct connection *take_free(struct engine *engine) {
    while (engine->free_count > 0) {
        struct connection *c = &engine->connections[engine->free_ring[engine->free_head]];
        engine->free_head = (engine->free_head + 1) % (unsigned)engine->spec->connections;
        engine->free_count--;
        c->in_ring = false;
        if (c->state == CONNECTION_FREE) return c;
    }
    return NULL;
}

static void close_connection(struct connection *c) {
    SSL_free(c->tls);
    c->tls = NULL;
    if (c->fd >= 0) close(c->fd);
    c->fd = -1;
    c->connected = false;
    c->served = 0;
    c->state = CONNECTION_CLOSED;
}

static int open_connection(struct engine *engine, struct connection *c) {
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, .data.ptr = c};
    int one = 1;
    c->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (c->fd < 0) return -1;
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (connect(c->fd, (const struct sockaddr *)&engine->address, sizeof engine->address) != 0 &&
        errno != EINPROGRESS)
        goto fail;
    if (engine->spec->tls && (c->tls = load_tls_new(c->fd)) == NULL) goto fail;
    if (epoll_ctl(engine->epoll, EPOLL_CTL_ADD, c->fd, &event) != 0) goto fail;
    c->connected = false;
    c->served = 0;
    load_reply_reset(&c->reply);
    c->state = CONNECTION_FREE;
    return 0;

fail:
    close(c->fd);
    c->fd = -1;
    return -1;
}

static void count_error(struct engine *engine, const char *what) {
    engine_sample(engine, what, "", 0);
    if (++engine->result->errors > ERRORS_MOST) engine->result->aborted = engine->stop = true;
}

/* Its request, if any, is lost, unless the server had merely closed an idle connection: then it
 * goes again. */
static void connection_failed(struct engine *engine, struct connection *c, const char *what) {
    bool busy = c->state == CONNECTION_BUSY,
         stale = busy && c->served > 0 && !c->reply.begun && !c->again;
    close_connection(c);
    if (!busy || stale) engine->result->reopened++;
    if (stale && open_connection(engine, c) == 0) {
        c->state = CONNECTION_BUSY;
        c->sent = 0;
        c->again = true;
        return;
    }
    c->again = false;
    if (!busy) return;
    engine->busy--;
    count_error(engine, what);
    if (c->job != NULL) jobs_put_back(engine, c);
}

/* --- sending
 * -------------------------------------------------------------------------------------------- */

static void send_more(struct engine *engine, struct connection *c) {
    const struct load_request *request = c->request;
    size_t all = c->head_len + request->body_len;
    while (c->sent < all) {
        ssize_t n;
        if (c->tls != NULL) {
            bool head = c->sent < c->head_len;
            n = load_tls_send(c->tls,
                              head ? c->head + c->sent : request->body + (c->sent - c->head_len),
                              head ? c->head_len - c->sent : all - c->sent);
        } else if (c->sent < c->head_len && request->body_len > 0) {
            struct iovec parts[2] = {
                {(void *)(uintptr_t)(c->head + c->sent), c->head_len - c->sent},
                {(void *)(uintptr_t)request->body, request->body_len}};
            n = writev(c->fd, parts, 2);
        } else if (c->sent < c->head_len)
            n = send(c->fd, c->head + c->sent, c->head_len - c->sent, MSG_NOSIGNAL);
        else
            n = send(c->fd, request->body + (c->sent - c->head_len), all - c->sent, MSG_NOSIGNAL);
        if (n < 0) {
            if (errno == EINTR) continue;
            if (errno != EAGAIN) c->send_failed = true; /* the answer may be there all the same */
            return;
        }
        c->sent += (size_t)n;
        engine->result->bytes_out += (uint64_t)n;
    }
}

/* Sends `request` (for a poll, with a head of its own) on a free connection; `due` is when it
 * should have gone. */
static void start(struct engine *engine, struct connection *c, struct load_request *request,
                  int64_t due) {
    c->request = request;
    if (c->job == NULL) {
        c->head = request->head;
        c->head_len = request->head_len;
    }
    c->due = due;
    c->started = engine->now;
    c->sent = 0;
    c->send_failed = c->again = false;
    c->state = CONNECTION_BUSY;
    engine->busy++;
    engine->result->sent++;
    load_reply_reset(&c->reply);
    if (c->connected) send_more(engine, c);
    if (c->send_failed) connection_failed(engine, c, "the server refused the request's bytes");
}

static struct load_request *next_request(struct engine *engine) {
    struct load_spec *spec = engine->spec;
    return &spec->requests[spec->order[engine->issued++ % LOAD_ORDER]];
}

static double draw(struct engine *engine) {
    double u, mean = 1e9 / engine->spec->rate;
    if (!engine->spec->poisson) return mean;
    engine->random ^= engine->random << 13;
    engine->random ^= engine->random >> 7;
    engine->random ^= engine->random << 17;
    u = ((double)(engine->random >> 11) + 0.5) * 0x1p-53;
    return -log(u) * mean;
}

static bool more_to_issue(const struct engine *engine) {
    const struct load_spec *spec = engine->spec;
    if (engine->stop) return false;
    if (spec->count > 0 && engine->issued >= spec->count) return false;
    return spec->duration_ns == 0 || engine->now < engine->end;
}

/* Gives a free connection something to do, or leaves it free. */
static bool use(struct engine *engine, struct connection *c) {
    c->job = NULL;
    if (engine->spec->poll.on && jobs_take_due(engine, c)) {
        start(engine, c, &engine->poll_request, engine->now);
        return true;
    }
    if (engine->spec->poll.on && !jobs_room(engine)) return false;
    if (engine->spec->rate > 0) {
        int64_t due = (int64_t)engine->next_due;
        if (engine->stop || due > engine->now || due >= engine->end) return false;
        if (engine->spec->count > 0 && engine->issued >= engine->spec->count) return false;
        engine->next_due += draw(engine);
        start(engine, c, next_request(engine), due);
        return true;
    }
    if (!more_to_issue(engine)) return false;
    if (engine->spec->poll.on) engine->result->submitted++;
    start(engine, c, next_request(engine), engine->now);
    return true;
}

static void use_free(struct engine *engine) {
    while (engine->free_count > 0) {
        struct connection *c = take_free(engine);
        if (c == NULL) return;
        if (use(engine, c)) continue;
        /* back to the front: it stays the one that is next */
        engine->free_head = (engine->free_head + (unsigned)engine->spec->connections - 1) %
                            (unsigned)engine->spec->connections;
        engine->free_ring[engine->free_head] = (int)(c - engine->connections);
        engine->free_count++;
        c->in_ring = true;
        return;
    }
}

/* --- receiving
 * ------------------------------------------------------------------------------------------ */

static void count_right(struct engine *engine, int64_t due, int64_t at) {
    int64_t second = (at - engine->begin) / 1000000000;
    engine->last_right = at;
    if (second >= 0 && second < LOAD_SECONDS_MOST) engine->result->by_second[second]++;
    /* by when it ended: an open loop that is behind sends for a long time what was due in the
     * warm-up */
    if (engine->spec->count > 0 ? due >= engine->begin : at >= engine->begin && at <= engine->end)
        engine->result->in_window++;
}

static void answered(struct engine *engine, struct connection *c) {
    struct load_result *result = engine->result;
    struct load_reply *reply = &c->reply;
    struct load_request *request = c->request;
    int64_t now = load_now();
    bool measured = c->due >= engine->begin;
    engine->now = now;
    engine->busy--;
    engine->last_answer = now;
    result->answered++;
    result->statuses[reply->status]++;
    if (reply->retry_after) result->retry_after++;
    if (c->job != NULL) {
        jobs_polled(engine, c);
    } else if (reply->status != request->status) {
        engine_sample(engine, "another status", reply->body, reply->body_len);
        if (measured) load_histogram_add(&result->other, now - c->due);
        if (engine->spec->poll.on) result->lost++;
    } else if (!load_reply_right(reply, request)) {
        request->wrong++;
        result->wrong++;
        engine_sample(engine, "wrong", reply->body, reply->body_len);
        if (engine->spec->poll.on) result->lost++;
    } else {
        request->right++;
        if (measured) load_histogram_add(request->latency, now - c->due);
        if (engine->spec->poll.on)
            jobs_submitted(engine, c);
        else
            count_right(engine, c->due, now);
    }
    c->served++;
    c->state = CONNECTION_FREE;
    c->job = NULL;
    if (reply->closes ||
        c->sent < c->head_len + request->body_len) { /* it answered before it had read all */
        close_connection(c);
        if (open_connection(engine, c) != 0) return; /* the tick tries again */
    }
    load_reply_reset(reply);
    if (engine->free_count > 0 || !use(engine, c)) {
        set_free(engine, c);
        if (engine->free_count > 1) use_free(engine);
    }
}

void engine_job_ended(struct engine *engine, int64_t submitted_at) {
    load_histogram_add(&engine->result->jobs, engine->now - submitted_at);
    count_right(engine, submitted_at, engine->now);
}

static void receive(struct engine *engine, struct connection *c, bool hangup) {
    for (;;) {
        ssize_t n = c->tls == NULL ? recv(c->fd, engine->room, ROOM, 0)
                                   : load_tls_recv(c->tls, engine->room, ROOM);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && errno == EAGAIN) break;
        if (n <= 0) {
            connection_failed(engine, c,
                              n == 0 ? "the server closed a connection" : strerror(errno));
            return;
        }
        engine->result->bytes_in += (uint64_t)n;
        if (c->state != CONNECTION_BUSY) {
            connection_failed(engine, c, "an answer to nothing");
            return;
        }
        switch (load_reply_feed(&c->reply, c->request, engine->room, (size_t)n)) {
        case LOAD_MORE: break;
        case LOAD_DONE:
            answered(engine, c);
            return; /* nothing can follow: nothing else was asked */
        case LOAD_BROKEN:
            engine_sample(engine, "not understood", engine->room, (size_t)n);
            c->again = true;
            connection_failed(engine, c, "an answer that is not understood");
            return;
        }
        if ((size_t)n < ROOM && !hangup && c->tls == NULL) break;
    }
    if (c->send_failed) connection_failed(engine, c, "the server refused the request's bytes");
}

static void on_event(struct engine *engine, struct connection *c, uint32_t events) {
    if (c->fd < 0) return;
    if (events & EPOLLERR) {
        int error = 0;
        socklen_t size = sizeof error;
        getsockopt(c->fd, SOL_SOCKET, SO_ERROR, &error, &size);
        if (!c->connected) {
            c->again = true; /* no second try here: the tick opens it again */
            connection_failed(engine, c, strerror(error));
            return;
        }
    }
    if (!c->connected && (events & EPOLLOUT)) {
        c->connected = true;
        if (engine->gathering) engine->gathered++;
    }
    if (c->connected && c->state == CONNECTION_BUSY && (events & EPOLLOUT)) send_more(engine, c);
    if (events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR))
        receive(engine, c, (events & EPOLLIN) == 0 || (events & EPOLLRDHUP) != 0);
}

/* --- the run
 * -------------------------------------------------------------------------------------------- */

static int64_t next_wake(const struct engine *engine) {
    int64_t wake = engine->now + TICK_NS, due;
    if (engine->free_count > 0 && engine->spec->rate > 0 && !engine->stop) {
        due = (int64_t)engine->next_due;
        if (due < wake && due < engine->end) wake = due;
    }
    if (engine->free_count > 0 && engine->spec->poll.on) {
        due = jobs_next_due(engine);
        if (due < wake) wake = due;
    }
    if (engine->spec->duration_ns > 0 && engine->now < engine->end && engine->end < wake)
        wake = engine->end;
    return wake;
}

/* What happens by the clock alone: lost connections are opened again, late answers are given up. */
static void tick(struct engine *engine) {
    engine->last_tick = engine->now;
    if (engine->spec->rate == 0 && engine->now - engine->last_answer > 2 * engine->spec->timeout_ns)
        engine->result->aborted = engine->stop = true; /* nothing comes any more */
    for (int i = 0; i < engine->spec->connections; i++) {
        struct connection *c = &engine->connections[i];
        if (c->state == CONNECTION_BUSY && engine->now - c->started > engine->spec->timeout_ns) {
            engine->result->timeouts++;
            c->again = true; /* it is not sent again */
            connection_failed(engine, c, "no answer in time");
        }
        if (c->state == CONNECTION_CLOSED && !engine->stop) {
            if (open_connection(engine, c) == 0)
                set_free(engine, c);
            else
                count_error(engine, "cannot connect");
        }
    }
}

static bool finished(const struct engine *engine) {
    if (engine->stop) return true;
    if (engine->busy > 0 && engine->now < engine->end + engine->spec->timeout_ns) return false;
    if (engine->spec->poll.on) return !more_to_issue(engine) && jobs_none(engine);
    if (engine->spec->rate > 0) return engine->now >= engine->end;
    return !more_to_issue(engine);
}

static void wait_and_serve(struct engine *engine) {
    struct epoll_event events[EVENTS];
    int64_t left = next_wake(engine) - load_now();
    struct timespec timeout = {.tv_sec = left > 0 ? left / 1000000000 : 0,
                               .tv_nsec = left > 0 ? left % 1000000000 : 0};
    int n = epoll_pwait2(engine->epoll, events, EVENTS, &timeout, NULL);
    engine->now = load_now();
    for (int i = 0; i < n; i++) on_event(engine, events[i].data.ptr, events[i].events);
}

/* Opens everything and waits until it stands, so that all requests can leave together. */
static int gather(struct engine *engine) {
    int64_t start_time = load_now();
    engine->gathering = true;
    while (engine->gathered < engine->spec->connections) {
        struct epoll_event events[EVENTS];
        int n = epoll_wait(engine->epoll, events, EVENTS, 100);
        for (int i = 0; i < n; i++) on_event(engine, events[i].data.ptr, events[i].events);
        if (load_now() - start_time > engine->spec->timeout_ns || engine->stop) {
            fprintf(stderr, "load: only %d of %d connections could be opened\n", engine->gathered,
                    engine->spec->connections);
            return -1;
        }
    }
    engine->gathering = false;
    return 0;
}

static int engine_init(struct engine *engine, struct load_spec *spec, struct load_result *result) {
    memset(engine, 0, sizeof *engine);
    engine->spec = spec;
    engine->result = result;
    engine->random = spec->seed * 0x9e3779b97f4a7c15u | 1;
    engine->poll_request =
        (struct load_request){.name = "poll", .status = 200, .contains = spec->poll.ended};
    engine->address =
        (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons((uint16_t)spec->port)};
    engine->epoll = epoll_create1(EPOLL_CLOEXEC);
    engine->connections = calloc((size_t)spec->connections, sizeof *engine->connections);
    engine->free_ring = calloc((size_t)spec->connections, sizeof *engine->free_ring);
    engine->room = malloc(ROOM);
    if (engine->epoll < 0 || engine->connections == NULL || engine->free_ring == NULL ||
        engine->room == NULL) {
        fprintf(stderr, "load: no memory\n");
        return -1;
    }
    for (int i = 0; i < spec->connections; i++) engine->connections[i].fd = -1;
    if (inet_pton(AF_INET, spec->host, &engine->address.sin_addr) == 1) return 0;
    fprintf(stderr, "load: %s is not an IPv4 address\n", spec->host);
    return -1;
}

static void engine_release(struct engine *engine) {
    for (int i = 0; engine->connections != NULL && i < engine->spec->connections; i++) {
        close_connection(&engine->connections[i]);
        load_reply_release(&engine->connections[i].reply);
    }
    jobs_release(engine);
    free(engine->connections);
    free(engine->free_ring);
    free(engine->room);
    if (engine->epoll >= 0) close(engine->epoll);
}

static void account(struct engine *engine) {
    const struct load_spec *spec = engine->spec;
    struct load_result *result = engine->result;
    int64_t last = engine->last_right > engine->begin ? engine->last_right : engine->now;
    result->measured_ns = spec->count > 0 ? last - engine->begin : engine->end - engine->begin;
    result->lost += jobs_left(engine);
    while (spec->rate > 0 && !result->aborted && engine->next_due < (double)engine->end &&
           (spec->count == 0 || engine->issued < spec->count)) {
        result->unsent++; /* due, and never free to go: the server is behind by so many */
        engine->issued++;
        engine->next_due += draw(engine);
    }
}

int load_run(struct load_spec *spec, struct load_result *result) {
    struct engine engine;
    int64_t start_time;
    int rc = -1;
    if (engine_init(&engine, spec, result) != 0) goto done;
    for (int i = 0; i < spec->connections; i++) {
        engine.connections[i].state = CONNECTION_CLOSED;
        if (open_connection(&engine, &engine.connections[i]) == 0)
            set_free(&engine, &engine.connections[i]);
    }
    if (spec->gather && gather(&engine) != 0) goto done;
    engine.now = start_time = load_now();
    engine.begin = start_time + spec->warmup_ns;
    engine.end = spec->duration_ns > 0 ? engine.begin + spec->duration_ns : INT64_MAX / 2;
    engine.next_due = (double)start_time;
    engine.last_tick = engine.last_answer = start_time;
    for (use_free(&engine); !finished(&engine); use_free(&engine)) {
        wait_and_serve(&engine);
        if (engine.now - engine.last_tick >= TICK_NS) tick(&engine);
    }
    account(&engine);
    rc = 0;

done:
    engine_release(&engine);
    return rc;
}
