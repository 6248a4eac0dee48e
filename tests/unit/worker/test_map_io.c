/* Where tensors lie: in place, converted, one after the other; and stored jobs that lie. */
#include "worker/completion.h"
#include "worker/map_io.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

/* The queue's slices: one place of 2 KiB, the size from which on outputs go there. */
static _Alignas(64) unsigned char room[4096];
static int taken;

int blasd_worker_queue_slice_get(struct blasd_worker_queue *queue, const struct blasd_slice *slice,
                                 uint64_t size, const void **ret, struct blasd_view **hold,
                                 struct blasd_err *problem) {
    (void)queue;
    *hold = NULL;
    *ret = room + slice->offset;
    if (slice->generation == 7 && slice->offset + size <= sizeof room) return 0;
    return blasd_fail(problem, BLASD_E_inputs_lost, "", "not there");
}

void *blasd_worker_queue_slice_take(struct blasd_worker_queue *queue, const char *id, uint64_t size,
                                    struct blasd_slice *slice) {
    (void)queue;
    (void)id;
    if (size < 2048) return NULL;
    taken++;
    *slice = (struct blasd_slice){"0123456789abcdef", 7, 64};
    return room + 64;
}

void blasd_worker_queue_slice_done(struct blasd_worker_queue *queue,
                                   const struct blasd_slice *slice, bool sure) {
    (void)queue;
    (void)slice;
    (void)sure;
}

/* Asked about results that are there already only, of which there are none here. */
int blasd_worker_queue_progress(struct blasd_worker_queue *queue, const char *const *ids, int count,
                                double progress, int64_t remaining_us, bool *wanted,
                                struct blasd_err *problem) {
    (void)queue;
    (void)ids;
    (void)count;
    (void)progress;
    (void)remaining_us;
    *wanted = false;
    return blasd_fail(problem, BLASD_E_internal_error, "", "nobody is to ask");
}

/* A blob of zeros, of the kind redis. */
static struct blasd_store *store;
static int gets, away; /* away: so many times Redis is */

int blasd_worker_queue_blob_get(struct blasd_worker_queue *queue, const char *name, uint64_t size,
                                struct blasd_blob *blob, struct blasd_err *problem) {
    int code;
    (void)queue;
    if (away > 0) {
        away--;
        return blasd_fail(problem, BLASD_E_queue_unavailable, "", "away");
    }
    code = blasd_blob_create(store, name, blob, problem);
    gets++;
    if (code == 0) code = blasd_blob_grow(blob, size, problem);
    return code == 0 ? blasd_blob_map(blob, problem) : code;
}

void blasd_worker_queue_blob_discard(struct blasd_worker_queue *queue, struct blasd_blob *blob) {
    (void)queue;
    blasd_blob_remove(blob);
}

static const struct blasd_limits limits = {.inline_bytes = 4096};
static const struct blasd_queue_options options = {.limits = &limits};

static const struct blasd_port two_inputs[] = {{.name = "a"}, {.name = "b"}, {.name = NULL}};
static const struct blasd_port three_outputs[] = {
    {.name = "x"}, {.name = "y"}, {.name = "z"}, {.name = NULL}};
static const struct blasd_op op = {
    .name = "sample", .inputs = two_inputs, .outputs = three_outputs};

static struct blasd_arena arena;
static struct blasd_claim claim;
static struct blasd_item item;
static struct blasd_task task;
static struct blasd_io io;
static struct blasd_err err;
/* as Redis hands it over: aligned to nothing */
static unsigned char bytes[1 + 256];
static unsigned char *const payload = bytes + 1;

/* A 2 by 3 matrix of float64 in the order given, 0 1 2 3 4 5 as it lies in memory. */
static int setup(void **state) {
    const double values[] = {0, 1, 2, 3, 4, 5};
    (void)state;
    blasd_arena_init(&arena, 1 << 20, 1 << 20);
    claim = (struct blasd_claim){.claimed_us = 1};
    blasd_id_new(BLASD_ID_SYNC, 1000000, claim.id);
    memset(&item, 0, sizeof item);
    memset(&task, 0, sizeof task);
    memset(&io, 0, sizeof io);
    err = (struct blasd_err){0};
    memcpy(payload, values, sizeof values);
    item.claim = &claim;
    item.payload = payload;
    item.job.op = &op;
    item.job.payload_bytes = 64;
    item.job.inputs[0].tensor = blasd_tensor_make(BLASD_float64, 2, (int64_t[]){2, 3});
    item.job.inputs[0].source = (struct blasd_source){.kind = BLASD_SOURCE_PAYLOAD, .bytes = 48};
    item.plan.input_dtype[0] = BLASD_float64;
    for (int i = 0; i < BLASD_MAX_OUTPUTS; i++) item.plan.outputs[i].rank = -1;
    return 0;
}

