/* Steps through a JSON text, and jansson behind a check of depth. */
#include "wire/json_text.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int blasd_json_fail(const struct blasd_json_text *text, const char *at, struct blasd_err *err,
                    const char *fmt, ...) {
    char said[192];
    const char *line = text->start;
    unsigned long lines = 1;
    va_list args;
    va_start(args, fmt);
    vsnprintf(said, sizeof said, fmt, args);
    va_end(args);
    for (;;) {
        const char *newline = memchr(line, '\n', (size_t)(at - line));
        if (newline == NULL) break;
        line = newline + 1;
        lines++;
    }
    return blasd_fail(err, BLASD_E_malformed_json, "", "line %lu, column %zu (byte %zu): %s", lines,
                      (size_t)(at - line) + 1, (size_t)(at - text->start) + 1, said);
}

const char *blasd_json_string_end(const char *p, const char *end) {
    const char *from = p + 1;
    for (p = from; p < end; p++) {
        const char *back;
        p = memchr(p, '"', (size_t)(end - p));
        if (p == NULL) return NULL;
        /* a quote behind an odd number of backslashes is part of the string */
        for (back = p; back > from && back[-1] == '\\'; back--) continue;
        if ((p - back) % 2 == 0) return p + 1;
    }
    return NULL;
}

/* jansson, whose messages quote the text: what is not printable ASCII there shows as '?'. */
static json_t *load(const char *text, size_t len, size_t flags, json_error_t *problem) {
    json_t *root = json_loadb(text, len, flags, problem);
    if (root != NULL) return root;
    for (char *p = problem->text; *p != '\0'; p++)
        if (*p < ' ' || *p > '~') *p = '?';
    return NULL;
}

bool blasd_json_plain(const char *p, const char *end, const char **next) {
    if (*p != '"') return false;
    for (p++; p < end && *p != '"'; p++)
        if (*p < ' ' || *p > '~' || *p == '\\') return false;
    *next = p + 1;
    return p < end;
}

int blasd_json_string(const struct blasd_json_text *text, const char *p, json_t **ret,
                      const char **next, struct blasd_err *err) {
    json_error_t problem;
    if (*p != '"') return blasd_json_fail(text, p, err, "expected a string in double quotes");
    *next = blasd_json_string_end(p, text->end);
    if (*next == NULL) return blasd_json_fail(text, p, err, "this string has no closing quote");
    *ret = load(p, (size_t)(*next - p), JSON_DECODE_ANY, &problem);
    return *ret != NULL ? 0 : blasd_json_fail(text, p, err, "%.120s", problem.text);
}

/* What stands behind a backslash for one byte, or 0. */
static char meant_by(char escape) {
    static const char escapes[] = "\"\\/bfnrt", meant[] = "\"\\/\b\f\n\r\t";
    const char *at = memchr(escapes, escape, sizeof escapes - 1);
    return at != NULL ? meant[at - escapes] : '\0';
}

/* Printable ASCII from `p` to `end`, with escapes of one byte: false where there is anything else.
 * `out` has room for as much; *len bytes of it are used. */
static bool inside_plain(const char *p, const char *end, char *out, size_t *len) {
    char *to = out;
    while (p < end) {
        char c = *p++;
        if (c < ' ' || c > '~') return false;
        if (c == '\\' && (c = meant_by(*p++)) == '\0') return false;
        *to++ = c;
    }
    *len = (size_t)(to - out);
    return true;
}

int blasd_json_inside(const struct blasd_json_text *text, const char *p, struct blasd_buf *to,
                      const char **next, struct blasd_err *err) {
    const char *end = blasd_json_string_end(p, text->end);
    size_t most = end == NULL ? 0 : (size_t)(end - p);
    json_t *string;
    int rc;
    blasd_buf_init(to, most);
    if (end != NULL && blasd_buf_reserve(to, most) == 0 &&
        inside_plain(p + 1, end - 1, to->data, &to->len)) {
        *next = end;
        return 0;
    }
    if ((rc = blasd_json_string(text, p, &string, next, err)) != 0) return rc;
    to->len = 0;
    rc = blasd_buf_add(to, json_string_value(string), json_string_length(string)) == 0
             ? 0
             : blasd_no_memory(err);
    json_decref(string);
    return rc;
}

