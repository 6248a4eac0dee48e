/* Submitting: the jobs of one turn of the loop go to Redis in one call.
 *
 * Each call has a number, by which the function `submit` knows one that it has seen: where the
 * answer was lost with the connection it is sent again as it was, and answered as it was. Where
 * many jobs come in one turn they go in several calls, each written at once: Redis and the worker
 * are at the first ones while this process still reads the last. A job whose inputs are a blob of
 * kind redis goes alone, once its blob is there. Read next: front_read.c. */
#include "queue/front.h"

#include "base/text.h"
#include "queue/webhooks.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BATCH_JOBS 128 /* in one call; bench/lab/small-jobs.md */
#define BATCH_BYTES BLASD_MIB
#define SUBMIT_TRIES 5

struct item {
    blasd_submitted_fn done;
    void *arg;
    int batch_entry; /* its place among those in the making, or -1 */
    int entry;       /* of the call, once it is complete */
    int nth;         /* job of that entry */
    int64_t deadline_ms;
    struct blasd_waiter *waiter; /* borrowed; NULL: nobody waits */
    struct blasd_slice slice;    /* of its inputs; pinned until Redis has answered */
    struct blasd_principal who;
    char id[BLASD_ID_LEN + 1];
};

struct front_submit {
    struct front_call call;
    struct item *items; /* owned */
    int count, cap;
    int entries; /* jobs that go alone, and batch entries */
};

static void queued(struct blasd_front_queue *queue, const struct item *item, const char *id,
                   bool repeated, const redisReply *record) {
    bool other = strcmp(item->id, id) != 0;
    bool waits = item->waiter != NULL && item->waiter->waits;
    struct blasd_early early = front_wait_settle(queue, item->waiter, !other);
    if (other && waits) {
        front_wait_begin(queue, item->who.tenant, item->waiter, id);
        (void)front_wait_settle(queue, item->waiter, true);
    }
    if (item->deadline_ms > 0 && !repeated) front_deadline_in(queue, item->deadline_ms);
    blasd_segments_unpin(queue->slices.segments, &item->slice, true);
    item->done(item->arg, NULL, id, repeated);
    front_wait_early(queue, id, &early);
    if (!waits) return;
    if (record != NULL)
        front_wait_ended(queue, item->who.tenant, id, record->str, record->len);
    else if (other) /* it may have ended, and been published, before it was waited for here */
        front_wait_ask(queue, item->who.tenant, id);
}

static void refused(struct blasd_front_queue *queue, const struct item *item,
                    const struct blasd_err *err) {
    blasd_segments_unpin(queue->slices.segments, &item->slice, !blasd_front_queue_unsure(err));
    (void)front_wait_settle(queue, item->waiter, false);
    item->done(item->arg, err, item->id, false);
}

struct blasd_quotas blasd_front_queue_quotas(const struct blasd_front_queue *queue,
                                             const struct blasd_principal *principal) {
    struct blasd_quotas quotas = principal->quotas;
    if (quotas.jobs == 0) quotas.jobs = 1 + queue->limits.queue_jobs / 4 * 3;
    if (quotas.bytes == 0) quotas.bytes = 1 + queue->limits.queue_bytes / 4 * 3;
    if (quotas.stored_bytes == 0) quotas.stored_bytes = 1 + queue->limits.record_bytes / 2;
    return quotas;
}

/* One of the tenant's own limits says no. */
static void over_quota(const struct blasd_front_queue *queue, const struct blasd_principal *who,
                       long long code, struct blasd_err *err) {
    struct blasd_quotas quotas = blasd_front_queue_quotas(queue, who);
    if (code == 6)
        blasd_fail(err, BLASD_E_quota_exceeded, "jobs",
                   "the tenant may have %" PRIu64 " jobs queued and running", quotas.jobs);
    else if (code == 7)
        blasd_fail(err, BLASD_E_quota_exceeded, "bytes",
                   "the inputs and outputs of the tenant's jobs that are queued and running may "
                   "come to %" PRIu64 " bytes",
                   quotas.bytes);
    else
        blasd_fail(err, BLASD_E_quota_exceeded, "stored_bytes",
                   "the tenant's results that are kept, and those of its queued jobs, may come to "
                   "%" PRIu64 " bytes, and to no more than all tenants' leave free",
                   quotas.stored_bytes);
}

