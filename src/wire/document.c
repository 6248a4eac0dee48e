/* The job document (api/openapi.yaml, Job) and the problem document (RFC 9457). Field names are the
 * contract: they are only ever added to. Read next: ops_document.c. */
#include "wire/document.h"

#include "wire/answer.h"
#include "wire/frame_graph.h"
#include "wire/json_elements.h"

#include <float.h>
#include <stdio.h>
#include <string.h>

static void write_problem(struct json_out *out, const struct blasd_err *problem) {
    const struct blasd_err_info *info = blasd_err_info(problem->code);
    json_out_put(out,
                 "{\"type\":\"/errors/%r\",\"title\":%s,\"status\":%i,\"code\":%s,\"detail\":%s",
                 info->name, info->title, (int64_t)info->http_status, info->name, problem->detail);
    if (problem->field[0] != '\0') json_out_put(out, ",\"field\":%s", problem->field);
    if (problem->least > 0) json_out_put(out, ",\"least\":%i", problem->least);
    json_out_put(out, ",\"retry\":%b,\"advice\":%s}", info->retry, info->advice);
}

/* The rows of what its outputs are, ended as in a descriptor; NULL: it has none to show. */
static const struct blasd_port *outputs_of(const struct blasd_record *record) {
    const struct blasd_op *op;
    if (record->state != BLASD_SUCCEEDED) return NULL;
    if (record->graph != NULL) return record->graph->ports;
    op = blasd_op_find(record->op);
    return op == NULL || op->composed ? NULL : op->outputs;
}

const struct blasd_port *document_output(const struct blasd_record *record, int i) {
    const struct blasd_port *outputs = outputs_of(record);
    if (i < 0 || !blasd_record_sends(record, i)) return NULL;
    for (int n = 0; outputs != NULL && outputs[n].name != NULL; n++)
        if (n == i) return &outputs[i];
    return NULL;
}

int blasd_answer_output(const struct blasd_record *record, const char *name) {
    const struct blasd_port *outputs = outputs_of(record);
    for (int i = 0; outputs != NULL && outputs[i].name != NULL; i++)
        if (strcmp(outputs[i].name, name) == 0) return blasd_record_sends(record, i) ? i : -1;
    return -1;
}

void document_shape(struct json_out *out, const struct blasd_tensor *tensor) {
    json_out_put(out, "[");
    for (int i = 0; i < tensor->rank; i++)
        json_out_put(out, i == 0 ? "%i" : ",%i", tensor->shape[i]);
    json_out_put(out, "]");
}

void document_tensor(struct json_out *out, const struct blasd_tensor *tensor) {
    json_out_put(out, "\"dtype\":\"%r\",\"shape\":", blasd_dtype_name(tensor->dtype));
    document_shape(out, tensor);
}

void document_planned(struct json_out *out, const char *name, const struct blasd_tensor *tensor) {
    json_out_put(out, "%s:{", name);
    document_tensor(out, tensor);
    json_out_put(out, ",\"bytes\":%u}", blasd_tensor_bytes(tensor));
}

void document_elements(struct json_out *out, const struct blasd_tensor *tensor, const void *bytes) {
    struct json_elements writer;
    json_elements_init(&writer, tensor, bytes);
    while (!out->failed) {
        struct blasd_buf *buf = out->buf;
        size_t n, room = 64;
        /* as much as fits what is there already, else a little more, which doubles the buffer */
        if (buf->cap - buf->len > room) room = buf->cap - buf->len;
        if (room > buf->max - buf->len) room = buf->max - buf->len;
        if (room == 0 || blasd_buf_reserve(buf, room) != 0) {
            /* the text may end exactly where the room does */
            char more;
            out->failed = json_elements_read(&writer, &more, 1) != 0;
            return;
        }
        n = json_elements_read(&writer, buf->data + buf->len, room);
        buf->len += n;
        if (n < room) return;
    }
}

