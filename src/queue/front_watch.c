/* The jobs that somebody waits for here: a hash table of ids.
 *
 * Commands and messages come on two connections, so a job's record can come before the answer to
 * the call that submitted it, or between a watch and its answer. While such calls are in flight the
 * watch is pending, and a record that comes is kept until the last of them is answered.
 * Messages of a broken connection are lost: after each new subscription Redis is asked about
 * every watch. Read next: front_submit.c. */
#include "queue/front.h"
#include "queue/piece.h"

#include <stdlib.h>
#include <string.h>

#define ASK_IDS 64

struct front_watch {
    struct front_watch *next;
    uint64_t hash, serial;
    int pending; /* calls in flight that set it */
    bool stands; /* one of them has succeeded */
    bool has_early;
    void *early; /* owned; a record that came while calls were in flight */
    size_t early_len;
    char id[BLASD_ID_LEN + 1];
};

bool front_record_final(const void *record, size_t len) {
    return len <= BLASD_RECORD_STATE_AT ||
           blasd_state_final(((const unsigned char *)record)[BLASD_RECORD_STATE_AT]);
}

/* Seeded, so that nobody can choose ids that meet in one bucket. */
static uint64_t hash_id(const struct blasd_front_queue *queue, const char *id) {
    uint64_t hash = queue->watch_seed, word;
    for (int i = 0; i < BLASD_ID_LEN / 8; i++) {
        memcpy(&word, id + i * 8, 8);
        hash = (hash ^ word) * UINT64_C(0x9e3779b97f4a7c15);
        hash ^= hash >> 29;
    }
    return (hash ^ (unsigned char)id[BLASD_ID_LEN - 1]) * UINT64_C(0xbf58476d1ce4e5b9) >> 8;
}

static struct front_watch **find(struct blasd_front_queue *queue, const char *id) {
    uint64_t hash = hash_id(queue, id);
    struct front_watch **at;
    if (queue->watch_buckets == 0) return NULL;
    at = &queue->watches[hash & (queue->watch_buckets - 1)];
    while (*at != NULL && ((*at)->hash != hash || memcmp((*at)->id, id, BLASD_ID_LEN) != 0))
        at = &(*at)->next;
    return at;
}

static int grow(struct blasd_front_queue *queue) {
    size_t buckets = queue->watch_buckets == 0 ? 256 : queue->watch_buckets * 2;
    struct front_watch **fresh = calloc(buckets, sizeof(struct front_watch *));
    if (fresh == NULL) return -1;
    for (size_t i = 0; i < queue->watch_buckets; i++) {
        struct front_watch *watch = queue->watches[i], *next;
        for (; watch != NULL; watch = next) {
            struct front_watch **bucket = &fresh[watch->hash & (buckets - 1)];
            next = watch->next;
            watch->next = *bucket;
            *bucket = watch;
        }
    }
    free(queue->watches);
    queue->watches = fresh;
    queue->watch_buckets = buckets;
    return 0;
}

/* Takes the watch out of the table and frees it. */
static void forget(struct blasd_front_queue *queue, struct front_watch **at) {
    struct front_watch *watch = *at;
    *at = watch->next;
    queue->watch_count--;
    free(watch->early);
    free(watch);
}

/* The watch ends with the record. */
static void end_watch(struct blasd_front_queue *queue, struct front_watch **at, const void *record,
                      size_t len) {
    char id[BLASD_ID_LEN + 1];
    memcpy(id, (*at)->id, sizeof id);
    forget(queue, at);
    if (queue->view.jobs > 0) queue->view.jobs--; /* until Redis says how many there are */
    queue->hooks.on_ended(queue->hooks.arg, id, record, len);
}

