/* The reader of safetensors bodies: eight bytes that say how long the header is, the header (JSON),
 * then the tensors' bytes without gaps, which go to the sink as they come. Bodies that are used
 * where they lie may leave gaps that align the next tensor.
 *
 * Only the header is held. Its `__metadata__` may carry op, params, priority,
 * deadline_ms, device, labels, keep, results, notify and digest as strings, inputs (JSON
 * text); what else stands there is other programs' business and ignored. */
#include "wire/body_reader.h"

#include "base/text.h"
#include "wire/dtype_codes.h"
#include "wire/inputs_text.h"
#include "wire/json_list.h"
#include "wire/sanitize.h"

#include <stdlib.h>
#include <string.h>

struct entry {
    struct blasd_named_input *to; /* borrowed */
    uint64_t begin, end;          /* in the data */
};

enum stage { LENGTH, HEADER, DATA };

struct safetensors_reader {
    struct blasd_body_reader base;
    const struct blasd_body *body;
    enum stage stage;
    struct blasd_buf header; /* the eight bytes of the length, then the header itself */
    uint64_t header_len;
    uint64_t at;        /* bytes of the data seen */
    int count, current; /* entries in the order of their data; the one being written */
    struct entry entries[BLASD_GRAPH_INPUTS_MAX];
    struct blasd_tensor_writer writers[BLASD_GRAPH_INPUTS_MAX];
};
_Static_assert(sizeof(struct safetensors_reader) <= BLASD_READER_ROOM, "raise BLASD_READER_ROOM");

/* `name`: NULL where there is none. */
static int find_dtype(const char *name, const char *field, enum blasd_dtype *ret,
                      struct blasd_err *err) {
    char shown[BLASD_SANITIZED_MAX];
    if (name == NULL)
        return blasd_fail(err, BLASD_E_malformed_safetensors, field,
                          "%s has no dtype, or its dtype is not a string", field);
    for (int i = 0; i < BLASD_DTYPE_COUNT; i++)
        if (strcmp(dtype_codes[i].safetensors, name) == 0) {
            *ret = (enum blasd_dtype)i;
            return 0;
        }
    return blasd_fail(
        err, BLASD_E_unsupported_dtype, field,
        "'%s' is not taken; F64, F32, F16, BF16, I64 to I8, U64 to U8, BOOL, C64 and C128 "
        "are",
        blasd_sanitize(shown, name, strlen(name)));
}

/* Reads the list of whole numbers from 0 at `p`; one that is too long for any shape is an invalid
 * tensor. */
static int read_list(const struct blasd_json_text *text, const char *name, const char *p,
                     const char *field, int *count, int64_t *values, struct blasd_err *err) {
    int rc = blasd_json_lengths(text, p, field, count, values, &p, err);
    if (rc == 0) return blasd_json_member_end(text, p, err);
    if (err->code != BLASD_E_invalid_tensor || *count == BLASD_MAX_RANK) return rc;
    return blasd_fail(err, BLASD_E_malformed_safetensors, field,
                      "its %s is not a list of integers >= 0", name);
}

static int take_offsets(const int64_t *offsets, int count, const char *field, struct entry *entry,
                        struct blasd_err *err) {
    uint64_t bytes = blasd_tensor_bytes(&entry->to->input.tensor);
    if (count != 2 || offsets[1] < offsets[0])
        return blasd_fail(err, BLASD_E_malformed_safetensors, field,
                          "its data_offsets are not two whole numbers in order");
    entry->begin = (uint64_t)offsets[0];
    entry->end = (uint64_t)offsets[1];
    if (entry->end - entry->begin == bytes) return 0;
    return blasd_fail(err, BLASD_E_malformed_safetensors, field,
                      "its dtype and shape make %llu bytes, its data_offsets %llu",
                      (unsigned long long)bytes, (unsigned long long)(entry->end - entry->begin));
}

