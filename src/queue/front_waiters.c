/* The requests that wait here for a job to end: the one table of them, by job id.
 *
 * Commands and messages come on two connections, so a job's record can come before the answer to
 * the call that submitted it, or that asked for it. While such a call is in flight its waiter is
 * pending, and a record that comes is kept until it is answered.
 * Messages of a broken connection are lost: after each new subscription Redis is asked about
 * every waiter. Read next: front_submit.c. */
#include "queue/front.h"
#include "queue/piece.h"

#include <stdlib.h>
#include <string.h>

#define ASK_IDS 64

bool front_record_final(const void *record, size_t len) {
    return len <= BLASD_RECORD_STATE_AT ||
           blasd_state_final(((const unsigned char *)record)[BLASD_RECORD_STATE_AT]);
}

/* Seeded, so that nobody can choose ids that meet in one bucket. */
static uint64_t hash_id(const struct front_waiters *waiters, const char *id) {
    uint64_t hash = waiters->seed, word;
    for (int i = 0; i < BLASD_ID_LEN / 8; i++) {
        memcpy(&word, id + i * 8, 8);
        hash = (hash ^ word) * UINT64_C(0x9e3779b97f4a7c15);
        hash ^= hash >> 29;
    }
    return (hash ^ (unsigned char)id[BLASD_ID_LEN - 1]) * UINT64_C(0xbf58476d1ce4e5b9) >> 8;
}

static struct blasd_waiter **bucket_of(const struct front_waiters *waiters, uint64_t hash) {
    return &waiters->buckets[hash & (waiters->size - 1)];
}

static void put(struct front_waiters *waiters, struct blasd_waiter *waiter) {
    struct blasd_waiter **bucket = bucket_of(waiters, waiter->hash);
    waiter->next = *bucket;
    *bucket = waiter;
}

static int grow(struct front_waiters *waiters) {
    struct front_waiters more = {.size = waiters->size == 0 ? 256 : waiters->size * 2};
    more.buckets = calloc(more.size, sizeof *more.buckets);
    if (more.buckets == NULL) return -1;
    for (size_t i = 0; i < waiters->size; i++)
        for (struct blasd_waiter *waiter = waiters->buckets[i], *next; waiter != NULL;
             waiter = next) {
            next = waiter->next;
            put(&more, waiter);
        }
    free(waiters->buckets);
    waiters->buckets = more.buckets;
    waiters->size = more.size;
    return 0;
}

void front_wait_begin(struct blasd_front_queue *queue, struct blasd_waiter *waiter,
                      const char *id) {
    struct front_waiters *waiters = &queue->waiters;
    if (waiter == NULL || waiter->waits) return;
    if (waiters->count >= waiters->size && grow(waiters) != 0 && waiters->size == 0) return;
    waiter->waits = waiter->pending = true;
    memcpy(waiter->id, id, BLASD_ID_LEN);
    waiter->id[BLASD_ID_LEN] = '\0';
    waiter->hash = hash_id(waiters, id);
    put(waiters, waiter);
    waiters->count++;
}

void blasd_front_queue_unwatch(struct blasd_front_queue *queue, struct blasd_waiter *waiter) {
    struct blasd_waiter **at;
    if (!waiter->waits) return;
    at = bucket_of(&queue->waiters, waiter->hash);
    while (*at != waiter) at = &(*at)->next;
    *at = waiter->next;
    queue->waiters.count--;
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
    } else {
        blasd_front_queue_unwatch(queue, waiter);
    }
    return early;
}

void front_wait_early(struct blasd_front_queue *queue, const char *id, struct blasd_early *early) {
    if (early->came) front_wait_ended(queue, id, early->bytes, early->len);
    free(early->bytes);
}

/* Without memory to keep the record, the next look at all waiters finds it. */
static void keep_early(struct blasd_front_queue *queue, struct blasd_waiter *waiter,
                       const void *record, size_t len) {
    if (record == NULL || waiter->early.came) return;
    waiter->early.bytes = malloc(len > 0 ? len : 1);
    if (waiter->early.bytes == NULL) {
        queue->rewatch_later = true;
        return;
    }
    memcpy(waiter->early.bytes, record, len);
    waiter->early.len = len;
    waiter->early.came = true;
}