/* The tensor that the output has become. */
static void write_kept(struct json_out *out, const struct blasd_record *record, int i) {
    const struct blasd_tensor *tensor = &record->outputs[i].tensor;
    char id[BLASD_ID_LEN + 1];
    blasd_keeping_id(&record->keeping, record->id, i, id);
    json_out_put(out, ",\"tensor\":{\"id\":%s,", id);
    document_tensor(out, tensor);
    json_out_put(out, ",\"bytes\":%u,\"expires_at\":%t,\"location\":\"host\"}",
                 blasd_tensor_bytes(tensor),
                 record->finished_us + (int64_t)record->keeping.life_s * 1000000);
}

static void write_output(struct json_out *out, const struct blasd_record *record, int i,
                         const char *name, struct document_data *data) {
    const struct blasd_output *output = &record->outputs[i];
    json_out_put(out, "%s:{", name);
    document_tensor(out, &output->tensor);
    if (blasd_keeps(&record->keeping, i)) write_kept(out, record, i);
    if (blasd_withholds(&record->keeping, i)) {
        json_out_put(out, "}");
        return;
    }
    if (data->cuts != NULL) {
        json_out_put(out, ",\"data\":");
        data->cuts[data->cut_count++] = (struct document_cut){.output = i, .at = out->buf->len};
    } else if (data->payload != NULL &&
               (uint64_t)json_elements_weight(&output->tensor) <= data->most) {
        json_out_put(out, ",\"data\":");
        document_elements(out, &output->tensor, (const char *)data->payload + output->offset);
    }
    json_out_put(out, ",\"href\":\"/jobs/%r/outputs/%r\"", record->id, name);
    /* where it lies, for who can read the directory of the blob store */
    if (data->blobs && record->payload_in_blob)
        json_out_put(out, ",\"blob\":{\"name\":\"%r.out\",\"offset\":%u,\"bytes\":%u}", record->id,
                     output->offset, output->bytes);
    json_out_put(out, "}");
}

static void write_outputs(struct json_out *out, const struct blasd_record *record,
                          struct document_data *data) {
    const struct blasd_port *outputs = outputs_of(record);
    bool first = true;
    json_out_put(out, ",\"outputs\":{");
    for (int i = 0; outputs != NULL && outputs[i].name != NULL; i++) {
        if (!blasd_record_has(record, i)) continue;
        if (!first) json_out_put(out, ",");
        write_output(out, record, i, outputs[i].name, data);
        first = false;
    }
    json_out_put(out, "}");
}

/* Writes the parts of its time that are over. Of a job that no worker has begun, or that has not
 * ended, the others are null. */
static void write_parts(struct json_out *out, const struct blasd_timing *t, bool begun,
                        bool ended) {
    json_out_put(out, ",\"timing\":{\"receive_ms\":%m,\"queue_ms\":", t->receive_us);
    json_out_put(out, begun || ended ? "%m" : "null", t->queue_us);
    if (begun && ended)
        json_out_put(out,
                     ",\"batch_wait_ms\":%m,\"upload_ms\":%m,\"compute_ms\":%m,"
                     "\"download_ms\":%m",
                     t->batch_wait_us, t->upload_us, t->compute_us, t->download_us);
    else
        json_out_put(out, ",\"batch_wait_ms\":null,\"upload_ms\":null,\"compute_ms\":null,"
                          "\"download_ms\":null");
    json_out_put(out, ended ? ",\"total_ms\":%m" : ",\"total_ms\":null", t->total_us);
}

/* With how many bytes went over a card's bus; -1: that is not known. */
static void write_timing(struct json_out *out, const struct blasd_timing *t, int64_t upload_bytes,
                         int64_t download_bytes) {
    write_parts(out, t, true, true);
    if (upload_bytes >= 0)
        json_out_put(out, ",\"upload_bytes\":%i,\"download_bytes\":%i", upload_bytes,
                     download_bytes);
    json_out_put(out, "}");
}

const char *document_warning_code(const struct blasd_warning *warning) {
    const struct blasd_warning_info *info = blasd_warning_find((int)warning->code);
    return info != NULL ? info->name : "unknown";
}

