/* The way in: the bytes of a request body become a job and its payload.
 *
 * A body is fed in pieces of any size as it arrives. Tensor bytes go straight to a sink (memory or
 * a blob) at offsets that are multiples of 64, so that a large body is never held twice; what is
 * not tensor bytes is bounded by the limit envelope_bytes. Pure: no I/O, no clock, no logging.
 * Read next: answer.h for the way out, frame.h for how a job is stored. */
#ifndef BLASD_WIRE_INTAKE_H
#define BLASD_WIRE_INTAKE_H

#include "base/err.h"
#include "base/freelist.h"
#include "base/limits.h"
#include "core/job.h"

struct blasd_body;
struct blasd_body_reader;

/* Where tensor bytes land. Offsets count from the start of the job's payload. Where the body itself
 * becomes the payload (a safetensors file that lies in the blob store already) the offset of a
 * tensor is its place in the body: such a sink says `in_place`, and looks at `body_at` in reserve.
 * Tensors may then leave gaps, up to the next multiple of 64 from the first one's begin. */
struct blasd_sink {
    bool in_place;    /* set by whoever makes the sink */
    uint64_t body_at; /* set before each reserve: where in the body the tensor lies */
    /* Makes room for `bytes` more at the next multiple of 64 and says where: *offset. */
    int (*reserve)(struct blasd_sink *sink, uint64_t bytes, uint64_t *offset,
                   struct blasd_err *err);
    /* Writes inside room that was reserved: the pieces of a tensor one behind the other, and all of
     * them where the body is taken. */
    int (*write)(struct blasd_sink *sink, uint64_t offset, const void *bytes, size_t len,
                 struct blasd_err *err);
};

/* What a request says outside its body. Text is borrowed until blasd_intake_new returns. */
struct blasd_intake_options {
    const char *content_type; /* may be NULL: then JSON is assumed where the body starts with { */
    /* from the URL's query, each NULL where it is not there; the body's own members win over none
     * of them: the same member in both places is an error (invalid_field) */
    const char *op, *params /* JSON text */, *priority, *deadline_ms, *device, *labels, *notify,
        *digest;
    const char *keep, *results;
    /* the highest priority that who sends it may ask for, which is not checked here: a job that
     * names none has no higher one */
    enum blasd_priority ceiling;
    bool graph; /* the body is a graph: graph_in.h */
    /* bytes of the body where that is known, else 0: a header that describes more than comes is
     * then refused before room is made for it */
    uint64_t content_length;
    const struct blasd_limits *limits; /* borrowed for the life of the intake */
    struct blasd_freelist *freelist;   /* the same; blocks of blasd_intake_bytes(); NULL: none */
    struct blasd_account *account;     /* the same; counts what is held of the body; may be NULL */
    /* What reads the body whatever its Content-Type (body_reader.h); NULL: what that names. */
    struct blasd_body_reader *(*reader)(const struct blasd_body *body, void *arg);
    void *reader_arg; /* borrowed for the life of the intake */
};

struct blasd_intake;

/* What an intake takes, but for what grows with its body. */
size_t blasd_intake_bytes(void);

/* Chooses the format: application/json, application/x-safetensors (also application/octet-stream),
 * multipart/form-data. unsupported_media_type otherwise. New: free with blasd_intake_free. */
int blasd_intake_new(const struct blasd_intake_options *options, struct blasd_sink *sink,
                     struct blasd_intake **ret, struct blasd_err *err);
/* Takes the next piece. After an error the intake only takes blasd_intake_free. */
int blasd_intake_feed(struct blasd_intake *intake, const void *bytes, size_t len,
                      struct blasd_err *err);
/* Ends the body, so that its reader has read all of it; nothing more may be fed. */
int blasd_intake_end(struct blasd_intake *intake, struct blasd_err *err);
/* The tensors that came; borrowed. After blasd_intake_end. */
struct blasd_named_inputs;
const struct blasd_named_inputs *blasd_intake_inputs(const struct blasd_intake *intake);
/* What the readers of its body work on, for remote_in.h; borrowed. */
const struct blasd_body *blasd_intake_body(const struct blasd_intake *intake);
/* Ends the body, where that is still to be done, and fills `job`: operation, inputs with dtype,
 * shape and source, parameters checked against the descriptor, priority, device, deadline. Does not
 * call op->plan. The members id, payload_*, receive_us and created_us are the caller's to fill. The
 * caller releases the job, after an error too. */
int blasd_intake_finish(struct blasd_intake *intake, struct blasd_job *job, struct blasd_err *err);
/* Completes a job whose inputs refer to others, once these are described in it. */
int blasd_intake_refer(struct blasd_intake *intake, struct blasd_job *job, struct blasd_err *err);
/* Of a graph that is complete what its steps take, *count of them, new, to be freed with free().
 * NULL: it is no graph, or memory has run out. */
struct blasd_cost_step *blasd_intake_costs(const struct blasd_intake *intake, int *count);
/* The same: blasd_graph_in_outputs; nothing where it is no graph. */
struct blasd_buf;
int blasd_intake_outputs(const struct blasd_intake *intake, struct blasd_buf *out);
/* Before that, of a graph: blasd_graph_in_steps. */
int blasd_intake_steps(const struct blasd_intake *intake, struct blasd_buf *out,
                       struct blasd_err *err);
/* Where the request wants the job's end told, as it was given; NULL: nowhere. Borrowed until
 * blasd_intake_free. */
const char *blasd_intake_notify(const struct blasd_intake *intake);
void blasd_intake_free(struct blasd_intake *intake); /* takes NULL */

#endif
