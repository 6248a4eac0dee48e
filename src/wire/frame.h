/* How jobs and records are stored in Redis: a compact binary form with a schema number in front.
 *
 * Little-endian. A job says which schema it is of, and which descriptor of its operation its
 * positions mean: a process that has another one refuses it by name. Every field of a frame is
 * checked when it is read: a frame is data, not a promise. What is refused then is never the user's
 * doing, so it is internal_error, or unknown_… where another version wrote what this one does not
 * have. Read next: frame_parts.h for what both have in common, frame_job.c. */
#ifndef BLASD_WIRE_FRAME_H
#define BLASD_WIRE_FRAME_H

#include "base/buf.h"
#include "core/job.h"
#include "core/record.h"

/* Appends the frame of `job` to `out`, then zeros up to a multiple of 64 counted from the frame's
 * first byte, where the payload begins if it travels inline; the caller appends it. */
int blasd_job_encode(const struct blasd_job *job, struct blasd_buf *out, struct blasd_err *err);
/* Reads a frame into a job that holds nothing, and to be released; after an error it holds nothing.
 * *payload_at is where the inline payload begins (== len where there is none).
 * internal_error for a frame that is not well formed, unknown_operation where this build has not
 * the operation. */
int blasd_job_decode(const void *frame, size_t len, struct blasd_job *job, size_t *payload_at,
                     struct blasd_err *err);

/* Of a frame that was read: where an inline payload begins; `len` where it says none. */
size_t blasd_job_frame_size(const void *frame, size_t len);

/* The same for records. Offsets in outputs count from the payload's start. Only a record whose
 * state is succeeded keeps its outputs. */
int blasd_record_encode(const struct blasd_record *record, struct blasd_buf *out,
                        struct blasd_err *err);
/* Reads also what the queue itself writes of jobs that no worker ended
 * (queue/functions/records.lua). An output of a newer version that this one does not know is left
 * out. */
int blasd_record_decode(const void *bytes, size_t len, struct blasd_record *record,
                        size_t *payload_at, struct blasd_err *err);
/* Reads the record alone, as {q}:hooks has it: the bytes of its outputs do not follow. *size: how
 * many bytes it took. */
int blasd_record_decode_bare(const void *bytes, size_t len, struct blasd_record *record,
                             size_t *size, struct blasd_err *err);

#endif
