/* The reader of .npy files: magic, version, header, then the elements, which go to the sink as
 * they come. Versions 1, 2 and 3 differ in the width of a length and in nothing that matters here.
 */
#include "wire/npy_in.h"

#include "base/text.h"
#include "wire/dtype_codes.h"
#include "wire/sanitize.h"

#include <string.h>

#define HEADER_MOST 65536 /* version 1 can have no more */

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
    char shown[BLASD_SANITIZED_MAX], order = '=';
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
    for (int i = 0; i < BLASD_DTYPE_COUNT; i++)
        if (dtype_codes[i].npy != NULL && strlen(dtype_codes[i].npy + 1) == left &&
            memcmp(dtype_codes[i].npy + 1, rest, left) == 0) {
            parser->tensor->dtype = (enum blasd_dtype)i;
            *parser->big_endian = order == '>';
            return 0;
        }
    return blasd_fail(err, BLASD_E_unsupported_dtype, parser->field, "dtype '%s': %s",
                      blasd_sanitize(shown, text, len), advice(left > 0 ? rest[0] : '\0'));
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

/* Reads "{'descr': '<f8', 'fortran_order': False, 'shape': (2, 3), }": the text of a Python dict,
 * by a small strict parser. Nothing is evaluated. */
static int parse_header(const char *text, size_t len, const char *field,
                        struct blasd_tensor *tensor, bool *big_endian, struct blasd_err *err) {
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

void blasd_npy_begin(struct blasd_npy_in *npy, const struct blasd_body *body,
                     struct blasd_named_input *to) {
    memset(npy, 0, sizeof *npy);
    npy->body = body;
    npy->to = to;
    blasd_input_field(npy->field, to->name);
    blasd_buf_init(&npy->header, HEADER_MOST + 16);
}

void blasd_npy_release(struct blasd_npy_in *npy) {
    blasd_buf_release(&npy->header);
}

/* Bytes in front of the header's text: magic, version and a length of 2 or 4 bytes. 0: the version
 * has not come yet. */
static size_t front_len(const struct blasd_npy_in *npy) {
    if (npy->header.len < BLASD_NPY_MAGIC_LEN + 2) return 0;
    return BLASD_NPY_MAGIC_LEN + 2 + (npy->header.data[BLASD_NPY_MAGIC_LEN] == 1 ? 2 : 4);
}

static int check_front(struct blasd_npy_in *npy, struct blasd_err *err) {
    const unsigned char *front = (const unsigned char *)npy->header.data;
    unsigned major = front[BLASD_NPY_MAGIC_LEN], minor = front[BLASD_NPY_MAGIC_LEN + 1];
    if (memcmp(front, BLASD_NPY_MAGIC, BLASD_NPY_MAGIC_LEN) != 0)
        return blasd_fail(err, BLASD_E_malformed_npy, npy->field,
                          "%s does not begin as .npy files do", npy->field);
    if (major < 1 || major > 3 || minor != 0)
        return blasd_fail(err, BLASD_E_malformed_npy, npy->field,
                          "version %u.%u of the format is not known; 1.0, 2.0 and 3.0 are", major,
                          minor);
    return 0;
}

static int read_length(struct blasd_npy_in *npy, size_t front, struct blasd_err *err) {
    const unsigned char *at = (const unsigned char *)npy->header.data + front;
    size_t len = front == BLASD_NPY_MAGIC_LEN + 4 ? (size_t)at[-2] | (size_t)at[-1] << 8
                                                  : (size_t)at[-4] | (size_t)at[-3] << 8 |
                                                        (size_t)at[-2] << 16 | (size_t)at[-1] << 24;
    if (len > HEADER_MOST)
        return blasd_fail(err, BLASD_E_malformed_npy, npy->field,
                          "the header says it has %zu bytes; %d are more than it needs", len,
                          HEADER_MOST);
    npy->header_len = front + len;
    return 0;
}

/* Describes the tensor and makes room for it. */
static int read_header(struct blasd_npy_in *npy, struct blasd_err *err) {
    struct blasd_tensor *tensor = &npy->to->input.tensor;
    size_t front = front_len(npy);
    bool big_endian = false;
    uint64_t bytes, length = npy->body->content_length;
    int rc = parse_header(npy->header.data + front, npy->header_len - front, npy->field, tensor,
                          &big_endian, err);
    if (rc != 0) return rc;
    if (length != 0 && blasd_tensor_bytes(tensor) > length)
        return blasd_fail(err, BLASD_E_malformed_npy, npy->field,
                          "its header describes %llu bytes, and the whole request has %llu",
                          (unsigned long long)blasd_tensor_bytes(tensor),
                          (unsigned long long)length);
    bytes = blasd_tensor_bytes(tensor);
    if (bytes > npy->body->limits->body_bytes)
        return blasd_fail(err, BLASD_E_body_too_large, npy->field,
                          "its header describes %llu bytes; the limit body_bytes is %llu",
                          (unsigned long long)bytes,
                          (unsigned long long)npy->body->limits->body_bytes);
    npy->has_header = true;
    return blasd_tensor_writer_begin(&npy->writer, npy->body->inputs->sink, npy->to, bytes, true,
                                     big_endian, err);
}

/* Bytes from the file's first on that have to come before more is known of the header. */
static size_t wanted_len(const struct blasd_npy_in *npy) {
    size_t front = front_len(npy);
    return npy->header_len != 0 ? npy->header_len : front != 0 ? front : BLASD_NPY_MAGIC_LEN + 2;
}

/* Takes header bytes from the front of *bytes, as far as they go. */
static int feed_header(struct blasd_npy_in *npy, const char **bytes, size_t *len,
                       struct blasd_err *err) {
    while (*len > 0 && !npy->has_header) {
        size_t front = front_len(npy), want = wanted_len(npy), take;
        int rc;
        take = want - npy->header.len < *len ? want - npy->header.len : *len;
        if (blasd_buf_add(&npy->header, *bytes, take) != 0) return blasd_no_memory(err);
        *bytes += take;
        *len -= take;
        if (npy->header.len < want) return 0;
        if (front == 0)
            rc = check_front(npy, err);
        else if (npy->header_len == 0)
            rc = read_length(npy, front, err);
        else
            rc = read_header(npy, err);
        if (rc != 0) return rc;
    }
    return 0;
}

int blasd_npy_feed(struct blasd_npy_in *npy, const char *bytes, size_t len, struct blasd_err *err) {
    int rc = feed_header(npy, &bytes, &len, err);
    size_t take = len;
    if (rc != 0 || len == 0) return rc;
    /* what fits is looked at first, so that the error does not depend on how the body was cut */
    if (take > npy->writer.left) take = (size_t)npy->writer.left;
    if ((rc = blasd_tensor_writer_feed(&npy->writer, bytes, take, err)) != 0 || take == len)
        return rc;
    return blasd_fail(err, BLASD_E_malformed_npy, npy->field,
                      "%s has more bytes than its header describes", npy->field);
}

int blasd_npy_finish(struct blasd_npy_in *npy, struct blasd_err *err) {
    if (!npy->has_header)
        return blasd_fail(err, BLASD_E_malformed_npy, npy->field,
                          "the .npy file of %s ends inside its header", npy->field);
    if (npy->writer.left == 0) return 0;
    return blasd_fail(err, BLASD_E_malformed_npy, npy->field,
                      "the .npy file of %s is truncated: it ends %llu bytes early", npy->field,
                      (unsigned long long)npy->writer.left);
}
