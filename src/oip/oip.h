/* The Open Inference Protocol (v2 over HTTP): its requests become jobs and records become its
 * answers. Each operation is a model, whose metadata come from its descriptor.
 *
 * A translation and nothing else: what a request says goes into the same intake, as another format
 * of the body, and what comes back is read from the same record. Pure: no I/O, no clock.  Read
 * next: oip_in.c, oip_out.c. */
#ifndef BLASD_OIP_H
#define BLASD_OIP_H

#include "base/buf.h"
#include "wire/answer.h"
#include "wire/body_reader.h"

#define BLASD_OIP_VERSION "1" /* the only one of each model */

/* An output that is asked for. */
struct blasd_oip_output {
    int position; /* in op->outputs */
    bool binary;
};

/* One request, beside its job. */
struct blasd_oip {
    /* the caller's, before the body is read */
    const struct blasd_op *op; /* the model */
    bool has_header;           /* the body is JSON of header_bytes, then tensors; or JSON alone */
    uint64_t header_bytes;
    int64_t wait_ms; /* the job's deadline, where the request asks for none that is sooner */
    /* what the body says */
    char *id; /* owned; NULL: none */
    bool binary_outputs;
    int output_count; /* 0: all of them */
    struct blasd_oip_output outputs[BLASD_MAX_OUTPUTS];
};

void blasd_oip_release(struct blasd_oip *oip);

/* A blasd_intake_options.reader; `arg` is the struct blasd_oip. */
struct blasd_body_reader *blasd_oip_reader_new(const struct blasd_body *body, void *arg);

/* The answer: JSON, and behind it the outputs that are asked for as they are. *header_bytes is what
 * the JSON takes where something follows it, else 0. NULL with `err` filled: not_acceptable where
 * an output cannot be given so, output_not_found, no_space. */
struct blasd_answer *blasd_oip_answer(const struct blasd_record *record, const void *payload,
                                      const struct blasd_oip *oip, size_t *header_bytes,
                                      struct blasd_err *err);

/* What a model has done so far; times in nanoseconds. */
struct blasd_oip_stats {
    uint64_t inferences, failures, last_ms;
    double executions; /* a job in a batch of n counts as 1/n */
    uint64_t success_ns, failure_ns, queue_ns, input_ns, compute_ns, output_ns;
};

/* These append a JSON document to `out` and return 0, or -1 where memory or the cap does not
 * suffice. */
int blasd_oip_problem(const struct blasd_err *problem, struct blasd_buf *out);
int blasd_oip_server(const char *version, struct blasd_buf *out);
int blasd_oip_repository(bool ready, struct blasd_buf *out);
int blasd_oip_model(const struct blasd_op *op, struct blasd_buf *out);
int blasd_oip_model_ready(const struct blasd_op *op, struct blasd_buf *out);
int blasd_oip_config(const struct blasd_op *op, struct blasd_buf *out);
/* Of every operation, or the one given; `stats` by position in blasd_ops. */
int blasd_oip_statistics(const struct blasd_op *only, const struct blasd_oip_stats *stats,
                         struct blasd_buf *out);

/* The protocol's name of a dtype, or NULL where it has none. Static text. */
const char *blasd_oip_datatype(enum blasd_dtype dtype);
bool blasd_oip_datatype_find(const char *name, enum blasd_dtype *ret);

#endif
