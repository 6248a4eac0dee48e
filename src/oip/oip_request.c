/* The JSON of an inference request: the members of each object are found first, so that an input is
 * known by its datatype and shape before its elements are read, in whatever order its members came:
 * from the JSON, or from the bytes behind it as they arrive. */
#include "oip/oip_parts.h"

#include "base/text.h"
#include "wire/json_list.h"
#include "wire/sanitize.h"

#include <stdlib.h>
#include <string.h>

/* The JSON while it is read. */
struct pass {
    struct oip_reader *reader;
    struct blasd_json_text text;
    size_t data_bytes;    /* of the text, which have limits of their own */
    struct blasd_buf own; /* the operation's parameters, as JSON without its last brace */
};

/* A count from 0; false where it is none. */
static bool read_count(const struct pass *pass, const char *p, int64_t *ret) {
    return blasd_json_whole(p, pass->text.end, ret) && *ret >= 0;
}

/* Reads the name at `p`; false where there is none, or none that is text. */
static bool read_name(const struct pass *pass, const char *p, char name[BLASD_JSON_WORD]) {
    struct blasd_err ignored;
    return p != NULL && *p == '"' && blasd_json_word(&pass->text, p, name, &p, &ignored) == 0;
}

/* Picks members of the object at `p`; a member that is none of them fails where `owner`, which has
 * them, is given. */
static int pick(const struct pass *pass, const char *p, struct blasd_json_pick *from,
                const char *owner, struct blasd_err *err) {
    char shown[BLASD_SANITIZED_MAX], field[64];
    const char *next;
    int rc;
    from->text = &pass->text;
    rc = blasd_json_members_pick(p, from, &next, err);
    if (rc != 0 || owner == NULL || !from->other) return rc;
    blasd_sanitize(shown, from->name, strlen(from->name));
    blasd_text_join(field, sizeof field, owner, owner[0] == '\0' ? "" : ".", shown);
    return blasd_fail(err, BLASD_E_unknown_field, field, "%s has no member '%s'",
                      owner[0] == '\0' ? "a request" : owner, shown);
}

/* ---- tensors ---- */

/* The parameters of a tensor; those that are not known are ignored. */
enum { REGION, BINARY_SIZE, BINARY, CLASSIFICATION };
static const char *const parameter_names[] = {"shared_memory_region", "binary_data_size",
                                              "binary_data", "classification", NULL};

static int pick_parameters(const struct pass *pass, const char *p, const char *field,
                           struct blasd_json_pick *from, struct blasd_err *err) {
    const char *next;
    int rc;
    *from = (struct blasd_json_pick){.names = parameter_names};
    if (p == NULL) return 0;
    if (*p != '{')
        return blasd_fail(err, BLASD_E_invalid_field, field, "the parameters of %s are no object",
                          field);
    if ((rc = blasd_json_check(&pass->text, p, 3, &next, err)) != 0 ||
        (rc = pick(pass, p, from, NULL, err)) != 0)
        return rc;
    if (from->at[REGION] == NULL) return 0;
    return blasd_fail(err, BLASD_E_invalid_field, field,
                      "regions of shared memory are not taken: send the tensor in binary "
                      "(binary_data_size), or POST /jobs with the header Body-File");
}

/* The elements of `to`, which stand in the JSON. */
static int take_data(struct pass *pass, const char *data, struct blasd_named_input *to,
                     const char *field, struct blasd_err *err) {
    struct blasd_json_shape found;
    const char *end;
    int rc = blasd_json_list(&pass->text, data, false, pass->reader->body->inputs->sink, to, &found,
                             &end, err);
    if (rc != 0) return rc;
    pass->data_bytes += (size_t)(end - data);
    if ((rc = blasd_json_member_end(&pass->text, end, err)) != 0) return rc;
    return blasd_json_shape_check(&to->input.tensor, &found, field, err);
}

