/* Frames of jobs and records: what is written reads back the same; what is damaged is refused. */
#include "wire/frame.h"

#include "tests/unit/wire/sample_ops.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define ID "s692fa1b00123456789abcdef0123456789abcdef"

/* --- random values, the same in every run --- */

static uint64_t seed = 88172645463325252u;

static uint64_t next_random(void) {
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return seed;
}

static uint64_t below(uint64_t n) {
    return next_random() % n;
}

static int64_t any_int(void) {
    return (int64_t)(next_random() >> below(64));
}

/* Text of up to size - 1 bytes, none of them zero. */
static void any_text(char *out, size_t size) {
    size_t len = below(size);
    for (size_t i = 0; i < len; i++) out[i] = (char)(unsigned char)(1 + below(255));
    out[len] = '\0';
}

static void any_id(char id[BLASD_ID_LEN + 1]) {
    blasd_id_new(below(2) == 0 ? BLASD_ID_SYNC : BLASD_ID_ASYNC, (int64_t)below(1u << 31) * 1000000,
                 id);
}

/* A tensor with its bytes at the next multiple of 64 of the payload. */
static struct blasd_tensor any_tensor(uint64_t *payload, uint64_t *offset, uint64_t *bytes) {
    int64_t shape[BLASD_MAX_RANK];
    int rank = (int)below(BLASD_MAX_RANK + 1);
    struct blasd_tensor tensor;
    for (int i = 0; i < rank; i++) shape[i] = (int64_t)below(i < 3 ? 8 : 3);
    tensor = blasd_tensor_make((enum blasd_dtype)below(BLASD_DTYPE_COUNT), rank, shape);
    *offset = (*payload + 63) / 64 * 64;
    *bytes = blasd_tensor_bytes(&tensor);
    *payload = *offset + *bytes;
    return tensor;
}

static void any_slice(bool in_blob, struct blasd_slice *slice) {
    memset(slice, 0, sizeof *slice);
    if (in_blob || below(2) == 0) return;
    for (int i = 0; i < BLASD_SEGMENT_NAME; i++) slice->segment[i] = "0123456789abcdef"[below(16)];
    slice->generation = (uint32_t)any_int();
    slice->offset = (uint64_t)any_int();
}

static void same_slice(const struct blasd_slice *a, const struct blasd_slice *b) {
    assert_string_equal(a->segment, b->segment);
    if (!blasd_slice_given(a)) return;
    assert_int_equal(a->generation, b->generation);
    assert_true(a->offset == b->offset);
}

/* Some of these many outputs are kept, some are not sent. */
static void any_keeping(int outputs, struct blasd_keeping *keeping) {
    if (below(2) == 0) return;
    keeping->life_s = (uint32_t)any_int();
    for (int i = 0; i < outputs; i++) {
        if (below(2) == 0) keeping->withhold |= UINT64_C(1) << i;
        if (below(2) == 0) continue;
        keeping->keep |= UINT64_C(1) << i;
        blasd_random_hex(keeping->ids[i], sizeof keeping->ids[i] - 1);
    }
}

static void same_keeping(const struct blasd_keeping *a, const struct blasd_keeping *b) {
    assert_true(a->keep == b->keep && a->withhold == b->withhold);
    if ((a->keep | a->withhold) != 0) assert_int_equal(a->life_s, b->life_s);
    for (int i = 0; i < BLASD_MAX_OUTPUTS; i++)
        if (blasd_keeps(a, i)) assert_string_equal(a->ids[i], b->ids[i]);
}

/* Makes the input one that refers to what lies in the store. */
static void any_reference(struct blasd_input *input) {
    struct blasd_reference *reference = &input->reference;
    input->source.kind = below(2) == 0 ? BLASD_SOURCE_TENSOR : BLASD_SOURCE_JOB;
    input->source.offset = next_random();
    any_id(reference->id);
    if (input->source.kind == BLASD_SOURCE_TENSOR) reference->id[0] = BLASD_ID_TENSOR;
    reference->blob_bytes = next_random();
    reference->sliced = below(2) == 0 ? 0 : input->tensor.rank;
    for (int i = 0; i < reference->sliced; i++) reference->to[i] = (int64_t)below(1u << 31);
}

