/* The members of a request that are no tensors: gathered, then made into a job. */
#include "wire/envelope.h"

#include "wire/json_text.h"
#include "wire/number.h"
#include "wire/param_read.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum member { OP, PARAMS, PRIORITY, DEADLINE_MS, DEVICE, MEMBERS };
static const char *const members[MEMBERS + 1] = {"op",          "params", "priority",
                                                 "deadline_ms", "device", NULL};
#define PARAM_PREFIX "params."

void blasd_envelope_init(struct blasd_envelope *envelope, const struct blasd_limits *limits) {
    memset(envelope, 0, sizeof *envelope);
    envelope->limits = limits;
    envelope->priority = BLASD_PRIORITY_NORMAL;
}

void blasd_envelope_release(struct blasd_envelope *envelope) {
    json_decref(envelope->params);
    json_decref(envelope->texts);
    envelope->params = envelope->texts = NULL;
}

static int member_of(const char *name) {
    for (int i = 0; i < MEMBERS; i++)
        if (strcmp(members[i], name) == 0) return i;
    return -1;
}

static bool is_param(const char *name) {
    return strncmp(name, PARAM_PREFIX, strlen(PARAM_PREFIX)) == 0;
}

bool blasd_envelope_knows(const char *name) {
    return member_of(name) >= 0 || is_param(name);
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

static int set_priority(struct blasd_envelope *envelope, const char *text, size_t len,
                        struct blasd_err *err) {
    char shown[BLASD_ECHO_MAX];
    for (int i = 0; i < BLASD_PRIORITY_COUNT; i++)
        if (strlen(blasd_priority_names[i]) == len &&
            memcmp(blasd_priority_names[i], text, len) == 0) {
            envelope->priority = (enum blasd_priority)i;
            return 0;
        }
    return blasd_fail(err, BLASD_E_invalid_field, "priority",
                      "priority must be \"high\", \"normal\" or \"low\", not \"%s\"",
                      blasd_echo(shown, text, len));
}

static int set_device(struct blasd_envelope *envelope, const char *text, size_t len,
                      struct blasd_err *err) {
    char shown[BLASD_ECHO_MAX];
    for (int i = 0; i < BLASD_DEVICE_CLASS_COUNT; i++) {
        const char *name = i == BLASD_DEVICE_ANY ? "auto" : blasd_device_class_names[i];
        if (strlen(name) == len && memcmp(name, text, len) == 0) {
            envelope->device = (enum blasd_device_class)i;
            return 0;
        }
    }
    return blasd_fail(err, BLASD_E_invalid_field, "device",
                      "device must be \"auto\", \"cpu\" or \"cuda\", not \"%s\"",
                      blasd_echo(shown, text, len));
}

/* `value` is negative where it was no whole number. */
static int set_deadline(struct blasd_envelope *envelope, int64_t value, struct blasd_err *err) {
    if (value < 1 || (uint64_t)value > envelope->limits->deadline_ms)
        return blasd_fail(err, BLASD_E_invalid_field, "deadline_ms",
                          "deadline_ms must be a whole number of milliseconds from 1 to %llu, the "
                          "limit deadline_ms",
                          (unsigned long long)envelope->limits->deadline_ms);
    envelope->deadline_ms = value;
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
static int set_params(struct blasd_envelope *envelope, json_t *value, struct blasd_err *err) {
    if (!json_is_object(value))
        return blasd_fail(err, BLASD_E_invalid_field, "params",
                          "params must be a JSON object of parameters by name");
    envelope->params = json_incref(value);
    return 0;
}

static int set_params_text(struct blasd_envelope *envelope, enum blasd_place place,
                           const char *text, size_t len, struct blasd_err *err) {
    json_error_t problem;
    json_t *value;
    int rc;
    if (len == 0) return 0; /* a form's field that was left empty */
    value = blasd_json_load(text, len, (int)envelope->limits->json_depth, &problem);
    if (value == NULL)
        return blasd_fail(err,
                          place == BLASD_IN_QUERY ? BLASD_E_malformed_query : BLASD_E_invalid_field,
                          "params", "params is not valid JSON: %.120s", problem.text);
    rc = set_params(envelope, value, err);
    json_decref(value);
    return rc;
}

/* Notes one parameter that came as text under its own name. */
static int add_param_text(struct blasd_envelope *envelope, const char *name, const char *text,
                          size_t len, struct blasd_err *err) {
    char shown[BLASD_ECHO_MAX], field[64];
    json_t *string = json_stringn(text, len);
    snprintf(field, sizeof field, PARAM_PREFIX "%s", blasd_echo(shown, name, strlen(name)));
    if (string == NULL || memchr(text, '\0', len) != NULL) {
        json_decref(string);
        return blasd_fail(err, BLASD_E_invalid_parameter, field, "the value is not UTF-8 text");
    }
    if (envelope->texts == NULL) envelope->texts = json_object();
    if (json_object_get(envelope->texts, name) != NULL) {
        json_decref(string);
        return blasd_fail(err, BLASD_E_invalid_field, field, "the parameter is given twice");
    }
    if (json_object_set_new(envelope->texts, name, string) != 0)
        return blasd_fail(err, BLASD_E_unknown_parameter, field, "this is no parameter's name");
    return 0;
}

static int unknown_member(const char *name, struct blasd_err *err) {
    char shown[BLASD_ECHO_MAX];
    blasd_echo(shown, name, strlen(name));
    for (int i = 0; i < MEMBERS; i++)
        if (blasd_near(name, strlen(name), members[i]))
            return blasd_fail(err, BLASD_E_unknown_field, shown,
                              "a job has no member '%s'; did you mean '%s'?", shown, members[i]);
    if (blasd_near(name, strlen(name), "inputs"))
        return blasd_fail(err, BLASD_E_unknown_field, shown,
                          "a job has no member '%s'; did you mean 'inputs'?", shown);
    return blasd_fail(err, BLASD_E_unknown_field, shown,
                      "a job has no member '%s'; it has op, inputs, params, priority, deadline_ms "
                      "and device",
                      shown);
}

static enum blasd_place *place_of(struct blasd_envelope *envelope, int member) {
    switch (member) {
    case OP: return &envelope->op_in;
    case PARAMS: return &envelope->params_in;
    case PRIORITY: return &envelope->priority_in;
    case DEADLINE_MS: return &envelope->deadline_in;
    default: return &envelope->device_in;
    }
}

int blasd_envelope_text(struct blasd_envelope *envelope, enum blasd_place place, const char *name,
                        const char *text, size_t len, struct blasd_err *err) {
    int member = member_of(name), rc;
    if (is_param(name))
        return add_param_text(envelope, name + strlen(PARAM_PREFIX), text, len, err);
    if (member < 0) return unknown_member(name, err);
    if ((rc = claim(place_of(envelope, member), place, name, err)) != 0) return rc;
    switch (member) {
    case OP: blasd_echo(envelope->op, text, len); return 0;
    case PARAMS: return set_params_text(envelope, place, text, len, err);
    case PRIORITY: return set_priority(envelope, text, len, err);
    case DEADLINE_MS: return set_deadline(envelope, text_to_ms(text, len), err);
    default: return set_device(envelope, text, len, err);
    }
}

int blasd_envelope_value(struct blasd_envelope *envelope, enum blasd_place place, const char *name,
                         json_t *value, struct blasd_err *err) {
    int member = member_of(name), rc;
    if (member < 0) return unknown_member(name, err);
    if (member != PARAMS && member != DEADLINE_MS && !json_is_string(value))
        return blasd_fail(err, BLASD_E_invalid_field, name, "%s must be a string", name);
    if (member != PARAMS && member != DEADLINE_MS)
        return blasd_envelope_text(envelope, place, name, json_string_value(value),
                                   json_string_length(value), err);
    if ((rc = claim(place_of(envelope, member), place, name, err)) != 0) return rc;
    if (member == PARAMS) return set_params(envelope, value, err);
    if (json_is_integer(value)) return set_deadline(envelope, json_integer_value(value), err);
    if (json_is_real(value) && floor(json_real_value(value)) == json_real_value(value) &&
        fabs(json_real_value(value)) <= 0x1p53)
        return set_deadline(envelope, (int64_t)json_real_value(value), err);
    return set_deadline(envelope, -1, err);
}

/* "distance, matmul, regression, solve" */
static void list_ops(char *text, size_t size) {
    size_t len = 0;
    text[0] = '\0';
    for (int i = 0; blasd_ops[i] != NULL && len < size; i++)
        len += (size_t)snprintf(text + len, size - len, "%s%s", i == 0 ? "" : ", ",
                                blasd_ops[i]->name);
}

static int find_op(const struct blasd_envelope *envelope, const struct blasd_op **ret,
                   struct blasd_err *err) {
    char known[160];
    *ret = envelope->op_in == BLASD_IN_NOWHERE ? NULL : blasd_op_find(envelope->op);
    if (*ret != NULL) return 0;
    list_ops(known, sizeof known);
    if (envelope->op_in == BLASD_IN_NOWHERE)
        return blasd_fail(err, BLASD_E_invalid_field, "op",
                          "op is missing: say which operation to run, one of %s", known);
    return blasd_fail(err, BLASD_E_unknown_operation, "op", "'%s' is not among %s", envelope->op,
                      known);
}

static int unknown_param(const struct blasd_op *op, const char *name, struct blasd_err *err) {
    char shown[BLASD_ECHO_MAX], field[64], known[160];
    size_t len = 0;
    snprintf(field, sizeof field, PARAM_PREFIX "%s", blasd_echo(shown, name, strlen(name)));
    for (int i = 0; op->params[i].name != NULL; i++)
        if (blasd_near(name, strlen(name), op->params[i].name))
            return blasd_fail(err, BLASD_E_unknown_parameter, field,
                              "%s has no parameter '%s'; did you mean '%s'?", op->name, shown,
                              op->params[i].name);
    known[0] = '\0';
    for (int i = 0; op->params[i].name != NULL && len < sizeof known; i++)
        len += (size_t)snprintf(known + len, sizeof known - len, "%s%s", i == 0 ? "" : ", ",
                                op->params[i].name);
    if (len == 0) snprintf(known, sizeof known, "none");
    return blasd_fail(err, BLASD_E_unknown_parameter, field, "%s has no parameter '%s'; it has %s",
                      op->name, shown, known);
}

static int fill_params(const struct blasd_envelope *envelope, struct blasd_job *job,
                       struct blasd_err *err) {
    const char *name;
    json_t *value;
    int rc;
    json_object_foreach(envelope->params, name, value) {
        int i = blasd_op_param(job->op, name);
        if (i < 0) return unknown_param(job->op, name, err);
        rc = blasd_param_read_value(&job->op->params[i], value, &job->params[i], err);
        if (rc != 0) return rc;
    }
    json_object_foreach(envelope->texts, name, value) {
        int i = blasd_op_param(job->op, name);
        if (i < 0) return unknown_param(job->op, name, err);
        if (json_object_get(envelope->params, name) != NULL) {
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

static int unknown_input(const struct blasd_op *op, const char *name, struct blasd_err *err) {
    char field[64], known[160];
    size_t len = 0;
    snprintf(field, sizeof field, "inputs.%s", name);
    known[0] = '\0';
    for (int i = 0; op->inputs[i].name != NULL && len < sizeof known; i++)
        len += (size_t)snprintf(known + len, sizeof known - len, "%s%s", i == 0 ? "" : ", ",
                                op->inputs[i].name);
    return blasd_fail(err, BLASD_E_unknown_input, field, "%s has no input '%s'; it has %s",
                      op->name, name, known);
}

static int fill_inputs(const struct blasd_arrivals *arrivals, struct blasd_job *job,
                       struct blasd_err *err) {
    for (int n = 0; n < arrivals->count; n++) {
        const struct blasd_arrival *item = &arrivals->items[n];
        int i = blasd_op_input(job->op, item->name);
        if (i < 0) return unknown_input(job->op, item->name, err);
        job->inputs[i] = item->input;
    }
    return 0;
}

int blasd_envelope_job(const struct blasd_envelope *envelope, const struct blasd_arrivals *arrivals,
                       struct blasd_job *job, struct blasd_err *err) {
    const struct blasd_op *op;
    int rc;
    if ((rc = find_op(envelope, &op, err)) != 0) return rc;
    blasd_job_init(job, op);
    job->priority = envelope->priority;
    job->device = envelope->device;
    job->deadline_ms = envelope->deadline_ms;
    if ((rc = fill_params(envelope, job, err)) != 0) return rc;
    return fill_inputs(arrivals, job, err);
}
