/* Many jobs in flight on one thread: libcurl's multi interface on an epoll descriptor of ours, so
 * that a program waits for all of them as for one file. Each job is an errand (client_errand.c).
 *
 * No callback of libcurl calls back into it: what ends is put on a list, and the caller is told at
 * the end of a turn. */
#include "clients/c/internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/queue.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#define CROWDED_WAIT 1.0 /* nor so long where others wait for it */
#define CONNECTIONS 64
#define MOST_CONNECTIONS 4096
#define TURN 4 /* jobs that one turn sends, hears of and tells of: each may be of megabytes */
#define NEVER 1e18

struct flight {
    TAILQ_ENTRY(flight) link;
    uint64_t number;
    enum { READY, URGENT, ASLEEP, ACTIVE, ENDED } place; /* the list that it is in */
    double due; /* asleep: when it goes on; ready: when the caller's time is over */
    struct blasd_errand errand;
    struct blasd_exchange exchange; /* active */
    blasd_done_fn done;
    void *arg;
};
TAILQ_HEAD(flights, flight);

struct blasd_async {
    struct blasd_client *client;
    pid_t owner;
    CURLM *multi;
    int poll, timer; /* descriptors */
    double curl_due; /* when libcurl wants to be called, or NEVER */
    double next_due; /* not later than the first `due` of those that wait */
    double armed;    /* what the timer is set to */
    int most, active, count;
    uint64_t last; /* number given */
    bool turning, closing;
    struct flights ready, urgent, asleep, flying, ended;
    CURL **idle;
    int idle_count;
};

static double sooner(double a, double b) {
    return a < b ? a : b;
}

/* --- what libcurl asks for */

static int on_socket(CURL *curl, curl_socket_t fd, int what, void *arg, void *known) {
    struct blasd_async *async = arg;
    struct epoll_event event = {.data.fd = fd};
    (void)curl;
    if (what == CURL_POLL_REMOVE) {
        epoll_ctl(async->poll, EPOLL_CTL_DEL, fd, NULL); /* or it is closed already */
        curl_multi_assign(async->multi, fd, NULL);
        return 0;
    }
    event.events = (what & CURL_POLL_IN ? (uint32_t)EPOLLIN : 0) |
                   (what & CURL_POLL_OUT ? (uint32_t)EPOLLOUT : 0);
    if (epoll_ctl(async->poll, known == NULL ? EPOLL_CTL_ADD : EPOLL_CTL_MOD, fd, &event) != 0 &&
        epoll_ctl(async->poll, known == NULL ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, fd, &event) != 0)
        return -1;
    curl_multi_assign(async->multi, fd, async);
    return 0;
}

static int on_timer(CURLM *multi, long timeout_ms, void *arg) {
    struct blasd_async *async = arg;
    (void)multi;
    async->curl_due = timeout_ms < 0 ? NEVER : blasd_now_seconds() + (double)timeout_ms * 1e-3;
    return 0;
}

/* --- making one */

struct blasd_async *blasd_async_new(struct blasd_client *client, int connections) {
    struct blasd_async *async = calloc(1, sizeof *async);
    struct epoll_event event = {.events = EPOLLIN};
    if (async == NULL) return NULL;
    TAILQ_INIT(&async->ready);
    TAILQ_INIT(&async->urgent);
    TAILQ_INIT(&async->asleep);
    TAILQ_INIT(&async->flying);
    TAILQ_INIT(&async->ended);
    async->client = client;
    async->owner = getpid();
    async->curl_due = async->next_due = async->armed = NEVER;
    async->most = connections <= 0                 ? CONNECTIONS
                  : connections > MOST_CONNECTIONS ? MOST_CONNECTIONS
                                                   : connections;
    async->idle = calloc((size_t)async->most, sizeof(CURL *));
    async->multi = curl_multi_init();
    async->poll = epoll_create1(EPOLL_CLOEXEC);
    async->timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    event.data.fd = async->timer;
    if (async->idle == NULL || async->multi == NULL || async->poll < 0 || async->timer < 0 ||
        epoll_ctl(async->poll, EPOLL_CTL_ADD, async->timer, &event) != 0) {
        blasd_async_free(async);
        return NULL;
    }
    curl_multi_setopt(async->multi, CURLMOPT_SOCKETFUNCTION, on_socket);
    curl_multi_setopt(async->multi, CURLMOPT_SOCKETDATA, async);
    curl_multi_setopt(async->multi, CURLMOPT_TIMERFUNCTION, on_timer);
    curl_multi_setopt(async->multi, CURLMOPT_TIMERDATA, async);
    curl_multi_setopt(async->multi, CURLMOPT_MAXCONNECTS, (long)async->most);
    return async;
}

