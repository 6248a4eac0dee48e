/* One tensor of a JSON body. The members of its object may come in any order: data that comes
 * before its dtype is stepped over and read at the end. */
#include "wire/json_tensor.h"

#include "base/text.h"

#include "wire/base64.h"
#include "wire/json_list.h"
#include "wire/number.h"
#include "wire/reference_in.h"
#include "wire/rule_in.h"
#include "wire/sanitize.h"

#include <stdio.h>
#include <string.h>

struct spec {
    const struct blasd_json_text *text;
    struct blasd_sink *sink;
    struct blasd_named_input *to;
    char field[64];
    bool has_dtype, has_shape;
    const char *data, *base64; /* where they begin; NULL: not there */
    bool written, refers;      /* it is a reference, to be read as such */
    int rank;                  /* of `shape` as it was sent */
    int64_t shape[BLASD_MAX_RANK];
    struct blasd_json_shape found; /* what `data` turned out to be */
    struct blasd_rule_in rule;
};

static int bad(const struct spec *spec, struct blasd_err *err, const char *what) {
    return blasd_fail(err, BLASD_E_invalid_tensor, spec->field, "%s %s", spec->field, what);
}

static int read_dtype(struct spec *spec, const char *p, const char **next, struct blasd_err *err) {
    char word[BLASD_JSON_WORD];
    int rc;
    if (spec->has_dtype) return bad(spec, err, "has dtype twice");
    if (*p != '"') return bad(spec, err, "has a dtype that is no string");
    if ((rc = blasd_json_word(spec->text, p, word, next, err)) != 0) return rc;
    if (!blasd_dtype_find(word, strlen(word), &spec->to->input.tensor.dtype)) {
        char shown[BLASD_SANITIZED_MAX];
        return blasd_fail(err, BLASD_E_unsupported_dtype, spec->field,
                          "'%s' is not a dtype; use float64, float32, float16, bfloat16, "
                          "int8 to int64, uint8 to uint64, bool, complex64 and complex128",
                          blasd_sanitize(shown, word, strlen(word)));
    }
    spec->has_dtype = true;
    return 0;
}

static int read_shape(struct spec *spec, const char *p, const char **next, struct blasd_err *err) {
    if (spec->has_shape) return bad(spec, err, "has shape twice");
    spec->has_shape = true;
    return blasd_json_lengths(spec->text, p, spec->field, &spec->rank, spec->shape, next, err);
}

/* Describes the tensor by `rank` and `shape`; its bytes are counted only after the check. */
static int describe(struct spec *spec, int rank, const int64_t *shape, struct blasd_err *err) {
    spec->to->input.tensor = blasd_tensor_make(spec->to->input.tensor.dtype, rank, shape);
    return blasd_tensor_check(&spec->to->input.tensor, spec->field, err);
}

/* Checks the elements that came against the shape that was sent, if one was. */
static int settle_shape(struct spec *spec, struct blasd_err *err) {
    const struct blasd_json_shape *found = &spec->found;
    int rc;
    if (!spec->has_shape) return describe(spec, found->rank, found->lengths, err);
    if ((rc = describe(spec, spec->rank, spec->shape, err)) != 0) return rc;
    return blasd_json_shape_check(&spec->to->input.tensor, found, spec->field, err);
}

/* Decodes the letters from `p` on, without the last group, in pieces. A backslash before a slash
 * is stepped over: some encoders of JSON write one. */
static int decode(struct spec *spec, const char *p, const char *end,
                  struct blasd_tensor_writer *writer, struct blasd_err *err) {
    char letters[4096];
    unsigned char bytes[sizeof letters / 4 * 3];
    size_t have = 0;
    int rc;
    while (p < end || have > 0) {
        size_t groups, n, run = (size_t)(end - p);
        const char *slash;
        if (run > sizeof letters - have) run = sizeof letters - have;
        slash = run > 0 ? memchr(p, '\\', run) : NULL;
        if (slash != NULL) run = (size_t)(slash - p);
        memcpy(letters + have, p, run);
        have += run;
        p += run;
        if (slash != NULL) {
            if (p + 1 >= end || p[1] != '/') return bad(spec, err, "has base64 with an escape");
            p++;
            if (have < sizeof letters - 4) continue;
        }
        /* the last group may be padded: keep four letters back until the end */
        groups = have / 4 - (p < end || have < 4 || have % 4 != 0 ? 0 : 1);
        n = blasd_base64_decode(letters, groups, bytes);
        if (n < groups) return bad(spec, err, "has base64 with a letter that is not of base64");
        if ((rc = blasd_tensor_writer_feed(writer, bytes, groups * 3, err)) != 0) return rc;
        memmove(letters, letters + groups * 4, have - groups * 4);
        have -= groups * 4;
        if (p < end) continue;
        n = have == 4 ? blasd_base64_decode_last(letters, bytes) : 0;
        if (n == 0 || n != writer->left) return bad(spec, err, "has base64 that ends wrongly");
        return blasd_tensor_writer_feed(writer, bytes, n, err);
    }
    return 0;
}

