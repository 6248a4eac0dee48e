/* References in JSON. What they refer to is not looked for here. */
#include "wire/reference_in.h"

#include "wire/json_list.h"
#include "wire/number.h"
#include "wire/remote_in.h"
#include "wire/sanitize.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct reading {
    const struct blasd_json_text *text;
    struct blasd_named_input *to;
    const char *field;
    bool tensor, job, output, slice, dtype, url, shape; /* the members that were there */
    struct blasd_remote remote;                         /* what they say where there is a URL */
    const char *id;                                     /* where the tensor's id begins */
};

bool blasd_reference_begins(const char *name) {
    return strcmp(name, "tensor") == 0 || strcmp(name, "job") == 0 || strcmp(name, "output") == 0 ||
           strcmp(name, "slice") == 0 || strcmp(name, "url") == 0;
}

static int wrong(const struct reading *reading, struct blasd_err *err, const char *what) {
    return blasd_fail(err, BLASD_E_invalid_reference, reading->field, "the reference %s", what);
}

static int read_id(struct reading *reading, const char *p, bool tensor, const char **next,
                   struct blasd_err *err) {
    char word[BLASD_JSON_WORD];
    int rc;
    if (*p != '"') return wrong(reading, err, "has an id that is no string");
    if ((rc = blasd_json_word(reading->text, p, word, next, err)) != 0) return rc;
    if (!(tensor ? blasd_id_tensor_valid(word) : blasd_id_valid(word))) {
        char shown[BLASD_SANITIZED_MAX];
        return blasd_fail(err, BLASD_E_reference_not_found, reading->field, "no %s has the id '%s'",
                          tensor ? "tensor" : "job", blasd_sanitize(shown, word, strlen(word)));
    }
    if (blasd_input_refer(&reading->to->input) == NULL) return blasd_no_memory(err);
    memcpy(reading->to->input.reference->id, word, BLASD_ID_LEN + 1);
    return 0;
}

static int read_output(struct reading *reading, const char *p, const char **next,
                       struct blasd_err *err) {
    struct blasd_reference *reference;
    char word[BLASD_JSON_WORD];
    int rc;
    if (*p != '"') return wrong(reading, err, "has an output that is no string");
    if ((rc = blasd_json_word(reading->text, p, word, next, err)) != 0) return rc;
    if ((reference = blasd_input_refer(&reading->to->input)) == NULL) return blasd_no_memory(err);
    if (strlen(word) >= sizeof reference->output || word[0] == '\0')
        return blasd_fail(err, BLASD_E_unknown_output, reading->field,
                          "no output of any job has such a name");
    memcpy(reference->output, word, strlen(word) + 1);
    return 0;
}

/* A whole number from 0, or null. */
static int read_bound(struct reading *reading, const char *p, int64_t *bound, const char **next,
                      struct blasd_err *err) {
    uint64_t value;
    bool negative;
    *bound = BLASD_SLICE_OPEN;
    if (strncmp(p, "null", 4) == 0) {
        *next = p + 4;
        return 0;
    }
    if (blasd_number_read_int(p, reading->text->end, next, &value, &negative) != BLASD_INT_OK ||
        *next == NULL || negative || value > (uint64_t)INT64_MAX)
        return wrong(reading, err,
                     "has a slice that is not a list of pairs [from, to], integers >= 0 or null");
    *bound = (int64_t)value;
    return 0;
}

static int expect(struct reading *reading, const char **p, char c, struct blasd_err *err) {
    *p = blasd_json_space(*p);
    if (**p != c)
        return blasd_fail(
            err, BLASD_E_invalid_reference, reading->field,
            "the reference has a slice that is not a list of pairs [from, to]: expected '%c'", c);
    *p = blasd_json_space(*p + 1);
    return 0;
}

static int read_pair(struct reading *reading, const char **p, struct blasd_err *err) {
    struct blasd_reference *reference = blasd_input_refer(&reading->to->input);
    int i, rc;
    if (reference == NULL) return blasd_no_memory(err);
    i = reference->sliced;
    if (i == BLASD_MAX_RANK) return wrong(reading, err, "has a slice of too many lengths");
    if ((rc = expect(reading, p, '[', err)) != 0) return rc;
    if ((rc = read_bound(reading, *p, &reference->from[i], p, err)) != 0) return rc;
    if ((rc = expect(reading, p, ',', err)) != 0) return rc;
    if ((rc = read_bound(reading, *p, &reference->to[i], p, err)) != 0) return rc;
    if ((rc = expect(reading, p, ']', err)) != 0) return rc;
    reference->sliced++;
    return 0;
}

static int read_slice(struct reading *reading, const char *p, const char **next,
                      struct blasd_err *err) {
    int rc = expect(reading, &p, '[', err);
    while (rc == 0 && *p != ']') {
        if (blasd_input_sliced(&reading->to->input) > 0) rc = expect(reading, &p, ',', err);
        if (rc == 0) rc = read_pair(reading, &p, err);
    }
    *next = p + 1;
    return rc;
}

static int read_dtype(struct reading *reading, const char *p, const char **next,
                      struct blasd_err *err) {
    char word[BLASD_JSON_WORD];
    int rc;
    if (*p != '"') return wrong(reading, err, "has a dtype that is no string");
    if ((rc = blasd_json_word(reading->text, p, word, next, err)) != 0) return rc;
    if (!blasd_dtype_find(word, strlen(word), &reading->to->input.tensor.dtype))
        return blasd_fail(err, BLASD_E_unsupported_dtype, reading->field, "unknown dtype");
    if (blasd_input_refer(&reading->to->input) == NULL) return blasd_no_memory(err);
    reading->to->input.reference->typed = true;
    return 0;
}

