/* POST /jobs, up to the queue: what is refused before a byte is read, the body that comes, and the
 * job it makes, checked. Read next: jobs_submit.c. */
#include "http/admission.h"
#include "http/dry_run.h"
#include "http/jobs.h"
#include "http/remote_inputs.h"
#include "http/reply.h"
#include "http/tensors.h"
#include "http/upload.h"
#include "http/upload_queue.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void drop_job(struct blasd_job *job) {
    if (job == NULL) return;
    blasd_job_release(job);
    free(job);
}

static void forget_sent(struct http_upload *upload) {
    struct blasd_input *sent = upload->references.sent;
    for (int i = 0; sent != NULL && i < BLASD_MAX_INPUTS; i++) free(sent[i].reference);
    free(sent);
    upload->references.sent = NULL;
}

void http_jobs_post_release(struct http_exchange *exchange) {
    struct http_upload *upload = exchange->upload;
    http_remote_inputs_free(upload->elsewhere.remote);
    blasd_intake_free(upload->intake);
    http_body_sink_release(&upload->sink);
    http_unpacker_free(upload->unpacker);
    drop_job(upload->job);
    free(upload->steps.of);
    blasd_buf_release(&upload->steps.results);
    forget_sent(upload);
    free(upload->notify);
    blasd_freelist_give(&exchange->home->freelists.uploads, upload);
}

/* Ends the taking in: nothing of the body is wanted any more. */
static void discard(struct http_upload *upload) {
    bool stored = http_body_sink_in_blob(&upload->sink);
    blasd_intake_free(upload->intake);
    upload->intake = NULL;
    http_body_sink_release(&upload->sink);
    if (stored) blasd_front_queue_blob_remove(http_queue(upload->exchange), upload->sink.blob.name);
}

static void refuse(struct http_exchange *exchange, const struct blasd_err *err) {
    if (exchange->upload != NULL) discard(exchange->upload);
    http_reply_problem(exchange, err);
}

static int check_length(struct http_upload *upload, uint64_t bytes, struct blasd_err *err) {
    bool json;
    if (bytes <= upload->body_limit) return 0;
    json = http_request_is_json(&upload->exchange->request);
    return blasd_fail(err, BLASD_E_body_too_large, "",
                      "the body has %" PRIu64 " bytes or more; at most %" PRIu64
                      " are taken (limit %s)",
                      bytes, upload->body_limit, json ? "json_bytes" : "body_bytes");
}

static int read_accept(struct http_exchange *exchange, bool wait, struct blasd_err *err) {
    enum blasd_format format = BLASD_FORMAT_JSON;
    /* what is answered without waiting is always a JSON document */
    if (wait && !blasd_accept_choose(&exchange->request.accepts, true, &format))
        return blasd_fail(err, BLASD_E_not_acceptable, "Accept",
                          "no answer to this request has a format that '%.100s' names",
                          exchange->request.accept);
    exchange->wanted.format = (int)format;
    return 0;
}

#define TWINS                                                                                      \
    (HTTP_PARAM_OP | HTTP_PARAM_PARAMS | HTTP_PARAM_PRIORITY | HTTP_PARAM_DEADLINE |               \
     HTTP_PARAM_DEVICE | HTTP_PARAM_LABELS | HTTP_PARAM_KEEP | HTTP_PARAM_RESULTS |                \
     HTTP_PARAM_NOTIFY | HTTP_PARAM_DIGEST)

/* A JSON body has members for what the query says of bodies that have none. */
static int check_query(const struct http_request *request, struct blasd_err *err) {
    if ((request->query.given & TWINS) == 0 || !http_request_is_json(request)) return 0;
    return blasd_fail(err, BLASD_E_malformed_query, http_param_name(request->query.given & TWINS),
                      "this is a member of a JSON body: the query has it for other bodies");
}

/* From now on the body is parsed as it comes. */
static int open_intake(struct http_upload *upload, struct blasd_err *err) {
    const struct http_request *request = &upload->exchange->request;
    bool file = request->body_file != NULL;
    struct blasd_intake_options options = {.content_type =
                                               file ? HTTP_SHARED_FILE_TYPE : request->content_type,
                                           .op = request->query.op,
                                           .params = request->query.params,
                                           .priority = request->query.priority,
                                           .deadline_ms = request->query.deadline_ms,
                                           .device = request->query.device,
                                           .keep = request->query.keep,
                                           .results = request->query.results,
                                           .ceiling = upload->exchange->caller.ceiling,
                                           .graph = upload->exchange->form.graph,
                                           .labels = request->query.labels,
                                           .notify = request->query.notify,
                                           .digest = request->query.digest,
                                           .content_length = file ? http_upload_bytes(upload) : 0,
                                           .limits = upload->exchange->home->server->limits,
                                           .account = &upload->exchange->memory,
                                           .freelist = &upload->exchange->home->freelists.intakes};
    if (upload->exchange->form.dialect != NULL)
        upload->exchange->form.dialect->intake(upload->exchange, &options);
    return blasd_intake_new(&options, &upload->sink.base, &upload->intake, err);
}

