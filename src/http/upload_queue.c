/* The id of an upload's job, and whether the queue has room for it. */
#include "http/upload_queue.h"

#include <inttypes.h>

uint64_t http_upload_bytes(const struct http_upload *upload) {
    const struct http_request *request = &upload->exchange->request;
    return request->body_file != NULL ? upload->sink.total : request->framing.content_length;
}

/* What it takes of the queue at the least: as much as its body or, once that was read, its job. */
static uint64_t least_bytes(const struct http_upload *upload) {
    uint64_t bytes = http_upload_bytes(upload);
    return upload->cost > bytes ? upload->cost : bytes;
}

int http_upload_find_room(const struct http_upload *upload, struct blasd_err *err) {
    const struct http_exchange *exchange = upload->exchange;
    const struct blasd_queue_view *view = blasd_front_queue_view(http_queue(exchange));
    uint64_t bytes = least_bytes(upload);
    uint64_t jobs = view->jobs + exchange->home->submitting;
    if (exchange->home->stopping.draining)
        return blasd_fail(err, BLASD_E_draining, "", "the service takes no new jobs");
    if (!view->available)
        return blasd_fail(err, view->trouble->code, "", "%s", view->trouble->detail);
    if (view->kept >= view->kept_limit && !(upload->wait_s > 0))
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

void http_upload_id(struct http_upload *upload) {
    blasd_front_queue_id(http_queue(upload->exchange), &upload->exchange->caller.principal,
                         upload->wait_s > 0 ? BLASD_ID_SYNC : BLASD_ID_ASYNC, upload->exchange->id);
}
