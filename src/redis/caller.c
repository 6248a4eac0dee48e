/* Calls over one blocking connection. */
#include "redis/caller.h"

#include "base/clock.h"

#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    ANSWER_MS = 5000,  /* a Redis that takes longer over one call counts as gone */
    CONNECT_MS = 1000, /* for one attempt */
};

void blasd_caller_arg(struct blasd_caller *caller, const void *bytes, size_t len) {
    struct blasd_caller_words *words = &caller->words;
    if (words->count == words->room) {
        size_t room = words->room ? words->room * 2 : 256;
        const char **argv = realloc(words->argv, room * sizeof *argv);
        if (argv) words->argv = argv;
        size_t *lens = realloc(words->lens, room * sizeof *lens);
        if (lens) words->lens = lens;
        words->failed = words->failed || !argv || !lens;
        if (words->failed) return;
        words->room = room;
    }
    words->argv[words->count] = bytes;
    words->lens[words->count++] = len;
}

void blasd_caller_text(struct blasd_caller *caller, const char *text) {
    blasd_caller_arg(caller, text, strlen(text));
}

void blasd_caller_command(struct blasd_caller *caller, const char *word) {
    caller->words.count = 0;
    caller->words.failed = false;
    caller->spin_ns = 0;
    caller->behind = NULL;
    blasd_caller_text(caller, word);
}

void blasd_caller_function(struct blasd_caller *caller, const char *name) {
    blasd_caller_command(caller, "FCALL");
    blasd_caller_text(caller, name);
    blasd_caller_text(caller, "1");
    blasd_caller_text(caller, caller->address.tag);
    blasd_caller_text(caller, caller->limits);
}

int blasd_caller_odd_reply(const char *what, struct blasd_err *err) {
    return blasd_fail(err, BLASD_E_internal_error, "", "Redis answered %s in another form", what);
}

static void hang_up(struct blasd_caller *caller) {
    if (caller->redis) redisFree(caller->redis);
    caller->redis = NULL;
    caller->ahead = false;
    caller->owed = 0;
}

void blasd_caller_release(struct blasd_caller *caller) {
    hang_up(caller);
    free(caller->words.argv);
    free(caller->words.lens);
}

static int broken(struct blasd_caller *caller, struct blasd_err *err) {
    int rc = blasd_fail(err, BLASD_E_queue_unavailable, "",
                        "The connection to Redis was lost: %.100s", caller->redis->errstr);
    hang_up(caller);
    return rc;
}

/* Polls for the reply for up to spin_ns: a core that falls asleep takes longer to wake than a short
 * wait takes. Whoever else has work for this core goes first. */
static void await_awake(const struct blasd_caller *caller) {
    struct pollfd reply = {.fd = caller->redis->fd, .events = POLLIN};
    int64_t until = blasd_clock_ns() + caller->spin_ns;
    while (poll(&reply, 1, 0) == 0 && blasd_clock_ns() < until) sched_yield();
}

static int send_words(struct blasd_caller *caller, struct blasd_err *err) {
    const struct blasd_caller_words *words = &caller->words;
    int done = 0,
        rc = redisAppendCommandArgv(caller->redis, (int)words->count, words->argv, words->lens);
    caller->ahead = caller->behind != NULL;
    if (rc == REDIS_OK && caller->ahead)
        rc = redisAppendFormattedCommand(caller->redis, caller->behind, caller->behind_len);
    while (rc == REDIS_OK && !done) rc = redisBufferWrite(caller->redis, &done);
    return rc == REDIS_OK ? 0 : broken(caller, err);
}

/* The next reply of the connection, which may be here already. */
static int any_reply(struct blasd_caller *caller, redisReply **ret, struct blasd_err *err) {
    void *got = NULL;
    if (redisGetReplyFromReader(caller->redis, &got) != REDIS_OK) return broken(caller, err);
    if (got == NULL) {
        if (caller->spin_ns > 0) await_awake(caller);
        if (redisGetReply(caller->redis, &got) != REDIS_OK) return broken(caller, err);
    }
    *ret = got;
    return 0;
}

/* Passes over the replies to what was posted. */
static int pass_owed(struct blasd_caller *caller, struct blasd_err *err) {
    for (; caller->owed > 0; caller->owed--) {
        redisReply *reply;
        if (any_reply(caller, &reply, err) < 0) return -BLASD_E_queue_unavailable;
        freeReplyObject(reply);
    }
    return 0;
}

