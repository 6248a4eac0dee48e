/* POST /jobs, from the queue on: the job is submitted, and where the client asked to wait the
 * answer is held until it ends. Read next: waiters.c, results.c. */
#include "base/clock.h"
#include "http/admission.h"
#include "http/jobs.h"
#include "http/remote_inputs.h"
#include "http/reply.h"
#include "http/upload.h"
#include "http/upload_queue.h"
#include "http/waiters.h"
#include "wire/frame.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Takes references as they were sent, for their targets may lie elsewhere when the request is
 * repeated: the job keeps the ids, the sum gets the rest. */
static void plain_references(const struct http_upload *upload, struct blasd_job *plain,
                             struct blasd_reference ids[BLASD_MAX_INPUTS], struct http_sum *sum) {
    plain->payload_bytes = 0;
    for (int i = 0; plain->op->inputs[i].name != NULL; i++) {
        const struct blasd_reference *sent = upload->references.sent[i].reference;
        size_t bounds;
        if (!blasd_source_refers(&upload->references.sent[i].source)) continue;
        bounds = (size_t)sent->sliced * sizeof *sent->from;
        plain->inputs[i] = upload->references.sent[i];
        plain->inputs[i].source.bytes = 0;
        ids[i] = *sent;
        ids[i].sliced = 0;
        plain->inputs[i].reference = &ids[i];
        http_sum_add(sum, sent->output, strnlen(sent->output, sizeof sent->output) + 1);
        http_sum_add(sum, sent->from, bounds);
        http_sum_add(sum, sent->to, bounds);
    }
}

/* A retry of the same request has the same fingerprint, whatever boundaries, spaces or pieces its
 * body came in: it is taken from the job. */
static int take_fingerprint(struct http_upload *upload, const struct blasd_job *job,
                            struct http_digest *ret, struct blasd_err *err) {
    struct blasd_buf *scratch = &upload->exchange->home->scratch;
    struct blasd_job plain;
    struct blasd_reference ids[BLASD_MAX_INPUTS];
    struct blasd_extras extras;
    struct http_sum sum = {.hash = UINT64_C(0x626c617364)};
    struct http_digest tensors, all;
    int rc;
    blasd_job_share(job, &plain);
    memset(plain.id, '0', BLASD_ID_LEN);
    plain.id[0] = BLASD_ID_SYNC;
    plain.created_us = plain.receive_us = 0;
    plain.most_s = 0;
    if (job->extras != NULL) {
        extras = *job->extras;
        memset(extras.keeping.ids, 0, sizeof extras.keeping.ids);
        plain.extras = &extras;
    }
    plain.trace = (struct blasd_trace){.sampled = false};
    if (upload->references.sent != NULL) plain_references(upload, &plain, ids, &sum);
    blasd_buf_reset(scratch);
    if ((rc = blasd_job_encode(&plain, scratch, err)) != 0) return rc;
    if (upload->intake != NULL && (rc = blasd_intake_steps(upload->intake, scratch, err)) != 0)
        return rc;
    http_sum_add(&sum, scratch->data, scratch->len);
    if (upload->notify != NULL) http_sum_add(&sum, upload->notify, strlen(upload->notify));
    tensors = http_sum_end(&upload->sink.sum); /* the frame says where each ends */
    http_sum_add(&sum, &tensors.hash, sizeof tensors.hash);
    all = http_sum_end(&sum);
    *ret = (struct http_digest){all.hash, all.more ^ tensors.more * UINT64_C(0x9fb21c651e98df25)};
    return 0;
}

int http_upload_fingerprint(struct http_upload *upload, const struct blasd_job *job,
                            struct blasd_err *err) {
    return take_fingerprint(upload, job, &upload->references.fingerprint, err);
}

static int fingerprint(struct http_upload *upload, const struct blasd_job *job,
                       struct blasd_submission *submission, struct blasd_err *err) {
    struct http_digest fingerprint = upload->references.fingerprint;
    int rc = 0;
    if (!job->op->composed || upload->references.sent == NULL)
        rc = take_fingerprint(upload, job, &fingerprint, err);
    submission->fingerprint = fingerprint.hash;
    submission->fingerprint_more = fingerprint.more;
    return rc;
}