/* Those of a tensor that follows the JSON. */
static int take_binary(struct pass *pass, uint64_t bytes, struct blasd_named_input *to,
                       const char *field, struct blasd_err *err) {
    struct oip_reader *reader = pass->reader;
    uint64_t own = blasd_tensor_bytes(&to->input.tensor);
    if (!reader->oip->has_header && bytes > 0)
        return blasd_fail(err, BLASD_E_invalid_tensor, field,
                          "%s has binary_data_size, but the request has no header "
                          "Inference-Header-Content-Length that tells where the JSON ends",
                          field);
    if (bytes != own)
        return blasd_fail(err, BLASD_E_invalid_tensor, field,
                          "its datatype and shape make %llu bytes, its binary_data_size %llu",
                          (unsigned long long)own, (unsigned long long)bytes);
    return blasd_tensor_writer_begin(&reader->writers[reader->count++], reader->body->inputs->sink,
                                     to, bytes, true, false, err);
}

enum { NAME, SHAPE, DATATYPE, PARAMETERS, DATA };
static const char *const tensor_names[] = {"name", "shape", "datatype", "parameters", "data", NULL};

static int take_elements(struct pass *pass, const struct blasd_json_pick *tensor,
                         struct blasd_named_input *to, const char *field, struct blasd_err *err) {
    const char *data = tensor->at[DATA], *size;
    struct blasd_json_pick parameters;
    int64_t bytes;
    int rc = pick_parameters(pass, tensor->at[PARAMETERS], field, &parameters, err);
    if (rc != 0) return rc;
    size = parameters.at[BINARY_SIZE];
    if (data != NULL && strncmp(data, "null", 4) == 0) {
        if ((rc = blasd_json_member_end(&pass->text, data + 4, err)) != 0) return rc;
        data = NULL;
    }
    if ((data != NULL) + (size != NULL) != 1)
        return blasd_fail(err, BLASD_E_invalid_tensor, field,
                          "%s has %s: give either data or the parameter binary_data_size", field,
                          data == NULL && size == NULL ? "no data" : "its data twice");
    if (data != NULL) return take_data(pass, data, to, field, err);
    if (!read_count(pass, size, &bytes))
        return blasd_fail(err, BLASD_E_invalid_tensor, field, "binary_data_size is not an integer");
    return take_binary(pass, (uint64_t)bytes, to, field, err);
}

/* What the input says of itself. */
static int describe(const struct pass *pass, const struct blasd_json_pick *from, const char *field,
                    struct blasd_tensor *tensor, struct blasd_err *err) {
    char name[BLASD_JSON_WORD], shown[BLASD_SANITIZED_MAX];
    int64_t shape[BLASD_MAX_RANK];
    const char *next;
    int rank, rc;
    if (!read_name(pass, from->at[DATATYPE], name))
        return blasd_fail(err, BLASD_E_invalid_tensor, field,
                          "%s has no datatype, or its datatype is not a string", field);
    if (!blasd_oip_datatype_find(name, &tensor->dtype))
        return blasd_fail(
            err, BLASD_E_unsupported_dtype, field,
            "'%s' is not taken; FP64, FP32, FP16, BF16, INT8 to INT64, UINT8 to UINT64 and BOOL "
            "are",
            blasd_sanitize(shown, name, strlen(name)));
    if (from->at[SHAPE] == NULL)
        return blasd_fail(err, BLASD_E_invalid_tensor, field, "%s has no shape", field);
    rc = blasd_json_lengths(&pass->text, from->at[SHAPE], field, &rank, shape, &next, err);
    if (rc != 0 || (rc = blasd_json_member_end(&pass->text, next, err)) != 0) return rc;
    *tensor = blasd_tensor_make(tensor->dtype, rank, shape);
    return blasd_tensor_check(tensor, field, err);
}

static int read_input(void *arg, const char *p, const char **next, struct blasd_err *err) {
    struct pass *pass = arg;
    struct blasd_json_pick tensor = {.names = tensor_names};
    char name[BLASD_JSON_WORD], field[BLASD_INPUT_FIELD];
    struct blasd_named_input *to;
    int rc;
    if (*p != '{')
        return blasd_json_fail(&pass->text, p, err, "expected '{': an input is an object");
    if ((rc = pick(pass, p, &tensor, NULL, err)) != 0) return rc;
    if (!read_name(pass, tensor.at[NAME], name))
        return blasd_fail(err, BLASD_E_invalid_field, "inputs", "an input has no name");
    /* that it is one of the operation's comes first: as many as it has there is room for */
    rc = blasd_request_fields_input(pass->reader->oip->op, name, err);
    if (rc == 0)
        rc = blasd_named_inputs_add(pass->reader->body->inputs, name, strlen(name), &to, err);
    if (rc != 0) return rc;
    blasd_input_field(field, to->name);
    tensor = (struct blasd_json_pick){.names = tensor_names};
    if ((rc = pick(pass, p, &tensor, field, err)) != 0) return rc;
    rc = describe(pass, &tensor, field, &to->input.tensor, err);
    if (rc == 0) rc = take_elements(pass, &tensor, to, field, err);
    return rc == 0 ? blasd_json_skip(&pass->text, p, next, err) : rc;
}

