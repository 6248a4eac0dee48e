/* The front end's queue: its connections, housekeeping once a second, the view.
 *
 * `calls.commands` carries calls, `calls.reads` those with long replies (struct front_calls says
 * why). When the first it stands anew it checks that Redis keeps what it is given, loads
 * the functions where it lacks them and checks that the deployment uses our blob store; only then
 * is the queue ready. `replies` only
 * listens to the loop's own channel. A tick once a second, and whenever a deadline passes, does the
 * queue's housekeeping, proves that Redis takes writes and brings what the view shows.
 * Read next: front_call.c, then front_submit.c and front_waiters.c. */
#include "queue/front.h"

#include "base/clock.h"
#include "base/hex.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define TICK (1000 * BLASD_MS)
#define SILENCE_MAX                                                                                \
    (5000 * BLASD_MS) /* a connection that answers nothing for so long is dropped                  \
                       */
#define UNHEARD_MAX 4 /* our own messages that may be missing on the channel */
#define HERE_S "3600" /* far longer than a front end that lives may be held up */

/* The handshake of `commands`: see that Redis loses nothing, list the library, load it if that is
 * needed, open. */

static void no_trouble(struct blasd_front_queue *queue) {
    blasd_fail(&queue->standing.trouble, BLASD_E_queue_unavailable, "",
               "Redis did not answer in time");
    queue->standing.troubled = false;
}

static void trouble(struct blasd_front_queue *queue, const char *why) {
    queue->standing.ready = false;
    queue->view.available = false;
    queue->standing.troubled = true;
    blasd_fail(&queue->standing.trouble, BLASD_E_queue_unavailable, "", "%s", why);
}

/* Gives up this connection; the next one may find Redis in a better state. */
static void handshake_failed(struct blasd_front_queue *queue, const char *why) {
    trouble(queue, why);
    blasd_async_link_drop(&queue->calls.commands.link, why);
}

static bool handshake_error(struct blasd_front_queue *queue, const redisReply *r) {
    struct blasd_err err;
    if (r->type != REDIS_REPLY_ERROR) return false;
    blasd_link_error(r->str, &err);
    handshake_failed(queue, err.detail);
    return true;
}

static void probe(struct blasd_front_queue *queue);

static void handle_open(redisAsyncContext *ac, void *reply, void *arg) {
    struct blasd_front_queue *queue = arg;
    const redisReply *r = reply;
    const char *own = blasd_store_identity(queue->store);
    struct blasd_err err;
    (void)ac;
    if (r == NULL || queue->closing || handshake_error(queue, r)) return;
    if (r->type != REDIS_REPLY_STRING || strcmp(r->str, own) != 0) {
        blasd_queue_differs(own, r->type == REDIS_REPLY_STRING ? r->str : "?", &err);
        handshake_failed(queue, err.detail);
        return;
    }
    queue->standing.ready = true;
    queue->standing.writable = false; /* until the probe comes back, ahead of the tick */
    queue->standing.rewatch = queue->waiters.by_id.count > 0;
    no_trouble(queue);
    queue->calls.commands.heard_ns = blasd_clock_ns();
    blasd_async_link_stands(&queue->calls.commands.link);
    probe(queue);
    front_tick(queue);
}

static void send_open(struct blasd_front_queue *queue) {
    const char *args[] = {"FCALL",
                          BLASD_QUEUE_FN("open"),
                          "1",
                          queue->address.tag,
                          queue->limits.text,
                          blasd_store_identity(queue->store),
                          "0"};
    size_t lens[sizeof args / sizeof *args];
    for (size_t i = 0; i < sizeof args / sizeof *args; i++) lens[i] = strlen(args[i]);
    blasd_async_link_send_args(&queue->calls.commands.link, sizeof args / sizeof *args, args, lens,
                               handle_open, queue);
}

static void handle_load(redisAsyncContext *ac, void *reply, void *arg) {
    struct blasd_front_queue *queue = arg;
    (void)ac;
    if (reply == NULL || queue->closing || handshake_error(queue, reply)) return;
    send_open(queue);
}

