/* Graphs and their reports as bytes; numbers as in frame_parts.h.
 *
 *     the steps    magic "BLGR", schema 2, zero 2, steps 4, results 4; then for each step: name,
 *                  operation, inputs and parameters as a job has them, inputs that are outputs of
 *                  earlier steps 1, for each of these: input's name, step 4, output's name, and
 *                  in schema 3, which is written where a part of any is meant, the lengths that
 *                  its slice bounds 1, for each of these: from 8, to 8; then for each result:
 *                  step 4, output's name
 *     the report   magic "BLGS", schema 2, zero 2, steps 4, results 4; then for each step: name,
 *                  operation, timing 56, flops 8, bytes 8, energy 8, uploaded 8,
 *                  downloaded 8, method; then for each result:
 *                  "STEP.OUTPUT", tensor
 *
 * A step reads only from those that stand before it, so what is stored has no cycles. */
#include "wire/frame_graph.h"

#include "base/text.h"

#include "wire/frame_parts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAGIC "BLGR"
#define REPORT_MAGIC "BLGS"
#define SCHEMA 2
#define SCHEMA_OF_PARTS 3
#define LEAST_STEP 6 /* bytes that a step takes at least: what says how many there are may lie */

struct head {
    char magic[4];
    uint16_t schema, zero;
    uint32_t steps, results;
};
_Static_assert(sizeof(struct head) == 16, "no padding");

static int no_memory(struct blasd_err *err) {
    return blasd_fail(err, BLASD_E_out_of_memory, "", "no memory for the graph");
}

/* Appends what was written into a room that begins at `room`. */
static int add(const struct frame_writer *w, const unsigned char *room, struct blasd_buf *out,
               struct blasd_err *err) {
    if (w->bad)
        return blasd_fail(err, BLASD_E_internal_error, "", "a step is too long to be stored");
    return blasd_buf_add(out, room, (size_t)(w->at - room)) == 0 ? 0 : no_memory(err);
}

static int add_head(const char *magic, int schema, int steps, int results, struct blasd_buf *out,
                    struct blasd_err *err) {
    struct head head = {
        .schema = (uint16_t)schema, .steps = (uint32_t)steps, .results = (uint32_t)results};
    memcpy(head.magic, magic, sizeof head.magic);
    return blasd_buf_add(out, &head, sizeof head) == 0 ? 0 : no_memory(err);
}

/* `newest`: of the schemas that it may be of. */
static int get_head(struct frame_reader *r, const char *magic, uint16_t newest, struct head *head,
                    struct blasd_err *err) {
    frame_get(r, head, sizeof *head);
    if (r->bad || memcmp(head->magic, magic, sizeof head->magic) != 0 || head->zero != 0)
        return frame_broken(err, "its graph does not begin as one");
    if (head->schema < SCHEMA || head->schema > newest)
        return frame_broken(err, "its graph is of another version");
    if (head->steps > (size_t)(r->end - r->at) / LEAST_STEP || head->results > head->steps * 64)
        return frame_broken(err, "its graph ends early");
    return 0;
}

/* ---- the steps ---- */

static void put_position(struct frame_writer *w, int position) {
    uint32_t value = (uint32_t)position;
    frame_put(w, &value, sizeof value);
}

static void put_slice(struct frame_writer *w, const struct blasd_input *input) {
    const struct blasd_reference *reference = input->reference;
    frame_put_u8(w, (unsigned)blasd_input_sliced(input));
    for (int i = 0; i < blasd_input_sliced(input); i++) {
        frame_put(w, &reference->from[i], sizeof reference->from[i]);
        frame_put(w, &reference->to[i], sizeof reference->to[i]);
    }
}

static void put_references(struct frame_writer *w, const struct blasd_graph *graph,
                           const struct blasd_job *job, int schema) {
    unsigned count = 0;
    for (int i = 0; job->op->inputs[i].name != NULL; i++)
        count += job->inputs[i].source.kind == BLASD_SOURCE_STEP;
    frame_put_u8(w, count);
    for (int i = 0; job->op->inputs[i].name != NULL; i++) {
        const struct blasd_source *source = &job->inputs[i].source;
        if (source->kind != BLASD_SOURCE_STEP) continue;
        frame_put_text(w, job->op->inputs[i].name, BLASD_NAME_MAX);
        put_position(w, source->step);
        frame_put_text(w, graph->steps[source->step]->job.op->outputs[source->output].name,
                       BLASD_NAME_MAX);
        if (schema == SCHEMA_OF_PARTS) put_slice(w, &job->inputs[i]);
    }
}

