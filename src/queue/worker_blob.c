/* Blobs from a worker's side, whole: files are there already, values of Redis are moved in chunks.
 * Read next: blob_fetch.h. */
#include "base/clock.h"
#include "queue/blob_fetch.h"
#include "queue/worker_side.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SWEEP_PERIOD_MS "10000"
/* Where a sweep found something, or jobs end, more will follow, as records go; pages that come back
 * soon serve again. A sweep of very many files takes no more than this part of the time. */
#define SWEEP_SOON_MS 1000
#define SWEEP_SOON_TEXT "1000"
#define SWEEP_SHARE 20
#define SWEEP_NAMES 256

static bool in_redis(const struct blasd_worker_queue *queue) {
    return blasd_store_kind(queue->options.store) == BLASD_STORE_REDIS;
}

/* A chunk, which keeps the blob from being swept for two minutes. */
static int write_chunk(struct blasd_worker_queue *queue, const struct blasd_blob *blob, uint64_t n,
                       struct blasd_err *err) {
    uint64_t at = n * BLASD_QUEUE_CHUNK, left = blob->bytes - at;
    char bytes[24], number[24];
    snprintf(bytes, sizeof bytes, "%" PRIu64, blob->bytes);
    snprintf(number, sizeof number, "%" PRIu64, n);
    blasd_worker_leased(queue, BLASD_QUEUE_FN("blob_write"));
    blasd_caller_text(&queue->caller, blob->name);
    blasd_caller_text(&queue->caller, bytes);
    blasd_caller_text(&queue->caller, number);
    blasd_caller_arg(&queue->caller, left > 0 ? (const char *)blob->data + at : "",
                     (size_t)(left < BLASD_QUEUE_CHUNK ? left : BLASD_QUEUE_CHUNK));
    return blasd_caller_do(&queue->caller, err);
}

int blasd_worker_queue_blob_put(struct blasd_worker_queue *queue, struct blasd_blob *blob,
                                struct blasd_err *err) {
    if (!in_redis(queue)) return 0;
    int rc = blob->data || !blob->bytes ? 0 : blasd_blob_map(blob, err);
    uint64_t n = 0;
    do rc = rc == 0 ? write_chunk(queue, blob, n++, err) : rc;
    while (rc == 0 && n * BLASD_QUEUE_CHUNK < blob->bytes);
    return rc;
}

int blasd_worker_queue_blob_get(struct blasd_worker_queue *queue, const char *name, uint64_t bytes,
                                struct blasd_blob *blob, struct blasd_err *err) {
    return blasd_blob_fetch(&queue->caller, queue->name, queue->options.store, name, bytes, blob,
                            err);
}

void blasd_worker_queue_blob_remove(struct blasd_worker_queue *queue, const char *name) {
    if (!in_redis(queue)) {
        blasd_store_remove(queue->options.store, name);
        return;
    }
    blasd_caller_function(&queue->caller, BLASD_QUEUE_FN("blob_free"));
    blasd_caller_text(&queue->caller, name);
    (void)blasd_caller_post(&queue->caller, NULL); /* what stays is swept */
}

void blasd_worker_queue_blob_discard(struct blasd_worker_queue *queue, struct blasd_blob *blob) {
    if (in_redis(queue) && blob->store) blasd_worker_queue_blob_remove(queue, blob->name);
    blasd_blob_remove(blob);
}

/* Sweeping */

static int referenced(void *arg, const char (*names)[BLASD_BLOB_NAME], int count, bool *keep) {
    struct blasd_worker_queue *queue = arg;
    redisReply *reply;
    if (count == 0) return 0;
    blasd_caller_function(&queue->caller, BLASD_QUEUE_FN("refs"));
    for (int i = 0; i < count; i++) blasd_caller_text(&queue->caller, names[i]);
    int rc = blasd_caller_call(&queue->caller, &reply, NULL);
    if (rc == 0 && (reply->type != REDIS_REPLY_STRING || (int)reply->len != count))
        rc = blasd_caller_odd_reply("refs", NULL);
    for (int i = 0; rc == 0 && i < count; i++) keep[i] = reply->str[i] == '1';
    freeReplyObject(reply);
    return rc;
}

/* Drops those of the names HSCAN gave (with their values between them) that nothing refers to. */
static int sweep_names(struct blasd_worker_queue *queue, const redisReply *rows,
                       char (*names)[BLASD_BLOB_NAME], int *removed) {
    bool keep[SWEEP_NAMES];
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < rows->elements;) {
        int count = 0;
        for (; count < SWEEP_NAMES && i + 1 < rows->elements; i += 2) {
            const redisReply *name = rows->element[i];
            if (name->type != REDIS_REPLY_STRING || (size_t)name->len >= BLASD_BLOB_NAME) continue;
            memcpy(names[count++], name->str, (size_t)name->len + 1);
        }
        if (count == 0) break;
        rc = referenced(queue, (const char(*)[BLASD_BLOB_NAME])names, count, keep);
        for (int k = 0; rc == 0 && k < count; k++) {
            if (keep[k]) continue;
            blasd_worker_queue_blob_remove(queue, names[k]);
            ++*removed;
        }
    }
    return rc;
}