int blasd_json_word(const struct blasd_json_text *text, const char *p, char word[BLASD_JSON_WORD],
                    const char **next, struct blasd_err *err) {
    json_t *string = NULL;
    size_t len;
    int rc;
    if (blasd_json_plain(p, text->end, next) && *next - p - 2 < BLASD_JSON_WORD) {
        len = (size_t)(*next - p) - 2;
        memcpy(word, p + 1, len);
        word[len] = '\0';
        return 0;
    }
    if ((rc = blasd_json_string(text, p, &string, next, err)) != 0) return rc;
    len = json_string_length(string);
    if (len > BLASD_JSON_WORD - 1) len = BLASD_JSON_WORD - 1;
    memcpy(word, json_string_value(string), len);
    word[len] = '\0';
    json_decref(string);
    return 0;
}

enum { OTHER, COMMA, OPEN, CLOSE, QUOTE };
static const unsigned char kinds[256] = {
    [','] = COMMA, ['['] = OPEN, ['{'] = OPEN, [']'] = CLOSE, ['}'] = CLOSE, ['"'] = QUOTE,
};

int blasd_json_skip(const struct blasd_json_text *text, const char *p, const char **next,
                    struct blasd_err *err) {
    const char *from = p;
    int depth = 0;
    for (; p < text->end; p++) {
        unsigned kind = kinds[(unsigned char)*p];
        if (kind == OTHER) continue;
        if (depth == 0 && (kind == COMMA || kind == CLOSE)) break;
        if (kind == QUOTE) {
            p = blasd_json_string_end(p, text->end);
            if (p == NULL) return blasd_json_fail(text, from, err, "a string is not closed");
            p--;
            if (depth == 0) {
                p++;
                break;
            }
        } else if (kind == OPEN && ++depth > text->depth_max) {
            return blasd_json_fail(text, p, err,
                                   "nested deeper than %d levels, the limit "
                                   "json_depth",
                                   text->depth_max);
        } else if (kind == CLOSE && --depth == 0) {
            p++;
            break;
        }
    }
    if (depth > 0) return blasd_json_fail(text, text->end, err, "the text ends inside a value");
    if (p == from) return blasd_json_fail(text, p, err, "expected a value");
    *next = p;
    return 0;
}

int blasd_json_member_end(const struct blasd_json_text *text, const char *p,
                          struct blasd_err *err) {
    p = blasd_json_space(p);
    if (*p == ',' || *p == '}') return 0;
    return blasd_json_fail(text, p, err, "expected ',' or '}'");
}

int blasd_json_members(const struct blasd_json_text *text, const char *p,
                       int (*member)(void *arg, const char *quote, const char *name,
                                     const char *value, const char **next, struct blasd_err *err),
                       void *arg, const char **next, struct blasd_err *err) {
    char name[BLASD_JSON_WORD];
    int rc;
    p = blasd_json_space(p + 1);
    if (*p != '}') {
        for (;;) {
            const char *quote = p;
            if ((rc = blasd_json_word(text, p, name, &p, err)) != 0) return rc;
            p = blasd_json_space(p);
            if (*p != ':') return blasd_json_fail(text, p, err, "expected ':' behind the name");
            rc = member(arg, quote, name, blasd_json_space(p + 1), &p, err);
            if (rc != 0) return rc;
            p = blasd_json_space(p);
            if (*p == '}') break;
            if (*p != ',') return blasd_json_fail(text, p, err, "expected ',' or '}'");
            p = blasd_json_space(p + 1);
            if (*p == '}') return blasd_json_fail(text, p, err, "expected a name behind ','");
        }
    }
    *next = p + 1;
    return 0;
}

/* Commas among the next 64-byte blocks of nothing but numbers: the common case, several bytes at a
 * time. Returns one past those blocks. */
