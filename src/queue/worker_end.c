/* The jobs that a worker has claimed, from begin to finish, and the idleness that may come of it.
 * Read next: worker_queue.c, functions/contract.lua. */
#include "queue/piece.h"
#include "queue/worker_link.h"

#include "base/clock.h"
#include "base/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define TEXT_KEPT (4 * BLASD_MIB)
#define RECORD_MOST (256 * BLASD_MIB)
/* bytes of OUTPUTS that one job takes at the most */
#define OUTPUTS_MOST (BLASD_TEXT_NUMBER + 1 + BLASD_SEGMENT_NAME + 1 + BLASD_TEXT_NUMBER)
/* A worker that was slower than this asks anew, for it may want less than it wanted before. */
#define ASK_AGAIN_NS (50 * INT64_C(1000000))

/* What this connection has begun and not ended; of one beside the one that claims, these jobs. */
static int write_begun(struct blasd_worker_queue *queue, const char *const *ids, int count) {
    int64_t now = blasd_clock_ns() / 1000 + queue->offset_us;
    if (blasd_buf_puts(&queue->text, queue->epoch) < 0 || blasd_buf_add(&queue->text, "\n", 1) < 0)
        return -1;
    if (queue->part[0] == '0') {
        for (int i = 0; i < count; i++) blasd_held_begin(&queue->held, ids[i], now);
        return blasd_held_write_begun(&queue->held, now, &queue->text);
    }
    if (blasd_buf_printf(&queue->text, "%" PRId64, now) < 0) return -1;
    for (int i = 0; i < count; i++)
        if (blasd_buf_add(&queue->text, " ", 1) < 0 || blasd_buf_puts(&queue->text, ids[i]) < 0)
            return -1;
    return 0;
}

int blasd_worker_queue_begin(struct blasd_worker_queue *queue, const char *const *ids, int count,
                             struct blasd_err *err) {
    char key[BLASD_LINK_KEY_MAX];
    redisReply *reply;
    blasd_buf_reset(&queue->text);
    if (write_begun(queue, ids, count) < 0)
        return blasd_fail(err, BLASD_E_internal_error, "", "Too many jobs are held");
    blasd_link_key(key, queue->name, ":begun:%s", queue->worker);
    blasd_worker_command(queue, "HSET");
    blasd_worker_text(queue, key);
    blasd_worker_text(queue, queue->part);
    blasd_worker_arg(queue, queue->text.data, queue->text.len);
    if (blasd_worker_post(queue) == 0) return 0;
    int rc = blasd_worker_call(queue, blasd_worker_patience(queue), &reply, err);
    freeReplyObject(reply);
    return rc < 0 ? rc : 0; /* where the lease is lost, finish says so */
}

/* Writes the pieces of all endings, one after the other. */
static int write_pieces(struct blasd_worker_queue *queue, const struct blasd_ending *endings,
                        int count, struct blasd_err *err) {
    struct blasd_buf *text = &queue->text;
    blasd_buf_reset(text);
    for (int i = 0; i < count; i++) {
        const struct blasd_ending *ending = &endings[i];
        if (strnlen(ending->id, BLASD_ID_LEN + 1) != BLASD_ID_LEN ||
            ending->record_len > RECORD_MOST)
            return blasd_fail(err, BLASD_E_internal_error, "", "A job's ending is malformed");
        if (blasd_piece_add(text, ending->id, ending->record, ending->record_len) < 0)
            return blasd_fail(err, BLASD_E_no_space, "", "The records of a batch are too large");
    }
    return 0;
}

/* How many endings from the first one on are those of a whole packet; 1: it goes alone. */
static int whole_packet(const struct blasd_worker_queue *queue, const struct blasd_ending *endings,
                        int count) {
    int jobs = blasd_held_packet(&queue->held, endings->id);
    if (jobs == 0 || jobs > count) return 1;
    for (int i = 0; i < jobs; i++) {
        bool in_blob = endings[i].out_bytes > 0 && !blasd_slice_given(&endings[i].slice);
        if (in_blob || memcmp(endings[i].id, endings->id, BLASD_ID_PACKET) != 0) return 1;
    }
    return jobs;
}

/* OUTPUTS of `jobs` endings, into room that is there. */
static void write_outputs(struct blasd_buf *out, const struct blasd_ending *endings, int jobs) {
    char *at = out->data + out->len;
    uint64_t bytes = 0;
    for (int i = 0; i < jobs; i++) bytes += endings[i].out_bytes;
    at += blasd_text_number(at, bytes);
    for (int i = 0, run; i < jobs; i += run) { /* neighbours lie in one segment as a rule */
        const char *segment = endings[i].slice.segment;
        for (run = 1; i + run < jobs; run++)
            if (strcmp(endings[i + run].slice.segment, segment) != 0) break;
        if (endings[i].out_bytes == 0 || segment[0] == '\0') continue;
        *at++ = ' ';
        at = (char *)memcpy(at, segment, strlen(segment)) + strlen(segment);
        *at++ = ' ';
        at += blasd_text_number(at, (uint64_t)run);
    }
    out->len = (size_t)(at - out->data);
}

