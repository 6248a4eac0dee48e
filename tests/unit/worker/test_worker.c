/* The worker against a queue in memory and a kernel that fails on demand. */
#include "fake_jobs.h"
#include "worker/cost_file.h"

static struct blasd_limits limits;
static struct blasd_err err;

static int setup(void **state) {
    blasd_limits_init(&limits);
    err = (struct blasd_err){0};
    return fake_setup(state);
}

static const struct fake_spec small = {.n = 2, .value = 3, .priority = BLASD_PRIORITY_NORMAL};

static struct fake_spec with_value(double value) {
    struct fake_spec spec = small;
    spec.value = value;
    return spec;
}

static void test_equal_jobs_run_as_one_call(void **state) {
    struct fake_spec single = small;
    (void)state;
    single.dtype = BLASD_float32;
    for (int i = 0; i < 10; i++) fake_add(i < 7 ? with_value(i + 1) : single);
    assert_int_equal(fake_work(&limits, &err), 0);
    assert_int_equal(fake.runs, 2);
    assert_int_equal(fake.counts[0] + fake.counts[1], 10);
    assert_int_equal(fake.finishes, 2);
    assert_int_equal(fake.releases, 1);
    for (int i = 0; i < 10; i++) {
        fake_check(&fake.jobs[i], i < 7 ? with_value(i + 1) : single);
        assert_int_equal(fake.jobs[i].result.execution.batch_size, i < 7 ? 7 : 3);
        assert_string_equal(fake.jobs[i].result.execution.method, "by hand");
    }
    assert_false(fake.misaligned);
}

/* A call's size and times say nothing of another tenant's jobs. */
static void test_no_call_is_two_tenants(void **state) {
    static const char *const names[] = {"ann", "ben", NULL};
    (void)state;
    for (int i = 0; i < 12; i++) {
        fake_add(with_value(i + 1));
        fake.jobs[i].tenant = i < 6 ? names[0] : names[i % 3];
    }
    assert_int_equal(fake_work(&limits, &err), 0);
    assert_int_equal(fake.runs, 3);
    for (int i = 0; i < 12; i++) {
        const char *tenant = fake.jobs[i].tenant;
        fake_check(&fake.jobs[i], with_value(i + 1));
        assert_int_equal(fake.jobs[i].result.execution.batch_size, tenant == names[0] ? 8 : 2);
    }
}

static void test_record_says_where_time_went(void **state) {
    const struct blasd_timing *timing;
    const struct blasd_record *record;
    (void)state;
    fake_add(small);
    assert_int_equal(fake_work(&limits, &err), 0);
    record = &fake.jobs[0].result;
    timing = &record->timing;
    assert_int_equal(timing->receive_us, 7);
    assert_int_equal(timing->queue_us, 2000);
    assert_int_equal(timing->total_us, timing->receive_us + timing->queue_us +
                                           timing->batch_wait_us + timing->upload_us +
                                           timing->compute_us + timing->download_us);
    assert_int_equal(record->created_us, 1000000);
    assert_int_equal(record->started_us, record->created_us + 2000 + timing->batch_wait_us);
    assert_true(record->finished_us >= record->started_us);
    assert_string_equal(record->execution.device, "cpu:7");
    assert_string_equal(record->execution.device_name, "a test");
    assert_int_equal(record->execution.attempts, 1);
    assert_true(record->execution.flops == 16);
    assert_int_equal(record->execution.bytes, 96);
    assert_string_equal(record->op, "matmul");
}

/* Of a device that copies, computes and waits by itself. */
static void test_record_says_what_the_device_did(void **state) {
    const struct blasd_timing *timing;
    (void)state;
    fake.tells_phases = true;
    fake_add(small);
    assert_int_equal(fake_work(&limits, &err), 0);
    timing = &fake.jobs[0].result.timing;
    assert_int_equal(timing->compute_us, 100);
    assert_true(timing->upload_us >= 300);
    assert_true(timing->download_us >= 200);
    assert_true(timing->batch_wait_us >= 2000 - 600);
    assert_int_equal(timing->total_us, timing->receive_us + timing->queue_us +
                                           timing->batch_wait_us + timing->upload_us +
                                           timing->compute_us + timing->download_us);
}

