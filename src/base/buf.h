/* A growing byte buffer that never outgrows its cap, so that nothing a user sends can make it
 * grow without bound. Read next: clock.h. */
#ifndef BLASD_BASE_BUF_H
#define BLASD_BASE_BUF_H

#include "base/account.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

struct blasd_buf {
    char *data; /* owned; NULL while empty */
    size_t len;
    size_t cap;                    /* bytes allocated */
    size_t max;                    /* bytes it may ever hold; set by blasd_buf_init */
    struct blasd_account *account; /* counts `cap`; borrowed; NULL, as after init: nothing does */
};

/* Makes an empty buffer that may hold up to `max` bytes; allocates nothing. */
void blasd_buf_init(struct blasd_buf *buf, size_t max);
/* Frees the bytes and leaves an empty buffer with the same cap. */
void blasd_buf_release(struct blasd_buf *buf);
/* Forgets the bytes and keeps the memory. */
void blasd_buf_reset(struct blasd_buf *buf);

/* These return 0, or -1 where the bytes would not fit the cap or the account, or memory has run
 * out; the buffer is then as it was. */
int blasd_buf_reserve(struct blasd_buf *buf, size_t more) __attribute__((warn_unused_result));
/* Whether so many more bytes are within the cap: where adding them failed, memory has run out. */
static inline bool blasd_buf_fits(const struct blasd_buf *buf, size_t more) {
    return more <= buf->max - buf->len;
}
int blasd_buf_puts(struct blasd_buf *buf, const char *text) __attribute__((warn_unused_result));
int blasd_buf_printf(struct blasd_buf *buf, const char *fmt, ...)
    __attribute__((format(printf, 2, 3), warn_unused_result));
/* Here, for documents are made of some hundred short pieces, most of a length known when compiled.
 */
__attribute__((warn_unused_result)) static inline int blasd_buf_add(struct blasd_buf *buf,
                                                                    const void *bytes, size_t len) {
    if (len == 0) return 0;
    if (len > buf->cap - buf->len && blasd_buf_reserve(buf, len) != 0) return -1;
    memcpy(buf->data + buf->len, bytes, len);
    buf->len += len;
    return 0;
}

#endif
