/* Inputs that are outputs of jobs it waited for: found in the records behind its frame, wherever
 * these say that they lie, as large as they became; and records that are not there, or lie. */
#include "worker/awaited.h"

#include "core/reference.h"
#include "queue/record_frame.h"
#include "wire/frame.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static _Alignas(64) unsigned char room[1024]; /* a segment */
static int slices;

int blasd_worker_queue_slice_get(struct blasd_worker_queue *queue, const struct blasd_slice *slice,
                                 uint64_t size, const void **ret, struct blasd_view **hold,
                                 struct blasd_err *problem) {
    (void)queue;
    slices++;
    *hold = NULL;
    *ret = room + slice->offset;
    if (slice->generation == 7 && size == 128) return 0;
    return blasd_fail(problem, BLASD_E_inputs_lost, "", "not there");
}

/* A job that multiplies 2 by 3 outputs of two others, and what came with it. */
struct bed {
    struct blasd_job job;
    struct blasd_record records[2];
    struct blasd_buf bytes;
    struct blasd_claim claim;
    struct blasd_item item;
    unsigned char payload[64];
    bool behind; /* the other job's record comes first */
};

static struct blasd_tensor matrix(int64_t rows, int64_t columns) {
    const int64_t shape[] = {rows, columns};
    return blasd_tensor_make(BLASD_float64, 2, shape);
}

static void prepare(struct bed *bed) {
    memset(bed, 0, sizeof *bed);
    blasd_job_init(&bed->job, blasd_op_find("matmul"));
    blasd_id_new(BLASD_ID_SYNC, 1000000, bed->job.id);
    bed->job.payload_bytes = sizeof bed->payload;
    for (int i = 0; i < 2; i++) {
        struct blasd_record *record = &bed->records[i];
        struct blasd_input *input = &bed->job.inputs[i];
        record->state = BLASD_SUCCEEDED;
        blasd_id_new(BLASD_ID_ASYNC, 1000000, record->id);
        memcpy(record->op, "matmul", 7);
        for (int n = 0; n < BLASD_MAX_OUTPUTS; n++) record->outputs[n].tensor.rank = -1;
        record->payload_bytes = 128;
        record->outputs[0] = (struct blasd_output){
            .tensor = i == 0 ? matrix(2, 3) : matrix(3, 2), .offset = 64, .bytes = 48};
        input->tensor = record->outputs[0].tensor;
        input->source = (struct blasd_source){.kind = BLASD_SOURCE_AWAITED, .bytes = 48};
        memcpy(input->reference.id, record->id, sizeof record->id);
        memcpy(input->reference.output, "c", 2);
    }
}

static void add_piece(struct bed *bed, const struct blasd_record *record) {
    static const double values[] = {0, 1, 2, 3, 4, 5, 0, 0};
    struct blasd_buf bytes;
    struct blasd_err err = {0};
    blasd_buf_init(&bytes, 1 << 16);
    assert_int_equal(blasd_record_encode(record, &bytes, &err), 0);
    if (!record->payload_in_blob && !blasd_slice_given(&record->slice) &&
        record->payload_bytes > 0) {
        assert_int_equal(blasd_buf_add(&bytes, bed->payload, sizeof bed->payload), 0);
        assert_int_equal(blasd_buf_add(&bytes, values, sizeof values), 0);
    }
    assert_int_equal(blasd_record_frame_add(&bed->bytes, record->id, bytes.data, bytes.len), 0);
    blasd_buf_release(&bytes);
}

/* As a worker reads it; `cut` bytes of its end are missing. */
static enum blasd_code receive(struct bed *bed, size_t cut) {
    struct blasd_err err = {0};
    blasd_buf_init(&bed->bytes, 1 << 16);
    memset(bed->payload, 0x5a, sizeof bed->payload);
    assert_int_equal(blasd_job_encode(&bed->job, &bed->bytes, &err), 0);
    if (!bed->job.payload_in_blob)
        assert_int_equal(blasd_buf_add(&bed->bytes, bed->payload, sizeof bed->payload), 0);
    add_piece(bed, &bed->records[bed->behind]);
    add_piece(bed, &bed->records[!bed->behind]);
    bed->claim.frame = bed->bytes.data;
    bed->claim.frame_len = bed->bytes.len - cut;
    blasd_item_read(&bed->item, &bed->claim);
    return bed->item.err.code;
}

static void release(struct bed *bed) {
    blasd_buf_release(&bed->bytes);
}

/* Its first elements, where they lie beside the record or in a slice. */
static void expect_elements(struct bed *bed, int i, const double *values, size_t size) {
    const void *at = NULL;
    struct blasd_view *hold;
    struct blasd_err err = {0};
    assert_int_equal(bed->item.job.inputs[i].source.kind, BLASD_SOURCE_AWAITED);
    assert_int_equal(blasd_awaited_find(NULL, &bed->item, i, &at, &hold, &err), 0);
    assert_memory_equal(at, values, size);
}

static void beside_their_records(void **state) {
    static const double values[] = {0, 1, 2, 3, 4, 5};
    (void)state;
    for (int i = 0; i < 4; i++) {
        struct bed bed;
        prepare(&bed);
        bed.behind = i % 2;
        bed.job.payload_in_blob = i / 2; /* then they begin behind the frame itself */
        assert_int_equal(receive(&bed, 0), BLASD_OK);
        expect_elements(&bed, 0, values, sizeof values);
        expect_elements(&bed, 1, values, sizeof values);
        assert_int_equal(bed.item.job.inputs[0].source.offset, 64);
        assert_int_equal(bed.item.job.inputs[0].source.bytes, 48);
        assert_int_equal(bed.item.plan.outputs[0].shape[0], 2);
        release(&bed);
    }
}

