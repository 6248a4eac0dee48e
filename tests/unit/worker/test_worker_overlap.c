/* The worker with a device that works by itself: everything that holds for one that does not, and
 * two batches at a time. */
#define FAKE_OVERLAP
int test_worker_main(void);
#define main test_worker_main
#include "test_worker.c"
#undef main

static void test_the_next_batch_begins_before_the_last_one_ends(void **state) {
    struct fake_spec spec = small;
    (void)state;
    fake_overlaps = 0;
    for (int i = 0; i < 5; i++) {
        spec.n = i + 2;
        fake_add(spec);
        fake_add(spec);
    }
    assert_int_equal(fake_work(&limits, &err), 0);
    assert_int_equal(fake_overlaps, 4);
    assert_int_equal(fake_begun, fake_ended);
    for (int i = 0; i < 10; i++) {
        spec.n = i / 2 + 2;
        fake_check(&fake.jobs[i], spec);
        assert_int_equal(fake.jobs[i].result.execution.batch_size, 2);
    }
}

/* A batch that fails as a whole while the next is under way. */
static void test_one_of_two_fails(void **state) {
    struct fake_spec spec = small;
    (void)state;
    fake.poison = 2;
    for (int i = 0; i < 6; i++) {
        spec.n = i < 3 ? 2 : 3;
        spec.value = i + 1;
        fake_add(spec);
    }
    assert_int_equal(fake_work(&limits, &err), 0);
    for (int i = 0; i < 6; i++) {
        spec.n = i < 3 ? 2 : 3;
        spec.value = i + 1;
        if (i == 1)
            assert_int_equal(fake.jobs[i].result.error.code, BLASD_E_not_converged);
        else
            fake_check(&fake.jobs[i], spec);
    }
}

/* One that takes too long, while the next batch is under way. */
static void test_one_of_two_takes_too_long(void **state) {
    struct fake_spec spec = small;
    (void)state;
    limits.job_s = 1;
    fake.endless = 2;
    for (int i = 0; i < 6; i++) {
        spec.n = i < 3 ? 2 : 3;
        spec.value = i + 1;
        fake_add(spec);
    }
    assert_int_equal(fake_work(&limits, &err), 0);
    assert_int_equal(fake_begun, fake_ended);
    for (int i = 0; i < 6; i++) {
        spec.n = i < 3 ? 2 : 3;
        spec.value = i + 1;
        if (i == 1)
            assert_int_equal(fake.jobs[i].result.error.code, BLASD_E_job_too_long);
        else
            fake_check(&fake.jobs[i], spec);
    }
}

static void test_two_under_way_when_the_device_fails(void **state) {
    struct fake_spec spec = {.n = 100, .value = 1, .priority = BLASD_PRIORITY_NORMAL};
    (void)state;
    fake.device_fails = true;
    fake_add(spec);
    spec.n = 90;
    fake_add(spec);
    assert_int_equal(fake_work(&limits, &err), -(int)BLASD_E_device_error);
    for (int i = 0; i < 2; i++) {
        assert_false(fake.jobs[i].ended);
        assert_false(fake.jobs[i].claimed);
        assert_false(fake_blob_is_there(&fake.jobs[i], "out"));
    }
    assert_int_equal(fake_begun, fake_ended);
}

static void test_two_under_way_when_the_lease_is_lost(void **state) {
    struct fake_spec spec = small;
    (void)state;
    fake.finish_lost = 1;
    for (int i = 0; i < 6; i++) {
        spec.n = i / 2 + 2;
        fake_add(spec);
    }
    assert_int_equal(fake_work(&limits, &err), 0);
    assert_int_equal(fake.registers, 2);
    assert_int_equal(fake_begun, fake_ended);
    for (int i = 0; i < 6; i++) {
        spec.n = i / 2 + 2;
        fake_check(&fake.jobs[i], spec);
    }
}

static void test_jobs_that_differ_share_a_call_where_the_kernel_says_so(void **state) {
    struct fake_spec spec = small;
    (void)state;
    fake.mixes = true;
    for (int i = 0; i < 8; i++) {
        spec.n = i + 1;
        fake_add(spec);
    }
    assert_int_equal(fake_work(&limits, &err), 0);
    assert_int_equal(fake.runs, 1);
    for (int i = 0; i < 8; i++) {
        spec.n = i + 1;
        fake_check(&fake.jobs[i], spec);
        assert_int_equal(fake.jobs[i].result.execution.batch_size, 8);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(test_the_next_batch_begins_before_the_last_one_ends),
        TEST(test_one_of_two_fails),
        TEST(test_one_of_two_takes_too_long),
        TEST(test_two_under_way_when_the_device_fails),
        TEST(test_two_under_way_when_the_lease_is_lost),
        TEST(test_jobs_that_differ_share_a_call_where_the_kernel_says_so),
    };
    int failed = test_worker_main();
    return failed + cmocka_run_group_tests(tests, NULL, NULL);
}