static void handle_library(redisAsyncContext *ac, void *reply, void *arg) {
    struct blasd_front_queue *queue = arg;
    const char *args[] = {"FUNCTION", "LOAD", "REPLACE", NULL};
    size_t lens[] = {8, 4, 7, 0};
    (void)ac;
    if (reply == NULL || queue->closing || handshake_error(queue, reply)) return;
    if (!blasd_link_stale(&blasd_queue_library, reply)) {
        send_open(queue);
        return;
    }
    args[3] = blasd_queue_library.code;
    lens[3] = strlen(args[3]);
    blasd_async_link_send_args(&queue->calls.commands.link, 4, args, lens, handle_load, queue);
}

static void ask_library(struct blasd_async_link *link) {
    static const char *const args[] = {"FUNCTION", "LIST", "LIBRARYNAME", BLASD_QUEUE_LIBRARY,
                                       "WITHCODE"};
    static const size_t lens[] = {8, 4, 11, sizeof BLASD_QUEUE_LIBRARY - 1, 8};
    blasd_async_link_send_args(link, 5, args, lens, handle_library, link->owner);
}

static void handle_config(redisAsyncContext *ac, void *reply, void *arg) {
    struct blasd_front_queue *queue = arg;
    struct blasd_err err;
    (void)ac;
    if (reply == NULL || queue->closing) return;
    if (blasd_link_writes(reply, &err) < 0)
        handshake_failed(queue, err.detail);
    else
        ask_library(&queue->calls.commands.link);
}

static void handle_info(redisAsyncContext *ac, void *reply, void *arg) {
    static const char *const args[] = {"CONFIG", "GET", "appendfsync"};
    static const size_t lens[] = {6, 3, 11};
    struct blasd_front_queue *queue = arg;
    struct blasd_err err;
    (void)ac;
    if (reply == NULL || queue->closing) return;
    if (blasd_link_keeps(reply, &err) < 0)
        handshake_failed(queue, err.detail);
    else
        blasd_async_link_send_args(&queue->calls.commands.link, 3, args, lens, handle_config,
                                   queue);
}

static void commands_up(struct blasd_async_link *link) {
    static const char *const args[] = {"INFO"};
    static const size_t lens[] = {4};
    struct blasd_front_queue *queue = link->owner;
    if (queue->rules.may_lose_jobs)
        ask_library(link);
    else
        blasd_async_link_send_args(link, 1, args, lens, handle_info, queue);
}

/* "WRONGPASS invalid …", "NOAUTH …" */
static bool is_answer(const char *why) {
    size_t len = strspn(why, "ABCDEFGHIJKLMNOPQRSTUVWXYZ");
    return len > 2 && why[len] == ' ';
}

static void commands_down(struct blasd_async_link *link, const char *why) {
    struct blasd_front_queue *queue = link->owner;
    bool stood = queue->standing.ready;
    queue->standing.ready = false;
    queue->view.available = false;
    queue->ticks.ticking = false;
    /* what the handshake found, or silence, says more than that the connection ended; what Redis
     * answered to AUTH says more than both */
    if (queue->closing || (queue->standing.troubled && !stood && !is_answer(why))) return;
    queue->standing.troubled = true;
    blasd_fail(&queue->standing.trouble, BLASD_E_queue_unavailable, "",
               is_answer(why) ? "Redis answered: %s" : "Redis cannot be reached: %s", why);
}

static void reads_up(struct blasd_async_link *link) {
    blasd_async_link_stands(link); /* the handshake is the other connection's */
}

static void reads_down(struct blasd_async_link *link, const char *why) {
    (void)link;
    (void)why;
}

/* The channel. */

static void handle_message(redisAsyncContext *ac, void *reply, void *arg) {
    struct blasd_front_queue *queue = arg;
    const redisReply *r = reply;
    (void)ac;
    if (queue->closing || r == NULL) return;
    if (r->type == REDIS_REPLY_ERROR) blasd_async_link_drop(&queue->replies, r->str);
    if (r->type != REDIS_REPLY_ARRAY || r->elements != 3) return;
    if (strcmp(r->element[0]->str, "subscribe") == 0) {
        queue->standing.subscribed = true;
        queue->ticks.unheard = 0;
        queue->standing.rewatch = queue->waiters.by_id.count > 0;
        blasd_async_link_stands(&queue->replies);
        if (queue->standing.hearing) front_events_subscribe(queue, "SUBSCRIBE");
    } else if (strcmp(r->element[0]->str, "message") == 0 &&
               r->element[2]->type == REDIS_REPLY_STRING) {
        queue->ticks.unheard = 0;
        front_wait_message(queue, r->element[2]->str, r->element[2]->len);
    }
}

