/* Reading headers and query parameters. */
#include "http/request.h"

#include "core/labels.h"
#include "core/op.h"
#include "core/record.h"
#include "wire/part_header.h"
#include "wire/request_fields.h"
#include "wire/sanitize.h"

#include <errno.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

enum http_method http_method_find(const char *name) {
    static const struct {
        const char *name;
        enum http_method method;
    } methods[] = {{"GET", HTTP_GET},       {"HEAD", HTTP_HEAD},       {"POST", HTTP_POST},
                   {"DELETE", HTTP_DELETE}, {"OPTIONS", HTTP_OPTIONS}, {"PATCH", HTTP_PATCH},
                   {NULL, HTTP_OTHER}};
    int i = 0;
    while (methods[i].name != NULL && strcmp(methods[i].name, name) != 0) i++;
    return methods[i].method;
}

/* Passes digits; how many there are. */
static size_t digits(const char **at) {
    const char *from = *at;
    while (**at >= '0' && **at <= '9') ++*at;
    return (size_t)(*at - from);
}

/* Reads seconds as people and programs write them, "2", "0.25" or "1e1"; no sign, nan or
 * hexadecimal. */
static bool read_seconds(const char *text, size_t len, double *ret) {
    const char *at = text;
    size_t some = digits(&at);
    if (*at == '.') {
        at++;
        some += digits(&at);
    }
    if (some > 0 && (*at == 'e' || *at == 'E')) {
        at++;
        if (*at == '+' || *at == '-') at++;
        some = digits(&at);
    }
    if (some == 0 || at != text + len) return false;
    *ret = strtod(text, NULL);
    return true;
}

bool http_count_read(const char *text, uint64_t *ret) {
    char *end;
    unsigned long long value;
    if (text[0] < '0' || text[0] > '9') return false;
    errno = 0;
    value = strtoull(text, &end, 10);
    if (errno != 0 || *end != '\0') return false;
    *ret = value;
    return true;
}

static const char *skip_space(const char *at, const char *end) {
    while (at < end && (*at == ' ' || *at == '\t')) at++;
    return at;
}

/* One preference of RFC 7240. What is not known or not well formed is passed over, as it says. */
static void read_preference(struct http_request *request, const char *at, const char *end) {
    static const char wait[] = "wait", async[] = "respond-async", share[] = "share";
    double seconds;
    while (end > at && (end[-1] == ' ' || end[-1] == '\t')) end--;
    if ((size_t)(end - at) == strlen(async) && strncasecmp(at, async, strlen(async)) == 0) {
        request->prefer.async = true;
        return;
    }
    if ((size_t)(end - at) == strlen(share) && strncasecmp(at, share, strlen(share)) == 0) {
        request->prefer.share = true;
        return;
    }
    if ((size_t)(end - at) <= strlen(wait) || strncasecmp(at, wait, strlen(wait)) != 0) return;
    at = skip_space(at + strlen(wait), end);
    if (at == end || *at != '=') return;
    at = skip_space(at + 1, end);
    if (end - at >= 2 && *at == '"' && end[-1] == '"') {
        at++;
        end--;
    }
    if (request->prefer.wait || !read_seconds(at, (size_t)(end - at), &seconds)) return;
    request->prefer.wait = true;
    request->prefer.wait_s = seconds;
}

static void read_prefer(struct http_request *request, const char *value, size_t len) {
    const char *end = value + len;
    while (value < end) {
        const char *comma = memchr(value, ',', (size_t)(end - value));
        const char *stop = comma == NULL ? end : comma;
        const char *semicolon = memchr(value, ';', (size_t)(stop - value));
        read_preference(request, skip_space(value, stop), semicolon == NULL ? stop : semicolon);
        value = stop + 1;
    }
}

/* "bytes=0-99", "bytes=100-" or "bytes=-100". Any other is passed over, as RFC 9110 says of what a
 * server does not take, and so are several, in one header or in two. */
