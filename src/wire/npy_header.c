/* The header of a .npy file, by a small strict parser: a dict of three members, whose values are a
 * string, True or False, and a tuple of whole numbers. Nothing is evaluated. */
#include "wire/npy_header.h"

#include "base/err.h"
#include "wire/echo.h"

#include <string.h>

struct parser {
    const char *p, *end; /* borrowed */
    const char *field;
    struct blasd_tensor *tensor;
    bool *big_endian;
    bool fortran;
    int seen; /* bits of the members that were there */
};

enum { DESCR = 1, FORTRAN_ORDER = 2, SHAPE = 4 };

static int malformed(const struct parser *parser, struct blasd_err *err, const char *what) {
    return blasd_fail(err, BLASD_E_malformed_npy, parser->field, "the .npy header %s", what);
}

static void spaces(struct parser *parser) {
    while (parser->p < parser->end &&
           (*parser->p == ' ' || *parser->p == '\n' || *parser->p == '\t' || *parser->p == '\r'))
        parser->p++;
}

/* Steps over `c`, spaces before it included; false where it is not there. */
static bool accept(struct parser *parser, char c) {
    spaces(parser);
    if (parser->p == parser->end || *parser->p != c) return false;
    parser->p++;
    return true;
}

static bool accept_word(struct parser *parser, const char *word) {
    size_t len = strlen(word);
    spaces(parser);
    if ((size_t)(parser->end - parser->p) < len || memcmp(parser->p, word, len) != 0) return false;
    parser->p += len;
    return true;
}

/* A string in single or double quotes, without escapes. */
static bool string(struct parser *parser, const char **text, size_t *len) {
    const char *close;
    char quote;
    spaces(parser);
    if (parser->p == parser->end || (*parser->p != '\'' && *parser->p != '"')) return false;
    quote = *parser->p++;
    close = memchr(parser->p, quote, (size_t)(parser->end - parser->p));
    if (close == NULL || memchr(parser->p, '\\', (size_t)(close - parser->p)) != NULL) return false;
    *text = parser->p;
    *len = (size_t)(close - parser->p);
    parser->p = close + 1;
    return true;
}

static const struct {
    const char *code;
    enum blasd_dtype dtype;
} dtypes[] = {
    {"f8", BLASD_float64},   {"f4", BLASD_float32},     {"f2", BLASD_float16}, {"i8", BLASD_int64},
    {"i4", BLASD_int32},     {"i2", BLASD_int16},       {"i1", BLASD_int8},    {"u8", BLASD_uint64},
    {"u4", BLASD_uint32},    {"u2", BLASD_uint16},      {"u1", BLASD_uint8},   {"b1", BLASD_bool},
    {"c8", BLASD_complex64}, {"c16", BLASD_complex128},
};

/* Why a dtype is not taken, and what to do. */
static const char *advice(char kind) {
    switch (kind) {
    case 'O':
        return "object arrays are refused, for reading them runs code; convert with "
               ".astype(float)";
    case 'S':
    case 'U': return "strings are not numbers; convert with .astype(float)";
    case 'V': return "structured and raw arrays are not taken; send bfloat16 as safetensors";
    case 'M':
    case 'm': return "dates are not numbers; convert with .astype('int64')";
    default:
        return "float64, float32, float16, the integers, bool, complex64 and complex128 are taken";
    }
}

static int read_descr(struct parser *parser, struct blasd_err *err) {
    char shown[BLASD_ECHO_MAX], order = '=';
    const char *text, *rest;
    size_t len, left;
    spaces(parser);
    if (parser->p < parser->end && *parser->p == '[')
        return blasd_fail(err, BLASD_E_unsupported_dtype, parser->field,
                          "structured arrays are not taken; send each field as an array");
    if (!string(parser, &text, &len)) return malformed(parser, err, "has no string as 'descr'");
    rest = text;
    left = len;
    if (left > 0 && strchr("<>=|", text[0]) != NULL && text[0] != '\0') {
        order = text[0];
        rest++;
        left--;
    }
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
        if (strlen(dtypes[i].code) == left && memcmp(dtypes[i].code, rest, left) == 0) {
            parser->tensor->dtype = dtypes[i].dtype;
            *parser->big_endian = order == '>';
            return 0;
        }
    return blasd_fail(err, BLASD_E_unsupported_dtype, parser->field, "dtype '%s': %s",
                      blasd_echo(shown, text, len), advice(left > 0 ? rest[0] : '\0'));
}

