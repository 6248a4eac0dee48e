/* How a worker ends jobs and comes by others: turns, and waits for their replies.
 *
 * A turn carries a number, completions, and what the worker wants. Where its reply is lost it is
 * sent again, with the same number: Redis does nothing twice and gives what it gave. Where there
 * was nothing to give the worker waits at its list, in which the reply comes once there is; where
 * that may be lost, too, the turn is sent again. That is all there is to a lost reply. Where jobs
 * come fast the wait is sent in one write with the turn, and Redis ends it at once if there were
 * jobs.
 *
 * This file must not know what frames and records hold. Read next: worker_wait.c,
 * functions/turn.lua, functions/recovery.lua (serve). */
#include "queue/record_frame.h"
#include "queue/worker_side.h"

#include "base/clock.h"
#include "base/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CLAIM_MOST 8192 /* jobs in one claim: Redis does nothing else meanwhile */
/* A worker that was slower than this asks anew, for it may want less than it wanted before. */
#define ASK_AGAIN_NS (50 * INT64_C(1000000))

#define TEXT_KEPT (4 * BLASD_MIB)
#define RECORD_MOST (256 * BLASD_MIB)
/* bytes of OUTPUTS that one job takes at the most */
#define OUTPUTS_MOST (2 * BLASD_TEXT_NUMBER + 2 + BLASD_SEGMENT_NAME + 1 + BLASD_TEXT_NUMBER)

void blasd_worker_turns_reset(struct blasd_worker_turns *turns) {
    freeReplyObject(turns->next);
    turns->next = NULL;
    turns->next_in = turns->claimed_in = 0;
    turns->answered_on = turns->held_on = 0;
    redisFreeCommand(turns->wait.text);
    turns->wait.text = NULL;
    turns->wait.ms = 0;
    turns->unsure = turns->completion = turns->idle = turns->led = turns->busy = false;
    turns->popped = false;
    turns->jobs = turns->left = 0;
    /* greater than any that another connection has used for this thread under this lease */
    turns->seq = (uint64_t)blasd_clock_ns() / 1000;
    blasd_buf_reset(&turns->refused);
    blasd_buf_reset(&turns->entries);
    blasd_buf_reset(&turns->begun);
}

void blasd_worker_leased(struct blasd_worker_queue *queue, const char *function) {
    blasd_caller_function(&queue->caller, function);
    blasd_caller_text(&queue->caller, queue->lease.worker);
    blasd_caller_text(&queue->caller, queue->lease.epoch);
}

/* Completions, on their way out. */

/* Writes the record frames of all completions, one after the other. */
static int write_record_frames(struct blasd_worker_queue *queue,
                               const struct blasd_completion *completions, int count,
                               struct blasd_err *err) {
    struct blasd_buf *text = &queue->text;
    blasd_buf_reset(text);
    for (int i = 0; i < count; i++) {
        const struct blasd_completion *completion = &completions[i];
        if (strnlen(completion->id, BLASD_ID_LEN + 1) != BLASD_ID_LEN ||
            completion->record_len > RECORD_MOST)
            return blasd_fail(err, BLASD_E_internal_error, "", "A job's completion is malformed");
        if (blasd_record_frame_add(text, completion->id, completion->record,
                                   completion->record_len) < 0)
            return blasd_fail(err, BLASD_E_no_space, "", "The records of a batch are too large");
    }
    size_t kept = 0;
    for (int i = 0; i < count; i++)
        kept += completions[i].kept == NULL ? 0 : strlen(completions[i].kept);
    blasd_buf_reset(&queue->outputs);
    if (blasd_buf_reserve(&queue->outputs, (size_t)count * OUTPUTS_MOST + kept) < 0)
        return blasd_fail(err, BLASD_E_internal_error, "", "Out of memory");
    return 0;
}

