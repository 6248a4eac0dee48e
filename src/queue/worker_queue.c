/* The worker's side of the queue: its connection's beginning and end, and its lease.
 *
 * What each function does in Redis is told in functions/contract.lua. Read next: worker_claim.c
 * (how it comes by jobs), worker_end.c, worker_link.c (the connection), worker_blob.c. */
#include "queue/worker_link.h"

#include "base/clock.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TEXT_MOST BLASD_GIB

int blasd_worker_queue_open(const struct blasd_queue_options *options,
                            struct blasd_worker_queue **ret, struct blasd_err *err) {
    struct blasd_worker_queue *queue = NULL;
    int rc = blasd_link_check_name(options->name, err);
    *ret = NULL;
    if (rc < 0) return rc;
    queue = calloc(1, sizeof *queue);
    if (!queue) return blasd_fail(err, BLASD_E_internal_error, "", "Out of memory");
    blasd_buf_init(&queue->text, TEXT_MOST);
    blasd_buf_init(&queue->outputs, TEXT_MOST);
    queue->options = *options;
    queue->segments = blasd_segments_new(options->store);
    queue->views = blasd_views_new(options->store);
    snprintf(queue->name, sizeof queue->name, "%s", options->name);
    queue->options.name = queue->name;
    snprintf(queue->tag, sizeof queue->tag, "{%s}", queue->name);
    queue->device_class = queue->part[0] = '0';
    blasd_link_limits(options, &queue->limits);
    rc = queue->segments && queue->views
             ? blasd_link_parse(options->url, &queue->address, err)
             : blasd_fail(err, BLASD_E_internal_error, "", "Out of memory");
    queue->options.url = NULL; /* what it said is in address */
    if (rc < 0) goto fail;
    /* the first call makes the connection, and waits for a Redis that is still loading */
    blasd_worker_command(queue, "PING");
    redisReply *reply;
    rc = blasd_worker_call(queue, blasd_worker_patience(queue), &reply, err);
    freeReplyObject(reply);
    if (rc == 0) rc = blasd_link_open(queue->redis, &queue->options, false, err);
    if (rc < 0) goto fail; /* else it may be BLASD_QUEUE_UNSURE */
    *ret = queue;
    return 0;
fail:
    blasd_worker_queue_free(queue);
    return rc;
}

void blasd_worker_queue_free(struct blasd_worker_queue *queue) {
    if (!queue) return;
    blasd_worker_hang_up(queue);
    freeReplyObject(queue->claimed);
    blasd_segments_free(queue->segments);
    blasd_views_free(queue->views);
    blasd_held_release(&queue->held);
    blasd_buf_release(&queue->text);
    blasd_buf_release(&queue->outputs);
    blasd_worker_wait_forget(queue);
    free(queue->argv);
    free(queue->lens);
    free(queue);
}

/* The lease */

static int set_worker(struct blasd_worker_queue *queue, const char *worker, struct blasd_err *err) {
    size_t len = strlen(worker);
    if (len == 0 || len >= sizeof queue->worker || strpbrk(worker, " \t\r\n{}"))
        return blasd_fail(err, BLASD_E_invalid_field, "name",
                          "A worker's name must be 1 to %zu characters without spaces and braces",
                          sizeof queue->worker - 1);
    memcpy(queue->worker, worker, len + 1);
    blasd_worker_wait_forget(queue);
    return 0;
}

void blasd_worker_forget(struct blasd_worker_queue *queue) {
    blasd_held_clear(&queue->held);
    queue->idle = queue->may_wait = queue->claim_missed = queue->finish_missed = false;
    queue->handed = queue->rested = false;
    queue->asked_jobs = 0;
}

