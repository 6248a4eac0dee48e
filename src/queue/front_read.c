/* Asking about jobs: get, watch, cancel, list, stats. Each is one call of a function.
 * Read next: front_blob.c. */
#include "queue/front.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct record_call {
    struct front_call call;
    blasd_record_fn done;
    void *arg;
    bool watch, cancel;
    uint64_t serial; /* of the watch */
    char id[BLASD_ID_LEN + 1];
};

static void unknown_answer(struct blasd_err *err) {
    blasd_fail(err, BLASD_E_internal_error, "", "the queue's answer is not of a known form");
}

static void no_memory(struct blasd_err *err) {
    blasd_fail(err, BLASD_E_queue_unavailable, "", "the front end is out of memory");
}

/* NULL and `err` where memory has run out. */
static void *new_call(struct blasd_front_queue *queue, size_t size, front_reply_fn reply,
                      struct blasd_err *err) {
    void *call = front_call_new(queue, size, reply);
    if (call == NULL) no_memory(err);
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
    struct record_call *c = (struct record_call *)(void *)call;
    const redisReply *r = NULL;
    struct blasd_err own;
    if (reply != NULL && reply->type == REDIS_REPLY_ARRAY && reply->elements == 1)
        r = reply->element[0];
    if (err != NULL) {
        c->done(c->arg, err, NULL, 0);
    } else if (r != NULL && r->type == REDIS_REPLY_STRING) {
        if (c->cancel) remove_tensors(call->queue, c->id);
        c->done(c->arg, NULL, r->str, r->len);
        if (c->watch)
            front_watch_settle(call->queue, c->id, c->serial, !front_record_final(r->str, r->len));
        return;
    } else {
        if (r != NULL && r->type == REDIS_REPLY_INTEGER && r->integer == 404)
            blasd_fail(&own, BLASD_E_job_not_found, "id", "there is no job %s", c->id);
        else if (r != NULL && r->type == REDIS_REPLY_INTEGER && r->integer == 410)
            blasd_fail(&own, BLASD_E_record_expired, "id", "the record of job %s has expired",
                       c->id);
        else
            unknown_answer(&own);
        c->done(c->arg, &own, NULL, 0);
    }
    if (c->watch) front_watch_settle(call->queue, c->id, c->serial, false);
}

static void ask_record(struct blasd_front_queue *queue, const char *function, const char *id,
                       blasd_record_fn done, void *arg) {
    struct blasd_err err;
    struct record_call *c = new_call(queue, sizeof *c, record_reply, &err);
    bool valid = blasd_id_valid(id);
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
    c->watch = strcmp(function, "watch") == 0;
    c->cancel = strcmp(function, "cancel") == 0;
    /* a second cancel would forget the job that the first one has ended */
    if (c->cancel) c->call.tries_left = 0;
    memcpy(c->id, id, sizeof c->id);
    front_call_function(&c->call, function);
    if (c->watch) front_call_text(&c->call, queue->channel);
    front_call_arg(&c->call, c->id, BLASD_ID_LEN);
    if (c->watch) c->serial = front_watch_begin(queue, c->id);
    front_call_send(&c->call);
}

/* Every call below passes on the principal once there are tenants. */
void blasd_front_queue_get(struct blasd_front_queue *queue, const struct blasd_principal *principal,
                           const char *id, blasd_record_fn done, void *arg) {
    (void)principal;
    ask_record(queue, "get", id, done, arg);
}

void blasd_front_queue_watch(struct blasd_front_queue *queue,
                             const struct blasd_principal *principal, const char *id,
                             blasd_record_fn done, void *arg) {
    (void)principal;
    ask_record(queue, "watch", id, done, arg);
}

void blasd_front_queue_cancel(struct blasd_front_queue *queue,
                              const struct blasd_principal *principal, const char *id,
                              blasd_record_fn done, void *arg) {
    (void)principal;
    ask_record(queue, "cancel", id, done, arg);
}

