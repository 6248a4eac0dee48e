/* The reader of JSON bodies.
 *
 * The text gathers in a capped buffer and is read at the end, in one pass: tensors under "inputs"
 * go straight to the sink, and each other member is noted as it is met. Read next: json_tensor.c,
 * then json_list.c. */
#include "base/buf.h"
#include "wire/body_reader.h"
#include "wire/graph_in.h"
#include "wire/json_tensor.h"

#include <stdlib.h>
#include <string.h>

struct json_reader {
    struct blasd_body_reader base;
    const struct blasd_body *body;
    struct blasd_buf bytes;
};
_Static_assert(sizeof(struct json_reader) <= BLASD_READER_ROOM, "raise BLASD_READER_ROOM");

/* One body while it is read. */
struct pass {
    const struct blasd_body *body;
    struct blasd_json_text text;
    bool lifted;
    size_t left_out; /* bytes of inputs, and of a graph's members, which have limits of their own */
};

/* Whether the text up to `p`, without what is left out, is within its limit. */
static int check_envelope(const struct pass *pass, const char *p, struct blasd_err *err) {
    uint64_t most = pass->body->limits->envelope_bytes;
    if ((size_t)(p - pass->text.start) - pass->left_out <= most) return 0;
    return blasd_fail(err, BLASD_E_body_too_large, "",
                      "the JSON without its inputs is larger than %llu bytes, the limit "
                      "envelope_bytes",
                      (unsigned long long)most);
}

static int lift(void *arg, const char *quote, const char *name, const char *value,
                const char **next, struct blasd_err *err) {
    struct pass *pass = arg;
    struct blasd_named_input *to;
    int rc = blasd_named_inputs_add(pass->body->inputs, name, strlen(name), &to, err);
    (void)quote;
    if (rc != 0) return rc;
    return blasd_json_tensor(&pass->text, value, pass->body->inputs->sink, to, next, err);
}

static int take_inputs(struct pass *pass, const char *value, const char **next,
                       struct blasd_err *err) {
    if (pass->lifted)
        return blasd_json_fail(&pass->text, value, err, "the member \"inputs\" is there twice");
    pass->lifted = true;
    if (*value != '{')
        return blasd_fail(err, BLASD_E_invalid_field, "inputs",
                          "inputs must be an object of tensors by name");
    return blasd_json_members(&pass->text, value, lift, pass, next, err);
}

/* A member that is no tensor. */
static int take_field(struct pass *pass, const char *name, const char *value, const char **next,
                      struct blasd_err *err) {
    int rc = blasd_request_fields_json(pass->body->fields, BLASD_IN_BODY, name, &pass->text, value,
                                       next, err);
    return rc == 0 ? check_envelope(pass, *next, err) : rc;
}

static int take_member(void *arg, const char *quote, const char *name, const char *value,
                       const char **next, struct blasd_err *err) {
    struct pass *pass = arg;
    const struct blasd_body *body = pass->body;
    int rc;
    if (blasd_request_fields_given(body->fields, name))
        return blasd_json_fail(&pass->text, quote, err, "a duplicate of %s", name);
    if (strcmp(name, "inputs") == 0)
        rc = take_inputs(pass, value, next, err);
    else if (body->graph != NULL && blasd_request_fields_of_graph(name))
        rc = blasd_graph_in_member(body->graph, &pass->text, name, value, next, err);
    else
        return take_field(pass, name, value, next, err);
    if (rc == 0) pass->left_out += (size_t)(*next - value);
    return rc;
}

/* Walks over the members of the body's object. */
static int walk(struct pass *pass, struct blasd_err *err) {
    const struct blasd_json_text *text = &pass->text;
    const char *p = blasd_json_space(text->start);
    int rc;
    if (p == text->end) return blasd_json_fail(text, p, err, "the body is empty");
    if (*p != '{') return blasd_json_fail(text, p, err, "expected '{': a job is a JSON object");
    if ((rc = blasd_json_members(text, p, take_member, pass, &p, err)) != 0) return rc;
    if ((rc = check_envelope(pass, p, err)) != 0) return rc;
    return blasd_json_end(text, p, "the JSON object", err);
}

static int finish(struct blasd_body_reader *base, struct blasd_err *err) {
    struct json_reader *reader = (struct json_reader *)base;
    struct pass pass = {.body = reader->body};
    int rc = blasd_body_json_end(reader->body, &reader->bytes, &pass.text, err);
    return rc == 0 ? walk(&pass, err) : rc;
}

static int feed(struct blasd_body_reader *base, const char *bytes, size_t len,
                struct blasd_err *err) {
    struct json_reader *reader = (struct json_reader *)base;
    uint64_t said = reader->body->content_length;
    if (said > reader->body->limits->json_bytes) len = (size_t)said; /* it will be */
    return blasd_body_json_add(reader->body, &reader->bytes, bytes, len, err);
}

static void free_reader(struct blasd_body_reader *base) {
    struct json_reader *reader = (struct json_reader *)base;
    blasd_buf_release(&reader->bytes);
}

struct blasd_body_reader *blasd_json_reader_new(const struct blasd_body *body) {
    struct json_reader *reader = body->room;
    memset(reader, 0, sizeof *reader);
    reader->base = (struct blasd_body_reader){feed, finish, free_reader};
    reader->body = body;
    blasd_body_json(body, &reader->bytes);
    return &reader->base;
}