/* What an entry says of its tensor, at `value`. */
static int read_description(const struct blasd_json_text *text, const char *value,
                            const char *field, struct entry *entry, const char **next,
                            struct blasd_err *err) {
    enum { DTYPE, SHAPE, OFFSETS };
    static const char *const names[] = {"dtype", "shape", "data_offsets", NULL};
    struct blasd_tensor *tensor = &entry->to->input.tensor;
    struct blasd_json_pick from = {.text = text, .names = names};
    int64_t shape[BLASD_MAX_RANK], offsets[BLASD_MAX_RANK];
    char dtype[BLASD_JSON_WORD];
    const char *end;
    int rank, count,
        rc = *value == '{' ? blasd_json_members_pick(value, &from, next, err)
                           : blasd_json_skip(text, value, next, err);
    bool named = from.at[DTYPE] != NULL && *from.at[DTYPE] == '"';
    if (rc != 0) return rc;
    if (from.other || from.at[DTYPE] == NULL || from.at[SHAPE] == NULL || from.at[OFFSETS] == NULL)
        return blasd_fail(err, BLASD_E_malformed_safetensors, field,
                          "%s must be an object of dtype, shape and data_offsets", field);
    if (named && (rc = blasd_json_word(text, from.at[DTYPE], dtype, &end, err)) != 0) return rc;
    if ((rc = read_list(text, "shape", from.at[SHAPE], field, &rank, shape, err)) != 0 ||
        (rc = read_list(text, "data_offsets", from.at[OFFSETS], field, &count, offsets, err)) != 0)
        return rc;
    if ((rc = find_dtype(named ? dtype : NULL, field, &tensor->dtype, err)) != 0) return rc;
    *tensor = blasd_tensor_make(tensor->dtype, rank, shape);
    rc = blasd_tensor_check(tensor, field, err);
    return rc == 0 ? take_offsets(offsets, count, field, entry, err) : rc;
}

static int read_entry(struct safetensors_reader *reader, const struct blasd_json_text *text,
                      const char *name, const char *value, const char **next,
                      struct blasd_err *err) {
    struct entry *entry = &reader->entries[reader->count];
    char field[64];
    int rc = blasd_named_inputs_add(reader->body->inputs, name, strlen(name), &entry->to, err);
    if (rc != 0) return rc;
    blasd_input_field(field, entry->to->name);
    rc = read_description(text, value, field, entry, next, err);
    if (rc == 0) reader->count++;
    return rc;
}

/* What is walked over: the header, or its metadata. */
struct walk {
    struct safetensors_reader *reader;
    struct blasd_json_text text;
    unsigned metadata; /* times that it was there */
};

static int read_field(void *arg, const char *quote, const char *name, const char *value,
                      const char **next, struct blasd_err *err) {
    struct walk *walk = arg;
    struct blasd_request_fields *fields = walk->reader->body->fields;
    struct blasd_buf inside;
    int rc;
    (void)quote;
    if (*value != '"')
        return blasd_fail(err, BLASD_E_malformed_safetensors, "__metadata__",
                          "the values of __metadata__ must be strings; params is a JSON text in a "
                          "string");
    bool inputs = strcmp(name, BLASD_INPUTS_TEXT) == 0;
    if (!inputs && !blasd_request_fields_knows(fields, name))
        return blasd_json_skip(&walk->text, value, next, err);
    if (!inputs && blasd_json_plain(value, walk->text.end, next))
        return blasd_request_fields_text(fields, BLASD_IN_BODY, name, value + 1,
                                         (size_t)(*next - value) - 2, err);
    rc = blasd_json_inside(&walk->text, value, &inside, next, err);
    if (rc == 0 && inputs)
        rc = blasd_inputs_text(walk->reader->body->inputs, walk->reader->body->limits, inside.data,
                               inside.len, err);
    else if (rc == 0)
        rc = blasd_request_fields_text(fields, BLASD_IN_BODY, name, inside.data, inside.len, err);
    blasd_buf_release(&inside);
    return rc;
}

static int read_top(void *arg, const char *quote, const char *name, const char *value,
                    const char **next, struct blasd_err *err) {
    struct walk *walk = arg;
    if (strcmp(name, "__metadata__") != 0) {
        for (int i = 0; i < walk->reader->count; i++)
            if (strcmp(walk->reader->entries[i].to->name, name) == 0)
                return blasd_json_fail(&walk->text, quote, err, "a duplicate of %s", name);
        return read_entry(walk->reader, &walk->text, name, value, next, err);
    }
    if (walk->metadata++ > 0)
        return blasd_json_fail(&walk->text, quote, err, "a duplicate of %s", name);
    if (*value != '{')
        return blasd_fail(err, BLASD_E_malformed_safetensors, "__metadata__",
                          "__metadata__ must be an object of strings");
    return blasd_json_members(&walk->text, value, read_field, walk, next, err);
}

