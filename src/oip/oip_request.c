/* The JSON of an inference request, read in two steps: the values of "data" are left where they
 * are, and what remains, a short text, goes to jansson. Then each input is known by its datatype
 * and shape before its elements are read, in whatever order its members came: from the JSON without
 * a node for a number, or from the bytes behind it as they arrive. */
#include "oip/oip_parts.h"

#include "base/text.h"
#include "wire/json_list.h"
#include "wire/sanitize.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The JSON while it is read: where the data are, and the rest. */
struct pass {
    struct oip_reader *reader;
    struct blasd_json_text text;
    struct blasd_buf rest;
    const char *resume; /* where the next copy into the rest begins */
    int count;
    const char *data[BLASD_NAMED_INPUTS_MAX], *end[BLASD_NAMED_INPUTS_MAX];
};

/* --- the first step: the data are cut out ------------------------------------------------------
 */

static int keep(struct pass *pass, const char *bytes, size_t len, struct blasd_err *err) {
    if (blasd_buf_add(&pass->rest, bytes, len) == 0) return 0;
    if (blasd_buf_fits(&pass->rest, len)) return blasd_no_memory(err);
    return blasd_fail(err, BLASD_E_body_too_large, "",
                      "the JSON without its data is larger than %llu bytes, the limit "
                      "envelope_bytes",
                      (unsigned long long)pass->reader->body->limits->envelope_bytes);
}

/* In the place of the data stands their number; null is none. */
static int cut_member(void *arg, const char *quote, const char *name, const char *value,
                      const char **next, struct blasd_err *err) {
    struct pass *pass = arg;
    char number[BLASD_TEXT_NUMBER];
    int rc = blasd_json_skip(&pass->text, value, next, err);
    (void)quote;
    if (rc != 0 || strcmp(name, "data") != 0 || *value == 'n') return rc;
    if (pass->count == BLASD_NAMED_INPUTS_MAX)
        return blasd_fail(err, BLASD_E_unknown_input, "inputs",
                          "these are more than %d tensors, and no operation takes more than %d",
                          BLASD_NAMED_INPUTS_MAX, BLASD_MAX_INPUTS);
    pass->data[pass->count] = value;
    pass->end[pass->count] = *next;
    rc = keep(pass, pass->resume, (size_t)(value - pass->resume), err);
    if (rc == 0) rc = keep(pass, number, blasd_text_number(number, (uint64_t)pass->count), err);
    pass->resume = *next;
    pass->count++;
    return rc;
}

/* `p` is the bracket of the list of inputs. */
static int cut_inputs(struct pass *pass, const char *p, const char **next, struct blasd_err *err) {
    int rc;
    p = blasd_json_space(p + 1);
    while (*p != ']') {
        if (*p != '{')
            return blasd_json_fail(&pass->text, p, err, "expected '{': an input is an object");
        if ((rc = blasd_json_members(&pass->text, p, cut_member, pass, &p, err)) != 0) return rc;
        p = blasd_json_space(p);
        if (*p == ']') break;
        if (*p != ',') return blasd_json_fail(&pass->text, p, err, "expected ',' or ']'");
        p = blasd_json_space(p + 1);
    }
    *next = p + 1;
    return 0;
}

static int cut_request(void *arg, const char *quote, const char *name, const char *value,
                       const char **next, struct blasd_err *err) {
    struct pass *pass = arg;
    (void)quote;
    if (strcmp(name, "inputs") == 0 && *value == '[') return cut_inputs(pass, value, next, err);
    return blasd_json_skip(&pass->text, value, next, err);
}

static int cut(struct pass *pass, struct blasd_err *err) {
    const char *p = blasd_json_space(pass->text.start);
    int rc;
    if (p == pass->text.end) return blasd_json_fail(&pass->text, p, err, "the JSON is empty");
    if (*p != '{')
        return blasd_json_fail(&pass->text, p, err, "expected '{': a request is a JSON object");
    pass->resume = p;
    if ((rc = blasd_json_members(&pass->text, p, cut_request, pass, &p, err)) != 0) return rc;
    if ((rc = keep(pass, pass->resume, (size_t)(p - pass->resume), err)) != 0) return rc;
    p = blasd_json_space(p);
    if (p != pass->text.end)
        return blasd_json_fail(&pass->text, p, err, "something follows the JSON object");
    return 0;
}

