/* The members of a request that are no tensors: gathered, then made into a job. */
#include "wire/request_fields.h"

#include "wire/json_text.h"
#include "wire/number.h"
#include "wire/param_read.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum member { OP, PARAMS, PRIORITY, DEADLINE_MS, DEVICE, LABELS, KEEP, RESULTS, NOTIFY, MEMBERS };
_Static_assert(MEMBERS == BLASD_REQUEST_FIELDS, "a place for each");
static const char *const members[MEMBERS] = {
    "op", "params", "priority", "deadline_ms", "device", "labels", "keep", "results", "notify"};
#define PARAM_PREFIX "params."
#define REMOVED "put" /* a member of earlier versions */

void blasd_request_fields_init(struct blasd_request_fields *fields,
                               const struct blasd_limits *limits) {
    memset(fields, 0, sizeof *fields);
    fields->limits = limits;
    fields->priority = BLASD_PRIORITY_NORMAL;
}

void blasd_request_fields_release(struct blasd_request_fields *fields) {
    json_decref(fields->params);
    json_decref(fields->texts);
    json_decref(fields->keep);
    json_decref(fields->sent);
    free(fields->notify);
    fields->notify = NULL;
    fields->params = fields->texts = fields->keep = fields->sent = NULL;
    blasd_buf_release(&fields->steps);
    blasd_buf_release(&fields->results);
}

/* Which of the `count` names the text is, or -1. */
static int among(const char *const *names, int count, const char *text, size_t len) {
    for (int i = 0; i < count; i++)
        if (strlen(names[i]) == len && memcmp(names[i], text, len) == 0) return i;
    return -1;
}

static int member_of(const char *name) {
    return among(members, MEMBERS, name, strlen(name));
}

static bool is_param(const char *name) {
    return strncmp(name, PARAM_PREFIX, strlen(PARAM_PREFIX)) == 0;
}

bool blasd_request_fields_of_graph(const char *name) {
    return strcmp(name, "steps") == 0 || strcmp(name, "results") == 0;
}

bool blasd_request_fields_knows(const struct blasd_request_fields *fields, const char *name) {
    return member_of(name) >= 0 || is_param(name) || strcmp(name, REMOVED) == 0 ||
           (fields->graph && blasd_request_fields_of_graph(name));
}

bool blasd_request_fields_given(const struct blasd_request_fields *fields, const char *name) {
    int member = member_of(name);
    return member >= 0 && fields->given_in[member] == BLASD_IN_BODY;
}

int blasd_request_fields_removed(const char *name, struct blasd_err *err) {
    if (strcmp(name, REMOVED) != 0) return 0;
    return blasd_fail(err, BLASD_E_feature_removed, REMOVED,
                      "outputs are no longer put to URLs: ask with notify for a webhook, and then "
                      "fetch each output with GET /jobs/ID/outputs/NAME");
}

/* Marks a member as given; an error where it was given before. */
static int claim(enum blasd_place *in, enum blasd_place place, const char *name,
                 struct blasd_err *err) {
    if (*in != BLASD_IN_NOWHERE)
        return blasd_fail(err, BLASD_E_invalid_field, name, "%s is given twice%s", name,
                          *in != place ? ", in the URL's query and in the body" : "");
    *in = place;
    return 0;
}

static int set_priority(struct blasd_request_fields *fields, const char *text, size_t len,
                        struct blasd_err *err) {
    char shown[BLASD_SANITIZED_MAX];
    int priority = among(blasd_priority_names, BLASD_PRIORITY_COUNT, text, len);
    if (priority < 0)
        return blasd_fail(err, BLASD_E_invalid_field, "priority",
                          "priority must be \"high\", \"normal\" or \"low\", not \"%s\"",
                          blasd_sanitize(shown, text, len));
    fields->priority = (enum blasd_priority)priority;
    return 0;
}

static int set_device(struct blasd_request_fields *fields, const char *text, size_t len,
                      struct blasd_err *err) {
    static const char *const names[] = {
        [BLASD_DEVICE_ANY] = "auto", [BLASD_DEVICE_CPU] = "cpu", [BLASD_DEVICE_CUDA] = "cuda"};
    char shown[BLASD_SANITIZED_MAX];
    int device = among(names, BLASD_DEVICE_CLASS_COUNT, text, len);
    if (device < 0)
        return blasd_fail(err, BLASD_E_invalid_field, "device",
                          "device must be \"auto\", \"cpu\" or \"cuda\", not \"%s\"",
                          blasd_sanitize(shown, text, len));
    fields->device = (enum blasd_device_class)device;
    return 0;
}

