/* Steps in turn. Each is planned again with what really came out of those before it, so that what
 * the front end checks of data that is sent is checked of data that was computed. */
#include "worker/graph_run.h"

#include "base/clock.h"
#include "base/container.h"
#include "base/text.h"
#include "core/graph.h"
#include "core/parallel.h"
#include "core/wanted.h"
#include "wire/frame_graph.h"
#include "worker/map_io.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SCRATCH_KEEP (UINT64_C(64) << 20)

/* A value on a device with resident outputs. */
struct value {
    struct blasd_key name;
    struct blasd_resident resident;
};

struct running {
    struct blasd_watch watch; /* must come first: what the steps' kernels ask */
    struct blasd_watch *outer;
    double done, part; /* of the graph's work: before this step, and this step */

    const struct blasd_backend *backend;
    struct blasd_device *device;
    struct blasd_task *task; /* of the graph */
    struct blasd_graph graph;
    struct blasd_tensor *made;  /* owned; of each value what it really is */
    struct value *values;       /* owned; the same, where devices keep some */
    int *uses;                  /* owned; of each value, by how many inputs */
    unsigned char *memory;      /* of values that are no results */
    struct blasd_arena scratch; /* inputs that had to be converted for the step */
    struct blasd_buf report;
};

static bool on_go_on(struct blasd_watch *watch, double progress) {
    struct running *running = blasd_container_of(watch, struct running, watch);
    return running->outer->go_on(running->outer, running->done + running->part * progress);
}

static int on_sharers(struct blasd_watch *watch) {
    struct running *running = blasd_container_of(watch, struct running, watch);
    return running->outer->sharers(running->outer);
}

/* ---- values that are resident on the device ---- */

static bool can_reside(const struct running *running) {
    return running->backend->resident_forget != NULL;
}

/* What is known of value number `at`; NULL: none is resident on this device. */
static struct blasd_resident *resident_of(const struct running *running, int64_t at) {
    return running->values != NULL ? &running->values[at].resident : NULL;
}

/* Names begin with the graph's id, so that they can be forgotten together. */
static void name_graph(const struct running *running, struct blasd_key *key) {
    key->len = 0;
    blasd_key_add(key, running->task->job->id, BLASD_ID_LEN);
}

/* The values of a step that others read may be resident, and those that nobody asks for. */
static void offer_residents(struct running *running, int at, struct blasd_resident *residents,
                            struct blasd_task *task) {
    const struct blasd_graph_step *step = running->graph.steps[at];
    if (running->values == NULL) return;
    for (int o = 0; o < BLASD_MAX_OUTPUTS; o++) residents[o] = (struct blasd_resident){0};
    for (int v = step->first; v < step->first + step->count; v++) {
        const struct blasd_graph_value *value = &running->graph.values[v];
        struct blasd_key *name = &running->values[v].name;
        if (value->in_parts || (value->result >= 0 && value->last_use == at)) continue;
        name_graph(running, name);
        blasd_key_add_int(name, BLASD_SOURCE_STEP);
        blasd_key_add_int(name, v);
        residents[value->output].name = name;
    }
    task->residents = residents;
}

static void take_residents(struct running *running, int at, const struct blasd_task *task) {
    const struct blasd_graph_step *step = running->graph.steps[at];
    for (int v = step->first; task->residents != NULL && v < step->first + step->count; v++)
        running->values[v].resident = task->residents[running->graph.values[v].output];
}

static void forget_value(struct running *running, int64_t at) {
    struct value *value = &running->values[at];
    if (value->name.len == 0) return;
    running->backend->resident_forget(running->device, &value->name);
    value->resident.device_only = false;
}

/* Values that no later step reads make room, but results; so do copies of what went up. */
static void forget_residents(struct running *running, int at) {
    const struct blasd_graph *graph = &running->graph;
    const struct blasd_job *job = &graph->steps[at]->job;
    const struct blasd_graph_step *step = graph->steps[at];
    if (running->values == NULL) return;
    for (int i = 0; job->op->inputs[i].name != NULL; i++) {
        const struct blasd_source *source = &job->inputs[i].source;
        const struct blasd_graph_value *value;
        if (source->kind != BLASD_SOURCE_STEP) continue;
        value = blasd_graph_value(graph, source->step, source->output);
        if (value->last_use == at && value->result < 0)
            forget_value(running, value - graph->values);
    }
    for (int v = step->first; v < step->first + step->count; v++)
        if (graph->values[v].last_use == at) forget_value(running, v);
}

