/* How a worker comes by jobs: it claims them, or waits and is woken, or handed them while it waits.
 *
 * This file must not know what frames and records hold. Read next: functions/workers.lua (claim),
 * functions/recovery.lua (who is woken), worker_end.c. */
#include "queue/piece.h"
#include "queue/worker_link.h"

#include "base/clock.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WAKE_MOST "16400" /* elements: more than any claim has */
#define CLAIM_MOST 8192   /* jobs in one claim: Redis does nothing else meanwhile */
/* After a wait shorter than SHORT_NS the next one begins with so long a time awake. */
#define SHORT_NS (600 * INT64_C(1000))
#define AWAKE_NS (400 * INT64_C(1000))

/* The next number of "NAME US COST BLOB [ATTEMPTS [N]]", or -1. */
static int64_t next_number(const char **at) {
    char *end;
    if (**at != ' ') return -1;
    int64_t value = strtoll(*at + 1, &end, 10);
    if (end == *at + 1 || value < 0) return -1;
    *at = end;
    return value;
}

/* What follows the name, which is the same for all jobs of a packet; how many these are, 1 where it
 * does not say, or 0 where it is malformed. */
static int64_t read_head(const char *at, struct blasd_claim *claim) {
    claim->submitted_us = next_number(&at);
    int64_t cost = next_number(&at), blob = next_number(&at);
    int64_t attempts = *at ? next_number(&at) : 0, jobs = *at ? next_number(&at) : 1;
    if (claim->submitted_us < 0 || cost < 0 || blob < 0 || attempts < 0 || attempts > INT32_MAX)
        return 0;
    claim->stored = blob == 1;
    claim->attempts = (int)attempts;
    return jobs > 0 ? jobs : 0;
}

static bool set_job(struct blasd_claim *claim, const char *id, const char *frame, size_t len) {
    memcpy(claim->id, id, BLASD_ID_LEN);
    claim->id[BLASD_ID_LEN] = '\0';
    claim->frame = frame;
    claim->frame_len = len;
    return blasd_id_valid(claim->id);
}

/* The jobs of a packet, up to `max`; how many, or 0 where they are not well formed. */
static int read_packet(const redisReply *head, const redisReply *pieces, int max,
                       struct blasd_claim *claims) {
    struct blasd_claim common = {0};
    const char *at = pieces->str, *end = at + pieces->len;
    int count = 0;
    int64_t jobs = read_head(head->str + BLASD_ID_PACKET, &common);
    while (at < end) {
        if (count == max || end - at < (ptrdiff_t)BLASD_PIECE_HEAD) return 0;
        size_t len = blasd_piece_len(at);
        if (len > (size_t)(end - at) - BLASD_PIECE_HEAD) return 0;
        claims[count] = common;
        if (memcmp(at + 4, head->str, BLASD_ID_PACKET) != 0 ||
            !set_job(&claims[count++], at + 4, at + BLASD_PIECE_HEAD, len))
            return 0;
        at += BLASD_PIECE_HEAD + len;
    }
    return count == jobs ? count : 0;
}

/* A job, or all of a packet; how many, or 0. */
static int read_claim(const redisReply *head, const redisReply *frame, int max,
                      struct blasd_claim *claims) {
    if (head->type != REDIS_REPLY_STRING || frame->type != REDIS_REPLY_STRING || max == 0) return 0;
    if ((size_t)head->len > BLASD_ID_PACKET && head->str[BLASD_ID_PACKET] == ' ')
        return read_packet(head, frame, max, claims);
    if ((size_t)head->len <= BLASD_ID_LEN) return 0;
    *claims = (struct blasd_claim){0};
    return read_head(head->str + BLASD_ID_LEN, claims) == 1 &&
           set_job(claims, head->str, frame->str, (size_t)frame->len);
}

/* now_us, which is a text where the jobs were handed over in a list. */
static int64_t read_now(const redisReply *r) {
    if (r->type == REDIS_REPLY_INTEGER) return r->integer;
    return r->type == REDIS_REPLY_STRING ? strtoll(r->str, NULL, 10) : 0;
}

static int take_claims(struct blasd_worker_queue *queue, const redisReply *reply, int max,
                       struct blasd_claim *claims, int *count, struct blasd_err *err) {
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements % 2 != 1 ||
        read_now(reply->element[0]) <= 0)
        return blasd_worker_odd_reply("claim", err);
    int64_t now = read_now(reply->element[0]);
    queue->offset_us = now - blasd_clock_ns() / 1000;
    for (size_t i = 1; i < reply->elements; i += 2) {
        struct blasd_claim *first = &claims[*count];
        const redisReply *head = reply->element[i];
        int jobs = read_claim(head, reply->element[i + 1], max - *count, first);
        if (jobs == 0) return blasd_worker_odd_reply("claim", err);
        for (int k = 0; k < jobs; k++) first[k].claimed_us = now;
        size_t name_len = strcspn(head->str, " ");
        if (blasd_held_add(&queue->held, head->str, name_len, jobs) < 0)
            return blasd_fail(err, BLASD_E_internal_error, "", "Out of memory");
        *count += jobs;
    }
    return 0;
}