int blasd_async_fd(const struct blasd_async *async) {
    return async->poll;
}

/* --- from list to list */

static struct flights *list_of(struct blasd_async *async, const struct flight *flight) {
    return flight->place == READY    ? &async->ready
           : flight->place == URGENT ? &async->urgent
           : flight->place == ASLEEP ? &async->asleep
           : flight->place == ACTIVE ? &async->flying
                                     : &async->ended;
}

static void move(struct blasd_async *async, struct flight *flight, int place) {
    TAILQ_REMOVE(list_of(async, flight), flight, link);
    flight->place = place;
    TAILQ_INSERT_TAIL(list_of(async, flight), flight, link);
}

static void wait_until(struct blasd_async *async, struct flight *flight, int place, double due) {
    flight->due = due;
    async->next_due = sooner(async->next_due, due);
    move(async, flight, place);
}

/* Who is to be cancelled waits for no connection; a result is fetched before other jobs are sent.
 */
static void make_ready(struct blasd_async *async, struct flight *flight) {
    const struct blasd_errand *errand = &flight->errand;
    if (errand->stopped || errand->phase == BLASD_CANCEL)
        move(async, flight, URGENT);
    else if (errand->phase == BLASD_FETCH) {
        move(async, flight, READY);
        TAILQ_REMOVE(&async->ready, flight, link);
        TAILQ_INSERT_HEAD(&async->ready, flight, link);
        flight->due = NEVER;
    } else
        wait_until(async, flight, READY, errand->end);
}

static void follow(struct blasd_async *async, struct flight *flight, enum blasd_step step) {
    if (step == BLASD_DONE)
        move(async, flight, ENDED);
    else if (step == BLASD_SLEEP)
        wait_until(async, flight, ASLEEP, blasd_now_seconds() + flight->errand.pause);
    else
        make_ready(async, flight);
}

static void put_back(struct blasd_async *async, CURL *curl) {
    if (async->idle_count < async->most)
        async->idle[async->idle_count++] = curl;
    else
        curl_easy_cleanup(curl);
}

/* Takes an active one out of libcurl's hands; its exchange stays open. */
static CURL *land(struct blasd_async *async, struct flight *flight) {
    CURL *curl = flight->exchange.curl;
    curl_multi_remove_handle(async->multi, curl);
    async->active--;
    return curl;
}

static void launch(struct blasd_async *async, struct flight *flight) {
    CURL *curl = async->idle_count > 0 ? async->idle[--async->idle_count] : curl_easy_init();
    struct blasd_errand *errand = &flight->errand;
    if (curl == NULL) {
        blasd_refuse_memory(&errand->problem);
        move(async, flight, ENDED);
        return;
    }
    errand->step = async->count <= async->most ? BLASD_LONGEST_WAIT : CROWDED_WAIT;
    if (!blasd_errand_prepare(errand, &flight->exchange, curl)) {
        put_back(async, curl);
        move(async, flight, ENDED);
        return;
    }
    curl_easy_setopt(curl, CURLOPT_PRIVATE, flight);
    if (curl_multi_add_handle(async->multi, curl) != CURLM_OK) {
        follow(async, flight, blasd_errand_take(errand, &flight->exchange, CURLE_OUT_OF_MEMORY));
        put_back(async, curl);
        return;
    }
    async->active++;
    move(async, flight, ACTIVE);
}

static bool has_room(const struct blasd_async *async) {
    return async->active < async->most && !TAILQ_EMPTY(&async->ready);
}

/* libcurl connects and sends all that were added at its next call: so they are few. */
static void launch_ready(struct blasd_async *async) {
    for (int i = 0; i < TURN; i++) {
        if (!TAILQ_EMPTY(&async->urgent))
            launch(async, TAILQ_FIRST(&async->urgent));
        else if (has_room(async))
            launch(async, TAILQ_FIRST(&async->ready));
    }
}