/* The results come to the host. */
static int results_to_host(struct running *running, struct blasd_err *err) {
    int code = 0;
    for (int v = 0; running->values != NULL && code == 0 && v < running->graph.value_count; v++) {
        const struct blasd_resident *resident = resident_of(running, v);
        if (resident->device_only && running->graph.values[v].result >= 0)
            code = running->backend->resident_to_host(running->device, resident->name, err);
    }
    return code;
}

/* Nothing of the graph is left there, however it ended. */
static void forget_all(struct running *running) {
    struct blasd_key graph;
    if (!can_reside(running)) return;
    name_graph(running, &graph);
    running->backend->resident_forget(running->device, &graph);
    running->backend->resident_forget(running->device, NULL);
}

/* ---- one step ---- */

/* The same of one that is resident, as was seen there. */
static void look_as_seen(const struct blasd_port *port, const struct blasd_tensor *tensor,
                         const struct blasd_seen *seen, struct blasd_input *input) {
    bool ordered = blasd_dtype_kind(tensor->dtype) == 'f';
    input->first_nonfinite = port->finite ? seen->first_nonfinite : -1;
    input->first_negative = ordered ? seen->first_negative : -1;
    input->first_not_positive = ordered ? seen->first_not_positive : -1;
    input->all_zero = blasd_tensor_elements(tensor) > 0 && seen->first_nonzero < 0;
}

/* Looks for what the port refuses in an input that was computed. */
static void look(const struct blasd_port *port, const struct blasd_tensor *tensor,
                 struct blasd_input *input) {
    int64_t n = blasd_tensor_elements(tensor);
    char kind = blasd_dtype_kind(tensor->dtype);
    input->first_nonfinite = input->first_negative = input->first_not_positive = -1;
    input->all_zero = false;
    if (port->finite && (kind == 'f' || kind == 'c'))
        input->first_nonfinite = blasd_tensor_first_nonfinite(tensor->dtype, tensor->data, n);
    if ((port->values & (BLASD_VALUES_NOT_NEGATIVE | BLASD_VALUES_POSITIVE)) != 0)
        input->first_negative = blasd_tensor_first_negative(tensor->dtype, tensor->data, n, false);
    if ((port->values & BLASD_VALUES_POSITIVE) != 0)
        input->first_not_positive =
            blasd_tensor_first_negative(tensor->dtype, tensor->data, n, true);
    if ((port->values & BLASD_VALUES_NOT_ALL_ZERO) != 0)
        input->all_zero = n > 0 && blasd_tensor_all_zero(tensor->dtype, tensor->data, n);
}

/* The part that is meant of what a step made: where it lies, or a copy where it lies in pieces or
 * no tensor may begin. */
static int take_part(struct running *running, const struct blasd_input *input,
                     struct blasd_tensor *from, const char *name, struct blasd_err *err) {
    struct blasd_reference slice = *input->reference;
    const struct blasd_tensor whole = *from;
    char field[BLASD_INPUT_FIELD];
    uint64_t at;
    int code;
    blasd_input_field(field, name);
    code = blasd_reference_resolve(&slice, &whole, 0, from, &at, field, err);
    if (code != 0) return code;
    from->data = (unsigned char *)whole.data + at;
    if (slice.sliced == 0 && at % BLASD_ALIGN == 0) return 0;
    return blasd_io_copy_part(&running->scratch, &slice, from->data, from, err);
}