static const char *count_plain(const char *p, const char *end, uint64_t *commas) {
    while (end - p >= 64) {
        unsigned char found = 0, special = 0;
        for (int i = 0; i < 64; i++) {
            unsigned char c = (unsigned char)p[i];
            found = (unsigned char)(found + (c == ','));
            special |= (unsigned char)(c == '"' || (c | 6) == ('[' | 6));
        }
        if (special) break;
        *commas += found;
        p += 64;
    }
    return p;
}

uint64_t blasd_json_leaves_after(const struct blasd_json_text *text, const char *p, int depth) {
    uint64_t leaves = 0, empty = 0;
    while (p < text->end && depth > 0) {
        const char *stop;
        p = count_plain(p, text->end, &leaves);
        stop = text->end - p > 64 ? p + 64 : text->end;
        while (p < stop && depth > 0) {
            unsigned kind = kinds[(unsigned char)*p];
            if (kind == QUOTE) {
                p = blasd_json_string_end(p, text->end);
                if (p == NULL) p = text->end;
                continue;
            }
            p++;
            leaves += kind == COMMA;
            depth += (kind == OPEN) - (kind == CLOSE);
            /* an empty list was announced by a comma, too, and holds nothing */
            if (kind == OPEN && *blasd_json_space(p) == ']') empty++;
        }
    }
    return leaves > empty ? leaves - empty : 0;
}

/* The first bracket that nests deeper than `most`, or NULL. */
static const char *too_deep(const char *text, size_t len, int most) {
    const char *p = text, *end = text + len;
    int depth = 0;
    for (; p < end; p++) {
        unsigned kind = kinds[(unsigned char)*p];
        if (kind == OPEN && ++depth > most) return p;
        if (kind == CLOSE) depth--;
        if (kind != QUOTE) continue;
        p = blasd_json_string_end(p, end);
        if (p == NULL) return NULL; /* jansson will say so */
        p--;
    }
    return NULL;
}

/* jansson's reading, with duplicate members refused. */
static json_t *read_strictly(const char *text, size_t len, size_t flags, json_error_t *problem) {
    const char *zero = memchr(text, '\0', len);
    json_t *root;
    flags |= JSON_REJECT_DUPLICATES;
    if (zero != NULL) { /* jansson takes one behind a number */
        memset(problem, 0, sizeof *problem);
        problem->position = (int)(zero - text);
        snprintf(problem->text, sizeof problem->text, "a zero byte is not JSON");
        return NULL;
    }
    root = load(text, len, flags, problem);
    /* 18446744073709551616 is a number like any other, only no int64: whoever wants an integer then
     * refuses it by its name */
    if (root == NULL && json_error_code(problem) == json_error_numeric_overflow)
        root = load(text, len, flags | JSON_DECODE_INT_AS_REAL, problem);
    return root;
}

json_t *blasd_json_load(const char *text, size_t len, int most, json_error_t *problem) {
    const char *deep = too_deep(text, len, most);
    if (deep == NULL) return read_strictly(text, len, 0, problem);
    memset(problem, 0, sizeof *problem);
    problem->position = (int)(deep - text);
    snprintf(problem->text, sizeof problem->text,
             "nested deeper than %d levels, the limit json_depth", most);
    return NULL;
}

int blasd_json_value(const struct blasd_json_text *text, const char *p, json_t **ret,
                     const char **next, struct blasd_err *err) {
    json_error_t problem;
    const char *deep;
    int rc = blasd_json_skip(text, p, next, err);
    *ret = NULL;
    if (rc != 0) return rc;
    deep = too_deep(p, (size_t)(*next - p), text->depth_max - 1); /* it stands in an object */
    if (deep != NULL)
        return blasd_json_fail(
            text, deep, err, "nested deeper than %d levels, the limit json_depth", text->depth_max);
    *ret = read_strictly(p, (size_t)(*next - p), JSON_DECODE_ANY, &problem);
    if (*ret != NULL) return 0;
    return blasd_json_fail(text, p + (problem.position > 0 ? problem.position : 0), err, "%.140s",
                           problem.text);
}
