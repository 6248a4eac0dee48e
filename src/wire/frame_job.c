/* Jobs as frames. The body, after the header that frame_parts.h shows:
 *
 *     id, operation           texts: a byte of length, then the bytes
 *     deadline_ms, payload_bytes, receive_us, created_us     8 bytes each
 *     place of the payload    1: 0 behind the frame, 1 in a blob, 2 in a segment; then of a segment
 *                             its name, the generation 4, the offset 8
 *     trace                   only where the header says so: id 16, span 8, sampled 1
 *     inputs given            1, then for each: name, tensor, order 1, source kind 1,
 *                             first_nonfinite 8; then of a rule its kind 1 and 24 that depend on
 *                             the kind, and its tensor has no bytes; of a source that refers to a
 *                             blob its id, where in it 8, bytes of the blob 8, 1: 0 or the rank,
 *                             then a stride 8 for each; of a step's that the graph is given,
 *                             which input of the graph 1
 *     parameters              1, then for each: name, kind 1, given 1, value (bool 1, int and
 *                             float 8, choice: its name)
 *     where outputs are kept or withheld: 1, bits of both 8 8, the tensors' life 4, and for each
 *                             that is kept the last part of its id
 *     labels                  a text of more than one byte, which is not there where there are none
 *
 * All parameters are written, defaults too: a job means what it meant when it was sent, also to a
 * version with other defaults. Read next: frame_record.c, frame_graph.c. */
#include "wire/frame.h"

#include "wire/frame_parts.h"

#include <string.h>

#define MAGIC "BLJF"
#define SCHEMA 1
#define TRACED 0x80u /* in the header's byte of the priority */

/* What every job has, behind its id and operation. */
struct numbers {
    int64_t deadline_ms;
    uint64_t payload_bytes;
    int64_t receive_us, created_us;
};
_Static_assert(sizeof(struct numbers) == 32, "no padding");

static void put_reference(struct frame_writer *w, const struct blasd_input *input) {
    const struct blasd_reference *reference = input->reference;
    frame_put_text(w, reference->id, sizeof reference->id);
    frame_put(w, &input->source.offset, sizeof input->source.offset);
    frame_put(w, &reference->blob_bytes, sizeof reference->blob_bytes);
    frame_put_u8(w, (unsigned)reference->sliced);
    frame_put(w, reference->to, (size_t)reference->sliced * sizeof *reference->to);
}

static void put_keeping(struct frame_writer *w, const struct blasd_keeping *keeping) {
    if (keeping->keep == 0 && keeping->withhold == 0) return;
    frame_put_u8(w, 1);
    frame_put(w, &keeping->keep, sizeof keeping->keep);
    frame_put(w, &keeping->withhold, sizeof keeping->withhold);
    frame_put(w, &keeping->life_s, sizeof keeping->life_s);
    for (int i = 0; i < BLASD_MAX_OUTPUTS; i++)
        if (blasd_keeps(keeping, i)) frame_put_text(w, keeping->ids[i], sizeof keeping->ids[i]);
}

#define RULE_BYTES 24 /* of what a rule is beside its kind */
_Static_assert(sizeof(((struct blasd_rule *)0)->line) == RULE_BYTES, "the longest of them");

static void put_rule(struct frame_writer *w, const struct blasd_rule *rule) {
    unsigned char bytes[RULE_BYTES] = {0};
    if (rule->kind == BLASD_RULE_FULL)
        memcpy(bytes, rule->value, sizeof rule->value);
    else if (rule->kind == BLASD_RULE_UNIFORM || rule->kind == BLASD_RULE_NORMAL)
        memcpy(bytes, &rule->seed, sizeof rule->seed);
    else if (rule->kind != BLASD_RULE_EYE)
        memcpy(bytes, &rule->line, sizeof rule->line);
    frame_put_u8(w, (unsigned)rule->kind);
    frame_put(w, bytes, sizeof bytes);
}

