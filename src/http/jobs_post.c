/* POST /jobs: the body becomes a job, the job is queued, and where the client asked to wait the
 * answer is held until it ends. Read next: waits.c, results.c. */
#include "base/clock.h"
#include "http/body_sink.h"
#include "http/gate.h"
#include "http/jobs.h"
#include "http/reply.h"
#include "http/share.h"
#include "http/waits.h"
#include "wire/frame.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct http_upload {
    struct http_exchange *exchange; /* borrowed: the upload is its part */
    struct http_body_sink sink;
    struct blasd_intake *intake; /* owned; NULL once the body is read */
    struct http_handed handed;   /* where the body is a file, while it is read */
    uint64_t body_limit;
    double wait_s; /* 0: the answer is 202 at once */
    /* what the document says until a worker takes the job */
    const char *op; /* static */
    enum blasd_priority priority;
    enum blasd_device_class device; /* the class it is queued for */
    int64_t created_us, receive_us;
    bool submitted; /* the queue has the job */
    bool held;      /* it has to pass the gate: until the queue has the job, `body` is the body */
    struct blasd_buf body;
};

void http_upload_free(struct http_upload *upload) {
    if (upload == NULL) return;
    blasd_intake_free(upload->intake);
    http_body_sink_release(&upload->sink);
    blasd_buf_release(&upload->body);
    free(upload);
}

bool http_upload_submitted(const struct http_exchange *exchange) {
    return exchange->upload == NULL || exchange->upload->submitted;
}

/* Ends the taking in: nothing of the body is wanted any more. */
static void discard(struct http_upload *upload) {
    bool stored = http_body_sink_in_blob(&upload->sink);
    blasd_intake_free(upload->intake);
    upload->intake = NULL;
    http_body_sink_release(&upload->sink);
    blasd_buf_release(&upload->body);
    if (stored)
        blasd_front_queue_blob_remove(upload->exchange->home->queue, upload->sink.blob.name);
}

static void refuse(struct http_exchange *exchange, const struct blasd_err *err) {
    if (exchange->upload != NULL) discard(exchange->upload);
    http_reply_problem(exchange, err);
}

/* Bytes of the body, as far as they are known before it is read. */
static uint64_t body_bytes(const struct http_upload *upload) {
    const struct http_request *request = &upload->exchange->request;
    return request->body_file != NULL ? upload->sink.total : request->content_length;
}

/* What the queue would say anyway, said before the body is read. */
static int check_queue(const struct http_exchange *exchange, struct blasd_err *err) {
    const struct blasd_queue_view *view = blasd_front_queue_view(exchange->home->queue);
    uint64_t bytes = body_bytes(exchange->upload);
    uint64_t jobs = view->jobs + exchange->home->submitting;
    if (exchange->home->draining)
        return blasd_fail(err, BLASD_E_draining, "", "the service takes no new jobs");
    if (!view->available)
        return blasd_fail(err, BLASD_E_queue_unavailable, "", "the queue does not answer");
    if (jobs >= view->jobs_limit)
        return blasd_fail(err, BLASD_E_queue_full, "",
                          "%" PRIu64 " jobs are queued or running (limit queue_jobs)", jobs);
    if (bytes > view->bytes_limit)
        return blasd_fail(err, BLASD_E_body_too_large, "",
                          "the body has %" PRIu64 " bytes, and the whole queue takes %" PRIu64
                          " (limit queue_bytes)",
                          bytes, view->bytes_limit);
    if (view->bytes > view->bytes_limit - bytes)
        return blasd_fail(err, BLASD_E_queue_full, "",
                          "%" PRIu64 " bytes more than the %" PRIu64
                          " queued or running do not fit (limit queue_bytes)",
                          bytes, view->bytes);
    return 0;
}

static int check_length(struct http_upload *upload, uint64_t bytes, struct blasd_err *err) {
    bool json = http_request_is_json(&upload->exchange->request);
    if (bytes <= upload->body_limit) return 0;
    return blasd_fail(err, BLASD_E_body_too_large, "",
                      "the body has %" PRIu64 " bytes or more; at most %" PRIu64
                      " are taken (limit %s)",
                      bytes, upload->body_limit, json ? "json_bytes" : "body_bytes");
}