int blasd_worker_queue_register(struct blasd_worker_queue *queue, const char *worker,
                                enum blasd_device_class device, const char *info, int64_t *epoch,
                                struct blasd_err *err) {
    redisReply *reply;
    if (device != BLASD_DEVICE_CPU && device != BLASD_DEVICE_CUDA)
        return blasd_fail(err, BLASD_E_invalid_field, "device", "A worker is of class cpu or cuda");
    int rc = set_worker(queue, worker, err);
    if (rc < 0) return rc;
    queue->device_class = device == BLASD_DEVICE_CPU ? '1' : '2';
    queue->epoch[0] = '\0';
    blasd_worker_function(queue, BLASD_LINK_FN("register"));
    blasd_worker_text(queue, queue->worker);
    blasd_worker_arg(queue, &queue->device_class, 1);
    blasd_worker_text(queue, info);
    blasd_worker_text(queue, blasd_store_identity(queue->options.store));
    rc = blasd_worker_call(queue, blasd_worker_patience(queue), &reply, err);
    if (rc < 0) return rc;
    if (!reply || reply->type != REDIS_REPLY_ARRAY || reply->elements != 2 ||
        reply->element[0]->type != REDIS_REPLY_INTEGER ||
        reply->element[1]->type != REDIS_REPLY_INTEGER) {
        rc = blasd_worker_odd_reply("register", err);
    } else {
        *epoch = reply->element[1]->integer;
        queue->offset_us = reply->element[0]->integer - blasd_clock_ns() / 1000;
        snprintf(queue->epoch, sizeof queue->epoch, "%" PRId64, *epoch);
        blasd_worker_forget(queue);
    }
    freeReplyObject(reply);
    return rc;
}

void blasd_worker_queue_join(struct blasd_worker_queue *queue, const char *worker, int64_t epoch) {
    if (set_worker(queue, worker, NULL) < 0) return;
    snprintf(queue->epoch, sizeof queue->epoch, "%" PRId64, epoch);
}

void blasd_worker_queue_join_part(struct blasd_worker_queue *queue,
                                  const struct blasd_worker_queue *claims, int part) {
    if (set_worker(queue, claims->worker, NULL) < 0) return;
    memcpy(queue->epoch, claims->epoch, sizeof queue->epoch);
    blasd_worker_forget(queue);
    queue->offset_us = claims->offset_us;
    queue->part[0] = (char)('0' + part);
}

void blasd_worker_leased(struct blasd_worker_queue *queue, const char *function) {
    blasd_worker_function(queue, function);
    blasd_worker_text(queue, queue->worker);
    blasd_worker_text(queue, queue->epoch);
}

int blasd_worker_queue_renew(struct blasd_worker_queue *queue, const char *info, bool *lost,
                             struct blasd_err *err) {
    redisReply *reply;
    blasd_worker_leased(queue, BLASD_LINK_FN("renew"));
    blasd_worker_text(queue, info);
    int rc = blasd_worker_call(queue, blasd_worker_patience(queue), &reply, err);
    *lost = rc == BLASD_WORKER_LOST;
    freeReplyObject(reply);
    return rc < 0 ? rc : 0;
}

int blasd_worker_queue_release(struct blasd_worker_queue *queue, struct blasd_err *err) {
    redisReply *reply;
    if (!queue->epoch[0]) return 0;
    blasd_worker_leased(queue, BLASD_LINK_FN("release"));
    int rc = blasd_worker_call(queue, blasd_worker_patience(queue), &reply, err);
    freeReplyObject(reply);
    if (rc < 0) return rc; /* a lease that is lost is released, too */
    queue->epoch[0] = '\0';
    blasd_worker_forget(queue);
    return 0;
}

int blasd_worker_queue_bury(struct blasd_worker_queue *queue, const char *worker,
                            struct blasd_err *err) {
    redisReply *reply;
    blasd_worker_function(queue, BLASD_LINK_FN("bury"));
    blasd_worker_text(queue, worker);
    int rc = blasd_worker_call(queue, blasd_worker_patience(queue), &reply, err);
    freeReplyObject(reply);
    return rc < 0 ? rc : 0;
}
