/* Reads an HTTP/1.1 answer as it arrives and compares it with what was expected. Most answers come
 * in one piece and are looked at where they lie; only what is split is kept. Knows nothing of
 * sockets. Read next: load_engine.c. */
#include "load.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define HEAD_MOST 32768

void load_reply_reset(struct load_reply *reply) {
    char *text = reply->text;
    size_t cap = reply->text_cap;
    memset(reply, 0, sizeof *reply);
    reply->text = text;
    reply->text_cap = cap;
}

void load_reply_release(struct load_reply *reply) {
    free(reply->text);
    memset(reply, 0, sizeof *reply);
}

static int keep(struct load_reply *reply, const char *bytes, size_t n) {
    if (n > reply->text_cap - reply->text_len) {
        size_t cap = reply->text_cap == 0 ? 4096 : reply->text_cap;
        char *text;
        while (cap - reply->text_len < n) cap *= 2;
        text = realloc(reply->text, cap);
        if (text == NULL) return -1;
        reply->text = text;
        reply->text_cap = cap;
    }
    memcpy(reply->text + reply->text_len, bytes, n);
    reply->text_len += n;
    return 0;
}

/* Whether the line is `name: value`; the value's place. */
static bool header_is(const char *line, size_t len, const char *name, const char **value,
                      size_t *value_len) {
    size_t n = strlen(name);
    if (len <= n || line[n] != ':' || strncasecmp(line, name, n) != 0) return false;
    for (n++; n < len && line[n] == ' ';) n++;
    *value = line + n;
    *value_len = len - n;
    return true;
}

static int read_length(const char *value, size_t len, size_t *length) {
    size_t n = 0;
    for (size_t i = 0; i < len; i++) {
        if (value[i] < '0' || value[i] > '9' || n > SIZE_MAX / 16) return -1;
        n = n * 10 + (size_t)(value[i] - '0');
    }
    *length = n;
    return len > 0 ? 0 : -1;
}

static int read_line(struct load_reply *reply, const char *line, size_t len, bool *has_length) {
    const char *value;
    size_t n;
    switch (line[0] | 32) {
    case 'c':
        if (header_is(line, len, "content-length", &value, &n)) {
            *has_length = true;
            return read_length(value, n, &reply->body_len);
        }
        if (header_is(line, len, "connection", &value, &n) && n == 5 &&
            strncasecmp(value, "close", 5) == 0)
            reply->closes = true;
        return 0;
    case 'r':
        if (header_is(line, len, "retry-after", &value, &n)) reply->retry_after = true;
        return 0;
    case 'l':
        if (header_is(line, len, "location", &value, &n) && n < sizeof reply->location) {
            memcpy(reply->location, value, n);
            reply->location[n] = '\0';
        }
        return 0;
    default: return 0; /* Transfer-Encoding shows as a missing length */
    }
}

/* `len` bytes, the last four of which are the empty line. */
static int read_head(struct load_reply *reply, const char *head, size_t len) {
    const char *end = head + len - 2, *line;
    bool has_length = false;
    if (len < 16 || memcmp(head, "HTTP/1.", 7) != 0) return -1;
    reply->status = 0;
    for (int i = 9; i < 12; i++) {
        if (head[i] < '0' || head[i] > '9') return -1;
        reply->status = reply->status * 10 + (head[i] - '0');
    }
    if (reply->status >= 600) return -1;
    for (line = memchr(head, '\n', len); line != NULL && line + 1 < end;) {
        const char *next = memchr(line + 1, '\n', (size_t)(end - line - 1));
        size_t n = (size_t)((next == NULL ? end : next) - line - 1);
        if (n > 0 && line[n] == '\r') n--;
        if (n > 0 && read_line(reply, line + 1, n, &has_length) != 0) return -1;
        line = next;
    }
    reply->in_body = true;
    return has_length || reply->status == 204 ? 0 : -1;
}

