/* Records as frames: a head in which every number has its place, so that a function inside Redis
 * reads and writes it with struct.unpack and struct.pack (queue/functions/records.lua); then
 *
 *     labels               only where the head says so, and the one text that is never ""
 *     error                the name of its code, "" where there is none; field; detail
 *     device, device_name, method, as many warnings as the head says
 *     outputs              as many as the head says; of each: its name, the tensor
 *     trace                its id, 16 bytes, only where the head says so
 *     remaining_us         8, of one that runs
 *     where some are kept or withheld: 1, how many 1, the life of tensors 4; of each: its name, the
 *                          tensor, 1: 1 kept, 2 withheld, and where it is kept the last part of its
 * id
 *     where there are warnings: 2; of each the number of its code, 1
 *
 * where a text is a byte of length and its bytes. Only a job that succeeded has outputs. */
#include "wire/frame.h"

#include "wire/frame_parts.h"

#include <math.h>
#include <string.h>

#define MAGIC "BLRF"
#define SCHEMA 2

enum own { STATE, PRIORITY, DEVICE, PLACE }; /* the header's own bytes */

/* Texts end in a zero. */
struct head {
    struct frame_header header;
    int64_t created_us, started_us, finished_us;
    double progress;
    int64_t timing[7]; /* as in struct blasd_timing */
    uint32_t batch_size, attempts;
    double flops;
    uint64_t bytes;
    double energy_joules;                 /* 0: not known */
    uint64_t payload_bytes, slice_offset; /* of what lies in no segment: the error's `least` */
    uint32_t slice_generation;
    uint8_t warnings, outputs;
    uint8_t labels, traced; /* whether there are any labels, and a trace */
    char segment[BLASD_SEGMENT_NAME];
    char id[48];
    char op[BLASD_NAME_MAX];
};