static void test_inputs_are_converted(void **state) {
    struct fake_spec spec = {.n = 3,
                             .dtype = BLASD_int32,
                             .order = BLASD_COLUMN_MAJOR,
                             .value = 5,
                             .priority = BLASD_PRIORITY_NORMAL};
    (void)state;
    fake_add(spec);
    assert_int_equal(fake_work(&limits, &err), 0);
    fake_check(&fake.jobs[0], spec);
    assert_true(fake.converted);
    assert_int_equal(fake.jobs[0].result.outputs[0].tensor.dtype, BLASD_float64);
}

static void test_large_tensors_stay_in_blobs(void **state) {
    struct fake_spec spec = {
        .n = 100, .value = 4, .priority = BLASD_PRIORITY_NORMAL, .in_blob = true};
    (void)state;
    fake_add(spec);
    assert_int_equal(fake_work(&limits, &err), 0);
    assert_true(fake.jobs[0].result.payload_in_blob);
    assert_int_equal(fake.jobs[0].blob_bytes, 80000);
    assert_false(fake_blob_is_there(&fake.jobs[0], "in"));
    assert_true(fake_blob_is_there(&fake.jobs[0], "out"));
    fake_check(&fake.jobs[0], spec);
}

static void test_result_of_a_cancelled_job_is_removed(void **state) {
    struct fake_spec spec = {.n = 100, .value = 4, .priority = BLASD_PRIORITY_NORMAL};
    (void)state;
    fake_add(spec)->drop = true;
    assert_int_equal(fake_work(&limits, &err), 0);
    assert_false(fake_blob_is_there(&fake.jobs[0], "out"));
}

static void test_a_result_that_may_be_recorded_is_kept(void **state) {
    struct fake_spec spec = {.n = 100, .value = 4, .priority = BLASD_PRIORITY_NORMAL};
    (void)state;
    fake.finish_unavailable = 1;
    fake_add(spec)->drop = true;
    assert_int_equal(fake_work(&limits, &err), 0);
    assert_true(fake_blob_is_there(&fake.jobs[0], "out"));
    fake_check(&fake.jobs[0], spec);
}

/* A file in place of the first job's result. */
static void put_a_result(void) {
    char path[160];
    FILE *file;
    snprintf(path, sizeof path, "%s/%s.out", fake.dir, fake.jobs[0].id);
    unlink(path);
    file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs("another's", file) >= 0);
    assert_int_equal(fclose(file), 0);
}

/* Whether it is still there; removes it. */
static bool has_that_result(void) {
    char path[160], text[16] = "";
    FILE *file;
    snprintf(path, sizeof path, "%s/%s.out", fake.dir, fake.jobs[0].id);
    file = fopen(path, "r");
    if (file == NULL) return false;
    (void)!fgets(text, sizeof text, file);
    fclose(file);
    unlink(path);
    return strcmp(text, "another's") == 0;
}

static void test_what_a_dead_worker_left_makes_way(void **state) {
    struct fake_spec spec = {.n = 100, .value = 4, .priority = BLASD_PRIORITY_NORMAL};
    (void)state;
    fake_add(spec);
    put_a_result();
    assert_int_equal(fake_work(&limits, &err), 0);
    fake_check(&fake.jobs[0], spec);
}

/* A worker that stood still until its lease was gone finds the result of the one that took over. */
static void test_the_result_of_another_worker_stays(void **state) {
    struct fake_spec spec = {.n = 100, .value = 4, .priority = BLASD_PRIORITY_NORMAL};
    (void)state;
    fake_add(spec);
    put_a_result();
    fake.unwanted = true; /* so Redis says of a job that has ended, or whose lease is gone */
    assert_int_equal(fake_work(&limits, &err), 0);
    assert_true(has_that_result());
    assert_int_equal(fake.runs, 0);
    assert_int_equal(fake.jobs[0].result.error.code, BLASD_E_cancelled);
}

/* Which it was told is its own, and stood still before it took it away: by then it is another's. */
static void replace_a_result(void) {
    if (fake.asked++ == 0)
        put_a_result();
    else
        fake.unwanted = true;
}

static void test_a_result_that_another_made_meanwhile_stays(void **state) {
    struct fake_spec spec = {.n = 100, .value = 4, .priority = BLASD_PRIORITY_NORMAL};
    (void)state;
    fake_add(spec);
    put_a_result();
    fake.asking = replace_a_result;
    assert_int_equal(fake_work(&limits, &err), 0);
    assert_true(fake.asked >= 2);
    assert_true(has_that_result());
    assert_int_equal(fake.runs, 0);
    assert_int_equal(fake.jobs[0].result.error.code, BLASD_E_cancelled);
}

