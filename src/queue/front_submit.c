/* Submitting: the jobs of one turn of the loop go to Redis in one call.
 *
 * The function `submit` knows a job it has seen by its id, so a batch whose answer was lost with
 * the connection is simply sent again: nothing runs twice, and nothing that was acknowledged is
 * lost. Where many jobs come in one turn they go in several calls, each written at once: Redis and
 * the worker are at the first ones while this process still reads the last. A job whose inputs are
 * a blob of kind redis goes alone, once its blob is there. Read next: front_read.c. */
#include "queue/front.h"

#include "base/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BATCH_JOBS 64 /* in one call; docs/performance.md says what other numbers gave */
#define BATCH_BYTES BLASD_MIB
#define SUBMIT_TRIES 5

struct item {
    blasd_submitted_fn done;
    void *arg;
    size_t options_at; /* where its OPTIONS stand in the command */
    size_t options_len;
    int64_t deadline_ms;
    uint64_t serial; /* of the watch; 0: none */
    bool watch;
    struct blasd_slice slice; /* of its inputs; pinned until Redis has answered */
    char id[BLASD_ID_LEN + 1];
};

struct front_submit {
    struct front_call call;
    struct item *items; /* owned */
    int count, cap;
    bool resent;
};

static void queued(struct blasd_front_queue *queue, const struct item *item, const char *id,
                   bool repeated, const redisReply *record) {
    bool other = strcmp(item->id, id) != 0;
    uint64_t serial = item->serial;
    if (other) {
        front_watch_settle(queue, item->id, item->serial, false);
        serial = item->watch ? front_watch_begin(queue, id) : 0;
    }
    if (item->deadline_ms > 0 && !repeated) front_deadline_in(queue, item->deadline_ms);
    blasd_segments_unpin(queue->segments, &item->slice, true);
    item->done(item->arg, NULL, id, repeated);
    front_watch_settle(queue, id, serial, true);
    if (serial == 0) return;
    if (record != NULL)
        front_watch_ended(queue, id, record->str, record->len);
    else if (other) /* it may have ended, and been published, before it was watched here */
        front_watch_ask(queue, id);
}

static void refused(struct blasd_front_queue *queue, const struct item *item,
                    const struct blasd_err *err) {
    blasd_segments_unpin(queue->segments, &item->slice, err->code != BLASD_E_queue_unavailable);
    item->done(item->arg, err, item->id, false);
    front_watch_settle(queue, item->id, item->serial, false);
}

static void refused_code(struct blasd_front_queue *queue, const struct item *item, long long code) {
    const struct blasd_queue_view *view = &queue->view;
    struct blasd_err err;
    if (code == 1)
        blasd_fail(&err, BLASD_E_queue_full, "",
                   "the queue holds %" PRIu64 " jobs of at most %" PRIu64 " (queue_jobs) with "
                   "%" PRIu64 " bytes of at most %" PRIu64 " (queue_bytes)",
                   view->jobs, view->jobs_limit, view->bytes, view->bytes_limit);
    else if (code == 2)
        blasd_fail(&err, BLASD_E_idempotency_conflict, "Idempotency-Key",
                   "the key was used before, for a request that differs from this one");
    else if (code == 3)
        blasd_fail(&err, BLASD_E_inputs_lost, "", "the tensors were lost on their way");
    else
        blasd_fail(&err, BLASD_E_internal_error, "", "the queue's answer %lld is not known", code);
    refused(queue, item, &err);
}

static void item_reply(struct blasd_front_queue *queue, const struct item *item,
                       const redisReply *r) {
    if (r->type == REDIS_REPLY_INTEGER && r->integer == 0) {
        queued(queue, item, item->id, false, NULL);
    } else if (r->type == REDIS_REPLY_INTEGER) {
        refused_code(queue, item, r->integer);
    } else if (r->type == REDIS_REPLY_ARRAY && r->elements == 2 &&
               r->element[0]->type == REDIS_REPLY_STRING && blasd_id_valid(r->element[0]->str) &&
               r->element[1]->type == REDIS_REPLY_STRING) {
        char id[BLASD_ID_LEN + 1];
        memcpy(id, r->element[0]->str, sizeof id);
        queued(queue, item, id, strcmp(id, item->id) != 0,
               r->element[1]->len > 0 ? r->element[1] : NULL);
    } else {
        refused_code(queue, item, -1);
    }
}