static void put_input(struct frame_writer *w, const struct blasd_port *port,
                      const struct blasd_input *input) {
    frame_put_text(w, port->name, BLASD_NAME_MAX);
    bool refers = blasd_source_refers(&input->source);
    if (input->source.kind == BLASD_SOURCE_RULE)
        frame_put_tensor(w, &input->tensor, 0, 0);
    else
        frame_put_tensor(w, &input->tensor, refers ? 0 : input->source.offset, input->source.bytes);
    frame_put_u8(w, (unsigned)input->tensor.order);
    frame_put_u8(w, (unsigned)input->source.kind);
    frame_put(w, &input->first_nonfinite, sizeof input->first_nonfinite);
    if (refers) put_reference(w, input);
    if (input->source.kind == BLASD_SOURCE_RULE) put_rule(w, &input->source.rule);
    if (input->source.kind == BLASD_SOURCE_GIVEN) frame_put_u8(w, (unsigned)input->source.step);
}

static void put_param(struct frame_writer *w, const struct blasd_param *param,
                      const struct blasd_value *value) {
    frame_put_text(w, param->name, BLASD_NAME_MAX);
    frame_put_u8(w, (unsigned)param->kind);
    frame_put_u8(w, value->given);
    switch (param->kind) {
    case BLASD_PARAM_BOOL: frame_put_u8(w, value->b); break;
    case BLASD_PARAM_INT: frame_put(w, &value->i, sizeof value->i); break;
    case BLASD_PARAM_FLOAT: frame_put(w, &value->f, sizeof value->f); break;
    case BLASD_PARAM_CHOICE: frame_put_text(w, param->choices[value->choice], 255); break;
    }
}

static void put_place(struct frame_writer *w, const struct blasd_job *job) {
    unsigned place = frame_place(job->payload_in_blob, &job->slice);
    frame_put_u8(w, place);
    if (place != FRAME_IN_SEGMENT) return;
    frame_put_text(w, job->slice.segment, sizeof job->slice.segment);
    frame_put(w, &job->slice.generation, sizeof job->slice.generation);
    frame_put(w, &job->slice.offset, sizeof job->slice.offset);
}

static void put_trace(struct frame_writer *w, const struct blasd_trace *trace) {
    frame_put(w, trace->id, sizeof trace->id);
    frame_put(w, trace->span, sizeof trace->span);
    frame_put_u8(w, trace->sampled);
}

/* What steps make is named behind the body (frame_graph.c). */
static bool is_own(const struct blasd_job *job, int i) {
    return blasd_job_has(job, i) && job->inputs[i].source.kind != BLASD_SOURCE_STEP;
}

void frame_put_body(struct frame_writer *w, const struct blasd_job *job) {
    const struct blasd_op *op = job->op;
    int inputs = blasd_op_input_count(op), params = blasd_op_param_count(op);
    unsigned given = 0;
    for (int i = 0; i < inputs; i++) given += is_own(job, i);
    frame_put_u8(w, given);
    for (int i = 0; i < inputs; i++)
        if (is_own(job, i)) put_input(w, &op->inputs[i], &job->inputs[i]);
    frame_put_u8(w, (unsigned)params);
    for (int i = 0; i < params; i++) put_param(w, &op->params[i], &job->params[i]);
}

int blasd_job_encode(const struct blasd_job *job, struct blasd_buf *out, struct blasd_err *err) {
    const struct blasd_op *op = job->op;
    unsigned char room[FRAME_MOST];
    struct frame_writer w = {.at = room, .end = room + FRAME_MOST};
    bool traced = blasd_trace_given(job->trace.id);
    const struct frame_header header = {.magic = MAGIC,
                                        .schema = SCHEMA,
                                        .own = {(uint8_t)(job->priority | (traced ? TRACED : 0)),
                                                (uint8_t)job->device, (uint8_t)job->most_s,
                                                (uint8_t)(job->most_s >> 8)}};
    const struct numbers numbers = {job->deadline_ms, job->payload_bytes, job->receive_us,
                                    job->created_us};
    frame_put(&w, &header, sizeof header);
    frame_put_text(&w, job->id, sizeof job->id);
    frame_put_text(&w, op->name, BLASD_NAME_MAX);
    frame_put(&w, &numbers, sizeof numbers);
    put_place(&w, job);
    if (traced) put_trace(&w, &job->trace);
    frame_put_body(&w, job);
    put_keeping(&w, blasd_job_keeping(job));
    if (blasd_job_labels(job)[0] != '\0')
        frame_put_text(&w, blasd_job_labels(job), BLASD_LABELS_MAX);
    return frame_end(&w, room, out, err);
}

