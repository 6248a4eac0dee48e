/* Nested lists of numbers, read in one pass.
 *
 * Elements gather in a small buffer. Where all of them fit, their number is known at the end of the
 * list; where they do not, the commas ahead are counted once (several bytes at a time), so that the
 * sink is told the size before it gets the first byte. */
#include "wire/json_list.h"

#include "core/half.h"
#include "wire/number.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define RUN 256    /* numbers read at once */
#define ROOM 32768 /* bytes of elements gathered before they are written; a multiple of 8 */

struct list {
    const struct blasd_json_text *text;
    struct blasd_sink *sink;
    struct blasd_named_input *to;
    enum blasd_dtype dtype;
    int parts; /* of an element: 2 of complex dtypes, whose `dtype` is that of a part */
    unsigned size;
    bool plain;
    int depth;                          /* lists open here */
    int rank;                           /* lists open around an element; -1 before the first */
    int64_t count[BLASD_MAX_RANK + 2];  /* values so far in the open list at each depth */
    int64_t length[BLASD_MAX_RANK + 2]; /* values in every list of that depth; -1: none ended */
    int64_t elements;                   /* read so far */
    bool reserved;
    struct blasd_tensor_writer writer;
    size_t used;
    _Alignas(8) unsigned char room[ROOM];
};

/* Where the value being read lies: "inputs.a[2][0]". */
static const char *path(const struct list *list, int depth, char text[64]) {
    size_t len = (size_t)snprintf(text, 64, "inputs.%s", list->to->name);
    for (int i = 1; i <= depth && len < 64; i++)
        len += (size_t)snprintf(text + len, 64 - len, "[%lld]", (long long)list->count[i]);
    return text;
}

/* Says what is wrong with the element at `p`, with its place and the first bytes of its text. */
static int element_fail(const struct list *list, const char *p, const char *next,
                        struct blasd_err *err, const char *why) {
    char at[64], shown[32];
    size_t len = (size_t)(next - p);
    path(list, list->depth, at);
    snprintf(shown, sizeof shown, "%.*s%s", len > 24 ? 24 : (int)len, p, len > 24 ? "..." : "");
    return blasd_fail(err, BLASD_E_invalid_tensor, at, "%s is %s: %s", at, shown, why);
}

static int flush(struct list *list, const char *p, struct blasd_err *err) {
    int rc;
    if (!list->reserved) {
        uint64_t ahead = blasd_json_leaves_after(list->text, p, list->depth);
        uint64_t all = (uint64_t)list->elements + ahead;
        /* no overflow: a text has fewer elements than bytes */
        rc = blasd_tensor_writer_begin(&list->writer, list->sink, list->to, all * list->size, false,
                                       false, err);
        if (rc != 0) return rc;
        list->reserved = true;
    }
    /* the count is right for valid text only: what follows then fails on its own */
    if (list->used > list->writer.left)
        return blasd_json_fail(list->text, p, err, "expected ',' or ']' between values");
    rc = blasd_tensor_writer_feed(&list->writer, list->room, list->used, err);
    list->used = 0;
    return rc;
}

/* Writes `value` as `dtype`, a floating one; false where it is beyond its range. */
static inline bool convert(enum blasd_dtype dtype, double value, unsigned char *out) {
    float single;
    uint16_t half;
    switch (dtype) {
    case BLASD_float64: memcpy(out, &value, 8); return fabs(value) <= DBL_MAX;
    case BLASD_float32:
        single = (float)value;
        memcpy(out, &single, 4);
        return fabsf(single) <= FLT_MAX;
    case BLASD_float16:
        half = blasd_float16_write(blasd_float_round_odd(value));
        memcpy(out, &half, 2);
        return (half & 0x7c00) != 0x7c00;
    default:
        half = blasd_bfloat16_write(blasd_float_round_odd(value));
        memcpy(out, &half, 2);
        return (half & 0x7f80) != 0x7f80;
    }
}

static int store_floating(struct list *list, const char *p, const char *next, double value,
                          struct blasd_err *err) {
    if (convert(list->dtype, value, list->room + list->used)) return 0;
    return element_fail(list, p, next, err,
                        "beyond the range of its dtype; infinities are the strings \"Infinity\" "
                        "and \"-Infinity\"");
}

/* Writes `n` values; false where one is beyond the range of the dtype. */
static bool store_run(struct list *list, const double *values, size_t n) {
    unsigned char *out = list->room + list->used;
    unsigned size = list->size;
    bool fit = true;
    if (list->dtype == BLASD_float64)
        for (size_t i = 0; i < n; i++) fit &= convert(BLASD_float64, values[i], out + 8 * i);
    else if (list->dtype == BLASD_float32)
        for (size_t i = 0; i < n; i++) fit &= convert(BLASD_float32, values[i], out + 4 * i);
    else
        for (size_t i = 0; i < n; i++) fit &= convert(list->dtype, values[i], out + size * i);
    return fit;
}