static void any_rule(struct blasd_input *input) {
    struct blasd_rule *rule = &input->source.rule;
    uint64_t none = 0, offset, bytes;
    input->source.kind = BLASD_SOURCE_RULE;
    input->source.offset = input->source.bytes = 0;
    input->tensor = any_tensor(&none, &offset, &bytes);
    rule->kind = (enum blasd_rule_kind)below(BLASD_RULE_KINDS);
    if (rule->kind == BLASD_RULE_FULL)
        for (int i = 0; i < BLASD_RULE_VALUE_BYTES; i++) rule->value[i] = (unsigned char)below(256);
    else if (rule->kind == BLASD_RULE_UNIFORM || rule->kind == BLASD_RULE_NORMAL)
        rule->seed = next_random();
    else if (rule->kind != BLASD_RULE_EYE)
        rule->line.start = (double)any_int() / 7, rule->line.step = 0.1, rule->line.stop = -1;
}

static void same_rule(const struct blasd_rule *a, const struct blasd_rule *b) {
    assert_int_equal(a->kind, b->kind);
    if (a->kind == BLASD_RULE_FULL)
        assert_memory_equal(a->value, b->value, sizeof a->value);
    else if (a->kind == BLASD_RULE_UNIFORM || a->kind == BLASD_RULE_NORMAL)
        assert_true(a->seed == b->seed);
    else if (a->kind != BLASD_RULE_EYE)
        assert_memory_equal(&a->line, &b->line, sizeof a->line);
}

/* In two cases of three there are none. */
static void any_labels(char labels[BLASD_LABELS_MAX]) {
    static const char *const texts[] = {"run=7,project=thesis", "bare=,x/y=a:b", "z=1"};
    struct blasd_err err;
    memset(labels, 0, BLASD_LABELS_MAX);
    if (below(3) != 0) return;
    const char *text = texts[below(3)];
    assert_int_equal(blasd_labels_read(labels, text, strlen(text), &err), 0);
}

static void any_job(struct blasd_job *job) {
    blasd_job_init(job, below(4) == 0 ? &plain_op : &sample_op);
    any_id(job->id);
    for (int i = 0; job->op->inputs[i].name != NULL; i++) {
        struct blasd_input *input = &job->inputs[i];
        if (below(4) == 0) continue;
        input->source.kind = BLASD_SOURCE_PAYLOAD;
        input->tensor =
            any_tensor(&job->payload_bytes, &input->source.offset, &input->source.bytes);
        input->tensor.order = (enum blasd_order)below(2);
        if (below(3) == 0) any_rule(input);
        if (blasd_tensor_elements(&input->tensor) > 0 && below(3) == 0)
            input->first_nonfinite =
                (int64_t)below((uint64_t)blasd_tensor_elements(&input->tensor));
        if (input->source.kind == BLASD_SOURCE_PAYLOAD && below(3) == 0) any_reference(input);
    }
    any_keeping(job->op == &sample_op ? 3 : 1, &job->keeping);
    if (job->op == &sample_op) {
        for (int i = 0; i < 4; i++) job->params[i].given = below(2) == 0;
        job->params[0].b = below(2) == 0;
        job->params[1].i = any_int() * (below(2) == 0 ? 1 : -1);
        job->params[2].f = (double)any_int() / 7;
        job->params[3].choice = (int)below(3);
    }
    job->priority = (enum blasd_priority)below(BLASD_PRIORITY_COUNT);
    job->device = (enum blasd_device_class)below(BLASD_DEVICE_CLASS_COUNT);
    job->deadline_ms = any_int();
    job->most_s = (uint16_t)any_int();
    job->receive_us = any_int();
    job->created_us = any_int();
    any_labels(job->labels);
    job->payload_in_blob = below(3) == 0;
    any_slice(job->payload_in_blob, &job->slice);
    if (below(2) == 0) return;
    blasd_trace_random(job->trace.id, sizeof job->trace.id);
    blasd_trace_random(job->trace.span, sizeof job->trace.span);
    job->trace.sampled = below(2) == 0;
}

