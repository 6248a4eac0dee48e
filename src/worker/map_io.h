/* Where the tensors of a job lie while it runs: in the blob or slice that the front end wrote, in
 * the arena, or in the blob or slice that the result will be. No byte moves that does not have to.
 * Read next: completion.h. */
#ifndef BLASD_WORKER_MAP_IO_H
#define BLASD_WORKER_MAP_IO_H

#include "core/kernel.h"
#include "queue/worker_queue.h"
#include "worker/arena.h"
#include "worker/group.h"

/* What a job holds while it runs. Zero it before use. */
struct blasd_io {
    struct blasd_blob in, out;
    bool has_in, has_out;
    struct blasd_blob *referred; /* owned: BLASD_MAX_INPUTS that inputs refer to; NULL: none do */
    struct blasd_blob *kept;     /* owned: BLASD_MAX_OUTPUTS that become tensors; NULL: none do */
    struct blasd_view *view;     /* of the segment that holds the inputs, or NULL */
    struct blasd_slice slice;    /* of the outputs, where it is given */
    bool staged;         /* the outputs lie in the arena and are still to be written into `out` */
    unsigned char *base; /* of the outputs, in `out`, the slice or the arena; borrowed */
    void *at[BLASD_MAX_OUTPUTS]; /* where each output is computed */
    uint64_t offsets[BLASD_MAX_OUTPUTS];
    uint64_t reserved[BLASD_MAX_OUTPUTS]; /* bytes from that offset that this output may use */
    uint8_t (
        *digests)[BLASD_OUTPUT_DIGEST]; /* owned: BLASD_MAX_OUTPUTS; NULL: none are asked for */
    uint64_t payload_bytes;             /* all outputs that are sent, each at a multiple of 64 */
};

/* Fills task->inputs: in place where dtype and order are right, converted in the arena where not;
 * what a rule makes is made in the arena, or left to the kernel, of those that `makes_inputs` has a
 * bit of. `queue` is asked only for a payload that is a blob or a slice, and for what inputs refer
 * to; these are looked at as the others were on the way in. Errors: not_finite, out_of_range,
 * inputs_lost, out_of_memory, queue_unavailable, internal_error for a job whose sizes disagree. */
int blasd_io_map_inputs(struct blasd_worker_queue *queue, struct blasd_arena *arena,
                        const struct blasd_item *item, unsigned makes_inputs,
                        struct blasd_task *task, struct blasd_io *io, struct blasd_err *err);
/* Fills task->inputs[i] with the tensor that is input number `i`, in place or converted. */
int blasd_io_map_input(struct blasd_arena *arena, const struct blasd_job *job,
                       const struct blasd_plan *plan, int i, const struct blasd_tensor *input,
                       struct blasd_task *task, struct blasd_err *err);
/* Makes `from`, a part that begins at `at` and may lie in pieces, as the resolved slice says, a
 * copy of it in the arena. Errors: out_of_memory. */
int blasd_io_copy_part(struct blasd_arena *arena, const struct blasd_reference *slice,
                       const void *at, struct blasd_tensor *from, struct blasd_err *err);
/* Names what an input holds (task->names): of that id, from byte or value `at`, `from` as it lies
 * there and `to` as the kernel gets it. NULL where memory has run out. */
const struct blasd_key *blasd_io_name_input(struct blasd_arena *arena, const char *id,
                                            const struct blasd_input *input, int64_t at,
                                            const struct blasd_tensor *from,
                                            const struct blasd_tensor *to);
/* Fills task->outputs: in a slice where there is one for that many bytes, else in the arena where
 * they fit the limit inline_bytes together, else for the new blob "ID.out", in it or, until
 * blasd_io_settle, in the arena. Errors: no_space, out_of_memory, internal_error, cancelled
 * where the result of another worker is there already, queue_unavailable. */
int blasd_io_map_outputs(struct blasd_worker_queue *queue,
                         const struct blasd_queue_options *options, struct blasd_arena *arena,
                         const struct blasd_item *item, struct blasd_task *task,
                         struct blasd_io *io, struct blasd_err *err);
/* After the kernel: the outputs are where others find them. no_space, internal_error. */
int blasd_io_settle(struct blasd_io *io, struct blasd_err *err);
/* The same of output `i`, which becomes a tensor: its blob is whole. */
int blasd_io_keep(struct blasd_io *io, const struct blasd_task *task, int i, struct blasd_err *err);
/* Removes what has been made of results that are not to be. One that another worker has made since,
 * for the job is that one's, stays. */
void blasd_io_drop(struct blasd_worker_queue *queue, struct blasd_io *io);
/* Closes the blobs and lets go of the inputs; the arena is the caller's to reset, the slice to give
 * back. */
void blasd_io_close(struct blasd_io *io);

#endif