static int store_integer(struct list *list, const char *p, const char *next, uint64_t magnitude,
                         bool negative, struct blasd_err *err) {
    unsigned bits = 8 * list->size;
    bool is_signed = blasd_dtype_kind(list->dtype) == 'i';
    uint64_t most = list->dtype == BLASD_bool ? 1 : UINT64_MAX >> (64 - bits + (is_signed ? 1 : 0));
    uint64_t least = is_signed ? most + 1 : 0; /* as a magnitude */
    uint64_t value = negative ? 0 - magnitude : magnitude;
    if (magnitude > (negative ? least : most))
        return element_fail(list, p, next, err, "beyond the range of its dtype");
    memcpy(list->room + list->used, &value, list->size);
    return 0;
}

/* An element of an integer dtype: exact where the literal is an integer, and 2.0 or 1e3 are taken
 * for what they are. */
static int read_integer(struct list *list, const char *p, const char **next,
                        struct blasd_err *err) {
    uint64_t magnitude = 0;
    bool negative = false;
    double value;
    enum blasd_number_int kind =
        blasd_number_read_int(p, list->text->end, next, &magnitude, &negative);
    if (*next == NULL) return blasd_json_fail(list->text, p, err, "this is not a JSON number");
    if (kind == BLASD_INT_RANGE)
        return element_fail(list, p, *next, err, "beyond the range of its dtype");
    if (kind == BLASD_INT_LITERAL) {
        blasd_number_read(p, list->text->end, &value);
        if (value != floor(value))
            return element_fail(list, p, *next, err, "not a whole number, as its dtype asks for");
        if (!(fabs(value) < 0x1p53)) /* as a double it may be a neighbour */
            return element_fail(list, p, *next, err,
                                "read exactly only up to 2^53; write it without a point or "
                                "exponent");
        negative = value < 0;
        magnitude = (uint64_t)fabs(value);
    }
    return store_integer(list, p, *next, magnitude, negative, err);
}

/* Reads a number and stores it; of a floating dtype with all that follow it in its list, as far as
 * there is room. The last is left for the caller to count. */
static int read_number(struct list *list, const char *p, const char **next, struct blasd_err *err) {
    double values[RUN];
    size_t n, most = (ROOM - list->used) / list->size;
    if (blasd_dtype_kind(list->dtype) != 'f') return read_integer(list, p, next, err);
    if (list->depth == 0) most = 1; /* what follows its comma is no element */
    *next = blasd_numbers_read(p, list->text->end, values, most < RUN ? most : RUN, &n);
    if (n == 0) return blasd_json_fail(list->text, p, err, "this is not a JSON number");
    if (!store_run(list, values, n)) {
        /* one at a time up to the one that fails, whose place and text are told */
        *next = blasd_number_read(p, list->text->end, values);
        return store_floating(list, p, *next, values[0], err);
    }
    list->count[list->depth] += (int64_t)n - 1;
    list->elements += (int64_t)n - 1;
    list->used += (n - 1) * list->size;
    return 0;
}

/* "NaN", "Infinity" and "-Infinity". */
static int read_string(struct list *list, const char *p, const char **next, struct blasd_err *err) {
    char word[BLASD_JSON_WORD];
    double value;
    float single;
    uint16_t half;
    int rc = blasd_json_word(list->text, p, word, next, err);
    if (rc != 0) return rc;
    value = strcmp(word, "NaN") == 0         ? NAN
            : strcmp(word, "Infinity") == 0  ? INFINITY
            : strcmp(word, "-Infinity") == 0 ? -INFINITY
                                             : 0;
    if (value == 0) {
        char at[64];
        return blasd_fail(err, BLASD_E_invalid_tensor, path(list, list->depth, at),
                          "%s is a string; the only ones taken are \"NaN\", \"Infinity\" and "
                          "\"-Infinity\"",
                          at);
    }
    if (blasd_dtype_kind(list->dtype) != 'f')
        return element_fail(list, p, *next, err, "only floating dtypes have this value");
    single = (float)value;
    half =
        list->dtype == BLASD_float16 ? blasd_float16_write(single) : blasd_bfloat16_write(single);
    memcpy(list->room + list->used,
           list->size == 8   ? (const void *)&value
           : list->size == 4 ? (const void *)&single
                             : (const void *)&half,
           list->size);
    if (list->to->input.first_nonfinite < 0)
        list->to->input.first_nonfinite = list->elements / list->parts;
    return 0;
}

