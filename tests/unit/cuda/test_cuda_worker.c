/* The worker on the CUDA backend, over a queue in memory and the stand-in library: mixed small jobs
 * in one call, batches that overlap, memory that runs short, an error that sticks. */
extern const struct blasd_backend blasd_backend;
#define FAKE_BACKEND blasd_backend
#include "../worker/fake_jobs.h"

#include "kernels/cuda/tuning.h"
#include "tests/standin/library_standin.h"

#include "fake_nvml_load.h"

static struct blasd_limits limits;
static struct blasd_err err;

static int setup(void **state) {
    blasd_limits_init(&limits);
    err = (struct blasd_err){0};
    return fake_setup(state);
}

static int teardown(void **state) {
    blasd_standin_repair();
    blasd_standin.memory_bytes = (uint64_t)1 << 30;
    assert_int_equal(blasd_standin.device_blocks, 0);
    assert_int_equal(blasd_standin.streams, 0);
    return fake_teardown(state);
}

static struct fake_spec spec_of(int i) {
    static const enum blasd_dtype dtypes[] = {BLASD_float64, BLASD_float32, BLASD_int32};
    return (struct fake_spec){.n = 1 + i * 7 % 40,
                              .dtype = dtypes[i % 3],
                              .order = i % 2 ? BLASD_COLUMN_MAJOR : BLASD_ROW_MAJOR,
                              .value = i,
                              .priority = i % 5 ? BLASD_PRIORITY_NORMAL : BLASD_PRIORITY_HIGH};
}

static void jobs_of_all_shapes(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < 4; seed++) {
        blasd_standin.seed = seed;
        if (seed > 0) {
            fake_teardown(state);
            setup(state);
        }
        for (int i = 0; i < MOST_JOBS; i++) fake_add(spec_of(i));
        assert_int_equal(fake_work(&limits, &err), 0);
        for (int i = 0; i < MOST_JOBS; i++) {
            const struct blasd_record *record = &fake.jobs[i].result;
            fake_check(&fake.jobs[i], spec_of(i));
            assert_string_equal(record->execution.device, "cuda:0");
            /* two dtypes to compute in, two priorities: four calls for all shapes */
            assert_true(record->execution.batch_size > 1);
            assert_int_equal(record->timing.total_us,
                             record->timing.receive_us + record->timing.queue_us +
                                 record->timing.batch_wait_us + record->timing.upload_us +
                                 record->timing.compute_us + record->timing.download_us);
        }
        assert_true(fake.finishes <= 4);
    }
    blasd_standin.seed = 1;
}

/* Whichever call it is that breaks the device: the worker ends, and its jobs go to others. */
static void a_device_that_fails_ends_the_worker(void **state) {
    int n = 1, code = -1;
    (void)state;
    for (; code != 0 && n < 2000; n++) {
        if (n > 1) {
            fake_teardown(state);
            setup(state);
        }
        for (int i = 0; i < 10; i++) fake_add(spec_of(i));
        blasd_standin.fail_at = n;
        blasd_standin.fail_code = BLASD_E_device_error;
        code = fake_work(&limits, &err);
        for (int i = 0; i < 10; i++) {
            if (code == 0) assert_true(fake.jobs[i].ended);
            if (fake.jobs[i].ended && fake.jobs[i].result.state == BLASD_SUCCEEDED)
                fake_check(&fake.jobs[i], spec_of(i));
            else
                assert_true(!fake.jobs[i].ended && !fake.jobs[i].claimed);
        }
        if (code != 0) assert_int_equal(code, -(int)BLASD_E_device_error);
        blasd_standin_repair();
        assert_int_equal(blasd_standin.device_blocks + blasd_standin.host_blocks, 0);
        assert_int_equal(blasd_standin.streams + blasd_standin.events, 0);
    }
    assert_true(n > 50 && n < 2000);
}

static void short_memory_costs_no_job(void **state) {
    bool met = true;
    int n = 1;
    (void)state;
    for (; met && n < 2000; n++) {
        int code;
        if (n > 1) {
            fake_teardown(state);
            setup(state);
        }
        for (int i = 0; i < 12; i++) fake_add(spec_of(i));
        blasd_standin.fail_at = n;
        blasd_standin.fail_code = BLASD_E_out_of_memory;
        code = fake_work(&limits, &err);
        met = blasd_standin.fail_at == 0;
        blasd_standin_repair();
        if (code == 0) {
            for (int i = 0; i < 12; i++) fake_check(&fake.jobs[i], spec_of(i));
        } else { /* the device did not open: nobody had a job */
            assert_int_equal(code, -(int)BLASD_E_out_of_memory);
            for (int i = 0; i < 12; i++) assert_true(!fake.jobs[i].claimed);
        }
    }
    assert_true(n > 50 && n < 2000);
}

/* What the card counts goes into the worker's heartbeat, and what a batch drew into its records. */
static void the_card_tells_of_itself(void **state) {
    struct fake_nvml *card = fake_nvml_load();
    (void)state;
    assert_non_null(card);
    *card = (struct fake_nvml){
        .percent = 37, .milliwatts = 250500, .available = 12345, .millijoules = 7000, .step = 500};
    blasd_cuda_tuning.energy_ns = 0;
    for (int i = 0; i < 10; i++) fake_add(spec_of(i));
    assert_int_equal(fake_work(&limits, &err), 0);
    for (int i = 0; i < 10; i++) {
        fake_check(&fake.jobs[i], spec_of(i));
        assert_true(fake.jobs[i].result.execution.energy_joules > 0);
    }
    assert_non_null(strstr(fake.info, "\"memory_free_bytes\":12345,"));
    assert_non_null(strstr(fake.info, "\"power_watts\":250.5,"));
    assert_non_null(strstr(fake.info, "\"busy_percent\":37,"));
    assert_non_null(strstr(fake.info, "\"energy_joules\":"));
    blasd_nvml_library = "/nowhere";
    fake_teardown(state);
    setup(state);
    for (int i = 0; i < 3; i++) fake_add(spec_of(i));
    assert_int_equal(fake_work(&limits, &err), 0);
    for (int i = 0; i < 3; i++) assert_true(fake.jobs[i].result.execution.energy_joules == 0);
    assert_null(strstr(fake.info, "power_watts"));
    assert_null(strstr(fake.info, "busy_percent"));
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(jobs_of_all_shapes),
        TEST(a_device_that_fails_ends_the_worker),
        TEST(short_memory_costs_no_job),
        TEST(the_card_tells_of_itself),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