static int read_accept(struct http_exchange *exchange, bool wait, struct blasd_err *err) {
    enum blasd_format format = BLASD_FORMAT_JSON;
    /* what is answered without waiting is always a JSON document */
    if (wait && !blasd_format_accepted(exchange->request.accept, true, &format))
        return blasd_fail(err, BLASD_E_not_acceptable, "Accept",
                          "no answer to this request has a format that '%.100s' names",
                          exchange->request.accept);
    exchange->format = (int)format;
    return 0;
}

/* How large a payload the body can make: text of two bytes, `1,`, may become eight. */
static uint64_t claim_limit(const struct http_upload *upload) {
    const struct http_request *request = &upload->exchange->request;
    uint64_t body = request->chunked ? upload->body_limit : request->content_length;
    uint64_t slack = 64 * (BLASD_MAX_INPUTS + 8);
    return (http_request_is_json(request) ? body * 8 : body) + slack;
}

/* Tells the sink what will come. What is not JSON has its tensors as they will lie. */
static void prepare_sink(struct http_upload *upload) {
    const struct http_request *request = &upload->exchange->request;
    upload->sink.claim_limit = claim_limit(upload);
    upload->sink.expected = request->content_length;
    upload->sink.direct = !request->chunked && !http_request_is_json(request);
}

/* From now on the body is parsed as it comes. */
static int open_intake(struct http_upload *upload, struct blasd_err *err) {
    const struct http_request *request = &upload->exchange->request;
    bool file = request->body_file != NULL;
    struct blasd_intake_options options = {.content_type =
                                               file ? HTTP_HANDED_TYPE : request->content_type,
                                           .op = request->op,
                                           .params = request->params,
                                           .priority = request->priority,
                                           .deadline_ms = request->deadline_ms,
                                           .device = request->device,
                                           .content_length = file ? body_bytes(upload) : 0,
                                           .limits = upload->exchange->home->server->limits};
    return blasd_intake_new(&options, &upload->sink.base, &upload->intake, err);
}

/* Whether there is room in the queue; a small request without waits at the gate, behind those that
 * wait there already. */
static int check_room(struct http_upload *upload, struct blasd_err *err) {
    struct http_exchange *exchange = upload->exchange;
    int rc = check_queue(exchange, err);
    if (!http_gate_suits(exchange)) return rc;
    if (err->code != BLASD_E_queue_full && (rc != 0 || exchange->home->gate_first == NULL))
        return rc;
    *err = (struct blasd_err){0};
    upload->held = true;
    blasd_buf_init(&upload->body, exchange->request.content_length);
    return 0;
}

static int start(struct http_upload *upload, struct blasd_err *err) {
    struct http_exchange *exchange = upload->exchange;
    const struct blasd_limits *limits = exchange->home->server->limits;
    const struct http_request *request = &exchange->request;
    bool preferred;
    int rc;
    upload->wait_s = http_request_wait(request, limits, &preferred);
    upload->body_limit = http_request_is_json(request) ? limits->json_bytes : limits->body_bytes;
    if ((rc = read_accept(exchange, upload->wait_s > 0, err)) != 0) return rc;
    blasd_id_new(upload->wait_s > 0 ? BLASD_ID_SYNC : BLASD_ID_ASYNC, blasd_clock_wall_us(),
                 exchange->id);
    if (request->body_file != NULL && (rc = http_handed_adopt(exchange, &upload->sink, err)) != 0)
        return rc;
    if ((rc = check_length(upload, body_bytes(upload), err)) != 0) return rc;
    if ((rc = check_room(upload, err)) != 0) return rc;
    prepare_sink(upload);
    if ((rc = http_body_sink_intake(&upload->sink, request->content_length, err)) != 0) return rc;
    return upload->held ? 0 : open_intake(upload, err);
}

void http_jobs_post_begin(struct http_exchange *exchange) {
    struct http_upload *upload = calloc(1, sizeof *upload);
    struct blasd_err err = {0};
    if (upload == NULL) {
        http_reply_fail(exchange, BLASD_E_no_space, "", "memory has run out");
        return;
    }
    exchange->upload = upload;
    upload->exchange = exchange;
    http_body_sink_init(&upload->sink, exchange->home, exchange->id);
    if (start(upload, &err) != 0) refuse(exchange, &err);
}