/* `value` is negative where it was no whole number. */
static int set_deadline(struct blasd_request_fields *fields, int64_t value, struct blasd_err *err) {
    if (value < 1 || (uint64_t)value > fields->limits->deadline_ms)
        return blasd_fail(err, BLASD_E_invalid_field, "deadline_ms",
                          "deadline_ms must be a whole number of milliseconds from 1 to %llu, the "
                          "limit deadline_ms",
                          (unsigned long long)fields->limits->deadline_ms);
    fields->deadline_ms = value;
    return 0;
}

static int64_t text_to_ms(const char *text, size_t len) {
    const char *next;
    uint64_t magnitude;
    bool negative;
    if (blasd_number_read_int(text, text + len, &next, &magnitude, &negative) != BLASD_INT_OK ||
        next != text + len || negative || magnitude > (uint64_t)INT64_MAX)
        return -1;
    return (int64_t)magnitude;
}

/* Notes params as an object (borrowed). */
static int set_params(struct blasd_request_fields *fields, json_t *value, struct blasd_err *err) {
    if (!json_is_object(value))
        return blasd_fail(err, BLASD_E_invalid_field, "params",
                          "params must be a JSON object of parameters by name");
    fields->params = json_incref(value);
    return 0;
}

static int set_labels(struct blasd_request_fields *fields, json_t *value, struct blasd_err *err) {
    const char *name;
    json_t *text;
    int rc = 0;
    if (!json_is_object(value))
        return blasd_fail(err, BLASD_E_invalid_field, "labels",
                          "labels must be an object of strings by name");
    json_object_foreach(value, name, text) {
        struct blasd_label label = {.name = name, .name_len = strlen(name)};
        if (!json_is_string(text))
            return blasd_fail(err, BLASD_E_invalid_field, "labels",
                              "the value of a label must be a string");
        label.value = json_string_value(text);
        label.value_len = json_string_length(text);
        if ((rc = blasd_labels_add(fields->labels, &label, err)) != 0) return rc;
    }
    return rc;
}

/* What it leads to is looked at by who knows where it may. */
static int set_notify(struct blasd_request_fields *fields, const char *text, size_t len,
                      struct blasd_err *err) {
    if (memchr(text, '\0', len) != NULL)
        return blasd_fail(err, BLASD_E_invalid_field, "notify", "notify must be a URL");
    fields->notify = strndup(text, len);
    if (fields->notify != NULL) return 0;
    return blasd_no_memory(err);
}

static int set_params_text(struct blasd_request_fields *fields, enum blasd_place place,
                           const char *text, size_t len, struct blasd_err *err) {
    json_error_t problem;
    json_t *value;
    int rc;
    if (len == 0) return 0; /* a form's field that was left empty */
    value = blasd_json_load(text, len, (int)fields->limits->json_depth, &problem);
    if (value == NULL)
        return blasd_fail(err,
                          place == BLASD_IN_QUERY ? BLASD_E_malformed_query : BLASD_E_invalid_field,
                          "params", "params is not valid JSON: %.120s", problem.text);
    rc = set_params(fields, value, err);
    json_decref(value);
    return rc;
}

/* Notes a list of outputs' names (borrowed). */
static int set_names(struct blasd_request_fields *fields, int member, json_t *value,
                     struct blasd_err *err) {
    json_t *name;
    size_t i;
    bool good = json_is_array(value);
    json_array_foreach(value, i, name) good = good && json_is_string(name);
    if (!good)
        return blasd_fail(err, BLASD_E_invalid_field, members[member],
                          "%s must be a list of the names of outputs", members[member]);
    *(member == KEEP ? &fields->keep : &fields->sent) = json_incref(value);
    return 0;
}