/* Whether there is room in the queue; the job of a small request waits for it, once it is read. */
static int check_room(struct http_upload *upload, struct blasd_err *err) {
    struct http_exchange *exchange = upload->exchange;
    int rc;
    if (exchange->request.query.dry_run) return 0; /* it takes none */
    rc = http_upload_find_room(upload, err);
    if (err->code != BLASD_E_queue_full || !http_admission_suits(exchange)) return rc;
    *err = (struct blasd_err){0};
    return 0;
}

static int start(struct http_upload *upload, struct blasd_err *err) {
    struct http_exchange *exchange = upload->exchange;
    const struct blasd_limits *limits = exchange->home->server->limits;
    const struct http_request *request = &exchange->request;
    bool preferred;
    int rc;
    upload->wait_s = http_request_wait(request, limits, &preferred);
    if ((rc = check_query(request, err)) != 0) return rc;
    if (request->query.dry_run) upload->wait_s = 0; /* there is nothing to wait for */
    upload->body_limit = http_request_is_json(request) ? limits->json_bytes : limits->body_bytes;
    if ((rc = read_accept(exchange, upload->wait_s > 0, err)) != 0) return rc;
    http_upload_id(upload);
    if (request->body_file != NULL &&
        (rc = http_shared_file_adopt(exchange, &upload->sink, err)) != 0)
        return rc;
    if ((rc = check_length(upload, http_upload_bytes(upload), err)) != 0) return rc;
    if ((rc = check_room(upload, err)) != 0) return rc;
    http_body_sink_expect(&upload->sink, request, upload->body_limit);
    if ((rc = http_body_sink_intake(&upload->sink, request->framing.content_length, err)) != 0)
        return rc;
    return open_intake(upload, err);
}

void http_jobs_post_begin(struct http_exchange *exchange) {
    struct http_upload *upload = blasd_freelist_take_zeroed(&exchange->home->freelists.uploads);
    struct blasd_err err = {0};
    if (upload == NULL) {
        http_reply_no_memory(exchange);
        return;
    }
    exchange->upload = upload;
    upload->exchange = exchange;
    http_body_sink_init(&upload->sink, exchange);
    if (start(upload, &err) != 0) refuse(exchange, &err);
}

static int take_unpacked(void *arg, const void *bytes, size_t len, struct blasd_err *err) {
    return blasd_intake_feed(arg, bytes, len, err);
}

/* Parses the next piece of the body, or, of one that is compressed, as much as one turn is for. */
static int feed(struct http_upload *upload, const void *bytes, size_t len, struct blasd_err *err) {
    enum http_coding coding = upload->exchange->request.coding;
    struct http_turn *turn = &upload->exchange->home->turn;
    size_t used = len;
    uint64_t before;
    int rc;
    if (coding == HTTP_CODING_NONE) return blasd_intake_feed(upload->intake, bytes, len, err);
    if (upload->unpacker == NULL) {
        rc = http_exchange_reserve(upload->exchange, HTTP_UNPACKER_BYTES, err);
        if (rc != 0) return rc;
        upload->unpacker = http_unpacker_new(coding);
    }
    if (upload->unpacker == NULL) return blasd_no_memory(err);
    if (turn->unpacked >= HTTP_UNPACK_TURN) { /* of all bodies together */
        upload->exchange->body.left = len;
        return 0;
    }
    before = http_unpacked(upload->unpacker);
    rc = http_unpack(upload->unpacker, bytes, len, &used, upload->body_limit, take_unpacked,
                     upload->intake, err);
    turn->unpacked += http_unpacked(upload->unpacker) - before;
    upload->exchange->body.left = len - used;
    return rc == 0 ? http_body_sink_intake(&upload->sink, http_unpacked(upload->unpacker), err)
                   : rc;
}

void http_jobs_post_body(struct http_exchange *exchange, const void *bytes, size_t len) {
    struct http_upload *upload = exchange->upload;
    struct blasd_err err = {0};
    int rc = check_length(upload, exchange->body.seen, &err);
    if (rc == 0 && exchange->request.framing.chunked)
        rc = http_body_sink_intake(&upload->sink, exchange->body.seen, &err);
    if (rc == 0) rc = feed(upload, bytes, len, &err);
    if (rc != 0) refuse(exchange, &err);
}

