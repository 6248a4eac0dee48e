/* Jobs as frames: the head below, a row for each input that is given, 8 bytes for each parameter,
 * and sections for what few jobs have, each a multiple of 8 bytes. Inputs, outputs and parameters
 * go by position, so `form` says which descriptor these are of: a process whose operation has
 * another one refuses the job. All parameters are written, defaults too: a job means what it meant
 * when it was sent. Read next: frame_record.c, frame_graph.c. */
#include "wire/frame.h"

#include "wire/frame_parts.h"

#include <stddef.h>
#include <string.h>

#define MAGIC "BLJF"
#define SCHEMA 2
#define TRACED 0x80u /* in the header's byte of the priority */

struct head {
    struct frame_header header;
    int64_t deadline_ms;
    uint64_t payload_bytes;
    int64_t receive_us, created_us;
    uint8_t trace[BLASD_TRACE_ID], span[BLASD_SPAN_ID];
    uint8_t sampled, place, inputs, params; /* `place` as frame_place says */
    uint32_t form;
    uint64_t slice_offset;
    uint32_t slice_generation, given; /* a bit for each parameter that was sent */
    char segment[BLASD_SEGMENT_NAME];
    char id[48], op[BLASD_NAME_MAX]; /* with zeros behind */
};
_Static_assert(offsetof(struct head, trace) == 48, "queue/functions/records.lua reads it there");
_Static_assert(sizeof(struct head) == 192, "no padding");
_Static_assert(BLASD_ID_LEN < sizeof((struct head *)0)->id, "an id ends");
_Static_assert(BLASD_MAX_PARAMS <= 32, "a bit for each");

struct row {
    uint8_t input, dtype, order, rank, kind, rule, zero[2];
    int64_t first_nonfinite;
    union {
        struct {
            uint64_t offset, bytes;
            int32_t step, output;
        } at;
        unsigned char rule_bytes[24]; /* of what a rule is beside its kind */
    };
    int64_t shape[BLASD_MAX_RANK]; /* with zeros behind */
};
_Static_assert(sizeof(struct row) == 104, "no padding");

enum section_kind { LABELS = 1, KEEPING, REFERENCE, DIGEST };
struct section {
    uint16_t kind, input; /* the position of the input whose reference it is */
    uint32_t bytes;       /* that follow */
};

struct reference {
    char id[48];
    uint64_t blob_bytes;
    uint32_t typed, sliced;
    int64_t from[BLASD_MAX_RANK], to[BLASD_MAX_RANK];
};

struct kept {
    uint64_t keep, withhold;
    uint32_t life_s, zero; /* then, for each output that is kept, the last part of its id */
};

/* ---- writing ---- */

/* Bytes of what a rule of this kind is beside its kind. */
static size_t rule_size(enum blasd_rule_kind kind) {
    switch (kind) {
    case BLASD_RULE_FULL: return BLASD_RULE_VALUE_BYTES;
    case BLASD_RULE_EYE: return 0;
    case BLASD_RULE_UNIFORM:
    case BLASD_RULE_NORMAL: return sizeof(uint64_t);
    default: return sizeof((struct row *)0)->rule_bytes;
    }
}

static void put_input(struct frame_writer *w, int i, const struct blasd_input *input) {
    const struct blasd_tensor *tensor = &input->tensor;
    const struct blasd_source *source = &input->source;
    struct row row = {.input = (uint8_t)i,
                      .dtype = (uint8_t)tensor->dtype,
                      .order = (uint8_t)tensor->order,
                      .rank = (uint8_t)tensor->rank,
                      .kind = (uint8_t)source->kind,
                      .first_nonfinite = input->first_nonfinite};
    memcpy(row.shape, tensor->shape, (size_t)tensor->rank * sizeof *tensor->shape);
    if (source->kind == BLASD_SOURCE_RULE) {
        row.rule = (uint8_t)source->rule.kind;
        memcpy(row.rule_bytes, &source->rule.line, rule_size(source->rule.kind));
    } else {
        row.at.offset = source->offset;
        row.at.bytes = source->bytes;
        row.at.step = source->step;
        row.at.output = source->output;
    }
    frame_put(w, &row, sizeof row);
}

