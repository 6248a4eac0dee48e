/* The adapter between hiredis and the loop, and reconnecting.
 *
 * hiredis asks for write events with every command. They are only noted here; the loop is told when
 * a flush could not write everything, which spares a system call in nearly every turn.
 * hiredis frees a context by itself when a connection breaks: after every call into it that may
 * read or write, link->ac must be looked at anew (its cleanup hook sets it to NULL). */
#include "redis/async_link.h"

#include "base/clock.h"
#include "base/container.h"
#include "redis/redis_tls.h"

#include <fcntl.h>
#include <hiredis/sds.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#define BACKOFF_FIRST (10 * BLASD_MS)
#define BACKOFF_LAST (500 * BLASD_MS)
#define CONNECT_TIME (2000 * BLASD_MS)
#define READS_A_TURN 64     /* hiredis reads 16 KiB at a time */
#define READ_KEPT (1 << 22) /* bytes of read buffer that are not given back when it is empty */

static void note(struct blasd_async_link *link, const char *why) {
    snprintf(link->why, sizeof link->why, "%.*s", (int)sizeof link->why - 1, why);
}

static void sync_events(struct blasd_async_link *link) {
    if (link->ac == NULL || link->want == link->armed) return;
    if (link->want == 0)
        blasd_loop_unwatch(link->loop, &link->watcher);
    else if (blasd_loop_watch(link->loop, &link->watcher, link->want) != 0) {
        blasd_async_link_drop(link, "the event loop refused the connection");
        return;
    }
    link->armed = link->want;
}

static void ev_add_read(void *data) {
    ((struct blasd_async_link *)data)->want |= EPOLLIN;
}

static void ev_del_read(void *data) {
    ((struct blasd_async_link *)data)->want &= ~(uint32_t)EPOLLIN;
}

static void ev_add_write(void *data) {
    ((struct blasd_async_link *)data)->want |= EPOLLOUT;
}

static void ev_del_write(void *data) {
    ((struct blasd_async_link *)data)->want &= ~(uint32_t)EPOLLOUT;
}

/* Later, or at once where it is known where to. */
static void try_later(struct blasd_async_link *link) {
    link->state = BLASD_LINK_DOWN;
    if (link->closing) return;
    /* without memory for a timer nothing would ever connect again: the heap has had room for this
     * timer before, so that cannot fail once the first attempt was made */
    (void)blasd_loop_timer_set(link->loop, &link->timer,
                               blasd_clock_ns() + (link->onward ? 0 : link->backoff_ns));
    if (link->onward) return;
    link->backoff_ns = link->backoff_ns * 2 < BACKOFF_LAST ? link->backoff_ns * 2 : BACKOFF_LAST;
    link->on_down(link, link->why);
}

/* hiredis calls this once for a context before it frees it, whatever ended it. */
static void ev_cleanup(void *data) {
    struct blasd_async_link *link = data;
    if (link->ac == NULL) return;
    if (link->ac->err != 0 && link->why[0] == '\0') note(link, link->ac->errstr);
    blasd_loop_unwatch(link->loop, &link->watcher);
    link->ac = NULL;
    link->want = link->armed = 0;
    try_later(link);
}

/* hiredis 0.14 makes a new buffer each time it has written one, and does not look whether there was
 * memory for it. */
static bool has_buffer(redisAsyncContext *ac) {
    if (ac->c.obuf == NULL) ac->c.obuf = sdsempty();
    return ac->c.obuf != NULL;
}

static void handle_ready(struct blasd_watcher *watcher, uint32_t events) {
    struct blasd_async_link *link = blasd_container_of(watcher, struct blasd_async_link, watcher);
    redisAsyncContext *ac = link->ac;
    int more = 0;
    if ((events & EPOLLOUT) != 0 && has_buffer(ac)) redisAsyncHandleWrite(ac);
    if ((events & (EPOLLIN | EPOLLERR | EPOLLHUP)) != 0) {
        for (int reads = 0; link->ac == ac && ac != NULL && reads < READS_A_TURN; reads++) {
            redisAsyncHandleRead(ac);
            if (link->ac != ac || link->state != BLASD_LINK_UP) break;
            if (ioctl(watcher->fd, FIONREAD, &more) != 0 || more <= 0) break;
        }
    }
    sync_events(link);
}

static void handshake_done(struct blasd_async_link *link) {
    link->state = BLASD_LINK_UP;
    link->up_ns = blasd_clock_ns();
    blasd_loop_timer_clear(link->loop, &link->timer);
    link->on_up(link);
}

static void handle_login(redisAsyncContext *ac, void *reply, void *arg) {
    struct blasd_async_link *link = arg;
    const redisReply *r = reply;
    (void)ac;
    if (r == NULL || link->state != BLASD_LINK_CONNECTING) return;
    if (r->type == REDIS_REPLY_ERROR && !link->route.sentinel) blasd_async_link_drop(link, r->str);
}

static void handle_answer(redisAsyncContext *ac, void *reply, void *arg) {
    struct blasd_async_link *link = arg;
    struct blasd_err err;
    (void)ac;
    if (reply == NULL || link->state != BLASD_LINK_CONNECTING) return;
    int heard = blasd_route_heard(&link->route, reply, &err);
    if (heard == 0) {
        handshake_done(link);
        return;
    }
    link->onward = heard == BLASD_ROUTE_ON;
    blasd_async_link_drop(link, link->onward ? "on to another server" : err.detail);
}