/* Moves the job to the upload, which keeps it while something else comes first. */
static bool hold_job(struct http_upload *upload, struct blasd_job *job) {
    upload->job = malloc(blasd_job_size(job->op));
    if (upload->job == NULL) return false;
    blasd_job_share(job, upload->job);
    job->op = NULL;
    return true;
}

/* Gives the job to the queue, or has it wait for room there behind those that do already. One that
 * may wait is kept, with its tensors, until the queue has it: the queue may be full after all. */
static int send_job(struct http_upload *upload, struct blasd_job *job, uint64_t cost,
                    struct blasd_err *err) {
    struct http_exchange *exchange = upload->exchange;
    int rc = http_upload_find_room(upload, err);
    bool may_wait = http_admission_suits(exchange);
    if (rc != 0 && (err->code != BLASD_E_queue_full || !may_wait)) return rc;
    if (!may_wait) return http_upload_submit(upload, job, cost, err);
    if (!hold_job(upload, job)) return blasd_no_memory(err);
    upload->cost = cost;
    if (rc == 0 && !http_admission_busy(exchange->home))
        return http_upload_submit(upload, upload->job, cost, err);
    http_admission_wait(exchange, false);
    return 0;
}

/* The job is known, and what its inputs refer to. */
static void settle(struct http_exchange *exchange, struct blasd_job *job) {
    struct http_upload *upload = exchange->upload;
    struct blasd_err err = {0};
    struct http_checked checked;
    int rc = http_upload_check(upload, job, &checked, &err);
    if (rc == 0 && exchange->request.query.dry_run) {
        rc = http_dry_run(exchange, job, &checked.plan, checked.memory, &err);
        if (rc == 0) {
            discard(upload);
            return;
        }
    }
    if (rc == 0) http_upload_place(upload, job, &checked);
    if (rc == 0) rc = http_body_sink_finish(&upload->sink, &err);
    if (rc == 0) rc = send_job(upload, job, checked.cost, &err);
    if (rc != 0) refuse(exchange, &err);
}

/* Where memory is short the dry run does without. */
static void tell_results(struct http_upload *upload) {
    struct blasd_buf *results = &upload->steps.results;
    blasd_buf_release(results);
    blasd_buf_init(results, BLASD_MIB);
    if (blasd_intake_outputs(upload->intake, results) != 0) blasd_buf_reset(results);
}

/* The body is read: of a graph it leaves what the steps take, which is not said of the job. */
static void close_intake(struct http_upload *upload) {
    if (upload->intake == NULL) return;
    upload->steps.of = blasd_intake_costs(upload->intake, &upload->steps.count);
    if (upload->exchange->request.query.dry_run) tell_results(upload);
    blasd_intake_free(upload->intake);
    upload->intake = NULL;
}

/* What is referred to may have gone since the request came first. */
static bool may_be_known(const struct http_exchange *exchange, const struct blasd_err *err) {
    return exchange->upload->references.sent != NULL && !exchange->request.query.dry_run &&
           !blasd_err_info(err->code)->retry;
}

static void on_resolved(void *arg, const struct blasd_err *err) {
    struct http_exchange *exchange = arg;
    struct http_upload *upload = exchange->upload;
    struct blasd_job *job = upload->job;
    upload->job = NULL;
    struct blasd_err own = {0};
    if (upload->intake != NULL && err == NULL && blasd_intake_refer(upload->intake, job, &own) != 0)
        err = &own;
    close_intake(upload);
    if (!http_exchange_open(exchange))
        discard(upload);
    else if (err != NULL &&
             (!may_be_known(exchange, err) || http_upload_ask(upload, job, err, &own) != 0))
        refuse(exchange, err);
    else if (err == NULL)
        settle(exchange, job);
    drop_job(job);
    http_exchange_release(exchange);
}

/* Keeps the inputs as they came. */
static int note_sent(struct http_upload *upload, const struct blasd_job *job,
                     struct blasd_err *err) {
    int rc = 0;
    upload->references.sent = calloc(BLASD_MAX_INPUTS, sizeof *upload->references.sent);
    if (upload->references.sent == NULL) return blasd_no_memory(err);
    for (int i = 0; rc == 0 && job->op->inputs[i].name != NULL; i++)
        rc = blasd_input_copy(&upload->references.sent[i], &job->inputs[i], err);
    return rc;
}