static void replies_up(struct blasd_async_link *link) {
    struct blasd_front_queue *queue = link->owner;
    const char *args[] = {"SUBSCRIBE", queue->channel};
    size_t lens[] = {9, strlen(queue->channel)};
    blasd_async_link_send_args(link, 2, args, lens, handle_message, queue);
}

static void replies_down(struct blasd_async_link *link, const char *why) {
    (void)why;
    ((struct blasd_front_queue *)link->owner)->standing.subscribed = false;
}

/* Housekeeping. */

static void set_timer(struct blasd_front_queue *queue, struct blasd_timer *timer, int64_t at_ns) {
    /* fails only where memory has run out for a handful of pointers; the next tick sets it again */
    (void)blasd_loop_timer_set(queue->loop, timer, at_ns);
}

#define ID_KEY "%016" PRIx64 "%016" PRIx64

static bool read_id_key(const redisReply *r, struct blasd_id_key *key) {
    uint64_t a, b;
    if (r->type != REDIS_REPLY_STRING || sscanf(r->str, "%16" SCNx64 "%16" SCNx64, &a, &b) != 2)
        return false;
    *key = (struct blasd_id_key){{a, b}};
    return true;
}

static void tell_unseen(struct blasd_front_queue *queue, const redisReply *lines) {
    for (size_t i = 0; queue->hooks.on_unseen != NULL && i < lines->elements; i++)
        queue->hooks.on_unseen(queue->hooks.arg, lines->element[i]->str, lines->element[i]->len);
}

static void show_limits(struct blasd_front_queue *queue) {
    queue->view.jobs_limit = queue->limits.queue_jobs;
    queue->view.bytes_limit = queue->limits.queue_bytes;
    queue->view.kept_limit = queue->limits.record_bytes;
}

#define PROMPT_NS INT64_C(2000000) /* of an answer that tells what Redis' clock says now */

static void read_clock(struct front_ticks *ticks, int64_t redis_us, int64_t sent_ns) {
    int64_t took_ns = blasd_clock_ns() - sent_ns;
    if (ticks->timed && took_ns > PROMPT_NS) return;
    ticks->ahead_us = redis_us + took_ns / 2000 - blasd_clock_wall_us();
    ticks->timed = true;
}

int64_t blasd_front_queue_now_us(const struct blasd_front_queue *queue) {
    return blasd_clock_wall_us() + queue->ticks.ahead_us;
}

static void tick_reply(struct front_call *call, const redisReply *reply,
                       const struct blasd_err *err) {
    struct blasd_front_queue *queue = call->queue;
    struct blasd_queue_view *view = &queue->view;
    int64_t number[8];
    queue->ticks.ticking = false;
    view->available = false;
    if (err != NULL) {
        front_refused(queue, err);
        return;
    }
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements < 10 ||
        !read_id_key(reply->element[8], &queue->id_key))
        return;
    tell_unseen(queue, reply->element[9]);
    if (reply->elements > 10 && reply->element[10]->type == REDIS_REPLY_STRING &&
        blasd_link_take_limits(&queue->limits, reply->element[10]->str))
        show_limits(queue);
    for (int i = 0; i < 8; i++) {
        if (reply->element[i]->type != REDIS_REPLY_INTEGER) return;
        number[i] = reply->element[i]->integer;
    }
    read_clock(&queue->ticks, number[0], call->sent_ns);
    view->available = queue->standing.writable;
    view->jobs = (uint64_t)number[1];
    view->bytes = (uint64_t)number[2];
    view->kept = number[7] > 0 ? (uint64_t)number[7] : 0;
    view->workers_of[BLASD_DEVICE_CPU] = (int)number[3];
    view->workers_of[BLASD_DEVICE_CUDA] = (int)number[4];
    view->workers = (int)(number[3] + number[4]);
    queue->standing.view_known = true;
    if (queue->standing.writable) no_trouble(queue);
    if (queue->ticks.tick_again)
        front_tick(queue);
    else if (number[6] > 0)
        front_deadline_in(queue, number[6] > number[0] ? (number[6] - number[0] + 999) / 1000 : 0);
}

