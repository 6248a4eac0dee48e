/* Blocking calls over one connection: builds a command, sends it, waits for the reply, and connects
 * anew and sends it again where it must. So a command must be one that may be sent twice.
 *
 * One object serves one thread. The caller's process ignores SIGPIPE. */
#ifndef BLASD_REDIS_CALLER_H
#define BLASD_REDIS_CALLER_H

#include "redis/route.h"

#include <stdint.h>

#define BLASD_CALL_LOST 1 /* what blasd_caller_call returns where the lease has lapsed */

/* A command in the making; its words are borrowed until the call. */
struct blasd_caller_words {
    const char **argv; /* owned */
    size_t *lens;      /* owned */
    size_t count, room;
    bool failed; /* memory has run out */
};

/* Zeroed, then the first four set, it is ready. */
struct blasd_caller {
    struct blasd_link_address address;
    const struct blasd_link_library *library; /* borrowed: loaded where the server lacks it */
    const char *limits;                       /* borrowed: LIMITS of a function */
    int timeout_ms;                           /* how long a call goes on trying */

    redisContext *redis;  /* owned; NULL while there is no connection */
    uint64_t connections; /* made so far: the number of the present one */
    int owed;             /* replies to what was posted, which the next reply comes behind */
    int64_t spin_ns;      /* for so long the reply to the present call is awaited without sleep */
    const char
        *behind; /* borrowed: a formatted command to be sent behind the present call, or NULL */
    size_t behind_len;
    bool ahead; /* it has been: its reply is the next one of this connection */
    struct blasd_caller_words words;
};

void blasd_caller_release(struct blasd_caller *caller);

void blasd_caller_command(struct blasd_caller *caller, const char *word);
/* Starts a call of the function `name`, with its key and LIMITS. */
void blasd_caller_function(struct blasd_caller *caller, const char *name);
void blasd_caller_arg(struct blasd_caller *caller, const void *bytes, size_t len);
void blasd_caller_text(struct blasd_caller *caller, const char *text);

/* *ret: new, or NULL with BLASD_CALL_LOST or a negative code; free with freeReplyObject. */
int blasd_caller_call(struct blasd_caller *caller, redisReply **ret, struct blasd_err *err);
/* The reply to the command that is ahead; as blasd_caller_call, but nothing is sent again. Any
 * other call would stand behind it, and so closes the connection first. */
int blasd_caller_collect(struct blasd_caller *caller, redisReply **ret, struct blasd_err *err);
/* A call whose reply says nothing; 0 or a negative code. */
int blasd_caller_do(struct blasd_caller *caller, struct blasd_err *err);
/* Sends the command and does not wait: its reply is passed over with the next call. */
int blasd_caller_post(struct blasd_caller *caller, struct blasd_err *err);
/* For a reply that has not the form it should have. */
int blasd_caller_odd_reply(const char *what, struct blasd_err *err);

#endif
