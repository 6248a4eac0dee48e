/* "*COUNT\r\n", then COUNT times "$LEN\r\n", LEN bytes, "\r\n". The other form that servers take, a
 * line of words, no program sends. */
#include "redis/redis_request.h"

#include <stdlib.h>
#include <string.h>

#define NUMBER_MOST 16 /* bytes of a line that says a number */

/* "KNUMBER\r\n" at *at, past which it goes; 1, 0 where not all of it is there, -1. */
static int read_number(const char *data, size_t len, size_t *at, char kind, size_t most,
                       size_t *ret) {
    size_t i = *at + 1, value = 0;
    if (*at >= len) return 0;
    if (data[*at] != kind) return -1;
    for (; i < len && data[i] >= '0' && data[i] <= '9'; i++) {
        value = value * 10 + (size_t)(data[i] - '0');
        if (value > most) return -1;
    }
    if (i - *at > NUMBER_MOST) return -1;
    if (i < len && (data[i] != '\r' || i == *at + 1)) return -1;
    if (i + 1 < len && data[i + 1] != '\n') return -1;
    if (i + 2 > len) return 0;
    *at = i + 2;
    *ret = value;
    return 1;
}

static bool add_word(struct blasd_redis_request *request, size_t at, size_t len) {
    if (request->count == request->room) {
        size_t room = request->room == 0 ? 64 : request->room * 2;
        struct blasd_redis_word *words = realloc(request->words, room * sizeof *words);
        if (words == NULL) return false;
        request->words = words;
        request->room = room;
    }
    request->words[request->count++] = (struct blasd_redis_word){at, len};
    return true;
}

/* The next word; as read_number. */
static int read_word(struct blasd_redis_request *request, const char *data, size_t len) {
    size_t at = request->bytes, bytes;
    int rc = read_number(data, len, &at, '$', BLASD_REDIS_REQUEST_BYTES, &bytes);
    if (rc <= 0) return rc;
    if (at + bytes > BLASD_REDIS_REQUEST_BYTES) return -1;
    if (len < at + bytes + 2) return 0;
    if (memcmp(data + at + bytes, "\r\n", 2) != 0 || !add_word(request, at, bytes)) return -1;
    request->bytes = at + bytes + 2;
    return 1;
}

int blasd_redis_request_read(struct blasd_redis_request *request, const char *data, size_t len) {
    int rc = 1;
    if (request->wanted == 0)
        rc = read_number(data, len, &request->bytes, '*', BLASD_REDIS_REQUEST_WORDS,
                         &request->wanted);
    if (rc > 0 && request->wanted == 0) return -1;
    while (rc > 0 && request->count < request->wanted) rc = read_word(request, data, len);
    return rc;
}

void blasd_redis_request_reset(struct blasd_redis_request *request) {
    request->count = request->wanted = request->bytes = 0;
}

void blasd_redis_request_release(struct blasd_redis_request *request) {
    free(request->words);
    *request = (struct blasd_redis_request){0};
}
