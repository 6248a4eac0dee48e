/* The members of a request that are no tensors: gathered, then made into a job. */
#include "wire/request_fields.h"

#include "base/text.h"
#include "wire/param_read.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum member {
    OP,
    PARAMS,
    PRIORITY,
    DEADLINE_MS,
    DEVICE,
    LABELS,
    KEEP,
    RESULTS,
    NOTIFY,
    DIGEST,
    MEMBERS
};
_Static_assert(MEMBERS == BLASD_REQUEST_FIELDS, "a place for each");
static const char *const members[MEMBERS] = {"op",     "params", "priority", "deadline_ms",
                                             "device", "labels", "keep",     "results",
                                             "notify", "digest"};
#define PARAM_PREFIX "params."
#define REMOVED "put" /* a member of earlier versions */

void blasd_request_fields_init(struct blasd_request_fields *fields,
                               const struct blasd_limits *limits) {
    memset(fields, 0, sizeof *fields);
    fields->limits = limits;
    fields->priority = BLASD_PRIORITY_NORMAL;
}

void blasd_request_fields_release(struct blasd_request_fields *fields) {
    free(fields->notify);
    fields->notify = NULL;
    blasd_buf_release(&fields->params);
    blasd_buf_release(&fields->texts);
    blasd_buf_release(&fields->keep);
    blasd_buf_release(&fields->sent);
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
                      "outputs are not sent to URLs: ask with notify for a webhook, and then "
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

static int64_t to_ms(const char *text, const char *end) {
    int64_t ms;
    return blasd_json_whole(text, end, &ms) ? ms : -1;
}

/* The same where nothing follows it. */
static int64_t to_ms_all(const char *text, const char *end) {
    double number;
    return blasd_number_read(text, end, &number) == end ? to_ms(text, end) : -1;
}

/* Notes params as an object, which goes from `p` to `end`. */
static int set_params(struct blasd_request_fields *fields, const char *p, const char *end,
                      struct blasd_err *err) {
    struct blasd_json_text text;
    if (*p != '{')
        return blasd_fail(err, BLASD_E_invalid_field, "params",
                          "params must be a JSON object of parameters by name");
    if (*blasd_json_space(p + 1) == '}') return 0;
    return blasd_json_hold(&fields->params, p, (size_t)(end - p), (int)fields->limits->json_depth,
                           &text, err);
}

/* A member that is read: what it is of, and of what text. */
struct member_of_json {
    struct blasd_request_fields *fields;
    const struct blasd_json_text *text;
    struct blasd_buf *names;
    int member;
};

static int add_label(void *arg, const char *quote, const char *name, const char *value,
                     const char **next, struct blasd_err *err) {
    const struct member_of_json *of = arg;
    struct blasd_label label = {.name = name, .name_len = strlen(name)};
    struct blasd_buf inside;
    int rc;
    (void)quote;
    if (*value != '"')
        return blasd_fail(err, BLASD_E_invalid_field, "labels",
                          "the value of a label must be a string");
    rc = blasd_json_inside(of->text, value, &inside, next, err);
    label.value = inside.data;
    label.value_len = inside.len;
    if (rc == 0) rc = blasd_labels_add(of->fields->labels, &label, err);
    blasd_buf_release(&inside);
    return rc;
}

static int set_labels(struct member_of_json *of, const char *p, struct blasd_err *err) {
    const char *next;
    if (*p == '{') return blasd_json_members(of->text, p, add_label, of, &next, err);
    return blasd_fail(err, BLASD_E_invalid_field, "labels",
                      "labels must be an object of strings by name");
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

/* Checks a JSON text that is a member's; *p is where it begins. */
static int check_text(const struct blasd_json_text *text, enum blasd_place place, const char *name,
                      const char **p, struct blasd_err *err) {
    struct blasd_err why;
    const char *end;
    *p = blasd_json_space(text->start);
    if (blasd_json_check(text, *p, 0, &end, &why) == 0 &&
        blasd_json_end(text, end, "the value", &why) == 0)
        return 0;
    return blasd_fail(err,
                      place == BLASD_IN_QUERY ? BLASD_E_malformed_query : BLASD_E_invalid_field,
                      name, "%s is not valid JSON: %.120s", name, why.detail);
}

static int set_digest(struct blasd_request_fields *fields, const char *text, size_t len,
                      struct blasd_err *err) {
    static const char *const names[] = {"false", "true"};
    int value = among(names, 2, text, len);
    if (value < 0)
        return blasd_fail(err, BLASD_E_invalid_field, "digest", "digest must be true or false");
    fields->digest = value == 1;
    return 0;
}

static int set_params_text(struct blasd_request_fields *fields, enum blasd_place place,
                           const char *text, size_t len, struct blasd_err *err) {
    struct blasd_json_text json;
    struct blasd_buf copy;
    const char *p;
    int rc;
    if (len == 0) return 0; /* a form's field that was left empty */
    rc = blasd_json_hold(&copy, text, len, (int)fields->limits->json_depth, &json, err);
    if (rc == 0) rc = check_text(&json, place, "params", &p, err);
    if (rc == 0) rc = set_params(fields, p, json.end, err);
    blasd_buf_release(&copy);
    return rc;
}

static int bad_names(int member, struct blasd_err *err) {
    return blasd_fail(err, BLASD_E_invalid_field, members[member],
                      "%s must be a list of the names of outputs", members[member]);
}

static int add_name(struct blasd_buf *names, const char *name, size_t len, struct blasd_err *err) {
    if (blasd_buf_add(names, name, len) == 0 && blasd_buf_add(names, "", 1) == 0) return 0;
    return blasd_no_memory(err);
}

static int read_name(void *arg, const char *value, const char **next, struct blasd_err *err) {
    const struct member_of_json *of = arg;
    char word[BLASD_JSON_WORD];
    int rc;
    if (*value != '"') return bad_names(of->member, err);
    rc = blasd_json_word(of->text, value, word, next, err);
    return rc == 0 ? add_name(of->names, word, strlen(word), err) : rc;
}

/* Where the names of the member go. */
static struct blasd_buf *names_of(struct blasd_request_fields *fields, int member) {
    struct blasd_buf *names = member == KEEP ? &fields->keep : &fields->sent;
    blasd_buf_init(names, (size_t)fields->limits->envelope_bytes);
    return names;
}

/* Notes a list of outputs' names. */
static int set_names(struct member_of_json *of, const char *p, struct blasd_err *err) {
    const char *next;
    of->names = names_of(of->fields, of->member);
    return *p == '[' ? blasd_json_items(of->text, p, read_name, of, &next, err)
                     : bad_names(of->member, err);
}

/* The same as text: a JSON list, or names with commas between them. */
static int set_names_text(struct blasd_request_fields *fields, enum blasd_place place, int member,
                          const char *text, size_t len, struct blasd_err *err) {
    struct member_of_json of = {.fields = fields, .member = member};
    struct blasd_json_text json;
    struct blasd_buf *names, copy;
    const char *p;
    int rc = 0;
    if (len > 0 && text[0] == '[') {
        of.text = &json;
        rc = blasd_json_hold(&copy, text, len, (int)fields->limits->json_depth, &json, err);
        if (rc == 0 && check_text(&json, place, members[member], &p, err) != 0)
            rc = bad_names(member, err);
        if (rc == 0) rc = set_names(&of, p, err);
        blasd_buf_release(&copy);
        return rc;
    }
    if (!blasd_utf8_text(text, len)) return bad_names(member, err);
    names = names_of(fields, member);
    for (size_t at = 0, n; rc == 0 && at < len; at += n + 1) {
        const char *comma = memchr(text + at, ',', len - at);
        n = comma == NULL ? len - at : (size_t)(comma - text) - at;
        rc = add_name(names, text + at, n, err);
    }
    return rc;
}

/* Steps through texts with a zero behind each. */
static const char *next_text(const struct blasd_buf *texts, size_t *at) {
    const char *text = texts->data + *at;
    if (*at >= texts->len) return NULL;
    *at += strlen(text) + 1;
    return text;
}

/* Notes one parameter that came as text under its own name. */
static int add_param_text(struct blasd_request_fields *fields, const char *name, const char *text,
                          size_t len, struct blasd_err *err) {
    char shown[BLASD_SANITIZED_MAX], field[64];
    const char *had;
    int rc;
    snprintf(field, sizeof field, PARAM_PREFIX "%s", blasd_sanitize(shown, name, strlen(name)));
    if (!blasd_utf8_text(text, len))
        return blasd_fail(err, BLASD_E_invalid_parameter, field, "the value is not UTF-8 text");
    for (size_t at = 0; (had = next_text(&fields->texts, &at)) != NULL;
         next_text(&fields->texts, &at))
        if (strcmp(had, name) == 0)
            return blasd_fail(err, BLASD_E_invalid_field, field, "the parameter is given twice");
    if (fields->texts.max == 0)
        blasd_buf_init(&fields->texts, (size_t)fields->limits->envelope_bytes * 2);
    rc = add_name(&fields->texts, name, strlen(name), err);
    return rc == 0 ? add_name(&fields->texts, text, len, err) : rc;
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
                                      "results",     "notify", "digest", NULL};
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
    struct blasd_json_text json;
    struct blasd_buf *to = strcmp(name, "steps") == 0 ? &fields->steps : &fields->results;
    if (to->len > 0) return blasd_fail(err, BLASD_E_invalid_field, name, "%s is given twice", name);
    return blasd_json_hold(to, text, len, (int)fields->limits->json_depth, &json, err);
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
    if (fields->graph &&
        (member == OP || member == PARAMS || member == KEEP || member == DIGEST || is_param(name)))
        return unknown_member(fields, name, err);
    if (is_param(name)) return add_param_text(fields, name + strlen(PARAM_PREFIX), text, len, err);
    if (member < 0) return unknown_member(fields, name, err);
    if ((rc = claim(&fields->given_in[member], place, name, err)) != 0) return rc;
    switch (member) {
    case OP: blasd_sanitize(fields->op, text, len); return 0;
    case PARAMS: return set_params_text(fields, place, text, len, err);
    case PRIORITY: return set_priority(fields, text, len, err);
    case DEADLINE_MS: return set_deadline(fields, to_ms_all(text, text + len), err);
    case KEEP:
    case RESULTS: return set_names_text(fields, place, member, text, len, err);
    case NOTIFY: return set_notify(fields, text, len, err);
    case DIGEST: return set_digest(fields, text, len, err);
    case LABELS: return blasd_labels_read(fields->labels, text, len, err);
    default: return set_device(fields, text, len, err);
    }
}

/* Notes a member that is no string. */
static int note_json(struct member_of_json *of, const char *p, const char *end,
                     struct blasd_err *err) {
    switch (of->member) {
    case KEEP:
    case RESULTS: return set_names(of, p, err);
    case PARAMS: return set_params(of->fields, p, end, err);
    case LABELS: return set_labels(of, p, err);
    default: return set_deadline(of->fields, to_ms(p, end), err);
    }
}

int blasd_request_fields_json(struct blasd_request_fields *fields, enum blasd_place place,
                              const char *name, const struct blasd_json_text *text, const char *p,
                              const char **next, struct blasd_err *err) {
    struct member_of_json of = {.fields = fields, .text = text, .member = member_of(name)};
    int member = of.member, rc;
    bool names = member == KEEP || member == RESULTS;
    bool string = !names && member != PARAMS && member != DEADLINE_MS && member != LABELS;
    struct blasd_buf inside;
    if (string && member >= 0 && blasd_json_plain(p, text->end, next))
        return blasd_request_fields_text(fields, place, name, p + 1, (size_t)(*next - p) - 2, err);
    if ((rc = blasd_json_check(text, p, 1, next, err)) != 0) return rc;
    if (member < 0 ||
        (fields->graph && (member == OP || member == PARAMS || member == DIGEST || names)))
        return unknown_member(fields, name, err);
    if (!string) {
        rc = claim(&fields->given_in[member], place, name, err);
        return rc == 0 ? note_json(&of, p, *next, err) : rc;
    }
    if (member == DIGEST && (*p == 't' || *p == 'f'))
        return blasd_request_fields_text(fields, place, name, p, (size_t)(*next - p), err);
    if (*p != '"') return blasd_fail(err, BLASD_E_invalid_field, name, "%s must be a string", name);
    rc = blasd_json_inside(text, p, &inside, next, err);
    if (rc == 0) rc = blasd_request_fields_text(fields, place, name, inside.data, inside.len, err);
    blasd_buf_release(&inside);
    return rc;
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

/* Parameters that are made a job's. */
struct filling {
    const struct blasd_json_text *text;
    struct blasd_job *job;
    uint32_t given; /* a bit for each that was in params */
};

static int fill_param(void *arg, const char *quote, const char *name, const char *value,
                      const char **next, struct blasd_err *err) {
    struct filling *filling = arg;
    struct blasd_job *job = filling->job;
    int i = blasd_op_param(job->op, name);
    (void)quote;
    if (i < 0) return unknown_param(job->op, name, err);
    if ((filling->given >> i & 1) != 0)
        return blasd_fail(err, BLASD_E_malformed_json, "", "params has a duplicate of %s", name);
    filling->given |= UINT32_C(1) << i;
    return blasd_param_read_json(&job->op->params[i], filling->text, value, &job->params[i], next,
                                 err);
}

static int fill_params(const struct blasd_request_fields *fields, struct blasd_job *job,
                       struct blasd_err *err) {
    const struct blasd_buf *params = &fields->params;
    const struct blasd_json_text text = {params->data, params->data + params->len,
                                         (int)fields->limits->json_depth};
    struct filling filling = {.text = &text, .job = job};
    const char *name, *value, *next;
    int rc = 0;
    if (params->len > 0)
        rc = blasd_json_members(&text, text.start, fill_param, &filling, &next, err);
    for (size_t at = 0; rc == 0 && (name = next_text(&fields->texts, &at)) != NULL;) {
        int i = blasd_op_param(job->op, name);
        value = next_text(&fields->texts, &at);
        if (i < 0) return unknown_param(job->op, name, err);
        if ((filling.given >> i & 1) != 0) {
            char field[64];
            snprintf(field, sizeof field, PARAM_PREFIX "%s", job->op->params[i].name);
            return blasd_fail(err, BLASD_E_invalid_field, field,
                              "the parameter is given twice, in params and by itself");
        }
        rc = blasd_param_read_text(&job->op->params[i], value, &job->params[i], err);
    }
    return rc;
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
    if (fields->labels[0] == '\0' && !fields->digest) return 0;
    if (blasd_job_extras(job) == NULL) return blasd_no_memory(err);
    memcpy(job->extras->labels, fields->labels, sizeof job->extras->labels);
    job->extras->digest = fields->digest;
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

/* The outputs that are named, as bits. */
static int find_outputs(const struct blasd_op *op, const char *member,
                        const struct blasd_buf *names, uint64_t *bits, struct blasd_err *err) {
    const char *name;
    int rc = 0;
    for (size_t at = 0; rc == 0 && (name = next_text(names, &at)) != NULL;)
        rc = find_output(op, member, name, bits, err);
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
    rc = find_outputs(job->op, "keep", &fields->keep, &keeping->keep, err);
    if (rc == 0) rc = find_outputs(job->op, "results", &fields->sent, &sent, err);
    keeping->withhold = fields->given_in[RESULTS] != BLASD_IN_NOWHERE ? ~sent : keeping->keep;
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
    if ((fields->given_in[KEEP] != BLASD_IN_NOWHERE ||
         fields->given_in[RESULTS] != BLASD_IN_NOWHERE) &&
        (rc = fill_keeping(fields, job, err)) != 0)
        return rc;
    return fill_inputs(inputs, job, err);
}
