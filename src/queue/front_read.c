/* Asking about jobs: get, watch, cancel, list, stats. Each is one call of a function.
 * Read next: front_blob.c. */
#include "queue/front.h"

#include "base/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct record_call {
    struct front_call call;
    blasd_record_fn done;
    void *arg;
    bool cancel;
    struct blasd_waiter *waiter; /* borrowed; NULL: nobody waits */
    struct blasd_id_key key;     /* of the tenant's ids */
    char id[BLASD_ID_LEN + 1];
};

/* NULL and `err` where memory has run out. */
static void *new_call(struct blasd_front_queue *queue, size_t size, front_reply_fn reply,
                      struct blasd_err *err) {
    void *call = front_call_new(queue, size, reply);
    if (call == NULL) front_no_memory(err);
    return call;
}

/* The tensors of a job that has been forgotten, or is cancelled, are nobody's. */
static void remove_tensors(struct blasd_front_queue *queue, const char *id) {
    char name[BLASD_BLOB_NAME];
    snprintf(name, sizeof name, "%s.in", id);
    blasd_front_queue_blob_remove(queue, name);
    snprintf(name, sizeof name, "%s.out", id);
    blasd_front_queue_blob_remove(queue, name);
}

static void record_reply(struct front_call *call, const redisReply *reply,
                         const struct blasd_err *err) {
    struct record_call *c = blasd_container_of(call, struct record_call, call);
    const redisReply *r = NULL;
    struct blasd_early early;
    struct blasd_err own;
    bool read, referred = false; /* by a pending job, to the outputs of this one */
    if (reply != NULL && reply->type == REDIS_REPLY_ARRAY && reply->elements == 1)
        r = reply->element[0];
    if (r != NULL && r->type == REDIS_REPLY_ARRAY && r->elements == 1) {
        r = r->element[0];
        referred = true;
    }
    read = err == NULL && r != NULL && r->type == REDIS_REPLY_STRING;
    early = front_wait_settle(call->queue, c->waiter, read && !front_record_final(r->str, r->len));
    if (err != NULL) {
        c->done(c->arg, err, NULL, 0);
    } else if (read) {
        if (c->cancel && !referred) remove_tensors(call->queue, c->id);
        c->done(c->arg, NULL, r->str, r->len);
        front_wait_early(call->queue, c->id, &early);
    } else {
        /* of an id that is old enough; whether the tenant had such a job its signature tells */
        bool gone = r != NULL && r->type == REDIS_REPLY_INTEGER && r->integer == 410;
        bool made_up = gone && !blasd_id_signed(c->id, &c->key);
        if (gone && call->early)
            front_too_early(&own);
        else if (made_up || (r != NULL && r->type == REDIS_REPLY_INTEGER && r->integer == 404))
            blasd_fail(&own, BLASD_E_job_not_found, "id", "there is no job %s", c->id);
        else if (r != NULL && r->type == REDIS_REPLY_INTEGER && r->integer == 409)
            blasd_fail(&own, BLASD_E_job_ended, "id", "job %s has ended", c->id);
        else if (gone)
            blasd_fail(&own, BLASD_E_record_expired, "id", "the record of job %s has expired",
                       c->id);
        else
            front_unknown_answer(&own);
        c->done(c->arg, &own, NULL, 0);
    }
}

/* `forget`: "0" or "1" for cancel, else NULL; `waiter`: for watch, else NULL. */
static void ask_record(struct blasd_front_queue *queue, const char *function,
                       const struct blasd_principal *principal, const char *id, const char *forget,
                       struct blasd_waiter *waiter, blasd_record_fn done, void *arg) {
    struct blasd_err err;
    struct record_call *c = new_call(queue, sizeof *c, record_reply, &err);
    bool valid = blasd_id_valid(id), keeps = waiter == NULL && strcmp(function, "watch") == 0;
    if (c == NULL) {
        done(arg, &err, NULL, 0);
        return;
    }
    c->done = done;
    c->arg = arg;
    if (!valid) {
        blasd_fail(&err, BLASD_E_job_not_found, "id", "\"%.64s\" is not the id of a job", id);
        front_call_answer_later(&c->call, &err);
        return;
    }
    c->waiter = waiter;
    c->cancel = forget != NULL;
    if (forget == NULL && !keeps) front_call_reads(&c->call);
    /* a second cancel would find the job that the first one has ended, and forget it */
    if (c->cancel) c->call.tries_left = 0;
    memcpy(c->id, id, sizeof c->id);
    c->key = front_id_key(queue, principal);
    front_call_function(&c->call, function);
    front_call_text(&c->call, principal->tenant);
    if (waiter != NULL || keeps) front_call_text(&c->call, keeps ? "" : queue->channel);
    if (c->cancel) front_call_text(&c->call, forget);
    front_call_arg(&c->call, c->id, BLASD_ID_LEN);
    front_wait_begin(queue, principal->tenant, waiter, c->id);
    front_call_send(&c->call);
}

