/* What frames of jobs and of records have in common: the header, the padding, a tensor.
 *
 *     byte 0   4  magic, "BLJF" or "BLRF"
 *          4   2  BLASD_SCHEMA
 *          6   2  zero
 *          8   4  bytes of the frame, padding included: where an inline payload begins
 *         12   4  the kind's own: job: priority, device class, 0, 0; record: state, priority, 0, 0
 *         16      the body, then zeros up to a multiple of 64
 *
 * Read next: frame_job.c, frame_record.c. */
#ifndef BLASD_WIRE_FRAME_PARTS_H
#define BLASD_WIRE_FRAME_PARTS_H

#include "base/buf.h"
#include "base/err.h"
#include "core/slice.h"
#include "core/tensor.h"
#include "wire/frame_bytes.h"

#define FRAME_ALIGN 64
#define FRAME_HEADER 16
/* Above the largest frame that the arrays of struct blasd_job and struct blasd_record can make with
 * names of BLASD_NAME_MAX bytes. A longer one is refused when it is written. */
#define FRAME_MOST 12288

/* Begins a frame in `room` (FRAME_MOST bytes); `first` and `second` are bytes 12 and 13. */
struct frame_writer frame_begin(unsigned char *room, const char *magic, unsigned first,
                                unsigned second);
/* Pads the frame that began at `room`, fills in its length and appends it to `out`. */
int frame_end(struct frame_writer *w, unsigned char *room, struct blasd_buf *out,
              struct blasd_err *err);

/* Checks the header and gives a reader of the body; bytes 12 and 13 come to `first` and `second`.
 */
int frame_open(const void *bytes, size_t len, const char *magic, struct frame_reader *r,
               unsigned *first, unsigned *second, struct blasd_err *err);
/* Checks what follows the body: only padding, and after it the payload if it lies inline. */
int frame_close(struct frame_reader *r, const void *bytes, size_t len, uint64_t payload_bytes,
                bool elsewhere, size_t *payload_at, struct blasd_err *err);

/* dtype, shape and where the bytes lie. */
void frame_put_tensor(struct frame_writer *w, const struct blasd_tensor *tensor, uint64_t offset,
                      uint64_t bytes);
/* Also checks that the bytes are those of the shape and lie inside the payload. */
int frame_get_tensor(struct frame_reader *r, uint64_t payload_bytes, struct blasd_tensor *tensor,
                     uint64_t *offset, uint64_t *bytes, struct blasd_err *err);

/* Where the payload lies: flags (bit 0: in a blob; bit 1: in a segment, and then its name, the
 * generation and the offset follow). The reader fails the frame where they are not known. */
void frame_put_place(struct frame_writer *w, bool in_blob, const struct blasd_slice *slice);
int frame_get_place(struct frame_reader *r, bool *in_blob, struct blasd_slice *slice,
                    struct blasd_err *err);

/* Fails with internal_error: a stored `what` ("job", "record") is not well formed because `why`. */
int frame_broken(struct blasd_err *err, const char *why);

#endif
