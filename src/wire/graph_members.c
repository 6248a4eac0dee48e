/* The JSON of a graph's steps and results. Read next: graph_in.c. */
#include "wire/graph_parts.h"

#include "base/text.h"
#include "wire/json_tensor.h"
#include "wire/reference_in.h"
#include "wire/remote_in.h"

#include <stdlib.h>
#include <string.h>

static struct graph_reference *add_reference(struct graph_references *list, struct blasd_err *err) {
    if (list->count == list->room) {
        int room = list->room == 0 ? 16 : list->room * 2;
        struct graph_reference *grown = realloc(list->items, (size_t)room * sizeof *grown);
        if (grown == NULL) {
            blasd_no_memory(err);
            return NULL;
        }
        list->items = grown;
        list->room = room;
    }
    list->items[list->count] = (struct graph_reference){.input = false};
    return &list->items[list->count++];
}

/* ---- one step ---- */

/* One step while it is read. */
struct reading {
    struct blasd_graph_in *graph;
    const struct blasd_json_text *text;
    struct blasd_request_fields fields;
    struct blasd_named_inputs inputs;
    bool has_inputs;
    struct graph_reference *reference; /* the one that is being read */
    struct blasd_named_input *to;      /* the input that it is of */
    bool of_graph;                     /* what is looked at names a step, or an input */
    bool sliced, typed;
};

/* Which part of a step's output is meant, or its dtype. */
static int read_part(struct reading *reading, bool slice, const char *value, const char **next,
                     struct blasd_err *err) {
    bool *was = slice ? &reading->sliced : &reading->typed;
    char field[BLASD_INPUT_FIELD];
    blasd_input_field(field, reading->to->name);
    if (*was)
        return blasd_fail(err, BLASD_E_invalid_reference, field,
                          "the reference has a member twice");
    *was = true;
    return (slice ? blasd_reference_slice : blasd_reference_dtype)(reading->text, value,
                                                                   reading->to, field, next, err);
}

static int read_reference_member(void *arg, const char *quote, const char *name, const char *value,
                                 const char **next, struct blasd_err *err) {
    struct reading *reading = arg;
    struct graph_reference *to = reading->reference;
    bool output = strcmp(name, "output") == 0, slice = strcmp(name, "slice") == 0;
    char shown[BLASD_SANITIZED_MAX];
    (void)quote;
    if (slice || strcmp(name, "dtype") == 0) return read_part(reading, slice, value, next, err);
    if (!output && strcmp(name, "step") != 0 && strcmp(name, "input") != 0)
        return blasd_fail(err, BLASD_E_invalid_tensor, "",
                          "a reference has step and output, and may have slice and dtype, or it "
                          "has input, and no '%s'",
                          blasd_sanitize(shown, name, strlen(name)));
    if (*value != '"')
        return blasd_fail(err, BLASD_E_invalid_tensor, "", "%s must be a name in double quotes",
                          name);
    if ((output ? to->output : to->name)[0] != '\0')
        return blasd_fail(err, BLASD_E_invalid_tensor, "",
                          "a reference names one step, or one input");
    if (!output) to->input = name[0] == 'i';
    if (output && value[1] == '"')
        return blasd_fail(err, BLASD_E_unknown_output, "", "no output has an empty name");
    return blasd_json_word(reading->text, value, output ? to->output : to->name, next, err);
}

/* Stops at what tells; elements, which may be many, are none of the graph's references. */
static int find_kind(void *arg, const char *quote, const char *name, const char *value,
                     const char **next, struct blasd_err *err) {
    struct reading *reading = arg;
    (void)quote;
    reading->of_graph = strcmp(name, "step") == 0 || strcmp(name, "input") == 0;
    if (reading->of_graph || strcmp(name, "data") == 0 || strcmp(name, "base64") == 0) return -1;
    return blasd_json_skip(reading->text, value, next, err);
}

/* Whether the value is an object that refers to a step, or to an input of the graph. */
static bool is_reference(struct reading *reading, const char *value) {
    struct blasd_err ignored;
    reading->of_graph = false;
    if (*value == '{')
        (void)blasd_json_members(reading->text, value, find_kind, reading, &value, &ignored);
    return reading->of_graph;
}

