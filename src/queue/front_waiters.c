/* The requests that wait here for a job to end: the one table of them, by job id.
 *
 * Commands and messages come on two connections, so a job's record can come before the answer to
 * the call that submitted it, or that asked for it. While such a call is in flight its waiter is
 * pending, and a record that comes is kept until it is answered.
 * Messages of a broken connection are lost: after each new subscription Redis is asked about
 * every waiter, about a pending one once its call is answered. Read next: front_submit.c. */
#include "base/container.h"
#include "base/text.h"
#include "queue/front.h"
#include "queue/record_frame.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ASK_IDS 64

bool front_record_final(const void *record, size_t len) {
    return len <= BLASD_RECORD_STATE_AT ||
           blasd_state_final(((const unsigned char *)record)[BLASD_RECORD_STATE_AT]);
}

static uint64_t hash_id(const struct blasd_front_queue *queue, const char *id) {
    return blasd_hash_bytes(queue->waiters.seed, id, BLASD_ID_LEN);
}

static struct blasd_waiter *waiter_of(struct blasd_hash_node *node) {
    return node == NULL ? NULL : blasd_container_of(node, struct blasd_waiter, node);
}

/* The next one behind `last` that waits for the job; NULL: the first. */
static struct blasd_waiter *next_of(struct blasd_front_queue *queue, const char *id,
                                    struct blasd_waiter *last) {
    uint64_t hash = hash_id(queue, id);
    do
        last = waiter_of(
            blasd_hash_find(&queue->waiters.by_id, hash, last == NULL ? NULL : &last->node));
    while (last != NULL && memcmp(last->id, id, BLASD_ID_LEN) != 0);
    return last;
}

void front_wait_begin(struct blasd_front_queue *queue, const char *tenant,
                      struct blasd_waiter *waiter, const char *id) {
    if (waiter == NULL || waiter->waits) return;
    if (blasd_hash_add(&queue->waiters.by_id, &waiter->node, hash_id(queue, id)) != 0) return;
    waiter->waits = waiter->pending = true;
    waiter->unasked = false;
    blasd_text_join(waiter->tenant, sizeof waiter->tenant, tenant, "", NULL);
    memcpy(waiter->id, id, BLASD_ID_LEN);
    waiter->id[BLASD_ID_LEN] = '\0';
}

void blasd_front_queue_unwatch(struct blasd_front_queue *queue, struct blasd_waiter *waiter) {
    if (!waiter->waits) return;
    blasd_hash_remove(&queue->waiters.by_id, &waiter->node);
    free(waiter->early.bytes);
    waiter->early = (struct blasd_early){0};
    waiter->waits = false;
}

struct blasd_early front_wait_settle(struct blasd_front_queue *queue, struct blasd_waiter *waiter,
                                     bool stands) {
    struct blasd_early early = {0};
    if (waiter == NULL || !waiter->waits) return early;
    waiter->pending = false;
    if (stands) {
        early = waiter->early;
        waiter->early = (struct blasd_early){0};
        if (waiter->unasked) front_wait_ask(queue, waiter->tenant, waiter->id);
        waiter->unasked = false;
    } else {
        blasd_front_queue_unwatch(queue, waiter);
    }
    return early;
}

void front_wait_early(struct blasd_front_queue *queue, const char *id, struct blasd_early *early) {
    if (early->came) front_wait_ended(queue, NULL, id, early->bytes, early->len);
    free(early->bytes);
}

/* Without memory to keep the record, the next look at all waiters finds it. */
static void keep_early(struct blasd_front_queue *queue, struct blasd_waiter *waiter,
                       const void *record, size_t len) {
    if (record == NULL || waiter->early.came) return;
    waiter->early.bytes = malloc(len > 0 ? len : 1);
    if (waiter->early.bytes == NULL) {
        queue->standing.rewatch_later = true;
        return;
    }
    memcpy(waiter->early.bytes, record, len);
    waiter->early.len = len;
    waiter->early.came = true;
}

void front_wait_ended(struct blasd_front_queue *queue, const char *tenant, const char *id,
                      const void *record, size_t len) {
    struct blasd_waiter *waiter = NULL;
    bool told = false;
    while ((waiter = next_of(queue, id, waiter)) != NULL) {
        if (tenant != NULL && strcmp(waiter->tenant, tenant) != 0) continue;
        if (waiter->pending) {
            keep_early(queue, waiter, record, len);
            continue;
        }
        blasd_front_queue_unwatch(queue, waiter);
        if (!told && queue->view.jobs > 0) queue->view.jobs--; /* until Redis says how many */
        waiter->again = told;
        told = true;
        waiter->ended(waiter, record, len);
        waiter = NULL; /* whoever is told may change the table */
    }
}