/* The requests that have been answered. */
static void collect(struct blasd_async *async) {
    CURLMsg *message;
    int left;
    while ((message = curl_multi_info_read(async->multi, &left)) != NULL) {
        CURLcode code = message->data.result;
        struct flight *flight = NULL;
        CURL *curl;
        if (message->msg != CURLMSG_DONE) continue;
        curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, (char **)&flight);
        curl = land(async, flight);
        follow(async, flight, blasd_errand_take(&flight->errand, &flight->exchange, code));
        put_back(async, curl);
    }
}

/* Those of a list whose time has come; `next_due` is told of the others. */
static void expire(struct blasd_async *async, struct flights *list, double now) {
    struct flight *next;
    for (struct flight *flight = TAILQ_FIRST(list); flight != NULL; flight = next) {
        next = TAILQ_NEXT(flight, link);
        if (flight->due > now)
            async->next_due = sooner(async->next_due, flight->due);
        else if (flight->place == ASLEEP)
            make_ready(async, flight);
        else if (flight->errand.phase == BLASD_LOOK)
            move(async, flight, URGENT); /* a last look, and it is cancelled */
        else {
            blasd_errand_late(&flight->errand);
            move(async, flight, ENDED);
        }
    }
}

static void expire_all(struct blasd_async *async) {
    double now = blasd_now_seconds();
    if (now < async->next_due) return;
    async->next_due = NEVER;
    expire(async, &async->ready, now);
    expire(async, &async->asleep, now);
}

/* The descriptor is readable when something is due; at once where something has to be told. Nobody
 * reads the timer: one that has run out stays readable until it is set again. */
static void arm(struct blasd_async *async) {
    double due = sooner(async->curl_due, async->next_due), now = blasd_now_seconds();
    struct itimerspec time = {0};
    if (!TAILQ_EMPTY(&async->ended) || !TAILQ_EMPTY(&async->urgent) || has_room(async)) due = now;
    /* one that runs out sooner is let run: the turn finds nothing to do and sets it again */
    if (async->armed > now ? due >= async->armed : due <= now) return;
    async->armed = due;
    if (due < NEVER) {
        double left = due > now ? due - now : 0;
        time.it_value.tv_sec = (time_t)left;
        time.it_value.tv_nsec = (long)((left - (double)(time_t)left) * 1e9) + 1;
        if (time.it_value.tv_nsec > 999999999) time.it_value.tv_nsec = 999999999;
    }
    timerfd_settime(async->timer, 0, &time, NULL);
}

/* --- what a program calls */

int blasd_async_submit(struct blasd_async *async, const struct blasd_request *request,
                       double timeout_seconds, blasd_done_fn done, void *arg, uint64_t *job,
                       struct blasd_problem *problem) {
    struct flight *flight;
    if (async->owner != getpid())
        return blasd_problem_set(problem, "invalid_request",
                                 "a blasd_async stays with the process that made it");
    if (done == NULL || async->closing)
        return blasd_problem_set(problem, "invalid_request",
                                 done == NULL ? "done is NULL" : "the blasd_async is being freed");
    flight = calloc(1, sizeof *flight);
    if (flight == NULL) return blasd_refuse_memory(problem);
    if (blasd_errand_begin(&flight->errand, async->client, request,
                           timeout_seconds > 0 ? timeout_seconds : 0, BLASD_LONGEST_WAIT,
                           problem) != 0) {
        free(flight);
        return -1;
    }
    flight->number = ++async->last;
    flight->done = done;
    flight->arg = arg;
    flight->place = READY;
    TAILQ_INSERT_TAIL(&async->ready, flight, link);
    make_ready(async, flight);
    async->count++;
    if (job != NULL) *job = flight->number;
    if (!async->turning) arm(async);
    return 0;
}

/* What is ready on a socket, or that time has passed. Where libcurl has no memory it forgets to say
 * when it wants to be called again. */
static void act(struct blasd_async *async, curl_socket_t fd, int what) {
    int running;
    if (curl_multi_socket_action(async->multi, fd, what, &running) != CURLM_OK)
        async->curl_due = sooner(async->curl_due, blasd_now_seconds() + 1);
}

static void serve(struct blasd_async *async, const struct epoll_event *events, int count) {
    for (int i = 0; i < count; i++) {
        int fd = events[i].data.fd;
        int what = (events[i].events & EPOLLIN ? CURL_CSELECT_IN : 0) |
                   (events[i].events & EPOLLOUT ? CURL_CSELECT_OUT : 0) |
                   (events[i].events & (EPOLLERR | EPOLLHUP) ? CURL_CSELECT_ERR : 0);
        if (fd != async->timer) act(async, fd, what);
    }
}