/* The inputs of a step as they are, where they lie; what rules make is made. */
static int find_inputs(struct running *running, struct blasd_job *job,
                       struct blasd_tensor from[BLASD_MAX_INPUTS], struct blasd_err *err) {
    unsigned char *payload = running->task->inputs[0].data;
    for (int i = 0; job->op->inputs[i].name != NULL; i++) {
        struct blasd_input *input = &job->inputs[i];
        if (input->source.kind == BLASD_SOURCE_STEP) {
            const struct blasd_graph_value *value =
                blasd_graph_value(&running->graph, input->source.step, input->source.output);
            const struct blasd_resident *resident =
                resident_of(running, value - running->graph.values);
            from[i] = running->made[value - running->graph.values];
            if (blasd_input_sliced(input) > 0) {
                int code = take_part(running, input, &from[i], job->op->inputs[i].name, err);
                if (code != 0) return code;
            }
            input->tensor = from[i];
            if (resident != NULL && resident->device_only)
                look_as_seen(&job->op->inputs[i], &from[i], &resident->seen, input);
            else
                look(&job->op->inputs[i], &from[i], input);
        } else if (input->source.kind == BLASD_SOURCE_RULE) {
            from[i] = input->tensor;
            from[i].data = blasd_arena_take(&running->scratch, blasd_tensor_bytes(&from[i]));
            if (from[i].data == NULL)
                return blasd_fail(err, BLASD_E_out_of_memory, job->op->inputs[i].name,
                                  "no memory for what its rule makes");
            blasd_rule_fill(&input->source.rule, &from[i]);
        } else if (input->source.kind == BLASD_SOURCE_GIVEN) {
            from[i] = input->tensor = running->task->inputs[input->source.step];
            if (from[i].data == NULL)
                return blasd_fail(err, BLASD_E_internal_error, job->op->inputs[i].name,
                                  "the graph was not given what the step refers to");
            look(&job->op->inputs[i], &from[i], input);
        } else if (blasd_job_has(job, i)) {
            from[i] = input->tensor;
            from[i].data = payload + input->source.offset;
        }
    }
    return 0;
}

/* Names what more steps or jobs may read, or what is on the device, so that it need not be sent
 * there again. */
static const struct blasd_key *name_input(struct running *running, const struct blasd_input *input,
                                          const struct blasd_tensor *from,
                                          const struct blasd_tensor *to) {
    const char *id = running->task->job->id;
    int64_t at = (int64_t)input->source.offset;
    if (input->source.kind == BLASD_SOURCE_STEP) {
        const struct blasd_resident *resident;
        at = blasd_graph_value(&running->graph, input->source.step, input->source.output) -
             running->graph.values;
        resident = resident_of(running, at);
        if (resident != NULL && resident->device_only && from->data == to->data)
            return resident->name;
        if (running->uses[at] < 2 || blasd_input_sliced(input) > 0) return NULL;
    } else if (input->source.kind == BLASD_SOURCE_GIVEN) {
        input = &running->task->job->inputs[input->source.step];
        if (!blasd_source_refers(&input->source)) return NULL;
        id = input->reference->id;
        at = (int64_t)input->source.offset;
    } else if (input->source.kind != BLASD_SOURCE_PAYLOAD) {
        return NULL;
    }
    return blasd_io_name_input(&running->scratch, id, input, at, from, to);
}

static unsigned char *place_of(const struct running *running,
                               const struct blasd_graph_value *value) {
    unsigned char *results = running->task->outputs[BLASD_GRAPH_OUT_RESULTS].data;
    return (value->result >= 0 ? results : running->memory) + value->offset;
}

/* Where the outputs go. What came out smaller than was planned may only make less. */
static int map_outputs(struct running *running, int at, const struct blasd_plan *plan,
                       struct blasd_task *task, struct blasd_err *err) {
    const struct blasd_op *op = running->graph.steps[at]->job.op;
    for (int i = 0; i < BLASD_MAX_OUTPUTS; i++) task->outputs[i].rank = -1;
    for (int i = 0; op->outputs[i].name != NULL; i++) {
        const struct blasd_graph_value *value = blasd_graph_value(&running->graph, at, i);
        bool makes = plan->outputs[i].rank >= 0;
        if (makes != (value != NULL) ||
            (makes && blasd_tensor_bytes(&plan->outputs[i]) > blasd_tensor_bytes(&value->tensor)))
            return blasd_fail(err, BLASD_E_shape_mismatch, "",
                              "what it reads came out smaller than planned, and its output '%s' "
                              "would not be",
                              op->outputs[i].name);
        if (!makes) continue;
        task->outputs[i] = plan->outputs[i];
        task->outputs[i].order = BLASD_ROW_MAJOR;
        task->outputs[i].data = place_of(running, value);
    }
    return 0;
}