static void answer_queued(struct http_upload *upload) {
    struct blasd_record queued;
    blasd_record_init(&queued);
    queued.priority = upload->priority;
    queued.device = upload->device;
    queued.created_us = upload->created_us;
    queued.timing.receive_us = upload->receive_us;
    snprintf(queued.id, sizeof queued.id, "%s", upload->exchange->id);
    snprintf(queued.op, sizeof queued.op, "%s", upload->op);
    memcpy(queued.labels, upload->labels, sizeof queued.labels);
    memcpy(queued.trace_id, upload->exchange->request.tracing.trace.id, sizeof queued.trace_id);
    http_reply_document(upload->exchange, 202, &queued, NULL, NULL, NULL);
}

static void on_cancelled(void *arg, const struct blasd_err *err, const void *record, size_t len) {
    struct http_exchange *exchange = arg;
    struct blasd_record ended;
    struct blasd_err bad;
    size_t payload_at;
    if (err == NULL && blasd_record_decode(record, len, &ended, &payload_at, &bad) == 0 &&
        ended.state == BLASD_CANCELLED)
        http_log_cancelled(exchange, &ended);
    http_exchange_release(exchange);
}

void http_jobs_post_gone(struct http_exchange *exchange, bool taken) {
    struct http_upload *upload = exchange->upload;
    http_remote_inputs_cancel(upload->elsewhere.remote);
    if (!taken || !(upload->wait_s > 0) || exchange->request.idempotency_key != NULL) return;
    http_exchange_hold(exchange);
    blasd_front_queue_cancel(http_queue(exchange), &exchange->caller.principal, exchange->id, false,
                             on_cancelled, exchange);
}

/* The inputs belong to the queue now, or to nobody. */
static void let_go_of_inputs(struct http_upload *upload, const struct blasd_err *err,
                             bool repeated) {
    bool stored = http_body_sink_in_blob(&upload->sink);
    http_body_sink_release(&upload->sink);
    /* where the queue went away it may have taken the job all the same: the sweep will tell */
    if (stored && (repeated || (err != NULL && !blasd_front_queue_unsure(err))))
        blasd_front_queue_blob_remove(http_queue(upload->exchange), upload->sink.blob.name);
}

/* The queue had no room after all: its view is a little late. True where the job, which is still
 * there with its tensors, is submitted again. */
static bool back_to_admission(struct http_exchange *exchange, const struct blasd_err *err) {
    struct http_upload *upload = exchange->upload;
    if (err == NULL || err->code != BLASD_E_queue_full || upload->job == NULL ||
        !http_exchange_open(exchange))
        return false;
    http_exchange_wait_end(exchange);
    /* the queue has released its slice, and a fingerprint is of a job without a place */
    upload->job->slice = (struct blasd_slice){0};
    upload->job->payload_in_blob = false;
    /* the id may be one of a batch entry, which the job need not join again; a blob has its name */
    if (!http_body_sink_in_blob(&upload->sink)) http_upload_id(upload);
    http_admission_wait(exchange, true);
    return true;
}

#define LOOK_FROM BLASD_MIB /* for smaller ones what was free a second ago is good enough */

/* Outputs need room when a worker runs the job. Those of no more bytes than the inputs have it:
 * what may be received leaves as much. Larger ones, which a few bytes may ask for, have to fit
 * beside all that is queued or running, which the queue counts until it has ended. The inputs of
 * those jobs are counted twice, for they lie in the store by now: better too few than too many. */
