/* Calls: commands for Redis with somebody who waits for the answer.
 *
 * A call goes through lists: waiting (or again, after its connection was lost), flight, held (while
 * replicas are asked whether they have what it did), gone. It keeps its command until it is
 * answered. What has waited too long for a connection is answered with queue_unavailable, and
 * nothing is answered from inside the function that made the call. Read next: front_queue.c. */
#include "queue/front.h"

#include "base/clock.h"
#include "base/histogram.h"
#include "base/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HEADER 16                               /* room for "*COUNT\r\n" */
#define COMMAND_MAX (UINT64_C(512) * BLASD_MIB) /* what Redis takes as one argument, too */
#define HELD_MAX (UINT64_C(512) * BLASD_MIB)    /* of all calls that are not answered */
#define WRITE_AHEAD ((size_t)1 << 20)           /* hiredis moves its buffer after each write */

#define TICK_APART (5 * BLASD_MS) /* between ticks for deadlines */

void front_no_memory(struct blasd_err *err) {
    blasd_fail(err, BLASD_E_queue_unavailable, "", "the front end is out of memory");
}

void front_unknown_answer(struct blasd_err *err) {
    blasd_fail(err, BLASD_E_internal_error, "", "the queue's answer is not of a known form");
}

void front_too_early(struct blasd_err *err) {
    blasd_fail(err, BLASD_E_queue_unavailable, "", "this front end has just started");
}

static struct front_call *first(const struct blasd_list *list) {
    return blasd_list_empty(list) ? NULL : blasd_container_of(list->next, struct front_call, node);
}

static void move(struct front_call *call, struct blasd_list *to) {
    blasd_list_remove(&call->node);
    blasd_list_append(to, &call->node);
}

void *front_call_new(struct blasd_front_queue *queue, size_t size, front_reply_fn reply) {
    struct front_call *call = calloc(1, size);
    if (call == NULL) return NULL;
    blasd_list_init(&call->node);
    call->queue = queue;
    call->connection = &queue->calls.commands;
    call->reply = reply;
    call->tries_left = 1;
    call->early = !queue->standing.view_known;
    blasd_buf_init(&call->command, COMMAND_MAX);
    call->broken = blasd_buf_add(&call->command, "                ", HEADER) != 0;
    return call;
}

void front_call_reads(struct front_call *call) {
    call->connection = &call->queue->calls.reads;
}

void front_call_arg2(struct front_call *call, const void *bytes, size_t len, const void *more,
                     size_t more_len) {
    struct blasd_buf *out = &call->command;
    char size[BLASD_TEXT_NUMBER + 3];
    size_t digits;
    call->args++;
    if (call->broken) return;
    size[0] = '$';
    digits = blasd_text_number(size + 1, len + more_len);
    memcpy(size + 1 + digits, "\r\n", 2);
    call->broken = blasd_buf_reserve(out, len + more_len + 32) != 0 ||
                   blasd_buf_add(out, size, digits + 3) != 0 ||
                   blasd_buf_add(out, bytes, len) != 0 || blasd_buf_add(out, more, more_len) != 0 ||
                   blasd_buf_add(out, "\r\n", 2) != 0;
}

void front_call_arg(struct front_call *call, const void *bytes, size_t len) {
    front_call_arg2(call, bytes, len, "", 0);
}

void front_call_text(struct front_call *call, const char *text) {
    front_call_arg(call, text, strlen(text));
}

void front_call_number(struct front_call *call, uint64_t number) {
    char text[BLASD_TEXT_NUMBER];
    front_call_arg(call, text, blasd_text_number(text, number));
}

void front_call_function(struct front_call *call, const char *name) {
    front_call_text(call, "FCALL");
    front_call_arg2(call, BLASD_QUEUE_LIBRARY "_", sizeof BLASD_QUEUE_LIBRARY, name, strlen(name));
    front_call_text(call, "1");
    front_call_text(call, call->queue->address.tag);
    front_call_text(call, call->queue->limits.text);
}