static void refused_code(struct blasd_front_queue *queue, const struct item *item, long long code) {
    const struct blasd_queue_view *view = &queue->view;
    struct blasd_err err;
    if (code == 1)
        blasd_fail(&err, BLASD_E_queue_full, "",
                   "the queue holds as much as it may: %" PRIu64 " jobs (queue_jobs), or %" PRIu64
                   " bytes (queue_bytes)",
                   view->jobs_limit, view->bytes_limit);
    else if (code >= 6 && code <= 8)
        over_quota(queue, &item->who, code, &err);
    else if (code == 2)
        blasd_fail(&err, BLASD_E_idempotency_conflict, "Idempotency-Key",
                   "the key was used before, for a request that differs from this one");
    else if (code == 5)
        blasd_fail(
            &err, BLASD_E_results_full, "",
            "results that are kept, and those of queued jobs, leave no room for this one's in "
            "the %" PRIu64 " bytes there are for them (limit record_bytes)",
            view->kept_limit);
    else if (code == 14)
        blasd_fail(&err, BLASD_E_record_expired, "Idempotency-Key",
                   "the job of this key has ended, and its record is gone");
    else if (code == 15)
        blasd_fail(&err, BLASD_E_tensors_full, "keep",
                   "tensors in use, and those of others, leave no room for the outputs to keep");
    else if (code == 16)
        blasd_fail(&err, BLASD_E_tensor_too_large, "keep",
                   "the outputs to keep are more than the tenant's tensors, or all, may come to");
    else if (code == 9)
        blasd_fail(&err, BLASD_E_reference_not_found, "inputs",
                   "what an input refers to was there a moment ago, and is not kept any more");
    else if (code == 10)
        blasd_fail(&err, BLASD_E_too_many_webhooks, "notify",
                   "webhooks that wait are as many as may be: %" PRIu64
                   " in all, three quarters of them one tenant's, and a tenth for one host "
                   "(limit webhooks)",
                   queue->limits.webhooks);
    else if (code == 13)
        blasd_fail(&err, BLASD_E_job_not_found, "", "no job has this Idempotency-Key");
    else if (code == 3)
        blasd_fail(&err, BLASD_E_inputs_lost, "", "the tensors were lost on their way");
    else
        blasd_fail(&err, BLASD_E_internal_error, "", "the queue's answer %lld is not known", code);
    refused(queue, item, &err);
}

/* Which digit of a batch entry's text is the job's; -1 where it is no such text. */
static long long digit_of(const redisReply *r, int nth) {
    return (size_t)nth < r->len && r->str[nth] >= '0' && r->str[nth] <= '9' ? r->str[nth] - '0'
                                                                            : -1;
}

static void item_reply(struct blasd_front_queue *queue, const struct item *item,
                       const redisReply *r) {
    if (r->type == REDIS_REPLY_ARRAY && r->elements == 2 &&
        r->element[0]->type == REDIS_REPLY_STRING && blasd_id_valid(r->element[0]->str) &&
        r->element[1]->type == REDIS_REPLY_STRING) {
        char id[BLASD_ID_LEN + 1];
        memcpy(id, r->element[0]->str, sizeof id);
        queued(queue, item, id, strcmp(id, item->id) != 0,
               r->element[1]->len > 0 ? r->element[1] : NULL);
        return;
    }
    long long code = r->type == REDIS_REPLY_INTEGER  ? r->integer
                     : r->type == REDIS_REPLY_STRING ? digit_of(r, item->nth)
                                                     : -1;
    if (code == 0)
        queued(queue, item, item->id, false, NULL);
    else
        refused_code(queue, item, code);
}

static void submit_reply(struct front_call *call, const redisReply *reply,
                         const struct blasd_err *err) {
    struct front_submit *submit = blasd_container_of(call, struct front_submit, call);
    struct blasd_front_queue *queue = call->queue;
    bool whole = reply != NULL && reply->type == REDIS_REPLY_ARRAY &&
                 reply->elements == (size_t)submit->entries + 3 &&
                 reply->element[1]->type == REDIS_REPLY_INTEGER &&
                 reply->element[2]->type == REDIS_REPLY_INTEGER;
    if (whole) {
        queue->view.jobs = (uint64_t)reply->element[1]->integer;
        queue->view.bytes = (uint64_t)reply->element[2]->integer;
    }
    for (int i = 0; i < submit->count; i++) {
        const struct item *item = &submit->items[i];
        if (whole)
            item_reply(queue, item, reply->element[item->entry + 3]);
        else if (err != NULL)
            refused(queue, item, err);
        else
            refused_code(queue, item, -1);
    }
}

