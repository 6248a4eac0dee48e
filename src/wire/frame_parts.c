/* Spans, the header, the padding and the tensors of frames. */
#include "wire/frame_parts.h"

#include "base/hex.h"

#include <string.h>

int frame_broken(struct blasd_err *err, const char *why) {
    return blasd_fail(err, BLASD_E_internal_error, "", "a stored job is not well formed: %s", why);
}

/* Takes `n` bytes of room; NULL where there are not so many. */
static unsigned char *room_for(struct frame_writer *w, size_t n) {
    unsigned char *at = w->at;
    if (w->bad || (size_t)(w->end - at) < n) {
        w->bad = true;
        return NULL;
    }
    w->at = at + n;
    return at;
}

void frame_put(struct frame_writer *w, const void *bytes, size_t n) {
    unsigned char *at = room_for(w, n);
    if (at != NULL) memcpy(at, bytes, n);
}

void frame_put_u8(struct frame_writer *w, unsigned value) {
    unsigned char *at = room_for(w, 1);
    if (at != NULL) *at = (unsigned char)value;
}

void frame_put_text(struct frame_writer *w, const char *text, size_t most) {
    size_t len = strnlen(text, most);
    if (len > 255) w->bad = true;
    frame_put_u8(w, (unsigned)len);
    frame_put(w, text, len);
}

void frame_get(struct frame_reader *r, void *out, size_t n) {
    if (r->bad || (size_t)(r->end - r->at) < n) {
        r->bad = true;
        memset(out, 0, n);
        return;
    }
    memcpy(out, r->at, n);
    r->at += n;
}

unsigned frame_get_u8(struct frame_reader *r) {
    if (r->at == r->end) r->bad = true;
    return r->bad ? 0 : *r->at++;
}

void frame_get_text(struct frame_reader *r, char *out, size_t size) {
    size_t len = frame_get_u8(r);
    if (len >= size) r->bad = true;
    frame_get(r, out, r->bad ? 0 : len);
    out[r->bad ? 0 : len] = '\0';
    if (r->bad || strlen(out) == len) return;
    r->bad = true;
    out[0] = '\0';
}

int frame_end(struct frame_writer *w, unsigned char *room, struct blasd_buf *out,
              struct blasd_err *err) {
    static const char zeros[FRAME_ALIGN];
    size_t used = (size_t)(w->at - room);
    uint32_t size = (uint32_t)((used + FRAME_ALIGN - 1) / FRAME_ALIGN * FRAME_ALIGN);
    frame_put(w, zeros, size - used);
    if (w->bad)
        return blasd_fail(err, BLASD_E_internal_error, "",
                          "the names and texts of the job are too long to be stored");
    memcpy(room + offsetof(struct frame_header, size), &size, sizeof size);
    if (blasd_buf_add(out, room, size) != 0) return blasd_no_memory(err);
    return 0;
}

int frame_open(const void *bytes, size_t len, const char *magic, unsigned schema,
               struct frame_header *ret, struct frame_reader *r, struct blasd_err *err) {
    const unsigned char *start = bytes;
    if (len < sizeof *ret || memcmp(start, magic, sizeof ret->magic) != 0)
        return frame_broken(err, "it does not begin as one");
    memcpy(ret, start, sizeof *ret);
    if (ret->schema != schema)
        return blasd_fail(err, BLASD_E_internal_error, "",
                          "a stored job has schema %u; this version reads schema %u",
                          (unsigned)ret->schema, schema);
    if (ret->zero != 0) return frame_broken(err, "bytes that must be zero are not");
    if (ret->size < sizeof *ret || ret->size % FRAME_ALIGN != 0 || ret->size > len)
        return frame_broken(err, "its length is wrong");
    *r = (struct frame_reader){.at = start, .end = start + ret->size};
    return 0;
}

int frame_close(struct frame_reader *r, const void *bytes, size_t len, uint64_t payload_bytes,
                bool elsewhere, size_t *payload_at, struct blasd_err *err) {
    size_t size = (size_t)(r->end - (const unsigned char *)bytes);
    if (r->bad) return frame_broken(err, "a field ends early or is too long");
    if (r->end - r->at >= FRAME_ALIGN) return frame_broken(err, "it is longer than its fields");
    while (r->at < r->end)
        if (*r->at++ != 0) return frame_broken(err, "its padding is not zero");
    if (!elsewhere && payload_bytes > len - size)
        return frame_broken(err, "its tensors are cut short");
    *payload_at = elsewhere || payload_bytes == 0 ? len : size;
    return 0;
}

void frame_put_tensor(struct frame_writer *w, const struct blasd_tensor *tensor, uint64_t offset,
                      uint64_t bytes) {
    frame_put_text(w, blasd_dtype_name(tensor->dtype), 255);
    frame_put_u8(w, (unsigned)tensor->rank);
    frame_put(w, tensor->shape, (size_t)tensor->rank * sizeof *tensor->shape);
    frame_put(w, &offset, sizeof offset);
    frame_put(w, &bytes, sizeof bytes);
}

int frame_get_tensor(struct frame_reader *r, uint64_t payload_bytes, struct blasd_tensor *tensor,
                     uint64_t *offset, uint64_t *bytes, struct blasd_err *err) {
    char dtype[16];
    *tensor = (struct blasd_tensor){.order = BLASD_ROW_MAJOR};
    frame_get_text(r, dtype, sizeof dtype);
    tensor->rank = (int)frame_get_u8(r);
    if (r->bad || tensor->rank > BLASD_MAX_RANK) return frame_broken(err, "a shape is too long");
    frame_get(r, tensor->shape, (size_t)tensor->rank * sizeof *tensor->shape);
    frame_get(r, offset, sizeof *offset);
    frame_get(r, bytes, sizeof *bytes);
    if (r->bad) return frame_broken(err, "a tensor ends early");
    if (!blasd_dtype_find(dtype, strlen(dtype), &tensor->dtype))
        return frame_broken(err, "a dtype is not known");
    if (blasd_tensor_check(tensor, "", NULL) != 0)
        return frame_broken(err, "a tensor's shape cannot be one");
    if (*offset % FRAME_ALIGN != 0 || *bytes > payload_bytes || *offset > payload_bytes - *bytes)
        return frame_broken(err, "a tensor lies outside the payload");
    return 0;
}

unsigned frame_place(bool in_blob, const struct blasd_slice *slice) {
    return (in_blob ? FRAME_IN_BLOB : 0) | (blasd_slice_given(slice) ? FRAME_IN_SEGMENT : 0);
}

int frame_check_place(unsigned place, const struct blasd_slice *slice, struct blasd_err *err) {
    if (place > FRAME_IN_SEGMENT) return frame_broken(err, "its flags are not known");
    if (place != FRAME_IN_SEGMENT) return 0;
    if (!blasd_hex_begins(slice->segment, BLASD_SEGMENT_NAME))
        return frame_broken(err, "it names a segment that cannot be one");
    return 0;
}