/* Writes the count of arguments in front of them. */
static void complete(struct front_call *call) {
    char text[HEADER + 1];
    int len = snprintf(text, sizeof text, "*%d\r\n", call->args);
    call->start = HEADER - (size_t)len;
    memcpy(call->command.data + call->start, text, (size_t)len);
}

void front_call_send(struct front_call *call) {
    struct blasd_front_queue *queue = call->queue;
    struct blasd_err err;
    if (call->broken) {
        front_no_memory(&err);
        front_call_answer_later(call, &err);
        return;
    }
    if (queue->calls.held_bytes + call->command.len > HELD_MAX && queue->calls.held_bytes > 0) {
        blasd_fail(&err, BLASD_E_queue_unavailable, "",
                   "the queue does not take the requests as fast as they come");
        front_call_answer_later(call, &err);
        return;
    }
    complete(call);
    call->counted = call->command.len;
    queue->calls.held_bytes += call->counted;
    call->until_ns = blasd_clock_ns() + CALL_KEPT;
    move(call, &call->connection->waiting);
}

void front_call_answer_later(struct front_call *call, const struct blasd_err *err) {
    blasd_buf_release(&call->command);
    call->start = 0;
    call->err.code = BLASD_OK;
    if (err != NULL) call->err = *err;
    move(call, &call->queue->calls.answered);
}

void front_call_free(struct front_call *call) {
    call->queue->calls.held_bytes -= call->counted;
    blasd_list_remove(&call->node);
    if (call->release != NULL) call->release(call);
    freeReplyObject(call->held);
    blasd_buf_release(&call->command);
    free(call);
}

/* Answers a call that is in one of the lists, and frees it. */
static void answer(struct front_call *call, const redisReply *reply, const struct blasd_err *err) {
    call->reply(call, reply, err);
    front_call_free(call);
}

void front_calls_answer(struct blasd_front_queue *queue) {
    const struct blasd_list *last = queue->calls.answered.prev;
    struct front_call *call;
    bool end = false;
    while (!end && (call = first(&queue->calls.answered)) != NULL) {
        struct blasd_err err = call->err;
        end = &call->node == last; /* what the callbacks add comes with the next turn */
        answer(call, NULL, err.code == BLASD_OK ? NULL : &err);
    }
}

/* Whether Redis refuses this user: its rights were taken, or its password. */
static bool is_denied(const struct blasd_err *err) {
    return strstr(err->detail, ": NOPERM ") != NULL || strstr(err->detail, ": NOAUTH ") != NULL;
}

void front_refused(struct blasd_front_queue *queue, const struct blasd_err *err) {
    if (!queue->standing.ready) return;
    queue->standing.writable = queue->view.available = false;
    queue->standing.troubled = true;
    queue->standing.trouble = *err;
    if (is_denied(err)) queue->standing.trouble.code = BLASD_E_queue_unavailable;
}

void front_deadline_in(struct blasd_front_queue *queue, int64_t ms) {
    /* one more, for Redis compares whole milliseconds at best */
    int64_t at = blasd_clock_ns() + (ms < INT64_C(1) << 40 ? ms + 1 : INT64_C(1) << 40) * BLASD_MS;
    if (at < queue->ticks.ticked_ns + TICK_APART) at = queue->ticks.ticked_ns + TICK_APART;
    if (queue->ticks.deadline_timer.slot != 0 && queue->ticks.deadline_timer.at_ns <= at) return;
    (void)blasd_loop_timer_set(queue->loop, &queue->ticks.deadline_timer, at);
}

static void unavailable(const struct blasd_front_queue *queue, struct blasd_err *err) {
    blasd_fail(err, BLASD_E_queue_unavailable, "", "%s", queue->standing.trouble.detail);
}

