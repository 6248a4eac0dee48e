/* What ends a batch, and the worker where the batch does not end: against a queue in memory and a
 * kernel that may ignore its watch. */
#include "core/kernel.h"

extern const struct blasd_backend hanging_backend;
#define FAKE_BACKEND hanging_backend
#include "fake_jobs.h"

#include <stdatomic.h>

#define HEAVY_N 400 /* goes to the slow pool, where there is one */
#define TIMEOUT_MS 60000

static struct blasd_limits limits;
static struct blasd_err err;

/* What the kernel does, and what it saw. A job whose first element is 7 goes on for ever, one with
 * 8 until it is told to stop. */
static struct {
    bool heeds_nothing; /* also that one with 8 */
    atomic_int calls, stopped;
    atomic_bool in_lane; /* one of 7 computes beside the main thread */
    atomic_bool hung;    /* the worker has ended the process, as far as it knows */
    atomic_int signs, renewed, renewed_at_sign;
} seen;

static bool goes_on(struct blasd_watch *watch, bool heeds) {
    for (int ms = 0; ms < TIMEOUT_MS && !seen.hung; ms++) {
        bool wanted = watch->go_on(watch, 0.5);
        if (!wanted && heeds) {
            seen.stopped++;
            return false;
        }
        usleep(1000);
    }
    return false;
}

static int hanging_run(struct blasd_device *device, struct blasd_task *tasks, int count,
                       struct blasd_watch *watch, struct blasd_err *ret) {
    (void)device;
    seen.calls++;
    for (int i = 0; i < count; i++) {
        double first = fake_element(&tasks[i].inputs[0], 0, 0);
        if ((first == 7 || first == 8) && !goes_on(watch, first == 8 && !seen.heeds_nothing))
            return blasd_fail(ret, BLASD_E_cancelled, "", "stopped");
        fake_multiply(&tasks[i]);
    }
    return 0;
}

static const struct blasd_kernel hanging_kernel = {.op = "matmul", .run = hanging_run};
static const struct blasd_kernel *const hanging_kernels[] = {&hanging_kernel, NULL};
#define BACKEND(lane)                                                                              \
    {                                                                                              \
        .abi = BLASD_BACKEND_ABI, .name = "cpu", .device_class = BLASD_DEVICE_CPU,                 \
        .device_count = fake_device_count, .device_open = fake_device_open,                        \
        .device_close = fake_device_close, .device_info = fake_device_info,                        \
        .kernels = hanging_kernels, .side_by_side = lane                                           \
    }
const struct blasd_backend hanging_backend = BACKEND(false);
static const struct blasd_backend lane_backend = BACKEND(true);

/* What a process that ended would leave: its lease is another's, its jobs are back. */
static void on_hung(void *arg) {
    (void)arg;
    pthread_mutex_lock(&fake.lock);
    fake.epoch++;
    pthread_mutex_unlock(&fake.lock);
    seen.hung = true;
}

static void on_alive(void *arg) {
    (void)arg;
    seen.signs++;
    seen.renewed_at_sign = seen.renewed;
}

static bool stopping(void *arg) {
    return seen.hung || fake_stopping(arg);
}

static int work_on(const struct blasd_backend *backend, bool (*until)(void *arg)) {
    struct blasd_worker_options options = {.queue = {.limits = &limits, .store = fake.store},
                                           .backend = backend,
                                           .name = "tester",
                                           .stopping = until,
                                           .ready = fake_ready,
                                           .alive = on_alive,
                                           .hung = on_hung};
    fake.started_ns = blasd_clock_ns();
    return blasd_worker_run(&options, &err);
}

static int setup(void **state) {
    blasd_limits_init(&limits);
    limits.stop_s = 1;
    err = (struct blasd_err){0};
    memset(&seen, 0, sizeof seen);
    return fake_setup(state);
}