/* The same as text: a JSON list, or names with commas between them. */
static int set_names_text(struct blasd_request_fields *fields, int member, const char *text,
                          size_t len, struct blasd_err *err) {
    json_error_t problem;
    json_t *value;
    bool good = true; /* a name that is no UTF-8 is none */
    int rc;
    if (len > 0 && text[0] == '[') {
        value = blasd_json_load(text, len, (int)fields->limits->json_depth, &problem);
    } else {
        value = json_array();
        for (size_t at = 0, n; at < len; at += n + 1) {
            const char *comma = memchr(text + at, ',', len - at);
            n = comma == NULL ? len - at : (size_t)(comma - text) - at;
            good = json_array_append_new(value, json_stringn(text + at, n)) == 0 && good;
        }
    }
    rc = set_names(fields, member, good ? value : NULL, err);
    json_decref(value);
    return rc;
}

/* Notes one parameter that came as text under its own name. */
static int add_param_text(struct blasd_request_fields *fields, const char *name, const char *text,
                          size_t len, struct blasd_err *err) {
    char shown[BLASD_SANITIZED_MAX], field[64];
    json_t *string = json_stringn(text, len);
    snprintf(field, sizeof field, PARAM_PREFIX "%s", blasd_sanitize(shown, name, strlen(name)));
    if (string == NULL || memchr(text, '\0', len) != NULL) {
        json_decref(string);
        return blasd_fail(err, BLASD_E_invalid_parameter, field, "the value is not UTF-8 text");
    }
    if (fields->texts == NULL) fields->texts = json_object();
    if (json_object_get(fields->texts, name) != NULL) {
        json_decref(string);
        return blasd_fail(err, BLASD_E_invalid_field, field, "the parameter is given twice");
    }
    if (json_object_set_new(fields->texts, name, string) != 0)
        return blasd_fail(err, BLASD_E_unknown_parameter, field, "this is no parameter's name");
    return 0;
}

/* A name that is none of those known: which was likely meant, or else which there are. */
static int unknown_name(enum blasd_code code, const char *prefix, const char *owner,
                        const char *kind, const char *name, const char *const *known,
                        struct blasd_err *err) {
    char shown[BLASD_SANITIZED_MAX], field[64], list[160] = "none";
    size_t len = 0;
    blasd_sanitize(shown, name, strlen(name));
    snprintf(field, sizeof field, "%s%s", prefix, shown);
    for (int i = 0; known[i] != NULL; i++) {
        if (blasd_similar(name, strlen(name), known[i]))
            return blasd_fail(err, code, field, "%s has no %s '%s'; did you mean '%s'?", owner,
                              kind, shown, known[i]);
        if (len < sizeof list)
            len += (size_t)snprintf(list + len, sizeof list - len, "%s%s", i == 0 ? "" : ", ",
                                    known[i]);
    }
    return blasd_fail(err, code, field, "%s has no %s '%s'; it has %s", owner, kind, shown, list);
}

static int unknown_member(const struct blasd_request_fields *fields, const char *name,
                          struct blasd_err *err) {
    static const char *const job[] = {"op",          "inputs", "params", "priority",
                                      "deadline_ms", "device", "labels", "keep",
                                      "results",     "notify", NULL};
    static const char *const graph[] = {"steps",  "results", "inputs", "priority", "deadline_ms",
                                        "device", "labels",  "notify", NULL};
    int rc = blasd_request_fields_removed(name, err);
    if (rc != 0) return rc;
    return unknown_name(BLASD_E_unknown_field, "", fields->graph ? "a graph" : "a job", "member",
                        name, fields->graph ? graph : job, err);
}

/* Keeps the JSON text of a member that only graphs have. */
static int keep_text(struct blasd_request_fields *fields, const char *name, const char *text,
                     size_t len, struct blasd_err *err) {
    struct blasd_buf *to = strcmp(name, "steps") == 0 ? &fields->steps : &fields->results;
    if (to->len > 0) return blasd_fail(err, BLASD_E_invalid_field, name, "%s is given twice", name);
    blasd_buf_init(to, len + BLASD_JSON_SLACK);
    if (blasd_buf_reserve(to, len + BLASD_JSON_SLACK) != 0 || blasd_buf_add(to, text, len) != 0 ||
        blasd_buf_add(to, (const char[BLASD_JSON_SLACK]){0}, BLASD_JSON_SLACK) != 0)
        return blasd_no_memory(err);
    return 0;
}

