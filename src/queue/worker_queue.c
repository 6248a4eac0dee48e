/* The worker's side of the queue: its connection's beginning and end, and its lease.
 *
 * What each function does in Redis is told in functions/contract.lua. Read next: worker_turn.c (how
 * it ends jobs and comes by others), worker_blob.c. */
#include "queue/worker_side.h"

#include "base/clock.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TEXT_MOST BLASD_GIB
#define TIMEOUT_MS 2000

/* The first call makes the connection, waits for a Redis that is still loading, and asks for its
 * time. */
static int first_call(struct blasd_worker_queue *queue, struct blasd_err *err) {
    redisReply *reply;
    blasd_caller_command(&queue->caller, "TIME");
    int rc = blasd_caller_call(&queue->caller, &reply, err);
    if (rc < 0) return rc;
    if (reply->type == REDIS_REPLY_ARRAY && reply->elements == 2)
        queue->lease.offset_us = strtoll(reply->element[0]->str, NULL, 10) * 1000000 +
                                 strtoll(reply->element[1]->str, NULL, 10) -
                                 blasd_clock_ns() / 1000;
    freeReplyObject(reply);
    return blasd_link_open(queue->caller.redis, &queue->options, false, err);
}

int blasd_worker_queue_open(const struct blasd_queue_options *options,
                            struct blasd_worker_queue **ret, struct blasd_err *err) {
    struct blasd_worker_queue *queue = NULL;
    uint64_t quarter = options->limits->lease_ms / 4;
    int rc;
    *ret = NULL;
    queue = calloc(1, sizeof *queue);
    if (!queue) return blasd_fail(err, BLASD_E_internal_error, "", "Out of memory");
    struct blasd_buf *const bufs[] = {&queue->text, &queue->outputs, &queue->turns.refused,
                                      &queue->turns.entries, &queue->turns.begun};
    for (size_t i = 0; i < sizeof bufs / sizeof *bufs; i++) blasd_buf_init(bufs[i], TEXT_MOST);
    queue->options = *options;
    queue->segments = blasd_segments_new(options->store);
    queue->views = blasd_views_new(options->store);
    snprintf(queue->name, sizeof queue->name, "%s", options->name);
    queue->options.name = queue->name;
    queue->lease.device_class = queue->lease.thread[0] = '0';
    blasd_link_limits(options, &queue->limits);
    queue->caller.library = &blasd_queue_library;
    queue->caller.limits = queue->limits.text;
    queue->caller.timeout_ms = quarter < TIMEOUT_MS ? (int)quarter : TIMEOUT_MS;
    blasd_worker_turns_reset(&queue->turns);
    rc = queue->segments && queue->views
             ? blasd_link_parse(options->url, options->name, &queue->caller.address, err)
             : blasd_fail(err, BLASD_E_internal_error, "", "Out of memory");
    queue->options.url = NULL; /* what it said is in address */
    if (rc == 0) rc = first_call(queue, err);
    if (rc < 0)
        blasd_worker_queue_free(queue);
    else
        *ret = queue;
    return rc < 0 ? rc : 0; /* BLASD_QUEUE_UNSURE is for the commands to tell of */
}

void blasd_worker_queue_free(struct blasd_worker_queue *queue) {
    if (!queue) return;
    blasd_worker_turns_reset(&queue->turns);
    blasd_caller_release(&queue->caller);
    freeReplyObject(queue->turns.claimed);
    blasd_segments_free(queue->segments);
    blasd_views_free(queue->views);
    blasd_buf_release(&queue->turns.refused);
    blasd_buf_release(&queue->turns.entries);
    blasd_buf_release(&queue->turns.begun);
    blasd_buf_release(&queue->text);
    blasd_buf_release(&queue->outputs);
    free(queue);
}

/* The lease */

static int set_worker(struct blasd_worker_queue *queue, const char *worker, struct blasd_err *err) {
    size_t len = strlen(worker);
    if (len == 0 || len >= sizeof queue->lease.worker || strpbrk(worker, " \t\r\n{}"))
        return blasd_fail(err, BLASD_E_invalid_field, "name",
                          "A worker's name must be 1 to %zu characters without spaces and braces",
                          sizeof queue->lease.worker - 1);
    memcpy(queue->lease.worker, worker, len + 1);
    return 0;
}