static void any_record(struct blasd_record *record) {
    struct blasd_execution *execution = &record->execution;
    memset(record, 0, sizeof *record);
    any_id(record->id);
    record->state = (enum blasd_state)below(BLASD_STATE_COUNT);
    record->priority = (enum blasd_priority)below(BLASD_PRIORITY_COUNT);
    record->device = (enum blasd_device_class)below(BLASD_DEVICE_CLASS_COUNT);
    record->created_us = any_int();
    record->started_us = any_int();
    record->finished_us = any_int();
    record->progress = (double)below(1001) / 1000;
    if (record->state == BLASD_RUNNING) record->remaining_us = any_int();
    record->timing = (struct blasd_timing){any_int(), any_int(), any_int(), any_int(),
                                           any_int(), any_int(), -any_int()};
    any_labels(record->labels);
    any_text(execution->device, sizeof execution->device);
    any_text(execution->device_name, sizeof execution->device_name);
    any_text(execution->method, sizeof execution->method);
    execution->warning_count = (int)below(BLASD_MAX_WARNINGS + 1);
    for (int i = 0; i < execution->warning_count; i++)
        any_text(execution->warnings[i], sizeof execution->warnings[i]);
    execution->batch_size = (int)below(100000);
    execution->attempts = (int)below(10) - 1;
    execution->flops = (double)any_int() * 1e9;
    execution->bytes = next_random();
    execution->energy_joules = below(2) == 0 ? 0 : (double)(1 + below(1000000)) / 1000;
    if (record->state >= BLASD_FAILED) {
        record->error.code = (enum blasd_code)(1 + below(BLASD_E_COUNT - 1));
        any_text(record->error.field, sizeof record->error.field);
        any_text(record->error.detail, sizeof record->error.detail);
    }
    for (int i = 0; i < BLASD_MAX_OUTPUTS; i++) record->outputs[i].tensor.rank = -1;
    if (below(8) == 0) {
        any_text(record->op, sizeof record->op); /* an operation this version has not */
        if (record->state == BLASD_SUCCEEDED) record->state = BLASD_RUNNING;
    } else {
        snprintf(record->op, sizeof record->op, "sample");
    }
    for (int i = 0; i < 3 && record->state == BLASD_SUCCEEDED; i++) {
        struct blasd_output *output = &record->outputs[i];
        if (below(3) != 0)
            output->tensor = any_tensor(&record->payload_bytes, &output->offset, &output->bytes);
    }
    if (record->state == BLASD_SUCCEEDED) any_keeping(3, &record->keeping);
    for (int i = 0; i < 3; i++) {
        if (record->outputs[i].tensor.rank < 0) {
            record->keeping.keep &= ~(UINT64_C(1) << i);
            record->keeping.withhold &= ~(UINT64_C(1) << i);
        } else if (blasd_withholds(&record->keeping, i)) { /* its bytes are no part of the record */
            record->outputs[i].offset = 0;
        }
    }
    record->payload_in_blob = below(3) == 0;
    any_slice(record->payload_in_blob, &record->slice);
    if (record->error.code != BLASD_OK && !blasd_slice_given(&record->slice))
        record->error.least = (int64_t)below(1000000);
    if (below(2) == 0) blasd_trace_random(record->trace_id, sizeof record->trace_id);
}

/* --- equality, member by member --- */

static void same_tensor(const struct blasd_tensor *a, const struct blasd_tensor *b) {
    assert_int_equal(a->rank, b->rank);
    if (a->rank < 0) return;
    assert_int_equal(a->dtype, b->dtype);
    assert_int_equal(a->order, b->order);
    for (int i = 0; i < a->rank; i++) assert_true(a->shape[i] == b->shape[i]);
    assert_ptr_equal(b->data, NULL);
}

static void same_job(const struct blasd_job *a, const struct blasd_job *b) {
    assert_string_equal(a->id, b->id);
    assert_memory_equal(a->trace.id, b->trace.id, sizeof a->trace.id);
    assert_memory_equal(a->trace.span, b->trace.span, sizeof a->trace.span);
    assert_int_equal(a->trace.sampled, b->trace.sampled);
    assert_ptr_equal(a->op, b->op);
    assert_string_equal(a->labels, b->labels);
    for (int i = 0; a->op->inputs[i].name != NULL; i++) {
        assert_int_equal(blasd_job_has(a, i), blasd_job_has(b, i));
        assert_true(a->inputs[i].first_nonfinite == b->inputs[i].first_nonfinite);
        if (!blasd_job_has(a, i)) continue;
        same_tensor(&a->inputs[i].tensor, &b->inputs[i].tensor);
        assert_true(a->inputs[i].source.offset == b->inputs[i].source.offset);
        assert_true(a->inputs[i].source.bytes == b->inputs[i].source.bytes);
        assert_int_equal(a->inputs[i].source.kind, b->inputs[i].source.kind);
        if (a->inputs[i].source.kind == BLASD_SOURCE_RULE)
            same_rule(&a->inputs[i].source.rule, &b->inputs[i].source.rule);
        if (!blasd_source_refers(&a->inputs[i].source)) continue;
        const struct blasd_reference *x = &a->inputs[i].reference, *y = &b->inputs[i].reference;
        assert_string_equal(x->id, y->id);
        assert_true(x->blob_bytes == y->blob_bytes && x->sliced == y->sliced);
        for (int k = 0; k < x->sliced; k++) assert_true(x->to[k] == y->to[k]);
    }
    same_keeping(&a->keeping, &b->keeping);
    for (int i = 0; a->op->params[i].name != NULL; i++) {
        const struct blasd_value *x = &a->params[i], *y = &b->params[i];
        assert_int_equal(x->given, y->given);
        switch (a->op->params[i].kind) {
        case BLASD_PARAM_BOOL: assert_int_equal(x->b, y->b); break;
        case BLASD_PARAM_INT: assert_true(x->i == y->i); break;
        case BLASD_PARAM_FLOAT: assert_memory_equal(&x->f, &y->f, sizeof x->f); break;
        case BLASD_PARAM_CHOICE: assert_int_equal(x->choice, y->choice); break;
        }
    }
    assert_int_equal(a->priority, b->priority);
    assert_int_equal(a->device, b->device);
    assert_int_equal(a->most_s, b->most_s);
    assert_true(a->deadline_ms == b->deadline_ms && a->payload_bytes == b->payload_bytes);
    assert_int_equal(a->payload_in_blob, b->payload_in_blob);
    same_slice(&a->slice, &b->slice);
    assert_true(a->receive_us == b->receive_us && a->created_us == b->created_us);
}