static void read_range(struct http_range *range, const char *value) {
    char first[24] = "", last[24] = "";
    const bool again = range->seen;
    size_t split, end;
    *range = (struct http_range){.seen = true};
    if (again) return;
    if (strncasecmp(value, "bytes=", 6) != 0) return;
    value += 6;
    split = strcspn(value, "-");
    if (value[split] != '-') return;
    end = strlen(value + split + 1);
    if (split >= sizeof first || end >= sizeof last) return;
    memcpy(first, value, split);
    memcpy(last, value + split + 1, end);
    range->last = UINT64_MAX;
    range->from_end = split == 0;
    range->given = range->from_end ? http_count_read(last, &range->first)
                                   : http_count_read(first, &range->first) &&
                                         (end == 0 || (http_count_read(last, &range->last) &&
                                                       range->last >= range->first));
}

/* "k", as the header's draft writes it, and k are one key. */
static int unquote_key(struct http_request *request, const char *value, struct blasd_err *err) {
    size_t len = 0;
    for (value++; *value != '"' && *value != '\0'; value++) {
        if (*value == '\\' && (value[1] == '"' || value[1] == '\\')) value++;
        request->key[len++] = *value;
    }
    if (len == 0 || strcmp(value, "\"") != 0)
        return blasd_fail(err, BLASD_E_malformed_query, "Idempotency-Key",
                          "a key that begins with a quote must end with one, and not be empty");
    request->key[len] = '\0';
    request->idempotency_key = request->key;
    return 0;
}

static int read_key(struct http_request *request, const char *value, size_t len,
                    struct blasd_err *err) {
    bool printable = len >= 1 && len <= HTTP_IDEMPOTENCY_KEY_MAX;
    for (size_t i = 0; printable && i < len; i++) printable = value[i] >= ' ' && value[i] <= '~';
    if (!printable)
        return blasd_fail(err, BLASD_E_malformed_query, "Idempotency-Key",
                          "the header must be 1 to %d printable ASCII characters",
                          HTTP_IDEMPOTENCY_KEY_MAX);
    request->idempotency_key = value;
    return value[0] == '"' ? unquote_key(request, value, err) : 0;
}

/* Two readers that disagree about where a body ends can be made to see different requests. */
static int ambiguous(struct http_request *request, const char *name, const char *why,
                     struct blasd_err *err) {
    request->framing.ambiguous = true;
    return blasd_fail(err, BLASD_E_malformed_query, name, "%s", why);
}

static int read_length(struct http_request *request, const char *value, struct blasd_err *err) {
    if (request->framing.has_length)
        return ambiguous(request, "Content-Length", "the header is there twice", err);
    request->framing.has_length = true;
    if (!http_count_read(value, &request->framing.content_length))
        return ambiguous(request, "Content-Length", "the header is not a whole number", err);
    if (!request->framing.chunked) return 0;
    return ambiguous(request, "Content-Length", "a chunked body has no Content-Length", err);
}

static int read_transfer(struct http_request *request, const char *value, struct blasd_err *err) {
    bool again = request->framing.chunked;
    request->framing.chunked = true; /* of unknown length, whatever it is */
    if (again) return ambiguous(request, "Transfer-Encoding", "the header is there twice", err);
    if (strcasecmp(value, "chunked") != 0)
        return ambiguous(request, "Transfer-Encoding",
                         "only 'chunked' is taken, without a space behind it", err);
    if (!request->framing.has_length) return 0;
    return ambiguous(request, "Content-Length", "a chunked body has no Content-Length", err);
}

/* A header that is malformed, or there twice, counts as absent: that is no reason to refuse. */
static void read_trace(struct http_request *request, const char *value, size_t len) {
    struct http_tracing *tracing = &request->tracing;
    if (tracing->seen || !blasd_trace_read(value, len, &tracing->trace))
        tracing->trace = (struct blasd_trace){.sampled = false};
    memcpy(tracing->parent, tracing->trace.span, sizeof tracing->parent);
    tracing->seen = true;
}