static int reserve_outputs(struct http_upload *upload, struct blasd_err *err) {
    struct http_loop *loop = upload->exchange->home;
    const struct blasd_queue_view *view = blasd_front_queue_view(loop->queue);
    struct http_server *server = loop->server;
    uint64_t bytes = upload->outputs, taken;
    uint64_t free_bytes = atomic_load_explicit(&server->store_free, memory_order_relaxed);
    uint64_t all_bytes = atomic_load_explicit(&server->store_all, memory_order_relaxed);
    if (bytes == 0) return 0;
    if (bytes >= LOOK_FROM) blasd_store_space(server->store, &free_bytes, &all_bytes);
    if (bytes > all_bytes)
        return blasd_fail(err, BLASD_E_job_too_large, "",
                          "the outputs come to %" PRIu64 " bytes, and the blob store has %" PRIu64,
                          bytes, all_bytes);
    taken = atomic_fetch_add(&server->outputs_coming, bytes) + view->bytes;
    if (bytes <= free_bytes && taken <= free_bytes - bytes) return 0;
    atomic_fetch_sub(&server->outputs_coming, bytes);
    return blasd_fail(err, BLASD_E_no_space, "",
                      "the outputs come to %" PRIu64 " bytes, and those of jobs before it leave "
                      "less than that of the blob store",
                      bytes);
}

static void on_submitted(void *arg, const struct blasd_err *err, const char *id, bool repeated) {
    struct http_exchange *exchange = arg;
    struct http_upload *upload = exchange->upload;
    if (err != NULL && err->code == BLASD_E_job_not_found) err = &upload->references.lost;
    exchange->home->submitting--;
    if (upload->outputs > 0)
        atomic_fetch_sub(&exchange->home->server->outputs_coming, upload->outputs);
    if (back_to_admission(exchange, err)) {
        http_exchange_release(exchange);
        return;
    }
    let_go_of_inputs(upload, err, repeated);
    if (err != NULL) {
        if (http_exchange_open(exchange)) http_reply_problem(exchange, err);
    } else {
        bool open = http_exchange_enter(exchange, HTTP_AT_WAITING);
        if (blasd_id_valid(id)) memcpy(exchange->id, id, sizeof exchange->id);
        http_audit_job(exchange, repeated);
        if (exchange->state == HTTP_AT_GONE)
            http_jobs_post_gone(exchange, true);
        else if (!open)
            ; /* it ended before we heard that it was queued */
        else if (!(upload->wait_s > 0) && !repeated)
            answer_queued(upload);
        else if (!(upload->wait_s > 0) || (exchange->wait.time_up && !http_exchange_left(exchange)))
            http_jobs_fetch(exchange);
    }
    http_exchange_release(exchange);
}

/* Fills in what the intake leaves open. */
static void complete(struct http_upload *upload, struct blasd_job *job) {
    struct http_exchange *exchange = upload->exchange;
    memcpy(job->id, exchange->id, sizeof job->id);
    job->payload_bytes = upload->sink.total;
    job->created_us = blasd_front_queue_now_us(http_queue(exchange));
    job->most_s = (uint16_t)exchange->caller.job_s;
    if (job->extras != NULL)
        job->extras->keeping.life_s = (uint32_t)exchange->home->server->limits->tensor_life_s;
    job->trace = exchange->request.tracing.trace;
    job->receive_us = (blasd_clock_ns() - exchange->began_ns) / 1000;
}

/* Decides how the tensors travel, and says so in the job. */
static int place_inputs(struct http_upload *upload, struct blasd_job *job, struct blasd_err *err) {
    struct http_body_sink *sink = &upload->sink;
    void *room = NULL;
    int rc = 0;
    if (!http_body_sink_in_blob(sink))
        room = blasd_front_queue_slice_take(http_queue(upload->exchange), job->id, sink->total,
                                            &job->slice);
    if (room != NULL)
        memcpy(room, sink->memory.data, (size_t)sink->total);
    else if (!http_body_sink_in_blob(sink) &&
             sink->total > upload->exchange->home->server->limits->inline_bytes)
        rc = http_body_sink_store(sink, err);
    job->payload_in_blob = http_body_sink_in_blob(sink);
    return rc;
}

