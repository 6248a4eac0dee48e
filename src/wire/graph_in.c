/* Steps by name become steps by position, each behind those it reads from. Read next:
 * graph_members.c. */
#include "wire/graph_parts.h"

#include "base/text.h"
#include "wire/document.h"
#include "wire/frame_graph.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PROGRAM_MOST ((size_t)64 << 20)

struct blasd_graph_in *blasd_graph_in_new(const struct blasd_limits *limits,
                                          struct blasd_sink *sink) {
    struct blasd_graph_in *graph = calloc(1, sizeof *graph);
    if (graph == NULL) return NULL;
    graph->limits = limits;
    graph->sink = sink;
    return graph;
}

void blasd_graph_in_free(struct blasd_graph_in *graph) {
    if (graph == NULL) return;
    blasd_graph_release(&graph->graph);
    for (int i = 0; i < graph->given_count; i++) free(graph->given[i].reference);
    free(graph->references.items);
    free(graph->results.items);
    free(graph->by_name);
    free(graph);
}

/* ---- names ---- */

/* The position of a step by its name, or -1. */
static int find_step(const struct blasd_graph_in *graph, const char *name) {
    int low = 0, high = graph->graph.step_count - 1;
    while (low <= high) {
        int middle = (low + high) / 2, at = graph->by_name[middle];
        int order = strcmp(name, graph->graph.steps[at]->name);
        if (order == 0) return at;
        if (order < 0)
            high = middle - 1;
        else
            low = middle + 1;
    }
    return -1;
}

struct named {
    const char *name;
    int at;
};

static int compare_names(const void *left, const void *right) {
    const struct named *a = left, *b = right;
    return strcmp(a->name, b->name);
}

static int sort_names(struct blasd_graph_in *graph, struct blasd_err *err) {
    int count = graph->graph.step_count, rc = 0;
    struct named *names = malloc((size_t)count * sizeof *names);
    graph->by_name = malloc((size_t)count * sizeof *graph->by_name);
    if (names == NULL || graph->by_name == NULL) {
        free(names);
        return blasd_no_memory(err);
    }
    for (int i = 0; i < count; i++) names[i] = (struct named){graph->graph.steps[i]->name, i};
    qsort(names, (size_t)count, sizeof *names, compare_names);
    for (int i = 0; i < count; i++) graph->by_name[i] = names[i].at;
    for (int i = 1; rc == 0 && i < count; i++)
        if (strcmp(names[i - 1].name, names[i].name) == 0) {
            rc = blasd_fail(err, BLASD_E_invalid_field, "", "the step is there twice");
            blasd_graph_blame(names[i].name, err);
        }
    free(names);
    return rc;
}

/* The step that a reference names, and the position of its output, -1 where it names none. */
static int find_value(const struct blasd_graph_in *graph, const struct graph_reference *from,
                      const char *field, int *step, int *output, struct blasd_err *err) {
    char shown[BLASD_SANITIZED_MAX], known[120] = "";
    const struct blasd_op *op;
    size_t len = 0;
    *step = find_step(graph, from->name);
    if (*step < 0)
        return blasd_fail(err, BLASD_E_unknown_step, field, "the graph has no step '%s'",
                          blasd_sanitize(shown, from->name, strlen(from->name)));
    op = graph->graph.steps[*step]->job.op;
    *output = from->output[0] == '\0' ? -1 : blasd_op_output(op, from->output);
    if (from->output[0] == '\0' || *output >= 0) return 0;
    for (int i = 0; op->outputs[i].name != NULL && len < sizeof known; i++)
        len += (size_t)snprintf(known + len, sizeof known - len, "%s%s", i == 0 ? "" : ", ",
                                op->outputs[i].name);
    return blasd_fail(err, BLASD_E_unknown_output, field,
                      "the step '%s' is %s, which has no output '%s'; it has %s", from->name,
                      op->name, blasd_sanitize(shown, from->output, strlen(from->output)), known);
}

