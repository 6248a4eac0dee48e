/* The reader of JSON bodies.
 *
 * The text gathers in a capped buffer and is read at the end, in one pass: what stands under
 * "inputs" is lifted straight into tensors, everything else is copied to a small text of its own
 * with `null` in place of the inputs, and that is all jansson sees, where it is more than a plain
 * "op". A number costs jansson 200 ns and a node; here it costs a tenth of that. Read next:
 * json_tensor.c, then json_list.c. */
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
    struct blasd_buf fields;
    bool lifted;
    const char *resume; /* where the text goes on behind the inputs */
    const char *op;     /* the string, where it is plain; NULL otherwise */
    bool params;        /* there are params, and they are {} */
    bool others;        /* there is more, for which jansson is needed and its dozen allocations */
    size_t resume_at;   /* and where that is in the text of the fields */
};

static int keep(struct pass *pass, const char *bytes, size_t len, struct blasd_err *err) {
    if (blasd_buf_add(&pass->fields, bytes, len) == 0) return 0;
    if (blasd_buf_fits(&pass->fields, len)) return blasd_no_memory(err);
    return blasd_fail(err, BLASD_E_body_too_large, "",
                      "the JSON without its inputs is larger than %llu bytes, the limit "
                      "envelope_bytes",
                      (unsigned long long)pass->body->limits->envelope_bytes);
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

/* Copies to the other fields what came since the last copy, with null in place of the value that
 * begins at `value`. */
static int leave_out(struct pass *pass, const char *value, struct blasd_err *err) {
    int rc = keep(pass, pass->resume, (size_t)(value - pass->resume), err);
    return rc == 0 ? keep(pass, "null", 4, err) : rc;
}

static void resume(struct pass *pass, const char *from) {
    pass->resume = from;
    pass->resume_at = pass->fields.len;
}

static int take_inputs(struct pass *pass, const char *value, const char **next,
                       struct blasd_err *err) {
    int rc;
    if (pass->lifted)
        return blasd_json_fail(&pass->text, value, err, "the member \"inputs\" is there twice");
    pass->lifted = true;
    rc = leave_out(pass, value, err);
    if (rc == 0 && *value != '{')
        rc = blasd_fail(err, BLASD_E_invalid_field, "inputs",
                        "inputs must be an object of tensors by name");
    if (rc == 0) rc = blasd_json_members(&pass->text, value, lift, pass, next, err);
    if (rc == 0) resume(pass, *next);
    return rc;
}

/* The members of a graph, which has data in them, too. */
static int take_graph(struct pass *pass, const char *name, const char *value, const char **next,
                      struct blasd_err *err) {
    int rc = leave_out(pass, value, err);
    if (rc == 0) rc = blasd_graph_in_member(pass->body->graph, &pass->text, name, value, next, err);
    if (rc == 0) resume(pass, *next);
    return rc;
}

/* A name with escapes is left for jansson: only its plain form is one of ours here. */
static int take_member(void *arg, const char *quote, const char *name, const char *value,
                       const char **next, struct blasd_err *err) {
    struct pass *pass = arg;
    const char *end;
    bool plain = strncmp(quote + 1, name, strlen(name)) == 0;
    int rc;
    if (plain && strcmp(name, "inputs") == 0) return take_inputs(pass, value, next, err);
    if (plain && pass->body->graph != NULL && blasd_request_fields_of_graph(name))
        return take_graph(pass, name, value, next, err);
    if ((rc = blasd_json_skip(&pass->text, value, next, err)) != 0) return rc;
    if (pass->op == NULL && strcmp(name, "op") == 0 && blasd_json_plain(value, *next, &end))
        pass->op = value;
    else if (!pass->params && strcmp(name, "params") == 0 && *value == '{' &&
             blasd_json_space(value + 1) == *next - 1)
        pass->params = true;
    else
        pass->others = true;
    return 0;
}

/* Walks over the members of the body's object. */
static int walk(struct pass *pass, struct blasd_err *err) {
    const struct blasd_json_text *text = &pass->text;
    const char *p = blasd_json_space(text->start);
    int rc;
    pass->resume = text->start;
    if (p == text->end) return blasd_json_fail(text, p, err, "the body is empty");
    if (*p != '{') return blasd_json_fail(text, p, err, "expected '{': a job is a JSON object");
    if ((rc = blasd_json_members(text, p, take_member, pass, &p, err)) != 0) return rc;
    rc = keep(pass, pass->resume, (size_t)(p - pass->resume), err);
    if (rc != 0) return rc;
    p = blasd_json_space(p);
    if (p != text->end) return blasd_json_fail(text, p, err, "something follows the JSON object");
    return 0;
}

/* Hands the other fields to jansson and takes them over. */
static int read_fields(struct pass *pass, struct blasd_err *err) {
    json_error_t problem;
    json_t *root =
        blasd_json_load(pass->fields.data, pass->fields.len, pass->text.depth_max, &problem);
    const char *name;
    json_t *value;
    int rc = 0;
    if (root == NULL) {
        size_t at = problem.position > 0 ? (size_t)problem.position : 0;
        const char *from = pass->text.start;
        if (at >= pass->resume_at) {
            at -= pass->resume_at;
            from = pass->resume;
        }
        if (at > (size_t)(pass->text.end - from)) at = (size_t)(pass->text.end - from);
        return blasd_json_fail(&pass->text, from + at, err, "%.140s", problem.text);
    }
    json_object_foreach(root, name, value) {
        bool inputs = strcmp(name, "inputs") == 0;
        if (!inputs && !(pass->body->graph != NULL && blasd_request_fields_of_graph(name)))
            rc = blasd_request_fields_value(pass->body->fields, BLASD_IN_BODY, name, value, err);
        else if (inputs ? !pass->lifted : !json_is_null(value))
            rc = blasd_fail(err, BLASD_E_invalid_field, name,
                            "write the name \"%s\" without escapes", name);
        if (rc != 0) break;
    }
    json_decref(root);
    return rc;
}

/* Takes over what needs no jansson. */
static int take_plain(const struct pass *pass, struct blasd_err *err) {
    struct blasd_request_fields *fields = pass->body->fields;
    int rc = 0;
    if (pass->op != NULL) {
        size_t len = (size_t)(blasd_json_string_end(pass->op, pass->text.end) - pass->op) - 2;
        rc = blasd_request_fields_text(fields, BLASD_IN_BODY, "op", pass->op + 1, len, err);
    }
    if (rc == 0 && pass->params)
        rc = blasd_request_fields_text(fields, BLASD_IN_BODY, "params", "", 0, err);
    return rc;
}

static int finish(struct blasd_body_reader *base, struct blasd_err *err) {
    struct json_reader *reader = (struct json_reader *)base;
    struct pass pass = {.body = reader->body};
    int rc = blasd_body_json_end(reader->body, &reader->bytes, &pass.text, err);
    if (rc != 0) return rc;
    blasd_body_buf(reader->body, &pass.fields, (size_t)reader->body->limits->envelope_bytes);
    rc = walk(&pass, err);
    if (rc == 0) rc = pass.others ? read_fields(&pass, err) : take_plain(&pass, err);
    blasd_buf_release(&pass.fields);
    return rc;
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