static void same_record(const struct blasd_record *a, const struct blasd_record *b) {
    assert_memory_equal(a->trace_id, b->trace_id, sizeof a->trace_id);
    const struct blasd_execution *x = &a->execution, *y = &b->execution;
    assert_string_equal(a->id, b->id);
    assert_string_equal(a->op, b->op);
    assert_string_equal(a->labels, b->labels);
    assert_int_equal(a->state, b->state);
    assert_int_equal(a->priority, b->priority);
    assert_int_equal(a->device, b->device);
    assert_true(a->created_us == b->created_us && a->started_us == b->started_us);
    assert_true(a->finished_us == b->finished_us);
    assert_memory_equal(&a->progress, &b->progress, sizeof a->progress);
    assert_true(a->remaining_us == b->remaining_us);
    assert_memory_equal(&a->timing, &b->timing, sizeof a->timing);
    assert_string_equal(x->device, y->device);
    assert_string_equal(x->device_name, y->device_name);
    assert_string_equal(x->method, y->method);
    assert_int_equal(x->warning_count, y->warning_count);
    for (int i = 0; i < x->warning_count; i++) assert_string_equal(x->warnings[i], y->warnings[i]);
    assert_int_equal(x->batch_size, y->batch_size);
    assert_int_equal(x->attempts, y->attempts);
    assert_memory_equal(&x->flops, &y->flops, sizeof x->flops);
    assert_true(x->bytes == y->bytes);
    assert_memory_equal(&x->energy_joules, &y->energy_joules, sizeof x->energy_joules);
    assert_int_equal(a->error.code, b->error.code);
    assert_string_equal(a->error.field, b->error.field);
    assert_string_equal(a->error.detail, b->error.detail);
    assert_true(a->error.least == b->error.least);
    for (int i = 0; i < BLASD_MAX_OUTPUTS; i++) {
        same_tensor(&a->outputs[i].tensor, &b->outputs[i].tensor);
        if (a->outputs[i].tensor.rank < 0) continue;
        assert_true(a->outputs[i].offset == b->outputs[i].offset);
        assert_true(a->outputs[i].bytes == b->outputs[i].bytes);
    }
    assert_true(a->payload_bytes == b->payload_bytes);
    assert_int_equal(a->payload_in_blob, b->payload_in_blob);
    same_slice(&a->slice, &b->slice);
    same_keeping(&a->keeping, &b->keeping);
}

/* --- tests --- */

static void add_payload(struct blasd_buf *buf, uint64_t bytes) {
    for (uint64_t i = 0; i < bytes; i++) {
        char byte = (char)(unsigned char)next_random();
        assert_int_equal(blasd_buf_add(buf, &byte, 1), 0);
    }
}

static void jobs_read_back_the_same(void **state) {
    (void)state;
    for (int round = 0; round < 2000; round++) {
        struct blasd_job job, back;
        struct blasd_err err = {.code = BLASD_OK};
        struct blasd_buf buf;
        size_t before = below(200), size, payload_at;
        any_job(&job);
        memset(&back, 0xa5, sizeof back);
        blasd_buf_init(&buf, 1 << 20);
        add_payload(&buf, before); /* a frame may stand anywhere in a buffer */
        assert_int_equal(blasd_job_encode(&job, &buf, &err), 0);
        size = buf.len - before;
        assert_int_equal(size % 64, 0);
        if (!job.payload_in_blob && !blasd_slice_given(&job.slice))
            add_payload(&buf, job.payload_bytes);
        assert_int_equal(
            blasd_job_decode(buf.data + before, buf.len - before, &back, &payload_at, &err), 0);
        assert_true(payload_at == size);
        same_job(&job, &back);
        blasd_buf_release(&buf);
    }
}