int blasd_worker_queue_register(struct blasd_worker_queue *queue, const char *worker,
                                enum blasd_device_class device, const char *info, int64_t *epoch,
                                struct blasd_err *err) {
    struct blasd_worker_lease *lease = &queue->lease;
    redisReply *reply;
    if (device != BLASD_DEVICE_CPU && device != BLASD_DEVICE_CUDA)
        return blasd_fail(err, BLASD_E_invalid_field, "device", "A worker is of class cpu or cuda");
    int rc = set_worker(queue, worker, err);
    if (rc < 0) return rc;
    lease->device_class = device == BLASD_DEVICE_CPU ? '1' : '2';
    lease->epoch[0] = '\0';
    blasd_caller_function(&queue->caller, BLASD_QUEUE_FN("register"));
    blasd_caller_text(&queue->caller, lease->worker);
    blasd_caller_arg(&queue->caller, &lease->device_class, 1);
    blasd_caller_text(&queue->caller, info);
    blasd_caller_text(&queue->caller, blasd_store_identity(queue->options.store));
    rc = blasd_caller_call(&queue->caller, &reply, err);
    if (rc < 0) return rc;
    if (!reply || reply->type != REDIS_REPLY_ARRAY || reply->elements != 2 ||
        reply->element[0]->type != REDIS_REPLY_INTEGER ||
        reply->element[1]->type != REDIS_REPLY_INTEGER) {
        rc = blasd_caller_odd_reply("register", err);
    } else {
        *epoch = reply->element[1]->integer;
        lease->offset_us = reply->element[0]->integer - blasd_clock_ns() / 1000;
        snprintf(lease->epoch, sizeof lease->epoch, "%" PRId64, *epoch);
        blasd_worker_turns_reset(&queue->turns);
    }
    freeReplyObject(reply);
    return rc;
}

void blasd_worker_queue_join(struct blasd_worker_queue *queue, const char *worker, int64_t epoch,
                             int thread) {
    struct blasd_worker_lease *lease = &queue->lease;
    char text[sizeof lease->epoch];
    if (set_worker(queue, worker, NULL) < 0) return;
    lease->thread[0] = (char)('0' + thread);
    snprintf(text, sizeof text, "%" PRId64, epoch);
    if (strcmp(text, lease->epoch) == 0) return;
    memcpy(lease->epoch, text, sizeof text);
    blasd_worker_turns_reset(&queue->turns);
    queue->turns.watched = true; /* for all it knows, until a turn has been answered */
}

int blasd_worker_queue_renew(struct blasd_worker_queue *queue, const char *info, bool *lost,
                             struct blasd_err *err) {
    redisReply *reply;
    blasd_worker_leased(queue, BLASD_QUEUE_FN("lease"));
    blasd_caller_text(&queue->caller, "renew");
    blasd_caller_text(&queue->caller, info);
    int rc = blasd_caller_call(&queue->caller, &reply, err);
    *lost = rc == BLASD_CALL_LOST;
    if (rc == 0 && reply && reply->type == REDIS_REPLY_ARRAY && reply->elements == 10 &&
        reply->element[9]->type == REDIS_REPLY_STRING)
        blasd_link_take_limits(&queue->limits, reply->element[9]->str);
    freeReplyObject(reply);
    return rc < 0 ? rc : 0;
}

int blasd_worker_queue_copies(struct blasd_worker_queue *queue, const char *device,
                              const char (*ids)[BLASD_ID_LEN + 1], int count,
                              struct blasd_err *err) {
    blasd_worker_leased(queue, BLASD_QUEUE_FN("note"));
    blasd_caller_text(&queue->caller, "copies");
    blasd_caller_text(&queue->caller, device);
    for (int i = 0; i < count; i++) blasd_caller_text(&queue->caller, ids[i]);
    return blasd_caller_do(&queue->caller, err);
}

int blasd_worker_queue_figures(struct blasd_worker_queue *queue, const char *text,
                               struct blasd_err *err) {
    char key[BLASD_LINK_KEY_MAX], ms[24];
    blasd_link_key(key, queue->name, ":figures:%s", queue->lease.worker);
    snprintf(ms, sizeof ms, "%" PRIu64, 3 * queue->options.limits->lease_ms);
    blasd_caller_command(&queue->caller, "SET");
    blasd_caller_text(&queue->caller, key);
    blasd_caller_text(&queue->caller, text);
    blasd_caller_text(&queue->caller, "PX");
    blasd_caller_text(&queue->caller, ms);
    return blasd_caller_do(&queue->caller, err);
}

int blasd_worker_queue_release(struct blasd_worker_queue *queue, struct blasd_err *err) {
    if (!queue->lease.epoch[0]) return 0;
    blasd_worker_leased(queue, BLASD_QUEUE_FN("lease"));
    blasd_caller_text(&queue->caller, "release");
    int rc = blasd_caller_do(&queue->caller, err);
    if (rc < 0) return rc; /* a lease that is lost is released, too */
    queue->lease.epoch[0] = '\0';
    blasd_worker_turns_reset(&queue->turns);
    return 0;
}