/* --- the second step: what is asked for --------------------------------------------------------
 */

#define WHOLE_MOST 9007199254740992.0 /* 2^53 */

/* A whole number from 0; false where it is none. Beside a number beyond 64 bits, wherever that
 * stands, all of them come as reals (blasd_json_load). */
static bool read_whole(const json_t *value, int64_t *ret) {
    double real = json_real_value(value);
    if (json_is_real(value) && real >= 0 && real <= WHOLE_MOST && floor(real) == real) {
        *ret = (int64_t)real;
        return true;
    }
    if (!json_is_integer(value) || json_integer_value(value) < 0) return false;
    *ret = json_integer_value(value);
    return true;
}

/* A count of bytes among the parameters of a tensor; false where it is there and is none. */
static bool read_bytes(const json_t *parameters, const char *name, uint64_t *ret) {
    const json_t *value = json_object_get(parameters, name);
    int64_t bytes = 0;
    if (value != NULL && !read_whole(value, &bytes)) return false;
    *ret = (uint64_t)bytes;
    return true;
}

/* Rejects the parameters of shared memory, which were served once. */
static int check_no_region(const json_t *parameters, const char *field, struct blasd_err *err) {
    if (json_object_get(parameters, "shared_memory_region") == NULL) return 0;
    return blasd_fail(err, BLASD_E_invalid_field, field,
                      "regions of shared memory are not taken: send the tensor in binary "
                      "(binary_data_size), or POST /jobs with the header Body-File");
}

static int read_shape(const json_t *value, const char *field, struct blasd_tensor *tensor,
                      struct blasd_err *err) {
    size_t rank = json_array_size(value);
    int64_t shape[BLASD_MAX_RANK];
    if (!json_is_array(value))
        return blasd_fail(err, BLASD_E_invalid_tensor, field, "%s has no list as its shape", field);
    if (rank > BLASD_MAX_RANK)
        return blasd_fail(err, BLASD_E_invalid_tensor, field,
                          "its shape has %zu lengths; at most %d are taken", rank, BLASD_MAX_RANK);
    for (size_t i = 0; i < rank; i++) {
        if (!read_whole(json_array_get(value, i), &shape[i]))
            return blasd_fail(err, BLASD_E_invalid_tensor, field,
                              "length %zu of its shape is no whole number from 0", i);
    }
    *tensor = blasd_tensor_make(tensor->dtype, (int)rank, shape);
    return blasd_tensor_check(tensor, field, err);
}

static int read_datatype(const json_t *value, const char *field, enum blasd_dtype *ret,
                         struct blasd_err *err) {
    const char *name = json_string_value(value);
    char shown[BLASD_SANITIZED_MAX];
    if (name == NULL)
        return blasd_fail(err, BLASD_E_invalid_tensor, field,
                          "%s has no datatype, or one that is no string", field);
    if (blasd_oip_datatype_find(name, ret)) return 0;
    return blasd_fail(err, BLASD_E_unsupported_dtype, field,
                      "'%s' is not taken; FP64, FP32, FP16, BF16, INT8 to INT64, UINT8 to UINT64 "
                      "and BOOL are",
                      blasd_sanitize(shown, name, strlen(name)));
}

/* The elements of `to`, which stand in the JSON. */
static int take_data(struct pass *pass, const json_t *number, struct blasd_named_input *to,
                     const char *field, struct blasd_err *err) {
    struct blasd_json_shape found;
    const char *end;
    int64_t i;
    int rc;
    if (!read_whole(number, &i) || i >= pass->count)
        return blasd_fail(err, BLASD_E_invalid_tensor, field, "the data of %s cannot be told",
                          field);
    rc = blasd_json_list(&pass->text, pass->data[i], false, pass->reader->body->inputs->sink, to,
                         &found, &end, err);
    if (rc != 0) return rc;
    if (blasd_json_space(end) != blasd_json_space(pass->end[i]))
        return blasd_json_fail(&pass->text, end, err, "expected ',' or '}'");
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

static int check_members(const json_t *object, const char *const *known, const char *owner,
                         struct blasd_err *err) {
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)object, name, value) {
        char shown[BLASD_SANITIZED_MAX], field[64];
        int i = 0;
        while (known[i] != NULL && strcmp(known[i], name) != 0) i++;
        if (known[i] != NULL) continue;
        blasd_sanitize(shown, name, strlen(name));
        snprintf(field, sizeof field, "%.24s%s%.32s", owner, owner[0] == '\0' ? "" : ".", shown);
        return blasd_fail(err, BLASD_E_unknown_field, field, "%s has no member '%s'",
                          owner[0] == '\0' ? "a request" : owner, shown);
    }
    return 0;
}