/* `binary`, which is given, says how the output is asked for. */
static int set_binary(const struct pass *pass, const char *p, bool *binary) {
    const char *next;
    struct blasd_err ignored;
    if ((*p != 't' && *p != 'f') || blasd_json_check(&pass->text, p, 3, &next, &ignored) != 0)
        return -1;
    *binary = *p == 't';
    return 0;
}

static int read_output(void *arg, const char *p, const char **next, struct blasd_err *err) {
    static const char *const names[] = {"name", "parameters", NULL};
    struct pass *pass = arg;
    struct blasd_oip *oip = pass->reader->oip;
    struct blasd_json_pick tensor = {.names = names}, parameters;
    struct blasd_oip_output output = {.binary = oip->binary_outputs};
    char name[BLASD_JSON_WORD], shown[BLASD_SANITIZED_MAX], field[64];
    int rc = *p == '{' ? pick(pass, p, &tensor, NULL, err) : 0;
    if (rc != 0) return rc;
    if (!read_name(pass, tensor.at[0], name))
        return blasd_fail(err, BLASD_E_invalid_field, "outputs", "an output has no name");
    blasd_text_join(field, sizeof field, "outputs.", blasd_sanitize(shown, name, strlen(name)),
                    NULL);
    output.position = blasd_op_output(oip->op, name);
    if (output.position < 0)
        return blasd_fail(err, BLASD_E_invalid_field, field,
                          "%s has no output '%s'; see its metadata", oip->op->name, shown);
    for (int i = 0; i < oip->output_count; i++)
        if (oip->outputs[i].position == output.position)
            return blasd_fail(err, BLASD_E_invalid_field, field, "the output is asked for twice");
    if (tensor.other)
        return blasd_fail(err, BLASD_E_unknown_field, field, "%s has no member '%s'", field,
                          blasd_sanitize(shown, tensor.name, strlen(tensor.name)));
    if ((rc = pick_parameters(pass, tensor.at[1], field, &parameters, err)) != 0) return rc;
    if (parameters.at[CLASSIFICATION] != NULL)
        return blasd_fail(err, BLASD_E_invalid_field, field,
                          "no operation classifies: leave out the parameter classification");
    if (parameters.at[BINARY] != NULL &&
        set_binary(pass, parameters.at[BINARY], &output.binary) != 0)
        return blasd_fail(err, BLASD_E_invalid_field, field, "binary_data is true or false");
    /* no two of them are one output, so there is room */
    oip->outputs[oip->output_count++] = output;
    return blasd_json_skip(&pass->text, p, next, err);
}

/* ---- what is said beside them ---- */

static int note(struct pass *pass, const char *name, const char *text, size_t len,
                struct blasd_err *err) {
    return blasd_request_fields_text(pass->reader->body->fields, BLASD_IN_BODY, name, text, len,
                                     err);
}

/* 0 is the default level, as if none were said, 1 the highest, as that server has it. */
static int take_priority(struct pass *pass, const char *p, struct blasd_err *err) {
    char word[BLASD_JSON_WORD];
    const char *name = word;
    int64_t level;
    if (read_count(pass, p, &level)) {
        if (level == 0) return 0;
        name = blasd_priority_names[level == 1   ? BLASD_PRIORITY_HIGH
                                    : level == 2 ? BLASD_PRIORITY_NORMAL
                                                 : BLASD_PRIORITY_LOW];
    } else if (!read_name(pass, p, word)) {
        return blasd_fail(err, BLASD_E_invalid_field, "parameters.priority",
                          "priority is a level from 1, the highest, or high, normal or low");
    }
    return note(pass, "priority", name, strlen(name), err);
}