static int unknown_param(const struct blasd_op *op, const char *name, struct blasd_err *err) {
    const char *known[BLASD_MAX_PARAMS + 1] = {NULL};
    for (int i = 0; op->params[i].name != NULL; i++) known[i] = op->params[i].name;
    return unknown_name(BLASD_E_unknown_parameter, PARAM_PREFIX, op->name, "parameter", name, known,
                        err);
}

int blasd_request_fields_input(const struct blasd_op *op, const char *name, struct blasd_err *err) {
    const char *known[BLASD_MAX_INPUTS + 1] = {NULL};
    if (blasd_op_input(op, name) >= 0) return 0;
    for (int i = 0; op->inputs[i].name != NULL; i++) known[i] = op->inputs[i].name;
    return unknown_name(BLASD_E_unknown_input, "inputs.", op->name, "input", name, known, err);
}

int blasd_request_fields_text(struct blasd_request_fields *fields, enum blasd_place place,
                              const char *name, const char *text, size_t len,
                              struct blasd_err *err) {
    int member = member_of(name), rc;
    if (fields->graph && blasd_request_fields_of_graph(name))
        return keep_text(fields, name, text, len, err);
    if (fields->graph && (member == OP || member == PARAMS || member == KEEP || is_param(name)))
        return unknown_member(fields, name, err);
    if (is_param(name)) return add_param_text(fields, name + strlen(PARAM_PREFIX), text, len, err);
    if (member < 0) return unknown_member(fields, name, err);
    if ((rc = claim(&fields->given_in[member], place, name, err)) != 0) return rc;
    switch (member) {
    case OP: blasd_sanitize(fields->op, text, len); return 0;
    case PARAMS: return set_params_text(fields, place, text, len, err);
    case PRIORITY: return set_priority(fields, text, len, err);
    case DEADLINE_MS: return set_deadline(fields, text_to_ms(text, len), err);
    case KEEP:
    case RESULTS: return set_names_text(fields, member, text, len, err);
    case NOTIFY: return set_notify(fields, text, len, err);
    case LABELS: return blasd_labels_read(fields->labels, text, len, err);
    default: return set_device(fields, text, len, err);
    }
}

int blasd_request_fields_value(struct blasd_request_fields *fields, enum blasd_place place,
                               const char *name, json_t *value, struct blasd_err *err) {
    int member = member_of(name), rc;
    bool names = member == KEEP || member == RESULTS;
    bool text = !names && member != PARAMS && member != DEADLINE_MS && member != LABELS;
    if (member < 0 || (fields->graph && (member == OP || member == PARAMS || names)))
        return unknown_member(fields, name, err);
    if (text && !json_is_string(value))
        return blasd_fail(err, BLASD_E_invalid_field, name, "%s must be a string", name);
    if (text)
        return blasd_request_fields_text(fields, place, name, json_string_value(value),
                                         json_string_length(value), err);
    if ((rc = claim(&fields->given_in[member], place, name, err)) != 0) return rc;
    if (names) return set_names(fields, member, value, err);
    if (member == PARAMS) return set_params(fields, value, err);
    if (member == LABELS) return set_labels(fields, value, err);
    if (json_is_integer(value)) return set_deadline(fields, json_integer_value(value), err);
    if (json_is_real(value) && floor(json_real_value(value)) == json_real_value(value) &&
        fabs(json_real_value(value)) <= 0x1p53)
        return set_deadline(fields, (int64_t)json_real_value(value), err);
    return set_deadline(fields, -1, err);
}

static int find_op(const struct blasd_request_fields *fields, const struct blasd_op **ret,
                   struct blasd_err *err) {
    char known[160];
    *ret = fields->given_in[OP] == BLASD_IN_NOWHERE ? NULL : blasd_op_find(fields->op);
    if (*ret != NULL && !(*ret)->composed) return 0;
    blasd_op_names(false, known, sizeof known);
    if (fields->given_in[OP] == BLASD_IN_NOWHERE)
        return blasd_fail(err, BLASD_E_missing_field, "op",
                          "op is missing: say which operation to run, one of %s", known);
    return blasd_fail(err, BLASD_E_unknown_operation, "op", "'%s' is not among %s", fields->op,
                      known);
}