static void a_part(void **state) {
    static const double values[] = {3, 4, 5};
    struct bed bed;
    (void)state;
    prepare(&bed);
    bed.job.inputs[0].reference.sliced = 1;
    bed.job.inputs[0].reference.from[0] = 1;
    bed.job.inputs[0].reference.to[0] = BLASD_SLICE_OPEN;
    bed.job.inputs[0].tensor = matrix(1, 3);
    bed.job.inputs[0].source.bytes = 24;
    assert_int_equal(receive(&bed, 0), BLASD_OK);
    expect_elements(&bed, 0, values, sizeof values);
    assert_int_equal(bed.item.job.inputs[0].source.bytes, 24);
    assert_int_equal(bed.item.plan.outputs[0].shape[0], 1);
    release(&bed);
}

/* A kernel may make less than was planned: the job is planned anew. */
static void smaller_than_planned(void **state) {
    struct bed bed;
    (void)state;
    prepare(&bed);
    bed.job.inputs[0].tensor = matrix(4, 3);
    bed.job.inputs[0].source.bytes = 96;
    assert_int_equal(receive(&bed, 0), BLASD_OK);
    assert_int_equal(bed.item.job.inputs[0].tensor.shape[0], 2);
    assert_int_equal(bed.item.plan.outputs[0].shape[0], 2);
    release(&bed);
    prepare(&bed);
    bed.records[1].outputs[0].tensor = matrix(2, 3);
    assert_int_equal(receive(&bed, 0), BLASD_E_shape_mismatch);
    release(&bed);
}

static void in_blobs(void **state) {
    struct bed bed;
    const struct blasd_input *of_job = &bed.item.job.inputs[0], *kept = &bed.item.job.inputs[1];
    struct blasd_keeping *keeping = &bed.records[1].keeping;
    char id[BLASD_ID_LEN + 1];
    (void)state;
    prepare(&bed);
    bed.records[0].payload_in_blob = true;
    bed.records[1].payload_bytes = 0; /* its one output is a tensor */
    keeping->keep = keeping->withhold = 1;
    memset(keeping->ids[0], 'a', sizeof keeping->ids[0] - 1);
    blasd_keeping_id(keeping, bed.records[1].id, 0, id);
    assert_int_equal(receive(&bed, 0), BLASD_OK);
    assert_int_equal(of_job->source.kind, BLASD_SOURCE_JOB);
    assert_string_equal(of_job->reference.id, bed.records[0].id);
    assert_int_equal(of_job->source.offset, 64);
    assert_int_equal(of_job->reference.blob_bytes, 128);
    assert_int_equal(kept->source.kind, BLASD_SOURCE_TENSOR);
    assert_string_equal(kept->reference.id, id);
    assert_int_equal(kept->source.offset, 0);
    assert_int_equal(kept->source.bytes, 48);
    assert_int_equal(kept->reference.blob_bytes, 64); /* none is smaller */
    release(&bed);
}

static void in_a_segment(void **state) {
    static const double values[] = {5, 4, 3, 2, 1, 0};
    struct bed bed;
    const void *at;
    struct blasd_view *hold;
    struct blasd_err err = {0};
    (void)state;
    prepare(&bed);
    bed.records[0].slice = (struct blasd_slice){"0123456789abcdef", 7, 256};
    bed.records[1].slice = (struct blasd_slice){"0123456789abcdef", 8, 256};
    memcpy(room + 256 + 64, values, sizeof values);
    assert_int_equal(receive(&bed, 0), BLASD_OK);
    slices = 0;
    expect_elements(&bed, 0, values, sizeof values);
    assert_int_equal(slices, 1);
    assert_int_equal(blasd_awaited_find(NULL, &bed.item, 1, &at, &hold, &err),
                     -(int)BLASD_E_inputs_lost);
    release(&bed);
}

static void what_is_wrong(void **state) {
    struct bed bed;
    char id[BLASD_ID_LEN + 1];
    (void)state;
    blasd_id_new(BLASD_ID_ASYNC, 2000000, id);
    prepare(&bed); /* another job's */
    memcpy(bed.job.inputs[1].reference.id, id, sizeof id);
    assert_int_equal(receive(&bed, 0), BLASD_E_inputs_lost);
    assert_non_null(strstr(bed.item.err.detail, id));
    release(&bed);
    for (size_t cut = 1; cut < 200; cut += 61) { /* the last is not whole */
        prepare(&bed);
        assert_int_equal(receive(&bed, cut), BLASD_E_inputs_lost);
        release(&bed);
    }
    prepare(&bed);
    memcpy(bed.job.inputs[1].reference.output, "q", 2);
    assert_int_equal(receive(&bed, 0), BLASD_E_unknown_output);
    assert_string_equal(bed.item.err.field, "inputs.b");
    release(&bed);
    prepare(&bed);
    bed.records[0].state = BLASD_FAILED;
    bed.records[0].outputs[0].tensor.rank = -1;
    bed.records[0].error.code = BLASD_E_singular_matrix;
    assert_int_equal(receive(&bed, 0), BLASD_E_input_failed);
    assert_string_equal(bed.item.err.field, "inputs.a");
    release(&bed);
    prepare(&bed);
    bed.job.inputs[0].reference.sliced = 1;
    bed.job.inputs[0].reference.to[0] = 3; /* of two rows, as it came out */
    assert_int_equal(receive(&bed, 0), BLASD_E_invalid_reference);
    release(&bed);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(beside_their_records), cmocka_unit_test(a_part),
        cmocka_unit_test(smaller_than_planned), cmocka_unit_test(in_blobs),
        cmocka_unit_test(in_a_segment),         cmocka_unit_test(what_is_wrong)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
