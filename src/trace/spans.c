/* Jobs and batches as spans. */
#include "trace/spans.h"

#include <stdio.h>
#include <string.h>

void blasd_spans_batch_begin(struct blasd_batch_span *batch, struct blasd_otlp *otlp) {
    batch->otlp = otlp;
    batch->jobs = 0;
}

static void set_name(struct blasd_span *span, const char *what, const char *of) {
    snprintf(span->name, sizeof span->name, "%s%s%s", what, of[0] == '\0' ? "" : " ", of);
}

/* One phase of a job, below the job's own span. */
static void add_phase(struct blasd_otlp *otlp, const struct blasd_span *job, const char *name,
                      int64_t start_us, int64_t us, const struct blasd_span_link *link) {
    struct blasd_span span = {.kind = BLASD_SPAN_INTERNAL,
                              .start_us = start_us,
                              .end_us = start_us + us,
                              .links = link,
                              .link_count = link != NULL};
    memcpy(span.trace, job->trace, sizeof span.trace);
    memcpy(span.parent, job->id, sizeof span.parent);
    blasd_trace_random(span.id, sizeof span.id);
    set_name(&span, name, "");
    blasd_otlp_add(otlp, &span);
}

static void add_phases(struct blasd_otlp *otlp, const struct blasd_span *job,
                       const struct blasd_record *record, const struct blasd_span_link *batch) {
    const struct blasd_timing *t = &record->timing;
    int64_t at = record->created_us;
    add_phase(otlp, job, "receive", at - t->receive_us, t->receive_us, NULL);
    add_phase(otlp, job, "queue", at, t->queue_us, NULL);
    at += t->queue_us;
    add_phase(otlp, job, "batch_wait", at, t->batch_wait_us, NULL);
    at += t->batch_wait_us;
    add_phase(otlp, job, "upload", at, t->upload_us, NULL);
    at += t->upload_us;
    add_phase(otlp, job, "compute", at, t->compute_us, batch);
    at += t->compute_us;
    add_phase(otlp, job, "download", at, t->download_us, NULL);
}

/* The batch is one span for all its jobs, so it is a trace of its own, and links lead both ways. */
static const struct blasd_span_link *join_batch(struct blasd_batch_span *batch,
                                                const struct blasd_span *job) {
    if (batch->jobs == 0) {
        blasd_trace_random(batch->self.trace, sizeof batch->self.trace);
        blasd_trace_random(batch->self.span, sizeof batch->self.span);
    }
    if (batch->jobs < BLASD_SPAN_LINKS) {
        memcpy(batch->links[batch->jobs].trace, job->trace, sizeof job->trace);
        memcpy(batch->links[batch->jobs].span, job->id, sizeof job->id);
    }
    batch->jobs++;
    return &batch->self;
}

/* Adds the job's own span, which is *ret; false where it is to have none. */
static bool add_job(struct blasd_otlp *otlp, const struct blasd_trace *trace,
                    const struct blasd_record *record, struct blasd_span *ret) {
    const struct blasd_execution *execution = &record->execution;
    struct blasd_span span = {.kind = BLASD_SPAN_CONSUMER,
                              .start_us = record->created_us - record->timing.receive_us,
                              .end_us = record->finished_us};
    if (otlp == NULL || !trace->sampled || !blasd_trace_given(trace->id)) return false;
    memcpy(span.trace, trace->id, sizeof span.trace);
    memcpy(span.parent, trace->span, sizeof span.parent);
    blasd_trace_job_span(record->id, span.id);
    set_name(&span, "job", record->op);
    if (record->error.code != BLASD_OK) span.error = blasd_err_info(record->error.code)->name;
    blasd_span_text(&span, "blasd.job.id", record->id);
    blasd_span_text(&span, "blasd.op", record->op);
    blasd_span_text(&span, "blasd.priority", blasd_priority_names[record->priority]);
    blasd_span_text(&span, "blasd.device", execution->device);
    blasd_span_text(&span, "blasd.method", execution->method);
    blasd_span_number(&span, "blasd.batch_size", execution->batch_size);
    blasd_span_number(&span, "blasd.attempts", execution->attempts);
    blasd_span_number(&span, "blasd.bytes", (int64_t)execution->bytes);
    blasd_otlp_add(otlp, &span);
    *ret = span;
    return true;
}

void blasd_spans_job(struct blasd_batch_span *batch, const struct blasd_trace *trace,
                     const struct blasd_record *record) {
    struct blasd_span span;
    if (add_job(batch->otlp, trace, record, &span))
        add_phases(batch->otlp, &span, record, join_batch(batch, &span));
}

void blasd_spans_unfinished(struct blasd_otlp *otlp, const struct blasd_trace *trace,
                            const struct blasd_record *record) {
    struct blasd_span span;
    if (add_job(otlp, trace, record, &span))
        add_phase(otlp, &span, "queue", record->created_us, record->timing.queue_us, NULL);
}

void blasd_spans_batch_end(struct blasd_batch_span *batch, const char *op, const char *device,
                           int count, int64_t start_us, int64_t end_us) {
    struct blasd_span span = {.kind = BLASD_SPAN_INTERNAL,
                              .start_us = start_us,
                              .end_us = end_us > start_us ? end_us : start_us,
                              .links = batch->links,
                              .link_count = batch->jobs};
    if (batch->jobs == 0) return;
    if (batch->jobs > BLASD_SPAN_LINKS) {
        span.link_count = BLASD_SPAN_LINKS;
        span.links_left_out = batch->jobs - BLASD_SPAN_LINKS;
    }
    memcpy(span.trace, batch->self.trace, sizeof span.trace);
    memcpy(span.id, batch->self.span, sizeof span.id);
    set_name(&span, "batch", op);
    blasd_span_text(&span, "blasd.op", op);
    blasd_span_text(&span, "blasd.device", device);
    blasd_span_number(&span, "blasd.batch_size", count);
    blasd_otlp_add(batch->otlp, &span);
    batch->jobs = 0;
}