/* Notes what was made; a kernel may make an output smaller than was planned, never larger. */
static int take_outputs(struct running *running, int at, const struct blasd_task *task,
                        struct blasd_err *err) {
    const struct blasd_graph_step *step = running->graph.steps[at];
    for (int v = step->first; v < step->first + step->count; v++) {
        const struct blasd_graph_value *value = &running->graph.values[v];
        const struct blasd_tensor *made = &task->outputs[value->output];
        if (made->data != place_of(running, value) || blasd_tensor_check(made, "", NULL) != 0 ||
            blasd_tensor_bytes(made) > blasd_tensor_bytes(&value->tensor))
            return blasd_fail(err, BLASD_E_internal_error, "",
                              "the kernel gave back an output '%s' it was not asked for",
                              step->job.op->outputs[value->output].name);
        running->made[v] = *made;
    }
    return 0;
}

/* What the step tells becomes the graph's. */
static int report_step(struct running *running, int at, const struct blasd_task *task,
                       int64_t began_ns, int64_t mapped_ns, struct blasd_err *err) {
    const struct blasd_graph_step *step = running->graph.steps[at];
    struct blasd_graph_ran ran = {.execution = {.flops = step->flops,
                                                .bytes = step->bytes,
                                                .energy_joules = task->energy_joules},
                                  .upload_bytes = -1,
                                  .download_bytes = -1};
    int64_t run = (blasd_clock_ns() - mapped_ns) / 1000;
    memcpy(ran.name, step->name, sizeof ran.name);
    snprintf(ran.op, sizeof ran.op, "%s", step->job.op->name);
    memcpy(ran.execution.method, task->method, sizeof ran.execution.method);
    if (running->backend->device_class == BLASD_DEVICE_CUDA) {
        ran.upload_bytes = (int64_t)task->upload_bytes;
        ran.download_bytes = (int64_t)task->download_bytes;
    }
    ran.timing.upload_us = (mapped_ns - began_ns) / 1000 + task->upload_us;
    ran.timing.download_us = task->download_us;
    ran.timing.compute_us = run - task->upload_us - task->download_us;
    if (ran.timing.compute_us < 0) ran.timing.compute_us = 0;
    ran.timing.total_us = ran.timing.upload_us + ran.timing.compute_us + ran.timing.download_us;
    running->task->upload_us += task->upload_us;
    running->task->download_us += task->download_us;
    running->task->energy_joules += task->energy_joules;
    for (int i = 0; i < task->warning_count; i++)
        blasd_task_warn(running->task, task->warnings[i].code, "%s: %s", step->name,
                        task->warnings[i].text);
    return blasd_graph_report_step(&ran, &running->report, err);
}

/* What is resident is converted on the host. */
static int input_to_host(struct running *running, const struct blasd_input *input,
                         const struct blasd_tensor *from, const struct blasd_plan *plan, int i,
                         struct blasd_err *err) {
    const struct blasd_resident *resident;
    if (input->source.kind != BLASD_SOURCE_STEP || from->dtype == plan->input_dtype[i]) return 0;
    resident = resident_of(
        running, blasd_graph_value(&running->graph, input->source.step, input->source.output) -
                     running->graph.values);
    if (resident == NULL || !resident->device_only) return 0;
    return running->backend->resident_to_host(running->device, resident->name, err);
}

static int map_step(struct running *running, int at, const struct blasd_kernel *kernel,
                    struct blasd_plan *plan, struct blasd_task *task, struct blasd_err *err) {
    struct blasd_job *job = &running->graph.steps[at]->job;
    struct blasd_tensor from[BLASD_MAX_INPUTS];
    int code = find_inputs(running, job, from, err);
    if (code == 0) code = blasd_job_plan(job, plan, err);
    if (code == 0 && kernel->adapt != NULL) kernel->adapt(job, plan);
    for (int i = 0; code == 0 && job->op->inputs[i].name != NULL; i++) {
        if (!blasd_job_has(job, i)) continue;
        code = input_to_host(running, &job->inputs[i], &from[i], plan, i, err);
        if (code != 0) break;
        code = blasd_io_map_input(&running->scratch, job, plan, i, &from[i], task, err);
        if (code == 0)
            task->names[i] = name_input(running, &job->inputs[i], &from[i], &task->inputs[i]);
    }
    return code != 0 ? code : map_outputs(running, at, plan, task, err);
}