static void records_read_back_the_same(void **state) {
    (void)state;
    for (int round = 0; round < 2000; round++) {
        struct blasd_record record, back;
        struct blasd_err err = {.code = BLASD_OK};
        struct blasd_buf buf;
        size_t before = below(200), size, payload_at;
        any_record(&record);
        memset(&back, 0xa5, sizeof back);
        blasd_buf_init(&buf, 1 << 20);
        add_payload(&buf, before);
        assert_int_equal(blasd_record_encode(&record, &buf, &err), 0);
        size = buf.len - before;
        assert_int_equal(size % 64, 0);
        if (!record.payload_in_blob && !blasd_slice_given(&record.slice))
            add_payload(&buf, record.payload_bytes);
        assert_int_equal(
            blasd_record_decode(buf.data + before, buf.len - before, &back, &payload_at, &err), 0);
        assert_true(payload_at == size);
        same_record(&record, &back);
        blasd_buf_release(&buf);
    }
}

/* As {q}:usage has them, one behind the other: all but the outputs, and where the next one begins.
 */
static void bare_records_follow_each_other(void **state) {
    struct blasd_record records[8], back;
    struct blasd_err err;
    struct blasd_buf buf;
    size_t at = 0, size;
    (void)state;
    blasd_buf_init(&buf, 1 << 20);
    for (int i = 0; i < 8; i++) {
        any_record(&records[i]);
        assert_int_equal(blasd_record_encode(&records[i], &buf, &err), 0);
    }
    for (int i = 0; i < 8; i++, at += size) {
        assert_int_equal(blasd_record_decode_bare(buf.data + at, buf.len - at, &back, &size, &err),
                         0);
        assert_int_equal(size % 64, 0);
        same_record(&records[i], &back);
        assert_int_not_equal(blasd_record_decode_bare(buf.data + at, size - 1, &back, &size, &err),
                             0);
        size = (size + 63) / 64 * 64;
    }
    assert_true(at == buf.len);
    assert_int_not_equal(blasd_record_decode_bare("BLRF", 4, &back, &size, &err), 0);
    blasd_buf_release(&buf);
}

/* What functions/records.lua writes at the end of a record, in front of the outputs. */
static void what_was_put_is_read(void **state) {
    struct blasd_record record, back;
    struct blasd_err err;
    struct blasd_buf buf;
    size_t at, size;
    uint32_t bytes;
    (void)state;
    blasd_buf_init(&buf, 1 << 20);
    for (int round = 0; round < 200; round++) {
        const unsigned char first[4] = {BLASD_PUT_FAILED, 7, 0x93, 0x01},
                            last[4] = {BLASD_PUT_DONE};
        char block[192] = {0};
        blasd_buf_reset(&buf);
        any_record(&record);
        assert_int_equal(blasd_record_encode(&record, &buf, &err), 0);
        memcpy(&bytes, buf.data + 8, sizeof bytes);
        bytes += sizeof block;
        memcpy(buf.data + 8, &bytes, sizeof bytes);
        buf.data[159] = (char)(buf.data[159] | 2);
        memcpy(block, first, 4);
        memcpy(block + 4 * 39, last, 4);
        assert_int_equal(blasd_buf_add(&buf, block, sizeof block), 0);
        assert_int_equal(blasd_record_decode_bare(buf.data, buf.len, &back, &size, &err), 0);
        assert_int_equal(size, bytes);
        if (!record.payload_in_blob && !blasd_slice_given(&record.slice))
            add_payload(&buf, record.payload_bytes);
        if (blasd_record_decode(buf.data, buf.len, &back, &at, &err) != 0)
            fail_msg("%s", err.detail);
        assert_int_equal(at, buf.len == bytes ? buf.len : bytes);
        assert_int_equal(back.puts[0].state, BLASD_PUT_FAILED);
        assert_int_equal(back.puts[0].tries, 7);
        assert_int_equal(back.puts[0].why, 403);
        assert_int_equal(back.puts[39].state, BLASD_PUT_DONE);
        assert_int_equal(back.puts[1].state, BLASD_PUT_NONE);
        memset(back.puts, 0, sizeof back.puts);
        same_record(&record, &back);
        buf.data[bytes - sizeof block] = 4; /* no such state */
        assert_int_not_equal(blasd_record_decode(buf.data, buf.len, &back, &at, &err), 0);
        buf.data[bytes - sizeof block] = 1;
        buf.data[bytes - 1] = 1; /* behind the last output */
        assert_int_not_equal(blasd_record_decode(buf.data, buf.len, &back, &at, &err), 0);
        buf.data[159] = 4;
        assert_int_not_equal(blasd_record_decode(buf.data, buf.len, &back, &at, &err), 0);
    }
    buf.len = 256; /* a head alone, which says that there is more */
    buf.data[159] = 2;
    bytes = 256;
    memcpy(buf.data + 8, &bytes, sizeof bytes);
    assert_int_not_equal(blasd_record_decode(buf.data, buf.len, &back, &at, &err), 0);
    blasd_buf_release(&buf);
}