static int read_coding(struct http_request *request, const char *value, struct blasd_err *err) {
    if (http_coding_find(value, &request->coding)) return 0;
    return blasd_fail(err, BLASD_E_unsupported_media_type, "Content-Encoding",
                      "bodies are taken as they are, or where a route says so compressed by gzip "
                      "or deflate");
}

enum header_kind {
    KEPT, /* as it is, and there once at the most */
    LAST, /* as it is, of several the last */
    KEY,
    CODING,
    LENGTH,
    TRANSFER,
    TRACE,
    RANGE,
    PREFER,
    EXPECT,
    ACCEPT,
    ACCEPT_ENCODING
};

/* The headers that are read; where their text is kept, if it is. */
struct header {
    const char *name;
    size_t len, slot;
    enum header_kind kind;
};
#define HEADER(name, kind, slot)                                                                   \
    { name, sizeof name - 1, offsetof(struct http_request, slot), kind }
static const struct header headers[] = {
    HEADER("Host", KEPT, host),
    HEADER("Accept", ACCEPT, accept),
    HEADER("Content-Type", KEPT, content_type),
    HEADER("Content-Length", LENGTH, framing),
    HEADER("Authorization", KEPT, authorization),
    HEADER("Accept-Encoding", ACCEPT_ENCODING, accept),
    HEADER("Expect", EXPECT, framing),
    HEADER("Prefer", PREFER, prefer),
    HEADER("traceparent", TRACE, tracing),
    HEADER("Origin", KEPT, origin),
    HEADER("Idempotency-Key", KEY, idempotency_key),
    HEADER("Transfer-Encoding", TRANSFER, framing),
    HEADER("Content-Encoding", CODING, codings),
    HEADER("Range", RANGE, range),
    HEADER("If-Range", LAST, if_range),
    HEADER("If-None-Match", LAST, if_none_match),
    HEADER("Body-File", KEPT, body_file),
    HEADER("Inference-Header-Content-Length", KEPT, json_bytes),
    HEADER("Sec-Fetch-Site", KEPT, fetch.site),
    HEADER("Sec-Fetch-Mode", KEPT, fetch.mode),
    HEADER("Sec-Fetch-Dest", KEPT, fetch.dest),
    HEADER("Last-Event-ID", KEPT, last_event_id),
};

/* By length and first letter, before a name is compared. NULL: none that is read. */
static const struct header *find_header(const char *name) {
    size_t len = strlen(name);
    for (size_t i = 0; i < sizeof headers / sizeof *headers; i++)
        if (headers[i].len == len && (headers[i].name[0] | 0x20) == (name[0] | 0x20) &&
            strcasecmp(headers[i].name, name) == 0)
            return &headers[i];
    return NULL;
}

static void read_accept(struct http_request *request, const char *value) {
    blasd_accept_add(&request->accepts, value);
    if (request->accept == NULL) request->accept = value;
}

int http_request_header(struct http_request *request, const char *name, const char *value,
                        size_t len, struct blasd_err *err) {
    const struct header *header = find_header(name);
    bool once = header != NULL && (header->kind <= CODING && header->kind != LAST);
    const char **slot;
    if (header != NULL) name = header->name;
    if (value == NULL || memchr(value, '\0', len) != NULL)
        return blasd_fail(err, BLASD_E_malformed_query, name, "the header holds a zero byte");
    if (header == NULL) return 0;
    slot = (const char **)(void *)((char *)request + header->slot);
    if (once && *slot != NULL)
        return blasd_fail(err, BLASD_E_malformed_query, name, "the header is there twice");
    if (header->kind <= CODING) *slot = value;
    switch (header->kind) {
    case KEPT:
    case LAST: break;
    case KEY: return read_key(request, value, len, err);
    case CODING: return read_coding(request, value, err);
    case LENGTH: return read_length(request, value, err);
    case TRANSFER: return read_transfer(request, value, err);
    case TRACE: read_trace(request, value, len); break;
    case RANGE: read_range(&request->range, value); break;
    case PREFER: read_prefer(request, value, len); break;
    case EXPECT: request->framing.expects_continue = strcasecmp(value, "100-continue") == 0; break;
    case ACCEPT: read_accept(request, value); break;
    case ACCEPT_ENCODING:
        if (http_coding_takes_gzip(value)) request->takes_gzip = true;
        break;
    }
    return 0;
}