#define AT(member, where)                                                                          \
    _Static_assert(offsetof(struct head, member) == (where), #member " has its place in records")
AT(header.own, BLASD_RECORD_STATE_AT);
AT(created_us, 16);
AT(started_us, 24);
AT(finished_us, 32);
AT(progress, 40);
AT(timing, 48);
AT(batch_size, 104);
AT(attempts, 108);
AT(flops, 112);
AT(bytes, 120);
AT(energy_joules, 128);
AT(payload_bytes, 136);
AT(slice_offset, 144);
AT(slice_generation, 152);
AT(warnings, 156);
AT(outputs, 157);
AT(labels, 158);
AT(traced, 159);
AT(segment, 160);
AT(id, 176);
AT(op, 224);
_Static_assert(sizeof(struct head) == 256, "the texts of a record begin at 256");
_Static_assert(sizeof(struct blasd_timing) == sizeof((struct head){0}.timing), "all of them");

static void copy_text(char *out, size_t size, const char *text) {
    memcpy(out, text, strnlen(text, size - 1));
}

static struct head head_of(const struct blasd_record *record) {
    const struct blasd_execution *execution = &record->execution;
    struct head head = {
        .header = {.magic = MAGIC,
                   .schema = SCHEMA,
                   .own = {[STATE] = (uint8_t)record->state,
                           [PRIORITY] = (uint8_t)record->priority,
                           [DEVICE] = (uint8_t)record->device,
                           [PLACE] =
                               (uint8_t)frame_place(record->payload_in_blob, &record->slice)}},
        .created_us = record->created_us,
        .started_us = record->started_us,
        .finished_us = record->finished_us,
        .progress = record->progress > 0 ? fmin(record->progress, 1) : 0, /* of NaN, too */
        .batch_size = (uint32_t)execution->batch_size,
        .attempts = (uint32_t)execution->attempts,
        .flops = execution->flops,
        .bytes = execution->bytes,
        .payload_bytes = record->payload_bytes,
        .labels = record->labels[0] != '\0',
        .traced = blasd_trace_given(record->trace_id),
    };
    memcpy(head.timing, &record->timing, sizeof head.timing);
    if (execution->energy_joules > 0 && isfinite(execution->energy_joules))
        head.energy_joules = execution->energy_joules;
    if (execution->warning_count > 0)
        head.warnings = execution->warning_count > BLASD_MAX_WARNINGS
                            ? BLASD_MAX_WARNINGS
                            : (uint8_t)execution->warning_count;
    if (head.header.own[PLACE] == FRAME_IN_SEGMENT) {
        head.slice_generation = record->slice.generation;
        head.slice_offset = record->slice.offset;
        memcpy(head.segment, record->slice.segment, sizeof head.segment);
    } else if (record->error.code != BLASD_OK)
        head.slice_offset = (uint64_t)record->error.least;
    copy_text(head.id, sizeof record->id, record->id);
    copy_text(head.op, sizeof head.op, record->op);
    return head;
}

static void put_texts(struct frame_writer *w, const struct blasd_record *record, int warnings) {
    const struct blasd_err *error = &record->error;
    const struct blasd_execution *execution = &record->execution;
    bool bad = error->code != BLASD_OK;
    if (record->labels[0] != '\0') frame_put_text(w, record->labels, sizeof record->labels);
    frame_put_text(w, bad ? blasd_err_info(error->code)->name : "", 255);
    frame_put_text(w, bad ? error->field : "", sizeof error->field);
    frame_put_text(w, bad ? error->detail : "", sizeof error->detail);
    frame_put_text(w, execution->device, sizeof execution->device);
    frame_put_text(w, execution->device_name, sizeof execution->device_name);
    frame_put_text(w, execution->method, sizeof execution->method);
    for (int i = 0; i < warnings; i++)
        frame_put_text(w, execution->warnings[i].text, BLASD_WARNING_MAX);
}

/* What begins a part that not every record has, and what is told of an output in the first one. */
enum { KEEPING = 1, WARNED = 2, DIGESTED = 3 };
enum { KEPT = 1, WITHHELD = 2 };

static void put_keeping(struct frame_writer *w, const struct blasd_op *op,
                        const struct blasd_record *record) {
    const struct blasd_keeping *keeping = &record->keeping;
    unsigned count = 0;
    if (op == NULL || (keeping->keep | keeping->withhold) == 0) return;
    for (int i = 0; op->outputs[i].name != NULL; i++)
        if (blasd_record_has(record, i) && (blasd_keeps(keeping, i) || blasd_withholds(keeping, i)))
            count++;
    frame_put_u8(w, KEEPING);
    frame_put_u8(w, count);
    frame_put(w, &keeping->life_s, sizeof keeping->life_s);
    for (int i = 0; op->outputs[i].name != NULL; i++) {
        const struct blasd_tensor *tensor = &record->outputs[i].tensor;
        bool keep = blasd_keeps(keeping, i), withhold = blasd_withholds(keeping, i);
        if (!blasd_record_has(record, i) || (!keep && !withhold)) continue;
        frame_put_text(w, op->outputs[i].name, BLASD_NAME_MAX);
        frame_put_tensor(w, tensor, 0, blasd_tensor_bytes(tensor));
        frame_put_u8(w, (keep ? KEPT : 0) | (withhold ? WITHHELD : 0));
        if (keep) frame_put_text(w, keeping->ids[i], sizeof keeping->ids[i]);
    }
}

/* Digests go by the outputs' names, as an older or newer version has others. */
static void put_digests(struct frame_writer *w, const struct blasd_op *op,
                        const struct blasd_record *record) {
    unsigned count = 0;
    if (op == NULL || !record->digested) return;
    for (int i = 0; op->outputs[i].name != NULL; i++) count += blasd_record_has(record, i);
    frame_put_u8(w, DIGESTED);
    frame_put_u8(w, count);
    for (int i = 0; op->outputs[i].name != NULL; i++) {
        if (!blasd_record_has(record, i)) continue;
        frame_put_text(w, op->outputs[i].name, BLASD_NAME_MAX);
        frame_put(w, record->digests[i], sizeof record->digests[i]);
    }
}

int blasd_record_encode(const struct blasd_record *record, struct blasd_buf *out,
                        struct blasd_err *err) {
    /* a graph that failed has outputs, too: what became of its steps */
    bool has = record->state == BLASD_SUCCEEDED || record->payload_bytes > 0;
    const struct blasd_op *op = has ? blasd_op_find(record->op) : NULL;
    struct head head = head_of(record);
    unsigned char room[FRAME_MOST];
    struct frame_writer w = {.at = room, .end = room + FRAME_MOST};
    frame_put(&w, &head, sizeof head);
    put_texts(&w, record, head.warnings);
    for (int i = 0; op != NULL && op->outputs[i].name != NULL; i++) {
        const struct blasd_output *output = &record->outputs[i];
        if (!blasd_record_sends(record, i)) continue;
        if (output->tensor.order != BLASD_ROW_MAJOR)
            return blasd_fail(err, BLASD_E_internal_error, "", "the output '%s' is not row-major",
                              op->outputs[i].name);
        frame_put_text(&w, op->outputs[i].name, BLASD_NAME_MAX);
        frame_put_tensor(&w, &output->tensor, output->offset, output->bytes);
        head.outputs++;
    }
    room[offsetof(struct head, outputs)] = head.outputs;
    if (head.traced) frame_put(&w, record->trace_id, sizeof record->trace_id);
    if (record->state == BLASD_RUNNING) frame_put(&w, &record->remaining_us, sizeof(int64_t));
    put_keeping(&w, op, record);
    if (head.warnings > 0) frame_put_u8(&w, WARNED);
    for (int i = 0; i < head.warnings; i++)
        frame_put_u8(&w, (unsigned)record->execution.warnings[i].code);
    put_digests(&w, op, record);
    return frame_end(&w, room, out, err);
}

static int get_head(const struct head *head, struct blasd_record *record, struct blasd_err *err) {
    struct blasd_execution *execution = &record->execution;
    const uint8_t *own = head->header.own;
    if (own[STATE] >= BLASD_STATE_COUNT || own[PRIORITY] >= BLASD_PRIORITY_COUNT ||
        own[DEVICE] >= BLASD_DEVICE_CLASS_COUNT)
        return frame_broken(err, "its state, priority or device class is not known");
    record->state = (enum blasd_state)own[STATE];
    record->priority = (enum blasd_priority)own[PRIORITY];
    record->device = (enum blasd_device_class)own[DEVICE];
    record->payload_in_blob = own[PLACE] == FRAME_IN_BLOB;
    record->created_us = head->created_us;
    record->started_us = head->started_us;
    record->finished_us = head->finished_us;
    record->progress = head->progress;
    memcpy(&record->timing, head->timing, sizeof record->timing);
    execution->batch_size = (int)head->batch_size;
    execution->attempts = (int)head->attempts;
    execution->flops = head->flops;
    execution->bytes = head->bytes;
    execution->energy_joules = head->energy_joules;
    record->payload_bytes = head->payload_bytes;
    if (own[PLACE] == FRAME_IN_SEGMENT) {
        record->slice.generation = head->slice_generation;
        record->slice.offset = head->slice_offset;
        memcpy(record->slice.segment, head->segment, sizeof head->segment);
    } else
        record->error.least = (int64_t)head->slice_offset;
    if (!(record->progress >= 0 && record->progress <= 1) || head->labels > 1 || head->traced > 1 ||
        head->warnings > BLASD_MAX_WARNINGS)
        return frame_broken(err, "a field has a value it cannot have");
    execution->warning_count = head->warnings;
    if (!(execution->energy_joules >= 0) || !isfinite(execution->energy_joules))
        return frame_broken(err, "its energy is not a number of 0 or more");
    if (memchr(head->op, 0, sizeof head->op) == NULL)
        return frame_broken(err, "its operation has no end");
    memcpy(record->id, head->id, BLASD_ID_LEN);
    memcpy(record->op, head->op, sizeof record->op);
    if (!blasd_id_valid(record->id)) return frame_broken(err, "its id is not one");
    return frame_check_place(own[PLACE], &record->slice, err);
}

static void get_texts(struct frame_reader *r, bool labels, struct blasd_record *record) {
    struct blasd_err *error = &record->error;
    struct blasd_execution *execution = &record->execution;
    char code[64];
    if (labels) frame_get_text(r, record->labels, sizeof record->labels);
    frame_get_text(r, code, sizeof code);
    if (code[0] != '\0') error->code = blasd_err_code(code);
    frame_get_text(r, error->field, sizeof error->field);
    frame_get_text(r, error->detail, sizeof error->detail);
    if (error->code == BLASD_OK) error->least = 0;
    frame_get_text(r, execution->device, sizeof execution->device);
    frame_get_text(r, execution->device_name, sizeof execution->device_name);
    frame_get_text(r, execution->method, sizeof execution->method);
    for (int i = 0; i < execution->warning_count; i++) {
        execution->warnings[i].code = (enum blasd_warning_code)0;
        frame_get_text(r, execution->warnings[i].text, BLASD_WARNING_MAX);
    }
}

/* An output that this version does not have (the record is of a newer one) is left out. */
static int get_outputs(struct frame_reader *r, unsigned count, const struct blasd_op *op,
                       struct blasd_record *record, struct blasd_err *err) {
    if (op != NULL) record->output_count = blasd_op_output_count(op);
    for (int i = 0; i < record->output_count; i++) record->outputs[i].tensor.rank = -1;
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
        if (output.bytes != blasd_tensor_bytes(&output.tensor))
            return frame_broken(err, "a tensor's shape and bytes do not agree");
        at = blasd_op_output(op, name);
        if (at < 0) continue;
        if (record->outputs[at].tensor.rank >= 0)
            return frame_broken(err, "an output stands in it twice");
        record->outputs[at] = output;
    }
    return 0;
}

