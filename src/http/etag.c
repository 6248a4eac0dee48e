/* Tags of representations. */
#include "http/etag.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

bool http_etag_is_output(const struct http_exchange *exchange) {
    return exchange->wanted.ranges ||
           (exchange->captures[1][0] != '\0' && exchange->form.dialect == NULL);
}

void http_etag_of_output(struct http_exchange *exchange, enum blasd_format of) {
    const char *type = blasd_format_type(of), *format = strrchr(type, '/');
    if (!http_etag_is_output(exchange)) return;
    snprintf(exchange->answer.tag, sizeof exchange->answer.tag, "%s.%s.%.20s",
             exchange->captures[0], exchange->captures[1], format == NULL ? type : format + 1);
}

/* Whether a list of tags, or `*`, has this one; W/ in front of one says nothing here. */
static bool has(const char *list, const char *tag) {
    size_t len = strlen(tag);
    if (strcmp(list, "*") == 0) return true;
    for (const char *at = strchr(list, '"'), *end; at != NULL; at = strchr(end + 1, '"')) {
        end = strchr(++at, '"');
        if (end == NULL) return false;
        if ((size_t)(end - at) == len && memcmp(at, tag, len) == 0) return true;
    }
    return false;
}

static bool wants_range(const struct http_exchange *exchange) {
    const char *wanted = exchange->request.if_range;
    if (exchange->request.method != HTTP_GET || !exchange->request.range.given ||
        !http_etag_is_output(exchange))
        return false;
    return wanted == NULL || (wanted[0] == '"' && exchange->answer.tag[0] != '\0' &&
                              has(wanted, exchange->answer.tag));
}

struct blasd_answer *http_etag_cut(struct http_exchange *exchange, struct blasd_answer *answer,
                                   struct blasd_err *err) {
    const struct http_range *range = &exchange->request.range;
    int64_t size = answer == NULL ? -1 : blasd_answer_size(answer);
    uint64_t all = (uint64_t)size, from = range->first, to = range->last;
    http_etag_of_output(exchange, (enum blasd_format)exchange->wanted.format);
    if (size < 0 || !wants_range(exchange)) return answer;
    if (range->from_end) from = range->first < all ? all - range->first : 0;
    if (to > all - 1) to = all - 1;
    exchange->wanted.all = all;
    if (all == 0 || from >= all) {
        blasd_answer_free(answer);
        blasd_fail(err, BLASD_E_range_not_satisfiable, "Range",
                   "the output has %" PRIu64 " bytes in this format", all);
        return NULL;
    }
    blasd_answer_cut(answer, from, to - from + 1);
    exchange->wanted.partial = true;
    exchange->wanted.from = from;
    exchange->wanted.to = to;
    return answer;
}

bool http_etag_counts(const struct http_exchange *exchange, unsigned status) {
    return exchange->answer.tag[0] != '\0' && (status == 200 || status == 206) &&
           (exchange->request.method & (HTTP_GET | HTTP_HEAD)) != 0;
}

bool http_etag_held(const struct http_exchange *exchange, bool packed, char tag[HTTP_TAG]) {
    const char *held = exchange->request.if_none_match;
    int len = snprintf(tag, HTTP_TAG, "\"%s%s\"", exchange->answer.tag, packed ? ".gzip" : "");
    char plain[HTTP_TAG];
    snprintf(plain, sizeof plain, "%.*s", len - 2, tag + 1);
    return held != NULL && has(held, plain);
}