/* It ends what another has ended, or ends: the result of that name is the other's. */
static void test_an_end_that_was_refused_removes_its_own_result_only(void **state) {
    struct fake_spec spec = {.n = 100, .value = 4, .priority = BLASD_PRIORITY_NORMAL};
    (void)state;
    fake.running = put_a_result;
    fake_add(spec)->drop = true;
    assert_int_equal(fake_work(&limits, &err), 0);
    assert_int_equal(fake.jobs[0].result.state, BLASD_SUCCEEDED);
    assert_true(has_that_result());
}

/* The same where it stood still in the kernel, and its own try fails. */
static void test_a_task_that_fails_removes_its_own_result_only(void **state) {
    struct fake_spec spec = {.n = 100, .value = 4, .priority = BLASD_PRIORITY_NORMAL};
    (void)state;
    fake.singular = 4;
    fake.running = put_a_result;
    fake_add(spec);
    assert_int_equal(fake_work(&limits, &err), 0);
    assert_int_equal(fake.jobs[0].result.error.code, BLASD_E_singular_matrix);
    assert_true(has_that_result());
}

static void test_lost_inputs(void **state) {
    struct fake_spec spec = {
        .n = 100, .value = 4, .priority = BLASD_PRIORITY_NORMAL, .in_blob = true};
    char name[BLASD_BLOB_NAME];
    (void)state;
    fake_add(spec);
    fake_add(spec);
    snprintf(name, sizeof name, "%s.in", fake.jobs[0].id);
    blasd_store_remove(fake.store, name);
    assert_int_equal(fake_work(&limits, &err), 0);
    assert_int_equal(fake.jobs[0].result.state, BLASD_FAILED);
    assert_int_equal(fake.jobs[0].result.error.code, BLASD_E_inputs_lost);
    fake_check(&fake.jobs[1], spec);
    assert_int_equal(fake.jobs[1].result.execution.batch_size, 1);
}

static void test_a_broken_frame_fails_alone(void **state) {
    struct fake_job *cut;
    (void)state;
    fake_add(small);
    fake_add(small)->frame.data[0] ^= 0x55;
    cut = fake_add(small);
    cut->frame.len -= 1;
    assert_int_equal(fake_work(&limits, &err), 0);
    fake_check(&fake.jobs[0], small);
    for (int i = 1; i < 3; i++) {
        assert_int_equal(fake.jobs[i].result.state, BLASD_FAILED);
        assert_int_equal(fake.jobs[i].result.error.code, BLASD_E_internal_error);
    }
}

static void test_quarantined_runs_alone_and_last(void **state) {
    struct fake_spec quarantined = with_value(9);
    (void)state;
    quarantined.attempts = 2;
    quarantined.priority = BLASD_PRIORITY_HIGH;
    fake_add(quarantined);
    for (int i = 0; i < 3; i++) fake_add(small);
    assert_int_equal(fake_work(&limits, &err), 0);
    assert_int_equal(fake.runs, 2);
    assert_int_equal(fake.counts[0], 3);
    assert_int_equal(fake.order[1], 9);
    assert_int_equal(fake.jobs[0].result.execution.attempts, 3);
    fake_check(&fake.jobs[0], quarantined);
}

static void test_order_of_groups(void **state) {
    struct fake_spec low = with_value(1), normal = with_value(2), high = with_value(3), large;
    (void)state;
    low.priority = BLASD_PRIORITY_LOW;
    high.priority = BLASD_PRIORITY_HIGH;
    large = with_value(4);
    large.n = 30;
    fake_add(large);
    fake_add(low);
    fake_add(normal);
    fake_add(high);
    assert_int_equal(fake_work(&limits, &err), 0);
    assert_int_equal(fake.runs, 4);
    assert_memory_equal(fake.order, ((char[]){3, 2, 4, 1}), 4);
}

static void test_groups_are_capped_by_work(void **state) {
    (void)state;
    limits.batch_flops = 40; /* a job has 16 */
    for (int i = 0; i < 5; i++) fake_add(small);
    assert_int_equal(fake_work(&limits, &err), 0);
    assert_int_equal(fake.runs, 3);
    for (int i = 0; i < 5; i++) fake_check(&fake.jobs[i], small);
}