/* The fullest values there can be fit a frame. */
static void the_largest_record_fits(void **state) {
    struct blasd_record record, back;
    struct blasd_err err;
    struct blasd_buf buf;
    size_t payload_at;
    (void)state;
    any_record(&record);
    record.state = BLASD_FAILED; /* which has no outputs */
    record.remaining_us = 0;
    for (int i = 0; i < BLASD_MAX_OUTPUTS; i++) record.outputs[i].tensor.rank = -1;
    memset(&record.keeping, 0, sizeof record.keeping);
    record.error.code = BLASD_E_not_finite;
    record.error.least = INT64_MAX;
    record.execution.warning_count = BLASD_MAX_WARNINGS;
    memset(record.error.field, 'f', sizeof record.error.field - 1);
    memset(record.error.detail, 'd', sizeof record.error.detail - 1);
    record.error.field[sizeof record.error.field - 1] = '\0';
    record.error.detail[sizeof record.error.detail - 1] = '\0';
    for (int i = 0; i < BLASD_MAX_WARNINGS; i++) {
        memset(record.execution.warnings[i], 'w', BLASD_WARNING_MAX - 1);
        record.execution.warnings[i][BLASD_WARNING_MAX - 1] = '\0';
    }
    memset(&record.slice, 0, sizeof record.slice);
    record.payload_bytes = 0;
    record.execution.energy_joules = 1.5;
    blasd_buf_init(&buf, 1 << 20);
    assert_int_equal(blasd_record_encode(&record, &buf, &err), 0);
    assert_int_equal(blasd_record_decode(buf.data, buf.len, &back, &payload_at, &err), 0);
    same_record(&record, &back);
    blasd_buf_release(&buf);
}

static void odd_values_are_made_safe(void **state) {
    struct blasd_record record, back;
    struct blasd_err err;
    struct blasd_buf buf;
    size_t payload_at;
    (void)state;
    memset(&record, 0, sizeof record);
    memcpy(record.id, ID, sizeof ID);
    snprintf(record.op, sizeof record.op, "sample");
    record.progress = NAN;
    record.execution.warning_count = 1000;
    blasd_buf_init(&buf, 1 << 16);
    assert_int_equal(blasd_record_encode(&record, &buf, &err), 0);
    assert_int_equal(blasd_record_decode(buf.data, buf.len, &back, &payload_at, &err), 0);
    assert_true(back.progress == 0);
    assert_int_equal(back.execution.warning_count, BLASD_MAX_WARNINGS);
    /* a record that was zeroed has outputs of rank 0; one that did not succeed has none */
    assert_int_equal(back.outputs[0].tensor.rank, -1);
    blasd_buf_release(&buf);
}

static void a_full_buffer_stays_as_it_was(void **state) {
    struct blasd_job job;
    struct blasd_record record;
    struct blasd_err err = {.code = BLASD_OK};
    struct blasd_buf buf;
    (void)state;
    any_job(&job);
    any_record(&record);
    blasd_buf_init(&buf, 70);
    assert_int_equal(blasd_buf_puts(&buf, "before"), 0);
    assert_int_equal(blasd_job_encode(&job, &buf, &err), -BLASD_E_internal_error);
    assert_int_equal(err.code, BLASD_E_internal_error);
    assert_int_equal(blasd_record_encode(&record, &buf, &err), -BLASD_E_internal_error);
    assert_int_equal(buf.len, 6);
    blasd_buf_release(&buf);
}

/* Decodes from memory of exactly `len` bytes, so that a sanitizer sees a step outside. */
static int decode_exact(bool job, const char *bytes, size_t len) {
    static struct blasd_job into;
    static struct blasd_record record;
    char *copy = malloc(len == 0 ? 1 : len);
    struct blasd_err err = {.code = BLASD_OK};
    size_t payload_at = 0;
    int code;
    assert_non_null(copy);
    memcpy(copy, bytes, len);
    code = job ? blasd_job_decode(copy, len, &into, &payload_at, &err)
               : blasd_record_decode(copy, len, &record, &payload_at, &err);
    if (code == 0) {
        uint64_t bytes_inline = job ? into.payload_bytes : record.payload_bytes;
        assert_true(payload_at <= len);
        if (!(job ? into.payload_in_blob || blasd_slice_given(&into.slice)
                  : record.payload_in_blob || blasd_slice_given(&record.slice)))
            assert_true(bytes_inline <= len - payload_at);
    } else {
        assert_true(code < 0 && err.code == (enum blasd_code) - code && err.detail[0] != '\0');
    }
    free(copy);
    return code;
}