/* In microseconds; 0 asks for none. What is later than the answer would come is cut. */
static int take_timeout(struct pass *pass, const char *p, struct blasd_err *err) {
    struct blasd_oip *oip = pass->reader->oip;
    int64_t us;
    if (!read_count(pass, p, &us))
        return blasd_fail(err, BLASD_E_invalid_field, "parameters.timeout",
                          "timeout is a whole number of microseconds");
    if (us > 0 && us / 1000 < oip->wait_ms) oip->wait_ms = (us + 999) / 1000;
    return 0;
}

static int take_labels(struct pass *pass, const char *p, struct blasd_err *err) {
    struct blasd_buf inside;
    int rc = blasd_json_inside(&pass->text, p, &inside, &p, err);
    if (rc == 0) rc = note(pass, "labels", inside.data, inside.len, err);
    blasd_buf_release(&inside);
    return rc;
}

/* The operation's parameters, and what is none at all, are gathered: which there are is told where
 * they are made the job's. */
static int read_parameter(void *arg, const char *quote, const char *name, const char *p,
                          const char **next, struct blasd_err *err) {
    struct pass *pass = arg;
    struct oip_reader *reader = pass->reader;
    bool own = blasd_op_param(reader->oip->op, name) >= 0, labels = strcmp(name, "labels") == 0;
    int rc = blasd_json_check(&pass->text, p, 2, next, err);
    if (rc != 0) return rc;
    if (!own && strcmp(name, "binary_data_output") == 0)
        return set_binary(pass, p, &reader->oip->binary_outputs) == 0
                   ? 0
                   : blasd_fail(err, BLASD_E_invalid_field, "parameters.binary_data_output",
                                "binary_data_output is true or false");
    if (!own && strcmp(name, "priority") == 0) return take_priority(pass, p, err);
    if (!own && strcmp(name, "timeout") == 0) return take_timeout(pass, p, err);
    if (!own && labels && *p == '"') return take_labels(pass, p, err);
    if (!own && (labels || strcmp(name, "device") == 0 || strcmp(name, "notify") == 0 ||
                 strcmp(name, "digest") == 0))
        return blasd_request_fields_json(reader->body->fields, BLASD_IN_BODY, name, &pass->text, p,
                                         next, err);
    if (!own && strncmp(name, "sequence_", 9) == 0)
        return blasd_fail(err, BLASD_E_invalid_field, "parameters",
                          "operations keep no state between requests: leave out sequence_id");
    if (blasd_buf_add(&pass->own, pass->own.len == 0 ? "{" : ",", 1) == 0 &&
        blasd_buf_add(&pass->own, quote, (size_t)(*next - quote)) == 0)
        return 0;
    return blasd_no_memory(err);
}

static int read_parameters(struct pass *pass, const char *p, struct blasd_err *err) {
    int rc;
    if (p == NULL) return 0;
    if (*p != '{')
        return blasd_fail(err, BLASD_E_invalid_field, "parameters", "parameters are no object");
    rc = blasd_json_members(&pass->text, p, read_parameter, pass, &p, err);
    if (rc != 0 || pass->own.len == 0) return rc;
    if (blasd_buf_add(&pass->own, "}", 1) != 0) return blasd_no_memory(err);
    return note(pass, "params", pass->own.data, pass->own.len, err);
}

static int read_id(struct pass *pass, const char *p, struct blasd_err *err) {
    struct blasd_buf id;
    int rc;
    if (p == NULL) return 0;
    if (*p != '"') return blasd_fail(err, BLASD_E_invalid_field, "id", "id is a string");
    rc = blasd_json_inside(&pass->text, p, &id, &p, err);
    pass->reader->oip->id = id.data; /* goes over */
    return rc;
}

/* KServe's client says in the body, too, which model the path names. */
static int check_model(const struct pass *pass, const char *p, struct blasd_err *err) {
    const char *own = pass->reader->oip->op->name;
    char name[BLASD_JSON_WORD];
    if (p == NULL || (read_name(pass, p, name) && strcmp(name, own) == 0)) return 0;
    return blasd_fail(err, BLASD_E_invalid_field, "model_name",
                      "the path names the model %s: leave model_name out, or let it be the same",
                      own);
}

/* A list of tensors; `optional`: it may be missing. */
static int check_list(const char *p, const char *name, bool optional, struct blasd_err *err) {
    if (p == NULL ? optional : *p == '[') return 0;
    return blasd_fail(err, BLASD_E_invalid_field, name, "%s must be a list of objects", name);
}