static bool near_enough(const void *got, const void *expected, const struct load_request *request) {
    for (size_t at = 0; at < request->tail_len; at += (size_t)request->tail_float) {
        double g, e;
        if (request->tail_float == 4) {
            float single[2];
            memcpy(&single[0], (const char *)got + at, 4);
            memcpy(&single[1], (const char *)expected + at, 4);
            g = (double)single[0];
            e = (double)single[1];
        } else {
            memcpy(&g, (const char *)got + at, 8);
            memcpy(&e, (const char *)expected + at, 8);
        }
        if (!(fabs(g - e) <= request->tolerance * fmax(1, fabs(e)))) return false;
    }
    return true;
}

/* Compares `n` bytes at `reply->seen` of the body with the tail, as far as they belong to it. */
static void compare_tail(struct load_reply *reply, const struct load_request *request,
                         const char *bytes, size_t n) {
    size_t start, skip, at;
    if (reply->body_len < request->tail_len) {
        reply->tail_differs = true;
        return;
    }
    start = reply->body_len - request->tail_len;
    skip = start > reply->seen ? start - reply->seen : 0;
    if (skip >= n) return;
    at = reply->seen + skip - start;
    if (memcmp(bytes + skip, request->tail + at, n - skip) != 0) reply->tail_differs = true;
}

static bool text_wanted(const struct load_reply *reply, const struct load_request *request) {
    return reply->status != request->status || request->contains != NULL ||
           request->tail_float != 0;
}

static enum load_step feed_body(struct load_reply *reply, const struct load_request *request,
                                const char *bytes, size_t n) {
    size_t left = reply->body_len - reply->seen;
    if (n > left) return LOAD_BROKEN; /* more than was announced, and nothing else was asked for */
    if (request->tail != NULL && request->tail_float == 0 && reply->status == request->status)
        compare_tail(reply, request, bytes, n);
    if (reply->seen == 0 && n == left)
        reply->body = bytes;
    else if (text_wanted(reply, request) && reply->body_len <= LOAD_TEXT_MOST) {
        if (keep(reply, bytes, n) != 0) return LOAD_BROKEN;
        if (n == left) reply->body = reply->text;
    }
    reply->seen += n;
    return reply->seen == reply->body_len ? LOAD_DONE : LOAD_MORE;
}

enum load_step load_reply_feed(struct load_reply *reply, const struct load_request *request,
                               const char *bytes, size_t n) {
    const char *end, *head = bytes;
    size_t head_len, had = reply->text_len;
    reply->begun = true;
    if (reply->in_body) return feed_body(reply, request, bytes, n);
    if (had > 0) {
        if (keep(reply, bytes, n) != 0) return LOAD_BROKEN;
        head = reply->text;
    }
    end = memmem(head, had + n, "\r\n\r\n", 4);
    if (end == NULL) {
        if (had + n > HEAD_MOST) return LOAD_BROKEN;
        return had == 0 && keep(reply, bytes, n) != 0 ? LOAD_BROKEN : LOAD_MORE;
    }
    head_len = (size_t)(end - head) + 4;
    if (read_head(reply, head, head_len) != 0) return LOAD_BROKEN;
    reply->text_len = 0; /* from here it holds the body */
    if (reply->body_len == 0) return head_len == had + n ? LOAD_DONE : LOAD_BROKEN;
    if (head_len == had + n) return LOAD_MORE;
    return feed_body(reply, request, bytes + (head_len - had), had + n - head_len);
}

bool load_reply_right(const struct load_reply *reply, const struct load_request *request) {
    if (reply->status != request->status || reply->tail_differs) return false;
    if (request->contains != NULL &&
        (reply->body == NULL ||
         memmem(reply->body, reply->body_len, request->contains, request->contains_len) == NULL))
        return false;
    if (request->tail_float != 0)
        return reply->body != NULL && reply->body_len >= request->tail_len &&
               near_enough(reply->body + reply->body_len - request->tail_len, request->tail,
                           request);
    return request->tail == NULL || reply->body_len >= request->tail_len;
}
