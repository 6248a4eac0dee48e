/* The choice itself is the queues' (../queue/front_queues.h): here is what of a request it depends
 * on. */
#include "http/upload_queue.h"

#include <inttypes.h>
#include <string.h>

uint64_t http_upload_bytes(const struct http_upload *upload) {
    const struct http_request *request = &upload->exchange->request;
    return request->body_file != NULL ? upload->sink.total : request->framing.content_length;
}

/* What it takes of the queue at the least: as much as its body or, once that was read, its job. */
static uint64_t least_bytes(const struct http_upload *upload) {
    uint64_t bytes = http_upload_bytes(upload);
    return upload->cost > bytes ? upload->cost : bytes;
}

/* What the queue would say anyway, said before the body is read. */
static int check_queue(const struct http_exchange *exchange, struct blasd_err *err) {
    const struct blasd_queue_view *view = blasd_front_queue_view(http_queue(exchange));
    uint64_t bytes = least_bytes(exchange->upload);
    uint64_t jobs =
        view->jobs +
        exchange->home->submitting[blasd_front_queues_number(exchange->home->queues, exchange->id)];
    if (exchange->home->stopping.draining)
        return blasd_fail(err, BLASD_E_draining, "", "the service takes no new jobs");
    if (!view->available)
        return blasd_fail(err, view->trouble->code, "", "%s", view->trouble->detail);
    if (view->kept >= view->kept_limit && !(exchange->upload->wait_s > 0))
        return blasd_fail(err, BLASD_E_results_full, "",
                          "results that were promised take all the %" PRIu64
                          " bytes there are for them (limit record_bytes)",
                          view->kept_limit);
    if (jobs >= view->jobs_limit)
        return blasd_fail(err, BLASD_E_queue_full, "",
                          "%" PRIu64 " jobs are queued or running, and no more may be (limit "
                          "queue_jobs)",
                          view->jobs_limit);
    if (bytes > view->bytes_limit)
        return blasd_fail(err, BLASD_E_body_too_large, "",
                          "the body has %" PRIu64 " bytes, and the whole queue takes %" PRIu64
                          " (limit queue_bytes)",
                          bytes, view->bytes_limit);
    if (view->bytes > view->bytes_limit - bytes)
        return blasd_fail(err, BLASD_E_queue_full, "",
                          "%" PRIu64 " bytes more than are queued or running do not fit: %" PRIu64
                          " at the most (limit queue_bytes)",
                          bytes, view->bytes_limit);
    return 0;
}

static struct blasd_front_want want_of(const struct http_upload *upload) {
    const struct http_exchange *exchange = upload->exchange;
    return (struct blasd_front_want){.principal = &exchange->caller.principal,
                                     .coming = exchange->home->submitting,
                                     .bytes = least_bytes(upload),
                                     .waited_for = upload->wait_s > 0,
                                     .keyed = exchange->request.idempotency_key != NULL};
}

static void make_id(struct http_upload *upload, struct blasd_front_queue *queue,
                    char id[BLASD_ID_LEN + 1]) {
    blasd_front_queue_id(queue, &upload->exchange->caller.principal,
                         upload->wait_s > 0 ? BLASD_ID_SYNC : BLASD_ID_ASYNC, id);
}

void http_upload_choose(struct http_upload *upload) {
    const struct blasd_front_want want = want_of(upload);
    make_id(upload, blasd_front_queues_choose(upload->exchange->home->queues, &want),
            upload->exchange->id);
}

/* Inputs that have come into a blob are called after the job. */
static int go_to(struct http_upload *upload, struct blasd_front_queue *queue,
                 struct blasd_err *err) {
    struct http_exchange *exchange = upload->exchange;
    char id[BLASD_ID_LEN + 1], name[BLASD_BLOB_NAME];
    int rc = 0;
    if (queue == http_queue(exchange)) return 0;
    make_id(upload, queue, id);
    snprintf(name, sizeof name, "%s.in", id);
    if (http_body_sink_in_blob(&upload->sink))
        rc = blasd_blob_rename(&upload->sink.blob, name, err);
    if (rc == 0) memcpy(exchange->id, id, sizeof exchange->id);
    return rc;
}

int http_upload_follow(struct http_upload *upload, const struct blasd_job *job,
                       struct blasd_err *err) {
    const struct http_exchange *exchange = upload->exchange;
    const struct blasd_front_queues *queues = exchange->home->queues;
    struct blasd_front_queue *queue = blasd_front_queues_home(queues, &exchange->caller.principal);
    upload->references.bound = blasd_job_refers(job) || job->keeping.keep != 0;
    if (!upload->references.bound) return 0;
    for (int i = BLASD_MAX_INPUTS; i-- > 0;)
        if (blasd_source_refers(&job->inputs[i].source))
            queue = blasd_front_queues_of(queues, job->inputs[i].reference.id);
    return go_to(upload, queue, err);
}

int http_upload_find_room(struct http_upload *upload, struct blasd_err *err) {
    const struct blasd_front_want want = want_of(upload);
    int rc = check_queue(upload->exchange, err);
    if (rc == 0 || upload->references.bound || blasd_front_queues_bound(&want)) return rc;
    struct blasd_front_queue *queue =
        blasd_front_queues_choose(upload->exchange->home->queues, &want);
    if (queue == http_queue(upload->exchange)) return rc;
    *err = (struct blasd_err){0};
    rc = go_to(upload, queue, err);
    return rc == 0 ? check_queue(upload->exchange, err) : rc;
}
