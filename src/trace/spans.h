/* What becomes a span: a job that has ended with its phases, and the batch that it ran in. Read
 * next: otlp.h. */
#ifndef BLASD_TRACE_SPANS_H
#define BLASD_TRACE_SPANS_H

#include "core/record.h"
#include "trace/otlp.h"

/* A batch in the making; zeroed, or from blasd_spans_batch_begin. */
struct blasd_batch_span {
    struct blasd_otlp *otlp; /* NULL: nothing is exported. Borrowed */
    struct blasd_span_link self;
    struct blasd_span_link links[BLASD_SPAN_LINKS]; /* its jobs' spans, those that are sampled */
    int jobs;                                       /* of these, all */
};

void blasd_spans_batch_begin(struct blasd_batch_span *batch, struct blasd_otlp *otlp);
/* A job of it has ended: the span of the job and, below it, queue, batch_wait, upload, compute and
 * download; of a job that is not sampled none. `batch` may have none. */
void blasd_spans_job(struct blasd_batch_span *batch, const struct blasd_trace *trace,
                     const struct blasd_record *record);
/* A job that no worker has ended: its span and, below it, queue; `otlp` may be NULL. */
void blasd_spans_unfinished(struct blasd_otlp *otlp, const struct blasd_trace *trace,
                            const struct blasd_record *record);
/* The batch's own span, where it has sampled jobs: of `count` jobs, between two points in time. */
void blasd_spans_batch_end(struct blasd_batch_span *batch, const char *op, const char *device,
                           int count, int64_t start_us, int64_t end_us);

#endif