/* After a reply that could not be read to its end: the next claim gives back what was in it. */
static void unclaim(struct blasd_worker_queue *queue, const struct blasd_claim *claims,
                    int *count) {
    while (*count > 0) blasd_held_remove(&queue->held, claims[--*count].id);
    queue->claim_missed = true;
}

static bool is_text(const redisReply *reply, const char *text) {
    return reply->type == REDIS_REPLY_STRING && strcmp(reply->str, text) == 0;
}

/* Whether [key, [...]] holds jobs; calls to claim ("1", then *called) and nudges ("0") are taken
 * out of it. */
static bool was_handed(const redisReply *reply, bool *called) {
    redisReply *list;
    size_t kept = 0;
    *called = false;
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements != 2) return false;
    list = reply->element[1];
    if (list->type != REDIS_REPLY_ARRAY) return false;
    for (size_t i = 0; i < list->elements; i++) {
        redisReply *one = list->element[i];
        if (is_text(one, "1")) *called = true;
        if (is_text(one, "1") || is_text(one, "0"))
            freeReplyObject(one);
        else
            list->element[kept++] = one;
    }
    list->elements = kept;
    return kept > 0;
}

/* Reads what ended the wait; true where it keeps the reply, for jobs are in it. */
static bool take_woken(struct blasd_worker_queue *queue, redisReply *reply) {
    bool called, handed = was_handed(reply, &called);
    bool woken = reply->type == REDIS_REPLY_ARRAY;
    queue->may_wait = !queue->missed && !handed && !called;
    queue->rested = woken && queue->may_wait; /* by a nudge: it is idle as before */
    if (!handed) return false;
    freeReplyObject(queue->claimed);
    queue->claimed = reply;
    queue->handed = true;
    return true;
}

/* What the queue handed over while the worker waited: claimed, as if it had been asked for. */
static int take_handed(struct blasd_worker_queue *queue, int max, struct blasd_claim *claims,
                       int *count, struct blasd_err *err) {
    const redisReply *list = queue->claimed->element[1];
    int rc = take_claims(queue, list, max, claims, count, err);
    queue->handed = queue->idle = false;
    queue->claimed_ns = blasd_clock_ns();
    queue->turn++;
    if (rc == 0) return 0;
    unclaim(queue, claims, count);
    return rc;
}

/* The wait that finish has ended is read; one of an idle worker that is to claim all the same,
 * given up. */
static int look_ahead(struct blasd_worker_queue *queue, struct blasd_err *err) {
    redisReply *reply;
    if (!queue->ahead) return 0;
    if (queue->idle) {
        blasd_worker_hang_up(queue);
        return 0;
    }
    int rc = blasd_worker_collect(queue, &reply, err);
    if (rc == 0 && take_woken(queue, reply)) return 0;
    freeReplyObject(reply);
    return rc < 0 ? rc : 0;
}

int blasd_worker_queue_claim(struct blasd_worker_queue *queue, int max, uint64_t max_bytes,
                             struct blasd_claim *claims, int *count, bool *lost,
                             struct blasd_err *err) {
    char max_text[16], bytes_text[24], turn[16];
    redisReply *reply;
    *count = 0;
    *lost = false;
    if (max > CLAIM_MOST) max = CLAIM_MOST;
    int rc = look_ahead(queue, err);
    if (rc < 0) return rc;
    if (queue->handed) {
        int most = max > queue->asked_jobs ? max : queue->asked_jobs;
        return take_handed(queue, most, claims, count, err);
    }
    freeReplyObject(queue->claimed);
    queue->claimed = NULL;
    queue->rested = false;
    snprintf(max_text, sizeof max_text, "%d", max);
    snprintf(bytes_text, sizeof bytes_text, "%" PRIu64, max_bytes);
    snprintf(turn, sizeof turn, "%u", queue->turn++);
    queue->asked_jobs = max;
    queue->asked_bytes = max_bytes;
    blasd_buf_reset(&queue->text);
    if (blasd_held_write(&queue->held, &queue->text) < 0)
        return blasd_fail(err, BLASD_E_internal_error, "", "Too many jobs are held");
    do {
        blasd_worker_leased(queue, BLASD_LINK_FN("claim"));
        blasd_worker_arg(queue, &queue->device_class, 1);
        blasd_worker_text(queue, max_text);
        blasd_worker_text(queue, bytes_text);
        blasd_worker_text(queue, turn);
        blasd_worker_text(queue, queue->idle ? "1" : "0");
        blasd_worker_text(queue, queue->claim_missed ? "1" : "0");
        blasd_worker_arg(queue, queue->text.data ? queue->text.data : "", queue->text.len);
        queue->once = !queue->claim_missed; /* sent again it must say so, that jobs are not lost */
        rc = blasd_worker_call(queue, blasd_worker_patience(queue), &reply, err);
        if (queue->missed) queue->claim_missed = true;
    } while (rc == -(int)BLASD_E_queue_unavailable && queue->missed && queue->once);
    if (rc < 0) return rc;
    queue->claim_missed = false;
    if (rc == BLASD_WORKER_LOST) {
        *lost = true;
        blasd_worker_forget(queue);
        return 0;
    }
    queue->claimed = reply;
    queue->claimed_ns = blasd_clock_ns();
    rc = take_claims(queue, reply, max, claims, count, err);
    if (rc < 0) {
        unclaim(queue, claims, count);
        return rc;
    }
    queue->idle = queue->may_wait = *count == 0;
    if (*count == 0) queue->turn = 0; /* an empty queue starves nobody */
    return 0;
}