static int find_data(const struct blasd_named_inputs *inputs, const struct graph_reference *from,
                     const char *field, bool *used, struct blasd_input *to, struct blasd_err *err) {
    char shown[BLASD_SANITIZED_MAX];
    for (int n = 0; n < inputs->count; n++)
        if (strcmp(inputs->items[n].name, from->name) == 0) {
            used[n] = true;
            return blasd_input_copy(to, &inputs->items[n].input, err);
        }
    return blasd_fail(err, BLASD_E_unknown_input, field, "the graph's inputs have no '%s'",
                      blasd_sanitize(shown, from->name, strlen(from->name)));
}

/* Whether two references mean the same part of the same tensor. */
static bool same_reference(const struct blasd_input *a, const struct blasd_input *b) {
    const struct blasd_reference *p = a->reference, *q = b->reference;
    size_t bounds = (size_t)p->sliced * sizeof *p->from;
    return a->source.kind == b->source.kind && strcmp(p->id, q->id) == 0 &&
           strcmp(p->output, q->output) == 0 && p->typed == q->typed && p->sliced == q->sliced &&
           (!p->typed || a->tensor.dtype == b->tensor.dtype) &&
           memcmp(p->from, q->from, bounds) == 0 && memcmp(p->to, q->to, bounds) == 0;
}

/* What an input of a step refers to becomes an input of the graph, once for all that mean it. */
static int give(struct blasd_graph_in *graph, const char *step, const char *field,
                struct blasd_input *input, struct blasd_err *err) {
    int n = 0;
    while (n < graph->given_count && !same_reference(&graph->given[n], input)) n++;
    if ((uint64_t)n == graph->limits->graph_tensors)
        return blasd_fail(
            err, BLASD_E_invalid_reference, field,
            "the steps refer to more than %d tensors and outputs of other jobs, each part of one "
            "counted by itself (limit graph_tensors)",
            n);
    if (n == graph->given_count) {
        char *text = input->reference->field;
        size_t size = sizeof input->reference->field, len;
        graph->given[graph->given_count++] = *input;
        input->reference = NULL;
        len = blasd_text_join(text, size, "steps.", step, ".");
        blasd_text_join(text + len, size - len, field, "", NULL);
    }
    free(input->reference);
    blasd_input_init(input);
    input->source.kind = BLASD_SOURCE_GIVEN;
    input->source.step = n + BLASD_GRAPH_GIVEN;
    return 0;
}

static int resolve_inputs(struct blasd_graph_in *graph, const struct blasd_named_inputs *inputs,
                          struct blasd_graph_step *step, bool *used, struct blasd_err *err) {
    struct blasd_job *job = &step->job;
    for (int i = 0; job->op->inputs[i].name != NULL; i++) {
        struct blasd_source *source = &job->inputs[i].source;
        const struct graph_reference *from;
        char field[64];
        int rc = 0;
        blasd_input_field(field, job->op->inputs[i].name);
        if (source->kind == BLASD_SOURCE_STEP) {
            from = &graph->references.items[source->step];
            rc = from->input ? find_data(inputs, from, field, used, &job->inputs[i], err)
                             : find_value(graph, from, field, &source->step, &source->output, err);
        }
        if (rc == 0 && blasd_source_refers(source))
            rc = give(graph, step->name, field, &job->inputs[i], err);
        if (rc != 0) return rc;
    }
    return 0;
}

/* Makes the names in steps positions. */
static int resolve(struct blasd_graph_in *graph, const struct blasd_named_inputs *inputs,
                   struct blasd_err *err) {
    bool used[BLASD_GRAPH_INPUTS_MAX] = {false};
    for (int s = 0; s < graph->graph.step_count; s++) {
        struct blasd_graph_step *step = graph->graph.steps[s];
        int rc = resolve_inputs(graph, inputs, step, used, err);
        if (rc != 0) {
            blasd_graph_blame(step->name, err);
            return rc;
        }
    }
    for (int n = 0; n < inputs->count; n++)
        if (!used[n]) {
            char field[64];
            blasd_input_field(field, inputs->items[n].name);
            return blasd_fail(err, BLASD_E_invalid_field, field, "no step reads it");
        }
    return 0;
}