static void cut_frames_are_refused(void **state) {
    (void)state;
    for (int round = 0; round < 40; round++) {
        struct blasd_job job;
        struct blasd_record record;
        struct blasd_err err;
        struct blasd_buf buf;
        any_job(&job);
        job.payload_in_blob = false;
        job.slice.segment[0] = '\0';
        blasd_buf_init(&buf, 1 << 20);
        assert_int_equal(blasd_job_encode(&job, &buf, &err), 0);
        add_payload(&buf, job.payload_bytes);
        for (size_t len = 0; len < buf.len; len++)
            assert_int_not_equal(decode_exact(true, buf.data, len), 0);
        assert_int_equal(decode_exact(true, buf.data, buf.len), 0);
        blasd_buf_reset(&buf);
        any_record(&record);
        record.payload_in_blob = false;
        record.slice.segment[0] = '\0';
        assert_int_equal(blasd_record_encode(&record, &buf, &err), 0);
        add_payload(&buf, record.payload_bytes);
        for (size_t len = 0; len < buf.len; len++)
            assert_int_not_equal(decode_exact(false, buf.data, len), 0);
        assert_int_equal(decode_exact(false, buf.data, buf.len), 0);
        blasd_buf_release(&buf);
    }
}

static void damaged_frames_do_no_harm(void **state) {
    int refused = 0;
    (void)state;
    for (int round = 0; round < 20000; round++) {
        struct blasd_job job;
        struct blasd_record record;
        struct blasd_err err;
        struct blasd_buf buf;
        bool is_job = below(2) == 0;
        blasd_buf_init(&buf, 1 << 20);
        any_job(&job);
        any_record(&record);
        assert_int_equal(is_job ? blasd_job_encode(&job, &buf, &err)
                                : blasd_record_encode(&record, &buf, &err),
                         0);
        for (uint64_t n = 1 + below(3); n > 0; n--)
            buf.data[below(buf.len)] = (char)(unsigned char)next_random();
        refused += decode_exact(is_job, buf.data, buf.len) != 0;
        blasd_buf_release(&buf);
    }
    assert_true(refused > 1000);
}

/* Writes `value` over the one place where `old` stands in the frame, and expects a refusal. */
static void expect_refused(const struct blasd_job *job, const void *old, const void *value,
                           size_t size, int code) {
    struct blasd_err err;
    struct blasd_buf buf;
    char *at;
    blasd_buf_init(&buf, 1 << 20);
    assert_int_equal(blasd_job_encode(job, &buf, &err), 0);
    at = memmem(buf.data, buf.len, old, size);
    assert_non_null(at);
    memcpy(at, value, size);
    add_payload(&buf, 4096);
    assert_int_equal(decode_exact(true, buf.data, buf.len), code);
    blasd_buf_release(&buf);
}

static void sample_job(struct blasd_job *job) {
    int64_t shape[] = {0x1122334455, 0};
    blasd_job_init(job, &sample_op);
    memcpy(job->id, ID, sizeof ID);
    job->inputs[0].tensor = blasd_tensor_make(BLASD_float32, 2, shape);
    job->inputs[0].source = (struct blasd_source){.kind = BLASD_SOURCE_PAYLOAD, .offset = 0};
    shape[0] = 16;
    job->inputs[1].tensor = blasd_tensor_make(BLASD_float64, 1, shape);
    job->inputs[1].source =
        (struct blasd_source){.kind = BLASD_SOURCE_PAYLOAD, .offset = 1984, .bytes = 128};
    job->payload_bytes = 2112;
    job->params[3].given = true;
}