static int get_reference(struct frame_reader *r, struct blasd_input *input, struct blasd_err *err) {
    struct blasd_reference *reference = blasd_input_refer(input);
    bool tensor = input->source.kind == BLASD_SOURCE_TENSOR;
    if (reference == NULL) return blasd_no_memory(err);
    frame_get_text(r, reference->id, sizeof reference->id);
    frame_get(r, &input->source.offset, sizeof input->source.offset);
    frame_get(r, &reference->blob_bytes, sizeof reference->blob_bytes);
    reference->sliced = (int)frame_get_u8(r);
    if (r->bad || (reference->sliced != 0 && reference->sliced != input->tensor.rank))
        return frame_broken(err, "a reference is not well formed");
    frame_get(r, reference->to, (size_t)reference->sliced * sizeof *reference->to);
    for (int i = 0; i < reference->sliced; i++)
        if (reference->to[i] < 0 || reference->to[i] > INT64_C(1) << 61)
            return frame_broken(err, "a reference has steps that it cannot have");
    if (r->bad || !(tensor ? blasd_id_tensor_valid(reference->id) : blasd_id_valid(reference->id)))
        return frame_broken(err, "a reference has no id");
    return 0;
}

static int get_keeping(struct frame_reader *r, struct blasd_job *job, struct blasd_err *err) {
    struct blasd_keeping *keeping;
    if (r->bad || r->at == r->end || *r->at != 1) return 0;
    if (blasd_job_extras(job) == NULL) return blasd_no_memory(err);
    keeping = &job->extras->keeping;
    r->at++;
    frame_get(r, &keeping->keep, sizeof keeping->keep);
    frame_get(r, &keeping->withhold, sizeof keeping->withhold);
    frame_get(r, &keeping->life_s, sizeof keeping->life_s);
    for (int i = 0; i < BLASD_MAX_OUTPUTS; i++)
        if (blasd_keeps(keeping, i)) frame_get_text(r, keeping->ids[i], sizeof keeping->ids[i]);
    return r->bad ? frame_broken(err, "what is kept of it ends early") : 0;
}

static int get_rule(struct frame_reader *r, struct blasd_rule *rule, struct blasd_err *err) {
    unsigned char bytes[RULE_BYTES] = {0};
    unsigned kind = frame_get_u8(r);
    frame_get(r, bytes, sizeof bytes);
    if (r->bad || kind >= BLASD_RULE_KINDS)
        return frame_broken(err, "a rule is of a kind that is not known");
    rule->kind = (enum blasd_rule_kind)kind;
    memcpy(&rule->line, bytes, sizeof bytes);
    return 0;
}

/* What follows a tensor, by where its elements come from. */
static int get_source(struct frame_reader *r, const struct blasd_job *job,
                      struct blasd_input *input, struct blasd_err *err) {
    struct blasd_source *source = &input->source;
    bool rule = source->kind == BLASD_SOURCE_RULE, given = source->kind == BLASD_SOURCE_GIVEN;
    if (source->kind != BLASD_SOURCE_PAYLOAD && !rule && !given && !blasd_source_refers(source))
        return frame_broken(err, "an input is of a kind that is not known");
    if (source->bytes != (rule ? 0 : blasd_tensor_bytes(&input->tensor)))
        return frame_broken(err, "a tensor's shape and bytes do not agree");
    if (rule) return get_rule(r, &source->rule, err);
    if (given) source->step = (int)frame_get_u8(r);
    if (given && (r->bad || source->step == 0 || source->step >= BLASD_MAX_INPUTS))
        return frame_broken(err, "a step reads an input that a graph does not have");
    if (given) return 0;
    if (blasd_source_refers(source)) return get_reference(r, input, err);
    if (source->bytes > job->payload_bytes || source->offset > job->payload_bytes - source->bytes)
        return frame_broken(err, "a tensor lies outside the payload");
    return 0;
}