/* The SHA-256 of each output that the job made, for a job that asked for them. */
static void write_digests(struct json_out *out, const struct blasd_record *record) {
    const struct blasd_op *op = blasd_op_find(record->op);
    bool first = true;
    if (!record->digested || op == NULL) return;
    json_out_put(out, ",\"digest\":{");
    for (int i = 0; op->outputs[i].name != NULL; i++) {
        char text[2 * BLASD_OUTPUT_DIGEST + 1];
        if (!blasd_record_has(record, i)) continue;
        for (int k = 0; k < BLASD_OUTPUT_DIGEST; k++)
            snprintf(text + 2 * k, 3, "%02x", record->digests[i][k]);
        json_out_put(out, first ? "%n:%n" : ",%n:%n", op->outputs[i].name, text);
        first = false;
    }
    json_out_put(out, "}");
}

/* `record`: whose execution it is, or NULL of a step. */
static void write_execution(struct json_out *out, const struct blasd_execution *e,
                            const struct blasd_record *record) {
    json_out_put(out,
                 ",\"execution\":{\"device\":%n,\"device_name\":%n,\"method\":%n,"
                 "\"batch_size\":",
                 e->device, e->device_name, e->method);
    /* one of 0 jobs is not known yet, nor what its jobs take */
    json_out_put(out, e->batch_size > 0 ? "%i" : "null", (int64_t)e->batch_size);
    json_out_put(out, ",\"attempts\":%i,\"flops\":", (int64_t)e->attempts);
    /* operations are counted: whole numbers, as far as a double holds them */
    if (e->batch_size <= 0)
        json_out_put(out, "null,\"bytes\":null");
    else if (e->flops >= 0 && e->flops < 0x1p53)
        json_out_put(out, "%u,\"bytes\":%u", (uint64_t)e->flops, e->bytes);
    else
        json_out_put(out, "%f,\"bytes\":%u", e->flops, e->bytes);
    if (e->energy_joules > 0 && e->energy_joules <= DBL_MAX)
        json_out_put(out, ",\"energy_joules\":%f", e->energy_joules);
    if (record != NULL) write_digests(out, record);
    json_out_put(out, ",\"warnings\":[");
    for (int i = 0; i < e->warning_count && i < BLASD_MAX_WARNINGS; i++)
        json_out_put(out, i == 0 ? "%s" : ",%s", e->warnings[i].text);
    json_out_put(out, "],\"warning_codes\":[");
    for (int i = 0; i < e->warning_count && i < BLASD_MAX_WARNINGS; i++)
        json_out_put(out, i == 0 ? "%s" : ",%s", document_warning_code(&e->warnings[i]));
    json_out_put(out, "]}");
}

/* Of a graph: its steps in the order in which they ran, or would have. Warnings of theirs are the
 * graph's. */
static void write_steps(struct json_out *out, const struct blasd_record *record) {
    const struct blasd_graph_report *graph = record->graph;
    bool good = true;
    json_out_put(out, ",\"steps\":{");
    for (int i = 0; i < graph->step_count; i++) {
        struct blasd_execution execution = graph->steps[i].execution;
        if (graph->steps[i].timing.total_us == BLASD_GRAPH_NOT_DONE) {
            json_out_put(out, i == 0 ? "%s:" : ",%s:", graph->steps[i].name);
            json_out_put(out, "{\"op\":%s,\"state\":%s}", graph->steps[i].op,
                         good ? "failed" : "skipped");
            good = false;
            continue;
        }
        memcpy(execution.device, record->execution.device, sizeof execution.device);
        memcpy(execution.device_name, record->execution.device_name, sizeof execution.device_name);
        execution.batch_size = 1;
        execution.attempts = record->execution.attempts;
        json_out_put(out, i == 0 ? "%s:" : ",%s:", graph->steps[i].name);
        json_out_put(out, "{\"op\":%s,\"state\":\"succeeded\"", graph->steps[i].op);
        write_timing(out, &graph->steps[i].timing, graph->steps[i].upload_bytes,
                     graph->steps[i].download_bytes);
        write_execution(out, &execution, NULL);
        json_out_put(out, "}");
    }
    json_out_put(out, "}");
}

/* The class of devices the job was sent to: where it ran once that is known. */
static const char *device_of(const struct blasd_record *record) {
    enum blasd_device_class class = blasd_record_class(record);
    return class == BLASD_DEVICE_ANY ? "auto" : blasd_device_class_names[class];
}

