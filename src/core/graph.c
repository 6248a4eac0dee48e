/* The operation `graph`, and the plan of one: what its steps make, and where that lies. */
#include "core/graph.h"

#include "base/err.h"
#include "base/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the operation ---- */

#define BYTES BLASD_DTYPE_BIT(BLASD_uint8)
/* What each step says of it is checked with the step. */
#define GIVEN(called)                                                                              \
    {                                                                                              \
        .name = called, .shape = "(...)", .dtypes = ~0u, .max_rank = BLASD_MAX_RANK,               \
        .optional = true                                                                           \
    }

static const struct blasd_port inputs[] = {
    {.name = "data", .shape = "(n,)", .dtypes = BYTES, .min_rank = 1, .max_rank = 1},
    GIVEN("given1"),
    GIVEN("given2"),
    GIVEN("given3"),
    GIVEN("given4"),
    GIVEN("given5"),
    GIVEN("given6"),
    GIVEN("given7"),
    {.name = NULL}};
_Static_assert(sizeof inputs / sizeof *inputs == BLASD_MAX_INPUTS + 1, "as many as there may be");
static const struct blasd_port outputs[] = {
    [BLASD_GRAPH_OUT_RESULTS] = {.name = "results", .shape = "(n,)", .dtypes = BYTES},
    [BLASD_GRAPH_OUT_REPORT] = {.name = "report", .shape = "(n,)", .dtypes = BYTES},
    {.name = NULL}};

static const struct blasd_param params[] = {
    [BLASD_GRAPH_PROGRAM_AT] = {.name = "program_at", .kind = BLASD_PARAM_INT},
    [BLASD_GRAPH_RESULTS] = {.name = "results_bytes", .kind = BLASD_PARAM_INT},
    [BLASD_GRAPH_REPORT] = {.name = "report_bytes", .kind = BLASD_PARAM_INT},
    [BLASD_GRAPH_MEMORY] = {.name = "memory_bytes", .kind = BLASD_PARAM_INT},
    [BLASD_GRAPH_DEVICE] = {.name = "device_bytes", .kind = BLASD_PARAM_INT},
    [BLASD_GRAPH_DEVICE_LEAST] = {.name = "device_least_bytes", .kind = BLASD_PARAM_INT},
    [BLASD_GRAPH_OPS] = {.name = "ops", .kind = BLASD_PARAM_INT},
    [BLASD_GRAPH_HOST_ONLY] = {.name = "host_only", .kind = BLASD_PARAM_BOOL},
    [BLASD_GRAPH_FLOPS] = {.name = "flops", .kind = BLASD_PARAM_FLOAT},
    [BLASD_GRAPH_FLOPS_LEAST] = {.name = "flops_least", .kind = BLASD_PARAM_FLOAT},
    [BLASD_GRAPH_ITEMS] = {.name = "items", .kind = BLASD_PARAM_FLOAT},
    {.name = NULL}};

static uint64_t count_of(const struct blasd_job *job, enum blasd_graph_param param) {
    return (uint64_t)job->params[param].i;
}

static int plan_bytes(const struct blasd_job *job, struct blasd_plan *plan, int output,
                      enum blasd_graph_param param, struct blasd_err *err) {
    int64_t bytes = job->params[param].i;
    plan->outputs[output] = blasd_tensor_make(BLASD_uint8, 1, &bytes);
    return blasd_tensor_check(&plan->outputs[output], "steps", err);
}

/* What blasd_graph_plan found, for whoever has the job alone. */
static int plan(const struct blasd_job *job, struct blasd_plan *plan, struct blasd_err *err) {
    int code = plan_bytes(job, plan, BLASD_GRAPH_OUT_RESULTS, BLASD_GRAPH_RESULTS, err);
    if (code == 0) code = plan_bytes(job, plan, BLASD_GRAPH_OUT_REPORT, BLASD_GRAPH_REPORT, err);
    for (int i = 0; i < BLASD_MAX_INPUTS; i++) {
        plan->input_dtype[i] = job->inputs[i].tensor.dtype;
        plan->keep_order[i] = true; /* the steps convert for themselves */
    }
    plan->flops = job->params[BLASD_GRAPH_FLOPS].f;
    plan->flops_least = job->params[BLASD_GRAPH_FLOPS_LEAST].f;
    plan->items = job->params[BLASD_GRAPH_ITEMS].f;
    plan->workspace_bytes = count_of(job, BLASD_GRAPH_MEMORY);
    plan->device_bytes = count_of(job, BLASD_GRAPH_DEVICE);
    plan->device_least_bytes = count_of(job, BLASD_GRAPH_DEVICE_LEAST);
    if (job->params[BLASD_GRAPH_HOST_ONLY].b) plan->host_only = "a step that only the CPU runs";
    return code;
}

