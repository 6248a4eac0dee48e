/* The job document (api/openapi.yaml, Job) and the problem document (RFC 9457). Field names are the
 * contract: they are only ever added to. Read next: ops_document.c. */
#include "wire/document.h"

#include "base/clock.h"
#include "wire/answer.h"
#include "wire/json_elements.h"

#include <float.h>
#include <string.h>

#define LITERAL JSON_OUT_LITERAL
#define YEAR_10000_US INT64_C(253402300800000000)

/* A date, or null where there is none yet. */
static void write_time(struct json_out *out, int64_t us) {
    char text[BLASD_TIME_TEXT];
    if (us <= 0 || us >= YEAR_10000_US) {
        LITERAL(out, "null");
        return;
    }
    blasd_clock_text(us, text);
    LITERAL(out, "\"");
    json_out_raw(out, text, strlen(text)); /* nothing in it wants escaping */
    LITERAL(out, "\"");
}

/* A text, or null where there is none yet. */
static void write_text(struct json_out *out, const char *text) {
    if (text[0] == '\0')
        LITERAL(out, "null");
    else
        json_out_string(out, text);
}

static void write_problem(struct json_out *out, const struct blasd_err *problem) {
    const struct blasd_err_info *info = blasd_err_info(problem->code);
    LITERAL(out, "{\"type\":\"/errors/");
    json_out_raw(out, info->name, strlen(info->name));
    LITERAL(out, "\",\"title\":");
    json_out_string(out, info->title);
    LITERAL(out, ",\"status\":");
    json_out_int(out, info->http_status);
    LITERAL(out, ",\"code\":");
    json_out_string(out, info->name);
    LITERAL(out, ",\"detail\":");
    json_out_string(out, problem->detail);
    if (problem->field[0] != '\0') {
        LITERAL(out, ",\"field\":");
        json_out_string(out, problem->field);
    }
    LITERAL(out, ",\"retry\":");
    json_out_bool(out, info->retry);
    LITERAL(out, ",\"advice\":");
    json_out_string(out, info->advice);
    LITERAL(out, "}");
}

const struct blasd_port *document_output(const struct blasd_record *record, int i) {
    const struct blasd_op *op;
    if (record->state != BLASD_SUCCEEDED || i < 0 || i >= BLASD_MAX_OUTPUTS ||
        record->outputs[i].tensor.rank < 0)
        return NULL;
    op = blasd_op_find(record->op);
    for (int n = 0; op != NULL && op->outputs[n].name != NULL; n++)
        if (n == i) return &op->outputs[i];
    return NULL;
}

void document_tensor(struct json_out *out, const struct blasd_tensor *tensor) {
    const char *dtype = blasd_dtype_name(tensor->dtype);
    LITERAL(out, "\"dtype\":\"");
    json_out_raw(out, dtype, strlen(dtype));
    LITERAL(out, "\",\"shape\":[");
    for (int i = 0; i < tensor->rank; i++) {
        if (i > 0) LITERAL(out, ",");
        json_out_int(out, tensor->shape[i]);
    }
    LITERAL(out, "]");
}