static int by_begin(const void *a, const void *b) {
    const struct entry *x = a, *y = b;
    if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
    return (x->end > y->end) - (x->end < y->end);
}

/* Where the tensor behind byte `at` of the data begins, where that need not be right there. */
static uint64_t next_begin(const struct safetensors_reader *reader, uint64_t at, uint64_t begin) {
    uint64_t aligned = blasd_align_up(at);
    return reader->body->inputs->sink->in_place && begin == aligned ? aligned : at;
}

/* Checks that the tensors lie one behind the other from 0 on, and that the body can hold them. */
static int check_layout(struct safetensors_reader *reader, struct blasd_err *err) {
    uint64_t at = 0, before = reader->header.len, most = reader->body->content_length;
    qsort(reader->entries, (size_t)reader->count, sizeof *reader->entries, by_begin);
    for (int i = 0; i < reader->count; i++) {
        const struct entry *entry = &reader->entries[i];
        if (entry->begin != next_begin(reader, at, entry->begin)) {
            char field[64];
            return blasd_fail(err, BLASD_E_malformed_safetensors,
                              blasd_input_field(field, entry->to->name),
                              "its data begin at byte %llu, but the tensor before it ends at %llu: "
                              "tensors must neither overlap nor leave gaps",
                              (unsigned long long)entry->begin, (unsigned long long)at);
        }
        at = entry->end;
    }
    if (most != 0 && before + at != most)
        return blasd_fail(err, BLASD_E_malformed_safetensors, "",
                          "the header and the tensors it describes make %llu bytes, the body has "
                          "%llu",
                          (unsigned long long)(before + at), (unsigned long long)most);
    if (at <= reader->body->limits->body_bytes) return 0;
    return blasd_fail(err, BLASD_E_body_too_large, "",
                      "the tensors make %llu bytes; the limit body_bytes is %llu",
                      (unsigned long long)at, (unsigned long long)reader->body->limits->body_bytes);
}

/* All tensors are known: has them written one behind the other. */
static int begin_writers(struct safetensors_reader *reader, struct blasd_err *err) {
    int rc = check_layout(reader, err);
    for (int i = 0; rc == 0 && i < reader->count; i++) {
        const struct entry *entry = &reader->entries[i];
        reader->body->inputs->sink->body_at = reader->header.len + entry->begin;
        rc = blasd_tensor_writer_begin(&reader->writers[i], reader->body->inputs->sink, entry->to,
                                       entry->end - entry->begin, true, false, err);
    }
    return rc;
}

static int walk_header(struct walk *walk, struct blasd_err *err) {
    const char *p = blasd_json_space(walk->text.start);
    int rc;
    if (*p != '{')
        return blasd_json_skip(&walk->text, p, &p, err) != 0
                   ? -(int)err->code
                   : blasd_fail(err, BLASD_E_malformed_safetensors, "",
                                "the header is not a JSON object");
    rc = blasd_json_members(&walk->text, p, read_top, walk, &p, err);
    return rc == 0 ? blasd_json_end(&walk->text, p, "the object", err) : rc;
}

static int read_header(struct safetensors_reader *reader, struct blasd_err *err) {
    struct walk walk = {.reader = reader};
    int rc;
    if (blasd_buf_add(&reader->header, (const char[BLASD_JSON_SLACK]){0}, BLASD_JSON_SLACK) != 0)
        return blasd_no_memory(err);
    reader->header.len -= BLASD_JSON_SLACK;
    walk.text.start = reader->header.data + 8;
    walk.text.end = walk.text.start + reader->header_len;
    walk.text.depth_max = (int)reader->body->limits->json_depth;
    rc = walk_header(&walk, err);
    if (rc == 0) return begin_writers(reader, err);
    if (err->code == BLASD_E_malformed_json) {
        struct blasd_err why = *err;
        return blasd_fail(err, BLASD_E_malformed_safetensors, "",
                          "the header is not valid JSON: %.160s", why.detail);
    }
    return rc;
}

