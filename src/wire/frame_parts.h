/* What frames of jobs and of records have in common: reading and writing inside a span of bytes,
 * the header, the padding, a tensor. Numbers are little-endian, as in memory.
 *
 *     byte 0   4  magic, "BLJF" or "BLRF"
 *          4   2  schema of the kind
 *          6   2  zero
 *          8   4  bytes of the frame, padding included: where an inline payload begins
 *         12   4  the kind's own: job: priority, device class, most_s 2; record: state, priority,
 *                 device class, place of the payload
 *         16      the body, then zeros up to a multiple of 64
 *
 * Reader and writer are sticky: once something does not fit, every later call does nothing (a read
 * gives zeros), and one look at `bad` at the end tells. Read next: frame_job.c, frame_record.c. */
#ifndef BLASD_WIRE_FRAME_PARTS_H
#define BLASD_WIRE_FRAME_PARTS_H

#include "base/buf.h"
#include "base/err.h"
#include "core/job.h"
#include "core/slice.h"
#include "core/tensor.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "frames are little-endian");

#define FRAME_ALIGN 64
/* Above the largest frame that the arrays of struct blasd_job and struct blasd_record can make with
 * names of BLASD_NAME_MAX bytes. A longer one is refused when it is written. */
#define FRAME_MOST 12288

struct frame_header {
    char magic[4];
    uint16_t schema, zero;
    uint32_t size;
    uint8_t own[4];
};
_Static_assert(sizeof(struct frame_header) == 16, "the header's places are firm");

struct frame_writer {
    unsigned char *at, *end; /* borrowed: the room that is left */
    bool bad;                /* the room did not suffice, or a text was too long for its length */
};

struct frame_reader {
    const unsigned char *at, *end; /* borrowed: the bytes that are left */
    bool bad;                      /* the bytes ended early, or a text did not fit its place */
};

void frame_put(struct frame_writer *w, const void *bytes, size_t n);
void frame_put_u8(struct frame_writer *w, unsigned value);
/* A text of up to 255 bytes: its length in one byte, then the text. Reads no further than `most`
 * bytes, so that an array which lost its zero is safe too. */
void frame_put_text(struct frame_writer *w, const char *text, size_t most);

void frame_get(struct frame_reader *r, void *out, size_t n);
unsigned frame_get_u8(struct frame_reader *r);
/* Reads a text into `out` of `size` bytes and ends it with a zero; a longer one, or one with a zero
 * inside, is bad and leaves "". */
void frame_get_text(struct frame_reader *r, char *out, size_t size);

/* Pads the frame that began at `room` with a header, fills in its length there and appends it to
 * `out`. */
int frame_end(struct frame_writer *w, unsigned char *room, struct blasd_buf *out,
              struct blasd_err *err);

/* Checks the header, which it copies to `ret`, and gives a reader of all the frame. */
int frame_open(const void *bytes, size_t len, const char *magic, unsigned schema,
               struct frame_header *ret, struct frame_reader *r, struct blasd_err *err);
/* Checks what follows the body: only padding, and after it the payload if it lies inline. */
int frame_close(struct frame_reader *r, const void *bytes, size_t len, uint64_t payload_bytes,
                bool elsewhere, size_t *payload_at, struct blasd_err *err);

/* dtype, shape and where the bytes lie. */
void frame_put_tensor(struct frame_writer *w, const struct blasd_tensor *tensor, uint64_t offset,
                      uint64_t bytes);
/* Also checks that the bytes lie inside the payload; whether they are those of the shape is for the
 * caller to say. */
int frame_get_tensor(struct frame_reader *r, uint64_t payload_bytes, struct blasd_tensor *tensor,
                     uint64_t *offset, uint64_t *bytes, struct blasd_err *err);

/* frame_job.c: blasd_job_decode. `within` NULL; or the job is a step of a graph, whose data lie in
 * so many bytes: it has no id, and may read what the graph is given and what other steps make. */
int frame_get_job(const void *frame, size_t len, const uint64_t *within, struct blasd_job *job,
                  size_t *payload_at, struct blasd_err *err);

/* Where a payload lies that is not behind the frame. */
#define FRAME_IN_BLOB 1u
#define FRAME_IN_SEGMENT 2u
unsigned frame_place(bool in_blob, const struct blasd_slice *slice);
/* Fails where `place` is none of these, or the segment's name cannot be one. */
int frame_check_place(unsigned place, const struct blasd_slice *slice, struct blasd_err *err);

/* Fails with internal_error: what is stored is not well formed because `why`. */
int frame_broken(struct blasd_err *err, const char *why);

#endif