static void submit_reply(struct front_call *call, const redisReply *reply,
                         const struct blasd_err *err) {
    struct front_submit *submit = (struct front_submit *)(void *)call;
    struct blasd_front_queue *queue = call->queue;
    bool whole = reply != NULL && reply->type == REDIS_REPLY_ARRAY &&
                 reply->elements == (size_t)submit->count + 3 &&
                 reply->element[1]->type == REDIS_REPLY_INTEGER &&
                 reply->element[2]->type == REDIS_REPLY_INTEGER;
    if (whole) {
        queue->view.jobs = (uint64_t)reply->element[1]->integer;
        queue->view.bytes = (uint64_t)reply->element[2]->integer;
    }
    for (int i = 0; i < submit->count; i++) {
        if (whole)
            item_reply(queue, &submit->items[i], reply->element[i + 3]);
        else if (err != NULL)
            refused(queue, &submit->items[i], err);
        else
            refused_code(queue, &submit->items[i], -1);
    }
}

static void submit_release(struct front_call *call) {
    free(((struct front_submit *)(void *)call)->items);
}

/* Says of each job that it may be there already. */
static void submit_resend(struct front_call *call) {
    struct front_submit *submit = (struct front_submit *)(void *)call;
    const struct blasd_buf *old = &call->command;
    struct blasd_buf fresh;
    size_t at = 0;
    if (submit->resent) return;
    submit->resent = true;
    blasd_buf_init(&fresh, old->max);
    call->broken = blasd_buf_reserve(&fresh, old->len + 8 * (size_t)submit->count) != 0;
    for (int i = 0; i < submit->count && !call->broken; i++) {
        const struct item *item = &submit->items[i];
        const char *gap = item->options_len > 0 ? " " : "";
        size_t len = 3 + strlen(gap) + item->options_len;
        call->broken = blasd_buf_add(&fresh, old->data + at, item->options_at - at) != 0 ||
                       blasd_buf_printf(&fresh, "$%zu\r\nr=1%s", len, gap) != 0;
        at = item->options_at + (size_t)snprintf(NULL, 0, "$%zu\r\n", item->options_len);
    }
    if (!call->broken) call->broken = blasd_buf_add(&fresh, old->data + at, old->len - at) != 0;
    if (call->broken) {
        blasd_buf_release(&fresh);
        return;
    }
    blasd_buf_release(&call->command);
    call->command = fresh;
}

static struct front_submit *submit_new(struct blasd_front_queue *queue) {
    struct front_submit *submit = front_call_new(queue, sizeof *submit, submit_reply);
    if (submit == NULL) return NULL;
    submit->call.release = submit_release;
    submit->call.resend = submit_resend;
    submit->call.tries_left = SUBMIT_TRIES;
    front_call_function(&submit->call, "submit");
    return submit;
}

static struct item *item_new(struct front_submit *submit) {
    if (submit->count == submit->cap) {
        int cap = submit->cap == 0 ? 8 : submit->cap * 2;
        struct item *items = realloc(submit->items, (size_t)cap * sizeof *items);
        if (items == NULL) return NULL;
        submit->items = items;
        submit->cap = cap;
    }
    memset(&submit->items[submit->count], 0, sizeof *submit->items);
    return &submit->items[submit->count++];
}

/* The class of the stream that the job goes to. */
static enum blasd_device_class class_of(const struct blasd_submission *s) {
    return s->job->device == BLASD_DEVICE_ANY ? s->chosen : s->job->device;
}

/* OPTIONS, see functions/contract.lua. */
static void add_options(struct front_call *call, struct item *item,
                        const struct blasd_submission *s) {
    char text[96];
    const char *gap = "", *key = s->idempotency_key;
    int len = 0;
    text[0] = '\0';
    if (s->job->deadline_ms > 0) {
        len = snprintf(text, sizeof text, "d=%" PRId64, s->job->deadline_ms);
        gap = " ";
    }
    if (s->job->payload_in_blob) {
        bool redis = blasd_store_kind(call->queue->store) == BLASD_STORE_REDIS;
        len += snprintf(text + len, sizeof text - (size_t)len, "%s%s", gap, redis ? "B=1" : "b=1");
        gap = " ";
    }
    if (key != NULL)
        len += snprintf(text + len, sizeof text - (size_t)len, "%sk=%016" PRIx64 ":", gap,
                        s->fingerprint);
    item->options_at = call->command.len;
    item->options_len = (size_t)len + (key == NULL ? 0 : strlen(key));
    front_call_arg2(call, text, (size_t)len, key == NULL ? "" : key, key == NULL ? 0 : strlen(key));
}