static const struct fake_spec small = {.n = 2, .value = 3, .priority = BLASD_PRIORITY_NORMAL};
static const struct fake_spec endless = {.n = 2, .value = 7, .priority = BLASD_PRIORITY_NORMAL};
static const struct fake_spec slow = {.n = 2, .value = 8, .priority = BLASD_PRIORITY_NORMAL};

static void expect_too_long(const struct fake_job *job) {
    assert_true(job->ended);
    assert_int_equal(job->result.state, BLASD_FAILED);
    assert_int_equal(job->result.error.code, BLASD_E_job_too_long);
    assert_non_null(strstr(job->result.error.detail, "job_s"));
}

static void test_a_job_past_job_s_is_stopped_and_fails(void **state) {
    (void)state;
    limits.job_s = 1;
    fake_add(slow);
    assert_int_equal(work_on(&hanging_backend, stopping), 0);
    assert_int_equal(seen.stopped, 1);
    assert_false(seen.hung);
    expect_too_long(&fake.jobs[0]);
}

static void test_its_batch_mates_are_unharmed(void **state) {
    (void)state;
    limits.job_s = 1;
    fake_add(small);
    fake_add(slow);
    fake_add(small);
    assert_int_equal(work_on(&hanging_backend, stopping), 0);
    assert_int_equal(seen.calls, 4); /* all at once, then one by one */
    assert_int_equal(seen.stopped, 2);
    assert_false(seen.hung);
    fake_check(&fake.jobs[0], small);
    expect_too_long(&fake.jobs[1]);
    fake_check(&fake.jobs[2], small);
}

/* Of a key that gives its jobs less time than the service does. */
static void test_a_job_past_the_time_of_its_key(void **state) {
    struct fake_spec brief = slow;
    (void)state;
    brief.most_s = 1;
    fake_add(small);
    fake_add(brief);
    assert_int_equal(work_on(&hanging_backend, stopping), 0);
    assert_int_equal(seen.calls, 3); /* both at once, then one by one */
    fake_check(&fake.jobs[0], small);
    expect_too_long(&fake.jobs[1]);
    assert_non_null(strstr(fake.jobs[1].result.error.detail, "1 s"));
}

static bool told_after_some_signs(void *arg) {
    (void)arg;
    return seen.signs > 5;
}

/* Neither a job that computes long nor a main thread that runs it is taken for one that hangs. */
static void test_without_the_limit_it_may_take_its_time(void **state) {
    (void)state;
    limits.job_s = 0;
    limits.silence_s = limits.drain_s = 1;
    fake_add(slow);
    assert_int_equal(work_on(&hanging_backend, told_after_some_signs), 0);
    assert_int_equal(seen.stopped, 1);
    assert_false(seen.hung);
    assert_false(fake.jobs[0].ended);
}

/* One that ignores the watch: the worker ends, and the job is not run again. */
static void test_one_that_would_not_stop_ends_the_worker(void **state) {
    (void)state;
    limits.job_s = 1;
    fake_add(endless);
    assert_int_equal(work_on(&hanging_backend, stopping), 0);
    assert_true(seen.hung);
    expect_too_long(&fake.jobs[0]);
    assert_true(fake.releases >= 1);
}

/* Of several in one call nobody knows which it is: all go back, to be run alone. */
static void test_several_that_would_not_stop_go_back(void **state) {
    (void)state;
    limits.job_s = 1;
    fake_add(endless);
    fake_add(small);
    assert_int_equal(work_on(&hanging_backend, stopping), 0);
    assert_true(seen.hung);
    for (int i = 0; i < 2; i++) {
        assert_false(fake.jobs[i].ended);
        assert_false(fake.jobs[i].claimed);
        assert_int_equal(fake.jobs[i].attempts, 1);
    }
}

static void test_a_cancelled_one_that_would_not_stop_ends_the_worker(void **state) {
    (void)state;
    fake_add(endless);
    fake.unwanted = true;
    assert_int_equal(work_on(&hanging_backend, stopping), 0);
    assert_true(seen.hung);
    assert_false(fake.jobs[0].ended); /* the queue has ended it before */
}