static int teardown(void **state) {
    (void)state;
    blasd_io_close(&io);
    blasd_arena_release(&arena);
    return 0;
}

static unsigned makes_inputs; /* the kernel does */

static int map(void) {
    return blasd_io_map_inputs(NULL, &arena, &item, makes_inputs, &task, &io, &err);
}

static void expect_values(const double *want) {
    const double *got = task.inputs[0].data;
    for (int i = 0; i < 6; i++) assert_true(got[i] == want[i]);
}

static void test_right_inputs_are_copied_once_and_aligned(void **state) {
    (void)state;
    assert_int_equal(map(), 0);
    assert_int_equal((uintptr_t)task.inputs[0].data % 64, 0);
    assert_int_equal(arena.used, 64);
    assert_null(task.inputs[1].data);
    expect_values((double[]){0, 1, 2, 3, 4, 5});
}

static void test_column_major(void **state) {
    (void)state;
    item.job.inputs[0].tensor.order = BLASD_COLUMN_MAJOR;
    assert_int_equal(map(), 0);
    assert_int_equal(task.inputs[0].order, BLASD_ROW_MAJOR);
    expect_values((double[]){0, 2, 4, 1, 3, 5});
    item.plan.keep_order[0] = true;
    assert_int_equal(map(), 0);
    assert_int_equal(task.inputs[0].order, BLASD_COLUMN_MAJOR);
    expect_values((double[]){0, 1, 2, 3, 4, 5});
}

static void test_other_dtype(void **state) {
    const float *got;
    (void)state;
    item.plan.input_dtype[0] = BLASD_float32;
    item.plan.keep_order[0] = true;
    item.job.inputs[0].tensor.order = BLASD_COLUMN_MAJOR;
    assert_int_equal(map(), 0);
    assert_int_equal(task.inputs[0].dtype, BLASD_float32);
    assert_int_equal(task.inputs[0].order, BLASD_ROW_MAJOR);
    got = task.inputs[0].data;
    assert_true(got[0] == 0 && got[1] == 2 && got[2] == 4 && got[3] == 1 && got[5] == 5);
}

/* An input made by a rule has nothing in the payload. */
static void test_rules(void **state) {
    struct blasd_input *input = &item.job.inputs[0];
    (void)state;
    item.payload = NULL;
    item.job.payload_bytes = 0;
    input->source = (struct blasd_source){.kind = BLASD_SOURCE_RULE};
    input->tensor.dtype = BLASD_int32;
    assert_int_equal(blasd_rule_arange(&input->source.rule, &input->tensor, 0, 6, 1, "", &err), 0);
    input->tensor = blasd_tensor_make(BLASD_int32, 2, (int64_t[]){2, 3});
    assert_int_equal(map(), 0);
    assert_int_equal(task.inputs[0].dtype, BLASD_float64);
    assert_int_equal((uintptr_t)task.inputs[0].data % 64, 0);
    assert_int_equal(task.unmade, 0);
    expect_values((double[]){0, 1, 2, 3, 4, 5});
}

static void test_rules_left_to_the_backend(void **state) {
    struct blasd_input *input = &item.job.inputs[0];
    (void)state;
    makes_inputs = 1;
    item.job.payload_bytes = 0;
    input->source = (struct blasd_source){.kind = BLASD_SOURCE_RULE};
    input->source.rule = (struct blasd_rule){.kind = BLASD_RULE_UNIFORM, .seed = 3};
    assert_int_equal(map(), 0);
    assert_int_equal(task.unmade, 1); /* there is room, with anything in it */
    assert_non_null(task.inputs[0].data);
    item.plan.input_dtype[0] = BLASD_float32; /* to be converted: not left */
    assert_int_equal(map(), 0);
    assert_int_equal(task.unmade, 0);
    makes_inputs = 0;
}

static void test_empty_inputs_are_there(void **state) {
    (void)state;
    item.job.inputs[0].tensor.shape[0] = 0;
    item.job.inputs[0].source.bytes = 0;
    item.job.payload_bytes = 0;
    assert_int_equal(map(), 0);
    assert_non_null(task.inputs[0].data);
}

static void expect_refused(void) {
    err = (struct blasd_err){0};
    assert_int_equal(map(), -(int)BLASD_E_internal_error);
    assert_int_equal(err.code, BLASD_E_internal_error);
}

