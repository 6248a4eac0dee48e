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

static enum MHD_Result copy(void *cls, enum MHD_ValueKind kind, const char *name,
                            const char *value) {
    (void)kind;
    if (strncmp(name, "Content-", strlen("Content-")) != 0)
        (void)MHD_add_response_header(cls, name, value);
    return MHD_YES;
}

struct MHD_Response *http_etag_apply(const struct http_exchange *exchange, unsigned *status,
                                     struct MHD_Response *response) {
    const char *coding, *held = exchange->request.if_none_match;
    char tag[sizeof exchange->answer.tag + 16], quoted[sizeof tag + 2];
    struct MHD_Response *empty;
    if (response == NULL || exchange->answer.tag[0] == '\0' ||
        (exchange->request.method & (HTTP_GET | HTTP_HEAD)) == 0 ||
        (*status != 200 && *status != 206))
        return response;
    coding = MHD_get_response_header(response, "Content-Encoding");
    snprintf(tag, sizeof tag, "%s%s%s", exchange->answer.tag, coding == NULL ? "" : ".",
             coding == NULL ? "" : coding);
    snprintf(quoted, sizeof quoted, "\"%s\"", tag);
    (void)MHD_add_response_header(response, "ETag", quoted);
    if (held == NULL || !has(held, tag)) return response;
    empty = MHD_create_response_from_buffer(0, NULL, MHD_RESPMEM_PERSISTENT);
    if (empty == NULL) return response;
    (void)MHD_get_response_headers(response, copy, empty);
    MHD_destroy_response(response);
    *status = 304;
    return empty;
}