/* Checks the bytes of the request without its data against the limit. */
static int check_envelope(const struct pass *pass, size_t bytes, struct blasd_err *err) {
    uint64_t most = pass->reader->body->limits->envelope_bytes;
    if (bytes <= most) return 0;
    return blasd_fail(err, BLASD_E_body_too_large, "",
                      "the JSON without its data is larger than %llu bytes, the limit "
                      "envelope_bytes",
                      (unsigned long long)most);
}

/* The object from `p` to `end`. */
static int read_members(struct pass *pass, const char *p, const char *end, struct blasd_err *err) {
    static const char *const names[] = {"id",     "model_name", "parameters",
                                        "inputs", "outputs",    NULL};
    struct blasd_json_pick root = {.names = names};
    const char *inputs, *outputs, *next;
    char ms[BLASD_TEXT_NUMBER];
    int rc = pick(pass, p, &root, "", err);
    inputs = root.at[3];
    outputs = root.at[4];
    if (rc == 0) rc = check_list(inputs, "inputs", false, err);
    if (rc == 0) rc = check_list(outputs, "outputs", true, err);
    if (rc == 0) rc = blasd_json_skip(&pass->text, inputs, &next, err);
    /* before any other member is copied */
    if (rc == 0) rc = check_envelope(pass, (size_t)((end - p) - (next - inputs)), err);
    if (rc == 0) rc = read_id(pass, root.at[0], err);
    if (rc == 0) rc = check_model(pass, root.at[1], err);
    if (rc == 0) rc = read_parameters(pass, root.at[2], err);
    if (rc != 0) return rc;
    /* the job ends before the answer is due */
    rc = note(pass, "deadline_ms", ms, blasd_text_number(ms, (uint64_t)pass->reader->oip->wait_ms),
              err);
    if (rc == 0 && outputs != NULL)
        rc = blasd_json_items(&pass->text, outputs, read_output, pass, &next, err);
    return rc == 0 ? blasd_json_items(&pass->text, inputs, read_input, pass, &next, err) : rc;
}

static int read_all(struct pass *pass, struct blasd_err *err) {
    const struct blasd_json_text *text = &pass->text;
    const char *p = blasd_json_space(text->start), *end;
    int rc;
    if (p == text->end) return blasd_json_fail(text, p, err, "the JSON is empty");
    if (*p != '{') return blasd_json_fail(text, p, err, "expected '{': a request is a JSON object");
    if ((rc = blasd_json_skip(text, p, &end, err)) != 0 ||
        (rc = blasd_json_end(text, end, "the JSON object", err)) != 0 ||
        (rc = read_members(pass, p, end, err)) != 0)
        return rc;
    return check_envelope(pass, (size_t)(end - p) - pass->data_bytes, err);
}

/* The tensors behind the JSON must be what the body still has. */
static int check_tail(const struct oip_reader *reader, struct blasd_err *err) {
    uint64_t most = reader->body->content_length, all = reader->oip->header_bytes;
    for (int i = 0; i < reader->count; i++) all += reader->writers[i].left;
    if (!reader->oip->has_header || most == 0 || all == most) return 0;
    return blasd_fail(err, BLASD_E_invalid_tensor, "inputs",
                      "the JSON and the tensors it describes make %llu bytes, the body has %llu",
                      (unsigned long long)all, (unsigned long long)most);
}

int oip_read_request(struct oip_reader *reader, struct blasd_err *err) {
    struct pass pass = {.reader = reader};
    const char *name = reader->oip->op->name;
    int rc;
    reader->begun = true;
    if ((rc = blasd_body_json_end(reader->body, &reader->text, &pass.text, err)) != 0) return rc;
    blasd_body_buf(reader->body, &pass.own, (size_t)reader->body->limits->envelope_bytes + 2);
    rc = blasd_request_fields_text(reader->body->fields, BLASD_IN_BODY, "op", name, strlen(name),
                                   err);
    if (rc == 0) rc = read_all(&pass, err);
    if (rc == 0) rc = check_tail(reader, err);
    blasd_buf_release(&pass.own);
    blasd_buf_release(&reader->text);
    return rc;
}