static void test_stored_jobs_that_lie(void **state) {
    struct blasd_source *source = &item.job.inputs[0].source;
    const struct blasd_source right = *source;
    (void)state;
    source->offset = 8;
    expect_refused();
    source->offset = 64;
    expect_refused();
    source->offset = UINT64_MAX - 63;
    expect_refused();
    *source = right;
    source->bytes = 40;
    expect_refused();
    *source = right;
    item.job.payload_bytes = 47;
    expect_refused();
}

/* Where Redis goes away behind the payload, before an input that is elsewhere, all is mapped again:
 * what is there is there. */
static void test_what_is_mapped_again_is_got_once(void **state) {
    const void *data;
    (void)state;
    assert_int_equal(blasd_store_open("redis", &store, &err), 0);
    item.job.payload_in_blob = true;
    item.job.payload_bytes = 64;
    gets = 0;
    assert_int_equal(map(), 0);
    data = task.inputs[0].data;
    assert_int_equal(map(), 0);
    assert_int_equal(gets, 1);
    assert_ptr_equal(task.inputs[0].data, data);
    blasd_io_close(&io);
    blasd_store_free(store);
}

/* Redis may be away for long: what was copied, converted and made before it was missed does not
 * come on top each time. */
static void test_what_is_mapped_again_takes_its_memory_once(void **state) {
    struct blasd_input *input = &item.job.inputs[1];
    uint64_t used;
    (void)state;
    assert_int_equal(blasd_store_open("redis", &store, &err), 0);
    assert_non_null(blasd_arena_take(&arena, 64)); /* another job's */
    used = arena.used;
    item.plan.input_dtype[0] = BLASD_float32;
    item.plan.input_dtype[1] = BLASD_float64;
    input->tensor = item.job.inputs[0].tensor;
    input->source = (struct blasd_source){.kind = BLASD_SOURCE_TENSOR, .bytes = 48};
    blasd_input_refer(input)->blob_bytes = 64;
    blasd_id_new(BLASD_ID_TENSOR, 1000000, input->reference->id);
    away = 20000;
    while (away > 0) {
        assert_int_equal(map(), -(int)BLASD_E_queue_unavailable);
        assert_int_equal(arena.used, used);
    }
    assert_int_equal(map(), 0);
    assert_non_null(task.inputs[1].data);
    blasd_job_release(&item.job);
    blasd_io_close(&io);
    blasd_store_free(store);
}

/* A device that knows an input again by its name must know apart what is not the same. */
static void test_names_tell_inputs_apart(void **state) {
    struct blasd_input a = item.job.inputs[0], b = a;
    struct blasd_tensor from = a.tensor, other;
    const struct blasd_key *name;
    (void)state;
    a.source.kind = BLASD_SOURCE_TENSOR;
    name = blasd_io_name_input(&arena, claim.id, &a, 0, &from, &from);
    assert_memory_equal(name->bytes, claim.id, BLASD_ID_LEN);
#define OTHER(id, input, at, from, to)                                                             \
    assert_false(blasd_key_equal(name, blasd_io_name_input(&arena, id, input, at, from, to)))
    assert_true(blasd_key_equal(name, blasd_io_name_input(&arena, claim.id, &a, 0, &from, &from)));
    OTHER("t692fa1b00123456789abcdef0123456789abcdef0", &a, 0, &from, &from);
    OTHER(claim.id, &a, 64, &from, &from);
    b.source.kind = BLASD_SOURCE_JOB;
    OTHER(claim.id, &b, 0, &from, &from);
    b = a;
    b.reference = &(struct blasd_reference){.sliced = 2, .to = {4}};
    OTHER(claim.id, &b, 0, &from, &from);
    other = blasd_tensor_make(BLASD_float32, 2, from.shape);
    OTHER(claim.id, &a, 0, &from, &other);
    OTHER(claim.id, &a, 0, &other, &from);
    other = from;
    other.order = BLASD_COLUMN_MAJOR;
    OTHER(claim.id, &a, 0, &other, &from);
    other = blasd_tensor_make(BLASD_float64, 2, (int64_t[]){3, 2});
    OTHER(claim.id, &a, 0, &other, &other);
    assert_int_equal(map(), 0); /* what came with the request has none */
    assert_null(task.names[0]);
}

static void test_no_memory(void **state) {
    (void)state;
    arena.max = 32;
    assert_int_equal(map(), -(int)BLASD_E_out_of_memory);
}

static void plan_outputs(void) {
    item.plan.outputs[0] = blasd_tensor_make(BLASD_float64, 1, (int64_t[]){9});
    item.plan.outputs[2] = blasd_tensor_make(BLASD_int64, 0, NULL);
}