static void put_section(struct frame_writer *w, enum section_kind kind, int input,
                        const void *bytes, size_t n) {
    static const char zeros[8];
    const struct section section = {(uint16_t)kind, (uint16_t)input, (uint32_t)n};
    frame_put(w, &section, sizeof section);
    frame_put(w, bytes, n);
    frame_put(w, zeros, -n % sizeof zeros);
}

static void put_reference(struct frame_writer *w, int i, const struct blasd_reference *from) {
    struct reference reference = {
        .blob_bytes = from->blob_bytes, .typed = from->typed, .sliced = (uint32_t)from->sliced};
    size_t bounds = (size_t)from->sliced * sizeof *from->to;
    memcpy(reference.id, from->id, strnlen(from->id, BLASD_ID_LEN));
    memcpy(reference.from, from->from, bounds);
    memcpy(reference.to, from->to, bounds);
    put_section(w, REFERENCE, i, &reference, sizeof reference);
}

static void put_extras(struct frame_writer *w, const struct blasd_extras *extras) {
    const struct blasd_keeping *keeping = &extras->keeping;
    unsigned char room[sizeof(struct kept) + sizeof keeping->ids];
    const struct kept kept = {keeping->keep, keeping->withhold, keeping->life_s, 0};
    size_t len = sizeof kept;
    if (extras->labels[0] != '\0')
        put_section(w, LABELS, 0, extras->labels, strnlen(extras->labels, BLASD_LABELS_MAX - 1));
    if (extras->digest) put_section(w, DIGEST, 0, NULL, 0);
    if ((keeping->keep | keeping->withhold) == 0) return;
    memcpy(room, &kept, sizeof kept);
    for (int i = 0; i < BLASD_MAX_OUTPUTS; i++) {
        if (!blasd_keeps(keeping, i)) continue;
        memcpy(room + len, keeping->ids[i], sizeof keeping->ids[i]);
        len += sizeof keeping->ids[i];
    }
    put_section(w, KEEPING, 0, room, len);
}

static void fill_head(const struct blasd_job *job, struct head *head) {
    const struct blasd_op *op = job->op;
    for (int i = 0; op->inputs[i].name != NULL; i++) head->inputs += blasd_job_has(job, i);
    head->params = (uint8_t)blasd_op_param_count(op);
    for (int i = 0; i < head->params; i++) head->given |= (uint32_t)job->params[i].given << i;
    memcpy(head->id, job->id, strnlen(job->id, BLASD_ID_LEN));
    memcpy(head->op, op->name, strnlen(op->name, sizeof head->op - 1));
    if (blasd_trace_given(job->trace.id)) {
        head->header.own[0] |= TRACED;
        memcpy(head->trace, job->trace.id, sizeof head->trace);
        memcpy(head->span, job->trace.span, sizeof head->span);
        head->sampled = job->trace.sampled;
    }
    if (head->place == FRAME_IN_SEGMENT) {
        memcpy(head->segment, job->slice.segment, sizeof head->segment);
        head->slice_generation = job->slice.generation;
        head->slice_offset = job->slice.offset;
    }
}

int blasd_job_encode(const struct blasd_job *job, struct blasd_buf *out, struct blasd_err *err) {
    const struct blasd_op *op = job->op;
    unsigned char room[FRAME_MOST];
    struct frame_writer w = {.at = room, .end = room + FRAME_MOST};
    struct head head = {.header = {.magic = MAGIC,
                                   .schema = SCHEMA,
                                   .own = {(uint8_t)job->priority, (uint8_t)job->device,
                                           (uint8_t)job->most_s, (uint8_t)(job->most_s >> 8)}},
                        .deadline_ms = job->deadline_ms,
                        .payload_bytes = job->payload_bytes,
                        .receive_us = job->receive_us,
                        .created_us = job->created_us,
                        .place = (uint8_t)frame_place(job->payload_in_blob, &job->slice),
                        .form = blasd_op_form(op)};
    fill_head(job, &head);
    frame_put(&w, &head, sizeof head);
    for (int i = 0; op->inputs[i].name != NULL; i++)
        if (blasd_job_has(job, i)) put_input(&w, i, &job->inputs[i]);
    for (int i = 0; i < head.params; i++) {
        int64_t bits = blasd_value_bits(&op->params[i], &job->params[i]);
        frame_put(&w, &bits, sizeof bits);
    }
    if (job->extras != NULL) put_extras(&w, job->extras);
    for (int i = 0; op->inputs[i].name != NULL; i++) {
        const struct blasd_input *input = &job->inputs[i];
        if (input->reference != NULL && input->source.kind != BLASD_SOURCE_PAYLOAD)
            put_reference(&w, i, input->reference);
    }
    return frame_end(&w, room, out, err);
}