static int resolve(struct http_upload *upload, struct blasd_job *read, struct blasd_err *err) {
    const struct blasd_job *job;
    int rc;
    if (!hold_job(upload, read)) return blasd_no_memory(err);
    job = upload->job;
    if (upload->exchange->request.idempotency_key != NULL) {
        if ((rc = note_sent(upload, job, err)) != 0) return rc;
        if (job->op->composed && (rc = http_upload_fingerprint(upload, job, err)) != 0) return rc;
    }
    if (!job->op
             ->composed) { /* many may wait for the answer: what read the body is free for others */
        blasd_intake_free(upload->intake);
        upload->intake = NULL;
    }
    http_exchange_enter(upload->exchange, HTTP_AT_RESOLVING);
    return http_references_resolve(upload, on_resolved, err);
}

/* Takes the URL that is to be told, where the operator lets clients name it. */
static int take_notify(struct http_upload *upload, struct blasd_err *err) {
    const struct blasd_http_options *options = upload->exchange->home->server->options;
    const char *url = blasd_intake_notify(upload->intake);
    char plain[BLASD_OUTGOING_URL];
    int rc;
    if (url == NULL) return 0;
    if (!options->webhooks)
        return blasd_fail(err, BLASD_E_url_not_allowed, "notify",
                          "this service sends no webhooks: it was started without "
                          "--webhook-secrets");
    rc = blasd_outgoing_check(options->outgoing, url, strlen(url), "notify", plain, err);
    if (rc != 0) return rc;
    upload->notify = strdup(plain);
    if (upload->notify != NULL) return 0;
    return blasd_no_memory(err);
}

/* Nothing of the body, or of what belongs to it, is still to come. */
static void finish(struct http_exchange *exchange) {
    struct http_upload *upload = exchange->upload;
    struct blasd_job job;
    struct blasd_err err = {0};
    int rc;
    job.op = NULL;
    rc = blasd_intake_finish(upload->intake, &job, &err);
    if (job.op != NULL) upload->op = job.op->name;
    if (rc == 0) rc = take_notify(upload, &err);
    if (rc == 0 && blasd_job_refers(&job)) {
        rc = resolve(upload, &job, &err);
    } else {
        close_intake(upload);
        if (rc == 0) settle(exchange, &job);
    }
    if (rc != 0) refuse(exchange, &err);
    blasd_job_release(&job);
}

static void on_fetched(void *arg, const struct blasd_err *err) {
    struct http_exchange *exchange = arg;
    struct http_upload *upload = exchange->upload;
    if (!http_exchange_open(exchange))
        discard(upload);
    else if (err != NULL)
        refuse(exchange, err);
    else
        finish(exchange);
    http_exchange_release(exchange);
}

/* Nothing of the body is still to come; inputs may lie at URLs. */
static void fetch(struct http_exchange *exchange) {
    struct http_upload *upload = exchange->upload;
    struct blasd_err err = {0};
    int rc = http_remote_inputs_gather(exchange, upload->intake, &upload->sink, on_fetched,
                                       &upload->elsewhere.remote, &err);
    if (rc < 0)
        refuse(exchange, &err);
    else if (rc == 0)
        finish(exchange);
}

static void on_file_read(void *arg, const struct blasd_err *err) {
    struct http_exchange *exchange = arg;
    if (!http_exchange_open(exchange))
        discard(exchange->upload);
    else if (err != NULL)
        refuse(exchange, err);
    else
        fetch(exchange);
    http_exchange_release(exchange);
}

static void run(struct http_exchange *exchange) {
    struct blasd_err err = {0};
    int rc = 0;
    if (exchange->upload->unpacker != NULL) rc = http_unpack_end(exchange->upload->unpacker, &err);
    if (rc != 0)
        refuse(exchange, &err);
    else
        fetch(exchange);
}

bool http_jobs_post_admit(struct http_exchange *exchange, bool late) {
    struct http_upload *upload = exchange->upload;
    struct blasd_err err = {0};
    int rc = http_upload_find_room(upload, &err);
    if (rc != 0 && err.code == BLASD_E_queue_full && !late) return false;
    if (rc == 0) rc = http_upload_submit(upload, upload->job, upload->cost, &err);
    if (rc != 0) refuse(exchange, &err);
    return true;
}

static void read_file(struct http_exchange *exchange) {
    struct http_upload *upload = exchange->upload;
    upload->elsewhere.file = (struct http_shared_file){
        .sink = &upload->sink, .intake = upload->intake, .done = on_file_read, .arg = exchange};
    http_exchange_hold(exchange);
    http_shared_file_read(exchange->home, &upload->elsewhere.file);
}

void http_jobs_post_run(struct http_exchange *exchange) {
    if (exchange->request.body_file != NULL)
        read_file(exchange); /* the turn of the loop goes on in shared_files.c */
    else
        run(exchange);
}