const struct blasd_op blasd_op_graph = {.name = "graph",
                                        .composed = true,
                                        .summary = "Steps that feed each other, as one job",
                                        .doc = "",
                                        .inputs = inputs,
                                        .outputs = outputs,
                                        .params = params,
                                        .plan = plan};

uint64_t blasd_graph_ops(const struct blasd_job *job) {
    if (job->op->composed) return count_of(job, BLASD_GRAPH_OPS);
    return UINT64_C(1) << blasd_op_position(job->op);
}

static void set_count(struct blasd_job *job, enum blasd_graph_param param, uint64_t value) {
    job->params[param] = (struct blasd_value){.given = true, .i = (int64_t)value};
}

static void set_figure(struct blasd_job *job, enum blasd_graph_param param, double value) {
    job->params[param] = (struct blasd_value){.given = true, .f = value};
}

void blasd_graph_job(const struct blasd_graph *graph, struct blasd_job *job) {
    int64_t bytes = (int64_t)graph->payload_bytes;
    blasd_job_give(job, 0, BLASD_uint8, 1, &bytes);
    set_count(job, BLASD_GRAPH_PROGRAM_AT, graph->program_at);
    set_count(job, BLASD_GRAPH_RESULTS, graph->results_bytes);
    set_count(job, BLASD_GRAPH_REPORT, graph->report_bytes);
    set_count(job, BLASD_GRAPH_MEMORY, graph->memory_bytes + graph->workspace_bytes);
    set_count(job, BLASD_GRAPH_DEVICE, graph->device_bytes);
    set_count(job, BLASD_GRAPH_DEVICE_LEAST, graph->device_least_bytes);
    set_count(job, BLASD_GRAPH_OPS, graph->ops);
    job->params[BLASD_GRAPH_HOST_ONLY] = (struct blasd_value){.given = true, .b = graph->host_only};
    set_figure(job, BLASD_GRAPH_FLOPS, graph->flops);
    set_figure(job, BLASD_GRAPH_FLOPS_LEAST, graph->flops_least);
    set_figure(job, BLASD_GRAPH_ITEMS, graph->items);
}

/* ---- the plan of one graph ---- */

#define MOST_BYTES                                                                                 \
    (UINT64_C(1) << 56)   /* of each part: sums do not overflow, nor what is converted */
#define REPORT_STEP 208   /* bytes that the report takes for a step, at the most */
#define REPORT_RESULT 192 /* and for a result */

struct blasd_graph_step *blasd_graph_add(struct blasd_graph *graph) {
    struct blasd_graph_step *step = calloc(1, sizeof *step);
    if (step == NULL) return NULL;
    if (graph->step_count == graph->step_room) {
        int room = graph->step_room == 0 ? 16 : graph->step_room * 2;
        struct blasd_graph_step **grown = realloc(graph->steps, (size_t)room * sizeof *grown);
        if (grown == NULL) {
            free(step);
            return NULL;
        }
        graph->steps = grown;
        graph->step_room = room;
    }
    return graph->steps[graph->step_count++] = step;
}

void blasd_graph_blame(const char *step, struct blasd_err *err) {
    char rest[sizeof err->field];
    size_t len;
    if (err == NULL) return;
    memcpy(rest, err->field, sizeof rest);
    len = blasd_text_join(err->field, sizeof err->field, "steps.", step, NULL);
    if (rest[0] != '\0')
        blasd_text_join(err->field + len, sizeof err->field - len, ".", rest, NULL);
}