/* ---- reading ---- */

static bool ends(const char *text, size_t size) {
    return memchr(text, 0, size) != NULL;
}

/* Where the elements of an input are that was read. `of_step`: it is one of a step of a graph. */
static int get_source(const struct row *row, const struct blasd_job *job, bool of_step,
                      struct blasd_input *input, struct blasd_err *err) {
    struct blasd_source *source = &input->source;
    source->kind = (enum blasd_source_kind)row->kind;
    if (row->kind == BLASD_SOURCE_RULE) {
        if (row->rule >= BLASD_RULE_KINDS)
            return frame_broken(err, "a rule is of a kind that is not known");
        source->rule.kind = (enum blasd_rule_kind)row->rule;
        memcpy(&source->rule.line, row->rule_bytes, sizeof row->rule_bytes);
        return 0;
    }
    source->offset = row->at.offset;
    source->bytes = row->at.bytes;
    source->step = row->at.step;
    source->output = row->at.output;
    if (of_step && row->kind == BLASD_SOURCE_STEP) return 0; /* frame_graph.c looks */
    if (source->bytes != blasd_tensor_bytes(&input->tensor))
        return frame_broken(err, "a tensor's shape and bytes do not agree");
    if (of_step && row->kind == BLASD_SOURCE_GIVEN && source->step > 0 &&
        source->step < BLASD_MAX_INPUTS)
        return 0;
    /* where the bytes of what it refers to lie is checked with the blob at hand */
    if (!of_step && blasd_source_refers(source)) return 0;
    if (row->kind != BLASD_SOURCE_PAYLOAD)
        return frame_broken(err, "an input is of a kind that is not known");
    if (source->offset % FRAME_ALIGN != 0 || source->bytes > job->payload_bytes ||
        source->offset > job->payload_bytes - source->bytes)
        return frame_broken(err, "a tensor lies outside the payload");
    return 0;
}

static int get_input(struct frame_reader *r, struct blasd_job *job, int inputs, bool of_step,
                     struct blasd_err *err) {
    struct blasd_input *input;
    struct row row;
    int code;
    frame_get(r, &row, sizeof row);
    if (r->bad || row.input >= inputs || blasd_job_has(job, row.input))
        return frame_broken(err, "an input is unknown to its operation, or is given twice");
    if (row.rank > BLASD_MAX_RANK || row.dtype >= BLASD_DTYPE_COUNT ||
        row.order > BLASD_COLUMN_MAJOR)
        return frame_broken(err, "a tensor is of a kind that is not known");
    input = &job->inputs[row.input];
    input->tensor = blasd_tensor_make((enum blasd_dtype)row.dtype, (int)row.rank, row.shape);
    input->tensor.order = (enum blasd_order)row.order;
    input->first_nonfinite = row.first_nonfinite;
    if (blasd_tensor_check(&input->tensor, "", NULL) != 0)
        return frame_broken(err, "a tensor's shape cannot be one");
    if ((code = get_source(&row, job, of_step, input, err)) != 0) return code;
    if (row.first_nonfinite < -1 || row.first_nonfinite >= blasd_tensor_elements(&input->tensor))
        return frame_broken(err, "an input points outside its elements");
    return 0;
}

static int get_param(struct frame_reader *r, const struct blasd_param *param, bool given,
                     struct blasd_value *value, struct blasd_err *err) {
    int64_t bits, choices = 0;
    frame_get(r, &bits, sizeof bits);
    *value = (struct blasd_value){.given = given};
    switch (param->kind) {
    case BLASD_PARAM_BOOL:
        value->b = bits != 0;
        r->bad |= bits < 0 || bits > 1;
        break;
    case BLASD_PARAM_INT: value->i = bits; break;
    case BLASD_PARAM_FLOAT: memcpy(&value->f, &bits, sizeof bits); break;
    case BLASD_PARAM_CHOICE:
        while (param->choices[choices] != NULL) choices++;
        value->choice = (int)bits;
        r->bad |= bits < 0 || bits >= choices;
        break;
    }
    return r->bad ? frame_broken(err, "a parameter has no value") : 0;
}

