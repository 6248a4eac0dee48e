/* Steps through a JSON text, and checks what it steps over where that is to be read by name. */
#include "wire/json_text.h"

#include "base/text.h"

#include <math.h>
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

bool blasd_json_plain(const char *p, const char *end, const char **next) {
    if (*p != '"') return false;
    for (p++; p < end && *p != '"'; p++)
        if (*p < ' ' || *p > '~' || *p == '\\') return false;
    *next = p + 1;
    return p < end;
}

/* ---- strings ---- */

/* What stands behind a backslash for one byte, or 0. */
static char meant_by(char escape) {
    static const char escapes[] = "\"\\/bfnrt", meant[] = "\"\\/\b\f\n\r\t";
    const char *at = memchr(escapes, escape, sizeof escapes - 1);
    return at != NULL ? meant[at - escapes] : '\0';
}

/* The four hexadecimal digits at `p`; -1 where they are none. */
static int32_t hex_four(const char *p, const char *end) {
    int32_t value = 0;
    if (end - p < 4) return -1;
    for (int i = 0; i < 4; i++) {
        char c = p[i], letter = (char)(c | 0x20);
        bool digit = c >= '0' && c <= '9';
        if (!digit && (letter < 'a' || letter > 'f')) return -1;
        value = value << 4 | (digit ? c - '0' : letter - 'a' + 10);
    }
    return value;
}

/* Writes the character as UTF-8; returns its length. */
static size_t utf8_write(char out[4], int32_t c) {
    size_t len = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (size_t i = len - 1; i > 0; i--, c >>= 6) out[i] = (char)(0x80 | (c & 0x3f));
    out[0] = (char)(len == 1 ? c : (0xf0 << (4 - len) & 0xff) | c);
    return len;
}

/* Reads the escape whose backslash is at *p; 0: it is none. U+0000 is none: texts end in a zero. */
static size_t read_escape(const char **p, const char *end, char out[4]) {
    const char *at = *p + 1;
    int32_t c, low;
    *p = at + 1;
    if ((out[0] = meant_by(*at)) != '\0') return 1;
    if (*at != 'u' || (c = hex_four(at + 1, end)) <= 0) return 0;
    *p = at += 5;
    if (c >= 0xd800 && c < 0xdc00 && end - at >= 6 && at[0] == '\\' && at[1] == 'u') {
        low = hex_four(at + 2, end);
        if (low < 0xdc00 || low > 0xdfff) return 0;
        c = 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
        *p = at + 6;
    }
    return c >= 0xd800 && c < 0xe000 ? 0 : utf8_write(out, c);
}

/* Reads the string at `p` into `out`, as many bytes as there is `room` for: *len are used. */
static int read_string(const struct blasd_json_text *text, const char *p, char *out, size_t room,
                       size_t *len, const char **next, struct blasd_err *err) {
    const char *end;
    *len = 0;
    if (*p != '"') return blasd_json_fail(text, p, err, "expected a string in double quotes");
    if ((end = blasd_json_string_end(p, text->end)) == NULL)
        return blasd_json_fail(text, p, err, "this string has no closing quote");
    *next = end--;
    for (p++; p < end;) {
        const char *from = p;
        char escaped[4];
        size_t n;
        while (p < end && *p >= ' ' && *p <= '~' && *p != '\\') p++;
        n = (size_t)(p - from);
        if (n == 0 && *p == '\\') {
            n = read_escape(&p, end, escaped);
            if (n == 0) return blasd_json_fail(text, from, err, "this is no escape of JSON");
            from = escaped;
        } else if (n == 0) {
            n = (unsigned char)*p < ' ' ? 0 : blasd_utf8_len(p, end);
            if (n == 0)
                return blasd_json_fail(text, p, err,
                                       "a control character that is not escaped, or no UTF-8");
            p += n;
        }
        if (n > room - *len) n = room - *len;
        if (n > 0) memcpy(out + *len, from, n);
        *len += n;
    }
    return 0;
}

int blasd_json_inside(const struct blasd_json_text *text, const char *p, struct blasd_buf *to,
                      const char **next, struct blasd_err *err) {
    const char *end = blasd_json_string_end(p, text->end);
    size_t most = end == NULL ? 1 : (size_t)(end - p);
    int rc;
    blasd_buf_init(to, most);
    if (blasd_buf_reserve(to, most) != 0) return blasd_no_memory(err);
    rc = read_string(text, p, to->data, most - 1, &to->len, next, err);
    to->data[to->len] = '\0';
    return rc;
}

int blasd_json_word(const struct blasd_json_text *text, const char *p, char word[BLASD_JSON_WORD],
                    const char **next, struct blasd_err *err) {
    size_t len;
    int rc = 0;
    if (blasd_json_plain(p, text->end, next) && *next - p - 2 < BLASD_JSON_WORD) {
        len = (size_t)(*next - p) - 2;
        memcpy(word, p + 1, len);
    } else {
        rc = read_string(text, p, word, BLASD_JSON_WORD - 1, &len, next, err);
    }
    word[len] = '\0';
    return rc;
}

/* ---- values ---- */

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
    char name[BLASD_JSON_WORD] = "";
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