static int get_keeping(struct frame_reader *r, const struct blasd_op *op,
                       struct blasd_record *record, struct blasd_err *err) {
    struct blasd_keeping *keeping = &record->keeping;
    unsigned count;
    if (op == NULL || r->bad || r->at == r->end || *r->at != KEEPING) return 0;
    r->at++;
    count = frame_get_u8(r);
    frame_get(r, &keeping->life_s, sizeof keeping->life_s);
    for (unsigned i = 0; i < count; i++) {
        char name[BLASD_NAME_MAX], id[sizeof keeping->ids[0]];
        struct blasd_output output = {.offset = 0};
        unsigned flags;
        int at, code;
        frame_get_text(r, name, sizeof name);
        code = frame_get_tensor(r, UINT64_MAX, &output.tensor, &output.offset, &output.bytes, err);
        if (code != 0) return code;
        flags = frame_get_u8(r);
        if ((flags & KEPT) != 0) frame_get_text(r, id, sizeof id);
        at = blasd_op_output(op, name);
        if (at < 0) continue;
        if ((flags & WITHHELD) != 0) record->outputs[at] = output;
        if ((flags & WITHHELD) != 0) keeping->withhold |= UINT64_C(1) << at;
        if ((flags & KEPT) == 0) continue;
        keeping->keep |= UINT64_C(1) << at;
        memcpy(keeping->ids[at], id, sizeof id);
    }
    return r->bad ? frame_broken(err, "a section ends early") : 0;
}

