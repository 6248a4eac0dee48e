/* Calls over one blocking connection. Read next: worker_queue.c. */
#include "queue/worker_link.h"

#include "base/clock.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    ANSWER_MS = 5000,  /* a Redis that takes longer over one call counts as gone */
    CONNECT_MS = 1000, /* for one attempt */
    PATIENCE_MS = 2000,
};

void blasd_worker_arg(struct blasd_worker_queue *queue, const void *bytes, size_t len) {
    if (queue->argc == queue->arg_room) {
        size_t room = queue->arg_room ? queue->arg_room * 2 : 256;
        const char **argv = realloc(queue->argv, room * sizeof *argv);
        if (argv) queue->argv = argv;
        size_t *lens = realloc(queue->lens, room * sizeof *lens);
        if (lens) queue->lens = lens;
        if (!argv || !lens) {
            queue->arg_failed = true;
            return;
        }
        queue->arg_room = room;
    }
    queue->argv[queue->argc] = bytes;
    queue->lens[queue->argc++] = len;
}

void blasd_worker_text(struct blasd_worker_queue *queue, const char *text) {
    blasd_worker_arg(queue, text, strlen(text));
}

void blasd_worker_command(struct blasd_worker_queue *queue, const char *word) {
    queue->argc = 0;
    queue->arg_failed = queue->once = false;
    queue->leads = false;
    queue->spin_ns = 0;
    blasd_worker_text(queue, word);
}

void blasd_worker_function(struct blasd_worker_queue *queue, const char *name) {
    blasd_worker_command(queue, "FCALL");
    blasd_worker_text(queue, name);
    blasd_worker_text(queue, "1");
    blasd_worker_text(queue, queue->tag);
    blasd_worker_text(queue, queue->limits.text);
}

int blasd_worker_patience(const struct blasd_worker_queue *queue) {
    uint64_t quarter = queue->options.limits->lease_ms / 4;
    return quarter < PATIENCE_MS ? (int)quarter : PATIENCE_MS;
}

int blasd_worker_odd_reply(const char *what, struct blasd_err *err) {
    return blasd_fail(err, BLASD_E_internal_error, "", "Redis answered %s in another form", what);
}

void blasd_worker_hang_up(struct blasd_worker_queue *queue) {
    if (queue->redis) redisFree(queue->redis);
    queue->redis = NULL;
    if (queue->ahead) queue->claim_missed = true;
    queue->ahead = false;
}

static int broken(struct blasd_worker_queue *queue, struct blasd_err *err) {
    int rc = blasd_fail(err, BLASD_E_queue_unavailable, "",
                        "The connection to Redis was lost: %.100s", queue->redis->errstr);
    blasd_worker_hang_up(queue);
    return rc;
}

static int write_out(struct blasd_worker_queue *queue, struct blasd_err *err) {
    int done = 0;
    while (!done)
        if (redisBufferWrite(queue->redis, &done) != REDIS_OK) return broken(queue, err);
    return 0;
}

/* Polls for the reply for up to spin_ns: a core that falls asleep takes longer to wake than a short
 * wait takes. Whoever else has work for this core goes first. */
static void await_awake(const struct blasd_worker_queue *queue) {
    struct pollfd reply = {.fd = queue->redis->fd, .events = POLLIN};
    int64_t until = blasd_clock_ns() + queue->spin_ns;
    while (poll(&reply, 1, 0) == 0 && blasd_clock_ns() < until) sched_yield();
}

/* The next reply of the connection, which may be here already. */
static int next_reply(struct blasd_worker_queue *queue, redisReply **ret, struct blasd_err *err) {
    void *got = NULL;
    if (redisGetReplyFromReader(queue->redis, &got) != REDIS_OK) return broken(queue, err);
    if (got == NULL) {
        if (queue->spin_ns > 0) await_awake(queue);
        if (redisGetReply(queue->redis, &got) != REDIS_OK) return broken(queue, err);
    }
    *ret = got;
    return 0;
}

/* Puts the command, and the wait behind it where it leads, on the connection. */
static int send_command(struct blasd_worker_queue *queue, struct blasd_err *err) {
    redisContext *redis = queue->redis;
    if (redisAppendCommandArgv(redis, (int)queue->argc, queue->argv, queue->lens) != REDIS_OK)
        return broken(queue, err);
    queue->ahead = queue->leads;
    if (queue->leads &&
        redisAppendFormattedCommand(redis, queue->wait_text, (size_t)queue->wait_len) != REDIS_OK)
        return broken(queue, err);
    return write_out(queue, err);
}

