/* One connection to the Redis of a queue that lives in an event loop and is made anew whenever it
 * breaks.
 *
 * Internal to the front end's queue. Knows hiredis and the loop, not jobs nor functions.
 * Read next: front_queue.c. */
#ifndef BLASD_REDIS_ASYNC_LINK_H
#define BLASD_REDIS_ASYNC_LINK_H

#include "base/loop.h"
#include "redis/route.h"

#include <hiredis/async.h>

enum blasd_async_link_state {
    BLASD_LINK_DOWN,       /* until the timer tries again */
    BLASD_LINK_CONNECTING, /* up to and with the answer whether it is the right server */
    BLASD_LINK_UP,         /* on_up was called: the owner speaks with Redis */
};

struct blasd_async_link {
    /* set by the owner before blasd_async_link_open */
    struct blasd_loop *loop;                  /* borrowed */
    const struct blasd_link_address *address; /* borrowed */
    void (*on_up)(struct blasd_async_link *link);
    /* The connection broke or could not be made; every command in flight is answered with NULL,
     * just before this (hiredis 0.14) or just after it (1.x). Must not send. `why` is one sentence,
     * borrowed during the call. */
    void (*on_down)(struct blasd_async_link *link, const char *why);
    void *owner;

    /* the link's own */
    enum blasd_async_link_state state;
    redisAsyncContext *ac; /* owned by hiredis; NULL while down */
    struct blasd_watcher watcher;
    uint32_t want, armed; /* events hiredis asks for; events the loop was told of */
    struct blasd_timer timer;
    int64_t backoff_ns;
    int64_t up_ns; /* when on_up was called last */
    struct blasd_route route;
    bool onward; /* this server has named another one, which is next */
    bool closing;
    char why[160];
};

/* Begins to connect. */
void blasd_async_link_open(struct blasd_async_link *link);
/* Closes for good; commands in flight are answered with NULL. Not from inside a callback. */
void blasd_async_link_close(struct blasd_async_link *link);
/* Closes this connection and tries again, later each time until blasd_async_link_stands. Fine
 * inside a callback. */
void blasd_async_link_drop(struct blasd_async_link *link, const char *why);
/* The owner's own handshake has succeeded: the next break starts again with the shortest pause. */
void blasd_async_link_stands(struct blasd_async_link *link);

/* Takes one command in Redis' protocol, or made from arguments; `fn` gets the reply, or NULL when
 * the connection is lost. Returns -1 where the link is not up: then `fn` is not called. */
int blasd_async_link_send(struct blasd_async_link *link, const char *command, size_t len,
                          redisCallbackFn *fn, void *arg);
int blasd_async_link_send_args(struct blasd_async_link *link, int count, const char *const *args,
                               const size_t *lens, redisCallbackFn *fn, void *arg);
/* Writes what the socket takes. Returns whether nothing is left to write. Inside a callback of the
 * link nothing is written: the next flush does it. */
bool blasd_async_link_flush(struct blasd_async_link *link);

#endif