void http_jobs_post_body(struct http_exchange *exchange, const void *bytes, size_t len) {
    struct http_upload *upload = exchange->upload;
    struct blasd_err err = {0};
    int rc = check_length(upload, exchange->body, &err);
    if (rc == 0 && exchange->request.chunked)
        rc = http_body_sink_intake(&upload->sink, exchange->body, &err);
    if (rc == 0 && !upload->held) rc = blasd_intake_feed(upload->intake, bytes, len, &err);
    if (rc == 0 && upload->held && blasd_buf_add(&upload->body, bytes, len) != 0)
        rc = blasd_fail(&err, BLASD_E_no_space, "", "memory has run out");
    if (rc != 0) refuse(exchange, &err);
}

/* A retry of the same request has the same fingerprint, whatever boundaries, spaces or pieces its
 * body came in: it is taken from the job. */
static int fingerprint(struct http_upload *upload, const struct blasd_job *job, uint64_t *hash,
                       struct blasd_err *err) {
    struct blasd_buf *scratch = &upload->exchange->home->scratch;
    struct blasd_job plain = *job;
    int rc;
    memset(plain.id, '0', BLASD_ID_LEN);
    plain.id[0] = BLASD_ID_SYNC;
    plain.created_us = plain.receive_us = 0;
    blasd_buf_reset(scratch);
    if ((rc = blasd_job_encode(&plain, scratch, err)) != 0) return rc;
    *hash = http_hash(UINT64_C(0x626c617364), scratch->data, scratch->len);
    for (int i = 0; i < BLASD_MAX_INPUTS; i++) {
        const struct blasd_source *source = &job->inputs[i].source;
        if (source->kind != BLASD_SOURCE_PAYLOAD) continue;
        rc = http_body_sink_hash(&upload->sink, source->offset, source->bytes, hash, err);
        if (rc != 0) return rc;
    }
    return 0;
}

/* The class of devices that the job is queued for. */
static enum blasd_device_class choose_device(struct http_loop *loop, const struct blasd_job *job,
                                             const struct blasd_plan *plan, uint64_t memory) {
    const struct blasd_queue_view *view = blasd_front_queue_view(loop->queue);
    if (!http_choice_open(view)) return job->device;
    if (job->device == BLASD_DEVICE_ANY)
        return http_choice_pick(&loop->choice, view, job->op, plan, memory, blasd_clock_ns());
    http_choice_sent(&loop->choice, view, job->device, job->op, plan, blasd_clock_ns());
    return job->device;
}

/* Checks that the job can be run and answered here, and chooses where; *cost is what it takes of
 * the queue. */
static int check_job(struct http_exchange *exchange, const struct blasd_job *job, uint64_t *cost,
                     struct blasd_err *err) {
    const struct blasd_limits *limits = exchange->home->server->limits;
    struct blasd_plan plan;
    uint64_t memory;
    int outputs = 0, rc = blasd_job_plan(job, &plan, err);
    if (rc != 0) return rc;
    if (__builtin_add_overflow(plan.input_bytes, plan.output_bytes, cost) ||
        __builtin_add_overflow(*cost, plan.workspace_bytes, &memory))
        memory = UINT64_MAX;
    if (memory > limits->job_bytes)
        return blasd_fail(err, BLASD_E_job_too_large, "",
                          "inputs, outputs and workspace come to %" PRIu64
                          " bytes, and a job may have %" PRIu64 " (limit job_bytes)",
                          memory, limits->job_bytes);
    if (*cost > blasd_front_queue_view(exchange->home->queue)->bytes_limit) /* nor ever will it */
        return blasd_fail(err, BLASD_E_job_too_large, "",
                          "inputs and outputs come to %" PRIu64
                          " bytes, and the whole queue takes %" PRIu64 " (limit queue_bytes)",
                          *cost, blasd_front_queue_view(exchange->home->queue)->bytes_limit);
    rc = http_choice_check(&exchange->home->choice, blasd_front_queue_view(exchange->home->queue),
                           job->device, &plan, memory, err);
    if (rc != 0) return rc;
    for (int i = 0; i < BLASD_MAX_OUTPUTS; i++)
        if (plan.outputs[i].rank >= 0) outputs++;
    if (exchange->format == BLASD_FORMAT_NPY && outputs != 1)
        return blasd_fail(err, BLASD_E_not_acceptable, "Accept",
                          "the job has %d outputs, and a .npy file holds one", outputs);
    exchange->upload->device = choose_device(exchange->home, job, &plan, memory);
    return 0;
}