static int read_bool(struct list *list, const char *p, const char **next, struct blasd_err *err) {
    bool yes = *p == 't';
    size_t len = yes ? 4 : 5;
    if ((size_t)(list->text->end - p) < len || memcmp(p, yes ? "true" : "false", len) != 0)
        return blasd_json_fail(list->text, p, err, "expected a number");
    *next = p + len;
    if (list->dtype == BLASD_bool) return store_integer(list, p, *next, yes, false, err);
    if (!list->plain)
        return element_fail(list, p, *next, err,
                            "only dtype bool has true and false; write 1 or 0");
    return store_floating(list, p, *next, yes, err);
}

static int read_other(struct list *list, const char *p, const char **next, struct blasd_err *err) {
    size_t left = (size_t)(list->text->end - p);
    if (*p == '"') return read_string(list, p, next, err);
    if (*p == 't' || *p == 'f') return read_bool(list, p, next, err);
    if (left >= 4 && memcmp(p, "null", 4) == 0)
        return element_fail(list, p, p + 4, err, "not a number; a missing value is \"NaN\"");
    if (*p == '{') return element_fail(list, p, p + 1, err, "an object stands where a number must");
    if (*p == 'N' || *p == 'I' || (*p == '-' && left > 1 && p[1] == 'I'))
        return blasd_json_fail(list->text, p, err,
                               "NaN and infinities are the strings \"NaN\", \"Infinity\" and "
                               "\"-Infinity\"");
    if (p == list->text->end)
        return blasd_json_fail(list->text, p, err, "the text ends inside a tensor");
    return blasd_json_fail(list->text, p, err, "expected a number");
}

static int read_element(struct list *list, const char *p, const char **next,
                        struct blasd_err *err) {
    int rc;
    if (*p == '\0' || strchr("-0123456789tfn\"{", *p) == NULL)
        return read_other(list, p, next, err);
    if (list->rank < 0) list->rank = list->depth;
    if (list->depth != list->rank) {
        char at[64];
        return blasd_fail(err, BLASD_E_invalid_tensor, path(list, list->depth, at),
                          "%s is a number where the values before it are lists: all lists of a "
                          "tensor have equal lengths",
                          at);
    }
    rc = (*p >= '0' && *p <= '9') || (*p == '-' && p[1] != 'I') ? read_number(list, p, next, err)
                                                                : read_other(list, p, next, err);
    if (rc != 0) return rc;
    list->used += list->size;
    list->elements++;
    return list->used == ROOM ? flush(list, *next, err) : 0;
}

/* Opens the list at *p and steps past its bracket. */
static int open_list(struct list *list, const char **p, struct blasd_err *err) {
    char at[64];
    if (list->rank >= 0 && list->depth == list->rank)
        return blasd_fail(err, BLASD_E_invalid_tensor, path(list, list->depth, at),
                          "%s is a list where the values before it are not: all lists of a tensor "
                          "have equal lengths",
                          at);
    if (list->depth == BLASD_MAX_RANK + list->parts - 1)
        return blasd_fail(err, BLASD_E_invalid_tensor, path(list, 0, at),
                          "%s has more than %d dimensions", at, BLASD_MAX_RANK);
    list->count[++list->depth] = 0;
    *p = blasd_json_space(*p + 1);
    if (**p == ']' && list->rank < 0) list->rank = list->depth;
    return 0;
}

/* Ends the list whose closing bracket is the next byte. */
static int close_list(struct list *list, struct blasd_err *err) {
    int64_t count = list->count[list->depth], *length = &list->length[list->depth];
    char at[64];
    if (*length < 0) *length = count;
    list->depth--;
    if (count == *length) return 0;
    return blasd_fail(err, BLASD_E_invalid_tensor, path(list, list->depth, at),
                      "%s has %lld elements where the list before it has %lld: all lists of a "
                      "tensor have equal lengths",
                      at, (long long)count, (long long)*length);
}

/* Reads from the first byte of the value to its last; *end is one past it. */
static int read_all(struct list *list, const char *p, const char **end, struct blasd_err *err) {
    int rc;
    for (;;) {
        bool ended = false; /* whether a value ended just before `p` */
        if (*p == '[') {
            if ((rc = open_list(list, &p, err)) != 0) return rc;
        } else {
            if ((rc = read_element(list, p, &p, err)) != 0) return rc;
            ended = true;
        }
        for (;;) {
            if (ended && list->depth == 0) {
                *end = p;
                return 0;
            }
            if (ended) {
                list->count[list->depth]++;
                p = blasd_json_space(p);
            }
            if (*p != ']') break;
            if ((rc = close_list(list, err)) != 0) return rc;
            p++;
            ended = true;
        }
        if (!ended) continue; /* the first value of a list that was opened */
        if (*p != ',') return blasd_json_fail(list->text, p, err, "expected ',' or ']'");
        p = blasd_json_space(p + 1);
    }
}

