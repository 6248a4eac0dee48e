/* Between a client that is not trusted and Redis: carries the client's requests on, each of which
 * is asked about first, and the replies back.
 *
 * Knows no command. Read next: redis_request.h. */
#ifndef BLASD_REDIS_RELAY_H
#define BLASD_REDIS_RELAY_H

#include "redis/redis_request.h"

#include <hiredis/hiredis.h>

struct blasd_relay {
    int client;          /* a stream's socket; borrowed */
    redisContext *redis; /* freed in the end */
    /* Whether the request may go on, whose words lie in `data`. */
    bool (*may)(void *arg, const char *data, const struct blasd_redis_request *request);
    void *arg;
};

/* Until one of both closes its side, which is no fault, or a request may not go on, or is none:
 * nothing of that, nor of what stands behind it, has gone on then. Returns what was wrong, as a
 * part of a sentence, static, or NULL. */
const char *blasd_relay_run(const struct blasd_relay *relay);

#endif
