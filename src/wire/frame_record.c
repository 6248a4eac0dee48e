/* Records as frames. The body, after the header that frame_parts.h shows:
 *
 *     id, operation                              texts: a byte of length, then the bytes
 *     created_us, started_us, finished_us, progress, the seven timings      8 bytes each
 *     device, device_name, method                texts
 *     warnings                                   1, then the texts
 *     batch_size, attempts                       4 each
 *     flops, bytes                               8 each
 *     error                                      its code's name; where that is not "": field,
 *                                                detail
 *     payload_bytes                              8
 *     place of the payload                       see frame_put_place
 *     energy                                     1: 1 where energy_joules, 8, follows
 *     outputs there are                          1, then for each: name, tensor
 *
 * Only a job that succeeded has outputs. Read next: frame_terse.c. */
#include "wire/frame.h"

#include "wire/frame_parts.h"
#include "wire/frame_terse.h"

#include <math.h>

#define MAGIC "BLRF"

/* The timings in the order they are stored. */
#define TIMINGS 7
static const size_t timings[TIMINGS] = {
    offsetof(struct blasd_timing, receive_us),    offsetof(struct blasd_timing, queue_us),
    offsetof(struct blasd_timing, batch_wait_us), offsetof(struct blasd_timing, upload_us),
    offsetof(struct blasd_timing, compute_us),    offsetof(struct blasd_timing, download_us),
    offsetof(struct blasd_timing, total_us),
};

static void put_execution(struct frame_writer *w, const struct blasd_execution *execution) {
    int warnings = execution->warning_count;
    if (warnings < 0) warnings = 0;
    if (warnings > BLASD_MAX_WARNINGS) warnings = BLASD_MAX_WARNINGS;
    frame_put_text(w, execution->device, sizeof execution->device);
    frame_put_text(w, execution->device_name, sizeof execution->device_name);
    frame_put_text(w, execution->method, sizeof execution->method);
    frame_put_u8(w, (unsigned)warnings);
    for (int i = 0; i < warnings; i++)
        frame_put_text(w, execution->warnings[i], sizeof execution->warnings[i]);
    frame_put_u32(w, (uint32_t)execution->batch_size);
    frame_put_u32(w, (uint32_t)execution->attempts);
    frame_put_f64(w, execution->flops);
    frame_put_u64(w, execution->bytes);
}

static void put_error(struct frame_writer *w, const struct blasd_err *error) {
    if (error->code == BLASD_OK) {
        frame_put_u8(w, 0);
        return;
    }
    frame_put_text(w, blasd_err_info(error->code)->name, 255);
    frame_put_text(w, error->field, sizeof error->field);
    frame_put_text(w, error->detail, sizeof error->detail);
}

static int put_outputs(struct frame_writer *w, const struct blasd_record *record,
                       struct blasd_err *err) {
    const struct blasd_op *op = NULL;
    unsigned count = 0;
    if (record->state == BLASD_SUCCEEDED) op = blasd_op_find(record->op);
    for (int i = 0; op != NULL && op->outputs[i].name != NULL; i++) {
        if (record->outputs[i].tensor.rank < 0) continue;
        if (record->outputs[i].tensor.order != BLASD_ROW_MAJOR)
            return blasd_fail(err, BLASD_E_internal_error, "", "the output '%s' is not row-major",
                              op->outputs[i].name);
        count++;
    }
    frame_put_u8(w, count);
    for (int i = 0; op != NULL && op->outputs[i].name != NULL; i++) {
        const struct blasd_output *output = &record->outputs[i];
        if (output->tensor.rank < 0) continue;
        frame_put_text(w, op->outputs[i].name, BLASD_NAME_MAX);
        frame_put_tensor(w, &output->tensor, output->offset, output->bytes);
    }
    return 0;
}

int blasd_record_encode(const struct blasd_record *record, struct blasd_buf *out,
                        struct blasd_err *err) {
    unsigned char room[FRAME_MOST];
    struct frame_writer w =
        frame_begin(room, MAGIC, (unsigned)record->state, (unsigned)record->priority);
    double progress = record->progress;
    bool energy = record->execution.energy_joules > 0 && isfinite(record->execution.energy_joules);
    int code;
    if (!(progress >= 0)) progress = 0; /* NaN too */
    if (progress > 1) progress = 1;
    frame_put_text(&w, record->id, sizeof record->id);
    frame_put_text(&w, record->op, sizeof record->op);
    frame_put_i64(&w, record->created_us);
    frame_put_i64(&w, record->started_us);
    frame_put_i64(&w, record->finished_us);
    frame_put_f64(&w, progress);
    for (int i = 0; i < TIMINGS; i++) {
        int64_t us;
        memcpy(&us, (const char *)&record->timing + timings[i], sizeof us);
        frame_put_i64(&w, us);
    }
    put_execution(&w, &record->execution);
    put_error(&w, &record->error);
    frame_put_u64(&w, record->payload_bytes);
    frame_put_place(&w, record->payload_in_blob, &record->slice);
    frame_put_u8(&w, energy);
    if (energy) frame_put_f64(&w, record->execution.energy_joules);
    code = put_outputs(&w, record, err);
    if (code != 0) return code;
    return frame_end(&w, room, out, err);
}