struct blasd_graph_value *blasd_graph_value(const struct blasd_graph *graph, int step, int output) {
    const struct blasd_graph_step *of = graph->steps[step];
    for (int i = of->first; i < of->first + of->count; i++)
        if (output < 0 || graph->values[i].output == output) return &graph->values[i];
    return NULL;
}

int blasd_graph_results(const struct blasd_graph *graph) {
    int count = 0;
    for (int v = 0; v < graph->value_count; v++) count += graph->values[v].result >= 0;
    return count;
}

const struct blasd_graph_value *blasd_graph_result(const struct blasd_graph *graph, int i) {
    for (int v = 0; v < graph->value_count; v++)
        if (graph->values[v].result == i) return &graph->values[v];
    return NULL;
}

static int too_large(struct blasd_err *err) {
    return blasd_fail(err, BLASD_E_job_too_large, "",
                      "the outputs of the steps have more bytes than can be addressed");
}

/* What the input is of the value: all of it, or the part that its slice means. That stays as it was
 * sent, for the value may come out smaller than planned. The dtype is looked at once. */
static int bind_input(struct blasd_input *input, struct blasd_graph_value *value, const char *field,
                      struct blasd_err *err) {
    struct blasd_reference slice = {.sliced = 0};
    if (input->reference != NULL) slice = *input->reference;
    if (slice.typed && input->tensor.dtype != value->tensor.dtype)
        return blasd_fail(
            err, BLASD_E_invalid_reference, field, "the referenced tensor is %s, not %s",
            blasd_dtype_name(value->tensor.dtype), blasd_dtype_name(input->tensor.dtype));
    if (input->reference != NULL) input->reference->typed = false;
    input->source.output = value->output;
    value->in_parts |= slice.sliced > 0;
    return blasd_reference_resolve(&slice, &value->tensor, 0, &input->tensor, &input->source.offset,
                                   field, err);
}

/* Gives the inputs that are outputs of earlier steps their dtype and shape. */
static int bind_inputs(struct blasd_graph *graph, int at, struct blasd_err *err) {
    struct blasd_graph_step *step = graph->steps[at];
    const struct blasd_op *op = step->job.op;
    step->depth = 1;
    for (int i = 0; op->inputs[i].name != NULL; i++) {
        struct blasd_input *input = &step->job.inputs[i];
        struct blasd_graph_value *value;
        const struct blasd_graph_step *from;
        char field[64];
        int code;
        if (input->source.kind != BLASD_SOURCE_STEP) continue;
        blasd_input_field(field, op->inputs[i].name);
        from = graph->steps[input->source.step];
        value = blasd_graph_value(graph, input->source.step, input->source.output);
        if (value == NULL) {
            int output = input->source.output < 0 ? 0 : input->source.output;
            return blasd_fail(err, BLASD_E_unknown_output, field,
                              "the step '%s' does not make the output '%s' as it is asked for",
                              from->name, from->job.op->outputs[output].name);
        }
        if ((code = bind_input(input, value, field, err)) != 0) return code;
        value->last_use = at;
        if (from->depth >= step->depth) step->depth = from->depth + 1;
    }
    return 0;
}

static void note_plan(struct blasd_graph *graph, struct blasd_graph_step *step,
                      const struct blasd_plan *plan) {
    uint64_t workspace = plan->workspace_bytes + plan->made_bytes;
    step->flops = plan->flops;
    blasd_cost_work(plan, blasd_op_position(step->job.op), &step->cost.work);
    step->cost.flops_least = plan->flops_least;
    step->bytes = plan->input_bytes + plan->output_bytes;
    step->live_bytes = workspace;
    graph->flops += plan->flops;
    graph->flops_least += plan->flops_least > 0 ? plan->flops_least : plan->flops;
    if (plan->items > graph->items) graph->items = plan->items;
    if (workspace > graph->workspace_bytes) graph->workspace_bytes = workspace;
    if (plan->device_bytes > graph->device_bytes) graph->device_bytes = plan->device_bytes;
    if (plan->device_least_bytes > graph->device_least_bytes)
        graph->device_least_bytes = plan->device_least_bytes;
    graph->ops |= UINT64_C(1) << blasd_op_position(step->job.op);
    graph->host_only |= plan->host_only != NULL;
}

