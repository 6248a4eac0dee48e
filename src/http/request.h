/* What a request says in its headers and its query, read once and checked. Pure: knows nothing of
 * libmicrohttpd, so that tests can feed it anything. Read next: origin_check.h. */
#ifndef BLASD_HTTP_REQUEST_H
#define BLASD_HTTP_REQUEST_H

#include "base/err.h"
#include "base/limits.h"
#include "core/trace.h"
#include "http/coding.h"
#include "wire/answer.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HTTP_IDEMPOTENCY_KEY_MAX 128
/* Query parameters that are looked at; no route takes so many, and each takes memory. */
#define HTTP_PARAMS_MOST 64
#define HTTP_LABELS_WANTED 8 /* of jobs in a list */

enum http_method {
    HTTP_GET = 1,
    HTTP_HEAD = 2,
    HTTP_POST = 4,
    HTTP_DELETE = 8,
    HTTP_OPTIONS = 16,
    HTTP_OTHER = 32,
    HTTP_PATCH = 64
};

/* Query parameters, as bits: a route names those it takes. */
enum http_param {
    HTTP_PARAM_WAIT = 1,
    HTTP_PARAM_OP = 2,
    HTTP_PARAM_PARAMS = 4,
    HTTP_PARAM_PRIORITY = 8,
    HTTP_PARAM_DEADLINE = 16,
    HTTP_PARAM_DEVICE = 32,
    HTTP_PARAM_STATE = 64,
    HTTP_PARAM_LIMIT = 128,
    HTTP_PARAM_CURSOR = 256,
    HTTP_PARAM_SINCE = 512,
    HTTP_PARAM_BEFORE = 1024,
    HTTP_PARAM_FORGET = 2048,
    HTTP_PARAM_TARGET = 4096,
    HTTP_PARAM_DRY_RUN = 8192,
    HTTP_PARAM_LABELS = 16384,
    HTTP_PARAM_LABEL = 32768,
    HTTP_PARAM_LIFE = 65536,
    HTTP_PARAM_KEEP = 131072,
    HTTP_PARAM_RESULTS = 262144,
    HTTP_PARAM_SHA256 = 524288,
    HTTP_PARAM_NOTIFY = 1048576,
    HTTP_PARAM_DIGEST = 2097152
};

/* Prefer */
struct http_prefer {
    bool async;    /* respond-async */
    bool share;    /* share */
    bool wait;     /* wait=… */
    double wait_s; /* not yet capped */
};

/* Range: the one range of bytes that is asked for. */
struct http_range {
    bool given, from_end; /* from_end: the last `first` bytes */
    uint64_t first, last; /* last UINT64_MAX: to the end */
    bool seen;            /* there was such a header */
};

/* traceparent, where there is one and it is well formed. */
struct http_tracing {
    struct blasd_trace trace;      /* its span: the request's own, once there is one (answered.h) */
    uint8_t parent[BLASD_SPAN_ID]; /* the client's; zeros: none */
    bool seen;                     /* the header was there */
};

/* Where the body ends, and how it comes. */
struct http_framing {
    bool expects_continue, chunked;
    bool has_length;
    uint64_t content_length; /* 0 where none was sent */
    bool ambiguous;          /* the end depends on who reads the headers: close after answering */
};

/* Query parameters. */
struct http_query {
    unsigned given; /* those that were there, HTTP_PARAM_ bits */
    const char *op, *params, *priority, *deadline_ms, *device, *cursor, *labels, *keep, *results,
        *notify, *digest;
    const char *labels_wanted[HTTP_LABELS_WANTED]; /* NAME=VALUE or NAME; all of them */
    int label_count;
    int64_t since_us, before_us; /* since 1970 */
    bool forget, dry_run, sha256;
    double wait_s, target_s;
    int state; /* an enum blasd_state */
    int limit;
    uint64_t life_s;
};

/* All text is borrowed from the connection and lasts as long as the request. Zero it before use. */
struct http_request {
    enum http_method method;
    const char *host, *origin, *content_type, *idempotency_key, *authorization;
    struct {
        const char *site, *mode, *dest;
    } fetch; /* Sec-Fetch-…: what a browser says of itself */
    struct blasd_accept accepts;
    const char *accept;      /* the first of these headers, to be named in an error */
    const char *json_bytes;  /* Inference-Header-Content-Length, as it was sent */
    enum http_coding coding; /* of the body */
    bool takes_gzip;         /* the client, of an answer */
    const char *codings;     /* Content-Encoding, as it was sent */
    bool elsewhere;          /* the payload may be more than the body; set by a route */
    const char *body_file;   /* Body-File: the body is this file, handed in beside the request */
    struct http_prefer prefer;
    struct http_range range;
    struct http_tracing tracing;
    const char *last_event_id;            /* Last-Event-ID, which is refused */
    const char *if_range, *if_none_match; /* borrowed, as the others; NULL: not there */
    struct http_framing framing;
    struct http_query query;
    char key[HTTP_IDEMPOTENCY_KEY_MAX + 1]; /* idempotency_key, where it is not the header itself */
};

enum http_method http_method_find(const char *name);

/* Takes one header. `len` is the value's length: one that holds a zero byte is refused. */
int http_request_header(struct http_request *request, const char *name, const char *value,
                        size_t len, struct blasd_err *err);
/* query.c. Takes one query parameter (value NULL: there was no `=`); `allowed` are those the route
 * takes. */
int http_request_param(struct http_request *request, unsigned allowed,
                       const struct blasd_limits *limits, const char *name, const char *value,
                       size_t len, struct blasd_err *err);
/* The name of one of the parameters. */
const char *http_param_name(unsigned bits);
/* How long the answer may be held, in seconds; 0: not at all. *preferred is set where that comes
 * from the Prefer header, which is capped by the limit and not refused. */
double http_request_wait(const struct http_request *request, const struct blasd_limits *limits,
                         bool *preferred);
/* Reads seconds as people and programs write them, "2", "0.25" or "1e1"; no sign, nan or
 * hexadecimal. */
bool http_seconds_read(const char *text, size_t len, double *ret);
/* Reads a whole number of digits alone; false where it is none, or too large. */
bool http_count_read(const char *text, uint64_t *ret);
/* Whether the body is read as JSON: it claims to be, or claims nothing, or what `curl -d` claims;
 * a file that was handed in never is. */
bool http_request_is_json(const struct http_request *request);

#endif