uint64_t front_watch_begin(struct blasd_front_queue *queue, const char *id) {
    struct front_watch **at, *watch;
    if (queue->watch_count >= queue->watch_buckets && grow(queue) != 0 && queue->watch_buckets == 0)
        return 0;
    at = find(queue, id);
    if (*at == NULL) {
        watch = calloc(1, sizeof *watch);
        if (watch == NULL) return 0;
        watch->hash = hash_id(queue, id);
        watch->serial = ++queue->watch_serial;
        memcpy(watch->id, id, BLASD_ID_LEN);
        *at = watch;
        queue->watch_count++;
    }
    (*at)->pending++;
    return (*at)->serial;
}

void front_watch_settle(struct blasd_front_queue *queue, const char *id, uint64_t serial,
                        bool stands) {
    struct front_watch **at = serial == 0 ? NULL : find(queue, id);
    struct front_watch *watch = at == NULL ? NULL : *at;
    void *early;
    if (watch == NULL || watch->serial != serial) return;
    if (stands) watch->stands = true;
    if (--watch->pending > 0) return;
    if (!watch->stands) {
        forget(queue, at);
    } else if (watch->has_early) {
        size_t len = watch->early_len;
        early = watch->early;
        watch->early = NULL;
        end_watch(queue, at, early, len);
        free(early);
    }
}

void front_watch_ended(struct blasd_front_queue *queue, const char *id, const void *record,
                       size_t len) {
    struct front_watch **at = find(queue, id);
    struct front_watch *watch = at == NULL ? NULL : *at;
    if (watch == NULL) return;
    if (watch->pending == 0) {
        end_watch(queue, at, record, len);
        return;
    }
    /* without memory to keep it, the next look at all watches finds it */
    if (record == NULL || watch->has_early) return;
    watch->early = malloc(len > 0 ? len : 1);
    if (watch->early == NULL) {
        queue->rewatch_later = true;
        return;
    }
    memcpy(watch->early, record, len);
    watch->early_len = len;
    watch->has_early = true;
}

void front_watch_message(struct blasd_front_queue *queue, const char *bytes, size_t len) {
    while (len >= BLASD_PIECE_HEAD) {
        size_t record_len = blasd_piece_len(bytes);
        if (record_len > len - BLASD_PIECE_HEAD) return; /* not from a worker of ours */
        front_watch_ended(queue, bytes + 4, bytes + BLASD_PIECE_HEAD, record_len);
        bytes += BLASD_PIECE_HEAD + record_len;
        len -= BLASD_PIECE_HEAD + record_len;
    }
}

/* Asking Redis about watches. */
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
            front_watch_ended(queue, ask->ids[i], NULL, 0);
        else if (r->type == REDIS_REPLY_STRING && front_record_final(r->str, r->len))
            front_watch_ended(queue, ask->ids[i], r->str, r->len);
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

void front_watch_ask(struct blasd_front_queue *queue, const char *id) {
    struct ask_call *ask = ask_new(queue);
    if (ask == NULL) return;
    ask_add(ask, id);
    front_call_send(&ask->call);
}

void front_watch_again(struct blasd_front_queue *queue) {
    struct ask_call *ask = NULL;
    if (!queue->rewatch || !queue->ready || !queue->subscribed) return;
    queue->rewatch = queue->rewatch_later = false;
    for (size_t i = 0; i < queue->watch_buckets; i++) {
        for (struct front_watch *watch = queue->watches[i]; watch != NULL; watch = watch->next) {
            if (ask == NULL && (ask = ask_new(queue)) == NULL) return;
            ask_add(ask, watch->id);
            if (ask->count < ASK_IDS) continue;
            front_call_send(&ask->call);
            ask = NULL;
        }
    }
    if (ask != NULL) front_call_send(&ask->call);
}

void blasd_front_queue_unwatch(struct blasd_front_queue *queue, const char *id) {
    struct front_watch **at = blasd_id_valid(id) ? find(queue, id) : NULL;
    if (at != NULL && *at != NULL) forget(queue, at);
}

void front_watch_free(struct blasd_front_queue *queue) {
    for (size_t i = 0; i < queue->watch_buckets; i++)
        while (queue->watches[i] != NULL) forget(queue, &queue->watches[i]);
    free(queue->watches);
    queue->watches = NULL;
    queue->watch_buckets = 0;
}
