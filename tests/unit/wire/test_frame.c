/* Frames of jobs and records: what is written reads back the same, the fullest and the oddest too.
 * Read next: test_frame_damage.c. */
#include "tests/unit/wire/frame_support.h"

/* --- equality, member by member --- */

static void same_tensor(const struct blasd_tensor *a, const struct blasd_tensor *b) {
    assert_int_equal(a->rank, b->rank);
    if (a->rank < 0) return;
    assert_int_equal(a->dtype, b->dtype);
    assert_int_equal(a->order, b->order);
    for (int i = 0; i < a->rank; i++) assert_true(a->shape[i] == b->shape[i]);
    assert_ptr_equal(b->data, NULL);
}

static void same_slice(const struct blasd_slice *a, const struct blasd_slice *b) {
    assert_string_equal(a->segment, b->segment);
    if (!blasd_slice_given(a)) return;
    assert_int_equal(a->generation, b->generation);
    assert_true(a->offset == b->offset);
}

static void same_keeping(const struct blasd_keeping *a, const struct blasd_keeping *b) {
    assert_true(a->keep == b->keep && a->withhold == b->withhold);
    if ((a->keep | a->withhold) != 0) assert_int_equal(a->life_s, b->life_s);
    for (int i = 0; i < BLASD_MAX_OUTPUTS; i++)
        if (blasd_keeps(a, i)) assert_string_equal(a->ids[i], b->ids[i]);
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

static void same_job(const struct blasd_job *a, const struct blasd_job *b) {
    assert_string_equal(a->id, b->id);
    assert_memory_equal(a->trace.id, b->trace.id, sizeof a->trace.id);
    assert_memory_equal(a->trace.span, b->trace.span, sizeof a->trace.span);
    assert_int_equal(a->trace.sampled, b->trace.sampled);
    assert_ptr_equal(a->op, b->op);
    assert_string_equal(blasd_job_labels(a), blasd_job_labels(b));
    for (int i = 0; a->op->inputs[i].name != NULL; i++) {
        assert_int_equal(blasd_job_has(a, i), blasd_job_has(b, i));
        assert_true(a->inputs[i].first_nonfinite == b->inputs[i].first_nonfinite);
        if (!blasd_job_has(a, i)) continue;
        same_tensor(&a->inputs[i].tensor, &b->inputs[i].tensor);
        assert_int_equal(a->inputs[i].source.kind, b->inputs[i].source.kind);
        if (a->inputs[i].source.kind == BLASD_SOURCE_RULE) {
            same_rule(&a->inputs[i].source.rule, &b->inputs[i].source.rule);
            continue;
        }
        assert_true(a->inputs[i].source.offset == b->inputs[i].source.offset);
        assert_true(a->inputs[i].source.bytes == b->inputs[i].source.bytes);
        if (!blasd_source_refers(&a->inputs[i].source)) continue;
        const struct blasd_reference *x = a->inputs[i].reference, *y = b->inputs[i].reference;
        assert_string_equal(x->id, y->id);
        assert_true(x->blob_bytes == y->blob_bytes && x->sliced == y->sliced);
        for (int k = 0; k < x->sliced; k++) assert_true(x->to[k] == y->to[k]);
    }
    same_keeping(blasd_job_keeping(a), blasd_job_keeping(b));
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
    for (int i = 0; i < x->warning_count; i++) {
        assert_int_equal(x->warnings[i].code, y->warnings[i].code);
        assert_string_equal(x->warnings[i].text, y->warnings[i].text);
    }
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
        assert_int_equal(blasd_record_has(a, i), blasd_record_has(b, i));
        if (!blasd_record_has(a, i)) continue;
        same_tensor(&a->outputs[i].tensor, &b->outputs[i].tensor);
        assert_true(a->outputs[i].offset == b->outputs[i].offset);
        assert_true(a->outputs[i].bytes == b->outputs[i].bytes);
    }
    assert_true(a->payload_bytes == b->payload_bytes);
    assert_int_equal(a->payload_in_blob, b->payload_in_blob);
    same_slice(&a->slice, &b->slice);
    same_keeping(&a->keeping, &b->keeping);
}

/* --- tests --- */

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
        blasd_job_release(&job);
        blasd_job_release(&back);
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

/* One behind the other: all but the outputs, and where the next one begins. */
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
    record.output_count = 0;
    memset(&record.keeping, 0, sizeof record.keeping);
    record.error.code = BLASD_E_not_finite;
    record.error.least = INT64_MAX;
    record.execution.warning_count = BLASD_MAX_WARNINGS;
    memset(record.error.field, 'f', sizeof record.error.field - 1);
    memset(record.error.detail, 'd', sizeof record.error.detail - 1);
    record.error.field[sizeof record.error.field - 1] = '\0';
    record.error.detail[sizeof record.error.detail - 1] = '\0';
    for (int i = 0; i < BLASD_MAX_WARNINGS; i++) {
        memset(record.execution.warnings[i].text, 'w', BLASD_WARNING_MAX - 1);
        record.execution.warnings[i].text[BLASD_WARNING_MAX - 1] = '\0';
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
    assert_int_equal(blasd_job_encode(&job, &buf, &err), -BLASD_E_no_space);
    assert_int_equal(err.code, BLASD_E_no_space);
    assert_int_equal(blasd_record_encode(&record, &buf, &err), -BLASD_E_no_space);
    assert_int_equal(buf.len, 6);
    blasd_buf_release(&buf);
    blasd_job_release(&job);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(jobs_read_back_the_same),
        cmocka_unit_test(records_read_back_the_same),
        cmocka_unit_test(bare_records_follow_each_other),
        cmocka_unit_test(the_largest_record_fits),
        cmocka_unit_test(odd_values_are_made_safe),
        cmocka_unit_test(a_full_buffer_stays_as_it_was),
    };
    return cmocka_run_group_tests_name("frame", tests, NULL, NULL);
}
