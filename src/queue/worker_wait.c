/* How a worker waits for jobs, when a turn found none: at its list, in which the turn's reply comes
 * once there are some. */
#include "queue/worker_side.h"

#include "base/clock.h"

#include <stdio.h>

#define REPLY_MOST "16400" /* elements: more than any reply has */

/* Writes the wait, which is kept for the turns to come. */
static void write_wait(struct blasd_worker_queue *queue, int timeout_ms) {
    struct blasd_worker_turns *turns = &queue->turns;
    struct blasd_caller *caller = &queue->caller;
    blasd_link_key(turns->wait.key, queue->name, ":wake:%s", queue->lease.worker);
    snprintf(turns->wait.seconds, sizeof turns->wait.seconds, "%d.%03d", timeout_ms / 1000,
             timeout_ms % 1000);
    const char *const words[] = {turns->wait.seconds, "1", turns->wait.key, "LEFT", "COUNT",
                                 REPLY_MOST};
    blasd_caller_command(caller, "BLMPOP");
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) blasd_caller_text(caller, words[i]);
    if (turns->wait.ms != timeout_ms) {
        redisFreeCommand(turns->wait.text);
        turns->wait.text = NULL;
        turns->wait.len = (int)redisFormatCommandArgv(&turns->wait.text, (int)caller->words.count,
                                                      caller->words.argv, caller->words.lens);
        turns->wait.ms = turns->wait.len > 0 ? timeout_ms : 0;
    }
    caller->spin_ns = turns->busy ? BLASD_WAIT_AWAKE_NS : 0;
}

void blasd_worker_queue_wake(struct blasd_worker_queue *queue) {
    struct blasd_err ignored;
    char key[BLASD_LINK_KEY_MAX];
    blasd_link_key(key, queue->name, ":wake:%s", queue->lease.worker);
    blasd_caller_command(&queue->caller, "RPUSH");
    blasd_caller_text(&queue->caller, key);
    blasd_caller_text(&queue->caller, "1");
    (void)blasd_caller_post(&queue->caller, &ignored);
}

/* Whether the list's reply has jobs; one that ended a wait before may be ahead of it. */
static bool has_jobs(const redisReply *reply) {
    const redisReply *list =
        reply->type == REDIS_REPLY_ARRAY && reply->elements == 2 ? reply->element[1] : NULL;
    return list && list->type == REDIS_REPLY_ARRAY && list->elements >= 4 &&
           list->elements % 2 == 0;
}

/* Whether there is something to wait for, and how long: cuts *timeout_ms. */
static bool may_wait(struct blasd_worker_queue *queue, int *timeout_ms) {
    struct blasd_worker_turns *turns = &queue->turns;
    if (!blasd_worker_queue_is_idle(queue) || *timeout_ms <= 0) return false;
    if (!queue->caller.ahead) blasd_worker_slices_trim(queue);
    if (turns->led && !queue->caller.ahead) { /* another call has ended it, and may have lost its
                                                 reply */
        turns->unsure = true;
        return false;
    }
    if (*timeout_ms > BLASD_WAIT_MOST_MS) *timeout_ms = BLASD_WAIT_MOST_MS;
    return true;
}

/* What came to nobody's ears may have gone to an earlier connection of ours, which Redis took for
 * alive; and what comes over another than the turn went may be of a Redis that does not know the
 * turn: it is sent again then. Takes the reply, if there is one. */
static void wait_ended(struct blasd_worker_queue *queue, redisReply *reply) {
    struct blasd_worker_turns *turns = &queue->turns;
    turns->unsure = true;
    turns->led = false;
    if (reply && has_jobs(reply) && turns->answered_on == queue->caller.connections) {
        redisReply *jobs = reply->element[1];
        reply->element[1] = NULL;
        turns->unsure = false;
        turns->popped = true;
        blasd_worker_turns_keep(turns, jobs);
    }
    freeReplyObject(reply);
}

int blasd_worker_queue_wait(struct blasd_worker_queue *queue, int timeout_ms,
                            struct blasd_err *err) {
    struct blasd_worker_turns *turns = &queue->turns;
    struct blasd_caller *caller = &queue->caller;
    redisReply *reply = NULL;
    int rc;
    if (!may_wait(queue, &timeout_ms)) return 0;
    int64_t began_ns = blasd_clock_ns();
    caller->spin_ns = turns->busy ? BLASD_WAIT_AWAKE_NS : 0;
    if (caller->ahead) {
        rc = blasd_caller_collect(caller, &reply, err);
    } else {
        write_wait(queue, timeout_ms);
        rc = blasd_caller_call(caller, &reply, err);
    }
    turns->busy = blasd_clock_ns() - began_ns < BLASD_WAIT_SHORT_NS;
    wait_ended(queue, reply);
    return rc < 0 ? rc : 0;
}