static int check_reference(const struct reading *reading, struct blasd_err *err) {
    const struct graph_reference *to = reading->reference;
    if (to->name[0] == '\0' || (to->input && to->output[0] != '\0'))
        return blasd_fail(err, BLASD_E_invalid_tensor, "",
                          "a reference is {\"step\":NAME,\"output\":NAME} or {\"input\":NAME}");
    if (to->input && (reading->sliced || reading->typed))
        return blasd_fail(err, BLASD_E_invalid_reference, "",
                          "inputs of the graph take no slice or dtype: those go with a step, a "
                          "tensor or an output of a job");
    return 0;
}

static int read_reference(struct reading *reading, const char *value, struct blasd_named_input *to,
                          const char **next, struct blasd_err *err) {
    int rc;
    reading->to = to;
    reading->sliced = reading->typed = false;
    reading->reference = add_reference(&reading->graph->references, err);
    if (reading->reference == NULL) return -(int)BLASD_E_no_space;
    rc = blasd_json_members(reading->text, value, read_reference_member, reading, next, err);
    if (rc == 0) rc = check_reference(reading, err);
    if (rc != 0) {
        if (err->field[0] == '\0')
            blasd_text_join(err->field, sizeof err->field, "inputs.", to->name, NULL);
        return rc;
    }
    to->input.source = (struct blasd_source){.kind = BLASD_SOURCE_STEP,
                                             .step = reading->graph->references.count - 1};
    return 0;
}

static int read_input(void *arg, const char *quote, const char *name, const char *value,
                      const char **next, struct blasd_err *err) {
    struct reading *reading = arg;
    struct blasd_named_input *to;
    int rc = blasd_named_inputs_add(&reading->inputs, name, strlen(name), &to, err);
    (void)quote;
    if (rc != 0) return rc;
    if (is_reference(reading, value)) return read_reference(reading, value, to, next, err);
    rc = blasd_json_tensor(reading->text, value, reading->graph->sink, to, next, err);
    if (rc == 0 && to->remote != NULL)
        return blasd_fail(err, BLASD_E_invalid_reference, "",
                          "a step has no input by URL: put it among the inputs of the graph, and "
                          "name it here with {\"input\":NAME}");
    return rc;
}

static int read_inputs(struct reading *reading, const char *value, const char **next,
                       struct blasd_err *err) {
    if (reading->has_inputs || *value != '{')
        return blasd_fail(err, BLASD_E_invalid_field, "inputs",
                          reading->has_inputs ? "inputs is there twice"
                                              : "inputs must be an object of tensors by name");
    reading->has_inputs = true;
    return blasd_json_members(reading->text, value, read_input, reading, next, err);
}

static int read_step_member(void *arg, const char *quote, const char *name, const char *value,
                            const char **next, struct blasd_err *err) {
    struct reading *reading = arg;
    char shown[BLASD_SANITIZED_MAX];
    (void)quote;
    if (strcmp(name, "inputs") == 0) return read_inputs(reading, value, next, err);
    if (strcmp(name, "op") == 0 || strcmp(name, "params") == 0)
        return blasd_request_fields_json(&reading->fields, BLASD_IN_BODY, name, reading->text,
                                         value, next, err);
    return blasd_fail(err, BLASD_E_unknown_field, blasd_sanitize(shown, name, strlen(name)),
                      "a step has op, inputs and params; priority, deadline_ms and device are the "
                      "whole graph's");
}

static int read_job(struct blasd_graph_in *graph, const struct blasd_json_text *text,
                    const char *value, const char **next, struct blasd_job *job,
                    struct blasd_err *err) {
    struct reading reading = {.graph = graph, .text = text};
    int rc;
    blasd_request_fields_init(&reading.fields, graph->limits);
    reading.inputs.sink = graph->sink;
    if (*value == '{')
        rc = blasd_json_members(text, value, read_step_member, &reading, next, err);
    else
        rc = blasd_fail(err, BLASD_E_invalid_field, "",
                        "a step is an object with op, inputs and params");
    if (rc == 0) rc = blasd_request_fields_job(&reading.fields, &reading.inputs, job, err);
    blasd_request_fields_release(&reading.fields);
    blasd_named_inputs_release(&reading.inputs);
    return rc;
}

/* ---- the members of the graph ---- */