/* It waits to be sent again, ahead of those that were sent after it, though some of them may have
 * been lost before: Redis would take one that comes behind a later one for one that it knows. */
static void again(struct front_call *call) {
    struct blasd_list *list = &call->connection->again, *behind = list;
    call->until_ns = blasd_clock_ns() + CALL_KEPT;
    while (behind->prev != list) {
        struct front_call *before = blasd_container_of(behind->prev, struct front_call, node);
        if (before->order < call->order) break;
        before->until_ns = call->until_ns; /* the first is the first to be given up */
        behind = behind->prev;
    }
    blasd_list_remove(&call->node);
    blasd_list_append(behind, &call->node); /* in front of it */
}

/* It is as one that was never sent. */
static void anew(struct front_call *call) {
    call->until_ns = blasd_clock_ns() + CALL_KEPT;
    call->numbered = false;
    call->order = 0;
    move(call, &call->connection->waiting);
}

/* Sends it once more, by `how`, or gives it up. */
static void try_again(struct front_call *call, void (*how)(struct front_call *)) {
    struct blasd_front_queue *queue = call->queue;
    struct blasd_err err;
    if (call->tries_left > 0) {
        call->tries_left--;
        how(call);
        return;
    }
    unavailable(queue, &err);
    answer(call, NULL, &err);
}

static void lose(struct front_call *call) {
    try_again(call, again);
}

/* Those that are held came before all that are in flight: Redis would take one that it gets again
 * behind a later one for one that it knows. */
static void held_lost(struct blasd_front_queue *queue) {
    struct front_call *call;
    while ((call = first(&queue->calls.held)) != NULL) {
        freeReplyObject(call->held);
        call->held = NULL;
        lose(call);
    }
}

/* The connection went while the call was on it: whether Redis did it is not known. */
static void call_lost(struct front_call *call) {
    if (call->connection == &call->queue->calls.commands) held_lost(call->queue);
    lose(call);
}

/* The replicas. Behind calls that acknowledge stands WAIT, which Redis answers once as many have
 * what it has, or when the time is up. */

/* Keeps the reply, of which hiredis then frees the shell alone. */
static void hold(struct front_call *call, redisReply *reply) {
    call->held = malloc(sizeof *reply);
    if (call->held == NULL) {
        call_lost(call);
        return;
    }
    *call->held = *reply;
    *reply = (redisReply){.type = REDIS_REPLY_NIL};
    move(call, &call->queue->calls.held);
}

static bool replicas_have_it(struct blasd_front_queue *queue, const redisReply *r,
                             struct blasd_err *err) {
    if (r->type == REDIS_REPLY_INTEGER && r->integer >= (long long)queue->rules.replicas)
        return true;
    if (r->type == REDIS_REPLY_ERROR)
        blasd_fail(err, BLASD_E_queue_unavailable, "", "Redis does not wait for replicas: %.120s",
                   r->str);
    else
        blasd_fail(err, BLASD_E_queue_unavailable, "",
                   "%lld replicas of Redis have heard of it within %" PRIu64 " ms, and not %" PRIu64
                   " (limit wait_replicas): it may yet be lost, or be done",
                   r->integer, queue->rules.replicas_ms, queue->rules.replicas);
    return false;
}

static void handle_replicas(redisAsyncContext *ac, void *reply, void *arg) {
    struct blasd_front_queue *queue = arg;
    struct front_call *call;
    struct blasd_err err;
    (void)ac;
    if (queue->closing) return;
    queue->calls.told++;
    if (reply == NULL) {
        held_lost(queue);
        return;
    }
    queue->calls.commands.heard_ns = blasd_clock_ns();
    bool good = replicas_have_it(queue, reply, &err);
    if (!good) front_refused(queue, &err);
    while ((call = first(&queue->calls.held)) != NULL && call->asked <= queue->calls.told)
        answer(call, good ? call->held : NULL, good ? NULL : &err);
}