static void shake_hands(struct blasd_async_link *link) {
    const struct blasd_link_address *a = link->address;
    const char *words[BLASD_ROUTE_WORDS];
    redisAsyncContext *ac = link->ac;
    if (a->password[0] != '\0' && a->user[0] != '\0')
        redisAsyncCommand(ac, handle_login, link, "AUTH %s %s", a->user, a->password);
    else if (a->password[0] != '\0')
        redisAsyncCommand(ac, handle_login, link, "AUTH %s", a->password);
    if (a->db != 0 && !link->route.sentinel)
        redisAsyncCommand(ac, handle_login, link, "SELECT %d", a->db);
    int count = blasd_route_question(&link->route, words);
    redisAsyncCommandArgv(ac, handle_answer, link, count, words, NULL);
}

static void handle_connect(const redisAsyncContext *ac, int status) {
    struct blasd_async_link *link = ac->data;
    if (status == REDIS_OK)
        shake_hands(link);
    else
        note(link, ac->errstr == NULL || ac->errstr[0] == '\0' ? "no connection" : ac->errstr);
}

static void link_connect(struct blasd_async_link *link) {
    const char *host = link->route.to.host;
    struct blasd_err err;
    redisAsyncContext *ac;
    if (!link->onward) blasd_route_begin(&link->route, link->address);
    link->onward = false;
    ac = host[0] == '\0' ? redisAsyncConnectUnix(link->address->path)
                         : redisAsyncConnect(host, link->route.to.port);
    link->why[0] = '\0';
    if (ac == NULL || ac->err != 0) {
        note(link, ac == NULL ? "out of memory" : ac->errstr);
        if (ac != NULL) redisAsyncFree(ac);
        try_later(link);
        return;
    }
    if (link->address->tls && blasd_redis_tls_start(&ac->c, host, &err) != 0) {
        note(link, err.detail);
        redisAsyncFree(ac);
        try_later(link);
        return;
    }
    fcntl(ac->c.fd, F_SETFD, FD_CLOEXEC);
    ac->c.reader->maxbuf = READ_KEPT;
    link->ac = ac;
    link->state = BLASD_LINK_CONNECTING;
    link->watcher = (struct blasd_watcher){.fd = ac->c.fd, .ready = handle_ready};
    link->want = link->armed = 0;
    ac->data = link;
    ac->ev.data = link;
    ac->ev.addRead = ev_add_read;
    ac->ev.delRead = ev_del_read;
    ac->ev.addWrite = ev_add_write;
    ac->ev.delWrite = ev_del_write;
    ac->ev.cleanup = ev_cleanup;
    redisAsyncSetConnectCallback(ac, handle_connect); /* also asks for the first write event */
    (void)blasd_loop_timer_set(link->loop, &link->timer, blasd_clock_ns() + CONNECT_TIME);
    sync_events(link);
}

static void handle_timer(struct blasd_timer *timer) {
    struct blasd_async_link *link = blasd_container_of(timer, struct blasd_async_link, timer);
    if (link->state == BLASD_LINK_DOWN)
        link_connect(link);
    else if (link->state == BLASD_LINK_CONNECTING)
        blasd_async_link_drop(link, "the connection took too long");
}

void blasd_async_link_open(struct blasd_async_link *link) {
    link->timer.fire = handle_timer;
    link->backoff_ns = BACKOFF_FIRST;
    link_connect(link);
}

void blasd_async_link_close(struct blasd_async_link *link) {
    link->closing = true;
    blasd_loop_timer_clear(link->loop, &link->timer);
    if (link->ac != NULL) redisAsyncFree(link->ac);
}

void blasd_async_link_drop(struct blasd_async_link *link, const char *why) {
    if (link->ac == NULL || link->state == BLASD_LINK_DOWN) return;
    note(link, why);
    link->state = BLASD_LINK_DOWN;
    redisAsyncFree(link->ac); /* inside a callback it waits for its end */
}

void blasd_async_link_stands(struct blasd_async_link *link) {
    link->backoff_ns = BACKOFF_FIRST;
}

/* Whether the command that hiredis took has its callback behind `last`. Where there was no memory
 * for that hiredis says nothing, and ends the process when the reply comes: so none may come. */
static int sent(const redisAsyncContext *ac, const redisCallback *last, int status) {
    if (status != REDIS_OK) return -1;
    if (ac->replies.tail != last || (ac->c.flags & REDIS_SUBSCRIBED) != 0) return 0;
    shutdown(ac->c.fd, SHUT_RDWR);
    return -1;
}

int blasd_async_link_send(struct blasd_async_link *link, const char *command, size_t len,
                          redisCallbackFn *fn, void *arg) {
    redisAsyncContext *ac = link->ac;
    const redisCallback *last;
    if (link->state != BLASD_LINK_UP || !has_buffer(ac)) return -1;
    last = ac->replies.tail;
    return sent(ac, last, redisAsyncFormattedCommand(ac, fn, arg, command, len));
}

int blasd_async_link_send_args(struct blasd_async_link *link, int count, const char *const *args,
                               const size_t *lens, redisCallbackFn *fn, void *arg) {
    redisAsyncContext *ac = link->ac;
    const redisCallback *last;
    if (link->state != BLASD_LINK_UP || !has_buffer(ac)) return -1;
    last = ac->replies.tail;
    return sent(ac, last, redisAsyncCommandArgv(ac, fn, arg, count, (const char **)args, lens));
}

bool blasd_async_link_flush(struct blasd_async_link *link) {
    if (link->state != BLASD_LINK_UP) return false;
    /* a write that failed would free what hiredis goes on with; hiredis 1.1 ends the process */
    if ((link->ac->c.flags & REDIS_IN_CALLBACK) != 0) return false;
    if ((link->want & EPOLLOUT) != 0 && has_buffer(link->ac)) redisAsyncHandleWrite(link->ac);
    sync_events(link);
    return link->ac != NULL && (link->want & EPOLLOUT) == 0;
}