/* The name of a tensor, or NULL where it has none that is text. */
static const char *name_of(const json_t *tensor) {
    const json_t *name = json_object_get(tensor, "name");
    if (!json_is_string(name) || strlen(json_string_value(name)) != json_string_length(name))
        return NULL;
    return json_string_value(name);
}

/* The parameters of a tensor, or NULL; an error where they are no object. */
static int parameters_of(const json_t *tensor, const char *field, const json_t **ret,
                         struct blasd_err *err) {
    *ret = json_object_get(tensor, "parameters");
    if (*ret == NULL || json_is_object(*ret)) return 0;
    return blasd_fail(err, BLASD_E_invalid_field, field, "the parameters of %s are no object",
                      field);
}

static int take_elements(struct pass *pass, const json_t *tensor, struct blasd_named_input *to,
                         const char *field, struct blasd_err *err) {
    const json_t *data = json_object_get(tensor, "data"), *parameters, *size;
    uint64_t bytes = 0;
    int rc = parameters_of(tensor, field, &parameters, err);
    if (rc != 0) return rc;
    if ((rc = check_no_region(parameters, field, err)) != 0) return rc;
    if (json_is_null(data)) data = NULL;
    size = json_object_get(parameters, "binary_data_size");
    if ((data != NULL) + (size != NULL) != 1)
        return blasd_fail(err, BLASD_E_invalid_tensor, field,
                          "%s has %s: give either data or the parameter binary_data_size", field,
                          data == NULL && size == NULL ? "no data" : "its data twice");
    if (data != NULL) return take_data(pass, data, to, field, err);
    if (!read_bytes(parameters, "binary_data_size", &bytes))
        return blasd_fail(err, BLASD_E_invalid_tensor, field,
                          "binary_data_size is no whole number of bytes");
    return take_binary(pass, bytes, to, field, err);
}

static int read_input(struct pass *pass, const json_t *tensor, struct blasd_err *err) {
    static const char *const known[] = {"name", "shape", "datatype", "parameters", "data", NULL};
    const struct blasd_oip *oip = pass->reader->oip;
    const char *name = name_of(tensor);
    struct blasd_named_input *to;
    char field[64];
    int rc;
    if (name == NULL)
        return blasd_fail(err, BLASD_E_invalid_field, "inputs", "an input has no name");
    /* that it is one of the operation's comes first: as many as it has there is room for */
    rc = blasd_request_fields_input(oip->op, name, err);
    if (rc == 0)
        rc = blasd_named_inputs_add(pass->reader->body->inputs, name, strlen(name), &to, err);
    if (rc != 0) return rc;
    blasd_text_join(field, sizeof field, "inputs.", to->name, NULL);
    if ((rc = check_members(tensor, known, field, err)) != 0) return rc;
    rc = read_datatype(json_object_get(tensor, "datatype"), field, &to->input.tensor.dtype, err);
    if (rc != 0) return rc;
    rc = read_shape(json_object_get(tensor, "shape"), field, &to->input.tensor, err);
    return rc != 0 ? rc : take_elements(pass, tensor, to, field, err);
}

