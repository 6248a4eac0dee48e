/* Commands in Redis' protocol, cut out of a stream as they come in: what a server reads of its
 * clients. Knows no command. Read next: relay.h. */
#ifndef BLASD_REDIS_REDIS_REQUEST_H
#define BLASD_REDIS_REDIS_REQUEST_H

#include <stdbool.h>
#include <stddef.h>

#define BLASD_REDIS_REQUEST_WORDS (1 << 20) /* most that one may have, as with Redis */
#define BLASD_REDIS_REQUEST_BYTES ((size_t)1 << 30)

struct blasd_redis_word {
    size_t at, len; /* from the request's first byte on */
};

/* One request, as far as it has come. Zeroed it is ready; blasd_redis_request_release. */
struct blasd_redis_request {
    struct blasd_redis_word *words; /* owned */
    size_t count, room;
    size_t wanted; /* words it says it has; 0: that has not come */
    size_t bytes;  /* what has been read of it */
};

/* Reads on; `data` begins with the request, and holds what came at the last call, wherever it lies
 * now. 1: it is whole, and has `bytes`; 0: more has to come; -1: it is none, or memory has run
 * out. */
int blasd_redis_request_read(struct blasd_redis_request *request, const char *data, size_t len);
/* Makes it ready for the next one. */
void blasd_redis_request_reset(struct blasd_redis_request *request);
void blasd_redis_request_release(struct blasd_redis_request *request);

#endif