static void write_elements(struct json_out *out, const struct blasd_output *output,
                           const void *payload) {
    struct json_elements writer;
    json_elements_init(&writer, &output->tensor, (const char *)payload + output->offset);
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

/* Where the output lies, for who can read the directory of the blob store. */
static void write_blob(struct json_out *out, const struct blasd_record *record,
                       const struct blasd_output *output) {
    LITERAL(out, ",\"blob\":{\"name\":\"");
    json_out_escaped(out, record->id, strlen(record->id));
    LITERAL(out, ".out\",\"offset\":");
    json_out_uint(out, output->offset);
    LITERAL(out, ",\"bytes\":");
    json_out_uint(out, output->bytes);
    LITERAL(out, "}");
}

static void write_output(struct json_out *out, const struct blasd_record *record, int i,
                         const char *name, struct document_data *data) {
    const struct blasd_output *output = &record->outputs[i];
    json_out_string(out, name);
    LITERAL(out, ":{");
    document_tensor(out, &output->tensor);
    if (data->cuts != NULL) {
        LITERAL(out, ",\"data\":");
        data->cuts[data->cut_count++] = (struct document_cut){.output = i, .at = out->buf->len};
    } else if (data->payload != NULL &&
               (uint64_t)json_elements_weight(&output->tensor) <= data->most) {
        LITERAL(out, ",\"data\":");
        write_elements(out, output, data->payload);
    }
    LITERAL(out, ",\"href\":\"/jobs/");
    json_out_escaped(out, record->id, strlen(record->id));
    LITERAL(out, "/outputs/");
    json_out_escaped(out, name, strlen(name));
    LITERAL(out, "\"");
    if (data->blobs && record->payload_in_blob) write_blob(out, record, output);
    LITERAL(out, "}");
}

static void write_outputs(struct json_out *out, const struct blasd_record *record,
                          struct document_data *data) {
    const struct blasd_op *op = NULL;
    const char *comma = "";
    if (record->state == BLASD_SUCCEEDED) op = blasd_op_find(record->op);
    LITERAL(out, ",\"outputs\":{");
    for (int i = 0; op != NULL && op->outputs[i].name != NULL; i++) {
        if (record->outputs[i].tensor.rank < 0) continue;
        json_out_raw(out, comma, strlen(comma));
        write_output(out, record, i, op->outputs[i].name, data);
        comma = ",";
    }
    LITERAL(out, "}");
}

static void write_timing(struct json_out *out, const struct blasd_timing *timing) {
    LITERAL(out, ",\"timing\":{\"receive_ms\":");
    json_out_ms(out, timing->receive_us);
    LITERAL(out, ",\"queue_ms\":");
    json_out_ms(out, timing->queue_us);
    LITERAL(out, ",\"batch_wait_ms\":");
    json_out_ms(out, timing->batch_wait_us);
    LITERAL(out, ",\"upload_ms\":");
    json_out_ms(out, timing->upload_us);
    LITERAL(out, ",\"compute_ms\":");
    json_out_ms(out, timing->compute_us);
    LITERAL(out, ",\"download_ms\":");
    json_out_ms(out, timing->download_us);
    LITERAL(out, ",\"total_ms\":");
    json_out_ms(out, timing->total_us);
    LITERAL(out, "}");
}

/* Operations are counted: whole numbers, as far as a double holds them. */
static void write_flops(struct json_out *out, double flops) {
    if (flops >= 0 && flops < 9007199254740992.0)
        json_out_uint(out, (uint64_t)flops);
    else
        json_out_double(out, flops);
}

static void write_execution(struct json_out *out, const struct blasd_execution *execution) {
    LITERAL(out, ",\"execution\":{\"device\":");
    write_text(out, execution->device);
    LITERAL(out, ",\"device_name\":");
    write_text(out, execution->device_name);
    LITERAL(out, ",\"method\":");
    write_text(out, execution->method);
    LITERAL(out, ",\"batch_size\":");
    json_out_int(out, execution->batch_size);
    LITERAL(out, ",\"attempts\":");
    json_out_int(out, execution->attempts);
    LITERAL(out, ",\"flops\":");
    write_flops(out, execution->flops);
    LITERAL(out, ",\"bytes\":");
    json_out_uint(out, execution->bytes);
    if (execution->energy_joules > 0 && execution->energy_joules <= DBL_MAX) {
        LITERAL(out, ",\"energy_joules\":");
        json_out_double(out, execution->energy_joules);
    }
    LITERAL(out, ",\"warnings\":[");
    for (int i = 0; i < execution->warning_count && i < BLASD_MAX_WARNINGS; i++) {
        if (i > 0) LITERAL(out, ",");
        json_out_string(out, execution->warnings[i]);
    }
    LITERAL(out, "]}");
}

/* The class of devices the job was sent to: where it ran once that is known. */
static void write_device(struct json_out *out, const struct blasd_record *record) {
    const char *ran = record->execution.device, *name = blasd_device_class_names[record->device];
    size_t len = strcspn(ran, ":");
    LITERAL(out, ",\"device\":");
    for (int c = BLASD_DEVICE_CPU; c < BLASD_DEVICE_CLASS_COUNT; c++)
        if (strncmp(ran, blasd_device_class_names[c], len) == 0 &&
            blasd_device_class_names[c][len] == '\0')
            name = blasd_device_class_names[c];
    json_out_string(out, strcmp(name, "any") == 0 ? "auto" : name);
}

void document_job(struct json_out *out, const struct blasd_record *record,
                  struct document_data *data) {
    LITERAL(out, "{\"id\":");
    json_out_string(out, record->id);
    LITERAL(out, ",\"op\":");
    json_out_string(out, record->op);
    LITERAL(out, ",\"state\":");
    json_out_string(out, blasd_state_names[record->state]);
    LITERAL(out, ",\"priority\":");
    json_out_string(out, blasd_priority_names[record->priority]);
    write_device(out, record);
    LITERAL(out, ",\"created_at\":");
    write_time(out, record->created_us);
    LITERAL(out, ",\"started_at\":");
    write_time(out, record->started_us);
    LITERAL(out, ",\"finished_at\":");
    write_time(out, record->finished_us);
    LITERAL(out, ",\"progress\":");
    json_out_double(out, record->progress);
    write_outputs(out, record, data);
    write_timing(out, &record->timing);
    write_execution(out, &record->execution);
    if (record->state >= BLASD_FAILED && record->error.code != BLASD_OK) {
        LITERAL(out, ",\"error\":");
        write_problem(out, &record->error);
    }
    LITERAL(out, "}");
}

/* Ends a document in a buffer that was `before` bytes long: whole, or as if it had not begun. */
static int document_end(struct json_out *out, size_t before) {
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
