/* Looking at the lines of a head once more. */
#include "http/head.h"

#include <stdint.h>
#include <string.h>
#include <strings.h>

static int refuse(struct blasd_err *err, const char *why) {
    return blasd_fail(err, BLASD_E_malformed_query, "", "%s", why);
}

static bool is_token(const char *text, size_t len) {
    static const char others[] = "!#$%&'*+-.^_`|~";
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)text[i], letter = c | 0x20;
        if (!(letter >= 'a' && letter <= 'z') && !(c >= '0' && c <= '9') &&
            (c == '\0' || strchr(others, c) == NULL))
            return false;
    }
    return len > 0;
}

static bool has_control(const char *text, size_t len) {
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)text[i];
        if ((c < ' ' && c != '\t') || c == 0x7f) return true;
    }
    return false;
}

/* Whether only the colon and spaces stood between the two. */
static bool adjoin(const char *name_end, const char *value) {
    if ((uintptr_t)value <= (uintptr_t)name_end) return false;
    for (const char *at = name_end + 1; at < value; at++)
        if (*at != ' ' && *at != '\t') return false;
    return true;
}

static int end_line(struct http_head *head, const char *end, struct blasd_err *err) {
    head->end = end;
    if (!head->bare_lines || (end[0] == '\0' && end[1] == '\0')) return 0;
    return refuse(err, "a line of the head ends in a bare LF and not in CR LF");
}

bool http_head_target(const struct http_head *head, const char *target) {
    const char *version = target + strlen(target) + 1;
    if (!head->bare_lines) return true;
    if (strncmp(version, "HTTP/", 5) != 0) return false;
    version +=
        strlen(version); /* behind it no text follows, as behind one within the target would */
    return version[1] == '\0' || version[1] == '\n';
}

const char *http_head_path(const char *target, const char **authority) {
    static const char *const schemes[] = {"http://", "https://"};
    *authority = NULL;
    for (size_t i = 0; i < sizeof schemes / sizeof *schemes; i++)
        if (strncasecmp(target, schemes[i], strlen(schemes[i])) == 0)
            *authority = target + strlen(schemes[i]);
    if (*authority == NULL) return target;
    target = strchr(*authority, '/');
    return target == NULL ? "/" : target;
}

bool http_head_is_host(const char *authority, const char *host) {
    size_t len = strcspn(authority, "/");
    return strlen(host) == len && strncasecmp(authority, host, len) == 0;
}

int http_head_start(struct http_head *head, const char *version, struct blasd_err *err) {
    return end_line(head, version + strlen(version), err);
}

int http_head_header(struct http_head *head, const char *name, size_t name_len, const char *value,
                     size_t len, struct blasd_err *err) {
    if (value != NULL && head->bare_lines && !adjoin(name + name_len, value))
        return refuse(err, "a header is folded over two lines");
    if (!is_token(name, name_len))
        return refuse(err, "the name of a header has a character that no name may have, such as a "
                           "space before its colon");
    if (value == NULL) return refuse(err, "a header has no colon");
    if (has_control(value, len))
        return refuse(err, "the value of a header has a control character, such as a bare CR");
    return end_line(head, value + len, err);
}

int http_head_finish(const struct http_head *head, const char *behind, struct blasd_err *err) {
    if (!head->bare_lines || behind == NULL || behind - head->end == 4) return 0;
    return refuse(err, "the head ends in a bare LF, or has a line that is not a header");
}