static int add_values(struct blasd_graph *graph, int at, const struct blasd_plan *plan,
                      struct blasd_err *err) {
    struct blasd_graph_step *step = graph->steps[at];
    struct blasd_graph_value *grown = realloc(
        graph->values, (size_t)(graph->value_count + BLASD_MAX_OUTPUTS) * sizeof *graph->values);
    if (grown == NULL) return blasd_no_memory(err);
    graph->values = grown;
    step->first = graph->value_count;
    step->count = 0;
    for (int i = 0; step->job.op->outputs[i].name != NULL; i++) {
        if (plan->outputs[i].rank < 0) continue;
        graph->values[graph->value_count++] = (struct blasd_graph_value){
            .tensor = plan->outputs[i], .step = at, .output = i, .last_use = at, .result = -1};
        step->count++;
    }
    return 0;
}

static int plan_steps(struct blasd_graph *graph, struct blasd_err *err) {
    for (int i = 0; i < graph->step_count; i++) {
        struct blasd_graph_step *step = graph->steps[i];
        struct blasd_plan plan;
        int code = bind_inputs(graph, i, err);
        if (code == 0) code = blasd_job_plan(&step->job, &plan, err);
        if (code == 0 && (plan.input_bytes > MOST_BYTES || plan.output_bytes > MOST_BYTES ||
                          plan.workspace_bytes > MOST_BYTES))
            code = too_large(err);
        if (code == 0) {
            note_plan(graph, step, &plan);
            code = add_values(graph, i, &plan, err);
        }
        if (code != 0) {
            blasd_graph_blame(step->name, err);
            return code;
        }
    }
    return 0;
}

/* Results lie one after the other, where they are fetched from. */
static int place_result(struct blasd_graph *graph, int step, int output, int *count,
                        struct blasd_err *err) {
    struct blasd_graph_value *value = blasd_graph_value(graph, step, output);
    char field[64];
    snprintf(field, sizeof field, "results");
    if (value == NULL)
        return blasd_fail(err, BLASD_E_unknown_output, field,
                          "the step '%s' does not make the output '%s' as it is asked for",
                          graph->steps[step]->name,
                          graph->steps[step]->job.op->outputs[output < 0 ? 0 : output].name);
    if (value->result >= 0)
        return blasd_fail(err, BLASD_E_invalid_field, field, "'%s.%s' is there twice",
                          graph->steps[step]->name,
                          graph->steps[step]->job.op->outputs[value->output].name);
    if (*count == BLASD_MAX_OUTPUTS)
        return blasd_fail(err, BLASD_E_graph_too_large, field, "a graph may have %d results",
                          BLASD_MAX_OUTPUTS);
    value->result = (*count)++;
    value->offset = graph->results_bytes;
    graph->results_bytes += blasd_align_up(blasd_tensor_bytes(&value->tensor));
    return graph->results_bytes > MOST_BYTES ? too_large(err) : 0;
}

static int place_results(struct blasd_graph *graph, struct blasd_err *err) {
    int count = 0, code = 0;
    for (int r = 0; code == 0 && r < graph->result_count; r++)
        code = place_result(graph, graph->results[r].step, graph->results[r].output, &count, err);
    graph->report_bytes =
        64 + (uint64_t)graph->step_count * REPORT_STEP + (uint64_t)count * REPORT_RESULT;
    return code;
}

/* Data that a step reads and an earlier one read already: of the graph's payload up to SENT_MOST
 * different places are remembered. */
#define SENT_MOST 64
struct sent {
    uint64_t at[SENT_MOST];
    int count;
    unsigned given; /* a bit for each of the graph's inputs */
};

static bool was_sent(struct sent *sent, const struct blasd_input *input) {
    const struct blasd_source *source = &input->source;
    if (source->kind == BLASD_SOURCE_STEP) return blasd_input_sliced(input) == 0;
    if (source->kind == BLASD_SOURCE_GIVEN) {
        bool was = (sent->given >> source->step & 1) != 0;
        sent->given |= 1u << source->step;
        return was;
    }
    if (source->kind != BLASD_SOURCE_PAYLOAD) return false;
    for (int i = 0; i < sent->count; i++)
        if (sent->at[i] == source->offset) return true;
    if (sent->count < SENT_MOST) sent->at[sent->count++] = source->offset;
    return false;
}