void front_tick(struct blasd_front_queue *queue) {
    struct front_call *call;
    char id_key[33];
    if (!queue->standing.ready) return;
    queue->ticks.tick_again = queue->ticks.ticking;
    if (queue->ticks.ticking) return;
    call = front_call_new(queue, sizeof *call, tick_reply);
    if (call == NULL) return;
    call->tries_left = 0;
    queue->ticks.ticking = true;
    queue->ticks.ticked_ns = blasd_clock_ns();
    front_call_function(call, "tick");
    snprintf(id_key, sizeof id_key, ID_KEY, queue->id_key.word[0], queue->id_key.word[1]);
    front_call_text(call, id_key); /* taken where the queue has none */
    front_call_text(call, queue->standing.hearing ? "1" : "0");
    front_call_send(call);
}

void blasd_front_queue_subscribe(struct blasd_front_queue *queue, bool wanted) {
    if (queue->standing.hearing == wanted) return;
    queue->standing.hearing = wanted;
    if (queue->standing.subscribed)
        front_events_subscribe(queue, wanted ? "SUBSCRIBE" : "UNSUBSCRIBE");
    if (wanted) front_tick(queue); /* which says so, as each one does from now on */
}

static void deadline_fire(struct blasd_timer *timer) {
    front_tick(blasd_container_of(timer, struct blasd_front_queue, ticks.deadline_timer));
}

/* A submission without jobs is refused as one with jobs would be. */
static void probe_reply(struct front_call *call, const redisReply *reply,
                        const struct blasd_err *err) {
    (void)reply;
    call->queue->standing.writable = err == NULL;
    if (err != NULL) front_refused(call->queue, err);
}

/* A key of our own, which is gone only where all keys are: then the handshake of a new connection
 * makes what must be there, and who waits is told of the jobs that went. A write, too: where Redis
 * cannot make it, the probe behind it hears of that. */
static void here_reply(struct front_call *call, const redisReply *reply,
                       const struct blasd_err *err) {
    struct blasd_front_queue *queue = call->queue;
    bool gone = err == NULL && reply->type == REDIS_REPLY_NIL && queue->standing.was_here;
    if (err != NULL) return;
    queue->standing.was_here = true;
    if (!gone) return;
    trouble(queue, "Redis was emptied");
    blasd_async_link_drop(&queue->calls.commands.link, "Redis was emptied");
}

static void probe(struct blasd_front_queue *queue) {
    struct front_call *here = front_call_new(queue, sizeof *here, here_reply);
    struct front_call *call = front_call_new(queue, sizeof *call, probe_reply);
    char key[BLASD_LINK_KEY_MAX];
    if (here != NULL) {
        here->tries_left = 0;
        front_call_text(here, "SET");
        front_call_arg(here, key, blasd_link_key(key, queue->name, ":here:%s", front_name(queue)));
        front_call_text(here, "1");
        front_call_text(here, "EX");
        front_call_text(here, HERE_S);
        front_call_text(here, "GET");
        front_call_send(here);
    }
    if (call == NULL) return;
    call->tries_left = 0;
    call->acknowledges = true;
    front_call_function(call, "submit");
    front_call_text(call, ""); /* without jobs it needs no number */
    front_call_text(call, "0");
    front_call_send(call);
}

/* Nobody but us is subscribed, so Redis tells here that it has lost our subscription. */
static void ping_reply(struct front_call *call, const redisReply *reply,
                       const struct blasd_err *err) {
    struct blasd_front_queue *queue = call->queue;
    if (err != NULL || reply->type != REDIS_REPLY_INTEGER || !queue->standing.subscribed) return;
    if (reply->integer == 0 || ++queue->ticks.unheard > UNHEARD_MAX)
        blasd_async_link_drop(&queue->replies, "the subscription was lost");
}

/* An empty message to ourselves, to see that messages come. */
static void ping_channel(struct blasd_front_queue *queue) {
    struct front_call *call = front_call_new(queue, sizeof *call, ping_reply);
    if (call == NULL) return;
    call->tries_left = 0;
    front_call_text(call, "PUBLISH");
    front_call_text(call, queue->channel);
    front_call_text(call, "");
    front_call_send(call);
}