static int next_reply(struct blasd_caller *caller, redisReply **ret, struct blasd_err *err) {
    int rc = pass_owed(caller, err);
    return rc < 0 ? rc : any_reply(caller, ret, err);
}

/* Sends and waits once. *again: it may be worth trying once more. */
static int exchange(struct blasd_caller *caller, redisReply **ret, bool *again,
                    struct blasd_err *err) {
    redisReply *reply = NULL;
    int rc = send_words(caller, err);
    *again = true;
    if (rc == 0) rc = next_reply(caller, &reply, err);
    if (rc < 0 || reply == NULL) return rc;
    if (reply->type != REDIS_REPLY_ERROR) {
        *ret = reply;
        return 0;
    }
    rc = blasd_link_error(reply->str, err);
    if (caller->ahead) hang_up(caller); /* nothing will come of what is behind it */
    caller->behind = NULL;
    switch (blasd_link_fault(reply->str)) {
    case BLASD_LINK_LOST: rc = BLASD_CALL_LOST; break;
    case BLASD_LINK_NO_LIBRARY: {
        int loaded = caller->redis ? blasd_link_load(caller->redis, caller->library, err) : 0;
        if (loaded < 0) rc = loaded;
        break;
    }
    case BLASD_LINK_ELSEWHERE: hang_up(caller); break;
    case BLASD_LINK_UNAVAILABLE:
        *again = !strncmp(reply->str, "LOADING", 7) || !strncmp(reply->str, "BUSY ", 5);
        break;
    case BLASD_LINK_STORE:
    case BLASD_LINK_DISK:
    case BLASD_LINK_SCHEMA:
    case BLASD_LINK_WRONG: break;
    }
    freeReplyObject(reply);
    return rc;
}

static int connect_anew(struct blasd_caller *caller, struct blasd_err *err) {
    int limit = caller->timeout_ms < CONNECT_MS ? caller->timeout_ms : CONNECT_MS;
    int rc = blasd_link_connect(&caller->address, limit, &caller->redis, err);
    if (rc < 0) return rc;
    redisSetTimeout(caller->redis, (struct timeval){.tv_sec = ANSWER_MS / 1000});
    caller->connections++;
    return 0;
}

int blasd_caller_call(struct blasd_caller *caller, redisReply **ret, struct blasd_err *err) {
    int64_t until = blasd_clock_ns() + caller->timeout_ms * INT64_C(1000000), pause = 5000000;
    *ret = NULL;
    if (caller->ahead) hang_up(caller);
    if (caller->words.failed) return blasd_fail(err, BLASD_E_internal_error, "", "Out of memory");
    for (;;) {
        bool again = true;
        int rc = caller->redis ? 0 : connect_anew(caller, err);
        if (rc == 0) rc = exchange(caller, ret, &again, err);
        if (rc != -(int)BLASD_E_queue_unavailable || !again) return rc;
        if (blasd_clock_ns() + pause >= until) return rc;
        nanosleep(&(struct timespec){.tv_nsec = (long)pause}, NULL);
        pause = pause < 100000000 ? pause * 2 : 200000000;
    }
}

int blasd_caller_collect(struct blasd_caller *caller, redisReply **ret, struct blasd_err *err) {
    *ret = NULL;
    int rc = next_reply(caller, ret, err);
    caller->ahead = false;
    if (rc < 0 || (*ret)->type != REDIS_REPLY_ERROR) return rc;
    rc = blasd_link_error((*ret)->str, err);
    freeReplyObject(*ret);
    *ret = NULL;
    return rc;
}

int blasd_caller_do(struct blasd_caller *caller, struct blasd_err *err) {
    redisReply *reply;
    int rc = blasd_caller_call(caller, &reply, err);
    freeReplyObject(reply);
    return rc < 0 ? rc : 0;
}

int blasd_caller_post(struct blasd_caller *caller, struct blasd_err *err) {
    if (!caller->redis || caller->words.failed || caller->ahead)
        return blasd_caller_do(caller, err);
    if (send_words(caller, err) < 0) return blasd_caller_do(caller, err);
    caller->owed++;
    return 0;
}
