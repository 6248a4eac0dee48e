/* The header, the padding and the tensors of frames. */
#include "wire/frame_parts.h"

#include "wire/frame.h"

#include <assert.h>

int frame_broken(struct blasd_err *err, const char *why) {
    return blasd_fail(err, BLASD_E_internal_error, "", "a stored job is not well formed: %s", why);
}

struct frame_writer frame_begin(unsigned char *room, const char *magic, unsigned first,
                                unsigned second) {
    struct frame_writer w = {.at = room, .end = room + FRAME_MOST};
    memcpy(frame_room(&w, 4), magic, 4);
    frame_put(&w, BLASD_SCHEMA, 2);
    frame_put(&w, 0, 2);
    frame_put_u32(&w, 0);
    frame_put_u8(&w, first);
    frame_put_u8(&w, second);
    frame_put(&w, 0, 2);
    return w;
}

int frame_end(struct frame_writer *w, unsigned char *room, struct blasd_buf *out,
              struct blasd_err *err) {
    struct frame_writer length = {.at = room + 8, .end = room + 12};
    size_t used = (size_t)(w->at - room);
    size_t padding = (FRAME_ALIGN - used % FRAME_ALIGN) % FRAME_ALIGN;
    unsigned char *zeros = frame_room(w, padding);
    if (zeros == NULL)
        return blasd_fail(err, BLASD_E_internal_error, "",
                          "the names and texts of the job are too long to be stored");
    memset(zeros, 0, padding);
    frame_put_u32(&length, (uint32_t)(used + padding));
    if (blasd_buf_add(out, room, used + padding) != 0)
        return blasd_fail(err, BLASD_E_internal_error, "", "no memory to store the job");
    return 0;
}

int frame_open(const void *bytes, size_t len, const char *magic, struct frame_reader *r,
               unsigned *first, unsigned *second, struct blasd_err *err) {
    const unsigned char *start = bytes;
    uint64_t schema, zero, size;
    *r = (struct frame_reader){.at = start, .end = start + len};
    if (len < FRAME_HEADER || memcmp(start, magic, 4) != 0)
        return frame_broken(err, "it does not begin as one");
    r->at += 4;
    schema = frame_get(r, 2);
    zero = frame_get(r, 2);
    size = frame_get_u32(r);
    *first = frame_get_u8(r);
    *second = frame_get_u8(r);
    zero |= frame_get(r, 2);
    if (schema != BLASD_SCHEMA)
        return blasd_fail(err, BLASD_E_internal_error, "",
                          "a stored job has schema %u; this version reads schema %d",
                          (unsigned)schema, BLASD_SCHEMA);
    if (zero != 0) return frame_broken(err, "bytes that must be zero are not");
    if (size < FRAME_HEADER || size % FRAME_ALIGN != 0 || size > len)
        return frame_broken(err, "its length is wrong");
    r->end = start + size;
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
    for (int i = 0; i < tensor->rank; i++) frame_put_i64(w, tensor->shape[i]);
    frame_put_u64(w, offset);
    frame_put_u64(w, bytes);
}

int frame_get_tensor(struct frame_reader *r, uint64_t payload_bytes, struct blasd_tensor *tensor,
                     uint64_t *offset, uint64_t *bytes, struct blasd_err *err) {
    char dtype[16];
    *tensor = (struct blasd_tensor){.order = BLASD_ROW_MAJOR};
    frame_get_text(r, dtype, sizeof dtype);
    tensor->rank = (int)frame_get_u8(r);
    if (r->bad || tensor->rank > BLASD_MAX_RANK) return frame_broken(err, "a shape is too long");
    for (int i = 0; i < tensor->rank; i++) tensor->shape[i] = frame_get_i64(r);
    *offset = frame_get_u64(r);
    *bytes = frame_get_u64(r);
    if (r->bad) return frame_broken(err, "a tensor ends early");
    if (!blasd_dtype_find(dtype, strlen(dtype), &tensor->dtype))
        return frame_broken(err, "a dtype is not known");
    if (blasd_tensor_check(tensor, "", NULL) != 0 || *bytes != blasd_tensor_bytes(tensor))
        return frame_broken(err, "a tensor's shape and bytes do not agree");
    if (*offset % FRAME_ALIGN != 0 || *bytes > payload_bytes || *offset > payload_bytes - *bytes)
        return frame_broken(err, "a tensor lies outside the payload");
    return 0;
}

#define IN_BLOB 1u
#define IN_SEGMENT 2u

void frame_put_place(struct frame_writer *w, bool in_blob, const struct blasd_slice *slice) {
    bool in_segment = blasd_slice_given(slice);
    frame_put_u8(w, (in_blob ? IN_BLOB : 0) | (in_segment ? IN_SEGMENT : 0));
    if (!in_segment) return;
    frame_put_text(w, slice->segment, sizeof slice->segment);
    frame_put_u32(w, slice->generation);
    frame_put_u64(w, slice->offset);
}

int frame_get_place(struct frame_reader *r, bool *in_blob, struct blasd_slice *slice,
                    struct blasd_err *err) {
    unsigned flags = frame_get_u8(r);
    if (r->bad || flags > IN_SEGMENT) return frame_broken(err, "its flags are not known");
    *in_blob = flags == IN_BLOB;
    if (flags != IN_SEGMENT) return 0;
    frame_get_text(r, slice->segment, sizeof slice->segment);
    slice->generation = frame_get_u32(r);
    slice->offset = frame_get_u64(r);
    if (r->bad || strspn(slice->segment, "0123456789abcdef") != BLASD_SEGMENT_NAME)
        return frame_broken(err, "it names a segment that cannot be one");
    return 0;
}
