/* Slices on a worker's side: inputs where the front end put them, outputs into its own segments.
 *
 * Read next: segment.h. */
#include "queue/worker_side.h"

#include "base/clock.h"

#define ASK_NAMES 64 /* once a second, when all are asked for */
#define ASK_SOME 16  /* whenever another segment is full: under load they are freed in order */
#define TRIM_EVERY INT64_C(1000000000)

/* Which of our full segments are free again. */
static void ask(struct blasd_worker_queue *queue, bool all) {
    char names[ASK_NAMES][BLASD_BLOB_NAME];
    int count = blasd_segments_doubtful(queue->segments, names, all ? ASK_NAMES : ASK_SOME, all);
    redisReply *reply;
    if (count == 0) return;
    blasd_caller_function(&queue->caller, BLASD_QUEUE_FN("refs"));
    for (int i = 0; i < count; i++) blasd_caller_text(&queue->caller, names[i]);
    if (blasd_caller_call(&queue->caller, &reply, NULL) == 0 &&
        reply->type == REDIS_REPLY_STRING && reply->len == (__typeof__(reply->len))count)
        for (int i = 0; i < count; i++)
            if (reply->str[i] == '0') blasd_segments_reuse(queue->segments, names[i]);
    freeReplyObject(reply);
}

void blasd_worker_slices_trim(struct blasd_worker_queue *queue) {
    int64_t now = blasd_clock_ns();
    if (now - queue->trimmed_ns < TRIM_EVERY) return;
    queue->trimmed_ns = now;
    ask(queue, true);
    blasd_segments_trim(queue->segments);
    blasd_views_trim(queue->views);
}

void blasd_worker_queue_tidy(struct blasd_worker_queue *queue) {
    blasd_worker_slices_trim(queue);
}

int blasd_worker_queue_slice_get(struct blasd_worker_queue *queue, const struct blasd_slice *slice,
                                 uint64_t bytes, const void **ret, struct blasd_view **hold,
                                 struct blasd_err *err) {
    *ret = blasd_views_get(queue->views, slice, bytes, hold);
    if (*ret != NULL) return 0;
    return blasd_fail(err, BLASD_E_inputs_lost, "", "the tensors are not in the blob store");
}

void *blasd_worker_queue_slice_take(struct blasd_worker_queue *queue, const char *id,
                                    uint64_t bytes, struct blasd_slice *slice) {
    if (!blasd_segments_wanted(queue->segments, bytes)) return NULL;
    ask(queue, false);
    return blasd_segments_take(queue->segments, blasd_segment_kind_of(id), bytes, slice);
}

void blasd_worker_queue_slice_done(struct blasd_worker_queue *queue,
                                   const struct blasd_slice *slice, bool sure) {
    blasd_segments_unpin(queue->segments, slice, sure);
}