int blasd_reference_slice(const struct blasd_json_text *text, const char *p,
                          struct blasd_named_input *to, const char *field, const char **next,
                          struct blasd_err *err) {
    struct reading reading = {.text = text, .to = to, .field = field};
    return read_slice(&reading, p, next, err);
}

int blasd_reference_dtype(const struct blasd_json_text *text, const char *p,
                          struct blasd_named_input *to, const char *field, const char **next,
                          struct blasd_err *err) {
    struct reading reading = {.text = text, .to = to, .field = field};
    return read_dtype(&reading, p, next, err);
}

static int read_url(struct reading *reading, const char *p, const char **next,
                    struct blasd_err *err) {
    struct blasd_buf url;
    int rc;
    if (*p != '"') return wrong(reading, err, "has a URL that is no string");
    rc = blasd_json_inside(reading->text, p, &url, next, err);
    reading->remote.url = url.data; /* goes over */
    return rc;
}

static int read_shape(struct reading *reading, const char *p, const char **next,
                      struct blasd_err *err) {
    struct blasd_tensor *raw = &reading->remote.raw;
    return blasd_json_lengths(reading->text, p, reading->field, &raw->rank, raw->shape, next, err);
}

static int read_member(void *arg, const char *quote, const char *name, const char *p,
                       const char **next, struct blasd_err *err) {
    struct reading *reading = arg;
    bool *was = strcmp(name, "tensor") == 0   ? &reading->tensor
                : strcmp(name, "job") == 0    ? &reading->job
                : strcmp(name, "output") == 0 ? &reading->output
                : strcmp(name, "slice") == 0  ? &reading->slice
                : strcmp(name, "dtype") == 0  ? &reading->dtype
                : strcmp(name, "url") == 0    ? &reading->url
                : strcmp(name, "shape") == 0  ? &reading->shape
                                              : NULL;
    char shown[BLASD_SANITIZED_MAX];
    (void)quote;
    if (was == NULL)
        return blasd_fail(err, BLASD_E_invalid_reference, reading->field,
                          "a reference has no member '%s'; it has tensor, or job and output, or "
                          "url, and may have slice and dtype",
                          blasd_sanitize(shown, name, strlen(name)));
    if (*was) return wrong(reading, err, "has a member twice");
    *was = true;
    if (was == &reading->output) return read_output(reading, p, next, err);
    if (was == &reading->slice) return read_slice(reading, p, next, err);
    if (was == &reading->dtype) return read_dtype(reading, p, next, err);
    if (was == &reading->url) return read_url(reading, p, next, err);
    if (was == &reading->shape) return read_shape(reading, p, next, err);
    if (was == &reading->job) return read_id(reading, p, false, next, err);
    reading->id = p; /* a URL may follow, which takes none */
    return blasd_json_skip(reading->text, p, next, err);
}

/* What it says of a URL becomes the input's. */
static int finish_remote(struct reading *reading, struct blasd_err *err) {
    struct blasd_remote *remote = &reading->remote;
    int rc;
    if (reading->job || reading->output)
        return wrong(reading, err, "has a URL, so that it has no job or output");
    if (reading->tensor || reading->slice)
        return wrong(reading, err,
                     "has a URL, of which the whole file is taken: for a tensor or a slice of it "
                     "store the file with POST /tensors and refer to that");
    if (reading->shape && !reading->dtype)
        return wrong(reading, err,
                     "has a shape, which goes with a URL and a dtype, of plain bytes");
    remote->typed = reading->dtype;
    remote->dtype = reading->to->input.tensor.dtype;
    free(reading->to->input.reference);
    reading->to->input.reference = NULL;
    remote->plain = reading->shape;
    remote->raw = blasd_tensor_make(remote->dtype, remote->raw.rank, remote->raw.shape);
    if (remote->plain && (rc = blasd_tensor_check(&remote->raw, reading->field, err)) != 0)
        return rc;
    reading->to->remote = malloc(sizeof *remote);
    if (reading->to->remote == NULL) return blasd_no_memory(err);
    *reading->to->remote = *remote;
    memset(remote, 0, sizeof *remote);
    return 0;
}

static int finish_reference(struct reading *reading, struct blasd_err *err) {
    struct blasd_source *source = &reading->to->input.source;
    const char *next;
    if (reading->shape) return wrong(reading, err, "has a shape, which only one by URL may have");
    if (reading->tensor == reading->job)
        return wrong(reading, err,
                     "must name a tensor, or a job and its output, or a URL, and only one of them");
    if (reading->job != reading->output)
        return wrong(reading, err,
                     reading->job ? "names a job and not which of its outputs"
                                  : "names an output and no job");
    source->kind = reading->tensor ? BLASD_SOURCE_TENSOR : BLASD_SOURCE_JOB;
    return reading->tensor ? read_id(reading, reading->id, true, &next, err) : 0;
}

int blasd_reference_read(const struct blasd_json_text *text, const char *p,
                         struct blasd_named_input *to, const char *field, const char **next,
                         struct blasd_err *err) {
    struct reading reading = {.text = text, .to = to, .field = field};
    int rc = blasd_json_members(text, p, read_member, &reading, next, err);
    if (rc == 0) rc = reading.url ? finish_remote(&reading, err) : finish_reference(&reading, err);
    free(reading.remote.url);
    return rc;
}