static int get_input(struct frame_reader *r, struct blasd_job *job, struct blasd_err *err) {
    char name[BLASD_NAME_MAX];
    struct blasd_input *input;
    unsigned order;
    int at, code;
    frame_get_text(r, name, sizeof name);
    at = blasd_op_input(job->op, name);
    if (at < 0)
        return blasd_fail(err, BLASD_E_unknown_input, "inputs",
                          "this worker's %s has no input '%s'", job->op->name, name);
    if (blasd_job_has(job, at)) return frame_broken(err, "an input stands in it twice");
    input = &job->inputs[at];
    /* where the bytes of what it refers to lie is checked with the blob at hand */
    code = frame_get_tensor(r, UINT64_MAX, &input->tensor, &input->source.offset,
                            &input->source.bytes, err);
    if (code != 0) return code;
    order = frame_get_u8(r);
    input->source.kind = (enum blasd_source_kind)frame_get_u8(r);
    frame_get(r, &input->first_nonfinite, sizeof input->first_nonfinite);
    if (r->bad) return frame_broken(err, "an input ends early");
    if (order > BLASD_COLUMN_MAJOR)
        return frame_broken(err, "an input is of a kind that is not known");
    input->tensor.order = (enum blasd_order)order;
    if ((code = get_source(r, job, input, err)) != 0) return code;
    if (input->first_nonfinite < -1 ||
        input->first_nonfinite >= blasd_tensor_elements(&input->tensor))
        return frame_broken(err, "an input points outside its elements");
    return 0;
}

/* Position of a parameter; `hint` is where it stands if nothing changed since it was written. */
static int find_param(const struct blasd_op *op, int count, int hint, const char *name) {
    if (hint < count && strcmp(op->params[hint].name, name) == 0) return hint;
    return blasd_op_param(op, name);
}

static int find_choice(const struct blasd_param *param, const char *name) {
    for (int i = 0; param->choices[i] != NULL; i++)
        if (strcmp(param->choices[i], name) == 0) return i;
    return -1;
}

/* A parameter that this version does not have, or a choice, only matters where the user gave it. */
static int param_unknown(const struct blasd_op *op, const char *name, bool given,
                         struct blasd_err *err) {
    if (!given) return 0;
    return blasd_fail(err, BLASD_E_unknown_parameter, "params",
                      "this worker's %s does not know the parameter '%s' or its value", op->name,
                      name);
}

static int get_param(struct frame_reader *r, struct blasd_job *job, int count, int hint,
                     struct blasd_err *err) {
    char name[BLASD_NAME_MAX], choice[256] = "";
    struct blasd_value value = {.given = false};
    unsigned kind, flag = 0, given;
    int at, picked = 0;
    frame_get_text(r, name, sizeof name);
    kind = frame_get_u8(r);
    given = frame_get_u8(r);
    if (given > 1) return frame_broken(err, "a flag is neither 0 nor 1");
    value.given = given != 0;
    switch (kind) {
    case BLASD_PARAM_BOOL:
        flag = frame_get_u8(r);
        value.b = flag != 0;
        break;
    case BLASD_PARAM_INT: frame_get(r, &value.i, sizeof value.i); break;
    case BLASD_PARAM_FLOAT: frame_get(r, &value.f, sizeof value.f); break;
    case BLASD_PARAM_CHOICE: frame_get_text(r, choice, sizeof choice); break;
    default: return frame_broken(err, "a parameter is of a kind that is not known");
    }
    if (r->bad || flag > 1) return frame_broken(err, "a parameter has no value");
    at = find_param(job->op, count, hint, name);
    if (at < 0 || job->op->params[at].kind != (enum blasd_param_kind)kind)
        return param_unknown(job->op, name, value.given, err);
    if (kind == BLASD_PARAM_CHOICE) {
        picked = find_choice(&job->op->params[at], choice);
        if (picked < 0) return param_unknown(job->op, name, value.given, err);
        value.choice = picked;
    }
    job->params[at] = value;
    return 0;
}

static int get_place(struct frame_reader *r, struct blasd_job *job, struct blasd_err *err) {
    unsigned place = frame_get_u8(r);
    job->payload_in_blob = place == FRAME_IN_BLOB;
    if (place == FRAME_IN_SEGMENT) {
        frame_get_text(r, job->slice.segment, sizeof job->slice.segment);
        frame_get(r, &job->slice.generation, sizeof job->slice.generation);
        frame_get(r, &job->slice.offset, sizeof job->slice.offset);
    }
    if (r->bad) return frame_broken(err, "the place of its tensors ends early");
    return frame_check_place(place, &job->slice, err);
}