/* The slow pool's job hangs: what waits beside it goes back as if nobody had begun it. */
static void test_what_hangs_in_the_lane_ends_the_worker(void **state) {
    struct fake_spec large = endless, other = endless;
    char name[BLASD_BLOB_NAME];
    (void)state;
    large.n = other.n = HEAVY_N;
    large.in_blob = other.in_blob = true;
    other.dtype = BLASD_float32;
    limits.job_s = 1;
    fake_add(large);
    fake_add(other);
    assert_int_equal(work_on(&lane_backend, stopping), 0);
    assert_true(seen.hung);
    expect_too_long(&fake.jobs[0]);
    assert_false(fake.jobs[1].ended);
    assert_false(fake.jobs[1].claimed);
    assert_int_equal(fake.jobs[1].attempts, 0);
    for (int i = 0; i < 2; i++) {
        snprintf(name, sizeof name, "%s.in", fake.jobs[i].id);
        blasd_store_remove(fake.store, name);
        snprintf(name, sizeof name, "%s.out", fake.jobs[i].id);
        blasd_store_remove(fake.store, name);
    }
}

static bool told_once_it_runs(void *arg) {
    (void)arg;
    return seen.calls > 0;
}

/* Told to end, the worker waits for what computes no longer than drain_s, and then stop_s. */
static void test_a_drain_stops_what_takes_too_long(void **state) {
    (void)state;
    limits.drain_s = 1;
    fake_add(slow);
    assert_int_equal(work_on(&hanging_backend, told_once_it_runs), 0);
    assert_int_equal(seen.stopped, 1);
    assert_false(seen.hung);
    assert_false(fake.jobs[0].ended);
    assert_false(fake.jobs[0].claimed);
}

static void test_a_drain_does_not_wait_for_what_hangs(void **state) {
    (void)state;
    limits.drain_s = 1;
    fake_add(endless);
    assert_int_equal(work_on(&hanging_backend, told_once_it_runs), 0);
    assert_true(seen.hung);
    assert_false(fake.jobs[0].ended);
    assert_false(fake.jobs[0].claimed);
}

/* The main thread waits for ever: first its lease is renewed no more, then the worker ends. */
static void count_renewal(void) {
    seen.renewed++;
}

static void stand_still(void) {
    for (int ms = 0; ms < TIMEOUT_MS && !seen.hung; ms++) usleep(1000);
}

static bool told_when_hung(void *arg) {
    (void)arg;
    return seen.hung;
}

static void test_a_loop_that_stands_still_loses_its_lease(void **state) {
    (void)state;
    limits.silence_s = 1;
    limits.lease_ms = 500; /* renewed each 125 ms */
    fake.renewing = count_renewal;
    fake.waiting = stand_still;
    fake_add(small);
    assert_int_equal(work_on(&hanging_backend, told_when_hung), 0);
    assert_true(seen.hung);
    fake_check(&fake.jobs[0], small);
    assert_true(seen.renewed > 0);
    /* the last sign came at most 1.2 s before the end at 3 s; one renewal may have been on its way
     */
    assert_in_range(seen.renewed - seen.renewed_at_sign, 0, 1);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, fake_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(test_a_job_past_job_s_is_stopped_and_fails),
        TEST(test_its_batch_mates_are_unharmed),
        TEST(test_a_job_past_the_time_of_its_key),
        TEST(test_without_the_limit_it_may_take_its_time),
        TEST(test_one_that_would_not_stop_ends_the_worker),
        TEST(test_several_that_would_not_stop_go_back),
        TEST(test_a_cancelled_one_that_would_not_stop_ends_the_worker),
        TEST(test_what_hangs_in_the_lane_ends_the_worker),
        TEST(test_a_drain_stops_what_takes_too_long),
        TEST(test_a_drain_does_not_wait_for_what_hangs),
        TEST(test_a_loop_that_stands_still_loses_its_lease),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
