/* What the tests of frames share: jobs and records of random values, the same in every run, and the
 * bytes that follow a frame. Read next: test_frame.c. */
#ifndef BLASD_TESTS_FRAME_SUPPORT_H
#define BLASD_TESTS_FRAME_SUPPORT_H

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

static inline uint64_t next_random(void) {
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return seed;
}

static inline uint64_t below(uint64_t n) {
    return next_random() % n;
}

static inline int64_t any_int(void) {
    return (int64_t)(next_random() >> below(64));
}

/* Text of up to size - 1 bytes, none of them zero. */
static inline void any_text(char *out, size_t size) {
    size_t len = below(size);
    for (size_t i = 0; i < len; i++) out[i] = (char)(unsigned char)(1 + below(255));
    out[len] = '\0';
}

static inline void any_id(char id[BLASD_ID_LEN + 1]) {
    blasd_id_new(below(2) == 0 ? BLASD_ID_SYNC : BLASD_ID_ASYNC, (int64_t)below(1u << 31) * 1000000,
                 id);
}

/* A tensor with its bytes at the next multiple of 64 of the payload. */
static inline struct blasd_tensor any_tensor(uint64_t *payload, uint64_t *offset, uint64_t *bytes) {
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

static inline void any_slice(bool in_blob, struct blasd_slice *slice) {
    memset(slice, 0, sizeof *slice);
    if (in_blob || below(2) == 0) return;
    for (int i = 0; i < BLASD_SEGMENT_NAME; i++) slice->segment[i] = "0123456789abcdef"[below(16)];
    slice->generation = (uint32_t)any_int();
    slice->offset = (uint64_t)any_int();
}

/* Some of these many outputs are kept, some are not sent. */
static inline void any_keeping(int outputs, struct blasd_keeping *keeping) {
    if (below(2) == 0) return;
    keeping->life_s = (uint32_t)any_int();
    for (int i = 0; i < outputs; i++) {
        if (below(2) == 0) keeping->withhold |= UINT64_C(1) << i;
        if (below(2) == 0) continue;
        keeping->keep |= UINT64_C(1) << i;
        blasd_random_hex(keeping->ids[i], sizeof keeping->ids[i] - 1);
    }
}

/* Makes the input one that refers to what lies in the store. */
static inline void any_reference(struct blasd_input *input) {
    struct blasd_reference *reference = blasd_input_refer(input);
    input->source.kind = below(2) == 0 ? BLASD_SOURCE_TENSOR : BLASD_SOURCE_JOB;
    input->source.offset = next_random();
    any_id(reference->id);
    if (input->source.kind == BLASD_SOURCE_TENSOR) reference->id[0] = BLASD_ID_TENSOR;
    reference->blob_bytes = next_random();
    reference->sliced = below(2) == 0 ? 0 : input->tensor.rank;
    for (int i = 0; i < reference->sliced; i++) reference->to[i] = (int64_t)below(1u << 31);
}

static inline void any_rule(struct blasd_input *input) {
    struct blasd_rule *rule = &input->source.rule;
    uint64_t none = 0, offset, bytes;
    input->source = (struct blasd_source){.kind = BLASD_SOURCE_RULE};
    input->tensor = any_tensor(&none, &offset, &bytes);
    rule->kind = (enum blasd_rule_kind)below(BLASD_RULE_KINDS);
    if (rule->kind == BLASD_RULE_FULL)
        for (int i = 0; i < BLASD_RULE_VALUE_BYTES; i++) rule->value[i] = (unsigned char)below(256);
    else if (rule->kind == BLASD_RULE_UNIFORM || rule->kind == BLASD_RULE_NORMAL)
        rule->seed = next_random();
    else if (rule->kind != BLASD_RULE_EYE)
        rule->line.start = (double)any_int() / 7, rule->line.step = 0.1, rule->line.stop = -1;
}

/* In two cases of three there are none. */
static inline void any_labels(char labels[BLASD_LABELS_MAX]) {
    static const char *const texts[] = {"run=7,project=thesis", "bare=,x/y=a:b", "z=1"};
    struct blasd_err err;
    memset(labels, 0, BLASD_LABELS_MAX);
    if (below(3) != 0) return;
    const char *text = texts[below(3)];
    assert_int_equal(blasd_labels_read(labels, text, strlen(text), &err), 0);
}

static inline void any_job(struct blasd_job *job) {
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
    assert_non_null(blasd_job_extras(job));
    any_keeping(job->op == &sample_op ? 3 : 1, &job->extras->keeping);
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
    any_labels(job->extras->labels);
    job->payload_in_blob = below(3) == 0;
    any_slice(job->payload_in_blob, &job->slice);
    if (below(2) == 0) return;
    blasd_trace_random(job->trace.id, sizeof job->trace.id);
    blasd_trace_random(job->trace.span, sizeof job->trace.span);
    job->trace.sampled = below(2) == 0;
}

static inline void any_record(struct blasd_record *record) {
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
    for (int i = 0; i < execution->warning_count; i++) {
        execution->warnings[i].code = (enum blasd_warning_code)(1 + i);
        any_text(execution->warnings[i].text, BLASD_WARNING_MAX);
    }
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
    record->output_count = blasd_op_output_count(&sample_op);
    for (int i = 0; i < record->output_count; i++) record->outputs[i].tensor.rank = -1;
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

static inline void add_payload(struct blasd_buf *buf, uint64_t bytes) {
    for (uint64_t i = 0; i < bytes; i++) {
        char byte = (char)(unsigned char)next_random();
        assert_int_equal(blasd_buf_add(buf, &byte, 1), 0);
    }
}

#endif
