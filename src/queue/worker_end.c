/* The jobs that a worker has claimed, from begin to finish, and the idleness that may come of it.
 * Read next: worker_queue.c, functions/contract.lua. */
#include "queue/worker_link.h"

#include "base/clock.h"
#include "base/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define TEXT_KEPT (4 * BLASD_MIB)
#define RECORD_MOST (256 * BLASD_MIB)
#define PIECE_HEAD (4 + BLASD_ID_LEN)
#define NUMBER_LEN 20
/* A worker that was slower than this asks anew, for it may want less than it wanted before. */
#define ASK_AGAIN_NS (50 * INT64_C(1000000))

int blasd_worker_queue_begin(struct blasd_worker_queue *queue, const char *const *ids, int count,
                             struct blasd_err *err) {
    redisReply *reply;
    int64_t now = blasd_clock_ns() / 1000 + queue->offset_us;
    for (int i = 0; i < count; i++) blasd_held_begin(&queue->held, ids[i], now);
    blasd_buf_reset(&queue->text);
    if (blasd_held_write_begun(&queue->held, now, &queue->text) < 0)
        return blasd_fail(err, BLASD_E_internal_error, "", "Too many jobs are held");
    blasd_worker_leased(queue, BLASD_LINK_FN("begin"));
    blasd_worker_arg(queue, queue->text.data, queue->text.len);
    if (blasd_worker_post(queue) == 0) return 0;
    int rc = blasd_worker_call(queue, blasd_worker_patience(queue), &reply, err);
    freeReplyObject(reply);
    return rc < 0 ? rc : 0; /* where the lease is lost, finish says so */
}

/* OUTPUTS, see functions/contract.lua, of the length that outputs_len tells; nothing for "0". */
static int write_outputs(struct blasd_buf *text, const struct blasd_ending *ending) {
    char number[BLASD_TEXT_NUMBER], padded[NUMBER_LEN];
    size_t len = blasd_text_number(number, ending->out_bytes);
    if (ending->out_bytes == 0) return 0;
    memset(padded, '0', sizeof padded);
    memcpy(padded + sizeof padded - len, number, len);
    if (blasd_buf_add(text, padded, sizeof padded) < 0) return -1;
    if (!blasd_slice_given(&ending->slice)) return 0;
    return blasd_buf_add(text, " ", 1) < 0 ||
                   blasd_buf_add(text, ending->slice.segment, BLASD_SEGMENT_NAME) < 0
               ? -1
               : 0;
}

static size_t outputs_len(const struct blasd_ending *ending) {
    if (ending->out_bytes == 0) return 0;
    return NUMBER_LEN + (blasd_slice_given(&ending->slice) ? 1 + BLASD_SEGMENT_NAME : 0);
}

/* Writes the piece and the OUTPUTS of each ending into the scratch buffer. */
static int write_pieces(struct blasd_worker_queue *queue, const struct blasd_ending *endings,
                        int count, struct blasd_err *err) {
    struct blasd_buf *text = &queue->text;
    blasd_buf_reset(text);
    for (int i = 0; i < count; i++) {
        size_t len = endings[i].record_len;
        unsigned char head[4] = {(unsigned char)len, (unsigned char)(len >> 8),
                                 (unsigned char)(len >> 16), (unsigned char)(len >> 24)};
        if (strnlen(endings[i].id, BLASD_ID_LEN + 1) != BLASD_ID_LEN || len > RECORD_MOST)
            return blasd_fail(err, BLASD_E_internal_error, "", "A job's ending is malformed");
        if (blasd_buf_add(text, head, sizeof head) < 0 ||
            blasd_buf_add(text, endings[i].id, BLASD_ID_LEN) < 0 ||
            blasd_buf_add(text, endings[i].record, len) < 0 || write_outputs(text, &endings[i]) < 0)
            return blasd_fail(err, BLASD_E_no_space, "", "The records of a batch are too large");
    }
    return 0;
}

/* RESENT, with what the worker would claim now where these endings leave it without jobs. */
static void write_resent(const struct blasd_worker_queue *queue, int count, char *text,
                         size_t size) {
    bool ask = !queue->idle && !queue->finish_missed && !queue->claim_missed &&
               queue->asked_jobs > 0 && queue->held.count <= (size_t)count &&
               blasd_clock_ns() - queue->claimed_ns < ASK_AGAIN_NS;
    if (ask)
        snprintf(text, size, "0 %c %d %" PRIu64 " 0", queue->device_class, queue->asked_jobs,
                 queue->asked_bytes);
    else
        snprintf(text, size, "%c", queue->finish_missed ? '1' : '0');
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
    do {
        const char *at = queue->text.data;
        blasd_worker_leased(queue, BLASD_LINK_FN("finish"));
        write_resent(queue, count, resent, sizeof resent);
        blasd_worker_text(queue, resent);
        for (int i = 0; i < count; i++) {
            blasd_worker_text(queue, endings[i].id);
            blasd_worker_arg(queue, at, PIECE_HEAD + endings[i].record_len);
            at += PIECE_HEAD + endings[i].record_len;
            size_t outputs = outputs_len(&endings[i]);
            blasd_worker_arg(queue, outputs > 0 ? at : "0", outputs > 0 ? outputs : 1);
            at += outputs;
        }
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
