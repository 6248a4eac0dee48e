/* Reading headers. Read next: query.c. */
#include "http/request.h"

#include "wire/part_header.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

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

bool http_seconds_read(const char *text, size_t len, double *ret) {
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
    if (request->prefer.wait || !http_seconds_read(at, (size_t)(end - at), &seconds)) return;
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