static void test_out_of_memory_splits_the_batch(void **state) {
    (void)state;
    fake.memory_for = 3;
    for (int i = 0; i < 10; i++) fake_add(with_value(i + 1));
    assert_int_equal(fake_work(&limits, &err), 0);
    for (int i = 0; i < 10; i++) {
        fake_check(&fake.jobs[i], with_value(i + 1));
        assert_true(fake.jobs[i].result.execution.batch_size <= 3);
        assert_int_equal(fake.jobs[i].begun, 1);
    }
}

static void test_a_call_that_fails_is_tried_one_by_one(void **state) {
    (void)state;
    fake.poison = 4;
    for (int i = 0; i < 6; i++) fake_add(with_value(i + 1));
    assert_int_equal(fake_work(&limits, &err), 0);
    for (int i = 0; i < 6; i++) {
        if (i != 3) {
            fake_check(&fake.jobs[i], with_value(i + 1));
            continue;
        }
        assert_int_equal(fake.jobs[i].result.state, BLASD_FAILED);
        assert_int_equal(fake.jobs[i].result.error.code, BLASD_E_not_converged);
    }
}

static void test_a_task_fails_alone(void **state) {
    struct fake_spec spec = {.n = 100, .priority = BLASD_PRIORITY_NORMAL};
    (void)state;
    fake.singular = 2;
    for (int i = 0; i < 3; i++) {
        spec.value = i + 1;
        fake_add(spec);
    }
    assert_int_equal(fake_work(&limits, &err), 0);
    assert_int_equal(fake.runs, 1);
    assert_int_equal(fake.jobs[1].result.error.code, BLASD_E_singular_matrix);
    assert_string_equal(fake.jobs[1].result.error.field, "inputs.a");
    assert_false(fake_blob_is_there(&fake.jobs[1], "out"));
    for (int i = 0; i < 3; i += 2) {
        spec.value = i + 1;
        fake_check(&fake.jobs[i], spec);
    }
}

static void test_a_device_that_fails_ends_the_worker(void **state) {
    struct fake_spec spec = {.n = 100, .value = 1, .priority = BLASD_PRIORITY_NORMAL};
    (void)state;
    fake.device_fails = true;
    fake_add(spec);
    assert_int_equal(fake_work(&limits, &err), -(int)BLASD_E_device_error);
    assert_string_equal(err.detail, "it fell off the bus");
    assert_int_equal(fake.releases, 1);
    assert_false(fake.jobs[0].ended);
    assert_false(fake.jobs[0].claimed);
    assert_int_equal(fake.jobs[0].attempts, 1);
    assert_false(fake_blob_is_there(&fake.jobs[0], "out"));
}

static void test_finish_is_repeated_while_redis_is_away(void **state) {
    (void)state;
    fake.finish_unavailable = 4;
    for (int i = 0; i < 3; i++) fake_add(small);
    assert_int_equal(fake_work(&limits, &err), 0);
    assert_int_equal(fake.runs, 1);
    assert_int_equal(fake.registers, 1);
    for (int i = 0; i < 3; i++) fake_check(&fake.jobs[i], small);
}

static void test_a_lost_lease_is_taken_anew(void **state) {
    (void)state;
    fake.finish_lost = 1;
    for (int i = 0; i < 3; i++) fake_add(small);
    assert_int_equal(fake_work(&limits, &err), 0);
    assert_int_equal(fake.registers, 2);
    for (int i = 0; i < 3; i++) {
        fake_check(&fake.jobs[i], small);
        assert_int_equal(fake.jobs[i].result.execution.attempts, 2);
        assert_int_equal(fake.jobs[i].result.execution.batch_size, 1);
    }
}

/* Nothing runs when the second lease is taken, so that nothing is watched, told and stopped. */
static void test_what_could_not_begin_does_not_run(void **state) {
    struct fake_spec spec = {
        .n = 100, .value = 4, .priority = BLASD_PRIORITY_NORMAL, .in_blob = true};
    (void)state;
    limits.lease_ms = 200;
    fake.away = true;
    fake_add(spec);
    assert_int_equal(fake_work(&limits, &err), 0);
    assert_int_equal(fake.registers, 2);
    assert_non_null(strstr(fake.info, "\"running\":0"));
    fake_check(&fake.jobs[0], spec);
}