static int sweep_redis(struct blasd_worker_queue *queue, int *removed, struct blasd_err *err) {
    char key[BLASD_LINK_KEY_MAX], cursor[32] = "0";
    char(*names)[BLASD_BLOB_NAME] = calloc(SWEEP_NAMES, sizeof *names);
    int rc = 0;
    if (!names) return blasd_fail(err, BLASD_E_internal_error, "", "Out of memory");
    blasd_link_key(key, queue->name, ":blobs");
    do {
        redisReply *reply;
        blasd_caller_command(&queue->caller, "HSCAN");
        blasd_caller_text(&queue->caller, key);
        blasd_caller_text(&queue->caller, cursor);
        blasd_caller_text(&queue->caller, "COUNT");
        blasd_caller_text(&queue->caller, "256");
        rc = blasd_caller_call(&queue->caller, &reply, err);
        if (rc < 0) break;
        if (reply->type != REDIS_REPLY_ARRAY || reply->elements != 2 ||
            reply->element[0]->type != REDIS_REPLY_STRING ||
            (size_t)reply->element[0]->len >= sizeof cursor) {
            rc = blasd_caller_odd_reply("HSCAN", err);
        } else {
            memcpy(cursor, reply->element[0]->str, (size_t)reply->element[0]->len + 1);
            rc = sweep_names(queue, reply->element[1], names, removed);
        }
        freeReplyObject(reply);
    } while (rc == 0 && strcmp(cursor, "0") != 0);
    free(names);
    return rc;
}

static int sweep_store(struct blasd_worker_queue *queue, struct blasd_err *err) {
    int removed = 0, rc;
    if (!in_redis(queue)) return blasd_store_sweep(queue->options.store, referenced, queue, err);
    rc = sweep_redis(queue, &removed, err);
    return rc < 0 ? rc : removed;
}

/* The next sweep may be soon. Where this does not arrive it comes when the period ends. */
static void sweep_again(struct blasd_worker_queue *queue, const char *key, int64_t took_ns) {
    char ms[24];
    int64_t wait = took_ns / 1000000 * SWEEP_SHARE;
    if (wait < SWEEP_SOON_MS) wait = SWEEP_SOON_MS;
    snprintf(ms, sizeof ms, "%" PRId64, wait);
    blasd_caller_command(&queue->caller, "PEXPIRE");
    blasd_caller_text(&queue->caller, key);
    blasd_caller_text(&queue->caller, ms);
    (void)blasd_caller_do(&queue->caller, NULL);
}

/* One sweep, unless another worker had its turn lately: the key says so. */
static int sweep_in_turn(struct blasd_worker_queue *queue, const char *name, const char *period_ms,
                         bool soon, struct blasd_err *err) {
    char key[BLASD_LINK_KEY_MAX];
    redisReply *reply;
    int64_t began_ns;
    blasd_store_trim(queue->options.store);
    blasd_link_key(key, queue->name, "%s", name);
    blasd_caller_command(&queue->caller, "SET");
    blasd_caller_text(&queue->caller, key);
    blasd_caller_text(&queue->caller, queue->lease.worker);
    blasd_caller_text(&queue->caller, "PX");
    blasd_caller_text(&queue->caller, period_ms);
    blasd_caller_text(&queue->caller, "NX");
    int rc = blasd_caller_call(&queue->caller, &reply, err);
    bool mine = rc == 0 && reply->type == REDIS_REPLY_STATUS;
    freeReplyObject(reply);
    if (rc < 0 || !mine) return rc < 0 ? rc : 0;
    began_ns = blasd_clock_ns();
    rc = sweep_store(queue, err);
    if (rc > 0 || soon) sweep_again(queue, key, blasd_clock_ns() - began_ns);
    return rc;
}

int blasd_worker_queue_sweep(struct blasd_worker_queue *queue, struct blasd_err *err) {
    return sweep_in_turn(queue, ":sweeping", SWEEP_PERIOD_MS, false, err);
}

int blasd_worker_queue_sweep_at_work(struct blasd_worker_queue *queue, struct blasd_err *err) {
    return sweep_in_turn(queue, ":sweeping:at_work", SWEEP_SOON_TEXT, true, err);
}