/* What both texts begin a step with. */
static struct frame_writer put_step(const struct blasd_graph_step *step,
                                    unsigned char room[FRAME_MOST]) {
    struct frame_writer w = {.at = room, .end = room + FRAME_MOST};
    frame_put_text(&w, step->name, sizeof step->name);
    frame_put_text(&w, step->job.op->name, BLASD_NAME_MAX);
    frame_put_body(&w, &step->job);
    return w;
}

static int schema_of(const struct blasd_graph *graph) {
    for (int v = 0; v < graph->value_count; v++)
        if (graph->values[v].in_parts) return SCHEMA_OF_PARTS;
    return SCHEMA;
}

int blasd_graph_encode(const struct blasd_graph *graph, struct blasd_buf *out,
                       struct blasd_err *err) {
    unsigned char room[FRAME_MOST];
    int results = blasd_graph_results(graph), schema = schema_of(graph);
    int code = add_head(MAGIC, schema, graph->step_count, results, out, err);
    for (int i = 0; code == 0 && i < graph->step_count; i++) {
        const struct blasd_graph_step *step = graph->steps[i];
        struct frame_writer w = put_step(step, room);
        put_references(&w, graph, &step->job, schema);
        code = add(&w, room, out, err);
    }
    /* in their order, with "all outputs of a step" written out */
    for (int r = 0; code == 0 && r < results; r++) {
        const struct blasd_graph_value *value = blasd_graph_result(graph, r);
        struct frame_writer w = {.at = room, .end = room + FRAME_MOST};
        put_position(&w, value->step);
        frame_put_text(&w, graph->steps[value->step]->job.op->outputs[value->output].name,
                       BLASD_NAME_MAX);
        code = add(&w, room, out, err);
    }
    return code;
}

int blasd_graph_note(const struct blasd_graph *graph, struct blasd_buf *out,
                     struct blasd_err *err) {
    unsigned char room[FRAME_MOST];
    int code = add_head(MAGIC, SCHEMA_OF_PARTS, graph->step_count, graph->result_count, out, err);
    for (int i = 0; code == 0 && i < graph->step_count; i++) {
        const struct blasd_graph_step *step = graph->steps[i];
        struct frame_writer w = put_step(step, room);
        for (int n = 0; step->job.op->inputs[n].name != NULL; n++) {
            const struct blasd_input *input = &step->job.inputs[n];
            const struct blasd_source *source = &input->source;
            put_position(&w, (int)source->kind);
            put_position(&w, source->kind == BLASD_SOURCE_STEP || source->kind == BLASD_SOURCE_GIVEN
                                 ? source->step
                                 : 0);
            put_position(&w, source->kind == BLASD_SOURCE_STEP ? source->output : 0);
            if (source->kind != BLASD_SOURCE_STEP) continue;
            put_position(&w, input->reference != NULL && input->reference->typed
                                 ? (int)input->tensor.dtype
                                 : -1);
            put_slice(&w, input);
        }
        code = add(&w, room, out, err);
    }
    for (int r = 0; code == 0 && r < graph->result_count; r++) {
        const int result[] = {graph->results[r].step, graph->results[r].output};
        if (blasd_buf_add(out, result, sizeof result) != 0) code = no_memory(err);
    }
    return code;
}

/* A step before number `before`, and one of its outputs. */
static int get_value(struct frame_reader *r, const struct blasd_graph *graph, int before, int *step,
                     int *output, struct blasd_err *err) {
    char name[BLASD_NAME_MAX];
    uint32_t position;
    frame_get(r, &position, sizeof position);
    frame_get_text(r, name, sizeof name);
    if (r->bad || position >= (uint32_t)before)
        return frame_broken(err, "its graph reads from a step that is not there yet");
    *step = (int)position;
    *output = blasd_op_output(graph->steps[position]->job.op, name);
    if (*output < 0)
        return blasd_fail(err, BLASD_E_unknown_output, "steps",
                          "this worker's %s has no output '%s'",
                          graph->steps[position]->job.op->name, name);
    return 0;
}