/* Writes the string of base64 at `p`, once dtype and shape are known. */
static int land_base64(struct spec *spec, const char *p, struct blasd_err *err) {
    const char *end = blasd_json_string_end(p, spec->text->end) - 1;
    size_t letters = (size_t)(end - p) - 1;
    struct blasd_tensor_writer writer;
    uint64_t bytes;
    int rc;
    if (!spec->has_dtype || !spec->has_shape)
        return bad(spec, err, "has base64, which also needs dtype and shape");
    if ((rc = describe(spec, spec->rank, spec->shape, err)) != 0) return rc;
    bytes = blasd_tensor_bytes(&spec->to->input.tensor);
    for (const char *at = p + 1; (at = memchr(at, '\\', (size_t)(end - at))) != NULL; at++)
        letters--;
    if (letters != (bytes + 2) / 3 * 4)
        return blasd_fail(err, BLASD_E_invalid_tensor, spec->field,
                          "its dtype and shape make %llu bytes, which base64 writes in %llu "
                          "letters, padding included; there are %zu",
                          (unsigned long long)bytes, (unsigned long long)((bytes + 2) / 3 * 4),
                          letters);
    rc = blasd_tensor_writer_begin(&writer, spec->sink, spec->to, bytes, true, false, err);
    return rc != 0 ? rc : decode(spec, p + 1, end, &writer, err);
}

/* Steps over base64, reading it where all that it needs is known. */
static int read_base64(struct spec *spec, const char *p, const char **next, struct blasd_err *err) {
    if (spec->base64 != NULL || spec->data != NULL)
        return bad(spec, err, "has its data twice: give data or base64, once");
    if (*p != '"') return bad(spec, err, "has base64 that is no string");
    *next = blasd_json_string_end(p, spec->text->end);
    if (*next == NULL)
        return blasd_json_fail(spec->text, p, err, "this string has no closing quote");
    spec->base64 = p;
    if (!spec->has_dtype || !spec->has_shape) return 0;
    spec->written = true;
    return land_base64(spec, p, err);
}

static int read_data(struct spec *spec, const char *p, const char **next, struct blasd_err *err) {
    if (spec->base64 != NULL || spec->data != NULL)
        return bad(spec, err, "has its data twice: give data or base64, once");
    spec->data = p;
    if (!spec->has_dtype) return blasd_json_skip(spec->text, p, next, err);
    spec->written = true;
    return blasd_json_list(spec->text, p, false, spec->sink, spec->to, &spec->found, next, err);
}

static int read_member(void *arg, const char *quote, const char *name, const char *p,
                       const char **next, struct blasd_err *err) {
    struct spec *spec = arg;
    char shown[BLASD_SANITIZED_MAX], field[64];
    int rc;
    (void)quote;
    if (strcmp(name, "dtype") == 0) return read_dtype(spec, p, next, err);
    if (strcmp(name, "shape") == 0) return read_shape(spec, p, next, err);
    if (strcmp(name, "data") == 0) return read_data(spec, p, next, err);
    if (strcmp(name, "base64") == 0) return read_base64(spec, p, next, err);
    if (blasd_reference_begins(name) && spec->data == NULL && spec->base64 == NULL)
        spec->refers = true;
    if (spec->refers) return blasd_json_skip(spec->text, p, next, err);
    rc = blasd_rule_in_member(spec->text, &spec->rule, spec->field, name, p, next, err);
    if (rc != 0) return rc < 0 ? rc : 0;
    snprintf(field, sizeof field, "inputs.%s.%.20s", spec->to->name,
             blasd_sanitize(shown, name, strlen(name)));
    return blasd_fail(err, BLASD_E_unknown_field, field,
                      "a tensor has no member '%s'; it has dtype, shape, and data or base64, or is "
                      "made by random, eye, full, arange or linspace",
                      shown);
}

static int read_object(struct spec *spec, const char *p, const char **next, struct blasd_err *err) {
    int rc;
    if (*blasd_json_space(p + 1) == '}')
        return bad(spec, err, "is empty: it needs dtype, shape, and data or base64");
    if ((rc = blasd_json_members(spec->text, p, read_member, spec, next, err)) != 0) return rc;
    if (spec->refers) return blasd_reference_read(spec->text, p, spec->to, spec->field, next, err);
    if (blasd_rule_in_given(&spec->rule)) {
        if (spec->data != NULL || spec->base64 != NULL)
            return bad(spec, err, "has both data and a rule that makes it");
        return blasd_rule_in_finish(spec->text, &spec->rule, spec->field,
                                    spec->has_shape ? spec->rank : -1, spec->shape,
                                    !spec->has_dtype, spec->to, err);
    }
    if (spec->data == NULL && spec->base64 == NULL)
        return bad(spec, err, "has neither data nor base64");
    if (spec->written) return 0;
    if (spec->base64 != NULL) return land_base64(spec, spec->base64, err);
    /* no dtype at all: the default, as for plain lists */
    rc = blasd_json_list(spec->text, spec->data, !spec->has_dtype, spec->sink, spec->to,
                         &spec->found, &p, err);
    return rc != 0 ? rc : blasd_json_member_end(spec->text, p, err);
}

/* Of lists without a dtype. */
static enum blasd_dtype default_dtype(const struct blasd_named_input *to) {
    bool splits = !to->any && (blasd_ops_values(to->name) & BLASD_VALUES_SPLITS) != 0;
    return splits ? BLASD_int64 : BLASD_float64;
}

int blasd_json_tensor(const struct blasd_json_text *text, const char *p, struct blasd_sink *sink,
                      struct blasd_named_input *to, const char **next, struct blasd_err *err) {
    struct spec spec = {.text = text, .sink = sink, .to = to};
    int rc;
    blasd_input_field(spec.field, to->name);
    to->input.tensor.dtype = default_dtype(to);
    if (*p != '{')
        rc = blasd_json_list(text, p, true, sink, to, &spec.found, next, err);
    else
        rc = read_object(&spec, p, next, err);
    if (rc != 0 || spec.base64 != NULL || to->input.source.kind == BLASD_SOURCE_RULE || spec.refers)
        return rc;
    return settle_shape(&spec, err);
}
