/* The capped byte buffer. */
#include "base/buf.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void blasd_buf_init(struct blasd_buf *buf, size_t max) {
    *buf = (struct blasd_buf){.max = max};
}

void blasd_buf_release(struct blasd_buf *buf) {
    free(buf->data);
    blasd_account_give(buf->account, buf->cap);
    *buf = (struct blasd_buf){.max = buf->max, .account = buf->account};
}

void blasd_buf_reset(struct blasd_buf *buf) {
    buf->len = 0;
}

int blasd_buf_reserve(struct blasd_buf *buf, size_t more) {
    size_t want;
    char *data;
    if (more <= buf->cap - buf->len) return 0;
    if (more > buf->max - buf->len) return -1;
    want = buf->cap < 128 ? 256 : buf->cap * 2;
    if (want < buf->len + more) want = buf->len + more;
    if (want > buf->max) want = buf->max;
    if (buf->account != NULL && !blasd_account_take(buf->account, want - buf->cap)) return -1;
    data = realloc(buf->data, want);
    if (data == NULL) {
        blasd_account_give(buf->account, want - buf->cap);
        return -1;
    }
    buf->data = data;
    buf->cap = want;
    return 0;
}

int blasd_buf_puts(struct blasd_buf *buf, const char *text) {
    return blasd_buf_add(buf, text, strlen(text));
}

int blasd_buf_printf(struct blasd_buf *buf, const char *fmt, ...) {
    size_t room = buf->cap - buf->len;
    va_list args;
    int len;
    va_start(args, fmt);
    len = vsnprintf(room > 0 ? buf->data + buf->len : NULL, room, fmt, args);
    va_end(args);
    if (len < 0) return -1;
    if ((size_t)len >= room) {
        /* one byte more, for vsnprintf always ends with a zero */
        if (blasd_buf_reserve(buf, (size_t)len + 1) != 0) return -1;
        va_start(args, fmt);
        vsnprintf(buf->data + buf->len, (size_t)len + 1, fmt, args);
        va_end(args);
    }
    buf->len += (size_t)len;
    return 0;
}