/* Sends and waits once. *again: it may be worth trying once more. */
static int exchange(struct blasd_worker_queue *queue, redisReply **ret, bool *again,
                    struct blasd_err *err) {
    redisReply *reply = NULL;
    int rc = 0;
    bool missed_before = queue->missed;
    *again = true;
    queue->missed = true; /* until its reply is here */
    if (send_command(queue, err) < 0 || next_reply(queue, &reply, err) < 0)
        return -(int)BLASD_E_queue_unavailable;
    queue->missed = missed_before;
    if (reply->type != REDIS_REPLY_ERROR) {
        *ret = reply;
        return 0;
    }
    if (queue->ahead) blasd_worker_hang_up(queue); /* nobody knows that there is somebody waiting */
    queue->leads = false;
    switch (blasd_link_fault(reply->str)) {
    case BLASD_LINK_LOST: rc = BLASD_WORKER_LOST; break;
    case BLASD_LINK_NO_LIBRARY:
        if (queue->redis) rc = blasd_link_load(queue->redis, err);
        if (rc == 0) rc = blasd_link_error(reply->str, err);
        break;
    case BLASD_LINK_UNAVAILABLE:
        *again = !strncmp(reply->str, "LOADING", 7) || !strncmp(reply->str, "BUSY ", 5);
        rc = blasd_link_error(reply->str, err);
        break;
    case BLASD_LINK_STORE:
    case BLASD_LINK_DISK:
    case BLASD_LINK_WRONG: rc = blasd_link_error(reply->str, err); break;
    }
    freeReplyObject(reply);
    return rc;
}

/* Whether this user may switch replies off; if not, Redis would reply to that. */
static bool may_silence(redisContext *redis) {
    redisReply *reply = redisCommand(redis, "CLIENT REPLY ON");
    bool yes = reply && reply->type == REDIS_REPLY_STATUS;
    freeReplyObject(reply);
    return yes;
}

int blasd_worker_call(struct blasd_worker_queue *queue, int patience_ms, redisReply **ret,
                      struct blasd_err *err) {
    int64_t until = blasd_clock_ns() + patience_ms * INT64_C(1000000), pause = 5000000;
    *ret = NULL;
    queue->missed = false;
    if (queue->ahead) blasd_worker_hang_up(queue); /* it would stand behind the wait */
    if (queue->arg_failed) return blasd_fail(err, BLASD_E_internal_error, "", "Out of memory");
    for (;;) {
        bool again = true;
        int rc = 0;
        if (!queue->redis) {
            int limit = patience_ms < CONNECT_MS ? patience_ms : CONNECT_MS;
            rc = blasd_link_connect(&queue->address, limit, &queue->redis, err);
            if (rc == 0) {
                redisSetTimeout(queue->redis, (struct timeval){.tv_sec = ANSWER_MS / 1000});
                queue->silent = may_silence(queue->redis);
            }
        }
        if (rc == 0) rc = exchange(queue, ret, &again, err);
        if (rc >= 0 || rc != -(int)BLASD_E_queue_unavailable || !again) return rc;
        if (queue->missed && queue->once) return rc;
        if (blasd_clock_ns() + pause >= until) return rc;
        nanosleep(&(struct timespec){.tv_nsec = (long)pause}, NULL);
        pause = pause < 100000000 ? pause * 2 : 200000000;
    }
}

int blasd_worker_collect(struct blasd_worker_queue *queue, redisReply **ret,
                         struct blasd_err *err) {
    redisReply *reply;
    *ret = NULL;
    queue->missed = true;
    if (next_reply(queue, &reply, err) < 0) return -(int)BLASD_E_queue_unavailable;
    queue->missed = queue->ahead = false;
    if (reply->type != REDIS_REPLY_ERROR) {
        *ret = reply;
        return 0;
    }
    int rc = blasd_link_error(reply->str, err);
    freeReplyObject(reply);
    return rc;
}

int blasd_worker_post(struct blasd_worker_queue *queue) {
    struct blasd_err ignored;
    if (queue->ahead) blasd_worker_hang_up(queue);
    if (!queue->redis || !queue->silent || queue->arg_failed) return -1;
    /* a reply would wake this thread in the middle of its work */
    if (redisAppendCommand(queue->redis, "CLIENT REPLY SKIP") != REDIS_OK ||
        redisAppendCommandArgv(queue->redis, (int)queue->argc, queue->argv, queue->lens) !=
            REDIS_OK) {
        broken(queue, &ignored);
        return -1;
    }
    return write_out(queue, &ignored) < 0 ? -1 : 0;
}