/* A connection whose owner's handshake is not answered. */
static bool handshake_stuck(const struct blasd_async_link *link, bool done, int64_t now) {
    return link->state == BLASD_LINK_UP && !done && now - link->up_ns > SILENCE_MAX;
}

/* Drops connections that say nothing: Redis may have stopped, or the network may have gone. */
static void look_for_silence(struct blasd_front_queue *queue, int64_t now) {
    struct front_connection *commands = &queue->calls.commands, *reads = &queue->calls.reads;
    bool asked = !blasd_list_empty(&commands->flight) || !blasd_list_empty(&queue->calls.held);
    if ((asked && now - commands->heard_ns > SILENCE_MAX) ||
        handshake_stuck(&queue->calls.commands.link, queue->standing.ready, now)) {
        trouble(queue, "Redis does not answer");
        blasd_async_link_drop(&queue->calls.commands.link, "Redis does not answer");
    }
    if (!blasd_list_empty(&reads->flight) && now - reads->heard_ns > SILENCE_MAX)
        blasd_async_link_drop(&reads->link, "Redis does not answer");
    if (handshake_stuck(&queue->replies, queue->standing.subscribed, now))
        blasd_async_link_drop(&queue->replies, "Redis does not answer");
}

static void tick_fire(struct blasd_timer *timer) {
    struct blasd_front_queue *queue =
        blasd_container_of(timer, struct blasd_front_queue, ticks.tick_timer);
    int64_t now = blasd_clock_ns();
    set_timer(queue, timer, now + TICK);
    look_for_silence(queue, now);
    if (!queue->standing.ready) return;
    if (queue->ticks.ticking && now - queue->ticks.ticked_ns > TICK / 2)
        queue->view.available = false;
    if (queue->standing.rewatch_later) queue->standing.rewatch = true;
    if (queue->standing.subscribed) ping_channel(queue);
    probe(queue);
    front_tick(queue);
    front_slices_trim(queue);
}

static void expire_fire(struct blasd_timer *timer) {
    front_calls_expire(blasd_container_of(timer, struct blasd_front_queue, calls.expire_timer));
}

/* The calls of the header. */

static int front_init(struct blasd_front_queue *queue, const struct blasd_queue_options *options,
                      struct blasd_err *err) {
    uint64_t random[5];
    int result = blasd_link_parse(options->url, options->name, &queue->address, err);
    if (result != 0) return result;
    blasd_link_limits(options, &queue->limits);
    queue->rules.no_worker_needed = options->limits->ready_workers == 0;
    while (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random) {
    }
    snprintf(queue->name, sizeof queue->name, "%s", options->name);
    snprintf(queue->channel, sizeof queue->channel,
             "{%s}:" BLASD_QUEUE_FRONT_CHANNEL ":%016llx%016llx", queue->name,
             (unsigned long long)random[0], (unsigned long long)random[1]);
    queue->waiters.seed = random[2];
    queue->id_key = (struct blasd_id_key){{random[3], random[4]}};
    queue->store = options->store;
    queue->rules.may_lose_jobs = options->may_lose_jobs;
    queue->rules.replicas = options->limits->wait_replicas;
    queue->rules.replicas_ms = options->limits->wait_replicas_ms;
    queue->view.trouble = &queue->standing.trouble;
    no_trouble(queue);
    queue->view.limits_told = queue->limits.told;
    show_limits(queue);
    return 0;
}