static void add_job(struct front_submit *submit, struct item *item,
                    const struct blasd_principal *principal, const struct blasd_submission *s) {
    struct front_call *call = &submit->call;
    struct blasd_front_queue *queue = call->queue;
    char note[2 + BLASD_SEGMENT_NAME + FRONT_CHANNEL_MAX + BLASD_NAME_MAX +
              sizeof principal->tenant];
    const char *segment = s->job->slice.segment;
    size_t len = blasd_text_join(note, sizeof note, segment[0] == '\0' ? "" : " ", segment, "\t");
    len += blasd_text_join(note + len, sizeof note - len, s->watch ? queue->channel : "", "\t",
                           s->job->op->name);
    len += blasd_text_join(note + len, sizeof note - len, "\t", principal->tenant, NULL);
    item->slice = s->job->slice;
    memcpy(item->id, s->job->id, sizeof item->id);
    item->deadline_ms = s->job->deadline_ms;
    item->watch = s->watch;
    front_call_arg(call, item->id, BLASD_ID_LEN);
    front_call_arg(call, s->frame, s->frame_len);
    front_call_number(call, 1 + 3 * (uint64_t)class_of(s) + (uint64_t)s->job->priority);
    front_call_number(call, s->cost_bytes);
    add_options(call, item, s);
    front_call_arg(call, note, (size_t)len);
    if (s->watch) item->serial = front_watch_begin(queue, item->id);
}

static bool nobody_serves(const struct blasd_front_queue *queue, const struct blasd_job *job,
                          struct blasd_err *err) {
    if (job->device == BLASD_DEVICE_ANY || !queue->view_known || !queue->view.available ||
        queue->view.workers_of[job->device] > 0)
        return false;
    blasd_fail(err, BLASD_E_no_such_device, "device", "no worker of the class %s is running now",
               blasd_device_class_names[job->device]);
    return true;
}

void blasd_front_queue_submit(struct blasd_front_queue *queue,
                              const struct blasd_principal *principal,
                              const struct blasd_submission *submission, blasd_submitted_fn done,
                              void *arg) {
    bool upload = submission->blob != NULL && submission->job->payload_in_blob &&
                  blasd_store_kind(queue->store) == BLASD_STORE_REDIS;
    struct front_submit *submit = upload ? NULL : queue->batch;
    struct item *item;
    struct blasd_err err;
    bool nobody = nobody_serves(queue, submission->job, &err);
    if (submit != NULL && (nobody || submit->count >= BATCH_JOBS ||
                           submit->call.command.len + submission->frame_len > BATCH_BYTES)) {
        front_batch_close(queue);
        submit = NULL;
    }
    if (submit == NULL) submit = submit_new(queue);
    item = submit == NULL ? NULL : item_new(submit);
    if (item == NULL) {
        if (submit != NULL && submit != queue->batch) front_call_free(&submit->call);
        blasd_fail(&err, BLASD_E_queue_unavailable, "", "the front end is out of memory");
        done(arg, &err, submission->job->id, false);
        return;
    }
    item->done = done;
    item->arg = arg;
    if (nobody) {
        memcpy(item->id, submission->job->id, sizeof item->id);
        front_call_answer_later(&submit->call, &err);
        return;
    }
    add_job(submit, item, principal, submission);
    if (upload) {
        front_blob_put(queue, submission->blob, &submit->call);
        return;
    }
    queue->batch = submit;
    if (submit->count < BATCH_JOBS) return;
    front_batch_close(queue);
    if (!queue->in_flush) front_calls_pump(queue);
}

void front_batch_close(struct blasd_front_queue *queue) {
    struct front_submit *submit = queue->batch;
    queue->batch = NULL;
    if (submit != NULL) front_call_send(&submit->call);
}

void front_batch_free(struct blasd_front_queue *queue) {
    if (queue->batch != NULL) front_call_free(&queue->batch->call);
    queue->batch = NULL;
}