static void submit_release(struct front_call *call) {
    struct front_submit *submit = blasd_container_of(call, struct front_submit, call);
    free(submit->items);
}

static struct front_submit *submit_new(struct blasd_front_queue *queue) {
    struct front_submit *submit = front_call_new(queue, sizeof *submit, submit_reply);
    if (submit == NULL) return NULL;
    submit->call.release = submit_release;
    submit->call.tries_left = SUBMIT_TRIES;
    submit->call.acknowledges = true;
    front_call_function(&submit->call, "submit");
    front_call_text(&submit->call, front_name(queue));
    front_call_text(&submit->call, "0000000000000000");
    submit->call.seq_at = submit->call.command.len - 2 - FRONT_SEQ;
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
    submit->items[submit->count].batch_entry = -1;
    return &submit->items[submit->count++];
}

/* The class of the stream that the job goes to. */
static enum blasd_device_class class_of(const struct blasd_submission *s) {
    return s->job->device == BLASD_DEVICE_ANY ? s->chosen : s->job->device;
}

#define REFERENCE_TEXT (BLASD_REFERRED_NAME + 8)

/* "t=BLOB,BLOB...", the blobs that the job holds; returns its length, 0 if it holds none. */
static int write_references(const struct blasd_job *job, const char *gap, char *text, size_t size) {
    int len = 0;
    for (int i = 0; job->op->inputs[i].name != NULL; i++) {
        char name[BLASD_REFERRED_NAME];
        if (!blasd_input_holds(&job->inputs[i])) continue;
        blasd_input_blob(&job->inputs[i], name);
        len += snprintf(text + len, size - (size_t)len, "%s%s%s", len == 0 ? gap : ",",
                        len == 0 ? "t=" : "", name);
    }
    return len;
}

/* OPTIONS where nothing is to be queued. */
static void add_question(struct front_submit *submit, struct item *item,
                         const struct blasd_submission *s) {
    char text[64];
    int len = snprintf(text, sizeof text, "o=1 k=%016" PRIx64 "%016" PRIx64 ":", s->fingerprint,
                       s->fingerprint_more);
    item->entry = submit->entries++;
    front_call_arg2(&submit->call, text, (size_t)len, s->idempotency_key,
                    strlen(s->idempotency_key));
}

/* OPTIONS, see functions/contract.lua. */
static void add_options(struct front_submit *submit, struct item *item,
                        const struct blasd_principal *principal, const struct blasd_submission *s) {
    struct front_call *call = &submit->call;
    char text[200 + BLASD_MAX_INPUTS * REFERENCE_TEXT + BLASD_WEBHOOK_URL_MAX];
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
    len += write_references(s->job, gap, text + len, sizeof text - (size_t)len);
    gap = len > 0 ? " " : "";
    if (blasd_job_keeping(s->job)->keep != 0) {
        len +=
            snprintf(text + len, sizeof text - (size_t)len, "%sm=%" PRIu64 ":%" PRIu64 ":%" PRIu64,
                     gap, front_tensor_quota(call->queue, principal), s->made_bytes, s->made);
        gap = " ";
    }
    if (s->notify != NULL) {
        len += snprintf(text + len, sizeof text - (size_t)len, "%sn=%" PRIu64 ":%.*s", gap,
                        call->queue->limits.webhooks, BLASD_WEBHOOK_URL_MAX - 1, s->notify);
        gap = " ";
    }
    if (key != NULL)
        len += snprintf(text + len, sizeof text - (size_t)len, "%sk=%016" PRIx64 "%016" PRIx64 ":",
                        gap, s->fingerprint, s->fingerprint_more);
    item->entry = submit->entries++;
    front_call_arg2(call, text, (size_t)len, key == NULL ? "" : key, key == NULL ? 0 : strlen(key));
}

static uint64_t stream_of(const struct blasd_submission *s) {
    return 1 + 3 * (uint64_t)class_of(s) + (uint64_t)s->job->priority;
}

#define PREDICTED_MOST (UINT64_C(1) << 40) /* us */

/* The time that is predicted for the job, in us, as the queue is told: the power of two below it,
 * as jobs that differ in it share no batch entry. 0: less than is worth telling. */
static uint64_t predicted_us(double work_s) {
    uint64_t us = 64;
    if (!(work_s * 1e6 >= (double)us)) return 0;
    while ((double)us * 2 <= work_s * 1e6 && us < PREDICTED_MOST) us *= 2;
    return us;
}