static bool is_step_name(const char *name) {
    size_t len = strlen(name);
    return len > 0 && len < BLASD_NAME_MAX &&
           strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") == len;
}

struct members {
    struct blasd_graph_in *graph;
    const struct blasd_json_text *text;
};

static int read_step(void *arg, const char *quote, const char *name, const char *value,
                     const char **next, struct blasd_err *err) {
    struct members *members = arg;
    struct blasd_graph_in *graph = members->graph;
    struct blasd_graph_step *step;
    char shown[BLASD_SANITIZED_MAX];
    int rc;
    (void)quote;
    if (!is_step_name(name))
        return blasd_fail(
            err, BLASD_E_invalid_field, "steps",
            "'%s' is not a valid name for a step: use 1 to %d letters, digits, _ and -",
            blasd_sanitize(shown, name, strlen(name)), BLASD_NAME_MAX - 1);
    if ((uint64_t)graph->graph.step_count >= graph->limits->graph_steps)
        return blasd_fail(err, BLASD_E_graph_too_large, "steps",
                          "a graph may have %llu steps (limit graph_steps)",
                          (unsigned long long)graph->limits->graph_steps);
    if ((step = blasd_graph_add(&graph->graph)) == NULL) return blasd_no_memory(err);
    memcpy(step->name, name, strlen(name) + 1);
    rc = read_job(graph, members->text, value, next, &step->job, err);
    if (rc != 0) blasd_graph_blame(name, err);
    return rc;
}

/* "STEP" or "STEP.OUTPUT" */
static int read_result(void *arg, const char *p, const char **next, struct blasd_err *err) {
    const struct members *members = arg;
    struct blasd_graph_in *graph = members->graph;
    struct graph_reference *to;
    char *dot;
    if (*p != '"')
        return blasd_fail(err, BLASD_E_invalid_field, "results",
                          "results must be a list of names, \"STEP\" or \"STEP.OUTPUT\"");
    if ((uint64_t)graph->results.count >= graph->limits->graph_results)
        return blasd_fail(err, BLASD_E_graph_too_large, "results",
                          "a graph may have %llu results (limit graph_results)",
                          (unsigned long long)graph->limits->graph_results);
    if ((to = add_reference(&graph->results, err)) == NULL) return -(int)BLASD_E_no_space;
    if (blasd_json_word(members->text, p, to->name, next, err) != 0) return -(int)err->code;
    dot = strchr(to->name, '.');
    if (dot == NULL) return 0;
    if (dot[1] == '\0')
        return blasd_fail(err, BLASD_E_unknown_output, "results", "no output has an empty name");
    *dot = '\0';
    blasd_text_join(to->output, sizeof to->output, dot + 1, NULL, NULL);
    return 0;
}

static int read_results(struct members *members, const char *p, const char **next,
                        struct blasd_err *err) {
    if (*p == '[') return blasd_json_items(members->text, p, read_result, members, next, err);
    return blasd_fail(err, BLASD_E_invalid_field, "results",
                      "results must be a list of names, \"STEP\" or \"STEP.OUTPUT\"");
}

int blasd_graph_in_member(struct blasd_graph_in *graph, const struct blasd_json_text *text,
                          const char *name, const char *value, const char **next,
                          struct blasd_err *err) {
    struct members members = {graph, text};
    bool steps = strcmp(name, "steps") == 0, *has = steps ? &graph->has_steps : &graph->has_results;
    if (*has) return blasd_fail(err, BLASD_E_invalid_field, name, "%s is given twice", name);
    *has = true;
    if (!steps) return read_results(&members, value, next, err);
    if (*value != '{')
        return blasd_fail(err, BLASD_E_invalid_field, name,
                          "steps must be an object of steps by name");
    return blasd_json_members(text, value, read_step, &members, next, err);
}

int graph_in_text(struct blasd_graph_in *graph, const char *name, const struct blasd_buf *from,
                  struct blasd_err *err) {
    struct blasd_json_text text = {from->data, from->data + from->len,
                                   (int)graph->limits->json_depth};
    const char *end;
    int rc;
    if (from->len == 0) return 0;
    rc = blasd_graph_in_member(graph, &text, name, blasd_json_space(text.start), &end, err);
    return rc == 0 ? blasd_json_end(&text, end, name, err) : rc;
}