/* How many completions from the first one on are of one batch entry, and can be told in one. */
static int of_one_batch_entry(const struct blasd_completion *completions, int count) {
    int jobs = 0;
    while (jobs < count && completions[jobs].kept == NULL &&
           (completions[jobs].out_bytes == 0 || blasd_slice_given(&completions[jobs].slice)) &&
           memcmp(completions[jobs].id, completions->id, BLASD_ID_ENTRY) == 0)
        jobs++;
    return jobs > 0 ? jobs : 1;
}

/* OUTPUTS of `jobs` completions, into room that is there. */
static void write_outputs(struct blasd_buf *out, const struct blasd_completion *completions,
                          int jobs) {
    char *at = out->data + out->len;
    uint64_t bytes = 0;
    for (int i = 0; i < jobs; i++) bytes += completions[i].out_bytes;
    at += blasd_text_number(at, (uint64_t)jobs);
    *at++ = ' ';
    at += blasd_text_number(at, bytes);
    for (int i = 0, run; i < jobs; i += run) { /* neighbours lie in one segment as a rule */
        const char *segment = completions[i].slice.segment;
        for (run = 1; i + run < jobs; run++)
            if (strcmp(completions[i + run].slice.segment, segment) != 0) break;
        if (completions[i].out_bytes == 0 || segment[0] == '\0') continue;
        *at++ = ' ';
        at = (char *)memcpy(at, segment, strlen(segment)) + strlen(segment);
        *at++ = ' ';
        at += blasd_text_number(at, (uint64_t)run);
    }
    if (jobs == 1 && completions->kept != NULL)
        at = (char *)memcpy(at, completions->kept, strlen(completions->kept)) +
             strlen(completions->kept);
    out->len = (size_t)(at - out->data);
}

/* NAME RECORD_FRAMES OUTPUTS of each job that goes alone, and of each batch entry; and of what
 * could not be read. */
static void add_completions(struct blasd_worker_queue *queue,
                            const struct blasd_completion *completions, int count) {
    struct blasd_caller *caller = &queue->caller;
    const struct blasd_buf *refused = &queue->turns.refused;
    const char *record_frames = queue->text.data;
    for (int i = 0, jobs; i < count; i += jobs) {
        size_t len = 0, at = queue->outputs.len;
        jobs = of_one_batch_entry(&completions[i], count - i);
        for (int k = 0; k < jobs; k++)
            len += BLASD_RECORD_FRAME_HEAD + completions[i + k].record_len;
        write_outputs(&queue->outputs, &completions[i], jobs);
        blasd_caller_arg(caller, completions[i].id, jobs > 1 ? BLASD_ID_ENTRY : BLASD_ID_LEN);
        blasd_caller_arg(caller, record_frames, len);
        blasd_caller_arg(caller, queue->outputs.data + at, queue->outputs.len - at);
        record_frames += len;
    }
    for (size_t at = 0, len; at < refused->len; at += 1 + len) {
        const char *name = refused->data + at + 1;
        const char *space = memchr(name, ' ', refused->len - at - 1);
        len = space ? (size_t)(space - name) : refused->len - at - 1;
        blasd_caller_arg(caller, name, len);
        blasd_caller_text(caller, "");
        blasd_caller_text(caller, "1 0");
    }
}

/* The turn. */

void blasd_worker_turns_keep(struct blasd_worker_turns *turns, redisReply *reply) {
    const redisReply *now = reply->element[0];
    turns->idle = false;
    turns->watched = now->type == REDIS_REPLY_STRING && strstr(now->str, " watched") != NULL;
    if (reply->elements == 2) {
        freeReplyObject(reply);
        return;
    }
    freeReplyObject(turns->next);
    turns->next = reply;
    turns->next_in = turns->seq;
    turns->answered_ns = blasd_clock_ns();
}

/* now_us, which is a text. */
static int64_t read_now(const redisReply *r) {
    return r->type == REDIS_REPLY_STRING ? strtoll(r->str, NULL, 10) : 0;
}

/* Sends a turn, or the last one again where its reply is not known. It wants jobs if `wants`. The
 * digits, one for each completion, come into `digits`. Returns as blasd_caller_call does. */