static int param_wait(struct http_request *request, const struct blasd_limits *limits,
                      const char *value, size_t len, struct blasd_err *err) {
    char shown[BLASD_SANITIZED_MAX];
    double seconds;
    if (!read_seconds(value, len, &seconds))
        return blasd_fail(err, BLASD_E_malformed_query, "wait",
                          "wait is a number of seconds such as 10 or 0.5, not '%s'",
                          blasd_sanitize(shown, value, len));
    if (!(seconds <= (double)limits->wait_s))
        return blasd_fail(err, BLASD_E_malformed_query, "wait",
                          "wait may be at most %llu seconds (limit wait_s)",
                          (unsigned long long)limits->wait_s);
    request->query.wait_s = seconds;
    return 0;
}

static int param_limit(struct http_request *request, const struct blasd_limits *limits,
                       const char *value, struct blasd_err *err) {
    uint64_t count;
    if (!http_count_read(value, &count) || count < 1 || count > INT64_MAX)
        return blasd_fail(err, BLASD_E_malformed_query, "limit",
                          "limit is a whole number of at least 1; a page has at most %llu (limit "
                          "list_jobs)",
                          (unsigned long long)limits->list_jobs);
    request->query.limit = (int)(count < limits->list_jobs ? count : limits->list_jobs);
    return 0;
}

static int param_state(struct http_request *request, const char *value, struct blasd_err *err) {
    enum blasd_state state;
    if (!blasd_state_find(value, &state))
        return blasd_fail(err, BLASD_E_malformed_query, "state",
                          "state is queued, running, succeeded, failed, cancelled or expired");
    request->query.state = (int)state;
    return 0;
}

static int bad_time(const char *name, struct blasd_err *err) {
    return blasd_fail(err, BLASD_E_malformed_query, name,
                      "%s is a time such as 2026-01-31T12:00:00Z or 2026-01-31, or seconds since "
                      "1970",
                      name);
}

/* Reads "Z" or "+01:00", in seconds east of UTC. In a query a plus that is not escaped is a space.
 */
static bool read_zone(const char *text, int *ret) {
    int hours, minutes;
    char end;
    *ret = 0;
    if (strcasecmp(text, "Z") == 0) return true;
    if (strchr("+- ", text[0]) == NULL || strlen(text) != strlen("+01:00") ||
        sscanf(text + 1, "%2d:%2d%c", &hours, &minutes, &end) != 2 || hours > 23 || minutes > 59)
        return false;
    *ret = (text[0] == '-' ? -60 : 60) * (60 * hours + minutes);
    return true;
}

/* Reads a date and a time of RFC 3339, to the microsecond at most; a date alone is its begin in
 * UTC. */
static bool read_date(const char *value, int64_t *ret) {
    struct tm tm = {0};
    double fraction = 0;
    const char *rest = strptime(value, "%Y-%m-%d", &tm);
    int month = tm.tm_mon, zone = 0;
    if (rest == NULL || tm.tm_year < 70) return false;
    if (rest[0] != '\0') {
        if (rest[0] != 'T' && rest[0] != 't') return false;
        if ((rest = strptime(rest + 1, "%H:%M:%S", &tm)) == NULL) return false;
        if (rest[0] == '.') {
            size_t digits = strspn(rest + 1, "0123456789");
            if (digits == 0 || !read_seconds(rest, digits + 1, &fraction)) return false;
            rest += digits + 1;
        }
        if (!read_zone(rest, &zone)) return false;
    }
    *ret = ((int64_t)timegm(&tm) - zone) * 1000000 + llround(fraction * 1e6);
    return tm.tm_mon == month; /* not the 31st of April */
}