static void test_an_unwanted_batch_is_stopped(void **state) {
    (void)state;
    fake.slow = fake.unwanted = true;
    fake_add(small)->drop = true;
    assert_int_equal(fake_work(&limits, &err), 0);
    assert_true(fake.progress > 0);
    assert_true(fake.remaining_us > 0);
    assert_int_equal(fake.runs, 1);
    assert_int_equal(fake.jobs[0].result.error.code, BLASD_E_cancelled);
}

/* What the worker knows of products of 100 x 100 when it has run the jobs there are. */
static int points_after_work(void) {
    struct blasd_cost cost;
    struct blasd_device_info info;
    struct blasd_cost_curve *curve =
        &cost.curves[blasd_op_position(blasd_op_find("matmul"))][BLASD_COST_FLOAT64];
    char kept[64], path[96];
    snprintf(kept, sizeof kept, "%s-kept", fake.dir);
    fake.kept_in = kept;
    fake_device_info(NULL, false, &info, &err);
    assert_int_equal(fake_work(&limits, &err), 0);
    assert_true(blasd_cost_file_load(kept, &info, "1", &cost));
    snprintf(path, sizeof path, "%s/cpu.7", kept);
    unlink(path);
    assert_int_equal(rmdir(kept), 0);
    return curve->count;
}

static void test_a_job_teaches_what_it_costs(void **state) {
    struct fake_spec spec = {.n = 100, .value = 4, .priority = BLASD_PRIORITY_NORMAL};
    (void)state;
    fake_add(spec);
    assert_int_equal(points_after_work(), 1);
    fake_check(&fake.jobs[0], spec);
}

/* It may have ended long before it had computed what its plan says. */
static void test_a_job_that_fails_teaches_nothing(void **state) {
    struct fake_spec spec = {.n = 100, .value = 4, .priority = BLASD_PRIORITY_NORMAL};
    (void)state;
    fake.singular = 4;
    fake_add(spec);
    assert_int_equal(points_after_work(), 0);
    assert_int_equal(fake.jobs[0].result.error.code, BLASD_E_singular_matrix);
}

static void test_a_call_that_fails_teaches_nothing(void **state) {
    struct fake_spec spec = {.n = 100, .value = 4, .priority = BLASD_PRIORITY_NORMAL};
    (void)state;
    fake.poison = 4;
    fake_add(spec);
    assert_int_equal(points_after_work(), 0);
    assert_int_equal(fake.jobs[0].result.error.code, BLASD_E_not_converged);
}

static void test_a_job_that_was_stopped_teaches_nothing(void **state) {
    struct fake_spec spec = {.n = 100, .value = 4, .priority = BLASD_PRIORITY_NORMAL};
    (void)state;
    fake.slow = fake.unwanted = true;
    fake_add(spec)->drop = true;
    assert_int_equal(points_after_work(), 0);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, fake_teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_equal_jobs_run_as_one_call),
        TEST(test_no_call_is_two_tenants),
        TEST(test_record_says_where_time_went),
        TEST(test_record_says_what_the_device_did),
        TEST(test_inputs_are_converted),
        TEST(test_large_tensors_stay_in_blobs),
        TEST(test_result_of_a_cancelled_job_is_removed),
        TEST(test_a_result_that_may_be_recorded_is_kept),
        TEST(test_what_a_dead_worker_left_makes_way),
        TEST(test_the_result_of_another_worker_stays),
        TEST(test_a_result_that_another_made_meanwhile_stays),
        TEST(test_an_end_that_was_refused_removes_its_own_result_only),
        TEST(test_a_task_that_fails_removes_its_own_result_only),
        TEST(test_lost_inputs),
        TEST(test_a_broken_frame_fails_alone),
        TEST(test_quarantined_runs_alone_and_last),
        TEST(test_order_of_groups),
        TEST(test_groups_are_capped_by_work),
        TEST(test_out_of_memory_splits_the_batch),
        TEST(test_a_call_that_fails_is_tried_one_by_one),
        TEST(test_a_task_fails_alone),
        TEST(test_a_device_that_fails_ends_the_worker),
        TEST(test_finish_is_repeated_while_redis_is_away),
        TEST(test_a_lost_lease_is_taken_anew),
        TEST(test_what_could_not_begin_does_not_run),
        TEST(test_an_unwanted_batch_is_stopped),
        TEST(test_a_job_teaches_what_it_costs),
        TEST(test_a_job_that_fails_teaches_nothing),
        TEST(test_a_call_that_fails_teaches_nothing),
        TEST(test_a_job_that_was_stopped_teaches_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