/* NOTE; returns its length. */
static size_t write_note(const struct blasd_front_queue *queue,
                         const struct blasd_principal *principal, const struct blasd_submission *s,
                         char note[FRONT_NOTE_MAX]) {
    const char *segment = s->job->slice.segment;
    size_t size = FRONT_NOTE_MAX;
    size_t len = blasd_text_join(note, size, segment[0] == '\0' ? "" : " ", segment, "\t");
    len += blasd_text_join(note + len, size - len, s->waiter != NULL ? queue->channel : "", "\t",
                           s->job->op->name);
    if (blasd_job_labels(s->job)[0] != '\0')
        len += blasd_text_join(note + len, size - len, " ", blasd_job_labels(s->job), NULL);
    len += blasd_text_join(note + len, size - len, "\t", principal->tenant, NULL);
    bool alone = front_alone(principal);
    struct blasd_quotas quotas = blasd_front_queue_quotas(queue, principal);
    const uint64_t numbers[] = {predicted_us(s->work_s), principal->weight, quotas.jobs,
                                quotas.bytes, quotas.stored_bytes};
    int count = alone ? numbers[0] > 0 : 5;
    for (int i = 0; i < count; i++) {
        note[len++] = i == 0 ? '\t' : ' ';
        len += blasd_text_number(note + len, numbers[i]);
    }
    return len;
}

static void add_job(struct front_submit *submit, struct item *item,
                    const struct blasd_principal *principal, const struct blasd_submission *s) {
    struct front_call *call = &submit->call;
    char note[FRONT_NOTE_MAX];
    front_call_arg(call, item->id, BLASD_ID_LEN);
    front_call_arg(call, s->frame, s->frame_len);
    front_call_number(call, stream_of(s));
    front_entry_cost(call, s->cost_bytes, 1, s->result_bytes);
    if (s->known)
        add_question(submit, item, s);
    else
        add_options(submit, item, principal, s);
    front_call_arg(call, note, write_note(call->queue, principal, s, note));
}

/* Writes the batch entries of the batch behind the jobs that travel alone. */
static void add_batch_entries(struct front_submit *submit, struct front_entries *batch_entries) {
    int entry_of[FRONT_ENTRIES] = {0};
    for (int i = 0; i < batch_entries->count; i++) {
        const struct front_entry *batch_entry = &batch_entries->of[i];
        if (batch_entry->jobs == 0) continue;
        front_entry_write(batch_entry, &submit->call);
        entry_of[i] = submit->entries++;
        front_call_arg(&submit->call, batch_entry->holds, batch_entry->holds_len); /* OPTIONS */
        front_call_arg(&submit->call, batch_entry->note, batch_entry->note_len);
    }
    for (int i = 0; i < submit->count; i++) {
        struct item *item = &submit->items[i];
        if (item->batch_entry >= 0) item->entry = entry_of[item->batch_entry];
    }
    front_entries_reset(batch_entries);
}

static bool nobody_serves(const struct blasd_front_queue *queue, const struct blasd_job *job,
                          struct blasd_err *err) {
    if (job->device == BLASD_DEVICE_ANY || !queue->standing.view_known || !queue->view.available ||
        queue->view.workers_of[job->device] > 0 || queue->rules.no_worker_needed)
        return false;
    blasd_fail(err, BLASD_E_no_such_device, "device", "no worker of the class %s is running now",
               blasd_device_class_names[job->device]);
    return true;
}

static bool batch_full(const struct blasd_front_queue *queue, size_t more) {
    const struct front_submit *submit = queue->batch;
    return submit->count >= BATCH_JOBS ||
           submit->call.command.len + queue->entries.bytes + more > BATCH_BYTES;
}

/* How many such jobs a batch entry may have: no more than a worker claims at once, and none that
 * are not quick, which run one by one. */
static int jobs_most(const struct front_entries *entries, uint64_t us) {
    uint64_t most = us == 0 ? FRONT_ENTRY_JOBS : us < FRONT_QUICK_US ? FRONT_ENTRY_US / us : 1;
    return most < (uint64_t)entries->jobs_most ? (int)most : entries->jobs_most;
}