bool blasd_worker_queue_rests(const struct blasd_worker_queue *queue) {
    return queue->rested && !queue->claim_missed; /* else there may be jobs that it must ask for */
}

void blasd_worker_wait_forget(struct blasd_worker_queue *queue) {
    if (queue->wait_text) redisFreeCommand(queue->wait_text);
    queue->wait_text = NULL;
    queue->wait_ms = 0;
}

/* Keeps the command, a wait, for finish to send behind itself. */
static void keep_wait(struct blasd_worker_queue *queue, int timeout_ms) {
    if (queue->wait_ms == timeout_ms) return;
    blasd_worker_wait_forget(queue);
    queue->wait_len =
        (int)redisFormatCommandArgv(&queue->wait_text, (int)queue->argc, queue->argv, queue->lens);
    if (queue->wait_len > 0) queue->wait_ms = timeout_ms;
}

static int call_wait(struct blasd_worker_queue *queue, int timeout_ms, redisReply **ret,
                     struct blasd_err *err) {
    char key[BLASD_LINK_KEY_MAX], seconds[24];
    blasd_link_key(key, queue->name, ":wake:%s", queue->worker);
    snprintf(seconds, sizeof seconds, "%d.%03d", timeout_ms / 1000, timeout_ms % 1000);
    blasd_worker_command(queue, "BLMPOP");
    blasd_worker_text(queue, seconds);
    blasd_worker_text(queue, "1");
    blasd_worker_text(queue, key);
    blasd_worker_text(queue, "LEFT");
    blasd_worker_text(queue, "COUNT");
    blasd_worker_text(queue, WAKE_MOST);
    keep_wait(queue, timeout_ms);
    queue->spin_ns = queue->busy ? AWAKE_NS : 0;
    return blasd_worker_call(queue, blasd_worker_patience(queue), ret, err);
}

/* Waits, or goes on with the wait that is ahead. */
static int await_jobs(struct blasd_worker_queue *queue, int timeout_ms, struct blasd_err *err) {
    redisReply *reply;
    queue->spin_ns = queue->busy ? AWAKE_NS : 0;
    int rc = queue->ahead ? blasd_worker_collect(queue, &reply, err)
                          : call_wait(queue, timeout_ms, &reply, err);
    if (queue->missed) queue->claim_missed = true; /* jobs may have been in what was missed */
    if (rc == 0 && take_woken(queue, reply)) return 0;
    /* where nothing came it may have gone to an earlier connection of ours, which Redis took for
     * alive: the next claim asks for that, too */
    if (rc == 0 && reply->type == REDIS_REPLY_NIL) queue->claim_missed = true;
    freeReplyObject(reply);
    return rc < 0 ? rc : 0;
}

int blasd_worker_queue_wait(struct blasd_worker_queue *queue, int timeout_ms,
                            struct blasd_err *err) {
    queue->rested = false;
    if (!queue->may_wait || timeout_ms <= 0) return 0;
    blasd_worker_slices_trim(queue);
    /* the connection gives up on Redis after five seconds; waits are shorter than that */
    if (timeout_ms > 3000) timeout_ms = 3000;
    int64_t began_ns = blasd_clock_ns();
    int rc = await_jobs(queue, timeout_ms, err);
    queue->busy = blasd_clock_ns() - began_ns < SHORT_NS;
    return rc;
}

int blasd_worker_queue_nudge(struct blasd_worker_queue *queue, struct blasd_err *err) {
    char key[BLASD_LINK_KEY_MAX];
    redisReply *reply;
    blasd_link_key(key, queue->name, ":wake:%s", queue->worker);
    blasd_worker_command(queue, "RPUSH");
    blasd_worker_text(queue, key);
    blasd_worker_text(queue, "0");
    int rc = blasd_worker_call(queue, blasd_worker_patience(queue), &reply, err);
    freeReplyObject(reply);
    return rc < 0 ? rc : 0;
}