static int pick_member(void *arg, const char *quote, const char *name, const char *value,
                       const char **next, struct blasd_err *err) {
    struct blasd_json_pick *pick = arg;
    int i = 0;
    while (pick->names[i] != NULL && strcmp(pick->names[i], name) != 0) i++;
    if (pick->names[i] == NULL && !pick->other) {
        pick->other = true;
        memcpy(pick->name, name, sizeof pick->name);
    } else if (pick->names[i] != NULL && pick->at[i] != NULL) {
        return blasd_json_fail(pick->text, quote, err, "a duplicate of %s", name);
    }
    if (pick->names[i] != NULL) pick->at[i] = value;
    return blasd_json_skip(pick->text, value, next, err);
}

int blasd_json_members_pick(const char *p, struct blasd_json_pick *pick, const char **next,
                            struct blasd_err *err) {
    return blasd_json_members(pick->text, p, pick_member, pick, next, err);
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

int blasd_json_items(const struct blasd_json_text *text, const char *p,
                     int (*item)(void *arg, const char *value, const char **next,
                                 struct blasd_err *err),
                     void *arg, const char **next, struct blasd_err *err) {
    int rc;
    p = blasd_json_space(p + 1);
    while (*p != ']') {
        if ((rc = item(arg, p, &p, err)) != 0) return rc;
        p = blasd_json_space(p);
        if (*p == ']') break;
        if (*p != ',') return blasd_json_fail(text, p, err, "expected ',' or ']'");
        p = blasd_json_space(p + 1);
        if (*p == ']') return blasd_json_fail(text, p, err, "expected a value behind ','");
    }
    *next = p + 1;
    return 0;
}

bool blasd_json_whole(const char *p, const char *end, int64_t *ret) {
    const char *next;
    uint64_t magnitude = 0;
    bool negative = false;
    double value;
    enum blasd_number_int kind = blasd_number_read_int(p, end, &next, &magnitude, &negative);
    if (next == NULL || kind == BLASD_INT_RANGE) return false;
    if (kind == BLASD_INT_OK) {
        *ret = (int64_t)(negative ? 0 - magnitude : magnitude);
        return magnitude <= (uint64_t)INT64_MAX + negative;
    }
    blasd_number_read(p, end, &value);
    if (!(fabs(value) <= 0x1p53) || floor(value) != value) return false;
    *ret = (int64_t)value;
    return true;
}

/* A value that is checked. */
struct checking {
    const struct blasd_json_text *text;
    int depth; /* lists and objects around it */
};

static int check_item(void *arg, const char *value, const char **next, struct blasd_err *err) {
    const struct checking *checking = arg;
    return blasd_json_check(checking->text, value, checking->depth, next, err);
}

static int check_member(void *arg, const char *quote, const char *name, const char *value,
                        const char **next, struct blasd_err *err) {
    (void)quote;
    (void)name;
    return check_item(arg, value, next, err);
}

static int check_plain(const struct blasd_json_text *text, const char *p, const char **next,
                       struct blasd_err *err) {
    static const char *const words[] = {"true", "false", "null"};
    double value;
    for (int i = 0; i < 3; i++)
        if (strncmp(p, words[i], strlen(words[i])) == 0) {
            *next = p + strlen(words[i]);
            return 0;
        }
    if ((*next = blasd_number_read(p, text->end, &value)) == NULL)
        return blasd_json_fail(text, p, err, "expected a value");
    if (isfinite(value)) return 0;
    return blasd_json_fail(text, p, err, "this number is beyond the range of float64");
}

int blasd_json_check(const struct blasd_json_text *text, const char *p, int depth,
                     const char **next, struct blasd_err *err) {
    struct checking inner = {text, depth + 1};
    size_t len;
    if (blasd_json_plain(p, text->end, next)) return 0;
    if (*p == '"') return read_string(text, p, NULL, 0, &len, next, err);
    if (*p != '[' && *p != '{') return check_plain(text, p, next, err);
    if (depth >= text->depth_max)
        return blasd_json_fail(text, p, err, "nested deeper than %d levels, the limit json_depth",
                               text->depth_max);
    return *p == '[' ? blasd_json_items(text, p, check_item, &inner, next, err)
                     : blasd_json_members(text, p, check_member, &inner, next, err);
}

int blasd_json_hold(struct blasd_buf *to, const char *from, size_t len, int depth_max,
                    struct blasd_json_text *text, struct blasd_err *err) {
    blasd_buf_init(to, len + BLASD_JSON_SLACK);
    if (blasd_buf_reserve(to, len + BLASD_JSON_SLACK) != 0) return blasd_no_memory(err);
    if (len > 0) memcpy(to->data, from, len);
    memset(to->data + len, 0, BLASD_JSON_SLACK);
    to->len = len;
    *text = (struct blasd_json_text){to->data, to->data + len, depth_max};
    return 0;
}

int blasd_json_end(const struct blasd_json_text *text, const char *p, const char *what,
                   struct blasd_err *err) {
    p = blasd_json_space(p);
    return p == text->end ? 0 : blasd_json_fail(text, p, err, "something follows %s", what);
}