static int get_trace(struct frame_reader *r, struct blasd_trace *trace, struct blasd_err *err) {
    unsigned sampled;
    frame_get(r, trace->id, sizeof trace->id);
    frame_get(r, trace->span, sizeof trace->span);
    sampled = frame_get_u8(r);
    if (r->bad || sampled > 1 || !blasd_trace_given(trace->id))
        return frame_broken(err, "its trace is none");
    trace->sampled = sampled == 1;
    return 0;
}

int frame_get_body(struct frame_reader *r, struct blasd_job *job, struct blasd_err *err) {
    unsigned count = frame_get_u8(r);
    int params = blasd_op_param_count(job->op);
    for (unsigned i = 0; i < count; i++) {
        int code = get_input(r, job, err);
        if (code != 0) return code;
    }
    count = frame_get_u8(r);
    for (unsigned i = 0; i < count; i++) {
        int code = get_param(r, job, params, (int)i, err);
        if (code != 0) return code;
    }
    return 0;
}

/* What stands behind the parameters, where that is not yet the padding. */
static int get_labels(struct frame_reader *r, struct blasd_job *job, struct blasd_err *err) {
    if (r->at == r->end || *r->at == 0) return 0;
    if (blasd_job_extras(job) == NULL) return blasd_no_memory(err);
    frame_get_text(r, job->extras->labels, sizeof job->extras->labels);
    if (!r->bad && blasd_labels_valid(job->extras->labels)) return 0;
    return frame_broken(err, "its labels are none");
}

size_t blasd_job_frame_size(const void *frame, size_t len) {
    struct frame_header header;
    if (len < sizeof header) return len;
    memcpy(&header, frame, sizeof header);
    return header.size < len ? header.size : len;
}

static int decode(const void *frame, size_t len, struct blasd_job *job, size_t *payload_at,
                  struct blasd_err *err) {
    char id[BLASD_ID_LEN + 1], name[BLASD_NAME_MAX];
    const struct blasd_op *op;
    struct frame_reader r;
    struct frame_header header;
    struct numbers numbers;
    bool traced;
    int code = frame_open(frame, len, MAGIC, SCHEMA, &header, &r, err);
    if (code != 0) return code;
    traced = (header.own[0] & TRACED) != 0;
    header.own[0] &= (uint8_t)~TRACED;
    if (header.own[0] >= BLASD_PRIORITY_COUNT || header.own[1] >= BLASD_DEVICE_CLASS_COUNT)
        return frame_broken(err, "its priority or device class is not known");
    r.at += sizeof header;
    frame_get_text(&r, id, sizeof id);
    frame_get_text(&r, name, sizeof name);
    if (r.bad || !blasd_id_valid(id)) return frame_broken(err, "its id is not one");
    op = blasd_op_find(name);
    if (op == NULL)
        return blasd_fail(err, BLASD_E_unknown_operation, "op", "this worker has no operation '%s'",
                          name);
    blasd_job_init(job, op);
    memcpy(job->id, id, sizeof id);
    job->priority = (enum blasd_priority)header.own[0];
    job->device = (enum blasd_device_class)header.own[1];
    job->most_s = (uint16_t)(header.own[2] | header.own[3] << 8);
    frame_get(&r, &numbers, sizeof numbers);
    job->deadline_ms = numbers.deadline_ms;
    job->payload_bytes = numbers.payload_bytes;
    job->receive_us = numbers.receive_us;
    job->created_us = numbers.created_us;
    code = get_place(&r, job, err);
    if (code == 0 && traced) code = get_trace(&r, &job->trace, err);
    if (code == 0) code = frame_get_body(&r, job, err);
    if (code == 0) code = get_keeping(&r, job, err);
    if (code == 0) code = get_labels(&r, job, err);
    if (code != 0) return code;
    return frame_close(&r, frame, len, job->payload_bytes,
                       job->payload_in_blob || blasd_slice_given(&job->slice), payload_at, err);
}

int blasd_job_decode(const void *frame, size_t len, struct blasd_job *job, size_t *payload_at,
                     struct blasd_err *err) {
    int code;
    job->op = NULL;
    code = decode(frame, len, job, payload_at, err);
    if (code != 0) blasd_job_release(job);
    return code;
}