/* Of a record that an older version wrote, codes are 0. */
static void get_codes(struct frame_reader *r, struct blasd_execution *execution) {
    if (r->bad || r->at == r->end || *r->at != WARNED) return;
    r->at++;
    for (int i = 0; i < execution->warning_count; i++)
        execution->warnings[i].code = (enum blasd_warning_code)frame_get_u8(r);
}

static void get_digests(struct frame_reader *r, const struct blasd_op *op,
                        struct blasd_record *record) {
    unsigned count;
    if (op == NULL || r->bad || r->at == r->end || *r->at != DIGESTED) return;
    r->at++;
    count = frame_get_u8(r);
    memset(record->digests, 0, sizeof record->digests);
    for (unsigned i = 0; i < count; i++) {
        char name[BLASD_NAME_MAX];
        uint8_t digest[BLASD_OUTPUT_DIGEST];
        int at;
        frame_get_text(r, name, sizeof name);
        frame_get(r, digest, sizeof digest);
        at = r->bad ? -1 : blasd_op_output(op, name);
        if (at >= 0) memcpy(record->digests[at], digest, sizeof digest);
    }
    record->digested = !r->bad;
}

/* All but what follows: padding, and the payload. */
static int get_record(const void *bytes, size_t len, struct blasd_record *record, struct head *head,
                      struct frame_reader *r, struct blasd_err *err) {
    const struct blasd_op *op;
    int code;
    blasd_record_init(record);
    code = frame_open(bytes, len, MAGIC, SCHEMA, &head->header, r, err);
    if (code != 0) return code;
    frame_get(r, head, sizeof *head);
    if (r->bad) return frame_broken(err, "its head ends early");
    code = get_head(head, record, err);
    if (code != 0) return code;
    op = blasd_op_find(record->op);
    get_texts(r, head->labels == 1, record);
    if (head->labels == 1 && (record->labels[0] == '\0' || !blasd_labels_valid(record->labels)))
        return frame_broken(err, "its labels are invalid");
    code = get_outputs(r, head->outputs, op, record, err);
    if (head->traced == 1) frame_get(r, record->trace_id, sizeof record->trace_id);
    if (record->state == BLASD_RUNNING) frame_get(r, &record->remaining_us, sizeof(int64_t));
    if (code == 0) code = get_keeping(r, op, record, err);
    if (code == 0) get_codes(r, &record->execution);
    if (code == 0) get_digests(r, op, record);
    return code;
}

int blasd_record_decode(const void *bytes, size_t len, struct blasd_record *record,
                        size_t *payload_at, struct blasd_err *err) {
    struct frame_reader r;
    struct head head;
    int code;
    *payload_at = len;
    code = get_record(bytes, len, record, &head, &r, err);
    if (code != 0) return code;
    return frame_close(&r, bytes, len, record->payload_bytes,
                       record->payload_in_blob || blasd_slice_given(&record->slice), payload_at,
                       err);
}

int blasd_record_decode_bare(const void *bytes, size_t len, struct blasd_record *record,
                             size_t *size, struct blasd_err *err) {
    struct frame_reader r;
    struct head head;
    int code = get_record(bytes, len, record, &head, &r, err);
    if (code != 0) return code;
    if (r.bad) return frame_broken(err, "it ends early");
    *size = head.header.size;
    return 0;
}