static void lies_are_refused(void **state) {
    struct blasd_job job;
    int64_t old = 0x1122334455, negative = -5, huge = INT64_MAX;
    int64_t none = -1, zero = 0, below_none = -2;
    uint64_t offset = 1984, odd = 1921, outside = 2048, wrap = UINT64_MAX - 63;
    (void)state;
    sample_job(&job);
    expect_refused(&job, &old, &old, sizeof old, 0); /* as it is, it is right */
    expect_refused(&job, &old, &negative, sizeof old, -BLASD_E_internal_error);
    expect_refused(&job, &old, &huge, sizeof old, -BLASD_E_internal_error);
    expect_refused(&job, &offset, &odd, sizeof odd, -BLASD_E_internal_error);
    expect_refused(&job, &offset, &outside, sizeof odd, -BLASD_E_internal_error);
    expect_refused(&job, &offset, &wrap, sizeof odd, -BLASD_E_internal_error);
    /* the first input has no elements, so none of them can be the first that is not finite */
    expect_refused(&job, &none, &zero, sizeof none, -BLASD_E_internal_error);
    expect_refused(&job, &none, &below_none, sizeof none, -BLASD_E_internal_error);
    expect_refused(&job, "sample", "simple", 6, -BLASD_E_unknown_operation);
    expect_refused(&job, "float32", "float31", 7, -BLASD_E_internal_error);
    expect_refused(&job, "\1b", "\1q", 2, -BLASD_E_unknown_input);
    expect_refused(&job, "\1b", "\1a", 2, -BLASD_E_internal_error); /* twice */
    expect_refused(&job, "s692f", "../..", 5, -BLASD_E_internal_error);
    expect_refused(&job, "native", "nature", 6, -BLASD_E_unknown_parameter);
    expect_refused(&job, "precision", "decisions", 9, -BLASD_E_unknown_parameter);
    expect_refused(&job, "\5alpha", "\5gamma", 6, 0); /* not given, so it does not matter */
    expect_refused(&job, "BLJF", "BLRF", 4, -BLASD_E_internal_error);
    expect_refused(&job, "BLJF\1", "BLJF\2", 5, -BLASD_E_internal_error);
}

/* Every number of a record's head stands at its place, and what it cannot be is refused there. */
static void records_that_lie_are_refused(void **state) {
    static const struct {
        size_t at, n;
        char bytes[33];
        int code;
    } lies[] = {
        {12, 0, "", 0}, /* as it is, it is right */
        {4, 1, "\1", -BLASD_E_internal_error},
        {6, 1, "\1", -BLASD_E_internal_error},
        {8, 1, "\0", -BLASD_E_internal_error},
        {12, 1, "\7", -BLASD_E_internal_error},
        {13, 1, "\3", -BLASD_E_internal_error},
        {14, 1, "\3", -BLASD_E_internal_error},
        {15, 1, "\3", -BLASD_E_internal_error},
        {15, 1, "\2", -BLASD_E_internal_error}, /* in a segment without a name */
        {40, 8, "\0\0\0\0\0\0\xf8\x7f", -BLASD_E_internal_error},
        {40, 8, "\0\0\0\0\0\0\xf0\xbf", -BLASD_E_internal_error},
        {40, 8, "\0\0\0\0\0\0\0\x40", -BLASD_E_internal_error},
        {128, 8, "\0\0\0\0\0\0\xf0\xbf", -BLASD_E_internal_error},
        {128, 8, "\0\0\0\0\0\0\xf0\x7f", -BLASD_E_internal_error},
        {136, 1, "\x7f", -BLASD_E_internal_error}, /* a payload that is not there */
        {156, 1, "\5", -BLASD_E_internal_error},
        {157, 1, "\1", -BLASD_E_internal_error},
        {158, 1, "\1", -BLASD_E_internal_error},
        {176, 1, "/", -BLASD_E_internal_error},
        {224, 32, "an operation that is longer than", -BLASD_E_internal_error},
        {256, 1, "\x7f", -BLASD_E_internal_error},
    };
    struct blasd_record record = {.op = "sample", .progress = 1};
    (void)state;
    memcpy(record.id, ID, sizeof ID);
    for (int i = 0; i < BLASD_MAX_OUTPUTS; i++) record.outputs[i].tensor.rank = -1;
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        struct blasd_err err;
        struct blasd_buf buf;
        blasd_buf_init(&buf, 1 << 20);
        assert_int_equal(blasd_record_encode(&record, &buf, &err), 0);
        memcpy(buf.data + lies[i].at, lies[i].bytes, lies[i].n);
        if (decode_exact(false, buf.data, buf.len) != lies[i].code) fail_msg("lie %zu", i);
        blasd_buf_release(&buf);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(jobs_read_back_the_same),
        cmocka_unit_test(records_read_back_the_same),
        cmocka_unit_test(bare_records_follow_each_other),
        cmocka_unit_test(what_was_put_is_read),
        cmocka_unit_test(the_largest_record_fits),
        cmocka_unit_test(odd_values_are_made_safe),
        cmocka_unit_test(a_full_buffer_stays_as_it_was),
        cmocka_unit_test(cut_frames_are_refused),
        cmocka_unit_test(damaged_frames_do_no_harm),
        cmocka_unit_test(lies_are_refused),
        cmocka_unit_test(records_that_lie_are_refused),
    };
    return cmocka_run_group_tests_name("frame", tests, NULL, NULL);
}