/* What libcurl has to do by now: to connect and send what was added, for one. */
static void act_in_time(struct blasd_async *async) {
    if (async->curl_due > blasd_now_seconds()) return;
    async->curl_due = NEVER;
    act(async, CURL_SOCKET_TIMEOUT, 0);
}

static void tell(struct blasd_async *async, struct flight *flight) {
    struct blasd_errand *errand = &flight->errand;
    struct blasd_reply *reply = errand->reply;
    TAILQ_REMOVE(&async->ended, flight, link);
    async->count--;
    errand->reply = NULL;
    flight->done(flight->arg, flight->number, reply, reply == NULL ? &errand->problem : NULL);
    blasd_errand_end(errand);
    free(flight);
}

static void tell_some(struct blasd_async *async) {
    for (int i = 0; i < TURN && !TAILQ_EMPTY(&async->ended); i++)
        tell(async, TAILQ_FIRST(&async->ended));
}

int blasd_async_turn(struct blasd_async *async, double wait_seconds) {
    struct epoll_event events[TURN];
    int count, wait_ms = wait_seconds > 0 ? (int)(sooner(wait_seconds, 86400) * 1000 + 0.999) : 0;
    if (async->owner != getpid() || async->turning) return async->count;
    if (async->count == 0) wait_ms = 0; /* there would be nothing to wait for */
    async->turning = true;
    count = epoll_wait(async->poll, events, TURN, wait_ms);
    serve(async, events, count > 0 ? count : 0);
    act_in_time(async);
    collect(async);
    expire_all(async);
    tell_some(async);
    async->turning = false;
    launch_ready(async);
    act_in_time(async);
    collect(async);
    arm(async);
    return async->count;
}

static enum blasd_step abort_request(struct blasd_async *async, struct flight *flight) {
    CURL *curl = land(async, flight);
    enum blasd_step step = blasd_errand_abort(&flight->errand, &flight->exchange);
    put_back(async, curl);
    return step;
}

static struct flight *find(struct flights *list, uint64_t number) {
    struct flight *flight;
    TAILQ_FOREACH(flight, list, link) if (flight->number == number) break;
    return flight;
}

bool blasd_async_cancel(struct blasd_async *async, uint64_t job) {
    struct flight *flight;
    if (async->owner != getpid()) return false;
    if ((flight = find(&async->flying, job)) != NULL) {
        if (flight->errand.stopped) return true;
        follow(async, flight, abort_request(async, flight));
    } else if ((flight = find(&async->ready, job)) != NULL ||
               (flight = find(&async->urgent, job)) != NULL ||
               (flight = find(&async->asleep, job)) != NULL) {
        if (flight->errand.stopped) return true;
        follow(async, flight, blasd_errand_stop(&flight->errand));
    } else
        return false;
    if (!async->turning) arm(async);
    return true;
}

/* In a process that a fork made, libcurl's handles are the parent's: they are left as they are. */
void blasd_async_free(struct blasd_async *async) {
    struct flights *lists[4];
    bool mine;
    if (async == NULL) return;
    mine = async->owner == getpid();
    lists[0] = &async->flying, lists[1] = &async->ready, lists[2] = &async->asleep;
    lists[3] = &async->urgent;
    async->turning = async->closing = true;
    for (int i = 0; i < 4; i++)
        for (struct flight *flight; (flight = TAILQ_FIRST(lists[i])) != NULL;) {
            if (flight->place == ACTIVE && mine) {
                CURL *curl = land(async, flight);
                blasd_exchange_close(&flight->exchange);
                put_back(async, curl);
            }
            blasd_reply_free(flight->errand.reply);
            flight->errand.reply = NULL;
            blasd_problem_set(&flight->errand.problem, "cancelled",
                              "the program does not wait for the job any more");
            move(async, flight, ENDED);
        }
    while (mine && !TAILQ_EMPTY(&async->ended)) tell(async, TAILQ_FIRST(&async->ended));
    while (mine && async->idle_count > 0) curl_easy_cleanup(async->idle[--async->idle_count]);
    if (mine && async->multi != NULL) curl_multi_cleanup(async->multi);
    if (async->poll >= 0) close(async->poll);
    if (async->timer >= 0) close(async->timer);
    free(async->idle);
    free(async);
}