/* What need not move where values stay on a card. */
static void note_residents(struct blasd_graph *graph) {
    struct sent sent = {.count = 0};
    for (int s = 0; s < graph->step_count; s++) {
        struct blasd_graph_step *step = graph->steps[s];
        const struct blasd_job *job = &step->job;
        step->cost.resident_in = step->cost.resident_out = 0;
        for (int i = 0; job->op->inputs[i].name != NULL; i++)
            if (was_sent(&sent, &job->inputs[i]))
                step->cost.resident_in += (double)blasd_tensor_bytes(&job->inputs[i].tensor);
        for (int v = step->first; v < step->first + step->count; v++)
            if (graph->values[v].result < 0 && !graph->values[v].in_parts)
                step->cost.resident_out += (double)blasd_tensor_bytes(&graph->values[v].tensor);
    }
}

/* Puts a value at the first gap that is wide enough; `live` are those that lie there, by offset. */
static void place_value(struct blasd_graph_value *value, struct blasd_graph_value **live,
                        int *count) {
    uint64_t bytes = blasd_align_up(blasd_tensor_bytes(&value->tensor)), at = 0;
    int i = 0;
    for (; i < *count && live[i]->offset - at < bytes; i++)
        at = live[i]->offset + blasd_align_up(blasd_tensor_bytes(&live[i]->tensor));
    memmove(live + i + 1, live + i, (size_t)(*count - i) * sizeof *live);
    live[i] = value;
    value->offset = at;
    ++*count;
}

/* What is not read any more after step `at` makes room. */
static int forget(struct blasd_graph_value **live, int count, int at) {
    int kept = 0;
    for (int i = 0; i < count; i++)
        if (live[i]->last_use > at) live[kept++] = live[i];
    return kept;
}

/* Values that are no results share one memory, each from the step that makes it to the last one
 * that reads it. */
static int place_values(struct blasd_graph *graph, struct blasd_err *err) {
    struct blasd_graph_value **live = malloc((size_t)(graph->value_count + 1) * sizeof *live);
    uint64_t widest = 0;
    int count = 0;
    if (live == NULL) return blasd_no_memory(err);
    for (int s = 0; s < graph->step_count; s++) {
        struct blasd_graph_step *step = graph->steps[s];
        uint64_t end = 0;
        for (int v = step->first; v < step->first + step->count; v++)
            if (graph->values[v].result < 0) place_value(&graph->values[v], live, &count);
        if (count > 0) end = live[count - 1]->offset + blasd_tensor_bytes(&live[count - 1]->tensor);
        if (end > MOST_BYTES) {
            free(live);
            return too_large(err);
        }
        if (end > graph->memory_bytes) graph->memory_bytes = end;
        step->live_bytes += end;
        if (step->live_bytes > widest) {
            widest = step->live_bytes;
            graph->widest = s;
        }
        count = forget(live, count, s);
    }
    free(live);
    return 0;
}

int blasd_graph_plan(struct blasd_graph *graph, struct blasd_err *err) {
    int code;
    graph->value_count = graph->widest = 0;
    graph->flops = graph->flops_least = 0;
    graph->items = 1;
    graph->results_bytes = graph->memory_bytes = graph->workspace_bytes = 0;
    graph->device_bytes = graph->device_least_bytes = graph->ops = 0;
    graph->host_only = false;
    code = plan_steps(graph, err);
    if (code == 0) code = place_results(graph, err);
    if (code == 0) note_residents(graph);
    return code == 0 ? place_values(graph, err) : code;
}

void blasd_graph_release(struct blasd_graph *graph) {
    for (int s = 0; s < graph->step_count; s++) {
        blasd_job_release(&graph->steps[s]->job);
        free(graph->steps[s]);
    }
    free(graph->steps);
    free(graph->results);
    free(graph->values);
    *graph = (struct blasd_graph){0};
}