void front_wait_ended(struct blasd_front_queue *queue, const char *id, const void *record,
                      size_t len) {
    struct front_waiters *waiters = &queue->waiters;
    uint64_t hash = hash_id(waiters, id);
    struct blasd_waiter *waiter = waiters->size == 0 ? NULL : *bucket_of(waiters, hash);
    bool told = false;
    while (waiter != NULL) {
        bool its = waiter->hash == hash && memcmp(waiter->id, id, BLASD_ID_LEN) == 0;
        if (its && !waiter->pending) {
            blasd_front_queue_unwatch(queue, waiter);
            /* until Redis says how many there are */
            if (!told && queue->view.jobs > 0) queue->view.jobs--;
            waiter->again = told;
            told = true;
            waiter->ended(waiter, record, len);
            waiter = *bucket_of(waiters, hash); /* whoever is told may change the table */
            continue;
        }
        if (its) keep_early(queue, waiter, record, len);
        waiter = waiter->next;
    }
}

void front_wait_message(struct blasd_front_queue *queue, const char *bytes, size_t len) {
    while (len >= BLASD_PIECE_HEAD) {
        size_t record_len = blasd_piece_len(bytes);
        if (record_len > len - BLASD_PIECE_HEAD) return; /* not from a worker of ours */
        front_wait_ended(queue, bytes + 4, bytes + BLASD_PIECE_HEAD, record_len);
        bytes += BLASD_PIECE_HEAD + record_len;
        len -= BLASD_PIECE_HEAD + record_len;
    }
}

/* Asking Redis about those that are waited for. */
struct ask_call {
    struct front_call call;
    int count;
    char ids[ASK_IDS][BLASD_ID_LEN + 1];
};

static void ask_reply(struct front_call *call, const redisReply *reply,
                      const struct blasd_err *err) {
    struct ask_call *ask = (struct ask_call *)(void *)call;
    struct blasd_front_queue *queue = call->queue;
    if (err != NULL || reply->type != REDIS_REPLY_ARRAY || reply->elements != (size_t)ask->count) {
        queue->rewatch_later = true;
        return;
    }
    for (int i = 0; i < ask->count; i++) {
        const redisReply *r = reply->element[i];
        if (r->type == REDIS_REPLY_INTEGER) /* the record is gone */
            front_wait_ended(queue, ask->ids[i], NULL, 0);
        else if (r->type == REDIS_REPLY_STRING && front_record_final(r->str, r->len))
            front_wait_ended(queue, ask->ids[i], r->str, r->len);
    }
}

static struct ask_call *ask_new(struct blasd_front_queue *queue) {
    struct ask_call *ask = front_call_new(queue, sizeof *ask, ask_reply);
    if (ask == NULL) {
        queue->rewatch_later = true;
        return NULL;
    }
    front_call_function(&ask->call, "watch");
    front_call_text(&ask->call, queue->channel);
    return ask;
}

static void ask_add(struct ask_call *ask, const char *id) {
    memcpy(ask->ids[ask->count], id, BLASD_ID_LEN);
    front_call_arg(&ask->call, ask->ids[ask->count++], BLASD_ID_LEN);
}

void front_wait_ask(struct blasd_front_queue *queue, const char *id) {
    struct ask_call *ask = ask_new(queue);
    if (ask == NULL) return;
    ask_add(ask, id);
    front_call_send(&ask->call);
}

void front_wait_again(struct blasd_front_queue *queue) {
    struct ask_call *ask = NULL;
    if (!queue->rewatch || !queue->ready || !queue->subscribed) return;
    queue->rewatch = queue->rewatch_later = false;
    for (size_t i = 0; i < queue->waiters.size; i++) {
        for (struct blasd_waiter *waiter = queue->waiters.buckets[i]; waiter != NULL;
             waiter = waiter->next) {
            if (ask == NULL && (ask = ask_new(queue)) == NULL) return;
            ask_add(ask, waiter->id);
            if (ask->count < ASK_IDS) continue;
            front_call_send(&ask->call);
            ask = NULL;
        }
    }
    if (ask != NULL) front_call_send(&ask->call);
}

void front_waiters_free(struct blasd_front_queue *queue) {
    for (size_t i = 0; i < queue->waiters.size; i++)
        while (queue->waiters.buckets[i] != NULL)
            blasd_front_queue_unwatch(queue, queue->waiters.buckets[i]);
    free(queue->waiters.buckets);
}