static int turn(struct blasd_worker_queue *queue, const struct blasd_completion *completions,
                int count, bool wants, char *digits, struct blasd_err *err) {
    struct blasd_worker_turns *turns = &queue->turns;
    struct blasd_caller *caller = &queue->caller;
    char seq[24], most[16], room[(1 + BLASD_LANES) * BLASD_TEXT_NUMBER];
    struct blasd_err ignored;
    redisReply *reply;
    if (!turns->unsure && !turns->idle) turns->seq++;
    turns->unsure = true;
    turns->completion = count > 0;
    snprintf(seq, sizeof seq, "%" PRIu64, turns->seq);
    snprintf(most, sizeof most, "%d", wants ? turns->jobs : 0);
    int len = snprintf(room, sizeof room, "%" PRIu64, turns->bytes);
    for (int i = 0; turns->lanes[0] > 0 && i < BLASD_LANES; i++)
        len += snprintf(room + len, sizeof room - (size_t)len, " %" PRIu64, turns->lanes[i]);
    blasd_worker_leased(queue, BLASD_QUEUE_FN("turn"));
    blasd_caller_text(caller, queue->lease.thread);
    blasd_caller_text(caller, seq);
    blasd_caller_arg(caller, &queue->lease.device_class, 1);
    blasd_caller_text(caller, most);
    blasd_caller_text(caller, room);
    bool leads = wants && count > 0 && turns->busy && turns->wait.text != NULL;
    const char led[] = {(char)('0' + leads + 2 * turns->popped), '\0'};
    blasd_caller_text(caller, led);
    add_completions(queue, completions, count);
    if (leads) {
        caller->behind = turns->wait.text;
        caller->behind_len = (size_t)turns->wait.len;
    }
    int rc = blasd_caller_call(caller, &reply, err);
    if (rc == BLASD_CALL_LOST) blasd_worker_turns_reset(turns);
    if (rc != 0) return rc;
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements < 2 || reply->elements % 2 != 0 ||
        reply->element[1]->type != REDIS_REPLY_STRING ||
        (count > 0 && (size_t)reply->element[1]->len != (size_t)count)) {
        freeReplyObject(reply);
        return blasd_caller_odd_reply("turn", err);
    }
    if (count > 0) memcpy(digits, reply->element[1]->str, (size_t)count);
    turns->unsure = turns->popped = false;
    turns->answered_on = caller->connections;
    blasd_buf_reset(&turns->refused);
    int64_t now = read_now(reply->element[0]);
    if (now > 0) queue->lease.offset_us = now - blasd_clock_ns() / 1000;
    blasd_worker_turns_keep(turns, reply);
    turns->idle = wants && turns->next == NULL;
    turns->led = turns->idle && caller->ahead;
    if (!turns->idle && caller->ahead) { /* it is over, too */
        if (blasd_caller_collect(caller, &reply, &ignored) == 0) freeReplyObject(reply);
    }
    return 0;
}

/* Jobs, on their way in. */

/* The next number of "NAME US COST BLOB[ ATTEMPTS[ N]][\tTENANT]", or -1. */
static int64_t next_number(const char **at) {
    char *end;
    if (**at != ' ') return -1;
    int64_t value = strtoll(*at + 1, &end, 10);
    if (end == *at + 1 || value < 0) return -1;
    *at = end;
    return value;
}

/* What follows the name, which is the same for all jobs of a batch entry; how many these are, 1
 * where it does not say, or 0 where it is malformed. */