static void answer_queued(struct http_upload *upload) {
    struct blasd_record queued = {.state = BLASD_QUEUED,
                                  .priority = upload->priority,
                                  .device = upload->device,
                                  .created_us = upload->created_us,
                                  .timing.receive_us = upload->receive_us};
    snprintf(queued.id, sizeof queued.id, "%s", upload->exchange->id);
    snprintf(queued.op, sizeof queued.op, "%s", upload->op);
    for (int i = 0; i < BLASD_MAX_OUTPUTS; i++) queued.outputs[i].tensor.rank = -1;
    http_reply_document(upload->exchange, 202, &queued, NULL);
}

static void on_cancelled(void *arg, const struct blasd_err *err, const void *record, size_t len) {
    (void)err, (void)record, (void)len;
    http_exchange_release(arg);
}

void http_jobs_post_gone(struct http_exchange *exchange) {
    struct http_upload *upload = exchange->upload;
    if (exchange->answered || !upload->submitted || !(upload->wait_s > 0) ||
        exchange->request.idempotency_key != NULL)
        return;
    http_exchange_hold(exchange);
    blasd_front_queue_cancel(exchange->home->queue, &blasd_anonymous, exchange->id, on_cancelled,
                             exchange);
}

/* The inputs belong to the queue now, or to nobody. */
static void let_go_of_inputs(struct http_upload *upload, const struct blasd_err *err,
                             bool repeated) {
    bool stored = http_body_sink_in_blob(&upload->sink);
    http_body_sink_release(&upload->sink);
    /* where the queue went away it may have taken the job all the same: the sweep will tell */
    if (stored && (repeated || (err != NULL && err->code != BLASD_E_queue_unavailable)))
        blasd_front_queue_blob_remove(upload->exchange->home->queue, upload->sink.blob.name);
}

/* The queue had no room after all: its view is a little late. True where it is tried again. */
static bool back_to_gate(struct http_exchange *exchange, const struct blasd_err *err) {
    struct http_upload *upload = exchange->upload;
    if (err->code != BLASD_E_queue_full || !upload->held || !http_exchange_open(exchange))
        return false;
    http_waits_remove(exchange);
    http_body_sink_init(&upload->sink, exchange->home, exchange->id); /* empty again */
    prepare_sink(upload);
    http_gate_enter(exchange, true);
    return true;
}

static void on_submitted(void *arg, const struct blasd_err *err, const char *id, bool repeated) {
    struct http_exchange *exchange = arg;
    struct http_upload *upload = exchange->upload;
    exchange->home->submitting--;
    let_go_of_inputs(upload, err, repeated);
    if (err != NULL) {
        if (!back_to_gate(exchange, err) && http_exchange_open(exchange))
            http_reply_problem(exchange, err);
    } else {
        upload->submitted = true;
        if (strcmp(id, exchange->id) != 0 && blasd_id_valid(id)) http_waits_rename(exchange, id);
        if (exchange->connection == NULL || exchange->gone)
            http_jobs_post_gone(exchange);
        else if (exchange->answered)
            ; /* it ended before we heard that it was queued */
        else if (!(upload->wait_s > 0) && !repeated)
            answer_queued(upload);
        else if (!(upload->wait_s > 0) || exchange->time_up)
            http_jobs_fetch(exchange);
    }
    if (!exchange->at_gate) blasd_buf_release(&upload->body);
    http_exchange_release(exchange);
}

/* Fills in what the intake leaves open. */
static void complete(struct http_upload *upload, struct blasd_job *job) {
    struct http_exchange *exchange = upload->exchange;
    memcpy(job->id, exchange->id, sizeof job->id);
    job->payload_bytes = upload->sink.total;
    job->created_us = blasd_clock_wall_us();
    job->receive_us = (blasd_clock_ns() - exchange->began_ns) / 1000;
}