void blasd_front_queue_get(struct blasd_front_queue *queue, const struct blasd_principal *principal,
                           const char *id, blasd_record_fn done, void *arg) {
    ask_record(queue, "get", principal, id, NULL, NULL, done, arg);
}

void blasd_front_queue_keep(struct blasd_front_queue *queue,
                            const struct blasd_principal *principal, const char *id,
                            blasd_record_fn done, void *arg) {
    ask_record(queue, "watch", principal, id, NULL, NULL, done, arg);
}

void blasd_front_queue_watch(struct blasd_front_queue *queue,
                             const struct blasd_principal *principal, const char *id,
                             struct blasd_waiter *waiter, blasd_record_fn done, void *arg) {
    ask_record(queue, "watch", principal, id, NULL, waiter, done, arg);
}

void blasd_front_queue_cancel(struct blasd_front_queue *queue,
                              const struct blasd_principal *principal, const char *id, bool forget,
                              blasd_record_fn done, void *arg) {
    ask_record(queue, "cancel", principal, id, forget ? "1" : "0", NULL, done, arg);
}

/* Lists are made one at a time, and between two of them Redis has time for others: four times as
 * long as the one took. So whoever asks for lists on end slows down lists, not jobs. */
#define LIST_SHARE 4
#define LIST_APART_MAX (100 * BLASD_MS)

struct list_call {
    struct front_call call; /* its node: in listings.waiting */
    char tenant[BLASD_TENANT_MAX];
    blasd_list_fn done;
    void *arg;
};

static void list_send(struct list_call *c) {
    struct blasd_front_queue *queue = c->call.queue;
    queue->listings.listing = true;
    memcpy(queue->listings.last, c->tenant, sizeof c->tenant);
    queue->listings.listed_ns = blasd_clock_ns();
    front_call_send(&c->call);
}

/* Tenants take turns, in the order of their names from `last` on; each one's lists in theirs. */
static bool comes_before(const struct list_call *a, const struct list_call *b, const char *last) {
    bool a_on = strcmp(a->tenant, last) > 0, b_on = strcmp(b->tenant, last) > 0;
    return a_on != b_on ? a_on : strcmp(a->tenant, b->tenant) < 0;
}

void front_lists_next(struct blasd_timer *timer) {
    struct blasd_front_queue *queue =
        blasd_container_of(timer, struct blasd_front_queue, listings.list_timer);
    struct list_call *best = NULL;
    if (queue->listings.listing) return;
    BLASD_LIST_EACH(node, &queue->listings.waiting) {
        struct list_call *c = blasd_container_of(node, struct list_call, call.node);
        if (best == NULL || comes_before(c, best, queue->listings.last)) best = c;
    }
    if (best == NULL) return;
    blasd_list_remove(&best->call.node);
    list_send(best);
}

static void list_made(struct blasd_front_queue *queue) {
    int64_t now = blasd_clock_ns(), apart = LIST_SHARE * (now - queue->listings.listed_ns);
    if (apart > LIST_APART_MAX) apart = LIST_APART_MAX;
    queue->listings.listing = false;
    if (blasd_loop_timer_set(queue->loop, &queue->listings.list_timer, now + apart) != 0)
        front_lists_next(&queue->listings.list_timer);
}