static int get_reference(struct frame_reader *r, struct blasd_input *input, struct blasd_err *err) {
    struct blasd_reference *to;
    struct reference from;
    bool refers = blasd_source_refers(&input->source);
    frame_get(r, &from, sizeof from);
    if (r->bad || input->reference != NULL || !ends(from.id, BLASD_ID_LEN + 1) || from.typed > 1 ||
        from.sliced > (refers ? (uint32_t)input->tensor.rank : BLASD_MAX_RANK) ||
        (refers && from.sliced != 0 && from.sliced != (uint32_t)input->tensor.rank))
        return frame_broken(err, "a reference is not well formed");
    for (uint32_t i = 0; refers && i < from.sliced; i++)
        if (from.to[i] < 0 || from.to[i] > INT64_C(1) << 61)
            return frame_broken(err, "a reference has steps that it cannot have");
    if (refers && !(input->source.kind == BLASD_SOURCE_TENSOR ? blasd_id_tensor_valid(from.id)
                                                              : blasd_id_valid(from.id)))
        return frame_broken(err, "a reference has no id");
    if ((to = blasd_input_refer(input)) == NULL) return blasd_no_memory(err);
    memcpy(to->id, from.id, sizeof to->id);
    to->blob_bytes = from.blob_bytes;
    to->typed = from.typed == 1;
    to->sliced = (int)from.sliced;
    memcpy(to->from, from.from, sizeof to->from);
    memcpy(to->to, from.to, sizeof to->to);
    return 0;
}

static int get_keeping(struct frame_reader *r, struct blasd_keeping *keeping,
                       struct blasd_err *err) {
    struct kept kept;
    frame_get(r, &kept, sizeof kept);
    keeping->keep = kept.keep;
    keeping->withhold = kept.withhold;
    keeping->life_s = kept.life_s;
    for (int i = 0; i < BLASD_MAX_OUTPUTS; i++) {
        if (!blasd_keeps(keeping, i)) continue;
        frame_get(r, keeping->ids[i], sizeof keeping->ids[i]);
        r->bad |= !ends(keeping->ids[i], sizeof keeping->ids[i]);
    }
    return r->bad ? frame_broken(err, "a section ends early") : 0;
}

static int get_section(struct frame_reader *r, const struct section *section, int inputs,
                       struct blasd_job *job, struct blasd_err *err) {
    struct blasd_extras *extras;
    if (section->kind == REFERENCE)
        return section->input < inputs && blasd_job_has(job, section->input)
                   ? get_reference(r, &job->inputs[section->input], err)
                   : frame_broken(err, "a reference belongs to no input");
    if ((extras = blasd_job_extras(job)) == NULL) return blasd_no_memory(err);
    if (section->kind == KEEPING) return get_keeping(r, &extras->keeping, err);
    if (section->kind == DIGEST) {
        extras->digest = true;
        return 0;
    }
    if (section->kind != LABELS || section->bytes >= BLASD_LABELS_MAX)
        return frame_broken(err, "a section is of a kind that is not known");
    memset(extras->labels, 0, sizeof extras->labels);
    frame_get(r, extras->labels, section->bytes);
    return blasd_labels_valid(extras->labels) ? 0 : frame_broken(err, "its labels are invalid");
}

/* What stands behind the parameters, where that is not yet the padding. */
static int get_sections(struct frame_reader *r, int inputs, struct blasd_job *job,
                        struct blasd_err *err) {
    int code = 0;
    while (code == 0 && r->end - r->at >= (ptrdiff_t)sizeof(struct section) && r->at[0] != 0) {
        struct section section;
        struct frame_reader inside;
        frame_get(r, &section, sizeof section);
        inside = *r;
        if (section.bytes > (size_t)(r->end - r->at))
            return frame_broken(err, "a section ends early");
        inside.end = inside.at + section.bytes;
        code = get_section(&inside, &section, inputs, job, err);
        if (code == 0 && inside.at != inside.end)
            return frame_broken(err, "a section is longer than its content");
        r->at += section.bytes;
        for (uint32_t n = section.bytes; n % 8 != 0; n++) frame_get_u8(r);
    }
    return code;
}