/* Reads a date, or seconds since 1970. */
static int read_time(const char *name, const char *value, int64_t *ret, struct blasd_err *err) {
    double seconds;
    if (read_date(value, ret)) return 0;
    if (!read_seconds(value, strlen(value), &seconds) || seconds > 1e11) return bad_time(name, err);
    *ret = llround(seconds * 1e6);
    return 0;
}

static int param_flag(const char *name, const char *value, bool *ret, struct blasd_err *err) {
    *ret = strcmp(value, "1") == 0 || strcmp(value, "true") == 0;
    if (*ret || strcmp(value, "0") == 0 || strcmp(value, "false") == 0) return 0;
    return blasd_fail(err, BLASD_E_malformed_query, name, "%s is true or false", name);
}

/* The operation that a list is narrowed by. */
static int param_op(struct http_request *request, unsigned allowed, const char *value,
                    struct blasd_err *err) {
    char known[160], shown[BLASD_SANITIZED_MAX];
    request->query.op = value;
    if ((allowed & HTTP_PARAM_STATE) == 0 || blasd_op_find(value) != NULL) return 0;
    blasd_op_names(true, known, sizeof known);
    return blasd_fail(err, BLASD_E_malformed_query, "op", "'%s' is not among %s",
                      blasd_sanitize(shown, value, strlen(value)), known);
}

static int param_life(struct http_request *request, const struct blasd_limits *limits,
                      const char *value, struct blasd_err *err) {
    uint64_t *life_s = &request->query.life_s;
    if (http_count_read(value, life_s) && *life_s >= 1 && *life_s <= limits->tensor_life_most_s)
        return 0;
    return blasd_fail(err, BLASD_E_malformed_query, "life_s",
                      "life_s is a whole number of seconds from 1 to %llu (limit "
                      "tensor_life_most_s)",
                      (unsigned long long)limits->tensor_life_most_s);
}

static int param_label(struct http_request *request, const char *value, struct blasd_err *err) {
    if (!blasd_label_wanted_valid(value))
        return blasd_fail(err, BLASD_E_malformed_query, "label",
                          "label is NAME=VALUE, or NAME for any value, as labels of jobs are");
    if (request->query.label_count == HTTP_LABELS_WANTED)
        return blasd_fail(err, BLASD_E_malformed_query, "label", "a list takes at most %d labels",
                          HTTP_LABELS_WANTED);
    request->query.labels_wanted[request->query.label_count++] = value;
    return 0;
}

static int param_target(struct http_request *request, const char *value, size_t len,
                        struct blasd_err *err) {
    double *target_s = &request->query.target_s;
    char shown[BLASD_SANITIZED_MAX];
    if (read_seconds(value, len, target_s) && *target_s >= 0.001 && *target_s <= 1e9) return 0;
    return blasd_fail(err, BLASD_E_malformed_query, "target_s",
                      "target_s is a number of seconds from 0.001 to 1e9, not '%s'",
                      blasd_sanitize(shown, value, len));
}

static const struct {
    const char *name;
    unsigned bit;
} params[] = {{"wait", HTTP_PARAM_WAIT},
              {"op", HTTP_PARAM_OP},
              {"params", HTTP_PARAM_PARAMS},
              {"priority", HTTP_PARAM_PRIORITY},
              {"deadline_ms", HTTP_PARAM_DEADLINE},
              {"device", HTTP_PARAM_DEVICE},
              {"state", HTTP_PARAM_STATE},
              {"limit", HTTP_PARAM_LIMIT},
              {"cursor", HTTP_PARAM_CURSOR},
              {"since", HTTP_PARAM_SINCE},
              {"before", HTTP_PARAM_BEFORE},
              {"forget", HTTP_PARAM_FORGET},
              {"target_s", HTTP_PARAM_TARGET},
              {"dry_run", HTTP_PARAM_DRY_RUN},
              {"labels", HTTP_PARAM_LABELS},
              {"label", HTTP_PARAM_LABEL},
              {"life_s", HTTP_PARAM_LIFE},
              {"keep", HTTP_PARAM_KEEP},
              {"results", HTTP_PARAM_RESULTS},
              {"sha256", HTTP_PARAM_SHA256},
              {"notify", HTTP_PARAM_NOTIFY}};