static int run_step(struct running *running, int at, struct blasd_err *err) {
    struct blasd_job *job = &running->graph.steps[at]->job;
    const struct blasd_kernel *kernel = blasd_backend_kernel(running->backend, job->op);
    struct blasd_plan plan;
    struct blasd_task task = {.job = job, .plan = &plan};
    struct blasd_resident residents[BLASD_MAX_OUTPUTS];
    int64_t began_ns = blasd_clock_ns(), mapped_ns;
    int code;
    if (kernel == NULL)
        return blasd_fail(err, BLASD_E_no_such_device, "op", "this device does not run %s",
                          job->op->name);
    blasd_task_reset(&task);
    blasd_wanted_begin(&running->watch);
    code = blasd_wanted_end(map_step(running, at, kernel, &plan, &task, err), err);
    if (code != 0) return code;
    offer_residents(running, at, residents, &task);
    mapped_ns = blasd_clock_ns();
    code = kernel->run(running->device, &task, 1, &running->watch, err);
    if (code == 0 && task.err.code != BLASD_OK) {
        *err = task.err;
        code = -(int)task.err.code;
    }
    if (code == 0) code = take_outputs(running, at, &task, err);
    if (code == 0) {
        take_residents(running, at, &task);
        forget_residents(running, at);
    }
    if (code == 0) code = report_step(running, at, &task, began_ns, mapped_ns, err);
    blasd_arena_reset(&running->scratch);
    return code;
}

/* ---- all of them ---- */

static void count_uses(struct running *running) {
    const struct blasd_graph *graph = &running->graph;
    for (int s = 0; s < graph->step_count; s++) {
        const struct blasd_job *job = &graph->steps[s]->job;
        for (int i = 0; job->op->inputs[i].name != NULL; i++) {
            const struct blasd_source *source = &job->inputs[i].source;
            if (source->kind == BLASD_SOURCE_STEP)
                running->uses[blasd_graph_value(graph, source->step, source->output) -
                              graph->values]++;
        }
    }
}

static int open_graph(struct running *running, struct blasd_arena *arena, struct blasd_err *err) {
    const struct blasd_task *task = running->task;
    uint64_t bytes = blasd_tensor_bytes(&task->inputs[0]);
    uint64_t at = (uint64_t)task->job->params[BLASD_GRAPH_PROGRAM_AT].i;
    struct blasd_graph *graph = &running->graph;
    int code;
    if (at > bytes)
        return blasd_fail(err, BLASD_E_internal_error, "", "the graph lies outside its payload");
    graph->program_at = at;
    code = blasd_graph_decode((const unsigned char *)task->inputs[0].data + at,
                              (size_t)(bytes - at), graph, err);
    if (code == 0) code = blasd_graph_plan(graph, err);
    if (code != 0) return code;
    if (graph->results_bytes != (uint64_t)task->outputs[BLASD_GRAPH_OUT_RESULTS].shape[0] ||
        graph->report_bytes != (uint64_t)task->outputs[BLASD_GRAPH_OUT_REPORT].shape[0])
        return blasd_fail(err, BLASD_E_internal_error, "",
                          "this worker plans the graph differently from who took it in");
    running->made = calloc((size_t)graph->value_count + 1, sizeof *running->made);
    running->uses = calloc((size_t)graph->value_count + 1, sizeof *running->uses);
    if (can_reside(running))
        running->values = calloc((size_t)graph->value_count + 1, sizeof *running->values);
    running->memory = blasd_arena_take(arena, graph->memory_bytes);
    blasd_buf_init(&running->report, (size_t)graph->report_bytes);
    if (running->made == NULL || running->uses == NULL || running->memory == NULL)
        return blasd_fail(err, BLASD_E_out_of_memory, "",
                          "no memory for %llu bytes of intermediate values",
                          (unsigned long long)graph->memory_bytes);
    count_uses(running);
    return blasd_graph_report_begin(graph->step_count, blasd_graph_results(graph), &running->report,
                                    err);
}