/* The shape that the lists made; of complex ones without the pairs. */
static int found_shape(const struct list *list, struct blasd_json_shape *shape,
                       struct blasd_err *err) {
    bool pairs = list->parts == 2 && list->elements > 0;
    char at[64];
    if (pairs && (list->rank < 1 || list->length[list->rank] != 2))
        return blasd_fail(err, BLASD_E_invalid_tensor, path(list, 0, at),
                          "%s is complex: each of its elements is a list of two numbers, the real "
                          "and the imaginary part",
                          at);
    shape->rank = list->rank - (pairs ? 1 : 0);
    shape->elements = list->elements / list->parts;
    for (int i = 0; i < shape->rank; i++) shape->lengths[i] = list->length[i + 1];
    return 0;
}

int blasd_json_list(const struct blasd_json_text *text, const char *p, bool plain,
                    struct blasd_sink *sink, struct blasd_named_input *to,
                    struct blasd_json_shape *shape, const char **next, struct blasd_err *err) {
    struct list list;
    int rc;
    /* not an initialiser: it would clear the room, which costs more than a small tensor */
    list.text = text;
    list.sink = sink;
    list.to = to;
    /* a complex element is a list of its two parts: one more dimension of floats */
    list.dtype = blasd_dtype_part(to->input.tensor.dtype);
    list.parts = blasd_dtype_parts(to->input.tensor.dtype);
    list.size = (unsigned)blasd_dtype_size(list.dtype);
    list.plain = plain;
    list.depth = 0;
    list.rank = -1;
    list.elements = 0;
    list.reserved = false;
    list.used = 0;
    for (int i = 0; i <= BLASD_MAX_RANK + 1; i++) list.length[i] = -1;

    if ((rc = read_all(&list, p, next, err)) != 0) return rc;
    if (list.used > 0 || !list.reserved) rc = flush(&list, *next, err);
    if (rc != 0) return rc;
    if (list.writer.left != 0)
        return blasd_fail(err, BLASD_E_internal_error, "", "a list was miscounted");
    return found_shape(&list, shape, err);
}

int blasd_json_lengths(const struct blasd_json_text *text, const char *p, const char *field,
                       int *rank, int64_t *lengths, const char **next, struct blasd_err *err) {
    bool whole = *p == '[';
    *rank = 0;
    if (whole) p = blasd_json_space(p + 1);
    while (whole && *p != ']') {
        uint64_t length;
        bool negative;
        enum blasd_number_int kind;
        if (*rank > 0) {
            if (*p != ',') return blasd_json_fail(text, p, err, "expected ',' or ']'");
            p = blasd_json_space(p + 1);
        }
        if (*rank == BLASD_MAX_RANK)
            return blasd_fail(err, BLASD_E_invalid_tensor, field,
                              "its shape has more than %d lengths", BLASD_MAX_RANK);
        kind = blasd_number_read_int(p, text->end, next, &length, &negative);
        whole = *next != NULL && kind == BLASD_INT_OK && !(negative && length > 0) &&
                length <= (uint64_t)INT64_MAX;
        if (!whole) break;
        lengths[(*rank)++] = (int64_t)length;
        p = blasd_json_space(*next);
    }
    if (!whole)
        return blasd_fail(err, BLASD_E_invalid_tensor, field,
                          "%s has a shape that is not a list of integers >= 0", field);
    *next = p + 1;
    return 0;
}

int blasd_json_shape_check(const struct blasd_tensor *sent, const struct blasd_json_shape *found,
                           const char *field, struct blasd_err *err) {
    struct blasd_tensor shown = blasd_tensor_make(sent->dtype, found->rank, found->lengths);
    char wanted[128], came[128];
    blasd_tensor_shape_text(sent, wanted, sizeof wanted);
    if (found->rank <= 1 && blasd_tensor_elements(sent) != found->elements)
        return blasd_fail(err, BLASD_E_invalid_tensor, field,
                          "shape %s has %lld elements, data has %lld", wanted,
                          (long long)blasd_tensor_elements(sent), (long long)found->elements);
    if (found->rank <= 1) return 0;
    if (found->rank == sent->rank &&
        memcmp(found->lengths, sent->shape, (size_t)found->rank * sizeof *found->lengths) == 0)
        return 0;
    return blasd_fail(err, BLASD_E_invalid_tensor, field,
                      "shape is %s, but the lists of data make %s", wanted,
                      blasd_tensor_shape_text(&shown, came, sizeof came));
}
