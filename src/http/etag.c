/* Tags of representations. */
#include "http/etag.h"

#include <stdio.h>
#include <string.h>

void http_etag_of_output(struct http_exchange *exchange, const char *type) {
    const char *format = strrchr(type, '/');
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

bool http_etag_allows_range(const struct http_exchange *exchange) {
    const char *wanted = exchange->request.if_range;
    return wanted == NULL || (wanted[0] == '"' && exchange->answer.tag[0] != '\0' &&
                              has(wanted, exchange->answer.tag));
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