static int run_steps(struct running *running, int *at, struct blasd_err *err) {
    const struct blasd_graph *graph = &running->graph;
    for (; *at < graph->step_count; ++*at) {
        int code;
        running->part = graph->steps[*at]->flops / graph->flops;
        if (!running->outer->go_on(running->outer, running->done))
            return blasd_fail(err, BLASD_E_cancelled, "", "stopped while it ran");
        code = run_step(running, *at, err);
        if (code == -(int)BLASD_E_device_error) return code;
        if (code != 0) {
            blasd_graph_blame(graph->steps[*at]->name, err);
            return code;
        }
        running->done += running->part;
    }
    return 0;
}

/* Names the results, and leaves nothing of other jobs between them. */
static int report_results(struct running *running, struct blasd_err *err) {
    const struct blasd_graph *graph = &running->graph;
    struct blasd_tensor *report = &running->task->outputs[BLASD_GRAPH_OUT_REPORT];
    int count = blasd_graph_results(graph), code = 0;
    for (int r = 0; code == 0 && r < count; r++) {
        const struct blasd_graph_value *value = blasd_graph_result(graph, r);
        const struct blasd_tensor *made = &running->made[value - graph->values];
        const struct blasd_graph_step *step = graph->steps[value->step];
        uint64_t bytes = blasd_tensor_bytes(made);
        memset(place_of(running, value) + bytes, 0,
               blasd_align_up(blasd_tensor_bytes(&value->tensor)) - bytes);
        code = blasd_graph_report_result(step->name, step->job.op->outputs[value->output].name,
                                         made, value->offset, &running->report, err);
    }
    if (code != 0) return code;
    memcpy(report->data, running->report.data, running->report.len);
    report->shape[0] = (int64_t)running->report.len;
    return 0;
}

/* Of a graph that fails at step number `at`: that one and those behind it were not done. What the
 * report has come to is for the record; where memory is short it has the error alone. */
static void report_failed(struct running *running, struct blasd_arena *arena, int at) {
    const struct blasd_graph *graph = &running->graph;
    struct blasd_buf *report = &running->report, head;
    struct blasd_err err;
    void *told = NULL;
    int code = 0;
    for (int s = at; code == 0 && s < graph->step_count; s++) {
        struct blasd_graph_ran ran = {.timing.total_us = BLASD_GRAPH_NOT_DONE};
        memcpy(ran.name, graph->steps[s]->name, sizeof ran.name);
        snprintf(ran.op, sizeof ran.op, "%s", graph->steps[s]->job.op->name);
        code = blasd_graph_report_step(&ran, report, &err);
    }
    blasd_buf_init(&head, report->max);
    if (code == 0) code = blasd_graph_report_begin(graph->step_count, 0, &head, &err);
    if (code == 0) told = blasd_arena_take(arena, report->len);
    if (told != NULL) {
        memcpy(told, report->data, report->len);
        memcpy(told, head.data, head.len); /* there are no results */
        running->task->told = told;
        running->task->told_bytes = report->len;
    }
    blasd_buf_release(&head);
}

int blasd_graph_run(const struct blasd_backend *backend, struct blasd_device *device,
                    struct blasd_arena *arena, struct blasd_task *task, struct blasd_watch *watch,
                    struct blasd_err *err) {
    struct running running = {.watch = {.go_on = on_go_on},
                              .outer = watch,
                              .backend = backend,
                              .device = device,
                              .task = task};
    int code, at = 0;
    if (watch->sharers != NULL) running.watch.sharers = on_sharers;
    blasd_arena_init(&running.scratch, arena->max, SCRATCH_KEEP);
    code = open_graph(&running, arena, err);
    blasd_parallel_close_together(true);
    if (code == 0 && (code = run_steps(&running, &at, err)) != 0)
        report_failed(&running, arena, at);
    blasd_parallel_close_together(false);
    if (code == 0) code = results_to_host(&running, err);
    forget_all(&running);
    if (code == 0) code = report_results(&running, err);
    snprintf(task->method, sizeof task->method, "%d steps", running.graph.step_count);
    blasd_graph_release(&running.graph);
    free(running.made);
    free(running.uses);
    free(running.values);
    blasd_buf_release(&running.report);
    blasd_arena_release(&running.scratch);
    return code;
}