/* Decides how the tensors travel, and says so in the job. */
static int place_inputs(struct http_upload *upload, struct blasd_job *job, struct blasd_err *err) {
    struct http_body_sink *sink = &upload->sink;
    void *room = NULL;
    int rc = 0;
    if (http_body_sink_pass_slice(sink, &job->slice)) return 0;
    if (!http_body_sink_in_blob(sink))
        room = blasd_front_queue_slice_take(upload->exchange->home->queue, job->id, sink->total,
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
        return blasd_fail(err, BLASD_E_no_space, "", "memory has run out");
    return 0;
}

static int submit(struct http_upload *upload, struct blasd_job *job, uint64_t cost,
                  struct blasd_err *err) {
    struct http_exchange *exchange = upload->exchange;
    struct http_loop *loop = exchange->home;
    struct blasd_submission submission = {.job = job,
                                          .cost_bytes = cost,
                                          .chosen = upload->device,
                                          .idempotency_key = exchange->request.idempotency_key,
                                          .watch = upload->wait_s > 0};
    int rc;
    complete(upload, job);
    if (submission.idempotency_key != NULL &&
        (rc = fingerprint(upload, job, &submission.fingerprint, err)) != 0)
        return rc;
    if ((rc = place_inputs(upload, job, err)) != 0) return rc;
    if ((rc = write_frame(upload, job, err)) != 0) {
        blasd_front_queue_slice_drop(loop->queue, &job->slice);
        return rc;
    }
    http_body_sink_empty(&upload->sink);
    submission.frame = loop->scratch.data;
    submission.frame_len = loop->scratch.len;
    if (job->payload_in_blob) submission.blob = &upload->sink.blob;
    upload->op = job->op->name;
    upload->priority = job->priority;
    upload->created_us = job->created_us;
    upload->receive_us = job->receive_us;
    exchange->wait_status = 202;
    http_count(&loop->metrics->sent[upload->device], 1);
    http_exchange_hold(exchange);
    loop->submitting++;
    if (submission.watch) http_waits_add(exchange, upload->wait_s);
    blasd_front_queue_submit(loop->queue, &blasd_anonymous, &submission, on_submitted, exchange);
    return 0;
}

static void run(struct http_exchange *exchange) {
    struct http_upload *upload = exchange->upload;
    struct blasd_job job;
    struct blasd_err err = {0};
    uint64_t cost = 0;
    int rc = blasd_intake_finish(upload->intake, &job, &err);
    if (rc == 0) rc = check_job(exchange, &job, &cost, &err);
    if (rc == 0) rc = http_body_sink_finish(&upload->sink, &err);
    if (rc == 0) rc = check_queue(exchange, &err);
    if (rc == 0) rc = submit(upload, &job, cost, &err);
    blasd_intake_free(upload->intake);
    upload->intake = NULL;
    if (rc != 0) refuse(exchange, &err);
}

/* The gate is open: the body is read as if it came now. */
static void let_in(struct http_exchange *exchange) {
    struct http_upload *upload = exchange->upload;
    struct blasd_err err = {0};
    int rc = open_intake(upload, &err);
    if (rc == 0 && upload->body.len > 0)
        rc = blasd_intake_feed(upload->intake, upload->body.data, upload->body.len, &err);
    if (rc == 0)
        run(exchange);
    else
        refuse(exchange, &err);
}

bool http_jobs_post_try(struct http_exchange *exchange, bool late) {
    struct blasd_err err = {0};
    int rc = check_queue(exchange, &err);
    if (rc != 0 && err.code == BLASD_E_queue_full && !late) return false;
    http_gate_leave(exchange);
    if (rc == 0)
        let_in(exchange);
    else
        refuse(exchange, &err);
    return true;
}

static void on_read(void *arg, const struct blasd_err *err) {
    struct http_exchange *exchange = arg;
    if (!http_exchange_open(exchange))
        discard(exchange->upload);
    else if (err != NULL)
        refuse(exchange, err);
    else
        run(exchange);
    http_exchange_release(exchange);
}

static void read_file(struct http_exchange *exchange) {
    struct http_upload *upload = exchange->upload;
    upload->handed = (struct http_handed){
        .sink = &upload->sink, .intake = upload->intake, .done = on_read, .arg = exchange};
    http_exchange_hold(exchange);
    http_handed_read(exchange->home, &upload->handed);
}

void http_jobs_post_run(struct http_exchange *exchange) {
    if (exchange->upload->held)
        http_gate_enter(exchange, false); /* the turn of the loop goes on there */
    else if (exchange->request.body_file != NULL)
        read_file(exchange); /* and here in share.c */
    else
        run(exchange);
}