/* ---- results, limits and the job ---- */

/* Where no results are named, they are those of the steps that nobody reads from. */
static void choose_results(struct blasd_graph *graph, bool *read) {
    for (int s = 0; s < graph->step_count; s++) {
        const struct blasd_job *job = &graph->steps[s]->job;
        for (int i = 0; job->op->inputs[i].name != NULL; i++)
            if (job->inputs[i].source.kind == BLASD_SOURCE_STEP)
                read[job->inputs[i].source.step] = true;
    }
    for (int s = 0; s < graph->step_count; s++)
        if (!read[s])
            graph->results[graph->result_count++] =
                (struct blasd_graph_result){.step = s, .output = -1};
}

static int note_results(struct blasd_graph_in *in, struct blasd_err *err) {
    struct blasd_graph *graph = &in->graph;
    size_t most =
        (size_t)(graph->step_count > in->results.count ? graph->step_count : in->results.count);
    bool *read = calloc(most, sizeof *read);
    int rc = 0;
    graph->results = calloc(most, sizeof *graph->results);
    if (read == NULL || graph->results == NULL) {
        free(read);
        return blasd_no_memory(err);
    }
    for (int r = 0; rc == 0 && r < in->results.count; r++) {
        struct blasd_graph_result *to = &graph->results[graph->result_count++];
        rc = find_value(in, &in->results.items[r], "results", &to->step, &to->output, err);
    }
    if (!in->has_results) choose_results(graph, read);
    free(read);
    return rc;
}

static int check_limits(const struct blasd_graph *graph, const struct blasd_limits *limits,
                        struct blasd_err *err) {
    const struct blasd_graph_step *widest = graph->steps[graph->widest];
    uint64_t bytes = graph->payload_bytes + graph->results_bytes + graph->report_bytes +
                     graph->memory_bytes + graph->workspace_bytes;
    for (int s = 0; s < graph->step_count; s++)
        if ((uint64_t)graph->steps[s]->depth > limits->graph_depth) {
            blasd_fail(err, BLASD_E_graph_too_large, "",
                       "it is step number %d of those that follow each other, and %llu may (limit "
                       "graph_depth)",
                       graph->steps[s]->depth, (unsigned long long)limits->graph_depth);
            blasd_graph_blame(graph->steps[s]->name, err);
            return -(int)BLASD_E_graph_too_large;
        }
    if ((uint64_t)blasd_graph_results(graph) > limits->graph_results)
        return blasd_fail(err, BLASD_E_graph_too_large, "results",
                          "the results are %d outputs, and a graph may have %llu (limit "
                          "graph_results)",
                          blasd_graph_results(graph), (unsigned long long)limits->graph_results);
    if (bytes <= limits->job_bytes) return 0;
    blasd_fail(err, BLASD_E_job_too_large, "",
               "the graph, at its widest here, takes %llu bytes of inputs, intermediate values, "
               "results and workspace, and a job may take %llu (limit job_bytes)",
               (unsigned long long)bytes, (unsigned long long)limits->job_bytes);
    blasd_graph_blame(widest->name, err);
    return -(int)BLASD_E_job_too_large;
}

/* Stores the steps behind their data. */
static int store(struct blasd_graph_in *in, struct blasd_err *err) {
    struct blasd_graph *graph = &in->graph;
    struct blasd_buf program;
    int rc;
    blasd_buf_init(&program, PROGRAM_MOST);
    rc = blasd_graph_encode(graph, &program, err);
    if (rc == 0) rc = in->sink->reserve(in->sink, program.len, &graph->program_at, err);
    if (rc == 0) rc = in->sink->write(in->sink, graph->program_at, program.data, program.len, err);
    graph->payload_bytes = graph->program_at + program.len;
    blasd_buf_release(&program);
    return rc;
}