static int get_slice(struct frame_reader *r, struct blasd_input *input, struct blasd_err *err) {
    unsigned count = frame_get_u8(r);
    struct blasd_reference *reference;
    if (count == 0) return 0;
    if ((reference = blasd_input_refer(input)) == NULL) return no_memory(err);
    if (count > BLASD_MAX_RANK) return frame_broken(err, "a slice bounds too many lengths");
    for (reference->sliced = 0; reference->sliced < (int)count; reference->sliced++) {
        frame_get(r, &reference->from[reference->sliced], sizeof reference->from[0]);
        frame_get(r, &reference->to[reference->sliced], sizeof reference->to[0]);
    }
    return 0;
}

static int get_references(struct frame_reader *r, const struct blasd_graph *graph, int schema,
                          struct blasd_err *err) {
    int at = graph->step_count - 1;
    struct blasd_job *job = &graph->steps[at]->job;
    unsigned count = frame_get_u8(r);
    for (unsigned n = 0; n < count; n++) {
        char name[BLASD_NAME_MAX];
        struct blasd_source source = {.kind = BLASD_SOURCE_STEP};
        int i, code;
        frame_get_text(r, name, sizeof name);
        code = get_value(r, graph, at, &source.step, &source.output, err);
        if (code != 0) return code;
        i = blasd_op_input(job->op, name);
        if (i < 0)
            return blasd_fail(err, BLASD_E_unknown_input, "inputs",
                              "this worker's %s has no input '%s'", job->op->name, name);
        if (blasd_job_has(job, i)) return frame_broken(err, "an input stands in it twice");
        job->inputs[i].source = source;
        if (schema == SCHEMA_OF_PARTS) code = get_slice(r, &job->inputs[i], err);
        if (code != 0) return code;
    }
    return 0;
}

static int get_step(struct frame_reader *r, struct blasd_graph *graph, int schema,
                    struct blasd_err *err) {
    struct blasd_graph_step *step = blasd_graph_add(graph);
    char name[BLASD_NAME_MAX];
    const struct blasd_op *op;
    int code;
    if (step == NULL) return no_memory(err);
    frame_get_text(r, step->name, sizeof step->name);
    frame_get_text(r, name, sizeof name);
    if (r->bad || step->name[0] == '\0') return frame_broken(err, "a step has no name");
    op = blasd_op_find(name);
    if (op == NULL || op->composed)
        return blasd_fail(err, BLASD_E_unknown_operation, "op", "this worker has no operation '%s'",
                          name);
    blasd_job_init(&step->job, op);
    step->job.payload_bytes = graph->program_at;
    code = frame_get_body(r, &step->job, err);
    return code == 0 ? get_references(r, graph, schema, err) : code;
}

int blasd_graph_decode(const void *bytes, size_t len, struct blasd_graph *graph,
                       struct blasd_err *err) {
    struct frame_reader r = {.at = bytes, .end = (const unsigned char *)bytes + len};
    struct head head;
    int code = get_head(&r, MAGIC, SCHEMA_OF_PARTS, &head, err);
    if (code != 0) return code;
    graph->results = calloc((size_t)head.results + 1, sizeof *graph->results);
    if (graph->results == NULL) return no_memory(err);
    graph->result_count = (int)head.results;
    for (uint32_t i = 0; i < head.steps; i++)
        if ((code = get_step(&r, graph, head.schema, err)) != 0) return code;
    for (int i = 0; i < graph->result_count; i++)
        if ((code = get_value(&r, graph, graph->step_count, &graph->results[i].step,
                              &graph->results[i].output, err)) != 0)
            return code;
    if (r.bad || r.at != r.end) return frame_broken(err, "its graph does not end with its results");
    return 0;
}

/* ---- the report ---- */

int blasd_graph_report_begin(int steps, int results, struct blasd_buf *out, struct blasd_err *err) {
    return add_head(REPORT_MAGIC, SCHEMA, steps, results, out, err);
}

