/* Fuzzer of graphs: bodies in JSON, with the operations that there are. What is taken must be read
 * back and planned as the job says, and pieces make no difference; and stored graphs and reports
 * from hostile bytes. */
#define INTAKE_REAL_OPS
#include "tests/fuzz/fuzz_body.h"

#include "core/graph.h"
#include "wire/frame_graph.h"

/* No two values that are wanted at the same time share a byte. */
static void check_places(const struct blasd_graph *graph) {
    for (int i = 0; i < graph->value_count; i++)
        for (int j = i + 1; j < graph->value_count; j++) {
            const struct blasd_graph_value *one = &graph->values[i], *other = &graph->values[j];
            uint64_t one_end = one->offset + blasd_tensor_bytes(&one->tensor),
                     other_end = other->offset + blasd_tensor_bytes(&other->tensor);
            if (one->result >= 0 || other->result >= 0 || one->last_use < other->step) continue;
            require(one_end <= other->offset || other_end <= one->offset, "values lie apart");
        }
}

static void check_graph(const struct outcome *outcome) {
    const struct blasd_job *job = &outcome->job;
    uint64_t at = (uint64_t)job->params[BLASD_GRAPH_PROGRAM_AT].i;
    struct blasd_graph graph = {.program_at = at};
    struct blasd_plan plan;
    struct blasd_err err;
    require(job->op == &blasd_op_graph, "a graph's job is one");
    require(blasd_job_plan(job, &plan, &err) == 0, "its job has a plan");
    require(at <= outcome->memory.len, "the steps lie inside the payload");
    require(blasd_graph_decode(outcome->memory.bytes + at, (size_t)(outcome->memory.len - at),
                               &graph, &err) == 0,
            "what was stored is read");
    require(blasd_graph_plan(&graph, &err) == 0, "and planned");
    require(graph.results_bytes == (uint64_t)plan.outputs[BLASD_GRAPH_OUT_RESULTS].shape[0] &&
                graph.report_bytes == (uint64_t)plan.outputs[BLASD_GRAPH_OUT_REPORT].shape[0],
            "the same plan on both sides");
    for (int i = 0; i < graph.step_count; i++)
        for (int n = 0; graph.steps[i]->job.op->inputs[n].name != NULL; n++) {
            const struct blasd_source *source = &graph.steps[i]->job.inputs[n].source;
            require(source->kind != BLASD_SOURCE_STEP || source->step < i, "an order");
            require(source->kind != BLASD_SOURCE_PAYLOAD || source->offset + source->bytes <= at,
                    "data in front of the steps");
        }
    check_places(&graph);
    blasd_graph_release(&graph);
}

static void try_stored(const uint8_t *data, size_t size) {
    struct blasd_graph graph = {.program_at = 1024};
    struct blasd_graph_report *report;
    struct blasd_err err;
    if (blasd_graph_decode(data, size, &graph, &err) == 0 && blasd_graph_plan(&graph, &err) == 0)
        check_places(&graph);
    blasd_graph_release(&graph);
    if (blasd_graph_report_read(data, size, 1024, &report, &err) == 0) free(report);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const struct blasd_intake_options options = {.content_type = "application/json", .graph = true};
    fuzz_body(options, data, size, check_graph);
    try_stored(data, size);
    return 0;
}