int blasd_graph_in_job(struct blasd_graph_in *in, const struct blasd_request_fields *fields,
                       const struct blasd_named_inputs *inputs, struct blasd_job *job,
                       struct blasd_err *err) {
    struct blasd_graph *graph = &in->graph;
    int rc = graph_in_text(in, "steps", &fields->steps, err), given;
    if (rc == 0) rc = graph_in_text(in, "results", &fields->results, err);
    if (rc == 0 && in->sink->in_place)
        rc = blasd_fail(err, BLASD_E_body_file_refused, "Body-File",
                        "the data of a graph come in the body of its request");
    if (rc == 0 && graph->step_count == 0)
        rc = blasd_fail(err, BLASD_E_invalid_field, "steps",
                        "steps is missing or empty: a graph has at least one");
    if (rc == 0) rc = sort_names(in, err);
    if (rc == 0) rc = resolve(in, inputs, err);
    if (rc == 0) rc = note_results(in, err);
    if (rc == 0) rc = blasd_graph_sort(graph, err);
    if (rc != 0) return rc;
    blasd_job_init(job, &blasd_op_graph);
    memcpy(job->inputs + BLASD_GRAPH_GIVEN, in->given, (size_t)in->given_count * sizeof *in->given);
    given = in->given_count;
    in->given_count = 0; /* they are the job's */
    if (given == 0) rc = blasd_graph_in_plan(in, job, err);
    return rc == 0 ? blasd_request_fields_note(fields, job, err) : rc;
}

int blasd_graph_in_plan(struct blasd_graph_in *in, struct blasd_job *job, struct blasd_err *err) {
    struct blasd_graph *graph = &in->graph;
    int rc;
    for (int s = 0; s < graph->step_count; s++)
        for (int i = 0; graph->steps[s]->job.op->inputs[i].name != NULL; i++) {
            struct blasd_input *input = &graph->steps[s]->job.inputs[i];
            if (input->source.kind != BLASD_SOURCE_GIVEN) continue;
            input->tensor = job->inputs[input->source.step].tensor;
            input->source.bytes = blasd_tensor_bytes(&input->tensor);
        }
    rc = blasd_graph_plan(graph, err);
    if (rc == 0) rc = store(in, err);
    if (rc == 0) rc = check_limits(graph, in->limits, err);
    if (rc == 0) blasd_graph_job(graph, job);
    return rc;
}

struct blasd_cost_step *blasd_graph_in_costs(const struct blasd_graph_in *in, int *count) {
    struct blasd_cost_step *steps = malloc(((size_t)in->graph.step_count + 1) * sizeof *steps);
    *count = in->graph.step_count;
    for (int s = 0; steps != NULL && s < *count; s++) steps[s] = in->graph.steps[s]->cost;
    return steps;
}

int blasd_graph_in_outputs(const struct blasd_graph_in *in, struct blasd_buf *buf) {
    struct json_out out = {.buf = buf};
    int count = blasd_graph_results(&in->graph);
    for (int r = 0; r < count; r++) {
        const struct blasd_graph_value *value = blasd_graph_result(&in->graph, r);
        const struct blasd_graph_step *step = in->graph.steps[value->step];
        char name[BLASD_GRAPH_OUTPUT_MAX];
        blasd_text_join(name, sizeof name, step->name, ".",
                        step->job.op->outputs[value->output].name);
        if (r > 0) json_out_put(&out, ",");
        document_planned(&out, name, &value->tensor);
    }
    return out.failed ? -1 : 0;
}

int blasd_graph_in_steps(const struct blasd_graph_in *in, struct blasd_buf *out,
                         struct blasd_err *err) {
    return blasd_graph_encode(&in->graph, out, err);
}