static void ask_replicas(struct blasd_front_queue *queue) {
    char count[BLASD_TEXT_NUMBER], ms[BLASD_TEXT_NUMBER];
    const char *args[] = {"WAIT", count, ms};
    size_t lens[] = {4, 0, 0};
    if (!queue->calls.to_ask) return;
    lens[1] = blasd_text_number(count, queue->rules.replicas);
    lens[2] = blasd_text_number(ms, queue->rules.replicas_ms);
    if (blasd_async_link_send_args(&queue->calls.commands.link, 3, args, lens, handle_replicas,
                                   queue) != 0)
        return;
    queue->calls.to_ask = false;
    queue->calls.asked++;
}

/* Redis has not done it, and may do those that came behind it on this connection: it is to have a
 * number that is later than theirs, or it would be taken for one that is known. */
static void not_done(struct front_call *call) {
    if (call->connection == &call->queue->calls.commands) held_lost(call->queue);
    try_again(call, call->seq_at != 0 ? anew : again);
}

/* Redis was emptied (err NULL), or the queue is on another server: the handshake of new connections
 * mends it. */
static void start_anew(struct front_call *call, const struct blasd_err *err) {
    struct blasd_front_queue *queue = call->queue;
    const char *why = err != NULL ? err->detail : "the functions were removed from Redis";
    if (err != NULL) front_refused(queue, err);
    not_done(call);
    queue->standing.ready = false;
    blasd_async_link_drop(&queue->calls.commands.link, why);
    blasd_async_link_drop(&queue->calls.reads.link, why);
}

static void handle_reply(redisAsyncContext *ac, void *reply, void *arg) {
    struct front_call *call = arg;
    struct blasd_front_queue *queue = call->queue;
    const redisReply *r = reply;
    struct blasd_err err;
    (void)ac;
    if (queue->closing) return; /* freed with the lists */
    if (r == NULL) {
        call_lost(call);
        return;
    }
    call->connection->heard_ns = blasd_clock_ns();
    if (queue->hooks.trips != NULL)
        blasd_histogram_add(queue->hooks.trips, blasd_bounds_us,
                            (call->connection->heard_ns - call->sent_ns) / 1000);
    if (r->type != REDIS_REPLY_ERROR) {
        if (call->more != NULL && call->more(r))
            again(call);
        else if (call->acknowledges && queue->rules.replicas > 0)
            hold(call, reply);
        else
            answer(call, r, NULL);
        return;
    }
    enum blasd_link_fault fault = blasd_link_fault(r->str);
    blasd_link_error(r->str, &err);
    if (fault == BLASD_LINK_NO_LIBRARY || fault == BLASD_LINK_ELSEWHERE ||
        fault == BLASD_LINK_SCHEMA) {
        start_anew(call, fault == BLASD_LINK_NO_LIBRARY ? NULL : &err);
        return;
    }
    if (is_denied(&err)) err.code = BLASD_E_queue_unavailable;
    if (fault == BLASD_LINK_UNAVAILABLE || fault == BLASD_LINK_DISK || is_denied(&err))
        front_refused(queue, &err);
    answer(call, NULL, &err);
}

/* Its number, the first time: calls that are sent again go ahead of those that have none. */
static void set_seq(struct front_call *call) {
    char text[FRONT_SEQ + 1];
    if (call->seq_at == 0 || call->numbered) return;
    snprintf(text, sizeof text, "%0*" PRIu64, FRONT_SEQ, ++call->queue->calls.seq);
    memcpy(call->command.data + call->seq_at, text, FRONT_SEQ);
    call->numbered = true;
}