void front_wait_message(struct blasd_front_queue *queue, const char *bytes, size_t len) {
    while (len >= BLASD_RECORD_FRAME_HEAD) {
        size_t record_len = blasd_record_frame_len(bytes);
        if (record_len > len - BLASD_RECORD_FRAME_HEAD) return; /* not from a worker of ours */
        front_wait_ended(queue, NULL, bytes + 4, bytes + BLASD_RECORD_FRAME_HEAD, record_len);
        bytes += BLASD_RECORD_FRAME_HEAD + record_len;
        len -= BLASD_RECORD_FRAME_HEAD + record_len;
    }
}

/* Asking Redis about those that are waited for. */
struct ask_call {
    struct front_call call;
    char tenant[BLASD_TENANT_MAX];
    int count;
    char ids[ASK_IDS][BLASD_ID_LEN + 1];
};

static void ask_reply(struct front_call *call, const redisReply *reply,
                      const struct blasd_err *err) {
    struct ask_call *ask = blasd_container_of(call, struct ask_call, call);
    struct blasd_front_queue *queue = call->queue;
    if (err != NULL || reply->type != REDIS_REPLY_ARRAY || reply->elements != (size_t)ask->count) {
        queue->standing.rewatch_later = true;
        return;
    }
    for (int i = 0; i < ask->count; i++) {
        const redisReply *r = reply->element[i];
        if (r->type == REDIS_REPLY_INTEGER) /* the record is gone, or never was this tenant's */
            front_wait_ended(queue, ask->tenant, ask->ids[i], NULL, 0);
        else if (r->type == REDIS_REPLY_STRING && front_record_final(r->str, r->len))
            front_wait_ended(queue, ask->tenant, ask->ids[i], r->str, r->len);
    }
}

static struct ask_call *ask_new(struct blasd_front_queue *queue, const char *tenant) {
    struct ask_call *ask = front_call_new(queue, sizeof *ask, ask_reply);
    if (ask == NULL) {
        queue->standing.rewatch_later = true;
        return NULL;
    }
    snprintf(ask->tenant, sizeof ask->tenant, "%s", tenant);
    front_call_reads(&ask->call);
    front_call_function(&ask->call, "watch");
    front_call_text(&ask->call, ask->tenant);
    front_call_text(&ask->call, queue->channel);
    return ask;
}

static void ask_add(struct ask_call *ask, const char *id) {
    memcpy(ask->ids[ask->count], id, BLASD_ID_LEN);
    front_call_arg(&ask->call, ask->ids[ask->count++], BLASD_ID_LEN);
}

void front_wait_ask(struct blasd_front_queue *queue, const char *tenant, const char *id) {
    struct ask_call *ask = ask_new(queue, tenant);
    if (ask == NULL) return;
    ask_add(ask, id);
    front_call_send(&ask->call);
}

/* Of several calls, each for one tenant, one at a time. */
struct asking {
    struct blasd_front_queue *queue;
    struct ask_call *ask;
    bool stopped;
};

static void ask_each(void *arg, struct blasd_hash_node *node) {
    struct asking *asking = arg;
    struct blasd_waiter *waiter = blasd_container_of(node, struct blasd_waiter, node);
    if (asking->stopped) return;
    if (waiter->pending) { /* on another connection: Redis may hear the question first */
        waiter->unasked = true;
        return;
    }
    if (asking->ask != NULL && strcmp(asking->ask->tenant, waiter->tenant) != 0) {
        front_call_send(&asking->ask->call);
        asking->ask = NULL;
    }
    if (asking->ask == NULL) asking->ask = ask_new(asking->queue, waiter->tenant);
    asking->stopped = asking->ask == NULL;
    if (asking->stopped) return;
    ask_add(asking->ask, waiter->id);
    if (asking->ask->count < ASK_IDS) return;
    front_call_send(&asking->ask->call);
    asking->ask = NULL;
}

void front_wait_again(struct blasd_front_queue *queue) {
    struct asking asking = {.queue = queue};
    if (!queue->standing.rewatch || !queue->standing.ready || !queue->standing.subscribed) return;
    queue->standing.rewatch = queue->standing.rewatch_later = false;
    blasd_hash_each(&queue->waiters.by_id, ask_each, &asking);
    if (asking.ask != NULL) front_call_send(&asking.ask->call);
}

void front_waiters_free(struct blasd_front_queue *queue) {
    struct blasd_waiter *waiter;
    while ((waiter = waiter_of(blasd_hash_any(&queue->waiters.by_id))) != NULL)
        blasd_front_queue_unwatch(queue, waiter);
    blasd_hash_release(&queue->waiters.by_id);
}