static int read_length(struct safetensors_reader *reader, struct blasd_err *err) {
    uint64_t most = reader->body->limits->envelope_bytes;
    memcpy(&reader->header_len, reader->header.data, 8);
    if (reader->header_len < 2)
        return blasd_fail(err, BLASD_E_malformed_safetensors, "",
                          "the first eight bytes say that the header has %llu bytes, which is too "
                          "short for one",
                          (unsigned long long)reader->header_len);
    if (reader->header_len <= most) return 0;
    return blasd_fail(err, BLASD_E_malformed_safetensors, "",
                      "the first eight bytes say that the header has %llu bytes; the limit "
                      "envelope_bytes is %llu",
                      (unsigned long long)reader->header_len, (unsigned long long)most);
}

/* Gathers bytes until `want` are there; false where more must come first. */
static int gather(struct blasd_buf *buf, uint64_t want, const char **bytes, size_t *len,
                  bool *there, struct blasd_err *err) {
    size_t take = (size_t)(want - buf->len);
    if (take > *len) take = *len;
    if (blasd_buf_add(buf, *bytes, take) != 0) return blasd_no_memory(err);
    *bytes += take;
    *len -= take;
    *there = buf->len == want;
    return 0;
}

static int feed_data(struct safetensors_reader *reader, const char *bytes, size_t len,
                     struct blasd_err *err) {
    while (len > 0) {
        struct blasd_tensor_writer *writer = &reader->writers[reader->current];
        uint64_t begin;
        size_t take = len;
        int rc = 0;
        if (reader->current == reader->count)
            return blasd_fail(err, BLASD_E_malformed_safetensors, "",
                              "bytes follow the last tensor that the header describes");
        begin = reader->entries[reader->current].begin;
        if (reader->at < begin) { /* the gap before it */
            if (take > begin - reader->at) take = (size_t)(begin - reader->at);
        } else {
            if (take > writer->left) take = (size_t)writer->left;
            rc = blasd_tensor_writer_feed(writer, bytes, take, err);
            if (writer->left == 0) reader->current++;
        }
        if (rc != 0) return rc;
        bytes += take;
        len -= take;
        reader->at += take;
    }
    return 0;
}

static int feed(struct blasd_body_reader *base, const char *bytes, size_t len,
                struct blasd_err *err) {
    struct safetensors_reader *reader = (struct safetensors_reader *)base;
    bool there = false;
    int rc;
    if (reader->stage == LENGTH) {
        if ((rc = gather(&reader->header, 8, &bytes, &len, &there, err)) != 0 || !there) return rc;
        if ((rc = read_length(reader, err)) != 0) return rc;
        reader->stage = HEADER;
    }
    if (reader->stage == HEADER) {
        rc = gather(&reader->header, 8 + reader->header_len, &bytes, &len, &there, err);
        if (rc != 0 || !there) return rc;
        if ((rc = read_header(reader, err)) != 0) return rc;
        reader->stage = DATA;
    }
    return feed_data(reader, bytes, len, err);
}

static int finish(struct blasd_body_reader *base, struct blasd_err *err) {
    struct safetensors_reader *reader = (struct safetensors_reader *)base;
    char field[64];
    if (reader->stage != DATA)
        return blasd_fail(
            err, BLASD_E_malformed_safetensors, "",
            "the body ends inside the header: %zu of %llu bytes came", reader->header.len,
            (unsigned long long)(reader->stage == LENGTH ? 8 : 8 + reader->header_len));
    while (reader->current < reader->count && reader->writers[reader->current].left == 0)
        reader->current++;
    if (reader->current == reader->count) return 0;
    blasd_input_field(field, reader->entries[reader->current].to->name);
    return blasd_fail(err, BLASD_E_malformed_safetensors, field,
                      "the body ends %llu bytes before the end of this tensor",
                      (unsigned long long)reader->writers[reader->current].left);
}

static void free_reader(struct blasd_body_reader *base) {
    struct safetensors_reader *reader = (struct safetensors_reader *)base;
    blasd_buf_release(&reader->header);
}

struct blasd_body_reader *blasd_safetensors_reader_new(const struct blasd_body *body) {
    struct safetensors_reader *reader = body->room;
    /* what is in its lists is set when it is added */
    reader->base = (struct blasd_body_reader){feed, finish, free_reader};
    reader->body = body;
    reader->stage = LENGTH;
    reader->header_len = reader->at = 0;
    reader->count = reader->current = 0;
    blasd_body_buf(body, &reader->header,
                   (size_t)body->limits->envelope_bytes + 8 + BLASD_JSON_SLACK);
    return &reader->base;
}