/* Sends from one list until the write buffer holds enough. Returns the bytes sent, or 0. */
static size_t send_some(struct front_connection *connection, const struct blasd_list *list,
                        size_t room) {
    struct front_call *call;
    size_t sent = 0;
    while (sent < room && (call = first(list)) != NULL) {
        struct front_calls *calls = &call->queue->calls;
        size_t len = call->command.len - call->start;
        set_seq(call);
        if (blasd_async_link_send(&connection->link, call->command.data + call->start, len,
                                  handle_reply, call) != 0)
            break;
        if (call->order == 0) call->order = ++calls->sent;
        call->sent_ns = blasd_clock_ns();
        if (blasd_list_empty(&connection->flight)) connection->heard_ns = call->sent_ns;
        move(call, &connection->flight);
        if (call->acknowledges && call->queue->rules.replicas > 0) {
            call->asked = calls->asked + 1;
            calls->to_ask = true;
        }
        sent += len;
    }
    return sent;
}

static void pump(struct blasd_front_queue *queue, struct front_connection *connection) {
    while (queue->standing.ready && blasd_async_link_flush(&connection->link)) {
        size_t sent = send_some(connection, &connection->again, WRITE_AHEAD);
        if (blasd_list_empty(&connection->again) && sent < WRITE_AHEAD)
            sent += send_some(connection, &connection->waiting, WRITE_AHEAD - sent);
        if (sent == 0) break;
        ask_replicas(queue);
    }
    /* before it is ready the handshake's own commands are there to be written */
    if (!queue->standing.ready) (void)blasd_async_link_flush(&connection->link);
}

void front_calls_pump(struct blasd_front_queue *queue) {
    pump(queue, &queue->calls.commands);
    pump(queue, &queue->calls.reads);
}

static void expire_list(struct blasd_front_queue *queue, const struct blasd_list *list,
                        int64_t now) {
    struct front_call *call;
    struct blasd_err err;
    /* the rest came later */
    while ((call = first(list)) != NULL && call->until_ns <= now) {
        unavailable(queue, &err);
        answer(call, NULL, &err);
    }
}

void front_calls_expire(struct blasd_front_queue *queue) {
    struct front_calls *calls = &queue->calls;
    int64_t now = blasd_clock_ns();
    expire_list(queue, &calls->commands.again, now);
    expire_list(queue, &calls->commands.waiting, now);
    expire_list(queue, &calls->reads.again, now);
    expire_list(queue, &calls->reads.waiting, now);
}

static int64_t list_next_ns(const struct blasd_list *list) {
    const struct front_call *call = first(list);
    return call == NULL ? INT64_MAX : call->until_ns;
}

static int64_t connection_next_ns(const struct front_connection *connection) {
    int64_t again = list_next_ns(&connection->again), waiting = list_next_ns(&connection->waiting);
    return again < waiting ? again : waiting;
}

int64_t front_calls_next_ns(const struct blasd_front_queue *queue) {
    int64_t commands = connection_next_ns(&queue->calls.commands),
            reads = connection_next_ns(&queue->calls.reads);
    return commands < reads ? commands : reads;
}

static void list_free(const struct blasd_list *list) {
    struct front_call *call;
    while ((call = first(list)) != NULL) front_call_free(call);
}

static void connection_init(struct front_connection *connection) {
    blasd_list_init(&connection->again);
    blasd_list_init(&connection->waiting);
    blasd_list_init(&connection->flight);
}

void front_calls_init(struct blasd_front_queue *queue) {
    connection_init(&queue->calls.commands);
    connection_init(&queue->calls.reads);
    blasd_list_init(&queue->calls.held);
    blasd_list_init(&queue->calls.answered);
    blasd_list_init(&queue->listings.waiting);
}

static void connection_free(struct front_connection *connection) {
    list_free(&connection->again);
    list_free(&connection->waiting);
    list_free(&connection->flight);
}

void front_calls_free(struct blasd_front_queue *queue) {
    connection_free(&queue->calls.commands);
    connection_free(&queue->calls.reads);
    list_free(&queue->calls.held);
    list_free(&queue->calls.answered);
    list_free(&queue->listings.waiting);
}