static void test_outputs_lie_one_after_the_other(void **state) {
    struct blasd_batch_times times = {0, 0, 0, 0, 0};
    struct blasd_batch_place place = {"cpu:0", "a test", 1};
    struct blasd_record record;
    unsigned char *rubbish = blasd_arena_take(&arena, 4096);
    (void)state;
    memset(rubbish, 0xaa, 4096);
    blasd_arena_reset(&arena);
    plan_outputs();
    assert_int_equal(blasd_io_map_outputs(NULL, &options, &arena, &item, &task, &io, &err), 0);
    assert_int_equal(io.payload_bytes, 192);
    assert_ptr_equal(task.outputs[0].data, io.base);
    assert_int_equal(task.outputs[1].rank, -1);
    assert_ptr_equal(task.outputs[2].data, io.base + 128);
    for (int i = 72; i < 128; i++) assert_int_equal(io.base[i], 0);
    for (int i = 136; i < 192; i++) assert_int_equal(io.base[i], 0);
    blasd_completion_record(&item, &task, &io, NULL, &times, &place, &record);
    assert_int_equal(record.state, BLASD_SUCCEEDED);
    assert_int_equal(record.outputs[0].offset, 0);
    assert_int_equal(record.outputs[0].bytes, 72);
    assert_int_equal(record.outputs[1].tensor.rank, -1);
    assert_int_equal(record.outputs[2].offset, 128);
    assert_int_equal(record.outputs[2].bytes, 8);
    assert_int_equal(record.payload_bytes, 192);
    assert_false(record.payload_in_blob);
}

static void test_a_slice_is_used_where_it_lies(void **state) {
    struct blasd_batch_times times = {0};
    struct blasd_batch_place place = {"cpu:0", "a test", 1};
    struct blasd_record record;
    (void)state;
    memcpy(room + 128, payload, 48);
    item.job.slice = (struct blasd_slice){"0123456789abcdef", 7, 128};
    assert_int_equal(map(), 0);
    assert_ptr_equal(task.inputs[0].data, room + 128);
    item.job.slice.generation = 6; /* the segment is used again */
    assert_int_equal(map(), -(int)BLASD_E_inputs_lost);
    item.plan.outputs[0] = blasd_tensor_make(BLASD_float64, 1, (int64_t[]){260});
    memset(room, 0xaa, sizeof room);
    taken = 0;
    assert_int_equal(blasd_io_map_outputs(NULL, &options, &arena, &item, &task, &io, &err), 0);
    assert_int_equal(taken, 1);
    assert_ptr_equal(task.outputs[0].data, room + 64);
    for (int i = 0; i < 32; i++) assert_int_equal(room[64 + 2080 + i], 0);
    blasd_completion_record(&item, &task, &io, NULL, &times, &place, &record);
    assert_string_equal(record.slice.segment, "0123456789abcdef");
    assert_int_equal(record.slice.offset, 64);
    assert_false(record.payload_in_blob);
}

static void test_what_a_kernel_moves_itself_is_no_computing(void **state) {
    struct blasd_batch_times times = {1000000, 2000000, 5000000, 15000000, 16000000};
    struct blasd_batch_place place = {"cuda:0", "a test", 3};
    struct blasd_record record;
    (void)state;
    task.upload_us = 2000;
    task.download_us = 1000;
    claim.submitted_us = 10;
    claim.claimed_us = 60;
    item.job.receive_us = 5;
    blasd_completion_record(&item, &task, &io, &err, &times, &place, &record);
    assert_int_equal(record.timing.queue_us, 50);
    assert_int_equal(record.timing.batch_wait_us, 1000);
    assert_int_equal(record.timing.upload_us, 5000);
    assert_int_equal(record.timing.compute_us, 7000);
    assert_int_equal(record.timing.download_us, 2000);
    assert_int_equal(record.timing.total_us, 15055);
    task.upload_us = 20000; /* more than there was */
    blasd_completion_record(&item, &task, &io, &err, &times, &place, &record);
    assert_int_equal(record.timing.total_us, 15055);
    assert_true(record.timing.compute_us >= 0);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_right_inputs_are_copied_once_and_aligned),
        TEST(test_column_major),
        TEST(test_other_dtype),
        TEST(test_rules),
        TEST(test_rules_left_to_the_backend),
        TEST(test_empty_inputs_are_there),
        TEST(test_stored_jobs_that_lie),
        TEST(test_a_slice_is_used_where_it_lies),
        TEST(test_what_is_mapped_again_is_got_once),
        TEST(test_what_is_mapped_again_takes_its_memory_once),
        TEST(test_names_tell_inputs_apart),
        TEST(test_no_memory),
        TEST(test_outputs_lie_one_after_the_other),
        TEST(test_what_a_kernel_moves_itself_is_no_computing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
