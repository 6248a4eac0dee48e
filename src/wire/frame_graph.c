/* Graphs and their reports as bytes; numbers as in frame_parts.h.
 *
 *     the steps    magic "BLGR", schema 4, zero 2, steps 4, results 4; then for each step: name 32,
 *                  and the frame of its job; then for each result: step 4, output 4 (-1: the first)
 *     the report   magic "BLGS", schema 2, zero 2, steps 4, results 4; then for each step: name,
 *                  operation, timing 56, flops 8, bytes 8, energy 8, uploaded 8,
 *                  downloaded 8, method; then for each result:
 *                  "STEP.OUTPUT", tensor
 *
 * A step reads only from those that stand before it, so what is stored has no cycles. */
#include "wire/frame_graph.h"

#include "base/text.h"

#include "wire/frame.h"
#include "wire/frame_parts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAGIC "BLGR"
#define REPORT_MAGIC "BLGS"
#define SCHEMA 4
#define REPORT_SCHEMA 2
/* Bytes that a step takes at least: what says how many there are may lie. */
#define LEAST_STEP 224
#define LEAST_RAN 6

struct head {
    char magic[4];
    uint16_t schema, zero;
    uint32_t steps, results;
};
_Static_assert(sizeof(struct head) == 16, "no padding");

/* Appends what was written into a room that begins at `room`. */
static int add(const struct frame_writer *w, const unsigned char *room, struct blasd_buf *out,
               struct blasd_err *err) {
    if (w->bad)
        return blasd_fail(err, BLASD_E_internal_error, "", "a step is too long to be stored");
    return blasd_buf_add(out, room, (size_t)(w->at - room)) == 0 ? 0 : blasd_no_memory(err);
}

static int add_head(const char *magic, int schema, int steps, int results, struct blasd_buf *out,
                    struct blasd_err *err) {
    struct head head = {
        .schema = (uint16_t)schema, .steps = (uint32_t)steps, .results = (uint32_t)results};
    memcpy(head.magic, magic, sizeof head.magic);
    return blasd_buf_add(out, &head, sizeof head) == 0 ? 0 : blasd_no_memory(err);
}

static int get_head(struct frame_reader *r, const char *magic, uint16_t schema, size_t least,
                    struct head *head, struct blasd_err *err) {
    frame_get(r, head, sizeof *head);
    if (r->bad || memcmp(head->magic, magic, sizeof head->magic) != 0 || head->zero != 0)
        return frame_broken(err, "its graph does not begin as one");
    if (head->schema != schema) return frame_broken(err, "its graph is of another version");
    if (head->steps > (size_t)(r->end - r->at) / least || head->results > head->steps * 64)
        return frame_broken(err, "its graph ends early");
    return 0;
}

/* ---- the steps ---- */

int blasd_graph_encode(const struct blasd_graph *graph, struct blasd_buf *out,
                       struct blasd_err *err) {
    int code = add_head(MAGIC, SCHEMA, graph->step_count, graph->result_count, out, err);
    for (int i = 0; code == 0 && i < graph->step_count; i++) {
        const struct blasd_graph_step *step = graph->steps[i];
        if (blasd_buf_add(out, step->name, sizeof step->name) != 0) return blasd_no_memory(err);
        code = blasd_job_encode(&step->job, out, err);
    }
    for (int r = 0; code == 0 && r < graph->result_count; r++)
        if (blasd_buf_add(out, &graph->results[r], sizeof *graph->results) != 0)
            return blasd_no_memory(err);
    return code;
}

/* Whether it is an output of a step before number `before`; -1: its first. */
static bool is_value(const struct blasd_graph *graph, int before, int step, int output) {
    return step >= 0 && step < before && output >= -1 &&
           output < blasd_op_output_count(graph->steps[step]->job.op);
}

static int get_step(struct frame_reader *r, struct blasd_graph *graph, struct blasd_err *err) {
    struct blasd_graph_step *step = blasd_graph_add(graph);
    size_t size, payload_at;
    int code;
    if (step == NULL) return blasd_no_memory(err);
    frame_get(r, step->name, sizeof step->name);
    if (r->bad || step->name[0] == '\0' || memchr(step->name, 0, sizeof step->name) == NULL) {
        step->name[0] = '\0';
        return frame_broken(err, "a step has no name");
    }
    size = (size_t)(r->end - r->at);
    code = frame_get_job(r->at, size, &graph->program_at, &step->job, &payload_at, err);
    if (code != 0) return code;
    r->at += blasd_job_frame_size(r->at, size);
    if (step->job.op->composed) return frame_broken(err, "a step is a graph");
    for (int i = 0; step->job.op->inputs[i].name != NULL; i++) {
        const struct blasd_source *source = &step->job.inputs[i].source;
        if (source->kind == BLASD_SOURCE_STEP &&
            !is_value(graph, graph->step_count - 1, source->step, source->output))
            return frame_broken(err, "its graph reads from a step that is not there yet");
    }
    return 0;
}

int blasd_graph_decode(const void *bytes, size_t len, struct blasd_graph *graph,
                       struct blasd_err *err) {
    struct frame_reader r = {.at = bytes, .end = (const unsigned char *)bytes + len};
    struct head head;
    int code = get_head(&r, MAGIC, SCHEMA, LEAST_STEP, &head, err);
    if (code != 0) return code;
    graph->results = calloc((size_t)head.results + 1, sizeof *graph->results);
    if (graph->results == NULL) return blasd_no_memory(err);
    for (uint32_t i = 0; i < head.steps; i++)
        if ((code = get_step(&r, graph, err)) != 0) return code;
    for (; graph->result_count < (int)head.results; graph->result_count++) {
        struct blasd_graph_result *result = &graph->results[graph->result_count];
        frame_get(&r, result, sizeof *result);
        if (!is_value(graph, graph->step_count, result->step, result->output))
            return frame_broken(err, "its graph has a result that no step makes");
    }
    if (r.bad || r.at != r.end) return frame_broken(err, "its graph does not end with its results");
    return 0;
}

/* ---- the report ---- */

int blasd_graph_report_begin(int steps, int results, struct blasd_buf *out, struct blasd_err *err) {
    return add_head(REPORT_MAGIC, REPORT_SCHEMA, steps, results, out, err);
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
    int code = get_head(&r, REPORT_MAGIC, REPORT_SCHEMA, LEAST_RAN, &head, err);
    if (code != 0) return code;
    if (head.results > BLASD_MAX_OUTPUTS) return frame_broken(err, "a graph has too many results");
    report = calloc(1, sizeof *report + head.steps * sizeof *report->steps);
    if (report == NULL) return blasd_no_memory(err);
    report->step_count = (int)head.steps;
    report->output_count = (int)head.results;
    code = get_all(&r, results_bytes, report, err);
    if (code == 0)
        *ret = report;
    else
        free(report);
    return code;
}
