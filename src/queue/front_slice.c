/* Slices on the front end's side: inputs into its own segments, outputs out of the workers'.
 *
 * Read next: segment.h. */
#include "queue/front.h"

#include "base/clock.h"

#include <string.h>

#define ASK_NAMES 64

struct ask {
    struct front_call call;
    int count;
    char names[ASK_NAMES][BLASD_BLOB_NAME];
};

void *blasd_front_queue_slice_take(struct blasd_front_queue *queue, const char *id, uint64_t bytes,
                                   struct blasd_slice *slice) {
    return blasd_segments_take(queue->slices.segments, blasd_segment_kind_of(id), bytes, slice);
}

void blasd_front_queue_slice_drop(struct blasd_front_queue *queue,
                                  const struct blasd_slice *slice) {
    blasd_segments_unpin(queue->slices.segments, slice, true);
}

static int gone(struct blasd_err *err) {
    return blasd_fail(err, BLASD_E_record_expired, "", "the outputs of the job are no longer kept");
}

const void *blasd_front_queue_slice_look(struct blasd_front_queue *queue,
                                         const struct blasd_slice *slice, uint64_t bytes,
                                         struct blasd_view **hold, struct blasd_err *err) {
    const void *at = blasd_views_get(queue->slices.views, slice, bytes, hold);
    if (at == NULL) gone(err);
    return at;
}

int blasd_front_queue_slice_let_go(struct blasd_view *hold, const struct blasd_slice *slice,
                                   struct blasd_err *err) {
    bool valid = hold == NULL || blasd_views_valid(hold, slice);
    blasd_views_let_go(hold);
    return valid ? 0 : gone(err);
}

int blasd_front_queue_slice_read(struct blasd_front_queue *queue, const struct blasd_slice *slice,
                                 uint64_t bytes, struct blasd_buf *out, struct blasd_err *err) {
    struct blasd_view *hold;
    const void *at = blasd_front_queue_slice_look(queue, slice, bytes, &hold, err);
    size_t start = out->len;
    int rc = 0, late;
    if (at == NULL) return -(int)err->code;
    if (blasd_buf_add(out, at, (size_t)bytes) != 0)
        rc = blasd_fail(err, BLASD_E_no_space, "", "memory has run out");
    late = blasd_front_queue_slice_let_go(hold, slice, err);
    if (late != 0) rc = late;
    if (rc != 0) out->len = start;
    return rc;
}

static void asked(struct front_call *call, const redisReply *reply, const struct blasd_err *err) {
    struct ask *ask = blasd_container_of(call, struct ask, call);
    struct blasd_front_queue *queue = call->queue;
    queue->slices.asking = false;
    if (err != NULL || reply == NULL || reply->type != REDIS_REPLY_STRING ||
        reply->len != (__typeof__(reply->len))ask->count)
        return;
    for (int i = 0; i < ask->count; i++)
        if (reply->str[i] == '0') blasd_segments_reuse(queue->slices.segments, ask->names[i]);
}

void front_slices_ask(struct blasd_front_queue *queue, bool all) {
    char names[ASK_NAMES][BLASD_BLOB_NAME];
    struct ask *ask;
    int count;
    if (queue->slices.asking || !queue->standing.ready) return;
    count = blasd_segments_doubtful(queue->slices.segments, names, ASK_NAMES, all);
    if (count == 0 || (ask = front_call_new(queue, sizeof *ask, asked)) == NULL) return;
    queue->slices.asking = true;
    memcpy(ask->names, names, (size_t)count * sizeof *names);
    ask->count = count;
    front_call_function(&ask->call, "refs");
    for (int i = 0; i < count; i++) front_call_text(&ask->call, names[i]);
    front_call_send(&ask->call);
}

void front_slices_trim(struct blasd_front_queue *queue) {
    front_slices_ask(queue, true);
    blasd_segments_trim(queue->slices.segments);
    blasd_views_trim(queue->slices.views);
}
