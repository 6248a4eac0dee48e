/* Spans on their way to a collector: OTLP over HTTP, as JSON. A thread sends what others add; they
 * never wait for it. What it cannot send in time is dropped, and counted. Knows nothing of jobs.
 * Read next: spans.h (what becomes a span), otlp_json.c (how it is written). */
#ifndef BLASD_TRACE_OTLP_H
#define BLASD_TRACE_OTLP_H

#include "base/buf.h"
#include "base/err.h"
#include "core/trace.h"

#define BLASD_SPAN_NAME 48
#define BLASD_SPAN_TEXT 64
#define BLASD_SPAN_ATTRIBUTES 8
#define BLASD_SPAN_LINKS 128 /* of the jobs of one batch; more are counted alone */

enum blasd_span_kind { BLASD_SPAN_INTERNAL = 1, BLASD_SPAN_SERVER, BLASD_SPAN_CONSUMER = 5 };

struct blasd_span_link {
    uint8_t trace[BLASD_TRACE_ID], span[BLASD_SPAN_ID];
};

struct blasd_span_attribute {
    const char *key;            /* static */
    char text[BLASD_SPAN_TEXT]; /* "": it is a number */
    int64_t number;
};

/* A plain value. */
struct blasd_span {
    uint8_t trace[BLASD_TRACE_ID], id[BLASD_SPAN_ID];
    uint8_t parent[BLASD_SPAN_ID]; /* zeros: none */
    char name[BLASD_SPAN_NAME];
    enum blasd_span_kind kind;
    int64_t start_us, end_us; /* since 1970 */
    const char *error;        /* static; NULL: it went well */
    struct blasd_span_attribute attributes[BLASD_SPAN_ATTRIBUTES];
    int attribute_count;
    const struct blasd_span_link *links; /* borrowed by blasd_otlp_add */
    int link_count, links_left_out;
};

struct blasd_otlp_options {
    const char *url;            /* of the collector; without a path /v1/traces is meant. Borrowed */
    const char *headers_file;   /* lines NAME: VALUE; NULL: none. Borrowed */
    const char *headers;        /* NAME=VALUE,NAME=VALUE; NULL: none. Borrowed */
    double sample;              /* of the requests that bring no traceparent, 0 to 1 */
    uint64_t spans_most;        /* that wait to be sent */
    const char *part, *version; /* "blasd api", "blasd worker"; borrowed */
    const char *instance;       /* which one of these; borrowed */
};

struct blasd_otlp_counts {
    uint64_t sent, dropped, refused;
};

struct blasd_otlp;

/* Whether the options can be used: the address, and the file of headers. */
int blasd_otlp_check(const struct blasd_otlp_options *options, struct blasd_err *err);
/* Reads the headers and makes the room. New: ended with blasd_otlp_stop. */
int blasd_otlp_new(const struct blasd_otlp_options *options, struct blasd_otlp **ret,
                   struct blasd_err *err);
/* Starts the thread, which has the rights that the caller has by then; takes NULL. */
int blasd_otlp_start(struct blasd_otlp *otlp, struct blasd_err *err);
/* Sends what there is, for a moment, and ends all; takes NULL. */
void blasd_otlp_stop(struct blasd_otlp *otlp);
/* Takes a copy; any thread may call. */
void blasd_otlp_add(struct blasd_otlp *otlp, const struct blasd_span *span);
/* Whether a request that says nothing of a trace is to be one; NULL: never. */
bool blasd_otlp_samples(const struct blasd_otlp *otlp);
struct blasd_otlp_counts blasd_otlp_counts(const struct blasd_otlp *otlp);

/* For building a span: appends an attribute; those beyond the most are left out. */
void blasd_span_text(struct blasd_span *span, const char *key, const char *text);
void blasd_span_number(struct blasd_span *span, const char *key, int64_t number);

/* otlp_json.c: an ExportTraceServiceRequest, appended; 0, or -1 where memory has run out. */
int blasd_otlp_json(const struct blasd_otlp_options *who, const struct blasd_span *spans, int count,
                    struct blasd_buf *out);

#endif
