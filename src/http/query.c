/* Reading query parameters. */
#include "core/labels.h"
#include "core/op.h"
#include "core/record.h"
#include "http/request.h"
#include "wire/request_fields.h"
#include "wire/sanitize.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <time.h>

static int param_wait(struct http_request *request, const struct blasd_limits *limits,
                      const char *value, size_t len, struct blasd_err *err) {
    char shown[BLASD_SANITIZED_MAX];
    double seconds;
    if (!http_seconds_read(value, len, &seconds))
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
            if (digits == 0 || !http_seconds_read(rest, digits + 1, &fraction)) return false;
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
    if (!http_seconds_read(value, strlen(value), &seconds) || seconds > 1e11)
        return bad_time(name, err);
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
    if (http_seconds_read(value, len, target_s) && *target_s >= 0.001 && *target_s <= 1e9) return 0;
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
              {"notify", HTTP_PARAM_NOTIFY},
              {"digest", HTTP_PARAM_DIGEST}};

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
    case HTTP_PARAM_DIGEST: request->query.digest = value; break;
    case HTTP_PARAM_OP: return param_op(request, allowed, value, err);
    case HTTP_PARAM_PARAMS: request->query.params = value; break;
    case HTTP_PARAM_PRIORITY: request->query.priority = value; break;
    case HTTP_PARAM_DEADLINE: request->query.deadline_ms = value; break;
    case HTTP_PARAM_DEVICE: request->query.device = value; break;
    }
    return 0;
}