static int read_output(struct blasd_oip *oip, const json_t *tensor, struct blasd_err *err) {
    static const char *const known[] = {"name", "parameters", NULL};
    struct blasd_oip_output output;
    const char *name = name_of(tensor);
    const json_t *parameters, *binary;
    char shown[BLASD_SANITIZED_MAX], field[64];
    int rc;
    if (name == NULL)
        return blasd_fail(err, BLASD_E_invalid_field, "outputs", "an output has no name");
    blasd_text_join(field, sizeof field, "outputs.", blasd_sanitize(shown, name, strlen(name)),
                    NULL);
    output = (struct blasd_oip_output){.position = blasd_op_output(oip->op, name)};
    if (output.position < 0)
        return blasd_fail(err, BLASD_E_invalid_field, field,
                          "%s has no output '%s'; see its metadata", oip->op->name, shown);
    for (int i = 0; i < oip->output_count; i++)
        if (oip->outputs[i].position == output.position)
            return blasd_fail(err, BLASD_E_invalid_field, field, "the output is asked for twice");
    if ((rc = check_members(tensor, known, field, err)) != 0) return rc;
    if ((rc = parameters_of(tensor, field, &parameters, err)) != 0) return rc;
    if (json_object_get(parameters, "classification") != NULL)
        return blasd_fail(err, BLASD_E_invalid_field, field,
                          "no operation classifies: leave out the parameter classification");
    binary = json_object_get(parameters, "binary_data");
    if (binary != NULL && !json_is_boolean(binary))
        return blasd_fail(err, BLASD_E_invalid_field, field, "binary_data is true or false");
    output.binary = binary == NULL ? oip->binary_outputs : json_is_true(binary);
    if ((rc = check_no_region(parameters, field, err)) != 0) return rc;
    /* no two of them are one output, so there is room */
    oip->outputs[oip->output_count++] = output;
    return 0;
}

/* 0 is the default level, as if none were said, 1 the highest, as that server has it. */
static int take_priority(struct oip_reader *reader, json_t *value, struct blasd_err *err) {
    const char *name = json_string_value(value);
    int64_t level;
    if (read_whole(value, &level)) {
        if (level == 0) return 0;
        name = blasd_priority_names[level == 1   ? BLASD_PRIORITY_HIGH
                                    : level == 2 ? BLASD_PRIORITY_NORMAL
                                                 : BLASD_PRIORITY_LOW];
    }
    if (name == NULL)
        return blasd_fail(err, BLASD_E_invalid_field, "parameters.priority",
                          "priority is a level from 1, the highest, or high, normal or low");
    return blasd_request_fields_text(reader->body->fields, BLASD_IN_BODY, "priority", name,
                                     strlen(name), err);
}

/* In microseconds; 0 asks for none. What is later than the answer would come is cut. */
static int take_timeout(struct oip_reader *reader, const json_t *value, struct blasd_err *err) {
    int64_t us;
    if (!read_whole(value, &us))
        return blasd_fail(err, BLASD_E_invalid_field, "parameters.timeout",
                          "timeout is a whole number of microseconds");
    if (us > 0 && us / 1000 < reader->oip->wait_ms) reader->oip->wait_ms = (us + 999) / 1000;
    return 0;
}

/* What the request says beside its tensors: the operation's parameters are gathered in `own`. */
static int read_parameter(struct oip_reader *reader, const char *name, json_t *value, json_t *own,
                          struct blasd_err *err) {
    if (blasd_op_param(reader->oip->op, name) >= 0)
        return json_object_set(own, name, value) == 0 ? 0 : blasd_no_memory(err);
    if (strcmp(name, "binary_data_output") == 0) {
        if (!json_is_boolean(value))
            return blasd_fail(err, BLASD_E_invalid_field, "parameters.binary_data_output",
                              "binary_data_output is true or false");
        reader->oip->binary_outputs = json_is_true(value);
        return 0;
    }
    if (strcmp(name, "priority") == 0) return take_priority(reader, value, err);
    if (strcmp(name, "timeout") == 0) return take_timeout(reader, value, err);
    if (strcmp(name, "labels") == 0 && json_is_string(value))
        return blasd_request_fields_text(reader->body->fields, BLASD_IN_BODY, name,
                                         json_string_value(value), json_string_length(value), err);
    if (strcmp(name, "device") == 0 || strcmp(name, "labels") == 0 || strcmp(name, "notify") == 0)
        return blasd_request_fields_value(reader->body->fields, BLASD_IN_BODY, name, value, err);
    if (strncmp(name, "sequence_", 9) == 0)
        return blasd_fail(err, BLASD_E_invalid_field, "parameters",
                          "operations keep no state between requests: leave out sequence_id");
    /* which there are is told where they are made the job's */
    return json_object_set(own, name, value) == 0 ? 0 : blasd_no_memory(err);
}