static void get_execution(struct frame_reader *r, struct blasd_execution *execution) {
    unsigned warnings;
    frame_get_text(r, execution->device, sizeof execution->device);
    frame_get_text(r, execution->device_name, sizeof execution->device_name);
    frame_get_text(r, execution->method, sizeof execution->method);
    warnings = frame_get_u8(r);
    if (warnings > BLASD_MAX_WARNINGS) {
        r->bad = true;
        return;
    }
    execution->warning_count = (int)warnings;
    for (unsigned i = 0; i < warnings; i++)
        frame_get_text(r, execution->warnings[i], sizeof execution->warnings[i]);
    execution->batch_size = (int)frame_get_u32(r);
    execution->attempts = (int)frame_get_u32(r);
    execution->flops = frame_get_f64(r);
    execution->bytes = frame_get_u64(r);
}

static void get_error(struct frame_reader *r, struct blasd_err *error) {
    char code[64];
    frame_get_text(r, code, sizeof code);
    if (code[0] == '\0') return;
    error->code = blasd_err_code(code);
    frame_get_text(r, error->field, sizeof error->field);
    frame_get_text(r, error->detail, sizeof error->detail);
}

/* An output that this version does not have (the record is of a newer one) is left out. */
static int get_outputs(struct frame_reader *r, struct blasd_record *record, struct blasd_err *err) {
    unsigned count = frame_get_u8(r);
    const struct blasd_op *op = count == 0 ? NULL : blasd_op_find(record->op);
    if (count != 0 && op == NULL)
        return blasd_fail(err, BLASD_E_unknown_operation, "op",
                          "this version has no operation '%s'", record->op);
    for (unsigned i = 0; i < count; i++) {
        char name[BLASD_NAME_MAX];
        struct blasd_output output = {.offset = 0};
        int at, code;
        frame_get_text(r, name, sizeof name);
        code = frame_get_tensor(r, record->payload_bytes, &output.tensor, &output.offset,
                                &output.bytes, err);
        if (code != 0) return code;
        at = blasd_op_output(op, name);
        if (at < 0) continue;
        if (record->outputs[at].tensor.rank >= 0)
            return frame_broken(err, "an output stands in it twice");
        record->outputs[at] = output;
    }
    return 0;
}

static int get_record(struct frame_reader *r, struct blasd_record *record, struct blasd_err *err) {
    unsigned energy;
    int code;
    frame_get_text(r, record->id, sizeof record->id);
    frame_get_text(r, record->op, sizeof record->op);
    record->created_us = frame_get_i64(r);
    record->started_us = frame_get_i64(r);
    record->finished_us = frame_get_i64(r);
    record->progress = frame_get_f64(r);
    for (int i = 0; i < TIMINGS; i++) {
        int64_t us = frame_get_i64(r);
        memcpy((char *)&record->timing + timings[i], &us, sizeof us);
    }
    get_execution(r, &record->execution);
    get_error(r, &record->error);
    record->payload_bytes = frame_get_u64(r);
    code = frame_get_place(r, &record->payload_in_blob, &record->slice, err);
    if (code != 0) return code;
    energy = frame_get_u8(r);
    if (r->bad || energy > 1 || !(record->progress >= 0 && record->progress <= 1))
        return frame_broken(err, "a field ends early or has a value it cannot have");
    if (!blasd_id_valid(record->id)) return frame_broken(err, "its id is not one");
    if (energy != 0) {
        record->execution.energy_joules = frame_get_f64(r);
        if (r->bad || !(record->execution.energy_joules > 0) ||
            !isfinite(record->execution.energy_joules))
            return frame_broken(err, "its energy is not a number above 0");
    }
    return get_outputs(r, record, err);
}

int blasd_record_decode(const void *bytes, size_t len, struct blasd_record *record,
                        size_t *payload_at, struct blasd_err *err) {
    struct frame_reader r;
    unsigned state, priority;
    int code;
    memset(record, 0, sizeof *record);
    for (int i = 0; i < BLASD_MAX_OUTPUTS; i++) record->outputs[i].tensor.rank = -1;
    *payload_at = len;
    if (frame_is_terse(bytes, len)) return frame_terse_decode(bytes, len, record, err);
    code = frame_open(bytes, len, MAGIC, &r, &state, &priority, err);
    if (code != 0) return code;
    if (state >= BLASD_STATE_COUNT || priority >= BLASD_PRIORITY_COUNT)
        return frame_broken(err, "its state or priority is not known");
    record->state = (enum blasd_state)state;
    record->priority = (enum blasd_priority)priority;
    code = get_record(&r, record, err);
    if (code != 0) return code;
    return frame_close(&r, bytes, len, record->payload_bytes,
                       record->payload_in_blob || blasd_slice_given(&record->slice), payload_at,
                       err);
}