struct list_call {
    struct front_call call;
    blasd_list_fn done;
    void *arg;
    int state;
};

/* Whether a record says, in the queue's own terse form, that it is of another state. */
static bool other_state(const redisReply *r, int state) {
    char head[32];
    int len;
    if (state < 0 || r->len < 3 || memcmp(r->str, "T1\n", 3) != 0) return false;
    len = snprintf(head, sizeof head, "T1\n%s\n", blasd_state_names[state]);
    return r->len < (size_t)len || memcmp(r->str, head, (size_t)len) != 0;
}

static void list_reply(struct front_call *call, const redisReply *reply,
                       const struct blasd_err *err) {
    struct list_call *c = (struct list_call *)(void *)call;
    const void **records = NULL;
    size_t *lens = NULL;
    struct blasd_err own;
    int count = 0;
    if (err != NULL) goto fail;
    if (reply == NULL || reply->type != REDIS_REPLY_ARRAY) {
        unknown_answer(&own);
        err = &own;
        goto fail;
    }
    records = calloc(reply->elements + 1, sizeof *records);
    lens = calloc(reply->elements + 1, sizeof *lens);
    if (records == NULL || lens == NULL) {
        no_memory(&own);
        err = &own;
        goto fail;
    }
    for (size_t i = 0; i < reply->elements; i++) {
        const redisReply *r = reply->element[i];
        if (r->type != REDIS_REPLY_STRING || other_state(r, c->state)) continue;
        records[count] = r->str;
        lens[count++] = r->len;
    }
    c->done(c->arg, NULL, records, lens, count);
    goto done;
fail:
    c->done(c->arg, err, NULL, NULL, 0);
done:
    free(records);
    free(lens);
}

void blasd_front_queue_list(struct blasd_front_queue *queue,
                            const struct blasd_principal *principal, int state, int limit,
                            blasd_list_fn done, void *arg) {
    struct blasd_err err;
    struct list_call *c = new_call(queue, sizeof *c, list_reply, &err);
    const char *which = "any";
    (void)principal;
    if (c == NULL) {
        done(arg, &err, NULL, NULL, 0);
        return;
    }
    c->done = done;
    c->arg = arg;
    c->state = state < BLASD_STATE_COUNT ? state : -1;
    if (state == BLASD_QUEUED || state == BLASD_RUNNING)
        which = blasd_state_names[state];
    else if (c->state >= 0) /* the queue does not tell final states apart: look at more of them */
        which = "ended";
    if (strcmp(which, "ended") == 0 && (uint64_t)limit < queue->list_jobs)
        limit = (int)queue->list_jobs;
    front_call_function(&c->call, "list");
    front_call_text(&c->call, which);
    front_call_number(&c->call, limit < 1 ? 1 : (uint64_t)limit);
    front_call_send(&c->call);
}

struct text_call {
    struct front_call call;
    blasd_text_fn done;
    void *arg;
};

static void text_reply(struct front_call *call, const redisReply *reply,
                       const struct blasd_err *err) {
    struct text_call *c = (struct text_call *)(void *)call;
    struct blasd_err own;
    if (err == NULL && (reply == NULL || reply->type != REDIS_REPLY_STRING)) {
        unknown_answer(&own);
        err = &own;
    }
    if (err != NULL)
        c->done(c->arg, err, NULL, 0);
    else
        c->done(c->arg, NULL, reply->str, reply->len);
}

void blasd_front_queue_stats(struct blasd_front_queue *queue, blasd_text_fn done, void *arg) {
    struct blasd_err err;
    struct text_call *c = new_call(queue, sizeof *c, text_reply, &err);
    if (c == NULL) {
        done(arg, &err, NULL, 0);
        return;
    }
    c->done = done;
    c->arg = arg;
    front_call_function(&c->call, "stats");
    front_call_send(&c->call);
}