static int fill_params(const struct blasd_request_fields *fields, struct blasd_job *job,
                       struct blasd_err *err) {
    const char *name;
    json_t *value;
    int rc;
    json_object_foreach(fields->params, name, value) {
        int i = blasd_op_param(job->op, name);
        if (i < 0) return unknown_param(job->op, name, err);
        rc = blasd_param_read_value(&job->op->params[i], value, &job->params[i], err);
        if (rc != 0) return rc;
    }
    json_object_foreach(fields->texts, name, value) {
        int i = blasd_op_param(job->op, name);
        if (i < 0) return unknown_param(job->op, name, err);
        if (json_object_get(fields->params, name) != NULL) {
            char field[64];
            snprintf(field, sizeof field, PARAM_PREFIX "%s", job->op->params[i].name);
            return blasd_fail(err, BLASD_E_invalid_field, field,
                              "the parameter is given twice, in params and by itself");
        }
        rc = blasd_param_read_text(&job->op->params[i], json_string_value(value), &job->params[i],
                                   err);
        if (rc != 0) return rc;
    }
    return 0;
}

static int fill_inputs(struct blasd_named_inputs *inputs, struct blasd_job *job,
                       struct blasd_err *err) {
    for (int n = 0; n < inputs->count; n++) {
        struct blasd_named_input *item = &inputs->items[n];
        int i = blasd_op_input(job->op, item->name);
        if (i < 0) return blasd_request_fields_input(job->op, item->name, err);
        job->inputs[i] = item->input;
        item->input.reference = NULL;
    }
    return 0;
}

int blasd_request_fields_note(const struct blasd_request_fields *fields, struct blasd_job *job,
                              struct blasd_err *err) {
    job->priority = fields->priority;
    job->device = fields->device;
    job->deadline_ms = fields->deadline_ms;
    if (fields->labels[0] == '\0') return 0;
    if (blasd_job_extras(job) == NULL) return blasd_no_memory(err);
    memcpy(job->extras->labels, fields->labels, sizeof job->extras->labels);
    return 0;
}

/* The output that a member names, as a bit. */
static int find_output(const struct blasd_op *op, const char *member, const char *name,
                       uint64_t *bits, struct blasd_err *err) {
    const char *known[BLASD_MAX_OUTPUTS + 1] = {NULL};
    int i = blasd_op_output(op, name);
    char prefix[16];
    if (i >= 0) {
        *bits |= UINT64_C(1) << i;
        return 0;
    }
    for (int n = 0; op->outputs[n].name != NULL; n++) known[n] = op->outputs[n].name;
    snprintf(prefix, sizeof prefix, "%s.", member);
    return unknown_name(BLASD_E_unknown_output, prefix, op->name, "output", name, known, err);
}

/* The outputs that a list names, as bits. */
static int find_outputs(const struct blasd_op *op, const char *member, json_t *list, uint64_t *bits,
                        struct blasd_err *err) {
    json_t *name;
    size_t n;
    int rc = 0;
    json_array_foreach(list, n, name) if (rc == 0) rc =
        find_output(op, member, json_string_value(name), bits, err);
    return rc;
}

/* What is kept is not sent, nor what is not among the results, where these are given. */
static int fill_keeping(const struct blasd_request_fields *fields, struct blasd_job *job,
                        struct blasd_err *err) {
    struct blasd_extras *extras = blasd_job_extras(job);
    struct blasd_keeping *keeping = &extras->keeping;
    uint64_t sent = 0;
    int rc;
    if (extras == NULL) return blasd_no_memory(err);
    rc = find_outputs(job->op, "keep", fields->keep, &keeping->keep, err);
    if (rc == 0) rc = find_outputs(job->op, "results", fields->sent, &sent, err);
    keeping->withhold = fields->sent != NULL ? ~sent : keeping->keep;
    return rc;
}

int blasd_request_fields_job(const struct blasd_request_fields *fields,
                             struct blasd_named_inputs *inputs, struct blasd_job *job,
                             struct blasd_err *err) {
    const struct blasd_op *op;
    int rc;
    if ((rc = find_op(fields, &op, err)) != 0) return rc;
    blasd_job_init(job, op);
    if ((rc = blasd_request_fields_note(fields, job, err)) != 0) return rc;
    if ((rc = fill_params(fields, job, err)) != 0) return rc;
    if ((fields->keep != NULL || fields->sent != NULL) &&
        (rc = fill_keeping(fields, job, err)) != 0)
        return rc;
    return fill_inputs(inputs, job, err);
}