static int get_head(const struct head *head, struct blasd_job *job, struct blasd_err *err) {
    job->priority = (enum blasd_priority)(head->header.own[0] & ~TRACED);
    job->device = (enum blasd_device_class)head->header.own[1];
    job->most_s = (uint16_t)(head->header.own[2] | head->header.own[3] << 8);
    job->deadline_ms = head->deadline_ms;
    job->payload_bytes = head->payload_bytes;
    job->receive_us = head->receive_us;
    job->created_us = head->created_us;
    job->payload_in_blob = head->place == FRAME_IN_BLOB;
    memcpy(job->id, head->id, BLASD_ID_LEN);
    if ((head->header.own[0] & TRACED) != 0) {
        memcpy(job->trace.id, head->trace, sizeof head->trace);
        memcpy(job->trace.span, head->span, sizeof head->span);
        job->trace.sampled = head->sampled == 1;
        if (head->sampled > 1 || !blasd_trace_given(job->trace.id))
            return frame_broken(err, "its trace is invalid");
    }
    if (head->place == FRAME_IN_SEGMENT) {
        memcpy(job->slice.segment, head->segment, sizeof head->segment);
        job->slice.generation = head->slice_generation;
        job->slice.offset = head->slice_offset;
    }
    if ((int)job->priority >= BLASD_PRIORITY_COUNT || (int)job->device >= BLASD_DEVICE_CLASS_COUNT)
        return frame_broken(err, "its priority or device class is not known");
    return frame_check_place(head->place, &job->slice, err);
}

static int get_body(struct frame_reader *r, const struct head *head, bool of_step,
                    struct blasd_job *job, struct blasd_err *err) {
    int inputs = blasd_op_input_count(job->op), code = 0;
    for (int i = 0; code == 0 && i < head->inputs; i++)
        code = get_input(r, job, inputs, of_step, err);
    for (int i = 0; code == 0 && i < head->params; i++)
        code = get_param(r, &job->op->params[i], (head->given >> i & 1) != 0, &job->params[i], err);
    if (code == 0) code = get_sections(r, inputs, job, err);
    for (int i = 0; code == 0 && i < inputs; i++)
        if (blasd_source_refers(&job->inputs[i].source) && job->inputs[i].reference == NULL)
            return frame_broken(err, "a reference has no id");
    return code;
}

static int decode(struct frame_reader *r, const struct head *head, const uint64_t *within,
                  struct blasd_job *job, struct blasd_err *err) {
    const struct blasd_op *op;
    int code;
    if (!ends(head->op, sizeof head->op)) return frame_broken(err, "its operation has no end");
    op = blasd_op_find(head->op);
    if (op == NULL)
        return blasd_fail(err, BLASD_E_unknown_operation, "op", "this worker has no operation '%s'",
                          head->op);
    if (head->form != blasd_op_form(op) || head->params != blasd_op_param_count(op))
        return blasd_fail(err, BLASD_E_unknown_operation, "op",
                          "this worker's %s is of another version than that of the front end",
                          op->name);
    blasd_job_init(job, op);
    if ((code = get_head(head, job, err)) != 0) return code;
    if (within != NULL)
        job->payload_bytes = *within;
    else if (!blasd_id_valid(job->id))
        return frame_broken(err, "its id is not one");
    return get_body(r, head, within != NULL, job, err);
}

int frame_get_job(const void *frame, size_t len, const uint64_t *within, struct blasd_job *job,
                  size_t *payload_at, struct blasd_err *err) {
    struct frame_reader r;
    struct head head;
    int code = frame_open(frame, len, MAGIC, SCHEMA, &head.header, &r, err);
    job->op = NULL;
    if (code != 0) return code;
    frame_get(&r, &head, sizeof head);
    if (r.bad) return frame_broken(err, "its head ends early");
    code = decode(&r, &head, within, job, err);
    if (code == 0)
        code = frame_close(&r, frame, len, job->payload_bytes,
                           within != NULL || job->payload_in_blob || blasd_slice_given(&job->slice),
                           payload_at, err);
    if (code != 0) blasd_job_release(job);
    return code;
}

int blasd_job_decode(const void *frame, size_t len, struct blasd_job *job, size_t *payload_at,
                     struct blasd_err *err) {
    return frame_get_job(frame, len, NULL, job, payload_at, err);
}

size_t blasd_job_frame_size(const void *frame, size_t len) {
    struct frame_header header;
    if (len < sizeof header) return len;
    memcpy(&header, frame, sizeof header);
    return header.size < len ? header.size : len;
}