static int64_t read_head(const char *at, struct blasd_claim *claim) {
    claim->submitted_us = next_number(&at);
    int64_t cost = next_number(&at), blob = next_number(&at);
    int64_t attempts = *at == ' ' ? next_number(&at) : 0, jobs = *at == ' ' ? next_number(&at) : 1;
    if (claim->submitted_us < 0 || cost < 0 || blob < 0 || attempts < 0 || attempts > INT32_MAX ||
        (*at != '\0' && *at != '\t'))
        return 0;
    if (*at == '\t') snprintf(claim->tenant, sizeof claim->tenant, "%s", at + 1);
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

/* The jobs of a batch entry, up to `max`; how many, or 0 where they are not well formed. */
static int read_batch_entry(const redisReply *head, const redisReply *record_frames, int max,
                            struct blasd_claim *claims) {
    struct blasd_claim common = {0};
    const char *at = record_frames->str, *end = at + record_frames->len;
    int count = 0;
    int64_t jobs = read_head(head->str + BLASD_ID_ENTRY, &common);
    while (at < end) {
        if (count == max || end - at < (ptrdiff_t)BLASD_RECORD_FRAME_HEAD) return 0;
        size_t len = blasd_record_frame_len(at);
        if (len > (size_t)(end - at) - BLASD_RECORD_FRAME_HEAD) return 0;
        claims[count] = common;
        if (memcmp(at + 4, head->str, BLASD_ID_ENTRY) != 0 ||
            !set_job(&claims[count++], at + 4, at + BLASD_RECORD_FRAME_HEAD, len))
            return 0;
        at += BLASD_RECORD_FRAME_HEAD + len;
    }
    return count == jobs ? count : 0;
}

/* A job, or all of a batch entry; how many, or 0. */
static int read_claim(const redisReply *head, const redisReply *frame, int max,
                      struct blasd_claim *claims) {
    if (frame->type != REDIS_REPLY_STRING || max == 0) return 0;
    if ((size_t)head->len > BLASD_ID_ENTRY && head->str[BLASD_ID_ENTRY] == ' ')
        return read_batch_entry(head, frame, max, claims);
    if ((size_t)head->len <= BLASD_ID_LEN) return 0;
    *claims = (struct blasd_claim){0};
    return read_head(head->str + BLASD_ID_LEN, claims) == 1 &&
           set_job(claims, head->str, frame->str, (size_t)frame->len);
}

/* Reads the jobs; what could not be read goes back with the next turn. */
static int take_claims(struct blasd_worker_queue *queue, const redisReply *reply, int max,
                       struct blasd_claim *claims, int *count, struct blasd_err *err) {
    struct blasd_worker_turns *turns = &queue->turns;
    int64_t now = read_now(reply->element[0]);
    int64_t here = blasd_clock_ns() / 1000 + queue->lease.offset_us; /* it may have lain for long */
    if (turns->left == 0) blasd_buf_reset(&turns->entries);
    for (size_t i = 2; i + 1 < reply->elements; i += 2) {
        const redisReply *head = reply->element[i];
        if (head->type != REDIS_REPLY_STRING) return blasd_caller_odd_reply("turn", err);
        int len = (int)strcspn(head->str, " ");
        int jobs = read_claim(head, reply->element[i + 1], max - *count, &claims[*count]);
        struct blasd_buf *names = jobs == 0 ? &turns->refused : jobs > 1 ? &turns->entries : NULL;
        if (names && blasd_buf_printf(names, " %.*s", len, head->str) < 0)
            return blasd_fail(err, BLASD_E_internal_error, "", "Out of memory");
        for (int k = 0; k < jobs; k++) claims[*count + k].claimed_us = now > here ? now : here;
        *count += jobs;
    }
    turns->left += *count;
    return 0;
}

void blasd_worker_queue_demand(struct blasd_worker_queue *queue, int max, uint64_t max_bytes) {
    struct blasd_worker_turns *turns = &queue->turns;
    turns->jobs = max < CLAIM_MOST ? max : CLAIM_MOST;
    turns->bytes = max_bytes;
    if (turns->jobs > turns->jobs_most) turns->jobs_most = turns->jobs;
}

void blasd_worker_queue_lanes(struct blasd_worker_queue *queue, const uint64_t us[BLASD_LANES]) {
    memcpy(queue->turns.lanes, us, sizeof queue->turns.lanes);
}

int blasd_worker_queue_claim(struct blasd_worker_queue *queue, int max, uint64_t max_bytes,
                             struct blasd_claim *claims, int *count, bool *lost,
                             struct blasd_err *err) {
    struct blasd_worker_turns *turns = &queue->turns;
    *count = 0;
    *lost = false;
    blasd_worker_queue_demand(queue, max, max_bytes);
    if (!turns->next) {
        int rc = turn(queue, NULL, 0, true, NULL, err);
        *lost = rc == BLASD_CALL_LOST;
        if (rc != 0) return rc < 0 ? rc : 0;
    }
    freeReplyObject(turns->claimed);
    turns->claimed = turns->next;
    turns->claimed_in = turns->next ? turns->next_in : 0;
    turns->next = NULL;
    if (turns->claimed == NULL) return 0;
    return take_claims(queue, turns->claimed, turns->jobs_most, claims, count, err);
}

bool blasd_worker_queue_moved(const struct blasd_worker_queue *queue) {
    return queue->turns.held_on != queue->caller.connections;
}

int blasd_worker_queue_holds(struct blasd_worker_queue *queue, const char (*ids)[BLASD_ID_LEN + 1],
                             int count, bool *lost, struct blasd_err *err) {
    struct blasd_caller *caller = &queue->caller;
    uint64_t connection = caller->connections; /* where another is made meanwhile: once more */
    const struct blasd_worker_turns *turns = &queue->turns;
    /* an idle worker may have been handed jobs by now, in its list */
    uint64_t turn = turns->claimed_in != 0 ? turns->claimed_in : turns->idle ? turns->seq : 0;
    char seq[24];
    redisReply *reply;
    snprintf(seq, sizeof seq, "%" PRIu64, turn);
    blasd_worker_leased(queue, BLASD_QUEUE_FN("lease"));
    blasd_caller_text(&queue->caller, "holds");
    blasd_caller_text(caller, seq);
    for (int i = 0; i < count; i++) blasd_caller_text(caller, ids[i]);
    int rc = blasd_caller_call(caller, &reply, err);
    freeReplyObject(reply);
    *lost = rc == BLASD_CALL_LOST;
    if (rc == 0) queue->turns.held_on = connection;
    return rc < 0 ? rc : 0;
}

bool blasd_worker_queue_is_idle(const struct blasd_worker_queue *queue) {
    return queue->turns.idle && !queue->turns.unsure;
}

/* A line of what begins now: "US NAME ...", of a batch entry of the last claim its name. */
static int write_begun(struct blasd_worker_queue *queue, const char *const *ids, int count,
                       struct blasd_buf *out) {
    const struct blasd_buf *entries = &queue->turns.entries;
    int64_t now = blasd_clock_ns() / 1000 + queue->lease.offset_us;
    const char *entry = NULL; /* the one that the job before is of */
    if (blasd_buf_printf(out, "%" PRId64, now) < 0) return -1;
    for (int i = 0; i < count; i++) {
        if (entry && memcmp(entry, ids[i], BLASD_ID_ENTRY) == 0) continue;
        entry = entries->len ? memmem(entries->data, entries->len, ids[i], BLASD_ID_ENTRY) : NULL;
        if (blasd_buf_add(out, " ", 1) < 0 ||
            blasd_buf_add(out, ids[i], entry ? BLASD_ID_ENTRY : BLASD_ID_LEN) < 0)
            return -1;
    }
    return 0;
}

int blasd_worker_queue_begin(struct blasd_worker_queue *queue, const char *const *ids, int count,
                             struct blasd_err *err) {
    struct blasd_buf *text = &queue->text, *line = &queue->turns.begun;
    char key[BLASD_LINK_KEY_MAX], field[3] = {'@', queue->lease.thread[0]};
    size_t head, len;
    blasd_buf_reset(text);
    if (blasd_buf_printf(text, "%s\n", queue->lease.epoch) < 0) goto no_memory;
    head = text->len;
    if (write_begun(queue, ids, count, text) < 0) goto no_memory;
    len = text->len - head;
    /* the batch before may not have ended; the one before that has */
    if (line->len > 0 &&
        (blasd_buf_add(text, "\n", 1) < 0 || blasd_buf_add(text, line->data, line->len) < 0))
        goto no_memory;
    blasd_buf_reset(line);
    if (blasd_buf_add(line, text->data + head, len) < 0) goto no_memory;
    if (queue->turns.watched) {
        blasd_worker_leased(queue, BLASD_QUEUE_FN("note"));
        blasd_caller_text(&queue->caller, "begin");
        blasd_caller_text(&queue->caller, queue->lease.thread);
    } else {
        blasd_link_key(key, queue->name, ":claims:%s", queue->lease.worker);
        blasd_caller_command(&queue->caller, "HSET");
        blasd_caller_text(&queue->caller, key);
        blasd_caller_text(&queue->caller, field);
    }
    blasd_caller_arg(&queue->caller, text->data, text->len);
    return blasd_caller_post(&queue->caller, err); /* where the lease is lost, finish says so */
no_memory:
    return blasd_fail(err, BLASD_E_internal_error, "", "Too many jobs begin at once");
}

void blasd_worker_queue_let_go(struct blasd_worker_queue *queue, int count) {
    queue->turns.left -= count;
}

/* A turn that is open, and not that of these completions, is closed: it wants no more jobs, and
 * what it was given is kept for claim. */
static int close_turn(struct blasd_worker_queue *queue, struct blasd_err *err) {
    struct blasd_worker_turns *turns = &queue->turns;
    if (!turns->idle && !(turns->unsure && !turns->completion)) return 0;
    turns->unsure = true;
    return turn(queue, NULL, 0, false, NULL, err);
}

int blasd_worker_queue_finish(struct blasd_worker_queue *queue,
                              struct blasd_completion *completions, int count, bool *lost,
                              struct blasd_err *err) {
    struct blasd_worker_turns *turns = &queue->turns;
    bool wants;
    int rc;
    *lost = false;
    for (int i = 0; i < count; i++) completions[i].accepted = false;
    if (count <= 0) return 0;
    rc = close_turn(queue, err);
    if (rc == 0) rc = write_record_frames(queue, completions, count, err);
    if (rc < 0) return rc;
    char *digits = malloc((size_t)count);
    if (!digits) return blasd_fail(err, BLASD_E_internal_error, "", "Out of memory");
    wants = queue->lease.thread[0] == '0' && turns->jobs > 0 && !turns->next && turns->left > 0 &&
            turns->left <= count && blasd_clock_ns() - turns->answered_ns < ASK_AGAIN_NS;
    if (rc == 0) rc = turn(queue, completions, count, wants, digits, err);
    if (rc == 0) {
        for (int i = 0; i < count; i++) completions[i].accepted = digits[i] == '1';
        turns->left = turns->left > count ? turns->left - count : 0;
    }
    free(digits);
    if (queue->text.cap > TEXT_KEPT) blasd_buf_release(&queue->text);
    *lost = rc == BLASD_CALL_LOST;
    return rc < 0 ? rc : 0;
}

int blasd_worker_queue_progress(struct blasd_worker_queue *queue, const char *const *ids, int count,
                                double progress, int64_t remaining_us, bool *wanted,
                                struct blasd_err *err) {
    char text[64];
    int len;
    redisReply *reply;
    *wanted = false;
    if (!(progress >= 0)) progress = 0;
    if (progress > 1) progress = 1;
    len = snprintf(text, sizeof text, "%.6g", progress);
    if (remaining_us >= 0)
        snprintf(text + len, sizeof text - (size_t)len, " %" PRId64, remaining_us);
    blasd_worker_leased(queue, BLASD_QUEUE_FN("note"));
    blasd_caller_text(&queue->caller, "progress");
    blasd_caller_text(&queue->caller, text);
    for (int i = 0; i < count; i++) blasd_caller_text(&queue->caller, ids[i]);
    int rc = blasd_caller_call(&queue->caller, &reply, err);
    if (rc == 0) *wanted = reply->type == REDIS_REPLY_STRING && strchr(reply->str, '1') != NULL;
    freeReplyObject(reply);
    return rc < 0 ? rc : 0;
}