void blasd_front_queue_join(struct blasd_front_queue *queue,
                            const struct blasd_principal *principal,
                            const struct blasd_submission *s, char id[BLASD_ID_LEN + 1]) {
    struct front_entry like;
    int number;
    if (s->batch_key == NULL || s->job->payload_in_blob || s->job->deadline_ms > 0 ||
        s->idempotency_key != NULL || s->notify != NULL || blasd_job_keeping(s->job)->keep != 0 ||
        blasd_job_refers(s->job) || jobs_most(&queue->entries, predicted_us(s->work_s)) < 2)
        return;
    if (queue->batch != NULL && batch_full(queue, s->job->payload_bytes)) front_batch_close(queue);
    like.id[0] = id[0];
    like.cost = s->cost_bytes;
    like.result = s->result_bytes;
    like.bytes_most = blasd_slice_given(&s->job->slice) ? FRONT_ENTRY_BYTES : FRONT_ENTRY_INLINE;
    like.stream = stream_of(s);
    like.jobs_most = jobs_most(&queue->entries, predicted_us(s->work_s));
    like.asked = s->job->device;
    like.note_len = write_note(queue, principal, s, like.note);
    like.batch_key = *s->batch_key;
    like.holds_len = (size_t)write_references(s->job, "", like.holds, sizeof like.holds);
    number = front_entry_join(&queue->entries, &like, id);
    if (number < 0) return;
    struct blasd_id_key key = front_id_key(queue, principal);
    blasd_id_sign(id, &key, (uint16_t)number);
}

static void fill_item(struct item *item, const struct blasd_principal *principal,
                      const struct blasd_submission *s, blasd_submitted_fn done, void *arg) {
    item->done = done;
    item->arg = arg;
    item->who = *principal;
    memcpy(item->id, s->job->id, sizeof item->id);
    item->slice = s->job->slice;
    item->deadline_ms = s->job->deadline_ms;
    item->waiter = s->waiter;
}

/* Into the batch, alone or with its batch entry. */
static void collect(struct blasd_front_queue *queue, struct front_submit *submit, struct item *item,
                    const struct blasd_principal *principal, const struct blasd_submission *s) {
    struct front_entry *batch_entry = front_entry_of(&queue->entries, item->id);
    if (batch_entry == NULL) {
        add_job(submit, item, principal, s);
    } else {
        item->batch_entry = (int)(batch_entry - queue->entries.of);
        item->nth = batch_entry->jobs;
        if (front_entry_add(&queue->entries, batch_entry, item->id, s->frame, s->frame_len) != 0)
            submit->call.broken = true;
    }
    front_wait_begin(queue, item->who.tenant, item->waiter, item->id);
}

void blasd_front_queue_submit(struct blasd_front_queue *queue,
                              const struct blasd_principal *principal,
                              const struct blasd_submission *submission, blasd_submitted_fn done,
                              void *arg) {
    bool upload = submission->blob != NULL && submission->job->payload_in_blob &&
                  !submission->known && blasd_store_kind(queue->store) == BLASD_STORE_REDIS;
    struct blasd_err err;
    bool nobody = !submission->known && nobody_serves(queue, submission->job, &err);
    bool alone = upload || nobody;
    bool joined = front_entry_of(&queue->entries, submission->job->id) != NULL;
    if (queue->batch != NULL && !joined && (nobody || batch_full(queue, submission->frame_len)))
        front_batch_close(queue);
    struct front_submit *submit = alone || queue->batch == NULL ? submit_new(queue) : queue->batch;
    struct item *item = submit == NULL ? NULL : item_new(submit);
    if (item == NULL) {
        if (submit != NULL && submit != queue->batch) front_call_free(&submit->call);
        front_no_memory(&err);
        done(arg, &err, submission->job->id, false);
        return;
    }
    fill_item(item, principal, submission, done, arg);
    if (nobody) {
        front_call_answer_later(&submit->call, &err);
        return;
    }
    if (upload) {
        add_job(submit, item, principal, submission);
        front_wait_begin(queue, principal->tenant, item->waiter, item->id);
        front_blob_put(queue, submission->blob, &submit->call);
        return;
    }
    queue->batch = submit;
    collect(queue, submit, item, principal, submission);
    if (submit->count < BATCH_JOBS) return;
    front_batch_close(queue);
    if (!queue->in_flush) front_calls_pump(queue);
}

void front_batch_close(struct blasd_front_queue *queue) {
    struct front_submit *submit = queue->batch;
    queue->batch = NULL;
    if (submit == NULL) {
        front_entries_reset(&queue->entries);
        return;
    }
    add_batch_entries(submit, &queue->entries);
    front_call_send(&submit->call);
}

void front_batch_free(struct blasd_front_queue *queue) {
    if (queue->batch != NULL) front_call_free(&queue->batch->call);
    queue->batch = NULL;
    front_entries_free(&queue->entries);
}