int blasd_front_queue_open(const struct blasd_queue_options *options, struct blasd_loop *loop,
                           const struct blasd_front_queue_hooks *hooks,
                           struct blasd_front_queue **ret, struct blasd_err *err) {
    struct blasd_front_queue *queue = calloc(1, sizeof *queue);
    int result;
    *ret = NULL;
    if (queue == NULL) return blasd_fail(err, BLASD_E_internal_error, "", "out of memory");
    result = front_init(queue, options, err);
    front_calls_init(queue);
    front_entries_init(&queue->entries, options->limits->claim_jobs);
    queue->slices.segments = blasd_segments_new(options->store);
    queue->slices.views = blasd_views_new(options->store);
    if (result == 0 && (queue->slices.segments == NULL || queue->slices.views == NULL))
        result = blasd_fail(err, BLASD_E_internal_error, "", "out of memory");
    if (result != 0) {
        blasd_segments_free(queue->slices.segments);
        blasd_views_free(queue->slices.views);
        free(queue);
        return result;
    }
    queue->loop = loop;
    queue->hooks = *hooks;
    queue->ticks.tick_timer.fire = tick_fire;
    queue->ticks.deadline_timer.fire = deadline_fire;
    queue->calls.expire_timer.fire = expire_fire;
    queue->listings.list_timer.fire = front_lists_next;
    queue->replies = (struct blasd_async_link){.loop = loop,
                                               .address = &queue->address,
                                               .on_up = replies_up,
                                               .on_down = replies_down,
                                               .owner = queue};
    queue->calls.commands.link = queue->calls.reads.link = queue->replies;
    queue->calls.commands.link.on_up = commands_up;
    queue->calls.commands.link.on_down = commands_down;
    queue->calls.reads.link.on_up = reads_up;
    queue->calls.reads.link.on_down = reads_down;
    set_timer(queue, &queue->ticks.tick_timer, blasd_clock_ns() + TICK);
    blasd_async_link_open(&queue->calls.commands.link);
    blasd_async_link_open(&queue->calls.reads.link);
    blasd_async_link_open(&queue->replies);
    *ret = queue;
    return 0;
}

void blasd_front_queue_free(struct blasd_front_queue *queue) {
    if (queue == NULL) return;
    queue->closing = true;
    blasd_loop_timer_clear(queue->loop, &queue->ticks.tick_timer);
    blasd_loop_timer_clear(queue->loop, &queue->ticks.deadline_timer);
    blasd_loop_timer_clear(queue->loop, &queue->calls.expire_timer);
    blasd_loop_timer_clear(queue->loop, &queue->listings.list_timer);
    blasd_async_link_close(&queue->calls.commands.link);
    blasd_async_link_close(&queue->calls.reads.link);
    blasd_async_link_close(&queue->replies);
    front_batch_free(queue);
    front_asking_free(queue);
    front_calls_free(queue);
    front_waiters_free(queue);
    blasd_segments_free(queue->slices.segments);
    blasd_views_free(queue->slices.views);
    free(queue);
}

void blasd_front_queue_flush(struct blasd_front_queue *queue) {
    int64_t next;
    if (queue->in_flush) return;
    queue->in_flush = true;
    front_batch_close(queue);
    front_calls_answer(queue);
    front_batch_close(queue); /* what the answers have set going */
    front_asking_close(queue);
    front_wait_again(queue);
    front_slices_ask(queue, false);
    front_calls_expire(queue);
    front_calls_pump(queue);
    (void)blasd_async_link_flush(&queue->replies);
    next =
        !blasd_list_empty(&queue->calls.answered) || queue->batch != NULL || queue->asking != NULL
            ? 0
            : front_calls_next_ns(queue);
    if (next == INT64_MAX)
        blasd_loop_timer_clear(queue->loop, &queue->calls.expire_timer);
    else if (queue->calls.expire_timer.slot == 0 || queue->calls.expire_timer.at_ns != next)
        set_timer(queue, &queue->calls.expire_timer,
                  next); /* also to wake the loop for another turn */
    queue->in_flush = false;
}

void blasd_front_queue_id(struct blasd_front_queue *queue, const struct blasd_principal *principal,
                          enum blasd_id_kind kind, char id[BLASD_ID_LEN + 1]) {
    struct blasd_id_key key = front_id_key(queue, principal);
    blasd_id_new(kind, blasd_clock_wall_us(), id);
    blasd_id_sign(id, &key, 0);
}

bool blasd_front_queue_gave(const struct blasd_front_queue *queue,
                            const struct blasd_principal *principal, const char *id) {
    struct blasd_id_key key = front_id_key(queue, principal);
    return blasd_id_signed(id, &key);
}

void blasd_front_queue_tag(const struct blasd_front_queue *queue,
                           const struct blasd_principal *principal,
                           char tag[BLASD_TENANT_TAG + 1]) {
    struct blasd_id_key key = front_id_key(queue, principal);
    key = blasd_id_key_for(&key, "tag");
    tag[0] = '\0';
    if (!front_alone(principal)) *blasd_hex_write(tag, key.word[0], BLASD_TENANT_TAG) = '\0';
}

const struct blasd_queue_view *blasd_front_queue_view(const struct blasd_front_queue *queue) {
    return &queue->view;
}