int blasd_graph_report_step(const struct blasd_graph_ran *ran, struct blasd_buf *out,
                            struct blasd_err *err) {
    unsigned char room[512];
    struct frame_writer w = {.at = room, .end = room + sizeof room};
    const struct blasd_execution *execution = &ran->execution;
    frame_put_text(&w, ran->name, sizeof ran->name);
    frame_put_text(&w, ran->op, sizeof ran->op);
    frame_put(&w, &ran->timing, sizeof ran->timing);
    frame_put(&w, &execution->flops, sizeof execution->flops);
    frame_put(&w, &execution->bytes, sizeof execution->bytes);
    frame_put(&w, &execution->energy_joules, sizeof execution->energy_joules);
    frame_put(&w, &ran->upload_bytes, sizeof ran->upload_bytes);
    frame_put(&w, &ran->download_bytes, sizeof ran->download_bytes);
    frame_put_text(&w, execution->method, sizeof execution->method);
    return add(&w, room, out, err);
}

int blasd_graph_report_result(const char *step, const char *output,
                              const struct blasd_tensor *tensor, uint64_t offset,
                              struct blasd_buf *out, struct blasd_err *err) {
    unsigned char room[512];
    struct frame_writer w = {.at = room, .end = room + sizeof room};
    char name[BLASD_GRAPH_OUTPUT_MAX];
    blasd_text_join(name, sizeof name, step, ".", output);
    frame_put_text(&w, name, sizeof name);
    frame_put_tensor(&w, tensor, offset, blasd_tensor_bytes(tensor));
    return add(&w, room, out, err);
}

static void get_ran(struct frame_reader *r, struct blasd_graph_ran *ran) {
    struct blasd_execution *execution = &ran->execution;
    frame_get_text(r, ran->name, sizeof ran->name);
    frame_get_text(r, ran->op, sizeof ran->op);
    frame_get(r, &ran->timing, sizeof ran->timing);
    frame_get(r, &execution->flops, sizeof execution->flops);
    frame_get(r, &execution->bytes, sizeof execution->bytes);
    frame_get(r, &execution->energy_joules, sizeof execution->energy_joules);
    frame_get(r, &ran->upload_bytes, sizeof ran->upload_bytes);
    frame_get(r, &ran->download_bytes, sizeof ran->download_bytes);
    frame_get_text(r, execution->method, sizeof execution->method);
}

static int get_all(struct frame_reader *r, uint64_t results_bytes,
                   struct blasd_graph_report *report, struct blasd_err *err) {
    for (int i = 0; i < report->step_count; i++) {
        get_ran(r, &report->steps[i]);
        if (!isfinite(report->steps[i].execution.flops) ||
            !isfinite(report->steps[i].execution.energy_joules))
            return frame_broken(err, "a step's figures are no numbers");
    }
    for (int i = 0; i < report->output_count; i++) {
        struct blasd_output *output = &report->outputs[i];
        int code;
        frame_get_text(r, report->names[i], sizeof report->names[i]);
        report->ports[i].name = report->names[i];
        code = frame_get_tensor(r, results_bytes, &output->tensor, &output->offset, &output->bytes,
                                err);
        if (code != 0) return code;
    }
    return r->bad || r->at != r->end ? frame_broken(err, "a graph's report is cut") : 0;
}

int blasd_graph_report_read(const void *bytes, size_t len, uint64_t results_bytes,
                            struct blasd_graph_report **ret, struct blasd_err *err) {
    struct frame_reader r = {.at = bytes, .end = (const unsigned char *)bytes + len};
    struct blasd_graph_report *report;
    struct head head;
    int code = get_head(&r, REPORT_MAGIC, SCHEMA, &head, err);
    if (code != 0) return code;
    if (head.results > BLASD_MAX_OUTPUTS) return frame_broken(err, "a graph has too many results");
    report = calloc(1, sizeof *report + head.steps * sizeof *report->steps);
    if (report == NULL) return no_memory(err);
    report->step_count = (int)head.steps;
    report->output_count = (int)head.results;
    code = get_all(&r, results_bytes, report, err);
    if (code == 0)
        *ret = report;
    else
        free(report);
    return code;
}