void document_cost(struct json_out *out, const struct blasd_prices *prices,
                   const struct blasd_usage *usage) {
    double amount, per_hour = prices->per_hour[usage->device];
    if (!blasd_price_of(prices, usage, &amount)) {
        json_out_put(out, "\"cost\":null");
        return;
    }
    json_out_put(out, "\"cost\":{\"amount\":%f,\"currency\":%s,\"device\":%s,\"device_s\":%f",
                 amount, prices->currency, blasd_device_class_names[usage->device],
                 usage->device_s);
    if (prices->priced[usage->device]) json_out_put(out, ",\"per_hour\":%f", per_hour);
    if (prices->per_kwh > 0 && usage->energy_joules > 0)
        json_out_put(out, ",\"energy_joules\":%f,\"per_kwh\":%f", usage->energy_joules,
                     prices->per_kwh);
    json_out_put(out, "}");
}

/* What the job used of the call it ran in, which others of its tenant shared. */
static void write_cost(struct json_out *out, const struct blasd_record *record) {
    struct blasd_usage usage = blasd_record_usage(record);
    if (record->prices == NULL || record->execution.device[0] == '\0') return;
    json_out_put(out, ",");
    document_cost(out, record->prices, &usage);
}

/* Names and values have no character that JSON would escape. */
static void write_labels(struct json_out *out, const char *labels) {
    struct blasd_label label;
    for (bool first = true; blasd_labels_next(&labels, &label); first = false) {
        json_out_put(out, first ? ",\"labels\":{\"" : ",\"");
        json_out_raw(out, label.name, label.name_len);
        json_out_put(out, "\":\"");
        json_out_raw(out, label.value, label.value_len);
        json_out_put(out, *labels == '\0' ? "\"}" : "\"");
    }
}

static void write_trace(struct json_out *out, const uint8_t id[BLASD_TRACE_ID]) {
    char text[BLASD_TRACE_TEXT];
    if (!blasd_trace_given(id)) return;
    blasd_trace_text(id, text);
    json_out_put(out, ",\"trace_id\":\"%r\"", text);
}

void document_job(struct json_out *out, const struct blasd_record *record,
                  struct document_data *data) {
    json_out_put(out,
                 "{\"id\":\"%r\",\"op\":%s,\"state\":\"%r\",\"priority\":\"%r\",\"device\":\"%r\","
                 "\"created_at\":%t,\"started_at\":%t,\"finished_at\":%t,\"progress\":%f",
                 record->id, record->op, blasd_state_names[record->state],
                 blasd_priority_names[record->priority], device_of(record), record->created_us,
                 record->started_us, record->finished_us, record->progress);
    if (record->state == BLASD_RUNNING && record->remaining_us >= 0)
        json_out_put(out, ",\"remaining_ms\":%f", (double)record->remaining_us / 1000);
    write_labels(out, record->labels);
    write_trace(out, record->trace_id);
    write_outputs(out, record, data);
    write_parts(out, &record->timing, record->started_us > 0, record->finished_us > 0);
    json_out_put(out, "}");
    write_execution(out, &record->execution, record);
    write_cost(out, record);
    if (record->graph != NULL) write_steps(out, record);
    if (record->state >= BLASD_FAILED && record->error.code != BLASD_OK) {
        json_out_put(out, ",\"error\":");
        write_problem(out, &record->error);
    }
    json_out_put(out, "}");
}

int document_end(struct json_out *out, size_t before) {
    if (!out->failed) return 0;
    out->buf->len = before;
    return -1;
}

int blasd_job_document(const struct blasd_record *record, const void *payload,
                       uint64_t inline_elements, bool blobs, struct blasd_buf *buf) {
    struct json_out out = {.buf = buf};
    struct document_data data = {.payload = payload, .most = inline_elements, .blobs = blobs};
    size_t before = buf->len;
    document_job(&out, record, &data);
    return document_end(&out, before);
}

int blasd_problem_document(const struct blasd_err *problem, struct blasd_buf *buf) {
    struct json_out out = {.buf = buf};
    size_t before = buf->len;
    write_problem(&out, problem);
    return document_end(&out, before);
}
