/* Reading and writing little-endian fields inside a span of bytes, with every step checked.
 *
 * Both sides are sticky: once something does not fit, every later call does nothing (a read gives
 * zeros), and one look at `bad` at the end tells. Knows nothing of jobs. Read next: frame_parts.h.
 */
#ifndef BLASD_WIRE_FRAME_BYTES_H
#define BLASD_WIRE_FRAME_BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct frame_writer {
    unsigned char *at, *end; /* borrowed: the room that is left */
    bool bad;                /* the room did not suffice, or a text was too long for its length */
};

struct frame_reader {
    const unsigned char *at, *end; /* borrowed: the bytes that are left */
    bool bad;                      /* the bytes ended early, or a text did not fit its place */
};

/* Takes `n` bytes of room; NULL where there are not so many. */
static inline unsigned char *frame_room(struct frame_writer *w, size_t n) {
    unsigned char *at = w->at;
    if (w->bad || (size_t)(w->end - at) < n) {
        w->bad = true;
        return NULL;
    }
    w->at = at + n;
    return at;
}

static inline void frame_put(struct frame_writer *w, uint64_t value, size_t n) {
    unsigned char *at = frame_room(w, n);
    if (at == NULL) return;
    for (size_t i = 0; i < n; i++) at[i] = (unsigned char)(value >> (8 * i));
}

static inline void frame_put_u8(struct frame_writer *w, unsigned value) {
    frame_put(w, value, 1);
}
static inline void frame_put_u32(struct frame_writer *w, uint32_t value) {
    frame_put(w, value, 4);
}
static inline void frame_put_u64(struct frame_writer *w, uint64_t value) {
    frame_put(w, value, 8);
}
static inline void frame_put_i64(struct frame_writer *w, int64_t value) {
    frame_put(w, (uint64_t)value, 8);
}
static inline void frame_put_f64(struct frame_writer *w, double value) {
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    frame_put(w, bits, 8);
}

/* A text of up to 255 bytes: its length in one byte, then the text. Reads no further than `most`
 * bytes, so that an array which lost its zero is safe too. */
static inline void frame_put_text(struct frame_writer *w, const char *text, size_t most) {
    size_t len = strnlen(text, most);
    unsigned char *at;
    if (len > 255) {
        w->bad = true;
        return;
    }
    at = frame_room(w, len + 1);
    if (at == NULL) return;
    at[0] = (unsigned char)len;
    memcpy(at + 1, text, len);
}

static inline const unsigned char *frame_take(struct frame_reader *r, size_t n) {
    const unsigned char *at = r->at;
    if (r->bad || (size_t)(r->end - at) < n) {
        r->bad = true;
        return NULL;
    }
    r->at = at + n;
    return at;
}

static inline uint64_t frame_get(struct frame_reader *r, size_t n) {
    const unsigned char *at = frame_take(r, n);
    uint64_t value = 0;
    if (at == NULL) return 0;
    for (size_t i = 0; i < n; i++) value |= (uint64_t)at[i] << (8 * i);
    return value;
}

static inline unsigned frame_get_u8(struct frame_reader *r) {
    return (unsigned)frame_get(r, 1);
}
static inline uint32_t frame_get_u32(struct frame_reader *r) {
    return (uint32_t)frame_get(r, 4);
}
static inline uint64_t frame_get_u64(struct frame_reader *r) {
    return frame_get(r, 8);
}
static inline int64_t frame_get_i64(struct frame_reader *r) {
    return (int64_t)frame_get(r, 8);
}
static inline double frame_get_f64(struct frame_reader *r) {
    uint64_t bits = frame_get(r, 8);
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Reads a text into `out` of `size` bytes and ends it with a zero; a longer one, or one with a zero
 * inside, is bad and leaves "". */
static inline void frame_get_text(struct frame_reader *r, char *out, size_t size) {
    size_t len = frame_get_u8(r);
    const unsigned char *at = frame_take(r, len);
    out[0] = '\0';
    if (at == NULL) return;
    if (len >= size || memchr(at, 0, len) != NULL) {
        r->bad = true;
        return;
    }
    memcpy(out, at, len);
    out[len] = '\0';
}

#endif