const char *http_param_name(unsigned bits) {
    for (size_t i = 0; i < sizeof params / sizeof *params; i++)
        if ((params[i].bit & bits) != 0) return params[i].name;
    return "";
}

int http_request_param(struct http_request *request, unsigned allowed,
                       const struct blasd_limits *limits, const char *name, const char *value,
                       size_t len, struct blasd_err *err) {
    char shown[BLASD_SANITIZED_MAX];
    unsigned bit = 0;
    int rc;
    for (size_t i = 0; i < sizeof params / sizeof *params; i++)
        if (params[i].name[0] == name[0] && strcmp(params[i].name, name) == 0) bit = params[i].bit;
    if (bit == 0 && (allowed & HTTP_PARAM_NOTIFY) != 0 &&
        (rc = blasd_request_fields_removed(name, err)) != 0)
        return rc;
    if ((bit & allowed) == 0)
        return blasd_fail(err, BLASD_E_malformed_query, blasd_sanitize(shown, name, strlen(name)),
                          "this route has no query parameter '%s'", shown);
    if (value == NULL || memchr(value, '\0', len) != NULL)
        return blasd_fail(err, BLASD_E_malformed_query, name, "the parameter has no value");
    if ((request->query.given & bit) != 0 && bit != HTTP_PARAM_LABEL)
        return blasd_fail(err, BLASD_E_malformed_query, name, "the parameter is there twice");
    request->query.given |= bit;
    switch ((enum http_param)bit) {
    case HTTP_PARAM_WAIT: return param_wait(request, limits, value, len, err);
    case HTTP_PARAM_LIMIT: return param_limit(request, limits, value, err);
    case HTTP_PARAM_STATE: return param_state(request, value, err);
    case HTTP_PARAM_SINCE: return read_time(name, value, &request->query.since_us, err);
    case HTTP_PARAM_BEFORE: return read_time(name, value, &request->query.before_us, err);
    case HTTP_PARAM_FORGET: return param_flag(name, value, &request->query.forget, err);
    case HTTP_PARAM_DRY_RUN: return param_flag(name, value, &request->query.dry_run, err);
    case HTTP_PARAM_SHA256: return param_flag(name, value, &request->query.sha256, err);
    case HTTP_PARAM_TARGET: return param_target(request, value, len, err);
    case HTTP_PARAM_LABEL: return param_label(request, value, err);
    case HTTP_PARAM_LABELS: request->query.labels = value; break;
    case HTTP_PARAM_CURSOR: request->query.cursor = value; break;
    case HTTP_PARAM_LIFE: return param_life(request, limits, value, err);
    case HTTP_PARAM_KEEP: request->query.keep = value; break;
    case HTTP_PARAM_RESULTS: request->query.results = value; break;
    case HTTP_PARAM_NOTIFY: request->query.notify = value; break;
    case HTTP_PARAM_OP: return param_op(request, allowed, value, err);
    case HTTP_PARAM_PARAMS: request->query.params = value; break;
    case HTTP_PARAM_PRIORITY: request->query.priority = value; break;
    case HTTP_PARAM_DEADLINE: request->query.deadline_ms = value; break;
    case HTTP_PARAM_DEVICE: request->query.device = value; break;
    }
    return 0;
}

double http_request_wait(const struct http_request *request, const struct blasd_limits *limits,
                         bool *preferred) {
    *preferred = false;
    if ((request->query.given & HTTP_PARAM_WAIT) != 0) return request->query.wait_s;
    if (!request->prefer.wait) return 0;
    *preferred = true;
    return request->prefer.wait_s <= (double)limits->wait_s ? request->prefer.wait_s
                                                            : (double)limits->wait_s;
}

bool http_request_is_json(const struct http_request *request) {
    const char *type = request->content_type;
    if (request->body_file != NULL) return false;
    return type == NULL || blasd_media_type_is(type, "application/json") ||
           blasd_media_type_is(type, "application/x-www-form-urlencoded");
}