static void list_reply(struct front_call *call, const redisReply *reply,
                       const struct blasd_err *err) {
    struct list_call *c = blasd_container_of(call, struct list_call, call);
    const void **records = NULL;
    size_t *lens = NULL;
    struct blasd_err own;
    bool whole = reply != NULL && reply->type == REDIS_REPLY_ARRAY && reply->elements > 0;
    list_made(call->queue);
    for (size_t i = 0; whole && i < reply->elements; i++)
        whole = reply->element[i]->type == REDIS_REPLY_STRING;
    if (err == NULL && !whole) {
        if (reply != NULL && reply->type == REDIS_REPLY_INTEGER)
            blasd_fail(&own, BLASD_E_malformed_query, "cursor",
                       "cursor is not one that a page of GET /jobs gave");
        else
            front_unknown_answer(&own);
        err = &own;
    }
    if (err != NULL) {
        c->done(c->arg, err, "", NULL, NULL, 0);
        return;
    }
    records = calloc(reply->elements, sizeof *records);
    lens = calloc(reply->elements, sizeof *lens);
    if (records == NULL || lens == NULL) {
        front_no_memory(&own);
        c->done(c->arg, &own, "", NULL, NULL, 0);
    } else {
        for (size_t i = 1; i < reply->elements; i++) {
            records[i - 1] = reply->element[i]->str;
            lens[i - 1] = reply->element[i]->len;
        }
        c->done(c->arg, NULL, reply->element[0]->str, records, lens, (int)reply->elements - 1);
    }
    free(records);
    free(lens);
}

void blasd_front_queue_list(struct blasd_front_queue *queue,
                            const struct blasd_principal *principal,
                            const struct blasd_list_query *query, blasd_list_fn done, void *arg) {
    struct blasd_err err;
    struct list_call *c = new_call(queue, sizeof *c, list_reply, &err);
    if (c == NULL) {
        done(arg, &err, "", NULL, NULL, 0);
        return;
    }
    c->done = done;
    c->arg = arg;
    snprintf(c->tenant, sizeof c->tenant, "%s", principal->tenant);
    front_call_reads(&c->call);
    front_call_function(&c->call, "list");
    front_call_text(&c->call, principal->tenant);
    front_call_text(&c->call, query->state < 0 ? "any" : blasd_state_names[query->state]);
    front_call_text(&c->call, query->op == NULL ? "" : query->op);
    front_call_number(&c->call, query->since_us < 0 ? 0 : (uint64_t)query->since_us);
    front_call_number(&c->call, query->before_us < 0 ? 0 : (uint64_t)query->before_us);
    front_call_number(&c->call, query->limit < 1 ? 1 : (uint64_t)query->limit);
    front_call_text(&c->call, query->cursor == NULL ? "" : query->cursor);
    front_call_text(&c->call, query->label == NULL ? "" : query->label);
    if (!queue->listings.listing && queue->listings.list_timer.slot == 0) {
        list_send(c);
    } else {
        blasd_list_append(&queue->listings.waiting, &c->call.node);
    }
}

struct text_call {
    struct front_call call;
    blasd_text_fn done;
    void *arg;
};

static void text_reply(struct front_call *call, const redisReply *reply,
                       const struct blasd_err *err) {
    struct text_call *c = blasd_container_of(call, struct text_call, call);
    struct blasd_err own;
    if (err == NULL && (reply == NULL || reply->type != REDIS_REPLY_STRING)) {
        front_unknown_answer(&own);
        err = &own;
    }
    if (err != NULL)
        c->done(c->arg, err, NULL, 0);
    else
        c->done(c->arg, NULL, reply->str, reply->len);
}

void blasd_front_queue_figures(struct blasd_front_queue *queue,
                               const struct blasd_figures_query *query, blasd_text_fn done,
                               void *arg) {
    static const char *const more[] = {
        [BLASD_FIGURES_METRICS] = "figures", [BLASD_FIGURES_TENANTS] = "tenants"};
    struct blasd_err err;
    struct text_call *c = new_call(queue, sizeof *c, text_reply, &err);
    if (c == NULL) {
        done(arg, &err, NULL, 0);
        return;
    }
    c->done = done;
    c->arg = arg;
    front_call_reads(&c->call);
    front_call_function(&c->call, "stats");
    front_call_text(&c->call, query->of == BLASD_FIGURES_STATS ? "" : more[query->of]);
    if (query->tenant != NULL) front_call_text(&c->call, query->tenant);
    front_call_send(&c->call);
}
