/* The reader of bodies that are tensors and nothing else. */
#include "wire/tensor_body.h"

#include "wire/json_tensor.h"
#include "wire/npy_in.h"

#include <stdlib.h>
#include <string.h>

struct tensor_body {
    struct blasd_body_reader base;
    const struct blasd_body *body;
    bool begun, is_npy;
    struct blasd_tensor_body *of; /* borrowed; may be NULL */
    struct blasd_npy_in npy;
    struct blasd_buf text; /* of JSON */
};

static int add(struct tensor_body *reader, const char *name, struct blasd_named_input **to,
               struct blasd_err *err) {
    return blasd_named_inputs_add(reader->body->inputs, name, strlen(name), to, err);
}

static bool called_npy(const struct tensor_body *reader) {
    return reader->of != NULL && reader->of->npy;
}

static int begin(struct tensor_body *reader, char first, struct blasd_err *err) {
    struct blasd_named_input *to;
    int rc;
    reader->begun = true;
    reader->is_npy = called_npy(reader) || first == BLASD_NPY_MAGIC[0];
    if (!reader->is_npy) return 0;
    if ((rc = add(reader, BLASD_TENSOR_BODY_NAME, &to, err)) != 0) return rc;
    blasd_npy_begin(&reader->npy, reader->body, to);
    return 0;
}

static int feed(struct blasd_body_reader *base, const char *bytes, size_t len,
                struct blasd_err *err) {
    struct tensor_body *reader = (struct tensor_body *)base;
    int rc = reader->begun || len == 0 ? 0 : begin(reader, bytes[0], err);
    if (rc != 0 || len == 0) return rc;
    if (reader->is_npy) return blasd_npy_feed(&reader->npy, bytes, len, err);
    return blasd_body_json_add(reader->body, &reader->text, bytes, len, err);
}

struct pass {
    struct tensor_body *reader;
    struct blasd_json_text text;
};

static int read_named(void *arg, const char *quote, const char *name, const char *value,
                      const char **next, struct blasd_err *err) {
    struct pass *pass = arg;
    struct blasd_named_input *to;
    int rc = add(pass->reader, name, &to, err);
    (void)quote;
    if (rc != 0) return rc;
    rc = blasd_json_tensor(&pass->text, value, pass->reader->body->inputs->sink, to, next, err);
    if (rc == 0 && to->input.source.kind != BLASD_SOURCE_PAYLOAD)
        return blasd_fail(err, BLASD_E_invalid_tensor, name,
                          "a tensor that is to be kept comes with its data");
    return rc;
}

static int look_for_tensors(void *arg, const char *quote, const char *name, const char *value,
                            const char **next, struct blasd_err *err) {
    struct pass *pass = arg;
    (void)quote;
    if (pass->reader->of != NULL) pass->reader->of->named = true;
    if (strcmp(name, "tensors") == 0 && *value == '{')
        return blasd_json_members(&pass->text, value, read_named, pass, next, err);
    return blasd_fail(err, BLASD_E_unknown_field, "",
                      "the only member is tensors, an object of tensors by name");
}

/* Whether the object at `p` begins with the member "tensors". */
static bool has_many(const char *p) {
    return *p == '{' && strncmp(blasd_json_space(p + 1), "\"tensors\"", 9) == 0;
}

static int finish(struct blasd_body_reader *base, struct blasd_err *err) {
    struct tensor_body *reader = (struct tensor_body *)base;
    struct pass pass = {.reader = reader};
    const char *p;
    int rc = 0;
    if (!reader->begun && called_npy(reader)) rc = begin(reader, '\0', err);
    if (rc != 0) return rc;
    if (reader->is_npy) return blasd_npy_finish(&reader->npy, err);
    if ((rc = blasd_body_json_end(reader->body, &reader->text, &pass.text, err)) != 0) return rc;
    p = blasd_json_space(pass.text.start);
    if (p == pass.text.end) return blasd_json_fail(&pass.text, p, err, "the body is empty");
    if (has_many(p))
        rc = blasd_json_members(&pass.text, p, look_for_tensors, &pass, &p, err);
    else
        rc = read_named(&pass, p, BLASD_TENSOR_BODY_NAME, p, &p, err);
    return rc == 0 ? blasd_json_end(&pass.text, p, "the tensor", err) : rc;
}

static void free_reader(struct blasd_body_reader *base) {
    struct tensor_body *reader = (struct tensor_body *)base;
    blasd_npy_release(&reader->npy);
    blasd_buf_release(&reader->text);
    free(reader);
}

struct blasd_body_reader *blasd_tensor_body_reader_new(const struct blasd_body *body, void *arg) {
    struct tensor_body *reader = calloc(1, sizeof *reader);
    if (reader == NULL) return NULL;
    reader->of = arg;
    reader->base = (struct blasd_body_reader){feed, finish, free_reader};
    reader->body = body;
    blasd_body_json(body, &reader->text);
    return &reader->base;
}