/* Writes the job's frame, and what travels beside it, into the loop's scratch. */
static int write_frame(struct http_upload *upload, const struct blasd_job *job,
                       struct blasd_err *err) {
    struct blasd_buf *frame = &upload->exchange->home->scratch;
    const struct http_body_sink *sink = &upload->sink;
    int rc;
    blasd_buf_reset(frame);
    if ((rc = blasd_job_encode(job, frame, err)) != 0) return rc;
    if (!job->payload_in_blob && !blasd_slice_given(&job->slice) &&
        blasd_buf_add(frame, sink->memory.data, sink->memory.len) != 0)
        return blasd_no_memory(err);
    return 0;
}

static void submit(struct http_upload *upload, const struct blasd_submission *submission) {
    struct http_exchange *exchange = upload->exchange;
    http_exchange_enter(exchange, HTTP_AT_SUBMITTED);
    http_exchange_hold(exchange);
    exchange->home->submitting++;
    if (submission->waiter != NULL) http_wait_begin(exchange, upload->wait_s);
    blasd_front_queue_submit(http_queue(exchange), &exchange->caller.principal, submission,
                             on_submitted, exchange);
}

int http_upload_ask(struct http_upload *upload, struct blasd_job *job, const struct blasd_err *why,
                    struct blasd_err *err) {
    struct http_exchange *exchange = upload->exchange;
    struct blasd_submission submission = {.job = job,
                                          .known = true,
                                          .idempotency_key = exchange->request.idempotency_key,
                                          .waiter =
                                              upload->wait_s > 0 ? &exchange->wait.waiter : NULL};
    int rc;
    complete(upload, job);
    if ((rc = fingerprint(upload, job, &submission, err)) != 0) return rc;
    upload->references.lost = *why;
    submit(upload, &submission);
    return 0;
}

int http_upload_submit(struct http_upload *upload, struct blasd_job *job, uint64_t cost,
                       struct blasd_err *err) {
    struct http_exchange *exchange = upload->exchange;
    struct http_loop *loop = exchange->home;
    struct blasd_submission submission = {
        .job = job,
        .cost_bytes = cost,
        .result_bytes = upload->result,
        .made_bytes = upload->made_bytes,
        .made = upload->made,
        .work_s = upload->work_s,
        .batch_key = upload->batch.small ? &upload->batch.key : NULL,
        .chosen = upload->device,
        .idempotency_key = exchange->request.idempotency_key,
        .notify = upload->notify,
        .waiter = upload->wait_s > 0 ? &exchange->wait.waiter : NULL};
    int rc;
    upload->cost = cost;
    complete(upload, job);
    if (submission.idempotency_key != NULL &&
        (rc = fingerprint(upload, job, &submission, err)) != 0)
        return rc;
    if (blasd_job_keeping(job)->keep != 0)
        blasd_front_queue_keep_outputs(http_queue(exchange), &exchange->caller.principal, job->id,
                                       &job->extras->keeping);
    if ((rc = place_inputs(upload, job, err)) != 0) return rc;
    blasd_front_queue_join(http_queue(exchange), &exchange->caller.principal, &submission,
                           exchange->id);
    memcpy(job->id, exchange->id, sizeof job->id);
    if ((rc = write_frame(upload, job, err)) != 0 || (rc = reserve_outputs(upload, err)) != 0) {
        blasd_front_queue_slice_drop(http_queue(exchange), &job->slice);
        return rc;
    }
    if (upload->job == NULL) blasd_buf_release(&upload->sink.memory);
    submission.frame = loop->scratch.data;
    submission.frame_len = loop->scratch.len;
    if (job->payload_in_blob) submission.blob = &upload->sink.blob;
    upload->op = job->op->name;
    if (job->extras != NULL) memcpy(upload->labels, job->extras->labels, sizeof upload->labels);
    upload->priority = job->priority;
    upload->created_us = job->created_us;
    upload->receive_us = job->receive_us;
    http_count(&loop->metrics->sent[upload->device], 1);
    submit(upload, &submission);
    return 0;
}