static int read_order(struct parser *parser, struct blasd_err *err) {
    if (accept_word(parser, "True"))
        parser->fortran = true;
    else if (!accept_word(parser, "False"))
        return malformed(parser, err, "has neither True nor False as 'fortran_order'");
    return 0;
}

static bool length(struct parser *parser, int64_t *ret) {
    int64_t value = 0;
    const char *from;
    spaces(parser);
    from = parser->p;
    while (parser->p < parser->end && *parser->p >= '0' && *parser->p <= '9') {
        int digit = *parser->p++ - '0';
        if (value > (INT64_MAX - digit) / 10) return false;
        value = value * 10 + digit;
    }
    if (parser->p == from) return false;
    /* Python 2 wrote long integers so */
    if (parser->p < parser->end && *parser->p == 'L') parser->p++;
    *ret = value;
    return true;
}

static int read_shape(struct parser *parser, struct blasd_err *err) {
    static const char wrong[] = "has no tuple of whole numbers as 'shape'";
    struct blasd_tensor *tensor = parser->tensor;
    bool comma = false;
    tensor->rank = 0;
    if (!accept(parser, '(')) return malformed(parser, err, wrong);
    while (!accept(parser, ')')) {
        if (tensor->rank > 0 && !comma) return malformed(parser, err, wrong);
        if (tensor->rank == BLASD_MAX_RANK)
            return blasd_fail(err, BLASD_E_invalid_tensor, parser->field,
                              "its shape has more than %d lengths", BLASD_MAX_RANK);
        if (!length(parser, &tensor->shape[tensor->rank++])) return malformed(parser, err, wrong);
        comma = accept(parser, ',');
    }
    /* (3) is a number in parentheses */
    if (tensor->rank == 1 && !comma) return malformed(parser, err, wrong);
    return 0;
}

static int read_member(struct parser *parser, struct blasd_err *err) {
    static const struct {
        const char *name;
        int bit;
        int (*read)(struct parser *, struct blasd_err *);
    } members[] = {
        {"descr", DESCR, read_descr},
        {"fortran_order", FORTRAN_ORDER, read_order},
        {"shape", SHAPE, read_shape},
    };
    const char *name;
    size_t len;
    if (!string(parser, &name, &len)) return malformed(parser, err, "is not a dict of strings");
    if (!accept(parser, ':')) return malformed(parser, err, "lacks ':' behind a name");
    for (size_t i = 0; i < sizeof members / sizeof *members; i++) {
        if (strlen(members[i].name) != len || memcmp(members[i].name, name, len) != 0) continue;
        if ((parser->seen & members[i].bit) != 0)
            return malformed(parser, err, "has a member twice");
        parser->seen |= members[i].bit;
        return members[i].read(parser, err);
    }
    return malformed(parser, err, "has a member other than descr, fortran_order and shape");
}

int blasd_npy_header(const char *text, size_t len, const char *field, struct blasd_tensor *tensor,
                     bool *big_endian, struct blasd_err *err) {
    struct parser parser = {text, text + len, field, tensor, big_endian, false, 0};
    int rc;
    if (!accept(&parser, '{')) return malformed(&parser, err, "is not the text of a dict");
    while (!accept(&parser, '}')) {
        if ((rc = read_member(&parser, err)) != 0) return rc;
        if (accept(&parser, ',')) continue;
        if (!accept(&parser, '}')) return malformed(&parser, err, "lacks ',' behind a member");
        break;
    }
    spaces(&parser);
    if (parser.p != parser.end) return malformed(&parser, err, "goes on behind its dict");
    if (parser.seen != (DESCR | FORTRAN_ORDER | SHAPE))
        return malformed(&parser, err, "lacks descr, fortran_order or shape");
    /* one dimension has but one order */
    tensor->order = parser.fortran && tensor->rank > 1 ? BLASD_COLUMN_MAJOR : BLASD_ROW_MAJOR;
    return blasd_tensor_check(tensor, field, err);
}
