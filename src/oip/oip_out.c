/* Answers to inference requests: the JSON, with the outputs in it or behind it, and the form of an
 * error. Read next: oip_models.c. */
#include "oip/oip.h"

#include "wire/document.h"

#include <string.h>

#define TEXT_MOST ((size_t)64 << 20) /* with the lists of outputs, where others are binary */

/* What an answer is made of. */
struct making {
    const struct blasd_record *record;
    const char *payload;
    struct blasd_answer *answer;
    struct json_out out;
    bool mixed; /* some outputs follow the JSON, so that its length must be known */
};

/* The outputs to be sent, in the order asked for; or all there are. Returns their count, or a
 * negative code. */
static int choose_outputs(const struct blasd_record *record, const struct blasd_oip *oip,
                          struct blasd_oip_output chosen[BLASD_MAX_OUTPUTS],
                          struct blasd_err *err) {
    int count = 0;
    for (int i = 0; oip->output_count == 0 && i < record->output_count; i++)
        if (document_output(record, i) != NULL)
            chosen[count++] =
                (struct blasd_oip_output){.position = i, .binary = oip->binary_outputs};
    for (int i = 0; i < oip->output_count; i++) {
        const struct blasd_port *port = &oip->op->outputs[oip->outputs[i].position];
        chosen[count++] = oip->outputs[i];
        if (document_output(record, oip->outputs[i].position) == NULL)
            return blasd_fail(err, BLASD_E_output_not_found, port->name,
                              "these parameters give no output '%s'", port->name);
    }
    return count;
}

static int check_output(const struct blasd_record *record, const struct blasd_oip_output *output,
                        struct blasd_err *err) {
    const struct blasd_tensor *tensor = &record->outputs[output->position].tensor;
    const char *name = document_output(record, output->position)->name;
    if (blasd_oip_datatype(tensor->dtype) == NULL)
        return blasd_fail(err, BLASD_E_not_acceptable, name, "the protocol has no datatype for %s",
                          blasd_dtype_name(tensor->dtype));
    if (tensor->dtype == BLASD_bfloat16 && !output->binary)
        return blasd_fail(err, BLASD_E_not_acceptable, name,
                          "BF16 is sent in binary alone: ask for the output with binary_data");
    return 0;
}

static void write_head(struct making *making, const struct blasd_oip *oip) {
    const struct blasd_record *record = making->record;
    const struct blasd_execution *ran = &record->execution;
    struct json_out *out = &making->out;
    json_out_put(out, "{\"model_name\":%s,\"model_version\":\"" BLASD_OIP_VERSION "\"", record->op);
    if (oip->id != NULL) json_out_put(out, ",\"id\":%s", oip->id);
    json_out_put(out,
                 ",\"parameters\":{\"job\":%s,\"device\":%s,\"method\":%s,\"batch_size\":%i,"
                 "\"queue_ms\":%m,\"compute_ms\":%m,\"total_ms\":%m",
                 record->id, ran->device, ran->method, (int64_t)ran->batch_size,
                 record->timing.queue_us, record->timing.compute_us, record->timing.total_us);
    for (int i = 0; i < ran->warning_count && i < BLASD_MAX_WARNINGS; i++)
        json_out_put(out, ",\"warning_%i\":%s,\"warning_code_%i\":%s", (int64_t)i,
                     ran->warnings[i].text, (int64_t)i, document_warning_code(&ran->warnings[i]));
    json_out_put(out, "},\"outputs\":[");
}

/* The elements of an output in the JSON: flat. */
static void write_data(struct making *making, const struct blasd_output *output) {
    struct blasd_output flat = *output;
    const char *bytes = making->payload == NULL ? NULL : making->payload + output->offset;
    flat.tensor.shape[0] = blasd_tensor_elements(&output->tensor);
    flat.tensor.rank = 1;
    json_out_put(&making->out, ",\"data\":");
    if (!making->mixed)
        blasd_answer_add(making->answer, &flat, making->payload,
                         blasd_answer_text(making->answer)->len, true);
    else if (bytes == NULL)
        json_out_put(&making->out, "[]");
    else
        document_elements(&making->out, &flat.tensor, bytes);
}

static void write_output(struct making *making, const struct blasd_oip_output *output) {
    const struct blasd_output *from = &making->record->outputs[output->position];
    struct json_out *out = &making->out;
    json_out_put(out, "{\"name\":%s,\"datatype\":\"%r\",\"shape\":",
                 document_output(making->record, output->position)->name,
                 blasd_oip_datatype(from->tensor.dtype));
    document_shape(out, &from->tensor);
    if (output->binary)
        json_out_put(out, ",\"parameters\":{\"binary_data_size\":%u}",
                     blasd_tensor_bytes(&from->tensor));
    else
        write_data(making, from);
    json_out_put(out, "}");
}

/* Writes the whole answer; *header_bytes as of blasd_oip_answer. */
static void write_answer(struct making *making, const struct blasd_oip *oip,
                         const struct blasd_oip_output *chosen, int count, size_t *header_bytes) {
    struct blasd_buf *text = blasd_answer_text(making->answer);
    making->out.buf = text;
    for (int i = 0; i < count; i++) making->mixed = making->mixed || chosen[i].binary;
    write_head(making, oip);
    for (int i = 0; i < count; i++) {
        if (i > 0) json_out_put(&making->out, ",");
        write_output(making, &chosen[i]);
    }
    json_out_put(&making->out, "]}");
    *header_bytes = making->mixed ? text->len : 0;
    for (int i = 0; i < count; i++)
        if (chosen[i].binary)
            blasd_answer_add(making->answer, &making->record->outputs[chosen[i].position],
                             making->payload, text->len, false);
}

struct blasd_answer *blasd_oip_answer(const struct blasd_record *record, const void *payload,
                                      const struct blasd_oip *oip, size_t *header_bytes,
                                      struct blasd_err *err) {
    struct making making = {.record = record, .payload = payload};
    struct blasd_oip_output chosen[BLASD_MAX_OUTPUTS];
    int count = choose_outputs(record, oip, chosen, err);
    for (int i = 0; i < count; i++)
        if (check_output(record, &chosen[i], err) != 0) return NULL;
    if (count < 0) return NULL;
    making.answer = blasd_answer_begin(count, TEXT_MOST);
    if (making.answer != NULL) write_answer(&making, oip, chosen, count, header_bytes);
    if (making.answer != NULL && !making.out.failed && blasd_answer_end(making.answer))
        return making.answer;
    blasd_answer_free(making.answer);
    blasd_fail(err, BLASD_E_no_space, "",
               "the answer does not fit into memory; ask for large outputs with binary_data");
    return NULL;
}

int blasd_oip_problem(const struct blasd_err *problem, struct blasd_buf *buf) {
    const struct blasd_err_info *info = blasd_err_info(problem->code);
    struct json_out out = {.buf = buf};
    size_t before = buf->len;
    json_out_put(&out, "{\"error\":\"%r: ", info->name);
    if (problem->field[0] != '\0') {
        json_out_escaped(&out, problem->field, strlen(problem->field));
        json_out_put(&out, ": ");
    }
    if (problem->detail[0] != '\0')
        json_out_escaped(&out, problem->detail, strlen(problem->detail));
    else
        json_out_escaped(&out, info->title, strlen(info->title));
    json_out_put(&out, ". ");
    json_out_escaped(&out, info->advice, strlen(info->advice));
    json_out_put(&out, "\"}");
    return document_end(&out, before);
}