/* NAME PIECES OUTPUTS of each job that goes alone, and of each packet that ends as a whole. */
static void add_endings(struct blasd_worker_queue *queue, const struct blasd_ending *endings,
                        int count) {
    const char *pieces = queue->text.data;
    for (int i = 0, jobs; i < count; i += jobs) {
        size_t len = 0, at = queue->outputs.len;
        jobs = whole_packet(queue, &endings[i], count - i);
        for (int k = 0; k < jobs; k++) len += BLASD_PIECE_HEAD + endings[i + k].record_len;
        write_outputs(&queue->outputs, &endings[i], jobs);
        blasd_worker_arg(queue, endings[i].id, jobs > 1 ? BLASD_ID_PACKET : BLASD_ID_LEN);
        blasd_worker_arg(queue, pieces, len);
        blasd_worker_arg(queue, queue->outputs.data + at, queue->outputs.len - at);
        pieces += len;
    }
}

/* Whether these endings leave it without jobs, and it would claim what it claimed last. */
static bool asks_for_more(const struct blasd_worker_queue *queue, int count) {
    return !queue->idle && !queue->finish_missed && !queue->claim_missed && queue->asked_jobs > 0 &&
           queue->held.jobs <= (size_t)count && blasd_clock_ns() - queue->claimed_ns < ASK_AGAIN_NS;
}

/* RESENT. Where jobs come fast the wait for them follows at once, which saves both sides a trip. */
static void add_resent(struct blasd_worker_queue *queue, int count, char *text, size_t size) {
    if (asks_for_more(queue, count)) {
        queue->leads = queue->busy && queue->wait_ms > 0;
        snprintf(text, size, "%c %c %d %" PRIu64 " 0", queue->leads ? '2' : '0',
                 queue->device_class, queue->asked_jobs, queue->asked_bytes);
    } else {
        snprintf(text, size, "%c", queue->finish_missed ? '1' : '0');
    }
    blasd_worker_text(queue, text);
}

/* Where finish is to be sent again, what it may have done besides is found out by the next claim:
 * this worker may be idle, and even have been handed jobs. */
static void missed_finish(struct blasd_worker_queue *queue) {
    queue->finish_missed = queue->claim_missed = queue->idle = true;
}

/* What finish replied: a digit for each ending, and "i" where the worker is idle now. */
static int read_finished(struct blasd_worker_queue *queue, const redisReply *reply,
                         struct blasd_ending *endings, int count, struct blasd_err *err) {
    size_t len = (size_t)count;
    bool idle = reply->type == REDIS_REPLY_STRING && (size_t)reply->len == len + 1 &&
                reply->str[len] == 'i';
    if (reply->type != REDIS_REPLY_STRING || (!idle && (size_t)reply->len != len))
        return blasd_worker_odd_reply("finish", err);
    for (int i = 0; i < count; i++) {
        endings[i].accepted = reply->str[i] == '1';
        blasd_held_remove(&queue->held, endings[i].id);
    }
    if (!idle) return 0;
    queue->idle = queue->may_wait = true;
    queue->rested = queue->held.count == 0; /* else the next claim tells what it holds */
    queue->turn = 0;
    return 0;
}

int blasd_worker_queue_finish(struct blasd_worker_queue *queue, struct blasd_ending *endings,
                              int count, bool *lost, struct blasd_err *err) {
    char resent[96];
    redisReply *reply = NULL;
    int rc = 0;
    *lost = false;
    for (int i = 0; i < count; i++) endings[i].accepted = false;
    if (count <= 0) return 0;
    rc = write_pieces(queue, endings, count, err);
    if (rc < 0) return rc;
    blasd_buf_reset(&queue->outputs);
    if (blasd_buf_reserve(&queue->outputs, (size_t)count * OUTPUTS_MOST) < 0)
        return blasd_fail(err, BLASD_E_internal_error, "", "Out of memory");
    do {
        blasd_worker_leased(queue, BLASD_LINK_FN("finish"));
        add_resent(queue, count, resent, sizeof resent);
        blasd_buf_reset(&queue->outputs);
        add_endings(queue, endings, count);
        queue->once = !queue->finish_missed; /* sent again it must say so */
        rc = blasd_worker_call(queue, blasd_worker_patience(queue), &reply, err);
        if (queue->missed) missed_finish(queue);
    } while (rc == -(int)BLASD_E_queue_unavailable && queue->missed && queue->once);
    if (queue->text.cap > TEXT_KEPT) blasd_buf_release(&queue->text);
    if (rc < 0) return rc;
    queue->finish_missed = false;
    if (rc == BLASD_WORKER_LOST) {
        *lost = true;
        blasd_worker_forget(queue);
        return 0;
    }
    rc = read_finished(queue, reply, endings, count, err);
    freeReplyObject(reply);
    return rc;
}

void blasd_worker_queue_ended(struct blasd_worker_queue *queue, const char *id) {
    blasd_held_remove(&queue->held, id);
}

int blasd_worker_queue_progress(struct blasd_worker_queue *queue, const char *const *ids, int count,
                                double progress, bool *wanted, struct blasd_err *err) {
    char text[32];
    redisReply *reply;
    *wanted = false;
    if (!(progress >= 0)) progress = 0;
    if (progress > 1) progress = 1;
    snprintf(text, sizeof text, "%.6g", progress);
    blasd_worker_leased(queue, BLASD_LINK_FN("progress"));
    blasd_worker_text(queue, text);
    for (int i = 0; i < count; i++) blasd_worker_text(queue, ids[i]);
    int rc = blasd_worker_call(queue, blasd_worker_patience(queue), &reply, err);
    if (rc == 0) *wanted = reply->type == REDIS_REPLY_STRING && strchr(reply->str, '1') != NULL;
    freeReplyObject(reply);
    return rc < 0 ? rc : 0;
}