static int read_parameters(struct oip_reader *reader, json_t *parameters, struct blasd_err *err) {
    json_t *own, *value;
    const char *name;
    int rc = 0;
    if (parameters == NULL) return 0;
    if (!json_is_object(parameters))
        return blasd_fail(err, BLASD_E_invalid_field, "parameters", "parameters are no object");
    if ((own = json_object()) == NULL) return blasd_no_memory(err);
    json_object_foreach(parameters, name, value) if (rc == 0) rc =
        read_parameter(reader, name, value, own, err);
    if (rc == 0)
        rc = blasd_request_fields_value(reader->body->fields, BLASD_IN_BODY, "params", own, err);
    json_decref(own);
    return rc;
}

static int read_id(struct blasd_oip *oip, const json_t *id, struct blasd_err *err) {
    if (id == NULL) return 0;
    if (!json_is_string(id) || strlen(json_string_value(id)) != json_string_length(id))
        return blasd_fail(err, BLASD_E_invalid_field, "id", "id is a string");
    oip->id = strdup(json_string_value(id));
    return oip->id != NULL ? 0 : blasd_no_memory(err);
}

/* KServe's client says in the body, too, which model the path names. */
static int check_model(const struct blasd_oip *oip, const json_t *model, struct blasd_err *err) {
    const char *name = json_string_value(model), *own = oip->op->name;
    if (model == NULL || (name != NULL && strcmp(name, own) == 0)) return 0;
    return blasd_fail(err, BLASD_E_invalid_field, "model_name",
                      "the path names the model %s: leave model_name out, or let it be the same",
                      own);
}

/* A list of tensors; `optional`: it may be missing. */
static int check_list(const json_t *list, const char *name, bool optional, struct blasd_err *err) {
    if ((list == NULL && optional) || json_is_array(list)) return 0;
    return blasd_fail(err, BLASD_E_invalid_field, name, "%s must be a list of objects", name);
}

/* Has the job end before the answer is due. */
static int set_deadline(struct oip_reader *reader, struct blasd_err *err) {
    json_t *ms = json_integer((json_int_t)reader->oip->wait_ms);
    int rc = ms == NULL ? blasd_no_memory(err)
                        : blasd_request_fields_value(reader->body->fields, BLASD_IN_BODY,
                                                     "deadline_ms", ms, err);
    json_decref(ms);
    return rc;
}

static int read_members(struct pass *pass, json_t *root, struct blasd_err *err) {
    static const char *const known[] = {"id",     "model_name", "parameters",
                                        "inputs", "outputs",    NULL};
    struct oip_reader *reader = pass->reader;
    struct blasd_oip *oip = reader->oip;
    json_t *inputs = json_object_get(root, "inputs"), *outputs = json_object_get(root, "outputs");
    json_t *one;
    size_t i;
    int rc = check_members(root, known, "", err);
    if (rc == 0) rc = check_list(inputs, "inputs", false, err);
    if (rc == 0) rc = check_list(outputs, "outputs", true, err);
    if (rc == 0) rc = read_id(oip, json_object_get(root, "id"), err);
    if (rc == 0) rc = check_model(oip, json_object_get(root, "model_name"), err);
    if (rc == 0) rc = read_parameters(reader, json_object_get(root, "parameters"), err);
    if (rc == 0) rc = set_deadline(reader, err);
    json_array_foreach(outputs, i, one) if (rc == 0) rc = read_output(oip, one, err);
    json_array_foreach(inputs, i, one) if (rc == 0) rc = read_input(pass, one, err);
    return rc;
}

static int read_rest(struct pass *pass, struct blasd_err *err) {
    const struct blasd_limits *limits = pass->reader->body->limits;
    json_error_t problem;
    json_t *root =
        blasd_json_load(pass->rest.data, pass->rest.len, (int)limits->json_depth, &problem);
    int rc;
    if (root == NULL)
        return blasd_fail(err, BLASD_E_malformed_json, "",
                          "byte %d of the JSON, not counting its data: %.140s",
                          problem.position > 0 ? problem.position : 0, problem.text);
    rc = read_members(pass, root, err);
    json_decref(root);
    return rc;
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
    blasd_body_buf(reader->body, &pass.rest, (size_t)reader->body->limits->envelope_bytes);
    rc = blasd_request_fields_text(reader->body->fields, BLASD_IN_BODY, "op", name, strlen(name),
                                   err);
    if (rc == 0) rc = cut(&pass, err);
    if (rc == 0) rc = read_rest(&pass, err);
    if (rc == 0) rc = check_tail(reader, err);
    blasd_buf_release(&pass.rest);
    blasd_buf_release(&reader->text);
    return rc;
}
