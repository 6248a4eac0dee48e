/* Headers: Content-Disposition and its parameters, quoted or not. */
#include "wire/part_header.h"

#include "wire/sanitize.h"

#include <string.h>
#include <strings.h>

static bool is_space(char c) {
    return c == ' ' || c == '\t';
}

/* A character of a token, as RFC 9110 has it. */
static bool is_token(char c) {
    return c > ' ' && c < 0x7f && strchr("()<>@,;:\\\"/[]?={}", c) == NULL;
}

struct cursor {
    const char *p, *end;
};

static void spaces(struct cursor *at) {
    while (at->p < at->end && is_space(*at->p)) at->p++;
}

static void put(char c, char *value, size_t size, size_t *whole) {
    if (*whole + 1 < size) value[*whole] = c;
    (*whole)++;
}

/* Reads a token or a quoted string. False where neither is there. Boundaries may hold characters
 * that no token has, and are often sent bare: up to ';' or a space all is taken. */
static bool read_value(struct cursor *at, char *value, size_t size, size_t *whole) {
    *whole = 0;
    if (at->p < at->end && *at->p == '"') {
        for (at->p++; at->p < at->end && *at->p != '"'; at->p++) {
            if (*at->p == '\\' && at->p + 1 < at->end) at->p++;
            put(*at->p, value, size, whole);
        }
        if (at->p == at->end) return false;
        at->p++;
    } else {
        for (; at->p < at->end && *at->p != ';' && !is_space(*at->p); at->p++)
            put(*at->p, value, size, whole);
        if (*whole == 0) return false;
    }
    value[*whole < size ? *whole : size - 1] = '\0';
    return true;
}

bool blasd_header_param(const char *text, size_t len, const char *name, char *value, size_t size,
                        size_t *whole) {
    struct cursor at = {text, text + len};
    at.p = memchr(text, ';', len);
    while (at.p != NULL && at.p < at.end && *at.p == ';') {
        const char *from;
        size_t n;
        char other[2];
        bool wanted;
        at.p++;
        spaces(&at);
        from = at.p;
        while (at.p < at.end && is_token(*at.p)) at.p++;
        n = (size_t)(at.p - from);
        wanted = n == strlen(name) && strncasecmp(from, name, n) == 0;
        spaces(&at);
        if (at.p == at.end || *at.p != '=') return false;
        at.p++;
        spaces(&at);
        if (!read_value(&at, wanted ? value : other, wanted ? size : sizeof other, whole))
            return false;
        if (wanted) return true;
        spaces(&at);
    }
    return false;
}

static bool starts(const char *text, size_t len, const char *word) {
    size_t n = strlen(word);
    return len >= n && strncasecmp(text, word, n) == 0;
}

/* The value of a header line called `name` (with its colon), or NULL. */
static const char *value_of(const char *line, size_t len, const char *name, size_t *value_len) {
    size_t n = strlen(name);
    if (!starts(line, len, name)) return NULL;
    while (n < len && is_space(line[n])) n++;
    *value_len = len - n;
    return line + n;
}

static int read_disposition(const char *value, size_t len, struct blasd_part_header *ret,
                            struct blasd_err *err) {
    char file[8];
    size_t whole;
    if (!starts(value, len, "form-data"))
        return blasd_fail(err, BLASD_E_malformed_multipart, "",
                          "a part's Content-Disposition is not form-data");
    if (!blasd_header_param(value, len, "name", ret->name, sizeof ret->name, &whole) ||
        memchr(ret->name, '\0', sizeof ret->name) !=
            ret->name + (whole < sizeof ret->name ? whole : sizeof ret->name - 1))
        return blasd_fail(err, BLASD_E_malformed_multipart, "",
                          "a part's Content-Disposition gives it no name");
    ret->is_file = blasd_header_param(value, len, "filename", file, sizeof file, &whole) ||
                   blasd_header_param(value, len, "filename*", file, sizeof file, &whole);
    return 0;
}

int blasd_part_header_read(const char *text, size_t len, struct blasd_part_header *ret,
                           struct blasd_err *err) {
    const char *end = text + len;
    bool named = false;
    *ret = (struct blasd_part_header){.name = ""};
    for (const char *line = text, *next; line < end; line = next + 1) {
        const char *value;
        size_t n;
        int rc;
        next = memchr(line, '\n', (size_t)(end - line));
        if (next == NULL || next == line || next[-1] != '\r')
            return blasd_fail(err, BLASD_E_malformed_multipart, "",
                              "a part's header line does not end in CR LF");
        n = (size_t)(next - line) - 1;
        value = value_of(line, n, "Content-Disposition:", &n);
        if (value != NULL) {
            if ((rc = read_disposition(value, n, ret, err)) != 0) return rc;
            named = true;
            continue;
        }
        value = value_of(line, n, "Content-Transfer-Encoding:", &n);
        if (value != NULL && !starts(value, n, "binary") && !starts(value, n, "8bit") &&
            !starts(value, n, "7bit")) {
            char shown[BLASD_SANITIZED_MAX];
            return blasd_fail(err, BLASD_E_malformed_multipart, "",
                              "Content-Transfer-Encoding '%s' is not taken; send parts as binary",
                              blasd_sanitize(shown, value, n));
        }
    }
    if (named) return 0;
    return blasd_fail(err, BLASD_E_malformed_multipart, "", "a part has no Content-Disposition");
}

bool blasd_media_type_is(const char *type, const char *name) {
    size_t len = type == NULL ? 0 : strcspn(type, "; \t");
    return type != NULL && strlen(name) == len && strncasecmp(type, name, len) == 0;
}
