/* What becomes of jobs, as Redis publishes it for who looks on: heard while the owner wants it, on
 * the connection that listens anyway. Nothing depends on what comes here, or does not.
 * functions/events.lua says what a message is. Read next: ../http/events.h. */
#include "queue/front.h"
#include "queue/record_frame.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HEAD_MOST 256 /* bytes of "TENANT SKIPPED WORKER\n" */

static void tell_record_frames(struct blasd_front_queue *queue, struct blasd_queue_event *told,
                               const char *bytes, size_t len) {
    told->first = true;
    while (len >= BLASD_RECORD_FRAME_HEAD) {
        size_t record_len = blasd_record_frame_len(bytes);
        if (record_len > len - BLASD_RECORD_FRAME_HEAD) return;
        told->record = bytes + BLASD_RECORD_FRAME_HEAD;
        told->len = record_len;
        queue->hooks.on_event(queue->hooks.arg, told);
        told->first = false;
        bytes += BLASD_RECORD_FRAME_HEAD + record_len;
        len -= BLASD_RECORD_FRAME_HEAD + record_len;
    }
}

static void tell(struct blasd_front_queue *queue, const char *bytes, size_t len) {
    const char *end = memchr(bytes, '\n', len < HEAD_MOST ? len : HEAD_MOST);
    char head[HEAD_MOST + 1], worker[HEAD_MOST + 1];
    struct blasd_queue_event told = {.worker = worker};
    unsigned long long skipped;
    if (end == NULL) return;
    memcpy(head, bytes, (size_t)(end - bytes));
    head[end - bytes] = '\0';
    if (sscanf(head, "%31s %llu %255s", told.tenant, &skipped, worker) != 3) return;
    if (strcmp(worker, "-") == 0) told.worker = NULL;
    told.jobs = (uint64_t)skipped;
    if (skipped > 0) {
        queue->hooks.on_event(queue->hooks.arg, &told);
        return;
    }
    len -= (size_t)(end + 1 - bytes);
    for (size_t at = 0;
         at + BLASD_RECORD_FRAME_HEAD <= len;) { /* how many: a batch is told with its first */
        told.jobs++;
        at += BLASD_RECORD_FRAME_HEAD + blasd_record_frame_len(end + 1 + at);
    }
    tell_record_frames(queue, &told, end + 1, len);
}

static void handle_event(redisAsyncContext *ac, void *reply, void *arg) {
    struct blasd_front_queue *queue = arg;
    const redisReply *r = reply;
    (void)ac;
    if (queue->closing || r == NULL || r->type != REDIS_REPLY_ARRAY || r->elements != 3) return;
    if (strcmp(r->element[0]->str, "subscribe") == 0) {
        const struct blasd_queue_event begins = {.record = NULL};
        queue->hooks.on_event(queue->hooks.arg, &begins);
    } else if (strcmp(r->element[0]->str, "message") == 0 &&
               r->element[2]->type == REDIS_REPLY_STRING && queue->standing.hearing) {
        tell(queue, r->element[2]->str, r->element[2]->len);
    }
}

void front_events_subscribe(struct blasd_front_queue *queue, const char *command) {
    char channel[BLASD_LINK_KEY_MAX];
    const char *args[] = {command, channel};
    size_t lens[] = {strlen(command), 0};
    lens[1] = blasd_link_key(channel, queue->name, ":events");
    blasd_async_link_send_args(&queue->replies, 2, args, lens, handle_event, queue);
}
